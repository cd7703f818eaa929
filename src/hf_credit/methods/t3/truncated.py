"""An Interaction that is truncated by a rule (paper T3)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args

from hf_credit.environments.randomness import derive
from hf_credit.methods.t3.rules import Rule, Step, make_rule
from hf_credit.options import Options
from hf_credit.rollouts import Ending, Interaction, Request, capabilities
from hf_credit.rollouts.interaction import Message, Wrapper, or_error, readable_state
from hf_credit.rollouts.scripts import Script
from hf_credit.safe_io import parse_json
from hf_credit.validators import one_of

S = TypeVar("S")

Cut = Literal["hard", "soft", "mask"]
CUTS = get_args(Cut)
"""The effect of a cut: the episode ends; the agent is asked for its answer; or later replies are not in the loss."""


@dataclass(frozen=True, kw_only=True)
class TruncatedState(Generic[S]):
    """The state of a `Truncated`."""

    inner: S  # the state of the inner Interaction
    seed: int  # the seed of the rule's random draws
    turns: int = 0  # so far. A turn is a step, with those of `TrainedRoles.untrained` roles that follow it.
    progress: tuple[float | None, ...] = ()  # the progress of each turn that the rule measured
    cut: int | None = None  # the turn after which the episode was cut, counted from 1; `None` without a cut
    stalled: bool = False  # whether the last turn stalled
    # for an unfinished turn, the inner state before it and the replies to its first requests
    begun: tuple[S, tuple[str, ...]] | None = None


class Truncated(Wrapper[TruncatedState[S], S]):
    """An Interaction that a rule truncates in training; an evaluation plays the inner one.

    The rule is not called on a step that ends the episode, such as an answer or an invalid reply. Everything but the
    cut is that of the inner Interaction, including `spec`, since evaluations are not truncated.

    It adds the metrics `cut/ratio` and `cut/<rule>` (0 or 1), and `cut/turn` for a cut episode. Turns are those of
    trained roles: a judge's reply is part of the turn before it.

    Args:
        inner: the Interaction to truncate.
        rule: decides when to cut.
        cut: `"hard"` ends the episode, with the outcome of its state. `"soft"` asks for the answer: one more reply,
            with outcome 0 if it is not an answer. `"mask"` continues, and the outcome counts, but later replies are
            not in the loss, which separates the cost of the tail from its training signal.
        train_stalled: whether replies in stalled turns are trained on.

    Raises:
        ValueError: `cut` is unknown, the rule does not support the Interaction, or a soft cut needs an
            `answer_prompt` that the Interaction lacks.
    """

    def __init__(self, inner: Interaction[S], rule: Rule, cut: str = "hard", train_stalled: bool = True) -> None:
        one_of("cut", cut, CUTS)
        if not isinstance(rule, Rule):
            raise ValueError(
                f"a rule must be a hf_credit.methods.t3.Rule, got a {type(rule).__name__}; derive it from Rule, or "
                "make one with hf_credit.methods.t3.make_rule."
            )
        if cut == "soft" and not capabilities.Interruptible(inner).asks_for_answers:
            raise ValueError(
                f"a soft cut needs an answer_prompt, got {inner.name!r} without one; implement it, or use a hard cut."
            )
        super().__init__(inner)
        self.rule = rule.bind(inner)
        self.cut = cut
        self.train_stalled = train_stalled
        self._interruptible = capabilities.Interruptible(inner)
        self._untrained = capabilities.TrainedRoles(inner).untrained
        self._rule_metric = f"cut/{rule.name or type(rule).__name__}"

    def start(self, task: Mapping[str, Any], seed: int) -> TruncatedState[S]:
        return self._started(self.inner.start(task, seed), seed)

    def start_many(
        self, tasks: Sequence[Mapping[str, Any]], seeds: Sequence[int]
    ) -> list[TruncatedState[S] | Exception]:
        states = capabilities.Batched(self.inner).start_many(tasks, seeds)
        return [
            state if isinstance(state, Exception) else self._started(state, seed)
            for state, seed in zip(states, seeds, strict=True)
        ]

    def _started(self, state: S, seed: int) -> TruncatedState[S]:
        return TruncatedState(inner=state, seed=derive(seed, "cut"))

    def pending(self, state: TruncatedState[S]) -> tuple[Request, ...]:
        if state.cut is None or self.cut == "mask":
            return self.inner.pending(state.inner)
        if self.cut == "hard" or state.turns > state.cut:
            return ()
        prompt = self._interruptible.answer_prompt(state.inner) or ""
        return tuple(
            dataclasses.replace(request, messages=_with_prompt(request.messages, prompt))
            for request in self.inner.pending(state.inner)
        )

    def too_long(self, state: TruncatedState[S], tokens: Mapping[str, int], most: int) -> TruncatedState[S] | None:
        after = capabilities.ReadsTokens(self.inner).too_long(state.inner, tokens, most)
        return None if after is None else dataclasses.replace(state, inner=after)

    def advance(self, state: TruncatedState[S], replies: Sequence[str]) -> TruncatedState[S]:
        return self._measured(state, replies, self.inner.advance(state.inner, replies))

    def advance_many(
        self, states: Sequence[TruncatedState[S]], replies: Sequence[Sequence[str]]
    ) -> list[TruncatedState[S] | Exception]:
        inner_states = capabilities.Batched(self.inner).advance_many([state.inner for state in states], replies)
        return [
            after if isinstance(after, Exception) else or_error(self._measured, state, own, after)
            for state, own, after in zip(states, replies, inner_states, strict=True)
        ]

    def _measured(self, state: TruncatedState[S], replies: Sequence[str], after: S) -> TruncatedState[S]:
        """The state after a step, with the progress of the turn if it is complete, and a cut if the rule cuts."""
        begins = not self._only_untrained(self.inner.pending(state.inner))
        begun = (state.inner, tuple(replies)) if begins else state.begun
        turns, pending = state.turns + begins, self.inner.pending(after)
        if self._only_untrained(pending):
            return dataclasses.replace(state, inner=after, turns=turns, stalled=False, begun=begun)
        state = dataclasses.replace(state, inner=after, turns=turns, stalled=False, begun=None)
        if state.cut is not None or begun is None or not pending:
            return state
        before, first_replies = begun
        step = Step(
            interaction=self.inner, before=before, replies=first_replies, after=after, turn=turns, seed=state.seed
        )
        progress = self.rule.progress(step)
        measured = (*state.progress, progress)
        cuts = self.rule.cuts(measured)
        inner = self._interruptible.force_answer(after) if cuts and self.cut == "soft" else after
        cut, stalled = turns if cuts else None, self.rule.stalls(progress)
        return dataclasses.replace(state, inner=inner, progress=measured, cut=cut, stalled=stalled)

    def _only_untrained(self, pending: Sequence[Request]) -> bool:
        return bool(pending) and all(request.role in self._untrained for request in pending)

    def scores(self, state: TruncatedState[S]) -> int:
        return 0 if self._unanswered(state) else capabilities.Costs(self.inner).scores(state.inner)

    def outcome(self, state: TruncatedState[S]) -> float:
        return 0.0 if self._unanswered(state) else self.inner.outcome(state.inner)

    def trained(self, state: TruncatedState[S]) -> bool:
        masked = self.cut == "mask" and state.cut is not None and state.turns > state.cut
        stalled = state.stalled and not self.train_stalled
        return not masked and not stalled and capabilities.TrainedRoles(self.inner).trained(state.inner)

    def ending(self, state: TruncatedState[S]) -> Ending:
        return Ending.CUT if self.inner.pending(state.inner) else self.inner.ending(state.inner)

    def bootstrap_requests(self, state: TruncatedState[S]) -> tuple[Request, ...]:
        return self.inner.pending(state.inner) if self.cut == "hard" else ()

    def metrics(self, state: TruncatedState[S]) -> Mapping[str, float]:
        was_cut = float(state.cut is not None)
        turn = {} if state.cut is None else {"cut/turn": float(state.cut)}
        return {**self.inner.metrics(state.inner), "cut/ratio": was_cut, self._rule_metric: was_cut, **turn}

    def reseed(self, state: TruncatedState[S], seed: int) -> TruncatedState[S]:
        inner = self.inner.reseed(state.inner, seed)
        return dataclasses.replace(state, inner=inner, seed=derive(state.seed, "reseed", seed))

    def state_to_json(self, state: TruncatedState[S]) -> str:
        write = capabilities.Replayable(self.inner).state_to_json
        plain = {**vars(state), "inner": json.loads(write(state.inner))}
        if state.begun is not None:
            plain["begun"] = [json.loads(write(state.begun[0])), state.begun[1]]
        return json.dumps(plain)

    def state_from_json(self, text: str) -> TruncatedState[S]:
        read = capabilities.Replayable(self.inner).state_from_json
        with readable_state(self):
            values = parse_json(text, broken_text=True)
            inner = read(json.dumps(values.pop("inner")))
            if (begun := values.get("begun")) is not None:
                values["begun"] = read(json.dumps(begun[0])), tuple(begun[1])
            return TruncatedState(**{**values, "inner": inner, "progress": tuple(values["progress"])})

    def _unanswered(self, state: TruncatedState[S]) -> bool:
        """Whether the reply to the request for the answer is not an answer."""
        if self.cut != "soft" or state.cut is None or state.turns == state.cut:
            return False
        return self.ending(state) in (Ending.CUT, Ending.TURN_LIMIT)

    enumerable = False
    asks_for_answers = False  # an episode is cut at most once

    def within(self, value: Any) -> Any:
        return value.inner if isinstance(value, TruncatedState) else value

    @property
    def evaluated(self) -> Interaction[Any]:
        return capabilities.evaluated(self.inner)

    def spec(self) -> dict[str, Any]:
        return self.inner.spec()

    def fingerprint(self) -> dict[str, Any]:
        rule = {"is": type(self.rule).__qualname__, **dataclasses.asdict(self.rule)}
        cut = {"rule": rule, "cut": self.cut, "train_stalled": self.train_stalled}
        return {**capabilities.fingerprint(self.inner), "truncation": cut}

    def without(self, state: TruncatedState[S], role: str) -> TruncatedState[S]:
        return dataclasses.replace(state, inner=capabilities.Removable(self.inner).without(state.inner, role))

    def with_world(self, state: TruncatedState[S], world: Any) -> TruncatedState[S]:
        return dataclasses.replace(state, inner=capabilities.Acting(self.inner).with_world(state.inner, world))

    def scripted_player(self, quality: float) -> Script | None:
        script = capabilities.Scripted(self.inner).scripted_player(quality)
        return script and (lambda state, request, draws: script(state.inner, request, draws))


def _with_prompt(messages: Sequence[Message], prompt: str) -> list[Message]:
    """The conversation with the answer prompt at its end, in the last message if that is the user's."""
    *earlier, last = messages
    if last["role"] == "user":
        return [*earlier, {**last, "content": f"{last['content']}\n\n{prompt}"}]
    return [*messages, {"role": "user", "content": prompt}]


@dataclass(frozen=True, kw_only=True)
class Truncation(Options):
    """Truncates an Interaction for training; a value for `Method.wrap`.

    Args:
        rule, cut, train_stalled: as for `Truncated`.

    Raises:
        ValueError: `cut` is unknown.
    """

    rule: Rule
    cut: Cut = "hard"
    train_stalled: bool = True

    def __call__(self, interaction: Interaction[Any]) -> Truncated[Any]:
        """Returns the truncated Interaction.

        Raises:
            ValueError: as for `Truncated`.
        """
        return Truncated(interaction, self.rule, self.cut, self.train_stalled)


def truncation(
    name: str,
    *,
    window: int | None = None,
    min_progress: float | None = None,
    cut: Cut = "hard",
    train_stalled: bool = True,
    **options: Any,
) -> Truncation:
    """Returns the truncation by the rule `name`, for `Method.wrap` of any method.

    Args:
        name, options: as for `make_rule`.
        window, min_progress: replace the defaults of the rule.
        cut, train_stalled: as for `Truncated`.

    Raises:
        ValueError: the name, an option or its value is invalid.
    """
    settings = {"window": window, "min_progress": min_progress}
    options |= {setting: value for setting, value in settings.items() if value is not None}
    return Truncation(rule=make_rule(name, **options), cut=cut, train_stalled=train_stalled)
