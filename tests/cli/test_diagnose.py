from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from hf_credit.collaborations.relay import relay

UPDATE = ("--episodes", 6, "--buckets", 4, "--replays", 2, "--value-actions", 2)
SMALL = (*UPDATE, "--candidates", 3)


def test_a_policy_is_diagnosed_and_the_folder_written(command, relay_policy, tmp_path) -> None:
    code, out, err = command(
        "diagnose", relay_policy, *SMALL, "--attempts", 2, "--output", tmp_path / "d", "--event", "reasoner"
    )
    assert (code, err.count("Error")) == (0, 0)
    for word in ("Policies", "greedy", "pass@2", "Decisions", "reasoner", "Credit", "magrpo", "Failures"):
        assert word in out
    assert f"Wrote {tmp_path / 'd' / 'diagnosis.md'}" in out.replace("\n", "")
    names = {path.name.partition("_")[0] for path in (tmp_path / "d").iterdir()}
    assert names == {"diagnosis.md", "diagnosis.json", "diagnosis.png", "examples.md", "buckets"}
    (buckets,) = (tmp_path / "d").glob("buckets_*")
    assert {json.loads(line)["event"] for line in buckets.read_text().splitlines()} == {"reasoner"}
    _names_no_folder(tmp_path / "d")


def _names_no_folder(folder: Path) -> None:
    """What a diagnosis writes may be published: it names no folder of this machine."""
    found = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert len(found) > 1
    assert not any(tempfile.gettempdir().encode() in one for one in found)


def test_several_policies_are_diagnosed_as_json(command, trained_run, micro_policy, tmp_path) -> None:
    code, out, err = command(
        "diagnose",
        trained_run,
        "--beside",
        trained_run / "checkpoint-1",
        "--task",
        "sudoku",
        *SMALL,
        "--attempts",
        0,
        "--json",
        "--output",
        tmp_path,
    )
    assert code == 0, err
    found = json.loads(out)
    assert [one["name"] for one in found] == [trained_run.name, "checkpoint-1"]
    _names_no_folder(tmp_path)
    credits = [credit["method"] for credit in found[0]["events"][0]["credits"]]
    assert credits == ["verifiable_process", "replay_loo", "magrpo", "outcome_reward"]
    assert "Wrote" in err


def test_an_error_with_a_later_policy_keeps_the_results_of_those_before(
    command, relay_policy, trained_run, tmp_path
) -> None:
    asked = (*SMALL, "--attempts", 0, "--event", "reasoner", "--output", tmp_path)
    code, _, err = command("diagnose", relay_policy, "--beside", trained_run, *asked)
    assert code == 1
    assert "an event of a diagnosis must occur in the episodes, got reasoner; the episodes have agent" in err
    (found,) = json.loads((tmp_path / "diagnosis.json").read_text(encoding="utf-8"))
    assert found["name"] == relay_policy.name


def test_the_credit_of_training_is_measured_with_the_named_method(command, relay_policy, tmp_path) -> None:
    training = ("--protocol", "training", "--method", "magrpo", "--method-option", "group_size=3", *UPDATE)
    code, out, err = command("diagnose", relay_policy, *training, "--output", tmp_path)
    assert code == 0, err
    for word in ("Credit of training", "magrpo", "reasoner", "actor", "zeros"):
        assert word in out
    (found,) = json.loads((tmp_path / "training_credit.json").read_text(encoding="utf-8"))
    assert found["about"]["method"] == {"name": "magrpo", "options": {"group_size": 3}}
    assert found["events"][0]["credited"] == 6 * 3 * 2
    assert found["events"][0]["measured"] == 4
    _names_no_folder(tmp_path)
    exact = (*training, "--output", tmp_path, "--exact", 0.01, "--max-new-tokens", 2, "--json")
    code, out, err = command("diagnose", relay_policy, *exact)
    assert code == 0, err
    assert json.loads(out)[0]["cost"]["scoring_events"] == 6 * 3  # no replay is needed


def test_a_named_method_is_measured_besides_the_default_ones_or_reported_as_not_measured(
    command, relay_policy, tmp_path
) -> None:
    named = ("--method", "mc_process_reward", "--attempts", 0, "--json")
    code, out, err = command("diagnose", relay_policy, *SMALL, *named, "--output", tmp_path)
    assert code == 0, err
    (found,) = json.loads(out)
    assert {credit["method"] for credit in found["events"][0]["credits"]} == {"replay_loo", "magrpo", "outcome_reward"}
    assert "which only its own collector plays" in found["not_measured"]["mc_process_reward"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--event", "critic", *SMALL), "an event of a diagnosis must occur in the episodes, got critic"),
        (("--beside", "{model}"), "policies must be different"),
        (("--oracle-option", "seed=1"), "--oracle-option needs --oracle"),
        (("--oracle", "sudoku_constraints"), "an oracle needs the actions of an environment, got one for 'relay'"),
        (
            ("--exact", "0.1", "--repetition-penalty", 2),
            "repetition_penalty must be 1.0 where values are exact, got 2",
        ),
        (("--exact", "0.1", "--top-k", 3), "top_k must be 0 where values are exact, got 3"),
        (("--exact", "-1", "--max-new-tokens", 1, *SMALL), "floor must be at least 0, got -1"),
        (("--history", "current"), "history, instructions and max_turns need an environment"),
        (("--temperature", "-1"), "temperature must be at least 0, got -1"),
        (("--protocol", "luck"), "--protocol must be one of buckets, training, signal, verdicts, got 'luck'"),
        (("--protocol", "training", *UPDATE), "the credit of training needs a method, got none"),
        (("--method", "luck"), "got 'luck'"),
        (("--method-option", "group_size=3"), "--method-option needs exactly one --method, got none"),
        (("--protocol", "training", "--oracle", "sudoku_constraints"), "training takes no --oracle, got sudoku_con"),
        (("--protocol", "training", "--candidates", 3), "--protocol training takes no --candidates, got 3; omit it"),
        (("--collections", 3), "--protocol buckets takes no --collections, got 3; omit it"),
    ],
)
def test_what_cannot_be_diagnosed_is_refused_in_one_sentence(
    command, relay_policy, tmp_path, arguments, complaint
) -> None:
    filled = [str(one).replace("{model}", str(relay_policy)) for one in arguments]
    code, out, err = command("diagnose", relay_policy, *filled, "--output", tmp_path / "d")
    assert (code, out) == (1, "")
    assert complaint in err
    assert not (tmp_path / "d").exists()


def test_a_policy_of_the_hub_needs_a_folder_to_write_to(command) -> None:
    code, _, err = command("diagnose", "someone/something", "--task", "relay")
    assert code == 1
    assert "a diagnosis of a policy from the Hub needs --output, got 'someone/something' without" in err


def test_the_signal_of_methods_is_measured_beside_the_outcome(command, trained_run, tmp_path) -> None:
    asked = ("--protocol", "signal", "--method", "verifiable_process", "--method", "rloo", "--collections", 3)
    asked += ("--option", "blanks=12")  # in which the policy never succeeds
    small = ("--episodes", 12, "--buckets", 3, "--output", tmp_path)
    code, out, err = command("diagnose", trained_run, *asked, *small)
    assert code == 0, err
    for word in ("tokens to SNR 1", "silent", "one outcome", "agreement", "outcome_reward", "verifiable_process"):
        assert word in out
    (found,) = json.loads((tmp_path / "signal.json").read_text(encoding="utf-8"))
    signals = found["signals"]
    assert list(signals) == ["outcome_reward", "verifiable_process", "rloo"]
    assert [one["signal"]["n"] for one in signals.values()] == [3, 3, 3]
    assert [one["success"]["n"] for one in signals.values()] == [12, 12, 3 * 2]  # tasks
    assert signals["outcome_reward"]["tokens"] == signals["verifiable_process"]["tokens"]
    # The policy never succeeds, so that replays would say nothing.
    assert found["agreement"] == {}
    assert err.count("no two episodes that were compared had different outcomes") == 3
    assert found["about"]["collections"] == 3
    spent = sum(3 * signals[name]["tokens"] for name in ("rloo", "outcome_reward"))
    assert found["cost"]["completion_tokens"] == pytest.approx(spent)
    assert "does not" not in err
    _names_no_folder(tmp_path)


def test_where_outcomes_differ_replays_say_whether_the_credit_agrees_with_them(command, tmp_path) -> None:
    policy, small = tmp_path / "policy", ("--hidden-size", 16, "--layers", 1, "--heads", 2, "--episodes", 64)
    long = ("--epochs", 16, "--learning-rate", 8e-3, "--quality", 0.5)  # enough for a number now and then
    assert command("init-policy", "relay", policy, "--option", "size=4", *small, *long)[0] == 0
    small = ("--collections", 3, "--episodes", 12, "--buckets", 2, "--output", tmp_path)
    code, _, err = command("diagnose", policy, "--protocol", "signal", "--method", "rloo", *small)
    assert code == 0, err
    (found,) = json.loads((tmp_path / "signal.json").read_text(encoding="utf-8"))
    signals = found["signals"]
    assert found["about"]["plan"]["replays"] <= 3  # as many as were played
    assert min(one["equal"] for one in signals.values()) < 1
    assert set(found["agreement"]) == set(signals) == {"outcome_reward", "rloo"}
    assert found["cost"]["completion_tokens"] > sum(3 * one["tokens"] for one in signals.values())
    rows = [{name: value for name, value in row.items() if name != "seed"} for row in relay(4).tasks("train", 12)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))  # whose seeds are derived
    code, _, err = command("diagnose", policy, "--protocol", "signal", *small, "--dataset", tmp_path / "rows.jsonl")
    assert code == 0, err


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--exact", 0.1), "--protocol signal takes no --exact, got 0.1; omit it"),
        (("--episodes", 5), "a collection needs 2 tasks, got --episodes 5 for 24"),
        (("--oracle", "sudoku_constraints"), "--protocol signal takes no --oracle, got sudoku_constraints"),
        (("--collections", 2), "--collections"),
        (("--replays", 1), "--protocol signal needs at least 2 --replays, got 1"),
        (("--credit-replays", 2), "--protocol signal takes no --credit-replays, got 2; omit it"),
    ],
)
def test_a_signal_refuses_what_it_does_not_take(command, relay_policy, tmp_path, option, told) -> None:
    code, _, err = command("diagnose", relay_policy, "--protocol", "signal", *option, "--output", tmp_path)
    assert code != 0
    assert told in err.replace("\n", " ")


def test_it_is_told_whether_an_oracle_can_be_trusted(command, trained_run, tmp_path) -> None:
    asked = ("--protocol", "verdicts", "--episodes", 6, "--buckets", 6, "--candidates", 3, "--replays", 3)
    code, out, err = command("diagnose", trained_run, *asked, "--output", tmp_path)
    assert code == 0, err
    for word in ("Trust", "Reliability", "margin", "agreement"):
        assert word in out
    assert "whether verdicts pay" in err or "pay: the oracle errs" in err
    (found,) = json.loads((tmp_path / "verdicts.json").read_text(encoding="utf-8"))
    assert found["price"]["seconds"] > 0
    assert sum(moves for *_, moves in found["reliability"]) + found["unknown"] <= 6 * 3
    assert {path.name for path in tmp_path.iterdir()} == {"verdicts.md", "verdicts.json", "verdicts.png"}
    _names_no_folder(tmp_path)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--method", "rloo"), "--protocol verdicts takes no --method, got ['rloo']; omit it"),
        ((), "--protocol verdicts needs an oracle, got none for 'relay'; add --oracle"),
        (("--value-actions", 2), "--protocol verdicts takes no --value-actions, got 2; omit it"),
        (("--replays", 1, "--task", "sudoku"), "at least 2 candidates and 2 replays, got (8, 1)"),
    ],
)
def test_verdicts_refuse_what_they_cannot_measure(command, relay_policy, tmp_path, option, told) -> None:
    code, _, err = command("diagnose", relay_policy, "--protocol", "verdicts", *option, "--output", tmp_path)
    assert code == 1
    assert told in err.replace("\n", " ")
