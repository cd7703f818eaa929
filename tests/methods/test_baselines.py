"""No baseline depends on its action: every method on a world with a recurring state, by full enumeration.

An episode begins in the context X. There `go` ends it with 1/2, `stay` leads back to X, and `leave` ends it with 0;
the second time `go` ends it with 1, `stay` with 0 and `leave` with 1/4. Given all that came before a decision, the
expected credit of its action is then k Q(action) + c, with one k above 0 and one c for all actions.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from hf_credit import methods
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.collectors.answers import ANSWER
from hf_credit.methods import METHODS
from hf_credit.methods.replay_loo import LeaveOneOut
from hf_credit.options import options_of
from hf_credit.rollouts import Decision, Ending, Episode, LocalContext
from hf_credit.rollouts.rows import one_number

POLICY = {"go": 0.3, "stay": 0.5, "leave": 0.2}
FIRST, SECOND = {"go": 0.5, "leave": 0.0}, {"go": 1.0, "stay": 0.0, "leave": 0.25}
VALUE = {1: sum(POLICY[action] * worth for action, worth in SECOND.items())}
Q = [{**FIRST, "stay": VALUE[1]}, SECOND]
VALUE[0] = sum(POLICY[action] * worth for action, worth in Q[0].items())
FLAT = {"eps": 1e7}  # so large that deviations are only the unit of the credit

PATHS: dict[str, dict[str, Any]] = {
    "arew": FLAT,
    "gigpo": {"anchor": "context", "gamma": 1.0},
    # With a history, a level counts only if its advantage is not 0, which depends on the action.
    "hgpo": {"anchor": "context", "gamma": 1.0, "history": 0, **FLAT},
    "igpo": {"normalise": "separate", **FLAT},  # joint means have as many entries of an episode as it has turns
    "replay_loo": {"budget": 3, "alternatives": (3,)},
    "trace": {"turn_weight": 0.0, **FLAT},  # the weight of the outcome in a turn depends on the turns left
    "vineppo": {"whiten": False},
}
"""Options of methods on three episodes, where the default ones, with deviations as units, do not do."""
TREES: dict[str, dict[str, Any]] = {
    "active_replay": {},
    "alive_baseline": {},
    "all_turns_baseline": {},
    "carl": {},
    "replay_loo": {"budget": 4, "alternatives": (2, 2)},
    "rloo": {},
}
"""Options of methods on a tree of two and two branches."""
OTHERS = {
    "at2po": "its credit is a value, from which no baseline of the state is subtracted",
    "constrained_counterfactual": "compares outcomes of an auditor, with a critic and replacements as baselines",
    "counterfactual_grpo": "compares contributions, shaped by moments of the update, its own included",
    "maxrl": "divides by the mean of the group, which is its objective: log p",
    "mc_process_reward": "divides by the deviation of a turn, with its values from elsewhere, as vineppo",
    "outcome_reward": "divides by the deviation of all outcomes, its own included",
    "reinforce_plus_plus": "divides by the deviation of all outcomes, its own included",
    "sepo": "compares whole episodes as grpo, of teams",
    "tree_grpo": "compares the leaves of a tree, of which those of a decision are as many as its action leads to",
}
"""Why the law says nothing about a method."""
OTHERS |= {
    name: "compares verdicts"
    for name in {*METHODS} - {*PATHS}
    if "verdicts" in getattr(methods.make(name).estimator, "needs", ())
}
PATHS |= {
    name: FLAT if "eps" in options_of(methods.find(name)) else {}
    for name in METHODS
    if not {name} & {*PATHS, *OTHERS, "carl"}
}


def decision(action: str, turn: int) -> Decision:
    return Decision(
        role="agent",
        state=turn,
        context_ids=(1,),
        action_ids=(2,),
        logprobs=(-1.0,),
        action_text=action,
        step=turn,
        extras={ANSWER: -1.0},
    )


def subtrees(width: int) -> Iterator[tuple[float, list[tuple[Decision, ...]], list[float]]]:
    """The probability, paths and outcomes of what begins with one draw in X, and branches `width` times after it."""
    for action, chance in POLICY.items():
        first = decision(action, 0)
        if action != "stay":
            yield chance, [(first,)], [FIRST[action]]
            continue
        for later in itertools.product(SECOND, repeat=width):
            weight = chance
            for one in later:
                weight *= POLICY[one]
            yield weight, [(first, decision(one, 1)) for one in later], [SECOND[one] for one in later]


def batches(roots: int, width: int) -> Iterator[tuple[float, RolloutBatch]]:
    """The probability of each batch, and the batch; also with continuations that know the values of states."""
    for parts in itertools.product([*subtrees(width)], repeat=roots):
        rollouts = []
        for root, (_, paths, outcomes) in enumerate(parts):
            fresh = {one.id: decision(one.action_text, one.step or 0) for path in paths for one in path}
            for branch, (path, outcome) in enumerate(zip(paths, outcomes, strict=True)):
                episode = Episode(
                    decisions=tuple(fresh[one.id] for one in path),
                    outcome=outcome,
                    ending=Ending.FINISHED,
                    num_leaves=width // len(paths),
                    branch=(root, branch)[: len(path) if width > 1 else 1],
                    prefix_length=int(branch > 0),
                )
                rollouts.append(Rollout(episode=episode, instance=0))
            for one in fresh.values():
                known = Episode(decisions=(), outcome=VALUE[one.step or 0], ending=Ending.FINISHED)
                rollouts.append(Rollout(episode=known, instance=0, trained=False, kind="continuation", source=one.id))
        yield math.prod(chance for chance, _, _ in parts), RolloutBatch(rollouts=tuple(rollouts), rows=1)


def expected_credit(method: Any, roots: int, width: int) -> list[dict[str, float]]:
    """For each turn, the expected credit of the actions of the first episode's decision, 0 for none."""
    sums, chances = Counter[tuple[int | None, str]](), Counter[tuple[int | None, str]]()
    critic = LocalContext(critics={"critic": lambda inputs: [(0.3,) * len(one.at) for one in inputs]})
    for chance, collected in batches(roots, width):
        credit = method.estimator(collected, critic, method.memory)
        for one in collected.episodes[0].decisions:
            sums[one.step, one.action_text] += chance * (one_number(credit.decisions.get(one.id)) or 0.0)
            chances[one.step, one.action_text] += chance
    return [{action: sums[turn, action] / chances[turn, action] for action in POLICY} for turn in (0, 1)]


def centred(numbers: dict[str, float]) -> list[float]:
    mean = sum(POLICY[action] * value for action, value in numbers.items())
    return [numbers[action] - mean for action in POLICY]


def factors(method: Any, roots: int, width: int) -> list[list[float]]:
    """For each turn, the expected credit of each action divided by its value, both minus their means."""
    pairs = zip(expected_credit(method, roots, width), Q, strict=True)
    return [[a / b for a, b in zip(centred(given), centred(right), strict=True)] for given, right in pairs]


def test_every_method_is_held_to_the_law_or_has_a_reason() -> None:
    assert {*PATHS, *TREES, *OTHERS} == {*METHODS}
    assert not {*PATHS, *TREES} & {*OTHERS}


@pytest.mark.parametrize(
    ("name", "roots", "width"),
    [*((name, 3, 1) for name in sorted(PATHS)), *((name, 2, 2) for name in sorted(TREES))],
)
def test_the_expected_credit_of_actions_differs_as_their_values(name: str, roots: int, width: int) -> None:
    method = methods.make(name, **(PATHS if width == 1 else TREES)[name])
    for of_turn in factors(method, roots, width):
        assert of_turn[0] > 0
        assert of_turn == pytest.approx([of_turn[0]] * 3, rel=1e-4)


@pytest.mark.parametrize("name", ["gigpo", "hgpo"])
def test_with_repeats_as_in_the_papers_it_does_not(name: str) -> None:
    first, _ = factors(methods.make(name, **PATHS[name], repeats=True), 3, 1)
    assert max(first) > 1.05 * min(first)


@pytest.mark.parametrize("number", [2, 4, 6])
def test_replay_loo_has_the_exact_gradient_in_a_world_with_one_context(number: int) -> None:
    """Go ends the first turn with 1/2 and the second with 1, stay the second with 0; pi(go) = .3 in both."""
    go, estimator = 0.3, LeaveOneOut()
    paths = [("go",), ("stay", "go"), ("stay", "stay")]
    chances, outcomes = [go, (1 - go) * go, (1 - go) ** 2], [0.5, 1.0, 0.0]
    gradient = 0.0
    for drawn in itertools.combinations_with_replacement(range(3), number):
        times = math.factorial(number) / math.prod(math.factorial(drawn.count(one)) for one in range(3))
        episodes = [
            Episode(
                decisions=tuple(decision(action, turn) for turn, action in enumerate(paths[one])),
                outcome=outcomes[one],
                ending=Ending.FINISHED,
            )
            for one in drawn
        ]
        batch = RolloutBatch(rollouts=tuple(Rollout(episode=one, instance=0) for one in episodes), rows=1)
        credit = estimator(batch, LocalContext(), None).decisions
        slope = sum(
            (one_number(credit[one.id]) or 0.0) * (1 - go if one.action_text == "go" else -go)
            for episode in episodes
            for one in episode.decisions
        )
        gradient += times * math.prod(chances[one] for one in drawn) * slope / number
    assert gradient == pytest.approx(0.189)
