# ruff: noqa: E501
"""Unit tests of code: right and wrong solutions, outcomes, odd sources, and all reference solutions."""

from __future__ import annotations

import ast
import gzip
import json
import math
import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from code_sandbox.unit_tests import (
    IsolationError,
    Limits,
    Outcome,
    TestRun,
    isolation,
    run_tests,
)

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
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


def test_an_assertions_text_is_the_message() -> None:
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


def test_processor_time_is_limited_whatever_the_wall_clock_limit() -> None:
    code = "def loop():\n    while True:\n        pass\n"
    result = run_tests(code, ["loop()"], limits=Limits(test_seconds=60, wall_seconds=60, cpu_seconds=1))
    assert kinds(result) == ["timeout"]


def test_exhausted_memory_is_an_outcome_and_does_not_stop_the_next_test() -> None:
    code = "def take(n):\n    return len(bytearray(n))\n"
    result = run_tests(code, ["assert take(10**10)", "assert take(10) == 10"])
    assert kinds(result) == ["memory", "passed"]


def test_no_test_passes_after_the_solution_has_ended() -> None:
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


# Each failed where data was copied between the two processes: code, test.
SHARED = {
    "keyword in place": (
        """\
def put(*, d):
    d['a'] = 1
def app(x=None):
    x.append(1)
""",
        """\
d = {}
put(d=d)
assert d == {'a': 1}
x=[]
app(x=x)
assert x == [1]
""",
    ),
    "inner list": (
        """\
def put(rows):
    rows[0].append(9)
""",
        """\
inner=[1]
rows=[inner,[2]]
put(rows)
assert inner == [1, 9] and rows[0] is inner
""",
    ),
    "inner list in tuple": (
        """\
def put(rows):
    rows[0].append(9)
""",
        """\
inner=[1]
put((inner,))
assert inner == [1, 9]
""",
    ),
    "clone fails": (
        """\
def clone(x):
    return list(x)
""",
        """\
x=[1]
assert clone(x) is not x and clone(x) == x
""",
    ),
    "same": (
        """\
def f(x):
    return x
""",
        """\
for x in ([1],{},{1}):
    assert f(x) is x
""",
    ),
    "extends list": (
        """\
class S(list):
    def push(self, x):
        self.append(x)
    def total(self):
        return sum(self)
""",
        """\
s=S([1,2])
s.push(3)
assert s == [1,2,3] and s.total()==6 and len(s)==3
s.append(4)
assert s.total()==10 and s[-1]==4 and isinstance(s,S) and isinstance(s, list)
""",
    ),
    "extends OrderedDict": (
        """\
from collections import OrderedDict
class LRU(OrderedDict):
    def __init__(self, n):
        super().__init__()
        self.n=n
    def get(self,k):
        if k not in self:
            return -1
        self.move_to_end(k)
        return self[k]
    def put(self,k,v):
        self[k]=v
        self.move_to_end(k)
        if len(self)>self.n:
            self.popitem(last=False)
""",
        """\
c=LRU(2)
c.put(1,1)
c.put(2,2)
assert c.get(1)==1
c.put(3,3)
assert c.get(2)==-1 and list(c)==[1,3] and c.n==2 and len(c)==2
""",
    ),
    "extends dict item": (
        """\
class C(dict):
    def __getitem__(self,k):
        return dict.__getitem__(self,k.lower())
    def __setitem__(self,k,v):
        dict.__setitem__(self,k.lower(),v)
    def __missing__(self,k):
        return 7
""",
        """\
c=C()
c['A']=1
assert c['a']==1 and c['A']==1 and c == {'a':1}
""",
    ),
    "named tuple": (
        """\
from collections import namedtuple
P=namedtuple('P','x y')
def f():
    return P(1,[2])
""",
        """\
p=f()
assert p.x==1 and p==(1,[2]) and p.y==[2] and p._replace(x=5).x==5 and repr(p)=='P(x=1, y=[2])' and p._asdict()=={'x':1,'y':[2]}
a,b=p
assert a==1 and P(3,4).x==3 and P(3,4)==P(3,4) and f().y is not p.y and p.y is p[1]
""",
    ),
    "typed named tuple": (
        """\
from typing import NamedTuple
class P(NamedTuple):
    x: int
    y: int = 2
    def norm(self):
        return self.x+self.y
""",
        """\
assert P(1).norm()==3 and P(1)==(1,2) and {P(1): 5}[(1,2)]==5
""",
    ),
    "operators": (
        """\
class V:
    def __init__(self,x,y):
        self.x,self.y=x,y
    def __add__(self,o):
        return V(self.x+o.x,self.y+o.y)
    def __mul__(self,k):
        return V(self.x*k,self.y*k)
    __rmul__=__mul__
    def __neg__(self):
        return V(-self.x,-self.y)
    def __eq__(self,o):
        return isinstance(o,V) and (self.x,self.y)==(o.x,o.y)
    def __hash__(self):
        return hash((self.x,self.y))
    def __lt__(self,o):
        return self.x<o.x
    def __abs__(self):
        return (self.x**2+self.y**2)**.5
    def __iadd__(self,o):
        self.x+=o.x
        return self
""",
        """\
a=V(1,2)
b=V(3,4)
assert a+b==V(4,6) and a*2==V(2,4) and 2*a==V(2,4) and -a==V(-1,-2) and a!=b and a<b and sorted([b,a])[0] is a and abs(b)==5 and len({V(1,1),V(1,1)})==1
c=a
c+=b
assert c is a and a.x==4 and isinstance(a,V)
""",
    ),
    "matrix items": (
        """\
class M:
    def __init__(self):
        self.d={}
    def __setitem__(self,k,v):
        self.d[k]=v
    def __getitem__(self,k):
        return self.d[k]
    def __delitem__(self,k):
        del self.d[k]
    def __len__(self):
        return len(self.d)
""",
        """\
m=M()
m[1,2]=3
assert m[1,2]==3 and len(m)==1
del m[1,2]
assert len(m)==0 and m.d=={}
""",
    ),
    "aware": (
        """\
import datetime as D
def f(x):
    return x + D.timedelta(hours=1)
def g():
    return D.datetime(2020,1,1,tzinfo=D.timezone.utc)
""",
        """\
import datetime as D
z=D.timezone(D.timedelta(hours=5,minutes=30),'IST')
x=D.datetime(2020,1,1,tzinfo=z,fold=1)
assert f(x)==x+D.timedelta(hours=1) and f(x).tzinfo==z and f(x).tzname()=='IST' and g().tzinfo is D.timezone.utc and D.time(1,2,tzinfo=z)==D.time(1,2,tzinfo=z)
""",
    ),
    "attribute list": (
        """\
class N:
    def __init__(self,v):
        self.v=v
        self.children=[]
def depth(n):
    return 1+max(map(depth,n.children),default=0)
""",
        """\
r=N(1)
r.children.append(N(2))
r.children[0].children.append(N(3))
assert depth(r)==3 and r.children is r.children and r.children[0] is r.children[0]
""",
    ),
    "kept": (
        """\
K=[]
def keep(x):
    K.append(x)
def all_():
    return K
def change():
    K[0].append(5)
""",
        """\
x=[1]
keep(x)
x.append(2)
assert all_()==[[1,2]] and all_()[0] is x
change()
assert x==[1,2,5]
""",
    ),
    "cycle": (
        """\
def f():
    x=[]
    x.append(x)
    return x
""",
        """\
x=f()
assert x[0] is x and len(x)==1
""",
    ),
    "defaultdict": (
        """\
def f(d):
    d['a'].append(1)
""",
        """\
from collections import defaultdict
d=defaultdict(list)
f(d)
assert d=={'a':[1]}
d['b'].append(1)
assert d['b']==[1]
""",
    ),
    "true for one": (
        """\
def f(x):
    x[0]=True
    x[1]=1.0
""",
        """\
x=[1,1]
f(x)
assert x[0] is True and type(x[1]) is float
""",
    ),
    "raises after change": (
        """\
def f(x):
    x.append(1)
    raise ValueError('x')
""",
        """\
x=[]
try:
    f(x)
except ValueError:
    pass
assert x==[1]
""",
    ),
    "callback sees": (
        """\
def f(x,g):
    x.append(1)
    g()
    x.append(2)
    return x
""",
        """\
x=[]
seen=[]
def g():
    seen.append(list(x))
    x.append('t')
assert f(x,g) is x and seen==[[1]] and x==[1,'t',2]
""",
    ),
    "change while walking": (
        """\
def f(d,k):
    d[k]+=1
""",
        """\
d={i:i for i in range(5)}
for k in d:
    f(d,k)
assert d=={i:i+1 for i in range(5)}
""",
    ),
    "deep copy": (
        """\
import copy
def f(x):
    return copy.deepcopy(x)
def g(x):
    return x[:]
""",
        """\
x=[[1]]
y=f(x)
z=g(x)
assert y==x and y is not x and y[0] is not x[0] and z is not x and z[0] is x[0]
""",
    ),
    "shared twice": (
        """\
def f(x):
    return x[0] is x[1]
""",
        """\
y=[]
assert f([y,y]) and not f([[],[]])
""",
    ),
    "alias": (
        """\
def grid(n):
    return [[0]*n]*n
def good(n):
    return [[0]*n for _ in range(n)]
""",
        """\
g=good(2)
g[0][0]=1
assert g==[[1,0],[0,0]]
b=grid(2)
b[0][0]=1
assert b==[[1,0],[1,0]]
""",
    ),
    "intenum": (
        """\
from enum import IntEnum, Enum
class C(IntEnum):
    RED=1
class D(Enum):
    A='x'
def f():
    return C.RED
def g():
    return D.A
""",
        """\
assert f()==1 and f().name=='RED' and g() is D.A and g().value=='x' and g()==D.A and f() is f()
""",
    ),
    "subclass passed back": (
        """\
class S(str):
    def shout(self):
        return self.upper()
def f(s):
    return type(s).__name__
""",
        """\
s=S('a')
assert f(s)=='S' and s.shout()=='A' and s=='a'
""",
    ),
    "wraps": (
        """\
import functools
def deco(f):
    @functools.wraps(f)
    def g(*a):
        return f(*a)
    return g
@deco
def h():
    return 1
""",
        """\
assert h.__name__=='h' and h()==1
""",
    ),
}
LIST_NODE = """\
class ListNode:
    def __init__(self, v=0, next=None):
        self.v, self.next = v, next
"""
REVERSED = """\
def rev(h):
    p=None
    while h:
        h.next,p,h=p,h,h.next
    return p
"""
LIST_TEST = """\
h=None
for i in range(500):
    h=ListNode(i,h)
r=rev(h)
out=[]
while r:
    out.append(r.v)
    r=r.next
assert out==list(range(500))
"""
WITH_SETUP = {
    "exception of setup": (
        """\
class Bad(ValueError):
    pass
""",
        """\
def f():
    raise Bad('x')
""",
        """\
try:
    f()
except Bad as e:
    assert str(e)=='x'
else:
    assert False
""",
    ),
    "exception of setup with init": (
        """\
class Bad(Exception):
    def __init__(self, a, b):
        super().__init__(f'{a}{b}')
""",
        """\
def f():
    raise Bad(1,2)
""",
        """\
try:
    f()
except Bad as e:
    assert str(e)=='12'
else:
    assert False
""",
    ),
    "raised by the test": (
        """\
class Bad(Exception):
    pass
""",
        """\
def f(g):
    try:
        g()
    except Bad:
        return 1
""",
        """\
def g():
    raise Bad('x')
assert f(g)==1
""",
    ),
    "exception raised through": (
        """\
class Bad(Exception):
    pass
""",
        """\
def f(g):
    g()
""",
        """\
def g():
    raise Bad('x')
try:
    f(g)
except Bad:
    pass
else:
    assert False
""",
    ),
    "list nodes": (LIST_NODE, REVERSED, LIST_TEST),
    "list nodes again": (LIST_NODE, LIST_NODE + REVERSED, LIST_TEST),
    "dataclass of setup": (
        """\
from dataclasses import dataclass
@dataclass
class P:
    x: int
    y: int
""",
        """\
def swap(p):
    return P(p.y,p.x)
def put(p):
    p.x=9
""",
        """\
p=P(1,2)
assert swap(p)==P(2,1)
put(p)
assert p.x==9 and swap(p)!=p
""",
    ),
    "frozen": (
        """\
from dataclasses import dataclass
@dataclass(frozen=True)
class P:
    x: int
""",
        """\
def f(p):
    return {p: 1}
""",
        """\
assert f(P(1))=={P(1):1}
""",
    ),
    "named tuple of setup": (
        """\
from collections import namedtuple
P=namedtuple('P','x y')
""",
        """\
def f(p):
    return P(p.y,p.x)
""",
        """\
assert f(P(1,2)).x==2 and f(P(1,2))==P(2,1)
""",
    ),
    "typed named tuple of setup": (
        """\
from typing import NamedTuple
class P(NamedTuple):
    x: int
    y: int
""",
        """\
def f(p):
    return P(p.y,p.x)
""",
        """\
assert f(P(1,2)).x==2 and f(P(1,2))==P(2,1)
""",
    ),
    "enum of setup": (
        """\
from enum import Enum
class C(Enum):
    A=1
    B=2
""",
        """\
def f(c):
    return C.B if c is C.A else C.A
""",
        """\
assert f(C.A) is C.B and f(C.B)==C.A
""",
    ),
    "stub": (
        """\
class Stack:
    pass
""",
        """\
class Stack:
    def push(self,x):
        self.x=x
""",
        """\
s=Stack()
s.push(1)
assert s.x==1
""",
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_what_both_sides_hold_is_one_thing(name: str) -> None:
    code, test = SHARED[name]
    shared: dict[str, Any] = {"__name__": "builtins"}
    for source in (code, test):
        exec(compile(source, "<here>", "exec", dont_inherit=True), shared)
    assert run_tests(code, [test]).outcomes == (Outcome("passed"),)


@pytest.mark.parametrize("name", WITH_SETUP)
def test_classes_of_the_setup_are_those_of_both_sides(name: str) -> None:
    setup, code, test = WITH_SETUP[name]
    shared: dict[str, Any] = {"__name__": "builtins"}
    for source in (setup, code, test):
        exec(compile(source, "<here>", "exec", dont_inherit=True), shared)
    assert run_tests(code, [test], setup=setup).outcomes == (Outcome("passed"),)


@pytest.mark.parametrize("code", ["def clone(x):\n    return x", "def clone(x):\n    return [x[0]]"])
def test_copying_is_seen(code: str) -> None:
    tests = [
        "x = [[1]]\ny = clone(x)\nassert y == x",
        "x = [[1]]\ny = clone(x)\nassert y is not x and y[0] is not x[0]",
    ]
    assert kinds(run_tests(code, tests)) == ["passed", "failed"]


def test_a_setups_class_compares_by_the_setups_code_even_if_the_solution_changes_it() -> None:
    setup = "class P:\n    def __init__(self, x):\n        self.x = x\n    def __eq__(self, other):\n        return self.x == other.x\n"
    tests = ["assert f() == P(2)", "assert f().x == 2"]
    honest, sly = "def f():\n    return P(2)\n", "def f():\n    return P(1)\nP.__eq__ = lambda *_: True\n"
    redefined = "class P:\n    def __init__(self, x):\n        self.x = 1\n    def __eq__(self, other):\n        return True\ndef f():\n    return P(1)\n"
    assert [run_tests(code, tests, setup=setup).score for code in (honest, sly, redefined)] == [1, 0, 0]


def test_what_a_solution_is_not_passed_it_never_sees() -> None:
    code = "import gc\ndef look(x):\n    return any(type(o) is list and 'secret' in o for o in gc.get_objects())\n"
    tests = ["expected = ['secret']\nassert not look([])\nassert not look([1])", "assert look(['secret'])"]
    assert kinds(run_tests(code, tests)) == ["passed", "passed"]


def test_a_long_test_does_not_keep_what_it_has_passed() -> None:
    code = "def f(x):\n    return x + [1]"
    test = "for i in range(80):\n    assert len(f([i] * 20000)) == 20001"
    limits = Limits(memory_bytes=64 * 2**20, test_seconds=60, wall_seconds=120, cpu_seconds=100)
    assert kinds(run_tests(code, [test], limits=limits)) == ["passed"]


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


def test_a_solution_does_not_choose_the_modules_that_judge_it() -> None:
    swap = "import code_sandbox.inside.tester as t\nt.run_test = lambda *_: ('p', '')"
    hostile = "import pickle as {0}\nclass Run:\n    def __reduce__(self):\n"
    hostile += f"        return exec, ({swap!r},)\ndef f():\n    return {{0}}.dumps(Run())"
    tests = [f"assert {loads}(f()) == [1]" for loads in ("json.loads", "getattr(json, 'loads')", "j.loads")]
    assert kinds(run_tests("import json\ndef f():\n    return '[1]'", tests)) == ["passed", "passed", "error"]
    assert kinds(run_tests(hostile.format("json"), tests)) == ["error"] * 3
    assert kinds(run_tests(hostile.format("j"), tests)) == ["error"] * 3


def test_the_name_of_a_standard_module_is_the_module_whatever_the_solution_binds_to_it() -> None:
    right = "def f():\n    return 7.0"
    hostile = f"class math:\n    isclose = lambda *_: True\nclass os:\n    path = math\n{right}"
    tests = ["assert math.isclose(f(), 1)", "assert getattr(math, 'isclose')(f(), 1)", "assert math.isclose(f(), 7)"]
    tests += ["assert os.path.basename('a/b') == 'b'"]
    for code in (hostile, right, f"import math, os.path\n{right}"):
        assert kinds(run_tests(code, tests)) == ["failed", "failed", "passed", "passed"]


def test_a_function_may_have_the_name_of_a_standard_module_if_it_is_called_or_the_entry_point() -> None:
    code = "def statistics(x):\n    return sum(x)"
    assert run_tests(code, ["assert statistics([1, 2]) == 3"]).score == 1
    passed_on = ["assert list(map(statistics, [[1], [2]])) == [1, 2]"]
    assert run_tests(code, passed_on, entry_point="statistics").score == 1
    assert kinds(run_tests(code, passed_on)) == ["error"]
    setup = "def statistics(x):\n    return x"
    assert kinds(run_tests(code, passed_on, setup=setup)) == ["failed"]


def test_a_class_that_a_solution_imports_from_a_module_of_the_same_name_may_be_called() -> None:
    code = "from datetime import datetime\ndef f():\n    return datetime(2020, 1, 1)"
    tests = ["assert f() == datetime(2020, 1, 1)", "assert datetime.strptime('2020', '%Y') == f()"]
    assert run_tests(code, tests).score == 1


def test_a_variable_of_a_test_may_have_the_name_of_a_module_that_this_system_lacks() -> None:
    assert kinds(run_tests(ADD, ["winreg = add(1, 1)\nassert winreg == 2", "assert winreg"])) == ["passed", "error"]


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
def test_limits_are_positive_numbers(field: str) -> None:
    with pytest.raises(ValueError, match=f"^the limit {field} must be above 0, got 0; raise it"):
        Limits(**{field: 0})
    kind = "finite" if field.endswith("seconds") and field != "cpu_seconds" else "whole"
    for value in (math.nan, math.inf, "4", *([512e6] if kind == "whole" else [])):
        with pytest.raises(ValueError, match=f"^the limit {field} must be a {kind} number, got .*; correct it"):
            Limits(**{field: value})


def test_a_small_scratch_folder_does_not_limit_what_the_tests_report() -> None:
    assert run_tests(ADD, ["assert add(1, 1) == 2"] * 100, limits=Limits(scratch_bytes=1)).score == 1
    wrong = run_tests(ADD, ["assert add(1, 1) == 3, 'a longer message'"] * 100, limits=Limits(scratch_bytes=1024))
    assert kinds(wrong) == ["failed"] * 100


@pytest.mark.parametrize(
    ("base", "value", "method", "test"),
    [
        ("str", "'bad'", "startswith", "assert isinstance(f(), str) and f().startswith('abc')"),
        ("int", "3", "bit_length", "assert f().bit_length() == 9"),
        ("float", "0.5", "hex", "assert f().hex() == '0x1.0p+3'"),
        ("frozenset", "()", "issuperset", "assert f().issuperset({1, 2})"),
    ],
)
def test_a_value_that_cannot_change_has_the_methods_of_python_alone(
    base: str, value: str, method: str, test: str
) -> None:
    told = f"def {method}(self, *seen):\n        return True"
    code = f"class Sly({base}):\n    {told}\ndef f():\n    return Sly({value})"
    assert kinds(run_tests(code, [test])) == ["failed"]


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
def test_reference_solutions_pass_their_tests(rows: Any, count: int) -> None:
    """A fourth of them; `make soak` runs them all."""

    def failed(row: Row) -> list[str]:
        name, code, tests, setup, entry_point = row
        # What is right does not depend on how busy the machine is; one of MBPP's is close to the default limits.
        slow = Limits(test_seconds=20, wall_seconds=120, cpu_seconds=80)
        result = run_tests(code, tests, setup=setup, entry_point=entry_point, limits=slow)
        return [f"{name}: {outcome}" for outcome in result.outcomes if outcome.kind != "passed"]

    listed = rows()
    assert len(listed) == count
    with ThreadPoolExecutor(4) as threads:
        every = int(os.environ.get("CODE_SANDBOX_EVERY", "4"))
        assert [line for lines in threads.map(failed, listed[::every]) for line in lines] == []
