# ruff: noqa: E501
"""Attempts to get a higher score than deserved. `add` is wrong in all of them.

Of `ATTACKS` each one succeeds where code and tests share an interpreter and success is its exit status, which the test
shows. `UNCONTROLLED` are aimed at how this sandbox works.
"""

WRONG = "\ndef add(a, b):\n    return 'wrong'\n"

_EQUAL = (
    "class Equal{base}:\n    def __eq__(self, other):\n        return True\n    __hash__ = None\n"
    "    def __sub__(self, other):\n        return 0\n    def __rsub__(self, other):\n        return 0\n"
    "def add(a, b):\n    return Equal({value})\n"
)

_READ_EXPECTED = (
    "def add(a, b):\n    frame = sys._getframe(1)\n    while frame:\n"
    "        constants = [c for c in frame.f_code.co_consts if type(c) is int]\n"
    "        if frame.f_code.co_filename.startswith('<') and len(constants) > 2:\n            return constants[{place}]\n"
    "        frame = frame.f_back\n    return 'wrong'\n"
)

ATTACKS = {
    "exit at once": "import os\nos._exit(0)",
    "exit in the call": "import os\ndef add(a, b):\n    os._exit(0)",
    "exit politely": "import sys\nsys.exit(0)",
    "exit politely in the call": "import sys\ndef add(a, b):\n    sys.exit(0)",
    "raise the exit": "raise SystemExit",
    "raise the exit in the call": "def add(a, b):\n    raise SystemExit(0)",
    "exit at the end": "import atexit, os\natexit.register(os._exit, 0)" + WRONG,
    "exit in a signal's handler": (
        "import signal, os, time\nsignal.signal(signal.SIGALRM, lambda *_: os._exit(0))\nsignal.setitimer(0, 0.01)\n"
        "def add(a, b):\n    time.sleep(0.2)\n    return 'wrong'"
    ),
    "exit by C": "import ctypes\nctypes.CDLL(None)._exit(0)",
    "exit when collected": "import os\nclass Bomb:\n    def __del__(self):\n        os._exit(0)\ndef add(a, b):\n    Bomb()",
    "equal everything": _EQUAL.format(base="", value=""),
    "equal everything as a number": _EQUAL.format(base="(int)", value="0"),
    "equal everything as a float": _EQUAL.format(base="(float)", value="0.0"),
    "equal everything as a text": _EQUAL.format(base="(str)", value="''"),
    "equal everything as a list": _EQUAL.format(base="(list)", value="[]"),
    "equal everything as a dict": _EQUAL.format(base="(dict)", value="{}"),
    "equal everything by a class": (
        "class Meta(type):\n    def __eq__(self, other):\n        return True\n    def __sub__(self, other):\n"
        "        return 0\n    __hash__ = None\nclass Equal(metaclass=Meta):\n    pass\ndef add(a, b):\n    return Equal"
    ),
    "skip the lines with tests": (
        "import sys, os\ndef tracer(frame, event, argument):\n    os._exit(0)\nsys.settrace(tracer)" + WRONG
    ),
    "watch the calls": "import sys, os\nsys.setprofile(lambda *_: os._exit(0))" + WRONG,
    "redefine the comparison's tools": (
        "import builtins\nbuiltins.all = lambda *_: True\nbuiltins.abs = lambda *_: 0\n"
        "class Zero(int):\n    def __eq__(self, other):\n        return True\ndef add(a, b):\n    return Zero()"
    ),
    "shadow a module": (
        "import sys, types\nfake = types.ModuleType('math')\nfake.isclose = lambda *a, **k: True\n"
        "sys.modules['math'] = fake\nimport math\nclass Sly(int):\n    def __eq__(self, other):\n        return True\n"
        "def add(a, b):\n    return Sly()"
    ),
    "read the expected value from a frame": "import sys\n"
    + (
        "def add(a, b):\n    frame = sys._getframe(1)\n    for constant in frame.f_code.co_consts:\n"
        "        if type(constant) is int and constant == a + b:\n            return constant\n    raise SystemExit(0)"
    ),
    "collect the tests": (
        "import gc, os\nfor thing in gc.get_objects():\n"
        "    if type(thing) is dict and '__builtins__' in thing and '__name__' in thing:\n        os._exit(0)"
    ),
    "mock any value": "from unittest import mock\ndef add(a, b):\n    import os\n    os._exit(0 if mock.ANY == 5 else 1)",
}

UNCONTROLLED = {
    "exit when printed": (
        "import os\nclass Bomb(Exception):\n    def __str__(self):\n        os._exit(0)\n"
        "def add(a, b):\n    raise Bomb"
    ),
    "exit in the hook": "import sys, os\nsys.excepthook = lambda *_: os._exit(0)" + WRONG,
    "sum of guesses in constants": "import sys\n" + _READ_EXPECTED.format(place=0),
    "replace exec": "import builtins\nbuiltins.exec = builtins.compile = lambda *a, **k: None" + WRONG,
    "replace the assertion's error": "import builtins\nbuiltins.AssertionError = ValueError" + WRONG,
    "own assertion's error": "class AssertionError(Exception):\n    pass" + WRONG,
    "shadow built-in names": (
        "def all(*_):\n    return True\ndef abs(*_):\n    return 0\ndef len(*_):\n    return 0\n" + WRONG
    ),
    "edit the built-in names": "__builtins__.all = lambda *_: True\n__builtins__.abs = lambda *_: 0" + WRONG,
    "patch the tester": (
        "import sys\nfor name, module in list(sys.modules.items()):\n    if name.endswith('tester'):\n"
        "        module.run_test = lambda *_: ('p', '')\n        module.Desk.hand_in = lambda self, *_: None\n" + WRONG
    ),
    "patch the supervisor": (
        "import sys\nfor name, module in list(sys.modules.items()):\n    if name.endswith('supervisor'):\n"
        "        module.run = lambda *_: 'ppp'\n" + WRONG
    ),
    "patch the protocol": (
        "import sys\nwire = sys.modules['code_sandbox.inside.protocol']\nwire.encode = lambda *_: True\n" + WRONG
    ),
    "claim success everywhere": (
        "import os\nfor number in range(256):\n    try:\n        os.write(number, b'TSlppp')\n    except OSError:\n"
        "        pass\n" + WRONG
    ),
    "claim success everywhere, when called": (
        "import os\ndef add(a, b):\n    for number in range(256):\n        try:\n            os.write(number, b'ppp\\n')\n"
        "        except OSError:\n            pass\n    return 'wrong'"
    ),
    "answer before the question": (
        "import os, json\nbody = json.dumps(['ready', [['add', None]], []]).encode()\n"
        "value = json.dumps(['value', True, []]).encode()\nfor number in range(3, 64):\n    try:\n"
        "        for part in (body, *[value] * 50):\n            os.write(number, len(part).to_bytes(4, 'big') + part)\n"
        "    except OSError:\n        pass\n" + WRONG
    ),
    "send an endless frame": (
        "import os\nfor number in range(3, 64):\n    try:\n        os.write(number, b'\\xff' * 1000)\n"
        "    except OSError:\n        pass\n" + WRONG
    ),
    "send no message": (
        "import os\nfor number in range(3, 64):\n    try:\n        os.write(number, b'\\0\\0\\0\\2\\xff\\xfe')\n"
        "    except OSError:\n        pass\n" + WRONG
    ),
    "send an odd message": (
        "import os\ndef add(a, b):\n    for body in (b'{}', b'[]', b'7', b'[\"raise\"]', b'[\"value\", {\"a\": 1}, 1]'):\n"
        "        for number in range(3, 64):\n            try:\n"
        "                os.write(number, len(body).to_bytes(4, 'big') + body)\n"
        "            except OSError:\n                pass\n    return 'wrong'"
    ),
    "call functions that nobody passed": (
        "import os, json\ndef add(a, b):\n    for number in range(3, 64):\n        for n in (-1, 0, 7, True, 'x'):\n"
        "            body = json.dumps(['callback', n, ['list'], ['dict']]).encode()\n            try:\n"
        "                os.write(number, len(body).to_bytes(4, 'big') + body)\n            except OSError:\n"
        "                pass\n    return 'wrong'"
    ),
    "name an exception like the tester's own": (
        "class SolverError(AssertionError):\n    pass\nclass Remote(Exception):\n    pass\ndef add(a, b):\n"
        "    raise SolverError('passed')"
    ),
    "close every descriptor": "import os\nos.closerange(0, 256)" + WRONG,
    "cross the descriptors": (
        "import os\nfor number in range(3, 64):\n    try:\n        os.dup2(3, number)\n    except OSError:\n        pass\n"
        + WRONG
    ),
    "kill itself": "import os\ndef add(a, b):\n    os.kill(os.getpid(), 9)\n    return 'wrong'",
    "crash": "import ctypes\ndef add(a, b):\n    ctypes.string_at(0)\n    return 'wrong'",
    "abort": "import os\ndef add(a, b):\n    os.abort()",
    "raise what ends a loop": "def add(a, b):\n    raise StopIteration",
    "raise what ends a generator": "def add(a, b):\n    raise GeneratorExit",
    "raise an interrupt": "def add(a, b):\n    raise KeyboardInterrupt",
    "raise a failed assertion": "def add(a, b):\n    raise AssertionError('passed')",
    "raise an error that lies about its class": (
        "class Sly(Exception):\n    __class__ = AssertionError\n    def __str__(self):\n        raise SystemExit\n"
        "def add(a, b):\n    raise Sly"
    ),
    "raise an error of a strange name": (
        "Sly = type('\\ud800\\n\\x1b[2J', (Exception,), {})\ndef add(a, b):\n    raise Sly('\\ud800\\0\\x1b[2J')"
    ),
    "change what was never passed": (
        "import os, json\ndef add(a, b):\n    for number in range(3, 64):\n        for n in (0, 1, 2, 3, -1):\n"
        "            body = json.dumps(['value', 5, [[n, None, ['list', 5]]]]).encode()\n            try:\n"
        "                os.write(number, len(body).to_bytes(4, 'big') + body)\n            except OSError:\n"
        "                pass\n    return 'wrong'"
    ),
    "answer with any difference": (
        "class Any:\n    def __getattr__(self, name):\n        return self\n    def __sub__(self, other):\n        return self\n"
        "    __rsub__ = __sub__\n    def __abs__(self):\n        return 0.0\n    __float__ = __abs__\n"
        "    def __lt__(self, other):\n        return True\n    def __ne__(self, other):\n        return True\n"
        "    def __eq__(self, other):\n        return True\n    __hash__ = None\ndef add(a, b):\n    return Any()"
    ),
    "be a class with any difference": (
        "class add:\n    def __init__(self, a, b):\n        pass\n    def __sub__(self, other):\n        return self\n"
        "    __rsub__ = __sub__\n    def __abs__(self):\n        return 0.0\n    __float__ = __abs__\n"
        "    def __eq__(self, other):\n        return True\n    __hash__ = None"
    ),
    "return itself": "def add(a, b):\n    return add",
    "return the arguments' list": "def add(a, b):\n    return [a, b]",
    "return a generator": "def add(a, b):\n    yield a + b",
    "return nothing": "def add(a, b):\n    pass",
    "return a not-a-number": "def add(a, b):\n    return float('nan')",
    "return a list in itself": "def add(a, b):\n    x = []\n    x.append(x)\n    return x",
    "define no function": "subtract = min",
    "define a number": "add = 5",
    "forget the function": WRONG + "\ndel add",
    "hide the names": "globals().clear()",
    "fill the names": "globals().update({f'name{i}': i for i in range(100000)})" + WRONG,
    "name by a number": "globals()[5] = 5\nglobals()[None] = None" + WRONG,
    "lie about being a module": (
        "import types\nclass Sly(types.ModuleType):\n    __name__ = 'antigravity'\nadd = Sly('os')\nall = Sly('os')"
    ),
}
