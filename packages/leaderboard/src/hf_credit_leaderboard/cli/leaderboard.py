"""`hf-credit leaderboard`: opens a season, verifies entries, ranks and shows them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hf_credit.cli.options import AsJson, EndpointOption
from hf_credit.cli.progress import be_quiet, print_rows
from hf_credit.cli.publish import DryRun, Private, Repo, show

if TYPE_CHECKING:
    from hf_credit_leaderboard.results import Results
    from hf_credit_leaderboard.sources import Hub

SECRET_VARIABLE = "HF_CREDIT_SEASON_SECRET"

leaderboard = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="A leaderboard that verifies each entry on secret tasks."
)
commands = typer.Typer()
commands.add_typer(leaderboard, name="leaderboard", short_help="Open, verify, rank and show a leaderboard.")

BenchmarkArgument = Annotated[str, typer.Argument(help="The dataset of the season, as owner/name.")]
SecretOption = Annotated[Path, typer.Option(help="File with the salt and the key; do not publish it.")]
SecretToReadOption = Annotated[
    Path | None,
    typer.Option(help=f"File with the salt and the key; by default the environment variable {SECRET_VARIABLE}."),
]


@leaderboard.command(short_help="Open a season, or close it.")
def season(
    benchmark: BenchmarkArgument,
    secret: SecretOption,
    results: Annotated[str, typer.Option(help="The dataset for results, as owner/name.")] = "",
    name: Annotated[str, typer.Option(help="Name of the season.")] = "",
    public: Annotated[int, typer.Option(help="Number of public tasks per board.", min=2)] = 128,
    secret_tasks: Annotated[int, typer.Option(help="Number of secret tasks per board.", min=2)] = 128,
    cells: Annotated[str, typer.Option(help="Dataset with cells of `hf-credit bench` to show, as owner/name.")] = "",
    close: Annotated[bool, typer.Option(help="Close the season and publish its salt.")] = False,
    endpoint: EndpointOption = None,
) -> None:
    """Opens a season: publishes its boards and the SHA-256 of a new salt. With --close, publishes the salt.

    \b
    Examples:
      hf-credit leaderboard season me/benchmark --results me/results --name 2026-autumn --secret season_secret.json
      hf-credit leaderboard season me/benchmark --secret season_secret.json --close
    """
    hub = _hub(endpoint)
    from hf_credit_leaderboard.opening import close_season, open_season, standard_boards
    from hf_credit_leaderboard.seasons import SeasonSecret

    if close:
        known, _ = hub.season(benchmark)
        closed = close_season(hub, benchmark, SeasonSecret.read(secret.read_bytes(), known))
        typer.echo(f"The season {closed.name!r} is closed; its salt is published.")
        return
    if not (results and name):
        raise ValueError(f"a new season needs --results and --name, got {results!r} and {name!r}; set both.")
    new_secret = SeasonSecret.new()
    new_secret.save(secret)
    boards = standard_boards(public, secret_tasks)
    opened = open_season(hub, name, benchmark, results, new_secret, boards, cells)
    typer.echo(f"The season {opened.name!r} is open. Keep its secret, {secret}, and do not publish it.")


@leaderboard.command(short_help="Verify submitted entries.")
def verify(
    benchmark: BenchmarkArgument,
    secret: SecretToReadOption = None,
    watch: Annotated[bool, typer.Option(help="Keep running and check for new pull requests.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two checks.", min=1)] = 60,
    device: Annotated[str, typer.Option(help="Device to play on, such as cuda:0.")] = "cpu",
    parameters: Annotated[int, typer.Option(help="Maximum number of parameters of a checkpoint.")] = 2 * 10**9,
    seconds: Annotated[float, typer.Option(help="Time limit of the replay, and of the play, in seconds.")] = 3600,
    endpoint: EndpointOption = None,
) -> None:
    """Verifies every open pull request, lists its entry with a signed record or gives a reason, and closes it.

    \b
    Example:
      hf-credit leaderboard verify me/benchmark --secret season_secret.json --watch
    """
    hub = _hub(endpoint)
    from hf_credit.hub.retries import HubError, pause
    from hf_credit.redaction import written_out
    from hf_credit.validators import first_line
    from hf_credit_leaderboard.confined import Limits
    from hf_credit_leaderboard.seasons import SeasonSecret
    from hf_credit_leaderboard.service import Verifier

    known, _ = hub.season(benchmark)
    if secret is None and SECRET_VARIABLE not in os.environ:
        raise ValueError(f"a verifier needs the season's secret, got none; give --secret or set {SECRET_VARIABLE}.")
    content = os.environ[SECRET_VARIABLE].encode("utf-8") if secret is None else secret.read_bytes()
    season_secret = SeasonSecret.read(content, known)
    limits = Limits(parameters=parameters, seconds=seconds, device=device)
    while True:
        try:
            for ruling in Verifier(hub, benchmark, season_secret, limits=limits).rulings():
                source = f"pull request {ruling.number}" if ruling.number else "merged before"
                outcome = "listed" if ruling.listed else "rejected"
                typer.echo(f"{source}, entry {ruling.entry}: {outcome}. {written_out(ruling.reason)}")
        except (HubError, ValueError) as error:  # such as a season with too many files
            if not watch:
                raise
            typer.echo(f"{written_out(first_line(error))} The verifier checks again in {every:g} seconds.", err=True)
        if not watch:
            return
        pause(every)


@leaderboard.command(short_help="Print an entry's chat templates, or accept them.")
def template(
    benchmark: BenchmarkArgument,
    entry: Annotated[str, typer.Argument(help="The id of a verified entry.")],
    accept: Annotated[
        bool,
        typer.Option("--accept", help="Accept these templates; entries with them are then played again."),
    ] = False,
    endpoint: EndpointOption = None,
) -> None:
    """Prints the chat templates of an entry that its season has not accepted, and accepts them with --accept.

    A chat template is a program that sees every prompt, so it could play in place of the policy. Accept it only if all
    it does is to write messages and the tokens around them.

    \b
    Examples:
      hf-credit leaderboard template me/benchmark 0123456789abcdef0123456789abcdef
      hf-credit leaderboard template me/benchmark 0123456789abcdef0123456789abcdef --accept
    """
    hub = _hub(endpoint)
    from hf_credit.redaction import written_out
    from hf_credit_leaderboard.opening import accept_templates

    results = hub.results(hub.season(benchmark)[0])
    record = results.row(entry).record
    texts = {} if record is None else dict(record.unknown_templates)
    unknown = {digest: text for digest, text in texts.items() if digest not in results.season.templates}
    for digest, text in unknown.items():
        typer.echo(f"{digest}\n{written_out(text)}\n")
    if not unknown:
        typer.echo("The season knows every chat template of this entry.")
    elif not accept:
        typer.echo("If they only write messages and the tokens around them, accept them with --accept.")
    else:
        accept_templates(hub, benchmark, unknown)
        typer.echo(f"Accepted. The verifier plays entries with {'it' if len(unknown) == 1 else 'them'} again.")


@leaderboard.command(short_help="Print the ranks.")
def rank(benchmark: BenchmarkArgument, as_json: AsJson = False, endpoint: EndpointOption = None) -> None:
    """Prints the ranks of every board with an entry.

    \b
    Example:
      hf-credit leaderboard rank me/benchmark
    """
    hub = _hub(endpoint)
    from hf_credit_leaderboard.results import rankings_table

    results = hub.results(hub.season(benchmark)[0])
    if as_json:
        typer.echo(json.dumps(rankings_table(results), indent=2))
    else:
        print_boards(results)


def print_boards(results: Results) -> None:
    """Prints a table for every board with an entry."""
    from hf_credit_leaderboard import views

    wanted = {"rank", "name", "method", "mean", "95 % interval", "seeds", "badge"}
    for task in results.season.tasks:
        columns, rows = views.board_table(results, task.name)
        kept = [place for place, (name, _, _) in enumerate(columns) if name in wanted]
        texts = [views.cells(columns, row) for row in rows]
        if rows:
            header = [columns[place][0] for place in kept]
            print_rows(header, [[row[place] for place in kept] for row in texts], task.name)


@leaderboard.command(short_help="Serve the page of a season.")
def serve(
    benchmark: BenchmarkArgument,
    port: Annotated[int | None, typer.Option(help="Port on this machine; by default a free one.")] = None,
    endpoint: EndpointOption = None,
) -> None:
    """Serves the page of a season on this machine.

    \b
    Example:
      hf-credit leaderboard serve me/benchmark
    """
    hub = _hub(endpoint)
    from hf_credit_leaderboard import page
    from hf_credit_leaderboard.sources import Source

    page.launch(page.build(Source.of_hub(hub, benchmark)), port)


@leaderboard.command(short_help="Publish the page of a season, as a Space.")
def publish(benchmark: BenchmarkArgument, repo: Repo, private: Private = False, dry_run: DryRun = False) -> None:
    """Publishes the page of a season as a Space.

    \b
    Example:
      hf-credit leaderboard publish me/benchmark me/leaderboard
    """
    be_quiet()  # before the imports that print warnings
    from hf_credit_leaderboard.space import publish_leaderboard

    show(publish_leaderboard(benchmark, repo, private=private, dry_run=dry_run))


def _hub(endpoint: str | None) -> Hub:
    be_quiet()  # before the imports that print warnings
    from hf_credit_leaderboard.sources import Hub

    return Hub(endpoint=endpoint)
