# %% [markdown]
# # 3.1 Generalised advantage estimation
#
# How much better was an action than what the policy does on average? One step of experience gives a noisy answer with
# a bias, the error of the value function $V$; a whole episode gives one without bias, and with the noise of everything
# that happened later. GAE (Schulman et al. 2016, eq. 16) is a mixture of all answers between:
#
# $$\hat A_t = \sum_{l \ge 0} (\gamma\lambda)^l\, \delta_{t+l}, \qquad
# \delta_t = r_t + \gamma V(s_{t+1}) - V(s_t).$$
#
# An episode can end in two ways. If it has **terminated**, there is no next state: its value is 0. If it was
# **truncated**, a clock ran out: the next state has a value, which is given here as every other one. In both cases the
# sum ends, because what follows in the batch is another episode. Both may happen in the same step: then there is no
# next state either.
#
# **You are done when** `spinup exercise check 3.1` says PASS.
#
# **Look at** the recursion $\hat A_t = \delta_t + \gamma\lambda \hat A_{t+1}$ within an episode.

# %%
import torch
from torch import Tensor


def gae(rew: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, gamma: float,
        lam: float) -> Tensor:
    """Advantages of every step.

    Args:
        rew: rewards `[N, T]`, time last.
        value: V(s_t), `[N, T]`. next_value: V(s_{t+1}) of the state that the step really led to, `[N, T]`.
        terminated, truncated: whether the episode ended with this step so, `[N, T]` bool; both may be set.
        gamma, lam: discount and lambda.

    Returns:
        `[N, T]`
    """
    adv = torch.zeros_like(rew)
    # Walk backwards through time, from T - 1 to 0. What is delta? When does the sum go on?
    raise NotImplementedError("TODO 3.1")


# %%
if __name__ == "__main__":
    ends = torch.tensor([[False, True, False]])
    print(gae(torch.tensor([[1.0, 0.0, 2.0]]), torch.full((1, 3), 0.5), torch.full((1, 3), 0.5), ends, ~ends & ends,
              gamma=0.5, lam=0.5), "should be 0.625, -0.5, 1.75")
