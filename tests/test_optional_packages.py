"""What is missing is named with the command that installs it, and never by a name that someone else could publish."""

from __future__ import annotations

import pytest

from hf_credit.optional_packages import how_to_install


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("viz", "pip install 'matplotlib>=3.9.2'"),
        ("statistics", "pip install 'scipy>=1.15' 'statsmodels>=0.14.4'"),
        ("hub", "pip install 'starlette>=1.0.1' 'uvicorn>=0.35'"),
        ("leaderboard", "pip install 'cryptography>=44'"),
        ("math", "pip install 'math-verify[antlr4_13_2]<0.10,>=0.9'"),
    ],
)
def test_an_extra_is_installed_by_its_requirements(extra: str, command: str) -> None:
    assert how_to_install(extra) == command
