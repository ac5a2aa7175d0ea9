# %% [markdown]
# # 2.2 The silent bug
#
# The code below is the critic's part of DDPG (Lillicrap et al. 2016, algorithm 1). It runs. Nothing is NaN, there is
# no warning, the loss falls. It was seen in training that
#
# - the return on Pendulum-v1 stays where it was, while the same DDPG without the bug learns within 4,000 steps;
# - the critic's loss is not small, and does not become so;
# - what the critic says of a batch is right on average, and almost the same for every state and action: over 1,000 of
#   them, drawn evenly, it has a deviation of 2, and of 41 without the bug.
#
# ![DDPG on Pendulum-v1 over 10,000 steps, three seeds each. Left: without the bug the return of an episode rises to
# about -150 by step 5,000; with it, it stays near -1,300. Right: the critic's loss falls to 10 with the bug, and to
# nearly 0 without it.](symptoms/2_2_silent_bug.png)
#
# The bug is that of exercise 2.2 of *Spinning Up in Deep RL* (`BuggedMLPQFunction`), where it takes an hour of training
# to be seen. It is one of the most frequent in all of deep RL. What the code should do:
#
# $$y_b = r_b + \gamma\, (1 - \text{terminated}_b)\, Q'(s'_b, a'_b), \qquad
# L = \frac1B \sum_{b=1}^{B} \left( Q(s_b, a_b) - y_b \right)^2.$$
#
# Find the bug, and repair it where it arises. Then answer for yourself: which setting of DDPG would have hidden it?
#
# **You are done when** `spinup exercise check 2.2` says PASS.
#
# **Look at** how many numbers the mean is taken of.

# %%
import torch
from torch import Tensor, nn


def q_values(net: nn.Module, obs: Tensor, act: Tensor) -> Tensor:
    """The critic's values of states and actions.

    Args:
        net: from `[..., k + d]` to `[..., 1]`.
        obs: states, `[..., k]`. act: actions, `[..., d]`.

    Returns:
        one value for each, `[...]`
    """
    # BEGIN SOLUTION
    # STUB: return net(torch.cat([obs, act], -1))
    # With [B, 1] here, the reward [B] and this made a table [B, B] in the target: row i held r_j + gamma Q'_i for all
    # j. Its mean error is least where every Q is the mean of all targets. A batch of B = 1 would have hidden the bug:
    # [1, 1] is no table. nn.functional.mse_loss would have warned.
    return net(torch.cat([obs, act], -1)).squeeze(-1)
    # END SOLUTION


def q_loss(net: nn.Module, target_net: nn.Module, obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor,
           next_act: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """The mean squared error of the critic: one number.

    Args:
        net, target_net: the critic and its slow copy.
        obs, act: a batch of steps, `[B, k]` and `[B, d]`. rew: its rewards, `[B]`.
        next_obs: what the steps led to, `[B, k]`. next_act: what the target actor would do there, `[B, d]`.
        terminated: 1 where the episode ended with this step, else 0, `[B]` float.
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
    print("loss", float(loss), "should be 0: both values are what the rewards say")
