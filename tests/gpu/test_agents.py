"""Agents whose networks are on a GPU: they train, resume, and can be loaded on a CPU."""
import numpy as np
import pytest
import torch

import spinup
from spinup.core.fast.adam import FlatAdam
from spinup.view.record import record

TINY = {"preset": "none", "tensorboard": False, "quiet": True, "threads": 1, "exp_name": "x"}
ON_POLICY = {"total_steps": 256, "num_envs": 4, "rollout_steps": 16, "checkpoint_steps": 64}
OFF_POLICY = {"total_steps": 120, "learning_starts": 40, "batch_size": 8, "hidden": (16, 16), "checkpoint_steps": 40}
RUNS = {
    "vpg": ("CartPole-v1", {**ON_POLICY, "normalise_obs": True, "normalise_reward": True}),
    "ppo": ("Pendulum-v1", {**ON_POLICY, "normalise_obs": True, "normalise_reward": True}),
    "curiosity": ("CartPole-v1", ON_POLICY), "rl2": ("Bandits-5x10-v0", {**ON_POLICY, "episodes": 10}),
    "dqn": ("CartPole-v1", {**OFF_POLICY, "prioritised": True, "replay_size": 100}),
    "ddpg": ("Pendulum-v1", OFF_POLICY), "td3": ("Pendulum-v1", OFF_POLICY), "sac": ("Pendulum-v1", OFF_POLICY),
    "trpo": ("CartPole-v1", {**ON_POLICY, "normalise_obs": True, "normalise_reward": True}),
    "rainbow": ("CartPole-v1", {**OFF_POLICY, "replay_size": 100}), "sac_discrete": ("CartPole-v1", OFF_POLICY),
    "her": ("GoalReacher-v0", OFF_POLICY), "param_noise": ("CartPole-v1", OFF_POLICY),
    "self_play": ("TicTacToe-v0", {**ON_POLICY, "num_envs": 8})}


def observed(policy):
    return policy.observation_space.sample()


# Catches: a tensor that stays on the other device, at first or after a checkpoint is loaded.
@pytest.mark.parametrize("name", RUNS)
def test_agent_trains_and_resumes(name, device, tmp_path):
    env, settings = RUNS[name]
    train = getattr(spinup, name)
    first = train(env, **TINY, **settings, device=str(device), log_dir=str(tmp_path))
    assert first.status == "finished" and next(first.policy.module.parameters()).device.type == device.type
    longer = {**settings, "total_steps": 2 * settings["total_steps"]}
    again = train(env, **TINY, **longer, device=str(device), log_dir=str(tmp_path), resume=first.directory)
    assert again.status == "finished" and again.progress["steps"][-1] == 2 * settings["total_steps"]
    loaded = spinup.load(first.directory)
    assert {p.device.type for p in loaded.module.parameters()} == {"cpu"}
    loaded.act(observed(loaded))


# Catches: a dataset, a policy that acts, or a window of observations on the other device.
@pytest.mark.parametrize("name, env", [("bc", "Pendulum-v1"), ("td3_bc", "Pendulum-v1"), ("iql", "Pendulum-v1"),
                                       ("cql", "CartPole-v1"), ("decision_transformer", "CartPole-v1")])
def test_agent_learns_from_a_dataset(name, env, device, tmp_path):
    record([f"random:{env}"], tmp_path / "d.npz", steps=100, noise=[0.0], stochastic=False, seed=1)
    size = {"layers": 1, "width": 8} if name == "decision_transformer" else {"hidden": (16, 16)}
    run = getattr(spinup, name)(data=str(tmp_path / "d.npz"), **TINY, **size, total_steps=20, batch_size=8,
                                test_episodes=1, device=str(device), log_dir=str(tmp_path))
    assert run.status == "finished" and next(run.policy.module.parameters()).device.type == device.type
    loaded = spinup.load(run.directory, str(device))
    assert loaded.act(observed(loaded)) in loaded.action_space


# Catches: an update whose result on a GPU differs from that on the CPU by more than rounding.
def test_one_update_equals_that_of_the_cpu(device, tmp_path):
    found = []
    for number, where in enumerate(("cpu", str(device))):
        run = spinup.ppo("CartPole-v1", **TINY, total_steps=64, num_envs=4, rollout_steps=16, device=where,
                         log_dir=str(tmp_path / str(number)))
        found.append(torch.cat([p.detach().cpu().flatten() for p in run.policy.module.parameters()]))
    np.testing.assert_allclose(*found, atol=2e-3)


# Catches: work on the first GPU although the second is selected.
@pytest.mark.parametrize("name", ["ppo", "rl2", "sac"])
def test_second_gpu_is_used(name, second, tmp_path):
    env, settings = RUNS[name]
    before = torch.cuda.memory_allocated(0)
    run = getattr(spinup, name)(env, **TINY, **settings, device="cuda:1", log_dir=str(tmp_path))
    assert {p.device for p in run.policy.module.parameters()} == {second}
    assert torch.cuda.memory_allocated(0) == before


# Catches: --compile that works only on the CPU.
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_compiled_update_runs(name, device, tmp_path):
    if device.type == "cpu":
        pytest.skip("needs a CUDA device; tests/algos/test_compiled.py compiles for the CPU")
    env, settings = RUNS[name]
    run = getattr(spinup, name)(env, **TINY, **settings, compile=True, device=str(device), log_dir=str(tmp_path))
    assert run.status == "finished"


# Catches: a recorded update that reads an old batch or old weights, or returns memory that it overwrites.
def test_recorded_update_equals_an_eager_one(device):
    if device.type == "cpu":
        pytest.skip("needs a CUDA device; a CPU records nothing")
    batches = [torch.randn(16, 4, generator=torch.Generator().manual_seed(i)).to(device) for i in range(8)]
    found = []
    for compile in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(device)
        optimizer = FlatAdam(net.parameters(), lr=0.01, max_grad_norm=0.5, compile=compile)
        minimize = optimizer.minimizer(lambda x, net=net: (loss := net(x).square().mean(), {"half": loss.detach() / 2}))
        stats = [minimize(x, lr=0.01 / (i + 1)) for i, x in enumerate(batches)]
        found.append([torch.stack([s[name] for s in stats]) for name in ("loss", "half", "grad_norm")]
                     + [p.detach().flatten() for p in net.parameters()])
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)
