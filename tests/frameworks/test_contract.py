"""What holds of a program on any framework: it repeats itself, is restored at each call, and is credited."""

from __future__ import annotations

import os
import random
import shutil
import string
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hf_credit import methods
from hf_credit.agents import AgentInteraction
from hf_credit.agents.check import check, made_up
from hf_credit.environments.actions import marked, write_call
from hf_credit.policies.micro import tokenizer_of
from hf_credit.replies import Call, ParsedReply
from hf_credit.rollouts import Chat, Ending, Engine, Generation, LocalContext, Request
from hf_credit.rollouts.interaction import Reply

pytestmark = pytest.mark.frameworks

TASKS = [{"wanted": "tea"}, {"wanted": "salt"}]


def tool(name: str, **arguments: str) -> str:
    return marked(write_call(name, arguments))


def final_answer(text: str) -> str:
    return tool("final_answer", answer=text)


def code(name: str, **arguments: str) -> str:
    return f"<code>\nprint({name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())}))\n</code>"


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A program, how its model answers, and what comes of replies that do not fit: its run goes on (`active`), is
    `finished`, or has `raised`.

    Attributes:
        program: `module:function`, or a file for Node.
        text: after one that calls no tool.
        nothing: after an empty one.
        unknown: after a call of a tool that there is not.
        misnamed: after a call with another argument.
        broken: after a call whose arguments are no JSON, which some parser may let through.
        kept: whether replies come back as they were made, so that an episode is one row.
        answers: the reply that ends a run with an answer.
        calls: the reply that calls a tool.
        unreadable: a call with arguments that are no JSON.
    """

    program: str
    text: str = "finished"
    nothing: str = "finished"
    unknown: str = "active"
    misnamed: str = "active"
    broken: str = "active"
    kept: bool = True
    answers: Callable[[str], str] = str
    calls: Callable[..., str] = tool
    unreadable: str = Reply(
        "<tool_call>", said=ParsedReply(spoken="", content="", made=(Call("open_box", {}, "it is cut", '{"box": '),))
    )


RAISES = {"unknown": "raised", "misnamed": "raised", "broken": "raised"}
FRAMEWORKS = [
    Framework(program="on_openai:run", **RAISES),
    Framework(program="on_openai.mjs", **RAISES),
    Framework(program="on_anthropic:run", **RAISES),
    Framework(program="on_langgraph:run", broken="finished"),
    Framework(program="on_openai_agents:responses", unknown="raised"),
    Framework(program="on_openai_agents:chat", unknown="raised"),
    Framework(program="on_pydantic_ai:run", nothing="active"),
    Framework(
        program="on_pydantic_ai:typed",
        text="active",
        nothing="active",
        answers=lambda text: tool("final_result", box=text),
    ),
    Framework(program="on_smolagents:tools", text="active", nothing="active", kept=False, answers=final_answer),
    Framework(
        program="on_smolagents:code",
        text="active",
        nothing="active",
        kept=False,
        answers=lambda text: f"<code>\nfinal_answer({text!r})\n</code>",
        calls=code,
        unreadable="<code>\nopen_box(box=\n</code>",
    ),
]


@pytest.fixture(scope="module", params=FRAMEWORKS, ids=lambda framework: framework.program)
def framework(request: pytest.FixtureRequest) -> Framework:
    return request.param


@pytest.fixture(scope="module")
def interaction(framework: Framework, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentInteraction]:
    agent: str | list[str] = framework.program
    if framework.program.endswith(".mjs"):
        agent = [*on_node(Path(__file__).with_name(framework.program), tmp_path_factory.mktemp("node"))]
    interaction = AgentInteraction(agent, columns=["wanted"], score="boxes:right", max_calls=6)
    yield interaction
    interaction.close()


def on_node(program: Path, folder: Path) -> list[str]:
    """The command of a copy of a program, besides the packages of npm in this environment."""
    node, packages = shutil.which("node"), Path(sys.prefix, "node_modules")
    if node is None or not packages.is_dir():
        assert "CI" not in os.environ, "node and npm are needed"
        pytest.skip("needs node, and npm when the environment was made")
    (folder / "node_modules").symlink_to(packages)
    return [node, shutil.copy(program, folder)]


def opens_then_answers(framework: Framework, draws: random.Random, turn: int) -> str:
    """A reply of a policy that opens a box at first, and then names one."""
    box = draws.choice("ab")
    return framework.calls("open_box", box=box) if turn == 0 else framework.answers(box)


def after(interaction: AgentInteraction, *replies: str) -> Any:
    state = interaction.start(TASKS[0], 0)
    for reply in replies:
        state = interaction.advance(state, [reply])
    return state


def test_a_tool_call_goes_through_and_the_answer_is_scored(
    framework: Framework, interaction: AgentInteraction
) -> None:
    state = after(interaction, framework.calls("open_box", box="a"))
    (request,) = interaction.pending(state)
    assert "tea" in request.messages[-1]["content"]
    ended = [interaction.advance(state, [framework.answers(box)]) for box in "ab"]
    assert [(one.status, one.worth) for one in ended] == [("finished", 1.0), ("finished", 0.0)]
    assert state.kept == (int(framework.kept), 1)


def test_the_same_replies_give_the_same_calls_and_each_is_restored(
    framework: Framework, interaction: AgentInteraction
) -> None:
    def scripted(request: Request, draws: random.Random) -> str:
        said = sum(message["role"] == "assistant" for message in request.messages)
        return opens_then_answers(framework, draws, said)

    for replies in (scripted, made_up):
        findings = check(interaction, TASKS, replies)
        assert findings.problems == []
        assert findings.restored == findings.calls >= 2
        assert (findings.kept[0] == findings.kept[1]) or not framework.kept


@pytest.mark.parametrize("what", ["text", "nothing", "unknown", "misnamed", "broken"])
def test_a_reply_that_does_not_fit_ends_as_the_documents_say(
    framework: Framework, interaction: AgentInteraction, what: str
) -> None:
    reply = {
        "text": "I cannot tell.",
        "nothing": "",
        "unknown": framework.calls("close_box", box="a"),
        "misnamed": framework.calls("open_box", bag="a"),
        "broken": framework.unreadable,
    }[what]
    assert after(interaction, reply).status == getattr(framework, what)


@pytest.mark.parametrize(
    ("name", "options"), [("grpo", {"group_size": 4}), ("vineppo", {"group_size": 2, "rollouts": 2})]
)
def test_its_decisions_are_credited(
    framework: Framework, interaction: AgentInteraction, name: str, options: dict[str, Any]
) -> None:
    chat, draws = Chat(tokenizer_of([string.printable], tools=True)), random.Random(0)

    def generate(contexts: Sequence[Sequence[int]]) -> list[Generation]:
        turns = [chat.tokenizer.decode(list(ids)).count("<|assistant|>") - 1 for ids in contexts]
        return [Generation(ids=chat.reply_ids(opens_then_answers(framework, draws, turn))) for turn in turns]

    method = methods.make(name, **options).bind(interaction)
    context = LocalContext(Engine(interaction, chat, generate))
    collected = method.collector(TASKS, context, None)
    credit = method.estimator(collected, context, None).decisions
    assert {one.episode.ending for one in collected.rollouts} == {Ending.FINISHED}
    assert {one.outcome for one in collected.episodes} == {0.0, 1.0}
    decisions = [decision for episode in collected.episodes for decision in episode.decisions]
    assert len(decisions) == 2 * len(collected.episodes)
    assert all(isinstance(credit[decision.id], float) for decision in decisions)
    assert any(credit.values())
    assert interaction.costs()["diverged"] == 0
