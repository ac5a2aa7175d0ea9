"""REINFORCE for language models (Williams 1992), with four choices of baseline.

A prompt is the first state, a token is an action, and a response is an episode. The reward comes at
the end. The methods differ in their baseline:

    REINFORCE     A_i = R_i - running mean of R                       (Williams 1992, section 4)
    RLOO          A_i = R_i - mean R of the other responses to the prompt
                                                                         (Ahmadian et al. 2024)
    ReMax         A_i = R_i - R(the greedy response to the prompt)
                                                                  (Li et al. 2024, algorithm 1)
    REINFORCE++   A_t = z-score over all tokens of
                        R_i - beta sum over l >= t of log(pi / pi_ref)        (Hu et al. 2025)

The first three baselines do not change the expected gradient of a sum over responses. Here the loss
is this sum divided by the number of tokens in the update. The papers divide by the number of
responses. REINFORCE++ centres and scales by batch statistics. `--kl-coef` is beta, the KL
coefficient. The first three methods subtract the KL penalty beta log(pi / pi_ref) of a response
from its R_i, also where R_i is part of a baseline. The greedy reward of ReMax has no penalty.
REINFORCE++ subtracts the sum above.

`--teacher` replaces the rewards with the log ratio to a teacher with the same tokenizer:

    A_t = log pi_teacher(y_t | s_t) - log pi(y_t | s_t) - running mean of this difference

This is on-policy distillation (Agarwal et al. 2024, GKD with the reverse KL; Lu and Thinking
Machines Lab 2025). The expected gradient is that of KL(pi || pi_teacher) of the next token, in the
states of the policy's own responses.

Differs from spinup/algos/vpg.py by: one episode per row, with a mask for its end, and a baseline in
place of a value function. The loss is `policy_gradient`, the same function that trains CartPole.
Published REINFORCE++ also clips a ratio. With one update per batch this ratio is 1.
"""
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor

from llm.config import EngineConfig
from llm.learn import Loss, importance_weights, logp_under, rescored
from llm.policy.generate import Responses
from llm.policy.load import load_model, on_device, vocabulary
from llm.policy.tokenizer import Tokenizer
from llm.run import Result, Run
from llm.start import find_start
from llm.tasks.make import make_task
from spinup.algos.vpg import policy_gradient
from spinup.core.kl import k1, k3
from spinup.core.masked import aggregate, masked_mean, select, whiten
from spinup.core.optim import Latest, step_size
from spinup.core.returns import discounted
from spinup.errors import UserError
from spinup.runs.config import NonNegative, Positive, Range

Decay = Annotated[float, Range(0.0, 0.999)]       # 1 would keep the mean of the first batch


@dataclass(kw_only=True)
class Config(EngineConfig):
    baseline: Literal["mean", "others", "greedy", "batch"] = "mean"  # mean: running mean of R
    memory: Decay = 0.9              # decay per update of the running mean, for the baseline mean
    kl_coef: NonNegative = 0.0       # beta, the KL coefficient; .02 to .2 for a learned reward
    teacher: str = ""                # teacher of on-policy distillation; replaces rewards
    lr: Positive = 1e-3              # peak learning rate; small models 3e-4 to 1e-3, large 1e-6

    ONLY_WITH = {"memory": ("baseline", "mean")}

    def __post_init__(self):
        super().__post_init__()
        if self.baseline == "others" and self.samples == 1:
            raise UserError("the baseline is the mean reward of the other responses to the prompt, "
                            "and --samples 1 gives none; choose 2 or more")
        if self.teacher and (self.kl_coef or self.baseline != "mean"):
            raise UserError("--teacher replaces the rewards and the KL penalty; use it with "
                            "reinforce, and leave out --baseline and --kl-coef")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise UserError if the tokens of the teacher differ from those of the policy."""
        known = vocabulary(load_model(self.teacher).tokenizer if self.teacher else tokenizer)
        if known != vocabulary(tokenizer):
            raise UserError(f"the tokens of --teacher {self.teacher} differ from those of the "
                            "policy; choose a teacher with the same tokenizer")


def leave_one_out(rewards: Tensor, samples: int) -> Tensor:
    """Reward minus the mean of the group's other rewards, `[P * G]`; a group's rows are adjacent.

    Return 0 for groups of one, and exactly 0 if all rewards of a group are equal.
    """
    groups = rewards.view(-1, samples)
    others = (groups.sum(1, keepdim=True) - groups) / max(1, samples - 1)
    equal = groups.amax(1, keepdim=True) == groups.amin(1, keepdim=True)  # remove rounding errors
    return torch.where(equal, 0.0, groups - others).flatten()


def token_rewards(rewards: Tensor, kl: Tensor, coef: float,
                  mask: Tensor) -> tuple[Tensor, Tensor]:
    """Reward of each token, `[B, T]`, and a mask of the last token per row, `[B, T]` bool.

    The last token of the mask gets the reward of the response, `[B]`. Every token gets a KL
    penalty, `coef` times its `kl` `[B, T]`.
    """
    last = (mask.flip(1).cumsum(1).flip(1) == 1) & (mask > 0)
    return select(torch.where(last, rewards[:, None], 0.0) - coef * kl, mask), last


def running_mean(stats: Latest, now: Tensor, memory: float) -> Tensor:
    """Add the batch mean `now`, `[]`, to the exponential moving average in `stats`. Return the
    average before this call; at the first call, return `now`."""
    before = torch.where(stats["average"].isnan(), now, stats["average"])
    stats["average"] = torch.lerp(now, before, memory)
    return before


def reward_to_go(rewards: Tensor, kl: Tensor, coef: float, mask: Tensor) -> Tensor:
    """Return-to-go of each token, `[B, T]`: the sum of `token_rewards` from this token on."""
    each, last = token_rewards(rewards, kl, coef, mask)
    return discounted(each, last, torch.zeros_like(last), gamma=1.0, mask=mask)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with a REINFORCE method. `resume`: folder of a run with the same settings."""
    # Set up.
    task = make_task(cfg.task, cfg.given_reward)
    start = find_start(cfg, task, resume)
    teacher = on_device(load_model(cfg.teacher), cfg).model if cfg.teacher else None
    run = Run(cfg, task, start, resume)
    if teacher is not None:
        run.depend_on("the teacher", teacher)
    optimizer = run.adam(run.model, lr=cfg.lr, max_grad_norm=cfg.max_grad_norm, eps=cfg.adam_eps)
    expected = Latest(average=torch.tensor(math.nan, device=run.device))  # saved with the run

    def loss(logp: Tensor, part: Responses, adv: Tensor, denominator: Tensor) -> Loss:
        each, stats = policy_gradient(logp, adv, part.mask)
        each = each * importance_weights(part, cfg.max_weight)
        return aggregate(each, part.mask, denominator=denominator), stats

    with run:
        run.keep(model=run.model, optimizer=optimizer, expected=expected)
        if teacher is not None:
            run.columns("kl_to_teacher")
        for update in run.updates(cfg.total_steps):
            # Collect.
            batch = run.sample(run.problems(cfg.prompts), cfg.samples)
            run.record(batch)
            batch = rescored(run.model, cfg, batch, once=not (cfg.kl_coef or cfg.teacher))
            r, rewards, mask = batch.responses, batch.rewards, batch.responses.mask

            # Advantages, with the KL penalty: per token for the batch baseline, else per response.
            kl = torch.zeros_like(r.logp)                                         # [B, T]
            if cfg.kl_coef:
                kl = k1(r.logp, logp_under(run.reference, cfg, batch), mask)
            if cfg.baseline != "batch":
                rewards = rewards - cfg.kl_coef * kl.sum(1)
            if teacher is not None:
                logp_teacher = logp_under(teacher, cfg, batch)
                adv = k1(logp_teacher, r.logp, mask)                              # [B, T]
                before = running_mean(expected, masked_mean(adv, mask), cfg.memory)
                adv = select(adv - before, mask)
                run.add(kl_to_teacher=masked_mean(k3(r.logp, logp_teacher, mask), mask))
            elif cfg.baseline == "others":
                adv = leave_one_out(rewards, cfg.samples)[:, None]                # [B, 1]
            elif cfg.baseline == "greedy":
                greedy = run.sample(batch.problems, greedy=1)
                run.add(tokens=greedy.responses.lengths.sum())            # for the speed
                adv = (rewards - greedy.rewards[r.of])[:, None]
            elif cfg.baseline == "batch":
                shifted = rewards - rewards.min()     # else whitening scales up rounding errors
                adv = whiten(reward_to_go(shifted, kl, cfg.kl_coef, mask), mask)  # [B, T]
            else:
                adv = (rewards - running_mean(expected, rewards.mean(), cfg.memory))[:, None]

            # Update: one step only, because the gradient is valid for this policy only.
            rows = (adv != 0).any(1).nonzero()[:, 0]  # others have no gradient, but still count
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            if len(rows):
                optimizer.zero_grad()
                stats = run.backward(batch, rows, loss, adv, denominator=mask.sum())
                run.add(grad_norm=optimizer.step(lr), **stats)
            run.add(learning_rate=lr)
        return run.result()
