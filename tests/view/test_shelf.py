"""The shelf of trained policies: the policies in the package, how a run is added, and what is refused."""
import json

import numpy as np
import pytest
import torch
from PIL import Image

import spinup
from spinup.errors import UserError
from spinup.runs import shelf as files
from spinup.view import shelf
from spinup.view.evaluate import evaluate

ALL = files.policies()


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """An empty shelf for the test. Return the folder of a short run of PPO."""
    for module in (files, shelf):
        monkeypatch.setattr(module, "SHELF", tmp_path / "shelf")
    (tmp_path / "shelf").mkdir()
    return spinup.ppo("CartPole-v1", preset="none", total_steps=2048, hidden=(8, 8), lr=3e-3, seed=4, quiet=True,
                      exp_name="x", log_dir=str(tmp_path / "runs")).directory


# Catches: a file whose weights are not those that reached its stated return.
@pytest.mark.long("trpo-Hopper-v5")
@pytest.mark.parametrize("name", ALL)
def test_policy_reaches_its_stated_return(name):
    about = files.read_about(files.SHELF / f"{name}.safetensors")
    policy, env = spinup.load(f"shelf/{name}"), about["config"]["env"]
    few = evaluate(policy, env, episodes=5)
    spread = np.std(few.returns, ddof=1) / 5 ** 0.5 + abs(about["shelf"]["return"]) / 20
    assert abs(few.mean - about["shelf"]["return"]) < 5 * spread
    assert about["shelf"]["command"].startswith("spinup ") and f"--env {env} --seed" in about["shelf"]["command"]
    assert not {"log_dir", "exp_name", "device"} & about["config"].keys()  # of the training machine


# Catches: a shelf that grows beyond its limit.
def test_shelf_is_within_its_size_limit():
    assert ALL and sum(path.stat().st_size for path in files.SHELF.glob("*")) <= shelf.LARGEST


def test_policy_on_the_shelf_acts_as_its_run_does(mine, cli, tmp_path):
    done = cli("shelf", "add", str(mine))
    file = tmp_path / "shelf" / "ppo-CartPole-v1.safetensors"
    assert (done.code, done.out) == (0, f"{file}\n")
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    ours, theirs = spinup.load("shelf/ppo-CartPole-v1"), spinup.load(mine)
    assert all(torch.equal(x, y) for x, y in zip(ours.module.state_dict().values(),
                                                 theirs.module.state_dict().values(), strict=True))
    assert (ours.act_batch(obs) == theirs.act_batch(obs)).all()
    (row,) = shelf.listed()
    assert row["return"] == evaluate(theirs, "CartPole-v1").mean and row["steps"] == 2048
    assert row["command"].startswith("spinup ppo --env CartPole-v1 --seed 4 ") and "--hidden 8,8" in row["command"]
    found = json.loads(cli("eval", "shelf/ppo-CartPole-v1", "--json").out)
    assert found["mean"] == row["return"]
    out = cli("shelf").out
    assert "shelf/ppo-CartPole-v1: return" in out and row["command"] in out
    tuned = spinup.ppo("CartPole-v1", preset="none", total_steps=1024, hidden=(8, 8), quiet=True, exp_name="y",
                       log_dir=str(tmp_path / "runs"), init="shelf/ppo-CartPole-v1")
    assert tuned.status == "finished"


def test_gallery_has_a_small_gif_of_each_policy(mine, cli, tmp_path):
    shelf.add(mine, "short")
    assert cli("shelf", "gallery", str(tmp_path)).out == f"{tmp_path / 'short.gif'}\n"
    with Image.open(tmp_path / "short.gif") as gif:
        assert gif.width == 150 and 2 <= gif.n_frames <= 120
    assert (tmp_path / "short.gif").stat().st_size <= 300_000


def test_invalid_additions_to_the_shelf_are_refused(mine, tmp_path, monkeypatch):
    shelf.add(mine)
    for name, message in (("", "has a policy ppo-CartPole-v1 already; delete"), ("a/b", "choose a --name of letters")):
        with pytest.raises(UserError, match=message):
            shelf.add(mine, name)
    monkeypatch.setattr(shelf, "LARGEST", 1000)
    with pytest.raises(UserError, match="the shelf would be larger than"):
        shelf.add(mine, "second")
    assert files.policies() == ["ppo-CartPole-v1"]
    (mine / "result.json").write_text(json.dumps({"status": "interrupted", "steps": 1}))
    with pytest.raises(UserError, match="is not a finished run of an agent"):
        shelf.add(mine, "third")


# Catches: a damaged file that is used; code in it that runs; a misspelt name without the nearest one.
def test_damaged_or_missing_policy_gives_one_sentence(mine, cli, tmp_path):
    file = shelf.add(mine)
    done = cli("watch", "shelf/ppo-CartPole-v2", "--gif", "x.gif")
    assert done.code == 2 and "Did you mean 'ppo-CartPole-v1'?" in done.err and done.err.count("\n") == 1
    whole = file.read_bytes()
    for damaged in (b"", whole[:50], whole[:-8], whole[:8] + b"x" + whole[9:], b"\xff" * 8 + whole[8:]):
        file.write_bytes(damaged)
        done = cli("eval", "shelf/ppo-CartPole-v1", "--episodes", "1")
        assert done.code == 2 and done.err.count("\n") == 1, done.err


def test_folder_called_shelf_takes_precedence(mine, tmp_path, monkeypatch):
    shelf.add(mine)
    (tmp_path / "here" / "shelf" / "ppo-CartPole-v1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UserError, match="holds no run"):
        spinup.load("shelf/ppo-CartPole-v1")
