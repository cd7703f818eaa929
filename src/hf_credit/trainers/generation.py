"""What plays the episodes of a trainer: replies of its policy, by transformers or vLLM, for all processes together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, cast

from hf_credit.policies.generation import (
    PrefixSampler,
    can_continue,
    context_positions,
    generations,
    lower_of,
    max_context_tokens,
    without_defaults,
)
from hf_credit.rollouts import Context, Engine, GenerateFn, Generation
from hf_credit.rollouts.capabilities import ReadsTokens
from hf_credit.rollouts.samplers import CONTINUATIONS
from hf_credit.trainers.ranks import SynchronizedSampler, shards_weights
from hf_credit.trainers.resumption import ResumableTrainer
from hf_credit.trainers.transfer import FrozenBase


class GeneratingTrainer(ResumableTrainer):
    """The part of a trainer that has an `engine`.

    Attributes:
        ranks: the processes, whose sampler it is.
        vllm: TRL's `VLLMGeneration`; `None` if the policy itself generates.
        adapters: of the roles; `None` if they share one policy.
        sampled: the tokens of one reply to each context, and their log-probabilities, by TRL.
        unwrapped: context that gives the policy without wrappers, for generation.
        new_client: makes a client of a vLLM server; TRL makes one on the main process only.
    """

    eos_token_ids: list[int]
    generation_config: Any
    max_completion_length: Any
    samplers: Mapping[str, GenerateFn]
    use_transformers_continuous_batching: bool
    sampled: Callable[[Sequence[Context]], tuple[Any, Any]]
    unwrapped: Callable[[], AbstractContextManager[Any]]
    new_client: Callable[[str], Any]

    def set_up_replies(self) -> None:
        """Makes what plays: vLLM or the policy itself, for all processes together, with the adapters of roles."""
        args, roles, generate = self.args, self.interaction.roles, cast(GenerateFn, self.generate_replies)
        self._continuing = self.continuing_replies()
        self.vllm = getattr(self, "vllm_generation", None)
        if self.vllm is None:
            self.generation_config.eos_token_id = self.eos_token_ids
        else:
            from hf_credit.trainers.vllm import context_length, through_vllm

            self.vllm.sync_weights = FrozenBase(self.model).restored()(self.vllm.sync_weights)
            self.vllm.generation_kwargs = {"stop_token_ids": self.eos_token_ids, **self.vllm.generation_kwargs}
            generate = through_vllm(generate, self.vllm, args)
        together = self.use_vllm or shards_weights(self.accelerator)
        seeded = self._continuing.seeded if self._continuing else None
        ranks = self.ranks = SynchronizedSampler(generate, self.accelerator, together, seeded)
        most = cast(int, self.max_completion_length)
        if self.vllm is None:
            limit = max_context_tokens(self.model, most)
        else:  # whose limit may be lower than the model's
            limit = context_positions(most, ranks.all_max(context_length(self.vllm)))
        self.engine: Engine[Any] = Engine(
            self.interaction,
            self.chat,
            {role: self.samplers.get(role, ranks) for role in roles} if {*self.samplers} - {CONTINUATIONS} else ranks,
            max_concurrent=args.max_concurrent_episodes,
            max_context_tokens=lower_of(args.max_context_tokens, limit),
        )
        if self.roles:
            from hf_credit.trainers.role_adapters import RoleAdapters

            self.adapters = adapters = RoleAdapters(self)
            if self.vllm is None:
                self.engine.generate = adapters.samplers(self.continuing_replies, ranks)
            else:
                from hf_credit.trainers.role_requests import RoleRequests

                adapters.requests = RoleRequests(adapters.model, args, self.accelerator, self.vllm, self.new_client)
                self.engine.generate = adapters.requests
            self.add_callback(adapters)

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """What adapters need of the present weights holds inside; all cached keys and values are dropped on exit."""
        with ExitStack() as stack:
            if self.adapters is not None:
                stack.enter_context(self.adapters.fresh())
            if self._continuing is not None:
                stack.enter_context(self._continuing.forgotten())
            yield

    def continuing_replies(self) -> PrefixSampler | None:
        """Generation that reuses keys and values of earlier turns; `None` if the set-up does not allow it."""
        if (
            not self.args.reuse_prefixes
            or self.use_vllm
            or self.use_transformers_continuous_batching
            or getattr(self.model.config, "vision_config", None) is not None
            or shards_weights(self.accelerator)
            or not can_continue(self.generation_config)
        ):
            return None
        return PrefixSampler(self._opened, self.generation_config, ReadsTokens(self.interaction).reads_tokens)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """`unwrapped`, where a call casts the weights to the precision of training once and not for each token."""
        with self.accelerator.autocast(), self.unwrapped() as model:
            yield model

    def generate_replies(self, contexts: Sequence[Context]) -> Sequence[Generation]:
        """Samples the policy's replies to the contexts of this process."""
        if self._continuing is not None:
            return self._continuing(contexts)
        with without_defaults(self.accelerator.unwrap_model(self.model)):
            return generations(*self.sampled(contexts))
