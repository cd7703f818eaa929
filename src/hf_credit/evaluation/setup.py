"""What a policy was trained to play and how the game was shown to it: a small file beside its weights."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

from hf_credit.environments import Environment, make
from hf_credit.rollouts import EnvironmentInteraction

SETUP_FILE = "hf_credit_game.json"


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
    """A game and how a policy meets it. Evaluation must show the game as training did.

    Attributes:
        environment: its name, as for `hf_credit.make`.
        environment_options: its options.
        history, instructions, max_turns: as for `EnvironmentInteraction`.
        chat_template_kwargs: passed on to the chat template.
        sampling: how replies are drawn.
    """

    environment: str
    environment_options: Mapping[str, Any] = field(default_factory=dict)
    history: str = "append"
    instructions: bool = True
    max_turns: int | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)

    def interaction(self) -> EnvironmentInteraction:
        """The game, ready to be played.

        Raises:
            ValueError: the environment, an option or a setting is not possible.
        """
        environment = make(self.environment, **self.environment_options)
        return EnvironmentInteraction(environment, self.history, self.instructions, self.max_turns)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; `from_dict` gives back an equal setup."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GameSetup:
        """The setup that `to_dict` gave.

        Raises:
            ValueError: the environment is missing, or a field is unknown.
        """
        _refuse_unknown(values, cls)
        if "environment" not in values:
            raise ValueError(f"a game's setup must name its environment, got {sorted(values)}; add it.")
        sampling = values.get("sampling", {})
        _refuse_unknown(sampling, Sampling)
        return cls(**{**values, "sampling": Sampling(**sampling)})

    def save(self, folder: str | Path) -> Path:
        """Writes the setup beside a model; `load` reads it."""
        path = Path(folder) / SETUP_FILE
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, model: str | Path) -> GameSetup | None:
        """The setup beside a model, `None` where there is none.

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
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} must be JSON, got {error}; mend it, or remove it and name the game.") from None


def environment_options(environment: Environment[Any]) -> dict[str, Any]:
    """The options that make `environment` again, the defaults included."""
    names = inspect.signature(type(environment)).parameters
    return {name: getattr(environment, name) for name in names if hasattr(environment, name)}


def _setup_file(model: str | Path) -> Path | None:
    if Path(model).is_dir():
        path = Path(model) / SETUP_FILE
        return path if path.is_file() else None
    try:
        return Path(hf_hub_download(str(model), SETUP_FILE))
    except EntryNotFoundError:
        return None


def _refuse_unknown(values: Mapping[str, Any], known: type) -> None:
    names = [field.name for field in dataclasses.fields(known)]
    for name in values:
        if name not in names:
            raise ValueError(f"a game's setup has the fields {', '.join(names)}, got {name!r}; remove it.")
