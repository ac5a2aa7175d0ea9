"""Gymnasium's classic control in numpy, and CartPole half hidden: N copies in an array, restarted within the last step.

Physics, bounds, rewards and time limits are those of Gymnasium 1.4 (`gymnasium/envs/classic_control`), and a test steps
each beside the original. Where they differ it is by rounding: Acrobot's constants are multiplied out, numpy's cosine
need not be libm's (both cars), and Gymnasium rounds the state of MountainCarContinuous to float32 after each step.
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


class _Classic(VectorEnv):
    """Base class: the clock, the restart and saving. A subclass has its spaces, its `limit` and its physics.

    Attributes:
        limit: steps after which an episode is truncated, also where the last one terminates, as Gymnasium's `TimeLimit`
            does: then both are true.
        state: `[d, N]`, one row per quantity; set by `reset`. The physics changes it in place.
    """

    limit: int
    state: np.ndarray

    def __init__(self, num_envs: int, seed: int):
        super().__init__(num_envs)
        self.observation_space, self.action_space = self._spaces()    # a space has its own generator: never share one
        self.rng = generator(seed)
        self.ones = np.ones(num_envs, np.float32)
        self.ones.flags.writeable = False                             # handed out as the reward of every step

    def _reset(self) -> np.ndarray:
        self.state = self._start(self.num_envs)
        return self._observe(self.state)

    def _restart(self, i: int, seed: int) -> np.ndarray:
        self.rng = generator(seed)
        self.state[:, i:i + 1] = start = self._start(1)
        return self._observe(start)[0]

    def _step(self, action: np.ndarray) -> Step:
        reward, terminated = self._move(action)
        truncated = self.episode_length >= self.limit - 1             # VectorEnv counts this step only after it
        ended = terminated | truncated
        obs, final_obs = self._observe(self.state), None
        if count := np.count_nonzero(ended):                          # a quarter of the time of `any`
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
        """The observations of copies in `state`, `[d, n]`: a new array `[n, *shape]` float32; by default the state."""
        return state.T.astype(np.float32, order="C")

    def _spaces(self) -> tuple[Space, Space]:
        """Those of one copy's observations and actions."""
        raise NotImplementedError

    def _start(self, count: int) -> np.ndarray:
        """Draw the states `[d, count]` in which as many episodes begin."""
        raise NotImplementedError

    def _move(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Advance `state` by one step; returns reward `[N]` float32 and terminated `[N]` bool, not changed later."""
        raise NotImplementedError


def _box(*high: float) -> Box:
    high = np.array(high, np.float32)
    return Box(-high, high, dtype=np.float32)


def _clip(x: np.ndarray, low: float, high: float, out: np.ndarray | None = None) -> np.ndarray:
    """`np.clip` in half its time on small arrays."""
    return np.minimum(np.maximum(x, low, out=out), high, out=out)


class CartPole(_Classic):
    """CartPole-v1: push a cart left (0) or right (1) so that its pole stays up; 1 point a step.

    State and observation: position (m), velocity, angle from upright (rad), angular velocity.
    """

    limit = 500
    max_x, max_angle = 2.4, 12 * 2 * np.pi / 360

    def _spaces(self):
        return _box(2 * self.max_x, np.inf, 2 * self.max_angle, np.inf), Discrete(2)

    def _start(self, count):
        return self.rng.uniform(-0.05, 0.05, (4, count))

    def _move(self, action):
        if self.num_envs == 1:                                        # numpy takes as long for one number as for many
            self.state[:, 0] = x, _, angle, _ = self._after(*self.state[:, 0].tolist(), float(action[0]), math)
            return self.ones, np.array([abs(x) > self.max_x or abs(angle) > self.max_angle])
        x, speed, angle, spin = self.state
        x[:], speed[:], angle[:], spin[:] = self._after(x, speed, angle, spin, action, np)
        return self.ones, (np.abs(x) > self.max_x) | (np.abs(angle) > self.max_angle)

    @staticmethod
    def _after(x, speed, angle, spin, action, functions):
        """The state after a step, of numbers with the functions of math, or of arrays with numpy's. A cart of 1 kg, a
        pole of 0.1 kg and half a metre to its middle, 10 N, 0.02 s."""
        cos, sin = functions.cos(angle), functions.sin(angle)
        push = (action * 20.0 - 10.0 + 0.05 * (spin * spin) * sin) / 1.1
        spin_up = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * (cos * cos) / 1.1))
        speed_up = push - 0.05 * spin_up * cos / 1.1
        return x + 0.02 * speed, speed + 0.02 * speed_up, angle + 0.02 * spin, spin + 0.02 * spin_up


class StatelessCartPole(CartPole):
    """CartPole without its velocities: one look does not tell what to do, two do. For policies that remember.

    Observation: position (m), angle from upright (rad).
    """

    def _spaces(self):
        return _box(2 * self.max_x, 2 * self.max_angle), Discrete(2)

    def _observe(self, state):
        return state[::2].T.astype(np.float32, order="C")


class Acrobot(_Classic):
    """Acrobot-v1: swing the lower of two hanging links up with a torque of -1, 0 or 1 N m between them; -1 a step.

    State: the angle of the first link from hanging (rad), of the second from the first, their angular velocities.
    Observation: cosine and sine of either angle, the velocities.
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
        k1 = self._rate(state, torque)                                # Runge and Kutta's fourth-order step of 0.2 s
        k2 = self._rate(state + 0.1 * k1, torque)
        k3 = self._rate(state + 0.1 * k2, torque)
        k4 = self._rate(state + 0.2 * k3, torque)
        state += 0.2 / 6 * (k1 + 2.0 * (k2 + k3) + k4)
        angles, spins = state[:2], state[2:]
        angles -= 2 * np.pi * np.rint(angles / (2 * np.pi))           # `%` would also round angles that are within +-pi
        _clip(spins, -self.max_spin, self.max_spin, out=spins)
        terminated = -np.cos(angles[0]) - np.cos(angles[0] + angles[1]) > 1.0
        return terminated - self.ones, terminated


class MountainCar(_Classic):
    """MountainCar-v0: rock a car left (0), not at all (1) or right (2) out of a valley; -1 a step until it is up.

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
        """Accelerate by `push` and the slope; returns who has reached the goal, `[N]` bool."""
        x, speed = self.state
        speed += push - 0.0025 * np.cos(3.0 * x)
        _clip(speed, -0.07, 0.07, out=speed)
        x += speed
        _clip(x, -1.2, 0.6, out=x)
        np.maximum(speed, 0.0, out=speed, where=x == -1.2)            # the wall on the left takes all speed
        return (x >= self.goal) & (speed >= 0.0)


class MountainCarContinuous(MountainCar):
    """MountainCarContinuous-v0: as MountainCar with a force in [-1, 1]; 100 at the goal, less 0.1 action^2 each step.

    As in Gymnasium, an action out of range is clipped for the car but not for its price.
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
    """Pendulum-v1: swing a pendulum up and hold it with a torque in [-2, 2] N m; a step costs its distance from there.

    State: angle from upright (rad, not wrapped), angular velocity. Observation: cosine and sine of it, the velocity.
    No episode terminates.
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
    """Gymnasium's CartPole, seen as `StatelessCartPole` shows it."""
    from gymnasium.envs.classic_control import CartPoleEnv
    env = CartPoleEnv(**kwargs)
    low, high = env.observation_space.low[::2], env.observation_space.high[::2]
    return TransformObservation(env, lambda obs: obs[::2], Box(low, high, dtype=np.float32))


gymnasium.register("StatelessCartPole-v0", _without_velocities, max_episode_steps=StatelessCartPole.limit)
WORLDS = {"CartPole-v1": CartPole, "StatelessCartPole-v0": StatelessCartPole, "Acrobot-v1": Acrobot,
          "MountainCar-v0": MountainCar, "MountainCarContinuous-v0": MountainCarContinuous, "Pendulum-v1": Pendulum}
