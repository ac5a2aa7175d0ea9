# %% [markdown]
# # 2.2 The silent bug
#
# Find and fix the bug in the code below, the critic of DDPG (Lillicrap et al. 2016, algorithm 1). The code runs. There
# is no NaN and no warning, and the loss falls at first. In training we observed:
#
# - The return on Pendulum-v1 does not improve. The same DDPG without the bug learns within 4,000 steps.
# - The critic's loss stays near 10. Without the bug it falls to nearly 0, and stays below 4.
# - The critic's values of a batch are correct on average, but almost equal for all states and actions. Over 1,000
#   uniformly sampled states and actions, their standard deviation is 2; without the bug it is 41.
#
# ![DDPG on Pendulum-v1 over 10,000 steps, three seeds each. Left: without the bug the return of an episode rises to
# about -150 by step 5,000. With the bug it ends at about -1,100, with single seeds from -760 to -1,760. Right: the
# critic's loss falls to 10 with the bug, and to nearly 0 without it.](symptoms/2_2_silent_bug.png)
#
# The bug comes from exercise 2.2 of *Spinning Up in Deep RL* (`BuggedMLPQFunction`), where it takes an hour of training
# to become visible. It is one of the most frequent bugs in deep RL. The code should compute the targets $y_b$ and the
# loss $L$:
#
# $$y_b = r_b + \gamma\, (1 - \text{terminated}_b)\, Q'(s'_b, a'_b), \qquad
# L = \frac1B \sum_{b=1}^{B} \left( Q(s_b, a_b) - y_b \right)^2,$$
#
# where $b$ indexes the $B$ steps of a batch, $Q$ is the critic, $Q'$ is the target critic, $r_b$ is the reward,
# $\gamma$ is the discount, $s'_b$ is the next state and $a'_b$ is the action of the target actor there.
#
# Fix the bug in the function that causes it. Then answer this question for yourself: which setting of DDPG would have
# hidden the bug?
#
# **You are done when** `spinup exercise check 2.2` says PASS.
#
# **Look at** how many numbers enter the mean.

# %%
import torch
from torch import Tensor, nn


def q_values(net: nn.Module, obs: Tensor, act: Tensor) -> Tensor:
    """Return the critic's values of states and actions.

    Args:
        net: network from `[..., k + d]` to `[..., 1]`.
        obs: states, `[..., k]`. act: actions, `[..., d]`.

    Returns:
        one value for each state and action, `[...]`
    """
    # BEGIN SOLUTION
    # STUB: return net(torch.cat([obs, act], -1))
    # With the shape [B, 1] here, broadcasting with the reward [B] gives a target [B, B]: row i holds r_j + gamma Q'_i
    # for all j. The mean squared error is then smallest if each Q is the mean of its row: the mean reward of the batch,
    # plus gamma Q'_i. Its own reward hardly counts, so in repeated updates all values approach one constant. A batch
    # of B = 1 would have hidden the bug: its target is [1, 1]. nn.functional.mse_loss would have printed a warning.
    return net(torch.cat([obs, act], -1)).squeeze(-1)
    # END SOLUTION


def q_loss(net: nn.Module, target_net: nn.Module, obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor,
           next_act: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """Return the mean squared error of the critic: one number.

    Args:
        net, target_net: the critic, and its slowly updated copy.
        obs, act: a batch of steps, `[B, k]` and `[B, d]`. rew: its rewards, `[B]`.
        next_obs: the next states, `[B, k]`. next_act: the actions of the target actor there, `[B, d]`.
        terminated: 1 where this step ended the episode by termination, else 0, `[B]` float.
        gamma: discount.
    """
    # BEGIN SOLUTION
    # STUB: with torch.no_grad():
    # STUB:     target = rew + gamma * (1 - terminated) * q_values(target_net, next_obs, next_act)
    # STUB: return ((q_values(net, obs, act) - target)**2).mean()
    with torch.no_grad():
        target = rew + gamma * (1 - terminated) * q_values(target_net, next_obs, next_act)
    return ((q_values(net, obs, act) - target)**2).mean()
    # END SOLUTION


# %%
if __name__ == "__main__":
    critic = nn.Linear(2, 1)
    nn.init.constant_(critic.weight, 1.0)
    nn.init.zeros_(critic.bias)
    obs = torch.tensor([[0.0], [2.0]])
    loss = q_loss(critic, critic, obs, 0 * obs, torch.tensor([0.0, 2.0]), 0 * obs, 0 * obs, torch.zeros(2), 0.9)
    print("loss", loss.item(), "should be 0: both values equal their rewards")
