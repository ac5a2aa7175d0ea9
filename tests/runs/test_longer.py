"""Runs that are extended after their end, start from another run's policy, or pass each row to a function."""
import json
import signal
from pathlib import Path

import pytest
import torch

import spinup
from spinup.bench.process import revisions
from spinup.core.bounded import NoisyAction
from spinup.errors import NonFiniteError, UserError
from spinup.runs import records, training
from spinup.runs.checkpoint import load_checkpoint, save_checkpoint
from spinup.runs.log import read_progress
from spinup.runs.run import Run

SMALL = {"num_envs": 2, "rollout_steps": 32, "hidden": (8,), "threads": 1, "quiet": True, "tensorboard": False,
         "preset": "none", "anneal": False}


@pytest.fixture
def train(tmp_path):
    def train(algorithm="ppo", env="CartPole-v1", **given):
        return getattr(spinup, algorithm)(env, **{**SMALL, "log_dir": str(tmp_path), **given})
    return train


def weights(result) -> torch.Tensor:
    return torch.cat([x.flatten() for x in result.policy.module.state_dict().values()])


# Without annealing, an extended run makes the same updates as a run that was longer from the start. Catches: a part
# that is missing in the final checkpoint; the old total_steps in config.json.
def test_extended_run_equals_a_longer_run(train, curve):
    short, long = train(total_steps=640, exp_name="short"), train(total_steps=1280, exp_name="long")
    longer = train(total_steps=1280, exp_name="short", resume=short.directory)
    assert torch.equal(weights(longer), weights(long)) and longer.returns == long.returns
    assert read_progress(longer.directory)["steps"][-1] == 1280
    assert json.loads((longer.directory / "config.json").read_text())["config"]["total_steps"] == 1280
    assert json.loads((longer.directory / "result.json").read_text())["status"] == "finished"


# Catches: a resumed run that prints nothing because it was part of a grid or a study, whose runs are quiet.
def test_command_resume_prints_the_progress_of_a_quiet_run(train, cli):
    short = train(total_steps=640, exp_name="short")
    done = cli("resume", short.directory, "--total-steps", 1280)
    assert done.code == 0 and "resuming at step 640\n" in done.out and "1,280 steps in " in done.out


# Catches: a run that was extended with other code, but names only its first code revision.
def test_run_names_each_code_revision_that_trained_it(train, monkeypatch):
    monkeypatch.setattr(training, "git_revision", lambda: "a" * 12)
    monkeypatch.setattr(records, "git_revision", lambda: "a" * 12)
    run = train(total_steps=640, exp_name="x")
    assert revisions([run.directory]) == "a" * 12
    monkeypatch.setattr(records, "git_revision", lambda: "b" * 12)
    train(total_steps=640, exp_name="x", resume=run.directory)            # already finished: nothing is trained
    assert revisions([run.directory]) == "a" * 12
    train(total_steps=1280, exp_name="x", resume=run.directory)
    assert revisions([run.directory]) == f"{'a' * 12}, {'b' * 12}"


# Catches: an extended run whose first gradient steps use only actions of the policy, because the random steps are
# counted from the start of the run and not from the empty replay buffer.
def test_extended_run_refills_its_replay_buffer_with_random_steps(tmp_path, monkeypatch):
    def run(steps, resume=None):
        return spinup.td3("Pendulum-v1", preset="none", hidden=(8,), threads=1, quiet=True, tensorboard=False,
                          batch_size=8, learning_starts=60, total_steps=steps, log_dir=str(tmp_path), exp_name="x",
                          resume=resume)

    short = run(100)
    drawn, uniform = [], NoisyAction.uniform

    def spy(*given):
        drawn.append(1)
        return uniform(*given)

    monkeypatch.setattr(NoisyAction, "uniform", spy)
    run(200, short.directory)
    assert len(drawn) == 60


# Catches: a total below the steps that are already done; other changed settings that are accepted together with a new
# total.
def test_run_cannot_be_shortened_or_resumed_with_other_settings(train):
    done = train(total_steps=640)
    with pytest.raises(UserError, match="has already done 640 steps; .* at least 640, not 320"):
        train(total_steps=320, resume=done.directory)
    with pytest.raises(UserError, match="is a run with lr 0.001, not 0.1"):
        train(total_steps=1280, lr=0.1, resume=done.directory)


# A killed run has no result.json. Catches: a total that is compared with result.json alone; a config.json that is
# changed although the run cannot be resumed.
def test_refused_resume_leaves_config_json_unchanged(train):
    done = train(total_steps=700)                                         # in whole updates: 640
    before = (done.directory / "config.json").read_bytes()
    with pytest.raises(UserError, match="has already done 640 steps; .* at least 700, not 690"):
        train(total_steps=690, resume=done.directory)
    (done.directory / "result.json").unlink()
    with pytest.raises(UserError, match="has already done 640 steps; .* at least 640, not 320"):
        train(total_steps=320, resume=done.directory)
    state = load_checkpoint(done.directory / "checkpoint.pt")
    save_checkpoint(done.directory / "checkpoint.pt", state | {"parts": {}})
    with pytest.raises(UserError, match="the checkpoint of this run of ppo has no part called policy"):
        train(total_steps=1280, resume=done.directory)
    assert (done.directory / "config.json").read_bytes() == before


# Catches: a finished run that starts again and overwrites its curve, because its checkpoint is missing; advice to
# resume a finished run.
def test_finished_run_without_its_checkpoint_is_not_started_again(train):
    done = train(total_steps=640, exp_name="x")
    before = (done.directory / "progress.csv").read_text()
    (done.directory / "checkpoint.pt").unlink()
    with pytest.raises(UserError, match="is finished, but its checkpoint.pt is missing; restore the file"):
        train(total_steps=640, exp_name="x", resume=done.directory)
    with pytest.raises(UserError, match="is finished, but its checkpoint.pt is missing; restore the file"):
        spinup.load(done.directory)
    assert (done.directory / "progress.csv").read_text() == before


# Catches: the old result.json with status "finished", which remains while the run is extended.
def test_interrupted_extension_has_the_status_interrupted(train, monkeypatch):
    done = train(total_steps=640)

    def row(told):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(total_steps=1280, resume=done.directory, on_row=row)
    assert json.loads((done.directory / "result.json").read_text())["status"] == "interrupted"


# Catches: weights that are not loaded, or that are initialised again afterwards.
@pytest.mark.parametrize(("algorithm", "env", "settings"), [
    ("ppo", "CartPole-v1", {"num_envs": 2, "rollout_steps": 32, "total_steps": 64, "lr": 1e-9}),
    ("es", "CartPole-v1", {"pairs": 4, "total_steps": 64, "lr": 1e-9}),
    ("sac", "Pendulum-v1", {"learning_starts": 64, "batch_size": 8, "total_steps": 64})])
def test_run_can_start_from_the_policy_of_another_run(algorithm, env, settings, tmp_path):
    def run(seed, init=""):
        return getattr(spinup, algorithm)(env, preset="none", hidden=(8,), threads=1, quiet=True, tensorboard=False,
                                          log_dir=str(tmp_path), seed=seed, init=str(init), **settings)

    first, fresh = run(seed=3), run(seed=4)
    began = run(seed=4, init=first.directory)
    assert (weights(began) - weights(first)).abs().max() < 0.01 < (weights(fresh) - weights(first)).abs().max()


# Catches: an interrupted run that was saved, lost its checkpoint, and overwrites its log from the start.
def test_interrupted_run_without_its_checkpoint_is_not_started_again(cli, tmp_path, monkeypatch):
    after_update = Run.after_update

    def interrupted(run):
        after_update(run)
        if run.update == 3:
            run.interruption.received = 2

    monkeypatch.setattr(Run, "after_update", interrupted)
    cli("ppo", "--env", "CartPole-v1", "--preset", "none", "--total-steps", 1024, "--num-envs", 2, "--rollout-steps",
        16, "--exp-name", "x", "--quiet")
    monkeypatch.undo()
    run = tmp_path / "runs/x/x_s1"
    log = (run / "progress.csv").read_bytes()
    (run / "checkpoint.pt").unlink()
    refused = cli("resume", run)
    assert refused.code == 2 and "was saved after 128 steps, but its checkpoint.pt is missing" in refused.err
    assert (run / "progress.csv").read_bytes() == log


# Catches: a run without a checkpoint that does not load the weights of --init again, although its config.json names
# them.
def test_run_killed_before_its_first_checkpoint_loads_init_again(train):
    def die(row):
        raise KeyboardInterrupt

    first = train(total_steps=64, seed=3)
    given = {"total_steps": 640, "seed": 4, "lr": 1e-9, "init": str(first.directory), "exp_name": "x"}
    with pytest.raises(KeyboardInterrupt):
        train(**given, on_row=die)
    folder = first.directory.parents[1] / "x" / "x_s4"
    assert not (folder / "checkpoint.pt").exists()
    resumed = train(**given, resume=folder)
    assert resumed.status == "finished" and (weights(resumed) - weights(first)).abs().max() < 1e-6


# Catches: steps of an emptied replay buffer that the checkpoint still counts, so that a killed run cannot be resumed.
@pytest.mark.parametrize("dies_at", [1, 2])
def test_extended_run_that_dies_during_a_save_resumes(dies_at, train, monkeypatch):
    given = {"algorithm": "dqn", "num_envs": 1, "learning_starts": 20, "batch_size": 4, "checkpoint_steps": 30,
             "exp_name": "x"}
    for name in ("rollout_steps", "anneal"):
        monkeypatch.delitem(SMALL, name)
    short, saves = train(**given, total_steps=60), []

    def save(*words):
        saves.append(words)
        if len(saves) == dies_at:
            raise KeyboardInterrupt
        return save_checkpoint(*words)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "save_checkpoint", save)
        train(**given, total_steps=120, resume=short.directory)
    again = train(**given, total_steps=120, resume=short.directory)
    assert again.status == "finished" and read_progress(again.directory)["steps"][-1] == 120


# Catches: a signal during a row, after which weights with NaN replace the last good checkpoint.
def test_non_finite_weights_are_never_saved(train, monkeypatch):
    after_update = Run.after_update

    def broken(self):
        after_update(self)
        if self.update == 3:
            next(self.parts["policy"].parameters()).data.fill_(torch.nan)
            self.interruption.received = signal.SIGINT

    monkeypatch.setattr(Run, "after_update", broken)
    with pytest.raises(NonFiniteError):
        train(total_steps=640, exp_name="x", checkpoint_steps=64)
    (saved,) = Path(train.__closure__[0].cell_contents).glob("x/x_s*/checkpoint.pt")
    state = load_checkpoint(saved)
    assert state["steps"] == 192 and all(x.isfinite().all() for x in state["parts"]["policy"].values())


# Catches: a run that reached its goal, was extended and then killed, and ends at once when it is resumed.
def test_extension_of_a_run_that_stopped_early_survives_a_kill(train, cli, tmp_path):
    done = train(total_steps=640, exp_name="x")
    state = load_checkpoint(done.directory / "checkpoint.pt")
    save_checkpoint(done.directory / "checkpoint.pt", state | {"stopped": True})
    result = json.loads((done.directory / "result.json").read_text())
    (done.directory / "result.json").write_text(json.dumps({**result, "stopped_early": True}))
    again = cli("resume", train(total_steps=64, exp_name="y").directory, "--total-steps", 64)
    assert again.code == 0 and "is finished: 64 steps" in again.out
    refused = cli("resume", done.directory, "--total-steps", 640)
    assert refused.code == 2 and "stopped early, at 640 steps; to continue, choose another --total-steps" in refused.err

    def die(row):
        raise SystemExit

    with pytest.raises(SystemExit):
        train(total_steps=1280, resume=done.directory, on_row=die, exp_name="x")
    assert not load_checkpoint(done.directory / "checkpoint.pt")["stopped"]
    assert read_progress(train(total_steps=1280, exp_name="x", resume=done.directory).directory)["steps"][-1] == 1280


# Catches: a finished run with the status "failed", because its curve could not be drawn.
def test_run_is_finished_even_if_its_plot_fails(train, monkeypatch, tmp_path):
    def fail(directory):
        raise ImportError("a broken matplotlib")

    monkeypatch.setattr("spinup.runs.curve.draw_curve", fail)
    with pytest.raises(ImportError):
        train(total_steps=64, exp_name="x")
    assert json.loads((tmp_path / "x/x_s1/result.json").read_text())["status"] == "finished"


def test_initial_policy_with_another_network_is_refused(train):
    first = train(total_steps=64)
    with pytest.raises(UserError, match="--init .*: the policy of that run has another network .*; choose a run"):
        train(total_steps=64, hidden=(16,), init=str(first.directory))


# Catches: a random number generator that the user's function and the training share.
def test_random_numbers_in_on_row_do_not_change_the_training(train):
    plain, drawing = (train(total_steps=320, on_row=function) for function in (None, lambda row: torch.rand(7)))
    assert torch.equal(weights(plain), weights(drawing))


# Catches: an error of the user's function that becomes advice about the run's folder.
def test_error_in_on_row_is_not_changed(train):
    def fail(row):
        raise PermissionError(13, "Permission denied", "mine.txt")

    with pytest.raises(PermissionError, match="mine.txt"):
        train(total_steps=320, on_row=fail)


# Catches: a row that is passed before it is written; a row that the function can change.
def test_each_row_is_passed_to_on_row(train):
    rows = []
    result = train(total_steps=640, on_row=lambda row: rows.append(dict(row)) or row.clear())
    assert [row["steps"] for row in rows] == result.progress["steps"] and len(rows) == 10
    assert [row["loss"] for row in rows] == result.progress["loss"]
    assert "on_row" not in json.loads((result.directory / "config.json").read_text())["config"]
    with pytest.raises(UserError, match="on_row must be a function of a row"):
        train(on_row="print")
