"""An entry: what a method claims on one board, with everything that somebody else needs to check it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hf_credit.hub.leaderboard.inputs import (
    DIGEST,
    canonical,
    commit_id,
    display_name,
    mapping,
    number,
    repo_id,
    strict_json,
    whole,
)
from hf_credit.hub.leaderboard.seasons import Season
from hf_credit.rollouts import Ledger
from hf_credit.tasks.spec import Sampling, TaskSpec

SCHEMA_VERSION = 1
KINDS = ("policy", "credit")

ENTRY_ID = re.compile(r"[0-9a-f]{32}")
"""What `entry_id` gives."""

MOST_CHECKPOINTS = 64
_MOST_TEXT = 4_000  # characters of a command, or of a note
_HISTORIES = ("append", "current")
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_OF_RENDERING = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
"""What `apply_chat_template` itself takes: no switch of a template."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One training run of the method.

    Attributes:
        repo, commit: where its weights lie: a model repository, pinned.
        seed: of the training; no two checkpoints of an entry share one.
        base: the model it was trained from, as `owner/name@commit`; `None` where the repository holds the whole model.
    """

    repo: str
    commit: str
    seed: int
    base: str | None = None

    def __post_init__(self) -> None:
        repo_id(self.repo, "a checkpoint's repository")
        commit_id(self.commit, f"the commit of {self.repo}")
        whole(self.seed, f"the training seed of {self.repo}")
        if self.base is not None:
            name, at, commit = str(self.base).partition("@")
            repo_id(name, "a base model")
            commit_id(commit if at else "", f"the commit of the base model {name}")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row of a board.

    Attributes:
        schema: of these fields.
        kind: "policy" on a board of policies, "credit" on one of credit.
        benchmark: `owner/name@commit` of the season's dataset, as the submitter saw it.
        season, board: by their names.
        name: what people call it.
        method: `name` and `options` of the method that trained it, or whose credit it is.
        checkpoints: one a training seed; none for credit, which has no weights.
        shown: how the task was shown: `history` and `instructions` of an environment, `chat_template_kwargs`.
        sampling: how replies were drawn.
        ledger: what training cost, as in `hf_credit.rollouts.Ledger`; `None` where it was not kept.
        command: that made it.
        hardware, versions: what it ran on.
        episodes_sha256: of the parquet file beside it.

    Raises:
        ValueError: a field is missing, not possible, or of another version of hf-credit.
    """

    schema: int = SCHEMA_VERSION
    kind: str = "policy"
    benchmark: str
    season: str
    board: str
    name: str
    method: Mapping[str, Any]
    checkpoints: tuple[Checkpoint, ...] = ()
    shown: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    ledger: Mapping[str, Any] | None = None
    command: str = ""
    hardware: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    episodes_sha256: str

    def __post_init__(self) -> None:
        if self.schema != SCHEMA_VERSION:
            raise ValueError(
                f"an entry must be of schema {SCHEMA_VERSION}, got {str(self.schema)[:20]!r}, of another version of "
                "hf-credit; submit it again with the version of the season."
            )
        if self.kind not in KINDS:
            raise ValueError(f"the kind of an entry must be one of {', '.join(KINDS)}, got {self.kind!r}; pick one.")
        name, at, commit = str(self.benchmark).partition("@")
        repo_id(name, "a benchmark")
        commit_id(commit if at else "", "the commit of the benchmark")
        display_name(self.season, "a season's name")
        display_name(self.board, "a board's name")
        display_name(self.name, "the name of an entry")
        mapping(self.method, "the method of an entry", frozenset({"name", "options"}))
        display_name(self.method["name"], "the name of a method")
        mapping(self.method["options"], "the options of a method")
        self._check_checkpoints()
        self._check_play()
        for what in ("command", "hardware"):
            value = getattr(self, what)
            if not isinstance(value, str) or len(value) > _MOST_TEXT:
                raise ValueError(f"{what} of an entry must be text of at most {_MOST_TEXT} characters; shorten it.")
        for package, version in mapping(self.versions, "the versions of an entry").items():
            display_name(package, "a package")
            display_name(version, f"the version of {package}")
        _check_ledger(self.ledger)
        if not isinstance(self.episodes_sha256, str) or not DIGEST.fullmatch(self.episodes_sha256):
            raise ValueError(
                "episodes_sha256 must be the 64 digits of the file's SHA-256, got something else; add it."
            )

    def _check_checkpoints(self) -> None:
        if (self.kind == "policy") != bool(self.checkpoints) or len(self.checkpoints) > MOST_CHECKPOINTS:
            raise ValueError(
                f"a policy must have 1 to {MOST_CHECKPOINTS} checkpoints and credit none, got "
                f"{len(self.checkpoints)} for {self.kind}; name one for each training seed."
            )
        for what in ("seed", "commit"):
            values = [getattr(one, what) for one in self.checkpoints]
            if len(set(values)) < len(values):
                raise ValueError(
                    f"every checkpoint must have a {what} of its own, got one twice; a method's checkpoints are "
                    "training runs of different seeds."
                )

    def _check_play(self) -> None:
        shown = mapping(self.shown, "how a task is shown")
        for name in shown.keys() - {"history", "instructions", "chat_template_kwargs"}:
            raise ValueError(f"a task is shown by history, instructions and chat_template_kwargs, got {name[:80]!r}.")
        if shown.get("history", "append") not in _HISTORIES or not isinstance(shown.get("instructions", True), bool):
            raise ValueError("history must be 'append' or 'current' and instructions true or false; correct them.")
        for name, value in mapping(shown.get("chat_template_kwargs", {}), "chat_template_kwargs").items():
            plain = isinstance(value, bool | int) or (isinstance(value, str) and _WORD.fullmatch(value))
            if name in _OF_RENDERING or not plain:
                raise ValueError(
                    "chat_template_kwargs must be switches of the template, such as enable_thinking, each true, "
                    f"false, a number or a word, got {name[:80]!r}; a template of one's own could play."
                )
        sampling = mapping(self.sampling, "the sampling of an entry")
        names = {one.name for one in dataclasses.fields(Sampling)}
        for name in sampling.keys() - names:
            raise ValueError(f"sampling has the fields {', '.join(sorted(names))}, got {name[:80]!r}; remove it.")
        drawn = Sampling(**sampling)
        whole(drawn.max_new_tokens, "max_new_tokens", 1, 2**17)
        number(drawn.temperature, "temperature", 0, 10)
        number(drawn.top_p, "top_p", 1e-9, 1)
        whole(drawn.top_k, "top_k", 0, 2**20)

    @property
    def drawn(self) -> Sampling:
        """How replies are drawn."""
        return Sampling(**self.sampling)

    def task(self, season: Season) -> TaskSpec:
        """What is played: the season's task, shown and sampled as the entry says.

        Raises:
            ValueError: the season has no such board.
        """
        own = season.board(self.board).task()
        shown = dict(self.shown)
        if own.collaboration:
            shown = {name: value for name, value in shown.items() if name == "chat_template_kwargs"}
        return dataclasses.replace(own, sampling=self.drawn, **shown)

    def to_json(self) -> bytes:
        """As the file of an entry; `from_json` gives back an equal one."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True, allow_nan=False).encode("utf-8") + b"\n"

    @classmethod
    def from_json(cls, content: bytes) -> Entry:
        """The entry that `to_json` wrote.

        Raises:
            ValueError: it is something else, beyond the limits, or of another version.
        """
        values = mapping(strict_json(content), "an entry")
        if values.get("schema") != SCHEMA_VERSION:
            raise ValueError(
                f"an entry must be of schema {SCHEMA_VERSION}, got {str(values.get('schema'))[:20]!r}, of another "
                "version of hf-credit; submit it again with the version of the season."
            )
        mapping(values, "an entry", _ENTRY_FIELDS)
        checkpoints = values["checkpoints"]
        if not isinstance(checkpoints, list) or len(checkpoints) > MOST_CHECKPOINTS:
            raise ValueError(f"checkpoints must be a list of at most {MOST_CHECKPOINTS}, got something else.")
        made = tuple(Checkpoint(**mapping(one, "a checkpoint", _CHECKPOINT_FIELDS)) for one in checkpoints)
        return cls(**{**values, "checkpoints": made})


def entry_id(entry: bytes, episodes: bytes | str) -> str:
    """The id of an entry: the first 32 hexadecimal digits of

        SHA-256(SHA-256(entry file) || SHA-256(episodes file)),   digests in hexadecimal

    so that neither file can be changed and keep it.

    Args:
        entry: the bytes of its JSON.
        episodes: the bytes of its parquet file, or the SHA-256 of these.
    """
    second = episodes if isinstance(episodes, str) else hashlib.sha256(episodes).hexdigest()
    return hashlib.sha256((hashlib.sha256(entry).hexdigest() + second).encode("ascii")).hexdigest()[:32]


def entry_path(name: str) -> str:
    """Where the JSON of an entry lies in the results."""
    return f"entries/{name}.json"


def episodes_path(name: str) -> str:
    """Where its replies lie."""
    return f"episodes/{name}.parquet"


def require_season(entry: Entry, season: Season, commits: Sequence[str]) -> None:
    """Refuses an entry that is not of this season as it is published.

    Args:
        entry: that was submitted.
        season: that is open.
        commits: of the benchmark's repository that hold this season.

    Raises:
        ValueError: it is of another season or benchmark, the season is over, or there is no such board.
    """
    repo, _, commit = entry.benchmark.partition("@")
    if repo != season.benchmark or entry.season != season.name:
        raise ValueError(
            f"an entry must be of the season {season.name!r} of {season.benchmark}, got {entry.season!r} of {repo}; "
            "evaluate on the tasks of this season."
        )
    if not season.open:
        raise ValueError(f"a season must be open, got {season.name!r}, which is over; submit to the next one.")
    if commit not in commits:
        raise ValueError(
            f"the benchmark must be pinned to a commit that holds the season, got {commit}, which is none of "
            f"{season.benchmark}'s; evaluate on the tasks as they are published."
        )
    season.board(entry.board) if entry.kind == "policy" else season.credit_board(entry.board)


def same_claim(entry: Entry) -> str:
    """What two entries share that claim the same results of the same checkpoints, whatever they are called.

    Two methods may credit the same decisions to a factor, so that their fidelities are equal: of credit, the method
    and its options count as the weights do.
    """
    weights: list[Any] = sorted([one.repo, one.commit] for one in entry.checkpoints)
    if entry.kind == "credit":
        weights = [dict(entry.method)]
    return hashlib.sha256(canonical([entry.season, entry.board, weights, entry.episodes_sha256])).hexdigest()


def _check_ledger(ledger: Mapping[str, Any] | None) -> None:
    if ledger is None:
        return
    what = "the ledger of an entry"
    known = {"role_tokens": {}, **mapping(ledger, what)}  # older entries do not have it
    for name, value in mapping(known, what, _LEDGER_FIELDS).items():
        if name in ("decisions", "role_tokens"):
            for role, count in mapping(value, f"{name} of a ledger").items():
                display_name(role, "a role")
                whole(count, f"{name} of {role}")
        else:
            whole(value, f"{name} of a ledger")


_LEDGER_FIELDS = frozenset(one.name for one in dataclasses.fields(Ledger))
_ENTRY_FIELDS = frozenset(one.name for one in dataclasses.fields(Entry))
_CHECKPOINT_FIELDS = frozenset(one.name for one in dataclasses.fields(Checkpoint))
