"""Costs are counted once."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hf_credit.rollouts import Decision, Ending, Episode, Ledger, RolloutRequest

COUNTS = st.integers(0, 10**12)
LEDGERS = st.builds(
    Ledger,
    scoring_events=COUNTS,
    prompt_tokens=COUNTS,
    completion_tokens=COUNTS,
    decisions=st.dictionaries(st.sampled_from(["reasoner", "actor"]), st.integers(1, 10**12)),
    role_tokens=st.dictionaries(st.sampled_from(["reasoner", "actor"]), st.integers(1, 10**12)),
)


def decision(role: str, context: int, action: int) -> Decision:
    return Decision(
        role=role, state=None, context_ids=(1,) * context, action_ids=(2,) * action, logprobs=None, action_text=""
    )


def test_a_shared_message_counts_once_and_every_score_counts() -> None:
    plan = decision("reasoner", 10, 3)
    tree = [
        Episode(decisions=(plan, decision("actor", 20, 4)), outcome=1.0, ending=Ending.FINISHED),
        Episode(decisions=(plan, decision("actor", 20, 5)), outcome=0.0, ending=Ending.FINISHED, prefix_length=1),
    ]
    ledger = Ledger.of(tree)
    assert (ledger.scoring_events, ledger.prompt_tokens, ledger.completion_tokens) == (2, 50, 12)
    assert ledger.tokens == 62
    assert ledger.decisions == {"reasoner": 1, "actor": 2}
    aside = Ledger.of([tree[0], replace(tree[1], start=1)], [RolloutRequest(), RolloutRequest(comparison=True)])
    assert aside == replace(ledger, counterfactual_tokens=25)
    assert ledger.metrics() == {
        "budget/scoring_events": 2,
        "budget/tokens": 62,
        "budget/completion_tokens": 12,
        "budget/decisions/actor": 2,
        "budget/decisions/reasoner": 1,
        "budget/tokens/actor": 49,
        "budget/tokens/reasoner": 13,
    }


def test_an_unscored_episode_costs_only_tokens() -> None:
    reference = Episode(decisions=(decision("actor", 1, 1),), outcome=0.0, ending=Ending.FINISHED, scored=False)
    assert Ledger.of([reference]) == Ledger(
        prompt_tokens=1, completion_tokens=1, decisions={"actor": 1}, role_tokens={"actor": 2}
    )


@given(LEDGERS, LEDGERS, LEDGERS)
def test_ledgers_can_be_added_in_any_order(first: Ledger, second: Ledger, third: Ledger) -> None:
    assert first + second == second + first
    assert (first + second) + third == first + (second + third)
    assert first + Ledger() == first


@given(LEDGERS)
def test_a_ledger_round_trips_through_plain_values(ledger: Ledger) -> None:
    assert Ledger(**ledger.to_dict()) == ledger
