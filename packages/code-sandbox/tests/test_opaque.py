# ruff: noqa: E501
"""The result of an operator on a solution's object and plain data is opaque in every use."""

from __future__ import annotations

import pytest

from code_sandbox.unit_tests import Limits, isolation, run_tests

pytestmark = pytest.mark.skipif(isolation().level == "none", reason=f"nothing confines code here: {isolation()}")

ZERO = """
class Zero{base}:
    real = imag = x = 0
    def __getattr__(self, name):
        return lambda *a: 0
    def __len__(self):
        return 0
    def __iter__(self):
        return iter(())
    __next__ = __len__
    __reversed__ = __iter__
    def __getitem__(self, key):
        return 0
    def __contains__(self, item):
        return True
    def __str__(self):
        return "0"
    __repr__ = __str__
    def __format__(self, spec):
        return "0"
    def __bool__(self):
        return False
    def __float__(self):
        return 0.0
    def __call__(self, *a):
        return 0
    __int__ = __index__ = __abs__ = __round__ = __trunc__ = __floor__ = __ceil__ = __hash__ = __call__
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    __lt__ = __le__ = __gt__ = __ge__ = __instancecheck__ = __eq__
    def __neg__(self, *_):
        return self
    __pos__ = __invert__ = __neg__
for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod".split():
    for place in ("", "r", "i"):
        setattr(Zero, f"__{{place}}{{name}}__", Zero.__neg__)
"""
CODE = ZERO.format(base="") + "def f(x):\n    return Zero()\ndef g(*x):\n    return 0\n"
IMPORTS = "import collections, copy, fractions, functools, json, math, operator, statistics\n"
MADE = [
    "f(2) - 5", "5 - f(2)", "f(2) ^ {5}", "{5} - f(2)", "f(2) | {1: 5}", "'5' + f(2)", "[5] * f(2)", "f(2) @ [[5]]", "divmod(f(2), 5)",
    "pow(f(2), 5)", "-(f(2) % 5)", "(f(2) - 5) - f(3)", "f(3) * (f(2) - 5)", "sum([f(1), 5])", "fractions.Fraction(5) - f(2)",
    "operator.ixor(f(2), 5)", "functools.reduce(operator.isub, [f(2), 5])", "f(2).__rsub__(5)",
]  # fmt: skip
USES = [
    "len(#) == 0", "list(#) == []", "set(#) == set()", "not [*#]", "not any(#)", "sum(#) == 0", "sorted(#) == []", "next(#) == 0",
    "max(#, default=0) == 0", "list(reversed(#)) == []", "dict(#) == {}", "list(zip(#)) == []", "''.join(#) == ''", "bytes(#) == b''",
    "str(#) == '0'", "repr(#) == '0'", "f'{#}' == '0'", "format(#, 'd') == '0'", "'%s' % (#,) == '0'", "'%d' % (#,) == '0'",
    "(#)[0] == 0", "(#).real == 0", "(#).near() == 0", "(#)() == 0", "getattr(#, 'x', 0) == 0", "hasattr(#, 'real')",
    "(#) == 0", "0 == (#)", "(#) != 1", "(#) < 1", "(#) <= 0", "1 > (#)", "(#).__lt__(1)", "(#).__eq__(0)",
    "hash(#) == 0", "len({(#), 0}) == 1", "{(#): 7}[0] == 7", "not (#)", "bool(#) is False", "(#) or True",
    "abs(#) < 1e-9", "float(#) == 0", "int(#) == 0", "round(#, 7) == 0", "math.floor(#) == 0", "math.isclose(#, 0)", "complex(#) == 0",
    "[(#)] == [0]", "0 in [(#)]", "(#) in [0]", "(#) not in [1]", "0 in (#)", "(#) in f(1)", "f(1)[#] == 0", "[7][#] == 7",
    "isinstance(#, f(1))", "g(#) == 0", "g([(#)]) == 0", "g({1: (#)}) == 0", "f(1).m(#) == 0", "abs(copy.copy(#)) == 0",
    "statistics.mean([(#)]) == 0", "collections.Counter(#) == {}", "json.dumps(#) == '0'",
]  # fmt: skip


def kinds(code: str, tests: list[str], setup: str = "") -> list[str]:
    limits = Limits(test_seconds=20, wall_seconds=120, cpu_seconds=60)
    return [
        one.kind for one in run_tests(code, [IMPORTS + test for test in tests], setup=setup, limits=limits).outcomes
    ]


@pytest.mark.parametrize("made", MADE)
def test_the_result_of_an_operator_on_an_object_and_plain_data_is_never_plain(made: str) -> None:
    tests = ["assert " + use.replace("#", made) for use in USES]
    found = kinds(CODE, tests)
    assert [test for test, kind in zip(tests, found, strict=True) if kind != "error"] == []


def test_an_operator_on_plain_data_of_a_solutions_class_and_an_opaque_object_is_opaque() -> None:
    code = (
        ZERO.format(base="")
        + ZERO.replace("Zero", "Sly").format(base="(int)")
        + "def f(x):\n    return Zero() if x else Sly()\n"
    )
    code += "Sly.__sub__ = lambda *_: 0\n"
    tests = ["assert f(0) - (f(1) - 5) == 0", "assert abs(f(0) * (f(1) - 5)) == 0", "assert (f(1) - 5) - f(0) == 0"]
    assert "passed" not in kinds(code, tests)


def test_it_takes_part_in_operators_and_in_equality_of_objects() -> None:
    code = (
        "class V:\n    def __init__(self, x):\n        self.x = x\n    def __mul__(self, k):\n        return V(self.x * k)\n"
        "    def __add__(self, o):\n        return V(self.x + o.x)\n    def __eq__(self, o):\n        return self.x == o.x\n"
        "    def __neg__(self):\n        return V(-self.x)\ndef same(f, x):\n    return f(V(x)).x\n"
    )
    right = [
        "V(2) * 3 == V(6)",
        "-(V(2) * 3) + V(1) == V(-5)",
        "V(2) * 3 != V(7)",
        "V(2) * 3 == V(3) * 2",
        "(V(2) + V(3)).x == 5",
    ]
    right += ["same(lambda v: v * 3, 2) == 6"]
    assert kinds(code, [f"assert {one}" for one in right]) == ["passed"] * len(right)


def test_an_opaque_object_in_a_list_harms_no_later_test() -> None:
    keep = "K = []\ndef keep(x):\n    K.append(x)\n"
    tests = ["x = [f(1)]\nkeep(x)\nx.append(f(1) - 5)\nassert g(1) == 0", "assert g(1) == 0"]
    assert kinds(CODE + keep, tests) == ["error", "passed"]


SETUP = """
import functools
class P:
    unit = "cm"
    compare = functools.partial(max, 1)
    def __init__(self, x):
        self.x = x
    def equals(self, other):
        return self.x == other.x
    @classmethod
    def make(cls, x):
        return cls(x)
    @staticmethod
    def near(one, other):
        return abs(one - other) < 1
    @functools.cached_property
    def area(self):
        return self.x * 2
"""


@pytest.mark.parametrize(
    ("shadow", "test"),
    [
        ("p.equals = lambda o: True", "assert f().equals(P(5))"),
        ("vars(p)['__eq__'] = lambda o: True", "assert f().__eq__(P(1)) is True"),
        ("p.near = lambda *_: True", "assert f().near(1, 9)"),
        ("p.make = lambda x: p", "assert f().make(5) is f()"),
        ("p.compare = lambda *_: 5", "assert f().compare(0) == 5"),
        ("vars(p)['area'] = 10", "assert f().area == 10"),
    ],
)
def test_an_object_of_the_setups_class_does_not_shadow_its_methods(shadow: str, test: str) -> None:
    code = f"p = P(1)\n{shadow}\ndef f():\n    return p\n"
    assert kinds(code, [test, "f"], SETUP)[0] != "passed"


def test_an_object_of_the_setups_class_has_attributes_in_place_of_its_defaults() -> None:
    code = "def f(p):\n    p.unit, p.x, p.new = 'm', 7, [1]\n    return p\n"
    test = "p = P(1)\nassert f(p) is p and (p.unit, p.x, p.new, p.area) == ('m', 7, [1], 14) and p.equals(P(7))"
    assert kinds(code, [test], SETUP) == ["passed"]
