# %% [markdown]
# # 3.8 Learning from a dataset alone
#
# Write the penalty of CQL and the actor's loss of TD3+BC. Both methods learn from a fixed dataset and never act in
# the environment. A network also gives values to actions that the dataset does not contain. Some of these values are
# too high, the policy selects these actions, and no reward corrects the error. The two methods have two remedies.
#
# **CQL** (Kumar et al. 2020, arXiv:2006.04779, eq. 4) lowers the values of all actions, the largest values most, and
# raises the value of the dataset's action. It adds this penalty to the loss of DQN:
#
# $$\log \sum_{a'} \exp Q(s, a') - Q(s, a),$$
#
# where $s$ and $a$ are a state and an action of the dataset, and $a'$ runs over all actions. The loss multiplies the
# penalty by a weight, which is not part of your function.
#
# **TD3+BC** (Fujimoto and Gu 2021, arXiv:2106.06860, eq. 3 and 5; the paper maximises eq. 3) keeps the actor near the
# actions of the dataset. With the actor $\mu$, a batch of $B$ states $s_i$, the dataset's actions $a_i$, and $k$
# dimensions of an action, the actor minimises
#
# $$\frac{1}{B} \sum_{i=1}^{B} \Big( -\lambda\, Q(s_i, \mu(s_i)) + \frac{1}{k} \sum_{j=1}^{k}
# \big( \mu_j(s_i) - a_{ij} \big)^2 \Big), \qquad
# \lambda = \frac{\alpha}{\frac{1}{B} \sum_{i=1}^{B} |Q(s_i, \mu(s_i))|}.$$
#
# As in the authors' code, but not in the equations of the paper, the distance is a mean over
# dimensions, and $\lambda$ uses the values of the actor's actions. The setting $\alpha$ is the
# weight of the values relative to imitation. Because of $\lambda$, this weight does not depend on
# the scale of the rewards. $\lambda$ is a constant: the actor gets no gradient through it.
#
# **You are done when** `spinup exercise check 3.8` says PASS.
#
# **Look at** the gradient of the penalty for each action: it is the action's probability under the
# softmax, minus 1 for the action of the dataset.

# %%
import torch
from torch import Tensor


def conservative_penalty(q: Tensor, act: Tensor) -> Tensor:
    """Return the penalty of CQL for each transition.

    Args:
        q: values of all actions, `[B, n]`.
        act: actions of the dataset, integers from 0 to n - 1, `[B]`.

    Returns:
        penalties, `[B]`, with gradients
    """
    # BEGIN SOLUTION
    return q.logsumexp(1) - q.gather(1, act[:, None]).squeeze(1)
    # END SOLUTION


def td3_bc_loss(q: Tensor, act: Tensor, data_act: Tensor, alpha: float) -> Tensor:
    """Return the actor's loss of TD3+BC, a scalar with gradients.

    Args:
        q: values Q(s, mu(s)) of the actor's actions, `[B]`.
        act: the actor's actions mu(s), `[B, k]`.
        data_act: actions of the dataset, `[B, k]`.
        alpha: weight of the values.
    """
    # BEGIN SOLUTION
    weight = alpha / q.detach().abs().mean()
    distance = (act - data_act).square().mean(1)
    return (distance - weight * q).mean()
    # END SOLUTION


# %%
if __name__ == "__main__":
    values = torch.tensor([[0.0, 0.0], [0.0, 8.0], [8.0, 0.0]], requires_grad=True)
    penalty = conservative_penalty(values, torch.tensor([0, 0, 0]))
    print(penalty.tolist(), "should be near .69, 8 and 0")
    penalty.sum().backward()
    print(values.grad.tolist(), "should be near -.5 and .5, -1 and 1, 0 and 0")
    mine, data = torch.tensor([[3.0, 1.0], [0.0, 0.0]]), torch.zeros(2, 2)
    for scale in (1.0, 100.0):
        values = torch.tensor([2.0 * scale, -scale], requires_grad=True)
        loss = td3_bc_loss(values, mine, data, 3.0)
        loss.backward()
        print(loss.item(), (scale * values.grad).tolist(), "should be 1.5 and -1, -1 for both scales")
