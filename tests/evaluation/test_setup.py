from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.collaborations import COLLABORATIONS, Collaboration
from hf_credit.environments import ENVIRONMENTS, make
from hf_credit.evaluation.setup import OWN_SCORERS, SETUP_FILE, GameSetup, Sampling, environment_options

OPTIONS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.booleans())
GAMES = st.builds(
    GameSetup,
    environment=st.sampled_from(sorted(ENVIRONMENTS)),
    environment_options=OPTIONS,
    history=st.sampled_from(["append", "current"]),
    instructions=st.booleans(),
    max_turns=st.none() | st.integers(1, 99),
    chat_template_kwargs=st.dictionaries(st.text(max_size=5), st.booleans()),
    sampling=st.builds(Sampling, max_new_tokens=st.integers(1, 9999), temperature=st.floats(0, 2)),
)

TOGETHER = st.builds(GameSetup, collaboration=st.sampled_from(sorted(COLLABORATIONS)), collaboration_options=OPTIONS)


@given(GAMES | TOGETHER)
def test_a_setup_survives_json(setup: GameSetup) -> None:
    assert GameSetup.from_dict(json.loads(json.dumps(setup.to_dict()))) == setup


def test_a_saved_setup_is_found_beside_the_model(tmp_path: Path) -> None:
    setup = GameSetup(environment="sudoku", environment_options={"size": 4}, sampling=Sampling(top_k=3))
    setup.save(tmp_path)
    assert GameSetup.load(tmp_path) == setup


def test_a_model_without_a_setup_has_none(tmp_path: Path) -> None:
    assert GameSetup.load(tmp_path) is None


def test_a_model_that_is_on_no_reachable_hub_has_no_setup() -> None:
    assert GameSetup.load("somebody/some-model") is None


def test_a_setup_says_where_it_shows_a_task_otherwise_than_the_policy_knows() -> None:
    known = GameSetup(environment="sudoku", history="current", instructions=False)
    assert known.shown_unlike(None, "runs/base") is None
    assert GameSetup(environment="tic_tac_toe", history="current", instructions=False).shown_unlike(known, "m") is None
    assert GameSetup(environment="sudoku").shown_unlike(known, "runs/base") == (
        "the policy 'runs/base' was shown its task otherwise: history='append' where it knows 'current', "
        "instructions=True where it knows False; leave these as they were, or expect replies that it was never taught."
    )
    thinking = GameSetup(collaboration="relay", chat_template_kwargs={"enable_thinking": True})
    assert "chat_template_kwargs={'enable_thinking': True}" in str(thinking.shown_unlike(known, "m"))
    assert GameSetup(collaboration="relay").shown_unlike(known, "m") is None


def test_a_setup_becomes_the_game_it_describes() -> None:
    setup = GameSetup(
        environment="sudoku",
        environment_options={"size": 6, "blanks": 9},
        history="current",
        instructions=False,
        max_turns=3,
    )
    game: Any = setup.interaction()
    assert (game.environment.name, game.environment.size, game.environment.blanks) == ("sudoku", 6, 9)
    assert (game.history, game.instructions, game.max_turns) == ("current", False, 3)


def test_a_setup_becomes_the_collaboration_it_describes() -> None:
    together = GameSetup(collaboration="relay", collaboration_options={"size": 4}).interaction()
    assert isinstance(together, Collaboration)
    assert together.roles["actor"] == "answer mod 4"


def test_the_setup_of_a_policy_from_before_there_were_collaborations_is_read(tmp_path: Path) -> None:
    old = {"environment": "sudoku", "environment_options": {"size": 4, "blanks": 8}, "history": "current"}
    old |= {"instructions": False, "max_turns": None, "chat_template_kwargs": {}, "sampling": {"top_k": 0}}
    (tmp_path / SETUP_FILE).write_text(json.dumps(old))
    setup = GameSetup.load(tmp_path)
    assert setup is not None
    assert (setup.name, setup.options, setup.history) == ("sudoku", {"size": 4, "blanks": 8}, "current")


def test_a_task_is_found_by_its_name_whatever_it_is() -> None:
    assert not ENVIRONMENTS.keys() & COLLABORATIONS.keys()
    assert GameSetup.of("sudoku", {"size": 4}) == GameSetup(environment="sudoku", environment_options={"size": 4})
    assert GameSetup.of("relay", {"size": 4}) == GameSetup(collaboration="relay", collaboration_options={"size": 4})
    with pytest.raises(
        ValueError, match=r"of the games minesweeper, .* collaborations reasoner_actor, relay, got 'go'"
    ):
        GameSetup.of("go")


def test_another_task_is_shown_and_sampled_alike_as_far_as_it_can_be() -> None:
    sampling = Sampling(top_k=3)
    game = GameSetup(environment="sudoku", history="current", instructions=False, sampling=sampling)
    assert game.on("relay", {}) == GameSetup(collaboration="relay", sampling=sampling)
    assert game.on("minesweeper", {"rows": 4}).history == "current"
    assert game.with_options({"size": 4}).environment_options == {"size": 4}


def test_every_option_of_a_collaboration_is_written_out_and_what_has_no_default_is_asked_for() -> None:
    assert GameSetup(collaboration="relay").complete().options == {"size": 10}
    named = {"domain": "math", "scorer": "operator:eq"}
    assert GameSetup.of("reasoner_actor", named).complete().options == {**named, "column": "problem"}
    with pytest.raises(ValueError, match="'reasoner_actor' needs the options scorer, got domain; add them"):
        GameSetup.of("reasoner_actor", {"domain": "math"}).interaction()


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_an_environment_is_made_again_from_its_options(name: str) -> None:
    first = make(name)
    again = make(name, **environment_options(first))
    assert vars(again) == vars(first)


def test_options_that_depend_on_others_are_written_out() -> None:
    assert environment_options(make("sudoku", size=4)) == {"size": 4, "blanks": 8}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"history": "append"}', "a task is an environment or a collaboration, got neither"),
        ('{"environment": "sudoku", "collaboration": "relay"}', "got 'sudoku' and 'relay'; name one of them"),
        ('{"environment": "sudoku", "collaboration_options": {"size": 4}}', "collaboration_options need a collab"),
        ('{"collaboration": "relay", "environment_options": {"size": 4}}', "environment_options need an environment"),
        ('{"collaboration": "relay", "history": "current"}', "history, instructions and max_turns are of a game"),
        ('{"environment": "sudoku", "colour": 1}', "got 'colour'"),
        ('{"environment": "sudoku", "sampling": {"beams": 4}}', "got 'beams'"),
        ("{", "must be JSON"),
    ],
)
def test_a_file_that_is_no_setup_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / SETUP_FILE).write_text(text)
    with pytest.raises(ValueError, match=complaint):
        GameSetup.load(tmp_path)


# Trust


def test_what_lies_beside_a_policy_cannot_choose_what_is_imported(tmp_path: Path) -> None:
    setup = GameSetup.of("reasoner_actor", {"domain": "math", "scorer": "operator:eq"})
    setup.interaction()
    setup.save(tmp_path)
    found = GameSetup.load(tmp_path)
    assert found == setup
    for untrusted in (found, found.complete(), found.with_options({"domain": "code"})):
        with pytest.raises(ValueError, match="cannot choose it, got 'operator:eq' from"):
            untrusted.interaction()
    found.with_options({"scorer": "operator:ne"}).interaction()
    dataclasses.replace(found, trusted=True).interaction()


def test_it_may_name_the_scorers_of_this_library(tmp_path: Path) -> None:
    for scorer in OWN_SCORERS:
        GameSetup.of("reasoner_actor", {"domain": "math", "scorer": scorer}).save(tmp_path)
        found = GameSetup.load(tmp_path)
        assert found is not None
        found.interaction()


def test_no_file_says_of_itself_that_it_is_trusted(tmp_path: Path) -> None:
    values = GameSetup(environment="sudoku").to_dict()
    (tmp_path / SETUP_FILE).write_text(json.dumps({**values, "trusted": True}))
    with pytest.raises(ValueError, match="got 'trusted'; remove it"):
        GameSetup.load(tmp_path)
