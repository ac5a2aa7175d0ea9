# %% [markdown]
# # 7. RL²: a memory that learns to learn
#
# **You will** play five slot machines with unknown payouts, compute the best possible result, and
# train a network that finds its own strategy. You then erase its memory, and look at what the
# memory holds. **You need** the first notebook, the Bellman equations of
# [Introduction 1](../docs/intro/1_problem.md) and some probability. **Time**: twenty minutes. The
# code runs for about one minute.
#
# You choose the budget in the first line of the next cell. With `ci`, the notebook needs less than
# ninety seconds on one CPU core. `cpu` trains on five seeds, with three times as many steps, and
# `gpu` does the same on a GPU. If the environment variable `SPINUP_BUDGET` is set, it overrides
# `BUDGET`.

# %%
BUDGET = "ci"

import tempfile
from functools import cache, partial

import numpy as np
import torch
from torch.nn.functional import one_hot

from spinup import rl2
from spinup.algos.rl2 import RecurrentActorCritic
from spinup.envs import make
from spinup.envs.worlds.beliefs import beta_draw, beta_mean, ucb_index
from spinup.envs.worlds.strategies import EpsilonGreedy, Index, play
from spinup.envs.worlds.trials import Bandits
from spinup.runs.curve import COLOURS, LINES
from spinup.view.notebook import curves, panels, show, sizes

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "steps": 1_024_000, "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "steps": 3_072_000, "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "steps": 3_072_000, "device": "cuda"})
RUNS = tempfile.mkdtemp()
QUIET = {"log_dir": RUNS, "quiet": True, "tensorboard": False,
         "device": SIZE["device"], "threads": 1}
TRIALS = 20_000                      # for evaluation

# %% [markdown]
# ## Ten pulls, five arms
#
# A **bandit** is a row of slot machines, its **arms**. Each arm has a fixed win probability. A pull
# gives a reward of 1 for a win and of 0 otherwise. You have ten pulls, and your goal is to maximise
# their total reward. Then you get five new arms. Their win probabilities are sampled uniformly from
# 0 to 1. Ten pulls of the same five arms are a **trial**.
#
# Every pull is a choice between **exploiting** the arm that looks best and **exploring** an arm
# that may be better. After $n$ pulls of an arm with $w$ wins, Bayes' rule gives a Beta distribution
# for its win probability. The mean of this distribution is
#
# $$m = \frac{1 + w}{2 + n}.$$
#
# Three well-known rules make this choice:
#
# - *Greedy* pulls the arm with the highest mean $m$.
# - *UCB1* (upper confidence bound) adds a bonus for uncertain arms to $m$. At pull $t$ the bonus
#   here is $0.2 \sqrt{2 \ln t / (2 + n)}$, with $\ln$ the natural logarithm.
# - *Thompson sampling* samples a probability from the Beta distribution of each arm. It pulls the
#   arm with the highest sample.
#
# All rules play the same 20,000 trials.

# %%
def tasks(pulls=10):
    return Bandits(TRIALS, 5, pulls, "cpu", torch.Generator().manual_seed(0))

luck = torch.Generator().manual_seed(1)
rules = {"at random": EpsilonGreedy(Index(beta_mean), 1.0, luck),
         "Thompson": Index(partial(beta_draw, generator=luck)),
         "greedy": Index(beta_mean), "UCB1": Index(partial(ucb_index, c=0.2))}
known = {name: play(tasks(), rule).mean().item() for name, rule in rules.items()}
for name, value in known.items():
    print(f"{name:10} mean return {value:.2f} of 10")

# %% tags=["hide-cell"]
wins, pulls = torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([[0.0, 3.0, 4.0]])
mean = (1 + wins) / (2 + pulls)
assert torch.allclose(beta_mean(wins, pulls), mean)
assert torch.allclose(ucb_index(wins, pulls, 0.2),
                      mean + 0.2 * (2 * np.log(8) / (2 + pulls)).sqrt())
assert 4.9 < known["at random"] < 5.1 and 5.75 < known["Thompson"] < 5.95
assert 6.5 < known["greedy"] < 6.68
assert known["greedy"] < known["UCB1"]

# %% [markdown]
# Thompson sampling is the worst of the three rules here. Ten pulls are few, and Thompson sampling
# still explores when the trial ends. Greedy gets about 6.6, and UCB1 a little more.
#
# ## The best possible result
#
# This problem is so small that we can compute the optimal strategy. The **belief** $b$ contains all
# knowledge about the arms: the pairs $(w, n)$ of the five arms. A pull leads to one of two new
# beliefs, one after a win and one after a loss. Let $V_k(b)$ be the largest expected total reward
# of the $k$ pulls that remain. It satisfies the Bellman equation
#
# $$V_k(b) = \max_a \; m_a \big(1 + V_{k-1}(b + \text{win at } a)\big) + (1 - m_a)\, V_{k-1}(b +
# \text{loss at } a), \qquad V_0 = 0.$$
#
# - $a$ is an arm, and $m_a$ is its mean $m$, the probability of a win given all earlier pulls.
# - $b + \text{win at } a$ and $b + \text{loss at } a$ are the beliefs after the pull.
#
# $V$ is an ordinary value function whose state is the belief. A policy that takes the best arm in
# every belief is called **Bayes-optimal**. The order of the arms does not matter, so the code sorts
# them, and only a few thousand beliefs remain.

# %%
@cache
def best(arms, left):
    return max(worth(arms, a, left) for a in range(len(arms))) if left else 0.0

def worth(arms, a, left):
    """Value of pulling arm `a` now and playing optimally afterwards.

    arms: a tuple of pairs (w, n). left: pulls that remain, this one included.
    """
    w, n = arms[a]
    m = (1 + w) / (2 + n)
    others = *arms[:a], *arms[a + 1:]
    win, loss = (best(tuple(sorted((*others, (w + r, n + 1)))), left - 1)
                 for r in (1, 0))
    return m * (1 + win) + (1 - m) * loss

LIMIT = best(((0, 0),) * 5, 10)
print(f"Bayes-optimal mean return: {LIMIT:.3f} of 10")

# %% tags=["hide-cell"]
assert abs(best(((0, 0),) * 2, 2) - (0.5 + 0.5 * 2 / 3 + 0.5 * 0.5)) < 1e-12
assert abs(best(((0, 0),), 10) - 5) < 1e-12
assert 6.655 < LIMIT < 6.665 and 1000 < best.cache_info().currsize < 10_000
assert abs(known["UCB1"] - LIMIT) < 0.06

# %% [markdown]
# No method can have a higher mean than 6.66. UCB1 with its tuned constant 0.2 reaches this limit,
# up to the error of the measurement. So a network can gain little over the known rules. We ask a
# different question: can a network find such a rule by itself?
#
# ## Learning to learn
#
# **RL²** trains a recurrent network, a gated recurrent unit (GRU), over many trials. At each pull
# the network observes the arm that it pulled last and the reward of that pull. Its memory lasts for
# one trial and is reset before the next one. PPO trains the weights to maximise the discounted
# return $J(\theta)$ of a *whole* trial:
#
# $$h_t = \mathrm{GRU}(h_{t-1},\ a_{t-1},\ r_{t-1}), \qquad a_t \sim \pi_\theta(\cdot \mid h_t),
# \qquad J(\theta) = \mathbb{E}_{\text{arms}}\, \mathbb{E}_{\pi_\theta} \Big[ \sum_{t=1}^{10}
# \gamma^t r_t \Big].$$
#
# - $h_t$ is the memory at pull $t$, $a_t$ is the arm, and $r_t$ is the reward.
# - $\pi_\theta$ is the policy, $\theta$ are the weights, and $\gamma$ is the discount.
# - The two expectations $\mathbb{E}$ are over the probabilities of the arms and over the policy's
#   pulls.
#
# No one gives the network Beta distributions, bonuses or a rule for exploration. Its weights do not
# change within a trial. If its pulls improve during a trial, this learning happens in its memory.

# %%
trained = [rl2("Bandits-5x10-v0", seed=seed, total_steps=SIZE["steps"], **QUIET)
           for seed in SIZE["seeds"]]

figure, (axes,) = panels(size=(5.6, 3.6))
curves(axes, {"RL²": trained}, "return_mean")
axes.axhline(LIMIT, color="#444444", linewidth=1, linestyle=":")
axes.text(0, LIMIT + 0.05, "Bayes-optimal", color="#444444")
axes.set(title="five arms, ten pulls", xlabel="million pulls",
         ylabel="return of a trial", ylim=(4.8, 7))
axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}")
axes.legend(loc="lower right")
show(figure, "Mean return of a trial against pulls of training. All seeds rise from"
     " 5, the result of random pulls, to just below the dotted line of the"
     " Bayes-optimal 6.66.")

# %% [markdown]
# Every seed rises from the level of random pulls to just below the limit. The curve shows training,
# where the policy samples its actions. For evaluation, the final policies play 20,000 other trials,
# with arms from the same distribution. In each pull they take the most likely arm. The standard error
# of a mean return is below 0.02. The argument `wiped` is used later. It lists pulls before which the
# network gets the first observation of a trial, which resets its memory.

# %%
@torch.no_grad()
def trial(net, wiped=(), pulls=10):
    """Observations `[TRIALS, pulls, d]`, actions and rewards `[TRIALS, pulls]` of the
    greedy policy. The memory is reset before each pull in `wiped`."""
    envs = make(f"Bandits-5x{pulls}-v0", TRIALS, 0, episodes=pulls)
    obs, hidden, found = envs.reset(), net.empty(TRIALS), []
    first = obs
    for t in range(pulls):
        seen = torch.from_numpy(first if t in wiped else obs)
        hidden = net.remember(seen[:, None], hidden)[:, 0]
        act = net.params(hidden).argmax(-1)
        step = envs.step(act.numpy())
        found.append((seen, act, torch.from_numpy(step.reward)))
        obs = step.obs
    return [torch.stack(x, 1) for x in zip(*found, strict=True)]

nets = [result.policy.module.cpu() for result in trained]
plays = [trial(net) for net in nets]
sums = [reward.sum(1).mean().item() for _, _, reward in plays]
print("RL², mean return:", ", ".join(f"{x:.2f}" for x in sums),
      f"(greedy {known['greedy']:.2f}, Bayes-optimal {LIMIT:.2f})")

# %% tags=["hide-cell", "trained"]
for result in trained:
    curve = result.progress["return_mean"]
    assert curve[0] < 5.4 and 6.3 < np.mean(curve[-20:]) < LIMIT + 0.1
assert all(6.4 < x < LIMIT + 0.06 for x in sums) and np.mean(sums) > 6.5
assert min(sums) > known["Thompson"] + 0.5
assert (np.mean(sums) - 5) / (LIMIT - 5) > 0.9

# %% [markdown]
# Random pulls have a mean return of 5. On average, the networks gain more than nine tenths of the
# difference between random pulls and the limit. All seeds are far above Thompson sampling.
#
# ## Where the learning happens
#
# The next cell plays with the same weights in three ways. First, it never resets the memory within
# a trial. Second, it resets the memory after five pulls. Third, it resets the memory before every
# pull. In the third way, the network keeps everything that training put into its weights, but it
# remembers nothing of the trial.

# %%
wipes = {"as trained": (), "reset after five pulls": (5,),
         "reset before every pull": tuple(range(10))}
rewards = {name: np.stack([trial(net, wiped)[2].mean(0).numpy() for net in nets])
           for name, wiped in wipes.items()}

figure, (axes,) = panels(size=(5.6, 3.6))
looks = zip(rewards.items(), COLOURS, LINES, strict=False)
for (name, of_seeds), colour, line in looks:
    axes.plot(range(1, 11), of_seeds.T, color=colour, linestyle=line, linewidth=1,
              alpha=0.35)
    axes.plot(range(1, 11), of_seeds.mean(0), color=colour, linestyle=line,
              linewidth=2, marker="o", label=name)
axes.set(title="the same weights, with and without memory", xlabel="pull",
         ylabel="mean reward", ylim=(0.45, 0.8))
axes.legend(loc="upper left")
show(figure, "Mean reward of each of ten pulls. As trained, it rises from .5 to about"
     " .7. With a reset after five pulls, it falls back to .5 and rises again. With a"
     " reset before every pull, it stays at .5.")

# %% tags=["hide-cell", "trained"]
whole, half, none = rewards.values()
assert (abs(whole[:, 0] - 0.5) < 0.02).all() and (whole[:, 9] > 0.66).all()
assert (whole[:, 9] > whole[:, 0] + 0.15).all()
assert (abs(half[:, 5] - 0.5) < 0.02).all() and (half[:, 9] > 0.62).all()
assert (abs(none - 0.5) < 0.03).all()
assert np.allclose(whole[:, :5], half[:, :5])
assert np.allclose(half[:, 5:], half[:, :5], atol=0.03)

# %% [markdown]
# As trained, the mean reward is .5 at the first pull and about .7 at the last. After a reset in the
# middle, the network starts again: pulls six to ten get the same rewards as pulls one to five. With
# a reset before every pull, the network stays at the level of random pulls. So its memory holds all
# that it learns about one task. Training has put the learning rule into the weights.
#
# ## Which rule did it find?
#
# First look at its behaviour. Does the network stay at an arm after a win, and after a loss?

# %%
for seed, (_, act, reward) in zip(SIZE["seeds"], plays, strict=True):
    stays, won = act[:, 1:] == act[:, :-1], reward[:, :-1] > 0
    early, late = (stays[:, pulls][~won[:, pulls]].float().mean()
                   for pulls in (slice(0, 2), slice(6, 9)))
    print(f"seed {seed}: stays after a win {stays[won].float().mean():.2f};"
          f" after a loss in pulls 1 and 2 {early:.2f}, in pulls 7 to 9 {late:.2f}")

# %% tags=["hide-cell", "trained"]
for _, act, reward in plays:
    stays, won = act[:, 1:] == act[:, :-1], reward[:, :-1] > 0
    assert stays[won].float().mean() > 0.97
    assert stays[:, :2][~won[:, :2]].float().mean() < 0.05
    assert stays[:, 6:][~won[:, 6:]].float().mean() > 0.5

# %% [markdown]
# The network stays at an arm after a win, and leaves it after an early loss. Late in a trial, it
# mostly stays even after a loss. By then it has found a good arm, or too few pulls remain to profit
# from a better arm.
#
# Next, measure how good its choices are. The function `worth` computes the value of each arm at
# each pull. The **regret** of a pull is the value of the best arm minus the value of the chosen
# arm. In expectation, the sum of the regrets of a trial equals the gap between the return and the
# limit 6.66:
#
# $$6.66 - \mathbb{E}_\pi \Big[ \sum_{t=1}^{10} r_t \Big]
#   = \mathbb{E}_\pi \Big[ \sum_{t=1}^{10} \big( \text{best value} - \text{value of } a_t \big) \Big].$$
#
# Here $\pi$ is the player, $a_t$ is its pull number $t$, and $r_t$ is the reward of that pull. The
# right side is the better measure, because it does not contain the noise of the payouts.

# %%
def regrets(acts, rewards, number=2000):
    """Regret of each pull in the first `number` trials, `[number, 10]`."""
    lost = np.zeros((number, 10))
    for i in range(number):
        arms = [(0, 0)] * 5
        pulls = zip(acts[i].tolist(), rewards[i].tolist(), strict=True)
        for t, (a, r) in enumerate(pulls):
            value = worth(tuple(arms), a, 10 - t)
            lost[i, t] = best(tuple(sorted(arms)), 10 - t) - value
            arms[a] = (arms[a][0] + int(r), arms[a][1] + 1)
    return lost

def choices(rule):
    """Arms that a rule pulls and the rewards, `[TRIALS, 10]` each."""
    bandits, found = tasks(), []
    state = bandits.reset()
    rule.reset(bandits)
    for t in range(10):
        act = rule.act(state, t)
        _, reward, over = bandits.step(act)
        rule.observe(state, act, reward, over, state)
        found.append((act, reward))
    return [torch.stack(x, 1) for x in zip(*found, strict=True)]

lost = {f"RL², seed {s}": regrets(act, reward)
        for s, (_, act, reward) in zip(SIZE["seeds"], plays, strict=True)}
lost |= {name: regrets(*choices(rules[name]))
         for name in ("UCB1", "greedy", "Thompson")}
for name, of_trials in lost.items():
    print(f"{name:13} regret per trial {of_trials.sum(1).mean():.3f},"
          f" {np.mean(of_trials < 1e-9):.0%} of pulls optimal")

# %% tags=["hide-cell"]
given = {name: of_trials.sum(1).mean() for name, of_trials in lost.items()}
assert all(abs(LIMIT - given[name] - known[name]) < 0.07
           for name in ("UCB1", "greedy", "Thompson"))

# %% tags=["hide-cell", "trained"]
assert all(abs(LIMIT - given[f"RL², seed {s}"] - x) < 0.07
           for s, x in zip(SIZE["seeds"], sums, strict=True))
assert given["UCB1"] < 0.02 and 0.03 < given["greedy"] < 0.12
assert given["Thompson"] > 0.6
ours = [given[f"RL², seed {s}"] for s in SIZE["seeds"]]
assert max(ours) < 0.2 and np.mean(ours) < given["greedy"]
assert all(np.mean(lost[f"RL², seed {s}"] < 1e-9) > 0.85 for s in SIZE["seeds"])

# %% [markdown]
# At least 85 % of the pulls of each network are optimal. The total regret of a trial is below .2.
# The regret of greedy is about .1, and that of Thompson sampling is more than .6. On average, the
# networks have less regret than each of these two rules. UCB1 with its tuned constant has almost no
# regret. No one told the network to explore, or to explore less towards the end. It found this out
# in training.
#
# ## What does the memory hold?
#
# A common test is a **probe**: a linear function that predicts some quantity from the memory $h$,
# fitted by least squares. The quantities here are the numbers of pulls and wins of each arm after
# nine pulls. The next cell fits the probe on one half of the trials and evaluates it on the other
# half. The measure is $R^2$, the share of variance that the probe explains. As a control, the cell
# repeats this for a GRU that was never trained and that processes the same trials.

# %%
@torch.no_grad()
def probe(net, seen, act, reward):
    """R² of a linear probe for the numbers of pulls and wins after nine pulls."""
    states = net.remember(seen, net.empty(len(seen)))[:, -1]
    pulled = one_hot(act[:, :9], 5).float()
    won = pulled * reward[:, :9, None]
    counts = torch.cat([pulled.sum(1), won.sum(1)], 1)        # [TRIALS, 10]
    inputs = torch.cat([states, torch.ones(len(states), 1)], 1)
    fit, test = slice(0, TRIALS // 2), slice(TRIALS // 2, None)
    weights = torch.linalg.lstsq(inputs[fit], counts[fit], driver="gelsd").solution
    wrong = (inputs[test] @ weights - counts[test]).square().sum()
    return 1 - (wrong / (counts[test] - counts[test].mean(0)).square().sum()).item()

torch.manual_seed(0)
untrained = [RecurrentActorCritic(seen.shape[-1], net.dist, net.hidden_size)
             for net, (seen, _, _) in zip(nets, plays, strict=True)]
read = {"trained": [probe(net, *seen) for net, seen in zip(nets, plays, strict=True)],
        "never trained": [probe(net, *seen)
                          for net, seen in zip(untrained, plays, strict=True)]}
for name, values in read.items():
    print(f"{name:14} R² = " + ", ".join(f"{x:.3f}" for x in values))

# %% tags=["hide-cell"]
assert min(read["trained"]) > 0.97 and min(read["never trained"]) > 0.96
assert all(4.5 < trial(net)[2].sum(1).mean() < 5.5 for net in untrained)

# %% [markdown]
# The probe reads the counts from the memory almost without error. Without the control, this would
# look like proof that the network learned to count. But the probe also reads the counts from a
# random GRU. A memory of dozens of numbers has room for ten counts. Even the memory of an untrained
# network keeps traces of all its inputs.
#
# So a probe shows only that information is present. The network need not use it, and need not have
# learned it. The random network also holds the counts, but it plays no better than random pulls.
#
# ## Break it: a longer trial
#
# A rule such as UCB1 works for any length of trial. The network has trained on ten pulls only. The
# next cell gives it a hundred.

# %%
longer = {name: play(tasks(100), rules[name]).mean().item()
          for name in ("greedy", "UCB1")}
longer |= {f"RL², seed {s}": trial(net, pulls=100)[2].sum(1).mean().item()
           for s, net in zip(SIZE["seeds"], nets, strict=True)}
for name, value in longer.items():
    print(f"{name:13} mean return {value:.1f} of 100")

# %% tags=["hide-cell", "trained"]
ours = [value for name, value in longer.items() if name.startswith("RL²")]
assert 74 < longer["greedy"] < 76.5 and longer["UCB1"] > 78
assert max(ours) < longer["UCB1"] - 1.5 and min(ours) > 55

# %% [markdown]
# Greedy gets about 75, and UCB1 more than 78. The networks still learn: random pulls would win only
# half of the time. But every network stays at least 1.5 behind UCB1, although the networks and UCB1
# were nearly equal on ten pulls. RL² has learned a rule for the tasks of its training. The length
# of a trial is part of these tasks. The
# [benchmarks](../docs/benchmarks/papers.md) show the result of RL² after
# training on a hundred pulls.
#
# ## Try it
#
# 1. In the folder of your exercises, run `spinup exercise start 3.7`. You write the network's input
#    and the reset of its memory.
# 2. Halve all probabilities. Write a function `halved(self)` that calls the old `Bandits._draw` and
#    then halves `self.probs`. Replace the method: `Bandits._draw = halved`. Then repeat the cells that
#    play. The networks have never trained on such poor arms. How far below greedy is each network,
#    and how far is UCB1?
#
#    <details><summary>Answer</summary>
#
#    The networks and UCB1 are about .1 below greedy. In one check, greedy got 2.95, UCB1 2.86, and
#    three networks 2.86, 2.83 and 2.83. Greedy, UCB1 and the networks all expect win probabilities
#    up to 1, so an arm that was never pulled looks better than it is. Greedy therefore explores
#    enough, and more exploration only costs reward.
#
#    </details>
#
# 3. Train with `gamma=0`, so that only the next pull counts. Which of the three rules should RL²
#    find now? Is the result nearer to the limit than you expected?
#
#    <details><summary>Answer</summary>
#
#    RL² should find greedy, which maximises the reward of the next pull. In one check, about 99 %
#    of the pulls took an arm with the highest mean $m$. The mean returns were 6.53, 6.54 and 6.57.
#    This is only about .1 below the limit of 6.66. In ten pulls of five arms, planning ahead gains
#    little.
#
#    </details>
#
# **Next**: [8. Self-play: tic-tac-toe against past versions](08_self_play.ipynb).
