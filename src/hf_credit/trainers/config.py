"""What every trainer of this library can be told, beside TRL's own settings."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from datasets import Dataset
from trl import GRPOConfig

from hf_credit.critics.critic import CriticConfig
from hf_credit.methods import Method, composed
from hf_credit.noise import silence_known_warnings
from hf_credit.redaction import redacted
from hf_credit.safe_io import parse_json
from hf_credit.tasks import Sampling
from hf_credit.trainers.trust_region import TrustRegion
from hf_credit.validators import finite_number, whole_number

silence_known_warnings()

# These two divide by the number of tokens in the loss of the whole update, which no padding, no slicing and no number
# of processes changes. The other losses of TRL average over rows or over one slice.
_TOKEN_MEAN_LOSSES = ("dapo", "cispo")


@dataclass
class RunSettings:
    """What can be told to trainers of both kinds, those that generate themselves and those that others generate for.

    Args:
        max_concurrent_episodes, max_context_tokens, resume_with_changed, log_episodes, collector, collector_options,
            truncation, truncation_options, cut, train_stalled: as for `CreditConfig`.
    """

    of_a_rule: ClassVar[dict[str, Any]] = {"truncation_options": {}, "cut": "hard", "train_stalled": True}
    """Settings that go with a rule alone, as they are without one."""

    max_concurrent_episodes: int = field(
        default=256, metadata={"help": "Most episodes that one process has under way at once."}
    )
    max_context_tokens: int | None = field(
        default=None,
        metadata={"help": "An episode whose next context is longer ends as truncated; None asks the model."},
    )
    resume_with_changed: list[str] | None = field(
        default=None,
        metadata={"help": "What may differ between a checkpoint and the run that is resumed from it, by name."},
    )
    log_episodes: int = field(
        default=4, metadata={"help": "Episodes of an update written to episodes.jsonl with their credit."}
    )
    collector: str | None = field(default=None, metadata={"help": "Who plays, by name; the method's own if left out."})
    collector_options: dict | str | None = field(default=None, metadata={"help": "Its options, a mapping."})
    truncation: str | None = field(default=None, metadata={"help": "The rule that cuts, or module:factory; or none."})
    truncation_options: dict | str | None = field(default=None, metadata={"help": "Its options, a mapping."})
    cut: str = field(default="hard", metadata={"help": "hard: stop; soft: ask for the answer; mask: no loss after."})
    train_stalled: bool = field(default=True, metadata={"help": "Whether replies that stalled are trained on."})

    def parts(self) -> dict[str, Any]:
        """The collector and the truncation that are put in a method, as for `hf_credit.methods.composed`.

        Raises:
            ValueError: there are options of a part that is not named.
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
            for name, without in self.of_a_rule.items():
                value = options if name == "truncation_options" else getattr(self, name)
                if value != without:
                    raise ValueError(
                        f"{name} is of a rule that cuts, got {value!r} without truncation; name the rule, or leave it "
                        "out."
                    )
        return parts

    def composed(self, method: Method) -> Method:
        """The method with the parts that are set here.

        Raises:
            ValueError: a part is not possible.
        """
        return composed(method, **self.parts())

    def sampling(self) -> Sampling:
        """How replies are drawn, as the spec beside the policy says."""
        args: Any = self  # with the fields of TRL's config that it is mixed into
        return Sampling(
            max_new_tokens=whole_number("max_completion_length", args.max_completion_length, 1),
            temperature=args.temperature,
            top_p=args.top_p,
            top_k=args.top_k,
        )

    def __getstate__(self) -> dict[str, Any]:
        # transformers pickles the settings beside every model it saves or pushes, where others read them.
        public = redacted(self.__dict__)
        return {name: public.get(name) for name in self.__dict__}

    def __copy__(self) -> Self:
        return self._with(self.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._with(copy.deepcopy(self.__dict__, memo))

    def _with(self, values: dict[str, Any]) -> Self:
        """The same settings in this process, which may know its secrets."""
        other = object.__new__(type(self))
        other.__dict__.update(values)
        return other

    def to_dict(self) -> dict[str, Any]:
        """As in transformers, for logs and trackers, without secrets in what a setting holds either."""
        return {name: redacted(value) for name, value in super().to_dict().items()}  # type: ignore[misc]  # of TRL's config


@dataclass
class CreditConfig(RunSettings, GRPOConfig):
    """Settings shared by the trainers of this library.

    Everything of [`trl.GRPOConfig`] works, apart from what would make the loss depend on how rows are laid out.

    Args:
        instances_per_update: task rows of one update over all processes; the method's collector says how many episodes
            each takes. Sets `gradient_accumulation_steps` from `per_device_train_batch_size` and the number of
            processes, which must divide it. `None` leaves TRL's own arithmetic.
        num_generations: how often each task row is given to the collector in one update. These are not compared with
            each other: a method that compares episodes of one task plays several of them itself.
        max_concurrent_episodes: the most episodes one process has under way at once, hence the batch of one
            generation call.
        max_context_tokens: an episode whose next context is longer ends as truncated. `None` takes what the model's
            positions leave beside `max_completion_length`.
        reuse_prefixes: replies go on from the keys and values of the turn before, where the policy itself generates
            in evaluation mode, with parameters that are not sharded and torch's own attention. Otherwise, and with
            `False`, TRL's call reads every context from its start.
        share_prompts: the training forward computes a prompt once for all rows of a micro-batch that begin with it,
            where that is exact and costs less. Rows with one prompt are put into one forward pass.
        rows_per_forward: how many rows a forward and backward pass holds at most, which changes no result; `None`
            takes `per_device_train_batch_size`. Rows that share a long prompt fit in greater numbers.
        resume_with_changed: what may differ between a checkpoint and the run that is resumed from it, by name.
        aggregation: how the loss weighs tokens: `"token"`, all tokens of an update alike; or `"sequence"`, all
            episodes alike, and within each its tokens. It scales advantages, so a KL penalty is over tokens in both.
        importance_sampling_level: as in TRL. With `"sequence"` the ratio is that of all replies of an episode, so an
            episode must be one row: one role, whose contexts grow by appending.
        log_episodes: episodes of an update that are written with the credit of their decisions to `episodes.jsonl` in
            `output_dir`, every `logging_steps`; 0 writes none. At 16 MiB every second update in it is dropped.
        critic_model: for a method with a critic, the model id of its backbone. `None` puts an adapter of its own
            beside the policy's adapter, or, where the policy is trained as a whole, takes the model that the policy
            started from.
        critic_learning_rate: of the critic's own AdamW.
        critic_warmup_steps: the critic's first optimizer steps, `critic_passes` for each generation of episodes, over
            which its learning rate rises evenly from 0. The policy learns meanwhile.
        critic_clip: how far one update may move a value; `None` for no limit.
        critic_passes: how often an update goes over what the critic read, at most.
        critic_mini_batch_rows: sequences of an optimizer step of the critic, over all processes; `None` takes all.
        critic_past_updates: how many earlier updates' sequences it goes over again beside the new ones.
        critic_held_out: the share of each update's sequences that the critic never learns from: with the first pass
            that does not lower their error, its update ends. 0 makes all passes.
        critic_whiten: whether its targets are learned in units of their spread around their mean.
        critic_first_updates: in so many updates at the start the critics learn alone, and the policy stays.
        role_adapters: the roles, each of which then has a policy of its own: an adapter on the one base model, of the
            trainer's `peft_config`. `None`: all roles share one policy.
        role_schedule: which of these learn in an update: `"synchronous"`, all; `"alternating"`, one at a time in their
            order, role (u // switch_every) mod K in update u, counted from 0. The others keep their weights and their
            optimizer's moments to the bit, while all of them play.
        switch_every: updates in a row that one role learns from, a multiple of those that one generation serves.
        router_aux_loss_coef: 0, the only value: the loss that balances a mixture of experts is a product of means over
            one forward pass. TRL's default is the model's own.
        trust_region: the loss takes the log-probabilities of the policy projected to where no next-token
            distribution is farther than this, in nats, from the one that played (paper CVT-RL, eqs. 8 and 9). What is
            clipped beside it is `epsilon`'s: with 1 and a huge `epsilon_high`, nothing. `None` projects nothing.
        trust_region_tool: the same for tokens of actions and tool calls; as `trust_region` if `None`.
        trust_region_top, trust_region_wide, trust_region_coverage, trust_region_penalty, trust_region_projection,
            trust_region_regression: `top`, `wide`, `coverage`, `penalty`, `projection` and `regression` of
            `hf_credit.trainers.trust_region.TrustRegion`.
        collector: what plays in place of the method's own collector, as for `hf_credit.collectors.make`, such as
            `"tree"`. It is refused where it does not give what the method's estimator needs.
        collector_options: its options, a mapping, such as `{fanout: [2, 2]}`.
        truncation: a rule that cuts episodes in training, under any method, as for
            `hf_credit.methods.t3.truncation`; `None` or `"none"` cuts nothing.
        truncation_options: its options, a mapping.
        cut: `"hard"`, `"soft"` or `"mask"`, and
        train_stalled: whether replies that stalled are trained on; both as for `hf_credit.methods.t3.Truncated`.
        vllm_server_request_timeout: seconds that a vLLM server may take to answer one generation call, which asks for
            the replies of all episodes under way. As long as `ddp_timeout`, for which other processes wait.
    """

    instances_per_update: int | None = field(
        default=None,
        metadata={"help": "Task rows of one update over all processes; sets gradient_accumulation_steps."},
    )
    num_generations: int = field(default=1, metadata={"help": "How often each task row is played in one update."})
    reuse_prefixes: bool = field(
        default=True,
        metadata={"help": "Whether replies go on from the keys and values of the turn before, where possible."},
    )
    share_prompts: bool = field(
        default=True,
        metadata={"help": "Whether the training forward computes a prompt once for all rows that begin with it."},
    )
    rows_per_forward: int | None = field(
        default=None, metadata={"help": "Rows of one forward pass; as per_device_train_batch_size if left out."}
    )
    aggregation: str = field(
        default="token", metadata={"help": "token: all tokens weigh alike; sequence: all episodes do."}
    )
    critic_model: str | None = field(default=None, metadata={"help": "Backbone of the critic."})
    critic_learning_rate: float = field(default=1e-5, metadata={"help": "Learning rate of the critic."})
    critic_warmup_steps: int = field(
        default=0, metadata={"help": "Steps of the critic over which its learning rate rises from 0."}
    )
    critic_clip: float | None = field(default=0.2, metadata={"help": "How far an update may move a value."})
    critic_passes: int = field(
        default=1, metadata={"help": "How often an update goes over what the critic read, at most."}
    )
    critic_mini_batch_rows: int | None = field(
        default=None, metadata={"help": "Sequences of an optimizer step of the critic; all by default."}
    )
    critic_past_updates: int = field(
        default=0, metadata={"help": "Earlier updates whose sequences the critic goes over again."}
    )
    critic_held_out: float = field(
        default=0.0, metadata={"help": "Share of an update's sequences that say when the critic has learned enough."}
    )
    critic_whiten: bool = field(
        default=False, metadata={"help": "Learn the critic's targets in units of their spread around their mean."}
    )
    critic_first_updates: int = field(
        default=0, metadata={"help": "Updates at the start in which the critics learn alone."}
    )
    role_adapters: list[str] | None = field(default=None, metadata={"help": "Roles with an adapter of their own."})
    role_schedule: str = field(default="synchronous", metadata={"help": "alternating: one role's adapter at a time."})
    switch_every: int = field(default=10, metadata={"help": "Updates in a row in which one role learns."})
    router_aux_loss_coef: float | None = field(
        default=0.0, metadata={"help": "Only 0: the loss that balances experts depends on how rows are laid out."}
    )
    trust_region: float | None = field(default=None, metadata={"help": "KL radius of a token's projection, in nats."})
    trust_region_tool: float | None = field(default=None, metadata={"help": "The same for tokens of actions."})
    trust_region_top: int = field(default=256, metadata={"help": "Tokens of the old policy that are projected."})
    trust_region_wide: int = field(default=1024, metadata={"help": "The same where these cover too little."})
    trust_region_coverage: float = field(default=0.98, metadata={"help": "How much they must cover."})
    trust_region_penalty: float = field(default=1.0, metadata={"help": "Weight of the KL where none covers enough."})
    trust_region_projection: str = field(
        default="least_squares", metadata={"help": "How a token is projected; interpolation is TROLL's layer."}
    )
    trust_region_regression: float = field(
        default=0.0, metadata={"help": "Weight of the KL of the policy from what it is projected to; 1 in TROLL."}
    )
    vllm_server_request_timeout: float = field(
        default=1800.0,
        metadata={"help": "Seconds that a vLLM server may take to answer one generation call."},
    )
    vllm_importance_sampling_mode: str = field(
        default="token_truncate",
        metadata={
            "help": "As in TRL. A row is a whole episode here, and the ratio of a sequence multiplies the ratios of "
            "all its tokens, so the default is per token."
        },
    )

    def __post_init__(self) -> None:
        for name in ("num_generations", "max_concurrent_episodes", "max_context_tokens", "rows_per_forward"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), 1)
        if self.instances_per_update is not None:
            whole_number("instances_per_update", self.instances_per_update, 1)
        for name in ("log_episodes", "critic_first_updates"):
            whole_number(name, getattr(self, name), 0)
        whole_number("switch_every", self.switch_every, 1)
        finite_number("vllm_server_request_timeout", self.vllm_server_request_timeout, above=0)
        self.sampling()  # refuses what no spec beside the policy could say
        for name, value in vars(self).items():
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"{name} must be a number, got NaN; correct it.")
        self._derive_accumulation()
        played = self.num_generations
        if played == 1:
            # TRL wants groups of two or more, for advantages that are not computed here.
            self._refuse_odd_batch()
            self.num_generations = 2
        super().__post_init__()
        self.num_generations = played
        self._refuse_what_depends_on_layout()
        self.critic_config()  # refuses its own settings
        self.region()
        self.parts()

    def critic_config(self) -> CriticConfig:
        """The settings of a method's critics."""
        return CriticConfig(
            learning_rate=self.critic_learning_rate,
            warmup_steps=self.critic_warmup_steps,
            betas=(self.adam_beta1, self.adam_beta2),
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
            clip=self.critic_clip,
            passes=self.critic_passes,
            mini_batch_rows=self.critic_mini_batch_rows,
            past_updates=self.critic_past_updates,
            held_out=self.critic_held_out,
            whiten=self.critic_whiten,
            micro_batch_rows=self.micro_batch_rows,
            gradient_checkpointing=self.gradient_checkpointing,
            seed=self.seed,
        )

    def region(self) -> TrustRegion | None:
        """How far an update may move the policy, `None` for any distance."""
        if self.trust_region is None:
            if self.trust_region_tool is not None:
                raise ValueError(
                    f"trust_region_tool goes with trust_region, got {self.trust_region_tool} without; set both."
                )
            return None
        return TrustRegion(
            radius=self.trust_region,
            tool_radius=self.trust_region if self.trust_region_tool is None else self.trust_region_tool,
            top=self.trust_region_top,
            wide=self.trust_region_wide,
            coverage=self.trust_region_coverage,
            penalty=self.trust_region_penalty,
            projection=self.trust_region_projection,
            regression=self.trust_region_regression,
        )

    @property
    def micro_batch_rows(self) -> int:
        """Rows of a forward and backward pass at most."""
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
            raise ValueError(f"an update must hold an even number of episodes, got {episodes}; change the batch size.")

    def _refuse_what_depends_on_layout(self) -> None:
        if self.loss_type not in _TOKEN_MEAN_LOSSES:
            raise ValueError(
                f"loss_type must be one of {', '.join(_TOKEN_MEAN_LOSSES)}, got {self.loss_type!r}, which depends on "
                "how decisions are laid out in rows; leave the default."
            )
        for name in ("importance_sampling_level", "aggregation"):
            if getattr(self, name) not in ("token", "sequence"):
                raise ValueError(f"{name} must be 'token' or 'sequence', got {getattr(self, name)!r}; pick one.")
        if self.off_policy_mask_threshold is not None:
            raise ValueError(
                "off_policy_mask_threshold must be None, got "
                f"{self.off_policy_mask_threshold}, which would mask whole rows; leave it out."
            )
        if self.top_entropy_quantile != 1.0:
            raise ValueError(
                f"top_entropy_quantile must be 1, got {self.top_entropy_quantile}, whose threshold is that of "
                "the rows of one forward pass; leave it out."
            )
        if self.router_aux_loss_coef != 0:
            raise ValueError(
                f"router_aux_loss_coef must be 0, got {self.router_aux_loss_coef}: the balance of experts is measured "
                "over one forward pass; leave it out."
            )
        if self.neftune_noise_alpha is not None:
            raise ValueError(
                f"neftune_noise_alpha must be None, got {self.neftune_noise_alpha}, whose noise depends on the "
                "padding of rows; leave it out."
            )


def as_mapping(name: str, value: Mapping[str, Any] | str | None, example: str = '{"size": 4}') -> dict[str, Any]:
    """A setting that is a mapping, or JSON of one, as on a command line; empty for `None`.

    Args:
        name: of the setting.
        value: what was given.
        example: of what to write.

    Raises:
        ValueError: it is neither.
    """
    try:
        read = parse_json(value) if isinstance(value, str) else {} if value is None else value
    except ValueError:
        read = value
    if not isinstance(read, Mapping):
        raise ValueError(f"{name} must be a mapping, got {repr(value)[:200]}; write for example '{example}'.")
    return dict(read)


def tasks_per_update(args: CreditConfig) -> int:
    """How many task rows one update plays, each `num_generations` times."""
    assert args.generation_batch_size is not None  # set by TRL's own __post_init__
    return args.generation_batch_size // args.num_generations


def refuse_short_dataset(dataset: Any, args: CreditConfig) -> None:
    """Refuses a dataset that cannot fill one update."""
    needed = tasks_per_update(args)
    if isinstance(dataset, Dataset) and len(dataset) < needed:
        raise ValueError(
            f"the training dataset must have a row for each task of an update, got {len(dataset)} rows for {needed} "
            "tasks; add rows or lower the batch."
        )
