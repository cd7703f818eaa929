"""Samplers of replies, one for all roles or one for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from hf_credit.rollouts.capabilities import TrainedRoles
from hf_credit.rollouts.episode import Context
from hf_credit.rollouts.interaction import Interaction, Request
from hf_credit.rollouts.pulse import PULSE

if TYPE_CHECKING:
    from typing_extensions import TypeIs


CONTINUATIONS = "continuations"
"""In place of a role, among the models of untrained ones: what plays continuations from recorded states."""


class BadReplyError(ConnectionError):
    """A sampler's reply cannot be one of the policy: the episode that asked for it ends in an error."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The tokens of a reply.

    Attributes:
        ids: the generated tokens, including an end-of-turn token.
        logprobs: the log-probability of each token in nats, or `None` if the sampler reports none.
    """

    ids: Sequence[int]
    logprobs: Sequence[float] | None = None


GenerateFn = Callable[[Sequence[Context]], Sequence[Generation]]
"""Returns a reply to each context, in order."""

SeededGenerateFn = Callable[[Sequence[Context], Sequence[int | None]], Sequence[Generation]]
"""The same with a seed for each context: replies with equal seeds are sampled with the same random numbers."""


class SubmittingSampler(Protocol):
    """A sampler of single requests, for all roles; it honours seeds if it has a true `seeded`."""

    def submit(self, role: str, context: Context, seed: int | None) -> Future[Generation]:
        """Requests a reply and returns its future, which may be cancelled.

        Args:
            role: the role that replies.
            context: what the model reads.
            seed: replies with equal seeds are sampled with the same random numbers; `None` for no seed.
        """


Asked = tuple[Any, Request, int | None]
"""A state, one of its requests, and the seed of the reply; `None` for no seed."""


class Player(ABC):
    """Replies in words and to the state, in place of a sampler of tokens; an `Engine` encodes what it says.

    Attributes:
        seeded: whether it honours seeds, else `None`.
    """

    seeded: ClassVar[bool | None] = None

    @abstractmethod
    def replies(self, asked: Sequence[Asked]) -> list[str | Exception]:
        """Returns the reply to each request, or an exception that ends its episode."""

    def taken(self) -> int:
        """Returns the tokens that a model read and wrote for it since the last call."""
        return 0


Samplers = GenerateFn | Player | Mapping[str, GenerateFn | Player] | SubmittingSampler
"""What replies: one for all roles, or one for each."""


def submits(generate: Samplers) -> TypeIs[SubmittingSampler]:
    """Returns whether a sampler takes single requests. It is asked for every reply, and `isinstance` would be slow."""
    return hasattr(generate, "submit")


def sample(
    generate: Samplers,
    roles: Sequence[str],
    contexts: Sequence[Context],
    seeds: Sequence[int | None],
) -> list[Generation]:
    """Returns the reply to each context from the sampler of its role, which gets all its contexts in one call.

    Args:
        generate: the sampler of all roles, or one for each, called in the order of the mapping. A mapping with a
            method `together(roles, contexts, seeds)` is called only once, by this method.
        roles: the role of each context.
        contexts: the contexts, at least one.
        seeds: the seed of each context; `None` for no seed.

    Raises:
        ValueError: a role has no sampler, or a sampler does not reply to every context.
    """
    refuse_missing(generate, roles)
    seeded = honours_seeds(generate) and any(seed is not None for seed in seeds)
    together = getattr(generate, "together", None)
    found: dict[int, Generation] = {}
    if together is not None and isinstance(generate, Mapping):
        found.update(enumerate(together(roles, contexts, seeds if seeded else None)))
    else:
        samplers: Any = generate if isinstance(generate, Mapping) else {None: generate}
        for name, sampler in samplers.items():
            if indices := [index for index, role in enumerate(roles) if name in (role, None)]:
                part = [contexts[index] for index in indices]
                generations = sampler.seeded(part, [seeds[index] for index in indices]) if seeded else sampler(part)
                found.update(zip(indices, generations, strict=True))
    replies = [found[index] for index in range(len(contexts))]
    PULSE.replied([len(reply.ids) for reply in replies])
    return replies


def honours_seeds(generate: Samplers) -> bool:
    """Returns whether every sampler honours seeds."""
    samplers = generate.values() if isinstance(generate, Mapping) else [generate]
    return all(getattr(sampler, "seeded", None) is not None for sampler in samplers)


def refuse_missing(generate: Samplers, roles: Iterable[str]) -> None:
    """Rejects roles without a sampler."""
    if isinstance(generate, Mapping):
        for role in roles:
            if role not in generate:
                raise ValueError(
                    f"every role must have a sampler, got none for {role!r} in a mapping for "
                    f"{', '.join(generate) or 'no role'}; add one."
                )


def require_untrained(interaction: Interaction[Any], roles: Iterable[str]) -> None:
    """Rejects samplers for roles that are trained."""
    untrained = TrainedRoles(interaction).untrained
    for role in roles:
        if role not in (*untrained, CONTINUATIONS):
            raise ValueError(
                f"only untrained roles may have a separate model, got one for {role!r}, where the untrained roles of "
                f"{interaction.name!r} are {', '.join(untrained) or 'none'}; leave the role to the policy."
            )
