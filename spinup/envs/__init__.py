"""Environments: create, vectorise, seed and save them. An algorithm needs only `make`."""
from spinup.envs.make import make
from spinup.envs.vector import Step, VectorEnv

__all__ = ["make", "Step", "VectorEnv"]
