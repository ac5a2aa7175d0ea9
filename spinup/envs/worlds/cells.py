"""The cells of a grid as numbers, their properties, and the rules of sight.

Cells, their one-hot form, what can be done to them and the rules of sight are those of MiniGrid 3.2
(Chevalier-Boisvert et al. 2023).
"""
import numpy as np

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

# Properties of a cell, by its code.
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
    """Tables of the spread of light through a row of a view, `[128, 128]`, by the cells lit so far and the clear ones.

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
