"""Environments: made, vectorised, seeded, saved. `make` is all that an algorithm needs."""
from spinup.envs.make import make
from spinup.envs.vector import Step, VectorEnv

__all__ = ["make", "Step", "VectorEnv"]
