"""Returns of a preset, seed by seed, trained and evaluated with the commands that users type."""
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from spinup.bench.against import REFERENCES, check_peer, zoo
from spinup.bench.process import (
    ONE_THREAD,
    check_out,
    child,
    finish,
    finished_run,
    in_turn,
    revisions,
    spinup,
    versions_of,
)
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
from spinup.runs.records import read_result, read_run
from spinup.runs.resuming import HOW, check_same
from spinup.view.statistics import difference_interval, in_words, interval


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
    env = full_id(env)
    check_comparison(algorithm, env, against, peer_seeds)
    asked = {"preset": None if preset == "auto" else preset, "total_steps": total_steps, "compile": compile or None}
    asked = {setting: value for setting, value in asked.items() if value is not None}
    chosen = [setting if value is True else f"{value}" for setting, value in asked.items()]
    name = safe("_".join(["bench", algorithm, env, *chosen]))
    folders = [log_dir / name / f"{name}_s{seed}" for seed in seeds]
    check_runs(algorithm, env, asked, dict(zip(seeds, folders, strict=True)))
    flags = [word for setting, value in asked.items() for word in in_flags(setting, value)]
    alone = [] if workers == 1 else ["--threads", "1"]
    runs = in_turn(lambda seed: _one(algorithm, env, seed, name, log_dir, [*flags, *alone]), seeds, workers)
    peers = in_turn(lambda seed: _peer(algorithm, env, seed, runs[0]["steps"], against, log_dir / name),
                    (peer_seeds or seeds) if against else [], workers)
    words = ["spinup", "bench", "returns", algorithm, "--env", env, "--seeds", *map(str, seeds), *flags,
             *(["--against", against] if against else []),
             *(["--peer-seeds", *map(str, peer_seeds)] if peer_seeds else [])]
    result = {"command": " ".join(words), "steps": runs[0]["steps"], "settings": read_run(folders[0])["config"],
              "versions": versions_of(folders), "git": revisions(folders), **summary("", runs)}
    if not asked.keys() - {"compile"}:
        print_reached(algorithm, env)
    result |= compared(result["E100"], peers, REFERENCES[against]) if peers else {"goal": {}, "met": True}
    return finish(result, out, runs=runs, **({"peers": peers} if peers else {}))


def check_comparison(algorithm: str, env: str, against: str | None, peer_seeds: list[int] | None) -> None:
    """UserError if the comparison with another library is impossible."""
    if against is not None and against not in REFERENCES:
        raise UserError(f"against is {' or '.join(map(repr, REFERENCES))}, not {against!r}")
    find(algorithm)
    if against:
        check_peer(env, algorithm)
    if against == "zoo":
        zoo(algorithm, env)
    if peer_seeds and not against:
        raise UserError("--peer-seeds are seeds of another library; add --against sb3 or --against zoo")


def check_runs(algorithm: str, env: str, asked: dict[str, Any], folders: dict[int, Path]) -> None:
    """UserError if a setting is wrong, or the folder of a seed holds another run. asked: the preset and settings that
    were given."""
    found, given = find(algorithm), {"env": env, **{name: value for name, value in asked.items() if name != "preset"}}
    check_names(given, settings_of(found.load().Config), f"{algorithm} has no setting")
    config, _ = configure(found, given, asked.get("preset", "auto"))
    for seed, folder in folders.items():
        if (folder / "config.json").exists():
            check_same(folder, algorithm, replace(config, seed=seed), HOW - {"compile"}, "choose another --log-dir")


def print_reached(algorithm: str, env: str) -> None:
    """Print the published returns of the preset, if there are any."""
    known = find(algorithm).presets.get(env, {}).get("reached")
    if known:
        found = ", ".join(f"{measure} {known[measure]:.1f}" for measure in ("R100", "E100") if measure in known)
        source = "; ".join(f"{words}{known[name]}" for name, words in (("seeds", "seeds: "), ("file", ""))
                           if name in known)
        print(f"published for this preset: {found}" + (f" ({source})" if source else ""))


def compared(ours: dict[str, Any], peers: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Print and return the returns of the peer, the difference of E100, and the goal: that our mean reaches the peer's.

    ours: the summary of our E100. peers: results of the peer's runs. name: of the peer.
    """
    peer = summary(f"{name}: ", peers)
    values, least = (ours["seeds"], peer["E100"]["seeds"]), peer["E100"]["mean"]
    difference, between = float(np.mean(values[0]) - np.mean(values[1])), difference_interval(*values)
    print(f"E100 minus that of {name}: {difference:.1f}",
          f"(95 % interval {between[0]:.1f} to {between[1]:.1f})" if between else "")
    met = ours["mean"] >= least
    print(f"goal: E100 {least:.1f}: {'met' if met else 'missed'}")
    return {"peer": peer, "difference": {"mean": difference, "interval": between}, "goal": {"E100": least}, "met": met}


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
    job = {"algo": algorithm, "env": env, "seed": seed, "against": against}
    if not path.exists():
        write_json(path.absolute(), child("spinup.bench.peers", "returns", {**job, "total_steps": steps},
                                          environment=ONE_THREAD))
    advice = f"delete {path}, and type the same command"
    found = read_json(path, advice)
    needed = {*job, "R100", "E100", "steps", "seconds", "settings", "version"}
    if not isinstance(found, dict) or not needed <= found.keys() or {key: found[key] for key in job} != job:
        raise UserError(f"{path} is not the result of this run of stable-baselines3; {advice}")
    about = zoo(algorithm, env) if against == "zoo" else {}
    if (found["settings"], found["version"]) != (about, version("stable-baselines3")):
        raise UserError(f"{path} was made with other settings or another version of stable-baselines3; {advice}")
    return with_an_episode(found)


def _one(algorithm: str, env: str, seed: int, name: str, log_dir: Path, flags: list[str]) -> dict[str, Any]:
    """Train and evaluate one seed."""
    folder = finished_run(algorithm, env, seed, name, log_dir, *flags)
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
