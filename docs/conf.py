"""The documentation as a site: `make docs`. Pages are the Markdown of the repository, the reference its docstrings."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from nbformat import v4
from packaging.version import Version
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

import hf_credit
from hf_credit.metrics.measures import Measure
from hf_credit.registry import plain

ROOT = Path(__file__).resolve().parent.parent
logger = logging.getLogger(__name__)

project = "hf-credit"
author = "The hf-credit maintainers"
version = release = hf_credit.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "myst_nb", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "*.md",
    "benchmarks/**.md",
    "evaluation/**.md",
    "examples/*/README.md",
    "hub_assets/README.md",
    "packages/*/README.md",
]
exclude_patterns = [".*", "site", "runs", "build", "src", "tests", "AGENTS.md", "docs/conf.py"]

# Pages ------------------------------------------------------------------------------------------------------------

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # as GitHub names them
nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_output_stderr = "remove"  # progress bars
suppress_warnings = [
    "myst.header",  # a result begins with a table of its own level
    "toc.not_included",  # results are reached by links
]

html_theme = "pydata_sphinx_theme"
html_title = f"hf-credit {release}"
html_show_sourcelink = False
html_theme_options = {
    "show_nav_level": 2,
    "navigation_with_keys": False,
    "navbar_end": ["version-switcher", "theme-switcher"],
    "switcher": {"json_url": "../versions.json", "version_match": release},  # next to this version's folder
    "check_switcher": False,
}

# Reference --------------------------------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
default_role = "code"

napoleon_custom_sections = [("Class attributes", "Attributes")]

REFERENCE = {
    "Train": [
        "hf_credit",
        "hf_credit.trainers.base",
        "hf_credit.trainers.callbacks",
        "hf_credit.trainers.recipes",
        "hf_credit.trainers.training",
        "hf_credit.recipes",
        "hf_credit.tasks",
        "hf_credit.agents",
    ],
    "Credit": ["hf_credit.methods", "hf_credit.collectors", "hf_credit.credit", "hf_credit.critics"],
    "Play": [
        "hf_credit.rollouts",
        "hf_credit.environments",
        "hf_credit.collaborations",
        "hf_credit.oracles",
        "hf_credit.verifiers",
        "hf_credit.policies",
        "hf_credit.data",
    ],
    "Measure": ["hf_credit_bench", "hf_credit.diagnostics", "hf_credit.evaluation", "hf_credit.metrics"],
    "Share": ["hf_credit.hub", "hf_credit_leaderboard"],
}
"""The packages and modules of the reference, by what they are for."""

SAID_ONCE = ("hf_credit.diagnostics", "hf_credit.rollouts", "hf_credit.tasks")
"""Packages that export what they import `as` itself."""


PAGES_AS_NOTEBOOKS = ("from-grpotrainer", "how-to-agent", "how-to-environment")
"""Pages whose Python is one script, built as notebooks too."""


def write_notebooks(app: Sphinx) -> None:
    """The notebook of each of these pages: its Python in cells, all else as it stands."""
    for name in PAGES_AS_NOTEBOOKS:
        parts = re.split(r"^```python\n(.*?)^```$", (ROOT / "docs" / f"{name}.md").read_text(), flags=re.M | re.S)
        notebook = v4.new_notebook(
            metadata={
                "kernelspec": {"name": "python3", "display_name": "Python 3"},
                "language_info": {"name": "python"},
            }
        )
        for place, part in enumerate(parts):
            text = part.strip() if place % 2 else re.sub(r"\]\((?!http|#)", "](../", part.strip())
            cell = v4.new_code_cell(text) if place % 2 else v4.new_markdown_cell(text)
            cell["id"] = f"{name}-{place}"  # the same in every build
            notebook.cells.append(cell)
        _write(ROOT / "docs" / "tutorials" / f"{name}.ipynb", v4.writes(notebook))


def write_reference(app: Sphinx) -> None:
    """A page for each: what it exports, or where it exports nothing, what its modules have."""
    folder = ROOT / "docs" / "reference"
    folder.mkdir(exist_ok=True)
    for stale in {page.stem for page in folder.glob("*.rst")} - {
        "index",
        *(one for many in REFERENCE.values() for one in many),
    }:
        (folder / f"{stale}.rst").unlink()
    contents = ["Reference", "=========", ""]
    for purpose, names in REFERENCE.items():
        contents += [f".. toctree::\n   :caption: {purpose}\n", *(f"   {name}" for name in names), ""]
        for name in names:
            home = importlib.import_module(name)
            body = f".. automodule:: {name}\n"
            if hasattr(home, "__all__") or name in SAID_ONCE:
                body += "   :imported-members:\n"
            elif hasattr(home, "__path__"):
                modules = [f"{name}.{one.name}" for one in pkgutil.iter_modules(home.__path__)]
                body += "".join(f"\n{one}\n{'-' * len(one)}\n\n.. automodule:: {one}\n" for one in modules)
            _write(folder / f"{name}.rst", f"{name}\n{'=' * len(name)}\n\n{body}")
    contents += [".. toctree::\n   :caption: Options\n", "   options", ""]
    _write(folder / "options.md", options_of_methods())
    _write(folder / "index.rst", "\n".join(contents))


def options_of_methods() -> str:
    """The options of all methods, as their signatures and docstrings have them."""
    from hf_credit import methods
    from hf_credit.options import options_of

    parts = [
        "# Options of methods\n\nIn a recipe they stand under `method_options`; presets have them as fields, too."
    ]
    for name in methods.METHODS:
        parts.append(f"## {name}\n\n{methods.summary(name)}")
        options = options_of(methods.find(name)).values()
        cells = [(f"`{one.name}`", one.values, f"`{_default(one.default)}`", one.text) for one in options]
        rows = ["| option | values | default | meaning |", "| --- | --- | --- | --- |"]
        rows += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells]
        parts.append("\n".join(rows) if cells else "It has no options.")
    return "\n\n".join(parts) + "\n"


def _default(value: Any) -> str:
    return "required" if value is inspect.Parameter.empty else str(plain(value))


def _write(page: Path, text: str) -> None:
    if not page.is_file() or page.read_text() != text:
        page.write_text(text)


def skip_foreign(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """What another distribution defines is not part of this reference."""
    home = getattr(obj, "__module__", None)
    if str(getattr(obj, "__doc__", "")).startswith("Alias for field number"):
        return True
    return True if isinstance(home, str) and not home.startswith("hf_credit") else None


def as_restructured_text(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with code in backticks and formulas in indented blocks; one that is missing is a
    warning, and a warning fails the build."""
    if what == "class" and isinstance(obj, type) and issubclass(obj, Measure) and not any(lines):
        lines.append("As its card says.")
    if what in ("class", "function", "method", "property") and not any(lines):
        logger.warning("%s has no docstring", name)
    shown: list[str] = []
    block = False
    for place, line in enumerate(lines):
        before = lines[place - 1] if place else ""
        if line.strip() and not line.startswith("    "):
            block = False
        elif line.startswith("    ") and place and not before.strip() and not block:
            shown += ["::", ""]
            block = True
        if shown and re.fullmatch(r" +(\w+, )+\w+,", shown[-1]):  # the names of one description, over two lines
            shown[-1] += " " + line.strip()
        else:
            shown.append(line if block else _escaped(line))
    lines[:] = shown


def _escaped(line: str) -> str:
    """What stands outside backticks has no markup."""
    parts = line.split("`")
    return "`".join(re.sub(r"([\\*|])", r"\\\1", part) if not place % 2 else part for place, part in enumerate(parts))


def list_versions(app: Sphinx, error: Exception | None) -> None:
    """The versions that were built side by side, for the switcher; the first page leads to the newest."""
    if error is not None or app.builder.name != "html":
        return
    site = Path(app.outdir).parent
    base = os.environ.get("DOCS_URL", "/").rstrip("/")  # where the site is served
    found = sorted((one.parent.parent.name for one in site.glob("*/docs/index.html")), key=Version, reverse=True)
    listed = [{"version": one, "url": f"{base}/{one}/", "preferred": one == found[0]} for one in found]
    (site / "versions.json").write_text(json.dumps(listed, indent=1))
    (site / "index.html").write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={found[0]}/docs/index.html">'
    )


def copy_pictures(app: Sphinx, error: Exception | None) -> None:
    """Copies what pages name in HTML of their own, such as the pictures of the README, which Sphinx does not read."""
    if error is not None or app.builder.name != "html":
        return
    site = Path(app.outdir)
    for page in site.rglob("*.html"):
        for name in re.findall(r'<(?:img|source)\b[^>]*?\bsrc(?:set)?="(?!\w+:|/)([^"?#]+)', page.read_text()):
            picture = (page.parent / name).resolve()
            original = ROOT / picture.relative_to(site.resolve())
            if not picture.exists():
                if not original.is_file():
                    raise ExtensionError(f"a page must name pictures that exist, got {name!r} in {page}; correct it.")
                picture.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(original, picture)


def list_pages(app: Sphinx, error: Exception | None) -> None:
    """`llms.txt`: every page with its first sentence, for readers that are programs."""
    if error is not None or app.builder.name != "html":
        return
    lines = [f"# {project}", "", "> Credit assignment for language agents, on TRL.", "", "## Pages", ""]
    for page in sorted(app.env.found_docs):
        first = next(iter(app.env.get_doctree(page).findall(nodes.paragraph)), None)
        sentence = "" if first is None else " ".join(first.astext().split()).partition(". ")[0].rstrip(".:")
        lines.append(f"- [{app.env.titles[page].astext()}]({app.builder.get_target_uri(page)}): {sentence[:200]}")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n")


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_reference)
    app.connect("builder-inited", write_notebooks)
    app.connect("autodoc-skip-member", skip_foreign)
    # Before napoleon, which reads sections.
    app.connect("autodoc-process-docstring", as_restructured_text, priority=100)
    app.connect("build-finished", copy_pictures)
    app.connect("build-finished", list_versions)
    app.connect("build-finished", list_pages)
