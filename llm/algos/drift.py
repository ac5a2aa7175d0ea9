"""DRIFT: imitate fixed responses of the initial policy, weighted by their returns.

Mu et al. 2026, arXiv:2605.31455. For one turn it is reward-weighted regression (Peters and Schaal
2007). The policy that maximises E[R] - beta KL(pi || pi_ref) has a closed form:

    pi*(y | x) = pi_ref(y | x) exp(R(x, y) / beta) / Z(x)

Imitation of pi* needs no samples from pi*. Samples of pi_ref are enough, if each has the weight
pi* / pi_ref. The mean over the n responses to one prompt estimates Z(x):

    w_i  = exp(R_i / beta) / mean over j of exp(R_j / beta),    y_1 .. y_n sampled from pi_ref
    loss = -(1 / N) sum over i of   w_i sum over the last turn's tokens t of   log pi(y_i,t | ..)
    R_i  = sum over the turns k of   gamma^(k - 1) r_i,k

r_i,k is the reward of turn k, and N the number of imitated tokens. A group without a success (a
reward of at least `keep`) is left out, because the policy would imitate failures.

beta -> 0 imitates the best response of each group; beta -> infinity imitates all responses alike.

Differs from llm/algos/best_of_n.py by: a weight in place of a choice, responses that are sampled
once, and the last turn only. The loss is `policy_gradient` of spinup/algos/vpg.py, with the weight
as the advantage.
"""
from dataclasses import dataclass, replace
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
from spinup.errors import UserError
from spinup.runs.config import Count, Positive, Size, Unit


@dataclass(kw_only=True)
class Config(LearningConfig):
    data: Stored = 20_000            # responses that the initial policy samples once, to learn from
    samples: Size = 16               # responses per prompt; more: a better estimate of Z
    prompts: Size = 16               # groups of stored responses per update; more: less noise
    keep: Reward = 1.0               # lowest reward of a success; a group without one is left out
    beta: Positive = 0.1             # temperature, in reward units; near 0 = best of a group only
    gamma: Unit = 0.9                # discount per turn; below 1, fewer turns are better
    turns: Literal["last", "all"] = "last"  # turns to imitate; all: also earlier turns
    total_steps: Count = 400         # updates; many passes over few responses overfit
    lr: Positive = 1e-3              # peak learning rate; small models 3e-4 to 2e-3, large 1e-6

    def __post_init__(self):
        super().__post_init__()
        if self.samples == 1:
            raise UserError("the weight of a response depends on the other responses to its "
                            "prompt, and --samples 1 gives none; choose 2 or more")
        if self.data < self.samples or self.data % self.samples:
            groups = max(1, round(self.data / self.samples))
            raise UserError(f"--data {self.data} is not a whole number of groups of --samples "
                            f"{self.samples} responses; choose {groups * self.samples}")

    @property
    def sampled(self) -> int:
        """Largest number of responses that a pretrained model samples at once."""
        return at_once(self.samples)


def weights(returns: Tensor, samples: int, beta: float) -> Tensor:
    """Weight exp(R / beta) / mean of exp(R / beta) over the group, `[P * samples]`.

    returns: `[P * samples]`; a group's rows are adjacent. The largest return of a group is
    subtracted first: the quotient is the same, and exp does not overflow.
    """
    groups = returns.view(-1, samples)
    each = ((groups - groups.amax(1, keepdim=True)) / beta).exp()
    return (each / each.mean(1, keepdim=True)).flatten()


def effective_samples(weight: Tensor, samples: int) -> Tensor:
    """Effective number of responses per group, (sum of w)^2 / sum of w^2, mean over groups, `[]`.

    weight: `[P * samples]`. It is 1 if one response has all the weight, `samples` if all are equal.
    """
    groups = weight.view(-1, samples)
    return (groups.sum(1).square() / groups.square().sum(1)).mean()


def last_turn(mask: Tensor) -> Tensor:
    """Mask of the last turn, `[B, T]`: the policy's tokens after the last text of someone else.

    mask: `[B, T]`, 1 for tokens of the policy. Text that follows the last turn does not count.
    """
    own = mask > 0
    later = own.flip(1).cumsum(1).flip(1)                     # tokens of the policy from here on
    others = ~own & (later > 0)                               # text of someone else between turns
    return mask * (others.flip(1).cumsum(1).flip(1) == 0)


def solved_groups(rewards: Tensor, samples: int, keep: float) -> Tensor:
    """Return the groups with a reward of at least `keep`, `[n]`. rewards: `[P * samples]`."""
    return (rewards.view(-1, samples).amax(1) >= keep).nonzero()[:, 0]


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy on weighted responses of the initial policy. `resume`: folder of a run with
    the same settings."""
    # Set up: sample the responses once.
    task = make_task(cfg.task, cfg.given_reward)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    optimizer = run.adam(run.model, lr=cfg.lr, max_grad_norm=cfg.max_grad_norm, eps=cfg.adam_eps)
    data = sampled_once(run, cfg, cfg.data, cfg.samples, cfg.keep, cfg.gamma)

    def loss(logp: Tensor, part: Responses, weight: Tensor, denominator: Tensor) -> Loss:
        each, stats = policy_gradient(logp, weight, part.mask)
        return aggregate(each, part.mask, denominator=denominator), stats

    with run:
        run.keep(model=run.model, optimizer=optimizer, data=data)
        run.columns("effective_samples")
        for update in run.updates(cfg.total_steps):
            # Draw stored groups, each with all of its responses, and weigh them.
            groups = solved_groups(data.tensors["rewards"], cfg.samples, cfg.keep)
            chosen = groups[torch.from_numpy(run.rng.integers(len(groups), size=cfg.prompts))]
            rows = (chosen[:, None] * cfg.samples + torch.arange(cfg.samples)).flatten()     # [B]
            batch = data.batch(rows)
            weight = weights(data.tensors["returns"][rows].to(run.device), cfg.samples, cfg.beta)
            if cfg.turns == "last":
                mask = last_turn(batch.responses.mask)
                batch = replace(batch, responses=replace(batch.responses, mask=mask))

            # Update.
            r = batch.responses
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            optimizer.zero_grad()
            stats = run.backward(batch, r.of, loss, weight[:, None], denominator=r.mask.sum())
            run.add(grad_norm=optimizer.step(lr), learning_rate=lr, reward=batch.rewards.mean(),
                    effective_samples=effective_samples(weight, cfg.samples),
                    length=r.lengths.float().mean(), tokens=r.lengths.sum(), **stats)
        return run.result()
