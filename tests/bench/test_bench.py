"""Benchmarks: equal settings for both libraries, correct times, and a last line of JSON."""
import importlib
import json
import math
import signal
import subprocess
import sys
from collections import deque
from types import SimpleNamespace

import pytest
import stable_baselines3
import torch

from spinup.bench import passes, peers, process
from spinup.bench import returns as returns_module
from spinup.bench import speed as speed_module
from spinup.bench.passes import networks_alone
from spinup.bench.peers import Clock, make_env, make_model, run_sb3
from spinup.bench.speed import above_pace, run_spinup, speed
from spinup.bench.tasks import TASKS, counted_from
from spinup.bench.time_to import WINDOW, stop_at, time_to
from spinup.core.fast import linear
from spinup.core.fast.adam import FlatAdam
from spinup.core.fast.linear import Layers
from spinup.envs.vector import VectorEnv
from spinup.errors import UserError
from spinup.machine import git_revision
from spinup.registry import find
from spinup.runs.log import read_progress
from spinup.runs.run import Run


@pytest.mark.parametrize("algo, arguments, message", [
    ("ppo", {"env": "CartPole-v0"}, "Did you mean 'CartPole-v1'"), ("ppo", {"total_steps": 1000}, "at least 1024"),
    ("ppo", {"out": "nowhere/x.json"}, "--out nowhere/x.json cannot be written"),
    ("sac", {}, "no speed benchmark of sac on CartPole-v1"),
    ("dqn", {"total_steps": 10_999}, "leaves too few steps after the first 10000, in which nothing is learned; "
                                       "choose at least 11000"),
    ("ppo", {"against": "sbx"}, "no speed benchmark of ppo on CartPole-v1 against sbx.*td3 --env HalfCheetah-v5"),
    ("sac", {"env": "HalfCheetah-v5", "against": "rllib"}, "--against must be one of sb3, sbx, not 'rllib'")])
def test_mistakes_are_reported_before_any_run(algo, arguments, message, monkeypatch):
    monkeypatch.setattr(speed_module, "child", lambda *_, **__: pytest.fail("a process was started"))
    arguments = {"env": "CartPole-v1", **arguments}
    if "out" in arguments:
        arguments["out"] = speed_module.Path(arguments["out"])
    with pytest.raises(UserError, match=message):
        speed(algo, **arguments)


@pytest.mark.parametrize("env, missing, extra", [
    ("CartPole-v1", "stable_baselines3", "bench"), ("PongNoFrameskip-v4", "ale_py", "atari"),
    ("PongNoFrameskip-v4", "cv2", "atari")])
def test_missing_package_gives_the_pip_command(env, missing, extra, monkeypatch):
    monkeypatch.setattr(speed_module, "find_spec", lambda name: None if name == missing else "there")
    monkeypatch.setattr(speed_module, "child", lambda *_, **__: pytest.fail("a process was started"))
    with pytest.raises(UserError, match=rf"pip install 'spinup-rl\[{extra}\]'"):
        speed("ppo", env)


def test_missing_sbx_gives_the_pip_command(monkeypatch):
    monkeypatch.setattr(speed_module, "find_spec", lambda name: None if name == "sbx" else "there")
    with pytest.raises(UserError, match=r"needs sbx-rl; type: pip install 'spinup-rl\[sbx\]'"):
        speed("sac", "HalfCheetah-v5", against="sbx")


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_sbx_gets_the_settings_of_stable_baselines3_and_its_own_goal(algo, monkeypatch, capsys):
    s, asked = TASKS[algo, "HalfCheetah-v5"].settings, []
    library = SimpleNamespace(**{algo.upper(): lambda *args, **settings: asked.append({"args": args, **settings})})
    env = make_env("HalfCheetah-v5", s, seed=1)
    make_model(algo, env, s, library=library, seed=1)
    monkeypatch.setattr(stable_baselines3, algo.upper(), getattr(library, algo.upper()))
    make_model(algo, env, s, seed=1)
    theirs, same = ({key: str(x) for key, x in settings.items()} for settings in asked)
    assert theirs == same and {"batch_size", "buffer_size", "learning_starts", "policy_kwargs"} <= theirs.keys()

    def child(module, name, job, environment):
        pace = {"limit": 1000.0, "sbx": 100.0, "spinup": 110.0}[name]
        assert job["against"] == "sbx" and module.endswith("peers" if name == "sbx" else "speed")
        return {"steps_per_second": pace, "whole_run_steps_per_second": pace, "seconds": 2.0, "compile_seconds": 0.0,
                "return": 1.0, "episodes": 1, "versions": {}}
    monkeypatch.setattr(speed_module, "child", child)
    monkeypatch.setattr(speed_module, "find_spec", lambda name: "there")
    for threads, goal, code in ((1, 1.0, 0), (2, 1.15, 1)):
        assert speed(algo, "HalfCheetah-v5", against="sbx", threads=threads, rounds=1) == code
        result = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (result["goal"], result["ratio_median"], result["met"]) == (goal, 1.1, not code)
        assert result["steps_per_second"] == {"spinup": [110.0], "sbx": [100.0]}
    monkeypatch.setattr(speed_module, "check_installed", lambda *_: None)
    assert speed(algo, "HalfCheetah-v5", against="sbx", threads=2, rounds=1, compile=True) == 1            # same goal


def test_compile_seconds_are_the_extra_time_of_a_row():
    rows = {"steps": [1000.0, 2000.0, 10_000.0], "wall_seconds": [7.0, 8.0, 16.0]}
    assert above_pace(rows, seconds=16.0) == pytest.approx(6.0)           # 1 s for 1000 steps, and 6 s more at first
    assert above_pace({"steps": [1000.0, 2000.0], "wall_seconds": [1.0, 2.0]}, seconds=2.0) == 0.0
    rows = {"steps": [1000.0, 2000.0, 3000.0], "wall_seconds": [0.1, 9.1, 11.1]}
    assert above_pace(rows, seconds=11.1, row=1) == pytest.approx(7.0)    # earlier rows do not count


def test_compiled_ratio_excludes_compilation_and_goal_sets_the_exit_code(monkeypatch, capsys):
    """The pairs have 3, 5 and 4 times the peer's pace, so the median is exactly the goal of a compiled run, 4."""
    def child(module, name, job, environment):
        pace = {"limit": 1000, "sb3": 10, "spinup": {1: 30, 2: 50, 3: 40}.get(job.get("seed"))}[name]
        return {"steps_per_second": pace, "seconds": 2.0, "compile_seconds": 3.0 if name == "spinup" else 0.0,
                "return": None, "episodes": 0, "versions": {}}
    monkeypatch.setattr(speed_module, "child", child)
    assert speed("ppo", "CartPole-v1", compile=True) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["ratios"], result["ratio_median"], result["goal"], result["met"]) == ([3, 5, 4], 4, 4.0, True)
    assert result["compile_seconds"] == 3.0
    assert result["steps"] == 299_520                                     # whole batches of 512


@pytest.mark.parametrize("algo, env, threads, compile, goal, met", [
    ("sac", "HalfCheetah-v5", 1, False, 1.25, True), ("sac", "HalfCheetah-v5", 2, False, 1.6, False),
    ("sac", "HalfCheetah-v5", 1, True, None, True), ("ppo", "PongNoFrameskip-v4", 2, False, 1.6, False),
    ("dqn", "CartPole-v1", 1, False, 2.0, False), ("dqn", "CartPole-v1", 2, False, None, True)])
def test_threads_reach_every_process_and_set_the_goal(algo, env, threads, compile, goal, met, monkeypatch, capsys):
    calls = []

    def child(module, name, job, environment):
        calls.append((module, name, job["threads"], set(environment.values())))
        pace = {"limit": 1000.0, "sb3": 100.0, "spinup": 150.0}[name]
        alone = {"networks_alone_per_second": 2 * pace} if algo == "sac" else {}
        return {"steps_per_second": pace, "whole_run_steps_per_second": 2 * pace if name == "sb3" else pace,
                "seconds": 2.0, "compile_seconds": 0.0, "return": 1.0, "episodes": 1, "versions": {}, **alone}
    monkeypatch.setattr(speed_module, "child", child)
    assert speed(algo, env, threads=threads, compile=compile, rounds=1) == (0 if met else 1)
    assert calls == [(f"spinup.bench.{file}", name, threads, {str(threads)})
                     for file, name in (("speed", "limit"), ("speed", "spinup"), ("peers", "sb3"))]
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["goal"], result["met"], result["ratio_median"]) == (goal, met, 1.5)
    assert result["settings"]["threads"] == threads
    assert result.get("ratio_median_whole_run") == (None if algo == "ppo" else 0.75)
    assert result.get("networks_alone_share") == ({"spinup": 0.5, "sb3": 0.5} if algo == "sac" else None)


@pytest.mark.parametrize("env, against, confined", [
    ("PongNoFrameskip-v4", "sb3", [{3, 5}]), ("HalfCheetah-v5", "sb3", []), ("HalfCheetah-v5", "sbx", [{3, 5}])])
def test_atari_and_jax_have_as_many_cores_as_threads(env, against, confined, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(process.os, "sched_getaffinity", lambda _: {7, 5, 3}, raising=False)
    monkeypatch.setattr(process.os, "sched_setaffinity", lambda _, cores: seen.append(set(cores)), raising=False)
    monkeypatch.setattr(process.sys, "argv", ["", "folder", "limit", json.dumps({"env": env, "threads": 2,
                                                                                       "against": against})])
    process.work({"limit": lambda folder, job: {"folder": folder, **job}})
    assert seen == confined and json.loads(capsys.readouterr().out)["folder"] == "folder"


def test_command_line_passes_on_the_number_of_threads(cli, monkeypatch):
    given = {}
    monkeypatch.setattr(speed_module, "speed", lambda *args, **flags: given.update(flags) or 0)
    assert cli("bench", "speed", "td3", "--env", "HalfCheetah-v5").code == 0 and given["threads"] == 1
    assert cli("bench", "speed", "td3", "--env", "HalfCheetah-v5", "--threads", 2).code == 0 and given["threads"] == 2
    assert cli("bench", "speed", "td3", "--threads", 0).code == 2
    assert "td3 on HalfCheetah-v5; sac on HalfCheetah-v5" in " ".join(cli("bench", "speed", "--help").out.split())


@pytest.mark.parametrize("algo, env", TASKS)
def test_our_config_has_the_settings_of_the_task(algo, env):
    settings = TASKS[algo, env].settings
    config = importlib.import_module(f"spinup.algos.{algo}").Config(env=env, **settings)
    assert {name: getattr(config, name) for name in settings} == settings


@pytest.mark.long("PongNoFrameskip-v4")
@pytest.mark.parametrize("env", [env for algo, env in TASKS if algo == "ppo"])
def test_peer_gets_the_same_ppo_settings(env, tmp_path, monkeypatch):
    seen, s = [], TASKS["ppo", env].settings

    def learn(self, steps, **_):
        self.ep_info_buffer, self.num_timesteps = [], steps
        seen.extend([self, steps])
    monkeypatch.setattr(stable_baselines3.PPO, "learn", learn)
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    run_sb3(str(tmp_path), {"algo": "ppo", "env": env, "seed": 1, "threads": 2, "settings": {**s, "total_steps": 4096}})
    threads, model, steps = seen
    batch = s["num_envs"] * s["rollout_steps"]
    assert (threads, steps, model.n_envs, model.n_steps) == (2, 4096, s["num_envs"], s["rollout_steps"])
    assert model.n_epochs == s["epochs"]
    assert model.batch_size * s["minibatches"] == batch
    assert (model.gamma, model.gae_lambda, model.ent_coef, model.max_grad_norm) == (0.99, 0.95, s["entropy_coef"], 0.5)
    assert model.vf_coef == 0.5
    assert model.clip_range(1.0) == model.clip_range_vf(1.0) == s["clip_ratio"] == s["clip_value"]
    assert model.lr_schedule(1.0) == s["lr"] and model.lr_schedule(0.5) == s["lr"] / 2
    assert model.policy.optimizer.defaults["eps"] == 1e-5
    assert (model.get_vec_normalize_env() is not None) == s.get("normalise_obs", False)
    assert weights(model.policy) == weights(ours("ppo", env))


def weights(net: torch.nn.Module) -> list[int]:
    """The sizes of all matrices and kernels of a network."""
    return sorted(p.numel() for p in net.parameters() if p.dim() > 1)


def ours(algo: str, env: str) -> torch.nn.Module:
    module, made = importlib.import_module(f"spinup.algos.{algo}"), passes.make(env)
    config = module.Config(env=env, **TASKS[algo, env].settings)
    return module.make_policy(config, made.observation_space, made.action_space)


@pytest.mark.parametrize("algo, env", [task for task in TASKS if task[0] != "ppo"])
def test_peer_gets_the_same_off_policy_settings(algo, env):
    s = TASKS[algo, env].settings
    model = make_model(algo, make_env(env, s, seed=1), s, seed=1)
    assert (model.gamma, model.batch_size, model.buffer_size) == (0.99, s["batch_size"], s["replay_size"])
    assert model.lr_schedule(1.0) == model.lr_schedule(0.5) == s["lr"]
    assert model.train_freq.frequency == s["update_every"]
    assert model.gradient_steps / model.train_freq.frequency == pytest.approx(s["update_ratio"])
    assert model.n_envs == s["num_envs"] == 1
    if algo == "dqn":
        assert model.target_update_interval == s["target_every"] * s["update_every"] / model.gradient_steps
        assert (model.exploration_schedule(1.0), model.exploration_schedule(0.0)) == (1.0, s["epsilon"])
        assert model.exploration_schedule(1 - s["explore"] / 2) == pytest.approx((1 + s["epsilon"]) / 2)
        assert (model.tau, model.max_grad_norm) == (1.0, s["max_grad_norm"])
        nets, optimizers = model.q_net, [model.policy.optimizer]
    else:
        assert model.tau == s["tau"]
        nets, optimizers = torch.nn.ModuleList([model.actor, model.critic]), [model.actor.optimizer]
        optimizers.append(model.critic.optimizer)
    if algo == "td3":
        assert (model.policy_delay, model.target_policy_noise, model.target_noise_clip) == (
            s["policy_delay"], s["target_noise"], s["noise_clip"])
        assert (model.action_noise._sigma == s["explore_noise"]).all()
    if algo == "sac":
        assert model.log_ent_coef.exp() == s["alpha"] and model.ent_coef_optimizer is not None
        assert model.target_entropy == s["target_entropy"] * model.action_space.shape[0]
    assert all(o.defaults["eps"] == 1e-8 and o.defaults["lr"] == s["lr"] for o in optimizers)
    found, expected = sum(weights(nets)), sum(weights(ours(algo, env)))
    assert found == expected                                              # mean and log_std are two layers there


TINY = {"total_steps": 300, "learning_starts": 100, "hidden": (8, 8), "batch_size": 8}


@pytest.mark.long("sac-HalfCheetah-v5", "td3-HalfCheetah-v5")
@pytest.mark.parametrize("algo, env", [("dqn", "CartPole-v1"), ("sac", "HalfCheetah-v5"), ("td3", "HalfCheetah-v5")])
def test_off_policy_runs_have_equal_gradient_steps_and_counted_steps(algo, env, tmp_path, monkeypatch, one_thread):
    models, steps = [], []

    def built(*args, **kwargs):
        models.append(make_model(*args, **kwargs))
        return models[-1]

    def counted(self, *args, step=FlatAdam.step):
        steps.append(self)
        return step(self, *args)
    monkeypatch.setattr(peers, "make_model", built)
    monkeypatch.setattr(FlatAdam, "step", counted)
    monkeypatch.setattr(passes, "SECONDS", 0.01)
    s = {**TASKS[algo, env].settings, **TINY}
    job = {"algo": algo, "env": env, "settings": s, "seed": 1, "threads": 1, "compile": False}
    our_run, their_run = run_spinup(str(tmp_path), job), run_sb3(str(tmp_path), job)
    critic_steps = [o for o in steps if o is steps[0]]
    assert len(critic_steps) == models[0]._n_updates > 0
    progress = read_progress(next(tmp_path.glob("*/*/progress.csv")).parent)
    row = progress["steps"].index(counted_from(s))
    assert our_run["seconds_before"] == pytest.approx(progress["wall_seconds"][row], abs=1e-3)
    assert 100 < counted_from(s) <= 110
    for run in (our_run, their_run):
        assert run["steps"] == 300
        near = 0.01 + 1e-3 / run["seconds"]                               # seconds are rounded to milliseconds
        assert run["steps_per_second"] == pytest.approx((300 - counted_from(s)) / run["seconds"], rel=near)
        whole = run["seconds"] + run["seconds_before"]
        assert run["whole_run_steps_per_second"] == pytest.approx(300 / whole, rel=near)
        assert 0 < run["seconds_before"] < whole < run["whole_call_seconds"]
        assert ("networks_alone_per_second" in run) == (algo != "dqn")


def test_clock_of_the_peer_begins_after_the_step_and_its_update():
    clock = Clock(20)
    for steps in (0, 10):
        clock.model = SimpleNamespace(num_timesteps=steps)
        clock.on_rollout_start()
    assert not clock.began
    clock.model = SimpleNamespace(num_timesteps=20)
    clock.on_rollout_start()
    began = clock.began
    clock.on_rollout_start()
    assert 0 < began == clock.began


@pytest.mark.parametrize("algo, calls, products", [
    ("sac", 4 * 5, 4 * (24 + 10 + 11)), ("td3", 2 * 2 + 2 * 4, 2 * (15 + 10) + 2 * (21 + 10 + 8))])
def test_networks_alone_computes_only_the_passes_of_a_gradient_step(algo, calls, products, monkeypatch):
    """The passes: targets of actor and critics; critics; actor with the critics in its loss. TD3 has one critic there,
    and only at every second step.

    Each network has three layers: 3 products forward; 5 backward in a critic; 5 backward in an actor, and 3 in each
    critic of its loss. `calls`: the passes that are recorded for the backward pass, so without the three of the
    targets.
    """
    seen, multiplied = [], []
    apply, product = Layers.apply, linear.product
    monkeypatch.setattr(linear, "product", lambda *args: multiplied.append(1) or product(*args))
    monkeypatch.setattr(Layers, "apply", lambda *args: seen.append(args[0].shape) or apply(*args))
    monkeypatch.setattr(linear, "LARGE", 1)                               # otherwise torch computes such small ones
    monkeypatch.setattr(passes, "SECONDS", -1.0)
    monkeypatch.setattr(passes, "WARM", 4)
    s = {**TASKS[algo, "HalfCheetah-v5"].settings, **TINY}
    found = networks_alone(algo, "HalfCheetah-v5", s, plain=False)
    assert found == {"networks_alone_per_second": 0}                      # no step in a time of 0
    assert len(multiplied) == products
    assert len(seen) == calls and {shape[0] for shape in seen} == {8} and {shape[1] for shape in seen} == {17, 23}
    networks_alone(algo, "HalfCheetah-v5", s, plain=True)
    assert len(seen) == calls                                             # torch's own layers
    assert networks_alone("dqn", "CartPole-v1", TASKS["dqn", "CartPole-v1"].settings, plain=True) == {}


def test_speed_benchmark_runs_end_to_end(tmp_path, monkeypatch, capsys, one_thread, fork_python):
    fork_python(process)

    def child(module, name, job, environment, alone=speed_module.child):
        """Measure the environment alone in a separate process, as usual. Train in this process, which saves the
        imports."""
        if name == "limit":
            return alone(module, name, job, environment=environment)
        (tmp_path / name).mkdir()
        return {"spinup": run_spinup, "sb3": run_sb3}[name](str(tmp_path / name), job)
    monkeypatch.setattr(speed_module, "child", child)
    out = tmp_path / "speed.json"
    code = speed("ppo", "CartPole-v1", total_steps=2000, rounds=1, out=out)
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert result | {"git": git_revision()} == json.loads(out.read_text())
    ours, theirs = result["runs"]["spinup"][0], result["runs"]["sb3"][0]
    assert ours["steps"] == theirs["steps"] == result["steps"] == 1536
    assert 0 < ours["seconds"] < ours["whole_call_seconds"] and 0 < theirs["seconds"] < theirs["whole_call_seconds"]
    assert result["ratios"] == [pytest.approx(ours["steps_per_second"] / theirs["steps_per_second"], abs=1e-3)]
    assert 8 < result["returns"]["spinup"][0] < 100 and 8 < result["returns"]["sb3"][0] < 100
    assert code == (0 if result["ratio_median"] >= 2.8 else 1) and result["compile_seconds"] is None
    assert {"torch", "stable-baselines3", "gymnasium"} <= set(result["versions"])
    assert [line.split()[2] for line in lines if line.startswith("pair 1")] == ["spinup", "sb3"]


class Ended(Run):
    """A run whose episodes have ended."""

    def __init__(self, *returns: float):
        self.env, self.whole_episodes, self.pending, self.recent = VectorEnv(1), True, [(99.0, 1)] * 30, deque()
        self.env.finished = [(r, 1) for r in returns]


# Catches: episodes of earlier updates, or test episodes, that count.
def test_run_is_stopped_once_when_twenty_episodes_reach_the_target(monkeypatch):
    monkeypatch.setattr(Run, "after_update", Run.after_update)            # undo what stop_at does
    interruptions = []
    before = signal.signal(signal.SIGINT, lambda *_: interruptions.append(True))
    try:
        reached = stop_at(10.0)
        Ended(*[0.0] * 5, *[math.nextafter(10.0, 0)] * (WINDOW - 1)).after_update()
        assert Ended(*[50.0] * 40).env.take_finished() and not reached and not interruptions         # test episodes
        Ended(30.0, 0.0).after_update()                                   # high enough within the update
        assert reached == [True] and interruptions == [True]
        Ended(*[50.0] * 40).after_update()
        assert interruptions == [True]
    finally:
        signal.signal(signal.SIGINT, before)


def test_time_to_benchmark_runs_end_to_end(capsys, fork_python):
    fork_python(process)
    assert time_to("ppo", "CartPole-v1", target=25, seeds=[7]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 < result["seconds"][0] == result["median_seconds"] and result["met"] and result["goal"] is None
    assert 0 < result["steps"][0] < result["settings"]["total_steps"]
    assert result["settings"]["tensorboard"] and not result["settings"]["quiet"]


def test_time_to_reports_seeds_that_never_reach_the_target(monkeypatch, capsys):
    runs = iter([(True, 2.0), (False, 9.0), (False, 9.0)])

    def child(*_):
        reached, seconds = next(runs)
        return {"reached": reached, "seconds": seconds, "steps": 1, "settings": {}, "versions": {}}
    monkeypatch.setattr("spinup.bench.time_to.child", child)
    assert time_to("ppo", "CartPole-v1", target=475, seeds=[1, 2, 3]) == 1
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["seconds"] == [2.0, None, None] and result["median_seconds"] is None
    assert result["goal"] == 2.5 and not result["met"]


# Catches: a traceback in place of the message that `child` passes on.
def test_user_error_ends_a_process_with_its_message(capsys):
    def refuse():
        raise UserError("dqn needs discrete actions;\nchoose sac")
    with pytest.raises(SystemExit) as end:
        process.answer(refuse)
    assert end.value.code == 2 and capsys.readouterr().err == "spinup: dqn needs discrete actions; choose sac\n"


def test_time_to_passes_on_errors_of_the_command_line():
    with pytest.raises(UserError, match="there is no environment 'CartPool-v1'. Did you mean 'CartPole-v1'"):
        time_to("ppo", "CartPool-v1", target=475, seeds=[1])


# Catches: the advice to give --data, which these commands do not have.
@pytest.mark.parametrize("what", ["time-to", "returns"])
def test_offline_algorithms_are_referred_to_another_benchmark(cli, what):
    done = cli("bench", what, "bc")
    assert done.code == 2 and done.err.endswith("type: spinup bench paper offline\n") and not done.out


# Catches: a printed heading of a benchmark that cannot run.
def test_time_to_prints_nothing_for_an_algorithm_that_cannot_train(capsys):
    for algo, words in (("bc", "--data is missing"), ("sac", "sac cannot act in")):
        with pytest.raises(UserError, match=words):
            time_to(algo, "CartPole-v1", target=475, seeds=[1])
    assert capsys.readouterr().out == ""


# Catches: a missing seed; an evaluation of another length; a run that is repeated; published returns of the preset
# beside those of other settings.
def test_returns_trains_and_evaluates_each_seed(tmp_path, monkeypatch, capsys, here):
    for module in (process, returns_module):
        monkeypatch.setattr(module, "spinup", here)

    def goes() -> tuple[int, dict]:
        code = returns_module.returns("ppo", "CartPole-v1", seeds=[1, 2], total_steps=8192, log_dir=tmp_path,
                                      out=tmp_path / "raw.json")
        lines = capsys.readouterr().out.splitlines()
        assert not any(line.startswith("published") for line in lines)
        return code, json.loads(lines[-1])

    code, result = goes()
    assert code == 0 and result["met"] and result["goal"] == {} and len(result["E100"]["seeds"]) == 2
    raw = json.loads((tmp_path / "raw.json").read_text())
    assert [r["seed"] for r in raw["runs"]] == [1, 2]
    assert all(len(r["evaluation_returns"]) == 100 and len(r["curve"]["steps"]) == 8192 // 512 for r in raw["runs"])
    assert result["R100"]["mean"] == pytest.approx(sum(sum(r["training_returns"]) for r in raw["runs"]) / 200)
    progress = tmp_path / "bench_ppo_CartPole-v1_8192" / "bench_ppo_CartPole-v1_8192_s1" / "progress.csv"
    before = progress.stat().st_mtime_ns
    assert goes() == (code, result) and progress.stat().st_mtime_ns == before


# Catches: the goal of another measure; a mean that equals the peer's and misses the goal.
@pytest.mark.parametrize("peers, met", [((20.0, 40.0), True), ((20.0, 41.0), False)])
def test_goal_is_the_mean_of_the_peer(peers, met, capsys):
    runs = [{"seed": 1, "R100": 99.0, "E100": found, "steps": 9, "seconds": 1.0} for found in peers]
    found = returns_module.compared({"mean": 30.0, "seeds": [30.0]}, runs, "the peer")
    assert found["met"] is met and found["goal"] == {"E100": sum(peers) / 2}
    assert capsys.readouterr().out.splitlines()[-1] == f"goal: E100 {sum(peers) / 2:.1f}: {'met' if met else 'missed'}"


def test_returns_evaluates_an_existing_off_policy_run(tmp_path, monkeypatch, capsys, here):
    """An existing run of SAC is evaluated, and the published returns of its preset are beside its own."""
    from spinup.algos import sac
    name, small = "bench_sac_Pendulum-v1", {"total_steps": 250, "learning_starts": 200, "hidden": (8,)}
    sac.train(sac.Config(env="Pendulum-v1", **small, seed=3, threads=1, log_dir=str(tmp_path), exp_name=name,
                         quiet=True, tensorboard=False))
    with pytest.raises(UserError, match="a run with total_steps 250, not 20000; choose another --log-dir"):
        returns_module.returns("sac", "Pendulum", seeds=[3], log_dir=tmp_path)
    monkeypatch.setattr(returns_module, "configure", lambda algorithm, given, preset: (
        algorithm.load().Config(**given, **small), "none"))
    monkeypatch.setattr(returns_module, "finished_run", lambda *_: tmp_path / name / f"{name}_s3")
    monkeypatch.setattr(returns_module, "spinup", here)
    capsys.readouterr()
    assert returns_module.returns("sac", "Pendulum", seeds=[3], log_dir=tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    result, reached = json.loads(lines[-1]), find("sac").presets["Pendulum-v1"]["reached"]
    assert lines[-2] == (f"published for this preset: R100 {reached['R100']}, E100 {reached['E100']} (seeds: 5; "
                         f"{reached['file']})")
    assert -2000 < result["E100"]["mean"] < -300 and result["settings"]["learning_starts"] == 200


# Catches: a traceback after all the training, because a preset names no seeds or no file.
@pytest.mark.parametrize(("reached", "said"), [
    ({"E100": 200.0}, "published for this preset: E100 200.0\n"),
    ({"R100": 1, "seeds": 3}, "published for this preset: R100 1.0 (seeds: 3)\n"), (None, "")])
def test_published_returns_need_no_source(reached, said, monkeypatch, capsys):
    monkeypatch.setattr(returns_module, "find", lambda name: SimpleNamespace(presets={"X-v0": {"reached": reached}}))
    returns_module.print_reached("mine", "X-v0")
    assert capsys.readouterr().out == said


# Catches: parallel runs with two threads each, of which one without a core delays the other.
def test_parallel_runs_have_one_thread_each(tmp_path, monkeypatch):
    typed = []

    def stop(*words):
        typed.append(words)
        raise UserError("stopped")
    monkeypatch.setattr(process, "spinup", stop)
    for workers in (1, 2):
        with pytest.raises(UserError, match="stopped"):
            returns_module.returns("ppo", "CartPole-v1", seeds=[1], workers=workers, log_dir=tmp_path)
    assert "--threads" not in typed[0] and typed[1][-2:] == ("--threads", "1")


# Catches: a peer with another number of steps, or one that is trained twice; a goal that is not the mean of the peer.
@pytest.mark.long
def test_returns_compares_runs_without_a_preset_with_a_peer(tmp_path, monkeypatch, capsys, here, fork_python):
    fork_python(process)
    for module in (process, returns_module):
        monkeypatch.setattr(module, "spinup", here)
    words = {"seeds": [1], "preset": "none", "total_steps": 1100, "against": "sb3", "log_dir": tmp_path}
    code = returns_module.returns("ppo", "CartPole-v1", **words, out=tmp_path / "raw.json")
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["command"].endswith("--seeds 1 --preset none --total-steps 1100 --against sb3")
    assert result["settings"]["lr"] == 1e-3 and result["settings"]["total_steps"] == 1100
    assert result["goal"] == {"E100": result["peer"]["E100"]["mean"]}
    between = {"mean": result["E100"]["mean"] - result["peer"]["E100"]["mean"], "interval": None}
    assert result["difference"] == between                                # one seed has no interval
    assert code == (0 if result["E100"]["mean"] >= result["goal"]["E100"] else 1)
    peer = json.loads((tmp_path / "raw.json").read_text())["peers"][0]
    assert peer["steps"] == 2048 and result["steps"] == 1024              # the peer completes its first batch
    assert len(peer["evaluation_returns"]) == 100 and all(8 <= r <= 500 for r in peer["evaluation_returns"])
    monkeypatch.setattr(returns_module, "child", None)                    # it is not trained again
    assert returns_module.returns("ppo", "CartPole-v1", **words) == code
    (file,) = tmp_path.rglob("sb3_1024_s1.json")
    for content in ("", "[]", "{}", *(json.dumps(peer | other) for other in (
            {"seed": 7}, {"settings": {"gamma": 0.9}}, {"version": "1.0"}))):
        file.write_text(content)
        with pytest.raises(UserError, match=r"sb3_1024_s1.json .*; delete .*sb3_1024_s1.json, and type the same"):
            returns_module.returns("ppo", "CartPole-v1", **words)
    file.write_text(json.dumps({**peer, "R100": None}))
    with pytest.raises(UserError, match="no episode ended in 2,048 steps of seed 1; choose a larger --total-steps"):
        returns_module.returns("ppo", "CartPole-v1", **words)


@pytest.mark.parametrize("algo, env, message", [
    ("vpg", "CartPole-v1", "stable-baselines3 has no vpg; leave out --against"),
    ("her", "GoalReacher-v0", "stable-baselines3 has no her; leave out --against"),
    ("ppo", "NoisyTV-v0", "vector observations, and NoisyTV-v0 is not one; leave out --against"),
    ("ppo", "PongNoFrameskip-v4", "vector observations, and PongNoFrameskip-v4 is not one; leave out --against")])
def test_peer_that_cannot_train_is_refused_before_any_run(algo, env, message, tmp_path):
    with pytest.raises(UserError, match=message):
        returns_module.returns(algo, env, seeds=[1], against="sb3", log_dir=tmp_path)
    assert not list(tmp_path.iterdir())


# Catches: a training run that continues after `kill` has ended the benchmark.
def test_sigterm_also_ends_the_child_processes(tmp_path):
    (tmp_path / "a.py").write_text("""
import os, signal, subprocess, sys, threading
from spinup import signals
from spinup.bench.process import ending_children
with ending_children():
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGTERM]).start()
    try:
        child.wait()
    except KeyboardInterrupt:
        print(child.wait(), signals.exit_code())
""")
    done = subprocess.run([sys.executable, "a.py"], cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert done.stdout.split() == ["-15", "143"], done.stderr
