"""Cells: written when done, resumed, and shown as tables and a guide."""

from __future__ import annotations

import dataclasses
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from datasets import Dataset

from hf_credit.cli import main
from hf_credit.collectors import Single
from hf_credit.methods import METHODS, Credit, Method
from hf_credit_bench import cells, guide
from hf_credit_bench.measures import make_problem


def test_a_run_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    todo = cells.jobs(["rloo", "counterfactual_grpo"], ["chain"], {"length": 2}, seeds=0, updates=8)
    first, refused = list(cells.run(todo, path, processes=1))
    assert first["refused"] is None
    assert first["trace"] > 0
    assert "two or more roles" in refused["refused"]
    path.write_text(path.read_text()[:-20])  # the second line was cut off
    assert [one["method"] for one in cells.run(todo, path, processes=1)] == ["counterfactual_grpo"]
    assert list(cells.run(todo, path)) == []
    assert [one["method"] for one in cells.read(path).values()] == ["rloo", "counterfactual_grpo"]


def broken() -> Method:
    """A method of a user whose estimator has a mistake."""

    def estimator(collected: Any, context: Any, memory: None) -> Credit:
        raise ValueError(f"no such {len(collected.episodes)}")

    return Method(name="broken", collector=Single(), estimator=estimator)


def test_broken_code_is_shown_with_its_traceback_costs_no_other_cell_and_is_filled_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--problem", "chain", "--seeds", "0", "--updates", "8", "--processes", "1"]
    methods = ["--method", f"{__name__}:broken", "--method", "rloo"]
    for _ in range(2):
        with pytest.raises(SystemExit) as left:
            main(["bench", *methods, *asked, "--output", str(tmp_path)])
        shown = capsys.readouterr()
        assert left.value.code == 1
        assert 'raise ValueError(f"no such' in shown.err
        assert "got 1 failed cells" in shown.err
        assert "| rloo |" in shown.out
        assert "broken" not in shown.out


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("evil-mod:make", "Error: method must be one of .*, or 'module:object', got 'evil-mod:make'; write module"),
        ("évil:make", "Error: method must be one of "),
        ("no_such_module:make", "must be importable as 'module:object', got 'no_such_module:make'"),
        ("builtins:len", "got 1 failed cells"),
    ],
)
def test_a_method_that_cannot_be_made_is_an_error_and_no_method_that_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    asked = ["--problem", "chain", "--seeds", "0", "--updates", "8", "--processes", "1"]
    with pytest.raises(SystemExit) as left:
        main(["bench", "--method", name, *asked, "--output", str(tmp_path)])
    shown = capsys.readouterr()
    assert left.value.code == 1
    assert re.search(told, shown.err)
    assert "does not fit" not in shown.out


def test_commands_write_tables_a_plot_and_which_method_to_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "new" / "which.md"
    chosen = ["--method", "ppo", "--method", "rloo", "--method", "exact_advantage", "--problem", "chain"]
    small = ["--dial", "length=2", "--seeds", "2", "--updates", "8", "--processes", "2"]
    with pytest.raises(SystemExit) as left:
        main(["bench", *chosen, *small, "--output", str(tmp_path), "--guide", str(page)])
    assert not left.value.code
    assert "| rloo |" in capsys.readouterr().out
    assert "all of several decisions must be right | `chain` | length=2 |" not in page.read_text()
    assert "No field was measured." in page.read_text()
    assert not (tmp_path / "fields.png").exists()
    assert "<picture>" not in (tmp_path / "index.md").read_text()
    lines = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert {one["dials"]["length"] for one in lines} == {2}
    from datasets import load_dataset

    read = load_dataset(
        "parquet", data_files=str(tmp_path / "cells.parquet"), split="train", cache_dir=str(tmp_path / "c")
    )
    assert set(read["method"]) == {"ppo", "rloo", "exact_advantage"}


def test_a_killed_run_leaves_no_worker_behind(tmp_path: Path) -> None:
    asked = ["--problem", "chain", "--processes", "2", "--output", str(tmp_path)]  # a minute of work
    command = [sys.executable, "-m", "hf_credit.cli", "bench", *asked]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not cells.read(tmp_path / "cells.jsonl"):
            assert run.poll() is None
            time.sleep(0.2)
        workers = psutil.Process(run.pid).children(recursive=True)
    finally:
        run.kill()
        run.wait()
    assert len(workers) >= 2
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--dial", "horizon"], "name=value"),
        (["--dial", "horizon=many"], "horizon must be a whole number from 2 to 256, got 'many'"),
        (["--problem", "kee"], "problem must be"),
        (["--method", "rlo"], "did you mean 'rloo'"),
        (["--oracle-error", "0.3"], "--oracle-error is of named methods or problems, got 0.3 alone"),
    ],
)
def test_impossible_arguments_are_refused_in_a_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", "--output", str(tmp_path), *arguments])
    assert left.value.code == 1
    assert sentence in capsys.readouterr().err


def numbered(*methods: str, **asked: Any) -> list[dict[str, Any]]:
    known = {"problem": "chain", "dials": {}, "options": {}, "policy": "start", "critic": "exact", **asked}
    return [{"key": cells.Job(method=name, problem="chain").key, "method": name, **known} for name in methods]


def test_a_narrower_run_keeps_the_cells_that_it_does_not_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--problem", "chain", "--seeds", "0", "--updates", "8", "--processes", "1", "--output", str(tmp_path)]
    for chosen in (["rloo", "ppo"], ["grpo"]):
        with pytest.raises(SystemExit):
            main(["bench", *(part for name in chosen for part in ("--method", name)), *small])
        if chosen != ["grpo"]:
            (tmp_path / "cells.jsonl").unlink()  # only the table is kept, as in a repository
    assert "grpo" in capsys.readouterr().out
    kept = [row["method"] for row in Dataset.from_parquet(str(tmp_path / "cells.parquet"), cache_dir=str(tmp_path))]
    assert sorted(kept) == ["grpo", "ppo", "rloo"]
    assert all(f"| {name} |" in (tmp_path / "tables.md").read_text() for name in ("rloo", "ppo", "grpo"))


def test_cells_of_a_table_that_do_not_fit_on_the_disk_stay_in_it(tmp_path: Path) -> None:
    guide.write_parquet(numbered("rloo", "ppo"), tmp_path / "cells.parquet")
    (tmp_path / "cells.jsonl").write_text(json.dumps(numbered("grpo")[0]) + "\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            cells.take_up(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == 1
    cells.take_up(tmp_path)
    cells.take_up(tmp_path)
    lines = [json.loads(line)["method"] for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert lines == ["grpo", "rloo", "ppo"]


def test_only_methods_that_would_notice_have_cells_with_other_critics_and_oracles() -> None:
    asked = {"problems": ["chain"], "critic": "taught", "oracle_error": 0.1}
    names = ["rloo", "ppo", "verifiable_process", "outcome_reward", "exact_advantage"]
    found = {job.method: (job.critic, job.oracle_error) for job in cells.jobs(names, **asked)}
    assert found.pop("ppo") == ("taught", 0.0)
    assert found.pop("verifiable_process") == ("exact", 0.1)
    assert set(found.values()) == {("exact", 0.0)}
    (own,) = cells.jobs(["my:method"], **asked)
    assert (own.critic, own.oracle_error) == ("taught", 0.1)


@pytest.mark.parametrize("method", ["verifiable_process", "arew", "draco"])
def test_an_oracle_with_errors_teaches_less(method: str) -> None:
    job = cells.Job(method=method, problem="key", dials={"horizon": 4}, seeds=0, updates=60)
    exact, wrong = (cells.fill(dataclasses.replace(job, oracle_error=error)) for error in (0.0, 0.4))
    assert wrong["refused"] is wrong["failed"] is exact["failed"] is None
    assert wrong["trace"] > exact["trace"]


GOOD = {"method": "rloo", "problem": "key", "policy": "start", "dials": {}, "options": {}, "critic": "exact"}
KEY = cells.Job(method="rloo", problem="key").key
UNREADABLE: dict[str, Any] = {
    "must be nested 100 deep": "[" * 99_000,  # Python 3.13 reads deeper than 3.11
    "half of a surrogate pair": json.dumps({**GOOD, "key": "\ud800"}),
    "must be an object": 5,
    "must have the fields": {"key": "x", "method": "rloo"},
    "got 'critic' wrong": {name: value for name, value in GOOD.items() if name != "critic"},
    "the method of a cell must be": {**GOOD, "method": "of another version"},
    "the policy of a cell": {**GOOD, "policy": "other"},
    "dials of a cell must be a mapping": {**GOOD, "dials": 5},
    "horizon must be a whole number": {**GOOD, "dials": {"horizon": "long"}},
    "problem": {**GOOD, "problem": "of another version"},
    "a cell must be of this version's problem and budget": {**GOOD, "key": "5"},
    "problem and budget": {**GOOD, "dials": {"horizon": 9}},
    "got others; measure it again": {**GOOD, "key": KEY.replace("[16, 16, ", "[16, 20, ")},
    "areas[0] of a cell": {**GOOD, "areas": [1e308, 0.5]},
    "seeds of a cell": {**GOOD, "seeds": "many"},
    "instances of a cell": {**GOOD, "instances": []},
    "budget of a cell": {**GOOD, "budget": "large"},
    "trace of a cell": {**GOOD, "trace": "1"},
    "seconds of a cell": {**GOOD, "seconds": []},
    "areas[1] of a cell": {**GOOD, "areas": [0.5, None]},
    "oracle_error of a cell": {**GOOD, "oracle_error": "0.1"},
    "repeats of a cell": {**GOOD, "repeats": 1},
    "step of a cell": {**GOOD, "areas": [0.5, 0.6], "step": "large"},
}


def test_ten_cells_are_read_shown_and_continued_among_ones_that_this_version_cannot_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [
        one if isinstance(one, str) else json.dumps({"key": KEY, **one} if isinstance(one, dict) else one)
        for one in UNREADABLE.values()
    ]
    good = [{**GOOD, "key": cells.Job(method=name, problem="key").key, "method": name} for name in [*METHODS][:10]]
    content = "\n".join([*bad[:7], *map(json.dumps, good), *bad[7:]]).encode() + b"\n\xff\n"
    (tmp_path / "cells.jsonl").write_bytes(content)
    asked = ["--problem", "chain", "--dial", "length=2", "--seeds", "0", "--updates", "8"]
    with pytest.raises(SystemExit) as left:
        main(["bench", "--method", "rloo", *asked, "--critic", "exact", "--output", str(tmp_path)])
    assert not left.value.code
    assert len(cells.read(tmp_path / "cells.jsonl")) == 11
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(told) == len(set(told)) == len(bad) + 1
    for place, reason in enumerate(UNREADABLE):
        number = place + 1 if place < 7 else place + 11
        assert any(f"line {number} of {tmp_path}" in line and reason in line for line in told), (reason, told)


def test_ten_rows_of_a_strangers_table_are_read_among_ones_that_are_no_cells(caplog: pytest.LogCaptureFixture) -> None:
    good = cells.to_rows([{**GOOD, "key": KEY, "method": name} for name in [*METHODS][:10]])
    bad = [{}, {"dials": "{}"}, {"dials": 5, "options": "{}"}, {"dials": "[]", "options": "{}"}]
    assert [one["method"] for one in cells.from_rows([*bad, *good])] == [*METHODS][:10]
    assert "row 4 of a table of cells is no cell" in caplog.text


@pytest.mark.parametrize(
    ("problem", "dials", "told"),
    [
        ("key", {"horizon": 1_000_000}, "horizon must be a whole number from 2 to 256, got 1000000"),
        ("vote", {"agents": 60}, "agents must be a whole number from 1 to 7, got 60"),
        ("chain", {"length": 10**9}, "length must be"),
        ("relay", {"depth": 2.5}, "depth must be a whole number"),
        ("key", {"noise": float("nan")}, "noise must be a finite number"),
        ("key", {"noise": "1"}, "noise must be a finite number"),
        ("trap", {"blind": 1}, "blind must be true or false"),
    ],
)
def test_a_dial_out_of_its_range_is_refused(problem: str, dials: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make_problem(problem, **dials)


def test_the_step_size_climbs_as_long_as_it_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*areas: float) -> float:
        """The step size whose area on the two seeds is one of `areas`, of the sizes 0, 1, 2, ..."""
        monkeypatch.setattr(cells, "learning", lambda *_, step, **__: [(0, 0.0), (1, step)])
        monkeypatch.setattr(cells, "area", lambda curve, *_: areas[int(curve[-1][1])])
        job = cells.Job(method="rloo", problem="chain", dials={"length": 2}, steps=[*range(len(areas))])
        return cells.learned(job, [0], 1).step

    assert taken(0.1, 0.2, 0.3, 0.4, 0.5) == 4
    assert taken(0.1, 0.2, 0.3, 0.4, 0.405) == 3  # areas level off
    assert taken(0.5, 0.4, 0.3, 0.2, 0.1) == 0
    assert taken(0.0, 0.0, 0.0, 0.0, 0.0) == 2  # nothing is learned with any
    assert taken(0.1, 0.4, 0.3, 0.305, 0.9) == 1
