"""Waits for a vLLM server, limits its requests, and names the server in errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from torch import Tensor
from urllib3.exceptions import ReadTimeoutError
from urllib3.util.retry import Retry

from hf_credit.credit import sampling_ratio
from hf_credit.rollouts import Context, GenerateFn, Generation
from hf_credit.trainers.asynchronous.server import AWAY, CONNECT_SECONDS, LONGEST_PAUSE, RESUME, Server, one_line
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.metrics import largest_difference

_RETRIES = 5  # of a failed connection


def server_url(args: CreditConfig) -> str | None:
    """The URL of the run's vLLM server; `None` for a run without a server."""
    if not (args.use_vllm and args.vllm_mode == "server"):
        return None
    return args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"


def wait_for_server(args: CreditConfig) -> None:
    """Waits at most `vllm_server_timeout` s for the run's server, on the main process. TRL's own wait has no end."""
    url = server_url(args)
    if url is None or args.process_index != 0:
        return
    with closing(Server(url, "policy", max_new_tokens=1, patience=args.vllm_server_timeout)) as server:
        server.wait()


def through_vllm(generate: GenerateFn, vllm: Any | None, args: CreditConfig) -> GenerateFn:
    """Limits the requests of a sampler to a server, and names the server in its errors.

    Args:
        generate: the sampler; returned unchanged for a run without a server.
        vllm: TRL's `VLLMGeneration`, if any.

    Raises:
        TimeoutError: (when called) an answer takes longer than `vllm_server_request_timeout` seconds.
        ConnectionError: (when called) the server is down, failed, or refused a request.
    """
    url = server_url(args)
    if url is None:
        return generate
    client = getattr(vllm, "vllm_client", None)  # only the main process has one
    if client is not None:
        limit_requests(client.session, args.vllm_server_request_timeout, args.vllm_server_timeout)

    def named(contexts: Sequence[Context]) -> Sequence[Generation]:
        with naming_server(url, args.vllm_server_request_timeout):
            return generate(contexts)

    return named


def correct_sampling(trainer: Any, batch: dict[str, Tensor]) -> None:
    """Adds to a batch the ratio by which the loss corrects vLLM's sampling, and logs the largest difference."""
    ours, theirs, mask = batch["old_per_token_logps"], batch["sampling_per_token_logps"], batch["tool_mask"]
    bounds = (trainer.vllm_importance_sampling_clip_min, trainer.vllm_importance_sampling_clip_max)
    batch["importance_sampling_ratio"] = sampling_ratio(
        ours, theirs, mask, trainer.vllm_importance_sampling_mode, *bounds
    )
    drift = trainer.accelerator.gather(largest_difference(ours, theirs, mask)).max().item()
    trainer.log_metric("sampler/logprob_difference_max", drift)


def context_length(vllm: Any) -> int:
    """vLLM's limit on the tokens of context and reply together; 0 on a process without a client of the server."""
    if vllm.mode == "colocate":
        return vllm.llm.llm_engine.model_config.max_model_len
    client = getattr(vllm, "vllm_client", None)
    if client is None:
        return 0
    with closing(Server(client.base_url, "policy", max_new_tokens=1)) as server:
        return server.max_model_len()


def limit_requests(session: requests.Session, timeout: float, patience: float) -> None:
    """Sets a time limit on every request of a session, and repeats it for a while at growing intervals.

    Args:
        session: makes the requests.
        timeout: of an answer, in seconds, above 0.
        patience: seconds for which a request is repeated whose answer has a status in `AWAY`. One whose connection
            failed is repeated five times: a server that is started again has other weights.
    """
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Limited(timeout, patience))


@contextmanager
def naming_server(url: str, timeout: float) -> Iterator[None]:
    """Context that names the server and a remedy in the errors of requests.

    Raises:
        TimeoutError: a request took longer than `timeout` seconds.
        ConnectionError: the server at `url` is down, failed, or refused a request.
    """
    try:
        yield
    except requests.ReadTimeout as error:
        raise TimeoutError(
            f"the vLLM server must answer within vllm_server_request_timeout, got nothing from {url} for "
            f"{timeout:g} s; raise the timeout or give the server more to compute with, and {RESUME}."
        ) from error
    except requests.RequestException as error:
        raise ConnectionError(
            f"the vLLM server must stay up during training, got '{_root(error)}' from {url} during a rollout; see its "
            f"log, start it again and {RESUME}."
        ) from error
    except Exception as error:
        if type(error) is not Exception:  # the class that TRL's client raises if the server refuses a request
            raise
        raise ConnectionError(
            f"the vLLM server must accept the trainer's requests, got '{one_line(error)}' from {url}; start it with "
            f"the trainer's model and settings, and {RESUME}."
        ) from error


class _Repeated(Retry):
    """Repeats requests, but not after timeouts: a second request would make a slow server slower."""

    def increment(self, *args: Any, **named: Any) -> _Repeated:
        if isinstance(error := named.get("error"), ReadTimeoutError):
            raise error
        return super().increment(*args, **named)


class _Limited(HTTPAdapter):
    def __init__(self, timeout: float, patience: float) -> None:
        self.timeout = (min(timeout, CONNECT_SECONDS), timeout)
        super().__init__(
            max_retries=_Repeated(
                total=None,
                connect=_RETRIES,
                read=_RETRIES,
                other=_RETRIES,
                status=1 + math.ceil(patience / LONGEST_PAUSE),  # the pauses are 0, 2, 4, 8 and then 10 s
                status_forcelist=AWAY,
                allowed_methods=None,
                backoff_factor=LONGEST_PAUSE / 10,
                backoff_max=LONGEST_PAUSE,
            )
        )

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        return super().send(request, *args, **{**kwargs, "timeout": self.timeout})


def _root(error: BaseException) -> str:
    """The message of the first error in a chain."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return one_line(error)
