"""`spinup llm rlhf`: three ordinary runs in sequence, which can be resumed after any interruption."""
import os
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import llm
from llm import preferences
from llm.run import Run
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.files import read_json
from spinup.runs.log import read_progress

SHARED = {"task": "taste:letters=6,length=3", "layers": 1, "width": 16, "heads": 2, "held_out": 8, "threads": 1,
          "tensorboard": False, "preset": "none", "checkpoint_steps": 7, "exp_name": "x"}
OWN = {"sft": {"total_steps": 16, "batch": 8},
       "reward_model": {"total_steps": 16, "pairs": 20, "calibration": 16, "batch": 8},
       "ppo": {"total_steps": 16, "prompts": 4, "kl_coef": 0.1}}
SHORT = {"sft": {"total_steps": 2, "batch": 4}, "reward_model": {"total_steps": 2, "pairs": 8, "calibration": 8},
         "ppo": {"total_steps": 2, "prompts": 4}}
STAGES = ("sft", "reward_model", "ppo")
RUNS = {stage: Path(f"runs/x_{stage}/x_{stage}_s1") for stage in STAGES}


def typed(own: dict[str, dict[str, object]], **changed: object) -> list[object]:
    """The command with the settings SHARED, some of them changed, and with the settings of each stage."""
    words = ["llm", "rlhf"]
    for key, value in {**SHARED, **changed}.items():
        words += [f"--{key}", value] if value is not None else []
    return words + [word for stage, given in own.items() for key, value in given.items()
                    for word in (f"--{stage}.{key}", value)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The folder of an uninterrupted pipeline with the settings SHARED and OWN."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = llm.rlhf(**SHARED, **OWN, quiet=True)
    assert (result.status, result.measure, result.directory) == ("finished", "held_out_reward", RUNS["ppo"])
    assert result.quality == result.progress["held_out_reward"][-1] and result.progress["steps"][-1] == 16
    assert len(result.policy.respond("abc>", samples=3)) == 3
    return folder


@pytest.fixture
def done(whole, tmp_path) -> Path:
    """A copy of the finished pipeline, in the folder of the test."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def files(tmp_path) -> Callable[..., dict[str, tuple[int, bytes]]]:
    """A function that returns the modification time and the content of each file of some stages."""
    def read(*stages: str) -> dict[str, tuple[int, bytes]]:
        found = [file for stage in stages for file in (tmp_path / RUNS[stage]).iterdir()]
        return {str(file): (file.stat().st_mtime_ns, file.read_bytes()) for file in found}
    return read


# Catches: a stage without the model or the reward of an earlier stage; a flag of one stage that other stages get; a
# shared flag that a stage does not get; a table with other numbers than those of the runs.
@pytest.mark.long
def test_rlhf_runs_three_ordinary_stages_in_sequence(cli, tree, tmp_path):
    (tmp_path / "mine.toml").write_text("lr = 0.02\nnoise = 0.5\n")
    done = cli(*typed(SHORT), "--temperature", 0.9, "--ppo.temperature", 0.8, "--sft.no-anneal",
               "--reward_model.config", "mine.toml", "--reward-model.noise=0.25")
    assert (done.code, done.err) == (0, "")
    config = {stage: read_json(tmp_path / folder / "config.json") for stage, folder in RUNS.items()}
    assert [data["algorithm"] for data in config.values()] == [f"llm {stage}" for stage in STAGES]
    sft, judge, ppo = (data["config"] for data in config.values())
    assert (sft["model"], judge["model"], ppo["model"]) == ("", str(RUNS["sft"]), str(RUNS["sft"]))
    assert (sft["reward"], judge["reward"], ppo["reward"]) == ("", "", str(RUNS["reward_model"]))
    assert (sft["temperature"], judge["temperature"], ppo["temperature"]) == (0.9, 0.9, 0.8)
    assert (sft["anneal"], judge["anneal"], ppo["anneal"]) == (False, True, True)
    assert (sft["lr"], judge["lr"], ppo["lr"]) == (2e-3, 0.02, 1e-3) and judge["noise"] == 0.25
    assert (sft["batch"], judge["pairs"], ppo["prompts"]) == (4, 8, 4)
    assert all(data["config"]["task"] == SHARED["task"] and data["shape"]["width"] == 16 for data in config.values())
    assert {Path(name).parts[1] for name in tree() if name.startswith("runs/")} == {
        "x_s1", *(f"x_{stage}" for stage in STAGES)}

    result = {stage: read_json(tmp_path / folder / "result.json") for stage, folder in RUNS.items()}
    report = read_json(tmp_path / "runs/x_s1/report.json")["stages"]
    assert [row["seconds"] for row in report] == [result[stage]["seconds"] for stage in STAGES]
    before, after = report[2]["before"][SHARED["task"]], report[2]["after"][SHARED["task"]]
    assert before == report[0]["after"][SHARED["task"]] and report[1].keys().isdisjoint(("before", "after"))
    *_, head, sft, judge, ppo, _, _, _, _, _, file, _, plot, watch, evaluate, chat = done.out.splitlines()
    assert head.split()[:2] == ["stage", "method"] and head.endswith("KL (nats)  length  entropy")
    assert f"pair accuracy {result['reward_model']['pair_accuracy']:.3f} " in judge
    assert f"held-out reward {result['ppo']['held_out_reward']:.3f} " in ppo and f" {before:.3f} → {after:.3f} " in ppo
    assert file == "runs/x_s1/report.md" and ppo.split()[0] == "ppo" and f"- → {before:.3f} " in sft
    assert [plot, watch, evaluate, chat] == [f"  spinup {word} {RUNS['ppo']}" for word in ("plot", "watch", "eval",
                                                                                           "llm chat")]
    text = (tmp_path / file).read_text()
    assert f"| {before:.3f} → {after:.3f} |" in text and "**ppo** (ppo): whether the true reward rises" in text
    assert (tmp_path / "runs/x_s1/report.png").read_bytes().startswith(b"\x89PNG")
    said = [line for line in done.out.splitlines() if line.startswith("stage ") and " of " in line]
    assert [line.partition("; --warmup ")[0] for line in said] == [
        f"stage {i} of 3, {stage}: preset none; the defaults apply" for i, stage in enumerate(STAGES, 1)]


# Catches: a stage that starts again from its beginning, or from another initial policy; a finished stage that is
# resumed and so written again.
@pytest.mark.long
@pytest.mark.parametrize("stage", STAGES)
def test_same_command_resumes_a_pipeline_killed_in_any_stage(stage, whole, start, rows, wait_for, cli, curve, files,
                                                             tmp_path):
    process, earlier, directory = start(*typed(OWN)), STAGES[:STAGES.index(stage)], tmp_path / RUNS[stage]
    wait_for(lambda: rows(directory) > 8 and (directory / "checkpoint.pt").exists(), process)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (directory / "result.json").exists()
    finished, at = files(*earlier), load_checkpoint(directory / "checkpoint.pt")["steps"]
    done = cli(*typed(OWN))
    assert (done.code, done.err) == (0, "")
    assert files(*earlier) == finished and len(finished) >= 4 * len(earlier)
    said = done.out.splitlines()
    assert said[:len(earlier)] == [f"stage {i} of 3, {name}: finished, {RUNS[name]}" for i, name in
                                   enumerate(earlier, 1)]
    assert said[len(earlier)].startswith(f"stage {len(earlier) + 1} of 3, {stage}: preset none; the defaults apply")
    assert said[len(earlier) + 2] == f"resuming at step {at}" and done.out.count("resuming at") == 1
    for name, folder in RUNS.items():
        assert curve(tmp_path / folder) == curve(whole / folder)
        assert len(curve(whole / folder)) == 1 + min(40, OWN[name]["total_steps"])


# Catches: a printed command without the name; only `spinup resume`, which would end after the stage.
@pytest.mark.long
def test_ctrl_c_prints_the_command_that_resumes_the_pipeline(cli, whole, curve, monkeypatch, tmp_path):
    backward, left = Run.backward, [10]

    def press(run, *args, **settings):
        left[0] -= 1
        if left[0] == 0:
            signal.raise_signal(signal.SIGINT)
        return backward(run, *args, **settings)

    monkeypatch.setattr(Run, "backward", press)
    done = cli(*typed(OWN, exp_name=None))
    where = "runs/rlhf_taste_1_sft/rlhf_taste_1_sft_s1"
    assert done.code == 130 and "Traceback" not in done.err
    *_, before, resume, advice, command = done.out.splitlines()
    assert before == "interrupted after 10 steps and saved; to resume, type:" and resume == f"  spinup resume {where}"
    assert advice == "to resume the pipeline, type:" and command.endswith(" --exp-name rlhf_taste_1")
    program, *words = shlex.split(command)
    again = cli(*words)
    assert program == "spinup" and again.code == 0 and "resuming at step 10\n" in again.out
    for stage in STAGES:
        folder = tmp_path / f"runs/rlhf_taste_1_{stage}/rlhf_taste_1_{stage}_s1"
        assert curve(folder) == curve(whole / RUNS[stage])


# Between stages and before the first update of a stage, nothing is saved and nothing is lost. Catches: advice that is
# printed only if a stage ends with the status interrupted.
@pytest.mark.long
def test_ctrl_c_before_the_first_update_prints_how_to_resume(cli, done, files, monkeypatch, tmp_path):
    shutil.rmtree(tmp_path / "runs/x_ppo")
    shutil.rmtree(tmp_path / "runs/x_reward_model")
    finished = files("sft")

    def press(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(preferences, "compare", press)
    words = [str(word) for word in typed(OWN)]
    stopped = cli(*words)
    assert stopped.code == 130 and stopped.out.endswith(f"type:\n  {shlex.join(['spinup', *words])}\n")
    assert files("sft") == finished and not (tmp_path / "runs/x_reward_model").exists()
    assert cli(*words, "--quiet")[:2] == (130, "")


# Catches: a finished stage that is resumed; an empty Result.
@pytest.mark.long
def test_finished_pipeline_is_not_run_again(cli, done, files):
    written = files(*STAGES)
    again = cli(*typed(OWN))
    assert again.code == 0 and files(*STAGES) == written
    assert again.out.splitlines()[:3] == [f"stage {i} of 3, {stage}: finished, {RUNS[stage]}"
                                          for i, stage in enumerate(STAGES, 1)]
    assert "pair accuracy" in again.out and "resuming at" not in again.out
    result = llm.rlhf(**SHARED, **OWN, quiet=True)
    assert files(*STAGES) == written
    assert result.quality == read_progress(RUNS["ppo"])["held_out_reward"][-1] and result.policy.respond("abc>")


WRONG = {                                                                 # the flags, and words of the error message
    "flag of a stage": ("--ppo.kl-cof 1", "spinup llm rlhf has no flag --ppo.kl-cof. Did you mean '--ppo.kl-coef'?"),
    "flag of another stage": ("--sft.pairs 1", "has no flag --sft.pairs."),
    "flag of no stage": ("--pop.lr 1", "has no flag --pop.lr. Did you mean '--ppo.lr'?"),
    "flag of one stage": ("--pairs 1", "has no flag --pairs. Did you mean '--reward-model.pairs'?"),
    "value": ("--ppo.lam two", "--ppo.lam must be a number, not 'two'"),
    "range": ("--reward_model.pairs=0", "--reward-model.pairs must be at least 1, not 0"),
    "no value": ("--ppo.lr", "argument --ppo.lr: expected one argument"),
    "preset": ("--ppo.preset tast", "there is no preset 'tast'"),
    "config key": ("--ppo.config key.toml", "there is no setting 'promts'. Did you mean 'prompts'?"),
    "stray word": ("taste", "does not know what to do with 'taste'"),
    "model": ("--ppo.model m", "--ppo.model cannot be set"),
    "model of the judge": ("--reward-model.model m", "--reward-model.model cannot be set"),
    "reward": ("--ppo.reward r.py:f", "--ppo.reward cannot be set"),
    "width": ("--ppo.width 64", "--ppo.width cannot be set"),
    "name": ("--sft.exp-name y", "--sft.exp-name cannot be set"),
    "name a path": ("--exp-name a/b", "--exp-name must be the name of a folder, not 'a/b'"),
    "task": ("--ppo.task tatse", "in the stage ppo: there is no task 'tatse'. Did you mean 'taste'?"),
    "other letters": ("--ppo.task sort", "in the stage ppo: 'i' is not in the alphabet 'abcdefgh>'"),
    "long response": ("--ppo.max-tokens 600", "in the stage ppo: a prompt of 4 tokens and a response of 600"),
    "device": ("--reward-model.device cuda:99", "in the stage reward_model: there is no device 'cuda:99'"),
    "micro-batch": ("--reward-model.micro-batch 3", "--micro-batch 3 would split a pair"),
    "heads": ("--sft.heads 3", "in the stage sft: --heads 3 must divide --width"),
    "wandb": ("--ppo.wandb", "in the stage ppo: --wandb needs"),
    "log dir": ("--log-dir file", "--log-dir file cannot be written to")}


# Catches: a traceback in rank 1, whose stages return no result, after the first stage.
def test_recipe_under_torchrun_is_refused(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("os.environ", os.environ | {"RANK": "1", "WORLD_SIZE": "2"})
    done = cli("llm", "rlhf", "--task", "taste:letters=8")
    assert done.code == 2 and "leave out torchrun, and add --workers" in done.err
    assert not list(tmp_path.iterdir())


# Catches: a check of a later stage only after the end of the first stage.
@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_refused_before_anything_is_created(case, cli, tree, tmp_path):
    (tmp_path / "key.toml").write_text("promts = 3\n")
    (tmp_path / "file").write_text("")
    words, answer = WRONG[case]
    done = cli("llm", "rlhf", "--task", "taste:letters=8", *words.split())
    assert (done.code, done.out) == (2, "") and done.err.startswith("spinup: ") and done.err.count("\n") == 1
    assert answer in done.err and tree() == ["file", "key.toml"]


# Catches: settings that are ignored because a run exists; a check without the settings of finished stages.
@pytest.mark.parametrize(("change", "answer"), [
    ("--reward-model.noise 0.5", f"{RUNS['reward_model']} is a run with noise 0.0, not 0.5; choose another --exp-name"),
    ("--ppo.kl-coef 0.2", f"{RUNS['ppo']} is a run with kl_coef 0.1, not 0.2; choose another --exp-name"),
    ("--temperature 0.5", f"{RUNS['sft']} is a run with temperature 1.0, not 0.5; choose another --exp-name"),
    ("--sft.seed 2", f"{RUNS['reward_model']} is a run with model {RUNS['sft']}, not runs/x_sft/x_sft_s2")])
def test_settings_that_differ_from_an_existing_run_are_refused(change, answer, cli, done, files):
    written = files(*STAGES)
    refused = cli(*typed(OWN), *change.split())
    assert refused.code == 2 and refused.err.startswith(f"spinup: {answer}") and refused.err.count("\n") == 1
    assert files(*STAGES) == written
    assert not Path("runs/x_sft/x_sft_s2").exists()


# Catches: a recipe that cannot be repeated after a stage is extended, as the stage's last lines recommend.
def test_recipe_names_the_steps_of_an_extended_stage(cli, done):
    assert cli("resume", RUNS["reward_model"], "--total-steps", 18).code == 0
    refused = cli(*typed(OWN))
    assert refused.code == 2 and refused.err == (
        f"spinup: {RUNS['reward_model']} is a run with total_steps 18, not 16; add --reward-model.total-steps 18, or "
        "choose another --exp-name\n")
    assert cli(*typed(OWN), "--reward-model.total-steps", 18).code == 0


# Runs of the last stage with several seeds share the earlier stages. Catches: a seed that applies to all stages.
@pytest.mark.long
def test_another_seed_of_the_last_stage_starts_from_the_same_model(cli, done, files, tmp_path):
    written = files(*STAGES)
    assert cli(*typed(OWN), "--ppo.seed", 2).code == 0
    assert files(*STAGES) == written
    assert read_json(tmp_path / "runs/x_ppo/x_ppo_s2/config.json")["config"]["model"] == str(RUNS["sft"])


# Catches: a finished policy that is kept although its initial policy is missing and would be trained again.
def test_stage_without_its_initial_policy_is_refused(cli, done, tree, tmp_path):
    shutil.rmtree(tmp_path / "runs/x_sft")
    before = tree()
    refused = cli(*typed(OWN))
    assert refused.code == 2 and tree() == before
    assert refused.err == (f"spinup: {RUNS['reward_model']} exists, but {RUNS['sft']}, the stage before it, is not "
                           "finished; choose another --exp-name\n")


# Catches: a name that one of the three folders already has.
@pytest.mark.long
def test_default_name_is_the_first_unused_one(cli, tmp_path):
    (tmp_path / "runs/rlhf_taste_1_ppo").mkdir(parents=True)
    assert cli(*typed(SHORT, exp_name=None), "--quiet")[:] == (0, "", "")
    assert sorted(p.name for p in (tmp_path / "runs").glob("*/*_s1")) == sorted(f"rlhf_taste_2_{s}_s1" for s in STAGES)


# Catches: names of settings that are not checked; the user's reward in place of the learned one.
def test_rlhf_works_from_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given, answer in {"ppo": "ppo has no setting 'kl_cof'. Did you mean 'kl_coef'?",
                          "sft": "sft has no setting 'kl_cof'."}.items():
        with pytest.raises(UserError, match=answer.replace("?", r"\?")):
            llm.rlhf("taste", **{given: {"kl_cof": 1}})
    with pytest.raises(UserError, match="--ppo.model cannot be set"):
        llm.rlhf(ppo={"model": "m"})
    assert list(tmp_path.iterdir()) == []
    result = llm.rlhf(**SHARED, **SHORT, quiet=True, reward=lambda prompt, response: response.count("a"))
    assert read_json(RUNS["reward_model"] / "config.json")["config"]["reward"] == {"callable": "lambda"}
    assert read_json(result.directory / "config.json")["config"]["reward"] == str(RUNS["reward_model"])


# Catches: a setting that is missing in the help; a setting in the help of a stage that refuses it.
def test_help_lists_the_settings_of_every_stage(cli, tree):
    done = cli("llm", "rlhf", "--help")
    said = done.out.split("settings of all stages")[1].split()
    assert {"--task", "--layers", "--sft.batch", "--reward-model.pairs", "--ppo.kl-coef", "[taste]"} <= set(said)
    assert not {"--ppo.sft-accuracy", "--ppo.model", "--lr"} & set(said) and tree() == []
    assert "spinup llm rlhf" in cli("llm").out
