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
from hf_credit.rollouts import Chat, Context
from hf_credit.rollouts.media import media_of
from hf_credit.rollouts.reply_ends import end_tokens
from hf_credit.tasks import TaskSpec

Tokens = tuple[Context, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class LogRatioJudge(Options, Judge):
    """Scores a move by its log-ratio: progress advantage (arXiv:2606.26080).

        a     = scale * sum_t (log pi(y_t | x, y_<t) - log pi_ref(y_t | x, y_<t))
        score = 1 / (1 + exp(c - a))

    y are the tokens of the move with the end of its turn, and x what `policy` reads before it, both by its own chat
    template. If pi is the optimum of return - scale KL(pi, pi_ref), a is the advantage of the move in that regularised
    task. A score above 1/2 says that training made the move likelier. A move is unknown if the template refuses it
    (`failed/template`), it does not fit the models' positions (`failed/length`), or a is not finite (`failed/ratio`).

    Each process loads both models once, runs no code of theirs, and never trains them. Equal moves are read once.

    Args:
        policy: trained by RL; a folder or an id on the Hub, with a whole model or an adapter.
        reference: what its training began with or was held close to, with the same vocabulary.
        aggregation: over the tokens of a move; a `"mean"` does not grow with its length.
        scale: coefficient of the KL divergence, for a in units of the return; a larger one brings scores closer to 0
            and 1.
        centred: whether c is the mean of a over the moves that are judged together, in training those of an update in
            a process; otherwise c = 0.
        chat_template_kwargs: arguments of the chat template; those in the folder of `policy` if `None`.
        device: of both models; a GPU if `None` and there is one, else the CPU.
    """

    name: ClassVar[str] = "log_ratio"
    owner: ClassVar[str] = "a judge"

    policy: str
    reference: str
    aggregation: Literal["sum", "mean"] = "sum"
    scale: Positive = 1.0
    centred: bool = False
    chat_template_kwargs: Mapping[str, Any] | None = field(default=None, hash=False)
    device: str | None = None

    def check(self) -> Self:
        """Returns itself, after it loaded both models.

        Raises:
            ValueError: there is no such model or device, or the vocabularies differ.
        """
        _ = self._loaded
        return self

    def judge(self, moves: Sequence[Move], costs: Counter[str]) -> list[float | None]:
        networks, chat, _ = self._loaded
        asked = [self._tokens(move, costs) for move in moves]
        distinct = list(dict.fromkeys(one for one in asked if one is not None))
        costs["tokens"] += len(networks) * sum(len(x) + len(y) for x, y in distinct)
        own, reference = (reply_logprobs(one, distinct, media=chat.media) for one in networks)
        known = dict[Tokens, float]()
        for one, a, b in zip(distinct, own, reference, strict=True):
            tokens = max(len(a), 1) if self.aggregation == "mean" else 1
            known[one] = self.scale * (sum(a) - sum(b)) / tokens
        found = torch.tensor([math.nan if one is None else known[one] for one in asked], dtype=torch.float64)
        finite = found.isfinite()
        costs.update("failed/ratio" for one, sound in zip(asked, finite, strict=True) if one is not None and not sound)
        scores = (found - found[finite].mean() if self.centred else found).sigmoid()
        return [score if sound else None for score, sound in zip(scores.tolist(), finite.tolist(), strict=True)]

    def _tokens(self, move: Move, costs: Counter[str]) -> Tokens | None:
        """What the models read of a move, if they can."""
        _, chat, most = self._loaded
        try:
            context = chat.context(cast(Any, move.messages))
            reply = chat.reply_ids(move.reply, context)
        except Exception:  # of a template, which may raise any
            costs["failed/template"] += 1
            return None
        if len(context) + len(reply) <= most:
            return context, reply
        costs["failed/length"] += 1
        return None

    @cached_property
    def _loaded(self) -> tuple[list[Any], Chat, float]:
        """Both models, the chat of the first, and the most tokens that both read."""
        (own, processing_class), (reference, other) = (
            load_policy(name, self.device) for name in (self.policy, self.reference)
        )
        tokenizer = media_of(processing_class).tokenizer
        if tokenizer.get_vocab() != media_of(other).tokenizer.get_vocab():
            raise ValueError(
                f"reference must have the vocabulary of policy, got {self.reference!r} with another than "
                f"{self.policy!r}; name the model that its training began with."
            )
        spec = TaskSpec.load(self.policy) if self.chat_template_kwargs is None else None
        options = self.chat_template_kwargs if spec is None else spec.chat_template_kwargs
        limits = [max_context_tokens(one, 0) for one in (own, reference)]
        most = min((one for one in limits if one is not None), default=math.inf)
        return [own, reference], Chat(processing_class, options, end_tokens(own, tokenizer)), most
