"""Where training episodes begin: late in a known successful walk at first, and earlier as they succeed.

A reverse curriculum (Florensa et al., arXiv:1707.05300; for language models R3, arXiv:2402.05808; for each task, as in
AdaBack, arXiv:2506.18110). An episode begins h steps before the end of a walk that succeeded, where the outcome is in
reach. With success s of the episodes that begin there and the sufficient success p,

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

from hf_credit.collectors import RolloutBatch
from hf_credit.evaluation.recorded_play import recorded_demonstrations
from hf_credit.policies.scripted import Walk, later_start, player_of, success_in, success_of, walk, walk_again
from hf_credit.rollouts import Chat, Episode, Interaction, RolloutRequest
from hf_credit.rollouts.arrivals import released
from hf_credit.rollouts.capabilities import Batched, Replayable, in_threads, require_replayable
from hf_credit.rollouts.method_context import LocalContext

FIRST, AT_HORIZON = 0.25, 0.5
"""The shares of tasks that begin at their first state, and at the horizon; the others begin uniformly after it."""

_SUCCEEDED = 1.0  # as `hf-credit warm-up` learns from
_MOST_USES = 8  # of an own success: a few that come again and again are learned by heart
_MOST_WALKS, _MOST_CHARACTERS = 4096, 2**24  # of own successes
_MOST_TASKS = 2**16  # with a horizon of their own


@dataclass(frozen=True, kw_only=True)
class KnownWalk:
    """A walk that succeeded, as plain values.

    Attributes:
        replies: in the order of the decisions.
        row: its task row as JSON; empty for the row that it begins for.
        state: in place of the row, its first state as JSON.
        uses: number of task rows that began in it.
    """

    replies: tuple[str, ...]
    row: str = ""
    state: str = ""
    uses: int = 0

    @property
    def key(self) -> str:
        """Identifies its task."""
        return _digest(self.row or self.state)


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where the episodes of one task row begin, as plain values.

    Attributes:
        key: of the task; empty for a first state whose success moves nothing.
        walk: that they begin in; `None` if it could not be played.
        left, length: number of steps up to its end, and in all. With both equal they begin at the first state.
        at_horizon: whether their success moves the horizon.
    """

    key: str = ""
    walk: KnownWalk | None = None
    left: int = 0
    length: int = 0
    at_horizon: bool = False


@dataclass(frozen=True, kw_only=True)
class News:
    """What a process learned of starts in an update.

    Attributes:
        begun: each start of a task with a walk, and the mean success of its episodes if it moves the horizon.
        walks: own successes.
    """

    begun: list[tuple[Start, float | None]]
    walks: list[KnownWalk]


class Starts:
    """Draws where the episodes of an update begin, and moves the horizons by their success.

    It is the same on every process: only `learn` changes it, by what `seen` returned on all of them.

    Args:
        source: of walks: `"oracle"`, the play of the task's oracle or scripted player; `"own"`, successes of this run
            from first states; or a file of recorded episodes. The walks of the latter two are of other tasks than the
            row that begins in them.
        success: p, in (0, 1).
        interaction: what training plays.
        chat: renders messages to tokens.

    Raises:
        ValueError: the Interaction cannot be replayed or has no player, or the file has no successful walk.
        OSError: the file cannot be read.
    """

    def __init__(self, source: str, success: float, interaction: Interaction[Any], chat: Chat) -> None:
        require_replayable(interaction, f"starts={source!r}")
        if source not in ("oracle", "own") and Replayable(interaction).acts:
            raise ValueError(
                f"starts must not play recorded actions again that act outside of this process, got {source!r} for "
                f"{interaction.name!r}; set it to 'own'."
            )
        self.source, self.success, self.interaction, self.chat = source, success, interaction, chat
        self.player = player_of(interaction, 1.0) if source == "oracle" else None
        self.horizon, self.longest = 1.0, 1
        self.horizons: dict[str, float] = {}  # of tasks that were seen before, the latest last
        self.walks: dict[str, KnownWalk] = {}  # by task, the latest last
        if source in ("oracle", "own"):
            return
        for one in recorded_demonstrations(source, chat, interaction)[0]:
            if success_of(one.episode) >= _SUCCEEDED:
                self._add(KnownWalk(replies=_replies(one.episode), state=one.task))
        if not self.walks:
            raise ValueError(
                f"starts must name a file with a successful episode, got none in {source!r}; record others, or set it "
                "to 'own'."
            )

    # An update ----------------------------------------------------------------------------------------------------

    def drawn(self, rows: Sequence[Mapping[str, Any]], context: LocalContext) -> list[Start]:
        """Draws where the task rows of this process begin, and tells the context."""
        archived = [one for one in self.walks.values() if self._is_open(one.key) and self._is_fresh(one)]
        draws = context.draws("starts")
        archived = draws.sample(archived, min(len(archived), len(rows)))
        wanted: dict[int, tuple[str, KnownWalk | None]] = {}
        # Each uniform in [0, 1), and spread evenly: of four rows one begins at its first state.
        offset = draws.random()
        shares = [(number + offset) / len(rows) for number in draws.sample(range(len(rows)), len(rows))]
        for place, row in enumerate(rows):
            if shares[place] < FIRST:
                continue
            if self.player is None and archived:
                wanted[place] = archived[-1].key, archived.pop()
            elif self.player is not None and self._is_open(key := _digest(_as_json(row))):
                wanted[place] = key, None
        played = self._played(rows, {place: known for place, (_, known) in wanted.items()}, context)
        starts = [Start() for _ in rows]
        for place, (key, known) in wanted.items():
            steps = played[place][0] if place in played else []
            # A walk of another task than the row's is no first state of the row.
            left = min(int(self.horizons.get(key, self.horizon)), len(steps) - (known is not None))
            if left > 0 and shares[place] >= FIRST + AT_HORIZON:
                left = draws.randint(1, left)
            starts[place] = Start(
                key=key,
                walk=known or KnownWalk(replies=tuple(reply for *_, replies in steps for reply in replies)),
                left=max(left, 0),
                length=len(steps),
                at_horizon=shares[place] < FIRST + AT_HORIZON,
            )
        self._tell(rows, starts, played, context)
        return starts

    def read(self, values: Sequence[Mapping[str, Any]]) -> list[Start]:
        """Returns starts that `dataclasses.asdict` wrote."""
        return [Start(**{**one, "walk": one["walk"] and KnownWalk(**one["walk"])}) for one in values]

    def restore(self, rows: Sequence[Mapping[str, Any]], starts: Sequence[Start], context: LocalContext) -> None:
        """Tells a context starts that were drawn before."""
        known = {place: one.walk for place, one in enumerate(starts) if 0 < one.left < one.length}
        self._tell(rows, starts, self._played(rows, known, context), context)

    def seen(
        self,
        starts: Sequence[Start],
        rows: Sequence[Mapping[str, Any]],
        collected: RolloutBatch,
        context: LocalContext,
    ) -> tuple[RolloutBatch, News]:
        """Returns the rollouts, those that began later marked, and what `learn` takes."""
        marked = [replace(one, later=one.instance in context.starts) for one in collected.rollouts]
        successes: dict[int, list[float]] = {}
        walks: dict[int, KnownWalk] = {}
        for one in marked:
            success = success_of(one.episode)
            if one.trained and one.counted and not math.isnan(success):
                successes.setdefault(one.instance, []).append(success)
                if success >= _SUCCEEDED and self.source == "own" and not one.later:
                    row = _as_json(rows[one.instance])
                    walks.setdefault(one.instance, KnownWalk(replies=_replies(one.episode), row=row))
        begun = [
            (one, fmean(successes[place]) if one.at_horizon and one.left and place in successes else None)
            for place, one in enumerate(starts)
            if one.key
        ]
        context.mean("starts/success", [success for _, success in begun if success is not None])
        context.mean("starts/horizon", [starts[place].left for place in context.starts])
        context.mean("starts/failed", [float(not one.left) for one, _ in begun])
        context.log("starts/walks", len(self.walks))
        return replace(collected, rollouts=tuple(marked)), News(begun=begun, walks=[*walks.values()])

    def learn(self, of_processes: Sequence[News]) -> None:
        """Moves the horizons, and adds own successes to the archive.

        Args:
            of_processes: in their order.
        """
        fresh: list[float] = []
        for start, success in (pair for one in of_processes for pair in one.begun):
            self.longest = max(self.longest, start.length)
            if (known := self.walks.get(start.key)) is not None:
                self.walks[start.key] = replace(known, uses=known.uses + 1)
            if not start.left:  # nothing is tried again
                self.horizons[start.key] = math.inf
            elif success is not None:
                fresh += [] if start.key in self.horizons else [success]
                moved = self._moved(self.horizons.pop(start.key, self.horizon), success)
                self.horizons[start.key] = math.inf if moved >= start.length else moved
        if fresh:
            moved = self._moved(self.horizon, fmean(fresh))
            self.horizon = math.inf if moved >= self.longest else moved
        for key in [*self.horizons][:-_MOST_TASKS]:
            del self.horizons[key]
        for walk_of_one in (known for one in of_processes for known in one.walks):
            self._add(walk_of_one)
        size = sum(map(_size, self.walks.values()))
        while self.source == "own" and (len(self.walks) > _MOST_WALKS or size > _MOST_CHARACTERS):
            size -= _size(self.walks.pop(next(iter(self.walks))))

    # Checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What changes in a run, as plain values."""
        walks = [asdict(one) for one in self.walks.values()]
        return {"horizon": self.horizon, "longest": self.longest, "horizons": dict(self.horizons), "walks": walks}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` gave."""
        self.horizon, self.longest, self.horizons = state["horizon"], state["longest"], dict(state["horizons"])
        self.walks = {}
        for one in state["walks"]:
            self._add(KnownWalk(**one))

    # ----------------------------------------------------------------------------------------------------------------

    def _add(self, known: KnownWalk) -> None:
        self.walks.pop(known.key, None)
        self.walks[known.key] = known

    def _is_open(self, key: str) -> bool:
        """Whether a task may begin later."""
        return self.horizons.get(key, self.horizon) < math.inf

    def _is_fresh(self, known: KnownWalk) -> bool:
        return len(known.replies) > 1 and (self.source != "own" or known.uses < _MOST_USES)

    def _moved(self, horizon: float, success: float) -> float:
        return max(1.0, horizon + max(2.0, horizon / 4) * (success - self.success))

    def _played(
        self, rows: Sequence[Mapping[str, Any]], known: Mapping[int, KnownWalk | None], context: LocalContext
    ) -> dict[int, Walk]:
        """The walks of task rows, by their places; without those that fail or do not succeed."""

        def play(place: int) -> Walk:
            one = known[place]
            if one is None:
                assert self.player is not None
                return walk(self.interaction, self.player, RolloutRequest(task=rows[place]))
            begun = RolloutRequest[Any](task=json.loads(one.row) if one.row else rows[place])
            if one.state:
                begun = replace(begun, state=Replayable(self.interaction).state_from_json(one.state))
            return walk_again(self.interaction, one.replies, begun)

        def succeeded(place: int) -> Walk | None:
            walked = play(place)
            return walked if success_in(self.interaction, walked[1]) >= _SUCCEEDED else None

        threads = Batched(self.interaction).side_by_side
        with released(None if context.engine is None or threads == 1 else context.engine.lock):
            found = in_threads(threads, succeeded, [*known])
        for one in found:
            if isinstance(one, Exception):
                context.failures.add(one, "a walk to begin in")
        return {place: one for place, one in zip(known, found, strict=True) if isinstance(one, tuple)}

    def _tell(
        self,
        rows: Sequence[Mapping[str, Any]],
        starts: Sequence[Start],
        played: Mapping[int, Walk],
        context: LocalContext,
    ) -> None:
        context.starts = {
            place: replace(
                later_start(self.interaction, self.chat, played[place], one.length - one.left), task=rows[place]
            )
            for place, one in enumerate(starts)
            if place in played and 0 < one.left < one.length
        }


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _as_json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def _replies(episode: Episode) -> tuple[str, ...]:
    return tuple(one.action_text for one in episode.decisions)


def _size(known: KnownWalk) -> int:
    return len(known.row) + len(known.state) + sum(map(len, known.replies))
