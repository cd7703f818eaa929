"""What is missing is named with the command that installs it, and never by a name that someone else could publish."""

from __future__ import annotations

import pytest

from hf_credit.extras import how_to_install


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("viz", "pip install 'matplotlib>=3.9.2'"),
        ("statistics", "pip install 'scipy>=1.15' 'statsmodels>=0.14.4'"),
        ("hub", "pip install ./packages/local-hub in a clone"),
        ("bench", "pip install ./packages/bench in a clone"),
        ("leaderboard", "pip install ./packages/bench ./packages/leaderboard in a clone"),
    ],
)
def test_an_extra_is_installed_by_its_requirements(extra: str, command: str) -> None:
    assert how_to_install(extra) == command
