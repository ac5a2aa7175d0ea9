# %% [markdown]
# # 1. Quickstart: two agents, one loss
#
# **You will** train an agent to balance a pole, look at what it learned, and measure how certain the
# result is. Then you train a small language model with the same loss function. **You need** to know
# some Python; the notebook explains reinforcement learning as it goes. **Time**: ten minutes. The code
# runs for about one minute.
#
# You choose the budget in the first line of the next cell. With `ci`, the notebook needs less than
# three minutes on two CPU cores. `cpu` trains on more seeds, and `gpu` does the same on a GPU. If the
# environment variable `SPINUP_BUDGET` is set, it overrides `BUDGET`.

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
QUIET = {"log_dir": RUNS, "quiet": True, "tensorboard": False,
         "device": SIZE["device"]}

# %% [markdown]
# ## The problem
#
# A pole stands on a cart. The agent acts fifty times a second. In each step it observes four numbers:
# the position and velocity of the cart, and the angle and angular velocity of the pole. It then pushes
# the cart to the left or to the right. Each step gives a **reward** of 1 as long as the pole stands.
# An **episode** ends when the pole leans too far, when the cart leaves its track, or after 500 steps.
# The sum of an episode's rewards is its **return**. The largest possible return is 500.
#
# No one shows the agent the right push. First, measure the return of random pushes.

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
print(f"random pushes: mean return {np.mean(random_returns):.0f},"
      f" largest {max(random_returns):.0f}")

# %% tags=["hide-cell"]
assert 15 < np.mean(random_returns) < 30 and max(random_returns) < 200

# %% [markdown]
# ## Training
#
# The agent is a small neural network. Its input is the observation, the four numbers. Its output is a
# probability for each push. Such a rule for choosing actions is a **policy**. **Proximal policy
# optimization** (PPO) lets the agent play, and then makes an action more likely if it led to more
# reward than expected. PPO changes the policy in small steps.
#
# Many things are random here: the initial weights, the initial angle of the pole, each sampled push.
# So a single training run shows little. The runs below differ only in their **random seed**.

# %%
trained = [ppo("CartPole-v1", seed=seed, total_steps=100_000, **QUIET)
           for seed in SIZE["seeds"]]

figure, (axes,) = panels()
curves(axes, {"PPO": trained})
axes.axhline(500, color="#444444", linewidth=1, linestyle=":")
axes.set(title="PPO on CartPole", xlabel="environment steps",
         ylabel="mean return, last 100 episodes", ylim=(0, 520))
show(figure, "Mean return of the last 100 episodes against environment steps. Every"
     " seed starts near 20 and ends near 500.")

# %% [markdown]
# Each thin line is one seed. The thick line is their mean. At first the pole falls as soon as it
# does with random pushes. Within 100,000 steps, about half an hour of play, every seed learns to
# balance the pole for the whole episode.
#
# A training curve lags behind the policy, because it averages the last 100 episodes. Earlier and
# weaker policies played most of these episodes, and they sampled their actions. To measure the *final*
# policy, evaluate it in new episodes that training has not seen. The next cell plays 100 of them for
# each seed and takes the most likely push in each step.

# %%
final = [evaluate(result.policy, "CartPole-v1", episodes=100).mean
         for result in trained]
low, high = mean_interval(final)
print("mean return of each final policy:", ", ".join(f"{x:.1f}" for x in final))
print(f"mean over seeds: {np.mean(final):.1f},"
      f" 95 % confidence interval {low:.1f} to {high:.1f}")

# %% tags=["hide-cell", "trained"]
assert all(15 < r.progress["return_mean_100"][0] < 60
           and r.progress["return_mean_100"][-1] > 475 for r in trained)
assert 30 < 100_000 / 50 / 60 < 35 and min(final) > 475

# %% [markdown]
# These few seeds agree, but another seed might not. A confidence interval from three seeds cannot
# account for a failure that none of the three shows. On harder tasks, sometimes one seed in five
# fails. A claim about a method, in a paper or on this page, should hold across seeds.
#
# ## What has it learned?
#
# The left plot shows one episode of the first seed, with one frame every fifth of a second. The right
# plot shows the most likely push for a pole at rest at different angles. The policy pushes towards the
# side to which the pole falls, except within about two degrees of upright.

# %%
policy = trained[0].policy
env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
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
right.set(title="most likely push", xlabel="angle of the pole (degrees)",
          yticks=[0, 1], yticklabels=["left", "right"])
show(figure, "Left: six frames of one episode; the pole stays upright. Right: the"
     " policy pushes left when the pole leans more than two degrees to the left, and"
     " right otherwise.")

# %% tags=["hide-cell", "trained"]
assert pushes[0] == 0 and pushes[-1] == 1 and sorted(pushes) == list(pushes)

# %% [markdown]
# ## The same loss on a language model
#
# A language model reads a prompt and writes a response, one token after another. This is a policy too.
# The observation is the text so far, the action is the next token, and the episode is the response.
# When a program can check a response, its verdict is the reward: 1 if correct, 0 if not.
#
# Here a small transformer must copy six letters. It was first fine-tuned on correct responses, but
# only briefly, so only about a third of its responses are correct. From now on it is shown no correct
# responses. It only gets a reward when one of its own responses is correct.
#
# The method is **GRPO** (group relative policy optimization). GRPO samples eight responses to each
# prompt, and makes a response more likely if its reward is above the mean of the eight. The loss of
# GRPO is the PPO loss: `llm/algos/grpo.py` imports `clipped_surrogate` from `spinup/algos/ppo.py`. The
# same function trained the agent on CartPole.

# %%
writer = llm.grpo("copy", seed=1, layers=2, width=32, total_steps=120, lr=5e-3,
                  **QUIET)

figure, (axes,) = panels()
curves(axes, {"GRPO": [writer]}, "held_out_accuracy")
axes.set(title="GRPO: copying six letters", xlabel="updates",
         ylabel="held-out accuracy", ylim=(0, 1))
show(figure, "Accuracy on held-out prompts against updates. It rises from a third to"
     " more than nine tenths.")
for prompt in ("abcabc>", "jihgfe>"):
    print(prompt, *writer.policy.respond(prompt))

# %% tags=["hide-cell"]
from llm.algos import grpo
from spinup.algos.ppo import clipped_surrogate

assert grpo.clipped_surrogate is clipped_surrogate

# %% tags=["hide-cell", "trained"]
assert 0.2 < writer.progress["held_out_accuracy"][0] < 0.45
assert writer.progress["held_out_accuracy"][-1] > 0.9

# %% [markdown]
# ## The files of a run
#
# Each training run writes a folder with the settings, the log as a table, a plot of the learning
# curve, a checkpoint and the result.

# %%
print(*sorted(path.name for path in trained[0].directory.glob("[!.]*")), sep="\n")

# %% tags=["hide-cell"]
assert {"config.json", "progress.csv", "curve.png", "checkpoint.pt"} <= {
    path.name for path in trained[0].directory.iterdir()}

# %% [markdown]
# In a terminal, `spinup ppo --env CartPole-v1 --total-steps 100000` starts the same training.
# `spinup watch` shows how the policy plays.
#
# ## Try it
#
# 1. Set `total_steps` to 10,000. Do the seeds still agree? How wide is the confidence interval?
#
#    <details><summary>Answer</summary>
#
#    The training curves agree: all three end near 80. The final policies do not. In one check they
#    scored 364, 500 and 490, with a confidence interval from 264 to 639. This is much too wide to
#    compare two methods. It even exceeds 500, because the formula does not take the largest
#    possible return into account.
#
#    </details>
#
# 2. Add `lr=4e-2` to the first training. This is ten times the learning rate of its preset. What
#    happens to the return, and to the KL divergence of each update, which measures how far the update
#    moved the policy? Plot this KL divergence with `curves(axes, ..., "kl")`.
#
#    <details><summary>Answer</summary>
#
#    Training still works, but it is slower and less smooth. With seeds 1, 2 and 3, the curves end
#    between 400 and 450 instead of near 500. In the first half of training, the KL divergence of an
#    update is often above 0.1 and sometimes above 1. With the learning rate of the preset, this KL
#    divergence mostly stays below 0.03. The learning rate falls to zero over a run, so late updates
#    are small. All three final policies still scored 500 in our check.
#
#    </details>
#
# 3. Run `spinup exercise init rl`. Then run `spinup exercise start` in the new folder `rl`. This
#    command writes the file of the first of 27 exercises. [A path for
#    beginners](../docs/exercises.md#a-path-for-beginners) says what to read before each one.
#
# **Next**: [2. Policy gradients: estimates against the exact gradient](02_policy_gradient.ipynb).
