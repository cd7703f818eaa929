from __future__ import annotations

import json
from pathlib import Path

import pytest

from hf_credit.evaluation.credit_tables import ledger_table, read_ledger
from hf_credit.evaluation.runs import LOG_FILE, TRAINER_STATE_FILE, read_run
from hf_credit.rollouts import Ledger


def spent(
    step: int, scores: float, tokens: float, generated: float, reasoner: float, actor: float
) -> dict[str, float]:
    return {
        "step": step,
        "reward": 0.5,
        "budget/scoring_events": scores,
        "budget/tokens": tokens,
        "budget/completion_tokens": generated,
        "budget/decisions/reasoner": reasoner,
        "budget/decisions/actor": actor,
    }


# Two instances: two plans of five tokens and eight answers of two, at contexts of twenty tokens.
C3 = [spent(1, 8, 226, 26, 2, 8), spent(2, 16, 452, 52, 4, 16), {"step": 2, "train_runtime": 1.5}]
MAPPO = Ledger(scoring_events=16, prompt_tokens=640, completion_tokens=112, decisions={"reasoner": 16, "actor": 16})


def write_log(folder: Path, entries: list[dict[str, float]]) -> Path:
    folder.mkdir()
    (folder / LOG_FILE).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return folder


def test_the_cost_of_a_run_is_the_last_logged_one(tmp_path: Path) -> None:
    assert read_ledger(read_run(write_log(tmp_path / "c3", C3))) == Ledger(
        scoring_events=16, prompt_tokens=400, completion_tokens=52, decisions={"reasoner": 4, "actor": 16}
    )


def test_the_cost_of_comparison_episodes_is_reported(tmp_path: Path) -> None:
    log = [{**C3[0], "budget/counterfactual_tokens": 150}]
    ledger = read_ledger(read_run(write_log(tmp_path / "cvt", log)))
    assert ledger is not None
    assert (ledger.counterfactual_tokens, ledger.tokens) == (150, 226)


def test_the_tokens_of_other_models_are_reported_apart(tmp_path: Path) -> None:
    log = [{**C3[0], "budget/others/judge": 40}]
    ledger = read_ledger(read_run(write_log(tmp_path / "judged", log)))
    assert ledger is not None
    assert (ledger.others, ledger.tokens) == ({"judge": 40}, 226)
    assert (ledger + ledger).others == {"judge": 80}
    assert (ledger + ledger - ledger).metrics()["budget/others/judge"] == 40
    header, rows = ledger_table({"judged": ledger, "MAPPO": MAPPO}, against="judged")
    assert (header[-1], rows[0][-1], rows[1][-1]) == ("tokens of the judge", "40", "0 (0.00x)")


def test_the_cost_is_read_from_the_state_of_a_trainer(tmp_path: Path) -> None:
    (tmp_path / TRAINER_STATE_FILE).write_text(json.dumps({"log_history": C3}))
    ledger = read_ledger(read_run(tmp_path))
    assert ledger is not None
    assert ledger.tokens == 452


def test_a_run_that_counted_nothing_has_no_ledger(tmp_path: Path) -> None:
    assert read_ledger(read_run(write_log(tmp_path / "old", [{"step": 1, "reward": 0.5}]))) is None


def test_costs_of_runs_are_shown_with_their_ratios(tmp_path: Path) -> None:
    ledger = read_ledger(read_run(write_log(tmp_path / "c3", C3)))
    assert ledger is not None
    header, rows = ledger_table({"MAPPO": MAPPO, "C3": ledger}, against="MAPPO")
    assert header == [
        "run", "terminal scores", "tokens", "generated", "replies", "replies of reasoner", "replies of actor"
    ]  # fmt: skip
    assert rows == [
        ["MAPPO", "16", "752", "112", "32", "16", "16"],
        ["C3", "16 (1.00x)", "452 (0.60x)", "52 (0.46x)", "20 (0.62x)", "4 (0.25x)", "16 (1.00x)"],
    ]


def test_a_role_of_one_run_counts_0_in_the_others() -> None:
    alone = Ledger(scoring_events=1, prompt_tokens=3, completion_tokens=1, decisions={"agent": 1})
    _, rows = ledger_table({"alone": alone, "MAPPO": MAPPO}, against="alone")
    assert rows[1][-3:] == ["0 (0.00x)", "16", "16"]
    assert rows[0][-2:] == ["0", "0"]


def test_the_run_to_compare_with_must_be_there() -> None:
    with pytest.raises(ValueError, match="must be compared with one of MAPPO, got 'C3'"):
        ledger_table({"MAPPO": MAPPO}, against="C3")
