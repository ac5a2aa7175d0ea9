# %% [markdown]
# # 2.1 Without a value function
#
# A policy gradient makes an action likelier the better it turned out to be, compared with what was expected of its
# state. What was expected is the value function's to say. It enters the advantages of GAE (Schulman et al. 2016, eq.
# 16) and nothing else:
#
# $$\hat A_t = \sum_{l \ge 0} (\gamma\lambda)^l\, \delta_{t+l}, \qquad
# \delta_t = r_t + \gamma V(s_{t+1}) - V(s_t).$$
#
# Now a training of VPG in which $V$ is never trained: it keeps its first, random weights, and says something near 0 of
# every state. All else stays: CartPole-v1, where each step gives a reward of 1, $\gamma = 0.99$, $\lambda = 0.95$, and
# whitened advantages. What happens? Exercise 2.1 of *Spinning Up in Deep RL* asks this of TRPO, and lets six trainings
# of ten minutes answer.
#
# Predict first. Each function below asks one question and returns the letter of your answer, such as `return "a"`.
# Then run this file, which trains VPG with and without (it may take a minute), or do it with other settings.
#
# **You are done when** `spinup exercise check 2.1` says PASS.
#
# **Look at** what is left of $\hat A_t$ if $V$ is 0 everywhere.

# %%
def learns_faster() -> str:
    """Which training has the higher return after 100,000 steps, of the last 100 episodes, as a mean of five seeds?

    a: the one with the trained value function.
    b: the one without: it has one thing less to learn, and nothing that could be wrong.
    c: neither: whitened advantages have mean 0 in either case, and that is all that a baseline is for.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 2.1: predict which learns faster")
    return "a"
    # END SOLUTION


def noise() -> str:
    """One policy, one set of whole episodes, lambda = 1: the gradient is computed with a trained V, and with an
    untrained one. How many episodes must be averaged until the gradient is as long as its noise?

    a: without training as many as with: the episodes are the same.
    b: without training fewer: an untrained V says nearly the same of all states and adds no noise of its own.
    c: without training several times as many.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 2.1: predict the noise")
    return "c"
    # END SOLUTION


def direction() -> str:
    """The same, averaged over infinitely many episodes. What does the untrained V do to the gradient?

    a: it points elsewhere: what is wrong in V is wrong in the gradient.
    b: nothing: the mean gradient is the same.
    c: it points the same way and is longer, because returns are larger than advantages.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 2.1: predict the direction")
    return "b"
    # END SOLUTION


def what_is_left() -> str:
    """Now lambda = 0.95, and V = 0 everywhere. What is the advantage of GAE?

    a: the sum of the later rewards, discounted by gamma = 0.99, as for lambda = 1.
    b: the sum of the later rewards, discounted by gamma * lambda = 0.94: beyond some 17 steps it sees little.
    c: the next reward alone, because what comes later is V's to say.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 2.1: predict what is left")
    return "b"
    # END SOLUTION


# BEGIN SOLUTION
# STUB: # The solution shows here what was measured.
# %% [markdown]
# ## What was measured
#
# ![Two pictures, for lambda 0.95 and 1, of VPG on CartPole-v1 over 100,000 steps, five seeds each. Up to 25,000 steps
# the curves with and without a trained value function are alike; after that those with one go on to about 480, those
# without one stay near 290, and some fall.](symptoms/2_1_value_function.png)
#
# At the end the return is 469 with a trained value function and 290 without one (494 and 280 for $\lambda = 1$), as a
# mean of five seeds. At first there is no difference: as long as episodes are short, whitening is baseline enough.
#
# The gradient was computed from 2,000 whole episodes of one policy, with a mean length of 88 steps, that VPG had after
# 10,000 steps. To be averaged until it is as long as its noise:
#
# | | $\lambda = 1$ | $\lambda = 0.95$ |
# |---|---|---|
# | trained | 11.3 episodes | 5.8 |
# | never trained | 40.6 | 55.3 |
#
# With a value function, a smaller $\lambda$ takes noise away, which is what GAE is for. Without one it takes the later
# rewards away, and there is nothing in their place. In training, batches end before episodes do, so that there even
# $\lambda = 1$ asks the value function once, at the end of the batch; in the whole episodes here it does not.
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
