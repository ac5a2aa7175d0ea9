"""PPO for language models, with a value function: RLHF, and VAPO.

RLHF as in Ziegler et al. (2019, arXiv:1909.08593) and Ouyang et al. (2022, arXiv:2203.02155); VAPO
as in Yue et al. (2025, arXiv:2504.05118).

PPO uses four models: the policy; the reference policy, a frozen copy of the initial policy; the
reward, a verifier or a reward model; and the value function, a copy of the policy or of the reward
model whose head returns one number. Each token is an action:

    r_t  = -beta log( pi_old(y_t | s_t) / pi_ref(y_t | s_t) )
           + [y_t is the last token] R(x, y)                              (Ziegler et al., eq. 2)
    A_t  = GAE of r_t and V(s_t),   gamma = 1
    loss = E[ clipped surrogate of A_t ]  +  E[ (V(s_t) - target_t)^2 / 2 ]

The first term of r_t is the KL penalty of each token. It is part of the reward, so no gradient
flows through it. The KL coefficient beta is fixed, or adapted to a target KL. V starts at 0, so the
first advantages are rewards and not noise. `--end-penalty` penalises a response that is cut off, so
that the policy learns to stop.

VAPO first trains the value function alone, on Monte Carlo returns, and keeps its lambda at 1. The
policy's lambda grows with the length of the response: 1 - 1 / (alpha length). VAPO's clip range is
wider above 1 than below 1, and VAPO also imitates correct responses. With VAPO's alpha of .05, a
response of 20 tokens would have a lambda of 0. Here lambda is at least .9.

PPO-ptx (Ouyang et al. 2022, eq. 2) also imitates demonstrations of another task in each step, with
the weight `ptx_coef`, so that the policy does not forget it. The authors use pretraining data.

Differs from spinup/algos/ppo.py by: one episode per row, with a mask for its end; a reference
policy and a KL penalty; a value function with its own weights; no entropy bonus and no target_kl;
advantages normalised over the batch, not over a minibatch. `clipped_surrogate`, `value_loss` and
`gae` are the same functions that train CartPole.
"""
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from llm.algos.reinforce import token_rewards
from llm.config import EngineConfig
from llm.learn import Loss, backward, importance_weights, in_pieces, logp_under, rescored
from llm.policy.generate import Prompts, Responses
from llm.policy.load import value_body
from llm.policy.scalar import ScalarModel, values
from llm.policy.tokenizer import Tokenizer
from llm.rollout import demonstrated
from llm.run import Result, Run
from llm.start import find_start
from llm.tasks.check import demonstration_of, problems_of
from llm.tasks.make import make_task
from llm.tasks.task import longest_prompt
from llm.tasks.wrappers.wrapper import innermost
from spinup.algos.ppo import clipped_surrogate, value_loss
from spinup.algos.vpg import policy_gradient
from spinup.core.kl import k1
from spinup.core.masked import aggregate, masked_mean, select, whiten
from spinup.core.optim import Latest, step_size
from spinup.core.returns import explained_variance, gae
from spinup.errors import UserError
from spinup.runs import ranks
from spinup.runs.config import Count, Natural, NonNegative, Positive, Size, Unit

LAMBDA = (0.9, 1.0)     # range of VAPO's policy lambda; from 0.5, runs with 7 tokens collapsed
STEP = 0.2              # in an update of beta, the relative error of the KL is clipped to this
RATE = 0.1              # beta changes by this share of that error


@dataclass(kw_only=True)
class Config(EngineConfig):
    samples: Size = 1                # responses per prompt; 1 is enough with a value function
    prompts: Size = 256              # different prompts per update; more: less noise, but slower
    kl_coef: NonNegative = 0.0       # beta, the KL coefficient; .02 to .2 for a learned reward
    kl_target: NonNegative = 0.0     # target KL in nats per response; beta adapts; 0 = fixed beta
    end_penalty: NonNegative = 0.0   # penalty for a cut-off response; about one std of the rewards
    lam: Unit = 0.95                 # lambda of the policy's GAE: 1 = no bias, 0 = least variance
    lam_value: Unit = 0.95           # lambda of the value targets; 1 = Monte Carlo returns
    alpha: NonNegative = 0.0         # sets lam to 1 - 1 / (alpha length), at least .9; 0: fixed lam
    value_warmup: Natural = 0        # first updates, in which only the value function learns
    nll_coef: NonNegative = 0.0      # weight of imitating own responses with a reward of 1 or more
    ptx_coef: NonNegative = 0.0      # weight of imitating demonstrations of ptx_task; 0 = none
    ptx_task: str = ""               # task that the policy should not forget; empty: the run's task
    clip_low: Positive = 0.2         # lower clip limit of the ratio is 1 - clip_low
    clip_high: Positive = 0.2        # upper clip limit of the ratio is 1 + clip_high
    clip_value: NonNegative = 0.0    # clip range of values around the old ones; 0 = no clipping
    epochs: Count = 1                # passes over a batch (1-4)
    minibatches: Count = 4           # minibatches per epoch, one gradient step each
    lr: Positive = 1e-3              # policy's learning rate; small models 3e-4 to 1e-3, large 1e-6
    value_lr: Positive = 2e-3        # value function's learning rate; large models 1e-5
    warmup: Natural = 50             # updates until both rates are reached; with few, runs collapse
    anneal: bool = True              # decay both rates linearly to a tenth over the run
    max_grad_norm: Positive = 1.0    # largest gradient norm; larger gradients are scaled down

    # Policy and value function learn; the reference policy does not.
    MODELS: ClassVar[tuple[int, int]] = (2, 1)
    ONLY_WITH = {"lam": ("alpha", 0)}

    def __post_init__(self):
        super().__post_init__()
        if self.kl_target and not self.kl_coef:
            raise UserError("--kl-target adapts --kl-coef, which is 0; add "
                            "--kl-coef 0.05")
        if self.ptx_task and not self.ptx_coef:
            raise UserError("--ptx-task has no effect, because --ptx-coef is 0; add "
                            "--ptx-coef 1")
        if self.ptx_coef and ranks.wanted(self.workers) > 1:
            raise UserError("--ptx-coef works with one process; leave out --workers, and do not "
                            "start with torchrun")
        if self.value_warmup >= self.total_steps:
            raise UserError(f"--value-warmup {self.value_warmup} leaves no updates for the policy, "
                            f"because --total-steps is {self.total_steps}; lower --value-warmup or "
                            "raise --total-steps")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise UserError if a model cannot read the prompts of `ptx_task`, or if they have no
        demonstrations."""
        if self.ptx_coef:
            reward = None if self.ptx_task else self.given_reward
            other = innermost(make_task(self.ptx_task or self.task, reward))
            longest_prompt(other, tokenizer)
            rng = np.random.default_rng(0)
            demonstration_of(other, problems_of(other, 1, rng)[0], rng)


def following(x: Tensor, mask: Tensor) -> Tensor:
    """Value of the next step in the mask, `[B, T]`: V(s_t+1) from V(s_t); 0 after the last step.

    It skips the tokens of a tool: the next state is the one where the policy chooses its next
    token. x, mask: `[B, T]`.
    """
    T = x.shape[1]
    steps = torch.where(mask > 0, torch.arange(T, device=x.device), T)
    after = torch.cat([steps[:, 1:], torch.full_like(steps[:, :1], T)], 1)
    after = after.flip(1).cummin(1).values.flip(1)            # next step in the mask, for each step
    return torch.cat([x, torch.zeros_like(x[:, :1])], 1).gather(1, after)


def length_adaptive(lengths: Tensor, alpha: float) -> Tensor:
    """VAPO's lambda = 1 - 1 / (alpha length), `[B, 1]` from lengths `[B]`, clipped to `LAMBDA`."""
    return (1 - 1 / (alpha * lengths.float())).clamp(*LAMBDA)[:, None]


def adapted(coef: Tensor, kl: Tensor, target: float) -> Tensor:
    """New beta, `[]`, after a batch with `kl` nats per response (Ziegler et al., section 2.2).

    beta grows if `kl` is above the target. It changes by a tenth of the relative error, which is
    clipped to a fifth.
    """
    return coef * (1 + RATE * (kl / target - 1).clamp(-STEP, STEP))


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with PPO or VAPO. `resume`: folder of a run with the same settings."""
    # Set up.
    task = make_task(cfg.task, cfg.given_reward)
    other = innermost(make_task(cfg.ptx_task) if cfg.ptx_task else task)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    critic = ScalarModel(value_body(run.model, run.tokenizer, task.judge))
    optimizer = run.adam(run.model, lr=cfg.lr, max_grad_norm=cfg.max_grad_norm, eps=cfg.adam_eps)
    value_optimizer = run.adam(critic, lr=cfg.value_lr, max_grad_norm=cfg.max_grad_norm,
                               eps=cfg.adam_eps)
    beta = Latest(coef=torch.tensor(cfg.kl_coef, device=run.device))      # saved with the run

    def loss(logp: Tensor, part: Responses, adv: Tensor, target: Tensor, value_old: Tensor,
             right: Tensor, prompts: Prompts, policy_learns: bool, denominator: Tensor) -> Loss:
        value = values(critic, prompts, part.of, part.ids, part.lengths, cfg.gradient_checkpointing)
        error = value_loss(value, target, old=value_old, clip=cfg.clip_value)
        clip = cfg.clip_low, cfg.clip_high
        each, stats = clipped_surrogate(logp, part.logp, adv, clip, part.mask)
        if cfg.nll_coef:
            each = each + cfg.nll_coef * policy_gradient(logp, right, part.mask)[0]
        stats["value_loss"] = masked_mean(error.detach(), part.mask)
        weight = importance_weights(part, cfg.max_weight) * policy_learns
        each = each * weight + error
        return aggregate(each, part.mask, denominator=denominator), stats

    def imitate(n: int) -> Tensor:
        """Add the gradient of imitating `n` demonstrations, and return the loss, `[]`."""
        problems = problems_of(other, n, run.rng)
        texts = [demonstration_of(other, p, run.rng) for p in problems]
        shown = demonstrated(other, run.tokenizer, run.model, problems, texts, other.max_tokens)
        tokens = shown.responses.mask.sum()

        def nll(logp: Tensor, part: Responses) -> Loss:
            each = policy_gradient(logp, torch.ones_like(logp), part.mask)[0]
            return cfg.ptx_coef * aggregate(each, part.mask, denominator=tokens), {}
        # Not run.backward: demonstrations have no ratio to log.
        loss = backward(run.model, cfg, shown, shown.responses.of, nll)["loss"]
        run.check_finite(ptx_loss=loss)
        return loss

    with run:
        run.keep(model=run.model, critic=critic, optimizer=optimizer,
                 value_optimizer=value_optimizer, beta=beta)
        run.columns("value_loss", "explained_variance", "kl_coef")
        if cfg.ptx_coef:
            run.columns("ptx_loss")
        for update in run.updates(cfg.total_steps):
            # Collect.
            batch = run.sample(run.problems(cfg.prompts), cfg.samples)
            run.record(batch)
            batch = rescored(run.model, cfg, batch)
            r, mask = batch.responses, batch.responses.mask

            # Advantages: GAE of token rewards and values.
            kl = torch.zeros_like(r.logp)                                         # [B, T]
            if cfg.kl_coef:
                kl = k1(r.logp, logp_under(run.reference, cfg, batch), mask)
            scores = batch.rewards - cfg.end_penalty * ~r.finished                # [B]
            rewards, last = token_rewards(scores, kl, beta["coef"], mask)         # [B, T]
            value = in_pieces(cfg, batch, partial(values, critic))                # [B, T]
            lam = length_adaptive(mask.sum(1), cfg.alpha) if cfg.alpha else cfg.lam
            episode = (rewards, select(value, mask), following(value, mask), last,
                       torch.zeros_like(last))
            adv, targets = gae(*episode, gamma=1.0, lam=lam, mask=mask)
            if cfg.lam_value != cfg.lam or cfg.alpha:
                targets = gae(*episode, gamma=1.0, lam=cfg.lam_value, mask=mask)[1]
            if cfg.kl_target and update >= cfg.value_warmup:      # before, the policy is frozen
                beta["coef"] = adapted(beta["coef"], kl.sum(1).mean(), cfg.kl_target)

            # Update policy and value function together, in minibatches.
            adv = whiten(adv, mask)                                               # [B, T]
            right = (batch.rewards >= 1).float()[:, None]                         # [B, 1]
            right = right * mask.sum() / (right * mask).sum().clamp(min=1)        # mean over these
            value_lr = step_size(cfg.value_lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            begun = update - cfg.value_warmup                 # the policy's warmup starts at 0
            policy_learns = begun >= 0
            lr = step_size(cfg.lr, begun, cfg.total_steps - cfg.value_warmup, cfg.warmup,
                           cfg.anneal) * policy_learns
            for _ in range(cfg.epochs):
                order = torch.randperm(len(mask)).to(run.device)
                for chosen in order.tensor_split(min(cfg.minibatches, len(order))):
                    optimizer.zero_grad()
                    value_optimizer.zero_grad()
                    stats = run.backward(batch, chosen, loss, adv, targets, value, right,
                                         prompts=batch.prompts, policy_learns=policy_learns,
                                         denominator=mask[chosen].sum())
                    if cfg.ptx_coef and policy_learns:
                        run.add(ptx_loss=imitate(len(chosen)))
                    value_optimizer.step(value_lr)
                    run.add(grad_norm=optimizer.step(lr) if policy_learns else 0.0, **stats)
            explained = explained_variance(value, targets, mask)
            run.add(learning_rate=lr, explained_variance=explained, kl_coef=beta["coef"])
        return run.result()
