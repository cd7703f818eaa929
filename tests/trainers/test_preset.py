"""The settings of a preset have the options of its method as fields."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

import hf_credit
from hf_credit import methods
from hf_credit.options import options_of
from hf_credit.trainers.config import as_mapping
from hf_credit.trainers.preset import OPTION, PresetConfig

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
    config: type[PresetConfig] = getattr(hf_credit, name)
    fields = {one.name: one for one in dataclasses.fields(config)}
    assert all(one.default is not OPTION for one in fields.values())
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
    contexts: int = 3
    mine: int = 1


def test_a_preset_can_be_subclassed_pickled_and_copied(tmp_path: Path) -> None:
    settings = Mine(budget=8, output_dir=str(tmp_path), bf16=False, use_cpu=True, report_to="none")
    assert settings.method().options["contexts"] == 3
    assert "mine" not in settings.method_options()
    again = pickle.loads(pickle.dumps(settings))
    assert again.method_options() == settings.method_options()
    settings.alternatives.append(1)
    assert Mine(output_dir=str(tmp_path), bf16=False, use_cpu=True, report_to="none").alternatives == [2, 4]


def test_a_mapping_may_be_text() -> None:
    assert as_mapping("limits", '{"a": 1}') == {"a": 1} == as_mapping("limits", {"a": 1})
    assert as_mapping("limits", None) == {}
    for wrong in ("a", "[1]"):
        with pytest.raises(ValueError, match="limits must be a mapping, got"):
            as_mapping("limits", wrong)
