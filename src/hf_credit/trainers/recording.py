"""Records of a run: its settings and log, episodes with their credit, and the table of completions."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from transformers import PreTrainedTokenizerBase, TrainerCallback

from hf_credit import pictures
from hf_credit.collectors import RolloutBatch
from hf_credit.content import Image
from hf_credit.evaluation.credited import (
    EPISODES_FILE,
    CreditedEpisode,
    CreditedReply,
    credited_episodes,
    new_context,
    read_episodes,
)
from hf_credit.evaluation.recorded_play import recorded_demonstrations
from hf_credit.evaluation.runs import CONFIG_FILE, FACTS_FILE, LOG_FILE, read_log, versions, write_config
from hf_credit.evaluation.traces import RecordedState
from hf_credit.files import append, remove, write, write_json
from hf_credit.methods import DecisionCredit, DecisionCredits, Method, make
from hf_credit.redaction import redacted, written_out
from hf_credit.rollouts import Chat, Episode, Interaction, LocalContext, MethodContext
from hf_credit.rollouts.media import images_of
from hf_credit.rollouts.rows import one_number
from hf_credit.trainers.callbacks import EpisodeCallback
from hf_credit.words import cut

logger = logging.getLogger(__name__)

MOST_BYTES = 16 * 2**20
"""The size of the file of episodes above which every second update is dropped, and half as many are recorded."""

_IMAGE_BYTES = 16  # that count as one byte of text
_PRINTED = 2  # episodes, unless `num_completions_to_print` says otherwise
_MOST_OF_A_TEXT, _MOST_OF_AN_EPISODE = 2_000, 10_000  # printed characters


class RunRecorder(TrainerCallback):
    """Writes the log of a training to its output folder, and the settings and the facts of the run if they are given.

    Args:
        config: every setting, as plain values.
        facts: further values to record, such as the hardware and the number of parameters.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, facts: Mapping[str, Any] | None = None) -> None:
        self.config, self.facts = config, facts
        self._begun = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._begun = bool(state.is_world_process_zero)
        if not self._begun:
            return
        folder = Path(args.output_dir)
        if self.config is not None:
            write_config(folder / CONFIG_FILE, self.config)
        if self.facts is not None:
            write_json(folder / FACTS_FILE, {**redacted(self.facts), "versions": versions()})
        # A new run starts a new log; a resumed run drops the entries after its checkpoint.
        known = read_log(folder / LOG_FILE) if state.global_step else ()
        write(folder / LOG_FILE, "".join(_line(entry) for entry in known if entry["step"] <= state.global_step))

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        if self._begun:
            try:
                append(Path(args.output_dir) / LOG_FILE, _line({**(logs or {}), "step": state.global_step}))
            except OSError as error:  # a record must not stop the training
                logger.warning("update %d and later ones are not in %s: %s", state.global_step, LOG_FILE, error)
                self._begun = False


def episodes_of_runs(path: str, chat: Chat, interaction: Interaction[Any]) -> Iterator[tuple[str, Episode]]:
    """Yields the whole episodes that runs recorded, played again, each with its first state as JSON."""
    for one in recorded_demonstrations(path, chat, interaction)[0]:
        if not one.begun and not isinstance(one.episode.decisions[0].state, RecordedState):  # as of a trace
            yield one.task, one.episode


class EpisodeRecorder(EpisodeCallback):
    """Writes a sample of the training episodes, with the credit of their decisions, to `episodes.jsonl`.

    It records the first update and then every `logging_steps`-th: of each, the `episodes` task rows of the main
    process with the largest credit, and of each row the episode that has it. When the file exceeds `max_bytes`, every
    second recorded update is dropped, and from then on updates are recorded half as often. Images are files of their
    own, each once, and count a sixteenth.

    Args:
        episodes: maximum number of episodes of an update; 0 records nothing.
        max_bytes: maximum size of the file.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, episodes: int, max_bytes: int = MOST_BYTES) -> None:
        self.tokenizer = tokenizer
        self.episodes = episodes
        self.max_bytes = max_bytes
        self._path: Path | None = None  # set during a run, on the main process
        self._every = self._next = 1

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not (self.episodes and state.is_world_process_zero):
            return
        self._path = Path(args.output_dir) / EPISODES_FILE
        self._every = max(int(state.logging_steps), 1)
        self._next = state.global_step + 1
        # A new run starts a new file; a resumed run drops the episodes after its checkpoint.
        if state.global_step:
            try:
                kept = [episode for episode in read_episodes(self._path.parent) if episode.update <= state.global_step]
            except ValueError as error:
                logger.warning("discarded the episodes in %s: %s", EPISODES_FILE, error)
                kept = []
            self._next = self._multiple_from(state.global_step + 1)
            self._write(kept)
        else:
            remove(self._path)
            pictures.forget(self._path.parent)

    def on_episodes(self, trainer: Any, collected: RolloutBatch, advantages: DecisionCredits) -> None:
        update = trainer.state.global_step + 1
        if self._path is None or update < self._next or not trainer.model.training:
            return
        self._next = self._multiple_from(update + 1)
        others: dict[str, dict[str, float]] = {}
        interaction = None  # which knows the tools that were offered
        engine, method = trainer.engine, getattr(trainer, "method", None)  # a user's own trainer may lack either
        if engine is not None:
            interaction = engine.interaction
        if engine is not None and method is not None:
            try:
                others = credit_of_others(method, collected, LocalContext(engine))
            except Exception:  # a record must not stop the training
                logger.warning("update %d is recorded without the credit of other methods", update, exc_info=True)
        found = credited_episodes(collected, advantages, self.tokenizer, update, self.episodes, others, interaction)
        folder = self._path.parent
        try:
            append(self._path, "".join(f"{episode.shortened().to_json(folder)}\n" for episode in found))
            images = sum(path.stat().st_size for path in folder.glob("pictures/*.png"))
            if self._path.stat().st_size + images / _IMAGE_BYTES > self.max_bytes:
                episodes = read_episodes(folder)
                kept = set(sorted({episode.update for episode in episodes})[::2])
                self._write([episode for episode in episodes if episode.update in kept])
                self._every *= 2
                self._next = self._multiple_from(update + 1)
        except OSError as error:
            logger.warning("update %d and later ones are not in %s: %s", update, EPISODES_FILE, error)
            self._path = None

    def _multiple_from(self, update: int) -> int:
        """The first update to record, from `update` on."""
        return -(-update // self._every) * self._every

    def _write(self, episodes: Sequence[CreditedEpisode]) -> None:
        assert self._path is not None
        text = "".join(f"{one.to_json(self._path.parent)}\n" for one in episodes)
        write(self._path, text)
        pictures.forget(self._path.parent, but=text)


class CompletionsTable(EpisodeCallback):
    """Prints some episodes of a logged update, and adds all decisions to the table that goes to a file and trackers.

    It prints the first episode of each of the first `num_completions_to_print` task rows of the main process.
    """

    def __init__(self) -> None:
        self._printed: list[str] = []

    def on_episodes(self, trainer: Any, collected: RolloutBatch, advantages: DecisionCredits) -> None:
        tokenizer = trainer.chat.tokenizer
        found = credited_episodes(collected, advantages, tokenizer, trainer.state.global_step + 1)
        before = trainer.ranks.rank_offset(len(found))
        rows = [row for number, episode in enumerate(found, before) for row in log_rows(episode, number)]
        if trainer.chat.media.unsampled and trainer.args.log_multimodal:  # else no model that sees
            rows = [row | {"images": own} for row, own in zip(rows, _new_images(collected), strict=True)]
        trainer.show_completions(completion_columns(trainer.ranks.gather(rows)))
        if trainer.model.training:
            pairs = reversed(list(zip(collected.trained, advantages, strict=True)))
            first = {sample.instance: (sample.episode, credit) for sample, credit in pairs}
            most = trainer.args.num_completions_to_print
            shown = [first[place] for place in sorted(first)[: _PRINTED if most is None else max(most, 0)]]
            self._printed = [transcript(*pair, tokenizer, most=_MOST_OF_A_TEXT) for pair in shown]

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            for text in self._printed:
                shown = Text(cut(text, _MOST_OF_AN_EPISODE))
                shown.highlight_regex(r"(?m)^--- .*$", "bold cyan")
                Console().print(Panel(shown, title=f"Step {state.global_step}"))
        self._printed = []


def transcript(
    episode: Episode, credit: Sequence[DecisionCredit], tokenizer: PreTrainedTokenizerBase, most: int | None = None
) -> str:
    """Writes an episode as the policy reads and writes it, with special tokens, and the credit of each reply.

    A context that continues an earlier one is written from there on. Control characters are written as codes. A text
    with more than `most` characters is cut in its middle.
    """

    def written(ids: Sequence[int]) -> str:
        text = str(tokenizer.decode(list(ids)))
        return written_out(text if most is None else cut(text, most))

    lines = []
    for place, (decision, own) in enumerate(zip(episode.decisions, credit, strict=True)):
        advantage = one_number(own)
        credited = "not trained on" if advantage is None else f"advantage {advantage:+.3g}"
        read = new_context(episode.decisions[:place], decision)
        lines += [
            f"--- {decision.role} reads {len(read)} tokens ({len(decision.context_ids)} in all)",
            written(read),
            f"--- {decision.role} writes {len(decision.action_ids)} tokens, {credited}",
            written(decision.action_ids),
        ]
    reason = f" ({written_out(episode.error)})" if episode.error else ""
    return "\n".join([*lines, f"--- ended: {episode.ending}{reason}, outcome {episode.outcome:g}", ""])


def log_rows(episode: CreditedEpisode, number: int) -> list[dict[str, Any]]:
    """The rows of an episode in the table of completions: one for each decision that no earlier episode contains.

    Args:
        episode: with the credit of its decisions.
        number: the episode's index in its update.

    Returns:
        Rows with `prompt`, the part of the context that was new to the policy; `completion`, its reply; `advantage`,
        its credit: the mean if it has token credit, NaN if it is not trained on; `rewards` by name; and further
        columns in `extra`.
    """
    return [
        {
            "prompt": decision.context,
            "completion": decision.reply,
            "advantage": _or_nan(decision.credit),
            "rewards": {
                "reward": decision.reward,
                "verdict": _or_nan(decision.verdict),
                "outcome": _or_nan(episode.outcome),
            },
            "extra": {
                "episode": number,
                "turn": turn,
                "role": decision.role,
                "event": decision.event,
                "ending": episode.ending,
                "alternatives": "\n".join(_in_a_line(other) for other in decision.alternatives),
            },
        }
        for turn, decision in enumerate(episode.decisions)
        if not decision.inherited
    ]


def completion_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns of the table of completions that TRL stores and sends to trackers, without those that say nothing.

    Args:
        rows: from `log_rows`, any number; they may have `images`.
    """
    images = [[image.pil() for image in row.get("images", ())] for row in rows]
    rewards, extra = (
        {name: [row[group][name] for row in rows] for name in (rows[0][group] if rows else ())}
        for group in ("rewards", "extra")
    )
    if all(map(math.isnan, rewards.get("verdict", ()))):
        rewards.pop("verdict", None)
    if extra.get("event") == extra.get("role"):
        extra.pop("event", None)
    return {
        "images": images if any(images) else [],  # which TRL takes for none, and then has no such column
        "prompt": [[{"role": "user", "content": row["prompt"]}] for row in rows],
        "completion": [[{"role": "assistant", "content": row["completion"]}] for row in rows],
        "advantages": [row["advantage"] for row in rows],
        "rewards": rewards,
        "extra": extra,
    }


def _new_images(collected: RolloutBatch) -> Iterator[list[Image]]:
    """Yields the images of the new part of the context of each decision, in the order of `log_rows`."""
    for episode in collected.episodes:
        for place in range(episode.prefix_length, len(episode.decisions)):
            yield images_of(new_context(episode.decisions[:place], episode.decisions[place]))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _in_a_line(other: CreditedReply) -> str:
    outcomes = ", ".join(f"{outcome:.3g}" for outcome in other.outcomes) or "unknown"
    credit = "not trained on" if other.credit is None else f"advantage {other.credit:+.3g}"
    return f"{other.reply!r}: outcomes {outcomes}, {credit}"


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, default=float) + "\n"


OTHERS = ("outcome_reward", "rloo", "turn_credit", "magrpo", "replay_loo", "verifiable_process")
"""Methods that need only the rollouts: neither a critic, a frozen copy nor further episodes."""


def credit_of_others(method: Method, collected: RolloutBatch, context: MethodContext) -> dict[str, dict[str, float]]:
    """Returns the credit of each decision, by method and id, for those of `OTHERS` that the rollouts suffice for.

    Methods differ in the scale of their credit: compare signs and orders, not sizes.

    Args:
        method: the method that collected the rollouts, bound to the Interaction; it is left out.
        collected: the rollouts of this process; estimators compare only these.
    """
    credits = {}
    for name in OTHERS:
        if name == method.name:
            continue
        try:
            other = replace(make(name), collector=method.collector).bind(context.interaction)
        except ValueError:  # the collector does not give what it needs
            continue
        credit = other.estimator(collected, context, other.memory).decisions
        numbers = {decision: one_number(value) for decision, value in credit.items()}
        credits[name] = {decision: value for decision, value in numbers.items() if value is not None}
    return credits
