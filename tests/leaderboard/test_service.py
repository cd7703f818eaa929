"""Submission and verification against a Hub, and what comes of forged entries: each its ruling and its reason."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from huggingface_hub import CommitOperationAdd
from huggingface_hub.hf_api import RepoFile
from pyarrow import parquet
from safetensors.torch import save_file

from hf_credit.hub import retries
from hf_credit.hub.checkpoints import publish_checkpoint
from hf_credit.policies.scripted import walk
from hf_credit_leaderboard import playing
from hf_credit_leaderboard.entries import (
    Checkpoint,
    Entry,
    PlayedEpisode,
    entry_id,
    paths_of,
    replies_schema,
)
from hf_credit_leaderboard.inputs import MOST_BYTES, to_json
from hf_credit_leaderboard.opening import close_season
from hf_credit_leaderboard.records import VERIFIED
from hf_credit_leaderboard.results import read_results
from hf_credit_leaderboard.seasons import SEASON_FILE, starts_of
from hf_credit_leaderboard.service import Ruling, Verifier
from hf_credit_leaderboard.sources import Hub
from hf_credit_leaderboard.submission import Submission, make_submission, packed
from hf_credit_leaderboard.weights import parameters
from local_hub.running import Served, serving

from .conftest import BENCHMARK, RESULTS, Board, commit_of


@dataclass(frozen=True, kw_only=True)
class World:
    hub: Hub
    board: Board
    commits: dict[str, str]
    benchmark: str

    def verifier(self, **options: Any) -> Verifier:
        """One that plays in this process: that of its own is tested once, in `test_verification.py`."""
        answered = {"play": lambda request, readable, limits: playing.answer(request)}
        return Verifier(self.hub, BENCHMARK, self.board.secret, **{**answered, **options})

    def entry(self, policy: str, **changed: Any) -> tuple[Entry, list[Any]]:
        """The entry of a policy, pinned to what is published."""
        entry, episodes = self.board.entries[policy]
        checkpoint = Checkpoint(repo=f"me/{policy}", commit=self.commits[policy], seed=0)
        fields = {"benchmark": f"{BENCHMARK}@{self.benchmark}", "checkpoints": (checkpoint,), **changed}
        return dataclasses.replace(entry, **fields), list(episodes)

    def send(self, submission: Submission) -> int:
        """Opens a pull request and gives its number."""
        made = submission.send(self.hub, RESULTS)
        assert made.pull_request is not None
        return int(made.pull_request.rpartition("/")[2])

    def sent(self, entry: Entry, episodes: list[Any]) -> Ruling:
        return self.verifier().handle(self.send(packed(entry, episodes)))

    def opened(self, text: bytes, replies: bytes, name: str | None = None) -> int:
        """The number of a pull request with two files as they are."""
        name = name or entry_id(text, hashlib.sha256(replies).hexdigest())
        info = self.verifier().api.create_commit(
            RESULTS,
            [CommitOperationAdd(*pair) for pair in zip(paths_of(name), (text, replies), strict=True)],
            commit_message="Enter",
            repo_type="dataset",
            create_pr=True,
        )
        return int(str(info.pr_num))

    def discussion(self, number: int) -> Any:
        return self.verifier().api.get_discussion_details(RESULTS, number, repo_type="dataset")


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A run that was submitted, sent in once more, and judged."""

    submission: Submission
    numbers: tuple[int, int]
    verdicts: list[Ruling]


def publish_run(hub: Hub, folder: Path, repo: str) -> str:
    """The commit of a policy without the state of its trainer."""
    done = publish_checkpoint(folder, repo, resumable=False, endpoint=hub.endpoint, token=hub.token)
    assert done.commit is not None
    return done.commit


def world_on(hub: Served, board: Board, cache: Path) -> World:
    """A benchmark, results and policies on a Hub."""
    client = Hub(endpoint=hub.url, token=hub.token(rights="admin"), cache_dir=cache)
    made = client.publish({SEASON_FILE: to_json(board.season)}, BENCHMARK, "dataset")
    client.publish({"README.md": b"# Results\n"}, RESULTS, "dataset")
    commits = {
        name: publish_run(client, board.policies[commit_of(name)], f"me/{name}")
        for name in ("good", "other", "poor", "copy")
    }
    assert made.commit is not None
    return World(hub=client, board=board, commits=commits, benchmark=made.commit)


@pytest.fixture(scope="module")
def world(hub: Served, board: Board, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A season that stays open, for all tests here; each finds what others have sent."""
    return world_on(hub, board, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def well_taught(world: World) -> Sent:
    """The run of the good policy."""
    submission = make_submission(world.hub, BENCHMARK, "relay", ["me/good"], name="well taught", device="cpu")
    number = world.send(submission)
    second = world.opened(*(bytes(content) for content in submission.files.values()))  # type: ignore[arg-type]
    return Sent(submission=submission, numbers=(number, second), verdicts=list(world.verifier().rulings()))


def test_a_run_is_submitted_verified_and_listed_with_a_signed_record(world: World, well_taught: Sent) -> None:
    submission, (number, second) = well_taught.submission, well_taught.numbers
    ruling, again = well_taught.verdicts
    assert (ruling.number, ruling.entry, ruling.listed) == (number, submission.id, True)
    folder = world.hub.get(RESULTS, "dataset").folder
    row = read_results(folder, world.board.season).row(submission.id)
    assert (row.badge, row.entry.name) == (VERIFIED, "well taught")
    assert row.record is not None
    assert row.record.public["claimed"] == row.record.public["found"] == submission.score
    assert len(row.record.secret[0]) == 24
    assert world.discussion(number).status == "closed"
    assert "Listed: `verified`" in str([vars(event) for event in world.discussion(number).events])
    assert (again.number, again.listed) == (second, False)
    assert "listed twice" in again.reason
    assert list(world.verifier().rulings()) == []


def test_the_same_results_under_another_name_are_refused(world: World, well_taught: Sent) -> None:
    entry = world.verifier().results().row(well_taught.submission.id).entry
    _, episodes = world.entry("good")
    ruling = world.sent(dataclasses.replace(entry, name="mine"), episodes)
    assert not ruling.listed
    assert "under another name" in ruling.reason


def test_a_checkpoint_copied_by_another_account_is_linked_to_the_first(world: World, well_taught: Sent) -> None:
    entry, episodes = world.entry("good", name="a copy")
    commit = publish_run(world.hub, world.board.policies[commit_of("copy")], "you/copy")
    copied = dataclasses.replace(entry, checkpoints=(Checkpoint(repo="you/copy", commit=commit, seed=3),))
    ruling = world.sent(copied, episodes)
    assert ruling.listed
    assert "listed first" in ruling.reason
    results = world.verifier().results()
    copies = [row for row in results.rows if row.record and row.record.copy_of]
    assert [row.entry.name for row in copies] == ["a copy"]
    assert copies[0].record is not None
    assert copies[0].record.copy_of == well_taught.submission.id
    ranked = [one.entry for one in results.ranks("relay")]
    assert (well_taught.submission.id in ranked, copies[0].id in ranked) == (True, False)


def test_an_entry_with_one_more_seed_of_ones_own_takes_the_rank_of_the_earlier_one(
    world: World, well_taught: Sent
) -> None:
    checkpoints = tuple(
        Checkpoint(repo=f"me/{name}", commit=world.commits[name], seed=seed)
        for seed, name in enumerate(("good", "poor"))
    )
    entry, _ = world.entry("good", name="two seeds", checkpoints=checkpoints)
    played = [
        dataclasses.replace(one, checkpoint=place)
        for place, name in enumerate(("good", "poor"))
        for one in world.entry(name)[1]
    ]
    submission = packed(entry, played)
    ruling = world.verifier().handle(world.send(submission))
    assert f"same account's entry {well_taught.submission.id}, and is ranked in its place" in ruling.reason
    ranked = {one.entry for one in world.verifier().results().ranks("relay")}
    assert (submission.id in ranked, well_taught.submission.id in ranked) == (True, False)


def refused(world: World, entry: Entry, episodes: list[Any], reason: str) -> None:
    closed(world, world.send(packed(entry, episodes)), reason)


def closed(world: World, number: int, reason: str) -> None:
    """A pull request is closed, lists nothing, and says why."""
    ruling = world.verifier().handle(number)
    assert not ruling.listed
    assert reason in ruling.reason
    found = world.discussion(number)
    assert found.status == "closed"
    assert any(reason in getattr(event, "content", "") for event in found.events)


def test_a_checkpoint_that_only_the_verifier_can_read_is_refused(world: World) -> None:
    commit = publish_run(world.hub, world.board.policies[commit_of("good")], "me/hidden")
    world.verifier().api.update_repo_settings("me/hidden", private=True)
    checkpoint = Checkpoint(repo="me/hidden", commit=commit, seed=0)
    refused(
        world,
        *world.entry("good", checkpoints=(checkpoint,)),
        "that the entry names and be public, got me/hidden@",
    )


def test_edited_outcomes_are_refused(world: World) -> None:
    entry, episodes = world.entry("poor")
    worse = next(place for place, one in enumerate(episodes) if one.outcome == 0)
    episodes[worse] = dataclasses.replace(episodes[worse], outcome=1.0)
    refused(world, entry, episodes, "its outcome as 1.0")


def test_what_is_pushed_during_a_check_never_lands(world: World) -> None:
    submission = packed(*world.entry("poor", name="pushed to"))
    number, api = world.send(submission), world.verifier().api
    others = api.list_repo_tree(RESULTS, repo_type="dataset", recursive=True)
    before = {one.path: one.blob_id for one in others if isinstance(one, RepoFile)}

    def push_and_play(request: Any, readable: Any, limits: Any) -> dict[str, Any]:
        pushed = {paths_of(submission.id)[0]: b"{}", "README.md": b"# Mine\n", "records/x.json": b"{}"}
        operations = [CommitOperationAdd(path, content) for path, content in pushed.items()]
        where: dict[str, Any] = {"repo_type": "dataset", "revision": f"refs/pr/{number}"}
        api.create_commit(RESULTS, operations, commit_message="Change", **where)
        return playing.answer(request)

    assert world.verifier(play=push_and_play).handle(number).listed
    files = world.hub.get(RESULTS, "dataset", checked=False).files
    assert files.keys() - before.keys() == {*submission.files, f"records/{submission.id}.json"}
    assert [files[name].read_bytes() for name in submission.files] == list(submission.files.values())
    assert files["README.md"].read_bytes() == b"# Results\n"
    assert world.discussion(number).status == "closed"


def test_an_oracles_replies_under_a_policys_name_are_refused(world: World) -> None:
    entry, _ = world.entry("poor")
    interaction = entry.task(world.board.season).build()
    player = interaction.scripted_player(1.0)
    assert player is not None
    told = []
    for start in starts_of(interaction, world.board.season.board("relay").public_seeds()):
        steps, final = walk(interaction, player, start)
        replies = tuple(reply for _, _, own in steps for reply in own)
        told.append(
            PlayedEpisode(
                checkpoint=0,
                seed=start.seed,
                ending=str(interaction.ending(final)),
                outcome=float(interaction.outcome(final)),
                events=tuple(request.event for _, requests, _ in steps for request in requests),
                replies=replies,
                tokens=(2,) * len(replies),
            )
        )
    assert {one.outcome for one in told} == {1.0}
    refused(world, entry, told, "must survive being played again, got 1.000 claimed")


def test_tasks_of_training_are_refused(world: World) -> None:
    entry, episodes = world.entry("good")
    refused(world, entry, [dataclasses.replace(episodes[0], seed=5), *episodes[1:]], "a training task")


def test_a_missing_seed_is_refused(world: World) -> None:
    entry, episodes = world.entry("good")
    refused(world, entry, episodes[1:], "one episode for each checkpoint and public task, 24, got 23")


def test_a_repeated_seed_is_refused(world: World) -> None:
    entry, episodes = world.entry("good")
    refused(world, entry, [episodes[1], *episodes[1:]], "played once")


def test_a_moved_commit_is_refused(world: World) -> None:
    entry, episodes = world.entry("other")
    gone = dataclasses.replace(entry, checkpoints=(Checkpoint(repo="me/other", commit="b" * 40, seed=0),))
    refused(world, gone, episodes, "must exist at the commit")


def test_another_benchmarks_commit_is_refused(world: World) -> None:
    entry, episodes = world.entry("other")
    moved = dataclasses.replace(entry, benchmark=f"{BENCHMARK}@{'c' * 40}")
    refused(world, moved, episodes, "pinned to a commit that holds the season")


def test_another_season_is_refused(world: World) -> None:
    entry, episodes = world.entry("other")
    refused(world, dataclasses.replace(entry, season="winter"), episodes, "must be of the season 'spring'")


def test_a_file_beside_the_entry_is_refused(world: World) -> None:
    submission = packed(*world.entry("other"))
    files = {**submission.files, "records/x.json": b"{}"}
    made = world.hub.publish(files, RESULTS, "dataset", pr=True)
    closed(world, int(str(made.pull_request).rpartition("/")[2]), "change nothing else")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[" * 5000 + b"]" * 5000, "deep at most"),
        (b" " * (MOST_BYTES + 1), "at most"),
        (b'{"schema": 1, "schema": 1}', "repeated key"),
        (b'{"schema": NaN}', "NaN"),
        (b'{"schema": 99}', "another version"),
    ],
)
def test_bombs_in_an_entry_are_refused(world: World, text: bytes, reason: str) -> None:
    replies = packed(*world.entry("other")).files
    parquet = next(bytes(content) for name, content in replies.items() if name.startswith("episodes"))  # type: ignore[arg-type]
    closed(world, world.opened(text, parquet), reason)


def test_bombs_in_the_replies_are_refused(world: World) -> None:
    entry, episodes = world.entry("other")
    for replies, reason in (
        (b"PAR1nothingPAR1", "parquet"),
        (b"", "parquet"),
        (unpacks_to_gigabytes(len(episodes)), "seconds, got more for the file of replies"),
    ):
        named = dataclasses.replace(entry, episodes_sha256=hashlib.sha256(replies).hexdigest())
        closed(world, world.opened(to_json(named), replies), reason)


def unpacks_to_gigabytes(rows: int) -> bytes:
    """A small file of so many episodes, whose replies are one text of a megabyte over and over, written once: what
    the file says of its size is the truth about its pages, and not about what is read out of them."""
    each = 256
    every = rows * each
    text = pa.DictionaryArray.from_arrays(pa.array([0] * every, pa.int32()), pa.array(["x" * 2**20]))
    offsets = pa.array(range(0, every + 1, each), pa.int32())
    texts = {name: pa.ListArray.from_arrays(offsets, text) for name in ("events", "replies")}
    columns = {
        "checkpoint": pa.array([0] * rows, pa.int32()),
        "seed": pa.array(range(rows), pa.int64()),
        "ending": pa.array(["finished"] * rows),
        "outcome": pa.array([1.0] * rows),
        **texts,
        "tokens": pa.ListArray.from_arrays(offsets, pa.array([1] * every, pa.int32())),
        "error": pa.array([None] * rows, pa.string()),
    }
    wanted = replies_schema()
    fields = [
        pa.field(one.name, columns[one.name].type, nullable=one.nullable) if one.name in texts else one
        for one in wanted
    ]
    made = pa.Table.from_arrays([columns[one.name] for one in wanted], schema=pa.schema(fields))
    out = pa.BufferOutputStream()
    # The schema of Arrow is left out, or the column would be read as the dictionary that it was written of.
    parquet.write_table(made, out, store_schema=False, use_compliant_nested_type=False, compression="zstd")
    content = out.getvalue().to_pybytes()
    assert len(content) < 2**18
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model.safetensors", (2**40).to_bytes(8, "little") + b"{}", "header"),
        ("model.safetensors", b"\x02", "header"),
        ("config.json", b"[" * 5000 + b"]" * 5000, "nested"),
        ("config.json", b'{"auto_map": {"AutoModel": "code.Model"}}', "run no code"),
        ("tokenizer.json", b" " * (2**26 + 1), "at most 67108864 bytes"),
    ],
)
def test_bombs_in_a_checkpoint_are_refused(world: World, name: str, content: bytes, reason: str) -> None:
    entry, episodes = world.entry("other")
    repo = f"them/{hashlib.sha256(name.encode() + content).hexdigest()[:12]}"
    api = world.verifier().api
    api.create_repo(repo)
    folder = world.board.policies[commit_of("other")]
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".json", ".safetensors")}
    operations = [CommitOperationAdd(path, own) for path, own in {**files, name: content}.items()]
    commit = str(api.create_commit(repo, operations, commit_message="Add").oid)
    bad = dataclasses.replace(entry, checkpoints=(Checkpoint(repo=repo, commit=commit, seed=0),))
    refused(world, bad, episodes, reason)


def test_an_entry_under_another_digest_is_refused(world: World) -> None:
    files = [bytes(content) for content in packed(*world.entry("other")).files.values()]  # type: ignore[arg-type]
    closed(world, world.opened(files[0], files[1], name="f" * 32), "must be the digest")


def test_a_job_has_the_secret_in_a_variable(
    world: World, hub: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hf_credit.cli import main

    verify = ["leaderboard", "verify", BENCHMARK, "--endpoint", hub.url]
    monkeypatch.delenv("HF_CREDIT_SEASON_SECRET", raising=False)
    monkeypatch.setenv("HF_TOKEN", str(world.hub.token))
    with pytest.raises(SystemExit):
        main(verify)
    assert "set HF_CREDIT_SEASON_SECRET" in capsys.readouterr().err
    entry, episodes = world.entry("good")
    submission = packed(entry, episodes[1:])
    number = world.send(submission)
    monkeypatch.setenv("HF_CREDIT_SEASON_SECRET", json.dumps(dataclasses.asdict(world.board.secret)))
    with contextlib.suppress(SystemExit):
        main(verify)
    assert f"pull request {number}, entry {submission.id}: rejected" in capsys.readouterr().out


def test_a_verifier_that_was_killed_before_its_record_takes_it_up_once(world: World) -> None:
    submission = packed(*world.entry("other", name="taken up"))
    number = world.send(submission)
    world.verifier().api.merge_pull_request(RESULTS, number, repo_type="dataset")
    (ruling,) = world.verifier().rulings()
    assert (ruling.number, ruling.entry) == (0, submission.id)
    assert world.verifier().results().row(submission.id).badge == VERIFIED
    assert list(world.verifier().rulings()) == []


def test_a_season_that_is_over_takes_no_entry_and_shows_its_salt(board: Board, tmp_path: Path) -> None:
    with serving(tmp_path / "hub") as hub:
        world = world_on(hub, board, tmp_path / "cache")
        over = close_season(world.hub, BENCHMARK, world.board.secret)
        season, commit = world.hub.season(BENCHMARK)
        assert season == over
        assert (season.open, season.salt) == (False, world.board.secret.salt)
        entry, episodes = world.entry("poor", benchmark=f"{BENCHMARK}@{commit}")
        refused(world, entry, episodes, "which is over")


def test_a_season_that_is_closed_during_a_round_takes_no_entry_of_it(board: Board, tmp_path: Path) -> None:
    with serving(tmp_path / "hub") as hub:
        world = world_on(hub, board, tmp_path / "cache")
        number, verifier = world.send(packed(*world.entry("good"))), world.verifier()
        close_season(world.hub, BENCHMARK, world.board.secret)
        ruling = verifier.handle(number)
        assert ruling.reason == "a season must be open, got 'spring', which is over; submit to the next one."
        assert (ruling.listed, world.discussion(number).status) == (False, "closed")


def test_an_entry_ranks_once_its_chat_template_was_read_and_accepted(
    world: World,
    hub: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hf_credit.cli import main

    folder = Path(shutil.copytree(world.board.policies[commit_of("poor")], tmp_path / "policy"))
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text() + "{# and more \u202e #}")
    save_file({"exp_avg": torch.zeros(7)}, folder / "trainer_state-0.safetensors")
    commit = publish_run(world.hub, folder, "me/strange")
    entry, episodes = world.entry("poor", checkpoints=(Checkpoint(repo="me/strange", commit=commit, seed=8),))
    submission = packed(entry, episodes)
    assert world.verifier().handle(world.send(submission)).listed

    def ranked() -> bool:
        return submission.id in {one.entry for one in world.verifier().results().ranks("relay")}

    def run(*options: str) -> str:
        with contextlib.suppress(SystemExit):
            main(["leaderboard", "template", BENCHMARK, submission.id, "--endpoint", hub.url, *options])
        return capsys.readouterr().out

    monkeypatch.setenv("HF_TOKEN", str(world.hub.token))
    assert not ranked()
    assert r"{# and more \u202e #}" in run()
    assert not ranked()
    assert "Accepted" in run("--accept")
    assert not ranked()  # until it is played again: no outcome on a secret task was published
    assert [(one.entry, one.listed) for one in world.verifier().rulings()] == [(submission.id, True)]
    assert ranked()
    assert not [*world.verifier().rulings()]
    (row,) = (one for one in world.verifier().results().rows if one.id == submission.id)
    assert row.record is not None
    assert row.record.parameters == parameters(world.board.policies[commit_of("poor")])  # without its training's state
    assert "knows every chat template" in run()


def test_a_verifier_that_watches_waits_while_the_hub_is_away(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hf_credit.cli import main

    with contextlib.ExitStack() as up:
        served = up.enter_context(serving(tmp_path / "hub"))
        world = world_on(served, board, tmp_path / "cache")
        port = int(served.url.rpartition(":")[2])
        entry, episodes = world.entry("good")
        world.send(packed(entry, episodes[1:]))
        waits = 0

        def pause(seconds: float) -> None:
            nonlocal waits
            if seconds != 77:  # between two attempts of one request
                return
            waits += 1
            if waits == 1:
                up.close()
            elif waits == 2:
                up.enter_context(serving(tmp_path / "hub", port))
                world.send(packed(entry, episodes[2:]))
            else:
                raise KeyboardInterrupt

        monkeypatch.setattr(retries, "pause", pause)
        monkeypatch.setenv("HF_TOKEN", str(world.hub.token))
        monkeypatch.setenv("HF_CREDIT_SEASON_SECRET", json.dumps(dataclasses.asdict(board.secret)))
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            main(["leaderboard", "verify", BENCHMARK, "--endpoint", served.url, "--watch", "--every", "77"])
    told = capsys.readouterr()
    assert "checks again in 77 seconds" in told.err
    assert [line.partition(",")[0] for line in told.out.splitlines()] == ["pull request 1", "pull request 2"]


def test_a_verifier_that_watches_tells_once_a_round_of_a_season_that_it_cannot_read_and_shows_no_control_characters(
    world: World, hub: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hf_credit.cli import main

    rounds = 0

    def pause(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            raise KeyboardInterrupt

    def rulings(self: Verifier) -> Iterator[Ruling]:
        if rounds < 2:
            raise ValueError("a repository must have at most 10000 files, got more.")
        yield Ruling(number=1, entry=None, listed=False, reason="got '\x1b[2J\u202e'")

    monkeypatch.setattr(Verifier, "rulings", rulings)
    monkeypatch.setattr(retries, "pause", pause)
    monkeypatch.setenv("HF_TOKEN", str(world.hub.token))
    monkeypatch.setenv("HF_CREDIT_SEASON_SECRET", json.dumps(dataclasses.asdict(world.board.secret)))
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        main(["leaderboard", "verify", BENCHMARK, "--endpoint", hub.url, "--watch", "--every", "77"])
    told = capsys.readouterr()
    assert told.err.count("10000 files, got more. The verifier checks again in 77 seconds.") == 2
    assert told.out == "pull request 1, entry None: rejected. got '\\x1b[2J\\u202e'\n"
