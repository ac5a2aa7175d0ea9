"""Returns of a preset, seed by seed, trained and evaluated with the commands that users type."""
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.against import REFERENCES, STATES, check_peer, zoo
from spinup.bench.process import ONE_THREAD, check_out, child, finish, in_turn, revisions, spinup, versions_of
from spinup.bench.suite import EVALUATION, read_evaluation, write_evaluation
from spinup.envs.ids import full_id
from spinup.errors import UserError, check_names
from spinup.registry import find
from spinup.runs.config import settings_of
from spinup.runs.convert import flag
from spinup.runs.files import read_json, write_json
from spinup.runs.folders import safe
from spinup.runs.log import read_progress
from spinup.runs.presets import configure
from spinup.runs.records import finished, read_result, read_run
from spinup.runs.resuming import HOW, check_same
from spinup.view.statistics import difference_interval, in_words, interval

# (algorithm, environment) -> {measure: promised mean over seeds}
GOALS = {("ppo", "CartPole-v1"): {"E100": 475}, ("vpg", "CartPole-v1"): {"R100": 300},
         ("ppo", "Pendulum-v1"): {"E100": -200}, ("ppo", "Acrobot-v1"): {"E100": -90},
         ("ppo", "InvertedPendulum-v5"): {"E100": 950},
         ("ppo", "HalfCheetah-v5"): {"R100": 1443}, ("ppo", "Hopper-v5"): {"R100": 2383},
         ("dqn", "CartPole-v1"): {"E100": 475}, ("dqn", "Acrobot-v1"): {"E100": -85},
         ("dqn", "MountainCar-v0"): {"E100": -115}, ("ddpg", "Pendulum-v1"): {"E100": -165},
         ("td3", "Pendulum-v1"): {"E100": -165}, ("sac", "Pendulum-v1"): {"E100": -165},
         ("td3", "HalfCheetah-v5"): {"E100": 6100}, ("sac", "HalfCheetah-v5"): {"E100": 7330},
         ("trpo", "CartPole-v1"): {"E100": 500}, ("trpo", "Hopper-v5"): {"R100": 1161},
         ("rainbow", "CartPole-v1"): {"E100": 475}, ("rainbow", "LunarLander-v3"): {"E100": 200},
         ("sac_discrete", "CartPole-v1"): {"E100": 450}}


def returns(algorithm: str, env: str, *, seeds: list[int], workers: int = 1, compile: bool = False,
            preset: str = "auto", total_steps: int | None = None, against: str | None = None,
            peer_seeds: list[int] | None = None, log_dir: Path = Path("runs"), out: Path | None = None) -> int:
    """Train the preset of `env` with each seed and evaluate each policy. Print a table and JSON. Return 1 if a goal is
    missed.

    R100: mean training return of the last 100 episodes. E100: mean return of the final policy, deterministic, in 100
    new episodes. Finished runs are not repeated; unfinished ones resume.

    workers: runs at a time. With more than one, each run uses one thread: two threads of each would wait for the other
    run's.

    preset, total_steps: as for `spinup ALGORITHM`. against: also train stable-baselines3 for the same number of steps
    in the same environment, with its default settings ("sb3") or with those of RL Baselines3 Zoo ("zoo"). The goal is
    then to reach its mean E100. peer_seeds: its seeds; None: `seeds`.

    UserError before any run: a setting is wrong, a folder holds another run, or the other library cannot be compared.
    """
    check_out(out)
    if against is not None and against not in REFERENCES:
        raise UserError(f"against is {' or '.join(map(repr, REFERENCES))}, not {against!r}")
    env, found = full_id(env), find(algorithm)
    if against:
        check_peer(env, algorithm)
    if against == "zoo":
        zoo(algorithm, env)
    if peer_seeds and not against:
        raise UserError("--peer-seeds are seeds of another library; add --against sb3 or --against zoo")
    asked = {"preset": None if preset == "auto" else preset, "total_steps": total_steps, "compile": compile or None}
    asked = {setting: value for setting, value in asked.items() if value is not None}
    given = {"env": env, **{setting: value for setting, value in asked.items() if setting != "preset"}}
    check_names(given, settings_of(found.load().Config), f"{algorithm} has no setting")
    config, _ = configure(found, given, preset)
    flags = [word for setting, value in asked.items() for word in in_flags(setting, value)]
    chosen = [setting if value is True else f"{value}" for setting, value in asked.items()]
    name = safe("_".join(["bench", algorithm, env, *chosen]))
    for seed in seeds:
        folder = log_dir / name / f"{name}_s{seed}"
        if (folder / "config.json").exists():
            check_same(folder, algorithm, replace(config, seed=seed), HOW - {"compile"}, "choose another --log-dir")
    alone = [] if workers == 1 else ["--threads", "1"]
    runs = in_turn(lambda seed: _one(algorithm, env, seed, name, log_dir, [*flags, *alone]), seeds, workers)
    peers = in_turn(lambda seed: _peer(algorithm, env, seed, runs[0]["steps"], against, log_dir / name),
                    (peer_seeds or seeds) if against else [], workers)
    folders = [log_dir / name / f"{name}_s{seed}" for seed in seeds]
    about = read_run(folders[0])
    goal = GOALS.get((algorithm, env), {}) if not asked.keys() - {"compile"} else {}
    words = ["spinup", "bench", "returns", algorithm, "--env", env, "--seeds", *map(str, seeds), *flags,
             *(["--against", against] if against else []),
             *(["--peer-seeds", *map(str, peer_seeds)] if peer_seeds else [])]
    result: dict[str, Any] = {"command": " ".join(words), "steps": runs[0]["steps"], "settings": about["config"],
                              "versions": versions_of(folders), "git": revisions(folders), **summary("", runs)}
    if peers:
        result["peer"] = summary(f"{REFERENCES[against]}: ", peers)
        goal = {"E100": result["peer"]["E100"]["mean"]}
        values = result["E100"]["seeds"], result["peer"]["E100"]["seeds"]
        result["difference"] = {"mean": float(np.mean(values[0]) - np.mean(values[1])),
                                "interval": difference_interval(*values)}
        between = result["difference"]["interval"]
        print(f"E100 minus that of {REFERENCES[against]}: {result['difference']['mean']:.1f}",
              f"(95 % interval {between[0]:.1f} to {between[1]:.1f})" if between else "")
    result["goal"] = goal
    result["met"] = all(result[measure]["mean"] >= least for measure, least in goal.items())
    for measure, least in goal.items():
        print(f"goal: {measure} {least:.1f}: {'met' if result[measure]['mean'] >= least else 'missed'}")
    return finish(result, out, runs=runs, **({"peers": peers} if peers else {}))


def in_flags(setting: str, value: Any) -> list[str]:
    """Convert a setting to words of the command line."""
    return [flag(setting)] if value is True else [flag(setting), str(value)]


def summary(whose: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Print a line per seed and a line per measure; return the mean, interval and values of each measure."""
    for r in runs:
        print(f"{whose}seed {r['seed']}: R100 {r['R100']:.1f}, E100 {r['E100']:.1f}, "
              f"{r['steps']:,} steps in {r['seconds']:.0f} s")
    found = {}
    for measure in ("R100", "E100"):
        values = [r[measure] for r in runs]
        found[measure] = {"mean": float(np.mean(values)), "interval": interval(values), "seeds": values}
        print(f"{whose}{measure} {np.mean(values):.1f} (seeds: {len(values)}; {in_words(values, 1)})")
    return found


def _peer(algorithm: str, env: str, seed: int, steps: int, against: str, folder: Path) -> dict[str, Any]:
    """Returns of stable-baselines3 with one seed; kept in a file, so it trains only once. UserError if the file is
    damaged, or of another run."""
    path = folder / f"{against}_{steps}_s{seed}.json"
    if not path.exists():
        job = {"algo": algorithm, "env": env, "seed": seed, "total_steps": steps, "against": against}
        write_json(path.absolute(), child("spinup.bench.peers", "returns", job, environment=ONE_THREAD))
    advice = f"delete {path}, and type the same command"
    found = read_json(path, advice)
    if not isinstance(found, dict) or [found.get(key) for key in ("algo", "env", "seed", "against")] != [
            algorithm, env, seed, against] or not {"R100", "E100", "steps", "seconds"} <= set(found):
        raise UserError(f"{path} is not the result of this run of stable-baselines3; {advice}")
    about = zoo(algorithm, env) if against == "zoo" else {}
    installed = version("stable-baselines3")
    if found.get("settings", about) != about or found.get("version", installed) != installed:
        raise UserError(f"{path} was made with other settings or another version of stable-baselines3; {advice}")
    if found.get("states") != STATES:
        raise UserError(f"{path} comes from an older version of spinup, which used other initial states; {advice}")
    return with_an_episode(found)


def _one(algorithm: str, env: str, seed: int, name: str, log_dir: Path, flags: list[str]) -> dict[str, Any]:
    """Train and evaluate one seed."""
    folder = log_dir / name / f"{name}_s{seed}"
    if not (folder / "config.json").exists():
        spinup(algorithm, "--env", env, "--seed", str(seed), "--exp-name", name, f"--log-dir={log_dir}", "--quiet",
               *flags)
    elif not finished(folder):
        spinup("resume", str(folder.absolute()))
    done, progress = read_result(folder), read_progress(folder)
    if read_evaluation(folder) is None:
        write_evaluation(folder, spinup("eval", str(folder.absolute()), "--json"))
    evaluation = read_evaluation(folder)
    if not {"mean", "returns"} <= evaluation.keys():
        raise UserError(f"{folder / EVALUATION} is not the evaluation of a run; delete it, and type the same command")
    curve = {name: [None if np.isnan(x) else x for x in progress[name]]                    # JSON has no NaN
             for name in ("steps", "return_mean_100", "test_return") if name in progress}
    return with_an_episode({
        "seed": seed, "R100": done.get("return_mean_100"), "E100": evaluation["mean"], "steps": done["steps"],
        "seconds": done["seconds"], "training_returns": done.get("returns"),
        "evaluation_returns": evaluation["returns"], "curve": curve})


def with_an_episode(run: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a run. UserError if no training episode ended, so that there is no R100."""
    if run["R100"] is None:
        raise UserError(f"no episode ended in {run['steps']:,} steps of seed {run['seed']}; choose a larger "
                        "--total-steps")
    return run
