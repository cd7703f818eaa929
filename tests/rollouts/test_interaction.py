"""One agent in an environment, as an Interaction."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from picture_strip import red_cell, strip

from hf_credit import make
from hf_credit.content import Text
from hf_credit.environments import ENVIRONMENTS
from hf_credit.environments.actions import tag
from hf_credit.environments.randomness import stream
from hf_credit.rollouts import Ending, EnvironmentInteraction, Interaction, Request

SUDOKU = make("sudoku", size=4, blanks=4)
TIC_TAC_TOE = make("tic_tac_toe", opponent="random", agent="first")
PUZZLE = "12343412.14.4..1"  # the blanks are 2, 3, 3 and 2
RIGHT = ["fill 3 1 2", "fill 3 4 3", "fill 4 2 3", "fill 4 3 2"]
GRID = "   C1 C2 C3 C4\nR1 1 2 3 4\nR2 3 4 1 2\nR3 {} 1 4 .\nR4 4 . . 1"


def begin(environment=SUDOKU, task=None, seed=0, **options):
    interaction = EnvironmentInteraction(environment, **options)
    return interaction, interaction.start({"puzzle": PUZZLE} if task is None else task, seed)


def play(interaction, state, *replies):
    for reply in replies:
        state = interaction.advance(state, [reply])
    return state


def messages(interaction, state):
    (request,) = interaction.pending(state)
    assert request.role == "agent"
    return [(message["role"], message["content"]) for message in request.messages]


# What the agent sees


def test_the_prompt_is_the_instructions_and_the_observation():
    interaction, state = begin()
    assert messages(interaction, state) == [("user", f"{SUDOKU.instructions}\n\n{GRID.format('.')}")]


def test_instructions_can_be_left_out():
    interaction, state = begin(instructions=False)
    assert messages(interaction, state) == [("user", GRID.format("."))]


def test_appended_history_keeps_replies_unchanged():
    interaction, state = begin(instructions=False)
    reply = "Hm.\n<ACTION>  Fill 3 1 2 </action> Done. "
    state = play(interaction, state, reply)
    assert messages(interaction, state) == [("user", GRID.format(".")), ("assistant", reply), ("user", GRID.format(2))]


@pytest.mark.parametrize("instructions", [True, False])
def test_current_history_has_only_the_current_observation(instructions):
    interaction, state = begin(history="current", instructions=instructions)
    state = play(interaction, state, tag("fill 3 1 2"))
    shown = f"{SUDOKU.instructions}\n\n{GRID.format(2)}" if instructions else GRID.format(2)
    assert messages(interaction, state) == [("user", shown)]


@pytest.mark.parametrize("instructions", [True, False])
@pytest.mark.parametrize("history", ["append", "rendered", "current"])
def test_images_stay_parts_of_messages_for_every_history(history, instructions):
    world = strip(options={"render_mode": "rgb_array"}, self_contained=True)
    interaction, state = begin(world, {}, history=history, instructions=instructions)
    rules = [Text(world.instructions)] if instructions else []
    logged = [("user", (*rules, *world.observe(state.world)))]
    for moves, cell in enumerate((1, 2), start=1):
        state = play(interaction, state, tag("right"))
        answer = world.observe(state.world)
        assert [red_cell(one) for one in answer] == [cell]
        logged += [("assistant", tag("right")), ("user", answer)]
        shown = messages(interaction, state)
        assert shown == ([("user", (*rules, *answer))] if history == "current" else logged)
        assert len(shown) == (1 if history == "current" else 2 * moves + 1)
        log = [{"role": role, "content": content} for role, content in logged]
        assert [(one["role"], one["content"]) for one in interaction.context_of(log)] == shown  # of a warm-up
        assert interaction.state_from_json(interaction.state_to_json(state)) == state
    assert messages(interaction, interaction.with_world(state, state.world)) == shown


# How it goes on and ends


def test_an_episode_of_a_puzzle():
    interaction, state = begin()
    for action in RIGHT:
        assert interaction.pending(state)
        assert interaction.outcome(state) == 0
        state = play(interaction, state, tag(action))
    assert interaction.pending(state) == ()
    assert (interaction.outcome(state), interaction.reward(state)) == (1.0, 1.0)
    assert interaction.ending(state) == Ending.FINISHED
    assert interaction.metrics(state) == {"success": 1.0, "completion": 1.0}
    assert state.turns == 4


def test_the_reward_is_that_of_the_last_action():
    interaction, state = begin()
    assert [interaction.reward(play(interaction, state, *map(tag, RIGHT[:n]))) for n in range(5)] == [0, 0, 0, 0, 1]


def test_the_last_action_of_a_reply_counts():
    interaction, state = begin()
    state = play(interaction, state, f"{tag('fill 3 1 1')} no, wait: {tag('fill 3 1 2')}")
    assert interaction.metrics(state)["completion"] == 1 / 4


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "fill 3 1 2",
        "<action>fill 3 1 2",
        "fill 3 1 2</action>",
        "</action>fill 3 1 2<action>",
        tag(""),
        tag("fill 1 1 1"),
        tag("fill 9 9 9"),
        tag("place 3 1"),
        "\x00\x1b[2J\u202e\U0001f600\ufffd" + tag("\u0663"),
        "<action>" * 100_000,
        tag("9" * 1_000_000),
        tag("fill " * 200_000),
    ],
    ids=lambda reply: repr(reply[:20]),
)
def test_a_reply_without_a_legal_action_ends_the_episode_as_invalid(reply):
    interaction, state = begin()
    state = play(interaction, state, reply)
    assert interaction.pending(state) == ()
    assert interaction.ending(state) == Ending.INVALID_ACTION
    assert interaction.outcome(state) == 0
    assert interaction.metrics(state)["success"] == 0


@pytest.mark.parametrize("name", ENVIRONMENTS)
@given(st.text() | st.binary().map(lambda raw: raw.decode(errors="replace")) | st.text("<>/action ", max_size=40))
def test_no_reply_raises_an_exception(name, reply):
    interaction, state = begin(make(name), {}, 1)
    for text in (reply, tag(reply)):
        after = play(interaction, state, text)
        assert interaction.ending(after) == Ending.INVALID_ACTION
        assert interaction.pending(after) == ()


def test_an_episode_ends_at_the_turn_limit():
    interaction, state = begin(max_turns=2)
    state = play(interaction, state, *map(tag, RIGHT[:2]))
    assert interaction.pending(state) == ()
    assert interaction.ending(state) == Ending.TURN_LIMIT
    assert interaction.metrics(state) == {"success": 0.0, "completion": 0.5}


def test_an_episode_that_finishes_in_its_last_turn_is_not_at_the_turn_limit():
    interaction, state = begin(max_turns=4)
    assert interaction.ending(play(interaction, state, *map(tag, RIGHT))) == Ending.FINISHED
    interaction, state = begin(max_turns=1)
    assert interaction.ending(play(interaction, state, "?")) == Ending.INVALID_ACTION


def test_the_turn_limit_is_the_environments_own_by_default():
    assert EnvironmentInteraction(SUDOKU).max_turns == 4
    assert EnvironmentInteraction(make("minesweeper", rows=3, columns=4, mines=2)).max_turns == 12


# Tasks and randomness


def test_a_task_that_is_only_a_seed_is_the_environments_task_of_that_seed():
    _, state = begin(task={}, seed=5)
    assert state.world.givens == SUDOKU.sample_task(5)["puzzle"]
    assert begin(task={"seed": 99}, seed=5)[1] == state


def test_a_complete_task_row_does_not_depend_on_the_seed():
    assert {begin(task={"puzzle": PUZZLE, "seed": 1}, seed=seed)[1].world.givens for seed in range(5)} == {PUZZLE}


def random_walk(interaction, state, seed):
    draws = stream(seed, "player")
    while interaction.pending(state):
        state = play(interaction, state, tag(draws.choice(interaction.environment.legal_actions(state.world))))
    return state


def test_reseeding_changes_the_future_and_not_the_past():
    interaction, state = begin(TIC_TAC_TOE, {}, 3)
    state = play(interaction, state, tag("place 2 2"))
    reseeded = [interaction.reseed(state, seed) for seed in range(40)]
    for other in reseeded:
        assert interaction.pending(other) == interaction.pending(state)
        assert (other.world.board, other.turns, other.reward) == (state.world.board, 1, 0.0)
    free = interaction.environment.legal_actions(state.world)[0]
    boards = Counter(play(interaction, other, tag(free)).world.board for other in reseeded)
    assert len(boards) == 6  # the opponent has six cells left to choose from
    assert [interaction.reseed(state, seed) for seed in range(40)] == reseeded


@pytest.mark.parametrize("name", ["sudoku", "minesweeper"])
def test_reseeding_does_not_change_a_deterministic_environment(name):
    interaction, state = begin(make(name), {}, 3, history="current")
    first, second = (random_walk(interaction, interaction.reseed(state, seed), 0) for seed in (1, 2))
    assert first.transcript == second.transcript
    assert first.world.seed != second.world.seed


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("history", ["append", "current"])
def test_pending_changes_no_state(name, history):
    environment = make(name)
    if history == "current" and not environment.self_contained:
        history = "append"
    interaction, state = begin(environment, {}, 2, history=history)
    before = copy.deepcopy(state)
    (request,) = interaction.pending(state)
    request.messages[0]["content"] = "scribbled on"
    first, second = (random_walk(interaction, state, 0) for _ in range(2))
    assert first == second
    assert state == before
    assert hash(state) == hash(before)


# Refused


def test_an_unknown_history_is_refused():
    with pytest.raises(ValueError, match=r"history must be one of append, rendered, current, got 'last'; pick one\."):
        EnvironmentInteraction(SUDOKU, history="last")


@pytest.mark.parametrize("turns", [0, -3])
def test_a_turn_limit_below_one_is_refused(turns):
    with pytest.raises(ValueError, match=rf"max_turns must be at least 1, got {turns}; "):
        EnvironmentInteraction(SUDOKU, max_turns=turns)


def test_an_invalid_task_row_is_refused():
    interaction = EnvironmentInteraction(TIC_TAC_TOE)
    with pytest.raises(ValueError, match="without \\['opponent'\\]"):
        interaction.start({"agent": "first"}, 0)


# Interactions in general


def test_an_interaction_needs_four_methods():
    class Question(Interaction[str]):
        def start(self, task, seed):
            return ""

        def pending(self, state):
            return () if state else (Request(role="agent", messages=[]),)

        def advance(self, state, replies):
            return replies[0]

        def outcome(self, state):
            return float(state == "42")

    question = Question()
    assert question.reward("42") == 0.0
    assert question.ending("42") == Ending.FINISHED
    assert question.metrics("42") == {}
    assert question.reseed("42", 7) == "42"
    with pytest.raises(TypeError, match="abstract"):
        Interaction()
