from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_credit.evaluation.runs import read_log, read_run, versions, write_config

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
    (tmp_path / "mine" / "run.json").write_text('{"processes": 1}')
    run = read_run(tmp_path / "mine")
    assert (run.name, run.config, run.updates, run.last("budget/scoring_events")) == ("mine", {"max_steps": 2}, 2, 16)
    assert run.curve("reward") == ([1, 2], [0.0, 0.5])
    assert read_run(tmp_path / "mine", "other").name == "other"


def test_a_run_without_settings_is_its_log(tmp_path: Path) -> None:
    write_log(tmp_path, {"step": 3})
    run = read_run(tmp_path)
    assert (run.config, run.facts, run.last("budget/scoring_events")) == ({}, {}, None)


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


def test_a_log_may_be_of_any_size_and_a_line_may_not(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        for step in range(65):
            file.write(json.dumps({"step": step, "note": "x" * 2**20}) + "\n")
    assert [one["step"] for one in read_log(tmp_path / "log")] == list(range(65))
    with (tmp_path / "log").open("w") as file:
        file.write(json.dumps({"step": 1, "note": "x" * 2**26}) + "\n")
    with pytest.raises(ValueError, match="must have one JSON object per line"):
        read_log(tmp_path / "log")


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
