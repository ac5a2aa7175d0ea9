"""Memory of a replay buffer, checked before it is allocated, and its files beside the checkpoint."""
import os
import re
import shutil
import zlib
from pathlib import Path

import numpy as np

from spinup.core.replay import Replay, replay_bytes
from spinup.envs.spaces import observation_view
from spinup.envs.vector import VectorEnv
from spinup.errors import UserError
from spinup.machine import free_memory
from spinup.runs.config import ReplayConfig

SPARE = 0.9             # share of the free memory that a replay buffer may use
FOLDER = "replay"       # inside the run folder
BLOCK = 1 << 20         # bytes read at a time


def make_replay(cfg: ReplayConfig, env: VectorEnv, act_shape: tuple[int, ...], act_dtype: type) -> Replay:
    """Make a replay buffer for `env`. Its capacity is that of the settings, or the run's steps if they are fewer.
    UserError if memory is short."""
    shape, dtype, _ = observation_view(env.observation_space)
    size = max(min(cfg.replay_size, cfg.total_steps), env.num_envs)
    kind = (env.num_envs, shape, dtype, act_shape)
    need, free = replay_bytes(size, *kind, frames=env.frames), free_memory()
    if need > SPARE * free:
        fixed = replay_bytes(0, *kind, frames=env.frames)
        fits = int(size * (SPARE * free - fixed) / (need - fixed))
        digits = 10 ** max(0, len(str(fits)) - 2)
        raise UserError(f"{what(size, shape)} need {gigabytes(need)}; {gigabytes(free)} are free; choose --replay-size "
                        f"{max(fits // digits * digits, 1)}")
    return Replay(size, *kind, act_dtype, env.frames)


def statement(replay: Replay) -> str:
    """Describe the memory of a replay buffer in words."""
    need = replay.frames.nbytes + sum(row.nbytes for row in replay.rows.values())
    return f"replay buffer: {what(replay.size, replay.obs_shape)} need {gigabytes(need)}"


def what(size: int, shape: tuple[int, ...]) -> str:
    """Describe a replay buffer in words: its number of steps and their shape."""
    steps = f"{size / 1e6:.1f} M" if size >= 1e6 else f"{size:,}"
    return f"{steps} steps of {'×'.join(map(str, [*shape[1:], shape[0]]))}"


def gigabytes(size: float) -> str:
    """Format a number of bytes with a suitable unit."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1e3:.0f} kB"


class ReplayFiles:
    """Files of a replay buffer's ring buffers. They are only appended to, and truncated when a run resumes.

    A file `NAME-FIRST.bin` holds the elements of a ring from number FIRST on, in order. When it has as many elements as
    the ring, a new file begins. `tidy` deletes a file once all its elements are overwritten in the ring, but only after
    a new checkpoint is written, because the old one needs it.
    """

    def __init__(self, directory: Path):
        self.folder = directory / FOLDER
        self.written: dict[str, int] = {}
        self.sums: dict[str, int] = {}                                    # CRC-32 of each file, for the checkpoint

    def append(self, replay: Replay) -> None:
        """Write the elements that were added since the last call.

        The elements survive if the process is killed. They are not synced to disk, because that would take longer than
        the gradient steps of a small network. If a power cut loses elements, the resumed run finds and reports this.
        UserError if a file has the name of the folder.
        """
        try:
            self.folder.mkdir(exist_ok=True)
        except FileExistsError:
            raise UserError(f"{self.folder} is a file, but the replay buffer needs a folder with that name; remove "
                            "it") from None
        for name, (ring, count) in replay.rings().items():
            size, start = len(ring), self.written.get(name, 0)
            if start == count:
                continue
            files = self._files(name)
            if not files or count - start > size or start - files[-1][0] >= size:
                start = max(start, count - size)
                files.append((start, self.folder / f"{name}-{start:012}.bin"))
            path = files[-1][1]
            with open(path, "ab") as file:
                while start < count:
                    stop = min(count, (start // size + 1) * size)         # up to the end of the ring
                    data = ring[start % size:(stop - 1) % size + 1].data
                    file.write(data)
                    self.sums[path.name] = zlib.crc32(data, self.sums.get(path.name, 0))
                    start = stop
            self.written[name] = count

    def read(self, replay: Replay, sums: dict[str, int]) -> bool:
        """Fill the rings of a replay buffer, whose counters are loaded, and truncate the files. Return False if there
        are no files, or `sums` names none.

        sums: checksums of the files when the checkpoint was written. UserError if a file has changed since then, or
        steps are missing.
        """
        rings = replay.rings()
        if not any(count for _, count in rings.values()):
            self.remove()                                                 # of a process that died before it saved
            return True
        if not sums or not any(self._files(name) for name in rings):
            return False
        self.sums = dict(sums)                                            # not those of files that are gone
        if not all(self._read(name, ring, count) for name, (ring, count) in rings.items()):
            raise UserError(f"{self.folder} lacks steps that the checkpoint counts; restore its files, or delete it to "
                            "continue with an empty replay buffer")
        self.written = {name: count for name, (_, count) in rings.items()}
        return True

    def _read(self, name: str, ring: np.ndarray, count: int) -> bool:
        size, each, wanted = len(ring), ring[0].nbytes, max(0, count - len(ring))
        files = self._files(name)
        ends = [*(first for first, _ in files[1:]), count]
        for (first, path), end in zip(files, ends, strict=False):
            if path.is_symlink() or not path.is_file():
                raise UserError(f"{path} is not a regular file; restore it, or delete {self.folder}")
            if first >= count:
                path.unlink()
                continue
            stop = min(count, first + path.stat().st_size // each)
            os.truncate(path, (stop - first) * each)
            if stop >= min(end, count):                                   # otherwise the end of the file is missing
                self._check(path)
            if stop <= wanted:
                continue
            if first > wanted:
                return False
            with open(path, "rb") as file:
                file.seek((wanted - first) * each)
                while wanted < stop:
                    seam = min(stop, (wanted // size + 1) * size)
                    file.readinto(ring[wanted % size:(seam - 1) % size + 1].data.cast("B"))
                    wanted = seam
        return wanted == count

    def _check(self, path: Path) -> None:
        """UserError if the checksum of a file, truncated to the length in the checkpoint, has changed."""
        found = 0
        with open(path, "rb") as file:
            while data := file.read(BLOCK):
                found = zlib.crc32(data, found)
        if found != self.sums.get(path.name, found):
            raise UserError(f"{path} has changed since it was written; restore it, or delete {self.folder} to continue "
                            "with an empty replay buffer")

    def tidy(self, replay: Replay) -> None:
        """Delete files that no resumed run can need."""
        for name, (ring, count) in replay.rings().items():
            files = self._files(name)
            for (_, path), (next_first, _) in zip(files[:-1], files[1:], strict=True):
                if next_first <= count - len(ring):
                    path.unlink()
                    self.sums.pop(path.name, None)

    def remove(self) -> None:
        """Delete all files, when the run has finished."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.written, self.sums = {}, {}

    def _files(self, name: str) -> list[tuple[int, Path]]:
        """Return (number of the first element, path) of each file of a ring, in order."""
        found = ((re.fullmatch(rf"{name}-(\d+)", path.stem), path) for path in self.folder.glob(f"{name}-*.bin"))
        return sorted((int(match[1]), path) for match, path in found if match)
