"""The policy of a board of credit, what its decisions were worth, and whoever plays a method's updates with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hf_credit.collaborations.exact_coalitions import answer_probabilities, vote_values
from hf_credit.collaborations.exact_values import exact_values
from hf_credit.collaborations.text import normalise
from hf_credit.collaborations.voting import Voting
from hf_credit.environments.actions import plain_action
from hf_credit.environments.randomness import derive
from hf_credit.environments.tasks import task_seed
from hf_credit.evaluation.exact_actions import ExactPlay, Probabilities, model_policy
from hf_credit.evaluation.play import load_policy
from hf_credit.hub.leaderboard.seasons import CreditTask, starts_of
from hf_credit.policies.generation import room_for_context, sampler
from hf_credit.rollouts import Chat, Decision, Engine, EnvironmentInteraction
from hf_credit.rollouts.method_context import LocalContext, Policy
from hf_credit.rollouts.reply_ends import end_tokens

Row = Mapping[str, Any]

_UNREADABLE = ""
"""An action that no environment knows; it stands for all that is no legal one."""

_BATCH = 64  # sequences of a pass


class PinnedPolicy:
    """A board's task and its policy, with the exact advantages that were enumerated so far.

    Of a collaboration every reply is looked at that is not below the board's floor. Of an environment it is every
    legal action, written as the environment writes it; all else that the policy may say counts as unreadable. What an
    environment draws is averaged over, whatever the seed of an episode.

    Args:
        task: the board.
        folder: of the policy.
        device: of the policy.

    Raises:
        ValueError: there is no such policy, or its decisions cannot be enumerated.
    """

    def __init__(self, task: CreditTask, folder: Path, device: str = "cpu") -> None:
        spec = task.task()
        drawn = spec.sampling
        self.task = task
        self.folder = folder
        self.device = device
        self.interaction = spec.build()
        self.network, self.tokenizer = load_policy(str(folder), device)
        self.chat = Chat(self.tokenizer, spec.chat_template_kwargs)
        generate = sampler(
            self.network,
            self.tokenizer,
            max_new_tokens=drawn.max_new_tokens,
            temperature=drawn.temperature,
            top_p=drawn.top_p,
            top_k=drawn.top_k,
        )
        self.room = room_for_context(self.network, drawn.max_new_tokens)
        self.engine = Engine(self.interaction, self.chat, generate, max_context_tokens=self.room)
        self._limits: dict[str, Any] = {
            "max_new_tokens": drawn.max_new_tokens,
            "temperature": drawn.temperature,
            "floor": task.floor,
        }
        self._known: dict[Any, dict[tuple[str, str], float]] = {}
        self._play: ExactPlay[Any] | None = None
        if isinstance(self.interaction, EnvironmentInteraction):
            environment = self.interaction.environment
            legal = model_policy(self.interaction, self.chat, self.network, drawn.temperature)

            def policy(states: Sequence[Any]) -> list[Probabilities]:
                return [{**own, _UNREADABLE: max(0.0, 1 - sum(own.values()))} for own in legal(states)]

            self._play = ExactPlay(environment, policy, {"outcome": environment.outcome})

    def rows(self, seeds: Sequence[int], repeat: int) -> list[Row]:
        """The task rows of an update. An environment draws other random numbers in each, for the same tasks."""
        starts = starts_of(self.interaction, seeds)
        if not isinstance(self.interaction, EnvironmentInteraction):
            return [{**start.task, "seed": start.seed} for start in starts]
        environment = self.interaction.environment
        return [{**environment.sample_task(seed), "seed": derive(seed, "credit board", repeat)} for seed in seeds]

    def training_rows(self, update: int) -> list[Row]:
        """The rows of an update of the warm-up, which are none that are measured on."""
        count = self.task.instances
        if isinstance(self.interaction, EnvironmentInteraction):
            return self.rows([task_seed("train", update * count + place) for place in range(count)], 0)
        rows = self.interaction.tasks("train", count, update * count)
        return [{**row, "seed": task_seed("train", update * count + place)} for place, row in enumerate(rows)]

    def key(self, decision: Decision) -> Hashable:
        """What two decisions share that are worth the same."""
        if self._play is None:
            return decision.state, decision.event, decision.action_text
        world, action = self.interaction.action_of(decision.state, decision.action_text)
        return dataclasses.replace(world, seed=0), self._legal(world, action)

    def advantage(self, decision: Decision) -> float | None:
        """Q(h, a) - V(h) of a decision; `None` of a reply less probable than the floor.

        Where several vote at once, V is the team's value and Q that with one voter's answer fixed.

        Raises:
            ValueError: the task cannot be enumerated.
        """
        if self._play is not None:
            world, action = self.interaction.action_of(decision.state, decision.action_text)
            return self._play.advantage(dataclasses.replace(world, seed=0), self._legal(world, action), "outcome")
        if decision.state not in self._known:
            self._known[decision.state] = self._enumerated(decision.state)
        return self._known[decision.state].get((decision.event, decision.action_text))

    def _legal(self, world: Any, action: str) -> str:
        assert self._play is not None
        plain = plain_action(action)
        return plain if plain in self._play.environment.legal_actions(world) else _UNREADABLE

    def _enumerated(self, state: Any) -> dict[tuple[str, str], float]:
        """The advantage of every reply that a state waits for."""
        interaction = self.interaction
        if isinstance(interaction, Voting):
            answers, scores = answer_probabilities(interaction, self.chat, self.network, state, **self._limits)
            value = vote_values(answers, scores).value
            return {
                (request.event, reply): vote_values({**answers, request.role: {reply: 1.0}}, scores).value - value
                for request in interaction.pending(state)
                for reply in answers[request.role]
                if reply is not None and interaction.answer(normalise(reply)) == reply
            }
        (values,) = exact_values(interaction, self.chat, self.network, [state], **self._limits)
        (request,) = interaction.pending(state)
        return {(request.event, text): values.advantage(text) for text in values.values}


class BoardRunner(LocalContext):
    """A runner whose frozen policy is the policy, and which reads log-probabilities anew, as a trainer does.

    Args:
        pinned: plays.
        critics: as for `LocalContext`.
        seed: of all draws.
    """

    def __init__(self, pinned: PinnedPolicy, critics: Mapping[str, Any], seed: int) -> None:
        ends = end_tokens(pinned.network, pinned.tokenizer)
        super().__init__(pinned.engine, critics, seed, frozen=pinned.engine, end_tokens=ends)
        self._pinned = pinned

    @torch.inference_mode()
    def logprobs(self, decisions: Sequence[Decision], policy: Policy = "current") -> list[tuple[float, ...]]:
        network, temperature = self._pinned.network, self._pinned.task.task().sampling.temperature
        network.eval()
        found: list[tuple[float, ...]] = []
        for first in range(0, len(decisions), _BATCH):
            part = decisions[first : first + _BATCH]
            texts = [(*one.context_ids, *one.action_ids) for one in part]
            # What stands behind a reply cannot change what comes before it, so any token fills the gaps.
            ids = torch.zeros(len(part), max(map(len, texts)), dtype=torch.long)
            for row, text in enumerate(texts):
                ids[row, : len(text)] = torch.tensor(text)
            logits = network(input_ids=ids.to(network.device), use_cache=False).logits[:, :-1].double().cpu()
            logs = (logits / temperature).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
            for row, one in enumerate(part):
                begin = len(one.context_ids) - 1
                found.append(tuple(logs[row, begin : begin + len(one.action_ids)].tolist()))
        return found
