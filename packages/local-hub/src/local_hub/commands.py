"""The commands of `local-hub`, and `app`, which other programs may add to their own."""

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
    folder: Annotated[Path, typer.Argument(help="Holds all data; created if missing.")],
    port: Annotated[int, typer.Option(help="To listen at; 0 for any free port.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen at; beyond loopback use a proxy with TLS.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that has all rights; written if missing.")
    ] = None,
) -> None:
    """Serves repositories of models, datasets and Spaces to huggingface_hub, hf, datasets, transformers and others.

    The folder's env.sh sets what clients need: source it before they start.

    \b
    Example, from a shell, after `serve my-hub &`:
      . my-hub/env.sh
      hf upload me/my-model ./my-model
    """
    from local_hub.running import serve as run

    run(folder, host, port, token_file=token_file)


_Folder = Annotated[Path, typer.Argument(help="Folder of the Hub, served or not.")]


@app.command(short_help="Create a token, or revoke all tokens of an owner.")
def token(
    folder: _Folder,
    name: Annotated[str, typer.Argument(help="The owner, who is the author of commits.")],
    rights: Annotated[str, typer.Option(help="none, read, write or admin: for repositories without --repo.")] = "read",
    repo: Annotated[list[str] | None, typer.Option(help="owner/name=right, or owner/*=right; repeatable.")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke all tokens of this owner instead.")] = False,
) -> None:
    """Prints a new token, once: the Hub keeps only its hash.

    \b
    Examples of arguments:
      my-hub ada --rights write
      my-hub bob --repo 'bob/*=write'    # reads all, writes its own, may open pull requests
      my-hub bob --revoke
    """
    from local_hub.auth import revoke_tokens
    from local_hub.running import new_token, open_hub

    if revoke:
        with open_hub(folder) as hub:
            typer.echo(f"revoked {revoke_tokens(hub.database, name)} tokens of {name}")
        return
    repos = {}
    for one in repo or []:
        which, equals, right = one.partition("=")
        if not equals:
            raise ValueError(f"--repo must be owner/name=right, got {one!r}; add the right.")
        repos[which] = right
    typer.echo(new_token(folder, name, rights, repos))


@app.command(short_help="Read all content and compare it with its hashes.")
def check(folder: _Folder) -> None:
    """Reads every commit, folder and file, and compares each with its hash.

    Exit code 1 if something is missing or has changed.
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `local-hub` with these arguments, or with those of the process.

    An error that the user can correct prints one sentence on stderr; the exit code is 1.
    """
    try:
        app(arguments, prog_name="local-hub")
    except (ValueError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
