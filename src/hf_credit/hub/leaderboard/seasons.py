"""A season: the tasks that entries are compared on, public ones by name and secret ones by a commitment."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hf_credit.environments.tasks import SEEDS_PER_SPLIT, split_of, task_seed
from hf_credit.hub.leaderboard.inputs import (
    MOST_BYTES,
    canonical,
    display_name,
    from_plain,
    hex_digest,
    repo_id,
    strict_json,
    to_json,
)
from hf_credit.rollouts import Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import TaskSource
from hf_credit.tasks.spec import TaskSpec
from hf_credit.validators import one_of, whole_number

SEASON_FILE = "season.json"
SECRET_FILE = "season_secret.json"
"""The salt and the private key. It stays with the verifier and is published nowhere while the season is open."""

_MOST_TASKS = 4096
_POLICY = re.compile(r"policies/[A-Za-z0-9_-]{1,64}")

B = TypeVar("B", bound="Board")


@dataclass(frozen=True, kw_only=True)
class Board:
    """What boards of policies and of credit share: a name, unique in the season, and a task.

    Raises:
        ValueError: a field is not possible.
    """

    name: str
    spec: Mapping[str, Any]

    def __post_init__(self) -> None:
        display_name(self.name, "a board's name")
        self.task()

    def task(self) -> TaskSpec:
        """The task. Code that a season from elsewhere names is not run."""
        return untrusted(self.spec)


@dataclass(frozen=True, kw_only=True)
class SeasonTask(Board):
    """One board of a season: a task, and how many public and secret instances of it are played.

    Attributes:
        name: of the board, unique in the season.
        spec: the environment or the collaboration, its options and limits, as `hf_credit.tasks.TaskSpec` has them.
        public, secret: how many instances of either kind, each at least 2: of one nothing can be said.
        size: "micro" for policies that a processor trains in minutes, "full" for language models.

    Raises:
        ValueError: a field is not possible.
    """

    public: int = 64
    secret: int = 64
    size: str = "micro"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("the size of a board", self.size, ("micro", "full"))
        for kind in ("public", "secret"):
            whole_number(f"{kind} of the board {self.name!r}", getattr(self, kind), 2, _MOST_TASKS)

    def public_seeds(self) -> list[int]:
        """2^31 to 2^31 + public - 1: the first held-out tasks, which `hf-credit evaluate` plays."""
        return [task_seed("held_out", index) for index in range(self.public)]


@dataclass(frozen=True, kw_only=True)
class CreditTask(Board):
    """One board of credit: decisions of a pinned policy, whose exact advantages the verifier enumerates.

    Attributes:
        name: of the board.
        spec: a collaboration whose replies can be enumerated, or an environment with `history="current"`.
        policy: the folder of the policy in the benchmark.
        policy_digest: of its tensors.
        instances: task rows an update.
        repeats: how many updates, each with random numbers of its own: bias and variance are over these.
        floor: replies less probable than this are left out of the enumeration.
        warm_up: updates of rows of training that teach a method's critics, or fill its memory, before it is measured.
    """

    policy: str
    policy_digest: str
    instances: int = 8
    repeats: int = 8
    floor: float = 1e-4
    warm_up: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("instances", 2), ("repeats", 2), ("warm_up", 0)):
            whole_number(f"{name} of a credit board", getattr(self, name), least, _MOST_TASKS)
        if not isinstance(self.policy, str) or not _POLICY.fullmatch(self.policy):
            raise ValueError(f"the policy of a credit board must lie in policies/NAME, got {str(self.policy)[:80]!r}.")

    def public_seeds(self) -> list[int]:
        """Of the rows that submitters play."""
        return [task_seed("held_out", index) for index in range(self.instances)]


@dataclass(frozen=True, kw_only=True)
class Season:
    """What everybody may know of a season.

    Attributes:
        name: of the season.
        benchmark: the dataset repository that holds it.
        results: the dataset repository that entries are submitted to.
        tasks: the boards of policies.
        credit: the boards of credit.
        salt_sha256: the SHA-256 of the secret salt, in hexadecimal.
        public_key: Ed25519, in hexadecimal, which records are signed with.
        open: whether entries are taken.
        cells: the dataset of cells of the bench that boards of credit show beside each method, as owner/name; none
            where it is empty.
        templates: digests of the chat templates that maintainers have looked at; a policy with another has no rank.
        salt: in hexadecimal, once the season is over: then everybody can check which tasks were played.

    Raises:
        ValueError: a field is not possible, two boards have one name, or the salt is not the one that was promised.
    """

    name: str
    benchmark: str
    results: str
    tasks: tuple[SeasonTask, ...]
    salt_sha256: str
    public_key: str
    credit: tuple[CreditTask, ...] = ()
    cells: str = ""
    templates: tuple[str, ...] = ()
    open: bool = True
    salt: str | None = None

    def __post_init__(self) -> None:
        display_name(self.name, "a season's name")
        repo_id(self.benchmark, "a benchmark")
        repo_id(self.results, "the repository of results")
        if self.cells:
            repo_id(self.cells, "the repository of cells")
        names = [board.name for board in self.boards]
        if len(set(names)) < len(names):
            raise ValueError(
                f"every board of a season must have a name of its own, got {', '.join(names)}; rename one."
            )
        hex_digest(self.salt_sha256, "salt_sha256 of a season")
        hex_digest(self.public_key, "public_key of a season")
        for template in self.templates:
            hex_digest(template, "a template of a season")
        if self.salt is not None:
            require_salt(self.salt, self.salt_sha256)
            if self.open:
                raise ValueError("a season must be over when its salt is published, got an open one; set open=false.")

    @property
    def boards(self) -> tuple[Board, ...]:
        """Those of policies and those of credit."""
        return (*self.tasks, *self.credit)

    def board(self, name: str) -> SeasonTask:
        """The board of policies called `name`.

        Raises:
            ValueError: there is none.
        """
        return _called(name, self.tasks, f"a board of the season {self.name!r}")

    def credit_board(self, name: str) -> CreditTask:
        """The board of credit called `name`.

        Raises:
            ValueError: there is none.
        """
        return _called(name, self.credit, f"a credit board of the season {self.name!r}")

    @classmethod
    def read(cls, content: bytes) -> Season:
        """The season that `hf_credit.hub.leaderboard.inputs.to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        season: Season = from_plain(cls, strict_json(content, "a season"), "a season")
        return season

    @classmethod
    def load(cls, folder: str | Path) -> Season:
        """The season of a benchmark's folder.

        Raises:
            ValueError: the file is no season.
            OSError: it cannot be read.
        """
        with (Path(folder) / SEASON_FILE).open("rb") as file:
            return cls.read(file.read(MOST_BYTES + 1))


@dataclass(frozen=True, kw_only=True)
class SeasonSecret:
    """What the verifier alone knows. Its `repr` shows nothing of it.

    Attributes:
        salt: in hexadecimal.
        private_key: Ed25519, in hexadecimal.
    """

    salt: str = field(repr=False)
    private_key: str = field(repr=False)

    @classmethod
    def new(cls) -> SeasonSecret:
        """A salt of 256 bits and a key, drawn by the operating system."""
        return cls(salt=secrets.token_hex(32), private_key=Ed25519PrivateKey.generate().private_bytes_raw().hex())

    @property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.private_key))

    @property
    def public_key(self) -> str:
        """The key that signatures are checked with, in hexadecimal."""
        return self._key.public_key().public_bytes_raw().hex()

    @property
    def salt_sha256(self) -> str:
        """What a season promises."""
        return hashlib.sha256(bytes.fromhex(self.salt)).hexdigest()

    def sign(self, value: Any) -> str:
        """The signature of plain values, in hexadecimal."""
        return self._key.sign(canonical(value)).hex()

    def save(self, path: str | Path) -> Path:
        """Writes the secret to a new file that its owner alone may read.

        Raises:
            FileExistsError: there is one already; a salt is never replaced.
        """
        path = Path(path)
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(to_json(self))
        return path

    @classmethod
    def read(cls, content: bytes, season: Season) -> SeasonSecret:
        """The secret of a season, as `save` wrote it.

        Raises:
            ValueError: it is another season's, or something else.
        """
        what = "a season's secret"
        secret: SeasonSecret = from_plain(cls, strict_json(content, what), what)
        require_salt(secret.salt, season.salt_sha256)
        if secret.public_key != season.public_key:
            raise ValueError(f"the key must be that of the season {season.name!r}, got another; take its own file.")
        return secret


def signed_by(public_key: str, value: Any, signature: str) -> bool:
    """Whether plain values were signed with the key that `public_key` belongs to."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(signature), canonical(value))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def require_salt(salt: str, promised: str) -> None:
    """Refuses a salt other than the one that a season promised.

    Raises:
        ValueError: it is another one, or none.
    """
    hex_digest(salt, "a season's salt")
    if hashlib.sha256(bytes.fromhex(salt)).hexdigest() != promised:
        raise ValueError(f"the SHA-256 of a season's salt must be {promised}, got another salt's; take the right one.")


def secret_seeds(salt: str, task: str, count: int) -> list[int]:
    """The first secret seeds of a board.

        seed_i = 2^32 + HMAC-SHA256(salt, task, i) mod 2^62,   i = 0, 1, 2, ...

    Seeds below 2^32 are those of training and of public tasks, so that none of these is among them. Environments whose
    tasks are a fixed list take seeds modulo 2^32 (`hf_credit.environments.tasks.split_of`): an i whose seed would be a
    task of training there is passed over, as is one that came up before.

    Args:
        salt: in hexadecimal.
        task: the name of the board.
        count: how many.
    """
    found: dict[int, None] = {}
    index = 0
    while len(found) < count:
        message = json.dumps([task, index]).encode("utf-8")
        digest = hmac.new(bytes.fromhex(salt), message, hashlib.sha256).digest()
        seed = 2 * SEEDS_PER_SPLIT + int.from_bytes(digest, "big") % 2**62
        if split_of(seed)[0] == "held_out":
            found[seed] = None
        index += 1
    return list(found)


def starts_of(interaction: Interaction[Any], seeds: Sequence[int]) -> list[RolloutRequest[Any]]:
    """The start of the instance that each seed names.

    An environment makes its task of the seed. What draws rows of its own is asked for the held-out row at the seed
    modulo 2^31, so that a public seed names the same row as in `hf_credit.tasks.rows.evaluation_starts`.

    Raises:
        ValueError: the task has no rows of its own.
    """
    if TaskSource(interaction).seeded:
        return [RolloutRequest(task={}, seed=seed) for seed in seeds]
    return [
        RolloutRequest(task=TaskSource(interaction).tasks("held_out", 1, seed % SEEDS_PER_SPLIT)[0], seed=seed)
        for seed in seeds
    ]


def untrusted(spec: Mapping[str, Any]) -> TaskSpec:
    """The task of a file from elsewhere, which runs no code of others."""
    return dataclasses.replace(TaskSpec.from_dict(spec), trusted=False)


def _called(name: str, boards: Sequence[B], what: str) -> B:
    for board in boards:
        if board.name == name:
            return board
    known = ", ".join(board.name for board in boards)
    raise ValueError(f"{what} must be one of {known}, got {str(name)[:80]!r}; name one of these.")
