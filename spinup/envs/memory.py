"""Environments for policies with a memory. The observation includes the last action and reward. An episode of the
learner is a trial: several episodes in the same task."""
from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Box, Discrete

from spinup.envs.spaces import action_distribution, vector_size
from spinup.envs.vector import Step, VectorEnv
from spinup.envs.wrapped import Wrapped
from spinup.errors import UserError

LEARNER = "a policy with a memory"                                        # in messages
Inputs = Literal["transition", "observation"]                             # of the policy, in addition to the start


class Memory(Wrapped):
    """Wrapper of another environment with observations `[N, d + m + 2]` for a policy with a memory.

    An observation has four parts: the observation of the environment `[d]`; the last action and its reward `[m]`;
    whether an episode has just ended; whether a trial starts. At the start of a trial the second and third part are 0.

    The second part depends on the spaces. With k Discrete actions it is the one-hot action, followed by the same vector
    times the reward (m = 2 k). So the network need not multiply action and reward. If the states are also Discrete,
    with S values, pairs of state and action replace the actions (m = 2 S k). With Box actions it is the last action and
    its reward (m = k + 1).

    episodes: number of episodes per trial. A trial is one episode of this wrapper. It terminates or is truncated like
    the last episode in it.
    inputs: "observation" leaves out the second and third part. The length is then d + 1: the observation of the
    environment, and the flag of the start of a trial, where the memory is empty.
    UserError: the environment has its own trials, with another number of episodes.
    """

    def __init__(self, env: VectorEnv, episodes: int, inputs: Inputs = "transition"):
        super().__init__(env)
        if env.trial_episodes not in (None, episodes):
            raise UserError(f"a trial of this environment has {env.trial_episodes} episodes, not {episodes}; type "
                            f"--episodes {env.trial_episodes}, and --rollout-steps {env.trial_steps} for gradients "
                            "through the whole trial")
        action_distribution(env.action_space, LEARNER)                    # raises an error if unsupported
        self.episodes = episodes
        self.size = vector_size(env.observation_space, LEARNER)
        self.discrete = isinstance(env.action_space, Discrete)
        k = int(env.action_space.n) if self.discrete else int(np.prod(env.action_space.shape))
        self.tabular = self.discrete and isinstance(env.observation_space, Discrete)
        self.actions, self.cells = k, k * self.size if self.tabular else k
        self.memory = 0 if inputs == "observation" else 2 * self.cells + 1 if self.discrete else k + 2
        self.observation_space = Box(-np.inf, np.inf, (self.size + self.memory + 1,))
        self.played = np.zeros(env.num_envs, np.int64)                    # episodes of the current trial

    def _begun(self, obs: np.ndarray) -> np.ndarray:
        self.played[:] = 0
        return self._first(obs)

    def _restart(self, i: int, seed: int) -> np.ndarray:
        self.played[i] = 0
        self.env.restart(i, seed)
        return self._first(self.env.obs)[i]

    def _step(self, action: np.ndarray) -> Step:
        before = self.env.obs
        step = self.env.step(action)
        ended = step.terminated | step.truncated
        self.env.take_finished()                                          # drop episodes; trials count here
        self.played += ended
        over = self.played == self.episodes
        memory = np.zeros((self.num_envs, self.memory), np.float32)
        if self.memory:
            self._remember(memory, before, action, step.reward)
            memory[:, -1] = ended
        obs, final_obs = self._seen(step.obs, memory), None
        if over.any():
            final_obs = obs.copy()
            final_obs[over, :self.size] = step.final_obs[over]
            if self.memory:
                final_obs[over & ~step.terminated, -2] = 0                # value at a time limit: as if it continued
            obs[over] = self._first(step.obs)[over]
            self.played[over] = 0
        return step._replace(obs=obs, terminated=step.terminated & over, truncated=step.truncated & over,
                             final_obs=final_obs)

    def _remember(self, memory: np.ndarray, before: np.ndarray, action: np.ndarray, reward: np.ndarray) -> None:
        rows = np.arange(self.num_envs)
        if self.discrete:
            cell = np.asarray(action) + (self.actions * before.argmax(1) if self.tabular else 0)
            memory[rows, cell], memory[rows, self.cells + cell] = 1, reward
        else:
            memory[:, :self.actions], memory[:, self.actions] = action.reshape(self.num_envs, -1), reward

    def _seen(self, obs: np.ndarray, memory: np.ndarray) -> np.ndarray:
        return np.concatenate([obs, memory, np.zeros((self.num_envs, 1), np.float32)], 1, dtype=np.float32)

    def _first(self, obs: np.ndarray) -> np.ndarray:
        seen = self._seen(obs, np.zeros((self.num_envs, self.memory), np.float32))
        seen[:, -1] = 1
        return seen

    def _save(self) -> dict[str, Any]:
        return {"env": self.env.state_dict(), "played": self.played.copy()}

    def _load(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])
        self.played = np.asarray(state["played"]).copy()
