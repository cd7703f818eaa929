"""Situation puzzles with a judge model: only the player is trained (paper T3, Appendix C.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hf_credit.environments.queries import INTERACT, parse
from hf_credit.environments.situation_puzzles import SituationPuzzles
from hf_credit.oracles import Oracle
from hf_credit.rollouts import EnvironmentInteraction, Request
from hf_credit.rollouts.capabilities import no_oracle
from hf_credit.rollouts.environment_interaction import EnvironmentState
from hf_credit.verifiers.judges import judge_prompt, read_verdict

PLAYER, JUDGE = "agent", "judge"


@dataclass(frozen=True, kw_only=True)
class JudgedTurn(EnvironmentState):
    """The state of `JudgedPuzzles`."""

    asked: str | None = None  # the question that the judge has to answer; `None` in the player's turn


class JudgedPuzzles(EnvironmentInteraction):
    """A player asks, and a judge model with the whole story answers Yes, No or Unknown (prompt of Figure 9).

    The judge is a separate role, so an engine takes a sampler for it (`Engine(..., {"agent": ..., "judge": ...})`), as
    does a trainer (`samplers={"judge": ...}`); without one the policy judges. One call answers the questions of many
    episodes, and the ledger counts the replies under the judge's name. They are not turns and never trained on. A
    reply without a leading verdict is Unknown.

    Args:
        environment: the puzzles; their own judge is unused.
        instructions: as in `EnvironmentInteraction`.
    """

    roles = (PLAYER, JUDGE)
    untrained = (JUDGE,)
    turn_types = (EnvironmentState, JudgedTurn)

    def __init__(self, environment: SituationPuzzles, instructions: bool = True) -> None:
        super().__init__(environment, "append", instructions)

    @property
    def name(self) -> str:
        return "judged_puzzles"

    @property
    def max_replies(self) -> int:  # type: ignore[override]
        return 2 * self.max_turns

    def default_oracle(self) -> Oracle[Any] | None:
        """Returns `None`, since the judge's answers are unknown in advance."""
        return None

    def check_oracle(self, oracle: Oracle[Any] | None) -> Oracle[Any] | None:
        if oracle is not None:
            raise no_oracle(self)
        return None

    def pending(self, state: EnvironmentState) -> tuple[Request, ...]:
        question = getattr(state, "asked", None)
        if question is None:
            return super().pending(state)
        world: Any = state.world
        prompt = judge_prompt(world.surface, world.bottom, question)
        return (Request(role=JUDGE, messages=[{"role": "user", "content": prompt}]),)

    def advance(self, state: EnvironmentState, replies: Sequence[str]) -> EnvironmentState:
        (reply,) = replies
        question = getattr(state, "asked", None)
        environment: Any = self.environment
        if question is not None:
            world = environment.judged(state.world, question, read_verdict(reply))
            transcript = (*state.transcript, ("user", environment.observe(world)))
            return JudgedTurn(world=world, transcript=transcript, turns=state.turns)
        action = parse(environment.read_action(reply))
        if action is not None and action[0] == INTERACT and environment.is_question(action[1]):
            transcript = (*state.transcript, ("assistant", reply))
            return JudgedTurn(world=state.world, transcript=transcript, turns=state.turns + 1, asked=action[1])
        return super().advance(state, replies)


def judged_puzzles(
    path: str | None = None,
    slots: int = 3,
    values: int = 6,
    reward: Literal["word", "character"] = "word",
    turns: int = 15,
    wording: Literal["paper", "brief"] = "paper",
    instructions: bool = True,
) -> JudgedPuzzles:
    """Returns the collaboration `judged_puzzles`.

    Args:
        path, slots, values, reward, turns, wording: of the puzzles, as for `SituationPuzzles`.
        instructions: whether the prompt starts with the environment's instructions.

    Raises:
        ValueError: an option is invalid.
    """
    environment = SituationPuzzles(path, slots, values, None, reward, turns, wording)
    return JudgedPuzzles(environment, instructions)
