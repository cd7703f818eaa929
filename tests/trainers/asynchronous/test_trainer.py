"""Updates from collections that were played before: which are learned from, what is logged, saved and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from async_update import Nowhere, Played, collection, small_trainer
from peft import LoraConfig
from small_trees import row

from hf_credit import AsyncCreditConfig, AsyncCreditTrainer, make
from hf_credit.methods import Credit
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.trainers import callbacks
from hf_credit.trainers.asynchronous.collection import CreditedRollouts
from hf_credit.trainers.asynchronous.trl_1_16 import kernel_at_hand
from hf_credit.trainers.callbacks import CreditCallback, EpisodeCallback

ROWS = [row([1], [2, 3]), row([1], [2, 4])]
NO_CREDIT = [row([1], [2], loss_mask=(0,), advantages=(0.0,))]


def test_an_update_learns_from_one_collection_and_says_so(policy: Path, tmp_path: Path) -> None:
    trainer = small_trainer(policy, tmp_path, [collection(ROWS, n, version=n + 1) for n in range(2)], max_steps=2)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    assert trainer.played.told == [
        ("version", 1), ("start", 0), ("version", 2), ("trained", 0), ("version", 3), ("trained", 1), ("stop", 0)
    ]  # fmt: skip
    assert any(not torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())
    first, second = trainer.state.log_history[:2]
    assert (first["reward"], first["budget/tokens"], second["budget/tokens"]) == (0.5, 15, 30)
    assert first["batch/packing_ratio"] == 4 / 3  # 1 and 2 of each; what comes after 2 tells them apart
    assert trainer.state.num_input_tokens_seen == 30
    assert not kernel_at_hand()


def test_a_collection_that_is_too_old_is_dropped_whole_and_counted(policy: Path, tmp_path: Path) -> None:
    played = [collection(ROWS, number, version=1) for number in range(3)]
    trainer = small_trainer(policy, tmp_path, [*played, collection(ROWS, 3, version=2)], max_steps=2, max_staleness=0)
    trainer.train()
    told = [one for one in trainer.played.told if one[0] in ("trained", "dropped")]
    assert told == [("trained", 0), ("dropped", 1), ("dropped", 2), ("trained", 3)]
    assert trainer.state.log_history[1]["collections/dropped_total"] == 2
    assert trainer.ledger.scoring_events == 4  # they were paid for


def test_a_training_ends_once_its_tokens_are_sampled(policy: Path, tmp_path: Path) -> None:
    played = [collection(ROWS, number, version=number + 1) for number in range(3)]
    sampled = played[0].ledger.completion_tokens
    trainer = small_trainer(policy, tmp_path, played, max_steps=3, max_sampled_tokens=sampled + 1)
    trainer.train()
    assert (trainer.state.global_step, trainer.ledger.completion_tokens) == (2, 2 * sampled)


def test_a_collection_without_credit_takes_no_step(policy: Path, tmp_path: Path) -> None:
    trainer = small_trainer(policy, tmp_path, [collection(NO_CREDIT, 0), collection(ROWS, 1)])
    trainer.train()
    assert [one for one in trainer.played.told if one[0] == "trained"] == [("trained", 0), ("trained", 1)]
    assert trainer.state.log_history[0]["collections/without_credit_total"] == 1
    assert trainer.state.global_step == 1


def test_an_update_without_signal_steps_as_one_whose_rows_are_read_but_reads_one_token(
    policy: Path, tmp_path: Path
) -> None:
    silent = [row([1], [2, 3], advantages=(0.0, 0.0)), row([1, 2, 3], [4] * 9, advantages=(0.0,) * 9)]
    settings = {"max_steps": 2, "weight_decay": 0.1}  # momentum and decay move weights whose gradient is 0
    trainer = small_trainer(policy, tmp_path, [collection(ROWS, 0), collection(silent, 1)], **settings)
    trainer.train()
    first, second = trainer.state.log_history[:2]
    assert (first["passes/skipped"], second["passes/skipped"]) == (0, 1)
    assert (first["batch/rows"], second["batch/rows"], second["batch/row_tokens_max"]) == (2, 1, 1)
    assert trainer.kept[1].keys() == trainer.kept[0].keys()
    assert not any(value.any() for value in trainer.kept[1].values())
    assert second["entropy"] > 0


def test_rows_without_a_gradient_are_not_read_and_count_in_the_denominator(policy: Path, tmp_path: Path) -> None:
    def trained(advantage: float) -> Any:
        rows = [*ROWS, row([1, 2], [3, 4, 5], advantages=(advantage,) * 3)]
        trainer = small_trainer(policy, tmp_path, [collection(rows)])
        trainer.train()
        return trainer

    part, full = trained(0.0), trained(1e-30)
    (some, *_), (every, *_) = part.state.log_history, full.state.log_history
    assert (some["batch/rows"], every["batch/rows"]) == (2, 3)
    assert (some["passes/skipped"], every["passes/skipped"]) == (pytest.approx(1 / 3), 0)
    for name, value in full.kept[0].items():
        torch.testing.assert_close(part.kept[0][name], value, rtol=1e-4, atol=1e-7)


def test_a_method_that_credits_nothing_is_stopped_with_the_likely_cause(policy: Path, tmp_path: Path) -> None:
    trainer = small_trainer(policy, tmp_path, [collection(NO_CREDIT, number) for number in range(20)])
    with pytest.raises(
        ValueError, match=r"must credit some decision, got none in 20 collections in a row: the method"
    ):
        trainer.train()


def test_a_row_that_is_too_long_is_left_out_counted_and_costs_no_other(policy: Path, tmp_path: Path) -> None:
    played = [collection([*ROWS, row([1], range(5, 30))])]
    trainer = small_trainer(policy, tmp_path, played, token_budget=20)
    trainer.train()
    assert trainer.state.log_history[0]["collections/rows_too_long_total"] == 1
    assert trainer.state.log_history[0]["batch/rows"] == 2


def test_a_collection_whose_only_row_with_a_gradient_is_too_long_takes_a_step_without_one(
    policy: Path, tmp_path: Path
) -> None:
    silent = row([1], [2, 3], advantages=(0.0, 0.0))
    trainer = small_trainer(policy, tmp_path, [collection([silent, row([1], range(5, 30))])], token_budget=20)
    trainer.train()
    assert trainer.state.global_step == 1
    assert not any(value.any() for value in trainer.kept[0].values())
    (logged, *_) = trainer.state.log_history
    assert (logged["collections/rows_too_long_total"], logged["passes/skipped"]) == (1, 1)


def test_an_update_of_too_many_passes_takes_no_step_is_counted_and_the_run_goes_on(
    policy: Path, tmp_path: Path
) -> None:
    wide = [row([first] * 9, [4, 4]) for first in (1, 2, 3)]
    trainer = small_trainer(policy, tmp_path, [collection(wide, 0), collection(ROWS, 1)], token_budget=12)
    trainer.train()
    assert [one for one in trainer.played.told if one[0] == "trained"] == [("trained", 0), ("trained", 1)]
    assert trainer.state.log_history[0]["collections/unfit_total"] == 1
    assert trainer.state.global_step == 1
    assert trainer.ledger.scoring_events == 2  # both were paid for


def test_a_run_of_which_no_update_fits_is_stopped_with_the_remedy(policy: Path, tmp_path: Path) -> None:
    long = [collection([row([1], range(5, 30))], number) for number in range(20)]
    trainer = small_trainer(policy, tmp_path, long, token_budget=20)
    with pytest.raises(
        ValueError, match=r"20 collections in a row took no step, .* got 1 longer .* of up to 25; raise"
    ):
        trainer.train()
    assert trainer.played.told[-1] == ("stop", 0)


@pytest.mark.parametrize(
    ("played", "kind", "sentence"),
    [
        ([OSError("the server is gone")], OSError, "the server is gone"),
        ([], RuntimeError, "nothing more was played"),
    ],
)
def test_what_stops_the_worker_stops_the_run(
    policy: Path, tmp_path: Path, played: list[Any], kind: type[Exception], sentence: str
) -> None:
    trainer = small_trainer(policy, tmp_path, played, token_budget=20)
    with pytest.raises(kind, match=sentence):
        trainer.train()
    assert trainer.played.told[-1] == ("stop", 0)


def test_a_resumed_run_goes_on_with_the_versions_and_the_worker_of_its_checkpoint(
    policy: Path, tmp_path: Path
) -> None:
    saving = {"save_strategy": "steps", "save_steps": 1, "max_steps": 3}
    played = [collection(ROWS, number, version=number + 1) for number in range(3)]
    whole = small_trainer(policy, tmp_path / "whole", played, **saving)
    whole.train()
    first = small_trainer(policy, tmp_path / "parted", played[:1], **saving)
    with pytest.raises(RuntimeError, match="nothing more was played"):
        first.train()
    second = small_trainer(policy, tmp_path / "parted", played[1:], **saving)
    second.train(resume_from_checkpoint=True)
    assert second.played.told[:3] == [("loaded", 4), ("version", 2), ("start", 0)]
    assert second.ledger == whole.ledger
    for name, value in whole.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name


def test_an_adapter_is_trained_alone(policy: Path, tmp_path: Path) -> None:
    kwargs = {"peft_config": LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")}
    trainer = small_trainer(policy, tmp_path, [collection(ROWS)], trainer_kwargs=kwargs)
    trainer.train()
    assert {name.split(".")[-2] for name, one in trainer.model.named_parameters() if one.requires_grad} == {"default"}


def refused(policy: Path, tmp_path: Path, method: Any = "outcome_reward", **changed: Any) -> None:
    small_trainer(policy, tmp_path, [], trainer_kwargs={"method": method}, **changed)


@pytest.mark.parametrize(
    ("method", "asks"),
    [
        ("constrained_counterfactual", "a frozen copy of the policy"),  # by default
        ("trace", "a frozen copy of the policy"),
        ("gspo", "the ratio of whole episodes"),
    ],
)
def test_a_method_that_asks_for_more_than_the_policy_and_critics_is_refused(
    policy: Path, tmp_path: Path, method: str, asks: str
) -> None:
    sentence = rf"trains one policy, got the method '{method}', which asks for {asks}; train it with CreditTrainer"
    with pytest.raises(ValueError, match=sentence):
        refused(policy, tmp_path, method)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"temperature": 0.7},
            "temperature must be 1.0, got 0.7: a server tells",
        ),
        ({"weight_transfer": "mail"}, "weight_transfer must be one of trl, folder, got 'mail'"),
        ({"weight_folder": "w"}, "weight_folder needs weight_transfer 'folder', got 'trl'"),
        ({"save_strategy": "epoch"}, "save_strategy of asynchronous training must be 'steps' or 'no', got 'epoch'"),
        ({"logging_strategy": "epoch"}, "logging_strategy of asynchronous training must be 'steps' or 'no'"),
        ({"weight_sync_steps": 0}, "weight_sync_steps must be at least 1, got 0"),
        ({"concurrent_collections": 0}, "concurrent_collections must be at least 1, got 0"),
        ({"token_budget": 0}, "token_budget must be at least 1, got 0"),
        (
            {"queue_maxsize": 7},
            "queue_maxsize must be 1024, got 7: the worker here, not TRL's, hands out the tasks",
        ),
        ({"num_generations": 4}, "num_generations must be 1, got 4: a method plays a task several times itself"),
        ({"router_aux_loss_coef": 0.01}, "router_aux_loss_coef must be 0.0, got 0.01"),
    ],
)
def test_settings_that_are_not_possible_are_refused(
    policy: Path, tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        refused(policy, tmp_path, **changed)


def test_deepspeed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(ValueError, match="trains with DDP or FSDP2, got DeepSpeed"):
        AsyncCreditConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none")


def test_a_model_in_memory_is_refused(policy: Path, tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match="model must be a model id or a folder, which the server has too, got a Linear"
    ):
        AsyncCreditTrainer(
            torch.nn.Linear(1, 1),  # type: ignore[arg-type]
            EnvironmentInteraction(make("sudoku", size=4)),
            AsyncCreditConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", max_steps=1),
            method="outcome_reward",
            worker=Played([]),
            weight_transfer=Nowhere(),
        )


def test_passes_over_the_tasks_are_updates(policy: Path, tmp_path: Path) -> None:
    trainer = small_trainer(policy, tmp_path, [], max_steps=-1, num_train_epochs=3)
    # where no dataset is given the Interaction's own tasks fill one update
    assert trainer.args.max_steps == 3


class Keep(CreditCallback, EpisodeCallback):
    def __init__(self) -> None:
        self.kept: list[tuple[str, int, Any]] = []

    def on_credit(self, trainer: Any, collected: Any, credit: Any) -> None:
        self.kept.append(("credit", trainer.state.global_step, credit.memory))

    def on_episodes(self, trainer: Any, collected: Any, advantages: Any) -> None:
        self.kept.append(("episodes", trainer.state.global_step, advantages))


def test_callbacks_get_the_collections_that_updates_learn_from(policy: Path, tmp_path: Path) -> None:
    keep = Keep()

    def played(rows: Any, number: int, version: int) -> Any:
        own = CreditedRollouts(credit=Credit(decisions={}, memory=number), advantages=[[float(number)]])
        return collection(rows, number, version, credited=own)

    collections = [played(ROWS, 0, 1), played(ROWS, 1, 0), played(NO_CREDIT, 2, 2), played(ROWS, 3, 2)]
    trainer = small_trainer(
        policy, tmp_path, [*collections, collection(ROWS, 4, 3)], max_steps=3, max_staleness=0, log_episodes=0
    )
    trainer.add_callback(keep)
    trainer.train()
    assert [one for one in trainer.played.told if one[0] in ("trained", "dropped")] == [
        ("trained", 0), ("dropped", 1), ("trained", 2), ("trained", 3), ("trained", 4)
    ]  # fmt: skip
    # The last has none, as if it had been credited before a restart.
    assert keep.kept == [
        ("credit", 0, 0), ("episodes", 0, [[0.0]]), ("credit", 1, 3), ("episodes", 1, [[3.0]])
    ]  # fmt: skip


def test_a_long_update_says_what_it_does(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(callbacks, "_PRINTED", 1e-3)
    small_trainer(policy, tmp_path, [collection(ROWS, 0)], disable_tqdm=True).train()
    assert "update 1: " in capsys.readouterr().out
