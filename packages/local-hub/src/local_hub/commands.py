"""The commands, as functions of `app` and as the script `local-hub`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="local-hub",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Serve a Hugging Face Hub of your own, for a laptop, a cluster without internet, or tests.",
)


@app.command(short_help="Serve the Hub of a folder.")
def serve(
    folder: Annotated[Path, typer.Argument(help="In which everything lies; made if it is not there.")],
    port: Annotated[int, typer.Option(help="To listen at, any free one for 0.")] = 8765,
    host: Annotated[str, typer.Option(help="Address to listen at; beyond loopback put TLS before it.")] = "127.0.0.1",
    token_file: Annotated[
        Path | None, typer.Option(help="Whose token may do everything; written if it is not there.")
    ] = None,
    rate_limit: Annotated[int | None, typer.Option(help="Requests of one caller in five minutes.")] = None,
) -> None:
    """Serves repositories of models, datasets and Spaces to huggingface_hub, hf, datasets, transformers and others.

    The folder's env.sh sets what clients need: source it before they start.

    \b
    Example, from a shell, after `serve my-hub &`:
      . my-hub/env.sh
      hf upload me/my-model ./my-model
    """
    from local_hub.limits import Limits
    from local_hub.running import serve as run

    run(folder, host, port, token_file=token_file, limits=Limits(requests=rate_limit))


_Folder = Annotated[Path, typer.Argument(help="Of the Hub, be it served or not.")]


@app.command(short_help="Make a token, or end all of an owner.")
def token(
    folder: _Folder,
    name: Annotated[str, typer.Argument(help="The owner, who authors commits.")],
    rights: Annotated[str, typer.Option(help="none, read, write or admin: for repositories not named.")] = "read",
    repo: Annotated[list[str] | None, typer.Option(help="owner/name=right, or owner/*=right; repeatable.")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="End every token of this owner instead.")] = False,
) -> None:
    """Prints a new token, once: the Hub keeps its hash alone.

    \b
    Examples of what follows `token`:
      my-hub ada --rights write
      my-hub bob --repo 'bob/*=write'    # reads all, writes its own, may open pull requests
      my-hub bob --revoke
    """
    from local_hub.auth import revoke_tokens
    from local_hub.running import new_token, open_database

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


@app.command(short_help="Read every object again and tell what is wrong.")
def check(folder: _Folder) -> None:
    """Reads every commit, folder and file again, and compares each with its hash.

    Exit code 1 where something is missing or other than it was.
    """
    from local_hub.running import open_hub
    from local_hub.upkeep import check as look

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


@app.command("run-space", short_help="Run a Space on this machine, by your consent.")
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
    from local_hub.run_space import run_space as run

    def asked(name: str, command: list[str]) -> bool:
        if consent is not None:
            return consent == name
        typer.echo(f"{name} will run: {' '.join(command)}")
        return typer.confirm("This is code of others and can do what you can. Run it?")

    raise typer.Exit(run(folder, space, asked, revision, port))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `local-hub` with these arguments, or with those of the process.

    What a user can mend ends in one sentence on stderr and exit code 1.
    """
    try:
        app(arguments, prog_name="local-hub")
    except (ValueError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
