"""A judge without annotation: how much likelier a move is under a trained policy than under its reference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, cast

import torch

from hf_credit.loading import load_policy
from hf_credit.options import Options, Positive
from hf_credit.oracles import Judge, Move
from hf_credit.policies.generation import max_context_tokens, reply_logprobs
from hf_credit.policies.saved import load_alike
from hf_credit.rollouts import Chat, Context
from hf_credit.rollouts.reply_ends import end_tokens
from hf_credit.tasks import TaskSpec


@dataclass(frozen=True, kw_only=True)
class LogRatioJudge(Options, Judge):
    """Scores a move by its log-ratio: progress advantage (arXiv:2606.26080).

        a     = scale * sum_t (log pi(y_t | x, y_<t) - log pi_ref(y_t | x, y_<t))
        score = 1 / (1 + exp(c - a))

    y are the tokens of the move with the end of its turn, x what `policy` reads before it, both by its chat template,
    and c = 0 without centring. If pi is the optimum of return - scale KL(pi, pi_ref), a is the advantage of the move
    in that regularised task. A move that the template refuses or that is too long for a model is unknown
    (`failed/unreadable`). Each process loads both models, without code of theirs, and reads equal moves once.

    Args:
        policy: trained by RL; a folder or an id on the Hub, with a whole model or an adapter.
        reference: what its training began with or was held close to, with the same vocabulary.
        aggregation: over the tokens of a move; a `"mean"` does not grow with its length.
        scale: coefficient of the KL divergence, for a in units of the return; scores of a larger one are more extreme.
        centred: whether c is the mean of a over the moves judged together: in training, of an update in a process.
        chat_template_kwargs: arguments of the chat template; those in the folder of `policy` if `None`.
    """

    name: ClassVar[str] = "log_ratio"

    policy: str
    reference: str
    aggregation: Literal["sum", "mean"] = "sum"
    scale: Positive = 1.0
    centred: bool = False
    chat_template_kwargs: Mapping[str, Any] | None = field(default=None, hash=False)

    def check(self) -> Self:
        _ = self._loaded
        return self

    def judge(self, moves: Sequence[Move], costs: Counter[str]) -> list[float | None]:
        networks, chat, _ = self._loaded
        asked = [self._tokens(move) for move in moves]
        distinct = list(dict.fromkeys(one for one in asked if one is not None))
        read = sum(len(x) + len(y) for x, y in distinct)
        costs.update({"tokens": len(networks) * read, "failed/unreadable": asked.count(None)})
        known = dict[Any, float]()
        both = (reply_logprobs(one, distinct, media=chat.media) for one in networks)
        for one, own, reference in zip(distinct, *both, strict=True):
            tokens = max(len(own), 1) if self.aggregation == "mean" else 1
            known[one] = self.scale * (sum(own) - sum(reference)) / tokens
        found = torch.tensor([known.get(one, math.nan) for one in asked], dtype=torch.float64)
        if self.centred:
            found -= found[found.isfinite()].mean()
        return [None if math.isnan(score) else score for score in found.sigmoid().tolist()]

    def _tokens(self, move: Move) -> tuple[Context, tuple[int, ...]] | None:
        """What the models read of a move; `None` if they cannot."""
        _, chat, most = self._loaded
        try:
            context = chat.context(cast(Any, move.messages))
            reply = chat.reply_ids(move.reply, context)
        except Exception:  # of a template, which may raise any
            return None
        return (context, reply) if len(context) + len(reply) <= most else None

    @cached_property
    def _loaded(self) -> tuple[list[Any], Chat, float]:
        """Both models, the chat of the first, and the most tokens that both read."""
        policy, processing_class = load_policy(self.policy)
        networks = [policy, load_alike("reference", self.reference, processing_class)]
        spec = TaskSpec.load(self.policy) if self.chat_template_kwargs is None else None
        options = self.chat_template_kwargs if spec is None else spec.chat_template_kwargs
        chat = Chat(processing_class, options, end_tokens(policy, processing_class))
        return networks, chat, min(max_context_tokens(one, 0) or math.inf for one in networks)
