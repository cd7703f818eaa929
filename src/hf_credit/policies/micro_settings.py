"""The settings of micro policies, which the command line shows without their libraries."""

from __future__ import annotations

from dataclasses import dataclass

from hf_credit.options import Count, Options, Positive, Share
from hf_credit.playing import Prompts, Sampling

MICRO_PROMPTS = Prompts(history="current", instructions=False)
"""Its prompts, short ones, since it knows its task."""

# In tokens of a micro policy, with the end token, an action of a board game has at most 8, a relay's message 2, and an
# action that guesses eight weights and asks for two movies 29.
MICRO_SAMPLING = Sampling(max_new_tokens=32)
"""Its sampling parameters, unless a scripted reply of the warm-up is longer."""


@dataclass(frozen=True, kw_only=True)
class MicroConfig(Options):
    """The size and warm-up of a micro policy.

    Args:
        hidden_size: width of the model.
        layers: number of layers.
        heads: number of attention heads, each `2 * hidden_size / heads` wide.
        quality: probability in [0, 1] that the imitated player plays well: in an environment an oracle-valid action,
            and otherwise a random legal one.
        episodes: number of scripted episodes to imitate.
        epochs: passes over them.
        batch_rows: rows per step of the warm-up.
        learning_rate: maximum of the warm-up's cosine schedule.
        seed: of the weights, of the tasks' order and of the scripted player.

    Raises:
        ValueError: a number is out of range, or `hidden_size` is not a multiple of `heads`.
    """

    hidden_size: Count = 64
    layers: Count = 2
    heads: Count = 4
    quality: Share = 0.7
    episodes: Count = 3000
    epochs: Count = 1
    batch_rows: Count = 32
    learning_rate: Positive = 4e-3
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size must be a multiple of heads, got {self.hidden_size} and {self.heads}; "
                "use 64 and 4, for example."
            )
