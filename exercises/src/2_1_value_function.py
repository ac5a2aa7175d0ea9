# %% [markdown]
# # 2.1 Without a value function
#
# Predict the effect of a value function that never learns. A policy gradient makes an action more likely if its return
# was higher than expected in its state. The value function $V$ estimates this expected return. It is used only in the
# advantages $\hat A_t$ of GAE (Schulman et al. 2016, eq. 16):
#
# $$\hat A_t = \sum_{l \ge 0} (\gamma\lambda)^l\, \delta_{t+l}, \qquad
# \delta_t = r_t + \gamma V(s_{t+1}) - V(s_t),$$
#
# where $r_t$ is the reward of step $t$, $s_t$ is its state, $\gamma$ is the discount, $\lambda$ is the parameter of GAE
# and $\delta_t$ is the TD error.
#
# Now train VPG without ever training $V$. It keeps its random initial weights, so its values are near 0 in every state.
# Everything else is unchanged: CartPole-v1 with a reward of 1 per step, $\gamma = 0.99$, $\lambda = 0.95$, and
# normalised advantages. What happens? Exercise 2.1 of *Spinning Up in Deep RL* asks this about TRPO, and answers it
# with six training runs of ten minutes.
#
# Predict first. Each function below asks one question. Make it return the letter of your answer, such as `return "a"`.
# Then run this file. It trains VPG with and without a trained $V$, which may take a minute. You can also try other
# settings. `spinup exercise solution 2.1` shows our measurements, and writes their figure to the folder `symptoms`.
#
# **You are done when** `spinup exercise check 2.1` says PASS.
#
# **Look at** the terms of $\hat A_t$ that remain if $V$ is 0 everywhere.

# %%
def learns_faster() -> str:
    """Which run has the higher return after 100,000 steps (last 100 episodes, mean of five seeds)?

    a: the run with the trained value function.
    b: the run without a trained value function: it has one thing less to learn, and no value can be wrong.
    c: neither: normalised advantages have mean 0 in both runs, and a baseline does nothing else.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 2.1: predict which learns faster")
    return "a"
    # END SOLUTION


def noise() -> str:
    """Take one policy and a set of episodes that terminate, with lambda = 1. Compute the gradient
    of each episode once with a trained V and once with an untrained one. The mean over episodes
    estimates the policy gradient. How many episodes do we need with the untrained V for the same
    accuracy?

    a: as many as with the trained V, because the episodes are the same.
    b: fewer, because an untrained V is almost equal in all states and adds no noise.
    c: several times as many.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 2.1: predict the noise")
    return "c"
    # END SOLUTION


def direction() -> str:
    """Now average over infinitely many of these episodes. The advantages are not normalised here.
    How does the untrained V change the mean gradient?

    a: the gradient has another direction: errors of V become errors of the gradient.
    b: not at all: the mean gradient is the same.
    c: the gradient has the same direction and a larger norm, because returns are larger than advantages.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 2.1: predict the direction")
    return "b"
    # END SOLUTION


def what_is_left() -> str:
    """Now lambda = 0.95, and V = 0 everywhere. What is the advantage of GAE?

    a: the sum of this reward and all later ones, discounted by gamma = 0.99, as for lambda = 1.
    b: this sum, discounted by gamma * lambda = 0.94: rewards beyond about 17 steps count little.
    c: the reward of this step alone, because only V accounts for later rewards.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 2.1: predict what is left")
    return "b"
    # END SOLUTION


# BEGIN SOLUTION
# STUB: # In the solution, this cell shows the measured results.
# %% [markdown]
# ## Measured results
#
# ![VPG on CartPole-v1 over 100,000 steps, for lambda 0.95 and 1, five seeds each. Up to 25,000 steps the curves with
# and without a trained value function are alike. Later the runs with one rise to about 480. The runs without one stay
# near 290, and some fall.](symptoms/2_1_value_function.png)
#
# At the end the mean return of five seeds is 469 with a trained value function and 290 without one (494 and 280 for
# $\lambda = 1$). At first there is no difference: while episodes are short, the mean that advantage normalisation
# subtracts is a good enough baseline.
#
# We computed the gradient from 2,000 whole episodes of one policy, which VPG had after 10,000 steps. The mean length of
# these episodes is 88 steps. The table shows how many episodes give one fixed accuracy: the root
# mean square error of the mean gradient equals the norm of the true gradient.
#
# | | $\lambda = 1$ | $\lambda = 0.95$ |
# |---|---|---|
# | trained | 11.3 episodes | 5.8 |
# | never trained | 40.6 | 55.3 |
#
# With a trained value function, a smaller $\lambda$ reduces the variance. This is the purpose of GAE. Without one, a
# smaller $\lambda$ removes the later rewards, and nothing replaces them. In training, batches end in the middle of
# episodes. So even with $\lambda = 1$ GAE bootstraps from the value function once, at the end of the batch. The table
# uses whole episodes, so there GAE bootstraps only if the limit of 500 steps truncates an episode.
# END SOLUTION

# %%
if __name__ == "__main__":
    import tempfile
    from contextlib import nullcontext
    from unittest.mock import patch

    from spinup import vpg

    never = patch("spinup.algos.vpg.value_loss", lambda value, target: 0 * value)      # its gradient is 0
    for name, change in (("trained", nullcontext()), ("never trained", never)):
        with change, tempfile.TemporaryDirectory() as folder:
            found = vpg("CartPole-v1", seed=1, total_steps=100_000, log_dir=folder, quiet=True, tensorboard=False)
        returns = [round(x) for x in found.progress["return_mean_100"]]
        print(f"value function {name}: return {returns[::20]}")
