"""Devices without float64, such as Apple's mps: the tensors that are moved there, and the place of the statistics."""
import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import spinup
from spinup.core.normaliser import Normaliser, ReturnScaler

FAKE = torch.device("cpu", 0)           # tensors that are moved here stay on the CPU; its index 0 marks such requests
TINY = {"preset": "none", "tensorboard": False, "quiet": True, "threads": 1}
ON_POLICY = {"total_steps": 128, "num_envs": 2, "rollout_steps": 32}
OFF_POLICY = {"total_steps": 80, "learning_starts": 40, "batch_size": 8, "hidden": (8,)}
RUNS = {
    "vpg": ("CartPole-v1", {"normalise_obs": True, "normalise_reward": True, **ON_POLICY}),
    "trpo": ("Pendulum-v1", {"normalise_obs": True, "normalise_reward": True, **ON_POLICY}),
    "ppo": ("Pendulum-v1", {"normalise_obs": True, "normalise_reward": True, **ON_POLICY}),
    "curiosity": ("CartPole-v1", ON_POLICY), "rl2": ("CartPole-v1", {"minibatches": 2, **ON_POLICY}),
    "dqn": ("CartPole-v1", {"prioritised": True, **OFF_POLICY}), "sac": ("Pendulum-v1", OFF_POLICY),
    "sac_discrete": ("CartPole-v1", OFF_POLICY), "param_noise": ("CartPole-v1", OFF_POLICY),
    "td3": ("Pendulum-v1", OFF_POLICY), "ddpg": ("Pendulum-v1", OFF_POLICY),
    "self_play": ("TicTacToe-v0", {"total_steps": 512, "num_envs": 8, "rollout_steps": 16})}


class WithoutFloat64(TorchFunctionMode):
    """Refuse float64 on `FAKE` as torch does on mps."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
            given = [*args[1:], *(kwargs or {}).values()]
            if any(isinstance(x, torch.device) and x.index == 0 for x in given):
                raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return result


# Catches: statistics that move with the policy; rewards, noise or weights of a replay buffer that stay in float64.
@pytest.mark.long("ppo")
@pytest.mark.parametrize("name", RUNS)
def test_training_moves_no_float64_to_its_device(name, tmp_path, monkeypatch):
    monkeypatch.setattr("spinup.runs.run.find_device", lambda *_, **__: FAKE)
    env, settings = RUNS[name]
    with WithoutFloat64():
        result = getattr(spinup, name)(env, **TINY, **settings, log_dir=str(tmp_path), exp_name="x", device="mps")
    assert result.status == "finished"


# Catches: a TypeError when a policy is moved; statistics of which only a part is moved.
def test_statistics_stay_on_a_device_with_float64():
    def move(x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return x.half()

    net, scaler, whole = nn.Sequential(Normaliser((3,)), nn.Linear(3, 2)), ReturnScaler(2, 0.9), ReturnScaler(2, 0.9)
    net[0].update(torch.tensor([[1.0, 2, 3], [3, 4, 9]]))
    net._apply(move)
    scaler._apply(move)
    assert net[1].weight.dtype == torch.float16
    assert {x.dtype for module in (net[0], scaler) for x in module.buffers()} == {torch.float64}
    np.testing.assert_allclose(net[0].mean, [2, 3, 6])
    batch = torch.ones(2, 4), torch.zeros(2, 4, dtype=torch.bool), torch.zeros(2, 4, dtype=torch.bool)
    np.testing.assert_array_equal(scaler.update_and_scale(*batch), whole.update_and_scale(*batch))
