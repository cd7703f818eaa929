"""What other libraries would write between the lines of a command, which its user cannot act on."""

from __future__ import annotations

import logging

from hf_credit.noise import silence_known_warnings


def be_quiet() -> None:
    """Keeps off the terminal: known warnings of libraries about each other, and bars for writing and reading files."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    # Tables of tensors that a model lacks, which is refused in one sentence (`hf_credit.loading`).
    logging.getLogger("transformers.modeling_utils").addFilter(lambda one: "LOAD REPORT" not in one.getMessage())
    silence_known_warnings()
