"""Checks of students' files in this process, for tests that do not need a separate process, which takes over 1 s."""
import sys

import pytest

from spinup.exercises import child, verdict


class Here:
    """A `Process` without a separate process."""

    def __init__(self, folder, entry, file, text, level):
        folder.mkdir(exist_ok=True)
        self.copy, self.name, self.level = folder / f"{file.stem}.py", entry.name, level
        self.copy.write_text(text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def result(self):
        return child.check(self.copy, self.name, self.level)

    def output(self):
        return ""


@pytest.fixture
def in_this_process(tmp_path, monkeypatch):
    """Let a check load a copy of the student's file in this process. The results are those of a separate process."""
    monkeypatch.setattr(verdict, "Process", lambda entry, file, text, level, seconds: Here(
        tmp_path / "copy", entry, file, text, level))
    monkeypatch.delitem(sys.modules, "student", raising=False)
