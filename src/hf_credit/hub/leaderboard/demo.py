"""Everything of a leaderboard at once, on this machine: a Hub, a season, entries of several seeds, verification.

What is entered are policies of seconds, so that it can be tried: it shows how a board works, not which method is good.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hf_credit.environments.tasks import task_seed
from hf_credit.hub.leaderboard import credit_board, rerun
from hf_credit.hub.leaderboard.opening import credit_board as credit_task
from hf_credit.hub.leaderboard.opening import open_season
from hf_credit.hub.leaderboard.seasons import SECRET_FILE, SeasonSecret, SeasonTask
from hf_credit.hub.leaderboard.service import Verifier
from hf_credit.hub.leaderboard.submission import Hub, make_credit_submission, make_submission, publish_run
from hf_credit.hub.leaderboard.verification import confined_play
from hf_credit.hub.server import serving
from hf_credit.methods import METHODS
from hf_credit.policies.micro import MicroConfig, init_scripted_policy
from hf_credit.rollouts import Start
from hf_credit.tasks.spec import Sampling, TaskSpec

BENCHMARK, RESULTS = "board/benchmark", "board/results"

_SPEC: dict[str, Any] = {"collaboration": "relay", "collaboration_options": {"size": 6}}
_SAMPLING = Sampling(max_new_tokens=2, temperature=1.0, top_p=1.0, top_k=0)
_POLICIES = {"teacher right 95 in 100": 0.95, "teacher right 60 in 100": 0.6, "teacher at random": 0.0}
_FEW = ("grpo", "magrpo", "replay_loo", "tree_grpo")


@contextlib.contextmanager
def run_demo(folder: Path, say: Callable[[str], None] = print, small: bool = False) -> Iterator[tuple[Hub, str]]:
    """A Hub with a season whose entries were verified, until the context ends.

    Policies are entered by a pull request each and verified by a process without token or network (the first one; the
    others by this process, which is quicker). Then the credit of the library's methods is entered and verified.

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
    count, seeds, repeats = (32, 1, 4) if small else (96, 3, 16)
    with serving(folder / "hub") as served:
        hub = Hub(endpoint=served.url, token=served.token(rights="admin"), cache_dir=folder / "cache")
        say(f"A Hub at {served.url}.")
        vote = _policy(folder / "policies" / "vote", "sum_vote", {"size": 6}, 0.7, 0, quick=True)
        relay = _policy(folder / "policies" / "relay", "relay", {"size": 4}, 0.7, 0, quick=True)
        boards = [
            (
                credit_task("relay credit", "relay", {"size": 4}, relay, instances=4, repeats=repeats, floor=1e-3),
                relay,
            ),
            (
                credit_task("vote credit", "sum_vote", {"size": 6}, vote, instances=4, repeats=repeats, floor=1e-3),
                vote,
            ),
        ]
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
            play = confined_play if place == 0 else _here
            for verdict in Verifier(hub, BENCHMARK, secret, play=play).run():
                say(f"  {'listed' if verdict.listed else 'refused'}: {verdict.reason}")
        _enter_methods(hub, secret, [task.name for task, _ in boards], _FEW if small else tuple(METHODS), say)
        yield hub, BENCHMARK


def _enter_methods(
    hub: Hub, secret: SeasonSecret, boards: list[str], names: tuple[str, ...], say: Callable[[str], None]
) -> None:
    """Enters the credit of methods, and verifies all of it at the end: what is enumerated once serves them all."""
    known: dict[str, dict[Any, Any]] = {board: {} for board in boards}
    for board in boards:
        for name in names:
            try:
                command = f"hf-credit submit --method {name} '{board}' --benchmark {BENCHMARK}"
                entered = make_credit_submission(hub, BENCHMARK, board, name, {}, command=command, known=known[board])
            except ValueError as error:
                say(f"{name} on {board}: not measured ({error})")
                continue
            entered.send(hub, RESULTS)
            say(f"{name} on {board}: fidelity {entered.score:.3f}")

    def measured_here(request: Any, readable: Any, limits: Any) -> dict[str, Any]:
        return credit_board.answer(request, known[str(request["task"]["name"])])

    for verdict in Verifier(hub, BENCHMARK, secret, play=_here, credit_play=measured_here).run():
        if not verdict.listed:
            say(f"refused: {verdict.reason}")


def _here(request: Any, readable: Any, limits: Any) -> dict[str, Any]:
    return rerun.answer(request)


def _policy(folder: Path, task: str, options: dict[str, Any], quality: float, seed: int, quick: bool = False) -> Path:
    """A policy that was shown scripted play. On the board's own tasks, held-out ones too: this is no evidence."""
    spec = TaskSpec.of_name(task, options, sampling=_SAMPLING)
    interaction = spec.build()
    player = interaction.scripted_player(quality)
    assert player is not None
    episodes = 128 if quick else 384
    rows = [*interaction.tasks("train", episodes // 2), *interaction.tasks("held_out", episodes // 2)]
    starts: list[Start[Any]] = [Start(task=row, seed=task_seed("train", place)) for place, row in enumerate(rows)]
    config = MicroConfig(
        hidden_size=32, layers=1, heads=2, episodes=episodes, epochs=3 if quick else 5, batch_rows=16, seed=seed
    )
    init_scripted_policy(interaction, player, starts, folder, config)
    spec.complete().save(folder)
    return folder
