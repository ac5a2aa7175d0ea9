"""Hindsight experience replay, HER (Andrychowicz et al. 2017, arXiv:1707.01495), on DDPG.

With a sparse reward, only the goal is rewarded. An untrained policy almost never reaches the goal,
so it has nothing to learn from. But each episode reaches other states. HER replaces the goal of a
transition with a goal that the same episode achieved later. So failed episodes show how to reach
goals.

    g' = m(s_j),  j uniform over the rest of the episode, j > t                 (strategy "future")
    r' = r(s_{t+1}, g')        the environment's reward, computed again for g'             (alg. 1)
    y  = r' + gamma (1 - terminated) Q'(s_{t+1} || g', mu'(s_{t+1} || g'))

m(s) is the goal that a state achieves, and || concatenates a state and a goal to one input. In each
batch, a share of k / (k + 1) of the transitions gets such a goal, with k = `hindsight_goals`. The
other transitions keep their goals.

Differs from ddpg.py by: an environment with goals; goals and rewards replaced in each batch. The
paper also clips the targets, and takes a fifth of the actions uniformly at random.
"""
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from spinup.algos.ddpg import deterministic_policy_loss, saturation, squared_error
from spinup.algos.dqn import td_target
from spinup.core.bounded import NoisyAction
from spinup.core.critics import ActorCritics, frozen
from spinup.core.episode_ends import Episodes
from spinup.core.fast.adam import FlatAdam
from spinup.core.optim import Latest, polyak
from spinup.core.replay import Batch
from spinup.envs.goals import GoalVectorEnv, with_goals
from spinup.envs.spaces import action_bounds, vector_size
from spinup.runs.config import Natural, NonNegative, Positive, ReplayConfig, Unit, Widths
from spinup.runs.replay import make_replay
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(ReplayConfig):
    hindsight_goals: Natural = 4       # k, hindsight goals per original goal; 0 = DDPG (4 or 8)
    gamma: Unit = 0.99                 # discount factor; the horizon is about 1 / (1 - gamma) steps
    lr: Positive = 1e-3                # learning rate of actor and critic (3e-4 to 1e-3)
    tau: Unit = 0.005                  # soft-update rate of the target networks (Polyak)
    explore_noise: NonNegative = 0.1   # standard deviation of noise on actions in -1 to 1
    saturation_coef: NonNegative = 1e-3    # weight of the penalty on squared outputs before tanh
                                       # (where tanh is flat, the actor stops learning)
    hidden: Widths = (256, 256)        # hidden layers of actor and critic
    normalise_obs: bool = False        # vectors: subtract mean, divide by std, if scales differ


def future(rows: np.ndarray, last: np.ndarray, num_envs: int,
           rng: np.random.Generator) -> np.ndarray:
    """For each row `[B]`, sample a row of the same episode, uniformly from the row itself to the
    last one `[B]`. The goal that its next state achieves is the new goal (strategy "future", sec.
    4.5). Rows of one environment are `num_envs` apart."""
    return rows + num_envs * rng.integers(0, (last - rows) // num_envs + 1)


def relabel(batch: Batch, goal: Tensor, chosen: Tensor, env: GoalVectorEnv) -> Batch:
    """Replace the desired goals of the `chosen` transitions, bool `[B]`, by `goal` `[B, k]`, and
    compute their rewards again (alg. 1). env.desired, env.achieved: the slices of an observation
    that hold the two goals."""
    obs, next_obs = batch.obs.clone(), batch.next_obs.clone()
    for x in obs, next_obs:
        x[:, env.desired] = torch.where(chosen[:, None], goal, x[:, env.desired])
    pair = next_obs[:, env.achieved].numpy(), goal.numpy()
    rew = torch.from_numpy(env.compute_reward(*pair))
    ends = torch.from_numpy(env.compute_terminated(*pair, batch.terminated.numpy()))
    return batch._replace(obs=obs, next_obs=next_obs, rew=torch.where(chosen, rew, batch.rew),
                          terminated=torch.where(chosen, ends, batch.terminated))


def in_hindsight(obs: np.ndarray, env: GoalVectorEnv) -> np.ndarray:
    """Observations `[N, d]` whose desired goal is the achieved one. With these, the statistics of
    --normalise-obs include hindsight goals. A fixed desired goal alone has no variance."""
    obs = obs.copy()
    obs[:, env.desired] = obs[:, env.achieved]
    return obs


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritics:
    """Create actor and critic; UserError for action or observation spaces HER cannot use."""
    dist = NoisyAction(*action_bounds(action_space, cfg.algorithm), cfg.explore_noise)
    return ActorCritics((vector_size(observation_space, cfg.algorithm),), dist, cfg.hidden,
                        critics=1, normalise=cfg.normalise_obs)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with HER. `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env = make_env(cfg)
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    with_goals(env, cfg.algorithm)
    target = deepcopy(policy).requires_grad_(False)
    target_weights, weights = list(target.parameters()), list(policy.parameters())
    settings = {"lr": cfg.lr, "eps": 1e-8, "compile": cfg.compile}
    pi_optimizer = FlatAdam(policy.pi.parameters(), **settings)
    q_optimizer = FlatAdam(policy.q.parameters(), **settings)
    dist, N, S = policy.dist, cfg.num_envs, cfg.update_every
    replay = make_replay(cfg, env, dist.low.shape, np.float32)
    episodes = Episodes(replay)
    share = cfg.hindsight_goals / (cfg.hindsight_goals + 1)   # of transitions with another goal
    q_stats, pi_stats = Latest(), Latest()

    def q_loss(obs: Tensor, act: Tensor, rew: Tensor, next_obs: Tensor,
               terminated: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            next_act, _ = target.params(next_obs)                         # [B, k]
            next_value = target.values(next_obs, next_act)[0]             # [B]
            q_target = td_target(rew, cfg.gamma, terminated, next_value)  # [B]
        q = policy.values(obs, act)                                       # [1, B]
        return squared_error(q, q_target).mean(1).sum(), {"q": q.detach().mean()}

    def pi_loss(obs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        output = policy.pi(obs)                                           # [B, k], before tanh
        act, _ = dist.params(output)
        with frozen(q_optimizer.params):
            loss = deterministic_policy_loss(policy.values(obs, act))     # [B]
        loss = (loss + cfg.saturation_coef * saturation(output)).mean()
        return loss, {"action_std": act.detach().std(0).mean()}           # 0: same in all states

    # `minimize_q(*batch)`: zero_grad, backward, step. It adds "loss" and "grad_norm".
    minimize_q = q_optimizer.minimizer(q_loss)
    minimize_pi = pi_optimizer.minimizer(pi_loss)
    with run:
        env.reset()
        run.keep(policy=policy, target=target, pi_optimizer=pi_optimizer, q_optimizer=q_optimizer,
                 replay=replay, q_stats=q_stats, pi_stats=pi_stats)
        actor = policy.actor()
        for _ in run.updates(cfg.total_steps // S, S):
            # Collect.
            warming_up = replay.count < cfg.learning_starts
            for noise in dist.noise(run.rng, (S // N, N)):
                obs = env.obs
                act = dist.sample(actor(obs), noise)                      # [N, k], in -1 to 1
                if warming_up:
                    act = dist.uniform(run.rng, (N,))
                replay.add(obs, act, env.step(dist.to_env(act)))
                policy.observe(obs)                           # statistics of --normalise-obs
                if share > 0:
                    policy.observe(in_hindsight(obs, env))
                episodes.follow()

            # Update: update_ratio sets the gradient steps, for any number of environments.
            if replay.count >= cfg.learning_starts:
                for _ in range(run.updates_due(cfg.update_ratio)):
                    rows = replay.draw(run.rng, cfg.batch_size)
                    later = future(rows, episodes.last(rows), N, run.rng)
                    goal = replay.sample(later).next_obs[:, env.achieved]         # [B, k]
                    chosen = torch.from_numpy(run.rng.random(cfg.batch_size) < share)     # [B]
                    batch = relabel(replay.sample(rows), goal, chosen, env)
                    batch = batch.to(run.device).seen(policy.normalise)
                    obs, act, rew, next_obs, terminated, _ = batch
                    q_stats.update(minimize_q(obs, act, rew, next_obs, terminated))
                    pi_stats.update(minimize_pi(obs))
                    polyak(target_weights, weights, cfg.tau)
                    run.check_finite(q_loss=q_stats["loss"], pi_loss=pi_stats["loss"])
            if run.row_due:
                run.log(q=q_stats["q"], q_loss=q_stats["loss"], q_grad_norm=q_stats["grad_norm"],
                        pi_loss=pi_stats["loss"], pi_grad_norm=pi_stats["grad_norm"],
                        action_std=pi_stats["action_std"])
        return run.result(policy)
