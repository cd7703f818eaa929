"""`hf-credit hub`: a Hugging Face Hub of one's own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

hub = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Serve a Hugging Face Hub of your own, for a laptop, a cluster without internet, or tests.",
)


def _needed() -> None:
    """Says what to install where the server's libraries are missing."""
    for name in ("starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"a Hub of your own needs the extra 'hub', got no {name}; pip install 'hf-credit[hub]'.")


@hub.command(short_help="Serve the Hub of a folder.")
def serve(
    folder: Annotated[Path, typer.Argument(help="In which everything lies; made if it is not there.")],
    port: Annotated[int, typer.Option(help="To listen at, any free one for 0.")] = 8765,
    host: Annotated[str, typer.Option(help="Address to listen at; beyond loopback put TLS before it.")] = "127.0.0.1",
    token_file: Annotated[
        Path | None, typer.Option(help="Whose token may do everything; written if it is not there.")
    ] = None,
    rate_limit: Annotated[int | None, typer.Option(help="Requests of one caller in five minutes.")] = None,
    faults: Annotated[Path | None, typer.Option(help="JSON of failures on demand, for tests of clients.")] = None,
) -> None:
    """Serves repositories of models, datasets and Spaces to huggingface_hub, hf, datasets, transformers and others.

    The folder's env.sh sets what clients need: source it before they start.

    \b
    Examples:
      hf-credit hub serve my-hub &
      . my-hub/env.sh
      hf upload me/my-model ./my-model
    """
    _needed()
    from hf_credit.hub.server import Faults, Limits
    from hf_credit.hub.server.running import serve as run
    from hf_credit.untrusted import read_json

    rules = None if faults is None else Faults.from_json(read_json(faults))
    run(folder, host, port, token_file=token_file, faults=rules, limits=Limits(requests=rate_limit))


_Folder = Annotated[Path, typer.Argument(help="Of the Hub, be it served or not.")]


@hub.command(short_help="Make a token, or end all of an owner.")
def token(
    folder: _Folder,
    name: Annotated[str, typer.Argument(help="The owner, who authors commits.")],
    rights: Annotated[str, typer.Option(help="none, read, write or admin: for repositories not named.")] = "read",
    repo: Annotated[list[str] | None, typer.Option(help="owner/name=right, or owner/*=right; repeatable.")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="End every token of this owner instead.")] = False,
) -> None:
    """Prints a new token, once: the Hub keeps its hash alone.

    \b
    Examples:
      hf-credit hub token my-hub ada --rights write
      hf-credit hub token my-hub bob --repo 'bob/*=write'    # reads all, writes its own, may open pull requests
      hf-credit hub token my-hub bob --revoke
    """
    _needed()
    from hf_credit.hub.server.auth import revoke_tokens
    from hf_credit.hub.server.running import new_token, open_database

    if revoke:
        with open_database(folder) as database:
            typer.echo(f"{revoke_tokens(database, name)} tokens of {name} ended")
        return
    repos = {}
    for one in repo or []:
        which, equals, right = one.partition("=")
        if not equals:
            raise ValueError(f"--repo must be owner/name=right, got {one!r}; add the right.")
        repos[which] = right
    typer.echo(new_token(folder, name, rights, repos))


@hub.command(short_help="Read every object again and tell what is wrong.")
def check(folder: _Folder) -> None:
    """Reads every commit, folder and file again, and compares each with its hash.

    Exit code 1 where something is missing or other than it was.
    """
    _needed()
    from hf_credit.hub.server.running import open_hub
    from hf_credit.hub.server.upkeep import check as look

    with open_hub(folder) as opened:
        found = list(look(opened))
        counts = {
            what: opened.database.read(f"SELECT COUNT(*) AS number FROM {what}")[0]["number"]
            for what in ("repos", "commits", "blobs")
        }
    for problem in found:
        typer.echo(problem)
    shown = f"{counts['repos']} repositories, {counts['commits']} commits, {counts['blobs']} files"
    typer.echo(f"{shown}: {len(found) or 'no'} problem{'' if len(found) == 1 else 's'}")
    if found:
        raise typer.Exit(1)


@hub.command("run-space", short_help="Run a Space on this machine, by your consent.")
def run_space(
    folder: _Folder,
    space: Annotated[str, typer.Argument(help="owner/name")],
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "main",
    port: Annotated[int, typer.Option(help="For it to listen at, on loopback.")] = 7860,
    consent: Annotated[str | None, typer.Option(help="owner/name@commit, in place of the question.")] = None,
) -> None:
    """Runs the code of a Space as you, without your tokens and with its own variables and secrets.

    A Space that needs Docker is not run. Read its files before you consent.
    """
    _needed()
    from hf_credit.hub.server.run_space import run_space as run

    def asked(name: str, command: list[str]) -> bool:
        if consent is not None:
            return consent == name
        typer.echo(f"{name} will run: {' '.join(command)}")
        return typer.confirm("This is code of others and can do what you can. Run it?")

    raise typer.Exit(run(folder, space, asked, revision, port))
