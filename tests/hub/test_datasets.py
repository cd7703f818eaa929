"""Tasks and episodes as tables: what is loaded is equal to what was published, and goes on from any decision."""

from __future__ import annotations

import dataclasses
import json
import math
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from picture_strip import red_cell, strip
from vision import processor_of

from hf_credit import collaborations, make
from hf_credit.content import Image
from hf_credit.environments import ENVIRONMENTS
from hf_credit.environments.actions import tag
from hf_credit.hub.cards import episodes_card
from hf_credit.hub.episode_sets import (
    EpisodeSet,
    load_episode_folder,
    load_episodes,
    publish_episode_folder,
    save_episodes,
)
from hf_credit.hub.tables import DESCRIPTION_FILE, infer_features
from hf_credit.hub.task_sets import load_tasks, publish_tasks, write_tasks
from hf_credit.methods.t3 import Truncated, make_rule
from hf_credit.oracles.auditing import AUDIT, VERIFIED, Audit
from hf_credit.policies.micro import tokenizer_of
from hf_credit.policies.scripted import play
from hf_credit.rollouts import (
    Chat,
    Ending,
    Engine,
    EnvironmentInteraction,
    Generation,
    Interaction,
    RolloutRequest,
    Verdict,
    replay_from,
)
from hf_credit.rollouts.replay import begun_later
from hf_credit.tasks import TaskSpec
from local_hub.running import Served


def played(interaction: Interaction[Any], chat: Chat, games: int = 2) -> EpisodeSet:
    script = interaction.scripted_player(0.7)
    assert script is not None
    starts = [RolloutRequest[Any](task=row, seed=row.get("seed", 3)) for row in interaction.tasks("train", games)]
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
            assert [one.step for one in after.decisions] == [one.step for one in before.decisions]
            assert [len(step) for step in after.steps] == [len(step) for step in before.steps]
            for index in range(len(before.decisions)):
                again = replay_from(loaded.interaction, spelled, after, index)
                assert again == replay_from(episodes.interaction, spelled, before, index), name


def test_episodes_with_images_have_each_once_in_a_column_of_images_and_come_back_equal(tmp_path: Path) -> None:
    chat = Chat(processor_of("idefics3"))
    reply = Generation(ids=chat.reply_ids(tag("right")), logprobs=None)
    interaction = EnvironmentInteraction(strip(options={"render_mode": "rgb_array"}, turns=4))
    start = RolloutRequest[Any](task={"seed": 1}, seed=1)
    episodes = tuple(Engine(interaction, chat, lambda contexts: [reply] * len(contexts)).run([start, start]))
    assert [len(one.decisions[-1].context_ids.images) for one in episodes] == [3, 3]
    episodes = (episodes[0], dataclasses.replace(episodes[1], next_context=episodes[1].decisions[1].context_ids))
    save_episodes(tmp_path, EpisodeSet(episodes=episodes, interaction=interaction, starts=(start, start)), chat=chat)
    loaded = load_episode_folder(tmp_path, interaction=interaction, chat=chat)
    assert loaded.episodes == episodes
    assert [one.final_state for one in loaded] == [one.final_state for one in episodes]
    tables = {str(path.parent.name): pq.read_table(path) for path in tmp_path.glob("*/*.parquet")}
    row, _ = Dataset(tables["episodes"])
    assert [red_cell(Image.of(one)) for one in row["images"]] == [0, 1, 2, 3]
    named = [Image.of(one) for one in row["images"]]
    assert [one["content"] for one in row["messages"] if one["role"] == "user"][1:] == list(map(str, named[1:3]))
    for column in ("state", "context_images"):
        assert not any(image.png in text for image in named for text in tables["decisions"][column].to_pylist())
    text = EnvironmentInteraction(make("tic_tac_toe"))
    save_episodes(tmp_path / "text", played(text, Chat(tokenizer_of([string.printable, "·—"]))))
    assert not {"images", "next_context_images"} & set(
        pq.read_table(*(tmp_path / "text/episodes").iterdir()).column_names
    )


def test_an_episode_that_began_later_is_refused_as_its_outcome_counts_what_no_row_has(
    tmp_path: Path, spelled: Chat
) -> None:
    whole = played(built("environment:sudoku"), spelled, 1)
    start = begun_later(whole.interaction, whole[0], 1)
    reply = Generation(ids=spelled.reply_ids("?"), logprobs=None)
    later = Engine(whole.interaction, spelled, lambda contexts: [reply] * len(contexts)).run([start])
    mixed = dataclasses.replace(whole, episodes=(whole[0], *later), starts=(*whole.starts, start))
    with pytest.raises(ValueError, match=r"got one \(number 2\) that began after 1 steps; leave it out"):
        save_episodes(tmp_path / "mixed", mixed)


def test_what_is_published_is_loaded_as_equal_values(hub: Served, spelled: Chat, tmp_path: Path) -> None:
    where = {"endpoint": hub.url, "token": hub.token()}
    spec = TaskSpec(task="sudoku", task_options={"size": 4, "blanks": 4})
    publish_tasks(spec, "me/sudoku-tasks", train=3, held_out=2, **where)
    save_episodes(tmp_path / "episodes", played(spec.build(), spelled), chat=spelled)
    publish_episode_folder(tmp_path / "episodes", "me/sudoku-episodes", **where)
    tasks = load_tasks("me/sudoku-tasks", **where)
    assert tasks.spec == spec.complete()
    assert tasks.train is not None
    assert list(tasks.train) == list(spec.build().tasks("train", 3))
    loaded = load_episodes("me/sudoku-episodes", chat=spelled, **where)
    assert len(loaded) == 2
    assert loaded.commit is not None


def test_states_of_a_truncated_task_are_written_with_what_is_within() -> None:
    game = EnvironmentInteraction(make("sudoku", size=4, blanks=4))
    cut = Truncated(game, make_rule("random", probability=0.5))
    state = cut.advance(cut.start({"seed": 1}, 1), ["nothing"])
    assert cut.state_from_json(cut.state_to_json(state)) == state


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"type": "EnvironmentState"}', '{"type": "str", "world": {}}'])
def test_what_is_no_state_is_told_in_one_sentence(text: str) -> None:
    for interaction in (EnvironmentInteraction(make("sudoku")), collaborations.make("relay")):
        with pytest.raises(ValueError, match=r"a state must be a result of state_to_json of '\w+', got \w+"):
            interaction.state_from_json(text)


def test_an_interaction_that_cannot_write_its_states_says_so(spelled: Chat, tmp_path: Path) -> None:
    episodes = played(built("collaboration:relay"), spelled)
    mute = dataclasses.replace(episodes, interaction=Mute(episodes.interaction))
    with pytest.raises(ValueError, match="implement its methods `state_to_json` and `state_from_json`"):
        save_episodes(tmp_path, mute)


class Mute(Interaction[Any]):
    """An Interaction of somebody who did not think of publishing."""

    def __init__(self, inner: Interaction[Any]) -> None:
        self.inner = inner

    def spec(self) -> dict[str, Any]:
        return self.inner.spec()

    def start(self, task: Any, seed: int) -> Any:
        return self.inner.start(task, seed)

    def pending(self, state: Any) -> Any:
        return self.inner.pending(state)

    def advance(self, state: Any, replies: Any) -> Any:
        return self.inner.advance(state, replies)

    def outcome(self, state: Any) -> float:
        return self.inner.outcome(state)


def test_what_episodes_do_not_need_and_may_have_comes_back_too(spelled: Chat, tmp_path: Path) -> None:
    game = built("environment:sudoku")
    (episode, _) = played(game, spelled)
    first, *others = episode.decisions
    audit = Audit(
        kind="read",
        arguments={"number": 2, "half": "\ud800"},
        costs={"tools": 1.5},
        hacks={"stuffing": 0.25},
        true_hacks=frozenset({"stuffing", "leak"}),
        evidence=0.5,
        uncertainty=(1.0, 0.5),
        beliefs={"suspect": (0.25, 0.75)},
    )
    odd = dataclasses.replace(
        first,
        action_text="half \ud800",
        logprobs=(-0.1,) * len(first.action_ids),
        reward=0.5,
        trained=False,
        verdict=Verdict(score=0.5),
        extras={AUDIT: audit},
    )
    cut = dataclasses.replace(
        episode,
        decisions=(odd, *others),
        branch=(0, 2),
        next_context=(5, 6),
        metrics={"success": 0.1},
        prefix_length=1,
        num_leaves=2,
        scored=3,
        extras={VERIFIED: 0.75},
        outcome=math.nan,
        error="half \udc00?",
        ending=Ending.ERROR,
    )
    # What a later release adds to either is missed here, rather than in somebody's data.
    assert as_if_left_out(odd) == ["observed"]  # which the Interaction says of its role
    assert as_if_left_out(cut) == []
    credits = {"c3": {first.id: 0.25}, "t3": {first.id: [0.5, -0.5]}, "grpo": {first.id: None}}
    start = RolloutRequest[Any](task={}, seed=2**62 + 2**32)
    save_episodes(
        tmp_path, EpisodeSet(episodes=(cut,), interaction=game, starts=(start,), credits=credits, policy="me/policy")
    )
    loaded = load_episode_folder(tmp_path)
    assert math.isnan(loaded[0].outcome)
    assert dataclasses.replace(loaded[0], outcome=0.0, error=None) == dataclasses.replace(cut, outcome=0.0, error=None)
    assert loaded.credits == {"c3": {first.id: 0.25}, "t3": {first.id: (0.5, -0.5)}, "grpo": {first.id: None}}
    assert (loaded.starts, loaded.policy) == ((start,), "me/policy")


def as_if_left_out(value: Any) -> list[str]:
    """The fields that count and have the values that they have by default."""
    counting = [one for one in dataclasses.fields(value) if one.compare]
    return [one.name for one in counting if getattr(value, one.name) in (one.default, {})]


def edited(folder: Path, **changed: Any) -> Path:
    file = folder / DESCRIPTION_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    return folder


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: edited(folder, kind="tasks"), "must hold episodes, got tasks; load it as that"),
        (lambda folder: edited(folder, format=9, version="9.0"), "format 2, got 9 of hf-credit '9.0'; install that"),
        (lambda folder: (folder / DESCRIPTION_FILE).unlink(), "must hold episodes and hf_credit_dataset.json"),
        (lambda folder: edited(folder, template="0" * 64), "with the template they were played with"),
        (lambda folder: edited(folder, rows={"episodes": 3, "decisions": 9}), "must have the rows of its description"),
        (lambda folder: next((folder / "decisions").iterdir()).unlink(), "the table decisions/train must be whole"),
        (lambda folder: cut_short(next((folder / "episodes").iterdir())), "must be whole parquet"),
        (lambda folder: pq.write_table(pa.table({"a": [1]}), next((folder / "episodes").iterdir())), "its columns"),
    ],
)
def test_episodes_that_are_not_what_was_saved_are_refused(
    spoil: Callable[[Path], Any], told: str, spelled: Chat, tmp_path: Path
) -> None:
    save_episodes(tmp_path, played(built("collaboration:relay"), spelled), chat=spelled)
    spoil(tmp_path)
    with pytest.raises(ValueError, match=told):
        load_episode_folder(tmp_path, chat=spelled)


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-30])


def test_code_that_a_data_set_names_is_not_run(spelled: Chat, tmp_path: Path) -> None:
    save_episodes(tmp_path, played(built("collaboration:relay"), spelled))
    edited(tmp_path, task={"task": "os:system", "task_options": {}})
    with pytest.raises(ValueError, match="importing a name runs its code"):
        load_episode_folder(tmp_path)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "must have tasks, got none"),
        ([{"seed": 1, "x": 1}, {"seed": 1, "x": 2}], "a seed of its own, got 1 more than once"),
        ([{"seed": None, "x": 1}], "must have a seed, a whole number"),
        ([{"seed": 1, "x": math.nan}], "must be finite, got NaN or infinity in 'x'"),
        ([{"seed": 1, "x": 1}, {"seed": 2, "x": "1"}], "one plain type, got int, str in 'x'"),
        ([{"seed": 1, "x": 1}, {"seed": 2}], "all rows must have the columns seed, x"),
        ([{"seed": 1, "split": "a"}], "not have reserved names, got split"),
    ],
)
def test_tasks_that_could_not_be_loaded_are_not_published(
    rows: list[dict[str, Any]], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=told):
        write_tasks(tmp_path, TaskSpec(task="sudoku"), {"train": rows}, "me/x")


def test_types_are_found_over_all_rows_and_splits() -> None:
    rows = [{"a": None, "b": [], "c": 1}, {"a": "x", "b": [1], "c": 0.5}]
    features = infer_features(rows)
    assert (features["a"].dtype, features["b"].feature.dtype, features["c"].dtype) == ("string", "int64", "float64")


def test_the_card_of_episodes_explains_every_column_of_the_published_tables(spelled: Chat, tmp_path: Path) -> None:
    save_episodes(tmp_path, played(built("collaboration:relay"), spelled), chat=spelled)
    card = episodes_card("me/episodes", json.loads((tmp_path / DESCRIPTION_FILE).read_text()))
    for table in ("episodes", "decisions"):
        (file,) = (tmp_path / table).glob("*.parquet")
        _, _, section = card.partition(f"## Columns of {table}\n")
        explained = [
            line.split("`")[1] for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")
        ]
        assert explained == pq.read_schema(file).names
