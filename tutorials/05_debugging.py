# %% [markdown]
# # 5. Debugging, with probe environments and honest evaluation
#
# **You will** hide faults in PPO, find them within seconds with environments made for nothing else, and then measure
# a policy so that the number means something. **You need** [PPO](01_quickstart.ipynb) and the idea of a value
# function. **Time**: twenty minutes of reading, of which the computer works for two.
#
# The one choice of this notebook is its budget. `ci` takes one CPU core less than two minutes; `cpu` trains on more
# seeds; `gpu` does the same on a GPU. The environment variable `SPINUP_BUDGET` goes before it.

# %%
BUDGET = "ci"

import tempfile
from contextlib import nullcontext
from copy import deepcopy
from unittest.mock import patch

import gymnasium
import numpy as np
import torch

import spinup.algos.ppo as source
from spinup import ppo, vpg
from spinup.core.networks import ActorCritic
from spinup.runs.policy import Policy
from spinup.runs.run import Run
from spinup.view.evaluate import evaluate
from spinup.view.notebook import curves, panels, show, sizes
from spinup.view.plots import COLOURS, LINES
from spinup.view.statistics import mean_interval

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "pool": 12, "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "pool": 24, "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "pool": 24, "device": "cuda"})
SEEDS, RUNS = SIZE["seeds"], tempfile.mkdtemp()
QUIET = {"log_dir": RUNS, "quiet": True, "tensorboard": False, "device": SIZE["device"]}
_ = patch("spinup.runs.curve.draw_curve").start()         # of 170 runs, pictures would take half the time

# %% [markdown]
# ## One of these is wrong
#
# Both trainings below are PPO on CartPole. In one of them the rewards of a batch have slipped: each stands beside the
# step after the one that earned it. The slip is planted with `unittest.mock.patch`, which replaces a name in a module
# for as long as its `with` lasts. The name is `gae`, the function that turns rewards into advantages, of
# `[copies, steps]` tensors.

# %%
gae = source.gae


def late(rewards, values, next_values, terminated, truncated, **settings):
    return gae(rewards.roll(1, 1), values, next_values, terminated, truncated, **settings)


pool = [ppo("CartPole-v1", seed=seed, total_steps=20_000, **QUIET) for seed in range(1, SIZE["pool"] + 1)]
with patch.object(source, "gae", late):
    slipped = [ppo("CartPole-v1", seed=seed, total_steps=20_000, **QUIET) for seed in SEEDS]

figure, (axes,) = panels()
curves(axes, {"as it is": pool[:len(SEEDS)], "rewards one step late": slipped})
axes.set(title="CartPole", xlabel="environment steps", ylabel="return, last 100 episodes",
         xticks=range(0, 20_001, 5000))
show(figure, "Return against environment steps: the dashed lines of the faulty program lie exactly on the solid lines"
     " of the right one, and both rise from 20 to more than 100.")

# %% tags=["hide-cell", "trained"]
same = [a.progress["return_mean_100"] == b.progress["return_mean_100"] for a, b in zip(pool, slipped, strict=False)]
assert all(same) and all(15 < r.progress["return_mean_100"][0] < 60 for r in slipped)
assert all(r.progress["return_mean_100"][-1] > 100 for r in slipped)

# %% [markdown]
# The curves are the same to the last digit. CartPole pays 1 in every step, so a reward in the wrong place is no other
# reward. A learning curve on a well-known task says that learning takes place. It does not say that the program is
# right, and where it stays flat it does not say which line is wrong.
#
# ## Probes
#
# A **probe environment** is so small that the answer is known by heart, and made so that only one thing can go wrong.
# Each asks for one thing that those before it do not need. The discount $\gamma$ is $\frac12$, so that it cannot be
# overlooked.
#
# | probe | steps | observation | reward | what must come out |
# |---|---|---|---|---|
# | `constant` | 1 | 0 | 1 | $V(0) = 1$ |
# | `observation` | 1 | $\pm 1$, drawn | the observation | $V(s) = s$ |
# | `discount` | 2 | 0, then 1 | 0, then 1 | $V(0) = \gamma$, $V(1) = 1$ |
# | `action` | 1 | 0 | 1 for action 1, else $-1$ | $\pi(1 \mid 0) \to 1$ |
# | `both` | 1 | $\pm 1$, drawn | 1 for action 1 at $+1$ and 0 at $-1$, else $-1$ | $\pi$ knows which |
#
# The values follow from $V(s_t) = \mathbb{E}\,[\,\sum_l \gamma^l r_{t+l}\,]$. A sixth, `clock`, is kept for later: it
# pays 1 in every step and never ends; a time limit cuts it off after four.

# %%
GAMMA = 0.5


class Probe(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (1,)), gymnasium.spaces.Discrete(2)

    def __init__(self, kind):
        self.kind = kind

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.state = float(self.np_random.choice((-1, 1))) if self.kind in ("observation", "both") else 0.0
        return np.array([self.state], np.float32), {}

    def step(self, action):
        self.steps += 1
        right = {"action": action == 1, "both": (action == 1) == (self.state > 0)}.get(self.kind)
        reward = {"constant": 1.0, "clock": 1.0, "observation": self.state,
                  "discount": float(self.steps == 2)}.get(self.kind, 1.0 if right else -1.0)
        if self.kind == "discount":
            self.state = 1.0
        ended = {"discount": self.steps == 2, "clock": False}.get(self.kind, True)
        return np.array([self.state], np.float32), reward, ended, self.kind == "clock" and self.steps == 4, {}


VALUES = {"constant": {0: 1}, "observation": {-1: -1, 1: 1}, "discount": {0: GAMMA, 1: 1},
          "clock": {0: 1 / (1 - GAMMA)}}
ACTIONS = {"action": {0: 1}, "both": {-1: 0, 1: 1}}


def passes(kind, seed):
    """Trains on a probe for 2,048 steps; whether all values are within .1, or the right actions above 90 %."""
    result = ppo(lambda: Probe(kind), seed=seed, total_steps=2048, num_envs=16, rollout_steps=8, minibatches=2,
                 lr=2e-2, gamma=GAMMA, hidden=(16,), checkpoint_steps=2048, **QUIET)
    net, wanted = result.policy.module.cpu(), VALUES.get(kind) or ACTIONS[kind]
    states = torch.tensor([[float(s)] for s in wanted])
    with torch.no_grad():
        found = net.value(states) if kind in VALUES else net.pi(states).softmax(-1)[:, 1]
    return bool((found - torch.tensor([float(x) for x in wanted.values()])).abs().max() < 0.1)


PROBES = ["constant", "observation", "discount", "action", "both"]
clean = {kind: [passes(kind, seed) for seed in SEEDS] for kind in PROBES}
print(clean)

# %% tags=["hide-cell", "trained"]
assert all(all(found) for found in clean.values())

# %% [markdown]
# PPO passes all five, on every seed. That is only worth something if a faulty PPO does not.
#
# ## Seven faults
#
# All of them are easily made, and none raises an exception: the sign of the advantages is turned; the discount is
# left out; rewards come a step late; the values `[B, 1]` are compared with the targets `[B]`, which broadcasts to
# `[B, B]`, each value against every target; advantages run on through the end of an episode; a shuffle of the batch
# leaves the observations where they were; the policy's input is lost on the way, while the value function has its
# own.

# %%
surrogate, value_loss, look = source.clipped_surrogate, source.value_loss, ActorCritic.evaluate


def undiscounted(*batch, gamma, lam):
    return gae(*batch, gamma=1.0, lam=lam)


def endless(rewards, values, next_values, terminated, truncated, **settings):
    return gae(rewards, values, next_values, 0 * terminated, 0 * truncated, **settings)


def unshuffled(net, obs, act):
    return look(net, obs.roll(1, 0) if torch.is_grad_enabled() else obs, act)


FAULTS = {
    "sign": patch.object(source, "clipped_surrogate", lambda logp, old, adv, clip: surrogate(logp, old, -adv, clip)),
    "no discount": patch.object(source, "gae", undiscounted),
    "late rewards": patch.object(source, "gae", late),
    "broadcast": patch.object(source, "value_loss", lambda v, y, **clip: value_loss(v[:, None], y[None], **clip)),
    "no end": patch.object(source, "gae", endless),
    "shuffle": patch.object(ActorCritic, "evaluate", unshuffled),
    "blind policy": patch.object(ActorCritic, "params", lambda net, features: net.pi(0 * features)),
}


def caught(fault, kind):
    with fault:
        return sum(not passes(kind, seed) for seed in SEEDS)


table = {name: [caught(fault, kind) for kind in PROBES] for name, fault in FAULTS.items()}
lines = [f"{f'of {len(SEEDS)} seeds, caught by':22}" + "".join(f"{kind:>13}" for kind in PROBES)]
lines += [f"{name:22}" + "".join(f"{n or '-':>13}" for n in row) for name, row in table.items()]
print("\n".join(lines))

# %% tags=["hide-cell", "trained"]
n = len(SEEDS)
WANTED = {"sign": [0, 0, 0, n, n], "no discount": [0, 0, n, 0, 0],
          "broadcast": [0, n, n, 0, 0], "shuffle": [0, n, n, 0, n], "blind policy": [0, 0, 0, 0, n]}
assert all(table[name] == row for name, row in WANTED.items())
assert table["late rewards"][:3] == [0, n, n] and table["no end"][0] == table["no end"][2] == n
assert table["no end"][3:] == [0, 0]
assert len({tuple(x > 0 for x in row) for row in table.values()}) == len(table) == 7

# %% [markdown]
# Every fault is caught, on every seed, by one probe at least, and no two faults leave the same pattern. So the table
# can be read backwards. Only `discount` fails: look at how steps are joined in time. Values are right and actions
# wrong: look at the policy's loss, and at its sign first. `action` passes and `both` fails: the action arrives, what
# it was an answer to does not. Values of `constant` are right and of `observation` wrong: something is averaged,
# shifted or mixed among the steps.
#
# The broadcast is the most instructive one. With it the policy still learns both of its probes: a value function that
# says the same everywhere is a poor baseline, but a baseline. In the returns of these two there is no sign of it.
#
# ## Break the method
#
# Do five passed probes mean that the program is right? Here is an eighth fault: a **truncation**, where only the
# clock ran out, is treated as a **termination**, after which nothing is worth anything.

# %%
def clock_ends(rewards, values, next_values, terminated, truncated, **settings):
    return gae(rewards, values, next_values, torch.maximum(terminated, truncated), 0 * truncated, **settings)


eighth = patch.object(source, "gae", clock_ends)
five, sixth, sound = [caught(eighth, kind) for kind in PROBES], caught(eighth, "clock"), caught(nullcontext(), "clock")
print(f"five probes: {five}; clock: {sixth}, and without the fault {sound}")

# %% tags=["hide-cell", "trained"]
assert not any(five) and sixth == len(SEEDS) and sound == 0

# %% [markdown]
# The five do not see it, since none of them is ever truncated. The sixth does. A probe catches what it was made for;
# each fault that got past them deserves one more. None says whether a step size suits your task, either.
#
# ## The curve is not the result
#
# Now the program is right, and the question is how good its policies are. The `pool` at the top is the same PPO on
# many seeds, 20,000 steps each. For each seed three numbers: the end of the training curve, which is the mean of the
# last 100 episodes of training; the final policy in 100 fresh episodes, its actions drawn as in training; and the
# same with the likeliest action each time.

# %%
ends = np.array([result.progress["return_mean_100"][-1] for result in pool])
fresh = [evaluate(result.policy, "CartPole-v1", episodes=100, deterministic=False) for result in pool]
scores = np.array([found.mean for found in fresh])
likeliest = np.array([evaluate(result.policy, "CartPole-v1", episodes=100).mean for result in pool])

figure, (axes,) = panels()
for values, label, marker, colour in zip((ends, scores, likeliest), ("end of the curve", "fresh, actions drawn",
                                         "fresh, likeliest action"), "osD", COLOURS, strict=False):
    axes.plot(range(1, len(pool) + 1), values, marker, color=colour, label=label, alpha=0.8)
axes.set(title="the same policies, three numbers", xlabel="seed", ylabel="return", ylim=(0, 520))
axes.legend(loc="lower right")
show(figure, "Three marks for each seed: the ends of the curves lie close together below 215; fresh episodes lie higher"
     " on every seed, spread over hundreds.")
print("; ".join(f"{name} {values.min():.0f} to {values.max():.0f}, on average {values.mean():.0f}" for name, values in (
    ("curve", ends), ("fresh, drawn", scores), ("fresh, likeliest", likeliest))))

# %% tags=["hide-cell", "trained"]
assert ends.max() < 215 and np.ptp(ends) < 60 and np.mean(scores > ends) > 0.9
assert scores.max() > 480 and scores.min() < 400
assert np.ptp(scores) > 3 * np.ptp(ends) and np.ptp(scores) > 100 and likeliest.mean() > scores.mean()

# %% [markdown]
# By their curves all seeds are alike, within 60 points of each other. In fresh episodes nearly all of them are
# better, and they differ by more than three times as much: some hold the pole to the end, others do not. A curve
# looks back over policies that are gone, and the faster one learns the older it is. Drawn and likeliest actions are
# two policies, of which the second is better here on average; say which of them you report.
#
# ## Best or last?
#
# Some trainings do not settle. Here is `vpg` with three times its usual step size. Twenty checkpoints of each run are
# kept (the library keeps the last one only; the hook copies each) and measured in ten episodes. The best of them is
# then measured again, in 100 others.

# %%
def measured(module, result, episodes, seed):
    policy = Policy(module, result.policy.observation_space, result.policy.action_space)
    return evaluate(policy, "CartPole-v1", episodes=episodes, seed=seed).mean


figure, (axes,) = panels()
lasts, bests, falls, said = [], [], [], []
for i, seed in enumerate((1, 2, 3)):
    kept = []
    with patch.object(Run, "after_save", lambda run, kept=kept: kept.append(deepcopy(run.parts["policy"]))):
        result = vpg("CartPole-v1", seed=seed, total_steps=60_000, lr=1e-2, **QUIET)
    quick = [measured(module, result, 10, seed=1) for module in kept]
    best = int(np.argmax(quick))
    lasts.append(measured(kept[-1], result, 100, seed=2))
    bests.append(measured(kept[best], result, 100, seed=2))
    axes.plot(np.linspace(3, 60, len(kept)), quick, color=COLOURS[i], linestyle=LINES[i], label=f"seed {seed}")
    falls.append(float(np.max(np.maximum.accumulate(quick) - quick)))
    said.append(f"seed {seed}: last {lasts[-1]:.0f}; best {quick[best]:.0f} where chosen, {bests[-1]:.0f} in others")
print("\n".join(said))
axes.set(title="twenty checkpoints of each run", xlabel="thousand steps", ylabel="return, 10 episodes", ylim=(0, 600))
axes.legend(loc="upper center", ncols=3)
show(figure, "The return of twenty checkpoints of three runs: the lines rise to 450 or more, and two of them fall by"
     " hundreds again.")

# %% tags=["hide-cell", "trained"]
assert min(bests) > 250 and all(b > a - 60 for a, b in zip(lasts, bests, strict=True)) and sorted(falls)[1] > 150

# %% [markdown]
# A policy that was good loses 150 points or more again, and which one is the last is an accident. The best checkpoint
# is a policy of its own right, and it may be the one to use. But «best» is a choice made with noisy numbers, and the
# number by which it was chosen flatters it. Scores of CartPole are cut off at 500, which hides that. Suppose instead
# twenty checkpoints that are all equally good, like the one of the policies above whose episodes vary most, each
# measured in ten episodes:

# %%
rng = np.random.default_rng(0)
episodes = np.array(max(fresh, key=lambda found: np.std(found.returns)).returns)
measurements = rng.choice(episodes, (10_000, 20, 10)).mean(-1)            # [experiments, checkpoints]
flattery, error = measurements.max(1).mean() - episodes.mean(), episodes.std() / np.sqrt(10)
print(f"truly {episodes.mean():.0f}; the best looks {flattery:.0f} better, {flattery / error:.1f} standard errors")

# %% tags=["hide-cell", "trained"]
assert 1.3 < flattery / error < 2.5

# %% [markdown]
# The best of twenty equals looks about two standard errors better than it is. Choose on some episodes, report others.
# The library does so for you as long as you evaluate afterwards: `evaluate` and `spinup eval` never play an episode
# that was trained on.
#
# ## How many seeds?
#
# If one method has $n$ seeds, and another has $n$, and in truth they are the same, all $2n$ scores are equally likely
# to be in any order. The chance that each score of one beats each of the other is then $2\,(n!)^2 / (2n)!$: a third
# for two seeds, a tenth for three. And how large is the gap between the two means? Our trainings above give scores to
# draw from. The gap is between two groups of the *same* method.
#
# An interval says how sure a mean is. The **percentile bootstrap** draws $n$ of the $n$ scores with replacement, takes
# the mean, again and again, and keeps the middle 95 %. With two scores it is simply from the smaller to the larger. It
# covers the true mean only if one score lies on each side of it, which for shares $p$ and $1 - p$ of scores above and
# below happens with a chance of $2p(1 - p)$: at most a half.
#
# **Student's t interval** is $m \pm t\, s / \sqrt{n}$, with the mean $m$ and the standard deviation $s$ of the $n$
# scores. If $s$ were the true deviation, $t$ would be 1.96. But $s$ is estimated from the same few scores, and is often
# too small. The factor $t$ makes up for that: it is 2.0 for many scores, 2.8 for five and 4.3 for three. The library's
# `mean_interval` computes it. If the scores are independent and normal, it covers the true mean 95 times in 100, for
# every $n$. How often do both cover it, for normal scores and for ours?

# %%
def bootstrap(values, resamples=1000):
    """The 95 % percentile bootstrap interval of the mean."""
    means = rng.choice(values, (resamples, len(values))).mean(1)
    return np.quantile(means, [0.025, 0.975])


def coverage(population, n):
    """How often the bootstrap's and Student's interval of n scores cover the mean of all scores."""
    drawn = rng.choice(population, (500, n))
    intervals = np.transpose([bootstrap(values) for values in drawn]), mean_interval(drawn.T)
    return [np.mean((low <= population.mean()) & (population.mean() <= high)) for low, high in intervals]


NUMBERS = (2, 3, 5, 10, 20)
gaps = []
for n in NUMBERS:
    first, second = rng.choice(scores, (2, 20_000, n)).mean(-1)
    gaps.append(np.mean(np.abs(first - second) >= 50))
order = rng.random((2, 100_000, 2))
separate = np.mean((order[0].min(1) > order[1].max(1)) | (order[1].min(1) > order[0].max(1)))
populations = {"normal scores": rng.normal(400, 80, 100_000), "our scores": scores}
covered = {name: np.array([coverage(all_scores, n) for n in NUMBERS]) for name, all_scores in populations.items()}

figure, (left, *others) = panels(3)
left.plot(NUMBERS, gaps, "o-", color=COLOURS[0])
left.set(title="two equal methods, 50 points apart", xlabel="seeds of each", ylabel="chance", ylim=(0, 1),
         xticks=NUMBERS)
for axes, (name, shares) in zip(others, covered.items(), strict=True):
    axes.plot(NUMBERS, shares[:, 0], "s--", color=COLOURS[1], label="percentile bootstrap")
    axes.plot(NUMBERS, shares[:, 1], "o-", color=COLOURS[2], label="Student's t")
    axes.axhline(0.95, color="#444444", linewidth=1, linestyle=":")
    axes.set(title=f"95 % interval covers: {name}", xlabel="seeds", ylabel="chance", ylim=(0, 1), xticks=NUMBERS)
    axes.legend(loc="lower right")
show(figure, "Left: the chance that two equal methods seem 50 points apart falls with the number of seeds. Middle: of"
     " normal scores, Student's interval covers the true mean with a chance of .95 for every number of seeds, and the"
     " bootstrap's rises from a half towards it. Right: of our scores, both are far below .95 for few seeds.")
print("50 points apart:", *(f"{n}: {share:.0%}" for n, share in zip(NUMBERS, gaps, strict=True)))
for name, shares in covered.items():
    for kind, row in zip(("bootstrap", "Student's t"), shares.T, strict=True):
        print(f"{name}, {kind} covers:", *(f"{n}: {share:.0%}" for n, share in zip(NUMBERS, row, strict=True)))

# %% tags=["hide-cell"]
from math import factorial

assert abs(separate - 1 / 3) < 0.01 and 2 * factorial(3) ** 2 / factorial(6) == 0.1
of_bootstrap, of_student = covered["normal scores"].T
assert of_student.min() > 0.9 and of_student.max() < 0.99
assert of_bootstrap[0] < 0.6 and 0.65 < of_bootstrap[1] < 0.81 and 0.77 < of_bootstrap[2] < 0.9
assert of_bootstrap[-1] > 0.87
width = [np.diff(mean_interval(values))[0] * np.sqrt(n) / 2 / np.std(values, ddof=1)
         for n in (3, 5, 1000) for values in [rng.normal(size=n)]]
assert np.allclose(width, (4.30, 2.78, 1.96), atol=0.01)

# %% tags=["hide-cell", "trained"]
assert gaps[0] > 0.25 and gaps[-1] < gaps[0] / 2 and max(gaps[3:]) < min(gaps[:3])
assert np.mean(scores > 499) > 0.25
assert max(covered["our scores"][1]) < 0.85 and min(covered["our scores"][-1]) > 0.75
assert np.diff(covered["our scores"]).min() > -0.05

# %% [markdown]
# With two seeds, two equal methods seem 50 points apart in more than a quarter of all comparisons; with twenty, in
# less than half as many. The percentile bootstrap promises 95 %. Of normal scores, it covers the truth about half the
# time with two seeds, three times in four with three seeds, and is nearly honest from ten seeds on. Student's interval
# keeps the promise for every number of seeds, because its factor grows from 2.0 for many seeds to 4.3 for three. So
# it is wide for three seeds, and rightly: they say little.
#
# It keeps the promise for normal scores. Ours are not: many policies hold the pole to the end and have exactly 500. If
# all the seeds that are drawn have 500, the deviation is 0, and either interval is a single point that misses the mean.
# No formula knows a seed that was never run. Show the single scores beside the interval, and run more seeds.
#
# ## Try it
#
# 1. Plant a fault of your own, such as `patch.object(source, "whiten", lambda x: x)`. Which probe sees it? If none
#    does, is it a fault?
# 2. `spinup exercise start 2.2` is a silent bug, and `spinup exercise start 3.3` the clock that is taken for an end.
# 3. Train the pool for 50,000 steps in place of 20,000. How many seeds does a gap of 50 points now need?
#
# **Next**: [6. Exploration: a chain, novelty, and a noisy television](06_exploration.ipynb).
