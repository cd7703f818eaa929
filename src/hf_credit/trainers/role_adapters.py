"""Roles with policies of their own: every role trains an adapter of its own on one base model."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import DistributedType
from peft import LoraConfig, PeftModel
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers import TrainerCallback

from hf_credit.environments.randomness import derive
from hf_credit.methods import DecisionCredit
from hf_credit.policies.role_policies import MixedRoles, RoleSampler, can_mix, use_adapter
from hf_credit.rollouts import Episode, GenerateFn, Interaction
from hf_credit.trainers.generation import ContinuingReplies
from hf_credit.trainers.role_requests import RoleRequests, adapter_rank, engine_settings, refuse_requests
from hf_credit.validators import one_of, whole_number

if TYPE_CHECKING:
    from hf_credit.trainers.base import EpisodeTrainer

TRLS_OWN = "default"
"""What TRL names the adapter that it makes of a `peft_config`."""

_TAKEN = {TRLS_OWN: "PEFT saves it as the only one", "critic": "a critic's folder has it", "ref": "TRL has it"}
# The others change the base model to fit one adapter, or look at data for it.
_STARTS = (True, False, "gaussian", "orthogonal")
SCHEDULES = ("synchronous", "alternating")
_SHARDED = (DistributedType.DEEPSPEED, DistributedType.FSDP, DistributedType.MEGATRON_LM)


class RoleAdapters(TrainerCallback):
    """An adapter for each role of a run, named after it, all of them trained.

    A role's adapter writes the role's replies and learns from them alone, in every update or, with
    `args.role_schedule="alternating"`, in turns. Each starts from weights of its own, drawn by its name, the same on
    every process. As a callback it takes away the gradients of roles that do not learn: by its moments, an optimizer
    moves weights without one.

    Args:
        trainer: whose roles they are; its model has an adapter of each role already, or one named `default`, which
            gives way to as many of its configuration as there are roles.
        new_client: makes a client of the vLLM server at an address.

    Attributes:
        samplers: who replies for each role.
        requests: to vLLM, where it generates.

    Raises:
        ValueError: the name of a role is one of the model's own parts, or the set-up shards the policy.
    """

    def __init__(self, trainer: EpisodeTrainer, new_client: Callable[[str], Any]) -> None:
        self.trainer, self.roles, self.args = trainer, trainer.roles, trainer.args
        self._refuse_shards()
        self.model: PeftModel = trainer.accelerator.unwrap_model(trainer.model)
        if set(self.model.peft_config) != set(self.roles):
            self._refuse_names_of_parts()
            for role in self.roles:
                self._add(role)
            self.model.set_adapter(self.roles[0])
            self.model.delete_adapter(TRLS_OWN)
        self._places = {role: self._trained(role) for role in self.roles}
        self.model.set_adapter(self.roles[0])
        self.thaw()
        self.memories: list[ContinuingReplies] = []
        self.requests: RoleRequests | None = None
        if trainer.vllm is not None:
            accelerator = trainer.accelerator
            self.requests = RoleRequests(trainer.vllm, self.model, self.roles, accelerator, self.args, new_client)
        self.samplers = self.requests or self._own_samplers()

    @property
    def parameters(self) -> dict[str, list[nn.Parameter]]:
        """The weights of each role, as the model has them now; FSDP2 puts parts in their place."""
        return {role: [getattr(*place) for place in places] for role, places in self._places.items()}

    def learning(self) -> tuple[str, ...]:
        """The roles that learn in the present update."""
        return learning_roles(self.args, self.roles, self.trainer.state.global_step)

    def of_learning(
        self, episodes: Sequence[Episode], credit: Mapping[str, DecisionCredit]
    ) -> Mapping[str, DecisionCredit]:
        """The credit of decisions, of roles that learn in the present update alone."""
        if self.args.role_schedule == "synchronous":
            return credit
        learning = self.learning()
        self.trainer.log_metric("role/learning", float(self.roles.index(learning[0])))
        role_of = {decision.id: decision.role for episode in episodes for decision in episode.decisions}
        return {name: value for name, value in credit.items() if role_of[name] in learning}

    def use(self, part: dict[str, Tensor]) -> None:
        """Before a forward pass over rows: their role's adapter reads them, and stays for the backward pass."""
        # Weights that are sharded are exchanged after every pass, of as many adapters on all processes.
        one = self.trainer.accelerator.is_fsdp2 and torch.is_grad_enabled()
        use_adapter(self.model, self.learning()[0] if one else self.roles[int(part["role"][0])])

    def thaw(self) -> None:
        """Lets all adapters be trained, whatever PEFT has frozen meanwhile."""
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # what is said of whole weights is forgotten with them
        for parameters in self.parameters.values():
            for parameter in parameters:
                parameter.requires_grad_(True)

    def zero_loss(self) -> Tensor | float:
        """0, with a gradient of 0 for the weights of every role; without one where the weights are sharded.

        Processes exchange gradients in the last backward pass of an update and wait for those of all weights, while
        the rows of that pass are of one role. And a role without credit has the same gradient on any number of them.
        """
        if self.trainer.accelerator.is_fsdp2:
            return 0.0
        every = [parameter for parameters in self.parameters.values() for parameter in parameters]
        return torch.stack([parameter.float().sum() for parameter in every]).sum() * 0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        learning = self.learning()
        for role, parameters in self.parameters.items():
            if role not in learning:
                for parameter in parameters:
                    parameter.grad = None

    def _own_samplers(self) -> Mapping[str, GenerateFn]:
        """Several in one call where the policy itself generates and its adapters mix."""
        trainer = self.trainer
        # One for each role: keys and values that an adapter wrote are of no use to another.
        memories = {role: trainer.continuing_replies() for role in self.roles}
        together = trainer.continuing_replies() if can_mix(self.model) else None
        self.memories = [one for one in (*memories.values(), together) if one is not None]
        # Sharded weights want all processes in every call.
        other = trainer.ranks if trainer.accelerator.is_fsdp2 else trainer.generate_replies
        alone = {role: RoleSampler(memory or other, self.model, role) for role, memory in memories.items()}
        return alone if together is None else MixedRoles(alone, together, self.model)

    def _trained(self, role: str) -> list[tuple[nn.Module, str]]:
        self.model.set_adapter(role)  # freezes all others
        named = ((module, *one) for module in self.model.modules() for one in module.named_parameters(recurse=False))
        return [(module, name) for module, name, parameter in named if parameter.requires_grad]

    def _add(self, role: str) -> None:
        device = self.model.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(derive(self.args.seed, "adapter", role) % 2**63)
            self.model.add_adapter(role, copy.deepcopy(self.model.peft_config[TRLS_OWN]))
        # TRL has set precision and dropout of its own adapter; each role's are the same.
        parameters, modules = dict(self.model.named_parameters()), dict(self.model.named_modules())
        for name, parameter in list(parameters.items()):
            if (own := _renamed(name, role)) != name:
                parameters[own].data = parameters[own].data.to(parameter.dtype)
        for name, module in modules.items():
            if isinstance(module, nn.Dropout) and (own := _renamed(name, role)) != name:
                modules[own].p = module.p  # type: ignore[assignment]

    def _refuse_names_of_parts(self) -> None:
        parts = {part for name, _ in self.model.named_modules() for part in name.split(".")} - {TRLS_OWN}
        for role in self.roles:
            if role in parts or hasattr(nn.ModuleDict(), role):
                raise ValueError(
                    f"the name of a role must not be that of a part of the model, got {role!r}, which its adapter "
                    "could not be told from; rename the role."
                )

    def _refuse_shards(self) -> None:
        accelerator = self.trainer.accelerator
        if accelerator.is_fsdp2 and self.args.role_schedule == "synchronous":
            raise ValueError(
                "role_adapters sharded by FSDP2 must learn by turns, got role_schedule='synchronous', by which "
                "processes would exchange the gradients of different adapters; take 'alternating', or replicate "
                "the policy."
            )
        if accelerator.distributed_type in _SHARDED and not accelerator.is_fsdp2:
            raise ValueError(
                "role_adapters must be replicated on every process or sharded by FSDP2, got "
                f"{accelerator.distributed_type.value}, whose optimizer takes them for one and moves those "
                "that do not learn; take trainers/accelerate/fsdp2.yaml or multi_gpu.yaml."
            )


def learning_roles(args: Any, roles: Sequence[str], step: int) -> tuple[str, ...]:
    """The roles that learn in an update.

    Args:
        args: the settings, with `role_schedule` and `switch_every`.
        roles: those with an adapter, in their order.
        step: how many updates came before it.
    """
    return tuple(roles) if args.role_schedule == "synchronous" else (roles[step // args.switch_every % len(roles)],)


def prepare_roles(args: Any, interaction: Interaction[Any], model: Any, peft_config: Any) -> dict[str, Any]:
    """Refuses roles, adapters and settings that do not go together, and gives what vLLM's engine is made with.

    Args:
        args: the trainer's settings; DDP's search for unused weights is turned off where roles have adapters.
        interaction, model, peft_config: the trainer's.

    Raises:
        ValueError: adapters and roles do not match, a role's name cannot name an adapter, or others would generate.
    """
    refuse_schedule(args)
    if args.role_adapters is None:
        return {}
    refuse_roles(args.role_adapters, getattr(interaction, "roles", None))
    refuse_adapters(args.role_adapters, model, peft_config)
    refuse_settings(args)
    # `RoleAdapters.zero_loss` reaches every weight, so nothing is to be searched for, and weights are used outside of
    # the forward pass, which the search does not bear.
    args.ddp_find_unused_parameters = False
    if not args.use_vllm:
        return {}
    configs = model.peft_config if peft_config is None else {"": peft_config}
    refuse_requests(args, configs.values())
    return engine_settings(len(args.role_adapters), adapter_rank(configs))


@contextmanager
def without_reference(args: Any, model: Any) -> Iterator[None]:
    """Within, roles have no penalty on a KL: TRL would look for an adapter named `default` to copy as the reference,
    which here is the base model without any adapter."""
    beta = args.beta
    if args.role_adapters is not None and isinstance(model, PeftModel):
        args.beta = 0.0
    try:
        yield
    finally:
        args.beta = beta


def _renamed(name: str, role: str) -> str:
    """The name that a part of TRL's own adapter has in a role's."""
    return ".".join(role if part == TRLS_OWN else part for part in name.split("."))


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
    one_of("role_schedule", args.role_schedule, SCHEDULES)
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
