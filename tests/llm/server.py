"""A server with vLLM's protocol, for tests and measurements. It uses our own sampler, and listens on loopback only.

To start it in a separate process, type: python -m tests.llm.server FOLDER. It prints its address.
"""
import json
import queue
import sys
import threading
from collections import defaultdict
from concurrent.futures import Future
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from safetensors.torch import load_file

from llm.policy.checkpoint import load_pretrained, names
from llm.policy.generate import Prompts, Sampler
from llm.policy.score import score

GAP = 0.01              # seconds without a new request after which the waiting ones become a batch
NEEDED = ("return_token_ids", "ignore_eos", "stop_token_ids", "logprobs", "seed")


class Loopback:
    """The server as a context manager. A test may change `dev`, `raw`, `limit` and `broken`, and read `asked`.

    dev: whether the addresses that reload weights exist. raw: whether log-probabilities are those at temperature 1,
    whatever the sampling temperature. limit: largest number of tokens of a prompt with its response. broken: a function
    (path, body of the request) -> (status, text) that replaces the answer, or None to keep it; the attribute is None if
    no answer is replaced. asked: (path, body) of all requests.
    """

    def __init__(self, folder: str | Path, port: int = 0):
        self.sampler = Sampler(load_pretrained(folder)[0], -1)            # each request has its end tokens
        self.dev, self.raw, self.limit, self.broken, self.asked = True, False, 512, None, []
        self.waiting: queue.SimpleQueue = queue.SimpleQueue()
        handler = type("Bound", (Handler,), {"engine": self})
        self.http = type("Server", (ThreadingHTTPServer,), {"request_queue_size": 512})(("127.0.0.1", port), handler)
        self.port = self.http.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Loopback":
        for work in (self.http.serve_forever, self.batches):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.waiting.put(None)
        self.http.shutdown()
        self.http.server_close()

    def reload(self, folder: str | Path) -> None:
        new = load_file(Path(folder) / "model.safetensors")
        for name, weight in names(self.sampler.model).items():
            weight.copy_(new[name])

    def batches(self) -> None:
        """Sample the responses to all requests that arrive together in one batch, as an engine does."""
        while (first := self.waiting.get()) is not None:
            kinds = defaultdict(list)
            while first is not None:
                body = first[0]
                kinds[body["n"], body["max_tokens"], body["temperature"], tuple(body["stop_token_ids"])].append(first)
                try:
                    first = self.waiting.get(timeout=GAP)
                except queue.Empty:
                    first = None
            for (n, length, temperature, ends), asked in kinds.items():
                asked.sort(key=lambda x: x[0]["seed"])
                self.sampler.ends = torch.tensor(ends)
                generator = torch.Generator().manual_seed(asked[0][0]["seed"])
                found = self.sampler(Prompts.of([body["prompt"] for body, _ in asked]), samples=n, max_tokens=length,
                                     generator=generator, temperature=temperature)
                logp = score(self.sampler.model, Prompts.of([body["prompt"] for body, _ in asked]), found.of,
                             found.ids)[0] if self.raw else found.logp
                rows = list(zip(found.ids.tolist(), logp.tolist(), found.lengths.tolist(), strict=True))
                for i, (_, answer) in enumerate(asked):
                    answer.set_result({"choices": [
                        {"index": k, "text": "", "token_ids": ids[:size], "finish_reason": "stop",
                         "logprobs": {"token_logprobs": logp[:size]}}
                        for k, (ids, logp, size) in enumerate(rows[i * n:(i + 1) * n])]})

    def answer(self, path: str, body: dict) -> tuple[int, object]:
        if path == "/v1/models":
            return 200, {"data": [{"id": "policy", "max_model_len": self.limit, "parent": None}]}
        if path == "/v1/completions":
            assert all(name in body for name in NEEDED) and body["model"] == "policy"
            future = Future()
            self.waiting.put((body, future))
            return 200, future.result()
        if path == "/collective_rpc" and self.dev:
            if body.get("method") != "reload_weights":
                return 400, {"detail": "Missing 'method' in request body"}
            self.reload(body["kwargs"]["weights_path"])
            return 200, {"results": [None]}
        return (200, "") if path == "/reset_prefix_cache" and self.dev else (404, {"detail": "Not Found"})


class Handler(BaseHTTPRequestHandler):
    engine: Loopback

    def do_GET(self) -> None:
        self.reply({})

    def do_POST(self) -> None:
        self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def reply(self, body: dict) -> None:
        engine = self.engine
        engine.asked.append((self.path, body))
        broken = engine.broken(self.path, body) if engine.broken else None
        status, text = broken or engine.answer(self.path, body)
        data = text if isinstance(text, bytes) else json.dumps(text).encode() if text != "" else b""
        with suppress(ConnectionError):                       # the client may not wait any more
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    torch.set_num_threads(1)
    with Loopback(*sys.argv[1:2]) as loopback:
        print(loopback.address, flush=True)
        threading.Event().wait()
