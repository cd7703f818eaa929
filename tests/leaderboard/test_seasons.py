"""Seasons: what is promised, what is secret, and that both fit."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from hf_credit import make
from hf_credit.environments.tasks import split_of, task_seed
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.tasks.rows import evaluation_starts
from hf_credit_leaderboard.inputs import to_json
from hf_credit_leaderboard.seasons import (
    Season,
    SeasonSecret,
    SeasonTask,
    secret_seeds,
    signed_by,
    starts_of,
)

SUDOKU = {"task": "sudoku", "task_options": {"size": 4, "blanks": 4}}
SALT = "00" * 32


def season_of(secret: SeasonSecret, **changed: Any) -> Season:
    fields: dict[str, Any] = {
        "name": "spring",
        "benchmark": "me/benchmark",
        "results": "me/results",
        "tasks": (SeasonTask(name="sudoku", spec=SUDOKU),),
        "salt_sha256": secret.salt_sha256,
        "public_key": secret.public_key,
    }
    return Season(**{**fields, **changed})


def test_secret_seeds_follow_the_formula_and_stay_apart_from_all_splits() -> None:
    wanted = []
    for index in range(200):
        message = json.dumps(["sudoku", index]).encode()
        digest = hmac.new(bytes.fromhex(SALT), message, hashlib.sha256).digest()
        seed = 2**32 + int.from_bytes(digest, "big") % 2**62
        if seed % 2**32 >= 2**31:
            wanted.append(seed)
    found = secret_seeds(SALT, "sudoku", 50)
    assert found == wanted[:50]
    assert min(found) >= 2**32
    assert max(found) < 2**63
    assert {split_of(seed)[0] for seed in found} == {"held_out"}
    assert not set(found) & set(secret_seeds(SALT, "other", 50))
    assert not set(found) & set(secret_seeds("01" * 32, "sudoku", 50))


def test_a_public_seed_names_the_task_that_an_evaluation_plays() -> None:
    from hf_credit.collaborations import make as make_collaboration

    for interaction in (EnvironmentInteraction(make("sudoku", size=4, blanks=4)), make_collaboration("relay", size=5)):
        own = starts_of(interaction, [task_seed("held_out", index) for index in range(3)])
        theirs = evaluation_starts(interaction, 3)
        assert [interaction.start(one.task, one.seed) for one in own] == [
            interaction.start(one.task, one.seed) for one in theirs
        ]


def test_a_season_is_its_json_and_its_secret_is_in_no_word_of_it() -> None:
    secret = SeasonSecret.new()
    season = season_of(secret)
    assert Season.read(to_json(season)) == season
    for hidden in (secret.salt, secret.private_key):
        assert hidden not in to_json(season).decode() + repr(season) + repr(secret)


def test_a_signature_holds_for_what_was_signed_alone() -> None:
    secret = SeasonSecret.new()
    value = {"mean": 0.5, "name": "é"}
    signature = secret.sign(value)
    assert signed_by(secret.public_key, value, signature)
    assert not signed_by(secret.public_key, {**value, "mean": 0.6}, signature)
    assert not signed_by(SeasonSecret.new().public_key, value, signature)
    assert not signed_by(secret.public_key, value, "no signature")


def test_the_secret_is_written_once_for_its_owner_and_belongs_to_its_season(tmp_path: Path) -> None:
    secret = SeasonSecret.new()
    path = secret.save(tmp_path / "secret.json")
    assert path.stat().st_mode & 0o077 == 0
    assert SeasonSecret.read(path.read_bytes(), season_of(secret)) == secret
    with pytest.raises(FileExistsError):
        secret.save(path)
    with pytest.raises(ValueError, match="SHA-256 of a season's salt"):
        SeasonSecret.read(path.read_bytes(), season_of(SeasonSecret.new()))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"salt": "01" * 32, "open": False}, "SHA-256 of a season's salt"),
        ({"salt_sha256": "x"}, "64 hexadecimal digits"),
        ({"name": "spr\u202eing"}, "printable"),
        ({"tasks": (SeasonTask(name="a", spec=SUDOKU),) * 2}, "a name of its own"),
        ({"results": "results"}, "owner/name"),
    ],
)
def test_a_season_that_cannot_be_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        season_of(SeasonSecret.new(), **changed)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("tasks", None, "tasks of a season must be a list, got None"),
        ("tasks", 1.5, "tasks of a season must be a list, got 1.5"),
        ("templates", "0" * 64, "templates of a season must be a list, got '000"),
        ("templates", ["ab"], "a template of a season must be 64 hexadecimal digits"),
        ("salt", ["a"], "salt of a season must be a text"),
        ("open", 1, "open of a season must be true or false"),
        ("salt", "ab", "salt must be 64 hexadecimal digits"),
    ],
)
def test_a_season_of_other_types_is_refused(name: str, value: Any, reason: str) -> None:
    written = json.loads(to_json(season_of(SeasonSecret.new(), open=False)))
    with pytest.raises(ValueError, match=reason):
        Season.read(to_json({**written, name: value}))


def test_a_board_cannot_name_code_of_others() -> None:
    task = SeasonTask(name="mine", spec={"task": "os:system"})
    with pytest.raises(ValueError, match="cannot choose it"):
        task.task().build()


def test_a_season_promises_its_salt_and_shows_it_when_it_is_over() -> None:
    secret = SeasonSecret.new()
    with pytest.raises(ValueError, match="must be over"):
        season_of(secret, salt=secret.salt)
    assert season_of(secret, salt=secret.salt, open=False).salt == secret.salt
