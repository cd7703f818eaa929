"""What the ratio of a whole sequence asks of episodes: that each is one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hf_credit.rollouts import Interaction, Row
from hf_credit.rollouts.capabilities import Learned, Shown

_ONE_ROW = "importance_sampling_level='sequence' takes the ratio of a row as that of an episode, which must be one row"


def require_one_row(interaction: Interaction[Any], args: Any) -> None:
    """Refuses the ratio of sequences where episodes are known to be several.

    Raises:
        ValueError: several roles speak, or a context holds the present only.
    """
    if args.importance_sampling_level != "sequence":
        return
    untrained = Learned(interaction).untrained
    learning = [role for role in interaction.roles if role not in untrained]
    if len(learning) > 1:
        raise ValueError(f"{_ONE_ROW}, got the roles {', '.join(learning)}; take 'token'.")
    if Shown(interaction).history == "current":
        raise ValueError(f"{_ONE_ROW}, got history='current'; take history='append', or 'token'.")


def refuse_several_rows(rows_of: Sequence[Sequence[Row]]) -> None:
    """Refuses episodes that came to several rows.

    Args:
        rows_of: of each episode.

    Raises:
        ValueError: one did.
    """
    most = max([len(rows) for rows in rows_of] + [0])
    if most > 1:
        raise ValueError(
            f"{_ONE_ROW}, got {most} of one whose contexts do not each go on from the last; take 'token'."
        )
