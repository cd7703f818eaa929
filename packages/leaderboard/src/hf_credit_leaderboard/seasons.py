"""A season: the public tasks that entries play, and a commitment to the secret tasks that rank them."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hf_credit.boundary import Range, read
from hf_credit.environments.tasks import SEEDS_PER_SPLIT, split_of, task_seed
from hf_credit.files import write_private
from hf_credit.options import Options
from hf_credit.registry import did_you_mean
from hf_credit.rollouts import Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import TaskSource
from hf_credit.tasks.spec import TaskSpec
from hf_credit_leaderboard import inputs

SEASON_FILE = "season.json"

_Two = Annotated[int, Range(2, 4096)]  # or more tasks


@dataclass(frozen=True, kw_only=True)
class SeasonTask(Options):
    """A board: a task, and how many public and secret instances of it are played.

    Attributes:
        name: of the board, unique in the season.
        spec: the environment or the collaboration, its options and limits, as in `hf_credit.tasks.TaskSpec`.
        public, secret: the number of instances of each kind, at least 2, since paired tests need two.
        each: the most entries of one account.
        size: "micro" for policies that train on a CPU in minutes, "full" for language models.
    """

    name: str
    spec: Mapping[str, Any]
    public: _Two = 64
    secret: _Two = 64
    each: Annotated[int, Range(1, 4096)] = 16
    size: Literal["micro", "full"] = "micro"

    def __post_init__(self) -> None:
        super().__post_init__()
        inputs.display_name(self.name, "a board's name")
        self.task()

    def task(self) -> TaskSpec:
        """Returns the task. Code that a season of others names never runs."""
        return TaskSpec.untrusted(self.spec)

    def public_seeds(self) -> list[int]:
        """Returns 2^31 to 2^31 + public - 1: the first held-out tasks, which `hf-credit evaluate` plays."""
        return [task_seed("held_out", index) for index in range(self.public)]


@dataclass(frozen=True, kw_only=True)
class Season:
    """The public part of a season.

    Attributes:
        benchmark: the dataset repository that holds the season.
        results: the dataset repository that receives entries.
        tasks: the boards.
        salt_sha256: the SHA-256 of the secret salt, in hexadecimal.
        public_key: the Ed25519 key that verifies records, in hexadecimal.
        open: whether the season accepts entries.
        cells: the dataset of benchmark cells, as owner/name, that the page shows; "" for none.
        templates: digests of the chat templates that maintainers have read; a policy with another template is not
            ranked.
        salt: the salt in hexadecimal once the season is over, so that everybody can check which tasks were played.

    Raises:
        ValueError: a field is invalid, two boards share a name, or the salt does not match `salt_sha256`.
    """

    name: str
    benchmark: str
    results: str
    tasks: tuple[SeasonTask, ...]
    salt_sha256: str
    public_key: str
    cells: str = ""
    templates: tuple[str, ...] = ()
    open: bool = True
    salt: str | None = None

    def __post_init__(self) -> None:
        inputs.display_name(self.name, "a season's name")
        inputs.repo_id(self.benchmark, "a benchmark")
        inputs.repo_id(self.results, "the repository of results")
        if self.cells:
            inputs.repo_id(self.cells, "the repository of cells")
        names = [board.name for board in self.tasks]
        if len(set(names)) < len(names):
            raise ValueError(
                f"every board of a season must have a name of its own, got {', '.join(names)}; rename one."
            )
        inputs.hex_digest(self.salt_sha256, "salt_sha256 of a season")
        inputs.hex_digest(self.public_key, "public_key of a season")
        for template in self.templates:
            inputs.hex_digest(template, "a template of a season")
        if self.salt is not None:
            require_salt(self.salt, self.salt_sha256)
            if self.open:
                raise ValueError(
                    "a season must be over when its salt is published, got an open season; set open=false."
                )

    def board(self, name: str) -> SeasonTask:
        """Returns the board called `name`.

        Raises:
            ValueError: no such board exists.
        """
        by_name = {board.name: board for board in self.tasks}
        if name not in by_name:
            remedy = did_you_mean(str(name)[:80], by_name) or "name one of these."
            raise ValueError(
                f"a board of the season {self.name!r} must be one of {', '.join(by_name)}, got {str(name)[:80]!r}; "
                f"{remedy}"
            )
        return by_name[name]

    @classmethod
    def read(cls, content: bytes) -> Season:
        """Parses the JSON that `hf_credit_leaderboard.inputs.to_json` wrote.

        Raises:
            ValueError: `content` is no season.
        """
        season: Season = read(cls, inputs.strict_json(content, "a season"), "a season")
        return season


@dataclass(frozen=True, kw_only=True)
class SeasonSecret:
    """The secret of a season, known to the verifier only. Its `repr` omits both fields.

    Attributes:
        salt: the salt of the secret seeds, in hexadecimal.
        private_key: the Ed25519 key that signs records, in hexadecimal.
    """

    salt: str = field(repr=False)
    private_key: str = field(repr=False)

    @classmethod
    def new(cls) -> SeasonSecret:
        """Draws a salt of 256 bits and a key from the operating system."""
        return cls(salt=secrets.token_hex(32), private_key=Ed25519PrivateKey.generate().private_bytes_raw().hex())

    @property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.private_key))

    @property
    def public_key(self) -> str:
        """The key that verifies signatures, in hexadecimal."""
        return self._key.public_key().public_bytes_raw().hex()

    @property
    def salt_sha256(self) -> str:
        """The commitment that a season publishes: the SHA-256 of the salt."""
        return hashlib.sha256(bytes.fromhex(self.salt)).hexdigest()

    def sign(self, value: Any) -> str:
        """Returns the signature of plain values, in hexadecimal."""
        return self._key.sign(inputs.canonical(value)).hex()

    def save(self, path: str | Path) -> Path:
        """Writes the secret to a new file that only its owner can read.

        Raises:
            FileExistsError: the file exists; a salt is never replaced.
        """
        return write_private(path, inputs.to_json(self))

    @classmethod
    def read(cls, content: bytes, season: Season) -> SeasonSecret:
        """Parses the file that `save` wrote.

        Raises:
            ValueError: `content` is no secret, or the secret of another season.
        """
        what = "a season's secret"
        secret: SeasonSecret = read(cls, inputs.strict_json(content, what), what)
        require_salt(secret.salt, season.salt_sha256)
        if secret.public_key != season.public_key:
            raise ValueError(f"the key must be that of the season {season.name!r}, got another; use its own file.")
        return secret


def signed_by(public_key: str, value: Any, signature: str) -> bool:
    """Returns whether `signature` is a signature of plain values by the owner of `public_key`."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(signature), inputs.canonical(value))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def require_salt(salt: str, promised: str) -> None:
    """Refuses a salt whose SHA-256 differs from the one that a season published.

    Raises:
        ValueError: the salt has another SHA-256, or another form.
    """
    inputs.hex_digest(salt, "a season's salt")
    if hashlib.sha256(bytes.fromhex(salt)).hexdigest() != promised:
        raise ValueError(f"the SHA-256 of a season's salt must be {promised}, got another; use the season's salt.")


def secret_seeds(salt: str, task: str, count: int) -> list[int]:
    """Returns the first `count` secret seeds of a board.

        seed_i = 2^32 + HMAC-SHA256(salt, task, i) mod 2^62,   i = 0, 1, 2, ...

    Training and public tasks have seeds below 2^32, so no secret seed is among them. Environments whose tasks are a
    fixed list take seeds modulo 2^32 (`hf_credit.environments.tasks.split_of`): the sequence omits an i whose seed
    would be a training task there, and seeds that it already holds.

    Args:
        salt: the season's salt, in hexadecimal.
    """
    seeds: dict[int, None] = {}
    index = 0
    while len(seeds) < count:
        message = json.dumps([task, index]).encode("utf-8")
        digest = hmac.new(bytes.fromhex(salt), message, hashlib.sha256).digest()
        seed = 2 * SEEDS_PER_SPLIT + int.from_bytes(digest, "big") % 2**62
        if split_of(seed)[0] == "held_out":
            seeds[seed] = None
        index += 1
    return list(seeds)


def print_key(salt: str, task: str) -> str:
    """Returns the key of the prints of a board's policies, in hexadecimal; without it they say nothing of tasks."""
    return hmac.new(bytes.fromhex(salt), json.dumps([task, "print"]).encode("utf-8"), hashlib.sha256).hexdigest()


def starts_of(interaction: Interaction[Any], seeds: Sequence[int]) -> list[RolloutRequest[Any]]:
    """Returns a rollout request for the instance of each seed.

    An environment makes its task from the seed. A task source that draws rows returns the held-out row at the seed
    modulo 2^31, so that a public seed names the same row as in `hf_credit.tasks.rows.evaluation_starts`.

    Raises:
        ValueError: the task is no source of rows.
    """
    source = TaskSource(interaction)
    if source.seeded:
        return [RolloutRequest(task={}, seed=seed) for seed in seeds]
    indices = {seed % SEEDS_PER_SPLIT for seed in seeds}
    rows = {index: row for index in indices for row in source.tasks("held_out", 1, index)}
    return [RolloutRequest(task=rows[seed % SEEDS_PER_SPLIT], seed=seed) for seed in seeds]
