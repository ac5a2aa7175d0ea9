"""Studies: their trials, pruning, and the effect of an interruption, a kill and a second process."""
import ast
import re
import shutil
import signal
import sqlite3
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy import Engine, event

import spinup
from spinup.algos import ppo
from spinup.errors import EnvironmentFailure, NonFiniteError, UserError
from spinup.registry import find
from spinup.runs.files import read_json
from spinup.runs.log import read_progress
from spinup.runs.presets import configure
from spinup.runs.records import config_to_json
from spinup.runs.resuming import HOW
from spinup.view import tune

ROOT = Path(spinup.__file__).parents[1]
STUDY = Path("runs", "x")
WORDS = ["tune", "ppo", "--env", "CartPole-v1", "--exp-name", "x", "--num-envs", 4, "--rollout-steps", 32, "--hidden",
         "8,8", "--total-steps", 2048, "--no-tensorboard", "--checkpoint-steps", 512]
SPACE = ["--lr", "1e-4:1e-2", "--gamma", "0.9", "0.99"]
SMALL = [*WORDS, *SPACE]


def shorter(words: list, steps: int = 512) -> list:
    """The arguments of a study whose runs have this number of steps."""
    return [steps if word == 2048 else word for word in words]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk():
    """Do not sync a study's database to disk. A study commits hundreds of times, and no test is about power cuts."""
    def relax(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA synchronous=OFF")
    event.listen(Engine, "connect", relax)
    yield
    event.remove(Engine, "connect", relax)


def trials(study: Path = STUDY) -> list[optuna.trial.FrozenTrial]:
    """All trials, except invalid choices."""
    found = optuna.load_study(study_name=study.name, storage=f"sqlite:///{study / 'study.db'}").trials
    return [trial for trial in found if trial.state != TrialState.FAIL]


def results(study: Path = STUDY) -> list[tuple]:
    return [(trial.state, trial.params, trial.value) for trial in trials(study)]


# Catches: settings of the best trial that cannot be compared without a dataset, or that do not name it; a study that
# ends because its dataset was moved, or that continues with another one.
def test_offline_study_depends_on_its_dataset_and_not_on_the_path(cli):
    def tune(data):
        return cli("tune", "bc", "--data", data, "--exp-name", "x", "--lr", "1e-3", "1e-2", "--trials", 1,
                   "--total-steps", 10, "--test-episodes", 1, "--hidden", 4, "--no-tensorboard", "--threads", 1)
    best = STUDY / "best.toml"
    assert cli("record", "random:CartPole-v1", "--steps", 50, "--out", "d.npz").code == 0
    assert (done := tune("d.npz")).code == 0 and done.err == ""
    written = best.read_text()
    assert written.startswith("# spinup bc: test return ") and "copy it before you edit it\n" in written
    found = tomllib.loads(written)
    assert found["data"] == str(Path("d.npz").absolute()) and found["env"] == "CartPole-v1"
    best.write_bytes(b"\xfflr = 1")                                       # as if a process had been killed
    shutil.rmtree(STUDY / "trial_0")
    Path("d.npz").rename("moved.npz")
    assert tune("moved.npz").code == 0 and best.read_text() == written.replace("d.npz", "moved.npz")
    assert cli("record", "random:CartPole-v1", "--steps", 50, "--seed", 2, "--out", "d.npz").code == 0
    assert "holds the study x with dataset " in (refused := tune("d.npz")).err and refused.code == 2
    best.unlink()
    best.mkdir()
    assert "best.toml is a folder" in (refused := tune("moved.npz")).err and refused.code == 2


# Catches: a first trial with settings other than the user's; the use of a seed that is reserved for reports; a value
# that is not the mean over the seeds; a file that trains with settings other than those of the best trial; trials that
# run twice, or are not continued; a study that continues with other settings.
@pytest.mark.long
def test_study_finds_settings_and_the_same_command_continues_it(cli):
    done = cli(*SMALL, "--seeds", 100, 101, "--trials", 2)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "runs/x: 2 trials of 2 runs each"
    assert lines[1:3] == ["  --lr 0.0001 to 0.01 on a log scale", "  --gamma 0.9 0.99"]
    assert re.fullmatch(r"1/2 trials   \d+ s left   trial_0   return [\d.]+   lr 0.004, gamma 0.9\d*", lines[3])
    assert re.fullmatch(r"2/2 trials   trial_1   return [\d.]+   lr 0.\d+, gamma 0.9\d*", lines[4])
    assert lines[-1] == "  spinup ppo --config runs/x/best.toml --seed 1" and len(lines) == 7
    runs = [[read_json(STUDY / f"trial_{i}/trial_{i}_s{seed}/result.json") for seed in (100, 101)] for i in (0, 1)]
    returns = [[run["return_mean_100"] for run in pair] for pair in runs]
    assert [trial.value for trial in trials()] == pytest.approx([sum(pair) / 2 for pair in returns])

    best = max(trials(), key=lambda trial: trial.value).number
    trained = read_json(STUDY / f"trial_{best}/trial_{best}_s100/config.json")["config"]
    config, said = configure(find("ppo"), {}, file=STUDY / "best.toml")
    assert said == "CartPole-v1"
    from_file = config_to_json(config)
    assert not {name for name in trained if from_file[name] != trained[name]} - {*HOW, "seed"}
    kept = tomllib.loads((STUDY / "best.toml").read_text())
    assert {"env", "lr", "gamma", "hidden", "total_steps"} <= set(kept) and "epochs" not in kept         # as the preset
    assert cli("ppo", "--config", STUDY / "best.toml", "--total-steps", 128, "--quiet").code == 0

    written = [path.stat().st_mtime_ns for path in sorted(STUDY.rglob("result.json"))]
    again = cli(*SMALL, "--seeds", 100, 101, "--trials", 2)
    assert again.code == 0 and again.out.startswith("runs/x: 2 trials of 2 runs each; 2 ended earlier\n")
    assert [path.stat().st_mtime_ns for path in sorted(STUDY.rglob("result.json"))] == written
    more = cli(*SMALL, "--seeds", 100, 101, "--trials", 3)
    assert more.code == 0 and "3/3 trials   trial_2" in more.out and len(trials()) == 3
    for other, words in ((["--epochs", "3"], "epochs 8, not 3"), (["--lr", "1e-3:1e-2"], "lr 0.0001 to 0.01 on a"),
                         ([], "seeds 100 101, not 100")):
        seeds = ["--seeds", 100, 101] if other else []
        refused = cli(*(SMALL if "--lr" not in other else [*WORDS, "--gamma", "0.9", "0.99"]), *other, *seeds)
        assert refused.code == 2 and words in refused.err and refused.err.endswith("choose another --exp-name\n")


# Catches: a pruned run that is not saved, or that counts as an interruption by the user; a bad trial that is not
# pruned.
def test_bad_trial_is_pruned_and_saved(cli, monkeypatch):
    monkeypatch.setattr(optuna.pruners, "MedianPruner", lambda n_warmup_steps=0: optuna.pruners.ThresholdPruner(
        lower=1e9, n_warmup_steps=n_warmup_steps))
    before = signal.getsignal(signal.SIGINT)
    done = cli(*SMALL, "--trials", 2, "--seeds", 100, 101)
    assert (done.code, done.err) == (1, "") and signal.getsignal(signal.SIGINT) is before
    assert done.out.count("   pruned   lr ") == 2 and "no trial has a result" in done.out
    assert [trial.state for trial in trials()] == [TrialState.PRUNED] * 2
    directory = STUDY / "trial_0/trial_0_s100"
    result = read_json(directory / "result.json")
    assert result["status"] == "interrupted" and 512 <= result["steps"] < 1024       # after a quarter of the first run
    assert (directory / "checkpoint.pt").exists() and not (STUDY / "trial_0/trial_0_s101").exists()
    assert not (STUDY / "best.toml").exists()
    reported = trials()[0].intermediate_values
    assert sorted(reported) == list(range(1, max(reported) + 1))


# Catches: a training that diverged and is reported as the best one, or ends the study.
@pytest.mark.long
@pytest.mark.parametrize("error", [NonFiniteError, EnvironmentFailure])
def test_diverged_trial_is_never_the_best(error, cli, monkeypatch):
    train = ppo.train

    def diverge(config, resume=None):
        if config.exp_name == "trial_0":
            Path(config.log_dir, "trial_0", f"trial_0_s{config.seed}").mkdir(parents=True)     # the run has started
            raise error("logits became NaN between steps 1 and 2")
        return train(config, resume)
    monkeypatch.setattr(ppo, "train", diverge)
    done = cli(*SMALL, "--trials", 2)
    assert done.code == 0 and "trial_0   failed: logits became NaN" in done.out and "best: trial_1" in done.out
    assert [trial.state for trial in trials()] == [TrialState.PRUNED, TrialState.COMPLETE]


# Catches: choices that depend on the number of interruptions of a study; a run that starts again and is not resumed.
@pytest.mark.long
def test_interrupted_study_resumes_with_the_same_trials(cli, monkeypatch):
    small = shorter(SMALL, 1024)
    whole = cli(*small, "--trials", 3, "--log-dir", "whole")
    train, interrupted = ppo.train, []

    def interrupt(config, resume=None):
        then = config.on_row

        def on_row(row):
            if config.exp_name == "trial_1" and row["steps"] > 600 and not interrupted:
                interrupted.append(row["steps"])
                signal.raise_signal(signal.SIGINT)
            then(row)
        config.on_row = on_row
        return train(config, resume)
    monkeypatch.setattr(ppo, "train", interrupt)
    stopped = cli(*small, "--trials", 3)
    assert stopped.code == 130 and stopped.out.endswith("saved, and the same command continues the study\n")
    assert [trial.state for trial in trials()] == [TrialState.COMPLETE, TrialState.RUNNING]
    done = cli(*small, "--trials", 3)
    assert (whole.code, done.code) == (0, 0) and interrupted
    assert results() == results(Path("whole", "x"))
    assert [trial.state for trial in trials()] == [TrialState.COMPLETE] * 3


# Catches: a trial of a killed process that stays open forever; more trials than requested from two processes; one trial
# in both.
@pytest.mark.long
def test_two_processes_complete_the_study_of_a_killed_one(start, wait_for, rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*shorter(SMALL, 4096), "--trials", 4]
    killed, run = start(*words), STUDY / "trial_0/trial_0_s100"
    wait_for(lambda: (run / "checkpoint.pt").exists() and rows(run) > 10, killed)
    assert killed.kill() == -signal.SIGKILL
    assert [trial.state for trial in trials()] == [TrialState.RUNNING]
    begun = (run / "config.json").stat().st_mtime_ns
    both = [process.end() for process in [start(*words), start(*words)]]
    assert [(done.code, done.err) for done in both] == [(0, "")] * 2
    assert [trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in trials()] == [True] * 4
    ended = re.findall(r"(trial_\d)   return", both[0].out + both[1].out)
    assert sorted(ended) == [f"trial_{trial.number}" for trial in trials() if trial.state == TrialState.COMPLETE]
    assert (run / "config.json").stat().st_mtime_ns == begun             # resumed: a new run writes its config
    steps = read_progress(run)["steps"]
    assert steps == sorted(set(steps)) and steps[-1] == 4096


# Catches: a study with other settings, or without its file, that uses the runs of an earlier one as its own; a file
# that is created in place of the requested study.
@pytest.mark.long
def test_folder_belongs_to_one_study(cli, tmp_path):
    first = cli(*SMALL, "--trials", 1)
    assert first.code == 0 and first.out.startswith("runs/x: 1 trial of 1 run\n")
    optuna.create_study(storage="sqlite:///others.db", study_name="y")
    other, file = [*WORDS, "--lr", "5e-2:9e-2", "--trials", 1], STUDY / "study.db"
    whole = sorted(tmp_path.rglob("*"))
    for storage in ("third.db", "others.db"):
        refused = cli(*other, "--storage", storage)
        assert refused.code == 2 and f"a study that is not in {storage}; give" in refused.err and not refused.out
    assert optuna.get_all_study_names("sqlite:///others.db") == ["y"]
    assert {path.name for path in set(tmp_path.rglob("*")) - set(whole)} <= {"others.db.lock"}
    kept = file.read_bytes()
    file.unlink()
    refused = cli(*SMALL, "--trials", 1)
    assert refused.code == 2 and refused.err.endswith("or choose another --exp-name\n") and not file.exists()

    file.write_bytes(kept)
    shutil.copytree(STUDY / "trial_0", STUDY / "trial_1")
    (STUDY / "trial_1/trial_0_s100").rename(STUDY / "trial_1/trial_1_s100")
    foreign = cli(*SMALL, "--trials", 2)
    assert foreign.code == 2 and "trial_1_s100 is a run with gamma 0.99, not 0.9; choose" in foreign.err
    assert [trial.state for trial in trials()] == [TrialState.COMPLETE, TrialState.RUNNING]


# Catches: two folders with the trials of one study; a study that does not survive a move.
@pytest.mark.long
def test_study_has_one_folder(cli):
    words = [*shorter(SMALL), "--trials", 1]
    assert cli(*words, "--storage", "shared.db").code == 0
    refused = cli(*words, "--storage", "shared.db", "--log-dir", "elsewhere")
    assert refused.err == ("spinup: shared.db holds the study x with folder runs/x, not elsewhere/x; choose another "
                           "--exp-name\n") and refused.code == 2 and not Path("elsewhere").exists()
    assert "; 1 ended earlier" in cli(*words, "--storage", "shared.db").out
    own = ["y" if word == "x" else word for word in words]
    assert cli(*own).code == 0
    Path("runs").rename("moved")
    assert "; 1 ended earlier" in cli(*own, "--log-dir", "moved").out


def interrupted(config, resume=None):
    raise KeyboardInterrupt


# Catches: a traceback for an edited file or a file of another version of Optuna; useless advice, such as the same
# command again.
@pytest.mark.parametrize(("statement", "words"), [
    ("UPDATE alembic_version SET version_num = 'v0.9.0.a'", "has the format of another version of Optuna; install"),
    ("UPDATE study_user_attributes SET value_json = '[1]'", "study.db is damaged ('list' object"),
    ("", "cannot be used as the storage of a study (database disk image is malformed); if you cannot fix this, ")])
@pytest.mark.parametrize("storage", [None, "other.db"])
def test_damaged_study_file_gives_one_sentence(cli, monkeypatch, statement, words, storage):
    monkeypatch.setattr(ppo, "train", interrupted)
    typed = [*SMALL, *(("--storage", storage) if storage else ())]
    assert cli(*typed).code == 130
    path = Path(storage or STUDY / "study.db")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(statement)
    if not statement:
        path.write_bytes(path.read_bytes()[:100] + bytes(10_000))
    refused = cli(*typed)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert words.replace("study.db", storage or "study.db") in refused.err
    assert refused.err.endswith(f"choose another --exp-name{' and another --storage' if storage else ''}\n")


# Catches: a choice that only the training refuses, and that ends the study or stays open forever; an error of a started
# run, such as a full disk, that is taken for an error of the settings.
@pytest.mark.long
def test_choices_that_training_refuses_are_not_trials(cli, monkeypatch):
    train, full = ppo.train, []

    def refuse(config, resume=None):
        if config.epochs == 3:
            raise UserError("three epochs are too many")

        def on_row(row):
            if not full:
                full.append(row)
                raise UserError("the disk is full")
        config.on_row = on_row
        return train(config, resume)
    monkeypatch.setattr(ppo, "train", refuse)
    monkeypatch.setattr(tune, "REFUSED", 10)
    words = [*shorter(WORDS), "--epochs", 1, 3, "--trials", 2]
    stopped = cli(*words)
    assert stopped.code == 2 and stopped.err == "spinup: the disk is full\n"
    assert [trial.state for trial in trials()] == [TrialState.RUNNING]
    done = cli(*words)
    assert done.code == 0 and [trial.params["epochs"] for trial in trials()] == ["1", "1"]
    assert [trial.state for trial in trials()] == [TrialState.COMPLETE] * 2
    for _ in range(2):
        never = cli(*["never" if word == "x" else word for word in WORDS], "--epochs", 3, "3")
        assert never.code == 2 and "in a row were invalid; the last error: three epochs" in never.err
    assert not trials(Path("runs", "never"))


# Catches: invalid current settings that are taken for an error of the searched settings.
def test_search_may_replace_settings_that_are_invalid(cli, monkeypatch):
    monkeypatch.setattr(ppo, "train", interrupted)
    words = ["tune", "ppo", "--workers", 3, "--exp-name", "x"]
    assert cli(*words, "--num-envs", 3, 6).code == 130 and trials()[0].params == {"num_envs": "3"}
    refused = cli(*words, "--minibatches", 2, 4)
    assert refused.code == 2 and "--num-envs 8 cannot be divided among 3 processes" in refused.err


# Catches: incompatible settings that end the study or count as a trial.
@pytest.mark.long
def test_invalid_choices_are_not_trials(cli, monkeypatch):
    monkeypatch.setattr(tune, "REFUSED", 10)
    done = cli(*shorter(WORDS), "--minibatches", "2", "3", "5", "--trials", 2)
    assert done.code == 0 and [trial.params["minibatches"] for trial in trials()] == ["2", "2"]
    never = cli(*["never" if word == "x" else word for word in WORDS], "--minibatches", "3", "5")
    assert never.code == 2 and "in a row were invalid; the last error: --minibatches" in never.err


@pytest.mark.parametrize(("typed", "words"), [
    ("ppo --seed 1", "instead of --seed type --seeds 100 101"),
    ("ppo --env CartPole-v1 Acrobot-v1", "--env takes one value in a study"),
    ("ppo --seeds 1 2 1", "--seeds has 1 more than once; give each seed once"),
    ("ppo --workers 2 --num-envs 3", "--num-envs 3 cannot be divided among 2 processes; choose a multiple of 2"),
    ("ppo --workers 2 --num-envs 3 --lr 1e-4:1e-2", "--num-envs 3 cannot be divided among 2 processes"),
    ("ppo --lr 1e-4:inf", "--lr 1e-4:inf is not a range LOW:HIGH (--lr must be a finite number, not inf)"),
    ("ppo --lrr 1 2", "spinup ppo has no flag --lrr. Did you mean '--lr'?"),
    ("ppo --gamma 0.9 7", "--gamma must be from 0 to 1, not 7"),
    ("ppo --env CartPoll", "Did you mean 'CartPole"),
    ("ppo --trials", "--trials needs a value, as in --trials 20"),
    ("ppo --trials 1 2", "--trials takes one value, not 1 2"),
    ("ppo 3", "spinup tune does not know what to do with '3'; values follow a flag, as in --lr 1e-4:1e-2"),
    ("llm --lr 1e-4:1e-2", "spinup tune llm needs a method, as in: spinup tune llm grpo --lr 1e-4:1e-2"),
    ("ppo --storage nowhere/study.db", "there is no folder"),
    ("ppo --storage text.db", "text.db is not an SQLite file; choose another --storage")])
def test_invalid_study_starts_nothing(cli, tmp_path, typed, words):
    (tmp_path / "text.db").write_text("this is not a database")
    done = cli("tune", *typed.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1) and words in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["text.db"]


def test_study_without_optuna_gives_one_sentence(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    done = cli(*SMALL)
    assert (done.code, done.err) == (2, "spinup: spinup tune needs Optuna; type: pip install 'spinup-rl[tune]'\n")
    assert not list(tmp_path.iterdir())


# Catches: `import optuna` or `import ray` at a place where every command has to wait for it.
@pytest.mark.long
def test_no_other_command_imports_optuna_or_ray():
    for path in [*(ROOT / "spinup").rglob("*.py"), *(ROOT / "llm").rglob("*.py")]:
        body = ast.parse(path.read_text()).body
        names = {alias.name for node in ast.walk(ast.Module(body, [])) if isinstance(node, ast.Import)
                 for alias in node.names}
        assert ("ray" in names) == (path.name == "on_ray.py")
        top = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not [node for node in top if "optuna" in ast.unparse(node) or "on_ray" in ast.unparse(node)], path
