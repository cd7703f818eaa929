"""Sandbox: code scored by its tests, isolated, compared with a bare interpreter that is started for each snippet.

Both sides run the same solutions with the same tests, two at a time. The bare side is `python -I` on the solution and
its tests in one file, which tells success by its exit status: no isolation, no limits, one outcome for all tests. The
sandbox forks two confined processes from a warm interpreter for each solution and tells each test's outcome; it starts
and ends its interpreters within the measured time.

Seconds are those of the processor, of all processes together, so that other work on the machine does not stretch them;
snippets a second are two cores by that measure.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from common import arguments, report, take_turns

from code_sandbox.isolation import tried
from code_sandbox.pool import SandboxPool

CORES = 2
PROBLEMS = [
    (
        "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n",
        ["assert fibonacci(0) == 0", "assert fibonacci(10) == 55", "assert fibonacci(90) == 2880067194370816120"],
    ),
    (
        "import re\ndef words(text):\n    return re.findall(r'\\w+', text.lower())\n",
        ["assert words('') == []", "assert words('A b, c') == ['a', 'b', 'c']", "assert words('x-y') == ['x', 'y']"],
    ),
    (
        "from collections import Counter\ndef common(items, k):\n"
        "    return sorted(Counter(items).items(), key=lambda pair: (-pair[1], pair[0]))[:k]\n",
        [
            "assert common('abca', 1) == [('a', 2)]",
            "assert common([1, 1, 2], 2) == [(1, 2), (2, 1)]",
            "assert not common([], 3)",
        ],
    ),
    (
        "import math\ndef prime(n):\n    return n > 1 and all(n % i for i in range(2, math.isqrt(n) + 1))\n",
        ["assert prime(2)", "assert not prime(10**6 + 1)", "assert prime(10**9 + 7)"],
    ),
    (
        "import heapq\ndef smallest(items, k):\n    return heapq.nsmallest(k, items)\n",
        [
            "assert smallest([3, 1, 2], 2) == [1, 2]",
            "assert smallest([], 1) == []",
            "assert smallest(range(9), 1) == [0]",
        ],
    ),
    (
        "def transpose(matrix):\n    return [list(row) for row in zip(*matrix)]\n",
        [
            "assert transpose([[1, 2], [3, 4]]) == [[1, 3], [2, 4]]",
            "assert transpose([]) == []",
            "assert transpose([[1]]) == [[1]]",
        ],
    ),
    (
        "def add(a, b):\n    return a - b\n",
        ["assert add(1, 0) == 1", "assert add(1, 1) == 2", "assert add(0, 0) == 0"],
    ),
    ("def add(a, b:\n    return a + b\n", ["assert add(1, 0) == 1", "assert add(1, 1) == 2", "assert add(0, 0) == 0"]),
]
REQUEST = {
    "tests": 3,
    "test_seconds": 4.0,
    "wall_seconds": 24.0,
    "cpu_seconds": 16,
    "memory_bytes": 2**29,
    "scratch_bytes": 2**24,
    "seed": 0,
}


def used() -> float:
    """Processor seconds of this process and of all that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def bare(code: str, tests: list[str]) -> bool:
    done = subprocess.run(
        [sys.executable, "-I", "-c", "\n".join([code, *tests])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        timeout=60,
    )
    return done.returncode == 0


def isolated(pool: SandboxPool, level: str, code: str, tests: list[str]) -> bool:
    letters, _ = pool.run(
        level,
        REQUEST,
        json.dumps({"code": code, "setup": ""}).encode(),
        json.dumps({"tests": tests, "setup": "", "entry_point": None}).encode(),
    )
    return letters == "ppp"


def measure(
    run: Callable[[str, list[str]], bool], snippets: int, finish: Callable[[], None]
) -> tuple[int, float, float]:
    """How many passed, processor seconds, and seconds on the clock."""
    work = [PROBLEMS[place % len(PROBLEMS)] for place in range(snippets)]
    begun, clock = used(), time.perf_counter()
    with ThreadPoolExecutor(CORES) as threads:
        passed = sum(threads.map(lambda problem: run(*problem), work))
    finish()
    return passed, used() - begun, time.perf_counter() - clock


def measured_level(level: str, snippets: int) -> tuple[int, float, float]:
    pool = SandboxPool(at_once=CORES)
    return measure(lambda code, tests: isolated(pool, level, code, tests), snippets, pool.close)


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    levels = [level for level in ("namespaces", "landlock") if tried(level) is None]
    cases: dict[str, Callable[[], tuple[int, float, float]]] = {
        "a subprocess each": lambda: measure(bare, options.snippets, lambda: None)
    }
    for level in levels:
        cases[f"sandbox, {level}"] = lambda level=level: measured_level(level, options.snippets)  # type: ignore[misc]
    played = take_turns(cases, options.repeats)
    first = played["a subprocess each"]
    table = []
    for name, runs in played.items():
        assert {passed for passed, *_ in runs} == {first[0][0]}, "the sides do not agree"
        seconds = [taken for _, taken, _ in runs]
        table.append(
            {
                "runs": name,
                "CPU ms a snippet": 1000 * median(seconds) / options.snippets,
                "snippets/s on two cores": CORES * options.snippets / median(seconds),
                "snippets/s on the clock": options.snippets / median(clock for *_, clock in runs),
                "times the subprocess": median(other[1] / own for own, other in zip(seconds, first, strict=True)),
            }
        )
    return table


def main(arguments_given: list[str] | None = None) -> None:
    options = arguments(__doc__, snippets=400, repeats=5).parse_args(arguments_given)
    rows = compare(options)
    text = (
        f"{options.snippets} snippets with three tests each, two at a time; medians over repeats in turns. Processor "
        "seconds of all processes together, and what two cores do by that measure. On the clock, other work on the "
        "machine counts too."
    )
    report(options, "sandbox", text, rows)


if __name__ == "__main__":
    main()
