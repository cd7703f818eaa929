"""A script that reads untrusted parquet files within limits: `python -I parquet_child.py`, with its request on stdin.

It runs in a separate process, without a token in its environment, and needs only pyarrow. It checks footers before it
reads any row. The request is a JSON object (see `answer`).
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

REFUSED = 3
"""The exit code after a refusal, whose sentence is on stderr."""

_BATCH = 64
_MOST_SMALL, _MOST_RATIO = 64 * 2**20, 200  # characters of any table, and for each of its bytes


def answer(request: Mapping[str, Any]) -> None:
    """Checks the footers of files, writes their rows as JSON lines if `out` is a path, and prints the numbers of rows.

    Args:
        request: `files`, paths by name; `most_rows` and `most_bytes` of an unpacked file; `most_line`, characters of a
            row; `columns`, the exact columns as types by name, whose bytes are written in base64, or `None` for any;
            `out`, the path of the rows, or `None`; `memory`, bytes of address space; `seconds` of CPU time.

    Raises:
        ValueError: a file is no whole parquet file, or breaks a limit.
    """
    # pyarrow does without both, and to import them takes half of the time that a small table does.
    sys.modules.update(dict.fromkeys(("numpy", "cloudpickle")))  # type: ignore[arg-type]
    import pyarrow as pa
    from pyarrow import parquet

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    _limit(request["memory"], request["seconds"], request["most_bytes"])
    counts = []
    for name, path in request["files"].items():
        try:
            with parquet.ParquetFile(path) as file:
                counts.append(_checked(file, request))
        except MemoryError:  # pyarrow's is an ArrowException too
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ValueError(f"{name}: {_sentence(error, 'a table must be whole parquet')}") from None
    if request["out"] is not None:
        with open(request["out"], "w", encoding="utf-8") as lines:
            for name, path in request["files"].items():
                try:
                    _write(path, lines, request)
                except MemoryError:
                    raise
                except (pa.ArrowException, OSError, ValueError, TypeError, RecursionError) as error:
                    raise ValueError(f"{name}: {_sentence(error, 'a table must hold plain values')}") from None
    print(json.dumps(counts))


def _checked(file: Any, request: Mapping[str, Any]) -> int:
    footer, most_rows, most_bytes = file.metadata, request["most_rows"], request["most_bytes"]
    rows = int(footer.num_rows)
    if not 0 <= rows <= most_rows:
        raise _RefusedError(f"a table must have at most {most_rows} rows, got {rows}; split it.")
    unpacked = sum(footer.row_group(index).total_byte_size for index in range(footer.num_row_groups))
    if not 0 <= unpacked <= most_bytes:
        raise _RefusedError(f"a table must have at most {most_bytes} bytes unpacked, got {unpacked}; split it.")
    wanted = request["columns"]
    # The element of a list is `item` in Arrow and `element` in parquet.
    present = {field.name: str(field.type).replace("<element:", "<item:") for field in file.schema_arrow}
    if wanted is not None and present != wanted:
        wrong = sorted(name for name in present | wanted if present.get(name) != wanted.get(name))
        shown = ", ".join(f"{name} ({present.get(name, 'missing')})" for name in wrong)[:300]
        raise _RefusedError(f"a table must have its columns with their types and no others, got {shown}; convert it.")
    return rows


def _write(path: str, lines: Any, request: Mapping[str, Any]) -> None:
    from pyarrow import parquet

    # A dictionary and run lengths make any number of rows of a few bytes, whatever the footer says.
    most, plain = request["most_line"], _in_base64 if request["columns"] else None
    left = _MOST_SMALL + _MOST_RATIO * os.path.getsize(path)
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH, use_threads=False):
            for row in batch.to_pylist():
                line = json.dumps(row, default=plain)
                if len(line) > most:
                    raise _RefusedError(f"a row must have at most {most} characters, got {len(line)}; shorten it.")
                left -= len(line)
                if left < 0:
                    raise _RefusedError(
                        f"a table must unpack to at most {_MOST_RATIO} times its size, got more; write it plainly."
                    )
                lines.write(line + "\n")


def _in_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


class _RefusedError(ValueError):
    """A refusal with a sentence of this module."""


def _sentence(error: Exception, rule: str) -> str:
    if isinstance(error, _RefusedError):
        return str(error)
    line = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    return f"{rule}, got {line}; write or download it again."


def _limit(memory: int, seconds: int, most_bytes: int) -> None:
    try:
        import resource
    except ImportError:  # not a Unix
        return
    for name, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 4 * most_bytes),  # rows as JSON
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(name)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (most, most))


if __name__ == "__main__":
    try:
        answer(json.load(sys.stdin))
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(REFUSED)
