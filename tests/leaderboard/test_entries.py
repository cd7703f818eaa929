"""Entries and their files: what is read of strangers, and what is not."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from hf_credit.rollouts import Decision, Ending, Episode
from hf_credit.tasks import Sampling, TaskSpec
from hf_credit_leaderboard.entries import (
    Checkpoint,
    Entry,
    PlayedEpisode,
    entry_id,
    read_replies,
    replies_file,
    replies_schema,
    same_claim,
)
from hf_credit_leaderboard.inputs import canonical, display_name, strict_json, to_json
from hf_credit_leaderboard.records import Record
from hf_credit_leaderboard.seasons import Season, SeasonSecret


def played(seed: int, replies: tuple[str, ...] = ("1", "2"), **changed: Any) -> PlayedEpisode:
    fields: dict[str, Any] = {
        "checkpoint": 0,
        "seed": seed,
        "ending": "finished",
        "outcome": 1.0,
        "events": ("reasoner", "actor")[: len(replies)],
        "replies": replies,
        "tokens": (2,) * len(replies),
    }
    return PlayedEpisode(**{**fields, **changed})


def test_an_entry_is_its_json_and_its_id_follows_from_both_files(entry_of: Callable[..., Any]) -> None:
    entry = entry_of()
    text = to_json(entry)
    assert Entry.read(text) == entry
    digests = [hashlib.sha256(one).hexdigest() for one in (text, b"replies")]
    assert entry_id(text, digests[1]) == hashlib.sha256("".join(digests).encode()).hexdigest()[:32]
    assert entry_id(text + b" ", digests[1]) != entry_id(text, digests[1])


def test_an_entry_of_before_keeps_its_bytes_and_what_its_sampling_meant(entry_of: Callable[..., Any]) -> None:
    for written, meant in (
        ({}, Sampling(max_new_tokens=4096, temperature=0.6, top_p=0.95, top_k=20)),
        ({"temperature": 1.0}, Sampling(max_new_tokens=4096, temperature=1.0, top_p=0.95, top_k=20)),
        ({"max_new_tokens": 2, "temperature": 1.0, "top_p": 1.0, "top_k": 0}, Sampling(max_new_tokens=2)),
        ({**vars(Sampling()), "min_p": 0.1}, Sampling(min_p=0.1)),
    ):
        text = to_json(entry_of(sampling=written))
        read = Entry.read(text)
        assert to_json(read) == text
        assert read.sampling == written
        assert read.sampled() == meant


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "a\u202eb"}, "printable"),
        ({"name": "e\u0301"}, "normal form C"),
        ({"name": "x" * 81}, "1 to 80 characters"),
        ({"name": "two\nlines"}, "printable"),
        ({"name": "C3\u3164"}, "remove invisible characters"),
        ({"name": "C3\ufe0f"}, "remove invisible characters"),
        ({"name": "C3\U0001d159"}, "remove invisible characters"),
        ({"name": " C3"}, "remove invisible characters and blanks"),
        ({"name": "C3 "}, "remove invisible characters and blanks"),
        ({"name": "C  3"}, "remove invisible characters and blanks"),
        ({"benchmark": "me/benchmark@main"}, "40 hexadecimal digits"),
        ({"checkpoints": ()}, "1 to 64 checkpoints"),
        ({"sampling": {"temperature": -1}}, "temperature"),
        ({"sampling": {"beams": 4}}, "'beams'"),
        ({"sampling": {"repetition_penalty": 1e9}}, "repetition_penalty must be at most 10"),
        ({"sampling": {"min_p": 2}}, "min_p of the sampling of an entry must be in"),
        ({"shown": {"history": "none"}}, "history"),
        ({"shown": {"chat_template_kwargs": {"chat_template": "x"}}}, "could play"),
        ({"shown": {"chat_template_kwargs": {"hint": "{{ solve(board) }}"}}}, "could play"),
        ({"ledger": {"prompt_tokens": 1}}, "ledger"),
        ({"episodes_sha256": "short"}, "64 hexadecimal digits"),
        ({"schema": 1}, "another version"),
    ],
)
def test_an_entry_that_breaks_a_rule_is_refused_in_a_sentence(
    entry_of: Callable[..., Any], changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        entry_of(**changed)


@pytest.mark.parametrize("what", ["seed", "commit"])
def test_checkpoints_of_one_seed_or_one_commit_are_refused(entry_of: Callable[..., Any], what: str) -> None:
    first = Checkpoint(repo="me/a", commit="1" * 40, seed=0)
    second = Checkpoint(repo="me/b", commit="2" * 40, seed=1)
    with pytest.raises(ValueError, match=f"a {what} of its own"):
        entry_of(checkpoints=(first, dataclasses.replace(second, **{what: getattr(first, what)})))


@pytest.mark.parametrize(
    ("repo", "base", "reason"),
    [("../etc", None, "owner/name"), ("me/a", "me/b", "40 hexadecimal"), ("me/a", "me/b@main", "40 hexadecimal")],
)
def test_a_checkpoint_is_pinned(repo: str, base: str | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Checkpoint(repo=repo, commit="1" * 40, seed=0, base=base)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 40 + "]" * 40, "32 deep"),
        ("[" * 100_000, "32 deep|JSON"),
        ('{"a": 1, "a": 2}', "repeated key"),
        ('{"a": Infinity}', "Infinity"),
        ('{"a": 1e999}', "finite"),
        (f'{{"a": {10**301}}}', "300 digits"),
        ('{"a": "\\ud800"}', "surrogate"),
        ("\udcff", "JSON"),
    ],
)
def test_json_beyond_the_limits_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        strict_json(text.encode("utf-8", "surrogateescape"))


def test_what_is_signed_has_one_form() -> None:
    assert canonical({"b": 1, "a": "é"}) == b'{"a":"\\u00e9","b":1}'
    with pytest.raises(ValueError, match=r"not JSON compliant|Out of range"):
        canonical({"a": float("nan")})
    assert display_name("Größe 大") == "Größe 大"


def test_replies_survive_their_file(tmp_path: Path) -> None:
    episodes = [played(5), played(6, ("half \ud800 pair",)), played(7, (), ending="error", outcome=0.0, error="x")]
    whole = [episodes[0], dataclasses.replace(episodes[1], replies=("half ? pair",)), episodes[2]]
    (path := tmp_path / "replies.parquet").write_bytes(replies_file(whole))
    assert [one.seed for one in read_replies(path, 3)] == [5, 6, 7]
    assert read_replies(path, 3)[0] == episodes[0]


def test_half_a_pair_in_a_reply_or_an_error_is_a_mark() -> None:
    decision = Decision(
        role="actor", state=None, context_ids=(1,), action_ids=(2,), logprobs=None, action_text="half \ud800"
    )
    episode = Episode(decisions=(decision,), outcome=1.0, ending=Ending.ERROR, error="bad \udfff")
    found = PlayedEpisode.of(0, 5, episode, TaskSpec.of_name("sudoku").build())
    assert (found.replies, found.error) == (("half \ufffd",), "bad \ufffd")


def test_a_file_of_replies_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "replies.parquet").write_bytes(replies_file([played(1), played(2)]))
    with pytest.raises(ValueError, match="one episode for each checkpoint and public task, 3, got 2"):
        read_replies(path, 3)
    other = tmp_path / "other.parquet"
    parquet.write_table(pa.table({"seed": [1, 2]}), str(other))
    with pytest.raises(ValueError, match="must have its columns"):
        read_replies(other, 2)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="must be whole parquet"):
        read_replies(path, 2)


def test_replies_that_unpack_to_more_than_is_allowed_are_refused_before_they_are_read(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.parquet"
    row = {"checkpoint": 0, "seed": 1, "ending": "finished", "outcome": 1.0, "events": ["e"] * 200, "error": None}
    rows = [{**row, "replies": ["x" * 2**20] * 200, "tokens": [1] * 200}]
    table = pa.Table.from_pylist(rows, schema=replies_schema())
    parquet.write_table(table, str(bomb), compression="zstd", use_dictionary=False)
    assert bomb.stat().st_size < 2**20
    with pytest.raises(ValueError, match="bytes unpacked"):
        read_replies(bomb, 1)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"outcome": float("nan")}, "finite"),
        ({"ending": "won"}, "an ending"),
        ({"tokens": (1,)}, "number of tokens"),
        ({"tokens": (1, -1)}, "negative"),
        ({"replies": ("x" * 2**18, "y")}, "characters"),
    ],
)
def test_an_episode_that_cannot_be_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        played(1, **changed)


def test_json_of_an_entry_with_another_field_is_refused(entry_of: Callable[..., Any]) -> None:
    values = json.loads(to_json(entry_of()))
    for changed in ({**values, "rank": 1}, {name: own for name, own in values.items() if name != "command"}):
        with pytest.raises(ValueError, match="must have the fields"):
            Entry.read(to_json(changed))


def test_a_claim_is_the_same_under_another_name_and_not_with_other_episodes(entry_of: Callable[..., Any]) -> None:
    entry = entry_of()
    assert same_claim(entry) == same_claim(
        dataclasses.replace(entry, name="mine", method={"name": "x", "options": {}})
    )
    assert same_claim(entry) != same_claim(dataclasses.replace(entry, episodes_sha256="1" * 64))


def test_a_record_is_read_where_the_season_signed_it_and_nowhere_else() -> None:
    secret = SeasonSecret.new()
    season = Season(
        name="spring",
        benchmark="me/benchmark",
        results="me/results",
        tasks=(),
        salt_sha256=secret.salt_sha256,
        public_key=secret.public_key,
    )
    record = Record(entry="1" * 32, season="spring", board="relay", badge="verified", secret=((1.0, 0.0),))
    signed = record.signed(secret)
    assert Record.read(signed, season) == record
    for forged in (record.signed(SeasonSecret.new()), signed.replace(b"0.0", b"1.0"), signed.replace(b'"1', b'"2', 1)):
        assert forged != signed
        with pytest.raises(ValueError, match="signed with the key"):
            Record.read(forged, season)
