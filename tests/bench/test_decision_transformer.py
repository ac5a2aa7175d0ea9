"""The experiment of the decision transformer: the goals of its table, and the lengths of its paths."""
import json
from types import SimpleNamespace

import numpy as np
import pytest

from spinup.bench.papers import decision_transformer
from spinup.bench.papers.decision_transformer import lengths
from spinup.bench.papers.paper import show
from spinup.envs.worlds.graph import LIMIT, NODES, RandomGraph
from tests.bench.conftest import finished_run


@pytest.fixture
def folder(tmp_path):
    return finished_run(tmp_path, 60.0)


# Catches: the mean over seeds in place of the lowest seed; the better one of the two environments; a met goal although
# behaviour cloning is better; the minutes of a single run.
@pytest.mark.parametrize(("longer", "correlation", "best", "runs", "missed"), [
    (0, 0.9, 480.0, 4, set()),
    (1, 0.9, 480.0, 4, {"random graph: shortest paths found, of 19; lowest seed"}),
    (0, 0.7, 480.0, 4, {"Pendulum-v1: correlation of requested and reached return, lowest seed"}),
    (0, 0.9, 390.0, 4, {"Pendulum-v1: that minus behaviour cloning, lowest seed"}),
    (0, 0.9, 480.0, 5, {"minutes of training, one seed, slowest"})])
def test_every_seed_must_meet_every_goal(longer, correlation, best, runs, missed, folder, monkeypatch):
    def on_graph(seed, log_dir):
        shortest = np.arange(1, NODES)
        return {"folder": folder, "folders": [folder], "shortest": shortest, "share": 0.1,
                "reached": shortest + longer * (seed == 2) * (shortest == 19)}

    def on_mixed_data(env, seed, log_dir):
        hard = env == "Pendulum-v1" and seed == 2
        return {"folder": folder, "folders": [folder] * runs, "requests": [0.0, 500.0], "returns": [10.0, 490.0],
                "correlation": correlation if hard else 0.95, "best": best if hard else 450.0, "cloned": 400.0,
                "data": 100.0}

    monkeypatch.setattr(decision_transformer, "on_graph", on_graph)
    monkeypatch.setattr(decision_transformer, "on_mixed_data", on_mixed_data)
    paper, folders = decision_transformer.measure((1, 2), 1, folder / "runs")
    code = show("decision-transformer", paper, folders, folder / "x.png", folder / "x.json")
    saved = json.loads((folder / "x.json").read_text())
    assert {line["what"] for line in saved["lines"] if not line["met"]} == missed and code == bool(missed)
    assert saved["graph"][0]["shortest"] == list(range(1, NODES)) and len(saved["CartPole-v1"]) == 2
    assert (folder / "x.png").read_bytes().startswith(b"\x89PNG")


# Catches: a path that is measured from another node, or beyond its end; a second episode that is counted.
@pytest.mark.parametrize("right", [True, False])
def test_lengths_are_those_of_the_first_path_from_each_node(right):
    graph, requests = RandomGraph(1, 0), []

    def act(obs):
        requests.append(policy.module.request.tolist())
        closer = graph.distances[graph.moves[obs[:, :NODES].argmax(1)]]
        return closer.argmin(1) if right else closer.argmax(1)

    policy = SimpleNamespace(act_batch=act, module=SimpleNamespace(request=None))
    found = lengths(policy, [-float(i) for i in range(NODES - 1)])
    assert requests[0] == [-float(i) for i in range(NODES - 1)]
    assert found.tolist() == graph.distances[1:].tolist() if right else (found == LIMIT).sum() > 10
