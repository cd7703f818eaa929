"""A model behind a server of chat completions: how it is named, asked, paid and remembered."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, Self

from hf_credit.boundary import Range, read
from hf_credit.optional_packages import needed
from hf_credit.options import Count, Options, Positive
from hf_credit.redaction import redacted
from hf_credit.safe_io import parse_json
from hf_credit.validators import first_line

logger = logging.getLogger(__name__)

_MOST_BYTES = 2**20  # of an answer

Question = tuple[Mapping[str, Any], Callable[[dict[str, Any]], Any]]
"""The fields of a request, and what reads a choice of its answer as plain values; `None` if it cannot be read."""


@dataclass(frozen=True, kw_only=True)
class ServedModel(Options, ABC):
    """Asks a model behind a server of chat completions (`/v1/chat/completions`), by the package `openai`.

    What a server does is an answer or none, counted by kind: there was none (`failed/unreachable`), the server refused
    (`failed/refused`), it has another form (`failed/unreadable`), or the budget is spent (`failed/budget`).

    Args:
        model: the name of the model at the server.
        base_url: the address of the server up to `/v1`; that of the SDK, `OPENAI_BASE_URL`, if empty.
        key: the environment variable that has the key, one that ends in `_API_KEY`.
        cache: a file of all answers, by content, for this and later runs on this machine; in memory if empty.
        budget: the most tokens of all answers in `cache`; no call starts after that. Unbounded if `None`.
        concurrency: the most calls at a time, in each process.
        timeout: of an attempt of a call, in seconds.
        retries: attempts after the first, as the SDK makes them.
        request: fields of the request to change, such as `{"max_completion_tokens": 2048}` for a model that thinks;
            `null` leaves one out, such as `logprobs` and `top_logprobs` for a server that refuses them.
    """

    model: str
    base_url: str = ""
    key: str = "OPENAI_API_KEY"
    cache: str = ""
    budget: Count | None = None
    concurrency: Count = 16
    timeout: Positive = 60.0
    retries: Annotated[int, Range(0)] = 2
    request: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    @abstractmethod
    def trial(self) -> Question:
        """What `check` asks."""

    def check(self) -> Self:
        """Returns itself, after it opened the cache and asked one question, once.

        Raises:
            ValueError: `key` is no variable of a key, the file is none of answers, or the server cannot be reached or
                refuses.
        """
        if "_works" in vars(self):
            return self
        if not self.key.endswith("_API_KEY"):  # no server gets another secret, nor is a key itself an option
            raise ValueError(
                f"key of {self.owner} must name an environment variable that ends in _API_KEY, got "
                f"{self.key[:3]}...; export the key and name its variable."
            )
        _, failure, tokens, why = self._ask(*self.trial)
        if failure in ("unreachable", "refused"):
            raise ValueError(
                f"{self.owner} must answer, got {why!r} from {redacted(str(self._client.base_url))}; start the "
                f"server, or correct the options of {self.owner}."
            )
        if failure:
            told = "The answer of %s to a trial has another form than was asked for; change its request or prompt."
            logger.warning(told, self.owner)
        try:
            self._keep("check", None, tokens)
        except sqlite3.Error as error:
            raise ValueError(
                f"the cache of {self.owner} must be its own file, got {self.cache!r} ({error}); move it."
            ) from None
        vars(self)["_works"] = True
        return self

    def asked(self, questions: Sequence[Question], kind: Any, costs: Counter[str]) -> list[Any]:
        """Returns what is read of the answer to each question, `None` without one; equal questions are asked once.

        Args:
            kind: the type of what is read, for answers in `cache`.
            costs: receives `calls`, `tokens` and failures by kind.
        """
        names = [self._digest(fields) for fields, _ in questions]
        known = {name: self._kept(name, kind) for name in names}
        open_ones = {name: one for name, one in zip(names, questions, strict=True) if known[name] is None}
        silent, spent = 0, int(self._answers.execute("select total(tokens) from answers").fetchone()[0])

        def answer(question: Question) -> tuple[Any, str, int]:
            nonlocal silent, spent
            if self.budget is not None and spent >= self.budget:
                return None, "budget", 0
            if silent >= 2 * self.concurrency:  # the server is gone, so the others need not wait for it
                return None, "unreachable", 0
            found, failure, tokens, _ = self._ask(*question)
            silent, spent = silent + 1 if failure == "unreachable" else 0, spent + tokens
            return found, failure, tokens

        waiting, running = [*open_ones.items()][::-1], dict[Future[Any], str]()
        try:
            with ThreadPoolExecutor(self.concurrency) as pool:
                while waiting or running:
                    while waiting and len(running) < self.concurrency:  # the end of the process waits for no other
                        name, question = waiting.pop()
                        running[pool.submit(answer, question)] = name
                    for one in wait(running, return_when=FIRST_COMPLETED).done:
                        name, (found, failure, tokens) = running.pop(one), one.result()
                        known[name] = found
                        self._keep(name, found, tokens)
                        costs.update({"calls": 1, "tokens": tokens, f"failed/{failure}": int(bool(failure))})
        finally:
            costs.pop("failed/", None)
        if costs["failed/budget"] and "_told" not in vars(self):
            vars(self)["_told"] = True
            logger.warning("The budget of %s, %d tokens, is spent; it answers no more.", self.owner, self.budget)
        return [known[name] for name in names]

    def _ask(self, fields: Mapping[str, Any], reading: Callable[[dict[str, Any]], Any]) -> tuple[Any, str, int, str]:
        """What is read of an answer, else the kind of failure; its tokens; and the error."""
        sdk = needed(f"{self.owner} behind a server needs", "openai", "judge")
        sent = {name: value for name, value in {**fields, **self.request}.items() if value is not None}
        tokens = len(json.dumps(sent))  # where the server does not say: one is no shorter than a character
        try:
            raw = self._client.chat.completions.with_raw_response.create
            text = raw(model=self.model, messages=sent.pop("messages"), extra_body=sent).http_response.text
            tokens += len(text)
            answer = read(dict, parse_json(text, finite=True), "an answer")
            if answer.get("usage"):
                tokens = read(Annotated[int, Range(0, 10**8)], answer["usage"]["total_tokens"], "tokens of an answer")
            found = reading(read(dict, answer["choices"][0], "a choice of an answer"))
            return found, "" if found is not None else "unreadable", tokens, ""
        except (sdk.OpenAIError, AttributeError, LookupError, TypeError, ValueError) as error:
            cause = error.__cause__ or error
            why = redacted(first_line(cause).replace(self._client.api_key, "***"))
            if isinstance(error, sdk.APIStatusError):
                return None, "refused", 0, why
            own = isinstance(cause, ValueError)  # of `_read_within`
            if isinstance(error, sdk.APIConnectionError) and not own:
                return None, "unreachable", 0, why
            return None, "unreadable", tokens, why

    @cached_property
    def _client(self) -> Any:
        sdk = needed(f"{self.owner} behind a server needs", "openai", "judge")
        read_within = partial(_read_within, self.timeout)
        client = sdk.OpenAI(
            api_key=os.environ.get(self.key) or "none",
            base_url=self.base_url or None,
            timeout=self.timeout,
            max_retries=self.retries,
            default_headers={"Accept-Encoding": "identity"},
            http_client=sdk.DefaultHttpxClient(follow_redirects=False, event_hooks={"response": [read_within]}),
        )
        weakref.finalize(self, client.close)
        return client

    @cached_property
    def _answers(self) -> sqlite3.Connection:
        answers = sqlite3.connect(self.cache or ":memory:", timeout=60, check_same_thread=False)
        weakref.finalize(self, answers.close)
        answers.execute("create table if not exists answers (name text primary key, answer text, tokens integer)")
        return answers

    def _digest(self, fields: Mapping[str, Any]) -> str:
        content = [str(self._client.base_url), self.model, dict(self.request), fields]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _kept(self, name: str, kind: Any) -> Any:
        row = self._answers.execute("select answer from answers where name = ?", [name]).fetchone()
        return None if row is None or row[0] is None else read(kind, parse_json(row[0]), "a kept answer")

    def _keep(self, name: str, answer: Any, tokens: int) -> None:
        """Stores an answer; of a failed one only its tokens."""
        with self._answers as answers:
            answers.execute(
                "insert into answers values (?, ?, ?) on conflict (name) do update set answer = excluded.answer, "
                "tokens = tokens + excluded.tokens",
                [name, None if answer is None else json.dumps(answer), tokens],
            )


def _read_within(seconds: float, response: Any) -> None:
    """Reads an answer of bounded length within the time, whatever the server sends."""
    body, end = bytearray(), time.monotonic() + seconds
    try:
        for part in response.stream:
            body += part
            if len(body) > _MOST_BYTES or time.monotonic() > end or "Content-Encoding" in response.headers:
                raise ValueError(f"an answer must be plain, within {_MOST_BYTES} bytes and {seconds} seconds.")
    finally:
        response.stream.close()
    response.stream = sys.modules[type(response).__module__.partition(".")[0]].ByteStream(bytes(body))
