"""Reads untrusted parquet files in a process with limits, since a footer or a page can exhaust a machine."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hf_credit import parquet_child
from hf_credit.files import OwnFolder

MOST_ROWS = 10_000_000
MOST_TABLE_BYTES = 8 * 2**30
"""The maximum size of an unpacked file."""

_MOST_LINE = 64 * 2**20  # characters of a row, as JSON
_MEMORY_BYTES = 4 * 2**30
_SECONDS = 900  # of CPU time; twice as many of wall-clock time


def count_rows(files: Mapping[str, Path], most_rows: int = MOST_ROWS, most_bytes: int = MOST_TABLE_BYTES) -> list[int]:
    """Returns the number of rows of each file, from its footer.

    Args:
        files: the files, by the names in errors.
        most_rows, most_bytes: the limits of each unpacked file.

    Raises:
        ValueError: a file is truncated or too large, or reading it exceeds the limits of memory or time.
    """
    return _read(files, most_rows=most_rows, most_bytes=most_bytes)


def read_rows(
    files: Mapping[str, Path],
    columns: Mapping[str, str] | None = None,
    *,
    most_bytes: int = MOST_TABLE_BYTES,
    memory_bytes: int = _MEMORY_BYTES,
    seconds: int = _SECONDS,
) -> Iterator[dict[str, Any]]:
    """Yields the rows of all files in order, as plain values by column.

    Args:
        files: the files, by the names in errors.
        columns: the exact columns of each file with Arrow's names of their types, whose bytes become base64; any if
            `None`, without bytes.
        most_bytes: the limit of each unpacked file.
        memory_bytes, seconds: the limits of address space and CPU time of the process that reads.

    Raises:
        ValueError: as for `count_rows`; or a file has other columns, or values that JSON lacks.
    """
    with OwnFolder() as folder:
        out = folder / "rows.jsonl"
        wanted = None if columns is None else dict(columns)
        _read(files, most_bytes=most_bytes, columns=wanted, out=str(out), memory=memory_bytes, seconds=seconds)
        with out.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


def _read(files: Mapping[str, Path], **own: Any) -> list[int]:
    if not files:
        return []
    paths = {name: str(path.resolve()) for name, path in files.items()}
    limits = {"most_rows": MOST_ROWS, "most_line": _MOST_LINE, "memory": _MEMORY_BYTES, "seconds": _SECONDS}
    request: dict[str, Any] = {"files": paths, "columns": None, "out": None, **limits, **own}
    seconds = request["seconds"]
    command = [sys.executable, "-I", parquet_child.__file__]
    process = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        process = subprocess.run(
            command, input=json.dumps(request).encode(), capture_output=True, timeout=2 * seconds, env={}, check=False
        )
    if process is not None and process.returncode == parquet_child.REFUSED:
        raise ValueError(process.stderr.decode("utf-8", "replace").strip().splitlines()[-1])
    if process is None or process.returncode != 0:
        raise ValueError(
            f"a table must be read within {request['memory']} bytes of memory and {seconds} seconds, got more for "
            f"{', '.join(files)[:300]}; split it."
        )
    return [int(count) for count in json.loads(process.stdout)]
