"""Every role speaks through its own adapter, and nothing else of the model changes."""

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


def test_changing_the_adapter_changes_what_the_model_says_and_not_what_is_trained(model: PeftModel) -> None:
    before, said = trained(model), logits(model)
    use_adapter(model, "actor")
    assert trained(model) == before
    assert not torch.equal(logits(model), said)
    use_adapter(model, "reasoner")
    assert torch.equal(logits(model), said)


def test_the_adapter_of_before_is_back_after_an_error(model: PeftModel) -> None:
    def fail() -> None:
        with using(model, "actor"):
            assert model.active_adapter == "actor"
            raise RuntimeError("no reply")

    with pytest.raises(RuntimeError, match="no reply"):
        fail()
    assert model.active_adapter == "reasoner"


class Asked:
    """A sampler that says under which adapter it was asked."""

    def __init__(self, model: PeftModel) -> None:
        self.model = model
        self.under: list[Any] = []

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        self.under.append(self.model.active_adapter)
        return [Generation(ids=(1,)) for _ in contexts]


class AskedWithSeeds(Asked):
    def seeded(self, contexts: Sequence[Sequence[int]], seeds: Sequence[int | None]) -> list[Generation]:
        return self([*contexts])


def test_a_role_is_sampled_with_its_adapter(model: PeftModel) -> None:
    asked = Asked(model)
    assert len(RoleSampler(asked, model, "actor")([(1,), (2,)])) == 2
    assert asked.under == ["actor"]
    assert model.active_adapter == "reasoner"


def test_a_role_honours_seeds_where_its_sampler_does(model: PeftModel) -> None:
    assert RoleSampler(Asked(model), model, "actor").seeded is None
    asked = AskedWithSeeds(model)
    seeded = RoleSampler(asked, model, "actor").seeded
    assert seeded is not None
    seeded([(1,)], [7])
    assert asked.under == ["actor"]


def test_a_critic_is_nobodys_policy(tmp_path: Path) -> None:
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
def test_adapters_that_one_pass_cannot_mix_are_asked_one_after_the_other(
    micro_policy: Path, config: dict[str, Any]
) -> None:
    base = AutoModelForCausalLM.from_pretrained(micro_policy)
    tokenizer = AutoTokenizer.from_pretrained(micro_policy)
    lora = LoraConfig(r=2, target_modules=["q_proj"], **config)
    model = PeftModel(base, lora, adapter_name="reasoner")
    assert not can_mix(model)
    assert isinstance(role_samplers(model, ["reasoner"], tokenizer)["reasoner"], RoleSampler)


def test_plain_adapters_mix_until_one_is_merged(model: PeftModel) -> None:
    assert can_mix(model)
    model.merge_adapter(["actor"])
    assert not can_mix(model)


def test_several_roles_of_a_round_are_asked_in_one_call_and_one_by_its_own_sampler(model: PeftModel) -> None:
    asked: list[Any] = []

    class Told:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, contexts: Any) -> list[Generation]:
            return self.seeded(contexts, None)

        def seeded(self, contexts: Any, seeds: Any) -> list[Generation]:
            return self.mixed(contexts, None, seeds)

        def mixed(self, contexts: Any, adapters: Any, seeds: Any) -> list[Generation]:
            asked.append((self.name, model.active_adapter, [*contexts], adapters, seeds))
            return [Generation(ids=(number,)) for number, _ in enumerate(contexts)]

    roles = MixedRoles({role: RoleSampler(Told(role), model, role) for role in ROLES}, Told("both"), model)
    assert honours_seeds(roles)
    replies = sample(roles, ["actor", "reasoner"], [(1,), (2,)], [None, None])
    assert [reply.ids for reply in replies] == [(0,), (1,)]
    sample(roles, ["actor"], [(3,)], [7])
    roles["reasoner"]([(4,)])
    assert asked == [
        ("both", "actor", [(1,), (2,)], ["actor", "reasoner"], None),
        ("actor", "actor", [(3,)], None, [7]),
        ("reasoner", "reasoner", [(4,)], None, None),
    ]
    with pytest.raises(ValueError, match="every role must have a sampler, got none for 'critic'"):
        sample(roles, ["critic"], [(1,)], [None])
