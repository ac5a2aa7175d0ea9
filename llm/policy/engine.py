"""Sampling engine: a server, such as vLLM, that samples responses over HTTP. It reads new weights from a folder.

The server needs no library of this process. It speaks the protocol of OpenAI's completions, with vLLM's additions:

    GET  /v1/models              the name of the model, and its longest prompt with response
    POST /v1/completions         token ids of one prompt -> token ids and log-probabilities of n responses
    POST /collective_rpc         reads new weights; only if the server was started with VLLM_SERVER_DEV_MODE=1
    POST /reset_prefix_cache     forgets keys and values of the old weights; likewise

An answer is only ever parsed as JSON, and each number of it is checked.
"""
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llm.policy.checkpoint import names, safetensors
from llm.policy.export import save_pretrained
from llm.policy.lora import merged
from llm.policy.tokenizer import Tokenizer
from llm.policy.transformer import Transformer
from spinup.errors import UserError, WorkerError

WAITS = (0.5, 2.0, 8.0)     # seconds before each new attempt
CONNECTIONS = 256           # requests at once; the server batches them
LARGEST = 2**28             # bytes of an answer that are read
UNKNOWN = (404, 405)        # status of an address that a server does not have
LOWEST, ABOVE = -1e5, 1e-3  # range of log-probabilities; vLLM writes -9999 in place of minus infinity; with rounding
DIRECT = (urllib.request.HTTPHandler, urllib.request.HTTPSHandler, urllib.request.HTTPErrorProcessor,
          urllib.request.HTTPDefaultErrorHandler)             # without proxies, redirections, files and FTP


class EngineError(WorkerError):
    """The engine does not answer, or its answers are wrong, also after several attempts."""


class Refused(Exception):
    """The server refuses a request, so that a new attempt is of no use."""

    def __init__(self, status: int, words: str):
        super().__init__(words)
        self.status = status


class Server:
    """A server that samples responses of a model.

    Args:
        address: such as http://localhost:8000.
        model, tokenizer: those that learn; the server gets their weights.
        timeout: seconds until an answer is late.
    """

    def __init__(self, address: str, model: Transformer, tokenizer: Tokenizer, timeout: float):
        self.address, self.timeout = address.rstrip("/"), timeout
        self.model, self.tokenizer, self.name = model, tokenizer, ""
        opener = urllib.request.OpenerDirector()
        for handler in DIRECT:
            opener.add_handler(handler())
        self.open = opener.open
        self.pool = ThreadPoolExecutor(CONNECTIONS)

    def check(self, longest: int) -> None:
        """Find the name of the model. Raise UserError if the server cannot be used to train.

        longest: tokens of the longest prompt and response together.
        """
        safetensors(f"the engine {self.address}")
        try:
            listed = self._ask("/v1/models", None, models, patient=False)
        except (EngineError, Refused) as error:
            raise UserError(f"{error}; start a vLLM server there first") from None
        self.name, limit = listed[0]
        if limit is not None and limit < longest:
            raise UserError(f"the server at {self.address} reads at most {limit} tokens, and a prompt with its "
                            f"response has up to {longest}; start it with --max-model-len {longest}")
        try:
            self._ask("/collective_rpc", {}, None, patient=False)
        except EngineError as error:
            raise UserError(f"{error}; see what the server printed, and start it again") from None
        except Refused as refused:                            # as it should, because the request names no method
            if refused.status in UNKNOWN:
                raise UserError(f"the server at {self.address} cannot reload weights, so it can be a judge or "
                                "be evaluated, but not be trained; start it with VLLM_SERVER_DEV_MODE=1") from None

    def sync(self, folder: Path) -> None:
        """Give the server the current weights: write them to a folder, and let the server read them.

        folder: of the weights, in Hugging Face's format. The server must see it under the same path.
        These are the requests of vLLM 0.18, found in its source; other versions may need others. Raise EngineError.
        """
        folder, model, file = folder.resolve(), merged(self.model), folder.resolve() / "model.safetensors"
        if file.is_file():                                    # a server needs the new weights, not what stays the same
            new = file.with_suffix(".new")
            safetensors(folder).torch.save_file(names(model), new, metadata={"format": "pt"})
            new.replace(file)
        else:
            save_pretrained(folder, model, self.tokenizer)
        arguments = {"weights_path": str(folder), "is_checkpoint_format": True}
        for path, body in {"/collective_rpc": {"method": "reload_weights", "kwargs": arguments},
                           "/reset_prefix_cache": {}}.items():
            try:
                self._ask(path, body, None)
            except Refused as refused:
                raise EngineError(f"{refused}, so it did not reload the weights in {folder}") from None

    def submit(self, rows: Sequence[list[int]], samples: int, max_tokens: int, seed: int, temperature: float
               ) -> Callable[[], dict[str, Tensor]]:
        """Begin to sample `samples` responses to each prompt, given as token ids.

        Return a function that waits for them: ids, logp `[B, max_tokens]`, and lengths `[B]`. Raise EngineError there.
        Each prompt is a request of its own, with its own seed: vLLM gives all prompts of a request the same random
        numbers.
        """
        ends = sorted(self.tokenizer.ends)
        settings = {"model": self.name, "n": samples, "max_tokens": max_tokens, "temperature": temperature,
                    "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "logprobs": 0,
                    "return_token_ids": True, "stop_token_ids": ends, "ignore_eos": True, "skip_special_tokens": False,
                    "add_special_tokens": False}
        read = partial(choices, samples=samples, max_tokens=max_tokens, vocabulary=self.model.shape.vocab_size,
                       ends=set(ends))
        waiting = [self.pool.submit(self._ask, "/v1/completions",
                                    {**settings, "prompt": row, "seed": seed + i * samples}, read)
                   for i, row in enumerate(rows)]
        return partial(gathered, waiting, max_tokens)

    def close(self) -> None:
        """End the connections that wait."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, path: str, body: dict[str, Any] | None, read: Callable[[Any], Any] | None, patient: bool = True
             ) -> Any:
        """POST `body`, or GET without one, and return `read(answer)`. If `patient`, wait after a fault and ask again.

        read: raises ValueError for a wrong answer. None ignores the answer.
        Raise Refused if the server refuses the request, and EngineError after the last attempt.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        for wait in (*(WAITS if patient else ()), None):
            try:
                with self.open(request, timeout=self.timeout) as answer:
                    text = received(answer, self.timeout)
                return read(json.loads(text)) if read else None
            except (OSError, HTTPException, ValueError, RecursionError) as error:
                words = f"the server at {self.address} {self._reason(error)}"
                if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                    raise Refused(error.code, words) from None
            if wait is None:
                raise EngineError(words + f", {len(WAITS) + 1} times in a row" * patient)
            time.sleep(wait)

    def _reason(self, error: Exception) -> str:
        if isinstance(error, urllib.error.HTTPError):
            said = ""
            with suppress(OSError, HTTPException), error:                 # the message may be cut off
                said = error.read(300).decode("utf-8", "replace")
            return f"answered {error.code} ({ascii(said)[1:-1]})"
        if isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError):
            return f"did not answer within {self.timeout:g} s"
        if isinstance(error, OSError | HTTPException):
            return f"does not answer ({ascii(str(getattr(error, 'reason', error)))[1:-1]})"
        return f"sent a wrong answer ({ascii(str(error))[1:-1][:200]})"


def received(answer: Any, timeout: float) -> bytes:
    """Return the whole answer, at most `LARGEST` bytes. Raise TimeoutError if it takes longer than `timeout` seconds.

    The timeout of a connection applies to each piece, so a server that sends a byte a second would never be late.
    """
    parts, size, until = [], 0, time.monotonic() + timeout
    while size < LARGEST and (part := answer.read1(min(2**16, LARGEST - size))):
        if time.monotonic() > until:
            raise TimeoutError
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def models(answer: Any) -> list[tuple[str, int | None]]:
    """Return the name and the longest length of each model that a server lists. Raise ValueError if it lists none."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    found = [(x["id"], limit if type(limit := x.get("max_model_len")) is int and limit > 0 else None)
             for x in listed if isinstance(x, dict) and isinstance(x.get("id"), str) and not x.get("parent")
             ] if isinstance(listed, list) else []            # a model with a parent is an adapter
    if not found:
        raise ValueError("it lists no model")
    return found


def choices(answer: Any, samples: int, max_tokens: int, vocabulary: int, ends: set[int]
            ) -> list[tuple[list[int], list[float]]]:
    """Return token ids and log-probabilities of each response in an answer, in their order.

    Raise ValueError for anything that a model with `vocabulary` tokens, of which `ends` end a response, cannot sample.
    """
    listed = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(listed, list) or not all(isinstance(x, dict) for x in listed):
        raise ValueError("it has no list of choices")
    by_index = {x["index"]: x for x in listed if type(x.get("index")) is int}
    if len(listed) != samples or by_index.keys() != set(range(samples)):
        raise ValueError(f"it has {len(listed)} completions, not {samples}")
    found = []
    for i in range(samples):
        ids, logprobs = by_index[i].get("token_ids"), by_index[i].get("logprobs")
        logp = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
        if not isinstance(ids, list) or not isinstance(logp, list):
            raise ValueError("a completion lacks token_ids or token_logprobs")
        if not 1 <= len(ids) == len(logp) <= max_tokens:
            raise ValueError(f"a completion has {len(ids)} tokens and {len(logp)} log-probabilities, of at most "
                             f"{max_tokens}")
        if set(map(type, ids)) != {int} or not 0 <= min(ids) <= max(ids) < vocabulary:
            raise ValueError(f"a token is not in the vocabulary of {vocabulary}")
        numbers = set(map(type, logp)) <= {int, float}
        if not numbers or not LOWEST < min(logp) <= max(logp) < ABOVE or math.isnan(sum(logp)):
            raise ValueError("a log-probability is not a number of at most 0")
        if ends & set(ids[:-1]) or (ids[-1] not in ends and len(ids) < max_tokens):
            raise ValueError("a completion does not end with its first end token")
        found.append((ids, logp))
    return found


def gathered(waiting: Sequence[Future], max_tokens: int) -> dict[str, Tensor]:
    """Wait for the answers to all prompts. Return ids and logp `[B, max_tokens]`, and lengths `[B]`. Raise EngineError.
    """
    try:
        rows = [row for future in waiting for row in future.result()]
    except Refused as refused:
        raise EngineError(str(refused)) from None
    finally:
        for future in waiting:
            future.cancel()
    ids, logp = ([x + [0] * (max_tokens - len(x)) for x in column] for column in zip(*rows, strict=True))
    return {"ids": torch.tensor(ids), "logp": torch.tensor(logp, dtype=torch.float32),
            "lengths": torch.tensor([len(tokens) for tokens, _ in rows])}
