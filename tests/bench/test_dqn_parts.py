"""The experiment of Rainbow's parts: its comparisons, the goals of its table, and its exact references."""
import json
from itertools import product

import numpy as np
import pytest

from spinup.bench.papers import dqn_parts
from spinup.bench.papers.paper import show
from tests.bench.conftest import finished_run


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Fixed numbers in place of measurements, with which each part beats its baseline; and the runs that were started.
    """
    asked, best = [], {"noisy_dqn": [0.0, 12.0, 12.0, 12.0], "vanilla_dqn": [0.0, 0.0, 0.0, 1.0]}

    def run(algorithm, subject, seed, log_dir, *flags, label=""):
        asked.append((algorithm, subject, seed, flags))
        return finished_run(log_dir / f"{algorithm}_{seed}", steps=[29, 58, 87, 116], test_return=best[algorithm])

    monkeypatch.setattr(dqn_parts, "run", run)
    monkeypatch.setattr(dqn_parts, "shares_of_left", lambda double, seed: [0.06 if double else 0.2] * 300)
    monkeypatch.setattr(dqn_parts, "updates_on_the_cliff", lambda alpha, n, seed: 2 ** n if alpha else 6 * 2 ** n)
    monkeypatch.setattr(dqn_parts, "error_of_evaluation", lambda dueling, n, seed: 0.004 if dueling else 0.003 * n)
    support = np.linspace(0, 5, 51)
    returns, mass = dqn_parts.exact_returns(dqn_parts.CHAIN, dqn_parts.GAMMA)
    near = np.bincount(np.abs(np.subtract.outer(returns, support)).argmin(1), mass, 51)
    monkeypatch.setattr(dqn_parts, "learn_distribution", lambda seed: (support, near))
    return best, asked


# Catches: a met goal although the part is worse than its baseline; a missed goal with exit code 0.
@pytest.mark.long("noisy1-False")
@pytest.mark.parametrize("noisy, met", [([0.0, 12.0, 12.0, 12.0], True), ([0.0, 0.0, 0.0, 1.0], False)])
def test_each_part_must_be_better_than_its_baseline(noisy, met, measured, tmp_path):
    measured[0]["noisy_dqn"] = noisy
    paper, folders = dqn_parts.measure((1, 2), 1, tmp_path / "runs")
    assert show("dqn-parts", paper, folders, tmp_path / "d.png", tmp_path / "d.json") == (0 if met else 1)
    saved = json.loads((tmp_path / "d.json").read_text())
    assert saved["far_end"] == {"noisy_dqn": np.mean(np.array(noisy) >= 1), "vanilla_dqn": 0.25}
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG") and len(folders) == 4
    assert {flags for *_, flags in measured[1]} == {dqn_parts.FLAGS} and len(measured[1]) == 4


# Catches: steps that are dropped or repeated; a success without a reward; an episode end that is missing.
def test_cliffwalk_has_every_action_sequence_once():
    replay, n = dqn_parts.cliffwalk(4), 4
    batch = replay.sample(np.arange(len(replay)))
    got = sorted(zip(*(x.flatten().tolist() for x in (batch.obs, batch.act, batch.rew, batch.terminated)), strict=True))
    expected = []
    for actions in product((0, 1), repeat=n):
        for state, action in enumerate(actions):
            wins = action == 1 and state == n - 1
            expected.append((float(state), action, float(wins), float(wins or action == 0)))
            if action == 0:
                break
    assert got == sorted(expected) and len(got) == 2 ** (n + 1) - 2 and batch.rew.sum() == 1


# Catches: the probabilities of another chain; a distribution that is narrower than the true one.
def test_c51_learns_the_return_distribution_of_the_stochastic_chain():
    support, p = dqn_parts.learn_distribution(0, updates=1000)
    returns, exact = dqn_parts.exact_returns(dqn_parts.CHAIN, dqn_parts.GAMMA)
    moments = [(np.dot(x, w), np.dot(np.square(x), w) - np.dot(x, w) ** 2) for x, w in ((support, p), (returns, exact))]
    discounts = 0.9 ** np.arange(5)
    assert moments[1] == pytest.approx((discounts.sum() / 2, np.square(discounts).sum() / 4))
    assert moments[0] == pytest.approx(moments[1], rel=0.1)
