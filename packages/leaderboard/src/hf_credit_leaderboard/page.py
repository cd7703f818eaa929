"""The page of a leaderboard, as a Gradio app. Texts of entries are escaped HTML, since Markdown would render links."""

from __future__ import annotations

import functools
import html
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from hf_credit.optional_packages import how_to_install
from hf_credit.redaction import written_out
from hf_credit_leaderboard import views
from hf_credit_leaderboard.opening import board_lines
from hf_credit_leaderboard.records import VERIFIED
from hf_credit_leaderboard.results import Results
from hf_credit_leaderboard.seasons import Season
from hf_credit_leaderboard.sources import Hub, Source
from hf_credit_leaderboard.space import BENCHMARK_VARIABLE

try:
    import gradio as gr
except ImportError:
    raise ImportError(f"the page needs the package gradio, got none; run {how_to_install('spaces')}.") from None

RELOAD_SECONDS = 120
TABS = ("Board", "Credit", "Compare", "Entry", "Submit", "About")

HEADING = """# Leaderboard of credit assignment for language agents

Which decision deserves the credit? **Board** ranks trained policies: a verifier plays their checkpoints again on
secret tasks. **Credit** shows what the bench measured of methods."""

ABOUT = Path(__file__).with_name("about.md").read_text(encoding="utf-8")
SUBMIT = """Publish a checkpoint for each training seed, then submit them with this command, which plays the
public tasks and opens a pull request with every reply."""

COMMAND = "hf-credit submit me/policy-seed0 me/policy-seed1 BOARD --benchmark {0}"

CSS = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
LAUNCH_OPTIONS = {"css": CSS, "max_file_size": 1}
"""The options that serve the page. It takes no files, but without a limit Gradio stores those of anybody."""

_CREDIT = ("", ".1%", ".1f", ".2f")  # the number formats of `views.credit_table`
_WIDTHS = ["76px", "86px", "60px", "104px"]  # of the first columns, which a phone shows


def from_environment() -> Any:
    """Builds the page of a Space from its variables.

    `HF_CREDIT_BENCHMARK` names the dataset of the season.

    Raises:
        ValueError: no benchmark is named.
    """
    benchmark = os.environ.get(BENCHMARK_VARIABLE, "")
    if not benchmark:
        raise ValueError(
            f"the page must have {BENCHMARK_VARIABLE}=owner/name, got none; set it in the Space's variables."
        )
    return build(Source.of_hub(Hub(), benchmark))


def build(source: Source) -> Any:
    """Builds the page."""
    with gr.Blocks(title="hf-credit leaderboard", analytics_enabled=False) as app:
        gr.Markdown(HEADING)
        alert = gr.HTML(elem_id="trouble")
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab("Board", id="Board"):
                board = gr.Dropdown([], label="Task", elem_id="board")
                board_parts = _board_parts("board")
            with gr.Tab("Credit", id="Credit"):
                credit = gr.Dropdown([], label="Problem", elem_id="credit")
                credit_parts = _board_parts("credit")
            with gr.Tab("Compare", id="Compare"):
                with gr.Row():
                    first = gr.Dropdown([], label="A", elem_id="first")
                    second = gr.Dropdown([], label="B", elem_id="second")
                compare_parts = [gr.HTML(), _facts("compare-table")]
            with gr.Tab("Entry", id="Entry"):
                chosen = gr.Dropdown([], label="Entry", elem_id="entry")
                entry_parts = [gr.HTML(elem_id="entry-text"), _facts("provenance")]
            with gr.Tab("Submit", id="Submit"):
                gr.Markdown(SUBMIT)
                commands = COMMAND.format("OWNER/BENCHMARK")
                how = gr.Code(commands, language="shell", elem_id="how", interactive=False, wrap_lines=True)
            with gr.Tab("About", id="About"):
                gr.Markdown(ABOUT)
                about = _facts("about")
        timer = gr.Timer(RELOAD_SECONDS)

        def opened(request: gr.Request) -> list[Any]:
            results = source.load()  # sets `trouble`
            return [_trouble(source), *_opened(results, dict(request.query_params))]

        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        choosers = [board, credit, first, second, chosen]
        loaded = app.load(opened, None, [alert, about, how, tabs, *choosers], **quiet)
        for content, inputs, parts in (
            (board_shown, [board], board_parts),
            (credit_shown, [credit], credit_parts),
            (comparison_shown, [first, second], compare_parts),
            (entry_shown, [chosen], entry_parts),
        ):

            def show_results(*selected: Any, content: Callable[..., Any] = content) -> Any:
                return content(source.results, *selected)

            loaded.then(show_results, inputs, parts, **quiet)
            for chooser in inputs:
                chooser.change(show_results, inputs, parts, **quiet)
        board.input(lambda name: _entries_of(source.results, name), board, [first, second, chosen], **quiet)
        ticked = timer.tick(lambda: (source.load(), _trouble(source))[1], None, alert, **quiet)
        ticked.then(lambda name: board_shown(source.results, name), board, board_parts, **quiet)
    return app


def launch(app: Any, port: int | None = None, block: bool = True) -> str:
    """Serves the page on this machine and returns its URL.

    Args:
        port: the port; a free one if `None`.
        block: whether to wait until the process is stopped.
    """
    if port is None:  # Gradio's own search leaves a socket open for each port in use
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    _, url, _ = app.launch(
        server_name="127.0.0.1", server_port=port, prevent_thread_lock=True, quiet=True, **LAUNCH_OPTIONS
    )
    if block:
        print(f"serving the leaderboard at {url}", flush=True)
        app.block_thread()
    return str(url)


# The contents of the tabs


def board_shown(results: Results | None, board: str | None) -> tuple[Any, ...]:
    """Returns a sentence about a board, and its table."""
    if results is None or board is None:
        return _sentence("There are no results to show."), None
    columns, rows = views.board_table(results, board)
    if not rows:
        return _sentence("This board has no entries yet. Be the first: Submit."), _styled(_formats(columns), rows)
    secret, ranked = results.season.board(board).secret, len(results.ranks(board))
    about = f"{secret} secret tasks, {ranked} ranked entries; overlapping ranks are ties."
    return _sentence(about), _styled(_formats(columns), rows)


def credit_shown(results: Results | None, problem: str | None) -> tuple[Any, ...]:
    """Returns a sentence about the cells of a problem of the bench, and their table."""
    if results is None or problem is None:
        return _sentence("The season names no cells of the bench."), None
    columns, rows = views.credit_table(results.cells, problem)
    about = (
        "Against exact values, with tables in place of a policy: the exact advantage's cost of signal divided by the "
        "method's, the angle between its gradient and the true one in degrees, and the area under its learning curve "
        "(0: the start, 1: the best)."
    )
    return _sentence(about), _styled(dict(zip(columns, _CREDIT, strict=True)), rows)


def comparison_shown(results: Results | None, first: str | None, second: str | None) -> tuple[Any, ...]:
    """Returns a link to a comparison, and its table."""
    try:
        if results is None or not first or not second:
            raise ValueError("Choose two verified entries of a board.")
        a, b = results.row(first), results.row(second)
        table = views.comparison_table(a, b)
    except ValueError as error:
        return _sentence(str(error)), None
    link = html.escape("?" + urlencode({"board": a.entry.board, "a": a.id, "b": b.id}), quote=True)
    about = f'<p class="text">Same secret tasks, paired. <a href="{link}">Link to this comparison</a></p>'
    return about, table


def entry_shown(results: Results | None, chosen: str | None) -> tuple[Any, ...]:
    """Returns the name and the notes of an entry, and its provenance."""
    try:
        if results is None or not chosen:
            raise ValueError("Choose an entry.")
        row = results.row(chosen)
    except ValueError as error:
        return _sentence(str(error)), None
    notes = row.record.notes if row.record else ("It is not verified yet.",)
    about = f"<h3>{html.escape(written_out(row.entry.name))}</h3>" + "".join(map(_sentence, notes))
    return about, views.provenance_table(row)


def _opened(results: Results | None, query: dict[str, str]) -> list[Any]:
    """Returns the initial contents and choices, as the query `?tab=&board=&credit=&a=&b=&entry=` sets them."""
    if results is None:
        return [None, gr.skip(), gr.skip(), *([gr.update(choices=[], value=None)] * 5)]
    season = results.season
    tab = query.get("tab", "Compare" if "a" in query else "Entry" if "entry" in query else "Board")
    board = _chosen([task.name for task in season.tasks], query.get("board"))
    credit = _chosen(sorted({one["problem"] for one in views.plain_cells(results.cells)}), query.get("credit"))
    return [
        _facts_of(season) + [["problem", written_out(problem)] for problem in results.problems[:3]],
        COMMAND.format(season.benchmark),
        gr.update(selected=tab if tab in TABS else "Board"),
        board,
        credit,
        *_entries_of(results, board["value"], query),
    ]


def _entries_of(results: Results | None, board: str | None, query: dict[str, str] | None = None) -> list[Any]:
    """Returns the choices of Compare and Entry on a board; the query or the two best entries are selected."""
    query = query or {}
    if results is None or board is None:
        return [gr.update(choices=[], value=None)] * 3
    ranked = [one.entry for one in results.ranks(board)]
    verified = views.choices(results, board, VERIFIED)
    return [
        _chosen(verified, query.get("a"), *ranked[:1]),
        _chosen(verified, query.get("b"), *ranked[1:2]),
        _chosen(views.choices(results, board), query.get("entry"), *ranked[:1]),
    ]


def _facts_of(season: Season) -> list[list[str]]:
    return [
        *(["board", line] for line in board_lines(season)),
        ["season", f"{season.name} ({'open' if season.open else 'over'})"],
        ["benchmark", season.benchmark],
        ["results", season.results],
        ["SHA-256 of the salt", season.salt_sha256],
        ["salt", season.salt or "published when the season is over"],
        ["key of the records (Ed25519)", season.public_key],
    ]


# Parts


def _board_parts(name: str) -> list[Any]:
    return [
        gr.HTML(_sentence("Loading the results ..."), elem_id=f"{name}-text"),
        _table(
            show_search="filter",
            column_widths=[*_WIDTHS, *(["95px"] * 8)],
            buttons=["fullscreen"],
            elem_id=f"{name}-table",
        ),
    ]


_table = functools.partial(gr.Dataframe, interactive=False, wrap=True, max_height=900)


def _facts(elem_id: str) -> Any:
    widths: list[str | int] = ["35%", "65%"]
    return _table(headers=["what", "value"], max_chars=1000, column_widths=widths, buttons=[], elem_id=elem_id)


def _formats(columns: views.Columns) -> dict[str, str]:
    return {name: form for name, form, _ in columns}


def _styled(formats: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> Any:
    """Formats rows with the number formats of their columns; numbers stay sortable."""
    import pandas as pd

    visible = [[written_out(value) if isinstance(value, str) else value for value in row] for row in rows]
    frame = pd.DataFrame(visible, columns=list(formats))
    return frame.style.format({name: f"{{:{form}}}" for name, form in formats.items() if form}, na_rep="")


def _chosen(known: Sequence[Any], *wanted: str | None) -> dict[str, Any]:
    """Returns a list of choices; selected is the first wanted value that it has, or else its first."""
    values = [one if isinstance(one, str) else one[1] for one in known]
    selected = next((value for value in (*wanted, *values) if value in values), None)
    return dict(gr.update(choices=list(known), value=selected))


def _trouble(source: Source) -> str:
    text = html.escape(written_out(source.trouble))
    return f'<div class="trouble text" role="alert">{text}</div>' if text else ""


def _sentence(text: str) -> str:
    return f'<p class="text">{html.escape(written_out(text))}</p>'
