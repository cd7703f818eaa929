"""Boards of credit: scores against numbers worked out by hand, and a method measured again."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from hf_credit import methods
from hf_credit.hub.leaderboard import credit_board
from hf_credit.hub.leaderboard.credit_board import bias_and_variance, board_method, measure
from hf_credit.hub.leaderboard.entries import Entry
from hf_credit.hub.leaderboard.seasons import CreditTask, Season, SeasonSecret
from hf_credit.hub.leaderboard.verification import Refusal, verify_credit
from hf_credit.hub.leaderboard.weights import tensor_digest

from .conftest import micro_relay


def test_bias_and_variance_by_hand() -> None:
    # Exact advantages 1 and -1; credit of the first is 2 and 4, of the second -2 and -4: scale 12/40 = 0.3.
    repeats = [{"a": (2.0, 1.0), "b": (-2.0, -1.0)}, {"a": (4.0, 1.0), "b": (-4.0, -1.0)}]
    bias, variance, scale = bias_and_variance(repeats)
    assert scale == pytest.approx(0.3)
    assert variance == pytest.approx(0.18)  # of 0.6 and 1.2
    # Means 0.9 and -0.9 are 0.1 off; the variance of a mean of two is 0.09, more than 0.01.
    assert bias == 0
    biased, _, _ = bias_and_variance([{"a": (1.0, 1.0), "b": (1.0, 0.0)}] * 2)
    assert biased == pytest.approx(0.5)  # scale 1/2: both credits are 0.5


def test_credit_against_the_truth_counts_as_nothing() -> None:
    bias, _, scale = bias_and_variance([{"a": (-1.0, 1.0)}] * 2)
    assert (bias, scale) == (1.0, 0.0)
    assert math.isnan(bias_and_variance([{"a": (1.0, 1.0)}])[1])


def test_only_the_librarys_methods_are_run() -> None:
    assert board_method({"name": "grpo", "options": {}}).name == "grpo"
    for chosen in ({"name": "os:system", "options": {}}, {"name": "grpo", "options": {"scale": "os:system"}}):
        with pytest.raises(ValueError, match="one of"):
            board_method(chosen)


def test_a_method_is_measured_again_and_a_better_claim_is_refused(tmp_path: Path) -> None:
    policy = micro_relay(tmp_path / "policies" / "relay", quality=0.6, seed=0, size=3)
    spec = {
        "collaboration": "relay",
        "collaboration_options": {"size": 3},
        "sampling": {"max_new_tokens": 2, "temperature": 1.0, "top_p": 1.0, "top_k": 0},
    }
    task = CreditTask(
        name="relay credit",
        spec=spec,
        policy="policies/relay",
        policy_digest=tensor_digest(policy),
        instances=2,
        repeats=12,
        floor=1e-3,
    )
    secret = SeasonSecret.new()
    season = Season(
        name="spring",
        benchmark="me/benchmark",
        results="me/results",
        tasks=(),
        credit=(task,),
        salt_sha256=secret.salt_sha256,
        public_key=secret.public_key,
    )
    known: dict[object, credit_board.Values] = {}
    seeds = task.public_seeds()
    noisy, episodes = measure(methods.make("grpo", group_size=4), task, policy, seeds, known=known)
    assert len(noisy.fidelity) == 12
    assert noisy.tokens > 0
    again, _ = measure(methods.make("grpo", group_size=4), task, policy, seeds, known=known)
    assert again == noisy
    entry = Entry(
        kind="credit",
        benchmark=f"me/benchmark@{'a' * 40}",
        season="spring",
        board="relay credit",
        name="GRPO",
        method={"name": "grpo", "options": {"group_size": 4}},
        episodes_sha256="0" * 64,
    )

    def play(request: object, readable: object, limits: object) -> dict[str, object]:
        return credit_board.answer(request, known)  # type: ignore[arg-type]

    record = verify_credit("1" * 32, entry, episodes, season, secret, tmp_path, play=play)
    assert record.ranked
    assert record.public["p"] == 1
    assert len(record.secret[0]) == 12
    better = [dataclasses.replace(one, outcome=1.0) for one in episodes]
    with pytest.raises(Refusal, match="must survive being measured again"):
        verify_credit("1" * 32, entry, better, season, secret, tmp_path, play=play)
    with pytest.raises(Refusal, match="the repeats 0 to 11"):
        verify_credit("1" * 32, entry, episodes[1:], season, secret, tmp_path, play=play)
