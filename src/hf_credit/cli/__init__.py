"""The command `hf-credit`: one module per command. Each imports heavy libraries only when it runs."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys

# Must come before other imports: a command must not import libraries from the current folder, which may be untrusted.
# `python -m` puts it first on the path, and an empty entry of PYTHONPATH adds it.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    del sys.path[0]
if "" in os.environ.get("PYTHONPATH", "-").split(os.pathsep):
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]

from collections.abc import Sequence
from types import ModuleType
from typing import Annotated

import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hf_credit._version import __version__
from hf_credit.cli.agent import agent
from hf_credit.cli.credit import credit
from hf_credit.cli.demo import demo
from hf_credit.cli.diagnose import diagnose
from hf_credit.cli.envs import envs
from hf_credit.cli.evaluate import evaluate
from hf_credit.cli.init_policy import init_policy
from hf_credit.cli.lists import methods, metrics, recipes
from hf_credit.cli.options import typed_code
from hf_credit.cli.others import add_commands
from hf_credit.cli.play import play
from hf_credit.cli.preview import preview
from hf_credit.cli.publish import publish
from hf_credit.cli.report import report
from hf_credit.cli.train import train
from hf_credit.cli.warm_up import warm_up
from hf_credit.optional_packages import how_to_install, unmarked
from hf_credit.redaction import redacted, written_out
from hf_credit.trust import search_here
from local_hub.commands import app as hub

app = typer.Typer(
    name="hf-credit",
    help="Credit assignment for language agents: which decision deserves the credit?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# All other options are fields of the recipe.
_FIELDS = {"allow_extra_args": True, "ignore_unknown_options": True}


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
app.command(short_help="List the metrics, print a metric's card, or write it as a Space.")(metrics)
app.command(short_help="List the training recipes, or print one.")(recipes)
app.command(short_help="Play a game in the terminal.")(play)
app.command("init-policy", short_help="Build a small policy from scripted play.")(init_policy)
app.command(short_help="Look at a few episodes of a recipe before a training.", context_settings=_FIELDS)(preview)
app.command(
    "warm-up", short_help="Train a model on an oracle's or a script's play, or on records.", context_settings=_FIELDS
)(warm_up)
app.command(
    short_help="Train a policy from a recipe.",
    context_settings=_FIELDS,
    add_help_option=False,  # `train` has a --help that also shows these fields
)(train)
app.command(short_help="Play held-out tasks with a policy.")(evaluate)
app.command(short_help="Measure how accurate the credit of a policy's decisions is.")(diagnose)
app.command(short_help="Assign credit to the replies of recorded traces.")(credit)
app.command(short_help="Write a report of a run.")(report)
app.command(short_help="Train on few decisions and on many, and compare.")(demo)
app.add_typer(agent, name="agent", short_help="Check a program that calls a model before you train it.")
app.add_typer(publish, name="publish", short_help="Publish environments, tasks, episodes, checkpoints and more.")
app.add_typer(hub, name="hub", short_help="Serve your own Hugging Face Hub.")
add_commands(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `hf-credit` with `arguments`, by default those of the process.

    An error that a user can fix is printed in one sentence on stderr, with exit code 1.
    """
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # for interpreters that libraries start
    if os.path.exists("matplotlibrc"):  # matplotlib would read it, and some versions run Python that it holds
        with contextlib.chdir(os.sep), contextlib.suppress(ImportError):
            import matplotlib  # noqa: F401
    try:
        search_here(typed_code(sys.argv[1:] if arguments is None else arguments))
        app(arguments, prog_name="hf-credit")
    except Exception as error:
        sentence = _in_one_sentence(error)
        if os.environ.get("HF_CREDIT_TRACEBACK") or sentence is None:
            if hint := _unmet(error):
                error.add_note(hint)
            raise
        typer.echo(f"Error: {written_out(redacted(sentence))}", err=True)  # it may quote a stranger's file
        sys.exit(1)


def _in_one_sentence(error: Exception) -> str | None:
    """Describes an error, or returns `None` if only its traceback explains it."""
    if isinstance(error, ValueError | OSError):
        return str(error) or type(error).__name__
    if isinstance(error, ImportError):
        return "; ".join(filter(None, (str(error) or type(error).__name__, _unmet(error))))
    # huggingface_hub connects with httpx or httpx2, whose errors are not OSErrors.
    if any(kind.__module__.startswith("httpx") for kind in type(error).__mro__):
        return (
            f"the Hub must be reachable, got {type(error).__name__} ({error}); connect, or name local folders and "
            "leave push_to_hub out."
        )
    return None


def _unmet(error: Exception) -> str | None:
    """Names the requirement of this library that an import or an attribute error comes from, in one sentence, if the
    package is missing or has an unsupported version."""
    if isinstance(error, ImportError):
        modules = [error.name or ""]
    elif isinstance(error, AttributeError):
        lacks = error.obj if isinstance(error.obj, type) else type(error.obj)
        modules = (
            [error.obj.__name__] if isinstance(error.obj, ModuleType) else [one.__module__ for one in lacks.__mro__]
        )
    else:
        return None
    packages = {module.partition(".")[0] for module in modules}
    found = importlib.metadata.packages_distributions()
    names = {canonicalize_name(name) for package in packages for name in (package, *found.get(package, ()))}
    extras = importlib.metadata.metadata("hf-credit").get_all("Provides-Extra") or ()
    for line in importlib.metadata.requires("hf-credit") or ():
        wanted = Requirement(line)
        if canonicalize_name(wanted.name) not in names:
            continue
        try:
            got = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            got = "none"
        if got == "none" or not wanted.specifier.contains(got, prereleases=True):
            of = [how for how in map(how_to_install, extras) if unmarked(wanted) in how]
            how = min(of, key=len) if of and got == "none" else f"pip install {unmarked(wanted)}"
            return f"hf-credit {__version__} needs {wanted.name}{wanted.specifier}, got {got}; install it by: {how}"
    return None
