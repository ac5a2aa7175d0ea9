# %% [markdown]
# # 5.1 Bug hunt: the step that nobody took
#
# A replay keeps single steps: what was seen and done, the reward, what the step led to, and whether the task ended with
# it. The function below makes them of what $N$ environments of Gymnasium returned in $T$ calls of `step`. Where an
# episode ends, its environment has to restart while the others go on. Before Gymnasium 1.0 that was done in the same
# call. Since then it is, by default, done in the next one: `step` ignores the action for that environment and returns
# the first observation of a new episode, with the reward 0.
#
# Code that was written for the older way runs on without an error. CleanRL's scripts were such code when Gymnasium 1.0
# came, and a comment in its [issue 499](https://github.com/vwxyzjn/cleanrl/issues/499) tells what becomes of them. This
# is what it looks like in our DQN on CartPole, which learned for 20,000 steps from what one environment returned in
# this way, with the discount 0.95:
#
# ![Left: what DQN says of the actions that were taken in the last 20 steps before the pole fell. With the bug it is 19
# nearly everywhere; without it, it falls towards the end from 17 to 8; what they turned out to be worth falls from 13
# to 1. Right: the returns over training, no worse with the bug.](symptoms/5_1_autoreset.png)
#
# - Left, what was said at the end of training of the last 20 steps before the pole fell, with what they turned out to
#   be worth. The last of them is worth 1, its reward: nothing follows. Without the bug, DQN says 5.5 to 10.3 in three
#   seeds; it is too hopeful, as DQN often is, and has not learned for long. With the bug it says 18.5 to 18.8. A pole
#   that never falls is worth 20: the fall is hardly seen coming.
# - Right, the return. It gives no warning: it was 164, 178 and 183 with the bug, and 110, 159 and 188 without.
#
# **You are done when** `spinup exercise check 5.1` says PASS.
#
# **Look at** the steps that the lines at the end of this file print. Could each of them have been taken?

# %%
import torch
from torch import Tensor


def transitions(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor, terminated: Tensor, truncated: Tensor,
                ended: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The steps that are learned from.

    Args:
        obs: what the environments had returned before each call, `[N, T, *shape]`, time second.
        act: the actions that were given to `step`, `[N, T]`.
        rew: the rewards that it returned, `[N, T]`.
        next_obs: the observations that it returned, `[N, T, *shape]`. obs[:, t + 1] is next_obs[:, t].
        terminated: whether it said that the task ended, `[N, T]` bool. truncated: that the clock ran out, likewise;
            both may be set.
        ended: whether the call before the first of these had ended an episode, `[N]` bool.

    Returns:
        obs, act, rew, next_obs and terminated of K steps, `[K, ...]` each: those of the first environment in their
        order, then those of the second, and so on.
    """
    kept = ~torch.cat([ended[:, None], (terminated | truncated)[:, :-1]], 1)
    return obs[kept], act[kept], rew[kept], next_obs[kept], terminated[kept]


# %%
if __name__ == "__main__":
    seen = torch.tensor([[[7.0], [8.0], [9.0], [0.0], [1.0]]])            # a walk that is over at 9 and begins at 0
    act, rew = torch.tensor([[1, 1, 1, 1]]), torch.tensor([[1.0, 1.0, 0.0, 1.0]])
    over, no = torch.tensor([[False, True, False, False]]), torch.zeros(1, 4, dtype=torch.bool)
    for o, a, r, n, end in zip(*transitions(seen[:, :-1], act, rew, seen[:, 1:], over, no, no[:, 0]), strict=True):
        print(f"from {o.item():.0f} to {n.item():.0f}, action {a}, reward {r:.0f}{', the end' * end}")
