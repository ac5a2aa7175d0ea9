"""Offline runs: their environment, their resume, and what they refuse."""
import json
import shutil

import pytest

import spinup
from spinup.data.dataset import load
from spinup.runs.public import load as load_policy
from spinup.view.record import record

FLAGS = ("--total-steps", "60", "--batch-size", "8", "--hidden", "4", "--test-episodes", "2", "--threads", "1",
         "--no-tensorboard", "--quiet", "--log-dir", "runs")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A dataset of CartPole in the working folder, and its name."""
    monkeypatch.chdir(tmp_path)
    record(["random:CartPole-v1"], tmp_path / "d.npz", steps=200, noise=[0.0], stochastic=False, seed=1,
           load=load_policy)
    return "d.npz"


# Turned red by: an environment that must be named; a measure that is another's; a policy that cannot be evaluated
# without the dataset; a unit of steps that is not said.
def test_a_run_takes_its_environment_from_the_dataset_and_is_evaluated_without_it(data, cli, tmp_path):
    assert cli("cql", "--data", data, "--exp-name", "a", *FLAGS).code == 0
    folder = tmp_path / "runs" / "a" / "a_s1"
    config, result = (json.loads((folder / f"{name}.json").read_text()) for name in ("config", "result"))
    assert config["config"]["env"] == "CartPole-v1" and config["unit"] == "gradient steps"
    assert config["dataset"]["sha256"] == load(data).about["sha256"] and "num_envs" not in config["config"]
    assert result["measure"] == "test_return" and len(result["returns"]) == 2
    (tmp_path / data).unlink()
    assert cli("eval", str(folder), "--episodes", "3").code == 0
    assert cli("plot", str(folder), "--out", str(tmp_path / "p.png")).code == 0


# Turned red by: anything that a checkpoint lacks: a network, an optimiser, a generator.
@pytest.mark.parametrize("name", ["bc", "cql"])
def test_an_extended_run_is_the_same_as_a_long_one(name, data, cli, tmp_path):
    flags = ("--data", data, *FLAGS[2:])
    assert cli(name, "--exp-name", "long", "--total-steps", "60", *flags).code == 0
    assert cli(name, "--exp-name", "short", "--total-steps", "36", *flags).code == 0
    assert cli("resume", str(tmp_path / "runs" / "short"), "--total-steps", "60").code == 0
    long, short = (load_policy(tmp_path / "runs" / kind).module.state_dict() for kind in ("long", "short"))
    assert all((long[key] == short[key]).all() for key in long)


# Turned red by: a traceback; a run that goes on with other data; a folder that is made.
def test_what_does_not_fit_is_refused_in_one_sentence(data, cli, tmp_path):
    done = cli("bc", *FLAGS)
    assert done.code == 2 and "--data is missing; give a dataset" in done.err and not (tmp_path / "runs").exists()
    done = cli("bc", "--data", "none.npz", *FLAGS)
    assert done.code == 2 and "there is no dataset none.npz" in done.err
    done = cli("bc", "--data", data, "--env", "Acrobot-v1", *FLAGS)
    assert done.code == 2 and "differs from that of Acrobot-v1; leave out --env" in done.err
    done = cli("td3_bc", "--data", data, *FLAGS)
    assert done.code == 2 and "td3_bc cannot act in Discrete(2)" in done.err and not (tmp_path / "runs").exists()
    assert cli("bc", "--data", data, "--exp-name", "a", *FLAGS).code == 0
    record(["random:CartPole-v1"], tmp_path / "e.npz", steps=200, noise=[0.0], stochastic=False, seed=2,
           load=load_policy)
    shutil.copy("e.npz", data)
    done = cli("resume", "runs/a", "--total-steps", "90")
    assert done.code == 2 and "was trained on another dataset than d.npz" in done.err


# Turned red by: a default that is the dataset's only on the command line.
def test_from_python_the_environment_is_the_datasets_too(data, tmp_path):
    result = spinup.bc(data=data, total_steps=20, batch_size=8, hidden=(4,), threads=1, quiet=True, tensorboard=False,
                       log_dir=str(tmp_path))
    assert result.measure == "test_return" and len(result.returns) == 10
