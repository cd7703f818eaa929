"""The chains of `evaluation/c3`: their arrays against the library's own play and credit, and sums worked by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from hf_credit import methods
from hf_credit.collaborations.relay import relay, relay_events, relay_task
from hf_credit.diagnostics.training_credit import credited_decisions
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Engine
from hf_credit.rollouts.method_context import LocalContext
from hf_credit.rollouts.samplers import Generation

FOLDER = "c3"
SIZE = 3


def tables(chain: Any, speakers: int, noise: float = 0.2, seed: int = 0) -> Any:
    return chain.Tables(chain.Chains(size=SIZE), speakers, noise, seed)


def test_exact_values_are_those_of_every_way_that_a_chain_can_go(scripts: dict[str, ModuleType]) -> None:
    chain = scripts["chain"]
    probabilities = [one.detach() for one in tables(chain, 3).probabilities()]
    numbers = [2, 1, 1]  # the answer is 1
    first, second, third = probabilities
    ways = {
        (a, b, c): float(first[0, 2, a] * second[a, 1, b] * third[b, 1, c])
        for a, b, c in itertools.product(range(SIZE), repeat=3)
    }
    messages, contexts = chain.exact(probabilities, torch.tensor([numbers]))
    assert contexts[0][0, 0] == pytest.approx(sum(p for (_, _, c), p in ways.items() if c == 1))
    for a in range(SIZE):
        after = {way: p for way, p in ways.items() if way[0] == a}
        expected = sum(p for (_, _, c), p in after.items() if c == 1) / sum(after.values())
        assert messages[0][0, a] == pytest.approx(expected)
        assert contexts[1][0, a] == pytest.approx(expected)  # the second speaker's context is the first's message
    assert messages[2][0].tolist() == [0, 1, 0]


def test_noise_is_any_number_in_place_of_what_a_speaker_after_the_first_would_say(scripts: dict[str, Any]) -> None:
    clear, noisy = (tables(scripts["chain"], 3, noise).probabilities() for noise in (0.0, 0.6))
    assert torch.equal(clear[0], noisy[0])
    for a, b in zip(clear[1:], noisy[1:], strict=True):
        assert torch.allclose(b, 0.4 * a + 0.6 / 3)
    best = scripts["chain_results"].best_score(SIZE, 3, 0.6)
    assert best == pytest.approx((0.4 + 0.2) ** 2 + 0.4 * 0.2)  # right and right again, or wrong and fixed by chance


def the_library(chain: Any, speakers: int, seed: int) -> tuple[LocalContext, dict[Any, Any]]:
    """An engine whose sampler says what the tables say, and the place of each context in them."""
    chances = [one.detach().numpy() for one in tables(chain, speakers).probabilities()]
    collaboration = relay(SIZE, speakers)
    contexts = {}
    for speaker, told, own in itertools.product(range(speakers), range(SIZE), range(SIZE)):
        state = collaboration.start(relay_task(*(own,) * speakers, size=SIZE), 0)
        for _ in range(speaker):
            state = collaboration.advance(state, [str(told)])
        contexts[speaker, told if speaker else 0, own] = collaboration.pending(state)[0].messages
    said = [str(number) for number in range(SIZE)]
    tokenizer = tokenizer_of([*(m["content"] for messages in contexts.values() for m in messages), *said])
    chat = Chat(tokenizer)
    places = {chat.context(messages): place for place, messages in contexts.items()}
    draws = np.random.default_rng(seed)

    def generate(asked: Sequence[Sequence[int]]) -> list[Generation]:
        drawn = [
            draws.choice(SIZE, p=chances[speaker][told, own])
            for speaker, told, own in (places[tuple(context)] for context in asked)
        ]
        return [Generation(ids=(*chat.encode(said[number]), tokenizer.eos_token_id)) for number in drawn]

    return LocalContext(Engine(collaboration, chat, generate), seed=seed), places


@pytest.mark.parametrize(
    ("arm", "speakers", "name", "options"),
    [
        ("MAGRPO", 3, "magrpo", {"group_size": 8}),
        ("C3", 4, "replay_loo", {"budget": 8, "alternatives": [4], "reference_rollouts": 1, "contexts": 2}),
        ("C3 as a tree", 2, "replay_loo", {"budget": 8, "alternatives": [2, 4]}),
        ("C3 as a tree", 3, "replay_loo", {"budget": 8, "alternatives": [2, 2, 2]}),
    ],
)
def test_arrays_play_and_credit_as_the_methods_of_the_library_do(
    scripts: dict[str, Any], arm: str, speakers: int, name: str, options: dict[str, Any]
) -> None:
    chain = scripts["chain"]
    context, places = the_library(chain, speakers, seed=3)
    numbers = np.random.default_rng(5).integers(SIZE, size=(40, speakers))
    method = methods.make(name, **options).bind(context.interaction)
    rows = [relay_task(*own.tolist(), size=SIZE) for own in numbers]
    collected = method.collector(rows, context, method.memory)
    theirs = credited_decisions(collected, method.estimator(collected, context, method.memory))

    # Their play, as arrays: every message once, with the mean score of the episodes that went through it.
    scores: dict[str, list[float]] = {}
    met: dict[str, tuple[int, Any]] = {}
    for sample in collected.trained:
        for decision in sample.episode.decisions:
            scores.setdefault(decision.id, []).append(sample.episode.outcome)
            met[decision.id] = (sample.instance, decision)
    columns: dict[str, list[Any]] = {field: [] for field in ("instance", "speaker", "told", "own", "said")}
    for instance, decision in met.values():
        place = places[decision.context_ids]
        for field, value in zip(columns, (instance, *place, int(decision.action_text)), strict=True):
            columns[field].append(value)
    played = chain.Messages(
        **{field: np.array(values) for field, values in columns.items()},
        returns=np.array([np.mean(own) for own in scores.values()]),
        counts=np.array([len(own) for own in scores.values()]),
        spoken=np.array([context.ledger.decisions[event] for event in relay_events(speakers)]),
    )
    probabilities = tables(chain, speakers).probabilities()
    ours = dict(zip(met, chain.credit(arm, played, probabilities, numbers), strict=True))
    assert {one.decision.id for one in theirs} == {key for key, value in ours.items() if not np.isnan(value)}
    for one in theirs:
        assert ours[one.decision.id] == pytest.approx(one.credit, abs=1e-9)

    # Our play costs as much, and is as good on average.
    own = chain.play(arm, probabilities, numbers, np.random.default_rng(7))
    assert own.counts[own.speaker == speakers - 1].sum() == context.ledger.scoring_events == 8 * 40
    assert len(own.said) == pytest.approx(len(met), rel=0.1)
    if arm != "C3":  # whose contexts are drawn
        assert own.spoken.tolist() == played.spoken.tolist()
        assert own.spoken @ chain.token_prices(SIZE, speakers) == context.ledger.tokens
    last = own.speaker == speakers - 1
    mean, theirs_mean = own.returns[last].mean(), np.mean([e.outcome for e in collected.episodes])
    assert mean == pytest.approx(theirs_mean, abs=0.15)


def test_a_message_tells_whom_it_was_told_by(scripts: dict[str, Any]) -> None:
    chain = scripts["chain"]
    probabilities = tables(chain, 4).probabilities()
    numbers = np.array([[1, 2, 0, 1]] * 5)
    played = chain.play("MAGRPO", probabilities, numbers, np.random.default_rng(0))
    by = [{name: getattr(played, name)[played.speaker == k] for name in ("told", "said")} for k in range(4)]
    assert by[0]["told"].tolist() == [0] * 40
    for before, after in itertools.pairwise(by):
        assert before["said"].tolist() == after["told"].tolist()
    right = played.said[played.speaker == 3] == (1 + 2 + 0 + 1) % SIZE
    assert played.returns[played.speaker == 3].tolist() == right.astype(float).tolist()


def test_credit_of_an_exact_critic_is_right_on_average(scripts: dict[str, Any]) -> None:
    chain = scripts["chain"]
    probabilities = tables(chain, 3).probabilities()
    numbers = np.array([[1, 2, 0]] * 4000)
    played = chain.play("MAPPO, exact critic", probabilities, numbers, np.random.default_rng(0))
    credits = chain.credit("MAPPO, exact critic", played, probabilities, numbers)
    worth, before = chain.exact_values(played, probabilities, numbers)
    for said in range(SIZE):
        at = (played.speaker == 1) & (played.told == 1) & (played.said == said)
        assert credits[at].mean() == pytest.approx((worth - before)[at].mean(), abs=4 * 0.5 / at.sum() ** 0.5)


@pytest.fixture(scope="module")
def work(scripts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cells of two lengths, one noise and two seeds."""
    folder = tmp_path_factory.mktemp("chain")
    scripts["chain"].run(small(scripts), folder, workers=1)
    return folder


def small(scripts: dict[str, Any]) -> Any:
    rates = {arm: {2: 0.1, 4: 0.1} for arm in scripts["chain_results"].arms_of(2)}
    return scripts["chain"].Chains(
        lengths=(2, 4), noises=(0.1,), instances=16, looks=2, updates=30, every=10, learning_rates=rates, seeds=(0, 1)
    )


def test_every_arm_learns_and_takes_the_same_scores(scripts: dict[str, Any], work: Path) -> None:
    cells = scripts["chain_results"].read_cells((work / "cells").glob("*.json"))
    trained = [cell["curves"] for cell in cells if cell["kind"] == "training"]
    assert len(trained) == 2 * (4 + 3)
    for curves in trained:
        assert curves["budget/scoring_events"] == [0, 10 * 128, 20 * 128, 30 * 128]
        assert curves["reward"][-1] > curves["reward"][0] + 0.1


def test_cells_are_made_once_and_alike(scripts: dict[str, Any], work: Path) -> None:
    missing = work / "cells" / "training-4-0.1-c3-1.json"
    before = {path: path.stat().st_mtime_ns for path in (work / "cells").iterdir()}
    old = json.loads(missing.read_text())
    missing.unlink()
    scripts["chain"].run(small(scripts), work, workers=1)
    assert {**json.loads(missing.read_text()), "cpu_seconds": 0} == {**old, "cpu_seconds": 0}
    assert {path for path in before if path.stat().st_mtime_ns != before[path]} == {missing}


def test_tables_and_plots_are_written(scripts: dict[str, Any], work: Path, tmp_path: Path) -> None:
    told = scripts["chain_results"]
    told.write(told.read_cells((work / "cells").glob("*.json")), tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    # Four measures of credit and three of training, two opponents, C3 at two lengths and its tree at one.
    assert len(results["comparisons"]) == (4 + 3) * 2 * 3
    assert all(one["p"] >= 0.5 for one in results["comparisons"])  # two seeds have four sign patterns
    for plot in ("credit", "training"):
        assert (tmp_path / f"{plot}.png").stat().st_size > 10_000
    assert told.markdown(results) == (tmp_path / "results.md").read_text()
    kept = told.read_cells([tmp_path / "cells.json"])
    assert told.numbers_of(kept) == told.numbers_of(told.read_cells((work / "cells").glob("*.json")))


def test_one_seed_is_refused(scripts: dict[str, Any], work: Path, tmp_path: Path) -> None:
    cells = scripts["chain_results"].read_cells((work / "cells").glob("*-0.json"))
    with pytest.raises(ValueError, match=r"needs two seeds of which every cell is finished, got \[0\]"):
        scripts["chain_results"].write(cells, tmp_path)


def test_the_learning_rates_are_the_best_of_those_that_were_tried(scripts: dict[str, Any], root: Path) -> None:
    tried = json.loads((root / "evaluation" / "c3" / "results" / "chain" / "rates.json").read_text())
    best = {arm: {int(n): float(max(by, key=by.get)) for n, by in own.items()} for arm, own in tried.items()}
    chosen = scripts["chain"].CHAINS.learning_rates
    assert best == {arm: {n: chosen[arm][n] for n in own} for arm, own in best.items()}
    assert set(best) == set(chosen)


def test_rates_are_tried_at_every_length(scripts: dict[str, Any], tmp_path: Path) -> None:
    fewer = scripts["chain"].Chains(lengths=(2,), instances=4, updates=2, every=1)
    scripts["chain"].try_rates(fewer, tmp_path / "work", workers=1)
    scripts["chain_results"].write_rates(tmp_path / "work", tmp_path)
    tried = json.loads((tmp_path / "rates.json").read_text())
    assert set(tried) == set(scripts["chain_results"].arms_of(2))
    assert all(set(own["2"]) == {"0.1", "0.3", "0.6"} for own in tried.values())
