# %% [markdown]
# # 3.3 Truncation is not termination
#
# An episode ends in one of two ways. Where the task itself is over, because the pole has fallen, the step has
# **terminated** it: nothing follows, and what follows is worth 0. Where a clock ran out that the policy does not see,
# the step has **truncated** it: the state is worth as much as if the clock were not there. So the target of a value
# function asks for one flag of the two (Pardo et al. 2018, arXiv:1712.00378, «partial-episode bootstrapping»):
#
# $$y = r + \gamma\, (1 - \text{terminated})\, V(s').$$
#
# Code that merges both flags to `done` tells the value function that states which look like all others are worth
# nothing more. Take a task without an end in which every step but the first earns 1, and $\gamma = 0.9$: after the
# first step its value is $1 / (1 - \gamma) = 10$. With a clock of 6 steps, and `done` in place of `terminated`,
# learning settles at 3.6.
#
# There is a second trap. An environment of many copies begins the next episode by itself: after a step that ended one,
# `next_obs` is the first observation of the *next* episode, and what the step really led to is in `final_obs`. It is
# so in this library, and in Gymnasium's vector environments with `AutoresetMode.SAME_STEP`. Who takes `next_obs` all
# the same gets 8.5 in that task.
#
# **You are done when** `spinup exercise check 3.3` says PASS. It learns the value of that task with your functions.
#
# **Look at** which flag each function asks for. The target needs one of them, the observation both.

# %%
import torch
from torch import Tensor


def td_target(rew: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, gamma: float) -> Tensor:
    """The one-step target of the value function.

    Args:
        rew: rewards, `[N]`.
        next_value: V(s') of the state that the step really led to, `[N]`.
        terminated, truncated: whether the episode ended with this step so, `[N]` bool; both may be set.
        gamma: discount.

    Returns:
        `[N]`
    """
    # BEGIN SOLUTION
    return rew + gamma * next_value * ~terminated
    # END SOLUTION


def next_obs_of_step(next_obs: Tensor, final_obs: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """The observation to which each of N steps led.

    Args:
        next_obs: what the environment shows now, `[N, d]`: the first observation of the next episode where one ended.
        final_obs: the last observation of the old episode where one ended, `[N, d]`; 0 elsewhere.
        terminated, truncated: whether the episode ended with this step so, `[N]` bool.

    Returns:
        `[N, d]`
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
