# %% [markdown]
# # 4.7 Credit across a trial of tokens
#
# Write the returns and advantages with which a transformer learns to learn. In RL² (Duan et al. 2016,
# arXiv:1611.02779) a policy plays a **trial**: several episodes in one world, an environment that it does not know.
# With a language model the trial is one context. The policy writes an action, the world writes the reward and the next
# state, and so on. The context is the memory of the policy.
#
# Two things follow. First, an action may pay off in a later episode, because it tells the policy something about the
# world. So the return of an action sums the rewards up to the end of the trial, over all its episodes:
#
# $$G_t = \sum_{k \ge t} \gamma^{\,n(t, k)}\, r_k,$$
#
# where $t$ and $k$ are positions of actions, $r_k$ is the reward of the action at $k$, $\gamma$ is the discount factor,
# and $n(t, k)$ is the number of actions after $t$ up to and including $k$. Tokens of the world take no time.
#
# Second, the loss uses only the tokens of actions. A mask marks them. The advantage of an action is its return minus
# the mean return at the same position, over the group of trials in the same world. This is the baseline of GRPO without
# its division, as in Dr. GRPO (Liu et al. 2025):
#
# $$A_t = G_t - \frac{1}{S} \sum_{j=1}^{S} G_t^{(j)},$$
#
# where $S$ is the number of trials in the group, and $G_t^{(j)}$ is the return in trial $j$. At
# tokens of the world, the return and the advantage are 0.
#
# **You are done when** `spinup exercise check 4.7` says PASS.
#
# **Look at** the first action of a trial. Which rewards of the trial change its return, and which change its advantage?
#
# After you have passed, read `advantages` in `llm/algos/rl2.py` in the library's repository. It computes the returns
# with `gae` of `spinup/core/returns.py`. It sets all values to 0, and $\lambda$ to 1.

# %%
import torch
from torch import Tensor


def trial_returns(rew: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """Return G of each action; 0 at the tokens of the world.

    Args:
        rew: reward of each action, `[B, T]`. It may hold anything where the mask is 0.
        mask: 1 where the policy wrote an action, 0 where the world wrote, `[B, T]` float. Masks are
            bool in other exercises; here, `mask > 0` gives a bool mask.
        gamma: discount factor per action.

    Returns:
        `[B, T]`
    """
    # BEGIN SOLUTION
    # STUB: # Go from the last token to the first, and carry the return of the next action along.
    # STUB: raise NotImplementedError("TODO 4.7: trial_returns")
    found, after = torch.zeros_like(rew), torch.zeros_like(rew[:, 0])
    for t in reversed(range(rew.shape[1])):
        acts = mask[:, t] > 0
        after = torch.where(acts, rew[:, t] + gamma * after, after)
        found[:, t] = torch.where(acts, after, 0.0)
    return found
    # END SOLUTION


def trial_advantages(returns: Tensor, mask: Tensor, samples: int) -> Tensor:
    """Return A of each action; 0 at the tokens of the world.

    Args:
        returns: G, `[B, T]`. The `samples` trials of a group are adjacent rows, with actions at the same positions.
        mask: 1 where the policy wrote an action, 0 where the world wrote, `[B, T]` float.
        samples: number of trials in a group, S.

    Returns:
        `[B, T]`
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 4.7: trial_advantages")
    groups = returns.view(-1, samples, returns.shape[1])
    adv = (groups - groups.mean(1, keepdim=True)).view(returns.shape)
    return torch.where(mask > 0, adv, 0.0)
    # END SOLUTION


# %%
if __name__ == "__main__":
    mask = torch.tensor([[1.0, 0, 1, 0, 1, 0]]).expand(2, -1)
    rewards = torch.tensor([[1.0, 0, 0, 0, 1, 0], [0.0, 0, 0, 0, 1, 0]])
    returns = trial_returns(rewards, mask, 0.5)
    print(returns, "should be 1.25 0 .5 0 1 0; .25 0 .5 0 1 0")
    print(trial_advantages(returns, mask, 2), "should be .5 and zeros; -.5 and zeros")
