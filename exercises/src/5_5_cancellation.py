# %% [markdown]
# # 5.5 Bug hunt: far from zero
#
# Find and fix the numerical error in a function that updates a running mean and variance. Observations with different
# units are normalised: we subtract the running mean and divide by the running standard deviation. Both statistics cover
# all of training, because each batch is merged into them. Rewards and advantages are often normalised in the same way.
# The function below does this merge. Its equations are correct.
#
# In NeMo-RL ([pull request 4158](https://github.com/NVIDIA-NeMo/RL/pull/4158)) a response with reward 0 was compared
# with seven others, which all had reward 0.95. The standard deviation of these seven is 0. The computed value was
# 0.00046, and the advantage of the response became -2,075. The figure shows the same error in our PPO on CartPole. We
# added 1,000 to each of the four numbers of an observation, as if they were prices or positions on a map:
#
# ![Left: the running variance of the pole's angle. With the bug it jumps between -0.12 and 0.25 until training stops,
# at the crosses. Without the bug it remains just above 0. Right: the returns, lower with the bug
# even if the variance is clipped at 0.](symptoms/5_5_cancellation.png)
#
# - The left panel shows the running variance of the pole's angle. Without the bug it is 0.001 to 0.009. With the bug it
#   takes only multiples of 1/16. In the end one of the four variances is negative, and its square root is NaN. In all
#   three seeds training stopped between steps 4,608 and 6,656.
# - The right panel shows the return. If the variance is clipped at 0, training does not stop. The return is then 145,
#   179 and 215 after 30,208 steps; without the bug it is 230, 263 and 273.
#
# **You are done when** `spinup exercise check 5.5` says PASS.
#
# **Look at** the output of the lines at the end of this file, and at the size of the intermediate numbers. More digits,
# as in float64, only move the problem to larger numbers. Find another formula instead.

# %%
import torch
from torch import Tensor


def merge(count: float, mean: Tensor, var: Tensor, batch: Tensor) -> tuple[float, Tensor, Tensor]:
    """Merge a batch into the running count, mean and variance.

    Args:
        count: how many numbers there are so far, 0 at first.
        mean, var: their mean and variance, `[d]` float32. The variance is the mean squared distance from the mean, with
            divisor n.
        batch: new numbers, `[B, d]` float32.

    Returns:
        the new count, mean `[d]` and variance `[d]`, float32
    """
    total = count + len(batch)
    # BEGIN SOLUTION
    # STUB: new_mean = (count * mean + batch.sum(0)) / total
    # STUB: squares = (count * (var + mean**2) + (batch**2).sum(0)) / total
    # STUB: new_var = squares - new_mean**2
    batch_var, batch_mean = torch.var_mean(batch, 0, correction=0)
    delta, share = batch_mean - mean, len(batch) / total
    new_mean = mean + share * delta
    new_var = (1 - share) * var + share * batch_var + share * (1 - share) * delta**2
    # END SOLUTION
    return total, new_mean, new_var


# %%
if __name__ == "__main__":
    for shift in (0.0, 3000.0, 10_000.0, 30_000.0):
        state = (0.0, torch.zeros(1), torch.ones(1))
        for batch in (torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [6.0]])):
            state = merge(*state, batch + shift + 0.1)
        print(f"0, 2, 4, 6, all {shift + 0.1:,} larger: variance {state[2].item():.4f}, and it should be 5")
