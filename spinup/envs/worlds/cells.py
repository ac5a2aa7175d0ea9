"""Cells of a grid as numbers, their properties, and the visibility rules.

Cells, their one-hot form, the possible actions and the visibility rules are those of MiniGrid 3.2 (Chevalier-Boisvert
et al. 2023).
"""
import numpy as np

# A cell is one number. It encodes three numbers of MiniGrid: the kind of object, its colour and, for a door, its state.
KINDS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
STATES = ("open", "closed", "locked")
CODES = len(KINDS) * len(COLOURS) * len(STATES)
KIND, COLOUR, STATE = np.unravel_index(np.arange(CODES), (len(KINDS), len(COLOURS), len(STATES)))


def code(kind: str, colour: str = "red", state: str = "open") -> int:
    """Return the number of a cell. Red and open also mean no colour and no state, as in MiniGrid."""
    return (KINDS.index(kind) * len(COLOURS) + COLOURS.index(colour)) * len(STATES) + STATES.index(state)


def _is(*kinds: str) -> np.ndarray:
    """Mask of the codes of these kinds: `[CODES]` bool."""
    return np.isin(KIND, [KINDS.index(kind) for kind in kinds])


EMPTY, WALL, GOAL = code("empty"), code("wall", "grey"), code("goal", "green")

# Properties of a cell, by its code.
ONE_HOT = np.concatenate([np.eye(n, dtype=np.float32)[part] for n, part in
                          ((len(KINDS), KIND), (len(COLOURS), COLOUR), (len(STATES), STATE))], axis=1)
LOCKED = _is("door") & (STATE == 2)
SHUT = _is("door") & (STATE > 0)
IS_KEY, IS_GOAL = _is("key"), _is("goal")
WALKABLE = _is("empty", "floor", "goal", "door") & ~SHUT
CLEAR = ~_is("wall", "agent") & ~SHUT                                 # the cell behind it is visible
KEY_FOR = (code("key") + len(STATES) * COLOUR).astype(np.uint8)
TOGGLED = (np.arange(CODES) + np.where(_is("door"), np.array((1, -1, -2))[STATE], 0)).astype(np.uint8)

FORWARD, PICKUP, DROP, TOGGLE = 2, 3, 4, 5                            # 0 and 1 turn left and right, 6 does nothing
TURN = np.array((-1, 1, 0, 0, 0, 0, 0))
SIZE, MIDDLE = 7, 3                                                   # of the view
REACH = SIZE - 1                                                      # padding walls, to keep views inside


def _spread_light() -> tuple[np.ndarray, np.ndarray]:
    """Build tables `[128, 128]` of how light spreads through a row of a view. The indices are the lit cells and the
    clear cells of the row, as bits.

    The first table has all lit cells of the row after the spread, as bits. The second one has the lit cells of the next
    row, further from the agent. A lit clear cell lights its neighbours in both rows.
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
