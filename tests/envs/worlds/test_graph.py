"""The random graph: its shortest paths, compared with another algorithm, and its episodes."""
import numpy as np

from spinup.envs.make import make
from spinup.envs.worlds.graph import LIMIT, NODES, connected_graph


# Breadth-first search over the moves. Catches: an edge in one direction only; a distance to another goal.
def test_distances_match_a_breadth_first_search():
    moves, distances = connected_graph()
    edges = {(i, int(j)) for i in range(NODES) for j in moves[i]}
    assert all((j, i) in edges and i != j for i, j in edges)
    found, layer, depth = {0: 0}, {0}, 0
    while layer:
        depth += 1
        layer = {j for i in layer for j in moves[i].tolist()} - {*found}
        found |= dict.fromkeys(layer, depth)
    assert [found[i] for i in range(NODES)] == distances.tolist() and distances.max() > 4


# Catches: an episode that continues at the goal, or is longer than ten steps; a failed walk without its penalty; a
# final observation of the next episode; a state that is not saved.
def test_episodes_end_at_the_goal_or_after_ten_steps():
    envs, rng = make("RandomGraph-v0", 8, 0), np.random.default_rng(0)
    moves, before, state, ends = envs.moves, envs.reset().argmax(1), None, {True: 0, False: 0}
    assert (before != 0).all()
    for t in range(60):
        action, length = rng.integers(0, moves.shape[1], 8), envs.episode_length.copy()
        if t == 40:
            state = envs.state_dict(), action
        step = envs.step(action)
        if t == 40:
            kept = step.obs.copy()
        over = step.terminated | step.truncated
        reached = (step.final_obs if over.any() else step.obs).argmax(1)
        reached = np.where(over, reached, step.obs.argmax(1))
        assert (reached == moves[before, action]).all() and not step.truncated.any()
        assert (step.terminated == ((reached == 0) | (length == 9))).all()
        assert (step.reward == np.where((reached != 0) & (length == 9), -11, -1)).all()
        for node in reached[over]:
            ends[bool(node == 0)] += 1
        before = step.obs.argmax(1)
        assert (before != 0).all()
    assert min(ends.values()) > 3 and max(n for _, n in envs.take_finished()) == LIMIT
    again = make("RandomGraph-v0", 8, 5)
    again.reset()
    again.load_state_dict(state[0])
    assert (again.step(state[1]).obs == kept).all()
