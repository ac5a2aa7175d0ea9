# %% [markdown]
# # 5. Debugging: probe environments and honest evaluation
#
# **You will** plant bugs in PPO and find them within seconds, with tiny environments made for this
# purpose. Then you evaluate a policy in a way that gives a meaningful number. **You need**
# notebooks [2](02_policy_gradient.ipynb) and [3](03_ppo_details.ipynb). **Time**: twenty minutes.
# The code runs for about two minutes.
#
# You choose the budget in the first line of the next cell. With `ci`, the notebook needs less than
# two minutes on one CPU core. `cpu` trains on more seeds, and `gpu` does the same on a GPU. If the
# environment variable `SPINUP_BUDGET` is set, it overrides `BUDGET`.

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
from spinup.runs.curve import COLOURS, LINES
from spinup.runs.policy import Policy
from spinup.runs.run import Run
from spinup.view.evaluate import evaluate
from spinup.view.notebook import curves, panels, show, sizes
from spinup.view.statistics import mean_interval

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "pool": 12, "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "pool": 24, "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "pool": 24, "device": "cuda"})
SEEDS, RUNS = SIZE["seeds"], tempfile.mkdtemp()
QUIET = {"log_dir": RUNS, "quiet": True, "tensorboard": False,
         "device": SIZE["device"]}
# Each of the more than 150 runs would draw its curve, which would take half of the time.
_ = patch("spinup.runs.curve.draw_curve").start()

# %% [markdown]
# ## One of these programs has a bug
#
# The next cell trains PPO on CartPole twice. The second program has a bug: the rewards of a batch are
# shifted by one step, so each reward is attributed to the step after the one that earned it.
#
# The cell plants this bug with `unittest.mock.patch`, which replaces a name in a module while the
# `with` block runs. Here the name is `gae`, the function that turns rewards into advantages. Its
# tensors have the shape `[environments, steps]`.

# %%
gae = source.gae


def late(rewards, values, next_values, terminated, truncated, **settings):
    return gae(rewards.roll(1, 1), values, next_values, terminated, truncated,
               **settings)


pool = [ppo("CartPole-v1", seed=seed, total_steps=20_000, **QUIET)
        for seed in range(1, SIZE["pool"] + 1)]
with patch.object(source, "gae", late):
    slipped = [ppo("CartPole-v1", seed=seed, total_steps=20_000, **QUIET)
               for seed in SEEDS]

figure, (axes,) = panels()
curves(axes, {"correct": pool[:len(SEEDS)], "rewards one step late": slipped})
axes.set(title="PPO on CartPole", xlabel="environment steps",
         ylabel="mean return, last 100 episodes", xticks=range(0, 20_001, 5000))
show(figure, "Return against environment steps. The dashed lines of the program with"
     " the bug lie exactly on the solid lines of the correct one. Both rise from 20"
     " to more than 100.")

# %% tags=["hide-cell", "trained"]
same = [a.progress["return_mean_100"] == b.progress["return_mean_100"]
        for a, b in zip(pool, slipped, strict=False)]
assert all(same)
assert all(15 < r.progress["return_mean_100"][0] < 60 for r in slipped)
assert all(r.progress["return_mean_100"][-1] > 100 for r in slipped)

# %% [markdown]
# The curves agree to the last digit. Every step of CartPole gives a reward of 1, so shifting the
# rewards does not change them. A learning curve on a well-known task shows that the program learns.
# It does not show that the program is correct. And if the curve stays flat, it does not show which
# line is wrong.
#
# ## Probe environments
#
# A **probe environment** is so small that you know the correct result in advance. Each probe below
# tests one thing that the earlier ones do not test. The discount $\gamma$ is $\frac12$, so an error
# in it cannot be overlooked.
#
# | probe | steps | observation | reward | correct result |
# |---|---|---|---|---|
# | `constant` | 1 | 0 | 1 | $V(0) = 1$ |
# | `observation` | 1 | $\pm 1$, random | the observation | $V(s) = s$ |
# | `discount` | 2 | 0, then 1 | 0, then 1 | $V(0) = \gamma$, $V(1) = 1$ |
# | `action` | 1 | 0 | 1 for action 1, else $-1$ | $\pi(1 \mid 0) \to 1$ |
# | `both` | 1 | $\pm 1$, random | 1 for action 1 if $s = 1$ and action 0 if $s = -1$; else $-1$ | the rewarded action |
#
# Here $V(s)$ is the value of a state, $\pi(a \mid s)$ the policy, and $r_t$ the reward of step $t$. The
# values follow from $V(s_t) = \mathbb{E}\,[\,\sum_l \gamma^l r_{t+l}\,]$. A sixth probe, `time_limit`,
# is for later. It gives 1 in every step and never terminates, but a time limit truncates it after four
# steps.

# %%
GAMMA = 0.5


class Probe(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, kind):
        self.kind = kind

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.state = 0, 0.0
        if self.kind in ("observation", "both"):
            self.state = float(self.np_random.choice((-1, 1)))
        return np.array([self.state], np.float32), {}

    def step(self, action):
        self.steps += 1
        right = {"action": action == 1,
                 "both": (action == 1) == (self.state > 0)}.get(self.kind)
        reward = {"constant": 1.0, "time_limit": 1.0, "observation": self.state,
                  "discount": float(self.steps == 2)}
        reward = reward.get(self.kind, 1.0 if right else -1.0)
        if self.kind == "discount":
            self.state = 1.0
        terminated = {"discount": self.steps == 2, "time_limit": False}
        terminated = terminated.get(self.kind, True)
        truncated = self.kind == "time_limit" and self.steps == 4
        return np.array([self.state], np.float32), reward, terminated, truncated, {}


VALUES = {"constant": {0: 1}, "observation": {-1: -1, 1: 1},
          "discount": {0: GAMMA, 1: 1}, "time_limit": {0: 1 / (1 - GAMMA)}}
ACTIONS = {"action": {0: 1}, "both": {-1: 0, 1: 1}}


def passes(kind, seed):
    """Train on a probe for 2,048 steps and return whether the result is correct.

    It is correct if each value is within 0.1, or if the probability of each rewarded
    action is above 90 %.
    """
    result = ppo(lambda: Probe(kind), seed=seed, total_steps=2048, num_envs=16,
                 rollout_steps=8, minibatches=2, lr=2e-2, gamma=GAMMA, hidden=(16,),
                 checkpoint_steps=2048, **QUIET)
    net, wanted = result.policy.module.cpu(), VALUES.get(kind) or ACTIONS[kind]
    states = torch.tensor([[float(s)] for s in wanted])
    with torch.no_grad():
        found = (net.value(states) if kind in VALUES
                 else net.pi(states).softmax(-1)[:, 1])
    error = found - torch.tensor([float(x) for x in wanted.values()])
    return bool(error.abs().max() < 0.1)


PROBES = ["constant", "observation", "discount", "action", "both"]
clean = {kind: [passes(kind, seed) for seed in SEEDS] for kind in PROBES}
print(clean)

# %% tags=["hide-cell", "trained"]
assert all(all(found) for found in clean.values())

# %% [markdown]
# PPO passes all five probes on every seed. These probes are only useful if PPO with a bug fails
# them.
#
# ## Seven bugs
#
# Each of these bugs is easily made, and none raises an exception:
#
# - **sign**: the advantages have the wrong sign.
# - **no discount**: the discount is missing.
# - **late rewards**: each reward is attributed to the following step.
# - **broadcast**: the values `[B, 1]` are compared with the targets `[B]`. This broadcasts to
#   `[B, B]`, so each value is compared with every target.
# - **no end**: the advantages continue across the end of an episode.
# - **shuffle**: shuffling the batch leaves the observations in their old order.
# - **blind policy**: the policy's input is lost. The value function still has its input.

# %%
surrogate, value_loss = source.clipped_surrogate, source.value_loss
evaluate_actions = ActorCritic.evaluate


def wrong_sign(logp, logp_old, adv, clip):
    return surrogate(logp, logp_old, -adv, clip)


def undiscounted(*batch, gamma, lam):
    return gae(*batch, gamma=1.0, lam=lam)


def broadcast(value, target, **clip):
    return value_loss(value[:, None], target[None], **clip)


def endless(rewards, values, next_values, terminated, truncated, **settings):
    return gae(rewards, values, next_values, 0 * terminated, 0 * truncated,
               **settings)


def unshuffled(net, obs, act):
    if torch.is_grad_enabled():               # only in the update
        obs = obs.roll(1, 0)
    return evaluate_actions(net, obs, act)


def blind(net, features):
    return net.pi(0 * features)


FAULTS = {
    "sign": patch.object(source, "clipped_surrogate", wrong_sign),
    "no discount": patch.object(source, "gae", undiscounted),
    "late rewards": patch.object(source, "gae", late),
    "broadcast": patch.object(source, "value_loss", broadcast),
    "no end": patch.object(source, "gae", endless),
    "shuffle": patch.object(ActorCritic, "evaluate", unshuffled),
    "blind policy": patch.object(ActorCritic, "params", blind),
}


def caught(fault, kind):
    """The number of seeds on which the probe fails."""
    with fault:
        return sum(not passes(kind, seed) for seed in SEEDS)


table = {name: [caught(fault, kind) for kind in PROBES]
         for name, fault in FAULTS.items()}
header = f"failures, {len(SEEDS)} seeds"
print(f"{header:20}" + "".join(f"{kind:>13}" for kind in PROBES))
for name, row in table.items():
    print(f"{name:20}" + "".join(f"{n or '-':>13}" for n in row))

# %% tags=["hide-cell", "trained"]
n = len(SEEDS)
WANTED = {"sign": [0, 0, 0, n, n], "no discount": [0, 0, n, 0, 0],
          "broadcast": [0, n, n, 0, 0], "shuffle": [0, n, n, 0, n],
          "blind policy": [0, 0, 0, 0, n]}
assert all(table[name] == row for name, row in WANTED.items())
assert table["late rewards"][:3] == [0, n, n]
assert table["no end"][0] == table["no end"][2] == n
assert table["no end"][3:] == [0, 0]
assert len({tuple(x > 0 for x in row) for row in table.values()}) == len(table) == 7

# %% [markdown]
# Each bug is caught on every seed by at least one probe, and no two bugs leave the same pattern. So
# you can read the table backwards, from the pattern to the cause:
#
# - Only `discount` fails: check how steps are connected in time.
# - Values are right and actions are wrong: check the policy loss, and its sign first.
# - Only `both` fails: the action is learned, but the policy does not use the observation.
# - `constant` has the right value and `observation` a wrong one: the program averages, shifts or mixes
#   the steps.
# - `constant` fails: the value function does not learn, or its target contains something from after
#   the end of the episode.
#
# The broadcast bug is the most instructive one. With this bug, the policy still learns the probes
# `action` and `both`. The value function predicts the same value everywhere. This is a poor
# baseline, but it is a baseline. The returns of these two probes show no sign of the bug.
#
# ## Break the method
#
# Do five passed probes prove that the program is correct? Here is an eighth bug. It treats a
# **truncation**, where only a time limit ended the episode, as a **termination**, after which the value
# is 0.

# %%
def truncation_is_end(rewards, values, next_values, terminated, truncated,
                      **settings):
    over = torch.maximum(terminated, truncated)
    return gae(rewards, values, next_values, over, 0 * truncated, **settings)


eighth = patch.object(source, "gae", truncation_is_end)
five = [caught(eighth, kind) for kind in PROBES]
sixth, sound = caught(eighth, "time_limit"), caught(nullcontext(), "time_limit")
print(f"failures with the bug: five probes {five}, time_limit {sixth}")
print(f"failures without the bug: time_limit {sound}")

# %% tags=["hide-cell", "trained"]
assert not any(five) and sixth == len(SEEDS) and sound == 0

# %% [markdown]
# The five probes do not catch this bug, because their episodes are never truncated. The sixth probe
# catches it. A probe only catches the bugs it was made for. Whenever a bug gets past your probes,
# add a probe for it. Also, no probe shows whether a learning rate suits your task.
#
# ## The learning curve is not the result
#
# Now the program is correct. The question is how good its policies are. The `pool` of the first section
# is this PPO on many seeds, with 20,000 steps each. The next cell computes three numbers for each seed:
#
# - the end of the learning curve, which is the mean of the last 100 training episodes;
# - the final policy's mean return in 100 new episodes, with actions sampled as in training;
# - the same mean return, but with the most likely action in each step.

# %%
ends = np.array([result.progress["return_mean_100"][-1] for result in pool])
fresh = [evaluate(result.policy, "CartPole-v1", episodes=100, deterministic=False)
         for result in pool]
scores = np.array([found.mean for found in fresh])
greedy = np.array([evaluate(result.policy, "CartPole-v1", episodes=100).mean
                   for result in pool])

KINDS = {"end of the curve": ends, "new, sampled": scores, "new, most likely": greedy}
figure, (axes,) = panels()
for (name, values), marker, colour in zip(KINDS.items(), "osD", COLOURS,
                                          strict=False):
    axes.plot(range(1, len(pool) + 1), values, marker, color=colour, label=name,
              alpha=0.8)
axes.set(title="one policy per seed, three numbers", xlabel="seed", ylabel="return",
         ylim=(0, 520))
axes.legend(loc="lower right")
show(figure, "Three marks for each seed. The ends of the curves lie close together"
     " below 215. The returns in new episodes are higher on nearly every seed, and"
     " spread over hundreds of points.")
for name, values in KINDS.items():
    print(f"{name:16}: {values.min():.0f} to {values.max():.0f},"
          f" mean {values.mean():.0f}")

# %% tags=["hide-cell", "trained"]
assert ends.max() < 215 and np.ptp(ends) < 60 and np.mean(scores > ends) > 0.9
assert scores.max() > 480 and scores.min() < 400
assert np.ptp(scores) > 3 * np.ptp(ends) and np.ptp(scores) > 100
assert greedy.mean() > scores.mean()

# %% [markdown]
# Judged by the ends of their curves, all seeds look alike: they differ by less than 60 points. In
# new episodes nearly all policies are better than their curves, and they differ more than three
# times as much. Some policies balance the pole to the end, and others do not. A curve averages over
# policies that no longer exist. The faster the policy improves, the more outdated this average is.
#
# Sampled actions and most likely actions are two different policies. Here the policy with the most
# likely actions is better on average. State which of the two policies you report.
#
# ## Best or last?
#
# Some runs do not converge. The next cell runs `vpg` with more than three times the learning rate
# of its preset. It keeps twenty checkpoints of each run and measures each checkpoint in ten
# episodes. (The library keeps only the last checkpoint, so a hook copies each one.) Then the cell
# measures the best checkpoint again, in 100 other episodes.

# %%
def measured(module, result, episodes, seed):
    policy = Policy(module, result.policy.observation_space,
                    result.policy.action_space)
    return evaluate(policy, "CartPole-v1", episodes=episodes, seed=seed).mean


figure, (axes,) = panels()
lasts, bests, falls, report = [], [], [], []
for i, seed in enumerate((1, 2, 3)):
    kept = []

    def keep(run, kept=kept):
        kept.append(deepcopy(run.parts["policy"]))

    with patch.object(Run, "after_save", keep):
        result = vpg("CartPole-v1", seed=seed, total_steps=60_000, lr=1e-2, **QUIET)
    quick = [measured(module, result, 10, seed=1) for module in kept]
    best = int(np.argmax(quick))
    lasts.append(measured(kept[-1], result, 100, seed=2))
    bests.append(measured(kept[best], result, 100, seed=2))
    axes.plot(np.linspace(3, 60, len(kept)), quick, color=COLOURS[i],
              linestyle=LINES[i], label=f"seed {seed}")
    falls.append(float(np.max(np.maximum.accumulate(quick) - quick)))
    report.append(f"seed {seed}: last {lasts[-1]:.0f}; best {quick[best]:.0f} in the"
                  f" selection, {bests[-1]:.0f} in other episodes")
print("\n".join(report))
axes.set(title="twenty checkpoints of each run", xlabel="thousand environment steps",
         ylabel="mean return of 10 episodes", ylim=(0, 600))
axes.legend(loc="upper center", ncols=3)
show(figure, "The return of twenty checkpoints of three runs. The lines rise to 450"
     " or more. At least two of them fall by more than 150 points again.")

# %% tags=["hide-cell", "trained"]
assert min(bests) > 250 and sorted(falls)[1] > 150
assert all(b > a - 60 for a, b in zip(lasts, bests, strict=True))

# %% [markdown]
# A good policy can become worse again by 150 points or more. So it is luck whether the last policy
# is good. The best checkpoint is a valid policy, and you may want to use it. But you selected it by
# a noisy measurement, so this measurement is too high on average.
#
# In CartPole the limit of 500 hides this effect. So suppose that twenty checkpoints are equally
# good. For each one, we sample ten returns of the policy above whose returns vary most:

# %%
rng = np.random.default_rng(0)
episodes = np.array(max(fresh, key=lambda found: np.std(found.returns)).returns)
measurements = rng.choice(episodes, (10_000, 20, 10)).mean(-1)    # 10,000 experiments
flattery = measurements.max(1).mean() - episodes.mean()
error = episodes.std() / np.sqrt(10)
print(f"true mean {episodes.mean():.0f}; the best of twenty looks {flattery:.0f}"
      f" better, {flattery / error:.1f} standard errors")

# %% tags=["hide-cell", "trained"]
assert 1.3 < flattery / error < 2.5

# %% [markdown]
# The best of twenty equal checkpoints looks about two standard errors better than it is. So choose a
# checkpoint with some episodes, and report its return over other episodes. `evaluate` and
# `spinup eval` never play an episode of the training. But two calls with the same `seed` play the same
# episodes. So use one seed to choose a checkpoint, and another seed to report its return.
#
# ## How many seeds?
#
# Suppose that the scores of two methods have the same distribution, and you run each with $n$
# seeds. Without ties, all orders of the $2n$ scores are then equally likely. The probability that
# every score of one method beats every score of the other is $2\,(n!)^2 / (2n)!$. This is a third
# for two seeds and a tenth for three.
#
# How large is the gap between the two means? The next cell samples scores from the runs above, and
# measures the gap between two groups of the *same* method.
#
# A confidence interval shows how certain a mean is. Two kinds are common.
#
# **The percentile bootstrap** samples $n$ of the $n$ scores with replacement and takes their mean. It
# repeats this many times and keeps the middle 95 % of the means. With two scores, the interval goes
# from the smaller to the larger. It contains the true mean only if one score lies on each side of
# this mean. If a share $p$ of all scores is above the mean and $1 - p$ below, this has probability
# $2p(1 - p)$, at most one half.
#
# **Student's t interval** is $m \pm t\, s / \sqrt{n}$, where $m$ is the mean of the $n$ scores and $s$
# is their standard deviation. With the true standard deviation, $t$ would be 1.96. But $s$ is estimated
# from the same few scores and is often too small. The factor $t$ corrects for this. It is 2.0 for many
# scores, 2.8 for five and 4.3 for three. The library's `mean_interval` computes this interval. For
# independent and normal scores it contains the true mean 95 times in 100, for every $n$.
#
# How often does each interval contain the true mean, for normal scores and for ours?

# %%
def bootstrap(values, resamples=1000):
    """The 95 % percentile bootstrap interval of the mean."""
    means = rng.choice(values, (resamples, len(values))).mean(1)
    return np.quantile(means, [0.025, 0.975])


def coverage(population, n):
    """How often the bootstrap interval and Student's interval of n scores contain the
    mean of the population."""
    samples = rng.choice(population, (500, n))
    intervals = (np.transpose([bootstrap(values) for values in samples]),
                 mean_interval(samples.T))
    return [np.mean((low <= population.mean()) & (population.mean() <= high))
            for low, high in intervals]


NUMBERS = (2, 3, 5, 10, 20)
gaps = []
for n in NUMBERS:
    first, second = rng.choice(scores, (2, 20_000, n)).mean(-1)
    gaps.append(np.mean(np.abs(first - second) >= 50))
order = rng.random((2, 100_000, 2))
separate = np.mean((order[0].min(1) > order[1].max(1))
                   | (order[1].min(1) > order[0].max(1)))
populations = {"normal scores": rng.normal(400, 80, 100_000), "our scores": scores}
covered = {name: np.array([coverage(all_scores, n) for n in NUMBERS])
           for name, all_scores in populations.items()}

figure, (left, *others) = panels(3)
left.plot(NUMBERS, gaps, "o-", color=COLOURS[0])
left.set(title="equal methods, means differ by 50", xlabel="seeds per method",
         ylabel="probability", ylim=(0, 1), xticks=NUMBERS)
for axes, (name, shares) in zip(others, covered.items(), strict=True):
    axes.plot(NUMBERS, shares[:, 0], "s--", color=COLOURS[1],
              label="percentile bootstrap")
    axes.plot(NUMBERS, shares[:, 1], "o-", color=COLOURS[2], label="Student's t")
    axes.axhline(0.95, color="#444444", linewidth=1, linestyle=":")
    axes.set(title=f"coverage of 95 % intervals, {name}", xlabel="seeds",
             ylabel="probability", ylim=(0, 1), xticks=NUMBERS)
    axes.legend(loc="lower right")
show(figure, "Left: the probability that the means of two equal methods differ by 50"
     " points is above .6 with two and three seeds, and falls to .2 with twenty. Middle: for normal scores, Student's"
     " interval contains the true mean with probability .95 for every number of"
     " seeds; the bootstrap interval starts at one half and rises towards .95."
     " Right: for our scores, both are far below .95 with few seeds.")
print("50 points apart:", *(f"{n}: {share:.0%}"
                            for n, share in zip(NUMBERS, gaps, strict=True)))
for name, shares in covered.items():
    for kind, row in zip(("bootstrap", "Student's t"), shares.T, strict=True):
        print(f"{name}, coverage of {kind}:",
              *(f"{n}: {share:.0%}" for n, share in zip(NUMBERS, row, strict=True)))

# %% tags=["hide-cell"]
from math import factorial

assert abs(separate - 1 / 3) < 0.01 and 2 * factorial(3) ** 2 / factorial(6) == 0.1
of_bootstrap, of_student = covered["normal scores"].T
assert of_student.min() > 0.9 and of_student.max() < 0.99
assert of_bootstrap[0] < 0.6 and 0.65 < of_bootstrap[1] < 0.81
assert 0.77 < of_bootstrap[2] < 0.9 and of_bootstrap[-1] > 0.87
width = [np.diff(mean_interval(values))[0] * np.sqrt(n) / 2 / np.std(values, ddof=1)
         for n in (3, 5, 1000) for values in [rng.normal(size=n)]]
assert np.allclose(width, (4.30, 2.78, 1.96), atol=0.01)

# %% tags=["hide-cell", "trained"]
assert gaps[0] > 0.25 and gaps[-1] < gaps[0] / 2 and max(gaps[3:]) < min(gaps[:3])
assert np.mean(scores > 499) > 0.25
assert max(covered["our scores"][1]) < 0.85 and min(covered["our scores"][-1]) > 0.75
assert np.diff(covered["our scores"]).min() > -0.05

# %% [markdown]
# With two or three seeds, two equal methods differ by at least 50 points in about two of three
# comparisons. With twenty seeds, this happens in one of five.
#
# The percentile bootstrap promises 95 %. For normal scores it contains the true mean about half the
# time with two seeds, and three times in four with three seeds. With ten seeds it contains the true
# mean about 90 times in 100, and with twenty about 92 times. Student's interval is correct for
# every number of seeds. Its factor grows from 2.0 for many seeds to 4.3 for three, so the interval
# of three seeds is wide. It should be wide, because three seeds show little.
#
# But Student's interval is only correct for normal scores. Ours are not normal, because many policies
# balance the pole to the end and score exactly 500. If all sampled seeds score 500, the standard
# deviation is 0, and both intervals are a single point that misses the mean. No formula can account
# for a seed that was never run. Report the individual scores next to the interval, and run more
# seeds.
#
# ## Try it
#
# 1. Plant your own bug, such as `patch.object(source, "whiten", lambda x: x)`, which skips the
#    normalisation of advantages. Which probe catches it? If none does, is it a bug?
#
#    <details><summary>Answer</summary>
#
#    In a check, all six probes passed on three seeds without normalisation, and CartPole still
#    learned. Normalisation changes the scale of the advantages and subtracts a common baseline. It
#    does not change which action is better, and these probes test only this. Its absence is a bug
#    only if the program is meant to normalise. In notebook 3, with ten seeds, PPO learns more
#    slowly on Acrobot without normalisation, on average.
#
#    </details>
#
# 2. In the folder of your exercises, run `spinup exercise start 2.2` to find a silent bug, and
#    `spinup exercise start 3.3` to treat truncations correctly.
#
# 3. Train the pool for 50,000 steps instead of 20,000. Suppose two methods are equal. With how many
#    seeds is a gap of 50 points between them unlikely?
#
#    <details><summary>Answer</summary>
#
#    Far fewer seeds are enough than with 20,000 steps. In a check with twelve seeds, eleven
#    policies scored 500 and one scored 396. Two equal methods then differ by 50 points in 27 % of
#    the comparisons with two seeds. With three seeds they do so in 3 %, and with five in less than
#    1 %. But the limit of 500 now hides differences. If two methods both reach this limit, the
#    score cannot compare them.
#
#    </details>
#
# **Next**: [6. Exploration: a chain, novelty, and a noisy television](06_exploration.ipynb).
