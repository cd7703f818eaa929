"""The projection into a trust region: a batch of tokens, compared with one log-softmax of the same logits.

Logits are normal numbers, the new ones the old ones and a step. `all` is a step after which every token lies outside
its region, the worst case; `one in twenty` moves one token in twenty so far. Forward and backward passes are of the
projection alone, given the log-probabilities of the top; what it is compared with is the forward pass of a log-softmax
over the top tokens, and over the whole vocabulary, which the head's logits need anyway.

Seconds are processor seconds of one thread, medians over turns; with `--device cuda`, of the clock.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import torch
from common import arguments, cpu_seconds, report_of_one_thread, take_turns

from hf_credit.credit import projected_logprobs, top_tokens

RADIUS = 0.025
SPREAD, STEP = 3.0, 0.6
SHARES = {"all": 1, "one in twenty": 20}
TEXT = (
    "A batch of {tokens:,} tokens, the {top:,} most probable of {vocabulary:,} each, "
    f"radius {RADIUS}. The last columns are ratios within a turn, medians; aim: under 10 times a log-softmax."
)


def main() -> None:
    parser = arguments(__doc__ or "", tokens=4096, top=1024, vocabulary=32768, repeats=5)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    report_of_one_thread(parser, None, "trust_region", compare, TEXT)


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One line for each share of tokens that lie outside."""
    draws = torch.Generator().manual_seed(0)
    logits = (SPREAD * torch.randn(options.tokens, options.vocabulary, generator=draws)).to(options.device)
    ids, old, _ = top_tokens(logits.log_softmax(-1), options.top)
    top = logits.gather(1, ids)

    def timed(work: Any) -> float:
        begun = now(options.device)
        work()
        return now(options.device) - begun

    rows = []
    for name, every in SHARES.items():
        step = STEP * torch.randn(top.shape, generator=draws).to(options.device)
        step[torch.arange(options.tokens) % every != 0] = 0
        present = (top + step).log_softmax(-1).requires_grad_()
        moved = (projected_logprobs(present.detach(), old, RADIUS) != present).any(1).float().mean().item()

        def forward(present: Any = present) -> float:
            with torch.no_grad():
                return timed(lambda: projected_logprobs(present, old, RADIUS))

        def both(present: Any = present) -> float:
            return timed(lambda: projected_logprobs(present, old, RADIUS).sum().backward())

        cases = {
            "forward": forward,
            "both": both,
            "top": lambda: timed(lambda: top.log_softmax(-1)),
            "vocabulary": lambda: timed(lambda: logits.log_softmax(-1)),
        }
        take_turns(cases, 1)  # what is done once
        told = take_turns(cases, options.repeats)
        rows.append(
            {
                "tokens outside": f"{name} ({moved:.0%})",
                "projection, s": median(told["forward"]),
                "with gradients, s": median(told["both"]),
                "log-softmax of the top, s": median(told["top"]),
                "of the vocabulary, s": median(told["vocabulary"]),
                "times that of the top": _ratio(told["forward"], told["top"]),
                "times that of the vocabulary": _ratio(told["forward"], told["vocabulary"]),
            }
        )
    return rows


def now(device: str) -> float:
    """Seconds of a processor; of the clock where a GPU works, once it has done what it was told."""
    if device == "cpu":
        return cpu_seconds()
    torch.cuda.synchronize()
    return time.perf_counter()


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return median(one / other for one, other in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    main()
