"""The two-agent protocol is the one of the paper's Appendix B."""

from __future__ import annotations

import hashlib

import pytest

from hf_credit.collaborations.think_solve import PROMPTS, reasoner_actor
from hf_credit.rollouts import Ending

TASK = {"problem": "What is $1 + 1$?\r\n", "answer": "2"}


def boxed(task, text):
    return float(f"\\boxed{{{task['answer']}}}" in text)


def contents(collaboration, state):
    (request,) = collaboration.pending(state)
    assert [message["role"] for message in request.messages] == ["system", "user"]
    return request.event, request.role, *(message["content"] for message in request.messages)


@pytest.mark.parametrize("domain", ["math", "code"])
def test_the_reasoner_sees_the_problem_and_the_actor_also_the_reasoner_s_output(domain):
    collaboration = reasoner_actor(domain, boxed)
    state = collaboration.start(TASK, 0)
    prompts = PROMPTS[domain]
    problem = "Problem: What is $1 + 1$?\n\nContext:"
    assert contents(collaboration, state) == ("reasoner", "reasoner", prompts["reasoner"], problem)
    state = collaboration.advance(state, [" Add.\r\nThen stop. "])
    seen = f"{problem} Add.\nThen stop."
    assert contents(collaboration, state) == ("actor", "actor", prompts["actor"], seen)
    state = collaboration.advance(state, ["It is \\boxed{2}.\n"])
    assert collaboration.pending(state) == ()
    assert collaboration.ending(state) == Ending.FINISHED
    assert collaboration.outcome(state) == 1


def test_the_prompts_are_the_paper_s():
    # Digests of the four sentences as the paper's text has them, its LaTeX arrow replaced by the character.
    digests = {
        (domain, role): hashlib.sha256(prompt.encode()).hexdigest()[:16]
        for domain, roles in PROMPTS.items()
        for role, prompt in roles.items()
    }
    assert digests == {
        ("math", "reasoner"): "62c6c83a257a7fc1",
        ("math", "actor"): "3769c15f7cce8ac5",
        ("code", "reasoner"): "253f4b347f8ca926",
        ("code", "actor"): "43cd2a62bc97afb7",
    }


def test_outputs_in_mathematics_are_sanitised_and_code_is_not():
    leaked = "assistant\nAdd $|x|$.<|im_end|>"
    shown = {}
    for domain in PROMPTS:
        collaboration = reasoner_actor(domain, boxed)
        state = collaboration.advance(collaboration.start(TASK, 0), [leaked])
        shown[domain] = contents(collaboration, state)[-1].partition("Context: ")[2]
    assert shown == {"math": "Add $|x|$.", "code": leaked}


def test_an_episode_is_two_decisions_and_the_actor_alone_is_scored(play):
    scored = []
    collaboration = reasoner_actor("math", lambda task, text: scored.append(text) or boxed(task, text))
    said = lambda system, user: "\\boxed{2}" if "the Reasoner:" in system else "\\boxed{3}"  # noqa: E731
    (episode,) = play(collaboration, said, [TASK])
    assert [(decision.event, decision.role) for decision in episode.decisions] == [
        ("reasoner", "reasoner"),
        ("actor", "actor"),
    ]
    assert scored == ["\\boxed{3}"]
    assert (episode.outcome, episode.ending) == (0, Ending.FINISHED)


def test_both_see_the_column_that_is_named():
    collaboration = reasoner_actor("code", boxed, column="prompt")
    state = collaboration.start({"prompt": "def f(): ..."}, 0)
    assert contents(collaboration, state)[-1] == "Problem: def f(): ...\n\nContext:"
    assert contents(collaboration, collaboration.advance(state, ["x"]))[-1] == "Problem: def f(): ...\n\nContext: x"
    with pytest.raises(ValueError, match="must have text in the column 'prompt'"):
        collaboration.start(TASK, 0)
