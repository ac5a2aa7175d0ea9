"""Bandits and MDPs in tensors, compared step by step with those in arrays, with the same random numbers."""
import numpy as np
import pytest
import torch

from spinup.algos import rl2
from spinup.envs import make
from spinup.envs.make import ON_DEVICE
from spinup.envs.memory import Memory
from spinup.envs.worlds.tasks import DeviceTasks
from spinup.envs.worlds.trials import Bandits, TabularMDPs
from spinup.errors import UserError

CPU = torch.device("cpu")
CASES = {"Bandits-5x10-v0": (Bandits, (5, 10), 10), "TabularMDPs-10-v0": (TabularMDPs, (10,), 10)}


def both(name: str, n: int = 6, seed: int = 3):
    kind, sizes, episodes = CASES[name]
    return make(name, n, seed, episodes=episodes), DeviceTasks(kind, sizes, n, seed, episodes, CPU)


def check_step(arrays, tensors, action):
    wanted, found = arrays.step(action), tensors.step(torch.from_numpy(action))
    for name in ("obs", "reward", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(found, name).numpy(), getattr(wanted, name), name)
    assert (found.final_obs is None) == (wanted.final_obs is None)
    if found.final_obs is not None:
        np.testing.assert_array_equal(found.final_obs.numpy(), wanted.final_obs)


# Catches: the cell of the next state; the reward in the cell of another action; a missing flag of an episode end; a
# trial that ends a step late; a reset that samples no new tasks, or samples them twice; a state that is not saved.
@pytest.mark.parametrize("name", CASES)
def test_tensors_match_arrays_step_by_step(name):
    arrays, tensors = both(name)
    np.testing.assert_array_equal(tensors.reset().numpy(), arrays.reset())
    assert tensors.observation_space == arrays.observation_space and tensors.obs.dtype == torch.float32
    rng, steps = np.random.default_rng(0), tensors.trials.steps
    for t in range(5 * steps // 2):
        if t == steps + 3:                                                # in the middle of the second trial
            state, (_, tensors) = tensors.state_dict(), both(name, seed=99)
            tensors.reset()
            tensors.load_state_dict(state)
        check_step(arrays, tensors, rng.integers(0, 5, 6))
    wanted, found = arrays.take_finished(), tensors.take_finished()
    assert [n for _, n in found] == [n for _, n in wanted] == [steps] * 12
    np.testing.assert_allclose([r for r, _ in found], [r for r, _ in wanted], rtol=1e-5)
    assert tensors.take_finished() == []


# Catches: different numbers in a training with tensors; episode ends in another order; noise of other steps.
@pytest.mark.long("TabularMDPs-10-v0")
@pytest.mark.parametrize("name", CASES)
def test_training_in_tensors_matches_training_in_arrays(name, tmp_path, monkeypatch):
    found = []
    for in_tensors in (False, True):
        monkeypatch.setattr(rl2, "make_env", lambda cfg, i=in_tensors: both(name, 4)[i])
        cfg = rl2.Config(env=name, episodes=10, num_envs=4, rollout_steps=25, epochs=1, minibatches=2, hidden_size=8,
                         total_steps=1000, checkpoint_steps=300, quiet=True, threads=1, tensorboard=False,
                         log_dir=str(tmp_path), exp_name=f"{in_tensors}")
        found.append(rl2.train(cfg).progress)
    for column in found[0].keys() - {"wall_seconds", "steps_per_second"}:
        np.testing.assert_allclose(found[0][column], found[1][column], rtol=1e-5, err_msg=column)
    assert sum(found[0]["episodes"]) == 4 * (250 // (10 * CASES[name][0].horizon))


# On the device "meta", tensors have no values, so a read raises an error. Catches: `if done.any()`, a mask as an index,
# `.item()`: each makes the CPU wait for the GPU.
def test_step_reads_no_value_of_a_tensor():
    _, env = both("Bandits-5x10-v0")
    env.trials = Bandits(6, 5, 10, "meta", None)
    env.reset()
    for _ in range(25):
        step = env.step(torch.zeros(6, dtype=torch.long, device="meta"))
        assert {x.device.type for x in step if isinstance(x, torch.Tensor)} == {"meta"}
    assert len(env.totals) == 2


# Catches: tensors on the CPU, where arrays are faster; arrays on a GPU; tensors for an environment that has only
# arrays.
def test_device_selects_tensors_or_arrays(monkeypatch):
    made = []
    assert type(make("Bandits-5x10", 2, episodes=10, device=CPU)) is Memory
    assert type(make("CartPole-v1", 2, episodes=2, device=torch.device("cuda"))) is Memory
    monkeypatch.setitem(ON_DEVICE, "Bandits-5x10-v0", lambda *given: made.append(given))
    make("Bandits-5x10", 2, 7, episodes=10, device=torch.device("cuda"))
    assert made == [(2, 7, 10, torch.device("cuda"))]
    with pytest.raises(UserError, match="type --episodes 10"):
        DeviceTasks(Bandits, (5, 10), 2, 1, 3, CPU)
