"""Roles in sequence: a reasoner and an actor (paper C3, Appendix B, Table 5), or thinkers and a solver (CCPO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from hf_credit.collaborations.base import Collaboration
from hf_credit.collaborations.graph import Event
from hf_credit.collaborations.scorers import Scorer
from hf_credit.collaborations.text import normalise, sanitise_mathematics, without_final_box
from hf_credit.registry import remembers_its_call
from hf_credit.validators import one_of

PROMPTS = {
    "math": {
        "reasoner": (
            "Two LLM agents in the Reasoner→Actor protocol collaborate step-by-step to solve math problems. You are "
            "the Reasoner: Analyze the original problem, historical actions, and reflection data when provided to "
            "determine the critical next step. Guide the Actor by providing concise reasoning for the optimal "
            "operation."
        ),
        "actor": (
            "Two LLM agents in the Reasoner→Actor protocol collaborate step-by-step. You are the Actor: Execute "
            "operations using the original problem, action history, and Reasoner’s guidance. Provide final answer "
            "within \\boxed{}."
        ),
    },
    "code": {
        "reasoner": (
            "Two LLM agents in the Reasoner→Actor protocol collaborate to solve Python coding problems. You are the "
            "Reasoner. Your job: Read the problem and any previous actions; give the Actor a short, actionable plan: "
            "algorithm choice, edge cases, and exact function signature or name to implement when given in the "
            "prompt. Rules: Do NOT write code. Keep it concise and structured; bullet points are fine."
        ),
        "actor": (
            "Two LLM agents in the Reasoner→Actor protocol collaborate to solve Python coding problems. You are the "
            "Actor. Your job: Produce the final solution as executable Python code. Output rules: Output ONLY Python "
            "code: no explanations, no markdown fences, no \\boxed{}. Define the required function with the correct "
            "name and signature as given in the prompt or tests. The code must run under standard Python 3. Do not "
            "read input() or print(); just define the function."
        ),
    },
}
"""The system prompts of Appendix B. The available text of the paper has the arrow as LaTeX and no line breaks."""


@remembers_its_call("reasoner_actor")
def reasoner_actor(domain: Literal["math", "code"], scorer: Scorer | str, column: str = "problem") -> Collaboration:
    """Returns the collaboration: the actor sees the problem and the reasoner's output, and only its answer is scored.

    Outputs in mathematics are sanitised, code is not.

    Args:
        domain: of the prompts, `"math"` or `"code"`.
        scorer: scores the actor's text, given the task row, in [0, 1].
        column: the column of the task row that both see as the problem. For code it must contain the signature of the
            function that the tests call.

    Raises:
        ValueError: the domain is unknown, or the scorer is invalid.
    """
    one_of("domain", domain, PROMPTS)
    return Collaboration(
        roles=PROMPTS[domain],
        events=[
            Event("reasoner", role="reasoner", column=column),
            Event("actor", role="actor", after="reasoner", column=column),
        ],
        final="actor",
        scorer=scorer,
        sanitise=sanitise_mathematics if domain == "math" else None,
    )


SOLVER = "solver"

THINKER_PROMPT = (
    "A colleague will solve this problem after you. Prepare the ground: say which approach fits, which facts and "
    "formulas it takes and which steps in which order, and where one goes wrong easily. If others have left notes "
    "before you, add what they lack. Leave the last calculation to your colleague and state no final answer."
)
SOLVER_PROMPT = (
    "Solve the problem and put the final answer into \\boxed{}. If colleagues have left notes, check them first, and "
    "build on what is right in them."
)
"""Ours; the paper shows none."""


class ThinkSolve(Collaboration):
    """Thinkers speak in sequence, the solver last; only the solver's answer is scored.

    Each sees the problem and all earlier outputs. A thinker can be removed: earlier outputs stay, later roles reply
    again. Without any thinker the solver answers the bare problem (paper CCPO, eq. 27), with its usual system prompt.

    Args:
        roles: the system prompt of each role, in speaking order; the last one is the solver.
        scorer: scores the solver's text, given the task row, in [0, 1].
        columns: the column of the task row that each role sees as the problem.
        strip_box: whether to remove a box at the end of a thinker's output.

    Raises:
        ValueError: there is no thinker, or as for `Collaboration`.
    """

    def __init__(
        self, roles: Mapping[str, str], scorer: Scorer | str, columns: Mapping[str, str], strip_box: bool = False
    ) -> None:
        names = tuple(roles)
        if len(names) < 2:
            raise ValueError(f"a thinker must speak before the solver, got only {names or 'nobody'}; name a thinker.")
        events = [
            Event(name, role=name, after=names[max(index - 1, 0) : index], sees=names[:index], column=columns[name])
            for index, name in enumerate(names)
        ]
        super().__init__(roles=roles, events=events, final=names[-1], scorer=scorer)
        self.strip_box = strip_box

    def show(self, problem: str, heard: Sequence[tuple[str, str]]) -> str:
        notes = (f"Notes of the {role}:\n{output}" for role, output in heard)
        return "\n\n".join([problem, *notes])

    def _output(self, event: Event, reply: str) -> str:
        output = super()._output(event, reply)
        strips = self.strip_box and event.name != self.scored_event
        return normalise(without_final_box(output)) if strips else output


@remembers_its_call("think_solve")
def think_solve(
    scorer: Scorer | str,
    thinkers: Sequence[str] = ("thinker",),
    column: str = "problem",
    strip_box: bool = False,
    prompts: Mapping[str, str] | None = None,
) -> ThinkSolve:
    """Returns the collaboration of the thinkers and `solver`.

    Args:
        scorer: scores the solver's text, given the task row, in [0, 1]: a function, or its
            `"package.module:function"`.
        thinkers: different names in speaking order, at least one.
        column: the column of the task row that all see as the problem.
        strip_box: whether to remove a `\\boxed{}` at the end of a thought, as in the public code of June 2026.
        prompts: system prompts instead of ours, by role.

    Raises:
        ValueError: there is no thinker, a name occurs twice, or a prompt's role is unknown.
    """
    names = (*([thinkers] if isinstance(thinkers, str) else thinkers), SOLVER)
    if len(set(names)) < len(names):
        raise ValueError(f"roles must have different names, got {', '.join(names)}; rename a thinker.")
    roles = {name: SOLVER_PROMPT if name == SOLVER else THINKER_PROMPT for name in names}
    for name in prompts or {}:
        one_of("the role of a prompt", name, names)
    return ThinkSolve({**roles, **(prompts or {})}, scorer, dict.fromkeys(names, column), strip_box)
