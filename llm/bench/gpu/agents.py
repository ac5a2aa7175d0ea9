"""Parts with agents in environments: steps per second on a GPU and on the CPU, and learning on Pong."""
import importlib
import math
import signal
from functools import partial
from importlib.util import find_spec
from typing import Any

from llm.bench.gpu.parts import goal
from spinup.bench.tasks import TASKS, counted_from
from spinup.machine import missing_for_compile
from spinup.registry import find
from spinup.runs.presets import configure

Found = tuple[list[dict[str, Any]], dict[str, Any]]       # lines of the result, and details for the raw file
CHEETAH, PONG, BANDITS = "HalfCheetah-v5", "PongNoFrameskip-v4", "Bandits-5x10-v0"
LEANRL = {"sac": 725, "td3": 936, "ppo": 6800}            # per second on an H100: updates, updates, steps
PUBLISHED = "LeanRL on an H100"
SECONDS = 480                                             # of learning on Pong
STEPS = {"ppo": 3_000_000, "dqn": 500_000}                # at most in these seconds; the schedules follow them
COPIES = 16_384
# Replace the sizes of a measurement if it is quick.
TINY = {"sac": {"total_steps": 80, "learning_starts": 20, "batch_size": 8, "hidden": (8, 8)},
        "ppo": {"total_steps": 64, "num_envs": 2, "rollout_steps": 8, "minibatches": 2, "epochs": 1},
        "dqn": {"total_steps": 64, "learning_starts": 16, "batch_size": 4, "replay_size": 64}}
TINY["td3"] = TINY["sac"]


def trained(algo: str, env: str, device: str, folder: str, settings: dict[str, Any],
            preset: str = "auto", **more: Any) -> tuple[Any, dict[str, Any]]:
    """Train with a preset, changed by `settings`. Return the result and the settings that were given.

    Without TensorBoard on this machine, the run writes no events.
    """
    given = {**settings, "tensorboard": find_spec("tensorboard") is not None}
    config, _ = configure(find(algo), {"env": env, "device": device, "seed": 1, "log_dir": folder, "quiet": True,
                                       **given, **more}, preset)
    return importlib.import_module(f"spinup.algos.{algo}").train(config), given


def pace(algo: str, env: str, device: str, folder: str, settings: dict[str, Any]) -> float:
    """Environment steps per second of training after the first rows, in which the run only fills its replay buffer or
    compiles."""
    progress = trained(algo, env, device, folder, settings, "none")[0].progress
    steps, clock = list(progress["steps"]), list(progress["wall_seconds"])
    first = steps.index(counted_from(settings)) if counted_from(settings) else 0
    return (steps[-1] - steps[first]) / (clock[-1] - clock[first])


def beside(algo: str, env: str, device: str, quick: bool, folder: str, settings: dict[str, Any], unit: str,
           least: float | None, source: str = "", compiled: bool = False, fewer: int = 0) -> Found:
    """Measure on the device and on the CPU. If `compiled`, also measure a compiled update on the device. `fewer`, if
    above 0, is the number of steps on the CPU, and of the eager run before a compiled one."""
    less = {"total_steps": fewer} if fewer and not quick else {}
    cases = {device: less if compiled else {},
             **({f"{device}, compiled": {"compile": True}} if compiled and can_compile(quick) else {}), "cpu": less}
    found: dict[str, float | str] = {}
    for name, more in cases.items():
        where = "cpu" if name == "cpu" else device
        try:
            found[name] = round(pace(algo, env, where, f"{folder}/{name}", {**settings, **more}), 1)
        except Exception as error:
            if "compile" not in more:
                raise
            found[name] = f"{type(error).__name__}: {error}"[:300]        # torch.compile may raise anything
            print(f"  {name}: {found[name]}", flush=True)
    numbers = {name: x for name, x in found.items() if isinstance(x, float)}
    best = max((x for name, x in numbers.items() if name != "cpu" or device == "cpu"), default=None)
    lines = [goal(f"{algo}, {unit} a second on {name}", numbers.get(name)) for name in found]
    lines.append(goal(f"{algo}, {unit} a second, the best on {device}", best, None if quick else least, source))
    if device != "cpu":
        lines.append(goal(f"{algo}, {device} divided by the CPU",
                          best / numbers["cpu"] if best and "cpu" in numbers else None, 1.0))
    return lines, {"settings": {"algorithm": algo, "env": env, **settings}, "per_second": found,
                   "fewer_steps": fewer}


def can_compile(quick: bool) -> bool:
    """Return whether to measure a compiled update: not in a quick check, which would wait for the compiler."""
    return not quick and not missing_for_compile()


def off_policy(algo: str, device: str, quick: bool, folder: str) -> Found:
    """Measure an algorithm with one update per step on HalfCheetah."""
    settings = {**TASKS[algo, CHEETAH].settings, **(TINY[algo] if quick else {})}
    return beside(algo, CHEETAH, device, quick, folder, settings, "updates", LEANRL[algo], PUBLISHED, compiled=True,
                  fewer=3000)


sac, td3 = partial(off_policy, "sac"), partial(off_policy, "td3")


def atari(device: str, quick: bool, folder: str) -> Found:
    """Measure PPO on Pong."""
    settings = {**TASKS["ppo", PONG].settings, "total_steps": 102_400, **(TINY["ppo"] if quick else {})}
    return beside("ppo", PONG, device, quick, folder, settings, "steps", LEANRL["ppo"], PUBLISHED, compiled=True,
                  fewer=20_480)


def bandits(device: str, quick: bool, folder: str) -> Found:
    """Measure RL² on bandits, the tasks on the device of the policy, beside the CPU."""
    copies, updates = (64, 3) if quick else (COPIES, 30)
    config, _ = configure(find("rl2"), {"env": BANDITS})
    names = ("episodes", "rollout_steps", "epochs", "minibatches", "lam", "lr", "hidden_size", "normalise_reward")
    settings = {**{name: getattr(config, name) for name in names}, "num_envs": copies,
                "total_steps": updates * copies * config.rollout_steps}
    return beside("rl2", BANDITS, device, quick, folder, settings, "steps", None,
                  fewer=5 * copies * config.rollout_steps)


def pong(algo: str, device: str, quick: bool, folder: str) -> Found:
    """Train on Pong until the time is over or the steps are done."""
    def look(row: dict[str, float]) -> None:
        if row["wall_seconds"] > SECONDS:
            signal.raise_signal(signal.SIGINT)            # the run ends after its update, and says so

    settings = {"total_steps": STEPS[algo], "checkpoint_steps": STEPS[algo]}
    if algo == "dqn":
        settings |= {"replay_size": STEPS[algo], "learning_starts": 10_000, "save_replay": False}
    settings |= TINY[algo] if quick else {}
    result, used = trained(algo, PONG, device, folder, settings, on_row=look)
    progress = result.progress
    steps, clock, curve = (list(progress[name]) for name in ("steps", "wall_seconds", "return_mean_100"))
    last = curve[-1] if curve and not math.isnan(curve[-1]) else None
    return [goal(f"{algo}, mean return of the last 100 games", last),
            goal(f"{algo}, steps", steps[-1]), goal(f"{algo}, seconds", clock[-1]),
            goal(f"{algo}, steps a second", steps[-1] / clock[-1])], {
            "settings": {"algorithm": algo, "env": PONG, **used}, "status": result.status, "returns": result.returns,
            "curve": {"steps": steps, "seconds": clock, "return": [None if math.isnan(x) else x for x in curve]}}


pong_ppo, pong_dqn = partial(pong, "ppo"), partial(pong, "dqn")
