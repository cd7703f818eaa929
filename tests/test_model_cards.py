from __future__ import annotations

from pathlib import Path

import pytest
import trl

from hf_credit.model_cards import corrected

# As TRL 1.16 fills it in for a policy from a folder.
CARD = (Path(trl.__file__).parent / "templates" / "lm_model_card.md").read_text()
CARD = CARD.replace("{{ base_model }}", "None").replace("{{ hub_model_id }}", "None")


@pytest.mark.parametrize("named", ["me/sudoku", "FOLDER"])
def test_a_card_opens_with_the_task_that_the_policy_plays(named: str) -> None:
    card = corrected(CARD, named, None)
    assert "time machine" in CARD
    assert "time machine" not in card
    assert f"hf-credit evaluate {named} --episodes 64\n```\n\n## Training procedure\n" in card
    assert "This model was trained from a policy that is not on the Hub" in card
    assert "It has been trained with hf-credit and [TRL]" in card


def test_a_card_without_a_task_loads_the_model_that_it_is_of() -> None:
    card = corrected(CARD, "me/sudoku", None, plays=False)
    assert 'generator = pipeline("text-generation", model="me/sudoku")\n```\n\n## Training procedure\n' in card
    assert "None" not in card


def test_a_card_can_be_corrected_again() -> None:
    folder = corrected(CARD, "FOLDER", None)
    there = corrected(folder, "me/sudoku", "me/base", url="http://localhost/")
    assert "This model is a fine-tuned version of [me/base](http://localhost/me/base)" in there
    assert "hf-credit evaluate me/sudoku --episodes 64" in there
    assert corrected(there, "FOLDER", None) == folder


def test_the_card_of_questions_that_peft_writes_is_a_title() -> None:
    assert corrected("# Model Card for Model ID\n\n<!-- Provide a summary -->\n", "me/sudoku", None) == "# sudoku\n"
