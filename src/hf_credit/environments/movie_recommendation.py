"""MovieRecommendation: learn preferences, then recommend an unseen movie (paper T3, Appendix C.1, Figure 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from hf_credit.boundary import Range
from hf_credit.environments.preference_estimation import (
    RULES,
    TASKS,
    PreferenceEstimation,
    PreferenceState,
    listing,
    read_movies,
    utility,
)
from hf_credit.environments.queries import ANSWER
from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import split_of
from hf_credit.options import Count


@dataclass(eq=False, repr=False)
class MovieRecommendation(PreferenceEstimation):
    """As PreferenceEstimation, but the agent uses its last turn to recommend one of several unseen movies.

    The unseen movies are shown only in the last turn, so an earlier answer is invalid. Reward 1 for the exact name of
    the one with the highest utility for the user, else 0.

    Args:
        unseen: the number of unseen movies, at least 2.
        attributes, movies, levels, sampling, turns, wording: as in PreferenceEstimation.

    Raises:
        ValueError: an option is outside its range.
    """

    name = "movie_recommendation"
    task_columns = ("levels", "weights", "names", "scores", "unseen_names", "unseen_scores")
    rules = (
        f"{RULES} With the last turn unseen movies are shown: <answer>Film1</answer> recommends the one that is "
        "worth most. No earlier answer counts."
    )

    turns: Count = 5
    unseen: Annotated[int, Range(2, 26)] = 10

    def sample_task(self, seed: int) -> dict[str, Any]:
        """Draws a task from the split of the seed. Unseen movies are redrawn if two share the highest utility."""
        task = super().sample_task(seed)
        split, index = split_of(seed)
        rng = stream(index % TASKS[split], self.name, split, "unseen", self.attributes, self.levels, self.unseen)
        while True:
            scores = [[rng.randint(0, self.levels) for _ in range(self.attributes)] for _ in range(self.unseen)]
            values = sorted(utility(task["weights"], vector) for vector in scores)
            if values[-1] > values[-2]:
                break
        return {**task, "unseen_names": [f"Film{place + 1}" for place in range(self.unseen)], "unseen_scores": scores}

    def initial_state(self, task: Mapping[str, Any], seed: int) -> PreferenceState:
        """The state of a task row, before any query.

        Raises:
            ValueError: as in PreferenceEstimation, two movies share a name, or two unseen ones the highest utility.
        """
        known = super().initial_state(task, seed)
        names, scores = read_movies(task["unseen_names"], task["unseen_scores"], known.levels, len(known.weights))
        if shared := sorted({*names} & {*known.names}):
            raise ValueError(f"movies must have different names, got {shared} seen and unseen; rename them.")
        values = sorted(utility(known.weights, vector) for vector in scores)
        if values[-1] == values[-2]:
            raise ValueError("one unseen movie must have a higher utility than the others, got a tie; change a score.")
        return replace(known, unseen_names=names, unseen_scores=scores)

    def observe(self, state: PreferenceState) -> str:
        observation = super().observe(state)
        last_turn = state.status == "active" and state.left == 1
        return f"{observation}\n{self.answer_prompt(state)}" if last_turn else observation

    def answer_prompt(self, state: PreferenceState) -> str:
        brief = self.wording == "brief"
        listed = "\n".join(listing(state.unseen_names, state.unseen_scores, state.levels, brief))
        return f"Recommend:\n{listed}" if brief else _LAST.format(listed=listed)

    def _example_answers(self, state: PreferenceState) -> tuple[str, ...]:
        return tuple(f"{ANSWER} {name}" for name in state.unseen_names) if state.left == 1 else ()

    def _opening(self, state: PreferenceState) -> str:
        if self.wording == "brief":
            return super()._opening(state)
        return f"{super()._opening(state).split('## Final Stage:')[0]}Please Start with your first <interact> block."

    def _read_answer(self, state: PreferenceState, content: str) -> str | None:
        return content if state.left == 1 and content in state.unseen_names else None

    def _reward(self, state: PreferenceState, answer: str) -> float:
        values = [utility(state.weights, vector) for vector in state.unseen_scores]
        return float(state.unseen_names[values.index(max(values))] == answer)


# Figure 11. The paper lost its line breaks; these are ours.
_LAST = """\
Final Turn: Now you have reached the last turn. Instead of asking a new question, use your most recent preference \
guess to score the following unseen movies and recommend the best one.
{listed}
Here is an example of how to proceed:
Preference vector (guess): 0.2,0.7,0.5
Example Unseen movies:
Movie_A: [0.6,1.0,0.8]
Movie_B: [1.2,0.3,0.4]
Movie_C: [0.5,0.8,0.9]
Scoring:
Movie_A = 0.2*0.6 + 0.7*1.0 + 0.5*0.8 = 1.22
Movie_B = 0.2*1.2 + 0.7*0.3 + 0.5*0.4 = 0.65
Movie_C = 0.2*0.5 + 0.7*0.8 + 0.5*0.9 = 1.11
Best = Movie_A
<answer>Movie_A</answer>
Your goal: Now do the same with your own latest preference vector and the given unseen movies. After scoring, return \
the final answer enclosed within <answer> and </answer>. The answer must be exactly one of the unseen movie names."""
