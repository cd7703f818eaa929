"""Environments on a Hub: pushed with openenv's own tool or published with ours, and loaded without their code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from huggingface_hub import HfApi

from hf_credit._version import __version__
from hf_credit.hub.environments import load_environment, publish_environment
from hf_credit.hub.publishing import publish
from hf_credit.hub.spaces import space_files, space_url

SPACES = Path(__file__).resolve().parents[3] / "hub_assets" / "environments"


@pytest.fixture(scope="module")
def there(hub: Any) -> dict[str, str]:
    return {"endpoint": hub.url, "token": hub.token()}


@pytest.fixture(scope="module")
def owner(there: dict[str, str]) -> str:
    return str(HfApi(**there).whoami()["name"])


def test_openenv_pushes_the_folder_and_we_load_it(hub_env: dict[str, str], there: dict[str, str], owner: str) -> None:
    command = [sys.executable, "-m", "openenv.cli", "push", str(SPACES / "tic_tac_toe"), "--repo-id", f"{owner}/ttt"]
    pushed = subprocess.run(command, env=hub_env, capture_output=True, text=True, timeout=240)
    assert pushed.returncode == 0, pushed.stdout + pushed.stderr
    api = HfApi(**there)
    listed = set(api.list_repo_files(f"{owner}/ttt", repo_type="space"))
    assert set(space_files("tic_tac_toe")) <= listed
    interaction = load_environment(f"{owner}/ttt", **there)
    assert interaction.spec()["task"] == "tic_tac_toe"


def test_what_is_published_is_loaded_with_its_options_and_as_it_is_to_be_shown(
    there: dict[str, str], owner: str
) -> None:
    published = publish_environment("sudoku", f"{owner}/small-sudoku", options={"size": 4, "blanks": 5}, **there)
    assert published.commit is not None
    for revision in (None, published.commit):
        loaded = load_environment(f"{owner}/small-sudoku", revision=revision, history="current", max_turns=3, **there)
        assert loaded.spec() == {
            "task": "sudoku",
            "task_options": {"size": 4, "blanks": 5, "notation": "grid"},
            "history": "current",
            "instructions": True,
            "max_turns": 3,
        }
    with pytest.raises(ValueError, match="is played in this process, got sessions for a server; pass url="):
        load_environment(f"{owner}/small-sudoku", sessions=3, **there)
    card = HfApi(**there).hf_hub_download(f"{owner}/small-sudoku", "README.md", repo_type="space")
    assert f'load_environment("{owner}/small-sudoku")' in Path(card).read_text()


def test_a_space_of_others_is_played_where_it_is_served(there: dict[str, str], owner: str, served: str) -> None:
    declared = yaml.safe_dump({"name": "walk", "validation": {"capabilities": {"set_state": True}}})
    publish({"openenv.yaml": declared.encode()}, f"{owner}/walk", repo_type="space", space_sdk="docker", **there)
    loaded = load_environment(f"{owner}/walk", url=f"{served}/restored", probe=["on", "on"], **there)
    assert (loaded.environment.restores, loaded.replayable) == (True, True)  # as it declares, and as was found true
    loaded.close()
    # So is one of ours, where that is wanted.
    again = load_environment(f"{served}/small", probe=["fill 1 1 1"])
    assert again.spec()["task"] == "openenv"
    assert space_url("My_Org/Some.Space") == "https://my-org-some-space.hf.space"


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        (
            {"environment": "sudoku", "options": {}, "version": "9.0.0"},
            f"must be of the installed version of hf-credit, {__version__}, got '9.0.0'; install that, or pass",
        ),
        (
            {"environment": "os:system", "options": {}, "version": __version__},
            "must name an environment of this library, got {'environment': 'os:system'",
        ),
        (
            {"environment": "situation_puzzles", "options": {"judge": "os:system"}, "version": __version__},
            "the options of a Space must not name code or files, got 'os:system'; remove it.",
        ),
        (
            {"environment": "situation_puzzles", "options": {"path": "/etc/passwd"}, "version": __version__},
            "the options of a Space must not name code or files, got '/etc/passwd'; remove it.",
        ),
        (
            {"environment": "sudoku", "options": {"sise": 4}, "version": __version__},
            "environment 'sudoku' takes the options size, blanks, notation, got 'sise'; did you mean 'size'",
        ),
        ("sudoku", "must name an environment of this library, got sudoku; pass url="),
    ],
)
def test_a_declaration_that_cannot_be_followed_is_refused_in_one_sentence(
    there: dict[str, str], owner: str, declared: Any, sentence: str
) -> None:
    content = yaml.safe_dump({"name": "x", "hf_credit": declared}).encode()
    publish({"openenv.yaml": content}, f"{owner}/bad", repo_type="space", space_sdk="docker", **there)
    with pytest.raises(ValueError, match="got") as error:
        load_environment(f"{owner}/bad", **there)
    assert sentence in str(error.value)


def test_the_page_that_openenv_adds_when_it_pushes_opens(served: str) -> None:
    page = requests.get(f"{served}/small/web/", timeout=60)
    assert (page.status_code, "gradio" in page.text) == (200, True)
    begun = requests.post(f"{served}/small/web/reset", json={"seed": 0}, timeout=60).json()
    assert begun["observation"]["text"].startswith("   C1 C2 C3 C4")
