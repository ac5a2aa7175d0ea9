"""Batches from a sampling engine. With a lag, it samples the next batch while the learner works on the current one.

With a lag of 1, update k learns from responses of the weights before update k - 1. The loss of each token is multiplied
by `llm.learn.importance_weights`, which corrects for the difference.

The engine is `llm.policy.engine.Server`, or a second process of this library. Both sample whole responses. The rewards
are computed here. Tools and episodes are not supported.
"""
import copy
import math
import multiprocessing
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llm.config import LanguageConfig
from llm.policy.engine import EngineError, Server
from llm.policy.generate import Prompts, Responses, Sampler
from llm.policy.score import score
from llm.policy.tokenizer import Tokenizer
from llm.policy.transformer import Transformer
from llm.rollout import Batch, prompts_of, sample
from llm.tasks.check import problems_of
from llm.tasks.task import Problem, Task
from spinup.envs.state import load_rng, save_rng
from spinup.errors import UserError
from spinup.runs import ranks
from spinup.signals import leave_to_first

FOLDER = "engine"           # of the weights for a server, in the run's folder
CLOSE = 0.01                # nats; smaller differences of two log-probabilities may be those of rounding
CHECKED = 8                 # responses whose log-probabilities show the temperature of a server


def check_shared_memory(needed: int) -> None:
    """Raise UserError if less than `needed` bytes of shared memory are free."""
    with suppress(OSError):                                               # not on Linux
        if needed > (free := shutil.disk_usage("/dev/shm").free):
            raise UserError(f"--lag needs {needed / 1e9:.2f} GB of shared memory for a copy of the model, and "
                            f"{free / 1e9:.2f} GB are free; leave out --lag, or start Docker with "
                            f"--shm-size={max(1, math.ceil(2 * needed / 2**30))}g")


class Process:
    """A second process that samples with our own sampler, from a copy of the model in shared memory.

    Args:
        model: the model that learns.
        ends: token ids that end a response.
        threads: CPU threads of the process.
    """

    def __init__(self, model: Transformer, ends: Sequence[int], threads: int):
        self.model = model
        check_shared_memory(sum(p.numel() * p.element_size() for p in model.parameters()))
        # Adapters are not merged: in bf16, a small B A would be lost in the sum with W.
        self.copy = copy.deepcopy(model).requires_grad_(False).cpu().share_memory()
        self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin,
                                        (self.copy, ends, threads, model.device))

    @torch.no_grad()
    def sync(self, _: Path) -> None:
        """Copy the current weights into the shared memory. The process must not be sampling."""
        for mine, new in zip(self.copy.parameters(), self.model.parameters(), strict=True):
            if new.requires_grad:
                mine.copy_(new)

    def submit(self, rows: Sequence[list[int]], samples: int, max_tokens: int, seed: int, temperature: float
               ) -> Callable[[], dict[str, Tensor]]:
        """Begin to sample, as `Server.submit` does. Return a function that waits for the same tensors, such as ids
        `[B, max_tokens]`. Both raise EngineError if the process has ended."""
        try:
            future = self.pool.submit(_draw, rows, samples, max_tokens, seed, temperature)
        except BrokenExecutor:
            raise EngineError(ENDED) from None

        def wait() -> dict[str, Tensor]:
            try:
                return {name: torch.from_numpy(x) for name, x in future.result().items()}
            except BrokenExecutor:
                raise EngineError(ENDED) from None
        return wait

    def close(self) -> None:
        """End the process, after the batch that it samples."""
        self.pool.shutdown(cancel_futures=True)


ENDED = ("the process that samples has ended; it may lack memory, or your script trains outside of `if __name__ == "
         "\"__main__\":`, which the process imports")


def _begin(shared: Transformer, ends: Sequence[int], threads: int, device: torch.device) -> None:
    """Set up the second process."""
    global own, sampler
    leave_to_first()
    torch.set_num_threads(threads)
    own, sampler = shared, Sampler(shared if device.type == "cpu" else copy.deepcopy(shared).to(device), ends)


def _draw(rows: Sequence[list[int]], samples: int, max_tokens: int, seed: int, temperature: float
          ) -> dict[str, np.ndarray]:
    """Sample in the second process; arrays, because tensors would need shared memory of their own."""
    device = sampler.model.device
    if sampler.model is not own:
        sampler.model.load_state_dict(own.state_dict())
    found = sampler(Prompts.of(rows, device), samples=samples, max_tokens=max_tokens, temperature=temperature,
                    generator=torch.Generator(device).manual_seed(seed))
    return {name: getattr(found, name).cpu().numpy() for name in ("ids", "logp", "lengths")}


@dataclass
class Flight:
    """A batch that is being sampled: its problems, the random state that drew them, a function that waits, and the
    update before which it began; -1 if that was in an earlier process."""

    problems: Sequence[Problem]
    samples: int
    drawn_from: dict[str, Any]
    wait: Callable[[], dict[str, Tensor]]
    update: int = -1


class Given:
    """Responses that exist already, as a `Sampler`."""

    def __init__(self, model: Transformer, found: dict[str, Tensor], ends: Sequence[int]):
        self.model, self.found, self.ends = model, found, ends

    def __call__(self, prompts: Prompts, *, samples: int, **_: Any) -> Responses:
        """Return the responses, with masks; see `Sampler`."""
        ids, logp, lengths = (self.found[name].to(self.model.device) for name in ("ids", "logp", "lengths"))
        mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).float()
        last = ids.gather(1, lengths[:, None] - 1)
        finished = (last == torch.tensor(self.ends, device=ids.device)).any(1)
        return Responses(ids, logp, mask, lengths, finished,
                         torch.arange(len(prompts.ids), device=ids.device).repeat_interleave(samples))


def check_engine(cfg: LanguageConfig, task: Task, model: Transformer, tokenizer: Tokenizer, longest: int
                 ) -> Server | None:
    """Return the server of the settings, or None if our own sampler samples. Raise UserError if it cannot be used.

    longest: tokens of the longest prompt and response together.
    """
    if ranks.wanted(1) > 1:
        raise UserError("--engine and --lag work with one process that learns; start it without torchrun")
    if task.tool is not None or task.open is not None:
        raise UserError(f"the task {task.name} has a tool or an environment that answers within a response, which "
                        "--engine and --lag do not support; leave them out")
    if cfg.engine == "own":
        return None
    server = Server(cfg.engine, model, tokenizer, cfg.engine_timeout)
    server.check(longest)
    return server


@torch.no_grad()
def check_temperature(model: Transformer, prompts: Prompts, found: dict[str, Tensor], temperature: float, address: str
                      ) -> bool:
    """Raise UserError if a server gives log-probabilities at temperature 1 instead of `temperature`, as vLLM does by
    default. They would give wrong importance weights.

    One response to each of P `prompts` is scored at both temperatures. Return False if these scores are nearly equal,
    so that the check is inconclusive.
    found: ids and logp `[P, T]`, and lengths `[P]`, of responses that were sampled with the weights of `model`, or with
    those before its last update.
    """
    ids, logp, lengths = (found[name].to(model.device) for name in ("ids", "logp", "lengths"))
    inside = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    of = torch.arange(len(ids), device=ids.device)
    after, before = (score(model, prompts, of, ids, temperature=t)[0][inside] for t in (temperature, 1.0))
    said = logp[inside]
    if (said - before).abs().mean() < (said - after).abs().mean() - CLOSE:
        raise UserError(f"the server at {address} gives log-probabilities at temperature 1, not {temperature:g}; "
                        "start it with --logprobs-mode processed_logprobs")
    return temperature == 1 or bool((after - before).abs().mean() > CLOSE)


class Source:
    """Batches of an engine for a run, an `llm.run.Run`. Raise UserError as `check_engine` does."""

    def __init__(self, run: Any, longest: int):
        cfg, task = run.config, run.task
        self.run, self.lag, self.ends = run, cfg.lag, sorted(run.tokenizer.ends)
        self.flight: Flight | None = None
        self.drawn_from: dict[str, Any] = {}                  # random state before the problems drawn last
        self.synced = -1                                      # the update whose weights the engine has
        self.checked = False                                  # whether the server's temperature is known
        run.threads = cfg.threads or 1                        # the engine needs the other core
        self.engine = check_engine(cfg, task, run.model, run.tokenizer, longest) or Process(run.model, self.ends,
                                                                                            run.threads)

    def problems(self, n: int) -> list[Problem]:
        """Return `n` problems to train on, and remember how to draw them again."""
        self.drawn_from = save_rng(self.run.rng)
        return problems_of(self.run.task, n, self.run.rng)

    def sample(self, problems: Sequence[Problem], samples: int) -> Batch:
        """Return responses to these problems. With a lag, return those to the problems of the previous call instead.

        With a lag, also begin to sample responses to these problems. The first call has no previous call: it samples
        one batch, and begins the next one with the same weights. If the engine fails, save the run as it was before
        this update, and raise EngineError.
        """
        run = self.run
        try:
            with run.timed("rollout"):
                if self.flight is None:
                    self._begin(problems, samples)
                    problems = self.problems(len(problems)) if self.lag else problems
                flight, found = self.flight, self.flight.wait()
                self.flight = None
                if not self.checked and isinstance(self.engine, Server) and flight.update >= max(0, run.update - 1):
                    prompts = prompts_of(flight.problems[:CHECKED], run.tokenizer, run.model, run.max_tokens)
                    first = {name: x[::flight.samples][:CHECKED] for name, x in found.items()}
                    self.checked = check_temperature(run.model, prompts, first, run.config.temperature,
                                                     self.engine.address)
                if self.lag and run.steps + run.steps_each < run.end:
                    self._begin(problems, samples)
        except EngineError:
            self.flight = None
            if run.steps:                                     # else the run starts again from its config.json
                rng, torch_rng, state = self.before
                load_rng(run.rng, rng)
                torch.set_rng_state(torch_rng)
                run.load_subject(state)
                run.save()
            raise
        return sample(Given(run.model, found, self.ends), run.task, run.tokenizer, flight.problems,
                      samples=flight.samples, max_tokens=run.max_tokens, generator=None, timed=run.timed)

    def _begin(self, problems: Sequence[Problem], samples: int) -> None:
        run = self.run
        if self.synced != run.update:
            self.engine.sync(run.directory / FOLDER)
            self.synced = run.update
        prompts = prompts_of(problems, run.tokenizer, run.model, run.max_tokens)
        rows = [row[:n] for row, n in zip(prompts.ids.tolist(), prompts.lengths.tolist(), strict=True)]
        seed = int(torch.randint(2**60, (), generator=run.generator, device=run.device))
        wait = self.engine.submit(rows, samples, run.max_tokens, seed, run.config.temperature)
        self.flight = Flight(problems, samples, self.drawn_from, wait, run.update)

    def mark(self) -> None:
        """Remember the state before an update, without the batch that is being sampled."""
        run, flight, self.flight = self.run, self.flight, None
        self.before = save_rng(run.rng), torch.get_rng_state(), copy.deepcopy(run.save_subject())
        self.flight = flight

    def state_dict(self) -> dict[str, Any]:
        """Wait for the batch that is being sampled, and return what a checkpoint must hold of it.

        Return nothing if there is none, or if the engine fails: the next `sample` then begins one.
        """
        with suppress(EngineError):
            if self.flight is not None:
                return {"flight": {"prompts": len(self.flight.problems), "samples": self.flight.samples,
                                   "drawn_from": self.flight.drawn_from, "found": self.flight.wait()}}
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. The problems are drawn again."""
        self.flight = None
        if held := state.get("flight"):
            rng = np.random.default_rng()
            load_rng(rng, held["drawn_from"])
            problems = problems_of(self.run.task, held["prompts"], rng)
            self.flight = Flight(problems, held["samples"], held["drawn_from"], lambda: held["found"])

    def close(self) -> None:
        """End the engine's process or connections, and remove its weights: those of the run are newer."""
        self.engine.close()
        shutil.rmtree(self.run.directory / FOLDER, ignore_errors=True)
