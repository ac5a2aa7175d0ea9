# %% [markdown]
# # 5.3 Bug hunt: where the rollout stops
#
# PPO collects a fixed number of steps and learns from them. Nearly always the rollout stops in the middle of an
# episode, and the next rollout goes on there. The advantages of its steps are those of generalised advantage estimation
# (Schulman et al. 2016, eq. 16), here with the bookkeeping that CleanRL made popular: a flag `done[t]` belongs to the
# *observation* of step $t$ and says that it is the first of an episode, because the step before it ended one.
#
# The first version of CleanRL's PPO got this wrong, and its author saw it in a plot
# ([issue 16](https://github.com/vwxyzjn/cleanrl/issues/16)): one advantage was far from all others. This is what it
# looks like in our PPO, with rollouts of 64 steps:
#
# ![Left: the mean advantage by the step of the rollout; without the bug it is near 0 everywhere, with it, it
# falls from 3 to -21 in the last 25 steps. Right: the returns over training, lower with the bug.
# ](symptoms/5_3_last_step.png)
#
# - Left, the mean advantage of each step of the rollout, over the second half of the training. An advantage says how
#   much better an action was than the policy is on average, so that its mean should be near 0 wherever one looks. With
#   the bug it is -20 to -22 at the last step.
# - Right, the return. After 30,208 steps it is 123, 152 and 244 with the bug, and 253, 258 and 277 without.
#
# **You are done when** `spinup exercise check 5.3` says PASS. Fixing what you see first need not be the end.
#
# **Look at** a rollout of three steps, with a pencil: which value and which flag does each of them need?

# %%
import torch
from torch import Tensor


def gae(rew: Tensor, value: Tensor, done: Tensor, last_value: Tensor, last_done: Tensor, gamma: float,
        lam: float) -> Tensor:
    """Advantages of every step of a rollout.

    Args:
        rew: rewards `[N, T]`, time last.
        value: V(s_t), `[N, T]`.
        done: whether s_t is the first observation of an episode, because step t - 1 ended one, `[N, T]` bool.
        last_value: V(s_T) of the observation after the last step, `[N]`.
        last_done: whether step T - 1 ended an episode, so that s_T belongs to another, `[N]` bool.
        gamma, lam: discount and lambda.

    Returns:
        `[N, T]`
    """
    next_value = torch.cat([value[:, 1:], last_value[:, None]], 1)
    over = torch.cat([done[:, 1:], last_done[:, None]], 1)
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
          "should be 0 everywhere: 10 is what this episode is worth, 1 a step for ever")
