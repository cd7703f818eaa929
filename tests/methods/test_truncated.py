"""Truncation: the step of a cut, its effect on the episode, and what it does not change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit import make
from hf_credit.collaborations import make as collaborate
from hf_credit.methods.t3 import Rule, Step, Truncated, first_cut, make_rule
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import (
    Chat,
    Ending,
    Engine,
    EnvironmentInteraction,
    Episode,
    Generation,
    Interaction,
    Request,
    RolloutRequest,
    replay_from,
)
from hf_credit.rollouts.capabilities import Enumerable, Interruptible


@dataclass(frozen=True, kw_only=True)
class Climb:
    said: tuple[str, ...] = ()
    luck: int = 0

    @property
    def height(self) -> int:
        return sum(word == "up" for word in self.said)


class Ladder(Interaction[Climb]):
    """`up` climbs; `answer` ends with the height as outcome; `?` is invalid and ends; other replies do nothing."""

    roles = ("agent",)
    max_replies = 6

    def start(self, task, seed):
        return Climb(luck=seed)

    def pending(self, state):
        if state.said[-1:] in [("answer",), ("?",)] or len(state.said) >= self.max_replies:
            return ()
        messages = [{"role": "user", "content": "climb"}]
        for number, word in enumerate(state.said):
            messages += [{"role": "assistant", "content": word}, {"role": "user", "content": f"{number}."}]
        return (Request(role="agent", messages=messages),)

    def advance(self, state, replies):
        return replace(state, said=(*state.said, *replies))

    def outcome(self, state):
        return float(state.height) if state.said[-1:] == ("answer",) else 0.0

    def ending(self, state):
        if state.said[-1:] == ("?",):
            return Ending.INVALID_ACTION
        return Ending.FINISHED if state.said[-1:] == ("answer",) else Ending.TURN_LIMIT

    def reward(self, state):
        return 0.1 * state.height

    def metrics(self, state):
        return {"height": float(state.height)}

    def reseed(self, state, seed):
        return replace(state, luck=seed)

    def answer_prompt(self, state):
        return f"answer now, at {state.height}"


class Speechless(Ladder):
    asks_for_answers = False


@dataclass(frozen=True, kw_only=True)
class Height(Rule):
    """Progress is height."""

    def progress(self, step: Step[Climb]) -> float:
        assert isinstance(step.interaction, Ladder)
        assert (step.turn, step.replies) == (len(step.after.said), step.after.said[-1:])
        if step.replies == ("boom",):
            raise RuntimeError("the rule broke")
        return step.after.height - step.before.height


class Says:
    """Replies from a list."""

    def __init__(self, chat: Chat, words: Sequence[str]) -> None:
        self.chat, self.words = chat, list(words)

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        encode = self.chat.tokenizer
        return [
            Generation(ids=encode(f"{self.words.pop(0)}<|end|>", add_special_tokens=False)["input_ids"], logprobs=None)
            for _ in contexts
        ]


def play(interaction: Any, chat: Chat, *words: str, **start: Any) -> Episode:
    (episode,) = Engine(interaction, chat, Says(chat, words)).run([RolloutRequest(**start)])
    return episode


def said(episode: Episode) -> list[str]:
    return [decision.action_text for decision in episode.decisions]


# When


@pytest.mark.parametrize(
    ("progress", "window", "consecutive", "expected"),
    [
        ([1, 0, 0, 1], 1, True, 2),
        ([1, 0, 0, 1], 2, True, 3),
        ([0, 1, 0, 1, 0], 2, True, None),
        ([0, 1, 0, 1, 0], 2, False, 3),
        ([0, 1, 0, 1, 0], 3, False, 5),
        ([0, None, 0], 2, True, 3),
        ([0, None, 1, None, 0], 2, True, None),
        ([0, None, 0], 2, False, 3),
        ([-1, 0.99], 2, True, 2),
        ([1, 1], 1, True, None),
        ([], 1, True, None),
    ],
)
def test_a_rule_cuts_after_a_number_of_stalls_consecutive_or_in_total(
    progress: list[Any], window: int, consecutive: bool, expected: int | None
) -> None:
    assert first_cut(progress, window, 1.0, consecutive) == expected


@given(st.lists(st.integers(0, 2), max_size=8), st.integers(1, 4))
def test_the_first_cut_is_that_of_the_definition(progress: list[int], window: int) -> None:
    cuts = [t for t in range(window, len(progress) + 1) if all(one < 1 for one in progress[t - window : t])]
    assert first_cut(progress, window, 1) == (cuts[0] if cuts else None)


def test_an_invalid_window_and_progress_are_refused() -> None:
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        first_cut([1.0], 0, 1.0)
    with pytest.raises(ValueError, match="progress must be a number, got NaN at step 2"):
        first_cut([1.0, math.nan], 1, 1.0)


# What becomes of it


def test_a_hard_cut_ends_with_the_outcome_of_the_state_and_the_next_context(chat: Chat) -> None:
    episode = play(Truncated(Ladder(), Height(window=2)), chat, "up", "no", "no", "up", "answer")
    assert said(episode) == ["up", "no", "no"]
    assert (episode.outcome, episode.ending) == (0.0, Ending.CUT)
    assert episode.metrics == {"height": 1.0, "cut/ratio": 1.0, "cut/Height": 1.0, "cut/turn": 3.0}
    uncut = play(Ladder(), chat, "up", "no", "no", "up", "answer")
    assert episode.next_context == uncut.decisions[3].context_ids
    assert uncut.next_context is None


def test_a_soft_cut_requests_the_answer_once(chat: Chat) -> None:
    game = Truncated(Ladder(), Height(), cut="soft")
    answered = play(game, chat, "up", "no", "answer")
    assert (answered.outcome, answered.ending) == (1.0, Ending.FINISHED)
    asked = chat.tokenizer.decode(answered.decisions[-1].context_ids)
    assert asked.endswith("<|user|>1.\n\nanswer now, at 1<|end|><|assistant|>")
    asked_again = play(game, chat, "up", "no", "up", "answer")
    assert said(asked_again) == ["up", "no", "up"]
    assert (asked_again.outcome, asked_again.ending, asked_again.next_context) == (0.0, Ending.CUT, None)
    assert play(game, chat, "up", "no", "?").ending == Ending.INVALID_ACTION


def test_a_soft_cut_before_the_last_turn_scores_0_without_an_answer(chat: Chat) -> None:
    class Generous(Ladder):
        def outcome(self, state):
            return 0.5  # for whatever was said

    game = Truncated(Generous(), Height(), cut="soft")
    late = play(game, chat, *["up"] * 4, "no", "up")
    assert (len(late.decisions), late.ending, late.outcome) == (6, Ending.TURN_LIMIT, 0.0)
    assert play(game, chat, *["up"] * 4, "no", "answer").outcome == 0.5


def test_a_masked_cut_continues_and_later_replies_are_not_trained_on(chat: Chat) -> None:
    words = ("up", "no", "up", "answer")
    episode, uncut = play(Truncated(Ladder(), Height(), cut="mask"), chat, *words), play(Ladder(), chat, *words)
    assert [decision.trained for decision in episode.decisions] == [True, True, False, False]
    assert (episode.outcome, episode.ending, episode.metrics["cut/turn"]) == (2.0, Ending.FINISHED, 2.0)
    assert [one.context_ids for one in episode.decisions] == [one.context_ids for one in uncut.decisions]
    assert [one.reward for one in episode.decisions] == [one.reward for one in uncut.decisions]


def test_stalled_steps_can_be_left_out_of_the_loss(chat: Chat) -> None:
    words = ("up", "no", "up", "no", "no", "answer")
    trained = {
        kept: [
            one.trained for one in play(Truncated(Ladder(), Height(window=2), "mask", kept), chat, *words).decisions
        ]
        for kept in (True, False)
    }
    assert trained[True] == [True, True, True, True, True, False]
    assert trained[False] == [True, False, True, False, False, False]


@pytest.mark.parametrize("cut", ["hard", "soft", "mask"])
@pytest.mark.parametrize("words", [("no", "answer"), ("no", "?"), ("no",) * 6], ids=str)
def test_an_episode_that_is_over_is_not_cut(cut: str, words: tuple[str, ...], chat: Chat) -> None:
    window = len(words)  # the last step would be the one to cut
    episode = play(Truncated(Ladder(), Height(window=window), cut=cut), chat, *words)
    uncut = play(Ladder(), chat, *words)
    assert (episode.ending, episode.outcome) == (uncut.ending, uncut.outcome)
    assert episode.metrics["cut/ratio"] == 0
    assert "cut/turn" not in episode.metrics


# Turns are those of whoever learns


STORY = {"surface": "Why?", "bottom": "It was cold.", "questions": [], "verdicts": [], "slots": []}
ASK = "<interact>Was it cold?</interact>"


def judged(chat: Chat, verdicts: Sequence[str], rule: Rule, **options: Any) -> Episode:
    """A player with only questions, and a judge."""
    game = Truncated(collaborate("judged_puzzles", turns=5, wording="brief", instructions=False), rule, **options)
    samplers = {"agent": Says(chat, [ASK] * 9), "judge": Says(chat, verdicts)}
    (episode,) = Engine(game, chat, samplers).run([RolloutRequest(task=STORY, seed=0)])
    return episode


@pytest.fixture(scope="module")
def puzzled() -> Chat:
    return Chat(tokenizer_of(["Why? It was cold. Yes No Unknown answer", ASK]))


@pytest.mark.parametrize("name", ["unknown", "similar_question", "random"])
def test_a_rule_is_called_once_for_a_question_and_its_verdict(name: str) -> None:
    options = {"random": {"probability": 1.0}, "similar_question": {"embedder": lambda texts: [[1.0]] * len(texts)}}
    game = Truncated(collaborate("judged_puzzles"), make_rule(name, window=2, **options.get(name, {})))
    state = game.start(STORY, 0)
    for reply in (ASK, "Unknown", ASK, "Unknown"):
        state = game.advance(state, [reply])
    first = float(name == "similar_question")
    assert (state.turns, state.progress, state.cut) == (2, (first, 0.0), None if first else 2)


def test_a_rule_gets_the_whole_turn_with_its_action() -> None:
    seen = []

    @dataclass(frozen=True, kw_only=True)
    class Looks(Rule):
        def progress(self, step: Step[Any]) -> None:
            seen.append((step.replies, step.turn, len(step.world_before.replies), len(step.world_after.replies)))

    game = Truncated(collaborate("judged_puzzles"), Looks())
    state = game.start(STORY, 0)
    for reply in (ASK, "Unknown", ASK):
        state = game.advance(state, [reply])
    assert game.state_from_json(game.state_to_json(state)) == state
    game.advance(state, ["No"])
    assert seen == [((ASK,), 1, 0, 1), ((ASK,), 2, 1, 2)]


@pytest.mark.parametrize("cut", ["hard", "soft"])
def test_a_cut_follows_a_verdict_so_that_the_answer_is_requested_from_the_player(cut: str, puzzled: Chat) -> None:
    episode = judged(puzzled, ["Yes", "Unknown"], make_rule("unknown", window=1), cut=cut)
    assert [one.role for one in episode.decisions] == ["agent", "judge"] * 2 + ["agent"] * (cut == "soft")
    assert (episode.metrics["cut/turn"], episode.turns) == (2.0, 2 + (cut == "soft"))
    if cut == "hard":  # the context to come is the player's, who has read the verdict
        assert puzzled.tokenizer.decode(episode.next_context).endswith("Unknown Was it cold<|end|><|assistant|>")
    else:
        assert "answer" in puzzled.tokenizer.decode(episode.decisions[-1].context_ids)


def test_a_stalled_question_is_left_out_of_the_loss_after_its_verdict(puzzled: Chat) -> None:
    verdicts, rule = ["Yes", "Unknown", "Yes", "Unknown", "Unknown"], make_rule("unknown", window=9)
    for train_stalled, expected in ((True, [True] * 5), (False, [True, False, True, False, True])):
        episode = judged(puzzled, verdicts, rule, train_stalled=train_stalled)
        assert [one.trained for one in episode.decisions[::2]] == expected
        assert {(one.role, one.trained, one.observed) for one in episode.decisions[1::2]} == {("judge", False, True)}
    masked = judged(puzzled, verdicts, make_rule("unknown", window=1), cut="mask")
    assert [one.trained for one in masked.decisions[::2]] == [True, True, False, False, False]


# A value


def test_a_replay_from_any_decision_is_cut_like_the_recorded_episode(chat: Chat) -> None:
    for cut in ("hard", "soft", "mask"):
        game = Truncated(Ladder(), Height(window=2), cut=cut)
        words = ("up", "no", "no", "answer")[: 3 if cut == "hard" else 4]
        whole = play(game, chat, *words)
        for index in range(len(words)):
            (again,) = Engine(game, chat, Says(chat, words[index:])).run([replay_from(game, chat, whole, index)])
            assert [one.context_ids for one in again.decisions] == [one.context_ids for one in whole.decisions[index:]]
            assert [one.trained for one in again.decisions] == [one.trained for one in whole.decisions[index:]]
            assert (again.outcome, again.ending, again.metrics) == (whole.outcome, whole.ending, whole.metrics)


def test_alternatives_share_the_past_and_a_new_seed_changes_only_later_random_cuts(chat: Chat) -> None:
    game = Truncated(Ladder(), make_rule("random", probability=0.5))
    state = game.start({}, 3)
    for _ in range(3):
        state = game.advance(state, ["up"])
    hash(state)
    others = [game.reseed(state, seed) for seed in range(20)]
    assert {(one.progress, one.cut, one.turns, one.inner.said) for one in others} == {
        (state.progress, state.cut, 3, ("up",) * 3)
    }
    ahead = {game.advance(replace(one, cut=None), ["up"]).progress[-1] for one in others}
    assert ahead == {0.0, 1.0}
    assert game.reseed(state, 1) == game.reseed(state, 1)
    assert game.reseed(state, 1).inner.luck == 1


@pytest.mark.parametrize(("probability", "least", "most"), [(0.0, 0, 0), (1.0, 1, 1), (0.3, 0.2, 0.4)])
def test_random_cuts_have_their_probability(probability: float, least: float, most: float) -> None:
    game = Truncated(Ladder(), make_rule("random", probability=probability))
    cut = [game.advance(game.start({}, seed), ["up"]).cut is not None for seed in range(400)]
    assert least <= sum(cut) / 400 <= most


def test_a_metric_can_be_progress(chat: Chat) -> None:
    rising = play(Truncated(Ladder(), make_rule("metric", metric="height")), chat, "up", "no", "up")
    assert (rising.metrics["cut/turn"], rising.metrics["cut/metric"]) == (2.0, 1.0)
    falling = play(Truncated(Ladder(), make_rule("metric", metric="height", falling=True)), chat, "up")
    assert falling.metrics["cut/turn"] == 1.0
    unknown = play(Truncated(Ladder(), make_rule("metric", metric="depth")), chat, *["no"] * 6)
    assert unknown.ending == Ending.TURN_LIMIT


# Everything else is the inner Interaction's


def test_an_evaluation_and_the_spec_have_the_inner_interaction() -> None:
    inner = EnvironmentInteraction(make("sudoku", size=4, blanks=4), instructions=False, max_turns=5)
    game = Truncated(inner, make_rule("metric", metric="completion"))
    assert game.evaluated is inner
    assert game.spec() == inner.spec()
    assert game.fingerprint() != inner.fingerprint()
    assert game.fingerprint() != Truncated(inner, make_rule("metric", metric="completion"), "mask").fingerprint()
    assert (game.name, game.roles, game.max_replies, game.seeded) == ("sudoku", ("agent",), 5, True)
    assert game.default_oracle() is not None
    assert game.tasks("train", 2)[0] == inner.tasks("train", 2)[0]
    state = game.start({"seed": 1}, 1)
    assert game.action_of(state, "<action>fill 1 1 2</action>") == (state.inner.world, "fill 1 1 2")
    with pytest.raises(ValueError, match="column"):
        game.require_columns([])


def test_a_truncated_interaction_requests_no_answers_itself() -> None:
    game = Truncated(collaborate("relay"), make_rule("random"))
    assert not Enumerable(game).enumerable
    assert not Interruptible(Truncated(Ladder(), Height())).asks_for_answers
    assert Enumerable(game.inner).enumerable
    assert Interruptible(Ladder()).asks_for_answers


def test_members_of_the_inner_interaction_get_inner_states() -> None:
    """Every member that takes a state is overridden, or gets the inner state."""
    returns_states = {"start", "advance", "reseed", "without", "with_world", "state_from_json", "advance_many"}
    assert returns_states <= set(vars(Truncated))
    game = Truncated(Ladder(), Height())
    state = game.start({}, 0)
    assert game.within(state) is state.inner
    assert game.reward(state) == game.inner.reward(state.inner)
    assert Interruptible(game).answer_prompt(state) == game.inner.answer_prompt(state.inner)


def test_parallel_steps_are_cut_like_sequential_ones() -> None:
    game = Truncated(Ladder(), Height(window=1))
    states = [game.start({}, seed) for seed in range(3)]
    replies = [["up"], ["stay"], ["boom"]]
    first, second, third = game.advance_many(states, replies)
    assert [first, second] == [game.advance(state, own) for state, own in zip(states, replies[:2], strict=False)]
    assert isinstance(third, RuntimeError)


def test_scripted_play_is_cut_like_any_other(chat: Chat) -> None:
    from hf_credit.policies.scripted import play as scripted

    inner = EnvironmentInteraction(make("sudoku", size=4, blanks=4), "current", instructions=False)
    player = Truncated(inner, make_rule("random", probability=1.0)).scripted_player(1.0)
    assert player is not None
    game = Truncated(inner, make_rule("random", probability=1.0))
    episode = scripted(game, chat, player, RolloutRequest(task={"seed": 1}))
    assert (len(episode.decisions), episode.ending) == (1, Ending.CUT)


def test_invalid_cuts_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="cut must be one of hard, soft, mask, got 'gentle'"):
        Truncated(Ladder(), Height(), cut="gentle")
    with pytest.raises(ValueError, match="a soft cut needs an answer_prompt, got 'Speechless' without one"):
        Truncated(Speechless(), Height(), cut="soft")
    with pytest.raises(ValueError, match="a soft cut needs an answer_prompt, got 'sudoku' without one"):
        Truncated(EnvironmentInteraction(make("sudoku")), Height(), cut="soft")
    with pytest.raises(ValueError, match=r"a rule must be a hf_credit.methods.t3.Rule, got a str"):
        Truncated(Ladder(), "shrink")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes the options"):
        make_rule("random", beta=0.5)
    with pytest.raises(ValueError, match="rule must be one of"):
        make_rule("sideways")
    with pytest.raises(ValueError, match="got a Ladder from"):
        make_rule(f"{__name__}:Ladder")


def test_a_rule_can_be_named_by_its_module(chat: Chat) -> None:
    rule = make_rule(f"{__name__}:Height", window=2)
    assert play(Truncated(Ladder(), rule), chat, "no", "no").metrics["cut/Height"] == 1.0


def test_a_rule_that_raises_ends_its_episode_in_an_error(chat: Chat) -> None:
    class Broken(Height):
        def progress(self, step):
            raise KeyError("no such belief")

    assert play(Truncated(Ladder(), Broken()), chat, "up").ending == Ending.ERROR


def test_limits_and_removals_are_those_of_the_inner_interaction() -> None:
    class Team(Ladder):
        removable = ("agent",)

        def advance_many(self, states, replies):
            pairs = zip(states, replies, strict=True)
            return [KeyError("lost") if own == ("bad",) else self.advance(one, own) for one, own in pairs]

        def without(self, state, role):
            return replace(state, said=())

    game = Truncated(Team(), Height())
    states = [game.start({}, seed) for seed in range(3)]
    found = game.advance_many(states, [("no",), ("bad",), ("up",)])
    assert found[0] == game.advance(states[0], ("no",))
    assert isinstance(found[1], KeyError)
    assert found[2] == game.advance(states[2], ("up",))
    assert game.removable == ("agent",)
    assert game.without(found[0], "agent") == replace(found[0], inner=Climb(luck=0))
