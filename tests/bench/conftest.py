"""The command line that a benchmark calls, in this process: one of its own imports torch for two seconds."""
import pytest


@pytest.fixture
def here(cli):
    """Stands in for `spinup.bench.process.spinup`: runs a command, and returns what it prints."""
    def run(*words):
        done = cli(*words)
        assert done.code == 0, done.err
        return done.out
    return run
