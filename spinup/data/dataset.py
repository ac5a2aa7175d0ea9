"""Offline datasets: transitions in the order of their episodes, in one npz file with metadata and a checksum.

    data = load("pendulum.npz")
    data.obs, data.actions, data.rewards, data.next_obs, data.terminated, data.truncated
    for episode in data.episodes():
        data.rewards[episode].sum()

NumPy alone can read the file too: `numpy.load("pendulum.npz")["obs"]`.
"""
import errno
import hashlib
import json
import zipfile
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np

from spinup.errors import UserError, out_of_memory

FORMAT = "spinup dataset 1"
ARRAYS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")
DTYPES = {"rewards": "float32", "terminated": "bool", "truncated": "bool"}
FAULTS = (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError, MemoryError, RecursionError,
          zipfile.BadZipFile, zlib.error, RuntimeError, ArithmeticError, TokenError)
ABOUT = {"env": str, "env_settings": dict, "observation_space": dict, "action_space": dict, "parts": list,
         "steps": int, "episodes": int, "mean_return": float, "seed": int, "versions": dict}
PART = {"source": str, "actions": str, "steps": int, "episodes": int, "mean_return": float}
MAKE = "`spinup record` makes datasets"
LARGEST = 1e30          # absolute value of a number or a return: sums of squares stay finite


@dataclass(frozen=True)
class Dataset:
    """N transitions of one environment. Each episode is complete, and its steps follow each other.

    Attributes:
        obs: `[N, *shape]`, observation before the action: float32 vectors, or images of bytes `[N, C, H, W]`, as
            `spinup.envs.spaces.observation_view` converts them.
        actions: as `spinup.envs.vector.VectorEnv.step` takes them: int64 `[N]` (Discrete, counted from 0) or `[N, k]`
            (MultiDiscrete), or float32 `[N, k]` in the environment's units (Box).
        rewards: float32 `[N]`.
        next_obs: `[N, *shape]`, observation after the action, before any reset.
        terminated: bool `[N]`; the task ended, so `next_obs` has value 0.
        truncated: bool `[N]`; a limit ended the episode, so `next_obs` has a value.
        about: metadata. `env`, `env_settings`, `observation_space` and `action_space` describe the environment.
            `parts` lists the sources in order, each with its steps, episodes and mean return. `steps`, `episodes`,
            `mean_return` (undiscounted) and `seed` are those of the whole dataset. `versions` are those of the
            software.
    """

    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    about: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rewards)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the six arrays by name."""
        return {name: getattr(self, name) for name in ARRAYS}

    def episodes(self) -> list[slice]:
        """Return the rows of each episode, in order."""
        ends = np.flatnonzero(self.terminated | self.truncated) + 1
        return [slice(start, end) for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)]

    def returns(self) -> np.ndarray:
        """Return the undiscounted return of each episode, float64 `[episodes]`."""
        ends = np.flatnonzero(self.terminated | self.truncated)
        return np.diff(np.cumsum(self.rewards, dtype=np.float64)[ends], prepend=0)

    def write(self, file: BinaryIO) -> None:
        """Write the npz file. Its metadata are JSON, with a SHA-256 of arrays and metadata."""
        about = {"format": FORMAT, **self.about}
        about["sha256"] = checksum(self.arrays(), about)
        np.savez(file, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **self.arrays())


def join(parts: list[Dataset], about: dict[str, Any]) -> Dataset:
    """Concatenate datasets of one environment, and add the number of steps and episodes and the mean return to the
    metadata `about`."""
    whole = Dataset(*(np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS))
    return replace(whole, about={**about, **summary(whole)})


def summary(data: Dataset) -> dict[str, Any]:
    """Return the number of steps and episodes and the mean return, as in the metadata."""
    returns = data.returns()
    return {"steps": len(data), "episodes": len(returns), "mean_return": float(returns.mean())}


def checksum(arrays: dict[str, np.ndarray], about: dict[str, Any]) -> str:
    """Compute the SHA-256 of arrays `[N, ...]` with their names, types and shapes, and of the metadata without their
    own entry `sha256`."""
    found = hashlib.sha256(json.dumps({k: v for k, v in about.items() if k != "sha256"}, sort_keys=True).encode())
    for name in ARRAYS:
        x = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {x.dtype.str} {x.shape}".encode())
        found.update(x.data.cast("B") if x.size else b"")
    return found.hexdigest()


def load(path: str | Path) -> Dataset:
    """Load a dataset from a file in the format of `spinup record`. Nothing in the file is run or unpickled.

    UserError if the file is missing, is not such a dataset, or has changed since it was written.
    """
    about, found = read(Path(path), ARRAYS)
    if about.get("sha256") != checksum(found, about):
        raise UserError(f"{path} has changed since it was written; restore it, or record it again")
    data = Dataset(**found, about=about)
    if wrong := fault(found):
        raise UserError(f"{path} is not a dataset of whole episodes: {wrong}; {MAKE}")
    if summary(data) != {key: about[key] for key in summary(data)}:
        raise UserError(f"the steps, episodes or mean return in the metadata of {path} differ from those of its "
                        f"arrays; {MAKE}")
    return data


def load_about(path: str | Path) -> dict[str, Any]:
    """Load only the metadata of a dataset, without a check of the arrays.

    UserError if the file is missing or is not such a dataset.
    """
    return read(Path(path), ())[0]


def read(path: Path, names: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the metadata, and the arrays `[N, ...]` with these names. UserError if the file is not in the format,
    or its metadata are incomplete."""
    if not path.is_file():
        raise UserError(f"there is no dataset {path}; if it was moved, give its new path with --data, or with "
                        f"--card for `spinup record`; {MAKE}")
    try:
        with np.load(path, allow_pickle=False) as file:
            inside = {*file.files}
            found = {name: file[name] for name in names if name in inside}
            about = json.loads(file["about"].tobytes()) if "about" in inside else None
    except FAULTS as error:
        if out_of_memory(error):
            raise UserError(f"not enough memory to load {path}; end other programs, or use a smaller dataset") from None
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EIO):
            raise UserError(f"{path} cannot be read ({error.strerror.lower()}); change its permissions, or copy it to "
                            "another disk") from None
        foreign = isinstance(error, ValueError) and "pickle" in str(error)
        raise UserError(f"{path} is " + (f"not a dataset of this library; {MAKE}" if foreign else
                                         f"damaged or not a dataset; restore it, or record it again; {MAKE}")) from None
    if not isinstance(about, dict) or about.get("format") != FORMAT or not {*ARRAYS} <= inside:
        raise UserError(f"{path} is not a dataset in the format {FORMAT!r}; {MAKE}")
    if wrong := incomplete(about):
        raise UserError(f"the metadata of {path} have no valid entry {wrong!r}; {MAKE}")
    return about, found


def fault(arrays: dict[str, np.ndarray]) -> str:
    """Describe the first fault in the arrays `[N, ...]`: unequal lengths, a wrong type or shape, a number that is not
    finite, or a last row that does not end an episode; "" if there is none."""
    lengths = {len(x) if x.ndim else -1 for x in arrays.values()}
    if len(lengths) != 1 or min(lengths) < 1:
        return "its arrays have no rows, or different numbers of rows"
    for name, types in {"obs": ("float32", "uint8"), "actions": ("float32", "int64"),
                        **{name: (dtype,) for name, dtype in DTYPES.items()}}.items():
        if arrays[name].dtype not in types:
            kind = "int64" if name == "actions" and arrays[name].dtype.kind in "iub" else types[0]
            return (f"{name} must be {' or '.join(types)}, not {arrays[name].dtype}; convert it, as in "
                    f"{name}.astype({kind!r})")
        if name in DTYPES and arrays[name].ndim != 1:
            return f"{name} must have one number per row, but its shape is {arrays[name].shape}"
    obs, after = arrays["obs"], arrays["next_obs"]
    if (obs.shape, obs.dtype) != (after.shape, after.dtype):
        return "obs and next_obs differ in their types or shapes"
    for name in ("obs", "actions", "rewards", "next_obs"):
        if not np.isfinite(arrays[name]).all():
            return f"{name} has a number that is not finite"
        if not np.abs(arrays[name].max(initial=0)) < LARGEST or not np.abs(arrays[name].min(initial=0)) < LARGEST:
            return f"{name} has a number above {LARGEST:g} or below -{LARGEST:g}"
    if not np.abs(arrays["rewards"]).sum(dtype=np.float64) < LARGEST:
        return f"the absolute rewards add up to more than {LARGEST:g}"
    return "" if arrays["terminated"][-1] | arrays["truncated"][-1] else "the last row does not end an episode"


def incomplete(about: dict[str, Any]) -> str:
    """Name the first entry that metadata lack or that has a wrong type; "" if there is none."""
    for key, kind in ABOUT.items():
        if not isinstance(about.get(key), kind):
            return key
    if not about["env"] or not about["env"].isprintable():
        return "env"
    for key in ("observation_space", "action_space"):
        if "kind" not in about[key]:
            return f"{key}.kind"
    for part in about["parts"]:
        for key, kind in PART.items():
            if not isinstance(part, dict) or not isinstance(part.get(key), kind):
                return f"parts[...].{key}"
    return ""
