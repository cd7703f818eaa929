"""An Interaction that a rule stops, asks for the answer, or excludes from training (paper T3)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hf_credit.environments.randomness import derive
from hf_credit.methods.t3.rules import Rule, Step, make_rule
from hf_credit.rollouts import Ending, Interaction, Request
from hf_credit.rollouts.capabilities import (
    Acting,
    Batched,
    Interruptible,
    Learned,
    Metered,
    Removable,
    Replayable,
    Scripted,
    evaluated,
    fingerprint,
)
from hf_credit.rollouts.interaction import Message, Wrapper, readable_state
from hf_credit.rollouts.scripts import Script
from hf_credit.safe_io import parse_json
from hf_credit.validators import one_of

if TYPE_CHECKING:
    import random

S = TypeVar("S")

CUTS = ("hard", "soft", "mask")
"""The effect of a cut: the episode stops; it is asked for its answer; or it continues, and its later replies are not
in the loss.
"""


@dataclass(frozen=True, kw_only=True)
class TruncatedState(Generic[S]):
    """The state of a `Truncated`.

    Attributes:
        inner: of what is truncated.
        seed: for random draws of the rule.
        turns: number of turns begun. A turn is a step, with those of `Learned.untrained` roles that follow.
        progress: of each turn on which the rule was called.
        cut: the turn after which the episode was cut, counted from 1.
        stalled: whether the last turn stalled.
        begun: for an unfinished turn, the inner state at its beginning, and the replies there.
    """

    inner: S
    seed: int
    turns: int = 0
    progress: tuple[float | None, ...] = ()
    cut: int | None = None
    stalled: bool = False
    begun: tuple[S, tuple[str, ...]] | None = None


class Truncated(Wrapper[TruncatedState[S], S]):
    """An Interaction that a rule cuts. For training: an evaluation plays the inner one.

    An answer or an invalid reply never causes a cut, nor does the end of the episode. Everything else is the inner
    Interaction's, including `spec`, since policies trained on it are evaluated uncut.

    Beside the inner metrics it reports `cut/ratio` and `cut/<rule>` (0 or 1), and for a cut episode `cut/turn`. Turns
    are those of trained roles: a judge's reply is part of the turn before it.

    Args:
        inner: what is played.
        rule: when to cut.
        cut: `"hard"` stops; the outcome is that of the state. `"soft"` asks for the answer at once: one more reply,
            which scores 0 if it is not an answer. `"mask"` continues to the end, and the outcome counts, while replies
            after the cut are not in the loss, which separates the cost of the tail from its training signal.
        train_stalled: whether replies that stalled are trained on, before a cut or without one.

    Raises:
        ValueError: `cut` is unknown, the rule is for another task, or the task has no way to ask for the answer of a
            soft cut.
    """

    def __init__(self, inner: Interaction[S], rule: Rule, cut: str = "hard", train_stalled: bool = True) -> None:
        one_of("cut", cut, CUTS)
        if not isinstance(rule, Rule):
            raise ValueError(
                f"a rule must be a hf_credit.methods.t3.Rule, got a {type(rule).__name__}; derive yours from it, or "
                "make one with hf_credit.methods.t3.make_rule."
            )
        if cut == "soft" and not Interruptible(inner).asks_for_answers:
            raise ValueError(
                f"a soft cut asks for the answer, got {inner.name!r}, which has no answer_prompt; give it one, or "
                "take a hard cut."
            )
        super().__init__(inner)
        self.rule = rule.bind(inner)
        self.cut = cut
        self.train_stalled = train_stalled
        self._of_inner = Interruptible(inner)
        self._untrained = Learned(inner).untrained
        self._logged = f"cut/{rule.name or type(rule).__name__}"

    # What the cut changes -----------------------------------------------------------------------------------------

    def start(self, task: Mapping[str, Any], seed: int) -> TruncatedState[S]:
        return self._begun(self.inner.start(task, seed), seed)

    def start_many(
        self, tasks: Sequence[Mapping[str, Any]], seeds: Sequence[int]
    ) -> list[TruncatedState[S] | Exception]:
        made = Batched(self.inner).start_many(tasks, seeds)
        return [
            state if isinstance(state, Exception) else self._begun(state, seed)
            for state, seed in zip(made, seeds, strict=True)
        ]

    def _begun(self, state: S, seed: int) -> TruncatedState[S]:
        return TruncatedState(inner=state, seed=derive(seed, "cut"))

    def pending(self, state: TruncatedState[S]) -> tuple[Request, ...]:
        if state.cut is None or self.cut == "mask":
            return self.inner.pending(state.inner)
        if self.cut == "hard" or state.turns > state.cut:
            return ()
        prompt = self._of_inner.answer_prompt(state.inner) or ""
        return tuple(
            dataclasses.replace(request, messages=_asking(request.messages, prompt))
            for request in self.inner.pending(state.inner)
        )

    def advance(self, state: TruncatedState[S], replies: Sequence[str]) -> TruncatedState[S]:
        return self._judged(state, replies, self.inner.advance(state.inner, replies))

    def advance_many(
        self, states: Sequence[TruncatedState[S]], replies: Sequence[Sequence[str]]
    ) -> list[TruncatedState[S] | Exception]:
        made = Batched(self.inner).advance_many([state.inner for state in states], replies)
        return [
            after if isinstance(after, Exception) else self._judged_or_error(state, own, after)
            for state, own, after in zip(states, replies, made, strict=True)
        ]

    def _judged_or_error(
        self, state: TruncatedState[S], replies: Sequence[str], after: S
    ) -> TruncatedState[S] | Exception:
        try:
            return self._judged(state, replies, after)
        except Exception as error:  # of a rule
            return error

    def _judged(self, state: TruncatedState[S], replies: Sequence[str], after: S) -> TruncatedState[S]:
        begins = not self._observes(self.inner.pending(state.inner))
        begun = (state.inner, tuple(replies)) if begins else state.begun
        turns, pending = state.turns + begins, self.inner.pending(after)
        if self._observes(pending):
            return dataclasses.replace(state, inner=after, turns=turns, stalled=False, begun=begun)
        state = dataclasses.replace(state, inner=after, turns=turns, stalled=False, begun=None)
        if state.cut is not None or begun is None or not pending:
            return state
        before, said = begun
        step = Step(interaction=self.inner, before=before, replies=said, after=after, turn=turns, seed=state.seed)
        made = self.rule.progress(step)
        progress = (*state.progress, made)
        cuts = self.rule.cuts(progress)
        return dataclasses.replace(
            state,
            inner=self._of_inner.force_answer(after) if cuts and self.cut == "soft" else after,
            progress=progress,
            cut=turns if cuts else None,
            stalled=self.rule.stalls(made),
        )

    def _observes(self, pending: Sequence[Request]) -> bool:
        """Whether only untrained roles are to reply."""
        return bool(pending) and all(request.role in self._untrained for request in pending)

    def scores(self, state: TruncatedState[S]) -> int:
        return 0 if self._unanswered(state) else Metered(self.inner).scores(state.inner)

    def outcome(self, state: TruncatedState[S]) -> float:
        return 0.0 if self._unanswered(state) else self.inner.outcome(state.inner)

    def trained(self, state: TruncatedState[S]) -> bool:
        masked = self.cut == "mask" and state.cut is not None and state.turns > state.cut
        stalled = state.stalled and not self.train_stalled
        return not masked and not stalled and Learned(self.inner).trained(state.inner)

    def ending(self, state: TruncatedState[S]) -> Ending:
        return Ending.CUT if self.inner.pending(state.inner) else self.inner.ending(state.inner)

    def bootstrap_requests(self, state: TruncatedState[S]) -> tuple[Request, ...]:
        return self.inner.pending(state.inner) if self.cut == "hard" else ()

    def metrics(self, state: TruncatedState[S]) -> Mapping[str, float]:
        was_cut = float(state.cut is not None)
        turn = {} if state.cut is None else {"cut/turn": float(state.cut)}
        return {**self.inner.metrics(state.inner), "cut/ratio": was_cut, self._logged: was_cut, **turn}

    def reseed(self, state: TruncatedState[S], seed: int) -> TruncatedState[S]:
        inner = self.inner.reseed(state.inner, seed)
        return dataclasses.replace(state, inner=inner, seed=derive(state.seed, "reseed", seed))

    def state_to_json(self, state: TruncatedState[S]) -> str:
        write = Replayable(self.inner).state_to_json
        plain = {**vars(state), "inner": json.loads(write(state.inner))}
        if state.begun is not None:
            plain["begun"] = [json.loads(write(state.begun[0])), state.begun[1]]
        return json.dumps(plain)

    def state_from_json(self, text: str) -> TruncatedState[S]:
        read = Replayable(self.inner).state_from_json
        with readable_state(self):
            values = parse_json(text, broken_text=True)
            inner = read(json.dumps(values.pop("inner")))
            if (begun := values.get("begun")) is not None:
                values["begun"] = read(json.dumps(begun[0])), tuple(begun[1])
            return TruncatedState(**{**values, "inner": inner, "progress": tuple(values["progress"])})

    def _unanswered(self, state: TruncatedState[S]) -> bool:
        """Whether the answer was requested, and the reply is not one."""
        if self.cut != "soft" or state.cut is None or state.turns == state.cut:
            return False
        return self.ending(state) in (Ending.CUT, Ending.TURN_LIMIT)

    # What is beside the walk ---------------------------------------------------------------------------------------

    enumerable = False
    asks_for_answers = False  # of what is cut already

    def within(self, value: Any) -> Any:
        return value.inner if isinstance(value, TruncatedState) else value

    @property
    def evaluated(self) -> Interaction[Any]:
        return evaluated(self.inner)

    def fingerprint(self) -> dict[str, Any]:
        rule = {"is": type(self.rule).__qualname__, **dataclasses.asdict(self.rule)}
        cut = {"rule": rule, "cut": self.cut, "train_stalled": self.train_stalled}
        return {**fingerprint(self.inner), "truncation": cut}

    def without(self, state: TruncatedState[S], role: str) -> TruncatedState[S]:
        return dataclasses.replace(state, inner=Removable(self.inner).without(state.inner, role))

    def with_world(self, state: TruncatedState[S], world: Any) -> TruncatedState[S]:
        return dataclasses.replace(state, inner=Acting(self.inner).with_world(state.inner, world))

    def scripted_player(self, quality: float) -> Script | None:
        script = Scripted(self.inner).scripted_player(quality)
        if script is None:
            return None

        def play(state: TruncatedState[S], request: Request, draws: random.Random) -> str:
            return script(state.inner, request, draws)

        return play


def _asking(messages: Sequence[Message], prompt: str) -> list[Message]:
    """The conversation with a request for the answer at its end: in the last message, if there is no reply yet."""
    *earlier, last = messages
    if last["role"] == "user":
        return [*earlier, {**last, "content": f"{last['content']}\n\n{prompt}"}]
    return [*messages, {"role": "user", "content": prompt}]


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """The Interaction for training, for `Method.wrap`: the same, cut by a rule.

    Args:
        rule, cut, train_stalled: as for `Truncated`.

    Raises:
        ValueError: `cut` is unknown.
    """

    rule: Rule
    cut: str = "hard"
    train_stalled: bool = True

    def __post_init__(self) -> None:
        one_of("cut", self.cut, CUTS)

    def __call__(self, interaction: Interaction[Any]) -> Truncated[Any]:
        """The Interaction, truncated.

        Raises:
            ValueError: the rule is for another task, or the task has no way to ask for the answer of a soft cut.
        """
        return Truncated(interaction, self.rule, self.cut, self.train_stalled)


def truncation(
    name: str,
    *,
    window: int | None = None,
    min_progress: float | None = None,
    cut: str = "hard",
    train_stalled: bool = True,
    **options: Any,
) -> Truncation:
    """The truncation by the rule called `name`, for `Method.wrap`: it works with any method.

    Args:
        name, options: as for `make_rule`.
        window, min_progress: of the rule, in place of its own.
        cut, train_stalled: as for `Truncated`.

    Raises:
        ValueError: the name, an option or its value is invalid, in one sentence.
    """
    settings = {"window": window, "min_progress": min_progress}
    options |= {setting: value for setting, value in settings.items() if value is not None}
    return Truncation(rule=make_rule(name, **options), cut=cut, train_stalled=train_stalled)
