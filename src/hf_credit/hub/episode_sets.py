"""Data sets of episodes with their decisions, published so that any client reads them.

    episodes   one row an episode, with its conversation
    decisions  one row a decision: state, context and reply in tokens, log-probabilities, verdict, credit

What was published is loaded as equal values: from a loaded episode, `replay_from` starts again at any decision.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from hf_credit.hub import cards, safety
from hf_credit.hub.episode_rows import Credits, credits_of, decision_rows, episode_of, episode_row, trace
from hf_credit.hub.publishing import Published, publish
from hf_credit.hub.tables import (
    DECISIONS,
    DESCRIPTION_FILE,
    EPISODES,
    compact_json,
    fetch_tables,
    read_description,
    read_table,
    untrusted_spec,
    write_description,
    write_table,
)
from hf_credit.rollouts import Chat, Episode, Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import evaluated
from hf_credit.safe_io import parse_json
from hf_credit.tasks import TaskSpec


@dataclass(frozen=True, kw_only=True)
class EpisodeSet(Sequence[Episode]):
    """Episodes, and what they are of.

    Attributes:
        episodes: in the order in which they were given.
        interaction: that they were played in.
        starts: from which they were played, one each.
        credits: of their decisions.
        policy, policy_commit: who played, and at which commit of its repository.
        about: further facts, such as versions.
        commit: of the repository that they were loaded from.
    """

    episodes: tuple[Episode, ...]
    interaction: Interaction[Any]
    starts: tuple[RolloutRequest[Any], ...]
    credits: Credits = field(default_factory=dict)
    policy: str = ""
    policy_commit: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    commit: str | None = None

    def __post_init__(self) -> None:
        if len(self.episodes) != len(self.starts):
            raise ValueError(
                f"each episode must have its start, got {len(self.episodes)} and {len(self.starts)}; give one each."
            )

    def __len__(self) -> int:
        return len(self.episodes)

    @overload
    def __getitem__(self, index: int) -> Episode: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Episode]: ...

    def __getitem__(self, index: int | slice) -> Episode | Sequence[Episode]:
        return self.episodes[index]


def publish_episodes(
    episodes: EpisodeSet, repo: str, *, chat: Chat | None = None, traces: bool = False, **where: Any
) -> Published:
    """Publishes episodes and their decisions as a data set.

    Args:
        episodes: with their starts, and their credit if there is any.
        repo: owner/name.
        chat: that rendered them; whose tokenizer and template are noted, as hashes.
        traces: whether each conversation is written once more, in the form that the Hub's viewer of traces shows.
        **where: as for `publish`: token, endpoint, private, pr, dry_run, tag.

    Raises:
        ValueError: a state cannot be written (`Replayable.state_to_json`); and as for `publish`.
    """
    with tempfile.TemporaryDirectory() as name:
        save_episodes(Path(name), episodes, chat=chat)
        return publish_episode_folder(Path(name), repo, traces=traces, **where)


def publish_episode_folder(folder: str | Path, repo: str, *, traces: bool = False, **where: Any) -> Published:
    """Publishes what `save_episodes` wrote.

    Raises:
        ValueError: it is not that, whole; and as for `publish`.
    """
    folder = Path(folder)
    about = read_description(folder, "episodes", str(folder))
    files = {name: path for name, path in safety.files_of(folder).items() if name.endswith(".parquet")}
    files[DESCRIPTION_FILE] = folder / DESCRIPTION_FILE
    files["README.md"] = cards.episodes_card(repo, about).encode()
    rows = list(read_table(folder, "episodes", "train", EPISODES))
    if len(rows) != about["rows"]["episodes"]:
        raise ValueError(f"{folder} must have the episodes it tells of, got {len(rows)}; save them again.")
    if traces:
        files |= {f"traces/{row['id']}.jsonl": trace(row) for row in rows}
    replaces = ("episodes/", "decisions/", "traces/")
    message = f"Publish {len(rows)} episodes"
    return publish(files, repo, repo_type="dataset", message=message, replaces=replaces, **where)


def save_episodes(folder: str | Path, episodes: EpisodeSet, *, chat: Chat | None = None) -> None:
    """Writes episodes as they are published.

    Args:
        folder: an empty or a new one.
        episodes, chat: as for `publish_episodes`.

    Raises:
        ValueError: there are none, or a state cannot be written.
    """
    folder = Path(folder)
    if not episodes.episodes:
        raise ValueError("a data set must have episodes, got none; play one or more.")
    folder.mkdir(parents=True, exist_ok=True)
    spec, hashes = TaskSpec.of(evaluated(episodes.interaction)).to_dict(), _hashes(chat)
    facts = {"task": spec, "policy": episodes.policy, "policy_commit": episodes.policy_commit}
    rows: list[dict[str, Any]] = []
    decisions: list[dict[str, Any]] = []
    for place, (episode, start) in enumerate(zip(episodes.episodes, episodes.starts, strict=True)):
        row = episode_row(place, episode, start, episodes.interaction, facts)
        rows.append(row)
        decisions += decision_rows(row["id"], episode, episodes.interaction, episodes.credits, hashes)
    write_table(folder, "episodes", "train", rows, EPISODES)
    write_table(folder, "decisions", "train", decisions, DECISIONS)
    counts = {"rows": {"episodes": len(rows), "decisions": len(decisions)}, "estimators": list(episodes.credits)}
    write_description(folder, "episodes", {**facts, **hashes, **counts, "about": dict(episodes.about)})


def load_episodes(
    repo: str,
    *,
    interaction: Interaction[Any] | None = None,
    chat: Chat | None = None,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
) -> EpisodeSet:
    """The episodes that `publish_episodes` published, equal to what was given.

    Args:
        repo: owner/name.
        interaction: that they were played in; built from what was published if left out, which refuses code of others.
        chat: with which they are to be replayed; another tokenizer or template than theirs is refused.
        revision, token, endpoint: as for `fetch`.

    Raises:
        ValueError: it holds something else, or is not whole; and as for `fetch`.
    """
    fetched = fetch_tables(repo, "episodes", "decisions", revision=revision, token=token, endpoint=endpoint)
    return load_episode_folder(fetched.folder, interaction=interaction, chat=chat, repo=repo, commit=fetched.commit)


def load_episode_folder(
    folder: str | Path,
    *,
    interaction: Interaction[Any] | None = None,
    chat: Chat | None = None,
    repo: str | None = None,
    commit: str | None = None,
) -> EpisodeSet:
    """The episodes in a folder of `save_episodes`, as `load_episodes`.

    Raises:
        ValueError: it holds something else, or is not whole.
    """
    folder = Path(folder)
    repo = repo or str(folder)
    about = read_description(folder, "episodes", repo)
    _refuse_other_hashes(about, _hashes(chat), repo)
    interaction = interaction or untrusted_spec(about.get("task")).build()
    decisions: dict[str, list[dict[str, Any]]] = {}
    for row in read_table(folder, "decisions", "train", DECISIONS):
        decisions.setdefault(row["episode_id"], []).append(row)
    found, starts = [], []
    for row in read_table(folder, "episodes", "train", EPISODES):
        found.append(episode_of(interaction, row, decisions.get(row["id"], [])))
        starts.append(RolloutRequest[Any](task=parse_json(row["task"], broken_text=True), seed=row["seed"]))
    counted = {"episodes": len(found), "decisions": sum(len(own) for own in decisions.values())}
    if counted != about.get("rows") or sum(len(one.decisions) for one in found) != counted["decisions"]:
        raise ValueError(
            f"{repo} must have the rows it tells of, got {counted}, not {about.get('rows')}; publish again."
        )
    return EpisodeSet(
        episodes=tuple(found),
        interaction=interaction,
        starts=tuple(starts),
        credits=credits_of(itertools.chain.from_iterable(decisions.values())),
        policy=about.get("policy") or "",
        policy_commit=about.get("policy_commit"),
        about=about.get("about") or {},
        commit=commit,
    )


def _hashes(chat: Chat | None) -> dict[str, str | None]:
    """SHA-256 of a tokenizer's vocabulary and rules, and of its template."""
    if chat is None:
        return {"tokenizer": None, "template": None}
    backend = getattr(chat.tokenizer, "backend_tokenizer", None)
    told = backend.to_str() if backend is not None else compact_json(sorted(chat.tokenizer.get_vocab().items()))
    template = compact_json([chat.tokenizer.chat_template, chat.template_kwargs])
    return {
        "tokenizer": hashlib.sha256(told.encode()).hexdigest(),
        "template": hashlib.sha256(template.encode()).hexdigest(),
    }


def _refuse_other_hashes(about: Mapping[str, Any], own: Mapping[str, str | None], repo: str) -> None:
    for name in ("tokenizer", "template"):
        if own[name] and about.get(name) and own[name] != about[name]:
            raise ValueError(
                f"episodes of {repo} must be replayed with the {name} they were played with, got another one; load "
                f"that of {about.get('policy') or 'their policy'}."
            )
