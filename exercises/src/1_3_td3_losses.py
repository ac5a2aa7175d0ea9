# %% [markdown]
# # 1.3 The losses of TD3
#
# Write the target and the losses of TD3 (Fujimoto et al. 2018). A critic that bootstraps makes errors, and an actor
# that maximises the critic finds the actions whose values are too high. In DDPG every target propagates these errors.
# TD3 trains two critics $Q_1, Q_2$ and uses the lower of the two target critics' values $Q'_1, Q'_2$ (eq. 10). TD3 also
# evaluates the target critics at an action near the action of the target actor, so a narrow peak of a critic has little
# effect (eq. 14). The action $\tilde a$ and the target $y$ are
#
# $$\tilde a = \operatorname{clip}\left(\mu'(s') + \operatorname{clip}(\epsilon, -c, c),\, -l,\, l\right), \qquad
# y = r + \gamma\, (1 - \text{terminated}) \min_{i = 1, 2} Q'_i(s', \tilde a).$$
#
# Here $s'$ is the next state, $\mu'$ is the target actor, $\epsilon$ is Gaussian noise, $c$ is the limit of the noise,
# $l$ is the limit of the actions, $r$ is the reward and $\gamma$ is the discount. The target
# critics and the target actor are copies of the critics and the actor. The weights of the copies
# follow the weights of the originals slowly.
#
# Both critics learn the same $y$, each with its own mean squared error. The actor $\mu$ maximises the first critic
# (algorithm 1). The losses, over a batch of $B$ steps, are
#
# $$L_Q = \frac1B \sum_{b=1}^{B} \left( (Q_1 - y)^2 + (Q_2 - y)^2 \right), \qquad
# L_\mu = -\frac1B \sum_{b=1}^{B} Q_1(s, \mu(s)).$$
#
# The exercise follows number 1.3 of *Spinning Up in Deep RL*, which had no checks.
#
# **You are done when** `spinup exercise check 1.3` says PASS. With `--full`, TD3 then trains with your functions.
#
# **Look at** the tensors that must not get a gradient. The target is a constant, although networks compute it.

# %%
import torch
from torch import Tensor


def smoothed_action(next_act: Tensor, noise: Tensor, noise_clip: float, limit: float) -> Tensor:
    """Return the actions at which the target critics are evaluated.

    Args:
        next_act: actions of the target actor in the next states, `[B, d]`.
        noise: Gaussian noise that already has the correct standard deviation, `[B, d]`.
        noise_clip: clip the noise to -noise_clip to noise_clip.
        limit: actions range from -limit to limit.

    Returns:
        actions, `[B, d]`
    """
    # BEGIN SOLUTION
    # STUB: # You need Tensor.clamp(low, high) more than once.
    # STUB: raise NotImplementedError("TODO 1.3: the action of the target")
    return (next_act + noise.clamp(-noise_clip, noise_clip)).clamp(-limit, limit)
    # END SOLUTION


def td3_target(rew: Tensor, terminated: Tensor, next_q1: Tensor, next_q2: Tensor, gamma: float) -> Tensor:
    """Return the target of both critics.

    Args:
        rew: rewards, `[B]`.
        terminated: 1 where this step ended the episode by termination, else 0, `[B]` float.
        next_q1, next_q2: values of the target critics at the next state and the smoothed action, `[B]`.
        gamma: discount.

    Returns:
        targets without a gradient, `[B]`
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 1.3: the target")
    with torch.no_grad():
        return rew + gamma * (1 - terminated) * torch.minimum(next_q1, next_q2)
    # END SOLUTION


def critic_loss(q1: Tensor, q2: Tensor, target: Tensor) -> Tensor:
    """Return the sum of the mean squared errors of both critics: one number.

    Args:
        q1, q2: values of the critics for the states and actions of the batch, `[B]`.
        target: target of both critics, `[B]`.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 1.3: the loss of the critics")
    return ((q1 - target)**2).mean() + ((q2 - target)**2).mean()
    # END SOLUTION


def actor_loss(q1: Tensor) -> Tensor:
    """Return the loss of the actor: one number.

    Args:
        q1: values of the first critic at the actions of the actor in the states of the batch, `[B]`.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 1.3: the loss of the actor")
    return -q1.mean()
    # END SOLUTION


# %%
if __name__ == "__main__":
    act = smoothed_action(torch.tensor([[0.9]]), torch.tensor([[-2.0]]), noise_clip=0.5, limit=1.0)
    target = td3_target(torch.ones(1), torch.zeros(1), torch.tensor([4.0]), torch.tensor([2.0]), gamma=0.5)
    print("action", act, "should be 0.4; target", target, "should be 2.0")
    print("losses", critic_loss(torch.tensor([3.0]), torch.tensor([0.0]), target), actor_loss(torch.tensor([3.0])),
          "should be 5.0 and -3.0")
