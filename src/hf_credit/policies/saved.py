"""Opens a saved policy, to play the task that it was trained on or another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_credit.loading import ADAPTER_CONFIG, device_of, load_adapter, load_policy, load_tokenizer, role_folders
from hf_credit.policies.generation import max_context_tokens, reply_logprobs, sampler
from hf_credit.policies.players import PLAYERS
from hf_credit.redaction import public
from hf_credit.registry import name_and_options, refuse_options
from hf_credit.rollouts import Chat, Decision, Engine, GenerateFn, Interaction
from hf_credit.rollouts.capabilities import ReadsTokens, TrainedRoles
from hf_credit.rollouts.media import media_of
from hf_credit.rollouts.reply_ends import end_tokens
from hf_credit.rollouts.samplers import Player, Samplers, require_untrained
from hf_credit.tasks import Sampling, TaskSpec


def load_sampler(
    model: str,
    sampling: Sampling,
    device: str | None = None,
    trust_remote_code: bool = False,
    base: str | None = None,
    logprobs: bool = False,
) -> tuple[Any, Any, GenerateFn | Mapping[str, GenerateFn]]:
    """Loads a model, its tokenizer or processor, and its sampler, or the sampler of each role if roles have adapters.

    Args:
        model: as in `load_policy`, or the folder of a run with `role_adapters`.
        device, trust_remote_code: as in `load_policy`.
        base: the folder of the base model of adapters; the one that they name if `None`.
        logprobs: as in `hf_credit.policies.generation.sampler`.

    Raises:
        ValueError: there is no such model, or a sampling parameter is out of range.
    """
    parameters: dict[str, Any] = {**vars(sampling), "logprobs": logprobs}
    if role_folders(model):
        from hf_credit.policies.role_policies import load_role_policies

        device = device_of(device)
        network, generate = load_role_policies(model, base, device, trust_remote_code, **parameters)
        return network, load_tokenizer(model, trust_remote_code), generate
    whole = base if base is not None and Path(model, ADAPTER_CONFIG).is_file() else model
    network, processing_class = load_policy(whole, device, trust_remote_code)
    if whole != model:
        network = load_adapter(network, model).merge_and_unload()
    return network, processing_class, sampler(network, processing_class, **parameters)


def load_role_models(
    models: Mapping[str, Any],
    interaction: Interaction[Any],
    tokenizer: Any,
    max_new_tokens: int,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> dict[str, GenerateFn | Player]:
    """Loads separate models for roles that are not trained, such as a judge.

    Args:
        models: by role, or `"continuations"` (`CONTINUATIONS`), a folder or an id on the Hub; or a mapping of this
            `name` and `options`, which are parameters of a `hf_credit.tasks.Sampling`. By default decoding is greedy.
            The name `"server"` is a `ServedPlayer`, and `"script"` a `ScriptPlayer` (`hf_credit.policies.players`).
        tokenizer: the policy's, or its processor, with which their contexts are encoded.
        max_new_tokens: maximum length of a reply in tokens, unless `options` say it.
        device, trust_remote_code: as in `load_policy`.

    Raises:
        ValueError: a role is trained, an option is unknown or out of range, there is no such model, its vocabulary
            is not the policy's, its server does not answer, or the task has no script.
    """
    require_untrained(interaction, models)
    found: dict[str, GenerateFn | Player] = {}
    for role, model in models.items():
        name, options = name_and_options(f"the model of {role!r}", model)
        if name in PLAYERS:
            given = {"interaction": interaction} if name == "script" else {"max_new_tokens": max_new_tokens}
            refuse_options("player", PLAYERS[name], name, {**given, **options})
            found[role] = PLAYERS[name](**{**given, **options}).check()
            continue
        refuse_options("role model", Sampling, name, options)
        network = load_alike(f"a model that replies for {role!r}", name, tokenizer, device, trust_remote_code)
        found[role] = sampler(network, tokenizer, **{"max_new_tokens": max_new_tokens, "temperature": 0, **options})
    return found


def load_alike(what: str, name: str, tokenizer: Any, *loading: Any) -> Any:
    """Loads a model as `load_policy`; refuses another vocabulary than that of the policy's tokenizer or processor."""
    network, its_own = load_policy(name, *loading)
    if media_of(its_own).tokenizer.get_vocab() != media_of(tokenizer).tokenizer.get_vocab():
        raise ValueError(
            f"{what} must have the policy's vocabulary, got {name!r} with another; choose a model of its family."
        )
    return network


class SavedPolicy:
    """A saved policy, loaded to play a task.

    Args:
        model: a folder or an id on the Hub, as in `load_sampler`.
        spec: the task with its prompt and sampling settings.
        interaction: from `spec.build()`.
        role_models: as `models` in `load_role_models`. The policy plays every other role.
        device, trust_remote_code, base: as in `load_sampler`.

    Attributes:
        network, tokenizer, chat: the loaded model, its tokenizer, and its rendering of conversations.
        generate: the sampler of the policy, or of each role that has an adapter.
        max_context_tokens: the maximum length of a context before a reply; `None` if the model has no limit.

    Raises:
        ValueError: as in `load_sampler` and `load_role_models`.
    """

    def __init__(
        self,
        model: str,
        spec: TaskSpec,
        interaction: Interaction[Any],
        *,
        role_models: Mapping[str, Any] | None = None,
        device: str | None = None,
        trust_remote_code: bool = False,
        base: str | None = None,
    ) -> None:
        self.model, self.spec, self.interaction = model, spec, interaction
        self._role_models, most = dict(role_models or {}), spec.sampling.max_new_tokens
        require_untrained(interaction, self._role_models)
        self._logprobs = ReadsTokens(interaction).reads_tokens  # which programs may ask for
        loaded = load_sampler(model, spec.sampling, device, trust_remote_code, base, self._logprobs)
        self.network, processing_class, self.generate = loaded
        self.tokenizer = media_of(processing_class).tokenizer
        of_roles = self._role_models, interaction, processing_class, most, device, trust_remote_code
        self._others = load_role_models(*of_roles)
        self.chat = Chat(processing_class, spec.chat_template_kwargs, end_tokens(self.network, self.tokenizer))
        self.max_context_tokens = max_context_tokens(self.network, most)

    def samplers(self, greedy: bool = False) -> Samplers:
        """Returns the sampler, or that of each role, as an `Engine` takes it; at temperature 0 if `greedy`."""
        own = self.generate
        if greedy:
            settings: dict[str, Any] = {**vars(self.spec.sampling), "temperature": 0, "logprobs": self._logprobs}
            if isinstance(own, Mapping):
                from hf_credit.policies.role_policies import role_samplers

                own = role_samplers(self.network, own, self.tokenizer, **settings)
            else:
                own = sampler(self.network, self.chat.media.processing_class, **settings)
        if not self._others:
            return own
        return {**(own if isinstance(own, Mapping) else dict.fromkeys(self.interaction.roles, own)), **self._others}

    def engine(self, greedy: bool = False, max_concurrent: int = 256) -> Engine[Any]:
        """Returns an engine that plays the task with the policy."""
        return Engine(
            self.interaction,
            self.chat,
            self.samplers(greedy),
            max_concurrent=max_concurrent,
            max_context_tokens=self.max_context_tokens,
        )

    def logprobs(self, decisions: Sequence[Decision]) -> list[tuple[float, ...]]:
        """Returns the log-probability of each token of each decision, in nats, as `reply_logprobs`."""
        asked = [(one.context_ids, one.action_ids) for one in decisions]
        return reply_logprobs(self.network, asked, self.spec.sampling.temperature, self.chat.media)

    def about(self) -> dict[str, Any]:
        """Returns plain values for results: the model, its setup, and the models of untrained roles, `None` for the
        policy itself."""
        untrained = {role: self._role_models.get(role) for role in TrainedRoles(self.interaction).untrained}
        facts = {"model": self.model, "setup": self.spec.to_dict()}
        return dict(public({**facts, "role_models": untrained} if untrained else facts))
