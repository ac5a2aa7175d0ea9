"""Fixtures for tests of whole runs: small models that were made once."""
from collections.abc import Callable

import pytest

SMALL = {"task": "reverse:length=2,symbols=10", "layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True,
         "tensorboard": False, "threads": 1, "preset": "none"}


@pytest.fixture(scope="session")
def make_model(tmp_path_factory) -> Callable[..., str]:
    """The folder of a small model that imitates for a while: `make_model(total_steps=2)`."""
    def make(**settings: object) -> str:
        import llm
        folder = tmp_path_factory.mktemp("model")
        return str(llm.sft(**{**SMALL, **settings}, log_dir=str(folder)).directory)
    return make


@pytest.fixture(scope="session")
def beginner(make_model) -> str:
    """The folder of a model that has hardly learned anything: its answers are of any letters and often too long."""
    return make_model(total_steps=2)
