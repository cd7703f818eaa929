"""Does the ratio that `hf-credit diagnose --protocol replays` tells hold for networks?

    python evaluation/bench/replays_micro.py sudoku
    python evaluation/bench/replays_micro.py tic_tac_toe
    python evaluation/bench/replays_micro.py sudoku_three
    python evaluation/bench/replays_micro.py tic_tac_toe_shrunk

each write their lines to `replays_micro.json`, and `replays_micro.md` from all that it holds. Written down before the
run:

- Policies: micro policies, 64 wide with 2 layers, warmed up on scripted play. Eight grids of Sudoku, whose world holds
  no chance; Tic-Tac-Toe against a random opponent, with a world of its own in each episode.
- V, for the prediction and for the credit: the mean outcome at a context over 4,000 episodes that are used for
  nothing else, or of all of these where a context is new.
- Prediction: `capped` of `replay_gain`, at most four branches alive of one start, from 1,000 other episodes. It knows
  log-probabilities, not the network.
- Measured: tokens x tr Cov of the gradient of one start in all weights of the network, with the branches that the
  prediction proposes, divided by the same without branches; 2,000 starts each. Both have the same expected gradient.
- Claim: measured and predicted ratio differ by less than 15 %; where the prediction is below .9, the measured ratio is
  below 1. Two-sided 95 % intervals by a bootstrap over starts. Were the squared length of a start's gradient to vary
  three times as much as its mean, the standard error of the logarithm of the ratio would be .095: a miss by a quarter
  would be seen with a power of .65, one by half with .99.
- Added after `sudoku` had run, whose policy solved one grid in a hundred, so that its interval was too wide to tell
  anything: `sudoku_three`, the same with three blanks in place of five and four epochs of warm-up in place of one.
- Added after `tic_tac_toe` had run, whose V explained nothing, as most boards had been seen once or twice:
  `tic_tac_toe_shrunk`, the same with V = (sum of outcomes + 10 mean outcome) / (visits + 10).
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit import make, methods
from hf_credit.collectors import RolloutBatch
from hf_credit.diagnostics.replay_walks import episodes_gain
from hf_credit.evaluation.markdown import table
from hf_credit.methods.base import weighted
from hf_credit.oracles import make as make_oracle
from hf_credit.policies.generation import reply_logprobs, sampler
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import Chat, Decision, Engine, EnvironmentInteraction, RolloutRequest
from hf_credit.rollouts.method_context import CriticInput, LocalContext
from hf_credit.rollouts.scripts import OraclePlayer
from hf_credit.trainers.micro import init_scripted_policy

TASKS: dict[str, Callable[[], tuple[EnvironmentInteraction, str]]] = {
    "sudoku": lambda: (
        EnvironmentInteraction(make("sudoku", size=4, blanks=5), "current", instructions=False, max_turns=5),
        "sudoku_constraints",
    ),
    "sudoku_three": lambda: (
        EnvironmentInteraction(make("sudoku", size=4, blanks=3), "current", instructions=False, max_turns=3),
        "sudoku_constraints",
    ),
    "tic_tac_toe": lambda: (
        EnvironmentInteraction(make("tic_tac_toe", opponent="random"), "current", instructions=False),
        "mcts",
    ),
}
MOST = 4.0
TASKS["tic_tac_toe_shrunk"] = TASKS["tic_tac_toe"]
SEEDS = {"sudoku": 8, "sudoku_three": 8, "tic_tac_toe": 10**9, "tic_tac_toe_shrunk": 10**9}
PAGE = Path(__file__).with_name("replays_micro.md")


def main(name: str, taught: int = 4000, played: int = 1000, starts: int = 2000, warm: int = 1500) -> None:
    interaction, oracle = TASKS[name]()
    torch.manual_seed(0)
    draws = random.Random(1)

    def drawn(count: int) -> list[dict[str, Any]]:
        return [{"seed": draws.randrange(SEEDS[name])} for _ in range(count)]

    def starting(count: int) -> list[RolloutRequest[Any]]:
        return [RolloutRequest(task=row) for row in drawn(count)]

    config = MicroConfig(quality=0.85, episodes=warm, epochs=4 if name == "sudoku_three" else 1)
    with tempfile.TemporaryDirectory() as folder:
        player = OraclePlayer(interaction.environment, make_oracle(oracle), config.quality)
        init_scripted_policy(interaction, player, starting(warm), folder, config)
        network, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    engine = Engine(interaction, Chat(tokenizer), sampler(network, tokenizer, max_new_tokens=12))

    def logprobs(decisions: Sequence[Decision]) -> list[tuple[float, ...]]:
        return reply_logprobs(network, [(one.context_ids, one.action_ids) for one in decisions])

    episodes = engine.run(starting(taught))
    critic = _table(episodes, 10 if name == "tic_tac_toe_shrunk" else 0)
    fresh = engine.run(starting(played))
    gain, explained = episodes_gain(fresh, critic, logprobs, most=MOST)
    alone, _ = episodes_gain(fresh, None, logprobs, most=MOST)
    costs = []
    for branches in (None, gain.branches):
        options = {} if branches is None else {"branches": branches}
        method = methods.make("active_replay", **options).bind(interaction)
        sizes, tokens = [], 0
        total = torch.zeros(sum(one.numel() for one in network.parameters()), dtype=torch.float64)
        for number in range(0, starts, 100):
            context = LocalContext(engine, {"critic": critic}, seed=number, logprobs=logprobs)
            own = drawn(min(100, starts - number))
            collected = method.collector(own, context, method.memory)
            credits = weighted(method.estimator(collected, context, method.memory))
            tokens += context.ledger.completion_tokens
            for gradient in _gradients(network, collected, credits):
                total += gradient
                sizes.append(float(gradient @ gradient))
        costs.append((tokens / starts, np.array(sizes), float(total @ total)))
    (first, alone_sizes, _), (second, sizes, _) = costs
    # |E g|^2, without what noise adds to the square of a mean, from both.
    true = fmean((whole - own.sum()) / (len(own) * (len(own) - 1)) for _, own, whole in costs)
    random_draws = np.random.default_rng(0)
    resampled = []
    for _ in range(2000):
        a, b = (own[random_draws.integers(len(own), size=len(own))].mean() - true for own in (alone_sizes, sizes))
        resampled.append(second * b / (first * a))
    low, high = np.quantile(resampled, [0.025, 0.975])
    measured = second * (sizes.mean() - true) / (first * (alone_sizes.mean() - true))
    found = {
        "return": fmean(one.outcome for one in fresh),
        "decisions": fmean(len(one.decisions) for one in fresh),
        "explained": explained,
        "rho": [gain.ratio.mean, gain.ratio.low, gain.ratio.high],
        "branches": list(gain.branches),
        "predicted": gain.capped,
        "without values": alone.capped,
        "measured": [float(measured), float(low), float(high)],
        "tokens": [first, second],
        "signal": true / float(alone_sizes.mean()),
        "starts": starts,
    }
    path = PAGE.with_suffix(".json")
    known = {**(json.loads(path.read_text()) if path.exists() else {}), name: found}
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    _write(known)


def _table(episodes: Sequence[Any], prior: int) -> Callable[[Sequence[CriticInput]], list[tuple[float, ...]]]:
    """The mean outcome of the episodes that came to a context, with so many of the mean of all; or that of all."""
    seen: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for episode in episodes:
        for decision in episode.decisions:
            seen[decision.context_ids].append(episode.outcome)
    mean = fmean(one.outcome for one in episodes)
    values = {context: (sum(own) + prior * mean) / (len(own) + prior) for context, own in seen.items()}
    return lambda inputs: [tuple(values.get(one.ids[:at], mean) for at in one.at) for one in inputs]


def _gradients(network: Any, collected: RolloutBatch, credits: Any) -> list[torch.Tensor]:
    """The gradient of each start in all weights."""
    found = []
    for instance in range(collected.rows):
        own = {
            one.id: one
            for place, episode in zip(collected.instances, collected.episodes, strict=True)
            if place == instance
            for one in episode.decisions
            if one.id in credits
        }
        if not own:
            continue
        asked = list(own.values())
        longest = max(len(one.context_ids) + len(one.action_ids) for one in asked)
        ids = torch.zeros(len(asked), longest, dtype=torch.long)
        weights = torch.zeros(len(asked), longest - 1)
        for place, one in enumerate(asked):
            start, end = len(one.context_ids), len(one.context_ids) + len(one.action_ids)
            ids[place, :end] = torch.tensor([*one.context_ids, *one.action_ids])
            weights[place, start - 1 : end - 1] = float(credits[one.id])
        logs = network(input_ids=ids, use_cache=False).logits[:, :-1].log_softmax(-1)
        network.zero_grad()
        (logs.gather(-1, ids[:, 1:, None]).squeeze(-1) * weights).sum().backward()
        found.append(torch.cat([one.grad.flatten() for one in network.parameters()]).double())
    return found


def _write(known: dict[str, Any]) -> None:
    rows = [
        [
            name,
            f"{one['return']:.2f}",
            f"{one['decisions']:.1f}",
            f"{one['explained']:.2f}",
            f"{one['rho'][0]:.2f} [{one['rho'][1]:.2f}, {one['rho'][2]:.2f}]",
            " ".join(f"{number:.2f}" for number in one["branches"]),
            f"{one['predicted']:.2f}",
            f"{one['measured'][0]:.2f} [{one['measured'][1]:.2f}, {one['measured'][2]:.2f}]",
            f"{one['tokens'][0]:.0f}, {one['tokens'][1]:.0f}",
        ]
        for name, one in sorted(known.items())
    ]
    header = [
        "task",
        "return",
        "decisions",
        "explained",
        "rho",
        "branches",
        "predicted",
        "measured",
        "tokens of a start",
    ]
    PAGE.write_text(
        "# Does the ratio that a diagnosis tells hold for networks?\n\n"
        "The claim, what is measured and how stand at the head of `replays_micro.py`, which wrote this; at most four\n"
        "branches alive of one start. Predicted and measured: the cost of signal with branches over that without.\n\n"
        f"{table(header, rows)}\n",
        encoding="utf-8",
    )
    print(PAGE.read_text())


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:]))
