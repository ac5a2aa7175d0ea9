"""A grid with a noisy TV, which traps agents that are paid for surprise."""
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env

from spinup.envs.worlds.cells import CODES, COLOURS, EMPTY, code
from spinup.envs.worlds.grids import Grid
from spinup.errors import UserError

TV = code("agent")                           # no other cell holds an agent: where this one is, a picture is drawn
PICTURES = np.linspace(EMPTY, CODES - 1, 12).astype(np.uint8)         # twelve things as unlike as can be


class NoisyTV(Grid):
    """Four rooms of 5 x 5 cells in a row, open to each other, no goal, no reward; the first has a TV for a wall.

    The TV, five cells, shows one of `PICTURES`, drawn at random in every step, whatever the agent does. The
    next picture cannot be predicted, so that an intrinsic reward for prediction errors in pixels never decays there:
    the agent stays and watches. For features that leave out what cannot be controlled (inverse dynamics), or that are a
    fixed function of the picture alone (random-network distillation), the intrinsic reward of all twelve decays (Burda
    et al. 2018, "Large-Scale Study of Curiosity-Driven Learning" and "Exploration by Random Network Distillation").
    The TV can be seen from no other room.

    All else can be predicted from the view: the colour of the floor shows the room, that of the walls the direction,
    and no two places look alike. If they did, prediction errors would remain there as well.

    An episode is truncated after 200 steps. Agents start in any cell of any room.

    Attributes:
        watching: `[N]` bool, whether the TV is in the view that `obs` shows; changed in place.
    """

    MEASURES = Grid.MEASURES | {"watching": "share of steps with the TV in view"}

    def __init__(self, num_envs: int, seed: int):
        super().__init__(13, 13, 200, num_envs, seed)
        self.watching = np.zeros(num_envs, bool)
        self.watched = self.looked = 0

    def measures(self) -> dict[str, float]:
        """Those of all grids, and `watching`, NaN before the first step since the last call."""
        watched, looked = self.take_watching()
        return {**super().measures(), "watching": watched / looked if looked else np.nan}

    def take_watching(self) -> tuple[int, int]:
        """Count the actions chosen with the TV in view, and all actions, since the last call."""
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


def _only_here(**kwargs: Any) -> Env:
    raise UserError("NoisyTV-v0 runs in this library's own copies only: it takes no settings and cannot be drawn")


gymnasium.register("NoisyTV-v0", _only_here)                              # so that it is listed, and found if misspelt
WORLDS = {"NoisyTV-v0": NoisyTV}
