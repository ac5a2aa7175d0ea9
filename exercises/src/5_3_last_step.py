# %% [markdown]
# # 5.3 Bug hunt: where the rollout stops
#
# Find and fix the bugs in a function that computes the advantages of a rollout. PPO collects a fixed number of steps
# and learns from them. The rollout nearly always stops in the middle of an episode, and the next rollout continues
# there. The function computes generalised advantage estimation (Schulman et al. 2016, eq. 16) in the format that
# CleanRL made popular. The flag `done[t]` belongs to the *observation* of step $t$. It says that this observation is
# the first of an episode, because the step before it ended one.
#
# The first version of CleanRL's PPO had a bug of this kind, and its author saw it in a plot ([issue
# 16](https://github.com/vwxyzjn/cleanrl/issues/16)): one advantage was far from all others. The figure shows the effect
# in our PPO, with rollouts of 64 steps. In the figure and in the text below it, "the bug" means all
# bugs of the function together:
#
# ![Left: the mean advantage by the step of the rollout. Without the bug it is near 0 everywhere. With the bug it falls
# from 3 to -21 in the last 25 steps. Right: the returns over training, lower with the bug.](symptoms/5_3_last_step.png)
#
# - The left panel shows the mean advantage of each step of the rollout, over the second half of training. An advantage
#   compares an action with the average action of the policy, so its mean should be near 0 at every step. With the bug
#   it is -20 to -22 at the last step.
# - The right panel shows the return. After 30,208 steps it is 123, 152 and 244 with the bug, and 253, 258 and 277
#   without it.
#
# `done` merges both kinds of end. Where a time limit ended an episode, the caller has already added
# $\gamma V(s_{t+1})$ to the reward. This part is correct.
#
# **You are done when** `spinup exercise check 5.3` says PASS. There may be more bugs than the first one that you see.
#
# **Look at** a rollout of three steps, on paper: which value and which flag does each step need?

# %%
import torch
from torch import Tensor


def gae(rew: Tensor, value: Tensor, done: Tensor, last_value: Tensor, last_done: Tensor, gamma: float,
        lam: float) -> Tensor:
    """Return the advantage of every step of a rollout.

    Args:
        rew: rewards `[N, T]`, time last.
        value: V(s_t), `[N, T]`.
        done: whether s_t is the first observation of an episode, because step t - 1 ended one, `[N, T]` bool.
        last_value: V(s_T) of the observation after the last step, `[N]`.
        last_done: whether step T - 1 ended an episode, so that s_T belongs to another one, `[N]` bool.
        gamma, lam: discount and lambda.

    Returns:
        advantages, `[N, T]`
    """
    # BEGIN SOLUTION
    # STUB: next_value = torch.cat([value[:, 1:], torch.zeros_like(value[:, -1:])], 1)
    # STUB: over = torch.cat([done[:, 1:], done[:, -1:]], 1)
    next_value = torch.cat([value[:, 1:], last_value[:, None]], 1)
    over = torch.cat([done[:, 1:], last_done[:, None]], 1)
    # END SOLUTION
    delta = rew + gamma * next_value * ~over - value
    adv, later = torch.zeros_like(rew), torch.zeros_like(rew[:, 0])
    for t in reversed(range(rew.shape[1])):
        later = delta[:, t] + gamma * lam * ~over[:, t] * later
        adv[:, t] = later
    return adv


# %%
if __name__ == "__main__":
    no = torch.zeros(1, 3, dtype=torch.bool)
    print(gae(torch.ones(1, 3), torch.full((1, 3), 10.0), no, torch.tensor([10.0]), no[:, 0], gamma=0.9, lam=0.9),
          "should be 0 everywhere: the value of 1 per step forever is 10")
