"""The command `hf-credit`: a module a command, and heavy libraries imported only by the command that needs them."""

from __future__ import annotations

import importlib.metadata
import os
import sys

# Before anything else is imported: the current folder, which may be somebody else's, is not where a command finds its
# libraries. `python -m` puts it first, and an empty entry of PYTHONPATH adds it.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    del sys.path[0]
if "" in os.environ.get("PYTHONPATH", "-").split(os.pathsep):
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]

from collections.abc import Sequence
from typing import Annotated

import typer
from packaging.requirements import Requirement

from hf_credit._version import __version__
from hf_credit.cli.agent import agent
from hf_credit.cli.bench import bench
from hf_credit.cli.credit import credit
from hf_credit.cli.demo import demo
from hf_credit.cli.diagnose import diagnose
from hf_credit.cli.envs import envs
from hf_credit.cli.evaluate import evaluate
from hf_credit.cli.hub import hub
from hf_credit.cli.init_policy import init_policy
from hf_credit.cli.leaderboard import leaderboard
from hf_credit.cli.methods import methods
from hf_credit.cli.metrics import metrics
from hf_credit.cli.options import typed_code
from hf_credit.cli.play import play
from hf_credit.cli.publish import publish
from hf_credit.cli.recipes import recipes
from hf_credit.cli.report import report
from hf_credit.cli.submit import submit
from hf_credit.cli.train import train
from hf_credit.redaction import redacted
from hf_credit.registry import search_here

app = typer.Typer(
    name="hf-credit",
    help="Credit assignment for language agents: which decision deserves the credit?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hf-credit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    traceback: Annotated[bool, typer.Option("--traceback", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if traceback:
        os.environ["HF_CREDIT_TRACEBACK"] = "1"


app.command(short_help="List the environments, their options and their oracles.")(envs)
app.command(short_help="List the methods of credit assignment.")(methods)
app.command(short_help="List the metrics, print the card of one, or write it as a Space.")(metrics)
app.command(short_help="List the recipes of trainings, or print one.")(recipes)
app.command(short_help="Play a game in the terminal.")(play)
app.command("init-policy", short_help="Build a small policy from scripted play.")(init_policy)
app.command(
    short_help="Train a policy from a recipe.",
    # What it does not know itself are fields of the recipe.
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,  # its own shows those fields too
)(train)
app.command(short_help="Play held-out tasks with a policy.")(evaluate)
app.command(short_help="Measure how accurate the credit of a policy's decisions is.")(diagnose)
app.command(short_help="Give credit to the replies of recorded traces.")(credit)
app.command(short_help="Measure methods against exact values.")(bench)
app.command(short_help="Write a report of a run.")(report)
app.command(short_help="Train with and without process rewards, and compare.")(demo)
app.add_typer(agent, name="agent", short_help="Check a program that calls a model, before training it.")
app.add_typer(publish, name="publish", short_help="Publish environments, tasks, episodes, checkpoints and more.")
app.command(short_help="Enter results on a leaderboard.")(submit)
app.add_typer(leaderboard, name="leaderboard", short_help="Open, verify, rank and show a leaderboard.")
app.add_typer(hub, name="hub", short_help="Serve a Hugging Face Hub of your own.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `hf-credit` with these arguments, or with those of the process.

    What a user can mend ends in one sentence on stderr and exit code 1.
    """
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # of interpreters that libraries start
    try:
        search_here(typed_code(sys.argv[1:] if arguments is None else arguments))
        app(arguments, prog_name="hf-credit")
    except Exception as error:
        if os.environ.get("HF_CREDIT_TRACEBACK") or _told(error) is None:
            raise
        typer.echo(f"Error: {redacted(_told(error))}", err=True)
        sys.exit(1)


def _told(error: Exception) -> str | None:
    """An error in one sentence, `None` for one that only its traceback explains."""
    if isinstance(error, ValueError | OSError):
        return str(error) or type(error).__name__
    if unmet := _unmet():
        return unmet
    if isinstance(error, ImportError):
        return str(error) or type(error).__name__
    # The Hub's library speaks through one of these, whose errors are no OSError.
    if any(kind.__module__.startswith("httpx") for kind in type(error).__mro__):
        return (
            f"the Hub must be reachable, got {type(error).__name__} ({error}); connect, or name local folders and "
            "leave push_to_hub out."
        )
    return None


_BESIDE = {"code-sandbox"}
"""Our own, in packages/: no index has them, and one of that name would be another's."""


def _unmet() -> str | None:
    """The first package whose version is outside the range that this library works with, in one sentence."""
    for line in importlib.metadata.requires("hf-credit") or ():
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            got = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            got = "none"
        if got == "none" or not wanted.specifier.contains(got, prereleases=True):
            need = f"{wanted.name}{wanted.specifier}"
            how = "from a clone by: make venv" if wanted.name in _BESIDE else f"by: pip install '{need}'"
            return f"hf-credit {__version__} needs {need}, got {got}; install it {how}"
    return None
