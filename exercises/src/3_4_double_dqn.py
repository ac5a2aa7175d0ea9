# %% [markdown]
# # 3.4 The target of double DQN
#
# DQN asks the target network twice: which action is best in the next state, and what it is worth. Both answers share
# the same errors. Where ten actions are worth 0 and each estimate is off by a standard normal, their maximum is 1.54 on
# average, and a target that is too high makes the next one higher still. Double DQN (van Hasselt et al. 2016,
# arXiv:1509.06461) lets one network choose and the other judge, so that an error counts only where both make it:
#
# $$y = r + \gamma\, (1 - \text{terminated})\, Q'\big(s',\, \arg\max_{a'} Q(s', a')\big).$$
#
# $Q$ is the online network, which is trained; $Q'$ the target network, a copy that lags behind. The target is a number
# to be matched: no gradient flows through it, into neither network.
#
# **You are done when** `spinup exercise check 3.4` says PASS.
#
# **Look at** the overestimation that this file prints when you run it.

# %%
import torch
from torch import Tensor


def double_dqn_target(rew: Tensor, terminated: Tensor, next_q_online: Tensor, next_q_target: Tensor,
                      gamma: float) -> Tensor:
    """The target of Q at the actions of a batch.

    Args:
        rew: rewards, `[B]`.
        terminated: whether the step ended the task, `[B]` bool.
        next_q_online, next_q_target: Q(s', .) and Q'(s', .), `[B, A]`, a column for each action.
        gamma: discount.

    Returns:
        `[B]`, without a gradient
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
    online, target = torch.randn(100_000, 10), torch.randn(100_000, 10)   # all actions are worth 0; these are errors
    zero = torch.zeros(100_000)
    double = double_dqn_target(zero, zero.bool(), online, target, 1.0)
    print(f"a value of 0 is overestimated by {target.amax(-1).mean():.2f} with DQN, by {double.mean():.2f} with yours")
