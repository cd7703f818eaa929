"""Converts episodes to rows of tables and back to equal values; of `extras`, only the results of an auditor."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hf_credit.boundary import encodable, read
from hf_credit.content import Image, in_words
from hf_credit.evaluation.credited import requests_of
from hf_credit.evaluation.runs import versions
from hf_credit.hub.tables import compact_json
from hf_credit.oracles.auditing import AUDIT, VERIFIED, Audit
from hf_credit.pictures import apart, name_of, together
from hf_credit.rollouts import Context, Decision, Ending, Episode, Interaction, RolloutRequest, Verdict, context_key
from hf_credit.rollouts.capabilities import Replayable, TrainedRoles
from hf_credit.rollouts.media import VisualContext
from hf_credit.safe_io import parse_json

Credits = Mapping[str, Mapping[str, float | Sequence[float] | None]]
"""By estimator, then by `Decision.id`: the credit of the decision, or of each of its tokens."""

_Placed = tuple[tuple[int, Image], ...]
_WITH_IMAGES = ("state", "final_state", "context_images", "next_context_images")


def episode_row(
    place: int, episode: Episode, start: RolloutRequest[Any], interaction: Interaction[Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the row of an episode.

    Args:
        place: the index of the episode among those that are published together.
        facts: `task`, the spec of the interaction, `policy` and `policy_commit`.

    Raises:
        ValueError: the last state cannot be serialized.
    """
    spec = facts["task"]
    has_final = episode.final_state is not None
    replies = [list(decision.action_ids) for decision in episode.decisions]
    identity = compact_json([place, start.seed, replies, list(episode.branch)])
    return {
        "id": hashlib.sha256(identity.encode()).hexdigest()[:24],
        "environment": spec["task"],
        "options": compact_json(spec["task_options"]),
        "task": compact_json(dict(start.task or {})),
        "seed": start.seed,
        "policy": facts["policy"],
        "policy_commit": facts["policy_commit"],
        "messages": conversation(interaction, episode),
        "ending": str(episode.ending),
        "outcome": float(episode.outcome),
        "metrics": compact_json(dict(episode.metrics)),
        "turns": len(episode.decisions),
        "tokens": episode.generated_tokens,
        "error": encodable(episode.error),
        "start": episode.start,
        "path": list(episode.branch),
        "inherited": episode.prefix_length,
        "ways": episode.num_leaves,
        "scored": episode.scored,
        "next_context": None if episode.next_context is None else list(episode.next_context),
        "next_context_images": _placed(episode.next_context),
        "verified": episode.extras.get(VERIFIED),
        "final_state": Replayable(interaction).state_to_json(episode.final_state) if has_final else None,
        "versions": _versions(),
    }


@functools.cache
def _versions() -> str:
    return compact_json(versions())


def decision_rows(
    episode_id: str,
    episode: Episode,
    interaction: Interaction[Any],
    credits: Credits,
    hashes: Mapping[str, str | None],
) -> Iterator[dict[str, Any]]:
    """Yields the rows of an episode's decisions, in order.

    Args:
        credits: the credit of decisions of this and other episodes.
        hashes: the hashes of `tokenizer` and `template`.

    Raises:
        ValueError: a state cannot be serialized.
    """
    steps = {id(decision): step for step, made in enumerate(episode.steps) for decision in made}
    write = Replayable(interaction).state_to_json
    for index, decision in enumerate(episode.decisions):
        text, audit, verdict = encodable(decision.action_text), decision.extras.get(AUDIT), decision.verdict
        yield {
            "episode_id": episode_id,
            "index": index,
            "step": steps[id(decision)],
            "id": decision.id,
            "role": decision.role,
            "event": decision.event,
            "state": write(decision.state),
            "context_key": context_key(compact_json(list(decision.context_ids))),
            "context_ids": list(decision.context_ids),
            "context_images": _placed(decision.context_ids),
            "action_ids": list(decision.action_ids),
            "logprobs": None if decision.logprobs is None else list(decision.logprobs),
            "text": text,
            "broken_text": None if text == decision.action_text else json.dumps(decision.action_text),
            "reward": decision.reward,
            "verdict": verdict and {"score": verdict.score, "valid": verdict.valid},
            "audit": None if audit is None else compact_json({**vars(audit), "true_hacks": sorted(audit.true_hacks)}),
            "trained": decision.trained,
            "credits": [
                {"estimator": estimator, "values": _listed(by_id[decision.id])}
                for estimator, by_id in credits.items()
                if decision.id in by_id
            ],
            "tokenizer": hashes["tokenizer"],
            "template": hashes["template"],
        }


def _placed(context: Context | None) -> str:
    return json.dumps(getattr(context, "images", ()), default=vars)


def _context(ids: Sequence[int], placed: str | None) -> Context:
    found = read(_Placed, parse_json(placed or "[]"), "the images of a context")
    return VisualContext(ids, found) if found else tuple(ids)


def set_apart(row: dict[str, Any], images: dict[str, Image]) -> dict[str, Any]:
    """Sets the images of a row of an episode or a decision apart, to `images` by name, and returns the row."""
    for name in _WITH_IMAGES:
        if row.get(name) is not None:
            row[name], found = apart(row[name])
            images |= found
    return row


def _whole(row: Mapping[str, Any], images: Mapping[str, Image]) -> dict[str, Any]:
    return {**row, **{name: together(row[name], images) for name in _WITH_IMAGES if row.get(name)}}


def episode_of(interaction: Interaction[Any], row: Mapping[str, Any], rows: list[dict[str, Any]]) -> Episode:
    """The episode of a row and of the rows of its decisions.

    Raises:
        ValueError: a decision is missing, or a state cannot be read.
    """
    given = [Image(one["bytes"]) for one in row.get("images") or ()]
    images = {name_of(image): image for image in given}
    row, rows = _whole(row, images), [_whole(one, images) for one in rows]
    rows.sort(key=lambda one: one["index"])
    if row["turns"] != len(rows) or [one["index"] for one in rows] != list(range(len(rows))):
        raise ValueError(f"an episode must have all its decisions, got {len(rows)} of {row['turns']} for {row['id']}.")
    state_of, untrained = Replayable(interaction).state_from_json, TrainedRoles(interaction).untrained
    states: dict[int, Any] = {}  # decisions that were made at once share one
    decisions = []
    for one in rows:
        if one["step"] not in states:
            states[one["step"]] = state_of(one["state"])
        broken, audit = one["broken_text"], one["audit"]
        decisions.append(
            Decision(
                role=one["role"],
                state=states[one["step"]],
                context_ids=_context(one["context_ids"], one.get("context_images")),
                action_ids=tuple(one["action_ids"]),
                logprobs=None if one["logprobs"] is None else tuple(one["logprobs"]),
                action_text=one["text"] if broken is None else parse_json(broken, broken_text=True),
                event=one["event"],
                step=one["step"],
                reward=one["reward"],
                verdict=None if one["verdict"] is None else Verdict(score=one["verdict"]["score"]),
                trained=one["trained"],
                observed=one["role"] in untrained,
                id=one["id"],
                extras={} if audit is None else {AUDIT: read(Audit, parse_json(audit, broken_text=True), "an audit")},
            )
        )
    final, placed = row["final_state"], row.get("next_context_images")
    return Episode(
        decisions=tuple(decisions),
        outcome=row["outcome"],
        ending=Ending(row["ending"]),
        metrics=parse_json(row["metrics"]),
        error=row["error"],
        start=row["start"],
        branch=tuple(row["path"]),
        prefix_length=row["inherited"],
        num_leaves=row["ways"],
        scored=row["scored"],
        next_context=None if (ids := row["next_context"]) is None else _context(ids, placed),
        final_state=None if final is None else state_of(final),
        extras={} if row["verified"] is None else {VERIFIED: row["verified"]},
    )


def credits_of(decisions: Iterable[Mapping[str, Any]]) -> Credits:
    """Returns the credit in rows of decisions."""
    credits: dict[str, dict[str, float | Sequence[float] | None]] = {}
    for row in decisions:
        for credit in row["credits"] or ():
            first, *rest = credit["values"] or [None]
            credits.setdefault(credit["estimator"], {})[row["id"]] = (first, *rest) if rest else first
    return credits


def conversation(interaction: Interaction[Any], episode: Episode) -> list[dict[str, str]]:
    """Returns the messages of an episode in order: each message of a context once, and the replies.

    With several roles, each context contributes the messages that the previous context of the same event lacks.
    """
    messages: list[Mapping[str, Any]] = []
    for decision, asked in zip(episode.decisions, requests_of(interaction, episode), strict=True):
        messages += [
            *(asked[0].messages[asked[1] :] if asked is not None else ()),
            {"role": "assistant", "content": decision.action_text},
        ]
    return [{"role": one["role"], "content": encodable(in_words(one["content"]))} for one in messages]


def _listed(credit: float | Sequence[float] | None) -> list[float]:
    if credit is None:
        return []
    return [float(credit)] if isinstance(credit, int | float) else [float(value) for value in credit]
