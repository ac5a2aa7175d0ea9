"""Checks of exercises, each of which starts a process."""
import pytest

from spinup.exercises import verdict


@pytest.fixture
def forked_checks(fork_python) -> None:
    """The process of a check is forked. `test_verdict.py` has checks in a new interpreter, as a student's."""
    fork_python(verdict)
