"""The experiments with other rewards, ttrl, length and lang: their runs, and the goals of their tables."""
import json

import pytest

from spinup.bench.papers import lang, length, paper, ttrl
from spinup.bench.papers.paper import show
from tests.bench.conftest import finished_run

COLUMNS = ("held_out_accuracy", "reward", "reward_majority_right", "reward_agreement", "length", "reward_hint_latin",
           "reward_hint_greek", "held_out_reward_language")


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Replacements for real runs, with these last rows by label; and the commands that were started."""
    rows, asked = {}, []

    def run(algorithm, subject, seed, log_dir, *flags, label=""):
        asked.append((algorithm, subject, seed, label, flags))
        first = {**dict.fromkeys(COLUMNS, 0.5), "length": 20.0}
        columns = {name: [x, rows.get(label, {}).get(name, x)] for name, x in first.items()}
        return finished_run(log_dir / f"{label}_{seed}", 12.0, {"start": str(tmp_path / f"start_{label}")},
                            steps=[1, 2], **columns)

    for module in (ttrl, length, lang):
        monkeypatch.setattr(module, "run", run)
    return rows, asked


def shown(name, module, seeds, tmp_path):
    paper, folders = module.measure(seeds, 1, tmp_path / "runs")
    code = show(name, paper, folders, tmp_path / "x.png", tmp_path / "x.json")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    saved = json.loads((tmp_path / "x.json").read_text())
    return code, {line["what"]: line for line in saved["lines"]}, saved


# Catches: the mean over seeds in place of the lowest seed; a met goal although the accuracy rises with 80 % noise; a
# diagnosis of a wrong run, or of none.
@pytest.mark.parametrize(("clean", "noisy", "told", "missed"), [
    (0.96, 0.02, ["noisy"], set()),
    (0.9, 0.02, ["noisy"], {"40 % noise: accuracy after TTRL, lowest seed"}),
    (0.96, 0.2, ["noisy"], {"80 % noise: accuracy of the most likely answer, after"}),
    (0.96, 0.02, [], {"80 % noise: runs for which `spinup llm diagnose` says why"}),
    (0.96, 0.02, ["noisy", "clean"], {"80 % noise: runs for which `spinup llm diagnose` says why"})])
def test_votes_must_help_with_40_and_fail_with_80_percent_noise(clean, noisy, told, missed, trained, tmp_path,
                                                                monkeypatch):
    ends = {"clean_1": 0.99, "clean_2": clean, "noisy_1": 0.02, "noisy_2": noisy, "labels_1": 0.9, "labels_2": 0.9,
            "start_clean": 0.59, "start_noisy": 0.1}
    monkeypatch.setattr(ttrl, "accuracy", lambda folder, which="": ends[folder.name])
    monkeypatch.setattr(ttrl, "spinup", lambda *words: ttrl.WHY if words[2].split("/")[-1][:5] in told else "nothing")
    code, lines, _ = shown("ttrl", ttrl, (1, 2), tmp_path)
    assert {what for what, line in lines.items() if not line["met"]} == missed and code == bool(missed)
    assert {(job[1], job[3]) for job in trained[1]} == {("vote,on=test:modular", "clean"),
                                                    ("vote,on=test:modular:noise=0.8", "noisy"),
                                                        ("modular:noise=0.8", "labels")}


# Catches: a comparison with the tokens of the initial policy; a met goal although the penalty lowers the accuracy, or
# although the strong penalty does not collapse; settings that differ between the rewards.
@pytest.mark.parametrize(("tokens", "reached", "strong", "code"), [
    (11.0, 0.975, 0.3, 0), (13.0, 0.975, 0.3, 1), (11.0, 0.96, 0.3, 1), (11.0, 0.975, 0.6, 1)])
def test_length_control_saves_tokens_at_equal_accuracy(tokens, reached, strong, code, trained, tmp_path, monkeypatch):
    ends = {"grpo": 0.98, "length": reached, "adaptive": 0.5, "strong": strong, "trained": 0.5}
    monkeypatch.setattr(length, "accuracy", lambda folder: ends[folder.name.partition("_")[0]])
    trained[0].update({"length": {"length": tokens}, "strong": {"length": 3.0}})
    found, _, saved = shown("length", length, (1,), tmp_path)
    assert found == code and saved["tokens"]["length"] == [tokens]
    assert len(trained[1]) == 5 and len({job[4] for job in trained[1][1:]}) == 1


# Catches: an evaluation with hints, on the Latin prompts, or of answers in either alphabet; a goal for another run.
@pytest.mark.parametrize(("right", "greek", "code"), [(0.5, 0.96, 0), (0.39, 0.96, 1), (0.5, 0.94, 1)])
def test_hints_must_help_on_greek_prompts_without_hints(right, greek, code, trained, tmp_path, monkeypatch):
    asked = []

    def spinup(*words):
        asked.append(words)
        strict, hints = "rule=strict" in words[4], words[2].split("/")[-1].startswith("hints")
        value = (right if hints else 0.3) if strict else (greek if hints else 0.4)
        return json.dumps({"held_out_accuracy": value})

    monkeypatch.setattr(paper, "spinup", spinup)
    found, lines, saved = shown("lang", lang, (1,), tmp_path)
    assert found == code and saved["right"]["hints"] == [right] and saved["greek"]["grpo"] == [0.4]
    assert {words[4] for words in asked} == {"two_scripts:script=greek,rule=strict",
                                             "two_scripts:script=greek,rule=script"}
    assert lines["accuracy in Greek by hints, beyond GRPO"]["ours"] == pytest.approx(right - 0.3)
