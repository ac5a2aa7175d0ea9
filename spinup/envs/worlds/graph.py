"""Random graph: from random walks on it, shortest paths can be learned."""
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from spinup.envs.state import load_rng, save_rng
from spinup.envs.vector import Step, VectorEnv, generator

NODES, LIMIT, EDGE = 20, 10, 0.1     # steps of an episode; probability of an edge


class RandomGraph(VectorEnv):
    """Graph with 20 nodes, each pair of which has an edge with probability .1. The goal is node 0. Every step has a
    reward of -1. The episode ends at the goal, or after 10 steps (Chen et al. 2021, arXiv:2106.01345, figure 2). If the
    goal is not reached, the last step has a reward of -11. So the return tells the walks that reach it from all others.

    Action i moves to neighbour i, counted modulo the number of neighbours. So a uniformly random policy makes a random
    walk. The observation `[20]` is the one-hot node. The graph is the same for all seeds, and it is connected.

    start: `[N]`, first node of the episodes of each copy; None: a random node other than the goal.

    Attributes:
        moves: `[20, actions]`, next node by node and action.
        distances: `[20]`, length of the shortest path to the goal.
    """

    shown_by = ()

    def __init__(self, num_envs: int, seed: int, start: np.ndarray | None = None):
        super().__init__(num_envs)
        self.moves, self.distances = connected_graph()
        self.start, self.rng = start, generator(seed)
        self.observation_space, self.action_space = Box(0, 1, (NODES,)), Discrete(self.moves.shape[1])
        self.seen = np.eye(NODES, dtype=np.float32)
        self.node = np.zeros(num_envs, np.int64)

    def _begin(self, copies: np.ndarray, rng: np.random.Generator) -> None:
        self.node[copies] = rng.integers(1, NODES, len(copies)) if self.start is None else self.start[copies]

    def _reset(self) -> np.ndarray:
        self._begin(np.arange(self.num_envs), self.rng)
        return self.seen[self.node]

    def _restart(self, i: int, seed: int) -> np.ndarray:
        self._begin(np.array([i]), np.random.default_rng(seed))
        return self.seen[self.node[i]]

    def _step(self, action: np.ndarray) -> Step:
        self.node = self.moves[self.node, action]
        missed = (self.node != 0) & (self.episode_length >= LIMIT - 1)    # this step is not counted yet
        ended, obs, final_obs = (self.node == 0) | missed, self.seen[self.node], None
        reward = np.where(missed, -1 - LIMIT, -1).astype(np.float32)
        if ended.any():
            final_obs = obs.copy()
            self._begin(np.flatnonzero(ended), self.rng)
            obs = self.seen[self.node]
        return Step(obs, reward, ended, np.zeros(self.num_envs, bool), final_obs)

    def _save(self) -> dict[str, Any]:
        return {"node": self.node.copy(), "rng": save_rng(self.rng)}

    def _load(self, state: dict[str, Any]) -> None:
        self.node = np.asarray(state["node"]).copy()
        load_rng(self.rng, state["rng"])


def connected_graph() -> tuple[np.ndarray, np.ndarray]:
    """Sample random graphs until one is connected. Return the next node by node and action, `[20, actions]`, and the
    length of each node's shortest path to node 0, `[20]`."""
    rng = np.random.default_rng(0)
    while True:
        upper = np.triu(rng.random((NODES, NODES)) < EDGE, 1)
        edges = upper | upper.T
        distances = np.where(np.arange(NODES) == 0, 0, NODES)
        for _ in range(NODES):                                            # each pass finds the nodes one step farther
            distances = np.minimum(distances, np.where(edges, distances[None] + 1, NODES).min(1))
        if distances.max() < NODES:
            neighbours, most = [np.flatnonzero(row) for row in edges], int(edges.sum(1).max())
            return np.stack([each[np.arange(most) % len(each)] for each in neighbours]), distances


WORLDS = {"RandomGraph-v0": RandomGraph}
