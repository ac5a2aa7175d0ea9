# %% [markdown]
# # 5.5 Bug hunt: far from zero
#
# Observations in different units are brought to one: subtract the running mean, divide by the running deviation. Both
# are kept over all of training by merging each batch into what is there, and so are those of rewards or advantages. The
# function below does so. Its equations are right.
#
# In NeMo-RL ([pull request 4158](https://github.com/NVIDIA-NeMo/RL/pull/4158)) a response with the reward 0 was
# compared with seven others that had the reward 0.95 each. The deviation of these seven is 0. What was computed was
# 0.00046, and the advantage of the response became -2,075. Here is the same in our PPO, on CartPole with 1,000 added to
# each of its four numbers, as if they were prices, or positions on a map:
#
# ![Left: the running variance of the pole's angle, which with the bug jumps between -0.12 and 0.25 until the training
# stops, at the crosses, and without it stays just above 0. Right: the returns, lower with the bug even where the
# variance is kept from being negative.](symptoms/5_5_cancellation.png)
#
# - Left, the running variance of the pole's angle. Without the bug it is 0.001 to 0.009. With it, it takes no other
#   values than multiples of 1/16, until one of the four variances is negative and its root not a number: in all three
#   seeds the training stopped, between the steps 4,608 and 6,656.
# - Right, the return. Whoever puts a floor of 0 under the variance gets a training that does not stop, and a return of
#   145, 179 and 215 after 30,208 steps, where 230, 263 and 273 were to be had.
#
# **You are done when** `spinup exercise check 5.5` says PASS.
#
# **Look at** what the lines at the end of this file print, and at how large the numbers are on the way.

# %%
import torch
from torch import Tensor


def merge(count: float, mean: Tensor, var: Tensor, batch: Tensor) -> tuple[float, Tensor, Tensor]:
    """Mean and variance of all numbers so far, and of a batch more.

    Args:
        count: of the numbers so far, 0 at first.
        mean, var: of these, `[d]` float32; the variance is the mean squared distance from the mean, divided by n.
        batch: new ones, `[B, d]` float32.

    Returns:
        the new count, mean `[d]` and variance `[d]`, float32.
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
    for shift in (0.0, 100.0, 1000.0, 10_000.0):
        state = (0.0, torch.zeros(1), torch.ones(1))
        for batch in (torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [6.0]])):
            state = merge(*state, batch + shift + 0.1)
        print(f"0, 2, 4, 6, all {shift + 0.1:,} larger: variance {state[2].item():.4f}, and it should be 5")
