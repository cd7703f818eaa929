"""What other libraries would write between the lines of a command, which its user cannot act on."""

from __future__ import annotations

from hf_credit.noise import silence_known_warnings


def be_quiet() -> None:
    """Keeps off the terminal: known warnings of libraries about each other, and bars for writing and reading files."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    silence_known_warnings()
