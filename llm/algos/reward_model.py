"""A reward model: a number for a response, learned from which of two responses people prefer.

Christiano et al. 2017; Stiennon et al. 2020; Ouyang et al. 2022.

Of a response nobody knows what it is worth, only that it is better than another. If preferences follow the model of
Bradley and Terry (1952), what it is worth can be found from them, but for a constant:

    p(w preferred to l) = sigmoid(r(x, y_w) - r(x, y_l))
    loss                = -E[ log p(w preferred to l) ]

r is a copy of the policy, with a number in place of the next token, read behind the last token of the response. Then it
is shifted and scaled to mean 0 and variance 1 over responses of the policy, because the loss leaves the first open, and
noise the second, and a price for divergence is to mean the same for every reward model (Ziegler et al. 2019).

What a reward model has seen little of, it is wrong about; who seeks its maximum will look exactly there.

Differs from spinup/algos/ppo.py by: everything; it learns what there the environment knows. Its loss is that of DPO.
"""
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from llm.config import PreferenceConfig
from llm.policy.policy import check_context
from llm.policy.scalar import ScalarModel, rewards
from llm.preferences import RewardRun, find_pairs, rows_of, shuffled
from llm.rollout import Batch
from llm.run import Result
from llm.tasks.make import make_task
from llm.warmup import find_start
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import step_size
from spinup.runs.config import Count, NonNegative, Positive

METHODS = {"reward_model": {}}


@dataclass(kw_only=True)
class Config(PreferenceConfig):
    total_steps: Count = 200             # updates; more than some passes over the pairs learn them by heart
    margin: NonNegative = 0.0            # by how much the preferred response must be ahead; 0 in the model above
    lr: Positive = 1e-3                  # 5e-4 to 2e-3 for small models, 1e-5 for large ones
    calibration: Count = 512             # responses of the start over which the reward gets its mean 0, variance 1


def bradley_terry(preferred: Tensor, other: Tensor, margin: float = 0.0) -> Tensor:
    """-log sigmoid(preferred - other - margin), elementwise, `[...]`; log 2 where both are the same and the margin is
    0.
    """
    return -logsigmoid(preferred - other - margin)


def calibration_error(margins: Tensor, bins: int = 10) -> float:
    """How far what is said is from what is so, 0 to 1: the mean over pairs of the distance between said and found, in
    bins of equal size. margins `[n]` say that the first of a pair is preferred with probability sigmoid(margin).
    """
    said = torch.sigmoid(torch.cat([margins, -margins]))                  # each pair in both orders
    right = torch.cat([torch.ones_like(margins), torch.zeros_like(margins)])
    said, same = said.unique(return_inverse=True)
    right = (torch.zeros_like(said).index_add(0, same, right) / same.bincount())[same]
    said = said[same]                                                     # equal ones are alike: no bin parts them
    order = said.argsort()
    parts = zip(said[order].chunk(bins), right[order].chunk(bins), strict=True)
    return float(sum(abs(s.mean() - r.mean()) * len(s) for s, r in parts) / len(said))


def correlation(x: Tensor, y: Tensor) -> float:
    """Pearson's, of two `[n]`; 0 where one of them does not vary."""
    x, y = x.float() - x.float().mean(), y.float() - y.float().mean()
    scale = x.norm() * y.norm()
    return float(x @ y / scale) if scale > 0 else 0.0


def train(cfg: Config, resume: str | Path | None = None, method: str = "reward_model") -> Result:
    """Learn a reward from preferences. `resume`: the folder of a run of the same settings to go on with."""
    # Set up.
    task = make_task(cfg.task, cfg.reward or None)
    run = RewardRun(method, cfg, task, find_start(cfg, task, resume), resume)
    pairs, held_out = find_pairs(run, cfg), find_pairs(run, cfg, held_out=True)
    model = ScalarModel(run.model, std=(run.model.shape.width + 1) ** -0.5)
    optimizer = FlatAdam(model.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm)
    check_context(pairs.prompts.ids.shape[1], run.max_tokens + 1, run.model)  # and the end behind what was cut

    def judge(batch: Batch, rows: Tensor) -> Tensor:
        """What responses are worth, `[n]`; one that was cut off is read as one that ended, as `RewardModel` will."""
        r = batch.responses[rows]
        ids = pad(r.ids, (0, 1), value=run.tokenizer.end)
        return rewards(model, batch.prompts, r.of, ids, r.lengths + ~r.finished, cfg.checkpointing)

    with run:
        run.keep(model=model, optimizer=optimizer)
        for update in run.updates(cfg.total_steps):
            # Compare.
            chosen = shuffled(len(pairs.texts) // 2, cfg.batch, update, cfg.seed)
            optimizer.zero_grad()
            losses = right = 0.0
            for piece in rows_of(chosen).split(cfg.micro_batch or 2 * len(chosen)):
                said = judge(pairs, piece.to(run.device)).view(-1, 2)                        # preferred, other
                loss = bradley_terry(said[:, 0], said[:, 1], cfg.margin).sum() / len(chosen)
                loss.backward()
                run.check_finite(rewards=said.detach(), loss=loss.detach())
                losses += loss.detach()
                right += (said[:, 0] > said[:, 1]).float().sum() / len(chosen)
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            run.add(loss=losses, train_accuracy=right, grad_norm=optimizer.step(lr), learning_rate=lr)

            # Test, and in the end calibrate: both need no gradient.
            with torch.no_grad():
                if run.row_due:
                    rows = torch.arange(len(held_out.texts), device=run.device)
                    said, lengths = judge(held_out, rows).view(-1, 2), held_out.responses.lengths
                    margins = said[:, 0] - said[:, 1]
                    run.log(pair_accuracy=(margins > 0).float().mean(), pair_margin=margins.mean(),
                            calibration_error=calibration_error(margins),
                            length_correlation=correlation(said.flatten(), lengths))
                if update + 1 == cfg.total_steps:
                    batch = run.sample(run.problems(cfg.calibration))
                    model.calibrate(judge(batch, batch.responses.of))
        return run.result(model)
