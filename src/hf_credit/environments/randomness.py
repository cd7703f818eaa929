"""Random generators derived from seeds, so that no object has to hold one."""

from __future__ import annotations

import hashlib
import random


def derive(seed: int, *parts: int | str) -> int:
    """A 64-bit seed that depends on `seed` and all `parts`, the same on every machine."""
    text = "\x1f".join([str(seed), *map(str, parts)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def stream(seed: int, *parts: int | str) -> random.Random:
    """A new random generator that depends on `seed` and all `parts`, which name its purpose."""
    return random.Random(derive(seed, *parts))
