"""Scores of code: right and wrong solutions, how each test ended, odd sources, and all reference solutions."""

from __future__ import annotations

import ast
import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.verifiers.code import (
    IsolationError,
    Limits,
    Outcome,
    TestRun,
    extract_code,
    isolation,
    run_tests,
    score,
    verbatim_score,
)

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
ADD = "def add(a, b):\n    return a + b\n"
TESTS = ["assert add(2, 3) == 5", "assert add(-1, 1) == 0"]

pytestmark = pytest.mark.skipif(isolation().level == "none", reason=f"nothing confines code here: {isolation()}")


def kinds(result: TestRun) -> list[str]:
    return [outcome.kind for outcome in result.outcomes]


def test_right_code_passes_all_tests() -> None:
    result = run_tests(ADD, TESTS)
    assert result.outcomes == (Outcome("passed"), Outcome("passed"))
    assert (result.score, result.passed) == (1.0, 2)
    assert result.level == isolation().level


def test_the_score_is_the_share_of_tests_that_passed() -> None:
    tests = ["assert add(2, 3) == 5", "assert add(2, 2) == 5", "assert add(1)", "assert subtract(1, 1) == 0"]
    result = run_tests(ADD, tests)
    assert kinds(result) == ["passed", "failed", "error", "error"]
    assert result.score == 0.25
    assert result.outcomes[1].message == "AssertionError"
    assert result.outcomes[2].message.startswith("TypeError: add() missing 1 required")
    assert result.outcomes[3].message == "NameError: name 'subtract' is not defined"


def test_an_assertions_text_is_told() -> None:
    (outcome,) = run_tests(ADD, ["assert add(1, 1) == 3, 'not three\\n\\x1b'"]).outcomes
    assert outcome == Outcome("failed", "AssertionError: not three??")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def add(a, b:\n    return 1", "SyntaxError"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("class Own(ValueError):\n    pass\nraise Own('x')", "Own: x"),
    ],
)
def test_code_that_does_not_load_is_an_error_of_every_test(code: str, message: str) -> None:
    result = run_tests(code, TESTS)
    assert kinds(result) == ["error", "error"]
    assert all(outcome.message.startswith(message) for outcome in result.outcomes)


def test_a_test_that_runs_out_of_time_does_not_stop_the_next() -> None:
    code = "def wait(n):\n    while n:\n        pass\n    return n\n"
    tests = ["assert wait(0) == 0", "assert wait(1) == 0", "assert wait(0) == 0"]
    result = run_tests(code, tests, limits=Limits(test_seconds=0.3))
    assert kinds(result) == ["passed", "timeout", "passed"]
    assert result.outcomes[1].message == "time ran out"


def test_no_test_is_begun_after_the_time_of_the_run() -> None:
    code = "import time\ndef wait():\n    time.sleep(100)\n"
    result = run_tests(code, ["wait()"] * 50, limits=Limits(test_seconds=0.2, wall_seconds=1.0))
    assert kinds(result) == ["timeout"] * 50


def test_processor_time_is_limited_whatever_the_clock_says() -> None:
    code = "def loop():\n    while True:\n        pass\n"
    result = run_tests(code, ["loop()"], limits=Limits(test_seconds=60, wall_seconds=60, cpu_seconds=1))
    assert kinds(result) == ["timeout"]


def test_memory_that_runs_out_is_told_and_does_not_stop_the_next_test() -> None:
    code = "def take(n):\n    return len(bytearray(n))\n"
    result = run_tests(code, ["assert take(10**10)", "assert take(10) == 10"])
    assert kinds(result) == ["memory", "passed"]


def test_what_ends_the_solution_leaves_no_later_test_passed() -> None:
    code = "import os\ndef add(a, b):\n    if a < 0:\n        os._exit(0)\n    return a + b\n"
    result = run_tests(code, ["assert add(1, 1) == 2", "assert add(-1, 1) == 0", "assert add(2, 2) == 4"])
    assert kinds(result) == ["passed", "error", "error"]
    assert result.outcomes[1].message == "the solution's process has ended"
    assert result.outcomes[2].message == "not run, because a process had ended before"


def test_a_test_cannot_hide_that_the_solution_has_ended() -> None:
    code = "import os\ndef add(a, b):\n    os._exit(0)\n"
    assert kinds(run_tests(code, ["try:\n    add(1, 1)\nexcept BaseException:\n    pass"] * 2)) == ["error", "error"]


def test_a_hostile_test_ends_its_own_process_only() -> None:
    tests = ["import os\nos._exit(0)", "assert add(2, 3) == 5"]
    assert kinds(run_tests(ADD, tests)) == ["error", "error"]
    assert kinds(run_tests(ADD, ["open('/etc/passwd')", "import socket\nsocket.socket()"])) == ["error", "error"]


# What passes between a solution and its tests


ORDINARY = {
    "a tuple": ("def swap(pair):\n    return pair[::-1]", "assert swap((1, [2])) == ([2], 1)"),
    "a dict": ("def same(x):\n    return x", "x = {1: {2.5, None}, 'a': (b'b', 1j, 10**30)}\nassert same(x) == x"),
    "constants": ("def same(x):\n    return x", "assert type(same(True)) is bool and same(1e999) == float('inf')"),
    "a text": ("def same(x):\n    return x", "assert same('\\ud800é\\0') == '\\ud800é\\0'"),
    "a type": (
        "def ints(x, t):\n    return [i for i in x if type(i) is t]",
        "assert ints([1, 'a', 2], int) == [1, 2]",
    ),
    "a list changed in place": ("def sort(x):\n    x.sort()", "x = [3, 1]\nassert sort(x) is None and x == [1, 3]"),
    "a dict changed in place": (
        "def put(d, *, key):\n    d[key] = 1",
        "d = {}\nput(d, key='a')\nassert d == {'a': 1}",
    ),
    "a generator": ("def count(n):\n    yield from range(n)", "assert list(count(3)) == [0, 1, 2]"),
    "a closure": ("def adder(n):\n    return lambda m: n + m", "assert adder(1)(2) == 3"),
    "an attribute": (
        "class P:\n    def __init__(self, x):\n        self.x = x",
        "p = P(1)\np.x += 1\nassert p.x == 2",
    ),
    "an object": ("class P:\n    pass\ndef is_p(p):\n    return type(p) is P", "assert is_p(P()) and not is_p(1)"),
    "a sequence": (
        "class S:\n    def __len__(self):\n        return 3\n    def __getitem__(self, i):\n        return i",
        "s = S()\nassert (len(s), s[1], bool(s)) == (3, 1, True)",
    ),
    "a container": (
        "class S:\n    def __contains__(self, i):\n        return i == 1\n    def __repr__(self):\n        return 'S'",
        "assert 1 in S() and 2 not in S() and repr(S()) == 'S'",
    ),
    "an exception": (
        "def fail():\n    raise ValueError('x')",
        "try:\n    fail()\nexcept ValueError as error:\n    assert str(error) == 'x'\nelse:\n    assert False",
    ),
    "an exception of its own": (
        "class Base(ValueError):\n    pass\nclass Own(Base):\n    pass\ndef fail():\n    raise Own('x')",
        "for kind in (Own, Base, ValueError):\n    try:\n        fail()\n    except kind as error:\n"
        "        assert str(error) == 'x'\n    else:\n        assert False",
    ),
    "an exception that is no other": (
        "class One(Exception):\n    pass\nclass Other(Exception):\n    pass\ndef fail():\n    raise One",
        "try:\n    fail()\nexcept Other:\n    assert False\nexcept One:\n    pass",
    ),
    "a function of the test": ("def twice(f, x):\n    return f(f(x))", "assert twice(lambda n: n + 1, 3) == 5"),
    "a built-in function": (
        "def each(f, x):\n    return [f(i) for i in x]",
        "assert each(len, ['a', 'bc']) == [1, 2]",
    ),
    "a key of sorting": (
        "def order(x, key):\n    return sorted(x, key=key)",
        "assert order([1, -3, 2], key=abs) == [1, 2, -3]",
    ),
    "a function that is handed back": (
        "def same(f):\n    return f",
        "def own(n):\n    return n\nassert same(own) is own and same(own)(1) == 1",
    ),
    "a function that calls back": (
        "def fact(n, f):\n    return 1 if n == 0 else n * f(n - 1, f)",
        "def step(n, f):\n    return fact(n, f)\nassert fact(5, step) == 120",
    ),
    "a function that raises": (
        "def tame(f):\n    try:\n        return f()\n    except KeyError as error:\n        return error.args[0]",
        "def fail():\n    raise KeyError('k')\nassert tame(fail) == 'k'",
    ),
    "a function that raises through": (
        "def pass_on(f):\n    return f()",
        "def fail():\n    raise KeyError('k')\ntry:\n    pass_on(fail)\nexcept KeyError:\n    pass\nelse:\n"
        "    assert False",
    ),
    "a function on objects": (
        "class P:\n    def __init__(self, x):\n        self.x = x\ndef apply(f):\n    return f(P(1), P(2))",
        "assert apply(lambda a, b: a.x + b.x) == 3",
    ),
    "an imported module": ("import math\ndef f():\n    return 1", "assert math.floor(f()) == 1"),
    "a dataclass": ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int", "assert P(3).x == 3"),
    "a value": ("N = [1, 2]", "assert N == [1, 2]"),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_code_behaves_as_in_one_interpreter(name: str) -> None:
    code, test = ORDINARY[name]
    shared: dict[str, Any] = {"__name__": "builtins"}
    for source in (code, test):
        exec(compile(source, "<here>", "exec", dont_inherit=True), shared)
    assert run_tests(code, [test]).outcomes == (Outcome("passed"),)


def test_a_function_of_a_test_that_is_called_without_end_ends_that_test_only() -> None:
    code = "def flood(f):\n    while True:\n        f(1)\ndef again(f):\n    return f(f)\ndef one():\n    return 1"
    tests = ["flood(lambda x: x)", "again(lambda f: again(f))", "again(print)", "assert one() == 1"]
    found = kinds(run_tests(code, tests, limits=Limits(test_seconds=0.5)))
    assert found == ["timeout", "error", "passed", "passed"]


def test_a_test_passes_no_object_of_its_own_classes() -> None:
    (outcome,) = run_tests("def f(x):\n    return 1", ["class P:\n    pass\nassert f(P()) == 1"]).outcomes
    assert outcome.kind == "error"
    assert "a test may pass plain data and functions to a solution, got P" in outcome.message


def test_an_object_of_the_solution_equals_nothing_but_itself() -> None:
    code = "class E:\n    def __eq__(self, other):\n        return True\nONE = E()\ndef f():\n    return ONE"
    assert kinds(run_tests(code, ["assert f() == f()", "assert f() == 1", "assert f() == 'x'"])) == [
        "passed",
        "failed",
        "failed",
    ]


def test_only_the_entry_point_may_take_the_name_of_a_built_in_function() -> None:
    code = "def sum(a, b):\n    return 7"
    assert run_tests(code, ["assert sum(1, 2) == 7"], entry_point="sum").score == 1
    assert run_tests(code, ["assert sum([1, 2]) == 3"]).score == 1


def test_the_setups_helpers_are_not_the_solutions_to_redefine() -> None:
    setup = "import math\ndef near(a, b):\n    return math.fabs(a - b) < 1e-6"
    honest = "def half(x):\n    assert near(x, x)\n    return x / 2"
    sly = "def near(a, b):\n    return True\ndef half(x):\n    return 0"
    tests = ["assert near(half(3), 1.5)"]
    assert run_tests(honest, tests, setup=setup, entry_point="half").score == 1
    assert run_tests(sly, tests, setup=setup, entry_point="half").score == 0


def test_the_setups_classes_are_shared_with_the_solution() -> None:
    setup = "class Pair:\n    def __init__(self, a, b):\n        self.a, self.b = a, b\nroot = Pair(1, 2)\nroot.b = 5"
    code = "def total(pair):\n    assert isinstance(pair, Pair)\n    return pair.a + pair.b"
    assert run_tests(code, ["assert total(root) == 6", "assert total(Pair(1, 1)) == 2"], setup=setup).score == 1


def test_a_setup_may_need_what_the_solution_defines() -> None:
    code = "class Node:\n    def __init__(self, x):\n        self.x = x\ndef value(node):\n    return node.x"
    assert run_tests(code, ["assert value(root) == 4"], setup="root = Node(3)\nroot.x = 4").score == 1


def test_a_setup_that_fails_is_an_error_of_every_test() -> None:
    result = run_tests(ADD, TESTS, setup="1 / 0")
    assert {outcome.message for outcome in result.outcomes} == {
        "RuntimeError: the setup failed with ZeroDivisionError: division by zero"
    }


def test_tests_do_not_share_variables() -> None:
    assert kinds(run_tests(ADD, ["x = 1", "assert x == 1"])) == ["passed", "error"]


def test_chance_is_the_same_every_time_and_follows_the_seed() -> None:
    code = "import random\ndef draw():\n    return random.random()"
    draws = [run_tests(code, ["assert draw() < 0, draw()"], seed=seed).outcomes[0].message for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_the_order_of_a_set_of_texts_is_the_same_every_time() -> None:
    code = "def order():\n    return ''.join({'a', 'b', 'c', 'd', 'e', 'f'})"
    assert len({run_tests(code, ["assert not order(), order()"]).outcomes[0].message for _ in range(4)}) == 1


# Sources that are not ordinary


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        (ADD.encode(), True),
        (b"\xef\xbb\xbf" + ADD.encode(), True),
        ("\ufeff" + ADD, True),
        ("# coding: latin-1\n# \xe9\n".encode("latin-1") + ADD.encode(), True),
        ("# coding: latin-1\n# é\n" + ADD, True),
        (ADD.replace("\n", "\r\n"), True),
        (ADD + "# \u00e9\u4e2d\U0001f600", True),
        (b"x = '\xe9'\n" + ADD.encode(), False),
        (b"# coding: no-such\n" + ADD.encode(), False),
        (ADD.encode("utf-16"), False),
        (ADD + "\0", False),
        ("x = '\ud800'\n" + ADD, False),
        (b"\xff\xfe\0", False),
    ],
)
def test_sources_in_any_encoding_have_an_outcome(code: str | bytes, passes: bool) -> None:
    assert run_tests(code, TESTS).score == passes


@pytest.mark.parametrize("code", ["", " \n\t", b"", b" \n"])
def test_no_code_scores_nothing(code: str | bytes) -> None:
    assert run_tests(code, TESTS).outcomes == (Outcome("error", "there is no code"),) * 2


def test_overlong_code_scores_nothing_unrun() -> None:
    result = run_tests(ADD + "#" * 2**20, TESTS)
    assert result.outcomes == (Outcome("error", "the code has 1048608 bytes, more than 65536"),) * 2
    assert run_tests(ADD + "#" * 2**20, TESTS, limits=Limits(code_bytes=2**21)).score == 1


@pytest.mark.parametrize("tests", [[], [""], [" "], [None], ""])
def test_code_without_tests_is_refused(tests: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^code must come with at least one test, each a text, got .*; drop such a row"
    ):
        run_tests(ADD, tests)


def test_a_test_that_is_no_python_is_an_error() -> None:
    result = run_tests(ADD, ["assert add(", "assert add(1, 1) == 2"])
    assert kinds(result) == ["error", "passed"]


@pytest.mark.parametrize("field", ["test_seconds", "wall_seconds", "cpu_seconds", "memory_bytes", "code_bytes"])
def test_limits_are_positive(field: str) -> None:
    with pytest.raises(ValueError, match=f"^a limit must be positive, got {field}=0; pass"):
        Limits(**{field: 0})


@given(st.text(max_size=200))
def test_any_text_has_a_score(text: str) -> None:
    assert score({"tests": TESTS, "entry_point": "add"}, text) == 0


# As a scorer


def test_a_row_is_scored() -> None:
    row = {"problem": "Add.", "tests": TESTS, "setup": "", "entry_point": "add", "domain": "code"}
    assert score(row, ADD) == 1
    assert score(row, "def add(a, b):\n    return 5") == 0.5
    assert score(row, "I cannot.") == 0


def test_a_row_without_tests_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one test"):
        score({"problem": "Add."}, ADD)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1", "x = 1"),
        ("Here:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("```\nnot this\n```\n```python\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```\n```\ny = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```", "x = 1\n"),
        ("```Python3\r\nx = 1\r\n```", "x = 1\r\n"),
        ("  ```python\n  x = 1\n  ```", "  x = 1\n"),
        ("```python\nx = 1", "x = 1"),
        ("```python\n```", ""),
        ("x = '```'", "x = '```'"),
        ("```pythonic\nx = 1\n```", "x = 1\n"),
    ],
)
def test_code_is_taken_out_of_its_fence(text: str, code: str) -> None:
    assert extract_code(text) == code


def test_a_fence_can_be_left_as_it_is() -> None:
    row, fenced = {"tests": TESTS}, f"```python\n{ADD}```"
    assert score(row, fenced) == 1
    assert score(row, fenced, unwrap_fences=False) == 0
    assert verbatim_score(row, fenced) == 0
    assert verbatim_score(row, ADD) == 1


# Without isolation


def test_no_isolation_is_refused_unless_accepted() -> None:
    with pytest.raises(IsolationError, match=r"^code must run isolated, and this is level 'none'; use a Linux"):
        run_tests(ADD, TESTS, level="none")
    result = run_tests(ADD, TESTS, level="none", accept_no_isolation=True)
    assert (result.score, result.level) == (1.0, "none")


def test_many_threads_may_ask() -> None:
    def ask(number: int) -> bool:
        wanted = number % 2 == 0
        return run_tests(ADD, [f"assert add({number}, 1) == {number + wanted}"]).score == wanted

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(ask, range(100)))


def test_importing_the_scorer_imports_neither_torch_nor_a_checker_of_mathematics() -> None:
    script = "import sys, hf_credit.verifiers.code; assert not {'torch', 'sympy', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], check=True)


# Reference solutions

Row = tuple[str, str, list[str], str, str | None]


def mbpp() -> list[Row]:
    rows = []
    for line in (DATA / "mbpp.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        tests = row["test_list"] + row["challenge_test_list"]
        calls = Counter(
            node.func.id
            for test in tests
            for node in ast.walk(ast.parse(test))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        )
        named = set(re.findall(r"^\s*def\s+(\w+)", row["code"], re.MULTILINE))
        entry = next(name for name, _ in calls.most_common() if name in named)
        rows.append((f"MBPP/{row['task_id']}", row["code"], tests, row["test_setup_code"], entry))
    return rows


def humaneval() -> list[Row]:
    rows = []
    with gzip.open(DATA / "humaneval.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            test = f"{row['test']}\ncheck({row['entry_point']})\n"
            rows.append((row["task_id"], row["prompt"] + row["canonical_solution"], [test], "", row["entry_point"]))
    return rows


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the rows of MBPP and HumanEval are not in {DATA}")
@pytest.mark.parametrize(("rows", "count"), [(mbpp, 974), (humaneval, 164)])
def test_every_reference_solution_passes_its_tests(rows: Any, count: int) -> None:
    def failed(row: Row) -> list[str]:
        name, code, tests, setup, entry_point = row
        result = run_tests(code, tests, setup=setup, entry_point=entry_point)
        return [f"{name}: {outcome}" for outcome in result.outcomes if outcome.kind != "passed"]

    listed = rows()
    assert len(listed) == count
    with ThreadPoolExecutor(4) as threads:
        assert [line for lines in threads.map(failed, listed) for line in lines] == []
