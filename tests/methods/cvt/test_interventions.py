"""Interventions as requests for rollouts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hf_credit import make
from hf_credit.environments.actions import tag
from hf_credit.methods.cvt import Branches, Gate, branches
from hf_credit.methods.t3 import Truncated, make_rule
from hf_credit.oracles.auditing import Proposal, default_interventions
from hf_credit.policies.micro import build_tokenizer
from hf_credit.rollouts import Chat, Decision, Ending, Engine, EnvironmentInteraction, Generation
from hf_credit.rollouts.capabilities import Acting

ENVIRONMENT = make("evidence")
INTERVENTIONS = default_interventions(ENVIRONMENT)
CHAT = Chat(build_tokenizer(ENVIRONMENT))
# The first document is genuine and states 2, the second is about another key, the third is forged.
TASK = {"key": "K", "keys": ["K", "Q", "K"], "values": [2, 4, 1], "genuine": 1}


def decision(interaction, *actions):
    """The last of these actions, as an engine records it."""
    state, ids = interaction.start(TASK, 0), None
    for action in actions[:-1]:
        state = interaction.advance(state, [tag(action)])
    (request,) = interaction.pending(state)
    ids = CHAT.context(request.messages)
    reply = tag(actions[-1])
    return Decision(
        role="agent",
        state=state,
        context_ids=ids,
        action_ids=CHAT.reply_ids(reply),
        logprobs=None,
        action_text=reply,
    )


def interaction(history="current"):
    return EnvironmentInteraction(ENVIRONMENT, history=history, instructions=False)


def drawn(family, *actions, count=4, played=None, interventions=INTERVENTIONS, **options):
    played = played or interaction()
    made = decision(played, *actions)
    return branches(played, CHAT, made, interventions, family, count, random.Random(0), **options)


def worlds(made):
    return [branch.start.state.world for branch in made.branches]


def finals(made, played, reply):
    """The episodes from the branches with a constant reply."""
    generation = Generation(ids=CHAT.reply_ids(tag(reply)))
    return Engine(played, CHAT, lambda contexts: [generation] * len(contexts)).run(
        [branch.start for branch in made.branches]
    )


def test_a_deleted_step_is_an_empty_thought_that_spends_the_turn():
    made = drawn("deletion", "read 1", "verify 1")
    assert (len(made.branches), made.proposals, made.invalid) == (4, 4, 0)
    for world in worlds(made):
        assert (world.left, world.checks, world.calls) == (5, ("", "", ""), 1)
    assert made.branches[0].text == tag("think")
    assert CHAT.texts([made.branches[0].action_ids]) == [tag("think")]
    (episode, *_) = finals(made, interaction(), "final 1")
    assert (episode.outcome, episode.metrics["success"]) == (1, 0)


def test_a_paraphrase_has_the_next_state_of_the_step():
    played = interaction()
    made = drawn("paraphrase", "read 1", "verify 1")
    after = played.advance(decision(played, "read 1", "verify 1").state, [tag("verify 1")])
    assert worlds(made) == [after.world] * 4
    assert all(tag("verify 1") in branch.text and branch.text != tag("verify 1") for branch in made.branches)


def test_a_substitution_is_another_document_and_invalid_proposals_are_redrawn():
    made = drawn("substitution", "read 1", "read 2", count=20)
    assert {world.reads for world in worlds(made)} == {("on", "", "on")}
    assert made.invalid > 0
    assert made.proposals == made.invalid + len(made.branches)


def test_a_perturbed_tool_result_is_the_opposite_and_starts_after_the_step():
    for history in ("current", "append"):
        played = interaction(history)
        made = drawn("perturbation", "read 1", "verify 1", played=played)
        (branch, *_) = made.branches
        assert branch.text == tag("verify 1")
        assert branch.start.state.world.checks == ("forged", "", "")
        (request,) = played.pending(branch.start.state)
        assert request.messages[-1]["content"] == ENVIRONMENT.observe(branch.start.state.world)
        assert "forged" in request.messages[-1]["content"]
        assert len(request.messages) == (1 if history == "current" else 5)


def test_the_next_context_is_the_recorded_context_and_the_new_reply():
    played = interaction("append")
    at = decision(played, "read 1", "verify 1")
    made = branches(played, CHAT, at, INTERVENTIONS, "deletion", 1, random.Random(0))
    (episode,) = finals(made, played, "final 1")
    assert episode.decisions[0].context_ids[: len(at.context_ids)] == at.context_ids
    after = episode.decisions[0].context_ids[len(at.context_ids) :]
    assert after[: len(made.branches[0].action_ids)] == made.branches[0].action_ids


def test_an_episode_is_over_after_a_replaced_answer():
    made = drawn("substitution", "read 1", "verify 1", "final 1")
    episodes = finals(made, interaction(), "think")
    assert [episode.decisions for episode in episodes] == [()] * 4
    assert {episode.outcome for episode in episodes} == {0.0}
    assert {episode.ending for episode in episodes} == {Ending.FINISHED}


def test_a_family_that_does_not_apply_differs_from_a_missing_one():
    assert drawn("perturbation", "meta") == Branches()
    missing = drawn("paraphrase", "read 1", "verify 1", gate=Gate(entails=lambda history, proposal: 0.5))
    assert missing == Branches(proposals=12, invalid=12)


def test_a_reply_without_a_legal_action_has_no_interventions():
    played = interaction()
    for text in ("What now?", tag("verify 1")):
        at = replace(decision(played, "read 2"), action_text=text)
        for family in INTERVENTIONS.families:
            assert branches(played, CHAT, at, INTERVENTIONS, family, 1, random.Random(0)) == Branches()


def test_a_paraphrase_with_an_unseen_value_is_not_supported():
    # "guess" is in one of four pieces of evidence and "9" in none: ln(10 / 3) of ln(10 / 3) + ln(10), which is .343.
    played = EnvironmentInteraction(make("evidence", values=9), history="current", instructions=False)
    made = drawn("paraphrase", "read 1", "read 2", "guess 9", count=1, played=played)
    assert (made.branches, made.invalid) == ((), 3)
    assert drawn("paraphrase", "read 1", "read 2", "guess 4", count=1, played=played).invalid == 0


class Proposes:
    """Interventions of a user with a given proposal."""

    families = ("own",)

    def __init__(self, make_one):
        self.make_one = make_one

    def applies(self, state, action, family):
        return True

    def propose(self, state, action, family, draws):
        return self.make_one()

    def evidence(self, state):
        return "think read 1 2 3"


def failing():
    raise RuntimeError("nothing to propose")


@pytest.mark.parametrize(
    "proposal",
    [
        lambda: Proposal(action="read 2", text=tag("read 3")),  # syntax
        lambda: Proposal(action="read 2", text="read 2"),
        lambda: Proposal(action="verify 3"),  # schema
        failing,
    ],
)
def test_proposals_that_are_unreadable_rejected_or_fail_are_invalid(proposal, caplog):
    made = drawn("own", "read 1", interventions=Proposes(proposal), count=2)
    assert (made.branches, made.proposals, made.invalid) == ((), 6, 6)
    assert ("an intervention failed" in caplog.text) == (proposal is failing)


def test_each_branch_has_another_seed():
    seeds = [branch.start.seed for branch in drawn("deletion", "read 1").branches]
    assert len(set(seeds)) == 4
    again = [branch.start.seed for branch in drawn("deletion", "read 1").branches]
    assert seeds == again


def test_it_works_in_a_truncated_interaction():
    played = Truncated(interaction(), make_rule("random", probability=0.0))
    made = drawn("perturbation", "read 1", "verify 1", played=played, count=1)
    assert made.branches[0].start.state.inner.world.checks == ("forged", "", "")
    assert len(drawn("deletion", "read 1", played=played).branches) == 4


@pytest.mark.parametrize(
    ("family", "count", "message"),
    [
        ("bribe", 1, "family must be one of deletion, paraphrase, substitution, perturbation, got 'bribe'"),
        ("deletion", 0, "count must be at least 1, got 0"),
    ],
)
def test_invalid_requests_for_branches_are_refused(family, count, message):
    with pytest.raises(ValueError, match=message):
        drawn(family, "read 1", count=count)


def test_a_task_without_an_environment_has_no_state_to_change():
    from hf_credit.collaborations import make as make_collaboration

    relay = make_collaboration("relay")
    with pytest.raises(ValueError, match="a tool's result needs an environment, got 'relay'"):
        Acting(relay).with_world(None, None)
    with pytest.raises(
        ValueError, match="an action needs an environment to be written as a reply, got 'go' for 'relay'"
    ):
        Acting(relay).write_action("go")
