"""Diagnostics: what a bucket costs to sample by replay, compared with playing every episode from its beginning.

Both sides sample the same number of buckets, as `hf-credit diagnose` does: a decision, several different replies and
some more for the baseline, each replayed to the end several times. Replay begins at the recorded state. The other side
is what it takes where no state can be restored: for every replay the upstream messages are generated again, with the
random numbers of the first time, so that they come out the same and the decision is met at the same context.

Two collaborations: the relay, whose replies have a token or two, and a chain of roles whose messages all have the same
number of tokens. Decisions are drawn from all roles: those of the first have nothing upstream to save.

Seconds are those of the process on a processor, with one thread; what it takes to measure the buckets is in a row of
its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from common import arguments, cpu_seconds, report_of_one_thread, take_turns
from transformers import GenerationConfig

from hf_credit.collaborations import Collaboration, Event
from hf_credit.collaborations.relay import relay, relay_numbers, relay_task
from hf_credit.diagnostics.bucket_sampling import BucketPlan, diagnostic_buckets
from hf_credit.diagnostics.buckets import Bucket
from hf_credit.diagnostics.diagnosis import diagnose
from hf_credit.policies.generation import PrefixSampler
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of
from hf_credit.rollouts import Chat, Engine, Episode, Ledger, RolloutRequest

TEXT = (
    "What a diagnostic bucket costs, the reference episodes and the drawing of replies included: up to "
    "{candidates} candidates and {value_actions} value-only actions, {replays} replays "
    "of each; messages of the chain have {message} tokens. Per bucket; medians over repeats in turns, "
    "CPU seconds of one thread. The row `measured` is the computation of all numbers and intervals from them."
)
ROLES = ("planner", "reasoner", "critic", "actor")


@dataclass(frozen=True, kw_only=True)
class Case:
    """How a collaboration is played, with either kind of engine, and its tasks."""

    engine: Callable[[type[Engine[Any]]], Engine[Any]]
    starts: Sequence[RolloutRequest[Any]]


def chain(roles: Sequence[str]) -> Collaboration:
    """Roles that speak one after the other and hear all before them; the score is of no interest here."""
    return Collaboration(
        roles={role: f"You are the {role}." for role in roles},
        events=[
            Event(role, role=role, after=roles[place - 1] if place else (), sees=tuple(roles[:place]))
            for place, role in enumerate(roles)
        ],
        final=roles[-1],
        scorer=lambda task, text: 0.0,
    )


def cases(options: argparse.Namespace) -> dict[str, Case]:
    words = [f"word{number}" for number in range(50)]
    texts = [" ".join(words), *ROLES, "You are the . Problem: Context: \n", "0123456789 tell secret answer mod add"]
    tokenizer = tokenizer_of(texts)
    size = MicroConfig(hidden_size=options.hidden_size, layers=options.layers, heads=max(options.hidden_size // 64, 1))
    model = build_model(tokenizer, size)
    chat = Chat(tokenizer)

    def engine(interaction: Any, most: int, least: int) -> Callable[[type[Engine[Any]]], Engine[Any]]:
        config = GenerationConfig(
            max_new_tokens=most,
            min_new_tokens=least,
            do_sample=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            disable_compile=True,
        )
        return lambda kind: kind(interaction, chat, PrefixSampler(model, config))

    problem = " ".join(words[place % len(words)] for place in range(options.problem))
    pairs = relay_numbers("held_out")  # each task once, so that a state tells which start it is of
    rows = [{"problem": f"{number} {problem}"} for number in range(options.tasks)]
    return {
        "relay, 2 roles": Case(
            engine=engine(relay(10), 2, 1),
            starts=[RolloutRequest(task=relay_task(*pair)) for pair in pairs[: options.tasks]],
        ),
        f"chain, {len(ROLES)} roles": Case(
            engine=engine(chain(ROLES), options.message, options.message),
            starts=[RolloutRequest(task=row) for row in rows],
        ),
    }


def plan_of(options: argparse.Namespace) -> BucketPlan:
    return BucketPlan(
        buckets=options.buckets,
        candidates=options.candidates,
        replays=options.replays,
        value_actions=options.value_actions,
    )


class FromTheStart(Engine[Any]):
    """Meets a recorded decision again by playing its episode from the task, upstream messages and all."""

    def run(self, starts: Iterable[RolloutRequest[Any]]) -> list[Episode]:
        wanted = list(starts)
        for start in wanted:
            if start.state is None:
                self.streams[self.interaction.start(start.task, 0).task] = start.stream
        episodes = super().run([self._anew(start) for start in wanted])
        for start, episode in zip(wanted, episodes, strict=True):
            for event, context in start.contexts.items():
                met = next(decision for decision in episode.decisions if decision.event == event)
                assert met.context_ids == context, "the decision must be met at the same context"
        return episodes

    def _anew(self, start: RolloutRequest[Any]) -> RolloutRequest[Any]:
        if start.state is None:
            return start
        # The random numbers of the first time; the upstream messages come out as they were.
        return RolloutRequest(task=start.state.row, forced=start.forced, stream=self.streams[start.state.task])

    @property
    def streams(self) -> dict[str, str | None]:
        return self.__dict__.setdefault("_streams", {})


def sampled(engine: Engine[Any], case: Case, plan: BucketPlan) -> tuple[list[Bucket], Ledger, float]:
    """The buckets, what they cost, and their seconds."""
    begun = cpu_seconds()
    buckets, cost = diagnostic_buckets(engine, case.starts, plan)
    return buckets, cost, cpu_seconds() - begun


def measured(buckets: list[Bucket]) -> tuple[list[Bucket], Ledger, float]:
    """Every number of a diagnosis, with its intervals."""
    begun = cpu_seconds()
    diagnose("policy", buckets)
    return buckets, Ledger(), cpu_seconds() - begun


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    plan, table = plan_of(options), []
    for name, case in cases(options).items():
        with torch.inference_mode():
            (known, _, _) = sampled(case.engine(Engine), case, plan)
            runs = take_turns(
                {
                    "replayed": lambda case=case: sampled(case.engine(Engine), case, plan),
                    "from the start": lambda case=case: sampled(case.engine(FromTheStart), case, plan),
                    "measured": lambda known=known: measured(known),
                },
                options.repeats,
            )
        whole = [seconds for _, _, seconds in runs["from the start"]]
        for side, found in runs.items():
            buckets, cost, _ = found[0]
            seconds = [own for _, _, own in found]
            table.append(
                {
                    "collaboration": name,
                    "side": side,
                    "buckets": len(buckets),
                    "replies tried": sum(len(one.candidates) + len(one.value_only) for one in buckets) / len(buckets),
                    "scores": cost.scoring_events / len(buckets),
                    "messages": sum(cost.decisions.values()) / len(buckets),
                    "generated tokens": cost.completion_tokens / len(buckets),
                    "ms": 1000 * median(seconds) / len(buckets),
                    "seconds, ratio": median(own / other for own, other in zip(seconds, whole, strict=True)),
                }
            )
    return table


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(
        __doc__,
        buckets=12,
        candidates=8,
        replays=4,
        value_actions=8,
        tasks=20,
        message=16,
        problem=32,
        hidden_size=64,
        layers=2,
        repeats=3,
    )
    report_of_one_thread(parser, arguments_given, "diagnostics", compare, TEXT)


if __name__ == "__main__":
    main()
