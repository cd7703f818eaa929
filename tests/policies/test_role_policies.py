"""Each role generates with its own adapter, and nothing else of the model changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit.loading import role_folders
from hf_credit.policies.role_policies import (
    MixedRoles,
    RoleSampler,
    can_mix,
    role_samplers,
    use_adapter,
    using,
)
from hf_credit.rollouts import Generation
from hf_credit.rollouts.samplers import honours_seeds, sample

ROLES = ["reasoner", "actor"]


@pytest.fixture
def model(micro_policy: Path) -> PeftModel:
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    model = PeftModel(AutoModelForCausalLM.from_pretrained(micro_policy), config, adapter_name=ROLES[0])
    model.add_adapter(ROLES[1], config)
    return model


def trained(model: PeftModel) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def logits(model: PeftModel) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([[1, 2, 3]])).logits


def test_activating_an_adapter_changes_the_logits_and_not_what_is_trained(model: PeftModel) -> None:
    before, said = trained(model), logits(model)
    use_adapter(model, "actor")
    assert trained(model) == before
    assert not torch.equal(logits(model), said)
    use_adapter(model, "reasoner")
    assert torch.equal(logits(model), said)


def test_the_previous_adapter_is_active_again_after_an_error(model: PeftModel) -> None:
    def fail() -> None:
        with using(model, "actor"):
            assert model.active_adapter == "actor"
            raise RuntimeError("no reply")

    with pytest.raises(RuntimeError, match="no reply"):
        fail()
    assert model.active_adapter == "reasoner"


class Recorder:
    """A sampler that records the active adapter of each call."""

    def __init__(self, model: PeftModel) -> None:
        self.model = model
        self.adapters: list[Any] = []

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        self.adapters.append(self.model.active_adapter)
        return [Generation(ids=(1,)) for _ in contexts]


class RecorderWithSeeds(Recorder):
    def seeded(self, contexts: Sequence[Sequence[int]], seeds: Sequence[int | None]) -> list[Generation]:
        return self([*contexts])


def test_a_role_is_sampled_with_its_adapter(model: PeftModel) -> None:
    recorder = Recorder(model)
    assert len(RoleSampler(recorder, model, "actor")([(1,), (2,)])) == 2
    assert recorder.adapters == ["actor"]
    assert model.active_adapter == "reasoner"


def test_a_role_supports_seeds_if_its_sampler_does(model: PeftModel) -> None:
    assert RoleSampler(Recorder(model), model, "actor").seeded is None
    recorder = RecorderWithSeeds(model)
    seeded = RoleSampler(recorder, model, "actor").seeded
    assert seeded is not None
    seeded([(1,)], [7])
    assert recorder.adapters == ["actor"]


def test_a_critics_folder_is_no_policy(tmp_path: Path) -> None:
    for name in ("actor", "critic", "notes"):
        (tmp_path / name).mkdir()
    for name in ("actor", "critic"):
        (tmp_path / name / "adapter_config.json").write_text("{}")
    assert role_folders(tmp_path) == [tmp_path / "actor"]


@pytest.mark.parametrize(
    "config",
    [
        {"use_dora": True},
        {"bias": "lora_only"},
        {"modules_to_save": ["norm"]},
    ],
    ids=["DoRA", "bias", "whole modules"],
)
def test_adapters_that_cannot_be_mixed_generate_one_after_the_other(
    micro_policy: Path, config: dict[str, Any]
) -> None:
    base = AutoModelForCausalLM.from_pretrained(micro_policy)
    tokenizer = AutoTokenizer.from_pretrained(micro_policy)
    lora = LoraConfig(r=2, target_modules=["q_proj"], **config)
    model = PeftModel(base, lora, adapter_name="reasoner")
    assert not can_mix(model)
    assert isinstance(role_samplers(model, ["reasoner"], tokenizer)["reasoner"], RoleSampler)


def test_plain_adapters_can_be_mixed_until_one_is_merged(model: PeftModel) -> None:
    assert can_mix(model)
    model.merge_adapter(["actor"])
    assert not can_mix(model)


def test_several_roles_generate_in_one_batch_and_one_role_with_its_own_sampler(model: PeftModel) -> None:
    calls: list[Any] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, contexts: Any) -> list[Generation]:
            return self.seeded(contexts, None)

        def seeded(self, contexts: Any, seeds: Any) -> list[Generation]:
            return self.mixed(contexts, None, seeds)

        def mixed(self, contexts: Any, adapters: Any, seeds: Any) -> list[Generation]:
            calls.append((self.name, model.active_adapter, [*contexts], adapters, seeds))
            return [Generation(ids=(number,)) for number, _ in enumerate(contexts)]

    roles = MixedRoles({role: RoleSampler(Named(role), model, role) for role in ROLES}, Named("both"), model)
    assert honours_seeds(roles)
    replies = sample(roles, ["actor", "reasoner"], [(1,), (2,)], [None, None])
    assert [reply.ids for reply in replies] == [(0,), (1,)]
    sample(roles, ["actor"], [(3,)], [7])
    roles["reasoner"]([(4,)])
    assert calls == [
        ("both", "actor", [(1,), (2,)], ["actor", "reasoner"], None),
        ("actor", "actor", [(3,)], None, [7]),
        ("reasoner", "reasoner", [(4,)], None, None),
    ]
    with pytest.raises(ValueError, match="every role must have a sampler, got none for 'critic'"):
        sample(roles, ["critic"], [(1,)], [None])
