# %% [markdown]
# # 4. DQN and overestimation
#
# **You will** see why the maximum of several noisy estimates is too large, and compute by how much. You
# watch this error grow in problems whose true values are known. You find a case where it hurts the
# policy and a case where it does not. Then you measure DQN and double DQN on CartPole. **You need** the
# first notebook, [Introduction 1](../docs/intro/1_problem.md) from "Discount" to "Bellman equations",
# and the mean and the normal distribution. **Time**: thirty minutes. The code runs for
# about one minute.
#
# You choose the budget in the first line of the next cell. With `ci`, the notebook needs about a minute
# on one CPU core. `cpu` trains on more seeds, and `gpu` does the same on a GPU. If the environment
# variable `SPINUP_BUDGET` is set, it overrides `BUDGET`.

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
from spinup.runs.curve import COLOURS
from spinup.view.notebook import curves, panels, show, sizes
from spinup.view.statistics import mean_interval

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "mdps": 20, "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "mdps": 40, "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "mdps": 40, "device": "cuda"})
QUIET = {"log_dir": tempfile.mkdtemp(), "quiet": True, "tensorboard": False,
         "device": SIZE["device"],
         "checkpoint_steps": 1_000_000}       # a checkpoint only at the end

# %% [markdown]
# ## The maximum selects overestimates
#
# $Q(s, a)$ is the value of action $a$ in state $s$: the expected discounted return after taking $a$.
# DQN (deep Q-network) does not know this value and learns estimates of it. DQN uses the largest
# estimate as the value of the best action.
#
# Suppose that there are $n$ actions with true value 0. Each estimate has an independent normal
# error with standard deviation $\sigma$. Each estimate is unbiased. But the maximum of the estimates is
# biased, because it selects the action with the largest error. The mean of the maximum is $c_n \sigma$
# with
#
# $$c_n = \int x\; n\, \varphi(x)\, \Phi(x)^{n-1}\, dx, \qquad c_2 = 1 / \sqrt{\pi}, \quad c_3 = 3 /
# (2 \sqrt{\pi}),$$
#
# where $\varphi$ is the density and $\Phi$ the distribution function of the standard normal
# distribution.
#
# The remedy is a second, independent set of estimates. The first set chooses the action, and the second
# set evaluates it. Then the error that led to the choice does not enter the value. This is the
# **double** estimate. For two actions with true values 0 and $-\Delta$, its mean is
# $-\Delta\, \Phi(-\Delta / (\sqrt{2}\, \sigma))$: the loss from the wrong choice times the probability
# of that choice. So the mean of the double estimate is never above the true maximum, and sometimes
# below it. The library's `greedy_value` computes both estimates.

# %%
def c(n):
    x = np.linspace(-9, 9, 20_001)
    return float((x * n * norm.pdf(x) * norm.cdf(x) ** (n - 1)).sum() * (x[1] - x[0]))


generator = torch.Generator().manual_seed(1)
ACTIONS, GAPS, CASES = (1, 2, 3, 5, 10, 20), np.linspace(0, 4, 9), 100_000
one, two = [], []
for values in ([torch.zeros(n) for n in ACTIONS]
               + [torch.tensor([0.0, -gap]) for gap in GAPS]):
    noise = torch.randn(2, CASES, len(values), generator=generator)
    first, second = values + noise
    one.append(greedy_value(first).mean().item())
    two.append(greedy_value(second, first).mean().item())     # first chooses
k, far = len(ACTIONS), GAPS / 2 ** 0.5
figure, (left, right) = panels(2)
left.plot(ACTIONS, [c(n) for n in ACTIONS], color=COLOURS[0], linewidth=2,
          label="maximum")
left.plot(ACTIONS, [0] * k, color=COLOURS[1], linewidth=2, linestyle="--",
          label="double")
right.plot(GAPS, 2 ** 0.5 * norm.pdf(far) - GAPS * norm.cdf(-far), color=COLOURS[0],
           linewidth=2, label="maximum")
right.plot(GAPS, -GAPS * norm.cdf(-far), color=COLOURS[1], linewidth=2,
           linestyle="--", label="double")
for axes, x, part in ((left, ACTIONS, slice(k)), (right, GAPS, slice(k, None))):
    axes.plot(x, one[part], "o", color=COLOURS[0])
    axes.plot(x, two[part], "s", color=COLOURS[1])
    axes.legend()
left.set(title="actions of equal value", xlabel="number of actions",
         ylabel="mean error (in units of sigma)", xticks=(1, 5, 10, 15, 20))
right.set(title="two actions", xlabel="gap between their values (in units of sigma)")
show(figure, "Left: the mean error of the maximum rises with the number of actions"
     " to almost 1.9 at 20; that of the double estimate stays 0. Right: with two"
     " actions, the error of the maximum falls from 0.56 to 0 as the gap grows, and"
     " the error of the double estimate dips below 0 in between. Simulated dots lie"
     " on the lines.")

# %% tags=["hide-cell"]
exact = [c(n) for n in ACTIONS]
exact += list(2 ** 0.5 * norm.pdf(far) - GAPS * norm.cdf(-far))
exact_two = [0] * k + list(-GAPS * norm.cdf(-far))
assert np.allclose(one, exact, rtol=0, atol=0.02)
assert np.allclose(two, exact_two, rtol=0, atol=0.02)
assert np.allclose([c(2), c(3)], [np.pi ** -0.5, 1.5 * np.pi ** -0.5], rtol=0,
                   atol=1e-6)
assert 1.5 < c(10) < 1.6 and 1.8 < c(20) < 1.9
assert min(exact_two) < -0.2 and max(exact_two) <= 0

# %% [markdown]
# With ten actions, the maximum is too large by 1.5 standard deviations. The double estimate errs in
# the other direction. Its mean error is 0 when all actions have the same value.
#
# ## Bootstrapping amplifies the error
#
# Q-learning uses the maximum in the target of the previous state, $y = r + \gamma \max_a Q'(s', a)$.
# Here $r$ is the reward, $\gamma$ the discount and $s'$ the next state. $Q'$ is the target table, an
# older copy of the estimates. So an error $e$ of one step adds up over many steps:
# $e + \gamma e + \gamma^2 e + \ldots = e / (1 - \gamma)$.
#
# Let us check this in problems with known values: random Markov decision processes (MDPs) with ten
# states, five actions and $\gamma = 0.9$. Each reward is its mean plus a standard normal error. A table
# of estimates starts at the true values $Q^*$, which value iteration computes. Then each pair of state
# and action gets 2,000 updates. An update moves the estimate one tenth of the way to the target. The
# target table $Q'$ is renewed every few updates. In double DQN, the current table chooses the action
# and the target table evaluates it.

# %%
STATES, GAMMA, STEP = 10, 0.9, 0.1


def random_mdps(n, spread, seed):
    """Transition probabilities [n, s, a, s'], mean rewards and true Q, [n, s, a]."""
    rng = np.random.default_rng(seed)
    P = torch.from_numpy(rng.dirichlet(np.full(STATES, 0.3), size=(n, STATES, 5)))
    R = torch.from_numpy(spread * rng.standard_normal((n, STATES, 5)))
    Q = torch.zeros(n, STATES, 5)
    for _ in range(300):
        Q = R + GAMMA * torch.einsum("nsat,nt->nsa", P, greedy_value(Q).double())
    return P, R, Q


def learn(P, R, Q, double, renew, updates=2000):
    """For each MDP the mean error of max Q and the value lost by the greedy policy.

    Both are averages over the second half of the updates. The target table is renewed
    after every `renew` updates.
    """
    rng, n, table, target = np.random.default_rng(1), len(Q), Q.clone(), Q.clone()
    until, error, loss = P.cumsum(-1).numpy(), [], []
    for k in range(updates):
        to = (rng.random((n, STATES, 5, 1)) > until).sum(-1).clip(max=STATES - 1)
        to = torch.from_numpy(to)                                     # s', [n, s, a]
        next_value = greedy_value(target, table if double else None)  # [n, s]
        y = td_target(R + torch.from_numpy(rng.standard_normal(R.shape)), GAMMA,
                      torch.zeros(()),
                      next_value.gather(1, to.flatten(1)).view_as(R))
        table += STEP * (y - table)
        if (k + 1) % renew == 0:
            target = table.clone()
        if k >= updates / 2 and k % 20 == 0:
            error.append((greedy_value(table) - greedy_value(Q)).mean(1))
            best = table.argmax(-1)[..., None]                        # [n, s, 1]
            p = P.gather(2, best[..., None].expand(-1, -1, -1, STATES))[:, :, 0]
            true = torch.linalg.solve(torch.eye(STATES) - GAMMA * p,
                                      R.gather(2, best))
            loss.append((greedy_value(Q) - true[..., 0]).mean(1))
    return torch.stack(error).mean(0).numpy(), torch.stack(loss).mean(0).numpy()


equal, _ = learn(*random_mdps(SIZE["mdps"], 0.0, seed=1), double=False, renew=10)
# Standard deviation of an estimate that each update moves by STEP to a noisy target.
NOISE = (STEP / (2 - STEP)) ** 0.5
print(f"all actions alike: error of one step {c(5) * NOISE:.2f};"
      f" after bootstrapping {c(5) * NOISE / (1 - GAMMA):.2f} expected,"
      f" {equal.mean():.2f} measured")
RENEW, some = (1, 3, 10, 30), random_mdps(SIZE["mdps"], 0.3, seed=2)
tables = {name: [learn(*some, double, renew) for renew in RENEW]
          for name, double in (("DQN", 0), ("double DQN", 1))}
figure, both = panels(2)
TITLES = ("error of the values", "value lost by the greedy policy")
for i, (axes, title) in enumerate(zip(both, TITLES, strict=True)):
    for (name, found), colour, mark in zip(tables.items(), COLOURS, ("o-", "s--"),
                                           strict=False):
        low, high = zip(*(mean_interval(x[i]) for x in found), strict=True)
        axes.fill_between(RENEW, low, high, color=colour, alpha=0.15)
        axes.plot(RENEW, [x[i].mean() for x in found], mark, color=colour,
                  linewidth=2, label=name)
    axes.set(title=title, xlabel="updates between renewals of the target table",
             xscale="log", xticks=RENEW, xticklabels=RENEW)
    axes.legend(loc="lower left")
both[1].set(ylim=(0, None))
show(figure, "Left: the error of DQN is near 1 for every renewal interval. That of"
     " double DQN falls from the same height to below 0 as the target table gets"
     " older. Right: both greedy policies lose the same value, about 0.75.")

# %% tags=["hide-cell"]
error, loss = ({name: [x[i].mean() for x in found] for name, found in tables.items()}
               for i in (0, 1))
value = float(greedy_value(some[2]).mean())
assert abs(equal.mean() / (c(5) * NOISE / (1 - GAMMA)) - 1) < 0.15 and 3 < value < 4
assert min(error["DQN"]) > 0.7 and max(error["DQN"]) < 1.3
assert np.isclose(error["DQN"][0], error["double DQN"][0])
assert np.diff(error["double DQN"]).max() < 0 and error["double DQN"][-1] < -0.1
share = np.array([*loss["DQN"], *loss["double DQN"]]) / value
assert share.min() > 0.1 and share.max() < 0.35
assert max(abs(x / y - 1) for x, y in zip(*loss.values(), strict=True)) < 0.1

# %% [markdown]
# When all actions are alike, the measured error agrees with the formula. When they differ, the error of
# DQN is smaller. It is still near 1, while the true values are between 3 and 4 on average.
#
# Double DQN is not a perfect remedy, because the table and the target table have learned from the same
# rewards. If the target table is renewed after every update, both methods make the same errors. The
# older the target table is, the more independent its evaluation becomes. The error then becomes
# negative.
#
# Yet the right plot shows that both greedy policies lose about the same value: the two losses differ by
# less than a tenth. Each loss is more than a tenth of the best possible value. The cause is not the
# error that all actions have in common, because a greedy policy only compares actions. Adding the same
# number to all values does not change this policy. The cause is the noise in the tables, which leads to
# wrong choices.
#
# ## When overestimation hurts the policy
#
# Overestimation hurts when some actions are overestimated more than others. Consider a fork. The
# right branch leads home, with a reward of 0. The left branch leads to a hall of slot machines.
# Each machine pays -0.2 on average, with a standard deviation of 1. The best policy never enters
# the hall.
#
# But the more machines there are, the better the best of them looks. The formula above gives the
# overestimation by the maximum: $c_n$ times the standard deviation of an estimate. If this exceeds 0.2,
# the hall looks better than home on average. This happens with four machines or more.

# %%
def fork(machines, double, learners=500, updates=1000):
    """Share of learners that prefer the hall, in the second half of the updates."""
    generator, gambling = torch.Generator().manual_seed(1), []
    first, second = torch.zeros(learners, machines), torch.zeros(learners, machines)
    hall = torch.zeros(learners)
    for k in range(updates):
        for table in (first, second):
            reward = -0.2 + torch.randn(learners, machines, generator=generator)
            table += STEP * (reward - table)
        hall += STEP * (greedy_value(second, first if double else None) - hall)
        if k >= updates / 2:
            gambling.append((hall > 0).float().mean().item())
    return np.mean(gambling)


MACHINES = (1, 2, 3, 4, 5, 10, 20)
wrong = {name: [fork(n, double) for n in MACHINES]
         for name, double in (("maximum", False), ("double", True))}
figure, (axes,) = panels()
for (name, shares), colour, mark in zip(wrong.items(), COLOURS, ("o-", "s--"),
                                        strict=False):
    axes.plot(MACHINES, shares, mark, color=colour, linewidth=2, label=name)
axes.set(title="learners that prefer the hall", xlabel="machines",
         ylabel="share of learners", ylim=(0, 1.02), xticks=(1, 5, 10, 15, 20))
axes.legend()
show(figure, "Share of learners that prefer the hall, against the number of"
     " machines. With the maximum it rises from a tenth to all of them. With the"
     " double estimate it stays below a fifth.")

# %% tags=["hide-cell"]
assert c(3) * NOISE < 0.2 < c(4) * NOISE
assert wrong["maximum"][3] > 0.5 > wrong["maximum"][1]
assert np.diff(wrong["maximum"]).min() > -0.02 and wrong["maximum"][-2] > 0.9
assert max(wrong["double"]) < 0.2

# %% [markdown]
# With the maximum and ten machines, more than nine learners in ten prefer the hall and keep gambling.
# With the double estimate, fewer than one in five do, for any number of machines. Here the two sets of
# estimates are truly independent: each has its own rewards.
#
# ## DQN on CartPole
#
# Which values does the network of DQN predict? With $\gamma = 0.95$, no state of CartPole has a true
# value above $1 / (1 - 0.95) = 20$. Every prediction above 20 is an overestimate. To **break it**, the
# next cell adds a normal error with standard deviation 3 to each reward. The true values do not change.
# But the maximum now has more noise to select from.

# %%
class Noisy(gymnasium.Wrapper):
    """CartPole with zero-mean normal noise on each reward."""

    def __init__(self, deviation):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.deviation = deviation

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        noise = self.unwrapped.np_random.standard_normal()
        return obs, reward + self.deviation * noise, *rest


def at_start(policy, episodes=20):
    """Predicted max Q of the first states, and the discounted return from them."""
    envs = make("CartPole-v1", episodes, seed=1_000_000)
    obs, weight, total = envs.reset(), np.ones(episodes), np.zeros(episodes)
    predicted = policy.outputs(obs)[0].max(-1).mean()
    while weight.max() > 1e-6:
        step = envs.step(policy.act_batch(obs))
        obs, total = step.obs, total + weight * step.reward
        weight = weight * 0.95 * ~(step.terminated | step.truncated)
    return predicted, total.mean()


SETTINGS = {"total_steps": 12_000, "gamma": 0.95, "lr": 2.3e-3, "hidden": (64, 64),
            "batch_size": 64, "n_steps": 1, "explore": 0.3, "learning_starts": 500,
            "update_every": 64, "update_ratio": 0.25, "target_every": 16}
METHODS = (("DQN", False), ("double DQN", True))
trained = {noise: {name: [dqn(partial(Noisy, noise), seed=seed, double=double,
                              **SETTINGS, **QUIET) for seed in SIZE["seeds"]]
                   for name, double in METHODS} for noise in (0, 3)}
figure, both = panels(2)
for axes, (noise, runs) in zip(both, trained.items(), strict=True):
    curves(axes, runs, "q")
    axes.axhline(20, color="#444444", linewidth=1, linestyle=":")
    axes.set(title=f"CartPole, reward noise {noise}", xlabel="environment steps",
             ylabel="mean Q of a batch", ylim=(0, 40))
    axes.legend(loc="lower right")
show(figure, "Mean of Q over training. Left, without noise: DQN and double DQN"
     " settle together near the dotted line at 20. Right, with noise: DQN settles"
     " above the line, and double DQN nearer to it.")

starts = {(noise, name): np.array([at_start(run.policy) for run in results])
          for noise, runs in trained.items() for name, results in runs.items()}
later = {(noise, name): [np.mean(run.progress["q"][len(run.progress["q"]) // 2:])
                         for run in results]
         for noise, runs in trained.items() for name, results in runs.items()}
for (noise, name), found in starts.items():
    low, high = mean_interval(later[noise, name])
    predicted, actual = found.mean(0)
    print(f"noise {noise}, {name:10}: mean Q over the second half"
          f" {np.mean(later[noise, name]):.1f} ({low:.1f} to {high:.1f});"
          f" first states: predicted {predicted:.1f}, actual {actual:.1f}")

# %% tags=["hide-cell", "trained"]
predicted = {case: found[:, 0].mean() for case, found in starts.items()}
assert all(20.2 < predicted[0, name] < 23.5 and predicted[3, name] > 21.5
           for name in ("DQN", "double DQN"))
assert np.mean(later[3, "DQN"]) > np.mean(later[3, "double DQN"]) + 1
assert np.mean(later[3, "DQN"]) > 21.5
assert abs(np.mean(later[0, "DQN"]) - np.mean(later[0, "double DQN"])) < 1.5
assert min(found[:, 1].min() for found in starts.values()) > 19

# %% [markdown]
# The dotted line is the largest possible value. Without noise, the two methods differ little. Both
# overestimate the first states by about 10 %. Double DQN does not reduce this error, so the
# selection by the maximum need not be its cause.
#
# With noise, DQN predicts values that are impossible. The mean of double DQN is lower by more than 1.
# But its prediction for the first states is still too high at the end. Its target network is a copy at
# most sixteen gradient steps old, so it is not independent.
#
# Now compare the predictions with the returns. Each of these policies gets more than 19 of the
# possible 20, however wrong its values are. With this discount, an episode of 59 steps has a return of 19.
# Overestimation is real, and double DQN reduces it. Here the overestimation does not matter for the
# discounted return. It would matter if the errors differed between actions, as at the fork.
#
# ## Try it
#
# 1. In `fork`, replace the constant `STEP` by one over the number of updates so far. Do the
#    learners still gamble?
#
#    <details><summary>Answer</summary>
#
#    Hardly any learner still gambles. With this step size, each estimate is the mean of all rewards
#    of its machine. After $k$ updates its error is proportional to $1/\sqrt{k}$, so soon no machine
#    looks better than home. In a check with twenty machines and the maximum, about 1 % of the
#    learners preferred the hall in the second half. None did at the end. A constant step size never
#    averages this noise out.
#
#    </details>
#
# 2. Train with `target_every` 4 and 64. Predict first: what do the random MDPs suggest for double DQN?
#
#    <details><summary>Answer</summary>
#
#    The random MDPs suggest two things. With a fresher target network, double DQN makes almost the
#    same errors as DQN. With an older one, its values fall. A check with three seeds agrees. With
#    noise 3 and `target_every` 64, DQN predicted 23.5 for the first states and double DQN 19.5. The
#    actual return of both policies was about 20. With `target_every` 4, both methods diverged on
#    most seeds, to values of hundreds of thousands. The tables do not show this. If the
#    target network is renewed too often, the training of a network can be unstable.
#
#    </details>
#
# 3. In the folder of your exercises, run `spinup exercise start 3.4` to write the target of double
#    DQN yourself.
#
# **Next**: [5. Debugging: probe environments and honest evaluation](05_debugging.ipynb).
