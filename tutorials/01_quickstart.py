# %% [markdown]
# # 1. Quickstart: two agents, one loss
#
# **You will** train an agent to balance a pole, look at what it learned and at how sure one may be of it, and then
# train a small language model with the same loss function. **You need** Python; reinforcement learning is explained on
# the way. **Time**: ten minutes of reading, of which the computer works for one.
#
# The one choice of this notebook is its budget. `ci` takes two CPU cores less than three minutes; `cpu` trains on more
# seeds; `gpu` does the same on a GPU. The environment variable `SPINUP_BUDGET` goes before it.

# %%
BUDGET = "ci"

import tempfile

import gymnasium
import numpy as np

import llm
from spinup import ppo
from spinup.view.evaluate import evaluate
from spinup.view.notebook import curves, panels, show, sizes
from spinup.view.statistics import mean_interval

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "device": "cuda"})
RUNS = tempfile.mkdtemp()
QUIET = {"log_dir": RUNS, "quiet": True, "tensorboard": False, "device": SIZE["device"]}

# %% [markdown]
# ## The problem
#
# A cart carries a pole. Fifty times a second the agent sees four numbers, the cart's position and speed and the pole's
# angle and speed of turning, and pushes the cart to the left or to the right. For every step in which the pole still
# stands it gets a **reward** of 1. An **episode** ends when the pole leans too far, or after 500 steps. The sum of an
# episode's rewards is its **return**; the largest possible one is 500.
#
# Nobody tells the agent which push was right. Let us see how far one gets by pushing at random.

# %%
env = gymnasium.make("CartPole-v1")
env.action_space.seed(0)
random_returns = []
for episode in range(100):
    obs, _ = env.reset(seed=episode)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        total += float(reward)
        over = terminated or truncated
    random_returns.append(total)
print(f"random pushes: a return of {np.mean(random_returns):.0f} on average, {max(random_returns):.0f} at best")

# %% tags=["hide-cell"]
assert 15 < np.mean(random_returns) < 30 and max(random_returns) < 200

# %% [markdown]
# ## Training
#
# The agent is a small neural network. It gets the four numbers and answers with a probability for each push.
# **Proximal policy optimization** (PPO) lets it play, makes those actions more likely that led to more reward than
# expected, and does so in small steps. Chance is in all of it: the first weights, the pole's first angle, every push.
# One training therefore says little. Each of the trainings below differs from the others in its **seed** alone.

# %%
trained = [ppo("CartPole-v1", seed=seed, total_steps=100_000, **QUIET) for seed in SIZE["seeds"]]

figure, (axes,) = panels()
curves(axes, {"PPO": trained})
axes.axhline(500, color="#444444", linewidth=1, linestyle=":")
axes.set(title="CartPole", xlabel="environment steps", ylabel="return, last 100 episodes", ylim=(0, 520))
show(figure, "Mean return of the last 100 episodes against environment steps: every seed begins near 20"
     " and ends near 500.")

# %% [markdown]
# The thin lines are the seeds, the thick one is their mean. At the beginning the pole falls as soon as with random
# pushes. Within 100,000 steps, half an hour of play, every seed has learned to hold it for the whole episode.
#
# A curve of training looks back: it is the mean of the last 100 episodes, most of them played by policies that were
# worse than the last one, and by drawing actions at random. How good is the *final* policy? That has to be measured
# afresh, in episodes that training has not seen. For every seed: 100 of them, each time with the likelier push.

# %%
final = [evaluate(result.policy, "CartPole-v1", episodes=100).mean for result in trained]
low, high = mean_interval(final)
print("mean return of the final policies:", ", ".join(f"{x:.1f}" for x in final))
print(f"over seeds: {np.mean(final):.1f}, 95 % interval {low:.1f} to {high:.1f}")

# %% tags=["hide-cell", "trained"]
assert all(15 < r.progress["return_mean_100"][0] < 60 and r.progress["return_mean_100"][-1] > 475 for r in trained)
assert 30 < 100_000 / 50 / 60 < 35 and min(final) > 475

# %% [markdown]
# These few seeds agree. They need not: an interval over three seeds knows nothing of a fourth that fails, and on
# harder tasks one of five does fail now and then. What papers and pages like this one may say about a method is what
# holds over seeds.
#
# ## What has it learned?
#
# Here is one episode of the first seed, a picture every fifth of a second. Then its network, asked what it would do
# for a pole that stands still at different angles: it pushes to the side to which the pole falls.

# %%
policy, env = trained[0].policy, gymnasium.make("CartPole-v1", render_mode="rgb_array")
obs, _ = env.reset(seed=1)
frames = []
for step in range(60):
    if step % 10 == 0:
        frames.append(env.render())
    obs, *_ = env.step(policy.act(obs))

angles = np.linspace(-0.2, 0.2, 41)
pushes = [policy.act(np.array([0, 0, angle, 0], np.float32)) for angle in angles]

figure, (left, right) = panels(2)
left.imshow(np.concatenate([frame[150:330, 200:400] for frame in frames], 1))
left.set(title="one episode", xticks=[], yticks=[])
left.grid(False)
right.plot(np.degrees(angles), pushes, drawstyle="steps-mid", linewidth=2)
right.set(title="which push, at which angle", xlabel="angle of the pole (degrees)", yticks=[0, 1],
          yticklabels=["left", "right"])
show(figure, "Left: six frames in which the pole stays upright. Right: the push is to the left where the pole leans to "
     "the left, and to the right where it leans to the right.")

# %% tags=["hide-cell", "trained"]
assert pushes[0] == 0 and pushes[-1] == 1 and sorted(pushes) == list(pushes)

# %% [markdown]
# ## The same loss on a language model
#
# A language model reads a prompt and writes a response, one token after the other. That is a policy too: what was
# written so far is the observation, the next token is the action, the response is the episode. Where a program can
# tell whether an answer is right, that verdict is the reward, 1 or 0.
#
# A small transformer is to write six letters once more. It has imitated right answers, but not for long: about a third
# of its answers are right. From here on nobody shows it any. It is paid for those of its own that are right. The
# method, **GRPO**, draws eight answers to each prompt and makes those more likely that earned more than the mean of
# the eight. Its loss is PPO's: `llm/algos/grpo.py` imports `clipped_surrogate` from `spinup/algos/ppo.py`, the
# function that trained the cart.

# %%
writer = llm.grpo("copy", seed=1, layers=2, width=32, total_steps=120, lr=5e-3, **QUIET)

figure, (axes,) = panels()
curves(axes, {"GRPO": [writer]}, "held_out_accuracy")
axes.set(title="copying six letters", xlabel="updates", ylabel="share of right answers", ylim=(0, 1))
show(figure, "The share of right answers to prompts that were not trained on rises from a third to more"
     " than nine tenths.")
for prompt in ("abcabc>", "jihgfe>"):
    print(prompt, *writer.policy.respond(prompt))

# %% tags=["hide-cell"]
from llm.algos import grpo
from spinup.algos.ppo import clipped_surrogate

assert grpo.clipped_surrogate is clipped_surrogate

# %% tags=["hide-cell", "trained"]
assert 0.2 < writer.progress["held_out_accuracy"][0] < 0.45 and writer.progress["held_out_accuracy"][-1] > 0.9

# %% [markdown]
# ## Where everything is
#
# Each training has left a folder: its settings, a table with a row for each epoch, a picture, a checkpoint.

# %%
print(*sorted(path.name for path in trained[0].directory.glob("[!.]*")), sep="\n")

# %% tags=["hide-cell"]
assert {"config.json", "progress.csv", "curve.png", "checkpoint.pt"} <= {p.name for p in trained[0].directory.iterdir()}

# %% [markdown]
# From a terminal, the same is `spinup ppo --env CartPole-v1 --total-steps 100000`, and `spinup watch` shows the policy
# play.
#
# ## Try it
#
# 1. Set `total_steps` to 10,000. Do all seeds still agree? What does the interval say?
# 2. Put `lr=3e-2` into the first training, ten times the step size. Look at `kl` with `curves(axes, ..., "kl")`.
# 3. `spinup exercise init rl`, then in the new folder `rl` `spinup exercise start`: the first of 22 exercises.
#
# **Next**: [2. The policy gradient, against the exact one](02_policy_gradient.ipynb).
