# %% [markdown]
# # 3.1 Generalised advantage estimation
#
# Write a function that computes the advantages of generalised advantage estimation (GAE). An advantage says how much
# better an action was than the average action of the policy. An estimate from one step of experience has low variance,
# but it is biased by the error of the value function $V$. An estimate from a whole episode has no bias, but high
# variance, because the randomness of all later steps adds to it. GAE (Schulman et al. 2016, eq. 16) averages all
# estimates between these two:
#
# $$\hat A_t = \sum_{l \ge 0} (\gamma\lambda)^l\, \delta_{t+l}, \qquad
# \delta_t = r_t + \gamma V(s_{t+1}) - V(s_t),$$
#
# where $\hat A_t$ is the advantage of step $t$, $r_t$ is its reward, $s_t$ is its state, $\delta_t$ is its TD error,
# $\gamma$ is the discount, and $\lambda$ sets the trade-off between bias and variance.
#
# An episode can end in two ways. If it **terminated**, nothing follows its final state $s_{t+1}$,
# so this state has the value 0. If it was **truncated** by a time limit, the value of $s_{t+1}$ is
# in `next_value`. In both cases the sum ends, because the next step in the batch belongs to another
# episode. If both happen in one step, the value is 0 too. The sum also ends at the last step of the
# batch, even if the episode continues; `next_value` then estimates the rewards of all later steps.
#
# **You are done when** `spinup exercise check 3.1` says PASS.
#
# **Look at** the recursion $\hat A_t = \delta_t + \gamma\lambda \hat A_{t+1}$ within an episode.

# %%
import torch
from torch import Tensor


def gae(rew: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, gamma: float,
        lam: float) -> Tensor:
    """Return the advantage of every step.

    Args:
        rew: rewards `[N, T]`, time last.
        value: V(s_t), `[N, T]`. next_value: V(s_{t+1}) of the state that the step led to, `[N, T]`.
        terminated, truncated: whether this step ended the episode in this way, `[N, T]` bool; both may be set.
        gamma, lam: discount and lambda.

    Returns:
        advantages, `[N, T]`
    """
    # BEGIN SOLUTION
    # STUB: adv = torch.zeros_like(rew)
    # STUB: # Go backwards through time, from T - 1 to 0. What is delta? When does the sum continue?
    # STUB: raise NotImplementedError("TODO 3.1")
    delta = rew + gamma * next_value * ~terminated - value
    goes_on = gamma * lam * ~(terminated | truncated)
    adv, later = torch.zeros_like(rew), torch.zeros_like(rew[:, 0])
    for t in reversed(range(rew.shape[1])):
        later = delta[:, t] + goes_on[:, t] * later
        adv[:, t] = later
    return adv
    # END SOLUTION


# %%
if __name__ == "__main__":
    ends = torch.tensor([[False, True, False]])
    print(gae(torch.tensor([[1.0, 0.0, 2.0]]), torch.full((1, 3), 0.5), torch.full((1, 3), 0.5), ends, ~ends & ends,
              gamma=0.5, lam=0.5), "should be 0.625, -0.5, 1.75")
