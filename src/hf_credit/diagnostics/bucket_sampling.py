"""Samples diagnostic buckets of a policy: decisions of evaluation episodes, and alternatives at their contexts."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

from hf_credit.boundary import Range
from hf_credit.diagnostics.buckets import Action, Bucket
from hf_credit.environments.randomness import derive, stream
from hf_credit.evaluation.play import refuse_unplayed
from hf_credit.options import Count, Options
from hf_credit.oracles import Judge, Oracle
from hf_credit.rollouts import (
    Decision,
    Ending,
    Engine,
    Episode,
    Generation,
    Ledger,
    RolloutRequest,
    context_key,
    refuse_total_failure,
    replay_from,
    verify,
)
from hf_credit.rollouts.samplers import sample

_Judge = Callable[[Sequence[Episode]], list[Episode]]


@dataclass(frozen=True, kw_only=True)
class BucketPlan(Options):
    """The numbers of buckets, candidates and replays (paper C3, Table 13).

    Attributes:
        buckets: S, the maximum number of buckets.
        candidates: J, the maximum number of different actions per bucket, including the real one, which is the first.
        replays: c, the number of replays of each action.
        value_actions: J_V, the number of actions only for the baseline; with 0 there are no estimated targets.
        events: the event types to draw from; all if empty.
        draws: the maximum number of draws for the candidates of a bucket. A policy with low entropy repeats itself, so
            a bucket may have fewer than `candidates`.
        common_random_numbers: replay t of every action of a bucket uses the same random numbers (Appendix L): those of
            the environment and, if the sampler honours seeds, those of replies.
        seed: of the choice of decisions and, if the sampler honours seeds, of all replies.

    Raises:
        ValueError: a number is out of range.
    """

    buckets: Count = 100
    candidates: Count = 8
    replays: Count = 4
    value_actions: Annotated[int, Range(0)] = 8
    events: Collection[str] = ()
    draws: Annotated[int, Range(0)] = 64
    common_random_numbers: bool = True
    seed: int = 0
    owner: ClassVar[str] = "a bucket plan"


@dataclass(kw_only=True)
class _Draft:
    """A bucket before its actions are replayed."""

    episode: Episode
    index: int
    key: int
    context: str
    replies: dict[str, Generation]
    counts: dict[str, int]
    value_only: list[tuple[str, Generation]] = field(default_factory=list)
    drawn: int = 0

    @property
    def decision(self) -> Decision:
        return self.episode.decisions[self.index]

    def actions(self) -> list[Generation]:
        """Returns the replies to replay: the candidates, then the value-only actions."""
        return [*self.replies.values(), *(reply for _, reply in self.value_only)]


def diagnostic_buckets(
    engine: Engine[Any],
    starts: Sequence[RolloutRequest[Any]],
    plan: BucketPlan | None = None,
    *,
    oracle: Oracle[Any] | None = None,
) -> tuple[list[Bucket], Ledger]:
    """Samples buckets at uniformly drawn decisions of one episode per start (paper C3, Appendix I).

    The policy plays each start once, unscored. `plan.buckets` trained decisions are drawn uniformly from the episodes
    without errors, at most one per event type and context. At each, replies are drawn from the policy until there are
    `plan.candidates` different texts, including the real one, and `plan.value_actions` further replies, which may
    repeat. Each reply is forced at the recorded state `plan.replays` times, and the policy plays to the end.

    Replays start at the recorded state, so nothing before the decision is sampled again. There are at most (J + J_V) c
    per bucket; the engine's `max_concurrent` limits the number of parallel episodes.

    Args:
        engine: plays with the policy. The same plan gives the same buckets if its sampler honours seeds; otherwise
            seed the generator that the sampler draws from.
        starts: the tasks of the evaluation split, one start each, without `fanout`.
        plan: the numbers of buckets, candidates and replays. The paper gives none (Table 13); the defaults are this
            library's.
        oracle: judges every candidate, and later decisions of its replays.

    Returns:
        The buckets in the order of drawing, and their cost. There are fewer than `plan.buckets` if the episodes have
        fewer different contexts.

    Raises:
        ValueError: a start has alternatives, an event type does not occur, or no task leaves space for a reply.
        EveryEpisodeFailedError: every episode ended in an error.
    """
    plan = plan or BucketPlan()
    references, cost = _references(engine, starts, plan)
    drafts = list(_drafts(engine, references, plan))
    cost += _draw_value_only(engine, drafts, plan) + _draw_candidates(engine, drafts, plan)
    buckets, replay_cost = _replayed(engine, drafts, plan, oracle)
    return buckets, cost + replay_cost


def decision_buckets(
    engine: Engine[Any], decisions: Sequence[tuple[Episode, int]], plan: BucketPlan
) -> tuple[list[Bucket], list[int], Ledger]:
    """Builds buckets of given decisions, by replays of each decision and of value-only actions.

    Decisions with the same event type, context and state share a bucket. Its candidates are only their replies.
    Returns the buckets, the index of the bucket of each decision, and the cost.

    Args:
        engine: plays with the policy that made the decisions.
        decisions: pairs of an episode and the index of a decision in it.
        plan: only `replays`, `value_actions`, `common_random_numbers` and `seed` are used.

    Raises:
        ValueError: the recorded state of a decision does not give its context.
    """
    numbers: dict[tuple[str, tuple[int, ...], Any], int] = {}
    drafts: list[_Draft] = []
    places: list[int] = []
    for episode, index in decisions:
        decision = episode.decisions[index]
        place = numbers.setdefault((decision.event, decision.context_ids, decision.state), len(drafts))
        if place == len(drafts):
            drafts.append(_draft(engine, episode, index))
        else:
            text = decision.action_text
            drafts[place].replies.setdefault(text, _reply(decision))
            drafts[place].counts[text] = drafts[place].counts.get(text, 0) + 1
        places.append(place)
    cost = _draw_value_only(engine, drafts, plan)
    buckets, replay_cost = _replayed(engine, drafts, plan, None)
    return buckets, places, cost + replay_cost


def _references(
    engine: Engine[Any], starts: Sequence[RolloutRequest[Any]], plan: BucketPlan
) -> tuple[list[Episode], Ledger]:
    if any(start.fanout for start in starts):
        raise ValueError("starts of a diagnosis must have no fanout, got one with alternatives; omit fanout.")
    named = [
        replace(start, scored=False, stream=_stream(engine, plan, "reference", place) or start.stream)
        for place, start in enumerate(starts)
    ]
    references = engine.run(named)
    refuse_total_failure(references, what="of a diagnosis")
    refuse_unplayed(references, engine.max_context_tokens)
    return references, Ledger.of(references)


def _drafts(engine: Engine[Any], references: Sequence[Episode], plan: BucketPlan) -> Iterator[_Draft]:
    """Yields the drawn decisions, at most one per event type and context."""
    visited = [
        (episode, index)
        for episode in references
        if episode.ending != Ending.ERROR
        for index, decision in enumerate(episode.decisions)
        if decision.trained and (not plan.events or decision.event in plan.events)
    ]
    if plan.events and not visited:
        seen = dict.fromkeys(one.event for episode in references for one in episode.decisions if one.trained)
        raise ValueError(
            f"an event of a diagnosis must occur in the episodes, got {', '.join(plan.events)}; the episodes have "
            f"{', '.join(seen) or 'no decisions'}."
        )
    found: set[tuple[str, tuple[int, ...]]] = set()
    for episode, index in stream(plan.seed, "diagnostic buckets").sample(visited, len(visited)):
        decision = episode.decisions[index]
        if (decision.event, decision.context_ids) in found:
            continue
        found.add((decision.event, decision.context_ids))
        yield _draft(engine, episode, index)
        if len(found) == plan.buckets:
            return


def _draft(engine: Engine[Any], episode: Episode, index: int) -> _Draft:
    decision = episode.decisions[index]
    text = str(engine.chat.tokenizer.decode(list(decision.context_ids)))
    return _Draft(
        episode=episode,
        index=index,
        key=context_key(text),
        context=text,
        replies={decision.action_text: _reply(decision)},
        counts={decision.action_text: 1},
    )


def _reply(decision: Decision) -> Generation:
    return Generation(ids=decision.action_ids, logprobs=decision.logprobs)


def _draw_value_only(engine: Engine[Any], drafts: Sequence[_Draft], plan: BucketPlan) -> Ledger:
    drawn, cost = _drawn(engine, drafts, [plan.value_actions] * len(drafts), plan, "value")
    for draft, replies in zip(drafts, drawn, strict=True):
        draft.value_only = replies
    return cost


def _draw_candidates(engine: Engine[Any], drafts: Sequence[_Draft], plan: BucketPlan) -> Ledger:
    """Draws the candidates of every draft; equal texts count once."""
    cost = Ledger()
    while True:
        missing = [draft for draft in drafts if len(draft.replies) < plan.candidates and draft.drawn < plan.draws]
        if not missing:
            return cost
        wanted = [min(plan.candidates, plan.draws - draft.drawn) for draft in missing]
        drawn, own_cost = _drawn(engine, missing, wanted, plan, "candidate")
        cost += own_cost
        for draft, replies in zip(missing, drawn, strict=True):
            first, draft.drawn = not draft.drawn, draft.drawn + len(replies)
            for text, reply in replies:
                draft.counts[text] = draft.counts.get(text, 0) + first
                if len(draft.replies) < plan.candidates:
                    draft.replies.setdefault(text, reply)


def _drawn(
    engine: Engine[Any], drafts: Sequence[_Draft], wanted: Sequence[int], plan: BucketPlan, purpose: str
) -> tuple[list[list[tuple[str, Generation]]], Ledger]:
    """Draws the wanted number of replies at the context of each draft."""
    asked = [
        (draft.decision, _seed(engine, plan, purpose, draft, draft.drawn + number))
        for draft, count in zip(drafts, wanted, strict=True)
        for number in range(count)
    ]
    replies: list[Generation] = []
    for first in range(0, len(asked), engine.max_concurrent):
        part = asked[first : first + engine.max_concurrent]
        roles, contexts = [decision.role for decision, _ in part], [decision.context_ids for decision, _ in part]
        replies.extend(sample(engine.generate, roles, contexts, [seed for _, seed in part]))
    contexts = [decision.context_ids for decision, _ in asked]
    texts = engine.chat.texts([reply.ids for reply in replies], contexts) if replies else []
    made = (replace(decision, action_ids=tuple(one.ids)) for (decision, _), one in zip(asked, replies, strict=True))
    cost = Ledger.of([Episode(decisions=tuple(made), outcome=math.nan, ending=Ending.FINISHED, scored=0)])
    rest = iter(zip(texts, replies, strict=True))
    return [[next(rest) for _ in range(count)] for count in wanted], cost


def _replayed(
    engine: Engine[Any], drafts: Sequence[_Draft], plan: BucketPlan, oracle: Oracle[Any] | None
) -> tuple[list[Bucket], Ledger]:
    """Replays all actions of the drafts and builds the buckets."""
    replays, cost = _replay(engine, drafts, plan)
    judge = None
    if oracle is not None:
        # Cached, as replays visit the same states and actions repeatedly.
        once: Any = oracle  # a judge keeps its answers itself
        if not isinstance(oracle, Judge):
            once = SimpleNamespace(score=cache(oracle.score), valid_actions=oracle.valid_actions)
        judge = partial(verify, oracle=once, interaction=engine.interaction)
    return [_bucket(draft, [next(replays) for _ in draft.actions()], judge) for draft in drafts], cost


def _replay(engine: Engine[Any], drafts: Sequence[_Draft], plan: BucketPlan) -> tuple[Iterator[list[Episode]], Ledger]:
    """Returns the replays of each action of each draft, and their cost without the actions themselves."""
    starts: list[RolloutRequest[Any]] = []
    for draft in drafts:
        before = replay_from(engine.interaction, engine.chat, draft.episode, draft.index)
        for place, reply in enumerate(draft.actions()):
            for number in range(plan.replays):
                apart = () if plan.common_random_numbers else (place,)
                starts.append(
                    replace(
                        before,
                        forced={draft.decision.event: reply},
                        seed=derive(plan.seed, "replay", number, *apart),
                        stream=_stream(engine, plan, "replay", draft.decision.event, draft.key, number, *apart),
                    )
                )
    episodes = engine.run(starts)
    events = (draft.decision.event for draft in drafts for _ in range(len(draft.actions()) * plan.replays))
    forced = [_forced(episode, event) for episode, event in zip(episodes, events, strict=True)]
    cost = Ledger.of(
        replace(episode, decisions=tuple(decision for decision in episode.decisions if decision is not one))
        for episode, one in zip(episodes, forced, strict=True)
    )
    groups = (episodes[first : first + plan.replays] for first in range(0, len(episodes), plan.replays))
    return groups, cost


def _forced(episode: Episode, event: str) -> Decision | None:
    """Returns the forced decision of a replay, which is the first of its event type."""
    return next((one for one in episode.decisions if one.event == event), None)


def _bucket(draft: _Draft, replays: Sequence[Sequence[Episode]], judge: _Judge | None) -> Bucket:
    decision = draft.decision
    texts = [*draft.replies, *(text for text, _ in draft.value_only)]
    actions = []
    for place, (text, episodes) in enumerate(zip(texts, replays, strict=True)):
        is_candidate = place < len(draft.replies)
        judged = episodes
        if judge is not None and is_candidate:  # an episode keeps its ending if the oracle fails
            judged = [
                replace(before, decisions=after.decisions)
                for before, after in zip(episodes, judge(episodes), strict=True)
            ]
        action = _action(text, decision.event, judged, draft.counts[text] if is_candidate else 1)
        actions.append(action if is_candidate else replace(action, replays=()))
    return Bucket(
        event=decision.event,
        role=decision.role,
        key=draft.key,
        context=draft.context,
        task=draft.episode.start,
        turn=draft.index,
        candidates=tuple(actions[: len(draft.replies)]),
        value_only=tuple(actions[len(draft.replies) :]),
        before=tuple(one for one in draft.episode.decisions[: draft.index] if not one.in_step_of(decision)),
        state=decision.state,
    )


def _action(text: str, event: str, episodes: Sequence[Episode], draws: int) -> Action:
    # A replay with a NaN or infinite outcome counts as failed.
    numbers = [k for k, one in enumerate(episodes) if one.ending != Ending.ERROR and math.isfinite(one.outcome)]
    sound = [episodes[k] for k in numbers]
    verdicts = (one.verdict for episode in episodes if (one := _forced(episode, event)) is not None)
    verdict = next(filter(None, verdicts), None)
    return Action(
        text=text,
        returns=tuple(episode.outcome for episode in sound),
        numbers=tuple(numbers),
        responses=tuple(
            next((one.action_text for step in episode.steps[1:] for one in step if one.event != event), None)
            for episode in sound
        ),
        failed=len(episodes) - len(sound),
        draws=draws,
        verdict=None if verdict is None else verdict.score,
        replays=tuple(sound),
    )


def _stream(engine: Engine[Any], plan: BucketPlan, *parts: int | str) -> str | None:
    return " ".join(map(str, ("diagnosis", plan.seed, *parts))) if engine.honours_seeds else None


def _seed(engine: Engine[Any], plan: BucketPlan, purpose: str, draft: _Draft, number: int) -> int | None:
    parts = ("diagnosis", purpose, draft.decision.event, draft.key, number)
    return derive(plan.seed, *parts) if engine.honours_seeds else None
