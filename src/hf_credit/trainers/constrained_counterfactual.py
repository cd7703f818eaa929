"""`ConstrainedCounterfactualTrainer`, the preset of paper CVT-RL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hf_credit.methods.cvt import PAPER
from hf_credit.trainers.config import as_mapping
from hf_credit.trainers.preset import OPTION, PresetConfig, PresetTrainer

_MAPPINGS = ("families", "limits", "auditor_options", "interventions_options")
_NAMED = ("auditor", "interventions")


@dataclass
class ConstrainedCounterfactualConfig(PresetConfig, method="constrained_counterfactual"):
    """The paper's settings (CVT-RL, sections 3.1 to 3.4); see `docs/paper_index.md` for each.

    Fields with the default `OPTION` are options of `hf_credit.methods.cvt.constrained_counterfactual`. `epsilon` and
    `epsilon_high` clip nothing, as the projection bounds the update.

    Args:
        auditor: judges the steps, by name or `"module:object"`; the environment's own if `None`.
        auditor_options: options of the auditor, a mapping.
        interventions: what may replace a step, by name or `"module:object"`; the environment's own if `None`.
        interventions_options: options of the interventions, a mapping.
        num_iterations: optimizer steps on each generation of episodes. With 1 the projection has no effect.
        max_steps: optimizer steps: 3,000 updates of two.
    """

    group_size: int = OPTION
    steps: float = OPTION
    branches: int = OPTION
    families: dict | str | None = OPTION
    floor: float = OPTION
    counterfactuals: str = OPTION
    gate: bool = OPTION
    refresh_every: int = OPTION
    ema: float | None = OPTION
    answer: float = OPTION
    evidence: float = OPTION
    meta: float = OPTION
    belief: float = OPTION
    contribution: float = OPTION
    hack: float = OPTION
    contribution_advantage: float = OPTION
    hack_advantage: float = OPTION
    answer_by: str = OPTION
    contribution_to: str = OPTION
    estimator: str = OPTION
    selection: str = OPTION
    ratio_low: float = OPTION
    ratio_high: float = OPTION
    gamma: float = OPTION
    lam: float = OPTION
    constrained: bool = OPTION
    limits: dict | str | None = OPTION
    penalty: float = OPTION
    rate: float = OPTION
    rule: str = OPTION
    baseline: str | None = OPTION
    auditor: str | None = None
    auditor_options: dict | str | None = None
    interventions: str | None = None
    interventions_options: dict | str | None = None

    instances_per_update: int | None = 16
    max_steps: int = 6000
    num_iterations: int = 2
    epsilon: float = 1.0
    epsilon_high: float | None = 1e9
    trust_region: float | None = 0.025
    trust_region_tool: float | None = 0.010
    beta: float = 0.0
    temperature: float = 0.8
    top_p: float = 0.95
    max_completion_length: int = 2048
    max_context_tokens: int | None = 30720
    learning_rate: float = 8e-7
    critic_learning_rate: float = 5e-6
    critic_clip: float | None = None
    adam_beta2: float = 0.95
    weight_decay: float = 0.1
    lr_scheduler_type: str = "cosine"
    warmup_steps: float = 0.03

    def __post_init__(self) -> None:
        for name in _MAPPINGS:
            if getattr(self, name) is not None:
                setattr(self, name, as_mapping(name, getattr(self, name), '{"tampering": 0.02}'))
        super().__post_init__()

    def method_options(self) -> dict[str, Any]:
        options = super().method_options()
        for name in _NAMED:
            part = getattr(self, f"{name}_options")
            if part and options[name] is None:
                raise ValueError(f"{name}_options need {name}, got {part} without; name it.")
            if options[name] is not None:
                options[name] = {"name": options[name], "options": part or {}}
        return options


class ConstrainedCounterfactualTrainer(PresetTrainer):
    """Trains long-horizon tool users on verified success, under constraints.

    The policy plays several episodes of each task row, and an auditor judges their steps. The method draws some
    steps, replaces each with several interventions, and has a frozen copy of the policy play on; the outcomes estimate
    the contribution of the step (eqs. 4 to 6). The advantage of a step combines its contribution, the shaped reward
    (eq. 3), detected hacks, and costs above their limits (eqs. 7 and 10). The loss projects the policy into a trust
    region around the policy that played (eqs. 8 and 9).

    Args:
        interaction: an environment whose steps an auditor judges, such as `evidence`.
        args: the settings; the paper's if `None`.
        model, train_dataset, **kwargs: as in [`CreditTrainer`].

    Raises:
        ValueError: a setting is out of range, the Interaction has no auditor, or the set-up cannot keep a second
            policy.
    """

    _name = "CVT-RL"
    _tag_names = ["trl", "hf-credit", "cvt-rl"]  # noqa: RUF012 (TRL's own convention)
    _paper = PAPER
    config_class = ConstrainedCounterfactualConfig
