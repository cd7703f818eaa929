"""Playthroughs, and the committed playthrough of each environment."""

import inspect
import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from playthrough import playthrough

import hf_credit
from hf_credit.environments import ENVIRONMENTS
from hf_credit.environments.sudoku import Sudoku

COMMITTED = Path(__file__).parent / "playthroughs"


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_the_committed_playthrough_is_reproduced(name):
    path = COMMITTED / f"{name}.txt"
    remedy = f"python tests/processes/playthrough.py {name} > tests/environments/playthroughs/{name}.txt"
    assert path.exists(), f"every environment has a committed playthrough, {name} has none; run {remedy}"
    assert playthrough(hf_credit.make(name)) == path.read_text(), f"the episode changed; if it should, run {remedy}"


def test_every_committed_playthrough_is_of_an_environment():
    assert {path.stem for path in COMMITTED.iterdir()} == set(ENVIRONMENTS)


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_it_contains_a_whole_episode(name):
    environment = hf_credit.make(name)
    text = playthrough(environment, seed=3)
    states = [environment.state_type.from_json(found) for found in re.findall("^state: (.*)$", text, re.M)]
    actions = re.findall("^action: (.*)$", text, re.M)
    assert len(states) == len(actions) + 1
    for before, action, after in zip(states, actions, states[1:], strict=False):
        assert environment.step(before, action).state == after
    assert text.endswith(f"metrics: {json.dumps(environment.metrics(states[-1]))}\n")
    assert environment.instructions in text


def test_another_seed_gives_another_episode():
    environment = Sudoku(size=4)
    assert playthrough(environment, seed=1) == playthrough(environment, seed=1)
    assert playthrough(environment, seed=1) != playthrough(environment, seed=2)


def test_a_short_episode_in_full():
    lines = playthrough(Sudoku(size=4, blanks=1), seed=0).splitlines()
    assert lines[0] == "# sudoku, seed 0"
    assert lines[2:4] == ['options: {"size": 4, "blanks": 1, "notation": "grid"}', "max_turns: 1"]
    assert [line for line in lines if line.startswith("## ")] == ["## turn 1", "## the end, after 1 turns"]
    assert lines[-3] == "status: finished"


def test_the_command_prints_it(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["playthrough", "sudoku"])
    runpy.run_path(inspect.getfile(playthrough), run_name="__main__")
    assert capsys.readouterr().out == playthrough(Sudoku())
