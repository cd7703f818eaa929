"""Training over the network: TRL's own loop on a Space of ours, and this library's on environments of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from small_runs import OF_OTHERS, REPLAYED, TWO_UPDATES, trained_without_errors
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit import CreditConfig, CreditTrainer, ReplayLOOConfig, ReplayLOOTrainer
from hf_credit.environments.actions import tag
from hf_credit.hub.environments import openenv_interaction
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import RolloutRequest
from hf_credit.trainers.micro import init_scripted_policy


def rows(**columns: Any) -> Dataset:
    return Dataset.from_list([{"seed": seed, **columns} for seed in range(4)])


# This library's trainers on an environment of others


@pytest.fixture(scope="module")
def policy(served: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has seen some random walks."""
    interaction = openenv_interaction(f"{served}/walk", probe=["on", "wait"], instructions=False)
    interaction.texts = lambda episodes: None  # type: ignore[method-assign]  # one that is scripted says all its words

    def script(state: Any, request: Any, draws: Any) -> str:
        return tag(draws.choice(["on", "wait"]))

    folder = init_scripted_policy(
        interaction,
        script,
        [RolloutRequest(task={"seed": seed}, seed=seed) for seed in range(12)],
        tmp_path_factory.mktemp("policy"),
        MicroConfig(hidden_size=32, layers=2, heads=2, episodes=12, epochs=20, batch_rows=12, learning_rate=8e-3),
    )
    interaction.close()
    return folder


def test_alternatives_are_replayed_on_an_environment_of_others(served: str, policy: Path, tmp_path: Path) -> None:
    interaction = openenv_interaction(f"{served}/walk", probe=["on", "wait"], sessions=8, instructions=False)
    args = ReplayLOOConfig(output_dir=str(tmp_path), **REPLAYED, **TWO_UPDATES, **OF_OTHERS)
    *_, log = trained_without_errors(ReplayLOOTrainer(str(policy), interaction, args, train_dataset=rows()))
    assert log["world/world_steps"] > log["world/replayed_steps"] > 0
    assert log["world_actions"] > 0  # the policy has learnt to say what the world can be told
    interaction.close()


def test_what_does_not_repeat_itself_is_refused_to_replay_and_trained_without(
    served: str, policy: Path, tmp_path: Path
) -> None:
    interaction = openenv_interaction(f"{served}/moody", probe=["on", "wait"], sessions=8, instructions=False)
    with pytest.raises(ValueError, match="deterministic given seed and actions, got the method 'replay_loo'"):
        ReplayLOOTrainer(
            str(policy), interaction, ReplayLOOConfig(output_dir=str(tmp_path), **OF_OTHERS), train_dataset=rows()
        )
    args = CreditConfig(
        output_dir=str(tmp_path),
        instances_per_update=2,
        per_device_train_batch_size=2,
        **TWO_UPDATES,
        **OF_OTHERS,
    )
    *_, log = trained_without_errors(
        CreditTrainer(str(policy), interaction, args, method="grpo", train_dataset=rows())
    )
    assert log["world/replayed_steps"] == 0
    interaction.close()


# TRL on a Space of ours

# The policy's own template, in which the answer of a tool reads like any other observation.
TEMPLATE = (
    "{% for message in messages %}<|{{ 'user' if message['role'] == 'tool' else message['role'] }}|>"
    "{{ message['content'] }}{% for call in message['tool_calls'] or [] %}{{ call['function']['name'] }}"
    "{{ call['function']['arguments'] }}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# To TRL an action in its tags is a call of `fill`.
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "<action>",
            "close": "</action>",
            "repeats": True,
            "content": "text",
            "transform": {"type": "function", "function": {"name": "fill", "arguments": {"action": "{content}"}}},
        },
        "content": {"close_pattern": r"<\|end\|>\s*", "content": "text"},
    },
}


def test_trl_trains_on_a_space_through_its_environment_factory(
    served: str, micro_policy_append: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    from openenv.core import GenericEnvClient
    from trl import GRPOConfig, GRPOTrainer

    sessions: list[Any] = []

    class Sudoku:
        """A session with the Space, as TRL's documentation has it."""

        def __init__(self) -> None:
            self.session = GenericEnvClient(base_url=f"{served}/small").sync()
            self.session.connect()
            self.reward, self.played = 0.0, 0
            sessions.append(self)

        def reset(self, seed: int, **row: Any) -> str:
            self.reward = 0.0
            return self.session.reset(seed=seed).observation["text"]

        def fill(self, action: str) -> str:
            """Fills a cell.

            Args:
                action: what to fill.

            Returns:
                The grid.
            """
            result = self.session.step({"action": action})
            self.reward += result.reward
            self.played += 1
            return result.observation["text"]

        def get_reward(self) -> float:
            return self.reward

    tokenizer = AutoTokenizer.from_pretrained(micro_policy_append)
    tokenizer.chat_template, tokenizer.response_template = TEMPLATE, RESPONSE_TEMPLATE
    args = GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_generations=4,
        max_steps=1,
        max_tool_calling_iterations=4,
        generation_kwargs={"max_new_tokens": 12},
        **{**OF_OTHERS, "max_completion_length": 400},
    )
    trainer = GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(micro_policy_append),
        args=args,
        train_dataset=rows(prompt=[{"role": "user", "content": ""}]),
        processing_class=tokenizer,
        environment_factory=Sudoku,
    )
    trainer.train()
    assert len(sessions) == 4  # of one group, each its own
    assert sum(one.played for one in sessions) > 0
    assert any("rewards/Sudoku/mean" in entry for entry in trainer.state.log_history)
    for one in sessions:
        one.session.close()
