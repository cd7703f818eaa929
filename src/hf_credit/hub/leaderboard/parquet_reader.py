"""A script that reads a stranger's file of replies within limits: `python -I parquet_reader.py FILE OUT ROWS`.

It runs in a process of its own, without a token in its environment, and needs nothing but pyarrow. What the file says
of itself is checked before anything is read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

MOST_PLAIN_BYTES = 192 * 2**20
"""Of all columns, unpacked."""

SECONDS = 60
REFUSED = 3
"""The exit code beside a sentence on stderr."""

BEYOND = 4

_MEMORY_BYTES = 2 * 2**30


def schema() -> Any:
    """The columns of a file of replies."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("checkpoint", pa.int32(), nullable=False),
            pa.field("seed", pa.int64(), nullable=False),
            pa.field("ending", pa.string(), nullable=False),
            pa.field("outcome", pa.float64(), nullable=False),
            pa.field("events", pa.list_(pa.string()), nullable=False),
            pa.field("replies", pa.list_(pa.string()), nullable=False),
            pa.field("tokens", pa.list_(pa.int32()), nullable=False),
            pa.field("error", pa.string()),
        ]
    )


def read(path: str, out: str, rows: int) -> None:
    """Writes the episodes of a file as JSON, one a line.

    Args:
        path: of the parquet file.
        out: to write.
        rows: how many episodes it must hold, exactly.

    Raises:
        ValueError: it is something else.
    """
    import pyarrow as pa
    from pyarrow import parquet

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    _limit()
    file = parquet.ParquetFile(path)
    _check_metadata(file, rows)
    with open(out, "w", encoding="utf-8") as lines:
        for batch in file.iter_batches(batch_size=64, use_threads=False):
            for row in batch.to_pylist():
                if any(value is None for name in ("events", "replies", "tokens") for value in row[name]):
                    raise ValueError(
                        "an episode must have no missing reply, event or count, got one; record it again."
                    )
                lines.write(json.dumps(row) + "\n")


def _check_metadata(file: Any, rows: int) -> None:
    metadata = file.metadata
    if metadata.num_rows != rows:
        raise ValueError(
            f"the file of replies must have one episode for each checkpoint and public task, {rows}, got "
            f"{metadata.num_rows}; play every task once."
        )
    if not file.schema_arrow.equals(schema()):
        raise ValueError(
            f"the file of replies must have the columns {', '.join(schema().names)} with their types, got "
            f"{', '.join(file.schema_arrow.names)[:200]!r}; write it with hf-credit submit."
        )
    plain = sum(metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups))
    if plain > MOST_PLAIN_BYTES or metadata.num_row_groups > rows:
        raise ValueError(
            f"the file of replies must have at most {MOST_PLAIN_BYTES} bytes unpacked, got {plain}; shorten replies."
        )


def _limit() -> None:
    import resource

    for name, value in (
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_FSIZE, 4 * MOST_PLAIN_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(name)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (most, most))


def main(arguments: Sequence[str]) -> int:
    """Reads; what is wrong with the file ends in a sentence on stderr and the exit code `REFUSED`, and one that takes
    more memory than there may be in `BEYOND`."""
    path, out, rows = arguments
    import pyarrow as pa

    try:
        read(path, out, int(rows))
    except MemoryError:  # Arrow's own is one, too
        return BEYOND
    except (ValueError, TypeError, KeyError, OSError, pa.ArrowException) as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        if isinstance(error, pa.ArrowException) or not isinstance(error, ValueError):
            line = f"the file of replies must be parquet that can be read, got {line[:200]}; write it again."
        print(line, file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
