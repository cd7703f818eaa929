"""`hf-credit methods`: who can give credit."""

from __future__ import annotations

import typer

# What only a trainer makes of several methods.
_TRAINERS = {"truncated_ppo": "T3: PPO, GRPO or GSPO (--algorithm) over many turns, cut where an episode stalls."}


def methods() -> None:
    """Lists what `--method` of `hf-credit train` can be, with a sentence each.

    Installed packages add their own by entry points; one of your own is named as module:factory.

    \b
    Examples:
      hf-credit methods
      hf-credit train --method ppo --help    # its options and their defaults
      hf-credit train sudoku_micro --method outcome_reward
    """
    from hf_credit import methods

    sentences = {name: methods.summary(name) for name in methods.known()}
    for name, sentence in sorted({**sentences, **_TRAINERS}.items()):
        typer.echo(f"{name}\n      {sentence}")
