"""Judges that answer a player's question about a hidden story: Yes, No or Unknown (paper T3, Figure 9)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from hf_credit.replies import spoken

YES, NO, UNKNOWN = "Yes", "No", "Unknown"
NO_QUESTION = "This is not a question, please propose your next question."
VERDICTS = (YES, NO, UNKNOWN, NO_QUESTION)

Judge = Callable[[str, str, str], str]
"""Any function of the surface, the bottom and a question that returns one of `VERDICTS`."""

_LEADING_VERDICT = re.compile(r"\W*(yes|no|unknown|this is not a question)\b", re.IGNORECASE)


class FactJudge:
    """A judge with a table: an absent question is Unknown, and a text that does not end in `?` is not a question.

    Args:
        facts: the verdict on each question, which is matched without regard to white space and case.

    Raises:
        ValueError: a verdict is not Yes, No or Unknown.
    """

    def __init__(self, facts: Mapping[str, str]) -> None:
        for question, verdict in facts.items():
            if verdict not in (YES, NO, UNKNOWN):
                raise ValueError(
                    f"a fact must be {YES}, {NO} or {UNKNOWN}, got {verdict!r} for {question!r}; correct it."
                )
        self._facts = {folded(question): verdict for question, verdict in facts.items()}

    def __call__(self, surface: str, bottom: str, question: str) -> str:
        """Returns the verdict on a question."""
        if not question.rstrip().endswith("?"):
            return NO_QUESTION
        return self._facts.get(folded(question), UNKNOWN)


def judge_prompt(surface: str, bottom: str, question: str) -> str:
    """Returns the prompt of a judge model (Figure 9)."""
    # One pass: texts of players may contain placeholders.
    values = {"{surface}": surface, "{bottom}": bottom, "{question}": question}
    return re.sub("|".join(map(re.escape, values)), lambda placeholder: values[placeholder[0]], _PROMPT)


def read_verdict(reply: str) -> str:
    """Returns the verdict at the start of a judge model's reply, after its thoughts; Unknown if there is none."""
    verdict = _LEADING_VERDICT.match(spoken(reply))
    if verdict is None:
        return UNKNOWN
    return {"yes": YES, "no": NO, "unknown": UNKNOWN}.get(verdict[1].lower(), NO_QUESTION)


def folded(question: str) -> str:
    """Returns a question with single spaces and without case, as the key of its equals."""
    return " ".join(question.split()).casefold()


# Figure 9. The paper shows no line breaks; these are ours.
_PROMPT = """\
You are the referee of a game where players are shown a <Surface> and you are given the <Bottom>. You need to \
understand the entire story based on both the <Surface> and <Bottom>. Players will ask questions based on the \
<Surface>, and you need to judge whether their guesses are correct. Please strictly adhere to answering with only \
three specified responses: Yes, No, or Unknown, without any explanation.
## Judging Rules
- If the player's question matches the given <Surface> and <Bottom>: Please only answer "Yes" without any explanation.
- If the player's question contradicts the given story: Please only answer "No" without any explanation.
- If the answer to the player's question cannot be found in the <Surface> and <Bottom>, and cannot be deduced through \
reasoning: Please only answer "Unknown" without any explanation.
- If the player directly ask for the answer, please only answer "This is not a question, please propose your next \
question."
- If the player does not propose a question or question that not for solve the puzzle, please only answer "This is \
not a question, please propose your next question."
## Important Notes
1. Fully understand the cause, process, and outcome of the entire story, and make logical inferences.
2. If a conclusion cannot be drawn from the provided story or through reasonable inference, answer "Unknown".
3. Strictly adhere to answering with only the three specified responses: Yes, No, or Unknown. Do not provide \
additional explanations.
4. Carefully check whether the player ask for the answer, if a player do so, please only answer "This is not a \
question, please propose your next question."
## Examples
### Example 1: The Hiccuping Man
<Surface>
A man walks into a bar and asks the bartender for a glass of water. The bartender suddenly pulls out a gun and points \
it at him. The man smiles and says, "Thank you!" then calmly leaves. What happened?
<Bottom>
The man had hiccups and wanted a glass of water to cure them. The bartender realized this and chose to scare him with \
a gun. The man's hiccups disappeared due to the sudden shock, so he sincerely thanked the bartender before leaving.
Possible questions and corresponding answers:
Q: Does the man have a chronic illness? A: Unknown
Q: Was the man scared away? A: No
Q: Did the bartender want to kill the man? A: No
Q: Did the bartender intend to scare the man? A: Yes
Q: Did the man sincerely thank the bartender? A: Yes
## Question Content
### <Surface>
{surface}
### <Bottom>
{bottom}
Now, please judge the following player question:
{question}
Answer with only one of the three specified responses: Yes, No, or Unknown, without any explanation."""
