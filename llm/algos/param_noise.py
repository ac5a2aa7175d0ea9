"""Parameter space noise for language models (Plappert et al. 2018, arXiv:1706.01905), with GRPO.

Sampling tokens already adds noise, but this noise is independent for each token: a response that
needs the same unlikely choice n times has a probability of p^n. Noise on the weights changes all
tokens of a response together. The K perturbed policies of an update have the weights

    theta~_k = theta + sigma eps_k,   eps_k ~ N(0, I)                                    (sec. 3)

Each one samples G / K responses to every prompt. The G responses to a prompt form one group, so its
rewards vary between the perturbed policies. The learner theta is trained with GRPO's advantage and
PPO's loss, `spinup.algos.ppo.clipped_surrogate`:

    loss = -E[ min( r A, clip(r, 1 - c, 1 + c) A ) ],   r = pi_theta(y_t | s_t) / pi_old(y_t | s_t)

`--old` chooses pi_old. With `sampler`, the default, it is the perturbed policy that sampled the
token: r is the importance ratio of the token alone. A token gets no gradient if the learner already
makes it more likely (A > 0) or less likely (A < 0) than the sampler did, beyond the clip range.
With `learner`, pi_old is theta before the update: r is 1 at first, and the loss treats the
responses as the learner's own. Both bias the gradient: `sampler` leaves out the ratio of the prefix
and clips from the first step on, and `learner` leaves out all ratios.

sigma is adapted once per update, to a distance d between the policies at the sampled states:

    d = mean of KL(pi_theta || pi_theta~_k) of the next token                       (appendix C)
    sigma <- a sigma  if d < delta  else  sigma / a                                       (eq. 8)

Differs from spinup/algos/param_noise.py by: K perturbations per update, and each one generates
whole responses; on-policy learning from groups in place of a replay buffer; the perturbed policy
samples its tokens, where a perturbed Q network acts greedily. `noisy_weights`, `value_distance` and
`adapted` are the same functions.
"""
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from llm.algos.grpo import group_advantage
from llm.config import GroupConfig
from llm.learn import Loss, logp_under, rescored
from llm.policy.generate import Responses
from llm.policy.score import read
from llm.policy.transformer import Transformer
from llm.rollout import Batch, join
from llm.run import Result, Run
from llm.start import find_start
from llm.tasks.make import make_task
from spinup.algos.param_noise import adapted, noisy_weights, value_distance
from spinup.algos.ppo import clipped_surrogate
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate, select
from spinup.core.optim import Latest, step_size
from spinup.errors import UserError
from spinup.runs.config import Count, Positive, Range, Size

MEASURED = 8            # responses of each perturbed policy used to measure the distance
POSITIONS = 512         # most tokens of these responses: each has logits over the whole vocabulary


@dataclass(kw_only=True)
class Config(GroupConfig):
    prompts: Size = 8                # different prompts per update
    samples: Size = 32               # responses per prompt, G; `perturbations` must divide it
    perturbations: Count = 8         # perturbed policies per update, K; each costs a sampling call
    sigma: Positive = 0.05           # initial standard deviation of weight noise; then adapted
    divergence: Positive = 0.5       # delta, nats per token; larger: more variety, fewer successes
    adapt: Annotated[float, Range(1.0, 10.0)] = 1.1  # factor of each change of sigma
    old: Literal["sampler", "learner"] = "sampler"  # policy in the denominator of the ratio
    advantage: Literal["group", "mean"] = "group"   # mean: not divided by the std of the group
    average: Literal["sequence", "constant", "token"] = "sequence"  # weight of a token, as in GRPO
    clip_low: Positive = 0.2         # lower clip limit of the ratio is 1 - clip_low
    clip_high: Positive = 0.2        # upper clip limit of the ratio is 1 + clip_high
    epochs: Count = 1                # passes over a batch
    lr: Positive = 1e-3              # peak learning rate; small models 3e-4 to 3e-3, large 1e-6

    # The policy learns; the reference policy, a copy of the weights and a perturbation do not.
    MODELS: ClassVar[tuple[int, int]] = (1, 3)

    def __post_init__(self):
        super().__post_init__()
        if self.samples % self.perturbations:
            raise UserError(f"--perturbations {self.perturbations} must divide --samples "
                            f"{self.samples}, because each perturbed policy samples equally many "
                            "responses to a prompt; choose for example --perturbations 8 "
                            "--samples 32")


@contextmanager
def perturbed(flat: Tensor, sigma: float, eps: Tensor) -> Iterator[None]:
    """Give the weights `flat` `[P]` the noise sigma eps, and restore them exactly afterwards."""
    theta = flat.clone()
    flat.copy_(noisy_weights(theta, sigma, eps))
    try:
        yield
    finally:
        flat.copy_(theta)


def mixed(batches: Sequence[Batch]) -> Batch:
    """Merge batches of responses to the same problems: row p * G + g is the g-th response to
    problem p, and the first responses of a group are those of the first batch."""
    joined, first = join(batches), batches[0]
    P, K = len(first.problems), len(batches)
    rows = torch.arange(len(joined.texts), device=joined.rewards.device)
    merged = joined.pick(rows.view(K, P, -1).transpose(0, 1).flatten())
    of = merged.responses.of % P
    return replace(merged, problems=first.problems, prompts=first.prompts,
                   responses=replace(merged.responses, of=of))


@torch.no_grad()
def next_logits(model: Transformer, batch: Batch, temperature: float,
                at_once: int = MEASURED) -> Tensor:
    """Logits `[n, vocab]` of the policy's own tokens in the first responses of a batch, divided by
    the temperature at which it samples; at most `POSITIONS` tokens. It reads `at_once` responses at
    a time."""
    found = []
    for rows in torch.arange(min(MEASURED, len(batch.texts))).split(at_once):
        part = batch.responses[rows]
        hidden = read(model, batch.prompts, part.of, part.ids)
        own = hidden[part.mask > 0][:POSITIONS - sum(len(x) for x in found)]
        found.append(model.logits(own).float() / temperature)
    return torch.cat(found)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with parameter noise. `resume`: folder of a run with the same settings."""
    # Set up.
    task = make_task(cfg.task, cfg.given_reward)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    optimizer = FlatAdam(run.model.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm,
                         eps=cfg.adam_eps)
    noise = Latest(sigma=cfg.sigma)
    each, at_once = cfg.samples // cfg.perturbations, cfg.micro_batch or MEASURED

    def loss(logp: Tensor, part: Responses, adv: Tensor, denominator: float) -> Loss:
        clip = cfg.clip_low, cfg.clip_high
        each, stats = clipped_surrogate(logp, part.logp, adv, clip, part.mask)    # [B, T]
        return aggregate(each, part.mask, mode=cfg.average, denominator=denominator,
                         length=run.max_tokens), stats

    with run:
        run.keep(model=run.model, optimizer=optimizer, noise=noise)
        run.columns("sigma", "distance")
        for update in run.updates(cfg.total_steps):
            # Collect: every perturbed policy responds to every prompt.
            problems, batches, distances = run.problems(cfg.prompts), [], []
            for _ in range(cfg.perturbations):
                eps = torch.randn(len(optimizer.flat), generator=run.generator, device=run.device)
                with perturbed(optimizer.flat, noise["sigma"], eps):
                    sampled = rescored(run.model, cfg, run.sample(problems, each))
                    noisy = next_logits(run.model, sampled, cfg.temperature, at_once)
                batches.append(sampled)
                own = next_logits(run.model, sampled, cfg.temperature, at_once)
                distances.append(float(value_distance(own, noisy)))
            batch = mixed(batches)
            run.record(batch)
            adv = group_advantage(batch.rewards, cfg.samples, cfg.advantage)[:, None]   # [B, 1]
            if cfg.old == "learner":
                r = batch.responses
                logp = select(logp_under(run.model, cfg, batch), r.mask)                # [B, T]
                batch = replace(batch, responses=replace(r, logp=logp))

            # Adapt sigma.
            distance = sum(distances) / len(distances)
            run.add(sigma=noise["sigma"], distance=distance)
            noise["sigma"] = adapted(noise["sigma"], distance, cfg.divergence, cfg.adapt)

            # Update. A group with zero variance has no gradient, but still counts.
            rows = (adv[:, 0] != 0).nonzero()[:, 0]
            pieces = min(cfg.minibatches, max(1, len(rows)))
            counted = batch.responses.mask.sum() if cfg.average == "token" else len(adv)
            denominator = counted / pieces
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            for _ in range(cfg.epochs if len(rows) else 0):
                order = rows[torch.randperm(len(rows)).to(run.device)]
                for chosen in order.tensor_split(pieces):
                    optimizer.zero_grad()
                    stats = run.backward(batch, chosen, loss, adv, denominator=denominator)
                    run.add(grad_norm=optimizer.step(lr), **stats)
            run.add(learning_rate=lr)
        return run.result()
