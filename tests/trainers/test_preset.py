"""The settings of a preset have the options of its method as fields."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest
from trl import TrlParser

import hf_credit
from hf_credit import methods
from hf_credit.options import options_of
from hf_credit.safe_io import as_mapping
from hf_credit.trainers.asynchronous import presets as served
from hf_credit.trainers.asynchronous.config import AsyncCreditConfig
from hf_credit.trainers.preset import Preset
from hf_credit.trainers.recipes import PRESETS as METHODS

# What a trainer takes in place of a setting, and what an algorithm sets.
ELSEWHERE = {"VerifiableProcessConfig": {"oracle"}, "TruncatedPPOConfig": {"group_size"}}
PRESETS = [
    "ConstrainedCounterfactualConfig",
    "CounterfactualGRPOConfig",
    "ReplayLOOConfig",
    "TruncatedPPOConfig",
    "VerifiableProcessConfig",
]


@pytest.mark.parametrize("name", PRESETS)
def test_every_option_of_the_method_is_a_field_with_its_default_and_help(name: str) -> None:
    config: type[Preset] = getattr(hf_credit, name)
    fields = {one.name: one for one in dataclasses.fields(config)}
    for option in options_of(methods.find(config.method_name)).values():
        if option.name not in ELSEWHERE.get(name, ()):
            one = fields[option.name]
            made: Any = one.default if one.default is not dataclasses.MISSING else one.default_factory  # type: ignore[misc]
            assert made == option.default or tuple(made()) == option.default
            assert one.metadata["help"].endswith(".")


def test_help_is_the_first_sentence_of_the_factory_and_its_range() -> None:
    help_of = {one.name: one.metadata.get("help") for one in dataclasses.fields(hf_credit.ReplayLOOConfig)}
    assert help_of["budget"] == "Number of terminal scores per instance and update (eq. 24); whole number at least 2."
    assert help_of["baseline"] == '"leave_one_out", or "full_mean" for the ablation "w/o LOO" (eq. 26).'


@dataclasses.dataclass
class Mine(hf_credit.ReplayLOOConfig):
    return_clip: float = 3.0
    mine: int = 1


def test_a_preset_can_be_subclassed_pickled_and_copied(tmp_path: Path) -> None:
    settings = Mine(budget=8, output_dir=str(tmp_path), bf16=False, use_cpu=True, report_to="none")
    assert settings.method().options["return_clip"] == 3
    assert "mine" not in settings.options()
    again = pickle.loads(pickle.dumps(settings))
    assert again.options() == settings.options()
    settings.alternatives.append(1)
    assert Mine(output_dir=str(tmp_path), bf16=False, use_cpu=True, report_to="none").alternatives == [2, 4]


SETTINGS: dict[str, Any] = {"output_dir": "run", "bf16": False, "use_cpu": True, "report_to": "none"}
# A server generates at temperature 1, and its trainer has no KL penalty.
LOST = {
    "AsyncReplayLOOConfig": {"temperature": 0.7, "beta": 0.001},
    "AsyncVerifiableProcessConfig": {"temperature": 0.6},
}


@pytest.mark.parametrize("name", PRESETS)
def test_the_papers_defaults_hold_however_episodes_are_played(name: str) -> None:
    config = getattr(hf_credit, name)
    assert config.defaults
    made = config(**SETTINGS)
    assert {one: getattr(made, one) for one in config.defaults} == config.defaults
    entry = next(one for one in METHODS.values() if one.config.endswith(f":{name}"))
    asynchronous = getattr(served, f"Async{name}", AsyncCreditConfig)
    assert entry.served.endswith(f":{asynchronous.__name__}")
    if asynchronous is AsyncCreditConfig:  # T3's algorithms and a second policy have no place there
        assert name in ("TruncatedPPOConfig", "ConstrainedCounterfactualConfig")
        return
    lost, played = served.impossible(config), asynchronous(**SETTINGS)
    assert lost == LOST.get(asynchronous.__name__, {})
    neutral = {"beta": 0.0}
    for one, value in config.defaults.items():
        assert one in lost or getattr(played, one, neutral.get(one)) == value, one
    assert played.options() == made.options()
    assert pickle.loads(pickle.dumps(played)).options() == made.options()


@pytest.mark.parametrize("config", [hf_credit.ReplayLOOConfig, served.AsyncReplayLOOConfig])
def test_options_are_a_mapping_or_fields(config: Any) -> None:
    beside = config(budget=16, alternatives=[4, 4], **SETTINGS)
    for given in ({"budget": 16, "alternatives": [4, 4]}, '{"budget": 16, "alternatives": [4, 4]}'):
        assert config(method_options=given, **SETTINGS).options() == beside.options()
    with pytest.raises(ValueError, match="budget is given twice, as 4 and 16; leave one of them out"):
        config(budget=4, method_options={"budget": 16, "alternatives": [4, 4]}, **SETTINGS)
    with pytest.raises(ValueError, match=r"method_options must be options of 'replay_loo', got 'bugdet'; .*budget"):
        config(method_options={"bugdet": 16}, **SETTINGS)


@pytest.mark.parametrize(("given", "value"), [("measured", "measured"), (".25", 0.25), ("1", 1.0)])
def test_a_command_line_gives_a_number_or_a_word(given: str, value: Any, tmp_path: Path) -> None:
    words = ["--output_dir", str(tmp_path), "--use_cpu", "true", "--bf16", "false", "--outcome_weight", given]
    (settings,) = TrlParser(hf_credit.VerifiableProcessConfig).parse_args_and_config(words)
    assert settings.outcome_weight == value
    assert settings.method().options["outcome_weight"] == value
    with pytest.raises(ValueError, match="outcome_weight must be"):
        TrlParser(hf_credit.VerifiableProcessConfig).parse_args_and_config([*words[:-1], given + "x"])


def test_a_mapping_may_be_text() -> None:
    assert as_mapping("limits", '{"a": 1}') == {"a": 1} == as_mapping("limits", {"a": 1})
    assert as_mapping("limits", None) == {}
    for wrong in ("a", "[1]"):
        with pytest.raises(ValueError, match="limits must be a mapping, got"):
            as_mapping("limits", wrong)
