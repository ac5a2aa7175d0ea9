"""The experiment with HER and without it: the goals of its table, and the success rate in new episodes."""
import json
from types import SimpleNamespace

import numpy as np
import pytest

from spinup.bench.papers import her
from spinup.bench.papers.paper import show
from tests.bench.conftest import finished_run


# Catches: the mean over seeds with HER; the lowest seed without it; a missed goal with exit code 0.
@pytest.mark.parametrize("reached, met", [
    ({"her": [0.95, 0.9], "ddpg": [0.5, 0.0]}, True), ({"her": [0.99, 0.89], "ddpg": [0.0, 0.0]}, False),
    ({"her": [0.95, 0.95], "ddpg": [0.3, 0.4]}, False)])
def test_her_must_succeed_where_ddpg_fails(reached, met, tmp_path, monkeypatch):
    def made(algorithm, env, seed, log_dir, *flags):
        return finished_run(log_dir / algorithm / str(seed), steps=range(9), success=[1.0] * 9)

    monkeypatch.setattr(her, "run", made)
    monkeypatch.setattr(her, "success", lambda folder: reached[folder.parent.name][int(folder.name) - 1])
    paper, folders = her.measure((1, 2), 1, tmp_path / "runs")
    assert show("her", paper, folders, tmp_path / "h.png", tmp_path / "h.json") == (0 if met else 1)
    assert json.loads((tmp_path / "h.json").read_text())["success"] == reached
    assert (tmp_path / "h.png").read_bytes().startswith(b"\x89PNG")


# Catches: the goals of training; success at any step in place of the last step.
@pytest.mark.long
def test_success_is_measured_at_the_end_of_new_episodes(tmp_path, monkeypatch):
    asked = []

    def act_batch(obs):
        asked.append(obs.copy())
        return np.zeros((len(obs), 2), np.float32)

    monkeypatch.setattr(her, "load", lambda folder: SimpleNamespace(act_batch=act_batch))
    stays = her.success(tmp_path)
    near = np.linalg.norm(asked[0][:, :2] - asked[0][:, 2:4], axis=1) <= 0.05
    assert len(asked) == 50 and len(asked[0]) == her.EPISODES and stays == near.mean() < 0.05
