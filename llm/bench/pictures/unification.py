"""Three methods, one policy: if all responses can be listed, the optimal policy is known, and all methods reach it."""
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from llm.algos.reinforce import token_rewards
from llm.algos.reward_model import bradley_terry
from llm.bench.pictures.draw import WORKERS, conclude, figure
from llm.tasks.testbed import TabularPolicy, Testbed, total_variation
from spinup.algos.ppo import clipped_surrogate
from spinup.algos.vpg import policy_gradient
from spinup.core.fast.adam import FlatAdam
from spinup.core.kl import k1
from spinup.core.masked import whiten
from spinup.core.optim import step_size
from spinup.core.returns import gae
from spinup.runs.curve import COLOURS, LINES

BETA = 0.3              # KL coefficient
UPDATES, BATCH, LR = 3000, 512, 0.05
GOAL = 0.05             # largest total variation from the optimal policy at the end
EVERY = 25              # updates between two measurements of the total variation

Loss = Callable[[TabularPolicy], Tensor]


def ppo(bed: Testbed, ref: TabularPolicy, policy: TabularPolicy, g: torch.Generator) -> Loss:
    """PPO: samples of the policy itself, with the KL penalty in the reward of each token."""
    ids = draw(bed, policy, g)
    with torch.no_grad():
        logp, logp_ref = bed.logp(policy, ids), bed.logp(ref, ids)
        rewards, last = token_rewards(reward_of(bed, ids), k1(logp, logp_ref), BETA, torch.ones_like(logp))
        nothing = torch.zeros_like(rewards)
        adv = whiten(gae(rewards, nothing, nothing, last, torch.zeros_like(last), gamma=1.0, lam=1.0)[0])
    return lambda policy: clipped_surrogate(bed.logp(policy, ids), logp, adv, (0.2, 0.2))[0].sum(1).mean()


def dpo(bed: Testbed, ref: TabularPolicy, policy: TabularPolicy, g: torch.Generator) -> Loss:
    """DPO: pairs of samples of the reference policy; one is chosen with probability sigmoid(difference of rewards)."""
    pairs = torch.stack([draw(bed, ref, g), draw(bed, ref, g)], 1)                           # [n, 2, T]
    first = torch.sigmoid(reward_of(bed, pairs[:, 0]) - reward_of(bed, pairs[:, 1]))
    pairs = torch.where((torch.rand(BATCH, generator=g) < first)[:, None, None], pairs, pairs.flip(1))
    won, lost = pairs.unbind(1)
    with torch.no_grad():
        before = bed.logp(ref, won).sum(1), bed.logp(ref, lost).sum(1)
    return lambda policy: bradley_terry(BETA * (bed.logp(policy, won).sum(1) - before[0]),
                                        BETA * (bed.logp(policy, lost).sum(1) - before[1])).mean()


def weighted(bed: Testbed, ref: TabularPolicy, policy: TabularPolicy, g: torch.Generator) -> Loss:
    """Weighted imitation: samples of the reference policy, weighted by exp(R / beta)."""
    ids = draw(bed, ref, g)
    weight = (reward_of(bed, ids) / BETA).softmax(0) * BATCH
    return lambda policy: policy_gradient(bed.logp(policy, ids), weight[:, None])[0].sum(1).mean()


METHODS = {"PPO, KL penalty in the reward": ppo, "DPO, pairs with noisy preferences": dpo,
           "weighted imitation, exp(R / beta)": weighted}


def draw(bed: Testbed, policy: TabularPolicy, g: torch.Generator) -> Tensor:
    """Sample responses `[BATCH, T]` of a policy."""
    with torch.no_grad():
        chosen = torch.multinomial(bed.log_probs(policy).exp(), BATCH, replacement=True, generator=g)
    return bed.sequences[chosen]


def reward_of(bed: Testbed, ids: Tensor) -> Tensor:
    """Reward of each response, `[n]`."""
    places = bed.vocab ** torch.arange(bed.length - 1, -1, -1)
    return bed.rewards[ids @ places]


def distances(job: tuple[str, int]) -> list[float]:
    """Total variation from the optimal policy before, during and after training with one method and seed."""
    name, seed = job
    torch.set_num_threads(1)
    bed, ref, g = Testbed(seed=seed), TabularPolicy(seed=seed), torch.Generator().manual_seed(seed)
    policy = TabularPolicy(seed=seed)                         # starts equal to the reference policy
    best = bed.optimal(bed.log_probs(ref), BETA).detach()
    optimizer, found = FlatAdam(policy.parameters(), lr=LR, eps=1e-8), []
    for update in range(UPDATES):
        if update % EVERY == 0:
            found.append(float(total_variation(bed.log_probs(policy).detach(), best)))
        loss = METHODS[name](bed, ref, policy, g)
        optimizer.zero_grad()
        loss(policy).backward()
        optimizer.step(step_size(LR, update, UPDATES, 1, True))
    return [*found, float(total_variation(bed.log_probs(policy).detach(), best))]


def unification(seeds: list[int], log_dir: Path, out: Path) -> int:
    """Train each method and seed; each seed has its own testbed. The goal: all end within `GOAL` of the optimal policy.
    """
    jobs = list(product(METHODS, seeds))
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        curves = dict(zip(jobs, pool.map(distances, jobs), strict=True))
    steps = [*range(0, UPDATES, EVERY), UPDATES]
    with figure(out, 7.2, 4.2) as made:
        axes = made.add_subplot()
        for i, name in enumerate(METHODS):
            for seed in seeds:
                axes.plot(steps, curves[name, seed], LINES[i], color=COLOURS[i], linewidth=1.4,
                          label=name if seed == seeds[0] else None)
        axes.axhline(GOAL, color="#444444", linestyle="-.", linewidth=1.0, label=f"goal: {GOAL}")
        axes.set(title="Three methods that reach the policy  π_ref · exp(R / β) / Z", xlabel="updates", yscale="log",
                 ylabel="total variation distance to this policy")
        axes.yaxis.set_major_formatter("{x:g}")               # the default labels are TeX
        axes.legend(loc="upper right")
    ends = {name: [curves[name, seed][-1] for seed in seeds] for name in METHODS}
    for name, found in ends.items():
        print(f"{name}: {curves[name, seeds[0]][0]:.2f} -> {', '.join(f'{x:.3f}' for x in found)}")
    return conclude(out, "unification", seeds, bool(np.max(list(ends.values())) < GOAL), beta=BETA, goal=GOAL,
                    begin={name: [curves[name, seed][0] for seed in seeds] for name in METHODS}, end=ends,
                    updates=steps, curves={name: [curves[name, seed] for seed in seeds] for name in METHODS})
