"""Benchmarks: equal settings for both, honest seconds, and a last line that a program can read."""
import json
import math
import signal

import pytest
import torch

from spinup.bench import returns as returns_module
from spinup.bench import speed as speed_module
from spinup.bench.speed import TASKS, above_pace, run_sb3, speed
from spinup.bench.time_to import WINDOW, stop_at, time_to
from spinup.envs.vector import VectorEnv
from spinup.errors import UserError


@pytest.mark.parametrize("arguments, message", [
    ({"env": "CartPole-v0"}, "Did you mean 'CartPole-v1'"), ({"total_steps": 1000}, "at least 1024"),
    ({"out": "nowhere/x.json"}, "--out nowhere/x.json cannot be written")])
def test_mistakes_are_found_before_any_run(arguments, message, monkeypatch):
    monkeypatch.setattr(speed_module, "child", lambda *_, **__: pytest.fail("a process was started"))
    arguments = {"env": "CartPole-v1", **arguments}
    if "out" in arguments:
        arguments["out"] = speed_module.Path(arguments["out"])
    with pytest.raises(UserError, match=message):
        speed("ppo", **arguments)


def test_without_the_peer_the_pip_line_is_given(monkeypatch):
    monkeypatch.setattr(speed_module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'spinup-rl\[bench\]'"):
        speed("ppo", "CartPole-v1")


def test_compile_seconds_are_what_the_first_row_took_above_the_pace():
    rows = {"steps": [1000.0, 2000.0, 10_000.0], "wall_seconds": [7.0, 8.0, 16.0]}
    assert above_pace(rows, seconds=16.0) == pytest.approx(6.0)           # 1 s for 1000 steps, and 6 s more at first
    assert above_pace({"steps": [1000.0, 2000.0], "wall_seconds": [1.0, 2.0]}, seconds=2.0) == 0.0


def test_the_ratio_of_a_compiled_run_leaves_compiling_out_and_the_exit_code_follows_the_goal(monkeypatch, capsys):
    """Pairs of 3, 5 and 4 times the peer's pace: the median meets the compiled goal of 4 exactly."""
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


@pytest.mark.parametrize("env", ["CartPole-v1", "HalfCheetah-v5"])
def test_the_peer_gets_the_same_settings(env, tmp_path, monkeypatch):
    import stable_baselines3
    seen, s = [], TASKS["ppo", env].settings

    def learn(self, steps, **_):
        self.ep_info_buffer, self.num_timesteps = [], steps
        seen.extend([self, steps])
    monkeypatch.setattr(stable_baselines3.PPO, "learn", learn)
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    run_sb3(str(tmp_path), {"env": env, "seed": 1, "settings": {**s, "total_steps": 4096}})
    threads, model, steps = seen
    batch = s["num_envs"] * s["rollout_steps"]
    assert (threads, steps, model.n_envs, model.n_steps) == (1, 4096, s["num_envs"], s["rollout_steps"])
    assert model.n_epochs == s["epochs"]
    assert model.batch_size * s["minibatches"] == batch
    assert (model.gamma, model.gae_lambda, model.ent_coef, model.max_grad_norm) == (0.99, 0.95, s["entropy_coef"], 0.5)
    assert model.vf_coef == 0.5
    assert model.clip_range(1.0) == model.clip_range_vf(1.0) == 0.2
    assert model.lr_schedule(1.0) == s["lr"] and model.lr_schedule(0.5) == s["lr"] / 2
    assert model.policy.optimizer.defaults["eps"] == 1e-5
    shapes = {name: tuple(p.shape) for name, p in model.policy.named_parameters()}
    layers = [shape for name, shape in shapes.items() if name.startswith("mlp") and name.endswith("weight")]
    assert layers == [(64, model.observation_space.shape[0]), (64, 64)] * 2
    assert (model.get_vec_normalize_env() is not None) == s.get("normalise_obs", False)


def test_speed_end_to_end(tmp_path, capsys):
    out = tmp_path / "speed.json"
    code = speed("ppo", "CartPole-v1", total_steps=2000, rounds=1, out=out)
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert result == json.loads(out.read_text())
    ours, theirs = result["runs"]["spinup"][0], result["runs"]["sb3"][0]
    assert ours["steps"] == theirs["steps"] == result["steps"] == 1536
    assert 0 < ours["seconds"] < ours["whole_call_seconds"] and 0 < theirs["seconds"] < theirs["whole_call_seconds"]
    assert result["ratios"] == [pytest.approx(ours["steps_per_second"] / theirs["steps_per_second"], abs=1e-3)]
    assert 8 < result["returns"]["spinup"][0] < 100 and 8 < result["returns"]["sb3"][0] < 100
    assert code == (0 if result["ratio_median"] >= 2.8 else 1) and result["compile_seconds"] is None
    assert {"torch", "stable-baselines3", "gymnasium"} <= set(result["versions"])
    assert [line.split()[2] for line in lines if line.startswith("pair 1")] == ["spinup", "sb3"]


class Ended(VectorEnv):
    """Deals episodes that have ended."""

    def __init__(self, *returns: float):
        super().__init__(1)
        self.finished = [(r, 1) for r in returns]


def test_a_run_is_stopped_once_when_twenty_episodes_in_a_row_reach_the_target(monkeypatch):
    monkeypatch.setattr(VectorEnv, "take_finished", VectorEnv.take_finished)               # undo what stop_at does
    interruptions = []
    before = signal.signal(signal.SIGINT, lambda *_: interruptions.append(True))
    try:
        reached = stop_at(10.0)
        Ended(*[0.0] * 5, *[math.nextafter(10.0, 0)] * (WINDOW - 1)).take_finished()
        assert not reached and not interruptions
        assert Ended(30.0, 0.0).take_finished() == [(30.0, 1), (0.0, 1)]  # high enough in between, not at the end
        assert reached == [True] and interruptions == [True]
        Ended(*[50.0] * 40).take_finished()
        assert interruptions == [True]
    finally:
        signal.signal(signal.SIGINT, before)


def test_time_to_end_to_end(capsys):
    assert time_to("ppo", "CartPole-v1", target=25, seeds=[7]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 < result["seconds"][0] == result["median_seconds"] and result["met"] and result["goal"] is None
    assert 0 < result["steps"][0] < result["settings"]["total_steps"]
    assert result["settings"]["tensorboard"] and not result["settings"]["quiet"]


def test_time_to_says_when_a_seed_never_gets_there(monkeypatch, capsys):
    runs = iter([(True, 2.0), (False, 9.0), (False, 9.0)])

    def child(*_):
        reached, seconds = next(runs)
        return {"reached": reached, "seconds": seconds, "steps": 1, "settings": {}, "versions": {}}
    monkeypatch.setattr("spinup.bench.time_to.child", child)
    assert time_to("ppo", "CartPole-v1", target=475, seeds=[1, 2, 3]) == 1
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["seconds"] == [2.0, None, None] and result["median_seconds"] is None
    assert result["goal"] == 2.5 and not result["met"]


def test_time_to_passes_on_what_the_command_line_says():
    with pytest.raises(UserError, match="there is no environment 'CartPool-v1'. Did you mean 'CartPole-v1'"):
        time_to("ppo", "CartPool-v1", target=475, seeds=[1])


def test_returns_trains_and_evaluates_each_seed_and_the_exit_code_follows_the_goal(tmp_path, monkeypatch, capsys):
    def goes(goal: float) -> tuple[int, dict]:
        monkeypatch.setitem(returns_module.GOALS, ("ppo", "CartPole-v1"), {"E100": goal})
        code = returns_module.returns("ppo", "CartPole-v1", seeds=[1, 2], log_dir=tmp_path, out=tmp_path / "raw.json")
        return code, json.loads(capsys.readouterr().out.splitlines()[-1])

    code, result = goes(475)
    assert code == 0 and result["met"] and len(result["E100"]["seeds"]) == 2
    raw = json.loads((tmp_path / "raw.json").read_text())
    assert [r["seed"] for r in raw["runs"]] == [1, 2]
    assert all(len(r["evaluation_returns"]) == 100 and len(r["curve"]["steps"]) >= 190 for r in raw["runs"])
    assert result["R100"]["mean"] == pytest.approx(sum(sum(r["training_returns"]) for r in raw["runs"]) / 200)
    progress = tmp_path / "bench_ppo_CartPole-v1" / "bench_ppo_CartPole-v1_s1" / "progress.csv"
    before = progress.stat().st_mtime_ns
    code, result = goes(501)                                              # more than CartPole pays
    assert code == 1 and not result["met"]
    assert progress.stat().st_mtime_ns == before                          # finished runs are not repeated
