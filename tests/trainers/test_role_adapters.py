"""Each role's adapter learns only from the role's decisions."""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import launch
from peft import LoHaConfig, LoraConfig, PeftModel
from transformers import AutoModelForCausalLM

from hf_credit import ReplayLOOConfig
from hf_credit.policies.role_policies import load_role_policies
from hf_credit.rollouts import RolloutRequest
from hf_credit.trainers.role_adapters import refuse_adapters, refuse_roles
from hf_credit.trainers.trl_settings import refuse_unused

TOLERANCE = {"rtol": 1e-3, "atol": 1e-6}
SCRIPT = Path(__file__).with_name("role_update.py")
ROLES = ["reasoner", "actor"]
TEMPERATURE = 5.0  # as in the script
SHARDED = {
    "ACCELERATE_USE_CPU": "true",
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("role_update", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def build(script: Any, micro_policy: Path, tmp_path: Path) -> Callable[..., Any]:
    return lambda policy=None, output=tmp_path, **changed: script.build(policy or micro_policy, output, **changed)


@pytest.fixture
def update(build: Callable[..., Any]) -> Callable[..., Any]:
    """`update(**settings)`: a trainer after its updates."""

    def run(**changed: Any) -> Any:
        trainer = build(**changed)
        trainer.train()
        return trainer

    return run


def weights(model: Any, role: str) -> dict[str, torch.Tensor]:
    """The weights of a role's adapter, by the name that they have in any adapter."""
    found = {name: value for name, value in model.state_dict().items() if f".{role}." in name}
    return {name.replace(f".{role}.", ".*."): value.clone() for name, value in found.items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def by_hand(trainer: Any, start: dict[str, torch.Tensor], decisions: list[Any]) -> dict[str, torch.Tensor]:
    """The gradient of -sum A log pi / tokens, one decision at a time, each under PEFT's own active adapter."""
    model = trainer.model
    model.load_state_dict(start)
    total: dict[str, torch.Tensor] = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    tokens = sum(len(action) for _, _, action, _ in decisions)
    for role, context, action, advantage in decisions:
        model.set_adapter(role)
        model.zero_grad()
        ids = torch.tensor([[*context, *action]])
        logits = model.get_base_model().model(input_ids=ids).last_hidden_state @ model.get_output_embeddings().weight.T
        logits = logits[0, len(context) - 1 : -1] / TEMPERATURE
        logprobs = logits.log_softmax(-1).gather(1, ids[0, len(context) :, None])
        (-advantage * logprobs.sum() / tokens).backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                total[name] += parameter.grad
    return total


def credited(trainer: Any) -> list[Any]:
    """Every credited decision of what a trainer played: role, context, action, advantage."""
    return [
        (decision.role, decision.context_ids, decision.action_ids, advantage)
        for episodes, advantages in trainer.played
        for episode, credits in zip(episodes, advantages, strict=True)
        for decision, advantage in zip(episode.decisions, credits, strict=True)
        if advantage is not None
    ]


def assert_same_gradient(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for role in ROLES:
        assert max(value.abs().max() for name, value in found.items() if f".{role}." in name) > 1e-4
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], **TOLERANCE, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize(
    "layout",
    [{"per_device_train_batch_size": 1}, {"per_device_train_batch_size": 2},
     {"per_device_train_batch_size": 2, "rows_per_forward": 1000}],
    ids=["slices of one", "slices of two", "one part a role"],
)  # fmt: skip
@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
def test_each_adapter_has_the_gradient_of_its_roles_decisions(
    build: Callable[..., Any], layout: dict[str, int], checkpointing: bool
) -> None:
    trainer = build(gradient_checkpointing=checkpointing, **layout)
    start = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    (gradient,) = trainer.kept
    assert {name.split(".")[-2] for name in gradient} == set(ROLES)
    assert {role for role, *_ in credited(trainer)} == set(ROLES)
    assert_same_gradient(gradient, by_hand(trainer, start, credited(trainer)))


def test_two_adapters_start_and_end_different_and_the_base_stays(
    build: Callable[..., Any], micro_policy: Path
) -> None:
    trainer = build()
    assert not same(*(weights(trainer.model, role) for role in ROLES))
    assert list(trainer.model.peft_config) == ROLES
    trainer.train()
    assert not same(*(weights(trainer.model, role) for role in ROLES))
    base = AutoModelForCausalLM.from_pretrained(micro_policy).state_dict()
    after = trainer.model.base_model.model.state_dict()
    found = {name.replace(".base_layer", ""): value for name, value in after.items()}
    assert all(torch.equal(value, found[name]) for name, value in base.items())


def test_a_role_without_credit_keeps_its_adapter(build: Callable[..., Any]) -> None:
    trainer = build(max_steps=2)
    credit = trainer.credit

    def only_the_actors(collected: Any) -> Any:
        actors = {one.id for episode in collected.episodes for one in episode.decisions if one.role == "actor"}
        return {name: value for name, value in credit(collected).items() if name in actors}

    trainer.credit = only_the_actors
    before = {role: weights(trainer.model, role) for role in ROLES}
    trainer.train()
    assert same(before["reasoner"], weights(trainer.model, "reasoner"))
    assert not same(before["actor"], weights(trainer.model, "actor"))


def test_the_reference_of_the_penalty_is_the_base_model(build: Callable[..., Any], micro_policy: Path) -> None:
    trainer = build(beta=0.1)
    batches = []
    reference = trainer._reference_logprobs
    trainer._reference_logprobs = lambda batch: batches.append((batch, reference(batch))) or batches[-1][1]
    trainer.train()
    base = AutoModelForCausalLM.from_pretrained(micro_policy)
    ((batch, found),) = batches
    assert set(batch["role"].tolist()) == {0, 1}
    for row in range(len(found)):
        ids = torch.cat([batch["prompt_ids"][row], batch["completion_ids"][row]])
        mask = torch.cat([batch["prompt_mask"][row], batch["completion_mask"][row]]).bool()
        logits = base(input_ids=ids[mask][None]).logits[0, :-1] / TEMPERATURE
        expected = logits.log_softmax(-1).gather(1, ids[mask][1:, None])[:, 0]
        own = batch["completion_mask"][row].bool()
        torch.testing.assert_close(found[row][own], expected[-int(own.sum()) :], rtol=1e-3, atol=1e-4)
    # The base has no gradient, and both adapters are still trained.
    assert {name.split(".")[-2] for name in trainer.kept[0]} == set(ROLES)


def test_ratios_are_to_the_policy_of_the_role_that_replied(build: Callable[..., Any]) -> None:
    trainer = build(num_iterations=2, max_steps=2)
    start = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    batches = []
    add = trainer._add_logprobs
    trainer._add_logprobs = lambda batch: (add(batch), batches.append(batch))
    trainer.train()
    (batch,) = batches
    assert set(batch["role"].tolist()) == {0, 1}
    trainer.model.load_state_dict(start)
    for row, role in enumerate(batch["role"].tolist()):
        trainer.model.set_adapter(ROLES[role])
        own = batch["completion_mask"][row].bool()
        ids = torch.cat(
            [batch["prompt_ids"][row][batch["prompt_mask"][row].bool()], batch["completion_ids"][row][own]]
        )
        logits = trainer.model(input_ids=ids[None]).logits[0, :-1] / TEMPERATURE
        expected = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        found = batch["old_per_token_logps"][row][own]
        torch.testing.assert_close(found, expected[-int(own.sum()) :], rtol=1e-3, atol=1e-4)


def test_a_critic_learns_together_with_the_adapters_of_roles(build: Callable[..., Any]) -> None:
    trainer = build(method="mappo")
    before = {role: weights(trainer.model, role) for role in ROLES}
    trainer.train()
    assert all(not same(before[role], weights(trainer.model, role)) for role in ROLES)
    assert "critic/value_loss" in trainer.state.log_history[0]


def two_processes(policy: Path, output: Path, environment: dict[str, str], **changed: Any) -> list[dict[str, Any]]:
    """The results of the two processes of a run."""
    output.mkdir()
    launch(SCRIPT, policy, output, json.dumps(changed), processes=2, folder=output, environment=environment)
    return [torch.load(output / f"update_{rank}.pt", weights_only=True) for rank in range(2)]


def test_two_processes_have_the_gradient_of_all_decisions(
    build: Callable[..., Any], micro_policy: Path, tmp_path: Path
) -> None:
    left = two_processes(micro_policy, tmp_path / "two", {})
    decisions = [decision for found in left for decision in found["played"]]
    assert all(found["played"] for found in left)
    alone = build()  # the adapters of the same seed
    expected = by_hand(alone, alone.model.state_dict(), decisions)
    for found in left:
        assert_same_gradient(found["gradient"][0], expected)


def test_sharded_by_fsdp2_alternating_roles_learn_the_same_as_replicated(
    build: Callable[..., Any], micro_policy: Path, tmp_path: Path
) -> None:
    turns = {"role_schedule": "alternating", "switch_every": 1, "max_steps": 4, "beta": 0.1, "reuse_prefixes": False}
    replicated, _ = two_processes(micro_policy, tmp_path / "replicated", {}, **turns)
    sharded, other = two_processes(micro_policy, tmp_path / "sharded", SHARDED, **turns)
    assert sharded["held"] + other["held"] == pytest.approx(replicated["held"], rel=0.01)
    assert sharded["played"] == replicated["played"]
    for found, expected in zip(sharded["after"], replicated["after"], strict=True):
        for name, value in expected["weights"].items():
            torch.testing.assert_close(found["weights"][name], value, rtol=1e-3, atol=1e-5)
    for step, (before, after) in enumerate(itertools.pairwise(sharded["after"])):
        learning = ROLES[step % 2]
        for name, value in before["weights"].items():
            learns = f".{learning}." in name
            assert torch.equal(value, after["weights"][name]) is not learns
            moments, later = before["moments"][name], after["moments"][name]
            same_moments = len(moments) == len(later) and all(map(torch.equal, moments, later))
            assert same_moments is not learns
    model, _ = load_role_policies(tmp_path / "sharded" / "saved")
    for role in ROLES:
        last = {name.replace(f".{role}.", ".*."): value for name, value in sharded["after"][-1]["weights"].items()}
        saved = weights(model, role)
        assert saved
        assert all(torch.equal(value, last[name]) for name, value in saved.items())


def test_sharded_by_fsdp2_simultaneously_learning_roles_are_refused(micro_policy: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="must learn in alternation, got role_schedule='synchronous'"):
        two_processes(micro_policy, tmp_path / "two", SHARDED)


def test_each_role_is_saved_in_its_folder_and_can_be_loaded(build: Callable[..., Any], tmp_path: Path) -> None:
    trainer = build()
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    model, generate = load_role_policies(tmp_path / "saved", max_new_tokens=2, temperature=0.0, top_p=1.0, top_k=0)
    assert set(generate) == set(ROLES)
    for role in ROLES:
        assert (tmp_path / "saved" / role / "adapter_config.json").is_file()
        assert same(weights(model, role), weights(trainer.model, role))


def test_a_folder_without_adapters_of_roles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must hold a folder with adapter_config\.json for each role, got"):
        load_role_policies(tmp_path)


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_run(
    build: Callable[..., Any], tmp_path: Path
) -> None:
    settings = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "linear"}
    whole = build(output=tmp_path / "whole", **settings)
    whole.train()
    again = build(output=tmp_path / "again", **settings)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-1"))
    for role in ROLES:
        assert same(weights(whole.model, role), weights(again.model, role))


def test_existing_adapters_are_trained_further(build: Callable[..., Any], micro_policy: Path) -> None:
    model = PeftModel(AutoModelForCausalLM.from_pretrained(micro_policy), LoraConfig(r=2), adapter_name=ROLES[0])
    model.add_adapter(ROLES[1], LoraConfig(r=2))
    before = {role: weights(model, role) for role in ROLES}
    trainer = build(model, peft_config=False)
    assert trainer.model is model
    trainer.train()
    assert all(not same(before[role], weights(model, role)) for role in ROLES)


@pytest.mark.parametrize(
    ("roles", "played", "message"),
    [
        ([], None, "must name each role once, got"),
        (["a", "a"], None, "must name each role once, got"),
        (["../a"], None, "must have a name of letters, digits, spaces, - and _"),
        (["default"], None, "but PEFT saves the adapter of this name without a folder"),
        (["a", "b"], ["a", "c"], "must be the roles of the interaction, got"),
    ],
)
def test_roles_that_cannot_each_have_an_adapter_are_refused(
    roles: list[str], played: list[str] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        refuse_roles(roles, played)


def test_a_role_named_like_a_module_of_the_model_is_refused(build: Callable[..., Any]) -> None:
    from hf_credit.collaborations import Collaboration, Event

    interaction = Collaboration(
        roles={"layers": "plan", "actor": "answer"},
        events=[Event("plan", role="layers"), Event("answer", role="actor", after="plan")],
        final="answer",
        scorer=lambda task, text: 0.5,
    )
    with pytest.raises(ValueError, match="must not have the name of a module of the model, got 'layers'"):
        build(interaction=interaction, role_adapters=["layers", "actor"])


def test_models_and_configurations_without_usable_adapters_are_refused(micro_policy: Path) -> None:
    with pytest.raises(ValueError, match="must have a peft_config, or a PEFT model with the adapters"):
        refuse_adapters(ROLES, str(micro_policy), None)
    with pytest.raises(ValueError, match="must be LoRA adapters, got a LoHaConfig"):
        refuse_adapters(ROLES, str(micro_policy), LoHaConfig())
    with pytest.raises(ValueError, match="must leave the base model unchanged, got init_lora_weights='pissa'"):
        refuse_adapters(ROLES, str(micro_policy), LoraConfig(init_lora_weights="pissa"))


def test_settings_that_support_one_policy_are_refused(tmp_path: Path) -> None:
    args = ReplayLOOConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True, report_to="none")
    args.use_transformers_continuous_batching = True
    with pytest.raises(ValueError, match="continuous_batching must be False, got True: role_adapters are several"):
        refuse_unused(args, "adapters")


@pytest.mark.parametrize("reuse", [True, False], ids=["continuing", "plain"])
def test_each_role_generates_with_its_adapter(build: Callable[..., Any], reuse: bool) -> None:
    trainer = build(reuse_prefixes=reuse)
    shout(trainer.model, "actor", trainer.chat.tokenizer.convert_tokens_to_ids("3"))
    tasks = [dict(row) for row in trainer.train_dataset]
    with trainer.forgetting():
        episodes = trainer.engine.run([RolloutRequest(task=row) for row in tasks for _ in range(4)])
    said = {role: [d.action_text for e in episodes for d in e.decisions if d.role == role] for role in ROLES}
    assert {text.strip() for text in said["actor"]} == {"33"}
    assert "33" not in {text.strip() for text in said["reasoner"]}
    assert trainer.model.active_adapter == "reasoner"
    assert all(cache is None or cache.cache is None for cache in trainer.adapters.caches)


def shout(model: Any, role: str, token: int) -> None:
    """Makes a role generate one token only: its adapter turns every hidden state into that token's direction."""
    direction = model.get_output_embeddings().weight[token].detach()

    def louder(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        # A delta of rank 2 cannot say this by itself, so the adapter switches it on.
        return output + 1e3 * direction if model.base_model.active_adapters == [role] else output

    model.base_model.model.model.norm.register_forward_hook(louder)
