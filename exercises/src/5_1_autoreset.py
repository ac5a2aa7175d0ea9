# %% [markdown]
# # 5.1 Bug hunt: the step that nobody took
#
# Find and fix the bug in a function that makes transitions for a replay buffer. A replay buffer stores single steps:
# the observation, the action, the reward, the next observation, and whether the step terminated the episode. The
# function below makes them from the data that $N$ environments of Gymnasium returned in $T$ calls of `step`. When an
# episode ends, its environment must restart while the others continue. Before Gymnasium 1.0, the environment restarted
# in the same call. Since then, by default, it restarts in the next call: `step` ignores the action for that environment
# and returns the first observation of a new episode, with reward 0.
#
# Code written for the old behaviour still runs without an error. CleanRL's scripts had this problem when Gymnasium 1.0
# came out, and a comment in its [issue 499](https://github.com/vwxyzjn/cleanrl/issues/499) describes the effect. The
# figure shows it in our DQN on CartPole. DQN learned for 20,000 steps, with discount 0.95, from the data of one
# environment in this mode:
#
# ![Left: Q-values that DQN gives to the actions taken in the last 20 steps before the pole fell. With the bug they are
# 19 nearly everywhere. Without it they fall from 17 to 8 towards the end. The true returns fall from 13 to 1. Right:
# the returns over training, no worse with the bug.](symptoms/5_1_autoreset.png)
#
# - The left panel shows the last 20 steps before the pole fell: their Q-values at the end of training, and their true
#   discounted returns. The true return of the last step is 1, its reward, because nothing follows. Without the bug, DQN
#   gives this step 5.5 to 10.3 in three seeds. This is too high, as DQN's values often are, and the training was short.
#   With the bug it gives 18.5 to 18.8. A pole that never falls has the value 20, so these Q-values hardly predict the
#   fall.
# - The right panel shows the return. It gives no warning: it was 164, 178 and 183 with the bug, and 110, 159 and 188
#   without it.
#
# **You are done when** `spinup exercise check 5.1` says PASS.
#
# **Look at** the steps that the lines at the end of this file print. Is each of them a possible step of the
# environment?

# %%
import torch
from torch import Tensor


def transitions(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor, terminated: Tensor, truncated: Tensor,
                ended: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the steps to learn from.

    Args:
        obs: observations of the environments before each call, `[N, T, *shape]`, time second.
        act: the actions given to `step`, `[N, T]`.
        rew: the rewards that it returned, `[N, T]`.
        next_obs: the observations that it returned, `[N, T, *shape]`. obs[:, t + 1] is next_obs[:, t].
        terminated: whether `step` reported a termination, `[N, T]` bool.
        truncated: whether `step` reported a truncation by a time limit, `[N, T]` bool; both may be set.
        ended: whether the call before the first of these calls ended an episode, `[N]` bool.

    Returns:
        obs, act, rew, next_obs and terminated of K steps, `[K, ...]` each: the steps of the first environment in order,
        then those of the second, and so on.
    """
    # BEGIN SOLUTION
    # STUB: kept = torch.ones_like(terminated)
    kept = ~torch.cat([ended[:, None], (terminated | truncated)[:, :-1]], 1)
    # END SOLUTION
    return obs[kept], act[kept], rew[kept], next_obs[kept], terminated[kept]


# %%
if __name__ == "__main__":
    seen = torch.tensor([[[7.0], [8.0], [9.0], [0.0], [1.0]]])            # a walk that ends at 9 and starts at 0
    act, rew = torch.tensor([[1, 1, 1, 1]]), torch.tensor([[1.0, 1.0, 0.0, 1.0]])
    over, no = torch.tensor([[False, True, False, False]]), torch.zeros(1, 4, dtype=torch.bool)
    for o, a, r, n, end in zip(*transitions(seen[:, :-1], act, rew, seen[:, 1:], over, no, no[:, 0]), strict=True):
        print(f"from {o.item():.0f} to {n.item():.0f}, action {a}, reward {r:.0f}{', the end' * end}")
