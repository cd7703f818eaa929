"""Memory and time of a training step, side by side with TRL's GRPO on the same tokens.

Both trainers get the same rows, the same model, the same batches and nothing to generate: TRL's through its
`rollout_func`, ours by recorded episodes. A row is an episode of several turns, with action tokens in the loss and
observations between them. TRL's advantage is one number a row, ours one a token.

Each measurement has a process of its own, which notes its memory before `train`, runs as many steps as asked for and
notes the highest memory it ever had (the kernel's resident set, so Linux only). The difference is the peak of a step:
gradients, optimizer states, activations and all that the trainers keep. Seconds are those of one thread on a
processor, of all steps but the first.

A pretrained model (`--model`) shows what its vocabulary costs, and `--before` measures another commit, too. With
`--pixels` each episode begins with an image of its own, of that side, and the model is a micro policy that sees.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import PIL.Image
from common import (
    arguments,
    in_a_process,
    measured_alone,
    memory,
    policy_passes,
    report,
    take_turns,
    timed_updates,
)
from datasets import Dataset
from parity import commit
from players import settings
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from hf_credit import VerifiableProcessConfig, VerifiableProcessTrainer, make
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.content import content_of
from hf_credit.policies.micro import RANDOM_EPISODES, MicroConfig, build_model, tokenizer_of
from hf_credit.rollouts import Chat, Context, Decision, Ending, Episode, Verdict
from hf_credit.rollouts.scripts import random_texts

TEXT = (
    "The highest resident memory of training steps above that of the process before, and the CPU seconds of a step; "
    "medians over processes in turns. The aim is TRL's peak."
)
TRAINERS = ("TRL GRPO", "hf-credit")
ACTION, OBSERVATION = 12, 48
"""Tokens of each, about those of the games."""


def image_of(number: int, side: int) -> Any:
    """An image of random pixels."""
    return PIL.Image.frombytes("RGB", (side, side), Random(number).randbytes(3 * side * side))


def recorded_episodes(count: int, turns: int, vocabulary: int, shown: Sequence[Context] = ()) -> list[Episode]:
    """Episodes of random tokens, each of half to all of the turns, whose contexts grow by appending.

    Args:
        shown: what the context of each episode begins with.
    """
    draws = Random(0)

    def tokens(number: int) -> tuple[int, ...]:
        return tuple(draws.randrange(7, vocabulary) for _ in range(number))

    episodes = []
    for begun in shown or [()] * count:
        context, decisions = begun + tokens(OBSERVATION), []
        for _ in range(draws.randint(-(-turns // 2), turns)):
            action = tokens(ACTION)
            valid = draws.random() < 0.5
            decisions.append(
                Decision(
                    role="agent",
                    state=None,
                    context_ids=context,
                    action_ids=action,
                    logprobs=None,
                    action_text="",
                    verdict=Verdict(score=float(valid)),
                )
            )
            context = context + action + tokens(OBSERVATION)
        episodes.append(Episode(decisions=tuple(decisions), outcome=draws.random(), ending=Ending.FINISHED))
    return episodes


def own_trainer(episodes: list[Episode], model: Any, tokenizer: Any, common: dict[str, Any]) -> Any:
    """This library's trainer, which collects the recorded episodes."""

    class Recorded(VerifiableProcessTrainer):
        def collect(self, rows: list[dict[str, Any]]) -> RolloutBatch:
            rollouts = (Rollout(episode=episode, instance=place) for place, episode in enumerate(episodes))
            return RolloutBatch(rollouts=tuple(rollouts), rows=len(episodes))

    args = VerifiableProcessConfig(**common, instances_per_update=len(episodes))
    return Recorded(model, make("sudoku", size=4), args, processing_class=tokenizer)


def trl_trainer(episodes: list[Episode], model: Any, tokenizer: Any, common: dict[str, Any], pixels: int = 0) -> Any:
    """TRL's GRPO, whose rollouts are the same tokens and images."""
    prompts, completions, masks = [], [], []
    for episode in episodes:
        start = len(episode.decisions[0].context_ids)
        last = episode.decisions[-1]
        mask = [0] * (len(last.context_ids) + len(last.action_ids))
        for decision in episode.decisions:
            place = len(decision.context_ids)
            mask[place : place + len(decision.action_ids)] = [1] * len(decision.action_ids)
        prompts.append(list(episode.decisions[0].context_ids))
        completions.append(list(last.context_ids + last.action_ids)[start:])
        masks.append(mask[start:])

    def rollout(given: Any, trainer: Any) -> dict[str, Any]:
        return {"prompt_ids": prompts, "completion_ids": completions, "logprobs": None, "env_mask": masks}

    def reward(completions: Any, **kwargs: Any) -> list[float]:
        return [episode.outcome for episode in episodes]

    batches = len(episodes) // common["per_device_train_batch_size"]
    args = GRPOConfig(**common, num_generations=2, gradient_accumulation_steps=batches)
    prompt: Any = [{"role": "user", "content": "?"}] if pixels else "?"
    rows: dict[str, list[Any]] = {"prompt": [prompt] * len(episodes)}
    if pixels:
        rows["images"] = [[image_of(place, pixels)] for place in range(len(episodes))]
    return GRPOTrainer(
        model,
        reward,
        args,
        train_dataset=Dataset.from_dict(rows),
        processing_class=tokenizer,
        rollout_func=rollout,
    )


def measure(trainer_name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The peak of one trainer in this process, in bytes above what it had before, its seconds, and the tokens read."""
    size = MicroConfig(hidden_size=options.hidden_size, layers=options.layers, heads=4)
    texts = random_texts(make("sudoku", size=4), RANDOM_EPISODES)
    tokenizer: Any
    model: Any
    if options.pixels:
        from hf_credit.policies.micro_vision import build_vision_model, processor_of

        tokenizer = processor_of(tokenizer_of(texts, images=True), options.pixels)
        model = build_vision_model(tokenizer, size)
    elif options.model is None:
        tokenizer = tokenizer_of(texts)
        model = build_model(tokenizer, size)
    else:
        tokenizer = AutoTokenizer.from_pretrained(options.model)
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype="float32")
    shown: list[Context] = []
    if options.pixels:
        chat, images = Chat(tokenizer), (image_of(place, options.pixels) for place in range(options.episodes))
        shown = [chat.context([{"role": "user", "content": content_of(image)}]) for image in images]
    words = getattr(tokenizer, "tokenizer", tokenizer)
    episodes = recorded_episodes(options.episodes, options.turns, len(words), shown)
    common = settings(options.rows_at_once, max_steps=options.steps, max_completion_length=16)
    if trainer_name == "hf-credit":
        trainer = own_trainer(episodes, model, tokenizer, common)
    else:
        trainer = trl_trainer(episodes, model, tokenizer, common, options.pixels)
    read = []

    def watch(module: Any, args: Any, inputs: dict[str, Any]) -> None:
        if "fused_lm_head" in inputs:  # a pass that trains
            read.append(inputs["input_ids"].numel())

    model.register_forward_pre_hook(watch, with_kwargs=True)
    before = memory("VmRSS")
    updates = timed_updates(trainer, policy_passes(trainer))
    return {
        "seconds": {label: median(update[label] for update in updates) for label in ("forward", "backward")},
        "step": median(sum(update.values()) for update in updates),
        "peak": memory("VmHWM") - before,
        "tokens": sum(len(last.context_ids + last.action_ids) for *_, last in (one.decisions for one in episodes)),
        "read": sum(read) // options.steps,
        "parameters": model.num_parameters(),
    }


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    cases: dict[str, Any] = {name: lambda name=name: in_a_process(__file__, name, options) for name in TRAINERS}
    if options.before is not None:
        name = f"{TRAINERS[1]} at {commit(options.before)}"
        cases[name] = lambda: in_a_process(__file__, TRAINERS[1], options, options.before)
    results = take_turns(cases, options.repeats)
    reference, step_of_reference = (median(one[key] for one in results[TRAINERS[0]]) for key in ("peak", "step"))
    table = []
    for name, measured in results.items():
        peak, step = (median(one[key] for one in measured) for key in ("peak", "step"))
        table.append(
            {
                "trainer": name,
                "parameters": f"{measured[0]['parameters'] / 1e6:.1f}M",
                "rows": options.episodes,
                "rows at once": options.rows_at_once,
                "tokens a step": measured[0]["tokens"],
                "read with padding": measured[0]["read"],
                "peak, MB": peak / 1e6,
                "spread, MB": (max(one["peak"] for one in measured) - min(one["peak"] for one in measured)) / 1e6,
                "to TRL's": peak / reference,
                "forward, s": median(one["seconds"]["forward"] for one in measured),
                "backward, s": median(one["seconds"]["backward"] for one in measured),
                "step, s": step,
                "step to TRL's": step / step_of_reference,
            }
        )
    return table


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(
        __doc__, episodes=16, turns=8, rows_at_once=8, hidden_size=256, layers=4, steps=2, pixels=0, repeats=5
    )
    parser.add_argument("--model", help="a pretrained model in place of one with the sizes given")
    parser.add_argument("--before", type=Path, help="a checkout of another commit, measured as well")
    parser.add_argument("--only", choices=TRAINERS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments_given)
    if measured_alone(options, measure):
        return
    report(options, "memory", TEXT, compare(options))


if __name__ == "__main__":
    main()
