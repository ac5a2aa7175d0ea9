"""Atari games in ale-py's vectorised emulator, always with an explicit protocol.

Scores of a game are only comparable under the same protocol: sticky actions alone divide them by three to four in
Breakout. The id selects one of two common protocols, and you can change each setting:

    PongNoFrameskip-v4   as in Mnih et al. (2015), used for most published results of PPO and DQN
    ALE/Pong-v5          sticky actions, and a lost life does not end an episode, as Machado et al. (2018) recommend

In both protocols, an observation is 4 frames of 84 x 84 grey pixels. Each frame is the maximum of the last two frames
of the game. A game starts with FIRE, if it has this action, and up to 30 frames without action. It ends after at most
108,000 frames (half an hour).
"""
import re
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Wrapper

from spinup.envs.vector import Step, VectorEnv, copy_seeds
from spinup.errors import UserError, nearest

FRAMES = 4                                                                # per observation
LONGEST = 108_000                                                         # frames per game
PROTOCOLS = {                                                             # by the pattern of the id
    r"(?:.*:)?[A-Za-z0-9]+NoFrameskip(?:-v4)?": {
        "sticky_actions": 0.0, "life_loss": True, "clip_rewards": True, "frame_skip": 4, "full_actions": False},
    r"(?:.*:)?ALE/[A-Za-z0-9]+(?:-v5)?": {
        "sticky_actions": 0.25, "life_loss": False, "clip_rewards": True, "frame_skip": 4, "full_actions": False}}


def protocol(env: object, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the protocol of an Atari game: that of its id, changed by the values of `given` that are not None. The
    result is {} for other environments.

    UserError: `given` has an unknown setting, or `env` is not an Atari game.
    """
    given = {k: v for k, v in (given or {}).items() if v is not None}
    for pattern, settings in PROTOCOLS.items():
        if isinstance(env, str) and re.fullmatch(pattern, env):
            if unknown := [name for name in given if name not in settings]:
                raise UserError(f"{env} has no setting {unknown[0]!r}, only "
                                f"{', '.join(settings)}.{nearest(unknown[0], settings)}")
            return {**settings, **given}
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UserError(f"{flags} can only be given for Atari games, such as PongNoFrameskip-v4 or ALE/Pong-v5")
    return {}


def in_words(settings: dict[str, Any]) -> str:
    """Describe a protocol in one line."""
    skip = settings["frame_skip"]
    return ", ".join([
        f"sticky actions {settings['sticky_actions']:g}", f"{skip} frame{'s' * (skip > 1)} an action",
        "all 18 actions" if settings["full_actions"] else "the game's own actions",
        f"a lost life {'ends' if settings['life_loss'] else 'does not end'} the learner's episode",
        f"the learner's rewards {'are -1, 0 or 1' if settings['clip_rewards'] else 'are not clipped'}",
        "returns are the scores of whole games"])


class AtariVector(VectorEnv):
    """N copies of a game. The statistics count whole games and raw scores, even if the learner's rewards are clipped
    and its episodes end with a life.

    Args:
        env: the full id, in one of the two forms above.
        seed: copy i gets a seed made from (seed, i), so no two runs share games.
        settings: as in `PROTOCOLS`; None or a missing setting means the value that the id selects.
            sticky_actions: probability, in each frame, that the game repeats the last action instead of the chosen one.
            life_loss: a lost life ends the learner's episode, but the game continues.
            clip_rewards: the learner gets the sign of each reward.
            frame_skip: frames per action.
            full_actions: all 18 actions of the joystick, not only those that the game uses.
    """

    frames = FRAMES
    why_not_saved = "the emulator's state cannot be read"

    def __init__(self, env: str, num_envs: int, seed: int, **settings: Any):
        from ale_py import Action
        from ale_py.vector_env import AtariVectorEnv
        super().__init__(num_envs)
        self.protocol = protocol(env, settings)
        self.envs = AtariVectorEnv(                                       # one thread per core, at most num_envs
            gymnasium.spec(env).kwargs["game"], num_envs, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
            repeat_action_probability=self.protocol["sticky_actions"], frameskip=self.protocol["frame_skip"],
            full_action_space=self.protocol["full_actions"], life_loss_info=self.protocol["life_loss"],
            reward_clipping=False, stack_num=FRAMES, max_num_frames_per_episode=LONGEST, use_fire_reset=True)
        self.observation_space, self.action_space = self.envs.single_observation_space, self.envs.single_action_space
        actions = self.envs.ale.get_action_set()
        self.fire = actions.index(Action.FIRE) if Action.FIRE in actions else None
        self.seeds = own_seeds(seed, num_envs)

    def reseed(self, seed: int) -> None:
        self.seeds = own_seeds(seed, self.num_envs)
        self.reset()

    def _reset(self) -> np.ndarray:
        obs, info = self.envs.reset(seed=self.seeds)
        self.began = info["frame_number"] - info["episode_frame_number"]
        self.lost_life = np.zeros(self.num_envs, bool)
        return obs

    def _step(self, action: np.ndarray) -> Step:
        # If a life is an episode, it starts with FIRE, like every episode. Otherwise Breakout waits forever for a
        # policy that has not learned to press FIRE. The wrappers of the published results (EpisodicLife, FireReset)
        # press it in reset. ale-py cannot step one copy alone, so here FIRE is the first step of the life. The chosen
        # action has no effect in this step. The learner still stores it, as in any other transition.
        if self.fire is not None:
            action = np.where(self.lost_life, self.fire, action)
        obs, score, terminated, truncated, info = self.envs.step(np.asarray(action, np.int64))
        began = info["frame_number"] - info["episode_frame_number"]       # changes with each new game
        self.score, self.over, self.began = score, began != self.began, began
        self.lost_life = terminated & ~self.over
        final_obs = None
        if (terminated | truncated).any():
            final_obs = obs.copy()                                        # the emulator gives none for a lost life
            final_obs[self.over] = info["final_obs"][self.over]
        reward = np.sign(score) if self.protocol["clip_rewards"] else score
        return Step(obs, reward.astype(np.float32), terminated, truncated, final_obs)

    def _truth(self, result: Step) -> tuple[np.ndarray, np.ndarray]:
        return self.score, self.over

    def close(self) -> None:
        self.envs.close()


def make_one_atari(env: str, render_mode: str | None = None, **settings: Any) -> Env:
    """Create one game that can be drawn, with Gymnasium's environment and wrappers. Its observations are those of
    `AtariVector`.

    env: the full id. UserError: OpenCV is missing.
    """
    chosen = protocol(env, settings)
    game = gymnasium.make(env, render_mode=render_mode, frameskip=1, max_num_frames_per_episode=LONGEST,
                          repeat_action_probability=chosen["sticky_actions"], full_action_space=chosen["full_actions"])
    try:
        game = gymnasium.wrappers.AtariPreprocessing(FireAtStart(game), frame_skip=chosen["frame_skip"])
    except gymnasium.error.DependencyNotInstalled:
        game.close()
        raise UserError(f"showing {env} needs OpenCV; type: pip install 'spinup-rl[atari]'") from None
    game.metadata = {**game.metadata, "render_fps": 60 / chosen["frame_skip"]}            # of actions, in real time
    game = gymnasium.wrappers.FrameStackObservation(game, FRAMES, padding_type="zero")
    return FireAfterLostLife(game) if chosen["life_loss"] else game


class FireAtStart(Wrapper):
    """Press FIRE in the first frame of a game that has this action, like the vectorised emulator."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        if (fire := fire_of(self)) is not None:
            obs, _, _, _, info = self.env.step(fire)
        return obs, info


class FireAfterLostLife(Wrapper):
    """Replace the first action of each life by FIRE."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        self.lives, self.lost_life = info["lives"], False
        return obs, info

    def step(self, action: int) -> tuple[Any, ...]:
        result = self.env.step(fire_of(self) if self.lost_life and fire_of(self) is not None else action)
        self.lost_life, self.lives = 0 < result[-1]["lives"] < self.lives, result[-1]["lives"]
        return result


def fire_of(game: Env) -> int | None:
    """Return the number of the action FIRE, or None if a game does not have it."""
    meanings = game.unwrapped.get_action_meanings()
    return meanings.index("FIRE") if "FIRE" in meanings else None


def own_seeds(seed: int, num_envs: int) -> np.ndarray:
    """Return a seed for each copy, int64 `[N]`, of the 31 bits that the emulator takes."""
    return np.array(copy_seeds(seed, num_envs), np.int64) >> 1
