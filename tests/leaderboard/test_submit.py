"""What `hf-credit submit` refuses before anything is published or played."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hf_credit.cli import main
from hf_credit_leaderboard import sources, submission


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["relay"], "an entry needs a checkpoint before the board, got 'relay' alone"),
        (["FOLDER", "relay", "--publish-as", "me/x", "--dry-run"], "a dry run plays what is published, got a folder"),
        (["FOLDER", "relai", "--publish-as", "me/x"], "no board 'relai'"),
    ],
)
def test_nothing_is_published_for_what_cannot_be_submitted(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def board(name: str) -> None:
        if name != "relay":
            raise ValueError(f"there is no board {name!r}; take another.")

    published: list[Any] = []
    monkeypatch.setattr(sources.Hub, "season", lambda *_: (SimpleNamespace(board=board), "0" * 40))
    monkeypatch.setattr(submission, "published", lambda *asked: published.append(asked))
    command = [str(tmp_path) if word == "FOLDER" else word for word in words]
    with pytest.raises(SystemExit) as ended:
        main(["submit", *command, "--benchmark", "me/benchmark"])
    assert ended.value.code == 1
    assert told in capsys.readouterr().err
    assert published == []
