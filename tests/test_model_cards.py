from __future__ import annotations

from pathlib import Path

import pytest
import trl

from hf_credit.model_cards import corrected

# As TRL 1.16 fills it in for a policy from a folder.
CARD = (Path(trl.__file__).parent / "templates" / "lm_model_card.md").read_text()
CARD = CARD.replace("{{ base_model }}", "None").replace("{{ hub_model_id }}", "None")


HUB = "https://huggingface.co/"


@pytest.mark.parametrize("named", ["me/sudoku", "FOLDER"])
def test_a_card_opens_with_the_task_that_the_policy_plays(named: str) -> None:
    card = corrected(CARD, "sudoku", None, f"hf-credit evaluate {named} --episodes 64", HUB)
    assert "time machine" in CARD
    assert "time machine" not in card
    assert f"hf-credit evaluate {named} --episodes 64\n```\n\n## Training procedure\n" in card
    assert "This model was trained from a policy that is not on the Hub" in card
    assert "It has been trained with hf-credit and [TRL]" in card


def test_a_card_without_a_task_names_nothing_that_is_not_there() -> None:
    card = corrected(CARD, "sudoku", None, None, HUB)
    assert "None" not in card
    assert "## Quick start" not in card


def test_a_card_can_be_corrected_again() -> None:
    folder = corrected(CARD, "sudoku", None, "hf-credit evaluate FOLDER", HUB)
    there = corrected(folder, "sudoku", "me/base", "hf-credit evaluate me/sudoku", "http://localhost/")
    assert "This model is a fine-tuned version of [me/base](http://localhost/me/base)" in there
    assert "hf-credit evaluate me/sudoku\n" in there
    assert corrected(there, "sudoku", None, "hf-credit evaluate FOLDER", HUB) == folder


def test_the_card_of_questions_that_peft_writes_is_a_title() -> None:
    assert (
        corrected("# Model Card for Model ID\n\n<!-- Provide a summary -->\n", "sudoku", None, None, HUB)
        == "# sudoku\n"
    )
