"""Replies of roles from vLLM: every request names the adapter of its role, on a base model that stays fixed."""

from __future__ import annotations

import copy
import functools
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from peft import LoraConfig, PeftModel, get_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor

from hf_credit.files import OwnFolder, replaced
from hf_credit.policies.generation import generations
from hf_credit.rollouts import Context, GenerateFn, Generation
from hf_credit.trainers.trl_settings import refuse_unused
from hf_credit.trainers.vllm import limit_requests, naming_server, server_url

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vLLM's choices of max_lora_rank
# What vLLM ignores in an adapter, or interprets differently from PEFT.
_UNSUPPORTED = (
    "use_dora",
    "lora_bias",
    "modules_to_save",
    "rank_pattern",
    "alpha_pattern",
    "target_parameters",
    "trainable_token_indices",
    "layer_replication",
)
_ENDS = ("lm_head", "embed_tokens")  # vLLM's adapters there differ from PEFT's


class RoleRequests(dict[str, GenerateFn]):
    """The `GenerateFn` of each role through vLLM; `together` generates for several roles in one batch.

    vLLM holds the base model once and an adapter for each role. `refresh` sends it the adapters that have changed,
    each under a new name, because vLLM reuses the keys and values of an adapter of the same name.

    Args:
        model: has the adapters, by role.
        args, accelerator: the trainer's. Adapters reach vLLM as files below `output_dir`, which a server must read.
        vllm: TRL's; created within `making_engine`, if it runs in this process.
        new_client: returns a client of the server at an address.

    Raises:
        ValueError: the server takes no adapters, too few, or none of this rank, or has several replicas.
    """

    def __init__(
        self, model: PeftModel, args: Any, accelerator: Any, vllm: Any, new_client: Callable[[str], Any]
    ) -> None:
        super().__init__({role: functools.partial(self._alone, role) for role in args.role_adapters})
        self.model, self.accelerator, self.vllm = model, accelerator, vllm
        self.timeout = args.vllm_server_request_timeout
        self.url = server_url(args)
        self.client: Any = getattr(self.vllm, "vllm_client", None)  # TRL creates one on the main process only
        if self.url is not None:
            if self.client is None:
                self.client = new_client(self.url)
                limit_requests(self.client.session, self.timeout, args.vllm_server_timeout)
            refuse_server(self.client.get_server_info(), self.url, len(self), adapter_rank(self.model.peft_config))
        # Names that begin with _ are not pushed to the Hub.
        self.folder = OwnFolder(args.output_dir, prefix="_vllm_")
        self.pushed = 0  # the number of adapters sent to vLLM
        (self._run,) = broadcast_object_list([secrets.token_hex(4)])  # a server may have adapters of other runs
        self._names: dict[str, str] = {}
        self._folders: dict[str, OwnFolder] = {}  # by the name of the adapter
        self._weights: dict[str, dict[str, Tensor]] = {}

    def _alone(self, role: str, contexts: Sequence[Context]) -> Sequence[Generation]:
        return self.together([role] * len(contexts), contexts)

    def together(self, roles: Sequence[str], contexts: Sequence[Context], seeds: None = None) -> Sequence[Generation]:
        """One reply to each context.

        Args:
            roles: the role that replies to each context.
            contexts: at least one.
            seeds: must be `None`, since vLLM does not support seeds here.
        """
        names = [self._names[role] for role in roles]
        prompts = [list(context) for context in contexts]
        return self._of_engine(names, prompts) if self.url is None else self._of_server(names, prompts)

    def refresh(self) -> None:
        """Sends vLLM the adapters that have changed. Called on every process at the same time."""
        for role in self:
            weights = adapter_weights(self.model, role)
            sent = self._weights.get(role)
            if sent is not None and all(torch.equal(value, sent[name]) for name, value in weights.items()):
                continue
            self.pushed += 1
            self._push(role, weights)
            self._weights[role] = weights
        if self.url is not None:
            self.accelerator.wait_for_everyone()  # the main process sends them, and all generate

    def _push(self, role: str, weights: dict[str, Tensor]) -> None:
        before, name = self._names.get(role), f"{role} {self._run} {self.pushed}"
        self._names[role] = name
        if self.url is not None and not self.accelerator.is_main_process:
            return
        self._folders[name] = OwnFolder(self.folder.path, prefix=f"{self.pushed}-")
        folder = self._folders[name].path
        with replaced(folder / "adapter_model.safetensors") as path:
            save_file(weights, path)
            self.model.peft_config[role].save_pretrained(str(folder))
        if self.url is None:
            engine = self.vllm.llm.llm_engine
            if before is not None:
                engine.remove_lora(self._request(before).lora_int_id)
            engine.add_lora(self._request(name))
        else:
            with naming_server(self.url, self.timeout):
                if before is not None:
                    self._post("unload_lora_adapter", {"lora_name": before})
                self._post("load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        if before is not None:
            self._folders.pop(before).remove()

    def _post(self, command: str, body: dict[str, str]) -> None:
        answer = self.client.session.post(f"{self.url}/v1/{command}", json=body)
        if answer.status_code != 200:
            raise ConnectionError(
                "a vLLM server for role_adapters must load adapters from a folder below output_dir on request, got "
                f"{answer.status_code} ({answer.text.strip()[:300]}) from {self.url}; start it where that folder can "
                "be read, with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment."
            )

    def _of_engine(self, names: Sequence[str], contexts: list[list[int]]) -> Sequence[Generation]:
        llm = self.vllm.llm
        generate = llm.generate
        llm.generate = functools.partial(generate, lora_request=[self._request(name) for name in names])
        try:
            _, ids, logprobs, _ = self.vllm.generate(prompts=contexts, images=None, num_generations=1)
        finally:
            llm.generate = generate
        return _chosen(ids, logprobs)

    def _request(self, name: str) -> Any:
        from vllm.lora.request import LoRARequest

        # The engine tells adapters apart by a number: their count, which is the last word of the name.
        return LoRARequest(name, int(name.rsplit(" ", 1)[1]), str(self._folders[name].path))

    def _of_server(self, names: Sequence[str], contexts: list[list[int]]) -> Sequence[Generation]:
        """Sends one request for each adapter, all at the same time, since a request names one model."""
        vllm = self.vllm
        indices = {
            name: [index for index, other in enumerate(names) if other == name] for name in dict.fromkeys(names)
        }

        def request(name: str) -> Sequence[Generation]:
            client = copy.copy(self.client)
            client.model = name
            found = client.generate(
                prompts=[contexts[index] for index in indices[name]],
                repetition_penalty=vllm.repetition_penalty,
                temperature=vllm.temperature,
                top_p=vllm.top_p,
                top_k=vllm.top_k,
                min_p=vllm.min_p or 0.0,
                max_tokens=vllm.max_completion_length,
                logprobs=vllm.logprobs,
                structured_outputs_regex=vllm.structured_outputs_regex,
                generation_kwargs=vllm.generation_kwargs,
            )
            return _chosen(found["completion_ids"], found["logprobs"])

        assert self.url is not None
        replies: dict[int, Generation] = {}
        with naming_server(self.url, self.timeout), ThreadPoolExecutor(len(indices)) as pool:
            for name, answers in zip(indices, pool.map(request, indices), strict=True):
                replies.update(zip(indices[name], answers, strict=True))
        return [replies[index] for index in range(len(names))]


def _chosen(ids: Sequence[Sequence[int]], logprobs: Sequence[Sequence[Sequence[float | None]]]) -> list[Generation]:
    """Replies with the first log-probability of each position, which is that of the sampled token."""
    return generations(ids, [[candidates[0] for candidates in reply] for reply in logprobs])


def adapter_weights(model: PeftModel, role: str) -> dict[str, Tensor]:
    """Unsharded copies of a role's weights on the CPU, by names that are the same for every role.

    Called on every process at the same time.
    """
    found = get_peft_model_state_dict(model, adapter_name=role, save_embedding_layers=False)
    whole = {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in found.items()}
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in whole.items()}


def _max_lora_rank(rank: int) -> int:
    return next(allowed for allowed in _RANKS if allowed >= rank)


def adapter_rank(configs: Mapping[str, Any]) -> int:
    """The maximum rank of adapters."""
    return max(config.r for config in configs.values())


def engine_settings(roles: int, rank: int) -> dict[str, Any]:
    """The arguments of an engine in this process that takes adapters."""
    return {"enable_lora": True, "max_loras": roles, "max_lora_rank": _max_lora_rank(rank)}


def refuse_requests(args: Any, configs: Iterable[Any]) -> None:
    """Refuses adapters and settings with which vLLM cannot generate for each role."""
    if args.vllm_mode == "colocate":
        refuse_unused(args, "roles")
    for config in configs:
        if not isinstance(config, LoraConfig):
            raise ValueError(
                f"role_adapters with use_vllm must be LoRA adapters, got a {type(config).__name__}; train without "
                "vLLM."
            )
        unsupported = [name for name in _UNSUPPORTED if getattr(config, name, None)]
        unsupported += ["bias"] if config.bias != "none" else []
        if unsupported:
            raise ValueError(
                "role_adapters with use_vllm must be plain LoRA, the only kind that vLLM supports, got "
                f"{', '.join(f'{name}={getattr(config, name)!r}' for name in unsupported)}; leave it out, or train "
                "without vLLM."
            )
        targets = config.target_modules or ()
        targets = [targets] if isinstance(targets, str) else sorted(targets)
        if ends := [target for target in targets if any(end in target for end in _ENDS)]:
            raise ValueError(
                "role_adapters with use_vllm must not adapt the embeddings or the output layer, which vLLM interprets "
                f"differently, got target_modules with {', '.join(ends)}; leave them out, or train without vLLM."
            )
        if config.r > _RANKS[-1]:
            raise ValueError(
                f"role_adapters with use_vllm must have a rank of at most {_RANKS[-1]}, got {config.r}; lower it."
            )


def refuse_server(info: Mapping[str, Any], url: str, roles: int, rank: int) -> None:
    """Refuses a server that cannot hold an adapter for each role."""
    lora = info["lora_config"]
    if lora is None or lora["max_loras"] < roles or lora["max_lora_rank"] < rank:
        got = "none" if lora is None else f"{lora['max_loras']} of rank {lora['max_lora_rank']}"
        raise ValueError(
            f"a vLLM server must take {roles} adapters of rank {rank} for these role_adapters, got {got} at {url}; "
            f"start it with --enable-lora --max-loras {roles} --max-lora-rank {_max_lora_rank(rank)}."
        )
    if (replicas := info["parallel_config"]["data_parallel_size"]) > 1:
        raise ValueError(
            f"a vLLM server for role_adapters must have one replica, got {replicas} at {url}, only one of which would "
            "receive an adapter; start it without --data-parallel-size."
        )
