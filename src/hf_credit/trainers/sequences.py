"""Checks that episodes are one row each, which `importance_sampling_level="sequence"` needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hf_credit.rollouts import Interaction, Row
from hf_credit.rollouts.capabilities import Learned, Shown

_ONE_ROW = "importance_sampling_level='sequence' needs episodes of one row"


def require_one_row(interaction: Interaction[Any], args: Any) -> None:
    """Refuses an Interaction whose episodes are several rows, if the settings use the ratio of sequences."""
    if args.importance_sampling_level != "sequence":
        return
    untrained = Learned(interaction).untrained
    learning = [role for role in interaction.roles if role not in untrained]
    if len(learning) > 1:
        raise ValueError(f"{_ONE_ROW}, got the roles {', '.join(learning)}; take 'token'.")
    if (history := Shown(interaction).history) != "append":
        raise ValueError(f"{_ONE_ROW}, got history={history!r}; take history='append', or 'token'.")


def refuse_several_rows(rows_of: Sequence[Sequence[Row]]) -> None:
    """Refuses episodes of several rows."""
    most = max(map(len, rows_of), default=0)
    if most > 1:
        raise ValueError(f"{_ONE_ROW}, got {most}, as a context does not extend the one before; take 'token'.")
