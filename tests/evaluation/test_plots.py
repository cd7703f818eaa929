from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from hf_credit.evaluation.plots import learning_curves, require_matplotlib, smoothed
from hf_credit.evaluation.runs import Run


def run(name: str, *values: float) -> Run:
    return Run(name=name, log=tuple({"step": step, "success": value} for step, value in enumerate(values, start=1)))


def size(path: Path) -> tuple[int, int]:
    """Width and height, from the header that every PNG starts with."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_a_curve_is_drawn_for_each_quantity_that_was_logged(tmp_path: Path) -> None:
    one = learning_curves([run("a", 0.1, 0.2, 0.3)], tmp_path / "one.png")
    log = tuple({"step": step, "success": 0.1 * step, "reward": -step, "entropy": 1.0} for step in range(1, 4))
    three = learning_curves([Run(name="b", log=log)], tmp_path / "three.png")
    assert size(three)[0] == pytest.approx(3 * size(one)[0], abs=2)  # matplotlib rounds each figure to whole pixels
    assert size(three)[1] == size(one)[1]
    twice = tuple({"step": step, "success": 0.1 * step, "reward": 0.1 * step} for step in range(1, 4))
    assert size(learning_curves([Run(name="b", log=twice)], tmp_path / "same.png")) == size(one)
    verdicts = tuple({"step": step, "process_reward/mean": 0.5, "oracle/valid": 0.5} for step in range(1, 4))
    valid = [Run(name="vpr", log=verdicts), Run(name="outcome", log=twice)]
    assert size(learning_curves(valid, tmp_path / "valid.png"))[0] == 2 * size(one)[0]


def test_each_run_has_its_colour(tmp_path: Path) -> None:
    path = learning_curves([run("a", 0.1, 0.2, 0.3), run("b", 0.3, 0.2, 0.1)], tmp_path / "two.png")
    pixels = {tuple((255 * pixel[:3]).round().astype(int)) for row in imread(path) for pixel in row}
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= pixels


def test_a_log_without_anything_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs one of reward, success"):
        learning_curves([Run(name="a", log=({"step": 1, "nothing": 2.0},))], tmp_path / "x.png")


def test_matplotlib_is_here() -> None:
    require_matplotlib()


def test_smoothing_is_the_mean_of_a_trailing_window() -> None:
    assert smoothed([1.0, 3.0, 5.0, 7.0], 2) == [1.0, 2.0, 4.0, 6.0]


@given(st.lists(st.integers(-9, 9), max_size=12), st.integers(1, 5))
def test_smoothing_keeps_to_the_values_it_covers(values: list[int], window: int) -> None:
    lines = smoothed([float(value) for value in values], window)
    assert len(lines) == len(values)
    for end, mean in enumerate(lines):
        covered = [values[index] for index in range(len(values)) if end - window < index <= end]
        assert mean == pytest.approx(sum(covered) / len(covered))
