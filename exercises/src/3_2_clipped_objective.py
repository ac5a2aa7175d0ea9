# %% [markdown]
# # 3.2 The clipped objective of PPO
#
# A batch of experience is expensive, so one would like to take several gradient steps on it. After the first, the
# policy is no longer the one that collected it. The ratio of both probabilities corrects for that, and PPO (Schulman et
# al. 2017, eq. 7) takes away what would be gained by a ratio far from 1:
#
# $$r_t(\theta) = \frac{\pi_\theta(a_t | s_t)}{\pi_{\text{old}}(a_t | s_t)}, \qquad
# L(\theta) = -\frac1B \sum_{t=1}^{B} \min\left( r_t \hat A_t,\;
# \operatorname{clip}(r_t, 1 - \epsilon, 1 + \epsilon)\, \hat A_t \right).$$
#
# The minimum matters as much as the clip. A good action ($\hat A > 0$) that has become much likelier gets no more
# gradient. One that has become less likely by mistake still gets all of it, to come back.
#
# **You are done when** `spinup exercise check 3.2` says PASS. With `--full`, PPO then learns with your loss.
#
# **Look at** the four corners: an advantage above or below 0, a ratio too large or too small. In two of them the
# gradient is 0. Which?

# %%
import torch
from torch import Tensor


def clipped_loss(logp: Tensor, logp_old: Tensor, adv: Tensor, clip_ratio: float) -> Tensor:
    """PPO's loss of the policy: one number, of which the optimiser follows the gradient downwards.

    Args:
        logp: log pi(a|s) of the policy that learns, `[B]`.
        logp_old: of the policy that collected the batch, `[B]`. A constant: no gradient flows into it.
        adv: advantages, `[B]`.
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
    print("loss", float(loss), "should be 0.275; gradients", logp.grad, "should be 0 for two of four")
