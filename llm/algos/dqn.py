"""Q-learning for language models: implicit language Q-learning (ILQL), and DQN on tokens.

Snell et al. 2022, arXiv:2206.11871; Kostrikov et al. 2021, arXiv:2110.06169; Mnih et al. 2015.

A state s_t is the prompt with the tokens so far, and an action is the next token y_t. A copy of the
policy has two heads: Q, with a value for each token of the vocabulary, and V. Both learn from
stored responses, which any policy may have sampled. Here the initial policy pi_ref samples them
once, before the training; the training samples no response (offline RL).

    target_t = r_t + gamma (1 - terminated_t) V(s_t+1)
    loss     = (Q(s_t, y_t) - target_t)^2  +  |tau - 1(u < 0)| u^2  +  alpha CE
    u        = Q'(s_t, y_t) - V(s_t)

r_t is 0 except at the last token, which gets the reward of the response. A response terminates at
its end token, and also at the length limit. The second term makes V the tau-expectile of Q over
tokens of the data: for a large tau nearly the maximum, but only over tokens that occur. So no
target contains the value of a token that does not occur in the data. Q' is the target network, a
copy of Q that is updated rarely. CE = -log softmax(Q(s_t, .))(y_t) is the conservative term: it
raises Q of the data's token relative to Q of all other tokens (Kumar et al. 2020,
arXiv:2006.04779).

The policy multiplies the probabilities of the initial policy:

    pi(y | s) = pi_ref(y | s) exp(beta (Q(s, y) - V(s))) / Z(s)

`dqn_online` is double DQN: Q'(s_t+1, argmax_y Q(s_t+1, y)) replaces V(s_t+1), the loss of Q is
Huber's, alpha is 0, and the policy pi adds new responses to a replay buffer in every update.

Differs from spinup/algos/dqn.py by: one episode per row, with a mask for its end; V as the value of
the next state; a policy that samples from exp(beta Q) times pi_ref in place of the best action. The
published ILQL has two Q heads, each an MLP, and takes the smaller value; its target network is a
moving average, and its pi_ref is trained to imitate the data.
"""
from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from llm.algos.ppo import following
from llm.algos.reinforce import token_rewards
from llm.config import LearningConfig, at_once
from llm.losses import TokenLoss
from llm.offline import Stored, StoredResponses, ValueRun, sampled_once
from llm.policy.action_values import ActionValues
from llm.policy.score import in_chunks, read
from llm.run import Result
from llm.start import find_start
from llm.tasks.make import make_task
from spinup.algos.dqn import greedy_value, td_target
from spinup.core.expectile import expectile_loss
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate, masked_mean, select
from spinup.core.optim import polyak, step_size
from spinup.errors import UserError
from spinup.runs.config import Count, NonNegative, Positive, Range, Size, Unit

Expectile = Annotated[float, Range(0.01, 0.99)]


@dataclass(kw_only=True)
class Config(LearningConfig):
    target: Literal["expectile", "greedy"] = "expectile"  # next value: V, or max Q' (DQN)
    online: bool = False             # add new responses of the policy in every update
    data: Stored = 20_000            # number of stored responses; online: replay buffer size
    samples: Size = 1                # responses per prompt; more prompts generalise better
    batch: Size = 256                # stored responses per gradient step
    gradient_steps: Count = 1        # gradient steps per update
    gamma: Unit = 1.0                # discount factor; below 1, short responses are worth more
    expectile: Expectile = 0.7       # tau: .5 = mean of Q over the data's tokens, near 1: maximum
    cql_coef: NonNegative = 1.0      # alpha of the conservative term (authors: 1e-4, 1); 0 = none
    double: bool = True              # greedy target: choose the token with Q, evaluate it with Q'
    beta: Positive = 8.0             # larger: greedier; for larger rewards choose a smaller value
    target_every: Count = 20         # gradient steps between updates of Q'; too few: Q diverges
    total_steps: Count = 2000        # updates; many passes over few responses overfit
    lr: Positive = 1e-3              # peak learning rate; small models 3e-4 to 2e-3, large 1e-5

    # The values learn; the reference policy and the target network do not.
    MODELS: ClassVar[tuple[int, int]] = (1, 2)
    ONLY_WITH = {"expectile": ("target", "expectile"), "double": ("target", "greedy")}

    def __post_init__(self):
        super().__post_init__()
        least = self.prompts * self.samples if self.online else 1
        if self.data < least:
            new = f"the {least} new responses of an update" if self.online else "one response"
            raise UserError(f"--data {self.data} is less than {new}; choose at least {least}")

    @property
    def responses(self) -> int:
        """Number of responses that an update learns from."""
        return self.batch * self.gradient_steps

    @property
    def sampled(self) -> int:
        """Largest number of responses that a pretrained model samples at once."""
        return self.prompts * self.samples if self.online else at_once(self.samples)


def targets(rewards: Tensor, mask: Tensor, next_value: Tensor, gamma: float) -> Tensor:
    """TD target of each token, `[B, T]`; undefined where the mask is 0.

    rewards: `[B]` of whole responses. next_value: `[B, T]`, the value of the state
    before each token. The function shifts it to the next token in the mask.
    """
    each, last = token_rewards(rewards, torch.zeros_like(mask), 0.0, mask)
    return td_target(each, gamma, last.to(each.dtype), following(next_value, mask))


def token_values(q: Tensor, v: Tensor, target_q: Tensor, ids: Tensor, cfg: Config) -> Tensor:
    """Five numbers of each token y in its state s, `[5, ...]`: Q(s, y), V(s), -log softmax(Q)(y),
    Q'(s, y), and the greedy value of s (0 for the expectile target, which does not need it). The
    last two have no gradient.

    q, target_q: `[..., vocab]`, Q and Q' in the state before each token. v, ids: `[...]`.
    """
    chosen, target_chosen = (x.gather(-1, ids[..., None]).squeeze(-1) for x in (q, target_q))
    ce = -q.log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    greedy = torch.zeros_like(v)
    if cfg.target == "greedy":
        greedy = greedy_value(target_q, q if cfg.double else None)
    return torch.stack([chosen, v, ce, target_chosen.detach(), greedy.detach()])


def value_losses(numbers: Tensor, rewards: Tensor, mask: Tensor, cfg: Config) -> TokenLoss:
    """Loss of each token, `[B, T]`, and diagnostics.

    numbers: `[5, B, T]`, see `token_values`. rewards: `[B]`. mask: `[B, T]`.
    """
    chosen, v, ce, target_chosen, greedy = numbers
    if cfg.target == "greedy":
        value, loss_v = greedy, torch.zeros_like(v)
    else:
        value, loss_v = v.detach(), expectile_loss(target_chosen - v, cfg.expectile)
    y = targets(rewards, mask, value, cfg.gamma)
    error = select(chosen - y, mask)
    loss_q = huber_loss(chosen, y, reduction="none") if cfg.target == "greedy" else error.square()
    stats = {"q": chosen, "value": value, "error": error.abs(), "cql_loss": ce}
    return (loss_q + loss_v + cfg.cql_coef * ce,
            {name: masked_mean(x.detach(), mask) for name, x in stats.items()})


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train values of tokens, and a policy that follows them. `resume`: folder of a run with the
    same settings."""
    # Set up: the responses, Q and V, the target network.
    task = make_task(cfg.task, cfg.given_reward)
    run = ValueRun(cfg, task, find_start(cfg, task, resume), resume)
    data = (StoredResponses(cfg.data, run.max_tokens, run.device) if cfg.online
            else sampled_once(run, cfg, cfg.data, cfg.samples))
    values = ActionValues(run.model)
    target = deepcopy(values).requires_grad_(False)
    run.follow(values, cfg.beta)
    optimizer = FlatAdam(values.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm,
                         eps=cfg.adam_eps)
    target_weights, weights = list(target.parameters()), list(values.parameters())

    def numbers(states: Tensor, target_states: Tensor, ids: Tensor) -> Tensor:
        with torch.no_grad():
            target_q, _ = target.numbers(target_states)
        return token_values(*values.numbers(states), target_q, ids, cfg)          # [5, ...]

    with run:
        run.keep(model=run.model, target=target, optimizer=optimizer, data=data)
        run.columns("q", "value", "error", "cql_loss")
        for update in run.updates(cfg.total_steps):
            # Collect.
            if cfg.online:
                new = run.sample(run.problems(cfg.prompts), cfg.samples)
                run.record(new)
                data.add(new)

            # Update: gradient steps on random stored responses.
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            for _ in range(cfg.gradient_steps):
                batch = data.draw(run.rng, cfg.batch)
                tokens, found = batch.responses.mask.sum(), defaultdict(float)
                optimizer.zero_grad()
                for rows in batch.responses.of.split(cfg.micro_batch or cfg.batch):
                    part = batch.responses[rows].trimmed()
                    tokens_of = (batch.prompts, part.of, part.ids, part.lengths)
                    states = read(values.body, *tokens_of, cfg.gradient_checkpointing)
                    with torch.no_grad():
                        target_states = read(target.body, *tokens_of)
                    logits = 2 * part.ids.numel() * run.reference.shape.vocab_size
                    of_tokens = in_chunks(numbers, logits, states, target_states, part.ids)
                    each, stats = value_losses(of_tokens, batch.rewards[rows], part.mask, cfg)
                    loss = aggregate(each, part.mask, denominator=tokens)
                    loss.backward()
                    run.check_finite(rewards=batch.rewards[rows], loss=loss.detach())
                    found["loss"] += loss.detach()
                    for name, x in stats.items():
                        found[name] += x * part.mask.sum() / tokens
                run.add(grad_norm=optimizer.step(lr), **found)
                if optimizer.steps % cfg.target_every == 0:
                    polyak(target_weights, weights, 1)
                if not cfg.online:
                    lengths = batch.responses.lengths
                    run.add(reward=batch.rewards.mean(), length=lengths.float().mean(),
                            tokens=lengths.sum())
            run.add(learning_rate=lr)
        return run.result()
