"""Everything around a training: folder, seeds, rows, checkpoints, resume, Ctrl-C. An algorithm keeps only itself."""
import math
import os
import platform
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spinup.envs.make import env_name
from spinup.envs.spaces import observation_view, space_to_json
from spinup.envs.state import load_rng, save_rng
from spinup.envs.vector import VectorEnv
from spinup.errors import NonFiniteError, UserError
from spinup.runs.config import BaseConfig, check_names
from spinup.runs.display import Display, duration
from spinup.runs.doctor import find_compiler
from spinup.runs.files import load_checkpoint, read_json, save_checkpoint, write_json
from spinup.runs.log import Log, check_wandb, read_progress
from spinup.runs.policy import Policy, describe

EPOCHS = 200            # rows of progress.csv in a run
CHECKPOINTS = 20        # checkpoints in a run, unless checkpoint_steps says otherwise
WIDE = 128              # from this width of a hidden layer on, a second thread pays


@dataclass
class Result:
    """What a training returns.

    Attributes:
        policy: `policy.act(obs)` answers an observation.
        progress: the columns of `progress.csv`.
        directory: the run's folder.
        status: "finished" or "interrupted".
        returns: undiscounted returns of the last 100 training episodes.
    """

    policy: Policy
    progress: dict[str, list[float]]
    directory: Path
    status: str
    returns: list[float]

    def __repr__(self) -> str:
        mean = f"{np.mean(self.returns):.1f}" if self.returns else "none yet"
        return (f"Result({self.status}, return of the last {len(self.returns)} episodes {mean}, "
                f"{describe(self.directory)})")


class Run:
    """One training, as a context: entry makes the folder, exit restores all that was changed in the process.

    Args:
        algorithm: its name.
        config: its settings, already checked.
        env: the training environments.
        resume: the folder of a run of the same settings to go on with.
    UserError, before anything is created: no such device, no compiler, an unwritable folder, a named run that exists, a
    checkpoint of another algorithm.
    """

    def __init__(self, algorithm: str, config: BaseConfig, env: VectorEnv, resume: str | Path | None = None):
        self.algorithm, self.config, self.env, self.resumed = algorithm, config, env, resume is not None
        self.images = len(observation_view(env.observation_space)[0]) == 3
        self.device = find_device(config.device, self.images)
        check_wandb(config.wandb)
        if config.compile and find_compiler() is None:
            raise UserError("--compile needs a C++ compiler; `spinup doctor` says how to install one")
        self.parts: dict[str, Any] = {}
        self.rng = np.random.default_rng(config.seed)
        torch.manual_seed(config.seed)
        self.update = self.steps = self.rows = 0
        self.recent: deque[float] = deque(maxlen=100)                     # returns of the last episodes
        self.pending: list[tuple[float, int]] = []                        # episodes that ended since the last row
        self.logged: dict[str, float] = {}
        self.earlier_seconds = 0.0                                        # of training before this process
        self.status, self.told = "running", False
        self.state = None
        if resume is not None:
            self.directory = find_run(Path(resume))
            if (self.directory / "checkpoint.pt").exists():
                self.state = load_checkpoint(self.directory / "checkpoint.pt")
                if self.state["algorithm"] != algorithm:
                    where = describe(self.directory)
                    raise UserError(f"{where} holds a checkpoint of {self.state['algorithm']}, not of {algorithm}; "
                                    f"type: spinup resume {where}")
        else:
            self.directory = free_directory(algorithm, config)
            check_writable(Path(config.log_dir))

    def __enter__(self) -> "Run":
        description = None if self.resumed else describe_run(self.algorithm, self.config, self.env)
        self._make_directory()
        self.threads_before = torch.get_num_threads()
        wide = self.images or max(getattr(self.config, "hidden", (0,))) >= WIDE
        torch.set_num_threads(self.config.threads or (min(2, os.cpu_count() or 1) if wide else 1))
        self.interrupted = False
        self.handler_before = None
        if threading.current_thread() is threading.main_thread():
            self.handler_before = signal.signal(signal.SIGINT, self._interrupt)
        if not self.resumed:
            write_json(self.directory / "config.json", description)
        self.display = Display(self._title(), self.config.total_steps, self.config.quiet)
        self.log_file = Log(self.directory, tensorboard=self.config.tensorboard, wandb=self.config.wandb,
                            config=config_to_json(self.config), position=self.state["files"] if self.state else None)
        self.started = time.perf_counter()
        return self

    def _make_directory(self) -> None:
        while True:
            try:
                return self.directory.mkdir(parents=True, exist_ok=self.resumed or bool(self.config.exp_name))
            except OSError as error:
                if not isinstance(error, FileExistsError) or self.config.exp_name:
                    raise UserError(f"cannot create {self.directory} ({error.strerror.lower()}); choose another "
                                    "--log-dir or --exp-name") from None
                self.directory = free_directory(self.algorithm, self.config)      # another run took the number just now

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        self.display.close()
        self.log_file.close()
        self.env.close()
        torch.set_num_threads(self.threads_before)
        if self.handler_before is not None:
            signal.signal(signal.SIGINT, self.handler_before)
        if error is not None:
            self.status = "interrupted" if kind is KeyboardInterrupt else "failed"
            self._write_result()

    def keep(self, **parts: Any) -> None:
        """Name what a checkpoint must hold beside `env`; each part has `state_dict` and `load_state_dict`."""
        self.parts = parts

    def updates(self, total: int, steps_each: int) -> Iterator[int]:
        """The numbers of the updates still to do, of `total`; between them rows and checkpoints are written.

        Each update stands for `steps_each` environment steps. Ctrl-C ends the loop after the update under way, saved.
        """
        self.steps_each, self.updates_per_epoch = steps_each, max(1, round(total / EPOCHS))
        cadence = max(1, round((self.config.checkpoint_steps or total * steps_each / CHECKPOINTS) / steps_each))
        self.total_updates, self.display.total = total, total * steps_each
        if self.state is not None:
            try:
                self._load(self.state)
            except (RuntimeError, KeyError, ValueError) as error:
                where, reason = describe(self.directory), str(error).splitlines()[0]
                raise UserError(f"{where}/checkpoint.pt does not fit these settings ({reason}); restore the folder, or "
                                f"type: spinup resume {where}") from None
            self.display.say(f"going on at step {self.steps:,}" + (
                "" if self.state["env"] else "; its environments could not be saved, so it goes on with new episodes"))
        elif self.resumed:
            self.display.say("no checkpoint was written before the run stopped: it starts again from its config.json")
        self._can_save_env()
        first = self.update
        while self.update < total and not self.interrupted:
            began = time.perf_counter()
            yield self.update
            if self.config.compile and self.update == first:
                self.display.say(f"compiled; with that, the first update took {time.perf_counter() - began:.1f} s")
            self.steps += steps_each
            finished = self.env.take_finished()
            self.pending += finished
            self.recent.extend(r for r, _ in finished)
            row_due = self.row_due
            self.update += 1
            if row_due:
                self._write_row()
            if self.update % cadence == 0 or self.update == total or self.interrupted:
                self.save()
        self.status = "finished" if self.update == total else "interrupted"

    @property
    def row_due(self) -> bool:
        """Whether a row of `progress.csv` follows the update under way: the moment to `log`."""
        return (self.update + 1) % self.updates_per_epoch == 0 or self.update + 1 == self.total_updates

    def log(self, **values: float | Tensor) -> None:
        """Diagnostics for the row that follows this update."""
        self.logged = {k: float(v) for k, v in values.items()}

    def check_finite(self, **tensors: Tensor) -> None:
        """NonFiniteError for the first tensor, in the order given (that of the data's flow), that is not all finite."""
        for name, x in tensors.items():
            if not math.isfinite(x.sum()) and not torch.isfinite(x).all():
                what, after = "NaN" if torch.isnan(x).any() else "infinite", self.steps + self.steps_each
                raise NonFiniteError(
                    f"{name.replace('_', ' ')} became {what} between steps {self.steps:,} and {after:,}; the "
                    f"checkpoint before that, if there was one, is kept in {describe(self.directory)}. A smaller --lr "
                    "is the first thing to try")

    def save(self) -> None:
        """Write a checkpoint, then load it, so that a resumed run and an uninterrupted one are the same computation."""
        state = {"algorithm": self.algorithm, "update": self.update, "steps": self.steps, "rows": self.rows,
                 "recent": list(self.recent), "pending": [list(e) for e in self.pending], "seconds": self.seconds,
                 "files": self.log_file.position(), "rng": save_rng(self.rng), "torch_rng": torch.get_rng_state(),
                 "cuda_rng": torch.cuda.get_rng_state_all() if self.device.type == "cuda" else [],
                 "parts": {name: part.state_dict() for name, part in self.parts.items()},
                 "env": self.env.state_dict() if self._can_save_env() else None}
        save_checkpoint(self.directory / "checkpoint.pt", state)
        self._load(load_checkpoint(self.directory / "checkpoint.pt"))

    def _can_save_env(self) -> bool:
        """Whether the environments can be saved as they stand; the first time that they cannot, the user is told."""
        can = self.env.can_save
        if not can and not self.told:
            self.told = True
            self.display.say(f"{env_name(self.config.env)} cannot be saved ({self.env.why_not_saved}): a resumed run "
                             "begins new episodes, and its curve will differ from an uninterrupted one")
        return can

    def _load(self, state: dict[str, Any]) -> None:
        self.update, self.steps, self.rows = state["update"], state["steps"], state["rows"]
        self.recent = deque(state["recent"], maxlen=100)
        self.pending = [(r, n) for r, n in state["pending"]]
        if self.seconds < state["seconds"]:
            self.earlier_seconds = state["seconds"]
        load_rng(self.rng, state["rng"])
        torch.set_rng_state(state["torch_rng"])
        if state["cuda_rng"] and self.device.type == "cuda":
            torch.cuda.set_rng_state_all(state["cuda_rng"])
        for name, part_state in state["parts"].items():
            self.parts[name].load_state_dict(part_state)
        if state["env"] is not None:
            self.env.load_state_dict(state["env"])

    @property
    def seconds(self) -> float:
        """Wall time of the training, earlier processes included."""
        return self.earlier_seconds + time.perf_counter() - self.started

    def result(self, module: nn.Module) -> Result:
        """Write `result.json` and `curve.png`, print how to go on, and give the user the policy."""
        self._write_result()
        seconds = self.seconds                                            # of training, without the drawing
        if self.status == "finished":
            from spinup.runs.plots import draw_curve
            draw_curve(self.directory)
        if not self.config.quiet:
            self._farewell(seconds)
        policy = Policy(module, self.env.observation_space, self.env.action_space, self.config.seed)
        return Result(policy, read_progress(self.directory), self.directory, self.status, list(self.recent))

    def _write_row(self) -> None:
        returns, lengths = [r for r, _ in self.pending], [n for _, n in self.pending]
        self.rows += 1
        row = {"epoch": self.rows, "steps": self.steps, "episodes": len(returns),
               "return_mean": float(np.mean(returns)) if returns else math.nan,
               "return_min": min(returns, default=math.nan), "return_max": max(returns, default=math.nan),
               "length_mean": float(np.mean(lengths)) if lengths else math.nan,
               "return_mean_100": float(np.mean(self.recent)) if self.recent else math.nan,
               **self.logged, "wall_seconds": round(self.seconds, 3),
               "steps_per_second": round(self.steps / self.seconds, 1)}
        self.pending = []
        self.log_file.write(row)
        self.display.row(row)

    def _write_result(self) -> None:
        write_json(self.directory / "result.json", {
            "status": self.status, "steps": self.steps, "seconds": round(self.seconds, 3),
            "steps_per_second": round(self.steps / self.seconds, 1),
            "return_mean_100": float(np.mean(self.recent)) if self.recent else None, "returns": list(self.recent)})

    def _interrupt(self, *_: Any) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def _title(self) -> str:
        return (f"{self.algorithm} on {env_name(self.config.env)} · seed {self.config.seed} · {self.device} · "
                f"{describe(self.directory)}")

    def _farewell(self, seconds: float) -> None:
        folder, mean = describe(self.directory), f"{np.mean(self.recent):.1f}" if self.recent else "-"
        quoted = f'"{folder}"' if re.search(r"\s", folder) else folder
        self.display.close()
        if self.status == "finished":
            self.display.say(f"{self.steps:,} steps in {duration(seconds)}, {self.steps / seconds:,.0f} a second; "
                             f"the last {len(self.recent)} episodes returned {mean} on average; "
                             f"curve: {folder}/curve.png")
            self.display.say("\n".join(f"  spinup {word} {quoted}" for word in ("plot", "watch", "eval", "resume")))
        else:
            self.display.say(f"interrupted after {self.steps:,} steps and saved; to go on, type:\n"
                             f"  spinup resume {quoted}")


def find_device(name: str, images: bool) -> torch.device:
    """The device that `name` means here. UserError where it does not exist."""
    if name == "auto":
        return torch.device("cuda" if images and torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"--device must be auto, cpu, cuda, cuda:1 or mps, not {name!r}") from None
    there = {"cpu": True, "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
             "mps": torch.backends.mps.is_available()}.get(device.type, False)
    if not there:
        raise UserError(f"there is no device {name!r} here (torch sees {torch.cuda.device_count()} CUDA devices); type "
                        "--device cpu")
    return device


def free_directory(algorithm: str, config: BaseConfig) -> Path:
    """The folder of a new run. UserError where a run of the given name and seed exists."""
    root, leaf = Path(config.log_dir), config.exp_name
    if leaf:
        check_exp_name(leaf)
        directory = root / leaf / f"{leaf}_s{config.seed}"
        if (directory / "config.json").exists():
            raise UserError(f"{describe(directory)} exists; type `spinup resume {describe(directory)}` to go on with "
                            "it, or choose another --exp-name or --seed")
        return directory
    stem = re.sub(r"[^\w.-]+", "-", f"{algorithm}_{env_name(config.env)}")
    taken = [int(m[1]) for p in root.glob(f"{stem}_*") if (m := re.fullmatch(re.escape(stem) + r"_(\d+)", p.name))]
    leaf = f"{stem}_{max(taken, default=0) + 1}"
    return root / leaf / f"{leaf}_s{config.seed}"


def check_exp_name(name: str) -> None:
    """UserError unless a folder can be called that."""
    if Path(name).name != name or name in (".", ".."):
        raise UserError(f"--exp-name must be the name of a folder, not {name!r}; use --log-dir for a path")


def check_writable(folder: Path) -> None:
    """UserError unless a folder can be made at `folder`; makes none."""
    existing = next((p for p in [folder, *folder.absolute().parents] if p.exists()), Path("/"))
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"--log-dir {folder} cannot be written to; choose a folder of your own, such as --log-dir runs")


def config_to_json(config: BaseConfig) -> dict[str, Any]:
    """The settings as plain data; a callable environment by its name."""
    data = asdict(config)
    if not isinstance(config.env, str):
        data["env"] = {"callable": env_name(config.env)}
    return data


def describe_run(algorithm: str, config: BaseConfig, env: VectorEnv) -> dict[str, Any]:
    """What `config.json` holds: the settings, the spaces, and the versions that they ran under."""
    return {"algorithm": algorithm, "config": config_to_json(config),
            "observation_space": space_to_json(env.observation_space), "action_space": space_to_json(env.action_space),
            "versions": versions(), "git": git_revision()}


def versions() -> dict[str, str]:
    """Versions of what decides a run's numbers."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "torch": torch.__version__}
    for name in ("spinup-rl", "numpy", "gymnasium", "mujoco", "ale-py", "box2d"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def git_revision() -> str | None:
    """The revision of the source tree that this package runs from, with + where it has changes; None outside git."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5,
                              check=True).stdout.strip()
    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)           # else it is the user's repository around us
        return git("describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None


def config_from_json(config_type: type[BaseConfig], data: dict[str, Any]) -> BaseConfig:
    """The settings of an earlier run. An environment that was a Python function is only named, and cannot be made."""
    known = [f.name for f in fields(config_type)]
    check_names(data, known, "config.json holds a setting that this version does not have,")
    data = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    if not isinstance(data["env"], str):
        data["env"] = f"python function {data['env']['callable']}"
    return config_type(**data)


def read_run(directory: Path) -> dict[str, Any]:
    """The config.json of a run. UserError where it is missing, damaged, or of something else."""
    data = read_json(directory / "config.json")
    if not isinstance(data, dict) or not {"algorithm", "config", "observation_space", "action_space"} <= set(data):
        raise UserError(f"{describe(directory)}/config.json is not of a run of spinup; give the folder of one, such as "
                        "runs/NAME/NAME_s1")
    return data


def find_run(directory: Path) -> Path:
    """The run in `directory`: itself, or the only one below it. UserError where there is none or several."""
    if (directory / "config.json").exists():
        return directory
    runs = sorted(p.parent for p in directory.glob("**/config.json"))
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise UserError(f"{directory} holds no run; give the folder of one, such as runs/NAME/NAME_s1")
    raise UserError(f"{directory} holds {len(runs)} runs; choose one, such as {describe(runs[-1])}")
