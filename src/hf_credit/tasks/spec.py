"""What a policy was trained on, how the task was shown to it and by which method: a small file beside its weights."""

from __future__ import annotations

import dataclasses
import json
import shlex
import typing
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

from hf_credit import collaborations, environments, methods
from hf_credit.collaborations import COLLABORATIONS
from hf_credit.environments import ENVIRONMENTS, WORLDS, Environment
from hf_credit.http_guard import guard
from hf_credit.methods import Method
from hf_credit.redaction import redacted
from hf_credit.registry import CODE, code_in, did_you_mean, find, without_here
from hf_credit.rollouts import EnvironmentInteraction, Interaction
from hf_credit.safe_io import read_json
from hf_credit.validators import finite_number, whole_number

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
"""Functions of this library that a policy from elsewhere may name: they are no code of others."""

_MOST_TOKENS = 2**24  # of a reply: more than any model reads

_NOT_IN_FILES = ("trusted", "typed")
_OF_ONE_TASK = ("environment", "environment_options", "collaboration", "collaboration_options")

# Options that say whom this machine talks to and what it sends, what is imported, or which path is opened, by task.
_TYPED_ONLY = {
    "agent": ("agent", "environment"),
    "gymnasium": ("id", "options"),
    "judged_puzzles": ("path",),
    "openenv": ("url", "token_variable"),
    "situation_puzzles": ("path",),
    "textworld": ("games",),
}


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How replies are drawn; the defaults are the paper's (VPR, Appendix F), for a policy that thinks.

    Attributes:
        max_new_tokens: the longest reply in tokens.
        temperature: 0 takes the most probable token always.
        top_p: nucleus, 1 for all.
        top_k: how many of the most probable tokens to draw from, 0 for all.

    Raises:
        ValueError: a number is none, or out of its range.
    """

    max_new_tokens: int = 4096
    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20

    def __post_init__(self) -> None:
        whole_number("max_new_tokens", self.max_new_tokens, 1, _MOST_TOKENS)
        finite_number("temperature", self.temperature, least=0)
        whole_number("top_k", self.top_k, 0)
        finite_number("top_p", self.top_p, above=0, most=1)


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task, and how a policy meets it. Evaluation must show it as training did.

    A task is an environment, which one agent plays, or a collaboration: one of the two names is given. All in all this
    is what `Interaction.spec` says, and how replies are drawn.

    Attributes:
        environment: the environment's name, as for `hf_credit.make`.
        environment_options: its options.
        collaboration: the collaboration's name, as for `hf_credit.collaborations.make`.
        collaboration_options: its options.
        history, instructions, max_turns: of an environment, as for `EnvironmentInteraction`.
        chat_template_kwargs: passed on to the chat template.
        sampling: how replies are drawn.
        method: the `name` and `options` of the method that trained the policy, as for `hf_credit.methods.make`.
        critic_model: the backbone of the method's critic, where it was named.
        trusted: whether code of others that is named here as `module:object` may be imported, hence run. What `load`
            found beside a policy is not; no file says otherwise.
        typed: names of code, tasks and options that the user gave, which are trusted all the same.

    Raises:
        ValueError: not one of the two is named, or something is set that the task does not have.
    """

    environment: str | None = None
    environment_options: Mapping[str, Any] = field(default_factory=dict)
    collaboration: str | None = None
    collaboration_options: Mapping[str, Any] = field(default_factory=dict)
    history: str = "append"
    instructions: bool = True
    max_turns: int | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    method: Mapping[str, Any] | None = None
    critic_model: str | None = None
    trusted: bool = field(default=True, compare=False)
    typed: frozenset[str] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        if self.max_turns is not None:
            whole_number("max_turns", self.max_turns, 1)
        require_one_task(self.environment, self.environment_options, self.collaboration, self.collaboration_options)
        if self.collaboration and (self.history, self.instructions, self.max_turns) != ("append", True, None):
            raise ValueError(
                "history, instructions and max_turns are of an environment, got them for the collaboration "
                f"{self.collaboration!r}, whose events say who sees what; leave them out."
            )

    @classmethod
    def of(cls, interaction: Interaction[Any], **others: Any) -> TaskSpec:
        """The spec of an Interaction.

        Args:
            interaction: what is played.
            **others: the attributes that its `spec` does not know.

        Raises:
            ValueError: it cannot say of itself what it is (see `Interaction.spec`), or says something else.
        """
        known = interaction.spec()
        _refuse_unknown(known, cls)
        return cls(**known, **others)

    @classmethod
    def of_name(cls, name: str, options: Mapping[str, Any] | None = None, **others: Any) -> TaskSpec:
        """The spec of the environment or the collaboration called `name`, with the options it has.

        Args:
            name: of either, or a `"module:object"`, which is imported.
            options: its own.
            **others: further attributes; how an environment is shown is left out for a collaboration.

        Raises:
            ValueError: there is neither.
        """
        if is_collaboration(name):
            kept = {key: value for key, value in others.items() if key not in ("history", "instructions", "max_turns")}
            return cls(collaboration=name, collaboration_options=options or {}, **kept)
        return cls(environment=name, environment_options=options or {}, **others)

    @property
    def name(self) -> str:
        """Of the environment or the collaboration."""
        return self.environment or self.collaboration or ""

    @property
    def options(self) -> Mapping[str, Any]:
        """Those of the environment or the collaboration."""
        return self.environment_options if self.environment else self.collaboration_options

    def on(self, name: str, options: Mapping[str, Any]) -> TaskSpec:
        """The spec of another task, which the user named, shown and sampled alike as far as it can be."""
        kept = {key: value for key, value in vars(self).items() if key not in (*_OF_ONE_TASK, "typed")}
        return TaskSpec.of_name(name, options, typed=self.typed | {name, *options} | code_in(options), **kept)

    def with_options(self, options: Mapping[str, Any]) -> TaskSpec:
        """The same with other options where the user gives them; these, and the code that they name, are trusted."""
        known = {**self.options, **options}
        changed: Any = {"environment_options": known} if self.environment else {"collaboration_options": known}
        return dataclasses.replace(self, typed=self.typed | {*options} | code_in(options), **changed)

    def shown_unlike(self, known: TaskSpec | None, model: str) -> str | None:
        """One sentence that says where the task is shown otherwise than the policy knows it, `None` where it is not.

        Args:
            known: the spec beside the policy, of its warm-up or training; `None` where there is none.
            model: the policy's folder or id, for the sentence.
        """
        if known is None:
            return None
        names = ("history", "instructions") if self.environment and known.environment else ()
        pairs = [(name, getattr(self, name), getattr(known, name)) for name in (*names, "chat_template_kwargs")]
        unlike = [f"{name}={here!r} where it knows {there!r}" for name, here, there in pairs if here != there]
        if not unlike:
            return None
        return (
            f"the policy {model!r} was shown its task otherwise: {', '.join(unlike)}; leave these as they were, or "
            "expect replies that it was never taught."
        )

    def build(self) -> Interaction[Any]:
        """The task, ready to be walked through.

        Raises:
            ValueError: the name, an option or a setting is not possible, or code is not trusted.
        """
        self._refuse_code_of_others({self.name} | code_in(self.options))
        self._refuse_choices_of_others()
        with self._where_code_may_lie():
            if self.collaboration:
                return collaborations.make(self.collaboration, **self.collaboration_options)
            environment = environments.make(self.name, **self.environment_options)
        return EnvironmentInteraction(environment, self.history, self.instructions, self.max_turns)

    def build_method(self) -> Method | None:
        """The method that trained the policy; `None` where that is not known.

        Raises:
            ValueError: as for `hf_credit.methods.make`, or code is not trusted.
        """
        if self.method is None:
            return None
        self._refuse_code_of_others(code_in(self.method))
        with self._where_code_may_lie():
            return methods.make(self.method["name"], **self.method["options"])

    def code(self) -> frozenset[str]:
        """Every `"module:object"` that the task and its method name."""
        return code_in([self.name, self.options, self.method])

    def complete(self, interaction: Interaction[Any] | None = None) -> TaskSpec:
        """The same with every option written out, so that a later change of defaults changes nothing.

        Args:
            interaction: what `build` returned; built here if `None`.

        Raises:
            ValueError: as in `build`.
        """
        known = (interaction or self.build()).spec()
        return dataclasses.replace(self, **{name: value for name, value in known.items() if name != "max_turns"})

    def to_dict(self) -> dict[str, Any]:
        """Plain values without secrets, for JSON; `from_dict` gives back an equal spec."""
        values = dataclasses.asdict(self)
        return dict(redacted({name: value for name, value in values.items() if name not in _NOT_IN_FILES}))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TaskSpec:
        """The spec that `to_dict` gave.

        Raises:
            ValueError: the task is missing, or a field is unknown.
        """
        _refuse_unknown(values, cls)
        sampling = values.get("sampling", {})
        _refuse_unknown(sampling, Sampling)
        mappings = dict.fromkeys(("environment_options", "collaboration_options", "chat_template_kwargs"), Mapping)
        names = dict.fromkeys(("environment", "collaboration", "critic_model"), str | None)
        for name, kind in {**mappings, **names}.items():
            if name in values and not isinstance(values[name], kind):
                rule = "a mapping" if name in mappings else "a name"
                raise ValueError(f"{name} of a task's spec must be {rule}, got {values[name]!r}; correct it.")
        method = values.get("method")
        if method is not None and not (
            isinstance(method, Mapping)
            and method.keys() == {"name", "options"}
            and isinstance(method["name"], str)
            and isinstance(method["options"], Mapping)
        ):
            raise ValueError(
                f"method of a task's spec must be a name and a mapping of options, got {method!r}; correct it."
            )
        return cls(**{**values, "sampling": Sampling(**sampling)})

    def save(self, folder: str | Path) -> Path:
        """Writes the spec beside a model; `load` reads it."""
        path = Path(folder) / TASK_FILE
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, model: str | Path, revision: str | None = None) -> TaskSpec | None:
        """The spec beside a model, `None` where there is none. It is not trusted (see `trusted`).

        Args:
            model: a folder, or the id of a model on the Hub.
            revision: a commit, a branch or a tag there.

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
            raise ValueError(f"{path} must be JSON, got {error} Mend it, or remove it and name the task.") from None
        return dataclasses.replace(cls.from_dict(values), trusted=False)

    def _where_code_may_lie(self) -> AbstractContextManager[None]:
        """What only a file names is what was installed before the file came, and not what lies beside it."""
        return nullcontext() if self.trusted or code_in(self.typed) else without_here()

    def _refuse_code_of_others(self, named: set[str] | frozenset[str]) -> None:
        foreign = sorted(name for name in named if ":" in name and name not in {*OWN_CODE, *self.typed})
        if foreign and not self.trusted:
            raise ValueError(
                "what is imported runs as code, so the files beside a policy cannot choose it, got "
                f"{', '.join(map(repr, foreign))} from {TASK_FILE}; if you trust that code, name it yourself (--task, "
                "--option scorer=...), or add --trust-remote-code (from Python, trusted=True)."
            )

    def _refuse_choices_of_others(self) -> None:
        """Nor do they choose whom this machine talks to, what Gymnasium imports and which path is opened."""
        if self.trusted:
            return
        for option in _TYPED_ONLY.get(self.name, ()):
            if option == "id" and ":" not in str(self.options.get(option)):
                continue  # Gymnasium imports what stands before a colon, and has the others from installed packages
            if self.options.get(option) and option not in self.typed:
                raise ValueError(
                    "the files beside a policy cannot choose a server, a path or what is imported, got "
                    f"the {option} {str(self.options[option])[:200]!r} of {self.name} from {TASK_FILE}; if you trust "
                    f"it, name it yourself (--option {option}=...), or add --trust-remote-code (from Python, "
                    "trusted=True)."
                )


def agent_named(text: str) -> str | list[str]:
    """What `hf_credit.agents.AgentInteraction` takes for a program that a command line names: `module:name`, or the
    words of a command."""
    return text if CODE.fullmatch(text) else shlex.split(text)


def is_collaboration(name: str) -> bool:
    """Whether a task's name is that of a collaboration; a `"module:object"` is imported to tell.

    Raises:
        ValueError: there is no task of this name.
    """
    if name in collaborations.known():
        return True
    if name in environments.known():
        return False
    if ":" not in name:
        games, teams = environments.known(), collaborations.known()
        raise ValueError(
            f"a task must be one of the environments {', '.join(games)} or of the collaborations {', '.join(teams)}, "
            f"or 'module:object', got {name!r}; {did_you_mean(name, [*games, *teams]) or 'pick one of these.'}"
        )
    found: Any = find("task", {**ENVIRONMENTS, **WORLDS, **COLLABORATIONS}, name)
    made = found if isinstance(found, type) else _returned(found)
    return not (isinstance(made, type) and issubclass(made, Environment))


def _returned(factory: Any) -> Any:
    """What a factory says that it returns; an Interaction where it does not say."""
    try:
        said = typing.get_type_hints(factory).get("return", Interaction)
    except (NameError, TypeError):  # names that are imported for type checkers only
        return Interaction
    return typing.get_origin(said) or said


def require_one_task(
    environment: str | None,
    environment_options: Mapping[str, Any] | None,
    collaboration: str | None,
    collaboration_options: Mapping[str, Any] | None,
) -> None:
    """Refuses anything but one task with its own options.

    Raises:
        ValueError: both are named, or neither, or the other one's options are given.
    """
    if bool(environment) == bool(collaboration):
        both = f"{environment!r} and {collaboration!r}" if environment else "neither"
        raise ValueError(f"a task is an environment or a collaboration, got {both}; name one of them.")
    other, options = ("collaboration", collaboration_options) if environment else ("environment", environment_options)
    if options:
        raise ValueError(
            f"{other}_options need {'a' if other[0] == 'c' else 'an'} {other}, got {dict(options)} beside "
            f"{environment or collaboration!r}; name it, or leave them out."
        )


def _task_file(model: str | Path, revision: str | None) -> Path | None:
    if Path(model).is_dir():
        path = Path(model) / TASK_FILE
        return path if path.is_file() else None
    guard()
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
