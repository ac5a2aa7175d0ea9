"""Figures of bugs in training, from runs with the bug and without it.

    python exercises/symptoms.py [NAME ...]             train with the bug and without it, store the data, draw it
    python exercises/symptoms.py [NAME ...] --draw      draw the stored data

NAME is an exercise, such as 5_3_last_step. Without NAME the command takes all exercises, which needs half an hour on
one core. The data are in symptoms/NAME.json. There, `runs` holds for each label a list with one run per seed, and each
run holds columns by name. Other measurements are beside `runs`. The figure is symptoms/NAME.png.
"""
import argparse
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import gymnasium
import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from torch import Tensor

from llm import reinforce_pp
from spinup import ddpg, dqn, ppo, vpg
from spinup.core.critics import ActorCritics
from spinup.core.distributions import DiagGaussian
from spinup.core.masked import masked_mean
from spinup.core.networks import ActorCritic
from spinup.core.normaliser import Normaliser
from spinup.core.replay import Replay
from spinup.core.returns import gae
from spinup.envs import make
from spinup.envs.vector import Step
from spinup.errors import NonFiniteError
from spinup.exercises.source import CONTENT, Entry, import_file
from spinup.runs.curve import COLOURS, LINES, STYLE, render

FOLDER = CONTENT / "symptoms"
SEEDS = (1, 2, 3)
ROWS = 60               # stored rows of a run, at most
DIGITS = 5              # stored digits of a number
BUG, RIGHT, FLOOR = "with the bug", "without it", "with the bug, and a floor of 0"
PLACES = {RIGHT: 0, "trained": 0, BUG: 1, "never trained": 1, FLOOR: 2}   # index in COLOURS and LINES, by label
RETURN = "mean return of the last 100 episodes"
Columns = dict[str, Any]
Runs = dict[str, list[Columns]]


# Training

def versions(name: str) -> dict[str, ModuleType]:
    """Return the modules of an exercise by label: as given, with the bug, and solved."""
    entry, found = Entry(name), {}
    with tempfile.TemporaryDirectory() as folder:
        for label, text in ((BUG, entry.text), (RIGHT, entry.solution)):
            file = Path(folder, f"{name}_{'right' if label == RIGHT else 'bug'}.py")
            file.write_text(text, encoding="utf-8")
            found[label] = import_file(file)
    return found


def trained(algorithm: Callable, subject: Any, seed: int, columns: Sequence[str], changed: dict[str, Any] | None = None,
            **settings: Any) -> tuple[Columns, Any]:
    """Train in a temporary folder; return some columns of the progress, and the result.

    columns: names of columns; only rows in which the first one is finite are stored. changed: functions that replace
    functions of the library, by name.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for name, function in (changed or {}).items():
            stack.enter_context(patch(name, function))
        result = algorithm(subject, seed=seed, log_dir=folder, quiet=True, tensorboard=False, **settings)
    progress = result.progress
    rows = [i for i, x in enumerate(progress[columns[0]]) if math.isfinite(x)]
    rows = rows[::-1][::max(1, math.ceil(len(rows) / ROWS))][::-1]
    found = {"seed": seed, **{name: [progress[name][i] for i in rows] for name in ("steps", *columns)}}
    print(getattr(algorithm, "__name__", algorithm), subject, seed, [progress[c][-1] for c in columns], flush=True)
    return found, result


def rounded(x: Any) -> Any:
    """Return the data with fewer digits, and None for numbers that are not finite."""
    if isinstance(x, dict):
        return {key: rounded(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [rounded(value) for value in x]
    return (float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None) if isinstance(x, float) else x


# Drawing

def show(axes: Axes, runs: Runs, y: str, title: str, ylabel: str, xlabel: str = "environment steps", x: str = "steps",
         **look: Any) -> None:
    """Draw a column of each run as a thin line, and the mean over seeds as a thick line where all runs have data.

    x: the column of the horizontal axis, or "" to count from 1.
    """
    for label, found in runs.items():
        own = {"color": COLOURS[PLACES[label]], "linestyle": LINES[PLACES[label]]}
        xs = [np.array(run[x] if x else range(1, len(run[y]) + 1), float) for run in found]
        ys = [np.array(run[y], float) for run in found]
        alike = all(np.array_equal(xs[0], other) for other in xs)
        shared = xs[0] if alike else np.linspace(max(a[0] for a in xs), min(a[-1] for a in xs), 200)
        for a, b in zip(xs, ys, strict=True):
            axes.plot(a, b, **own, alpha=0.35, linewidth=1)
        mean = np.mean([np.interp(shared, a, b) for a, b in zip(xs, ys, strict=True)], 0)
        axes.plot(shared, mean, **own, linewidth=2, label=label, **look)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    if xlabel == "environment steps":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))              # 10k


def picture(name: str) -> None:
    """Draw the figure of an exercise from its stored data."""
    _, draw, panels = SHOWN[name]
    with rc_context(STYLE | {"text.parse_math": True}):       # else log axes show raw $\mathdefault{10^{0}}$
        figure = Figure((4.4 * panels, 3.4), layout="constrained")
        axes = [figure.add_subplot(1, panels, i + 1) for i in range(panels)]
        draw(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")), axes)
        if not axes[0].get_legend():
            axes[0].legend()
        (FOLDER / f"{name}.png").write_bytes(render(figure, "png"))


# 2.1 The effect of a value function

def never(value: Tensor, target: Tensor) -> Tensor:
    """Value loss with gradient 0: the value function keeps its initial weights."""
    return 0 * value


def gradients(policy: ActorCritic, values: dict[str, ActorCritic], episodes: int, gamma: float) -> dict[str, dict]:
    """Measure policy gradients of single whole episodes of CartPole, by value function and lambda.

    For each, return the number of episodes to average until the length of the mean gradient equals the standard error
    of that mean. Also return the cosine between the mean gradient and the one for lambda 1 and the first value
    function.
    """
    env, rng = make("CartPole-v1", episodes, 0), np.random.default_rng(0)
    env.reset()
    actor, rows, alive = policy.actor(), [], np.ones(episodes, bool)
    while alive.any():                                        # the first episode of every copy
        obs = env.obs.copy()
        act = policy.dist.sample(actor(obs), policy.dist.noise(rng, (episodes,)))
        step = env.step(policy.dist.to_env(act))
        after = step.obs if step.final_obs is None else step.final_obs
        rows.append((obs, act, step.reward, after, step.terminated, step.truncated, alive.copy()))
        alive &= ~(step.terminated | step.truncated)
    obs, act, rew, after, terminated, truncated, counts = (
        torch.from_numpy(np.stack(x, 1)) for x in zip(*rows, strict=True))
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
    print("mean length of episodes", float(counts.sum(1).double().mean()))
    return {name: {k: v for k, v in x.items() if k != "mean"} for name, x in found.items()}


def value_function(steps: int = 100_000, episodes: int = 2000) -> dict:
    """Train VPG on CartPole with a value function that learns, and with one that never learns."""
    columns, runs = ("return_mean_100", "return_mean", "explained_variance"), {}
    for lam in (0.95, 1.0):
        for name, changed in (("trained", {}), ("never trained", {"spinup.algos.vpg.value_loss": never})):
            runs[f"{name}, lambda {lam}"] = [
                trained(vpg, "CartPole-v1", seed, columns, changed, total_steps=steps, lam=lam, threads=1)[0]
                for seed in (1, 2, 3, 4, 5)]
    _, result = trained(vpg, "CartPole-v1", 1, columns, total_steps=steps // 10, threads=1)
    policy = result.policy.module
    torch.manual_seed(1)
    fresh = ActorCritic((4,), policy.dist, (64, 64))
    return {"runs": runs, "gradient": gradients(policy, {"trained": policy, "never trained": fresh}, episodes, 0.99)}


def draw_value_function(data: dict, axes: list[Axes]) -> None:
    for panel, lam in zip(axes, (0.95, 1.0), strict=True):
        runs = {label.split(",")[0]: found for label, found in data["runs"].items() if label.endswith(str(lam))}
        show(panel, runs, "return_mean_100", f"VPG, CartPole, lambda {lam}", RETURN)
    axes[0].legend(title="value function")
    axes[1].sharey(axes[0])


# 2.2 The silent bug

def table_of_targets(ret: Tensor, discount: float, terminated: Tensor, next_value: Tensor) -> Tensor:
    """Return the targets `[B, B]` that broadcasting makes of `ret` `[B]` and values `[B, 1]`."""
    return ret + discount * (1 - terminated) * next_value[:, None]


def error_of_table(q: Tensor, target: Tensor) -> Tensor:
    """Return the mean of B x B squared errors, in the shape `[1, 1]` that DDPG expects for one critic and one step."""
    return (q[0][:, None] - target).square().mean().view(1, 1)


@torch.no_grad()
def spread(policy: ActorCritics) -> dict[str, float]:
    """Return mean and standard deviation of the critic's values for 1000 uniform states and actions of Pendulum."""
    drawn = torch.Generator().manual_seed(0)
    angle, speed, act = (torch.rand(1000, generator=drawn) * 2 - 1 for _ in range(3))
    q = policy.values(torch.stack([(math.pi * angle).cos(), (math.pi * angle).sin(), 8 * speed], 1), act[:, None])[0]
    return {"q_everywhere": q.mean().item(), "q_spread": q.std().item()}


def silent_bug(steps: int = 10_000) -> dict:
    """Train DDPG on Pendulum without the bug and with it."""
    bug = {"spinup.algos.ddpg.td_target": table_of_targets, "spinup.algos.ddpg.squared_error": error_of_table}
    runs: Runs = {BUG: [], RIGHT: []}
    for label, changed in ((BUG, bug), (RIGHT, {})):
        for seed in SEEDS:
            found, result = trained(ddpg, "Pendulum-v1", seed, ("return_mean", "return_mean_100", "q", "q_loss"),
                                    changed, total_steps=steps, threads=1)
            runs[label].append(found | spread(result.policy.module))
    return {"runs": runs}


def draw_silent_bug(data: dict, axes: list[Axes]) -> None:
    show(axes[0], data["runs"], "return_mean", "DDPG, Pendulum: return", "return of an episode")
    show(axes[1], data["runs"], "q_loss", "DDPG, Pendulum: critic", "loss of the critic")


# 5.1 The step that nobody took

FALLS, LEFT, DISCOUNT = 50, 20, 0.95                          # number of last falls; steps before each; discount


def autoreset(steps: int = 20_000) -> dict:
    """Train DQN on CartPole, and evaluate its Q-values in the steps before the pole fell."""
    runs: Runs = {BUG: [], RIGHT: []}
    for label, code in versions("5_1_autoreset").items():
        for seed in SEEDS:
            falls: list[list[tuple]] = []
            found, result = trained(
                dqn, "CartPole-v1", seed, ("return_mean_100", "q"),
                {"spinup.core.replay.Replay.add": as_gymnasium(code.transitions, falls)}, total_steps=steps,
                gamma=DISCOUNT, lr=2e-3, anneal=True, n_steps=1, hidden=(64, 64), batch_size=64, update_every=1,
                update_ratio=1.0, target_every=100, explore=0.1, epsilon=0.05, learning_starts=min(1000, steps // 2),
                save_replay=False, threads=1)
            obs, act = (torch.from_numpy(np.stack(x)) for x in zip(*[
                step for fall in falls[-FALLS:] for step in fall], strict=True))
            with torch.no_grad():
                q = result.policy.module(obs).gather(-1, act[:, None])[:, 0]
            found["predicted"] = q.view(-1, LEFT).mean(0).flip(0).tolist()
            print(label, found["predicted"], flush=True)
            runs[label].append(found)
    return {"runs": runs}


def as_gymnasium(transitions: Callable, falls: list[list[tuple]], add: Callable = Replay.add) -> Callable:
    """Return a replacement of `Replay.add` for one environment of Gymnasium in next-step mode.

    In this mode a restart is a separate step. The replacement stores the steps that `transitions` keeps, and appends
    the steps before each fall to `falls`.
    """
    episode: list[tuple] = []

    def mine(replay, obs, act, step):
        next_obs, rew, terminated, truncated, final_obs = step[:5]
        no = np.zeros_like(terminated)
        led_to = next_obs if final_obs is None else final_obs
        told = [(obs, act, rew, led_to, terminated, truncated)]
        episode.append((obs[0].copy(), act[0]))
        if final_obs is not None:
            told.append((final_obs, act, np.zeros_like(rew), next_obs, no, no))
            if terminated[0] and len(episode) >= LEFT:
                falls.append(episode[-LEFT:])
            episode.clear()
        batch = [torch.from_numpy(np.stack(x, 1)) for x in zip(*told, strict=True)]
        for o, a, r, after, over in zip(*transitions(*batch, torch.tensor([False])), strict=True):
            o, a, after, r, over = (x[None].numpy() for x in (o, a, after, r, over))
            add(replay, o, a, Step(after, r, over, no, None))
        if final_obs is not None:
            replay.now = None                                 # the next step starts an episode
    return mine


def draw_autoreset(data: dict, axes: list[Axes]) -> None:
    show(axes[0], data["runs"], "predicted", "DQN, CartPole: before the pole falls", "Q-value of the action taken",
         "steps left until the fall", x="")
    left = np.arange(1, LEFT + 1)
    true = (1 - DISCOUNT**left) / (1 - DISCOUNT)              # return of this many rewards of 1
    axes[0].plot(left, true, color="#000000", linewidth=1, label="true discounted return")
    axes[0].set(ylim=0, xticks=[1, 5, 10, 15, 20])
    show(axes[1], data["runs"], "return_mean_100", "DQN, CartPole: return", RETURN)


# 5.2 Right in one dimension

def entropy(steps: int = 20_480, updates: int = 600) -> dict:
    """Fit a Gaussian to noise; train PPO on a robot with 3 joints and compare its logged entropy with the true one."""
    widths, fitted, runs = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0], {}, {BUG: [], RIGHT: []}
    for label, code in versions("5_2_entropy").items():
        data = torch.randn(20_000, len(widths), generator=torch.Generator().manual_seed(0)) * torch.tensor(widths)
        log_std = torch.zeros(len(widths), requires_grad=True)
        optimizer = torch.optim.Adam([log_std], lr=0.05)
        for _ in range(updates):
            optimizer.zero_grad()
            (-code.log_prob(data, torch.zeros(len(widths)), log_std).mean()).backward()
            optimizer.step()
        fitted[label] = log_std.exp().tolist()
        for seed in SEEDS:
            with patch.multiple(DiagGaussian, log_prob=lambda self, params, act, code=code: code.log_prob(act, *params),
                                entropy=lambda self, params, code=code: code.entropy(params[1]).expand(
                                    params[0].shape[:-1])):
                found, result = trained(ppo, "Hopper-v5", seed, ("return_mean_100", "entropy", "kl", "clip_fraction"),
                                        total_steps=steps, threads=1)
            last = result.policy.module.log_std.detach()
            true = float(last.sum()) + 0.5 * len(last) * math.log(2 * math.pi * math.e)
            runs[label].append(found | {"log_std": last.tolist(), "logged_at_the_end": float(code.entropy(last)),
                                        "true_entropy": true})
    return {"widths": widths, "fitted": fitted, "runs": runs}


def draw_entropy(data: dict, axes: list[Axes]) -> None:
    fits = {label: [{"noise": data["widths"], "fitted": y}] for label, y in data["fitted"].items()}
    show(axes[0], fits, "fitted", "a Gaussian fitted to noise", "fitted standard deviation",
         "standard deviation of the noise", "noise", marker="o", markersize=4)
    axes[0].set(xscale="log", yscale="log")
    show(axes[1], data["runs"], "entropy", "PPO, Hopper: entropy", "entropy, as logged (nats)")
    axes[1].set_ylim(0)
    show(axes[2], data["runs"], "return_mean_100", "PPO, Hopper: return", RETURN)


# 5.3 Where the rollout stops

def last_step(steps: int = 30_208) -> dict:
    """Train PPO on CartPole; return the advantages by step of the rollout, and the return."""
    runs: Runs = {BUG: [], RIGHT: []}
    for label, code in versions("5_3_last_step").items():
        for seed in SEEDS:
            means: list[Tensor] = []

            def mine(rew, value, next_value, terminated, truncated, *, gamma, lam, code=code, means=means):
                ends = (terminated + truncated) > 0
                paid = rew + gamma * next_value * (truncated > 0) * (terminated == 0)
                done = torch.cat([torch.zeros_like(ends[:, :1]), ends[:, :-1]], 1)
                adv = code.gae(paid, value, done, next_value[:, -1], ends[:, -1], gamma, lam)
                means.append(adv.mean(0))
                return adv, adv + value

            found, _ = trained(ppo, "CartPole-v1", seed, ("return_mean_100", "explained_variance"),
                               {"spinup.algos.ppo.gae": mine}, total_steps=steps, threads=1)
            later = torch.stack(means)[len(means) // 2:].mean(0)          # mean over the second half of the run
            runs[label].append(found | {"advantage": later.tolist()})
    return {"runs": runs}


def draw_last_step(data: dict, axes: list[Axes]) -> None:
    show(axes[0], data["runs"], "advantage", "PPO, CartPole: mean advantage", "advantage", "step of the rollout", x="")
    show(axes[1], data["runs"], "return_mean_100", "PPO, CartPole: return", RETURN)


# 5.4 A higher limit

LIMITS = (12, 24)       # maximal tokens of a response


def whitened(x: Tensor, mask: Tensor) -> Tensor:
    """Normalise `x` to mean 0 and standard deviation 1 over the tokens of the mask, `[B, T]`. Others change too."""
    mean = masked_mean(x, mask)
    return (x - mean) / (masked_mean((x - mean).square(), mask).sqrt() + 1e-8)


def padding(updates: int = 100) -> dict:
    """Train REINFORCE++ on the task taste with each limit of the response length."""
    runs: Runs = {}
    for label, code in versions("5_4_padding").items():

        def per_token(logp: Tensor, adv: Tensor, mask: Tensor, code=code) -> tuple[Tensor, dict[str, Tensor]]:
            """Return the exercise's loss in the form of `policy_gradient`; its mean over tokens is the loss."""
            return code.sequence_loss(logp, adv, mask > 0).expand_as(logp), {"logp": masked_mean(logp.detach(), mask)}

        changed = {"llm.algos.reinforce.whiten": whitened, "llm.algos.reinforce.policy_gradient": per_token}
        for limit in LIMITS:
            runs[f"{limit} tokens, {label}"] = [
                trained(reinforce_pp, "taste", seed, ("held_out_reward", "length"), changed, max_tokens=limit,
                        total_steps=updates, sft_accuracy=0.15, threads=1)[0] for seed in (0, 1, 2)]
    return {"runs": runs}


def draw_padding(data: dict, axes: list[Axes]) -> None:
    for panel, limit in zip(axes, LIMITS, strict=True):
        runs = {label: data["runs"][f"{limit} tokens, {label}"] for label in (BUG, RIGHT)}
        show(panel, runs, "held_out_reward", f"responses of at most {limit} tokens", "reward on held-out prompts",
             "updates")
    axes[1].sharey(axes[0])


# 5.5 Far from zero

class Far(gymnasium.ObservationWrapper):
    """CartPole whose four numbers are 1,000 larger."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def observation(self, obs):
        return obs + np.float32(1000)


def cancellation(steps: int = 30_208) -> dict:
    """Train PPO on CartPole far from 0, with the bug, with the bug and variances clipped at 0, and without the bug."""
    runs, code = {}, versions("5_5_cancellation")
    for label, merge, floor in ((BUG, code[BUG].merge, None), (FLOOR, code[BUG].merge, 0.0),
                                (RIGHT, code[RIGHT].merge, None)):
        runs[label] = []
        for seed in SEEDS:
            seen: list[list[float]] = []

            def update(self, x, merge=merge, floor=floor, seen=seen):
                x = x.float().reshape(-1, *self.shape)
                count, mean, var = merge(float(self.count), self.mean.float(), self.var.float(), x)
                seen.append(var.tolist())
                self.count.fill_(count)
                self.mean.copy_(mean)
                self.var.copy_(var if floor is None else var.clamp(min=floor))

            found, stopped = {"seed": seed, "steps": [], "return_mean_100": []}, ""
            try:
                with patch.object(Normaliser, "update", update):
                    found, _ = trained(ppo, Far, seed, ("return_mean_100",), total_steps=steps, rollout_steps=64,
                                       minibatches=2, epochs=8, lr=4e-3, gamma=0.98, lam=0.9, normalise_obs=True,
                                       threads=1)
            except NonFiniteError as error:
                stopped = str(error).split(";")[0]
            runs[label].append(found | {"var": seen, "stopped": stopped})
    return {"runs": runs}


def draw_cancellation(data: dict, axes: list[Axes]) -> None:
    angles = {label: [{"angle": [var[2] for var in run["var"]]} for run in data["runs"][label]]
              for label in (BUG, RIGHT)}
    show(axes[0], angles, "angle", "PPO, CartPole + 1,000", "running variance of the pole's angle (rad²)", "updates",
         x="")
    for run in angles[BUG]:                                   # where training stopped
        axes[0].plot(len(run["angle"]), run["angle"][-1], "x", color=COLOURS[PLACES[BUG]])
    axes[0].axhline(0, color="#000000", linewidth=0.8)
    show(axes[1], {label: data["runs"][label] for label in (FLOOR, RIGHT)}, "return_mean_100", "PPO, CartPole + 1,000",
         RETURN)
    axes[1].legend()


# 5.6 Wrong, and ever longer

def length_bias(updates: int = 300) -> dict:
    """Train a policy of 79 parameters that may continue after its answer."""
    chatter = import_file(CONTENT / "checks" / "5_6_length_bias.py").chatter
    return {"runs": {label: [{"seed": seed, **dict(zip(("right", "right_length", "wrong_length"),
                                                       chatter(code.policy_loss, updates, seed).T.tolist(),
                                                       strict=True))} for seed in SEEDS]
                     for label, code in versions("5_6_length_bias").items()}}


def draw_length_bias(data: dict, axes: list[Axes]) -> None:
    for panel, column, title, ylabel in zip(
            axes, ("wrong_length", "right_length", "right"),
            ("length of wrong responses", "length of correct responses", "correct responses"),
            ("tokens", "tokens", "share"), strict=True):
        show(panel, data["runs"], column, title, ylabel, "updates", x="")
        panel.set_ylim(0)


SHOWN = {"2_1_value_function": (value_function, draw_value_function, 2),   # measure, draw, number of panels
         "2_2_silent_bug": (silent_bug, draw_silent_bug, 2), "5_1_autoreset": (autoreset, draw_autoreset, 2),
         "5_2_entropy": (entropy, draw_entropy, 3), "5_3_last_step": (last_step, draw_last_step, 2),
         "5_4_padding": (padding, draw_padding, 2), "5_5_cancellation": (cancellation, draw_cancellation, 2),
         "5_6_length_bias": (length_bias, draw_length_bias, 3)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the figures of bugs in training.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SHOWN)}; all by default")
    parser.add_argument("--draw", action="store_true", help="only draw the stored data")
    args = parser.parse_args()
    if unknown := set(args.names) - set(SHOWN):
        parser.error(f"unknown: {', '.join(unknown)}")
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for wanted in args.names or SHOWN:
        if not args.draw:
            measured = json.dumps(rounded(SHOWN[wanted][0]())) + "\n"
            (FOLDER / f"{wanted}.json").write_text(measured, encoding="utf-8")
        picture(wanted)
