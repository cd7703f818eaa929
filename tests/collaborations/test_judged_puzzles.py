"""Puzzles with a judge model: its prompts, and that its replies are neither turns nor trained on."""

from __future__ import annotations

import pytest

from hf_credit.collaborations import make
from hf_credit.rollouts import Engine, RolloutRequest
from hf_credit.rollouts.episode import Ending
from hf_credit.rollouts.ledger import Ledger
from hf_credit.rollouts.samplers import Generation

GAME = make("judged_puzzles", turns=3, wording="brief", instructions=False)
ROW = {"surface": "Why?", "bottom": "Because of {x}.", "questions": [], "verdicts": [], "slots": []}
ASK, TELL = "<interact>Was it cold?</interact>", "<answer>Because of {x}.</answer>"


def walk(*replies, game=GAME):
    state = game.start(ROW, 0)
    for reply in replies:
        assert game.pending(state)
        state = game.advance(state, [reply])
    return state


def test_a_question_goes_to_the_judge_with_the_story_and_the_verdict_to_the_player():
    asked = walk(ASK)
    (request,) = GAME.pending(asked)
    assert request.role == "judge"
    (message,) = request.messages
    assert "Because of {x}." in message["content"]
    assert "player question:\nWas it cold?\n" in message["content"]
    (back,) = GAME.pending(walk(ASK, "No, not at all."))
    assert back.role == "agent"
    contents = [message["content"] for message in back.messages]
    assert contents == ["Why?", ASK, "No Was it cold"]
    assert not any("Because" in content for content in contents)


def test_a_judgement_is_not_a_turn():
    asked, told = walk(ASK), walk(ASK, "Yes")
    assert (asked.turns, told.turns) == (1, 1)
    assert GAME.untrained == ("judge",)


def test_a_state_is_read_back_whoever_is_to_speak():
    for state in (GAME.start(ROW, 0), walk(ASK), walk(ASK, "Yes")):
        assert GAME.state_from_json(GAME.state_to_json(state)) == state


def test_a_verdict_that_cannot_be_read_is_unknown():
    assert walk(ASK, "I will not say.").world.replies == ("Unknown",)


def test_an_answer_and_an_unreadable_reply_end_an_episode_without_a_judge():
    right, bad = walk(ASK, "Yes", TELL), walk("Was it cold?")
    assert not GAME.pending(right)
    assert not GAME.pending(bad)
    assert (GAME.outcome(right), GAME.ending(right)) == (1.0, Ending.FINISHED)
    assert (GAME.outcome(bad), GAME.ending(bad)) == (0.0, Ending.INVALID_ACTION)


def test_the_last_question_is_judged_and_ends_it():
    over = walk(ASK, "Yes", ASK, "No", ASK, "Yes")
    assert not GAME.pending(over)
    assert over.world.replies == ("Yes", "No", "Yes")
    assert GAME.metrics(over)["answered"] == 0.0
    assert GAME.max_replies == 6


class Says:
    """A sampler that says the same, and counts how many it was asked at once."""

    def __init__(self, chat, *texts):
        self.replies = [chat.tokenizer(text)["input_ids"] for text in texts]
        self.calls = []

    def __call__(self, contexts):
        reply = self.replies[min(len(self.calls), len(self.replies) - 1)]
        self.calls.append(len(contexts))
        return [Generation(ids=tuple(reply), logprobs=None) for _ in contexts]


def test_an_engine_asks_the_judge_of_all_episodes_at_once_and_counts_it_by_role(chat):
    player, judge = Says(chat, ASK, TELL), Says(chat, "Yes")
    episodes = Engine(GAME, chat, {"agent": player, "judge": judge}).run([RolloutRequest(task=ROW, seed=0)] * 4)
    assert judge.calls == [4]
    assert [episode.outcome for episode in episodes] == [1.0] * 4
    assert Ledger.of(episodes).decisions == {"agent": 8, "judge": 4}
    assert [(one.role, one.trained, one.observed) for one in episodes[0].decisions] == [
        ("agent", True, False),
        ("judge", False, True),
        ("agent", True, False),
    ]
    assert episodes[0].turns == 2


def test_every_role_must_have_a_sampler(chat):
    with pytest.raises(ValueError, match="every role must have a sampler, got none for 'judge'"):
        Engine(GAME, chat, {"agent": Says(chat, ASK)})


def test_its_spec_has_its_options():
    assert GAME.spec() == {
        "task": "judged_puzzles",
        "task_options": {
            "path": None,
            "slots": 3,
            "values": 6,
            "reward": "word",
            "turns": 3,
            "wording": "brief",
            "instructions": False,
        },
    }
