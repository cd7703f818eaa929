"""Data sets of tasks and of episodes with their decisions, published so that any client reads them.

    tasks      train and test; the seed and the columns of each task
    episodes   one row an episode, with its conversation
    decisions  one row a decision: state, context and reply in tokens, log-probabilities, verdict, credit

What was published is loaded as equal values: from a loaded episode, `replay_from` starts again at any decision.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, overload

from datasets import Dataset, Features, Value

from hf_credit._version import __version__
from hf_credit.data import fingerprint
from hf_credit.evaluation.runs import versions
from hf_credit.hub import cards, safety
from hf_credit.hub.loading import fetch
from hf_credit.hub.publishing import Published, publish
from hf_credit.hub.tables import (
    DECISIONS,
    DESCRIPTION_FILE,
    EPISODES,
    FORMAT,
    infer_features,
    read_description,
    read_table,
    write_table,
)
from hf_credit.rollouts import Chat, Decision, Ending, Episode, Interaction, Start, Verdict, context_key
from hf_credit.tasks import TaskSpec
from hf_credit.untrusted import parse_json

Credits = Mapping[str, Mapping[str, float | Sequence[float] | None]]
"""By estimator, by `Decision.id`: what the decision got, or each of its tokens."""

_SPLITS = {"train": "train", "held_out": "test"}  # ours, and what clients call it


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """Tasks as they were loaded.

    Attributes:
        spec: the task, and how it is shown. Code that it names is not trusted.
        train, held_out: rows with the seed and the task's columns.
        commit: that they are of.
    """

    spec: TaskSpec
    train: Dataset | None
    held_out: Dataset | None
    commit: str


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
    starts: tuple[Start[Any], ...]
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


def publish_tasks(
    spec: TaskSpec, repo: str, *, train: int = 1024, held_out: int = 256, first: int = 0, **where: Any
) -> Published:
    """Publishes tasks of an environment or a collaboration as a data set.

    Args:
        spec: the task.
        repo: owner/name.
        train, held_out: how many tasks of each split; 0 leaves one out.
        first: index of the first of each.
        **where: as for `publish`: token, endpoint, private, pr, dry_run.

    Raises:
        ValueError: there are no such tasks, or a seed is missing or comes twice; and as for `publish`.
    """
    interaction, spec = spec.build(), spec.complete()
    rows = {
        split: list(interaction.tasks(split, size, first))  # type: ignore[arg-type]
        for split, size in (("train", train), ("held_out", held_out))
        if size
    }
    with tempfile.TemporaryDirectory() as name:
        write_tasks(Path(name), spec, rows, repo)
        files, message = safety.files_of(Path(name)), f"Publish tasks of {spec.name}"
        return publish(files, repo, repo_type="dataset", message=message, replaces=("tasks/",), **where)


def write_tasks(folder: Path, spec: TaskSpec, rows: Mapping[str, Sequence[Mapping[str, Any]]], repo: str) -> None:
    """Writes tasks as they are published.

    Args:
        folder: an empty one.
        spec: the task.
        rows: those of "train", "held_out" or both.
        repo: to which they will be published, for the card.

    Raises:
        ValueError: there are none, or a seed is missing or comes twice.
    """
    everything = [row for split in rows.values() for row in split]
    if not everything:
        raise ValueError("a data set must have tasks, got none; ask for one or more.")
    _refuse_bad_seeds(everything)
    own = infer_features(everything)
    reserved = {"split", "environment", "options", "fingerprint"} & set(own)
    if reserved:
        raise ValueError(f"columns of a task must have names of their own, got {', '.join(reserved)}; rename them.")
    features = Features(
        {
            **({"seed": Value("int64")} if "seed" in own else {}),
            "split": Value("string"),
            "environment": Value("string"),
            "options": Value("string"),
            **{name: feature for name, feature in own.items() if name != "seed"},
            "fingerprint": Value("string"),
        }
    )
    shown = {"environment": spec.name, "options": _json(spec.options)}
    prints = {}
    for split, tasks in rows.items():
        full = [{**row, **shown, "split": split, "fingerprint": _fingerprint(row)} for row in tasks]
        prints[split] = fingerprint(row["fingerprint"] for row in full)
        write_table(folder, "tasks", _SPLITS[split], full, features)
    facts = {
        "columns": list(own),
        "fingerprints": prints,
        "rows": {split: len(tasks) for split, tasks in rows.items()},
    }
    _describe(folder, "tasks", {"task": spec.to_dict(), **facts})
    card = cards.tasks_card(repo, spec, {_SPLITS[split]: len(tasks) for split, tasks in rows.items()}, prints)
    (folder / "README.md").write_text(card, encoding="utf-8")


def load_tasks(
    repo: str, *, revision: str | None = None, token: str | None = None, endpoint: str | None = None
) -> Tasks:
    """The tasks that `publish_tasks` published.

    Raises:
        ValueError: it holds something else, or a seed is missing or comes twice; and as for `fetch`.
    """
    fetched = fetch(
        repo,
        repo_type="dataset",
        revision=revision,
        token=token,
        endpoint=endpoint,
        allow=[DESCRIPTION_FILE, "tasks/*.parquet"],
    )
    about = _description(fetched.folder, "tasks", repo)
    spec = _untrusted_spec(about["task"])
    found: dict[str, Dataset] = {}
    rows = []
    for split in about["rows"]:
        tasks = list(read_table(fetched.folder, "tasks", _SPLITS[split], None))
        kept = [{name: row[name] for name in about["columns"]} for row in tasks]
        if fingerprint(_fingerprint(row) for row in kept) != about["fingerprints"][split]:
            raise ValueError(
                f"tasks of {repo} must have the fingerprint it tells, got others in {split}; publish again."
            )
        rows += kept
        found[split] = Dataset.from_list(kept, features=infer_features(kept))
    _refuse_bad_seeds(rows)
    return Tasks(spec=spec, train=found.get("train"), held_out=found.get("held_out"), commit=fetched.commit)


def publish_episodes(
    episodes: EpisodeSet, repo: str, *, chat: Chat | None = None, traces: bool = False, **where: Any
) -> Published:
    """Publishes episodes and their decisions as a data set.

    Args:
        episodes: with their starts, and their credit if there is any.
        repo: owner/name.
        chat: that rendered them; whose tokenizer and template are noted, as hashes.
        traces: whether each conversation is written once more, in the form that the Hub's viewer of traces shows.
        **where: as for `publish`: token, endpoint, private, pr, dry_run.

    Raises:
        ValueError: a state cannot be written (`Interaction.state_to_json`); and as for `publish`.
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
    about = _description(folder, "episodes", str(folder))
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
    spec = TaskSpec.of(episodes.interaction.evaluated).to_dict()
    hashes = _hashes(chat)
    rows: list[dict[str, Any]] = []
    decisions: list[dict[str, Any]] = []
    for place, (episode, start) in enumerate(zip(episodes.episodes, episodes.starts, strict=True)):
        row = _episode_row(place, episode, start, episodes, spec)
        rows.append(row)
        decisions += _decision_rows(row["id"], episode, episodes, hashes)
    write_table(folder, "episodes", "train", rows, EPISODES)
    write_table(folder, "decisions", "train", decisions, DECISIONS)
    about = {"task": spec, "policy": episodes.policy, "policy_commit": episodes.policy_commit, **hashes}
    facts = {"rows": {"episodes": len(rows), "decisions": len(decisions)}, "about": dict(episodes.about)}
    _describe(folder, "episodes", {**about, **facts, "estimators": list(episodes.credits)})


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
    fetched = fetch(
        repo,
        repo_type="dataset",
        revision=revision,
        token=token,
        endpoint=endpoint,
        allow=[DESCRIPTION_FILE, "episodes/*.parquet", "decisions/*.parquet"],
    )
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
    about = _description(folder, "episodes", repo)
    _refuse_other_hashes(about, _hashes(chat), repo)
    interaction = interaction or _untrusted_spec(about["task"]).build()
    decisions: dict[str, list[dict[str, Any]]] = {}
    for row in read_table(folder, "decisions", "train", DECISIONS):
        decisions.setdefault(row["episode_id"], []).append(row)
    found, starts = [], []
    for row in read_table(folder, "episodes", "train", EPISODES):
        found.append(_episode(interaction, row, decisions.get(row["id"], [])))
        starts.append(Start[Any](task=parse_json(row["task"], broken_text=True), seed=row["seed"]))
    counted = {"episodes": len(found), "decisions": sum(len(own) for own in decisions.values())}
    if counted != about.get("rows") or sum(len(one.decisions) for one in found) != counted["decisions"]:
        raise ValueError(
            f"{repo} must have the rows it tells of, got {counted}, not {about.get('rows')}; publish again."
        )
    credits: dict[str, dict[str, float | Sequence[float] | None]] = {}
    for row in itertools.chain.from_iterable(decisions.values()):
        for credit in row["credits"] or ():
            credits.setdefault(credit["estimator"], {})[row["id"]] = _values(credit["values"])
    return EpisodeSet(
        episodes=tuple(found),
        interaction=interaction,
        starts=tuple(starts),
        credits=credits,
        policy=about.get("policy") or "",
        policy_commit=about.get("policy_commit"),
        about=about.get("about") or {},
        commit=commit,
    )


def conversation(interaction: Interaction[Any], episode: Episode) -> list[dict[str, str]]:
    """What was said in an episode, in order: each message of a context once, and the replies.

    Where several speak, a context is told from where it differs from the one before it for the same event.
    """
    told: list[dict[str, str]] = []
    before: dict[str, list[dict[str, str]]] = {}
    for decision in episode.decisions:
        asked = [request for request in interaction.pending(decision.state) if request.event == decision.event]
        messages = [dict(message) for message in asked[0].messages] if asked else []
        known = before.get(decision.event, [])
        shared = sum(
            1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(known, messages, strict=False))
        )
        reply = {"role": "assistant", "content": decision.action_text}
        told += [*messages[shared:], reply]
        before[decision.event] = [*messages, reply]
    return [{"role": one["role"], "content": _unicode(one["content"])} for one in told]


def trace(row: Mapping[str, Any]) -> bytes:
    """An episode's row as a session in the Session Trace Simple Format, which the Hub's viewer of traces shows."""
    name = f"{row['environment']} {row['seed']}"
    told = {"outcome": repr(row["outcome"]), "ending": row["ending"]}
    head = {"type": "session", "harness": "hf-credit", "id": row["id"], "name": name, **told}
    lines = [head, *({"type": "message", "message": message} for message in row["messages"])]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def _episode_row(
    place: int, episode: Episode, start: Start[Any], episodes: EpisodeSet, spec: Mapping[str, Any]
) -> dict[str, Any]:
    interaction = episodes.interaction
    known = episode.final_state is not None
    return {
        "id": _episode_id(place, episode, start),
        "environment": spec.get("environment") or spec.get("collaboration"),
        "options": _json(spec.get("environment_options") or spec.get("collaboration_options") or {}),
        "task": _json(dict(start.task or {})),
        "seed": start.seed,
        "policy": episodes.policy,
        "policy_commit": episodes.policy_commit,
        "messages": conversation(interaction, episode),
        "ending": str(episode.ending),
        "outcome": float(episode.outcome),
        "metrics": _json(dict(episode.metrics)),
        "turns": len(episode.decisions),
        "tokens": episode.generated_tokens,
        "error": None if episode.error is None else _unicode(episode.error),
        "start": episode.start,
        "path": list(episode.path),
        "inherited": episode.inherited,
        "ways": episode.ways,
        "scored": episode.scored,
        "next_context": None if episode.next_context is None else list(episode.next_context),
        "final_state": interaction.state_to_json(episode.final_state) if known else None,
        "versions": _json(versions()),
    }


def _decision_rows(
    episode_id: str, episode: Episode, episodes: EpisodeSet, hashes: Mapping[str, str | None]
) -> Iterator[dict[str, Any]]:
    interaction = episodes.interaction
    steps = {id(decision): step for step, made in enumerate(episode.steps) for decision in made}
    for index, decision in enumerate(episode.decisions):
        text = _unicode(decision.action_text)
        yield {
            "episode_id": episode_id,
            "index": index,
            "step": steps[id(decision)],
            "id": decision.id,
            "role": decision.role,
            "event": decision.event,
            "state": interaction.state_to_json(decision.state),
            "context_key": context_key(_json(list(decision.context_ids))),
            "context_ids": list(decision.context_ids),
            "action_ids": list(decision.action_ids),
            "logprobs": None if decision.logprobs is None else list(decision.logprobs),
            "text": text,
            "broken_text": None if text == decision.action_text else json.dumps(decision.action_text),
            "reward": decision.reward,
            "verdict": None if decision.verdict is None else vars(decision.verdict),
            "trained": decision.trained,
            "credits": [
                {"estimator": estimator, "values": _listed(given[decision.id])}
                for estimator, given in episodes.credits.items()
                if decision.id in given
            ],
            "tokenizer": hashes["tokenizer"],
            "template": hashes["template"],
        }


def _episode(interaction: Interaction[Any], row: Mapping[str, Any], own: list[dict[str, Any]]) -> Episode:
    own.sort(key=lambda one: one["index"])
    if [one["index"] for one in own] != list(range(row["turns"])):
        raise ValueError(f"an episode must have all its decisions, got {len(own)} of {row['turns']} for {row['id']}.")
    states: dict[int, Any] = {}  # decisions that were made at once share one
    decisions = []
    for one in own:
        if one["step"] not in states:
            states[one["step"]] = interaction.state_from_json(one["state"])
        broken = one["broken_text"]
        decisions.append(
            Decision(
                role=one["role"],
                state=states[one["step"]],
                context_ids=tuple(one["context_ids"]),
                action_ids=tuple(one["action_ids"]),
                logprobs=None if one["logprobs"] is None else tuple(one["logprobs"]),
                action_text=one["text"] if broken is None else parse_json(broken, broken_text=True),
                event=one["event"],
                reward=one["reward"],
                verdict=None if one["verdict"] is None else Verdict(**one["verdict"]),
                trained=one["trained"],
                id=one["id"],
            )
        )
    final = row["final_state"]
    return Episode(
        decisions=tuple(decisions),
        outcome=row["outcome"],
        ending=Ending(row["ending"]),
        metrics=parse_json(row["metrics"]),
        error=row["error"],
        start=row["start"],
        path=tuple(row["path"]),
        inherited=row["inherited"],
        ways=row["ways"],
        scored=row["scored"],
        next_context=None if row["next_context"] is None else tuple(row["next_context"]),
        final_state=None if final is None else interaction.state_from_json(final),
    )


def _describe(folder: Path, kind: str, facts: Mapping[str, Any]) -> None:
    about = {"kind": kind, "format": FORMAT, "version": __version__, "versions": versions(), **facts}
    (folder / DESCRIPTION_FILE).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _description(folder: Path, kind: str, repo: str) -> dict[str, Any]:
    file = folder / DESCRIPTION_FILE
    if not file.is_file():
        raise ValueError(f"{repo} must hold {kind} and {DESCRIPTION_FILE}, got none; it was published otherwise.")
    return read_description(file, kind, repo)


def _untrusted_spec(values: Any) -> TaskSpec:
    return replace(TaskSpec.from_dict(values), trusted=False)


def _refuse_bad_seeds(rows: Sequence[Mapping[str, Any]]) -> None:
    seeds = [row["seed"] for row in rows if "seed" in row]
    if seeds and (len(seeds) < len(rows) or any(type(seed) is not int for seed in seeds)):
        raise ValueError("every task must have a seed, a whole number, got one without; add it.")
    if len(set(seeds)) < len(seeds):
        seen: set[int] = set()
        twice = next(seed for seed in seeds if seed in seen or seen.add(seed))  # type: ignore[func-returns-value]
        raise ValueError(f"every task must have a seed of its own, got {twice} more than once; drop it.")


def _hashes(chat: Chat | None) -> dict[str, str | None]:
    """SHA-256 of a tokenizer's vocabulary and rules, and of its template."""
    if chat is None:
        return {"tokenizer": None, "template": None}
    backend = getattr(chat.tokenizer, "backend_tokenizer", None)
    told = backend.to_str() if backend is not None else _json(sorted(chat.tokenizer.get_vocab().items()))
    template = _json([chat.tokenizer.chat_template, chat.template_kwargs])
    return {"tokenizer": _sha256(told), "template": _sha256(template)}


def _refuse_other_hashes(about: Mapping[str, Any], own: Mapping[str, str | None], repo: str) -> None:
    for name in ("tokenizer", "template"):
        if own[name] and about.get(name) and own[name] != about[name]:
            raise ValueError(
                f"episodes of {repo} must be replayed with the {name} they were played with, got another one; load "
                f"that of {about.get('policy') or 'their policy'}."
            )


def _episode_id(place: int, episode: Episode, start: Start[Any]) -> str:
    told = [place, start.seed, [list(decision.action_ids) for decision in episode.decisions], list(episode.path)]
    return _sha256(_json(told))[:24]


def _listed(credit: float | Sequence[float] | None) -> list[float]:
    if credit is None:
        return []
    return [float(credit)] if isinstance(credit, int | float) else [float(value) for value in credit]


def _values(values: Sequence[float]) -> float | Sequence[float] | None:
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def _fingerprint(row: Mapping[str, Any]) -> str:
    return _sha256(_json(dict(row)))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
