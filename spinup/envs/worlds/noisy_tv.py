"""Grid with a noisy TV, which traps agents with an intrinsic reward for prediction errors."""
import numpy as np

from spinup.envs.worlds.cells import CODES, COLOURS, EMPTY, code
from spinup.envs.worlds.grids import Grid

TV = code("agent")                           # no other cell has this code; views show a picture in its place
PICTURES = np.linspace(EMPTY, CODES - 1, 12).astype(np.uint8)         # twelve very different cells


class NoisyTV(Grid):
    """Four connected rooms of 5 x 5 cells, with no goal and no reward. One wall of the first room is a TV.

    The TV has five cells and shows one of `PICTURES`, sampled at random in every step. The agent has no influence on
    the picture and cannot predict the next one. So an intrinsic reward for prediction errors in pixels never decays at
    the TV, and the agent stays and watches. With two kinds of features, the intrinsic reward of all twelve pictures
    does decay: features without the parts that the agent cannot control (inverse dynamics), and a fixed function of
    only the picture (random network distillation). See Burda et al. 2018, "Large-Scale Study of Curiosity-Driven
    Learning" and "Exploration by Random Network Distillation". The TV is not visible from the other rooms.

    Everything else can be predicted from the view: the colour of the floor shows the room, the colour of the walls
    shows the direction, and no two places look alike. Otherwise prediction errors would remain there too.

    An episode is truncated after 200 steps. Agents start in a random cell of a random room.

    Attributes:
        watching: `[N]` bool, whether the TV is in the view of `obs`; changed in place.
    """

    MEASURES = Grid.MEASURES | {"watching": "share of steps with the TV in view"}
    shown_by = ()

    def __init__(self, num_envs: int, seed: int):
        super().__init__(13, 13, 200, num_envs, seed)
        self.watching = np.zeros(num_envs, bool)
        self.watched = self.looked = 0

    def measures(self) -> dict[str, float]:
        """Return the measures of all grids, and `watching`, which is NaN if there was no step since the last call."""
        watched, looked = self.take_watching()
        return {**super().measures(), "watching": watched / looked if looked else np.nan}

    def take_watching(self) -> tuple[int, int]:
        """Return the numbers of actions with the TV in view, and of all actions, since the last call."""
        counts, self.watched, self.looked = (self.watched, self.looked), 0, 0
        return counts

    def _lay_out(self, board):
        for line, across, along in zip((0, 6, 12), COLOURS[:3], COLOURS[3:], strict=True):
            board[line], board[:, line] = code("wall", across), code("wall", along)
        for (y, x), colour in zip(((1, 1), (1, 7), (7, 7), (7, 1)), COLOURS, strict=False):
            board[y:y + 5, x:x + 5] = code("floor", colour)
        board[[4, 6, 10], [6, 9, 6]] = EMPTY                              # passages between rooms
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


WORLDS = {"NoisyTV-v0": NoisyTV}
