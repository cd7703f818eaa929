"""A judge without annotation: how much likelier a move is under a trained policy than under its reference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, ClassVar, Literal, Self, cast

import torch

from hf_credit.loading import load_policy
from hf_credit.options import Options, Positive
from hf_credit.oracles import Judge, Move
from hf_credit.policies.generation import max_context_tokens, reply_logprobs
from hf_credit.policies.saved import load_alike
from hf_credit.rollouts import Chat
from hf_credit.rollouts.reply_ends import end_tokens
from hf_credit.tasks import TaskSpec


@dataclass(frozen=True, kw_only=True)
class LogRatioJudge(Options, Judge):
    """Scores a move by its log-ratio: progress advantage (arXiv:2606.26080).

        a     = scale * sum_t (log pi(y_t | x, y_<t) - log pi_ref(y_t | x, y_<t))
        score = 1 / (1 + exp(c - a))

    y are the tokens of the move with its end, x those before it, by the chat template of `policy` and the arguments in
    its folder; c = 0 without centring. At the optimum pi of return - scale KL(pi, pi_ref), a is the advantage of the
    move. One that the template refuses or that is too long for a model is unknown (`failed/unreadable`).

    Args:
        policy: trained by RL; a folder or an id on the Hub, with a whole model or an adapter.
        reference: what its training began with or was held close to, with the same vocabulary.
        aggregation: over the tokens of a move; a `"mean"` does not grow with its length.
        scale: coefficient of the KL divergence, for a in units of the return; scores of a larger one are more extreme.
        centred: whether c is the mean of a over the moves judged together: in training, of an update in a process.
    """

    name: ClassVar[str] = "log_ratio"
    policy: str
    reference: str
    aggregation: Literal["sum", "mean"] = "sum"
    scale: Positive = 1.0
    centred: bool = False

    def check(self) -> Self:
        _ = self._loaded
        return self

    def judge(self, moves: Sequence[Move], costs: Counter[str]) -> list[float | None]:
        networks, chat, most = self._loaded
        asked = list[Any]()
        for move in moves:
            try:
                context = chat.context(cast(Any, move.messages), tools=move.tools)
                tokens = context, chat.reply_ids(move.reply, context, move.tools)
                asked.append(tokens if tokens[1] and sum(map(len, tokens)) <= most else None)
            except Exception:  # of a template, which may raise any
                asked.append(None)
        distinct = list(dict.fromkeys(one for one in asked if one is not None))
        costs["tokens"] += len(networks) * sum(len(x) + len(y) for x, y in distinct)
        costs.update(["failed/unreadable"] * asked.count(None))
        of_tokens = fmean if self.aggregation == "mean" else math.fsum
        both = (reply_logprobs(one, distinct, media=chat.media) for one in networks)
        ratios = {one: of_tokens(own) - of_tokens(other) for one, own, other in zip(distinct, *both, strict=True)}
        found = self.scale * torch.tensor([ratios.get(one, math.nan) for one in asked], dtype=torch.float64)
        centre = found[found.isfinite()].mean() if self.centred else 0.0
        return [None if math.isnan(one) else one for one in (found - centre).sigmoid().tolist()]

    @cached_property
    def _loaded(self) -> tuple[list[Any], Chat, float]:
        policy, processor = load_policy(self.policy)
        networks = [policy, load_alike("reference", self.reference, processor)]
        spec = TaskSpec.load(self.policy)
        chat = Chat(processor, spec.chat_template_kwargs if spec else None, end_tokens(policy, processor))
        return networks, chat, min(max_context_tokens(one, 0) or math.inf for one in networks)
