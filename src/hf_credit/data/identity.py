"""Hashes that identify problems and sets of problems (paper C3, Appendix F)."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable


def uid_sha(text: str) -> str:
    r"""Returns the identifier of a problem: hex SHA-256 of its text in form C, newlines as `\n`, right-stripped.

    Paper C3, Appendix F. The paper leaves open the hash (here SHA-256, as for splits) and whether blanks are stripped
    from each line or from the whole text (here the text).

    Args:
        text: the raw input field of the dataset.
    """
    unified = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").rstrip()
    return hashlib.sha256(unified.encode("utf-8", "surrogatepass")).hexdigest()


def fingerprint(identifiers: Iterable[str]) -> str:
    r"""Returns the fingerprint of a split: SHA-256, in hexadecimal, of its sorted identifiers.

    Paper C3, Appendix F. The paper leaves open how the array becomes bytes: here in ASCII, each identifier followed by
    `\n`.

    Args:
        identifiers: the `uid_sha` of every problem in any order, duplicates included.
    """
    return hashlib.sha256("".join(f"{uid}\n" for uid in sorted(identifiers)).encode("ascii")).hexdigest()
