"""A run from Python and from the command line: its folder, its results, its output, and the state it restores."""
import json
import math
import os
import re
import signal
import threading
import time
from collections import deque
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from filelock import FileLock
from gymnasium.spaces import Box, Dict, Discrete
from threadpoolctl import threadpool_info, threadpool_limits

from spinup import load, ppo, vpg
from spinup.algos.ppo import Config
from spinup.envs import VectorEnv
from spinup.envs.make import make
from spinup.errors import NonFiniteError, UserError
from spinup.runs.files import read_json
from spinup.runs.folders import find_run, free_directory, lock, make_directory, runs_below, saved_at
from spinup.runs.records import read_result
from spinup.runs.resuming import check_unchanged
from spinup.runs.run import Result, Run
from spinup.runs.training import Training

TINY = {"total_steps": 1024, "num_envs": 4, "rollout_steps": 32, "preset": "none", "quiet": True, "tensorboard": False}
WORDS = ["--preset", "none", "--total-steps", 1024, "--num-envs", 4, "--rollout-steps", 32, "--minibatches", 2,
         "--epochs", 1]


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_folder_of_a_run_is_complete(cli, tmp_path, full_runs):
    assert cli("ppo", "--env", "Pendulum-v1", *WORDS, "--normalise-obs", "--exp-name", "swing", "--seed", 7).code == 0
    run = tmp_path / "runs/swing/swing_s7"
    files = {p.name for p in run.iterdir()}
    events = {name for name in files if name.startswith("events.out.tfevents.")}
    assert files - events == {".lock", "config.json", "progress.csv", "result.json", "checkpoint.pt", "curve.png"}
    assert len(events) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["runs"]

    config = json.loads((run / "config.json").read_text())
    assert config["algorithm"] == "ppo" and config["config"]["seed"] == 7 and config["config"]["env"] == "Pendulum-v1"
    versions = {"torch": torch.__version__, "numpy": np.__version__, "gymnasium": version("gymnasium")}
    assert config["versions"].items() >= versions.items()
    assert config["git"] is None or re.fullmatch(r"[0-9a-f]{12}\+?", config["git"])
    assert config["observation_space"]["high"] == [1.0, 1.0, 8.0] and config["action_space"]["kind"] == "Box"

    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "finished" and result["steps"] == 1024
    assert len(result["returns"]) == 4                                    # of 200 steps; each copy has 256
    assert result["return_mean_100"] == pytest.approx(np.mean(result["returns"]))
    assert result["steps_per_second"] == pytest.approx(1024 / result["seconds"], rel=0.01)
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG\r\n")


# Catches: a missing `clone()` in `plain`, so that each parameter is saved with the memory of all of them.
def test_checkpoint_is_plain_data_that_owns_its_memory(tmp_path):
    directory = ppo("Pendulum-v1", **TINY, epochs=1, normalise_obs=True, normalise_reward=True).directory
    state = torch.load(directory / "checkpoint.pt", weights_only=True)
    assert state["steps"] == 1024 and state["algorithm"] == "ppo"
    assert set(state["parts"]) == {"policy", "optimizer", "scaler"} and state["subject"]["env"] is not None
    tensors, rest = [], [state]
    while rest:
        x = rest.pop()
        rest += x.values() if isinstance(x, dict) else x if isinstance(x, list | tuple) else []
        tensors += [x] if isinstance(x, torch.Tensor) else []
        assert isinstance(x, torch.Tensor | dict | list | tuple | int | float | str | None)
    assert len(tensors) > 20
    assert all(t.untyped_storage().nbytes() == t.numel() * t.element_size() for t in tensors)
    policy = state["parts"]["policy"]
    assert not any(name.endswith("num_batches") for name in policy) and policy["normaliser.count"] == 1024


# Catches: buffers of the normaliser that are not persistent.
def test_loaded_policy_acts_as_the_policy_of_the_result():
    result = ppo("CartPole-v1", **{**TINY, "total_steps": 4096}, epochs=2, normalise_obs=True, lr=3e-4)
    assert isinstance(result, Result) and result.status == "finished"
    assert result.directory.is_dir() and "finished" in repr(result) and str(result.directory) in repr(result)
    assert result.progress["steps"][-1] == 4096
    assert len(result.progress["return_mean"]) == len(result.progress["steps"]) == 32
    assert result.returns and result.progress["return_mean_100"][-1] == pytest.approx(np.mean(result.returns))
    loaded = load(result.directory)
    obs = np.random.default_rng(0).normal(0, 0.2, (500, 4)).astype(np.float32)
    chosen = [result.policy.act(o) for o in obs]
    assert chosen == [loaded.act(o) for o in obs] and set(chosen) == {0, 1}
    for a, b in zip(result.policy.outputs(obs), load(Path(result.directory)).outputs(obs), strict=True):
        np.testing.assert_array_equal(a, b)
    drawn = [loaded.act(obs[0], deterministic=False) for _ in range(50)]
    assert set(drawn) == {0, 1}                                           # early in training, it still tries both


def test_act_accepts_exactly_one_observation():
    policy = ppo(**TINY).policy
    with pytest.raises(ValueError, match=r"one observation has shape \(4,\).*; use act_batch for several"):
        policy.act(np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"one observation has shape \(4,\), but this one has \(3,\)$"):
        policy.act(np.zeros(3))
    policy.env_settings = {"episodes": 1}                                 # as of rl2
    with pytest.raises(ValueError, match=r"make\(ID, 1, seed=0, \*\*policy.env_settings\), and use act_batch$"):
        policy.act(np.zeros(3))


# Catches: a negative index that counts from the end; several observations that are taken for one.
def test_policy_refuses_observations_outside_its_space():
    class Numbers(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Discrete(5, start=2), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 2, {}

        def step(self, action):
            return 3, 0.0, True, False, {}

    policy = ppo(Numbers, **TINY).policy
    assert policy.act(2) in (0, 1) and policy.act(np.int64(6)) in (0, 1)
    for wrong in 0, -1, 7, 3.0, np.array([3, 4]):
        with pytest.raises(ValueError, match="is not an observation of Discrete"):
            policy.act(wrong)


# Catches: an exception of close() that ends a finished run.
def test_exception_in_close_does_not_fail_a_finished_run(tmp_path, capsys):
    class Stuck(gymnasium.Wrapper):
        def close(self):
            raise OSError("stuck")

    before = signal.getsignal(signal.SIGINT)
    ppo(lambda: Stuck(gymnasium.make("CartPole-v1")), **TINY, log_dir=str(tmp_path), exp_name="x")
    assert "CartPole-v1 raised OSError: stuck, when it was closed" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    with FileLock(tmp_path / "x/x_s1/.lock", timeout=0):
        assert read_json(tmp_path / "x/x_s1/result.json")["status"] == "finished"


@pytest.mark.long
def test_policy_plays_an_episode_in_a_gymnasium_environment():
    policy = ppo("Pendulum-v1", **{**TINY, "total_steps": 128}).policy
    env = gymnasium.make("Pendulum-v1")             # strict: it refuses actions out of bounds or of a wrong shape
    obs, _ = env.reset(seed=0)
    for _ in range(200):
        obs, _, terminated, truncated, _ = env.step(policy.act(obs))
    assert truncated and not terminated


@pytest.mark.long
def test_environment_may_be_a_function(cli):
    def made():
        return gymnasium.make("CartPole-v1")

    result = ppo(made, **TINY)
    assert result.directory.as_posix() == "runs/ppo_made_1/ppo_made_1_s1"
    assert json.loads((result.directory / "config.json").read_text())["config"]["env"] == {"callable": "made"}
    assert load(result.directory).act(np.zeros(4, np.float32)) == result.policy.act(np.zeros(4, np.float32))
    assert ppo(lambda: gymnasium.make("CartPole-v1"), **TINY).returns == result.returns
    (result.directory / "result.json").unlink()                           # as if the run had been killed
    assert ppo(made, **TINY, resume=result.directory).returns == result.returns
    (result.directory / "result.json").unlink()
    for command, words in {"resume": f"spinup.ppo(made, resume='{result.directory}')",
                           "eval": f"spinup.load('{result.directory}')"}.items():
        done = cli(command, result.directory)
        assert done.code == 2 and words in done.err
    with pytest.raises(UserError, match="returned an object of type int; it must return a gymnasium.Env"):
        ppo(lambda: 3, **TINY)


@pytest.mark.long
def test_run_without_a_name_gets_a_new_number(cli, tmp_path, tree):
    for number in (1, 2):
        done = cli("ppo", *WORDS)
        assert done.code == 0 and f"runs/ppo_CartPole-v1_{number}/ppo_CartPole-v1_{number}_s1" in done.out
    (tmp_path / "runs/ppo_CartPole-v1_9").mkdir()                         # numbers below the largest are not used
    assert ppo(**TINY).directory.as_posix() == "runs/ppo_CartPole-v1_10/ppo_CartPole-v1_10_s1"
    assert vpg(**TINY, seed=4).directory.as_posix() == "runs/vpg_CartPole-v1_1/vpg_CartPole-v1_1_s4"


def test_named_run_is_refused_only_if_it_exists(cli, tree):
    assert cli("ppo", *WORDS, "--exp-name", "mine").code == 0
    assert cli("ppo", *WORDS, "--exp-name", "mine", "--seed", 2).code == 0        # another seed of the same experiment
    before = tree()
    done = cli("ppo", *WORDS, "--exp-name", "mine")
    assert done.code == 2
    assert "type `spinup resume runs/mine/mine_s1` to resume it, or choose another --exp-name or --seed" in done.err
    assert tree() == before


# Catches: a seed that does not reach the environments, `torch.manual_seed` or `Run.rng`.
@pytest.mark.long("ppo")
@pytest.mark.parametrize("algorithm", [ppo, vpg])
def test_curve_depends_on_the_seed_and_on_nothing_else(algorithm, curve):
    first = algorithm("CartPole-v1", **TINY)
    torch.manual_seed(99)
    np.random.seed(99)
    again = algorithm("CartPole-v1", **{**TINY, "tensorboard": True}, checkpoint_steps=128, exp_name="again",
                      device="cpu")
    other = algorithm("CartPole-v1", **TINY, seed=2)
    assert curve(first.directory) == curve(again.directory) != curve(other.directory)
    assert first.returns == again.returns != other.returns


# Catches: one of the three states that `__exit__` does not restore; an unchanged number of NumPy's threads during a
# run.
@pytest.mark.long
def test_threads_and_signal_handler_are_restored_after_a_run(monkeypatch):
    def mine(*_):
        raise AssertionError("nobody pressed Ctrl-C")

    def now():
        blas, = {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
        return torch.get_num_threads(), blas, signal.getsignal(signal.SIGINT)

    seen, step = [], VectorEnv.step

    def look(env, action):
        seen.append(now())
        if len(seen) == 100:
            raise ZeroDivisionError
        return step(env, action)

    monkeypatch.setattr(VectorEnv, "step", look)
    threads, handler = torch.get_num_threads(), signal.signal(signal.SIGINT, mine)
    try:
        torch.set_num_threads(3)
        threadpool_limits(2, "blas")
        ppo(**{**TINY, "total_steps": 256})
        assert now() == (3, 2, mine)
        assert seen[0][:2] == (1, 1) and seen[0][2] is not mine           # one thread suits a small network
        with pytest.raises(ZeroDivisionError):
            ppo(**TINY)
        assert now() == (3, 2, mine)
        seen.clear()
        ppo(**{**TINY, "total_steps": 128}, threads=2)
        assert seen[0][:2] == (2, 2)
    finally:
        signal.signal(signal.SIGINT, handler)
        torch.set_num_threads(threads)
        threadpool_limits(1, "blas")


# Catches: an error for the columns of a progress.csv without rows.
def test_ctrl_c_in_the_first_update_gives_a_result():
    class Interrupting(gymnasium.Wrapper):
        def step(self, action):
            taken.append(action)
            if len(taken) == 10:                                          # after the check of the environment
                os.kill(os.getpid(), signal.SIGINT)
            return self.env.step(action)

    taken = []
    result = ppo(lambda: Interrupting(gymnasium.make("CartPole-v1")), **TINY | {"total_steps": 1_000_000})
    assert result.status == "interrupted" and result.progress == {}
    assert (result.directory / "checkpoint.pt").exists()


# Catches: a signal handler that is set in a thread, which only the main thread may do.
def test_run_in_a_thread_does_not_change_the_signal_handler(monkeypatch):
    found, handlers, before = [], set(), signal.getsignal(signal.SIGINT)
    after_update = Run.after_update
    monkeypatch.setattr(Run, "after_update", lambda run: (
        handlers.add(signal.getsignal(signal.SIGINT)), after_update(run))[1])
    thread = threading.Thread(target=lambda: found.append(ppo(**TINY)))
    thread.start()
    thread.join()
    assert found[0].status == "finished" and handlers == {before}


@pytest.mark.long
def test_each_row_spans_a_fixed_number_of_steps(curve):
    settings = {**TINY, "num_envs": 1, "rollout_steps": 4, "total_steps": 4 * 601, "minibatches": 1, "epochs": 1}
    rows = curve(ppo(**settings).directory)
    steps = [int(row[rows[0].index("steps")]) for row in rows[1:]]
    assert steps == [*range(12, 4 * 601, 12), 4 * 601]                    # 601 updates in 200 rows, and the rest
    episodes, returns = (rows[0].index(name) for name in ("episodes", "return_mean"))
    assert all((row[episodes] == "0") == math.isnan(float(row[returns])) for row in rows[1:])
    assert sum(int(row[episodes]) for row in rows[1:]) > 20


def test_piped_run_prints_about_ten_plain_lines_and_the_next_commands(cli):
    done = cli("ppo", *WORDS, "--exp-name", "a b")
    assert "\x1b" not in done.out and done.err == ""
    lines = done.out.splitlines()
    assert lines[0] == "preset: none; defaults for discrete actions"
    assert lines[1].startswith("ppo on CartPole-v1 · seed 1 · cpu · runs/a b")
    assert 8 <= sum("steps/s" in line for line in lines) <= 12
    assert [line.split()[1] for line in lines[-4:]] == ["plot", "watch", "eval", "resume"]
    assert all('"runs/a b/a b_s1"' in line for line in lines[-4:])
    assert cli("eval", "runs/a b/a b_s1", "--episodes", 2).code == 0
    quiet = cli("ppo", *WORDS, "--quiet")
    assert quiet.out == quiet.err == ""


@pytest.mark.long
def test_speed_excludes_the_time_for_drawing_curves(cli, tmp_path, monkeypatch):
    from spinup.runs import curve
    monkeypatch.setattr(curve, "draw_curve", lambda directory: time.sleep(1.5))
    said = cli("ppo", *WORDS, "--exp-name", "x").out
    result = json.loads((tmp_path / "runs/x/x_s1/result.json").read_text())
    told = float(re.search(r"([\d,]+) a second", said)[1].replace(",", ""))
    assert told == pytest.approx(result["steps_per_second"], rel=0.1)


# Catches: omitted steps without a message; a message about only a few omitted steps.
@pytest.mark.parametrize(("asked", "words"), [(1100, "1,024 steps instead of 1,100, in whole updates of 128 steps"),
                                              (1030, "")])
def test_run_reports_if_it_makes_fewer_steps_than_requested(asked, words, cli):
    out = cli("ppo", *WORDS, "--total-steps", asked).out
    assert words in out and ("instead of" in out) == bool(words)


def test_unsupported_space_is_refused_before_files_are_created(tree):
    class Words(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Text(5), gymnasium.spaces.Discrete(2)

    with pytest.raises(UserError, match="type Text is not supported"):
        ppo(Words, **TINY)
    assert tree() == []


def test_failed_run_reports_the_failure_and_its_checkpoint(monkeypatch):
    with pytest.raises(NonFiniteError) as error:
        ppo("Pendulum-v1", **TINY, lr=1e30)
    assert re.fullmatch(r"[\w ]+ became (NaN|infinite) between steps 0 and 128; .* kept in runs/.*; "
                        "try a smaller --lr first", str(error.value))
    assert json.loads(Path("runs/ppo_Pendulum-v1_1/ppo_Pendulum-v1_1_s1/result.json").read_text())["status"] == "failed"


# Catches: the largest return in place of the mean; the smallest in place of the largest; swapped columns.
def test_row_has_the_statistics_of_its_episodes():
    run = SimpleNamespace(pending=[(1.0, 3), (4.0, 5)], recent=deque([-2.0, 1.0, 4.0]),
                          env=SimpleNamespace(measures=dict), _test=dict)
    assert Run.row(run) == {"episodes": 2, "return_mean": 2.5, "return_min": 1.0, "return_max": 4.0,
                            "length_mean": 4.0, "return_mean_100": 1.0}
    assert Run.summary(run) == "the last 3 episodes returned 1 on average" and run.pending == []
    assert Run.summary(SimpleNamespace(recent=deque())) == "no episode ended"


# Catches: the value of the first row in place of the last.
def test_quality_of_a_result_is_the_value_of_its_last_row():
    result = ppo(**TINY)
    column = result.progress["return_mean_100"]
    assert result.measure == "return_mean_100" and result.quality == column[-1] != column[0]


# Catches: one thread for every network.
def test_wide_networks_get_a_second_thread(monkeypatch):
    monkeypatch.setattr("spinup.runs.run.cores", lambda: 2)
    env = SimpleNamespace(observation_space=gymnasium.spaces.Box(-1, 1, (3,)), shown_by=())
    threads = {width: Run(Config(env="CartPole-v1", hidden=(width,), quiet=True), env).threads
               for width in (64, 127, 128)}
    assert threads == {64: 1, 127: 1, 128: 2}


# Catches: more or fewer checkpoints than the comment of --checkpoint-steps states.
def test_run_saves_twenty_checkpoints(full_runs, monkeypatch):
    saved, save = [], Training.save
    monkeypatch.setattr(Training, "save", lambda run: saved.append(run.steps) or save(run))
    ppo("CartPole-v1", num_envs=1, rollout_steps=8, minibatches=1, epochs=1, total_steps=8 * 100, quiet=True,
        tensorboard=False, preset="none")
    assert saved == [*range(40, 801, 40)]


# Catches: the ratio times the steps of one update, rounded at each update; the steps of the previous update.
@pytest.mark.parametrize("ratio", [0.1, 0.25, 1.0, 2.5])
def test_gradient_steps_match_the_update_ratio_for_every_update_size(ratio):
    for each in (1, 3, 8):
        run = SimpleNamespace(steps=0, steps_each=each)
        due = 0
        for _ in range(50):
            due += Run.updates_due(run, ratio)
            run.steps += each
            assert due == int(run.steps * ratio)


# Catches: two simultaneous runs with different settings that become two seeds of one experiment.
def test_two_simultaneous_runs_get_separate_folders(tmp_path):
    config = Config(log_dir=str(tmp_path), algorithm="ppo")
    first = free_directory("ppo", "CartPole-v1", config)
    other = first.with_name(first.name.replace("_s1", "_s2"))             # another run with the same number
    assert make_directory(first, False, "ppo", "CartPole-v1", config) == first
    second = make_directory(other, False, "ppo", "CartPole-v1", replace(config, seed=2))
    assert second.parent.name == "ppo_CartPole-v1_2" and second.name == "ppo_CartPole-v1_2_s2"


# Catches: a checkpoint that was loaded before another process saved a newer one.
def test_folder_in_which_another_process_has_just_trained_is_refused(tmp_path):
    assert saved_at(tmp_path) == 0
    lock(tmp_path, 0).release()
    (tmp_path / "checkpoint.pt").write_bytes(b"newer")
    with pytest.raises(UserError, match="holds a checkpoint without a config.json; restore it, or choose another"):
        lock(tmp_path, 0)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="another process has just trained in .*; type the same command again"):
        lock(tmp_path, 0)
    lock(tmp_path, saved_at(tmp_path)).release()


# Catches: files in a folder that are written before the lock is acquired.
def test_folder_in_which_another_process_trains_is_not_written_to(tmp_path):
    directory = tmp_path / "x" / "x_s1"
    directory.mkdir(parents=True)
    held = lock(directory)
    run = Run(Config(env="CartPole-v1", log_dir=str(tmp_path), exp_name="x", seed=1, algorithm="ppo"), make(
        "CartPole-v1", 1, 0))
    run.prepare_folder = lambda: pytest.fail("written")
    with pytest.raises(UserError, match="another process is training in"), run:
        pass
    assert [path.name for path in directory.iterdir()] == [".lock"]
    held.release()


# Catches: an endless search for a free number in a folder that cannot be listed.
def test_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    config = Config(log_dir=str(tmp_path), algorithm="ppo")
    first = free_directory("ppo", "CartPole-v1", config)
    first.parent.mkdir()
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    with pytest.raises(UserError, match="cannot be read; choose another --log-dir"):
        make_directory(first, False, "ppo", "CartPole-v1", config)


# Catches: an export beside a run that counts as a second run.
def test_export_does_not_count_as_a_run(tmp_path):
    for name, text in ("x_s1", '{"algorithm": "llm grpo"}'), ("hf", '{"model_type": "llama"}'):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    assert find_run(tmp_path) == tmp_path / "x_s1"


# Catches: a run that is ignored, or a traceback, because its config.json cannot be read.
def test_run_whose_settings_cannot_be_read_counts_as_a_run(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", lambda self: (_ for _ in ()).throw(PermissionError(13, "no permission")))
        assert runs_below(tmp_path) == [tmp_path]


# Catches: settings of a checkpoint that are tuples and count as changed, because JSON has only lists.
def test_tuple_in_a_checkpoint_equals_the_list_in_config_json(tmp_path):
    (tmp_path / "config.json").write_text('{"algorithm": "ppo", "config": {"hidden": [64, 64], "lr": 0.1}}')
    check_unchanged(tmp_path, {"hidden": (64, 64), "lr": 0.1})
    with pytest.raises(UserError, match="hidden was .* and is"):
        check_unchanged(tmp_path, {"hidden": (64, 32), "lr": 0.1})


@pytest.mark.parametrize("numbers", [
    '"steps": 1e400', '"steps": NaN', '"steps": 4, "measure": []', '"steps": 1.5, "measure": "x", "x": 1',
    '"steps": true, "measure": "x", "x": 1', '"steps": -5, "measure": "x", "x": 1',
    '"steps": 4, "measure": "x", "x": "a"', '"steps": 4, "measure": "x", "x": NaN',
    '"steps": 1' + "0" * 400, '"steps": 4, "measure": "x", "x": 1, "saved_steps": "many"'])
def test_result_with_invalid_numbers_is_refused(numbers, tmp_path):
    given = f'{{"status": "finished", "seconds": 1, "steps_per_second": 1, {numbers}}}'
    (tmp_path / "result.json").write_text(given)
    with pytest.raises(UserError, match="is not the result of a spinup run; delete it"):
        read_result(tmp_path)


# Catches: an error for the call in the documentation of saving, which passes a list in place of an array.
def test_policy_accepts_a_list_of_observations(tmp_path):
    policy = ppo("CartPole-v1", preset="none", total_steps=64, num_envs=2, rollout_steps=16, quiet=True,
                 tensorboard=False, log_dir=str(tmp_path)).policy
    observation = [0.0, 0.1, 0.0, -0.1]
    assert policy.act_batch([observation]).tolist() == [policy.act(observation)]
    with pytest.raises(ValueError, match=r"a batch of observations has shape \[N, 4\], but .* \[4\]; use act"):
        policy.act_batch(observation)


def test_policy_accepts_a_list_of_dictionaries(tmp_path):
    class Rooms(gymnasium.Env):
        observation_space = Dict({"at": Box(0, 1, (2,)), "door": Discrete(3)})
        action_space = Discrete(2)

        def reset(self, *, seed=None, options=None):
            return {"at": np.zeros(2, np.float32), "door": 1}, {}

        def step(self, action):
            return {"at": np.ones(2, np.float32), "door": 2}, 1.0, True, False, {}

    policy = ppo(Rooms, total_steps=64, num_envs=2, rollout_steps=16, quiet=True, tensorboard=False,
                 log_dir=str(tmp_path)).policy
    seen = [{"at": [0.0, 1.0], "door": 0}, {"at": [1.0, 0.5], "door": 2}]
    assert policy.act_batch(seen).tolist() == [policy.act(one) for one in seen]
