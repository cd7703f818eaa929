"""Text environments: their rules, without agents or training."""

from __future__ import annotations

from typing import Any

from hf_credit.environments.base import Environment, State, Transition
from hf_credit.environments.check import check_env
from hf_credit.registry import Registry

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

NAMED = Registry[Environment[Any]](
    "environment", {**ENVIRONMENTS, **WORLDS}, Environment, "name an environment, or pass it as a collaboration."
)
make, known, spec = NAMED.make, NAMED.known, NAMED.spec
