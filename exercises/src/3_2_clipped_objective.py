# %% [markdown]
# # 3.2 The clipped objective of PPO
#
# Write the loss of PPO. A batch of experience is expensive, so we want to take several gradient steps on it. After the
# first step, the policy differs from the policy that collected the batch. The ratio of the two probabilities corrects
# for this. PPO (Schulman et al. 2017, eq. 7) removes the incentive to move this ratio far from 1:
#
# $$\rho_t(\theta) = \frac{\pi_\theta(a_t | s_t)}{\pi_{\text{old}}(a_t | s_t)}, \qquad
# L(\theta) = -\frac1B \sum_{t=1}^{B} \min\left( \rho_t \hat A_t,\;
# \operatorname{clip}(\rho_t, 1 - \epsilon, 1 + \epsilon)\, \hat A_t \right).$$
#
# Here $\pi_\theta$ is the policy that learns, $\pi_{\text{old}}$ is the policy that collected the
# batch of $B$ steps, $\rho_t$ is the ratio, $\hat A_t$ is the advantage of step $t$, and $\epsilon$
# is the clip ratio.
#
# The minimum matters as much as the clip. A good action ($\hat A > 0$) that has become much more likely gets no more
# gradient. A good action that has become less likely by mistake still gets its full gradient, so it can recover.
#
# **You are done when** `spinup exercise check 3.2` says PASS. With `--full`, PPO then trains with your loss.
# GRPO trains language models with the same function.
#
# **Look at** the four cases: an advantage above or below 0, and a ratio that is too large or too small. In two of
# them the gradient is 0. Which two?

# %%
import torch
from torch import Tensor


def clipped_loss(logp: Tensor, logp_old: Tensor, adv: Tensor, clip_ratio: float) -> Tensor:
    """Return the policy loss of PPO: one number, which the optimiser minimises.

    Args:
        logp: log pi(a|s) of the policy that learns, `[B]`.
        logp_old: log-probabilities of the policy that collected the batch, `[B]`. They may require
            a gradient; detach them.
        adv: advantages, `[B]`. Use them as they are.
        clip_ratio: epsilon.
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 3.2")
    ratio = (logp - logp_old.detach()).exp()
    clipped = ratio.clamp(1 - clip_ratio, 1 + clip_ratio)
    return -torch.minimum(ratio * adv, clipped * adv).mean()
    # END SOLUTION


# %%
if __name__ == "__main__":
    ratio = torch.tensor([2.0, 0.5, 2.0, 0.5])
    logp = ratio.log().requires_grad_()
    loss = clipped_loss(logp, torch.zeros(4), torch.tensor([1.0, 1.0, -1.0, -1.0]), clip_ratio=0.2)
    loss.backward()
    print("loss", loss.item(), "should be 0.275; gradients", logp.grad, "should be 0 for two of four")
