"""Log of a run: its rows in `progress.csv`, TensorBoard and Weights & Biases."""
import csv
import io
import os
import secrets
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

from spinup.errors import UserError
from spinup.runs.config import Row, RunConfig
from spinup.runs.files import write_whole

SUM = "progress.csv crc32"
SAMPLES = "samples.jsonl"                                                 # texts of a language model
ADVICE = "restore it, or train again under another --exp-name"


class Log:
    """Appends rows with the columns of the first row. A resumed run truncates the log to an earlier `position`.

    Args:
        position: the value of `position()` when the checkpoint was written, or None for a new log.
    """

    def __init__(self, directory: Path, *, tensorboard: bool, wandb: bool, config: dict[str, Any],
                 position: dict[str, int] | None):
        self.directory, self.path, self.columns = directory, directory / "progress.csv", None
        kept = position or {}                                 # empty if the run died before its first checkpoint
        if not all(type(length) is int and length >= 0 for length in kept.values()):
            raise UserError(f"{directory}/checkpoint.pt is damaged (lengths of files: {kept}); restore the folder")
        if kept.get(self.path.name, 0) > (self.path.stat().st_size if self.path.exists() else 0):
            raise UserError(f"{self.path} has lost rows since the checkpoint; restore it, or train again under another "
                            "--exp-name")
        for file in self._files():
            if file.is_symlink() or file.exists() and not file.is_file():
                raise UserError(f"{file} is not a regular file; {ADVICE}")
        self.sum = checksum(self.path, kept.get(self.path.name, 0))
        if self.sum != kept.get(SUM, self.sum):
            raise UserError(f"{self.path} has changed since the checkpoint; {ADVICE}")
        for file in self._files():
            if file.exists():
                os.truncate(file, min(kept.get(file.name, 0), file.stat().st_size))
        if self.path.exists() and self.path.stat().st_size:
            self.columns = list(read_progress(directory)) or None
        self.events = self.wandb = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter
            self.events = SummaryWriter(str(directory))
        if wandb:
            import wandb as module
            if not (identity := directory / "wandb_id").exists():         # two runs may have the same name
                write_whole(identity, secrets.token_hex(8).encode())
            try:
                self.wandb = module.init(project="spinup", name=directory.name, dir=str(directory), config=config,
                                         resume="allow", id=identity.read_text())
            except Exception as error:
                said = (str(error) or type(error).__name__).splitlines()[0]
                raise UserError(f"--wandb: {said}; type: wandb login, or leave out --wandb") from error

    def _files(self) -> list[Path]:
        events = sorted(self.directory.glob("events.out.tfevents.*"))
        return [self.path, self.directory / SAMPLES, *events]

    def write(self, row: Row) -> None:
        """Append a row. UserError if its keys differ from the columns of the file."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self.columns is None:
            self.columns = list(row)
            writer.writerow(self.columns)
        if list(row) != self.columns:
            other = ", ".join(sorted(set(row) ^ set(self.columns))[:3])
            raise UserError(f"{self.path} is damaged (its columns differ from those of the run: {other}); {ADVICE}")
        writer.writerow([repr(v) if isinstance(v, float) else v for v in row.values()])
        data = text.getvalue().encode()
        with open(self.path, "ab") as file:                               # one write: a reader never sees half a row
            file.write(data)
        self.sum = zlib.crc32(data, self.sum)
        for name, value in row.items():
            if self.events is not None and name != "steps":
                self.events.add_scalar(name, value, row["steps"])
        if self.wandb is not None:
            self.wandb.log(row, step=row["steps"])

    def write_samples(self, lines: str) -> None:
        """Append lines to `samples.jsonl`; a resumed run truncates this file together with the log."""
        with open(self.directory / SAMPLES, "ab") as file:
            file.write(lines.encode("utf-8", "backslashreplace"))         # an unpaired surrogate stays valid JSON

    def position(self) -> dict[str, int]:
        """Return the length of each file and the CRC-32 of `progress.csv`, for the checkpoint."""
        if self.events is not None:
            self.events.flush()
        for path in (self.path, self.directory / SAMPLES):                # must be on disk before the checkpoint
            if path.exists():
                with open(path, "rb+") as file:
                    os.fsync(file.fileno())
        sizes = {f.name: f.stat().st_size for f in self._files() if f.exists()}
        return sizes | {SUM: self.sum}

    def close(self) -> None:
        """Close the TensorBoard and Weights & Biases logs."""
        if self.events is not None:
            self.events.close()
        if self.wandb is not None:
            self.wandb.finish()


class Silent:
    """Log and lock of a process that writes no files: every method does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


def check_logs(config: RunConfig) -> None:
    """UserError if the settings request a log whose package is not installed."""
    if config.wandb and getattr(find_spec("wandb"), "origin", None) is None:      # a folder wandb is a package, too
        raise UserError("--wandb needs Weights & Biases; type: pip install wandb")
    if config.tensorboard and find_spec("tensorboard") is None:
        raise UserError("the log of a run needs TensorBoard; type: pip install tensorboard, or add --no-tensorboard")


def checksum(path: Path, size: int) -> int:
    """CRC-32 of the first `size` bytes of a file; 0 without one."""
    if not path.exists():
        return 0
    with open(path, "rb") as file:
        return zlib.crc32(file.read(size))


def read_progress(directory: Path) -> dict[str, list[float]]:
    """Read the columns of a run's `progress.csv`. UserError if it is missing or damaged."""
    path, fault = Path(directory) / "progress.csv", ""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            names, *rows = list(csv.reader(file)) or [[]]
        if rows and len(rows[-1]) < len(names):                           # cut by a power failure
            rows.pop()
        if len({*names}) < len(names) or any(len(row) != len(names) for row in rows):
            names, rows, fault = [], [], "rows of different lengths, or a duplicate column"
        columns = {name: [float(row[i]) for row in rows] for i, name in enumerate(names)} if rows else {}
    except OSError:
        raise UserError(f"{directory} holds no progress.csv; give the folder of a run, such as "
                        "runs/NAME/NAME_s1") from None
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path} is damaged ({error}); {ADVICE}") from None
    if any(not after > before for before, after in pairwise(columns.get("steps", []))):
        fault = "steps that do not increase"
    if fault:
        raise UserError(f"{path} is damaged ({fault}); {ADVICE}")
    return columns
