"""Protocols of three roles, of parallel roles and of loops, played through the Engine."""

from __future__ import annotations

from hf_credit.collaborations import Collaboration, Event, Loop
from hf_credit.rollouts import Ending, decision_rows

# A planner, two solvers at the same time, a judge


def council():
    return Collaboration(
        roles={"planner": "Plan.", "solver": "Solve.", "judge": "Judge."},
        events=[
            Event("plan", "planner"),
            Event("solve first", "solver", after="plan"),
            Event("solve second", "solver", after="plan", sees=()),
            Event("judge", "judge", after=("solve first", "solve second"), sees=("solve first", "solve second")),
        ],
        final="judge",
        scorer=lambda task, text: text == task["answer"],
    )


def council_member(system, user):
    problem, _, context = user.partition("\n\nContext:")
    match system:
        case "Plan.":
            return f"do {problem.removeprefix('Problem: ')}"
        case "Solve.":
            return f"by plan:{context}" if context else "without plan"
        case _:
            return "/".join(context.strip().split("\n\n"))


def test_parallel_solvers_are_judged_in_their_declared_order(play):
    tasks = [{"problem": name, "answer": f"by plan: do {name}/without plan"} for name in ("x", "y", "z")]
    for task, episode in zip(tasks, play(council(), council_member, tasks), strict=True):
        assert episode.ending == Ending.FINISHED
        assert episode.outcome == 1
        assert [(d.event, d.role, d.action_text) for d in episode.decisions] == [
            ("plan", "planner", f"do {task['problem']}"),
            ("solve first", "solver", f"by plan: do {task['problem']}"),
            ("solve second", "solver", "without plan"),
            ("judge", "judge", task["answer"]),
        ]
        first, second = episode.decisions[1:3]
        assert first.state == second.state  # neither had heard the other


def test_each_decision_is_a_row_of_its_own(play):
    (episode,) = play(council(), council_member, [{"problem": "x", "answer": ""}])
    rows = decision_rows(episode.decisions, [1.0, 2.0, 3.0, 4.0])
    assert [row.prompt_ids for row in rows] == [decision.context_ids for decision in episode.decisions]
    assert [row.advantages[0] for row in rows] == [1.0, 2.0, 3.0, 4.0]


# A writer and a reviewer


def studio():
    return Collaboration(
        roles={"writer": "Write.", "reviewer": "Review."},
        events=[Event("write", "writer", sees=("write", "review")), Event("review", "reviewer", after="write")],
        final="review",
        scored_event="write",
        loops=[Loop("review", "write", times=3, until=lambda text: text == "good")],
        scorer=lambda task, text: len(text) / 10,
    )


def colleague(system, user):
    problem, _, context = user.partition("\n\nContext:")
    drafts = [text for text in context.strip().split("\n\n") if text.startswith("#")]
    if system == "Write.":
        return f"{drafts[-1]}#" if drafts else "#"
    return "good" if len(drafts[-1]) == int(problem.removeprefix("Problem: ")) else "longer"


def test_a_writer_revises_until_the_reviewer_is_content_or_the_loop_ends(play):
    episodes = play(studio(), colleague, [{"problem": str(length)} for length in (1, 3, 9)])
    said = [[decision.action_text for decision in episode.decisions] for episode in episodes]
    assert said == [
        ["#", "good"],
        ["#", "longer", "##", "longer", "###", "good"],
        ["#", "longer", "##", "longer", "###", "longer", "####", "longer"],
    ]
    assert [episode.outcome for episode in episodes] == [0.1, 0.3, 0.4]
    assert {episode.ending for episode in episodes} == {Ending.FINISHED}


def test_revisions_of_one_event_do_not_continue_each_other_s_rows(play):
    (episode,) = play(studio(), colleague, [{"problem": "3"}])
    assert len(decision_rows(episode.decisions, [1.0] * 6)) == 6


# Two who debate, and a chair who may ask them again


def test_a_loop_can_begin_at_several_events_at_once(play):
    debate = Collaboration(
        roles={"speaker": "Speak.", "chair": "Chair."},
        events=[
            Event("pro", "speaker", sees=("pro", "con"), history=True, column="pro"),
            Event("con", "speaker", sees=("pro", "con"), history=True, column="con"),
            Event("chair", "chair", after=("pro", "con")),
        ],
        final="chair",
        loops=[Loop("chair", ("pro", "con"), times=2)],
        scorer=lambda task, text: text == "y4 n4",
    )

    def speak(system, user):
        problem, _, context = user.removeprefix("Problem: ").partition("\n\nContext:")
        heard = context.split()
        return " ".join(heard) if system == "Chair." else f"{problem}{len(heard)}"

    (episode,) = play(debate, speak, [{"pro": "y", "con": "n", "problem": "?"}])
    assert [decision.action_text for decision in episode.decisions] == [
        *("y0", "n0", "y0 n0"),
        *("y2", "n2", "y2 n2"),
        *("y4", "n4", "y4 n4"),
    ]
    assert episode.outcome == 1
