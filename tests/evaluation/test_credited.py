"""Decisions with their credit, as they are recorded and read again."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from picture_strip import red_cell, strip

from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.environments.actions import marked, tag, write_call
from hf_credit.evaluation.credited import (
    EPISODES_FILE,
    CreditedDecision,
    CreditedEpisode,
    CreditedReply,
    credited_episode,
    credited_episodes,
    new_context,
    read_episodes,
    token_credit,
)
from hf_credit.evaluation.episode_page import episode_page
from hf_credit.evaluation.report import choose_episode
from hf_credit.rollouts import Decision, Ending, EnvironmentInteraction, Episode, Interaction, Request
from hf_credit.rollouts.episode import Verdict


@pytest.mark.parametrize(
    ("context", "new"),
    [((1, 2, 3, 4), (4,)), ((1, 2, 9, 4), (9, 4)), ((1, 5, 6), (1, 5, 6)), ((1, 2), (1, 2))],
    ids=["appended", "rendered anew", "another", "the same"],
)
def test_a_context_is_written_from_what_is_new(context: tuple[int, ...], new: tuple[int, ...]) -> None:
    def one(context: tuple[int, ...]) -> Decision:
        return Decision(role="r", state=None, context_ids=context, action_ids=(3,), logprobs=None, action_text="")

    assert new_context([one((1, 2))], one(context)) == new


def decision(tokenizer: Any, context: str, reply: str, name: str = "", **other: Any) -> Decision:
    return Decision(
        role="poet",
        state=None,
        context_ids=tuple(tokenizer.encode(context)),
        action_ids=tuple(tokenizer.encode(reply)),
        logprobs=None,
        action_text=reply,
        id=name or f"{context} {reply}",
        **other,
    )


def episode(*decisions: Decision, outcome: float = 1.0, **other: Any) -> Episode:
    return Episode(decisions=decisions, outcome=outcome, ending=Ending.FINISHED, **other)


def test_only_the_new_part_of_a_context_is_shown(tokenizer: Any) -> None:
    first = decision(tokenizer, "<|user|>one<|assistant|>", "two<|end|>")
    grown = "<|user|>one<|assistant|>two<|end|><|user|>three<|assistant|>"
    second, other = decision(tokenizer, grown, "four"), decision(tokenizer, "<|user|>five", "six")
    view = credited_episode(episode(first, second, other), [1.0, None, 0.0], tokenizer)
    assert [one.context for one in view.decisions] == [
        "<|user|>one<|assistant|>",
        "<|user|>three<|assistant|>",
        "<|user|>five",
    ]
    assert [one.credit for one in view.decisions] == [1.0, None, 0.0]


def test_tokens_have_text_and_credit_and_the_decision_their_mean(tokenizer: Any) -> None:
    one = decision(tokenizer, "x", "abc on")
    ids = one.action_ids
    (view,) = credited_episode(episode(one), [[1.0, -1.0, 0.0, 4.0][: len(ids)]], tokenizer).decisions
    assert "".join(text for text, _ in view.token_credit) == "abc on"
    assert len(view.token_credit) == len(ids) == 3
    assert view.credit == 0.0


def test_tokens_that_spell_one_character_together_share_their_mean() -> None:
    class Bytes:
        def decode(self, ids: list[int]) -> str:
            return bytes(ids).decode(errors="replace")

    ids = [*"aé".encode(), ord("b")]
    view = token_credit(ids, [1.0, 2.0, 4.0, -1.0], Bytes())  # type: ignore[arg-type]
    assert view == (("a", 1.0), ("é", 3.0), ("b", -1.0))


def test_alternatives_are_decisions_of_the_instance_at_the_same_context(tokenizer: Any) -> None:
    root = decision(tokenizer, "x", "plan", "root", verdict=Verdict(score=1.0))
    good, bad = decision(tokenizer, "x plan", "good", "good"), decision(tokenizer, "x plan", "bad", "bad")
    elsewhere = decision(tokenizer, "x plan", "far", "far")
    unscored = episode(decision(tokenizer, "x plan", "seen", "seen"), outcome=math.nan, scored=False)
    samples = (
        Rollout(episode=episode(root, good, outcome=1.0, branch=(0,)), instance=0),
        Rollout(episode=episode(root, bad, outcome=0.0, branch=(1,), prefix_length=1), instance=0),
        Rollout(episode=episode(elsewhere), instance=1),
        Rollout(episode=unscored, instance=0, trained=False, kind="reference"),
        Rollout(
            episode=episode(decision(tokenizer, "x plan", "more", "more"), outcome=0.5), instance=0, trained=False
        ),
    )
    credit = [[0.25, 0.5], [None, -0.5], [None]]
    first, second, far = credited_episodes(RolloutBatch(rollouts=samples, rows=2), credit, tokenizer, update=3)
    plan, reply = first.decisions
    assert (plan.outcomes, plan.credit, plan.verdict, plan.alternatives) == ((1.0, 0.0), 0.25, 1.0, ())
    assert reply.outcomes == (1.0,)
    assert reply.alternatives == (
        CreditedReply(reply="bad", outcomes=(0.0,), credit=-0.5),
        CreditedReply(reply="more", outcomes=(0.5,), credit=None),  # not trained on, but compared with
    )
    assert [one.inherited for one in second.decisions] == [True, False]
    assert second.decisions[0].credit == 0.25  # shown although an earlier episode contains it
    assert far.decisions[0].alternatives == ()
    assert (far.update, far.instance) == (3, 1)


@pytest.mark.parametrize(
    ("credit", "kept"),
    [
        ([[0.0], [0.0], [0.0], [0.0]], ["0", "2"]),
        ([[0.0], [-0.5], [None], [0.1]], ["1", "3"]),
        ([[0.2], [0.1], [[0.5, -0.5]], [-0.3]], ["2", "3"]),
    ],
)
def test_the_tasks_with_the_largest_credit_are_kept_each_with_its_episode_of_it_which_says_so(
    tokenizer: Any, credit: Any, kept: list[str]
) -> None:
    samples = tuple(
        Rollout(episode=episode(decision(tokenizer, "x", str(place))), instance=instance)
        for place, instance in enumerate((0, 0, 1, 2))
    )
    batch = RolloutBatch(rollouts=samples, rows=3)
    found = credited_episodes(batch, credit, tokenizer, instances=2)
    assert [one.decisions[0].reply for one in found] == kept
    told = "the largest credit of its task, which is one of the 2 tasks of 3 with the largest"
    assert {CreditedEpisode.from_json(one.to_json()).chosen for one in found} == {told}
    assert f"<dd>{told}</dd>" in episode_page(found[0])
    assert {one.chosen for one in credited_episodes(batch, credit, tokenizer)} == {""}


def test_an_episode_is_shown_by_default_of_the_last_update_with_credit() -> None:
    def one(update: int, credit: float | None) -> CreditedEpisode:
        made = CreditedDecision(reply="", role="a", event="a", context="", credit=credit)
        return CreditedEpisode(decisions=(made,), outcome=0.0, ending="finished", update=update)

    recorded = [one(1, 0.0), one(2, -0.5), one(3, 0.0), one(3, None)]
    assert choose_episode(recorded).update == 2
    assert choose_episode(recorded[2:]).update == 3
    assert choose_episode(recorded, update=3) is recorded[2]


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


class Looks(Interaction[tuple[dict[str, Any], ...]]):
    """Requests with a tool, as recorded in the states."""

    def start(self, task: Any, seed: int) -> Any:
        return ()

    def pending(self, state: Any) -> tuple[Request, ...]:
        return (Request(role="poet", messages=state, tools=TOOLS),)

    def advance(self, state: Any, replies: Any) -> Any:
        return state

    def outcome(self, state: Any) -> float:
        return 0.0


def test_with_tools_calls_and_new_messages_are_shown_separately() -> None:
    call = marked(write_call("look", {"at": "box", "deep": True}))
    asked = [{"role": "user", "content": "Where?"}]
    earlier = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "run", "arguments": "x"}}]}
    shown = [*asked, {"role": "assistant", "content": call}, {"role": "tool", "content": "tea"}, earlier]
    walk = episode(
        *(
            Decision(role="poet", state=state, context_ids=(n,), action_ids=(0,), logprobs=None, action_text=text)
            for n, (state, text) in enumerate([(asked, call), (shown, "Here: <tool_call>")])
        )
    )
    first, second = credited_episode(walk, [1.0, 0.0], None, interaction=Looks()).decisions
    assert (first.calls, first.messages) == (('look(at="box", deep=true)',), (("user", "Where?"),))
    assert (second.calls, second.messages) == ((), (("tool", "tea"), ("assistant", 'run("x")')))
    assert (first.context, first.tokens) == ("", 0)
    view = credited_episode(walk, [1.0, 0.0], None, interaction=Looks()).shortened()
    assert CreditedEpisode.from_json(view.to_json()) == view


class Asks(Looks):
    """Requests without tools."""

    def pending(self, state: Any) -> tuple[Request, ...]:
        return (Request(role="poet", messages=state),)


def test_without_tools_the_question_and_the_answers_are_shown_as_messages(tokenizer: Any) -> None:
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]
    rewritten = {"role": "assistant", "content": "here"}  # without the thoughts of the reply
    then = [*asked, rewritten, {"role": "user", "content": "Sure?"}]
    walk = episode(
        *(
            Decision(role="poet", state=state, context_ids=(n,), action_ids=(0,), logprobs=None, action_text=text)
            for n, (state, text) in enumerate([(asked, "<think>hm</think>here"), (then, "yes")])
        )
    )
    for known in (None, tokenizer):
        view = credited_episode(walk, [1.0, 0.0], known, interaction=Asks())
        first, second = view.decisions
        assert first.messages == (("system", "Be brief."), ("user", "Where?"))
        assert second.messages == (("user", "Sure?"),)
        assert all(text in episode_page(view) for text in ("Be brief.", "Where?", "Sure?"))
        assert view.shortened().decisions[0].context == ""


def test_a_tools_result_names_the_call_that_it_answers() -> None:
    def call(name: str, box: str) -> dict[str, Any]:
        return {"id": name, "type": "function", "function": {"name": "open", "arguments": json.dumps({"box": box})}}

    asked = [{"role": "user", "content": "Open both."}]
    both = {"role": "assistant", "content": "", "tool_calls": [call("1", "a"), call("2", "b")]}
    results = [{"role": "tool", "tool_call_id": name, "content": text} for name, text in (("2", "tea"), ("1", "salt"))]
    walk = episode(
        *(
            Decision(role="poet", state=state, context_ids=(n,), action_ids=(0,), logprobs=None, action_text="")
            for n, state in enumerate([asked, [*asked, both, *results, {"role": "tool", "content": "lost"}]])
        )
    )
    found = credited_episode(walk, [1.0, 0.0], None, interaction=Looks()).decisions[1].messages
    assert found == (
        ('tool, result of open(box="b")', "tea"),
        ('tool, result of open(box="a")', "salt"),
        ("tool", "lost"),
    )


def test_another_number_of_credits_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="credit must have one entry per decision, got 0 for 1 decisions"):
        credited_episode(episode(decision(tokenizer, "x", "y")), [], tokenizer)


TOLD = CreditedEpisode(
    decisions=(
        CreditedDecision(
            role="poet",
            event="verse",
            context="broken \ud800 text",
            reply="<b>",
            credit=0.125,
            verdict=1.0,
            valid=False,
            token_credit=(("<b", 0.5), (">", -0.25)),
            outcomes=(1.0,),
            alternatives=(CreditedReply(reply="x", outcomes=(0.0, 0.5), credit=None),),
        ),
        CreditedDecision(role="poet", event="poet", context="", reply=""),
    ),
    outcome=None,
    ending="error",
    error="it broke",
    metrics={"success": 0.5},
    update=2,
    instance=1,
)


def test_a_recorded_episode_reads_as_it_was_written(tmp_path: Path) -> None:
    assert CreditedEpisode.from_json(TOLD.to_json()) == TOLD
    (tmp_path / EPISODES_FILE).write_text(f"{TOLD.to_json()}\n" * 2)
    with (tmp_path / EPISODES_FILE).open("a") as file:
        file.write('{"decisions": [')  # of a run that goes on
    assert read_episodes(tmp_path) == [TOLD, TOLD]
    assert read_episodes(tmp_path / "elsewhere") == []


def test_images_are_files_by_their_digest_next_to_the_recorded_episodes(tmp_path: Path) -> None:
    interaction = EnvironmentInteraction(strip(options={"render_mode": "rgb_array"}, instructions="Win."))
    states = [interaction.start({}, 0)]
    for _ in range(2):
        states.append(interaction.advance(states[-1], [tag("right")]))
    made = [
        Decision(
            role="agent", state=one, context_ids=(), action_ids=(), logprobs=None, action_text=tag("right"), id=f"{n}"
        )
        for n, one in enumerate(states)
    ]
    view = credited_episode(episode(*made), [None] * 3, None, interaction=interaction).shortened()
    line = view.to_json(tmp_path)
    images = [image for one in view.decisions for _, content in one.messages for image in content[-1:]]
    assert [red_cell(image) for image in images] == [0, 1, 2]
    assert {path.name: path.read_bytes() for path in (tmp_path / "pictures").iterdir()} == {
        f"{image.digest}.png": image.encoded() for image in images
    }
    assert not any(image.png in line for image in images)
    (tmp_path / EPISODES_FILE).write_text(f"{line}\n")
    assert read_episodes(tmp_path) == [view]
    assert view.whole
    assert interaction.state_from_json(view.state) == states[0]
    assert CreditedEpisode.from_json(view.to_json()) == view


def test_an_episode_of_text_is_the_same_line_with_a_folder(tmp_path: Path) -> None:
    view = CreditedEpisode(
        decisions=(CreditedDecision(role="r", event="r", context="c", reply="r"),), outcome=1, ending=""
    )
    assert view.to_json(tmp_path) == view.to_json()
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_are_not_finite_are_null_in_the_file() -> None:
    assert json.loads(replace(TOLD, metrics={"rate": math.nan}).to_json())["metrics"] == {"rate": None}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), []),
        (("decisions",), 1),
        (("decisions",), ["x"]),
        (("decisions", 0, "credit"), "1"),
        (("decisions", 0, "reply"), None),
        (("decisions", 0, "token_credit"), [["a", "b"]]),
        (("decisions", 0, "token_credit"), [[1, 1]]),
        (("decisions", 0, "outcomes"), [None]),
        (("decisions", 0, "alternatives", 0, "reply"), 3),
        (("decisions", 0, "valid"), 1),
        (("metrics",), {"a": "b"}),
        (("update",), -1),
        (("outcome",), True),
        (("unknown",), 1),
    ],
)
def test_an_invalid_record_is_refused_in_one_sentence(path: tuple[Any, ...], value: Any) -> None:
    values: Any = json.loads(TOLD.to_json())
    if path:
        inner = values
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
    else:
        values = value
    with pytest.raises(ValueError, match=r"must be written by CreditedEpisode\.to_json, got .*; record it again"):
        CreditedEpisode.from_json(json.dumps(values))


def test_a_shortened_episode_is_bounded_and_counts_omissions() -> None:
    other = CreditedReply(reply="a" * 9_999, outcomes=(1.0,) * 99)
    long = CreditedDecision(
        role="r", event="r", context="c" * 9_999, reply="d" * 9_999, alternatives=(other,) * 20,
        token_credit=(("x", 1.0),) * 9_999,
    )  # fmt: skip
    short = replace(TOLD, decisions=(long,) * 70).shortened()
    assert (len(short.decisions), short.decisions_left_out) == (64, 6)
    assert (len(short.decisions[0].alternatives), short.decisions[0].alternatives_left_out) == (8, 12)
    assert "(7999 characters left out)" in short.decisions[0].context
    assert len(replace(short, decisions=short.decisions[:1]).to_json()) < 50_000
    assert TOLD.shortened() == TOLD


def test_an_episode_is_chosen_by_update_and_number_or_by_credit_differences() -> None:
    def of(update: int, *credits: float | None) -> CreditedEpisode:
        made = tuple(CreditedDecision(role="r", event="r", context="", reply="", credit=one) for one in credits)
        return CreditedEpisode(decisions=made, outcome=0.0, ending="finished", update=update)

    recorded = [of(1, 9.0, -9.0), of(5, None), of(5, 0.5, -0.5), of(5, 0.75)]
    assert choose_episode(recorded) is recorded[2]
    assert choose_episode(recorded, update=1) is recorded[0]
    assert choose_episode(recorded, episode=1) is recorded[1]
    with pytest.raises(ValueError, match="one of the recorded 1, 5, got 3"):
        choose_episode(recorded, update=3)
    with pytest.raises(ValueError, match="an episode of update 5 must be from 1 to 3, got 4"):
        choose_episode(recorded, episode=4)
