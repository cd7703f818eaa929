"""Interventions on a recorded decision, as requests for rollouts from there (paper CVT-RL, section 3.2)."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from hf_credit.boundary import Range
from hf_credit.options import Options, Share
from hf_credit.oracles.auditing import Interventions, Proposal
from hf_credit.rollouts.capabilities import Acting
from hf_credit.rollouts.chat import Chat
from hf_credit.rollouts.conversations import Conversation
from hf_credit.rollouts.episode import Decision, Ending
from hf_credit.rollouts.failures import FailureLog
from hf_credit.rollouts.interaction import Interaction, Request
from hf_credit.rollouts.running import RolloutRequest
from hf_credit.validators import one_of, whole_number

# Words without content, which any paraphrase may add.
_STOP_WORDS = (
    "a an and as at be by do for from i in is it let me my next now of or please so than that the then this to we "
    "will with you"
)


@dataclass(frozen=True, kw_only=True)
class Gate(Options):
    """The validity gate of proposals: nu = syntax and schema and s_sup >= support and s_ent >= entailment.

    `branches` checks syntax and schema, which depend on the task.

    Args:
        support: the minimum `support_score`, in [0, 1]; 0.35 in the paper.
        entailment: the minimum score of `entails`, in [0, 1]; 0.55 in the paper.
        redraws: maximum number of redraws after an invalid proposal; 2 in the paper.
        entails: returns the score in [0, 1] that a history entails a proposal.
        unscored: families that are checked only for syntax and schema.

    Raises:
        ValueError: a threshold is outside [0, 1], or `redraws` is negative.
    """

    support: Share = 0.35
    entailment: Share = 0.55
    redraws: Annotated[int, Range(0)] = 2
    entails: Callable[[str, str], float] = lambda history, proposal: word_overlap(history, proposal)
    unscored: frozenset[str] = frozenset({"deletion"})

    def admits(self, family: str, text: str, history: str, evidence: str) -> bool:
        """Returns whether a proposal is supported by the evidence and entailed by the history.

        Args:
            history: the observations of the agent.
            evidence: all evidence retrieved so far, one line per piece.
        """
        if family in self.unscored:
            return True
        return support_score(text, evidence) >= self.support and self.entails(history, text) >= self.entailment


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A request for a rollout from a replaced decision."""

    # requests a rollout for comparison, from the state after the replaced step. It samples no reply if the episode is
    # over there.
    start: RolloutRequest[Any]
    action_ids: tuple[int, ...]  # the tokens of the replacement, at the same context
    text: str  # the text of the replacement


@dataclass(frozen=True, kw_only=True)
class Branches:
    """The branches of one decision and family."""

    branches: tuple[Branch, ...] = ()  # as many as requested, or fewer if proposals were invalid
    proposals: int = 0  # number of proposals; 0 if the family does not apply to the decision
    invalid: int = 0  # number of invalid proposals


def branches(
    interaction: Interaction[Any],
    chat: Chat,
    decision: Decision,
    interventions: Interventions[Any],
    family: str,
    count: int,
    draws: random.Random,
    gate: Gate | None = None,
    failures: FailureLog | None = None,
) -> Branches:
    """Returns up to `count` branches of one family at a decision, each from a separate valid proposal.

    A proposal is invalid if its text does not parse to its action, if the task or the gate rejects it, or if the task
    fails on it. It is then redrawn, at most `gate.redraws` times. An intervention on a tool's result keeps the reply
    and changes the state after it.

    Args:
        decision: the decision to intervene on; it must be the only one of its step.
        family: one of `interventions.families`.
        count: number of branches, K in the paper, at least 1.
        draws: random numbers for proposals and for the seeds of the continuations.
        gate: the gate; the paper's if `None`.
        failures: logs the first failure of each kind; a new log if `None`.

    Raises:
        ValueError: the family is unknown, `count` is below 1, or several roles decided in the step.
    """
    one_of("family", family, interventions.families)
    whole_number("count", count, 1)
    gate, failures = gate or Gate(), failures or FailureLog()
    world, action = Acting(interaction).action_of(decision.state, decision.action_text)
    if not action or not interventions.applies(world, action, family):
        return Branches()
    request = _only_request(interaction, decision)
    evidence = interventions.evidence(world)
    history = "\n".join([*(message["content"] for message in request.messages), evidence])
    found: list[Branch] = []
    proposals = invalid = 0
    for _ in range(count):
        for _ in range(1 + gate.redraws):
            proposals += 1
            try:
                proposal = interventions.propose(world, action, family, draws)
                branch = _branch(interaction, chat, decision, request, proposal, draws)
                valid = branch is not None and gate.admits(family, branch.text, history, evidence)
            except Exception as error:
                failures.add(error, "an intervention")
                branch, valid = None, False
            if branch is not None and valid:
                found.append(branch)
                break
            invalid += 1
    return Branches(branches=tuple(found), proposals=proposals, invalid=invalid)


def _only_request(interaction: Interaction[Any], decision: Decision) -> Request:
    requests = interaction.pending(decision.state)
    if len(requests) != 1 or requests[0].event != decision.event:
        raise ValueError(
            "an intervention needs a step in which only one role decides, got the events "
            f"{', '.join(request.event for request in requests) or 'none'} for a decision of {decision.event!r}; "
            "select other steps."
        )
    return requests[0]


def _branch(
    interaction: Interaction[Any],
    chat: Chat,
    decision: Decision,
    request: Request,
    proposal: Proposal,
    draws: random.Random,
) -> Branch | None:
    """The branch of a proposal; `None` if it does not parse to its action, or the task rejects it."""
    if proposal.state is not None:
        text, ids = decision.action_text, decision.action_ids
    else:
        text = Acting(interaction).write_action(proposal.action) if proposal.text is None else proposal.text
        ids = chat.reply_ids(text, decision.context_ids, request.tools)
    if Acting(interaction).action_of(decision.state, text)[1] != proposal.action:
        return None
    after = interaction.advance(decision.state, [text])
    if not interaction.pending(after) and interaction.ending(after) == Ending.INVALID_ACTION:
        return None
    if proposal.state is not None:
        after = Acting(interaction).with_world(after, proposal.state)
    conversation = Conversation.after(request, text, decision.context_ids + ids)
    start = RolloutRequest[Any](
        state=after, seed=draws.randrange(2**31), conversations={decision.event: conversation}, comparison=True
    )
    return Branch(start=start, action_ids=tuple(ids), text=text)


def support_score(text: str, evidence: str) -> float:
    """Returns the share of a text's words that are in the evidence, weighted by the document frequencies of BM25.

        s_sup = sum of idf(w) over words w of the text that are in the evidence / sum of idf(w) over all its words
        idf(w) = log(1 + (N - n(w) + 1/2) / (n(w) + 1/2)),   N pieces of evidence, n(w) of them with w

    Tags and stop words do not count.

    Returns:
        In [0, 1]; 1 for a text without words that count.
    """
    pieces = [frozenset(_words(line)) for line in evidence.splitlines() if line.strip()]
    found = Counter(word for piece in pieces for word in piece)
    weights = {word: math.log1p((len(pieces) - found[word] + 0.5) / (found[word] + 0.5)) for word in set(_words(text))}
    total = sum(weights.values())
    return sum(weight for word, weight in weights.items() if found[word]) / total if total else 1.0


def word_overlap(history: str, proposal: str) -> float:
    """Returns the share of a proposal's words that are in the history, an entailment score without a model.

    Returns:
        In [0, 1]; 1 for a proposal without words.
    """
    proposed, known = set(_words(proposal)), set(_words(history))
    return len(proposed & known) / len(proposed) if proposed else 1.0


def _words(text: str) -> list[str]:
    plain = re.sub(r"</?[A-Za-z_]+>", " ", text).lower()
    without = _STOP_WORDS.split()
    return [word for word in re.findall(r"[^\W_]+", plain) if word not in without]
