"""In the relay no speaker can succeed alone, and both together always can."""

from __future__ import annotations

import random

import pytest

from hf_credit.collaborations.relay import (
    relay,
    relay_events,
    relay_numbers,
    relay_score,
    relay_task,
)


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
    train, held_out = set(relay_numbers("train")), set(relay_numbers("held_out"))
    assert len(train) == 80
    assert train | held_out == {(secret, shift) for secret in range(10) for shift in range(10)}
    assert train & held_out == set()
    for split in (train, held_out):
        assert {secret for secret, _ in split} == {shift for _, shift in split} == set(range(10))


def test_rows_are_drawn_from_the_pairs_of_their_split():
    for split in ("train", "held_out"):
        rows = relay().tasks(split, 400).to_list()
        possible = [relay_task(secret, shift) for secret, shift in relay_numbers(split)]
        assert all(row in possible for row in rows)
        assert len({tuple(row.values()) for row in rows}) == len(possible) or split == "train"


def test_a_row_is_the_same_in_every_call():
    assert relay().tasks("train", 5, start=3).to_list() == relay().tasks("train", 8).to_list()[3:]
    assert relay().tasks("train", 50).to_list() != relay().tasks("train", 50, start=50).to_list()


def test_in_a_chain_each_speaker_sees_its_own_number_and_the_message_before():
    collaboration = relay(10, speakers=4)
    state = collaboration.start(relay_task(7, 5, 9, 2), 0)
    seen = []
    for said in ("7", "2", "6", "3"):
        seen.append((*shown(collaboration, state), collaboration.pending(state)[0].messages[0]["content"]))
        state = collaboration.advance(state, [said])
    assert seen == [
        ("reasoner", "Problem: secret 7\n\nContext:", "tell"),
        ("speaker2", "Problem: add 5\n\nContext: 7", "speaker2 mod 10"),
        ("speaker3", "Problem: add 9\n\nContext: 2", "speaker3 mod 10"),
        ("actor", "Problem: add 2\n\nContext: 6", "answer mod 10"),
    ]
    assert collaboration.outcome(state) == 1  # 7 + 5 + 9 + 2 = 23


def test_a_chain_of_two_is_the_relay():
    assert relay_events(2) == ["reasoner", "actor"]
    assert relay_task(3, 9) == {"problem": "secret 3", "question": "add 9", "answer": "2"}


def test_the_tasks_of_a_chain_are_of_their_split():
    train, held_out = (set(relay_numbers(split, 3, 4)) for split in ("train", "held_out"))
    assert len(train) + len(held_out) == len(train | held_out) == 3**4
    assert (1, 0, 2, 1) in held_out  # 2 + 0 + 2 + 1 = 5
    assert (1, 0, 2, 2) in train
    rows = relay(3, 4).tasks("held_out", 30).to_list()
    assert all(row in [relay_task(*numbers, size=3) for numbers in held_out] for row in rows)
    assert [*rows[0]] == ["problem", "question_speaker2", "question_speaker3", "question", "answer"]


def success(quality, size, speakers, episodes=2000):
    collaboration, play = relay(size, speakers), relay(size).scripted_player(quality)
    draws = random.Random(0)
    total = 0.0
    for _ in range(episodes):
        task = relay_task(*(draws.randrange(size) for _ in range(speakers)), size=size)
        state = collaboration.start(task, 0)
        while requests := collaboration.pending(state):
            state = collaboration.advance(state, [play(state, request, draws) for request in requests])
        total += collaboration.outcome(state)
    return total / episodes


def test_the_best_players_always_succeed():
    assert success(1.0, 10, 2, episodes=200) == success(1.0, 10, 6, episodes=200) == 1


@pytest.mark.parametrize(("quality", "size", "speakers"), [(0.6, 10, 2), (0.3, 4, 2), (0.0, 2, 2), (0.8, 3, 5)])
def test_players_have_the_success_rate_of_their_docstring(quality, size, speakers):
    right = 1.0  # what a speaker was told: each keeps it right with its quality or by chance, or fixes it by chance
    for _ in range(speakers):
        right = right * (quality + (1 - quality) / size) + (1 - right) * (1 - quality) / size
    assert right == pytest.approx(1 / size + (1 - 1 / size) * quality**speakers)
    assert success(quality, size, speakers) == pytest.approx(right, abs=4 * (0.25 / 2000) ** 0.5)


@pytest.mark.parametrize("size", [10**9, "ten", [1], None, 2.5, True])
def test_a_size_that_no_chain_has_is_refused(size):
    with pytest.raises(ValueError, match=r"^size (must be a whole number, got .*|.* got 1000000000 \*\* 2); "):
        relay(size)
    with pytest.raises(ValueError, match=r"^size \*\* speakers must be at most 1000000, .* got 11 \*\* 6; lower one"):
        relay(11, 6)


@pytest.mark.parametrize("size", [1, 0, -3])
def test_a_size_below_two_is_refused(size):
    for make in (lambda: relay(size), lambda: relay_numbers("train", size)):
        with pytest.raises(ValueError, match=f"size must be at least 2, got {size}; "):
            make()


@pytest.mark.parametrize("speakers", [1, 7])
def test_a_length_out_of_range_is_refused(speakers):
    for make in (lambda: relay(4, speakers), lambda: relay_numbers("train", 4, speakers)):
        with pytest.raises(ValueError, match=f"speakers must be a whole number from 2 to 6, got {speakers}; "):
            make()


@pytest.mark.parametrize("quality", [-0.1, 1.1, float("nan")])
def test_a_quality_out_of_range_is_refused(quality):
    with pytest.raises(ValueError, match=r"quality must be (in \[0, 1\]|a finite number), got "):
        relay().scripted_player(quality)


def test_rows_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="rows must be at least 1, got 0; "):
        relay().tasks("train", 0)
    with pytest.raises(ValueError, match="split must be one of train, held_out, got 'test'; "):
        relay().tasks("test", 1024)
    with pytest.raises(ValueError, match="index must be a whole number from 0 to"):
        relay().tasks("train", 1024, start=-1)
