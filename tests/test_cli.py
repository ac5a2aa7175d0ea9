"""The command line: wrong input gets one sentence before any file is created, and correct input works."""
import importlib
import json
import os
import pickle
import random
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Text

from spinup import __version__, load
from spinup.algos.ppo import Config
from spinup.cli import COMMANDS
from spinup.errors import UserError
from spinup.registry import algorithms
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.config import comments
from spinup.runs.convert import flag
from spinup.runs.folders import lock
from spinup.runs.training import Training
from spinup.runs.trust import check_modules

ALGORITHMS = {name: algorithm for name, algorithm in algorithms().items() if not algorithm.variant}

TINY = ["--preset", "none", "--total-steps", 512, "--num-envs", 2, "--rollout-steps", 32, "--quiet", "--tensorboard",
        "false"]
RUN = Path("runs/x/x_s1")


class Acts(gymnasium.Env):
    """A base class for environments whose action spaces no algorithm here supports. They are inspected, not run."""

    observation_space = Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


class ActsDict(Acts):
    action_space = Dict(go=Discrete(2), turn=Box(-1, 1))


class ActsText(Acts):
    action_space = Text(3)


class ActsManyWholeNumbers(Acts):
    action_space = Box(np.arange(60), np.arange(60) + 5, dtype=np.int64)          # numpy prints bounds on several lines


for kind in (ActsDict, ActsText, ActsManyWholeNumbers):
    gymnasium.register(f"{kind.__name__}-v0", kind)

WRONG = {                                                                 # the input, and part of the error message
    "command": ("pop", "no command or algorithm 'pop'. Did you mean 'ppo'?"),
    "command of no likeness": ("zzzzzz", "no command or algorithm 'zzzzzz'. `spinup --help`"),
    "environment": ("ppo --env CartPol-v1", "no environment 'CartPol-v1'. Did you mean 'CartPole-v1'?"),
    "case": ("ppo --env halfcheetah-v5", "Did you mean 'HalfCheetah-v5'?"),
    "empty module": ("ppo --env nosuch:Thing-v0", "names the package 'nosuch', which cannot be imported"),
    "flag": ("ppo --totl-steps 5", "spinup ppo has no flag --totl-steps. Did you mean '--total-steps'?"),
    "flag with value": ("vpg --lam-bda=3", "spinup vpg has no flag --lam-bda. Did you mean '--lam'?"),
    "flag cut short": ("ppo --total 512", "spinup ppo has no flag --total."),
    "no value": ("ppo --total-steps", "--total-steps: expected one argument (if it begins with -, write "
                 "--total-steps=VALUE); see `spinup ppo --help`"),
    "flag of others": ("ppo --timesteps 5", "spinup ppo has no flag --timesteps. Did you mean '--total-steps'?"),
    "far from all flags": ("ppo --render", "spinup ppo has no flag --render. `spinup ppo --help` lists them"),
    "stray word": ("ppo CartPole-v1", "'CartPole-v1'; if it is an environment, write --env CartPole-v1"),
    "list": ("ppo --hidden 64 64", "what to do with '64'; join several numbers with commas, as in 64,64"),
    "number": ("ppo --lr fast", "--lr must be a number, not 'fast'"),
    "range": ("ppo --gamma 1.5", "--gamma must be from 0 to 1, not 1.5"),
    "truth": ("ppo --anneal perhaps", "--anneal must be true or false, not 'perhaps'"),
    "seed": (f"ppo --seed {2**63}", "--seed must be below 2^63, which is 9.2e18; choose a smaller number"),
    "minibatches": ("ppo --num-envs 4 --rollout-steps 25 --minibatches 3",
                    "--minibatches 3 does not divide a batch of --num-envs 4 x --rollout-steps 25 = 100"),
    "one step": ("ppo --num-envs 1 --rollout-steps 8 --minibatches 8", "choose --minibatches below 8"),
    "too short": ("ppo --total-steps 10", "--total-steps 10 is less than one batch of"),
    "preset": ("ppo --preset CartPol-v1", "no preset 'CartPol-v1'; choose from auto, none, CartPole-v1"),
    "config missing": ("ppo --config nowhere.toml", "--config nowhere.toml: no such file or directory"),
    "config a folder": ("ppo --config empty", "is not a regular file"),
    "config not TOML": ("ppo --config file", "--config file is not TOML"),
    "config key": ("ppo --config key.toml", "key.toml: there is no setting 'totl_steps'. Did you mean 'total_steps'?"),
    "config value": ("ppo --config value.toml", "--lr must be above 0, not -1.0"),
    "config environment": ("ppo --config env.toml", "--env must be text, not 5"),
    "device": ("ppo --device toaster", "--device must be auto, cpu, cuda, cuda:1 or mps, not 'toaster'"),
    "device absent": ("ppo --device cuda:99", "there is no device 'cuda:99' here"),
    "log dir a file": ("ppo --log-dir file", "--log-dir file cannot be written to"),
    "log dir in a file": ("ppo --log-dir file/a/b", "--log-dir file/a/b cannot be written to"),
    "name in a file": ("ppo --log-dir . --exp-name file",
                       "cannot create file/file_s1 (not a directory); choose another --log-dir or --exp-name"),
    "name a path": ("ppo --exp-name a/b", "--exp-name must be the name of a folder, not 'a/b'; use --log-dir"),
    "wandb": ("ppo --wandb", "pip install wandb"),
    "actions dict": ("ppo --env ActsDict-v0", "ppo cannot act in Dict('go': Discrete(2), 'turn': Box(-1.0, 1.0, (1,), "
                                              "float32)); it supports Discrete"),
    "actions text": ("vpg --env ActsText-v0", "vpg cannot act in Text"),
    "actions long": ("ppo --env ActsManyWholeNumbers-v0", "ppo cannot act in Box("),
    "resume nothing": ("resume", "the following arguments are required: DIR"),
    "grid word": ("grid ppo 3", "spinup grid does not know what to do with '3'"),
    "grid flag": ("grid ppo --lrr 3", "spinup ppo has no flag --lrr. Did you mean '--lr'?"),
    "grid algorithm": ("grid pop --seed 3", "no algorithm 'pop'. Did you mean 'ppo'?"),
    "grid seeds": ("grid ppo --seed --gamma 0.9", "--seed needs a value, as in --seed 1"),
    "grid workers": ("grid ppo --seed 1 --workers 2 4", "--workers takes one value, not 2 4"),
    "no environment": ("ppo --env=", "--env is empty; write --env ID, or leave it out"),
    "endless config": ("ppo --config /dev/zero", "--config /dev/zero is not a regular file"),
    "empty width": ("ppo --hidden 64,,64", "--hidden must be a whole number, not ''"),
    "config twice": ("ppo --config twice.toml", "twice.toml has num-envs and num_envs, which are the same setting"),
    "long name": (f"ppo --exp-name {'x' * 300}", "has 300 bytes, but at most 200"),
    "threads": ("ppo --threads 100000", "--threads must be from 0 to 256, not 100000"),
    "seed twice": ("bench returns ppo --seeds 1 2 1", "--seeds has 1 more than once; give each value once"),
    "flag of another benchmark": ("bench returns ppo --rounds 3", "spinup bench returns has no flag --rounds"),
    "benchmark": ("bench time", "invalid choice: 'time'"),
    "huge": ("ppo --clip-ratio 1e300", "--clip-ratio must be from -1e+30 to 1e+30, not 1e+300"),
    "return": ("bench time-to ppo --return nan", "--return must be a finite number, not nan"),
    "algorithm of a benchmark": ("bench time-to pop", "no algorithm 'pop'. Did you mean 'ppo'?"),
    "method of a benchmark": ("bench accuracy reward_model", "invalid choice: 'reward_model'"),
    "task without right answers": ("bench accuracy grpo --task taste", "--task taste has no correct answers to count"),
    "episodes": ("eval runs --episodes 0", "--episodes must be from 1 to 100000, not 0"),
    "init": ("ppo --init=", "--init is empty; write --init DIR, or leave it out"),
    "model": ("llm sft --model=", "--model is empty; write --model DIR, or leave it out"),
    "init of a grid": ("grid ppo --init nothere --seed 0 1", "nothere holds no run"),
    "init of a language model": ("ppo --init speaker", "--init speaker is a run of a language model; choose a run of"),
    "envs": ("envs --grep CartPolo", "no environment has 'CartPolo' in its id."),
    **{f"{command} {where}": (f"{command} {where}", where if where == "nowhere" else f"{where} holds no run")
       for command in ("resume", "eval", "watch", "plot") for where in ("nowhere", "empty")},
    **{f"{command} of another program's config.json": (f"{command} alien", "alien")
       for command in ("resume", "eval", "watch", "plot")},
}


# Catches: an error of several lines that cli.py prints unchanged (case "actions long").
@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_gets_one_sentence_and_creates_nothing(case, cli, tree, tmp_path, recwarn):
    typed, words = WRONG[case]
    (tmp_path / "empty").mkdir()
    (tmp_path / "alien").mkdir()
    (tmp_path / "alien/config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    (tmp_path / "speaker").mkdir()
    (tmp_path / "speaker/config.json").write_text('{"algorithm": "llm sft", "config": {}}')
    (tmp_path / "file").write_text("no = = TOML")
    (tmp_path / "key.toml").write_text("totl_steps = 3")
    (tmp_path / "value.toml").write_text("lr = -1")
    (tmp_path / "env.toml").write_text("env = 5")
    (tmp_path / "twice.toml").write_text("num-envs = 3\nnum_envs = 4")
    before = tree()
    check_refused(cli(*typed.split()), words)
    assert tree() == before and unwarned(recwarn)


def unwarned(recwarn) -> bool:
    """Whether no UserWarning accompanied the error message."""
    return not [w for w in recwarn if issubclass(w.category, UserWarning)]


def check_refused(done, words: str) -> None:
    assert done.code == 2
    assert done.err.startswith("spinup: ") and done.err.count("\n") == 1 and done.err.endswith("\n")
    assert words in done.err


def test_absent_gpu_is_refused(cli, tree, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    check_refused(cli("ppo", "--device", "cuda"),
                  "there is no device 'cuda' here (torch sees 0 CUDA devices); type --device cpu")
    assert tree() == []


class Hide:
    """An import finder that hides one package, as if it were not installed."""

    def __init__(self, finder, package: str):
        self.finder, self.package = finder, package

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *args):
        return None if name.partition(".")[0] == self.package else self.finder.find_spec(name, *args)


@pytest.mark.parametrize(("package", "extra", "env"), [
    ("Box2D", "box2d", "LunarLander-v3"), ("Box2D", "box2d", "BipedalWalker-v3"),
    ("minigrid", "grid", "MiniGrid-Empty-5x5-v0"),
    ("ale_py", "atari", "ALE/Pong-v5"), ("ale_py", "atari", "PongNoFrameskip-v4"),
    ("supersuit", "multi", "butterfly/pistonball-v6"), ("mpe2", "multi", "mpe/simple_spread-v3"),
    ("multi_agent_ale_py", "multi", "atari/pong-v3"), ("rlcard", "multi", "classic/gin_rummy-v4")])
def test_missing_extra_is_named_with_its_pip_command(package, extra, env, cli, tree, monkeypatch):
    hide(package, monkeypatch)
    check_refused(cli("ppo", "--env", env), f"{package}; type: pip install 'spinup-rl[{extra}]'\n")
    assert tree() == []
    if extra in ("box2d", "multi"):                                       # the others are already registered
        assert env not in cli("envs").out.split()


# Catches: a check for the package minigrid although the environment is implemented in this library.
def test_built_in_gridworlds_need_no_minigrid_package(cli, monkeypatch):
    hide("minigrid", monkeypatch)
    assert cli("ppo", "--env", "MiniGrid-DoorKey-8x8", *TINY[2:], "--exp-name", "x").code == 0


def hide(package: str, monkeypatch) -> None:
    """Hide a package, as if it were not installed."""
    for name in [m for m in sys.modules if m.partition(".")[0] == package or m.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Hide(f, package) for f in sys.meta_path])
    importlib.invalidate_caches()


class Bomb:
    """An object that runs code when it is unpickled."""

    def __reduce__(self):
        return open, ("exploded.txt", "w")


def damaged(path: Path) -> dict[str, bytes]:
    """Wrong contents of a checkpoint file, by name."""
    whole = path.read_bytes()
    state = torch.load(path, weights_only=True)
    found = {"empty": b"", "cut after the head": whole[:10], "cut in half": whole[:len(whole) // 2],
             "cut at the end": whole[:-1], "text": b"hello\n",
             "pickle with code": pickle.dumps({"algorithm": "ppo", "x": Bomb()}),
             "pickle of protocol 2": pickle.dumps({"x": Bomb()}, protocol=2)}
    weight = whole.index(next(iter(state["parts"]["policy"].values())).numpy().tobytes())
    found["one byte of a weight changed"] = whole[:weight + 3] + bytes([whole[weight + 3] ^ 64]) + whole[weight + 4:]
    for name, content in {"torch file with code": {**state, "x": Bomb()}, "not of a run": [1, 2],
                          "of vpg": {**state, "algorithm": "vpg"},
                          "of another network": {**state, "parts": {**state["parts"], "policy": {}}}}.items():
        torch.save(content, path)
        found[name] = path.read_bytes()
    return found


# Catches: accepted zip attributes that torch never writes, with which it reads uninitialised memory; accepted
# compressed parts; a checksum that is not compared.
def test_changed_bytes_of_a_checkpoint_are_refused_or_harmless(cli, tmp_path):
    assert cli("ppo", *TINY, "--exp-name", "x", "--hidden", 8).code == 0
    path, changed, chance = tmp_path / RUN / "checkpoint.pt", tmp_path / "changed.pt", random.Random(0)
    whole, expected, refused = path.read_bytes(), repr(load_checkpoint(path)), 0
    directory = whole.index(b"PK\x01\x02")                              # directory of the zip file: most fields matter
    parts = [found.start() for found in re.finditer(rb"PK\x01\x02", whole)]
    flips = [(part + offset, bit) for part in parts for offset, bit in ((10, 8), (38, 16))]  # compression, attributes
    flips += [(chance.randrange(start, len(whole)), 1 << chance.randrange(8))
              for start in (0, directory) for _ in range(200)]
    for place, bit in flips:
        changed.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1:])
        try:
            assert repr(load_checkpoint(changed)) == expected, place      # a byte without meaning
        except UserError as error:
            refused += "\n" not in str(error)
    assert refused > 300


# Catches: `weights_only=False` when a checkpoint is loaded (exploded.txt appears); checksums that are not compared; a
# visible warning of torch; a checkpoint of another algorithm that is accepted.
def test_damaged_or_malicious_checkpoint_is_refused_and_runs_no_code(cli, tree, tmp_path, recwarn):
    assert cli("ppo", *TINY, "--exp-name", "x").code == 0
    (tmp_path / RUN / "result.json").unlink()                             # as if the run had been killed
    path = tmp_path / RUN / "checkpoint.pt"
    for name, content in damaged(path).items():
        path.write_bytes(content)
        before = tree()
        for command in ("resume", "eval", "watch"):
            done = cli(command, RUN)
            assert done.code == 2, (name, command, done)
            assert done.err.startswith("spinup: runs/x/x_s1") and done.err.count("\n") == 1, (name, command, done)
            assert name != "of vpg" or "of vpg" in done.err
        with pytest.raises(UserError):
            load(RUN)
        assert not (tmp_path / "exploded.txt").exists(), name
        assert [p for p in tree() if "result.json" not in p] == before, name
        (tmp_path / RUN / "result.json").unlink(missing_ok=True)
    assert unwarned(recwarn)
    path.unlink()
    for result in ({}, []):                                               # neither is the result of a run
        (tmp_path / RUN / "result.json").write_text(json.dumps(result))
        check_refused(cli("eval", RUN), "runs/x/x_s1 holds no checkpoint.pt yet; `spinup resume runs/x/x_s1` starts it "
                                        "from its config.json")
    with lock(tmp_path / RUN):                                            # as if a process were training
        check_refused(cli("eval", RUN), "runs/x/x_s1 is training now and has not saved a checkpoint yet; try again")


# Catches: a missing entry that raises a KeyError only when it is used.
def test_checkpoint_without_an_entry_is_refused(cli, tmp_path):
    assert cli("ppo", *TINY, "--exp-name", "x").code == 0
    (tmp_path / RUN / "result.json").unlink()
    path = tmp_path / RUN / "checkpoint.pt"
    state = load_checkpoint(path)
    for lacking in state.keys() - {"cuda_rng", "settings"}:
        torch.save({name: value for name, value in state.items() if name != lacking}, path)
        check_refused(cli("resume", RUN), "checkpoint")


# Catches: a truncation of rows by their number of bytes alone, which may end within a row.
@pytest.mark.long
def test_changed_progress_csv_is_refused_on_resume(cli, tmp_path):
    assert cli("ppo", *TINY, "--exp-name", "x").code == 0
    path = tmp_path / RUN / "progress.csv"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for changed in ([*lines[:2], *lines[1:]], [*lines[:1], lines[2], lines[1], *lines[3:]],
                    [line.replace(b"\n", b"\r\n") for line in lines]):
        path.write_bytes(b"".join(changed))
        check_refused(cli("resume", RUN, "--total-steps", 1024), "progress.csv has changed since the checkpoint")
        assert path.read_bytes() == b"".join(changed)
    path.write_bytes(b"".join([*lines[:1], lines[2], lines[1], *lines[3:]]))
    check_refused(cli("plot", RUN), "progress.csv is damaged (steps that do not increase)")
    path.write_bytes(whole)
    assert cli("resume", RUN, "--total-steps", 1024).code == 0


# Catches: settings of config.json that are not compared with those of the training.
def test_changed_setting_in_config_json_is_refused_on_resume(cli, tmp_path):
    assert cli("ppo", *TINY, "--exp-name", "x").code == 0
    path = tmp_path / RUN / "config.json"
    begun = json.loads(path.read_text())
    path.write_text(json.dumps({**begun, "config": {**begun["config"], "lr": 1e-9}}))
    check_refused(cli("resume", RUN, "--total-steps", 1024), "config.json has changed since the checkpoint: lr was")


def test_run_name_with_dollar_signs_can_be_plotted(cli, tmp_path):
    name = r"a$\frac{1$"
    assert cli("ppo", *TINY, "--exp-name", name).code == 0 and cli("plot", f"runs/{name}").code == 0


def test_damaged_config_json_is_refused(cli, tmp_path):
    assert cli("ppo", *TINY, "--exp-name", "x").code == 0
    (tmp_path / RUN / "result.json").unlink()
    path = tmp_path / RUN / "config.json"
    whole = json.loads(path.read_text())
    misspelt, other = {**whole["config"], "gama": 1}, {**whole["config"], "hidden": [8]}
    for content, words in {"{": "config.json cannot be read", "[]": "does not belong to a spinup run",
                           json.dumps({**whole, "algorithm": "a2c"}): "no algorithm 'a2c'",
                           json.dumps({**whole, "config": misspelt}): "'gama'. Did you mean 'gamma'?",
                           json.dumps({**whole, "config": other}): "checkpoint"}.items():
        path.write_text(content)
        for command in ("resume", "eval"):
            check_refused(cli(command, RUN), words)
    check_refused(cli("resume", RUN), "config.json has changed since the checkpoint: hidden was")
    check_refused(cli("eval", RUN), "checkpoint.pt does not")


# Catches: contents of a JSON file or a table that are not checked.
def test_other_damaged_files_of_a_run_are_refused(cli, tmp_path):
    assert cli("ppo", *TINY, "--exp-name", "x").code == 0
    for file, content, command, words in (
            ("result.json", b"{}", "resume", "result.json is not the result of a spinup run; delete it"),
            ("result.json", b"[]", "resume", "result.json is not the result of a spinup run; delete it"),
            ("progress.csv", b"steps\nfoo\n", "plot", "damaged (could not convert string to float: 'foo')"),
            ("progress.csv", b"\xff\xfe\n1\n", "plot", "progress.csv is damaged ("),
            ("config.json", b'{"algorithm": "ppo", "config": {"env": "CartPole-v1"}}', "plot",
             "config.json lacks seed; restore it"),
            ("config.json", b'{"algorithm": "ppo", "config": {"env": "CartPole-v1", "seed": 1}}', "plot",
             "config.json lacks measure; restore it"),
            ("config.json", b'{"algorithm": "ppo", "config": {"env": "CartPole-v1", "seed": 1}}', "eval",
             "config.json lacks 'observation_space'"),
            ("config.json", b'{"algorithm": "ppo", "config": {"env": 5, "seed": 1}}', "eval",
             "config.json is damaged (env is 5); restore it"),
            ("config.json", b'{"algorithm": "ppo", "config": {"seed": 1}}', "watch",
             "config.json is damaged (env is None); restore it"),
            ("config.json", b'{"algorithm": "ppo", "config": {"seed": 1}, "measure": 5}', "plot",
             "config.json has 5 for measure; restore it or train again")):
        path = tmp_path / RUN / file
        whole = path.read_bytes()
        path.write_bytes(content)
        check_refused(cli(command, RUN), words)
        assert path.read_bytes() == content
        path.write_bytes(whole)


def test_parent_folder_of_one_run_is_accepted_and_of_several_refused(cli):
    ended = cli("ppo", *TINY, "--exp-name", "x", "--no-quiet")
    assert ended.code == 0 and ended.out.endswith("  spinup resume runs/x/x_s1 --total-steps 1024\n")
    assert "runs/x/x_s1 is finished: 512 steps;" in cli("resume", "runs").out
    assert cli("eval", "runs/x", "--episodes", 1).code == 0
    assert cli("ppo", *TINY, "--exp-name", "y").code == 0
    check_refused(cli("resume", "runs"), "runs holds 2 runs; choose one, such as runs/y/y_s1")


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"], ["help"]])
def test_help_names_every_command_and_algorithm(words, cli):
    done = cli(*words)
    assert done.code == 0 and done.err == ""
    assert all(f"spinup {c} " in done.out for c in COMMANDS)
    assert all(a in done.out.split("ALGORITHM is one of")[1].split("or the dotted")[0] for a in ALGORITHMS)
    assert max(map(len, done.out.splitlines())) <= 120


# Catches: a field that `config_parser` leaves out.
@pytest.mark.parametrize("name", ALGORITHMS)
def test_help_of_an_algorithm_explains_every_setting(name, cli):
    done = cli(name, "--help")
    assert done.code == 0
    said = " ".join(done.out.split())
    for field, comment in comments(ALGORITHMS[name].load().Config).items():
        assert f"{flag(field)} " in said and " ".join(comment.split()) in said, field


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_text(command, cli, tree):
    done = cli(command, "--help")
    assert done.code == 0 and done.out.startswith(f"usage: spinup {command}") and done.err == ""
    assert tree() == []


def test_settings_can_be_typed_in_the_usual_notations(cli, tmp_path):
    (tmp_path / "mine.toml").write_text("epochs = 2\nlr = 1e-4\nhidden = [16, 16]\n")
    assert cli("ppo", "--config", "mine.toml", "--total_steps", "1e3", "--num-envs=4", "--rollout-steps", "3_2",
               "--hidden", "32,32", "--no-tensorboard", "--normalise-obs", "--anneal", "no", "--quiet", "true",
               "--exp-name", "x").code == 0
    config = json.loads((tmp_path / RUN / "config.json").read_text())["config"]
    assert (config["total_steps"], config["num_envs"], config["rollout_steps"]) == (1000, 4, 32)
    assert config["hidden"] == [32, 32]
    assert (config["epochs"], config["lr"], config["gamma"]) == (2, 1e-4, 0.98)              # file, file, preset
    truths = [config[name] for name in ("tensorboard", "normalise_obs", "anneal", "quiet")]
    assert truths == [False, True, False, True]
    assert not list((tmp_path / RUN).glob("events*"))


@pytest.mark.long
def test_first_line_names_the_preset(cli):
    small = ["--total-steps", 1024, "--num-envs", 4, "--rollout-steps", 64]
    assert cli("ppo", *small).out.startswith("preset: CartPole-v1\n")
    assert cli("ppo", *small, "--preset", "none").out.startswith("preset: none; defaults for discrete actions\n")
    assert cli("vpg", *small, "--env", "CliffWalking-v1").out.startswith("preset: none; the defaults apply\n")


def run(*words: object, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True, timeout=120)


# Catches: `import torch` at the top of cli.py; `torch.nn.attention.bias`, which takes three seconds, at the top of
# score.py.
def test_help_is_fast_and_imports_are_lazy(tmp_path):
    seconds = []
    for _ in range(3):
        before = os.times()
        assert run(sys.executable, "-m", "spinup", "--help", cwd=tmp_path).returncode == 0
        after = os.times()
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(seconds) < 0.5                                             # CPU time, even if the machine is busy
    for code in ("import sys, spinup.cli; spinup.cli.run(['--help']); "
                 "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'gymnasium', 'rich')))",
                 "import sys, spinup, llm; dir(spinup), dir(llm); sys.exit('torch' in sys.modules)",
                 "import sys, spinup.cli; spinup.cli.run(['llm']); sys.exit('torch' in sys.modules)",
                 "import sys, spinup.algos.ppo, llm.algos.grpo; sys.exit('torch._dynamo' in sys.modules)"):
        assert run(sys.executable, "-c", code, cwd=tmp_path).returncode == 0


@pytest.mark.long
def test_three_names_of_the_command_behave_the_same(tmp_path):
    console = Path(sys.executable).with_name("spinup.exe" if os.name == "nt" else "spinup")
    assert entry_points(group="console_scripts")["spinup"].value == "spinup.cli:main"
    names = [console], [sys.executable, "-m", "spinup"], [sys.executable, "-m", "spinup.run"]
    for words in (["--version"], ["--help"], ["pop"]):
        a, *others = (run(*name, *words, cwd=tmp_path) for name in names)
        assert all((a.returncode, a.stdout, a.stderr) == (b.returncode, b.stdout, b.stderr) for b in others)
        assert words != ["--version"] or a.stdout == f"spinup {__version__}\n"
        assert words != ["pop"] or (a.returncode == 2 and a.stderr.startswith("spinup: "))


@pytest.mark.long
def test_printed_next_commands_work_in_separate_processes(start, tmp_path):
    trained = start("ppo", "--total-steps", "6e3", "--num-envs", 4, "--rollout-steps", 32,
                    program=(sys.executable, "-m", "spinup.run")).end()
    assert trained.code == 0 and trained.err == ""
    advice = [line.split() for line in trained.out.splitlines()[-4:]]
    assert [words[:2] for words in advice] == [["spinup", c] for c in ("plot", "watch", "eval", "resume")]
    evaluated = start(*advice[2][1:], "--episodes", 20, "--json").end()
    assert evaluated.code == 0
    assert json.loads(evaluated.out)["mean"] > 50                         # a random policy reaches 22
    plotted = start(*advice[0][1:]).end()
    assert plotted.code == 0 and "ppo_CartPole-v1_1" in plotted.out
    assert list(tmp_path.rglob("*.svg"))


# Catches: an import of a module in a folder of runs, which may come from an untrusted source.
@pytest.mark.parametrize("settings", [{"env": "runs.exp.evil:X-v0"}, {"env": "runs.exp.exp_s1.evil:X-v0"},
                                      {"env": "runs.my exp.evil:X-v0"}])
def test_no_command_imports_a_module_from_a_folder_of_runs(settings, cli, tmp_path):
    done = cli("ppo", "--exp-name", "exp", "--total-steps", 64, "--num-envs", 2, "--rollout-steps", 16,
               "--minibatches", 1, "--quiet")
    assert done.code == 0
    run = tmp_path / "runs/exp/exp_s1"
    (other := tmp_path / "runs/my exp").mkdir()
    for folder in (run, run.parent, other):
        (folder / "evil.py").write_text("raise SystemExit('imported')")
    about = json.loads((run / "config.json").read_text())
    about["config"] |= settings
    (run / "config.json").write_text(json.dumps(about))
    for command in "eval", "watch", "resume":
        done = cli(command, run)
        assert done.code == 2 and "is Python code in a folder of runs, which is not imported" in done.err
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="is Python code in a folder of runs, which is not imported"):
        Training(Config(**settings, log_dir="runs", exp_name="new"), "x", torch.device("cpu"), 1)
    assert sorted(tmp_path.rglob("*")) == before


# Catches: an unchecked list of rewards, path with a space, or setting other than the task and the reward; an untrusted
# folder of runs as the working folder; a refusal of the user's own file.
def test_code_in_a_folder_of_runs_is_refused_in_every_setting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/exp/exp_s1", "runs/my exp"):
        Path(folder).mkdir(parents=True)
    for file in ("runs/exp/evil.py", "runs/my exp/evil.py", "mine.py"):
        Path(file).write_text("")
    run = tmp_path / "runs/exp/exp_s1"
    for settings in ({"reward": ["runs/exp/evil.py:f"]}, {"reward": {"a": "0.5*runs/exp/evil.py:f"}},
                     {"reward": "runs/my exp/evil.py:f"}, {"ptx_task": "runs/exp/evil.py:C"},
                     {"task": "length:x,runs/exp/evil.py:C"}, {"env": "runs.exp.evil:X-v0"}):
        with pytest.raises(UserError, match="is Python code in a folder of runs, which is not imported"):
            check_modules(run, settings)
    check_modules(run, {"task": ["a" * 300 + "\nAnswer:"], "system": "b" * 9000 + ":", "reward": "c" * 5000 + ":f"})
    check_modules(run, {"reward": "mine.py:f + 0.5*mine:f", "task": "reverse", "init": "runs/exp/exp_s1", "lr": 0.1})
    monkeypatch.chdir(run.parent)
    for name in ("exp_s1", "other_s1"):
        with pytest.raises(UserError, match="is Python code in a folder of runs, .*; copy the file to another folder"):
            check_modules(run.with_name(name), {"env": "evil:X-v0"})


# Catches: a seed or log_dir of the file that the grid replaces with the default; an accepted empty value, as from a
# shell variable that is not set.
def test_grid_uses_its_settings_file_and_refuses_empty_values(cli, tmp_path):
    (tmp_path / "mine.toml").write_text('seed = 7\nlog_dir = "big"\ntotal_steps = 32\nrollout_steps = 8\nnum_envs = 2\n'
                                        "minibatches = 1\n")
    done = cli("grid", "ppo", "--config", "mine.toml", "--lr", "1e-3")
    assert done.code == 0 and [p.name[-3:] for p in (tmp_path / "big").glob("*/*")] == ["_s7"]
    for words in ["grid", "ppo", "--log-dir", ""], ["grid", "ppo", "--ray", ""], ["tune", "ppo", "--storage", ""]:
        done = cli(*words)
        assert done.code == 2 and f"{words[2]} is empty; give it a value, or leave it out" in done.err


# Catches: two lists for one flag of which only the last is used.
def test_list_flag_given_twice_is_refused(cli):
    done = cli("bench", "suite", "classic", "--seeds", 1, 2, "--seeds", 3)
    assert done.code == 2 and "--seeds is given twice; give all values after one --seeds" in done.err
