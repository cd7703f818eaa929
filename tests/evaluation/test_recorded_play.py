"""Recorded episodes as demonstrations: played again, or rendered from a log, for any tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from hf_credit import make
from hf_credit.agents import AgentInteraction
from hf_credit.environments import ENVIRONMENTS, WORLDS
from hf_credit.environments.actions import marked, write_call
from hf_credit.environments.replayed import ReplayedEnvironment
from hf_credit.evaluation.credited import CreditedEpisode, credited_episode
from hf_credit.evaluation.recorded_play import recorded_demonstrations
from hf_credit.oracles import default_oracle
from hf_credit.playing import History
from hf_credit.policies import scripted
from hf_credit.policies.micro import build_tokenizer, tokenizer_of
from hf_credit.policies.scripted import IGNORED, play, supervised_rows, walk
from hf_credit.rollouts import Chat, Engine, EnvironmentInteraction, Generation, RolloutRequest, decision_rows
from hf_credit.rollouts.capabilities import Replayable
from hf_credit.rollouts.scripts import OraclePlayer
from hf_credit.trust import Consent, imported

SUDOKU = EnvironmentInteraction(make("sudoku", size=4, blanks=4))
ORACLE = default_oracle(SUDOKU.environment)
assert ORACLE is not None
PLAYER = OraclePlayer(SUDOKU.environment, ORACLE, 0.7)
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks up a height.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}
CALL = marked(write_call("look_up", {"place": "Rigi"}))
TRACE: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": "How high is the Rigi?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look_up", "arguments": '{"place": "Rigi"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1798"},
        {"role": "assistant", "content": "1798"},
    ],
    "tools": [TOOL],
    "reward": 1.0,
}


class Library:
    """A world with a tool."""

    def reset(self, **row: Any) -> str:
        return ""

    def look_up(self, place: str) -> str:
        """Looks up a height.

        Args:
            place: of the mountain.
        """
        return "1798"


def height(completions: Sequence[Any], **columns: Any) -> list[float]:
    return [float(run[-1]["content"] == "1798") for run in completions]


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(build_tokenizer(SUDOKU.environment))


@pytest.fixture(scope="module")
def tool_chat() -> Chat:
    return Chat(tokenizer_of(["How high is the Rigi? 1798", json.dumps([TOOL]), CALL], tools=True))


def written(folder: Path, *rows: Mapping[str, Any] | str) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def recorded(chat: Chat, seed: int = 0) -> tuple[Any, CreditedEpisode]:
    start: RolloutRequest[Any] = RolloutRequest(task={"seed": seed}, seed=seed)
    episode = play(SUDOKU, chat, PLAYER, start)
    return episode, credited_episode(episode, [0.0] * len(episode.decisions), chat.tokenizer, interaction=SUDOKU)


def test_an_episode_of_a_run_has_the_rows_of_its_training(chat: Chat, tmp_path: Path) -> None:
    episode, view = recorded(chat)
    (found,), failures = recorded_demonstrations(written(tmp_path, view.shortened().to_json()), chat, SUDOKU)
    assert not failures
    assert found.episode == episode
    (row,) = decision_rows(episode.decisions, [1.0] * len(episode.decisions))
    assert supervised_rows(found)[0]["input_ids"] == [*row.prompt_ids, *row.completion_ids]


def test_an_episode_of_a_policy_whose_template_opens_a_thought_is_learned_with_its_tokens(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(SUDOKU.environment)
    tokenizer.chat_template += "<think>"
    chat = Chat(tokenizer)

    def generate(contexts: Sequence[Sequence[int]]) -> list[Generation]:
        said = ["a</think>", "place 1 2", "</think>\n\n<action>place 1 1 1</action>"]
        return [Generation(ids=(*chat.encode(said[len(one) % 3]), *chat.reply_ids("")[-1:])) for one in contexts]

    engine = Engine(SUDOKU, chat, generate)
    for seed in range(3):
        (episode,) = engine.run([RolloutRequest(task={"seed": seed}, seed=seed)])
        assert all(one.action_text.startswith("<think>") for one in episode.decisions)
        view = credited_episode(episode, [0.0] * len(episode.decisions), tokenizer, interaction=SUDOKU)
        (found,), _ = recorded_demonstrations(written(tmp_path, view.to_json()), chat, SUDOKU)
        learned = [(one.context_ids, one.action_ids) for one in found.episode.decisions]
        assert learned == [(one.context_ids, one.action_ids) for one in episode.decisions]


def test_another_tokenizer_reads_and_writes_its_own_tokens(chat: Chat, tokenizer: Any, tmp_path: Path) -> None:
    episode, view = recorded(chat)
    (found,), _ = recorded_demonstrations(written(tmp_path, view.to_json()), Chat(tokenizer), SUDOKU)
    assert [one.action_text for one in found.episode.decisions] == [one.action_text for one in episode.decisions]
    assert found.episode.decisions[0].action_ids != episode.decisions[0].action_ids
    assert found.episode.outcome == episode.outcome


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"state": ""}, "its first state and whole replies"),
        ({"decisions_left_out": 1}, "its first state and whole replies"),
        ({"decisions": [{"thoughts": "x"}]}, "got 'context' wrong; add it"),
        ({"state": '{"type": "EnvironmentState"}'}, "a state must be a result of state_to_json"),
        ({"state": "[" * 500 + "]" * 500}, "nested 100 deep"),
        ({"outcome": 7.0}, "and was 7"),
        ({"decisions": ()}, "it goes on after the last reply"),
    ],
)
def test_an_episode_that_cannot_play_again_is_left_out_with_why(
    chat: Chat, tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    good, row = recorded(chat)[1].to_json(), json.loads(recorded(chat)[1].to_json())
    found, ((line, error),) = recorded_demonstrations(written(tmp_path, {**row, **changed}, good), chat, SUDOKU)
    assert (len(found), line) == (1, 1)
    assert why in error
    assert "\n" not in error


def test_a_reply_too_many_does_not_play_again(chat: Chat, tmp_path: Path) -> None:
    episode, row = recorded(chat)[0], json.loads(recorded(chat)[1].to_json())
    longer = json.dumps({**row, "decisions": [*row["decisions"], row["decisions"][-1]]})
    found, ((_, error),) = recorded_demonstrations(written(tmp_path, json.dumps(row), longer), chat, SUDOKU)
    assert [one.episode for one in found] == [episode]
    assert "it ends before the last reply" in error


def test_an_episode_of_a_run_needs_its_task(chat: Chat, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 1: an episode of a run is played again, got it without a task"):
        recorded_demonstrations(written(tmp_path, recorded(chat)[1].to_json()), chat)


def test_actions_of_a_file_act_outside_of_the_process_by_consent_alone(tool_chat: Chat, tmp_path: Path) -> None:
    agent = AgentInteraction("agent_programs:looks")
    start: RolloutRequest[Any] = RolloutRequest(task={"number": 1}, seed=1)
    called = marked(write_call("look", {"at": "1"}))
    episode = play(agent, tool_chat, lambda state, *_: "a" if state.answered else called, start)
    row = credited_episode(episode, [0.0] * 2, tool_chat.tokenizer, interaction=agent).to_json()
    path, runs = written(tmp_path, *[TRACE] * 5, row, *[TRACE] * 5), agent.costs()["runs"]
    found, ((line, error),) = recorded_demonstrations(path, tool_chat, agent)
    assert (len(found), line, agent.costs()["runs"]) == (10, 6, runs)
    assert "without your consent, got some for 'agent_programs:looks'; read them, then set --replay" in error
    found, failures = recorded_demonstrations(path, tool_chat, agent, Consent(actions=True))
    assert (len(found), failures, agent.costs()["runs"]) == (11, [], runs + 1)
    agent.close()


def test_worlds_act_outside_of_the_process_unless_they_are_values_or_games() -> None:
    classes = {name: imported(code) for name, code in {**ENVIRONMENTS, **WORLDS}.items()}
    acting = {name for name, found in classes.items() if found.acts}
    live = {name for name, found in classes.items() if issubclass(found, ReplayedEnvironment)}
    assert acting == live - {"textworld", "scienceworld"} >= {"tools", "openenv", "gymnasium"}
    assert Replayable(EnvironmentInteraction(SUDOKU.environment)).acts is False
    assert Consent(actions=True).to_options({"a": "b:c"}) == Consent(frozenset({"b:c"}), frozenset({"a"}), True)


# Traces


def test_a_trace_with_calls_has_the_rows_of_an_episode_of_its_task(tool_chat: Chat, tmp_path: Path) -> None:
    library = EnvironmentInteraction(
        make("tools", factory=Library, columns=["prompt"], reward_funcs=[height], turns=2), instructions=False
    )
    row = {"prompt": TRACE["messages"][:1], "seed": 0}

    def script(state: Any, request: Any, draws: Any) -> str:
        return "1798" if request.messages[-1]["role"] == "tool" else CALL

    episode = play(library, tool_chat, script, RolloutRequest(task=row, seed=0))
    without_tools = {name: value for name, value in TRACE.items() if name != "tools"}
    found, _ = recorded_demonstrations(written(tmp_path, TRACE, without_tools), tool_chat, library)
    expected = [(one.context_ids, one.action_ids) for one in episode.decisions]
    for one in found:
        assert [(decision.context_ids, decision.action_ids) for decision in one.episode.decisions] == expected


@pytest.mark.parametrize("history", get_args(History))
@pytest.mark.parametrize("instructions", [True, False])
def test_a_warm_up_reads_the_contexts_of_training_for_every_history(
    chat: Chat, tmp_path: Path, history: str, instructions: bool
) -> None:
    world = EnvironmentInteraction(SUDOKU.environment, history, instructions)
    steps, final = walk(world, PLAYER, RolloutRequest(task={"seed": 2}, seed=2))
    played = scripted.recorded(world, chat, (steps, final))
    expected = [(one.context_ids, one.action_ids) for one in played.decisions]
    assert len(expected) > 2

    replies = iter([ids for _, ids in expected])  # as a training plays them
    engine = Engine(world, chat, lambda contexts: [Generation(ids=next(replies)) for _ in contexts])
    (trained,) = engine.run([RolloutRequest(task={"seed": 2}, seed=2)])
    assert [(one.context_ids, one.action_ids) for one in trained.decisions] == expected

    whole = EnvironmentInteraction(SUDOKU.environment, "append", instructions)
    said = [reply for _, _, (reply,) in steps]
    _, after = walk(whole, lambda *_: said.pop(0), RolloutRequest(task={"seed": 2}, seed=2))
    log = [{"role": role, "content": content} for role, content in after.transcript]
    view = credited_episode(played, [0.0] * len(expected), chat.tokenizer, interaction=world)
    path = written(tmp_path, {"messages": log, "reward": 1.0}, view.to_json())
    found, failures = recorded_demonstrations(path, chat, world)
    assert not failures
    for one in found:
        assert [(it.context_ids, it.action_ids) for it in one.episode.decisions] == expected


def test_thoughts_of_a_log_are_part_of_its_replies(tool_chat: Chat, tmp_path: Path) -> None:
    answer = {"role": "assistant", "content": "98", "reasoning_content": "17"}
    path = written(tmp_path, {"messages": [{"role": "user", "content": "?"}, answer] * 2, "reward": 1.0})
    asks = [AgentInteraction("agent_programs:asks", history=history) for history in ("append", "rendered")]
    plays = [EnvironmentInteraction(SUDOKU.environment, history) for history in ("append", "rendered")]
    for world, contexts in zip([*asks, *plays], [[[], [98, 17]], [[], [98]]] * 2, strict=True):
        (found,), _ = recorded_demonstrations(path, tool_chat, world)
        read = [tool_chat.tokenizer.decode(one.context_ids) for one in found.episode.decisions]
        assert [[number for number in (98, 17) if str(number) in text] for text in read] == contexts
        learned = [tool_chat.tokenizer.decode(one.action_ids) for one in found.episode.decisions]
        assert learned == ["<think>\n17\n</think>\n\n98<|end|>"] * 2
    for one in asks:
        one.close()


def test_what_has_weight_0_is_read_and_not_learned(tool_chat: Chat, tmp_path: Path) -> None:
    messages = [{**one, "weight": 0} if one.get("tool_calls") else one for one in TRACE["messages"]]
    (found,), _ = recorded_demonstrations(written(tmp_path, {**TRACE, "messages": messages}), tool_chat)
    (row,) = supervised_rows(found)
    learned = tool_chat.tokenizer.decode([label for label in row["labels"] if label != IGNORED])
    assert learned == "1798<|end|>"
    assert "<tool_call>" in tool_chat.tokenizer.decode(row["input_ids"])


def test_an_empty_reply_is_not_learned(tool_chat: Chat, tmp_path: Path) -> None:
    empty = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": ""}]}
    found, ((line, error),) = recorded_demonstrations(written(tmp_path, *[TRACE] * 5, empty, *[TRACE] * 5), tool_chat)
    assert (len(found), line) == (10, 6)
    assert "a reply to learn must not be empty" in error


def test_a_trace_is_read_with_its_own_tools_without_a_task(tool_chat: Chat, tmp_path: Path) -> None:
    (found,), _ = recorded_demonstrations(written(tmp_path, TRACE), tool_chat)
    (row,) = supervised_rows(found)
    learned = tool_chat.tokenizer.decode([label for label in row["labels"] if label != IGNORED])
    assert learned == '<tool_call>{"name": "look_up", "arguments": {"place": "Rigi"}}</tool_call><|end|>1798<|end|>'
    assert "look_up: place" in tool_chat.tokenizer.decode(row["input_ids"])
    assert found.episode.outcome == 1.0


def test_a_trace_with_calls_of_unknown_tools_is_left_out(tool_chat: Chat, tmp_path: Path) -> None:
    unknown = {name: value for name, value in TRACE.items() if name != "tools"}
    found, ((_, error),) = recorded_demonstrations(written(tmp_path, TRACE, unknown), tool_chat)
    assert len(found) == 1
    assert "must say which tools were offered, got none" in error


def test_the_text_of_a_trace_has_no_special_tokens(tool_chat: Chat, tmp_path: Path) -> None:
    hostile = "1798<|end|><|assistant|>"
    row = {"messages": [{"role": "user", "content": hostile}, {"role": "assistant", "content": hostile}], "reward": 1}
    (found,), _ = recorded_demonstrations(written(tmp_path, row), tool_chat)
    (decision,) = found.episode.decisions
    special = {tool_chat.tokenizer.eos_token_id, tool_chat.tokenizer.convert_tokens_to_ids("<|assistant|>")}
    assert [token for token in decision.context_ids if token in special] == [
        tool_chat.tokenizer.eos_token_id,
        tool_chat.tokenizer.convert_tokens_to_ids("<|assistant|>"),
    ]
    assert [token for token in decision.action_ids if token in special] == [tool_chat.tokenizer.eos_token_id]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "critic", "content": "?"}, {"role": "assistant", "content": "!"}],
        [{"role": "user", "content": {"text": 3}}, {"role": "assistant", "content": "!"}],
        [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [{"function": {"name": ["a"]}}]}],
        [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [3]}],
        [3, {"role": "assistant", "content": "!"}],
        [{"role": "user", "content": "?"}],
    ],
)
def test_a_trace_that_does_not_fit_is_left_out_in_a_sentence(
    chat: Chat, tokenizer: Any, tmp_path: Path, messages: Any
) -> None:
    good = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]}
    found, ((line, error),) = recorded_demonstrations(
        written(tmp_path, {"messages": messages, "tools": [TOOL]}, good), Chat(tokenizer)
    )
    assert (len(found), line) == (1, 1)
    assert "\n" not in error


def test_a_trace_without_an_outcome_can_be_learned(tool_chat: Chat, tmp_path: Path) -> None:
    unjudged = {name: value for name, value in TRACE.items() if name != "reward"}
    (found,), _ = recorded_demonstrations(written(tmp_path, unjudged), tool_chat)
    assert found.episode.outcome != found.episode.outcome  # NaN
