# %% [markdown]
# # 4. DQN and overestimation
#
# **You will** see why the largest of several noisy estimates is too large, compute by how much, watch the error grow
# in a problem whose true values are known, find a case where it does harm and one where it does none, and measure
# both DQN and double DQN on CartPole. **You need** the first notebook, and what a mean and a normal distribution are.
# **Time**: thirty minutes of reading, of which the computer works for one.
#
# The one choice of this notebook is its budget. `ci` takes a CPU core about a minute; `cpu` trains on more seeds;
# `gpu` does the same on a GPU. The environment variable `SPINUP_BUDGET` goes before it.

# %%
BUDGET = "ci"

import tempfile
from functools import partial

import gymnasium
import numpy as np
import torch
from scipy.stats import norm

from spinup import dqn
from spinup.algos.dqn import greedy_value, td_target
from spinup.envs import make
from spinup.view.notebook import curves, panels, show, sizes
from spinup.view.plots import COLOURS
from spinup.view.statistics import mean_interval

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "worlds": 20, "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "worlds": 40, "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "worlds": 40, "device": "cuda"})
QUIET = {"log_dir": tempfile.mkdtemp(), "quiet": True, "tensorboard": False, "device": SIZE["device"],
         "checkpoint_steps": 1_000_000}                                   # none before the end

# %% [markdown]
# ## Who chooses should not judge
#
# $Q(s, a)$ is what action $a$ is worth in state $s$: the discounted rewards from there on. DQN does not know it; it
# has estimates, and takes the largest one for the worth of the best action. Suppose that there are $n$ actions, all
# worth 0, and that each estimate is off by an independent normal error of deviation $\sigma$. Each estimate is right
# on average. Their maximum is not: it takes the action that was overrated most. Its mean is $c_n \sigma$ with
#
# $$c_n = \int x\; n\, \varphi(x)\, \Phi(x)^{n-1}\, dx, \qquad c_2 = 1 / \sqrt{\pi}, \quad c_3 = 3 / (2 \sqrt{\pi}),$$
#
# where $\varphi$ and $\Phi$ are the density and the distribution function of the normal distribution.
#
# The cure is a second, independent set of estimates: the first chooses the action, the second says what it is worth.
# Then errors in the choice are not errors in the judgement. With two actions, worth 0 and $-\Delta$, this double
# estimate has the mean $-\Delta\, \Phi(-\Delta / \sqrt{2} \sigma)$, the loss if the wrong one is chosen, times how
# often that happens: never above the truth, and sometimes below. The library has both in `greedy_value`.

# %%
def c(n):
    x = np.linspace(-9, 9, 20_001)
    return float((x * n * norm.pdf(x) * norm.cdf(x) ** (n - 1)).sum() * (x[1] - x[0]))


generator = torch.Generator().manual_seed(1)
ACTIONS, GAPS, CASES = (1, 2, 3, 5, 10, 20), np.linspace(0, 4, 9), 100_000
one, two = [], []
for worths in [torch.zeros(n) for n in ACTIONS] + [torch.tensor([0.0, -gap]) for gap in GAPS]:
    estimates, others = worths + torch.randn(2, CASES, len(worths), generator=generator)
    one.append(greedy_value(estimates).mean().item())
    two.append(greedy_value(others, estimates).mean().item())             # `estimates` choose, `others` judge
k, far = len(ACTIONS), GAPS / 2 ** 0.5
figure, (left, right) = panels(2)
left.plot(ACTIONS, [c(n) for n in ACTIONS], color=COLOURS[0], linewidth=2, label="maximum")
left.plot(ACTIONS, [0] * k, color=COLOURS[1], linewidth=2, linestyle="--", label="double")
right.plot(GAPS, 2 ** 0.5 * norm.pdf(far) - GAPS * norm.cdf(-far), color=COLOURS[0], linewidth=2, label="maximum")
right.plot(GAPS, -GAPS * norm.cdf(-far), color=COLOURS[1], linewidth=2, linestyle="--", label="double")
for axes, x, part in ((left, ACTIONS, slice(k)), (right, GAPS, slice(k, None))):
    axes.plot(x, one[part], "o", color=COLOURS[0])
    axes.plot(x, two[part], "s", color=COLOURS[1])
    axes.legend()
left.set(title="all actions worth 0", xlabel="number of actions", ylabel="error of the estimate (sigma)",
         xticks=(1, 5, 10, 15, 20))
right.set(title="two actions", xlabel="how much worse the second is (sigma)")
show(figure, "Left: the error of the maximum rises with the number of actions to almost 1.9 at 20, that of the double"
     " estimate stays 0. Right: with two actions the first falls from 0.56 to 0 as they differ more, and the second"
     " dips below 0 between. Simulated dots lie on the lines.")

# %% tags=["hide-cell"]
exact = [c(n) for n in ACTIONS] + list(2 ** 0.5 * norm.pdf(far) - GAPS * norm.cdf(-far))
exact_two = [0] * k + list(-GAPS * norm.cdf(-far))
assert np.allclose(one, exact, rtol=0, atol=0.02) and np.allclose(two, exact_two, rtol=0, atol=0.02)
assert np.allclose([c(2), c(3)], [np.pi ** -0.5, 1.5 * np.pi ** -0.5], rtol=0, atol=1e-6)
assert 1.5 < c(10) < 1.6 and 1.8 < c(20) < 1.9 and min(exact_two) < -0.2 and max(exact_two) <= 0

# %% [markdown]
# Ten actions are overrated by 1.5 deviations. The double estimate errs in the other direction, and not at all where
# all actions are worth the same.
#
# ## It grows
#
# Q-learning puts the maximum into the target of the state before, $y = r + \gamma \max_a Q'(s', a)$, so that an error
# $e$ of one step comes back as $e + \gamma e + \gamma^2 e + \ldots = e / (1 - \gamma)$. Let us check in problems
# whose true values are known: random worlds of ten states and five actions, $\gamma = 0.9$, where each reward is its
# mean and a standard normal error. A table of estimates begins at the truth $Q^*$, found by value iteration. Then
# every state and action is tried 2,000 times, and its estimate goes a tenth of the way to the target. $Q'$ is a copy
# of the table, renewed every so many tries. Double DQN lets the table choose and the copy judge.

# %%
STATES, GAMMA, STEP = 10, 0.9, 0.1


def worlds(n, spread, seed):
    """Where actions lead, [n, s, a, s'], mean rewards, [n, s, a], and their true values."""
    rng = np.random.default_rng(seed)
    P = torch.from_numpy(rng.dirichlet(np.full(STATES, 0.3), size=(n, STATES, 5)))
    R, Q = torch.from_numpy(spread * rng.standard_normal((n, STATES, 5))), torch.zeros(n, STATES, 5)
    for _ in range(300):
        Q = R + GAMMA * torch.einsum("nsat,nt->nsa", P, greedy_value(Q).double())
    return P, R, Q


def learn(P, R, Q, double, renew, tries=2000):
    """For each world the mean error of max Q, and how much the greedy policy loses, over the second half."""
    rng, n, table, copy = np.random.default_rng(1), len(Q), Q.clone(), Q.clone()
    until, error, loss = P.cumsum(-1).numpy(), [], []
    for k in range(tries):
        to = torch.from_numpy((rng.random((n, STATES, 5, 1)) > until).sum(-1).clip(max=STATES - 1))
        follows = greedy_value(copy, table if double else None)           # [n, s]
        y = td_target(R + torch.from_numpy(rng.standard_normal(R.shape)), GAMMA, torch.zeros(()),
                      follows.gather(1, to.flatten(1)).view_as(R))
        table += STEP * (y - table)
        if (k + 1) % renew == 0:
            copy = table.clone()
        if k >= tries / 2 and k % 20 == 0:
            error.append((greedy_value(table) - greedy_value(Q)).mean(1))
            best = table.argmax(-1)[..., None]                            # [n, s, 1]
            p = P.gather(2, best[..., None].expand(-1, -1, -1, STATES))[:, :, 0]
            true = torch.linalg.solve(torch.eye(STATES) - GAMMA * p, R.gather(2, best))[..., 0]
            loss.append((greedy_value(Q) - true).mean(1))
    return torch.stack(error).mean(0).numpy(), torch.stack(loss).mean(0).numpy()


equal, _ = learn(*worlds(SIZE["worlds"], 0.0, seed=1), double=False, renew=10)
NOISE = (STEP / (2 - STEP)) ** 0.5                                        # deviation of a mean that forgets so fast
print(f"all actions alike: an error of {c(5) * NOISE:.2f} in one step, {c(5) * NOISE / (1 - GAMMA):.2f} expected in the"
      f" end, {equal.mean():.2f} measured")
RENEW, some = (1, 3, 10, 30), worlds(SIZE["worlds"], 0.3, seed=2)
tables = {name: [learn(*some, double, renew) for renew in RENEW] for name, double in (("DQN", 0), ("double DQN", 1))}
figure, both = panels(2)
TITLES = ("error of the values", "worth that the greedy policy loses")
for i, (axes, title) in enumerate(zip(both, TITLES, strict=True)):
    for (name, found), colour, mark in zip(tables.items(), COLOURS, ("o-", "s--"), strict=False):
        low, high = zip(*(mean_interval(x[i]) for x in found), strict=True)
        axes.fill_between(RENEW, low, high, color=colour, alpha=0.15)
        axes.plot(RENEW, [x[i].mean() for x in found], mark, color=colour, linewidth=2, label=name)
    axes.set(title=title, xlabel="tries between renewals of the copy", xscale="log", xticks=RENEW, xticklabels=RENEW)
    axes.legend(loc="lower left")
both[1].set(ylim=(0, None))
show(figure, "Left: the error of DQN is near 1 however often the copy is renewed; that of double DQN falls from the"
     " same height to below 0 as the copy gets older. Right: both greedy policies lose the same, about 0.75.")

# %% tags=["hide-cell"]
error, loss = ({name: [x[i].mean() for x in found] for name, found in tables.items()} for i in (0, 1))
worth = float(greedy_value(some[2]).mean())
assert abs(equal.mean() / (c(5) * NOISE / (1 - GAMMA)) - 1) < 0.15 and 3 < worth < 4
assert min(error["DQN"]) > 0.7 and max(error["DQN"]) < 1.3 and np.isclose(error["DQN"][0], error["double DQN"][0])
assert np.diff(error["double DQN"]).max() < 0 and error["double DQN"][-1] < -0.1
share = np.array([*loss["DQN"], *loss["double DQN"]]) / worth
assert share.min() > 0.1 and share.max() < 0.35
assert max(abs(x / y - 1) for x, y in zip(*loss.values(), strict=True)) < 0.1

# %% [markdown]
# Where all actions are alike, the closed form holds. Where they differ, the error of DQN is smaller, but still near
# 1, of values between 3 and 4 on average. Double DQN is no clean cure: copy and table have learned from the same
# rewards. If the copy is renewed after every try, both make the same errors, and nothing is gained. The older it
# gets, the more it is a judge of its own, and the error falls, through 0, to below it.
#
# And yet the right picture: the greedy policies are equally good, within a tenth. What they lose, more than a tenth
# of what there is, they lose to the noise in their tables, which makes them choose wrongly, and not to the error that
# all actions have in common. A policy asks which action is the best, not how good it is. To add the same to all
# changes nothing.
#
# ## Where it does harm
#
# It does harm where the error is not the same everywhere. A fork: to the right one goes home, and gets 0. To the left
# is a hall with slot machines, each of which pays -0.2 on average, with a deviation of 1. Nobody should go there. But
# the more machines there are, the better the best of them looks. By the formula above it is expected to look better
# than home where $c_n$ times the deviation of an estimate is above 0.2, which is so from four machines on.

# %%
def fork(machines, double, learners=500, tries=1000):
    """How often a learner would rather gamble than go home, over the second half."""
    generator, gambling = torch.Generator().manual_seed(1), []
    first, second, hall = torch.zeros(learners, machines), torch.zeros(learners, machines), torch.zeros(learners)
    for k in range(tries):
        for table in (first, second):
            table += STEP * (-0.2 + torch.randn(learners, machines, generator=generator) - table)
        hall += STEP * (greedy_value(second, first if double else None) - hall)
        if k >= tries / 2:
            gambling.append((hall > 0).float().mean().item())
    return np.mean(gambling)


MACHINES = (1, 2, 3, 4, 5, 10, 20)
wrong = {name: [fork(n, double) for n in MACHINES] for name, double in (("maximum", False), ("double", True))}
figure, (axes,) = panels()
for (name, shares), colour, mark in zip(wrong.items(), COLOURS, ("o-", "s--"), strict=False):
    axes.plot(MACHINES, shares, mark, color=colour, linewidth=2, label=name)
axes.set(title="learners that would gamble", xlabel="machines", ylabel="share", ylim=(0, 1.02),
         xticks=(1, 5, 10, 15, 20))
axes.legend()
show(figure, "Share of learners that prefer the hall, against the number of machines: with the maximum it rises from a"
     " tenth to all of them, with the double estimate it stays below a fifth.")

# %% tags=["hide-cell"]
assert c(3) * NOISE < 0.2 < c(4) * NOISE and wrong["maximum"][3] > 0.5 > wrong["maximum"][1]
assert np.diff(wrong["maximum"]).min() > -0.02 and wrong["maximum"][-2] > 0.9 and max(wrong["double"]) < 0.2

# %% [markdown]
# With ten machines more than nine learners in ten would gamble for ever. With the double estimate fewer than one in
# five would, however many machines there are. Here the two sets of estimates are truly independent, each with pulls
# of its own.
#
# ## DQN on CartPole
#
# What does the network of DQN believe? With $\gamma = 0.95$ no state of CartPole is worth more than
# $1 / (1 - 0.95) = 20$, so whatever is above 20 is overestimated. To **break it**, the rewards get a normal error of
# deviation 3. That leaves all true values as they are; but it is noise that a maximum can pick from.

# %%
class Noisy(gymnasium.Wrapper):
    """CartPole with a normal error on each reward, of mean 0: true values are as they were."""

    def __init__(self, deviation):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.deviation = deviation

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        return obs, reward + self.deviation * self.unwrapped.np_random.standard_normal(), *rest


def at_start(policy, episodes=20):
    """What a network promises for the first states, and what its greedy policy gets from them; both discounted."""
    envs = make("CartPole-v1", episodes, seed=1_000_000)
    obs, weight, total = envs.reset(), np.ones(episodes), np.zeros(episodes)
    promised = policy.outputs(obs)[0].max(-1).mean()
    while weight.max() > 1e-6:
        step = envs.step(policy.act_batch(obs))
        obs, total, weight = step.obs, total + weight * step.reward, weight * 0.95 * ~(step.terminated | step.truncated)
    return promised, total.mean()


SETTINGS = {"total_steps": 12_000, "gamma": 0.95, "lr": 2.3e-3, "hidden": (64, 64), "batch_size": 64, "n_steps": 1,
            "explore": 0.3, "learning_starts": 500, "update_every": 64, "update_ratio": 0.25, "target_every": 16}
trained = {noise: {name: [dqn(partial(Noisy, noise), seed=seed, double=double, **SETTINGS, **QUIET)
                          for seed in SIZE["seeds"]] for name, double in (("DQN", False), ("double DQN", True))}
           for noise in (0, 3)}
figure, both = panels(2)
for axes, (noise, runs) in zip(both, trained.items(), strict=True):
    curves(axes, runs, "q")
    axes.axhline(20, color="#444444", linewidth=1, linestyle=":")
    axes.set(title=f"CartPole, noise {noise}", xlabel="environment steps", ylabel="mean Q of a batch", ylim=(0, 40))
    axes.legend(loc="lower right")
show(figure, "Mean of Q over training. Left, without noise: DQN and double DQN settle together near the dotted line at"
     " 20. Right, with noise: DQN settles above the line, double DQN nearer to it.")

starts = {(noise, name): np.array([at_start(run.policy) for run in results])
          for noise, runs in trained.items() for name, results in runs.items()}
later = {(noise, name): [np.mean(run.progress["q"][len(run.progress["q"]) // 2:]) for run in results]
         for noise, runs in trained.items() for name, results in runs.items()}
for (noise, name), found in starts.items():
    low, high = mean_interval(later[noise, name])
    print(f"noise {noise}, {name:10}: mean Q over the second half {np.mean(later[noise, name]):.1f} ({low:.1f} to"
          f" {high:.1f}); promises {found[:, 0].mean():.1f} and gets {found[:, 1].mean():.1f}")

# %% tags=["hide-cell", "trained"]
promised = {case: found[:, 0].mean() for case, found in starts.items()}
assert all(20.2 < promised[0, name] < 23.5 and promised[3, name] > 21.5 for name in ("DQN", "double DQN"))
assert np.mean(later[3, "DQN"]) > np.mean(later[3, "double DQN"]) + 1 and np.mean(later[3, "DQN"]) > 21.5
assert abs(np.mean(later[0, "DQN"]) - np.mean(later[0, "double DQN"])) < 1.5
assert min(found[:, 1].min() for found in starts.values()) > 19

# %% [markdown]
# The dotted line is the largest possible value. Without noise the difference between both is small, and what they
# promise for the first states is too much by a few percent: a network errs, too, and a maximum of its errors is
# taken. With noise DQN believes in values that do not exist, and double DQN is lower, by more than 1 on average. What
# it promises at the end is too much all the same: its judge is a copy sixteen steps old.
#
# Now look at what they get. Every single one of these policies gets more than 19 of the 20 that are possible, however
# wrong its values are. Overestimation is real, double DQN makes it smaller, and for the policy it does not matter
# here. It would where errors differ between actions, as at the fork.
#
# ## Try it
#
# 1. Let `STEP` fall as one over the number of tries in `fork`. Do the learners still gamble?
# 2. Train with `target_every` 4 and 64. What does the table of the random worlds make you expect of double DQN?
# 3. `spinup exercise start 3.4` has you write the target of double DQN.
#
# **Next**: [5. Debugging, with probe environments and honest evaluation](05_debugging.ipynb).
