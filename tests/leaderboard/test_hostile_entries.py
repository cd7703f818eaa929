"""Among ten good entries no hostile one stops the verifier, wherever it fails, and none keeps the others waiting."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd
from safetensors.torch import load_file, save_file

from hf_credit.hub.client import connect
from hf_credit_leaderboard import playing
from hf_credit_leaderboard.confined import Limits
from hf_credit_leaderboard.entries import Checkpoint, Entry
from hf_credit_leaderboard.records import SELF_REPORTED
from hf_credit_leaderboard.service import Ruling
from hf_credit_leaderboard.sources import Hub
from hf_credit_leaderboard.submission import Submission, packed
from local_hub.running import Served, serving

from .conftest import RESULTS, Board, commit_of
from .test_service import World, world_on

TOKEN = "hf_" + "A" * 34
ESCAPED = "\\u0068f_" + "A" * 34


@pytest.fixture
def world(board: Board, tmp_path: Path) -> Any:
    with serving(tmp_path / "hub") as served:
        yield world_on(served, board, tmp_path / "cache"), served


def sent_by(world: World, hub: Served, account: str, submission: Submission) -> int:
    client = Hub(endpoint=hub.url, token=hub.token(name=account))
    made = submission.send(client, RESULTS)
    return int(str(made.pull_request).rpartition("/")[2])


def uploaded(world: World, folder: Path, repo: str) -> str:
    """The commit of a repository with the files of a folder, as a client without checks sends them."""
    api = connect(world.hub.endpoint, world.hub.token)
    api.create_repo(repo)
    operations = [CommitOperationAdd(path.name, path.read_bytes()) for path in folder.iterdir()]
    return str(api.create_commit(repo, operations, commit_message="Add").oid)


def entry_with(world: World, folder: Path, repo: str, **changed: Any) -> tuple[Entry, list[Any]]:
    checkpoint = Checkpoint(repo=repo, commit=uploaded(world, folder, repo), seed=0)
    return world.entry("good", checkpoints=(checkpoint,), **changed)


def copied(board: Board, folder: Path) -> Path:
    return Path(shutil.copytree(board.policies[commit_of("good")], folder))


def infinite_logits(board: Board, folder: Path) -> Path:
    weights = load_file(copied(board, folder) / "model.safetensors")
    weights["model.embed_tokens.weight"][-1] = -3e38
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def token_in_template(board: Board, folder: Path) -> Path:
    """The template is in JSON, whose escape shows no token."""
    template = copied(board, folder) / "chat_template.jinja"
    text = json.dumps("{# TOKEN #}" + template.read_text()).replace("TOKEN", ESCAPED)
    template.unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = "HERE"
    (folder / "tokenizer_config.json").write_text(json.dumps(config).replace('"HERE"', text))
    return folder


def test_ten_good_entries_are_listed_among_hostile_ones(
    world: tuple[World, Served], board: Board, tmp_path: Path
) -> None:
    hosted, hub = world
    numbers: dict[str, int] = {}

    def send(account: str, submission: Submission) -> None:
        numbers[account] = sent_by(hosted, hub, account, submission)

    def send_as_it_is(account: str, entry: Entry, episodes: list[Any]) -> None:
        text, replies = (bytes(one) for one in packed(entry, episodes).files.values())  # type: ignore[arg-type]
        numbers[account] = hosted.opened(text.replace(b"TOKEN", ESCAPED.encode()), replies)

    hostile: dict[str, Callable[[Board, Path], Path]] = {
        "infinite": infinite_logits,
        "template": token_in_template,
        "named": copied,
        "closing": copied,
        "raising": copied,
        TOKEN: copied,
    }
    for place, (account, made) in enumerate(hostile.items()):
        for good in (f"good{2 * place}", f"good{2 * place + 1}") if place < 5 else ():
            send(good, packed(*entry_with(hosted, board.policies[commit_of("good")], f"{good}/policy")))
        changed = {"name": "TOKEN"} if account == "named" else {}
        entry, episodes = entry_with(hosted, made(board, tmp_path / account), f"{account}/policy", **changed)
        if account in ("named", TOKEN):
            send_as_it_is(account, entry, episodes)
        else:
            send(account, packed(entry, episodes))

    def play(request: Mapping[str, Any], readable: Sequence[Path], limits: Limits) -> dict[str, Any]:
        place = str(readable)
        if "closing" in place:
            api = connect(hub.url, hub.token(name="closing"))
            api.change_discussion_status(RESULTS, numbers["closing"], "closed", repo_type="dataset")
        if "raising" in place:
            raise AssertionError("whatever it is")
        return playing.answer(request)

    found = {verdict.number: verdict for verdict in hosted.verifier(play=play).rulings()}
    listed = {account for account, number in numbers.items() if found[number].listed}
    assert listed == {account for account in numbers if account.startswith("good")}
    assert len(listed) == 10
    reasons = {account: found[numbers[account]].reason for account in hostile}
    assert "compute neither NaN nor infinity, got ValueError" in reasons["infinite"]
    assert all("must hold no token" in reasons[one] for one in ("template", "named", TOKEN))
    assert "must be open, got one that is closed" in reasons["closing"]
    assert "AssertionError: whatever it is" in reasons["raising"]
    assert list(hosted.verifier().rulings()) == []


def test_what_was_merged_and_cannot_be_published_has_a_reason_and_ends_no_later_start(
    world: tuple[World, Served], board: Board, tmp_path: Path
) -> None:
    hosted, hub = world
    entry, episodes = entry_with(hosted, token_in_template(board, tmp_path / "policy"), "eve/policy")
    merged = packed(entry, episodes)
    hosted.verifier().api.merge_pull_request(RESULTS, sent_by(hosted, hub, "eve", merged), repo_type="dataset")
    # Somebody with the right to write adds what is no entry at all.
    files = {"entries/" + "0" * 32 + ".json": b"[" * 500 + b"]" * 500, "entries/" + "1" * 32 + ".json": b"\xff"}
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    hosted.verifier().api.create_commit(RESULTS, operations, commit_message="Add", repo_type="dataset")
    good = packed(*hosted.entry("good"))
    number = sent_by(hosted, hub, "honest", good)
    finished, listed = hosted.verifier().rulings()
    assert (finished.entry, finished.number) == (merged.id, 0)
    assert "refused when it was verified: a file must hold no token" in finished.reason
    assert (listed.number, listed.listed) == (number, True)
    results = hosted.verifier().results()
    assert {row.id: row.badge for row in results.rows} == {merged.id: SELF_REPORTED, good.id: "verified"}
    assert len(results.problems) == 2
    assert list(hosted.verifier().rulings()) == []


def test_cells_of_others_that_are_gone_hide_no_entry(board: Board, tmp_path: Path) -> None:
    with serving(tmp_path / "hub") as hub:
        client = Hub(endpoint=hub.url, token=hub.token(rights="admin"), cache_dir=tmp_path / "cache")
        (name, *_) = packed(*board.entries["good"]).files.items()
        client.publish({str(name[0]): name[1]}, RESULTS, "dataset")
        results = client.results(dataclasses.replace(board.season, cells="them/gone"))
    assert [row.entry.name for row in results.rows] == ["good"]
    assert "them/gone" in results.problems[0]


def test_the_accounts_take_turns_whoever_sent_how_many(world: tuple[World, Served], board: Board) -> None:
    hosted, hub = world
    entry, episodes = hosted.entry("good")

    def incomplete(account: str, place: int) -> int:
        named = dataclasses.replace(entry, name=f"{account} {place}")
        return sent_by(hosted, hub, account, packed(named, episodes[1:]))

    flood = [incomplete("eve", place) for place in range(3)]
    honest = [incomplete("honest", place) for place in range(2)]
    verifier, late = hosted.verifier(), list[int]()
    order = []
    for verdict in verifier.rulings():
        order.append(verdict.number)
        if not late:  # sent while the first is judged
            late.append(incomplete("late", 0))
    assert order == [flood[0], honest[0], flood[1], honest[1], late[0], flood[2]]


def test_an_account_lists_so_many_entries_on_a_board_and_of_the_same_weights_one_is_ranked(
    board: Board, tmp_path: Path
) -> None:
    (task,) = board.season.tasks
    season = dataclasses.replace(board.season, tasks=(dataclasses.replace(task, each=2),))
    with serving(tmp_path / "hub") as hub:
        hosted = world_on(hub, dataclasses.replace(board, season=season), tmp_path / "cache")
        entry, episodes = hosted.entry("good")

        def judged(account: str, name: str) -> Ruling:
            played = [dataclasses.replace(one, error=name) for one in episodes]
            number = sent_by(hosted, hub, account, packed(dataclasses.replace(entry, name=name), played))
            (verdict,) = hosted.verifier().rulings()
            assert verdict.number == number
            return verdict

        first, again = judged("me", "first"), judged("me", "again")
        assert "is ranked in its place" in again.reason
        results = hosted.verifier().results()
        assert [one.entry for one in results.ranks("relay")] == [again.entry]
        assert results.standing(results.row(str(first.entry))) == f"replaced by {str(again.entry)[:8]}"
        assert "an account may list at most 2 entries on a board" in judged("me", "third").reason
        assert "listed first, of this account; it is not ranked" in judged("eve", "theirs").reason


def test_trouble_of_the_hub_with_one_pull_request_leaves_it_open_and_judges_the_next(
    world: tuple[World, Served], tmp_path: Path
) -> None:
    hosted, hub = world
    entry, episodes = hosted.entry("good")
    numbers = [
        sent_by(hosted, hub, name, packed(dataclasses.replace(entry, name=name), episodes[1:]))
        for name in ("eve", "honest")
    ]
    verifier = hosted.verifier()
    tree = verifier._repo.tree

    def broken(commit: str) -> Any:
        # The Hub has lost what this pull request refers to.
        return tree("0" * 40 if commit == verifier._repo.head(f"refs/pr/{numbers[0]}") else commit)

    verifier._repo.tree = broken  # type: ignore[method-assign]
    left, judged = verifier.rulings()
    assert (left.number, left.listed) == (numbers[0], False)
    assert left.reason.startswith("It stays as it is: ")
    assert hosted.discussion(numbers[0]).status == "open"
    assert "one episode for each" in judged.reason
