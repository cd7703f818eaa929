from __future__ import annotations

import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit.collaborations.relay import relay
from hf_credit.critics.inputs import context_inputs, joint_histories
from hf_credit.critics.saved import SavedCritic, has_critic
from hf_credit.policies.generation import sampler
from hf_credit.rollouts import Chat, Engine, RolloutRequest


@pytest.fixture(scope="module")
def mappo_run(tmp_path_factory, relay_policy):
    """A run of one update of MAPPO, with a changed critic head, so that its values are not 0."""
    from hf_credit.cli import main

    from .conftest import relay_recipe

    folder = tmp_path_factory.mktemp("mappo")
    recipe = relay_recipe(relay_policy, folder / "run", method="mappo", max_steps=1)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.raises(SystemExit) as ended:
        main(["train", str(folder / "recipe.yaml")])
    assert ended.value.code == 0
    path = folder / "run" / "critic" / "critic.safetensors"
    weights = load_file(path)
    head = torch.randn(weights["head.weight"].shape, generator=torch.Generator().manual_seed(0))
    save_file({**weights, "head.weight": head, "head.bias": torch.ones(1)}, path)
    return folder / "run"


def predicted(critic, episodes):
    """Returns the values of a critic before each decision of each episode."""
    own = [joint_histories(episode) for episode in episodes]
    predictions = iter(critic(context_inputs([history for histories in own for history in histories])))
    return [[next(predictions)[0] for _ in histories] for histories in own]


def loaded(folder):
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def test_a_saved_critic_predicts_as_its_weights(mappo_run) -> None:
    policy, tokenizer = loaded(mappo_run)
    engine = Engine(relay(4), Chat(tokenizer), sampler(policy, tokenizer, max_new_tokens=3))
    episodes = engine.run([RolloutRequest(task=row) for row in relay(4).tasks("held_out", 3)])
    assert has_critic(mappo_run)
    values = predicted(SavedCritic(mappo_run, policy, tokenizer), episodes)
    assert [len(own) for own in values] == [2, 2, 2]

    # The same by hand: the saved backbone on all messages so far, and the saved head at the last token.
    weights = load_file(mappo_run / "critic" / "critic.safetensors")
    bare = AutoModelForCausalLM.from_pretrained(mappo_run).model
    bare.load_state_dict({k.removeprefix("backbone."): v for k, v in weights.items() if k.startswith("backbone.")})
    for episode, (first, second) in zip(episodes, values, strict=True):
        plan, act = episode.decisions
        for history, value in (
            (plan.context_ids, first),
            (plan.context_ids + plan.action_ids + act.context_ids, second),
        ):
            with torch.no_grad():
                hidden = bare(torch.tensor([history])).last_hidden_state[0, -1]
            assert value == pytest.approx((weights["head.weight"] @ hidden + weights["head.bias"]).item(), abs=1e-5)
    assert len({value for own in values for value in own}) > 1


def test_a_folder_without_a_critic_has_none(mappo_run, relay_policy) -> None:
    assert not has_critic(relay_policy)
    assert not has_critic("someone/something")
    assert not has_critic(mappo_run, "judge")


def test_a_critic_of_other_weights_is_refused_in_one_sentence(mappo_run, tmp_path) -> None:
    policy, tokenizer = loaded(mappo_run)
    other = tmp_path / "other"
    shutil.copytree(mappo_run, other)
    weights = load_file(other / "critic" / "critic.safetensors")
    save_file({**weights, "head.weight": torch.zeros(1, 3)}, other / "critic" / "critic.safetensors")
    engine = Engine(relay(4), Chat(tokenizer), sampler(policy, tokenizer, max_new_tokens=3))
    critic = SavedCritic(other, policy, tokenizer)
    with pytest.raises(ValueError, match=r"a saved critic must have the same backbone, got .*head.weight"):
        predicted(critic, engine.run([RolloutRequest(task=row) for row in relay(4).tasks("held_out", 1)]))


def test_the_adapters_of_critic_and_policy_share_a_model(relay_policy, tmp_path) -> None:
    from accelerate import Accelerator
    from peft import LoraConfig, get_peft_model

    from hf_credit.critics.critic import Critic

    base, tokenizer = loaded(relay_policy)
    config = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "v_proj"])
    policy = get_peft_model(base, config)
    critic = Critic(config, policy, tokenizer, Accelerator(cpu=True))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in critic.weights.parameters.values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    folder = tmp_path / "lora"
    policy.save_pretrained(folder, selected_adapters=["default"])
    tokenizer.save_pretrained(folder)
    critic.save(folder)
    episodes = Engine(relay(4), Chat(tokenizer), sampler(policy, tokenizer, max_new_tokens=3)).run(
        [RolloutRequest(task=row) for row in relay(4).tasks("held_out", 2)]
    )
    histories = [context_inputs(joint_histories(episode)) for episode in episodes]
    expected = [[value for (value,) in critic(inputs)] for inputs in histories]

    again, _ = loaded(folder)  # as the command loads it: transformers with an adapter in it
    values = predicted(SavedCritic(folder, again, tokenizer), episodes)
    assert values == [pytest.approx(own, abs=1e-5) for own in expected]
    assert any(abs(value) > 1e-3 for own in values for value in own)
