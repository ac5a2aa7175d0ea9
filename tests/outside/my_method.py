"""REINFORCE with a constant baseline (Williams 1992).

    loss = -(1 / N) sum over the N tokens of all responses of  log pi(y_t | x, y_<t) (R - b)

Differs from spinup/algos/vpg.py by: a constant b in place of a value function.
"""
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from llm.config import LearningConfig
from llm.learn import Loss
from llm.policy.generate import Responses
from llm.run import Result, Run
from llm.start import find_start
from llm.tasks.make import make_task
from spinup.algos.vpg import policy_gradient
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate
from spinup.runs.config import Positive, Unit


@dataclass(kw_only=True)
class Config(LearningConfig):
    baseline: Unit = 0.5             # the reward that a response is compared with
    lr: Positive = 1e-3              # learning rate of Adam


def advantage(rewards: Tensor, baseline: float) -> Tensor:
    """R - b, `[B, 1]` of rewards `[B]`: the same for each token of a response."""
    return (rewards - baseline)[:, None]


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy. `resume`: the folder of a run with the same settings, to resume it."""
    task = make_task(cfg.task, cfg.reward or None)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    optimizer = FlatAdam(run.model.parameters(), lr=cfg.lr, max_grad_norm=1.0)

    def loss(logp: Tensor, part: Responses, adv: Tensor, denominator: Tensor) -> Loss:
        each, stats = policy_gradient(logp, adv, part.mask)   # [m, T]
        return aggregate(each, part.mask, denominator=denominator), stats

    with run:
        run.keep(model=run.model, optimizer=optimizer)
        for _ in run.updates(cfg.total_steps):
            batch = run.sample(run.problems(cfg.prompts), cfg.samples)
            run.record(batch)
            adv = advantage(batch.rewards, cfg.baseline)      # [B, 1]
            rows = torch.arange(len(batch.texts), device=run.device)
            optimizer.zero_grad()
            stats = run.backward(batch, rows, loss, adv, denominator=batch.responses.mask.sum())
            run.add(grad_norm=optimizer.step(), learning_rate=cfg.lr, **stats)
        return run.result()
