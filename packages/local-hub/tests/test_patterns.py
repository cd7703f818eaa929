"""Patterns of .gitignore match as in git, and quickly."""

from __future__ import annotations

import pytest

from local_hub.commits import is_ignored, matches, refuse_too_much
from local_hub.errors import HubError


@pytest.mark.parametrize(
    ("pattern", "named", "others"),
    [
        ("*.log", ["x.log", "in/x.log", "x.log/in"], ["x.txt", "x.log2"]),
        ("/*.log", ["x.log"], ["in/x.log"]),
        ("in/*.log", ["in/x.log"], ["x.log", "deep/in/x.log", "in/er/x.log"]),
        ("out/", ["out/x", "in/out/x"], ["out", "in/out"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b/c"], ["a/x", "b"]),
        ("**/b", ["b", "a/b", "a/c/b"], ["bb"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b/a/c"]),
        ("saved/**/*", ["saved/x", "saved/in/x"], ["saved"]),
        ("x?[a-c]", ["x1a"], ["x1d", "xa"]),
        ("[!a]", ["b"], ["a"]),
        ("[^a]", ["b"], ["a"]),
        (r"\*", ["*"], ["a"]),
        (r"\#", ["#"], [r"\#"]),
        ("[", ["["], ["a"]),
        ("*a" * 30 + "b", ["a" * 30 + "b"], ["a" * 250]),  # a backtracking matcher never ends
        ("**/a/" * 30 + "b", ["a/" * 30 + "b"], ["a/" * 60 + "c"]),
    ],
)
def test_a_pattern_matches_as_in_git(pattern: str, named: list[str], others: list[str]) -> None:
    assert [path for path in named if not matches(pattern, path)] == []
    assert [path for path in others if matches(pattern, path)] == []


def test_the_last_line_that_matches_counts() -> None:
    lines = ["# all", "", "*.log", "!kept.log", "/"]
    assert [path for path in ("a.log", "kept.log", "# all", "a") if is_ignored(lines, path)] == ["a.log"]


def test_more_patterns_for_more_paths_than_a_second_allows_are_refused() -> None:
    refuse_too_much(["*.bin"] * 100, ["a/b"] * 256)
    with pytest.raises(HubError, match=r"patterns times paths must be at most .* send fewer files"):
        refuse_too_much(["*"] * 20_000, ["a"] * 1000)
