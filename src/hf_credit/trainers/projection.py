"""The part of a trainer that projects the policy into a trust region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType, send_to_device
from torch import Tensor

from hf_credit.rollouts import Episode
from hf_credit.trainers.component import Component
from hf_credit.trainers.ranks import shards_weights
from hf_credit.trainers.rows import RowTrainer
from hf_credit.trainers.scores import Scores
from hf_credit.trainers.trust_region import (
    NAMES,
    TrustRegion,
    action_marks,
    divergence_from_old,
    new_tops,
    old_tops,
    project_tokens,
)


class Projection(Component):
    """Projects the policy of a trainer into a trust region around the old policy.

    As a callback, this logs the divergence KL(old policy || policy) after each logged update, in nats per token, which
    takes a forward pass of all rows.

    Attributes:
        tops: the old policy's top tokens, as `old_tops` returns them, at the tokens in the loss, which
            `region_place` of the batch indexes. At thousands of numbers for each token, other tokens and padding are
            left out.

    Raises:
        ValueError: as for `TrustRegion.require_fit`.
    """

    def __init__(self, region: TrustRegion, trainer: RowTrainer) -> None:
        accelerator = trainer.accelerator
        sharded = shards_weights(accelerator) or accelerator.distributed_type == DistributedType.DEEPSPEED
        self.region, self.trainer, self.tops = region, trainer, dict[str, Tensor]()
        self.policy = accelerator.unwrap_model(trainer.model)
        region.require_fit(self.policy, sharded)

    def checkpoint_state(self) -> dict[str, Any]:
        return {"old_tops": self.tops if self.trainer.in_generation else {}}

    def load(self, folder: Path, state: Mapping[str, Any], same: bool) -> None:
        if same:
            tops = state.get("old_tops", {})  # a run without a trust region has none
            self.tops = send_to_device(tops, self.trainer.accelerator.device)

    def marks(self, episode: Episode) -> list[tuple[int, ...]]:
        """For each decision, 1 on those of its tokens that are part of an action."""
        texts = self.trainer.chat.texts
        return [action_marks(decision, lambda ids: texts([ids])[0]) for decision in episode.decisions]

    def keep(self, batch: dict[str, Tensor]) -> None:
        """Stores the top tokens of the current policy, now the old policy, and their indices in the batch."""
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
        narrow = all(bool((tops["region_size"] == self.region.top).all()) for tops in found)
        width = self.region.top if narrow else self.region.wide
        self.tops = {}
        for name in NAMES:
            parts = [tops.pop(name) for tops in found]
            self.tops[name] = torch.cat([part if part.ndim == 1 else part[:, :width] for part in parts])[order]

    def log_probs(self, scores: Scores, part: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The log-probabilities of a part's tokens under the projected policy, and the sum of the penalties."""
        assert scores.states is not None
        mask, old = part["tool_mask"].bool(), self._tops_of(part)
        result = project_tokens(
            self.region,
            old,
            *self._new_tops(scores.states[mask], old),
            part["completion_ids"][mask],
            scores.logprobs[mask],
            part["old_per_token_logps"][mask],
            part["marks"][mask].bool(),
        )
        penalised = torch.where(result.penalised, result.divergence, 0).sum()
        flags = {"projected": result.projected, "outside_top": result.outside, "penalised": result.penalised}
        for name, values in flags.items():
            self.trainer.loss_metrics["train"].add(f"trust_region/{name}", values)
        dtype = scores.logprobs.dtype
        return scores.logprobs.masked_scatter(mask, result.logprobs.to(dtype)), (self.region.penalty * penalised).to(
            dtype
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not control.should_log:
            return
        accelerator = self.trainer.accelerator
        sums = torch.zeros(4, dtype=torch.float64, device=accelerator.device)
        with self.trainer.reading():  # as the old policy was read
            for part in (part for batch in self.trainer.played_batches() for part in self._parts(batch)):
                old = self._tops_of(part)
                kl = divergence_from_old(old, *self._new_tops(self._states(part), old))
                mask = part["tool_mask"].bool()
                of_action = part["marks"][mask].bool()
                sums += torch.stack([x.double() for x in (kl.sum(), mask.sum(), kl[of_action].sum(), of_action.sum())])
        total, tokens, total_of_actions, action_tokens = accelerator.reduce(sums, "sum").tolist()
        self.trainer.log_metric("trust_region/kl", total / max(tokens, 1))
        if action_tokens:
            self.trainer.log_metric("trust_region/kl_tool", total_of_actions / action_tokens)

    on_epoch_end = on_step_end  # for logging_strategy="epoch"

    def _parts(self, batch: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """The parts of a batch, each with the adapter of its role active."""
        for part in self.trainer.parts_of(batch, self.trainer.args.micro_batch_rows):
            self.trainer.use_policy_of(part)
            yield part

    def _states(self, part: dict[str, Tensor]) -> Tensor:
        """The hidden states before those tokens of a part that are in the loss, of shape (tokens, width)."""
        unscored = {**part, "tool_mask": torch.zeros_like(part["tool_mask"])}
        scores = self.trainer.scores_of_rows(self.trainer.model, unscored, states=True)
        assert scores.states is not None
        return scores.states[part["tool_mask"].bool()]

    def _tops_of(self, part: dict[str, Tensor]) -> dict[str, Tensor]:
        """The old policy's top tokens at those tokens of a part that are in the loss."""
        places = part["region_place"][part["tool_mask"].bool()]
        return {name: values[places] for name, values in self.tops.items()}

    def _new_tops(self, states: Tensor, old: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        with self.trainer.accelerator.autocast():
            return new_tops(self._head(), states, old["region_ids"], self.trainer.temperature)

    def _head(self) -> Any:
        return self.policy.get_output_embeddings()
