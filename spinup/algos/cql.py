"""Conservative Q-learning, CQL, for discrete actions (Kumar et al. 2020, arXiv:2006.04779).

Offline, the maximum in the target of DQN selects actions that the dataset does not contain. Their
values are extrapolated and often too high, and no reward corrects them. CQL adds a penalty. This
penalty lowers the values of all actions, and it lowers the largest values most. It also raises the
value of the dataset's action:

    y    = r + gamma (1 - terminated) max_a' Q'(s', a')
    L(Q) = alpha E[ log sum_a exp Q(s, a) - Q(s, a_data) ]
           + 1/2 E[ (Q(s, a_data) - y)^2 ]                                                (eq. 4)

The penalty is -log softmax(Q)(a_data), the loss of behaviour cloning with Q as logits. So with a
large alpha the policy imitates the dataset, and with alpha 0 the algorithm is DQN. As in dqn.py,
the target is that of double DQN by default, and the loss is linear for errors above 1 (Huber loss).

Differs from dqn.py by: the conservative penalty; a dataset instead of a replay buffer and
environment steps, so there is no exploration; no normalisation of observations.
"""
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from gymnasium import Space
from torch import Tensor
from torch.nn.functional import huber_loss

from spinup.algos.dqn import greedy_value, td_target
from spinup.core.critics import QNetwork
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import Latest, polyak
from spinup.data.batches import Batches
from spinup.envs.spaces import number_of_actions, observation_view
from spinup.runs.config import AtariConfig, Count, NonNegative, Positive, Unit, Widths
from spinup.runs.offline import OfflineConfig, OfflineRun, open_data
from spinup.runs.run import Result


@dataclass(kw_only=True)
class Config(OfflineConfig, AtariConfig):
    gamma: Unit = 0.99                 # discount factor; the horizon is about 1 / (1 - gamma) steps
    lr: Positive = 3e-4                # learning rate (1e-4 to 1e-3)
    target_every: Count = 250          # gradient steps between updates of Q'; too few: Q diverges
    alpha: NonNegative = 1.0           # weight of the penalty (0.1 to 5); 0 = offline DQN
    double: bool = True                # choose the next action with Q and evaluate it with Q'
    max_grad_norm: Positive = 10.0     # largest gradient norm; larger gradients are scaled down
    hidden: Widths = (256, 256)        # hidden layers; images use the Nature CNN instead


def conservative_penalty(q: Tensor, act: Tensor) -> Tensor:
    """log sum_a exp Q(s, a) - Q(s, a_data), `[B]`, from values `[B, n]` and the dataset's actions
    `[B]` (first term of eq. 4). It is above 0, and near 0 if a_data has by far the largest
    value."""
    return q.logsumexp(-1) - q.gather(-1, act[:, None]).squeeze(-1)


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> QNetwork:
    """Create the Q network; UserError for an action space that CQL cannot use."""
    n = number_of_actions(action_space, cfg.algorithm)
    policy = QNetwork(observation_view(observation_space)[0], n, cfg.hidden)
    policy.epsilon.zero_()                                    # there is no exploration
    return policy


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with CQL. `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env, data = open_data(cfg)
    run = OfflineRun(cfg, env, data, resume)                  # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    batches = Batches(data, data.actions, None, run.device)
    target = deepcopy(policy).requires_grad_(False)
    target_weights, weights = list(target.parameters()), list(policy.parameters())
    optimizer = FlatAdam(policy.parameters(), lr=cfg.lr, eps=1e-8,
                         max_grad_norm=cfg.max_grad_norm, compile=cfg.compile)
    stats = Latest()

    def loss(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor,
             terminated: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            next_value = greedy_value(target(next_obs), policy(next_obs) if cfg.double else None)
            q_target = td_target(rew, cfg.gamma, terminated, next_value)  # [B]
        every_q = policy(obs)                                             # [B, n]
        q = every_q.gather(-1, act[:, None]).squeeze(-1)                  # [B]
        penalty = conservative_penalty(every_q, act)                      # [B]
        loss = huber_loss(q, q_target, reduction="none") + cfg.alpha * penalty
        return loss.mean(), {"error": (q - q_target).detach().abs().mean(), "q": q.detach().mean(),
                             "penalty": penalty.detach().mean()}

    # `minimize(*batch)`: zero_grad, backward, clip, step. It adds "loss" and "grad_norm".
    minimize = optimizer.minimizer(loss)
    with run:
        run.keep(policy=policy, target=target, optimizer=optimizer, stats=stats)
        for _ in run.updates(cfg.total_steps):
            obs, act, rew, next_obs, terminated, _ = batches.draw(run.rng, cfg.batch_size)
            stats.update(minimize(obs, act, rew, next_obs, terminated))
            if optimizer.steps % cfg.target_every == 0:
                polyak(target_weights, weights, 1)
            run.check_finite(loss=stats["loss"])
            if run.row_due:
                run.log(q=stats["q"], error=stats["error"], penalty=stats["penalty"],
                        loss=stats["loss"], grad_norm=stats["grad_norm"])
        return run.result(policy)
