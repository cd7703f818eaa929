"""Boards of credit: scores against numbers worked out by hand, and a method measured again."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hf_credit import make, methods
from hf_credit.environments.tasks import task_seed
from hf_credit.evaluation.exact_actions import model_policy
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.tasks.spec import TaskSpec
from hf_credit_leaderboard import credit_board
from hf_credit_leaderboard.credit_board import PinnedPolicy, bias_and_variance, board_method, measure
from hf_credit_leaderboard.entries import Entry
from hf_credit_leaderboard.opening import credit_board as credit_task
from hf_credit_leaderboard.seasons import CreditTask, Season, SeasonSecret
from hf_credit_leaderboard.verification import Refusal, verify_entry
from hf_credit_leaderboard.weights import tensor_digest

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
        "task": "relay",
        "task_options": {"size": 3},
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
        warm_up=4,
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
    pinned = PinnedPolicy(task, policy)
    seeds = task.public_seeds()
    noisy, episodes = measure(methods.make("grpo", group_size=4), pinned, seeds)
    assert len(noisy.fidelity) == 12
    assert noisy.tokens > 0
    assert noisy.warm_up == 0
    again, _ = measure(methods.make("grpo", group_size=4), pinned, seeds)
    assert again == noisy
    # A critic is taught on rows of training first, and what that took is told.
    taught, _ = measure(methods.make("mappo", group_size=4), pinned, seeds)
    assert taught.warm_up == pytest.approx(4 * taught.tokens, rel=0.2)
    assert measure(methods.make("mappo", group_size=4), pinned, seeds)[0] == taught
    entry = Entry(
        kind="credit",
        benchmark=f"me/benchmark@{'a' * 40}",
        season="spring",
        board="relay credit",
        name="GRPO",
        method={"name": "grpo", "options": {"group_size": 4}},
        episodes_sha256="0" * 64,
    )

    # The cache of the Hub holds links, whose files a confined process may read only if they are named.
    for path in [*policy.iterdir()]:
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)

    def play(request: object, readable: Sequence[Path], limits: object) -> dict[str, object]:
        assert {tmp_path / path.name for path in policy.iterdir()} <= {one.resolve() for one in readable}
        return credit_board.answer(request, pinned)  # type: ignore[arg-type]

    record = verify_entry("1" * 32, entry, episodes, season, secret, tmp_path, play=play)
    assert record.ranked_in(season)
    assert record.public["p"] == 1
    assert len(record.secret[0]) == 12
    better = [dataclasses.replace(one, outcome=1.0) for one in episodes]
    with pytest.raises(Refusal, match="must survive being played again"):
        verify_entry("1" * 32, entry, better, season, secret, tmp_path, play=play)
    with pytest.raises(Refusal, match="the repeats 0 to 11"):
        verify_entry("1" * 32, entry, episodes[1:], season, secret, tmp_path, play=play)


GAMES: dict[str, dict[str, object]] = {
    "tic_tac_toe": {"opponent": "random", "agent": "first"},
    "evidence": {"documents": 2, "values": 2, "turns": 3, "calls": 2},
}


def game(name: str, folder: Path) -> PinnedPolicy:
    """A policy of random weights, whose replies are made legal by hand where a test plays."""
    spec = TaskSpec.of_name(name, GAMES[name], history="current", instructions=False)
    interaction = spec.build()
    assert isinstance(interaction, EnvironmentInteraction)
    tokenizer = build_tokenizer(interaction.environment)
    build_model(tokenizer, MicroConfig(hidden_size=16, layers=1, heads=2)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return PinnedPolicy(credit_task(name, spec, folder, instances=2, repeats=2), folder)


@pytest.mark.parametrize("name", GAMES)
def test_advantages_of_a_game_are_sums_over_all_that_may_follow(name: str, tmp_path: Path) -> None:
    pinned = game(name, tmp_path)
    interaction = pinned.interaction
    assert isinstance(interaction, EnvironmentInteraction)
    environment: Any = interaction.environment
    row = pinned.rows(pinned.task.public_seeds(), 0)[0]
    state: Any = interaction.start(row, row["seed"])
    play = environment.legal_actions(state.world)
    # Near the end, so that all ways can be gone by hand.
    for action in ("place 1 1", "place 3 2", "place 2 3") if name == "tic_tac_toe" else ("read 1",):
        if action in environment.legal_actions(state.world):
            state = interaction.advance(state, [environment.write_action(action)])
    legal = model_policy(interaction, pinned.chat, pinned.network, 1.0)

    def value(world: Any) -> float:
        if world.status != "active":
            return float(environment.outcome(world))
        shares = legal([world])[0]
        lost = float(environment.outcome(environment.step(world, "").state))
        return sum(shares[one] * after(world, one) for one in shares) + (1 - sum(shares.values())) * lost

    def after(world: Any, action: str) -> float:
        return sum(share * value(one) for share, one in environment.ways(world, action))

    assert play
    action = environment.legal_actions(state.world)[-1]

    def decided(reply: str) -> Any:
        return SimpleNamespace(state=state, event="agent", action_text=reply)

    expected = after(state.world, action) - value(state.world)
    assert pinned.advantage(decided(environment.write_action(action))) == pytest.approx(expected, abs=1e-9)
    lost = float(environment.outcome(environment.step(state.world, "").state))
    assert pinned.advantage(decided("nothing of it")) == pytest.approx(lost - value(state.world), abs=1e-9)
    # Another seed is the same decision: what is drawn is averaged over.
    other = dataclasses.replace(state, world=dataclasses.replace(state.world, seed=5))
    twin = SimpleNamespace(state=other, event="agent", action_text=environment.write_action(action))
    assert pinned.key(twin) == pinned.key(decided(environment.write_action(action)))  # type: ignore[arg-type]


def test_what_an_opponent_may_do_is_what_it_does_over_many_seeds() -> None:
    environment: Any = make("tic_tac_toe", opponent="mcts", opponent_simulations=4, opponent_rollouts=1)
    state = environment.initial_state({"agent": "first", "opponent": "mcts"}, 0)
    ways = {after.board: share for share, after in environment.ways(state, "place 1 1")}
    seen = Counter(
        environment.step(dataclasses.replace(state, seed=seed), "place 1 1").state.board for seed in range(1500)
    )
    assert sum(ways.values()) == pytest.approx(1)
    assert seen.keys() <= ways.keys()
    for board, share in ways.items():
        assert abs(seen[board] / 1500 - share) < 4 * math.sqrt(share * (1 - share) / 1500) + 1e-9
    ((_, lost),) = environment.ways(state, "place 9 9")
    assert lost.status == "invalid"


def test_rows_of_the_warm_up_are_none_that_are_measured(tmp_path: Path) -> None:
    pinned = game("evidence", tmp_path)
    seeds = pinned.task.public_seeds()
    tasks = [{name: row[name] for name in row if name != "seed"} for row in pinned.rows(seeds, 0)]
    assert tasks == [{name: row[name] for name in row if name != "seed"} for row in pinned.rows(seeds, 1)]
    assert {row["seed"] for row in pinned.rows(seeds, 0)}.isdisjoint(row["seed"] for row in pinned.rows(seeds, 1))
    environment: Any = pinned.interaction.environment  # type: ignore[attr-defined]
    trained = [environment.sample_task(task_seed("train", place)) for place in range(2, 4)]
    assert [{name: row[name] for name in row if name != "seed"} for row in pinned.training_rows(1)] == trained


def test_log_probabilities_on_a_board_are_those_of_the_replies(tmp_path: Path) -> None:
    pinned = game("evidence", tmp_path)
    context = pinned.context({}, 0)
    interaction: Any = pinned.interaction
    row = pinned.rows(pinned.task.public_seeds(), 0)[0]
    state = interaction.start(row, row["seed"])
    reply = interaction.environment.write_action("read 1")
    (request,) = interaction.pending(state)
    decision: Any = SimpleNamespace(
        context_ids=pinned.chat.context(request.messages), action_ids=pinned.chat.reply_ids(reply)
    )
    (found,) = context.logprobs([decision], "frozen")
    shares = model_policy(interaction, pinned.chat, pinned.network, 1.0)([state.world])[0]
    assert math.exp(sum(found)) == pytest.approx(shares["read 1"], rel=1e-5)


def test_a_game_with_its_history_in_view_is_no_board_of_credit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got history='append'"):
        credit_task("game", TaskSpec.of_name("evidence"), tmp_path)
