"""How a policy plays: under which prompts, and how its replies are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from hf_credit.boundary import Range
from hf_credit.options import Count, NotNegative, Options, Positive, Share
from hf_credit.validators import finite_number

_MAX_TOKENS = 2**24  # of a reply: more than any model's context

History = Literal["append", "rendered", "current"]

# What a file means that leaves a parameter out: the defaults of the versions that wrote such files.
_UNSAID = {"max_new_tokens": 4096, "temperature": 0.6, "top_p": 0.95, "top_k": 20}


@dataclass(frozen=True, kw_only=True)
class Prompts(Options):
    """What of an environment a policy is shown, and for how many turns.

    Args:
        history: of earlier turns, `"append"` shows all, with the thoughts in earlier replies, so that contexts grow
            turn by turn; `"rendered"` what the chat template writes of them when the model is served, mostly without
            thoughts; `"current"` nothing, only the current observation, for fully observable environments.
        instructions: whether prompts begin with the environment's instructions, which only a policy trained on the
            environment can do without.
        max_turns: maximum number of actions of an episode; that of the environment if `None`.

    Raises:
        ValueError: a value does not fit.
    """

    history: History = "append"
    instructions: bool = True
    max_turns: Count | None = None


@dataclass(frozen=True, kw_only=True)
class Sampling(Options):
    """Sampling parameters of replies.

    The defaults are neutral, as those of TRL's configs: replies are drawn from the policy's own distribution. They are
    long enough for thoughts.

    Args:
        max_new_tokens: maximum length of a reply in tokens.
        temperature: divides the logits; 0 is greedy decoding.
        top_p: probability of the nucleus, 1 for all tokens.
        top_k: number of the most probable tokens to sample from, 0 for all.
        min_p: least probability of a token, as a share of that of the most probable one; 0 for all.
        repetition_penalty: divides positive logits of tokens that the context or the reply has, and multiplies
            negative ones; 1 for none.

    Raises:
        ValueError: a value is not a number, or out of range.
    """

    max_new_tokens: Annotated[int, Range(1, _MAX_TOKENS)] = 4096
    temperature: NotNegative = 1.0
    top_p: Annotated[float, Range(above=0, most=1)] = 1.0
    top_k: Annotated[int, Range(0)] = 0
    min_p: Share = 0.0
    repetition_penalty: Positive = 1.0

    def require_whole(self) -> None:
        """Refuses what draws from another distribution than that of the logits over the temperature.

        Raises:
            ValueError: the temperature is 0, or another parameter is not neutral.
        """
        divides_logits(self.temperature)
        neutral = Sampling(max_new_tokens=self.max_new_tokens, temperature=self.temperature)
        for name, value in vars(neutral).items():
            if (given := getattr(self, name)) != value:
                raise ValueError(f"{name} must be {value} where values are exact, got {given}; set it so.")


def as_written(sampling: Any) -> Any:
    """The parameters in a file, with those that it leaves out; what is no mapping is returned as it is."""
    return {**_UNSAID, **sampling} if isinstance(sampling, Mapping) else sampling


def divides_logits(temperature: float) -> float:
    """Returns a temperature that gives each token a probability.

    Raises:
        ValueError: it is not above 0.
    """
    return finite_number("temperature", temperature, above=0)
