"""The best policy by test episodes, kept beside the last one."""
import json

import pytest
import torch

import spinup
from spinup.algos import ppo
from spinup.errors import UserError
from spinup.family import load
from spinup.runs.best import Best
from spinup.runs.records import read_run
from spinup.runs.run import Run
from spinup.runs.training import Training

TINY = {"env": "CartPole-v1", "total_steps": 4096, "num_envs": 4, "rollout_steps": 32, "test_episodes": 3,
        "checkpoint_steps": 512, "lr": 0.02, "anneal": False, "keep_best": True, "quiet": True, "tensorboard": False}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose policies are all remembered as they were tested; and its test returns."""
    monkeypatch.setattr(Training, "epochs", 16)
    tested, test = {}, Run._test

    def noted(self):
        row = test(self)
        tested[self.steps] = {k: v.clone() for k, v in self.parts["policy"].state_dict().items()}
        return row

    monkeypatch.setattr(Run, "_test", noted)
    result = ppo.train(ppo.Config(log_dir=tmp_path.as_posix(), exp_name="a", **TINY))
    return result, tested


# Catches: the last policy, or the latest of the best ones; weights that training goes on to change; a result of
# the run that is the best one's.
@pytest.mark.long
def test_the_best_is_that_of_the_highest_test_return(run, cli):
    result, tested = run
    returns = result.progress["test_return"]
    at = returns.index(max(returns))
    steps = int(result.progress["steps"][at])
    assert 0 < at < len(returns) - 1                                      # so that it is neither the first nor the last
    best, last = load(result.directory, best=True), load(result.directory)
    for policy, then in (best, tested[steps]), (last, tested[4096]):
        assert all(torch.equal(x, then[name]) for name, x in policy.module.state_dict().items())
    found = json.loads(cli("eval", result.directory, "--best", "--json", "--episodes", 20).out)
    assert (found["best_steps"], found["best_test_return"]) == (steps, pytest.approx(max(returns)))
    plain = json.loads(cli("eval", result.directory, "--json", "--episodes", 20).out)
    assert "best_steps" not in plain and plain["returns"] != found["returns"]
    words = cli("eval", result.directory, "--best", "--episodes", 3).out
    assert "not the run's result" in words and f"step {steps:,}" in words
    told = json.loads((result.directory / "result.json").read_text())
    assert max(returns) not in told.values() and read_run(result.directory)["config"]["keep_best"] is True


# Catches: a best policy that a resumed run forgets, or finds anew.
@pytest.mark.long
def test_a_resumed_run_remembers_it(run, tmp_path):
    result, _ = run

    def fail(row):
        if row["steps"] > 3000:
            raise RuntimeError("the power is off")

    with pytest.raises(RuntimeError, match="power"):
        ppo.train(ppo.Config(log_dir=tmp_path.as_posix(), exp_name="b", on_row=fail, **TINY))
    again = ppo.train(ppo.Config(log_dir=tmp_path.as_posix(), exp_name="b", **TINY), resume=tmp_path / "b/b_s1")
    one, other = (load(r.directory, best=True).module.state_dict() for r in (result, again))
    assert all(torch.equal(x, other[name]) for name, x in one.items())


def test_of_equal_ones_the_first_is_kept():
    best, net = Best(), torch.nn.Linear(1, 1)
    for steps, value in enumerate([1.0, 3.0, 3.0, 2.0]):
        best.consider(value, steps, net)
    assert (best.steps, best.test_return) == (1, 3.0)


# Catches: a choice without test episodes; a traceback for a run that kept none.
def test_what_is_missing_is_said(tmp_path):
    given = {**TINY, "log_dir": tmp_path.as_posix(), "total_steps": 256}
    with pytest.raises(UserError, match="add --test-episodes"):
        spinup.ppo(**{**given, "test_episodes": 0})
    assert not list(tmp_path.iterdir())
    plain = spinup.ppo(**{**given, "keep_best": False, "test_episodes": 0})
    with pytest.raises(UserError, match="kept no best policy; train with --keep-best and --test-episodes"):
        load(plain.directory, best=True)
