"""A vLLM server that is absent, slow or gone: one sentence that names it, instead of a wait without end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ReadTimeoutError
from urllib3.util.retry import Retry

from hf_credit.rollouts import GenerateFn, Generation
from hf_credit.trainers.config import CreditConfig

_POLL_SECONDS = 1.0
_CONNECT_SECONDS = 10.0
_RESUME = "resume from the last checkpoint"


def server_url(args: CreditConfig) -> str | None:
    """Where the vLLM server of a run listens; `None` for a run without one."""
    if not (args.use_vllm and args.vllm_mode == "server"):
        return None
    return args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"


def wait_for_server(args: CreditConfig) -> None:
    """Waits until the run's server is up, on the one process that talks to it; TRL's own wait knows no end.

    Raises:
        ConnectionError: it is not up within `vllm_server_timeout` seconds.
    """
    url = server_url(args)
    if url is None or args.process_index != 0:
        return
    deadline = time.monotonic() + args.vllm_server_timeout
    while (problem := _problem(url, max(deadline - time.monotonic(), _POLL_SECONDS))) is not None:
        if time.monotonic() >= deadline:
            raise ConnectionError(
                f"the vLLM server must be up within vllm_server_timeout, got {problem} from {url} for "
                f"{args.vllm_server_timeout:g} s; start it, as in `trl vllm-serve --model ...`, or correct "
                "vllm_server_base_url, or vllm_server_host and vllm_server_port."
            )
        time.sleep(min(_POLL_SECONDS, max(deadline - time.monotonic(), 0.0)))


def through_vllm(generate: GenerateFn, vllm: Any | None, args: CreditConfig) -> GenerateFn:
    """`generate`, whose requests to a server end and whose failures name it; as it is for a run without a server.

    Args:
        generate: the sampler, which asks the server.
        vllm: TRL's `VLLMGeneration`, if any.
        args: the settings, with `vllm_server_request_timeout`.

    Raises:
        TimeoutError: (when called) an answer takes longer than `vllm_server_request_timeout` seconds.
        ConnectionError: (when called) the server is gone, failed, or refused a request.
    """
    url = server_url(args)
    if url is None:
        return generate
    client = getattr(vllm, "vllm_client", None)  # only the main process has one
    if client is not None:
        limit_requests(client.session, args.vllm_server_request_timeout)

    def named(contexts: Sequence[Sequence[int]]) -> Sequence[Generation]:
        with naming_server(url, args.vllm_server_request_timeout):
            return generate(contexts)

    return named


def context_length(vllm: Any) -> int:
    """The most tokens, context and reply, that vLLM takes; 0 on a process that does not talk to the server.

    Args:
        vllm: TRL's `VLLMGeneration`.
    """
    if vllm.mode == "colocate":
        return vllm.llm.llm_engine.model_config.max_model_len
    client = getattr(vllm, "vllm_client", None)
    if client is None:
        return 0
    return client.session.get(f"{client.base_url}/v1/models").json()["data"][0]["max_model_len"]


def limit_requests(session: requests.Session, timeout: float, retries: int = 5) -> None:
    """Ends every request of a session.

    Args:
        session: what the requests go through.
        timeout: how long a request may wait for an answer, in seconds, above 0.
        retries: how often a request is made again whose connection failed, at growing intervals.
    """
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Limited(timeout, retries))


@contextmanager
def naming_server(url: str, timeout: float) -> Iterator[None]:
    """Says which server failed, and what to do about it.

    Raises:
        TimeoutError: a request took longer than `timeout` seconds.
        ConnectionError: the server at `url` is gone, failed, or refused a request.
    """
    try:
        yield
    except requests.ReadTimeout as error:
        raise TimeoutError(
            f"the vLLM server must answer within vllm_server_request_timeout, got nothing from {url} for "
            f"{timeout:g} s; raise the timeout or give the server more to compute with, and {_RESUME}."
        ) from error
    except requests.RequestException as error:
        raise ConnectionError(
            f"the vLLM server must stay up during training, got '{_root(error)}' from {url} in the middle of a "
            f"rollout; look into its log, start it again and {_RESUME}."
        ) from error
    except Exception as error:
        if type(error) is not Exception:  # TRL's client raises this class itself, for what the server refuses
            raise
        raise ConnectionError(
            f"the vLLM server must take what the trainer asks, got '{_one_line(error)}' from {url}; start it with the "
            f"trainer's model and settings, and {_RESUME}."
        ) from error


class _RetryConnections(Retry):
    """Tries again where a connection failed, but asks a slow server once: asked again it would be slower."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: Any = None,
        error: Exception | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> _RetryConnections:
        if isinstance(error, ReadTimeoutError):
            raise error
        return super().increment(method, url, response, error, *args, **kwargs)


class _Limited(HTTPAdapter):
    """Requests with a limit on their time."""

    def __init__(self, timeout: float, retries: int) -> None:
        self.timeout = (min(timeout, _CONNECT_SECONDS), timeout)
        status = [500, 502, 503]
        super().__init__(
            max_retries=_RetryConnections(
                retries, status=min(retries, 3), status_forcelist=status, allowed_methods=None, backoff_factor=2
            )
        )

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        return super().send(request, *args, **{**kwargs, "timeout": self.timeout})


def _problem(url: str, seconds: float) -> str | None:
    """What is wrong with a server, in words; `None` if it is well."""
    try:
        status = requests.get(f"{url}/health", timeout=seconds).status_code
    except requests.Timeout:
        return "no answer"
    except requests.RequestException as error:
        return f"'{_root(error)}'"
    return None if status == 200 else f"status {status}"


def _root(error: BaseException) -> str:
    """What an error goes back to, without the layers that wrapped it."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return _one_line(error)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
