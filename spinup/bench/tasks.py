"""Tasks of the speed benchmark: settings for both sides, goals for the ratio, and notes on differences of the work.

`spinup.bench.peers` has the peer's names of the settings.
"""
from dataclasses import dataclass, field
from typing import Any

from spinup.errors import UserError, nearest

ON_POLICY = {"gamma": 0.99, "lam": 0.95, "value_coef": 0.5, "max_grad_norm": 0.5, "anneal": True}
MLP = {**ON_POLICY, "clip_ratio": 0.2, "clip_value": 0.2, "hidden": (64, 64)}
DQN = {"num_envs": 1, "gamma": 0.99, "replay_size": 10_000, "double": False, "max_grad_norm": 10.0}
CHEETAH = {"total_steps": 7000, "num_envs": 1, "learning_starts": 1000, "replay_size": 1_000_000, "batch_size": 256,
           "update_every": 1, "update_ratio": 1.0, "gamma": 0.99, "tau": 0.005, "hidden": (256, 256),
           "checkpoint_steps": 15_000}


@dataclass(frozen=True)
class Task:
    """One comparison: the settings of both sides, and the goal for the ratio."""

    settings: dict[str, Any]            # fields of the algorithm's Config
    goals: dict[int, float]             # by number of threads, not compiled; empty: no goal
    notes: tuple[str, ...]              # differences between the work of the two sides
    compiled: dict[int, float] = field(default_factory=dict)              # goals with a compiled update step,
                                                                          # without compilation time
    sbx: dict[int, float] = field(default_factory=dict)                   # goals for the ratio to SBX; empty: not
                                                                          # compared with it


EVALUATED_ONCE = ("spinup scores a rollout in one batch after collecting it; stable-baselines3 evaluates value and "
                  "log-probability at every step")
FILES = ("spinup writes progress.csv, TensorBoard events and checkpoints; stable-baselines3 writes TensorBoard events "
         "with the same number of rows, and no checkpoint")
WHOLE = "spinup writes twenty checkpoints in a run"
BEGINNING = ("only the beginning of the preset's run of {:,} steps is timed. In a whole run spinup writes twenty "
             "checkpoints; in the timed part it writes one, at the end")
CHEETAH_BEGINS, PONG_BEGINS = BEGINNING.format(300_000), BEGINNING.format(10_000_000)
VALUE = ("value_coef weighs half the squared error in spinup and the whole squared error in stable-baselines3, and "
         "only spinup takes the larger of clipped and unclipped value error: the returns may differ, but the amount of "
         "work is the same")
REPLAY = (
    "spinup writes progress.csv and TensorBoard events two hundred times, and checkpoints that include the replay "
    "buffer; stable-baselines3 writes TensorBoard events every four episodes, and no checkpoint or replay buffer",
    "spinup checks the loss of each gradient step for NaN; stable-baselines3 reads it for its log",
    "neither evaluates its policy during training")
ONEDNN = ("spinup computes large matrix products with oneDNN, which torch includes but does not use for them by "
          "default; stable-baselines3 uses torch's linear layer, with MKL. This difference is part of the comparison")
ATARI = ("the preprocessing is the same (4 frames skipped, 84 x 84, 4 stacked, rewards clipped); spinup uses ale-py's "
         "vectorised environment, stable-baselines3 uses its own wrappers, one environment after the other",
         "each process may use only as many cores as threads, because the emulator would use all cores",
         "an environment step is one step of the agent: four frames")
BESIDE_SBX = (
    "spinup writes progress.csv and TensorBoard events two hundred times, and a checkpoint that includes the replay "
    "buffer; sbx writes TensorBoard events every four episodes, and no checkpoint or replay buffer",
    "sbx compiles its update with JAX before the counted steps; spinup is not compiled unless --compile is given",
    "each process may use only as many cores as threads, because JAX would use all cores",
    "spinup checks the loss of each gradient step for NaN; sbx does not", CHEETAH_BEGINS)
PEERS = ("sb3", "sbx")
TASKS = {
    ("ppo", "CartPole-v1"): Task(
        {**MLP, "total_steps": 300_000, "num_envs": 4, "rollout_steps": 128, "minibatches": 4, "epochs": 4,
         "lr": 2.5e-4, "entropy_coef": 0.01}, {1: 2.8}, (
         EVALUATED_ONCE, FILES, WHOLE, VALUE,
         "spinup steps its own vectorised CartPole; stable-baselines3 steps Gymnasium's, one environment after the "
         "other"),
        {1: 4.0}),
    ("ppo", "HalfCheetah-v5"): Task(
        {**MLP, "total_steps": 100_000, "num_envs": 1, "rollout_steps": 2048, "minibatches": 32, "epochs": 10,
         "lr": 3e-4, "entropy_coef": 0.0, "normalise_obs": True, "normalise_reward": True}, {1: 2.5}, (
         EVALUATED_ONCE, FILES, WHOLE, VALUE,
         "spinup updates its normalisers once per rollout; stable-baselines3 (VecNormalize) updates them at every "
         "step"), {1: 3.5}),
    ("ppo", "PongNoFrameskip-v4"): Task(
        {**ON_POLICY, "clip_ratio": 0.1, "clip_value": 0.1, "total_steps": 20_480, "num_envs": 8, "rollout_steps": 128,
         "minibatches": 4, "epochs": 4, "lr": 2.5e-4, "entropy_coef": 0.01, "checkpoint_steps": 500_000},
        {1: 1.6, 2: 1.6}, (EVALUATED_ONCE, FILES, PONG_BEGINS, VALUE, ONEDNN, *ATARI)),
    ("dqn", "CartPole-v1"): Task(
        {**DQN, "total_steps": 100_000, "learning_starts": 10_000, "batch_size": 128, "update_every": 10,
         "update_ratio": 0.1, "target_every": 50, "lr": 2.5e-4, "epsilon": 0.05, "explore": 0.5, "hidden": (120, 84)},
        {1: 2.0}, (*REPLAY, WHOLE, "spinup steps its own version of CartPole; stable-baselines3 steps Gymnasium's")),
    ("dqn", "PongNoFrameskip-v4"): Task(
        {**DQN, "total_steps": 9000, "learning_starts": 1000, "batch_size": 32, "update_every": 4,
         "update_ratio": 0.25, "target_every": 250, "lr": 1e-4, "epsilon": 0.01, "explore": 0.1,
         "checkpoint_steps": 500_000}, {1: 1.6, 2: 1.6}, (
         *REPLAY, PONG_BEGINS, ONEDNN, *ATARI, "spinup stores each frame once; stable-baselines3, by default, stores "
                                               "each observation of four frames twice")),
    ("td3", "HalfCheetah-v5"): Task(
        {**CHEETAH, "lr": 1e-3, "explore_noise": 0.1, "target_noise": 0.2, "noise_clip": 0.5, "policy_delay": 2},
        {1: 1.25, 2: 1.6}, (
         *REPLAY, CHEETAH_BEGINS, ONEDNN,
         "only stable-baselines3 computes the critic's gradient in the actor's step, where it is not used"),
        sbx={1: 1.0, 2: 1.15}),
    ("sac", "HalfCheetah-v5"): Task(
        {**CHEETAH, "lr": 3e-4, "alpha": 1.0, "learn_alpha": True, "target_entropy": -1.0},
        {1: 1.25, 2: 1.6}, (
         *REPLAY, CHEETAH_BEGINS, ONEDNN,
         "only stable-baselines3 computes the critics' gradients in the actor's step, where they are not used"),
        sbx={1: 1.0, 2: 1.15}),
}


def find_task(algo: str, env: str, against: str = "sb3") -> Task:
    """Return the task of an algorithm and an environment. UserError if there is none with this peer."""
    if against not in PEERS:
        raise UserError(f"--against must be one of {', '.join(PEERS)}, not {against!r}")
    there = [(a, e) for (a, e), task in TASKS.items() if against == "sb3" or task.sbx]
    if (algo, env) not in there:
        names = [e for a, e in there if a == algo]
        raise UserError(f"there is no speed benchmark of {algo} on {env} against {against}.{nearest(env, names)} "
                        f"Available: {', '.join(f'{a} --env {e}' for a, e in there)}")
    return TASKS[algo, env]


def with_steps(settings: dict[str, Any], total_steps: int | None) -> dict[str, Any]:
    """Return the settings with `total_steps`, rounded down to whole batches or updates. UserError if they are too
    few."""
    s, wanted = settings, total_steps or settings["total_steps"]
    if "learning_starts" in s:
        batch, least = s["update_every"], s["learning_starts"] * 11 // 10
        why = f"leaves too few steps after the first {s['learning_starts']}, in which nothing is learned"
    else:
        batch = s["num_envs"] * s["rollout_steps"]
        least, why = 2 * batch, f"is less than two batches of {batch} steps"
    if wanted < least:
        raise UserError(f"--total-steps {wanted} {why}; choose at least {least}")
    return {**s, "total_steps": wanted // batch * batch}


def counted_from(settings: dict[str, Any]) -> int:
    """Step at which timing starts: 0, or with a replay buffer that of the first row after `learning_starts`."""
    if "learning_starts" not in settings:
        return 0
    from spinup.runs.training import Training
    every = settings["update_every"]
    row = max(1, round(settings["total_steps"] // every / Training.epochs)) * every
    return (settings["learning_starts"] // row + 1) * row


def is_atari(env: str) -> bool:
    """Return whether an id names an Atari game."""
    return env.endswith("NoFrameskip-v4")
