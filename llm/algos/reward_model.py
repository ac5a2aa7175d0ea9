"""Reward model: learns from preference pairs to give each response a scalar reward.

Christiano et al. 2017; Stiennon et al. 2020; Ouyang et al. 2022.

People cannot score a response reliably, but they can compare two. Assume that preferences follow
the model of Bradley and Terry (1952). Then comparisons determine the rewards up to a constant:

    p(w preferred to l) = sigmoid(r(x, y_w) - r(x, y_l))
    loss                = -E[ log p(w preferred to l) ]

y_w is the chosen response to prompt x, y_l the rejected one. r is a copy of the policy whose head
returns one number. This number is read after the last token of the response.

After training, r is shifted and scaled to mean 0 and variance 1 over responses of the policy. The
loss does not determine the constant, and the scale depends on the noise of the comparisons.
Calibration gives a KL penalty the same weight with every reward model (Ziegler et al. 2019).

A reward model is unreliable on responses unlike its training data. A policy that maximises the
learned reward produces exactly such responses (over-optimisation).

Differs from spinup/algos/ppo.py by: supervised learning of a reward function, and no policy. PPO
gets its rewards from an environment. DPO uses the same loss function.
"""
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from llm.config import PreferenceConfig
from llm.policy.policy import check_context
from llm.policy.scalar import RewardModel, ScalarModel, rewards
from llm.preferences import PairsChecksum, RewardRun, accuracy, find_pairs, rows_of, shuffled
from llm.rollout import Batch
from llm.run import Result
from llm.start import find_start
from llm.tasks.make import make_task
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import step_size
from spinup.runs.config import Count, NonNegative, Positive, Range

Sample = Annotated[int, Range(2, 65_536)]         # responses that have a standard deviation


@dataclass(kw_only=True)
class Config(PreferenceConfig):
    total_steps: Count = 200         # updates; more than a few passes over the pairs overfit
    margin: NonNegative = 0.0        # margin in reward between chosen and rejected response
    lr: Positive = 1e-3              # peak learning rate; small models 5e-4 to 2e-3, large 1e-5
    calibration: Sample = 512        # responses used to scale rewards to mean 0, variance 1

    # The policy and its reference do not learn.
    MODELS: ClassVar[tuple[int, int]] = (1, 2)


def bradley_terry(preferred: Tensor, other: Tensor, margin: float = 0.0) -> Tensor:
    """Loss -log sigmoid(preferred - other - margin), elementwise, `[...]`.

    It is log 2 for equal rewards without a margin.
    """
    return -logsigmoid(preferred - other - margin)


def calibration_error(margins: Tensor, bins: int = 10) -> float:
    """Expected calibration error, 0 to 1, over bins of equal size (Naeini et al. 2015).

    margins: `[n]`, reward of the chosen minus that of the rejected response. sigmoid(margin) is the
    predicted probability that the chosen response is preferred.
    """
    predicted = torch.sigmoid(torch.cat([margins, -margins]))             # each pair in both orders
    right = torch.cat([torch.ones_like(margins), torch.zeros_like(margins)])
    predicted, same = predicted.unique(return_inverse=True)
    right = (torch.zeros_like(predicted).index_add(0, same, right) / same.bincount())[same]
    predicted = predicted[same]                               # equal predictions share their bins
    order = predicted.argsort()
    parts = zip(predicted[order].chunk(bins), right[order].chunk(bins), strict=True)
    return float(sum(abs(p.mean() - r.mean()) * len(p) for p, r in parts) / len(predicted))


def correlation(x: Tensor, y: Tensor) -> float:
    """Pearson correlation of x and y, `[n]` each; 0 if either of them is constant."""
    x, y = x.float() - x.float().mean(), y.float() - y.float().mean()
    scale = x.norm() * y.norm()
    return float(x @ y / scale) if scale > 0 else 0.0


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a reward model on preferences. `resume`: folder of a run with the same settings."""
    # Set up.
    task = make_task(cfg.task, cfg.given_reward)
    run = RewardRun(cfg, task, find_start(cfg, task, resume), resume)
    run.measure = "pair_accuracy"
    pairs, held_out = find_pairs(run, cfg), find_pairs(run, cfg, held_out=True)
    model = ScalarModel(run.model, std=(run.model.shape.width + 1) ** -0.5)
    optimizer = FlatAdam(model.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm,
                         eps=cfg.adam_eps)
    check_context(pairs.prompts.ids.shape[1], run.max_tokens + 1, run.model)       # an end is added

    def pieces(rows: Tensor) -> tuple[Tensor, ...]:
        return rows.to(run.device).split(cfg.micro_batch or max(1, len(rows)))

    def judge(batch: Batch, rows: Tensor) -> Tensor:
        """Rewards of responses, `[n]`. A response that was cut off gets an end token, as in
        `RewardModel`."""
        r = batch.responses[rows].trimmed()
        ids = pad(r.ids, (0, 1), value=run.tokenizer.end)
        return rewards(model, batch.prompts, r.of, ids, r.lengths + ~r.finished,
                       cfg.gradient_checkpointing)

    @torch.no_grad()
    def tested() -> dict[str, Tensor]:
        """Results on held-out pairs."""
        parts = pieces(torch.arange(len(held_out.texts)))
        reward = torch.cat([judge(held_out, rows) for rows in parts]).view(-1, 2)
        margins, lengths = reward[:, 0] - reward[:, 1], held_out.responses.lengths
        return {"pair_accuracy": accuracy(margins), "pair_margin": margins.mean(),
                "calibration_error": calibration_error(margins),
                "length_correlation": correlation(reward.flatten(), lengths)}

    with run:
        run.keep(model=model, optimizer=optimizer, pairs=PairsChecksum(pairs, held_out))
        run.columns("loss", "train_accuracy", "grad_norm", "learning_rate")
        run.first_row(tested)
        for update in run.updates(cfg.total_steps):
            # Update. Margins must be log-odds, so undo a calibration. There is one if the run was
            # finished and then made longer.
            model.gain.fill_(1)
            model.bias.zero_()
            chosen = shuffled(len(pairs.texts) // 2, cfg.batch, update, cfg.seed)
            optimizer.zero_grad()
            losses = right = 0.0
            for piece in pieces(rows_of(chosen)):
                reward = judge(pairs, piece).view(-1, 2)                          # preferred, other
                loss = bradley_terry(reward[:, 0], reward[:, 1], cfg.margin).sum() / len(chosen)
                loss.backward()
                reward = reward.detach()
                run.check_finite(rewards=reward, loss=loss.detach())
                losses += loss.detach()
                right += accuracy(reward[:, 0] - reward[:, 1]) * (len(reward) / len(chosen))
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            run.add(loss=losses, train_accuracy=right, grad_norm=optimizer.step(lr),
                    learning_rate=lr)

            # Test on held-out pairs and calibrate at the end; neither needs a gradient.
            if run.row_due:
                run.log(**tested())
            if update + 1 == cfg.total_steps:
                batch = run.sample(run.problems(cfg.calibration))
                with torch.no_grad():
                    parts = pieces(batch.responses.of)
                    model.calibrate(torch.cat([judge(batch, rows) for rows in parts]))
        return run.result(RewardModel(model, run.tokenizer))
