"""PPO for language models, with a value function: RLHF as in Ziegler et al. (2019, arXiv:1909.08593) and Ouyang et al.
(2022, arXiv:2203.02155), and VAPO (Yue et al. 2025, arXiv:2504.05118).

Four models: the policy; the reference, which is the policy as it was; the reward, a verifier or a model of what people
prefer; and the value function, a copy of one of these with a number for a head. A token is an action:

    r_t = -beta log( pi_old(y_t | s_t) / pi_ref(y_t | s_t) ) + [y_t is the last token] R(x, y)   (Ziegler et al., eq. 2)
    A_t = GAE of r_t and V(s_t),   gamma = 1
    loss = E[ clipped surrogate of A_t ]  +  E[ (V(s_t) - target_t)^2 / 2 ]

The first is the price of going away, paid where it arises; as a part of the reward it is a number, and has no gradient
of its own. beta is fixed, or follows a divergence that is asked for. V is 0 at first, so that the first advantages are
rewards and not noise. A response that is cut off pays for it, or the policy would learn that it need not stop.

VAPO lets the value function learn alone at first, from whole returns; gives it a lambda of 1 for good, and the policy
one that grows with the length of the response, 1 - 1 / (alpha length); clips higher above than below; and imitates what
was right besides. With an alpha of .05 a response of 20 tokens would have a lambda of 0: here it is at least .9.

Differs from spinup/algos/ppo.py by: one episode a row, with a mask for its end; the reference, and the price of leaving
it; a value function with its own weights. The losses, `clipped_surrogate` and `value_loss`, and `gae`, are CartPole's.
"""
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from llm.algos.reinforce import token_rewards
from llm.config import LearningConfig
from llm.learn import Loss, reference_logp
from llm.policy.generate import Prompts, Responses
from llm.policy.load import value_body
from llm.policy.scalar import ScalarModel, values
from llm.run import Result, Run
from llm.tasks.make import make_task
from llm.warmup import find_start
from spinup.algos.ppo import clipped_surrogate, value_loss
from spinup.algos.vpg import policy_gradient
from spinup.core.fast.adam import FlatAdam
from spinup.core.kl import k1
from spinup.core.masked import aggregate, masked_mean, select, whiten
from spinup.core.optim import step_size
from spinup.core.returns import gae
from spinup.errors import UserError
from spinup.runs.config import Count, Natural, NonNegative, Positive, Unit

METHODS = {"ppo": {}, "vapo": {"value_first": 20, "lam_value": 1.0, "alpha": 0.05, "clip_high": 0.28, "imitate": 0.1}}
LAMBDA = (0.9, 1.0)     # of the policy where it depends on the length; with 0.5 answers of 7 tokens collapsed
STEP = 0.2              # relative error of the divergence that counts at most, in an update of the price
RATE = 0.1              # share of it by which the price then changes


@dataclass(kw_only=True)
class Config(LearningConfig):
    samples: Count = 1                   # responses to each prompt; the value function is what they are compared with
    prompts: Count = 256                 # different prompts in an update; more are less noise, and take longer
    kl_coef: NonNegative = 0.0           # beta: the price of a nat away from the start; .02 to .2 with a learned reward
    kl_target: NonNegative = 0.0         # nats a response that beta is to lead to; 0 leaves beta as it is
    end_penalty: NonNegative = 0.0       # what a response pays that was cut off at max_tokens; about 1 deviation
    lam: Unit = 0.95                     # of the policy: 1 trusts rewards alone, 0 the value function
    lam_value: Unit = 0.95               # of the value function's own targets; 1 means whole returns
    alpha: NonNegative = 0.0             # lam grows with the length of a response, 1 - 1 / (alpha length); 0: it is lam
    value_first: Natural = 0             # updates of the value function alone, before the policy moves
    imitate: NonNegative = 0.0           # weight of imitating one's own responses that earn 1 or more
    clip_low: Positive = 0.2             # below 1 - this, a step that already fell gets no more gradient
    clip_high: Positive = 0.2            # above 1 + this, a step that already rose gets no more gradient
    clip_value: NonNegative = 0.0        # how far a value may move in one update; 0 = any distance
    epochs: Count = 1                    # passes over a batch (1-4)
    minibatches: Count = 4               # pieces of a batch, each a gradient step
    lr: Positive = 1e-3                  # of the policy; 3e-4 to 1e-3 for small models, 1e-6 for large ones
    value_lr: Positive = 2e-3            # of the value function, which may be quicker; 1e-5 for large ones
    warmup: Natural = 50                 # updates in which both grow to that; the policy collapses where it is short
    anneal: bool = True                  # then they fall linearly to a tenth
    max_grad_norm: Positive = 1.0        # longer gradients are scaled down to this

    def __post_init__(self):
        super().__post_init__()
        if self.kl_target and not self.kl_coef:
            raise UserError("--kl-target needs a price to begin with, which it then adapts; add --kl-coef 0.05")
        if self.value_first >= self.total_steps:
            raise UserError(f"--value-first {self.value_first} leaves the policy none of --total-steps "
                            f"{self.total_steps}; choose fewer of the former, or more of the latter")


def following(x: Tensor, mask: Tensor) -> Tensor:
    """Of each step that counts, `x` `[B, T]` of the next one that does: what a tool wrote is between; 0 after the
    last. This is V(s_t+1) from V(s_t), for the state after a token is that in which the next is chosen."""
    T = x.shape[1]
    steps = torch.where(mask > 0, torch.arange(T, device=x.device), T)
    after = torch.cat([steps[:, 1:], torch.full_like(steps[:, :1], T)], 1)
    after = after.flip(1).cummin(1).values.flip(1)                        # the first that counts behind each
    return torch.cat([x, torch.zeros_like(x[:, :1])], 1).gather(1, after)


def length_adaptive(lengths: Tensor, alpha: float) -> Tensor:
    """lambda = 1 - 1 / (alpha length) (VAPO), `[B, 1]` from `[B]`, within `LAMBDA`."""
    return (1 - 1 / (alpha * lengths.float())).clamp(*LAMBDA)[:, None]


def adapted(coef: Tensor, kl: Tensor, target: float) -> Tensor:
    """The price, `[]`, after a batch that was `kl` nats a response away, where `target` is wanted (Ziegler et al.,
    section 2.2): dearer where it was farther, by a tenth of the relative error, which counts for no more than a fifth.
    """
    return coef * (1 + RATE * (kl / target - 1).clamp(-STEP, STEP))


def train(cfg: Config, resume: str | Path | None = None, method: str = "ppo") -> Result:
    """Train a policy with PPO or VAPO. `resume`: the folder of a run of the same settings to go on with."""
    # Set up.
    task = make_task(cfg.task, cfg.reward or None)
    run = Run(method, cfg, task, find_start(cfg, task, resume), resume)
    critic = ScalarModel(value_body(run.model, run.tokenizer, task.judge))
    optimizer = FlatAdam(run.model.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm)
    value_optimizer = FlatAdam(critic.parameters(), lr=cfg.value_lr, max_grad_norm=cfg.max_grad_norm)
    price = torch.nn.Module()
    price.register_buffer("coef", torch.tensor(cfg.kl_coef, device=run.device))

    def loss(logp: Tensor, part: Responses, adv: Tensor, target: Tensor, before: Tensor, right: Tensor,
             prompts: Prompts, moves: bool) -> Loss:
        value = values(critic, prompts, part.of, part.ids, cfg.checkpointing)                # [m, T]
        error = value_loss(value, target, old=before, clip=cfg.clip_value)
        each, stats = clipped_surrogate(logp, part.logp, adv, (cfg.clip_low, cfg.clip_high), part.mask)
        if cfg.imitate:
            each = each + cfg.imitate * policy_gradient(logp, right, part.mask)[0]
        stats["value_loss"] = masked_mean(error.detach(), part.mask)
        return aggregate(each * moves + error, part.mask, denominator=tokens), stats

    with run:
        run.keep(model=run.model, critic=critic, optimizer=optimizer, value_optimizer=value_optimizer, price=price)
        run.columns("value_loss", "explained_variance", "kl_coef")
        for update in run.updates(cfg.total_steps):
            # Collect.
            batch = run.sample(run.problems(cfg.prompts), cfg.samples)
            run.record(batch)
            r, mask = batch.responses, batch.responses.mask

            # Evaluate: what each token earned, and what was expected of it.
            kl = torch.zeros_like(r.logp)                                                    # [B, T]
            if cfg.kl_coef:
                kl = k1(r.logp, reference_logp(run.reference, cfg, batch), mask)
            scores = batch.rewards - cfg.end_penalty * ~r.finished                                         # [B]
            rewards, last = token_rewards(scores, kl, price.coef, mask)                                    # [B, T]
            with torch.no_grad():
                value = values(critic, batch.prompts, r.of, r.ids)                                         # [B, T]
            lam = length_adaptive(mask.sum(1), cfg.alpha) if cfg.alpha else cfg.lam
            episode = (rewards, select(value, mask), following(value, mask), last, torch.zeros_like(last))
            adv, targets = gae(*episode, gamma=1.0, lam=lam, mask=mask)
            if cfg.lam_value != cfg.lam or cfg.alpha:
                targets = gae(*episode, gamma=1.0, lam=cfg.lam_value, mask=mask)[1]
            if cfg.kl_target:
                price.coef.copy_(adapted(price.coef, kl.sum(1).mean(), cfg.kl_target))

            # Update policy and value function together, in pieces.
            adv, right = whiten(adv, mask), (batch.rewards >= 1).float()[:, None]            # [B, T], [B, 1]
            right = right * mask.sum() / (right * mask).sum().clamp(min=1)                   # its mean, not that of all
            value_lr = step_size(cfg.value_lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            begun = update - cfg.value_first                  # the policy begins slowly, whenever it begins
            lr = step_size(cfg.lr, begun, cfg.total_steps - cfg.value_first, cfg.warmup, cfg.anneal) * (begun >= 0)
            for _ in range(cfg.epochs):
                order = torch.randperm(len(mask)).to(run.device)
                for chosen in order.tensor_split(min(cfg.minibatches, len(order))):
                    tokens = mask[chosen].sum()
                    optimizer.zero_grad()
                    value_optimizer.zero_grad()
                    stats = run.backward(batch, chosen, loss, adv, targets, value, right, prompts=batch.prompts,
                                         moves=begun >= 0)
                    value_optimizer.step(value_lr)
                    run.add(grad_norm=optimizer.step(lr) if begun >= 0 else 0.0, **stats)
            missed, spread = ((targets - x)[mask > 0].var(correction=0) for x in (value, 0.0))
            explained = 1 - missed / spread if spread > 1e-6 else 0.0     # of nothing there is nothing to explain
            run.add(learning_rate=lr, explained_variance=explained, kl_coef=price.coef)
        return run.result()
