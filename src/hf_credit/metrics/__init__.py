"""Metrics: diagnostics as modules of `evaluate`, which run without this library once they are built."""

from __future__ import annotations

import re
from pathlib import Path

from hf_credit.files import copy, filled, write
from hf_credit.metrics.standalone import standalone
from hf_credit.registry import did_you_mean

_SPACES = Path(__file__).parent / "spaces"
FILES = ("README.md", "requirements.txt")
"""The files of every metric besides its `<name>.py`."""

PAGE = _SPACES / "app.py"
"""The page that runs a metric, shared by all metrics."""

METRICS = {path.parent.name: path.parent for path in sorted(_SPACES.glob("*/README.md"))}
"""The folders with the sources of the library's metrics, by name."""


def find(name: str) -> Path:
    """Returns the folder of a metric's sources, without the files that `build` adds.

    Raises:
        ValueError: there is no such metric.
    """
    if name not in METRICS:
        remedy = did_you_mean(name, METRICS) or "name one that `hf-credit metrics` lists."
        raise ValueError(f"a metric must be a folder, owner/name or one of hf-credit's own, got {name!r}; {remedy}")
    return METRICS[name]


def build(name: str, folder: str | Path) -> Path:
    """Writes a metric as a Space: its card, its requirements, the page, and its `module`.

    The bytes depend only on the version of the library.

    Args:
        name: one of `METRICS`.
        folder: the parent of the metric's folder, which is called `name`.

    Returns:
        The metric's folder, which `evaluate.load` takes.

    Raises:
        ValueError: there is no such metric, or its folder exists.
    """
    source, made = find(name), Path(folder) / name
    if made.exists():
        raise ValueError(f"a metric is built in a new folder, got {str(made)!r}; remove it or name another place.")
    with filled(made) as new:
        for file in (*(source / one for one in FILES), PAGE):
            copy(file, new / file.name)
        write(new / f"{name}.py", module(name))
    return made


def module(name: str) -> str:
    """Returns the text of a metric's `<name>.py`: its class in `hf_credit.metrics.measures` with all that it needs.

    Raises:
        ValueError: there is no such metric.
    """
    card = (find(name) / "README.md").read_text(encoding="utf-8").split("---\n", 2)[2].replace("\\", "\\\\")
    kind = "".join(word.capitalize() for word in name.split("_"))
    code = standalone({f"{kind}Metric": "hf_credit.metrics.measures"})
    code = code.replace('CARD = ""', f'CARD = """{card}"""', 1)
    return (
        f'"""The metric {name} with the definitions of hf-credit that it needs, so that it runs without."""\n\n{code}'
    )


def summary(name: str) -> str:
    """Returns the description in a metric's card, one sentence."""
    return re.findall(r"^description: (.+)$", (find(name) / "README.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
