# %% [markdown]
# # 3.3 Truncation is not termination
#
# Write the target of a value function and find the observation that each step led to. An episode ends in one of two
# ways. If the task itself is over, because the pole has fallen, the step has **terminated** the episode. Nothing
# follows, so the value of the next state is 0. If a time limit that the policy does not observe has ended the episode,
# the step has **truncated** it. The value of the next state is the same as without the time limit. So the target of a
# value function uses only one of the two flags (Pardo et al. 2018, arXiv:1712.00378, "partial-episode bootstrapping"):
#
# $$y = r + \gamma\, (1 - \text{terminated})\, V(s'),$$
#
# where $y$ is the target, $r$ is the reward, $\gamma$ is the discount, and $V(s')$ is the value of the next state.
# PyTorch cannot subtract a bool tensor from 1: negate the flag with `~`, or convert it with
# `.float()`.
#
# Code that merges both flags into `done` learns wrong values: where the time limit ends the episode, the next state
# counts as 0, although it looks like any other state. Take a task without an end in which every step except the first
# has reward 1, and $\gamma = 0.9$. After the first step, every state has the value
# $1 / (1 - \gamma) = 10$. Let all these states have the same observation, so that they share one
# learned value. With a time limit of 6 steps, and `done` in place of `terminated`, this value
# converges to 3.6.
#
# There is a second trap. A vector environment starts the next episode automatically. After a step that ended an
# episode, `next_obs` is the first observation of the *next* episode. The observation that the step led to is in
# `final_obs`. This library works this way, and so do Gymnasium's vector environments with `AutoresetMode.SAME_STEP`. If
# you use `next_obs` anyway, the shared value converges to 8.5 in that task.
#
# The functions must not change their inputs, because the caller still needs them.
#
# **You are done when** `spinup exercise check 3.3` says PASS. It learns the value of that task with your functions.
#
# **Look at** the flags that each function needs. The target needs one flag, the observation needs both.

# %%
import torch
from torch import Tensor


def td_target(rew: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, gamma: float) -> Tensor:
    """Return the one-step target of the value function.

    Args:
        rew: rewards, `[N]`.
        next_value: V(s') of the state that the step led to, `[N]`.
        terminated, truncated: whether this step ended the episode in this way, `[N]` bool; both may be set.
        gamma: discount.

    Returns:
        targets, `[N]`
    """
    # BEGIN SOLUTION
    return rew + gamma * next_value * ~terminated
    # END SOLUTION


def next_obs_of_step(next_obs: Tensor, final_obs: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """Return the observation that each of N steps led to.

    Args:
        next_obs: current observations of the environment, `[N, d]`. Where an episode ended, this is the first
            observation of the next episode.
        final_obs: last observations of the episodes that ended, `[N, d]`; 0 elsewhere.
        terminated, truncated: whether this step ended the episode in this way, `[N]` bool.

    Returns:
        observations, `[N, d]`
    """
    # BEGIN SOLUTION
    ended = terminated | truncated
    return torch.where(ended[:, None], final_obs, next_obs)
    # END SOLUTION


# %%
if __name__ == "__main__":
    over, cut = torch.tensor([False, True, False]), torch.tensor([False, False, True])
    print(td_target(torch.ones(3), torch.full((3,), 10.0), over, cut, 0.9), "should be 10, 1, 10")
    print(next_obs_of_step(torch.ones(3, 2), torch.tensor([[0.0, 0], [2, 2], [3, 3]]), over, cut)[:, 0],
          "should be 1, 2, 3")
