"""The experiment of DRIFT: its runs, the number of their tokens, and the goals of its table."""
import json

import pytest
import torch

from spinup.bench.papers import drift
from spinup.bench.papers.paper import show
from tests.bench.conftest import finished_run

ENDS = {"drift": 0.9, "plain": 0.75, "discount": 0.9, "turns": 0.8, "best": 0.7, "reinforce": 0.95,
        "start": 0.4}


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Replacements for real runs, with these final accuracies by label; and the commands that were started."""
    ends, asked = dict(ENDS), []

    def run(algorithm, subject, seed, log_dir, *flags, label=""):
        asked.append((algorithm, subject, seed, label, flags))
        settings = {"data": 16_000} if "--data" in flags else {"data": 0, "prompts": 32, "samples": 8}
        return finished_run(log_dir / f"{label}_{seed}", steps=[10, 30], held_out_accuracy=[0.4, ends[label]],
                            length=[20.0, 10.0], about={"config": settings, "start": str(tmp_path / f"start_{seed}")})

    monkeypatch.setattr(drift, "run", run)
    monkeypatch.setattr(drift, "accuracy", lambda folder: ends[folder.name.rpartition("_")[0]])
    data = {"lengths": torch.full((100,), 300)}
    monkeypatch.setattr(drift, "load_checkpoint", lambda path: {"parts": {"data": data}})
    return ends, asked


# Catches: a gain over a wrong method, or a share of one; a limit that is missed and counts as met; a missed goal with
# exit code 0.
@pytest.mark.parametrize("changed, met", [({}, True), ({"plain": 0.81}, False), ({"discount": 0.99}, True),
                                          ({"reinforce": 1.01}, False), ({"best": 0.99}, True)])
def test_goals_compare_drift_with_imitation_and_reinforce(changed, met, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(drift, "distance_from_closed_form", lambda: 0.001)
    trained[0].update(changed)
    paper, folders = drift.measure((1, 2), 1, tmp_path / "runs")
    assert show("drift", paper, folders, tmp_path / "d.png", tmp_path / "d.json") == (0 if met else 1)
    saved = json.loads((tmp_path / "d.json").read_text())
    assert saved["success"]["drift"] == [0.9] * 2 and saved["initial"] == [0.4] * 2
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")


# There are 256 responses per update. 10 updates have 20 tokens per response, the next 20 updates have 10. Catches:
# updates of a row that are counted from the beginning of the run; a count without the responses per prompt; the tokens
# of training in place of the sampled tokens.
def test_tokens_are_those_of_the_sampled_games(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(drift, "distance_from_closed_form", lambda: 0.02)
    paper, folders = drift.measure((1,), 1, tmp_path / "runs")
    assert paper.raw["tokens"]["drift"] == [30_000.0]
    assert paper.raw["curves"]["reinforce"][0]["tokens"] == [51_200.0, 102_400.0]
    lines = {line.what: line for line in paper.lines}
    cost = lines["tokens of DRIFT as a share of those of REINFORCE"]
    assert cost.met and cost.ours == pytest.approx(30_000 / 102_400)
    assert lines["success of REINFORCE after the tokens of DRIFT"].ours == 0.4        # 30,000 is before its first row
    assert not lines["testbed: nats from the closed form to weighted imitation"].met


# Catches: the first row above a success rate in place of the interpolation between the rows.
def test_tokens_until_a_success_rate_are_interpolated():
    curve = {"tokens": [10.0, 20.0, 30.0], "held_out_accuracy": [0.5, 0.7, 0.9]}
    assert [drift.until(curve, x) for x in (0.4, 0.6, 0.9, 0.95)] == pytest.approx([10, 15, 30, 30])


# Catches: other data for one of the methods; wrong seeds.
def test_methods_with_fixed_data_learn_from_the_same_responses(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(drift, "distance_from_closed_form", lambda: 0.001)
    drift.measure((3,), 1, tmp_path / "runs")
    assert {label for *_, label, flags in trained[1] if flags[:8] == drift.DATA} == set(drift.FIXED)
    assert {seed for _, _, seed, _, _ in trained[1]} == {3} and len(drift.FIXED) == 4


# Catches: weights that are missing in the loss; a reward that is multiplied by beta in place of divided.
def test_weighted_imitation_reaches_the_closed_form():
    assert drift.distance_from_closed_form() < 1e-3
