"""Datasets of a row per episode and a row per decision, which any client can read. Loaded episodes equal the published
ones: `replay_from` can start at any decision."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack, overload

from hf_credit.content import Image
from hf_credit.files import filled
from hf_credit.hub import cards, safety, tables
from hf_credit.hub.episode_rows import Credits, credits_of, decision_rows, episode_of, episode_row, set_apart
from hf_credit.hub.loading import Where
from hf_credit.hub.publishing import Published, publish
from hf_credit.rollouts import Chat, Episode, Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import evaluated
from hf_credit.safe_io import parse_json
from hf_credit.tasks import TaskSpec


@dataclass(frozen=True, kw_only=True)
class EpisodeSet(Sequence[Episode]):
    """Episodes with their starts and their provenance.

    Attributes:
        episodes: the episodes, in the given order.
        interaction: the interaction that they were played in.
        starts: the start of each episode.
        credits: the credit of their decisions.
        policy, policy_commit: the policy and the commit of its repository.
        about: further facts, such as versions.
        commit: the commit that they were loaded from; `None` if they were not.
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


def publish_episode_folder(folder: str | Path, repo: str, **where: Any) -> Published:
    """Publishes a folder that `save_episodes` wrote.

    Raises:
        ValueError: the folder is incomplete or holds something else; and as for `publish`.
    """
    folder = Path(folder)
    about = tables.read_description(folder, "episodes", str(folder))
    files = {name: path for name, path in safety.files_of(folder).items() if name.endswith(".parquet")}
    files[tables.DESCRIPTION_FILE] = folder / tables.DESCRIPTION_FILE
    files["README.md"] = cards.episodes_card(repo, about).encode()
    columns = tables.features("episodes", bool(about.get("images")))
    count = sum(1 for _ in tables.read_table(folder, "episodes", "train", columns))
    if count != about["rows"]["episodes"]:
        raise ValueError(
            f"{folder} must have {about['rows']['episodes']} episodes, as described, got {count}; save them again."
        )
    replaces = ("episodes/", "decisions/", "traces/")  # versions up to 0.9 wrote the last
    message = f"Publish {count} episodes"
    return publish(files, repo, repo_type="dataset", message=message, replaces=replaces, **where)


def save_episodes(folder: str | Path, episodes: EpisodeSet, *, chat: Chat | None = None) -> None:
    """Writes episodes to a folder that `publish_episode_folder` publishes.

    Args:
        folder: an empty or a new folder.
        episodes: the episodes, with their starts and their credit, if any.
        chat: the chat that rendered them; the dataset records the hashes of its tokenizer and template.

    Raises:
        ValueError: there are no episodes, one began at a later state of its task, or a state cannot be serialized.
    """
    if not episodes.episodes:
        raise ValueError("a dataset must have episodes, got none; play one or more.")
    spec, hashes = TaskSpec.of(evaluated(episodes.interaction)).to_dict(), _hashes(chat)
    facts = {"task": spec, "policy": episodes.policy, "policy_commit": episodes.policy_commit}
    rows: list[dict[str, Any]] = []
    decisions: list[dict[str, Any]] = []
    for place, (episode, start) in enumerate(zip(episodes.episodes, episodes.starts, strict=True)):
        if episode.steps_before:  # its outcome counts what it had earned before, which no row has
            raise ValueError(
                f"a published episode must begin at the first state of its task, got one (number {place + 1}) that "
                f"began after {episode.steps_before} steps; leave it out."
            )
        images: dict[str, Image] = {}
        row = episode_row(place, episode, start, episodes.interaction, facts)
        made = decision_rows(row["id"], episode, episodes.interaction, episodes.credits, hashes)
        decisions += (set_apart(one, images) for one in made)
        rows.append(set_apart(row, images))
        row["images"] = [{"bytes": image.encoded(), "path": name} for name, image in images.items()]
    seen = sum(len(row["images"]) for row in rows)
    counts: dict[str, Any] = {
        "rows": {"episodes": len(rows), "decisions": len(decisions)},
        "estimators": list(episodes.credits),
    }
    counts |= {"images": seen} if seen else {}
    with filled(folder) as new:
        tables.write_table(new, "episodes", "train", rows, tables.features("episodes", bool(seen)))
        tables.write_table(new, "decisions", "train", decisions, tables.features("decisions", bool(seen)))
        tables.write_description(new, "episodes", {**facts, **hashes, **counts, "about": dict(episodes.about)})


def load_episodes(
    repo: str, *, interaction: Interaction[Any] | None = None, chat: Chat | None = None, **where: Unpack[Where]
) -> EpisodeSet:
    """Loads the episodes that `publish_episode_folder` published, equal to the originals.

    Args:
        repo: owner/name.
        interaction: the interaction that they were played in; if `None`, built from the published task, which refuses
            code of others.
        chat: the chat of later replays; another tokenizer or template than the published one is refused.
        **where: as for `fetch`: revision, token, endpoint.

    Raises:
        ValueError: the dataset is incomplete or of another kind; and as for `fetch`.
    """
    fetched = tables.fetch_tables(repo, "episodes", "decisions", **where)
    return load_episode_folder(fetched.folder, interaction=interaction, chat=chat, repo=repo, commit=fetched.commit)


def load_episode_folder(
    folder: str | Path,
    *,
    interaction: Interaction[Any] | None = None,
    chat: Chat | None = None,
    repo: str | None = None,
    commit: str | None = None,
) -> EpisodeSet:
    """Loads the episodes in a folder of `save_episodes`, with the arguments of `load_episodes`.

    Raises:
        ValueError: the folder is incomplete or of another kind.
    """
    folder = Path(folder)
    repo = repo or str(folder)
    about = tables.read_description(folder, "episodes", repo)
    _refuse_other_hashes(about, _hashes(chat), repo)
    interaction = interaction or TaskSpec.untrusted(about.get("task")).build()
    decisions: dict[str, list[dict[str, Any]]] = {}
    seen = bool(about.get("images"))
    for row in tables.read_table(folder, "decisions", "train", tables.features("decisions", seen)):
        decisions.setdefault(row["episode_id"], []).append(row)
    episodes, starts = [], []
    for row in tables.read_table(folder, "episodes", "train", tables.features("episodes", seen)):
        episodes.append(episode_of(interaction, row, decisions.get(row["id"], [])))
        starts.append(RolloutRequest[Any](task=parse_json(row["task"], broken_text=True), seed=row["seed"]))
    counts = {"episodes": len(episodes), "decisions": sum(map(len, decisions.values()))}
    if counts != about.get("rows") or sum(len(one.decisions) for one in episodes) != counts["decisions"]:
        raise ValueError(
            f"{repo} must have the rows of its description, {about.get('rows')}, got {counts}; publish again."
        )
    return EpisodeSet(
        episodes=tuple(episodes),
        interaction=interaction,
        starts=tuple(starts),
        credits=credits_of(itertools.chain.from_iterable(decisions.values())),
        policy=about.get("policy") or "",
        policy_commit=about.get("policy_commit"),
        about=about.get("about") or {},
        commit=commit,
    )


def _hashes(chat: Chat | None) -> dict[str, str | None]:
    """Returns the SHA-256 of a tokenizer's vocabulary and rules, and of its template."""
    if chat is None:
        return {"tokenizer": None, "template": None}
    backend = getattr(chat.tokenizer, "backend_tokenizer", None)
    rules = (
        backend.to_str() if backend is not None else tables.compact_json(sorted(chat.tokenizer.get_vocab().items()))
    )
    template = tables.compact_json([chat.tokenizer.chat_template, chat.template_kwargs])
    return {
        "tokenizer": hashlib.sha256(rules.encode()).hexdigest(),
        "template": hashlib.sha256(template.encode()).hexdigest(),
    }


def _refuse_other_hashes(about: Mapping[str, Any], hashes: Mapping[str, str | None], repo: str) -> None:
    for name, value in hashes.items():
        if value and about.get(name) and value != about[name]:
            raise ValueError(
                f"episodes of {repo} must be replayed with the {name} they were played with, got another one; load "
                f"that of {about.get('policy') or 'their policy'}."
            )
