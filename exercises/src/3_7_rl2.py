# %% [markdown]
# # 3.7 What RL² sees, and what it remembers
#
# RL² (Duan et al. 2016, arXiv:1611.02779) learns to learn. It plays **trials**: each is several **episodes** in a task
# that is drawn anew, such as a bandit with other arms. Its weights stay as they are during a trial, so whatever it
# finds out about the task has to be in the memory of a recurrent network. Two things make that possible (sec. 2.2).
#
# It sees what it did last and what came of it. The input of step $t$ is
#
# $$x_t = \big(s_t,\ \text{onehot}(a_{t-1}),\ r_{t-1},\ d_{t-1}\big), \qquad h_t = \text{GRU}(h_{t-1}, x_t),$$
#
# where $d_{t-1}$ is 1 if an **episode** ended with the last step. With the first step of a trial there is no last
# step: action, reward and flag are then all 0.
#
# The memory $h$ is kept from one episode of a trial to the next, and wiped between trials. Who never wipes it believes
# of the new task what was true of the old one. Who wipes it after each episode has a policy that knows its last step
# and nothing else: on bandits of 5 arms and 10 pulls it has a return of 5.5 after a million steps, and this one 6.4,
# where chance has 5.
#
# **You are done when** `spinup exercise check 3.7` says PASS.
#
# **Look at** spinup/envs/memory.py: this library does the same, and writes the reward where the one-hot action is.

# %%
import torch
from torch import Tensor
from torch.nn.functional import one_hot


def network_input(obs: Tensor, act: Tensor, rew: Tensor, episode_over: Tensor, trial_over: Tensor,
                  num_actions: int) -> Tensor:
    """The input of the network: the observation, and the last action, reward and flag.

    Args:
        obs: what is seen now, `[N, d]`.
        act, rew: action and reward of the last step, `[N]` int64 and `[N]`.
        episode_over, trial_over: whether an episode, or the trial as well, ended with the last step, `[N]` bool. Where
            the trial did, `obs` is the first of the next trial.
        num_actions: A.

    Returns:
        `[N, d + A + 2]`: observation, one-hot action, reward, flag
    """
    # BEGIN SOLUTION
    # STUB: # torch.cat joins columns; `[N]` becomes `[N, 1]` by x[:, None].
    # STUB: raise NotImplementedError("TODO 3.7")
    last = torch.cat([one_hot(act, num_actions), rew[:, None], episode_over[:, None]], 1)
    return torch.cat([obs, last * ~trial_over[:, None]], 1)
    # END SOLUTION


def carry(hidden: Tensor, episode_over: Tensor, trial_over: Tensor) -> Tensor:
    """The memory with which the next step begins.

    Args:
        hidden: the memory after the last step, `[N, H]`; a gradient goes back through it.
        episode_over, trial_over: as above.

    Returns:
        `[N, H]`
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
