"""Offline runs: their environment, how they resume, and what they refuse."""
import errno
import json
import shutil
import warnings

import numpy as np
import pytest
from gymnasium.spaces import Box

import spinup
from spinup.data.dataset import Dataset, join, load
from spinup.envs import make
from spinup.envs.spaces import space_to_json
from spinup.errors import UserError
from spinup.family import load as load_any
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.log import read_progress
from spinup.runs.offline import OfflineRun, of_actions
from spinup.runs.public import load as load_policy
from spinup.view.record import record

FLAGS = ("--total-steps", "60", "--batch-size", "8", "--hidden", "4", "--test-episodes", "2", "--threads", "1",
         "--no-tensorboard", "--quiet", "--log-dir", "runs")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The name of a CartPole dataset in the working folder."""
    monkeypatch.chdir(tmp_path)
    record(["random:CartPole-v1"], tmp_path / "d.npz", steps=200, noise=[0.0], stochastic=False, seed=1)
    return "d.npz"


# Catches: an environment that the user must name; the measure of another kind of run; a policy that cannot be evaluated
# without the dataset; a missing unit of steps.
def test_dataset_gives_the_environment_and_evaluation_does_not_need_it(data, cli, tmp_path):
    loud = [word for word in FLAGS if word != "--quiet"]
    assert "/ 60 gradient steps   test return" in cli("cql", "--data", data, "--exp-name", "a", *loud).out
    folder = tmp_path / "runs" / "a" / "a_s1"
    config, result = (json.loads((folder / f"{name}.json").read_text()) for name in ("config", "result"))
    assert config["config"]["env"] == "CartPole-v1" and config["unit"] == "gradient steps"
    assert config["dataset"]["sha256"] == load(data).about["sha256"] and "num_envs" not in config["config"]
    assert result["measure"] == "test_return" and len(result["returns"]) == 2
    (tmp_path / data).unlink()
    assert cli("eval", str(folder), "--episodes", "3").code == 0
    assert cli("plot", str(folder), "--out", str(tmp_path / "p.png")).code == 0


# Catches: a network, an optimiser or a random number generator that is missing in the checkpoint; with --init,
# observations that are normalised with the statistics of the other run before a resume and with those of the dataset
# after it.
@pytest.mark.long("decision_transformer --init", "bc --init")
@pytest.mark.parametrize("name", ["bc", "cql", "bc --init", "decision_transformer --init"])
def test_extended_run_equals_a_longer_run(name, data, cli, tmp_path):
    flags = ("--data", data, *FLAGS[2:])
    name, _, init = name.partition(" ")
    if name == "decision_transformer":
        flags = ("--data", data, *FLAGS[2:4], *FLAGS[6:], "--layers", "1", "--width", "8", "--context", "3",
                 "--warmup", "5", "--no-anneal")
    if init:
        record(["shelf/ppo-CartPole-v1"], tmp_path / "other.npz", steps=200, noise=[0.0], stochastic=True, seed=2)
        first = tuple("other.npz" if word == data else word for word in flags)
        assert cli(name, "--exp-name", "first", "--total-steps", "20", *first).code == 0
        flags += (init, "runs/first")
    assert cli(name, "--exp-name", "long", "--total-steps", "60", *flags).code == 0
    assert cli(name, "--exp-name", "short", "--total-steps", "36", *flags).code == 0
    assert cli("resume", str(tmp_path / "runs" / "short"), "--total-steps", "60").code == 0
    long, short = (load_policy(tmp_path / "runs" / kind).module.state_dict() for kind in ("long", "short"))
    assert all((long[key] == short[key]).all() for key in long)
    if "scale" in long:                                                   # of the returns, from the other run
        assert long["scale"] == load_policy(tmp_path / "runs" / "first").module.state_dict()["scale"]


# Catches: an accepted --keep-best that saves nothing, or the last policy.
def test_best_policy_is_kept(data, cli, tmp_path, monkeypatch):
    tested, row = [], OfflineRun.row

    def noted(run):
        found = row(run)
        tested.append({name: x.clone() for name, x in run.parts["policy"].state_dict().items()})
        return found

    monkeypatch.setattr(OfflineRun, "row", noted)
    assert cli("bc", "--data", data, "--exp-name", "a", "--keep-best", *FLAGS).code == 0
    best = load_any(tmp_path / "runs" / "a" / "a_s1", best=True)
    returns = read_progress(tmp_path / "runs" / "a" / "a_s1")["test_return"]
    assert len(tested) == len(returns) > 2
    then = tested[returns.index(max(returns))]
    assert all((x == then[name]).all() for name, x in best.module.state_dict().items())
    state = load_checkpoint(tmp_path / "runs" / "a" / "a_s1" / "checkpoint.pt")
    assert state["parts"]["best"]["test_return"] == max(returns)


# Catches: a traceback; a run that continues with other data; a folder that is created for a refused run.
def test_mismatched_data_or_environment_is_refused_in_one_sentence(data, cli, tmp_path):
    done = cli("bc", *FLAGS)
    assert done.code == 2 and "--data is missing; give a dataset" in done.err and not (tmp_path / "runs").exists()
    done = cli("bc", "--data", "none.npz", *FLAGS)
    assert done.code == 2 and "there is no dataset none.npz" in done.err
    done = cli("bc", "--data", data, "--env", "Acrobot-v1", *FLAGS)
    assert done.code == 2 and "differs from that of Acrobot-v1; give a dataset of Acrobot-v1" in done.err
    done = cli("bc", "--data", data, "--env", "mpe/simple_spread-v3", *FLAGS)
    assert done.code == 2 and "has several agents, but a dataset holds episodes of one; leave out --env" in done.err
    done = cli("td3_bc", "--data", data, *FLAGS)
    assert done.code == 2 and "td3_bc cannot act in Discrete(2)" in done.err and not (tmp_path / "runs").exists()
    assert cli("bc", "--data", data, "--exp-name", "a", *FLAGS).code == 0
    record(["random:CartPole-v1"], tmp_path / "e.npz", steps=200, noise=[0.0], stochastic=False, seed=2)
    shutil.copy("e.npz", data)
    done = cli("resume", "runs/a", "--total-steps", "90")
    assert done.code == 2 and "was trained on a dataset other than d.npz" in done.err
    done = cli("grid", "bc", "--data", data, "--exp-name", "a", "--seed", "1", "2", *FLAGS)    # run on other data
    assert done.code == 2 and "was trained on a dataset other than d.npz" in done.err


# Catches: the protocol of the environment id in place of the dataset's; a setting that contradicts the dataset's
# protocol; an evaluation without the protocol.
@pytest.mark.long
def test_atari_dataset_gives_the_protocol(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    game = {"env": "PongNoFrameskip-v4", "env_settings": {"frame_skip": 2, "clip_rewards": False}}
    envs = make(game["env"], 1, 0, **game["env_settings"])
    obs, steps = [envs.reset()[0].copy()], [envs.step(np.array([0])) for _ in range(6)]
    obs += [step.obs[0] for step in steps]
    about = {**game, "observation_space": space_to_json(envs.observation_space), "parts": [], "seed": 0, "versions": {},
             "action_space": space_to_json(envs.action_space)}
    envs.close()
    ends = np.arange(6) == 5
    part = Dataset(np.stack(obs[:-1]), np.zeros(6, np.int64), np.zeros(6, np.float32), np.stack(obs[1:]), ends & False,
                   ends)
    with open("pong.npz", "wb") as out:
        join([part], about).write(out)
    words = ("cql", "--data", "pong.npz", *FLAGS[6:], "--total-steps", "2", "--batch-size", "2", "--test-episodes", "0")
    assert cli(*words, "--exp-name", "a").code == 0
    config = json.loads((tmp_path / "runs/a/a_s1/config.json").read_text())["config"]
    assert (config["frame_skip"], config["clip_rewards"], config["sticky_actions"]) == (2, False, 0.0)
    policy = load_policy(tmp_path / "runs/a")
    assert policy.env_settings["frame_skip"] == 2
    done = cli(*words, "--frame-skip", "4", "--exp-name", "b")
    assert done.code == 2 and "was recorded with frame_skip 2, not 4; leave out --frame-skip" in done.err
    assert not (tmp_path / "runs" / "b").exists()


# Catches: an environment that comes from the dataset only on the command line.
def test_python_function_uses_the_environment_of_the_dataset(data, tmp_path):
    result = spinup.bc(data=data, total_steps=20, batch_size=8, hidden=(4,), threads=1, quiet=True, tensorboard=False,
                       log_dir=str(tmp_path))
    assert result.measure == "test_return" and len(result.returns) == 10


# Catches: actions that the network does not have; observations of another shape; a traceback; the folder of a refused
# run.
@pytest.mark.parametrize("name, value", [("actions", 9), ("actions", -1), ("obs", None)])
def test_data_outside_the_spaces_of_the_dataset_are_refused(name, value, data, cli, tmp_path):
    whole = load(data)
    arrays = whole.arrays()
    if value is None:
        arrays["obs"], arrays["next_obs"] = arrays["obs"][:, :3], arrays["next_obs"][:, :3]
    else:
        arrays["actions"][0] = value
    with open(tmp_path / "bad.npz", "wb") as out:
        Dataset(**arrays, about=whole.about).write(out)
    done = cli("bc", "--data", "bad.npz", *FLAGS)
    assert done.code == 2 and {
        "obs": "bad.npz have the shape (3,) and the type float32, but those of CartPole-v1 have the shape (4,) and the "
               "type float32; correct obs",
        "actions": "which do not fit Discrete(2) of CartPole-v1; correct the array actions"}[name] in done.err
    assert not (tmp_path / "runs").exists()


# Catches: actions in other units, which no policy within the bounds can imitate; an error because of rounding.
@pytest.mark.parametrize("factor, code", [(10, 2), (1.0001, 0)])
def test_continuous_actions_must_be_within_their_bounds(factor, code, cli, tmp_path):
    assert cli("record", "random:Pendulum-v1", "--steps", 200, "--out", "d.npz").code == 0
    whole = load(tmp_path / "d.npz")
    arrays = whole.arrays()
    with open(tmp_path / "own.npz", "wb") as out:
        Dataset(**{**arrays, "actions": arrays["actions"] * np.float32(factor)}, about=whole.about).write(out)
    done = cli("bc", "--data", "own.npz", *FLAGS)
    assert done.code == code and ("which do not fit Box(-2.0, 2.0, (1,), float32)" in done.err) == (code == 2)


# Catches: one tolerance for all ranges of actions; a traceback about actions without numbers.
def test_tolerance_of_actions_depends_on_their_range():
    def fits(space, *numbers):
        return of_actions(np.array(numbers, np.float32)[:, None], space)
    small, large, open_ended = Box(-1e-3, 1e-3, (1,)), Box(-1e5, 1e5, (1,)), Box(0.0, np.inf, (1,))
    assert fits(small, 1e-3, -1.0005e-3) and not fits(small, 1.9e-3)
    assert fits(large, np.nextafter(np.float32(1e5), np.float32(np.inf))) and not fits(large, 1.01e5)
    assert fits(open_ended, 1e9) and not fits(open_ended, -1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")                                    # the range does not fit into float32
        assert fits(Box(-3e38, 3e38, (1,)), 1e30)


def test_actions_without_numbers_are_refused(cli, tmp_path):
    assert cli("record", "random:Pendulum-v1", "--steps", 200, "--out", "d.npz").code == 0
    whole = load(tmp_path / "d.npz")
    with open(tmp_path / "own.npz", "wb") as out:
        Dataset(**{**whole.arrays(), "actions": whole.actions[:, :0]}, about=whole.about).write(out)
    done = cli("bc", "--data", "own.npz", *FLAGS)
    assert done.code == 2 and "have the shape (0,), the type float32, which do not fit Box" in done.err


# Catches: a data file that imports a module, with or without --env.
def test_module_named_in_a_dataset_is_not_imported(data, cli, tmp_path):
    (tmp_path / "module_of_a_dataset.py").write_text("open('imported', 'w').close()\n")
    whole = load(data)
    with open(tmp_path / "m.npz", "wb") as out:
        Dataset(**whole.arrays(), about={**whole.about, "env": "module_of_a_dataset:CartPole-v1"}).write(out)
    done = cli("bc", "--data", "m.npz", *FLAGS)
    assert done.code == 2 and "type --env module_of_a_dataset:CartPole-v1" in done.err
    assert not (tmp_path / "imported").exists()
    done = cli("bc", "--data", "m.npz", "--env", "CartPole-v1", *FLAGS)
    assert done.code == 0 and not (tmp_path / "imported").exists()


# Catches: a path that is stored relative to the working folder of the first training.
def test_run_resumes_from_another_working_folder(data, cli, tmp_path, monkeypatch):
    assert cli("bc", "--data", data, "--exp-name", "a", *FLAGS).code == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert cli("resume", "../runs/a", "--total-steps", "90").code == 0


# Catches: a run that cannot be resumed after its dataset was moved; another dataset that is accepted in its place.
def test_run_resumes_with_a_moved_dataset(data, cli, tmp_path):
    assert cli("bc", "--data", data, "--exp-name", "a", *FLAGS).code == 0
    (tmp_path / data).rename(tmp_path / "moved.npz")
    lost = cli("resume", "runs/a", "--total-steps", "90")
    assert lost.code == 2 and "d.npz; if it was moved, give its new path with --data" in lost.err
    assert cli("resume", "runs/a", "--total-steps", "90", "--data", "moved.npz").code == 0
    assert cli("resume", "runs/a", "--total-steps", "120", "--data", "moved.npz").code == 0
    record(["random:CartPole-v1"], tmp_path / "other.npz", steps=200, noise=[0.0], stochastic=False, seed=2)
    other = cli("resume", "runs/a", "--total-steps", "150", "--data", "other.npz")
    assert other.code == 2 and "was trained on a dataset other than other.npz" in other.err
    spinup.ppo("CartPole-v1", preset="none", num_envs=2, rollout_steps=32, hidden=(4,), total_steps=64, threads=1,
               quiet=True, tensorboard=False, exp_name="b", log_dir="runs")
    other = cli("resume", "runs/b", "--total-steps", "90", "--data", "moved.npz")
    assert other.code == 2 and "runs/b/b_s1 did not learn from a dataset; leave out --data" in other.err


# Catches: an intact dataset that is reported as damaged.
@pytest.mark.parametrize("error, words", [
    (MemoryError(), "not enough memory to load d.npz"), (OSError(errno.EIO, "Input/output error"), "cannot be read")])
def test_unreadable_dataset_is_not_called_damaged(error, words, data, monkeypatch):
    def refuse(*_, **__):
        raise error
    monkeypatch.setattr(np, "load", refuse)
    with pytest.raises(UserError, match=words):
        load(data)


# Catches: advice to change the environment although the number of frames differs.
def test_number_of_stacked_frames_must_match_the_dataset(data, cli):
    done = cli("bc", "--data", data, "--frame-stack", "4", *FLAGS)
    assert done.code == 2 and "was recorded with 1 frame per observation; type --frame-stack 1" in done.err
