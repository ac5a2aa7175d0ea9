"""A random generator's state as strings and numbers of 64 bits, which every file format holds."""
from operator import index
from typing import Any

import numpy as np


def save_rng(rng: np.random.Generator) -> dict[str, Any]:
    """State of a generator made by `np.random.default_rng`, its two 128-bit integers as strings.

    Raises TypeError for generators whose state is an array (MT19937, Philox).
    """
    state = rng.bit_generator.state
    return state | {"state": {name: str(index(number)) for name, number in state["state"].items()}}


def load_rng(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Put `rng` where the generator was when `save_rng` returned `state`."""
    rng.bit_generator.state = state | {"state": {name: int(number) for name, number in state["state"].items()}}
