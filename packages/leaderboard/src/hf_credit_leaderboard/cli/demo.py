"""`hf-credit leaderboard demo`: a local Hub, a season, training runs, entries and their verification."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_credit.cli.demo import DemoRecipe, few_threads, folders, make_base, train_both
from hf_credit.cli.progress import Progress
from hf_credit.optional_packages import needed
from hf_credit.rollouts.capabilities import TaskSource

if TYPE_CHECKING:
    from hf_credit_leaderboard.credit_board import PinnedPolicy
    from hf_credit_leaderboard.seasons import SeasonSecret
    from hf_credit_leaderboard.sources import Hub

BENCHMARK, RESULTS = "board/benchmark", "board/results"


CREDIT: Mapping[str, Mapping[str, Any]] = {
    "relay credit": {"task": "relay", "options": {"size": 4}, "quality": 0.7},
    "vote credit": {"task": "sum_vote", "options": {"size": 6}, "quality": 0.7},
    "tic-tac-toe credit": {
        "task": "tic_tac_toe",
        "options": {"opponent": "random", "agent": "first"},
        "quality": 0.7,
    },
    "evidence credit": {
        "task": "evidence",
        "options": {"documents": 2, "values": 2, "turns": 4},
        "quality": 0.6,
    },
}
"""The credit boards, each with the arguments of `_credit_policy`."""


@dataclass(frozen=True, kw_only=True)
class BoardDemo:
    """The settings of the demo.

    Attributes:
        runs: the training of the policies; its seed is that of the first run.
        seeds: the number of runs, each from a new base policy.
        tasks: the number of public tasks of the policy board, and of its secret tasks.
        credit: the credit boards, as in `CREDIT`.
        methods: the methods to enter on each credit board; all methods of the library if `None`.
        repeats: the number of updates in which credit is measured.
        warm_up: the number of updates before these, from which critics and memories learn.
    """

    runs: DemoRecipe = field(default_factory=DemoRecipe)
    seeds: int = 3
    tasks: int = 96
    credit: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: CREDIT)
    methods: tuple[str, ...] | None = None
    repeats: int = 16
    warm_up: int = 16

    @property
    def board(self) -> str:
        """The name of the policy board."""
        return f"sudoku {self.runs.size}x{self.runs.size}, {self.runs.blanks} blanks"


SMALL = BoardDemo(
    runs=DemoRecipe(updates=6),
    seeds=1,
    tasks=32,
    credit={name: CREDIT[name] for name in ("relay credit", "tic-tac-toe credit")},
    methods=("grpo", "mappo", "replay_loo"),
    repeats=4,
    warm_up=4,
)
"""Finishes within minutes."""


@contextlib.contextmanager
def run_leaderboard_demo(
    what: BoardDemo, folder: Path, say: Callable[[str], None] = print
) -> Iterator[tuple[Hub, str]]:
    """Serves a Hub with a season and verified entries until the context ends; yields the Hub and the benchmark's id.

    The policies are those of `hf-credit demo`: the base policy, and those that outcome reward and VPR train from it.
    Each is submitted by a pull request and verified by a process without a token or network access, as an unknown
    user's is. Then the credit of the library's methods is submitted and verified. The first entry of each board is
    verified in the same manner, the others in this process, which has already enumerated the exact values; they
    contain neither weights nor code.

    Raises:
        ValueError: the folder has files, a training failed, or uploads would go through Xet.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"--output must be a new folder, got {str(folder)!r} with files; name another folder.")
    from hf_credit.tasks import TaskSpec
    from hf_credit_leaderboard.opening import credit_board, open_season
    from hf_credit_leaderboard.seasons import SECRET_FILE, SeasonSecret, SeasonTask
    from hf_credit_leaderboard.sources import Hub

    folder.mkdir(parents=True, exist_ok=True)
    with needed("the demo needs", "local_hub.running", "hub").serving(folder / "hub") as served:
        hub = Hub(endpoint=served.url, token=served.token(rights="admin"), cache_dir=folder / "cache")
        say(f"The Hub is at {served.url}.")
        boards = []
        for name, board in what.credit.items():
            own = _credit_policy(folder / "policies" / name.replace(" ", "_"), **board)
            spec = TaskSpec.load(own)
            assert spec is not None  # written with the policy
            settings = {"instances": 4, "repeats": what.repeats, "floor": 1e-3, "warm_up": what.warm_up}
            boards.append((credit_board(name, spec, own, **settings), own))
        secret = SeasonSecret.new()
        secret.save(folder / SECRET_FILE)
        game = {key: value for key, value in what.runs.setup().items() if key.startswith("task")}
        tasks = [SeasonTask(name=what.board, spec=game, public=what.tasks, secret=what.tasks)]
        open_season(hub, "demonstration", BENCHMARK, RESULTS, secret, tasks, boards)
        say(f"The season 'demonstration' is open; its secret is in {folder / SECRET_FILE}.")
        _enter_policies(hub, secret, what, folder / "runs", say)
        _enter_methods(hub, secret, what, say)
        yield hub, BENCHMARK


def _enter_policies(hub: Hub, secret: SeasonSecret, what: BoardDemo, folder: Path, say: Callable[[str], None]) -> None:
    """Trains the policies and submits them, and verifies each entry before the next is submitted."""
    from hf_credit.hub.checkpoints import publish_checkpoint
    from hf_credit_leaderboard.service import Verifier
    from hf_credit_leaderboard.submission import make_submission

    seeds = range(what.runs.seed, what.runs.seed + what.seeds)
    published: dict[str, list[str]] = {}
    for seed in seeds:
        with Progress() as progress, few_threads():
            own = replace(what.runs, seed=seed)
            make_base(own, folder / f"seed_{seed}", progress)
            train_both(own, folder / f"seed_{seed}", progress)
        for name, run in folders(folder / f"seed_{seed}").items():
            repo = f"me/sudoku-{run.name}-{seed}"
            done = publish_checkpoint(run, repo, resumable=False, endpoint=hub.endpoint, token=hub.token)
            published.setdefault(name, []).append(f"{repo}@{done.commit}")
    for name, runs in published.items():
        entered = make_submission(
            hub, BENCHMARK, what.board, runs, name=name, seeds=seeds, command="hf-credit leaderboard demo"
        )
        request = entered.send(hub, RESULTS).pull_request
        say(f"{name}: {entered.score:.3f} on public tasks, {request}")
        for ruling in Verifier(hub, BENCHMARK, secret).rulings():
            say(f"  {'listed' if ruling.listed else 'rejected'}: {ruling.reason}")


def _enter_methods(hub: Hub, secret: SeasonSecret, what: BoardDemo, say: Callable[[str], None]) -> None:
    """Submits the credit of methods, and verifies all entries at the end, which share the enumerated values."""
    from hf_credit.methods import METHODS
    from hf_credit_leaderboard import credit_board
    from hf_credit_leaderboard.confined import confined_play
    from hf_credit_leaderboard.credit_board import PinnedPolicy
    from hf_credit_leaderboard.service import Verifier
    from hf_credit_leaderboard.submission import make_credit_submission

    season, folder, _ = hub.season(BENCHMARK)
    pinned: dict[str, PinnedPolicy] = {}
    for board in what.credit:
        task = season.credit_board(board)
        pinned[board] = PinnedPolicy(task, folder / task.policy)
        for name in what.methods or tuple(METHODS):
            try:
                command = f"hf-credit submit --method {name} '{board}' --benchmark {BENCHMARK}"
                entered = make_credit_submission(
                    hub, BENCHMARK, board, name, {}, command=command, policy=pinned[board]
                )
            except ValueError as error:
                say(f"{name} on {board}: not measured ({error})")
                continue
            entered.send(hub, RESULTS)
            say(f"{name} on {board}: fidelity {entered.score:.3f}")
    confined: set[str] = set()

    def measured(request: Any, readable: Any, limits: Any) -> dict[str, Any]:
        board = str(request["task"]["name"])
        if board in confined:
            return credit_board.answer(request, pinned[board])
        confined.add(board)
        return confined_play(request, readable, limits)

    for ruling in Verifier(hub, BENCHMARK, secret, play=measured).rulings():
        if not ruling.listed:
            say(f"rejected: {ruling.reason}")


def _credit_policy(folder: Path, task: str, options: Mapping[str, Any], quality: float, episodes: int = 384) -> Path:
    """Trains a policy to imitate scripted play, which takes an accepted action with the probability `quality`."""
    from hf_credit.cli.init_policy import create
    from hf_credit.policies.micro_settings import MICRO_PROMPTS, MicroConfig
    from hf_credit.tasks import Sampling, TaskSpec

    sampling = Sampling(max_new_tokens=2)
    spec = TaskSpec.of_name(task, options, sampling=sampling, **vars(MICRO_PROMPTS))
    rows = None
    if not spec.has_prompts():  # half of them are held-out tasks, as the policy only serves to measure credit
        tasks = TaskSource(spec.build()).tasks
        rows = [*tasks("train", episodes // 2), *tasks("held_out", episodes // 2)]
    size: dict[str, Any] = {"hidden_size": 32, "layers": 1, "heads": 2}
    config = MicroConfig(**size, quality=quality, episodes=episodes, epochs=5, batch_rows=16)
    with Progress() as progress:
        create(spec, config, folder, progress, rows)
    return folder
