"""A trust region around the old policy, which sampled the episodes, and the projection into it (CVT-RL, section 3.3).

The loss then uses the projected log-probabilities. They need the logits, which TRL's fused head does not return: here
they are computed from the hidden states, in chunks of tokens, and recomputed in the backward pass.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hf_credit.credit import projected_logprobs, top_tokens
from hf_credit.environments.actions import acting
from hf_credit.options import filled_by_factory
from hf_credit.rollouts import Decision
from hf_credit.validators import finite_number, whole_number

NAMES = ("region_ids", "region_logprobs", "region_mass", "region_size")
"""The names of the old policy's next-token distributions, as `old_tops` returns them."""

_LOGITS_AT_ONCE = 2**26  # 256 MiB of float32


@dataclass(frozen=True, kw_only=True)
class TrustRegion:
    """How far an update may move the policy from the old policy.

    Args:
        radius: delta, the maximum KL divergence of a next-token distribution, in nats, above 0.
        tool_radius: the same for tokens of actions and tool calls.
        top: M, the number of the old policy's most probable tokens that are projected, from 1 to the vocabulary size.
        wide: M where these cover too little probability, at least `top`.
        coverage: the probability under the old policy that the M tokens must cover, in (0, 1]. If `wide` tokens cover
            less, the position is not projected, but penalised by its divergence.
        penalty: weight of the KL penalty on tokens of too little coverage, at least 0.

    Raises:
        ValueError: a number is out of range.
    """

    radius: float = filled_by_factory(0.025)
    tool_radius: float = filled_by_factory(0.010)
    top: int = 256
    wide: int = 1024
    coverage: float = 0.98
    penalty: float = 1.0

    def __post_init__(self) -> None:
        finite_number("trust_region", self.radius, above=0)
        finite_number("trust_region_tool", self.tool_radius, above=0)
        whole_number("trust_region_top", self.top, 1)
        whole_number("trust_region_wide", self.wide, self.top)
        finite_number("trust_region_coverage", self.coverage, above=0, most=1)
        finite_number("trust_region_penalty", self.penalty, least=0)

    def require_fit(self, model: Any, sharded: bool) -> None:
        """Refuses a policy that cannot be projected.

        Args:
            model: the policy, unwrapped.
            sharded: whether processes share its weights.

        Raises:
            ValueError: its vocabulary is smaller than M, its logits are not those of its head alone, or it is sharded.
        """
        config = model.config.get_text_config()
        if sharded:
            raise ValueError(
                "trust_region needs the whole head of the policy on every process, got FSDP or DeepSpeed, which shard "
                "it; train without them, with one or several processes."
            )
        for name, size in (("top", self.top), ("wide", self.wide)):
            if size > config.vocab_size:
                raise ValueError(
                    f"trust_region_{name} must be at most the vocabulary's {config.vocab_size} tokens, got {size}; "
                    "lower it."
                )
        for name in ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier"):
            if getattr(config, name, None) not in (None, 1, 1.0):
                raise ValueError(
                    f"trust_region needs a policy whose logits are the output of its head, got one with {name}="
                    f"{getattr(config, name)}; leave trust_region out."
                )


@torch.no_grad()
def old_tops(
    region: TrustRegion, head: Callable[[Tensor], Tensor], states: Tensor, temperature: float
) -> dict[str, Tensor]:
    """The most probable next tokens of the current policy at each token.

    Returns:
        By the names in `NAMES`: their ids, padded with -1, and their log-probabilities normalised over the M, of shape
        (tokens, M); their total probability; and M, 0 where even the wide M covers too little.
    """
    found: dict[str, list[Tensor]] = {name: [] for name in NAMES}
    for part in states.split(_at_once(head)):
        ids, among, mass = top_tokens(_logits(head, part, temperature).log_softmax(-1), region.wide)
        inner = among[:, : region.top].double().logsumexp(-1)
        narrow = mass * inner.exp().to(mass.dtype) >= region.coverage
        size = torch.where(narrow, region.top, torch.where(mass >= region.coverage, region.wide, 0))
        beyond = narrow[:, None] & (torch.arange(region.wide, device=ids.device) >= region.top)
        among = torch.where(narrow[:, None], among - inner[:, None].to(among.dtype), among)
        found["region_ids"].append(ids.masked_fill(beyond, -1).int())
        found["region_logprobs"].append(among.masked_fill(beyond, 0.0))
        found["region_mass"].append(torch.where(narrow, mass * inner.exp().to(mass.dtype), mass))
        found["region_size"].append(size)
    return {name: torch.cat(parts) for name, parts in found.items()}


def new_tops(
    head: Callable[[Tensor], Tensor], states: Tensor, ids: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """The current policy's logits of the old policy's top tokens, and the log-sum-exp of all logits.

    Args:
        head: maps states to logits, which are divided by the temperature.
        states: of shape (tokens, width).
        ids: of shape (tokens, M), padded with -1.
    """

    def part(own: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        logits = _logits(head, own, temperature)
        return logits.gather(1, wanted), logits.logsumexp(-1)

    size = _at_once(head)
    pairs = zip(states.split(size), ids.long().clamp(min=0).split(size), strict=True)
    parts = [checkpoint(part, own, some, use_reentrant=False) for own, some in pairs]
    tops, sums = zip(*parts, strict=True)
    return torch.cat(tops), torch.cat(sums)


@dataclass(frozen=True, kw_only=True)
class ProjectedTokens:
    """The projection at each token.

    Attributes:
        logprobs: the log-probability of the sampled token that the loss uses.
        divergence: KL(old || policy), with all tokens outside the top counted as one.
        penalised: whether the divergence is a term of the loss.
        projected: whether the distribution was outside its region.
        outside: whether the sampled token is not among the old policy's top.
    """

    logprobs: Tensor
    divergence: Tensor
    penalised: Tensor
    projected: Tensor
    outside: Tensor


def project_tokens(
    region: TrustRegion,
    old: dict[str, Tensor],
    tops: Tensor,
    sums: Tensor,
    sampled: Tensor,
    logprobs: Tensor,
    old_logprobs: Tensor,
    of_action: Tensor,
) -> ProjectedTokens:
    """Projects the policy's distribution at each token into its region (CVT-RL, eqs. 8 and 9).

        p_new(v) = alpha q(v) for v among the top, p_new(v) = p_old(v) otherwise

    so that a token outside the top has a ratio of 1 and no gradient. Where the top covers too little probability, the
    log-probability stays that of the policy.

    Args:
        region: the radii.
        old: what `old_tops` returned.
        tops, sums: what `new_tops` returned.
        sampled: the id of each token.
        logprobs: its log-probability under the policy.
        old_logprobs: its log-probability under the old policy.
        of_action: whether it is part of an action or a tool call.
    """
    kl = divergence_from_old(old, tops, sums)
    loss_logprobs, size = old_logprobs, old["region_size"]
    projected, outside = torch.zeros_like(size, dtype=torch.bool), torch.zeros_like(size, dtype=torch.bool)
    radii = torch.where(of_action, region.tool_radius, region.radius)
    for width in sorted({width for width in size.tolist() if width}):
        rows = (size == width).nonzero().squeeze(1)
        old_top, mass = old["region_logprobs"][rows, :width], old["region_mass"][rows]
        top = tops[rows, :width].log_softmax(-1)
        nearest = projected_logprobs(top, old_top, radii[rows] / mass)
        is_sampled = old["region_ids"][rows, :width] == sampled[rows, None]
        in_top = is_sampled.any(1)
        chosen = nearest.gather(1, is_sampled.int().argmax(1, keepdim=True)).squeeze(1) + mass.log()
        loss_logprobs = loss_logprobs.index_put((rows[in_top],), chosen[in_top].to(loss_logprobs.dtype))
        projected[rows] = (nearest != top).any(1)
        outside[rows] = ~in_top
    uncovered = size == 0
    return ProjectedTokens(
        logprobs=torch.where(uncovered, logprobs, loss_logprobs),
        divergence=kl,
        penalised=uncovered,
        projected=projected,
        outside=outside,
    )


def divergence_from_old(old: dict[str, Tensor], tops: Tensor, sums: Tensor) -> Tensor:
    """KL(old || policy) of each token in nats, with all tokens outside the top counted as one: a lower bound.

    It takes what `old_tops` and `new_tops` returned.
    """
    present = old["region_ids"] >= 0
    mass = old["region_mass"].double()
    log_old = old["region_logprobs"].double() + mass.log()[:, None]
    log_new = (tops - sums[:, None]).double()
    in_top = torch.where(present, log_old.exp() * (log_old - log_new), 0).sum(1)
    rest_old = (1 - mass).clamp(min=0)
    rest_new = (1 - torch.where(present, log_new.exp(), 0).sum(1)).clamp(min=1e-12)
    in_rest = torch.where(rest_old > 1e-6, rest_old * (rest_old.clamp(min=1e-12).log() - rest_new.log()), 0)
    return in_top + in_rest


def action_marks(decision: Decision, decode: Callable[[Sequence[int]], str]) -> tuple[int, ...]:
    """1 for each token of a reply from its first action or tool call to its last, marks included, else 0."""
    ids = decision.action_ids
    opened = len(decision.action_text) - len(decode(ids))  # the mark of a thought that the context opens
    start, end = (max(place - opened, 0) for place in acting(decision.action_text))

    def length(count: int) -> int:
        return len(decode(ids[:count]))

    counts = range(len(ids) + 1)
    first, last = bisect_right(counts, start, key=length) - 1, bisect_left(counts, end, key=length)
    return tuple(int(first <= index < last) for index in range(len(ids)))


def _logits(head: Any, states: Tensor, temperature: float) -> Tensor:
    return head(states.to(head.weight.dtype)).float() / temperature


def _at_once(head: Any) -> int:
    """The number of tokens whose logits are computed at once."""
    return max(1, _LOGITS_AT_ONCE // int(head.weight.shape[0]))
