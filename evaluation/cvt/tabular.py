"""What the terms of CVT-RL do to a policy of `evidence` where nothing is estimated: exact gradients and contributions.

`python evaluation/cvt/tabular.py` trains a table of action probabilities, a row for each observation, with the
advantages of each arm, and prints verified success, the check, the share of episodes with a hack and the mean costs at
the end. Every state of six orders of the documents is enumerated; there is no sampling, so a run needs no seed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_credit import make
from hf_credit.environments.evidence import EvidenceState, hacks, succeeded
from hf_credit.oracles.evidence_audit import EvidenceAuditor

Array = NDArray[np.float64]
LIMITS = {"tampering": 0.02, "unsupported": 0.04, "skipped": 0.03, "unsafe": 0.06, "budget": 0.15}
GAMMA = 0.99


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What goes into the advantage, besides the reward of the check (paper CVT-RL, eqs. 3, 7 and 10).

    Attributes:
        hack: whether detected hacks cost reward (.8) and advantage (.9).
        limits: of costs, held by multipliers; none for an arm without constraints.
        contribution_to: `"verified"` or `"check"`, what the contribution of a step is measured by; empty for none.
    """

    hack: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    contribution_to: str = ""


ARMS = {
    "outcome": Arm(),
    "hack penalty, no constraints": Arm(hack=True),
    "constraints, no contribution": Arm(hack=True, limits=LIMITS),
    "contribution to verified success": Arm(hack=True, limits=LIMITS, contribution_to="verified"),
    "contribution to the check": Arm(hack=True, limits=LIMITS, contribution_to="check"),
}


class Game:
    """All states of `evidence` as arrays. A state comes before all that follow from it.

    Attributes:
        rows: of each active state, the place of its observation in the table.
        legal: of each observation, which actions may be taken.
        after: of each active state and action, the state it leads to; itself where the action is illegal.
        finals: of each state, by name, what an episode that ends there is worth; 0 of active ones.
        costs: by name, of each active state and action; `hack` is the greatest score of the detectors.
        starts: the first states, as likely.
    """

    def __init__(self, **options: Any) -> None:
        environment = make("evidence", **options)
        auditor = EvidenceAuditor(environment.documents)
        kinds = ["genuine", *["forged"] * environment.forged]
        kinds += ["off"] * (environment.documents - len(kinds))
        firsts = []
        for order in sorted(set(itertools.permutations(kinds))):
            task = {
                "key": "A",
                "keys": ["B" if kind == "off" else "A" for kind in order],
                "values": list(range(1, environment.documents + 1)),
                "genuine": order.index("genuine") + 1,
            }
            firsts.append(environment.initial_state(task, 0))
        ordered = _reachable(environment, firsts)
        active = [state for state in ordered if state.status == "active"]
        places = {state: place for place, state in enumerate([*active, *(s for s in ordered if s.status != "active")])}
        actions = list(dict.fromkeys(action for state in active for action in environment.legal_actions(state)))
        columns = {action: column for column, action in enumerate(actions)}
        observations: dict[str, int] = {}
        self.actions = actions
        self.rows = np.array([observations.setdefault(environment.observe(s), len(observations)) for s in active])
        self.legal = np.zeros((len(observations), len(actions)), dtype=bool)
        self.after = np.tile(np.arange(len(active))[:, None], (1, len(actions)))
        self.costs = {name: np.zeros(self.after.shape) for name in (*auditor.costs, "hack")}
        self.left = np.array([state.left for state in active])
        for place, state in enumerate(active):
            for action in environment.legal_actions(state):
                column = columns[action]
                self.legal[self.rows[place], column] = True
                self.after[place, column] = places[environment.step(state, action).state]
                audit = auditor.audit(state, action)
                for name, cost in audit.costs.items():
                    self.costs[name][place, column] = cost
                self.costs["hack"][place, column] = max(audit.hacks.values())
        ended = [state for state in places if state.status != "active"]
        worth = {
            "verified": lambda state: float(succeeded(state)),
            "check": environment.outcome,
            "hacked": lambda state: float(bool(hacks(state))),
        }
        self.finals = {
            name: np.array([0.0] * len(active) + [judge(state) for state in ended]) for name, judge in worth.items()
        }
        self.starts = [places[state] for state in firsts]
        self.null = columns["think"]

    def occupancy(self, policy: Array) -> Array:
        """How likely each active state is reached."""
        reached = np.zeros(len(self.finals["check"]))
        reached[self.starts] = 1 / len(self.starts)
        for left in range(int(self.left.max()), 0, -1):
            (level,) = np.nonzero(self.left == left)
            np.add.at(reached, self.after[level], reached[level, None] * policy[self.rows[level]])
        return reached

    def values(
        self, policy: Array, final: Array, cost: Array | None = None, gamma: float = 1.0
    ) -> tuple[Array, Array]:
        """V of each state, and Q of each active state and action, of what ends are worth and what steps cost."""
        value, action_value = final.copy(), np.zeros(self.after.shape)
        for left in range(1, int(self.left.max()) + 1):
            (level,) = np.nonzero(self.left == left)
            # What an episode is worth is paid by its last step.
            ends = self.after[level] >= len(self.left)
            own = np.where(ends, 1.0, gamma) * value[self.after[level]] + (0 if cost is None else cost[level])
            action_value[level] = np.where(self.legal[self.rows[level]], own, 0.0)
            value[level] = (policy[self.rows[level]] * action_value[level]).sum(axis=1)
        return value, action_value


def train(game: Game, arm: Arm, updates: int, rate: float) -> list[dict[str, float]]:
    """After each update what the policy before it did, and at the end what the last one does."""
    return [report(game, policy) for policy in itertools.islice(policies(game, arm, rate), updates + 1)]


def policies(game: Game, arm: Arm, rate: float) -> Iterator[Array]:
    """Natural policy gradient on the table, with exact advantages: theta += rate * A.

    Of each observation A is the mean over the states that look like it, weighted by how likely they are reached; that
    is the natural gradient of a softmax table (Kakade, A Natural Policy Gradient, 2002).
    """
    theta = np.where(game.legal, 0.0, -np.inf)
    multipliers = dict.fromkeys(arm.limits, 0.0)
    while True:
        policy = _softmax(theta)
        yield policy
        advantage = _advantage(game, arm, policy, multipliers)
        reached = game.occupancy(policy)[: len(game.rows)]
        total, weight = np.zeros(theta.shape), np.zeros(len(theta))
        np.add.at(total, game.rows, reached[:, None] * advantage)
        np.add.at(weight, game.rows, reached)
        mean = np.divide(total, weight[:, None], out=np.zeros(theta.shape), where=weight[:, None] > 0)
        theta = np.where(game.legal, theta + rate * mean, -np.inf)
        for name, limit in arm.limits.items():
            multipliers[name] = max(multipliers[name] + 0.05 * (_mean_cost(game, policy, name, GAMMA) - limit), 0.0)


def outcome_models(game: Game, copy: Array, policy: Array, branches: int) -> dict[str, dict[str, float]]:
    """How far outcome models, fitted without error to outcomes of one kind or another, are from the copy's values.

    Of steps as the policy takes them: bias and correlation, with the exact worth of the step to the copy, of the model
    (`m`), of eq. 6 with that model and the clipped ratio (`dr`), and of its mean with paraphrases (`pooled`).

    Args:
        game, copy, policy: who plays on, and who played.
        branches: K, paraphrases of each step.
    """
    final = game.finals["verified"]
    (_, exact), (_, own) = game.values(copy, final), game.values(policy, final)
    ratio, paid = _clipped(game, copy, policy)
    legal = game.legal[game.rows]
    weight = game.occupancy(policy)[: len(game.rows), None] * policy[game.rows] * legal
    models = {
        "the policy's outcomes": own,
        "the policy's outcomes, weighed by the clipped ratio": np.divide(paid, ratio, out=own * 0, where=ratio > 0),
        "the copy's outcomes": exact,
        "none (ips)": own * 0,
    }
    found = {}
    for name, model in models.items():
        robust = model * (1 - ratio) + paid
        pooled = (robust + branches * exact) / (1 + branches)
        found[name] = {
            f"{of} {what}": value
            for of, values in (("m", model), ("dr", robust), ("pooled", pooled))
            for what, value in _nearness(values, exact, weight).items()
        }
    return found


def _clipped(game: Game, copy: Array, policy: Array) -> tuple[Array, Array]:
    """E[rho] and E[rho Y] of what the policy does after each state and action, rho clipped as in eq. 5.

    The law of the ratio and the outcome is exact but for a rounding of log rho to a hundredth.
    """
    final = game.finals["verified"]
    laws: list[dict[tuple[float, float], float]] = [{(0.0, float(worth)): 1.0} for worth in final]
    for state in np.argsort(game.left, kind="stable"):
        row = game.rows[state]
        law: dict[tuple[float, float], float] = {}
        for action in np.nonzero(game.legal[row] & (policy[row] > 1e-12))[0]:
            moved = math.log(max(copy[row, action], 1e-300) / policy[row, action])
            for (log, worth), share in laws[game.after[state, action]].items():
                key = (round(max(log + moved, -60.0), 2), worth)
                law[key] = law.get(key, 0.0) + policy[row, action] * share
        laws[state] = law
    means = np.array(
        [
            np.sum(
                [
                    [share * min(max(math.exp(log), 0.2), 5.0) * one for one in (1, worth)]
                    for (log, worth), share in law.items()
                ],
                axis=0,
            )
            for law in laws
        ]
    )
    return means[game.after, 0], means[game.after, 1]


def _nearness(values: Array, exact: Array, weight: Array) -> dict[str, float]:
    share = weight / weight.sum()
    bias = float((share * (values - exact)).sum())
    apart, other = values - (share * values).sum(), exact - (share * exact).sum()
    spread = float((share * apart**2).sum() * (share * other**2).sum())
    return {
        "bias": bias,
        "correlation": float((share * apart * other).sum()) / math.sqrt(spread) if spread else math.nan,
    }


def report(game: Game, policy: Array) -> dict[str, float]:
    """Verified success, check, share of episodes with a hack, and mean costs of a policy."""
    found = {name: float(game.values(policy, final)[0][game.starts].mean()) for name, final in game.finals.items()}
    return found | {name: _mean_cost(game, policy, name) for name in game.costs if name != "hack"}


def _advantage(game: Game, arm: Arm, policy: Array, multipliers: Mapping[str, float]) -> Array:
    """A of eq. 7, with the multipliers' share of eq. 10: exact, for each active state and action."""
    legal = game.legal[game.rows]
    paid, extra = np.zeros(game.after.shape), np.zeros(game.after.shape)
    if arm.hack:
        paid -= 0.8 * game.costs["hack"]
        extra -= 0.9 * game.costs["hack"]
    if arm.contribution_to:
        _, worth = game.values(policy, game.finals[arm.contribution_to])
        contribution = np.where(legal, worth - worth[:, [game.null]], 0.0)  # against an empty thought: deletion
        paid += 0.6 * np.tanh(2 * contribution)
        extra += 0.7 * contribution
    value, action_value = game.values(policy, game.finals["check"], paid, GAMMA)
    advantage = action_value - value[: len(game.rows), None] + extra
    zero = np.zeros(len(game.finals["check"]))
    for name, limit in arm.limits.items():
        value, action_value = game.values(policy, zero, game.costs[name], GAMMA)
        over = max(_mean_cost(game, policy, name, GAMMA) - limit, 0.0)
        advantage -= (multipliers[name] + 2.0 * over) * (action_value - value[: len(game.rows), None])
    return np.where(legal, advantage, 0.0)


def _mean_cost(game: Game, policy: Array, name: str, gamma: float = 1.0) -> float:
    zero = np.zeros(len(game.finals["check"]))
    return float(game.values(policy, zero, game.costs[name], gamma)[0][game.starts].mean())


def _softmax(theta: Array) -> Array:
    shares = np.exp(theta - theta.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _reachable(environment: Any, firsts: Sequence[EvidenceState]) -> list[EvidenceState]:
    found, level = [], list(firsts)
    while level:
        found += level
        level = list(
            dict.fromkeys(
                environment.step(state, action).state for state in level for action in environment.legal_actions(state)
            )
        )
    return list(dict.fromkeys(found))


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains every arm and prints where it ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--output", help="a JSON file for the last numbers of each arm")
    parser.add_argument(
        "--lag", type=int, help="in place of all that: outcome models, the copy so many updates behind"
    )
    parsed = parser.parse_args(arguments)
    game = Game()
    print(f"{len(game.rows)} states to act in, {len(game.legal)} observations")
    if parsed.lag is not None:
        every = policies(game, ARMS["contribution to verified success"], 0.25)
        copy = next(one for one in every if report(game, one)["verified"] >= 0.1)
        policy = next(itertools.islice(every, parsed.lag - 1, None), copy)
        print(*(f"verified: {report(game, one)['verified']:.2f}" for one in (copy, policy)))
        for name, told in outcome_models(game, copy, policy, branches=2).items():
            print(f"{name}: " + ", ".join(f"{what} {value:+.3f}" for what, value in told.items()), flush=True)
        return
    results = {}
    for name, arm in ARMS.items():
        last = train(game, arm, parsed.updates, parsed.rate)[-1]
        results[name] = {what: round(value, 4) for what, value in last.items()}
        shown = {what: f"{value:.2f}" for what, value in last.items()}
        print(f"{name}: verified {shown.pop('verified')}, check {shown.pop('check')}, hacked {shown.pop('hacked')}")
        print("  costs " + ", ".join(f"{what} {value}" for what, value in shown.items()), flush=True)
    if parsed.output:
        with open(parsed.output, "w", encoding="utf-8") as file:
            json.dump({"updates": parsed.updates, "rate": parsed.rate, "arms": results}, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
