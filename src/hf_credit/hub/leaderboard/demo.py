"""Everything of a leaderboard at once, on this machine: a Hub, a season, entries of several seeds, verification.

What is entered are policies of seconds, so that it can be tried: it shows how a board works, not which method is good.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hf_credit.environments.tasks import task_seed
from hf_credit.hub.leaderboard import credit_board
from hf_credit.hub.leaderboard.opening import credit_board as credit_task
from hf_credit.hub.leaderboard.opening import open_season
from hf_credit.hub.leaderboard.pinned_policy import PinnedPolicy
from hf_credit.hub.leaderboard.seasons import SECRET_FILE, SeasonSecret, SeasonTask
from hf_credit.hub.leaderboard.service import Verifier
from hf_credit.hub.leaderboard.submission import Hub, make_credit_submission, make_submission, publish_run
from hf_credit.hub.leaderboard.verification import confined_credit
from hf_credit.hub.server import serving
from hf_credit.methods import METHODS
from hf_credit.policies.micro import MicroConfig, init_scripted_policy
from hf_credit.rollouts import Start
from hf_credit.tasks.spec import Sampling, TaskSpec

BENCHMARK, RESULTS = "board/benchmark", "board/results"

_SPEC: dict[str, Any] = {"collaboration": "relay", "collaboration_options": {"size": 6}}
_SAMPLING = Sampling(max_new_tokens=2, temperature=1.0, top_p=1.0, top_k=0)
_POLICIES = {"teacher right 95 in 100": 0.95, "teacher right 60 in 100": 0.6, "teacher at random": 0.0}
_FEW = ("grpo", "mappo", "replay_loo")
_CREDIT: dict[str, tuple[str, dict[str, Any], float]] = {
    "relay credit": ("relay", {"size": 4}, 0.7),
    "vote credit": ("sum_vote", {"size": 6}, 0.7),
    "tic-tac-toe credit": ("tic_tac_toe", {"opponent": "random", "agent": "first"}, 0.7),
    "evidence credit": ("evidence", {"documents": 2, "values": 2, "turns": 4}, 0.6),
}
"""Of each board of credit its task, and how often the teacher of its policy was right."""


@contextlib.contextmanager
def run_demo(folder: Path, say: Callable[[str], None] = print, small: bool = False) -> Iterator[tuple[Hub, str]]:
    """A Hub with a season whose entries were verified, until the context ends.

    Every policy is entered by a pull request and verified by a process without token or network, as a stranger's is.
    Then the credit of the library's methods is entered and verified: the first of each board likewise, the others by
    this process, which has enumerated the truth already. Such an entry brings neither weights nor code.

    Args:
        folder: a new one, for all of it.
        say: told what happens.
        small: fewer tasks, seeds and methods.

    Raises:
        ValueError: the folder is there already, or uploads would go through Xet.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"a demonstration needs a new folder, got {str(folder)!r} with files; name another.")
    folder.mkdir(parents=True, exist_ok=True)
    count, seeds, repeats, warm_up = (32, 1, 4, 4) if small else (96, 3, 16, 16)
    with serving(folder / "hub") as served:
        hub = Hub(endpoint=served.url, token=served.token(rights="admin"), cache_dir=folder / "cache")
        say(f"A Hub at {served.url}.")
        boards = []
        for name, (task, options, quality) in _CREDIT.items():
            own = _policy(folder / "policies" / task, task, options, quality, 0)
            spec = TaskSpec.load(own)
            assert spec is not None
            settings = {"instances": 4, "repeats": repeats, "floor": 1e-3, "warm_up": warm_up}
            boards.append((credit_task(name, spec, own, **settings), own))
        secret = SeasonSecret.new()
        secret.save(folder / SECRET_FILE)
        tasks = [SeasonTask(name="relay", spec=_SPEC, public=count, secret=count)]
        open_season(hub, "demonstration", BENCHMARK, RESULTS, secret, tasks, boards)
        say(f"The season 'demonstration' is open; its secret is in {folder / SECRET_FILE}.")
        for place, (name, quality) in enumerate(_POLICIES.items()):
            runs = []
            for seed in range(seeds):
                own = _policy(folder / "policies" / f"{place}-{seed}", "relay", {"size": 6}, quality, seed)
                repo = f"me/relay-{place}-{seed}"
                runs.append(f"{repo}@{publish_run(hub, own, repo)}")
            entered = make_submission(
                hub, BENCHMARK, "relay", runs, name=name, seeds=range(seeds), command="hf-credit leaderboard demo"
            )
            request = entered.send(hub, RESULTS).pull_request
            say(f"{name}: {entered.score:.3f} on public tasks, {request}")
            for verdict in Verifier(hub, BENCHMARK, secret).run():
                say(f"  {'listed' if verdict.listed else 'refused'}: {verdict.reason}")
        _enter_methods(hub, secret, [task.name for task, _ in boards], _FEW if small else tuple(METHODS), say)
        yield hub, BENCHMARK


def _enter_methods(
    hub: Hub, secret: SeasonSecret, boards: list[str], names: tuple[str, ...], say: Callable[[str], None]
) -> None:
    """Enters the credit of methods, and verifies all of it at the end: what is enumerated once serves them all."""
    season, folder, _ = hub.season(BENCHMARK)
    pinned: dict[str, PinnedPolicy] = {}
    for board in boards:
        task = season.credit_board(board)
        pinned[board] = PinnedPolicy(task, folder / task.policy)
        for name in names:
            try:
                command = f"hf-credit submit --method {name} '{board}' --benchmark {BENCHMARK}"
                entered = make_credit_submission(
                    hub, BENCHMARK, board, name, {}, command=command, pinned=pinned[board]
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
        return confined_credit(request, readable, limits)

    for verdict in Verifier(hub, BENCHMARK, secret, credit_play=measured).run():
        if not verdict.listed:
            say(f"refused: {verdict.reason}")


def _policy(folder: Path, task: str, options: dict[str, Any], quality: float, seed: int) -> Path:
    """A policy that was shown scripted play; that of a collaboration on held-out rows, too, so it is no evidence."""
    shown = {"history": "current", "instructions": False}  # of an environment
    spec = TaskSpec.of_name(task, options, sampling=_SAMPLING, **shown)
    interaction = spec.build()
    player = interaction.scripted_player(quality)
    assert player is not None
    episodes = 384
    rows = [*interaction.tasks("train", episodes)]
    if spec.collaboration:
        rows = [*rows[: episodes // 2], *interaction.tasks("held_out", episodes // 2)]
    starts: list[Start[Any]] = [Start(task=row, seed=task_seed("train", place)) for place, row in enumerate(rows)]
    config = MicroConfig(hidden_size=32, layers=1, heads=2, episodes=episodes, epochs=5, batch_rows=16, seed=seed)
    init_scripted_policy(interaction, player, starts, folder, config)
    spec.complete().save(folder)
    return folder
