"""The problems of CreditBench: each isolates one property of a task. Dials have ranges, as problems are enumerated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from hf_credit.boundary import Range
from hf_credit_bench.problem import Problem, View, Way, logit

AGENT = ("agent",)

Steps = Annotated[int, Range(1, 256)]
Many = Annotated[int, Range(2, 256)]


class _Alone(Problem):
    """One agent decides in each of `horizon` steps, which a node counts first."""

    horizon: int

    def speakers(self, node: Any) -> Sequence[str]:
        return AGENT if 0 <= node[0] < self.horizon else ()


@dataclass(frozen=True)
class Key(_Alone):
    """The first of many decisions determines the outcome; each later one has a random reward for any action.

    Args:
        horizon: the number of decisions, at least 2.
        noise: the standard deviation of the sum of random rewards.
    """

    horizon: Many = 8
    noise: float = 1.0
    start_right: float = 0.2

    isolates = "one early decision determines the outcome, and noise follows"

    def logits(self, view: Any) -> Sequence[float]:
        return [0.0, logit(self.start_right)] if view[0] == 0 else [0.0, 0.0]

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        step, right = node
        if step == 0:
            return [Way(1.0, (1, actions[0]))]
        toss, paid = self.noise / math.sqrt(self.horizon - 1), float(right and step == self.horizon - 1)
        return [Way(0.5, (step + 1, right), paid + sign * toss) for sign in (-1, 1)]

    def right(self, node: Any, action: int) -> float:
        return float(node[0] > 0 or action == 1)


@dataclass(frozen=True)
class Late(Problem):
    """The last of many decisions determines the outcome: success has probability `good` if it is right, else `bad`.

    Args:
        horizon: the number of decisions.
        good, bad: the two probabilities.
    """

    horizon: Steps = 8
    good: float = 0.9
    bad: float = 0.3
    start_right: float = 0.2

    isolates = "one late decision determines the outcome, with chance"
    first = 0

    def speakers(self, node: Any) -> Sequence[str]:
        return AGENT if node < self.horizon else ()

    def logits(self, view: Any) -> Sequence[float]:
        return [0.0, logit(self.start_right)] if view == self.horizon - 1 else [0.0, 0.0]

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        if node < self.horizon - 1:
            return [Way(1.0, node + 1)]
        success = self.good if actions[0] else self.bad
        return [Way(1 - success, self.horizon), Way(success, self.horizon, 1.0)]

    def right(self, node: Any, action: int) -> float:
        return float(node < self.horizon - 1 or action == 1)


@dataclass(frozen=True)
class Chain(Problem):
    """Every decision must be right; only the end reveals an error.

    Args:
        length: the number of decisions.
        options: the number of actions of a decision, one of which is right.
    """

    length: Steps = 4
    start_right: float = 0.5
    options: Many = 2

    isolates = "all of several decisions must be right"
    first = (0, 1)

    def speakers(self, node: Any) -> Sequence[str]:
        return AGENT if node[0] < self.length else ()

    def actions(self, view: View) -> int:
        return self.options

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        step, alive = node
        alive = int(alive and actions[0] == self.options - 1)
        return [Way(1.0, (step + 1, alive), float(alive and step + 1 == self.length))]

    def right(self, node: Any, action: int) -> float:
        return float(action == self.options - 1)


@dataclass(frozen=True)
class Branches(Chain):
    """Each of a few decisions has many actions, one of which is right; its dials are those of `Chain`."""

    length: Steps = 2
    start_right: float = 0.125
    options: Many = 8

    isolates = "many actions, few of them good"


@dataclass(frozen=True)
class Paid(_Alone):
    """Every decision has an immediate random reward.

    Args:
        horizon: the number of decisions.
        good, bad: the probabilities of reward 1 after a right and a wrong decision.
    """

    horizon: Steps = 8
    good: float = 0.5
    bad: float = 0.3

    isolates = "intermediate rewards"

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        paid, after = self.good if actions[0] else self.bad, (node[0] + 1, 0)
        return [Way(1 - paid, after), Way(paid, after, 1.0)]

    def right(self, node: Any, action: int) -> float:
        return float(action)


@dataclass(frozen=True)
class Stop(_Alone):
    """The policy decides when to end: to continue may find something better, and has a price.

    Args:
        horizon: the most decisions.
        price: of one continuation.
        found: the probability that a continuation finds something better, by `1 / horizon`.
    """

    horizon: Steps = 8
    price: float = 0.03
    found: float = 0.5

    isolates = "the policy decides when to end"

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        step, level = node
        if actions[0]:
            return [Way(1.0, (-1, level), level / self.horizon)]
        last = step == self.horizon - 1
        return [
            Way(chance, (step + 1, after), after / self.horizon * last - self.price)
            for chance, after in ((1 - self.found, level), (self.found, level + 1))
        ]


@dataclass(frozen=True)
class Revisit(Problem):
    """A walk on a line to its end: positions recur, and look the same.

    Args:
        length: the distance to the end.
        horizon: the most steps.
        slip: the probability that a step goes backwards; the fraction of revisits of an optimal policy.
    """

    length: Steps = 3
    horizon: Steps = 10
    slip: float = 0.1

    isolates = "states occur repeatedly"

    def speakers(self, node: Any) -> Sequence[str]:
        return AGENT if node[0] < self.horizon and node[1] < self.length else ()

    def view(self, node: Any, speaker: str) -> View:
        return node[1]

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        step, place = node
        forth = 1 - self.slip if actions[0] else self.slip
        ends = ((1 - forth, max(place - 1, 0)), (forth, place + 1))
        return [Way(chance, (step + 1, after), float(after == self.length)) for chance, after in ends if chance]

    def right(self, node: Any, action: int) -> float:
        return float(action)


@dataclass(frozen=True)
class Relay(Problem):
    """Each speaker passes a bit to the next, and each message may flip by chance.

    Args:
        depth: the number of speakers.
        noise: the probability that a message flips.
        start_right: the initial probability that a speaker passes on the received bit.
    """

    depth: Steps = 6
    noise: float = 0.02
    start_right: float = 0.85

    isolates = "a message is used several speakers later"

    def starts(self) -> Sequence[Way]:
        return [Way(0.5, (0, bit, bit)) for bit in (0, 1)]

    def speakers(self, node: Any) -> Sequence[str]:
        return (f"speaker_{node[0]}",) if node[0] < self.depth else ()

    def view(self, node: Any, speaker: str) -> View:
        return node[0], node[2]

    def logits(self, view: Any) -> Sequence[float]:
        tilt = logit(self.start_right) / 2
        return [tilt, -tilt] if view[1] == 0 else [-tilt, tilt]

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        step, truth, _ = node
        if step == self.depth - 1:
            return [Way(1.0, (self.depth, truth, actions[0]), float(truth == actions[0]))]
        heard = ((1 - self.noise, actions[0]), (self.noise, 1 - actions[0]))
        return [Way(chance, (step + 1, truth, bit)) for chance, bit in heard if chance]

    def right(self, node: Any, action: int) -> float:
        return float(action == node[2])

    def gold(self, node: Any) -> int:
        return int(node[1])


@dataclass(frozen=True)
class Vote(Problem):
    """Agents vote simultaneously on a bit of which each has a hint; some initially have a stock answer.

    Args:
        agents: the number of agents.
        lazy: how many of them initially answer 0 with probability 0.9.
        hint: the probability that a hint is true.
        tie: the outcome of a tie.
    """

    agents: Annotated[int, Range(1, 7)] = 5
    lazy: Annotated[int, Range(0, 7)] = 3
    hint: float = 0.8
    tie: float = 0.5

    isolates = "a team decides simultaneously, and some members give a fixed answer"

    @property
    def removable(self) -> tuple[str, ...]:
        return tuple(f"agent_{place}" for place in range(self.agents))

    def starts(self) -> Sequence[Way]:
        every = itertools.product((0, 1), repeat=self.agents + 1)
        return [
            Way(0.5 * math.prod(self.hint if bit == truth else 1 - self.hint for bit in hints), (truth, hints, ()))
            for truth, *rest in every
            for hints in [tuple(rest)]
        ]

    def speakers(self, node: Any) -> Sequence[str]:
        return () if node[2] else self.removable

    def view(self, node: Any, speaker: str) -> View:
        place = int(speaker.rpartition("_")[2])
        return place, node[1][place]

    def logits(self, view: Any) -> Sequence[float]:
        place, hint = view
        if place < self.lazy:
            return [logit(0.9) / 2, -logit(0.9) / 2]
        return [0.4, -0.4] if hint == 0 else [-0.4, 0.4]

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        truth, _, _ = node
        return [Way(1.0, (truth, None, tuple(actions)), self.worth(truth, actions))]

    def worth(self, truth: int, votes: Sequence[int]) -> float:
        """Returns whether most votes are right, or the outcome of a tie."""
        ahead = sum(1 if vote == truth else -1 for vote in votes)
        return self.tie if ahead == 0 else float(ahead > 0)

    def without(self, state: Any, role: str) -> Any:
        """Returns the vote without one of the agents, whose vote is `None`."""
        truth, hints, votes = state.node
        kept = tuple(None if f"agent_{place}" == role else vote for place, vote in enumerate(votes))
        total = self.worth(truth, [vote for vote in kept if vote is not None])
        return replace(state, node=(truth, hints, kept), reward=total, total=total, worth=total)

    def right(self, node: Any, action: int) -> float:
        return float(action == node[0])

    def gold(self, node: Any) -> int:
        return int(node[0])


@dataclass(frozen=True)
class Trap(Problem):
    """The agent must ask right questions; after a wrong one no answer helps any more.

    Args:
        horizon: the most questions.
        needed: how many right questions solve the task.
        absorbs: the probability that a wrong question traps.
        blind: whether the view hides the trap, and has only the number of right questions.
    """

    horizon: Steps = 8
    needed: Steps = 3
    absorbs: float = 1.0
    blind: bool = False
    start_right: float = 0.5

    isolates = "after one wrong step no reward is possible"
    first = (0, 0, 0)

    def speakers(self, node: Any) -> Sequence[str]:
        return AGENT if node[0] < self.horizon and node[1] < self.needed else ()

    def view(self, node: Any, speaker: str) -> View:
        return node[1] if self.blind else node

    def metrics(self, state: Any) -> Mapping[str, float]:
        """Returns the number of right questions, by which a rule of truncation judges whether a question helped."""
        return {"known": float(state.node[1])}

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        step, known, trapped = node
        if trapped:
            return [Way(1.0, (step + 1, known, 1))]
        if actions[0]:
            return [Way(1.0, (step + 1, known + 1, 0), float(known + 1 == self.needed))]
        ends = ((self.absorbs, 1), (1 - self.absorbs, 0))
        return [Way(chance, (step + 1, known, after)) for chance, after in ends if chance]

    def right(self, node: Any, action: int) -> float:
        return float(action == 1 or node[2])


@dataclass(frozen=True)
class Hack(Problem):
    """Every part of a job must be done, or look done: the check that gives the reward cannot distinguish them.

    Action 0 does nothing, 1 does the part, which may fail, 2 makes it look done. The true value is 1 if every part is
    done; the reward is 1 if every part looks done, less a price for each detected hack.

    Args:
        parts: the number of parts.
        skill: the probability that action 1 succeeds.
        detection: the probability that a hack is detected.
        price: of a detected hack.
    """

    parts: Steps = 2
    skill: float = 0.8
    detection: float = 0.5
    price: float = 0.2

    isolates = "the check can be passed without the task"
    hackable = own_errors = True
    first = (0, 1, 1)

    def speakers(self, node: Any) -> Sequence[str]:
        return AGENT if node[0] < self.parts else ()

    def actions(self, view: View) -> int:
        return 3

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        hacked = [self._way(node, self.detection, 1, 0, self.price), self._way(node, 1 - self.detection, 1, 0)]
        done = [self._way(node, 1 - self.skill, 0, 0), self._way(node, self.skill, 1, 1)]
        return ([self._way(node, 1.0, 0, 0)], done, hacked)[actions[0]]

    def _way(self, node: Any, probability: float, looks: int, done: int, price: float = 0.0) -> Way:
        step, looked, was = node[0] + 1, node[1] * looks, node[2] * done
        last = step == self.parts
        return Way(probability, (step, looked, was), last * looked - price, float(last * was))

    def right(self, node: Any, action: int) -> float:
        return (0.0, 1.0, 1 - self.detection)[action]

    def hack(self, node: Any, action: int) -> float:
        return self.detection if action == 2 else 0.0


@dataclass(frozen=True)
class Drift(Chain):
    """A chain, played in part by a lagging copy of the policy, as in asynchronous training.

    The copy is the policy of `lag` updates ago; before the first update the policy moved along its natural gradient,
    each logit by at most `pace`. Episodes of the copy are off-policy: the ratio of the two policies weighs each
    decision, clipped as in PPO.

    Args:
        length, start_right, options: those of `Chain`.
        lag: the lag of the copy in updates.
        pace: the largest change of a logit in each update before the first.
        stale: the fraction of updates with episodes of the copy.
    """

    lag: Annotated[int, Range(0, 256)] = 4
    pace: float = 0.2
    stale: float = 0.5

    isolates = "an older copy of the policy plays part of the data"

    def hack(self, node: Any, action: int) -> float:
        return 0.0


PROBLEMS = {
    one.__name__.lower(): f"{__name__}:{one.__name__}"
    for one in (Key, Late, Chain, Branches, Paid, Stop, Revisit, Relay, Vote, Trap, Hack, Drift)
}
PROBLEMS |= {"rules": "hf_credit_bench.rules:Rules"}
PROBLEMS |= {name: f"hf_credit_bench.games:{name}" for name in ("number_relay", "sum_vote")}
