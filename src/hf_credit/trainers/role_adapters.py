"""Roles with policies of their own: every role trains an adapter of its own on one base model."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType
from datasets import Dataset, IterableDataset
from peft import LoraConfig, PeftModel
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_credit.environments.randomness import derive
from hf_credit.methods import DecisionCredit
from hf_credit.policies.role_policies import MixedRoles, RoleSampler, can_mix, use_adapter
from hf_credit.rollouts import Chat, Engine, Episode, GenerateFn, Interaction
from hf_credit.trainers.base import EpisodeTrainer, making_engine
from hf_credit.trainers.generation import ContinuingReplies
from hf_credit.trainers.role_requests import RoleRequests, adapter_rank, engine_settings, refuse_requests
from hf_credit.validators import whole_number

_TRLS_OWN = "default"  # what TRL names the adapter that it makes of a `peft_config`
_TAKEN = {_TRLS_OWN: "PEFT saves it as the only one", "critic": "a critic's folder has it", "ref": "TRL has it"}
# The others change the base model to fit one adapter, or look at data for it.
_STARTS = (True, False, "gaussian", "orthogonal")
SCHEDULES = ("synchronous", "alternating")
_SHARDED = (DistributedType.DEEPSPEED, DistributedType.FSDP, DistributedType.MEGATRON_LM)


class RoleAdapters:
    """An adapter for each role, named after it, all of them trained.

    Each starts from weights of its own, drawn by its name, the same on every process.

    Args:
        model: with an adapter of each role already, or with one named `default`, which gives way to as many of its
            configuration as there are roles.
        roles: the names.
        seed: of the weights.

    Raises:
        ValueError: the name of a role is one of the model's own parts.
    """

    def __init__(self, model: PeftModel, roles: Sequence[str], seed: int) -> None:
        self.model = model
        if set(model.peft_config) != set(roles):
            self._refuse_names_of_parts(roles)
            for role in roles:
                self._add(role, seed)
            model.set_adapter(roles[0])
            model.delete_adapter(_TRLS_OWN)
        self._places = {role: self._trained(role) for role in roles}
        model.set_adapter(roles[0])
        self.thaw()

    @property
    def parameters(self) -> dict[str, list[nn.Parameter]]:
        """The weights of each role, as the model has them now; FSDP2 puts parts in their place."""
        return {role: [getattr(*place) for place in places] for role, places in self._places.items()}

    def thaw(self) -> None:
        """Lets all adapters be trained, whatever PEFT has frozen meanwhile."""
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # what is said of whole weights is forgotten with them
        for parameters in self.parameters.values():
            for parameter in parameters:
                parameter.requires_grad_(True)

    def zero_loss(self) -> Tensor:
        """0, with a gradient of 0 for the weights of every role.

        Processes exchange gradients in the last backward pass of an update and wait for those of all weights, while
        the rows of that pass are of one role. And a role without credit has the same gradient on any number of them.
        """
        every = [parameter for parameters in self.parameters.values() for parameter in parameters]
        return torch.stack([parameter.float().sum() for parameter in every]).sum() * 0

    def _trained(self, role: str) -> list[tuple[nn.Module, str]]:
        self.model.set_adapter(role)  # freezes all others
        named = ((module, *one) for module in self.model.modules() for one in module.named_parameters(recurse=False))
        return [(module, name) for module, name, parameter in named if parameter.requires_grad]

    def _add(self, role: str, seed: int) -> None:
        device = self.model.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(derive(seed, "adapter", role) % 2**63)
            self.model.add_adapter(role, copy.deepcopy(self.model.peft_config[_TRLS_OWN]))
        # TRL has set precision and dropout of its own adapter; each role's are the same.
        parameters, modules = dict(self.model.named_parameters()), dict(self.model.named_modules())
        for name, parameter in list(parameters.items()):
            if (own := _renamed(name, role)) != name:
                parameters[own].data = parameters[own].data.to(parameter.dtype)
        for name, module in modules.items():
            if isinstance(module, nn.Dropout) and (own := _renamed(name, role)) != name:
                modules[own].p = module.p  # type: ignore[assignment]

    def _refuse_names_of_parts(self, roles: Iterable[str]) -> None:
        parts = {part for name, _ in self.model.named_modules() for part in name.split(".")} - {_TRLS_OWN}
        for role in roles:
            if role in parts or hasattr(nn.ModuleDict(), role):
                raise ValueError(
                    f"the name of a role must not be that of a part of the model, got {role!r}, which its adapter "
                    "could not be told from; rename the role."
                )


class _LeaveOthers(TrainerCallback):
    """Takes away the gradients of roles that do not learn: by its moments, an optimizer moves weights without one.

    Args:
        trainer: whose roles they are.
    """

    def __init__(self, trainer: RoleAdapterTrainer) -> None:
        self.trainer = trainer

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        learning = self.trainer.learning_roles()
        for role, parameters in self.trainer.adapters.parameters.items():
            if role not in learning:
                for parameter in parameters:
                    parameter.grad = None


class RoleAdapterTrainer(EpisodeTrainer):
    """A trainer whose roles share one policy or, with `args.role_adapters`, have an adapter each on one base model.

    A role's adapter writes the role's replies and learns from them alone, in every update or, with
    `args.role_schedule="alternating"`, in turns. The reference of the KL penalty is the base model without any
    adapter.

    Args:
        model, interaction, args, train_dataset: as in `EpisodeTrainer`; a PEFT model needs one adapter for each role
            and no other.
        peft_config: a `LoraConfig`, with `role_adapters` that of each role.
        **kwargs: as in `EpisodeTrainer`.

    Raises:
        ValueError: adapters and roles do not match, a role's name cannot name an adapter, or the set-up shards the
            policy or generates elsewhere.
    """

    def __init__(
        self,
        model: Any,
        interaction: Interaction[Any],
        args: Any,
        train_dataset: Dataset | IterableDataset,
        peft_config: Any = None,
        **kwargs: Any,
    ) -> None:
        if args.role_adapters is None:
            refuse_schedule(args)
            super().__init__(model, interaction, args, train_dataset, peft_config=peft_config, **kwargs)
            return
        refuse_schedule(args)
        refuse_roles(args.role_adapters, getattr(interaction, "roles", None))
        refuse_adapters(args.role_adapters, model, peft_config)
        refuse_settings(args)
        configs = model.peft_config if peft_config is None else {"": peft_config}
        engine: dict[str, Any] = {}
        if args.use_vllm:
            refuse_requests(args, configs.values())
            engine = engine_settings(len(args.role_adapters), adapter_rank(configs))
        self.roles = tuple(args.role_adapters)
        # `RoleAdapters.zero_loss` reaches every weight, so nothing is to be searched for, and weights are used outside
        # of the forward pass, which the search does not bear.
        args.ddp_find_unused_parameters = False
        beta = args.beta
        if isinstance(model, PeftModel):
            args.beta = 0.0  # TRL would look for an adapter named "default" to copy as the reference
        try:
            with making_engine(**engine):
                super().__init__(model, interaction, args, train_dataset, peft_config=peft_config, **kwargs)
        finally:
            args.beta = beta
        self.beta = beta
        self.add_callback(_LeaveOthers(self))

    def learning_roles(self) -> tuple[str, ...]:
        """The roles with an adapter that learn in the present update."""
        if self.args.role_schedule == "synchronous":
            return tuple(self.roles)
        return (self.roles[self.state.global_step // self.args.switch_every % len(self.roles)],)

    def of_learning_roles(
        self, episodes: Sequence[Episode], credit: Mapping[str, DecisionCredit]
    ) -> Mapping[str, DecisionCredit]:
        """The credit of decisions, of roles that learn in the present update alone."""
        if not self.roles or self.args.role_schedule == "synchronous":
            return credit
        learning = self.learning_roles()
        self.log_metric("role/learning", float(self.roles.index(learning[0])))
        role_of = {decision.id: decision.role for episode in episodes for decision in episode.decisions}
        return {name: value for name, value in credit.items() if role_of[name] in learning}

    def make_engine(self, chat: Chat) -> Engine[Any]:
        engine = super().make_engine(chat)
        if self.roles:
            if self.accelerator.is_fsdp2 and self.args.role_schedule == "synchronous":
                raise ValueError(
                    "role_adapters sharded by FSDP2 must learn by turns, got role_schedule='synchronous', by which "
                    "processes would exchange the gradients of different adapters; take 'alternating', or replicate "
                    "the policy."
                )
            if self.accelerator.distributed_type in _SHARDED and not self.accelerator.is_fsdp2:
                raise ValueError(
                    "role_adapters must be replicated on every process or sharded by FSDP2, got "
                    f"{self.accelerator.distributed_type.value}, whose optimizer takes them for one and moves those "
                    "that do not learn; take trainers/accelerate/fsdp2.yaml or multi_gpu.yaml."
                )
            self.adapters = RoleAdapters(self.accelerator.unwrap_model(self.model), self.roles, self.args.seed)
            engine.generate = self._samplers()
        return engine

    def _samplers(self) -> Mapping[str, GenerateFn]:
        """The sampler of each role; several in one call where the policy itself generates and its adapters mix."""
        model = self.adapters.model
        if self.vllm is not None:
            self._memories: list[ContinuingReplies] = []
            self.requests = RoleRequests(self.vllm, model, self.roles, self.accelerator, self.args)
            return self.requests
        # One for each role: keys and values that an adapter wrote are of no use to another.
        memories = {role: self._continuing_replies() for role in self.roles}
        self._memories = [one for one in memories.values() if one is not None]
        # Sharded weights want all processes in every call.
        other = self.ranks if self.accelerator.is_fsdp2 else self._generate_replies
        alone = {role: RoleSampler(own or other, model, role) for role, own in memories.items()}
        together = self._continuing_replies() if can_mix(model) else None
        if together is None:
            return alone
        self._memories.append(together)
        return MixedRoles(alone, together, model)

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """As for one policy; and within, vLLM has the adapters of before."""
        if self.roles and self.vllm is not None:
            self.requests.refresh()
        with ExitStack() as stack:
            stack.enter_context(super().forgetting())
            for memory in self._memories if self.roles else ():
                stack.enter_context(memory.forgotten())
            yield

    def use_policy_of(self, part: dict[str, Tensor]) -> None:
        if self.roles:
            # Weights that are sharded are exchanged after every pass, of as many adapters on all processes.
            one = self.accelerator.is_fsdp2 and torch.is_grad_enabled()
            role = self.learning_roles()[0] if one else self.roles[int(part["role"][0])]
            use_adapter(self.adapters.model, role)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        wanted = self.roles and torch.is_grad_enabled() and not self.accelerator.is_fsdp2
        return loss + self.adapters.zero_loss() if wanted else loss

    def _reference_logprobs(self, batch: dict[str, Tensor]) -> Tensor:
        try:
            return super()._reference_logprobs(batch)
        finally:
            if self.roles:
                self.adapters.thaw()  # PEFT turns on again only the adapter that was in use

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.roles:
            self.adapters.thaw()  # transformers loads all, and lets one be trained
            return
        policy = self.model if model is None else model
        whole = isinstance(policy, PeftModel) and not self.is_fsdp_enabled
        if whole and len(policy.peft_config) > 1 and Path(resume_from_checkpoint, "adapter_config.json").is_file():
            # Beside a critic's adapter, transformers before 5.23 leaves the policy's own as it was.
            policy.load_adapter(resume_from_checkpoint, _TRLS_OWN, is_trainable=True)

    def _load_best_model(self) -> None:
        best = self.state.best_model_checkpoint
        if self.roles and best is not None:
            self._load_from_checkpoint(best)  # transformers knows one adapter alone here
        else:
            super()._load_best_model()


def _renamed(name: str, role: str) -> str:
    """The name that a part of TRL's own adapter has in a role's."""
    return ".".join(role if part == _TRLS_OWN else part for part in name.split("."))


def refuse_roles(roles: Sequence[str], played: Iterable[str] | None) -> None:
    """Refuses roles that cannot each have an adapter.

    Args:
        roles: those with an adapter.
        played: the roles of the Interaction, or `None` if it does not say.

    Raises:
        ValueError: there is none, one is named twice, a name is not one of an adapter, or they are not those that are
            played.
    """
    if not roles or len(set(roles)) < len(roles):
        raise ValueError(f"role_adapters must name each role once, got {list(roles)}; name those of the interaction.")
    for role in roles:
        if not re.fullmatch(r"\w[\w -]*", role) or role in _TAKEN:
            why = f", but {_TAKEN[role]}" if role in _TAKEN else ""
            raise ValueError(
                "a role with an adapter must have a name of letters, digits, spaces, - and _, as its folder has, got "
                f"{role!r}{why}; rename the role."
            )
    if played is not None and set(played) != set(roles):
        raise ValueError(
            f"role_adapters must be the roles of the interaction, got {sorted(roles)} for {sorted(played)}; name each "
            "of them."
        )


def refuse_adapters(roles: Sequence[str], model: Any, peft_config: Any) -> None:
    """Refuses what no adapters of roles can be made of.

    Args:
        roles: those with an adapter.
        model: the trainer's.
        peft_config: the trainer's.

    Raises:
        ValueError: there is neither a LoRA configuration nor a PEFT model with an adapter for each role and no other,
            or the configuration changes the base model.
    """
    if peft_config is None:
        if not isinstance(model, PeftModel) or set(model.peft_config) != set(roles):
            got = f"adapters {sorted(model.peft_config)}" if isinstance(model, PeftModel) else "none"
            raise ValueError(
                f"role_adapters must have a peft_config, or a PEFT model with the adapters {sorted(roles)} and no "
                f"other, got {got}; pass peft_config=LoraConfig(...)."
            )
        return
    if not isinstance(peft_config, LoraConfig):
        raise ValueError(
            f"role_adapters must be LoRA adapters, got a {type(peft_config).__name__}; pass a LoraConfig."
        )
    if peft_config.init_lora_weights not in _STARTS:
        raise ValueError(
            "the adapters of several roles must leave the base model as it is, got init_lora_weights="
            f"{peft_config.init_lora_weights!r}, which does not; take one of {', '.join(map(str, _STARTS))}."
        )


def refuse_settings(args: Any) -> None:
    """Refuses settings by which the policies of roles would be generated from elsewhere, as one.

    Args:
        args: the trainer's settings.

    Raises:
        ValueError: continuous batching, or DDP's search for unused weights.
    """
    for name in ("use_transformers_continuous_batching", "ddp_find_unused_parameters"):
        if getattr(args, name):
            raise ValueError(
                f"role_adapters must go with {name}=False, got True, which knows one policy at a time; leave it out."
            )


def refuse_schedule(args: Any) -> None:
    """Refuses turns that cannot be taken.

    Args:
        args: the trainer's settings.

    Raises:
        ValueError: the schedule is unknown, no role has a policy of its own, or roles would change within the updates
            that one generation serves.
    """
    if args.role_schedule not in SCHEDULES:
        raise ValueError(
            f"role_schedule must be one of {', '.join(SCHEDULES)}, got {args.role_schedule!r}; pick one of these."
        )
    whole_number("switch_every", args.switch_every, 1)
    if args.role_schedule == "synchronous":
        return
    if args.role_adapters is None:
        raise ValueError(
            "role_schedule='alternating' must go with role_adapters, got None, where all roles are one policy; name "
            "the roles, or take 'synchronous'."
        )
    served = max(1, args.steps_per_generation * args.num_iterations // args.gradient_accumulation_steps)
    if args.switch_every % served:
        raise ValueError(
            f"switch_every must be a multiple of the updates that one generation serves ({served} here), got "
            f"{args.switch_every}; change one of them."
        )
