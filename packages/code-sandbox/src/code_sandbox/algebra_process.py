"""The process that compares by algebra: it forks a confined child for each comparison, and never reads an answer.

SymPy takes a second to start, and a process that has it a few milliseconds to fork. So each comparison has a state of
its own that ends with it: what an answer does to its child reaches no other comparison. A child has no file but
Python's own library, no network, no other process, no environment, cannot start a program, and has limits of time and
memory. It returns one letter. Landlock comes before namespaces: it costs nothing for a child and lacks nothing here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import logging
import os
import re
import select
import signal
import socket
import sys
import sysconfig
import time
from typing import Any

from code_sandbox.inside.channel import PARENT_CHECK_MS, Channel, close_all_but
from code_sandbox.inside.confinement import LANDLOCK, NAMESPACES, NONE, Bounds, Confinement
from code_sandbox.notation import Refused, refusal_of_text, refusal_of_tree

EQUAL, DIFFERENT, REFUSED, FAILED, MEMORY, UNCONFINED = b"e", b"d", b"r", b"f", b"m", b"u"
"""The answers of a child."""
TIME, ENDED = b"t", b"x"
"""The answers for a child that ended without one."""

QUESTION_BYTES = 1 << 16
_REAP_MS = 20

# Modules that SymPy imports within functions. A child cannot: it opens no file of an installed package.
_LATE = """
assumptions.facts assumptions.lra_satask assumptions.satask assumptions.wrapper combinatorics
combinatorics.permutations logic.algorithms.dpll logic.algorithms.dpll2 logic.algorithms.lra_theory
physics.units polys.dispersion polys.distributedmodules polys.domains.old_fractionfield
polys.domains.old_polynomialring polys.domains.quotientring sets.setexpr sets.handlers.add
sets.handlers.functions sets.handlers.issubset sets.handlers.mul sets.handlers.power
tensor.array.array_derivatives tensor.array.expressions tensor.tensor
""".split()  # noqa: SIM905

# The LaTeX parser caches what it reads; children inherit the cache of these.
_WARM = [
    ("x + 1", "1 + x"),
    (r"3\sqrt{2}", r"\sqrt{18}"),
    (r"\frac{\sqrt{3}}{3} - \frac{x}{2y}", r"\frac{1}{\sqrt{3}} - \frac{1}{2}xy^{-1}"),
    (r"x^2 + 2x - 7", "-7 + 2x + 3x^{2}"),
    (r"(-\infty, 2) \cup (3, \infty)", r"(3,\infty)\cup(-\infty,2]"),
    (r"\begin{pmatrix} 1/5 \\ -3 \end{pmatrix}", r"\begin{pmatrix} 0.2 \\ \frac{-6}{2} \end{pmatrix}"),
    (r"\begin{pmatrix} 1 & x \\ 0 & 2 \end{pmatrix}", r"\begin{pmatrix} 1 & y \\ 0 & 2 \end{pmatrix}"),
    (r"2 + 3\pi", r"3\pi + 2"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3, \pi)"),
    (r"1 \pm \sqrt{19}", r"1 + \sqrt{19}, 1 - \sqrt{19}"),
    (r"\{1, 2, x\}", r"\{x, 2, 1\}"),
    ("6 - 5i", "-5i + 6"),
    ("y = 2x + 3", "y - 2x = 3"),
    (r"x \le 5", r"5 \ge x"),
    (r"[-2, 7]", r"x \in [-2, 7]"),
    (r"\sin^2 x + \cos(2\theta) - \tan \frac{\pi}{4}", r"\log_2 x + \ln(3)"),
    (r"\int_0^1 x e^{x} dx", r"\gcd(10^{20}, 6) + \int_0^{\infty} e^{-x} dx"),
    (r"e^{i\pi} + 5! + |x|", r"\binom{5}{2} \cdot 3 \times 10^{5}"),
]


def answer(descriptor: int, compare: Any) -> bytes:
    """Returns the letter of a comparison, in its own process."""
    gold, given = json.loads(os.read(descriptor, QUESTION_BYTES))
    try:
        return EQUAL if compare(gold, given) is True else DIFFERENT
    except Refused:
        return REFUSED
    except (MemoryError, RecursionError):
        return MEMORY
    except Exception:
        return FAILED


class Server:
    """Forks the children and reaps them.

    Args:
        channel: receives the sockets of comparisons; when it closes, all ends.
        confinement: prepared, for each child to enter.
        compare: from `comparison`.
        bounds: of a child; its CPU time is the limit of a comparison.
        wall_seconds: wall-clock limit of a child.
    """

    def __init__(
        self, channel: Channel, confinement: Confinement, compare: Any, bounds: Bounds, wall_seconds: float
    ) -> None:
        self._channel, self._confinement, self._compare = channel, confinement, compare
        self._bounds, self._wall_seconds = bounds, wall_seconds
        self._children: dict[int, tuple[int, float]] = {}  # by process id: socket and deadline

    def serve(self) -> None:
        """Serves until the calling program closes the socket or ends."""
        waiting = select.poll()
        waiting.register(self._channel.socket, select.POLLIN)
        while True:
            ready = waiting.poll(_REAP_MS if self._children else PARENT_CHECK_MS)
            self._reap()
            if not ready:
                if self._channel.is_orphan:
                    break
                continue
            data, sockets, _, _ = socket.recv_fds(self._channel.socket, 1, 1)
            if not data:
                break
            for descriptor in sockets:
                self._fork(descriptor)
        for pid in self._children:
            self._kill(pid)

    def _fork(self, descriptor: int) -> None:
        try:
            pid = self._confinement.fork(False)
        except OSError:
            _answer(descriptor, ENDED)
            os.close(descriptor)
            return
        if pid:
            self._children[pid] = (descriptor, time.monotonic() + self._wall_seconds)
            return
        try:
            # The kernel ends the process then, whatever instruction it is in; the child cannot lift the limit below.
            signal.setitimer(signal.ITIMER_PROF, self._bounds.cpu_seconds)
            bounds = dataclasses.replace(self._bounds, cpu_seconds=self._bounds.cpu_seconds + 1)
            try:
                self._confinement.enter(bounds, False)
            except BaseException:
                _answer(descriptor, UNCONFINED)
            else:
                close_all_but(descriptor)
                _answer(descriptor, answer(descriptor, self._compare))
        finally:
            os._exit(0)

    def _reap(self) -> None:
        now = time.monotonic()
        for pid, (descriptor, end) in list(self._children.items()):
            if now > end:
                self._kill(pid)
            try:
                ended, status = os.waitpid(pid, 0 if now > end else os.WNOHANG)
            except ChildProcessError:
                ended, status = pid, 0
            if ended:
                late = now > end or os.waitstatus_to_exitcode(status) in (-signal.SIGPROF, -signal.SIGKILL)
                _answer(descriptor, TIME if late else ENDED)  # after the child's answer; only the first letter counts
                os.close(descriptor)
                del self._children[pid]

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _answer(descriptor: int, letter: bytes) -> None:
    with contextlib.suppress(OSError):  # no reader is left
        os.write(descriptor, letter)


def main(memory_bytes: int, cpu_seconds: int, wall_seconds: float, unconfined: bool) -> None:
    """Serves comparisons.

    Args:
        memory_bytes, cpu_seconds, wall_seconds: limits of a comparison.
        unconfined: whether to run where the machine confines nothing.
    """
    channel = Channel.of_standard_input()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    try:
        compare = comparison()
    except ImportError as error:
        channel.send({"failure": f"{error}; install it with: pip install 'math-verify[antlr4_13_2]'"})
        return
    except Exception as error:  # on a warm-up example: another version of the library, perhaps
        channel.send({"failure": f"{type(error).__name__}: {error}"})
        return
    sys.path[:] = standard_library()  # a child may read this
    confinement, missing = confine()
    if confinement.level == NONE and not unconfined:
        channel.send({"unconfined": missing})
        return
    gc.collect()
    gc.freeze()
    channel.send({"level": confinement.level})
    bounds = Bounds(memory_bytes, cpu_seconds, 0)
    Server(channel, confinement, compare, bounds, wall_seconds).serve()


def standard_library() -> list[str]:
    """Returns the folders of `sys.path` that come with Python."""
    roots = [os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    installed = ("site-packages", "dist-packages")
    return [
        path
        for path in sys.path
        if any(os.path.realpath(path).startswith(root) for root in roots)
        and not any(name in path.split(os.sep) for name in installed)
    ]


def confine() -> tuple[Confinement, str]:
    """Returns the best confinement of the machine, prepared, and why it lacks better ones."""
    reasons = []
    for level in (LANDLOCK, NAMESPACES) if sys.platform == "linux" else ():
        try:
            confinement = Confinement(level)
            confinement.detach()
            confinement.prepare(False)
            return confinement, ""
        except (OSError, LookupError, AttributeError, ValueError) as error:
            reasons.append(f"{level}: {error}")
    confinement = Confinement(NONE)
    confinement.prepare(False)
    return confinement, "; ".join(reasons) or f"{sys.platform} has neither Landlock nor namespaces"


# The comparison


def comparison() -> Any:
    """Returns the function that compares two texts. Most of the time goes into imports."""
    import math_verify.grader
    from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
    from math_verify import verify
    from math_verify.parser import get_last_eq
    from sympy import Integral

    from code_sandbox import exactness

    for name in _LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(f"sympy.{name}")
    logging.disable(logging.CRITICAL)
    # The library counts numbers as equal that agree in six decimals, or to 1e-15 whatever their size.
    math_verify.grader.sympy_numeric_eq = exactness.numbers_equal
    math_verify.grader.sympy_symbolic_eq = exactness.expressions_equal
    math_verify.grader.sympy_solve_and_compare = exactness.relations_equal
    _Latex2Sympy.handle_gcd_lcm = lambda _, name, values: exactness.divisors(name, values)
    # The caller has removed units, by a list that does not read `5c` as 5; and R - r is not 0.
    rewriting = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
    )
    converting = ConversionConfig(lowercase_symbols=False)

    def read(text: str) -> Any:
        text = normalize_latex(exact(text), config=rewriting)
        for candidate in dict.fromkeys((text, get_last_eq(text))):
            if refusal_of_text(candidate):
                return None
            try:
                tree = latex2sympy(candidate, is_real=True, normalization_config=None, conversion_config=converting)
            except (MemoryError, RecursionError, Refused):
                raise
            except Exception:
                continue
            if reason := refusal_of_tree(tree):
                raise Refused(reason)
            return tree.doit(manual=True) if tree.has(Integral) else tree  # by the rules of a school book
        return None

    def compare(gold: str, answer: str) -> bool:
        trees = read(gold), read(answer)
        if trees[0] is None or trees[1] is None:
            return False
        return bool(
            verify([trees[0]], [trees[1]], timeout_seconds=None, raise_on_error=True, allow_set_relation_comp=True)
        )

    for pair in _WARM:
        compare(*pair)
    return compare


_DECIMAL = re.compile(r"(?<![\d.])((?:\d{1,3}(?:,\d{3}){1,20}|\d+)?)\.(\d+)(?![\d.])")
_UNIT_I = re.compile(r"\\(?:begin|end)\{[^{}]*\}|\\[A-Za-z]+|_(?:\{[^{}]*\}|.)|i")


def exact(text: str) -> str:
    r"""Returns the text with fractions for decimals, 0.25 as \frac{25}{100}, and with I for the imaginary unit."""
    text = _UNIT_I.sub(lambda found: "I" if found.group() == "i" else found.group(), text)
    return _DECIMAL.sub(
        lambda found: rf"{{\frac{{{found[1].replace(',', '')}{found[2]}}}{{1{'0' * len(found[2])}}}}}", text
    )
