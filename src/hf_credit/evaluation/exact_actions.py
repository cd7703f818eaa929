"""What every state and action of an environment is worth under a policy, by enumeration of its legal actions.

It is for environments so small that every state can be looked at, such as `evidence`: the truth that estimates of
interventions, advantages and rates are measured with.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from transformers import PreTrainedModel

from hf_credit.collaborations.exact_values import Expectations, Vector
from hf_credit.environments import Environment, State
from hf_credit.oracles.auditing import Auditor, EnumerableInterventions
from hf_credit.policies.reply_logprobs import reply_logprobs
from hf_credit.rollouts import Chat, EnvironmentInteraction, EnvironmentState

S = TypeVar("S", bound=State)
Probabilities = Mapping[str, float]
"""Of plain legal actions; what they lack to 1 is the probability of everything else, which is not looked into."""

Policy = Callable[[Sequence[S]], Sequence[Probabilities]]
"""The probabilities of the legal actions in each of several active states."""


class ExactPlay(Generic[S]):
    """The exact expectations of a policy from any state of an environment on (`Expectations` has the equations).

    What the policy does with the probability that its legal actions lack counts as worth 0, so that every value is a
    lower bound; with worths in [0, 1] and no costs the true one is at most `error(s)` above it.

    All rules of an episode must be the environment's: a limit of turns that only the Interaction knows is not seen.
    Where an environment draws at random, its method `ways(state, action)` says what it may come to; without one, the
    draw of the state's seed is taken for certain.

    Args:
        environment: the rules.
        policy: the probabilities of legal actions.
        worth: by name, what an episode that ended in a state was worth.
        costs: by name, what an action in a state costs; summed over the episode, without discount. Names that are
            left out of an answer cost nothing.
        cost_names: the names that `costs` may give.

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
        self._places = {name: place for place, name in enumerate(self.names)}
        self._expectations = Expectations(policy, self._ways, self._ended, len(self.names) + 1, self._cost)

    def value(self, state: S, name: str) -> float:
        """V(s): the expectation of one of `names` from a state on."""
        return float(self._expectations.values(state)[self._place(name)])

    def error(self, state: S) -> float:
        """How likely the policy leaves its legal actions from a state on: so far above a worth the truth can be."""
        return float(self._expectations.values(state)[-1])

    def action_value(self, state: S, action: str, name: str) -> float:
        """Q(s, a) of a legal action, whether or not the policy would take it."""
        return float(self._expectations.action_values(state, action)[self._place(name)])

    def advantage(self, state: S, action: str, name: str) -> float:
        """A(s, a) = Q(s, a) - V(s)."""
        return self.action_value(state, action, name) - self.value(state, name)

    def effect(
        self, state: S, action: str, interventions: EnumerableInterventions[S], family: str, name: str
    ) -> float | None:
        """What an action contributes, against a family of interventions (paper CVT-RL, eq. 4), the policy playing on.

            Delta^k(s, a) = Q(s, a) - E over valid proposals u of family k [ Q(s, g_k(s, a, u)) ]

        Where a proposal alters what a tool returned, V of the altered state stands in place of Q. Proposals whose
        action is illegal are left out and the rest drawn anew, as a gate with endless redraws does.

        Args:
            state: in which the action was taken.
            action: a legal one.
            interventions: that can say how likely each proposal is.
            family: one of theirs.
            name: of the expectation.

        Returns:
            `None` where the family does not apply, or nothing that it proposes is valid.
        """
        if not interventions.applies(state, action, family):
            return None
        place, legal = self._place(name), set(self.environment.legal_actions(state))
        found, total = 0.0, 0.0
        for probability, proposal in interventions.proposals(state, action, family):
            if proposal.action not in legal:
                continue
            if proposal.state is None:
                came = self._expectations.action_values(state, proposal.action)
            else:
                came = self._expectations.values(proposal.state)
            found += probability * float(came[place])
            total += probability
        return self.action_value(state, action, name) - found / total if total else None

    def rates(self, states: Iterable[S]) -> dict[str, float]:
        """The mean of every expectation over first states, by name, and as `error` that of the error."""
        values = np.mean([self._expectations.values(state) for state in states], axis=0)
        return dict(zip((*self.names, "error"), map(float, values), strict=True))

    def probabilities(self, state: S) -> Probabilities:
        """pi(a | s) of the legal actions in an active state."""
        self._expectations.evaluate([state])
        return self._expectations.probabilities[state]

    def _place(self, name: str) -> int:
        if name not in self._places:
            raise ValueError(f"an expectation must be one of {', '.join(self.names)}, got {name!r}; pick one.")
        return self._places[name]

    def _ended(self, state: S) -> list[float] | None:
        if state.status == "active":
            return None
        worths = [worth(state) for worth in self.worth.values()]
        return [*worths, *[0.0] * (len(self.names) + 1 - len(worths))]

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
    """Exact play with the expectations that an auditor tells of: `verified` (Y), `outcome` (the check), all its costs.

    Args:
        environment, policy: as in `ExactPlay`.
        auditor: of the environment.
        **worth: further ones of an episode's last state, such as `hacked`.
    """
    own: dict[str, Callable[[Any], float]] = {"verified": auditor.success, "outcome": environment.outcome}
    costs = functools.cache(lambda state, action: auditor.audit(state, action).costs)
    return ExactPlay(environment, policy, {**own, **worth}, costs, auditor.costs)


def model_policy(
    interaction: EnvironmentInteraction, chat: Chat, model: PreTrainedModel, temperature: float = 1.0
) -> Policy[Any]:
    """The probabilities that a model replies with each legal action and nothing else, by teacher forcing.

    What it may say in other words is not looked into, and is the error of exact values. The sampler must draw from
    the whole vocabulary, and leave room for the longest of these replies. Scores are remembered: make another one
    when the model has changed.

    Args:
        interaction: with `history="current"`, so that a state has one context.
        chat: renders it.
        model: used in evaluation mode, and left in the mode it was in.
        temperature: of the sampling, above 0.

    Raises:
        ValueError: contexts hold earlier turns, or the temperature is not above 0.
    """
    if interaction.history != "current":
        raise ValueError(
            f"exact values need a context that follows from the state, got history={interaction.history!r}; play it "
            "with history='current'."
        )
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}; sampling at 1 is exact.")
    environment = interaction.environment
    encode = functools.cache(lambda action: chat.reply_ids(environment.write_action(action)))

    @functools.cache
    def known(context: tuple[int, ...], legal: tuple[str, ...]) -> dict[str, float]:
        return {}

    def policy(states: Sequence[Any]) -> list[Probabilities]:
        turns = (EnvironmentState(world=state, transcript=()) for state in states)
        shown = [interaction.with_world(_opened(turn), turn.world) for turn in turns]
        requests = [interaction.pending(turn)[0] for turn in shown]
        contexts = [
            context if not isinstance(context, Exception) else _raise(context)
            for context in chat.contexts([(request, None) for request in requests])
        ]
        found = [
            known(context, environment.legal_actions(state)) for context, state in zip(contexts, states, strict=True)
        ]
        missing = {
            (context, action): shares
            for context, state, shares in zip(contexts, states, found, strict=True)
            for action in environment.legal_actions(state)
            if action not in shares
        }
        told = reply_logprobs(model, [(context, encode(a)) for context, a in missing], temperature)
        scores = [math.exp(sum(own)) for own in told]
        for ((_, action), shares), score in zip(missing.items(), scores, strict=True):
            shares[action] = score
        return list(found)

    return policy


def _opened(turn: EnvironmentState) -> EnvironmentState:
    """With a message whose content `with_world` replaces."""
    return EnvironmentState(world=turn.world, transcript=(("user", ""),))


def _raise(error: Exception) -> Any:
    raise error
