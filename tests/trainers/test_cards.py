from __future__ import annotations

from pathlib import Path

import pytest
import trl

from hf_credit.tasks import TaskSpec
from hf_credit.trainers.saving import correct_card

# As TRL 1.16 fills it in for a policy from a folder.
CARD = (Path(trl.__file__).parent / "templates" / "lm_model_card.md").read_text()
CARD = CARD.replace("{{ base_model }}", "None").replace("{{ hub_model_id }}", "None")


@pytest.mark.parametrize(("repository", "named"), [("me/sudoku", "me/sudoku"), (None, "FOLDER")])
def test_a_card_opens_with_the_task_that_the_policy_plays(tmp_path: Path, repository: str | None, named: str) -> None:
    (tmp_path / "README.md").write_text(CARD)
    correct_card(tmp_path / "README.md", repository)
    card = (tmp_path / "README.md").read_text()
    assert "time machine" in CARD
    assert "time machine" not in card
    assert f"hf-credit evaluate {named} --episodes 64\n```\n\n## Training procedure\n" in card
    TaskSpec(collaboration="agent", collaboration_options={"agent": "mine:play"}).save(tmp_path)
    (tmp_path / "README.md").write_text(CARD)
    correct_card(tmp_path / "README.md", repository)
    assert f"evaluate {named} --option agent=mine:play --episodes 64\n" in (tmp_path / "README.md").read_text()
    assert "This model was trained from a policy that is not on the Hub" in card
    assert "It has been trained with hf-credit and [TRL]" in card
