"""One agent that plays an environment."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hf_credit import environments
from hf_credit.boundary import read
from hf_credit.content import Content, Text, content_of, joined
from hf_credit.environments import Environment, State
from hf_credit.environments.reseeding import reseed
from hf_credit.environments.tasks import Split, complete_task, require_task_columns, tasks
from hf_credit.options import with_parts
from hf_credit.oracles import Oracle, default_oracle, require_fit
from hf_credit.oracles.auditing import (
    Auditor,
    Interventions,
    default_auditor,
    default_interventions,
    require_auditor_fit,
)
from hf_credit.playing import Prompts
from hf_credit.rollouts.episode import Ending
from hf_credit.rollouts.interaction import Interaction, Message, Request, readable_state
from hf_credit.rollouts.scripts import OraclePlayer, Script, random_texts
from hf_credit.safe_io import parse_json
from hf_credit.trust import class_name

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True, kw_only=True)
class EnvironmentState:
    """The state of an `EnvironmentInteraction`.

    Attributes:
        world: the state of the environment.
        transcript: role and content of each message so far.
        turns: number of actions so far.
        reward: the reward of the last action.
    """

    world: State
    transcript: tuple[tuple[str, Content], ...]
    turns: int = 0
    reward: float = 0.0


class EnvironmentInteraction(Interaction[EnvironmentState]):
    """One agent that plays an environment.

    Args:
        environment: the environment.
        history, instructions, max_turns: as in `hf_credit.playing.Prompts`.

    Raises:
        ValueError: as in `Prompts`, or `history` does not fit the environment.
    """

    roles: Collection[str] = ("agent",)
    seeded = True
    turn_types: tuple[type[EnvironmentState], ...] = (EnvironmentState,)
    """The types of its states, by which they are serialised."""

    @with_parts
    def __init__(self, environment: Environment[Any], prompts: Prompts = Prompts()) -> None:
        if prompts.history == "current" and not environment.self_contained:
            raise ValueError(
                f"history must be 'append' or 'rendered' for an environment whose observations are not complete, got "
                f"'current' for {environment.name!r}; leave the default."
            )
        self.environment = environment
        self.prompts = prompts
        self.history, self.instructions = prompts.history, prompts.instructions
        self.max_turns = environment.max_turns if prompts.max_turns is None else prompts.max_turns
        self.side_by_side, self.acts = environment.slow_steps, environment.acts

    @property
    def most_live(self) -> int | None:
        return self.environment.most_live

    @property
    def name(self) -> str:
        return self.environment.name

    @property
    def replayable(self) -> bool:
        return self.environment.replayable

    @property
    def max_replies(self) -> int:  # type: ignore[override]
        return self.max_turns

    def close(self) -> None:
        """Closes the environment, if it holds anything. A later step from a state restores the state."""
        getattr(self.environment, "close", lambda: None)()

    def spec(self) -> dict[str, Any]:
        if type(self) is not EnvironmentInteraction:
            return super().spec()
        name, options = environments.spec(self.environment)
        return {"task": name, "task_options": options, **vars(self.prompts)}

    def fingerprint(self) -> dict[str, Any]:
        try:
            return {**self.spec(), "max_turns": self.max_turns}
        except ValueError:
            named = {"interaction": class_name(self), "task": class_name(self.environment)}
            return {**named, **vars(self.prompts), "max_turns": self.max_turns}

    def require_columns(self, columns: Iterable[str] | None) -> None:
        if columns is not None:
            require_task_columns(columns, self.environment)

    def tasks(self, split: Split, size: int, start: int = 0) -> Dataset:
        return tasks(self.environment, split, size, start, lazy=True)

    def default_oracle(self) -> Oracle[Any] | None:
        return default_oracle(self.environment)

    def default_auditor(self) -> Auditor[Any] | None:
        return default_auditor(self.environment)

    def default_interventions(self) -> Interventions[Any] | None:
        return default_interventions(self.environment)

    def check_oracle(self, oracle: Oracle[Any] | None) -> Oracle[Any] | None:
        oracle = self.default_oracle() if oracle is None else oracle
        if oracle is not None:
            require_fit(oracle, self.environment)
        return oracle

    def check_auditor(self, auditor: Auditor[Any] | None) -> Auditor[Any] | None:
        auditor = self.default_auditor() if auditor is None else auditor
        if auditor is not None:
            require_auditor_fit(auditor, self.environment)
        return auditor

    def action_of(self, state: EnvironmentState, reply: str) -> tuple[State, str]:
        return state.world, self.environment.read_action(reply)

    def write_action(self, action: str) -> str:
        return self.environment.write_action(action)

    def scripted_player(self, quality: float) -> Script | None:
        oracle = self.default_oracle()
        return None if oracle is None else OraclePlayer(self.environment, oracle, quality)

    def texts(self, episodes: int) -> Iterable[str] | None:
        # With tools, tasks are rows of a dataset and prompts have schemas, which only scripted play covers.
        return None if self.environment.tools else random_texts(self.environment, episodes)

    def start(self, task: Mapping[str, Any], seed: int) -> EnvironmentState:
        complete, seed = complete_task(self.environment, {**task, "seed": seed})
        world = self.environment.initial_state(complete, seed)
        return EnvironmentState(world=world, transcript=(("user", self._prompt(self.environment.observe(world))),))

    def pending(self, state: EnvironmentState) -> tuple[Request, ...]:
        if state.world.status != "active" or state.turns >= self.max_turns:
            return ()
        messages = [{"role": role, "content": content} for role, content in state.transcript]
        tools, rendered = self.environment.tools, self.history == "rendered"
        return (Request(role="agent", messages=messages, tools=tools, rendered=rendered),)

    def advance(self, state: EnvironmentState, replies: Sequence[str]) -> EnvironmentState:
        (reply,) = replies
        # An unreadable reply has the empty action.
        action = self.environment.read_action(reply)
        transition = self.environment.step(state.world, action)
        if self.history != "current":
            answer = self.environment.answers_as(action)
            transcript = (*state.transcript, ("assistant", reply), (answer, content_of(transition.observation)))
        else:
            transcript = (("user", self._prompt(transition.observation)),)
        return EnvironmentState(
            world=transition.state, transcript=transcript, turns=state.turns + 1, reward=transition.reward
        )

    def costs(self) -> Mapping[str, float]:
        return self.environment.costs()

    def outcome(self, state: EnvironmentState) -> float:
        self.environment.release(state.world)
        return self.environment.outcome(state.world)

    def reward(self, state: EnvironmentState) -> float:
        return state.reward

    @property
    def asks_for_answers(self) -> bool:
        return type(self.environment).answer_prompt is not Environment.answer_prompt

    def answer_prompt(self, state: EnvironmentState) -> str | None:
        return self.environment.answer_prompt(state.world)

    def force_answer(self, state: EnvironmentState) -> EnvironmentState:
        return dataclasses.replace(state, world=self.environment.force_answer(state.world))

    @property
    def knows_answers(self) -> bool:
        return type(self.environment).gold_answer is not Environment.gold_answer

    def gold_answer(self, state: EnvironmentState) -> tuple[str, str] | None:
        return self.environment.gold_answer(state.world)

    def ending(self, state: EnvironmentState) -> Ending:
        match state.world.status:
            case "finished":
                return Ending.FINISHED
            case "invalid":
                return Ending.INVALID_ACTION
            case _:
                return Ending.TURN_LIMIT

    def metrics(self, state: EnvironmentState) -> Mapping[str, float]:
        return self.environment.metrics(state.world)

    def with_world(self, state: EnvironmentState, world: State) -> EnvironmentState:
        observation, (role, _) = content_of(self.environment.observe(world)), state.transcript[-1]
        follows = self.history != "current" and state.turns > 0
        shown = (role, observation if follows else self._prompt(observation))
        return dataclasses.replace(state, world=world, transcript=(*state.transcript[:-1], shown))

    def reseed(self, state: EnvironmentState, seed: int) -> EnvironmentState:
        return dataclasses.replace(state, world=reseed(state.world, seed))

    def state_to_json(self, state: EnvironmentState) -> str:
        values = {**vars(state), "type": type(state).__name__, "world": json.loads(state.world.to_json())}
        return json.dumps(values, separators=(",", ":"), default=vars)

    def state_from_json(self, text: str) -> EnvironmentState:
        with readable_state(self):
            values = parse_json(text, broken_text=True)
            turn_type = {one.__name__: one for one in self.turn_types}[values.pop("type")]
            values["world"] = self.environment.state_type.from_json(json.dumps(values["world"]))
            self.environment.observe(values["world"])
            state: EnvironmentState = read(turn_type, values, "a state")
            self.pending(state)
            return state

    def context_of(self, messages: Sequence[Message]) -> Sequence[Message]:
        new = list(itertools.takewhile(lambda one: one["role"] != "assistant", reversed(messages)))[::-1]
        if self.history != "current" or len(new) == len(messages):
            return messages
        shown = joined((content_of(one["content"]) for one in new), "\n\n")
        if isinstance(shown, str):
            shown = shown.removeprefix(str(self._prompt("")))
        elif self.instructions and shown[0] == Text(self.environment.instructions):
            shown = shown[1:]
        return [{"role": "user", "content": self._prompt(shown)}]

    def _prompt(self, observation: Any) -> Content:
        shown = content_of(observation)
        return joined((self.environment.instructions, shown), "\n\n") if self.instructions else shown
