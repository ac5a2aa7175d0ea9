"""Run folders: their names, how they are made and locked, and how they are found again."""
import os
import re
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout

from spinup.errors import UserError
from spinup.parser import printable
from spinup.runs.config import RunConfig
from spinup.runs.display import quoted
from spinup.runs.shelf import find_policy

LONGEST = 200           # bytes of a name: file systems allow 255; the rest is for the seed and suffixes


def free_directory(algorithm: str, subject: str, config: RunConfig) -> Path:
    """Return the folder for a new run. UserError if a run with the given name and seed exists."""
    root, leaf = Path(config.log_dir), config.exp_name
    if leaf:
        check_exp_name(leaf)
        directory = root / leaf / f"{leaf}_s{config.seed}"
        if (directory / "config.json").exists():
            where = describe(directory)
            raise UserError(f"{where} exists; type `spinup resume {quoted(where)}` to resume it, or choose another "
                            "--exp-name or --seed")
        return directory
    stem = re.sub(r"[^\w.-]+", "-", f"{algorithm}_{subject}")
    found = [re.fullmatch(rf"{re.escape(stem)}_(\d+)", path.name) for path in root.glob(f"{stem}_*")]
    taken = [int(match[1]) for match in found if match]
    leaf = f"{stem}_{max(taken, default=0) + 1}"
    return root / leaf / f"{leaf}_s{config.seed}"


def describe(directory: Path) -> str:
    """Return a folder as messages show it: relative to the working directory if it is inside."""
    try:
        return str(Path(directory).resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(Path(directory))


def make_directory(directory: Path, resumed: bool, algorithm: str, subject: str, config: RunConfig) -> Path:
    """Create the folder of a run, and return it. If another run has just taken its number, use the next one. UserError
    if it cannot be created."""
    while True:
        try:
            if not (resumed or config.exp_name):
                directory.parent.mkdir(parents=True)          # the number is that of an experiment, not of a seed
            directory.mkdir(parents=True, exist_ok=resumed or bool(config.exp_name))
            return directory
        except OSError as error:
            if not isinstance(error, FileExistsError) or config.exp_name:
                raise UserError(f"cannot create {directory} ({error.strerror.lower()}); choose another --log-dir or "
                                "--exp-name") from None
            taken, directory = directory, free_directory(algorithm, subject, config)
            if directory == taken:
                raise UserError(f"{directory.parent.parent} cannot be read; choose another --log-dir") from None


def saved_at(directory: Path) -> int:
    """Return the time of a run's checkpoint in nanoseconds; 0 without one."""
    try:
        return (directory / "checkpoint.pt").stat().st_mtime_ns
    except OSError:
        return 0


def lock(directory: Path, seen: int | None = None) -> FileLock:
    """Lock the folder of a run. The system releases the lock whenever the process ends. UserError if another process
    holds the lock, if the folder is not writable, or if the checkpoint has another time than `seen`, which
    `saved_at` returned; None: any time."""
    taken = FileLock(directory / ".lock", timeout=0)
    try:
        taken.acquire()
    except Timeout:
        raise UserError(f"another process is training in {describe(directory)}; wait until it ends, or stop "
                        "it") from None
    except OSError as error:
        raise UserError(f"{describe(directory)} cannot be written to ({error.strerror.lower()}); copy the run to a "
                        "folder of your own, and resume it there") from None
    if seen is not None and saved_at(directory) != seen:
        taken.release()
        if not (seen or (directory / "config.json").exists()):
            raise UserError(f"{describe(directory)} holds a checkpoint without a config.json; restore it, or choose "
                            "another --exp-name")
        raise UserError(f"another process has just trained in {describe(directory)}; type the same command again")
    return taken


def in_use(directory: Path) -> bool:
    """Return whether another process is training in the folder."""
    if not directory.is_dir():
        return False
    try:
        with FileLock(directory / ".lock", timeout=0):
            return False
    except Timeout:
        return True
    except OSError:                                                       # the run itself says what is wrong
        return False


def check_exp_name(name: str) -> None:
    """UserError unless the name is valid for a folder and for the folders of its runs."""
    if Path(name).name != name or name in (".", ".."):
        raise UserError(f"--exp-name must be the name of a folder, not {name!r}; use --log-dir for a path")
    if not printable(name) or name != name.strip():
        raise UserError(f"--exp-name {name!r} has an invalid character; use letters, digits and _")
    if len(os.fsencode(name)) > LONGEST:
        raise UserError(f"the name {name[:40]}... has {len(os.fsencode(name))} bytes, but at most {LONGEST} are "
                        "allowed; choose a shorter --exp-name")


def check_writable(folder: Path, flag: str = "--log-dir", other: str = "runs") -> None:
    """UserError, which suggests another folder for the flag, unless `folder` can be created; creates nothing."""
    if not printable(str(folder)):
        raise UserError(f"{flag} {str(folder)!r} has an invalid character; use letters, digits and _")
    if not writable(folder):
        other = Path(os.path.expanduser("~")) / other if folder == Path(other) else other
        raise UserError(f"{flag} {folder} cannot be written to; choose a folder that you can write to, such as {flag} "
                        f"{other}")


def writable(folder: Path) -> bool:
    """Return whether a folder, or files in it, can be created. It tries this with an unnamed temporary file."""
    existing = next((p for p in [folder, *folder.absolute().parents] if p.exists()), Path("/"))
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError:
        return False
    return True


def runs_below(directory: Path, files: str = "**/config.json") -> list[Path]:
    """Return the runs in a folder and below it, sorted. Exports of a language model, which have a config.json too, are
    left out, unless there is nothing else. files: a pattern; the default does not follow symbolic links."""
    folders = sorted(p.parent for p in directory.glob(files) if p.is_file())
    return [folder for folder in folders if not is_export(folder / "config.json")] or folders


def is_export(config: Path) -> bool:
    """Return whether a config.json is that of an exported model. False for an unreadable file, so that the
    code that reads it later reports the error."""
    try:
        return b'"algorithm"' not in config.read_bytes()
    except OSError:
        return False


def find_run(directory: Path) -> Path:
    """Return the run in `directory`: the folder itself, or the only run below it; the file of shelf/NAME. UserError if
    there is none or several."""
    if file := find_policy(directory):
        return file
    if (directory / "config.json").exists():
        return directory
    runs = runs_below(directory)
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise UserError(f"{directory} holds no run; give the folder of a run, such as runs/NAME/NAME_s1")
    raise UserError(f"{directory} holds {len(runs)} runs; choose one, such as {describe(runs[-1])}")


def safe(name: str) -> str:
    """Return `name` with characters that every file system accepts."""
    return re.sub(r"[^\w.,+=-]+", "-", name).strip(".-")
