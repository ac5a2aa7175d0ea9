"""Faults of a user's environment: reported before the run's folder is created, or with the step and the action."""
import os
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import Env, spaces

from spinup.envs import make
from spinup.envs.try_out import try_out
from spinup.errors import EnvironmentFailure, NonFiniteError, UserError

MODULE = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Odd(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def __init__(self, late=10**9):
        self.late, self.t = late, 0
        {init}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t += 1
        obs = np.zeros(2, np.float32)
        {reset}
        return obs, {{}}

    def step(self, action):
        self.t += 1
        obs, reward, terminated = np.zeros(2, np.float32), 1.0, False
        {step}
        return obs, reward, terminated, self.t % 8 == 0, {{}}

    def close(self):
        {close}


gymnasium.register('Odd-v0', entry_point=Odd, disable_env_checker=True)
"""
FINE = {"init": "pass", "reset": "pass", "step": "pass", "close": "pass"}
TINY = ["--total-steps", 128, "--num-envs", 2, "--rollout-steps", 32, "--minibatches", 2, "--quiet"]
LATE = "if self.t > 40: "

# Faults from the first steps on -> the message and the exit code.
AT_ONCE = {
    "reward text": ({"step": "reward = '5'"}, "returned a reward of '5'; it must be one number", 2),
    "reward none": ({"step": "reward = None"}, "returned a reward of None; it must be one number", 2),
    "reward nan": ({"step": "reward = np.nan"}, "Odd-v0 returned a reward of nan, at step 1 of an episode, in copy", 2),
    "end text": ({"step": "terminated = 'no'"}, "returned 'no' for terminated; it must be True or False", 2),
    "end none": ({"step": "terminated = None"}, "returned None for terminated; it must be True or False", 2),
    "shape": ({"step": "obs = np.zeros(3)"}, "but its observation_space is Box(-1.0, 1.0, (2,), float32)", 2),
    "four values": ({"step": "return obs, reward, terminated, {}"}, "returned 4 values, not five", 2),
    "nothing": ({"step": "return None"}, "returned NoneType, not five", 2),
    "old reset": ({"reset": "return obs"}, "reset of the environment returned ndarray, not an observation and", 2),
    "reset nan": ({"reset": "obs[1] = np.nan"}, "returned an observation with nan at index 1 of 2, in reset", 2),
    "raises": ({"step": "raise ValueError('dice')"}, "Odd-v0 raised ValueError: dice, at step 1 of an episode", 1),
    "reset raises": ({"reset": "1 / 0"}, "Odd-v0 raised ZeroDivisionError: division by zero, in reset, in copy 0", 1),
    "init raises": ({"init": "raise OSError('no port')"}, "Odd-v0 raised OSError: no port, when it was made", 1),
    "no space": ({"init": "self.observation_space = None"}, "the observation_space of Odd-v0 is None; it must be", 2),
    "text": ({"init": "self.observation_space = spaces.Text(5)"}, "type Text is not supported; wrap", 2),
    "huge": ({"init": "self.observation_space = spaces.Discrete(10**10)"}, "a vector of 10,000,000,000 numbers", 2),
    "many actions": ({"init": "self.action_space = spaces.Discrete(10**10)"}, "has more than 100,000; wrap", 2),
    "many dimensions": ({"init": "self.action_space = spaces.Box(-1, 1, (10**6,))"}, "at most 100,000", 2)}


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """A function that writes the module `odd_of_a_test` with the given lines, and returns the id of its environment."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(lines: dict[str, str]) -> str:
        for name in ("odd_of_a_test", "odd_of_a_test.py"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / "odd_of_a_test.py").write_text(MODULE.format(**FINE | lines))
        return "odd_of_a_test:Odd-v0"
    yield write
    gymnasium.registry.pop("Odd-v0", None)


# Catches: a `look` that is left out, or that comes after the creation of the folder.
@pytest.mark.parametrize("case", AT_ONCE)
def test_early_fault_is_reported_before_the_folder_is_created(odd, cli, tmp_path, case):
    lines, words, code = AT_ONCE[case]
    done = cli("ppo", "--env", odd(lines), *TINY)
    assert done.code == code and words in done.err.splitlines()[0], done.err
    assert done.err.startswith("spinup: ") and ("Traceback" in done.err) == (code == 1)
    assert not Path("runs").exists()


# Catches: a NaN that is attributed to the learning rate; a message without the copy, the step or the action.
@pytest.mark.parametrize(("line", "words", "code"), [
    ("obs[0] = np.inf", "Odd-v0 returned an observation with inf at index 0 of 2, at step ", 2),
    ("reward = -np.inf", "Odd-v0 returned a reward of -inf, at step ", 2),
    ("raise RuntimeError('late')", "Odd-v0 raised RuntimeError: late, at step ", 1)])
def test_late_fault_is_reported_with_step_copy_and_action(odd, cli, line, words, code):
    done = cli("ppo", "--env", odd({"step": LATE + line}), *TINY)
    first = done.err.splitlines()[0]
    assert done.code == code and words in first and "--lr" not in first
    assert " in copy " in first and "after the action " in first
    assert ("RuntimeError: late" in done.err.splitlines()[-1]) == (code == 1)
    assert "failed" in next(Path("runs").glob("*/*/result.json")).read_text()


# Catches: an error at the import that is not an ImportError.
def test_syntax_error_in_a_module_is_reported_with_its_line(odd, cli):
    odd({"init": "this is no Python"})
    done = cli("ppo", "--env", "odd_of_a_test:Odd-v0", *TINY)
    assert done.code == 2 and "raises SyntaxError when it is imported" in done.err and "line 12)" in done.err


# Catches: an exception of close() that loses the result.
def test_failing_close_does_not_lose_the_result(odd, cli):
    done = cli("ppo", "--env", odd({"close": "raise OSError('still in use')"}), *TINY)
    assert done.code == 0 and "Odd-v0 raised OSError: still in use, when it was closed" in done.err
    assert "finished" in next(Path("runs").glob("*/*/result.json")).read_text()


class Old(Env):
    """Its `reset` takes no seed, as in the old Gym."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (1,))

    def reset(self):
        return np.zeros(1), {}


def test_reset_without_a_seed_parameter_is_refused():
    with pytest.raises(UserError, match=r"has no parameter seed; write def reset\(self, \*, seed=None, options=None\)"):
        try_out(Old)


class Echo(Env):
    """Its observation is the action."""

    observation_space, action_space = spaces.Box(-9, 9, (1,)), spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return action, 0.0, False, False, {}


# Catches: a NaN of the policy that is attributed to the environment.
def test_non_finite_action_is_attributed_to_the_policy():
    env = make(Echo, 2)
    env.reset()
    env.step(np.zeros((2, 1), np.float32))
    with pytest.raises(NonFiniteError, match="an action that is not finite, at step 2 of an episode, in copy 1, after"):
        env.step(np.array([[0.0], [np.nan]], np.float32))


class Wide(Echo):
    """Images of floats in place of bytes."""

    observation_space = spaces.Box(0, 1, (64, 64, 3))

    def reset(self, *, seed=None, options=None):
        return np.zeros((64, 64, 3), np.float32), {}

    def step(self, action):
        return np.zeros((64, 64, 3), np.float32), 0.0, False, False, {}


# Catches: a `look` whose environment stays open, or is that of the training.
def test_look_uses_its_own_environment_and_warns_of_long_vectors(capsys):
    made, closed = [], []

    class Counted(Wide):
        def __init__(self):
            made.append(self)

        def close(self):
            closed.append(self)

    try_out(Counted)
    assert len(made) == 1 and closed == made
    assert "a vector of 12,288 numbers; if it contains an image, give its Box" in capsys.readouterr().err

    class InDict(Wide):
        observation_space = spaces.Dict({"camera": spaces.Box(0, 255, (64, 64, 3), np.uint8)})

        def reset(self, **_):
            return {"camera": np.zeros((64, 64, 3), np.uint8)}, {}

        def step(self, action):
            return *self.reset()[:1], 0.0, False, False, {}

    try_out(InDict)
    assert "contains an image, return it alone, not in a Dict, or make it smaller" in capsys.readouterr().err
    try_out(Echo)
    assert capsys.readouterr().err == ""


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="the folder of a run is compared by its bytes")
def test_look_does_not_change_the_results_of_a_run(monkeypatch, cli):
    words = ["ppo", "--env", "InvertedPendulum-v5", "--preset", "none", "--total-steps", 1024, "--num-envs", 2,
             "--rollout-steps", 64, "--epochs", 2, "--quiet", "--exp-name"]
    assert cli(*words, "a").code == 0
    monkeypatch.setattr("spinup.runs.run.try_out", lambda *_, **__: None)
    assert cli(*words, "b").code == 0

    def rows(name: str) -> list[list[str]]:
        lines = Path("runs", name, f"{name}_s1", "progress.csv").read_text().splitlines()
        timed = [i for i, column in enumerate(lines[0].split(",")) if "second" in column]
        return [[x for i, x in enumerate(line.split(",")) if i not in timed] for line in lines]
    assert rows("a") == rows("b")


def test_an_exception_keeps_its_cause():
    env = make(type("Breaks", (Echo,), {"step": lambda self, action: 1 / 0}), 1)
    env.reset()
    with pytest.raises(EnvironmentFailure, match="Breaks raised ZeroDivisionError") as failure:
        env.step(np.zeros((1, 1), np.float32))
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


# Catches: a worker process whose exception is lost, or whose exit is not reported.
@pytest.mark.parametrize(("line", "words"), [
    ("raise ValueError('dice')", "Odd-v0 raised ValueError: dice, at step "),
    ("__import__('os')._exit(7)", "worker process 1 ended with exit code 7")])
def test_es_reports_why_a_worker_process_failed(odd, start, forking, line, words):
    env = odd({"step": f"import os\n        if str(os.getpid()) != os.environ['FIRST'] and self.t > 40: {line}"})
    prelude = f"{forking}sys.path.insert(0, folder)\nos.environ['FIRST'] = str(os.getpid())"    # no fault in first
    done = start("es", "--env", env, "--pairs", 2, "--workers", 2, "--total-steps", 4000, "--quiet", "--preset", "none",
                 prelude=prelude).end()
    assert done.code == 1 and words in done.err.splitlines()[0], done.err
    assert done.err.startswith("spinup: ")
    assert "spinup resume" in done.err.splitlines()[0]
