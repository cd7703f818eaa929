"""Backbones of critics: they do not change the policy, and unsupported ones are refused."""

from __future__ import annotations

import copy

import pytest
import torch
from accelerate.utils import DistributedType
from peft import IA3Config, LoraConfig, get_peft_model

from hf_credit import make
from hf_credit.critics.backbone import adapter_backbone, own_backbone, refuse_training_that
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer

SIZES = {"hidden_size": 16, "heads": 2}
CPU = torch.device("cpu")
IDS = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 10]])
MASK = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(make("tic_tac_toe"), episodes=1)


@pytest.fixture(scope="module")
def other_tokenizer():
    return build_tokenizer(make("sudoku", size=4, blanks=4), episodes=1)


@pytest.fixture
def model(tokenizer):
    return build_model(tokenizer, MicroConfig(**SIZES))


@pytest.fixture
def policy(tokenizer):
    """A policy with LoRA, with other outputs than its base."""
    return with_lora(build_model(tokenizer, MicroConfig(**SIZES, seed=9)))


def with_lora(model, **options):
    policy = get_peft_model(model, LoraConfig(r=2, lora_dropout=0.5, **options))
    move(policy, ".default.", seed=3)
    return policy


def move(policy, part, seed):
    """Sets the parameters with `part` in their names to random numbers."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if part in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))


def condition(policy):
    """Everything that forward passes of the critic might change."""
    return {
        "trained": {name: parameter.requires_grad for name, parameter in policy.named_parameters()},
        "modes": {name: module.training for name, module in policy.named_modules()},
        "adapter": (policy.active_adapter, policy.base_model.active_adapters),
        "switched off": {
            name: module.disable_adapters for name, module in policy.named_modules() if hasattr(module, "lora_A")
        },
    }


def logits(policy):
    torch.manual_seed(0)  # of dropout
    with torch.no_grad():
        return policy(input_ids=IDS, attention_mask=MASK).logits


# An adapter on the policy's base


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("targets", [None, "all-linear", ["gate_proj"]])
def test_adding_an_adapter_does_not_change_the_policy(policy, training, targets):
    policy.train(training)
    next(module for module in policy.modules() if isinstance(module, torch.nn.Linear)).eval()  # one of its own mode
    untouched = copy.deepcopy(policy)
    torch.manual_seed(5)
    drawn = torch.rand(3)

    torch.manual_seed(5)
    adapter_backbone(LoraConfig(r=4, target_modules=targets), policy, seed=1)
    assert torch.equal(torch.rand(3), drawn)
    move(policy, ".critic.", seed=4)
    assert torch.equal(logits(policy), logits(untouched))
    assert {name for name, parameter in policy.named_parameters() if parameter.requires_grad} == {
        name for name, parameter in untouched.named_parameters() if parameter.requires_grad
    }
    before, after = condition(untouched), condition(policy)
    assert after["adapter"] == before["adapter"]
    if targets is None:  # otherwise modules are wrapped that were not
        assert {name: after["modes"][name] for name in before["modes"]} == before["modes"]


def test_hidden_states_of_an_adapter_differ_from_those_of_the_policy_and_its_base(policy):
    backbone = adapter_backbone(LoraConfig(r=4), policy, seed=1)
    policy.eval()
    with torch.no_grad(), policy.disable_adapter():
        bare = backbone.model(input_ids=IDS[1:]).last_hidden_state
    with backbone.reading(training=False):
        torch.testing.assert_close(backbone.hidden_states(IDS[1:], MASK[1:]), bare)  # nothing is learnt yet
    move(policy, ".critic.", seed=4)
    with torch.no_grad():
        policys = backbone.model(input_ids=IDS[1:]).last_hidden_state
        with backbone.reading(training=False):
            critics = backbone.hidden_states(IDS[1:], MASK[1:])
    assert (critics - bare).abs().max() > 1e-2
    assert (critics - policys).abs().max() > 1e-2


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("off", [True, False])
def test_reading_restores_modes_gradients_and_adapters(policy, training, fails, off):
    backbone = adapter_backbone(LoraConfig(r=4), policy, seed=1)
    policy.base_model.model.model.layers[0].eval()
    before = condition(policy)
    with policy.disable_adapter() if off else torch.enable_grad():
        within = condition(policy)
        try:
            with backbone.reading(training):
                assert policy.active_adapter == "critic"
                asked = {name for name, parameter in policy.named_parameters() if parameter.requires_grad}
                assert asked == (set(backbone.trained) if training else set())
                assert {module.training for module in policy.modules()} == {training}
                if fails:
                    raise RuntimeError("no memory")
        except RuntimeError:
            assert fails
        assert condition(policy) == within
    assert condition(policy) == before


def test_only_the_critics_adapter_gets_a_gradient(policy):
    backbone = adapter_backbone(LoraConfig(r=4), policy, seed=1)
    move(policy, ".critic.", seed=4)
    with backbone.reading(training=True):
        backbone.hidden_states(IDS, MASK).sum().backward()
    assert {name for name, parameter in policy.named_parameters() if parameter.grad is not None} == set(
        backbone.trained
    )


def test_the_seed_determines_the_weights_of_an_adapter(tokenizer):
    def weights(seed):
        model = with_lora(build_model(tokenizer, MicroConfig(**SIZES)))
        return list(adapter_backbone(LoraConfig(r=4), model, seed).trained.values())

    first, second, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))
    assert any(not torch.equal(one, two) for one, two in zip(first, other, strict=True))


def test_a_layer_that_the_policy_trains_in_full_does_not_change(tokenizer):
    policy = with_lora(build_model(tokenizer, MicroConfig(**SIZES)), modules_to_save=["norm"])
    before = logits(policy.eval())
    backbone = adapter_backbone(LoraConfig(r=4), policy, seed=1)
    state = condition(policy)
    with backbone.reading(training=True):
        backbone.hidden_states(IDS, MASK).sum().backward()
    assert condition(policy) == state
    assert torch.equal(logits(policy), before)


def test_an_adapter_for_a_whole_model_is_refused(model):
    with pytest.raises(ValueError, match="only if the policy is one of the same type, got a whole model as policy"):
        adapter_backbone(LoraConfig(r=4), model, seed=0)


def test_an_adapter_of_another_type_is_refused(model):
    with pytest.raises(ValueError, match="only if the policy is one of the same type, got an adapter of another type"):
        adapter_backbone(LoraConfig(r=4), get_peft_model(model, IA3Config(task_type="CAUSAL_LM")), seed=0)


def test_a_second_critic_on_one_policy_is_refused(policy):
    adapter_backbone(LoraConfig(r=4), policy, seed=0)
    with pytest.raises(
        ValueError, match=r"no adapter named 'critic', which is the critic's, got \['critic', 'default'\]"
    ):
        adapter_backbone(LoraConfig(r=4), policy, seed=0)


# A model of its own


def test_a_separate_model_is_used_without_its_head(model, policy, tokenizer):
    backbone = own_backbone(model, policy, tokenizer, CPU, checkpointing=False)
    assert backbone.width == 16
    assert set(backbone.trained) == {name for name, _ in model.model.named_parameters()}
    expected = model.model(input_ids=IDS[:1, 2:]).last_hidden_state
    torch.testing.assert_close(backbone.hidden_states(IDS, MASK)[0, 2:], expected[0])


def test_a_folder_is_loaded_in_float32(model, policy, tokenizer, tmp_path):
    model.bfloat16().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    backbone = own_backbone(str(tmp_path), policy, tokenizer, CPU, checkpointing=False)
    assert {parameter.dtype for parameter in backbone.trained.values()} == {torch.float32}
    for name, parameter in model.model.named_parameters():
        assert torch.equal(backbone.trained[name], parameter.float())


def test_only_the_adapter_of_a_model_with_an_adapter_is_trained(policy, tokenizer):
    model = with_lora(build_model(tokenizer, MicroConfig(**SIZES)).bfloat16())
    backbone = own_backbone(model, policy, tokenizer, CPU, checkpointing=False)
    assert backbone.trained
    assert all("lora" in name for name in backbone.trained)
    with backbone.reading(training=True):
        backbone.hidden_states(IDS, MASK).sum().backward()
    assert all(parameter.grad is not None for parameter in backbone.trained.values())


def test_gradient_checkpointing_changes_no_gradient(policy, tokenizer):
    gradients = []
    for checkpointing in (False, True):
        model = build_model(tokenizer, MicroConfig(**SIZES))
        backbone = own_backbone(model, policy, tokenizer, CPU, checkpointing)
        assert backbone.model.is_gradient_checkpointing is checkpointing
        with backbone.reading(training=True):
            backbone.hidden_states(IDS, MASK).square().sum().backward()
        gradients.append([parameter.grad for parameter in backbone.trained.values()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_the_policy_itself_is_refused(model, tokenizer):
    for source in (model, model.model):
        with pytest.raises(ValueError, match="a critic's backbone must share no weights with the policy"):
            own_backbone(source, model, tokenizer, CPU, checkpointing=False)


def test_weights_in_half_precision_are_refused(model, policy, tokenizer):
    with pytest.raises(ValueError, match=r"must be float32, got torch\.bfloat16, in which small updates are lost"):
        own_backbone(model.bfloat16(), policy, tokenizer, CPU, checkpointing=False)


def test_a_model_of_another_vocabulary_is_refused(policy, tokenizer, other_tokenizer, tmp_path):
    other = build_model(other_tokenizer, MicroConfig(**SIZES))
    expected = rf"with {len(other_tokenizer)} tokens for {len(tokenizer)} of the policy; use a model"
    with pytest.raises(ValueError, match=rf"must have the policy's vocabulary, got Qwen3ForCausalLM {expected}"):
        own_backbone(other, policy, tokenizer, CPU, checkpointing=False)
    # Of the right size, but with other words.
    build_model(tokenizer, MicroConfig(**SIZES)).save_pretrained(tmp_path)
    other_tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="must have the policy's vocabulary, got"):
        own_backbone(str(tmp_path), policy, tokenizer, CPU, checkpointing=False)


def test_padding_rows_of_the_embedding_do_not_count(policy, tokenizer, tmp_path):
    wider = build_model(tokenizer, MicroConfig(**SIZES))
    wider.resize_token_embeddings(len(tokenizer) + 8, mean_resizing=False)
    wider.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert own_backbone(str(tmp_path), policy, tokenizer, CPU, checkpointing=False).width == 16


# Training set-ups


@pytest.mark.parametrize("kind", [DistributedType.DEEPSPEED, DistributedType.FSDP, DistributedType.MEGATRON_LM])
def test_sharded_training_is_refused(kind):
    with pytest.raises(ValueError, match=f"a critic must be replicated on every process, got {kind.value}"):
        refuse_training_that(kind, "bf16")


def test_fp16_is_refused():
    with pytest.raises(ValueError, match=r"bf16 or float32, got fp16, whose gradients underflow"):
        refuse_training_that(DistributedType.NO, "fp16")


@pytest.mark.parametrize("kind", [DistributedType.NO, DistributedType.MULTI_GPU, DistributedType.MULTI_CPU])
def test_replicated_training_is_accepted(kind):
    refuse_training_that(kind, "bf16")
    refuse_training_that(kind, "no")


def test_an_adapter_of_a_critic_leaves_the_random_numbers_of_gpus_alone(policy, monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    before = torch.get_rng_state()
    adapter_backbone(LoraConfig(r=4), policy, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert not seeded  # with one seed, all processes would play the same episodes
