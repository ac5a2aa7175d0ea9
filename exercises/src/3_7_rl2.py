# %% [markdown]
# # 3.7 What RL² sees, and what it remembers
#
# Write the network input and the memory update of RL² (Duan et al. 2016, arXiv:1611.02779), which learns to learn. RL²
# runs **trials**. Each trial is several **episodes** in one newly sampled task, such as a bandit with new arms. The
# weights are constant during a trial. So the policy must store what it learns about the task in the memory of a
# recurrent network. Two things make this possible (sec. 2.2).
#
# First, the policy observes its last action and the result. The input $x_t$ of step $t$ and the memory $h_t$ are
#
# $$x_t = \big(s_t,\ \text{onehot}(a_{t-1}),\ r_{t-1},\ d_{t-1}\big), \qquad h_t = \text{GRU}(h_{t-1}, x_t),$$
#
# where $s_t$ is the observation, $a_{t-1}$ is the last action, $r_{t-1}$ is the last reward, and $d_{t-1}$ is 1 if an
# **episode** ended with the last step. Before the first step of a trial there is no last step: action, reward and flag
# are then all 0.
#
# Second, the memory $h$ is kept from one episode of a trial to the next, and reset between trials. Without any reset,
# the policy treats the new task as the old one. With a reset after each episode, the policy knows only its last step at
# the start of every episode. We measured this on bandits of 5 arms and 10 pulls, where every pull is an episode. After
# a million steps, the policy with this reset has a return of 5.5, and RL² has 6.4. Random actions reach 5.
#
# The functions must not change their inputs, because the caller still needs them.
#
# **You are done when** `spinup exercise check 3.7` says PASS.
#
# **Look at** the rows in which a trial ended: which columns can be non-zero there?
#
# After you have passed, read `spinup/envs/memory.py` in the library's repository. It uses the one-hot action times the
# reward in place of the reward, and adds a flag for the start of a trial.

# %%
import torch
from torch import Tensor
from torch.nn.functional import one_hot


def network_input(obs: Tensor, act: Tensor, rew: Tensor, episode_over: Tensor, trial_over: Tensor,
                  num_actions: int) -> Tensor:
    """Return the input of the network: the observation, and the last action, reward and flag.

    Args:
        obs: current observations, `[N, d]`.
        act, rew: action and reward of the last step, `[N]` int64 and `[N]`.
        episode_over, trial_over: whether the last step ended an episode, and whether it also ended the trial, `[N]`
            bool. Where the trial ended, `obs` is the first observation of the next trial.
        num_actions: number of actions, A.

    Returns:
        `[N, d + A + 2]`: observation, one-hot action, reward, flag
    """
    # BEGIN SOLUTION
    # STUB: # torch.cat joins columns; x[:, None] turns `[N]` into `[N, 1]`.
    # STUB: raise NotImplementedError("TODO 3.7")
    last = torch.cat([one_hot(act, num_actions), rew[:, None], episode_over[:, None]], 1)
    return torch.cat([obs, last * ~trial_over[:, None]], 1)
    # END SOLUTION


def carry(hidden: Tensor, episode_over: Tensor, trial_over: Tensor) -> Tensor:
    """Return the memory with which the next step starts.

    Args:
        hidden: the memory after the last step, `[N, H]`; a gradient flows back through it.
        episode_over, trial_over: whether the last step ended an episode, and the trial, `[N]` bool.

    Returns:
        the memory, `[N, H]`
    """
    # BEGIN SOLUTION
    return torch.where(trial_over[:, None], 0.0, hidden)
    # END SOLUTION


# %%
if __name__ == "__main__":
    over, new = torch.tensor([False, True, True]), torch.tensor([False, False, True])
    print(network_input(torch.full((3, 1), 7.0), torch.tensor([1, 0, 1]), torch.tensor([0.5, 1.0, 1.0]), over, new, 2))
    print("should be 7 0 1 .5 0, 7 1 0 1 1, 7 0 0 0 0")
    print(carry(torch.ones(3, 2), over, new)[:, 0], "should be 1, 1, 0")
