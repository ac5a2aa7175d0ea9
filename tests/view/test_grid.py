"""Grids: which runs they contain, which are skipped, resumed or refused, and what an interruption leaves."""
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

import pytest
from filelock import FileLock

from spinup.algos import ppo
from spinup.errors import UserError
from spinup.machine import git_revision
from spinup.registry import find
from spinup.runs.files import read_json, write_json
from spinup.runs.flags import from_flags
from spinup.runs.log import read_progress
from spinup.runs.records import config_to_json
from spinup.view import process
from spinup.view.grid import Grid, grid, summary
from spinup.view.jobs import Job, check_job, expand, plan

SMALL = {"num-envs": ["4"], "tensorboard": ["false"], "rollout-steps": ["32"], "hidden": ["8,8"], "no-anneal": []}


def check(flags: dict[str, str]) -> ppo.Config:
    return from_flags(find("ppo"), [f"--{k}={v}" if v else f"--{k}" for k, v in flags.items()])[0]


def described(flags: dict[str, str]) -> dict:
    return {"algorithm": "ppo", "measure": "return_mean_100", "config": config_to_json(check(flags))}


def names(settings: dict[str, list[str]]) -> list[str]:
    return [str(job.directory.as_posix()) for job in plan("ppo", settings)]


def test_expand_gives_the_product_of_all_values_as_typed():
    assert expand({"lr": ["1e-3", "3e-4", "1e-3"], "env": ["CartPole-v1"], "no-anneal": []}) == [
        {"lr": "1e-3", "env": "CartPole-v1", "no-anneal": ""}, {"lr": "3e-4", "env": "CartPole-v1", "no-anneal": ""}]
    assert [v["a"] + v["b"] for v in expand({"a": ["1", "2"], "b": ["x", "y"]})] == ["1x", "1y", "2x", "2y"]
    assert expand({}) == [{}]


def test_names_contain_the_varied_settings_and_suit_any_file_system():
    settings = {"env": ["ALE/Pong-v5"], "seed": ["0", "1", "1"], "clip-ratio": ["0.1", "0.2"], "gamma": ["0.9"]}
    variants = [f"ppo_ALE-Pong-v5_grid_clip-ratio{c}" for c in ("0.1", "0.2")]
    assert names({**settings, "log-dir": ["there"]}) == [f"there/{v}/{v}_s{s}" for v in variants for s in (0, 1)]
    assert names({"env": ["CartPole-v1", "a:B/C-v0"], "exp-name": ["x"]}) == [
        "runs/x_envCartPole-v1/x_envCartPole-v1_s1", "runs/x_enva-B-C-v0/x_enva-B-C-v0_s1"]
    flags = plan("ppo", {"hidden": ["64,64"], "no-anneal": [], "seed": ["3"]})[0].flags
    assert flags == {"hidden": "64,64", "no-anneal": "", "exp-name": "ppo_grid", "log-dir": "runs",
                     "seed": "3", "quiet": ""}


@pytest.mark.parametrize("settings, message", [
    ({"env": ["a/b", "a:b"]}, "both be called ppo_grid_enva-b"),
    ({"exp-name": ["x", "y"]}, "--exp-name takes one value"),
    ({"exp-name": ["x/y"]}, "--exp-name must be the name of a folder"),
    ({"seed": ["one"]}, "--seed must be a whole number")])
def test_invalid_names_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        plan("ppo", settings)


def test_one_invalid_variant_prevents_all_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(Grid, "start", lambda *_: pytest.fail("a run was started"))
    with pytest.raises(UserError, match="--gamma must be from 0 to 1, not 7"):
        grid("ppo", {"gamma": ["0.9", "7"], "log-dir": [str(tmp_path)]}, workers=2, check=check)
    assert not list(tmp_path.iterdir())


# Catches: an environment that is made once for each seed.
def test_settings_are_checked_once_for_each_variant(tmp_path, monkeypatch):
    monkeypatch.setattr(Grid, "run", lambda self: 0)
    asked = []
    settings = {"gamma": ["0.9", "0.99"], "seed": ["3", "4", "5"], "log-dir": [str(tmp_path)]}
    assert grid("ppo", settings, workers=2, check=lambda flags: asked.append(flags) or check(flags)) == 0
    assert sorted((flags["gamma"], flags["seed"]) for flags in asked) == [("0.9", "3"), ("0.99", "3")]


def test_folder_with_other_settings_is_neither_skipped_nor_resumed(tmp_path):
    def job(algo="ppo", **settings):
        return plan(algo, {"log-dir": [str(tmp_path)], "exp-name": ["x"], "total-steps": ["10000"], **settings})[0]
    first = job()
    first.directory.mkdir(parents=True)
    write_json(first.directory / "config.json", described(first.flags))
    check_job(job(), check(job().flags))
    other = job(**{"total-steps": ["20000"]})
    with pytest.raises(UserError, match="a run with total_steps 10000, not 20000; choose another --exp-name"):
        check_job(other, check(other.flags))
    with pytest.raises(UserError, match="a run of ppo; choose another --exp-name"):
        check_job(job("vpg"), check(job().flags))


def test_grid_runs_what_is_missing_and_continues_after_a_failure(tmp_path, monkeypatch, capsys):
    """Of four runs, one is finished, one is unfinished, one is new and one fails."""
    settings = {**SMALL, "gamma": ["0.7", "0.8", "0.9", "2"], "seed": ["5"], "total-steps": ["2_000"],
                "log-dir": [str(tmp_path)], "exp-name": ["x"]}

    def lenient(flags: dict[str, str]) -> ppo.Config:
        return check({**flags, "gamma": flags["gamma"].replace("2", "1")})
    jobs = plan("ppo", settings)
    finished, begun, new, failing = (job.directory for job in jobs)
    for job in jobs[:2]:
        job.directory.mkdir(parents=True)
        write_json(job.directory / "config.json", {**described(job.flags), "git": git_revision()})
    earlier = {"status": "finished", "steps": 2000, "seconds": 2.0, "measure": "return_mean_100",
               "return_mean_100": 123.0, "steps_per_second": 10.0}
    write_json(finished / "result.json", earlier)
    before, at_once, start = (begun / "config.json").stat().st_mtime_ns, [], Grid.start
    monkeypatch.setattr(Grid, "start", lambda self, job: (start(self, job), at_once.append(self.count("running"))))

    assert grid("ppo", settings, workers=2, check=lenient) == 1

    assert max(at_once) == 2 and len(at_once) == 3
    assert read_json(finished / "result.json") == earlier
    assert (begun / "config.json").stat().st_mtime_ns == before           # resumed: a new run writes its config
    assert read_json(begun / "result.json")["status"] == read_json(new / "result.json")["status"] == "finished"
    config = read_json(new / "config.json")["config"]
    assert config["gamma"] == 0.9 and config["anneal"] is False and config["seed"] == 5 and config["quiet"]
    assert not failing.exists()
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "4/4 runs" in out
    assert "x_gamma2_s5   failed: spinup: --gamma must be from 0 to 1, not 2.0" in out
    assert re.search(r"^variant +seeds +return +95 % interval +steps/s +status$", out, re.M)
    assert out.endswith("\nreturn: of the last 100 training episodes of a run, averaged over its finished seeds\n")
    rows = {line.split()[0]: re.split(r"\s{2,}", line) for line in out.splitlines() if line.startswith("x_gamma")}
    assert rows["x_gamma0.7"] == ["x_gamma0.7", "5", "123", "-", "10", "finished"]
    assert rows["x_gamma0.9"][-1] == "finished" and rows["x_gamma2"][1:] == ["5", "-", "-", "-", "1 failed"]


# Catches: a run that a killed grid left running, and that the next grid reports as failed.
@pytest.mark.parametrize("finishes", [True, False])
def test_grid_waits_for_a_run_of_another_process(finishes, tmp_path, monkeypatch, capsys):
    settings = {**SMALL, "total-steps": ["1_000"], "log-dir": [str(tmp_path)], "exp-name": ["x"]}
    [job] = plan("ppo", settings)
    job.directory.mkdir(parents=True)
    write_json(job.directory / "config.json", described(job.flags))
    other, say, started, start = FileLock(job.directory / ".lock"), Grid.say, [], Grid.start
    other.acquire()

    def let_go(self, text, style=""):
        say(self, text, style)
        if "waiting" in text:
            assert not started
            if finishes:
                write_json(job.directory / "result.json", {
                    "status": "finished", "steps": 1000, "seconds": 2.0, "measure": "return_mean_100",
                    "return_mean_100": 123.0, "steps_per_second": 10.0})
            other.release()
    monkeypatch.setattr(Grid, "say", let_go)
    monkeypatch.setattr(Grid, "start", lambda self, job: (started.append(job), start(self, job)))
    assert grid("ppo", settings, workers=1, check=check) == 0
    assert len(started) == (not finishes)
    assert ("x_s1   return 123\n" in capsys.readouterr().out) == finishes
    assert read_json(job.directory / "result.json")["status"] == "finished"


# Catches: awaited runs that do not count towards --workers; a user's file with the name of one of Python's modules; a
# leading dash in a value that is taken for a flag.
def test_awaited_runs_count_as_workers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue.py").write_text("raise SystemExit('this is not the queue that you want')")
    settings = {**SMALL, "total-steps": ["128"], "log-dir": ["-runs"], "exp-name": ["x"], "seed": ["1", "2"]}
    job, _ = plan("ppo", settings)
    job.directory.mkdir(parents=True)
    write_json(job.directory / "config.json", described(job.flags))
    other, start, began, checks = FileLock(job.directory / ".lock"), Grid.start, [], []
    other.acquire()

    def busy(self):
        checks.append(len(began))
        if len(checks) == 5:                                              # seed 2 could have started four times
            other.release()
        return count(self)
    count = Grid.busy
    monkeypatch.setattr(Grid, "busy", busy)
    monkeypatch.setattr(Grid, "start", lambda self, job: (began.append(job.seed), start(self, job)))
    assert grid("ppo", settings, workers=1, check=check) == 0, capsys.readouterr().out
    assert sorted(began) == [1, 2] and not any(checks[:5])


# Catches: two grids of the same runs, of which the slower one reports a run as failed that the other one trains.
def test_grid_waits_for_a_run_that_another_grid_starts_first(tmp_path, monkeypatch, capsys):
    settings = {**SMALL, "total-steps": ["1_000"], "log-dir": [str(tmp_path)], "exp-name": ["x"]}
    [job] = plan("ppo", settings)
    other, say, start = FileLock(job.directory / ".lock"), Grid.say, Grid.start

    def late(self, job):
        start(self, job)
        if not self.elsewhere:                                            # the process has not created its folder yet
            job.directory.mkdir(parents=True)
            write_json(job.directory / "config.json", described(job.flags))
            other.acquire()

    def let_go(self, text, style=""):
        say(self, text, style)
        if "waiting" in text:
            other.release()
    monkeypatch.setattr(Grid, "start", late)
    monkeypatch.setattr(Grid, "say", let_go)
    assert grid("ppo", settings, workers=1, check=check) == 0
    assert "failed" not in capsys.readouterr().out
    assert read_json(job.directory / "result.json")["status"] == "finished"


# Catches: runs that continue unnoticed after an error of the grid itself.
def test_error_of_the_grid_interrupts_its_runs(tmp_path, monkeypatch):
    told = []

    class Running:
        def __init__(self, *_):
            told.append("started")

        def poll(self):
            raise RuntimeError("broken")

        def interrupt(self):
            told.append("interrupted")

    jobs = plan("ppo", {**SMALL, "log-dir": [str(tmp_path)], "exp-name": ["x"]})
    with pytest.raises(RuntimeError, match="broken"):
        Grid(jobs, 1, Running).run()
    assert told == ["started", "interrupted"]


# Catches: an interval of a return that is clipped to 0 and 1; an interval of an accuracy that is not.
@pytest.mark.parametrize(("measure", "between"),
                         [("held_out_accuracy", "0 to 1"), ("return_mean_100", "-0.3828 to 1.783")])
def test_interval_of_an_accuracy_stays_within_0_and_1(tmp_path, measure, between):
    jobs = [Job("ppo", "x", seed, {}, tmp_path / f"x_s{seed}", status="finished") for seed in (1, 2, 3)]
    for job, value in zip(jobs, (0.2, 0.9, 1.0), strict=True):
        job.directory.mkdir()
        result = {"status": "finished", "steps": 1, "seconds": 0.1, "measure": measure, measure: value,
                  "steps_per_second": 10.0}
        write_json(job.directory / "result.json", result)
    assert summary("x", jobs)[3] == between


# Catches: a run in a new interpreter, or in a forked process, that is not interrupted as Ctrl-C does it.
@pytest.mark.long
@pytest.mark.parametrize("forked", [False, process.FORKED])
def test_interrupted_grid_saves_and_the_same_command_completes_it(forked, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(process, "FORKED", forked)
    settings = {**SMALL, "seed": ["1", "2"], "total-steps": ["5_000"], "log-dir": [str(tmp_path)], "exp-name": ["x"]}
    again = partial(grid, "ppo", settings, workers=1, check=check)
    look_at = Grid.look_at

    def interrupt_when_under_way(self, job):
        if job.steps() and not self.signals:
            signal.raise_signal(signal.SIGINT)
        look_at(self, job)
    monkeypatch.setattr(Grid, "look_at", interrupt_when_under_way)
    before = signal.getsignal(signal.SIGINT)
    assert again() == 130
    assert signal.getsignal(signal.SIGINT) is before
    first, second = (job.directory for job in plan("ppo", settings))
    saved = read_json(first / "result.json")
    assert saved["status"] == "interrupted" and 0 < saved["steps"] < 4_992
    assert (first / "checkpoint.pt").exists() and not second.exists()
    assert "the same command resumes them" in capsys.readouterr().out

    monkeypatch.setattr(process, "FORKED", process.sys.platform.startswith("linux"))
    monkeypatch.setattr(Grid, "look_at", look_at)
    settings["seed"] = ["1"]
    assert again() == 0
    assert read_json(first / "result.json")["steps"] == 4_992
    steps = read_progress(first)["steps"]
    assert steps == sorted(set(steps)) and steps[-1] == 4_992
    assert json.loads((first / "result.json").read_text())["status"] == "finished"
    assert "finished" in capsys.readouterr().out


# Catches: a closed terminal that ends the process from which the runs are forked. The grid then reports them as saved
# although they still train.
@pytest.mark.long
@pytest.mark.skipif(not process.FORKED, reason="only Linux forks the runs of a grid")
def test_signal_to_all_processes_of_a_terminal_saves_the_runs(rows, tmp_path):
    words = ["ppo", "--env", "CartPole-v1", "--exp-name", "x", "--total-steps", "200_000", "--num-envs", "2",
             "--rollout-steps", "32", "--hidden", "8", "--no-tensorboard", "--log-dir", str(tmp_path)]
    with open(tmp_path / "out", "w") as out:
        started = subprocess.Popen([sys.executable, "-m", "spinup", "grid", *words], start_new_session=True, stdout=out,
                                   stderr=subprocess.STDOUT)
    folder = tmp_path / "x/x_s1"
    until = time.monotonic() + 120
    try:
        while rows(folder) < 2:
            assert started.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        os.killpg(started.pid, signal.SIGHUP)
        code = started.wait(60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
    assert code == 129 and "the same command resumes them" in (tmp_path / "out").read_text()
    assert read_json(folder / "result.json")["status"] == "interrupted" and (folder / "checkpoint.pt").exists()


# Catches: a grid that uses the seed of one file for all.
def test_settings_files_with_different_seeds_are_refused(cli, tmp_path):
    for name, seed in (("a", 1), ("b", 7)):
        (tmp_path / f"{name}.toml").write_text(f'env = "CartPole-v1"\nseed = {seed}\n')
    done = cli("grid", "ppo", "--config", "a.toml", "b.toml")
    assert done.code == 2 and "the files of --config do not all have the same seed" in done.err


# Catches: a grid whose runs all fail, one by one, because no folder can be created: in /proc, or below a file.
def test_grid_is_refused_if_no_run_can_be_written(cli, tmp_path):
    (tmp_path / "x").write_text("a file")
    for typed, words in ((["--log-dir", "/proc/x"], "--log-dir /proc/x cannot be written to; choose a folder"),
                         (["--exp-name", "x", "--log-dir", "."], "x/x_s1 cannot be written to; choose another")):
        done = cli("grid", "ppo", "--seed", "1", "2", *typed)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1) and words in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


# Catches: a cost per step that is averaged over variants, or that counts steps of an earlier command.
def test_remaining_time_accounts_for_different_speeds_of_variants(tmp_path, monkeypatch):
    jobs = [Job("ppo", variant, seed, {}, tmp_path / f"{variant}_s{seed}", total_steps=100)
            for seed in (1, 2) for variant in ("fast", "slow")]
    runs = Grid(jobs, 2)
    assert runs.left() == 0
    for job in jobs[:2]:
        job.status = "finished"
    runs.seconds = {"fast": [(10.0, 100)], "slow": [(500.0, 50)]}          # the slow run resumed at step 50
    assert runs.left() == (100 * 0.1 + 100 * 10) / 2
    jobs[2].status = "failed"
    assert runs.left() == 100 * 10
