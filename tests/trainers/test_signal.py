"""The signal of methods from the gradients of real trainers, whose policy stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from small_runs import SAMPLED, SUDOKU
from torch import nn
from transformers import TrainerCallback

from hf_credit import CreditTrainer, make, methods
from hf_credit.collectors import RolloutBatch
from hf_credit.diagnostics.signal import SignalDiagnosis, cosine, signal
from hf_credit.rollouts import EnvironmentInteraction, Ledger
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.signal import NO_UPDATE, WIDTH, Collections, Kept, Projected, measure


def parameters(*sizes: int, seed: int = 0) -> list[nn.Parameter]:
    """Parameters with a random gradient."""
    draws, found = torch.Generator().manual_seed(seed), [nn.Parameter(torch.zeros(size)) for size in sizes]
    for one in found:
        one.grad = torch.randn(one.shape, generator=draws)
    return found


def whole(found: list[nn.Parameter]) -> torch.Tensor:
    return torch.cat([one.grad.flatten() for one in found if one.grad is not None]).double()


def test_a_projection_of_few_parameters_keeps_inner_products_exactly() -> None:
    first, second = parameters(3, 5, 2, seed=1), parameters(3, 5, 2, seed=2)
    projected = Projected(width=11, seed=4)
    assert torch.dot(projected(first), projected(second)) == pytest.approx(
        float(whole(first) @ whole(second)), rel=1e-5
    )
    second[1].grad = None
    assert int((projected(second) != 0).sum()) == 5
    assert not projected(parameters()).any()


def test_a_projection_of_many_is_unbiased_over_its_signs_and_as_wide_as_its_variance_says() -> None:
    first, second = parameters(40, 57, seed=1), parameters(40, 57, seed=2)
    second = [nn.Parameter(one) for one in second]
    for one, other in zip(second, first, strict=True):
        one.grad = 0.3 * other.grad + one.detach() + torch.randn_like(one) * 0.1
    exact, found = float(whole(first) @ whole(second)), []
    for seed in range(600):
        projected = Projected(width=13, seed=seed)
        found.append(float(projected(first) @ projected(second)))
    assert abs(np.mean(found) - exact) < 4 * np.std(found) / 600**0.5
    bound = 2 * float(whole(first) @ whole(first)) * float(whole(second) @ whole(second)) / 13
    assert np.var(found) < 1.5 * bound


def test_pieces_of_a_large_gradient_are_projected_alike_in_every_call_and_each_with_its_own_signs() -> None:
    large = parameters(130 * WIDTH + 17)
    projected = Projected()
    once = projected(large)
    assert once.equal(projected(large))
    assert not once.equal(Projected(seed=1)(large))
    size = float(whole(large) @ whole(large))
    assert float(once @ once) == pytest.approx(size, rel=0.08)
    assert float(projected(parameters(130 * WIDTH + 17, seed=9)) @ once) == pytest.approx(0, abs=0.08 * size)


def numpy_of(gradients: Iterable[list[torch.Tensor]]) -> list[np.ndarray]:
    return [torch.stack(own).numpy() for own in gradients]


class WholeGradients(TrainerCallback):
    def __init__(self) -> None:
        self.found: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.found.append(torch.cat([one.grad.flatten() for one in model.parameters()]).clone())


@pytest.fixture
def trainer_of(micro_policy: Path, tmp_path: Path) -> Callable[..., Any]:
    """`trainer_of("rloo")` makes a trainer that plays six collections of four tasks."""

    def made(method: str, **changed: Any) -> Any:
        environment = make("sudoku", size=4, blanks=4)
        rows = Dataset.from_list([{**environment.sample_task(place), "seed": place} for place in range(24)])
        small = {name: value for name, value in SUDOKU.items() if name not in ("history", "instructions")}
        own = {**small, **SAMPLED, **NO_UPDATE, "instances_per_update": 4, "per_device_train_batch_size": 4}
        own |= {"max_steps": 6, "output_dir": str(tmp_path / "run"), "shuffle_dataset": False, **changed}
        interaction = EnvironmentInteraction(environment, history="current", instructions=False)
        return CreditTrainer(str(micro_policy), interaction, CreditConfig(**own), rows, method=method)

    return made


def test_the_projected_estimate_is_that_of_whole_gradients_and_no_weight_changes(
    trainer_of: Callable[..., Any],
) -> None:
    kept: list[Kept] = []
    found: dict[str, Collections] = {}
    gradients: dict[str, list[torch.Tensor]] = {}
    for method in ("outcome_reward", "verifiable_process"):
        trainer = trainer_of(method)
        before = copy.deepcopy(trainer.model.state_dict())
        full, model = WholeGradients(), trainer.model
        trainer.add_callback(full)
        found[method] = Collections(trainer, Projected(), kept, lambda played: False)
        found[method].run()
        assert all(value.equal(before[name]) for name, value in model.state_dict().items())
        gradients[method] = full.found
    assert len(model.model.layers) == 2
    assert sum(one.numel() for one in model.parameters()) > 2 * WIDTH
    measured = {name: signal(torch.stack(one.gradients).numpy(), one.played) for name, one in found.items()}
    exact = {name: signal(torch.stack(own).numpy(), found[name].played) for name, own in gradients.items()}
    for name, one in measured.items():
        size = exact[name].variance + exact[name].signal.mean
        assert one.variance == pytest.approx(exact[name].variance, abs=0.08 * size)
        assert one.signal.mean == pytest.approx(exact[name].signal.mean, abs=0.08 * size)
    first, second = (
        cosine(*own) for own in (numpy_of(gradients.values()), numpy_of(one.gradients for one in found.values()))
    )
    assert second.mean == pytest.approx(first.mean, abs=0.2, nan_ok=True)


def test_methods_with_one_collector_share_episodes_and_replays_are_counted(trainer_of: Callable[..., Any]) -> None:
    names = ("outcome_reward", "verifiable_process", "replay_loo", "rloo")
    makers = {name: lambda name=name: trainer_of(name) for name in names}
    found: SignalDiagnosis = measure("micro", makers, about={"seen": 1})
    signals = found.signals
    first, second = signals["outcome_reward"], signals["verifiable_process"]
    assert (first.tokens, first.equal, first.success) == (second.tokens, second.equal, second.success)
    assert first.success.n == 24
    assert signals["rloo"].success.n == 24  # tasks, with eight episodes each
    played = 6 * (first.tokens + signals["replay_loo"].tokens + signals["rloo"].tokens)
    assert found.cost.completion_tokens == played
    assert signals["replay_loo"].tokens > first.tokens
    assert second.silent == 0.0
    assert 0 <= signals["rloo"].equal <= 1
    assert found.about == {"seen": 1}


def test_collections_end_when_they_are_enough(trainer_of: Callable[..., Any]) -> None:
    one = Collections(trainer_of("outcome_reward"), Projected(), [], lambda played: len(played) >= 3)
    one.run()
    assert (len(one.gradients), len(one.played)) == (3, 3)


def test_what_was_played_is_no_part_of_the_record_of_a_run() -> None:
    method = methods.make("rloo")
    kept = Kept(inner=method.collector)
    before = replace(method, collector=kept).fingerprint()
    kept.played[1] = RolloutBatch(rollouts=(), rows=4), Ledger(), []
    assert replace(method, collector=kept).fingerprint() == before
