"""An entry: the claim of a method on one board and every reply of it, as two files bound by their digests."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from hf_credit.boundary import Range, encodable, read, types_of
from hf_credit.options import Options
from hf_credit.parquet import read_rows
from hf_credit.playing import Prompts, Sampling, as_written
from hf_credit.rollouts import Ending, Episode, Interaction, Ledger
from hf_credit.rollouts.capabilities import OutcomeRange
from hf_credit.tasks import TaskSpec
from hf_credit.validators import finite_number, one_of, whole_number
from hf_credit_leaderboard import inputs
from hf_credit_leaderboard.seasons import Season

SCHEMA_VERSION = 2

ENTRY_ID = re.compile(r"[0-9a-f]{32}")
"""The form of an id that `entry_id` returns."""

MOST_CHECKPOINTS = 64
MOST_REPLIES_BYTES = 64 * 2**20  # of the file of replies
MOST_REPLIES = 4096  # of an episode
MOST_CHARACTERS = 2**17  # of a reply
_MOST_UNPACKED = 192 * 2**20  # bytes of the file of replies
_READER = {"memory_bytes": 2 * 2**30, "seconds": 60}  # limits of the process that reads it
_MOST_TEXT = 4_000  # characters of a command, or of a note
_MOST_ERROR = 500
_MOST_SAMPLING = {"max_new_tokens": 2**17, "temperature": 10, "top_k": 2**20, "repetition_penalty": 10}
_SAMPLING = "the sampling of an entry"
SHOWN = ("history", "instructions")  # of its prompts
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_OF_RENDERING = (
    "add_generation_prompt chat_template continue_final_message conversation documents max_length messages padding "
    "return_assistant_tokens_mask return_dict return_tensors sanitize_control_tokens tokenize tokenizer_kwargs tools "
    "truncation"
)
"""Parameters of `apply_chat_template` itself, which are no switches of a template."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The weights of one training run of the method.

    Attributes:
        repo, commit: the model repository and the commit that hold the weights.
        seed: the training seed, which no other checkpoint of the entry shares.
        base: the base model of an adapter, as `owner/name@commit`; `None` if the repository holds the whole model.
    """

    repo: str
    commit: str
    seed: int
    base: str | None = None

    def __post_init__(self) -> None:
        inputs.repo_id(self.repo, "a checkpoint's repository")
        inputs.commit_id(self.commit, f"the commit of {self.repo}")
        whole_number(f"the training seed of {self.repo}", self.seed, 0, inputs.MOST_WHOLE)
        if self.base is not None:
            inputs.pinned(self.base, "a base model")


@dataclass(frozen=True, kw_only=True)
class Entry(Options):
    """A row of a board, as its submitter claims it.

    Attributes:
        schema: the version of these fields.
        benchmark: `owner/name@commit` of the season's dataset that the submitter played.
        season, board: the names of the season and the board.
        name: the display name.
        method: `name` and `options` of the method that trained the checkpoints.
        checkpoints: one per training seed.
        shown: how the task was presented: `history` and `instructions` of an environment, `chat_template_kwargs`.
        sampling: the sampling parameters of replies, as in `hf_credit.tasks.Sampling`.
        ledger: the cost of training, as in `hf_credit.rollouts.Ledger`; `None` if unknown.
        command: the command that made the entry.
        hardware, versions: the machine and the package versions that it ran on.
        episodes_sha256: the SHA-256 of the parquet file next to it.

    Raises:
        ValueError: a field is missing, invalid, or of another version of hf-credit.
    """

    schema: int = SCHEMA_VERSION
    benchmark: str
    season: str
    board: str
    name: str
    method: Mapping[str, Any]
    checkpoints: tuple[Checkpoint, ...]
    shown: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    ledger: Mapping[str, Any] | None = None
    command: Annotated[str, Range(0, _MOST_TEXT)] = ""
    hardware: Annotated[str, Range(0, _MOST_TEXT)] = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    episodes_sha256: str

    def __post_init__(self) -> None:
        _require_schema(self.schema)
        super().__post_init__()
        inputs.pinned(self.benchmark, "a benchmark")
        inputs.display_name(self.season, "a season's name")
        inputs.display_name(self.board, "a board's name")
        inputs.display_name(self.name, "the name of an entry")
        inputs.mapping(self.method, "the method of an entry", frozenset({"name", "options"}))
        inputs.display_name(self.method["name"], "the name of a method")
        inputs.mapping(self.method["options"], "the options of a method")
        self._check_checkpoints()
        self._check_play()
        for package, version in inputs.mapping(self.versions, "the versions of an entry").items():
            inputs.display_name(package, "a package")
            inputs.display_name(version, f"the version of {package}")
        if self.ledger is not None:
            _check_ledger(self.ledger)
        inputs.hex_digest(self.episodes_sha256, "episodes_sha256 of an entry")

    def _check_checkpoints(self) -> None:
        if not 1 <= len(self.checkpoints) <= MOST_CHECKPOINTS:
            raise ValueError(
                f"an entry must have 1 to {MOST_CHECKPOINTS} checkpoints, got {len(self.checkpoints)}; name one for "
                "each training seed."
            )
        for name in ("seed", "commit"):
            if len({getattr(checkpoint, name) for checkpoint in self.checkpoints}) < len(self.checkpoints):
                raise ValueError(
                    f"every checkpoint must have a {name} of its own, got one twice; enter training runs of different "
                    "seeds."
                )

    def _check_play(self) -> None:
        shown = inputs.mapping(self.shown, "how a task is shown")
        for name in shown.keys() - {*SHOWN, "chat_template_kwargs"}:
            raise ValueError(f"a task is shown by history, instructions and chat_template_kwargs, got {name[:80]!r}.")
        Prompts(**{name: value for name, value in shown.items() if name in SHOWN})
        for name, value in inputs.mapping(shown.get("chat_template_kwargs", {}), "chat_template_kwargs").items():
            plain = isinstance(value, bool | int) or (isinstance(value, str) and _WORD.fullmatch(value))
            if name in _OF_RENDERING.split() or not plain:
                raise ValueError(
                    "chat_template_kwargs must be switches of the template, such as enable_thinking, each true, "
                    f"false, a number or a word, got {name[:80]!r}; remove it, since a custom template could play."
                )
        sampling = self.sampled()
        for name, most in _MOST_SAMPLING.items():
            finite_number(name, getattr(sampling, name), most=most)

    def sampled(self) -> Sampling:
        """Returns the sampling parameters of replies."""
        sampling: Sampling = read(Sampling, as_written(inputs.mapping(self.sampling, _SAMPLING)), _SAMPLING)
        return sampling

    def task(self, season: Season) -> TaskSpec:
        """Returns the season's task, presented and sampled as the entry claims.

        Raises:
            ValueError: the season has no such board.
        """
        task = season.board(self.board).task()
        shown = dict(self.shown)
        if not task.has_prompts():
            shown = {name: value for name, value in shown.items() if name == "chat_template_kwargs"}
        return dataclasses.replace(task, sampling=self.sampled(), **shown)

    @classmethod
    def read(cls, content: bytes) -> Entry:
        """Parses the JSON that `hf_credit_leaderboard.inputs.to_json` wrote.

        Raises:
            ValueError: `content` is no entry, exceeds a limit, or is of another version.
        """
        values = inputs.mapping(inputs.strict_json(content), "an entry")
        _require_schema(values.get("schema"))  # first: an entry of another version has other fields
        entry: Entry = read(cls, inputs.mapping(values, "an entry", frozenset(types_of(cls))), "an entry")
        return entry


@dataclass(frozen=True, kw_only=True)
class PlayedEpisode:
    """The replies of a policy on one instance, and the claimed result.

    Attributes:
        checkpoint: the index of the checkpoint in the entry.
        seed: the seed of the instance.
        ending: a value of `hf_credit.rollouts.Ending`.
        outcome: the outcome of the episode.
        events: the event of each reply.
        replies: the text of each reply, in order.
        tokens: the number of tokens of each reply.
        error: the error in one line if the episode ended in one.
    """

    checkpoint: int
    seed: int
    ending: str
    outcome: float
    events: tuple[str, ...]
    replies: tuple[str, ...]
    tokens: tuple[int, ...]
    error: str | None = None

    @classmethod
    def of(cls, checkpoint: int, seed: int, episode: Episode, interaction: Interaction[Any]) -> PlayedEpisode:
        """Builds the record of an episode."""
        return cls(
            checkpoint=checkpoint,
            seed=seed,
            ending=str(episode.ending),
            outcome=counted(interaction, episode.ending, episode.outcome),
            events=tuple(decision.event for decision in episode.decisions),
            replies=tuple(encodable(decision.action_text) for decision in episode.decisions),
            tokens=tuple(len(decision.action_ids) for decision in episode.decisions),
            error=None if episode.error is None else encodable(episode.error)[:_MOST_ERROR],
        )

    def __post_init__(self) -> None:
        one_of("an ending", self.ending, map(str, Ending))
        finite_number(f"the outcome of seed {self.seed}", self.outcome)
        if not len(self.events) == len(self.replies) == len(self.tokens) <= MOST_REPLIES:
            raise ValueError(
                f"an episode must have an event and a number of tokens for each of at most {MOST_REPLIES} replies, "
                f"got {len(self.events)}, {len(self.tokens)} and {len(self.replies)}; record it again."
            )
        longest = max(map(len, self.replies), default=0)
        if longest > MOST_CHARACTERS:
            raise ValueError(f"a reply must have at most {MOST_CHARACTERS} characters, got {longest}; shorten it.")
        if min(self.tokens, default=0) < 0:
            raise ValueError("a reply must have a number of tokens, got a negative one; record it again.")


def counted(interaction: Interaction[Any], ending: str, outcome: float) -> float:
    """Returns what an episode counts: a failed one 0, and where outcomes can be negative, it and a truncated one the
    lowest, so that no policy gains by failures or by not playing."""
    of_rewards = getattr(getattr(interaction, "environment", None), "reward_range", None)
    lowest, _ = OutcomeRange(interaction).outcome_range or of_rewards or (0.0, None)
    if ending == Ending.ERROR or (ending == Ending.TRUNCATED and lowest < 0):
        return min(lowest, 0.0)
    return outcome


def replies_file(episodes: Sequence[PlayedEpisode]) -> bytes:
    """Returns the episodes of all checkpoints of an entry as parquet. The bytes are deterministic for one pyarrow."""
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.Table.from_pylist([dataclasses.asdict(one) for one in episodes], schema=replies_schema())
    content = io.BytesIO()
    parquet.write_table(table, content, compression="zstd")
    return content.getvalue()


def replies_schema() -> Any:
    """Returns the columns of a file of replies."""
    import pyarrow as pa

    texts = pa.list_(pa.string())
    required = {
        "checkpoint": pa.int32(),
        "seed": pa.int64(),
        "ending": pa.string(),
        "outcome": pa.float64(),
        "events": texts,
        "replies": texts,
        "tokens": pa.list_(pa.int32()),
    }
    fields = [pa.field(name, kind, nullable=False) for name, kind in required.items()]
    return pa.schema([*fields, pa.field("error", pa.string())])


def read_replies(path: str | Path, episodes: int) -> list[PlayedEpisode]:
    """Reads an untrusted file of replies in a separate process with limits on memory and time.

    Args:
        episodes: the exact number of episodes that it must hold.

    Raises:
        ValueError: the file has another form or count, is too large, or exceeds a limit.
    """
    path = Path(path)
    if path.stat().st_size > MOST_REPLIES_BYTES:
        raise ValueError(
            f"the file of replies must have at most {MOST_REPLIES_BYTES} bytes, got {path.stat().st_size}; "
            "shorten replies."
        )
    columns = {field.name: str(field.type) for field in replies_schema()}
    rows = read_rows({"the file of replies": path}, columns, most_bytes=_MOST_UNPACKED, **_READER)
    played = [read(PlayedEpisode, row, "an episode") for row in itertools.islice(rows, episodes + 1)]
    if len(played) != episodes:
        got = len(played) if len(played) < episodes else "more"
        raise ValueError(
            f"the file of replies must have one episode for each checkpoint and public task, {episodes}, got {got}; "
            "play every task once."
        )
    return played


def entry_id(entry: bytes, episodes_sha256: str) -> str:
    """Returns the id of an entry, which changes with either file: the first 32 hexadecimal digits of

        SHA-256(SHA-256(entry file) || SHA-256(episodes file)),   digests in hexadecimal.

    Args:
        entry: the bytes of the JSON file.
        episodes_sha256: of the bytes of the parquet file.
    """
    return hashlib.sha256((hashlib.sha256(entry).hexdigest() + episodes_sha256).encode("ascii")).hexdigest()[:32]


def paths_of(name: str) -> tuple[str, str]:
    """Returns the paths of an entry's JSON file and its replies in the results."""
    return f"entries/{name}.json", f"episodes/{name}.parquet"


def read_entry(path: str | Path) -> tuple[str, Entry]:
    """Reads the id and the entry from an untrusted file.

    Raises:
        ValueError: as for `Entry.read`.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        content = file.read(inputs.MOST_BYTES + 1)
    entry = Entry.read(content)
    return entry_id(content, entry.episodes_sha256), entry


def read_episodes(path: str | Path, entry: Entry, season: Season) -> list[PlayedEpisode]:
    """Reads the replies of an entry from an untrusted file.

    Raises:
        ValueError: the file's SHA-256 is not `episodes_sha256` of the entry, or as for `read_replies`.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != entry.episodes_sha256:
            raise ValueError("the file of replies must be the one that the entry names, got another; submit both.")
    return read_replies(path, len(entry.checkpoints) * season.board(entry.board).public)


def require_season(entry: Entry, season: Season, commits: Sequence[str] | None = None) -> None:
    """Refuses an entry that does not belong to this season as published.

    Args:
        commits: the commits of the benchmark's repository, to one of which the entry must be pinned; `None` skips this
            check.

    Raises:
        ValueError: the entry names another season, benchmark, commit or board, or the season is over.
    """
    repo, commit = inputs.pinned(entry.benchmark, "a benchmark")
    if repo != season.benchmark or entry.season != season.name:
        raise ValueError(
            f"an entry must be of the season {season.name!r} of {season.benchmark}, got {entry.season!r} of {repo}; "
            "evaluate on the tasks of this season."
        )
    if not season.open:
        raise ValueError(f"a season must be open, got {season.name!r}, which is over; submit to the next one.")
    if commits is not None and commit not in commits:
        raise ValueError(
            f"the benchmark must be pinned to a commit that holds the season, got {commit}, which is none of "
            f"{season.benchmark}'s; evaluate on the tasks as they are published."
        )
    season.board(entry.board)


def same_claim(entry: Entry) -> str:
    """Returns a key that two entries share if they claim the same results of the same checkpoints under any name."""
    checkpoints = sorted([one.repo, one.commit] for one in entry.checkpoints)
    claim = [entry.season, entry.board, checkpoints, entry.episodes_sha256]
    return hashlib.sha256(inputs.canonical(claim)).hexdigest()


def _require_schema(schema: Any) -> None:
    if schema != SCHEMA_VERSION:
        raise ValueError(
            f"an entry must be of schema {SCHEMA_VERSION}, got {str(schema)[:20]!r}, of another version of hf-credit; "
            "submit it again with the version of the season."
        )


def _check_ledger(ledger: Mapping[str, Any]) -> None:
    fields = frozenset(field.name for field in dataclasses.fields(Ledger))
    for name, value in inputs.mapping(ledger, "the ledger of an entry", fields).items():
        by_role = name in ("decisions", "role_tokens")
        for role, count in inputs.mapping(value, f"{name} of a ledger").items() if by_role else [(name, value)]:
            inputs.display_name(role, "a role")
            whole_number(f"{name} of a ledger", count, 0, inputs.MOST_WHOLE)
