"""Thinkers send notes to a solver, and each of them can be removed."""

from __future__ import annotations

import pytest

from hf_credit.collaborations import Event, make
from hf_credit.collaborations.base import Collaboration
from hf_credit.collaborations.hinted_relay import hinted_relay
from hf_credit.collaborations.text import without_final_box
from hf_credit.collaborations.think_solve import think_solve
from hf_credit.registry import name_of
from hf_credit.tasks import TaskSpec

ROW = {"problem": "What is 1 + 1?", "answer": "2"}


def exact(task, text):
    return float(text == task["answer"])


def asked(team, state):
    """Who is asked, and the user message."""
    return [(request.role, request.messages[1]["content"]) for request in team.pending(state)]


def test_a_solver_sees_the_notes_and_alone_the_bare_problem():
    team = think_solve(exact)
    start = team.start(ROW, 0)
    assert asked(team, start) == [("thinker", "What is 1 + 1?")]
    state = team.advance(start, ["add them"])
    assert asked(team, state) == [("solver", "What is 1 + 1?\n\nNotes of the thinker:\nadd them")]
    alone = team.without(start, "thinker")
    assert asked(team, alone) == [("solver", "What is 1 + 1?")]
    with_notes, bare = (team.pending(one)[0].messages[0] for one in (state, alone))
    assert with_notes == bare  # the same system prompt


def test_leaving_the_thinker_out_of_the_whole_walk_leaves_nothing_of_it():
    team = think_solve(exact)
    start = team.start(ROW, 0)
    done = team.advance(team.advance(start, ["add them"]), ["2"])
    assert team.outcome(done) == 1.0
    assert team.without(done, "thinker") == team.without(start, "thinker")
    assert team.outcome(team.advance(team.without(done, "thinker"), ["3"])) == 0.0


def test_without_a_thinker_earlier_outputs_stay_and_later_roles_reply_again():
    team = think_solve(exact, thinkers=("planner", "checker"))
    start = team.start(ROW, 0)
    state = start
    for reply in ("plan", "check", "2"):
        state = team.advance(state, [reply])
    notes = "\n\nNotes of the planner:\nplan"
    assert asked(team, team.without(state, "checker")) == [("solver", "What is 1 + 1?" + notes)]
    assert asked(team, team.without(state, "planner")) == [("checker", "What is 1 + 1?")]
    alone = [("solver", "What is 1 + 1?")]
    assert asked(team, team.without(team.without(state, "planner"), "checker")) == alone
    assert asked(team, team.without(team.without(state, "checker"), "planner")) == alone


def test_a_role_that_cannot_be_removed_is_refused_in_one_sentence():
    team = think_solve(exact)
    with pytest.raises(ValueError, match=r"a removed role must be among .* \(thinker\), got 'solver'"):
        team.without(team.start(ROW, 0), "solver")
    assert team.removable == ("thinker",)


def test_a_collaboration_with_loops_has_no_removable_role():
    from hf_credit.collaborations import Loop

    events = [Event("plan", role="planner"), Event("check", role="checker", after="plan")]
    roles = {"planner": "", "checker": ""}
    looped = Collaboration(roles, events, "check", exact, loops=[Loop("check", target="plan", times=1)])
    assert looped.removable == ()
    assert Collaboration(roles, events, "check", exact).removable == ("planner",)


def test_roles_that_did_not_see_a_removed_output_do_not_reply_again():
    events = [
        Event("plan", role="planner"),
        Event("aside", role="other", after="plan", sees=()),
        Event("answer", role="actor", after="aside", sees=("plan", "aside")),
    ]
    team = Collaboration({"planner": "", "other": "", "actor": ""}, events, "answer", exact)
    state = team.start(ROW, 0)
    for reply in ("plan", "aside", "2"):
        state = team.advance(state, [reply])
    assert team.without(state, "planner").transcript == (("aside", "aside"),)
    assert [role for role, _ in asked(team, team.without(state, "planner"))] == ["actor"]


def test_a_final_box_of_a_thought_can_be_taken_out():
    team = think_solve(exact, strip_box=True)
    state = team.advance(team.start(ROW, 0), ["so it is $\\boxed{\\frac{1}{2}}$."])
    assert state.transcript == (("thinker", "so it is"),)
    assert team.advance(state, ["\\boxed{2}"]).transcript[1] == ("solver", "\\boxed{2}")
    for kept in ("\\boxed{2} is it", "no box", "\\boxed{2", "", "}"):
        assert without_final_box(kept) == kept


def test_its_spec_rebuilds_it():
    team = make("think_solve", scorer="hf_credit.collaborations.hinted_relay:hinted_relay_score", thinkers=["a", "b"])
    spec = TaskSpec.of(team)
    assert spec.build().roles == team.roles
    assert name_of(spec.build()) == "think_solve"
    state = team.advance(team.start(ROW, 0), ["note"])
    assert team.state_from_json(team.state_to_json(state)) == state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thinkers": ()}, "a thinker must speak before the solver, got "),
        ({"thinkers": ("a", "a")}, "roles must have different names, got a, a, solver; "),
        ({"thinkers": ("solver",)}, "roles must have different names, got solver, solver; "),
        ({"prompts": {"judge": "?"}}, "the role of a prompt must be one of thinker, solver, got 'judge'; "),
    ],
)
def test_impossible_teams_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        think_solve(exact, **options)


def test_alone_the_solver_of_the_hinted_relay_is_right_half_of_the_time():
    team = hinted_relay(8)
    row = team.row((5, 2))
    start = team.start(row, 0)
    assert asked(team, start) == [("thinker", "secret 5")]
    assert asked(team, team.without(start, "thinker")) == [("solver", "2 or 5")]
    assert team.outcome(team.advance(team.advance(start, ["5"]), ["5"])) == 1.0
    assert {*team.numbers("train")} & {*team.numbers("held_out")} == set()
    assert len(team.numbers("train")) + len(team.numbers("held_out")) == 8 * 7


def test_the_diligent_player_is_always_right_and_the_lazy_one_sends_a_stock_number():
    import random

    team, draws = hinted_relay(8), random.Random(0)
    for quality, best in ((1.0, True), (0.0, False)):
        said = []
        for pair in team.numbers("train")[:20]:
            state = team.start(team.row(pair), 0)
            while requests := team.pending(state):
                state = team.advance(state, [team.scripted_player(quality)(state, requests[0], draws)])
            said.append(state.transcript[0][1])
            assert not best or team.outcome(state) == 1.0
        assert best or {*said} == {"0", ""}
    with pytest.raises(ValueError, match=r"quality must be in \[0, 1\], got 2"):
        team.scripted_player(2)
    with pytest.raises(ValueError, match="size must be a whole number from 3 to 10, got 11"):
        hinted_relay(11)
