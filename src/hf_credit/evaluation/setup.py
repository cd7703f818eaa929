"""What a policy was trained on and how the task was shown to it: a small file beside its weights."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

from hf_credit import collaborations
from hf_credit.collaborations import COLLABORATIONS
from hf_credit.environments import ENVIRONMENTS, Environment, make
from hf_credit.redaction import redacted
from hf_credit.rollouts import EnvironmentInteraction, Interaction
from hf_credit.untrusted import read_json

SETUP_FILE = "hf_credit_game.json"

OWN_SCORERS = ("hf_credit.verifiers.math:score_task", "hf_credit.verifiers.code:score")
"""Scorers of this library, which a policy from elsewhere may name: they are no code of others."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How replies are drawn; the defaults are the paper's (VPR, Appendix F), for a policy that thinks.

    Attributes:
        max_new_tokens: the longest reply in tokens.
        temperature: 0 takes the most probable token always.
        top_p: nucleus, 1 for all.
        top_k: how many of the most probable tokens to draw from, 0 for all.
    """

    max_new_tokens: int = 4096
    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20


@dataclass(frozen=True, kw_only=True)
class GameSetup:
    """A task, and how a policy meets it. Evaluation must show it as training did.

    A task is a game, which one agent plays, or a collaboration: one of the two names is given.

    Attributes:
        environment: the game's name, as for `hf_credit.make`.
        environment_options: its options.
        collaboration: the collaboration's name, as for `hf_credit.collaborations.make`.
        collaboration_options: its options.
        history, instructions, max_turns: of a game, as for `EnvironmentInteraction`.
        chat_template_kwargs: passed on to the chat template.
        sampling: how replies are drawn.
        trusted: whether a scorer of others that the options name may be imported, hence run. What `load` found beside
            a policy is not; no file says otherwise.

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
    trusted: bool = field(default=True, compare=False)

    def __post_init__(self) -> None:
        require_one_task(self.environment, self.environment_options, self.collaboration, self.collaboration_options)
        if self.collaboration and (self.history, self.instructions, self.max_turns) != ("append", True, None):
            raise ValueError(
                "history, instructions and max_turns are of a game, got them for the collaboration "
                f"{self.collaboration!r}, whose events say who sees what; leave them out."
            )

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any] | None = None, **others: Any) -> GameSetup:
        """The setup of the game or the collaboration called `name`, with the options it has.

        Raises:
            ValueError: there is neither.
        """
        if name in COLLABORATIONS:
            return cls(collaboration=name, collaboration_options=options or {}, **others)
        if name not in ENVIRONMENTS:
            raise ValueError(
                f"a task must be one of the games {', '.join(sorted(ENVIRONMENTS))} or of the collaborations "
                f"{', '.join(sorted(COLLABORATIONS))}, got {name!r}; pick one of these."
            )
        return cls(environment=name, environment_options=options or {}, **others)

    @property
    def name(self) -> str:
        """Of the game or the collaboration."""
        return self.environment or self.collaboration or ""

    @property
    def options(self) -> Mapping[str, Any]:
        """Those of the game or the collaboration."""
        return self.environment_options if self.environment else self.collaboration_options

    def on(self, name: str, options: Mapping[str, Any]) -> GameSetup:
        """The setup of another task, shown and sampled alike as far as it can be."""
        shown = {"history": self.history, "instructions": self.instructions, "max_turns": self.max_turns}
        others = {"chat_template_kwargs": self.chat_template_kwargs, "sampling": self.sampling}
        return GameSetup.of(name, options, **others, **({} if name in COLLABORATIONS else shown))

    def with_options(self, options: Mapping[str, Any]) -> GameSetup:
        """The same with other options where they are given; a scorer that is given is trusted."""
        trusted = self.trusted or "scorer" in options
        return dataclasses.replace(self.on(self.name, {**self.options, **options}), trusted=trusted)

    def shown_unlike(self, known: GameSetup | None, model: str) -> str | None:
        """One sentence that says where the task is shown otherwise than the policy knows it, `None` where it is not.

        Args:
            known: the setup beside the policy, of its warm-up or training; `None` where there is none.
            model: the policy's folder or id, for the sentence.
        """
        if known is None:
            return None
        names = ("history", "instructions") if self.environment and known.environment else ()
        pairs = [(name, getattr(self, name), getattr(known, name)) for name in (*names, "chat_template_kwargs")]
        told = [f"{name}={own!r} where it knows {theirs!r}" for name, own, theirs in pairs if own != theirs]
        if not told:
            return None
        return (
            f"the policy {model!r} was shown its task otherwise: {', '.join(told)}; leave these as they were, or "
            "expect replies that it was never taught."
        )

    def interaction(self) -> Interaction[Any]:
        """The task, ready to be walked through.

        Raises:
            ValueError: the name, an option or a setting is not possible, or a scorer is not trusted.
        """
        if self.collaboration:
            self._refuse_code_of_others()
            return collaborations.make(self.collaboration, **self.complete().collaboration_options)
        environment = make(self.name, **self.environment_options)
        return EnvironmentInteraction(environment, self.history, self.instructions, self.max_turns)

    def complete(self) -> GameSetup:
        """The same with every option written out, so that a later change of defaults changes nothing.

        Raises:
            ValueError: the name, an option or a setting is not possible, or an option without a default is missing.
        """
        if self.collaboration:
            known = collaboration_options(self.collaboration, self.collaboration_options)
            return dataclasses.replace(self, collaboration_options=known)
        options = environment_options(make(self.name, **self.environment_options))
        return dataclasses.replace(self, environment_options=options)

    def _refuse_code_of_others(self) -> None:
        scorer = self.options.get("scorer", OWN_SCORERS[0])
        if not self.trusted and scorer not in OWN_SCORERS:
            raise ValueError(
                f"a scorer runs as code, so the files beside a policy cannot choose it, got {scorer!r} from "
                f"{SETUP_FILE}; if you trust that code, add --option scorer=..., or --trust-remote-code (from Python, "
                "trusted=True)."
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values without secrets, for JSON; `from_dict` gives back an equal setup."""
        values = dataclasses.asdict(self)
        del values["trusted"]
        return dict(redacted(values))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GameSetup:
        """The setup that `to_dict` gave.

        Raises:
            ValueError: the task is missing, or a field is unknown.
        """
        _refuse_unknown(values, cls)
        sampling = values.get("sampling", {})
        _refuse_unknown(sampling, Sampling)
        for name in ("environment_options", "collaboration_options", "chat_template_kwargs"):
            if not isinstance(values.get(name, {}), Mapping):
                raise ValueError(f"{name} of a task's setup must be a mapping, got {values[name]!r}; correct it.")
        for name in ("environment", "collaboration"):
            if not isinstance(values.get(name, ""), str | None):
                raise ValueError(f"{name} of a task's setup must be a name, got {values[name]!r}; correct it.")
        return cls(**{**values, "sampling": Sampling(**sampling)})

    def save(self, folder: str | Path) -> Path:
        """Writes the setup beside a model; `load` reads it."""
        path = Path(folder) / SETUP_FILE
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, model: str | Path) -> GameSetup | None:
        """The setup beside a model, `None` where there is none. It is not trusted (see `trusted`).

        Args:
            model: a folder, or the id of a model on the Hub.

        Raises:
            ValueError: the file is not a setup.
            OSError: the Hub refuses.
        """
        path = _setup_file(model)
        if path is None:
            return None
        try:
            values = read_json(path)
        except ValueError as error:
            raise ValueError(f"{path} must be JSON, got {error} Mend it, or remove it and name the task.") from None
        return dataclasses.replace(cls.from_dict(values), trusted=False)


def environment_options(environment: Environment[Any]) -> dict[str, Any]:
    """The options that make `environment` again, the defaults included."""
    names = inspect.signature(type(environment)).parameters
    return {name: getattr(environment, name) for name in names if hasattr(environment, name)}


def collaboration_options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the collaboration called `name`: `given`, and the defaults of the others.

    Raises:
        ValueError: an option without a default is missing.
    """
    if name not in COLLABORATIONS:
        return dict(given)  # who makes it says what is known
    parameters = options_of(name)
    needed = [one.name for one in parameters if one.default is one.empty and one.name not in given]
    if needed:
        raise ValueError(
            f"the collaboration {name!r} needs the options {', '.join(needed)}, got {', '.join(given) or 'none'}; "
            "add them to its options."
        )
    return {**{one.name: one.default for one in parameters if one.default is not one.empty}, **given}


def options_of(name: str) -> list[inspect.Parameter]:
    """What the collaboration called `name` takes."""
    module, _, factory = COLLABORATIONS[name].partition(":")
    return list(inspect.signature(getattr(importlib.import_module(module), factory)).parameters.values())


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


def _setup_file(model: str | Path) -> Path | None:
    if Path(model).is_dir():
        path = Path(model) / SETUP_FILE
        return path if path.is_file() else None
    try:
        return Path(hf_hub_download(str(model), SETUP_FILE))
    except EntryNotFoundError:
        return None


def _refuse_unknown(values: Mapping[str, Any], known: type) -> None:
    names = [field.name for field in dataclasses.fields(known) if field.name != "trusted"]
    if not isinstance(values, Mapping):
        raise ValueError(f"a task's setup must be a mapping of {', '.join(names)}, got {values!r}; correct it.")
    for name in values:
        if name not in names:
            raise ValueError(f"a task's setup has the fields {', '.join(names)}, got {name!r}; remove it.")
