# ruff: noqa: E501
"""Attempts to exceed the limits. With each: the outcomes that its first test may have.

`ENDLESS` would never end by themselves; `GREEDY` ask for too much. `DESERVED` try, are stopped, and then answer
rightly: they keep their score.
"""

RIGHT = "\ndef add(a, b):\n    return a + b\n"

ENDLESS = {
    "loop when loaded": "while True:\n    pass",
    "loop in the call": "def add(a, b):\n    while True:\n        pass",
    "loop in C": "import itertools\ndef add(a, b):\n    return sum(itertools.repeat(0))",
    "loop in C when loaded": "import itertools, collections\ncollections.deque(itertools.repeat(0), maxlen=0)",
    "match for ever": "import re\ndef add(a, b):\n    re.match(r'(a|a)*b', 'a' * 60)",
    "ignore every signal": (
        "import signal\nfor number in range(1, 65):\n    try:\n        signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError):\n        pass\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
        "while True:\n    pass"
    ),
    "catch everything": "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
    "print for ever": "while True:\n    print('x' * 100000)",
    "complain for ever": "import sys\nwhile True:\n    sys.stderr.write('x' * 100000)",
    "write to C's output for ever": "import os\nwhile True:\n    os.write(1, b'x' * 100000)",
    "loop when told about": (
        "class Slow(Exception):\n    def __str__(self):\n        while True:\n            pass\n"
        "def add(a, b):\n    raise Slow"
    ),
    "loop when read": (
        "import fractions\nclass Slow(fractions.Fraction):\n    @property\n    def numerator(self):\n"
        "        while True:\n            pass\ndef add(a, b):\n    return Slow(1, 2)"
    ),
    "import for ever": "import sys\nclass Finder:\n    def find_spec(self, *_):\n        while True:\n            pass\n"
    "sys.meta_path.insert(0, Finder())\nimport nothing",
}

SLEEPING = {
    "sleep": "import time\ntime.sleep(1000)",
    "sleep in the call": "import time\ndef add(a, b):\n    time.sleep(1000)",
    "wait for a signal": "import signal\nsignal.pause()",
    "wait for a lock": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "wait for itself": "import os\nread, write = os.pipe()\nos.read(read, 1)",
}

GREEDY = {
    "ask for much memory": ("x = 'x' * 10**12", {"memory"}),
    "ask for much memory in the call": ("def add(a, b):\n    return 'x' * 10**12", {"memory"}),
    "take memory bit by bit": ("x = []\nwhile True:\n    x.append(bytearray(10**6))", {"memory", "error"}),
    "take small pieces of memory": (
        "x = []\nwhile True:\n    x += [[] for _ in range(10**5)]",
        {"memory", "error", "timeout"},
    ),
    "map memory": ("import mmap\nx = [mmap.mmap(-1, 2**30) for _ in range(1000)]", {"error", "memory"}),
    "unpack a bomb": (
        "import zlib\nbomb = zlib.compressobj()\ndata = b''.join(bomb.compress(bytes(10**7)) for _ in range(100))\n"
        "zlib.decompress(data + bomb.flush())",
        {"memory", "error", "timeout"},
    ),
    "power": ("def add(a, b):\n    return 10 ** 10 ** 10", {"timeout", "memory", "error"}),
    "return much": ("def add(a, b):\n    return 'x' * 10**8", {"error", "memory"}),
    "return many": ("def add(a, b):\n    return [[]] * 10**7", {"error", "memory", "timeout"}),
    "return a deep list": (
        "def add(a, b):\n    x = []\n    for _ in range(10**5):\n        x = [x]\n    return x",
        {"failed", "error", "timeout"},
    ),
    "return a long number": ("def add(a, b):\n    return 7 ** 10**5", {"failed"}),
    "recurse": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef add(a, b):\n    return add(a, b)",
        {"error", "memory", "timeout"},
    ),
    "recurse in C": (
        "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6):\n    x = [x]\nrepr(x)",
        {"error", "memory", "timeout"},
    ),
    "nest the code": ("x = " + "(" * 5000 + ")" * 5000, {"error", "memory"}),
    "negate the code": ("x = " + "-" * 50000 + "1", {"error", "memory"}),
    "fork for ever": ("import os\nwhile True:\n    os.fork()", {"error"}),
    "start threads for ever": (
        "import threading\nwhile True:\n    threading.Thread(target=threading.Event().wait).start()",
        {"error"},
    ),
    "open files for ever": ("import os\nx = [os.dup(1) for _ in range(10**6)]", {"error"}),
    "raise a long message": ("def add(a, b):\n    raise ValueError('x' * 10**7)", {"error"}),
}

DESERVED = {
    "fill the scratch": (
        "import os\ntry:\n    with open('file', 'wb') as file:\n        while True:\n            file.write(bytes(10**6))\n"
        "except OSError:\n    pass\n" + RIGHT
    ),
    "fill the scratch with files": (
        "try:\n    for i in range(10**6):\n        open(f'{i}', 'w').close()\nexcept OSError:\n    pass\n" + RIGHT
    ),
    "open many files": (
        "import os\nx = []\ntry:\n    while True:\n        x.append(os.dup(1))\nexcept OSError:\n    pass\n" + RIGHT
    ),
    "try to fork": "import os\ntry:\n    os.fork()\nexcept OSError:\n    pass\n" + RIGHT,
    "print much": "print('x' * 10**7)\nimport sys\nsys.stderr.write('x' * 10**7)\n" + RIGHT,
    "ask for input": "try:\n    input()\nexcept EOFError:\n    pass\n" + RIGHT,
    "end the output": "import sys\nsys.stdout.close()\nsys.stderr.close()\nsys.stdin.close()\n" + RIGHT,
}
