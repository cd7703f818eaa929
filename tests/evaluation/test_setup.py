from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments import ENVIRONMENTS, make
from hf_credit.evaluation.setup import SETUP_FILE, GameSetup, Sampling, environment_options

SETUPS = st.builds(
    GameSetup,
    environment=st.sampled_from(sorted(ENVIRONMENTS)),
    environment_options=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.booleans()),
    history=st.sampled_from(["append", "current"]),
    instructions=st.booleans(),
    max_turns=st.none() | st.integers(1, 99),
    chat_template_kwargs=st.dictionaries(st.text(max_size=5), st.booleans()),
    sampling=st.builds(Sampling, max_new_tokens=st.integers(1, 9999), temperature=st.floats(0, 2)),
)


@given(SETUPS)
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


def test_a_setup_becomes_the_game_it_describes() -> None:
    setup = GameSetup(
        environment="sudoku",
        environment_options={"size": 6, "blanks": 9},
        history="current",
        instructions=False,
        max_turns=3,
    )
    game = setup.interaction()
    assert (game.environment.name, game.environment.size, game.environment.blanks) == ("sudoku", 6, 9)
    assert (game.history, game.instructions, game.max_turns) == ("current", False, 3)


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
        ('{"history": "append"}', "must name its environment"),
        ('{"environment": "sudoku", "colour": 1}', "got 'colour'"),
        ('{"environment": "sudoku", "sampling": {"beams": 4}}', "got 'beams'"),
        ("{", "must be JSON"),
    ],
)
def test_a_file_that_is_no_setup_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / SETUP_FILE).write_text(text)
    with pytest.raises(ValueError, match=complaint):
        GameSetup.load(tmp_path)
