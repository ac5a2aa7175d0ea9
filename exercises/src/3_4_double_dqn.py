# %% [markdown]
# # 3.4 The target of double DQN
#
# Write the target of double DQN. DQN uses the target network for two purposes: to choose the best action in the next
# state, and to evaluate it. Both steps use the same estimates, so both have the same errors. Take ten actions with
# value 0, where each estimate has a standard normal error. The maximum of the estimates is 1.54 on average, and a
# target that is too high raises the next target further. In double DQN (van Hasselt et al. 2016, arXiv:1509.06461) one
# network chooses and the other evaluates. If the errors of the two networks are independent, the error that made an
# action look best does not enter the target:
#
# $$y = r + \gamma\, (1 - \text{terminated})\, Q'\big(s',\, \arg\max_{a'} Q(s', a')\big),$$
#
# where $y$ is the target, $r$ is the reward, $\gamma$ is the discount and $s'$ is the next state. $Q$ is the online
# network, which is trained. $Q'$ is the target network, an older copy of $Q$. The target is a constant: no gradient
# flows through it into either network.
#
# **You are done when** `spinup exercise check 3.4` says PASS.
#
# **Look at** the overestimation that this file prints when you run it.

# %%
import torch
from torch import Tensor


def double_dqn_target(rew: Tensor, terminated: Tensor, next_q_online: Tensor, next_q_target: Tensor,
                      gamma: float) -> Tensor:
    """Return the target of Q at the actions of a batch.

    Args:
        rew: rewards, `[B]`.
        terminated: whether the step ended the episode by termination, `[B]` bool.
        next_q_online, next_q_target: Q(s', .) and Q'(s', .), `[B, A]`, with a column for each action.
        gamma: discount.

    Returns:
        targets without a gradient, `[B]`
    """
    # BEGIN SOLUTION
    with torch.no_grad():
        best = next_q_online.argmax(-1, keepdim=True)
        value = next_q_target.gather(-1, best).squeeze(-1)
        return rew + gamma * value * ~terminated
    # END SOLUTION


# %%
if __name__ == "__main__":
    torch.manual_seed(0)
    online, target = torch.randn(100_000, 10), torch.randn(100_000, 10)   # every action has value 0; these are errors
    zero = torch.zeros(100_000)
    double = double_dqn_target(zero, zero.bool(), online, target, 1.0)
    print(f"a value of 0 is overestimated by {target.amax(-1).mean():.2f} with DQN, by {double.mean():.2f} with yours")
