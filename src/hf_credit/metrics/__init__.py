"""Metrics: diagnostics as modules of `evaluate`, which run without this library once they are built."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from hf_credit.files import copy, filled, write
from hf_credit.metrics.standalone import standalone
from hf_credit.registry import did_you_mean

_SPACES = Path(__file__).parent / "spaces"
FILES = ("README.md", "requirements.txt")
"""The files of every metric besides its `<name>.py`."""

PAGE = _SPACES / "app.py"
"""The page that runs a metric, shared by all metrics."""

METRICS = {path.stem: path for path in sorted(_SPACES.glob("*.md"))}
"""The texts of the cards of the library's metrics, by name."""

_HEAD = """\
---
title: {title}
emoji: {emoji}
colorFrom: blue
colorTo: green
sdk: gradio
app_file: app.py
pinned: false
license: apache-2.0
tags:
- evaluate
- metric
description: {description}
---
"""


def find(name: str) -> Path:
    """Returns the text of a metric's card, to which `build` adds what the cards of all metrics have.

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
    text, made = card(name), Path(folder) / name
    if made.exists():
        raise ValueError(f"a metric is built in a new folder, got {str(made)!r}; remove it or name another place.")
    code = module(name)
    with filled(made) as new:
        write(new / "README.md", text)
        write(new / "requirements.txt", "".join(f"{one}\n" for one in _requirements(code)))
        write(new / f"{name}.py", code)
        copy(PAGE, new / PAGE.name)
    return made


def module(name: str) -> str:
    """Returns the text of a metric's `<name>.py`: its class in `hf_credit.metrics.measures` with all that it needs.

    Raises:
        ValueError: there is no such metric.
    """
    text = card(name).split("---\n", 2)[2].replace("\\", "\\\\")
    kind = "".join(word.capitalize() for word in name.split("_"))
    code = standalone({f"{kind}Metric": "hf_credit.metrics.measures"})
    code = code.replace('CARD = ""', f'CARD = """{text}"""', 1)
    return (
        f'"""The metric {name} with the definitions of hf-credit that it needs, so that it runs without."""\n\n{code}'
    )


def summary(name: str) -> str:
    """Returns the description in a metric's card, one sentence."""
    return _parts(name)[0]["description"]


def _parts(name: str) -> tuple[dict[str, str], str]:
    """The facts in the lines at the head of a card's text, and the rest of it."""
    head, _, text = find(name).read_text(encoding="utf-8").partition("\n\n")
    return {fact: value for fact, _, value in (line.partition(": ") for line in head.splitlines())}, text


def card(name: str) -> str:
    """Returns a metric's card, with its metadata and the citation of its paper.

    Raises:
        ValueError: there is no such metric.
    """
    facts, text = _parts(name)
    papers = (_SPACES / "papers.bib").read_text(encoding="utf-8").split("\n\n")
    paper = next(one for one in papers if one.startswith(f"@misc{{{facts['paper']},"))
    return f"{_HEAD.format(**facts)}\n{text}\n## Citation\n\n```bibtex\n{paper.strip()}\n```\n"


def _requirements(code: str) -> list[str]:
    """What a metric's module and its page need besides Python."""
    body = ast.parse(code).body
    names = {one.names[0].name for one in body if isinstance(one, ast.Import)}
    names |= {str(one.module) for one in body if isinstance(one, ast.ImportFrom)}
    others = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"datasets", "evaluate"}
    return ["evaluate>=0.4.6", "gradio>=6", *sorted(others)]  # evaluate brings datasets
