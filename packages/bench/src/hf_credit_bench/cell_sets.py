"""Cells of the bench as a dataset: one row per method and problem, with the page of results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Unpack

from datasets import Features, List, Value

from hf_credit.files import OwnFolder, write
from hf_credit.hub.cards import dataset_metadata, rendered
from hf_credit.hub.loading import Where
from hf_credit.hub.publishing import Published, publish
from hf_credit.hub.safety import files_of
from hf_credit.hub.tables import fetch_tables, read_description, read_table, write_description, write_table
from hf_credit_bench import cells as bench
from hf_credit_bench.plots import WIDTHS

_STRING, _WHOLE, _NUMBER = Value("string"), Value("int64"), Value("float64")
CELLS = Features(
    {
        **dict.fromkeys(("key", "method", "problem", "dials", "options", "policy", "critic"), _STRING),
        "oracle_error": _NUMBER,
        "repeats": Value("bool"),
        **dict.fromkeys(("seeds", "updates"), _WHOLE),
        "refused": _STRING,
        "instances": _WHOLE,
        **dict.fromkeys(("scale", "angle", "angle_error", "along", "along_error", "trace", "trace_error"), _NUMBER),
        **dict.fromkeys(("credit_error", "tokens", "seconds"), _NUMBER),
        "budget": _WHOLE,
        "step": _NUMBER,
        "areas": List(_NUMBER),
        "tokens_to_90": List(_WHOLE),
    }
)
"""The columns of cells: `hf_credit_bench.cells.Job`, `hf_credit_bench.Score`, and the learning curves' results."""


def publish_cells(folder: str | Path, repo: str, **where: Any) -> Published:
    """Publishes the cells of a folder that `hf-credit bench` wrote, with its page and its pictures.

    Args:
        folder: the folder of `--output`.
        repo: owner/name.
        **where: as for `publish`: token, endpoint, private, pr, dry_run, tag.

    Raises:
        ValueError: there are no cells; and as for `publish`.
    """
    source = Path(folder)
    cells = list(bench.take_up(source).values())
    if not cells:
        raise ValueError(f"a dataset must have cells, got none in {str(folder)!r}; run hf-credit bench first.")
    paths = (source / f"fields{ending}.png" for ending in WIDTHS)
    pictures = {path.name: path for path in paths if path.exists()}
    page = source / "index.md"
    with OwnFolder() as target:
        rows = [{column: row.get(column) for column in CELLS} for row in bench.to_rows(cells)]
        write_table(target, "cells", "train", rows, CELLS)
        counts = Counter(cell["problem"] for cell in cells)
        write_description(target, "cells", {"rows": len(cells), "problems": dict(counts)})
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        front = dataset_metadata("CreditBench cells", ["credit-assignment"], {"default": ["cells/train"]})
        card = rendered(Path(__file__).with_name("cells.md"), front, repo=repo, rows=len(cells), page=text)
        write(target / "README.md", card)
        files, message = {**files_of(target), **pictures}, "Publish cells of the bench"
        return publish(files, repo, repo_type="dataset", message=message, replaces=("cells/",), **where)


def load_cells(repo: str, **where: Unpack[Where]) -> list[dict[str, Any]]:
    """Loads the cells that `publish_cells` published, as `hf_credit_bench.cells.read` returns them.

    Args:
        repo: owner/name.
        **where: as for `fetch`: revision, token, endpoint.

    Raises:
        ValueError: the dataset is of another kind; and as for `fetch`.
    """
    fetched = fetch_tables(repo, "cells", **where)
    read_description(fetched.folder, "cells", repo)
    return bench.from_rows(list(read_table(fetched.folder, "cells", "train", CELLS)))
