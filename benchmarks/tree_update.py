"""Tree update: an update whose rows begin alike, read as packed trees, beside a pass for each row.

A side is forward and backward of the clipped surrogate over all rows of an update. Packed, one pass reads each token
that rows share once (`hf_credit.trainers.asynchronous.packing`, attention by segments on torch's own kernels).
Separate, each row has a pass of its own, without padding. Both give the same gradient: the table shows the largest
difference of an entry, in relation to the largest entry of the same tensor.

Rows of random tokens: alternatives behind one prompt, which share 80, 60 or 35 % of all tokens; trees of two and four
levels, at each of which two ways part; and the eight decisions of an episode whose history grows by appending,
which are one row packed, and a row each apart.

Planning is what an update costs beside its passes: from rows to arrays, cut into 16 passes, packed, for 64 episodes of
8 decisions and 4,096 tokens, with a row for each episode or for each decision.

Seconds are those of the process on a processor, with one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from random import Random
from statistics import median
from typing import Any

import torch
from common import arguments, cpu_seconds, report_of_one_thread, take_turns
from transformers import AttentionInterface, Qwen3Config, Qwen3ForCausalLM
from transformers.masking_utils import AttentionMaskInterface
from trl.trainer.utils import add_fused_lm_head

from hf_credit.rollouts import Row
from hf_credit.trainers.asynchronous.attention import segment_attention
from hf_credit.trainers.asynchronous.packing import Sample, pack, plan

TEXT = (
    "Forward and backward of the loss over rows of {tokens} tokens, single precision; medians over interleaved "
    "repeats, CPU seconds of one thread. The aims are 3.9 times as fast at 80 % of tokens shared, 2.0 at 60, 1.2 at "
    "35, 3.3 for eight appended decisions, and planning below 0.1 s."
)
ALTERNATIVES = 8
VOCABULARY = 1000
ATTENTION = "segments_in_benchmarks"


def row(prompt: Sequence[int], completion: Sequence[int], draws: Random) -> Row:
    return Row(
        prompt_ids=tuple(prompt),
        completion_ids=tuple(completion),
        loss_mask=(1,) * len(completion),
        advantages=(draws.uniform(-1, 1),) * len(completion),
        logprobs=(-6.9,) * len(completion),
    )


def drawn(draws: Random, count: int) -> list[int]:
    return draws.choices(range(VOCABULARY), k=count)


def alternatives(draws: Random, tokens: int, share: float) -> list[Row]:
    """Rows with one prompt, whose tokens are `share` fewer packed."""
    prompt = drawn(draws, round(tokens * share * ALTERNATIVES / (ALTERNATIVES - 1)))
    return [row(prompt, drawn(draws, tokens - len(prompt)), draws) for _ in range(ALTERNATIVES)]


def levels(draws: Random, tokens: int, depth: int) -> list[Row]:
    """A row for each way through a tree that parts in two at each of `depth` levels."""
    ways = [drawn(draws, tokens // (depth + 1))]
    for _ in range(depth):
        ways = [way + drawn(draws, tokens // (depth + 1)) for way in ways for _ in range(2)]
    prompt = tokens // (depth + 1)
    return [row(way[:prompt], way[prompt:], draws) for way in ways]


def episode(draws: Random, tokens: int, decisions: int) -> tuple[list[Row], list[Row]]:
    """An episode whose history grows by appending: its one row, and a row for each decision."""
    each = tokens // decisions
    ids, mask = drawn(draws, tokens), ([0] * (each // 2) + [1] * (each - each // 2)) * decisions
    whole = Row(
        prompt_ids=tuple(ids[: each // 2]),
        completion_ids=tuple(ids[each // 2 : each * decisions]),
        loss_mask=tuple(mask[each // 2 :]),
        advantages=tuple(0.5 * one for one in mask[each // 2 :]),
        logprobs=tuple(-6.9 * one for one in mask[each // 2 :]),
    )
    apart = []
    for last in range(1, decisions + 1):
        cut = each * last - (each - each // 2)
        action = ids[cut : each * last]
        apart.append(row(ids[:cut], action, draws))
    apart = [Row(**{**vars(one), "advantages": (0.5,) * len(one.completion_ids)}) for one in apart]
    return [whole], apart


def policy(hidden_size: int, layers: int) -> Any:
    AttentionInterface.register(ATTENTION, segment_attention)
    AttentionMaskInterface.register(ATTENTION, lambda **kwargs: None)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=max(hidden_size // 64, 1),
        num_key_value_heads=max(hidden_size // 64, 1),
        head_dim=64,
        attn_implementation=ATTENTION,
    )
    model = Qwen3ForCausalLM(config)
    add_fused_lm_head(model)
    return model


def loss(model: Any, samples: Sequence[Sample]) -> torch.Tensor:
    """The clipped surrogate of one pass, added up over its tokens."""
    packed = pack(samples)
    read = {name: packed[name][None] for name in ("input_ids", "position_ids", "shift_labels")}
    tree = {name: packed[name] for name in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")}
    logprobs = model(**read, **tree, fused_lm_head=True).log_probs.flatten()[packed["token_index"]]
    ratio = (logprobs - packed["old_log_probs"]).exp()
    gain, clipped = ratio * packed["advantages"], ratio.clamp(0.8, 1.2) * packed["advantages"]
    return -torch.minimum(gain, clipped).sum()


def side(model: Any, passes: Sequence[Sequence[Sample]]) -> Callable[[], float]:
    """An update in these passes, which leaves its gradient and returns its seconds."""

    def run() -> float:
        model.zero_grad()
        begun = cpu_seconds()
        for samples in passes:
            loss(model, samples).backward()
        return cpu_seconds() - begun

    return run


def planning(rows: Sequence[Row]) -> tuple[float, Any]:
    begun = cpu_seconds()
    samples = [one for one in map(Sample.of, rows) if one is not None]
    update = plan(samples, passes=16, budget=10**6, per_token=6 * 1536)
    for own in update.rows:
        pack(own)
    return cpu_seconds() - begun, update


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    draws, tokens = Random(0), options.tokens
    model = policy(options.hidden_size, options.layers)
    whole, apart = episode(draws, tokens, 8)
    cases = {
        **{f"8 alternatives, {share:.0%} shared": alternatives(draws, tokens, share) for share in (0.8, 0.6, 0.35)},
        "two levels": levels(draws, tokens, 2),
        "four levels": levels(draws, tokens, 4),
        "8 appended decisions": whole,
    }
    table = []
    for name, rows in cases.items():
        packed = plan([one for one in map(Sample.of, rows) if one is not None], 1, 10**9)
        separate = [[Sample.of(one)] for one in (apart if rows is whole else rows)]
        sides: dict[str, Any] = {"separate": separate, "packed": packed.rows}
        gradients = {}
        for own, passes in sides.items():
            side(model, passes)()
            gradients[own] = [parameter.grad.clone() for parameter in model.parameters()]
        pairs = zip(gradients["separate"], gradients["packed"], strict=True)
        seconds = take_turns({own: side(model, passes) for own, passes in sides.items()}, options.repeats)
        read = sum(one.read for own in separate for one in own if one is not None)
        table.append(
            {
                "update": name,
                "tokens apart": read,
                "tokens packed": packed.read,
                "fewer": read / packed.read,
                "separate, s": median(seconds["separate"]),
                "packed, s": median(seconds["packed"]),
                "times as fast": median(
                    other / own for own, other in zip(seconds["packed"], seconds["separate"], strict=True)
                ),
                "gradient's difference": f"{max(((a - b).abs().max() / a.abs().max()).item() for a, b in pairs):.1e}",
                "planning, s": None,
            }
        )
    episodes = [episode(draws, options.planned, 8) for _ in range(64)]
    for name, place in (("64 x 8 decisions, a row an episode", 0), ("64 x 8 decisions, a row a decision", 1)):
        rows = [one for own in episodes for one in own[place]]
        times = [planning(rows) for _ in range(options.repeats)]
        update = times[0][1]
        table.append(
            dict.fromkeys(table[0])
            | {
                "update": name,
                "tokens apart": update.apart,
                "tokens packed": update.read,
                "fewer": update.apart / update.read,
                "planning, s": median(taken for taken, _ in times),
            }
        )
    return table


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(__doc__, tokens=1024, planned=4096, hidden_size=256, layers=4, repeats=5)
    report_of_one_thread(parser, arguments_given, "tree_update", compare, TEXT)


if __name__ == "__main__":
    main()
