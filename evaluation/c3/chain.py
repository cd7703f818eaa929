"""Chains of two to six speakers with noise downstream: the credit of one update, then training. Finished cells stay.

python evaluation/c3/chain.py --work runs/chain
python evaluation/c3/chain.py --work runs/chain_rates --rates        # how the learning rates were chosen
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import chain_results
from chain_results import C3, CREDIT, CRITIC, MAGRPO, TRAINING, TREE, arms_of
from running import run_cells, write_whole

from hf_credit.collaborations.relay import relay, relay_numbers, relay_task
from hf_credit.credit import full_mean, leave_one_out
from hf_credit.diagnostics import credit_fidelity
from hf_credit.environments.randomness import derive
from hf_credit.evaluation.runs import versions
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat

BUDGET = 8  # terminal scores of an instance, as in the paper (C3, eq. 24)
CONTEXTS = 2  # that C3 draws from those of a reference rollout
# C3's full trees that use the budget: messages at the context of each speaker in turn.
TREES = {2: (2, 4), 3: (2, 2, 2)}
RATES, RATES_NOISE, RATES_SEEDS = (0.1, 0.3, 0.6), 0.15, (100, 101)  # what was tried, before the seeds of the run
MADE_WITH = ("python", "hf-credit", "torch", "numpy")


@dataclass(frozen=True, kw_only=True)
class Chains:
    """All that is run.

    Attributes:
        size: how many numbers there are.
        lengths: of the chains, in speakers.
        noises: how often a speaker after the first says just any number, whatever it has learnt.
        quality: of the starting policies, as of `Relay.scripted_player`: how often they play right, noise apart.
        spread: the standard deviation of what is added to each logit of a starting policy, so that those of two seeds
            differ.
        instances: task instances of an update; each has eight terminal scores.
        looks: updates' worth of play by each starting policy of which the credit is looked at.
        updates: of training.
        every: so many updates apart the score is looked at.
        learning_rates: of Adam, by arm and length.
        seeds: of the starting policies, the tasks and the sampling.
    """

    size: int = 4
    lengths: tuple[int, ...] = (2, 3, 4, 5, 6)
    noises: tuple[float, ...] = (0.0, 0.3)
    quality: float = 0.7
    spread: float = 0.5
    instances: int = 32
    looks: int = 64
    updates: int = 200
    every: int = 5
    learning_rates: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    seeds: tuple[int, ...] = tuple(range(10))

    def settings(self) -> dict[str, Any]:
        """What a finished cell depends on besides its own length, noise, arm and seed, as plain values."""
        values = dataclasses.asdict(self)
        for name in ("lengths", "noises", "seeds"):
            del values[name]
        return {**values, "budget": BUDGET, "contexts": CONTEXTS, "trees": {str(n): v for n, v in TREES.items()}}


# The best of `RATES` for each arm and length, as `results/chain/rates.json` has them.
_WHOLE = {2: 0.6, 3: 0.6, 4: 0.6, 5: 0.3, 6: 0.1}
CHAINS = Chains(
    learning_rates={
        CRITIC: _WHOLE,
        MAGRPO: _WHOLE,
        C3: {2: 0.6, 3: 0.6, 4: 0.3, 5: 0.3, 6: 0.1},
        TREE: {2: 0.6, 3: 0.6},
    }
)


class Tables:
    """A policy of tables: for each speaker, number it was told and number of its own, a softmax over what to say.

    A speaker after the first says, with probability `noise`, a uniformly drawn number in place of what its table says.
    """

    def __init__(self, chains: Chains, speakers: int, noise: float, seed: int) -> None:
        self.noise = noise
        size = chains.size
        draws = np.random.default_rng(derive(seed, "tables", speakers))
        self.logits: list[Tensor] = []
        for speaker in range(speakers):
            told, own, said = np.ogrid[: size if speaker else 1, :size, :size]
            right = (told + own) % size == said
            logits = np.log((1 - chains.quality) / size + chains.quality * right)
            logits = logits + chains.spread * draws.standard_normal(logits.shape)
            self.logits.append(torch.tensor(logits, requires_grad=True))

    def probabilities(self) -> list[Tensor]:
        """Of each speaker, pi(said | told, own), of shape (told, own, said). The first was told nothing: 0."""
        clear = [logits.softmax(-1) for logits in self.logits]
        return [clear[0], *((1 - self.noise) * one + self.noise / one.shape[-1] for one in clear[1:])]

    def gradient(self, value: Tensor) -> list[Tensor]:
        """Of each speaker's logits."""
        found = torch.autograd.grad(value, self.logits, allow_unused=True)
        return [torch.zeros_like(own) if one is None else one for one, own in zip(found, self.logits, strict=True)]


def exact(probabilities: Sequence[Tensor], numbers: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The exact values of every message of every task, by enumeration from the last speaker to the first.

    Args:
        probabilities: as `Tables.probabilities` has them.
        numbers: the secret and the shifts of each task, of shape (tasks, speakers).

    Returns:
        Of each speaker, Q(h, a) of shape (tasks, said) and V(h) of shape (tasks, told) (paper C3, eqs. 17 and 19). The
        context h is the task and what was told; what was told changes no Q once the message is known.
    """
    size = probabilities[0].shape[-1]
    after = functional.one_hot(numbers.sum(1) % size, size).to(probabilities[0].dtype)
    messages, contexts = [], []
    for speaker in reversed(range(numbers.shape[1])):
        messages.append(after)
        after = torch.einsum("tns,ns->nt", probabilities[speaker][:, numbers[:, speaker]], after)
        contexts.append(after)
    return messages[::-1], contexts[::-1]


def expected_score(probabilities: Sequence[Tensor], numbers: Tensor) -> Tensor:
    """The mean score over some tasks, exactly."""
    _, contexts = exact(probabilities, numbers)
    return contexts[0].mean()


# Play -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Messages:
    """The messages of an update that credit can be given to, each once; all arrays have shape (messages,).

    Attributes:
        instance: the place of the task in the update.
        speaker: who, counted from 0.
        told: the number it was told, 0 for the first.
        own: its own number.
        said: its message.
        returns: the mean score of the episodes that went through it.
        counts: how many they are.
        spoken: how often each speaker spoke, unscored rollouts included, of shape (speakers,).
    """

    instance: np.ndarray[Any, Any]
    speaker: np.ndarray[Any, Any]
    told: np.ndarray[Any, Any]
    own: np.ndarray[Any, Any]
    said: np.ndarray[Any, Any]
    returns: np.ndarray[Any, Any]
    counts: np.ndarray[Any, Any]
    spoken: np.ndarray[Any, Any]


def play(
    arm: str, probabilities: Sequence[Tensor], numbers: np.ndarray[Any, Any], draws: np.random.Generator
) -> Messages:
    """What the collector of an arm plays, with tables for a policy. Eight terminal scores an instance.

    MAGRPO and MAPPO play eight episodes. C3 plays one unscored episode, draws two of the contexts that it visited, and
    replays from each with four messages (Algorithm 1). C3 as a tree takes the messages of each speaker as the contexts
    of the next.

    Args:
        arm: whose.
        probabilities: as `Tables.probabilities` has them.
        numbers: the secret and the shifts of each instance, of shape (instances, speakers).
        draws: what is random.
    """
    instances, speakers = numbers.shape
    chances = [one.detach().numpy().cumsum(-1) for one in probabilities]
    spoken = np.zeros(speakers, dtype=int)
    instance = np.arange(instances)
    since = np.zeros(instances, dtype=int)
    told = np.zeros(instances, dtype=int)
    fanout = TREES[speakers] if arm == TREE else (1,) * speakers
    if arm in (MAGRPO, CRITIC):
        instance, since, told = (np.repeat(one, BUDGET) for one in (instance, since, told))
    elif arm == C3:
        visited = np.zeros((instances, speakers), dtype=int)  # what each speaker was told in the reference rollout
        for speaker in range(speakers):
            visited[:, speaker] = told
            told = _say(chances[speaker], told, numbers[:, speaker], draws)
            spoken[speaker] += instances
        since = draws.permuted(np.tile(np.arange(speakers), (instances, 1)), axis=1)[:, :CONTEXTS].ravel()
        instance = np.repeat(instance, CONTEXTS)
        told = visited[instance, since]
        instance, since, told = (np.repeat(one, BUDGET // CONTEXTS) for one in (instance, since, told))
    steps = []
    for speaker in range(speakers):
        instance, since, told = (np.repeat(one, fanout[speaker]) for one in (instance, since, told))
        here = since <= speaker
        said = told.copy()
        said[here] = _say(chances[speaker], told[here], numbers[instance[here], speaker], draws)
        spoken[speaker] += here.sum()
        steps.append((instance, here, np.where(here, told, 0), said))
        # Who has not spoken yet keeps what it was told at the context that was drawn.
        told = np.where(here, said, told)
    scores = (told == numbers.sum(1)[instance] % chances[0].shape[-1]).astype(float)
    found: list[list[np.ndarray[Any, Any]]] = []
    for speaker, (task, here, heard, said) in enumerate(steps):
        below = len(scores) // len(task)
        columns = (task, np.full_like(task, speaker), heard, numbers[task, speaker], said)
        values = (scores.reshape(-1, below).mean(1), np.full_like(task, below))
        found.append([column[here] for column in (*columns, *values)])
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    names = ("instance", "speaker", "told", "own", "said", "returns", "counts")
    return Messages(**dict(zip(names, columns, strict=True)), spoken=spoken)


def _say(
    chances: np.ndarray[Any, Any],
    told: np.ndarray[Any, Any],
    own: np.ndarray[Any, Any],
    draws: np.random.Generator,
) -> np.ndarray[Any, Any]:
    """What each of many says, by the cumulative probabilities of a speaker."""
    own_chances = chances[told, own]
    drawn = draws.random(len(told))[:, None] * own_chances[:, -1:]  # whose last is 1 up to rounding
    said: np.ndarray[Any, Any] = (drawn >= own_chances).sum(1)
    return said


def credit(
    arm: str, messages: Messages, probabilities: Sequence[Tensor], numbers: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """The credit of each message, by the library's formulas; NaN for one with nothing to be compared with.

    Of MAPPO there is its bound: the critic says exactly what the score will be on average.
    """
    returns = torch.tensor(messages.returns)
    if arm == CRITIC:
        credits: np.ndarray[Any, Any] = messages.returns - exact_values(messages, probabilities, numbers)[1]
        return credits
    if arm == MAGRPO:
        # Every episode has one message of each speaker: the mean over a speaker's is that over the episodes.
        groups = messages.instance * (messages.speaker.max() + 1) + messages.speaker
        return full_mean(returns, torch.tensor(groups)).numpy()
    size = messages.told.max() + 1
    groups = (messages.instance * (messages.speaker.max() + 1) + messages.speaker) * size + messages.told
    compared = leave_one_out(returns, torch.tensor(groups), torch.tensor(messages.counts)).numpy()
    alone = np.bincount(groups)[groups] == 1
    return np.where(alone, np.nan, compared)


def exact_values(
    messages: Messages, probabilities: Sequence[Tensor], numbers: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Q(h, a) of each message and V(h) of its context, exactly; their difference is its advantage (eq. 20)."""
    values, contexts = exact([one.detach() for one in probabilities], torch.tensor(numbers))
    worth, before = np.zeros(len(messages.said)), np.zeros(len(messages.said))
    for speaker in range(numbers.shape[1]):
        at = messages.speaker == speaker
        task = messages.instance[at]
        worth[at] = values[speaker].numpy()[task, messages.said[at]]
        before[at] = contexts[speaker].numpy()[task, messages.told[at]]
    return worth, before


def gradient(tables: Tables, messages: Messages, credits: np.ndarray[Any, Any], instances: int) -> list[Tensor]:
    """Of each speaker's table, the policy gradient: the sum of credit * grad log pi over the update's instances."""
    total = torch.zeros((), dtype=torch.float64)
    for speaker, chances in enumerate(tables.probabilities()):
        at = (messages.speaker == speaker) & ~np.isnan(credits)
        summed = np.zeros(chances.shape)
        np.add.at(summed, (messages.told[at], messages.own[at], messages.said[at]), credits[at])
        total = total + (torch.tensor(summed) * chances.log()).sum()
    return tables.gradient(total / instances)


def token_prices(size: int, speakers: int) -> np.ndarray[Any, Any]:
    """How many tokens a message of each speaker costs, its context included, where a micro policy plays."""
    collaboration = relay(size, speakers)
    state = collaboration.start(relay_task(*(0,) * speakers, size=size), 0)
    contexts = []
    while requests := collaboration.pending(state):
        contexts.append(requests[0].messages)
        state = collaboration.advance(state, ["0"])
    said = [str(number) for number in range(size)]
    chat = Chat(tokenizer_of([*(message["content"] for context in contexts for message in context), *said]))
    return np.array([len(chat.context(context)) + 2 for context in contexts])


# Cells ------------------------------------------------------------------------------------------------------------


def look(chains: Chains, speakers: int, noise: float, arm: str, seed: int) -> dict[str, Any]:
    """The credit that a method gives the messages of a starting policy, and the truth."""
    tables = Tables(chains, speakers, noise, seed)
    probabilities = tables.probabilities()
    possible = np.array(relay_numbers("train", chains.size, speakers))
    truth = tables.gradient(expected_score(probabilities, torch.tensor(possible)))
    prices = token_prices(chains.size, speakers)
    given, true, by = [], [], []
    cosines: list[list[float]] = []
    tokens = 0
    for number in range(chains.looks):
        numbers = _tasks(possible, chains.instances, seed, number)
        messages = play(arm, probabilities, numbers, _draws(seed, "play", number))
        credits = credit(arm, messages, probabilities, numbers)
        known = ~np.isnan(credits)
        worth, before = exact_values(messages, probabilities, numbers)
        given.append(credits[known])
        true.append((worth - before)[known])
        by.append(messages.speaker[known])
        tokens += int(messages.spoken @ prices)
        cosines.append(_cosines(gradient(tables, messages, credits, len(numbers)), truth))
    # As many instances as whole episodes would take the tokens of.
    more = round(chains.instances**2 * BUDGET * prices.sum() * chains.looks / tokens)
    with_more = []
    for number in range(chains.looks, 2 * chains.looks):
        numbers = _tasks(possible, more, seed, number)
        messages = play(arm, probabilities, numbers, _draws(seed, "play", number))
        credits = credit(arm, messages, probabilities, numbers)
        with_more.append(fmean(_cosines(gradient(tables, messages, credits, more), truth)))
    credits, targets, who = (np.concatenate(parts) for parts in (given, true, by))
    mean = np.mean(cosines, axis=0)
    told = {"cosine": mean.mean(), "cosine/first": mean[0], "cosine/last": mean[-1], "cosine/tokens": fmean(with_more)}
    for name, at in (("", who >= 0), ("/first", who == 0), ("/last", who == speakers - 1)):
        told[f"fidelity{name}"] = credit_fidelity([credits[at].tolist()], [targets[at].tolist()]).rho
        told[f"squared_error{name}"] = np.square(credits[at] - targets[at]).mean()
    rounded = {name: round(float(value), 6) for name, value in told.items()}
    return {**rounded, "credited": len(credits) / chains.looks, "tokens": tokens / chains.looks}


def _cosines(found: Sequence[Tensor], truth: Sequence[Tensor]) -> list[float]:
    """Of each speaker, how well a gradient points where the other does."""
    return [
        float(functional.cosine_similarity(one.ravel(), other.ravel(), dim=0))
        for one, other in zip(found, truth, strict=True)
    ]


def train(chains: Chains, speakers: int, noise: float, arm: str, seed: int) -> dict[str, Any]:
    """Trains a starting policy: its exact score on the training tasks before each update and after the last."""
    tables = Tables(chains, speakers, noise, seed)
    possible = np.array(relay_numbers("train", chains.size, speakers))
    prices = token_prices(chains.size, speakers)
    optimizer = torch.optim.Adam(tables.logits, lr=chains.learning_rates[arm][speakers])
    curves: dict[str, list[float]] = {"reward": [], "budget/scoring_events": [], "budget/tokens": []}
    tokens = 0
    for number in range(chains.updates + 1):
        probabilities = tables.probabilities()
        if number % chains.every == 0:
            score = float(expected_score(probabilities, torch.tensor(possible)).detach())
            seen = (round(score, 6), number * chains.instances * BUDGET, tokens)
            for curve, value in zip(curves.values(), seen, strict=True):
                curve.append(value)
        numbers = _tasks(possible, chains.instances, seed, number)
        messages = play(arm, probabilities, numbers, _draws(seed, "play", number))
        tokens += int(messages.spoken @ prices)
        credits = credit(arm, messages, probabilities, numbers)
        found = gradient(tables, messages, credits, chains.instances)
        for logits, one in zip(tables.logits, found, strict=True):
            logits.grad = -one
        optimizer.step()
    return {"curves": curves}


def _tasks(possible: np.ndarray[Any, Any], instances: int, seed: int, number: int) -> np.ndarray[Any, Any]:
    """The numbers of an update's instances, the same for all arms."""
    drawn: np.ndarray[Any, Any] = possible[_draws(seed, "tasks", number).integers(len(possible), size=instances)]
    return drawn


def _draws(seed: int, purpose: str, number: int) -> np.random.Generator:
    return np.random.default_rng(derive(seed, purpose, number))


def run_cell(chains: Chains, kind: str, speakers: int, noise: float, arm: str, seed: int, work: Path) -> None:
    """Measures or trains one policy, and writes its cell."""
    torch.set_num_threads(1)
    begun = time.process_time()
    found = (look if kind == CREDIT else train)(chains, speakers, noise, arm, seed)
    cell = {
        "kind": kind,
        "speakers": speakers,
        "noise": noise,
        "arm": arm,
        "seed": seed,
        "size": chains.size,
        **found,
        "made_with": {name: version for name, version in versions().items() if name in MADE_WITH},
        "cpu_seconds": round(time.process_time() - begun, 2),
    }
    write_whole(cell_file(work, kind, speakers, noise, arm, seed), cell)


def cell_file(work: Path, kind: str, speakers: int, noise: float, arm: str, seed: int) -> Path:
    """Where a finished cell is kept."""
    return work / "cells" / f"{kind}-{speakers}-{noise}-{arm.lower().replace(' ', '_')}-{seed}.json"


def run(chains: Chains, work: Path, workers: int, kinds: Sequence[str] = (CREDIT, TRAINING)) -> None:
    """Runs every cell that is not finished: the credit of all starting policies first, then training.

    Args:
        chains: what to run.
        work: holds a JSON file for each finished cell.
        workers: processes of one thread each.
        kinds: of the cells.

    Raises:
        ValueError: what is finished in `work` was run with other settings.
        RuntimeError: a cell failed.
    """
    phases = [
        [
            (kind, speakers, noise, arm, seed)
            for seed in chains.seeds
            for speakers in chains.lengths
            for noise in chains.noises
            for arm in arms_of(speakers)
        ]
        for kind in kinds
    ]
    run_cells(work, chains.settings(), phases, cell_file, run_cell, chains, workers)


def try_rates(chains: Chains, work: Path, workers: int) -> None:
    """Trains every arm at every length with each of some rates, on training tasks with seeds that are not reported."""
    tried = dataclasses.replace(chains, noises=(RATES_NOISE,), seeds=RATES_SEEDS)
    for rate in RATES:
        rates = {arm: dict.fromkeys(chains.lengths, rate) for arm in arms_of(2)}
        run(dataclasses.replace(tried, learning_rates=rates), work / str(rate), workers, kinds=(TRAINING,))


def main(arguments: Sequence[str] | None = None) -> None:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("runs/chain"), help="finished cells")
    parser.add_argument("--results", type=Path, default=here / "results" / "chain", help="tables and plots")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes of one thread each")
    parser.add_argument("--rates", action="store_true", help="try learning rates in place of the run itself")
    options = parser.parse_args(arguments)
    if options.rates:
        try_rates(CHAINS, options.work, options.workers)
        chain_results.write_rates(options.work, options.results)
        return
    run(CHAINS, options.work, options.workers)
    chain_results.write(chain_results.read_cells((options.work / "cells").glob("*.json")), options.results)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # threads beyond the cores spin against each other
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    main()
