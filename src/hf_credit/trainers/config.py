"""The settings that all trainers share, besides TRL's own."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

from trl import GRPOConfig

from hf_credit.critics.critic import CriticConfig
from hf_credit.methods import Method, composed
from hf_credit.noise import silence_known_warnings
from hf_credit.options import Option, arguments_in, first_sentence, part_of, refuse_without_effect, with_fields_of
from hf_credit.playing import Prompts, Sampling, divides_logits
from hf_credit.redaction import redacted
from hf_credit.rollouts import Interaction
from hf_credit.safe_io import as_mapping
from hf_credit.trainers.trl_settings import refuse_unused
from hf_credit.trainers.trust_region import TrustRegion
from hf_credit.validators import finite_number, one_of, whole_number

silence_known_warnings()

C = TypeVar("C", bound=type)

# These two divide by the number of tokens in the loss of the whole update, which no padding, no slicing and no number
# of processes changes. The other losses of TRL average over rows or over one slice.
_TOKEN_MEAN_LOSSES = ("dapo", "cispo")

_OR_NONE = ("max_context_tokens", "rows_per_forward", "instances_per_update", "token_budget", "max_sampled_tokens")
# The least of whole numbers.
_LEAST = {
    **dict.fromkeys(("max_concurrent_episodes", "concurrent_collections", "switch_every"), 1),
    **dict.fromkeys(_OR_NONE, 1),
    **dict.fromkeys(("log_episodes", "critic_first_updates", "max_staleness"), 0),
    "weight_sync_steps": 1,
}


def documented(config: C) -> C:
    """Class decorator below `@dataclass`: the docstring of a config gives the help text of its fields."""
    texts = arguments_in(config.__doc__ or "")
    for name in config.__annotations__.keys() & texts:
        setattr(config, name, documented_field(getattr(config, name), texts[name]))
    return config


def documented_field(default: Any, text: str, bounds: str = "") -> Any:
    """A dataclass field whose help text is the first sentence of a description.

    Args:
        default: of the field; a tuple stands for a new list of its values.
        text: the description, on one line.
        bounds: what the help text has after the sentence.
    """
    metadata = {"help": f"{first_sentence(text)}{bounds}."}
    if isinstance(default, tuple):
        return dataclasses.field(default_factory=partial(list, default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def default_of(field: dataclasses.Field) -> Any:
    """The default of a dataclass field."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _declared(one: Option) -> tuple[Any, Any]:
    return one.field_type, documented_field(one.default, one.text)


@dataclass
@with_fields_of(Prompts, declare=_declared)
class PromptSettings:
    """The fields of `Prompts`, for a config or a recipe."""


@dataclass
@documented
@with_fields_of(CriticConfig, declare=_declared, prefix="critic_")
class RunSettings:
    """Settings of all trainers, whether the trainer generates itself or a server does. Besides these, `critic_*` are
    fields of [`CriticConfig`].

    Args:
        num_generations: 1, the only value: a method that compares episodes of one task plays several of them itself.
        router_aux_loss_coef: 0, the only value: the loss that balances a mixture of experts is a product of means over
            one forward pass. TRL's default is the model's own.
        max_concurrent_episodes: maximum number of episodes that one process plays at once, hence the batch size of a
            generation call.
        max_context_tokens: an episode ends as truncated when its next context is longer, in tokens. `None` takes what
            the model's positions leave besides `max_completion_length`.
        max_sampled_tokens: ends the training with the generation in which this many tokens are sampled over all
            processes, replies of replays included; `None` leaves the end to `max_steps` and `num_train_epochs`.
            Methods that are compared should end with equal tokens, at a constant learning rate.
        resume_with_changed: names of the settings that may differ between a checkpoint and the run that resumes it.
        log_episodes: episodes of an update that are written to `episodes.jsonl` in `output_dir`, with their credit:
            those of the tasks with the largest. Every `logging_steps` updates; 0 writes none. When the file exceeds
            16 MiB, every second update in it is dropped.
        collector: replaces the method's own collector, by name, such as `"tree"`. As for `hf_credit.collectors.make`;
            refused if it does not give what the method's estimator needs.
        collector_options: options of the collector, a mapping such as `{fanout: [2, 2]}`.
        truncation: rule that cuts training episodes, under any method: a name, or `module:factory`. As for
            `hf_credit.methods.t3.truncation`; `None` and `"none"` cut nothing.
        truncation_options: options of the rule, a mapping.
        cut: `"hard"` stops the episode, `"soft"` asks for the answer, `"mask"` plays on without loss. As for
            `hf_credit.methods.t3.Truncated`.
        train_stalled: whether replies that stalled are trained on.
        starts: begins episodes late in walks that succeeded, and earlier as they do: `"oracle"`, of the task's oracle
            or scripted player; `"module:object"`, of a script; `"own"`, of this run; or a file of recorded episodes.
            `None` begins at first states.
        starts_success: success of episodes that begin later, above which they begin earlier; in (0, 1).
        role_adapters: roles with an adapter of their own on the one base model, from the trainer's `peft_config`. With
            `None` all roles share one policy.
        role_schedule: roles that learn in an update: `"synchronous"`, all; `"alternating"`, one at a time in their
            order. That is role (u // switch_every) mod K in update u, counted from 0. The others keep their weights
            and their optimizer's moments to the bit, while all of them play.
        switch_every: consecutive updates in which one role learns, a multiple of those that one generation serves.
        critic_model: backbone of the critic, a model id. `None` puts an adapter of its own next to the policy's
            adapter or, if the whole policy is trained, takes the model that the policy started from.
        critic_first_updates: updates at the start in which the critics learn and the policy does not.
    """

    of_a_rule: ClassVar[dict[str, Any]] = {"truncation_options": {}, "cut": "hard", "train_stalled": True}
    """Settings that need a truncation rule, with their defaults."""

    num_generations: int = 1
    router_aux_loss_coef: float | None = 0.0
    max_concurrent_episodes: int = 256
    max_context_tokens: int | None = None
    max_sampled_tokens: int | None = None
    resume_with_changed: list[str] | None = None
    log_episodes: int = 4
    collector: str | None = None
    collector_options: dict | str | None = None
    truncation: str | None = None
    truncation_options: dict | str | None = None
    cut: str = "hard"
    train_stalled: bool = True
    starts: str | None = None
    starts_success: float = 0.35
    role_adapters: list[str] | None = None
    role_schedule: str = "synchronous"
    switch_every: int = 10
    critic_model: str | None = None
    critic_first_updates: int = 0

    def complete(self, interaction: Interaction[Any]) -> None:
        """Sets what follows from the Interaction, before a model is loaded.

        Raises:
            ValueError: these settings do not fit the Interaction.
        """

    def refuse_impossible(self, where: str) -> None:
        """Refuses settings without effect (`refuse_unused`), numbers out of range, and what no spec can hold."""
        refuse_unused(self, where)
        self.router_aux_loss_coef = 0.0
        for name in (one for one in _LEAST if hasattr(self, one)):
            value = getattr(self, name)
            if value is not None or name not in _OR_NONE:
                whole_number(name, value, _LEAST[name])
        finite_number("starts_success", self.starts_success, above=0, below=1)
        if self.starts is None and self.starts_success != RunSettings.starts_success:
            raise ValueError(f"starts_success needs starts, got {self.starts_success} without; set both.")
        self.sampling()
        self.critic_config()
        self.parts()

    def parts(self) -> dict[str, Any]:
        """The collector and the truncation rule of these settings, as `hf_credit.methods.composed` takes them.

        Raises:
            ValueError: options without the part that they belong to.
        """
        parts: dict[str, Any] = {}
        options = as_mapping("collector_options", self.collector_options)
        if self.collector is not None:
            parts["collector"] = {"name": self.collector, "options": options}
        elif options:
            raise ValueError(f"collector_options need a collector, got {options} without; name the collector.")
        options = as_mapping("truncation_options", self.truncation_options)
        if self.truncation not in (None, "none"):
            how = {"cut": self.cut, "train_stalled": self.train_stalled}
            parts["truncation"] = {"name": self.truncation, "options": {**options, **how}}
        elif self.truncation is None:
            for name, default in self.of_a_rule.items():
                value = options if name == "truncation_options" else getattr(self, name)
                if value != default:
                    raise ValueError(f"{name} needs truncation, got {value!r} without; name a rule or leave it out.")
        return parts

    def composed(self, method: Method) -> Method:
        """The method with the collector and the truncation rule of these settings.

        Raises:
            ValueError: the method does not take one of them.
        """
        return composed(method, **self.parts())

    def sampling(self) -> Sampling:
        """The sampling of replies, as the spec next to the policy records it."""
        args: Any = self  # with the fields of TRL's config that it is mixed into
        return Sampling(
            max_new_tokens=whole_number("max_completion_length", args.max_completion_length, 1),
            temperature=divides_logits(args.temperature),
            top_p=args.top_p,
            top_k=args.top_k,
            min_p=args.min_p or 0.0,
            repetition_penalty=args.repetition_penalty,
        )

    def critic_config(self) -> CriticConfig:
        """The settings of the method's critics."""
        args: Any = self  # with the fields of TRL's config that it is mixed into
        return part_of(
            CriticConfig,
            self,
            "critic_",
            betas=(args.adam_beta1, args.adam_beta2),
            weight_decay=args.weight_decay,
            max_grad_norm=args.max_grad_norm or None,
            micro_batch_rows=self.micro_batch_rows,
            gradient_checkpointing=args.gradient_checkpointing,
            seed=args.seed,
        )

    @property
    def micro_batch_rows(self) -> int:
        """Maximum sequences that a critic reads in one pass."""
        args: Any = self
        return int(args.per_device_train_batch_size)

    def __getstate__(self) -> dict[str, Any]:
        # transformers pickles the settings next to every model it saves or pushes, where others read them.
        public = redacted(self.__dict__)
        return {name: public.get(name) for name in self.__dict__}

    def __copy__(self) -> Self:
        return self._with(self.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._with(copy.deepcopy(self.__dict__, memo))

    def _with(self, values: dict[str, Any]) -> Self:
        """A copy within this process keeps the secrets that `__getstate__` leaves out."""
        other = object.__new__(type(self))
        other.__dict__.update(values)
        return other

    def to_dict(self) -> dict[str, Any]:
        """As in transformers, for logs and trackers, without any secret."""
        return {name: redacted(value) for name, value in super().to_dict().items()}  # type: ignore[misc]  # of TRL's config


@dataclass
@documented
@with_fields_of(TrustRegion, declare=_declared, prefix="trust_region_")
class CreditConfig(RunSettings, GRPOConfig):
    """Settings of `CreditTrainer` and of the presets: those of [`trl.GRPOConfig`], of `RunSettings`, and these.

    Settings of TRL by which the loss would depend on how rows are laid out are refused. Besides these,
    `trust_region_*` are fields of [`TrustRegion`].

    Args:
        instances_per_update: task rows of one update over all processes. Sets `gradient_accumulation_steps` from
            `per_device_train_batch_size` and the number of processes, whose product must divide it; `None` leaves
            TRL's own arithmetic. The method's collector decides how many episodes it plays of each row.
        per_device_eval_batch_size: as in TRL; `None` is as many task rows as in training, and at least 8.
        reuse_prefixes: whether replies reuse the keys and values of the turn before, where possible. That is where the
            policy itself generates in evaluation mode, with parameters that are not sharded and torch's own attention.
            Otherwise, and with `False`, TRL's call reads every context from its start.
        share_prompts: whether a forward pass reads once what its rows begin with in common, whatever their prompts,
            where that is exact and costs less. Rows that begin alike are put into the same micro-batch.
        rows_per_forward: maximum rows of one forward and backward pass; `per_device_train_batch_size` if `None`. It
            changes no result. Rows that begin alike fit in greater numbers.
        aggregation: how the loss weighs tokens: `"token"`, all tokens of an update alike; `"sequence"`, all episodes
            alike, and within each its tokens. It scales advantages, so a KL penalty is over tokens in both.
        importance_sampling_level: as in TRL; `None` is what the method needs, or else `"token"`. With `"sequence"` the
            ratio is that of all replies of an episode, so an episode must be one row: one role, whose contexts grow by
            appending.
        trust_region: KL radius of a token's projection, in nats; `None` projects nothing. The loss takes the
            log-probabilities of the policy projected to where no next-token distribution is farther than this from
            that of the policy that played (paper CVT-RL, eqs. 8 and 9). `epsilon` clips the rest: with 1 and a huge
            `epsilon_high`, nothing.
        trust_region_tool: KL radius of tokens of actions and tool calls; `trust_region` if `None`.
        vllm_server_request_timeout: seconds that a vLLM server may take to answer one generation call. The call asks
            for the replies of all running episodes. The default is that of `ddp_timeout`, by which the other
            processes wait.
        vllm_importance_sampling_mode: as in TRL, but per token by default. A row is a whole episode here, and the
            ratio of a sequence multiplies the ratios of all its tokens.
    """

    instances_per_update: int | None = None
    num_generations: int = 1
    per_device_eval_batch_size: int | None = None  # type: ignore[assignment]
    reuse_prefixes: bool = True
    share_prompts: bool = True
    rows_per_forward: int | None = None
    aggregation: str = "token"
    importance_sampling_level: str | None = None  # type: ignore[assignment]
    trust_region: float | None = None
    trust_region_tool: float | None = None
    vllm_server_request_timeout: float = 1800.0
    vllm_importance_sampling_mode: str = "token_truncate"

    def __post_init__(self) -> None:
        finite_number("vllm_server_request_timeout", self.vllm_server_request_timeout, above=0)
        self.refuse_impossible("synchronous")
        for name, value in vars(self).items():
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"{name} must be a number, got NaN; correct it.")
        self._derive_accumulation()
        self._refuse_odd_batch()
        evaluated = self.num_generations_eval
        if self.per_device_eval_batch_size is None:
            rows = self.per_device_train_batch_size * (self.steps_per_generation or self.gradient_accumulation_steps)
            self.per_device_eval_batch_size = -(-max(rows, 8) // (evaluated or 1)) * (evaluated or 1)
        # TRL requires groups of two or more, for its own advantages.
        self.num_generations, self.num_generations_eval = 2, evaluated or 1
        super().__post_init__()
        if self.metric_for_best_model in ("loss", "eval_loss"):  # of load_best_model_at_end and reduce_lr_on_plateau
            raise ValueError(
                f"metric_for_best_model must be a metric of an evaluation, which has no loss, got "
                f"{self.metric_for_best_model!r}; set it to reward or success."
            )
        self.num_generations, self.num_generations_eval = 1, evaluated
        one_of("loss_type", self.loss_type, _TOKEN_MEAN_LOSSES)
        if self.loss_type == "cispo":
            refuse_without_effect("with loss_type='cispo'", delta=(self.delta, None))
        if self.loss_type == "cispo" and (self.epsilon_high or self.epsilon) < 1:
            raise ValueError(
                "with loss_type='cispo' epsilon_high bounds the ratio itself, so it must be at least 1, got "
                f"{self.epsilon_high or self.epsilon}; set epsilon_high, to 5 for instance."
            )
        for name in ("importance_sampling_level", "aggregation"):
            if getattr(self, name) is not None:
                one_of(name, getattr(self, name), ("token", "sequence"))
        self.region()  # refuses settings out of range

    def region(self) -> TrustRegion | None:
        """The trust region of an update; `None` for no limit."""
        if self.trust_region is None:
            refuse_without_effect("without trust_region", trust_region_tool=(self.trust_region_tool, None))
            return None
        refuse_without_effect("with trust_region", cast_lm_head_to_fp32=(self.cast_lm_head_to_fp32, False))
        tool_radius = self.trust_region if self.trust_region_tool is None else self.trust_region_tool
        return part_of(TrustRegion, self, "trust_region_", radius=self.trust_region, tool_radius=tool_radius)

    @property
    def micro_batch_rows(self) -> int:
        """Maximum rows of one forward and backward pass."""
        return self.rows_per_forward or self.per_device_train_batch_size

    def _derive_accumulation(self) -> None:
        if self.instances_per_update is None:
            return
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        at_once = self.per_device_train_batch_size * processes
        steps, left = divmod(self.instances_per_update, at_once)
        if left or steps < 1:
            raise ValueError(
                f"instances_per_update must be a multiple of per_device_train_batch_size x processes, got "
                f"{self.instances_per_update} and {self.per_device_train_batch_size} x {processes}; change one."
            )
        if self.gradient_accumulation_steps not in (1, steps):
            raise ValueError(
                f"instances_per_update sets gradient_accumulation_steps ({steps} here), got "
                f"{self.gradient_accumulation_steps} as well; leave one of them out."
            )
        self.gradient_accumulation_steps = steps

    def _refuse_odd_batch(self) -> None:
        slices = self.steps_per_generation or self.gradient_accumulation_steps
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        episodes = self.generation_batch_size or self.per_device_train_batch_size * processes * slices
        if episodes % 2:
            raise ValueError(
                f"a generation must have an even number of task rows, got {episodes}; change instances_per_update, "
                "per_device_train_batch_size or steps_per_generation."
            )
