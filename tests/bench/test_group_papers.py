"""The experiments of GRPO's losses and of Magistral: their runs, and the goals of their tables."""
import json

import pytest

from spinup.bench.papers import losses, magistral
from spinup.bench.papers.paper import show
from spinup.errors import UserError
from tests.bench.conftest import finished_run

CURVE = {"steps": [1, 2], "held_out_greedy": [0.2, 0.9], "held_out_reward": [0.2, 0.8], "entropy": [1.0, 0.4],
         "length": [7.0, 7.0], "kl": [0.0, 0.1], "clip_fraction": [0.0, 0.2], "ratio_min": [0.5, 0.5],
         "ratio_max": [2.0, 2.0]}


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Replacements for the runs of both experiments: accuracies by (task, method), entropies by kind, and the arguments
    of each run that was started."""
    ends, entropies, asked = {}, {}, []

    def run(algorithm, subject, seed, log_dir, *flags, label=""):
        method = algorithm.removeprefix("llm ")
        asked.append((method, subject, seed, label, flags))
        if "smollm2" in flags and "smollm2" not in ends:
            raise UserError("`spinup llm grpo` failed: spinup: the model smollm2 is not on this machine; type: ...")
        columns = {**CURVE, "held_out_accuracy": [0.3, ends.get((subject, method), 0.9)],
                   "entropy": [1.0, entropies.get(label, 0.4)]}
        return finished_run(log_dir / f"{method}_{subject}_{label}_{seed}", **columns)

    def reached(folder):
        method, task, *_ = (*folder.name.split("_"), "")                  # of an initial policy: "start"
        return ends.get((task, method), 0.9)

    for experiment in losses, magistral:
        monkeypatch.setattr(experiment, "run", run)
        monkeypatch.setattr(experiment, "accuracy", reached)
    return ends, entropies, asked


# Catches: a goal for GRPO alone; a comparison with another task, or between seeds in place of methods.
@pytest.mark.parametrize("countdown, met", [(0.46, True), (0.44, False)])
def test_each_loss_must_be_as_good_as_that_of_grpo(countdown, met, trained, tmp_path, capsys):
    trained[0].update({("countdown", m): 0.475 for m in losses.ALL} | {("countdown", "gspo"): countdown})
    paper, folders = losses.measure((1, 2), 1, tmp_path / "runs")
    assert show("losses", paper, folders, tmp_path / "x.png", tmp_path / "x.json") == (0 if met else 1)
    assert "SmolLM2-135M is left out: the model is not on this machine; type: spinup llm fetch smollm2\n" in (
        capsys.readouterr().out)
    saved = json.loads((tmp_path / "x.json").read_text())
    assert saved["accuracy"]["countdown"]["gspo"] == [countdown] * 2 and saved["sentence"] == {}
    assert len(folders) == 20 and (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


# Catches: one gradient step per batch, with which all losses are the same; another number of updates for one method; a
# second seed of the large model; the accuracy of GRPO itself as the goal.
@pytest.mark.parametrize("sapo, met", [(0.61, True), (0.59, False)])
def test_large_model_has_as_many_updates_with_every_method(sapo, met, trained, tmp_path):
    trained[0].update({"smollm2": 1, ("sentence", "grpo"): 0.7, ("sentence", "sapo"): sapo})
    paper, folders = losses.measure((3, 4), 1, tmp_path / "runs")
    assert show("losses", paper, folders, tmp_path / "x.png", tmp_path / "x.json") == (0 if met else 1)
    words = {method: flags for method, task, seed, _, flags in trained[2] if task == "sentence" and seed == 3}
    assert words.keys() == losses.ALL.keys() and sum(job[1] == "sentence" for job in trained[2]) == 7
    equal = ("--model", "smollm2", *losses.EQUAL)
    assert {flags for method, flags in words.items() if method != "rloo"} == {(*equal, "--minibatches", "2")}
    assert words["rloo"] == equal and "--total-steps" in equal             # rloo has no preset for this task
    small = {flags for _, task, _, label, flags in trained[2] if task == "reverse" and label != "gspo"}
    assert small == {(*losses.SMALL, "--minibatches", "4")}


# Catches: an error of a run that counts as a missing model.
def test_other_errors_of_the_large_model_are_reported(trained, tmp_path, monkeypatch):
    def fails(*args, label=""):
        raise UserError("`spinup llm grpo` failed: spinup: there is not enough memory")
    monkeypatch.setattr(losses, "run", fails)
    with pytest.raises(UserError, match="not enough memory"):
        losses.real(1, tmp_path)


# Catches: an entropy that includes the first rows; an inverted ratio; an ablation of two settings.
@pytest.mark.parametrize("entropy, met", [(0.16, True), (0.14, False)])
def test_wider_clip_range_must_keep_the_entropy(entropy, met, trained, tmp_path):
    trained[1].update(magistral=entropy, clip=0.1)
    paper, folders = magistral.measure((1, 2), 1, tmp_path / "runs")
    assert show("magistral", paper, folders, tmp_path / "x.png", tmp_path / "x.json") == (0 if met else 1)
    saved = json.loads((tmp_path / "x.json").read_text())
    assert saved["entropy"]["magistral"] == [entropy] * 2 and set(saved["curves"]) == set(magistral.KINDS)
    flags = {label: flags[len(magistral.BASE):] for _, _, _, label, flags in trained[2]}
    assert flags["magistral"] == () and all(len(flags[kind]) == 2 for kind in ("clip", "kl", "groups", "unlimited"))
