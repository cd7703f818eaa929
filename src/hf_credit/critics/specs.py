"""The kinds of predictions of critics."""

from __future__ import annotations

from dataclasses import dataclass

from hf_credit.validators import one_of

OUTPUTS = ("value", "probability", "beliefs")


@dataclass(frozen=True, kw_only=True)
class CriticSpec:
    """What a critic predicts at each position of an input.

    Args:
        output: a `"value"` in the unit of the reward, trained by squared error; a `"probability"`, by cross-entropy;
            or `"beliefs"`, a distribution over the values of each slot, by a linear head on the policy's hidden
            states.
        slots: number of values of each belief slot, at least 2; empty for other outputs.

    Raises:
        ValueError: `output` is unknown, or `slots` do not fit it.
    """

    output: str = "value"
    slots: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        one_of("output of a critic", self.output, OUTPUTS)
        if (self.output == "beliefs") != bool(self.slots) or any(size < 2 for size in self.slots):
            raise ValueError(
                "slots must be numbers of at least 2 with output='beliefs' and empty otherwise, got "
                f"{list(self.slots)} with output={self.output!r}; change one."
            )
