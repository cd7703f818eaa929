"""One policy per role: each role trains its own adapter on a shared base model."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from accelerate.utils import DistributedType
from peft import LoraConfig, PeftModel
from torch import Tensor, nn

from hf_credit.environments.randomness import derive
from hf_credit.methods import DecisionCredit
from hf_credit.policies.generation import PrefixSampler
from hf_credit.policies.role_policies import MixedRoles, RoleSampler, can_mix, use_adapter
from hf_credit.rollouts import Episode, GenerateFn, Interaction
from hf_credit.trainers.component import Component, Seam
from hf_credit.trainers.ranks import reshard
from hf_credit.trainers.trl_settings import refuse_unused

TRLS_OWN = "default"
"""The name of the adapter that TRL creates from a `peft_config`."""

_TAKEN = {
    TRLS_OWN: "PEFT saves the adapter of this name without a folder",
    "critic": "a critic's folder has this name",
    "ref": "TRL's reference adapter has this name",
}
# The other initialisations change the base model to fit one adapter, or need data.
_STARTS = (True, False, "gaussian", "orthogonal")
_SHARDED = (DistributedType.DEEPSPEED, DistributedType.FSDP, DistributedType.MEGATRON_LM)


class RoleAdapters(Component):
    """One trained adapter for each role, with the role's name.

    A role's adapter generates the replies of the role and learns only from them: in every update, or in alternation
    with `args.role_schedule="alternating"`. Its initial weights depend on its name and the seed, and are the same on
    every process. As a callback, this removes the gradients of roles that do not learn in an update, since an
    optimizer with momentum moves a weight whose gradient is 0.

    Args:
        trainer: of the roles. Its model has an adapter for each role, or one named `default`, which is replaced by one
            of the same configuration for each role.

    Attributes:
        requests: the samplers of roles if vLLM generates, else `None`.

    Raises:
        ValueError: a role has the name of a module of the model, or the set-up shards the policy.
    """

    def __init__(self, trainer: Seam) -> None:
        self.trainer, self.roles, self.args = trainer, trainer.roles, trainer.args
        self._refuse_shards()
        self.model: PeftModel = trainer.accelerator.unwrap_model(trainer.model)
        if set(self.model.peft_config) != set(self.roles):
            self._refuse_names_of_modules()
            for role in self.roles:
                self._add(role)
            self.model.set_adapter(self.roles[0])
            self.model.delete_adapter(TRLS_OWN)
        self._places = {role: self._trained(role) for role in self.roles}
        self.model.set_adapter(self.roles[0])
        self.unfreeze()
        self.caches: list[PrefixSampler] = []
        self.requests: Any = None

    @property
    def parameters(self) -> dict[str, list[nn.Parameter]]:
        """The current weights of each role; FSDP2 replaces whole weights by shards."""
        return {role: [getattr(*place) for place in places] for role, places in self._places.items()}

    def samplers(
        self, new_cache: Callable[[], PrefixSampler | None], generate: GenerateFn
    ) -> Mapping[str, GenerateFn]:
        """Returns the samplers of the roles: one batch for all where adapters can be mixed in a batch.

        Args:
            new_cache: makes generation that reuses keys and values; `None` if the set-up does not allow it.
            generate: samples from the policy in place of it.
        """
        # One cache for each role, because adapters write different keys and values.
        caches = {role: new_cache() for role in self.roles}
        together = new_cache() if can_mix(self.model) else None
        self.caches = [cache for cache in (*caches.values(), together) if cache is not None]
        alone = {role: RoleSampler(cache or generate, self.model, role) for role, cache in caches.items()}
        return alone if together is None else MixedRoles(alone, together, self.model)

    def learning(self) -> tuple[str, ...]:
        """The roles that learn in the current update."""
        if self.args.role_schedule == "synchronous":
            return tuple(self.roles)
        return (self.roles[self.trainer.state.global_step // self.args.switch_every % len(self.roles)],)

    def learning_credit(
        self, episodes: Sequence[Episode], credit: Mapping[str, DecisionCredit]
    ) -> Mapping[str, DecisionCredit]:
        """The credit of the decisions of those roles that learn in the current update."""
        if self.args.role_schedule == "synchronous":
            return credit
        learning = self.learning()
        self.trainer.log_metric("role/learning", float(self.roles.index(learning[0])))
        role_of = {decision.id: decision.role for episode in episodes for decision in episode.decisions}
        return {name: value for name, value in credit.items() if role_of[name] in learning}

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Gives vLLM the current adapters on entry, and drops all cached keys and values on exit."""
        if self.requests is not None:
            self.requests.refresh()
        with ExitStack() as stack:
            for cache in self.caches:
                stack.enter_context(cache.forgotten())
            yield

    def use(self, part: dict[str, Tensor]) -> None:
        """Activates the adapter of the rows' role, for a forward pass over them and its backward pass."""
        # After every pass, FSDP2 exchanges gradients of the active adapter, which all processes must agree on.
        same = self.trainer.accelerator.is_fsdp2 and torch.is_grad_enabled()
        use_adapter(self.model, self.learning()[0] if same else self.roles[int(part["role"][0])])

    def unfreeze(self) -> None:
        """Makes all adapters trainable, since PEFT freezes all but the active one."""
        reshard(self.model)  # a flag set on whole weights is lost when they are sharded again
        for parameters in self.parameters.values():
            for parameter in parameters:
                parameter.requires_grad_(True)

    def zero_loss(self) -> Tensor | float:
        """0, with a gradient of 0 for the weights of every role; the plain number 0 if the weights are sharded.

        Processes exchange gradients in the last backward pass of an update and wait for those of all weights, but the
        rows of that pass have one role. With it, a role without credit has the same gradient on any number of
        processes.
        """
        if self.trainer.accelerator.is_fsdp2:
            return 0.0
        trained = [parameter for parameters in self.parameters.values() for parameter in parameters]
        return torch.stack([parameter.float().sum() for parameter in trained]).sum() * 0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        learning = self.learning()
        for role, parameters in self.parameters.items():
            if role not in learning:
                for parameter in parameters:
                    parameter.grad = None

    def _trained(self, role: str) -> list[tuple[nn.Module, str]]:
        self.model.set_adapter(role)  # freezes all others
        return [
            (module, name)
            for module in self.model.modules()
            for name, parameter in module.named_parameters(recurse=False)
            if parameter.requires_grad
        ]

    def _add(self, role: str) -> None:
        with torch.random.fork_rng(devices=[]):  # PEFT makes weights on the CPU; those of GPUs stay different
            torch.default_generator.manual_seed(derive(self.args.seed, "adapter", role) % 2**63)
            self.model.add_adapter(role, copy.deepcopy(self.model.peft_config[TRLS_OWN]))
        # TRL sets precision and dropout for its own adapter only.
        parameters, modules = dict(self.model.named_parameters()), dict(self.model.named_modules())
        for name, parameter in list(parameters.items()):
            if (name_of_role := _renamed(name, role)) != name:
                parameters[name_of_role].data = parameters[name_of_role].data.to(parameter.dtype)
        for name, module in modules.items():
            if isinstance(module, nn.Dropout) and (name_of_role := _renamed(name, role)) != name:
                modules[name_of_role].p = module.p  # type: ignore[assignment]

    def _refuse_names_of_modules(self) -> None:
        modules = {part for name, _ in self.model.named_modules() for part in name.split(".")} - {TRLS_OWN}
        for role in self.roles:
            if role in modules or hasattr(nn.ModuleDict(), role):
                raise ValueError(
                    f"a role with an adapter must not have the name of a module of the model, got {role!r}; rename "
                    "the role."
                )

    def _refuse_shards(self) -> None:
        accelerator = self.trainer.accelerator
        if accelerator.is_fsdp2 and self.args.role_schedule == "synchronous":
            raise ValueError(
                "role_adapters sharded by FSDP2 must learn in alternation, got role_schedule='synchronous', with "
                "which processes would exchange the gradients of different adapters; use 'alternating', or replicate "
                "the policy."
            )
        if accelerator.distributed_type in _SHARDED and not accelerator.is_fsdp2:
            raise ValueError(
                "role_adapters must be replicated on every process or sharded by FSDP2, got "
                f"{accelerator.distributed_type.value}, whose optimizer also moves the adapters that do not learn; "
                "use trainers/accelerate/fsdp2.yaml or multi_gpu.yaml."
            )


def prepare_roles(args: Any, interaction: Interaction[Any], model: Any, peft_config: Any) -> dict[str, Any]:
    """Checks roles, adapters and settings against each other, and returns the arguments of vLLM's engine.

    Args:
        args: the trainer's settings, with `role_adapters`; DDP's search for unused weights is turned off.
        interaction, model, peft_config: the trainer's.

    Raises:
        ValueError: adapters and roles do not match, a role's name cannot name an adapter, or a setting generates with
            one policy for all roles.
    """
    refuse_roles(args.role_adapters, getattr(interaction, "roles", None))
    refuse_adapters(args.role_adapters, model, peft_config)
    refuse_unused(args, "adapters")
    # `RoleAdapters.zero_loss` reaches every weight, so none is unused; and it does so outside of the forward pass,
    # which the search does not support.
    args.ddp_find_unused_parameters = False
    if not getattr(args, "use_vllm", False):
        return {}
    from hf_credit.trainers.role_requests import adapter_rank, engine_settings, refuse_requests

    configs = model.peft_config if peft_config is None else {"": peft_config}
    refuse_requests(args, configs.values())
    return engine_settings(len(args.role_adapters), adapter_rank(configs))


def _renamed(name: str, role: str) -> str:
    """The name in a role's adapter of a parameter or module of TRL's own adapter."""
    return ".".join(role if part == TRLS_OWN else part for part in name.split("."))


def refuse_roles(roles: Sequence[str], played: Iterable[str] | None) -> None:
    """Refuses roles that cannot each have an adapter."""
    if not roles or len(set(roles)) < len(roles):
        raise ValueError(
            f"role_adapters must name each role once, got {list(roles)}; list the roles of the interaction."
        )
    for role in roles:
        if not re.fullmatch(r"\w[\w -]*", role) or role in _TAKEN:
            why = f", but {_TAKEN[role]}" if role in _TAKEN else ""
            raise ValueError(
                "a role with an adapter must have a name of letters, digits, spaces, - and _, as its folder does, got "
                f"{role!r}{why}; rename the role."
            )
    if played is not None and set(played) != set(roles):
        raise ValueError(
            f"role_adapters must be the roles of the interaction, got {sorted(roles)} for {sorted(played)}; name each "
            "of them."
        )


def refuse_adapters(roles: Sequence[str], model: Any, peft_config: Any) -> None:
    """Refuses a model and a configuration from which the roles cannot get adapters."""
    if peft_config is None:
        if not isinstance(model, PeftModel) or set(model.peft_config) != set(roles):
            got = f"adapters {sorted(model.peft_config)}" if isinstance(model, PeftModel) else "none"
            raise ValueError(
                f"role_adapters must have a peft_config, or a PEFT model with the adapters {sorted(roles)} and no "
                f"other, got {got}; pass peft_config=LoraConfig(...), or set use_peft in a recipe."
            )
        return
    if not isinstance(peft_config, LoraConfig):
        raise ValueError(
            f"role_adapters must be LoRA adapters, got a {type(peft_config).__name__}; pass a LoraConfig."
        )
    if peft_config.init_lora_weights not in _STARTS:
        raise ValueError(
            "the adapters of several roles must leave the base model unchanged, got init_lora_weights="
            f"{peft_config.init_lora_weights!r}, which does not; use one of {', '.join(map(str, _STARTS))}."
        )
