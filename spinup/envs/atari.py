"""Atari games in ale-py's own vectorised emulator, by a protocol that is always said.

Two numbers for one game are only comparable under one protocol: sticky actions alone cost a factor of three to four in
Breakout. An id stands for one of the two in use, and each of its settings can be changed:

    PongNoFrameskip-v4   as in Mnih et al. (2015) and behind most published figures of PPO and DQN
    ALE/Pong-v5          sticky actions, and lost lives are not told, as Machado et al. (2018) advise

Both: 4 frames of 84 x 84 grey pixels, each the brighter of the last two that the game drew, at the start of a game FIRE
where the game has it and up to 30 frames of waiting, the end after 108,000 frames (half an hour).
"""
import re
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Wrapper

from spinup.envs.vector import Step, VectorEnv
from spinup.errors import UserError, nearest

FRAMES = 4                                                                # that an observation shows
LONGEST = 108_000                                                         # frames of a game
PROTOCOLS = {                                                             # by what the id ends or begins with
    r"(?:.*:)?[A-Za-z0-9]+NoFrameskip(?:-v4)?": {
        "sticky_actions": 0.0, "life_loss": True, "clip_rewards": True, "frame_skip": 4, "full_actions": False},
    r"(?:.*:)?ALE/[A-Za-z0-9]+(?:-v5)?": {
        "sticky_actions": 0.25, "life_loss": False, "clip_rewards": True, "frame_skip": 4, "full_actions": False}}


def protocol(env: object, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """The protocol of an Atari game: what its id says, and over it what is given and not None; {} for all else.

    UserError: something is given that no protocol has, or for an environment that is not such a game.
    """
    given = {k: v for k, v in (given or {}).items() if v is not None}
    for pattern, settings in PROTOCOLS.items():
        if isinstance(env, str) and re.fullmatch(pattern, env):
            if unknown := [name for name in given if name not in settings]:
                raise UserError(f"{env} does not take {unknown[0]!r}, only {', '.join(settings)}."
                                f"{nearest(unknown[0], settings)}")
            return {**settings, **given}
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UserError(f"{flags} can only be given for Atari games, such as PongNoFrameskip-v4 or ALE/Pong-v5")
    return {}


def in_words(settings: dict[str, Any]) -> str:
    """A protocol in a line."""
    skip = settings["frame_skip"]
    return ", ".join([
        f"sticky actions {settings['sticky_actions']:g}", f"{skip} frame{'s' * (skip > 1)} an action",
        "all 18 actions" if settings["full_actions"] else "the game's own actions",
        f"a lost life {'ends' if settings['life_loss'] else 'does not end'} the learner's episode",
        f"the learner's rewards {'are -1, 0 or 1' if settings['clip_rewards'] else 'are not clipped'}",
        "returns are the scores of whole games"])


class AtariVector(VectorEnv):
    """N copies of a game. Statistics count whole games and true scores, whatever rewards and ends the learner gets.

    Args:
        env: the full id, of one of the two kinds above.
        seed: copy i is seeded from (seed, i), so that no two runs share their games.
        settings: as in `PROTOCOLS`; None, or not given, means what the id says.
            sticky_actions: probability, in each frame, that the last action is repeated whatever was chosen.
            life_loss: for the learner an episode ends with a lost life; the game goes on.
            clip_rewards: the learner gets the sign of each reward.
            frame_skip: frames that an action lasts.
            full_actions: all 18 actions of the joystick, not only those that the game uses.
    """

    frames = FRAMES
    can_save = False
    why_not_saved = "the emulator's state cannot be read"

    def __init__(self, env: str, num_envs: int, seed: int, **settings: Any):
        from ale_py import Action
        from ale_py.vector_env import AtariVectorEnv
        super().__init__(num_envs)
        self.protocol = protocol(env, settings)
        self.envs = AtariVectorEnv(                                       # as many threads as cores, at most num_envs
            gymnasium.spec(env).kwargs["game"], num_envs, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
            repeat_action_probability=self.protocol["sticky_actions"], frameskip=self.protocol["frame_skip"],
            full_action_space=self.protocol["full_actions"], life_loss_info=self.protocol["life_loss"],
            reward_clipping=False, stack_num=FRAMES, max_num_frames_per_episode=LONGEST, use_fire_reset=True)
        self.observation_space, self.action_space = self.envs.single_observation_space, self.envs.single_action_space
        actions = self.envs.ale.get_action_set()
        self.fire = actions.index(Action.FIRE) if Action.FIRE in actions else None
        self.seeds = np.array([np.random.SeedSequence((seed, i)).generate_state(1)[0] >> 1 for i in range(num_envs)],
                              np.int64)                                   # the emulator takes 31 bits

    def _reset(self) -> np.ndarray:
        obs, info = self.envs.reset(seed=self.seeds)
        self.began = info["frame_number"] - info["episode_frame_number"]
        self.lost_life = np.zeros(self.num_envs, bool)
        return obs

    def _step(self, action: np.ndarray) -> Step:
        # Where a life is an episode, it begins with FIRE as every episode does, whatever was chosen: Breakout waits for
        # ever where a policy has not learned to press it. The wrappers behind the published figures (EpisodicLife,
        # FireReset) press it within reset; ale-py cannot step one copy alone, so here it is the first step of the life.
        # In it the action has no influence, which is a transition like any other: the learner stores what it chose.
        if self.fire is not None:
            action = np.where(self.lost_life, self.fire, action)
        obs, score, terminated, truncated, info = self.envs.step(np.asarray(action, np.int64))
        began = info["frame_number"] - info["episode_frame_number"]       # another frame: another game
        self.score, self.over, self.began = score, began != self.began, began
        self.lost_life = terminated & ~self.over
        final_obs = None
        if (terminated | truncated).any():
            final_obs = obs.copy()                                        # the emulator has none where a life was lost
            final_obs[self.over] = info["final_obs"][self.over]
        reward = np.sign(score) if self.protocol["clip_rewards"] else score
        return Step(obs, reward.astype(np.float32), terminated, truncated, final_obs)

    def _truth(self, result: Step) -> tuple[np.ndarray, np.ndarray]:
        return self.score, self.over

    def close(self) -> None:
        self.envs.close()


def make_one_atari(env: str, render_mode: str | None = None, **settings: Any) -> Env:
    """One game that can be drawn, in Gymnasium's environment and wrappers; to a policy it looks as in `AtariVector`.

    env: the full id. UserError: OpenCV is missing.
    """
    chosen = protocol(env, settings)
    game = gymnasium.make(env, render_mode=render_mode, frameskip=1, max_num_frames_per_episode=LONGEST,
                          repeat_action_probability=chosen["sticky_actions"], full_action_space=chosen["full_actions"])
    try:
        game = gymnasium.wrappers.AtariPreprocessing(FireAtStart(game), frame_skip=chosen["frame_skip"])
    except gymnasium.error.DependencyNotInstalled:
        game.close()
        raise UserError(f"to show {env} takes OpenCV; type: pip install 'spinup-rl[atari]'") from None
    game.metadata = {**game.metadata, "render_fps": 60 / chosen["frame_skip"]}            # of actions, in real time
    game = gymnasium.wrappers.FrameStackObservation(game, FRAMES, padding_type="zero")
    return FireAfterLostLife(game) if chosen["life_loss"] else game


class FireAtStart(Wrapper):
    """FIRE in the first frame of a game that knows it, as the vectorised emulator presses it."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        if (fire := fire_of(self)) is not None:
            obs, _, _, _, info = self.env.step(fire)
        return obs, info


class FireAfterLostLife(Wrapper):
    """FIRE as the first action of each life, whatever was chosen."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        self.lives, self.lost_life = info["lives"], False
        return obs, info

    def step(self, action: int) -> tuple[Any, ...]:
        result = self.env.step(fire_of(self) if self.lost_life and fire_of(self) is not None else action)
        self.lost_life, self.lives = 0 < result[-1]["lives"] < self.lives, result[-1]["lives"]
        return result


def fire_of(game: Env) -> int | None:
    """The number of the action FIRE, where a game has it."""
    meanings = game.unwrapped.get_action_meanings()
    return meanings.index("FIRE") if "FIRE" in meanings else None
