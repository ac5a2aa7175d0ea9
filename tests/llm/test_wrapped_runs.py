"""Runs on wrapped tasks: their logs, the warning of `diagnose` about votes, and their checkpoints."""
import csv
from pathlib import Path

import pytest

from llm.run import Run
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.files import read_json

RUN = Path("runs/x/x_s1")
WORDS = ["--held-out", 8, "--threads", 1, "--no-tensorboard", "--preset", "none", "--exp-name", "x", "--prompts", 4,
         "--samples", 4, "--lr", 0.01]
TASK = "reverse:length=2,symbols=10"
KEPT = ["llm", "grpo", *WORDS, "--task", f"hints,step=0.05,target=0.2:length,coef=0.1,adaptive=yes,target=0.2:{TASK}",
        "--reward", "score.py:early"]


@pytest.fixture
def scored(tmp_path) -> None:
    """score.py: a reward of 0 or 1, which is 1 for some responses of any model."""
    lines = "def early(prompt, response):", "    return float(response[-1:] in list('abcde'))", ""
    (tmp_path / "score.py").write_text("\n".join(lines))


def columns(directory: Path) -> dict[str, list[float]]:
    with open(directory / "progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


# Catches: a missing `stateful` in `keep`; a state that is loaded into another wrapper.
@pytest.mark.long
def test_killed_run_resumes_with_its_hints_and_coefficient(scored, beginner, killed, cli, curve, tmp_path):
    words = [*KEPT, "--model", beginner, "--total-steps", 80, "--checkpoint-steps", 7]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    expected, found = curve(tmp_path / "whole/x/x_s1"), columns(tmp_path / "whole/x/x_s1")
    assert len({*found["reward_hint_latin"]}) > 5 and len({*found["reward_coef"]}) > 5      # the state changed
    done = killed(words, RUN, len(expected), 1, "hints")
    assert done.code == 0 and "Traceback" not in done.err
    assert curve(tmp_path / RUN) == expected
    kept = load_checkpoint(tmp_path / RUN / "checkpoint.pt")["parts"]["task"]
    assert {*kept} == {"hints", "length"}


# Catches: a reward of the wrapper, or a hint, in the held-out columns; a missing column.
def test_held_out_columns_do_not_depend_on_wrappers(beginner, cli, monkeypatch, tmp_path):
    monkeypatch.setattr(Run, "epochs", 2)
    for name, task in (("plain", TASK), ("wrapped", f"hints:format,pattern=.*:{TASK}")):
        assert cli("llm", "grpo", *WORDS, "--task", task, "--model", beginner, "--total-steps", 2, "--lr", 1e-30,
                   "--log-dir", name, "--quiet").code == 0
    plain, wrapped = (columns(tmp_path / name / "x/x_s1") for name in ("plain", "wrapped"))
    held_out = [name for name in plain if name.startswith("held_out")]
    assert {name: wrapped[name] for name in held_out} == {name: plain[name] for name in held_out}
    assert wrapped["reward_format"] == [1, 1] and wrapped["reward"][0] >= 0.1
    assert wrapped["held_out_reward_right"] == plain["held_out_accuracy"]


# Catches: a share of right majority answers that is ignored; a command that reads only the last row.
def test_diagnose_explains_why_votes_fail(beginner, cli, tmp_path):
    done = cli("llm", "grpo", *WORDS, "--task", f"vote:{TASK}", "--model", beginner, "--total-steps", 4)
    assert done.code == 0 and "so `vote:` rewards a wrong answer to the other" in done.out
    said = cli("llm", "diagnose", RUN)
    assert said.code == 0 and "step 1: the most common answer is right for only" in said.out
    assert said.out.count("the most common answer") == 1
    found = columns(tmp_path / RUN)                                       # the reward is the share of the majority
    assert found["reward"] == pytest.approx(found["reward_agreement"]) and min(found["reward"]) < 1
    plain = cli("llm", "grpo", *WORDS[:-2], "--lr", 1e-5, "--exp-name", "y", "--task", TASK, "--model", beginner,
                "--total-steps", 2)
    assert plain.code == 0 and "the most common answer" not in cli("llm", "diagnose", "runs/y/y_s1").out
    (tmp_path / "classic").mkdir()
    assert cli("llm", "diagnose", "classic").code == 2


# Catches: an initial policy that is trained again for each wrapper.
@pytest.mark.long
def test_wrapped_tasks_share_the_initial_policy_of_their_task(cli, tmp_path):
    words = ["--layers", 1, "--width", 16, "--heads", 2, "--total-steps", 1, "--sft-accuracy", 0.01, "--quiet"]
    for name, task in (("a", f"length:vote:{TASK}"), ("b", TASK)):
        assert cli("llm", "grpo", *WORDS[:-2], *words, "--task", task, "--exp-name", name).code == 0
    assert read_json(tmp_path / "runs/a/a_s1/config.json")["start"] == read_json(
        tmp_path / "runs/b/b_s1/config.json")["start"]
    assert len(list((tmp_path / "runs").glob("start_*"))) == 1
