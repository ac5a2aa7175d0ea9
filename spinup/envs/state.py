"""A random generator as plain strings and numbers, so that a checkpoint that holds only such can hold it."""
from operator import index
from typing import Any

import numpy as np


def save_rng(rng: np.random.Generator) -> dict[str, Any]:
    """State of a generator made by `np.random.default_rng`. Its two 128-bit integers become strings: no tensor file holds them.

    Raises TypeError for generators whose state is an array (MT19937, Philox).
    """
    state = rng.bit_generator.state
    return state | {"state": {name: str(index(number)) for name, number in state["state"].items()}}


def load_rng(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Put `rng` where the generator was when `save_rng` returned `state`."""
    rng.bit_generator.state = state | {"state": {name: int(number) for name, number in state["state"].items()}}
