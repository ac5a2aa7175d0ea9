"""Supervised fine-tuning: imitate a teacher's responses, token by token.

Each token of the teacher is an action, and all tokens have equal weight:

    loss = -(1 / N) sum over the N tokens of all demonstrations of   log pi(y_t | x, y_1 .. y_t-1)

x is the prompt, and y_t is token t of the teacher's response. This is the policy-gradient loss with
the teacher's actions and an advantage of 1. The policy also imitates the teacher's mistakes, as
often as they occur. Behaviour cloning goes back to Pomerleau (1988); for responses to instructions
see Ouyang et al. 2022, arXiv:2203.02155.

Differs from spinup/algos/vpg.py by: the actions of a teacher, an advantage of 1, no rewards.
"""
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from llm.config import LanguageConfig
from llm.learn import Loss
from llm.policy.generate import Responses
from llm.policy.load import check_judge, initial, on_device
from llm.rollout import solved
from llm.run import Result, Run
from llm.tasks.check import demonstration_of, problems_of
from llm.tasks.make import make_task
from llm.tasks.wrappers.wrapper import innermost
from spinup.algos.vpg import policy_gradient
from spinup.core.masked import aggregate
from spinup.core.optim import step_size
from spinup.runs.config import Count, Natural, Positive, Size, Unit


@dataclass(kw_only=True)
class Config(LanguageConfig):
    total_steps: Count = 1000        # maximum number of updates; stop_accuracy can end it earlier
    batch: Size = 128                # number of demonstrations per update
    demonstrations: Natural = 0      # size of a fixed dataset; 0 = new demonstrations every update
    lr: Positive = 2e-3              # peak learning rate; small models 1e-3 to 4e-3, large 1e-5
    warmup: Natural = 20             # updates in which the learning rate rises linearly to lr
    anneal: bool = True              # decay lr linearly to a tenth over the run
    adam_eps: Positive = 1e-8        # epsilon of Adam; with 1e-5, late updates are smaller
    max_grad_norm: Positive = 1.0    # largest gradient norm; larger gradients are scaled down
    stop_accuracy: Unit = 0.0        # accuracy that ends the run; biased upwards there; 0 = never
    stop_every: Count = 5            # updates between two checks of stop_accuracy

    @property
    def responses(self) -> int:
        """Number of responses that an update learns from."""
        return self.batch


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Imitate the teacher of a task. `resume`: folder of a run with the same settings."""
    # Set up.
    task = innermost(make_task(cfg.task, cfg.given_reward))  # a teacher writes whole answers
    start = on_device(initial(cfg, task), cfg)
    check_judge(task.judge, start.tokenizer, task.name)
    run = Run(cfg, task, start, resume)
    optimizer = run.adam(run.model, lr=cfg.lr, max_grad_norm=cfg.max_grad_norm, eps=cfg.adam_eps)
    own = np.random.default_rng(cfg.seed)
    demonstration_of(task, problems_of(task, 1, own)[0], own)     # or fail before any folder
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
                    length=batch.responses.lengths.float().mean(),
                    cut_off=1 - batch.responses.finished.float().mean(), **stats)

            # Stop early once the held-out accuracy is high enough.
            check_due = cfg.stop_accuracy and (update + 1) % cfg.stop_every == 0
            if check_due and solved(run.evaluate(greedy=False)[0].rewards) >= cfg.stop_accuracy:
                run.stop()
        return run.result()
