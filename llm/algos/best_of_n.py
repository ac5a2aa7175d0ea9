"""Rejection sampling: draw n responses to each prompt, imitate the best of them, and repeat.

Expert iteration (Anthony et al. 2017); the rejection sampling of Touvron et al. 2023, section
3.2.3.

The best of n responses is a better teacher than the policy that wrote them: its KL divergence from
that policy is at most log n - (n - 1) / n, and imitation brings the improvement into the weights:

    winner_x = argmax over i of R(x, y_i),   y_1 .. y_n drawn from pi
    loss     = -(1 / N) sum over the N tokens of all winners of   log pi(y_t | x, y_1 .. y_t-1)

`--select random` is the control: it imitates as many responses, chosen at random. The difference
between the two is the effect of the selection.

Differs from llm/algos/sft.py by: the teacher is the best of the policy's own responses. The loss is
the same, that of spinup/algos/vpg.py with an advantage of 1 for winners and 0 for the rest.
"""
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor

from llm.config import LearningConfig
from llm.learn import Loss
from llm.policy.generate import Responses
from llm.run import Result, Run
from llm.tasks.make import make_task
from llm.warmup import find_start
from spinup.algos.vpg import policy_gradient
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate
from spinup.core.optim import step_size
from spinup.runs.config import Count, Natural, Positive, Range

Reward = Annotated[float, Range(-1e6, 1e6)]


@dataclass(kw_only=True)
class Config(LearningConfig):
    select: Literal["best", "random"] = "best"  # random is the control: as many, drawn at random
    keep: Reward = 1.0               # a winner that earns less is not imitated: it may be wrong too
    epochs: Count = 1                # passes over the winners of a round
    minibatches: Count = 1           # pieces of the winners, each a gradient step
    lr: Positive = 1e-3              # 3e-4 to 2e-3 for small models, 1e-6 for large ones
    warmup: Natural = 50             # updates in which the learning rate grows to lr
    anneal: bool = True              # then it falls linearly to a tenth
    max_grad_norm: Positive = 1.0    # longer gradients are scaled down to this


def winners(rewards: Tensor, samples: int, keep: float) -> Tensor:
    """The row of the best response of each group whose best earns at least `keep`, `[n]`.

    rewards: `[P * samples]`. Among equals the first.
    """
    best, index = rewards.view(-1, samples).max(1)
    rows = torch.arange(len(best), device=rewards.device) * samples + index
    return rows[best >= keep]


def kl_of_best(n: int) -> float:
    """Upper bound of KL(best of n || policy that drew them), in nats (Beirami et al. 2024)."""
    return math.log(n) - (n - 1) / n


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy on the best of its own responses. `resume`: the folder of a run of the same
    settings."""
    # Set up.
    task = make_task(cfg.task, cfg.reward or None)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    optimizer = FlatAdam(run.model.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm,
                         eps=cfg.adam_eps)

    def loss(logp: Tensor, part: Responses, denominator: Tensor) -> Loss:
        each, stats = policy_gradient(logp, torch.ones_like(logp), part.mask)
        return aggregate(each, part.mask, denominator=denominator), stats

    with run:
        run.keep(model=run.model, optimizer=optimizer)
        for update in run.updates(cfg.total_steps):
            # Collect, and choose.
            batch = run.sample(run.problems(cfg.prompts), cfg.samples)
            run.record(batch)
            rows = winners(batch.rewards, cfg.samples, cfg.keep)
            if cfg.select == "random":            # of the same prompts, whatever the reward
                any_of_group = torch.randint(cfg.samples, rows.shape).to(rows.device)
                rows = rows // cfg.samples * cfg.samples + any_of_group

            # Update.
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            for _ in range(cfg.epochs if len(rows) else 0):
                order = rows[torch.randperm(len(rows)).to(rows.device)]
                for chosen in order.tensor_split(min(cfg.minibatches, len(rows))):
                    optimizer.zero_grad()
                    tokens = batch.responses.mask[chosen].sum()
                    stats = run.backward(batch, chosen, loss, denominator=tokens)
                    run.add(grad_norm=optimizer.step(lr), **stats)
            run.add(learning_rate=lr)
        return run.result()
