"""Recipes: TOML files of stages, built-in or of the user. Mistakes are refused before anything is created."""
import shutil
import signal
from pathlib import Path

import pytest

import llm
from llm.pipeline import plan
from llm.recipes.recipe import find_recipe, recipe_names
from llm.recipes.report import aligned, as_table
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.files import read_json

MINE = '''
about = "imitation, rejection sampling, DPO, distillation"
evaluate = ["reverse:length=2", "sort:length=2", "addition"]

[shared]
task = "reverse:length=2"
layers = 1
width = 16
heads = 2
held-out = 8
threads = 1
tensorboard = false
preset = "none"
checkpoint_steps = 3

[stages.base]
method = "sft"
task = "mix:reverse:length=2+sort:length=2"
total_steps = 100
batch = 16
lr = 0.01
look = "the start"

[stages.chosen]
method = "best_of_n"
model = "@base"
data = 64
samples = 4
prompts = 8
total_steps = 8

[stages.pairs]
method = "dpo"
model = "@chosen"
pairs = 16
batch = 4
total_steps = 4

[stages.student]
method = "reinforce"
model = "@base"
teacher = "@pairs"
prompts = 4
total_steps = 4
'''
STAGES = ("base", "chosen", "pairs", "student")
RUNS = {stage: Path(f"runs/x_{stage}/x_{stage}_s1") for stage in STAGES}
WORDS = ("llm", "recipe", "far/mine.toml", "--exp-name", "x")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The folder of an uninterrupted run of the recipe MINE."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("far").mkdir()
        Path("far/mine.toml").write_text(MINE)
        result = llm.recipe("far/mine.toml", exp_name="x", quiet=True)
    assert (result.status, result.directory) == ("finished", RUNS["student"])
    return folder


@pytest.fixture
def done(whole, tmp_path) -> Path:
    """A copy of the finished recipe, in the folder of the test."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path


# Catches: a reference that is not replaced by a folder; settings of the file that a stage does not get; a report on one
# task only.
@pytest.mark.long
def test_recipe_file_of_the_user_runs_and_reports_all_stages(whole):
    config = {stage: read_json(whole / folder / "config.json")["config"] for stage, folder in RUNS.items()}
    assert (config["chosen"]["model"], config["pairs"]["model"]) == (str(RUNS["base"]), str(RUNS["chosen"]))
    assert (config["student"]["model"], config["student"]["teacher"]) == (str(RUNS["base"]), str(RUNS["pairs"]))
    assert {c["held_out"] for c in config.values()} == {8} and config["base"]["task"].startswith("mix:")
    rows = read_json(whole / "runs/x_s1/report.json")["stages"]
    assert [row["method"] for row in rows] == ["sft", "best_of_n", "dpo", "reinforce"]
    assert rows[3]["before"] == rows[1]["before"] == rows[0]["after"] and rows[2]["before"] == rows[1]["after"]
    assert rows[0]["after"].keys() == {"reverse:length=2", "sort:length=2", "addition"}
    assert all(row["after"]["addition"] is None and 0 <= row["after"]["sort:length=2"] <= 1 for row in rows)
    assert all(row["tokens"] > 0 and row["seconds"] > 0 for row in rows)
    assert "the start." in (whole / "runs/x_s1/report.md").read_text()


# Catches: a stage that starts again from its beginning, or from another initial policy; a finished stage that is
# written again.
@pytest.mark.long
@pytest.mark.parametrize("stage", STAGES[1:])
def test_same_command_resumes_a_recipe_killed_in_any_stage(stage, whole, start, rows, wait_for, cli, curve, tmp_path):
    Path("far").mkdir()
    shutil.copy(whole / "far/mine.toml", "far/mine.toml")
    process, directory, earlier = start(*WORDS), tmp_path / RUNS[stage], STAGES[:STAGES.index(stage)]
    wait_for(lambda: rows(directory) > 3 and (directory / "checkpoint.pt").exists(), process)
    process.kill()
    assert process.wait() == -signal.SIGKILL and not (directory / "result.json").exists()
    at = load_checkpoint(directory / "checkpoint.pt")["steps"]
    written = {name: (tmp_path / RUNS[name] / "checkpoint.pt").stat().st_mtime_ns for name in earlier}
    again = cli(*WORDS)
    assert (again.code, again.err) == (0, "") and f"resuming at step {at}\n" in again.out
    assert again.out.count(": finished, runs/x_") == len(earlier)
    assert written == {name: (tmp_path / RUNS[name] / "checkpoint.pt").stat().st_mtime_ns for name in earlier}
    for folder in RUNS.values():
        assert curve(tmp_path / folder) == curve(whole / folder)
    kept = [[{k: x for k, x in row.items() if k not in ("seconds", "tokens")} for row in
             read_json(folder / "runs/x_s1/report.json")["stages"]] for folder in (whole, tmp_path)]
    assert kept[0] == kept[1]


@pytest.mark.long
def test_flags_change_settings_of_all_stages_or_of_one(cli, tmp_path):
    (tmp_path / "mine.toml").write_text(MINE)
    ran = cli("llm", "recipe", "mine.toml", "--held-out", 4, "--total-steps", 2, "--base.total-steps", 60, "--seed", 3,
              "--log-dir", "r", "--chosen.keep", 0, "--quiet")
    assert ran[:] == (0, "", "")
    configs = {s: read_json(tmp_path / f"r/mine_mix_reverse_sort_1_{s}/mine_mix_reverse_sort_1_{s}_s3/config.json")
               for s in STAGES}
    assert [c["config"]["total_steps"] for c in configs.values()] == [60, 2, 2, 2]
    assert {c["config"]["held_out"] for c in configs.values()} == {4} and configs["chosen"]["config"]["keep"] == 0
    assert (tmp_path / "r/mine_mix_reverse_sort_1_s3/report.md").exists()


# Catches: a recipe that is missing in the list; a recipe with a stage that could not start.
@pytest.mark.long("instructgpt")
@pytest.mark.parametrize("name", recipe_names())
def test_built_in_recipes_are_listed_and_can_start(name, cli, tree):
    listed = cli("llm", "recipe")
    assert listed.code == 0 and f"  {name} " in listed.out and recipe_names()[name] in listed.out
    recipe = find_recipe(name)
    stages = plan(recipe, {}, {})
    assert [s.step.name for s in stages] == [s.name for s in recipe.steps] and tree() == []
    assert all(step.look for step in recipe.steps if not step.name.rpartition("_")[2].isdigit() and
               not step.name.endswith("_dpo"))


SFT = '[stages.base]\nmethod = "sft"\n'
WRONG = {                                                                 # text of a file, words of the error message
    "method": ('[stages.base]\nmethod = "sftt"', "stage base: there is no method 'sftt'. Did you mean 'sft'?"),
    "no method": ("[stages.base]\nlr = 1", "stage base: there is no method 'base'."),
    "setting": (SFT + "total_step = 3", "stage base: sft has no setting 'total_step'. Did you mean 'total_steps'?"),
    "value": (SFT + "lr = -1", "in the stage base: --lr must be above 0"),
    "type": (SFT + 'total_steps = "many"', "in the stage base: --total-steps must be a whole number, not 'many'"),
    "shared": ("[shared]\nlrr = 1\n" + SFT, "[shared]: the stage base has no setting 'lrr'. Did you mean 'lr'?"),
    "entry": ("abuot = 'x'\n" + SFT, "a recipe has no entry 'abuot'. Did you mean 'about'?"),
    "stages": ("about = 'x'", "has no stages; write a table such as [stages.sft]"),
    "stage": ("[stages]\nsft = 3", "has no stages; write a table"),
    "name": ("[stages.Base-1]\nmethod = 'sft'", "a stage's name has lower-case letters"),
    "reference": (SFT + '[stages.rl]\nmethod = "grpo"\nmodel = "@bsae"',
                  'stage rl: model = "@bsae" names no earlier stage. Did you mean \'base\'?'),
    "later": ('[stages.rl]\nmethod = "grpo"\nmodel = "@base"\n' + SFT, 'model = "@base" names no earlier stage. It is'),
    "itself": ('[stages.rl]\nmethod = "grpo"\nmodel = "@rl"', 'model = "@rl" names no earlier stage. It is'),
    "policy as reward": (SFT + '[stages.rl]\nmethod = "grpo"\nreward = "@base"', "is a policy and no reward model"),
    "reward as model": (SFT + '[stages.reward_model]\nmodel = "@base"\n[stages.rl]\nmethod = "grpo"\n'
                        'model = "@reward_model"', "is a reward model, which writes no text; use it as reward"),
    "last stage": (SFT + '[stages.rl]\nmethod = "grpo"\nmodel = "@base"\ntask = "srt"',
                   "in the stage rl: there is no task 'srt'. Did you mean 'sort'?"),
    "alphabet": (SFT + '[stages.rl]\nmethod = "grpo"\nmodel = "@base"\ntask = "steps"', "in the stage rl: "),
    "older task": (SFT + '[stages.ppo]\nmodel = "@base"\nptx_task = "addition"\nptx_coef = 1', "in the stage ppo: "),
    "older task without weight": (SFT + '[stages.ppo]\nmodel = "@base"\nptx_task = "sort"', "add --ptx-coef 1"),
    "evaluate": ("evaluate = 'reverse'\n" + SFT, "evaluate must be a list of tasks"),
    "exp_name": (SFT + "exp_name = 'y'", "sft has no setting 'exp_name'"),
    "TOML": ("[stages", "mine.toml is not TOML")}


# Catches: a setting of the recipe that is refused, because the user's setting makes it useless.
def test_users_setting_may_make_one_of_the_recipe_useless(tmp_path):
    (tmp_path / "mine.toml").write_text('[stages.pairs]\nmethod = "simpo"\nmargin = 0.7\n')
    recipe = find_recipe(str(tmp_path / "mine.toml"))
    (stage,) = plan(recipe, {}, {"pairs": {"loss": "dpo"}})
    assert (stage.cfg.loss, stage.cfg.margin) == ("dpo", 0.7)
    with pytest.raises(UserError, match="--margin has no effect with --loss dpo"):
        plan(recipe, {}, {"pairs": {"loss": "dpo", "margin": 0.6}})


# Catches: a remark about --model, which nobody gave, in the later stages of a recipe.
def test_sizes_of_the_first_stage_cause_no_remark_in_the_others(tmp_path):
    stages = '[stages.sft]\nmethod = "sft"\n\n[stages.rl]\nmethod = "grpo"\nmodel = "@sft"\n'
    (tmp_path / "mine.toml").write_text(stages)
    first, second = plan(find_recipe(str(tmp_path / "mine.toml")), {"layers": 1, "width": 8, "heads": 1}, {})
    assert (first.cfg.layers, first.cfg.width) == (1, 8) and "no effect" not in first.preset + second.preset


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_in_a_file_are_refused_before_anything_is_created(case, cli, tree, tmp_path):
    text, answer = WRONG[case]
    (tmp_path / "mine.toml").write_text(text)
    refused = cli("llm", "recipe", "mine.toml")
    assert (refused.code, refused.out) == (2, "") and refused.err.startswith("spinup: ")
    assert refused.err.count("\n") == 1 and answer in refused.err and tree() == ["mine.toml"]


@pytest.mark.parametrize(("words", "answer"), [
    ("qwk", "there is no recipe 'qwk'. Did you mean 'qwq'? `spinup llm recipe` lists them"),
    ("none.toml", "none.toml: no such file or directory; give a readable TOML file"),
    ("qwq --general.total-step 3", "has no flag --general.total-step. Did you mean '--general.total-steps'?"),
    ("qwq --generl.lr 3", "has no flag --generl.lr. Did you mean '--general.lr'?"),
    ("qwq --general.model m", "--general.model cannot be set, because all stages share a name"),
    ("qwq --verified.width 32", "--verified.width cannot be set")])
def test_mistakes_on_the_command_line_are_refused(words, answer, cli, tree):
    refused = cli("llm", "recipe", *words.split())
    assert (refused.code, refused.out) == (2, "") and answer in refused.err and tree() == []


def test_unknown_stage_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"the recipe qwq has no stage 'generl'\. Did you mean 'general'\?"):
        llm.recipe("qwq", {"generl": {"lr": 1.0}})
    assert not list(tmp_path.iterdir())


# Catches: a table with 0 for unknown numbers, or with a missing column.
def test_table_of_a_report_shows_unknown_numbers_as_dashes():
    base = {"stage": "a", "method": "sft", "measure": "held_out_accuracy", "result": 0.5, "seconds": 1.6,
            "tokens": 1234, "kl_of_response": 0.0, "length": 2.5, "entropy": None}
    table = as_table([base | {"before": {}, "after": {"t": 0.5, "u": None}},
                      base | {"measure": "pair_accuracy", "result": 0.9}], ["t", "u"])
    assert table[1] == ["a", "sft", "held-out accuracy 0.500", "- → 0.500", "- → -", "2", "1,234", "0.00", "2.50", "-"]
    assert table[2][2:5] == ["pair accuracy 0.900", "- → -", "- → -"]
    lines = aligned(table)
    assert len(lines) == 3 and lines[0].startswith("stage  method  its own measure")


# Catches: a `ptx_coef` without an effect; demonstrations of the policy's own task in place of the older one.
@pytest.mark.long
def test_ppo_ptx_does_not_forget_the_older_task(tmp_path, monkeypatch, two_rows):
    monkeypatch.chdir(tmp_path)
    small = {"layers": 1, "width": 32, "heads": 2, "held_out": 64, "threads": 1, "tensorboard": False, "quiet": True,
             "preset": "none"}
    base = llm.sft("mix:copy:length=2+sort:length=3", total_steps=250, batch=32, lr=1e-2, **small)
    seen = {}
    for coef in (0.0, 1.0):
        mixed = {"ptx_task": "sort:length=3", "ptx_coef": coef} if coef else {}
        run = llm.ppo("copy:length=2", model=str(base.directory), total_steps=30, prompts=32, minibatches=1, lr=3e-3,
                      warmup=1, reward=lambda prompt, response: float(response == ""), **mixed, **small)
        texts = run.policy.respond_all([f"{a}{b}{c}>" for a in "abc" for b in "def" for c in "ghi"], 1, None, 4)
        seen[coef] = sum(len(text) == 3 for text in texts) / 27
        assert ("ptx_loss" in run.progress) == bool(coef)
    assert seen[0.0] < 0.2 and seen[1.0] > 0.8, seen
