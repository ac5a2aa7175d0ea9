"""External algorithms, given by the name of their module or by an entry point, in every command."""
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

import spinup
from spinup import registry
from spinup.errors import UserError
from spinup.runs import plugin
from spinup.runs.checkpoint import load_checkpoint, save_checkpoint
from spinup.runs.config import Positive, Widths

TESTS = Path(__file__).parent
EXAMPLE = TESTS / "outside" / "my_a2c.py"
TINY = ["--env", "CartPole-v1", "--num-envs", "2", "--hidden", "8", "--threads", "1", "--no-tensorboard"]


@pytest.fixture
def outside(monkeypatch, tmp_path):
    """Put a copy of the example on Python's module path, also in processes of the command line.

    The path does not contain `tests` itself, because `tests/llm` would be imported as the package `llm`.
    """
    folder = str(tmp_path / "modules")
    shutil.copytree(EXAMPLE.parent, Path(folder, "outside"))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]))
    yield
    registry.installed.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "outside"]:
        del sys.modules[name]


# Catches: a command that accepts only the algorithms of this library; a name that is cut at its first dot.
@pytest.mark.long
def test_every_command_accepts_the_dotted_name_of_a_module(cli, outside):
    run = Path("runs", "outside.my_a2c_CartPole-v1_1")
    assert cli("outside.my_a2c", *TINY, "--total-steps", "512").code == 0
    assert json.loads(next(run.glob("*/config.json")).read_text())["algorithm"] == "outside.my_a2c"
    assert "is finished: 512 steps" in cli("resume", run).out
    longer = cli("resume", run, "--total-steps", "1024")
    assert longer.code == 0 and "resuming at step 512" in longer.out
    assert json.loads(next(run.glob("*/result.json")).read_text())["steps"] == 1024
    assert json.loads(cli("eval", run, "--episodes", "2", "--json").out)["episodes"] == 2
    assert cli("watch", run, "--gif", "a.gif").code == 0 and Path("a.gif").stat().st_size > 1000
    assert cli("plot", run).code == 0 and (run / "plot.png").exists()
    searched = cli("grid", "outside.my_a2c", *TINY, "--total-steps", "128", "--seed", "1", "2", "--workers", "2")
    assert searched.code == 0 and re.search(r"grid +1,2 .* finished", searched.out)
    assert spinup.load(run).act([0.0, 0.0, 0.0, 0.0]) in (0, 1)


# Catches: settings of a variant or a preset that are read only from the folder of this library.
def test_toml_file_of_a_module_has_variants_and_presets(cli, outside):
    done = cli("outside.my_a2c:my_a2c_without_entropy", *TINY, "--total-steps", "128", "--exp-name", "x")
    config = json.loads(Path("runs/x/x_s1/config.json").read_text())
    assert done.out.startswith("preset: CartPole-v1\n")
    assert config["algorithm"] == "outside.my_a2c:my_a2c_without_entropy" and config["config"]["entropy_coef"] == 0
    refused = cli("outside.my_a2c:my_a2c_without", *TINY)
    assert refused.code == 2 and "there is no" in refused.err


@pytest.fixture
def distribution(outside, tmp_path, monkeypatch):
    """An installed distribution that registers the module with an entry point."""
    about = tmp_path / "site" / "somebody-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[spinup.algorithms]\nmy_a2c = outside.my_a2c\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    registry.installed.cache_clear()


# Catches: entry points that one command or function uses and another ignores.
def test_entry_point_registers_an_algorithm(cli, distribution, tmp_path):
    result = spinup.my_a2c("CartPole-v1", total_steps=128, num_envs=2, hidden=(8,), threads=1, quiet=True,
                           log_dir=str(tmp_path / "runs"))
    assert result.status == "finished" and "my_a2c_CartPole-v1_1" in str(result.directory)
    assert cli("my_a2c_without_entropy", *TINY, "--total-steps", "128").code == 0
    assert cli("eval", result.directory, "--episodes", "1").code == 0
    assert "my_a2c | my_a2c_without_entropy  Advantage actor-critic" in cli("algos").out
    assert "Did you mean 'my_a2c'?" in cli("my_a2x").err


# Catches: an import of the module that config.json names, even from a folder of runs.
def test_module_in_a_folder_of_runs_is_not_imported(cli, tmp_path, monkeypatch):
    folder = tmp_path / "runs" / "x"
    run = folder / "x_s1"
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"algorithm": "runs.x.evil", "config": {"env": "CartPole-v1"}}))
    harm = "open('harm', 'w')\nclass Config: ...\ndef train(): ...\n"
    for place in (folder / "evil.py", tmp_path / "runs" / "evil.py"):
        place.write_text(harm)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("runs.x.evil", "runs.evil"):
        (run / "config.json").write_text(json.dumps({"algorithm": name, "config": {"env": "CartPole-v1"}}))
        for command in ("resume", "watch", "eval"):
            done = cli(command, run)
            assert done.code == 2 and "is not imported from there" in done.err
    assert not (tmp_path / "harm").exists()


# Catches: the message `there is no algorithm`, which neither names the missing module nor tells how to restore it.
@pytest.mark.parametrize("name", ["gone.my_a2c", "llm gone.my_method:variant"])
def test_missing_module_of_a_run_is_named(cli, tmp_path, name):
    run = tmp_path / "runs" / "x" / "x_s1"
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"algorithm": name, "config": {"env": "CartPole-v1", "seed": 1}}))
    module = name.removeprefix("llm ").partition(":")[0]
    for command in ("resume", "watch", "eval"):
        done = cli(command, run)
        assert done.code == 2 and "Traceback" not in done.err
        assert f"but there is no module {module}; install its package, or type this command in the folder" in done.err


# Catches: a module without Config or train that counts as an algorithm, or that is imported for this check.
@pytest.mark.parametrize("name", ["antigravity", "json.tool", "no_such_package.algo", "ppo."])
def test_unrelated_module_is_not_an_algorithm(name):
    with pytest.raises(UserError, match="there is no"):
        registry.find(name)


# Catches: a page that shows a file other than the tested one.
def test_documentation_shows_the_tested_example():
    page = (TESTS.parent / "docs" / "using" / "your_algorithm.md").read_text(encoding="utf-8")
    assert EXAMPLE.read_text(encoding="utf-8") in page
    assert EXAMPLE.with_suffix(".toml").read_text(encoding="utf-8").strip() in page
    assert len(EXAMPLE.read_text().splitlines()) <= 75


@pytest.fixture
def write(distribution, tmp_path):
    """`write(toml, **texts)`: replace texts of the example, given as (old, new), and write a TOML file beside it."""
    def change(toml="", **texts):
        path = tmp_path / "modules" / "outside" / "my_a2c.py"
        code = path.read_text()
        for old, new in texts.values():
            assert old in code
            code = code.replace(old, new)
        path.write_text(code)
        path.with_suffix(".toml").write_text(toml)
        return path
    return change


# Catches: a family that is inferred from the words typed and not from the Config.
def test_algorithm_of_the_other_family_is_refused(cli, outside):
    done = cli("llm", "outside.my_a2c", "--total-steps", "256")
    assert done.code == 2
    assert "outside.my_a2c is not a method for language models; type: spinup outside.my_a2c" in done.err
    done = cli("outside.my_method", "--total-steps", "1")
    assert done.code == 2
    assert "outside.my_method is a method for language models; type: spinup llm outside.my_method" in done.err
    assert not Path("runs").exists()


# Catches: a search that imports the parent packages of a module; a faulty entry point that ends the list of all
# algorithms; a method whose name is taken and that is found nevertheless; a variant that is lost because a faulty entry
# point has its name.
def test_broken_entry_point_breaks_nothing_else(cli, distribution, tmp_path):
    package = tmp_path / "modules" / "mypk"
    package.mkdir()
    (package / "__init__.py").write_text("raise ValueError('broken on purpose')\n")
    (package / "algo.py").write_text("class Config: ...\ndef train(): ...\n")
    (package / "torn.py").write_text("class Config: ...\ndef train(): ...\n")
    (package / "torn.toml").write_text("order = = 1")
    (tmp_path / "site" / "somebody-1.0.dist-info" / "entry_points.txt").write_text(
        "[spinup.algorithms]\nmy_a2c_without_entropy = mypk.nothing\nmy_a2c = outside.my_a2c\n"
        "good = mypk.algo\nbad = mypk.algo:train\n"
        "none = mypk.nothing\ntorn = mypk.torn\nppo = mypk.algo\nwatch = outside.my_a2c\nb a d = mypk.algo\n")
    registry.installed.cache_clear()
    listed = cli("algos")
    assert listed.code == 0 and "my_a2c | my_a2c_without_entropy" in listed.out
    assert {*registry.installed()} == {"my_a2c", "my_a2c_without_entropy", "good"}
    for line in ("bad = 'mypk.algo:train' is broken: it must name only a module, 'mypk.algo'", "no module mypk.nothing",
                 "torn = 'mypk.torn' is broken", "cannot be used as ppo, which is an algorithm of this library; type: "
                 "spinup mypk.algo", "cannot be used as watch, which is a command; type: spinup outside.my_a2c",
                 "entry point b a d = 'mypk.algo' is broken: its name must be one word"):
        assert line in listed.out, line
    assert "there is no command" in cli("nonsense").err and "there is no algorithm" in cli("grid", "ppoo").err
    assert not hasattr(spinup, "nonsense") and callable(spinup.my_a2c)
    assert "must name only a module" in cli("bad").err and "cannot be read" in cli("grid", "torn").err
    with pytest.raises(ValueError, match="broken on purpose") as raised:
        cli("good")
    assert "the module mypk.algo" in raised.value.__notes__[0]
    assert "mean 'b a d'" not in cli("b a d").err


# Catches: contents of a TOML file that are used without a check.
@pytest.mark.parametrize("toml, said", [
    ("[variants.x]\nlrr = 1", "[variants.x] has a key that is not a setting of Config: 'lrr'. Did you mean 'lr'?"),
    ('[presets."CartPole-v1"]\nlrr = 1', '[presets."CartPole-v1"] has a key that is not a setting of Config: \'lrr\''),
    ("[variants.x]\nlr = -1", "in [variants.x], --lr must be above 0"),
    ("variants = 3", "variants must be tables of settings"), ("[variants]\nx = 1", "variants must be tables"),
    ("presets = 3", "presets must be tables"), ('[presets]\n"CartPole-v1" = 3', "presets must be tables"),
    ('parent = "vpgg"', "parent = 'vpgg': there is no algorithm 'vpgg'. Did you mean 'vpg'?"),
    ("metrics = 3", "metrics must be a table of strings"), ('actions = "Box"', "actions must be a list of some of"),
    ('actions = ["Boxx"]', "actions must be a list of some of"), ("orders = 1", "no key 'orders'. Did you mean")])
def test_wrong_contents_of_a_toml_file_are_named(cli, write, toml, said):
    path = write(toml)
    done = cli("outside.my_a2c", *TINY, "--total-steps", "128")
    assert done.code == 2 and f"{path.with_suffix('.toml')}: " in done.err and said in done.err
    assert not Path("runs").exists() and cli("algos").code == 0


# Catches: a module that is used before it is checked.
@pytest.mark.parametrize("old, new, said", [
    ("class Config(BaseConfig):", "class Config:", "Config must be a dataclass derived from spinup.runs.config.Base"),
    ("@dataclass(kw_only=True)\n", "", "Config must be a dataclass; write @dataclass(kw_only=True)"),
    ("Count = 8 ", "Count ", "the setting rollout_steps of Config must have a default"),
    ("Count = 8 ", "Count = 8\n    help: Count = 9  # ", "the setting help of Config must have another name"),
    ("Count = 8 ", "Count = 8\n    ONLY_WITH = {'gamma': 'lamm'}  # ", "ONLY_WITH of Config must map a setting to"),
    ("Count = 8 ", "Count = 8\n    ONLY_WITH = {'gamma': ()}  # ", "ONLY_WITH of Config must map a setting to"),
    ("Count = 8 ", "Count = 8\n    ONLY_WITH = ['gamma']  # ", "ONLY_WITH of Config must map a setting to"),
    ("lr: Positive = 2e-3", "lr = 2e-3", "the setting lr of Config must have a type, as in lr: float = 0.002"),
    ("Count = 8 ", "Count = 8\n    total_steps = 500  # ", "the setting total_steps of Config must have a type, as in"),
    ("Count = 8 ", "Count = 8\n    lst: list = None  # ", "the setting lst of Config cannot have the type list;"),
    ("return run.result(policy)", "run.result(policy)", "train of outside.my_a2c must end with `return run.result(p"),
    (", resume: str | Path | None = None)", ")", "there must be a function train(cfg, resume=None)"),
    ("def make_policy", "def make", "there must be a function make_policy(cfg, observation_space, action_space)")])
def test_wrong_module_is_refused_before_files_are_created(cli, write, old, new, said):
    path = write(change=(old, new))
    done = cli("outside.my_a2c", *TINY, "--total-steps", "128")
    assert done.code == 2 and f"{path}: {said}" in done.err and not Path("runs").exists()
    searched = cli("grid", "outside.my_a2c", *TINY, "--total-steps", "128", "--seed", "1", "2")
    assert searched.code == 2 and said in searched.err and not Path("runs").exists()


# Catches: a module that ends the command without a message; a module that replaces a measured column; a logged
# tensor whose mean was forgotten.
@pytest.mark.parametrize("old, new, said", [
    ("@dataclass(kw_only=True)\n", "raise SystemExit(3)\n", "called sys.exit(3) during its import"),
    ("return run.result(policy)", "return stats", "train must end with `return run.result(policy)`, but it returned"),
    ("run.log(", "run.log(steps=1, ", "run.log must not get steps, a column that the run writes itself"),
    ("run.log(", "run.log(return_mean_100=0.0, ", "run.log must not get return_mean_100, a column that the run writes"),
    ("run.log(", "run.log(rewards=torch.zeros(3), ", "run.log must get one number for rewards, not [3]")])
def test_error_in_a_module_gives_one_sentence(cli, write, old, new, said):
    write(change=(old, new))
    done = cli("outside.my_a2c", *TINY, "--total-steps", "128")
    assert done.code == 2 and said in done.err and "Traceback" not in done.err


# Catches: a run that trains a policy and does not save it.
@pytest.mark.parametrize("change", [("policy=policy, optimizer", "net=policy, optimizer"), ("run.keep(", "dict(")])
def test_training_without_the_policy_in_its_checkpoint_is_refused(cli, write, change):
    write(change=change)
    done = cli("outside.my_a2c", *TINY, "--total-steps", "128", "--exp-name", "x")
    assert done.code == 2 and not Path("runs/x/x_s1/checkpoint.pt").exists()
    assert "train of outside.my_a2c saves no policy; call run.keep(policy=..., optimizer=...) before" in done.err


# Catches: a run that resumes with a new network; a traceback for a policy that is missing in the checkpoint.
def test_checkpoint_without_a_policy_is_named(cli, write):
    write()
    run, file = "runs/x/x_s1", Path("runs/x/x_s1/checkpoint.pt")
    assert cli("outside.my_a2c", *TINY, "--total-steps", "128", "--exp-name", "x").code == 0
    state = load_checkpoint(file)
    state["parts"].pop("policy")
    save_checkpoint(file, state)
    before = file.read_bytes()
    done = cli("resume", run, "--total-steps", "256")
    assert done.code == 2 and "the checkpoint of this run of outside.my_a2c has no part called policy" in done.err
    assert file.read_bytes() == before and json.loads(Path(run, "result.json").read_text())["steps"] == 128
    assert "has no part called policy; in the function train of outside.my_a2c" in cli("eval", run).err


# Catches: a resumed run that ends without a result, because its file has changed.
def test_resume_needs_a_train_that_returns_its_result(cli, write):
    write()
    assert cli("outside.my_a2c", *TINY, "--total-steps", "128", "--exp-name", "x").code == 0
    write(change=("return run.result(policy)", "return None"))
    del sys.modules["outside.my_a2c"]
    said = "train of outside.my_a2c must end with `return run.result(policy)`"
    done = cli("resume", "runs/x/x_s1", "--total-steps", "256")
    assert done.code == 2 and said in done.err
    module = import_module("outside.my_a2c")
    with pytest.raises(UserError, match=re.escape(said)):
        module.train(module.Config(total_steps=128, exp_name="y"))
    assert not Path("runs/y").exists()


# Catches: a constant, function or property of a Config that is taken for a setting without a type.
def test_class_may_have_constants_and_functions(cli, write):
    write(change=("Count = 8 ", "Count = 8\n    ABOUT = 'x'\n    SIZES = (1, 2)\n    _own = 3\n"
                                "    half = property(lambda cfg: cfg.lr / 2)\n    twice = lambda cfg: cfg.lr * 2  # "))
    assert cli("outside.my_a2c", "--help").code == 0


# Catches: a type that is accepted and whose values are then refused or not checked.
def test_types_of_settings_are_those_that_can_be_converted():
    for hint in (bool, int, float, str, Positive, Widths, Literal["a", "b"], int | None, str | Callable, str | object,
                 Literal["a"] | None, tuple[float, ...], Positive | None):
        assert plugin.supported(hint), hint
    for hint in (list, dict, tuple, Path, Any, list[int], int | float, Literal[1, 2], tuple[int, str], None,
                 Annotated[int, "words"], Callable[[int], int]):
        assert not plugin.supported(hint), hint


# Catches: a file that is silently ignored because the library uses its name; a file that is imported for this
# check; a note about a file that is no algorithm, or about the library's own file.
def test_file_with_the_name_of_a_built_in_algorithm_is_reported(cli, monkeypatch):
    harm = "open('harm', 'w')\nclass Config: ...\ndef train(): ...\n"
    for name in ("ppo", "grpo", "plot", "vpg"):
        Path(f"{name}.py").write_text(harm if name != "vpg" else "print()\n")
    said = "spinup: {} is the library's {}, not ./{}.py; rename your file to use it\n"
    assert cli("ppo", "--help").err == said.format("ppo", "algorithm", "ppo")
    assert cli("grid", "ppo", "--nonsense", "1").err.startswith(said.format("ppo", "algorithm", "ppo"))
    assert cli("llm", "grpo", "--help").err == said.format("llm grpo", "algorithm", "grpo")
    assert cli("plot", "--help").err == said.format("plot", "command", "plot")
    assert cli("vpg", "--help").err == cli("trpo", "--help").err == "" and not Path("harm").exists()
    monkeypatch.chdir(Path(spinup.__file__).parent / "algos")
    assert registry.hidden("ppo") == ""


# Catches: a message that there is no such algorithm, although its file is in the current folder.
@pytest.mark.parametrize("file, typed, code, said", [
    ("no_train", "no_train", "class Config: ...\n", "no_train.py has no function train; see docs/using/your"),
    ("no_train", "no_train.py", "class Config: ...\n", "no_train.py has no function train; see docs"),
    ("no_train", "no_train:x", "class Config: ...\n", "no_train.py has no function train; see docs"),
    ("no_config", "no_config", "def train(): ...\n", "no_config.py has no class Config; see docs"),
    ("neither", "neither", "", "neither.py has no class Config and no function train; see docs"),
    ("my-a2c", "my-a2c", "class Config: ...\ndef train(): ...\n", "rename my-a2c.py to my_a2c.py"),
    ("random", "random", "class Config: ...\ndef train(): ...\n", "Python has another module random; rename random")])
def test_file_that_is_no_algorithm_is_explained(cli, file, typed, code, said):
    Path(f"{file}.py").write_text(code)
    for words in ((typed,), ("llm", typed), ("grid", typed, "--seed", "1")):
        done = cli(*words)
        assert done.code == 2 and said in done.err


# Catches: a help text that requires a comment for each setting.
def test_setting_may_have_no_comment(cli, write):
    write(change=("Count = 8 ", "Count = 8\n    other: Count = 9  # "))
    done = cli("outside.my_a2c", "--help")
    assert done.code == 0 and re.search(r"--rollout-steps .*no description", done.out)


# Catches: columns that are read only for installed algorithms.
def test_metrics_of_a_module_are_shown(cli, write):
    write('[metrics]\nmy_column = "known here alone"')
    assert re.search(r"my_column +known here alone", cli("metrics", "outside.my_a2c").out)
    assert "my_column" in cli("metrics").out
    assert "ppo has no columns of its own" in cli("metrics", "ppo").err


# Catches: an error message without the name to type.
def test_nearly_correct_name_gets_the_name_to_type(cli, outside):
    for typed in ("outside.my_a2c.py", "outside/my_a2c.py"):
        assert f"instead of {typed} type outside.my_a2c\n" in cli(typed).err
    assert "type outside.my_a2c:my_a2c_without_entropy" in cli("outside.my_a2c:xx").err
