"""Small teams and policies that several tests play with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit import make
from hf_credit.collaborations import Collaboration, Event
from hf_credit.collaborations.relay import relay
from hf_credit.policies.generation import sampler
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer
from hf_credit.rollouts import Chat, Engine, RolloutRequest
from hf_credit.trainers.micro import init_scripted_policy


def plan_and_act(scorer: Callable[[Any, str], float]) -> Collaboration:
    """Two agents, who speak one after the other; the second one's text is scored."""
    return Collaboration(
        roles={"plan": "plan", "act": "act"},
        events=[Event("plan", role="plan"), Event("act", role="act", after="plan")],
        final="act",
        scorer=scorer,
    )


def relay_engine(folder: Path, size: int, quality: float, episodes: int, epochs: int = 2) -> tuple[Any, Engine[Any]]:
    """A half-trained policy of the relay of so many numbers, and an engine that plays with it."""
    starts = [
        RolloutRequest[Any](task=row, seed=seed) for seed, row in enumerate(relay(size).tasks("train", episodes))
    ]
    config = MicroConfig(
        hidden_size=16, layers=1, heads=2, quality=quality, episodes=episodes, epochs=epochs, learning_rate=1e-2
    )
    init_scripted_policy(relay(size), relay(size).scripted_player(quality), starts, folder, config)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    return model, Engine(relay(size), Chat(tokenizer), sampler(model, tokenizer, max_new_tokens=2))


def sudoku_policy() -> tuple[Any, Any]:
    """Random weights for 4x4 Sudoku, in double precision so that no two tokens are alike, and a tokenizer."""
    tokenizer = build_tokenizer(make("sudoku", size=4, blanks=4), episodes=2)
    return build_model(tokenizer, MicroConfig(hidden_size=32, layers=2, heads=2)).double(), tokenizer
