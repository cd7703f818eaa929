from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.evaluation.runs import Run, read_log, read_run, versions, write_config

TOKEN = "hf_" + "a1B2" * 9


def write_log(folder: Path, *entries: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def write_state(folder: Path, *entries: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": list(entries)}))


# Reading


def test_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    write_log(tmp_path / "mine", {"step": 1, "reward": 0.0}, {"step": 2, "reward": 0.5, "budget/scoring_events": 16})
    (tmp_path / "mine" / "config.yaml").write_text("max_steps: 2\n")
    (tmp_path / "mine" / "run.json").write_text('{"generations_per_update": 1}')
    run = read_run(tmp_path / "mine")
    assert (run.name, run.config, run.updates, run.episodes) == ("mine", {"max_steps": 2}, 2, 16)
    assert run.curve("reward") == ([1, 2], [0.0, 0.5])
    assert read_run(tmp_path / "mine", "other").name == "other"


def test_a_run_without_settings_is_its_log(tmp_path: Path) -> None:
    write_log(tmp_path, {"step": 3})
    run = read_run(tmp_path)
    assert (run.config, run.facts, run.episodes) == ({}, {}, None)


def test_entries_after_a_resumption_override_earlier_ones(tmp_path: Path) -> None:
    write_log(tmp_path, {"step": 1, "a": 1}, {"step": 2, "a": 2}, {"step": 2, "a": 3}, {"step": 2, "b": 4})
    assert read_run(tmp_path).log == ({"step": 1, "a": 1}, {"step": 2, "a": 3, "b": 4})


def test_the_latest_state_of_any_trainer_is_read(tmp_path: Path) -> None:
    write_state(tmp_path / "checkpoint-2", {"step": 1, "a": 1}, {"step": 2, "a": 2})
    write_state(tmp_path / "checkpoint-10", {"step": 1, "a": 1}, {"step": 10, "a": 5})
    assert read_run(tmp_path).updates == 10
    write_state(tmp_path, {"step": 12, "a": 1})
    assert read_run(tmp_path).updates == 12


@pytest.mark.parametrize("entries", [None, ()])
def test_a_folder_without_a_logged_step_is_no_run(tmp_path: Path, entries: tuple[()] | None) -> None:
    if entries is not None:
        write_log(tmp_path, *entries)
    with pytest.raises(ValueError, match=r"must have metrics\.jsonl or trainer_state\.json"):
        read_run(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_log(tmp_path, {"step": 1})
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match="must be readable"):
        read_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("nonsense\n")
    with pytest.raises(ValueError, match="one JSON object per line"):
        read_run(tmp_path)


def test_a_line_that_is_still_being_written_waits(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert read_log(tmp_path / "log") == [{"step": 1}, {"step": 2}]
    assert read_log(tmp_path / "missing") == []


# Totals


def test_a_total_counts_a_mean_as_often_as_there_were_steps() -> None:
    run = Run(
        name="r", log=({"step": 10, "tokens/generated": 5.0}, {"step": 14, "tokens/generated": 2.0}, {"step": 15})
    )
    assert run.total("tokens/generated") == 10 * 5.0 + 4 * 2.0


def test_a_total_counts_a_generation_for_several_updates_once() -> None:
    run = Run(name="r", facts={"generations_per_update": 0.5}, log=({"step": 4, "tokens/generated": 100.0},))
    assert run.total("tokens/generated") == 200.0
    assert run.total("never/logged") == 0.0


def test_a_total_counts_a_generation_that_its_first_step_logs() -> None:
    # Three generations of eight steps each, logged at every step: at 1, 9 and 17 there is something to count.
    log = tuple({"step": s} | ({"tokens/generated": 10.0 * s} if s % 8 == 1 else {}) for s in range(1, 25))
    run = Run(name="r", facts={"generations_per_update": 1 / 8}, log=log)
    assert run.total("tokens/generated") == 10.0 + 90.0 + 170.0


@given(st.lists(st.integers(1, 5), min_size=1), st.data())
def test_a_total_is_the_sum_over_steps(spans: list[int], data: st.DataObject) -> None:
    values = [float(data.draw(st.integers(0, 100))) for _ in spans]
    steps = [sum(spans[: end + 1]) for end in range(len(spans))]
    run = Run(name="r", log=tuple({"step": s, "x": v} for s, v in zip(steps, values, strict=True)))
    each_step = [value for span, value in zip(spans, values, strict=True) for _ in range(span)]
    assert run.total("x") == sum(each_step)


# Writing


def test_secrets_stay_out_of_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write_config(
        path,
        {
            "hub_token": "abc",
            "model_init_kwargs": {"token": "abc", "dtype": "float32"},
            "nested": [{"api_key": "abc"}, {"password": "abc"}, f"use {TOKEN} here"],
            "vllm_server_base_url": "http://me:abc@host:8000/v1",
            "eos_token": "<|end|>",
            "num_tokens": 3,
        },
    )
    text = path.read_text()
    assert "abc" not in text
    assert TOKEN not in text
    assert yaml.safe_load(text) == {
        "model_init_kwargs": {"dtype": "float32"},
        "nested": [{}, {}, "use *** here"],
        "vllm_server_base_url": "http://***@host:8000/v1",
        "eos_token": "<|end|>",
        "num_tokens": 3,
    }


def test_versions_are_those_installed() -> None:
    found = versions()
    assert {"python", "hf-credit", "torch", "transformers", "trl"} <= set(found)
    assert all(version[0].isdigit() for version in found.values())
