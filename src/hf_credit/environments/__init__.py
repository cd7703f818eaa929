"""Text environments: their rules, without agents or training."""

from __future__ import annotations

from typing import Any

from hf_credit.environments.base import Environment, State, Transition
from hf_credit.environments.check import check_env
from hf_credit.registry import build, described, names

__all__ = ["ENVIRONMENTS", "WORLDS", "Environment", "State", "Transition", "check_env", "known", "make", "spec"]

ENVIRONMENTS = {
    "circuit_decoding": "hf_credit.environments.circuit_decoding:CircuitDecoding",
    "evidence": "hf_credit.environments.evidence:Evidence",
    "guess_numbers": "hf_credit.environments.guess_numbers:GuessNumbers",
    "minesweeper": "hf_credit.environments.minesweeper:Minesweeper",
    "movie_recommendation": "hf_credit.environments.movie_recommendation:MovieRecommendation",
    "preference_estimation": "hf_credit.environments.preference_estimation:PreferenceEstimation",
    "situation_puzzles": "hf_credit.environments.situation_puzzles:SituationPuzzles",
    "sokoban": "hf_credit.environments.sokoban:Sokoban",
    "sudoku": "hf_credit.environments.sudoku:Sudoku",
    "tic_tac_toe": "hf_credit.environments.tic_tac_toe:TicTacToe",
}

# Adapters for other libraries' environments: each needs a package or options.
WORLDS = {
    "gymnasium": "hf_credit.environments.gymnasium_world:GymnasiumEnvironment",
    "openenv": "hf_credit.environments.openenv_world:OpenEnvEnvironment",
    "scienceworld": "hf_credit.environments.scienceworld_world:ScienceWorld",
    "textworld": "hf_credit.environments.textworld_world:TextWorld",
    "tools": "hf_credit.environments.tool_world:ToolEnvironment",
}


def make(name: str, **options: Any) -> Environment[Any]:
    """Makes an environment by name.

    Args:
        name: one of `known()`, or the `"package.module:Class"` of an environment or a factory, which is imported: name
            only code that you trust.

    Raises:
        ValueError: the name is unknown, or an option has an impossible value.
    """
    environment = build("environment", {**ENVIRONMENTS, **WORLDS}, name, options)
    if not isinstance(environment, Environment):
        raise ValueError(
            f"an environment must be a hf_credit.environments.Environment, got a {type(environment).__name__} from "
            f"{name!r}; name an environment, or pass it as a collaboration."
        )
    return environment


def known() -> list[str]:
    """The names of this library's environments and of those that installed packages register as entry points of the
    group `hf_credit.environments`."""
    return names("environment", {**ENVIRONMENTS, **WORLDS})


def spec(environment: Environment[Any]) -> tuple[str, dict[str, Any]]:
    """The name and the options, defaults included, with which `make` makes an equal environment.

    Raises:
        ValueError: the environment cannot be imported by name, or an option is not an attribute of the same name, or
            is not a plain value; the message is one sentence.
    """
    return described("environment", {**ENVIRONMENTS, **WORLDS}, environment)
