"""The log-probabilities that a loss uses of a policy that stays near the one that played (paper CVT-RL, section 3.3).

The policy's logits are wanted here, which TRL's fused head does not return. They are computed from the hidden states,
a piece of the tokens at a time, and computed anew in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import DistributedType
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import TrainerCallback

from hf_credit.credit import divergence, interpolated_logprobs, projected_logprobs, top_tokens
from hf_credit.environments.actions import CLOSE, OPEN
from hf_credit.rollouts import Decision, Episode
from hf_credit.rollouts.batches import micro_batches
from hf_credit.trainers.ranks import shards_weights
from hf_credit.validators import finite_number, one_of, whole_number

if TYPE_CHECKING:
    from hf_credit.trainers.base import EpisodeTrainer
    from hf_credit.trainers.shared_prefix import Scores

NAMES = ("region_ids", "region_logprobs", "region_mass", "region_size")
"""What a batch holds of the old policy's next-token distributions."""

PROJECTIONS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "least_squares": projected_logprobs,
    "interpolation": interpolated_logprobs,
}
"""What takes a distribution into its region, by name: paper CVT-RL, eq. 8, and TROLL's layer."""

_LOGITS_AT_ONCE = 2**26  # 256 MiB of float32
_CALLS = (OPEN, "<tool_call>", "<function=")
_CALLS_END = (CLOSE, "</tool_call>", "</function>")


@dataclass(frozen=True, kw_only=True)
class TrustRegion:
    """How far an update may move a policy from the one that played.

    Args:
        radius: delta, the most that a next-token distribution may diverge, in nats, above 0.
        tool_radius: the same for tokens of actions and tool calls.
        top: M, how many tokens of the old policy are projected, at least 1 and at most the vocabulary's.
        wide: M where the first have too little of the old probability, at least `top`.
        coverage: how much they must have of it, in (0, 1]. Tokens whose widest M has less are not projected, but
            held by a penalty on their divergence.
        penalty: its weight, at least 0.
        projection: of `PROJECTIONS`.
        regression: weight, at least 0, of KL(policy || projected) among the projected tokens, which is beside the loss
            and draws the policy to where it was projected; 1 in TROLL, nothing in paper CVT-RL.

    Raises:
        ValueError: a number is out of range, or the projection unknown.
    """

    radius: float = 0.025
    tool_radius: float = 0.010
    top: int = 256
    wide: int = 1024
    coverage: float = 0.98
    penalty: float = 1.0
    projection: str = "least_squares"
    regression: float = 0.0

    def __post_init__(self) -> None:
        finite_number("trust_region", self.radius, above=0)
        finite_number("trust_region_tool", self.tool_radius, above=0)
        whole_number("trust_region_top", self.top, 1)
        whole_number("trust_region_wide", self.wide, self.top)
        if finite_number("trust_region_coverage", self.coverage, above=0) > 1:
            raise ValueError(f"trust_region_coverage must be at most 1, got {self.coverage}; lower it.")
        finite_number("trust_region_penalty", self.penalty, least=0)
        one_of("trust_region_projection", self.projection, PROJECTIONS)
        finite_number("trust_region_regression", self.regression, least=0)

    def require_fit(self, model: Any, sharded: bool) -> None:
        """Refuses a policy that cannot be projected.

        Args:
            model: the policy, unwrapped.
            sharded: whether its weights are spread over processes.

        Raises:
            ValueError: its vocabulary has fewer tokens than are projected, its logits are more than what its head
                says, or it is sharded.
        """
        config = model.config.get_text_config()
        if sharded:
            raise ValueError(
                "trust_region needs the whole head of the policy on every process, got FSDP or DeepSpeed, which shard "
                "it; train with several processes without these."
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
                    f"trust_region must be with a policy whose logits are what its head says, got one with {name}="
                    f"{getattr(config, name)}; leave trust_region out."
                )


class Projection(TrainerCallback):
    """The policy of a trainer, projected to near the one that played.

    As a callback it has the divergence of the policy logged after each update that is logged, which takes a forward
    pass of all rows.

    Args:
        region: how far the policy may go.
        trainer: whose policy it is.

    Attributes:
        tops: of the old policy, as `old_tops` gives them, at the tokens in the loss, as `region_place` of the batch
            numbers them. They are thousands of numbers a token, so there are none of other tokens and of padding.

    Raises:
        ValueError: as for `TrustRegion.require_fit`.
    """

    def __init__(self, region: TrustRegion, trainer: EpisodeTrainer) -> None:
        accelerator = trainer.accelerator
        sharded = shards_weights(accelerator) or accelerator.distributed_type == DistributedType.DEEPSPEED
        self.region, self.trainer, self.tops = region, trainer, dict[str, Tensor]()
        self.policy = accelerator.unwrap_model(trainer.model)
        region.require_fit(self.policy, sharded)

    def marks(self, episode: Episode) -> list[tuple[int, ...]]:
        """Of each decision, which of its tokens are part of an action."""
        return [is_of_action(one, lambda ids: self.trainer.chat.texts([ids])[0]) for one in episode.decisions]

    def keep(self, batch: dict[str, Tensor]) -> None:
        """Keeps the tops of the policy, which is the old one from now on, and numbers them in the batch."""
        mask = batch["tool_mask"].bool()
        batch["region_place"] = torch.zeros_like(batch["tool_mask"]).masked_scatter(
            mask, torch.arange(int(mask.sum()), device=mask.device)
        )
        places, found = [], []
        for part in self._parts(batch):
            states = self._states(part)
            with self.trainer.accelerator.autocast():
                found.append(old_tops(self.region, self._head(), states, self.trainer.temperature))
            places.append(part["region_place"][part["tool_mask"].bool()])
        order = torch.cat(places).argsort()
        narrow = all(bool((one["region_size"] == self.region.top).all()) for one in found)
        width = self.region.top if narrow else self.region.wide
        self.tops = {}
        for name in NAMES:
            parts = [one.pop(name) for one in found]
            self.tops[name] = torch.cat([own if own.ndim == 1 else own[:, :width] for own in parts])[order]

    def log_probs(self, scores: Scores, part: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The log-probabilities of a part's tokens under the projected policy, and the penalties of its tokens."""
        assert scores.states is not None
        mask, old = part["tool_mask"].bool(), self._tops_of(part)
        result = moved(
            self.region,
            old,
            *self._new_tops(scores.states[mask], old),
            part["completion_ids"][mask],
            scores.logprobs[mask],
            part["old_per_token_logps"][mask],
            part["marks"][mask].bool(),
        )
        penalised = torch.where(result.penalised, result.divergence, 0).sum()
        beside = self.region.penalty * penalised + self.region.regression * result.regression.sum()
        flags = {"projected": result.projected, "outside_top": result.outside, "penalised": result.penalised}
        for name, values in flags.items():
            self.trainer.loss_metrics["train"].add(f"trust_region/{name}", values)
        dtype = scores.logprobs.dtype
        return scores.logprobs.masked_scatter(mask, result.logprobs.to(dtype)), beside.to(dtype)

    @torch.no_grad()
    def log_divergence(self) -> None:
        """Logs how far the last update has moved the policy from the one that played, in nats a token."""
        accelerator = self.trainer.accelerator
        sums = torch.zeros(4, dtype=torch.float64, device=accelerator.device)
        for batch in self.trainer.played_batches():
            for part in self._parts(batch):
                old = self._tops_of(part)
                apart = distances(old, *self._new_tops(self._states(part), old))
                mask = part["tool_mask"].bool()
                of_action = part["marks"][mask].bool()
                values = [apart.sum(), mask.sum(), apart[of_action].sum(), of_action.sum()]
                sums += torch.stack([one.double() for one in values])
        every, tokens, tool, of_tools = accelerator.reduce(sums, "sum").tolist()
        self.trainer.log_metric("trust_region/kl", every / max(tokens, 1))
        if of_tools:
            self.trainer.log_metric("trust_region/kl_tool", tool / of_tools)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if control.should_log:
            self.log_divergence()

    on_epoch_end = on_step_end  # where epochs are logged

    def _parts(self, batch: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """The parts of a batch, while the policy that each of them trains is in use."""
        for part in micro_batches(batch, self.trainer.args.micro_batch_rows, len(self.trainer.roles) or 1):
            self.trainer.use_policy_of(part)
            yield part

    def _states(self, part: dict[str, Tensor]) -> Tensor:
        """The hidden state before each token of a part that is in the loss, of shape (tokens, width)."""
        scores = self.trainer.scores_of_rows(self.trainer.model, part, states=True)
        assert scores.states is not None
        return scores.states[part["tool_mask"].bool()]

    def _tops_of(self, part: dict[str, Tensor]) -> dict[str, Tensor]:
        """Those of the tokens of a part that are in the loss."""
        places = part["region_place"][part["tool_mask"].bool()]
        return {name: values[places] for name, values in self.tops.items()}

    def _new_tops(self, states: Tensor, old: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        with self.trainer.accelerator.autocast():
            return new_tops(self._head(), states, old["region_ids"], self.trainer.temperature)

    def _head(self) -> Any:
        return self.policy.get_output_embeddings()


@contextmanager
def hidden_states(model: Any, wanted: bool = True) -> Iterator[list[Tensor]]:
    """Within, the last hidden states of every forward pass of a model, in a list; of none unless they are wanted."""
    if not wanted:
        yield []
        return
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    kept: list[Tensor] = []
    handle = inner.base_model.register_forward_hook(lambda module, args, output: kept.append(output.last_hidden_state))
    try:
        yield kept
    finally:
        handle.remove()


def logits_at(head: Callable[[Tensor], Tensor], states: Tensor, temperature: float) -> Iterator[tuple[slice, Tensor]]:
    """The tempered logits of a few tokens at a time, and which they are.

    Args:
        head: from states to logits.
        states: of shape (tokens, width).
        temperature: of the policy.
    """
    size = max(1, _LOGITS_AT_ONCE // _vocabulary(head))
    for start in range(0, max(len(states), 1), size):  # nothing is a piece, too
        here = slice(start, start + size)
        yield here, _logits(head, states[here], temperature)


@torch.no_grad()
def old_tops(
    region: TrustRegion, head: Callable[[Tensor], Tensor], states: Tensor, temperature: float
) -> dict[str, Tensor]:
    """The most probable tokens of the policy as it is now, for each of some tokens.

    Returns:
        Under the names of `NAMES`: their ids, -1 behind the last, and log-probabilities among themselves, of shape
        (tokens, M); their mass; and their number, 0 where even the widest M covers too little.
    """
    found: dict[str, list[Tensor]] = {name: [] for name in NAMES}
    for _, logits in logits_at(head, states, temperature):
        ids, among, mass = top_tokens(logits.log_softmax(-1), region.wide)
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
    """The logits of the old policy's top tokens under the policy as it is, and the logarithm of the sum of all.

    Args:
        head, states, temperature: as for `logits_at`.
        ids: of shape (tokens, M); -1 stands for none.
    """

    def part(own: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        logits = _logits(head, own, temperature)
        return logits.gather(1, wanted), logits.logsumexp(-1)

    size = max(1, _LOGITS_AT_ONCE // _vocabulary(head))
    wanted = ids.long().clamp(min=0)
    pairs = zip(states.split(size), wanted.split(size), strict=True)
    parts = [checkpoint(part, own, some, use_reentrant=False) for own, some in pairs]
    tops, sums = zip(*parts, strict=True)
    return torch.cat(tops), torch.cat(sums)


@dataclass(frozen=True, kw_only=True)
class Moved:
    """Where a policy stands from the old one, for each of some tokens.

    Attributes:
        logprobs: what the loss is to take for the log-probability of the token that was drawn.
        divergence: of the old from the present distribution, its tail counted as one token.
        regression: of the present from the projected distribution, KL(policy || projected) among the top; 0 if the
            region does not ask for it.
        penalised: whether the divergence itself is in the loss.
        projected: whether the distribution lay outside its region.
        outside: whether the token is not among the top of the old policy.
    """

    logprobs: Tensor
    divergence: Tensor
    regression: Tensor
    penalised: Tensor
    projected: Tensor
    outside: Tensor


def moved(
    region: TrustRegion,
    old: dict[str, Tensor],
    tops: Tensor,
    sums: Tensor,
    drawn: Tensor,
    plain: Tensor,
    before: Tensor,
    of_action: Tensor,
) -> Moved:
    """Projects the distributions of some tokens into their regions (paper CVT-RL, eqs. 8 and 9).

        p_new(v) = alpha q(v) for v among the top, p_new(v) = p_old(v) otherwise

    so that a token outside the top has a ratio of 1 and no gradient. Tokens of too little coverage keep their own.

    Args:
        region: how far, and by which projection.
        old: as `old_tops` gave it.
        tops, sums: as `new_tops` gives them.
        drawn: the token that was drawn at each place.
        plain: its log-probability under the policy as it is.
        before: the same under the old policy.
        of_action: whether it is part of an action or a tool call.
    """
    apart = distances(old, tops, sums)
    project = PROJECTIONS[region.projection]
    logprobs, size, pulled = before, old["region_size"], torch.zeros_like(apart)
    projected, outside = torch.zeros_like(size, dtype=torch.bool), torch.zeros_like(size, dtype=torch.bool)
    radii = torch.where(of_action, region.tool_radius, region.radius)
    for most in sorted({one for one in size.tolist() if one}):
        rows = (size == most).nonzero().squeeze(1)
        among, mass = old["region_logprobs"][rows, :most], old["region_mass"][rows]
        present = tops[rows, :most].log_softmax(-1)
        nearest = project(present, among, radii[rows] / mass)
        is_drawn = old["region_ids"][rows, :most] == drawn[rows, None]
        there = is_drawn.any(1)
        chosen = nearest.gather(1, is_drawn.int().argmax(1, keepdim=True)).squeeze(1) + mass.log()
        logprobs = logprobs.index_put((rows[there],), chosen[there].to(logprobs.dtype))
        if region.regression:
            pulled = pulled.index_put((rows,), divergence(present, nearest.detach()))
        projected[rows] = (nearest != present).any(1)
        outside[rows] = ~there
    bare = size == 0
    return Moved(
        logprobs=torch.where(bare, plain, logprobs),
        divergence=apart,
        regression=pulled,
        penalised=bare,
        projected=projected,
        outside=outside,
    )


def distances(old: dict[str, Tensor], tops: Tensor, sums: Tensor) -> Tensor:
    """KL(old || present) of each token in nats, all outside the top taken as one token: at most the whole divergence.

    Args:
        old: as `old_tops` gave it.
        tops, sums: as `new_tops` gives them.
    """
    there = old["region_ids"] >= 0
    mass = old["region_mass"].double()
    log_old = old["region_logprobs"].double() + mass.log()[:, None]
    log_new = (tops - sums[:, None]).double()
    within = torch.where(there, log_old.exp() * (log_old - log_new), 0).sum(1)
    rest_old = (1 - mass).clamp(min=0)
    rest_new = (1 - torch.where(there, log_new.exp(), 0).sum(1)).clamp(min=1e-12)
    beyond = torch.where(rest_old > 1e-6, rest_old * (rest_old.clamp(min=1e-12).log() - rest_new.log()), 0)
    return within + beyond


def is_of_action(decision: Decision, decode: Callable[[Sequence[int]], str]) -> tuple[int, ...]:
    """1 for each token of a reply that is part of an action or a tool call, between the tags that mark it.

    Args:
        decision: whose reply it is.
        decode: from tokens to text.
    """
    ids = decision.action_ids
    if not any(mark in decision.action_text for mark in _CALLS):
        return (0,) * len(ids)
    first = _least(ids, lambda text: any(mark in text for mark in _CALLS), decode)
    last = _least(ids, lambda text: any(mark in text for mark in _CALLS_END), decode)
    return tuple(int(first <= place < last) for place in range(len(ids)))


def _least(ids: Sequence[int], holds: Callable[[str], bool], decode: Callable[[Sequence[int]], str]) -> int:
    """How many tokens it takes until their text has it; all of them where it never does."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(decode(ids[:middle])) else (middle + 1, high)
    return low


def _logits(head: Any, states: Tensor, temperature: float) -> Tensor:
    return head(states.to(head.weight.dtype)).float() / temperature


def _vocabulary(head: Any) -> int:
    return int(head.weight.shape[0])
