"""Some think, one solves: the sequential topology of the paper CCPO (sections 3 and 4.1, Appendix B.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hf_credit.collaborations.base import Collaboration
from hf_credit.collaborations.graph import Event
from hf_credit.collaborations.scorers import Scorer
from hf_credit.collaborations.text import normalise, without_final_box
from hf_credit.registry import remembers_its_call

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
    """Thinkers speak one after the other, the solver last, and its answer alone is scored.

    Each sees the problem and what all before it said; who has nobody before it sees the problem alone. A thinker can
    be left out: what was said before it stays, and those after it speak anew. Without all of them the solver answers
    the bare problem (paper CCPO, eq. 27), with the system prompt it always has.

    Args:
        roles: the system prompt of each, in the order in which they speak; the last one solves.
        scorer: given the task row and the last one's text, says what it is worth, in [0, 1].
        columns: the column of the task row that each sees as the problem.
        strip_box: whether a box at the end of a thinker's output is taken out.

    Raises:
        ValueError: there is no thinker, or as for `Collaboration`.
    """

    def __init__(
        self, roles: Mapping[str, str], scorer: Scorer | str, columns: Mapping[str, str], strip_box: bool = False
    ) -> None:
        names = tuple(roles)
        if len(names) < 2:
            raise ValueError(f"somebody must think before the solver, got {names or 'nobody'} alone; name a thinker.")
        events = [
            Event(name, role=name, after=names[max(place - 1, 0) : place], sees=names[:place], column=columns[name])
            for place, name in enumerate(names)
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
    """The collaboration. Its roles are the thinkers and `solver`.

    Args:
        scorer: given the task row and the solver's text, says what it is worth, in [0, 1]: a function, or the
            `"package.module:function"` of one.
        thinkers: their names, in the order in which they speak; at least one, none twice.
        column: the column of the task row that all see as the problem.
        strip_box: whether a `\\boxed{}` at the end of a thought is taken out, as in the public code of June 2026.
        prompts: system prompts in place of ours, by role.

    Raises:
        ValueError: there is no thinker, a name occurs twice, or a prompt is of nobody.
    """
    names = (*([thinkers] if isinstance(thinkers, str) else thinkers), SOLVER)
    if len(set(names)) < len(names):
        raise ValueError(f"roles must have names of their own, got {', '.join(names)}; rename a thinker.")
    roles = {name: SOLVER_PROMPT if name == SOLVER else THINKER_PROMPT for name in names}
    for name in prompts or {}:
        if name not in roles:
            raise ValueError(f"a prompt must be of one of the roles {', '.join(names)}, got {name!r}; correct it.")
    return ThinkSolve({**roles, **(prompts or {})}, scorer, dict.fromkeys(names, column), strip_box)
