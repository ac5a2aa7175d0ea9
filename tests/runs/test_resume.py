"""A run that is killed, interrupted or fails resumes with the same curve, or reports what it cannot restore."""
import json
import signal
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from spinup import load, ppo, vpg
from spinup.envs import VectorEnv
from spinup.envs.gym import GymVectorEnv
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.files import read_json
from spinup.runs.run import Run

RUN = Path("runs/x/x_s1")
FLAGS = ["--preset", "none", "--exp-name", "x"]
MUJOCO = ["--num-envs", 2, "--rollout-steps", 64, "--total-steps", 2048, "--checkpoint-steps", 256, "--epochs", 2,
          "--normalise-obs", "--normalise-reward", "--tensorboard", "false"]
# Small batches: a row spans two updates and a checkpoint fifteen, so that every other checkpoint falls within a row.
SMALL = ["--num-envs", 2, "--rollout-steps", 8, "--total-steps", 1280, "--checkpoint-steps", 240]
KILLED = {                                                                # algorithm, environment, flags, kills
    "vpg-CartPole": ("vpg", "CartPole-v1", [*SMALL, "--value-epochs", 2], 2),
    "ppo-CartPole": ("ppo", "CartPole-v1", [*SMALL, "--epochs", 2, "--minibatches", 2, "--normalise-obs",
                                            "--normalise-reward"], 2),
    "ppo-Pendulum": ("ppo", "Pendulum-v1", [*MUJOCO, "--checkpoint-steps", 64], 2),
    "ppo-HalfCheetah": ("ppo", "HalfCheetah-v5", MUJOCO, 2),
    "ppo-Ant": ("ppo", "Ant-v5", MUJOCO, 2),
}
ANEW = "ppo-CartPole"                                                     # the last resume is in a new interpreter
WHOLE_EPISODES = {"ppo-Pendulum": "200.0", "ppo-HalfCheetah": "1000.0"}   # the length of each episode


# Catches: a reward scaler that is missing in the checkpoint; `episode_length` that VectorEnv does not load (Pendulum);
# `recent` that run.py does not load (vpg-CartPole); events of TensorBoard that log.py does not flush or does not
# truncate (ppo-CartPole).
@pytest.mark.long("ppo-CartPole", "ppo-Pendulum", "ppo-HalfCheetah", "ppo-Ant")
@pytest.mark.parametrize("name", KILLED)
def test_killed_run_resumes_with_the_same_curve(name, few_rows, killed, cli, curve,
                                                                             tmp_path):
    algorithm, env, flags, kills = KILLED[name]
    words, directory = [algorithm, "--env", env, *FLAGS, *flags], tmp_path / RUN
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    expected = curve(tmp_path / "whole/x/x_s1")
    done = killed(words, RUN, len(expected), kills, name, anew=name == ANEW)
    assert done.code == 0 and "Traceback" not in done.err
    assert curve(directory) == expected
    assert not (tmp_path / "MUJOCO_LOG.TXT").exists()
    assert read_json(directory / "result.json")["status"] == "finished"
    lengths = {row[expected[0].index("length_mean")] for row in expected[1:]} - {"nan"}
    assert lengths == {WHOLE_EPISODES[name]} if name in WHOLE_EPISODES else len(lengths) > 5
    if "--tensorboard" not in flags:
        check_events(directory, expected)


def check_events(directory: Path, expected: list[list[str]]) -> None:
    """Check that TensorBoard shows each row once after the kills."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    assert len(list(directory.glob("events.out.tfevents.*"))) > 2         # one for each process
    events = EventAccumulator(str(directory))
    events.Reload()
    names = [n for n in expected[0] if n != "steps"]
    assert set(names) <= set(events.Tags()["scalars"])
    for name in names:
        column = [(int(row[expected[0].index("steps")]), float(row[expected[0].index(name)])) for row in expected[1:]]
        shown = events.Scalars(name)
        assert [e.step for e in shown] == [step for step, _ in column]
        np.testing.assert_allclose([e.value for e in shown], [value for _, value in column], rtol=1e-6)


# Kills the process just before the n-th renaming of a checkpoint, when its temporary file is complete.
DIE_BEFORE_RENAME = """
import os, signal
rename, renamings = os.replace, []
def replace(source, target):
    if os.path.basename(target) == "checkpoint.pt":
        renamings.append(target)
        if len(renamings) == {nth}:
            os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
os.replace = replace
"""


@pytest.fixture
def stepped(monkeypatch) -> list[int]:
    """A list with the number of environment copies for each call of VectorEnv.step in this process."""
    done, step = [], VectorEnv.step

    def count(env, action):
        done.append(env.num_envs)
        return step(env, action)

    monkeypatch.setattr(VectorEnv, "step", count)
    return done


# Catches: a checkpoint that is written to its final path at once; `rng`, torch's random number generator or `pending`
# that run.py does not load; a progress.csv that is not truncated; an optimiser that is missing in the checkpoint.
@pytest.mark.long("4")
@pytest.mark.parametrize("nth", [1, 4])
def test_run_killed_before_a_checkpoint_is_renamed_resumes(nth, start, cli, curve, stepped, tmp_path):
    # 300 updates: two per row and 33 per checkpoint, so that the third checkpoint falls within a row
    words = ["ppo", *FLAGS, "--num-envs", 4, "--rollout-steps", 8, "--total-steps", 9600, "--checkpoint-steps", 1056,
             "--minibatches", 1, "--epochs", 1, "--hidden", "8", "--quiet"]
    assert cli(*words, "--log-dir", "whole").code == 0
    assert sum(stepped) == 9600
    assert start(*words, prelude=DIE_BEFORE_RENAME.format(nth=nth)).end().code == -signal.SIGKILL
    directory = tmp_path / RUN
    assert [*directory.glob(".checkpoint.pt.*.tmp")]
    if nth == 1:
        assert not (directory / "checkpoint.pt").exists()
    else:
        checkpoint = load_checkpoint(directory / "checkpoint.pt")
        assert checkpoint["steps"] == (nth - 1) * 1056 and checkpoint["subject"]["pending"]
    stepped.clear()
    assert cli("resume", RUN).code == 0
    assert sum(stepped) == 9600 - (nth - 1) * 1056                        # only lost steps are repeated
    assert curve(directory) == curve(tmp_path / "whole/x/x_s1")
    assert not [*directory.glob(".*.tmp")]
    stepped.clear()
    finished = cli("resume", RUN)
    assert finished.code == 0 and "is finished: 9,600 steps" in finished.out and not stepped


# Catches: an `Interruption` that raises KeyboardInterrupt at once; an interrupted run that is not saved.
def test_ctrl_c_saves_and_prints_the_resume_command(start, cli, curve, rows, wait_for, tmp_path):
    words = ["ppo", "--env", "CartPole-v1", *FLAGS, *MUJOCO, "--total-steps", 3072, "--checkpoint-steps", 100_000]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    process, directory = start(*words), tmp_path / RUN
    wait_for(lambda: rows(directory) > 4, process)
    process.send_signal(signal.SIGINT)
    done = process.end()
    assert done.code == 130 and "Traceback" not in done.err
    assert done.out.endswith(f"to resume, type:\n  spinup resume {RUN}\n")
    result, checkpoint = read_json(directory / "result.json"), load_checkpoint(directory / "checkpoint.pt")
    assert result["status"] == "interrupted" and 4 * 128 <= result["steps"] == checkpoint["steps"] < 3072
    resumed = cli("resume", RUN)
    assert resumed.code == 0 and f"resuming at step {result['steps']:,}\n" in resumed.out
    assert curve(directory) == curve(tmp_path / "whole/x/x_s1")           # the extra checkpoint changes nothing
    assert read_json(directory / "result.json")["status"] == "finished"


# Catches: a run that does not lock its folder.
@pytest.mark.long
def test_two_processes_never_train_in_one_folder(start, cli, rows, wait_for, tmp_path):
    process, directory = start("ppo", "--env", "Hopper-v5", *FLAGS, *MUJOCO), tmp_path / RUN
    wait_for(lambda: rows(directory) > 5, process)
    refused = cli("resume", RUN)
    assert refused.code == 2 and f"another process is training in {RUN}; wait until it ends, or stop it" in refused.err
    process.kill()
    assert cli("resume", RUN).code == 0                                   # a killed process holds no lock
    steps = [float(line.split(",")[1]) for line in (directory / "progress.csv").read_text().splitlines()[1:]]
    assert steps == sorted(set(steps))


# Catches: os.truncate on a file that is too short, which fills the missing part with zeros.
@pytest.mark.long
def test_lost_rows_of_progress_csv_are_reported(start, cli, rows, wait_for, tmp_path):
    process, directory = start("ppo", "--env", "Hopper-v5", *FLAGS, *MUJOCO), tmp_path / RUN
    wait_for(lambda: rows(directory) > 5, process)
    process.send_signal(signal.SIGINT)
    assert process.end().code == 130
    path = directory / "progress.csv"
    whole = path.read_bytes()
    for left in (whole[:300], None):
        path.unlink() if left is None else path.write_bytes(left)
        refused = cli("resume", RUN)
        assert refused.code == 2 and "progress.csv has lost rows since the checkpoint; restore it" in refused.err
        assert (path.read_bytes() if path.exists() else None) == left
    path.write_bytes(whole)
    assert cli("resume", RUN).code == 0 and b"\0" not in path.read_bytes()


# Catches: a `save` that replaces the random number generator `rng`; a MuJoCo state without its derived arrays (Ant).
@pytest.mark.long("Ant-v5")
@pytest.mark.parametrize("env", ["CartPole-v1", "Ant-v5"])
def test_frequency_of_checkpoints_does_not_change_the_curve(env, cli, curve, tmp_path):
    for cadence in (1, 10**9):
        assert cli("ppo", "--env", env, *FLAGS, *MUJOCO, "--total-steps", 1024, "--checkpoint-steps", cadence,
                   "--log-dir", cadence, "--quiet").code == 0
    assert curve(tmp_path / "1/x/x_s1") == curve(tmp_path / "1000000000/x/x_s1")


class User(gymnasium.Env):
    """A user's environment: 50 steps per episode. Each step calls `happens`; `age` counts the steps of all episodes."""

    observation_space, action_space = Box(-1, 1, (3,)), Discrete(2)
    reward = 1.0

    def __init__(self):
        self.age = self.clock = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self.observe(), {}

    def step(self, action):
        self.age += 1
        self.clock += 1
        self.happens()
        return self.observe(), self.reward * float(self.np_random.random()), False, self.clock == 50, {}

    def observe(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def happens(self) -> None:
        """Do nothing. Subclasses override it."""


class Keeper(User):
    """From its 200th step on, it has an attribute that cannot be saved."""

    def happens(self):
        if self.age == 200:
            self.thing = object()


class NaNReward(User):
    def happens(self):
        self.reward = np.nan if self.age > 150 else 1.0


class InfiniteReward(User):
    def happens(self):
        self.reward = np.inf if self.age > 150 else 1.0


class NaNObservation(User):
    def observe(self):
        return super().observe() * np.float32(np.nan if self.age == 150 else 1)


class Broken(User):
    def happens(self):
        if self.age == 150:
            raise ZeroDivisionError("the user's own mistake")


for kind in (User, Keeper, NaNReward, InfiniteReward, NaNObservation, Broken):
    gymnasium.register(f"{kind.__name__}-v0", kind)

# 20 updates of 64 steps.
TINY = [*FLAGS, "--num-envs", 2, "--rollout-steps", 32, "--total-steps", 1280, "--checkpoint-steps", 128]


def interrupt_at(number: int, monkeypatch) -> None:
    """Send SIGINT in the `number`-th environment step, as Ctrl-C does."""
    step, left = VectorEnv.step, [number]

    def press(env, action):
        left[0] -= 1
        if left[0] == 0:
            signal.raise_signal(signal.SIGINT)
        return step(env, action)

    monkeypatch.setattr(VectorEnv, "step", press)


# Catches: a checkpoint that saves the environments twice, first only to test whether they can be saved.
def test_checkpoint_saves_each_environment_once(monkeypatch, tmp_path):
    calls = {"_save": 0, "save_subject": 0}

    def count(kind, name):
        function = getattr(kind, name)

        def counted(*given):
            calls[name] += 1
            return function(*given)
        monkeypatch.setattr(kind, name, counted)

    count(GymVectorEnv, "_save")
    count(Run, "save_subject")
    vpg(User, num_envs=2, rollout_steps=8, total_steps=64, hidden=(4,), checkpoint_steps=16, preset="none",
        threads=1, log_dir=tmp_path, quiet=True, tensorboard=False)
    assert calls["_save"] == calls["save_subject"] + 1 > 4                # and once before the run


# Catches: a missing message for a checkpoint without environments (Keeper, which can be saved again after its restart);
# a resumed run that repeats the first episodes.
@pytest.mark.long("LunarLander-v3-LunarLander.world is of type b2World")
@pytest.mark.parametrize(("env", "why"), [
    ("LunarLander-v3", "LunarLander.world is of type b2World"), ("Keeper-v0", "Keeper.thing is of type object")])
def test_run_without_saved_environment_resumes_with_new_episodes(env, why, cli, curve, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        interrupt_at(400, patch)
        first = cli("ppo", "--env", env, *TINY)
    assert first.code == 130
    assert first.out.count(f"{env} cannot be saved ({why}): a resumed run starts new episodes") == 1
    assert load_checkpoint(tmp_path / RUN / "checkpoint.pt")["subject"]["env"] is None
    began, reseed = [], VectorEnv.reseed

    def spy(env_of_run, seed):
        began.append(env_of_run.obs.copy())
        reseed(env_of_run, seed)
        began.append(env_of_run.obs.copy())

    monkeypatch.setattr(VectorEnv, "reseed", spy)
    resumed = cli("resume", RUN)
    assert resumed.code == 0
    assert "; its environments could not be saved, so it starts new episodes\n" in resumed.out
    assert len(began) == 2 and (began[0] != began[1]).any()
    steps = [int(row[1]) for row in curve(tmp_path / RUN)[1:]]
    assert steps == list(range(64, 1281, 64))


def test_second_ctrl_c_stops_at_once(cli, stepped, monkeypatch, tmp_path):
    step = VectorEnv.step

    def press_twice(env, action):
        if len(stepped) == 100:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return step(env, action)

    monkeypatch.setattr(VectorEnv, "step", press_twice)
    before = signal.getsignal(signal.SIGINT)
    assert cli("ppo", "--env", "User-v0", *TINY).code == 130
    assert len(stepped) == 100 and signal.getsignal(signal.SIGINT) is before
    assert read_json(tmp_path / RUN / "result.json")["status"] == "interrupted"
    assert load_checkpoint(tmp_path / RUN / "checkpoint.pt")["steps"] == 128


# Catches: a number that is not checked, or for which the learning rate is blamed.
@pytest.mark.parametrize(("env", "what"), [
    ("NaNReward-v0", "returned a reward of nan"), ("InfiniteReward-v0", "returned a reward of inf"),
    ("NaNObservation-v0", "returned an observation with nan at index 0 of 3")])
def test_non_finite_number_stops_the_run_and_is_named(env, what, cli, tmp_path):
    done = cli("ppo", "--env", env, *TINY)
    assert done.code == 2 and done.err.startswith(f"spinup: {env} {what}, at step ")
    assert "in copy 0, after the action " in done.err and "--lr" not in done.err
    assert done.err.count("\n") == 1
    assert read_json(tmp_path / RUN / "result.json")["status"] == "failed"
    state = load_checkpoint(tmp_path / RUN / "checkpoint.pt")
    assert state["steps"] == 256
    assert all(p.isfinite().all() for p in state["parts"]["policy"].values())
    assert load(RUN).act(np.zeros(3, np.float32)) in (0, 1)


BROKEN = '''
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Broken(CartPoleEnv):
    age = 0

    def step(self, action):
        self.age += 1
        if self.age == 150:
            raise ZeroDivisionError("the user's own mistake")
        return super().step(action)

gymnasium.register("Broken-v7", Broken)
'''


# Catches: a missing `sys.path.append("")` in cli.py. Without it, neither the console script nor a forked process finds
# a module in the working folder.
def test_exception_of_the_environment_keeps_its_traceback(start, tmp_path):
    (tmp_path / "broken_of_a_test.py").write_text(BROKEN)                 # a name that no other test uses
    done = start("ppo", "--env", "broken_of_a_test:Broken-v7", *TINY).end()
    assert done.code == 1
    assert done.err.startswith("spinup: Broken-v7 raised ZeroDivisionError: the user's own mistake, at step ")
    assert done.err.endswith("ZeroDivisionError: the user's own mistake\n")
    assert 'broken_of_a_test.py", line 11, in step' in done.err
    result = read_json(tmp_path / RUN / "result.json")
    assert result["status"] == "failed" and result["steps"] == 256
    assert torch.load(tmp_path / RUN / "checkpoint.pt", weights_only=True)["steps"] == 256


# Catches: a SystemExit of the environment that ends the command with its exit code, 0.
def test_environment_that_calls_sys_exit_has_failed(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(User, "happens", lambda env: sys.exit(0))
    done = cli("ppo", "--env", "User-v0", *TINY)
    assert done.code == 2 and done.err.startswith("spinup: the environment called sys.exit(0); make it return")
    assert not (tmp_path / RUN).exists()                                  # it exits in its first steps


def test_resume_from_python_requires_the_same_settings(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = {"env": "User-v0", "num_envs": 2, "rollout_steps": 32, "total_steps": 256, "preset": "none", "quiet": True,
            "tensorboard": False}
    with pytest.raises(UserError, match="nowhere holds no run"):
        ppo(**tiny, resume="nowhere")
    assert list(tmp_path.iterdir()) == []
    first = ppo(**tiny)
    again = ppo(**tiny, resume=first.directory)                           # already finished
    assert again.status == "finished" and again.returns == first.returns and again.directory.samefile(first.directory)
    for other in ({"seed": 2}, {"hidden": (8, 8)}, {"gamma": 0.5}):
        name, = other
        with pytest.raises(UserError, match=f"is a run with {name} .*, not .*; give the same settings again"):
            ppo(**tiny | other, resume=first.directory)
    assert ppo(**tiny | {"quiet": False, "threads": 2}, resume=first.directory).status == "finished"
    own = ppo(**tiny | {"env": lambda: gymnasium.make("User-v0")})
    with pytest.raises(UserError, match="is a run with env the Python function lambda, not User-v0"):
        ppo(**tiny, resume=own.directory)
    longer = cli("resume", own.directory, "--total-steps", 512)
    assert longer.code == 2 and "call spinup.ppo(FUNCTION, total_steps=512, resume=" in longer.err
    with pytest.raises(UserError, match="is a run of ppo; give the same settings again"):
        vpg(**tiny, resume=first.directory)
    assert json.loads((first.directory / "result.json").read_text())["status"] == "finished"     # unchanged
