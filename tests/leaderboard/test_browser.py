"""The page in a real browser: what people see, that hostile names do nothing, phones, and a Hub that is down."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from hf_credit.evaluation.statistics import paired_difference
from hf_credit_leaderboard.results import Results
from hf_credit_leaderboard.sources import Source

from .conftest import BENCHMARK, FORMULA, HOSTILE, Listed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from browser import find

sys.path.pop(0)  # next to it lies a folder vllm, which TRL would take for the package

EXECUTABLE = find()
if EXECUTABLE is None and not os.environ.get("CI"):
    pytest.skip("no browser: run make browser", allow_module_level=True)

SECONDS = 120_000  # milliseconds: a machine that does much else at the time is slow, not wrong


class Switched:
    """Results that can be taken away and given back."""

    def __init__(self, listed: Listed) -> None:
        self.listed = listed
        self.down = False

    def __call__(self) -> Results:
        if self.down:
            raise OSError("the Hub must be reachable, got ConnectError; connect.")
        return cast(Results, self.listed.results())


@pytest.fixture(scope="module")
def served(listed: Listed, leaderboard_page: Any) -> Iterator[tuple[str, Switched]]:
    switched = Switched(listed)
    app = leaderboard_page.build(Source(switched))
    url = leaderboard_page.launch(app, block=False)
    yield url, switched
    app.close(verbose=False)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    assert EXECUTABLE is not None, "CI must have a browser: run make browser"
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=arguments)
        # All pages are of one visitor, whose browser keeps the scripts.
        yield browser.new_context(reduced_motion="reduce")
        browser.close()


@pytest.fixture
def opened(chromium: Any, served: tuple[str, Switched]) -> Iterator[Any]:
    """Opens the page at an address and a width; no request may leave this machine, and no dialog may open."""
    pages, outside = [], []

    def go(query: str = "", width: int = 1280) -> Any:
        page = chromium.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.set_default_timeout(SECONDS)
        page.on("request", lambda one: outside.append(one.url) if not _own(one.url) else None)
        page.on("dialog", lambda one: outside.append(f"dialog {one.message}"))
        page.goto(f"{served[0]}?{query}")
        told = "document.querySelector('#board-text p')"
        page.wait_for_function(f"{told} && !{told}.innerText.startsWith('Loading')")
        pages.append(page)
        return page

    yield go
    for page in pages:
        page.close()
    assert outside == []


def shows(page: Any, selector: str, text: str) -> None:
    """Waits until people can read a text there; tables hold hidden copies of their cells, too."""
    page.wait_for_function(
        "([where, text]) => document.querySelector(where).innerText.includes(text)", arg=[selector, text]
    )


def _own(url: str) -> bool:
    return url.startswith(("http://127.0.0.1", "http://localhost", "data:", "blob:", "about:"))


def test_the_board_shows_ranks_badges_and_hostile_names_as_plain_text(opened: Any, listed: Listed) -> None:
    page = opened()
    table = page.locator("#board-table")
    shows(page, "#board-table", "steady")
    for text in (HOSTILE, FORMULA, f"copy of {listed.ids['quick'][:8]}", "not verified", "1 (one seed)"):
        shows(page, "#board-table", text)
    assert page.locator("#board-table img, #board-table a[href*=evil]").count() == 0
    assert page.title() == "hf-credit leaderboard"
    # A search leaves what fits.
    table.locator("input.search-input").fill("slow")
    page.wait_for_function("!document.querySelector('#board-table').innerText.includes('steady')")
    shows(page, "#board-table", "slow")


def test_a_deep_link_compares_two_entries_as_the_statistics_do(opened: Any, listed: Listed) -> None:
    page = opened(f"board=sudoku&a={listed.ids['steady']}&b={listed.ids['slow']}")
    means = [listed.outcomes[name].mean(axis=0) for name in ("steady", "slow")]
    difference = paired_difference(*means, within=(0, 1))
    table = page.locator("#compare-table")
    shows(page, "#compare-table", f"{difference.mean:+.4f}")
    shown = table.inner_text()
    assert f"[{difference.low:.3f}, {difference.high:.3f}]" in shown
    page.get_by_role("link", name="Link to this comparison").wait_for()


def test_an_entry_shows_where_it_is_from(opened: Any, listed: Listed) -> None:
    page = opened(f"entry={listed.ids['steady']}")
    shows(page, "#provenance", '"seed": 2')


def test_credit_is_what_the_bench_measured(opened: Any) -> None:
    page = opened("tab=Credit&credit=key")
    shows(page, "#credit-table", "grpo")
    shows(page, "#credit-table", "25.0%")


def test_submit_shows_the_command_of_the_season(opened: Any) -> None:
    shows(opened("tab=Submit"), "#how", f"--benchmark {BENCHMARK}")


def test_a_phone_shows_everything_within_its_width(opened: Any) -> None:
    page = opened(width=390)
    shows(page, "#board-table", "steady")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shows(page, "h1", "credit assignment for language agents")
    # Rank, name, mean and interval are seen without scrolling, with as many decimals.
    cells = page.locator("#board-table [role=gridcell]:visible, #board-table td:visible")
    boxes = [cells.nth(place).bounding_box() for place in range(4)]
    assert all(box and box["x"] + box["width"] <= 390 for box in boxes)
    mean, interval = (" ".join(cells.nth(place).inner_text().split()) for place in (2, 3))
    numbers = [mean, *interval.strip("[]").split(", ")]
    assert [len(number.partition(".")[2]) for number in numbers] == [3, 3, 3]


def test_without_the_hub_the_last_results_stay_beside_the_trouble(opened: Any, served: tuple[str, Switched]) -> None:
    shows(opened(), "#board-table", "steady")
    served[1].down = True
    try:
        page = opened()
        page.locator("#trouble [role=alert]").wait_for()
        assert "the page shows earlier ones" in page.locator("#trouble").inner_text()
        shows(page, "#board-table", "steady")
    finally:
        served[1].down = False
