"""Silences messages of other libraries that a user cannot act on."""

from __future__ import annotations

import logging

from hf_credit.noise import silence_known_warnings


def be_quiet() -> None:
    """Silences known warnings of libraries about each other, and their progress bars for reading and writing files."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    # Tables of missing tensors: `hf_credit.loading` raises an error of one sentence instead.
    logging.getLogger("transformers.modeling_utils").addFilter(lambda one: "LOAD REPORT" not in one.getMessage())
    silence_known_warnings()
