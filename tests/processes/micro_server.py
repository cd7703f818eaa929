"""The few endpoints of a vLLM server that asynchronous training uses, over a micro policy on a CPU.

    python micro_server.py FOLDER PORT [SECONDS]

With `SECONDS` each reply takes about as long.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit.policies.generation import reply_logprobs, sampler


class MicroServer:
    """Serves a policy on loopback.

    Args:
        folder: of the policy.
        port: where it listens; any if 0.
        seconds: that each reply takes at least.

    Attributes:
        url: where it listens.
        paused: whether requests stand still.
        statuses: answers to the next requests for completions in place of replies: a status, or 0 for none at all.
        asked: how many completions were asked for.
        loaded: the folders that weights were loaded from.
    """

    def __init__(self, folder: str | Path, port: int = 0, seconds: float = 0.0) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.name = str(folder)
        self.seconds = seconds
        self.statuses: list[int] = []
        self.asked = 0
        self.loaded: list[str] = []
        self.adapters: dict[str, str] = {}
        self.max_loras = 0  # that it serves; none if 0
        self._going = threading.Event()
        self._going.set()
        self._computing = threading.Lock()
        self._stopped = False
        self._http = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._http.daemon_threads = True
        self._connections: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def paused(self) -> bool:
        return not self._going.is_set()

    def start(self) -> MicroServer:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def serve(self) -> None:
        self._http.serve_forever()

    def stop(self) -> None:
        """Away: connections are closed, and refused from now on."""
        self._http.shutdown()
        self._http.server_close()
        if not self._stopped:
            self._stopped = True
            self._computing.acquire()  # what computes ends, and nothing begins: it would abort the interpreter's end
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def answer(self, path: str, asked: Any) -> tuple[int, Any]:
        """The status and the answer to a request."""
        match path:
            case "/health":
                return 200, None
            case "/v1/models":
                whole = {"id": self.name, "max_model_len": self.model.config.max_position_embeddings}
                return 200, {"data": [whole, *({"id": name, "max_model_len": None} for name in self.adapters)]}
            case "/server_info":
                shape = {"dtype": str(self.model.dtype)}
                parallel = {"data_parallel_size": 1}
                lora = {"max_lora_rank": 16, "max_loras": self.max_loras} if self.max_loras else None
                told = {
                    "model_config": shape,
                    "lora_config": lora,
                    "parallel_config": parallel,
                }
                return 200, {"vllm_config": told}
            case "/pause":
                self._going.clear()
            case "/resume":
                self._going.set()
            case "/collective_rpc":
                return self._load(asked["kwargs"]["weights_path"])
            case "/v1/load_lora_adapter":
                if asked["lora_name"] in self.adapters:
                    return 400, {"error": "has already been loaded"}
                return self._load_adapter(asked["lora_name"], asked["lora_path"])
            case "/v1/unload_lora_adapter":
                self.adapters.pop(asked["lora_name"], None)
            case "/v1/completions":
                return self._complete(asked)
            case _:
                return 404, {"error": "no such path"}
        return 200, None

    def _load(self, folder: str) -> tuple[int, Any]:
        files = sorted(Path(folder).glob("*.safetensors"))
        if not files:
            return 500, {"error": f"no weights in {folder}"}
        with self._computing:
            for file in files:
                self.model.load_state_dict(load_file(file), strict=False)
            self.model.tie_weights()
        self.loaded.append(folder)
        return 200, {"results": [None]}

    def _load_adapter(self, name: str, folder: str) -> tuple[int, Any]:
        if name in self.adapters:
            return 400, {"error": f"{name} is there"}
        with self._computing:
            if not self.max_loras:
                pass  # a name alone, behind which is the policy itself
            elif isinstance(self.model, PeftModel):
                self.model.load_adapter(folder, name)
            else:
                self.model = PeftModel.from_pretrained(self.model, folder, name)
        self.adapters[name] = folder
        return 200, None

    def _complete(self, asked: Any) -> tuple[int, Any]:
        self.asked += 1
        if self.statuses:
            status = self.statuses.pop(0)
            if status == 0:
                time.sleep(3600)
            return status, {"error": "it fails"}
        if asked["model"] != self.name and asked["model"] not in self.adapters:
            return 404, {"error": f"no model {asked['model']}"}
        if unsent := {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"} - asked.keys():
            return 400, {"error": f"vLLM would take {sorted(unsent)} from the model's own settings"}
        time.sleep(self.seconds)
        self._going.wait()
        prompt, temperature = asked["prompt"], asked["temperature"]
        with self._computing:
            if isinstance(self.model, PeftModel):
                self.model.set_adapter(asked["model"])
            generate: Any = sampler(
                self.model, self.tokenizer, max_new_tokens=asked["max_tokens"], temperature=temperature
            )
            (reply,) = generate.seeded([prompt], [asked.get("seed")])
            ids = [int(token) for token in reply.ids]
            told: dict[str, Any] = {"token_ids": ids}
            told["logprobs"] = {"token_logprobs": self._logprobs(prompt, ids, temperature)}
            if "prompt_logprobs" in asked:
                own = self._logprobs(prompt[:1], prompt[1:], 1.0)  # whatever the temperature, as vLLM's are
                pairs = zip(prompt[1:], own, strict=True)
                told["prompt_logprobs"] = [None, *({str(token): {"logprob": value}} for token, value in pairs)]
        return 200, {"choices": [told]}

    def _logprobs(self, context: list[int], ids: list[int], temperature: float) -> list[float]:
        return list(reply_logprobs(self.model, [(context, ids)], temperature)[0])

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                server._connections.append(self.connection)

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._answer(json.loads(content) if content else None)

            def _answer(self, asked: Any) -> None:
                try:
                    status, told = server.answer(urlsplit(self.path).path, asked)
                except Exception as error:
                    status, told = 500, {"error": f"{type(error).__name__}: {error}"}
                content = b"" if told is None else json.dumps(told).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    self.close_connection = True  # nobody waits for it any more

        return Handler


def main() -> None:
    folder, port, *seconds = sys.argv[1:]
    torch.set_num_threads(1)
    server = MicroServer(folder, int(port), *map(float, seconds))
    print(server.url, os.getpid(), flush=True)
    server.serve()


if __name__ == "__main__":
    main()
