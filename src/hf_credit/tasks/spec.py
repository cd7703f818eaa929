"""The task, prompts, sampling and method of a policy, in a small file next to its weights."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

from hf_credit import collaborations, environments
from hf_credit.boundary import read, types_of
from hf_credit.environments import Environment
from hf_credit.files import write_json
from hf_credit.options import part_of
from hf_credit.oracles import Judge
from hf_credit.playing import Prompts, Sampling, as_written
from hf_credit.redaction import redacted
from hf_credit.registry import find, refuse_options, remember
from hf_credit.renamed import with_new_keys
from hf_credit.rollouts import EnvironmentInteraction, Interaction
from hf_credit.rollouts.chat import TODAY
from hf_credit.safe_io import read_json
from hf_credit.trust import NO_CONSENT, Consent, code_in, is_code, only_typed_here

if TYPE_CHECKING:
    from hf_credit.methods import Method

TASK_FILE = "hf_credit_task.json"

OWN_CODE = (
    "hf_credit.collaborations.hinted_relay:hinted_relay_score",
    "hf_credit.collaborations.relay:relay_score",
    "hf_credit.collaborations.text:sanitise_mathematics",
    "hf_credit.verifiers.code:score",
    "hf_credit.verifiers.math:score_task",
    "hf_credit.verifiers.options:answer_key",
    "hf_credit.verifiers.options:option_key",
    "hf_credit.verifiers.options:option_score",
)
"""Functions of this library that the task file of an untrusted policy may name."""

_CONSENT = "name it yourself ({}), or add --trust-remote-code (from Python, trusted=True)."
_NOT_IN_FILES = ("trusted", "consent")

# By task, the options that choose a server, what is sent there, an import, or a path.
_TYPED_ONLY = {
    "agent": ("agent", "environment"),
    "gymnasium": ("id", "options"),
    "judged_puzzles": ("path",),
    "openenv": ("url", "token_variable"),
    "situation_puzzles": ("path",),
    "textworld": ("games",),
}


class NamedPart(TypedDict):
    """What `hf_credit.methods.make` takes."""

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TaskSpec(Prompts):
    """A task, the format of its prompts, the sampling parameters, and the method that trained the policy.

    Evaluation must use the same prompts as training. `Interaction.spec` returns the task's fields and its prompts.

    Attributes:
        task: the name of an environment, for one agent, or of a collaboration; or `"module:object"`, which makes one.
        task_options: its options, as for `hf_credit.make` or `hf_credit.collaborations.make`.
        history, instructions, max_turns: of an environment, as in `Prompts`.
        chat_template_kwargs: arguments of the chat template.
        method: the `name` and `options` of the method that trained the policy, as for `hf_credit.methods.make`.
        critic_model: the backbone of the method's critic, if it was named.
        trusted: whether code that is named here as `module:object`, outside of this library, may be imported. It is
            false for a spec from `load`, whatever the file contains.
        consent: the code and the options that the user named, which are always trusted.

    Raises:
        ValueError: no task is named, or a setting of its prompts does not fit.
    """

    task: str
    task_options: Mapping[str, Any] = field(default_factory=dict)
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    method: NamedPart | None = None
    critic_model: str | None = None
    trusted: bool = field(default=True, compare=False)
    consent: Consent = field(default=NO_CONSENT, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.task:
            raise ValueError("a task must be named, got none; set task to a name of hf-credit envs, or module:object.")

    @classmethod
    def of(cls, interaction: Interaction[Any], **others: Any) -> TaskSpec:
        """The spec of an interaction.

        Args:
            **others: the attributes that its `spec` does not return.

        Raises:
            ValueError: it cannot describe itself (see `Interaction.spec`), or its `spec` returns unknown fields.
        """
        known = with_new_keys(interaction.spec())
        _refuse_unknown(known, cls)
        return cls(**known, **others)

    @classmethod
    def of_name(cls, name: str, options: Mapping[str, Any] | None = None, **others: Any) -> TaskSpec:
        """The spec of the environment or collaboration `name`.

        Args:
            name: of an environment or a collaboration, or a `"module:object"`, which is imported.
            options: its options.
            **others: further attributes; those of `Prompts` are ignored for a collaboration.

        Raises:
            ValueError: there is no such task.
        """
        prompts = {key: others.pop(key) for key in types_of(Prompts) if key in others}
        plain = cls(task=name, task_options=options or {}, **others)
        return dataclasses.replace(plain, **prompts) if plain.has_prompts() else plain

    def has_prompts(self) -> bool:
        """Whether `Prompts` applies to it, as it is an environment; a `"module:object"` is built to find out.

        Raises:
            ValueError: as in `build`, for a `"module:object"` or an unknown name.
        """
        if self.task in collaborations.known():
            return False
        return self.task in environments.known() or isinstance(self.build(), EnvironmentInteraction)

    def on(self, name: str, options: Mapping[str, Any]) -> TaskSpec:
        """The spec of another task that the user named, with the same prompt format and sampling where they apply."""
        kept = {key: value for key, value in vars(self).items() if key not in ("task", "task_options", "consent")}
        return TaskSpec.of_name(name, options, consent=self.consent.to_code(name).to_options(options), **kept)

    def with_options(self, options: Mapping[str, Any]) -> TaskSpec:
        """A copy with options that the user gave; these, and the code that they name, are trusted."""
        known = {**self.task_options, **options}
        return dataclasses.replace(self, consent=self.consent.to_options(options), task_options=known)

    def shown_unlike(self, known: TaskSpec | None, model: str) -> str | None:
        """One sentence on how the prompts differ from those of the policy's training; `None` if they do not.

        Args:
            known: the spec in the policy's folder, of its warm-up or training, or `None`.
            model: the policy's folder or id, for the sentence.
        """
        if known is None:
            return None
        names = () if {self.task, known.task} & set(collaborations.known()) else ("history", "instructions")
        pairs = [(name, getattr(self, name), getattr(known, name)) for name in names]
        switches, known_switches = (dict(one.chat_template_kwargs) for one in (self, known))
        switches.pop(TODAY, known_switches.pop(TODAY, None))  # each run has its own date
        pairs.append(("chat_template_kwargs", switches, known_switches))
        differences = [f"{name}={here!r}, not {there!r}" for name, here, there in pairs if here != there]
        if not differences:
            return None
        return (
            f"the policy {model!r} was trained on other prompts: {', '.join(differences)}; use its settings, or "
            "expect poor replies."
        )

    def build(self) -> Interaction[Any]:
        """The interaction of the task.

        Raises:
            ValueError: the name, an option or a setting is invalid, or code is not trusted.
        """
        self._refuse_untrusted_code({self.task} | code_in(self.task_options))
        self._refuse_untrusted_options()
        with self._import_path():
            made = _made(self.task, self.task_options)
        prompts = part_of(Prompts, self)
        if isinstance(made, Environment):
            return EnvironmentInteraction(made, **vars(prompts))
        if prompts != Prompts():
            raise ValueError(
                "history, instructions and max_turns need an environment, got them for the collaboration "
                f"{self.task!r}, whose events define its prompts; leave them out."
            )
        return made

    def build_method(self) -> Method | None:
        """The method that trained the policy; `None` if it is unknown.

        Raises:
            ValueError: as for `hf_credit.methods.make`, or code is not trusted.
        """
        if self.method is None:
            return None
        self._refuse_untrusted_code(code_in(self.method))
        from hf_credit import methods  # seconds, which a task that is refused does not need

        with self._import_path():
            method = methods.make(self.method["name"], **self.method["options"])
        if not self.trusted and _has_judge(method):
            raise ValueError(
                "the files of a policy cannot choose a server, as a judge of its method has one; if you trust it, add "
                "--trust-remote-code (from Python, trusted=True)."
            )
        return method

    def code(self) -> frozenset[str]:
        """All `"module:object"` names in the task and its method."""
        return code_in([self.task, self.task_options, self.method])

    def to_be_typed(self) -> tuple[str | None, dict[str, Any]]:
        """The task's name, if it is code of the user, and the options that must be named where a person types: `build`
        of a spec from a file refuses them otherwise."""
        ours, asked = frozenset(OWN_CODE), _TYPED_ONLY.get(self.task, ())
        name = self.task if is_code(self.task) and self.task not in ours else None
        options = {
            key: value for key, value in self.task_options.items() if code_in(value) - ours or (key in asked and value)
        }
        return name, options

    def complete(self, interaction: Interaction[Any] | None = None) -> TaskSpec:
        """A copy with every option, so that a later change of defaults has no effect.

        Args:
            interaction: from `build`, which is called if `None`.

        Raises:
            ValueError: as in `build`.
        """
        known = (interaction or self.build()).spec()
        return dataclasses.replace(self, **{name: value for name, value in known.items() if name != "max_turns"})

    def to_dict(self) -> dict[str, Any]:
        """Plain values without secrets, for JSON; `from_dict` restores an equal spec."""
        values = dataclasses.asdict(self)
        return dict(redacted({name: value for name, value in values.items() if name not in _NOT_IN_FILES}))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TaskSpec:
        """The spec of the values from `to_dict`; sampling parameters that a file lacks are those that it meant.

        Raises:
            ValueError: the task is missing, or a field is unknown or of another type.
        """
        values = with_new_keys(values) if isinstance(values, Mapping) else values
        _refuse_unknown(values, cls)
        sampling = as_written(values.get("sampling", {}))
        return read(cls, {**values, "sampling": sampling}, "a task's spec")

    @classmethod
    def untrusted(cls, values: Any) -> TaskSpec:
        """The spec of values from elsewhere, as `from_dict`; it is not `trusted`."""
        return dataclasses.replace(cls.from_dict(values), trusted=False)

    def save(self, folder: str | Path) -> Path:
        """Writes the spec into a model's folder; `load` reads it."""
        return write_json(Path(folder) / TASK_FILE, self.to_dict())

    @classmethod
    def load(cls, model: str | Path, revision: str | None = None) -> TaskSpec | None:
        """The spec in a model's folder or repository, or `None`. It is not trusted (see `trusted`).

        Args:
            model: a folder, or the id of a model on the Hub.
            revision: a commit, branch or tag of the repository.

        Raises:
            ValueError: the file is not a spec.
            OSError: the Hub refuses.
        """
        path = _task_file(model, revision)
        if path is None:
            return None
        try:
            values = read_json(path)
        except ValueError as error:
            raise ValueError(f"{path} must be JSON, got {error} Fix it, or remove it and name the task.") from None
        return cls.untrusted(values)

    def _import_path(self) -> AbstractContextManager[None]:
        """Without trust, code of the current folder is imported only if the user named it."""
        return nullcontext() if self.trusted else only_typed_here(self.consent.code)

    def _refuse_untrusted_code(self, named: set[str] | frozenset[str]) -> None:
        foreign = sorted(name for name in named if ":" in name and name not in {*OWN_CODE, *self.consent.code})
        if foreign and not self.trusted:
            raise ValueError(
                "importing a name runs its code, so the files of a policy cannot choose it, got "
                f"{', '.join(map(repr, foreign))} from {TASK_FILE}; if you trust that code, "
                f"{_CONSENT.format('--task, --option scorer=...')}"
            )

    def _refuse_untrusted_options(self) -> None:
        if self.trusted:
            return
        for option in _TYPED_ONLY.get(self.task, ()):
            if option == "id" and ":" not in str(self.task_options.get(option)):
                continue  # Gymnasium imports the module before a colon; other ids are registered by installed packages
            if self.task_options.get(option) and option not in self.consent.options:
                raise ValueError(
                    "the files of a policy cannot choose a server, a path or an import, got "
                    f"the {option} {str(self.task_options[option])[:200]!r} of {self.task} from {TASK_FILE}; if you "
                    f"trust it, {_CONSENT.format(f'--option {option}=...')}"
                )


_init = TaskSpec.__init__


@functools.wraps(_init)
def _with_old_names(self: TaskSpec, **values: Any) -> None:
    _init(self, **with_new_keys(values, warn=True))


type.__setattr__(TaskSpec, "__init__", _with_old_names)


def _made(name: str, options: Mapping[str, Any]) -> Environment[Any] | Interaction[Any]:
    """What the name of a task and its options make."""
    games, teams = environments.known(), collaborations.known()
    if name in games:
        return environments.make(name, **options)
    if name in teams:
        return collaborations.make(name, **options)
    factory = find("task", dict.fromkeys((*games, *teams), ""), name)
    refuse_options("task", factory, name, options)
    made = factory(**options)
    if not isinstance(made, Environment | Interaction):
        raise ValueError(
            "a task must be a hf_credit.environments.Environment or a hf_credit.rollouts.Interaction, got a "
            f"{type(made).__name__} from {name!r}; name another."
        )
    if isinstance(made, Interaction) or type(made) is not factory:
        remember(made, name, factory, **options)
    return made


def _has_judge(part: Any) -> bool:
    if isinstance(part, Judge) or not dataclasses.is_dataclass(part):
        return isinstance(part, Judge)
    return any(_has_judge(getattr(part, one.name)) for one in dataclasses.fields(part))


def _task_file(model: str | Path, revision: str | None) -> Path | None:
    path = Path(model) / TASK_FILE
    if path.parent.is_dir():
        return path if path.is_file() else None
    try:
        return Path(hf_hub_download(str(model), TASK_FILE, revision=revision))
    except EntryNotFoundError:
        return None


def _refuse_unknown(values: Mapping[str, Any], known: type) -> None:
    names = [field.name for field in dataclasses.fields(known) if field.name not in _NOT_IN_FILES]
    if not isinstance(values, Mapping):
        raise ValueError(f"a task's spec must be a mapping of {', '.join(names)}, got {values!r}; correct it.")
    for name in values:
        if name not in names:
            raise ValueError(f"a task's spec has the fields {', '.join(names)}, got {name!r}; remove it.")
