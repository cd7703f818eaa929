"""The page of an episode: all of it is there, and nothing in it acts."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from PIL import Image as pil

from hf_credit.content import Image, Text
from hf_credit.evaluation.credit_tables import credit_table, decision_table
from hf_credit.evaluation.credited import CreditedDecision, CreditedEpisode, CreditedReply
from hf_credit.evaluation.episode_page import episode_page, rounded
from hf_credit.evaluation.runs import Run

HOSTILE = '</pre><script>alert(1)</script><img src=x onerror=alert(1)>" style="{{ 7 * 7 }}{% raw %}\x00\u202e&amp;'


class Seen(HTMLParser):
    """The elements of a page, their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.text += " "
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        if self.elements[-1:] != ["style"]:
            self.text += data


@pytest.fixture
def episode() -> CreditedEpisode:
    plan = CreditedDecision(
        role="reasoner",
        event="plan",
        context="Which number?",
        reply="say nine",
        tokens=2,
        reward=0.25,
        verdict=0.5,
        valid=True,
        credit=-0.5,
        outcomes=(0.0, 1.0),
        alternatives=(CreditedReply(reply="say five", outcomes=(1.0, 1.0), credit=1.0),),
        alternatives_left_out=3,
    )
    answer = CreditedDecision(
        role="actor", event="actor", context="say nine", reply="ab", token_credit=(("a", 2.0), ("b", -1.0)), credit=0.5
    )
    view = CreditedEpisode(
        decisions=(plan, answer), outcome=1.0, ending="finished", update=4, metrics={"success": 1.0}
    )
    return replace(view, decisions=(*view.decisions, replace(answer, credit=None, token_credit=(), reply="unused")))


def test_every_part_of_a_decision_is_on_the_page(episode: CreditedEpisode) -> None:
    text = " ".join(Seen(episode_page(episode, "A run")).text.split())
    for part in (
        "A run update 4",
        "outcome 1 ending finished success 1",
        "1. reasoner, plan",
        "-0.5 task's reward 0.25 oracle's verdict 0.5, valid tokens 2 outcomes 0, 1",
        "New in the context Which number? say nine",
        "Alternatives: 4 +1 outcomes 1, 1 say five and 3 more",
        "2. actor +0.5",
        "3. actor not trained on",
        "A full bar is 1, the largest on this page. A token in full colour has 2.",
    ):
        assert part in text


def test_a_page_names_the_method_and_links_to_the_other_episodes(episode: CreditedEpisode) -> None:
    others = [("1", "episode_1.html"), ("2", None), ("3", "episode_3.html")]
    page = episode_page(episode, "A run", method="vineppo", others=others)
    assert "Episodes: 1 2 3 method vineppo" in " ".join(Seen(page).text.split())
    assert re.findall('href="([^"]*)"', page) == ["episode_1.html", "episode_3.html"]
    assert "Episodes" not in episode_page(episode, "A run")


def test_numbers_that_are_0_up_to_rounding_are_0() -> None:
    assert [rounded(value, ".3g") for value in (-2.46e-17, -0.0, 1e-8, 0.25)] == ["0", "0", "1e-08", "0.25"]
    logged = Run(name="a", log=({"step": 1, "advantages/mean": -2.46e-17, "advantages/trained": 1.0},))
    assert credit_table(logged)[1] == [["all", "0", "-", "-", "1", "-", "-"]]


def test_bars_and_tokens_are_signed_and_to_scale(episode: CreditedEpisode) -> None:
    page = episode_page(episode)
    assert 'class="bar minus" style="--share: 0.500"' in page  # -0.5 of 1
    assert 'class="bar plus" style="--share: 1.000"' in page  # the alternative's 1
    marks = re.findall(r'<mark class="(\w+)" style="--share: ([\d.]+)" title="(.*?)">(.)</mark>', page)
    assert marks == [("plus", "1.000", "+2", "a"), ("minus", "0.500", "-1", "b")]


def test_no_text_becomes_markup(episode: CreditedEpisode) -> None:
    honest = Seen(episode_page(episode, "title"))
    bad = replace(
        episode.decisions[0],
        role=HOSTILE,
        event=f"{HOSTILE}!",
        context=HOSTILE,
        reply=HOSTILE,
        alternatives=(CreditedReply(reply=HOSTILE, outcomes=(1.0, 1.0), credit=1.0),),
    )
    tokens = replace(episode.decisions[1], role=HOSTILE, event=HOSTILE, token_credit=((HOSTILE, 2.0), (HOSTILE, -1.0)))
    unused = replace(episode.decisions[2], reply=HOSTILE)
    page = episode_page(
        replace(episode, decisions=(bad, tokens, unused), ending=HOSTILE, metrics={HOSTILE: 1.0}), HOSTILE
    )
    seen = Seen(page)
    assert seen.elements == honest.elements
    assert seen.attributes == honest.attributes
    assert "script" not in seen.elements
    assert "alert(1)" in seen.text  # it is shown as text
    assert "{{ 7 * 7 }}" in seen.text
    assert "\x00" not in page
    assert "\u202e" not in page
    assert "\\u202e" in seen.text


CALL = CreditedDecision(
    role="policy",
    event="policy",
    context="<|user|>Which box holds tea?<|assistant|>",
    reply='<tool_call>{"name": "open", "arguments": {"box": "a"}}</tool_call>',
    calls=('open(box="a")',),
    credit=0.5,
    messages=(("user", "Which box holds tea?"),),
    alternatives=(CreditedReply(reply="<tool_call>", calls=('open(box="b")',), content="Hm.", credit=-0.5),),
)
ANSWER = CreditedDecision(role="policy", event="policy", context="", reply="a", messages=(("tool", "tea"),))


def test_tool_calls_and_their_results_are_readable_on_the_page() -> None:
    called = CreditedEpisode(decisions=(CALL, ANSWER), outcome=1.0, ending="finished")
    text = " ".join(Seen(episode_page(called)).text.split())
    for part in (
        'New in the context user Which box holds tea? calls open(box="a")',
        'Alternatives: 1 -0.5 outcomes none Hm. calls open(box="b")',
        "New in the context tool tea a",
    ):
        assert part in text
    assert "<|user|>" not in text
    assert [row[3] for row in decision_table(called)[1]] == ['open(box="a")', "a"]


def test_no_tool_call_becomes_markup() -> None:
    honest = CreditedEpisode(decisions=(CALL, ANSWER), outcome=1.0, ending="finished")
    (other,) = CALL.alternatives
    bad = replace(CALL, reply=HOSTILE, calls=(HOSTILE,), messages=((HOSTILE, HOSTILE),))
    bad = replace(bad, alternatives=(replace(other, calls=(HOSTILE,), content=HOSTILE),))
    seen = Seen(episode_page(replace(honest, decisions=(bad, ANSWER))))
    assert seen.elements == Seen(episode_page(honest)).elements
    assert "alert(1)" in seen.text


def test_the_page_loads_nothing_and_runs_nothing(episode: CreditedEpisode) -> None:
    page = episode_page(episode)
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|src=|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport" content="width=device-width' in page


def test_images_of_messages_are_within_the_page_each_beside_its_decision(episode: CreditedEpisode) -> None:
    red, blue = (Image.of(pil.new("RGB", (4, 3), colour)) for colour in ("red", "blue"))
    messages = [("user", (Text(HOSTILE), red)), ("tool", (blue,))]
    first, *others = episode.decisions
    page = episode_page(replace(episode, decisions=(replace(first, messages=tuple(messages)), *others)))
    assert re.findall(r'<img src="data:image/png;base64,([^"]*)" alt="([^"]*)">', page) == [
        (one.png, f"[image 4x3 {one.digest[:8]}]") for one in (red, blue)
    ]
    assert page.index(red.png) < page.index(blue.png) < page.index("2. actor")
    assert "img-src data:" in page
    seen = Seen(page)
    assert (seen.elements.count("img"), "onerror" in seen.attributes) == (2, False)
    spoiled = Image(f'{red.png}"><script>')
    page = episode_page(replace(episode, decisions=(replace(first, messages=(("user", (spoiled,)),)), *others)))
    assert "script" not in Seen(page).elements


def test_a_page_without_images_has_no_word_of_them(episode: CreditedEpisode) -> None:
    page = episode_page(episode)
    assert not any(word in page for word in ("<img", "img-src", "img {"))


def test_an_episode_without_decisions_has_a_page() -> None:
    page = episode_page(CreditedEpisode(decisions=(), outcome=None, ending="error", error="<it> broke"))
    text = Seen(page).text
    assert "<it> broke" in text
    assert "The episode has no decisions." in text
    assert "outcome unknown" in text
