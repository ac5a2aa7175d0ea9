"""Settings and messages of compiled updates. `tests/core/fast/test_adam.py` tests the update itself."""
import numpy as np
import pytest
import torch

from spinup import es, param_noise, rl2, sac
from spinup.core.fast.acting import NumpyMLPs
from spinup.errors import UserError


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """Settings of a run with compiled updates. Compilation returns the function unchanged, because it takes a minute.
    """
    monkeypatch.setattr(torch, "compile", lambda step, **_: step)
    monkeypatch.setattr("spinup.runs.run.check_compile", lambda: None)
    return {"compile": True, "preset": "none", "tensorboard": False, "log_dir": str(tmp_path), "hidden": (8, 8)}


# Catches: a perturbation of the weights from the time when the optimiser was made.
@pytest.mark.long
def test_parameter_noise_perturbs_the_learned_weights(settings, monkeypatch):
    put, seen = NumpyMLPs.put, []
    monkeypatch.setattr(NumpyMLPs, "put", lambda self, i, theta: (seen.append(np.array(theta)), put(self, i, theta)))
    result = param_noise("CartPole-v1", total_steps=1000, learning_starts=100, sigma=1e-6, lr=1e-3, **settings)
    learned = torch.cat([p.detach().reshape(-1) for p in result.policy.module.advantage.parameters()]).numpy()
    assert abs(seen[-1] - seen[0]).max() > 0.01 and abs(seen[-1] - learned).max() < abs(seen[-1] - seen[0]).max()


# Catches: a fixed temperature among the optimised parameters, although no loss depends on it.
@pytest.mark.long
def test_compiled_sac_supports_a_fixed_temperature(settings, capsys):
    result = sac("Pendulum-v1", total_steps=600, learning_starts=400, batch_size=32, learn_alpha=False, **settings)
    assert set(result.progress["alpha"]) == {result.progress["alpha"][0]}
    assert capsys.readouterr().out.count("compiled; the first update, with compilation, took") == 1


@pytest.mark.parametrize(("train", "words"), [(es, "es does not support --compile, because it runs in NumPy"),
                                              (rl2, "--compile does not work with rl2: trial boundaries")])
def test_algorithms_without_compilation_refuse_compile(train, words, tmp_path):
    with pytest.raises(UserError, match=f"{words}.*; leave out --compile"):
        train("CartPole-v1", compile=True, log_dir=str(tmp_path))
    assert not list(tmp_path.iterdir())
