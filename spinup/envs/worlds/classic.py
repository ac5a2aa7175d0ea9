"""Gymnasium's classic control in numpy, and CartPole without velocities: N copies in one array, with autoreset.

Physics, bounds, rewards and time limits are those of Gymnasium 1.4 (`gymnasium/envs/classic_control`). A test compares
each environment with the original. They differ only by rounding. Acrobot's constants are multiplied out, numpy's cosine
can differ from libm's (both cars), and Gymnasium rounds the state of MountainCarContinuous to float32 after each step.
"""
import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.wrappers import TransformObservation

from spinup.envs.state import load_rng, save_rng
from spinup.envs.vector import Step, VectorEnv, generator

FEW = 8                 # copies up to which Python's math is faster than numpy: 5 µs a step instead of 15 with four


class _Classic(VectorEnv):
    """Base class with the time limit, the reset and saving. A subclass defines the spaces, `limit` and the physics.

    Attributes:
        limit: steps after which an episode is truncated. If the last step also terminates, both are true, as in
            Gymnasium's `TimeLimit`.
        state: `[d, N]`, one row per quantity; set by `reset`. The physics changes it in place.
    """

    limit: int
    state: np.ndarray

    def __init__(self, num_envs: int, seed: int):
        super().__init__(num_envs)
        self.observation_space, self.action_space = self._spaces()    # a space has a generator, so do not share one
        self.rng = generator(seed)
        self.ones = np.ones(num_envs, np.float32)
        self.ones.flags.writeable = False                             # it is the reward of every step

    def _reset(self) -> np.ndarray:
        self.state = self._start(self.num_envs)
        return self._observe(self.state)

    def _restart(self, i: int, seed: int) -> np.ndarray:
        self.rng = generator(seed)
        self.state[:, i:i + 1] = start = self._start(1)
        return self._observe(start)[0]

    def _step(self, action: np.ndarray) -> Step:
        reward, terminated = self._move(action)
        truncated = self.episode_length >= self.limit - 1             # VectorEnv counts this step only later
        ended = terminated | truncated
        obs, final_obs = self._observe(self.state), None
        if count := np.count_nonzero(ended):                          # four times faster than `any`
            self.state[:, ended] = start = self._start(count)
            obs, final_obs = obs.copy(), obs
            obs[ended] = self._observe(start)
        return Step(obs, reward, terminated, truncated, final_obs)

    def _save(self) -> dict[str, Any]:
        return {"state": self.state.copy(), "rng": save_rng(self.rng)}

    def _load(self, state: dict[str, Any]) -> None:
        self.state = np.asarray(state["state"]).copy()
        load_rng(self.rng, state["rng"])

    def _observe(self, state: np.ndarray) -> np.ndarray:
        """Return the observations of `state` `[d, n]` in a new array `[n, *shape]` float32; by default the state."""
        return state.T.astype(np.float32, order="C")

    def _spaces(self) -> tuple[Space, Space]:
        """Return the observation space and the action space of one copy."""
        raise NotImplementedError

    def _start(self, count: int) -> np.ndarray:
        """Sample the initial states `[d, count]` of `count` episodes."""
        raise NotImplementedError

    def _move(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Advance `state` by one step. Return reward `[N]` float32 and terminated `[N]` bool, never changed later."""
        raise NotImplementedError


def _box(*high: float) -> Box:
    high = np.array(high, np.float32)
    return Box(-high, high, dtype=np.float32)


def _clip(x: np.ndarray, low: float, high: float, out: np.ndarray | None = None) -> np.ndarray:
    """`np.clip`, but twice as fast on small arrays."""
    return np.minimum(np.maximum(x, low, out=out), high, out=out)


class CartPole(_Classic):
    """CartPole-v1: push a cart left (0) or right (1) so that its pole stays upright; reward 1 per step.

    State and observation: position (m), velocity, angle from upright (rad), angular velocity.
    """

    limit = 500
    max_x, max_angle = 2.4, 12 * 2 * np.pi / 360

    def _spaces(self):
        return _box(2 * self.max_x, np.inf, 2 * self.max_angle, np.inf), Discrete(2)

    def _start(self, count):
        return self.rng.uniform(-0.05, 0.05, (4, count))

    def _move(self, action):
        if self.num_envs <= FEW:
            rows = [self._after(*row, math) for row in zip(*self.state.tolist(), action.tolist(), strict=True)]
            self.state.T[:] = rows
            return self.ones, np.array([abs(x) > self.max_x or abs(angle) > self.max_angle for x, _, angle, _ in rows])
        x, speed, angle, spin = self.state
        x[:], speed[:], angle[:], spin[:] = self._after(x, speed, angle, spin, action, np)
        return self.ones, (np.abs(x) > self.max_x) | (np.abs(angle) > self.max_angle)

    @staticmethod
    def _after(x, speed, angle, spin, action, functions):
        """Return the state after a step. Numbers need the functions of math, arrays those of numpy. The cart has 1 kg,
        the pole has 0.1 kg and its middle at half a metre, the force is 10 N, and a step takes 0.02 s."""
        cos, sin = functions.cos(angle), functions.sin(angle)
        push = (action * 20.0 - 10.0 + 0.05 * (spin * spin) * sin) / 1.1
        spin_up = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * (cos * cos) / 1.1))
        speed_up = push - 0.05 * spin_up * cos / 1.1
        return x + 0.02 * speed, speed + 0.02 * speed_up, angle + 0.02 * spin, spin + 0.02 * spin_up


class StatelessCartPole(CartPole):
    """CartPole without velocities, for policies with a memory: one observation is not enough, two are.

    Observation: position (m), angle from upright (rad).
    """

    def _spaces(self):
        return _box(2 * self.max_x, 2 * self.max_angle), Discrete(2)

    def _observe(self, state):
        return state[::2].T.astype(np.float32, order="C")


class Acrobot(_Classic):
    """Acrobot-v1: swing the lower of two hanging links up, with a torque of -1, 0 or 1 N m between them; reward -1 per
    step.

    State: angle of the first link from hanging (rad), angle of the second link from the first, angular velocities.
    Observation: cosine and sine of each angle, angular velocities.
    """

    limit = 500
    max_spin = np.array([[4 * np.pi], [9 * np.pi]])

    def _spaces(self):
        return _box(1, 1, 1, 1, *self.max_spin[:, 0]), Discrete(3)

    def _start(self, count):
        return self.rng.uniform(-0.1, 0.1, (4, count))

    def _observe(self, state):
        (cos1, cos2), (sin1, sin2) = np.cos(state[:2]), np.sin(state[:2])
        return np.array((cos1, sin1, cos2, sin2, *state[2:]), np.float32).T.copy()

    @staticmethod
    def _rate(state, torque):
        """Time derivative of the state (Sutton and Barto's book); links of 1 m, 1 kg, inertia 1, centred halfway."""
        angle1, angle2, spin1, spin2 = state
        cos, half_sin = np.cos(angle2), 0.5 * np.sin(angle2)
        inertia, coupling = 3.5 + cos, 1.25 + 0.5 * cos
        pull2 = 4.9 * np.sin(angle1 + angle2)
        pull1 = 14.7 * np.sin(angle1) + pull2 - half_sin * spin2 * (spin2 + 2.0 * spin1)
        share = coupling / inertia
        rate = np.empty_like(state)
        rate[:2] = state[2:]
        rate[3] = (torque + share * pull1 - half_sin * (spin1 * spin1) - pull2) / (1.25 - coupling * share)
        rate[2] = -share * rate[3] - pull1 / inertia
        return rate

    def _move(self, action):
        state, torque = self.state, action - 1.0
        k1 = self._rate(state, torque)                                # fourth-order Runge-Kutta step of 0.2 s
        k2 = self._rate(state + 0.1 * k1, torque)
        k3 = self._rate(state + 0.1 * k2, torque)
        k4 = self._rate(state + 0.2 * k3, torque)
        state += 0.2 / 6 * (k1 + 2.0 * (k2 + k3) + k4)
        angles, spins = state[:2], state[2:]
        angles -= 2 * np.pi * np.rint(angles / (2 * np.pi))           # `%` would also round angles within +-pi
        _clip(spins, -self.max_spin, self.max_spin, out=spins)
        terminated = -np.cos(angles[0]) - np.cos(angles[0] + angles[1]) > 1.0
        return terminated - self.ones, terminated


class MountainCar(_Classic):
    """MountainCar-v0: push a car left (0), not at all (1) or right (2) out of a valley; reward -1 per step to the goal.

    State and observation: position, velocity per step.
    """

    limit = 200
    goal, power = 0.5, 0.001

    def _spaces(self):
        low, high = np.array([[-1.2, -0.07], [0.6, 0.07]], np.float32)
        return Box(low, high, dtype=np.float32), Discrete(3)

    def _start(self, count):
        state = np.zeros((2, count))
        state[0] = self.rng.uniform(-0.6, -0.4, count)
        return state

    def _move(self, action):
        return -self.ones, self._roll((action - 1.0) * self.power)

    def _roll(self, push):
        """Accelerate by `push` and the slope. Return which copies reached the goal, `[N]` bool."""
        x, speed = self.state
        speed += push - 0.0025 * np.cos(3.0 * x)
        _clip(speed, -0.07, 0.07, out=speed)
        x += speed
        _clip(x, -1.2, 0.6, out=x)
        np.maximum(speed, 0.0, out=speed, where=x == -1.2)            # the wall on the left stops the car
        return (x >= self.goal) & (speed >= 0.0)


class MountainCarContinuous(MountainCar):
    """MountainCarContinuous-v0: MountainCar with a force in [-1, 1]; reward 100 at the goal, minus 0.1 action^2 per
    step.

    As in Gymnasium, an action out of range is clipped for the physics, but not for the reward.
    """

    limit = 999
    goal, power = 0.45, 0.0015

    def _spaces(self):
        return super()._spaces()[0], _box(1)

    def _move(self, action):
        force = action[:, 0].astype(np.float64)
        terminated = self._roll(_clip(force, -1.0, 1.0) * self.power)
        return (100.0 * terminated - 0.1 * (force * force)).astype(np.float32), terminated


class Pendulum(_Classic):
    """Pendulum-v1: swing a pendulum up and hold it, with a torque in [-2, 2] N m. The reward penalises the angle from
    upright, the angular velocity and the torque.

    State: angle from upright (rad, not wrapped), angular velocity. Observation: cosine and sine of the angle, angular
    velocity. No episode terminates.
    """

    limit = 200

    def _spaces(self):
        return _box(1, 1, 8), _box(2)

    def _start(self, count):
        return self.rng.uniform([[-np.pi], [-1.0]], [[np.pi], [1.0]], (2, count))

    def _observe(self, state):
        angle, spin = state
        return np.array((np.cos(angle), np.sin(angle), spin), np.float32).T.copy()

    def _move(self, action):
        angle, spin = self.state
        torque = _clip(action[:, 0], -2.0, 2.0)
        off = (angle + np.pi) % (2 * np.pi) - np.pi                   # within +-pi
        cost = off * off + 0.1 * (spin * spin) + 0.001 * (torque * torque)
        spin += (15.0 * np.sin(angle) + 3.0 * torque) * 0.05          # 3 g / 2 l, 3 / m l^2; 10 m/s^2, 1 m, 1 kg, .05 s
        _clip(spin, -8.0, 8.0, out=spin)
        angle += spin * 0.05
        return (-cost).astype(np.float32), np.zeros(self.num_envs, bool)


def _without_velocities(**kwargs: Any) -> Env:
    """Create Gymnasium's CartPole with the observations of `StatelessCartPole`."""
    from gymnasium.envs.classic_control import CartPoleEnv
    env = CartPoleEnv(**kwargs)
    low, high = env.observation_space.low[::2], env.observation_space.high[::2]
    return TransformObservation(env, lambda obs: obs[::2], Box(low, high, dtype=np.float32))


gymnasium.register("StatelessCartPole-v0", _without_velocities, max_episode_steps=StatelessCartPole.limit)
WORLDS = {"CartPole-v1": CartPole, "StatelessCartPole-v0": StatelessCartPole, "Acrobot-v1": Acrobot,
          "MountainCar-v0": MountainCar, "MountainCarContinuous-v0": MountainCarContinuous, "Pendulum-v1": Pendulum}
