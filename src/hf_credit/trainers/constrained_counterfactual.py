"""`ConstrainedCounterfactualTrainer`, the preset of paper CVT-RL."""

from __future__ import annotations

from typing import Any

from hf_credit.safe_io import as_mapping
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.preset import Preset, PresetTrainer


class ConstrainedCounterfactualConfig(
    Preset,
    CreditConfig,
    method="constrained_counterfactual",
    defaults={
        "instances_per_update": 16,
        "max_steps": 6000,
        "num_iterations": 2,
        "epsilon": 1.0,
        "epsilon_high": 1e9,
        "trust_region": 0.025,
        "trust_region_tool": 0.010,
        "beta": 0.0,
        "temperature": 0.8,
        "top_p": 0.95,
        "max_completion_length": 2048,
        "max_context_tokens": 30720,
        "learning_rate": 8e-7,
        "critic_learning_rate": 5e-6,
        "critic_clip": None,
        "adam_beta2": 0.95,
        "weight_decay": 0.1,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.03,
    },
):
    """The paper's settings (CVT-RL, sections 3.1 to 3.4); see `docs/paper_index.md` for each.

    The options of `hf_credit.methods.cvt.constrained_counterfactual` are fields. `epsilon` and `epsilon_high` clip
    nothing, as the projection bounds the update.

    Args:
        auditor: judges the steps, by name or `"module:object"`; the environment's own if `None`.
        auditor_options: options of the auditor, a mapping.
        interventions: what may replace a step, by name or `"module:object"`; the environment's own if `None`.
        interventions_options: options of the interventions, a mapping.
        num_iterations: optimizer steps on each generation of episodes. With 1 the projection has no effect.
        max_steps: optimizer steps: 3,000 updates of two.
    """

    auditor: str | None = None
    auditor_options: dict | str | None = None
    interventions: str | None = None
    interventions_options: dict | str | None = None

    def options(self) -> dict[str, Any]:
        options = super().options()
        for name in ("auditor", "interventions"):
            part = as_mapping(f"{name}_options", getattr(self, f"{name}_options"))
            if part and options[name] is None:
                raise ValueError(f"{name}_options need {name}, got {part} without; name it.")
            if options[name] is not None:
                options[name] = {"name": options[name], "options": part}
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
    config_class = ConstrainedCounterfactualConfig
