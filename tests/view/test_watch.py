"""Watching: the frames of the GIF, the printed lines, and the behaviour without a screen."""
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from PIL import Image

from spinup.core.distributions import Categorical
from spinup.core.networks import ActorCritic
from spinup.envs.make import make_one
from spinup.errors import UserError
from spinup.runs.policy import Policy
from spinup.view import watch as module
from spinup.view.watch import Film, draw, ready_mujoco, watch


class Painter(gymnasium.Env):
    """Episodes of 7 steps, with a reward of 2 per step. The colour of the image shows the step."""

    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}
    shape = (100, 800, 3)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), 2.0, self.t == 7, False, {}

    def render(self):
        return np.full(self.shape, 30 * self.t, np.uint8)


# Catches: the first image of the next episode in place of the last one of this episode.
def test_recording_with_stacked_frames_ends_with_the_episode():
    game, film = module.make_game(Painter, "rgb_array", frame_stack=2), Film(25)
    rng = np.random.default_rng(0)
    player = SimpleNamespace(act=lambda obs, deterministic: int(rng.integers(2)))
    assert module.play(player, game, "Painter", True, film, 1) == (14.0, 7)
    colours = [frame.convert("RGB").getpixel((0, 0))[0] for frame in film.frames]
    assert colours == [*range(0, 200, 30), 180]


class Blind(Painter):
    def render(self):
        raise RuntimeError("no graphics card\nat 0x7f")


@pytest.fixture(autouse=True)
def no_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "")                          # so that changes by a test are undone too
        monkeypatch.delenv(name)
    monkeypatch.setattr(module.sys, "platform", "linux")


def policy_for(observation_space, action_space) -> Policy:
    network = ActorCritic(observation_space.shape, Categorical((int(action_space.n),)))
    return Policy(network, observation_space, action_space)


@pytest.fixture
def policy():
    return policy_for(Painter.observation_space, Painter.action_space)


def frames(path) -> list[tuple[int, int]]:
    """(colour of a pixel, milliseconds) of each frame."""
    with Image.open(path) as gif:
        found = []
        for i in range(gif.n_frames):
            gif.seek(i)
            found.append((gif.convert("RGB").getpixel((0, 0))[0], gif.info["duration"]))
        return found


# Catches: a last frame that the stride skips; frames that are not reduced to the width limit.
def test_gif_has_the_speed_of_the_environment_and_shows_every_last_frame(policy, tmp_path, capsys):
    path = tmp_path / "a.gif"
    before = policy.rng.bit_generator.state
    assert watch(policy, Painter, episodes=2, deterministic=False, gif=path) == [14.0, 14.0]
    assert frames(path) == [(0, 40), (60, 40), (120, 40), (180, 40), (210, 800)] * 2      # 50 fps: every second frame
    with Image.open(path) as gif:
        assert gif.size == (400, 50) and gif.info["loop"] == 0
    assert capsys.readouterr().out.splitlines() == [
        "drawing Painter", "episode 1: return 14, 7 steps", "episode 2: return 14, 7 steps",
        f"{path}: 10 frames, 1.9 s"]
    assert policy.rng.bit_generator.state == before


# Catches: a GIF of an environment in which the policy was not trained.
def test_policy_of_another_environment_is_refused(policy, tmp_path):
    message = "choose the environment that it was trained in"
    with pytest.raises(UserError, match=message):
        draw(policy, "CartPole-v1", tmp_path / "a.gif", 100, 3)
    with pytest.raises(UserError, match=message):
        watch(policy, "CartPole-v1", gif=tmp_path / "a.gif")
    assert not [*tmp_path.iterdir()]


def test_full_gif_stops_and_the_episodes_continue(policy, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "GIF_FRAMES", 3)
    assert watch(policy, Painter, episodes=2, gif=tmp_path / "a.gif") == [14.0, 14.0]
    assert [colour for colour, _ in frames(tmp_path / "a.gif")] == [0, 60, 120]
    assert capsys.readouterr().out.endswith("3 frames, 0.1 s, the beginning only\n")


@pytest.mark.parametrize(("fps", "stride", "delay"), [(15, 1, 70), (20, 1, 50), (25, 1, 40), (50, 2, 40), (125, 5, 40)])
def test_no_speed_gives_frames_too_short_for_viewers(fps, stride, delay):
    film = Film(fps)
    assert (film.stride, film.delay) == (stride, delay)


def test_gymnasium_cartpole_can_be_recorded_without_a_screen(tmp_path):
    env = gymnasium.make("CartPole-v1")
    returns = watch(policy_for(env.observation_space, env.action_space), "CartPole-v1", gif=tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.size == (400, 267) and 2 <= gif.n_frames <= returns[0] / 2 + 2
        assert len(gif.convert("RGB").getcolors(100_000)) > 3             # cart, pole and track, not an empty picture


# Catches: Gymnasium's default camera, out of whose view the body moves.
def test_mujoco_camera_follows_the_body():
    import mujoco
    env = make_one("HalfCheetah-v5", render_mode="rgb_array")
    ready_mujoco(env)
    model = env.unwrapped.model
    assert mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_CAMERA, env.unwrapped.mujoco_renderer.camera_id) == "track"


def test_window_is_refused_without_a_screen(policy):
    with pytest.raises(UserError, match="no screen here.*--gif watch.gif"):
        watch(policy, Painter)


def test_failed_renderer_gives_one_line_and_leaves_no_file(policy, tmp_path):
    with pytest.raises(UserError, match=r"^Blind cannot be rendered here \(RuntimeError: no graphics card\); [^\n]*$"):
        watch(policy, Blind, gif=tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.png", "missing/a.gif"])
def test_invalid_gif_path_is_refused_before_any_episode(policy, tmp_path, capsys, name):
    with pytest.raises(UserError, match="cannot be written; give a name that ends in .gif"):
        watch(policy, Painter, gif=tmp_path / name)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("env", "advice"), [
    (lambda: Painter(), "make the function given as env take render_mode"),
    (lambda render_mode: Painter(), "cannot be rendered with render_mode='rgb_array'"),
    ("CartPole-v1", "choose the environment that it was trained in")])
def test_environment_that_cannot_be_rendered_is_refused(policy, tmp_path, env, advice):
    with pytest.raises(UserError, match=advice):
        watch(policy, env, gif=tmp_path / "a.gif")
