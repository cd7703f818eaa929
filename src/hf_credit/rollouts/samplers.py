"""Samplers: one policy for all roles, or one for each."""

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
        ids: the generated tokens, including an end-of-turn token.
        logprobs: the log-probability of each in nats, or `None` if the sampler reports none.
    """

    ids: Sequence[int]
    logprobs: Sequence[float] | None = None


GenerateFn = Callable[[Sequence[Sequence[int]]], Sequence[Generation]]
"""Returns replies to contexts, in order. The contexts differ from each other and are not grouped."""

SeededGenerateFn = Callable[[Sequence[Sequence[int]], Sequence[int | None]], Sequence[Generation]]
"""The same with a seed for each context: replies with one seed are sampled with the same random numbers."""


@runtime_checkable
class SubmittingSampler(Protocol):
    """A sampler of single requests, for all roles; it honours seeds if it has a true `seeded`."""

    def submit(self, role: str, context: Sequence[int], seed: int | None) -> Future[Generation]:
        """Requests a reply and returns its future; cancel the future if the reply is no longer needed.

        Args:
            role: that replies.
            context: its tokens.
            seed: replies with one seed are sampled with the same random numbers; `None` for no seed.
        """


def sample(
    generate: GenerateFn | Mapping[str, GenerateFn] | SubmittingSampler,
    roles: Sequence[str],
    contexts: Sequence[Sequence[int]],
    seeds: Sequence[int | None],
) -> list[Generation]:
    """The reply to each context, by the sampler of its role, which is called once.

    Args:
        generate: the sampler of all roles, or one for each, called in the order of the mapping. A mapping with a
            method `together(roles, contexts, seeds)` is called once for all of them.
        roles: of each context.
        contexts: at least one.
        seeds: one for each context; `None` for no seeds.

    Raises:
        ValueError: a role has no sampler, or a sampler does not reply to every context.
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
    """Whether every sampler accepts seeds, and samples replies with one seed with the same random numbers."""
    samplers = generate.values() if isinstance(generate, Mapping) else [generate]
    return all(getattr(sampler, "seeded", None) is not None for sampler in samplers)


def counted(
    generate: GenerateFn | Mapping[str, GenerateFn], on_replies: Callable[[int], None] | None
) -> GenerateFn | Mapping[str, GenerateFn]:
    """The same samplers, which report after each call its number of replies; they honour seeds if those do."""
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
    """Rejects roles without a sampler.

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
    """Rejects samplers of roles that the policy must play.

    Raises:
        ValueError: one of them is trained.
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
    """Each required sampler, and the indices of its contexts."""
    if not isinstance(generate, Mapping):
        yield generate, list(range(len(roles)))
        return
    refuse_missing(generate, roles)
    for role, sampler in generate.items():
        if places := [place for place, name in enumerate(roles) if name == role]:
            yield sampler, places
