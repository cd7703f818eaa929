"""Judges code by unit tests, where the code can do no harm and cannot reach the tests.

    score = passed / total

(paper C3, Appendix E, "Execution Sandbox"). The code and its tests run in two confined processes, since tests in the
interpreter of hostile code prove nothing: the tester holds the tests and calls the solution through proxies, the
solver holds the code and sees arguments only. `code_sandbox.isolation` returns the guarantees of the machine.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Literal

from code_sandbox.isolation import IsolationError, isolation, required
from code_sandbox.pool import POOL, SandboxError

__all__ = ["IsolationError", "Limits", "Outcome", "SandboxError", "TestRun", "isolation", "run_tests"]

Kind = Literal["passed", "failed", "error", "timeout", "memory"]
_KINDS: dict[str, Kind] = {"p": "passed", "f": "failed", "e": "error", "t": "timeout", "m": "memory"}


@dataclass(frozen=True)
class Limits:
    """Limits of one run. The paper names wall-clock, CPU and memory limits without their values.

    Attributes:
        test_seconds: CPU time of loading the code, and of each test; wall-clock time at most three times that,
            so that a busy machine does not change a score.
        wall_seconds: wall-clock time of the whole run; the outcome of tests not reached by then is `"timeout"`.
        cpu_seconds: CPU time of each of the two processes.
        memory_bytes: address space of each of the two processes.
        scratch_bytes: size of the scratch folder, and of each file in it.
        code_bytes: longer code does not run and scores 0 ("overlong", Appendix E).
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
            kind, what = (Integral, "whole") if item.type == "int" else (Real, "finite")
            if not isinstance(value, kind) or isinstance(value, bool) or not math.isfinite(value):
                raise ValueError(f"the limit {item.name} must be a {what} number, got {value!r}; correct it.")
            if value <= 0:
                raise ValueError(f"the limit {item.name} must be above 0, got {value}; raise it.")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test.

    Attributes:
        kind: `"passed"`; `"failed"`, an assertion of the test failed; `"error"`, another exception, code that does
            not load, or a process that ended; `"timeout"`; `"memory"`.
        message: one short line, empty if passed. It may quote the code under test: do not trust it.
    """

    kind: Kind
    message: str = ""


@dataclass(frozen=True)
class TestRun:
    """The outcomes of all tests.

    Attributes:
        outcomes: of the tests, in their order.
        seconds: wall-clock time, with the wait for a free CPU.
        level: the isolation level of the run.
    """

    __test__ = False  # pytest collects classes of this name

    outcomes: tuple[Outcome, ...]
    seconds: float = field(default=0.0, compare=False)
    level: str = ""

    @property
    def passed(self) -> int:
        """The number of tests that passed."""
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

    Nothing else in this library runs code of others. The README lists the guarantees for the calling program and for
    the author of the tests; `code_sandbox.isolation` has those of each level. Safe to call from many threads; as many
    runs work in parallel as there are CPUs.

    Args:
        code: the solution, as text or as the bytes of a source file.
        tests: snippets of Python, each of which passes if it raises nothing. The tests do not share variables. The
            name of a module of the standard library is that module, imported or not, unless a test or the setup calls
            it. Any other name that neither they nor the setup define is the solution's, if it is no module: a test
            that calls `isclose` without importing it asks the code under test, and tells it what is expected.
        setup: Python that both sides run first: imports, helpers, fixtures. The solution can read it. Its definitions
            hold in the tests, even if the solution defines the same names; only the entry point, and a class that the
            solution redefines, are the solution's.
        entry_point: the function under test. Only this may have the name of a built-in function, and that of a module
            of the standard library even if no test calls it.
        limits: of the run; `Limits()` by default.
        seed: of Python's `random` on both sides.
        level: the isolation level, `"namespaces"` or `"landlock"`; by default the best that this machine offers.
        accept_no_isolation: also run the code where the machine cannot confine it; only for code that you have read.

    Raises:
        ValueError: `tests` is empty, or a test is not a text.
        IsolationError: the machine cannot confine the code.
        SandboxError: the sandbox itself failed; this implies nothing about the code.
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
