"""Group relative policy optimization: GRPO and the methods that change one part of it.

GRPO: Shao et al. 2024, arXiv:2402.03300. Dr. GRPO: Liu et al. 2025, arXiv:2503.20783. DAPO: Yu et
al. 2025, arXiv:2503.14476. Magistral: Mistral AI 2025, arXiv:2506.10910. GSPO, CISPO and SAPO: see
`llm.losses`.

GRPO is PPO without a value function. The G responses to one prompt form a group, and the group
provides the baseline:

    GRPO       A_i = (R_i - mean of its group) / standard deviation of its group  (section 4.1.2)
    Dr. GRPO   A_i =  R_i - mean of its group
    Magistral  A_i = (R_i - mean of its group) / standard deviation of these differences in the
               batch (the paper: in the minibatch)

R_i is the reward of response i. Every token of response i has the advantage A_i. The loss function
is PPO's own, `spinup.algos.ppo.clipped_surrogate`; GSPO, CISPO and SAPO replace it. The methods
also differ in the weight of each token:

    GRPO       1 / (response length * responses) long wrong responses cost little, so lengths grow
    Dr. GRPO   1 / (longest length * responses)  equal for all tokens of all updates
    DAPO       1 / all tokens of the update      (its formula: of the group)
    Magistral  1 / (mean length of its group * responses)     equal for all tokens of a group

DAPO's clip range is wider above 1 than below 1, so rare tokens can still become likely. DAPO
samples new prompts to replace groups with equal rewards. It also penalises responses close to the
length limit. Magistral also clips higher and drops groups with equal rewards.
GRPO's KL penalty is off by default, as in most later work. `--kl-coef` adds it to the loss of each
token, with the estimator k2 in place of the paper's k3 (see `spinup.core.kl`). In the first
gradient step of a batch, its gradient is an unbiased estimate for the KL of each next token. It
ignores how a token changes the KL of later tokens. Later gradient steps are not corrected.

In Python, `advantage`, `loss` and `average` may be your own functions:

    advantage(rewards [P, G]) -> [P, G]
    loss(logp [B, T], logp_old [B, T], adv [B, 1], mask [B, T]) -> [B, T],
        or ([B, T], {"column": number}); column must be a name that the run does not use
    average(loss [B, T], mask [B, T]) -> the sum over these rows, which are one micro-batch. The
        sum is divided by the number of responses of the optimiser step. Groups with zero variance
        count too, unless `--max-rollouts` is above 1.

Differs from spinup/algos/ppo.py by: the group mean in place of the value function, one episode per
row with a mask for its end, and the average over rows.
"""
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from llm.callables import own_advantage, own_average, own_loss
from llm.config import EngineConfig, GroupConfig
from llm.learn import Loss, importance_weights, logp_under, rescored
from llm.losses import gated_surrogate, sequence_surrogate, weighted_policy_gradient
from llm.policy.generate import Responses
from llm.rollout import join, varied
from llm.run import Result, Run
from llm.start import find_start
from llm.tasks.make import make_task
from llm.tasks.task import Task
from spinup.algos.ppo import clipped_surrogate
from spinup.core.kl import k2
from spinup.core.masked import aggregate
from spinup.core.optim import step_size
from spinup.errors import UserError
from spinup.runs.config import Count, Natural, NonNegative, Positive

Advantage = Literal["group", "mean", "batch"]
LossName = Literal["clip", "sequence", "weight", "gate"]
Average = Literal["sequence", "constant", "token", "group"]


@dataclass(kw_only=True)
class Config(GroupConfig, EngineConfig):
    advantage: Advantage | Callable = "group"  # group, batch: divide by its std; mean: no division
    loss: LossName | Callable = "clip"        # clip: PPO; sequence: GSPO; weight: CISPO; gate: SAPO
    average: Average | Callable = "sequence"  # sequence, constant (Dr. GRPO), token (DAPO) or group
    clip_low: Positive = 0.2         # lower clip limit of the ratio is 1 - clip_low
    clip_high: Positive = 0.2        # upper clip limit of the ratio is 1 + clip_high
    tau_pos: Positive = 1.0          # SAPO's tau if adv > 0; larger: less gradient far from ratio 1
    tau_neg: Positive = 1.05         # SAPO's tau if adv <= 0; larger, as these gradients add noise
    max_rollouts: Count = 1          # maximum rollouts per update, to find unequal groups
    overlong: Natural = 0            # extra tokens after max_tokens; the penalty grows to 1 there
    kl_coef: NonNegative = 0.0       # KL coefficient: weight of the KL penalty in the loss
    epochs: Count = 1                # passes over a batch; 1 pass and 1 minibatch: ratios are 1
    lr: Positive = 1e-3              # peak learning rate; small models 3e-4 to 1e-3, large 1e-6

    LENGTH: ClassVar[str] = "--overlong"
    ONLY_WITH = {"tau_pos": ("loss", "gate"), "tau_neg": ("loss", "gate")}

    def __post_init__(self):
        super().__post_init__()
        if self.loss == "sequence" and self.average in get_args(Average)[1:]:
            raise UserError("--loss sequence has one ratio per response, so each response must "
                            f"have the same weight; choose --average sequence, not {self.average}")

    @property
    def limits(self) -> tuple[float, float]:
        """Two numbers of the loss function: the clip range, or the temperatures of SAPO's gate."""
        gate = self.loss == "gate"
        return (self.tau_pos, self.tau_neg) if gate else (self.clip_low, self.clip_high)

    def response_tokens(self, task: Task) -> int:
        """Longest response: the task's limit plus `overlong`, the buffer of DAPO. A response within
        the task's limit gets no penalty."""
        return super().response_tokens(task) + self.overlong


def centred(rewards: Tensor) -> Tensor:
    """Reward minus the group mean, `[P, G]`; 0 in a group with zero variance."""
    equal = rewards.amax(1, keepdim=True) == rewards.amin(1, keepdim=True)  # despite rounding
    return torch.where(equal, 0.0, rewards - torch.std_mean(rewards, 1, keepdim=True)[1])


def standardised(rewards: Tensor, eps: float = 1e-4) -> Tensor:
    """(R - group mean) / group standard deviation, `[P, G]`; 0 in a group with zero variance.

    It uses the population standard deviation: the mean square of a group's advantages is 1 for
    every G. TRL uses the sample standard deviation. Its advantages are smaller by a factor of
    sqrt((G - 1) / G), .935 at G = 8.
    """
    return centred(rewards) / (rewards.std(1, correction=0, keepdim=True) + eps)


def batch_standardised(rewards: Tensor, eps: float = 1e-4) -> Tensor:
    """(R - group mean) / standard deviation of these differences, `[P, G]` (Magistral, section 2).

    The deviation is that of all rollouts of the update. Groups with zero variance do not count in
    it: Magistral leaves them out of the batch.
    """
    adv = centred(rewards)
    counted = (adv != 0).any(1).sum() * adv.shape[1]
    return adv / ((adv.square().sum() / counted.clamp(min=1)).sqrt() + eps)


def group_advantage(rewards: Tensor, samples: int,
                    advantage: str | Callable = "group") -> Tensor:
    """Advantage of each response, `[P * G]`; the rewards `[P * G]` of a group must be adjacent.

    advantage: a name in `ADVANTAGES`, or a function from rewards `[P, G]` to advantages `[P, G]`.
    """
    groups = rewards.view(-1, samples)
    if callable(advantage):
        return own_advantage(advantage, groups).flatten()
    return ADVANTAGES[advantage](groups).flatten()


def group_lengths(mask: Tensor, samples: int) -> Tensor:
    """Mean number of tokens of each row's group, `[B, 1]`, at least 1. mask: `[B, T]`."""
    mean = mask.sum(1).view(-1, samples).mean(1).clamp(min=1)
    return mean.repeat_interleave(samples)[:, None]


def overlong_penalty(lengths: Tensor, limit: int, buffer: int) -> Tensor:
    """Penalty for long responses, `[B]` (DAPO, eq. 13).

    0 up to `limit - buffer` tokens, then a linear fall to -1 at `limit`.
    """
    return -((lengths - (limit - buffer)) / max(1, buffer)).clamp(0, 1) * (buffer > 0)


# Names for `advantage` and `loss`: for a new method, add one function above and one line here.
ADVANTAGES = {"group": standardised, "mean": centred, "batch": batch_standardised}
LOSSES = {"clip": clipped_surrogate, "sequence": sequence_surrogate,
          "weight": weighted_policy_gradient, "gate": gated_surrogate}


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with GRPO or a variant. `resume`: folder of a run with the same settings."""
    # Set up.
    task = make_task(cfg.task, cfg.given_reward)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    optimizer = run.adam(run.model, lr=cfg.lr, max_grad_norm=cfg.max_grad_norm, eps=cfg.adam_eps)

    def loss(logp: Tensor, part: Responses, adv: Tensor, logp_ref: Tensor, lengths: Tensor,
             denominator: float) -> Loss:
        if callable(cfg.loss):
            each, stats = own_loss(cfg.loss, logp.shape, logp, part.logp, adv, part.mask,
                                   counted=part.mask)
        else:
            each, stats = LOSSES[cfg.loss](logp, part.logp, adv, cfg.limits, part.mask)   # [B, T]
        if cfg.kl_coef:
            each = each + cfg.kl_coef * k2(logp, logp_ref, part.mask)
        each = each * importance_weights(part, cfg.max_weight, whole=cfg.loss == "sequence")
        if callable(cfg.average):
            return own_average(cfg.average, each, part.mask, denominator), stats
        mode, length = cfg.average, run.max_tokens
        if mode == "group":
            each, mode, length = each / lengths, "constant", 1
        return aggregate(each, part.mask, mode=mode, denominator=denominator, length=length), stats

    with run:
        run.keep(model=run.model, optimizer=optimizer)
        for update in run.updates(cfg.total_steps):
            # Collect; with `max_rollouts`, repeat until enough groups have unequal rewards.
            drawn, useful = [], 0
            while len(drawn) < cfg.max_rollouts and useful < cfg.prompts:
                drawn.append(run.sample(run.problems(cfg.prompts), cfg.samples))
                run.record(drawn[-1])         # before groups are dropped: else the log is biased
                useful += int(varied(drawn[-1].rewards, cfg.samples).sum())
            once = cfg.epochs == cfg.minibatches == 1
            batch = rescored(run.model, cfg, join(drawn), once)
            r, mask = batch.responses, batch.responses.mask
            differ = varied(batch.rewards, cfg.samples)     # [P], before the penalty (eq. 11)
            rewards = batch.rewards + overlong_penalty(r.lengths, run.max_tokens, cfg.overlong)
            adv = group_advantage(rewards, cfg.samples, cfg.advantage)[:, None]   # [B, 1]

            # A group with zero variance has a gradient only from the KL penalty. Without a KL
            # penalty, skip the group but count its tokens, so that the step does not change.
            # DAPO's batch has at most `prompts` groups, all with unequal rewards.
            unequal = (adv != 0).view(-1, cfg.samples).any(1)
            learns = differ if cfg.max_rollouts > 1 else unequal | (cfg.kl_coef > 0)
            rows = learns.repeat_interleave(cfg.samples).nonzero()[:, 0]
            counted = mask
            if cfg.max_rollouts > 1:
                rows = rows[:cfg.prompts * cfg.samples]
                counted = mask[rows]
            pieces = min(cfg.minibatches, max(1, len(rows)))
            denominator = (counted.sum() if cfg.average == "token" else len(counted)) / pieces
            logp_ref = logp_under(run.reference, cfg, batch) if cfg.kl_coef else r.logp
            lengths = group_lengths(mask, cfg.samples)                            # [B, 1]

            # Update.
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            for _ in range(cfg.epochs if len(rows) else 0):
                order = rows[torch.randperm(len(rows)).to(run.device)]
                for chosen in order.tensor_split(pieces):
                    optimizer.zero_grad()
                    stats = run.backward(batch, chosen, loss, adv, logp_ref, lengths,
                                         denominator=denominator)
                    run.add(grad_norm=optimizer.step(lr), **stats)
            run.add(learning_rate=lr)
        return run.result()
