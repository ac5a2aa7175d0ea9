"""Trust region policy optimization, TRPO (Schulman et al. 2015, arXiv:1502.05477).

The policy gradient is the direction in which the policy improves. It does not determine how long
the step can be. The same change of the weights may barely change one policy and ruin another. So
TRPO measures a step by the KL divergence between the old and the new policy. The step should be
the best one within a limit, the trust region:

    maximise    J(theta) = E[ ratio_t A_t ],   ratio_t = pi(a_t | s_t) / pi_old(a_t | s_t)
    subject to  E[ KL( pi_old(. | s_t) || pi(. | s_t) ) ] <= delta                     (eq. 14)

At theta_old, the gradient g of J is that of vpg.py, because ratio_t = 1. The gradient of the mean
KL is 0 there, and its Hessian is the Fisher matrix F. To second order (appendix C):

    step = sqrt(2 delta / x^T F x) x,   where x solves F x = g

In both formulas, a multiple of the identity matrix is added to F (`damping`), which makes the step
shorter than the limit allows. The paper's eq. 14 has Q in place of A.

F has as many rows as the policy has weights, so it is never stored. Conjugate gradient solves for
x with products F v alone. A line search then shortens the step until the exact KL is within the
limit and J has improved.

Differs from vpg.py by: the natural gradient in place of Adam, and a step whose length follows from
the trust region, so there is no policy learning rate.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from gymnasium import Space
from torch import Tensor

from spinup.algos.vpg import policy_gradient, value_loss
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate, whiten
from spinup.core.networks import ActorCritic
from spinup.core.normaliser import ReturnScaler
from spinup.core.returns import explained_variance, gae
from spinup.core.rollout import collect
from spinup.envs.spaces import action_distribution, observation_view
from spinup.runs.config import AtariConfig, Count, LogStd, NonNegative, Positive, Unit, Widths
from spinup.runs.run import Result, Run, make_env


@dataclass(kw_only=True)
class Config(AtariConfig):
    rollout_steps: Count = 256       # steps per environment per update; F needs many (128-1024)
    value_epochs: Count = 16         # gradient steps of V per batch; too few and V lags (8-64)
    gamma: Unit = 0.99               # discount factor; the horizon is about 1 / (1 - gamma) steps
    lam: Unit = 0.95                 # lambda of GAE: 1 = least bias, 0 = least variance (0.8-0.99)
    max_kl: Positive = 0.01          # delta, the limit of the mean KL per update (0.005-0.05)
    damping: NonNegative = 0.1       # added to the diagonal of F; more gives shorter, safer steps
    cg_iterations: Count = 10        # products F v per update; more solve F x = g better (5-20)
    line_search: Count = 10          # step lengths to try, each 0.8 x the last; none fits: no step
    value_lr: Positive = 3e-3        # learning rate of V, which has no trust region (1e-3 to 1e-2)
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus; 0.01 if exploration is hard
    max_grad_norm: Positive = 10.0   # largest gradient norm of V; larger ones are scaled down
    hidden: Widths = (64, 64)        # hidden layers of policy and value; images use the Nature CNN
    output_gain: Positive = 0.01     # gain of the policy's last layer; small: near-uniform at first
    normalise_obs: bool = False      # vectors: subtract mean, divide by std, if scales differ
    normalise_reward: bool = False   # divide rewards by the standard deviation of the return
    log_std: LogStd = -0.5           # initial log standard deviation (Box actions in -1 to 1)

    def __post_init__(self):
        super().__post_init__()
        self.check_batch()


def surrogate_loss(logp: Tensor, logp_old: Tensor, adv: Tensor) -> Tensor:
    """Surrogate loss per step, -ratio A (eq. 14, negated), `[...]` as `logp`. At the old policy its
    gradient is that of `policy_gradient`. `adv` is broadcast."""
    ratio = (logp - logp_old).exp()
    return -ratio * adv


def fisher_product(kl: Tensor, params: Sequence[Tensor],
                   damping: float) -> Callable[[Tensor], Tensor]:
    """Return the function v -> (F + damping I) v, `[P]` each (appendix C.1).

    kl: mean KL(pi_old || pi), `[]`, at pi = pi_old, where its Hessian is F. params: the P weights
    of pi. The gradient of kl is 0, but the gradient of (gradient of kl)^T v is F v.
    """
    gradient = flat(torch.autograd.grad(kl, params, create_graph=True))

    def product(v: Tensor) -> Tensor:
        return flat(torch.autograd.grad(gradient @ v, params, retain_graph=True)) + damping * v
    return product


def conjugate_gradient(product: Callable[[Tensor], Tensor], b: Tensor, iterations: int,
                       tolerance: float = 1e-10) -> Tensor:
    """Solve A x = b for x, `[P]`, given v -> A v for a positive definite matrix A (Hestenes and
    Stiefel 1952). It stops when the squared residual is at most `tolerance` x that of x = 0."""
    x, residual, direction = torch.zeros_like(b), b.clone(), b.clone()
    squared = first = b @ b
    for _ in range(iterations):
        if squared <= tolerance * first:                      # also if b = 0: else 0 / 0 below
            break
        image = product(direction)
        length = squared / (direction @ image)
        x = x + length * direction
        residual = residual - length * image
        before, squared = squared, residual @ residual
        direction = residual + squared / before * direction   # conjugate to all before it
    return x


def natural_step(gradient: Tensor, product: Callable[[Tensor], Tensor], max_kl: float,
                 iterations: int) -> Tensor:
    """Step s `[P]` against the natural gradient of a loss, such that s^T (F + damping I) s / 2 is
    `max_kl` (appendix C); s^T F s / 2 is the quadratic model of the KL. `gradient`, `[P]`, is the
    gradient of the loss."""
    x = conjugate_gradient(product, -gradient, iterations)
    curvature = (x @ product(x)).clamp(min=1e-30)             # if the gradient is 0, so is the step
    return (2 * max_kl / curvature).sqrt() * x


def line_search(evaluate: Callable[[Tensor], tuple[Tensor, Tensor]], theta: Tensor, step: Tensor,
                max_kl: float, tries: int) -> tuple[float, Tensor, Tensor]:
    """Shorten `step`, `[P]`, until the KL is at most `max_kl` and the loss is below that of
    `theta`, `[P]` (appendix C). Return the accepted share of the step, its loss and its KL.

    evaluate: sets the weights to a vector `[P]` and returns loss and mean KL, `[]` each. The last
    weights that it sets are the accepted ones: `theta`, with a share of 0, if all `tries` fail.
    """
    loss_old, _ = evaluate(theta)
    for share in (0.8**i for i in range(tries)):
        loss, kl = evaluate(theta + share * step)
        if kl <= max_kl and loss < loss_old:                  # false for NaN
            return share, loss, kl
    return 0.0, *evaluate(theta)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors `[...]` to one vector, `[P]`."""
    return torch.cat([x.reshape(-1) for x in tensors])


def make_policy(cfg: Config, observation_space: Space, action_space: Space) -> ActorCritic:
    """Create policy and value function; UserError for an action space that TRPO cannot use."""
    shape = observation_view(observation_space)[0]
    dist = action_distribution(action_space, cfg.algorithm)
    return ActorCritic(shape, dist, cfg.hidden, normalise=cfg.normalise_obs,
                       output_gain=cfg.output_gain, log_std=cfg.log_std)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with TRPO. `resume`: folder of a run with the same settings, to resume it."""
    # Set up.
    env = make_env(cfg)                                       # copies of one environment
    run = Run(cfg, env, resume)                               # seeds torch: create networks later
    policy = run.place(make_policy(cfg, env.observation_space, env.action_space))
    # The trust region is only for the policy. For images, V is a head on the policy's CNN. Only
    # the policy loss trains the CNN: many steps of V per batch would spoil its features for pi.
    policy_params = [p for name, p in policy.named_parameters() if not name.startswith("v.")]
    sizes = [p.numel() for p in policy_params]
    # Adam and --compile are for V only: the step of the policy needs second derivatives.
    value_optimizer = FlatAdam(policy.v.parameters(), lr=cfg.value_lr,
                               max_grad_norm=cfg.max_grad_norm, compile=cfg.compile)
    scaler = ReturnScaler(cfg.num_envs, cfg.gamma).to(run.device)
    N, T = cfg.num_envs, cfg.rollout_steps

    def policy_loss(obs: Tensor, act: Tensor, adv: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy, _ = policy.evaluate(obs, act)          # sum over independent dimensions
        surrogate, stats = policy_gradient(logp, adv)
        stats["entropy"] = entropy.detach().mean()
        return aggregate(surrogate - cfg.entropy_coef * entropy), stats

    def improve_policy(obs: Tensor, act: Tensor, adv: Tensor) -> dict[str, Tensor]:
        adv = whiten(adv)                                     # removes the reward scale
        with torch.no_grad():                                 # log_std is a weight: copy it
            logp_old, _, _ = policy.evaluate(obs, act)
            old = policy.params(policy.body(obs))
            old = tuple(x.clone() for x in old) if isinstance(old, tuple) else old

        def mean_kl() -> Tensor:
            return policy.dist.kl(old, policy.params(policy.body(obs))).mean()

        @torch.no_grad()
        def evaluate(theta: Tensor) -> tuple[Tensor, Tensor]:
            for p, weights in zip(policy_params, theta.split(sizes), strict=True):
                p.copy_(weights.view_as(p))
            logp, entropy, _ = policy.evaluate(obs, act)
            surrogate = surrogate_loss(logp, logp_old, adv)
            return aggregate(surrogate - cfg.entropy_coef * entropy), mean_kl()

        loss, stats = policy_loss(obs, act, adv)
        gradient = flat(torch.autograd.grad(loss, policy_params))
        product = fisher_product(mean_kl(), policy_params, cfg.damping)
        step = natural_step(gradient, product, cfg.max_kl, cfg.cg_iterations)
        theta = flat(policy_params).detach()
        share, loss, kl = line_search(evaluate, theta, step, cfg.max_kl, cfg.line_search)
        return {**stats, "loss": loss, "kl": kl, "step_share": torch.tensor(share),
                "grad_norm": gradient.norm()}

    def value_error(features: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return aggregate(value_loss(policy.v(features).squeeze(-1), target)), {}

    def value_of(obs: Tensor) -> Tensor:                      # takes unnormalised observations
        return policy.value(policy.normalise(obs))

    # `minimize_value(*batch)` is zero_grad(); loss(*batch)[0].backward(); clip_grad_norm_; Adam's
    # step(): one call, so that --compile can compile all of it.
    minimize_value = value_optimizer.minimizer(value_error)
    updates = cfg.total_steps // (N * T)
    with run:
        env.reset()
        run.keep(policy=policy, value_optimizer=value_optimizer, scaler=scaler)
        for update in run.updates(updates, N * T):
            # Collect a rollout with the current policy.
            rollout = collect(env, policy.actor(), policy.dist, T, run.rng, run.device)
            obs = policy.normalise(rollout.obs[:, :T])        # as the actor saw them
            act, rew = rollout.act, rollout.rew               # [N, T, ...]
            terminated, truncated = rollout.terminated, rollout.truncated
            if cfg.normalise_reward:                          # scaled, not shifted
                rew = scaler.update_and_scale(rew, terminated, truncated)

            # Evaluate the batch under the policy that collected it.
            with torch.no_grad():
                values = policy.value(obs)                                # [N, T]
                next_values = rollout.next_values(values, value_of)       # [N, T]
                adv, ret = gae(rew, values, next_values, terminated, truncated,
                               gamma=cfg.gamma, lam=cfg.lam)

            # Update: one step of the policy, many of the value function.
            batch = [x.reshape(N * T, *x.shape[2:]) for x in (obs, act, adv, ret)]
            stats = improve_policy(*batch[:3])
            with torch.no_grad():                             # these steps do not change the CNN
                features = policy.body(batch[0])              # vectors: the observations
            for _ in range(cfg.value_epochs):
                error = minimize_value(features, batch[3])["loss"]
            run.check_finite(rewards=rew, values=values, advantages=adv, **stats, value_loss=error)
            if policy.normaliser is not None:                 # after the update, because the batch
                policy.normaliser.update(rollout.obs[:, :T])  # used the old statistics
            if run.row_due:
                explained = explained_variance(values, ret)
                run.log(**stats, value_loss=error, explained_variance=explained)
        return run.result(policy)
