"""The experiment of offline learning: its runs, and the goals of its table."""
import json
import os
from pathlib import Path

import pytest

from spinup.bench.papers import offline
from spinup.bench.papers import paper as paper_module
from spinup.bench.papers.paper import record, show
from spinup.data.dataset import Dataset
from tests.bench.conftest import finished_run


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Replacements for real runs, with these final returns by dataset and algorithm; and the commands that were
    started."""
    ends, asked = {offline.NOISY: {"bc": -800.0, "td3_offline": -150.0, "td3_bc": -500.0, "iql": -400.0},
                   offline.NARROW: {"bc": -800.0, "td3_offline": -1500.0, "td3_bc": -550.0, "iql": -500.0},
                   offline.DISCRETE: {"bc": 150.0, "cql": 200.0}}, []

    def run(algorithm, subject, seed, log_dir, *flags, label=""):
        asked.append((algorithm, subject, seed, flags))
        return finished_run(log_dir / f"{algorithm}+{label}+{subject}+{seed}", steps=[1, 2], test_return=[0.0, 1.0],
                            q=[0.0, 5.0])

    def e100(folder):
        algorithm, label, *_ = folder.name.split("+")
        return ends[label][algorithm]

    monkeypatch.setattr(offline, "run", run)
    monkeypatch.setattr(offline, "e100", e100)
    monkeypatch.setattr("spinup.bench.papers.paper.spinup", lambda *words: asked.append(words))
    monkeypatch.setattr(offline, "load", lambda file: Dataset(*[None] * 6, about={
        "mean_return": -600.0 if "Pendulum" in file.name else 60.0}))
    return ends, asked


# Catches: a comparison with the dataset alone, or with behaviour cloning alone; a met goal although TD3 succeeds; a
# missed goal with exit code 0.
@pytest.mark.parametrize("name, kind, value, met", [
    (offline.NOISY, "td3_bc", -500.0, True), (offline.NOISY, "td3_bc", -700.0, False),
    (offline.NOISY, "iql", -601.0, False), (offline.NARROW, "td3_bc", -900.0, False),
    (offline.NARROW, "td3_offline", -599.0, False), (offline.DISCRETE, "cql", 149.0, False),
    (offline.NOISY, "bc", -300.0, False)])
def test_each_method_must_beat_the_dataset_and_behaviour_cloning(name, kind, value, met, trained, tmp_path):
    trained[0][name][kind] = value
    paper, folders = offline.measure((1, 2), 1, tmp_path / "runs")
    assert show("offline", paper, folders, tmp_path / "o.png", tmp_path / "o.json") == (0 if met else 1)
    saved = json.loads((tmp_path / "o.json").read_text())
    assert saved["returns"][name][kind] == [value] * 2 and len(folders) == 32
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")


# Catches: a method that learns from other data, or from data of another seed.
def test_all_methods_of_a_seed_learn_from_one_dataset(trained, tmp_path):
    offline.measure((3,), 1, tmp_path / "runs")
    records = [words for words in trained[1] if words[0] == "record"]
    files = {words[-1] for words in records}
    assert len(files) == 3 and all("--seed" in words and words[words.index("--seed") + 1] == "3" for words in records)
    learned = [job for job in trained[1] if job[0] in ("bc", "td3_offline", "td3_bc", "iql", "cql")]
    assert len(learned) == 10 and {flags[flags.index("--data") + 1] for *_, flags in learned} == files


# Catches: the old dataset although its policies have been trained again.
def test_dataset_is_recorded_again_for_new_policies(tmp_path, monkeypatch):
    def recorded(*words):
        Path(words[-1]).write_text("data")
        times.append(words)

    policy, times = tmp_path / "ppo_s1" / "result.json", []
    policy.parent.mkdir()
    policy.write_text("{}")
    monkeypatch.setattr(paper_module, "spinup", recorded)
    file = record("mixed", 1, tmp_path, str(policy.parent))
    assert record("mixed", 1, tmp_path, str(policy.parent)) == file and len(times) == 1
    later = file.stat().st_mtime + 1
    os.utime(policy, (later, later))
    assert record("mixed", 1, tmp_path, str(policy.parent)) == file and len(times) == 2
