"""A training of a language model: its responses are its rows, its task and generators are in its checkpoint."""
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from llm.config import LanguageConfig
from llm.diagnose import diagnose
from llm.policy.generate import Prompts, Responses, Sampler
from llm.policy.load import Start
from llm.policy.policy import LanguagePolicy, check_context, for_tokens, texts_of
from llm.policy.score import exact_kl, score
from llm.policy.tokenizer import CharTokenizer
from llm.tasks.task import Problem, Task, longest_prompt
from llm.tasks.tools import pieces
from spinup.core.kl import k3
from spinup.core.masked import masked_mean, select
from spinup.machine import cores
from spinup.runs.display import short
from spinup.runs.log import read_progress
from spinup.runs.policy import describe
from spinup.runs.training import Training

# The columns of a row between the accuracies and the seconds; NaN where a method has no such number.
METRICS = ("reward", "reward_std", "no_contrast", "length", "cut_off", "loss", "entropy", "logp", "kl", "clip_fraction",
           "ratio_min", "ratio_max", "grad_norm", "learning_rate")
PHASES = ("rollout", "reward", "update", "evaluation")
EXACT = 1024            # symbols up to which the divergence from the start is summed over all of them
WIDE = 128              # from this width on, a second thread pays
KL_ROWS = 128           # responses on which that divergence is measured
SCORED = 1024           # responses that are scored together where no gradient is wanted
EVALUATION = 20_000     # seed of the held-out problems, and of the answers to them: the same at every row


@dataclass
class Result:
    """What a training returns.

    Attributes:
        policy: `policy.respond(prompt)` answers a prompt.
        progress: the columns of `progress.csv`.
        directory: the run's folder.
        status: "finished" or "interrupted".
        quality: the last number of `measure`, the column that tells how good the policy is.
    """

    policy: LanguagePolicy
    progress: dict[str, list[float]]
    directory: Path
    status: str
    quality: float
    measure: str = "held_out_accuracy"

    def __repr__(self) -> str:
        return f"Result({self.status}, {short(self.measure)} {self.quality:.3f}, {describe(self.directory)})"


Loss = tuple[Tensor, dict[str, Tensor]]                   # a number to descend, and what to watch


@dataclass
class Batch:
    """Problems, the responses to each, and what these earned. Row p * samples + g is the g-th answer to problem p."""

    problems: list[Problem]
    prompts: Prompts
    responses: Responses
    texts: list[str]
    rewards: Tensor             # [B] fp32

    def pick(self, rows: Tensor) -> "Batch":
        """These rows, `[n]`, alone and in this order; each still knows the problem that it answers."""
        return replace(self, responses=self.responses[rows], texts=[self.texts[i] for i in rows.tolist()],
                       rewards=self.rewards[rows])


class Run(Training):
    """A training of `start` on `task`; see `Training`.

    It draws responses, has them judged and scored, and counts; what is made of that is the algorithm's.
    """

    epochs, decimals = 40, 1

    def __init__(self, algorithm: str, config: LanguageConfig, task: Task, start: Start,
                 resume: str | Path | None = None):
        self.task, self.model, self.tokenizer = task, start.model, start.tokenizer
        self.measure = task.measure
        self.start, self.reference = start, start.reference()
        super().__init__(f"llm {algorithm}", config, task.name, self.model.device,
                         min(2, cores()) if self.model.shape.width >= WIDE else 1, resume)
        self.max_tokens = config.response_tokens(task)
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        self.sampler, self.tool = Sampler(self.model, self.tokenizer.end), for_tokens(task.tool, self.tokenizer)
        self.sums: dict[str, float] = defaultdict(float)                  # of the numbers that `add` was given
        self.counts: dict[str, int] = defaultdict(int)
        self.extremes: dict[str, float] = {}                              # ratios farthest from 1, since the last row
        self.clock: dict[str, float] = defaultdict(float)                 # seconds since the last row
        self.own: tuple[str, ...] = ()
        self.said: set[str] = set()
        self.best: dict[str, float] = {}
        self.held_out = task.problems(config.held_out, np.random.default_rng(EVALUATION), True)      # found only once
        check_context(longest_prompt(task, self.tokenizer), self.max_tokens, self.model)

    # What an algorithm calls.

    def problems(self, n: int) -> list[Problem]:
        """`n` problems to train on."""
        return self.task.problems(n, self.rng)

    def sample(self, problems: Sequence[Problem], samples: int = 1, greedy: bool = False,
               generator: torch.Generator | None = None) -> Batch:
        """Responses of the present policy to each problem, and what they earn."""
        with self.timed("rollout"):
            prompts = self.prompts(problems)
            responses = self.sampler(prompts, samples=samples, max_tokens=self.max_tokens,
                                     generator=None if greedy else generator or self.generator,
                                     temperature=self.config.temperature, tool=self.tool)
            texts = texts_of(responses, self.tokenizer)
        with self.timed("reward"):
            asked = [p for p in problems for _ in range(samples)]
            earned = torch.tensor(self.task.rewards(asked, texts), dtype=torch.float32, device=self.device)
        return Batch(list(problems), prompts, responses, texts, earned)

    def start_logp(self, batch: Batch) -> Tensor:
        """Log-probabilities of a batch's tokens under the policy that learning began with, `[B, T]`."""
        r = batch.responses
        pieces = torch.arange(len(r.ids), device=self.device).split(self.config.micro_batch or SCORED)
        with torch.no_grad():
            return torch.cat([score(self.reference, batch.prompts, r.of[rows], r.ids[rows],
                                    temperature=self.config.temperature)[0] for rows in pieces])

    def backward(self, batch: Batch, rows: Tensor, loss: Callable[..., Loss], *per_row: Tensor, by_rows: bool = False,
                 **whole: Any) -> dict[str, Tensor]:
        """Add the gradient of `loss` over rows `[n]` of a batch, micro-batch by micro-batch; what to watch of it.

        loss: called with the log-probabilities `[m, T]` of some rows under the present policy, these rows' responses,
            their part of each `per_row`, and `whole` as it is. What it returns must be divided by what the whole batch
            counts, or the parts would not add up.
        by_rows: what it says is to be watched are means over rows, not over tokens.
        """
        r, found = batch.responses, defaultdict(float)
        tokens = r.mask[rows].sum().clamp(min=1)
        for piece in rows.split(self.config.micro_batch or len(rows)):
            part = r[piece]
            logp, entropy = score(self.model, batch.prompts, part.of, part.ids, temperature=self.config.temperature,
                                  checkpointing=self.config.checkpointing)
            value, stats = loss(logp, part, *(x[piece] for x in per_row), **whole)
            value.backward()
            with torch.no_grad():
                share = part.mask.sum() / tokens
                for name, x in stats.items():
                    found[name] += x * (len(piece) / len(rows) if by_rows else share)
                found["entropy"] += masked_mean(entropy, part.mask) * share
                found["loss"] += value.detach()
                self.watch_ratio(select(logp - part.logp, part.mask).exp())
        self.check_finite(rewards=batch.rewards, loss=found["loss"], entropy=found["entropy"])
        return found

    def demonstrated(self, problems: Sequence[Problem], texts: Sequence[str]) -> Batch:
        """Texts as responses to be imitated: the end token is one of them, and what a tool wrote is not.

        As many texts to each problem, those of a problem together. What is longer than a response may be is cut.
        """
        limit, samples, ids, own = self.max_tokens, len(texts) // len(problems), [], []
        for text in texts:                                                # what a tool wrote has tokens of its own
            found = [(float(mine), i) for mine, words in pieces(self.task, text) for i in self.tokenizer.encode(words)]
            mask, row = zip(*found, (1.0, self.tokenizer.end), strict=True)
            ids.append(row[:limit])
            own.append(mask[:limit])
        longest = max(map(len, ids))
        mask = torch.tensor([[*m, *[0.0] * (longest - len(m))] for m in own], device=self.device)
        padded = torch.tensor([[*i, *[self.tokenizer.end] * (longest - len(i))] for i in ids], device=self.device)
        of = torch.arange(len(problems), device=self.device).repeat_interleave(samples)
        lengths = torch.tensor([len(i) for i in ids], device=self.device)
        ended = torch.tensor([i[-1] == self.tokenizer.end for i in ids], device=self.device)
        responses = Responses(padded, torch.full_like(mask, math.nan), mask, lengths, ended, of)
        return Batch(list(problems), self.prompts(problems), responses, list(texts), torch.ones_like(mask[:, 0]))

    def add(self, **values: float | Tensor) -> None:
        """Numbers of one update, to be averaged over the updates of a row."""
        for name, value in values.items():
            self.sums[name] += float(value)
            self.counts[name] += 1

    def watch_ratio(self, ratio: Tensor) -> None:
        """Keep the extremes of pi / pi_old, `[m, T]`; NaN where nobody knows what pi_old was, as with a teacher."""
        low, high = float(ratio.amin()), float(ratio.amax())
        self.extremes = {"ratio_min": min(low, self.extremes.get("ratio_min", low)),
                         "ratio_max": max(high, self.extremes.get("ratio_max", high))}

    def columns(self, *names: str) -> None:
        """Columns that this method has besides `METRICS`, of numbers that are given to `add`."""
        self.own = names

    def record(self, batch: Batch) -> None:
        """What is watched of every batch, before anything is left out of it."""
        r, groups = batch.responses, batch.rewards.view(len(batch.problems), -1)
        self.add(reward=batch.rewards.mean(), reward_std=batch.rewards.std(correction=0),
                 length=r.lengths.float().mean(), cut_off=1 - r.finished.float().mean(), tokens=r.lengths.sum())
        if groups.shape[1] > 1:
            self.add(no_contrast=(groups.amax(1) == groups.amin(1)).float().mean())

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds the seconds that a block takes, work on a GPU included, to the clock of that name."""
        began = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.clock[name] += time.perf_counter() - began

    def evaluate(self, greedy: bool = False, samples: int = 1) -> Batch:
        """Answers to the held-out problems, the same problems at every call, with a generator of their own."""
        began = dict(self.clock)
        batch = self.sample(self.held_out, samples, greedy, torch.Generator(self.device).manual_seed(EVALUATION))
        self.clock["evaluation"] += sum(self.clock[k] - began.get(k, 0.0) for k in ("rollout", "reward"))
        self.clock.update({k: began.get(k, 0.0) for k in ("rollout", "reward")})
        return batch

    def result(self) -> Result:
        """End the run, and give the user the policy."""
        self.finish()
        policy = LanguagePolicy(self.model, self.tokenizer, self.max_tokens, self.config.temperature, self.config.seed,
                                self.task.tool)
        progress = read_progress(self.directory) if self.rows else {}
        quality = self.best.get(self.measure, math.nan)
        return Result(policy, progress, self.directory, self.status, quality, self.measure)

    # Text and tokens.

    def encode(self, problem: Problem) -> list[int]:
        """The tokens of a problem's prompt."""
        return self.tokenizer.prompt(problem.prompt)

    def prompts(self, problems: Sequence[Problem]) -> Prompts:
        """The prompts of problems, padded, on the model's device. UserError where one leaves no room for a response."""
        rows = [self.encode(p) for p in problems]
        check_context(max(map(len, rows)), self.max_tokens, self.model)
        return Prompts.of(rows, self.device)

    # What `Training` asks for.

    def describe_subject(self) -> dict[str, Any]:
        tokenizer = ({"alphabet": self.tokenizer.alphabet} if isinstance(self.tokenizer, CharTokenizer)
                     else {"tokenizer": str(self.tokenizer.folder)})
        parameters = sum(p.numel() for p in self.model.parameters())
        return {"shape": asdict(self.model.shape), **tokenizer, "parameters": parameters, "max_tokens": self.max_tokens,
                "start": str(self.start.directory) if self.start.directory else None,
                "start_seconds": round(self.start.made_in, 3)}

    def after_update(self) -> None:
        now = time.perf_counter()
        spent = sum(self.clock[phase] for phase in PHASES)
        self.clock["update"] += max(0.0, now - self.row_began - spent)

    def updates(self, total: int, steps_each: int = 1) -> Iterator[int]:
        self.row_began = time.perf_counter()
        yield from super().updates(total, steps_each)

    def row(self) -> dict[str, float]:
        sampled, greedy = self.evaluate(), self.evaluate(greedy=True)
        self.best = {"held_out_accuracy": solved(sampled.rewards), "held_out_greedy": solved(greedy.rewards),
                     "held_out_reward": float(sampled.rewards.mean())}
        if self.task.gold is not None:                                    # the truth that a learned reward stands for
            self.best["held_out_gold"] = float(np.mean(list(map(self.task.gold, sampled.problems, sampled.texts))))
        self.best |= {name: x for name, x in self.logged.items() if name == self.measure}
        means = {name: total / self.counts[name] for name, total in self.sums.items()} | self.extremes
        seconds = max(self.clock["rollout"] + self.clock["reward"] + self.clock["update"], 1e-9)
        began = time.perf_counter()
        kl, kl_of_response = self.kl_to_start(sampled)
        self.clock["evaluation"] += time.perf_counter() - began
        own = {name: means.get(name, math.nan) for name in self.own}      # columns of one method alone
        row = {**self.best, **{name: means.get(name, math.nan) for name in METRICS}, "kl_to_start": kl,
               "kl_of_response": kl_of_response, **own,
               **{f"{name}_seconds": round(self.clock[name], 4) for name in PHASES},
               "tokens_per_second": round(self.sums["tokens"] / seconds)}
        for sentence in diagnose(row, self.max_tokens, self.measure):
            kind = re.sub(r"[\d.%]+", "", sentence)                        # with other numbers it says the same again
            if kind not in self.said:
                self.said.add(kind)
                self.display.say(sentence)
        for counter in self.sums, self.counts, self.extremes, self.clock:
            counter.clear()
        self.row_began = time.perf_counter()
        return row

    @torch.no_grad()
    def kl_to_start(self, batch: Batch) -> tuple[float, float]:
        """KL(policy || start) in nats, mean over tokens and mean over whole responses, on held-out ones: the sum over
        all symbols at each step where these are few, else an estimate from those drawn."""
        r = batch.responses[torch.arange(min(KL_ROWS, len(batch.texts)), device=self.device)]
        if self.model.shape.vocab_size <= EXACT:
            kl = exact_kl(self.model, self.reference, batch.prompts, r.of, r.ids, self.config.temperature)
        else:
            before, _ = score(self.reference, batch.prompts, r.of, r.ids, temperature=self.config.temperature)
            kl = k3(r.logp, before, r.mask)
        return float(masked_mean(kl, r.mask)), float(select(kl, r.mask).sum(1).mean())

    def outcome(self) -> dict[str, Any]:
        return {self.measure: None, **self.best}

    def summary(self) -> str:
        if self.measure != "held_out_accuracy":
            gold = f", the true one {self.best['held_out_gold']:.3f}" if "held_out_gold" in self.best else ""
            return f"{short(self.measure)} {self.best.get(self.measure, math.nan):.3f}{gold}"
        return (f"held-out accuracy {self.best.get('held_out_accuracy', math.nan):.3f} sampled, "
                f"{self.best.get('held_out_greedy', math.nan):.3f} greedy")

    def save_subject(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state(), "sums": dict(self.sums), "counts": dict(self.counts),
                "extremes": dict(self.extremes), "best": dict(self.best), "said": sorted(self.said)}

    def load_subject(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        self.sums, self.counts = defaultdict(float, state["sums"]), defaultdict(int, state["counts"])
        self.best, self.extremes, self.said = dict(state["best"]), dict(state["extremes"]), set(state["said"])


def join(batches: Sequence[Batch]) -> Batch:
    """Several batches of as many samples as one."""
    if len(batches) == 1:
        return batches[0]
    longest, before = max(b.prompts.ids.shape[1] for b in batches), 0
    parts = []
    for b in batches:
        parts.append(replace(b.responses, of=b.responses.of + before))
        before += len(b.problems)
    prompts = Prompts(torch.cat([pad(b.prompts.ids, (0, longest - b.prompts.ids.shape[1])) for b in batches]),
                      torch.cat([b.prompts.lengths for b in batches]))
    responses = Responses(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Responses)))
    return Batch([p for b in batches for p in b.problems], prompts, responses, [t for b in batches for t in b.texts],
                 torch.cat([b.rewards for b in batches]))


def solved(rewards: Tensor) -> float:
    """Share of responses, `[n]`, that earned 1 or more."""
    return float((rewards >= 1).double().mean())
