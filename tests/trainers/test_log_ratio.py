"""What one training made likelier is a verdict in another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hf_credit.oracles import Judge


class LikesOnes(Judge):
    def judge(self, moves: Any, costs: Any) -> list[float]:
        return [float(move.action.endswith(" 1")) for move in moves]


def test_training_teaches_what_an_earlier_training_made_likelier_and_counts_tokens(
    one_update: Callable[..., Any], micro_policy: Path, tmp_path: Path
) -> None:
    def trained(oracle: Any) -> Any:
        return one_update(
            micro_policy,
            trainer_kwargs={"oracle": oracle},
            instances_per_update=16,
            per_device_train_batch_size=16,
            max_steps=12,
            learning_rate=4e-3,
            max_grad_norm=1.0,
            top_k=0,
        )

    def logs(trainer: Any) -> list[dict[str, float]]:
        return [entry for entry in trainer.state.log_history if "oracle/valid" in entry]

    teacher = trained(LikesOnes())
    teacher.save_model(str(tmp_path / "ones"))
    models = {"policy": str(tmp_path / "ones"), "reference": str(micro_policy)}
    trainer = trained({"name": "log_ratio", "options": models})
    valid = [one["oracle/valid"] for one in logs(trainer)]
    assert sum(valid[-3:]) / 3 > valid[0] + 0.2
    assert sum(one["oracle/unknown"] for one in logs(trainer)) == 0
    assert logs(trainer)[-1]["budget/others/judge"] == sum(one["oracle/tokens"] for one in logs(trainer)) > 0
