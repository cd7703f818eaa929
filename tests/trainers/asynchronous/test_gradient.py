"""The gradient of an update, whatever its passes and processes: that of the clipped surrogate over its tokens."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import async_update
import pytest
import torch
from async_update import as_json, collection, small_trainer
from launched import launch
from small_runs import SHARDED
from small_trees import VOCABULARY, random_rows, row
from transformers import AutoModelForCausalLM

from hf_credit.credit import clipped_surrogate
from hf_credit.rollouts import Row, decision_rows
from hf_credit.trainers.callbacks import EpisodeCallback

SCRIPT = Path(async_update.__file__)


def expected(policy: Path, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
    """By plain autograd, a pass for each row."""
    model = AutoModelForCausalLM.from_pretrained(policy, attn_implementation="eager")
    tokens = sum(sum(one.loss_mask) for one in rows)
    for one in rows:
        if not any(one.loss_mask):
            continue
        ids = torch.tensor([one.prompt_ids + one.completion_ids])
        scores = model(input_ids=ids[:, :-1]).logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        mask = torch.tensor([one.loss_mask])
        assert one.logprobs is not None
        terms = clipped_surrogate(
            scores[:, len(one.prompt_ids) - 1 :], torch.tensor([one.logprobs]), torch.tensor([one.advantages]), mask
        )
        ((terms.losses * mask).sum() / tokens).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_measured(log: dict[str, Any], policy: Path, rows: Sequence[Row]) -> None:
    """What is logged of the loss is the mean over the tokens in it, each once, and the extremes over rows."""
    model = AutoModelForCausalLM.from_pretrained(policy, attn_implementation="eager")
    found: dict[str, list[float]] = {name: [] for name in ("ratio", "kl", "entropy", "low", "high")}
    shares: dict[str, list[float]] = {"low": [], "high": []}
    for one in rows:
        ids = [*one.prompt_ids, *one.completion_ids]
        scores = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        own: dict[str, list[float]] = {"low": [], "high": []}
        for place, (on, advantage) in enumerate(zip(one.loss_mask, one.advantages, strict=True)):
            if on:
                at = scores[len(one.prompt_ids) + place - 1]
                assert one.logprobs is not None
                change = (at[one.completion_ids[place]] - one.logprobs[place]).item()
                ratio = math.exp(change)
                found["ratio"].append(ratio)
                found["kl"].append(ratio - 1 - change)
                found["entropy"].append(-(at.exp() * at).sum().item())
                own["low"].append(float(ratio < 0.8 and advantage < 0))
                own["high"].append(float(ratio > 1.2 and advantage > 0))
        for name, clipped in own.items():
            found[name] += clipped
            shares[name] += [sum(clipped) / len(clipped)] if clipped else []
    low, high = found.pop("low"), found.pop("high")
    wanted = {name: sum(values) / len(values) for name, values in found.items()}
    wanted |= {"clip_ratio/low_mean": sum(low) / len(low), "clip_ratio/high_mean": sum(high) / len(high)}
    wanted["clip_ratio/region_mean"] = (sum(low) + sum(high)) / len(low)
    wanted |= {"clip_ratio/low_min": min(shares["low"]), "clip_ratio/high_max": max(shares["high"])}
    assert {name: log[name] for name in wanted} == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    assert log["batch/rows"] == sum(any(one.loss_mask) for one in rows)


def assert_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert wanted.keys() <= found.keys()
    largest = max(value.abs().max().item() for value in wanted.values())
    assert largest > 1e-3
    for name, value in wanted.items():
        assert (found[name] - value).abs().max().item() <= 1e-5 * largest, name


def on_policy(rows: Sequence[Row], policy: Path) -> list[Row]:
    """The same rows with the policy's own log-probabilities, moved by up to half a nat, so that some are clipped."""
    model = AutoModelForCausalLM.from_pretrained(policy)
    draws, found = Random(0), []
    for one in rows:
        ids = torch.tensor([one.prompt_ids + one.completion_ids])
        scores = model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0].tolist()
        own = scores[len(one.prompt_ids) - 1 :]
        moved = tuple(
            (value + draws.uniform(-0.5, 0.5)) * mask for value, mask in zip(own, one.loss_mask, strict=True)
        )
        found.append(Row(**{**vars(one), "logprobs": moved}))
    return found


def mixed() -> list[Row]:
    """Histories that grow, decisions that are shared, equal alternatives, two roles, and replies without tokens."""
    return [
        *random_rows(Random(1), 6),
        row([1, 2], [3, 4], role="planner"),
        row([1, 2], [3, 4], role="actor", advantages=(-2.0, 0.5)),
        row([1, 2], []),
        row([5, 6], [7, 8], loss_mask=(0, 0), advantages=(0.0, 0.0)),
        row([1, 2, 3], [4]),
    ]


def unequal() -> list[Row]:
    """Replies of 40 tokens and of 4."""
    draws = Random(2)
    lengths = (40, 4, 4, 40, 4, 4, 4, 40)
    return [row([place], draws.choices(range(VOCABULARY), k=length)) for place, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("rows", "accumulation"),
    [(mixed(), 1), (mixed(), 3), (unequal(), 8), ([row([1], [2])], 4), ([row([1], [2, 3, 4])], 8)],
    ids=["one pass", "several passes", "unequal passes", "more passes than rows", "passes that only fill up"],
)
def test_an_update_has_the_gradient_of_separate_rows(
    policy: Path, tmp_path: Path, rows: list[Row], accumulation: int
) -> None:
    rows = on_policy(rows, policy)
    trainer = small_trainer(policy, tmp_path, [collection(rows)], gradient_accumulation_steps=accumulation)
    trainer.train()
    assert_same(trainer.kept[0], expected(policy, rows))
    assert trainer.state.log_history[0]["reward"] == 0.5
    assert_measured(trainer.state.log_history[0], policy, rows)


@pytest.mark.parametrize("environment", [{}, SHARDED], ids=["replicated", "sharded by FSDP2"])
def test_two_processes_have_the_gradient_of_separate_rows(
    policy: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    rows = on_policy(mixed() + unequal(), policy)
    settings = {"rows": as_json(rows), "gradient_accumulation_steps": 2}
    launch(
        SCRIPT,
        policy,
        tmp_path,
        json.dumps(settings),
        processes=2,
        folder=tmp_path,
        environment={"ACCELERATE_USE_CPU": "true", **environment},
    )
    two = torch.load(tmp_path / "update.pt")
    assert two["processes"] == 2
    assert_same(two["gradient"], expected(policy, rows))
    assert two["log"]["num_tokens"] == 15
    assert_measured(two["log"], policy, rows)


class KeepRows(EpisodeCallback):
    """Keeps the rows of an update, with the policy's own log-probabilities, as a server would have told them."""

    def on_episodes(self, trainer: Any, collected: Any, advantages: Any) -> None:
        decisions = [one for episode in collected.episodes for one in episode.decisions]
        told = dict(zip(map(id, decisions), trainer.decision_logprobs(decisions), strict=True))
        self.rows = [
            row
            for episode, own in zip(collected.episodes, advantages, strict=True)
            for row in decision_rows([replace(one, logprobs=told[id(one)]) for one in episode.decisions], own)
        ]


@pytest.mark.parametrize("history", ["current", "append"])
def test_an_update_has_the_gradient_of_the_synchronous_trainer(
    one_update: Callable[..., Any], micro_policy: Path, micro_policy_append: Path, tmp_path: Path, history: str
) -> None:
    folder, keep = (micro_policy if history == "current" else micro_policy_append), KeepRows()
    synchronous = one_update(folder, on_built=lambda trainer: trainer.add_callback(keep), history=history)
    trainer = small_trainer(folder, tmp_path / "async", [collection(keep.rows)], gradient_accumulation_steps=2)
    trainer.train()
    assert_same(trainer.kept[0], synchronous.kept[0])
