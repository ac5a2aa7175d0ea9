"""Suites: their algorithms, runs and evaluations that are not repeated, and the runs of a peer."""
import json
import os
import re
import shutil
from importlib.metadata import version

import numpy as np
import pytest

from spinup.bench import against, process
from spinup.bench import suite as suite_module
from spinup.bench.compared import read
from spinup.bench.suite import EVALUATION, beside, evaluate, read_evaluation, serving, suite, suites, write_evaluation
from spinup.errors import UserError
from spinup.registry import algorithms, find
from spinup.registry import serving as declared
from spinup.runs.files import read_json
from spinup.runs.offline import OfflineConfig
from spinup.runs.records import read_result
from spinup.view.grid import Grid

SMALL = {"seeds": [1], "envs": ["CartPole-v1"], "algos": ["ppo"], "total_steps": 1024}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("suite")


def of(folder):
    return folder / "ppo_CartPole-v1" / "ppo_CartPole-v1_s1"


# Catches: a list of algorithms in place of that of the registry; an algorithm for board games in CartPole; a missing
# reason.
def test_suite_has_every_algorithm_that_can_train_in_the_environment(tmp_path, capsys):
    files = [algorithm for algorithm in algorithms().values() if not algorithm.variant]
    found = {algorithm.name: config for algorithm, config in serving(files, "CartPole-v1", 50_000, tmp_path).items()}
    offline = {algorithm.name for algorithm in files if issubclass(algorithm.load().Config, OfflineConfig)}
    able = set(declared("Discrete")) - offline
    assert set(found) <= able and len(found) >= len(able) - 2
    assert {"ppo", "dqn", "es"} <= set(found) and not {"sac", "self_play"} & set(found)
    out = capsys.readouterr().out
    assert "without self_play in CartPole-v1: " in out and "without sac in" not in out        # it declares Box only
    assert found["ppo"].total_steps == 50_000 and found["ppo"].lr == 4e-3                      # of its preset
    assert not list(tmp_path.iterdir())


# Catches: `her` in Pendulum, which has no goals, so that its run fails.
@pytest.mark.parametrize("env, goals", [("Pendulum-v1", False), ("GoalReacher-v0", True)])
def test_algorithm_for_goals_is_only_in_environments_with_goals(env, goals, tmp_path):
    files = [algorithm for algorithm in algorithms().values() if algorithm.name in ("her", "td3")]
    assert {algorithm.name for algorithm in serving(files, env, 30_000, tmp_path)} == {"td3", *["her"] * goals}


# Catches: an algorithm of --algos that is left out without a word; a remedy that `spinup bench suite` refuses.
def test_reason_is_printed_for_each_named_algorithm_that_cannot_train(tmp_path, capsys):
    found = serving([find(name) for name in ("td3", "bc", "rl2", "dqn")], "CartPole-v1", 1024, tmp_path, named=True)
    assert [algorithm.name for algorithm in found] == ["dqn"]
    assert capsys.readouterr().out == (
        "without td3 in CartPole-v1: it supports only Box actions\n"
        "without bc in CartPole-v1: it learns from a dataset; `spinup bench paper offline` compares such algorithms\n"
        "without rl2 in CartPole-v1: --total-steps 1024 is less than one batch of 4096 steps\n")


# Catches: an environment whose scores cannot be normalised; a suite without an environment.
@pytest.mark.parametrize("name", suites())
def test_suite_has_steps_and_score_limits_of_each_environment(name):
    for env, about in suites()[name].items():
        assert set(about) == {"steps", "low", "high"} and about["low"] < about["high"] and about["steps"] >= 1, env


def test_suite_trains_and_evaluates_and_repeats_nothing(folder, monkeypatch, capsys):
    assert suite("classic", **SMALL, log_dir=folder) == 0
    out = capsys.readouterr().out
    assert "1/1 runs" in out and f"type: spinup bench report {folder}" in out
    assert re.search(r"^\w+_CartPole-v1 +[\d.]+   mean evaluation of 1 run$", out, re.MULTILINE)
    found = read_json(of(folder) / EVALUATION)
    assert found["episodes"] == len(found["returns"]) == 100 and found["mean"] == np.mean(found["returns"])
    assert read_json(of(folder) / "config.json")["config"]["total_steps"] == 1024
    assert read_json(of(folder) / "result.json")["peak_memory"] > 2**26    # torch alone needs more than 64 MiB

    monkeypatch.setattr(Grid, "start", lambda *_: pytest.fail("a finished run was started"))
    before = (of(folder) / EVALUATION).stat().st_mtime_ns
    assert suite("classic", **SMALL, log_dir=folder) == 0
    assert (of(folder) / EVALUATION).stat().st_mtime_ns == before
    whole = (of(folder) / EVALUATION).read_text()
    (of(folder) / EVALUATION).write_text(json.dumps({**json.loads(whole), "mean": "x"}))
    with pytest.raises(UserError, match="is not the evaluation of a run; delete it"):
        suite("classic", **SMALL, log_dir=folder)
    (of(folder) / EVALUATION).unlink()                                     # killed before it was evaluated
    assert suite("classic", **SMALL, log_dir=folder) == 0
    assert read_json(of(folder) / EVALUATION) == found
    with pytest.raises(UserError, match="total_steps 1024, not 2048; choose another --log-dir"):
        suite("classic", **{**SMALL, "total_steps": 2048}, log_dir=folder)


# Catches: evaluations in two processes that are lost, or written into the folder of another run.
@pytest.mark.long
def test_two_processes_give_the_same_evaluations_as_one(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("spinup.bench.suite.EACH", 1)
    assert suite("classic", **SMALL, log_dir=folder) == 0
    wanted, copies = read_json(of(folder) / EVALUATION), [tmp_path / "a" / "a_s1", tmp_path / "b" / "b_s1"]
    for copy in copies:
        shutil.copytree(of(folder), copy)
        (copy / EVALUATION).unlink()
    evaluate(copies, 2)
    assert [read_json(copy / EVALUATION) | {"directory": ""} for copy in copies] == [wanted | {"directory": ""}] * 2


# Catches: a policy that cannot be evaluated and stops the evaluation of the others, or that is not reported.
def test_failed_evaluation_does_not_stop_the_others(folder, tmp_path, capsys):
    assert suite("classic", **SMALL, log_dir=folder) == 0
    copies = [tmp_path / "a" / "a_s1", tmp_path / "b" / "b_s1"]
    for copy in copies:
        shutil.copytree(of(folder), copy)
        (copy / EVALUATION).unlink()
    (copies[0] / "checkpoint.pt").write_bytes(b"no checkpoint")
    assert evaluate(copies, 1) == 1
    assert [(copy / EVALUATION).exists() for copy in copies] == [False, True]
    assert "not evaluated: " in capsys.readouterr().err


def killed(directory):
    os._exit(9)


# Catches: a traceback if the system kills a process that evaluates.
@pytest.mark.long
def test_killed_evaluation_is_reported(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("spinup.bench.suite.EACH", 1)
    monkeypatch.setattr("spinup.bench.suite.evaluation", killed)
    with pytest.raises(UserError, match="was killed, .*; type the same command with fewer --workers"):
        evaluate([tmp_path / "a", tmp_path / "b"], 2)


# Catches: a peer with more steps than our run; evaluations after Ctrl-C; a failed peer that stops the others.
def test_peer_has_as_many_steps_as_our_run(tmp_path, monkeypatch, capsys):
    given, codes = [], iter([0, 130])

    def run(self):
        for job in self.jobs:
            job.status = "finished"
            job.directory.mkdir(parents=True, exist_ok=True)
            (job.directory / "result.json").write_text(json.dumps({
                "status": "finished", "steps": 960, "seconds": 1, "steps_per_second": 1, "measure": "x", "x": 1}))
        return next(codes)

    def fail(module, what, job, **_):
        given.append(job["total_steps"])
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(Grid, "run", run)
    monkeypatch.setattr(suite_module, "evaluate", lambda *_: given.append("evaluated") or 0)
    monkeypatch.setattr(suite_module, "child", fail)
    asked = {**SMALL, "seeds": [1, 2], "against": "sb3", "log_dir": tmp_path}
    assert suite("classic", **asked) == 1
    assert given == ["evaluated", 960, 960]
    assert "failed: sb3_ppo_CartPole-v1 with seed 2: memory" in capsys.readouterr().err
    folder = tmp_path / "sb3_ppo_CartPole-v1" / "sb3_ppo_CartPole-v1_s2"
    assert read_result(folder)["status"] == "failed"                      # a report counts it
    shutil.rmtree(tmp_path)
    assert suite("classic", **asked) == 130 and given == ["evaluated", 960, 960]


# Catches: a peer for a failed run, which has made fewer steps; a kept peer with another number of steps.
def test_failed_run_has_no_peer_and_a_peer_is_retrained_for_new_steps(tmp_path, monkeypatch):
    outcome, asked = [], []

    def run(self):
        for job in self.jobs:
            job.status = outcome[0]
            job.directory.mkdir(parents=True, exist_ok=True)
            (job.directory / "result.json").write_text(json.dumps({"status": outcome[0], "steps": outcome[1],
                "seconds": 1, "steps_per_second": 1, "measure": "x", "x": 1}))
        return 0

    def train(module, what, job, **_):
        asked.append(job["total_steps"])
        return {**job, "curve": {"steps": [1]}, "versions": {"stable-baselines3": version("stable-baselines3")},
                "steps": job["total_steps"] + 88, "E100": 1.0, "R100": 1.0, "evaluation_returns": [],
                "training_returns": [], "seconds": 1, "peak_memory": 1}

    monkeypatch.setattr(Grid, "run", run)
    monkeypatch.setattr(suite_module, "evaluate", lambda *_: 0)
    monkeypatch.setattr(suite_module, "child", train)
    for status, steps, trained in (("failed", 300, []), ("finished", 960, [960]), ("finished", 960, [960]),
                                   ("finished", 990, [960, 990])):
        outcome[:] = status, steps
        suite("classic", **SMALL, against="sb3", log_dir=tmp_path)
        assert asked == trained


# Catches: all seeds of one algorithm before the next algorithm, so that the first half of a suite has only one
# algorithm.
def test_runs_are_ordered_by_seed(tmp_path, monkeypatch):
    order = []

    def run(self):
        order.extend((job.seed, job.variant) for job in self.jobs)
        return 0
    monkeypatch.setattr(Grid, "run", run)
    suite("classic", seeds=[1, 2], algos=["ppo", "sac"], envs=["Pendulum-v1"], log_dir=tmp_path)
    assert order == [(1, "ppo_Pendulum-v1"), (1, "sac_Pendulum-v1"), (2, "ppo_Pendulum-v1"), (2, "sac_Pendulum-v1")]
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    monkeypatch.setattr(Grid, "run", lambda self: suite("classic", **SMALL, log_dir=tmp_path))
    with pytest.raises(UserError, match="another process is training in"):   # two of them would train the same runs
        suite("classic", **SMALL, log_dir=tmp_path)


@pytest.mark.parametrize("name, given, message", [
    ("classic", {"envs": ["CartPole-v0"]}, "the suite classic has no CartPole-v0. Did you mean 'CartPole-v1'"),
    ("classic", {"algos": ["pppo"]}, "there is no algorithm 'pppo'"),
    ("classic", {"algos": ["sac"], "envs": ["CartPole-v1"]}, "sac cannot train in CartPole-v1 with these set"),
    ("atari", {"against": "sb3"}, "Gymnasium with vector observations, and Pong.* is not one; leave out --against"),
    ("explore", {"against": "sb3"}, "Gymnasium with vector observations, and .* is not one; leave out --against"),
    ("llm", {"against": "sb3"}, "--against sb3 compares agents in environments; leave it out for llm")])
def test_mistakes_are_reported_before_any_run(name, given, message, tmp_path, monkeypatch):
    monkeypatch.setattr(Grid, "run", lambda *_: pytest.fail("a run was started"))
    with pytest.raises(UserError, match=message):
        suite(name, seeds=[1], log_dir=tmp_path, **given)
    assert not list(tmp_path.iterdir())


def test_missing_stable_baselines3_gives_the_pip_command(monkeypatch):
    monkeypatch.setattr(against, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'spinup-rl\[bench\]'"):
        suite("classic", seeds=[1], against="sb3")


# Catches: a peer that is trained twice, without a curve, or in another environment; an algorithm that the peer lacks.
@pytest.mark.long
def test_run_of_a_peer_is_read_like_our_runs(tmp_path, monkeypatch, fork_python):
    fork_python(process)
    runs = [("dqn", "CartPole-v1", 3, 400), ("es", "CartPole-v1", 3, 400)]
    beside(runs, tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["sb3_dqn_CartPole-v1"]
    (run,), failed, others = read([tmp_path])
    steps, returns = run.learning()
    assert (run.curves.algorithm, run.curves.env, run.curves.seed, failed, others) == (
        "sb3 dqn", "CartPole-v1", 3, [], [])
    assert 5 < len(steps) <= 200 and (np.diff(steps) > 0).all() and steps[-1] <= 400 and (returns > 5).all()
    assert 8 <= run.evaluated <= 500 and run.result["steps"] == 400 and "stable-baselines3" in run.about["versions"]
    monkeypatch.setattr(suite_module, "child", lambda *_: pytest.fail("it was trained again"))
    beside(runs, tmp_path, 1)


def test_command_line_passes_its_arguments_to_the_suite(cli, monkeypatch):
    heard = {}
    monkeypatch.setattr(suite_module, "suite", lambda **given: heard.update(given) or 0)
    assert cli("bench", "suite", "classic", "--seeds", "1", "2", "--algos", "ppo", "--env", "CartPole-v1").code == 0
    assert heard == {"name": "classic", "seeds": [1, 2], "workers": 1, "algos": ["ppo"], "envs": ["CartPole-v1"],
                     "total_steps": None, "against": None, "log_dir": None}
    done = cli("bench", "suite", "clasic")
    assert done.code == 2 and "classic" in done.err


# Catches: an evaluation with a path of the machine that made it.
def test_evaluation_contains_no_path_of_this_machine(folder, tmp_path):
    assert suite("classic", **SMALL, log_dir=folder) == 0                 # no training if another test did it
    assert json.loads((of(folder) / EVALUATION).read_text())["directory"] == "ppo_CartPole-v1_s1"
    copy = shutil.copytree(folder, tmp_path / "elsewhere")
    assert read([copy])[0][0].evaluated == read([folder])[0][0].evaluated


# Catches: an evaluation with the 102 returns of whole games of three agents that does not count.
@pytest.mark.parametrize("episodes, counts", [(100, True), (102, True), (99, False)])
def test_evaluation_needs_at_least_a_hundred_episodes(episodes, counts, tmp_path):
    (tmp_path / "result.json").write_text('{"status": "stopped", "steps": 10}')
    write_evaluation(tmp_path, json.dumps({"mean": 1.0, "episodes": episodes}))
    assert (read_evaluation(tmp_path) is not None) == counts
