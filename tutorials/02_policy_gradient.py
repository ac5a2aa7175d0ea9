# %% [markdown]
# # 2. Policy gradients: estimates against the exact gradient
#
# **You will** follow one episode step by step and compute the policy gradient of a small problem
# exactly. You estimate it from episodes in four ways, and measure the bias and the variance of each
# estimate. Then you see what goes wrong when a batch is used twice, and train VPG (vanilla policy
# gradient) on CartPole. **You need** the first notebook, probabilities and matrices. **Time**: forty
# minutes. The code runs for about one minute.
#
# You choose the budget in the first line of the next cell. With `ci`, the notebook needs about a
# minute on one CPU core. `cpu` plays more episodes and trains on more seeds, and `gpu` does the same
# on a GPU. If the environment variable `SPINUP_BUDGET` is set, it overrides `BUDGET`.

# %%
BUDGET = "ci"

import tempfile

import numpy as np
import torch

from spinup import vpg
from spinup.algos.vpg import policy_gradient
from spinup.core.returns import gae
from spinup.runs.curve import COLOURS, LINES
from spinup.view.notebook import curves, panels, show, sizes

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "episodes": 20_000, "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "episodes": 100_000, "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "episodes": 100_000, "device": "cuda"})
QUIET = {"log_dir": tempfile.mkdtemp(), "quiet": True, "tensorboard": False,
         "device": SIZE["device"]}

# %% [markdown]
# ## One episode, step by step
#
# A corridor has five squares, numbered 0 to 4. Each episode starts on square 2, the middle one. In
# each step the agent chooses left or right. One time in five it slips and moves the other way. Each
# step costs 0.1. The episode ends when the agent leaves the corridor. Leaving on the right gives a
# reward of 1, and leaving on the left gives nothing.
#
# The **policy** $\pi(a \mid s)$ is the probability of action $a$ on square $s$. Our policy has one
# parameter $\theta_s$ per square. It goes right with probability $\pi(\text{right} \mid s) = 1 / (1 +
# e^{-\theta_s})$, the sigmoid of $\theta_s$. A larger $\theta_s$ makes "right" more likely. The next
# cell fixes the five parameters and plays one episode.

# %%
N, START, SLIP = 5, 2, 0.2
theta = torch.tensor([-0.5, -0.2, 0.3, 0.6, 0.0], dtype=torch.float64,
                     requires_grad=True)
p_right = theta.detach().sigmoid().numpy()                # pi(right|s) of each square


def run_episode(rng):
    """Play one episode: (square, action, reward) of each step. Action 1 is right."""
    square, steps = START, []
    while 0 <= square < N:
        action = int(rng.random() < p_right[square])
        slipped = rng.random() < SLIP
        next_square = square + (1 if (action == 1) != slipped else -1)
        steps.append((square, action, (next_square == N) - 0.1))
        square = next_square
    return steps


episode = run_episode(np.random.default_rng(8))
for t, (square, action, reward) in enumerate(episode):
    print(f"step {t}: square {square}, reward {reward:4.1f},"
          f" action {('left', 'right')[action]}")
print(f"return: {sum(reward for *_, reward in episode):.1f}")

# %% tags=["hide-cell"]
assert [square for square, *_ in episode] == [2, 3, 4, 3, 4]
assert [action for _, action, _ in episode] == [1, 1, 0, 1, 1]
assert abs(sum(reward for *_, reward in episode) - 0.5) < 1e-9

# %% [markdown]
# The **return** of an episode is the sum of its rewards. This episode has five steps, which cost 0.5
# together, and ends at the right exit, which gives 1. Its return is 0.5.
#
# Which of these five actions should become more likely? A policy gradient method computes two things
# for each step.
#
# **A direction.** $\log \pi(a_t \mid s_t)$ is the **log-probability** of the action $a_t$ that the
# agent took on square $s_t$ in step $t$. Its derivative with respect to the parameters is the **score
# function**, called `score` in the code. If you add a small multiple of the score to the parameters,
# the action becomes more likely. Here only $\theta_{s_t}$, the parameter of the current square, has a
# nonzero derivative. For the sigmoid, this derivative is $1 - \pi(\text{right} \mid s_t)$ after
# "right", and $-\pi(\text{right} \mid s_t)$ after "left".
#
# **A weight.** The **return-to-go** is the sum of the rewards from this step to the end. But some
# squares are better than others, whatever the agent does there. So compare the return-to-go with the
# **value** $V(s_t)$, the mean return-to-go from this square under the policy. The difference is an
# estimate of the **advantage** of the action. A positive advantage means that the action is better
# than average on this square, and a negative one means that it is worse. An estimate from one episode
# can have the wrong sign.
#
# The product of score and advantage is the contribution of one step. It makes an action with positive
# advantage more likely, and an action with negative advantage less likely. The sum over the steps of
# an episode is one estimate of the **policy gradient**, the gradient of the mean return.
# [Introduction 3](../docs/intro/3_policy_gradients.md) derives this. The next cell estimates $V$ by
# averaging over 1,000 more episodes, and prints all these numbers for the episode above.

# %%
def returns_to_go(steps):
    """For each step the sum of its reward and of all later rewards."""
    return np.cumsum([reward for *_, reward in steps][::-1])[::-1]


rng = np.random.default_rng(0)
samples = [[] for _ in range(N)]                          # returns-to-go, per square
for _ in range(1000):
    steps = run_episode(rng)
    for (square, *_), to_go in zip(steps, returns_to_go(steps), strict=True):
        samples[square].append(to_go)
value = [float(np.mean(x)) for x in samples]

one_estimate, rows = np.zeros(N), []
for (square, action, _), to_go in zip(episode, returns_to_go(episode), strict=True):
    logp = np.log(p_right[square] if action == 1 else 1 - p_right[square])
    score = action - p_right[square]                      # derivative of logp
    advantage = to_go - value[square]
    one_estimate[square] += score * advantage
    rows.append((square, action, logp, score, to_go, value[square], advantage))
print("square  action  log-prob  score  return-to-go  value  advantage")
for square, action, *numbers in rows:
    name, widths = ("left", "right")[action], (8, 5, 12, 5, 9)
    print(f"{square:6}  {name:6}",
          *(f" {x:{width}.2f}" for x, width in zip(numbers, widths, strict=True)))
print("gradient estimate, one episode:", *(f"{x:6.2f}" for x in one_estimate))

# %% tags=["hide-cell"]
logps = [(theta[s] if a == 1 else -theta[s]).sigmoid().log() for s, a, *_ in rows]
by_autograd = [torch.autograd.grad(logp, theta)[0][row[0]].item()
               for logp, row in zip(logps, rows, strict=True)]
assert np.allclose([logp.item() for logp in logps], [row[2] for row in rows])
assert np.allclose(by_autograd, [row[3] for row in rows])
assert rows[2][:2] == (4, 0) and min(row[-1] for row in rows) > 0
assert (one_estimate[:2] == 0).all() and one_estimate[2] > 0 and one_estimate[3] > 0

# %% [markdown]
# Each of the five estimates of the advantage is positive, because this episode ended well. Even the
# step to the left on square 4 has a positive estimate. It was a bad action, but the episode ended
# well in spite of it. So one episode gives a very noisy estimate. It also says nothing about
# squares 0 and 1, which the agent did not visit. In the mean over many episodes, these errors cancel.
# This notebook shows how noisy the estimates are, and how to reduce the noise.
#
# ## The exact gradient
#
# Let $J(\theta)$ be the mean return of an episode. Its **gradient** $\nabla J$ has five components,
# one per square. Component $s$ is the rate at which $J$ grows with $\theta_s$. This problem is so
# small that we can compute the gradient exactly and compare every estimate with it. We need:
#
# - the matrix $P$, where $P_{ss'}$ is the probability that a step from square $s$ leads to square $s'$
#   under the policy;
# - the vector $r$, where $r_s$ is the mean reward of a step from square $s$;
# - the vector $V$ of the values.
#
# The value of a square is the mean reward of the next step plus the mean value of the next square:
# $V = r + P V$. These are five linear equations, and the computer solves them. $J$ is the value of the
# middle square. Automatic differentiation through the solution gives $\nabla J$.
#
# The **policy gradient theorem** writes the same gradient as a sum:
#
# $$\nabla J = \sum_s d(s) \sum_a \pi(a \mid s)\; \nabla \log \pi(a \mid s)\; A(s, a).$$
#
# - $d(s)$ is the mean number of visits to square $s$ in an episode.
# - $\nabla \log \pi(a \mid s)$ is the score function.
# - $A(s, a)$ is the exact **advantage**. It is the mean return after taking $a$ once on square $s$ and
#   then following the policy, minus $V(s)$.
#
# In the code, `policy_evaluation` computes $P$ and $V$ for given parameters, and `visits` is $d$. The
# arrays `score` and `advantage` hold the score function and $A$ for both actions on each square.

# %%
TRANSITION = torch.zeros(N, 2, N, dtype=torch.float64)    # P(s'|s, a), [s, a, s']
REWARD = torch.full((N, 2), -0.1, dtype=torch.float64)    # mean reward, [s, a]
for s in range(N):
    for action, side in ((0, -1), (1, 1)):
        for to, probability in ((s + side, 1 - SLIP), (s - side, SLIP)):
            if 0 <= to < N:
                TRANSITION[s, action, to] += probability
            elif to == N:
                REWARD[s, action] += probability


def policy_evaluation(theta):
    """The policy pi [s, a], the matrix P [s, s'] and the values V [s]."""
    pi = torch.stack([(-theta).sigmoid(), theta.sigmoid()], 1)
    P, r = torch.einsum("sa,sat->st", pi, TRANSITION), (pi * REWARD).sum(1)
    return pi, P, torch.linalg.solve(torch.eye(N) - P, r)


EXACT, = torch.autograd.grad(policy_evaluation(theta)[2][START], theta)
pi, P, V = (x.detach() for x in policy_evaluation(theta))
visits = torch.linalg.solve((torch.eye(N) - P).T, torch.eye(N).double()[START])
score = torch.tensor([0, 1]) - pi[:, 1:]                  # grad log pi(a|s), [s, a]
advantage = REWARD + TRANSITION @ V - V[:, None]          # A(s, a), [s, a]
by_theorem = visits * (pi * score * advantage).sum(1)
print("exact gradient: ", *(f"{x:7.3f}" for x in EXACT))
print("by the theorem: ", *(f"{x:7.3f}" for x in by_theorem))

# %% tags=["hide-cell"]
assert torch.allclose(by_theorem, EXACT, rtol=0, atol=1e-12)
assert advantage[4, 0] < 0

# %% [markdown]
# Both computations give the same five numbers.
#
# ## Estimates from episodes
#
# In a real task the agent knows neither $P$ nor $d$, and it only has episodes. But the sum in the
# theorem is an expected value over episodes. For each episode, compute the sum of
# $\nabla \log \pi(a_t \mid s_t)\, \hat A_t$ over its steps, where $\hat A_t$ is an estimate of the
# advantage. If the estimates are unbiased, up to a term that does not depend on the action $a_t$, the
# expected value of this sum is $\nabla J$. Four choices of $\hat A_t$ are common:
#
# - **REINFORCE**: the return of the whole episode, including the rewards before step $t$.
# - **Return-to-go**: only the rewards from step $t$ on. An action cannot change earlier rewards.
# - **Baseline**: the return-to-go minus $V(s_t)$. The value of the square is not due to the action.
# - **GAE**, generalised advantage estimation: $\hat A_t = \delta_t + \lambda \hat A_{t+1}$, where
#   $\delta_t = r_t + V(s_{t+1}) - V(s_t)$ is the temporal-difference (TD) error. The parameter
#   $\lambda$ is between 0 and 1. The smaller $\lambda$ is, the more GAE relies on $V$. (There is no
#   discount here: $\gamma = 1$.)
#
# The **bias** of an estimate is the difference between its mean and the exact gradient. Its
# **variance** measures how much it varies around its mean. The next cell measures both. It plays
# 20,000 episodes per seed, or more with a larger budget.

# %%
def play(theta, episodes, seed):
    """Play many episodes at once: squares, actions, rewards, `over`, `counts`,
    [episodes, T] each.

    `over` marks the last step of an episode. `counts` is False after that step.
    """
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
    """GAE [episodes, T], from the last step of each episode back to its first."""
    at, _, reward, over, counts = data
    found, next_adv, next_value = [], 0, 0
    for t in reversed(range(at.shape[1])):
        delta = reward[:, t] - value[at[:, t]] + next_value * ~over[:, t]
        next_adv = counts[:, t] * (delta + lam * next_adv * ~over[:, t])
        found.append(next_adv)
        next_value = value[at[:, t]]
    return torch.stack(found[::-1], 1)


def estimates(data, adv):
    """One gradient estimate per episode, [episodes, s]: sum of score x advantage."""
    at, act, _, _, counts = data
    weight = counts * adv * (act - pi[at, 1])
    return torch.stack([(weight * (at == s)).sum(1) for s in range(N)], 1)


NAMES = ("REINFORCE", "return-to-go", "baseline", "GAE, lambda 0.5")
means = torch.zeros(2, len(SIZE["seeds"]), 4, N)
variance = torch.zeros(len(SIZE["seeds"]), 4)
for i, seed in enumerate(SIZE["seeds"]):
    data = play(theta, SIZE["episodes"], seed)
    to_go = advantages(data, V * 0, 1)
    choices = (to_go[:, :1], to_go, to_go - V[data[0]], advantages(data, V, 0.5))
    for k, adv in enumerate(choices):
        each = estimates(data, adv)
        means[0, i, k] = each.mean(0)
        means[1, i, k] = each.std(0) / len(each) ** 0.5   # standard error of the mean
        variance[i, k] = each.var(0).sum()
for k, name in enumerate(NAMES):
    print(f"{name:16}", *(f"{x:7.3f}" for x in means[0, 0, k]),
          f"   variance {variance[0, k]:.2f}")

# %% tags=["hide-cell"]
off = (means[0] - EXACT).abs() / means[1]
assert off.max() < 4.5 and (off < 2).double().mean() > 0.8
for whole, later, less, by_gae in variance.tolist():
    assert whole > 2 * later and 1.02 < later / less < 1.2 and less > 4 * by_gae
assert estimates(data, to_go + 2).var(0).sum() > 4 * variance[-1, 1]

# %% [markdown]
# Every mean agrees with the exact gradient up to sampling noise. On every seed, each component is
# within 4.5 standard errors of the exact one. Over all seeds, more than four in five components are
# within 2. So none of the four estimates shows a bias.
#
# The variances differ:
#
# - The return-to-go has less than half the variance of REINFORCE.
# - The baseline removes less than a fifth of the remaining variance.
# - GAE with $\lambda = 0.5$ has less than a quarter of the variance of the baseline estimate. It
#   has no bias, because $V$ is exact here. With an exact $V$, every $\lambda$ is unbiased.
#
# The baseline helps so little because returns in this corridor are near 0 anyway. Suppose that every
# episode got 2 more at its end, at either exit. No action would become better or worse. But without a
# baseline, the variance of the return-to-go estimate would be more than four times as large.
#
# The library implements both parts of an estimate. `gae` computes the advantages without a loop over
# time. `policy_gradient` is a loss function. Its gradient is minus our estimate, because an optimiser
# minimises. The library and our own code give the same numbers.

# %%
def surrogate(theta, data, adv):
    """The library's loss, averaged over episodes."""
    logits = torch.where(data[1] == 1, theta[data[0]], -theta[data[0]])
    return policy_gradient(logits.sigmoid().log(), adv, data[4])[0].sum() / len(adv)


at, act, reward, over, counts = data
by_library, _ = gae(reward, V[at], V[at].roll(-1, 1), over, torch.zeros_like(over),
                    gamma=1.0, lam=0.5, mask=counts)
downhill, = torch.autograd.grad(surrogate(theta, data, by_library), theta)
print("GAE, library: ", *(f"{-x:6.3f}" for x in downhill))
print("GAE, our loop:", *(f"{x:6.3f}" for x in each.mean(0)))

# %% tags=["hide-cell"]
assert torch.allclose(by_library, adv, rtol=0, atol=1e-10)
assert torch.allclose(-downhill, each.mean(0), atol=1e-10)

# %% [markdown]
# ## The bias-variance trade-off of lambda
#
# In practice $V$ must be learned, and it is never exact. Take an extreme case: $V = 0$, as
# before any learning. With $\lambda = 0$, GAE is then only the reward of the same step. With
# $\lambda = 1$, GAE is the return-to-go, which has no bias.
#
# The mean of $\hat A$ for a given square and action can also be computed exactly, from five linear
# equations. They give the line in the left plot. The dots are measured from episodes. The right plot
# shows the mean squared error of the average over a batch of $n$ episodes. This error is the squared
# bias plus $1/n$ times the variance.

# %%
def mean_estimate(value, lam):
    """The exact mean of the GAE estimate, for a value function that may be wrong."""
    delta = REWARD + TRANSITION @ value - value[:, None]                  # [s, a]
    next_adv = torch.linalg.solve(torch.eye(N) - lam * P, (pi * delta).sum(1))
    return visits * (pi * score * (delta + lam * TRANSITION @ next_adv)).sum(1)


lams = np.array([0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1])
length = float(EXACT.norm())
bias = np.array([float((mean_estimate(V * 0, lam) - EXACT).norm())
                 for lam in lams]) / length
found = [estimates(data, advantages(data, V * 0, lam)) for lam in lams]
measured = np.array([float((each.mean(0) - EXACT).norm()) for each in found]) / length
spread = np.array([float(each.var(0).sum()) for each in found]) / length ** 2

figure, (left, right) = panels(2)
left.plot(lams, bias, color=COLOURS[0], linewidth=2, label="exact")
left.plot(lams, measured, "o", color=COLOURS[1], label="measured")
left.set(title="bias of GAE with V = 0", xlabel="lambda",
         ylabel="bias / length of the gradient", ylim=(0, 1))
left.legend()
errors = {n: bias ** 2 + spread / n for n in (10, 100, 1000)}
for (n, error), colour, line in zip(errors.items(), COLOURS, LINES, strict=False):
    right.plot(lams, error, color=colour, linestyle=line, linewidth=2,
               label=f"{n} episodes")
    right.plot(lams[error.argmin()], error.min(), "s", color=colour)
right.set(title="mean squared error of a batch", xlabel="lambda", yscale="log",
          ylabel="error / squared length")
right.legend()
show(figure, "Left: the bias falls from four fifths of the gradient's length at"
     " lambda 0 to nothing at lambda 1. The measured dots lie on the exact line."
     " Right: the error of batches of 10, 100 and 1000 episodes against lambda. A"
     " square marks the lowest point of each line; it moves right as batches grow.")

# %% tags=["hide-cell"]
assert bias[0] > 0.75 and (np.diff(bias) < 0).all() and bias[-1] < 1e-9
assert abs(measured - bias).max() < 0.06
assert (np.diff(spread) > 0).all()
assert float((mean_estimate(V, 0.5) - EXACT).norm()) < 1e-12
ten, hundred, thousand = (float(lams[error.argmin()]) for error in errors.values())
assert 0.5 < ten < 0.85 and ten <= hundred <= thousand and thousand > 0.9
assert errors[10][-1] > 2 * errors[10].min()

# %% [markdown]
# As $\lambda$ grows, the bias falls and the variance rises. For ten episodes, a $\lambda$ near 0.7
# is best. The unbiased choice, $\lambda = 1$, has more than twice the error of the best $\lambda$.
# A thousand episodes average out most of the noise, so the best $\lambda$ is 0.95 or more. No single
# $\lambda$ is always best, because the best one depends on the number of episodes in a batch and on
# the quality of $V$.
#
# ## Break it: use a batch twice
#
# The theorem holds for episodes *of the current policy*. After one gradient step the policy is a
# different one, and the batch is off-policy. What happens if you keep using it? The next cell runs two
# experiments of one hundred gradient steps. The first plays ten new episodes for each step. The second
# reuses the same ten episodes in all steps. $J$ is computed exactly, so the differences between runs
# come from learning and not from measurement.

# %%
def gradient_ascent(seed, fresh, steps=100):
    """J and the loss before each step, [2, steps]."""
    theta, history = torch.zeros(N, dtype=torch.float64, requires_grad=True), []
    for step in range(steps):
        if step == 0 or fresh:
            data = play(theta, 10, 1000 * seed + step)
            adv = advantages(data, policy_evaluation(theta)[2].detach(), 1)
        loss = surrogate(theta, data, adv)
        history.append((policy_evaluation(theta)[2][START].item(), loss.item()))
        gradient, = torch.autograd.grad(loss, theta)
        theta = (theta - gradient).detach().requires_grad_()
    return np.array(history).T


fresh, stale = (np.array([gradient_ascent(seed, x) for seed in range(1, 11)])
                for x in (True, False))                   # [seeds, 2, steps]
figure, (left, right) = panels(2)
for runs, colour, line, label in ((fresh, COLOURS[0], "-", "ten new episodes"),
                                  (stale, COLOURS[1], "--", "the same ten episodes")):
    left.plot(runs[:, 0].T, color=colour, linestyle=line, linewidth=1, alpha=0.35)
    left.plot(runs[:, 0].mean(0), color=colour, linestyle=line, linewidth=2,
              label=label)
right.plot(stale[:, 1].T, color=COLOURS[1], linestyle="--", linewidth=1, alpha=0.6)
left.set(title="mean return J, exact", xlabel="gradient steps")
left.legend(loc="lower right", title="each step uses")
right.set(title="loss on the same ten episodes", xlabel="gradient steps",
          yscale="symlog")
show(figure, "Left: with new episodes, all ten seeds rise from -0.4 to nearly 0.5."
     " With the same ten episodes they level off early, at very different heights."
     " Right: the loss on the same ten episodes falls in every step, for every seed.")

# %% tags=["hide-cell"]
best = float(policy_evaluation(torch.full((N,), 50.0).double())[2][START])
end = stale[:, 0, -1]
assert 0.49 < best < 0.51 and abs(fresh[:, 0, 0] + 0.4).max() < 1e-9
assert fresh[:, 0, -1].min() > 0.42
assert end.min() < 0.1 and end.max() > 0.35 and (np.diff(stale[:, 1]) < 0).all()

# %% [markdown]
# With new episodes, every seed comes near 0.5, the best possible mean return. With the same ten
# episodes, the result depends on luck. Whatever went well in those ten episodes becomes more and more
# likely.
#
# The loss does not show the problem, because it falls in every step of every seed. The value of this
# loss has no meaning. Its gradient has a meaning, but only on data of the current policy. The next
# notebook shows how PPO uses a batch several times and avoids this problem.
#
# ## VPG on CartPole
#
# `spinup/algos/vpg.py` implements the same method with four additions: a neural network for the
# policy, a second network that learns $V$, a discount, and advantage normalisation. Normalised
# advantages have mean 0 and standard deviation 1. Which $\lambda$ works best here?

# %%
cartpole = {f"lambda = {lam:g}": [vpg("CartPole-v1", seed=seed, total_steps=50_000,
                                      lam=lam, **QUIET) for seed in SIZE["seeds"]]
            for lam in (0, 0.95, 1)}
figure, (axes,) = panels()
curves(axes, cartpole)
axes.set(title="VPG on CartPole", xlabel="environment steps",
         ylabel="mean return, last 100 episodes")
show(figure, "Mean return over 50,000 steps for three values of lambda. On average,"
     " 0.95 and 1 rise faster than 0.")
whole = {name: [np.nanmean(run.progress["return_mean_100"]) for run in runs]
         for name, runs in cartpole.items()}
for name, values in whole.items():
    print(f"{name:13} mean of the learning curve, each seed:",
          *(f"{x:.0f}" for x in values))

# %% tags=["hide-cell", "trained"]
slow, usual, one = (np.mean(values) for values in whole.values())
assert slow < min(usual, one) and abs(usual - one) < min(usual, one) - slow

# %% [markdown]
# On average over seeds, VPG with $\lambda = 0$ learns more slowly than with 0.95 and more slowly
# than with 1. GAE with $\lambda = 0$ replaces all rewards after the current step by $V$, and at
# first $V$ has learned nothing. The difference between 0.95 and 1 is smaller, and seeds with the
# same $\lambda$ differ too. A common rule says that 0.95 is better than 1. Three to five seeds are
# too few to confirm or refute this rule.
#
# ## Try it
#
# 1. Repeat the plot of the bias-variance trade-off with the values of a random walk,
#    `policy_evaluation(0 * theta)[2].detach()`, in place of `V * 0`. How do the bias and the best
#    $\lambda$ for ten episodes change?
#
#    <details><summary>Answer</summary>
#
#    The values of the random walk are wrong, but they have the right shape: they are low on the
#    left and high on the right. At $\lambda = 0$ the bias is only 19 % of the gradient's length,
#    instead of 82 %. Among the $\lambda$ in the plot, the best one for ten episodes falls from 0.7
#    to 0.2. A better $V$ lets you use a smaller $\lambda$ and get less variance.
#
#    </details>
#
# 2. $V$ is not the baseline that gives the estimate with the smallest variance. Which constant
#    baseline gives the smallest variance? Is it better than $V$?
#
#    <details><summary>Answer</summary>
#
#    Let $g$ be the estimate of one episode without a baseline, and $h$ the sum of its score
#    vectors. A constant $b$ turns $g$ into $g - b h$. Since $h$ has mean zero, the variance is
#    smallest at $b = \mathbb{E}[g \cdot h] / \mathbb{E}[\|h\|^2]$, a weighted mean of returns. In
#    the corridor this is about $-0.16$. It lowers the variance a little, but less than $V$ does,
#    because a constant is the same on every square.
#
#    </details>
#
# 3. In the folder of your exercises (`spinup exercise init rl` makes one), run
#    `spinup exercise start 3.1` to write GAE yourself, and `spinup exercise start 2.1` to predict
#    how VPG learns without a value function.
#
# **Next**: [3. PPO: switching off its details one by one](03_ppo_details.ipynb).
