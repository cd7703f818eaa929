"""Objects as TRL's `environment_factory` makes them are environments with schemas, replay and their own reward."""

from __future__ import annotations

import copy
import json
import math
import sys
from datetime import date
from typing import Any

import pytest
from PIL import Image as pil
from transformers import PreTrainedTokenizerBase
from trl.data_utils import prepare_multimodal_messages

from hf_credit import replies
from hf_credit.content import MOST_PIXELS, Image, Text, parts_of
from hf_credit.environments import check_env, make, tool_world
from hf_credit.environments.actions import marked, write_call
from hf_credit.rollouts import Chat, Ending, Engine, EnvironmentInteraction, Generation, RolloutRequest

pytest.importorskip("jsonschema")


class Shop:
    """A shop, as in TRL."""

    def reset(self, goal: str = "tea", **row: Any) -> str | None:
        self.goal, self.basket = goal, []
        return f"You want {goal}."

    def put(self, what: str, count: int = 1) -> str:
        """Puts something into the basket.

        Args:
            what: to put.
            count: how many of it.
        """
        if what == "dragon":
            raise ValueError("no dragons")
        self.basket += [what] * count
        return f"In the basket: {', '.join(self.basket)}."

    async def basket_size(self) -> int:
        """How much is in the basket."""
        return len(self.basket)

    def get_reward(self) -> float:
        return float(self.goal in self.basket)

    def _secret(self) -> str:
        return "not a tool"


def shop(**options: Any) -> Any:
    return make("tools", factory=Shop, columns=("prompt", "goal"), turns=4, **options)


def call(name: str, **arguments: Any) -> str:
    return marked(write_call(name, arguments))


def played(environment: Any, *replies: str) -> Any:
    state = environment.initial_state({"prompt": "Buy it.", "goal": "tea"}, 0)
    for reply in replies:
        transition = environment.step(state, environment.read_action(reply))
        state = transition.state
    return transition


def test_its_public_methods_are_tools_with_schemas():
    put, size = sorted((one["function"] for one in shop().tools), key=lambda one: one["name"], reverse=True)
    assert (put["name"], size["name"]) == ("put", "basket_size")
    assert put["parameters"]["required"] == ["what"]
    assert put["parameters"]["properties"]["count"]["type"] == "integer"


def test_the_first_observation_is_the_prompt_and_the_text_of_reset():
    environment = shop()
    row = {"prompt": [{"role": "user", "content": "Buy it."}], "goal": "tea"}
    assert environment.observe(environment.initial_state(row, 0)) == "Buy it.\n\nYou want tea."


def test_a_call_is_executed_and_the_reward_is_the_objects():
    environment = shop()
    after = played(environment, call("put", what="tea", count=2))
    assert (after.observation, after.reward, after.terminated) == ("In the basket: tea, tea.", 1.0, False)
    assert json.loads(after.info["action"]) == {"name": "put", "arguments": {"what": "tea", "count": 2}}
    assert environment.metrics(after.state)["success"] == 1.0
    assert environment.outcome(after.state) == 1.0
    assert played(environment, call("put", what="tea"), "There is tea.").state.status == "finished"


def test_a_final_answer_may_be_longer_than_a_call():
    after = played(shop(), call("put", what="tea"), "tea " * 5_000)
    assert (after.state.status, after.observation) == ("finished", "")
    after = played(shop(), "tea " * 50_000)
    assert after.observation.startswith("No tool call could be read in the last reply: it has more than 131,072 char")


def test_a_long_call_of_other_characters_is_played_and_restored():
    environment = shop(sessions=1)
    after = played(environment, call("put", what="茶" * 3_066))
    played(environment, call("put", what="tea"))  # takes the only session
    assert environment.step(after.state, call("put", what="tea")).reward == 1.0


def test_the_object_that_shows_the_tools_is_closed():
    closed = []

    class Closing(Shop):
        async def close(self) -> None:
            closed.append(self)

    made = make("tools", factory=Closing)
    assert len(closed) == 1
    assert made.tools == shop().tools


def test_a_close_that_needs_a_reset_does_not_matter_before_one():
    class Needing(Shop):
        def close(self) -> None:
            self.basket.clear()

    assert make("tools", factory=Needing).tools == shop().tools


def test_an_async_tool_is_awaited():
    assert played(shop(), call("put", what="tea"), call("basket_size")).observation == "1"


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (call("put", what=7), "Error: 7 is not of type 'string'"),
        (call("put"), "Error: 'what' is a required property"),
        (
            call("put", what="tea", colour="red"),
            "Error: Additional properties are not allowed ('colour' was unexpected)",
        ),
        (call("_secret"), "Error: there is no tool '_secret'; there are "),
        (call("reset"), "Error: there is no tool 'reset'; there are "),
        (call("__class__"), "Error: there is no tool '__class__'; there are "),
    ],
)
def test_arguments_that_do_not_fit_never_reach_the_object(reply, shown):
    after = played(shop(), reply)
    assert after.observation.startswith(shown)
    assert (after.info["action"], after.state.status) == (None, "active")


def test_an_error_of_a_tool_is_its_answer_and_is_logged_once_with_its_traceback(caplog, monkeypatch):
    monkeypatch.setattr(tool_world, "_SHOWN", set())
    for _ in range(2):
        after = played(shop(), call("put", what="dragon"))
        assert (after.observation, after.state.status) == ("Error: no dragons", "active")
    (logged,) = [record for record in caplog.records if record.name == tool_world.__name__]
    assert str(logged.exc_info[1]) == "no dragons"


class Parser:
    """A tool that ends a program on bad arguments, as argparse does, and one with a long result."""

    def reset(self, **row):
        return None

    def get_reward(self):
        return 0.0

    def parse(self, words: str) -> str:
        """Parses.

        Args:
            words: to parse.
        """
        sys.exit(f"unknown: {words}")

    def fill(self) -> str:
        """Fills."""
        return "x" * 2**20


def test_a_tool_that_exits_does_not_end_the_training_and_a_long_result_is_cut():
    world = make("tools", factory=Parser, columns=("prompt", "goal"), turns=4)
    assert played(world, call("parse", words="--n abc")).observation == "Error: unknown: --n abc"
    assert len(played(world, call("fill")).observation) < 2**14 + 50


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (call("put", what="tea") * 2, "one call a turn"),
        ("<tool_call>put(tea)</tool_call>", "it has no name"),
        ('<tool_call>{"name": "put", "arguments": 5}</tool_call>', "its arguments are not an object"),
        ("<tool_call>put(tea)</tool_call>" + call("put", what="milk"), "it has no name"),
        (call("put", what="milk") + "<tool_call>put(tea", "it has no name"),
    ],
)
def test_several_calls_or_an_unreadable_one_cost_a_turn_and_are_reported(reply, why):
    after = played(shop(), reply)
    assert after.observation.startswith(f"No tool call could be read in the last reply: {why}.")
    assert (after.info["action"], after.state.actions) == (None, ())


def test_a_call_in_a_thought_is_not_made():
    for thought in (f"<think>{call('put', what='tea')}", f"{call('put', what='tea')}</think>"):
        assert played(shop(), thought).state.actions in ((), ("",))


def test_a_call_in_xml_has_the_types_of_its_tool():
    said = "<tool_call>\n<function=put>\n<parameter=what>\n7\n</parameter>\n</function>\n</tool_call>"
    assert played(shop(), said).observation == "In the basket: 7."


def test_a_turn_reads_its_reply_once_and_a_state_from_a_file_no_reply_again(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    read = replies._Reader.__init__

    def counted(self: Any, text: str, tools: Any) -> None:
        texts.append(text)
        read(self, text, tools)

    monkeypatch.setattr(replies._Reader, "__init__", counted)
    interaction, said = EnvironmentInteraction(shop()), call("put", what="tea")
    state = interaction.start({"prompt": "Buy it.", "goal": "tea"}, 0)
    for turn in (1, 2):
        state = interaction.advance(state, [said])
        assert texts == [said] * turn
    texts.clear()
    interaction.environment.close()
    interaction.advance(interaction.state_from_json(interaction.state_to_json(state)), [said])
    assert texts == [said]


def test_a_state_without_a_live_object_is_restored():
    environment = shop(sessions=1)
    before = played(environment, call("put", what="milk")).state
    environment.close()
    assert environment.step(before, call("put", what="tea")).observation == "In the basket: milk, tea."


def test_it_follows_every_rule_of_environments():
    class Asking(type(shop())):
        def sample_task(self, seed: int) -> dict[str, Any]:
            return {"prompt": "Buy it.", "goal": "tea"}

    check_env(Asking(Shop, ("prompt", "goal")), range(2))


class Quiz:
    """Is answered by text, and has no reward."""

    def reset(self, **row: Any) -> None:
        self.looked = 0

    def look_up(self, what: str) -> str:
        """Looks something up.

        Args:
            what: to look up.
        """
        self.looked += 1
        return f"{what}: 4"


class GradedQuiz(Quiz):
    def get_reward(self, final_answer: str | None = None) -> float:
        return 0.0 if final_answer is None else float("4" in final_answer)


@pytest.mark.parametrize(
    "message", [{"content": None}, {"content": [{"audio": "a"}]}, {"content": "a", "tool_calls": [{"id": "x"}]}]
)
def test_a_prompt_that_is_more_than_text_and_images_is_refused(message: dict[str, Any]) -> None:
    environment = make("tools", factory=Shop, columns=("prompt", "goal"), turns=4)
    with pytest.raises(ValueError, match=r"a (prompt|message) must be text or (messages|parts) of text.*, got"):
        environment.initial_state({"prompt": [{"role": "user", **message}], "goal": "tea"}, 0)


def exact(prompts: Any, completions: Any, answer: Any, **columns: Any) -> list[float]:
    return [float(run[-1]["content"] == gold) for run, gold in zip(completions, answer, strict=True)]


def thrift(environments: Any, **columns: Any) -> list[float | None]:
    return [-0.1 * one.looked if one.looked else None for one in environments]


def quiz(factory: Any = Quiz, **options: Any) -> Any:
    return make("tools", factory=factory, columns=("prompt", "answer"), **options)


def answered(environment: Any, *replies: str) -> tuple[float, list[float]]:
    state, rewards = environment.initial_state({"prompt": "2 + 2?", "answer": "4"}, 0), []
    for reply in replies:
        transition = environment.step(state, environment.read_action(reply))
        state, rewards = transition.state, [*rewards, transition.reward]
    return environment.outcome(state), rewards


LOOK = call("look_up", what="2 + 2")


@pytest.mark.parametrize(
    ("options", "replies", "outcome", "rewards"),
    [
        ({"factory": GradedQuiz}, (LOOK, "It is 4."), 1.0, [0.0, 1.0]),
        ({"factory": GradedQuiz}, (LOOK, "It is 5."), 0.0, [0.0, 0.0]),
        ({"factory": GradedQuiz}, ("<think>5?</think> It is 4.",), 1.0, [1.0]),
        ({"reward_funcs": exact}, ("4",), 1.0, [1.0]),
        ({"reward_funcs": exact}, (LOOK, "5"), 0.0, [0.0, 0.0]),
        ({"reward_funcs": f"{__name__}:exact"}, ("4",), 1.0, [1.0]),
        ({"reward_funcs": [exact, thrift]}, (LOOK, "4"), 0.9, [-0.1, 1.0]),
        ({"reward_funcs": [thrift, exact]}, ("4",), 1.0, [1.0]),
        ({"factory": GradedQuiz, "reward_funcs": [thrift]}, (LOOK, LOOK, "4"), 0.8, [-0.1, -0.1, 1.0]),
    ],
)
def test_an_episode_is_scored_by_its_final_reply(options, replies, outcome, rewards):
    found = answered(quiz(**options), *replies)
    assert found == (pytest.approx(outcome), [pytest.approx(one) for one in rewards])


@pytest.mark.parametrize("replies", [("4",), (LOOK,)], ids=["answered", "as at a limit of turns"])
def test_an_episode_without_any_reward_has_no_outcome(replies):
    def failing(completions: Any, **columns: Any) -> list[None]:
        return [None] * len(completions)

    outcome, rewards = answered(quiz(reward_funcs=[failing, failing]), *replies)
    assert (math.isnan(outcome), rewards) == (True, [0.0])
    later = quiz(
        reward_funcs=[lambda completions, **columns: [float(len(c)) if len(c) > 2 else None for c in completions]]
    )
    assert answered(later, LOOK, "4") == (3.0, [0.0, 3.0])  # None at first, when it does not apply yet


def test_a_reward_function_gets_the_episode_as_in_trl():
    seen = []

    def keep(**given: Any) -> list[float]:
        seen.append(given)
        return [0.0]

    answered(quiz(reward_funcs=keep), LOOK, "4")
    (environment,) = seen[1].pop("environments")
    assert environment.looked == 1
    call_made = {"type": "function", "function": {"name": "look_up", "arguments": {"what": "2 + 2"}}}
    assert seen[1] == {
        "prompts": [[{"role": "user", "content": "2 + 2?"}]],
        "completions": [
            [
                {"role": "assistant", "content": "", "tool_calls": [call_made]},
                {"role": "tool", "name": "look_up", "content": "2 + 2: 4"},
                {"role": "assistant", "content": "4"},
            ]
        ],
        "answer": ["4"],
    }
    assert len(seen[0]["completions"][0]) == 2


def test_an_async_reward_function_is_awaited():
    async def slow(completions: Any, **columns: Any) -> list[float]:
        return [0.5 for _ in completions]

    assert answered(quiz(reward_funcs=slow), "4")[0] == 0.5


@pytest.mark.parametrize("rewards", [1.0, [], [1.0, 1.0], None])
def test_a_reward_function_returns_one_reward_for_each_completion(rewards):
    with pytest.raises(ValueError, match="must return a list with one reward for each completion, got"):
        answered(quiz(reward_funcs=lambda **_: rewards), "4")


def test_a_long_final_reply_is_scored():
    assert answered(quiz(GradedQuiz), "so " * 3000 + "4")[0] == 1.0


def test_reward_functions_are_part_of_the_spec():
    spec = EnvironmentInteraction(quiz(reward_funcs=exact)).spec()
    assert spec["task_options"]["reward_funcs"] in ([f"{__name__}:exact"], f"{__name__}:exact")


class WithoutReward:
    def reset(self) -> None: ...

    def look(self) -> str:
        """Looks."""


class WithoutTools:
    def reset(self) -> None: ...

    def get_reward(self) -> float:
        return 0.0


class WithoutDocstring(WithoutTools):
    def look(self, at):
        return at


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (WithoutReward, "must have the methods reset and get_reward, got a WithoutReward without get_reward"),
        (WithoutTools, "must have a public method, got a WithoutTools without one"),
        (WithoutDocstring, "every tool must have type hints and a docstring"),
    ],
)
def test_objects_without_tools_or_reward_are_refused(factory, message):
    with pytest.raises(ValueError, match=message):
        make("tools", factory=factory)


class Question:
    def reset(self, **row: Any) -> None: ...


def same(prompts: Any, completions: Any, answer: Any, **columns: Any) -> list[float]:
    return [float(one[-1]["content"] == own) for one, own in zip(completions, answer, strict=True)]


@pytest.mark.parametrize(("reply", "outcome"), [("5", 1.0), ("<think>4</think> 5", 1.0), ("4", 0.0)])
def test_a_row_without_tools_is_answered_at_once(reply: str, outcome: float) -> None:
    world = make("tools", factory=Question, columns=("prompt", "answer"), reward_funcs=same)
    interaction = EnvironmentInteraction(world, instructions=False)
    first = interaction.start({"prompt": "2 + 3?", "answer": "5"}, 0)
    (asked,) = interaction.pending(first)
    assert (asked.messages, asked.tools) == ([{"role": "user", "content": "2 + 3?"}], ())
    last = interaction.advance(first, [reply])
    assert (last.world.status, interaction.outcome(last)) == ("finished", outcome)
    assert world.read_action(world.write_action("5")) == "5"


TEMPLATE = (
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool.function.name }} {% endfor %}<|end|>{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'tool' %}<|user|>[{{ message.content }}]<|end|>"
    "{% else %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture
def taught(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """A tokenizer with a template for tools."""
    other = copy.deepcopy(tokenizer)
    other.chat_template = TEMPLATE
    return other


def test_the_template_shows_the_tools_and_answers_have_the_role_tool(taught):
    chat = Chat(taught)
    replies = iter([call("put", what="tea"), "Done."])

    def generate(contexts: Any) -> list[Generation]:
        return [Generation(ids=[*chat.encode(next(replies)), taught.eos_token_id])]

    engine = Engine(EnvironmentInteraction(shop(), instructions=False), chat, generate)
    (episode,) = engine.run([RolloutRequest(task={"prompt": "Buy it.", "goal": "tea"}, seed=0)])
    assert (episode.ending, episode.outcome) == (Ending.FINISHED, 1.0)
    contexts = [taught.decode(decision.context_ids) for decision in episode.decisions]
    assert contexts[0] == "<|system|>basket_size put <|end|><|user|>Buy it.\n\nYou want tea.<|end|><|assistant|>"
    assert contexts[1] == (
        f"{contexts[0]}{call('put', what='tea')}<|end|><|user|>[In the basket: tea.]<|end|><|assistant|>"
    )


def test_a_template_without_tools_ends_the_episode(chat):
    engine = Engine(EnvironmentInteraction(shop()), chat, lambda contexts: [])
    (episode,) = engine.run([RolloutRequest(task={"prompt": "Buy it.", "goal": "tea"}, seed=0)])
    assert episode.ending == Ending.ERROR
    assert "the chat template must render tools, got one of" in str(episode.error)


class Camera:
    """Tools that return images, in the form of TRL."""

    def reset(self, **row: Any) -> list[dict[str, Any]]:
        return [{"type": "text", "text": "The door:"}, {"type": "image", "image": pil.new("RGB", (4, 4), "green")}]

    def look(self, colour: str) -> list[dict[str, Any]]:
        """Looks.

        Args:
            colour: of the image.
        """
        size = (2, 2) if colour != "black" else (MOST_PIXELS, 2)
        return [{"type": "image", "image": pil.new("1" if colour == "black" else "RGB", size, colour)}]

    def alone(self) -> Any:
        """Looks at once."""
        return pil.new("RGB", (2, 2), "red")

    def names(self) -> list[str]:
        """Lists names, which are no parts of a message."""
        return ["a", "b"]


def seen(prompts: Any, completions: Any, environments: Any, **columns: Any) -> list[float]:
    """The share of red pixels in the images of an episode, as a reward function of TRL reads them."""
    contents = [one["content"] for one in (*prompts[0], *completions[0])]
    images = [part["image"] for one in contents if isinstance(one, list) for part in one if part["type"] == "image"]
    red = sum(count for one in images for count, colour in one.getcolors() if colour == (255, 0, 0))
    return [red / sum(one.width * one.height for one in images)]


def test_tools_return_images_that_messages_states_and_rewards_have():
    environment = make("tools", factory=Camera, columns=("prompt",), turns=4, reward_funcs=seen)
    interaction = EnvironmentInteraction(environment)
    state = interaction.start({"prompt": "Look."}, 0)
    green, red = (Image.of(pil.new("RGB", *one)) for one in (((4, 4), "green"), ((2, 2), "red")))
    first = (Text(environment.instructions), Text("Look."), Text("The door:"), green)
    assert [one["content"] for one in interaction.pending(state)[0].messages] == [first]
    for reply, answer in (
        (call("look", colour="red"), (red,)),
        (call("alone"), (red,)),
        (call("names"), "['a', 'b']"),
    ):
        state = interaction.advance(state, [reply])
        assert interaction.pending(state)[0].messages[-1] == {"role": "tool", "content": answer}
    assert interaction.state_from_json(interaction.state_to_json(state)) == state
    assert interaction.outcome(state) == pytest.approx(8 / 24)
    environment.close()
    again = interaction.advance(state, ["Done."])  # in a world that is restored
    assert (again.world.status, environment.costs()["replayed_steps"]) == ("finished", 3)


class Silent(Camera):
    """A camera that says nothing at the start, and whose tools know the images of the row."""

    def reset(self, **row: Any) -> None:
        self.row = row


def shown_by(row: dict[str, Any]) -> Any:
    environment = make(
        "tools", factory=Silent, columns=tuple(row), turns=4, reward_funcs=lambda completions, **_: [0.0]
    )
    interaction = EnvironmentInteraction(environment, instructions=False)
    state = interaction.start(row, 0)
    environment.close()
    again = interaction.state_from_json(interaction.state_to_json(state))
    assert again == state
    interaction.advance(again, [call("names")])
    assert environment.costs()["worlds_opened"] == 2
    return interaction.pending(state)[0].messages[0]["content"]


def test_the_images_of_a_row_stand_where_trl_puts_them():
    red, blue = (pil.new("RGB", (2, 2), colour) for colour in ("red", "blue"))
    say = {"role": "system", "content": "Be brief."}
    ask = {"role": "user", "content": "Which?"}
    place = {"type": "image", "text": None, "image": None}
    asked = {"role": "user", "content": [{"type": "text", "text": "Is"}, place, {"type": "text", "text": "or"}, place]}
    for row in (
        {"prompt": [say, ask], "images": [red, blue]},
        {"prompt": [say, ask], "image": red},
        {"prompt": [asked], "images": [red, blue]},
    ):
        # A dataset gives the parts of a message the same keys; TRL looks for places without the last one.
        messages = copy.deepcopy(row["prompt"])
        for part in (part for one in messages for part in one["content"] if isinstance(part, dict)):
            part.pop("image", None)
        in_trl = prepare_multimodal_messages(messages, row.get("images", [red]))
        assert shown_by(row) == tuple(part for one in in_trl for part in parts_of(one["content"]))
    assert shown_by({"prompt": "Which?", "images": [red]}) == (Image.of(red), Text("Which?"))
    assert shown_by({"prompt": "Which?", "image": None}) == shown_by({"prompt": [ask], "images": None}) == "Which?"


def test_the_images_of_a_row_reach_reset_and_its_states_have_each_once():
    red = pil.new("RGB", (2, 2), "red")
    environment = make("tools", factory=Silent, columns=("prompt", "images", "more"), reward_funcs=seen)
    row = {"prompt": "Which?", "images": [red, red], "more": {"png": "a name"}}
    state = environment.initial_state(row, 0)
    with environment._live.held(environment._live.take(state.past)) as world:
        assert [Image.of(one) for one in world.tools.row["images"]] == [Image.of(red)] * 2
        assert world.tools.row["more"] == {"png": "a name"}
    assert state.images == (Image.of(red),)
    assert Image.of(red).png not in state.task


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"prompt": "?", "images": [date(2026, 1, 1)]},
            "a task row must have plain values or images of PIL, got date",
        ),
        (
            {"prompt": [{"role": "user", "content": []}], "image": pil.new("RGB", (2, 2))},
            "a place for each image, got 1",
        ),
    ],
)
def test_what_a_row_cannot_have_is_named(row: dict[str, Any], message: str) -> None:
    environment = make("tools", factory=Silent, columns=tuple(row), reward_funcs=seen)
    with pytest.raises(ValueError, match=message):
        environment.initial_state(row, 0)


def test_an_image_of_a_tool_that_is_too_large_is_an_error_that_the_agent_reads():
    environment = make("tools", factory=Camera, columns=("prompt",), reward_funcs=seen)
    state = environment.initial_state({"prompt": "Look."}, 0)
    shown = environment.step(state, call("look", colour="black")).observation
    assert shown.startswith(f"Error: an image must have 1 to {MOST_PIXELS} pixels")
