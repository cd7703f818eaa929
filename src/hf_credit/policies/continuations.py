"""A judge without a program: what another policy makes of a move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any, ClassVar, Self

from hf_credit.collectors.forks import AT_ONCE
from hf_credit.options import Count, Options
from hf_credit.oracles import Judge, Move
from hf_credit.playing import Sampling
from hf_credit.policies.generation import max_context_tokens
from hf_credit.policies.saved import load_sampler
from hf_credit.rollouts import Chat, Ending, Engine, Ledger, RolloutRequest
from hf_credit.rollouts.reply_ends import end_tokens
from hf_credit.tasks import TaskSpec


@dataclass(frozen=True, kw_only=True)
class ContinuationsJudge(Options, Judge):
    """Scores a move by the outcomes of a player's continuations from the state after it.

        score = 1 / n sum_i R_i    (as the value of a state in arXiv:2410.01679, of another policy)

    The outcomes R_i must be in [0, 1]. A move is unknown if all its continuations fail, or if other roles reply at the
    same time.

    Args:
        player: a folder or an id on the Hub, of any vocabulary; sampled as its task file says, if it has one.
        rollouts: n; with 1 the player is greedy.
    """

    name: ClassVar[str] = "continuations"
    plays: ClassVar[bool] = True
    player: str
    rollouts: Count = 1

    def check(self) -> Self:
        _ = self._loaded
        return self

    def judge(self, moves: Sequence[Move], costs: Counter[str]) -> list[float | None]:
        outcomes: dict[Any, list[float]] = {}
        after = [self._after(move) for move in moves]
        distinct = list(dict.fromkeys(state for state in after if state is not None))
        if distinct:
            engine = Engine(moves[0].interaction, **self._loaded)
            requests = [RolloutRequest[Any](state=state, seed=i) for state in distinct for i in range(self.rollouts)]
            at_once = max(AT_ONCE // self.rollouts, 1) * self.rollouts  # all of a state: whether one diverges counts
            for first in range(0, len(requests), at_once):
                played = engine.run(requests[first : first + at_once])
                costs["tokens"] += Ledger.of(played).tokens
                for episode in played:
                    if episode.ending != Ending.ERROR:
                        outcomes.setdefault(requests[first + episode.start].state, []).append(episode.outcome)
        return [fmean(outcomes[state]) if state in outcomes else None for state in after]

    def _after(self, move: Move) -> Any:
        """The state after a move; `None` if it is not the only one at its turn, or fails."""
        if move.interaction is None:
            raise ValueError("a continued move must be one of a task, got a text alone; take another oracle.")
        if len(move.interaction.pending(move.before)) != 1:
            return None
        with suppress(Exception):  # of the task, which was shown when the episode met it
            return move.interaction.advance(move.before, [move.reply])
        return None

    @cached_property
    def _loaded(self) -> dict[str, Any]:
        spec = TaskSpec.load(self.player)
        sampling = spec.sampling if spec else Sampling()
        if self.rollouts == 1:
            sampling = replace(sampling, temperature=0.0)
        network, processor, generate = load_sampler(self.player, sampling)
        return {
            "chat": Chat(processor, spec.chat_template_kwargs if spec else None, end_tokens(network, processor)),
            "generate": generate,
            "max_context_tokens": max_context_tokens(network, sampling.max_new_tokens),
        }
