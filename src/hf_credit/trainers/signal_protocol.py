"""The protocol `signal` of `hf-credit diagnose`: how much signal methods have at a saved policy, and its agreement."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset

from hf_credit import methods
from hf_credit.collectors import Single, Verified
from hf_credit.diagnostics import policy
from hf_credit.diagnostics.bucket_sampling import BucketPlan
from hf_credit.diagnostics.fidelity import FidelityStatus
from hf_credit.diagnostics.protocols import Protocol
from hf_credit.diagnostics.signal import SignalDiagnosis
from hf_credit.files import OwnFolder
from hf_credit.loading import device_of, load_processing_class, refuse_adapters
from hf_credit.methods import Method
from hf_credit.policies.saved import load_role_models
from hf_credit.rollouts.capabilities import Oracled, Replayable
from hf_credit.tasks.spec import TaskSpec
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.credit import CreditTrainer
from hf_credit.trainers.signal import NO_UPDATE, OUTCOME, measure

AGREEMENT = {"buckets": 32, "candidates": 4, "replays": 3, "value_actions": 4}  # at most
ALL_EQUAL = "no two episodes that were compared had different outcomes, so their replays were not played"
_OF_ANOTHER = "its verdicts are of another oracle than those of {}, which were replayed; ask for it alone"
_NO_CREDIT = "it credits no decision that was replayed"
TASKS = 16  # of a collection of single episodes; a method with several of each task has a quarter, at least 2


@dataclass(frozen=True, kw_only=True)
class SignalProtocol(Protocol):
    """Measures the signal of methods next to that of the plain outcome.

    The methods are those that are named, else that of the policy's training. A collection is an update of a training
    that begins with the policy, with the default settings of `CreditTrainer` and the sampling of the policy.

    Attributes:
        collections: K, at least 3.
    """

    collections: int = 24

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plan.replays < 2:
            raise ValueError(f"--protocol signal needs at least 2 --replays, got {self.plan.replays}; raise it.")

    @property
    def _tasks(self) -> int:
        """The tasks of a collection of single episodes: an even number, as trainers take it."""
        tasks = (self.tasks.episodes or TASKS * self.collections) // self.collections
        if tasks < 2:
            raise ValueError(
                f"a collection needs 2 tasks, got --episodes {self.tasks.episodes} for {self.collections}; raise it."
            )
        return tasks - tasks % 2

    def _few(self) -> BucketPlan:
        return replace(self.plan, **{name: min(getattr(self.plan, name), most) for name, most in AGREEMENT.items()})

    def replies(self, setup: TaskSpec) -> int:
        interaction, played = setup.build(), self._tasks * self.collections
        most = interaction.max_replies or 1
        agreement = policy.replies_at_most(64, most, self._few(), 0) if Replayable(interaction).replayable else 0
        return played * most * (1 + len(self.methods)) + agreement

    def diagnose(self, model: str, setup: TaskSpec, **loading: Any) -> Sequence[SignalDiagnosis]:
        refuse_adapters(model)
        tasks = replace(self.tasks, episodes=self._tasks * self.collections)
        subject, starts = policy.load_subject(model, setup, self._few(), tasks=tasks, **loading)
        trained = {} if self.methods or subject.trained is None else {subject.trained.name: subject.trained}
        asked = {OUTCOME: methods.make(OUTCOME), **trained, **self.methods}
        about = {"collections": self.collections, "methods": {label: one.spec() for label, one in asked.items()}}
        about, name, replayable = {**subject.about, **about}, subject.name, Replayable(setup.build()).replayable
        rows = [one.task if one.seed is None else {**one.task, "seed": one.seed % 2**63} for one in starts]
        del subject  # one model at a time
        gc.collect()
        with OwnFolder(prefix="hf-credit-signal-") as folder:
            make = partial(self._built, model, setup, rows, folder, loading, [])
            makers = {label: partial(make, method) for label, method in asked.items()}
            found = measure(name, makers, seed=self.plan.seed, about=about)
        if not replayable:
            return [found]
        if all(one.equal == 1 for one in found.signals.values()):
            return [replace(found, not_measured=dict.fromkeys(asked, ALL_EQUAL))]
        del make, makers
        gc.collect()
        subject, _ = policy.load_subject(model, setup, self._few(), tasks=tasks, **loading)
        agreement = self._agreement(subject, starts, asked)
        return [replace(found, **{**agreement, "cost": found.cost + agreement["cost"]})]

    def _agreement(
        self, subject: policy.Subject, starts: Sequence[Any], asked: Mapping[str, Method]
    ) -> dict[str, Any]:
        """The rank correlation of the credit of replies with the returns of other replays of them."""
        judged: list[tuple[Any, str]] = [(one.collector, label) for label, one in asked.items()]
        judged = [one for one in judged if hasattr(one[0], "oracle") and getattr(one[0], "required", True)]
        collector, first = judged[0] if judged else (None, "")
        oracle = Oracled(subject.engine.interaction).chosen(collector and collector.oracle)
        named = {label: asked[label].spec()["options"].get("oracle") for _, label in judged}
        others = {label: _OF_ANOTHER.format(first) for label, own in named.items() if own != named[first]}
        found = policy.diagnose_policy(subject, starts[:64], self._few(), methods=asked, oracle=oracle)
        credits = [one for one in found.events[0].credits if one.method in asked and one.method not in others]
        status = {one.method: one.status.get("apart", "no reply has two replays without error") for one in credits}
        unknown = {label: why for label, why in status.items() if why != FidelityStatus.OK}
        unknown = {**{label: _NO_CREDIT for label in asked if label not in status}, **unknown, **others}
        return {
            "agreement": {one.method: one.fidelity["apart"] for one in credits if "apart" in one.fidelity},
            "not_measured": {**unknown, **found.not_measured},
            "cost": found.cost,
        }

    def _built(
        self,
        model: str,
        setup: TaskSpec,
        rows: Sequence[Mapping[str, Any]],
        folder: Path,
        loading: Mapping[str, Any],
        loaded: list[Any],
        method: Method,
    ) -> CreditTrainer:
        judged = method.collector
        single = isinstance(judged.inner if isinstance(judged, Verified) else judged, Single)
        size = self._tasks if single else max(self._tasks // 8 * 2, 2)
        # Methods with collections of different sizes share no task between different collections.
        chosen = [rows[k * self._tasks + place] for k in range(self.collections) for place in range(size)]
        interaction, sampling, cpu = setup.build(), setup.sampling, device_of(loading.get("device")) == "cpu"
        trusted, most = bool(loading.get("trust_remote_code")), sampling.max_new_tokens
        args = CreditConfig(
            **NO_UPDATE,
            output_dir=str(folder),
            max_steps=self.collections,
            per_device_train_batch_size=size,
            rows_per_forward=None if cpu else 4,
            steps_per_generation=1,
            shuffle_dataset=False,
            seed=self.plan.seed,
            use_cpu=cpu,
            bf16=False,
            gradient_checkpointing=not cpu,
            max_completion_length=most,
            **{name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k", "repetition_penalty")},
            min_p=sampling.min_p or None,
            chat_template_kwargs=dict(setup.chat_template_kwargs),
            max_concurrent_episodes=loading.get("max_concurrent", 256),
            critic_model=setup.critic_model,
            trust_remote_code=trusted,
        )
        tokenizer = load_processing_class(model, trusted)
        untrained = loading.get("role_models") or {}
        settings: dict[str, Any] = {
            "processing_class": tokenizer,
            "samplers": load_role_models(untrained, interaction, tokenizer, most, str(args.device), trusted),
        }
        train = Dataset.from_list([dict(row) for row in chosen])
        trainer = CreditTrainer(loaded[0] if loaded else model, interaction, args, train, method=method, **settings)
        loaded[:] = [trainer.model]  # which the next method's trainer takes as it is
        return trainer
