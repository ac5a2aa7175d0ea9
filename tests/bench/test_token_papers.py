"""Experiments of papers on tokens: the goals of their tables, with folders like those of finished runs."""
import json

import pytest
import torch

from spinup.bench.papers import bandits, es_tokens, rl2_tokens
from spinup.bench.papers import paper as paper_module
from spinup.bench.papers.paper import show
from tests.bench.conftest import finished_run


# Catches: the sum over rows in place of pulls; the best seed; a met goal although a policy without memory reaches it.
@pytest.mark.parametrize("reward, cut, seconds, met", [
    (0.65, 0.5, 100.0, True), (0.6, 0.5, 100.0, False), (0.65, 0.6, 100.0, False), (0.65, 0.5, 400.0, False)])
def test_transformer_must_learn_within_trials_and_in_time(reward, cut, seconds, met, tmp_path, monkeypatch):
    def made(algorithm, subject, seed, log_dir, *flags, label=""):
        folder = finished_run(log_dir / f"{algorithm}{seed}", seconds, steps=[1, 2])
        (folder / "trials.json").write_text(json.dumps({"reward_of_step": [reward] * 10,
                                                        "cut_reward_of_step": [cut] * 10}))
        return folder

    monkeypatch.setattr(rl2_tokens, "run", made)
    monkeypatch.setattr(bandits, "TRIALS", 50)
    monkeypatch.setattr(rl2_tokens, "evaluate", lambda folder: 6.5)
    monkeypatch.setattr(rl2_tokens, "by_pull", lambda folder, env: {"as learned": [0.6] * 10,
                                                                    "wiped at every pull": [0.5] * 10})
    paper, folders = rl2_tokens.measure((1, 2), 1, tmp_path)
    assert show("rl2-tokens", paper, folders, tmp_path / "x.png", tmp_path / "x.json") == (0 if met else 1)
    saved = json.loads((tmp_path / "x.json").read_text())
    assert saved["met"] is met and saved["returns"] == pytest.approx([10 * reward] * 2)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


# Catches: sampled accuracy in place of greedy accuracy; a met goal although both gain and level are too low; seconds
# that count as minutes; the tokens of the last row alone; weights that differ slightly and count as equal.
@pytest.mark.parametrize("start, end, seconds, moved, met", [
    (0.7, 0.91, 500.0, 0.0, True), (0.5, 0.81, 500.0, 0.0, True), (0.7, 0.85, 500.0, 0.0, False),
    (0.7, 0.91, 700.0, 0.0, False), (0.7, 0.91, 500.0, 1e-7, False)])
def test_es_must_gain_in_time_with_any_number_of_processes(start, end, seconds, moved, met, tmp_path, monkeypatch):
    def made(algorithm, subject, seed, log_dir, *flags, label=""):
        return finished_run(log_dir / f"{algorithm}{label}", seconds, steps=[1, 2], held_out_greedy=[start, end],
                            held_out_accuracy=[0.3, 0.4], return_mean_100=[1, 2], tokens_per_second=[10, 20],
                            rollout_seconds=[1, 1], reward_seconds=[0, 1], update_seconds=[1, 0])

    def weights(path):
        return {"parts": {"model": {"w": torch.full((3,), moved * ("es2" in path.parent.name))}}}

    def evaluated(*words):
        greedy = start if words[1].endswith("start") else end
        return json.dumps({"held_out_accuracy": 0.3, "held_out_greedy": greedy})

    monkeypatch.setattr(es_tokens, "run", made)
    monkeypatch.setattr(paper_module, "load_checkpoint", weights)
    monkeypatch.setattr(paper_module, "spinup", evaluated)
    monkeypatch.setattr(es_tokens, "e100", lambda folder: 500.0)
    paper, folders = es_tokens.measure((1,), 1, tmp_path)
    assert show("es-tokens", paper, folders, tmp_path / "x.png", tmp_path / "x.json") == (0 if met else 1)
    saved = json.loads((tmp_path / "x.json").read_text())
    assert saved["met"] is met and saved["cost"]["es"][0]["tokens"] == 60
