"""How near estimated contributions of steps come to the exact ones, by estimator.

python evaluation/cvt/fidelity.py --work runs/cvt_fidelity

In a smaller `evidence`, the start of each seed plays the updates of CVT-RL: once with a rate of 0, so that its
outcome model alone learns and it plays on by itself, and once learning, while the copy that plays on stays the start.
Each drawn step is credited by each estimator from the same samples, without the correction for selection, which scales
it; its exact contribution, if the copy plays on, is enumerated (eq. 4). Finished seeds are skipped.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from experiment import CVT, EXPERIMENT, Experiment
from finished_cells import interval, mean
from run import build, start_folder, trainer_of
from running import prepare_process, run_cells, write_whole

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import family_mean
from hf_credit.diagnostics import intervention_validity, pccc_fidelity
from hf_credit.evaluation.exact_actions import audited_play, model_policy
from hf_credit.evaluation.report import table
from hf_credit.evaluation.runs import versions
from hf_credit.evaluation.statistics import paired_difference, permutation_test
from hf_credit.methods import Credit
from hf_credit.methods.cvt import FAMILIES, counterfactual, replacement_of, verified_success
from hf_credit.methods.cvt.contributions import StepContributions
from hf_credit.methods.cvt.drawn_steps import is_audited, numbers
from hf_credit.trainers.credit import CreditCallback, CreditTrainer

ESTIMATORS = ("dr", "ips", "model", "sequential")
STILL = dataclasses.replace(
    EXPERIMENT,
    world={"documents": 2, "values": 2, "turns": 4},
    training={**EXPERIMENT.training, "learning_rate": 0.0},
    tokens=2**62,
)
"""The experiment with nothing to learn for the policy, in a world whose values are enumerated in seconds."""
LAGGING = dataclasses.replace(STILL, training=EXPERIMENT.training)
"""The same where the policy learns; its copy would be made anew after more updates than are played."""
EXPERIMENTS: Mapping[str, Experiment] = {"still": STILL, "lagging": LAGGING}
UPDATES: Mapping[tuple[str, int], str] = {
    ("still", 1): "untaught",
    ("still", 8): "taught by seven updates",
    ("lagging", 8): "taught by seven updates, the copy seven behind",
}
"""In which experiment and update it is measured, and what the outcome model and the copy are then."""


class Measurement(CreditCallback):
    """Compares contributions in some updates, and changes nothing."""

    def __init__(self, updates: Collection[int]) -> None:
        self.updates = updates
        self.rows: list[dict[str, Any]] = []

    def on_credit(self, trainer: CreditTrainer, collected: RolloutBatch, credit: Credit) -> None:
        if trainer.updates_collected in self.updates:
            self.rows.append(measured(trainer, collected))


def measured(trainer: CreditTrainer, collected: RolloutBatch) -> dict[str, Any]:
    """What each estimator makes of an update's samples, and how unlike the policy's replies the interventions are."""
    context, interaction = trainer.context, trainer.interaction
    auditor = interaction.default_auditor()
    interventions = interaction.default_interventions()
    episodes = [one for one in collected.episodes if is_audited(one)]
    model = trainer.accelerator.unwrap_model(trainer.model)
    found: dict[str, dict[tuple[int, int], float]] = {}
    for estimator in ESTIMATORS:
        of_steps = StepContributions(
            outcome=lambda episode: float(verified_success(episode) or 0.0),
            estimator=estimator,
            selection="none",
            families=FAMILIES,
            ratio_low=0.2,
            ratio_high=5.0,
            own_policy=False,
        )
        steps = of_steps.steps(collected, episodes)
        found[estimator], _ = of_steps(steps, episodes, context)
    with trainer.frozen_policy():  # who plays on
        play = audited_play(interaction.environment, model_policy(interaction, context.chat, model), auditor)
        exact: dict[tuple[int, int], float] = {}
        errors = []
        for step in steps:
            decision = episodes[step.row].decisions[step.turn]
            world, action = interaction.action_of(decision.state, decision.action_text)
            effects = [
                play.effect(world, action, interventions, family, "verified")
                if any(is_audited(one.episode) for one in step.branches.get(family, ()))
                else None
                for family in FAMILIES
            ]
            told = numbers([math.nan if one is None else one for one in effects]).unsqueeze(0)
            exact[step.row, step.turn] = float(family_mean(told, numbers(list(FAMILIES.values()))))
            errors.append(play.error(world))
    both = [key for key, value in exact.items() if not math.isnan(value) and all(key in own for own in found.values())]
    fidelity = {
        name: dataclasses.asdict(pccc_fidelity([own[key] for key in both], [exact[key] for key in both]))
        for name, own in found.items()
    }
    return {
        "update": trainer.updates_collected,
        "steps": len(both),
        "exact": [round(exact[key], 5) for key in both],
        "unseen": sum(errors) / max(len(errors), 1),
        "fidelity": fidelity,
        "unlike": _unlike(trainer, collected),
    }


def _unlike(trainer: CreditTrainer, collected: RolloutBatch) -> dict[str, dict[str, float]]:
    """The share of proposals, by family, that are less likely than 95 in 100 of the policy's replies of their kind."""
    interaction, context = trainer.interaction, trainer.context
    auditor = interaction.default_auditor()
    decisions = {one.id: one for episode in collected.episodes for one in episode.decisions}
    families, proposed = [], []
    for family in FAMILIES:
        for sample in collected.of_kind(counterfactual(family)):
            origin = decisions[sample.source]
            reply = replacement_of(sample).reply
            if reply != origin.action_ids:  # an altered report keeps the reply
                text = trainer.processing_class.decode(reply, skip_special_tokens=True)
                families.append(family)
                proposed.append(dataclasses.replace(origin, action_ids=reply, action_text=text))
    own = list(decisions.values())
    told = [sum(one) / len(one) for one in context.logprobs([*proposed, *own], "frozen")]
    kinds = [auditor.audit(*interaction.action_of(one.state, one.action_text)).kind for one in [*proposed, *own]]
    count = len(proposed)
    validity = intervention_validity(
        families, [True] * count, kinds[:count], told[:count], kinds[count:], told[count:]
    )
    return {name: {"share": one.out_of_distribution, "judged": one.judged} for name, one in validity.items()}


def run_cell(experiment: Experiment, arm: str, seed: int, work: Path) -> None:
    """Plays from the start of a seed as far as the last measurement, and writes what was measured."""
    prepare_process()
    name = work.name
    updates = [update for played, update in UPDATES if played == name]
    build(experiment, seed, start_folder(work, seed))
    trainer = trainer_of(experiment, arm, seed, work)
    trainer.args.max_steps = max(updates) * trainer.args.num_iterations
    measurement = Measurement(updates)
    trainer.add_callback(measurement)
    trainer.train()
    cell = {"experiment": name, "seed": seed, "updates": measurement.rows, "made_with": versions()}
    write_whole(cell_file(work, arm, seed), cell)


def cell_file(work: Path, arm: str, seed: int) -> Path:
    """Where a finished seed is kept, in the folder of its experiment."""
    return work / "cells" / f"{seed}.json"


def markdown(cells: Sequence[Mapping[str, Any]]) -> str:
    """The tables: means over seeds with t-intervals."""
    parts = []
    for name, title in (("rank_correlation", "Spearman's rank correlation"), ("squared_error", "Mean squared error")):
        rows = [
            [told, *(_over_seeds(cells, when, ("fidelity", estimator, name)) for estimator in ESTIMATORS)]
            for when, told in UPDATES.items()
        ]
        parts += [f"{title} of estimated and exact contribution.", "", table(["outcome model", *ESTIMATORS], rows), ""]
    rows = [
        [told, *(_difference(cells, when, estimator, "rank_correlation") for estimator in ESTIMATORS[1:])]
        for when, told in UPDATES.items()
    ]
    parts += [
        "Spearman's rank correlation of `dr` less that of the others, paired over seeds: 95% interval, and p of the "
        "exact sign-flip test.",
        "",
        table(["outcome model", *ESTIMATORS[1:]], rows),
        "",
    ]
    families = [family for family in FAMILIES if family != "perturbation"]
    rows = [
        [told, *(_over_seeds(cells, when, ("unlike", family, "share")) for family in families)]
        for when, told in UPDATES.items()
    ]
    parts += [
        "Share of valid proposals that are out of distribution.",
        "",
        table(["outcome model", *families], rows),
        "",
    ]
    return "\n".join(parts)


def _over_seeds(cells: Sequence[Mapping[str, Any]], when: tuple[str, int], path: tuple[str, str, str]) -> str:
    return mean([value for value in _of_seeds(cells, when, path) if not math.isnan(value)])


def _difference(cells: Sequence[Mapping[str, Any]], when: tuple[str, int], other: str, name: str) -> str:
    ours, theirs = (_of_seeds(cells, when, ("fidelity", estimator, name)) for estimator in ("dr", other))
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if not math.isnan(a + b)]
    if len(pairs) < 2:
        return "-"
    a, b = map(list, zip(*pairs, strict=True))
    p = permutation_test(a, b).p_value
    return f"{interval(paired_difference(a, b), signed=True)}, {p:.4f}"


def _of_seeds(cells: Sequence[Mapping[str, Any]], when: tuple[str, int], path: tuple[str, str, str]) -> list[float]:
    """One number a seed, NaN where it is not defined."""
    return [
        row[path[0]].get(path[1], {}).get(path[2], math.nan)
        for cell in cells
        for row in cell["updates"]
        if (cell["experiment"], row["update"]) == when
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the seeds that are not finished, and writes the tables."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("runs/cvt_fidelity"), help="starts and finished seeds")
    parser.add_argument("--results", type=Path, default=here / "results", help="tables")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes of one thread each")
    options = parser.parse_args(arguments)
    told = []
    for name, experiment in EXPERIMENTS.items():
        work = options.work / name
        cells = [(CVT, seed) for seed in experiment.seeds]
        run_cells(work, experiment.settings(), [cells], cell_file, run_cell, experiment, options.workers, arms="arms")
        told += [json.loads(cell_file(work, *cell).read_text(encoding="utf-8")) for cell in cells]
    options.results.mkdir(parents=True, exist_ok=True)
    write_whole(options.results / "fidelity.json", told)
    (options.results / "fidelity.md").write_text(markdown(told), encoding="utf-8")


if __name__ == "__main__":
    main()
