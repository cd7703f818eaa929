"""What `ReplayLOOTrainer` can be told: the paper's settings, its ablations and its baselines (paper C3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.critic import CriticConfig

ESTIMATORS = ("replay", "group", "critic")
BASELINES = ("leave_one_out", "full_mean")


@dataclass
class ReplayLOOConfig(CreditConfig):
    """The paper's settings (C3, Tables 6 and 7 and Appendix D); see `docs/paper_index.md` for each.

    `trajectories_per_update` counts task instances here; each takes `budget` terminal scores.

    Args:
        estimator: `"replay"` is the paper's method. `"group"` is MAGRPO: whole episodes, centred over those of their
            instance, one advantage for all decisions of an episode. `"critic"` is MAPPO: whole episodes, judged by a
            critic that reads everything said so far, with generalized advantages over decisions.
        budget: terminal scores of one instance and update (eq. 24). No instance gets more; the layout below must use
            up all of it.
        alternatives: how many messages are sampled at the context of the first step, the second step and so on. Their
            product is the budget. With `reference_rollouts`, one number: the alternatives at each chosen context.
        reference_rollouts: 0 takes the alternatives of one step as the contexts of the next, as the paper's
            experiments do (section 5.1). A positive number is Algorithm 1 to the letter: that many unscored episodes
            are played, and `contexts` of the contexts they visit are drawn.
        contexts: drawn from the reference rollouts of an instance; `contexts * alternatives * replays = budget`.
        replays: continuations of each alternative at a drawn context.
        replay: `False` is the ablation "w/o replay": whole episodes, decisions compared whatever their contexts.
        baseline: `"full_mean"` is the ablation "w/o LOO" (eq. 26).
        common_random_numbers: whether the alternatives of a context are continued with the same random numbers
            (Appendix L). Has no effect, and says so in the metrics, where the sampler does not honour seeds.
        normalise_credit: whether the credits of a context are divided by their standard deviation, as the public code
            does. Leave-one-out and full-mean credit are then the same.
        value_assistance: how much of a message's baseline comes from a critic that reads messages, in [0, 1]: the mean
            of what it expects of the others, in place of what they returned. Public code has such a critic; the paper
            has none.
        return_clip: returns are clipped to [-return_clip, return_clip].
        gamma: for `"critic"`, the discount from one decision to the next.
        lam: for `"critic"`, the decay of the trace.
        critic_model: for `"critic"` and `value_assistance`, the model id of its backbone. `None` puts an adapter of
            its own beside the policy's adapter, or, where the policy is trained as a whole, takes the model that the
            policy started from.
        critic_learning_rate: of the critic's own AdamW.
        critic_clip: how far one update may move a value; `None` for no limit.
        critic_passes: how often an update goes over its decisions.
        role_adapters: the roles, each of which then has a policy of its own: an adapter on the one base model, of the
            trainer's `peft_config`. `None`: all roles share one policy.
    """

    estimator: str = field(default="replay", metadata={"help": "replay (C3), group (MAGRPO), critic (MAPPO)."})
    budget: int = field(default=8, metadata={"help": "Terminal scores of one instance and update."})
    alternatives: list[int] = field(
        default_factory=lambda: [2, 4], metadata={"help": "Messages sampled at the context of each step."}
    )
    reference_rollouts: int = field(default=0, metadata={"help": "Unscored episodes that contexts are drawn from."})
    contexts: int = field(default=2, metadata={"help": "Contexts drawn from the reference rollouts."})
    replays: int = field(default=1, metadata={"help": "Continuations of each alternative at a drawn context."})
    replay: bool = field(default=True, metadata={"help": "False: whole episodes, contexts not matched."})
    baseline: str = field(default="leave_one_out", metadata={"help": "leave_one_out or full_mean."})
    common_random_numbers: bool = field(default=False, metadata={"help": "Same random numbers for alternatives."})
    normalise_credit: bool = field(default=False, metadata={"help": "Divide credits by their standard deviation."})
    value_assistance: float = field(default=0.0, metadata={"help": "Share of the baseline that a critic gives."})
    return_clip: float = field(default=10.0, metadata={"help": "Returns are clipped to this, both ways."})
    gamma: float = field(default=1.0, metadata={"help": "Discount between decisions, for critic."})
    lam: float = field(default=1.0, metadata={"help": "Decay of the trace, for critic."})
    critic_model: str | None = field(default=None, metadata={"help": "Backbone of the critic."})
    critic_learning_rate: float = field(default=1e-5, metadata={"help": "Learning rate of the critic."})
    critic_clip: float | None = field(default=0.2, metadata={"help": "How far an update may move a value."})
    critic_passes: int = field(default=1, metadata={"help": "How often an update goes over its decisions."})
    role_adapters: list[str] | None = field(default=None, metadata={"help": "Roles with an adapter of their own."})

    beta: float = 0.001
    num_train_epochs: float = 5
    shuffle_dataset: bool = False
    lr_scheduler_type: str = "cosine"
    warmup_steps: float = 0.03
    adam_beta2: float = 0.95
    temperature: float = 0.7
    top_p: float = 0.8
    top_k: int = 20
    max_completion_length: int = 512
    max_context_tokens: int | None = 2560

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("estimator", ESTIMATORS), ("baseline", BASELINES)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}; pick one.")
        if not self.return_clip > 0:
            raise ValueError(f"return_clip must be above 0, got {self.return_clip}; the paper clips to 10.")
        for name, least in (("budget", 2), ("contexts", 1), ("replays", 1), ("reference_rollouts", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}; raise it.")
        for name, papers in (("gamma", 1), ("lam", 1), ("value_assistance", 0)):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}; the paper's is {papers}.")
        if self.value_assistance and (self.estimator != "replay" or self.baseline != "leave_one_out"):
            raise ValueError(
                "value_assistance must go with estimator='replay' and baseline='leave_one_out', got "
                f"{self.estimator!r} and {self.baseline!r}; leave it at 0."
            )
        self.critic_config()  # refuses its own settings
        if self.estimator == "replay" and self.replay:
            self._refuse_impossible_layout()

    def critic_config(self) -> CriticConfig:
        """The settings of the critic."""
        return CriticConfig(
            learning_rate=self.critic_learning_rate,
            betas=(self.adam_beta1, self.adam_beta2),
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
            clip=self.critic_clip,
            passes=self.critic_passes,
            micro_batch_rows=self.micro_batch_rows,
            gradient_checkpointing=self.gradient_checkpointing,
            seed=self.seed,
        )

    @property
    def fanout(self) -> tuple[int, ...]:
        """Alternatives at each step of an episode that is played from its start."""
        return tuple(self.alternatives) if self.estimator == "replay" and self.replay else (self.budget,)

    def _refuse_impossible_layout(self) -> None:
        if not self.alternatives or min(self.alternatives) < 1 or max(self.alternatives) < 2:
            raise ValueError(
                f"alternatives must be 2 or more at some step and 1 or more at each, got {self.alternatives}; one "
                "message alone has nothing to be compared with."
            )
        if not self.reference_rollouts:
            calls, told = math.prod(self.alternatives), f"the product of alternatives={self.alternatives}"
        elif len(self.alternatives) == 1:
            calls = self.contexts * self.alternatives[0] * self.replays
            told = f"contexts * alternatives * replays = {self.contexts} * {self.alternatives[0]} * {self.replays}"
        else:
            raise ValueError(
                f"alternatives must be one number with reference_rollouts, got {self.alternatives}; name how many "
                "messages each drawn context gets."
            )
        if calls != self.budget:
            raise ValueError(
                f"the layout must use the budget of an instance, got {told} = {calls} for a budget of {self.budget}; "
                "change one."
            )
