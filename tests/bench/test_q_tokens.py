"""The experiment of Q-learning on tokens: its runs, and the goals of its table."""
import json

import pytest

from spinup.bench.papers import q_tokens
from spinup.bench.papers.paper import show
from tests.bench.conftest import finished_run


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Replacements for real runs, with these final accuracies by label; and the commands that were started."""
    ends, asked = {"ilql": 0.8, "rejection": 0.9, "greedy": 0.3, "start": 0.35}, []

    def run(algorithm, subject, seed, log_dir, *flags, label=""):
        asked.append((algorithm, subject, seed, label, flags))
        columns = {"steps": [1, 2], "return_mean_100": [20.0, 400.0], "held_out_accuracy": [0.35, ends.get(label, 0)],
                   "held_out_greedy": [0.5, 0.9], "reward": [0.3, 0.3]}
        return finished_run(log_dir / f"{label or 'classic'}_{seed}", 120.0, {"start": str(tmp_path / f"start_{seed}")},
                            **columns)

    monkeypatch.setattr(q_tokens, "run", run)
    monkeypatch.setattr(q_tokens, "e100", lambda folder: 500.0)
    monkeypatch.setattr(q_tokens, "accuracy", lambda folder, which="": ends[folder.name.rpartition("_")[0]])
    return ends, asked


# Catches: the mean over seeds in place of the lowest seed; a goal for rejection sampling; a missed goal with exit code
# 0.
@pytest.mark.parametrize("reached, met", [(0.71, True), (0.69, False)])
def test_only_ilql_has_an_accuracy_goal(reached, met, trained, tmp_path):
    trained[0]["ilql"] = reached
    paper, folders = q_tokens.measure((1, 2), 1, tmp_path / "runs")
    assert show("q-tokens", paper, folders, tmp_path / "q.png", tmp_path / "q.json") == (0 if met else 1)
    saved = json.loads((tmp_path / "q.json").read_text())
    assert saved["accuracy"]["ilql"] == [reached] * 2 and saved["initial"] == [0.35] * 2
    assert (tmp_path / "q.png").read_bytes().startswith(b"\x89PNG") and len(folders) == 8


# Catches: another number of responses, or of samples per prompt, for one of the methods; wrong seeds.
def test_all_methods_learn_from_the_same_responses(trained, tmp_path):
    q_tokens.measure((3,), 1, tmp_path / "runs")
    tokens = [job for job in trained[1] if job[1] == "reverse"]
    assert {job[0] for job in tokens} == {"llm dqn", "llm best_of_n"} and len(tokens) == 3
    for _, _, seed, _, flags in tokens:
        assert seed == 3 and flags[:4] == ("--data", "20000", "--samples", "1")
