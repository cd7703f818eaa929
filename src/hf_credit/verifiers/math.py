"""The score of a mathematical answer: 1 if it equals the gold answer, 0 otherwise (paper C3, Appendix E, Table 9).

`extraction` finds the one final answer of a reply, `answers` decides what takes no algebra, and `code_sandbox.algebra`
asks the `math-verify` library about the rest, in a process that can be killed.

What can go wrong, and who bears it: a reply without an answer, or with one that is too long or too deeply nested, is
wrong. So is an answer on which the algebra takes too much time or memory, or fails, while it works for the gold
answer: the reply is to blame, and must not be better off for it (Appendix G: time-outs and harness errors score as
incorrect). Both are counted, and the second is logged. Where the algebra does not work for the gold answer
itself, or not at all, nobody knows what the reply is worth: that is an error, and no score.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from code_sandbox.algebra import Broken, GivenUp, Worker
from hf_credit.verifiers.answers import Answer, decide, normal, without_names
from hf_credit.verifiers.extraction import MAX_ANSWER, final_answer

STATUSES = ("equal", "different", "no_answer", "given_up", "checker_failed")
"""What a check can come to; the score is 1 for the first, 0 for the next three, and unknown for the last."""

WORKER = Worker(consent="HF_CREDIT_ACCEPT_NO_ISOLATION")
"""The process that all threads share."""

_log = logging.getLogger(__name__)
_counts: Counter[str] = Counter()
_counting = threading.Lock()


class Verdict(NamedTuple):
    """What a check came to.

    Attributes:
        score: 1 or 0; 0 also where it is unknown.
        status: one of `STATUSES`.
        answer: the final answer that was found in the reply, as it is written there, `None` if there is none.
        detail: why there is no answer, or no result of the check.
    """

    score: float
    status: str
    answer: str | None = None
    detail: str = ""


class CheckerError(RuntimeError):
    """The checker does not work, so nobody knows what a reply is worth."""


def check(prediction: str, gold: str) -> Verdict:
    r"""Whether the final answer of a reply equals the gold answer, and how that was found out.

    Paper C3, Appendix E: the last answer-like span; exact rationals where both are numbers; else the normalised
    texts; else algebra under limits. Beyond the text, an answer may lack the name in "x = 5" and a unit, and 20% is
    both 20 and 1/5.

    Args:
        prediction: the reply, any text.
        gold: the right answer, plain or as the end of a solution with `\boxed{}` or `####`.

    Raises:
        ValueError: there is no gold answer, or it is too long.
    """
    right = _gold(gold)
    try:
        verdict = _check(prediction, right)
    except Exception as error:  # of our own: it too must not make a reply better than a wrong one
        verdict = Verdict(0.0, "given_up", None, f"{type(error).__name__}: {error}"[:300])
    with _counting:
        _counts[verdict.status] += 1
        times = _counts[verdict.status]
    if verdict.status in STATUSES[3:] and times & (times - 1) == 0:  # the first, second, fourth, eighth ... time
        _log.warning(
            "The check of an answer came to %s (%s) for the %d. time; the answer was %.200r, the gold answer %.200r.",
            *(verdict.status, verdict.detail, times, verdict.answer, gold),
        )
    return verdict


def score(prediction: str, gold: str) -> float:
    """1 if the final answer of a reply equals the gold answer, 0 otherwise; see `check`.

    Args:
        prediction: the reply, any text.
        gold: the right answer.

    Raises:
        ValueError: there is no gold answer, or it is too long.
        CheckerError: the checker does not work, for this gold answer or at all.
    """
    verdict = check(prediction, gold)
    if verdict.status == "checker_failed":
        raise CheckerError(f"an answer must be checked to have a score, got {verdict.detail} for the gold {gold!r}.")
    return verdict.score


def score_task(task: Mapping[str, Any], text: str) -> float:
    """The same as a scorer of a collaboration: `scorer: "hf_credit.verifiers.math:score_task"`.

    Args:
        task: a row with the gold answer as `answer`, and its origin as `source`, `split` and `source_id`.
        text: the reply.

    Raises:
        ValueError: the row has no gold answer, or one that is too long.
        CheckerError: see `score`.
    """
    try:
        return score(text, str(task.get("answer") or ""))
    except (ValueError, CheckerError) as error:
        row = " ".join(str(task[name]) for name in ("source", "split", "source_id") if task.get(name))
        kind = CheckerError if isinstance(error, CheckerError) else ValueError
        raise kind(f"{error} The row is {row or repr(task.get('problem'))[:200]}.") from error


def counts() -> dict[str, int]:
    """How many checks of this process have come to what, by status."""
    with _counting:
        return {status: _counts[status] for status in STATUSES}


def _check(prediction: str, gold: Answer) -> Verdict:
    found = final_answer(prediction)
    if found.answer is None:
        return Verdict(0.0, "no_answer", None, found.reason)
    right, answer = gold, normal(found.answer)
    equal = decide(right, answer)
    if not equal:
        right, answer = without_names(right, answer)
        # The library takes the last member of an equation for a value, so that 0 would equal every plane.
        equal = False if ("=" in right.text) != ("=" in answer.text) else decide(right, answer)
    if equal is None:
        try:
            equal = WORKER.equal(right.text, answer.text)
        except Broken as error:
            return Verdict(0.0, "checker_failed", found.answer, str(error))
        except GivenUp as error:
            blame = _trouble_with(right.text)
            status = "given_up" if blame is None else "checker_failed"
            return Verdict(0.0, status, found.answer, str(error) if blame is None else f"{blame} with the gold answer")
    return Verdict(1.0, "equal", found.answer) if equal else Verdict(0.0, "different", found.answer)


@functools.lru_cache(maxsize=4096)
def _gold(gold: str) -> Answer:
    found = final_answer(gold).answer if "boxed" in gold or "####" in gold else gold.strip()
    if not found or len(found) > MAX_ANSWER:
        raise ValueError(
            f"a gold answer must have 1 to {MAX_ANSWER:,} characters, got {len(found or '')} in {gold[:200]!r}; mend "
            "or drop the row."
        )
    return normal(found)


@functools.lru_cache(maxsize=4096)
def _trouble_with(gold: str) -> str | None:
    """Why a gold answer cannot be compared even with the simplest answers, `None` if it can."""
    try:
        for simple in ("1", "x+1"):
            WORKER.equal(gold, simple)
    except (Broken, GivenUp) as error:
        return str(error)
    return None
