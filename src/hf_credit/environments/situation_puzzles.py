"""SituationPuzzles: find out what happened by yes-or-no questions (paper T3, Appendix C.1, Figure 7)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from hf_credit.boundary import Range
from hf_credit.environments.queries import ANSWER, INTERACT, QueryEnvironment, QueryState
from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import split_of
from hf_credit.options import Count
from hf_credit.registry import find
from hf_credit.safe_io import read_json
from hf_credit.verifiers.judges import NO, UNKNOWN, VERDICTS, YES, FactJudge, Judge
from hf_credit.verifiers.text_overlap import token_f1

TASKS = {"train": 400, "held_out": 100}
"""Table 5: the number of rows."""

SLOTS = (
    ("sailor", "nurse", "baker", "pilot", "teacher", "clown"),
    ("harbour", "theatre", "garden", "tunnel", "museum", "station"),
    ("storm", "theft", "bet", "mistake", "joke", "promise"),
    ("dawn", "noon", "dusk", "midnight", "sunset", "morning"),
    ("lamp", "rope", "letter", "mirror", "ladder", "radio"),
)
"""The words of generated stories: who, where, the cause, when, with what."""

_ASKED = (
    "Was it the {}?",
    "Did it happen at the {}?",
    "Was a {} the cause?",
    "Did it happen at {}?",
    "Did a {} matter?",
)
_NAMED = ("who", "where", "the cause", "when", "with what")
_DECOYS = ("Was anybody angry?", "Was it cold?", "Had it happened before?", "Was money lost?", "Did somebody see it?")
_DECOYS_BRIEF = ("angry?", "cold?", "before?", "money?", "seen?")

MAX_TEXT = 20_000
"""The longest surface, bottom or question, in characters."""


@dataclass(frozen=True, kw_only=True)
class SituationPuzzlesState(QueryState):
    """A query is a question; an answer is a story."""

    surface: str  # the part of the story that the agent sees
    bottom: str  # the true story
    questions: tuple[str, ...] = ()  # the questions with known verdicts
    verdicts: tuple[str, ...] = ()  # their verdicts, Yes, No or Unknown
    # for each part of a generated story, its possible words; `questions` has one for each word, in order
    slots: tuple[tuple[str, ...], ...] = ()
    replies: tuple[str, ...] = ()  # the judge's reply to each query


@dataclass(eq=False, repr=False)
class SituationPuzzles(QueryEnvironment[SituationPuzzlesState]):
    """The agent finds out a story from its puzzling surface. Reward: F1 of the answer's words and the true story's.

    The judge answers a question with Yes, No or Unknown, and refuses other text. Without a file of puzzles, stories
    are generated: a story consists of a few parts, each one word, and a table of facts is the judge. The paper's
    puzzles need a judge model: the collaboration `judged_puzzles`.

    White space is collapsed in replies and in stories. Case and punctuation count.

    Args:
        path: a JSON file with a list of puzzles, each with the texts `surface` and `bottom`, as in AR-Bench. The
            first four fifths are for training, the others held out: 400 and 100 of AR-Bench's 500.
        slots: the number of parts of a generated story, 1 to 5.
        values: the number of possible words of a part, 2 to 6.
        judge: a function `(surface, bottom, question) -> verdict`, or its `"package.module:function"`, which must be
            code that you trust; `None` for the row's table of facts.
        reward: the F1 over `"word"`s or `"character"`s; the paper names both without choosing.
        turns, wording: as in `QueryEnvironment`.

    Raises:
        ValueError: an option is outside its range, or the file does not contain puzzles.
    """

    name = "situation_puzzles"
    state_type = SituationPuzzlesState
    task_columns = ("surface", "bottom", "questions", "verdicts", "slots")
    open_actions = True
    rules = (
        "Find out what happened by yes-or-no questions such as <interact>Was it cold?</interact>, each answered "
        "Yes, No or Unknown. Tell it with <answer>...</answer>."
    )

    path: str | None = None
    slots: Annotated[int, Range(1, len(SLOTS))] = 3
    values: Annotated[int, Range(2, len(SLOTS[0]))] = 6
    judge: Judge | str | None = None
    reward: Literal["word", "character"] = "word"
    turns: Count = 15
    wording: Literal["paper", "brief"] = "paper"

    def __post_init__(self) -> None:
        if self.path is not None and not isinstance(self.path, str):
            raise ValueError(f"path must be the path of a file, as text, got {self.path!r}; name a file.")
        super().__post_init__()
        judge = self.judge
        self._judge = cast(Judge, find("judge", {}, judge)) if isinstance(judge, str) else judge
        self._puzzles = () if self.path is None else read_puzzles(self.path)

    @property
    def hypotheses_known(self) -> bool:
        """Whether stories consist of known words, so that the possible ones can be listed."""
        return self.path is None

    def sample_task(self, seed: int) -> dict[str, Any]:
        """A puzzle of the file or a generated one, from the split of the seed."""
        split, index = split_of(seed)
        if self._puzzles:
            cut = len(self._puzzles) * 4 // 5
            part = self._puzzles[:cut] if split == "train" else self._puzzles[cut:]
            surface, bottom = part[index % len(part)]
            return {"surface": surface, "bottom": bottom, "questions": [], "verdicts": [], "slots": []}
        rng = stream(index % TASKS[split], self.name, split, self.slots, self.values)
        slots = [list(words[: self.values]) for words in SLOTS[: self.slots]]
        truth = [rng.choice(words) for words in slots]
        asked = ["{}?"] * self.slots if self.wording == "brief" else _ASKED
        return {
            "surface": f"Something odd happened. Find out {', '.join(_NAMED[: self.slots])}: one word each, in order.",
            "bottom": " ".join(truth),
            "questions": [asked[slot].format(word) for slot, words in enumerate(slots) for word in words],
            "verdicts": [YES if word == truth[slot] else NO for slot, words in enumerate(slots) for word in words],
            "slots": slots,
        }

    def initial_state(self, task: Mapping[str, Any], seed: int) -> SituationPuzzlesState:
        """The state of a task row, before any question.

        Raises:
            ValueError: surface or bottom is not text, or the table of facts is incomplete.
        """
        surface, bottom = _text("surface", task["surface"]), _text("bottom", task["bottom"])
        questions, verdicts = tuple(task["questions"]), tuple(task["verdicts"])
        slots = tuple(tuple(words) for words in task["slots"])
        if len(questions) != len(verdicts) or (slots and sum(map(len, slots)) != len(questions)):
            raise ValueError(
                "a table of facts must have a verdict for each question, and a question for each word of the slots, "
                f"got {len(questions)} questions, {len(verdicts)} verdicts and {sum(map(len, slots))} words; add them."
            )
        FactJudge(dict(zip(questions, verdicts, strict=True)))  # refuses other verdicts
        parts: dict[str, Any] = {"surface": surface, "bottom": bottom, "questions": questions, "verdicts": verdicts}
        return SituationPuzzlesState(seed=seed, left=self.turns, slots=slots, **parts)

    def legal_actions(self, state: SituationPuzzlesState) -> tuple[str, ...]:
        """Some of the actions: the known questions, some unknown ones, and as many answers as a part has words."""
        if state.status != "active":
            return ()
        decoys = _DECOYS_BRIEF if self.wording == "brief" else _DECOYS
        rows = range(max(map(len, state.slots), default=1))
        stories = [" ".join(words[row % len(words)] for words in state.slots) or "Nobody knows." for row in rows]
        questions = dict.fromkeys((*state.questions, *decoys))
        return (*(f"{INTERACT} {text}" for text in questions), *(f"{ANSWER} {text}" for text in stories))

    def judged(self, state: SituationPuzzlesState, question: str, reply: str) -> SituationPuzzlesState:
        """The state after a question and the judge's reply; a reply that is not a verdict counts as Unknown."""
        return self._spent(_with_reply(state, question, reply))

    def metrics(self, state: SituationPuzzlesState) -> dict[str, float]:
        """As in `QueryEnvironment`, with `success` for a word F1 of 1; also `f1_word`, `f1_character`, and `unknown`,
        the share of queries without a Yes or No."""
        answer = state.answer or ""
        words, characters = (token_f1(answer, state.bottom, level) for level in ("word", "character"))
        blank = sum(reply not in (YES, NO) for reply in state.replies) / max(len(state.replies), 1)
        common = {**super().metrics(state), "success": float(words == 1)}
        return {**common, "f1_word": words, "f1_character": characters, "unknown": blank}

    def _opening(self, state: SituationPuzzlesState) -> str:
        return state.surface if self.wording == "brief" else _PROMPT.replace("{puzzle}", state.surface)

    def _feedback(self, state: SituationPuzzlesState) -> str:
        if self.wording == "brief":
            return f"{state.replies[-1]} {state.queries[-1].rstrip('?')}"
        return state.replies[-1]

    def _asked(self, state: SituationPuzzlesState, content: str) -> SituationPuzzlesState | None:
        if not self.is_question(content):
            return None
        judge = self._judge or FactJudge(dict(zip(state.questions, state.verdicts, strict=True)))
        return _with_reply(state, content, judge(state.surface, state.bottom, content))

    @staticmethod
    def is_question(content: str) -> bool:
        """Whether a query reaches the judge: any text of 1 to `MAX_TEXT` characters."""
        return 0 < len(content) <= MAX_TEXT

    def _read_answer(self, state: SituationPuzzlesState, content: str) -> str | None:
        return content

    def gold_answer(self, state: SituationPuzzlesState) -> tuple[str, str]:
        return "<answer>", state.bottom

    def _reward(self, state: SituationPuzzlesState, answer: str) -> float:
        return token_f1(answer, state.bottom, self.reward)


def _with_reply(state: SituationPuzzlesState, question: str, reply: str) -> SituationPuzzlesState:
    reply = reply if reply in VERDICTS else UNKNOWN
    return replace(state, queries=(*state.queries, question), replies=(*state.replies, reply))


@functools.lru_cache(maxsize=8)
def read_puzzles(path: str) -> tuple[tuple[str, str], ...]:
    """The surfaces and bottoms of a file in AR-Bench's format: a JSON list of objects with these texts.

    Raises:
        ValueError: the file cannot be read, or has fewer than five puzzles.
    """
    try:
        if not Path(path).is_file():  # reading a pipe would wait, and a device may have no end
            raise FileNotFoundError(path)
        puzzles = tuple((_text("surface", row["surface"]), _text("bottom", row["bottom"])) for row in read_json(path))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"a file of puzzles must be a JSON list of objects with the texts surface and bottom, got {path!r} "
            f"({type(error).__name__}); name another file."
        ) from None
    if len(puzzles) < 5:
        raise ValueError(f"a file must hold at least 5 puzzles, got {len(puzzles)} in {path!r}; name another file.")
    return puzzles


def _text(name: str, text: Any) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEXT:
        raise ValueError(f"a {name} must be text of 1 to {MAX_TEXT} characters, got {repr(text)[:60]}; correct it.")
    return " ".join(text.split())


# Figure 7. The paper lost its line breaks; these are ours.
_PROMPT = """\
Let's play a situation puzzle game. I'll give you a puzzle. You can interact with me for several turns during the \
question phase to reach the final answer. For each turn, you will:
- Review all previous questions and feedback.
- Ask me a yes-or-no question inside <interact> and </interact>.
- I will answer your latest question with "Yes", "No", or "Unknown".
- Repeat the process until you are confident in the answer.
If you believe you have confidently determined the correct solution, present your answer inside <answer> and </answer>.
Now, here's the puzzle:
Puzzle: {puzzle}"""
