"""Exact values of the states and actions of an environment under a policy, by enumeration of legal actions.

This is feasible for small environments, such as `evidence`. The values serve as the truth for estimates of
advantages, interventions and rates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from hf_credit.collaborations.exact_values import Expectations, Vector
from hf_credit.environments import Environment, State
from hf_credit.oracles.auditing import Auditor, EnumerableInterventions

S = TypeVar("S", bound=State)
Probabilities = Mapping[str, float]
"""The probability of each legal action; the rest to 1 is that of all other replies, which are not enumerated."""

Policy = Callable[[Sequence[S]], Sequence[Probabilities]]
"""The probabilities of the legal actions in each of several active states."""


class ExactPlay(Generic[S]):
    """Exact expectations of a policy from any state of an environment (`Expectations` has the equations).

    Replies other than legal actions count as outcome 0, so every value is a lower bound. With outcomes in [0, 1] and
    no costs, the true value is at most `error(s)` higher.

    The environment must contain all rules of an episode: a turn limit of the Interaction is ignored. For a random
    environment, its method `ways(state, action)` returns the next states with their probabilities; without it, the
    draw of the state's seed counts as certain.

    Args:
        environment: the rules.
        policy: the probabilities of legal actions.
        worth: functions from the last state of an episode to an outcome, by name.
        costs: the costs of an action in a state, by name, summed over the episode without discount. A missing name
            costs 0.
        cost_names: the names that `costs` can return.

    Raises:
        ValueError: a name is used twice.
    """

    def __init__(
        self,
        environment: Environment[Any],
        policy: Policy[S],
        worth: Mapping[str, Callable[[S], float]],
        costs: Callable[[S, str], Mapping[str, float]] | None = None,
        cost_names: Sequence[str] = (),
    ) -> None:
        self.environment = environment
        self.policy = policy
        self.worth = dict(worth)
        self.costs = costs
        self.names = (*worth, *cost_names)
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"every expectation must have its own name, got {', '.join(self.names)}; rename one.")
        self._expectations = Expectations(policy, self._ways, self._ended, len(self.names) + 1, self._cost)

    def value(self, state: S, name: str) -> float:
        """Returns V(s), the expectation from a state on, for one of `names`."""
        return float(self._expectations.values(state)[self._place(name)])

    def error(self, state: S) -> float:
        """Returns the probability of an illegal reply from a state on, the largest error of an outcome in [0, 1]."""
        return float(self._expectations.values(state)[-1])

    def action_value(self, state: S, action: str, name: str) -> float:
        """Returns Q(s, a) of a legal action."""
        return float(self._expectations.action_values(state, action)[self._place(name)])

    def advantage(self, state: S, action: str, name: str) -> float:
        """Returns A(s, a) = Q(s, a) - V(s)."""
        return self.action_value(state, action, name) - self.value(state, name)

    def effect(
        self, state: S, action: str, interventions: EnumerableInterventions[S], family: str, name: str
    ) -> float | None:
        """Returns the contribution of an action against a family of interventions (paper CVT-RL, eq. 4).

            Delta^k(s, a) = Q(s, a) - E over valid proposals u of family k [ Q(s, g_k(s, a, u)) ]

        For proposals that alter the result of a tool, V of the altered state replaces Q. Proposals with an illegal
        action are rejected and the others renormalised, as with unlimited redraws.

        Args:
            state: the state before the action.
            action: a legal action.
            interventions: interventions with known probabilities of proposals.
            family: one of their families.
            name: the expectation, one of `names`.

        Returns:
            The contribution; `None` if the family does not apply or has no valid proposal.
        """
        if not interventions.applies(state, action, family):
            return None
        place, legal = self._place(name), set(self.environment.legal_actions(state))
        found, total = 0.0, 0.0
        for probability, proposal in interventions.proposals(state, action, family):
            if proposal.action not in legal:
                continue
            if proposal.state is None:
                values = self._expectations.action_values(state, proposal.action)
            else:
                values = self._expectations.values(proposal.state)
            found += probability * float(values[place])
            total += probability
        return self.action_value(state, action, name) - found / total if total else None

    def rates(self, states: Iterable[S]) -> dict[str, float]:
        """Returns the mean of every expectation over first states, by name, and of the error as `error`."""
        values = np.mean([self._expectations.values(state) for state in states], axis=0)
        return dict(zip((*self.names, "error"), map(float, values), strict=True))

    def probabilities(self, state: S) -> Probabilities:
        """Returns pi(a | s) of the legal actions in an active state."""
        self._expectations.evaluate([state])
        return self._expectations.probabilities[state]

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"an expectation must be one of {', '.join(self.names)}, got {name!r}; choose one.")
        return self.names.index(name)

    def _ended(self, state: S) -> list[float] | None:
        if state.status == "active":
            return None
        costs = [0.0] * (len(self.names) + 1 - len(self.worth))
        return [*(outcome(state) for outcome in self.worth.values()), *costs]

    def _cost(self, state: S, action: str) -> Vector:
        total = np.zeros(len(self.names) + 1)
        if self.costs is not None:
            for name, cost in self.costs(state, action).items():
                total[self._place(name)] += cost
        return total

    def _ways(self, state: S, action: str) -> Sequence[tuple[float, S]]:
        ways = getattr(self.environment, "ways", None)
        return ((1.0, self.environment.step(state, action).state),) if ways is None else ways(state, action)


def audited_play(
    environment: Environment[Any], policy: Policy[Any], auditor: Auditor[Any], **worth: Callable[[Any], float]
) -> ExactPlay[Any]:
    """Returns exact play with the expectations of an auditor: `verified` (Y), `outcome` (the check), and its costs.

    Args:
        environment, policy: as in `ExactPlay`.
        auditor: the auditor of the environment.
        **worth: further functions of an episode's last state, such as `hacked`.
    """
    own: dict[str, Callable[[Any], float]] = {"verified": auditor.success, "outcome": environment.outcome}
    costs = functools.cache(lambda state, action: auditor.audit(state, action).costs)
    return ExactPlay(environment, policy, {**own, **worth}, costs, auditor.costs)
