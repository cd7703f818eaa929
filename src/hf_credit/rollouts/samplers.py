"""Who replies: one policy for all roles, or one for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from hf_credit.rollouts.interaction import Interaction


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A reply in tokens.

    Attributes:
        ids: the tokens produced, an end-of-turn token included.
        logprobs: the log-probability of each in nats, or `None` where the sampler reports none.
    """

    ids: Sequence[int]
    logprobs: Sequence[float] | None = None


GenerateFn = Callable[[Sequence[Sequence[int]]], Sequence[Generation]]
"""Replies to contexts, in their order. The contexts differ from each other and are not grouped."""

SeededGenerateFn = Callable[[Sequence[Sequence[int]], Sequence[int | None]], Sequence[Generation]]
"""The same where each context comes with a seed: replies of one seed are drawn with the same random numbers."""


@runtime_checkable
class SubmittingSampler(Protocol):
    """Replies to single requests, of all roles; it honours seeds where it has a true `seeded`."""

    def submit(self, role: str, context: Sequence[int], seed: int | None) -> Future[Generation]:
        """Asks for a reply, which arrives when it is there; `cancel` of it says that nobody waits for it any more.

        Args:
            role: who replies.
            context: the tokens it is given.
            seed: replies of one seed are drawn with the same random numbers; `None` names none.
        """


def sample(
    generate: GenerateFn | Mapping[str, GenerateFn] | SubmittingSampler,
    roles: Sequence[str],
    contexts: Sequence[Sequence[int]],
    seeds: Sequence[int | None],
) -> list[Generation]:
    """The reply to each context, by the sampler of its role, which is asked once.

    Args:
        generate: the sampler of all roles, or that of each, asked in the order of the mapping. A mapping with a method
            `together(roles, contexts, seeds)` is asked once for all of them.
        roles: who replies to each context.
        contexts: at least one.
        seeds: one for each context; `None` names no random numbers.

    Raises:
        ValueError: a role has no sampler, or a sampler does not answer every context.
    """
    if isinstance(generate, SubmittingSampler):
        futures = [generate.submit(*one) for one in zip(roles, contexts, seeds, strict=True)]
        return [future.result() for future in futures]
    seeded = honours_seeds(generate) and any(seed is not None for seed in seeds)
    together = getattr(generate, "together", None)
    if together is not None and isinstance(generate, Mapping):
        refuse_missing(generate, roles)
        return list(together(roles, contexts, seeds if seeded else None))
    replies: dict[int, Generation] = {}
    for sampler, places in _shares(generate, roles):
        asked = [contexts[place] for place in places]
        answers = sampler.seeded(asked, [seeds[place] for place in places]) if seeded else sampler(asked)
        replies.update(zip(places, answers, strict=True))
    return [replies[place] for place in range(len(contexts))]


def honours_seeds(generate: GenerateFn | Mapping[str, GenerateFn] | SubmittingSampler) -> bool:
    """Whether every sampler takes seeds, and draws replies of one seed with the same random numbers."""
    samplers = generate.values() if isinstance(generate, Mapping) else [generate]
    return all(getattr(sampler, "seeded", None) is not None for sampler in samplers)


def counted(
    generate: GenerateFn | Mapping[str, GenerateFn], on_replies: Callable[[int], None] | None
) -> GenerateFn | Mapping[str, GenerateFn]:
    """The same samplers, which tell after each call how many replies it brought; they honour seeds where those do."""
    if on_replies is None:
        return generate
    if isinstance(generate, Mapping):
        return {role: _Counted(own, on_replies) for role, own in generate.items()}
    return _Counted(generate, on_replies)


class _Counted:
    def __init__(self, generate: GenerateFn, on_replies: Callable[[int], None]) -> None:
        self.generate = generate
        self.on_replies = on_replies
        self.seeded = self._seeded if honours_seeds(generate) else None

    def __call__(self, contexts: Sequence[Sequence[int]]) -> Sequence[Generation]:
        return self._told(self.generate(contexts))

    def _seeded(self, contexts: Sequence[Sequence[int]], seeds: Sequence[int | None]) -> Sequence[Generation]:
        return self._told(self.generate.seeded(contexts, seeds))  # type: ignore[attr-defined]

    def _told(self, replies: Sequence[Generation]) -> Sequence[Generation]:
        self.on_replies(len(replies))
        return replies


def refuse_missing(generate: GenerateFn | Mapping[str, GenerateFn] | SubmittingSampler, roles: Iterable[str]) -> None:
    """Refuses roles that nobody replies for.

    Raises:
        ValueError: a role has no sampler.
    """
    if isinstance(generate, Mapping):
        for role in roles:
            if role not in generate:
                raise ValueError(
                    f"every role must have a sampler, got none for {role!r} beside those of "
                    f"{', '.join(generate) or 'nobody'}; add one."
                )


def require_untrained(interaction: Interaction[Any], roles: Iterable[str]) -> None:
    """Refuses samplers of roles that the policy has to speak for.

    Raises:
        ValueError: something is learned from one of them.
    """
    from hf_credit.rollouts.capabilities import Learned

    untrained = Learned(interaction).untrained
    for role in roles:
        if role not in untrained:
            raise ValueError(
                f"only roles that nothing is learned from may have a model of their own, got one for {role!r}, where "
                f"{interaction.name!r} has {', '.join(untrained) or 'none'}; leave it to the policy."
            )


def _shares(generate: GenerateFn | Mapping[str, GenerateFn], roles: Sequence[str]) -> Iterator[tuple[Any, list[int]]]:
    """Each sampler that is wanted, and the places it is wanted at."""
    if not isinstance(generate, Mapping):
        yield generate, list(range(len(roles)))
        return
    refuse_missing(generate, roles)
    for role, sampler in generate.items():
        if places := [place for place, name in enumerate(roles) if name == role]:
            yield sampler, places
