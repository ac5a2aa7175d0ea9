"""Grids in which an agent turns, walks, carries keys and opens doors, with a partial view: N copies in one array.

Rules, rewards, time limits and views are those of MiniGrid 3.2 (Chevalier-Boisvert et al. 2023). The observation is the
agent's view of 7 x 7 cells. The agent is in the middle of the last row. Cells behind walls and closed doors are hidden.
The view is one-hot, as in `OneHotPartialObsWrapper`, and flattened to 980 numbers.
"""
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from spinup.envs.state import load_rng, save_rng
from spinup.envs.vector import Step, VectorEnv, generator
from spinup.envs.worlds.cells import (
    AHEAD,
    CLEAR,
    DROP,
    EMPTY,
    FORWARD,
    IS_GOAL,
    IS_KEY,
    KEY_FOR,
    LIT,
    LOCKED,
    MIDDLE,
    ONE_HOT,
    PICKUP,
    REACH,
    SIZE,
    TOGGLE,
    TOGGLED,
    TURN,
    WALKABLE,
    WALL,
)


class Grid(VectorEnv):
    """Base class of grids, with movement, views, resets and saving. A subclass defines the layout of its boards.

    Actions: turn left, turn right, go forward, pick up, drop, toggle (a door), do nothing.

    Args:
        limit: steps after which an episode is truncated.

    Attributes:
        board: `[N, height, width]` uint8, cells by `code`, without the padding of walls around them.
        pos: `[N]`, position of the agent, as an index into a row of `grid`.
        heading: `[N]`: 0 right, 1 down, 2 left, 3 up.
        carried: `[N]` uint8, code of the carried object; EMPTY: none.
        finished_cells: number of distinct cells that the agent visited, for each episode that ended since the last call
            of `take_cells`.
    """

    MEASURES = {"cells": "distinct cells that the agent visited in an episode, mean over the episodes of the row"}

    def __init__(self, width: int, height: int, limit: int, num_envs: int, seed: int):
        super().__init__(num_envs)
        self.observation_space = Box(0, 1, (SIZE * SIZE * ONE_HOT.shape[1],), np.float32)
        self.action_space = Discrete(len(TURN))
        self.limit, self.rng, self.rows = limit, generator(seed), np.arange(num_envs)
        high, self.wide = height + 2 * REACH, width + 2 * REACH
        self.grid = np.full((num_envs, high * self.wide), WALL, np.uint8)
        self.board = self.grid.reshape(num_envs, high, self.wide)[:, REACH:-REACH, REACH:-REACH]
        self.visited = np.zeros(self.grid.shape, bool)
        self.pos, self.heading = np.zeros((2, num_envs), np.int64)
        self.carried = np.full(num_envs, EMPTY, np.uint8)
        self.finished_cells: list[int] = []
        self.ahead = np.array((1, self.wide, -1, -self.wide))         # change of `pos` by a step forward, by heading
        column, row = np.indices((SIZE, SIZE))
        right = self.ahead[(np.arange(4) + 1) % 4]
        # offsets from `pos` to the cells of the view: `[4, 7, 7]`, columns first as in MiniGrid, the agent's row last
        self.window = self.ahead[:, None, None] * (SIZE - 1 - row) + right[:, None, None] * (column - MIDDLE)

    @property
    def cells(self) -> np.ndarray:
        """Number of distinct cells that the agent has visited in the current episode: `[N]` int64."""
        return np.count_nonzero(self.visited, axis=1)

    def measures(self) -> dict[str, float]:
        """Return `{"cells": ...}`, NaN if no episode ended since the last call."""
        cells = self.take_cells()
        return {"cells": float(np.mean(cells)) if cells else np.nan}

    def take_cells(self) -> list[int]:
        """Return the distinct cells of each episode that ended since the last call, in order of time."""
        finished, self.finished_cells = self.finished_cells, []
        return finished

    def _reset(self) -> np.ndarray:
        self.finished_cells.clear()
        return self._start(self.rows)

    def _start(self, rows: np.ndarray) -> np.ndarray:
        """Start episodes in the copies `rows`. Return their first observations."""
        self.board[rows], self.carried[rows], self.visited[rows] = EMPTY, EMPTY, False
        for i in rows:
            x, y, self.heading[i] = self._lay_out(self.board[i])
            self.pos[i] = (y + REACH) * self.wide + x + REACH
        self.visited[rows, self.pos[rows]] = True
        return self._observe(rows)

    def _step(self, action: np.ndarray) -> Step:
        front = self.pos + self.ahead[self.heading]
        cell = self.grid[self.rows, front]
        self.heading = (self.heading + TURN[action]) & 3
        walks = (action == FORWARD) & WALKABLE[cell]
        self.pos = np.where(walks, front, self.pos)
        self.visited[self.rows, self.pos] = True
        self._handle(action, front, cell)
        terminated = walks & IS_GOAL[cell]
        steps = self.episode_length + 1                               # VectorEnv counts this step only later
        reward = (terminated * (1 - 0.9 * (steps / self.limit))).astype(np.float32)
        truncated = steps >= self.limit
        ended = np.flatnonzero(terminated | truncated)
        obs, final_obs = self._observe(self.rows), None
        if len(ended):
            self.finished_cells += self.cells[ended].tolist()
            obs, final_obs = obs.copy(), obs
            obs[ended] = self._start(ended)
        return Step(obs, reward, terminated, truncated, final_obs)

    def _handle(self, action: np.ndarray, front: np.ndarray, cell: np.ndarray) -> None:
        """Pick up, drop or toggle in the cell in front. Picking up and dropping swap cell and carried object."""
        free = self.carried == EMPTY
        swaps = (action == PICKUP) & IS_KEY[cell] & free | (action == DROP) & (cell == EMPTY) & ~free
        toggles = (action == TOGGLE) & (~LOCKED[cell] | (self.carried == KEY_FOR[cell]))
        self.grid[self.rows, front] = np.where(swaps, self.carried, np.where(toggles, TOGGLED[cell], cell))
        self.carried = np.where(swaps, cell, self.carried)

    def _observe(self, rows: np.ndarray) -> np.ndarray:
        """Return the observations of the copies `rows` in a new array `[n, 980]`."""
        return ONE_HOT.take(self._view(rows), axis=0).reshape(len(rows), -1)

    def _view(self, rows: np.ndarray) -> np.ndarray:
        """Return the codes of the views of `rows`: `[n, 7, 7]`, 0 where a cell is hidden."""
        here = rows * self.grid.shape[1] + self.pos[rows]
        codes = self.grid.reshape(-1).take(self.window[self.heading[rows]] + here[:, None, None])
        seen = self._light(codes)
        codes *= seen
        codes[:, MIDDLE, -1] = self.carried[rows]                     # shown in place of its cell
        return codes

    def _light(self, codes: np.ndarray) -> np.ndarray:
        """Return which cells of the views `[n, 7, 7]` are visible, 0 or 1. It goes row by row from the agent's row."""
        clear = np.packbits(CLEAR[codes], axis=1, bitorder="little")[:, 0]
        lit = np.empty_like(clear)
        light = 1 << MIDDLE
        for row in reversed(range(SIZE)):
            lit[:, row], light = LIT[light, clear[:, row]], AHEAD[light, clear[:, row]]
        return np.unpackbits(lit[:, None], axis=1, count=SIZE, bitorder="little")

    def _save(self) -> dict[str, Any]:
        return {"grid": self.grid.copy(), "visited": self.visited.copy(), "pos": self.pos.copy(),
                "heading": self.heading.copy(), "carried": self.carried.copy(),
                "finished_cells": list(self.finished_cells), "rng": save_rng(self.rng)}

    def _load(self, state: dict[str, Any]) -> None:
        for name in ("grid", "visited", "pos", "heading", "carried"):
            getattr(self, name)[:] = state[name]                      # in place: `board` is a view of `grid`
        self.finished_cells = [int(n) for n in state["finished_cells"]]
        load_rng(self.rng, state["rng"])

    def _lay_out(self, board: np.ndarray) -> tuple[int, int, int]:
        """Sample a layout into `board`, `[height, width]` of EMPTY. Return the agent's x, y and heading."""
        raise NotImplementedError

    def _int(self, low: int, high: int) -> int:
        """Sample from `low` to `high` - 1. It is five times faster than `rng.integers`; MultiRoom samples hundreds."""
        return low + int(self.rng.random() * (high - low))

    def _free(self, board: np.ndarray, x: int, y: int, width: int, height: int) -> tuple[int, int]:
        """Sample x and y of an empty cell in this rectangle, uniformly."""
        ys, xs = np.nonzero(board[y:y + height, x:x + width] == EMPTY)
        k = self._int(0, len(xs))
        return x + int(xs[k]), y + int(ys[k])
