"""Cells of the bench as a data set: a row a method in a problem, with the page that says what came out."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from datasets import Features, List, Value

from hf_credit.bench import cells as bench
from hf_credit.bench import guide
from hf_credit.bench.plots import WIDTHS
from hf_credit.hub import cards, safety
from hf_credit.hub.publishing import Published, publish
from hf_credit.hub.tables import fetch_tables, read_description, read_table, write_description, write_table

_STRING, _WHOLE, _NUMBER = Value("string"), Value("int64"), Value("float64")
CELLS = Features(
    {
        **dict.fromkeys(("key", "method", "problem", "dials", "options", "policy", "critic"), _STRING),
        **dict.fromkeys(("seeds", "updates"), _WHOLE),
        "refused": _STRING,
        "instances": _WHOLE,
        **dict.fromkeys(("scale", "angle", "angle_error", "along", "along_error", "trace", "trace_error"), _NUMBER),
        **dict.fromkeys(("credit_error", "tokens", "seconds"), _NUMBER),
        "budget": _WHOLE,
        "step": _NUMBER,
        **dict.fromkeys(("areas", "last"), List(_NUMBER)),
        "tokens_to_90": List(_WHOLE),
    }
)
"""The columns of cells: `hf_credit.bench.cells.Job`, `hf_credit.bench.Score`, and what was learned."""


def publish_cells(folder: str | Path, repo: str, **where: Any) -> Published:
    """Publishes the cells of a folder that `hf-credit bench` filled, with its page and its pictures.

    Args:
        folder: `--output` of the command.
        repo: owner/name.
        **where: as for `publish`: token, endpoint, private, pr, dry_run, tag.

    Raises:
        ValueError: there are no cells; and as for `publish`.
    """
    source = Path(folder)
    bench.take_up(source)
    found = list(bench.read(source / "cells.jsonl").values())
    if not found:
        raise ValueError(
            f"a data set of cells must have some, got none in {str(folder)!r}; run hf-credit bench first."
        )
    pictures = (source / f"{name}{ending}.png" for name in guide.PICTURES for ending in WIDTHS)
    shown = {path.name: path for path in pictures if path.exists()}
    page = source / "index.md"
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        rows = [{one: row.get(one) for one in CELLS} for row in bench.to_rows(found)]
        write_table(place, "cells", "train", rows, CELLS)
        counts = Counter(cell["problem"] for cell in found)
        write_description(place, "cells", {"rows": len(found), "problems": dict(counts)})
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        (place / "README.md").write_text(cards.cells_card(repo, len(found), text), encoding="utf-8")
        files, message = {**safety.files_of(place), **shown}, "Publish cells of the bench"
        return publish(files, repo, repo_type="dataset", message=message, replaces=("cells/",), **where)


def load_cells(
    repo: str, *, revision: str | None = None, token: str | None = None, endpoint: str | None = None
) -> list[dict[str, Any]]:
    """The cells that `publish_cells` published, as `hf_credit.bench.cells.read` gives them.

    Args:
        repo: owner/name.
        revision, token, endpoint: as for `fetch`.

    Raises:
        ValueError: it holds something else; and as for `fetch`.
    """
    fetched = fetch_tables(repo, "cells", revision=revision, token=token, endpoint=endpoint)
    read_description(fetched.folder, "cells", repo)
    return bench.from_rows(list(read_table(fetched.folder, "cells", "train", CELLS)))
