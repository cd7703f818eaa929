"""Code judged by unit tests, run where it can do no harm and cannot reach the tests.

    score = passed / total

(paper C3, Appendix E, "Execution Sandbox"). The code and its tests run in two confined processes, since tests in the
interpreter of hostile code prove nothing: the tester holds the tests and calls the solution through proxies, the
solver holds the code and sees arguments only. `code_sandbox.isolation` says what the machine guarantees.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal

from code_sandbox.isolation import IsolationError, isolation, required
from code_sandbox.pool import POOL, SandboxError

__all__ = [
    "IsolationError",
    "Limits",
    "Outcome",
    "SandboxError",
    "TestRun",
    "isolation",
    "run_tests",
]

Kind = Literal["passed", "failed", "error", "timeout", "memory"]
_KINDS: dict[str, Kind] = {"p": "passed", "f": "failed", "e": "error", "t": "timeout", "m": "memory"}


@dataclass(frozen=True)
class Limits:
    """What one run may use. The paper names wall-clock, processor and memory limits without their values.

    Attributes:
        test_seconds: processor time of loading the code, and of each test; on the clock at most three times that.
            So a busy machine does not change a score.
        wall_seconds: wall-clock time of the whole run; tests not reached by then have run out of time.
        cpu_seconds: processor time of each of the two processes.
        memory_bytes: address space of each of the two processes.
        scratch_bytes: the scratch folder, and any one file in it.
        code_bytes: longer code scores 0 unrun ("overlong", Appendix E).
    """

    test_seconds: float = 4.0
    wall_seconds: float = 24.0
    cpu_seconds: int = 16
    memory_bytes: int = 512 * 2**20
    scratch_bytes: int = 16 * 2**20
    code_bytes: int = 64 * 2**10

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
                raise ValueError(f"the limit {item.name} must be a finite number, got {value!r}; correct it.")
            if value <= 0:
                raise ValueError(f"the limit {item.name} must be above 0, got {value}; raise it.")


@dataclass(frozen=True)
class Outcome:
    """How one test ended.

    Attributes:
        kind: `"passed"`; `"failed"`, an assertion of the test; `"error"`, anything else that was raised, code that
            does not load, or a process that ended; `"timeout"`; `"memory"`.
        message: one short line that may quote the code under test, and so is not to be trusted; empty where passed.
    """

    kind: Kind
    message: str = ""


@dataclass(frozen=True)
class TestRun:
    """How all tests ended.

    Attributes:
        outcomes: one a test, in their order.
        seconds: wall-clock time, waiting for a free processor included.
        level: the isolation that it ran under.
    """

    __test__ = False  # for pytest, which takes classes of this name for tests

    outcomes: tuple[Outcome, ...]
    seconds: float = field(default=0.0, compare=False)
    level: str = ""

    @property
    def passed(self) -> int:
        """How many tests passed."""
        return sum(outcome.kind == "passed" for outcome in self.outcomes)

    @property
    def score(self) -> float:
        """passed / total, in [0, 1]."""
        return self.passed / len(self.outcomes)


def run_tests(
    code: str | bytes,
    tests: Sequence[str],
    *,
    setup: str = "",
    entry_point: str | None = None,
    limits: Limits | None = None,
    seed: int = 0,
    level: str | None = None,
    accept_no_isolation: bool = False,
) -> TestRun:
    """Runs each test against the code: score = passed / total (paper C3, Appendix E).

    The one door to the sandbox: nothing else in this library runs code that it was given. What is guaranteed to the
    program that asks, and to whoever wrote the tests, is in the README; `code_sandbox.isolation` says what each level
    adds. Safe to call from many threads; as many runs go on at once as there are processors.

    Args:
        code: the solution, as text or as the bytes of a source file.
        tests: snippets of Python, each of which passes if it raises nothing. The tests do not share variables.
        setup: Python that both sides run first: imports, helpers, fixtures. The solution can read it. What it defines
            stands for the tests, whatever the solution defines by the same name; only the entry point, and a class
            that the solution defines anew, are the solution's.
        entry_point: the function under test. Only this may have the name of a built-in function.
        limits: what the run may use; `Limits()` if left out.
        seed: of Python's `random` on both sides.
        level: the isolation to run at, `"namespaces"` or `"landlock"`; the best that this machine has if left out.
        accept_no_isolation: runs the code also where the machine cannot confine it: only for code you have read.

    Raises:
        ValueError: there are no tests, or one is no text.
        IsolationError: the machine cannot confine the code.
        SandboxError: the sandbox itself has failed; this says nothing about the code.
    """
    tests = [tests] if isinstance(tests, str) else list(tests)
    if not tests or not all(isinstance(test, str) and test.strip() for test in tests):
        raise ValueError(f"code must come with at least one test, each a text, got {tests!r:.100}; drop such a row.")
    limits = limits or Limits()
    level = required(level, accept_no_isolation)
    started = time.monotonic()
    empty = not code.strip()
    size = len(code) if isinstance(code, bytes) else len(code.encode("utf-8", "surrogatepass"))
    if empty or size > limits.code_bytes:
        message = "there is no code" if empty else f"the code has {size} bytes, more than {limits.code_bytes}"
        return TestRun((Outcome("error", message),) * len(tests), time.monotonic() - started, level)
    source = {"bytes": code.hex(), "code": None} if isinstance(code, bytes) else {"code": code.removeprefix("\ufeff")}
    request = dataclasses.asdict(limits) | {"tests": len(tests), "seed": seed}
    letters, messages = POOL.run(
        level,
        request,
        json.dumps(source | {"setup": setup}).encode(),
        json.dumps({"tests": tests, "setup": setup, "entry_point": entry_point}).encode(),
    )
    outcomes = tuple(
        Outcome(_KINDS[letter], _message(letter, messages.get(index))) for index, letter in enumerate(letters)
    )
    return TestRun(outcomes, time.monotonic() - started, level)


def _message(letter: str, message: str | None) -> str:
    if letter == "t":
        return "time ran out"
    return "" if letter == "p" else message or "not run, because a process had ended before"
