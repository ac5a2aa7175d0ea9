# %% [markdown]
# # 3. PPO, its details switched off one by one
#
# **You will** switch off the details of PPO one at a time, on two tasks, see which of them matter there, and take
# away what keeps PPO together. **You need** the second notebook: policy gradient, advantage, GAE. **Time**: thirty
# minutes of reading, of which the computer works for two.
#
# The one choice of this notebook is its budget. `ci` takes a CPU core little more than a minute; `cpu` trains on more
# seeds; `gpu` does the same on a GPU. The environment variable `SPINUP_BUDGET` goes before it.

# %%
BUDGET = "ci"

import tempfile
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import torch
from scipy.stats import t

from spinup import ppo
from spinup.algos.ppo import clipped_surrogate
from spinup.core.returns import gae
from spinup.view.notebook import curves, panels, show, sizes
from spinup.view.plots import COLOURS

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "device": "cpu"},
             cpu={"seeds": range(1, 11), "device": "cpu"}, gpu={"seeds": range(1, 11), "device": "cuda"})
QUIET = {"log_dir": tempfile.mkdtemp(), "quiet": True, "tensorboard": False, "device": SIZE["device"],
         "checkpoint_steps": 1_000_000}                                   # none before the end

# %% [markdown]
# ## One formula, and what stands around it
#
# The last notebook ended with a batch that was used again and again, and policies that were led astray by it.
# **Proximal policy optimization** (PPO) goes over each batch in several **epochs** and takes away the reason to go
# far. Let $r_t$ be how likely an action is now over how likely it was when it was taken, and $\hat A_t$ its
# advantage. PPO raises
#
# $$\min\big( r_t \hat A_t,\ \mathrm{clip}(r_t, 1 - \epsilon, 1 + \epsilon)\, \hat A_t \big), \qquad \epsilon = 0.2.$$
#
# Once a good action is a fifth likelier than it was, or a bad one a fifth less likely, it has no gradient any more.
# Here is one line of that, the library's function beside it, and the gradient for six ratios.

# %%
ratio, advantage = torch.tensor([0.5, 0.7, 0.9, 1.1, 1.3, 1.5]), torch.tensor([[1.0], [-1.0]])      # good, bad action
logp = ratio.log().repeat(2, 1).requires_grad_()
ours = torch.minimum(logp.exp() * advantage, logp.exp().clamp(0.8, 1.2) * advantage)
loss, _ = clipped_surrogate(logp, torch.zeros(2, 6), advantage, (0.2, 0.2))
slope, = torch.autograd.grad(-loss.sum(), logp)
for name, row in (("ratio", ratio), ("good action", slope[0]), ("bad action", slope[1])):
    print(f"{name:12}", *(f"{x:5.1f}" for x in row))

# %% tags=["hide-cell"]
assert torch.equal(-loss, ours) and (slope[0, 4:] == 0).all() and (slope[1, :2] == 0).all()
assert (slope[0, :4] > 0).all() and (slope[1, 2:] < 0).all()

# %% [markdown]
# `spinup/algos/ppo.py` marks over twenty details beside this formula. Below, the clip and ten of them are switched
# off, each by itself: by a setting where there is one, else by putting something in the place of a function while it
# trains. There are two tasks: CartPole, and **Acrobot**, where two hanging links must be swung up by a motor between
# them, and each step until then costs 1, at most 500. Settings are those of the library's presets but for smaller
# networks and what `TASKS` says. Trainings are short and end while the policy still improves, so that who learns more
# slowly is behind. The **score** of a training is the mean height of its curve.

# %%
def cut_is_end(reward, value, following, terminated, truncated, **rest):
    """GAE that takes an episode whose time ran out for one that is over."""
    return gae(reward, value, following, terminated.bool() | truncated.bool(), truncated, **rest)


TASKS = {"CartPole-v1": {"total_steps": 24_576, "hidden": (32, 32), "minibatches": 1},
         "Acrobot-v1": {"total_steps": 28_672, "hidden": (32, 32), "lr": 2e-3, "normalise_obs": False,
                        "normalise_reward": True}}
DETAILS = {                                                               # settings, and what stands for which function
    "as it is": ({}, {}),
    "no clip": ({"clip_ratio": 1e6}, {}),
    "one epoch": ({"epochs": 1}, {}),
    "one minibatch": ({"minibatches": 1}, {}),
    "no GAE, lambda 1": ({"lam": 1.0}, {}),
    "advantages not whitened": ({}, {"spinup.algos.ppo.whiten": lambda adv: adv}),
    "rewards not scaled": ({"normalise_reward": False}, {}),
    "observations scaled": ({"normalise_obs": True}, {}),
    "no annealing of lr": ({"anneal": False}, {}),
    "gradients not clipped": ({"max_grad_norm": 1e6}, {}),
    "weights not orthogonal": ({}, {"spinup.core.networks.orthogonal": lambda weight, gain: None}),
    "truncated is over": ({}, {"spinup.algos.ppo.gae": cut_is_end})}


def trained(task, settings, functions=()):
    with ExitStack() as stack:
        stack.enter_context(patch("spinup.runs.curve.draw_curve", lambda folder: None))           # dozens of pictures
        for name, function in dict(functions).items():
            stack.enter_context(patch(name, function))
        return [ppo(task, seed=seed, **{**TASKS[task], **settings}, **QUIET) for seed in SIZE["seeds"]]


def scores(results):
    return np.array([np.nanmean(result.progress["return_mean_100"]) for result in results])


ALREADY = {"CartPole-v1": ("one minibatch", "rewards not scaled"), "Acrobot-v1": ()}          # so as it is
runs = {task: {name: trained(task, *change) for name, change in DETAILS.items() if name not in ALREADY[task]}
        for task in TASKS}

figure, both = panels(2)
for axes, (task, names) in zip(both, {"CartPole-v1": ("as it is", "one epoch", "no GAE, lambda 1"),
                                      "Acrobot-v1": ("as it is", "no clip", "one minibatch")}.items(), strict=True):
    curves(axes, {name: runs[task][name] for name in names})
    axes.set(title=task, xlabel="environment steps", ylabel="return, last 100 episodes")
show(figure, "Return over training. On CartPole one epoch is far slower than PPO as it is, and without GAE nothing"
     " changes. On Acrobot PPO without the clip is ahead of PPO as it is, and with one minibatch behind it.")

# %% [markdown]
# The picture has three of the variants of each task; now all of them. A detail's **effect** is what its absence adds
# to the score. Each seed is compared with itself, since it begins with the same weights and the same episodes. The
# 95 % interval of the mean over seeds is Student's, which for three seeds is wide, and rightly so.

# %%
def effect(task, name):
    """The mean effect, and from where to where it may lie."""
    each = scores(runs[task][name]) - scores(runs[task]["as it is"])
    reach = t.ppf(0.975, len(each) - 1) * each.std(ddof=1) / len(each) ** 0.5
    return each.mean(), each.mean() - reach, each.mean() + reach


found = {task: {name: effect(task, name) for name in by if name != "as it is"} for task, by in runs.items()}
figure, both = panels(2, size=(5.2, 4))
for axes, (task, by) in zip(both, found.items(), strict=True):
    base = scores(runs[task]["as it is"]).mean()
    for row, (name, (middle, low, high)) in enumerate(by.items()):
        colour, mark = (COLOURS[2], "^") if low > 0 else (COLOURS[1], "v") if high < 0 else ("#777777", "o")
        axes.plot([low, high], [row, row], color=colour, linewidth=2)
        axes.plot(middle, row, mark, color=colour, markersize=7)
    axes.axvline(0, color="#444444", linewidth=1, linestyle=":")
    axes.set(title=f"{task}, score {base:.0f}", xlim=(-1.4 * abs(base), 1.4 * abs(base)), xlabel="effect on the score",
             yticks=range(len(by)), yticklabels=by)
    axes.invert_yaxis()
show(figure, "For each detail a dot with its interval. Clearly to the left of 0 on CartPole: one epoch. Clearly to the"
     " right on Acrobot: no clip. The last four details are near 0 on both; most intervals contain 0.")

# %% tags=["hide-cell", "trained"]
mean = {task: {name: middle for name, (middle, _, _) in by.items()} for task, by in found.items()}
cart, acro = mean.values()
size = {task: abs(scores(by["as it is"]).mean()) for task, by in runs.items()}
DEAR, FREE = list(DETAILS)[3:8], list(DETAILS)[8:]
assert cart["one epoch"] < -size["CartPole-v1"] / 3 and abs(cart["no clip"]) < 0.15 * size["CartPole-v1"]
assert acro["no clip"] > 0 and np.mean([acro[name] for name in DEAR]) < -20
assert abs(cart["no GAE, lambda 1"]) < 0.15 * size["CartPole-v1"]
assert all(abs(np.mean([mean[task][name] for name in FREE])) < size[task] / 10 for task in TASKS)
assert sum(low < 0 < high for by in found.values() for _, low, high in by.values()) >= 7
if len(SIZE["seeds"]) >= 10:
    sure = [name for name, (_, low, high) in found["Acrobot-v1"].items() if high < 0]
    assert {"one minibatch", "rewards not scaled", "observations scaled"} <= set(sure)
    assert max(acro[name] for name in DEAR) < 0 and not set(FREE) & set(sure)

# %% [markdown]
# What these runs say, and what they do not:
#
# - **Several epochs** are what PPO is for. On CartPole, one costs more than a third of the score.
# - **The clip** makes little difference on CartPole, and on Acrobot PPO learns *faster* without it, on average. More
#   on that below.
# - **Minibatches, GAE, whitening, scaled rewards, raw observations**: without these five Acrobot is learned more
#   slowly, by over 20 points on average of the five. Three seeds decide few of them; with ten, the budget `cpu`, all
#   five means are below 0, and the intervals of minibatches, scaled rewards and raw observations are too. On CartPole
#   GAE makes little difference.
# - **Annealing, clipping the gradient, orthogonal weights, bootstrapping at truncation**: the average of these four
#   effects is less than a tenth of the score on both tasks. These trainings are too short for some of them to matter,
#   as late steps are what annealing makes smaller.
#
# Many of the intervals contain 0: not decided is not the same as no effect. And of twenty intervals at 95 %, one is
# expected to miss the truth. To report only those that exclude 0 would be to report chance.
#
# ## Break it: a batch for thirty-two epochs
#
# If the clip slows learning down, what is it good for? It is there for batches that are used too long. Eight epochs
# of one minibatch are eight steps on a batch of CartPole. Now thirty-two, with the clip and without it. The **KL
# divergence** tells how far an update has moved the policy from the one that collected the batch.

# %%
long = {name: trained("CartPole-v1", {"epochs": 32, **settings})
        for name, settings in (("32 epochs", {}), ("32 epochs, no clip", {"clip_ratio": 1e6}))}
compared = {"8 epochs": runs["CartPole-v1"]["as it is"], **long}
figure, (left, right) = panels(2)
curves(left, compared)
curves(right, compared, "kl")
left.set(title="CartPole", xlabel="environment steps", ylabel="return, last 100 episodes")
right.set(title="how far an update went", xlabel="environment steps", ylabel="KL divergence", yscale="log")
show(figure, "Left: 8 epochs and 32 epochs with the clip rise alike; 32 epochs without it stay far below or collapse."
     " Right: their divergence is around a hundred times larger.")

# %% tags=["hide-cell", "trained"]
def moved(results):
    return np.mean([np.mean(result.progress["kl"]) for result in results])


clipped, free = (scores(results) for results in long.values())
assert abs(clipped.mean() / size["CartPole-v1"] - 1) < 0.15 and free.mean() < 0.9 * clipped.mean()
assert min(free) < 0.75 * min(clipped) and moved(long["32 epochs, no clip"]) > 15 * moved(long["32 epochs"])
assert moved(runs["Acrobot-v1"]["no clip"]) > 2 * moved(runs["Acrobot-v1"]["as it is"])

# %% [markdown]
# With the clip, thirty-two epochs are about as good as eight. Without it the worst seed loses more than a quarter of
# the score and the mean more than a tenth, and an update moves the policy more than fifteen times as far. On Acrobot,
# with its smaller step size, the clip only held back. Without it an update went more than twice as far, and that was,
# on average, no more than the policy could take.
#
# So the clip is a guard. It costs speed where steps are small anyway, and saves the training where they are not. As
# one rarely knows beforehand which it is, it stays on.
#
# ## Try it
#
# 1. Switch the last four details off all at once. Is the whole as harmless as its parts?
# 2. Add an entropy bonus, `{"entropy_coef": 0.01}`, which this PPO has not. Predict first: which way, on which task?
# 3. `spinup exercise start 3.2` has you write the clipped objective, `3.3` the bootstrap at truncations.
#
# **Next**: [4. DQN and overestimation](04_dqn_overestimation.ipynb).
