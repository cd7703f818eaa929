"""Policies to measure with, and the same game as TRL's loop and this library's would play it."""

from __future__ import annotations

import copy
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # that its environments are experimental

from trl import GRPOConfig, GRPOTrainer

from hf_credit import VerifiableProcessConfig, VerifiableProcessTrainer
from hf_credit.environments import Environment
from hf_credit.environments.tasks import tasks
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer
from hf_credit.policies.scripted import Demonstration, play
from hf_credit.rollouts import Chat, Decision, EnvironmentInteraction, Episode, RolloutRequest
from hf_credit.rollouts.conversations import Conversation
from hf_credit.trainers.micro import settings_of
from hf_credit.trainers.warm_up import WarmUpTrainer

MAX_REPLY = 16
"""The most tokens of a reply; an action with its tags and end token takes 10."""
SCRATCH = tempfile.TemporaryDirectory(
    prefix="hf-credit-benchmarks-"
)  # of this process: others may train at the same time

# Of each end token, the marks around a message. In the template the answer of a tool reads like any other observation,
# so that TRL's contexts are the same tokens. It never renders a call, as TRL keeps their tokens; it must look as
# if it could.
_MARKS = {"<|end|>": ("<|", "|>", "<|end|>"), "<|im_end|>": ("<|im_start|>", "\n", "<|im_end|>\n")}


def _chat_template(end_token: str) -> str:
    before, after, end = _MARKS[end_token]
    return (
        f"{{% for message in messages %}}{before}"
        f"{{{{ 'user' if message['role'] == 'tool' else message['role'] }}}}{after}"
        "{{ message['content'] }}{% for call in message['tool_calls'] or [] %}{{ call['function']['name'] }}"
        f"{{{{ call['function']['arguments'] }}}}{{% endfor %}}{end}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{before}assistant{after}{{% endif %}}"
    )


def _response_template(end_token: str) -> dict[str, Any]:
    """To TRL an action in its tags is a call of `play`."""
    before, after, _ = _MARKS[end_token]
    call = {"type": "function", "function": {"name": "play", "arguments": {"action": "{content}"}}}
    tags = {"open": "<action>", "close": "</action>", "repeats": True, "content": "text", "transform": call}
    end = {"close_pattern": rf"{re.escape(end_token)}\s*", "content": "text"}
    return {
        "defaults": {"role": "assistant"},
        "start_anchor": f"{before}assistant{after}",
        "fields": {"tool_calls": tags, "content": end},
    }


def memorised_policy(
    environment: Environment[Any], history: str, games: int, epochs: int, pretrained: Path | None = None
) -> tuple[Any, PreTrainedTokenizerFast]:
    """A policy that knows the oracle's play of the first `games` training tasks by heart.

    It is a micro policy, or a pretrained one, whose template is then that of the micro policy with its own marks. With
    `"append"` it has also learnt to answer the observation after the last action with an empty reply. That is how a
    policy ends an episode in TRL's loop.
    """
    config = MicroConfig(epochs=epochs, batch_rows=games, learning_rate=3e-3 if pretrained is None else 1e-4)
    if pretrained is None:
        tokenizer = build_tokenizer(environment)
        model: Any = build_model(tokenizer, config)
    else:
        tokenizer = AutoTokenizer.from_pretrained(pretrained)
        tokenizer.chat_template = _chat_template(tokenizer.eos_token)
        model = AutoModelForCausalLM.from_pretrained(pretrained, dtype=torch.float32)
    interaction = EnvironmentInteraction(environment, history, instructions=False)
    shown = [_scripted(interaction, Chat(tokenizer), seed) for seed in range(games)]
    settings = settings_of(Path(SCRATCH.name), config, quiet=True)
    WarmUpTrainer(model, settings, shown, processing_class=tokenizer).train()
    return model.eval(), tokenizer


def scripted(interaction: EnvironmentInteraction, chat: Chat, seed: int) -> Episode:
    """The oracle's play of a training task."""
    player = interaction.scripted_player(1.0)
    assert player is not None
    return play(interaction, chat, player, RolloutRequest(task={"seed": seed}, seed=seed))


def _scripted(interaction: EnvironmentInteraction, chat: Chat, seed: int) -> Demonstration:
    episode = scripted(interaction, chat, seed)
    decisions = list(episode.decisions)
    if interaction.history == "append":
        last = decisions[-1]
        after = interaction.advance(last.state, [last.action_text])
        messages = [{"role": role, "content": content} for role, content in after.transcript]
        conversation = Conversation(messages=tuple(messages[:-1]), ids=last.context_ids + last.action_ids)
        decisions.append(
            Decision(
                role=last.role,
                state=after,
                context_ids=chat.context(messages, conversation),
                action_ids=(chat.tokenizer.eos_token_id,),
                logprobs=None,
                action_text="",
            )
        )
    return Demonstration(task=str(seed), episode=replace(episode, decisions=tuple(decisions)))


def enlarged(model: Qwen3ForCausalLM, hidden_size: int, layers: int) -> Qwen3ForCausalLM:
    """A larger model that computes the same function, so that policies of any size play the same episodes.

    Embeddings are widened with zeros; what new heads, new neurons and new layers compute is written with weight zero,
    so it costs its time and changes nothing. The norms' weights make up for the mean over more entries.

    Args:
        model: whose function to keep.
        hidden_size: a multiple of its width.
        layers: at least as many as it has.
    """
    old, times = model.config, hidden_size // model.config.hidden_size
    changed = {
        "hidden_size": hidden_size,
        "intermediate_size": old.intermediate_size * times,
        "num_hidden_layers": layers,
        "num_attention_heads": old.num_attention_heads * times,
        "num_key_value_heads": old.num_key_value_heads * times,
        "layer_types": ["full_attention"] * layers,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        large = Qwen3ForCausalLM(Qwen3Config(**{**old.to_dict(), **changed}))
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in large.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight", "embed_tokens.weight")):
                parameter.zero_()
            if name in own:
                kept = own[name]
                narrow = parameter.shape[-1] != kept.shape[-1] and kept.ndim == 1
                corner = tuple(slice(0, size) for size in kept.shape)
                parameter[corner] = kept * times**-0.5 if narrow else kept
    return large.eval()


def settings(rows_at_once: int, **changed: Any) -> dict[str, Any]:
    """The settings that both trainers share: plain sampling, single precision, a processor, nothing saved."""
    return {
        "output_dir": SCRATCH.name,
        "per_device_train_batch_size": rows_at_once,
        "max_steps": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "learning_rate": 1e-9,  # the policy stays what it is, at the cost of a real step
        "bf16": False,
        "gradient_checkpointing": False,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        **changed,
    }


def game_rows(environment: Environment[Any], games: int, plays: int) -> list[dict[str, Any]]:
    """The first training tasks, each `plays` times in a row."""
    return [dict(row) for row in tasks(environment, "train", size=games) for _ in range(plays)]


def trl_trainer(
    environment: Environment[Any],
    policy: tuple[Any, PreTrainedTokenizerFast],
    rows: Sequence[dict[str, Any]],
    plays: int,
    **changed: Any,
) -> GRPOTrainer:
    """TRL's GRPO over its own `environment_factory` loop.

    Rows are tasks, `plays` of each. `generation_kwargs` bounds every reply; left to itself TRL would bound the whole
    episode only, and a single reply could take all of it. An episode makes at most as many calls as the game has
    turns.
    """

    class World:
        """The game as a tool; TRL calls the public methods other than `reset` and `get_reward`."""

        def reset(self, **row: Any) -> str:
            self._state = environment.initial_state(row, row["seed"])
            return environment.observe(self._state)

        def play(self, action: str) -> str:
            """Plays an action.

            Args:
                action: The action.

            Returns:
                What is seen after it.
            """
            transition = environment.step(self._state, action)
            self._state = transition.state
            return transition.observation

        def get_reward(self) -> float:
            return environment.outcome(self._state)

    model, tokenizer = copy.deepcopy(policy)
    tokenizer.chat_template = _chat_template(tokenizer.eos_token)
    tokenizer.response_template = _response_template(tokenizer.eos_token)
    args = GRPOConfig(
        **{
            **settings(len(rows)),
            "num_generations": plays,
            "max_completion_length": model.config.max_position_embeddings // 2,
            "generation_kwargs": {"max_new_tokens": MAX_REPLY},
            "max_tool_calling_iterations": environment.max_turns,
            **changed,
        }
    )
    return GRPOTrainer(
        model,
        args=args,
        train_dataset=Dataset.from_list([trl_row(row) for row in rows]),
        processing_class=tokenizer,
        environment_factory=World,
    )


def trl_row(row: dict[str, Any]) -> dict[str, Any]:
    """A task as TRL wants it: the observation of `reset` is appended to the prompt."""
    return {**row, "prompt": [{"role": "user", "content": ""}]}


def credit_trainer(
    environment: Environment[Any],
    policy: tuple[Any, PreTrainedTokenizerFast],
    rows: Sequence[dict[str, Any]],
    **changed: Any,
) -> VerifiableProcessTrainer:
    """This library's trainer of the same game."""
    model, tokenizer = copy.deepcopy(policy)
    args = VerifiableProcessConfig(
        **{
            **settings(len(rows)),
            "max_completion_length": MAX_REPLY,
            "instructions": False,
            "instances_per_update": len(rows),
            **changed,
        }
    )
    dataset = Dataset.from_list(list(rows))
    trainer = VerifiableProcessTrainer(model, environment, args, train_dataset=dataset, processing_class=tokenizer)
    trainer.to_read = lambda rows: rows  # type: ignore[method-assign]  # all, also of an update without a signal
    return trainer
