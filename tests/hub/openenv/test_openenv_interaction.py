"""Environments of others, over the network: their states are values, or nothing is replayed."""

from __future__ import annotations

import gc
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hf_credit import make, methods
from hf_credit.collectors import Group
from hf_credit.environments.actions import tag
from hf_credit.environments.openenv_world import OpenEnvEnvironment
from hf_credit.environments.replayed import DivergedError, LostError
from hf_credit.hub.environments import openenv_interaction
from hf_credit.oracles import default_oracle
from hf_credit.rollouts import Ending, Engine, EnvironmentInteraction, Generation, RolloutRequest, replay_from
from hf_credit.rollouts.scripts import OraclePlayer
from hf_credit.tasks import TaskSpec

ON = ["on", "wait", "on"]


@pytest.fixture
def opened(served: str) -> Iterator[Any]:
    """Makes an Interaction with one of the environments that are served, and ends its sessions."""
    made: list[EnvironmentInteraction] = []

    def make_one(name: str, **options: Any) -> EnvironmentInteraction:
        made.append(openenv_interaction(f"{served}/{name}", **{"probe": ON, "timeout": 30, **options}))
        return made[-1]

    yield make_one
    for one in made:
        one.close()


def walked(environment: Any, state: Any, actions: Any) -> Any:
    for action in actions:
        state = environment.step(state, action).state
    return state


def says(chat: Any, *replies: str) -> Any:
    """Replies in turn, one to each context."""
    told = [Generation(ids=[*chat.encode(reply), chat.tokenizer.eos_token_id]) for reply in replies]
    return lambda contexts: [told[place % len(told)] for place in range(len(contexts))]


# The same as at home


def test_a_space_of_ours_plays_as_the_environment_does_in_this_process(opened: Any) -> None:
    remote = opened("small", probe=["fill 1 1 1"], set_state=True)
    local = EnvironmentInteraction(make("sudoku", size=4, blanks=4))
    player = OraclePlayer(local.environment, default_oracle(local.environment), 0.7)  # type: ignore[arg-type]
    assert remote.replayable
    for seed in range(4):
        here, there = local.start({}, seed), remote.start({}, seed)
        while pending := local.pending(here):
            reply = player(here, pending[0], __import__("random").Random(seed))
            before = (here, there)
            here, there = local.advance(here, [reply]), remote.advance(there, [reply])
            assert there.transcript[-1] == here.transcript[-1]
            assert (there.reward, there.world.status == "active") == (here.reward, here.world.status == "active")
            del before
        assert remote.pending(there) == ()
        assert remote.outcome(there) == local.outcome(here)


def test_a_recipe_names_it_and_a_spec_makes_it_again(opened: Any, served: str) -> None:
    interaction = opened("walk", history="append", instructions=False, max_turns=5, sessions=3)
    spec = TaskSpec.of(interaction)
    assert (spec.task, spec.task_options["url"]) == ("openenv", f"{served}/walk")
    again = TaskSpec.from_dict(spec.to_dict()).build()
    assert again.spec() == interaction.spec()
    assert isinstance(again.environment, OpenEnvEnvironment)  # type: ignore[attr-defined]
    again.environment.close()  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(interaction.environment)).url == f"{served}/walk"


def test_the_files_beside_a_policy_choose_no_server(tmp_path: Path) -> None:
    found = TaskSpec(task="openenv", task_options={"url": "https://example.org"})
    found.save(tmp_path)
    beside = TaskSpec.load(tmp_path)
    assert beside is not None
    with pytest.raises(ValueError, match=r"cannot choose a server, .* got the url 'https://example"):
        beside.build()
    with pytest.raises(ValueError, match="url must be that of an OpenEnv server, got 'the name'"):
        beside.on("openenv", {"url": "the name"}).build()


# Every way back to a state


def test_a_state_whose_session_has_gone_on_is_restored_by_its_actions(opened: Any) -> None:
    environment = opened("walk", sessions=1).environment
    states = [environment.initial_state({}, 7)]
    for action in ("on", "wait", "on"):
        states.append(walked(environment, states[-1], [action]))
    for place in (0, 2, 1):
        assert walked(environment, states[place], [("on", "wait", "on")[place]]) == states[place + 1]
    spent = environment.costs()
    assert (spent["restored"], spent["diverged"], spent["lost"]) == (0, 0, 0)
    assert spent["replayed_steps"] == 0 + 2 + 1


def test_a_state_is_restored_from_the_servers_own_where_that_was_found_true(opened: Any) -> None:
    interaction = opened("restored", set_state=True, sessions=2)
    environment = interaction.environment
    assert (interaction.replayable, environment.restores) == (True, True)
    spent = environment.costs()
    state = walked(environment, environment.initial_state({}, 7), ["on"])
    first = walked(environment, state, ["on", "on"])
    assert walked(environment, state, ["on", "on"]) == first
    assert environment.costs()["restored"] == spent["restored"] + 1
    assert environment.costs()["replayed_steps"] == 0


def test_a_server_that_drops_the_state_it_is_given_is_not_believed(opened: Any, caplog: Any) -> None:
    interaction = opened("boasting", set_state=True)
    assert (interaction.replayable, interaction.environment.restores) == (False, False)
    assert "declares set_state, but does not restore a state" in caplog.text
    # One that repeats itself needs no state: it is restored by its actions.
    interaction = opened("walk", set_state=True)
    assert (interaction.replayable, interaction.environment.restores) == (True, False)


def test_a_change_that_the_probe_missed_ends_the_episode(opened: Any, chat: Any) -> None:
    interaction = opened("moody", sessions=1)
    interaction.environment.repeats = interaction.environment.replayable = True  # as if it had
    engine = Engine(interaction, chat, says(chat, tag("on")))
    first, second = engine.run([RolloutRequest(seed=0), RolloutRequest(seed=1)])
    assert {first.ending, second.ending} & {Ending.ERROR}
    failed = first if first.ending == Ending.ERROR else second
    assert isinstance(failed.exception, DivergedError)


# What does not repeat itself


@pytest.mark.parametrize("name", ["replay_loo", "mc_process_reward", "vineppo", "tree_grpo", "carl"])
def test_methods_that_replay_refuse_what_does_not_repeat_itself(opened: Any, name: str) -> None:
    sentence = f"deterministic given seed and actions, got the method '{name}' for 'openenv', which is not"
    method = methods.make(name)
    with pytest.raises(ValueError, match=sentence):
        method.bind(opened("moody"))
    assert method.bind(opened("walk")).name == name


def test_a_server_that_repeats_itself_by_chance_is_not_believed(opened: Any) -> None:
    assert opened("lucky").replayable is False
    walk = opened("walk")
    assert walk.replayable is True
    assert walk.environment.costs()["worlds_opened"] <= 5  # the further starts share their sessions


def test_nothing_else_goes_on_from_its_states_either(opened: Any, chat: Any) -> None:
    interaction = opened("moody")
    engine = Engine(interaction, chat, says(chat, tag("on")))
    (episode,) = engine.run([RolloutRequest(seed=0)])
    assert episode.ending == Ending.FINISHED
    for start in (RolloutRequest(seed=0, fanout=(2,)), replay_from(interaction, chat, episode, 1)):
        with pytest.raises(ValueError, match="got a request that continues from a state"):
            engine.run([start])
    assert methods.make("grpo", group_size=2).bind(interaction).collector == Group(size=2)


def test_episodes_of_one_seed_are_each_their_own_where_it_does_not_repeat_itself(opened: Any, chat: Any) -> None:
    interaction = opened("moody", sessions=3)
    engine = Engine(interaction, chat, says(chat, tag("on")))
    episodes = engine.run([RolloutRequest(seed=0) for _ in range(8)])  # at most three at once: none can be set aside
    assert {one.ending for one in episodes} == {Ending.FINISHED}
    moods = [{step.state.world.observation.partition("Mood ")[2] for step in one.decisions} for one in episodes]
    assert [len(one) for one in moods] == [1] * 8  # nobody went on in the session of another
    assert len(set.union(*moods)) == 8
    assert interaction.costs()["replayed_steps"] == 0
    # One whose session is gone cannot be gone on with.
    environment = interaction.environment
    state = environment.initial_state({}, 0)
    environment.close()
    with pytest.raises(LostError, match="must continue in its own world, got one that was lost"):
        environment.step(state, "on")


# Sessions


@pytest.mark.parametrize(("name", "room"), [("alone", 1), ("few", 3)])
def test_episodes_side_by_side_make_do_with_the_room_there_is(opened: Any, chat: Any, name: str, room: int) -> None:
    interaction = opened(name, sessions=8)
    engine = Engine(interaction, chat, says(chat, tag("on"), tag("wait")))
    episodes = engine.run([RolloutRequest(seed=seed) for seed in range(6)])
    assert {one.ending for one in episodes} == {Ending.FINISHED}
    assert interaction.environment._live.limit == room
    assert interaction.costs()["replayed_steps"] > 0  # they take turns
    alone = Engine(opened("walk"), chat, says(chat, tag("on"), tag("wait")))
    assert [one.outcome for one in episodes] == [
        one.outcome for one in alone.run([RolloutRequest(seed=s) for s in range(6)])
    ]


def test_a_lost_session_is_restored_once(opened: Any, chat: Any) -> None:
    interaction = opened("cutting", sessions=2)
    environment = interaction.environment
    state = walked(environment, environment.initial_state({}, 3), ["on", "wait"])
    after = walked(environment, state, ["stumble", "on"])
    spent = environment.costs()
    assert (spent["lost"], spent["diverged"], spent["replayed_steps"]) == (1, 0, 2)
    assert walked(environment, state, ["stumble", "on"]) == after
    # One that is cut again ends its episode.
    (episode,) = Engine(interaction, chat, says(chat, tag("cut"))).run([RolloutRequest(seed=0)])
    assert episode.ending == Ending.ERROR
    assert episode.error is not None
    assert episode.error.startswith("ConnectionError: ")


def test_what_the_server_raises_and_what_it_does_not_answer_ends_the_episode(opened: Any, chat: Any) -> None:
    said = {
        "break": "ServerError: the path broke (code: EXECUTION_ERROR)",
        "sleep": "TimeoutError: the server did not answer in time; raise timeout.",
        "on": None,
    }
    for action, error in said.items():
        interaction = opened("walk", timeout=1 if action == "sleep" else 30)
        (episode,) = Engine(interaction, chat, says(chat, tag(action))).run([RolloutRequest(seed=0)])
        assert episode.error == error


def test_sessions_end_with_the_environment_they_are_of(opened: Any, served: str, chat: Any) -> None:
    for _ in range(4):  # the server has room for three
        environment = OpenEnvEnvironment(f"{served}/few", probe=ON, sessions=3)
        Engine(EnvironmentInteraction(environment), chat, says(chat, tag("on"))).run(
            [RolloutRequest(seed=s) for s in range(3)]
        )
        assert environment.costs()["lost"] == 0
        del environment
        gc.collect()


# What is shown, and what is said


def test_what_a_server_shows_is_cut_and_is_never_a_special_token(opened: Any, chat: Any) -> None:
    interaction = opened("talkative", most_characters=100, instructions=False)
    (request,) = interaction.pending(interaction.start({}, 0))
    text = request.messages[0]["content"]
    assert text == "<|end|> " + "x" * 42 + "\n... (199908 characters left out) ...\n" + "x" * 50
    special = set(chat.tokenizer.all_special_ids)
    context = chat.context(request.messages)
    assert [one for one in context if one in special] == [
        one for one in chat.context([{"role": "user", "content": "x"}]) if one in special
    ]


def test_a_reply_is_an_action_as_a_whole_where_it_is_told_so(opened: Any) -> None:
    interaction = opened("walk", tagged=False)
    state = interaction.start({}, 0)
    assert state.transcript[0][1].startswith("Your whole reply is your action.\n\nField 0, wind ")
    after = interaction.advance(state, ["<think>off?</think>\n on "])
    assert after.world.actions == ("on",)


def test_columns_of_a_row_reach_reset(opened: Any) -> None:
    interaction = opened("walk", task={"start": 1}, observation_field="seen")
    assert interaction.start({}, 0).transcript[0][1].split("\n\n")[1].startswith("Field 1, ")
    assert interaction.start({"start": 2}, 0).transcript[0][1].split("\n\n")[1].startswith("Field 2, ")
    with pytest.raises(ValueError, match="must have the column 'seed'"):
        interaction.require_columns(["start"])


def test_tools_behind_mcp_are_called(opened: Any) -> None:
    interaction = opened("sums", probe=['{"name": "add", "arguments": {"first": 1, "second": 2}}'])
    assert [one["function"]["name"] for one in interaction.environment.tools] == ["add"]
    assert set(interaction.environment.tools[0]["function"]["parameters"]["properties"]) == {"first", "second"}
    state = interaction.start({}, 4)
    assert state.transcript[0][1].endswith('{"task": "Add something to 4 that makes 10."}')
    call = '<tool_call>{"name": "add", "arguments": {"first": 4, "second": %s}}</tool_call>'
    state = interaction.advance(state, [call % 5])
    assert state.transcript[-1] == ("tool", "9")
    refused = interaction.advance(state, [call % '"x"'])
    assert refused.transcript[-1][1].startswith("Error: ")
    unread = interaction.advance(state, ["<tool_call>{"])
    assert unread.transcript[-1][1].startswith("No tool call could be read")
    paid = interaction.advance(state, [call % 6])
    assert (interaction.outcome(paid), interaction.ending(paid)) == (1.0, Ending.FINISHED)
    answered = interaction.advance(state, ["It is 9."])
    assert math.isnan(interaction.outcome(answered))  # the server rewards only sums of 10, and others with None
    assert interaction.pending(answered) == ()


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("nowhere", {}, "an OpenEnv environment must answer at its url, got HTTPError from '{url}'"),
        ("walk", {"action_field": "step"}, "got action_field='step' of the fields move (required); name the only"),
        ("two", {}, "got action_field=None of the fields first (required), second (required); name the only"),
        ("walk", {"observation_field": "heard"}, "observation_field must be one of metadata, seen, got 'heard'"),
        ("walk", {"turns": 0}, "turns must be at least 1, got 0; raise it."),
        ("walk", {"probe": "on"}, "probe must be a list of actions to try, got 'on'; name one or more."),
        ("walk", {"token_variable": "NO_SUCH_TOKEN"}, "got no environment variable 'NO_SUCH_TOKEN'; set it."),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_sentence(
    opened: Any, served: str, name: str, options: Any, sentence: str
) -> None:
    with pytest.raises(ValueError, match="got") as error:
        opened(name, **options)
    assert sentence.replace("{url}", f"{served}/{name}") in str(error.value)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://127.0.0.1:9", "must answer at its url, got ConnectionError from 'http://127.0.0.1:9'"),
        ("owner/name", "url must be that of an OpenEnv server, got 'owner/name'; write https://OWNER-SPACE.hf.space"),
        ("file:///etc/passwd", "url must be that of an OpenEnv server, got 'file:///etc/passwd'"),
        ("https://me:secret@example.org", "url must hold no password, got one"),
    ],
)
def test_an_address_that_is_none_or_does_not_answer_is_told_in_one_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="got") as error:
        openenv_interaction(url, timeout=5)
    assert sentence in str(error.value)
    assert "secret" not in str(error.value)


def test_a_token_is_never_sent_in_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hidden")
    with pytest.raises(ValueError, match=r"a token is sent over https only, got 'http://example\.org'"):
        openenv_interaction("http://example.org", token_variable="MY_TOKEN")
