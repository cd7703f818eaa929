"""SituationPuzzles: questions, answers, files."""

from __future__ import annotations

import json
import os

import pytest

from hf_credit.environments.situation_puzzles import SituationPuzzles
from hf_credit.environments.tasks import task_seed
from hf_credit.verifiers.judges import NO_QUESTION

GAME = SituationPuzzles()
ROW = {
    "surface": "A man thanks a bartender.",
    "bottom": "The man had hiccups and the fright cured them.",
    "questions": ["Was he ill?", "Had he hiccups?"],
    "verdicts": ["No", "Yes"],
    "slots": [],
}
START = GAME.initial_state(ROW, 0)


def shout(surface, bottom, question):
    """A custom judge."""
    return "YES!"


def fail(surface, bottom, question):
    raise RuntimeError("the judge is asleep")


@pytest.mark.parametrize(
    ("question", "verdict"),
    [("Had he hiccups?", "Yes"), ("Was he ill?", "No"), ("Was he old?", "Unknown"), ("He was ill.", NO_QUESTION)],
)
def test_the_table_of_facts_is_the_judge(question, verdict):
    after = GAME.step(START, f"<interact>{question}</interact>")
    assert after.state.replies == (verdict,)
    assert after.observation == verdict


def test_brief_feedback_repeats_the_question():
    brief = SituationPuzzles(wording="brief")
    state = brief.initial_state(brief.sample_task(0), 0)
    assert brief.observe(brief.step(state, "interact cold?").state) == "Unknown cold"


def test_the_reward_of_an_answer_is_its_word_overlap_and_both_overlaps_are_metrics():
    after = GAME.step(START, "<answer>The man had\n hiccups.</answer>")
    # Three of four words (`hiccups.` is another word than `hiccups`) of nine: 2 * 3 / (4 + 9).
    assert after.reward == pytest.approx(6 / 13)
    metrics = GAME.metrics(after.state)
    assert metrics["f1_word"] == after.reward
    assert metrics["f1_word"] < metrics["f1_character"] < 1
    assert metrics["success"] == 0
    right = GAME.step(START, f"<answer>{ROW['bottom']}</answer>")
    assert (right.reward, GAME.metrics(right.state)["success"]) == (1.0, 1.0)


def test_answers_are_case_sensitive():
    assert GAME.step(START, f"<answer>{ROW['bottom'].lower()}</answer>").reward < 1


def test_the_reward_may_be_by_characters_and_success_is_by_words():
    game = SituationPuzzles(reward="character")
    after = game.step(game.initial_state({**ROW, "bottom": "ab cd"}, 0), "<answer>dc ba</answer>")
    assert (after.reward, game.metrics(after.state)["success"]) == (1.0, 0.0)


def test_unknown_verdicts_are_counted():
    state = GAME.step(GAME.step(START, "interact Was he old?").state, "interact Was he ill?").state
    assert GAME.metrics(state)["unknown"] == 0.5


def test_stories_consist_of_words_from_their_slots_and_splits_repeat():
    game = SituationPuzzles(slots=5, values=3)
    task = game.sample_task(task_seed("train", 3))
    truth = task["bottom"].split()
    assert [word in words for word, words in zip(truth, task["slots"], strict=True)] == [True] * 5
    assert task["verdicts"].count("Yes") == 5
    assert len(task["questions"]) == 15
    assert game.sample_task(task_seed("train", 403)) == task
    assert game.sample_task(task_seed("held_out", 3)) == game.sample_task(task_seed("held_out", 103))
    assert not any(word in GAME.observe(game.initial_state(task, 0)) for word in truth)


def test_the_papers_prompt_shows_the_surface():
    text = GAME.observe(GAME.initial_state({**ROW, "surface": "Why {puzzle}?"}, 0))
    assert text.endswith("Now, here's the puzzle:\nPuzzle: Why {puzzle}?")


def test_a_judge_may_be_named_and_an_invalid_verdict_is_unknown():
    named = SituationPuzzles(judge=f"{__name__}:shout")
    assert named.step(START, "interact Was he ill?").state.replies == ("Unknown",)
    assert SituationPuzzles(judge=shout).step(START, "interact Was he ill?").state.replies == ("Unknown",)


def test_an_error_of_the_judge_is_raised():
    with pytest.raises(RuntimeError, match="the judge is asleep"):
        SituationPuzzles(judge=fail).step(START, "interact Was he ill?")


@pytest.mark.parametrize("reply", ["<interact></interact>", f"<interact>{'a' * 20_001}?</interact>"])
def test_empty_and_overlong_questions_are_invalid(reply):
    assert GAME.step(START, reply).state.status == "invalid"


def test_a_file_is_split_four_to_one_in_order(tmp_path):
    path = tmp_path / "puzzles.json"
    puzzles = [{"surface": f"s{place}", "bottom": f"b{place}", "key_question": []} for place in range(10)]
    path.write_text(json.dumps(puzzles))
    game = SituationPuzzles(path=str(path))
    train = [game.sample_task(task_seed("train", index))["bottom"] for index in range(9)]
    held_out = [game.sample_task(task_seed("held_out", index))["bottom"] for index in range(3)]
    assert train == ["b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b0"]
    assert held_out == ["b8", "b9", "b8"]
    task = game.sample_task(0)
    assert game.legal_actions(game.initial_state(task, 0))


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "[]", '[{"surface": "s"}]', '[{"surface": "s", "bottom": 1}]', "[" * 200_000, None]
)
def test_a_file_without_puzzles_is_refused_without_its_content(tmp_path, text):
    path = tmp_path / "puzzles.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=r"^a file (of puzzles must be a JSON list|must hold at least 5 puzzles)"):
        SituationPuzzles(path=str(path))


def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "puzzles.json")
    for path in (tmp_path / "puzzles.json", tmp_path, "/dev/zero"):
        with pytest.raises(ValueError, match=r"^a file of puzzles must be a JSON list"):
            SituationPuzzles(path=str(path))
    with pytest.raises(ValueError, match=r"^path must be the path of a file, as text, got \['a'\]; name a file"):
        SituationPuzzles(path=["a"])


def test_an_unknown_judge_is_refused():
    with pytest.raises(ValueError, match=r"^judge must be one of , or 'module:object', got 'somebody'"):
        SituationPuzzles(judge="somebody")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"surface": ""}, "a surface must be text of 1 to 20000 characters, got ''; correct it."),
        ({"bottom": None}, "a bottom must be text of 1 to 20000 characters, got None; correct it."),
        ({"verdicts": ["No"]}, "a table of facts must have a verdict for each question"),
        ({"verdicts": ["No", "Perhaps"]}, "a fact must be Yes, No or Unknown, got 'Perhaps' for 'Had he hiccups"),
        ({"slots": [["a", "b", "c"]]}, "a table of facts must have a verdict for each question, and a question for"),
    ],
)
def test_an_invalid_row_is_refused(change, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        GAME.initial_state({**ROW, **change}, 0)
