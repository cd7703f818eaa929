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
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hf_credit.environments.tasks import SEEDS_PER_SPLIT, split_of, task_seed
from hf_credit.hub.leaderboard.inputs import (
    DIGEST,
    MOST_BYTES,
    canonical,
    display_name,
    mapping,
    repo_id,
    strict_json,
    whole,
)
from hf_credit.rollouts import Interaction, RolloutRequest
from hf_credit.tasks.spec import TaskSpec

SEASON_FILE = "season.json"
SECRET_FILE = "season_secret.json"
"""The salt and the private key. It stays with the verifier and is published nowhere while the season is open."""

_MOST_TASKS = 4096
_SIZES = ("micro", "full")


@dataclass(frozen=True, kw_only=True)
class SeasonTask:
    """One board of a season: a task, and how many public and secret instances of it are played.

    Attributes:
        name: of the board, unique in the season.
        spec: the environment or the collaboration, its options and limits, as `hf_credit.tasks.TaskSpec` has them.
        public, secret: how many instances of either kind, each at least 2: of one nothing can be said.
        size: "micro" for policies that a processor trains in minutes, "full" for language models.

    Raises:
        ValueError: a field is not possible.
    """

    name: str
    spec: Mapping[str, Any]
    public: int = 64
    secret: int = 64
    size: str = "micro"

    def __post_init__(self) -> None:
        display_name(self.name, "a board's name")
        if self.size not in _SIZES:
            raise ValueError(f"the size of a board must be one of {', '.join(_SIZES)}, got {self.size!r}; pick one.")
        for kind in ("public", "secret"):
            whole(getattr(self, kind), f"{kind} of the board {self.name!r}", 2, _MOST_TASKS)
        self.task()

    def task(self) -> TaskSpec:
        """The task. Code that a season from elsewhere names is not run."""
        return dataclasses.replace(TaskSpec.from_dict(self.spec), trusted=False)

    def public_seeds(self) -> list[int]:
        """2^31 to 2^31 + public - 1: the first held-out tasks, which `hf-credit evaluate` plays."""
        return [task_seed("held_out", index) for index in range(self.public)]


@dataclass(frozen=True, kw_only=True)
class CreditTask:
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

    name: str
    spec: Mapping[str, Any]
    policy: str
    policy_digest: str
    instances: int = 8
    repeats: int = 8
    floor: float = 1e-4
    warm_up: int = 32

    def __post_init__(self) -> None:
        display_name(self.name, "a board's name")
        whole(self.warm_up, "warm_up of a credit board", 0, _MOST_TASKS)
        whole(self.instances, "instances of a credit board", 2, _MOST_TASKS)
        if not isinstance(self.policy, str) or not re.fullmatch(r"policies/[A-Za-z0-9_-]{1,64}", self.policy):
            raise ValueError(f"the policy of a credit board must lie in policies/NAME, got {str(self.policy)[:80]!r}.")
        whole(self.repeats, "repeats of a credit board", 2, _MOST_TASKS)
        self.task()

    def task(self) -> TaskSpec:
        """As in `SeasonTask`."""
        return dataclasses.replace(TaskSpec.from_dict(self.spec), trusted=False)

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
    templates: tuple[str, ...] = ()
    open: bool = True
    salt: str | None = None

    def __post_init__(self) -> None:
        display_name(self.name, "a season's name")
        repo_id(self.benchmark, "a benchmark")
        repo_id(self.results, "the repository of results")
        names = [*(task.name for task in self.tasks), *(task.name for task in self.credit)]
        if len(set(names)) < len(names):
            raise ValueError(
                f"every board of a season must have a name of its own, got {', '.join(names)}; rename one."
            )
        digests = [("salt_sha256", self.salt_sha256), ("public_key", self.public_key)]
        for what, value in [*digests, *(("a template", one) for one in self.templates)]:
            if not isinstance(value, str) or not DIGEST.fullmatch(value):
                raise ValueError(f"{what} of a season must be 64 hexadecimal digits, got {value!r}.")
        if self.salt is not None:
            require_salt(self.salt, self.salt_sha256)
            if self.open:
                raise ValueError("a season must be over when its salt is published, got an open one; set open=false.")

    def board(self, name: str) -> SeasonTask:
        """The board of policies called `name`.

        Raises:
            ValueError: there is none.
        """
        for task in self.tasks:
            if task.name == name:
                return task
        raise ValueError(
            f"a board of the season {self.name!r} must be one of {', '.join(one.name for one in self.tasks)}, got "
            f"{name[:80]!r}; name one of these."
        )

    def credit_board(self, name: str) -> CreditTask:
        """The board of credit called `name`.

        Raises:
            ValueError: there is none.
        """
        for task in self.credit:
            if task.name == name:
                return task
        raise ValueError(
            f"a credit board of the season {self.name!r} must be one of {', '.join(one.name for one in self.credit)}, "
            f"got {name[:80]!r}; name one of these."
        )

    def to_json(self) -> str:
        """As JSON; `from_json` gives back an equal season."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, content: bytes) -> Season:
        """The season that `to_json` wrote.

        Raises:
            ValueError: it is something else.
        """
        values = mapping(strict_json(content, "a season"), "a season", _names(cls))
        boards = {"tasks": _boards(SeasonTask, values["tasks"]), "credit": _boards(CreditTask, values["credit"])}
        templates = values["templates"]
        if not isinstance(templates, list):
            raise ValueError(f"the templates of a season must be a list, got {type(templates).__name__}; list them.")
        return cls(**{**values, **boards, "templates": tuple(templates)})

    @classmethod
    def load(cls, folder: str | Path) -> Season:
        """The season of a benchmark's folder.

        Raises:
            ValueError: the file is no season.
            OSError: it cannot be read.
        """
        with (Path(folder) / SEASON_FILE).open("rb") as file:
            return cls.from_json(file.read(MOST_BYTES + 1))


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
        key = Ed25519PrivateKey.generate()
        return cls(salt=secrets.token_hex(32), private_key=key.private_bytes_raw().hex())

    @property
    def public_key(self) -> str:
        """The key that signatures are checked with, in hexadecimal."""
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.private_key)).public_key()
        return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    @property
    def salt_sha256(self) -> str:
        """What a season promises."""
        return hashlib.sha256(bytes.fromhex(self.salt)).hexdigest()

    def sign(self, value: Any) -> str:
        """The signature of plain values, in hexadecimal."""
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.private_key)).sign(canonical(value)).hex()

    def save(self, path: str | Path) -> Path:
        """Writes the secret to a new file that its owner alone may read.

        Raises:
            FileExistsError: there is one already; a salt is never replaced.
        """
        path = Path(path)
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(json.dumps(dataclasses.asdict(self)) + "\n", encoding="utf-8")
        return path

    @classmethod
    def read(cls, content: bytes, season: Season) -> SeasonSecret:
        """The secret of a season, as `save` wrote it.

        Raises:
            ValueError: it is another season's, or something else.
        """
        values = mapping(strict_json(content, "a season's secret"), "a season's secret", _names(cls))
        secret = cls(**values)
        require_salt(secret.salt, season.salt_sha256)
        if secret.public_key != season.public_key:
            raise ValueError(f"the key must be that of the season {season.name!r}, got another; take its own file.")
        return secret


def signed_by(public_key: str, value: Any, signature: str) -> bool:
    """Whether plain values were signed with the key that `public_key` belongs to."""
    from cryptography.exceptions import InvalidSignature

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
    if not isinstance(salt, str) or not DIGEST.fullmatch(salt):
        raise ValueError("a season's salt must be 64 hexadecimal digits, got something else; take it as it was drawn.")
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
    if interaction.seeded:
        return [RolloutRequest(task={}, seed=seed) for seed in seeds]
    return [
        RolloutRequest(task=interaction.tasks("held_out", 1, seed % SEEDS_PER_SPLIT)[0], seed=seed) for seed in seeds
    ]


def _boards(kind: type, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list):
        raise ValueError(f"the boards of a season must be a list, got {type(values).__name__}; list them.")
    return tuple(kind(**mapping(one, "a board", _names(kind))) for one in values)


def _names(kind: type) -> frozenset[str]:
    return frozenset(one.name for one in dataclasses.fields(kind))
