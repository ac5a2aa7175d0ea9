"""Recording of offline datasets: episodes of trained or random policies, or a run's saved replay buffer."""
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, MultiBinary, MultiDiscrete, flatdim

from spinup import registry
from spinup.data.card import card
from spinup.data.dataset import Dataset, fault, join
from spinup.data.dataset import load as load_dataset
from spinup.envs import make
from spinup.envs.ids import find_id, full_id
from spinup.envs.spaces import action_distribution, space_to_json
from spinup.envs.vector import VectorEnv
from spinup.envs.zoo import num_agents
from spinup.errors import UserError
from spinup.machine import free_memory
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.display import tell_progress
from spinup.runs.episodes import check_ends, check_fits
from spinup.runs.files import write_whole
from spinup.runs.folders import check_writable, describe, find_run, lock
from spinup.runs.offline import shape_of_actions
from spinup.runs.policy import Policy
from spinup.runs.public import load
from spinup.runs.reading import reading
from spinup.runs.records import config_from_json, read_run, versions
from spinup.runs.replay import ReplayFiles, make_replay

RECORDED = 2_000_000    # added to the seed: training and evaluation use other episodes
REPLAY, RANDOM = "replay:", "random:"
ROW = 1000              # bytes of Python objects for each step of an episode


def record(sources: list[str], out: Path, *, steps: int, noise: list[float], stochastic: bool, seed: int) -> str:
    """Record a dataset from all sources, one after the other, and write it to `out`. Return its card.

    Args:
        sources: folders of runs, or shelf/NAME; `random:ID` for uniform random actions in an environment; `replay:DIR`
            for the replay buffer that an interrupted run has saved.
        steps: transitions of each part. The last episode of a part is completed. A replay buffer gives all its
            complete episodes.
        noise: shares of random actions. The policy of each run is recorded once with each share.
        stochastic: sample the policy's actions as in training; otherwise take the most likely ones.
        seed: random seed of the episodes and the actions.
    UserError if a source does not exist or has another environment, or if the file exists. Nothing is written then.
    """
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}; create it, or choose another file")
    if os.path.lexists(out) or out.suffix != ".npz":                      # a link to a missing file exists, too
        why, stem = ("exists", f"{out.stem}_2") if os.path.lexists(out) else ("is not a name such as a.npz", "dataset")
        raise UserError(f"--out {out} {why}; choose another file, such as {stem}.npz")
    if {"", RANDOM, REPLAY} & {*sources}:
        raise UserError("a source has no name; give the folder of a run, shelf/NAME, random:ID or replay:DIR")
    check_writable(out.parent, "--out", "dataset.npz")
    env, settings = environment_of(sources)
    envs = make(env, 1, RECORDED + seed, **settings)
    rng = np.random.default_rng([seed, 2])
    try:
        action_distribution(envs.action_space, "record")                  # raises an error if unsupported
        envs.reset()
        rollouts = sum(1 if source.startswith(RANDOM) else len(noise) for source in sources
                       if not source.startswith(REPLAY))
        check_memory(rollouts * steps, envs)
        tell, done = tell_progress(f"recording {rollouts * steps:,} steps", rollouts * steps, rollouts > 0), count(1)
        parts, said = [], []
        for source in sources:
            for data, words in recorded(source, env, envs, steps, noise, stochastic, rng,
                                        lambda: tell(next(done))):
                parts.append(data)
                said.append({"source": source, "actions": words, "steps": len(data),
                             "episodes": len(data.returns()), "mean_return": float(data.returns().mean())})
    finally:
        envs.close()
    whole = join(parts, {
        "env": env, "env_settings": settings, "observation_space": space_to_json(envs.observation_space),
        "action_space": space_to_json(envs.action_space), "parts": said, "seed": seed, "versions": versions()})
    if fault(whole.arrays()):
        raise UserError(f"some observations, actions or rewards of {' '.join(sources)} are not finite numbers, or too "
                        "large for float32; correct the environment, and record again")
    if out.exists():
        raise UserError(f"another process has just written --out {out}; choose another file, and record again")
    write_whole(out, whole.write)
    return card(load_dataset(out))


def check_memory(steps: int, envs: VectorEnv) -> None:
    """UserError if the memory is too small for that many steps in `envs`."""
    numbers = 2 * envs.obs[0].nbytes + 4 * max(1, flatdim(envs.action_space))              # of one step
    need = steps * (3 * numbers + ROW)                                    # as rows, as a part and in the dataset
    if need > (free := free_memory()):
        raise UserError(f"{steps:,} steps need {need / 1e9:,.1f} GB of memory, and {free / 1e9:.1f} GB are free; "
                        "choose fewer --steps")


def environment_of(sources: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the environment that all sources share: its id, and its settings. UserError if the sources have
    different environments, or one that cannot be recorded."""
    found = []
    for source in sources:
        if source.startswith(RANDOM):
            found.append((source.removeprefix(RANDOM), None))             # in any settings
            continue
        directory = find_run(Path(source.removeprefix(REPLAY)))
        data = read_run(directory)
        algorithm = registry.find(data["algorithm"], run=directory)
        if algorithm.family:
            raise UserError(f"{source} is a run of a language model; datasets are recorded from runs in environments")
        env = data["config"].get("env")
        if not isinstance(env, str):
            raise UserError(f"the environment of {source} is a Python function, which a command cannot make; register "
                            "it with Gymnasium, and train with its id")
        found.append((env, config_from_json(algorithm, data["config"]).env_settings))
    env, settings = found[0]
    for source, (other, theirs) in zip(sources, found, strict=True):
        if find_id(other) != find_id(env) or None not in (settings, theirs) and theirs != settings:
            theirs, ours = (f" with {given}" if given else "" for given in (theirs, settings))
            raise UserError(f"{source} has the environment {other}{theirs}, but {sources[0]} has {env}{ours}; record "
                            "them separately")
        settings = theirs if settings is None else settings
    env, settings = full_id(env), settings or {}
    if num_agents(env) > 1 or "episodes" in settings:
        raise UserError(f"{env} cannot be recorded: a dataset holds episodes of one agent without a memory; choose a "
                        "run of another algorithm or environment")
    return env, settings


def recorded(source: str, env: str, envs: VectorEnv, steps: int, noise: list[float], stochastic: bool,
             rng: np.random.Generator, stepped: Callable[[], None]) -> list[tuple[Dataset, str]]:
    """Return the parts of a dataset that one source gives, each with the origin of its actions in words. Call
    `stepped` after every step."""
    if source.startswith(RANDOM):
        return [(rollout(None, envs, steps, 1.0, stochastic, rng, stepped), "uniform random actions")]
    given = Path(source.removeprefix(REPLAY))
    directory, policy = find_run(given), load(given)
    check_fits(policy, envs.observation_space, envs.action_space, env)
    name = read_run(directory)["algorithm"]
    if source.startswith(REPLAY):
        return [(from_replay(directory, policy, envs), f"replay buffer of {name}")]
    policy.rng, kind = rng, "sampled" if stochastic else "most likely"
    words = {0: f"{kind} actions of {name}", 1: "uniform random actions"}
    return [(rollout(policy, envs, steps, share, stochastic, rng, stepped),
             words.get(share, f"{kind} actions of {name}, {share:.0%} replaced by random ones")) for share in noise]


def rollout(policy: Policy | None, envs: VectorEnv, steps: int, share: float, stochastic: bool,
            rng: np.random.Generator, stepped: Callable[[], None]) -> Dataset:
    """Play whole episodes in one environment copy until there are at least `steps` transitions. `envs` is at the start
    of an episode.

    Uniform random actions replace those of the policy in a `share` of the steps, chosen independently.
    """
    rows: dict[str, list[Any]] = {name: [] for name in
                                  ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")}
    obs, over, shape = envs.obs, True, shape_of_actions(envs.action_space)
    while len(rows["rewards"]) < steps or not over:
        random = policy is None or rng.random() < share
        action = uniform(envs, rng) if random else policy.act_batch(obs, not stochastic)
        step = envs.step(action)
        following = step.obs if step.final_obs is None else step.final_obs
        over = bool(step.terminated[0] or step.truncated[0])
        for name, value in (("obs", obs), ("actions", action.reshape(1, *shape)), ("rewards", step.reward),
                            ("next_obs", following), ("terminated", step.terminated), ("truncated", step.truncated)):
            rows[name].append(np.array(value[0]))                         # a copy: environments reuse their arrays
        stepped()
        obs = step.obs
        check_ends(envs.episode_length.max(), "this environment")
    return packed({name: np.stack(values) for name, values in rows.items()})


def uniform(envs: VectorEnv, rng: np.random.Generator) -> np.ndarray:
    """Sample a uniform random action for the only copy, `[1, ...]`. UserError for a Box without finite bounds."""
    space = envs.action_space
    if isinstance(space, Box):
        low, high = space.low.ravel(), space.high.ravel()
        if not np.isfinite(high - low).all():
            raise UserError(f"random actions need finite bounds, not {space}; leave out --noise and random:")
        return rng.uniform(low, high).astype(np.float32)[None]
    if isinstance(space, MultiBinary):
        return rng.integers(2, size=(1, flatdim(space)))
    return np.asarray(rng.integers(space.nvec if isinstance(space, MultiDiscrete) else space.n))[None]


def from_replay(directory: Path, policy: Policy, envs: VectorEnv) -> Dataset:
    """Return the complete episodes in the saved replay buffer of a run, ordered by environment copy. UserError if the
    run has none, or is still training."""
    data = read_run(directory)
    cfg = config_from_json(registry.find(data["algorithm"], run=directory), data["config"])
    where = describe(directory)
    none = UserError(f"{where} has no saved replay buffer: only an interrupted run of an algorithm with a replay "
                     f"buffer keeps one; type {where} without {REPLAY} to record its policy")
    if not (directory / "replay").is_dir():
        raise none
    is_box = isinstance(envs.action_space, Box)
    copies = make(cfg.env, cfg.num_envs, 0, **cfg.env_settings)
    replay = make_replay(cfg, copies, policy.module.dist.low.shape if is_box else (),
                         np.float32 if is_box else np.int64)
    copies.close()
    taken = lock(directory)                                               # before its checkpoint is read
    try:
        state = load_checkpoint(directory / "checkpoint.pt")
        if "replay" not in state["parts"]:
            raise none
        with reading(f"{describe(directory)}/checkpoint.pt", "restore the folder or train again"):
            replay.load_state_dict(state["parts"]["replay"])
        if not ReplayFiles(directory).read(replay, state["subject"].get("replay")):
            raise none
    finally:
        taken.release()
    n, rows = cfg.num_envs, np.arange(replay.oldest, replay.count)
    rows = np.concatenate([rows[rows % n == copy] for copy in range(n)])
    need = 4 * len(rows) * int(np.prod(replay.obs_shape)) * replay.frames.itemsize      # two observations, and copies
    if need > (free := free_memory()):
        raise UserError(f"the {len(rows):,} steps in the replay buffer of {where} need {need / 1e9:.1f} GB of memory, "
                        f"and {free / 1e9:.1f} GB are free; type {where} without {REPLAY} to record its policy")
    slots, batch, last = rows % replay.size, replay.sample(rows), rows + n >= replay.count
    following = replay.rows["obs_at"][(rows + n) % replay.size, -1]       # place of the observation after each step
    if replay.now is not None:                                            # else the environments could not be saved
        following = np.where(last, replay.now[rows % n, -1], following)
    goes_on = replay.rows["next_at"][slots, -1] == following
    terminated = batch.terminated.numpy() > 0
    actions = policy.module.dist.rescale(batch.act.numpy()) if is_box else batch.act.numpy()
    arrays = {"obs": batch.obs.numpy(), "actions": actions, "rewards": replay.rows["rew"][slots],
              "next_obs": batch.next_obs.numpy(), "terminated": terminated, "truncated": ~goes_on & ~terminated}
    broken = np.isin(rows // n + 1, np.array(replay.breaks) // n)         # where a resumed run had to begin anew
    arrays["truncated"] |= (cut := (last & goes_on | broken) & ~terminated)               # episodes that are not over
    if not (keep := whole_episodes(arrays, rows - n < replay.oldest, cut, replay.oldest > 0)).any():
        raise UserError(f"the replay buffer of {where} has no complete episode; resume the run to complete one")
    return packed({name: x[keep] for name, x in arrays.items()})


def whole_episodes(arrays: dict[str, np.ndarray], first: np.ndarray, cut: np.ndarray, dropped: bool) -> np.ndarray:
    """Return which rows of arrays `[N, ...]` belong to complete episodes, bool `[N]`.

    first, cut: bool `[N]`; the first row of an environment copy, and the last row of an unfinished episode.
    dropped: whether rows before the first ones are lost, so that their episodes lack a beginning.
    """
    keep, start = np.ones(len(first), bool), 0
    for end in np.flatnonzero(arrays["terminated"] | arrays["truncated"]) + 1:
        keep[start:end] = not cut[end - 1] and not (dropped and first[start])
        start = end
    return keep


def packed(arrays: dict[str, np.ndarray]) -> Dataset:
    """Make a dataset from arrays `[N, ...]`, with the types of the format."""
    actions = arrays["actions"]
    arrays["actions"] = actions.astype(np.int64 if actions.dtype.kind in "iub" else np.float32)
    return Dataset(**{**arrays, "rewards": arrays["rewards"].astype(np.float32)})
