"""Checks and benchmarks on a GPU, in parts of at most ten minutes each: `.ci/gpu`, or `.ci/gpu PART...`.

Each part runs in a process of its own and writes a raw file with its settings, versions, device and commit. A part
whose raw file is of the same source code and device is skipped; `--again` repeats it. A part that needs a package which
is missing is skipped too, and names the package. `--device cpu --quick` runs every part in seconds with tiny sizes. It
checks the script and measures nothing.
"""
import hashlib
import json
import os
import pkgutil
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from spinup.errors import UserError, nearest
from spinup.machine import find_device, git_revision
from spinup.parser import Parser, path_of
from spinup.runs.display import number

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "benchmarks" / "gpu"
LIMIT = 600             # seconds of a part
SMALL = ("gymnasium", "rich", "filelock", "threadpoolctl", "psutil")      # every training run imports these
VERSIONS = ("numpy", *SMALL, "mujoco", "ale-py", "safetensors", "pytest")
PROGRAM = "import sys; from llm.bench.gpu.parts import child; child(*sys.argv[1:])"


@dataclass(frozen=True)
class Part:
    """One part. place: its function, as "module:function"; the function takes (device, quick, folder for runs)."""

    about: str
    place: str
    needs: tuple[str, ...] = SMALL


AGENTS, MODELS = "llm.bench.gpu.agents", "llm.bench.gpu.models"
PARTS = {
    "tests": Part("the tests in tests/gpu", f"{MODELS}:tests", (*SMALL, "pytest")),
    "roofline": Part("sampling, training and a GRPO update at the shape of Qwen2.5-0.5B, as shares of the limits",
                     f"{MODELS}:limits", (*SMALL, "safetensors")),
    "grpo": Part("seconds of a GRPO update at the shape of SmolLM2-135M", f"{MODELS}:grpo_update",
                 (*SMALL, "safetensors")),
    "reverse": Part("accuracy of GRPO on the task reverse", f"{MODELS}:learning"),
    "rl2": Part("RL2 on bandits in 16,384 copies", f"{AGENTS}:bandits"),
    "sac": Part("updates of SAC on HalfCheetah", f"{AGENTS}:sac", (*SMALL, "mujoco", "imageio")),
    "td3": Part("updates of TD3 on HalfCheetah", f"{AGENTS}:td3", (*SMALL, "mujoco", "imageio")),
    "atari": Part("steps of PPO on Pong", f"{AGENTS}:atari", (*SMALL, "ale_py")),
    "pong_ppo": Part("eight minutes of PPO on Pong", f"{AGENTS}:pong_ppo", (*SMALL, "ale_py")),
    "pong_dqn": Part("eight minutes of DQN on Pong", f"{AGENTS}:pong_dqn", (*SMALL, "ale_py"))}


def goal(what: str, value: float | None, least: float | None = None, source: str = "",
         most: float | None = None) -> dict[str, Any]:
    """Return one line of a result. `least` or `most` is the goal, None without one; `source` says where it comes
    from."""
    met = (least is None or (value is not None and value >= least)) and (
        most is None or (value is not None and value <= most))
    return {"what": what, "value": value, "goal": least if most is None else most, "source": source, "met": met}


def in_words(line: dict[str, Any]) -> str:
    """Return such a line as text."""
    value = "not measured" if line["value"] is None else number(line["value"])
    if line["goal"] is None:
        return f"  {line['what']}: {value}"
    source = f" ({line['source']})" if line["source"] else ""
    return f"  {line['what']}: {value}; goal {number(line['goal'])}{source} {'met' if line['met'] else 'missed'}"


def main(argv: list[str]) -> int:
    """Run parts one after the other. Return 1 if one fails or misses a goal. UserError for wrong arguments."""
    parser = Parser(".ci/gpu", "Run the checks and benchmarks that need a GPU, in parts of at most ten minutes. Raw "
                               "files go to $OUT if it is set, else to docs/benchmarks/gpu.")
    parser.add_argument("parts", nargs="*", metavar="PART", default=[], help="; ".join(
        f"{name}: {part.about}" for name, part in PARTS.items()) + ". [all]")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu. [cuda]")
    parser.add_argument("--quick", action="store_true", default=False,
                        help="tiny sizes, to check the script; the numbers mean nothing")
    parser.add_argument("--again", action="store_true", default=False, help="repeat parts that have a raw file")
    parser.add_argument("--out", type=path_of, default=None, metavar="DIR",
                        help="the folder of the raw files; with --quick runs/gpu unless it is given")
    given = parser.parse(argv)
    for name in given.parts:
        if name not in PARTS:
            raise UserError(f"there is no part {name!r}.{nearest(name, PARTS)} The parts are {', '.join(PARTS)}")
    find_device(given.device, True)
    there = Path(os.environ["OUT"]) if os.environ.get("OUT") else ROOT / "runs" / "gpu" if given.quick else FOLDER
    folder = given.out or there
    folder.mkdir(parents=True, exist_ok=True)
    codes = [run(name, given.device, given.quick, folder, given.again) for name in given.parts or PARTS]
    return max(codes)


def run(name: str, device: str, quick: bool, folder: Path, again: bool = False) -> int:
    """Run a part in its own process and print its result, unless it can be skipped. Return 1 if it fails or misses a
    goal."""
    path, part = folder / f"{name}.json", PARTS[name]
    key = {"source": source(), "device": device_name(device), "quick": quick}
    if path.exists() and not again and (kept := json.loads(path.read_text(encoding="utf-8"))).items() >= key.items():
        print(f"{name}: skipped, because {path} is of this code; --again repeats it", flush=True)
        return 0 if kept["met"] else 1
    if missing := [module for module in part.needs if find_spec(module) is None]:
        print(f"{name}: skipped, because {', '.join(missing)} is missing", flush=True)
        return 0
    print(f"{name}: {part.about}, on {key['device']}{', quick' if quick else ''}", flush=True)
    try:
        done = subprocess.run([sys.executable, "-c", PROGRAM, name, device, str(int(quick)), str(path)],
                              timeout=LIMIT)
        reason = f"it ended with {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired:
        reason = f"it took more than {LIMIT} s"
    if reason:
        print(f"{name}: failed, because {reason}", flush=True)
        return 1
    found = json.loads(path.read_text(encoding="utf-8"))
    print("\n".join(map(in_words, found["lines"])), flush=True)
    return 0 if found["met"] else 1


def child(name: str, device: str, quick: str, path: str) -> None:
    """Measure a part in this process and write its raw file."""
    from spinup.runs.files import write_json
    write_json(Path(path).absolute(), measure(name, device, quick == "1"))


def measure(name: str, device: str, quick: bool) -> dict[str, Any]:
    """Measure a part in this process, and return the contents of its raw file."""
    part = PARTS[name]
    with tempfile.TemporaryDirectory(prefix="spinup-gpu-") as folder:
        lines, details = pkgutil.resolve_name(part.place)(device, quick, folder)
    return {"part": name, "about": part.about, "command": f".ci/gpu {name}", "quick": quick,
            "device": device_name(device), "kind": torch.device(device).type, "commit": git_revision() or "source tree",
            "source": source(), "versions": versions(), "lines": lines, "met": all(line["met"] for line in lines),
            **details}


def device_name(device: str) -> str:
    """Name of a GPU, or of the CPU with its number of cores."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({os.cpu_count()} cores)"


def source() -> str:
    """Checksum of the source code, because a copy of the source tree may have no git."""
    found = hashlib.sha256()
    for package in ("spinup", "llm"):
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:12]


def versions() -> dict[str, str]:
    """Versions of Python, torch, CUDA, and the packages that are installed."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "torch": torch.__version__,
             "cuda": torch.version.cuda or "none"}
    for name in VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
