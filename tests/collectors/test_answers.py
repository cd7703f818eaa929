"""The probability of the right answer before each decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hf_credit import make, methods
from hf_credit.collectors import Answers, Single
from hf_credit.collectors.answers import ANSWER
from hf_credit.policies.micro import build_tokenizer
from hf_credit.rollouts import Chat, Decision, Engine, EnvironmentInteraction, Generation, LocalContext

REPLIES = "<interact>12</interact>", "<answer>21</answer>"


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(build_tokenizer(make("guess_numbers", source="ar_bench", digits=2)))


def game(**options: Any) -> EnvironmentInteraction:
    return EnvironmentInteraction(make("guess_numbers", source="ar_bench", digits=2), **options)


class Asked:
    """Replies with `REPLIES` in turn, and keeps the decisions whose log-probability is asked for."""

    def __init__(self, chat: Chat) -> None:
        self.chat, self.asked = chat, list[Decision]()

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        turns = [REPLIES[0] in self.chat.tokenizer.decode(list(context)) for context in contexts]
        return [Generation(ids=self.chat.reply_ids(REPLIES[turn])) for turn in turns]

    def logprobs(self, decisions: Sequence[Decision]) -> list[tuple[float, ...]]:
        self.asked = list(decisions)
        return [(-float(place), -3.0)[: len(one.action_ids)] for place, one in enumerate(decisions)]


def test_it_is_that_of_the_answer_alone_in_a_reply_to_each_context(chat: Chat) -> None:
    player = Asked(chat)
    context = LocalContext(Engine(game(), chat, player), logprobs=player.logprobs)
    collected = Answers(inner=Single()).bind(game())([{"seed": 4}], context, None)
    (episode,) = collected.episodes
    secret = episode.decisions[0].state.world.secret
    assert len(player.asked) == len(episode.decisions) == 2
    for place, (asked, played) in enumerate(zip(player.asked, episode.decisions, strict=True)):
        behind = asked.context_ids[len(played.context_ids) :]
        assert asked.context_ids[: len(played.context_ids)] == played.context_ids
        assert [one.strip() for one in chat.texts([behind, asked.action_ids])] == ["<answer>", secret]
        assert asked.logprobs is None
        assert played.extras[ANSWER] == pytest.approx((-place - 3.0) / 2 if len(asked.action_ids) > 1 else -place)
    assert context.metrics["answer/logprob"]


def test_a_task_without_right_answers_is_refused() -> None:
    sudoku = EnvironmentInteraction(make("sudoku", size=4, blanks=4))
    for name in "igpo", "trace":
        with pytest.raises(ValueError, match="got 'sudoku', which does not; implement its method gold_answer"):
            methods.make(name).bind(sudoku)
        assert methods.make(name).bind(game()).name == name
    with pytest.raises(ValueError, match="what the estimator needs, answers and groups for InformationGains"):
        replace(methods.make("igpo"), collector=Single()).bind(game())


def test_a_task_row_without_a_right_answer_has_no_probabilities_and_is_counted(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = Asked(chat)
    context = LocalContext(Engine(game(), chat, player), logprobs=player.logprobs)
    monkeypatch.setattr(context.interaction, "gold_answer", lambda state: None)
    (episode,) = Answers(inner=Single())([{"seed": 4}], context, None).episodes
    assert not any(ANSWER in one.extras for one in episode.decisions)
    assert context.metrics["inputs/answers"] == [0.0]


def test_without_a_policy_there_is_no_probability(chat: Chat) -> None:
    context = LocalContext(Engine(game(), chat, Asked(chat)))
    with pytest.raises(ValueError, match="log-probabilities must be those of the sampler, got none"):
        Answers(inner=Single())([{"seed": 4}], context, None)


@pytest.mark.parametrize(
    ("name", "options", "begins"),
    [
        ("circuit_decoding", {}, "<answer>"),
        ("situation_puzzles", {}, "<answer>"),
        ("evidence", {}, "<action>final"),
    ],
)
def test_games_reward_the_right_answer_in_full(name: str, options: dict[str, Any], begins: str) -> None:
    environment = make(name, **options)
    interaction = EnvironmentInteraction(environment)
    state = interaction.start({"seed": 1}, 1)
    found = interaction.gold_answer(state)
    assert found is not None
    before, answer = found
    assert before == begins
    end = "</answer>" if before == "<answer>" else "</action>"
    if name == "evidence":
        state = interaction.advance(state, [f"<action>read{answer}</action>"])
    assert interaction.outcome(interaction.advance(state, [f"{before}{answer}{end}"])) == 1
