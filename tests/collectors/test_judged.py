"""Verdicts of a judge: on any task, known or unknown, for every method that takes verdicts."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from judge_server import JudgeServer, completion
from simulated_walks import Walks

from hf_credit import make, methods
from hf_credit.collaborations.relay import relay
from hf_credit.collectors import Verified
from hf_credit.oracles import Judge, Move
from hf_credit.oracles.judge_model import JudgeModel
from hf_credit.rollouts import (
    Chat,
    Ending,
    Engine,
    EnvironmentInteraction,
    Generation,
    LocalContext,
    Request,
    verify,
)
from hf_credit.tasks import TaskSpec


class Known(Judge):
    """Knows the first of every two moves, and remembers all."""

    def __init__(self, *scores: Any) -> None:
        self.scores, self.moves = scores or (1.0, None), list[Move]()

    def judge(self, moves: Sequence[Move], costs: Counter[str]) -> list[float | None]:
        self.moves += moves
        costs["tokens"] += 5 * len(moves)
        return [self.scores[number % len(self.scores)] for number in range(len(moves))]


def context_of(interaction: Any, chat: Any, *texts: str) -> LocalContext:
    replies = [chat.tokenizer(f"{text}<|end|>", add_special_tokens=False)["input_ids"] for text in texts]
    return LocalContext(
        Engine(interaction, chat, lambda asked: [Generation(ids=replies[i % len(replies)]) for i in range(len(asked))])
    )


def sudoku() -> EnvironmentInteraction:
    return EnvironmentInteraction(make("sudoku", size=4, blanks=4), history="current", instructions=False)


ROWS = [{"seed": 0}, {"seed": 1}]
FILLS = "<action>1 1 1</action>", "<action>1 1 2</action>", "nothing"


def test_a_judge_gets_what_the_policy_saw_and_did_and_an_unknown_verdict_is_none(chat: Any) -> None:
    judge, context = Known(1.0, None), context_of(sudoku(), chat, *FILLS[:2])
    episodes = Verified(oracle=judge).bind(context.interaction)(ROWS, context).episodes
    decisions = [one for episode in episodes for one in episode.decisions]
    verdicts = [None if one.verdict is None else one.verdict.score for one in decisions]
    assert verdicts[:2] == [1.0, None]
    assert all(episode.ending != Ending.ERROR for episode in episodes)
    first = judge.moves[0]
    assert first.messages == context.interaction.pending(decisions[0].state)[0].messages
    assert (first.reply, first.action, first.state) == (FILLS[0], "1 1 1", decisions[0].state.world)
    assert context.metrics["oracle/unknown"] == [pytest.approx(verdicts.count(None) / len(verdicts))]
    assert context.metrics["oracle/tokens"] == [5 * len(judge.moves)] == [context.ledger.others["judge"]]
    assert context.ledger.metrics()["budget/others/judge"] == 5 * len(judge.moves)


class Offering(Walks):
    def pending(self, state: Any) -> tuple[Request, ...]:
        tool = {"type": "function", "function": {"name": state.name, "parameters": {}}}
        return tuple(replace(one, tools=[tool]) for one in super().pending(state))


def test_a_judge_gets_the_tools_that_the_policy_could_call(tokenizer: Any) -> None:
    judge, teller = Known(1.0), copy.deepcopy(tokenizer)
    teller.chat_template = (
        "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|end|>"
        "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    context = context_of(Offering(), Chat(teller), "1")
    Verified(oracle=judge)([{"name": "7", "turns": 2}], context)
    assert [[one["function"]["name"] for one in move.tools] for move in judge.moves] == [["7"], ["7"]]


def test_a_reply_that_is_not_trained_is_judged_as_its_verdict_is_in_returns(chat: Any) -> None:
    context = context_of(sudoku(), chat, FILLS[0])
    (episode,) = Verified(oracle=Known(1.0)).bind(context.interaction).inner([{"seed": 0}], context).episodes
    masked = replace(episode, decisions=tuple(replace(one, trained=False) for one in episode.decisions))
    (judged,) = verify([masked], Known(1.0), context.interaction)
    assert all(one.verdict is not None for one in judged.decisions)


def test_a_reply_without_an_action_scores_0_and_is_not_judged(chat: Any) -> None:
    judge, context = Known(1.0), context_of(sudoku(), chat, "nothing")
    (episode,) = Verified(oracle=judge)(ROWS[:1], context).episodes
    assert [one.verdict.score for one in episode.decisions if one.verdict] == [0.0] * len(episode.decisions)
    assert judge.moves == []


def test_a_task_without_an_environment_is_judged_by_its_texts(chat: Any) -> None:
    judge, context = Known(1.0), context_of(relay(), chat, "1")
    row = relay().tasks("train", 1)[0]
    (episode,) = Verified(oracle=judge).bind(context.interaction)([row], context).episodes
    trained = [one for one in episode.decisions if one.trained and not one.observed]
    assert [move.reply for move in judge.moves] == [one.action_text for one in trained]
    assert all(one.verdict is not None for one in trained)


@pytest.mark.parametrize("wrong", [(1.5,), (float("nan"),), ("yes",)])
def test_what_is_no_score_is_unknown_and_ends_no_episode(chat: Any, wrong: Any) -> None:
    context = context_of(sudoku(), chat, FILLS[0])
    (episode,) = Verified(oracle=Known(*wrong))(ROWS[:1], context).episodes
    assert {one.verdict for one in episode.decisions} == {None}
    assert episode.ending != Ending.ERROR
    assert context.metrics["oracle/unknown"] == [1.0]
    assert isinstance(context.failures.latest, ValueError)


def test_a_verdict_that_is_no_score_leaves_the_others_known(chat: Any) -> None:
    context = context_of(sudoku(), chat, *FILLS[:2])
    episodes = Verified(oracle=Known(-1.0, 0.5))(ROWS, context).episodes
    verdicts = [one.verdict and one.verdict.score for episode in episodes for one in episode.decisions]
    assert verdicts[:2] == [None, 0.5]
    assert isinstance(context.failures.latest, ValueError)


TAKE_VERDICTS = {
    "verifiable_process": {},
    "arew": {},
    "draco": {},
    "mt_grpo": {"turn_scores": "verdict"},
    "turn_credit": {"turn_scores": "verdict"},
}


@pytest.mark.parametrize("name", [*TAKE_VERDICTS, "in state groups"])
@pytest.mark.parametrize("scores", [(1.0, None, 0.0), (None,)])
def test_every_method_with_verdicts_takes_a_judge_and_leaves_out_what_is_unknown(
    chat: Any, name: str, scores: Any
) -> None:
    given = {"state_group_size": 3} if name == "in state groups" else TAKE_VERDICTS[name]
    method = methods.make(name if name in TAKE_VERDICTS else "verifiable_process", oracle=Known(*scores), **given)
    context = context_of(sudoku(), chat, *FILLS[:2])
    bound = method.bind(context.interaction)
    collected = bound.collector(ROWS, context, method.memory)
    credit = bound.estimator(collected, context, method.memory).decisions
    numbers = [value for value in credit.values() if value is not None]
    assert all(value == value and abs(value) < 100 for value in numbers)  # neither NaN nor 0 for NaN
    if name in ("verifiable_process", "in state groups"):
        unknown = {one.id for episode in collected.episodes for one in episode.decisions if one.verdict is None}
        assert unknown
        assert not [value for key, value in credit.items() if key in unknown and value is not None]


def test_methods_that_read_no_verdicts_refuse_an_oracle() -> None:
    with pytest.raises(ValueError, match=r"must take verdicts to have an oracle, got .*choose them as its scores"):
        methods.make("turn_credit", oracle=Known())
    assert "verdicts" in methods.make("turn_credit", oracle=Known(), turn_scores="verdict").collector.gives
    with pytest.raises(ValueError, match="got 'oracle'"):
        methods.make("grpo", oracle=Known())


def test_the_files_of_a_policy_cannot_choose_the_server_of_a_judge() -> None:
    with JudgeServer(lambda _: completion("yes")) as server:
        oracle = {"name": "judge", "options": {"model": "m", "base_url": server.url}}
        collector = {"name": "verified", "options": {"oracle": oracle}}
        for method, options in (
            ("arew", {"oracle": oracle}),
            ("verifiable_process", {"oracle": oracle, "state_group_size": 2}),
            ("rloo", {"collector": collector}),
        ):
            values = {"task": "sudoku", "method": {"name": method, "options": options}}
            assert TaskSpec.from_dict(values).build_method() is not None
            with pytest.raises(ValueError, match="cannot choose a server"):
                TaskSpec.untrusted(values).build_method()
        assert server.asked == []


def test_the_parts_of_a_method_share_their_judge() -> None:
    options = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
    method = methods.make("verifiable_process", oracle={"name": "judge", "options": options})
    assert method.collector.oracle is method.evaluation.oracle


def test_a_method_with_a_judge_is_described_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-the-users-own-key")
    judge = JudgeModel(model="m", base_url="http://127.0.0.1:9/v1")
    method = methods.make("arew", oracle=judge)
    again = methods.make(method.spec()["name"], **method.spec()["options"])
    assert again.fingerprint() == method.fingerprint()
    assert "own-key" not in str((method.spec(), method.fingerprint()))
