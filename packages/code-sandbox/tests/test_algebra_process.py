"""The comparison itself; the process around it is tested by `test_algebra` and `test_algebra_attacks`."""

from __future__ import annotations

import subprocess
import sys
import sysconfig

import pytest

from code_sandbox.algebra_process import exact, standard_library


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.25", r"{\frac{025}{100}}"),
        (".5x", r"{\frac{5}{10}}x"),
        ("1,234.5 + x", r"{\frac{12345}{10}} + x"),
        ("(1,2.5)", r"(1,{\frac{25}{10}})"),
        ("2 + 3i", "2 + 3I"),
        (r"\sin x_i + \pi", r"\sin x_i + \pi"),
        (r"\begin{pmatrix} i \end{pmatrix}", r"\begin{pmatrix} I \end{pmatrix}"),
    ],
)
def test_decimals_become_fractions(text: str, said: str) -> None:
    assert exact(text) == said


def test_a_child_may_read_what_came_with_python_only() -> None:
    assert sysconfig.get_path("stdlib") in standard_library()
    assert not [path for path in standard_library() if "-packages" in path]


def test_every_example_that_warms_the_parser_is_read() -> None:
    script = (
        "from code_sandbox import algebra_process as algebra; compare = algebra.comparison(); "
        "print(all(compare(text, text) for pair in algebra._WARM for text in pair))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "True"
