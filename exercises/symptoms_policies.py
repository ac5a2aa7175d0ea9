"""The pictures of what the bugs of 5.1 to 5.6 look like in training: python exercises/symptoms_policies.py [NAME ...]

Each trains with the bug, which is the student's file, and without it, and writes symptoms/NAME.json and .png.
"""
import json
import math
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import gymnasium
import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from spinup.errors import NonFiniteError
from spinup.exercises.source import CONTENT, Entry, load, solution, student
from spinup.runs.run import Result

matplotlib.use("Agg")
from matplotlib import pyplot as plt

FOLDER = CONTENT / "symptoms"
SEEDS = (1, 2, 3)
LOOKS = {"bug": {"color": "#D55E00", "ls": "--"}, "right": {"color": "#0072B2", "ls": "-"}, "third": {
    "color": "#009E73", "ls": ":"}}


def versions(name: str) -> dict[str, SimpleNamespace]:
    """The functions of an exercise as it is given, "bug", and solved, "right"."""
    text, found = (CONTENT / "src" / f"{name}.py").read_text(encoding="utf-8"), {}
    for word, made in (("bug", student(text, Entry(name))), ("right", solution(text))):
        space: dict[str, Any] = {"__name__": name}
        exec(compile(made, f"{name}, {word}", "exec"), space)
        found[word] = SimpleNamespace(**{k: v for k, v in space.items() if not k.startswith("__")})
    return found


def trained(algorithm: str, env: Any, seed: int, **settings: Any) -> Result:
    """A run that leaves nothing behind."""
    import spinup
    with tempfile.TemporaryDirectory() as folder:
        return getattr(spinup, algorithm)(env, seed=seed, log_dir=folder, quiet=True, tensorboard=False, threads=1,
                                          **settings)


def draw(name: str, parts: list[Callable[[Axes], None]]) -> None:
    """The picture, a panel for each part."""
    figure, axes = plt.subplots(1, len(parts), figsize=(4.2 * len(parts), 3.2), squeeze=False)
    for part, axis in zip(parts, axes[0], strict=True):
        part(axis)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(FOLDER / f"{name}.png", dpi=110)
    plt.close(figure)


def curves(axis: Axes, runs: dict[str, list[dict]], x: str, y: str, words: dict[str, str]) -> None:
    """A line for each seed, and a label for each kind."""
    for kind, label in words.items():
        for i, run in enumerate(runs[kind]):
            axis.plot(run[x], run[y], lw=1.4, alpha=0.9, label=None if i else label, **LOOKS[kind])


def titled(axis: Axes, title: str, x: str, y: str) -> None:
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(x)
    axis.set_ylabel(y)


# 5.1

def autoreset(steps: int = 20_000, **settings: Any) -> dict:
    """DQN on Acrobot, and what it thinks of states that are a few steps from the goal."""
    from spinup.core.replay import Replay
    settings = {"total_steps": steps, "hidden": (64, 64), "batch_size": 64, "update_ratio": 1.0, **settings}
    add, found = Replay.add, {}
    for kind, code in versions("5_1_autoreset").items():
        found[kind] = []
        for seed in SEEDS:
            with patch.object(Replay, "add", partial(as_gymnasium, add, code.transitions)):
                result = trained("dqn", "Acrobot-v1", seed, save_replay=False, **settings)
            progress = {k: result.progress[k] for k in ("steps", "return_mean_100", "q")}
            found[kind].append(progress | before_the_goal(result.policy))
            print(kind, seed, [(k, v[-1]) for k, v in found[kind][-1].items()], flush=True)
    return found


def as_gymnasium(add: Callable, transitions: Callable, replay: Any, obs: np.ndarray, act: np.ndarray,
                 next_obs: np.ndarray, rew: np.ndarray, terminated: np.ndarray, truncated: np.ndarray,
                 final_obs: np.ndarray | None) -> None:
    """One step of one environment as Gymnasium tells it in next-step mode: the restart is a step of its own."""
    led_to, no = next_obs if final_obs is None else final_obs, np.zeros(1, bool)
    told = [(obs, act, rew, led_to, terminated, truncated)]
    if final_obs is not None:
        told.append((final_obs, act, np.zeros_like(rew), next_obs, no, no))
    batch = [torch.from_numpy(np.stack(x, 1)) for x in zip(*told, strict=True)]
    kept = [x.numpy() for x in transitions(*batch, torch.zeros(1, dtype=torch.bool))]
    for i in range(len(kept[0])):
        o, a, r, after, over = (x[i:i + 1] for x in kept)
        add(replay, o, a, after, r, over, no, None)
    if final_obs is not None and len(kept[0]) < 2:
        replay.now = None                                                 # the next step begins an episode


def before_the_goal(policy: Any, episodes: int = 30, most: int = 30) -> dict[str, list[float]]:
    """By the number of steps that were left, 1 to `most`: mean value as predicted, and as it turned out."""
    from spinup.envs import make
    env = make("Acrobot-v1", 1, 1000)
    obs, seen, rewards, done = env.reset(), [], [], 0
    predicted, true = ([[] for _ in range(most)] for _ in range(2))
    while done < episodes:
        seen.append(obs.copy())
        step = env.step(policy.act_batch(obs))
        obs = step.obs
        rewards.append(float(step.reward[0]))
        if step.final_obs is not None:
            done += 1
            if step.terminated[0]:
                with torch.no_grad():
                    value = policy.module(torch.from_numpy(np.concatenate(seen))).amax(-1).tolist()
                worth = 0.0
                for left in range(min(most, len(seen))):
                    worth = rewards[-1 - left] + 0.99 * worth
                    predicted[left].append(value[-1 - left])
                    true[left].append(worth)
            seen, rewards = [], []
    return {"predicted": [float(np.mean(x)) for x in predicted], "true": [float(np.mean(x)) for x in true]}


def draw_autoreset(name: str, found: dict) -> None:
    words = {"bug": "with the bug", "right": "without"}

    def values(axis):
        curves(axis, found, "steps", "q", words)
        titled(axis, "DQN, Acrobot, 3 seeds", "steps", "mean Q in the replay")

    def near(axis):
        for kind, label in words.items():
            for i, run in enumerate(found[kind]):
                axis.plot(range(1, 31), run["predicted"], lw=1.4, label=None if i else label, **LOOKS[kind])
        axis.plot(range(1, 31), np.mean([run["true"] for run in found["right"]], 0), color="#000000", lw=1,
                  label="as it turned out")
        titled(axis, "close to the goal", "steps that were left", "value")

    draw(name, [values, near])


# 5.2

def entropy(steps: int = 20_480, env: str = "Hopper-v5") -> dict:
    """A Gaussian fitted to data, and PPO's policy with 3 joints: what is logged of it, and what is true."""
    from spinup.core.distributions import DiagGaussian
    widths, found = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0], {"widths": [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]}
    for kind, code in versions("5_2_entropy").items():
        data = torch.randn(20_000, len(widths), generator=torch.Generator().manual_seed(0)) * torch.tensor(widths)
        log_std = torch.zeros(len(widths), requires_grad=True)
        optimizer = torch.optim.Adam([log_std], lr=0.05)
        for _ in range(600):
            optimizer.zero_grad()
            (-code.log_prob(data, torch.zeros(len(widths)), log_std).mean()).backward()
            optimizer.step()
        found[kind] = {"fitted": log_std.exp().tolist(), "runs": []}
        print(kind, found[kind]["fitted"])

        def log_prob(self, params, act, code=code):
            return code.log_prob(act, *params)

        def logged(self, params, code=code):
            return code.entropy(params[1]).expand(params[0].shape[:-1])

        for seed in SEEDS:
            with patch.object(DiagGaussian, "log_prob", log_prob), patch.object(DiagGaussian, "entropy", logged):
                result = trained("ppo", env, seed, total_steps=steps)
            last = result.policy.module.log_std.detach()
            true = float(last.sum()) + 0.5 * len(last) * math.log(2 * math.pi * math.e)
            keep = ("steps", "return_mean_100", "entropy", "kl", "clip_fraction")
            found[kind]["runs"].append({k: result.progress[k] for k in keep} | {
                "log_std": last.tolist(), "logged_at_the_end": float(code.entropy(last)), "true_entropy": true})
            print(kind, seed, result.progress["return_mean_100"][-1], result.progress["entropy"][-1], true, flush=True)
    return found


def draw_entropy(name: str, found: dict) -> None:
    words = {"bug": "with the bug", "right": "without"}

    def fitted(axis):
        for kind, label in words.items():
            axis.plot(found["widths"], found[kind]["fitted"], marker="o", ms=4, label=label, **LOOKS[kind])
        axis.set(xscale="log", yscale="log")
        titled(axis, "a Gaussian fitted to noise", "deviation of the noise", "deviation found")

    def told(axis):
        curves(axis, {kind: found[kind]["runs"] for kind in words}, "steps", "entropy", words)
        axis.set_ylim(0)
        titled(axis, "PPO, Hopper, 3 seeds", "steps", "entropy, as logged (nats)")

    def earned(axis):
        curves(axis, {kind: found[kind]["runs"] for kind in words}, "steps", "return_mean_100", words)
        titled(axis, "PPO, Hopper, 3 seeds", "steps", "return")

    draw(name, [fitted, told, earned])


# 5.3

def last_step(steps: int = 30_208) -> dict:
    """PPO on CartPole: advantages by their place in the rollout, and the return."""
    found = {}
    for kind, code in versions("5_3_last_step").items():
        found[kind] = []
        for seed in SEEDS:
            means: list[Tensor] = []

            def mine(rew, value, next_value, terminated, truncated, *, gamma, lam, code=code, means=means):
                ends = (terminated + truncated) > 0
                paid = rew + gamma * next_value * (truncated > 0) * (terminated == 0)
                done = torch.cat([torch.zeros_like(ends[:, :1]), ends[:, :-1]], 1)
                adv = code.gae(paid, value, done, next_value[:, -1], ends[:, -1], gamma, lam)
                means.append(adv.mean(0))
                return adv, adv + value

            with patch("spinup.algos.ppo.gae", mine):
                progress = trained("ppo", "CartPole-v1", seed, total_steps=steps).progress
            later = torch.stack(means)[len(means) // 2:].mean(0)          # of the second half of the run
            keep = ("steps", "return_mean_100", "explained_variance")
            found[kind].append({k: progress[k] for k in keep} | {"advantage": later.tolist()})
            print(kind, seed, progress["return_mean_100"][-1], later[-1], flush=True)
    return found


def draw_last_step(name: str, found: dict) -> None:
    words = {"bug": "with the bug", "right": "without"}

    def places(axis):
        for kind, label in words.items():
            for i, run in enumerate(found[kind]):
                axis.plot(range(len(run["advantage"])), run["advantage"], lw=1.4, label=None if i else label,
                          **LOOKS[kind])
        titled(axis, "PPO, CartPole, 3 seeds", "step of the rollout", "advantage, mean")

    def earned(axis):
        curves(axis, found, "steps", "return_mean_100", words)
        titled(axis, "PPO, CartPole, 3 seeds", "steps", "return")

    draw(name, [places, earned])


# 5.5

class Far(gymnasium.ObservationWrapper):
    """CartPole whose four numbers are 1,000 larger."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def observation(self, obs):
        return obs + np.float32(1000)


def cancellation(steps: int = 30_208) -> dict:
    """PPO on CartPole far from 0: the running variances and the return; with the bug, also with a floor under them."""
    from spinup.core.normaliser import Normaliser
    found, code = {}, versions("5_5_cancellation")
    for kind, merge, floor in (("bug", code["bug"].merge, None), ("third", code["bug"].merge, 0.0),
                               ("right", code["right"].merge, None)):
        found[kind] = []
        for seed in SEEDS:
            var_seen: list[list[float]] = []

            def update(self, x, merge=merge, floor=floor, var_seen=var_seen):
                x = x.float().reshape(-1, *self.shape)
                count, mean, var = merge(float(self.count), self.mean.float(), self.var.float(), x)
                var_seen.append(var.tolist())
                self.count.fill_(count)
                self.mean.copy_(mean)
                self.var.copy_(var if floor is None else var.clamp(min=floor))

            progress, stopped = {"steps": [], "return_mean_100": []}, ""
            with patch.object(Normaliser, "update", update):
                try:
                    progress = trained("ppo", Far, seed, total_steps=steps, rollout_steps=64, minibatches=2, epochs=8,
                                       lr=4e-3, gamma=0.98, lam=0.9, normalise_obs=True).progress
                except NonFiniteError as error:
                    stopped = str(error).split(";")[0]
            found[kind].append({k: progress[k] for k in ("steps", "return_mean_100")} | {
                "var": var_seen, "stopped": stopped})
            print(kind, seed, progress["return_mean_100"][-1:], stopped, var_seen[-1], flush=True)
    return found


def draw_cancellation(name: str, found: dict) -> None:
    def angle(axis):
        for kind, label in (("bug", "with the bug"), ("right", "without")):
            for i, run in enumerate(found[kind]):
                var = [v[2] for v in run["var"]]
                axis.plot(range(1, len(var) + 1), var, lw=1.4, marker="x" if run["stopped"] else None, ms=3,
                          label=None if i else label, **LOOKS[kind])
        axis.axhline(0, color="#000000", lw=0.8)
        titled(axis, "running variance of the pole's angle", "updates", "rad²")

    def earned(axis):
        curves(axis, found, "steps", "return_mean_100", {"third": "with the bug and a floor of 0", "right": "without"})
        titled(axis, "PPO, CartPole + 1,000, 3 seeds", "steps", "return")

    draw(name, [angle, earned])


# 5.6

def length_bias(updates: int = 300) -> dict:
    """A policy of 79 numbers that may go on after its answer."""
    chatter = sys.modules[load(CONTENT / "checks" / "5_6_length_bias.py").__name__].chatter
    found = {}
    for kind, code in versions("5_6_length_bias").items():
        found[kind] = [[[round(float(x), 4) for x in row] for row in chatter(code.policy_loss, updates, seed)]
                       for seed in SEEDS]
        print(kind, [run[-1] for run in found[kind]], flush=True)
    return found


def draw_length_bias(name: str, found: dict) -> None:
    words = {"bug": "with the bug", "right": "without"}

    def lengths(axis, column, title):
        for kind, label in words.items():
            for i, run in enumerate(found[kind]):
                axis.plot([row[column] for row in run], lw=1.2, label=None if i else label, **LOOKS[kind])
        titled(axis, title, "updates", "tokens" if column else "share")
        axis.set_ylim(0)

    draw(name, [partial(lengths, column=2, title="length of wrong answers"),
                partial(lengths, column=1, title="length of right answers"),
                partial(lengths, column=0, title="right answers")])


ALL = {"5_1_autoreset": (autoreset, draw_autoreset), "5_2_entropy": (entropy, draw_entropy),
       "5_3_last_step": (last_step, draw_last_step), "5_5_cancellation": (cancellation, draw_cancellation),
       "5_6_length_bias": (length_bias, draw_length_bias)}


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in names or ALL:
        measure, picture = ALL[name]
        path = FOLDER / f"{name}.json"
        path.write_text(json.dumps(measure(), indent=None) + "\n", encoding="utf-8")
        picture(name, json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(sys.argv[1:])
