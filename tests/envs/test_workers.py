"""Copies that are stepped in other processes: the same numbers as in one process, and clear errors."""
import itertools
import multiprocessing
import os
import signal
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from spinup.algos.es import Config as OfES
from spinup.envs import make, workers
from spinup.envs.workers import WorkerVectorEnv
from spinup.envs.worlds.boards import TicTacToe
from spinup.errors import EnvironmentFailure, UserError, WorkerError
from spinup.runs.checkpoint import read_checkpoint, save_checkpoint
from spinup.runs.config import BaseConfig
from spinup.runs.run import make_env

DICE = """
import os
import sys
import time
import gymnasium
import numpy as np


class Dice(gymnasium.Env):
    '''Shows random numbers, ends at random, costs now and then. Action 1 is trouble, of a kind.'''

    observation_space, action_space = gymnasium.spaces.Box(-9, 9, (2,)), gymnasium.spaces.Discrete(2)

    def __init__(self, trouble=''):
        self.trouble = trouble

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        self.t += 1
        info, reward, luck = {'t': self.t}, self.np_random.random(), self.np_random.random()
        if luck < .2:
            info['cost'] = luck
        if action and self.trouble == 'error':
            raise ValueError('the dice are loaded')
        if action and self.trouble == 'sleep':
            time.sleep(60)
        if action and self.trouble == 'exit':
            os._exit(3)
        if action and self.trouble == 'sys.exit':
            sys.exit(0)
        if action and self.trouble == 'reward':
            reward = None
        if action and self.trouble == 'info':
            info['why'] = lambda: None
        return self.np_random.normal(size=2).astype(np.float32), reward, luck > .9, self.t == 8, info


if 'Dice-v0' not in gymnasium.registry:
    gymnasium.register('Dice-v0', entry_point=Dice, disable_env_checker=True)
"""
TROUBLES = {"error": (EnvironmentFailure, "Dice raised ValueError: the dice are loaded, at step 2 of an episode, "
                                          "in copy 2, after the action 1, in worker process 1"),
            "exit": (WorkerError, r"worker process 1 of partial ended during a step \(exit code 3\)"),
            "sys.exit": (UserError, r"the environment called sys.exit\(0\); make it return terminated = True"),
            "reward": (UserError, "the environment returned a reward of None; it must be one number"),
            "info": (UserError, "the info of a step cannot be sent between processes .* or leave out --env-workers")}


@pytest.fixture
def dice(tmp_path, monkeypatch):
    """An environment in a module that other processes can import. In the end, no worker process may be left."""
    (tmp_path / "dice_of_a_test.py").write_text(DICE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "dice_of_a_test", raising=False)
    import dice_of_a_test
    yield dice_of_a_test.Dice
    assert not [child for child in psutil.Process().children(recursive=True)
                # `close` must end all workers.
                if child.status() != psutil.STATUS_ZOMBIE and "spawn_main" in " ".join(child.cmdline())]


@pytest.fixture
def one_new(monkeypatch):
    """Every other worker, from the first on, starts with a new interpreter, as all workers of a user do. The others are
    forked, which is faster."""
    new, forked = multiprocessing.get_context("spawn"), multiprocessing.get_context("forkserver")
    kinds = itertools.cycle([new.Process, forked.Process])
    context = SimpleNamespace(Pipe=new.Pipe, Process=lambda **settings: next(kinds)(**settings))
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda method: context)


def check_same_steps(one, other, steps: int) -> None:
    """Assert that both vectorised environments return the same results, bit for bit."""
    for _ in range(steps):
        a, b = one.step(np.zeros(3, np.int64)), other.step(np.zeros(3, np.int64))
        for x, y in zip(a[:6], b[:6], strict=True):
            np.testing.assert_array_equal(x, y)
        assert list(a.info) == list(b.info)
    assert one.take_finished() == other.take_finished() and one.finished_costs == other.finished_costs


# Catches: the seeds of the first copies in every worker; rows in another order; final observations of one worker only;
# None as the costs of a worker that has not reported any yet; a restart of the wrong copy; a state in another format; a
# worker that Ctrl-C ends; a process that still runs after `close`.
def test_workers_give_the_numbers_of_one_process_also_after_a_load(one_new, dice, tmp_path):
    here, there, fresh = make(dice, 3, 5), make(dice, 3, 5, 2), make(dice, 3, 6)
    assert isinstance(there, WorkerVectorEnv) and there.processes[0].is_alive()
    try:
        np.testing.assert_array_equal(here.reset(), there.reset())
        check_same_steps(here, there, 40)
        for process in there.processes:
            os.kill(process.pid, signal.SIGINT)
        for env in here, there:
            env.restart(1, 77)
            env.restart(2, 78)
        np.testing.assert_array_equal(here.obs, there.obs)
        check_same_steps(here, there, 10)
        save_checkpoint(tmp_path / "checkpoint.pt", {"algorithm": "none", "env": there.state_dict()})
        fresh.reset()
        fresh.load_state_dict(read_checkpoint(tmp_path / "checkpoint.pt")["env"])
        check_same_steps(fresh, there, 20)
        there.load_state_dict(here.state_dict())                          # from 20 steps before
        check_same_steps(here, there, 20)
    finally:
        there.close()
    assert not any(process.is_alive() for process in there.processes)


# Catches: a `close` that waits for the end of a step, or that leaves the process running.
def test_worker_that_does_not_end_is_killed(fork_workers, dice, monkeypatch):
    monkeypatch.setattr(workers, "CLOSE_SECONDS", 0.2)
    env = make(partial(dice, "sleep"), 1, 0, 1)
    env.reset()
    env.pipes[0].send(("_step", np.ones(1, np.int64)))
    env.close()
    assert env.processes[0].exitcode == -signal.SIGKILL


# Catches: a worker's error that is lost; a run that waits forever; other workers that keep running.
@pytest.mark.parametrize("trouble", TROUBLES)
def test_failure_in_a_worker_ends_the_run_with_a_clear_error(fork_workers, dice, trouble):
    kind, words = TROUBLES[trouble]
    env = make(partial(dice, trouble), 3, 0, 2)
    env.reset()
    env.step(np.zeros(3, np.int64))
    with pytest.raises(kind, match=words):
        env.step(np.array([0, 0, 1]))
    assert not any(process.is_alive() for process in env.processes)
    env.close()                                                           # as a training does at its end


# Catches: processes that are started before the error is found.
@pytest.mark.parametrize("asked, words", [
    (lambda: make(lambda: None, 2, 0, 2), "this env cannot be sent to them .* give an id, or a function at the top of"),
    (lambda: make("Hopper-v5", 2, 0, 3), "--env-workers 3 is more than --num-envs 2; choose at most 2"),
    (lambda: make("CartPole", 2, 0, 2), "--env-workers does not support CartPole, which steps all its env"),
    (lambda: make("ALE/Pong-v5", 2, 0, 2), "--env-workers does not support ALE/Pong-v5"),
    (lambda: make("classic/tictactoe-v3", 2, 0, 2), "--env-workers does not support classic/tictactoe-v3"),
    (lambda: make(TicTacToe, 2, 0, 2), "--env-workers does not support TicTacToe"),
    (lambda: make("Hoper-v5", 2, 0, 2), r"there is no environment 'Hoper-v5'\. Did you mean 'Hopper-v5'"),
    (lambda: make_env(OfES(env="Hopper-v5", workers=2, env_workers=2)), "both start processes; leave out --env-wor"),
])
def test_unsupported_uses_of_workers_are_refused(asked, words):
    with pytest.raises(UserError, match=words):
        asked()


# Catches: a number of workers or a seed that is not passed on; an id that is sent without the package that registers
# it.
def test_training_uses_the_workers_of_its_settings(fork_workers, dice):
    env = make_env(BaseConfig(env="dice_of_a_test:Dice-v0", num_envs=3, seed=5, env_workers=2))
    try:
        assert len(env.processes) == 2
        np.testing.assert_array_equal(env.reset(), make(dice, 3, 5).reset())
    finally:
        env.close()


# Catches: a wait for processes that never start; a message without the solution. The script is forked. Its worker
# starts with a new interpreter, which imports the script.
@pytest.mark.long
def test_script_without_a_main_guard_gets_a_clear_error(dice, start, tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text("from dice_of_a_test import Dice\nfrom spinup.envs import make\nmake(Dice, 1, 0, 1)\n")
    ended = start(script=script, prelude=f"sys.path.insert(0, {str(tmp_path)!r})").end()
    assert ended.code == 1
    assert 'WorkerError: worker process 0 of Dice ended before it was ready' in ended.err
    assert 'put the training under `if __name__ == "__main__":`' in ended.err
