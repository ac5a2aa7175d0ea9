"""Grids on Ray: a local cluster of two workers, one of which is killed, and the message for a lost machine."""
import os
import signal
from functools import partial
from types import SimpleNamespace

import psutil
import pytest
import ray
from ray._common.usage.usage_lib import usage_stats_enabled
from ray._private.node import Node

from spinup.algos import ppo
from spinup.errors import UserError
from spinup.runs.files import read_json
from spinup.runs.log import read_progress
from spinup.view import on_ray
from spinup.view.grid import Grid, grid
from spinup.view.jobs import check_job, plan
from tests.view.test_grid import SMALL, check

STARTS = 3              # a busy machine may exceed the 30 seconds that Ray gives itself to start
UNUSED = ["start_monitor", "start_log_monitor", "start_api_server"]       # Ray's autoscaler, its logs, its dashboard


@pytest.fixture
def two_workers(monkeypatch):
    """Ray on this machine, with two CPUs. Services that no grid uses are left out: each takes seconds to start, at the
    same time as the services that Ray waits for.
    """
    monkeypatch.setattr(on_ray.ray, "init", partial(ray.init, num_cpus=2))
    for service in UNUSED:
        monkeypatch.setattr(Node, service, lambda self, **settings: None)
    before = psutil.Process().children(recursive=True)
    for attempt in range(STARTS):
        cluster = on_ray.connected("local")
        try:
            cluster.__enter__()
            break
        except UserError:
            if attempt == STARTS - 1:
                raise
            ray.shutdown()
            for left in set(psutil.Process().children(recursive=True)) - set(before):
                left.kill()                             # Ray does not end them; they slow the next start
    yield
    cluster.__exit__(None, None, None)


def jobs(folder, **settings):
    given = {**SMALL, "total-steps": ["8_000"], "checkpoint-steps": ["1000"], "log-dir": [str(folder)],
             "exp-name": ["x"], **settings}
    found = plan("ppo", given)
    for job in found:
        check_job(job, check({**job.flags, "gamma": "0.9"}))
    return found


def workers() -> list[int]:
    """The ids of the processes that train."""
    return [p.pid for p in psutil.Process().children(recursive=True) if p.name().startswith("ray::run")]


# Catches: a run that starts again, or remains lost, when its worker is killed; a failed run that ends the others; an
# interruption that reaches no run, or ends it without saving; usage statistics that are sent.
@pytest.mark.long
def test_killed_worker_resumes_and_interrupted_grid_saves(two_workers, tmp_path, monkeypatch, capsys):
    assert not usage_stats_enabled() and ray.cluster_resources()["CPU"] == 2
    killed, look_at = [], Grid.look_at

    def kill_once(self, job):
        if job.flags["gamma"] == "0.9" and (job.directory / "checkpoint.pt").exists() and not killed:
            killed.extend(workers())
            before.append((job.directory / "config.json").stat().st_mtime_ns)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        look_at(self, job)
    before = []
    monkeypatch.setattr(Grid, "look_at", kill_once)
    first = jobs(tmp_path, gamma=["0.9", "2"])
    assert Grid(first, 2, on_ray.Task).run() == 1
    directory = first[0].directory
    assert killed and (directory / "config.json").stat().st_mtime_ns == before[0]         # resumed, not started again
    result, steps = read_json(directory / "result.json"), read_progress(directory)["steps"]
    assert result["status"] == "finished" and result["steps"] == steps[-1]
    assert steps == sorted(set(steps))
    out = capsys.readouterr().out
    assert "failed: spinup: --gamma must be from 0 to 1, not 2.0" in out and "on Ray, at most 2 at a time" in out

    def interrupt_when_under_way(self, job):
        if job.steps() and not self.signals:
            signal.raise_signal(signal.SIGINT)
        look_at(self, job)
    monkeypatch.setattr(Grid, "look_at", interrupt_when_under_way)
    second = jobs(tmp_path, gamma=["0.8"])
    assert Grid(second, 2, on_ray.Task).run() == 130
    saved = read_json(second[0].directory / "result.json")
    assert saved["status"] == "interrupted" and 0 < saved["steps"] < result["steps"]
    assert (second[0].directory / "checkpoint.pt").exists()


# Catches: an exception of Ray in place of a sentence; a lost run without the command to resume it.
def test_lost_machine_gives_one_sentence(monkeypatch, tmp_path):
    def lost(task, timeout):
        raise ray.exceptions.NodeDiedError("gone")
    asked = SimpleNamespace(options=lambda **how: SimpleNamespace(remote=lambda *words: how))
    monkeypatch.setattr(on_ray, "run", asked)
    task = on_ray.Task([], tmp_path, ppo.Config(device="cuda", threads=3))
    assert task.task == {"num_cpus": 3, "num_gpus": 1}                    # Ray hides GPUs that a task does not request
    monkeypatch.setattr(on_ray.ray, "get", lost)
    assert task.poll() == 1 and task.errors() == on_ray.LOST
    assert "the same command resumes it" in on_ray.LOST


def test_address_without_a_cluster_starts_nothing(tmp_path):
    with pytest.raises(UserError, match="--ray 127.0.0.1:1: Ray cannot be used .*refused.*; start a cluster with"):
        grid("ppo", {"log-dir": [str(tmp_path)]}, workers=2, check=check, ray="127.0.0.1:1")
    assert not list(tmp_path.iterdir())
