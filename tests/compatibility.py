"""Adds a row to docs/compatibility.md: the versions that a suite has just passed with.

    python tests/compatibility.py RESULTS.xml "the command"

`make` calls it with the Python that ran the suite and the results in JUnit's form.
"""

from __future__ import annotations

import datetime
import platform
import re
import sys
import xml.etree.ElementTree as ElementTree
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"
PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft", "datasets", "huggingface-hub", "openenv", "vllm")


def main(results: Path, command: str) -> None:
    """Replaces the row of a command on this Python, if every test passed.

    Args:
        results: what pytest wrote.
        command: that ran it.

    Raises:
        ValueError: a test failed.
    """
    suites = list(ElementTree.parse(results).getroot().iter("testsuite"))
    counts = {
        name: sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    }
    if counts["failures"] or counts["errors"]:
        raise ValueError(f"a row is for versions that pass, got {counts}; fix the tests.")
    python = ".".join(platform.python_version_tuple()[:2])
    passed = f"{counts['tests'] - counts['skipped']:,} ({counts['skipped']} skipped)"
    cells = [f"`{command}`", python, *map(installed, PACKAGES), passed, datetime.date.today().isoformat()]
    PAGE.write_text(with_row(PAGE.read_text(encoding="utf-8"), cells), encoding="utf-8")


def installed(name: str) -> str:
    """The version of a package, without its build."""
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return ""


def with_row(page: str, cells: list[str]) -> str:
    """The page with a row, in place of that of the same command and Python."""
    row = f"| {' | '.join(cells)} |\n"
    same = re.compile(rf"^\| {re.escape(cells[0])} \| {re.escape(cells[1])} \|.*\n", re.MULTILINE)
    if same.search(page):
        return same.sub(lambda _: row, page)
    end = max(match.end() for match in re.finditer(r"^\|.*\|\n", page, re.MULTILINE))
    return page[:end] + row + page[end:]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
