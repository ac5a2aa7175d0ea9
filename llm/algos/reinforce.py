"""REINFORCE for language models (Williams 1992), and three more choices of its baseline.

A prompt is a state, a token an action, a response an episode whose reward comes at its end. The
methods differ in what a reward is compared with:

    REINFORCE     A_i = R_i - running mean of R                       (Williams 1992, section 4)
    RLOO          A_i = R_i - mean of the other responses to the prompt
                                                                  (Ahmadian et al. 2024, eq. 4)
    ReMax         A_i = R_i - R(the greedy response to the prompt)
                                                                  (Li et al. 2024, algorithm 1)
    REINFORCE++   A_t = z-score over all tokens of
                        R_i - beta sum over l >= t of log(pi / pi_ref)        (Hu et al. 2025)

The first three baselines leave the expected gradient as it is; the last one centres and scales by
the batch. `--kl-coef` is beta, a KL penalty: beta log(pi / pi_ref) of its response is subtracted
from each R_i.

Differs from spinup/algos/vpg.py by: one episode a row, with a mask for its end, and a baseline in
place of a value function. The loss is `policy_gradient`, the function that balances CartPole.
REINFORCE++ as published clips a ratio too; with one update a batch the ratio is 1.
"""
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from llm.config import LearningConfig
from llm.learn import Loss, logp_under, rescored
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


@dataclass(kw_only=True)
class Config(LearningConfig):
    baseline: Literal["mean", "others", "greedy", "batch"] = "mean"  # which of those above
    memory: Unit = 0.9               # decay of the running mean, for the baseline "mean"
    kl_coef: NonNegative = 0.0       # beta, the KL penalty per nat; .02 to .2 for a learned reward
    lr: Positive = 1e-3              # 3e-4 to 1e-3 for small models, 1e-6 for large ones
    warmup: Natural = 50             # updates until lr is reached; with 10, a third collapsed
    anneal: bool = True              # then it falls linearly to a tenth
    max_grad_norm: Positive = 1.0    # longer gradients are scaled down to this

    def __post_init__(self):
        super().__post_init__()
        if self.baseline == "others" and self.samples == 1:
            raise UserError("a response is compared with the others to the same prompt, and "
                            "--samples 1 leaves none; choose 2 or more")


def leave_one_out(rewards: Tensor, samples: int) -> Tensor:
    """R - mean of the other rewards of its group, `[P * G]`; the rows of a group stand together.

    0 in groups of one, and exactly 0 where all rewards of a group are equal.
    """
    groups = rewards.view(-1, samples)
    others = (groups.sum(1, keepdim=True) - groups) / max(1, samples - 1)
    equal = groups.amax(1, keepdim=True) == groups.amin(1, keepdim=True)  # rounding is no gradient
    return torch.where(equal, 0.0, groups - others).flatten()


def token_rewards(rewards: Tensor, kl: Tensor, coef: float,
                  mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rewards of single tokens `[B, T]`, and which token is the last that counts, `[B, T]` bool.

    The reward of the response, `[B]`, is that of its last token; each token pays a KL penalty,
    `coef` times its `kl` `[B, T]`.
    """
    last = (mask.flip(1).cumsum(1).flip(1) == 1) & (mask > 0)
    return select(torch.where(last, rewards[:, None], 0.0) - coef * kl, mask), last


class RunningMean:
    """Exponential moving average of the mean reward; before the first update it has no value.

    Attributes:
        mean: `[2]`, the average, and 1 once there is one.
    """

    def __init__(self, memory: float, device: torch.device):
        self.memory, self.mean = memory, torch.zeros(2, device=device)

    def update(self, now: Tensor) -> Tensor:
        """The average before this batch, whose mean is `now`, `[]`; of the first batch its own."""
        average, begun = self.mean
        decay = self.memory * begun                           # nothing is remembered at first
        self.mean = torch.stack([torch.lerp(now, average, decay), torch.ones_like(begun)])
        return average if begun else now

    def state_dict(self) -> dict[str, Tensor]:
        """For the checkpoint."""
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a checkpoint."""
        self.mean = state["mean"].to(self.mean.device)


def reward_to_go(rewards: Tensor, kl: Tensor, coef: float, mask: Tensor) -> Tensor:
    """Return of each token `[B, T]`: the sum of `token_rewards` from it on."""
    each, last = token_rewards(rewards, kl, coef, mask)
    return discounted(each, last, torch.zeros_like(last), gamma=1.0, mask=mask)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with a REINFORCE. `resume`: the folder of a run of the same settings."""
    # Set up.
    task = make_task(cfg.task, cfg.reward or None)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    optimizer = FlatAdam(run.model.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm,
                         eps=cfg.adam_eps)
    expected = RunningMean(cfg.memory, run.device)

    def loss(logp: Tensor, part: Responses, adv: Tensor, denominator: Tensor) -> Loss:
        each, stats = policy_gradient(logp, adv, part.mask)
        return aggregate(each, part.mask, denominator=denominator), stats

    with run:
        run.keep(model=run.model, optimizer=optimizer, expected=expected)
        for update in run.updates(cfg.total_steps):
            # Collect.
            problems = run.problems(cfg.prompts)
            batch = rescored(run.model, cfg, run.sample(problems, cfg.samples))
            r, rewards, mask = batch.responses, batch.rewards, batch.responses.mask

            # Advantages, less the KL penalty: token by token where tokens have their own returns.
            kl = torch.zeros_like(r.logp)                                         # [B, T]
            if cfg.kl_coef:
                kl = k1(r.logp, logp_under(run.reference, cfg, batch), mask)
            if cfg.baseline != "batch":
                rewards = rewards - cfg.kl_coef * kl.sum(1)
            if cfg.baseline == "others":
                adv = leave_one_out(rewards, cfg.samples)[:, None]                # [B, 1]
            elif cfg.baseline == "greedy":
                greedy = run.sample(problems, greedy=True)
                adv = (rewards - greedy.rewards[r.of])[:, None]
            elif cfg.baseline == "batch":
                shifted = rewards - rewards.min()     # equal ones to 0: rounding is not scaled up
                adv = whiten(reward_to_go(shifted, kl, cfg.kl_coef, mask), mask)  # [B, T]
            else:
                adv = (rewards - expected.update(rewards.mean()))[:, None]
            run.record(batch)

            # Update: one step, for the gradient is that of this policy only.
            rows = (adv != 0).any(1).nonzero()[:, 0]  # the rest counts, but has no gradient
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            if len(rows):
                optimizer.zero_grad()
                stats = run.backward(batch, rows, loss, adv, denominator=mask.sum())
                run.add(grad_norm=optimizer.step(lr), **stats)
            run.add(learning_rate=lr)
        return run.result()
