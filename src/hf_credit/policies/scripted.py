"""Episodes of a scripted player: as a baseline, and to imitate, as rows for supervised training."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

from hf_credit.environments.randomness import stream
from hf_credit.oracles import Oracle
from hf_credit.registry import find
from hf_credit.rollouts import Chat, Decision, Ending, Episode, Interaction, Request, RolloutRequest, decision_rows
from hf_credit.rollouts.capabilities import Oracled, Scripted, TrainedRoles
from hf_credit.rollouts.conversations import Conversation
from hf_credit.rollouts.failures import FailureLog
from hf_credit.rollouts.media import images_of
from hf_credit.rollouts.scripts import LikelyScript, OraclePlayer, Script

Step = tuple[Any, Sequence[Request], list[str]]
"""A state, its pending requests, and the replies to them."""

Walk = tuple[list[Step], Any]
"""The steps of one episode, and the final state."""

_MOST_STEPS = 10_000  # where the length of contexts alone ends the episodes of a policy, nothing ends a script's


def walk(
    interaction: Interaction[Any],
    script: Script,
    start: RolloutRequest[Any],
    stepped: Callable[[], None] = lambda: None,
) -> Walk:
    """Plays one scripted episode.

    Args:
        script: the player. It replies to the requests of a step in order, from one random generator.
        start: the task row and the seed of the episode and the script; if `None`, the row's seed, or 0. Or the state.
        stepped: called before each step.

    Raises:
        ValueError: the episode does not end.
    """
    seed = start.task.get("seed", 0) if start.seed is None else start.seed
    draws = stream(seed, "scripted")
    state = interaction.start(start.task, seed) if start.state is None else start.state
    steps: list[Step] = []
    while requests := interaction.pending(state):
        stepped()
        if len(steps) == _MOST_STEPS:
            raise ValueError(
                f"a scripted episode must end within {_MOST_STEPS} steps, got one of {interaction.name!r} that goes "
                "on; correct the script, or limit the turns of the task."
            )
        replies = [script(state, request, draws) for request in requests]
        steps.append((state, requests, replies))
        state = interaction.advance(state, replies)
    return steps, state


def walk_again(
    interaction: Interaction[Any],
    replies: Sequence[str],
    start: RolloutRequest[Any],
    stepped: Callable[[], None] = lambda: None,
) -> Walk:
    """Plays recorded replies; a ValueError says that the episode ends before the last one, or goes on after it."""
    left = list(reversed(replies))

    def reply(*_: Any) -> str:
        if not left:
            raise ValueError("it goes on after the last reply")
        return left.pop()

    walked = walk(interaction, reply, start, stepped)
    if left:
        raise ValueError("it ends before the last reply")
    return walked


def walks(
    interaction: Interaction[Any], script: Script, starts: Iterable[RolloutRequest[Any]], dropped: Counter[str]
) -> Iterator[tuple[RolloutRequest[Any], Walk]]:
    """Plays; an error ends only its episode, is shown, and is counted in `dropped`."""
    failures = FailureLog()
    for start in starts:
        try:
            yield start, walk(interaction, script, start)
        except Exception as error:
            failures.add(error, "a scripted episode")
            dropped[f"raised {type(error).__name__}"] += 1


def player_of(
    interaction: Interaction[Any], quality: float, script: str | None = None, oracle: Oracle[Any] | None = None
) -> Script:
    """Returns who plays: a script, an oracle, or the task's own player.

    Args:
        quality: the probability that an oracle or the task's player plays well; a script that is a class gets it.
        script: as `"module:object"`.

    Raises:
        ValueError: there is no such script, the oracle does not fit, or the task has no player.
    """
    if script is not None:
        named: Any = find("script", {}, script)
        return named(quality) if isinstance(named, type) else named  # type: ignore[no-any-return]
    if oracle is not None:
        judge: Any = Oracled(interaction).check_oracle(oracle)
        return OraclePlayer(interaction.environment, judge, quality)  # type: ignore[attr-defined]
    if (player := Scripted(interaction).scripted_player(quality)) is None:
        raise ValueError(
            f"scripted play needs a task with an oracle or a scripted player, got {interaction.name!r} without; "
            "choose another task, or give a script."
        )
    return player


def play(interaction: Interaction[Any], chat: Chat, script: Script, start: RolloutRequest[Any]) -> Episode:
    """Plays one scripted episode, recorded as that of a policy with the same replies."""
    return recorded(interaction, chat, walk(interaction, script, start))


def recorded(interaction: Interaction[Any], chat: Chat, walked: Walk) -> Episode:
    """A walk as an episode, as an `Engine` records that of a policy with the same replies."""
    steps, final = walked
    states = [*(state for state, _, _ in steps), final]
    decisions: list[Decision] = []
    conversations: dict[str, Conversation] = {}
    untrained = TrainedRoles(interaction).untrained
    for number, ((state, requests, replies), after) in enumerate(zip(steps, states[1:], strict=True)):
        reward = interaction.reward(after)
        for request, reply in zip(requests, replies, strict=True):
            context = chat.context(request.messages, conversations.get(request.event), request.tools)
            ids = chat.reply_ids(reply, context, request.tools)
            conversations[request.event] = Conversation.after(request, reply, context + ids)
            decisions.append(
                Decision(
                    role=request.role,
                    event=request.event,
                    step=number,
                    state=state,
                    context_ids=context,
                    action_ids=ids,
                    logprobs=None,
                    action_text=reply,
                    reward=reward,
                    trained=request.role not in untrained,
                    observed=request.role in untrained,
                )
            )
    return Episode(
        decisions=tuple(decisions),
        outcome=interaction.outcome(final),
        ending=interaction.ending(final),
        metrics=interaction.metrics(final),
    )


IGNORED = -100
"""The label of a token without loss, as in transformers."""

TokenShares = Mapping[int, float]
"""The probability of each possible next token."""


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """An episode to imitate.

    Attributes:
        task: identifies its task.
        episode: with the tokens that the policy reads and writes, as an `Engine` records them.
        shares: for each decision the distribution of each of its tokens; empty if only the tokens are known.
        begun: the steps of its task that came before it, and are not in it.
    """

    task: str
    episode: Episode
    shares: tuple[Sequence[TokenShares], ...] = ()
    begun: int = 0


def task_of(start: RolloutRequest[Any]) -> str:
    """Returns the columns of a task row besides its seed as JSON; the seed if there are no others."""
    row = {name: value for name, value in start.task.items() if name != "seed"}
    return json.dumps(row or start.task.get("seed", start.seed), sort_keys=True, default=str)


def demonstrations(
    interaction: Interaction[Any], chat: Chat, script: Script, walks: Iterable[tuple[RolloutRequest[Any], Walk]]
) -> Iterator[Demonstration]:
    """Yields scripted episodes to imitate.

    Args:
        script: the player. The replies of a `LikelyScript` are imitated by their probabilities.
        walks: the starts and what `hf_credit.policies.scripted.walk` made of each.
    """

    @functools.cache
    def encode(text: str, end: tuple[int, ...], tools: str) -> tuple[int, ...]:
        return chat.reply_ids(text, end, json.loads(tools))

    for start, walked in walks:
        episode = recorded(interaction, chat, walked)
        shares: tuple[Sequence[TokenShares], ...] = ()
        if isinstance(script, LikelyScript):
            asked = ((state, request) for state, requests, _ in walked[0] for request in requests)
            for one, (state, request) in zip(episode.decisions, asked, strict=True):
                around = (one.context_ids if chat.opened(one.context_ids) else (), json.dumps(list(request.tools)))
                replies = script.probabilities(state, request).items()
                shares += (token_shares(one.action_ids, {encode(text, *around): share for text, share in replies}),)
        yield Demonstration(task=task_of(start), episode=episode, shares=shares)


def token_shares(ids: Sequence[int], replies: Mapping[tuple[int, ...], float]) -> list[TokenShares]:
    """The distribution of each token of a sampled reply, given the tokens before it.

    Imitating these distributions has the same expected gradient as imitating the sampled tokens, without the variance
    of sampling.

    Args:
        ids: the tokens of the sampled reply.
        replies: the probability of every possible reply, as tokens; `ids` is one of them.
    """
    shares: list[TokenShares] = []
    for place, token in enumerate(ids):
        following: dict[int, float] = {}
        for reply, probability in replies.items():
            following[reply[place]] = following.get(reply[place], 0.0) + probability
        total = sum(following.values())
        shares.append({candidate: probability / total for candidate, probability in following.items()})
        replies = {reply: probability for reply, probability in replies.items() if reply[place] == token}
    return shares


def supervised_rows(demonstration: Demonstration) -> list[dict[str, list[Any]]]:
    """Returns the rows of an episode, the sequences that training on it would have.

    Returns:
        For each row `input_ids`, and `labels`: the token on replies of trained roles, -100 elsewhere. With shares also
        those of all labelled tokens in sequence: `counts`, the number of possible tokens of each; `tokens` and
        `shares`, these tokens and their probabilities. With images also `media`, as in `hf_credit.rollouts.media`.
    """
    decisions = demonstration.episode.decisions
    flat = list(chain.from_iterable(demonstration.shares))
    # Each token carries its place in `flat` where an advantage would be: rows mix the tokens of decisions.
    ends = [0, *accumulate(len(one.action_ids) for one in decisions)]
    places = [range(*pair) if one.trained else None for one, pair in zip(decisions, pairwise(ends), strict=True)]
    rows: list[dict[str, list[Any]]] = []
    for row in decision_rows(decisions, places):
        tokens = zip(row.completion_ids, row.loss_mask, strict=True)
        labels = [IGNORED] * len(row.prompt_ids) + [token if on else IGNORED for token, on in tokens]
        rows.append({"input_ids": [*row.prompt_ids, *row.completion_ids], "labels": labels})
        if flat:
            learned = [flat[int(place)] for place, on in zip(row.advantages, row.loss_mask, strict=True) if on]
            rows[-1]["counts"] = list(map(len, learned))
            rows[-1]["tokens"] = [token for shares in learned for token in shares]
            rows[-1]["shares"] = [share for shares in learned for share in shares.values()]
        if images := [image.png for image in images_of(row.prompt_ids + row.completion_ids)]:
            rows[-1]["media"] = images
    return rows


def success_of(episode: Episode) -> float:
    """Returns the metric `success` of an episode, or its outcome if the task has no such metric."""
    return float(episode.metrics.get("success", episode.outcome))


def select(
    found: Iterable[Demonstration],
    least_success: float = -math.inf,
    max_new_tokens: float = math.inf,
    max_context_tokens: float = math.inf,
    max_length: float = math.inf,
) -> tuple[list[Demonstration], Counter[str]]:
    """Returns the episodes to imitate, and the number of others by reason.

    Args:
        least_success: the minimum of `success_of`. An episode without an outcome, which is NaN, is kept.
        max_new_tokens: the maximum length of a reply, end token included.
        max_context_tokens: the maximum length of a context.
        max_length: the maximum length of a context with its reply.
    """
    kept: list[Demonstration] = []
    dropped: Counter[str] = Counter()
    for one in found:
        decisions = one.episode.decisions
        context = max((len(decision.context_ids) for decision in decisions), default=0)
        reply = max((len(decision.action_ids) for decision in decisions), default=0)
        both = max((len(decision.context_ids + decision.action_ids) for decision in decisions), default=0)
        reasons = {
            "ended in an error": one.episode.ending == Ending.ERROR,
            "without a reply of a trained role": not any(decision.trained for decision in decisions),
            f"failed (success below {least_success:g})": success_of(one.episode) < least_success,
            f"with a reply above {max_new_tokens} tokens (max_new_tokens)": reply > max_new_tokens,
            f"with a context above {max_context_tokens} tokens": context > max_context_tokens,
            f"above {max_length} tokens (max_length)": both > max_length,
        }
        if reason := next((name for name, holds in reasons.items() if holds), None):
            dropped[reason] += 1
        else:
            kept.append(one)
    return kept, dropped


def hold_out(
    found: Sequence[Demonstration], share: float, seed: int = 0
) -> tuple[list[Demonstration], list[Demonstration]]:
    """Returns the episodes of most tasks, and those of the held-out ones; no task is in both.

    Args:
        share: of the tasks that are held out, in [0, 1); at least one if above 0, and never all.
    """
    tasks = sorted({one.task for one in found})
    count = min(max(1, round(share * len(tasks))), len(tasks) - 1) if share else 0
    chosen = set(stream(seed, "held out").sample(tasks, max(count, 0)))
    return [one for one in found if one.task not in chosen], [one for one in found if one.task in chosen]


def in_words(kept: Sequence[Demonstration], dropped: Counter[str]) -> str:
    """Returns what is learned and what is left out, with the reasons.

    Raises:
        ValueError: nothing is learned.
    """
    reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
    if not kept:
        raise ValueError(
            f"a warm-up must have an episode to learn from, got none: {reasons or 'no episodes'}; lower "
            "--min-success, raise the limit, or give other episodes."
        )
    left_out = f"Left out {dropped.total()} of {dropped.total() + len(kept)} episodes: {reasons}.\n" if reasons else ""
    labels = [row["labels"] for one in kept for row in supervised_rows(one)]
    replies = sum(label != IGNORED for row in labels for label in row)
    count = f"{len(kept)} episodes of {len({one.task for one in kept})} tasks, {len(labels)} rows"
    return f"{left_out}{count} with {sum(map(len, labels)):,} tokens, {replies:,} of them of replies."
