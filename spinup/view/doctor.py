"""Checks of this machine, which take a few seconds."""
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from spinup.errors import UserError
from spinup.machine import find_compiler, missing_for_compile

if TYPE_CHECKING:
    import torch

Line = tuple[str, str, str]                             # subject, state, details
# missing: an optional package is not installed; problem: training will not work.
COLOURS = {"ok": "green", "missing": "yellow", "problem": "bold red"}
CORE = ("numpy", "torch", "gymnasium", "mujoco", "pettingzoo", "matplotlib", "tensorboard", "rich", "scipy", "psutil",
        "filelock", "threadpoolctl")
# The extras of pyproject.toml, each with a module that its packages install.
EXTRAS = {"atari": ("ale_py", "cv2"), "box2d": ("Box2D",), "grid": ("minigrid",),
          "multi": ("mpe2", "multi_agent_ale_py", "chess", "rlcard", "supersuit"),
          "tasks": ("math_verify", "jsonschema", "vaderSentiment"), "rg": ("reasoning_gym",),
          "hf": ("transformers", "safetensors", "tokenizers", "gguf"),
          "tutorials": ("jupyterlab", "jupytext", "nbclient"),
          "docs": ("sphinx", "myst_nb", "furo", "sphinx_copybutton", "latex2mathml"),
          "envpool": ("envpool",), "tune": ("optuna",), "ray": ("ray",),
          "bench": ("stable_baselines3", "trl"), "sbx": ("sbx",), "test": ("pytest", "xdist", "ruff")}
# A study needs SQLite, which some builds of Python lack.
STUDY = "import sqlite3, optuna"
PROBE = """
import gymnasium, mujoco, os
mujoco.set_mju_user_warning(lambda message: None)
def play(**how):
    env = gymnasium.make("HalfCheetah-v5", **how)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    return env
play()
print("stepped", flush=True)
assert play(render_mode="rgb_array").render().max() > 0, "the picture is black"
print("drawn", flush=True)
os._exit(0)
"""


def doctor() -> int:
    """Print one line per check: ok, missing (optional) or problem. Return the exit code, 1 if there is a problem."""
    console = Console()
    probes = {way: start(way) for way in graphics()[:2]}                  # slow; they run during the other checks
    lines = [*machine(), core := packages()]
    if core[1] == "ok":
        lines += [source(), *devices(), *mujoco(probes), compiler(), folder(), *extras()]
    for probe in probes.values():
        probe.kill()
    width = max(len(what) for what, _, _ in lines)
    for what, state, text in lines:
        line = Text.assemble(f"{what:<{width}}  ", (f"{state:<7}", COLOURS[state]), f"  {text}")
        console.print(line, soft_wrap=True)
    problems = [what for what, state, _ in lines if state == "problem"]
    print(f"problems: {', '.join(problems)}" if problems else "everything that training needs is available")
    return 1 if problems else 0


def machine() -> list[Line]:
    """Rows about Python, cores, memory and accelerator."""
    try:
        from spinup.machine import cores, free_memory
        room = [("CPU cores", "ok", f"{cores()} for this process"),
                ("memory", "ok", f"{free_memory() / 2**30:.1f} GiB free")]
    except ImportError:                                                   # psutil is missing; `packages` reports it
        room = []
    return [("python", "ok", f"{platform.python_version()} at {sys.executable}"),
            ("platform", "ok", platform.platform()), *room]


def packages() -> Line:
    """Check the required packages. The heaviest ones are imported, because an installed package may be broken."""
    absent = [name for name in CORE if find_spec(name) is None]
    if absent:
        return "packages", "problem", f"{', '.join(absent)} not installed; type: pip install spinup-rl"
    try:
        import spinup.runs.run  # noqa: F401
    except (ImportError, OSError) as error:
        reason = str(error).splitlines()[0]
        return "packages", "problem", (f"cannot be imported ({reason}); reinstall the named package, for example: "
                                       "pip install --force-reinstall torch; see docs/start/install.md")
    return "packages", "ok", ", ".join(f"{name} {installed(name)}" for name in CORE)


def installed(name: str) -> str:
    """Version of a distribution; "" if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def source() -> Line:
    """Row about the location of this library."""
    from spinup import __version__
    from spinup.machine import git_revision
    revision = git_revision()
    git = f"git revision {revision}" if revision else "not in a git checkout"
    return "spinup", "ok", f"{__version__} at {Path(__file__).parents[1]}, {git}"


def accelerators() -> "dict[str, list[torch.device]]":
    """Devices other than the CPU, by kind."""
    import torch
    cuda = [torch.device("cuda", i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return {"CUDA": cuda, "MPS": [torch.device("mps")] if torch.backends.mps.is_available() else []}


def train_shortly(device: "torch.device") -> str:
    """Multiply two matrices on a device, then train on it for a few updates. Return the error, or ""."""
    import torch

    from spinup.runs.public import trainer
    try:
        ones = torch.ones(8, 8, device=device)
        if (ones @ ones).sum().item() != 8 * 8 * 8:
            return "it computes a wrong matrix product"
        with tempfile.TemporaryDirectory() as folder:
            trainer("ppo")("CartPole-v1", preset="none", device=str(device), total_steps=256, num_envs=2,
                           rollout_steps=64, normalise_obs=True, normalise_reward=True, log_dir=folder,
                           tensorboard=False, quiet=True)
    except Exception as error:                                            # a driver may raise anything
        return f"{type(error).__name__}: {(str(error).splitlines() or ['no reason given'])[0]}"
    return ""


def devices() -> list[Line]:
    """Rows about torch, its threads, and each accelerator; a short training run tests each accelerator."""
    import torch
    threads = f"{torch.get_num_threads()} threads; training with 64-wide networks uses one"
    lines = [("torch", "ok", f"{torch.__version__}, {threads}")]
    for kind, found in accelerators().items():
        if not found:
            lines.append((kind, "missing", no_cuda(torch.version.cuda) if kind == "CUDA" else "no device"))
        for device in found:
            name = f"{device} {torch.cuda.get_device_name(device) if kind == 'CUDA' else ''}".strip()
            reason = train_shortly(device)
            lines.append((kind, "missing", f"training on {name} fails ({reason}); use --device cpu") if reason else
                         (kind, "ok", f"{name}, a short training run works"))
    return lines


def no_cuda(built: str | None) -> str:
    """Return why torch sees no CUDA device, and what to do on a machine with one. built: torch's version of CUDA."""
    if built is None:
        return "this is torch's build for CPUs; for an NVIDIA GPU install another: https://pytorch.org/get-started"
    return f"no device; if there is an NVIDIA GPU, type nvidia-smi and check that the driver supports CUDA {built}"


def graphics() -> list[str]:
    """Values of MUJOCO_GL for rendering: the user's own (""), then, on Linux, those that need no screen."""
    return [""] if os.environ.get("MUJOCO_GL") or not sys.platform.startswith("linux") else ["", "egl", "osmesa"]


def start(way: str) -> subprocess.Popen:
    """Step and render in a separate process, because a missing graphics library can end the process."""
    env = {**os.environ, **({"MUJOCO_GL": way} if way else {})}
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", PROBE], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen, seconds: float = 60) -> tuple[list[str], str]:
    """Return the output of a process and the last line of its errors, after at most `seconds` seconds."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0].split(), f"no answer in {seconds:g} s"
    return out.split(), (err.strip().splitlines() or [f"ended with {process.returncode}"])[-1]


def mujoco(probes: dict[str, subprocess.Popen]) -> list[Line]:
    """Check whether MuJoCo steps with the user's settings, and whether any renderer works. A bad MUJOCO_GL breaks the
    import of MuJoCo."""
    lines, failures = [], []
    for way in graphics():
        done, words = outcome(probes[way] if way in probes else start(way))
        if way == "":
            unset = "unset MUJOCO_GL, or " if os.environ.get("MUJOCO_GL") else ""
            advice = f"{words}; {unset}type: pip install --force-reinstall mujoco"
            lines = [("MuJoCo steps", *(("ok", "HalfCheetah-v5") if "stepped" in done else ("problem", advice)))]
        if "drawn" in done:
            return [*lines, ("MuJoCo renders", "ok", f"with MUJOCO_GL={way}" if way else "yes")]
        failures.append(f"{way}: {words}" if way else words)
    advice = "; on Debian and Ubuntu type: apt install libegl1" if sys.platform.startswith("linux") else ""
    if os.environ.get("MUJOCO_GL"):
        advice = "; unset MUJOCO_GL" + advice.replace("; on", ", and on")
    return [*lines, ("MuJoCo renders", "missing", f"no pictures or GIFs of MuJoCo ({'; '.join(failures)}){advice}")]


def compiler() -> Line:
    """Row about the compiler for `--compile`."""
    path, what = find_compiler(), "C++ compiler"
    if path is None:
        how = {"win32": "install the Visual Studio Build Tools and start from their prompt",
               "darwin": "type: xcode-select --install"}.get(sys.platform, "on Debian and Ubuntu type: apt install g++")
        return what, "missing", f"--compile needs one; {how}"
    if missing_for_compile():
        return what, "missing", f"{path}, but no Python.h; on Debian and Ubuntu type: apt install python3-dev"
    return what, "ok", f"{path}, for --compile"


def folder() -> Line:
    """Row about whether runs can be written to the default folder."""
    from spinup.runs.folders import check_writable
    try:
        check_writable(Path("runs"))
    except UserError as error:
        return "log folder", "problem", str(error)
    return "log folder", "ok", f"{Path('runs').absolute()} can be written to"


def extras() -> list[Line]:
    """Row for each extra."""
    lines = []
    for name, modules in EXTRAS.items():
        how = f"type: pip install 'spinup-rl[{name}]'"
        absent = [module for module in modules if find_spec(module) is None]
        reason = f"no {', '.join(absent)}" if absent else fault(name)
        lines.append((f"extra {name}", *(("missing", f"{reason}; {how}") if reason else ("ok", ", ".join(modules)))))
    return lines


def fault(extra: str) -> str:
    """Start a program of an installed extra that depends on the machine. Return its error; "" if it works."""
    if extra == "tune":
        command = [sys.executable, "-c", STUDY]
    elif extra == "ray":
        folder = Path(find_spec("ray").origin).parent                     # to import ray takes seconds
        command = [str(folder / "core" / "src" / "ray" / "raylet" / "raylet"), "--version"]
    else:
        return ""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        return f"{command[0]} cannot be started ({error.strerror.lower()})"
    words = outcome(process)[1]
    return f"it does not work here ({words})" if process.returncode else ""
