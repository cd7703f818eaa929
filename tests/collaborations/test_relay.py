"""The relay is a task of two halves: neither speaker can succeed alone, and both together always can."""

from __future__ import annotations

import random

import pytest

from hf_credit.collaborations.relay import relay, relay_pairs, relay_player, relay_score, relay_task, relay_tasks


def shown(collaboration, state):
    (request,) = collaboration.pending(state)
    return request.event, request.messages[1]["content"]


def test_each_speaker_sees_its_half():
    collaboration = relay()
    state = collaboration.start(relay_task(7, 5), 0)
    assert shown(collaboration, state) == ("reasoner", "Problem: secret 7\n\nContext:")
    state = collaboration.advance(state, ["7"])
    assert shown(collaboration, state) == ("actor", "Problem: add 5\n\nContext: 7")
    assert collaboration.outcome(collaboration.advance(state, [" 2"])) == 1
    assert collaboration.outcome(collaboration.advance(state, ["12"])) == 0


def test_the_score_is_an_exact_match():
    task = relay_task(1, 1, size=3)
    assert task["answer"] == "2"
    assert [relay_score(task, text) for text in ("2", "02", "2.", "", "1")] == [1, 0, 0, 0, 0]


def test_the_pairs_of_the_two_splits_are_disjoint_and_all():
    train, held_out = set(relay_pairs("train")), set(relay_pairs("held_out"))
    assert len(train) == 80
    assert train | held_out == {(secret, shift) for secret in range(10) for shift in range(10)}
    assert train & held_out == set()
    for split in (train, held_out):
        assert {secret for secret, _ in split} == {shift for _, shift in split} == set(range(10))


def test_rows_are_drawn_from_the_pairs_of_their_split():
    for split in ("train", "held_out"):
        rows = relay_tasks(split, 400).to_list()
        possible = [relay_task(secret, shift) for secret, shift in relay_pairs(split)]
        assert all(row in possible for row in rows)
        assert len({tuple(row.values()) for row in rows}) == len(possible) or split == "train"


def test_a_row_is_the_same_in_every_call():
    assert relay_tasks("train", 5, start=3).to_list() == relay_tasks("train", 8).to_list()[3:]
    assert relay_tasks("train", 50).to_list() != relay_tasks("train", 50, start=50).to_list()


def success(quality, size, episodes=2000):
    collaboration, play = relay(size), relay_player(quality, size)
    draws = random.Random(0)
    total = 0.0
    for _ in range(episodes):
        task = relay_task(draws.randrange(size), draws.randrange(size), size)
        state = collaboration.start(task, 0)
        while requests := collaboration.pending(state):
            state = collaboration.advance(state, [play(state, request, draws) for request in requests])
        total += collaboration.outcome(state)
    return total / episodes


def test_the_best_players_always_succeed():
    assert success(1.0, 10, episodes=200) == 1


@pytest.mark.parametrize(("quality", "size"), [(0.6, 10), (0.3, 4), (0.0, 2)])
def test_players_of_a_quality_succeed_as_often_as_their_docstring_says(quality, size):
    right = quality + (1 - quality) / size
    expected = right**2 + (1 - right) * (1 - quality) / size
    assert success(quality, size) == pytest.approx(expected, abs=4 * (0.25 / 2000) ** 0.5)


@pytest.mark.parametrize("size", [1, 0, -3])
def test_a_size_below_two_is_refused(size):
    for make in (lambda: relay(size), lambda: relay_tasks(size=size), lambda: relay_player(1.0, size)):
        with pytest.raises(ValueError, match=f"size must be at least 2, got {size}; "):
            make()


@pytest.mark.parametrize("quality", [-0.1, 1.1, float("nan")])
def test_a_quality_out_of_range_is_refused(quality):
    with pytest.raises(ValueError, match=r"quality must be in \[0, 1\], got "):
        relay_player(quality)


def test_rows_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="rows must be at least 1, got 0; "):
        relay_tasks(rows=0)
    with pytest.raises(ValueError, match="split must be one of train, held_out, got 'test'; "):
        relay_tasks("test")
    with pytest.raises(ValueError, match="index must be from 0 to"):
        relay_tasks(start=-1)
