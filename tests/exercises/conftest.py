"""Checks of students' files in this process, where a process of their own is not the point: it costs over a second."""
import sys

import pytest

from spinup.exercises import verdict
from spinup.exercises.child import examine


@pytest.fixture
def in_this_process(tmp_path, monkeypatch):
    """A check loads the student's file here, from a copy, and gives the answers that its own process would give."""
    def answers_of(entry, file, text, levels):
        said, copy = [], tmp_path / "copy" / f"{file.stem}.py"
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text)
        examine(copy, entry.checks, levels, lambda **what: said.append(what))
        return said, "", ""

    monkeypatch.setattr(verdict, "answers_of", answers_of)
    monkeypatch.delitem(sys.modules, "student", raising=False)


@pytest.fixture
def forked_checks(fork_python) -> None:
    """The process of a check is forked. `test_verdict.py` has checks in a new interpreter, as a student's."""
    fork_python(verdict)
