# %% [markdown]
# # 6. Exploration: a chain, novelty, and a noisy television
#
# **You will** see why single random actions do not get far, pay an agent for what it has not seen, look at a map of
# what is new to it, and then distract it with a screen. **You need** [PPO](01_quickstart.ipynb), and for the first
# part the idea of Q-learning. **Time**: fifteen minutes of reading, of which the computer works for two.
#
# The one choice of this notebook is its budget. `ci` takes one CPU core less than two minutes; `cpu` trains on more
# seeds; `gpu` does the same on a GPU. The environment variable `SPINUP_BUDGET` goes before it.

# %%
BUDGET = "ci"

import tempfile
from functools import partial
from unittest.mock import patch

import gymnasium
import numpy as np
import torch

from spinup import curiosity, param_noise
from spinup.algos.curiosity import Surprise
from spinup.core.critics import QNetwork
from spinup.core.fast.acting import NumpyMLPs
from spinup.core.fast.linear import relu_mlp
from spinup.core.normaliser import Normaliser
from spinup.envs import make
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.run import Run
from spinup.view.notebook import curves, panels, show, sizes

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "device": "cpu"}, cpu={"seeds": (1, 2, 3, 4, 5), "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "device": "cuda"})
SEEDS, RUNS = SIZE["seeds"], tempfile.mkdtemp()
QUIET = {"log_dir": RUNS, "quiet": True, "tensorboard": False, "device": SIZE["device"]}
_ = patch("spinup.runs.curve.draw_curve").start()         # of 24 runs, pictures would take some seconds

# %% [markdown]
# ## A chain
#
# Forty states stand in a row. The agent starts in the second and goes left or right. The first state pays .001 for
# each step spent there, the last one pays 1, and an episode has 49 steps. Whoever never sees the far end learns to
# stay at the near one. How likely is it that a coin, tossed at each step, gets there? The probability of being in
# each state, pushed forward step by step, says so exactly.

# %%
def chance(length, steps):
    """That a coin reaches the last state of a chain within so many steps, from the second."""
    where, arrived = np.zeros(length), 0.0
    where[1] = 1
    for _ in range(steps):
        left, right = np.append(where[1:], 0) / 2, np.append(0, where[:-1]) / 2
        left[0] += where[0] / 2                           # at the wall, left stays
        where = left + right
        arrived, where[-1] = arrived + where[-1], 0
    return arrived


print("; ".join(f"{n} states: one episode in {1 / chance(n, n + 9):,.0f}" for n in (10, 20, 40)))

# %% tags=["hide-cell"]
assert 10 < 1 / chance(10, 19) < 20 and 1000 < 1 / chance(20, 29) < 2000 and 1e8 < 1 / chance(40, 49) < 2e8
assert np.isclose(chance(3, 1), 0.5)

# %% [markdown]
# Ten states need patience, forty more than a hundred million episodes. **Epsilon-greedy** exploration, the best
# action except for a share $\varepsilon$ of random ones, tosses such coins: what one step tries, the next takes back.
#
# Now look at networks that nobody has trained. Each of 500 copies of the chain gets a network of its own, with random
# weights, and follows its greedy action for one episode.

# %%
COPIES = 500
torch.manual_seed(1)
rng = np.random.default_rng(1)
nets = [QNetwork((40,), 2, (16, 16), layer_norm=True).advantage for _ in range(COPIES)]
untrained = NumpyMLPs(nets[0], COPIES)
for i, net in enumerate(nets):
    untrained.put(i, torch.cat([weights.detach().flatten() for weights in net.parameters()]).numpy())


def farthest(name, choose):
    """The farthest state that each copy reaches in an episode."""
    env = make(name, COPIES, seed=1)
    obs, far = env.reset(), np.ones(COPIES, int)
    for _ in range(env.limit - 1):
        obs = env.step(choose(obs)).obs
        far = np.maximum(far, env.state)
    return far


coin = farthest("Chain-40-v0", lambda obs: rng.integers(0, 2, COPIES))
fresh = farthest("Chain-40-v0", lambda obs: untrained(obs).argmax(-1))
permuted = farthest("ChainPermuted-40-v0", lambda obs: untrained(obs).argmax(-1))
print("\n".join(f"{name}: farthest state {far.max() + 1} of 40, {np.mean(far == 39):.0%} at the end" for name, far in (
    ("coin", coin), ("random networks", fresh), ("random networks, permuted chain", permuted))))

# %% tags=["hide-cell"]
assert coin.max() < 35 and np.median(coin) > np.median(fresh)
assert 0.1 < np.mean(fresh == 39) < 0.4 and permuted.max() < 25

# %% [markdown]
# Half of the networks hardly leave the start, fewer steps than the coin. But more than a tenth of them walk straight
# to the end: a network prefers the same action in states that look alike. This is what **parameter noise** uses. It
# adds noise to the weights, once an episode, in place of noise on actions. The agent is then odd in the same way
# throughout the episode, and in another way in the next one.
#
# The third line says what this rests on. In the permuted chain left and right have changed places in about half of
# the states. The task is the same, but no simple function of the state goes far, and no network does.
#
# ## Trained on the chain
#
# Here is DQN with both kinds of noise. `explore` is the share of the run over which $\varepsilon$ falls from 1 to .1;
# the noise on weights is kept at the size that disturbs the actions as much. Counted are the rows of `progress.csv`,
# a little shorter than an episode each, in which the far end was reached.

# %%
CHAIN = {"total_steps": 65 * 49, "learning_starts": 100, "batch_size": 32, "hidden": (16, 16), "explore": 0.5,
         "sigma": 0.01, "adapt": 1.05, "adapt_every": 49, "update_every": 2, "update_ratio": 0.5,
         "lr": 2e-3, "checkpoint_steps": 10**9}
on = {noise: [param_noise("Chain-40-v0", seed=seed, noise=noise, **CHAIN, **QUIET) for seed in SEEDS]
      for noise in ("parameters", "actions")}
reached = {noise: [sum(r >= 1 for r in result.progress["return_max"]) for result in results]
           for noise, results in on.items()}
for noise, results in on.items():
    for result in results:
        result.progress["sum"] = list(np.cumsum(np.array(result.progress["return_max"]) >= 1))

print("rows with the far end, by seed:", reached)

figure, (axes,) = panels()
curves(axes, {f"noise on {noise}": results for noise, results in on.items()}, "sum")
axes.set(title="a chain of 40", xlabel="environment steps", ylabel="times at the far end so far")
show(figure, "How often the far end was reached so far, against steps: with noise on parameters the count rises on"
     " every seed, with noise on actions it stays at or near zero.")

# %% tags=["hide-cell", "trained"]
assert min(reached["parameters"]) >= 3 and np.median(reached["actions"]) <= 2

# %% [markdown]
# Noise on parameters comes to the end again and again, on every seed. Noise on actions hardly ever does, and it is
# not for lack of randomness: at the beginning all of its actions are random. What can help one of them is luck with
# its first weights, since a network that happens to prefer «right» goes there without any exploration.
#
# ## Paid for what is new
#
# Noise of any kind searches blindly. Curiosity searches for something: it adds a bonus to the reward where a state is
# new. Among more states than one can count, what is new? **Random network distillation** (RND) answers with two
# networks. One, $f$, is random and never trained. The other, $\hat f$, learns to say what $f$ says about the states
# that were visited:
#
# $$b(s) = \tfrac{1}{2k} \left\lVert \hat f(s) - f(s) \right\rVert^2, \qquad f(s) \in \mathbb{R}^k.$$
#
# Where the agent has often been, $\hat f$ is right and the bonus is small. Where it has never been, nobody told
# $\hat f$ what to say. Ten lines show it, on 100 states seen as vectors of 30 random numbers, of which only the first
# 50 are visited:

# %%
torch.manual_seed(1)
states = torch.randn(100, 30)
f, f_hat = relu_mlp(30, 64, 16).requires_grad_(False), relu_mlp(30, 64, 64, 16)
optimizer = torch.optim.Adam(f_hat.parameters(), lr=1e-3)
before = 0.5 * (f_hat(states) - f(states)).square().mean(-1).detach()
for _ in range(300):
    loss = 0.5 * (f_hat(states[:50]) - f(states[:50])).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
after = 0.5 * (f_hat(states) - f(states)).square().mean(-1).detach()
kept = (after / before.mean()).split(50)
print(f"of the bonus at first, visited states keep {kept[0].mean():.2f}, the others {kept[1].mean():.2f}")

# %% tags=["hide-cell"]
library = Surprise("rnd", 30, 4, 16, (64,))
library.features, library.predict = f, f_hat
assert torch.allclose(library.error(states, torch.zeros(100).long(), states).detach(), after)
assert kept[0].mean() < 0.1 and kept[1].mean() > 5 * kept[0].mean()

# %% [markdown]
# ## Four rooms
#
# The agent lives in four rooms in a row that winds: from the upper left to the upper right, down, and to the lower
# left, where the goal is, behind a wall from the start. The only reward is 1 at the goal. An episode has 60 steps;
# the shortest way takes 24. The agent sees its row and column, one-hot. `curiosity` is PPO with the bonus; with
# `bonus_coef=0` it is PPO, and the two networks of RND only look on.

# %%
PLAN = ("###########", "#....#....#", "#.........#", "#....#....#", "#....#....#", "#########.#",
        "#....#....#", "#....#....#", "#.........#", "#....#....#", "###########")
FREE = np.array([[cell == "." for cell in row] for row in PLAN])
PICTURES = np.random.default_rng(0).integers(0, 2, (65_536, 16)).astype(np.float32)          # of 16 pixels each


class Rooms(gymnasium.Env):
    """pictures: how many a screen in the first room shows, one of them, drawn at random, in each step. 0: no screen."""

    visits = np.zeros(FREE.shape)                                         # of all copies

    def __init__(self, pictures=0):
        self.pictures, self.action_space = pictures, gymnasium.spaces.Discrete(4)
        self.observation_space = gymnasium.spaces.Box(0, 1, (22 + 16 * (pictures > 0),))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.y, self.x, self.steps = 1, 1, 0
        if self.pictures:                                                 # then one starts anywhere, without a goal
            self.y, self.x = map(int, self.np_random.choice(np.argwhere(FREE)))
        return self.look(), {}

    def look(self):
        seen = np.zeros(self.observation_space.shape, np.float32)
        seen[self.y] = seen[11 + self.x] = 1
        if self.pictures and self.y < 5 and self.x < 5:
            seen[22:] = PICTURES[self.np_random.integers(self.pictures)]
        return seen

    def step(self, action):
        dy, dx = ((0, 1), (1, 0), (0, -1), (-1, 0))[action]
        if FREE[self.y + dy, self.x + dx]:
            self.y, self.x = self.y + dy, self.x + dx
        Rooms.visits[self.y, self.x] += 1
        self.steps += 1
        won = not self.pictures and (self.y, self.x) == (9, 1)
        return self.look(), float(won), won, self.steps == 60, {}


ROOMS = {"total_steps": 90_112, "num_envs": 16, "rollout_steps": 128, "minibatches": 2, "lr": 2e-3,
         "bonus_lr": 5e-4, "checkpoint_steps": 10**9}
found, maps = {"PPO with RND": [], "PPO alone": []}, []
for label, coef in (("PPO with RND", 1.0), ("PPO alone", 0.0)):
    for seed in SEEDS:
        Rooms.visits[:] = 0
        found[label].append(curiosity(Rooms, seed=seed, bonus_coef=coef, **ROOMS, **QUIET))
        maps.append((label, Rooms.visits.copy()))

figure, (axes,) = panels()
curves(axes, found)
axes.set(title="a goal three rooms away", xlabel="environment steps", ylabel="share of episodes at the goal",
         ylim=(-0.03, 1.03), xticks=range(0, 90_001, 30_000))
show(figure, "Share of the last 100 episodes that reach the goal: PPO with RND rises to near 1 on every seed, PPO alone"
     " stays far below.")
print("\n".join(f"{label}: {np.count_nonzero(visits)} of {FREE.sum()} cells, in the last room "
                f"{visits[6:10, 1:5].sum():,.0f} steps" for label, visits in maps))
at_end = {label: [round(r.progress["return_mean_100"][-1], 2) for r in runs] for label, runs in found.items()}
print("at the end:", at_end)

# %% tags=["hide-cell"]
from collections import deque

steps, queue = {(1, 1): 0}, deque([(1, 1)])
while queue:
    y, x = queue.popleft()
    for cell in ((y, x + 1), (y + 1, x), (y, x - 1), (y - 1, x)):
        if FREE[cell] and cell not in steps:
            steps[cell] = steps[y, x] + 1
            queue.append(cell)
assert steps[9, 1] == 24
where, arrived = np.zeros(FREE.shape), 0.0                                # the same for a random walk, exactly
where[1, 1] = 1
for _ in range(60):
    moved = sum(np.where(np.roll(FREE, (-y, -x), (0, 1)), 0, where) + np.roll(where, (y, x), (0, 1)) * FREE
                for y, x in ((0, 1), (1, 0), (0, -1), (-1, 0)))
    where = moved / 4
    arrived, where[9, 1] = arrived + where[9, 1], 0
assert arrived < 1e-4 and abs(where.sum() + arrived - 1) < 1e-9

# %% tags=["hide-cell", "trained"]
assert np.median([min(r.progress["entropy"]) for r in found["PPO alone"]]) < np.log(4) - 0.05
last = {label: [v[6:10, 1:5].sum() for name, v in maps if name == label] for label in found}
assert np.mean(at_end["PPO with RND"]) > np.mean(at_end["PPO alone"]) + 0.3
assert np.median(last["PPO alone"]) < 0.3 * np.median(last["PPO with RND"])
assert all(max(r.progress["return_mean_100"][3:]) > 0 for r in found["PPO with RND"])
assert all(np.count_nonzero(v) == FREE.sum() for name, v in maps if name == "PPO with RND")

# %% [markdown]
# With the bonus, every seed sees every cell and finds the goal, some early, some late. PPO alone is far behind. A
# random walk would meet the goal in less than one of 10,000 episodes, and as long as no reward has been met there is
# nothing to learn from. PPO does not even go on playing at random, as its entropy says, which falls. Advantages are
# whitened, whatever their size, and where there is no reward they are the errors of a value function; the policy
# drifts along with them. With luck such a drift ends at a goal. It is not a search.
#
# A run's checkpoint holds the networks of RND. So one can ask what they would pay for each cell. Here is PPO alone,
# on the seed that has been least in the last room: its visits, and what would be new to it.

# %%
alone = [visits for label, visits in maps if label == "PPO alone"]
least = int(np.argmin([visits[6:10, 1:5].sum() for visits in alone]))
result, visits = found["PPO alone"][least], alone[least]
parts = load_checkpoint(result.directory / "checkpoint.pt")["parts"]
surprise, view = Surprise("rnd", 22, 4, 64, (128,)), Normaliser((22,), clip=5.0)
surprise.load_state_dict(parts["surprise"])
view.load_state_dict(parts["view"])
cells = np.argwhere(FREE)
looks = torch.zeros(len(cells), 22)
looks[range(len(cells)), cells[:, 0]] = looks[range(len(cells)), 11 + cells[:, 1]] = 1
with torch.no_grad():
    bonus = surprise.error(None, None, view(looks)).numpy()
rooms = {"first": (1, 1), "second": (1, 6), "third": (6, 6), "last": (6, 1)}
pay = {name: float(np.mean([b for b, (r, c) in zip(bonus, cells, strict=True) if y <= r < y + 4 and x <= c < x + 4]))
       for name, (y, x) in rooms.items()}

figure, (left, right) = panels(2)
for axes, values, title in ((left, visits[tuple(cells.T)] + 1, "visits + 1"), (right, bonus, "bonus")):
    picture = np.full(FREE.shape, np.nan)
    picture[tuple(cells.T)] = np.log10(values)
    drawn = axes.imshow(picture, cmap="cividis")
    figure.colorbar(drawn, ax=axes, label="log10")
    axes.set(title=title, xticks=[], yticks=[])
    axes.grid(False)
show(figure, "Two maps of the four rooms: visits fall from the upper left room along the way and are none in the lower"
     " left one; the bonus is the other way round.")
print("mean bonus by rooms:", {name: f"{x:.1e}" for name, x in pay.items()})

# %% tags=["hide-cell", "trained"]
ranks = [np.argsort(np.argsort(x)) for x in (visits[tuple(cells.T)], bonus)]
assert np.corrcoef(*ranks)[0, 1] < -0.4 and pay["last"] > 5 * pay["first"]

# %% [markdown]
# By and large the maps are each other's negative: the more often a cell was visited, the smaller its bonus. The last
# room would pay more than five times what the first one does, and an agent that is paid goes there. The bonus is not
# a count, though. Cells nobody ever saw differ, since a network says something of its own about each.
#
# ## A noisy television
#
# RND is one way to measure surprise. A more obvious one is a **forward model**, which predicts the next observation
# from this one and the action; its error is the bonus. Now hang a screen into the first room. It shows one of four
# pictures, drawn at random in each step. Nobody can predict which comes next, so a forward model of pixels is wrong
# there for ever. RND is asked only about the picture that is there, and four pictures can be known by heart. A third
# kind, `inverse` (the intrinsic curiosity module, ICM), predicts not pixels but features, which are learned for one
# end: to tell from two observations which action lay between. The picture says nothing about that.
#
# All three are paid by curiosity alone (`reward_coef=0`), for 50,000 steps. Episodes begin anywhere. Measured is the
# share of steps in the room with the screen, a quarter of all cells.

# %%
SCREEN = {"total_steps": 49_152, "num_envs": 16, "rollout_steps": 128, "lr": 2e-3, "bonus_lr": 3e-3,
          "bonus_share": 1.0, "epochs": 2, "feature_hidden": (64,), "reward_coef": 0, "checkpoint_steps": 10**9}


def watch(kind, seed, pictures):
    """Trains, and returns the share of steps in the first room, for each row of progress.csv, with its steps."""
    shares, write = [], Run.row

    def row(run):
        shares.append(Rooms.visits[1:5, 1:5].sum() / Rooms.visits.sum())
        Rooms.visits[:] = 0
        return write(run)

    Rooms.visits[:] = 0
    with patch.object(Run, "row", row):
        result = curiosity(partial(Rooms, pictures), seed=seed, bonus=kind, **SCREEN, **QUIET)
    return {"steps": result.progress["steps"], "share": shares}


def late_share(run):
    """In the last quarter of the run."""
    return float(np.mean(run["share"][-len(run["share"]) // 4:]))


NAMES = {"pixels": "forward model of pixels", "rnd": "RND", "inverse": "ICM (inverse features)"}
watched = {name: [watch(kind, seed, 4) for seed in SEEDS] for kind, name in NAMES.items()}
ends = {name: [late_share(run) for run in runs] for name, runs in watched.items()}

figure, (axes,) = panels()
curves(axes, watched, "share")
axes.axhline(0.25, color="#444444", linewidth=1, linestyle=":")
axes.set(title="time before the screen", xlabel="environment steps", ylabel="share of steps", ylim=(0, 1),
         xticks=range(0, 50_001, 10_000))
show(figure, "Share of steps in the room with the screen: the forward model of pixels rises to .6 or more; RND stays"
     " lower, between .2 and .5 for the most part, and ICM too.")
print("in the last quarter:", {name: [round(share, 2) for share in shares] for name, shares in ends.items()})

# %% tags=["hide-cell", "trained"]
means = {kind: np.mean(ends[name]) for kind, name in NAMES.items()}
assert means["pixels"] > 0.5 and means["rnd"] < means["pixels"] - 0.15 and means["inverse"] < means["pixels"] - 0.25
assert np.median([np.ptp(run["share"][-len(run["share"]) // 2:]) for runs in watched.values() for run in runs]) > 0.1

# %% [markdown]
# Whoever predicts pixels spends more than half of the time before the screen. RND and ICM watch much less on average.
# This is what so short a run can show: the order, not where each of them would end. Single seeds swing by more than
# .1, and none of the three is told to avoid the screen; two of them only cease to find it interesting.
#
# ## Break it
#
# RND had four pictures to learn. What if most of them come once or never? Give the screen 65,536.

# %%
noisy = [watch("rnd", seed, len(PICTURES)) for seed in SEEDS]
noisy_ends = [late_share(run) for run in noisy]
print(f"RND before a screen of noise: last quarter {', '.join(f'{x:.2f}' for x in noisy_ends)}")

# %% tags=["hide-cell", "trained"]
assert np.mean(noisy_ends) > means["rnd"] + 0.1

# %% [markdown]
# Now RND watches too, more than before by a tenth of its time at least. It knows by heart what it has seen often, and
# none of these pictures is seen often. What protected it was not RND as such, but that there was little to learn.
#
# ## Try it
#
# 1. Set `bonus_lr` of the rooms to `3e-3`. What is new is then known before the agent can go there. Does it still
#    find the goal?
# 2. Train `param_noise` on `ChainPermuted-40-v0`. Does the prediction of the untrained networks hold?
# 3. Give the agent a remote control: let the picture change only when the last action was 0. Who watches now?
#
# Larger experiments of the same kinds are `spinup bench paper chain`, `doorkey` and `noisy-tv`.
# `spinup exercise start 5.2` is a bug in the entropy, which keeps a policy exploring.
#
# **Next**: [7. RL²: a memory that learns to learn](07_rl2.ipynb).
