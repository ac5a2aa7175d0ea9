"""What the exercises 2.1 and 2.2 show: python exercises/symptoms_critics.py [NAME ...] trains again and draws again.

    2_1_value_function    VPG on CartPole-v1 with a value function that learns, and with one that never does
    2_2_silent_bug        DDPG on Pendulum-v1 as it is, and with the bug of the exercise

Numbers go to symptoms/NAME.json, the picture that is drawn from them to symptoms/NAME.png. A run takes one core a few
minutes.
"""
import json
import math
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from spinup import ddpg, vpg
from spinup.core.critics import ActorCritics
from spinup.core.networks import ActorCritic
from spinup.core.returns import gae
from spinup.envs import make
from spinup.runs.plots import COLOURS, LINES, STYLE

FOLDER = Path(__file__).parent / "symptoms"
SEEDS = (1, 2, 3, 4, 5)
COLUMNS = {"steps": 0, "return_mean": 1, "return_mean_100": 1, "q": 2, "q_loss": 3, "explained_variance": 3}   # digits
ROWS = 60               # at most, of a run
Patches = dict[str, Callable]


def runs(algorithm: Callable, env: str, changed: Patches, seeds: tuple[int, ...], measure: Callable | None = None,
         **settings) -> list[dict]:
    """A training for each seed, with functions of the library replaced: its rows, of epochs in which an episode ended,
    and what `measure` tells of the policy."""
    found = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            for name, function in changed.items():
                stack.enter_context(patch(name, function))
            result = algorithm(env, seed=seed, threads=1, log_dir=folder, quiet=True, tensorboard=False, **settings)
        told = result.progress
        kept = [i for i, x in enumerate(told["return_mean"]) if math.isfinite(x)]
        kept = kept[::-1][::math.ceil(len(kept) / ROWS)][::-1]
        found.append({"seed": seed, **{name: [rounded(told[name][i], digits) for i in kept]
                                       for name, digits in COLUMNS.items() if name in told}})
        if measure:
            found[-1] |= measure(result.policy.module)
        print(algorithm.__name__, env, list(changed), seed, found[-1]["return_mean_100"][-1], flush=True)
    return found


def rounded(x: float, digits: int) -> float | None:
    return round(x, digits) if math.isfinite(x) else None


def draw(axes, curves: dict[str, list[dict]], column: str) -> None:
    """A thin line for each seed, a thick one for their mean, in the colour and dashes of its place."""
    for (label, found), colour, line in zip(curves.items(), COLOURS, LINES, strict=False):
        shared = np.linspace(max(r["steps"][0] for r in found), min(r["steps"][-1] for r in found), 100)
        lines = [np.interp(shared, r["steps"], np.array(r[column], float)) for r in found]
        for y in lines:
            axes.plot(shared, y, color=colour, linestyle=line, alpha=0.3, linewidth=1)
        axes.plot(shared, np.mean(lines, 0), color=colour, linestyle=line, linewidth=2, label=label)


def never(value: Tensor, target: Tensor) -> Tensor:
    """A value loss whose gradient is 0: the value function keeps its first weights."""
    return 0 * value


def gradients(policy: ActorCritic, values: dict[str, ActorCritic], episodes: int, gamma: float) -> dict[str, dict]:
    """The policy gradient that single whole episodes of CartPole give, by value function and lambda.

    For each: in how many episodes' mean the noise is as large as the gradient; and the cosine of the mean gradient with
    the one for lambda 1 and the first value function.
    """
    env, rng = make("CartPole-v1", episodes, 0), np.random.default_rng(0)
    env.reset()
    actor, rows, alive = policy.actor(), [], np.ones(episodes, bool)
    while alive.any():                                        # of every copy the first episode
        obs = env.obs.copy()
        act = policy.dist.sample(actor(obs), policy.dist.noise(rng, (episodes,)))
        step = env.step(policy.dist.to_env(act))
        after = step.obs if step.final_obs is None else step.final_obs
        rows.append((obs, act, step.reward, after, step.terminated, step.truncated, alive.copy()))
        alive &= ~(step.terminated | step.truncated)
    obs, act, rew, after, terminated, truncated, counts = (torch.from_numpy(np.stack(x, 1)) for x in zip(*rows,
                                                                                                    strict=True))
    weights, found = list(policy.pi.parameters()), {}
    for name, net in values.items():
        for lam in (1.0, 0.95):
            with torch.no_grad():
                adv, _ = gae(rew, net.value(obs), net.value(after), terminated, truncated, gamma=gamma, lam=lam)
            each = []
            for o, a, advantage, length in zip(obs, act, adv, counts.sum(1), strict=True):
                logp = policy.evaluate(o[:length], a[:length])[0]
                each.append(torch.cat([g.flatten() for g in torch.autograd.grad(
                    (logp * advantage[:length]).sum(), weights)]))
            each = torch.stack(each).double()
            mean, noise = each.mean(0), each.var(0).sum()
            first = next(iter(found.values()))["mean"] if found else mean
            found[f"{name}, lambda {lam}"] = {
                "mean": mean, "episodes": float(noise / (mean.square().sum() - noise / episodes)),
                "cosine": float(torch.cosine_similarity(mean, first, 0))}
    lengths = counts.sum(1).double()
    print("mean length of episodes", float(lengths.mean()))
    return {name: {k: round(v, 3) for k, v in x.items() if k != "mean"} for name, x in found.items()}


def value_function() -> dict:
    frozen = {"spinup.algos.vpg.value_loss": never}
    curves = {f"{name}, lambda {lam}": runs(vpg, "CartPole-v1", changed, SEEDS, total_steps=100_000, lam=lam)
              for lam in (0.95, 1.0) for name, changed in (("trained", {}), ("never trained", frozen))}
    with tempfile.TemporaryDirectory() as folder:
        policy = vpg("CartPole-v1", seed=1, total_steps=10_000, threads=1, log_dir=folder, quiet=True,
                     tensorboard=False).policy.module
    torch.manual_seed(1)
    fresh = ActorCritic((4,), policy.dist, (64, 64))
    return {"runs": curves, "gradient": gradients(policy, {"trained": policy, "never trained": fresh}, 2000, 0.99)}


def draw_value_function(data: dict, axes) -> None:
    for ax, lam in zip(axes, (0.95, 1.0), strict=True):
        draw(ax, {label.split(",")[0]: found for label, found in data["runs"].items() if label.endswith(str(lam))},
             "return_mean_100")
        ax.set_title(f"VPG, CartPole-v1, lambda {lam}")
        ax.set_xlabel("environment steps")
    axes[0].set_ylabel("mean return of the last 100 episodes")
    axes[0].legend(title="value function")


def table_of_targets(ret: Tensor, discount: float, terminated: Tensor, next_value: Tensor) -> Tensor:
    """What [B] and [B, 1] give, `[B, B]`."""
    return ret + discount * (1 - terminated) * next_value[:, None]


def error_of_table(q: Tensor, target: Tensor) -> Tensor:
    """The mean of B x B errors, in the shape `[1, 1]` that DDPG takes for one critic and one step."""
    return (q[0][:, None] - target).square().mean().view(1, 1)


@torch.no_grad()
def spread(policy: ActorCritics) -> dict[str, float]:
    """Mean and deviation of what the critic says of 1000 states of Pendulum and actions, both drawn evenly."""
    drawn = torch.Generator().manual_seed(0)
    angle, speed, act = (torch.rand(1000, generator=drawn) * 2 - 1 for _ in range(3))
    q = policy.values(torch.stack([(math.pi * angle).cos(), (math.pi * angle).sin(), 8 * speed], 1), act[:, None])[0]
    return {"q_everywhere": round(q.mean().item(), 2), "q_spread": round(q.std().item(), 2)}


def silent_bug() -> dict:
    bug = {"spinup.algos.ddpg.td_target": table_of_targets, "spinup.algos.ddpg.squared_error": error_of_table}
    return {"runs": {name: runs(ddpg, "Pendulum-v1", changed, SEEDS[:3], spread, total_steps=10_000)
                     for name, changed in (("without the bug", {}), ("with the bug", bug))}}


def draw_silent_bug(data: dict, axes) -> None:
    for ax, column, title in zip(axes, ("return_mean", "q_loss"), ("return of an episode", "loss of the critic"),
                                 strict=True):
        draw(ax, data["runs"], column)
        ax.set_title(f"DDPG, Pendulum-v1: {title}")
        ax.set_xlabel("environment steps")
    axes[0].legend()


SHOWN = {"2_1_value_function": (value_function, draw_value_function), "2_2_silent_bug": (silent_bug, draw_silent_bug)}


def picture(name: str) -> None:
    """From the numbers that were kept."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
        SHOWN[name][1](json.loads((FOLDER / f"{name}.json").read_text()), axes)
        figure.savefig(FOLDER / f"{name}.png")
        plt.close(figure)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for wanted in [x for x in sys.argv[1:] if x != "--draw"] or SHOWN:
        if "--draw" not in sys.argv:
            (FOLDER / f"{wanted}.json").write_text(json.dumps(SHOWN[wanted][0]()) + "\n")
        picture(wanted)
