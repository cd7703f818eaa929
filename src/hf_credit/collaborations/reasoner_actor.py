"""A reasoner plans, an actor answers: the protocol of all experiments of the paper C3 (Appendix B, Table 5)."""

from __future__ import annotations

from typing import Literal

from hf_credit.collaborations.base import Collaboration
from hf_credit.collaborations.graph import Event
from hf_credit.collaborations.scorers import Scorer
from hf_credit.collaborations.text import sanitise_mathematics
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
