"""Trains and measures every team of the evidence, then writes the tables. Finished cells are skipped.

python evaluation/ccpo/run.py --work runs/ccpo
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import table
from experiment import BASE, EXPERIMENT, TEAMS, Experiment, Team
from running import ON_A_PROCESSOR, one_cell, parse_options, prepare_process, results_folder, run_cells, write_whole

from hf_credit.evaluation.runs import versions

REPLY_TOKENS = 2  # a number and the end
STOCK = "0"  # what the lazy ones of both teams say

RESULTS = Path(__file__).resolve().parent / "results"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, "runs/ccpo")
    run(EXPERIMENT, options.work, options.workers, options.cell)
    if options.cell is None:
        folder = results_folder(options, RESULTS, [EXPERIMENT.cells()], cell_file)
        table.write_tables((options.work / "cells").glob("*.json"), folder)


def run(experiment: Experiment, work: Path, workers: int, cell: Sequence[str] | None = None) -> None:
    """Runs every cell that is not finished: first the starts, then what is trained from them.

    Args:
        experiment, work, workers: as of `running.run_cells`, with its errors.
        cell: what names the one cell to run, with its start; all of them if `None`.
    """
    cells = experiment.cells()
    phases = [[one for one in cells if one[1] == BASE], [one for one in cells if one[1] != BASE]]
    phases = phases if cell is None else one_cell(phases, cell, BASE)
    run_cells(work, experiment.settings(), phases, cell_file, run_cell, experiment, workers, arms="arms")


def cell_file(work: Path, team: str, arm: str, seed: int) -> Path:
    """Where a finished cell is kept."""
    return work / "cells" / f"{team}-{''.join(one if one.isalnum() else '_' for one in arm.lower())}-{seed}.json"


def start_folder(work: Path, team: str, seed: int) -> Path:
    """Where the start of a team is kept, which is one for all tie rules."""
    return work / "starts" / f"{TEAMS[team].collaboration}-{seed}"


def run_cell(experiment: Experiment, team: str, arm: str, seed: int, work: Path) -> None:
    """Builds a start or trains from it, measures, and writes the cell."""
    prepare_process()
    begun = time.process_time()
    if arm == BASE:
        told = build(experiment, TEAMS[team], seed, start_folder(work, team, seed))
    else:
        told = train(experiment, TEAMS[team], arm, seed, start_folder(work, team, seed), work)
    cell = {
        "team": team,
        "arm": arm,
        "seed": seed,
        **told,
        "made_with": {"device": "processor, one thread", **versions()},
        "cpu_seconds": time.process_time() - begun,
    }
    write_whole(cell_file(work, team, arm, seed), cell)


def build(experiment: Experiment, team: Team, seed: int, folder: Path) -> dict[str, Any]:
    """The start of a seed, shared by all arms: a policy that imitates the lazy team."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from hf_credit import collaborations
    from hf_credit.environments.tasks import task_seed
    from hf_credit.rollouts import Chat, RolloutRequest
    from hf_credit.trainers.micro import init_scripted_policy

    interaction = collaborations.make(team.collaboration, **team.options)
    config = dataclasses.replace(experiment.policy, seed=seed, quality=team.quality)
    if not (folder / "config.json").is_file():
        rows = interaction.tasks("train", config.episodes)
        starts = [RolloutRequest[Any](task=row, seed=task_seed("train", index)) for index, row in enumerate(rows)]
        init_scripted_policy(interaction, interaction.scripted_player(config.quality), starts, folder, config)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    chat = Chat(AutoTokenizer.from_pretrained(folder, padding_side="left"))
    return {"exact": exact(experiment, team, interaction, chat, model)}


def train(experiment: Experiment, team: Team, arm: str, seed: int, start: Path, work: Path) -> dict[str, Any]:
    """Trains from the start; exact values on the way and at the end, credit beside the truth, the ledger."""
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback

    from hf_credit import (
        CounterfactualGRPOConfig,
        CounterfactualGRPOTrainer,
        CreditConfig,
        CreditTrainer,
        collaborations,
        methods,
    )
    from hf_credit.rollouts import Chat

    whole: Any = collaborations.make(team.collaboration, **team.options)
    own = dict(team.arms[arm])
    alone, method, options = own.pop("alone", None), own.pop("method", None), own.pop("options", {})
    interaction = whole if alone is None else one_agent(whole, alone)
    if alone and method is None:
        model: Any = AutoModelForCausalLM.from_pretrained(start)
        chat = Chat(AutoTokenizer.from_pretrained(start, padding_side="left"))
        return {"exact": exact(experiment, team, interaction, chat, model)}
    settings = {
        "output_dir": str(work / f"trained_{os.getpid()}"),  # each of those side by side has its own
        "seed": seed,
        "max_steps": team.updates,
        "switch_every": 5,
        "role_schedule": "alternating",
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_completion_length": REPLY_TOKENS,
        **ON_A_PROCESSOR,
        "shuffle_dataset": False,
        **experiment.training,
        **own,
    }
    if settings["role_adapters"] is True:
        settings["role_adapters"] = list(interaction.roles)
    if alone:
        settings |= {"role_adapters": None, "role_schedule": "synchronous"}
    first = 10**6 * (seed + 1)  # behind the tasks of the scripted play, and others for every seed
    rows = whole.tasks("train", team.updates * settings["instances_per_update"], start=first)
    looking = _looking(experiment, team)
    adapter = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    more = {"peft_config": adapter, "callbacks": [looking]}
    if method is None:
        args = CounterfactualGRPOConfig(**{"group_size": experiment.group_size, **settings})
        trainer: Any = CounterfactualGRPOTrainer(str(start), interaction, args, rows, **more)
    else:
        made = methods.make(method, **options)
        trainer = CreditTrainer(str(start), interaction, CreditConfig(**settings), rows, method=made, **more)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    ledger = trainer.ledger
    return {
        "exact": looking.exact(trainer),
        "on_the_way": looking.found,
        "reward": [round(entry["reward"], 6) for entry in entries],
        "ledger": {
            "scoring_events": ledger.scoring_events,
            "prompt_tokens": ledger.prompt_tokens,
            "completion_tokens": ledger.completion_tokens,
        },
    }


def one_agent(team: Any, role: str) -> Any:
    """A role of a team, alone with the problem that it is shown there."""
    from hf_credit.collaborations import Collaboration, Event

    class OneAgent(Collaboration):
        def show(self, problem: str, heard: Sequence[tuple[str, str]]) -> str:
            return problem

    (column,) = {event.column for event in team.graph.events if event.role == role}
    return OneAgent({role: team.roles[role]}, [Event(role, role=role, column=column)], role, team.scorer)


def _looking(experiment: Experiment, team: Team) -> Any:
    """Notes what the team is worth before some updates, and how their credit compares with exact advantages."""
    from hf_credit.policies.role_policies import using
    from hf_credit.trainers.credit import CreditCallback

    class Looking(CreditCallback):
        def __init__(self) -> None:
            self.found: list[dict[str, Any]] = []

        def on_credit(self, trainer: Any, collected: Any, credit: Any) -> None:
            update = trainer.updates_collected - 1
            if update in experiment.looked_at:
                own = _fidelity(
                    experiment, trainer.interaction, trainer.chat, self.policies(trainer), collected, credit
                )
                self.found.append({"update": update, **self.exact(trainer), "fidelity": own})

        def exact(self, trainer: Any) -> dict[str, Any]:
            return exact(experiment, team, trainer.interaction, trainer.chat, self.policies(trainer))

        def policies(self, trainer: Any) -> Any:
            model = trainer.accelerator.unwrap_model(trainer.model)
            return (lambda role: using(model, role)) if trainer.roles else model

    return Looking()


def exact(experiment: Experiment, team: Team, interaction: Any, chat: Any, model: Any) -> dict[str, Any]:
    """What the team is worth, and what its lazy member is worth to it, by enumeration over all tasks of a split."""
    splits = {split: [interaction.start(row, 0) for row in _all_tasks(team, split)] for split in ("train", "held_out")}
    of_team = _of_votes if team.collaboration == "sum_vote" else _of_pairs
    of_team = _of_one if len(interaction.roles) == 1 else of_team
    limits = {"max_new_tokens": REPLY_TOKENS, "temperature": 1.0, "floor": experiment.floor}
    return {split: of_team(team, interaction, chat, model, states, limits) for split, states in splits.items()}


def _of_pairs(
    team: Team, interaction: Any, chat: Any, model: Any, states: Sequence[Any], limits: Mapping[str, Any]
) -> dict[str, float]:
    from hf_credit.collaborations.exact_values import exact_values

    together = exact_values(interaction, chat, model, states, **limits)
    alone = exact_values(interaction, chat, model, [interaction.without(one, team.lazy) for one in states], **limits)
    said = [(state.row["answer"], own.probabilities) for state, own in zip(states, together, strict=True)]
    gained = [own.value - other.value for own, other in zip(together, alone, strict=True)]
    return _summary([own.value for own in together], gained, said)


def _of_votes(
    team: Team, interaction: Any, chat: Any, model: Any, states: Sequence[Any], limits: Mapping[str, Any]
) -> dict[str, float]:
    from hf_credit.collaborations.exact_coalitions import answer_probabilities, vote_values

    values, said = [], []
    for state in states:
        answers, scores = answer_probabilities(interaction, chat, model, state, **limits)
        values.append(vote_values(answers, scores, team.options["ties"]))
        said.append((state.row["answer"], answers[team.lazy]))
    return _summary([one.value for one in values], [one.contribution(team.lazy) for one in values], said)


def _of_one(
    team: Team, interaction: Any, chat: Any, model: Any, states: Sequence[Any], limits: Mapping[str, Any]
) -> dict[str, float]:
    from hf_credit import collaborations
    from hf_credit.collaborations.exact_values import exact_values

    roles = collaborations.make(team.collaboration, **team.options).roles
    found = [
        sampled(own.probabilities, own.values, roles, team.options.get("ties", "expected"))
        for own in exact_values(interaction, chat, model, states, **limits)
    ]
    return {name: round(fmean(one[name] for one in found), 6) for name in found[0]}


def sampled(
    probabilities: Mapping[str, float], values: Mapping[str, float], roles: Iterable[str], ties: str
) -> dict[str, float]:
    """One agent, as many times as a team has roles: the vote (maj@K), one reply (pass@1), any of them (pass@K).

    Args:
        probabilities, values: how likely each reply is, and what it is worth, 0 or 1.
        roles: of the team.
        ties: as in `hf_credit.collaborations.voting.vote_score`.
    """
    from hf_credit.collaborations.exact_coalitions import vote_values
    from hf_credit.collaborations.sum_vote import number_key

    answers: dict[str | None, float] = {}
    for text, chance in probabilities.items():
        answers[number_key(text)] = answers.get(number_key(text), 0.0) + chance
    right = sum(chance * values[text] for text, chance in probabilities.items())
    votes = vote_values(dict.fromkeys(roles, answers), values, ties)
    return {"value": votes.value, "one_reply": right, "any_reply": 1 - (1 - right) ** len(votes.roles)}


def _summary(
    values: Sequence[float], gained: Sequence[float], said: Sequence[tuple[str, Mapping[Any, float]]]
) -> dict[str, float]:
    return {
        "value": round(fmean(values), 6),
        "contribution": round(fmean(gained), 6),
        "lazy_right": round(fmean(own.get(answer, 0.0) for answer, own in said), 6),
        "stock": round(fmean(own.get(STOCK, 0.0) for answer, own in said if answer != STOCK), 6),
        "information": round(_information(said), 6),
    }


def _information(said: Sequence[tuple[str, Mapping[Any, float]]]) -> float:
    """I(S; M) in bits: what the lazy one's message tells of the right answer, over the tasks, all equally likely."""
    joint: dict[tuple[str, Any], float] = {}
    for answer, messages in said:
        for message, chance in messages.items():
            joint[answer, message] = joint.get((answer, message), 0.0) + chance / len(said)
    total = sum(joint.values())
    of_answer: dict[str, float] = {}
    of_message: dict[Any, float] = {}
    for (answer, message), chance in joint.items():
        of_answer[answer] = of_answer.get(answer, 0.0) + chance / total
        of_message[message] = of_message.get(message, 0.0) + chance / total
    return sum(
        chance / total * math.log2(chance / total / (of_answer[answer] * of_message[message]))
        for (answer, message), chance in joint.items()
        if chance > 0
    )


def _all_tasks(team: Team, split: Any) -> list[dict[str, Any]]:
    from hf_credit.collaborations.hinted_relay import hinted_relay_pairs, hinted_relay_task
    from hf_credit.collaborations.sum_vote import sum_pairs, sum_task

    size = team.options["size"]
    if team.collaboration == "sum_vote":
        return [sum_task(one, other, size) for one, other in sum_pairs(split, size)]
    return [hinted_relay_task(secret, decoy) for secret, decoy in hinted_relay_pairs(split, size)]


def _fidelity(
    experiment: Experiment, interaction: Any, chat: Any, policies: Any, collected: Any, credit: Any
) -> dict[str, Any]:
    """Spearman's correlation of the credit of a role's messages with their exact advantages, over an update."""
    from scipy.stats import spearmanr

    limits = {"max_new_tokens": REPLY_TOKENS, "temperature": 1.0, "floor": experiment.floor}
    played = {one.id: one for sample in collected.trained if sample.counted for one in sample.episode.decisions}
    given = {name: credit.decisions.get(name) for name in played}
    credited = [(one, float(given[name])) for name, one in played.items() if given[name] is not None]
    truth = _exact_advantages(interaction, chat, policies, [decision for decision, _ in credited], limits)
    pairs: dict[str, list[tuple[float, float]]] = {}
    for (decision, given), exactly in zip(credited, truth, strict=True):
        if exactly is not None:
            pairs.setdefault(decision.role, []).append((given, exactly))
    found = {}
    for role, own in pairs.items():
        given, true = zip(*own, strict=True)
        varies = len({*given}) > 1 and len({*true}) > 1
        found[role] = round(float(spearmanr(given, true).statistic), 6) if varies else None
    return found


def _exact_advantages(
    interaction: Any, chat: Any, policies: Any, decisions: Sequence[Any], limits: Mapping[str, Any]
) -> list[float | None]:
    """E[R | m] - J(h) of each message at its context; `None` of one too improbable to have been looked at."""
    from hf_credit.collaborations.exact_coalitions import answer_probabilities, vote_contributions, vote_values
    from hf_credit.collaborations.exact_values import exact_values
    from hf_credit.collaborations.text import normalise
    from hf_credit.collaborations.voting import Voting

    states = list(dict.fromkeys(decision.state for decision in decisions))
    if not isinstance(interaction, Voting):
        values = dict(zip(states, exact_values(interaction, chat, policies, states, **limits), strict=True))
        known = [(values[one.state], one.action_text) for one in decisions]
        return [own.advantage(text) if text in own.values else None for own, text in known]
    worth = {}
    for state in states:
        answers, scores = answer_probabilities(interaction, chat, policies, state, **limits)
        whole = vote_values(answers, scores, interaction.ties)
        for role, own in vote_contributions(answers, scores, interaction.ties).items():
            worth[state, role] = {answer: value - whole.contribution(role) for answer, value in own.items()}
    return [worth[one.state, one.role].get(interaction.answer(normalise(one.action_text))) for one in decisions]


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # threads beyond the cores spin against each other
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    main()
