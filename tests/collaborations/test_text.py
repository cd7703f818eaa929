"""Texts are trimmed, and lose markers of a chat template but no mathematics."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.collaborations import text as module
from hf_credit.collaborations.text import normalise, sanitise_mathematics


def test_ends_are_trimmed_and_line_breaks_are_of_one_kind():
    assert normalise(" \r\n a\r\nb\rc\n\n d \t\r") == "a\nb\nc\n\n d"


@given(st.text())
def test_a_normalised_text_stays_unchanged(text):
    assert normalise(normalise(text)) == normalise(text)
    assert "\r" not in normalise(text)


@pytest.mark.parametrize(
    ("leaked", "clean"),
    [
        ("x = 3<|im_end|>", "x = 3"),
        ("<|im_start|>assistant\nx = 3<|im_end|>\n<|endoftext|>", "x = 3"),
        ("<|im_start|>system", ""),
        ("x = 3</s>", "x = 3"),
        ("assistant\nx = 3", "x = 3"),
        ("x = 3\nuser", "x = 3"),
        ("Assistant: x = 3", "x = 3"),
        ("### Assistant: x = 3", "x = 3"),
        ("x = 3\nuser: and y?", "x = 3\n and y?"),
        ("[INST] x = 3 [/INST]", "x = 3"),
        ("<<SYS>>x = 3<</SYS>>", "x = 3"),
        ("<start_of_turn>model\nx = 3<end_of_turn>", "x = 3"),
        ("<|start_header_id|>assistant<|end_header_id|>\n\nx = 3<|eot_id|>", "x = 3"),
        ("<|im_<|im_end|>end|>x = 3", "x = 3"),
        ("<|user|>\nx = 3<|assistant|>", "x = 3"),
    ],
)
def test_the_marks_of_a_template_go(leaked, clean):
    assert sanitise_mathematics(leaked) == clean


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{\frac{1}{2}}, so $|x| < 3$ and $\langle x|y \rangle$",
        "0 <|x|> 1 <|psi|> <s> <x> </x>",
        "a < b > c, {x | x > 0}, [1, 2], ||v||",
        "System: x + y = 1",
        "The user: 5 dollars, the assistant: 3",
        "Assistants and users stand in line.",
        "def f(x):\n    return x </ s>",
        r"\left. \begin{cases} a \\ b \end{cases} \right|_{0}^{1}",
    ],
)
def test_mathematics_stays(text):
    assert sanitise_mathematics(text) == text


PIECES = ["<|im_start|>", "<|im_", "end|>", "</", "s>", "assistant", "user:", "\n", "\r\n", " ", "x", "|>", "<|", "#"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=20))
def test_a_clean_text_stays_unchanged(text):
    clean = sanitise_mathematics(text)
    assert sanitise_mathematics(clean) == clean == normalise(clean)
    assert "<|im_end|>" not in clean


def one_leak_at_a_time(text):
    """What is meant: of the colons of a line, one is removed in a pass, and passes go on as long as they change."""
    colon = re.compile(r"^[ \t]*(?:#+[ \t]*)?(?:user|assistant|human)[ \t]*:", re.MULTILINE | re.IGNORECASE)
    before = None
    while text != before:
        before, text = text, normalise(text)
        for leak in (*module._LEAKS[:3], colon):
            text = leak.sub("", text)
    return text


ROLES = [
    "user",
    "assistant:",
    "HUMAN :",
    "system",
    "<|im_start|>",
    "<|im_end|>",
    "[INST]",
    "</s>",
    "\t",
    "## ",
    "\u00a0",
]


@given(st.lists(st.sampled_from(PIECES + ROLES), max_size=20).map("".join))
def test_runs_of_role_headers_are_removed_at_once(text):
    assert sanitise_mathematics(text) == one_leak_at_a_time(text)


@pytest.mark.parametrize("text", ["user:", "### Assistant :", "user:\n", "user\n", "<|im_end|>user:", "user:</s> "])
def test_a_long_run_of_leaks_goes_in_a_few_passes(monkeypatch, text):
    passes = []
    monkeypatch.setattr(module, "normalise", lambda text: passes.append(text) or normalise(text))
    assert sanitise_mathematics(text * 20_000 + "x = 3") == "x = 3"
    assert len(passes) <= 4


def test_a_text_of_leaks_within_leaks_is_empty(monkeypatch):
    passes = []
    monkeypatch.setattr(module, "normalise", lambda text: passes.append(text) or normalise(text))
    for depth, clean in ((module.MOST_PASSES - 2, "x = 3"), (10_000, "")):
        passes.clear()
        nested = "<|im_" * depth + "<|im_end|>" + "end|>" * depth
        assert sanitise_mathematics(f"x = 3{nested}") == clean
        assert len(passes) <= module.MOST_PASSES
