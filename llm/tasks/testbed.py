"""A language so small that all of it can be listed: 4 tokens, responses of 3, and so 64 responses with a reward each.

Here nothing has to be estimated. The probability of every response is known, so the expected reward, its gradient, the
entropy, the divergence from another policy and the best policy are sums of 64 terms: what an algorithm makes of samples
can be held against the truth.

There is one prompt, token 0, and no end token: a response is over after `length` tokens, whatever they are. A sampler
that never stops earlier is `Sampler(model, end=-1)` with `max_tokens=testbed.length`.
"""
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Discrete, MultiDiscrete
from torch import Tensor, nn

from llm.policy.generate import Prompts
from llm.policy.score import score
from llm.policy.transformer import Transformer
from spinup.core.kl import kl_categorical


class TabularPolicy(nn.Module):
    """A free choice of probabilities after every beginning of a response, in float64: it can be any policy at all.

    `logits` `[1 + V + ... + V^(T-1), V]` has a row for each beginning: row 0 for none, and V c + 1 + y for what row c
    stands for, followed by token y. They are normal numbers times `scale`; 0 makes a uniform policy.
    """

    def __init__(self, vocab: int = 4, length: int = 3, seed: int = 0, scale: float = 1.0):
        super().__init__()
        size, generator = (sum(vocab**t for t in range(length)), vocab), torch.Generator().manual_seed(seed)
        self.logits = nn.Parameter(scale * torch.randn(size, generator=generator, dtype=torch.float64))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits `[B, t + 1, V]` of the first token, and of what follows each of `ids` `[B, t]`; t is below T."""
        rows = [torch.zeros_like(ids[:, :1]).sum(1)]                      # also where t is 0
        for token in ids.T:
            rows.append(rows[-1] * self.logits.shape[1] + 1 + token)
        return self.logits[torch.stack(rows, 1)]


class Testbed:
    """All responses and their rewards, drawn once from 0 to 1; N = vocab^length.

    Attributes:
        sequences: `[N, length]` every response, in the order of a dictionary.
        rewards: `[N]` float64.
        prompts: the one prompt, for `score` and `Sampler`.

    Distributions over the N responses are log-probabilities `[N]`; `log_probs` makes those of a policy, with gradients.
    """

    def __init__(self, vocab: int = 4, length: int = 3, seed: int = 0):
        self.vocab, self.length = vocab, length
        self.sequences = torch.cartesian_prod(*[torch.arange(vocab)] * length).view(-1, length)
        generator = torch.Generator().manual_seed(seed)
        self.rewards = torch.rand(len(self.sequences), generator=generator, dtype=torch.float64)
        self.prompts = Prompts.of([[0]])

    def logp(self, policy: TabularPolicy | Transformer, ids: Tensor) -> Tensor:
        """Log-probability `[B, T]` of each token of responses `[B, T]`; of a transformer as `score` finds it."""
        if isinstance(policy, TabularPolicy):
            return policy(ids[:, :-1]).log_softmax(-1).gather(2, ids[..., None])[..., 0]
        return score(policy, self.prompts, torch.zeros_like(ids[:, 0]), ids)[0]

    def log_probs(self, policy: TabularPolicy | Transformer) -> Tensor:
        """Log-probability `[N]` of every response."""
        return self.logp(policy, self.sequences).sum(1)

    def expected_reward(self, log_p: Tensor) -> Tensor:
        """J = E[R]; its gradient is the policy gradient, without noise."""
        return (log_p.exp() * self.rewards).sum()

    def optimal(self, log_ref: Tensor, beta: float) -> Tensor:
        """pi* = pi_ref exp(R / beta) / Z, `[N]`: of all policies the highest E[R] - beta KL(. || ref), as logs."""
        return (log_ref + self.rewards / beta).log_softmax(0)


def expectation(log_p: Tensor, x: Tensor) -> Tensor:
    """E[x], `[...]`, of x `[N, ...]` over responses drawn from `log_p`: the mean over an endless batch.

    As in a batch, what was drawn is given: the gradient is that of x alone.
    """
    return torch.tensordot(log_p.detach().exp().to(x.dtype), x, 1)


def entropy(log_p: Tensor) -> Tensor:
    """Entropy of whole responses, in nats; `log_p` is over all responses, `[prompts, responses]`."""
    return -(log_p.exp() * log_p).sum()


def kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) of whole responses, in nats; both are over all responses, `[prompts, responses]`."""
    return kl_categorical(log_p, log_q)


def total_variation(log_p: Tensor, log_q: Tensor) -> Tensor:
    """The largest difference in the probability of any set of responses, 0 to 1; both `[prompts, responses]`."""
    return (log_p.exp() - log_q.exp()).abs().sum() / 2


class TokenEnv(gymnasium.Env):
    """The testbed as an environment: an action is a token, and the reward comes with the last one.

    The observation is what was written so far, `[length]`, with `vocab` where nothing stands yet; after `reset` that is
    all. An episode is terminated, not truncated, by its last token: the length is part of the task.
    """

    def __init__(self, testbed: Testbed):
        self.vocab, self.length, self.written = testbed.vocab, testbed.length, []
        self.table = testbed.rewards.numpy().reshape([testbed.vocab] * testbed.length).copy()
        self.observation_space = MultiDiscrete([testbed.vocab + 1] * testbed.length)
        self.action_space = Discrete(testbed.vocab)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.written = []
        return self._observe(), {}

    def step(self, token: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.written.append(int(token))
        over = len(self.written) == self.length
        return self._observe(), float(self.table[tuple(self.written)]) if over else 0.0, over, False, {}

    def _observe(self) -> np.ndarray:
        return np.array(self.written + [self.vocab] * (self.length - len(self.written)))
