# %% [markdown]
# # 6.3 Values of tokens
#
# Write the two parts of offline Q-learning, for environments and for language models: the TD target and the loss of
# expectile regression. For a language model, a state is the prompt with the tokens so far, and an action is the
# next token. Implicit Q-learning (Kostrikov et al. 2021, arXiv:2110.06169; for tokens Snell et al. 2022,
# arXiv:2206.11871) learns $Q$ of state and action, and $V$ of the state. The target of $Q$ for token $t$ is
#
# $$y_t = r_t + \gamma\, (1 - \text{terminated}_t)\, V(s_{t+1}),$$
#
# where $r_t$ is the reward, $\gamma$ is the discount and $s_{t+1}$ is the next state in which the policy acts. A
# response has one reward $R$, at its last token, which terminates the episode. Tokens that a tool wrote lie between
# those of the policy. They are not actions: the mask is False for them, and for the padding after the end. The target
# is a constant: no gradient flows through it into $V$. Tokens of a tool take no time:
# $\gamma$ applies once from a token of the policy to the next token of the policy, however many
# tokens of a tool lie between these two.
#
# $V$ has the loss (Kostrikov et al. 2021)
#
# $$L^\tau(u) = |\tau - 1(u < 0)|\, u^2, \qquad u = Q(s_t, a_t) - V(s_t),$$
#
# where $a_t$ is token $t$, $\tau$ is between 0 and 1, and $1(u < 0)$ is the number 1 if $u < 0$,
# else 0. For $\tau = 0.5$ the best $V$ is the mean of $Q$ over the actions in the data. For a
# $\tau$ near 1 it is almost their maximum. The maximum over *all* actions, as in DQN, would include
# values of actions that the data never shows.
#
# **You are done when** `spinup exercise check 6.3` says PASS.
#
# **Look at** a mask of ones only. Then your target is that of an environment whose episodes have $T$ steps, with one
# reward at the end.

# %%
import torch
from torch import Tensor


def token_targets(reward: Tensor, value: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """Return the TD target of each token of the policy.

    Args:
        reward: rewards R of whole responses, `[B]`.
        value: V of the state before each token, `[B, T]`. Where the mask is False it may hold any value, even NaN.
        mask: whether the policy chose the token, `[B, T]` bool. A row may have no such token.
        gamma: discount.

    Returns:
        targets without a gradient, `[B, T]`; 0 where the mask is False
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 6.3: token_targets")
    y, later = torch.zeros_like(value), reward
    for t in reversed(range(value.shape[1])):
        y[:, t] = torch.where(mask[:, t], later, 0.0)
        later = torch.where(mask[:, t], gamma * value[:, t].detach(), later)
    return y.detach()
    # END SOLUTION


def expectile_loss(error: Tensor, tau: float) -> Tensor:
    """Return the loss of expectile regression, elementwise.

    Args:
        error: u = Q - V, the target minus its estimate, `[...]`.
        tau: from 0 to 1.

    Returns:
        losses, `[...]`
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 6.3: expectile_loss")
    return torch.where(error < 0, 1 - tau, tau) * error.square()
    # END SOLUTION


# %%
if __name__ == "__main__":
    value, mask = torch.tensor([[0.2, 0.4, 0.6, 0.0]]), torch.tensor([[True, False, True, False]])
    print(token_targets(torch.tensor([1.0]), value, mask, 0.5), "should be 0.3, 0, 1, 0")
    q = torch.tensor([0.0, 0.0, 0.0, 1.0])                                # values of the actions in the data
    for tau in (0.5, 0.9, 0.99):
        v = torch.linspace(0, 1, 1001)
        best = v[expectile_loss(q - v[:, None], tau).mean(1).argmin()]
        print(f"tau {tau}: V = {best:.2f}, between their mean 0.25 and their maximum 1")
