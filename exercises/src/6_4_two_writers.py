# %% [markdown]
# # 6.4 Two writers, one text
#
# Find the learner's actions in games that are written as text, and give them their rewards. Two players write a game
# into one sequence of tokens, in turn: the first player writes tokens 0, 2, 4, ..., the second player tokens 1, 3,
# 5, .... A language model learns one of the two seats in each game (Bansal et al. 2018, with a text in place of a
# simulator).
#
# In an environment, `step` hides the opponent: a transition contains the opponent's reply, and the learner only sees
# its own actions. In a text, the opponent's tokens lie between the learner's tokens. They are part of the state, but
# they are not actions of the policy. So each token has a mask:
#
# $$m_t = 1 \text{ if the learner chose token } t, \text{ else } 0.$$
#
# Every game begins with an opening of random moves. Nobody chose them, so their mask is 0,
# whichever seat the learner has. The reward is the result $R$ of the game for the learner. It
# belongs to the last action of the learner, because the learner decides nothing after it:
#
# $$r_t = R \text{ if } t \text{ is the last token with } m_t = 1, \text{ else } 0.$$
#
# The last token of a game is often the winning move of the opponent. Then the learner's last action comes one token
# earlier.
#
# **You are done when** `spinup exercise check 6.4` says PASS.
#
# **Look at** the game in which the opponent wins before the learner has moved. What does the learner get?

# %%
import torch
from torch import Tensor


def learner_mask(lengths: Tensor, opening: Tensor, seat: Tensor, columns: int) -> Tensor:
    """Return which tokens of each game the learner chose.

    Args:
        lengths: number of tokens of each game, with the opening, `[B]` int.
        opening: number of random tokens at the start of each game, `[B]` int.
        seat: 0 if the learner is the first player, 1 if it is the second, `[B]` int.
        columns: T, the width of the batch; games are padded after their end.

    Returns:
        mask, `[B, T]` bool
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 6.4: learner_mask")
    t = torch.arange(columns)
    return (t % 2 == seat[:, None]) & (t >= opening[:, None]) & (t < lengths[:, None])
    # END SOLUTION


def learner_rewards(result: Tensor, mask: Tensor) -> Tensor:
    """Return the reward of each token: the result of the game at the last token of the learner, 0 elsewhere.

    Args:
        result: result of each game for the learner, `[B]` float: 1, 0 or -1.
        mask: tokens that the learner chose, `[B, T]` bool. A row may have none.

    Returns:
        rewards, `[B, T]`
    """
    # BEGIN SOLUTION
    # STUB: raise NotImplementedError("TODO 6.4: learner_rewards")
    left = mask.long().flip(1).cumsum(1).flip(1)              # own tokens from here on
    return torch.where(mask & (left == 1), result[:, None], 0.0)
    # END SOLUTION


# %%
if __name__ == "__main__":
    mask = learner_mask(torch.tensor([5, 4, 2]), torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), 6)
    print(mask.int(), "should be 1 0 1 0 1 0, then 0 1 0 1 0 0, then zeros")
    print(learner_rewards(torch.tensor([1.0, -1.0, -1.0]), mask), "should be 1 at the fifth token, -1 at the fourth")
