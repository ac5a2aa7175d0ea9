"""Rejection sampling: sample n responses to each prompt, imitate the best one, and repeat.

Also called expert iteration (Anthony et al. 2017). Touvron et al. 2023, section 3.2.3, use it for
language models.

The best of n responses is better than an average response of the same policy. The distribution of
such best responses has a KL divergence from the policy of at most log n - (n - 1) / n. Imitation
moves this improvement into the weights:

    winner_x = argmax over i of R(x, y_i),   y_1 .. y_n sampled from pi
    loss     = -(1 / N) sum over the N tokens of all winners of   log pi(y_t | x, y_1 .. y_t-1)

x is a prompt, y_i its i-th response, and R the reward.

`--data N` makes the method offline: the initial policy samples N responses once, before training.
The policy repeatedly imitates those with a reward of at least `keep`. A run of `llm dqn` with
the same settings learns from the same responses.

`--select random` is the control experiment: for each prompt with a winner, it imitates a random
response. The difference between the two runs is the effect of the selection among responses.

Differs from llm/algos/sft.py by: the teacher is the best of the policy's own responses. The loss
function is the same: `policy_gradient` of spinup/algos/vpg.py, with advantage 1 for winners and 0
for the other responses.
"""
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from llm.config import LearningConfig, at_once
from llm.learn import Loss
from llm.offline import Reward, Stored, sampled_once
from llm.policy.generate import Responses
from llm.run import Result, Run
from llm.start import find_start
from llm.tasks.make import make_task
from spinup.algos.vpg import policy_gradient
from spinup.core.masked import aggregate
from spinup.core.optim import step_size
from spinup.runs.config import Count, Positive


@dataclass(kw_only=True)
class Config(LearningConfig):
    select: Literal["best", "random"] = "best"  # random: control experiment, random responses
    keep: Reward = 1.0               # lowest reward of a winner; below it, answers may be wrong
    data: Stored = 0                 # responses sampled once, to imitate; 0: new ones each update
    epochs: Count = 1                # passes over the winners of an update
    minibatches: Count = 1           # minibatches per epoch, one gradient step each
    lr: Positive = 1e-3              # peak learning rate; small models 3e-4 to 2e-3, large 1e-6

    @property
    def responses(self) -> int:
        """Number of responses that an update samples, or takes from the data."""
        return self.prompts if self.data else super().responses

    @property
    def sampled(self) -> int:
        """Largest number of responses that a pretrained model samples at once."""
        return at_once(self.samples) if self.data else self.responses

    @property
    def updates_per_row(self) -> int:
        """Updates between two rows of a pretrained model's log: without `data`, twice as many as
        for other methods, because an update that learns from the winners alone costs about half as
        much."""
        return super().updates_per_row * (1 if self.data else 2)


def winners(rewards: Tensor, samples: int, keep: float) -> Tensor:
    """Return the row of each group's best response, `[n]`, if its reward is at least `keep`.

    rewards: `[P * samples]`. The first of several best responses wins.
    """
    best, index = rewards.view(-1, samples).max(1)
    rows = torch.arange(len(best), device=rewards.device) * samples + index
    return rows[best >= keep]


def kl_of_best(n: int) -> float:
    """Upper bound of KL(best of n || sampling policy), in nats (Beirami et al. 2024)."""
    return math.log(n) - (n - 1) / n


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy on the best of its own responses. `resume`: folder of a run with the same
    settings."""
    # Set up.
    task = make_task(cfg.task, cfg.given_reward)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    offline = cfg.data > 0
    optimizer = run.adam(run.model, lr=cfg.lr, max_grad_norm=cfg.max_grad_norm, eps=cfg.adam_eps)
    keep = cfg.keep if cfg.select == "best" else None                    # None: any reward
    data = sampled_once(run, cfg, cfg.data, cfg.samples, keep) if offline else None

    def loss(logp: Tensor, part: Responses, denominator: Tensor) -> Loss:
        each, stats = policy_gradient(logp, torch.ones_like(logp), part.mask)
        return aggregate(each, part.mask, denominator=denominator), stats

    with run:
        run.keep(model=run.model, optimizer=optimizer, data=data)
        run.columns("winners")
        for update in run.updates(cfg.total_steps):
            # Collect responses and select the winners.
            if offline:
                batch = data.draw(run.rng, cfg.prompts, keep)
                lengths = batch.responses.lengths
                run.add(reward=batch.rewards.mean(), length=lengths.float().mean(),
                        tokens=lengths.sum())
                rows = batch.responses.of
            else:
                batch = run.sample(run.problems(cfg.prompts), cfg.samples)
                run.record(batch)
                rows = winners(batch.rewards, cfg.samples, cfg.keep)
            if cfg.select == "random" and not offline:    # same prompts, any reward
                any_of_group = torch.randint(cfg.samples, rows.shape).to(rows.device)
                rows = rows // cfg.samples * cfg.samples + any_of_group

            # Update.
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            for _ in range(cfg.epochs if len(rows) else 0):
                order = rows[torch.randperm(len(rows)).to(run.device)]
                for chosen in order.tensor_split(min(cfg.minibatches, len(rows))):
                    optimizer.zero_grad()
                    denominator = batch.responses.mask[chosen].sum()
                    stats = run.backward(batch, chosen, loss, denominator=denominator)
                    run.add(grad_norm=optimizer.step(lr), **stats)
            run.add(learning_rate=lr, winners=len(rows) / cfg.prompts)
        return run.result()
