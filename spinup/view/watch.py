"""Rendering of a policy in a window, or in a GIF if there is no screen."""
import contextlib
import importlib
import inspect
import io
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Env

from spinup.envs.atari import make_one_atari, protocol
from spinup.envs.gym import GymVectorEnv
from spinup.envs.ids import find_id
from spinup.envs.make import EnvSource, make_one
from spinup.envs.memory import Inputs, Memory
from spinup.envs.single import Single
from spinup.envs.stack import FrameStack
from spinup.errors import UserError, source_name
from spinup.runs.display import TELL_EVERY, number
from spinup.runs.episodes import UNSEEN, check_ends, check_fits, settings_in
from spinup.runs.files import write_whole
from spinup.runs.folders import writable
from spinup.runs.policy import Policy

GIF_WIDTH = 400         # pixels; wider frames are scaled down
GIF_FRAMES = 350        # frames of the GIF; episodes continue without it: at least 14 s, about 5 MB for MuJoCo
GIF_COLOURS = 128       # a GIF can have 256 colours; it looks the same and is a third larger
GIF_FPS = 25            # maximum: viewers show a frame with a delay below 0.02 s for 0.1 s


def watch(policy: Policy, env: EnvSource, *, episodes: int = 1, deterministic: bool = True, gif: Path | None = None,
          seed: int = 0) -> list[float]:
    """Play episodes, print a line for each, and return their returns. The policy stays unchanged.

    Args:
        env: a Gymnasium id, or a function that makes an environment; it must accept `render_mode`.
        deterministic: take the most likely actions; otherwise sample from the policy.
        gif: a file to write, at the environment's own speed, at most 400 pixels wide and 350 frames long. None opens a
            window.
        seed: random seed of the episodes and sampled actions; the first episode has the seed 1,000,000 + seed.

    UserError: no screen for a window, an environment that cannot be rendered here, a file that cannot be written.
    """
    if episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {episodes}")
    if gif is None and not has_screen():
        raise UserError("there is no screen here to open a window on; type --gif FILE, such as --gif watch.gif")
    if gif is not None:
        gif = Path(gif)
        if gif.suffix.lower() != ".gif" or gif.is_dir() or not (gif.parent.is_dir() and writable(gif.parent)):
            raise UserError(f"--gif {gif} cannot be written; give a name that ends in .gif, in a writable folder")
    name = source_name(env)
    with rendered(policy, env, "human" if gif is None else "rgb_array") as game:
        player = Policy(policy.module, policy.observation_space, policy.action_space, seed)     # has its own generator
        if gif is not None:
            print(f"drawing {name}", flush=True)
        film = None if gif is None else Film(game.metadata.get("render_fps") or 30, most=GIF_FRAMES)
        returns = []
        for episode in range(episodes):
            total, steps = play(player, game, name, deterministic, film, None if episode else UNSEEN + seed)
            print(f"episode {episode + 1}: return {number(total)}, {steps:,} steps", flush=True)
            returns.append(total)
    if film is not None:
        film.write(gif)
        seconds, cut = sum(film.delays) / 1000, ", the beginning only" if film.full else ""
        print(f"{gif}: {len(film.frames)} frames, {seconds:.1f} s{cut}")
    return returns


@contextlib.contextmanager
def rendered(policy: Policy, env: EnvSource, mode: str) -> Iterator[Env]:
    """Yield an environment for the policy that can be rendered in this mode, and close it at the end. UserError if the
    policy does not fit it, or if it cannot be rendered here."""
    screen = has_screen()
    if not screen:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")    # avoids SDL's warning; drawing is in memory
    game = make_game(env, mode, **settings_in(policy, env))
    if not screen:
        os.environ.setdefault("MUJOCO_GL", "egl")            # not earlier: without EGL, `import mujoco` would fail
    try:
        check_fits(policy, game.observation_space, game.action_space, env)
        with drawing(game, source_name(env)):
            ready_mujoco(game)
        yield game
    finally:
        with contextlib.suppress(Exception):                 # a renderer that failed to start cannot be closed
            game.close()


def make_game(env: EnvSource, mode: str, episodes: int = 0, inputs: Inputs = "transition", frame_stack: int = 1,
              **protocol_given: Any) -> Env:
    """Make an environment with rendering; UserError if it has none. An Atari game gets its protocol. A policy with
    memory gets trials of `episodes` episodes, and a stack of observations if it was trained with one."""
    if episodes or frame_stack > 1:
        game = make_game(env, mode)
        copies = GymVectorEnv(lambda: game, 1, 0)
        copies = FrameStack(copies, frame_stack) if frame_stack > 1 else copies
        return Single(Memory(copies, episodes, inputs) if episodes else copies, game)
    if protocol(env):
        return make_one_atari(find_id(env), mode, **protocol_given)
    takes_mode = True
    if callable(env):
        parameters = inspect.signature(env).parameters.values()
        takes_mode = any(p.name == "render_mode" or p.kind is p.VAR_KEYWORD for p in parameters)
    game = make_one(env, **({"render_mode": mode} if takes_mode else {}))
    if game.render_mode != mode:
        how = "" if takes_mode else "; make the function given as env take render_mode and pass it on"
        game.close()
        raise UserError(f"{source_name(env)} cannot be rendered with render_mode={mode!r}{how}")
    return game


def ready_mujoco(game: Env) -> None:
    """Make MuJoCo's camera follow the body, and test whether MuJoCo can draw.

    A renderer that fails in its constructor prints a traceback when it is deleted. The test uses only a context, which
    prints no traceback.
    """
    renderer = getattr(game.unwrapped, "mujoco_renderer", None)
    if renderer is None or game.render_mode != "rgb_array":
        return
    import mujoco
    if renderer.camera_id == -1:                             # from Gymnasium 1.4 on, a fixed camera
        renderer.camera_id = mujoco.mj_name2id(renderer.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
    if (backend := os.environ.get("MUJOCO_GL")) in ("egl", "osmesa"):
        importlib.import_module(f"mujoco.{backend}").GLContext(64, 64).free()


def play(player: Policy, game: Env, name: str, deterministic: bool, film: "Film | None",
         seed: int | None) -> tuple[float, int]:
    """Play one episode, in a GIF or a window; return its undiscounted return and its length."""
    with drawing(game, name) if film is None else contextlib.nullcontext():      # the first reset opens a window
        obs, _ = game.reset(seed=seed)
    total, steps, over, told = 0.0, 0, False, time.perf_counter()
    while True:
        if film is not None and time.perf_counter() - told >= TELL_EVERY:
            told = time.perf_counter()
            print(f"step {steps:,} of the episode", flush=True)
        if film is not None and film.wants(steps, over):
            with drawing(game, name):
                # A `Single` has already begun the next episode.
                film.add(film.last if over and isinstance(game, Single) and film.last is not None else game.render(),
                         over)
        if over:
            return total, steps
        obs, reward, terminated, truncated, _ = game.step(player.act(obs, deterministic))
        total, steps, over = total + float(reward), steps + 1, terminated or truncated
        check_ends(steps, name)


@contextlib.contextmanager
def drawing(game: Env, name: str) -> Iterator[None]:
    """Convert any error of a renderer to a UserError, because its causes are outside Python."""
    try:
        yield
    except Exception as error:
        words = str(error).partition("\n")[0].partition(". ")[0]
        reason = type(error).__name__ + f": {words}" * bool(words)
        advice = "try it on a machine with a screen"
        if not game.metadata.get("render_modes"):
            advice = "it has no renderer; use `spinup eval` instead"
        if hasattr(game.unwrapped, "mujoco_renderer"):
            advice = ("on Debian and Ubuntu type: apt-get install libegl1 and set MUJOCO_GL=egl, or: apt-get install "
                      "libosmesa6 and set MUJOCO_GL=osmesa")
        raise UserError(f"{name} cannot be rendered here ({reason}); {advice}") from error


def has_screen() -> bool:
    """Return whether a window can be opened; only Linux runs without a screen."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def draw(policy: Policy, env: EnvSource, gif: Path, width: int, frames: int) -> Path:
    """Draw the first frames of an episode into a GIF of a width in pixels, and return its path. UserError as in
    `watch`."""
    with rendered(policy, env, "rgb_array") as game:
        film = Film(game.metadata.get("render_fps") or 30, width, frames)
        play(policy, game, source_name(env), True, film, UNSEEN)
    film.write(gif)
    return gif


class Film:
    """Frames of a GIF.

    Args:
        fps: frames per second of the environment; if there are too many, only every `stride`-th is used.
        width: pixels; wider frames are scaled down.
        most: frames of the GIF.
    """

    def __init__(self, fps: float, width: int = GIF_WIDTH, most: int = GIF_FRAMES):
        self.width, self.most = width, most
        self.stride = max(1, round(fps / GIF_FPS))
        self.delay = max(20, round(100 * self.stride / fps) * 10)          # ms; a GIF uses hundredths of a second
        self.frames, self.delays, self.full, self.last = [], [], False, None

    def wants(self, step: int, last: bool) -> bool:
        """Return whether to take the frame after `step` steps; the last of an episode is always taken unless the GIF is
        full."""
        self.full = self.full or len(self.frames) == self.most
        return not self.full and (last or step % self.stride == 0)

    def add(self, frame: np.ndarray, last: bool) -> None:
        """Add an image `[H, W, 3]` of bytes; the last one of an episode is shown longer."""
        from PIL import Image
        self.last = frame
        image = Image.fromarray(np.ascontiguousarray(frame))
        if image.width > self.width:
            size = self.width, round(image.height * self.width / image.width)
            image = image.resize(size, Image.Resampling.BOX)
        self.frames.append(image.quantize(GIF_COLOURS, dither=Image.Dither.NONE))       # dithering would flicker
        self.delays.append(800 if last else self.delay)

    def write(self, path: Path) -> None:
        """Write the GIF atomically. UserError if it cannot be written."""
        buffer, (first, *others) = io.BytesIO(), self.frames
        first.save(buffer, "GIF", save_all=True, append_images=others, duration=self.delays, loop=0)
        try:
            write_whole(path, buffer.getvalue())
        except OSError as error:
            raise UserError(f"--gif {path} cannot be written ({error.strerror.lower()}); choose another file") from None
