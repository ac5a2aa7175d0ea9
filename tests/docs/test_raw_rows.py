"""The raw files of returns come from this code: the first rows of runs in quick environments are reproduced."""
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from spinup.registry import find
from spinup.runs.records import config_from_json

BENCHMARKS = Path(__file__).parents[2] / "docs" / "benchmarks"
QUICK = {"CartPole-v1", "Pendulum-v1"}
ROWS = 3                # rows to train again, at least: two updates of PPO on Pendulum
STEPS = 5_000           # steps to train again, at least: ten updates of PPO on CartPole
LEARNED = 200           # with a replay buffer, steps after `learning_starts` instead: an episode of Pendulum


class Enough(Exception):
    """Raised in the last row of a run that is trained again."""


def is_quick(raw: dict) -> bool:
    """Whether a file holds returns of an environment that is quick to train on."""
    return "E100" in raw and raw["settings"].get("env") in QUICK


RAW = {path.stem: raw for path in sorted(BENCHMARKS.glob("*.json"))
       if is_quick(raw := json.loads(path.read_text(encoding="utf-8")))}


def first_rows(raw: dict, folder: Path) -> list[dict]:
    """The first rows of a run with the settings and the first seed of a raw file."""
    algorithm, rows = find(raw["command"].split()[3]), []
    least = raw["settings"].get("learning_starts", STEPS - LEARNED) + LEARNED

    def keep(row: dict) -> None:
        rows.append(row)
        if len(rows) >= ROWS and row["steps"] >= least:
            raise Enough

    config = replace(config_from_json(algorithm, raw["settings"]), seed=raw["runs"][0]["seed"], log_dir=str(folder),
                     exp_name="", tensorboard=False, quiet=True, on_row=keep)
    with pytest.raises(Enough):
        algorithm.load().train(config)
    return rows


# Catches: another default or preset, another loss, or another order of random numbers than in the table.
@pytest.mark.long("rainbow_CartPole-v1", "ppo_Pendulum-v1", "sac_Pendulum-v1", "ddpg_Pendulum-v1", "td3_Pendulum-v1",
                  "dqn_CartPole-v1", "sac_discrete_CartPole-v1")
@pytest.mark.parametrize("name", RAW)
def test_first_rows_of_a_raw_file_are_reproduced(name, tmp_path):
    rows, curve = first_rows(RAW[name], tmp_path), RAW[name]["runs"][0]["curve"]
    # Processors with other vector units round differently, and the differences grow with the updates.
    processor = torch.backends.cpu.get_cpu_capability()
    told = RAW[name].get("first_rows", {}).get(processor, curve["return_mean_100"][:len(rows)])
    assert [row["steps"] for row in rows] == curve["steps"][:len(rows)]
    again = [row["return_mean_100"] for row in rows]
    told = [np.nan if x is None else x for x in told]
    assert np.isfinite(told[-1])
    np.testing.assert_allclose(again, told, rtol=1e-3, err_msg=f"{name}.json is of older code: measure it again")


# Catches: an empty list of raw files for the test above.
def test_some_raw_files_are_trained_again():
    assert {"ppo_CartPole-v1", "vpg_CartPole-v1"} <= RAW.keys()
