"""Files and settings with random faults: each must be refused in one sentence, or give finite numbers.

FUZZ=2000 sets the number of faults, and FUZZ_SEED=7 the seed of the random number generator.
"""
import io
import json
import math
import os
import random
import shutil
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import llm
import spinup
from llm.policy.checkpoint import load_pretrained
from llm.policy.export import save_pretrained
from llm.policy.shape import Shape
from llm.policy.tokenizer import CharTokenizer
from llm.policy.transformer import Transformer
from llm.tasks.make import make_task
from spinup.cli.train import resume as command
from spinup.errors import EnvironmentFailure, NonFiniteError, UserError, WorkerError
from spinup.registry import algorithms, find
from spinup.runs import checkpoint
from spinup.runs.config import settings_of
from spinup.runs.flags import from_flags
from spinup.runs.log import read_progress
from spinup.runs.presets import configure
from spinup.view.plots import summary

NUMBER, SEED = int(os.environ.get("FUZZ", 60)), int(os.environ.get("FUZZ_SEED", 1))
REFUSALS = (UserError, NonFiniteError, WorkerError, EnvironmentFailure)
QUIET = {"quiet": True, "tensorboard": False, "threads": 1, "preset": "none"}
JUNK = [None, True, 0, -1, 1, 7, 10**12, 1.5, -0.0, 1e300, math.nan, math.inf, "", "x", "é\n", [], [1], [[]], {},
        {"a": 1}]
WORDS = ["", "x", "0", "-1", "1e999", "nan", "inf", "1,2", "true", "none", "1e44", "a\nb", "é", "../..", "[[[[",
         "64,64,", "9" * 400, "\x00", "0x10", " 3 "]


class Stop(Exception):
    """Raised to end a training before its last step."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """A folder with one file of each kind that the library reads."""
    folder = tmp_path_factory.mktemp("kept")
    spinup.ppo("CartPole-v1", **QUIET, log_dir=str(folder), exp_name="ppo", total_steps=256, num_envs=2,
               rollout_steps=32, minibatches=2, hidden=(8,), normalise_obs=True)

    def stop(row: dict[str, float]) -> None:
        if row["steps"] >= 260:
            raise Stop
    with pytest.raises(Stop):
        spinup.td3("Pendulum-v1", **QUIET | {"quiet": False}, log_dir=str(folder), exp_name="td3", total_steps=400,
                   learning_starts=50, batch_size=8, hidden=(8,), checkpoint_steps=100, on_row=stop)
    llm.sft("reverse", **QUIET, log_dir=str(folder), exp_name="sft", total_steps=2, held_out=4, batch=4, layers=1,
            width=16, heads=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "LARGE", 100)
        llm.sft("reverse", **QUIET, log_dir=str(folder), exp_name="large", total_steps=2, held_out=4, batch=4, layers=1,
                width=16, heads=2)
    torch.manual_seed(0)
    model = Transformer(Shape(6, 32, 1, 16, 2, 2, 8, 24))
    save_pretrained(folder / "model", model, CharTokenizer("abc>"))
    rows = ({"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(9))
    (folder / "task.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "mine.toml").write_text("lr = 0.001\nhidden = [8, 8]\nanneal = false\nenv = \"CartPole-v1\"\n")
    return folder


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """The data with one fault: a changed bit, a cut, inserted or appended bytes, swapped halves, or no data."""
    way, at = rng.choice(["flip", "cut", "insert", "swap", "empty", "append"]), rng.randrange(max(1, len(data)))
    if way == "flip" and data:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1:]
    if way == "cut":
        return data[:at]
    if way == "insert":
        return data[:at] + rng.randbytes(rng.randint(1, 9)) + data[at:]
    if way == "swap":
        return data[at:] + data[:at]
    return b"" if way == "empty" else data + rng.randbytes(5)


def mutate_value(value: Any, rng: random.Random, junk: Callable[[Any], Any]) -> Any:
    """The value with one of its parts replaced, renamed or removed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value, key=str))
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        if rng.random() < 0.1:
            return {f"{k}x" if k == key else k: v for k, v in value.items()}
        return value | {key: mutate_value(value[key], rng, junk)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        i = rng.randrange(len(value))
        return [*value[:i], mutate_value(value[i], rng, junk), *value[i + 1:]]
    return junk(value)


def mutate_json(path: Path, rng: random.Random) -> None:
    data = json.loads(path.read_text())
    path.write_text(json.dumps(mutate_value(data, rng, lambda _: rng.choice(JUNK))))


def mutate_tensors(path: Path, rng: random.Random) -> None:
    """Damage the contents of a checkpoint, but keep its checksums correct."""
    def junk(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and rng.random() < 0.8:
            return rng.choice([value[..., None], value.to(torch.int64), value.to(torch.float64) * math.nan,
                               value.flatten()[:1], value.to(torch.float64) * math.inf, value.bool()])
        return rng.choice(JUNK)
    state = torch.load(path, weights_only=True)
    torch.save(mutate_value(state, rng, junk), path)


def mutate_file(path: Path, rng: random.Random) -> None:
    path.write_bytes(mutate_bytes(path.read_bytes(), rng))


# These functions read a file and return a result. `CASES` marks the files whose result no accepted fault may change.


def act(run: Path) -> list[float]:
    policy = spinup.load(run)
    size = policy.observation_space.shape[0]
    outputs = policy.outputs(np.full((1, size), 0.5, np.float32))
    found = np.concatenate([np.ravel(x) for x in (outputs if isinstance(outputs, tuple) else [outputs])])
    assert np.isfinite(found).all()
    return found.tolist()


def resume(run: Path) -> list[float]:
    with redirect_stdout(io.StringIO()) as said:
        command([str(run)])
    if "starts with an empty one" in said.getvalue():
        raise UserError("it says so, and goes on")
    last = read_progress(run)
    assert all(math.isfinite(x) for x in last.get("steps", []))
    return last["q_loss"]


def respond(run: Path) -> list[str]:
    return llm.load(run).respond("abc>", greedy=True)


def generate(folder: Path) -> float:
    model, _ = load_pretrained(folder)
    assert all(p.isfinite().all() for p in model.parameters())
    return float(sum(p.sum() for p in model.parameters()))


def plotted(run: Path) -> str:
    return json.dumps(summary([run]))


def task(path: Path) -> float:
    made = make_task(str(path))
    return made.reward(made.train[0], "x")


def settings(path: Path) -> str:
    return repr(configure(find("ppo"), {}, file=path))


# Changes to a copy of `kept`: (the file, the function that changes it, the function that reads it, the folder or file
# to read, whether each fault must be refused or leave the result unchanged).
CASES: dict[str, tuple[str, Callable, Callable, str, bool]] = {
    "checkpoint bytes": ("ppo/ppo_s1/checkpoint.pt", mutate_file, act, "ppo/ppo_s1", True),
    "checkpoint contents": ("ppo/ppo_s1/checkpoint.pt", mutate_tensors, act, "ppo/ppo_s1", False),
    "checkpoint resumed": ("td3/td3_s1/checkpoint.pt", mutate_tensors, resume, "td3/td3_s1", False),
    "config": ("ppo/ppo_s1/config.json", mutate_json, act, "ppo/ppo_s1", False),
    "config bytes": ("ppo/ppo_s1/config.json", mutate_file, act, "ppo/ppo_s1", False),
    "config resumed": ("td3/td3_s1/config.json", mutate_json, resume, "td3/td3_s1", False),
    "result": ("td3/td3_s1/result.json", mutate_json, resume, "td3/td3_s1", False),
    "progress": ("ppo/ppo_s1/progress.csv", mutate_file, plotted, "ppo", False),
    "progress resumed": ("td3/td3_s1/progress.csv", mutate_file, resume, "td3/td3_s1", False),
    "replay": ("td3/td3_s1/replay/*", mutate_file, resume, "td3/td3_s1", True),
    "toml": ("mine.toml", mutate_file, settings, "mine.toml", False),
    "language config": ("sft/sft_s1/config.json", mutate_json, respond, "sft/sft_s1", False),
    "language checkpoint": ("sft/sft_s1/checkpoint.pt", mutate_tensors, respond, "sft/sft_s1", False),
    "language checkpoint bytes": ("sft/sft_s1/checkpoint.pt", mutate_file, respond, "sft/sft_s1", True),
    "large checkpoint": ("large/large_s1/checkpoint.pt", mutate_tensors, respond, "large/large_s1", False),
    "large weights": ("large/large_s1/model-2.safetensors", mutate_file, respond, "large/large_s1", True),
    "model config": ("model/config.json", mutate_json, generate, "model", False),
    "model weights": ("model/model.safetensors", mutate_file, generate, "model", False),
    "model tokenizer": ("model/char_tokenizer.json", mutate_file, generate, "model", False),
    "jsonl": ("task.jsonl", mutate_file, task, "task.jsonl", False)}


@pytest.fixture(scope="module")
def whole(kept, tmp_path_factory) -> dict[str, Any]:
    """The result of reading each file without a fault."""
    found = {}
    for case, (_, _, read, what, noticed) in CASES.items():
        if noticed:
            shutil.copytree(kept, copy := tmp_path_factory.mktemp("whole") / "copy")
            found[case] = read(copy / what)
    return found


def check(case: str, kept: Path, whole: dict[str, Any], folder: Path, rng: random.Random) -> str:
    """Change a file and read it. Return a description of the failure, or an empty string."""
    pattern, change, read, what, noticed = CASES[case]
    top, source = (place / pattern.partition("/")[0] for place in (folder, kept))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copytree(source, top) if source.is_dir() else shutil.copy(source, top)
    change(rng.choice(sorted(folder.glob(pattern))), rng)
    try:
        came = read(folder / what)
    except REFUSALS as error:
        sentence = str(error)
        return "" if sentence.strip() and len(sentence) < 1000 else f"{case}: no sentence: {sentence[:200]!r}"
    except Exception as error:
        ours = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)
                if "/spinup/" in f.filename or "/llm/" in f.filename]
        return f"{case}: {type(error).__name__}: {str(error)[:150]} from {ours[-4:]}"
    if noticed and repr(came) != repr(whole[case]):                       # as text, NaN equals NaN
        return f"{case}: accepted silently"
    return ""


@pytest.mark.parametrize("case", CASES)
def test_faulty_file_is_refused_in_one_sentence_or_gives_finite_numbers(case, kept, whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = list(CASES)
    rounds = range(names.index(case), NUMBER, len(names) + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = [found for i in rounds
                 if (found := check(case, kept, whole, tmp_path / "copy", random.Random(f"{SEED} {case} {i}")))]
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_faulty_setting_is_accepted_or_refused_with_a_message(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng, wrong = random.Random(SEED), []
    chosen = [a for a in [*algorithms().values(), *algorithms("llm").values()] if not a.variant]
    for _ in range(max(20, NUMBER // 19)):
        algorithm = rng.choice(chosen)
        name, word = rng.choice(settings_of(algorithm.load().Config)), rng.choice(WORDS)
        try:
            from_flags(algorithm, [f"--{name.replace('_', '-')}={word}"])
        except REFUSALS as error:
            if not str(error).strip():
                wrong.append(f"{algorithm.name} --{name}={word!r}: no sentence")
        except Exception as error:
            wrong.append(f"{algorithm.name} --{name}={word!r}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(sorted(set(wrong)))
