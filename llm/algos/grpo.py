"""Group relative policy optimization: GRPO, Dr. GRPO and DAPO.

Shao et al. 2024, arXiv:2402.03300; Liu et al. 2025, arXiv:2503.20783; Yu et al. 2025,
arXiv:2503.14476.

G responses to the same prompt are each other's baseline, so that PPO needs no value function:

    GRPO      A_i = (R_i - mean of its group) / standard deviation of its group   (section 4.1.2)
    Dr. GRPO  A_i =  R_i - mean of its group

for every token of response i, and the rest is PPO: the loss below is the function that balances
CartPole, `spinup.algos.ppo.clipped_surrogate`. The weight of a response's tokens differs:

    GRPO      1 / (its length * responses)      a long wrong answer costs little: lengths grow
    Dr. GRPO  1 / (longest length * responses)  the same for every token of every update
    DAPO      1 / all tokens of the update

DAPO clips higher above than below (rare tokens can still become likely), draws new prompts where
the rewards of a group are equal, and then penalises responses close to the length limit. GRPO's KL
penalty is off by default, as in most later work; `--kl-coef` adds it to the loss, token by token.

In Python, `advantage`, `loss` and `average` may be functions of your own:

    advantage(rewards [P, G]) -> [P, G]
    loss(logp [B, T], logp_old [B, T], adv [B, 1], mask [B, T]) -> [B, T],
        or ([B, T], {"column": number}), where column is a name that the run does not have
    average(loss [B, T], mask [B, T]) -> the sum over these rows, which are a micro-batch. It is
        divided by the number of all responses of the optimiser step, groups with zero variance
        included.

Differs from spinup/algos/ppo.py by: the mean of a group in place of the value function, one episode
a row with a mask for its end, and how rows are averaged.
"""
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from llm.callables import own_advantage, own_average, own_loss
from llm.config import LearningConfig
from llm.learn import Loss, logp_under, rescored
from llm.policy.generate import Responses
from llm.rollout import contrast, join
from llm.run import Result, Run
from llm.tasks.make import make_task
from llm.tasks.task import Task
from llm.warmup import find_start
from spinup.algos.ppo import clipped_surrogate
from spinup.core.fast.adam import FlatAdam
from spinup.core.kl import k2
from spinup.core.masked import aggregate
from spinup.core.optim import step_size
from spinup.errors import UserError
from spinup.runs.config import Count, Natural, NonNegative, Positive


@dataclass(kw_only=True)
class Config(LearningConfig):
    advantage: Literal["group", "mean"] | Callable = "group"    # mean and deviation of it, or mean
    loss: Literal["clip"] | Callable = "clip"   # of a token; in Python also a function, see above
    average: Literal["sequence", "constant", "token"] | Callable = "sequence"   # weight of a token
    clip_low: Positive = 0.2         # ratios below 1 - this get no gradient that lowers them
    clip_high: Positive = 0.2        # ratios above 1 + this get no gradient that raises them
    draws: Count = 1                 # rollouts at most, until enough groups have differing rewards
    overlong: Natural = 0            # tokens beyond max_tokens, over which a penalty grows to 1
    kl_coef: NonNegative = 0.0       # weight of the KL penalty in the loss
    epochs: Count = 1                # passes over a batch; 1, in 1 minibatch, leaves the ratio at 1
    minibatches: Count = 1           # pieces of a batch, each a gradient step
    lr: Positive = 1e-3              # 3e-4 to 1e-3 for small models, 1e-6 for large ones
    warmup: Natural = 50             # updates until lr is reached; with 10, a third collapsed
    anneal: bool = True              # then it falls linearly to a tenth
    max_grad_norm: Positive = 1.0    # longer gradients are scaled down to this

    LENGTH: ClassVar[str] = "--overlong"

    def __post_init__(self):
        super().__post_init__()
        if self.samples == 1:
            raise UserError("the responses to a prompt are compared with each other, and "
                            "--samples 1 leaves nothing to compare; choose 2 or more")
        if self.minibatches > (most := self.prompts * self.samples):
            raise UserError(f"--minibatches {self.minibatches} is more than the responses of an "
                            f"update, --prompts {self.prompts} x --samples {self.samples} = {most};"
                            f" choose at most {most}")

    def response_tokens(self, task: Task) -> int:
        """`overlong` more than the task allows: DAPO's buffer. A response within the limit of the
        task is not penalised."""
        return super().response_tokens(task) + self.overlong


def centred(rewards: Tensor) -> Tensor:
    """R - mean of its group, `[P, G]`; 0 in a group with zero variance."""
    equal = rewards.amax(1, keepdim=True) == rewards.amin(1, keepdim=True)  # despite rounding
    return torch.where(equal, 0.0, rewards - torch.std_mean(rewards, 1, keepdim=True)[1])


def standardised(rewards: Tensor, eps: float = 1e-4) -> Tensor:
    """(R - mean of its group) / standard deviation of its group, `[P, G]`; 0 in a group with zero
    variance.

    The deviation is the population's: the mean square of a group's advantages is 1 at any G. TRL
    takes the sample's, which makes them sqrt((G - 1) / G) times as large, .935 at G = 8.
    """
    return centred(rewards) / (rewards.std(1, correction=0, keepdim=True) + eps)


def group_advantage(rewards: Tensor, samples: int,
                    advantage: str | Callable = "group") -> Tensor:
    """The advantage of each response, `[P * G]`; the rewards `[P * G]` of a group stand together.

    advantage: a name in `ADVANTAGES`, or a function from rewards `[P, G]` to advantages `[P, G]`.
    """
    groups = rewards.view(-1, samples)
    if callable(advantage):
        return own_advantage(advantage, groups).flatten()
    return ADVANTAGES[advantage](groups).flatten()


def clipped(logp: Tensor, logp_old: Tensor, adv: Tensor, mask: Tensor, cfg: Config) -> Loss:
    """PPO's own loss of each token, `[B, T]`, and its diagnostics."""
    return clipped_surrogate(logp, logp_old, adv, (cfg.clip_low, cfg.clip_high), mask)


def overlong_penalty(lengths: Tensor, limit: int, buffer: int) -> Tensor:
    """0 up to `limit - buffer` tokens, falling to -1 at the limit (DAPO, eq. 13), `[B]`."""
    return -((lengths - (limit - buffer)) / max(1, buffer)).clamp(0, 1) * (buffer > 0)


# Names for `advantage` and `loss`: a new method is one function above and one line here.
ADVANTAGES = {"group": standardised, "mean": centred}
LOSSES = {"clip": clipped}


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with GRPO or a variant. `resume`: the folder of a run of the same settings."""
    # Set up.
    task = make_task(cfg.task, cfg.reward or None)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    optimizer = FlatAdam(run.model.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm,
                         eps=cfg.adam_eps)

    def loss(logp: Tensor, part: Responses, adv: Tensor, logp_ref: Tensor,
             denominator: float) -> Loss:
        if callable(cfg.loss):
            each, stats = own_loss(cfg.loss, logp.shape, logp, part.logp, adv, part.mask,
                                   counted=part.mask)
        else:
            each, stats = LOSSES[cfg.loss](logp, part.logp, adv, part.mask, cfg)  # [B, T]
        if cfg.kl_coef:
            each = each + cfg.kl_coef * k2(logp, logp_ref, part.mask)
        if callable(cfg.average):
            return own_average(cfg.average, each, part.mask, denominator), stats
        return aggregate(each, part.mask, mode=cfg.average, denominator=denominator,
                         length=run.max_tokens), stats

    with run:
        run.keep(model=run.model, optimizer=optimizer)
        for update in run.updates(cfg.total_steps):
            # Collect; with `draws`, again until enough groups have differing rewards.
            drawn, useful = [], 0
            while len(drawn) < cfg.draws and useful < cfg.prompts:
                drawn.append(run.sample(run.problems(cfg.prompts), cfg.samples))
                run.record(drawn[-1])         # before any is left out, or the curve would flatter
                useful += int(contrast(drawn[-1].rewards, cfg.samples).sum())
            batch = rescored(run.model, cfg, join(drawn))
            r, mask = batch.responses, batch.responses.mask
            differ = contrast(batch.rewards, cfg.samples)     # [P], before the penalty (eq. 11)
            rewards = batch.rewards + overlong_penalty(r.lengths, run.max_tokens, cfg.overlong)
            adv = group_advantage(rewards, cfg.samples, cfg.advantage)[:, None]   # [B, 1]

            # A group with zero variance has no gradient but that of the KL penalty. Without one it
            # is left out, but counted: the step must not change. DAPO's batch consists of groups
            # whose rewards differ, and of no more than `prompts` of them.
            unequal = (adv != 0).view(-1, cfg.samples).any(1)
            learns = differ if cfg.draws > 1 else unequal | (cfg.kl_coef > 0)
            rows = learns.repeat_interleave(cfg.samples).nonzero()[:, 0]
            counted = mask
            if cfg.draws > 1:
                rows = rows[:cfg.prompts * cfg.samples]
                counted = mask[rows]
            pieces = min(cfg.minibatches, max(1, len(counted)))
            denominator = (counted.sum() if cfg.average == "token" else len(counted)) / pieces
            logp_ref = logp_under(run.reference, cfg, batch) if cfg.kl_coef else r.logp

            # Update.
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            for _ in range(cfg.epochs if len(rows) else 0):
                order = rows[torch.randperm(len(rows)).to(run.device)]
                for chosen in order.tensor_split(min(cfg.minibatches, len(rows))):
                    optimizer.zero_grad()
                    stats = run.backward(batch, chosen, loss, adv, logp_ref,
                                         denominator=denominator)
                    run.add(grad_norm=optimizer.step(lr), **stats)
            run.add(learning_rate=lr)
        return run.result()
