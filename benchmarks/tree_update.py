"""Tree update: an update whose rows begin alike, read as packed trees, compared with a pass for each row.

A side is forward and backward of the clipped surrogate over all rows of an update. The asynchronous trainer reads all
of them in one pass, with attention by segments on torch's own kernels; the synchronous one reads `rows` of them a
pass, with a mask. Both read a token that the rows of a pass share once (`hf_credit.trainers.packing`). Separate, each
row has a pass of its own, without padding. All give the same gradient: the table shows the largest difference of an
entry, in relation to the largest entry of the same tensor.

Rows of random tokens: alternatives after one prompt, which share 80, 60 or 35 % of all tokens, and four of 64 tokens
after a long one; trees of two and four levels, at each of which two ways part; and the eight decisions of an episode
whose history grows by appending, which are one row in the asynchronous trainer, and a row each elsewhere. Rows of 9x9
Sudoku with instructions, as the oracle plays it: the turns of two games with the current board alone; and C3's layout,
four answers to each of the first eight contexts of an appended history.

Planning is what an update costs besides its passes: from rows to arrays, cut into 16 passes, packed, for 64 episodes
of 8 decisions and 4,096 tokens, with a row for each episode or for each decision.

Seconds are those of the process on a processor, with one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from statistics import median
from typing import Any

import torch
from common import arguments, cpu_seconds, report_of_one_thread, take_turns
from players import scripted
from transformers import AttentionInterface, Qwen3Config, Qwen3ForCausalLM
from transformers.masking_utils import AttentionMaskInterface
from trl.trainer.utils import add_fused_lm_head

from hf_credit import make
from hf_credit.policies.micro import build_tokenizer
from hf_credit.rollouts import Chat, EnvironmentInteraction, Row
from hf_credit.rollouts.batches import micro_batches, pad_rows
from hf_credit.trainers import scores
from hf_credit.trainers.asynchronous.attention import segment_attention
from hf_credit.trainers.asynchronous.packing import Sample, pack, plan

TEXT = (
    "Forward and backward of the loss over rows of {tokens} tokens or of Sudoku, single precision; medians over "
    "interleaved repeats, CPU seconds of one thread; {rows} rows a pass in the synchronous trainer. The aims are 3.9 "
    "times as fast at 80 % of tokens shared, 2.0 at 60, 1.2 at 35, 3.3 for eight appended decisions, 1.25 for four "
    "answers to a long prompt, and planning below 0.1 s."
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


def sudoku(history: str, games: int, turns: int, answers: int, draws: Random) -> list[Row]:
    """Rows of the first turns of games of 9x9 Sudoku with instructions, or of several random answers to each."""
    environment = make("sudoku", size=9)
    interaction, chat = EnvironmentInteraction(environment, history), Chat(build_tokenizer(environment))
    found = []
    for seed in range(games):
        for decision in scripted(interaction, chat, seed).decisions[:turns]:
            own = decision.action_ids
            replies = [own] if answers == 1 else [drawn(draws, len(own)) for _ in range(answers)]
            found += [row(decision.context_ids, reply, draws) for reply in replies]
    return found


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
    model.config._attn_implementation = ATTENTION
    packed = pack(samples)
    read = {name: packed[name][None] for name in ("input_ids", "position_ids", "shift_labels")}
    tree = {name: packed[name] for name in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")}
    logprobs = model(**read, **tree, fused_lm_head=True).log_probs.flatten()[packed["token_index"]]
    return surrogate(logprobs, packed["old_log_probs"], packed["advantages"])


def surrogate(logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    ratio = (logprobs - old).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).sum()


def loss_of_part(model: Any, part: dict[str, torch.Tensor], seen: list[int]) -> torch.Tensor:
    """The same of a pass of the synchronous trainer, whose columns are added to those seen."""
    model.config._attn_implementation = "sdpa"
    ids, mask = (torch.cat([part[f"prompt_{name}"], part[f"completion_{name}"]], dim=1) for name in ("ids", "mask"))
    handle = model.model.register_forward_pre_hook(
        lambda module, args, given: seen.append(given["input_ids"].numel()), with_kwargs=True
    )
    kept = part["tool_mask"].bool()
    sequences = scores.pack(ids, mask, kept, model) or scores.separate(ids, mask, kept, model)
    logprobs = scores.log_probs(model, model, sequences, kept).logprobs
    handle.remove()
    return surrogate(logprobs[kept], part["sampling_per_token_logps"][kept], part["advantages"][kept])


def side(model: Any, losses: Sequence[Callable[[], torch.Tensor]]) -> Callable[[], float]:
    """An update in these passes, which leaves its gradient and returns its seconds."""

    def run() -> float:
        model.zero_grad()
        begun = cpu_seconds()
        for one in losses:
            one().backward()
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
    whole, decisions = episode(draws, tokens, 8)
    prompt = drawn(draws, options.prefix)
    cases = {
        **{f"8 alternatives, {share:.0%} shared": alternatives(draws, tokens, share) for share in (0.8, 0.6, 0.35)},
        f"4 answers of 64 to {options.prefix}": [row(prompt, drawn(draws, 64), draws) for _ in range(4)],
        "two levels": levels(draws, tokens, 2),
        "four levels": levels(draws, tokens, 4),
        "8 appended decisions": decisions,
        "Sudoku 9x9, current board": sudoku("current", 2, options.turns, 1, draws),
        "Sudoku 9x9, C3's layout": sudoku("append", 1, min(8, options.turns), 4, draws),
    }
    table = []
    for name, rows in cases.items():
        samples = [one for one in map(Sample.of, whole if rows is decisions else rows) if one is not None]
        packed = plan(samples, 1, 10**9)
        parts = micro_batches(pad_rows(rows, 0), options.rows, together=True)
        seen: list[int] = []
        sides = {
            "separate": side(model, [partial(loss, model, [Sample.of(one)]) for one in rows]),
            "asynchronous": side(model, [partial(loss, model, own) for own in packed.rows]),
            "synchronous": side(model, [partial(loss_of_part, model, part, seen) for part in parts]),
        }
        gradients = {}
        for own, run in sides.items():
            run()
            gradients[own] = [parameter.grad.clone() for parameter in model.parameters()]
        columns = sum(seen)
        apart = max(
            ((one - other).abs().max() / other.abs().max()).item()
            for own in ("asynchronous", "synchronous")
            for one, other in zip(gradients[own], gradients["separate"], strict=True)
        )
        seconds = take_turns(sides, options.repeats)
        read = sum(len(one.prompt_ids) + len(one.completion_ids) - 1 for one in rows)
        counts = {"asynchronous": packed.read, "synchronous": columns}
        table.append(
            {
                "update": name,
                "tokens apart": read,
                **{f"{own}: tokens": count for own, count in counts.items()},
                **{f"{own}: fewer": read / count for own, count in counts.items()},
                **{f"{own}, s": median(taken) for own, taken in seconds.items()},
                **{
                    f"{own}: times as fast": median(
                        other / taken for taken, other in zip(seconds[own], seconds["separate"], strict=True)
                    )
                    for own in counts
                },
                "gradient's difference": f"{apart:.1e}",
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
                "asynchronous: tokens": update.read,
                "asynchronous: fewer": update.apart / update.read,
                "planning, s": median(taken for taken, _ in times),
            }
        )
    return table


def main(arguments_given: list[str] | None = None) -> None:
    sizes = {"tokens": 1024, "prefix": 2048, "turns": 40, "rows": 8, "planned": 4096}
    parser = arguments(__doc__, **sizes, hidden_size=256, layers=4, repeats=5)
    report_of_one_thread(parser, arguments_given, "tree_update", compare, TEXT)


if __name__ == "__main__":
    main()
