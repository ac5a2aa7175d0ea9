"""REINFORCE for language models (Williams 1992), and three ways to choose its baseline.

A prompt is a state, a token an action, a response an episode whose reward comes at its end. What worked better than
expected is made likelier; the methods differ in what they expect:

    REINFORCE     A_i = R_i - running mean of R                                        (Williams 1992, section 4)
    RLOO          A_i = R_i - mean of the other responses to the same prompt           (Ahmadian et al. 2024, eq. 4)
    ReMax         A_i = R_i - R(the greedy response to the same prompt)                (Li et al. 2024, algorithm 1)
    REINFORCE++   A_t = z-score over all tokens of   R_i - beta sum over l >= t of log(pi / pi_start)   (Hu et al. 2025)

The baselines leave the expected gradient as it is, save the last, whose scale and centre are those of the batch. With
`--kl-coef` each R_i has beta log(pi / pi_start) of its response taken off.

Differs from spinup/algos/vpg.py by: one episode a row with a mask for its end, and a baseline in place of a value
function. The loss is `policy_gradient`, the function that balances CartPole. REINFORCE++ as published clips a ratio
too, which at one update a batch is 1: no clip is needed here.
"""
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from llm.config import LearningConfig
from llm.learn import Loss, reference_logp
from llm.policy.generate import Responses
from llm.run import Result, Run
from llm.tasks.make import make_task
from llm.warmup import find_start
from spinup.algos.vpg import policy_gradient
from spinup.core.fast.adam import FlatAdam
from spinup.core.kl import k1
from spinup.core.masked import aggregate, select, whiten
from spinup.core.optim import step_size
from spinup.core.returns import discounted
from spinup.errors import UserError
from spinup.runs.config import Natural, NonNegative, Positive, Unit

METHODS = {"reinforce": {"baseline": "mean"}, "rloo": {"baseline": "others"}, "remax": {"baseline": "greedy"},
           "reinforce_pp": {"baseline": "batch"}}


@dataclass(kw_only=True)
class Config(LearningConfig):
    baseline: Literal["mean", "others", "greedy", "batch"] = "mean"  # what a reward is compared with: see the equations
    memory: Unit = 0.9                   # share of the running mean that survives an update; for the baseline "mean"
    kl_coef: NonNegative = 0.0           # beta: the price of a nat away from the start; .02 to .2 for a learned reward
    lr: Positive = 1e-3                  # 3e-4 to 1e-3 for small models, 1e-6 for large ones
    warmup: Natural = 50                 # updates in which lr grows to that; with 10, one seed in three collapsed
    anneal: bool = True                  # then it falls linearly to a tenth
    max_grad_norm: Positive = 1.0        # longer gradients are scaled down to this

    def __post_init__(self):
        super().__post_init__()
        if self.baseline == "others" and self.samples == 1:
            raise UserError("a response is compared with the others to the same prompt, and --samples 1 leaves none; "
                            "choose 2 or more")


def leave_one_out(rewards: Tensor, samples: int) -> Tensor:
    """R - mean of the other rewards of its group, `[P * G]`; the rows of a group stand together. 0 in groups of one."""
    groups = rewards.view(-1, samples)
    others = (groups.sum(1, keepdim=True) - groups) / max(1, samples - 1)
    equal = groups.amax(1, keepdim=True) == groups.amin(1, keepdim=True)  # rounding must not make a gradient of nothing
    return torch.where(equal, 0.0, groups - others).flatten()


def token_rewards(rewards: Tensor, kl: Tensor, coef: float, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rewards of single tokens `[B, T]`: that of the response, `[B]`, on the last one that counts, and on each a price
    for its `kl`; and which is the last, `[B, T]` bool."""
    last = (mask.flip(1).cumsum(1).flip(1) == 1) & (mask > 0)
    return select(torch.where(last, rewards[:, None], 0.0) - coef * kl, mask), last


def reward_to_go(rewards: Tensor, kl: Tensor, coef: float, mask: Tensor) -> Tensor:
    """Per-token return `[B, T]`, of the rewards above."""
    each, last = token_rewards(rewards, kl, coef, mask)
    return discounted(each, last, torch.zeros_like(last), gamma=1.0, mask=mask)


def train(cfg: Config, resume: str | Path | None = None, method: str = "reinforce") -> Result:
    """Train a policy with a REINFORCE. `resume`: the folder of a run of the same settings to go on with."""
    # Set up.
    task = make_task(cfg.task, cfg.reward or None)
    run = Run(method, cfg, task, find_start(cfg, task, resume), resume)
    optimizer = FlatAdam(run.model.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm)
    expected = torch.nn.Module()                              # the running mean, and whether it has begun
    expected.register_buffer("mean", torch.zeros(2, device=run.device))

    def loss(logp: Tensor, part: Responses, adv: Tensor, denominator: Tensor) -> Loss:
        each, stats = policy_gradient(logp, adv, part.mask)
        return aggregate(each, part.mask, denominator=denominator), stats

    with run:
        run.keep(model=run.model, optimizer=optimizer, expected=expected)
        for update in run.updates(cfg.total_steps):
            # Collect.
            problems = run.problems(cfg.prompts)
            batch = run.sample(problems, cfg.samples)
            r, rewards, mask = batch.responses, batch.rewards, batch.responses.mask

            # Compare, having paid for the divergence: token by token where tokens have returns of their own.
            kl = torch.zeros_like(r.logp)                                                    # [B, T]
            if cfg.kl_coef:
                kl = k1(r.logp, reference_logp(run.reference, cfg, batch), mask)
            if cfg.baseline != "batch":
                rewards = rewards - cfg.kl_coef * kl.sum(1)
            if cfg.baseline == "others":
                adv = leave_one_out(rewards, cfg.samples)[:, None]                           # [B, 1]
            elif cfg.baseline == "greedy":
                adv = (rewards - run.sample(problems, greedy=True).rewards[r.of])[:, None]
            elif cfg.baseline == "batch":
                shifted = rewards - rewards.min()             # equal ones to exact 0, or rounding would be whitened
                adv = whiten(reward_to_go(shifted, kl, cfg.kl_coef, mask), mask)             # [B, T]
            else:
                mean, begun = expected.mean
                adv = (rewards - (mean if begun else rewards.mean()))[:, None]
                expected.mean.copy_(torch.stack([torch.lerp(rewards.mean(), mean, cfg.memory * begun), begun * 0 + 1]))
            run.record(batch)

            # Update: one step, for the gradient is true of this policy only.
            rows = (adv != 0).any(1).nonzero()[:, 0]          # the others have no gradient; their tokens still count
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            if len(rows):
                optimizer.zero_grad()
                stats = run.backward(batch, rows, loss, adv, denominator=mask.sum())
                run.add(grad_norm=optimizer.step(lr), **stats)
            run.add(learning_rate=lr)
        return run.result()
