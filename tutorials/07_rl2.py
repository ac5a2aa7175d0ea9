# %% [markdown]
# # 7. RL²: a memory that learns to learn
#
# **You will** meet five slot machines that nobody has told you anything about, compute how well they can be played at
# all, and train a network that finds its own way of trying and settling. Then you will take its memory away, and look
# into it. **You need** the first notebook, and a little probability. **Time**: twenty minutes of reading, of which
# the computer works for one.
#
# The one choice of this notebook is its budget. `ci` takes one CPU core less than ninety seconds; `cpu` trains five
# seeds with three times as many steps; `gpu` does the same on a GPU. The environment variable `SPINUP_BUDGET` goes
# before it.

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
from spinup.envs.worlds.trials import Bandits, EpsilonGreedy, Index, play
from spinup.view.notebook import curves, panels, show, sizes
from spinup.view.plots import COLOURS, LINES

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "steps": 1_024_000, "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "steps": 3_072_000, "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "steps": 3_072_000, "device": "cuda"})
RUNS = tempfile.mkdtemp()
QUIET = {"log_dir": RUNS, "quiet": True, "tensorboard": False, "device": SIZE["device"], "threads": 1}
TRIALS = 20_000                                           # to measure with, the same for whoever plays

# %% [markdown]
# ## Ten pulls, five arms
#
# A **bandit** is a row of slot machines, its **arms**. Each arm pays 1 with a probability of its own, and else 0. You
# have ten pulls and want as much money as you can get. Then come ten pulls at five other arms, whose probabilities
# are drawn anew, each evenly between 0 and 1. Ten pulls at the same arms are a **trial**.
#
# Every pull is a choice between **exploiting** the arm that looks best and **exploring** another that may be better.
# What is known of an arm after $n$ pulls, $w$ of which paid, is a Beta distribution, with the mean
#
# $$m = \frac{1 + w}{2 + n}.$$
#
# People have invented rules for this choice. *Greedy* pulls the arm with the highest $m$. *UCB1* adds a bonus for
# what is little known, here $0.2 \sqrt{2 \ln t / (2 + n)}$ at pull $t$. *Thompson sampling* draws a probability from
# each arm's Beta distribution and pulls the arm with the highest draw. All play the same 20,000 trials.

# %%
def tasks(pulls=10):
    return Bandits(TRIALS, 5, pulls, "cpu", torch.Generator().manual_seed(0))

luck = torch.Generator().manual_seed(1)
rules = {"at random": EpsilonGreedy(Index(beta_mean), 1.0, luck), "Thompson": Index(partial(beta_draw, generator=luck)),
         "greedy": Index(beta_mean), "UCB1": Index(partial(ucb_index, c=0.2))}
known = {name: play(tasks(), rule).mean().item() for name, rule in rules.items()}
for name, value in known.items():
    print(f"{name:10} {value:.2f} of ten pulls pay")

# %% tags=["hide-cell"]
wins, pulls = torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([[0.0, 3.0, 4.0]])
mean = (1 + wins) / (2 + pulls)
assert torch.allclose(beta_mean(wins, pulls), mean)
assert torch.allclose(ucb_index(wins, pulls, 0.2), mean + 0.2 * (2 * np.log(8) / (2 + pulls)).sqrt())
assert 4.9 < known["at random"] < 5.1 and 5.75 < known["Thompson"] < 5.95 and 6.5 < known["greedy"] < 6.68
assert known["greedy"] < known["UCB1"]

# %% [markdown]
# Thompson sampling is the worst of the three rules here: ten pulls are few, and it is still exploring when the trial
# is over. Greedy gets about 6.6, UCB1 a little more.
#
# ## The best that anybody can do
#
# For so small a problem the best way of playing can be computed. What is known is five pairs $(w, n)$, and a pull
# leads to one of two new states of knowledge $b$. So the largest expected sum over the $k$ pulls that are left obeys
#
# $$V_k(b) = \max_a \; m_a \big(1 + V_{k-1}(b + \text{win at } a)\big) + (1 - m_a)\, V_{k-1}(b + \text{loss at } a),
#   \qquad V_0 = 0.$$
#
# This is an ordinary value function; the state is what one knows. Whoever follows it is called **Bayes-optimal**. The
# order of the arms does not matter, so they are sorted and a few thousand states remain.

# %%
@cache
def best(arms, left):
    return max(worth(arms, a, left) for a in range(len(arms))) if left else 0.0

def worth(arms, a, left):
    """Of pulling arm a now and playing on in the best way; arms is a tuple of pairs (w, n)."""
    w, n = arms[a]
    m = (1 + w) / (2 + n)
    win, loss = (best(tuple(sorted((*arms[:a], (w + r, n + 1), *arms[a + 1:]))), left - 1) for r in (1, 0))
    return m * (1 + win) + (1 - m) * loss

LIMIT = best(((0, 0),) * 5, 10)
print(f"the best possible: {LIMIT:.3f} of ten")

# %% tags=["hide-cell"]
assert abs(best(((0, 0),) * 2, 2) - (0.5 + 0.5 * 2 / 3 + 0.5 * 0.5)) < 1e-12 and abs(best(((0, 0),), 10) - 5) < 1e-12
assert 6.655 < LIMIT < 6.665 and 1000 < best.cache_info().currsize < 10_000 and abs(known["UCB1"] - LIMIT) < 0.06

# %% [markdown]
# 6.66 is the limit. No method whatever can have a higher mean, and UCB1 with its well chosen 0.2 is at it, up to the
# error of measurement. So there is little to win here over what people have invented. The question is another one:
# can a network find such a rule by itself?
#
# ## Learning to learn
#
# **RL²** trains a recurrent network, a GRU, over many trials. At each pull it sees which arm it pulled last and what
# that paid. Its memory $h$ lasts through a trial and is emptied before the next one. The weights are trained by PPO
# for the sum of a *whole* trial:
#
# $$h_t = \mathrm{GRU}(h_{t-1},\ a_{t-1},\ r_{t-1}), \qquad a_t \sim \pi_\theta(\cdot \mid h_t), \qquad
#   J(\theta) = \mathbb{E}_{\text{arms}}\, \mathbb{E}_{\pi_\theta} \Big[ \sum_{t=1}^{10} \gamma^t r_t \Big].$$
#
# Nobody tells it about Beta distributions, bonuses or exploration. Within a trial its weights do not change. If it
# pulls better at the end of a trial than at its beginning, the learning has taken place in its memory.

# %%
trained = [rl2("Bandits-5x10-v0", seed=seed, total_steps=SIZE["steps"], **QUIET) for seed in SIZE["seeds"]]

figure, (axes,) = panels(size=(5.6, 3.6))
curves(axes, {"RL²": trained}, "return_mean")
axes.axhline(LIMIT, color="#444444", linewidth=1, linestyle=":")
axes.text(0, LIMIT + 0.05, "Bayes-optimal", color="#444444")
axes.set(title="five arms, ten pulls", xlabel="million pulls", ylabel="sum of a trial", ylim=(4.8, 7))
axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}")
axes.legend(loc="lower right")
show(figure, "Mean sum of a trial against pulls of training: all seeds rise from 5, which is chance, to just below"
     " the dotted line of the Bayes-optimal 6.66.")

# %% [markdown]
# Every seed rises from chance to just below the limit. The curve is of training, where actions are drawn. The final
# policies play the 20,000 trials from above, each time with the likeliest arm. `wiped` is for later: before those
# pulls the network is shown what it sees at the beginning of a trial, which empties its memory.

# %%
@torch.no_grad()
def trial(net, wiped=(), pulls=10):
    """What was seen, done and paid: `[TRIALS, pulls, d]`, and `[TRIALS, pulls]` twice."""
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
print("RL²:", ", ".join(f"{x:.2f}" for x in sums), f"(greedy {known['greedy']:.2f}, best possible {LIMIT:.2f})")

# %% tags=["hide-cell", "trained"]
for result in trained:
    assert result.progress["return_mean"][0] < 5.4 and 6.3 < np.mean(result.progress["return_mean"][-20:]) < LIMIT + 0.1
assert all(6.4 < x < LIMIT + 0.06 for x in sums) and np.mean(sums) > 6.5 and min(sums) > known["Thompson"] + 0.5
assert (np.mean(sums) - 5) / (LIMIT - 5) > 0.9

# %% [markdown]
# On average the seeds have made more than nine tenths of the way from chance, 5, to the limit. All of them are far
# above Thompson sampling.
#
# ## Where the learning is
#
# The same weights, three times. As trained; with the memory emptied after five pulls; and with the memory emptied
# before every pull, when the network still has all that it learned in training, but nothing of the trial.

# %%
wipes = {"as trained": (), "emptied after five pulls": (5,), "emptied before every pull": tuple(range(10))}
rewards = {name: np.stack([trial(net, wiped)[2].mean(0).numpy() for net in nets]) for name, wiped in wipes.items()}

figure, (axes,) = panels(size=(5.6, 3.6))
for (name, of_seeds), colour, line in zip(rewards.items(), COLOURS, LINES, strict=False):
    axes.plot(range(1, 11), of_seeds.T, color=colour, linestyle=line, linewidth=1, alpha=0.35)
    axes.plot(range(1, 11), of_seeds.mean(0), color=colour, linestyle=line, linewidth=2, marker="o", label=name)
axes.set(title="the same weights, with and without memory", xlabel="pull", ylabel="mean reward", ylim=(0.45, 0.8))
axes.legend(loc="upper left")
show(figure, "Mean reward of each of ten pulls: as trained it rises from .5 to about .7; with the memory emptied "
     "after five pulls it falls back to .5 and rises again; emptied before every pull it stays at .5.")

# %% tags=["hide-cell", "trained"]
whole, half, none = rewards.values()
assert (abs(whole[:, 0] - 0.5) < 0.02).all() and (whole[:, 9] > 0.66).all() and (whole[:, 9] > whole[:, 0] + 0.15).all()
assert (abs(half[:, 5] - 0.5) < 0.02).all() and (half[:, 9] > 0.62).all() and (abs(none - 0.5) < 0.03).all()
assert np.allclose(whole[:, :5], half[:, :5])
assert np.allclose(half[:, 5:], half[:, :5], atol=0.03)

# %% [markdown]
# As trained, a pull pays .5 at first and about .7 at last. With its memory emptied after five pulls the network
# begins anew: pulls six to ten pay what pulls one to five paid. With its memory emptied before every pull it is as
# good as chance, and stays so. All that it learns of a task is in its memory; what training has put into the weights
# is how to learn.
#
# ## Which rule has it found?
#
# First, what it does: does it stay at an arm that has paid, and at one that has not?

# %%
for seed, (_, act, reward) in zip(SIZE["seeds"], plays, strict=True):
    stays, won = act[:, 1:] == act[:, :-1], reward[:, :-1] > 0
    early, late = (stays[:, pulls][~won[:, pulls]].float().mean() for pulls in (slice(0, 2), slice(6, 9)))
    print(f"seed {seed}: stays after a win {stays[won].float().mean():.2f}; after a loss in pulls 1 and 2 {early:.2f},"
          f" in pulls 7 to 9 {late:.2f}")

# %% tags=["hide-cell", "trained"]
for _, act, reward in plays:
    stays, won = act[:, 1:] == act[:, :-1], reward[:, :-1] > 0
    assert stays[won].float().mean() > 0.97 and stays[:, :2][~won[:, :2]].float().mean() < 0.05
    assert stays[:, 6:][~won[:, 6:]].float().mean() > 0.5

# %% [markdown]
# It stays where it has won, and leaves an arm whose first pull was a loss. Late in a trial, when it has found a good
# arm, or few pulls are left to profit from a better one, it mostly stays in spite of a loss.
#
# Then, how good its choices are. `worth` knows what each arm is worth at each pull. What a choice gives away, its
# **regret**, is the difference between the worth of the best arm and of the chosen one. In expectation the regrets of
# a trial add up to exactly what the player lacks to the limit,
#
# $$6.66 - \mathbb{E}_\pi \Big[ \sum_{t=1}^{10} r_t \Big]
#   = \mathbb{E}_\pi \Big[ \sum_{t=1}^{10} \big( \text{best worth} - \text{worth of } a_t \big) \Big],$$
#
# and measured in this way it does not suffer from the luck of the payouts.

# %%
def regrets(acts, rewards, number=2000):
    """What each pull gave away, `[number, 10]`."""
    lost = np.zeros((number, 10))
    for i in range(number):
        arms = [(0, 0)] * 5
        for t, (a, r) in enumerate(zip(acts[i].tolist(), rewards[i].tolist(), strict=True)):
            lost[i, t] = best(tuple(sorted(arms)), 10 - t) - worth(tuple(arms), a, 10 - t)
            arms[a] = (arms[a][0] + int(r), arms[a][1] + 1)
    return lost

def choices(rule):
    """The arms `[TRIALS, 10]` that a rule pulls, and what they paid."""
    bandits, found = tasks(), []
    state = bandits.reset()
    rule.reset(bandits)
    for t in range(10):
        act = rule.act(state, t)
        _, reward, over = bandits.step(act)
        rule.observe(state, act, reward, over, state)
        found.append((act, reward))
    return [torch.stack(x, 1) for x in zip(*found, strict=True)]

lost = {f"RL², seed {s}": regrets(act, reward) for s, (_, act, reward) in zip(SIZE["seeds"], plays, strict=True)}
lost |= {name: regrets(*choices(rules[name])) for name in ("UCB1", "greedy", "Thompson")}
for name, of_trials in lost.items():
    print(f"{name:13} gives away {of_trials.sum(1).mean():.3f} in a trial; {np.mean(of_trials < 1e-9):.0%} of its pulls"
          " are optimal")

# %% tags=["hide-cell"]
given = {name: of_trials.sum(1).mean() for name, of_trials in lost.items()}
assert all(abs(LIMIT - given[name] - known[name]) < 0.07 for name in ("UCB1", "greedy", "Thompson"))

# %% tags=["hide-cell", "trained"]
assert all(abs(LIMIT - given[f"RL², seed {s}"] - x) < 0.07 for s, x in zip(SIZE["seeds"], sums, strict=True))
assert given["UCB1"] < 0.02 and 0.03 < given["greedy"] < 0.12 and given["Thompson"] > 0.6
ours = [given[f"RL², seed {s}"] for s in SIZE["seeds"]]
assert max(ours) < 0.2 and np.mean(ours) < given["greedy"]
assert all(np.mean(lost[f"RL², seed {s}"] < 1e-9) > 0.85 for s in SIZE["seeds"])

# %% [markdown]
# At least 85 of a hundred pulls of each network are optimal, and all its mistakes together cost less than .2 in a
# trial. On average the networks give away less than greedy does, whose share is about .1, and far less than Thompson
# sampling, more than .6. UCB1 with its hand-picked constant loses next to nothing. What nobody told the network, that
# one has to explore, and less so towards the end, it has found out.
#
# ## What is in the memory?
#
# A common way of asking is a **probe**: a linear function, fitted by least squares, that is to read from $h$ what we
# believe to be in it. Here: how often each arm was pulled, and how often it paid, after nine pulls. The probe is
# fitted on one half of the trials and judged on the other by $R^2$, the share of variance that it explains. And, as a
# control, the same for a GRU that was never trained, which is shown the same trials.

# %%
@torch.no_grad()
def probe(net, seen, act, reward):
    """R² for the counts of pulls and of wins after nine pulls, read from the memory."""
    states = net.remember(seen, net.empty(len(seen)))[:, -1]
    pulled = one_hot(act[:, :9], 5).float()
    counts = torch.cat([pulled.sum(1), (pulled * reward[:, :9, None]).sum(1)], 1)                # [TRIALS, 10]
    inputs = torch.cat([states, torch.ones(len(states), 1)], 1)
    fit, test = slice(0, TRIALS // 2), slice(TRIALS // 2, None)
    weights = torch.linalg.lstsq(inputs[fit], counts[fit], driver="gelsd").solution
    wrong = (inputs[test] @ weights - counts[test]).square().sum()
    return 1 - (wrong / (counts[test] - counts[test].mean(0)).square().sum()).item()

torch.manual_seed(0)
untrained = [RecurrentActorCritic(seen.shape[-1], net.dist, net.hidden_size) for net, (seen, _, _) in
             zip(nets, plays, strict=True)]
read = {"trained": [probe(net, *seen) for net, seen in zip(nets, plays, strict=True)],
        "never trained": [probe(net, *seen) for net, seen in zip(untrained, plays, strict=True)]}
for name, values in read.items():
    print(f"{name:14} R² = " + ", ".join(f"{x:.3f}" for x in values))

# %% tags=["hide-cell"]
assert min(read["trained"]) > 0.97 and min(read["never trained"]) > 0.96
assert all(4.5 < trial(net)[2].sum(1).mean() < 5.5 for net in untrained)

# %% [markdown]
# The counts can be read from the memory almost without error. That would be a fine proof that the network has learned
# to count, were it not for the control: they can be read from a random GRU as well. Dozens of numbers are plenty to
# hold ten, and a memory that has never been trained keeps traces of all that went through it. What a probe finds
# *can* be read; it need not be used, nor have been learned. The random network has the counts too and plays like
# chance.
#
# ## Break it: a longer trial
#
# A rule such as UCB1 does not care how long a trial is. The network has only seen ten pulls. Now it gets a hundred.

# %%
longer = {name: play(tasks(100), rules[name]).mean().item() for name in ("greedy", "UCB1")}
longer |= {f"RL², seed {s}": trial(net, pulls=100)[2].sum(1).mean().item() for s, net in
           zip(SIZE["seeds"], nets, strict=True)}
for name, value in longer.items():
    print(f"{name:13} {value:.1f} of a hundred pulls pay")

# %% tags=["hide-cell", "trained"]
ours = [value for name, value in longer.items() if name.startswith("RL²")]
assert 74 < longer["greedy"] < 76.5 and longer["UCB1"] > 78 and max(ours) < longer["UCB1"] - 1.5 and min(ours) > 55

# %% [markdown]
# Greedy gets about 75, UCB1 more than 78. The networks still learn, as chance would get 50, but every one of them
# stays at least 1.5 behind UCB1, which they nearly equalled on ten pulls. What was learned is a rule for the tasks it
# was trained on, and their length is part of them. What RL² gets when it is trained on a hundred pulls is in the
# [benchmarks](../docs/benchmarks/README.md#papers-own-experiments).
#
# ## Try it
#
# 1. `spinup exercise start 3.7`: write what the network sees, and when its memory is emptied.
# 2. Make a subclass of `Bandits` whose `_draw` halves all probabilities. How far below greedy is each of the
#    networks, which have never seen such poor arms, and how far is UCB1?
# 3. Train with `gamma=0`, so that only the next pull counts. Which of the three rules above should come out of it? Is
#    what you find nearer to the limit than you expected?
#
# **Next**: [8. Self-play: tic-tac-toe against one's own past](08_self_play.ipynb).
