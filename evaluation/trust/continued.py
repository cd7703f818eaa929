"""A stronger player as an oracle: an evaluation's tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from hf_credit.oracles import Judge, Move
from hf_credit.policies.saved import SavedPolicy
from hf_credit.rollouts import Ending, RolloutRequest
from hf_credit.rollouts.environment_interaction import EnvironmentState
from hf_credit.tasks import TaskSpec


class Continued(Judge):
    """Scores a move by the outcome of a player's greedy continuation from the state after it.

    Unknown if the continuation fails.

    Args:
        player: its folder.
        spec: the task, whose policies see the current observation alone.
    """

    name: ClassVar[str] = "continued"

    def __init__(self, player: str, spec: TaskSpec) -> None:
        self.engine = SavedPolicy(player, spec, spec.build(), device="cpu").engine(greedy=True)

    def judge(self, moves: Sequence[Move], costs: Counter[str]) -> list[float | None]:
        interaction: Any = self.engine.interaction
        before = [
            EnvironmentState(world=one.state, transcript=tuple((own["role"], own["content"]) for own in one.messages))
            for one in moves
        ]
        after = [interaction.advance(state, [one.reply]) for state, one in zip(before, moves, strict=True)]
        distinct = list(dict.fromkeys(after))
        played = self.engine.run([RolloutRequest(state=one, seed=0) for one in distinct])
        costs["tokens"] += sum(one.generated_tokens for one in played)
        values = {
            state: None if one.ending == Ending.ERROR else one.outcome
            for state, one in zip(distinct, played, strict=True)
        }
        return [values[one] for one in after]
