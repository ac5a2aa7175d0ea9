"""Bandits and MDPs on a GPU compared with those on the CPU, with the same random numbers."""
import numpy as np
import pytest
import torch

from spinup.envs import make
from spinup.envs.worlds import trials
from spinup.envs.worlds.tasks import ON_DEVICE

NAMES = ["Bandits-5x10-v0", "TabularMDPs-10-v0"]


# Catches: an index or a product whose result on a GPU differs from that on the CPU.
@pytest.mark.parametrize("name", NAMES)
def test_trial_equals_that_of_the_cpu(name, device, monkeypatch):
    arrays, tensors = make(name, 64, 3, episodes=10), ON_DEVICE[name](64, 3, 10, device)
    drawn = {"rand": torch.rand, "randn": torch.randn}
    for word, function in drawn.items():                                  # sample on the CPU for both
        monkeypatch.setattr(torch, word, lambda *shape, device, generator, f=function: f(
            *shape, generator=generator).to(device))
    dirichlet = trials.dirichlet
    monkeypatch.setattr(trials, "dirichlet", lambda x, generator: dirichlet(x.cpu(), generator).to(x.device))
    tensors.trials.generator = torch.Generator()
    tensors.trials.generator.set_state(arrays.env.trials.generator.get_state())
    np.testing.assert_array_equal(tensors.reset().cpu().numpy(), arrays.reset())
    rng = np.random.default_rng(0)
    for _ in range(tensors.trials.steps + 5):
        action = rng.integers(0, 5, 64)
        wanted, found = arrays.step(action), tensors.step(torch.from_numpy(action).to(device))
        np.testing.assert_allclose(found.obs.cpu().numpy(), wanted.obs, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found.terminated.cpu().numpy(), wanted.terminated)
    np.testing.assert_allclose(*([r for r, _ in env.take_finished()] for env in (tensors, arrays)), rtol=1e-4)
