"""Pairs of responses to the same prompt, of which one was preferred: their sources, and the order of learning.

In a `Batch` of pairs, row 2 i is the preferred response of pair i, and row 2 i + 1 the other.
"""
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llm.config import PreferenceConfig
from llm.learn import logp_under
from llm.policy.load import Start
from llm.policy.scalar import RewardModel, ScalarModel
from llm.rollout import Batch, join
from llm.run import Result, Run
from llm.tasks.check import problems_of
from llm.tasks.pairs import left_out
from llm.tasks.task import Problem, Task
from spinup.core.masked import select
from spinup.errors import UserError
from spinup.runs.log import read_progress

HELD_OUT_PAIRS = 512    # compared without error, to test on
RANKED = 128            # of these, by a policy at every row
AT_ONCE = 512           # pairs drawn at a time
PATIENCE = 20           # times as many as are wanted may be drawn: responses that earn the same make no pair


def compare(rewards: Tensor, samples: int, noise: float, rng: np.random.Generator) -> Tensor:
    """Rows `[n, 2]`: of each group of `samples` rewards `[P * samples]` the best and the worst, unless they are equal.

    The best is preferred with probability sigmoid((best - worst) / noise) (Bradley & Terry 1952); always without noise.
    """
    groups = rewards.view(-1, samples)
    (best, i), (worst, j) = groups.max(1), groups.min(1)
    rows = torch.stack([i, j], 1) + samples * torch.arange(len(groups), device=rewards.device)[:, None]
    if noise:
        right = torch.sigmoid((best - worst).cpu().double() / noise).numpy()
        wrong = torch.from_numpy(rng.random(len(groups)) >= right).to(rows.device)
        rows = torch.where(wrong[:, None], rows.flip(1), rows)
    return rows[best > worst]


def find_pairs(run: Run, cfg: PreferenceConfig, held_out: bool = False) -> Batch:
    """The pairs to learn from, or the held-out ones: of the task's file, or compared here.

    Without a file the initial policy answers each of many prompts twice, and the response with the higher reward is
    preferred, with `cfg.noise` for training. UserError: there is no pair, or next to none.
    """
    if run.task.pairs is not None:
        return given_pairs(run, run.task.pairs(held_out), cfg, held_out)
    rng = np.random.default_rng([cfg.seed, 1 + held_out])
    generator = torch.Generator(run.device).manual_seed(int(rng.integers(2**62)))
    wanted, found, drawn = HELD_OUT_PAIRS if held_out else cfg.pairs, [], 0
    while sum(len(b.texts) for b in found) < 2 * wanted:
        if drawn >= PATIENCE * wanted:
            raise UserError(f"of {drawn} pairs of responses to the task {run.task.name} hardly any earned different "
                            "rewards, so that nothing can be preferred; begin with another --model, or raise "
                            "--temperature")
        problems = problems_of(run.task, min(AT_ONCE, wanted), rng, held_out)
        batch = run.sample(problems, 2, generator=generator)
        found.append(batch.pick(compare(batch.rewards, 2, 0.0 if held_out else cfg.noise, rng).flatten()))
        drawn += len(problems)
    whole = join(found)
    return whole.pick(torch.arange(2 * wanted, device=run.device))


def given_pairs(run: Run, pairs: Sequence[tuple[str, Problem, str, str]], cfg: PreferenceConfig,
                held_out: bool = False) -> Batch:
    """Pairs from a file as tokens, no longer than a response may be; those that are then equal are left out, and named.

    held_out: whether they are to test on; then so many are taken, from all over the file, as are compared without one.
    UserError: nothing is left.
    """
    limit, kept, equal, said = run.max_tokens, [], [], []
    if held_out:
        pairs = pairs[::max(1, -(-len(pairs) // HELD_OUT_PAIRS))]
        said += run.task.left_out                                         # here, so that it is said once
    for where, problem, preferred, other in pairs:
        a, b = (run.tokenizer.encode(text)[:limit] for text in (preferred, other))
        equal.append(where) if a == b else kept.append((problem, preferred, other))
    if equal:
        said.append(left_out(equal, f"both responses are the same within {limit} tokens"))
    for sentence in [] if cfg.quiet else said:
        print(sentence, flush=True)
    if not kept:
        raise UserError(f"no pair of {run.task.name} is left to {'test on' if held_out else 'learn from'}: both "
                        f"responses are always the same within {limit} tokens; raise --max-tokens")
    problems, texts = [p for p, _, _ in kept], [text for _, a, b in kept for text in (a, b)]
    return run.demonstrated(problems, texts)


def rows_of(pairs: Tensor) -> Tensor:
    """The rows `[2 n]` of pairs `[n]`: both responses of each, the preferred one first."""
    return torch.stack([2 * pairs, 2 * pairs + 1], 1).flatten()


def shuffled(n: int, batch: int, update: int, seed: int) -> Tensor:
    """Which of `n` pairs an update learns from, `[min(n, batch)]`: each once before any comes again.

    The order depends on nothing but the numbers given, so that a resumed run goes on with the same.
    """
    size = min(n, batch)
    each = n // size                                                      # whole batches in a pass; the rest sits out
    order = np.random.default_rng([seed, 7, update // each]).permutation(n)
    return torch.from_numpy(order[update % each * size:][:size])


def ranked_rightly(run: Run, pairs: Batch, before: Tensor) -> Tensor:
    """Accuracy of the policy as an implicit reward model: the share of the first `RANKED` pairs in which the preferred
    response has become likelier than the other, compared with `before`, the log-probabilities `[2n, T]` under the
    initial policy."""
    first = pairs.pick(torch.arange(min(2 * RANKED, len(pairs.texts)), device=run.device))
    logp = logp_under(run.model, run.config, first)
    now = select(logp - before[:len(logp)], first.responses.mask).sum(1).view(-1, 2)
    return (now[:, 0] > now[:, 1]).float().mean()


class RewardRun(Run):
    """A training of a reward model; see `Run`. The policy draws responses, and does not change."""

    def __init__(self, config: PreferenceConfig, task: Task, start: Start,
                 resume: str | Path | None = None):
        super().__init__(config, task, start, resume)
        self.measure = "pair_accuracy"

    def describe_subject(self) -> dict[str, Any]:
        return {**super().describe_subject(), "judges": True}

    def row(self) -> dict[str, float]:
        """Means over the updates of a row; what is found on held-out pairs is logged."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        self.best = {"pair_accuracy": self.logged["pair_accuracy"]}
        for counter in self.sums, self.counts, self.clock:
            counter.clear()
        return means

    def result(self, model: ScalarModel) -> Result:
        """End the run, and give the user the reward model."""
        self.finish()
        return Result(RewardModel(model, self.tokenizer), read_progress(self.directory), self.directory, self.status,
                      self.best.get(self.measure, math.nan), self.measure)
