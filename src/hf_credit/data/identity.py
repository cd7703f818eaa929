"""Which problem it is, and which set of problems: hashes that are the same everywhere (paper C3, Appendix F)."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable


def uid_sha(text: str) -> str:
    r"""The identifier of a problem: SHA-256 of its text in Unicode form C, with newlines `\n`, no blanks at the end.

    Paper C3, Appendix F. It does not name the hash, nor say whether the blanks are those of each line or of the text:
    here SHA-256 as for splits, and those of the text.

    Args:
        text: the raw input field of the dataset.

    Returns:
        64 hexadecimal digits.
    """
    unified = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").rstrip()
    return hashlib.sha256(unified.encode("utf-8", "surrogatepass")).hexdigest()


def fingerprint(identifiers: Iterable[str]) -> str:
    r"""The fingerprint of a split: SHA-256 of its sorted identifiers, whatever order they come in.

    Paper C3, Appendix F. It does not say how the array becomes bytes: here one a line, each ended by `\n`, in ASCII.

    Args:
        identifiers: the `uid_sha` of every problem, of equal ones each.

    Returns:
        64 hexadecimal digits.
    """
    return hashlib.sha256("".join(f"{one}\n" for one in sorted(identifiers)).encode("ascii")).hexdigest()
