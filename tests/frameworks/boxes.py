"""The task of all programs here: which box holds what is wanted?"""

from __future__ import annotations

BOXES = {"a": "tea", "b": "salt"}


def right(task, answer):
    return float(BOXES.get(answer) == task["wanted"])
