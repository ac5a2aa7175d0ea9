"""The policy with the highest test return, kept beside the last one."""
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
    """The result of a run, and the weights of each tested policy by its step."""
    monkeypatch.setattr(Training, "epochs", 16)
    tested, test = {}, Run._test

    def noted(self):
        row = test(self)
        tested[self.steps] = {k: v.clone() for k, v in self.parts["policy"].state_dict().items()}
        return row

    monkeypatch.setattr(Run, "_test", noted)
    result = ppo.train(ppo.Config(log_dir=tmp_path.as_posix(), exp_name="a", **TINY))
    return result, tested


# Catches: the last policy, or the last of several equally good ones; weights that later training changes; the best test
# return as the result of the run.
@pytest.mark.long
def test_best_policy_is_that_with_the_highest_test_return(run, cli):
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
    shown = [cli("watch", result.directory, *best, "--gif", "a.gif").out for best in ([], ["--best"])]
    assert shown[0] != shown[1] and all("return " in words for words in shown)
    words = cli("eval", result.directory, "--best", "--episodes", 3).out
    assert "not the run's result" in words and f"step {steps:,}" in words
    told = json.loads((result.directory / "result.json").read_text())
    assert max(returns) not in told.values() and read_run(result.directory)["config"]["keep_best"] is True


# Catches: a best policy that is missing in the checkpoint, or that a resumed run selects from its own steps alone.
@pytest.mark.long
def test_resumed_run_keeps_the_best_policy(run, tmp_path):
    result, _ = run

    def fail(row):
        if row["steps"] > 3000:
            raise RuntimeError("the power is off")

    with pytest.raises(RuntimeError, match="power"):
        ppo.train(ppo.Config(log_dir=tmp_path.as_posix(), exp_name="b", on_row=fail, **TINY))
    again = ppo.train(ppo.Config(log_dir=tmp_path.as_posix(), exp_name="b", **TINY), resume=tmp_path / "b/b_s1")
    one, other = (load(r.directory, best=True).module.state_dict() for r in (result, again))
    assert all(torch.equal(x, other[name]) for name, x in one.items())


def test_first_of_equally_good_policies_is_kept():
    best, net = Best(), torch.nn.Linear(1, 1)
    for steps, value in enumerate([1.0, 3.0, 3.0, 2.0]):
        best.consider(value, steps, net)
    assert (best.steps, best.test_return) == (1, 3.0)


# Catches: --keep-best without test episodes; a traceback for a run that kept no best policy.
def test_missing_test_episodes_and_missing_best_policy_are_errors(tmp_path):
    given = {**TINY, "log_dir": tmp_path.as_posix(), "total_steps": 256}
    with pytest.raises(UserError, match="add --test-episodes"):
        spinup.ppo(**{**given, "test_episodes": 0})
    assert not list(tmp_path.iterdir())
    plain = spinup.ppo(**{**given, "keep_best": False, "test_episodes": 0})
    with pytest.raises(UserError, match="kept no best policy; train with --keep-best and --test-episodes"):
        load(plain.directory, best=True)
