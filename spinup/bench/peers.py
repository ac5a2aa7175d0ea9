"""stable-baselines3 and SBX as their users run them, with our settings translated to their names.

All other settings are their defaults: make_vec_env or make_atari_env, Monitor, DummyVecEnv, TensorBoard; on the CPU.
"""
import importlib
import time
from collections import deque
from typing import Any

import numpy as np
import stable_baselines3
import torch
from gymnasium import Space
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecNormalize

from spinup.bench.against import zoo
from spinup.bench.passes import networks_alone
from spinup.bench.process import EPISODES, work
from spinup.bench.speed import report
from spinup.bench.tasks import counted_from, is_atari
from spinup.envs.ids import find_id
from spinup.envs.make import quiet_mujoco
from spinup.machine import peak_memory
from spinup.runs.episodes import played, unseen
from spinup.runs.records import versions
from spinup.runs.training import Training

Settings = dict[str, Any]


def run_sb3(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Train for the same number of steps as spinup; return the result of `spinup.bench.speed.report`."""
    found = run(stable_baselines3, folder, job)
    return found | networks_alone(job["algo"], job["env"], job["settings"], plain=True)


def run_sbx(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Do the same with SBX, which has the interface of stable-baselines3 and computes with JAX."""
    return run(importlib.import_module("sbx"), folder, job)


def run(library: Any, folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """Train with a library's class of the algorithm, and time it."""
    torch.set_num_threads(job["threads"])
    s = job["settings"]
    started = time.perf_counter()
    model = make_model(job["algo"], make_env(job["env"], s, job["seed"]), s, library=library, seed=job["seed"],
                       tensorboard_log=folder)
    clock = Clock(counted_from(s))
    training = time.perf_counter()
    model.learn(s["total_steps"], callback=clock, **rows(s))
    ended = time.perf_counter()
    before = (clock.step, clock.began - training) if clock.step else (0, 0.0)
    returns = [episode["r"] for episode in model.ep_info_buffer]
    return report(model.num_timesteps, ended - training, ended - started, returns,
                  {library.__name__.replace("_", "-"): library.__version__}, before=before)


def returns(folder: str, job: dict[str, Any]) -> dict[str, Any]:
    """R100 and E100 of the peer with its own settings, in the same environment for the same number of steps.

    job: `algo`, `env`, `seed`, `total_steps`, and `against`: "zoo" for the settings of RL Baselines3 Zoo, "sb3" for the
    library's defaults.
    """
    quiet_mujoco()
    torch.set_num_threads(1)
    env, settings = as_in_the_zoo(**job) if job["against"] == "zoo" else (job["env"], {})
    model = getattr(stable_baselines3, job["algo"].upper())("MlpPolicy", env, seed=job["seed"], device="cpu",
                                                            **settings)
    curve = Curve(job["total_steps"])
    model.learn(job["total_steps"], callback=curve)
    seconds = time.perf_counter() - curve.began
    training = [float(episode["r"]) for episode in model.ep_info_buffer]
    normaliser = model.get_vec_normalize_env()
    normalise = normaliser.normalize_obs if normaliser is not None else np.asarray
    with unseen(job["env"], EPISODES, 0, {}) as envs:                         # those of `spinup eval`
        found, _ = played(envs, job["env"], EPISODES, lambda obs: model.predict(normalise(obs), deterministic=True)[0])
    return {"algo": job["algo"], "env": job["env"], "seed": job["seed"], "against": job["against"],
            "settings": zoo(job["algo"], job["env"]) if job["against"] == "zoo" else {},
            "R100": float(np.mean(training)) if training else None, "E100": float(np.mean(found)),
            "steps": model.num_timesteps, "seconds": round(seconds, 3), "training_returns": training,
            "evaluation_returns": found, "version": stable_baselines3.__version__,
            "curve": curve.rows, "versions": {**versions(), "stable-baselines3": stable_baselines3.__version__},
            "peak_memory": peak_memory()}


def as_in_the_zoo(algo: str, env: str, seed: int, **_: Any) -> tuple[VecEnv, Settings]:
    """Make the environments and the arguments of the peer's algorithm with the settings of RL Baselines3 Zoo."""
    s = zoo(algo, env)
    made = make_vec_env(env, n_envs=s.pop("copies", 1), seed=seed)
    if s.pop("normalise", False):
        made = VecNormalize(made, gamma=s.get("gamma", 0.99))
    noise, policy = s.pop("action_noise", None), s.pop("policy", {})
    if noise is not None:
        zeros = np.zeros(made.action_space.shape)
        s["action_noise"] = NormalActionNoise(zeros, zeros + noise)
    if "activation_fn" in policy:
        policy["activation_fn"] = getattr(torch.nn, policy["activation_fn"])
    return made, {**s, "policy_kwargs": policy}


class Curve(BaseCallback):
    """Columns of a learning curve with as many rows as spinup's: steps, episodes, their mean return, that of the last
    100 episodes, and wall-clock seconds. A row without an episode is left out."""

    def __init__(self, total_steps: int):
        super().__init__()
        self.every, self.began = max(1, total_steps // Training.epochs), time.perf_counter()
        self.rows: dict[str, list[float]] = {
            "steps": [], "episodes": [], "return_mean": [], "return_mean_100": [], "wall_seconds": []}
        self.ended: list[float] = []                          # returns since the last row
        self.recent: deque[float] = deque(maxlen=100)

    def _on_step(self) -> bool:
        ended = [float(info["episode"]["r"]) for info in self.locals["infos"] if "episode" in info]
        self.ended += ended
        self.recent += ended
        if self.num_timesteps // self.every > len(self.rows["steps"]) and self.ended:
            row = (self.num_timesteps, len(self.ended), float(np.mean(self.ended)),
                   float(np.mean(self.recent)),
                   round(time.perf_counter() - self.began, 3))
            self.ended = []
            for column, value in zip(self.rows.values(), row, strict=True):
                column.append(value)
        return True


class Clock(BaseCallback):
    """Records the times at which step number `step` and the gradient step after it end."""

    def __init__(self, step: int):
        super().__init__()
        self.step, self.began = step, 0.0

    def _on_rollout_start(self) -> None:
        if not self.began and self.model.num_timesteps >= self.step:
            self.began = time.perf_counter()

    def _on_step(self) -> bool:
        return True


def make_env(env: str, s: Settings, seed: int) -> VecEnv:
    """Make the peer's vector environment with these settings."""
    quiet_mujoco()                                                        # otherwise its log is in the user's folder
    if is_atari(env):
        return VecFrameStack(make_atari_env(find_id(env), n_envs=s["num_envs"], seed=seed), 4)
    made = make_vec_env(env, n_envs=s["num_envs"], seed=seed)
    if s.get("normalise_obs"):
        made = VecNormalize(made, norm_obs=True, norm_reward=s["normalise_reward"], gamma=s["gamma"])
    return made


def make_model(algo: str, env: VecEnv, s: Settings, library: Any = stable_baselines3, **own: Any) -> BaseAlgorithm:
    """Make the peer's algorithm on `env`. KeyError for a name without settings here.

    s: our settings. library: the peer's module. own: additional arguments.
    """
    images = len(env.observation_space.shape) == 3
    net = {} if images else {"net_arch": list(s["hidden"])}               # images: both use the Nature CNN
    if algo == "ppo" and not images:
        net["activation_fn"] = torch.nn.Tanh                              # the others use ReLU, as ours do
    return getattr(library, algo.upper())(
        "CnnPolicy" if images else "MlpPolicy", env, gamma=s["gamma"], policy_kwargs=net, verbose=0, device="cpu",
        **{"ppo": ppo, "dqn": dqn, "td3": td3, "sac": sac}[algo](s, env.action_space), **own)


def ppo(s: Settings, actions: Space) -> Settings:
    """Translate our PPO settings to the peer's names."""
    return {"learning_rate": lambda left: s["lr"] * left, "n_steps": s["rollout_steps"],          # eps is 1e-5 in both
            "batch_size": s["num_envs"] * s["rollout_steps"] // s["minibatches"], "n_epochs": s["epochs"],
            "gae_lambda": s["lam"], "clip_range": s["clip_ratio"], "clip_range_vf": s["clip_value"],
            "ent_coef": s["entropy_coef"], "vf_coef": s["value_coef"], "max_grad_norm": s["max_grad_norm"]}


def replay(s: Settings) -> Settings:
    """Translate our settings of all algorithms with a replay buffer to the peer's names."""
    return {"learning_rate": s["lr"], "buffer_size": s["replay_size"], "batch_size": s["batch_size"],
            "learning_starts": s["learning_starts"] - 1,                  # it starts one step later than ours
            "train_freq": s["update_every"], "gradient_steps": round(s["update_every"] * s["update_ratio"])}


def dqn(s: Settings, actions: Space) -> Settings:
    """Translate our DQN settings to the peer's names."""
    return {**replay(s), "target_update_interval": round(s["target_every"] / s["update_ratio"]),     # environment steps
            "exploration_fraction": s["explore"], "exploration_initial_eps": 1.0,
            "exploration_final_eps": s["epsilon"], "max_grad_norm": s["max_grad_norm"]}


def td3(s: Settings, actions: Space) -> Settings:
    """Translate our TD3 settings to the peer's names."""
    zeros = np.zeros(actions.shape)
    return {**replay(s), "tau": s["tau"], "policy_delay": s["policy_delay"], "target_policy_noise": s["target_noise"],
            "target_noise_clip": s["noise_clip"],
            "action_noise": NormalActionNoise(zeros, zeros + s["explore_noise"])}


def sac(s: Settings, actions: Space) -> Settings:
    """Translate our SAC settings to the peer's names."""
    return {**replay(s), "tau": s["tau"], "ent_coef": f"auto_{s['alpha']}" if s["learn_alpha"] else s["alpha"],
            "target_entropy": s["target_entropy"] * actions.shape[0]}


def rows(s: Settings) -> dict[str, int]:
    """Logging interval of the peer: as many rows as spinup's for on-policy algorithms, else its default, in
    episodes."""
    if "learning_starts" in s:
        return {}
    updates = s["total_steps"] // (s["num_envs"] * s["rollout_steps"])
    return {"log_interval": max(1, round(updates / Training.epochs))}


if __name__ == "__main__":
    work({"sb3": run_sb3, "sbx": run_sbx, "returns": returns})
