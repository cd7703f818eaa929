"""The page of a leaderboard, as a Gradio app: board, credit, comparison, entry, submission, and what it all means."""

from __future__ import annotations

import html
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from hf_credit.evaluation.episode_page import written_out
from hf_credit.hub.leaderboard import drawings, views
from hf_credit.hub.leaderboard.about import about_html, submit_html
from hf_credit.hub.leaderboard.form import Form
from hf_credit.hub.leaderboard.records import BADGES
from hf_credit.hub.leaderboard.replies import MOST_FILE_BYTES
from hf_credit.hub.leaderboard.results import Results, compare_rows
from hf_credit.hub.leaderboard.sources import Source
from hf_credit.hub.leaderboard.submission import Hub

try:
    import gradio as gr
except ImportError:
    raise ImportError('The page needs gradio, which is not installed; run pip install "hf-credit[spaces]".') from None

RELOAD_SECONDS = 120
HEADING = (
    "<h1>Leaderboard of credit assignment for language agents</h1>"
    '<p class="quiet">Which decision deserves the credit? <b>Board</b> ranks trained policies: a verifier plays their '
    "checkpoints again on secret tasks. <b>Credit</b> ranks methods by how well their credit orders decisions.</p>"
)
LOADING = "Loading the results ..."
TABS = ("Board", "Credit", "Compare", "Entry", "Submit", "About")

CSS = """
.gradio-container { max-width: 1180px !important; width: 100% !important; min-width: 0 !important;
  margin: 0 auto !important; }
.gradio-container > *, .gradio-container main { min-width: 0 !important; max-width: 100% !important; }
.trouble { background: #fdecea; color: #5f2120; border: 1px solid #f5c6c0; border-radius: 8px; padding: 10px 14px; }
.quiet { color: #555d68; margin: 2px 0 6px; }
.told { overflow-wrap: anywhere; }
.table { overflow-x: auto; }
.table table, .table tr, .table th, .table td { border: 0 !important; }
.table table { border-collapse: collapse; width: 100%; margin: 0; font-variant-numeric: tabular-nums; }
.table th, .table td { border-bottom: 1px solid var(--border-color-primary) !important; padding: 6px 8px;
  text-align: left; vertical-align: top; }
.table td:nth-child(2) { overflow-wrap: anywhere; min-width: 6rem; }
.table td:nth-child(3), .table td:nth-child(4) { white-space: nowrap; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
iframe.episode { width: 100%; height: 640px; border: 1px solid var(--border-color-primary); border-radius: 8px;
  background: white; }
@media (max-width: 640px) {
  .gradio-container { padding: 8px !important; }
  .gradio-container main { padding: 4px !important; }
  iframe.episode { height: 520px; }
  h1 { font-size: 1.35rem !important; }
  .table { font-size: 0.8rem; }
  .table th, .table td { padding: 5px 4px; }
}
"""


LAUNCH_OPTIONS = {"css": CSS, "max_file_size": MOST_FILE_BYTES}
"""With which the page is served: Gradio takes files of any size, from anybody, where nothing bounds them."""

_UPLOAD_SECONDS = 3600  # for which a file that was uploaded is kept


def from_environment() -> Any:
    """The page of a Space: `HF_CREDIT_BENCHMARK` names the dataset of the season, `HF_CREDIT_BOT_TOKEN` may send.

    Where the Space has Hub sign-in (`hf_oauth: true`, which sets `OAUTH_CLIENT_ID`), visitors send in their own name.

    Raises:
        ValueError: no benchmark is named.
    """
    benchmark = os.environ.get("HF_CREDIT_BENCHMARK", "")
    if not benchmark:
        raise ValueError(
            "the page needs HF_CREDIT_BENCHMARK=owner/name, got none; set it among the Space's variables."
        )
    token = os.environ.get("HF_CREDIT_BOT_TOKEN")
    visitors = Hub() if os.environ.get("OAUTH_CLIENT_ID") else None
    return build(Source.of_hub(Hub(), benchmark), Form(Hub(token=token) if token else None, visitors=visitors))


def build(source: Source, form: Form | None = None) -> Any:
    """The page.

    Args:
        source: of the results.
        form: for submissions; one that only checks if `None`.
    """
    page = _Page(source, form or Form(None))
    with gr.Blocks(
        title="hf-credit leaderboard", analytics_enabled=False, delete_cache=(_UPLOAD_SECONDS, _UPLOAD_SECONDS)
    ) as app:
        gr.HTML(HEADING)
        trouble = gr.HTML(elem_id="trouble")
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab("Board", id="Board"):
                with gr.Row():
                    board = gr.Dropdown([], label="Task", elem_id="board", min_width=150)
                    badge = gr.Dropdown([views.ANY, *BADGES], value=views.ANY, label="Badge", min_width=150)
                    method = gr.Dropdown([views.ANY], value=views.ANY, label="Method", elem_id="method", min_width=150)
                    size = gr.Dropdown(list(views.SIZES), value=views.ANY, label="Parameters", min_width=150)
                    search = gr.Textbox(value="", label="Search", elem_id="search", min_width=150)
                told = gr.HTML(_quiet(LOADING), elem_id="board-told")
                table = gr.HTML(elem_id="board-table")
                plot = gr.Plot(label="Means and intervals", show_label=False, elem_id="board-plot")
                save = gr.HTML(elem_id="board-csv")
            with gr.Tab("Credit", id="Credit"):
                with gr.Row():
                    credit = gr.Dropdown([], label="Decisions", elem_id="credit", min_width=150)
                    credit_search = gr.Textbox(value="", label="Search", min_width=150)
                credit_told = gr.HTML(_quiet(LOADING), elem_id="credit-told")
                credit_table = gr.HTML(elem_id="credit-table")
                credit_plot = gr.Plot(label="Fidelity and intervals", show_label=False)
            with gr.Tab("Compare", id="Compare"):
                with gr.Row():
                    first = gr.Dropdown([], label="A", elem_id="first", min_width=200)
                    second = gr.Dropdown([], label="B", elem_id="second", min_width=200)
                compared_told = gr.HTML(_quiet(LOADING), elem_id="compare-told")
                compared = gr.HTML(elem_id="compare-table")
                difference = gr.Plot(label="Differences, task by task", show_label=False, elem_id="difference")
            with gr.Tab("Entry", id="Entry"):
                chosen = gr.Dropdown([], label="Entry", elem_id="entry")
                entry_told = gr.HTML(_quiet(LOADING), elem_id="entry-told")
                provenance = gr.HTML(elem_id="provenance")
                show = gr.Button("Show sample episodes", elem_id="show-episodes")
                sample = gr.HTML(elem_id="episodes")
            with gr.Tab("Submit", id="Submit"):
                how = gr.HTML(submit_html(page.form.sends), elem_id="how")
                with gr.Row():
                    entry_file = gr.File(label="entries/….json", type="filepath", elem_id="entry-file")
                    replies_file = gr.File(label="episodes/….parquet", type="filepath", elem_id="replies-file")
                if page.form.signs_in:
                    gr.LoginButton(size="md", elem_id="sign-in")
                send = gr.Button("Check" if not page.form.sends else "Check and send", variant="primary")
                sent = gr.HTML(elem_id="sent")
            with gr.Tab("About", id="About"):
                about = gr.HTML(elem_id="about")
        timer = gr.Timer(RELOAD_SECONDS)

        board_in, board_out = [board, badge, method, size, search], [told, table, plot, save]
        credit_in, credit_out = [credit, credit_search], [credit_told, credit_table, credit_plot]
        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        begun = app.load(
            page.open, None, [trouble, about, how, tabs, board, method, credit, first, second, chosen], **quiet
        )
        for after in (begun, *(one.change for one in (board, badge, method, size, search))):
            (after.then if after is begun else after)(page.board, board_in, board_out, **quiet)
        for after in (begun, credit.change, credit_search.change):
            (after.then if after is begun else after)(page.credit, credit_in, credit_out, **quiet)
        board.input(page.chosen, board, [first, second, chosen], **quiet)
        for after in (begun, first.change, second.change):
            (after.then if after is begun else after)(
                page.compare, [first, second], [compared_told, compared, difference], **quiet
            )
        for after in (begun, chosen.change):
            (after.then if after is begun else after)(page.entry, chosen, [entry_told, provenance, sample], **quiet)
        show.click(page.episodes, chosen, sample, api_visibility="private")
        send.click(
            page.send_as if page.form.signs_in else page.send,
            [entry_file, replies_file],
            sent,
            api_visibility="private",
        )
        timer.tick(page.reload, None, trouble, **quiet).then(page.board, board_in, board_out, **quiet).then(
            page.credit, credit_in, credit_out, **quiet
        )
    return app


def launch(app: Any, port: int | None = None, block: bool = True) -> str:
    """Serves the page on this machine and says where.

    Args:
        app: of `build`.
        port: to listen at; a free one if `None`.
        block: until the process is told to stop.
    """
    if port is None:  # Gradio's own search leaves a socket open for each port that is taken
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


class _Page:
    """What the parts of the page show."""

    def __init__(self, source: Source, form: Form) -> None:
        self.source = source
        self.form = form

    def open(self, request: gr.Request) -> tuple[Any, ...]:
        """All that is chosen at first: as the address says, `?tab=&board=&credit=&a=&b=&entry=`."""
        shown = self.source.load()
        results = shown.results
        asked = {name: str(value)[:100] for name, value in dict(request.query_params).items()}
        if results is None:
            empty = gr.update(choices=[], value=None)
            return (_trouble(shown.trouble), "", gr.update(), gr.update(), empty, gr.update(), *([empty] * 4))
        boards = [one.name for one in results.season.tasks]
        credits = [one.name for one in results.season.credit]
        board = _one_of(asked.get("board"), boards)
        entries = _entries(results, board)
        ids = [one for _, one in entries]
        verified = views.choices(results, board) if board else []
        ranked = [one.entry for one in results.ranks(board)] if board else []
        first = _one_of(asked.get("a"), [one for _, one in verified], ranked[0] if ranked else None)
        second = _one_of(asked.get("b"), [one for _, one in verified], ranked[1] if len(ranked) > 1 else None)
        tab = asked.get("tab", "Compare" if "a" in asked else "Entry" if "entry" in asked else "Board")
        return (
            _trouble(shown.trouble or " ".join(results.problems[:3])),
            about_html(results.season),
            submit_html(self.form.sends, results.season.benchmark),
            gr.update(selected=tab if tab in TABS else "Board"),
            gr.update(choices=boards, value=board),
            gr.update(choices=[views.ANY, *views.methods(results)], value=views.ANY),
            gr.update(choices=credits, value=_one_of(asked.get("credit"), credits)),
            gr.update(choices=verified, value=first),
            gr.update(choices=verified, value=second),
            gr.update(choices=entries, value=_one_of(asked.get("entry"), ids, ranked[0] if ranked else None)),
        )

    def reload(self) -> str:
        shown = self.source.load()
        return _trouble(shown.trouble)

    def board(self, board: str | None, badge: str, method: str, size: str, search: str | None) -> tuple[Any, ...]:
        header = [name for name, _ in views.BOARD_COLUMNS]
        results = self.source.last().results
        if results is None or board is None:
            return _quiet("There are no results to show."), "", None, ""
        rows = views.board_table(results, board, badge, size, search or "", method)
        task = next(one for one in results.season.tasks if one.name == board)
        told = f"{task.secret} secret tasks, {len(results.ranks(board))} ranked entries; ranks that overlap are ties."
        if not rows:
            listed = len(results.board(board))
            told = "Nothing matches these filters." if listed else "Nothing is listed here yet. Be the first: Submit."
        table = views.table_html(views.BOARD_COLUMNS, rows)
        return _quiet(told), table, drawings.rank_plot(results, board), views.csv_link(header, rows)

    def credit(self, board: str | None, search: str | None) -> tuple[Any, ...]:
        results = self.source.last().results
        if results is None or board is None:
            return _quiet("This season has no boards of credit."), "", None
        rows = views.credit_table(results, board, search or "")
        task = results.season.credit_board(board)
        told = f"{task.repeats} updates of {task.instances} task rows each; what decisions were worth is enumerated."
        if not rows:
            told = "Nothing is listed here yet, or nothing matches."
        table = views.table_html(views.CREDIT_COLUMNS, rows)
        return _quiet(told), table, drawings.rank_plot(results, board, "fidelity on the secret rows")

    def chosen(self, board: str | None) -> tuple[Any, ...]:
        """What Compare and Entry offer once another board is chosen."""
        results = self.source.last().results
        if results is None or board is None:
            return (gr.update(choices=[], value=None),) * 3
        verified = views.choices(results, board)
        ids = [one.entry for one in results.ranks(board)]
        return (
            gr.update(choices=verified, value=ids[0] if ids else None),
            gr.update(choices=verified, value=ids[1] if len(ids) > 1 else None),
            gr.update(choices=_entries(results, board), value=ids[0] if ids else None),
        )

    def compare(self, first: str | None, second: str | None) -> tuple[Any, ...]:
        results = self.source.last().results
        if results is None or not first or not second:
            return _quiet("Choose two verified entries of a board."), "", None
        try:
            a, b = results.row(first), results.row(second)
            found = compare_rows(a, b)
        except ValueError as error:
            return _quiet(str(error)), "", None
        link = html.escape("?" + urlencode({"board": a.entry.board, "a": a.id, "b": b.id}), quote=True)
        told = f'Same secret tasks, paired. <a href="{link}">Link to this comparison</a>'
        plot = drawings.difference_plot(found, a.entry.name, b.entry.name)
        return f'<p class="quiet">{told}</p>', views.table_html(views.FACTS, views.comparison_table(found)), plot

    def entry(self, chosen: str | None) -> tuple[Any, ...]:
        results = self.source.last().results
        if results is None or not chosen:
            return _quiet("Choose an entry."), "", ""
        try:
            row = results.row(chosen)
        except ValueError as error:
            return _quiet(str(error)), "", ""
        notes = list(row.record.notes) if row.record else ["Nobody has verified it yet."]
        told = f"<h3>{html.escape(written_out(row.entry.name))}</h3>" + "".join(map(_quiet, notes))
        return told, views.table_html(views.FACTS, views.provenance_table(row)), ""

    def episodes(self, chosen: str | None) -> str:
        results = self.source.last().results
        try:
            if results is None or not chosen:
                raise ValueError("an entry must be chosen to show its episodes, got none; choose one.")
            row = results.row(chosen)
            if row.entry.kind == "credit":
                raise ValueError(
                    "an entry of credit has updates, not episodes; its decisions are in the file of replies."
                )
            interaction = row.entry.task(results.season).build()
            found = views.sample_episodes(interaction, self.source.episodes(row))
        except (ValueError, OSError) as error:
            return _trouble(str(error))
        told = "The best and the worst public tasks, as they were submitted."
        if interaction.default_oracle() is not None:
            told += " The credit shown of a decision is what the oracle of the task says of it, from 0 to 1."
        return _quiet(told) + "".join(views.episode_frame(episode, title) for title, episode in found)

    def send_as(self, entry_file: str | None, replies_file: str | None, visitor: gr.OAuthToken | None) -> str:
        """As `send`, in the name of a visitor who signed in."""
        return self.send(entry_file, replies_file, None if visitor is None else visitor.token)

    def send(self, entry_file: str | None, replies_file: str | None, token: str | None = None) -> str:
        results = self.source.last().results
        try:
            if results is None or not entry_file or not replies_file:
                raise ValueError("both files of an entry are needed, got one or none; choose them.")
            told = self.form.send(Path(entry_file), Path(replies_file), results.season, token)
        except (ValueError, OSError) as error:
            return _trouble(str(error))
        return f'<p class="told">{html.escape(told)}</p>'


def _entries(results: Results, board: str | None) -> list[tuple[str, str]]:
    if board is None:
        return []
    return [(f"{written_out(row.entry.name)} ({row.id[:8]}, {row.badge})", row.id) for row in results.board(board)]


def _one_of(asked: str | None, known: Sequence[str], otherwise: str | None = None) -> str | None:
    if asked in known:
        return asked
    return otherwise if otherwise in known else (known[0] if known else None)


def _trouble(text: str) -> str:
    return f'<div class="trouble told" role="alert">{html.escape(written_out(text))}</div>' if text else ""


def _quiet(text: str) -> str:
    return f'<p class="quiet told">{html.escape(written_out(text))}</p>'
