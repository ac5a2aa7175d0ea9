"""The experiment of the recipes: the goals of its table, with reports like those of finished recipes."""
import json

import pytest

from spinup.bench.papers import recipes
from spinup.bench.papers.paper import show
from tests.bench.conftest import finished_run

STAGES = {"r1": ("base", "cold_start", "reasoning", "rejection", "general"), "qwq": ("base", "verified", "general"),
          "llama3": ("base", *(f"{kind}_{r}{end}" for kind in ("best", "random") for r in (1, 2, 3)
                               for end in ("", "_dpo"))),
          "instructgpt": ("sft", "reward_model", "ppo", "ppo_ptx")}


@pytest.fixture
def reports(tmp_path, monkeypatch):
    """Reports of finished recipes, whose numbers a test can change before they are read."""
    made = {}
    for name, stages in STAGES.items():
        rows = []
        for stage in stages:
            folder = finished_run(tmp_path / f"{name}_{stage}")
            rows.append({"stage": stage, "directory": str(folder), "from": None, "seconds": 30.0,
                         "after": {"steps": 0.9, "counts": 0.5, "taste": 1.0, recipes.OLD: 0.8}})
        made[name] = {"stages": rows}
    after = {(name, row["stage"]): row["after"] for name, report in made.items() for row in report["stages"]}
    after["qwq", "verified"] |= {"steps": 0.95, "counts": 0.25}
    after["qwq", "general"] |= {"steps": 0.94, "counts": 0.5}
    for r in (0, 1, 2, 3):
        after["llama3", f"best_{r}_dpo" if r else "base"]["steps"] = 0.2 + 0.2 * r
        after["llama3", f"random_{r}_dpo" if r else "base"]["steps"] = 0.2 + 0.1 * r
    monkeypatch.setattr(recipes, "run_recipe", lambda name, seed, log_dir: made[name])
    return made, after


# Catches: a loss of accuracy with the wrong sign; a round that is compared with the base model; seconds that count as
# minutes; a goal for the control experiment.
@pytest.mark.parametrize(("name", "stage", "change", "missed"), [
    ("qwq", "general", {}, ""), ("qwq", "general", {"counts": 0.44}, "points that stage 2 gains"),
    ("qwq", "general", {"steps": 0.92}, "points that stage 2 loses"), ("qwq", "general", {"steps": 0.99}, ""),
    ("llama3", "best_2_dpo", {"steps": 0.39}, "points gained in round 2"),
    ("llama3", "best_3_dpo", {"steps": 0.6}, "points gained in round 3"),
    ("llama3", "random_1_dpo", {"steps": 0.45}, "points gained in round 1"),
    ("llama3", "random_2_dpo", {"steps": 0.1}, "points gained in round 3"), ("r1", "", {}, "r1: minutes")])
def test_each_change_misses_only_its_own_goal(name, stage, change, missed, reports, tmp_path):
    made, after = reports
    if stage:
        after[name, stage] |= change
    else:
        made[name]["stages"][0]["seconds"] = 500.0
    paper, folders = recipes.measure((1, 2), 1, tmp_path)
    failed = [line.what for line in paper.lines if not line.met]
    assert [missed in what for what in failed] == [True] * bool(missed)
    assert show("recipes", paper, folders, tmp_path / "x.png", tmp_path / "x.json") == (1 if missed else 0)
    saved = json.loads((tmp_path / "x.json").read_text())
    assert saved["rounds"]["best"][0] == [0.2, 0.2] and str(tmp_path) not in json.dumps(saved["reports"])
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
