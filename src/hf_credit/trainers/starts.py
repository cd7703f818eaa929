"""Where training episodes begin: late in a known successful walk at first, and earlier as they succeed.

A reverse curriculum (Florensa et al., arXiv:1707.05300; for language models R3, arXiv:2402.05808; for each task, as in
AdaBack, arXiv:2506.18110). An episode begins h steps before the end of a walk that succeeded, where the outcome is in
reach; h is rounded up or down at random, to h on average. With success s of the episodes that begin there and the
sufficient success p,

    h <- h + max(2, h / 4) (s - p),   h >= 1,

whose fixed point is s = p. A task that was seen before has an h of its own, all new ones share one. A task whose h
reaches the length of its walk begins at its first state for good, and when all new ones do, training is plain.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from hf_credit.collectors import Collector, RolloutBatch
from hf_credit.content import plain_image
from hf_credit.environments.randomness import stream
from hf_credit.policies.scripted import Walk, player_of, recorded, success_of, walk, walk_again
from hf_credit.rollouts import Chat, Episode, Interaction, RolloutRequest
from hf_credit.rollouts.arrivals import released
from hf_credit.rollouts.capabilities import Batched, Replayable, in_threads, require_replayable
from hf_credit.rollouts.interaction import or_error
from hf_credit.rollouts.method_context import LocalContext
from hf_credit.rollouts.replay import begun_later
from hf_credit.trainers.recording import episodes_of_runs
from hf_credit.trust import is_code

_FIRST, _LATER = 0.25, 0.75  # that share of rows begins first, those up to this at the horizon, others uniformly later
_SUCCEEDED = 1.0  # as `hf-credit warm-up` learns from
_MOST_USES = 8  # of an own success: a few that come again and again are learned by heart
_MOST_CHARACTERS = 2**24  # of own successes
_MOST_TASKS = 2**16  # with a horizon of their own


@dataclass(frozen=True, kw_only=True)
class Start:
    """A walk of a task, and where an episode begins in it; plain values.

    Attributes:
        task: as JSON: the task row or, of a recorded walk, the first state.
        replies: in the order of the decisions; empty where the oracle plays.
        share: uniform in [0, 1); it decides between the horizon and a later state.
        horizon: number of steps before the end of the walk.
        left, length: number of steps that are left there, and of the walk; 0 if it could not be played.
        uses: number of updates in which rows began in it before.
    """

    task: str
    replies: tuple[str, ...] = ()
    share: float = 0.0
    horizon: float = 1.0
    left: int = 0
    length: int = 0
    uses: int = 0

    @property
    def key(self) -> str:
        """Identifies the task."""
        return hashlib.blake2b(self.task.encode(errors="replace"), digest_size=16).hexdigest()

    @property
    def characters(self) -> int:
        """The number of characters of its task, which may have images, and its replies."""
        return len(self.task) + sum(map(len, self.replies))


Rows = Sequence[Mapping[str, Any]]
Begun = tuple[str, int, int, float, float | None]  # key, left, length and horizon of a start, and the success there
News = tuple[list[Begun], list[Start]]  # with own successes, whose walks every process keeps


class Starts:
    """Draws where the episodes of an update begin, and moves the horizons by their success.

    It is the same on every process: only `learn` changes it, by what `played` returned on all of them.

    Args:
        source: of walks: `"oracle"`, the play of the task's oracle or scripted player, or of the script
            `"module:object"`; `"own"`, successes of this run from first states; or a file of recorded episodes. With
            the latter two, a row that begins later begins in the task of its walk.
        success: p, in (0, 1).
        interaction: what training plays.
        chat: renders messages to tokens.

    Raises:
        ValueError: the Interaction cannot be replayed or has no player, or the file has no successful walk.
        OSError: the file cannot be read.
    """

    def __init__(self, source: str, success: float, interaction: Interaction[Any], chat: Chat) -> None:
        require_replayable(interaction, f"starts={source!r}")
        self.success, self.interaction, self.chat = success, interaction, chat
        script = source if is_code(source) else None
        self.player = player_of(interaction, 1.0, script) if script or source == "oracle" else None
        self.own = source == "own"
        self.horizon, self.longest = 1.0, 1
        self.horizons: dict[str, float] = {}  # of tasks that were seen before, the latest last
        self.walks: dict[str, Start] = {}  # by task, the latest last
        if self.own or self.player is not None:
            return
        for state, episode in episodes_of_runs(source, chat, interaction):
            if success_of(episode) >= _SUCCEEDED and len(episode.steps) > 1:
                known = _known(episode, state)
                self.walks[known.key] = known
        if not self.walks:
            raise ValueError(
                f"starts must name a file with a successful episode of a run, got none in {source!r}; record some, or "
                "set it to 'own'."
            )

    def drawn(self, rows: Rows, context: LocalContext) -> dict[int, Start]:
        """Draws a walk to begin in for the task rows of this process, by their places; none for first states."""
        draws, everywhere = context.draws("starts"), stream(context.seed, "starts", context.update)
        known = [one for key, one in self.walks.items() if self._horizon_of(key) < math.inf]
        counts = context.gather([len(rows)])  # each walk is begun in by one process
        archived = everywhere.sample(known, min(len(known), sum(counts)))[context.process :: len(counts)]
        offset = draws.random()  # shares are uniform, but spread evenly: of four rows one begins at its first state
        starts: dict[int, Start] = {}
        for place, number in enumerate(draws.sample(range(len(rows)), len(rows))):
            if (share := (number + offset) / len(rows)) >= _FIRST and (self.player is not None or archived):
                start = archived.pop() if self.player is None else Start(task=_as_json(rows[place]))
                horizon = self._horizon_of(start.key)
                starts |= {place: replace(start, share=share, horizon=horizon)} if horizon < math.inf else {}
        return starts

    def played(
        self, drawn: Mapping[int, Start], rows: Rows, context: LocalContext, collector: Collector, memory: Any
    ) -> tuple[RolloutBatch, News]:
        """Plays an update. Returns the rollouts, those that began later marked, and what `learn` takes."""
        starts = self._placed(rows, drawn, context)
        collected = collector(rows, context, memory)
        marked = tuple(replace(one, later=one.instance in context.starts) for one in collected.rollouts)
        successes: dict[int, list[float]] = {}
        new_walks: dict[int, Start] = {}
        for one in marked:
            success = success_of(one.episode)
            begun_at = context.starts[one.instance].step if one.instance in context.starts else 0
            # Replays from states that others visited begin after the start of their task.
            if not (one.trained and one.counted and one.episode.steps_before <= begun_at) or math.isnan(success):
                continue
            successes.setdefault(one.instance, []).append(float(success >= _SUCCEEDED))
            # In a random world only the first branch draws what the walk will draw when it is played again.
            is_first = one.instance not in new_walks or not any(one.episode.branch)
            is_first &= len(one.episode.steps) > 1
            if self.own and success >= _SUCCEEDED and not one.later and is_first:
                new_walks[one.instance] = _known(one.episode, _as_json(rows[one.instance]))
        at_horizon = {place for place, one in starts.items() if one.left and one.share < _LATER and place in successes}
        begun = [
            (one.key, one.left, one.length, one.horizon, fmean(successes[place]) if place in at_horizon else None)
            for place, one in starts.items()
        ]
        context.mean("starts/success", [fmean(successes[place]) for place in starts if place in at_horizon])
        context.mean("starts/horizon", [starts[place].left for place in context.starts])
        context.mean("starts/failed", [float(not one.left) for one in starts.values()])
        context.log("starts/walks", len(self.walks))
        return replace(collected, rollouts=marked), (begun, [*new_walks.values()])

    def learn(self, news: Sequence[News]) -> None:
        """Moves the horizons, and adds own successes to the archive, by the news of all processes in their order.

        A horizon moves once, by the mean of its rows, and only by what was measured where it is: collections that were
        under way together would each move it.
        """
        fresh: list[float] = []
        by_task: dict[str, list[Begun]] = {}
        for told in (told for begun, _ in news for told in begun):
            by_task.setdefault(told[0], []).append(told)
        for key, rows in by_task.items():
            _, left, lengths, (horizon, *_), successes = zip(*rows, strict=True)
            self.longest = max(self.longest, length := max(lengths))
            known = self.walks.pop(key, None)
            if known is not None and not (self.own and (not any(left) or known.uses + 1 == _MOST_USES)):
                self.walks[key] = replace(known, uses=known.uses + 1)
            if not (measured := [success for success in successes if success is not None]):
                continue
            if key not in self.horizons:
                fresh += [fmean(measured)] if horizon == self.horizon <= length else []
            elif horizon != self.horizons[key]:
                continue
            self.horizons.pop(key, None)  # the latest is the last
            self.horizons[key] = self._moved(horizon, fmean(measured), length)
        if fresh:
            self.horizon = self._moved(self.horizon, fmean(fresh), self.longest)
        for one in (one for _, own in news for one in own):
            if self._horizon_of(key := one.key) < math.inf:
                self.walks.pop(key, None)  # the newest comes last
                self.walks[key] = one
        while len(self.horizons) > _MOST_TASKS:
            del self.horizons[next(iter(self.horizons))]
        characters = sum(one.characters for one in self.walks.values()) if self.own else 0
        while characters > _MOST_CHARACTERS:
            characters -= self.walks.pop(next(iter(self.walks))).characters

    def state(self) -> dict[str, Any]:
        """What changes in a run, as plain values."""
        walks = [asdict(one) for one in self.walks.values()]
        return {"horizon": self.horizon, "longest": self.longest, "horizons": dict(self.horizons), "walks": walks}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` gave."""
        self.horizon, self.longest, self.horizons = state["horizon"], state["longest"], dict(state["horizons"])
        kept = {one.key: one for one in (Start(**values) for values in state["walks"])}
        # Those of a file are as it has them now, in the order and with the uses of then.
        known = {key: one for key, one in kept.items() if self.own or key in self.walks}
        self.walks = known if self.own else {**known, **{key: known.get(key, one) for key, one in self.walks.items()}}

    def _placed(self, rows: Rows, starts: Mapping[int, Start], context: LocalContext) -> dict[int, Start]:
        """Plays the walks, and tells the context where task rows begin. Returns the starts with their places."""

        def play(place: int) -> Walk:
            if self.player is not None:
                return walk(self.interaction, self.player, RolloutRequest(task=rows[place]), context.progressed)
            task, state_of = starts[place].task, Replayable(self.interaction).state_from_json
            begun = RolloutRequest(task=json.loads(task)) if self.own else RolloutRequest(state=state_of(task))
            return walk_again(self.interaction, starts[place].replies, begun, context.progressed)

        engine, threads = context.engine, Batched(self.interaction).side_by_side
        threads = threads if engine is None else min(threads, engine.max_concurrent)  # others have the rest
        most = math.inf if engine is None or engine.max_context_tokens is None else engine.max_context_tokens
        with released(None if engine is None or threads == 1 else engine.lock):
            found = in_threads(threads, play, [*starts])
        placed, context.starts = dict(starts), {}
        for place, walked in zip(starts, found, strict=True):
            episode = walked
            if not isinstance(walked, Exception):
                context.progressed()
                episode = or_error(recorded, self.interaction, self.chat, walked)
            if isinstance(episode, Exception):
                context.failures.add(episode, "a walk to begin in")
            elif success_of(episode) >= _SUCCEEDED:
                start, length = starts[place], len(episode.steps)
                part = (start.share - _FIRST) / (_LATER - _FIRST)
                longest = start.horizon + part if part < 1 else math.ceil(start.horizon)
                # The first state of another task than the row's counts as a later one of it, so none begins there.
                left = min(int(longest), length - (self.player is None))
                if part >= 1:
                    left = min(left, 1 + int(left * (start.share - _LATER) / (1 - _LATER)))
                if 0 < left < length and any(len(one.context_ids) > most for one in episode.steps[length - left]):
                    what = f"a walk must fit the context of {most} tokens where episodes begin, got a longer one"
                    context.failures.add(ValueError(f"{what}; raise max_context_tokens."), "a walk to begin in")
                    continue
                placed[place] = replace(start, left=left, length=length)
                if 0 < left < length:
                    request = begun_later(self.interaction, episode, length - left)
                    context.starts = {**context.starts, place: replace(request, task=rows[place])}
        return placed

    def _horizon_of(self, task: str) -> float:
        return self.horizons.get(task, self.horizon)

    def _moved(self, horizon: float, success: float, length: int) -> float:
        here = min(horizon, length)
        moved = max(1.0, here + max(2.0, here / 4) * (success - self.success))
        return math.inf if moved >= length else moved


def _as_json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, default=plain_image)


def _known(episode: Episode, task: str) -> Start:
    return Start(task=task, replies=tuple(one.action_text for one in episode.decisions))
