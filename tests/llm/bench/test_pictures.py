"""Pictures: estimates compared with enumeration, and training runs that are not repeated."""
from itertools import combinations

import numpy as np
import pytest

from llm.bench.pictures import over_optimisation, pass_at_k, unification
from llm.bench.pictures.draw import Job, train
from spinup.runs.records import finished


# Catches: subsets with replacement; ranks that start at 1; an order by the true reward (gold).
def test_best_of_n_is_the_mean_over_all_subsets(monkeypatch):
    monkeypatch.setattr(over_optimisation, "LADDER", [1, 2, 4, 7])
    proxy, gold = np.random.default_rng(0).normal(size=(2, 3, 7))
    found = over_optimisation.best_of_n(proxy, gold)
    for k, n in enumerate([1, 2, 4, 7]):
        chosen = [[(p[i], g[i]) for some in combinations(range(7), n) for i in [max(some, key=lambda j, p=p: p[j])]]
                  for p, g in zip(proxy, gold, strict=True)]
        assert (found[0][k], found[1][k]) == pytest.approx(tuple(np.mean(chosen, (0, 1))))


# Catches: a multiplication by beta in place of a division, or the reverse; a pair in the wrong order; the reward of
# another response.
@pytest.mark.parametrize("name", unification.METHODS)
def test_each_method_approaches_the_optimal_policy(name, monkeypatch):
    monkeypatch.setattr(unification, "UPDATES", 250)
    curve = unification.distances((name, 0))
    assert len(curve) == 11 and curve[0] > 0.2
    assert curve[-1] < (0.15 if name.startswith("DPO") else 0.06)         # its labels have the least information


# Catches: a finished run that is repeated; folders in another order than the jobs.
def test_finished_jobs_are_not_trained_again(fork_workers, tmp_path):
    tiny = {"layers": 1, "width": 16, "heads": 2, "held_out": 8, "total_steps": 2, "preset": "none"}
    jobs = [Job("sft", "reverse:length=2,symbols=10", seed, "tiny", tmp_path, tiny) for seed in (1, 2)]
    assert not finished(jobs[0].folder)
    folders = train(jobs)
    assert folders == [tmp_path / "tiny" / f"tiny_s{seed}" for seed in (1, 2)] and all(map(finished, folders))
    before = [(folder / "result.json").read_bytes() for folder in folders]
    assert train(jobs[::-1]) == folders[::-1]
    assert [(folder / "result.json").read_bytes() for folder in folders] == before


# Catches: samples with replacement, as in 1 - (1 - c / n)^k.
def test_pass_at_k_is_the_mean_over_all_subsets():
    for n, c in ((5, 0), (5, 2), (6, 1), (6, 6)):
        right = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            assert pass_at_k.unbiased(n, c, k) == pytest.approx(np.mean([any(x) for x in combinations(right, k)]))
