"""Evolution strategies for language models: perturbed weights instead of sampled tokens.

Salimans et al. 2017, arXiv:1703.03864; Qiu et al. 2025, arXiv:2509.24372.

ES perturbs all weights of the policy, answers the same prompts with each perturbed policy, and
moves the weights towards the perturbations with higher rewards. It needs no backpropagation, no
log-probabilities, no value function and no advantage of a token.

    eps_i ~ N(0, I),   F(theta) = mean reward of the greedy responses to the prompts of the update
    grad E[ F(theta + sigma eps) ]
        ~  1 / (2 n sigma)  sum_i ( F(theta + sigma eps_i) - F(theta - sigma eps_i) ) eps_i

theta are the weights, sigma is the noise size, and each of the n perturbations is used with both
signs. All 2n policies answer the same prompts, and greedy decoding is deterministic. So their
rewards differ only because their weights differ (Qiu et al., section 3.2).

The values of F are replaced by their centred ranks, as in spinup/algos/es.py, or by their z-scores
(Qiu et al., algorithm 2):

    Z = ( F - mean of all 2n values ) / standard deviation of all 2n values
    theta <- theta + alpha / (2 n)  sum_i ( Z_i+ - Z_i- ) eps_i              with --optimizer plain

alpha is the learning rate, which includes 1 / sigma. Qiu et al. use 30 independent perturbations,
sigma .001 and alpha .0005 for models of .5 to 8 billion parameters. `es_zscore` is their update,
but each perturbation is used with both signs.

Greedy decoding measures only the most likely tokens. So greedy accuracy can rise while sampled
accuracy hardly changes. `--decoding sampled` makes F the mean reward of sampled responses. The two
policies of a pair then use the same random numbers.

Differs from spinup/algos/es.py by: a batch of prompts in place of an environment's initial state;
one perturbed policy at a time, written into the weights of the model; a learning rate schedule.
"""
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from llm.config import LanguageConfig
from llm.run import Result, Run
from llm.start import find_start
from llm.tasks.check import problems_of
from llm.tasks.make import make_task
from spinup.algos.es import centred_ranks, gradient, perturb, seeds_of
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import step_size
from spinup.errors import UserError
from spinup.runs import ranks
from spinup.runs.config import Natural, Positive, Size, Unit


@dataclass(kw_only=True)
class Config(LanguageConfig):
    pairs: Size = 32                 # perturbations per update, each with both signs (8-256)
    prompts: Size = 64               # prompts per update, the same ones for all perturbed policies
    sigma: Positive = 0.005          # noise size; small models .003 to .01, large ones .001
    scores: Literal["ranks", "zscore"] = "ranks"    # zscore: one outlier has more influence
    optimizer: Literal["adam", "plain"] = "adam"    # plain: lr times the sum (Qiu et al.)
    decoding: Literal["greedy", "sampled"] = "greedy"   # sampled: noisier, but improves samples too
    lr: Positive = 1e-3              # peak learning rate; with plain, alpha
    warmup: Natural = 0              # updates in which the learning rate rises linearly to lr
    anneal: bool = True              # decay lr linearly to a tenth; late steps add less noise
    sft_accuracy: Unit = 0.3         # held-out accuracy that ends SFT; 0 = never

    LEAN: ClassVar[tuple[str, ...]] = ("--prompts", "--max-tokens")
    ONLY_WITH = {"adam_eps": ("optimizer", "adam")}

    def __post_init__(self):
        super().__post_init__()
        if self.gradient_checkpointing:
            raise UserError("es has no backward pass, so it keeps no activations; leave out "
                            "--gradient-checkpointing")
        if self.shard:
            raise UserError("each process of es updates all weights; leave out --shard")
        if self.workers > self.pairs:
            raise UserError(f"--workers {self.workers} is more than --pairs {self.pairs}; choose "
                            f"at most {self.pairs}")
        if self.workers > 1 and self.device not in ("auto", "cpu"):
            raise UserError(f"the processes of es run on the CPU; leave out --device {self.device} "
                            "or --workers")

    @property
    def responses(self) -> int:
        """Number of responses that an update learns from."""
        return 2 * self.pairs * self.prompts

    @property
    def sampled(self) -> int:
        """Largest number of responses that the method samples at once."""
        return self.prompts


def z_scores(rewards: np.ndarray) -> np.ndarray:
    """(F - mean) / standard deviation over all policies, in the shape `[...]` of the rewards; 0 if
    all rewards are equal."""
    spread = rewards.std()
    return (rewards - rewards.mean()) / spread if np.ptp(rewards) else np.zeros_like(rewards)


def play(score: Callable[[int], list[float]], weights: Tensor, theta: Tensor, sigma: float,
         seeds: np.ndarray) -> Tensor:
    """Score theta + sigma eps and theta - sigma eps for each seed. Return `[n, 2, k]` float64.

    score: a function from the seed of a pair to k numbers about the current policy.
    weights: the flat weights `[P]` that the policy uses; afterwards they are `theta`, `[P]`.
    """
    found = []
    for seed in seeds.tolist():
        for sign in 1, -1:
            weights.copy_(perturb(theta, seed, sign * sigma))
            found.append(score(seed))
    weights.copy_(theta)
    return torch.tensor(found, dtype=torch.float64).view(len(seeds), 2, -1)


# Names for `scores`.
SCORES = {"ranks": centred_ranks, "zscore": z_scores}


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with evolution strategies. `resume`: folder of a run with the same
    settings."""
    # Set up.
    if ranks.wanted(cfg.workers) > 1:
        cfg = replace(cfg, device="cpu")
    task = make_task(cfg.task, cfg.given_reward)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    model, workers = run.model, run.workers
    optimizer = FlatAdam(model.parameters(), lr=cfg.lr, eps=cfg.adam_eps)
    fitness = SCORES[cfg.scores]

    with run, ranks.alone():                                  # each process evaluates by itself
        run.keep(model=model, optimizer=optimizer)
        run.columns("policy_std", "weight_norm")
        for update in run.updates(cfg.total_steps):
            # Each process scores its share of the perturbations, all on the same prompts.
            problems = problems_of(task, cfg.prompts, np.random.default_rng((cfg.seed, update)))

            def score(seed: int, problems: list = problems) -> list[float]:
                generator = None
                if cfg.decoding == "sampled":
                    other = int(np.random.SeedSequence((seed, 1)).generate_state(1)[0])
                    generator = torch.Generator(model.device).manual_seed(other)      # not eps' own
                batch = run.sample(problems, greedy=int(generator is None), generator=generator)
                r = batch.responses
                rewards = batch.rewards.cpu().double()        # MPS has no float64
                return [float(rewards.mean()), float(rewards.square().mean()),
                        float(r.lengths.sum()), float((~r.finished).float().mean()),
                        *(float(batch.parts[name].mean()) for name in run.parts_of_reward)]

            seeds = seeds_of(cfg.seed, update, cfg.pairs)                 # [n]
            theta = optimizer.master.clone()                              # [P] fp32
            mine = play(score, optimizer.flat, theta, cfg.sigma, seeds[workers.mine(cfg.pairs)])
            totals = workers.share(mine, cfg.pairs)                       # [n, 2, 4 + parts]
            rewards = totals[..., 0].numpy()                              # [n, 2]
            run.check_finite(rewards=totals[..., 0])

            # Update: every process computes the same step from the same numbers.
            grad = gradient(theta, seeds, fitness(rewards), cfg.sigma)
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            if cfg.optimizer == "adam":
                optimizer.flat.grad.copy_(-grad)
                optimizer.step(lr)
            else:
                optimizer.master.add_(grad, alpha=lr * cfg.sigma)         # lr includes 1 / sigma
                optimizer.flat.copy_(optimizer.master)
            mean, square, tokens, cut, *parts = totals.mean((0, 1)).tolist()
            run.add(reward=mean, reward_std=max(0.0, square - mean**2)**0.5,
                    policy_std=rewards.std(), length=tokens / cfg.prompts, cut_off=cut,
                    tokens=float(totals[..., 2].sum()), grad_norm=grad.norm(),
                    weight_norm=optimizer.master.norm(), learning_rate=lr,
                    **{f"reward_{name}": part
                       for name, part in zip(run.parts_of_reward, parts, strict=True)})
        return run.result()
