# %% [markdown]
# # 3. PPO: switching off its details one by one
#
# **You will** switch off the details of PPO one at a time on two tasks, and see which of them matter
# there. Then you remove the clip, the part that keeps PPO stable. **You need** the second notebook:
# policy gradient, advantage, GAE. **Time**: thirty minutes. The code runs for one or two minutes.
#
# You choose the budget in the first line of the next cell. With `ci`, the notebook needs little more
# than a minute on one CPU core. `cpu` trains on more seeds, and `gpu` does the same on a GPU. If the
# environment variable `SPINUP_BUDGET` is set, it overrides `BUDGET`.

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
from spinup.runs.curve import COLOURS
from spinup.view.notebook import curves, panels, show, sizes

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "device": "cpu"},
             cpu={"seeds": range(1, 11), "device": "cpu"},
             gpu={"seeds": range(1, 11), "device": "cuda"})
QUIET = {"log_dir": tempfile.mkdtemp(), "quiet": True, "tensorboard": False,
         "device": SIZE["device"],
         "checkpoint_steps": 1_000_000}       # a checkpoint only at the end

# %% [markdown]
# ## The clipped objective
#
# The last notebook trained a policy many times on the same batch, and the result depended on luck.
# **Proximal policy optimization** (PPO) also reuses each batch, for several **epochs**. But PPO removes
# the incentive to move far from the policy that collected the batch. It maximises
#
# $$\min\big( r_t \hat A_t,\ \mathrm{clip}(r_t, 1 - \epsilon, 1 + \epsilon)\, \hat A_t \big), \qquad
# \epsilon = 0.2.$$
#
# - $r_t = \pi(a_t \mid s_t) / \pi_{\text{old}}(a_t \mid s_t)$ is the probability ratio. It divides the
#   current probability of the action by its probability when the batch was collected.
# - $\hat A_t$ is the advantage estimate.
# - $\mathrm{clip}$ limits the ratio to the interval from $1 - \epsilon$ to $1 + \epsilon$.
#
# So a good action has no gradient any more once its probability has grown by a fifth. A bad action has
# none once its probability has fallen by a fifth. The next cell writes this objective in one line and
# compares it with the library's function. It prints the gradient for six ratios.

# %%
ratio = torch.tensor([0.5, 0.7, 0.9, 1.1, 1.3, 1.5])
advantage = torch.tensor([[1.0], [-1.0]])                 # a good and a bad action
logp = ratio.log().repeat(2, 1).requires_grad_()
ours = torch.minimum(logp.exp() * advantage, logp.exp().clamp(0.8, 1.2) * advantage)
loss, _ = clipped_surrogate(logp, torch.zeros(2, 6), advantage, (0.2, 0.2))
slope, = torch.autograd.grad(-loss.sum(), logp)
for name, row in (("ratio", ratio), ("good action", slope[0]),
                  ("bad action", slope[1])):
    print(f"{name:12}", *(f"{x:5.1f}" for x in row))

# %% tags=["hide-cell"]
assert torch.equal(-loss, ours)
assert (slope[0, 4:] == 0).all() and (slope[1, :2] == 0).all()
assert (slope[0, :4] > 0).all() and (slope[1, 2:] < 0).all()

# %% [markdown]
# ## The ablation
#
# The comments in `spinup/algos/ppo.py` mark over twenty details besides this objective. The next
# cell switches off the clip and ten of these details, one at a time. Such an experiment is an
# **ablation**. If the library has a setting for a detail, the cell changes this setting. Otherwise the
# cell replaces a function during training.
#
# There are two tasks, CartPole and **Acrobot**. In Acrobot, two links hang from a pivot, and a motor
# between them must swing them up. Each step until then costs 1, for at most 500 steps. The settings
# are the library's presets, with smaller networks and the changes in `TASKS`.
#
# The runs are short. They end while the policy still improves, so a variant that learns more slowly is
# behind at the end. The **score** of a run is the mean height of its learning curve. (It has nothing to
# do with the score function of notebook 2.)

# %%
def cut_is_end(reward, value, following, terminated, truncated, **rest):
    """GAE that treats a truncated episode as a terminated one."""
    over = terminated.bool() | truncated.bool()
    return gae(reward, value, following, over, truncated, **rest)


TASKS = {"CartPole-v1": {"total_steps": 24_576, "hidden": (32, 32), "minibatches": 1},
         "Acrobot-v1": {"total_steps": 28_672, "hidden": (32, 32), "lr": 2e-3,
                        "normalise_obs": False, "normalise_reward": True}}
DETAILS = {                                   # changed settings, replaced functions
    "PPO": ({}, {}),
    "no clip": ({"clip_ratio": 1e6}, {}),
    "one epoch": ({"epochs": 1}, {}),
    "one minibatch": ({"minibatches": 1}, {}),
    "no GAE, lambda 1": ({"lam": 1.0}, {}),
    "advantages not normalised": ({}, {"spinup.algos.ppo.whiten": lambda adv: adv}),
    "rewards not scaled": ({"normalise_reward": False}, {}),
    "observations normalised": ({"normalise_obs": True}, {}),
    "constant learning rate": ({"anneal": False}, {}),
    "gradients not clipped": ({"max_grad_norm": 1e6}, {}),
    "weights not orthogonal": ({}, {"spinup.core.networks.orthogonal":
                                    lambda weight, gain: None}),
    "no bootstrap at truncation": ({}, {"spinup.algos.ppo.gae": cut_is_end})}


def trained(task, settings, functions=()):
    with ExitStack() as stack:
        # Each of the dozens of runs would draw its curve, which takes time.
        stack.enter_context(patch("spinup.runs.curve.draw_curve",
                                  lambda folder: None))
        for name, function in dict(functions).items():
            stack.enter_context(patch(name, function))
        return [ppo(task, seed=seed, **{**TASKS[task], **settings}, **QUIET)
                for seed in SIZE["seeds"]]


def scores(results):
    return np.array([np.nanmean(result.progress["return_mean_100"])
                     for result in results])


# These two settings are already those of our CartPole runs, so they change nothing.
ALREADY = {"CartPole-v1": ("one minibatch", "rewards not scaled"), "Acrobot-v1": ()}
runs = {task: {name: trained(task, *change) for name, change in DETAILS.items()
               if name not in ALREADY[task]} for task in TASKS}

SHOWN = {"CartPole-v1": ("PPO", "one epoch", "no GAE, lambda 1"),
         "Acrobot-v1": ("PPO", "no clip", "one minibatch")}
figure, both = panels(2)
for axes, (task, names) in zip(both, SHOWN.items(), strict=True):
    curves(axes, {name: runs[task][name] for name in names})
    axes.set(title=task, xlabel="environment steps",
             ylabel="mean return, last 100 episodes")
show(figure, "Mean return over training. On CartPole, one epoch is far slower than"
     " PPO, and PPO without GAE is as fast as PPO. On Acrobot, PPO without the clip"
     " is ahead of PPO, and one minibatch is behind it.")

# %% [markdown]
# This figure shows only a few variants of each task. The next figure shows all variants. The
# **effect** of a change is the score with the change minus the score of PPO. We subtract the scores
# seed by seed, because the two runs of a seed start with the same episodes and, except in "weights not
# orthogonal", with the same weights.
# The bar is the 95 % confidence interval of the mean effect over seeds, by Student's t. With three
# seeds the interval is wide, because three values say little.

# %%
def effect(task, name):
    """The mean effect, and the low and high end of its 95 % confidence interval."""
    each = scores(runs[task][name]) - scores(runs[task]["PPO"])
    reach = t.ppf(0.975, len(each) - 1) * each.std(ddof=1) / len(each) ** 0.5
    return each.mean(), each.mean() - reach, each.mean() + reach


found = {task: {name: effect(task, name) for name in by if name != "PPO"}
         for task, by in runs.items()}
figure, both = panels(2, size=(5.2, 4))
for axes, (task, by) in zip(both, found.items(), strict=True):
    base = scores(runs[task]["PPO"]).mean()
    for row, (middle, low, high) in enumerate(by.values()):
        colour, mark = ((COLOURS[2], "^") if low > 0 else
                        (COLOURS[1], "v") if high < 0 else ("#777777", "o"))
        axes.plot([low, high], [row, row], color=colour, linewidth=2)
        axes.plot(middle, row, mark, color=colour, markersize=7)
    axes.axvline(0, color="#444444", linewidth=1, linestyle=":")
    axes.set(title=f"{task}: PPO scores {base:.0f}", xlabel="effect on the score",
             xlim=(-1.4 * abs(base), 1.4 * abs(base)), yticks=range(len(by)),
             yticklabels=by)
    axes.invert_yaxis()
show(figure, "For each change a dot with its confidence interval. On CartPole, one"
     " epoch is clearly to the left of 0. On Acrobot, no clip is to the"
     " right. The last four changes are near 0 on both tasks. Many intervals contain"
     " 0.")

# %% tags=["hide-cell", "trained"]
mean = {task: {name: middle for name, (middle, _, _) in by.items()}
        for task, by in found.items()}
cart, acro = mean.values()
size = {task: abs(scores(by["PPO"]).mean()) for task, by in runs.items()}
FIVE, FOUR = list(DETAILS)[3:8], list(DETAILS)[8:]
assert cart["one epoch"] < -size["CartPole-v1"] / 3
assert abs(cart["no clip"]) < 0.15 * size["CartPole-v1"]
assert acro["no clip"] > 0 and np.mean([acro[name] for name in FIVE]) < -20
assert abs(cart["no GAE, lambda 1"]) < 0.15 * size["CartPole-v1"]
assert all(abs(np.mean([mean[task][name] for name in FOUR])) < size[task] / 10
           for task in TASKS)
assert sum(low < 0 < high for by in found.values()
           for _, low, high in by.values()) >= 7
if len(SIZE["seeds"]) >= 10:
    sure = {name for name, (_, _, high) in found["Acrobot-v1"].items() if high < 0}
    assert {"one minibatch", "rewards not scaled", "observations normalised"} <= sure
    assert max(acro[name] for name in FIVE) < 0 and not set(FOUR) & sure

# %% [markdown]
# These runs show the following, and nothing more:
#
# - **Several epochs** are the purpose of PPO. On CartPole, a single epoch costs more than a third of
#   the score.
# - **The clip** makes little difference on CartPole. On Acrobot, PPO learns *faster* without it, on
#   average. The last section returns to this.
# - **Minibatches, GAE, advantage normalisation, scaled rewards, raw observations**: on average, a
#   change of one of these five slows PPO down on Acrobot. The mean of the five effects is a loss of
#   over 20 points. With three seeds, only a few of the five effects are clear. With ten seeds (the
#   budget `cpu`), all five mean effects are below 0. The whole intervals of minibatches, scaled
#   rewards and raw observations are then below 0 too. On CartPole, GAE makes little difference.
# - **Annealing, gradient clipping, orthogonal initialisation, bootstrapping at truncation**: the mean
#   of these four effects is less than a tenth of the score on both tasks. Some of them cannot matter in
#   runs this short. Annealing the learning rate, for example, mainly makes the late steps smaller.
#
# Many of the intervals contain 0. This means "undecided", which is not the same as "no effect". And
# of twenty 95 % intervals, one is expected to miss the true effect. If you report only the
# intervals that exclude 0, some of what you report is chance.
#
# ## Break it: thirty-two epochs per batch
#
# In these runs, PPO learned more slowly on Acrobot with the clip. So what is it good for? It protects
# the policy if a batch is used for too long. Our CartPole runs have one minibatch, so eight epochs are
# eight gradient steps on each batch. The next cell takes thirty-two epochs, with and without the clip.
# The **KL divergence** measures how far an update moved the policy from the one that collected the
# batch.

# %%
long = {name: trained("CartPole-v1", {"epochs": 32, **settings})
        for name, settings in (("32 epochs", {}),
                               ("32 epochs, no clip", {"clip_ratio": 1e6}))}
compared = {"8 epochs": runs["CartPole-v1"]["PPO"], **long}
figure, (left, right) = panels(2)
curves(left, compared)
curves(right, compared, "kl")
left.set(title="CartPole", xlabel="environment steps",
         ylabel="mean return, last 100 episodes")
right.set(title="size of each update", xlabel="environment steps",
          ylabel="KL divergence", yscale="log")
show(figure, "Left: 8 epochs and 32 epochs with the clip rise alike. 32 epochs"
     " without the clip stay far below or collapse. Right: without the clip, the KL"
     " divergence of two seeds is around a hundred times larger, and that of the"
     " collapsed seed is almost 0.")

# %% tags=["hide-cell", "trained"]
def moved(results):
    return np.mean([np.mean(result.progress["kl"]) for result in results])


clipped, free = (scores(results) for results in long.values())
assert abs(clipped.mean() / size["CartPole-v1"] - 1) < 0.15
assert free.mean() < 0.9 * clipped.mean() and min(free) < 0.75 * min(clipped)
assert moved(long["32 epochs, no clip"]) > 15 * moved(long["32 epochs"])
assert moved(runs["Acrobot-v1"]["no clip"]) > 2 * moved(runs["Acrobot-v1"]["PPO"])

# %% [markdown]
# With the clip, thirty-two epochs are about as good as eight. Without the clip, the worst seed loses
# more than a quarter of the score, and the mean loses more than a tenth. One seed collapses to a
# return of about 10. Its policy has become deterministic, so the score function and the KL divergence
# are almost 0, and the policy cannot recover. Averaged over the seeds, an update without the clip
# moves the policy more than fifteen times as far as with the clip.
#
# On Acrobot the learning rate is smaller, and the clip only slowed learning down. Without the clip,
# an update moved the policy more than twice as far. On average, this did no harm.
#
# So the clip is a safety device. On Acrobot, where updates are small anyway, it costs speed. On
# CartPole with thirty-two epochs, it prevents the collapse. You rarely know beforehand which case
# you have, so keep the clip on.
#
# ## Try it
#
# 1. Make the last four changes of `DETAILS` all at once. Each of them alone does little harm. Are
#    all four together harmless too?
#
#    <details><summary>Answer</summary>
#
#    Three seeds show no harm. In a check, all four together changed the score by 0 on CartPole, with a
#    95 % confidence interval from -12 to 13. On Acrobot they changed it by +18, from -112 to 147. This
#    interval is so wide that three seeds decide nothing on Acrobot.
#
#    </details>
#
# 2. Add an entropy bonus, `{"entropy_coef": 0.01}`; these runs have none. Predict first: does it help
#    or hurt, and on which task?
#
#    <details><summary>Answer</summary>
#
#    An entropy bonus keeps the policy random, which helps where exploration is hard. CartPole needs
#    little exploration. In a check with three seeds the effect on CartPole was +1, with a 95 %
#    confidence interval from -5 to 8. So the check cannot decide whether the bonus helps there. On
#    Acrobot the bonus slowed learning: the effect was -13, from -25 to -1.
#
#    </details>
#
# 3. In the folder of your exercises, run `spinup exercise start 3.2` to write the clipped objective
#    yourself, and `spinup exercise start 3.3` to write the bootstrap at truncations.
#
# **Next**: [4. DQN and overestimation](04_dqn_overestimation.ipynb).
