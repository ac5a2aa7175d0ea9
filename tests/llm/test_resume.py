"""A stopped run of a language model resumes with the same curve, also if it was stopped during the SFT before it."""
import signal
from pathlib import Path

import pytest

import llm
from llm.algos import sft
from llm.run import Run
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.files import read_json

RUN = Path("runs/x/x_s1")
WORDS = ["--task", "reverse:length=2,symbols=10", "--held-out", 8, "--threads", 1, "--no-tensorboard", "--preset",
         "none", "--exp-name", "x"]
LEARNING = [*WORDS, "--prompts", 4, "--samples", 4, "--reward", "score.py:early", "--lr", 0.01]
# A row covers two updates, and a checkpoint seven, so every other checkpoint falls within a row.
LONG = ["--total-steps", 80, "--checkpoint-steps", 7]
KILLED = {                                                                # words of the command, and number of kills
    "sft": (["sft", *WORDS, "--batch", 8, "--demonstrations", 50], 1),
    "reinforce": (["reinforce", *LEARNING], 1),                           # which has a running mean
    "grpo": (["grpo", *LEARNING, "--epochs", 2, "--minibatches", 2, "--kl-coef", 0.1], 1)}


@pytest.fixture
def scored(tmp_path) -> None:
    """score.py: a reward that is above 0 for some responses of any model."""
    (tmp_path / "score.py").write_text(
        "def early(prompt, response):\n    return sum(letter in 'abcde' for letter in response) / 3\n")


# Catches: `sums` (sft), `expected` (reinforce), `generator` or the optimiser (grpo) missing in the checkpoint; a
# progress.csv that is not cut (sft).
@pytest.mark.long
@pytest.mark.parametrize("name", KILLED)
def test_killed_run_resumes_with_the_same_curve(name, scored, beginner, killed, cli,
                                                curve, tmp_path):
    words, kills = KILLED[name]
    words = ["llm", *words, *LONG, "--model", beginner]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    expected = curve(tmp_path / "whole/x/x_s1")
    assert len(expected) == 41 and len({tuple(row[2:]) for row in expected}) > 30
    done = killed(words, RUN, len(expected), kills, name)
    assert done.code == 0 and "Traceback" not in done.err
    assert curve(tmp_path / RUN) == expected
    assert read_json(tmp_path / RUN / "result.json")["status"] == "finished"
    finished = cli("resume", RUN)
    assert (finished.code, finished.out) == (0, f"{RUN} is finished: 80 steps; `spinup watch {RUN}` shows it\n"
                                                f"`spinup resume {RUN} --total-steps 160` extends it\n")


# Catches: an initial policy whose SFT starts from the beginning again; an initial policy that is used before its SFT
# has ended.
@pytest.mark.long
def test_command_killed_during_sft_of_its_initial_policy_resumes(start, rows, wait_for, cli, curve, tmp_path):
    words = ["llm", "grpo", *WORDS, "--layers", 1, "--width", 16, "--heads", 2, "--prompts", 4, "--samples", 4,
             "--total-steps", 3, "--sft-accuracy", 0.12, "--seed", 1]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    (whole,) = (tmp_path / "whole").glob("start_*/*")
    steps = read_json(whole / "result.json")["steps"]
    assert 75 < steps < 1000                                              # SFT stopped at the accuracy, but not at once
    directory, process = tmp_path / "runs" / whole.relative_to(tmp_path / "whole"), start(*words)
    wait_for(lambda: (directory / "checkpoint.pt").exists(), process)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / RUN).exists() and not (directory / "result.json").exists()
    at = load_checkpoint(directory / "checkpoint.pt")["steps"]
    done = cli(*words)
    assert done.code == 0 and f"resuming at step {at}\n" in done.out
    assert curve(directory) == curve(whole) and curve(tmp_path / RUN) == curve(tmp_path / "whole/x/x_s1")


# Catches: training on rewards that starts from an initial policy with interrupted SFT.
@pytest.mark.long
def test_ctrl_c_during_sft_of_the_initial_policy_prints_how_to_resume(cli, curve, monkeypatch, tmp_path):
    words = ["llm", "rloo", *WORDS, "--layers", 1, "--width", 16, "--heads", 2, "--prompts", 4, "--samples", 4,
             "--total-steps", 3, "--sft-accuracy", 0.12]
    backward, left = Run.backward, [30]

    def press(run, *args, **whole):
        left[0] -= 1
        if left[0] == 0:
            signal.raise_signal(signal.SIGINT)
        return backward(run, *args, **whole)

    monkeypatch.setattr(Run, "backward", press)
    done = cli(*words)
    assert done.code == 130 and "Traceback" not in done.err and not (tmp_path / RUN).exists()
    (directory,) = (tmp_path / "runs").glob("start_*/*")
    assert done.out.endswith(f"interrupted after 30 steps and saved; to resume, type:\n"
                             f"  spinup resume {directory.relative_to(tmp_path)}\n"
                             "this was the SFT run before llm rloo; repeat the same command to finish it and "
                             "continue with llm rloo\n")
    assert read_json(directory / "result.json")["status"] == "interrupted"
    again = cli(*words)
    assert again.code == 0 and "resuming at step 30\n" in again.out
    assert f"resume {directory.relative_to(tmp_path)}" not in again.out   # it would be refused
    assert read_json(tmp_path / RUN / "config.json")["start"] == str(directory.relative_to(tmp_path))
    longer = cli("resume", directory, "--total-steps", "5000")            # it is the initial policy of other runs
    assert longer.code == 2 and "is the initial policy of other runs and must not change" in longer.err
    assert read_json(directory / "config.json")["config"]["total_steps"] != 5000


# Catches: a new generator after a load; a load without `extremes`; a checkpoint that clears the sums of the current
# row.
@pytest.mark.parametrize("method", ["reinforce", "remax", "reinforce_pp", "dr_grpo", "dapo", "best_of_n"])
def test_number_of_checkpoints_does_not_change_the_curve(method, scored, beginner, cli, curve, monkeypatch, tmp_path):
    monkeypatch.setattr(Run, "epochs", 4)                                 # rows of three updates
    words = ["llm", method, *LEARNING, "--total-steps", 12, "--model", beginner, "--quiet",
             *(["--keep", 0.3] if method == "best_of_n" else [])]
    for cadence in (1, 10**9):
        assert cli(*words, "--checkpoint-steps", cadence, "--log-dir", cadence).code == 0
    often = curve(tmp_path / "1/x/x_s1")
    assert often == curve(tmp_path / "1000000000/x/x_s1") and len(often) == 5
    assert load_checkpoint(tmp_path / "1/x/x_s1/checkpoint.pt")["update"] == 12


# Catches: a checkpoint without `stopped`. A run that had reached its accuracy would continue SFT.
def test_resumed_run_that_reached_its_accuracy_stays_finished(beginner, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"task": "reverse:length=2,symbols=10", "held_out": 8, "threads": 1, "tensorboard": False, "batch": 8,
                "preset": "none", "quiet": True, "model": beginner, "stop_accuracy": 1e-9, "stop_every": 4}
    monkeypatch.setattr(sft, "solved", lambda rewards: 1.0)
    result = llm.sft(**settings)
    assert result.status == "finished" and result.progress["steps"][-1] == 4
    (result.directory / "result.json").unlink()                           # as if it had been killed at the end
    assert llm.sft(**settings, resume=result.directory).progress["steps"][-1] == 4
    assert read_json(result.directory / "result.json")["steps"] == 4
    assert ("is finished: 4 steps of 1,000, stopped early, because it reached --stop-accuracy 1e-09; `spinup watch"
            in cli("resume", result.directory).out)
