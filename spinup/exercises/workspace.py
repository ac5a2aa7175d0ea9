"""A student's folder: the files of started exercises, and the progress in `.spinup/state.json`, written atomically."""
import json
import shutil
import time
from pathlib import Path
from typing import Any

from filelock import FileLock

from spinup.errors import UserError
from spinup.exercises.source import CONTENT, Entry
from spinup.runs.files import write_json, write_whole

STATE, GUIDE = Path(".spinup") / "state.json", "AGENTS.md"
KINDS = {"hints": int, "tries": int, "begun": str, "passed": str, "revealed": str}       # types of the values


class Workspace:
    """A folder and the state of each exercise: hints shown, number of checks, times of start, pass and reveal.

    UserError if the state cannot be read.
    """

    def __init__(self, folder: Path):
        self.folder, self.state = folder, read_state(folder / STATE)

    @classmethod
    def create(cls, folder: Path) -> "Workspace":
        """Open the workspace in a folder, and create the folder and its guide for assistants if necessary. UserError if
        that fails."""
        try:
            (folder / STATE).parent.mkdir(parents=True, exist_ok=True)
            if not (folder / STATE).exists():
                write_json(folder / STATE, {"exercises": {}})
            if not (folder / GUIDE).exists():
                write_whole(folder / GUIDE, (CONTENT / GUIDE).read_bytes())
        except OSError as error:
            raise UserError(f"cannot create {folder} ({error.strerror.lower()}); choose another name") from None
        return cls(folder)

    @classmethod
    def around(cls) -> "Workspace | None":
        """Return the workspace in the current folder or a parent folder; None if there is none."""
        here = next((folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / STATE).exists()), None)
        return cls(here) if here else None

    @classmethod
    def here(cls) -> "Workspace":
        """Return the workspace of the current folder; UserError if there is none."""
        if found := cls.around():
            return found
        raise UserError("this is not a folder of exercises; type: spinup exercise init rl && cd rl")

    def of(self, entry: Entry) -> dict[str, Any]:
        """Return the state of an exercise: hints shown, times of its start and pass; empty at first."""
        return self.state.get(entry.id, {})

    def note(self, entry: Entry, **what: Any) -> None:
        """Add to the state of an exercise, and write it."""
        with FileLock(self.folder / f"{STATE}.lock"):
            self.state = read_state(self.folder / STATE)                        # another command may have changed it
            self.state.setdefault(entry.id, {}).update(what)
            write_json(self.folder / STATE, {"exercises": self.state})

    def file(self, entry: Entry) -> Path:
        """Return the student's file or notebook, whichever was saved last; if neither exists, the path of the file.
        UserError if it is a folder."""
        there = [p for p in (self.folder / f"{entry.name}.py", self.folder / f"{entry.name}.ipynb") if p.exists()]
        return of_file(max(there, key=lambda p: p.stat().st_mtime, default=self.folder / f"{entry.name}.py"))

    def begin(self, entry: Entry, notebook: bool = False) -> Path:
        """Return the file to work on; write it if it does not exist. Without `notebook`, an existing notebook is the
        file to work on."""
        path = of_file(self.folder / f"{entry.name}.ipynb") if notebook else self.file(entry)
        if not path.exists():
            write_whole(path, entry.given(path.suffix).encode())
            self.note(entry, begun=stamp())
        if entry.about["kind"] != "predict":                              # there the figure is the answer
            self.show(entry)
        return path

    def show(self, entry: Entry) -> None:
        """Write the figure of an exercise, if it has one, to the folder `symptoms`."""
        symptom = Path("symptoms") / f"{entry.name}.png"
        if (CONTENT / symptom).exists():
            folder = (self.folder / symptom).parent
            if folder.is_file():
                raise UserError(f"{folder} is a file; move it away")
            folder.mkdir(exist_ok=True)
            write_whole(self.folder / symptom, (CONTENT / symptom).read_bytes())

    def reset(self, entry: Entry) -> tuple[Path, Path | None]:
        """Restore the given file; return its path and that of the backup, None if there was no file."""
        path, kept = self.file(entry), None
        if path.exists():
            number = 1
            while (kept := path.with_name(f"{path.name}.{number}.bak")).exists():
                number += 1
            shutil.copy2(path, kept)
        write_whole(path, entry.given(path.suffix).encode())
        return path, kept


def of_file(path: Path) -> Path:
    """Return the path. UserError if it is a folder."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; move it away")
    return path


def read_state(path: Path) -> dict[str, dict[str, Any]]:
    """Read the state file. UserError if it is damaged."""
    try:
        found = json.loads(path.read_text())["exercises"]
        if all(type(known[what]) is KINDS.get(what, type(known[what])) for known in found.values() for what in known):
            return found
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    raise UserError(f"{path} is damaged; remove it and type `spinup exercise init {path.parents[1]}`: this keeps your "
                    "files, and `spinup exercise check` passes them again")


def stamp() -> str:
    """Return the local time as text."""
    return time.strftime("%Y-%m-%d %H:%M:%S")
