"""The experiment of proofs: the goals of its table, comparisons at equal tokens, and its searches."""
import json

import pytest

from spinup.bench.papers import proofs
from spinup.bench.papers.paper import show
from tests.bench.conftest import finished_run


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """Fixed results of the searches with initial and trained policies, and the commands that were started."""
    shares, asked = {"start": 0.2, "end": 0.4, "repair": 0.1, "attempts": 0.05, "lemmas": 0.3, "best": 0.06,
                     "long": 0.0}, []

    def run(algorithm, subject, seed, log_dir, *flags, label=""):
        asked.append((algorithm, subject, seed))
        return finished_run(log_dir / subject.replace(":", "-") / f"end_{seed}",
                            about={"start": str(tmp_path / f"start_{seed}")})

    def search(folder, task, how, samples, problems):
        asked.append((folder.name, task, how, samples))
        whole = shares[folder.name.rpartition("_")[0]]

        def rows(name, most, gain, cost):
            return [{"search": name, "attempts": k, "solved": whole + gain * (k > 1), "tokens": cost * k}
                    for k in (2 ** i for i in range(most.bit_length()))]
        if how == "repair":
            return rows("attempts", 2 * samples, shares["attempts"], 10.0) + rows("repair", samples, shares[how], 15.0)
        return rows(how, samples, shares["long" if task == proofs.LONG and how == "best" else how], 10.0)

    monkeypatch.setattr(proofs, "run", run)
    monkeypatch.setattr(proofs, "search", search)
    return shares, asked


# Catches: a met goal although its comparison is lost; equal attempts in place of equal tokens; a goal for repairs with
# the initial policy.
@pytest.mark.parametrize("change, met", [({}, [True] * 5), ({"end": 0.29}, [False, True, True, True, True]),
                                         ({"repair": 0.05}, [True, False, False, True, True]),
                                         ({"best": 0.1}, [True, True, False, True, True]),
                                         ({"lemmas": 0.0}, [True, True, True, False, False])])
def test_goal_is_met_only_if_its_comparison_is_won(change, met, searched, tmp_path):
    searched[0].update(change)
    paper, folders = proofs.measure((1, 2), 1, tmp_path / "runs")
    assert [line.met for line in paper.lines if line.goal] == met and len(folders) == 4
    assert show("proofs", paper, folders, tmp_path / "p.png", tmp_path / "p.json") == (0 if all(met) else 1)
    assert json.loads((tmp_path / "p.json").read_text())["curves"]["after"][0]["lemmas"][0]["attempts"] == 1
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_solved_share_at_equal_tokens_is_interpolated():
    best = [{"tokens": 10.0, "solved": 0.1}, {"tokens": 20.0, "solved": 0.2}, {"tokens": 40.0, "solved": 0.4}]
    curves = {"lemmas": [{"tokens": 30.0, "solved": 1.0}], "long": best}
    assert proofs.at_equal_tokens(curves) == pytest.approx(0.3)


# Catches: a search of the final policy in place of the initial one; more attempts for the search with lemmas.
def test_both_policies_get_the_same_searches(searched, tmp_path):
    proofs.measure((3,), 1, tmp_path / "runs")
    assert searched[1][:2] == [("llm grpo", "proofs", 3), ("llm grpo", "proofs:turns=2", 3)]
    searches = searched[1][2:]
    of = {name: {job[1:] for job in searches if job[0] == name} for name in ("start_3", "end_3")}
    assert of["start_3"] == of["end_3"] and len(of["end_3"]) == 4
    plain = {task: samples for task, how, samples in of["end_3"] if how == "best"}
    assert plain == {proofs.TASK: 2 * proofs.ATTEMPTS, proofs.LONG: 2 * proofs.LONG_ATTEMPTS}
