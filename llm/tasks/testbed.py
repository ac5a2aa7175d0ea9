"""A language that is small enough to list: 4 tokens and responses of 3 tokens give 64 responses, each with a reward.

Nothing must be estimated here. The probability of every response is known. So the expected reward, its gradient, the
entropy, the KL divergence from another policy and the optimal policy are sums of 64 terms. You can compare an
algorithm's estimates from samples with these exact values.

There is one prompt, token 0, and no end token: a response always ends after `length` tokens. For a sampler that never
stops earlier, use `Sampler(model, end=-1)` with `max_tokens=testbed.length`.
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
    """A table of logits for every prefix of a response, in float64; it can represent any policy.

    `logits` `[1 + V + ... + V^(T-1), V]` has one row per prefix. Row 0 is the empty prefix. Row V c + 1 + y is the
    prefix of row c, followed by token y. Initial logits are normal random numbers times `scale`; 0 gives a uniform
    policy.
    """

    def __init__(self, vocab: int = 4, length: int = 3, seed: int = 0, scale: float = 1.0):
        super().__init__()
        size, generator = (sum(vocab**t for t in range(length)), vocab), torch.Generator().manual_seed(seed)
        self.logits = nn.Parameter(scale * torch.randn(size, generator=generator, dtype=torch.float64))

    def forward(self, ids: Tensor) -> Tensor:
        """Compute logits `[B, t + 1, V]` of the first token, and of the token after each of `ids` `[B, t]`; t < T."""
        rows = [torch.zeros_like(ids[:, :1]).sum(1)]                      # this also works for t = 0
        for token in ids.T:
            rows.append(rows[-1] * self.logits.shape[1] + 1 + token)
        return self.logits[torch.stack(rows, 1)]


class Testbed:
    """All N = vocab^length responses, and their rewards, sampled once uniformly from 0 to 1.

    Attributes:
        sequences: `[N, length]` all responses, in lexicographic order.
        rewards: `[N]` float64.
        prompts: the single prompt, for `score` and `Sampler`.

    A distribution over the N responses is a tensor of log-probabilities `[N]`. `log_probs` computes it for a policy,
    with gradients.
    """

    def __init__(self, vocab: int = 4, length: int = 3, seed: int = 0):
        self.vocab, self.length = vocab, length
        self.sequences = torch.cartesian_prod(*[torch.arange(vocab)] * length).view(-1, length)
        generator = torch.Generator().manual_seed(seed)
        self.rewards = torch.rand(len(self.sequences), generator=generator, dtype=torch.float64)
        self.prompts = Prompts.of([[0]])

    def logp(self, policy: TabularPolicy | Transformer, ids: Tensor) -> Tensor:
        """Log-probability `[B, T]` of each token of responses `[B, T]`; for a transformer, computed by `score`."""
        if isinstance(policy, TabularPolicy):
            return policy(ids[:, :-1]).log_softmax(-1).gather(2, ids[..., None])[..., 0]
        return score(policy, self.prompts, torch.zeros_like(ids[:, 0]), ids)[0]

    def log_probs(self, policy: TabularPolicy | Transformer) -> Tensor:
        """Log-probability `[N]` of every response."""
        return self.logp(policy, self.sequences).sum(1)

    def expected_reward(self, log_p: Tensor) -> Tensor:
        """Expected reward J = E[R], `[]`, from `log_p` `[N]`; its gradient is the exact policy gradient."""
        return (log_p.exp() * self.rewards).sum()

    def optimal(self, log_ref: Tensor, beta: float) -> Tensor:
        """Log-probabilities `[N]` of pi* = pi_ref exp(R / beta) / Z, which maximises E[R] - beta KL(pi || pi_ref)."""
        return (log_ref + self.rewards / beta).log_softmax(0)


def expectation(log_p: Tensor, x: Tensor) -> Tensor:
    """Expectation E[x], `[...]`, of x `[N, ...]` over responses sampled from `log_p` `[N]`.

    It is the mean over an infinite batch. As in a batch, gradients flow only through x, not through the sampling.
    """
    return torch.tensordot(log_p.detach().exp().to(x.dtype), x, 1)


def entropy(log_p: Tensor) -> Tensor:
    """Entropy of whole responses, in nats; `log_p` is over all responses, `[prompts, responses]`."""
    return -(log_p.exp() * log_p).sum()


def kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) of whole responses, in nats; both are over all responses, `[prompts, responses]`."""
    return kl_categorical(log_p, log_q)


def total_variation(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Total variation: largest difference in the probability of any set of responses, 0 to 1; `[prompts, responses]`.
    """
    return (log_p.exp() - log_q.exp()).abs().sum() / 2


class TokenEnv(gymnasium.Env):
    """The testbed as an environment: an action is a token, and the last token gets the reward.

    The observation `[length]` holds the tokens so far, and `vocab` at empty positions; after `reset` all are empty. The
    last token terminates an episode, and does not truncate it, because the length is part of the task.
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
