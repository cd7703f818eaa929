from __future__ import annotations

import contextlib
import inspect
import io
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hf_credit.cli import main
from hf_credit.cli.demo import BASE, OUTCOME, VPR, DemoRecipe
from hf_credit_leaderboard.cli import demo
from hf_credit_leaderboard.cli.demo import BoardDemo, run_leaderboard_demo
from hf_credit_leaderboard.sources import Hub, Source, load_results
from hf_credit_leaderboard.submission import make_submission
from local_hub.commands import serve
from local_hub.running import serving

TINY = BoardDemo(
    runs=DemoRecipe(
        blanks=2,
        base={"hidden_size": 32, "layers": 1, "episodes": 200, "quality": 1.0, "epochs": 2, "learning_rate": 8e-3},
        updates=2,
        trajectories=16,
        gradient_steps=2,
        seed=7,
    ),
    seeds=1,
    tasks=4,
)


@pytest.fixture(scope="module")
def printed(
    tmp_path_factory: pytest.TempPathFactory, copied_trainings: None, copied_confined: None
) -> Iterator[list[str]]:
    """The lines that the command prints without a page, until it ends."""
    output = tmp_path_factory.mktemp("board") / "new"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(demo, "SMALL", TINY)
        with contextlib.suppress(SystemExit):
            main(["leaderboard", "demo", "--small", "--no-serve", "--output", str(output)])
        yield printed.getvalue().splitlines()


@pytest.fixture(scope="module")
def commands(printed: list[str]) -> list[list[str]]:
    """The words of the two commands that it ends with."""
    return [shlex.split(line) for line in printed if "serve" in line][-2:]


@pytest.fixture(scope="module")
def board(commands: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The Hub that the first of them serves, the benchmark, and its results."""
    with serving(Path(commands[0][3])) as served:
        hub = Hub(endpoint=served.url, token=served.token(), cache_dir=tmp_path_factory.mktemp("cache"))
        yield hub, commands[1][3], Source.of_hub(hub, commands[1][3]).load()


@pytest.fixture(scope="module")
def results(board: Any) -> Any:
    return board[2]


def test_training_runs_of_the_library_are_entered_with_method_and_cost_and_verified(results: Any) -> None:
    rows = {row.entry.name: row for row in results.rows if row.entry.board == TINY.board}
    assert {name: row.entry.method["name"] for name, row in rows.items()} == {
        BASE: "unknown",
        OUTCOME: "outcome_reward",
        VPR: "verifiable_process",
    }
    assert {row.record.badge for row in rows.values()} == {"verified"}
    assert len(results.rows) == 3
    assert rows[BASE].entry.ledger is None
    assert rows[VPR].entry.ledger["scoring_events"] == rows[OUTCOME].entry.ledger["scoring_events"] == 32


def test_seed_and_command_are_read_from_a_published_run(board: Any) -> None:
    hub, benchmark, _ = board
    entry = make_submission(hub, benchmark, TINY.board, ["me/sudoku-vpr-7"]).entry
    assert [one.seed for one in entry.checkpoints] == [7]
    assert entry.command.startswith("hf-credit train ")
    assert entry.command.endswith("vpr.yaml")


def test_a_folder_with_files_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(ValueError, match="must be a new folder"), run_leaderboard_demo(TINY, tmp_path):
        pass


def test_a_demo_without_a_page_ends_with_the_commands_that_show_it(board: Any, commands: list[list[str]]) -> None:
    served, shown = commands
    assert served[:3] == ["hf-credit", "hub", "serve"]
    assert shown[:3] == ["hf-credit", "leaderboard", "serve"]
    assert load_results(shown[3], endpoint=board[0].endpoint).rows
    assert shown[4:] == ["--endpoint", f"http://127.0.0.1:{inspect.signature(serve).parameters['port'].default}"]
