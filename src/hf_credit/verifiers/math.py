"""Scores a mathematical answer: 1 if it equals the gold answer, 0 otherwise (paper C3, Appendix E, Table 9).

`extraction` finds the final answer of a reply, `answers` compares what needs no algebra, and `code_sandbox.algebra`
compares the rest with the `math-verify` library, in a process that can be killed.

Failures: a reply without an answer, or with one that is too long or too deeply nested, scores 0. So does an answer on
which the algebra fails or exceeds its time or memory although it works for the gold answer (Appendix G: time-outs and
harness errors score as incorrect). Both are counted, and the second is logged. If the algebra fails for the gold
answer too, or does not work at all, the score is unknown: that is an error.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from code_sandbox.algebra import Broken, GivenUp, Worker
from hf_credit.verifiers.answers import Answer, decide, normal, without_names, without_options, without_parameters
from hf_credit.verifiers.extraction import MAX_ANSWER, final_answer

STATUSES = ("equal", "different", "no_answer", "given_up", "checker_failed")
"""The results of a check: the first scores 1, the next three score 0, and the score of the last is unknown."""

WORKER = Worker(consent="HF_CREDIT_ACCEPT_NO_ISOLATION")
"""The algebra process that all threads share."""

_log = logging.getLogger(__name__)
_counts: Counter[str] = Counter()
_counting = threading.Lock()


class AnswerCheck(NamedTuple):
    """The result of a check.

    Attributes:
        score: 1 or 0; 0 also if it is unknown.
        status: one of `STATUSES`.
        answer: the final answer as written in the reply; `None` if it has none.
        detail: why the reply has no answer, or the check no result.
    """

    score: float
    status: str
    answer: str | None = None
    detail: str = ""


class CheckerError(RuntimeError):
    """The checker does not work, so the score of a reply is unknown."""


def check(prediction: str, gold: str) -> AnswerCheck:
    r"""Checks whether the final answer of a reply equals the gold answer.

    Paper C3, Appendix E: compares the last answer-like span as exact rationals if both are numbers, else as normalised
    texts, else by algebra under limits. Beyond the paper, the name in "x = 5" and a unit are optional, and 20% equals
    both 20 and 1/5.

    Args:
        prediction: the reply, any text.
        gold: the gold answer, plain or at the end of a solution with `\boxed{}` or `####`.

    Raises:
        ValueError: the gold answer is missing or too long.
    """
    right = _gold(gold)
    try:
        checked = _check(prediction, right)
    except Exception as error:  # a bug of ours must not reward the reply either
        checked = AnswerCheck(0.0, "given_up", None, f"{type(error).__name__}: {error}"[:300])
    with _counting:
        _counts[checked.status] += 1
        times = _counts[checked.status]
    if checked.status in STATUSES[3:] and times & (times - 1) == 0:  # the first, second, fourth, eighth ... time
        _log.warning(
            "The check of an answer came to %s (%s) for the %d. time; the answer was %.200r, the gold answer %.200r.",
            *(checked.status, checked.detail, times, checked.answer, gold),
        )
    return checked


def score(prediction: str, gold: str) -> float:
    """Returns 1 if the final answer of a reply equals the gold answer, 0 otherwise; see `check`.

    Args:
        prediction: the reply, any text.
        gold: the gold answer.

    Raises:
        ValueError: the gold answer is missing or too long.
        CheckerError: the checker does not work, for this gold answer or at all.
    """
    checked = check(prediction, gold)
    if checked.status == "checker_failed":
        raise CheckerError(
            f"the checker must handle a gold answer to score a reply, got {checked.detail} for {gold!r}; drop the row "
            "or correct the checker."
        )
    return checked.score


def score_task(task: Mapping[str, Any], text: str) -> float:
    """Scores a reply to a task row; the scorer `hf_credit.verifiers.math:score_task` of a collaboration.

    Args:
        task: a row with the gold answer as `answer`, and its origin as `source`, `split` and `source_id`.
        text: the reply.

    Raises:
        ValueError: the row's gold answer is missing or too long.
        CheckerError: as in `score`.
    """
    try:
        return score(text, "" if (gold := task.get("answer")) is None else str(gold))
    except (ValueError, CheckerError) as error:
        row = " ".join(str(task[name]) for name in ("source", "split", "source_id") if task.get(name))
        kind = CheckerError if isinstance(error, CheckerError) else ValueError
        raise kind(f"{error} The row is {row or repr(task.get('problem'))[:200]}.") from error


def counts() -> dict[str, int]:
    """Returns the number of checks in this process by status."""
    with _counting:
        return {status: _counts[status] for status in STATUSES}


def _check(prediction: str, gold: Answer) -> AnswerCheck:
    found = final_answer(prediction)
    if found.answer is None:
        return AnswerCheck(0.0, "no_answer", None, found.reason)
    right, answer = without_parameters(*without_options(gold, normal(found.answer)))
    equal = decide(right, answer)
    if not equal:
        right, answer = without_names(right, answer)
        # The library reads the last member of an equation as a value, so that 0 would equal every plane.
        equal = False if ("=" in right.text) != ("=" in answer.text) else decide(right, answer)
    if equal is None:
        try:
            equal = WORKER.equal(right.text, answer.text)
        except Broken as error:
            return AnswerCheck(0.0, "checker_failed", found.answer, str(error))
        except GivenUp as error:
            blame = _trouble_with(right.text)
            status = "given_up" if blame is None else "checker_failed"
            why = str(error) if blame is None else f"{blame} with the gold answer"
            return AnswerCheck(0.0, status, found.answer, why)
    return AnswerCheck(1.0, "equal", found.answer) if equal else AnswerCheck(0.0, "different", found.answer)


@functools.lru_cache(maxsize=4096)
def _gold(gold: str) -> Answer:
    is_solution = len(gold) > MAX_ANSWER or "boxed" in gold or "####" in gold
    answer = final_answer(gold).answer if is_solution else gold.strip()
    if not answer or len(answer) > MAX_ANSWER:
        raise ValueError(
            f"a gold answer must have 1 to {MAX_ANSWER:,} characters, got {len(answer or '')} in {gold[:200]!r}; "
            "correct or drop the row."
        )
    return normal(answer)


def _trouble_with(gold: str) -> str | None:
    """Returns why a gold answer cannot be compared even with the simplest answers; `None` if it can."""
    try:
        for simple in ("1", "x+1"):
            WORKER.equal(gold, simple)
    except (Broken, GivenUp) as error:
        return str(error)
    return None
