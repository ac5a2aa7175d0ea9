# %% [markdown]
# # 1.3 The losses of TD3
#
# A critic that learns by bootstrapping errs, and an actor that climbs the critic finds the places where it errs
# upwards. DDPG spreads these errors with every target. TD3 (Fujimoto et al. 2018) learns two critics $Q_1, Q_2$ and
# believes the one that promises less (eq. 10), at an action near the one of the target actor, so that a narrow peak
# counts for little (eq. 14):
#
# $$\tilde a = \operatorname{clip}\left(\mu'(s') + \operatorname{clip}(\epsilon, -c, c),\, -l,\, l\right), \qquad
# y = r + \gamma\, (1 - \text{terminated}) \min_{i = 1, 2} Q'_i(s', \tilde a).$$
#
# Both critics learn the same $y$, each by its own mean squared error; the actor climbs the first (algorithm 1):
#
# $$L_Q = \frac1B \sum_{b=1}^{B} \left( (Q_1 - y)^2 + (Q_2 - y)^2 \right), \qquad
# L_\mu = -\frac1B \sum_{b=1}^{B} Q_1(s, \mu(s)).$$
#
# The exercise follows number 1.3 of *Spinning Up in Deep RL*, which had no checks.
#
# **You are done when** `spinup exercise check 1.3` says PASS. With `--full`, TD3 then learns with your functions.
#
# **Look at** what must not get a gradient: the target is a number to be reached, though it comes from networks.

# %%
import torch
from torch import Tensor


def smoothed_action(next_act: Tensor, noise: Tensor, noise_clip: float, limit: float) -> Tensor:
    """The action at which the target critics are asked.

    Args:
        next_act: what the target actor would do in the next states, `[B, d]`.
        noise: Gaussian, of the wanted deviation already, `[B, d]`.
        noise_clip: the noise is at most this, in either direction.
        limit: actions are from -limit to limit.

    Returns:
        `[B, d]`
    """
    # BEGIN SOLUTION
    # STUB: # Tensor.clamp(low, high) is what you need, more than once.
    # STUB: raise NotImplementedError("TODO 1.3: the action of the target")
    return (next_act + noise.clamp(-noise_clip, noise_clip)).clamp(-limit, limit)
    # END SOLUTION


def td3_target(rew: Tensor, terminated: Tensor, next_q1: Tensor, next_q2: Tensor, gamma: float) -> Tensor:
    """The target of both critics.

    Args:
        rew: rewards, `[B]`.
        terminated: 1 where the episode ended with this step, else 0, `[B]` float.
        next_q1, next_q2: of the target critics at the next state and the smoothed action, `[B]`.
        gamma: discount.

    Returns:
        `[B]`, through which no gradient flows
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 1.3: the target")
    with torch.no_grad():
        return rew + gamma * (1 - terminated) * torch.minimum(next_q1, next_q2)
    # END SOLUTION


def critic_loss(q1: Tensor, q2: Tensor, target: Tensor) -> Tensor:
    """Mean squared errors of both critics, added: one number.

    Args:
        q1, q2: what the critics say of the states and actions of the batch, `[B]`.
        target: of both, `[B]`.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 1.3: the loss of the critics")
    return ((q1 - target)**2).mean() + ((q2 - target)**2).mean()
    # END SOLUTION


def actor_loss(q1: Tensor) -> Tensor:
    """The loss of the actor: one number.

    Args:
        q1: of the first critic, at the actions that the actor would take in the states of the batch, `[B]`.
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
