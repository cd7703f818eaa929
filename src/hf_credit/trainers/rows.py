"""The rows of an update: their layout in a batch, and their log-probabilities under the policy."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from hf_credit.rollouts import Row, sequence_mean
from hf_credit.rollouts.batches import map_micro_batches, micro_batches, pad_rows, padding_row
from hf_credit.trainers.arguments import refuse_several_rows
from hf_credit.trainers.metrics import LossMetrics
from hf_credit.trainers.resumption import ResumableTrainer
from hf_credit.trainers.scores import Scores, log_probs, pack, separate, why_apart

logger = logging.getLogger(__name__)


class RowTrainer(ResumableTrainer):
    """The part of a trainer that lays out rows and reads them with its policy, in parts of one role each.

    Attributes:
        reading: context without dropout and without gradients.
        played_batches: the batches of the last generation of episodes, in the slices of training.
    """

    beta: float
    entropy: Any
    loss_metrics: dict[str, LossMetrics]
    pad_to_multiple_of: int | None
    projection: Any
    temperature: float
    reading: Callable[[], AbstractContextManager[None]]
    played_batches: Callable[[], list[dict[str, Tensor]]]
    _said: frozenset[str] = frozenset()  # why rows are not packed

    def weighted(self, rows_of: list[list[Row]]) -> list[Row]:
        """The rows of all episodes in one list, with the weights of `aggregation`."""
        if self.args.importance_sampling_level == "sequence":
            refuse_several_rows(rows_of)
        if self.args.aggregation == "sequence":
            tokens = [sum(sum(row.loss_mask) for row in rows) for rows in rows_of]
            counts = self.ranks.gather([count for count in tokens if count])
            rows_of = [sequence_mean(rows, sum(counts), len(counts)) for rows in rows_of]
        return [row for rows in rows_of for row in rows]

    def to_read(self, rows: list[Row]) -> list[Row]:
        """The rows whose gradient is not 0; if no process has any, one a slice, for its entropy."""
        more_terms = self.beta != 0.0 or self.entropy is not None or self.projection is not None
        read = [row for row in rows if more_terms or any(row.advantages)]
        learned, played = map(sum, zip(*self.ranks.gather([(len(read), len(rows))]), strict=True))
        self.log_metric("passes/skipped", 1 - learned / max(played, 1))
        return read if learned else rows[: self.args.steps_per_generation]

    def lay_out(self, rows: list[Row], slices: int = 1) -> dict[str, Tensor]:
        """The rows as a batch, filled up with rows without loss so that slices and processes have equally many."""
        needed = -(-max(self.ranks.all_max(len(rows)), 1) // slices) * slices
        idle = padding_row(self.chat.reply_ids(""), logprobs=self.use_vllm)
        rows = [*rows, *[idle] * (needed - len(rows))]
        batch = pad_rows(rows, self.chat.tokenizer.pad_token_id, self.pad_to_multiple_of, self.roles)
        batch = {name: value.to(self.accelerator.device) for name, value in batch.items()}
        batch |= self.chat.media.of_rows((row.prompt_ids, row.completion_ids) for row in rows)
        if self.projection is not None:
            batch.setdefault("marks", torch.zeros_like(batch["tool_mask"]))
        return batch

    def use_policy_of(self, part: dict[str, Tensor]) -> None:
        """Activates the adapter that rows train, before their forward pass and until their backward pass."""
        if self.adapters is not None:
            self.adapters.use(part)

    def logprobs_of_rows(self, model: Any, batch: dict[str, Tensor]) -> Tensor:
        """The log-probability of each token in the loss under `model`, 0 on others."""
        with self.reading():
            return map_micro_batches(
                batch,
                self.args.micro_batch_rows,
                lambda part: self.scores_of_rows(model, part).logprobs,
                self.use_policy_of,
                len(self.roles) or 1,
                self._packs(),
            )

    def scores_of_rows(self, model: Any, rows: dict[str, Any], states: bool = False) -> Scores:
        """The scores of the tokens in the loss from one forward pass, which reads once what rows begin with in common,
        where that is exact."""
        ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
        mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
        unwrapped, scored = self.accelerator.unwrap_model(model), rows["tool_mask"].bool()
        asked = ids, mask, scored, unwrapped, self.chat.media, rows.get("media")
        with self.accelerator.autocast():
            sequences = (pack(*asked) if self._packs() else None) or separate(*asked)
            return log_probs(model, unwrapped, sequences, scored, states)

    def parts_of(self, batch: dict[str, Tensor], size: int) -> list[dict[str, Tensor]]:
        """A batch in parts of at most `size` rows, each of one role."""
        return micro_batches(batch, size, len(self.roles) or 1, self._packs())

    def _packs(self) -> bool:
        """Whether rows that begin alike are read together; says once why they are not."""
        if not self.args.share_prompts:
            return False
        model = self.accelerator.unwrap_model(self.model)
        reason = why_apart(self.model_wrapped, model, self.accelerator, self.chat.media)
        if reason and reason not in self._said and self.accelerator.is_main_process:
            logger.warning("the policy reads each row from its start, as %s; share_prompts changes nothing.", reason)
        self._said |= {reason}
        return not reason
