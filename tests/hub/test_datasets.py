"""Tasks and episodes as tables: what is loaded is equal to what was published, and goes on from any decision."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest

from hf_credit import collaborations, make
from hf_credit.environments import ENVIRONMENTS
from hf_credit.hub.datasets import (
    EpisodeSet,
    load_episode_folder,
    load_episodes,
    load_tasks,
    publish_episodes,
    publish_tasks,
    save_episodes,
)
from hf_credit.hub.server import Served
from hf_credit.policies.micro import tokenizer_of
from hf_credit.policies.scripted import play
from hf_credit.rollouts import Chat, EnvironmentInteraction, Interaction, Start, replay_from
from hf_credit.tasks import TaskSpec


def played(interaction: Interaction[Any], chat: Chat, games: int = 2) -> EpisodeSet:
    script = interaction.scripted_player(0.7)
    assert script is not None
    starts = [Start[Any](task=row, seed=row.get("seed", 3)) for row in interaction.tasks("train", games)]
    episodes = [play(interaction, chat, script, start) for start in starts]
    return EpisodeSet(episodes=tuple(episodes), interaction=interaction, starts=tuple(starts))


@pytest.fixture(scope="module")
def spelled() -> Chat:
    """Knows every printable character."""
    return Chat(tokenizer_of([string.printable, "→’é·—"]))


INTERACTIONS = [
    *(f"environment:{name}" for name in sorted(ENVIRONMENTS)),
    "collaboration:relay",
    "collaboration:sum_vote",
    "collaboration:hinted_relay",
]


def built(name: str) -> Interaction[Any]:
    kind, _, name = name.partition(":")
    return EnvironmentInteraction(make(name)) if kind == "environment" else collaborations.make(name)


def test_every_episode_comes_back_equal_and_goes_on_from_any_decision(tmp_path: Path, spelled: Chat) -> None:
    for name in INTERACTIONS:
        episodes = played(built(name), spelled)
        save_episodes(tmp_path / name, episodes, chat=spelled)
        loaded = load_episode_folder(tmp_path / name, chat=spelled)
        assert loaded.episodes == episodes.episodes, name
        assert [one.final_state for one in loaded] == [one.final_state for one in episodes]
        assert [[one.id for one in episode.decisions] for episode in loaded] == [
            [one.id for one in episode.decisions] for episode in episodes
        ]
        assert loaded.starts == episodes.starts
        for before, after in zip(episodes, loaded, strict=True):
            assert [len(step) for step in after.steps] == [len(step) for step in before.steps]
            for index in range(len(before.decisions)):
                again = replay_from(loaded.interaction, spelled, after, index)
                assert again == replay_from(episodes.interaction, spelled, before, index), name


def test_what_is_published_is_loaded_as_equal_values(hub: Served, spelled: Chat) -> None:
    where = {"endpoint": hub.url, "token": hub.token()}
    spec = TaskSpec(environment="sudoku", environment_options={"size": 4, "blanks": 4})
    publish_tasks(spec, "me/sudoku-tasks", train=3, held_out=2, **where)
    publish_episodes(played(spec.build(), spelled), "me/sudoku-episodes", chat=spelled, traces=True, **where)
    tasks = load_tasks("me/sudoku-tasks", **where)
    assert tasks.spec == spec.complete()
    assert tasks.train is not None
    assert list(tasks.train) == list(spec.build().tasks("train", 3))
    loaded = load_episodes("me/sudoku-episodes", chat=spelled, **where)
    assert len(loaded) == 2
    assert loaded.commit is not None
