"""Several processes train one policy on environments: each update equals that of one process on the whole batch."""
import os
import signal
from types import SimpleNamespace

import pytest
import torch

from spinup import ppo
from spinup.algos.ppo import Config
from spinup.core.fast.adam import FlatAdam
from spinup.envs.vector import copy_seeds
from spinup.errors import UserError, WorkerError
from spinup.machine import find_device
from spinup.registry import find
from spinup.runs import divided, flags, ranks
from spinup.runs.display import ending
from spinup.runs.workers import Workers, _wait, backend
from tests.algos.test_es import children

SMALL = {"env": "CartPole-v1", "preset": "none", "num_envs": 4, "rollout_steps": 16, "minibatches": 2, "epochs": 2,
         "total_steps": 256, "normalise_obs": True, "normalise_reward": True, "quiet": True, "anneal": False}


# Catches: gradients that are summed and not averaged over the processes; advantage normalisation within the share of a
# process; a rank that leaves its gradient out; rollouts of all ranks from the same seeds.
@pytest.mark.long
def test_two_processes_make_the_updates_of_one_process_on_the_whole_batch(fork_workers, monkeypatch, tmp_path):
    steps, rollouts, real, real_whole = [], [], divided.minimizer, divided.whole

    def recorded(optimizer: FlatAdam, loss, workers):
        minimize = real(optimizer, loss, workers)

        def minimize_and_record(*batch, lr=None):
            before = optimizer.flat.clone()
            stats = minimize(*batch, lr=lr)
            steps.append((batch, before, optimizer.flat.grad.clone(), dict(stats), loss))     # PPO changes stats
            return stats
        return minimize_and_record

    def whole(rollout):
        rollouts.append((rollout, real_whole(rollout)))
        return rollouts[-1][1]

    monkeypatch.setattr("spinup.algos.ppo.minimizer", recorded)
    monkeypatch.setattr("spinup.algos.ppo.whole", whole)
    result = ppo(**SMALL, workers=2, log_dir=tmp_path)
    module = result.policy.module
    params = list(module.parameters())
    trained = FlatAdam(params, lr=1.0)
    assert len(steps) == 4 * 2 * 2
    for batch, before, grad, stats, loss in steps:
        trained.flat.copy_(before)
        trained.zero_grad()
        value, expected = loss(*batch)                                    # one process, all rows
        value.backward(inputs=params)
        scale = min(1, 0.5 / float(trained.flat.grad.norm()))             # the step has clipped the gradient
        torch.testing.assert_close(grad, trained.flat.grad * scale, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(stats["kl"], expected["kl"], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(stats["loss"], value.detach(), rtol=1e-4, atol=1e-6)
    for own, joined in rollouts:
        assert own.rew.shape == (2, 16) and joined.rew.shape == (4, 16) and len(joined.obs) == 4
        assert torch.equal(joined.obs[:2], own.obs) and not torch.equal(joined.obs[2:], own.obs)
        ended = joined.terminated | joined.truncated
        places = torch.stack([joined.copy, joined.step], 1)
        assert sorted(places.tolist()) == ended.nonzero().tolist()


# Catches: environments or a random number generator of rank 1 that are missing in the checkpoint.
@pytest.mark.long
def test_killed_run_of_two_processes_resumes_with_the_same_curve(start, forking, rows, wait_for, cli, curve, tmp_path):
    words = ["ppo", "--preset", "none", "--exp-name", "x", "--total-steps", 1920, "--num-envs", 4, "--rollout-steps",
             16, "--minibatches", 1, "--epochs", 1, "--checkpoint-steps", 320, "--normalise-obs",
             "--workers", 2, "--env", "Pendulum-v1", "--quiet"]
    whole = start(*words, "--log-dir", "whole", prelude=forking)
    process = start(*words, prelude=forking)
    wait_for(lambda: rows(tmp_path / "runs/x/x_s1") > 8, process)
    (worker,) = children(process.pid)
    os.kill(worker, signal.SIGKILL)
    done = process.end(30)
    assert done.code == 1 and "to resume, type: spinup resume runs/x/x_s1" in done.err and "Traceback" not in done.err
    assert start("resume", "runs/x/x_s1", prelude=forking).end().code == 0
    assert whole.end().code == 0
    assert curve(tmp_path / "whole/x/x_s1") == curve(tmp_path / "runs/x/x_s1")


def test_settings_that_cannot_be_divided_are_refused_first(tmp_path, monkeypatch, cli):
    with pytest.raises(UserError, match="--num-envs 4 cannot be divided among 3 processes; choose a multiple of 3"):
        ppo(**SMALL, workers=3, log_dir=tmp_path)
    with pytest.raises(UserError, match="a minibatch of 2 steps cannot be divided among 4 processes"):
        ppo(**SMALL | {"minibatches": 32}, workers=4, log_dir=tmp_path)
    with pytest.raises(UserError, match="leave out --compile or --workers"):
        ppo(**SMALL, workers=2, compile=True, log_dir=tmp_path)
    with pytest.raises(UserError, match="--workers and --env-workers both start processes"):
        ppo(**SMALL | {"env": "Pendulum-v1"}, workers=2, env_workers=2, log_dir=tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    done = cli("sac", "--env", "Pendulum-v1")
    assert done.code == 2 and "are set, but not by torchrun; type: unset RANK WORLD_SIZE" in done.err
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    done = cli("sac", "--env", "Pendulum-v1")
    assert done.code == 2 and done.err.strip() == "spinup: sac trains in one process; start it without torchrun"
    monkeypatch.setenv("WORLD_SIZE", "two")
    done = cli("ppo", "--env", "CartPole-v1")
    assert done.code == 2 and "WORLD_SIZE is 'two', but torchrun sets it to a number; type: unset" in done.err


# Catches: a time limit on the work of a process before the ranks connect; a missing time limit on its start.
@pytest.mark.parametrize("started", [True, False])
def test_start_of_a_worker_has_a_time_limit_and_its_first_rollout_none(started, monkeypatch):
    class Store:
        asked = 0

        def check(self, names):
            self.asked += 1
            return started if names == ["started 1"] else self.asked > 4

    monkeypatch.setattr("spinup.runs.workers.JOIN_SECONDS", 0)
    child = SimpleNamespace(is_alive=lambda: True)
    if started:
        _wait(Store(), [child])
    else:
        with pytest.raises(WorkerError, match="did not start in 0 s; stop other programs"):
            _wait(Store(), [child])


# Catches: an advised command without torchrun, which cannot resume a run of several processes.
def test_resume_command_of_several_processes_uses_torchrun(monkeypatch):
    assert Workers(1, Config()).program == "spinup"
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")):
        monkeypatch.setenv(name, value)
    run = SimpleNamespace(status="finished", results={}, unit="steps", summary=lambda: "x",
                          next_words=("plot", "resume"), may_grow=True, program=Workers(2, Config()).program)
    assert list(ending("runs/a", 10, 1.0, run))[-1] == (
        "  spinup plot runs/a\n  torchrun --nproc-per-node 2 -m spinup resume runs/a --total-steps 20")


# Catches: a traceback for every run on a cluster that sets only WORLD_SIZE.
def test_world_size_without_a_rank_is_not_torchrun(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (ranks.rank(), ranks.wanted(1)) == (0, 1)


# Catches: a cluster's own RANK that silences a run of one process.
def test_rank_without_a_world_size_is_not_torchrun(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("spinup.algos.ppo.train", lambda cfg, resume=None: SimpleNamespace(status="finished"))
    assert flags.train(find("ppo"), ["--env", "CartPole-v1"]) == 0
    assert capsys.readouterr().out.startswith("preset: CartPole-v1\n")


def test_ranks_have_disjoint_shares_and_different_seeds(monkeypatch):
    monkeypatch.setattr(ranks, "size", lambda: 3)
    assert [list(ranks.of_rank(7, place)) for place in range(3)] == [[0, 1, 2], [3, 4], [5, 6]]
    monkeypatch.setenv("WORLD_SIZE", "3")
    seeds = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        seeds.append(ranks.own_seed(5))
    assert seeds[0] == 5 and len(set(seeds)) == 3 and all(isinstance(seed, int) for seed in seeds)


# Catches: NCCL for two processes on one GPU, which NCCL refuses; all processes on the first GPU.
def test_each_process_uses_its_own_gpu_if_there_are_enough(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setenv("WORLD_SIZE", "4")
    found = {}
    for count in (1, 4):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        devices = []
        for rank in range(4):
            monkeypatch.setenv("RANK", str(rank))
            devices.append(find_device("auto", True).index)
        found[count] = (backend(4), devices)
    assert found == {1: ("gloo", [0, 0, 0, 0]), 4: ("cpu:gloo,cuda:nccl", [0, 1, 2, 3])}
    assert find_device("cuda:1", True).index == 1 and find_device("auto", False).type == "cpu"


# Catches: the seed (seed, rank) for a rank, which is also the seed of an environment copy.
def test_ranks_and_environments_have_different_seeds(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    seeds = set(copy_seeds(1, 8))
    for rank in (1, 2, 3):
        monkeypatch.setenv("RANK", str(rank))
        own = ranks.own_seed(1)
        assert own not in seeds
        seeds |= {own, *copy_seeds(own, 8)}
    assert len(seeds) == 8 + 3 * 9
