"""A warm-up of an adapter on two demonstrations, saved at its end. Run by tests, in several processes."""

from __future__ import annotations

import sys
from pathlib import Path

from small_runs import ON_A_PROCESSOR, let_shard
from trl import ModelConfig, SFTConfig

from hf_credit.loading import load_processing_class
from hf_credit.policies.scripted import Demonstration
from hf_credit.rollouts import Chat, Decision, Ending, Episode
from hf_credit.trainers.warm_up import save, trainer_of


def shown(*reply: int) -> Demonstration:
    decision = Decision(
        role="agent", state=None, context_ids=(5, 6), action_ids=reply, logprobs=None, action_text="", step=0
    )
    return Demonstration(task="", episode=Episode(decisions=(decision,), outcome=1.0, ending=Ending.FINISHED))


if __name__ == "__main__":
    policy, output = map(Path, sys.argv[1:])
    args = SFTConfig(str(output), **ON_A_PROCESSOR, max_steps=1, max_length=None, per_device_train_batch_size=1)
    config = ModelConfig(
        str(policy), use_peft=True, lora_r=4, lora_target_modules=["q_proj", "v_proj"], dtype="float32"
    )
    let_shard()
    chat = Chat(load_processing_class(str(policy)))
    trainer = trainer_of(config, args, chat, [shown(7, 8), shown(8, 7)], [], {})
    trainer.train()
    save(trainer, None)
