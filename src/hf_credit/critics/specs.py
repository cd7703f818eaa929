"""What a critic says of a text: a value, a probability, or what is believed."""

from __future__ import annotations

from dataclasses import dataclass

from hf_credit.validators import one_of

OUTPUTS = ("value", "probability", "beliefs")


@dataclass(frozen=True, kw_only=True)
class CriticSpec:
    """What a critic says at each place of a reading.

    Args:
        output: a `"value"` in the unit of the reward, learned by its squared error; a `"probability"`, by
            cross-entropy; or `"beliefs"`, a distribution over the values of each slot, one after the other, by a
            linear head on the policy's own hidden states.
        slots: of beliefs: how many values each has, at least 2.

    Raises:
        ValueError: `output` is unknown, or beliefs have no slots, or others have some.
    """

    output: str = "value"
    slots: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        one_of("output of a critic", self.output, OUTPUTS)
        if (self.output == "beliefs") != bool(self.slots) or any(size < 2 for size in self.slots):
            raise ValueError(
                f"slots are of beliefs, each of 2 values or more, got {list(self.slots)} with output={self.output!r}; "
                "change one."
            )
