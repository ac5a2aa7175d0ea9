"""Pictures: estimates compared with enumeration, and the checks before training."""
from contextlib import suppress
from itertools import combinations

import numpy as np
import pytest

from llm.bench.pictures import over_optimisation, pass_at_k, unification
from llm.bench.pictures.draw import draw
from spinup.bench import process
from spinup.errors import UserError
from spinup.registry import find
from spinup.runs.files import write_json
from spinup.runs.flags import from_flags
from spinup.runs.records import config_to_json


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


# Catches: a finished run with other settings in a picture; settings that a method does not have; a run without the
# initial policy of its seed.
@pytest.mark.parametrize(("name", "run"), [
    ("pass-at-k", "pass_at_k"), ("beyond-imitation", "beyond_imitation"), ("frontier", "taste_sft"),
    ("frontier", "taste_reward_2000"), ("over-optimisation", "taste_ppo_1000")])
def test_run_with_other_settings_is_refused(name, run, tmp_path, monkeypatch):
    def train(command, method, *words):
        if command == "resume":
            return
        config, _ = from_flags(find(f"llm {method}"), list(words))
        begun = {"algorithm": f"llm {method}", "config": config_to_json(config)}
        if config.exp_name == run:
            begun["config"]["total_steps"] = 7                            # an earlier version of the picture, say
        folder = tmp_path / config.exp_name / f"{config.exp_name}_s1"
        folder.mkdir(parents=True)
        write_json(folder / "config.json", begun)

    monkeypatch.setattr(process, "spinup", train)
    monkeypatch.setattr(over_optimisation, "read_progress", dict)
    for end in (suppress(Exception), pytest.raises(UserError, match="with total_steps 7")):   # first: nothing to plot
        with end:
            draw(name, seeds=[1], log_dir=tmp_path, out=tmp_path / "x.png")


# Catches: a file that cannot be written, noticed only after the training.
@pytest.mark.parametrize("kind", ["png", "svg", "json"])
def test_each_file_of_a_picture_is_checked_first(kind, tmp_path):
    (tmp_path / f"x.{kind}").mkdir()
    with pytest.raises(UserError, match=rf"x\.{kind} cannot be written"):
        draw("pass-at-k", seeds=[1], log_dir=tmp_path, out=tmp_path / "x.png")
    assert len(list(tmp_path.iterdir())) == 1


# Catches: samples with replacement, as in 1 - (1 - c / n)^k.
def test_pass_at_k_is_the_mean_over_all_subsets():
    for n, c in ((5, 0), (5, 2), (6, 1), (6, 6)):
        right = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            assert pass_at_k.unbiased(n, c, k) == pytest.approx(np.mean([any(x) for x in combinations(right, k)]))
