"""Training on an Atari game from the command line: every reported result comes with its evaluation protocol."""
import json
import sys

import pytest
from PIL import Image

import spinup
from spinup.algos import dqn, ppo, sac, vpg
from spinup.errors import UserError
from spinup.registry import find
from spinup.runs.presets import configure
from spinup.view.evaluate import evaluate

SHORT = ["--preset", "none", "--total-steps", 64, "--num-envs", 2, "--rollout-steps", 8, "--epochs", 1, "--threads", 1,
         "--tensorboard", "false", "--exp-name", "x"]
RUN = "runs/x/x_s1"
ALL = {"sticky_actions": 0.25, "life_loss": True, "clip_rewards": True, "frame_skip": 4, "full_actions": False}


@pytest.mark.parametrize("config", [ppo.Config, vpg.Config, dqn.Config])
def test_environment_id_completes_the_protocol_settings(config):
    cfg = config(env="ALE/Breakout-v5", life_loss=True)
    assert cfg.env_settings == ALL and (cfg.sticky_actions, cfg.full_actions) == (0.25, False)
    again = config(env="ALE/Breakout-v5", **cfg.env_settings)
    assert again == cfg
    assert config(env="CartPole-v1").env_settings == {} == sac.Config().env_settings
    for wrong in ({"sticky_actions": 1.5}, {"life_loss": 1}, {"frame_skip": 0}):
        with pytest.raises(UserError, match="must be"):
            config(env="ALE/Breakout-v5", **wrong)


# Presets contain settings of the algorithm. The protocol is that of the environment id.
@pytest.mark.parametrize("algorithm", [ppo, dqn])
@pytest.mark.parametrize("env", ["PongNoFrameskip-v4", "BreakoutNoFrameskip-v4", "ALE/Pong-v5", "ALE/Breakout-v5"])
def test_each_game_has_its_preset(algorithm, env):
    cfg, name = configure(find(algorithm.__name__.rpartition(".")[2]), {"env": env})
    assert name == env and cfg.total_steps == 10_000_000
    assert cfg.env_settings == algorithm.Config(env=env).env_settings
    assert cfg.num_envs == (8 if algorithm is ppo else 1)                 # DQN's Config inherits from two Configs


@pytest.mark.parametrize(("typed", "words"), [
    ("ppo --sticky-actions 0.1", "--sticky-actions can only be given for Atari games, such as PongNoFrameskip-v4"),
    ("vpg --env Hopper-v5 --no-life-loss", "--life-loss can only be given for Atari games"),
    ("dqn --env PongNoFrameskip-v0 --frame-skip 2 --full-actions", "--frame-skip, --full-actions can only be given"),
    ("ppo --env ALE/Pong-v5 --life-loss perhaps", "--life-loss must be true or false, not 'perhaps'"),
    ("ppo --env ALE/Pog-v5", "no environment 'ALE/Pog-v5'. Did you mean 'ALE/Pong-v5'?"),
    ("sac --env ALE/Pong-v5", "sac cannot act in Discrete(6)")])
def test_wrong_setting_gets_one_sentence(typed, words, cli, tree):
    done = cli(*typed.split())
    assert done.code == 2 and done.err.count("\n") == 1 and words in done.err
    assert tree() == []


# Catches: settings that do not reach the environment, the checkpoint's folder, the evaluation or the recording.
@pytest.mark.long
def test_protocol_is_kept_from_training_to_recording(cli, tmp_path, monkeypatch):
    monkeypatch.setattr("spinup.envs.atari.LONGEST", 240)                 # most frames of a game
    done = cli("ppo", "--env", "ALE/Breakout-v5", "--life-loss", "--full-actions", "true", "--test-episodes", 1,
               *SHORT)
    assert done.code == 0 and done.err == ""
    said = ("sticky actions 0.25, 4 frames an action, all 18 actions, a lost life ends the learner's episode, the "
            "learner's rewards are -1, 0 or 1, returns are the scores of whole games")
    assert done.out.splitlines().count(f"protocol: {said}") == 1
    assert "ALE/Breakout-v5 cannot be saved (the emulator's state cannot be read): a resumed run starts" in done.out

    config = json.loads((tmp_path / RUN / "config.json").read_text())
    meant = {**ALL, "full_actions": True}
    assert config["protocol"] == meant and meant.items() <= config["config"].items()
    assert (tmp_path / RUN / "config.json").stat().st_size < 5000         # no bounds for each pixel
    policy = spinup.load(tmp_path / RUN)
    assert policy.env_settings == meant and policy.action_space.n == 18
    assert cli("eval", RUN, "--episodes", 1).out.endswith(f"protocol: {said}\n")
    found = json.loads(cli("eval", RUN, "--episodes", 2, "--json").out)
    assert found["protocol"] == meant and max(found["lengths"]) <= 60
    with pytest.raises(UserError, match="choose the environment that it was trained in"):
        evaluate(policy, "CartPole-v1")

    done = cli("watch", RUN, "--gif", "a.gif")
    assert done.code == 0, done.err
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.size == (160, 210) and 40 < gif.n_frames <= 61
        assert gif.info["duration"] == 70                                 # of the first frame: 15 actions a second


@pytest.mark.long
def test_resumed_run_starts_new_games(cli, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("spinup.runs.run.Run.after_update", lambda run: setattr(run.interruption, "received", 2))
        assert cli("ppo", "--env", "PongNoFrameskip-v4", "--frame-skip", 3, *SHORT).code == 130
    done = cli("resume", RUN)
    assert done.code == 0 and done.err == ""
    assert "resuming at step 16; its environments could not be saved, so it starts new episodes" in done.out
    assert "protocol: sticky actions 0, 3 frames an action, the game's own actions, a lost life ends" in done.out
    assert json.loads((tmp_path / RUN / "result.json").read_text())["steps"] == 64


@pytest.mark.long
def test_recording_without_opencv_names_the_package(cli, monkeypatch):
    assert cli("ppo", "--env", "PongNoFrameskip-v4", "--quiet", *SHORT).code == 0
    monkeypatch.setitem(sys.modules, "cv2", None)           # as if it were not installed
    done = cli("watch", RUN, "--gif", "a.gif")
    assert done.code == 2 and done.err.count("\n") == 1 and done.err.endswith("type: pip install 'spinup-rl[atari]'\n")
