from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.collaborations import COLLABORATIONS, Collaboration, Event, Loop
from hf_credit.collaborations import make as make_together
from hf_credit.collaborations.relay import relay
from hf_credit.environments import ENVIRONMENTS, make
from hf_credit.redaction import is_secret_name
from hf_credit.registry import remembers_its_call
from hf_credit.rollouts import EnvironmentInteraction, Interaction, Request
from hf_credit.rollouts.capabilities import fingerprint
from hf_credit.tasks.spec import OWN_CODE, TASK_FILE, Sampling, TaskSpec
from hf_credit.trust import NO_CONSENT

NAMES = st.text(max_size=5).filter(lambda name: not is_secret_name(name))  # secrets are left out
OPTIONS = st.dictionaries(NAMES, st.integers() | st.text(max_size=5) | st.booleans())
GAMES = st.builds(
    TaskSpec,
    task=st.sampled_from(sorted(ENVIRONMENTS)),
    task_options=OPTIONS,
    history=st.sampled_from(["append", "current"]),
    instructions=st.booleans(),
    max_turns=st.none() | st.integers(1, 99),
    chat_template_kwargs=st.dictionaries(NAMES, st.booleans()),
    sampling=st.builds(
        Sampling, max_new_tokens=st.integers(1, 9999), temperature=st.floats(0, 2), min_p=st.floats(0, 1)
    ),
)

TOGETHER = st.builds(TaskSpec, task=st.sampled_from(sorted(COLLABORATIONS)), task_options=OPTIONS)


@given(GAMES | TOGETHER)
def test_a_spec_survives_json(spec: TaskSpec) -> None:
    assert TaskSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_saved_spec_is_found_beside_the_model(tmp_path: Path) -> None:
    spec = TaskSpec(task="sudoku", task_options={"size": 4}, sampling=Sampling(top_k=3))
    spec.save(tmp_path)
    assert TaskSpec.load(tmp_path) == spec


def test_a_model_without_a_spec_has_none(tmp_path: Path) -> None:
    assert TaskSpec.load(tmp_path) is None


def test_a_model_that_is_on_no_reachable_hub_has_no_spec() -> None:
    assert TaskSpec.load("somebody/some-model") is None


def test_a_spec_says_where_it_shows_a_task_otherwise_than_the_policy_knows() -> None:
    known = TaskSpec(task="sudoku", history="current", instructions=False)
    assert known.shown_unlike(None, "runs/base") is None
    assert TaskSpec(task="tic_tac_toe", history="current", instructions=False).shown_unlike(known, "m") is None
    assert TaskSpec(task="sudoku").shown_unlike(known, "runs/base") == (
        "the policy 'runs/base' was trained on other prompts: history='append', not 'current', "
        "instructions=True, not False; use its settings, or expect poor replies."
    )
    thinking = TaskSpec(task="relay", chat_template_kwargs={"enable_thinking": True})
    assert "chat_template_kwargs={'enable_thinking': True}" in str(thinking.shown_unlike(known, "m"))
    assert TaskSpec(task="relay").shown_unlike(known, "m") is None


def test_a_spec_becomes_the_game_it_describes() -> None:
    spec = TaskSpec(
        task="sudoku",
        task_options={"size": 6, "blanks": 9},
        history="current",
        instructions=False,
        max_turns=3,
    )
    game: Any = spec.build()
    assert (game.environment.name, game.environment.size, game.environment.blanks) == ("sudoku", 6, 9)
    assert (game.history, game.instructions, game.max_turns) == ("current", False, 3)


def test_a_spec_becomes_the_collaboration_it_describes() -> None:
    together = TaskSpec(task="relay", task_options={"size": 4}).build()
    assert isinstance(together, Collaboration)
    assert together.roles["actor"] == "answer mod 4"


def test_a_task_is_found_by_its_name_whatever_it_is() -> None:
    assert not ENVIRONMENTS.keys() & COLLABORATIONS.keys()
    assert TaskSpec.of_name("sudoku", {"size": 4}) == TaskSpec(task="sudoku", task_options={"size": 4})
    assert TaskSpec.of_name("relay", {"size": 4}) == TaskSpec(task="relay", task_options={"size": 4})
    with pytest.raises(ValueError, match=r"task must be one of agent, .*minesweeper, .*voting, or .* got 'go'"):
        TaskSpec.of_name("go")


def test_another_task_is_shown_and_sampled_alike_as_far_as_it_can_be() -> None:
    sampling = Sampling(top_k=3)
    game = TaskSpec(task="sudoku", history="current", instructions=False, sampling=sampling)
    assert game.on("relay", {}) == TaskSpec(task="relay", sampling=sampling)
    assert game.on("minesweeper", {"rows": 4}).history == "current"
    assert game.with_options({"size": 4}).task_options == {"size": 4}


def test_every_option_of_a_collaboration_is_written_out_and_what_has_no_default_is_asked_for() -> None:
    assert TaskSpec(task="relay").complete().task_options == {"size": 10, "speakers": 2}
    named = {"domain": "math", "scorer": "operator:eq"}
    assert TaskSpec.of_name("reasoner_actor", named).complete().task_options == {**named, "column": "problem"}
    with pytest.raises(ValueError, match="'reasoner_actor' needs the options scorer, got domain; add them"):
        TaskSpec.of_name("reasoner_actor", {"domain": "math"}).build()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"history": "append"}', "got 'task' wrong; add it"),
        ('{"task": ""}', "a task must be named, got none; set task"),
        ('{"environment": "sudoku", "collaboration": "relay"}', "task must be given once, got 'sudoku' and coll"),
        ('{"task": "sudoku", "colour": 1}', "got 'colour'"),
        ('{"task": "sudoku", "sampling": {"beams": 4}}', "got 'beams'"),
        (
            '{"task": "sudoku", "max_turns": "9"}',
            "max_turns of a task's spec must be a whole number, got '9'",
        ),
        ('{"task": "sudoku", "max_turns": 0}', "max_turns of a task's spec must be at least 1, got 0"),
        ('{"task": "sudoku", "critic_model": 3}', "critic_model of a task's spec must be a text, got 3"),
        ('{"task": "sudoku", "method": {}}', "method of a task's spec must have the fields name, options"),
        ('{"task": "sudoku", "method": {"name": "grpo"}}', "fields name, options, got 'options' wrong; add it"),
        (
            '{"task": "sudoku", "method": {"name": 3, "options": {}}}',
            "method.name of a task's spec must be a",
        ),
        (
            '{"task": "sudoku", "method": {"name": "grpo", "options": []}}',
            "method.options of a task's spec must be",
        ),
        ('{"task": "sudoku", "sampling": {"max_new_tokens": 1000000000000}}', "from 1 to 16777216, got 10000"),
        ("{", "must be JSON"),
    ],
)
def test_a_file_that_is_no_spec_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / TASK_FILE).write_text(text)
    with pytest.raises(ValueError, match=complaint):
        TaskSpec.load(tmp_path)


# What an Interaction says of itself


def shouted(task: Any, text: str) -> float:
    return float(text.isupper())


def loud(text: str) -> bool:
    return text.isupper()


def quiet(text: str) -> str:
    return text.lower()


def by_hand(scorer: Any = shouted, **changed: Any) -> Collaboration:
    events = [Event("plan", role="a"), Event("answer", role="b", after="plan", sees=["plan"])]
    loops = [Loop("answer", target="plan", times=2, until=loud)]
    return Collaboration(
        **{"roles": {"a": "A", "b": "B"}, "events": events, "final": "answer", "scorer": scorer}
        | {"loops": loops, "sanitise": quiet, **changed}
    )


def shown(name: str) -> str:
    """The shorter of the histories that suit an environment."""
    return "current" if make(name).self_contained else "append"


INTERACTIONS: dict[str, Any] = {
    **{name: lambda name=name: EnvironmentInteraction(make(name), shown(name), False, 3) for name in ENVIRONMENTS},
    "relay": lambda: relay(4),
    "made": lambda: make_together("reasoner_actor", domain="math", scorer="operator:eq"),
    "by hand": by_hand,
    "from a recipe": lambda: make_together("graph", **by_hand().spec()["task_options"]),
}


@pytest.mark.parametrize("name", INTERACTIONS)
def test_an_interaction_is_built_again_from_what_it_says_of_itself(name: str) -> None:
    first: Any = INTERACTIONS[name]()
    spec = TaskSpec.from_dict(json.loads(json.dumps(TaskSpec.of(first).to_dict())))
    again: Any = spec.build()
    assert again.spec() == first.spec() == fingerprint(first)
    assert type(again) is type(first)
    assert (again.max_replies, list(again.roles)) == (first.max_replies, list(first.roles))
    assert spec.complete() == spec


def test_every_option_is_said_those_too_that_follow_from_others() -> None:
    said = EnvironmentInteraction(make("sudoku", size=4)).spec()
    assert said == {
        "task": "sudoku",
        "task_options": {"size": 4, "blanks": 8, "notation": "grid"},
        "history": "append",
        "instructions": True,
        "max_turns": None,
    }


def test_two_that_differ_say_so() -> None:
    games = [EnvironmentInteraction(make("sudoku", size=4, blanks=blanks)).fingerprint() for blanks in (4, 5)]
    teams = [
        by_hand().fingerprint(),
        by_hand(final="answer", loops=()).fingerprint(),
        by_hand(scorer=max).fingerprint(),
    ]
    unnamed = [
        by_hand(scorer=lambda task, text: 1.0, scored_event=event).fingerprint() for event in ("plan", "answer")
    ]
    told = [json.dumps(facts) for facts in (*games, *teams, *unnamed)]
    assert len(set(told)) == len(told)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"scorer": lambda task, text: 1.0}, "'<lambda>'"),
        ({"sanitise": lambda text: text}, "'<lambda>'"),
        ({"loops": [Loop("answer", "plan", 1, until=lambda text: True)]}, "'<lambda>'"),
    ],
)
def test_what_nobody_can_import_is_not_described(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(
        ValueError, match=f"must be importable by name, got .*{named}.*define it at the top of a module"
    ):
        TaskSpec.of(by_hand(**changed))


class Walk(Interaction[int]):
    """An Interaction of somebody's own."""

    def start(self, task: Any, seed: int) -> int:
        return 0

    def pending(self, state: int) -> tuple[Request, ...]:
        return ()

    def advance(self, state: int, replies: Any) -> int:
        return state

    def outcome(self, state: int) -> float:
        return 0.0


class SaysItself(Walk):
    def spec(self) -> dict[str, Any]:
        return {"task": "relay", "task_options": {"size": 4}}


def test_an_interaction_of_ones_own_is_known_by_its_factory_or_says_itself() -> None:
    with pytest.raises(ValueError, match="made by a factory to be described, got a Walk made by hand; make it with"):
        Walk().spec()
    assert list(fingerprint(Walk())) == ["interaction"]
    made = remembers_its_call("somewhere:walk")(lambda steps=3: Walk())(steps=2)
    assert made.spec() == {"task": "somewhere:walk", "task_options": {"steps": 2}}
    assert TaskSpec.of(SaysItself()).build().max_replies == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max_new_tokens": "x"}, "max_new_tokens must be a whole number from 1 to 16777216, got 'x'; correct it"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number from 1 to 16777216, got 0; correct it"),
        ({"temperature": float("nan")}, "temperature must be a finite number, got nan; correct it"),
        ({"temperature": -1}, "temperature must be at least 0, got -1; raise it"),
        ({"temperature": "hot"}, "temperature must be a finite number, got 'hot'; correct it"),
        ({"top_p": 5}, "top_p must be at most 1, got 5; lower it"),
        ({"top_p": 0}, "top_p must be above 0, got 0; raise it"),
        ({"top_k": -3}, "top_k must be at least 0, got -3; raise it"),
        ({"min_p": 1.5}, r"min_p must be in \[0, 1\], got 1.5; correct it"),
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0, got 0; raise it"),
    ],
)
def test_replies_cannot_be_drawn_in_ways_that_do_not_exist(changed: dict[str, Any], message: str) -> None:
    (option,) = changed
    rule = message.replace(option, f"sampling.{option} of a task's spec", 1)
    with pytest.raises(ValueError, match=f"^{rule}"):
        TaskSpec.from_dict({"task": "sudoku", "sampling": changed})


def test_a_file_means_what_it_meant_when_it_was_written() -> None:
    of_a_thinking_model = Sampling(max_new_tokens=4096, temperature=0.6, top_p=0.95, top_k=20)
    assert TaskSpec.from_dict({"task": "sudoku"}).sampling == of_a_thinking_model
    partly = TaskSpec.from_dict({"task": "sudoku", "sampling": {"temperature": 1.0, "top_k": 0}})
    assert partly.sampling == Sampling(max_new_tokens=4096, top_p=0.95)
    assert (
        TaskSpec.of_name("sudoku").sampling
        == Sampling()
        == TaskSpec.from_dict(TaskSpec.of_name("sudoku").to_dict()).sampling
    )


# Trust


def test_what_lies_beside_a_policy_cannot_choose_what_is_imported(tmp_path: Path) -> None:
    spec = TaskSpec.of_name("reasoner_actor", {"domain": "math", "scorer": "operator:eq"})
    spec.build()
    spec.save(tmp_path)
    found = TaskSpec.load(tmp_path)
    assert found == spec
    for untrusted in (found, found.with_options({"domain": "code"})):
        with pytest.raises(ValueError, match="cannot choose it, got 'operator:eq' from"):
            untrusted.build()
    found.with_options({"scorer": "operator:ne"}).build()
    dataclasses.replace(found, trusted=True).build()


def test_it_may_name_the_scorers_of_this_library(tmp_path: Path) -> None:
    for scorer in ("hf_credit.verifiers.math:score_task", "hf_credit.verifiers.code:score"):
        assert scorer in OWN_CODE
        TaskSpec.of_name("reasoner_actor", {"domain": "math", "scorer": scorer}).save(tmp_path)
        found = TaskSpec.load(tmp_path)
        assert found is not None
        found.build()


def test_no_file_says_of_itself_that_it_is_trusted(tmp_path: Path) -> None:
    values = TaskSpec(task="sudoku").to_dict()
    (tmp_path / TASK_FILE).write_text(json.dumps({**values, "trusted": True}))
    with pytest.raises(ValueError, match="got 'trusted'; remove it"):
        TaskSpec.load(tmp_path)


def test_code_anywhere_in_a_file_needs_consent_and_a_typed_name_is_consent_for_itself_alone(tmp_path: Path) -> None:
    options = {"roles": {"a": ""}, "events": [{"name": "e", "role": "a"}], "final": "e"}
    together = {**options, "scorer": OWN_CODE[0], "sanitise": "builtins:str"}
    loop = [{"source": "e", "target": "e", "times": 1, "until": "builtins:bool"}]
    looped = {**together, "loops": loop}
    for values, named in (
        ({"task": "os:system"}, "'os:system'"),
        ({"collaboration": "os:system"}, "'os:system'"),
        ({"task": "graph", "task_options": together}, "'builtins:str'"),
        (
            {"task": "graph", "task_options": looped},
            "'builtins:bool', 'builtins:str'",
        ),
    ):
        (tmp_path / TASK_FILE).write_text(json.dumps(values))
        found = TaskSpec.load(tmp_path)
        assert found is not None
        for one in (found, found.with_options({"scorer": OWN_CODE[0]}) if found.task == "graph" else found):
            with pytest.raises(ValueError, match=f"cannot choose it, got {named}"):
                one.build()
    typed = found.with_options({"sanitise": "builtins:str", "loops": loop})
    assert typed.build().max_replies == 2


@pytest.mark.parametrize(
    ("task", "options", "option"),
    [
        ("gymnasium", {"id": "evil_world:Anything-v0"}, "id"),
        ("gymnasium", {"id": "FrozenLake-v1", "options": "desc"}, "options"),
        ("openenv", {"url": "https://example.org"}, "url"),
        ("textworld", {"games": "."}, "games"),
        ("situation_puzzles", {"path": "puzzles.json"}, "path"),
        ("judged_puzzles", {"path": "puzzles.json"}, "path"),
    ],
)
def test_what_lies_beside_a_policy_chooses_no_server_no_path_and_no_import_of_gymnasium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, options: dict[str, str], option: str
) -> None:
    (tmp_path / "evil_world.py").write_text("open('ran', 'w').close()\n")
    (tmp_path / "puzzles.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    spec = TaskSpec.of_name(task, options)
    spec.save(tmp_path)
    found = TaskSpec.load(tmp_path)
    assert found is not None
    of_the_name = dataclasses.replace(found, consent=NO_CONSENT.to_code([task, option]))
    for one in (found, of_the_name, of_the_name.with_options({"turns": 3})):
        with pytest.raises(
            ValueError, match=f"cannot choose a server, a path .* got the {option} '{options[option]}'"
        ):
            one.build()
    assert not (tmp_path / "ran").exists()


def test_a_world_that_gymnasium_has_is_made_without_asking() -> None:
    pytest.importorskip("gymnasium")
    lake = {"id": "FrozenLake-v1", "actions": ["left", "down", "right", "up"]}
    beside = dataclasses.replace(TaskSpec.of_name("gymnasium", lake), trusted=False)
    assert beside.build().spec()["task_options"]["id"] == "FrozenLake-v1"


def test_a_path_that_the_user_typed_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "puzzles.json"
    path.write_text(json.dumps([{"surface": f"{place}?", "bottom": "It was."} for place in range(5)]))
    beside = dataclasses.replace(TaskSpec.of_name("situation_puzzles", {"path": "elsewhere"}), trusted=False)
    assert beside.with_options({"path": str(path)}).build().spec()["task_options"]["path"] == str(path)
    beside.on("judged_puzzles", {"path": str(path)}).build()
    dataclasses.replace(TaskSpec.of_name("situation_puzzles"), trusted=False).build()


@pytest.mark.parametrize(
    "name", ["my-scorer:score", "my scorer:score", "1scorer:score", "ſcorer:score", "scorer:score\n"]
)
def test_what_does_not_look_like_code_is_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Consent is asked for what reads as the name of code, so nothing else may be run."""
    (tmp_path / f"{name.partition(':')[0]}.py").write_text(
        "open('ran', 'w').close()\ndef score(task, text):\n    return 1.0\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    TaskSpec.of_name("reasoner_actor", {"domain": "math", "scorer": name}).save(tmp_path)
    found = TaskSpec.load(tmp_path)
    assert found is not None
    for one in (found, dataclasses.replace(found, trusted=True)):
        with pytest.raises(ValueError, match=r"a scorer must be importable as|cannot choose it"):
            one.build()
    assert not (tmp_path / "ran").exists()


def test_a_method_that_a_file_names_needs_consent(tmp_path: Path) -> None:
    spec = TaskSpec(task="sudoku", method={"name": "os:system", "options": {"command": "true"}})
    spec.save(tmp_path)
    found = TaskSpec.load(tmp_path)
    assert found is not None
    for one in (found, found.on("tic_tac_toe", {})):
        with pytest.raises(ValueError, match="cannot choose it, got 'os:system'"):
            one.build_method()
    own = TaskSpec(task="sudoku", method={"name": "magrpo", "options": {"group_size": 3}})
    method = dataclasses.replace(own, trusted=False).build_method()
    assert method is not None
    assert method.spec() == own.method


# The folder that the program was started in
