"""Supervised fine-tuning: imitate a teacher's responses, token by token.

Every token of a teacher is an action, and each is as good as any other:

    loss = -(1 / N) sum over the N tokens of all demonstrations of   log pi(y_t | x, y_1 .. y_t-1)

That is the loss of the policy gradient with an advantage of 1 and the actions of a teacher. The
teacher's mistakes are imitated too, as often as they occur. Behavioural cloning is as old as
Pomerleau (1988); for answers to instructions see Ouyang et al. 2022, arXiv:2203.02155.

Differs from spinup/algos/vpg.py by: the actions of a teacher, an advantage of 1, no rewards.
"""
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from llm.config import LanguageConfig
from llm.learn import Loss
from llm.policy.generate import Responses
from llm.policy.load import check_judge, fresh, load_model, on_device
from llm.rollout import solved
from llm.run import Result, Run
from llm.tasks.check import demonstration_of, problems_of
from llm.tasks.make import make_task
from spinup.algos.vpg import policy_gradient
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate
from spinup.core.optim import step_size
from spinup.machine import find_device
from spinup.runs.config import Count, Natural, Positive, Size, Unit


@dataclass(kw_only=True)
class Config(LanguageConfig):
    total_steps: Count = 1000        # updates at most; stop_accuracy may end the run earlier
    batch: Size = 128                # demonstrations in an update
    demonstrations: Natural = 0      # size of a fixed data set; 0 = new demonstrations every update
    lr: Positive = 2e-3              # 1e-3 to 4e-3 for small models, 1e-5 for large ones
    warmup: Natural = 20             # updates in which the learning rate grows to lr
    anneal: bool = True              # then it falls linearly to a tenth
    adam_eps: Positive = 1e-8        # with 1e-5, the small gradients of a good imitation step less
    max_grad_norm: Positive = 1.0    # longer gradients are scaled down to this
    stop_accuracy: Unit = 0.0        # held-out accuracy that ends the run; 0 = never
    stop_every: Count = 5            # updates between two checks of that


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Imitate the teacher of a task. `resume`: the folder of a run of the same settings."""
    # Set up.
    task = make_task(cfg.task, cfg.reward or None)
    find_device(cfg.device, True)
    start = on_device(load_model(cfg.model) if cfg.model else fresh(cfg, task), cfg)
    check_judge(task.judge, start.tokenizer, task.name)
    run = Run(cfg, task, start, resume)
    optimizer = FlatAdam(run.model.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm,
                         eps=cfg.adam_eps)
    problems = problems_of(task, cfg.demonstrations, run.rng)
    fixed = [(p, demonstration_of(task, p, run.rng)) for p in problems]

    def loss(logp: Tensor, part: Responses, denominator: Tensor) -> Loss:
        each, stats = policy_gradient(logp, torch.ones_like(logp), part.mask)
        return aggregate(each, part.mask, denominator=denominator), stats

    with run:
        run.keep(model=run.model, optimizer=optimizer)
        for update in run.updates(cfg.total_steps):
            # Collect demonstrations.
            if fixed:
                pairs = [fixed[i] for i in run.rng.integers(len(fixed), size=cfg.batch)]
            else:
                pairs = [(p, demonstration_of(task, p, run.rng))
                         for p in run.problems(cfg.batch)]
            batch = run.demonstrated(*zip(*pairs, strict=True))

            # Update.
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            tokens = batch.responses.mask.sum()
            optimizer.zero_grad()
            stats = run.backward(batch, batch.responses.of, loss, denominator=tokens)
            run.add(grad_norm=optimizer.step(lr), learning_rate=lr, tokens=tokens,
                    length=batch.responses.lengths.float().mean(), **stats)

            # Stop early, once enough held-out problems are solved.
            check_due = cfg.stop_accuracy and (update + 1) % cfg.stop_every == 0
            if check_due and solved(run.evaluate().rewards) >= cfg.stop_accuracy:
                run.stop()
        return run.result()
