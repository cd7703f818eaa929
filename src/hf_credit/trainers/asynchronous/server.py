"""A client of a vLLM server: replies to single requests, weights and adapters, through outages and slow answers."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Annotated, Any, NotRequired, TypedDict
from urllib.parse import urlsplit

import aiohttp

from hf_credit.boundary import Range, read
from hf_credit.playing import Sampling
from hf_credit.rollouts import Context, Generation
from hf_credit.rollouts.samplers import BadReplyError
from hf_credit.safe_io import parse_json
from hf_credit.validators import finite_number, whole_number

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
_KEPT_SECONDS = 3.0  # that an idle connection is used again; vLLM closes it after 5
_FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # before a request is made again, in seconds
_MOST_SEED = 2**63 - 1
_MOST_BYTES = 256 * 2**20  # of an answer: log-probabilities of a prompt of a million tokens
_MOST_LOGPROB = 1e-3  # nats: rounding in 16 bits; taken for 0
_TOLD_SECONDS = 30.0  # between two lines about the wait for a server
AWAY = (500, 502, 503, 504)
"""Statuses of a server that is away, or fails for a while: both seams wait `vllm_server_timeout` s for it."""
_REFUSALS = 3  # connections in a row that a server refuses after its end
RESUME = "resume from the last checkpoint"


class _Scores(TypedDict):
    token_logprobs: list[Annotated[float, Range(most=_MOST_LOGPROB)]]


class _Scored(TypedDict):
    logprob: Annotated[float, Range(most=_MOST_LOGPROB)]


class _Prompted(TypedDict):
    prompt_logprobs: list[Mapping[str, _Scored] | None]


class _Prompts(TypedDict):
    choices: Annotated[list[_Prompted], Range(1)]


class _Model(TypedDict):
    id: str
    max_model_len: NotRequired[Annotated[int, Range(1)] | None]


class _Models(TypedDict):
    data: Annotated[list[_Model], Range(1)]


class _ModelConfig(TypedDict):
    dtype: str


class _Config(TypedDict):
    model_config: _ModelConfig
    lora_config: NotRequired[Mapping[str, Any] | None]


class _Info(TypedDict):
    vllm_config: _Config


class Server:
    """A client of the vLLM server that serves the policy.

    After a failed connection, or an answer with a status in `AWAY`, a request is repeated once the server is back, for
    which the client waits up to `patience` seconds. The server may then be another process with the initial weights:
    `restore` is called before further replies are requested; without `restore` the outage is an error, at once if the
    server refuses connections. Requests that fail otherwise or take too long are repeated up to `retries` times, at
    growing intervals. A cancelled request is closed, and vLLM stops generating for it.

    All requests are made from one thread.

    Args:
        url: such as `"http://localhost:8000"`.
        model: the name of the policy on the server.
        **sampling: the parameters of a `hf_credit.tasks.Sampling`, with a temperature of 1, at which servers report.
        request_timeout: maximum time of an answer, in seconds.
        patience: maximum time that the server may be away or fail, in seconds.
        retries: maximum number of times that a request is repeated after it failed or took too long.
        vocabulary: the number of token ids of the policy; without it, any id that fits 31 bits is believed.

    Answers have a declared shape and at most 256 MiB, and are not redirected. Anything else is an error that names
    the server.

    Attributes:
        adapter: the name of the adapter that replies, or one for each role; version v has the name `f"{name}-v{v}"`
            on the server. With `None` the model itself replies.
        restore: transfers the weights of the policy to a server that was away, with requests of this client.
        retried: number of repeated requests.

    Raises:
        ValueError: a setting is out of range, or the address is invalid.
    """

    seeded = True  # each reply has a seed of its own

    def __init__(
        self,
        url: str,
        model: str,
        *,
        request_timeout: float = 600.0,
        patience: float = 600.0,
        retries: int = 5,
        vocabulary: int = 2**31,
        **sampling: Any,
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"the address of a server must begin with http:// or https://, got {url!r}; correct it.")
        whole_number("retries", retries, 0)
        finite_number("request_timeout", request_timeout, above=0.0)
        finite_number("patience", patience, least=0.0)
        self.url = url.rstrip("/")
        self.model = model
        self.sampling = _of_vllm(Sampling(**sampling))
        self.request_timeout = request_timeout
        self.patience = patience
        self.retries = retries
        self.adapter: str | Mapping[str, str] | None = None
        self.restore: Callable[[], None] | None = None
        self.retried = 0
        self.version = 0
        ids = Annotated[list[Annotated[int, Range(0, vocabulary - 1)]], Range(0, self.sampling["max_tokens"])]  # type: ignore[valid-type]
        self._choice = TypedDict("_choice", {"token_ids": ids, "logprobs": _Scores})  # type: ignore[misc, valid-type]
        self._replies = TypedDict("_replies", {"choices": Annotated[list[self._choice], Range(1)]})  # type: ignore[misc, valid-type]
        self._outages = 0  # that are over
        self._told = -math.inf  # when a repeated request was last told of
        self._answered = ""  # the last answer of the server, in words
        self._session: aiohttp.ClientSession | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="vllm-client", daemon=True)
        self._thread.start()

    def update_model_version(self, version: int) -> None:
        """Sets the version of the adapter that replies from now on."""
        self.version = version

    # Requests ------------------------------------------------------------------------------------------------------

    def submit(self, role: str, context: Context, seed: int | None) -> Future[Generation]:
        """Requests a reply, with the log-probability of each token at the temperature of the sampling."""
        asked = {
            **self.sampling,
            "prompt": list(context),
            "n": 1,
            "logprobs": 0,
            "return_token_ids": True,
            # Engines that share the work draw alike without seeds.
            "seed": secrets.randbits(63) if seed is None else seed & _MOST_SEED,
        }
        return self._future(self._reply(role, asked))

    def logprobs(self, role: str, context: Context, ids: Sequence[int]) -> Future[tuple[float, ...]]:
        """Requests the log-probability of each token of a reply under the policy, in nats, always at temperature 1."""
        asked = {
            **_of_vllm(Sampling(max_new_tokens=1)),
            "prompt": [*context, *ids],
            "prompt_logprobs": 0,
            "return_token_ids": True,
        }
        return self._future(self._read(role, asked, list(ids)))

    def wait(self) -> None:
        """Waits until the server is up.

        Raises:
            ConnectionError: it is not up within `patience` seconds, it has ended, or it answers with an error.
        """
        self._future(self._up()).result()

    def max_model_len(self) -> int:
        """The server's maximum number of tokens of context and reply together."""
        lengths = filter(None, (one.get("max_model_len") for one in self._listed_models()))  # adapters have none
        if (length := next(lengths, None)) is None:
            raise BadReplyError(f"a server must tell max_model_len, got none from {self.url}; serve with vLLM 0.22.")
        return length

    def models(self) -> set[str]:
        """The names of all models and adapters of the server."""
        return {one["id"] for one in self._listed_models()}

    def _listed_models(self) -> list[_Model]:
        answer: _Models = self._shaped(_Models, self.ask("/v1/models", kind="GET"), "/v1/models")
        return answer["data"]

    def dtype(self) -> str:
        """The data type of the server's weights, such as `"float32"`."""
        return self._config()["model_config"]["dtype"].removeprefix("torch.")

    def refuse_adapters(self) -> None:
        """Refuses a server that serves adapters: vLLM then names its layers otherwise, and cannot reload weights.

        Raises:
            ValueError: it does.
        """
        if self._config().get("lora_config"):
            raise ValueError(
                f"weight_transfer 'folder' needs a server without adapters, got one with --enable-lora at {self.url}; "
                "start it without, or train an adapter with weight_transfer 'trl'."
            )

    def _config(self) -> _Config:
        info: _Info = self._shaped(_Info, self.ask("/server_info?config_format=json", kind="GET"), "/server_info")
        return info["vllm_config"]

    def reload_weights(self, path: str) -> None:
        """Makes the server load weights from a folder that it can read, in the format of a checkpoint."""
        self.ask("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": path}})

    def load_adapter(self, name: str, path: str) -> None:
        """Makes the server load an adapter from a folder that it can read, under a new name."""
        self.ask("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})

    def ask(self, path: str, asked: Mapping[str, Any] | None = None, kind: str = "POST") -> Any:
        """Returns the answer to a request, which is repeated only after an outage.

        Raises:
            ConnectionError: it stays away, failed, or refused.
            TimeoutError: it takes too long.
        """
        return self._future(self._asked(kind, path, asked)).result()

    def close(self) -> None:
        """Ends all requests."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            self._thread.join(CONNECT_SECONDS)

    # Connections ---------------------------------------------------------------------------------------------------

    def _name(self, role: str) -> str:
        name = self.adapter if self.adapter is None or isinstance(self.adapter, str) else self.adapter[role]
        return self.model if name is None else f"{name}-v{self.version}"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._there = asyncio.Event()  # the server is, with the weights of the policy
        self._there.set()
        self._mending = asyncio.Lock()
        self._loop.run_forever()
        self._loop.close()

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        self._loop.stop()

    def _future(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _reply(self, role: str, asked: Mapping[str, Any]) -> Generation:
        answer = await self._asked("POST", "/v1/completions", asked, role)
        choice = self._shaped(self._replies, answer, "/v1/completions")["choices"][0]
        ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        if len(ids) != len(logprobs):
            raise BadReplyError(
                f"a server must give a log-probability for each token of a reply, got {len(logprobs)} for {len(ids)} "
                f"from {self.url}; serve the policy with vLLM 0.22 or later."
            )
        return Generation(ids=tuple(ids), logprobs=tuple(min(float(one), 0.0) for one in logprobs))

    async def _read(self, role: str, asked: Mapping[str, Any], ids: list[int]) -> tuple[float, ...]:
        answer = await self._asked("POST", "/v1/completions", asked, role)
        given = self._shaped(_Prompts, answer, "/v1/completions")["choices"][0]["prompt_logprobs"]
        found = [(one or {}).get(str(token)) for one, token in zip(given[-len(ids) :], ids, strict=False)]
        if len(given) != len(asked["prompt"]) or None in found:
            raise ConnectionError(
                f"a server must give the log-probability of each token of a prompt, got {one_line(given)} from "
                f"{self.url}; serve the policy with vLLM 0.22 or later."
            )
        return tuple(min(float(one["logprob"]), 0.0) for one in found if one is not None)

    def _shaped(self, kind: Any, answer: Any, path: str) -> Any:
        """An answer of a shape."""
        try:
            return read(kind, answer, f"the answer of the vLLM server at {self.url}{path}")
        except ValueError as error:
            raise BadReplyError(f"{error} Serve the policy with vLLM 0.22 or later.") from None

    async def _asked(self, kind: str, path: str, asked: Mapping[str, Any] | None, role: str | None = None) -> Any:
        """The answer to a request, repeated where that may help.

        Args:
            kind, path, asked: as for `_once`.
            role: that replies, at each attempt with the present adapter. Then the weights must be the policy's, and
                the request is repeated after errors and time-outs, otherwise only after outages.
        """
        failures, deadline, pause = 0, math.inf, _FIRST_PAUSE
        while True:
            if role is not None:
                await self._there.wait()
                asked = {**(asked or {}), "model": self._name(role)}
            outages = self._outages
            try:
                return await self._once(kind, path, asked)
            except _Away as error:
                deadline = min(deadline, self._loop.time() + self.patience)
                if self._loop.time() > deadline:
                    raise self._gone(error) from error
                if self._loop.time() - self._told >= _TOLD_SECONDS:
                    self._told = self._loop.time()
                    logger.warning("repeating requests to the vLLM server: %s", error)
                await (self._up() if role is None else self._mend(outages, error))
            except (_Failed, TimeoutError) as error:
                if failures == (0 if role is None else self.retries):
                    raise
                logger.warning("repeating a request to the vLLM server: %s", error)
                failures += 1
            self.retried += 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _mend(self, outages: int, error: Exception) -> None:
        """Waits until a server that was away is back, and calls `restore`: once for all requests that found so."""
        self._there.clear()
        async with self._mending:
            try:
                if self._outages == outages and await self._up():
                    logger.warning("the vLLM server was away: %s", error)
                    if self.restore is None:
                        raise ConnectionError(
                            f"the vLLM server must stay up during training, got an outage of {self.url}, after which "
                            f"it may have other weights ({error}); {RESUME}."
                        ) from error
                    await self._loop.run_in_executor(None, self.restore)
            finally:
                self._outages += 1
                self._there.set()

    async def _up(self) -> bool:
        """Waits until the server is up, and says so; returns whether it was down at first.

        A server that never answered may be loading. One that did and refuses connections is waited for only if
        somebody can bring it the weights.
        """
        refused = 0
        began, pause = self._loop.time(), _FIRST_PAUSE
        deadline, told = began + self.patience, began - _TOLD_SECONDS
        while True:
            try:
                left = max(deadline - self._loop.time(), _FIRST_PAUSE)
                await self._once("GET", "/health", None, min(self.request_timeout, CONNECT_SECONDS, left))
                return pause > _FIRST_PAUSE
            except (_Away, TimeoutError) as error:
                refused = refused + 1 if isinstance(error, _Refused) else 0
                if self._loop.time() >= deadline:
                    raise self._gone(error) from error
                if refused == _REFUSALS and self._answered and self.restore is None:
                    raise ConnectionError(
                        f"the vLLM server must stay up during training, got no connection to {self.url} after it "
                        f"answered {self._answered}; its log tells why it ended; start it again and {RESUME}."
                    ) from error
                if self._loop.time() - told >= _TOLD_SECONDS:
                    told = self._loop.time()
                    logger.warning(
                        "waiting for the vLLM server at %s, %.0f of at most %g s: %s; its log tells whether it loads.",
                        *(self.url, told - began, self.patience, one_line(error)),
                    )
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _gone(self, error: Exception) -> ConnectionError:
        problem = f"no answer from {self.url}" if isinstance(error, TimeoutError) else error
        return ConnectionError(
            f"the vLLM server must be up within {self.patience:g} s (vllm_server_timeout), got '{problem}'; look into "
            f"its log, start it or correct its address, and {RESUME}."
        )

    async def _once(self, kind: str, path: str, asked: Mapping[str, Any] | None, seconds: float | None = None) -> Any:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS)
            # Compressed, a few bytes could become any number.
            self._session = aiohttp.ClientSession(connector=connector, headers={"Accept-Encoding": "identity"})
        seconds = self.request_timeout if seconds is None else seconds
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_SECONDS))
        try:
            async with self._session.request(
                kind, self.url + path, json=asked, timeout=timeout, allow_redirects=False, auto_decompress=False
            ) as response:
                text = await _text(response)
        except aiohttp.ClientConnectorError as error:
            raise _Refused(f"{self.url}: {one_line(error)}") from error
        except aiohttp.ConnectionTimeoutError as error:
            raise _Away(f"no connection to {self.url}") from error
        except TimeoutError:
            raise TimeoutError(
                f"the vLLM server must answer within request_timeout, got nothing from {self.url}{path} for "
                f"{seconds:g} s; raise the timeout or give the server more to compute with, and {RESUME}."
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _Away(f"{self.url}: {one_line(error) or type(error).__name__}") from error
        if response.status in AWAY:
            raise _Away(f"status {response.status} from {self.url}{path}: {one_line(text)}")
        self._answered = f"status {response.status} to {path.partition('?')[0]}"
        if response.status >= 500:
            raise _Failed(f"the vLLM server must not fail, got status {response.status} from {self.url}{path}: "
                          f"{one_line(text)}; look into its log, start it again and {RESUME}.")  # fmt: skip
        if response.status != 200:
            raise ConnectionError(
                f"the vLLM server must accept the trainer's requests, got status {response.status} from "
                f"{self.url}{path}: {one_line(text)}; start it with the trainer's model and settings, and {RESUME}."
            )
        try:
            return parse_json(text) if text else None
        except ValueError:
            return text


def _of_vllm(sampling: Sampling) -> dict[str, Any]:
    """The parameters as vLLM takes them, all of them, since it takes others from the model's own defaults."""
    return {"max_tokens" if name == "max_new_tokens" else name: value for name, value in vars(sampling).items()}


class _Away(ConnectionError):
    """The server is away."""


class _Refused(_Away):
    """Nobody listens at its address."""


class _Failed(ConnectionError):
    """The server answered with an error of its own."""


async def _text(response: aiohttp.ClientResponse) -> str:
    """The text of an answer, which is neither compressed nor too long."""
    parts, left = [], _MOST_BYTES
    if (coding := response.headers.get("Content-Encoding", "identity")) != "identity":
        raise ConnectionError(f"a vLLM server must answer with plain bytes, got {coding[:50]!r} from {response.url}.")
    async for part in response.content.iter_any():
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise ConnectionError(f"a vLLM server must answer with at most {_MOST_BYTES} bytes, got more from "
                                  f"{response.url}; use another server.")  # fmt: skip
    return b"".join(parts).decode("utf-8", "replace")


def one_line(value: object) -> str:
    """A text in one line of at most 200 characters."""
    return " ".join(str(value).split())[:200]
