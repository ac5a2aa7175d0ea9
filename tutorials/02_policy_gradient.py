# %% [markdown]
# # 2. The policy gradient, against the exact one
#
# **You will** compute the gradient of a small problem exactly, estimate it from episodes in four ways, and measure what
# each costs in bias and in variance; then follow a gradient that is no longer true, and train VPG on CartPole. **You
# need** the first notebook, probabilities and matrices. **Time**: thirty minutes of reading, of which the computer
# works for one.
#
# The one choice of this notebook is its budget. `ci` takes a CPU core about a minute; `cpu` plays more episodes and
# trains on more seeds; `gpu` does the same on a GPU. The environment variable `SPINUP_BUDGET` goes before it.

# %%
BUDGET = "ci"

import tempfile

import numpy as np
import torch

from spinup import vpg
from spinup.algos.vpg import policy_gradient
from spinup.core.returns import gae
from spinup.view.notebook import curves, panels, show, sizes
from spinup.view.plots import COLOURS, LINES

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "episodes": 20_000, "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "episodes": 100_000, "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "episodes": 100_000, "device": "cuda"})
QUIET = {"log_dir": tempfile.mkdtemp(), "quiet": True, "tensorboard": False, "device": SIZE["device"]}

# %% [markdown]
# ## A problem that can be solved exactly
#
# A corridor has five squares, numbered 0 to 4. Each episode begins on the middle one. The agent steps to the left or to
# the right; one time in five it slips and goes the other way. Every step costs 0.1. Whoever leaves the corridor on the
# right gets 1, whoever leaves it on the left gets nothing, and the episode is over. The **policy** has one number
# $\theta_s$ for each square: there it goes to the right with probability $\pi(\text{right} \mid s) = 1 / (1 +
# e^{-\theta_s})$. We want the **gradient** of $J(\theta)$, the mean return of an episode: five numbers that say how
# much the return would grow if $\theta_s$ did.
#
# Here it can be computed. Let $P$ hold the probabilities of going from square to square under the policy, and $r$ the
# mean reward of a step from each square. The **value** of a square, the mean return from there on, is what one step
# brings and the value of what follows: $V = r + P V$, five linear equations. $J$ is the value of the middle square, and
# automatic differentiation through the solution gives its gradient. The **policy gradient theorem** says what this
# gradient is made of:
#
# $$\nabla J = \sum_s d(s) \sum_a \pi(a \mid s)\; \nabla \log \pi(a \mid s)\; A(s, a),$$
#
# where $d(s)$ is how often an episode visits $s$ on average, and $A(s, a)$, the **advantage**, is how much better it is
# to take $a$ once and then follow the policy than to follow the policy at once. It gives the same five numbers.

# %%
N, START, SLIP = 5, 2, 0.2
LEADS = torch.zeros(N, 2, N, dtype=torch.float64)                         # [s, a, s'], the chance
REWARD = torch.full((N, 2), -0.1, dtype=torch.float64)                    # [s, a], the mean
for s in range(N):
    for action, side in ((0, -1), (1, 1)):
        for to, chance in ((s + side, 1 - SLIP), (s - side, SLIP)):
            if 0 <= to < N:
                LEADS[s, action, to] += chance
            elif to == N:
                REWARD[s, action] += chance


def under(theta):
    """The policy [s, a], and with it P [s, s'] and V [s]."""
    pi = torch.stack([(-theta).sigmoid(), theta.sigmoid()], 1)
    P, r = torch.einsum("sa,sat->st", pi, LEADS), (pi * REWARD).sum(1)
    return pi, P, torch.linalg.solve(torch.eye(N) - P, r)


theta = torch.tensor([-0.5, -0.2, 0.3, 0.6, 0.0], dtype=torch.float64, requires_grad=True)
EXACT, = torch.autograd.grad(under(theta)[2][START], theta)
pi, P, V = (x.detach() for x in under(theta))
visits = torch.linalg.solve((torch.eye(N) - P).T, torch.eye(N).double()[START])
score = torch.tensor([0, 1]) - pi[:, 1:]                                  # the derivative of log pi(a|s), [s, a]
by_theorem = visits * (pi * score * (REWARD + LEADS @ V - V[:, None])).sum(1)
print("exact gradient: ", *(f"{x:7.3f}" for x in EXACT))
print("by the theorem: ", *(f"{x:7.3f}" for x in by_theorem))

# %% tags=["hide-cell"]
assert torch.allclose(by_theorem, EXACT, rtol=0, atol=1e-12)

# %% [markdown]
# ## From episodes
#
# An agent knows neither $P$ nor $d$; it has episodes. The theorem is a mean over them: for each episode, add up
# $\nabla \log \pi(a_t \mid s_t)\, \hat A_t$, where $\hat A_t$ stands for the advantage. Four candidates for it:
#
# - **REINFORCE**: the return of the whole episode, what came before $t$ included;
# - **reward to go**: what came from $t$ on, because an action does not change the past;
# - **less a baseline**: the reward to go less $V(s_t)$, because what was expected says nothing of the action;
# - **GAE**, generalised advantage estimation: $\hat A_t = \delta_t + \lambda \hat A_{t+1}$ with $\delta_t = r_t +
#   V(s_{t+1}) - V(s_t)$, which relies on $V$ the more the smaller $\lambda$ is. (No discount here: $\gamma = 1$.)
#
# The **bias** of an estimate is how far its mean is from the truth; its **variance** is how far it scatters around its
# mean. Both are measured below, on 20,000 episodes or more for each seed.

# %%
def play(theta, episodes, seed):
    """Squares, actions, rewards, whether a step ended its episode, whether it counts: [episodes, T] each."""
    rng, right = np.random.default_rng(seed), theta.detach().sigmoid().numpy()
    at, going, steps = np.full(episodes, START), np.ones(episodes, bool), []
    while going.any():
        act = (rng.random(episodes) < right[at]).astype(int)
        to = at + np.where(rng.random(episodes) < SLIP, 1 - 2 * act, 2 * act - 1)
        over = (to < 0) | (to == N)
        steps.append((at, act, (to == N) - 0.1, over, going))
        going, at = going & ~over, np.where(over, START, to)
    return [torch.from_numpy(np.stack(x, 1)) for x in zip(*steps, strict=True)]


def advantages(data, value, lam):
    """GAE, from the last step of an episode back to its first."""
    at, _, reward, over, counts = data
    found, later, follows = [], 0, 0
    for t in reversed(range(at.shape[1])):
        later = counts[:, t] * (reward[:, t] - value[at[:, t]] + (follows + lam * later) * ~over[:, t])
        found.append(later)
        follows = value[at[:, t]]
    return torch.stack(found[::-1], 1)


def estimates(data, adv):
    """An estimate from each episode, [episodes, s]."""
    at, act, _, _, counts = data
    weight = counts * adv * (act - pi[at, 1])
    return torch.stack([(weight * (at == s)).sum(1) for s in range(N)], 1)


NAMES = ("REINFORCE", "reward to go", "less a baseline", "GAE, lambda 0.5")
means, variance = torch.zeros(2, len(SIZE["seeds"]), 4, N), torch.zeros(len(SIZE["seeds"]), 4)
for i, seed in enumerate(SIZE["seeds"]):
    data = play(theta, SIZE["episodes"], seed)
    to_go = advantages(data, V * 0, 1)
    for k, adv in enumerate((to_go[:, :1], to_go, to_go - V[data[0]], advantages(data, V, 0.5))):
        each = estimates(data, adv)
        means[0, i, k], means[1, i, k] = each.mean(0), each.std(0) / len(each) ** 0.5          # and its standard error
        variance[i, k] = each.var(0).sum()
for k, name in enumerate(NAMES):
    print(f"{name:16}", *(f"{x:7.3f}" for x in means[0, 0, k]), f"   variance {variance[0, k]:.2f}")

# %% tags=["hide-cell"]
off = (means[0] - EXACT).abs() / means[1]
assert off.max() < 4.5 and (off < 2).double().mean() > 0.8
for whole, later, less, by_gae in variance.tolist():
    assert whole > 2 * later and 1.02 < later / less < 1.2 and less > 4 * by_gae
assert estimates(data, to_go + 2).var(0).sum() > 4 * variance[-1, 1]

# %% [markdown]
# Every mean agrees with the exact gradient within what chance allows: on no seed is one of the numbers 4.5 standard
# errors away, and more than four in five are within 2. The variances differ. To look only ahead more than halves them.
# The baseline takes off less than a fifth of the rest. GAE with $\lambda = 0.5$ makes what is left more than four times
# smaller, and has no bias: where $V$ is exact, every $\lambda$ is right. That the baseline does so little is due to
# this corridor, where returns are near 0 anyway. If every episode got 2 more at its end, at either exit, no action
# would become better or worse; but without the baseline the variance would be more than four times what it is.
#
# The library has both halves of an estimate. `gae` needs no loop over time. The gradient of `policy_gradient` is the
# estimate with its sign turned, because an optimiser goes downhill. They give the same numbers.

# %%
def surrogate(theta, data, adv):
    """The library's loss, the mean over episodes."""
    logp = torch.where(data[1] == 1, theta[data[0]], -theta[data[0]]).sigmoid().log()
    return policy_gradient(logp, adv, data[4])[0].sum() / len(adv)


at, act, reward, over, counts = data
by_library, _ = gae(reward, V[at], V[at].roll(-1, 1), over, torch.zeros_like(over), gamma=1.0, lam=0.5, mask=counts)
downhill, = torch.autograd.grad(surrogate(theta, data, by_library), theta)
print("GAE, the library:", *(f"{-x:6.3f}" for x in downhill))
print("GAE, our loop:   ", *(f"{x:6.3f}" for x in each.mean(0)))

# %% tags=["hide-cell"]
assert torch.allclose(by_library, adv, rtol=0, atol=1e-10) and torch.allclose(-downhill, each.mean(0), atol=1e-10)

# %% [markdown]
# ## What lambda trades
#
# But $V$ has to be learned and is never exact. Take the worst case, $V = 0$, a value function that knows nothing. GAE
# with $\lambda = 0$ then sees the next reward alone; with $\lambda = 1$ it is the reward to go, which is right on
# average. The mean of $\hat A$, given square and action, solves five linear equations again. So the lines of the left
# picture are exact, and the dots are measured.

# %%
def mean_estimate(value, lam):
    """What an estimate by GAE is on average, with a value function that may be wrong."""
    delta = REWARD + LEADS @ value - value[:, None]                       # [s, a]
    follows = torch.linalg.solve(torch.eye(N) - lam * P, (pi * delta).sum(1))
    return visits * (pi * score * (delta + lam * LEADS @ follows)).sum(1)


lams, length = np.array([0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1]), float(EXACT.norm())
bias = np.array([float((mean_estimate(V * 0, lam) - EXACT).norm()) for lam in lams]) / length
found = [estimates(data, advantages(data, V * 0, lam)) for lam in lams]
measured = np.array([float((each.mean(0) - EXACT).norm()) for each in found]) / length
spread = np.array([float(each.var(0).sum()) for each in found]) / length ** 2

figure, (left, right) = panels(2)
left.plot(lams, bias, color=COLOURS[0], linewidth=2, label="exact")
left.plot(lams, measured, "o", color=COLOURS[1], label="measured")
left.set(title="bias of GAE with V = 0", xlabel="lambda", ylabel="length, of the gradient's", ylim=(0, 1))
left.legend()
errors = {n: bias ** 2 + spread / n for n in (10, 100, 1000)}
for (n, error), colour, line in zip(errors.items(), COLOURS, LINES, strict=False):
    right.plot(lams, error, color=colour, linestyle=line, linewidth=2, label=f"{n} episodes")
    right.plot(lams[error.argmin()], error.min(), "s", color=colour)
right.set(title="squared bias and variance of a batch", xlabel="lambda", yscale="log")
right.legend()
show(figure, "Left: the bias falls from four fifths of the gradient's length at lambda 0 to nothing at lambda 1; the"
     " measured dots lie on the line. Right: the error of batches of 10, 100 and 1000 episodes against lambda; its"
     " lowest point moves to the right as batches grow.")

# %% tags=["hide-cell"]
assert bias[0] > 0.75 and (np.diff(bias) < 0).all() and bias[-1] < 1e-9 and abs(measured - bias).max() < 0.06
assert (np.diff(spread) > 0).all() and float((mean_estimate(V, 0.5) - EXACT).norm()) < 1e-12
ten, hundred, thousand = (float(lams[error.argmin()]) for error in errors.values())
assert 0.5 < ten < 0.85 and ten <= hundred <= thousand and thousand > 0.9 and errors[10][-1] > 2 * errors[10].min()

# %% [markdown]
# The bias falls as $\lambda$ grows, the variance rises. Ten episodes are best served by a $\lambda$ near 0.7: without
# bias, at 1, their error is more than twice as large. A thousand episodes average the noise away themselves and want a
# $\lambda$ of 0.95 or more. There is no best $\lambda$; it depends on how much data a batch has and how good $V$ is.
#
# ## Break it: use a batch twice
#
# The theorem is about episodes *of the present policy*. One step along the gradient makes it another, and the batch is
# stale. What if one goes on with it? Below, a hundred steps with ten fresh episodes for each, and a hundred steps with
# the same ten. $J$ is known exactly, so what scatters is the learning and not the measurement.

# %%
def climb(seed, fresh, steps=100):
    """J and the loss before each step."""
    theta, history = torch.zeros(N, dtype=torch.float64, requires_grad=True), []
    for step in range(steps):
        if step == 0 or fresh:
            data = play(theta, 10, 1000 * seed + step)
            adv = advantages(data, under(theta)[2].detach(), 1)
        loss = surrogate(theta, data, adv)
        history.append((under(theta)[2][START].item(), loss.item()))
        theta = (theta - torch.autograd.grad(loss, theta)[0]).detach().requires_grad_()
    return np.array(history).T


fresh, stale = (np.array([climb(seed, x) for seed in range(1, 11)]) for x in (True, False))   # [seeds, 2, steps]
figure, (left, right) = panels(2)
for runs, colour, line, label in ((fresh, COLOURS[0], "-", "fresh"), (stale, COLOURS[1], "--", "the same ten")):
    left.plot(runs[:, 0].T, color=colour, linestyle=line, linewidth=1, alpha=0.35)
    left.plot(runs[:, 0].mean(0), color=colour, linestyle=line, linewidth=2, label=label)
right.plot(stale[:, 1].T, color=COLOURS[1], linestyle="--", linewidth=1, alpha=0.6)
left.set(title="exact mean return", xlabel="steps")
left.legend(loc="lower right", title="episodes")
right.set(title="loss, on the same ten episodes", xlabel="steps", yscale="symlog")
show(figure, "Left: with fresh episodes all ten seeds rise from -0.4 to nearly 0.5; with the same ten they level off"
     " early, at very different heights. Right: the loss on the same ten episodes falls all the time, for every seed.")

# %% tags=["hide-cell"]
best, end = float(under(torch.full((N,), 50.0).double())[2][START]), stale[:, 0, -1]
assert 0.49 < best < 0.51 and abs(fresh[:, 0, 0] + 0.4).max() < 1e-9 and fresh[:, 0, -1].min() > 0.42
assert end.min() < 0.1 and end.max() > 0.35 and (np.diff(stale[:, 1]) < 0).all()

# %% [markdown]
# With fresh episodes every seed comes near 0.5, the best there is. With the same ten, where a seed ends is luck: what
# happened to go well in them is made surer and surer. The loss does not tell. It falls at every step of every seed. As
# a number it means nothing; only its gradient does, and only on fresh data. The next notebook uses a batch more than
# once without this.
#
# ## VPG on CartPole
#
# `spinup/algos/vpg.py` is what we had, with a network for the policy, another that learns $V$, a discount, and
# advantages shifted and scaled to mean 0 and deviation 1. Which $\lambda$ is best here?

# %%
cartpole = {f"lambda = {lam:g}": [vpg("CartPole-v1", seed=seed, total_steps=50_000, lam=lam, **QUIET)
                                  for seed in SIZE["seeds"]] for lam in (0, 0.95, 1)}
figure, (axes,) = panels()
curves(axes, cartpole)
axes.set(title="VPG on CartPole", xlabel="environment steps", ylabel="return, last 100 episodes")
show(figure, "Return over 50,000 steps for three values of lambda: 0.95 and 1 rise together, 0 stays far below them.")
whole = {name: [np.nanmean(run.progress["return_mean_100"]) for run in runs] for name, runs in cartpole.items()}
for name, values in whole.items():
    print(f"{name:13} mean over the training, each seed:", *(f"{x:.0f}" for x in values))

# %% tags=["hide-cell", "trained"]
nought, usual, one = whole.values()
assert min(*usual, *one) > max(nought)
assert abs(np.mean(usual) - np.mean(one)) < (np.mean(usual) - np.mean(nought)) / 2

# %% [markdown]
# With $\lambda = 0$ every seed learns more slowly than every seed with 0.95 or 1: at first $V$ knows nothing, and there
# is nothing else to rely on. Between 0.95 and 1 the difference is less than half of that. That 0.95 is the better one
# is a common rule, which so few seeds can neither show nor refute.
#
# ## Try it
#
# 1. Draw the picture of lambda with the values of a random walk, `under(0 * theta)[2]`, in the place of `V * 0`. What
#    happens to the bias, and to the best lambda of ten episodes?
# 2. $V$ is not the baseline of the smallest variance. Which constant in its place makes the variance smallest?
# 3. `spinup exercise start 3.1` has you write a GAE; `2.1` lets you predict VPG without a value function.
#
# **Next**: [3. PPO, its details switched off one by one](03_ppo_details.ipynb).
