"""Curiosity for language models: GRPO with an intrinsic reward for responses that are new.

Three intrinsic rewards:

    rnd        || f^(h) - f(h) ||^2 / (2 k)  f is random and fixed, with k features; f^ learns to
               predict it; h is the hidden state of the frozen initial policy after the last token
               of the response  (Burda et al. 2018, "Exploration by random network distillation",
               arXiv:1810.12894)
    entropy    -log pi(y | x) / |y|  an entropy bonus: the mean over tokens; |y| is their number
    surprisal  -log pi(y | x)        its expectation is the entropy of whole responses; long
               responses have more of it

The error of f^ is large where f^ has not been trained: at responses unlike those before. Hong et
al. 2024, "Curiosity-driven red-teaming for large language models", arXiv:2402.19464, also add
novelty rewards to a language model's reward, from text similarity.

The reward R and the intrinsic reward I of a response ("bonus" in flags and columns) are two
streams. Each has its own baseline, the mean of the group of G responses to the prompt:

    A = c_r A^r + c_i A^i,                                                          (RND, sec. 2.3)
    A^r = (R - mean R) / std R,   A^i = max(0, I - mean I) / running std of I   for rnd,
                                  A^i = I - mean I                      for entropy and surprisal
    loss = -E[ min( r A, clip(r, 1 - c, 1 + c) A ) ] + beta k2(pi, pi_init)

A known response has A^i = 0, so its probability does not fall: new responses may begin with the
same tokens. `--kl-coef` is beta. If the initial policy is uniform, the KL penalty is an entropy
bonus: it keeps up the probability of tokens that have not led to a new response yet.

Differs from spinup/algos/curiosity.py by: the intrinsic reward comes once, at the last token; group
means replace both value functions; only novelty above the mean counts; intrinsic returns end with
the response, because the next prompt does not follow from it. With c_i = 0 and c_r = 1 it is GRPO.
`prediction_error` and `combined_advantage` are the same functions.
"""
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from llm.algos.grpo import centred, group_advantage
from llm.config import GroupConfig
from llm.learn import SCORED, Loss, logp_under, rescored
from llm.policy.generate import Responses
from llm.policy.score import read
from llm.policy.transformer import Transformer
from llm.rollout import Batch
from llm.run import Result, Run
from llm.start import find_start
from llm.tasks.make import make_task
from spinup.algos.curiosity import combined_advantage, prediction_error
from spinup.algos.ppo import clipped_surrogate
from spinup.core.fast.adam import FlatAdam
from spinup.core.fast.linear import relu_mlp
from spinup.core.kl import k2
from spinup.core.masked import aggregate, select
from spinup.core.normaliser import Normaliser, ReturnScaler
from spinup.core.optim import step_size
from spinup.runs.config import Count, NonNegative, Positive, Share, Size, Widths


@dataclass(kw_only=True)
class Config(GroupConfig):
    bonus: Literal["rnd", "entropy", "surprisal"] = "rnd"     # kind of intrinsic reward
    reward_coef: NonNegative = 2.0   # c_r, weight of the reward; 0 = intrinsic reward only
    bonus_coef: NonNegative = 1.0    # c_i, weight of the intrinsic reward; 0 and c_r = 1: GRPO
    advantage: Literal["group", "mean"] = "group"   # mean: not divided by the std of the group
    feature_size: Size = 64          # number of random features that the predictor must predict
    feature_hidden: Widths = (128,)  # hidden layers of the random and of the prediction network
    bonus_lr: Positive = 1e-3        # predictor learning rate; too large: novelty fades too early
    bonus_share: Share = 1.0         # predictor's share of responses; less: novelty fades later
    bonus_steps: Count = 1           # predictor steps per policy step; more: novelty fades faster
    kl_coef: NonNegative = 0.0       # KL coefficient; keeps tokens whose novelty faded
    clip_low: Positive = 0.2         # lower clip limit of the ratio is 1 - clip_low
    clip_high: Positive = 0.2        # upper clip limit of the ratio is 1 + clip_high
    epochs: Count = 1                # passes over a batch, for the policy and for the predictor
    lr: Positive = 1e-3              # peak learning rate; small models 3e-4 to 1e-2, large 1e-6


def surprisal(logp: Tensor, mask: Tensor) -> Tensor:
    """Return -log pi of each response, `[B]`, from log-probabilities of tokens `[B, T]`."""
    return -select(logp, mask).sum(1)


def novelty_advantage(bonus: Tensor, samples: int) -> Tensor:
    """Intrinsic reward above the group mean, `[P * G]`; 0 for responses below it."""
    return centred(bonus.view(-1, samples)).clamp(min=0).flatten()


@torch.no_grad()
def last_states(model: Transformer, micro_batch: int, batch: Batch) -> Tensor:
    """Hidden state of a model after the last token that the policy chose, `[B, width]` in fp32."""
    r, found = batch.responses, []
    steps = torch.arange(1, r.mask.shape[1] + 1, device=r.mask.device)
    last = (r.mask * steps).amax(1).long()                    # [B], number of this token, from 1
    for rows in torch.arange(len(last), device=last.device).split(micro_batch or SCORED):
        hidden = read(model, batch.prompts, r.of[rows], pad(r.ids[rows], (0, 1)))
        found.append(hidden[torch.arange(len(rows)), last[rows]].float())
    return torch.cat(found)


class Distillation(nn.Module):
    """Random network `target` and its prediction network `predict`, for states `[..., width]`.

    The first batch of states sets the scale of the inputs. Later batches do not change it, because
    this would change the novelty of every state.
    """

    def __init__(self, width: int, feature_size: int, hidden: tuple[int, ...]):
        super().__init__()
        self.view = Normaliser((width,), clip=5.0)
        self.target = relu_mlp(width, *hidden, feature_size).requires_grad_(False)
        self.predict = relu_mlp(width, *hidden, *hidden[-1:], feature_size)       # deeper

    def error(self, states: Tensor) -> Tensor:
        """Intrinsic reward of states `[B, width]`, and the loss of the predictor, `[B]`."""
        if not self.view.count:
            self.view.update(states)
        seen = self.view(states)
        return prediction_error(self.predict(seen), self.target(seen))


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a curious policy. `resume`: folder of a run with the same settings."""
    # Set up.
    task = make_task(cfg.task, cfg.given_reward)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    optimizer = FlatAdam(run.model.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm,
                         eps=cfg.adam_eps)
    novelty = Distillation(run.model.shape.width, cfg.feature_size, cfg.feature_hidden)
    novelty.to(run.device)
    learner = FlatAdam(novelty.predict.parameters(), lr=cfg.bonus_lr)
    scaler = ReturnScaler(cfg.prompts * cfg.samples, 0.0, clip=math.inf)  # bonuses on one scale
    scaler.to(run.device)
    over = torch.ones(cfg.prompts * cfg.samples, 1, dtype=torch.bool, device=run.device)

    def loss(logp: Tensor, part: Responses, adv: Tensor, logp_ref: Tensor,
             denominator: float) -> Loss:
        clip = cfg.clip_low, cfg.clip_high
        each, stats = clipped_surrogate(logp, part.logp, adv, clip, part.mask)    # [B, T]
        if cfg.kl_coef:
            each = each + cfg.kl_coef * k2(logp, logp_ref, part.mask)
        return aggregate(each, part.mask, mode="sequence", denominator=denominator), stats

    def bonus_loss(states: Tensor) -> Loss:
        return novelty.error(states).mean(), {}

    learn = learner.minimizer(bonus_loss)
    with run:
        run.keep(model=run.model, optimizer=optimizer, novelty=novelty, learner=learner,
                 scaler=scaler)
        run.columns("bonus", "bonus_std")
        if cfg.bonus == "rnd":
            run.columns("bonus_loss")
        for update in run.updates(cfg.total_steps):
            # Collect.
            batch = run.sample(run.problems(cfg.prompts), cfg.samples)
            run.record(batch)
            batch = rescored(run.model, cfg, batch)
            r = batch.responses

            # Evaluate the batch: two rewards, two baselines, one advantage.
            if cfg.bonus == "rnd":
                states = last_states(run.reference, cfg.micro_batch, batch)       # [B, width]
                bonus = novelty.error(states).detach()                            # [B]
                scaled = scaler.update_and_scale(bonus[:, None], over, over)[:, 0]
                bonus_adv = novelty_advantage(scaled, cfg.samples)
            else:
                bonus = surprisal(r.logp, r.mask)
                if cfg.bonus == "entropy":
                    bonus = bonus / r.mask.sum(1)
                bonus_adv = group_advantage(bonus, cfg.samples, "mean")
            run.add(bonus=bonus.mean(), bonus_std=bonus.std(correction=0))
            adv = group_advantage(batch.rewards, cfg.samples, cfg.advantage)
            both = combined_advantage(adv, bonus_adv, cfg.reward_coef, cfg.bonus_coef)[:, None]
            logp_ref = logp_under(run.reference, cfg, batch) if cfg.kl_coef else r.logp

            # Update the policy. Only rows with an advantage or a KL penalty have a gradient.
            rows = ((both[:, 0] != 0) | (cfg.kl_coef > 0)).nonzero()[:, 0]
            pieces = min(cfg.minibatches, max(1, len(rows)))
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            for _ in range(cfg.epochs if len(rows) else 0):
                order = rows[torch.randperm(len(rows)).to(run.device)]
                for chosen in order.tensor_split(pieces):
                    optimizer.zero_grad()
                    stats = run.backward(batch, chosen, loss, both, logp_ref,
                                         denominator=len(both) / pieces)
                    run.add(grad_norm=optimizer.step(lr), **stats)
            run.add(learning_rate=lr)

            # Train the predictor on a share of the responses.
            steps = cfg.epochs * cfg.minibatches * cfg.bonus_steps
            for _ in range(steps if cfg.bonus == "rnd" else 0):
                size = max(1, round(len(states) // cfg.minibatches * cfg.bonus_share))
                chosen = torch.randperm(len(states))[:size].to(run.device)
                run.add(bonus_loss=learn(states[chosen])["loss"])
        return run.result()
