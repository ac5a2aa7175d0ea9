"""MiniGrid's door-and-key and many-room grids in numpy, and a grid with a noisy TV: N copies in one array.

Rules, rewards, time limits and views are those of MiniGrid 3.2 (Chevalier-Boisvert et al. 2023), and a test steps each
beside the original. Layouts are drawn from the same distribution, but not from the same random numbers. The observation
is the agent's own view, 7 x 7 cells of which it stands in the middle of the last row, without what is behind walls and
closed doors: one-hot, as `OneHotPartialObsWrapper` gives it, in one row of 980 numbers.
"""
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import TransformObservation

from spinup.envs.state import load_rng, save_rng
from spinup.envs.vector import Step, VectorEnv
from spinup.errors import UserError

# A cell is one number, which stands for MiniGrid's three: what is there, its colour and, of a door, its state.
KINDS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
STATES = ("open", "closed", "locked")
CODES = len(KINDS) * len(COLOURS) * len(STATES)
KIND, COLOUR, STATE = np.unravel_index(np.arange(CODES), (len(KINDS), len(COLOURS), len(STATES)))


def code(kind: str, colour: str = "red", state: str = "open") -> int:
    """The number of a cell; red and open stand for none, as in MiniGrid."""
    return (KINDS.index(kind) * len(COLOURS) + COLOURS.index(colour)) * len(STATES) + STATES.index(state)


def _is(*kinds: str) -> np.ndarray:
    """Which codes are of these kinds: `[CODES]` bool."""
    return np.isin(KIND, [KINDS.index(kind) for kind in kinds])


EMPTY, WALL, GOAL = code("empty"), code("wall", "grey"), code("goal", "green")
TV = code("agent")                           # no other cell holds an agent: where this one is, a picture is drawn
PICTURES = np.linspace(EMPTY, CODES - 1, 12).astype(np.uint8)         # twelve things as unlike as can be

# What holds of a cell, by its code.
ONE_HOT = np.concatenate([np.eye(n, dtype=np.float32)[part] for n, part in
                          ((len(KINDS), KIND), (len(COLOURS), COLOUR), (len(STATES), STATE))], axis=1)
LOCKED = _is("door") & (STATE == 2)
SHUT = _is("door") & (STATE > 0)
IS_KEY, IS_GOAL = _is("key"), _is("goal")
WALKABLE = _is("empty", "floor", "goal", "door") & ~SHUT
CLEAR = ~_is("wall", "agent") & ~SHUT                                 # one sees what is behind it
KEY_FOR = (code("key") + len(STATES) * COLOUR).astype(np.uint8)
TOGGLED = (np.arange(CODES) + np.where(_is("door"), np.array((1, -1, -2))[STATE], 0)).astype(np.uint8)

FORWARD, PICKUP, DROP, TOGGLE = 2, 3, 4, 5                            # 0 and 1 turn left and right, 6 does nothing
TURN = np.array((-1, 1, 0, 0, 0, 0, 0))
SIZE, MIDDLE = 7, 3                                                   # of the view
REACH = SIZE - 1                                                      # walls around a grid, that no view leaves it


def _spread_light() -> tuple[np.ndarray, np.ndarray]:
    """How sight spreads through a row of a view: tables `[128, 128]`, by the cells lit so far and the clear ones.

    Both are given, and returned, as bits. Returned: the cells of the row that are lit in the end, those of the next
    row, one further from the agent. A lit clear cell lights its neighbours in either.
    """
    lit, clear = ([(bits >> i) & 1 for i in range(SIZE)] for bits in np.indices((1 << SIZE, 1 << SIZE)))
    ahead = [np.zeros_like(cell) for cell in lit]
    for i, side in [*((i, i + 1) for i in range(SIZE - 1)), *((i, i - 1) for i in range(SIZE - 1, 0, -1))]:
        through = lit[i] & clear[i]
        for cell in (lit[side], ahead[side], ahead[i]):
            cell |= through
    in_bits = [sum(cell << i for i, cell in enumerate(row)).astype(np.uint8) for row in (lit, ahead)]
    return in_bits[0], in_bits[1]


LIT, AHEAD = _spread_light()


class Grid(VectorEnv):
    """What all grids share: moving, seeing, restarting and saving. A subclass lays out its boards.

    Actions: turn left, turn right, go forward, pick up, drop, toggle (a door), do nothing.

    Args:
        limit: steps after which an episode is truncated.

    Attributes:
        board: `[N, height, width]` uint8, the cells by `code`, without the walls that are put around them.
        pos: `[N]`, where the agent stands, counted along the rows of `grid`.
        heading: `[N]`: 0 right, 1 down, 2 left, 3 up.
        carried: `[N]` uint8, the code of what is carried; EMPTY: nothing.
        finished_cells: how many distinct cells the agent stood on, of each episode that ended since `take_cells` was
            last called.
    """

    def __init__(self, width: int, height: int, limit: int, num_envs: int, seed: int):
        super().__init__(num_envs)
        self.observation_space = Box(0, 1, (SIZE * SIZE * ONE_HOT.shape[1],), np.float32)
        self.action_space = Discrete(len(TURN))
        self.limit, self.rng, self.rows = limit, np.random.default_rng(seed), np.arange(num_envs)
        high, self.wide = height + 2 * REACH, width + 2 * REACH
        self.grid = np.full((num_envs, high * self.wide), WALL, np.uint8)
        self.board = self.grid.reshape(num_envs, high, self.wide)[:, REACH:-REACH, REACH:-REACH]
        self.visited = np.zeros(self.grid.shape, bool)
        self.pos, self.heading = np.zeros((2, num_envs), np.int64)
        self.carried = np.full(num_envs, EMPTY, np.uint8)
        self.finished_cells: list[int] = []
        self.ahead = np.array((1, self.wide, -1, -self.wide))         # what a step forward adds to `pos`, by heading
        column, row = np.indices((SIZE, SIZE))
        right = self.ahead[(np.arange(4) + 1) % 4]
        # from `pos` to each cell of the view: `[4, 7, 7]`, column by column as MiniGrid has them, the agent's row last
        self.window = self.ahead[:, None, None] * (SIZE - 1 - row) + right[:, None, None] * (column - MIDDLE)

    @property
    def cells(self) -> np.ndarray:
        """How many distinct cells the agent has stood on in the episode under way: `[N]` int64."""
        return np.count_nonzero(self.visited, axis=1)

    def measures(self) -> dict[str, float]:
        cells = self.take_cells()
        return {"cells": float(np.mean(cells)) if cells else np.nan}

    def take_cells(self) -> list[int]:
        """Distinct cells of the episodes that ended since the last call, in the order in which they ended."""
        finished, self.finished_cells = self.finished_cells, []
        return finished

    def _reset(self) -> np.ndarray:
        self.finished_cells.clear()
        return self._start(self.rows)

    def _start(self, rows: np.ndarray) -> np.ndarray:
        """Begin episodes in the copies `rows`; returns what they show."""
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
        steps = self.episode_length + 1                               # VectorEnv counts this step only after it
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
        """Pick up, drop and toggle what is in the cell in front. The first two swap it with what is carried."""
        free = self.carried == EMPTY
        swaps = (action == PICKUP) & IS_KEY[cell] & free | (action == DROP) & (cell == EMPTY) & ~free
        toggles = (action == TOGGLE) & (~LOCKED[cell] | (self.carried == KEY_FOR[cell]))
        self.grid[self.rows, front] = np.where(swaps, self.carried, np.where(toggles, TOGGLED[cell], cell))
        self.carried = np.where(swaps, cell, self.carried)

    def _observe(self, rows: np.ndarray) -> np.ndarray:
        """What the copies `rows` show: a new array `[n, 980]`."""
        return ONE_HOT.take(self._view(rows), axis=0).reshape(len(rows), -1)

    def _view(self, rows: np.ndarray) -> np.ndarray:
        """The codes of what the agents of `rows` see: `[n, 7, 7]`, 0 where a cell is out of sight."""
        here = rows * self.grid.shape[1] + self.pos[rows]
        codes = self.grid.reshape(-1).take(self.window[self.heading[rows]] + here[:, None, None])
        seen = self._light(codes)
        codes *= seen
        codes[:, MIDDLE, -1] = self.carried[rows]                     # not what it stands on
        return codes

    def _light(self, codes: np.ndarray) -> np.ndarray:
        """Which cells of the views `[n, 7, 7]` are in sight, 0 or 1: row after row, from the agent's on."""
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
            getattr(self, name)[:] = state[name]                      # in place: `board` shows the memory of `grid`
        self.finished_cells = [int(n) for n in state["finished_cells"]]
        load_rng(self.rng, state["rng"])

    def _lay_out(self, board: np.ndarray) -> tuple[int, int, int]:
        """Draw an episode's cells into `board`, `[height, width]` of EMPTY; returns the agent's x, y and heading."""
        raise NotImplementedError

    def _int(self, low: int, high: int) -> int:
        """From `low` to `high` - 1; in a fifth of the time of `rng.integers`, and many-room grids draw hundreds."""
        return low + int(self.rng.random() * (high - low))

    def _free(self, board: np.ndarray, x: int, y: int, width: int, height: int) -> tuple[int, int]:
        """x and y of an empty cell of this rectangle, each as likely as the others."""
        ys, xs = np.nonzero(board[y:y + height, x:x + width] == EMPTY)
        k = self._int(0, len(xs))
        return x + int(xs[k]), y + int(ys[k])


def _wall_in(board: np.ndarray) -> None:
    """Walls along the four sides."""
    board[[0, -1]] = board[:, [0, -1]] = WALL


class Empty(Grid):
    """MiniGrid-Empty: one room, from corner to corner."""

    def __init__(self, size: int, num_envs: int, seed: int):
        super().__init__(size, size, 4 * size ** 2, num_envs, seed)

    def _lay_out(self, board):
        _wall_in(board)
        board[-2, -2] = GOAL
        return 1, 1, 0

    def _light(self, codes):
        return np.ones_like(codes)                                    # MiniGrid lets one look through these walls


class DoorKey(Grid):
    """MiniGrid-DoorKey: find the key on this side of a wall, open its door and go to the goal on the other side.

    The reward, 1 - 0.9 steps / limit at the goal, is hardly ever met by chance in the larger ones.
    """

    def __init__(self, size: int, num_envs: int, seed: int):
        super().__init__(size, size, 10 * size ** 2, num_envs, seed)

    def _lay_out(self, board):
        size = len(board)
        split = self._int(2, size - 2)
        _wall_in(board)
        board[-2, -2] = GOAL
        board[:, split] = WALL
        board[self._int(1, size - 2), split] = code("door", "yellow", "locked")
        x, y = self._free(board, 0, 0, split, size)
        board[y, x] = code("key", "yellow")
        return *self._free(board, 0, 0, split, size), self._int(0, 4)


class MultiRoom(Grid):
    """MiniGrid-MultiRoom: `rooms` rooms in a row that winds, with closed doors between them, the goal in the last.

    longest: the longest side that a room may have, walls included; the shortest is 4.
    """

    width = height = 25

    def __init__(self, rooms: int, longest: int, num_envs: int, seed: int):
        super().__init__(self.width, self.height, 20 * rooms, num_envs, seed)
        self.rooms, self.longest = rooms, longest

    def _lay_out(self, board):
        while (chain := self._chain()) is None:
            pass
        colours, last = list(COLOURS), []
        for i, ((x, y, width, height), (door_x, door_y)) in enumerate(chain):
            _wall_in(board[y:y + height, x:x + width])
            if i:
                colour = colours.pop(self._int(0, len(colours)))
                colours += last                                       # two doors in a row differ
                last = [colour]
                board[door_y, door_x] = code("door", colour, "closed")
        x, y = self._free(board, *chain[-1][0])
        board[y, x] = GOAL
        return *self._free(board, *chain[0][0]), self._int(0, 4)

    def _chain(self) -> list[tuple[tuple[int, ...], tuple[int, int]]] | None:
        """Rooms (x, y, width, height), each with its entry; None if one could not be placed in 8 tries."""
        entry, wall = (self._int(0, self.width - 2), self._int(0, self.width - 2)), None
        chain, room = [], self._room(entry, wall, [])
        while room:
            chain.append((room, entry))
            if len(chain) == self.rooms:
                return chain
            x, y, width, height = room
            come_from = 2 if wall is None else wall
            others = [other for other, _ in chain[:-1]]
            for _ in range(8):
                out = [w for w in range(4) if w != come_from][self._int(0, 3)]       # right, down, left, up
                along = self._int(1, (height if out in (0, 2) else width) - 1)
                entry = [(x + width - 1, y + along), (x + along, y + height - 1), (x, y + along), (x + along, y)][out]
                wall = (out + 2) % 4
                if room := self._room(entry, wall, others):
                    break
        return None

    def _room(self, entry: tuple[int, int], wall: int | None,
              others: list[tuple[int, ...]]) -> tuple[int, ...] | None:
        """A room with its entry in this wall, or with this corner (`wall` is None); None where it does not fit."""
        x, y = entry
        width, height = self._int(4, self.longest + 1), self._int(4, self.longest + 1)
        if wall in (0, 2):
            y = self._int(y - height + 2, y)
        if wall in (1, 3):
            x = self._int(x - width + 2, x)
        x -= width - 1 if wall == 0 else 0
        y -= height - 1 if wall == 1 else 0
        # One cell more is kept free to the left and above than to the right and below, as in MiniGrid.
        if x < 0 or y < 0 or x + width > self.width or y + height >= self.height:
            return None
        apart = (x + width < ox or ox + w <= x or y + height < oy or oy + h <= y for ox, oy, w, h in others)
        return (x, y, width, height) if all(apart) else None


class NoisyTV(Grid):
    """Four rooms of 5 x 5 cells in a row, open to each other, no goal, no reward; the first has a TV for a wall.

    The TV, five cells, shows one of `PICTURES`, drawn at random in every step and whatever the agent does. Which comes
    next cannot be predicted, so an agent that is paid for the error of a prediction of pixels has found a source of
    pay that never runs dry: it comes and watches. Features that leave out what cannot be controlled (inverse dynamics)
    or that are a fixed function of the picture alone (random-network distillation) get bored with all twelve (Burda et
    al. 2018, "Large-Scale Study of Curiosity-Driven Learning" and "Exploration by Random Network Distillation").
    The TV can be seen from no other room.

    All else can be predicted from what is in view: floors tell the room, walls the direction, and no two places look
    alike. If they did, an agent would turn about in a corner that looks like another, which surprises it as well.

    An episode is truncated after 200 steps. Agents start in any cell of any room.

    Attributes:
        watching: `[N]` bool, whether the TV is in the view that `obs` shows; changed in place.
    """

    def __init__(self, num_envs: int, seed: int):
        super().__init__(13, 13, 200, num_envs, seed)
        self.watching = np.zeros(num_envs, bool)
        self.watched = self.looked = 0

    def measures(self) -> dict[str, float]:
        watched, looked = self.take_watching()
        return {**super().measures(), "watching": watched / looked if looked else np.nan}

    def take_watching(self) -> tuple[int, int]:
        """How many actions were chosen with the TV in view, and how many in all, since the last call."""
        counts, self.watched, self.looked = (self.watched, self.looked), 0, 0
        return counts

    def _lay_out(self, board):
        for line, across, along in zip((0, 6, 12), COLOURS[:3], COLOURS[3:], strict=True):
            board[line], board[:, line] = code("wall", across), code("wall", along)
        for (y, x), colour in zip(((1, 1), (1, 7), (7, 7), (7, 1)), COLOURS, strict=False):
            board[y:y + 5, x:x + 5] = code("floor", colour)
        board[[4, 6, 10], [6, 9, 6]] = EMPTY                              # ways from room to room
        board[1:6, 0] = TV
        return self._int(1, 6) + 6 * self._int(0, 2), self._int(1, 6) + 6 * self._int(0, 2), self._int(0, 4)

    def _reset(self):
        self.take_watching()
        return super()._reset()

    def _step(self, action):
        self.watched += int(np.count_nonzero(self.watching))
        self.looked += self.num_envs
        return super()._step(action)

    def _view(self, rows):
        codes = super()._view(rows)
        tv = codes == TV
        self.watching[rows] = tv.any((1, 2))
        pictures = PICTURES[self.rng.integers(0, len(PICTURES), (len(rows), 1, 1))]
        return np.where(tv, pictures, codes)

    def _save(self):
        return super()._save() | {"watching": self.watching.copy(), "counts": [self.watched, self.looked]}

    def _load(self, state):
        super()._load(state)
        self.watching[:] = state["watching"]
        self.watched, self.looked = (int(n) for n in state["counts"])


GRIDS: dict[str, Callable[[int, int], Grid]] = {
    **{f"MiniGrid-DoorKey-{n}x{n}-v0": partial(DoorKey, n) for n in (5, 6, 8, 16)},
    **{f"MiniGrid-Empty-{n}x{n}-v0": partial(Empty, n) for n in (8, 16)},
    "MiniGrid-MultiRoom-N2-S4-v0": partial(MultiRoom, 2, 4),
    "MiniGrid-MultiRoom-N4-S5-v0": partial(MultiRoom, 6, 5),              # six rooms, whatever its name says; v1 has 4
    "MiniGrid-MultiRoom-N4-S5-v1": partial(MultiRoom, 4, 5),
    "MiniGrid-MultiRoom-N6-v0": partial(MultiRoom, 6, 10),
    "NoisyTV-v0": NoisyTV}


def as_here(env: Env) -> Env:
    """MiniGrid's own environment, seen as the copies here show it; for settings they lack, and to be drawn."""
    from minigrid.wrappers import OneHotPartialObsWrapper
    space = Box(0, 1, (SIZE * SIZE * ONE_HOT.shape[1],), np.float32)
    return TransformObservation(OneHotPartialObsWrapper(env),
                                lambda obs: obs["image"].reshape(-1).astype(np.float32), space)


def _only_here(**kwargs: Any) -> Env:
    raise UserError("NoisyTV-v0 runs in this library's own copies only: it takes no settings and cannot be drawn")


gymnasium.register("NoisyTV-v0", _only_here)                              # so that it is listed, and found if misspelt
