"""MiniGrid's Empty, DoorKey and MultiRoom grids in numpy.

A test compares each grid with the original, MiniGrid 3.2 (Chevalier-Boisvert et al. 2023). Layouts have the same
distribution, but use other random numbers.
"""
from functools import partial

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box
from gymnasium.wrappers import TransformObservation

from spinup.envs.worlds.cells import COLOURS, GOAL, ONE_HOT, SIZE, WALL, code
from spinup.envs.worlds.grids import Grid


def _wall_in(board: np.ndarray) -> None:
    """Put walls along the four sides."""
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
        return np.ones_like(codes)                                    # in MiniGrid these walls are transparent


class DoorKey(Grid):
    """MiniGrid-DoorKey: find the key on one side of a wall, open its door and go to the goal on the other side.

    The reward is 1 - 0.9 steps / limit at the goal. In larger grids a random policy almost never gets it.
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
    """MiniGrid-MultiRoom: a winding row of `rooms` rooms, with closed doors between them and the goal in the last room.

    longest: longest side of a room, with its walls; the shortest is 4.
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
                colours += last                                       # successive doors differ
                last = [colour]
                board[door_y, door_x] = code("door", colour, "closed")
        x, y = self._free(board, *chain[-1][0])
        board[y, x] = GOAL
        return *self._free(board, *chain[0][0]), self._int(0, 4)

    def _chain(self) -> list[tuple[tuple[int, ...], tuple[int, int]]] | None:
        """Sample rooms (x, y, width, height), each with its entry; None if one could not be placed in 8 tries."""
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
        """Sample a room with its entry in this wall, or at this corner if `wall` is None. None if it does not fit."""
        x, y = entry
        width, height = self._int(4, self.longest + 1), self._int(4, self.longest + 1)
        if wall in (0, 2):
            y = self._int(y - height + 2, y)
        if wall in (1, 3):
            x = self._int(x - width + 2, x)
        x -= width - 1 if wall == 0 else 0
        y -= height - 1 if wall == 1 else 0
        # As in MiniGrid, one more cell stays free to the left and above than to the right and below.
        if x < 0 or y < 0 or x + width > self.width or y + height >= self.height:
            return None
        apart = (x + width < ox or ox + w <= x or y + height < oy or oy + h <= y for ox, oy, w, h in others)
        return (x, y, width, height) if all(apart) else None


def as_here(env: Env) -> Env:
    """Wrap MiniGrid's environment to have the observations of this module; for drawing, and for its other settings."""
    from minigrid.wrappers import OneHotPartialObsWrapper
    space = Box(0, 1, (SIZE * SIZE * ONE_HOT.shape[1],), np.float32)
    return TransformObservation(OneHotPartialObsWrapper(env),
                                lambda obs: obs["image"].reshape(-1).astype(np.float32), space)


WORLDS = {
    **{f"MiniGrid-DoorKey-{n}x{n}-v0": partial(DoorKey, n) for n in (5, 6, 8, 16)},
    **{f"MiniGrid-Empty-{n}x{n}-v0": partial(Empty, n) for n in (8, 16)},
    "MiniGrid-MultiRoom-N2-S4-v0": partial(MultiRoom, 2, 4),
    "MiniGrid-MultiRoom-N4-S5-v0": partial(MultiRoom, 6, 5),              # six rooms, despite its name; v1 has 4
    "MiniGrid-MultiRoom-N4-S5-v1": partial(MultiRoom, 4, 5),
    "MiniGrid-MultiRoom-N6-v0": partial(MultiRoom, 6, 10)}
