# %% [markdown]
# # 6. Exploration: a chain, novelty, and a noisy television
#
# **You will** see why random actions explore badly. You reward an agent for new states and draw a
# map of the states that are new to it. Then you distract the agent with a screen of random
# pictures. **You need** [PPO](01_quickstart.ipynb), and the idea of Q-learning for the first part.
# **Time**: fifteen minutes. The code runs for about two minutes.
#
# You choose the budget in the first line of the next cell. With `ci`, the notebook needs less than two
# minutes on one CPU core. `cpu` trains on more seeds, and `gpu` does the same on a GPU. If the
# environment variable `SPINUP_BUDGET` is set, it overrides `BUDGET`.

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

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "device": "cuda"})
SEEDS, RUNS = SIZE["seeds"], tempfile.mkdtemp()
QUIET = {"log_dir": RUNS, "quiet": True, "tensorboard": False,
         "device": SIZE["device"]}
_ = patch("spinup.runs.curve.draw_curve").start()    # 24 pictures would take seconds

# %% [markdown]
# ## A chain
#
# Forty states form a row. The agent starts in the second state and moves left or right. Each step
# that ends in the first state gives a reward of .001. Each step that ends in the last state
# gives 1. An episode has 49 steps. An agent that never reaches the last state learns to stay near
# the first.
#
# A random policy goes left or right with probability one half. How likely is it to reach the last
# state? The code computes this exactly, by updating the probability of each state step by step.

# %%
def chance(length, steps):
    """Probability that a random walk from the second state of a chain of `length`
    states reaches the last one within `steps` steps."""
    where, arrived = np.zeros(length), 0.0
    where[1] = 1
    for _ in range(steps):
        left, right = np.append(where[1:], 0) / 2, np.append(0, where[:-1]) / 2
        left[0] += where[0] / 2              # a step left at the wall has no effect
        where = left + right
        arrived, where[-1] = arrived + where[-1], 0
    return arrived


print("; ".join(f"{n} states: one episode in {1 / chance(n, n + 9):,.0f}"
                for n in (10, 20, 40)))

# %% tags=["hide-cell"]
assert 10 < 1 / chance(10, 19) < 20 and 1000 < 1 / chance(20, 29) < 2000
assert 1e8 < 1 / chance(40, 49) < 2e8
assert np.isclose(chance(3, 1), 0.5)

# %% [markdown]
# With ten states, the random policy needs about 13 episodes. With forty states, it needs more than
# a hundred million. **Epsilon-greedy** exploration takes a random action with probability
# $\varepsilon$, and otherwise the action with the highest estimated value. It has the same weakness as
# the random policy, because one random action often undoes the one before.
#
# Now look at networks that no one has trained. Each of 500 environment copies has its own network
# with random weights. Each network takes its greedy action in every step of one episode.

# %%
COPIES = 500
torch.manual_seed(1)
rng = np.random.default_rng(1)
nets = [QNetwork((40,), 2, (16, 16), layer_norm=True).advantage
        for _ in range(COPIES)]
untrained = NumpyMLPs(nets[0], COPIES)
for i, net in enumerate(nets):
    weights = torch.cat([weights.detach().flatten() for weights in net.parameters()])
    untrained.put(i, weights.numpy())


def farthest(name, choose):
    """Farthest state that each environment copy reaches in an episode, `[COPIES]`."""
    env = make(name, COPIES, seed=1)
    obs, far = env.reset(), np.ones(COPIES, int)
    for _ in range(env.limit - 1):
        obs = env.step(choose(obs)).obs
        far = np.maximum(far, env.state)
    return far


coin = farthest("Chain-40-v0", lambda obs: rng.integers(0, 2, COPIES))
fresh = farthest("Chain-40-v0", lambda obs: untrained(obs).argmax(-1))
permuted = farthest("ChainPermuted-40-v0", lambda obs: untrained(obs).argmax(-1))
for name, far in (("random actions", coin), ("untrained networks", fresh),
                  ("untrained networks, permuted chain", permuted)):
    print(f"{name}: farthest state {far.max() + 1} of 40,"
          f" {np.mean(far == 39):.0%} reach the last state")

# %% tags=["hide-cell"]
assert coin.max() < 35 and np.median(coin) > np.median(fresh)
assert 0.1 < np.mean(fresh == 39) < 0.4 and permuted.max() < 25

# %% [markdown]
# The median network gets less far than random actions do. But more than a tenth of the networks
# walk straight to the last state. The reason is that a network prefers the same action in states
# that look alike. **Parameter noise** uses this fact. It adds noise to the weights once per
# episode, instead of noise to each action. The perturbed policy then behaves consistently for the
# whole episode, and differently in the next one.
#
# The third line of the output shows when this fails. In the permuted chain, the actions left and
# right are swapped in about half of the states. The task is as hard as before. But no simple
# function of the state now leads to the last state, and no untrained network gets there.
#
# ## Training on the chain
#
# The next cell trains DQN with both kinds of noise. `explore` is the share of the run over which
# $\varepsilon$ falls from 1 to .1. The algorithm adapts the size of the parameter noise so that the
# noise changes the policy as much as epsilon-greedy exploration would. The plot counts the rows of
# `progress.csv` in which the agent reached the last state. A row covers a little less than an episode.

# %%
CHAIN = {"total_steps": 65 * 49, "learning_starts": 100, "batch_size": 32,
         "hidden": (16, 16), "explore": 0.5, "update_every": 2,
         "update_ratio": 0.5, "lr": 2e-3, "checkpoint_steps": 10**9}
NOISE = {"parameters": {"sigma": 0.01, "adapt": 1.05, "adapt_every": 49},
         "actions": {}}
on = {noise: [param_noise("Chain-40-v0", seed=seed, noise=noise, **CHAIN, **own, **QUIET)
              for seed in SEEDS] for noise, own in NOISE.items()}
reached = {noise: [sum(r >= 1 for r in result.progress["return_max"])
                   for result in results] for noise, results in on.items()}
for noise, results in on.items():
    for result in results:
        result.progress["sum"] = list(
            np.cumsum(np.array(result.progress["return_max"]) >= 1))

print("rows that reach the last state, by seed:", reached)

figure, (axes,) = panels()
curves(axes, {f"noise on {noise}": results for noise, results in on.items()}, "sum")
axes.set(title="a chain of 40 states", xlabel="environment steps",
         ylabel="rows that reached the last state")
show(figure, "Number of rows that reached the last state so far, against environment"
     " steps. With parameter noise it rises on every seed. With action noise it stays"
     " at or near zero.")

# %% tags=["hide-cell", "trained"]
assert min(reached["parameters"]) >= 3 and np.median(reached["actions"]) <= 2

# %% [markdown]
# Parameter noise reaches the last state again and again, on every seed. Action noise almost never
# does. The cause is not a lack of randomness: at the start, all actions of this run are random.
# Action noise can succeed with a lucky initial network. A network that happens to prefer "right"
# reaches the last state without any exploration.
#
# ## An intrinsic reward for novelty
#
# Noise of any kind searches blindly. Curiosity searches for something new. It adds an intrinsic
# reward, the *bonus*, for states that are new. But how can the agent know which states are new, if
# there are too many states to count? **Random network distillation** (RND) answers this with two
# networks. The target network $f$ has random weights and is never trained. The predictor $\hat f$
# learns to match the outputs of $f$ on the states that the agent visits. The bonus is the
# prediction error:
#
# $$b(s) = \tfrac{1}{2k} \left\lVert \hat f(s) - f(s) \right\rVert^2, \qquad f(s) \in \mathbb{R}^k.$$
#
# - $s$ is a state, and $b(s)$ is its bonus.
# - $f(s)$ and $\hat f(s)$ are vectors of $k$ numbers, the outputs of the two networks.
#
# In states that the agent visits often, the predictor is accurate and the bonus is small. In states
# that it never visited, the predictor had no training data, and the bonus stays large. A few lines
# of code show this for 100 states. Each state is a vector of 30 random numbers. The agent visits
# only the first 50 states:

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
print(f"share of the initial bonus that remains: visited states {kept[0].mean():.2f},"
      f" other states {kept[1].mean():.2f}")

# %% tags=["hide-cell"]
library = Surprise("rnd", (30,), 4, 16, (64,))
library.features, library.predict = f, f_hat
assert torch.allclose(
    library.error(states, torch.zeros(100).long(), states).detach(), after)
assert kept[0].mean() < 0.1 and kept[1].mean() > 5 * kept[0].mean()

# %% [markdown]
# ## Four rooms
#
# The agent now moves through four rooms. The path goes from the upper left room to the upper right
# one, then down, and then to the lower left one. The goal is in the lower left room. A wall
# separates this room from the start. The only reward is 1 at the goal. An episode has 60 steps, and
# the shortest path takes 24. The agent observes its row and its column, each as a one-hot vector.
#
# `curiosity` is PPO with the bonus. With `bonus_coef=0` it is plain PPO: it still trains the
# networks of RND, but they do not change the policy.

# %%
PLAN = ("###########", "#....#....#", "#.........#", "#....#....#", "#....#....#",
        "#########.#",
        "#....#....#", "#....#....#", "#.........#", "#....#....#", "###########")
FREE = np.array([[cell == "." for cell in row] for row in PLAN])
# Each picture of the screen has 16 pixels.
PICTURES = np.random.default_rng(0).integers(0, 2, (65_536, 16)).astype(np.float32)


class Rooms(gymnasium.Env):
    """Four rooms, with a goal or with a screen.

    pictures: number of pictures that a screen in the first room shows, one of them
        sampled in each step. 0: no screen, and a goal in the last room.
    """

    visits = np.zeros(FREE.shape)                  # sum over all environment copies

    def __init__(self, pictures=0):
        self.pictures, self.action_space = pictures, gymnasium.spaces.Discrete(4)
        size = 22 + 16 * (pictures > 0)
        self.observation_space = gymnasium.spaces.Box(0, 1, (size,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.y, self.x, self.steps = 1, 1, 0
        if self.pictures:                          # with a screen, start in any cell
            cell = self.np_random.choice(np.argwhere(FREE))
            self.y, self.x = map(int, cell)
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


ROOMS = {"total_steps": 90_112, "num_envs": 16, "rollout_steps": 128,
         "minibatches": 2, "lr": 2e-3, "bonus_lr": 5e-4, "checkpoint_steps": 10**9}
found, maps = {"PPO with RND": [], "PPO alone": []}, []
for label, coef in (("PPO with RND", 1.0), ("PPO alone", 0.0)):
    for seed in SEEDS:
        Rooms.visits[:] = 0
        found[label].append(
            curiosity(Rooms, seed=seed, bonus_coef=coef, **ROOMS, **QUIET))
        maps.append((label, Rooms.visits.copy()))

figure, (axes,) = panels()
curves(axes, found)
axes.set(title="a goal three rooms away", xlabel="environment steps",
         ylabel="share of episodes that reach the goal", ylim=(-0.03, 1.03),
         xticks=range(0, 90_001, 30_000))
show(figure, "Share of the last 100 episodes that reach the goal, against environment"
     " steps. PPO with RND rises to near 1 on every seed. PPO alone stays far below.")
for label, visits in maps:
    print(f"{label}: {np.count_nonzero(visits)} of {FREE.sum()} cells visited,"
          f" {visits[6:10, 1:5].sum():,.0f} steps in the last room")
at_end = {label: [round(r.progress["return_mean_100"][-1], 2) for r in runs]
          for label, runs in found.items()}
print("share of the last 100 episodes that reach the goal:", at_end)

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
where, arrived = np.zeros(FREE.shape), 0.0         # exact, for a random walk
where[1, 1] = 1
for _ in range(60):
    moved = sum(np.where(np.roll(FREE, (-y, -x), (0, 1)), 0, where)
                + np.roll(where, (y, x), (0, 1)) * FREE
                for y, x in ((0, 1), (1, 0), (0, -1), (-1, 0)))
    where = moved / 4
    arrived, where[9, 1] = arrived + where[9, 1], 0
assert arrived < 1e-4 and abs(where.sum() + arrived - 1) < 1e-9

# %% tags=["hide-cell", "trained"]
lowest = [min(r.progress["entropy"]) for r in found["PPO alone"]]
assert np.median(lowest) < np.log(4) - 0.05
last = {label: [v[6:10, 1:5].sum() for name, v in maps if name == label]
        for label in found}
assert np.mean(at_end["PPO with RND"]) > np.mean(at_end["PPO alone"]) + 0.3
assert np.median(last["PPO alone"]) < 0.3 * np.median(last["PPO with RND"])
assert all(max(r.progress["return_mean_100"][3:]) > 0 for r in found["PPO with RND"])
assert all(np.count_nonzero(v) == FREE.sum()
           for name, v in maps if name == "PPO with RND")

# %% [markdown]
# With the bonus, every seed visits every cell and finds the goal, some seeds early and others late.
# PPO alone falls far behind. A random walk reaches the goal in fewer than one of 10,000 episodes,
# and PPO learns nothing before it finds a reward.
#
# PPO does not even remain random: its entropy falls. A likely reason is advantage normalisation
# (`whiten` in the code). PPO scales all advantages to standard deviation 1, however small they are.
# Without rewards, the advantages contain only the errors of the value function, and the policy
# drifts with these errors. A drifting policy may reach the goal by luck, but it does not search.
#
# The checkpoint of a run contains the networks of RND, so you can compute the bonus of each cell. The
# next cell does this for PPO alone, on the seed with the fewest steps in the last room. It shows the
# visits of that run, and the bonus that RND would give.

# %%
alone = [visits for label, visits in maps if label == "PPO alone"]
least = int(np.argmin([visits[6:10, 1:5].sum() for visits in alone]))
result, visits = found["PPO alone"][least], alone[least]
parts = load_checkpoint(result.directory / "checkpoint.pt")["parts"]
surprise = Surprise("rnd", (22,), 4, 64, (128,))
obs_normaliser = Normaliser((22,), clip=5.0)
surprise.load_state_dict(parts["surprise"])
obs_normaliser.load_state_dict(parts["obs_normaliser"])
cells = np.argwhere(FREE)
looks = torch.zeros(len(cells), 22)
looks[range(len(cells)), cells[:, 0]] = looks[range(len(cells)), 11 + cells[:, 1]] = 1
with torch.no_grad():
    bonus = surprise.error(None, None, obs_normaliser(looks)).numpy()
rooms = {"first": (1, 1), "second": (1, 6), "third": (6, 6), "last": (6, 1)}
pay = {name: float(np.mean([b for b, (r, c) in zip(bonus, cells, strict=True)
                            if y <= r < y + 4 and x <= c < x + 4]))
       for name, (y, x) in rooms.items()}

figure, (left, right) = panels(2)
for axes, values, title in ((left, visits[tuple(cells.T)] + 1, "visits + 1"),
                            (right, bonus, "bonus")):
    picture = np.full(FREE.shape, np.nan)
    picture[tuple(cells.T)] = np.log10(values)
    drawn = axes.imshow(picture, cmap="cividis")
    figure.colorbar(drawn, ax=axes, label="log10")
    axes.set(title=title, xticks=[], yticks=[])
    axes.grid(False)
show(figure, "Two maps of the four rooms. Visits fall along the path from the upper"
     " left room and are few or zero in the lower left room. The bonus is small in the"
     " first room and over twenty times larger in the others.")
print("mean bonus of each room:", {name: f"{x:.1e}" for name, x in pay.items()})

# %% tags=["hide-cell", "trained"]
ranks = [np.argsort(np.argsort(x)) for x in (visits[tuple(cells.T)], bonus)]
assert np.corrcoef(*ranks)[0, 1] < -0.4 and pay["last"] > 5 * pay["first"]

# %% [markdown]
# The two maps are roughly opposite: the more visits a cell has, the smaller its bonus. In each room
# beyond the first, the mean bonus is more than twenty times that of the first room. So an agent
# that receives the bonus is drawn to all cells that it has not seen, including those of the last
# room. But the bonus is not a count. Cells with no visits differ in their bonus by chance, because
# an untrained output differs from cell to cell. Here the third room pays more than the last one.
#
# ## A noisy television
#
# RND is one way to define an intrinsic reward. A more direct way is a **forward model**, which predicts
# the next observation from the current observation and the action. Its prediction error is the bonus.
#
# Now put a screen into the first room. In each step it shows one of four pictures, chosen at
# random. The next cell compares three kinds of bonus:
#
# - `pixels` is a forward model of the observation itself. It cannot predict the next picture, so
#   its error never falls in this room.
# - `rnd` depends only on the new observation, and not on how the agent got there. It can memorise
#   four pictures in each cell.
# - `inverse`, the intrinsic curiosity module (ICM), predicts features instead of pixels. It trains
#   these features to identify the action from two successive observations. The pictures do not
#   depend on the action, so they do not help with this.
#
# All three agents learn from the intrinsic reward alone (`reward_coef=0`), for 50,000 steps.
# Episodes start in any cell. The measure is the share of steps in the room with the screen. This
# room has a quarter of all cells.

# %%
SCREEN = {"total_steps": 49_152, "num_envs": 16, "rollout_steps": 128, "lr": 2e-3,
          "bonus_lr": 3e-3, "bonus_share": 1.0, "epochs": 2, "feature_hidden": (64,),
          "reward_coef": 0, "checkpoint_steps": 10**9}


def watch(kind, seed, pictures):
    """Train, and return two columns with the rows of progress.csv: the environment
    steps, and the share of steps in the first room."""
    shares, write = [], Run.row

    def row(run):
        shares.append(Rooms.visits[1:5, 1:5].sum() / Rooms.visits.sum())
        Rooms.visits[:] = 0
        return write(run)

    Rooms.visits[:] = 0
    with patch.object(Run, "row", row):
        result = curiosity(partial(Rooms, pictures), seed=seed, bonus=kind, **SCREEN,
                           **QUIET)
    return {"steps": result.progress["steps"], "share": shares}


def late_share(run):
    """Mean share of steps in the first room, over the last quarter of the run."""
    return float(np.mean(run["share"][-len(run["share"]) // 4:]))


NAMES = {"pixels": "forward model of pixels", "rnd": "RND",
         "inverse": "ICM (inverse features)"}
watched = {name: [watch(kind, seed, 4) for seed in SEEDS]
           for kind, name in NAMES.items()}
ends = {name: [late_share(run) for run in runs] for name, runs in watched.items()}

figure, (axes,) = panels()
curves(axes, watched, "share")
axes.axhline(0.25, color="#444444", linewidth=1, linestyle=":")
axes.set(title="time in the room with the screen", xlabel="environment steps",
         ylabel="share of steps", ylim=(0, 1), xticks=range(0, 50_001, 10_000))
show(figure, "Share of steps in the room with the screen, against environment steps."
     " The forward model of pixels rises to .6 or more. RND stays lower, mostly between"
     " .2 and .5. ICM falls below .1 and comes back; one of its seeds reaches .7.")
print("last quarter:",
      {name: [round(share, 2) for share in shares] for name, shares in ends.items()})

# %% tags=["hide-cell", "trained"]
means = {kind: np.mean(ends[name]) for kind, name in NAMES.items()}
assert means["pixels"] > 0.5 and means["rnd"] < means["pixels"] - 0.15
assert means["inverse"] < means["pixels"] - 0.25
assert np.median([np.ptp(run["share"][-len(run["share"]) // 2:])
                  for runs in watched.values() for run in runs]) > 0.1

# %% [markdown]
# In the last quarter, the agent with the forward model of pixels spends more than half of its steps in
# the room with the screen. RND and ICM spend much less there, on average. Such a short run shows only
# this order, and not where each curve would end. ICM first goes far below the share of a quarter that
# the room would have by chance, because novelty elsewhere attracts it. Then it comes back, and one seed
# even reaches .7. None of these bonuses punishes the screen. The agents with RND and ICM only lose
# interest in it for a while.
#
# ## Break it
#
# RND had to learn four pictures. What happens if most pictures appear once or never? The next cell
# trains RND with 65,536 pictures.

# %%
noisy = [watch("rnd", seed, len(PICTURES)) for seed in SEEDS]
noisy_ends = [late_share(run) for run in noisy]
print("RND with 65,536 pictures, last quarter:"
      f" {', '.join(f'{x:.2f}' for x in noisy_ends)}")

# %% tags=["hide-cell", "trained"]
assert np.mean(noisy_ends) > means["rnd"] + 0.1

# %% [markdown]
# Now RND also watches the screen. On average, it spends at least .1 more of its time there
# than with four pictures. RND learns what it sees often, but with so many pictures it sees none of them
# often. So RND itself does not protect against noise. In the previous experiment, four pictures were
# simply few enough to learn.
#
# ## Try it
#
# 1. Set `bonus_lr` of the four rooms to `3e-3`. The predictor then learns with a learning rate that
#    is six times as large, so novelty fades sooner. Does the agent still find the goal?
#
#    <details><summary>Answer</summary>
#
#    Yes. In one check on three seeds, all runs ended with a share of 1.0, and two of them found the
#    goal earlier than before. Even `3e-2` worked. This map is small, so the policy gets to a new
#    room before its novelty fades. On a larger map, novelty can fade too early.
#
#    </details>
#
# 2. Train `param_noise` on `ChainPermuted-40-v0`. Does it behave as the untrained networks suggest?
#
#    <details><summary>Answer</summary>
#
#    Yes. In one check on three seeds, no run with parameter noise or action noise ever reached the
#    last state. Parameter noise finds only policies whose weights are close. The policy that always
#    goes right is not close here, because its action changes from state to state.
#
#    </details>
#
# 3. Give the agent a remote control: let the picture change only when the last action was 0. Which
#    agents watch now?
#
#    <details><summary>Answer</summary>
#
#    The agent with the forward model of pixels watches most, because it cannot predict the new
#    picture. RND watches less, and ICM does not watch: .25 is the room's share of the cells. In
#    one check on three seeds, the mean shares were .71 for this model, .40 for RND and .25 for ICM.
#    You may have expected ICM to watch too, because the picture now contains information about the
#    action. But the change of position already identifies most actions, which is probably why ICM
#    ignored the picture.
#
#    </details>
#
# The commands `spinup bench paper chain`, `doorkey` and `noisy-tv` run larger experiments of this
# kind. `spinup exercise start 5.2`, in the folder of your exercises, asks you to find a bug in the
# entropy, which an entropy bonus uses to keep a policy exploring.
#
# **Next**: [7. RL²: a memory that learns to learn](07_rl2.ipynb).
