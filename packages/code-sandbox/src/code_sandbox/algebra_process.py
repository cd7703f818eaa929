"""The process that knows algebra: it forks a confined child for each question, and never looks at one itself.

Starting SymPy takes a second and forking a process that has it a few milliseconds, so each question has a state of its
own that ends with it: what an answer did to its child reaches no other verdict. A child has no file but Python's own
library, no network, no other process, no environment and no way to start a program, and limits of time and memory. It
tells one letter. Landlock is taken before namespaces, as it costs nothing per child and lacks nothing here.
"""

from __future__ import annotations

import contextlib
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
from code_sandbox.notation import refusal_of_text, refusal_of_tree

EQUAL, DIFFERENT, REFUSED, FAILED, MEMORY, UNCONFINED = b"e", b"d", b"r", b"f", b"m", b"u"
"""What a child tells."""
TIME, ENDED = b"t", b"x"
"""What is told in place of a child that ended without a word."""

QUESTION_BYTES = 1 << 16
_REAP_MS = 20

# What SymPy imports from within functions. A child cannot: it opens no file of an installed package.
_LATE = """
assumptions.facts assumptions.lra_satask assumptions.satask assumptions.wrapper combinatorics
combinatorics.permutations logic.algorithms.dpll logic.algorithms.dpll2 logic.algorithms.lra_theory
physics.units polys.dispersion polys.distributedmodules polys.domains.old_fractionfield
polys.domains.old_polynomialring polys.domains.quotientring sets.setexpr sets.handlers.add
sets.handlers.functions sets.handlers.issubset sets.handlers.mul sets.handlers.power
tensor.array.array_derivatives tensor.array.expressions tensor.tensor
""".split()  # noqa: SIM905

# The parser of LaTeX learns what it reads; children inherit what is learnt from these.
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
    (r"e^{i\pi} + 5! + |x|", r"\binom{5}{2} \cdot 3 \times 10^{5}"),
]


def answer(descriptor: int, compare: Any) -> bytes:
    """One letter on a question, in its own process."""
    gold, said = json.loads(os.read(descriptor, QUESTION_BYTES))
    try:
        return EQUAL if compare(gold, said) is True else DIFFERENT
    except Refused:
        return REFUSED
    except (MemoryError, RecursionError):
        return MEMORY
    except Exception:
        return FAILED


class Refused(Exception):
    """What was read must not be computed with."""


class Server:
    """Forks the children and buries them.

    Args:
        channel: where the sockets of questions arrive, and whose end is the end of all.
        confinement: what each child enters, prepared.
        compare: as of `comparison`.
        bounds: of a child, whose seconds of the processor are the limit of a question.
        wall_seconds: a child ends after this also where it was kept from the processor.
    """

    def __init__(
        self, channel: Channel, confinement: Confinement, compare: Any, bounds: Bounds, wall_seconds: float
    ) -> None:
        self._channel, self._confinement, self._compare = channel, confinement, compare
        self._bounds, self._wall_seconds = bounds, wall_seconds
        self._children: dict[int, tuple[int, float]] = {}  # its socket, and when its time is over

    def serve(self) -> None:
        """Until the program that asks closes the socket, or has ended."""
        waiting = select.poll()
        waiting.register(self._channel.socket, select.POLLIN)
        while True:
            ready = waiting.poll(_REAP_MS if self._children else PARENT_CHECK_MS)
            self._bury()
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
            _tell(descriptor, ENDED)
            os.close(descriptor)
            return
        if pid:
            self._children[pid] = (descriptor, time.monotonic() + self._wall_seconds)
            return
        try:
            # The kernel ends the process then, whatever instruction it is in; the limit below cannot be taken back.
            signal.setitimer(signal.ITIMER_PROF, self._bounds.cpu_seconds)
            more = Bounds(self._bounds.memory_bytes, self._bounds.cpu_seconds + 1, self._bounds.scratch_bytes)
            try:
                self._confinement.enter(more, False)
            except BaseException:
                _tell(descriptor, UNCONFINED)
            else:
                close_all_but(descriptor)
                _tell(descriptor, answer(descriptor, self._compare))
        finally:
            os._exit(0)

    def _bury(self) -> None:
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
                _tell(descriptor, TIME if late else ENDED)  # behind what the child told; only the first letter counts
                os.close(descriptor)
                del self._children[pid]

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _tell(descriptor: int, letter: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody waits any more
        os.write(descriptor, letter)


def main(memory_bytes: int, cpu_seconds: int, wall_seconds: float, unconfined: bool) -> None:
    """Serves questions.

    Args:
        memory_bytes, cpu_seconds, wall_seconds: of a question.
        unconfined: whether to go on where the machine confines nothing.
    """
    channel = Channel.of_standard_input()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    try:
        compare = comparison()
    except ImportError as error:
        channel.send({"failure": f"{error}; pip install 'math-verify[antlr4_13_2]' brings it"})
        return
    except Exception as error:  # on an example of our own: another version of the library, perhaps
        channel.send({"failure": f"{type(error).__name__}: {error}"})
        return
    sys.path[:] = standard_library()  # which is what a child may read
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
    """The folders of `sys.path` that came with Python."""
    roots = [os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    installed = ("site-packages", "dist-packages")
    return [
        path
        for path in sys.path
        if any(os.path.realpath(path).startswith(root) for root in roots)
        and not any(name in path.split(os.sep) for name in installed)
    ]


def confine() -> tuple[Confinement, str]:
    """What the machine gives, prepared, and why it gives nothing better."""
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
    """The function that compares two texts; importing what it takes is what takes long."""
    import math_verify.grader
    from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from math_verify import verify
    from math_verify.parser import get_last_eq

    from code_sandbox import exactness

    for name in _LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(f"sympy.{name}")
    logging.disable(logging.CRITICAL)
    # The library takes numbers for equal that agree in six decimals, or to 1e-15 whatever their size.
    math_verify.grader.sympy_numeric_eq = exactness.numbers_equal
    math_verify.grader.sympy_symbolic_eq = exactness.expressions_equal
    math_verify.grader.sympy_solve_and_compare = exactness.relations_equal
    # Units are taken away before, by a list that does not take `5c` for 5; and R - r is not 0.
    rewriting = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
    )
    converting = ConversionConfig(lowercase_symbols=False)

    def read(text: str) -> Any:
        text = normalize_latex(exact(text), config=rewriting)
        for one in dict.fromkeys((text, get_last_eq(text))):
            if refusal_of_text(one):
                return None
            try:
                tree = latex2sympy(one, is_real=True, normalization_config=None, conversion_config=converting)
            except (MemoryError, RecursionError):
                raise
            except Exception:
                continue
            if reason := refusal_of_tree(tree):
                raise Refused(reason)
            return tree
        return None

    def compare(gold: str, said: str) -> bool:
        trees = read(gold), read(said)
        if None in (trees[0], trees[1]):
            return False
        return bool(
            verify([trees[0]], [trees[1]], timeout_seconds=None, raise_on_error=True, allow_set_relation_comp=True)
        )

    for gold, said in _WARM:
        compare(gold, said)
    return compare


_DECIMAL = re.compile(r"(?<![\d.])((?:\d{1,3}(?:,\d{3})+|\d+)?)\.(\d+)(?![\d.])")
_UNIT_I = re.compile(r"\\(?:begin|end)\{[^{}]*\}|\\[A-Za-z]+|_(?:\{[^{}]*\}|.)|i")


def exact(text: str) -> str:
    r"""A text with fractions for decimals, 0.25 as \frac{25}{100}, and with I for the imaginary unit."""
    text = _UNIT_I.sub(lambda found: "I" if found.group() == "i" else found.group(), text)
    return _DECIMAL.sub(
        lambda found: rf"{{\frac{{{found[1].replace(',', '')}{found[2]}}}{{1{'0' * len(found[2])}}}}}", text
    )
