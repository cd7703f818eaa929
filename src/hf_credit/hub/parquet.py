"""Parquet files from elsewhere, read by a process with limits: a footer or a page can be made to fill a machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hf_credit.hub import parquet_child

MOST_ROWS = 10_000_000
MOST_TABLE_BYTES = 8 * 2**30
"""Of a file, unpacked."""

_MOST_LINE = 64 * 2**20  # characters of a row, as JSON
_MEMORY_BYTES = 4 * 2**30
_SECONDS = 900  # of processor time; twice as many by the clock


def count_rows(files: Mapping[str, Path], most_rows: int = MOST_ROWS, most_bytes: int = MOST_TABLE_BYTES) -> list[int]:
    """How many rows each file has, by its footer alone.

    Args:
        files: by the names that they have in errors.
        most_rows, most_bytes: of each, unpacked.

    Raises:
        ValueError: one is cut short, holds more than may be, or takes more memory or time than it may.
    """
    return _asked(files, most_rows, most_bytes, None, None)


def read_rows(
    files: Mapping[str, Path],
    columns: Mapping[str, str] | None = None,
    *,
    most_bytes: int = MOST_TABLE_BYTES,
    memory_bytes: int = _MEMORY_BYTES,
    seconds: int = _SECONDS,
) -> Iterator[dict[str, Any]]:
    """The rows of all files, in order: plain values by column.

    Args:
        files: by the names that they have in errors.
        columns: that each must have, and no others, with Arrow's name of their types; any if `None`.
        most_bytes: of each, unpacked.
        memory_bytes, seconds: address space and processor time of the process that reads.

    Raises:
        ValueError: as `count_rows`; or other columns, or values that JSON has not.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        _asked(files, MOST_ROWS, most_bytes, columns, out, memory_bytes, seconds)
        with out.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


def _asked(
    files: Mapping[str, Path],
    most_rows: int,
    most_bytes: int,
    columns: Mapping[str, str] | None,
    out: Path | None,
    memory_bytes: int = _MEMORY_BYTES,
    seconds: int = _SECONDS,
) -> list[int]:
    if not files:
        return []
    request = {
        "files": {name: str(path.resolve()) for name, path in files.items()},
        "most_rows": most_rows,
        "most_bytes": most_bytes,
        "most_line": _MOST_LINE,
        "columns": None if columns is None else dict(columns),
        "out": None if out is None else str(out),
        "memory": memory_bytes,
        "seconds": seconds,
    }
    command = [sys.executable, "-I", parquet_child.__file__]
    try:
        done = subprocess.run(
            command, input=json.dumps(request).encode(), capture_output=True, timeout=2 * seconds, env={}, check=False
        )
    except subprocess.TimeoutExpired:
        raise _beyond(files, memory_bytes, seconds) from None
    if done.returncode == parquet_child.REFUSED:
        raise ValueError(done.stderr.decode("utf-8", "replace").strip().splitlines()[-1])
    if done.returncode != 0:
        raise _beyond(files, memory_bytes, seconds)
    return [int(count) for count in json.loads(done.stdout)]


def _beyond(files: Mapping[str, Path], memory_bytes: int, seconds: int) -> ValueError:
    return ValueError(
        f"a table must be read within {memory_bytes} bytes of memory and {seconds} seconds, got more for "
        f"{', '.join(files)[:300]}; split it."
    )
