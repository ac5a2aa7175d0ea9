"""Packages from a folder of wheels, for a machine without a package index."""
import importlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
WHEELS = ROOT / "wheels"                # git ignores it
LARGEST = 64 * 2**20                    # bytes of all wheels


def use(wheels: Path = WHEELS, built: Path = ROOT / "build") -> list[str]:
    """Install the wheels that fit this Python into `built`, and put them on the path of this process and its children.

    Return a line for each wheel that does not fit, and one if all wheels together exceed `LARGEST`.
    """
    files, said = sorted(wheels.glob("*.whl")), []
    if not files:
        return said
    if (size := sum(file.stat().st_size for file in files)) > LARGEST:
        said.append(f"the wheels have {size / 2**20:.0f} MiB; at most {LARGEST >> 20} MiB can be copied to a machine")
    target = built / f"wheels-{sys.version_info[0]}.{sys.version_info[1]}"
    known = target / "installed.txt"
    names = "\n".join(file.name for file in files)
    if not known.exists() or known.read_text(encoding="utf-8") != names:
        for file in files:
            done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
                                   "--upgrade", "--target", str(target), str(file)], capture_output=True, text=True)
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
                said.append(f"{file.name} cannot be installed: {reason}")
        target.mkdir(parents=True, exist_ok=True)
        known.write_text(names, encoding="utf-8")
    sys.path.insert(0, str(target))
    importlib.invalidate_caches()
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (str(ROOT), str(target), os.environ.get("PYTHONPATH")) if p)
    return said
