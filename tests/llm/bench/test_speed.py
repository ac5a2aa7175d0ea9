"""Benchmarks of language models: equal weights and equal work for both libraries, and complete results."""
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from llm.algos.grpo import varied
from llm.bench import roofline, sampling
from llm.bench import speed as language
from llm.bench.questions import ALPHABET, Questions, peer_tokenizer, save_model
from llm.bench.roofline import bytes_a_step, flop_a_token
from llm.bench.sampling import speed_generate
from llm.bench.speed import run_spinup, speed_grpo
from llm.policy.checkpoint import load_pretrained
from llm.policy.generate import Prompts, Sampler
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from llm.tasks.task import is_held_out
from spinup.errors import UserError
from spinup.machine import git_revision


@pytest.mark.parametrize("words, message", [
    ("speed grpo --against sb3", "argument --against: invalid choice: 'sb3'"),
    ("speed grpo --env CartPole-v1", "spinup bench speed grpo has no flag --env"),
    ("speed grpo --width 96", "argument --width: invalid choice: 96"),
    ("speed grpo --total-steps 1", "--total-steps 1 leaves no update to measure after the first row; choose at least"),
    ("speed grpo --out nowhere/x.json", "--out nowhere/x.json cannot be written"),
    ("speed generate --against trl", "argument --against: invalid choice: 'trl'"),
    ("speed generate --batch 12", "--batch 12 is not a multiple of 8, the responses per prompt; choose 16 or 256"),
    ("speed generate --new 506", "--new 506 does not fit in the model's context of 512; choose at most 505"),
    ("roofline ppo", "spinup bench roofline does not know what to do with 'ppo'"),
    ("roofline --device cpu --shape 0.5b", "--shape 0.5b needs a GPU; without one, type --shape small"),
    ("roofline --device tpu", "--device must be auto, cpu, cuda")])
def test_invalid_flags_give_a_one_line_error_before_any_process_starts(cli, words, message, monkeypatch):
    monkeypatch.setattr(language, "call", lambda *_: pytest.fail("a process was started"))
    done = cli("bench", *words.split())
    assert done.code == 2 and done.err.startswith(f"spinup: {message}") and done.err.count("\n") == 1


@pytest.mark.parametrize("benchmark, package", [
    (speed_grpo, "trl"), (speed_generate, "transformers"), (lambda: roofline.roofline(device="cpu"), "safetensors")])
def test_missing_package_gives_the_pip_command(benchmark, package, monkeypatch):
    monkeypatch.setattr("llm.bench.questions.find_spec", lambda name: None)
    with pytest.raises(UserError, match=rf"needs {package}; type: pip install 'spinup-rl\[bench\]'"):
        benchmark()


def test_all_groups_or_half_of_them_have_unequal_rewards():
    rng = np.random.default_rng(0)
    problems = Questions().problems(400, rng)
    texts = ["".join(ALPHABET[i] for i in row) for row in rng.integers(42, size=(8 * 400, 8))]

    def groups(task: Questions) -> torch.Tensor:
        return varied(torch.tensor([task.reward(problems[i // 8], text) for i, text in enumerate(texts)]), 8)
    odd = torch.tensor([ALPHABET.index(p.prompt[0]) % 2 == 1 for p in problems])
    assert groups(Questions()).all()
    assert torch.equal(groups(Questions(half=True)), odd) and 170 < odd.sum() < 230
    assert all(len(p.prompt) == 7 and not is_held_out(p.prompt) for p in problems)


@pytest.mark.parametrize("width, parameters", [(64, 216_320), (128, 858_624)])
def test_both_libraries_load_equal_weights_that_never_sample_the_end(width, parameters, tmp_path):
    from transformers import AutoModelForCausalLM
    save_model(tmp_path / "model", width)
    ours, tokenizer = load_pretrained(tmp_path / "model")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert [sum(p.numel() for p in m.parameters()) for m in (ours, theirs)] == [parameters] * 2
    ids = torch.randint(1, 43, (3, 15), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=1e-4, atol=1e-4)
    r = Sampler(ours, tokenizer.end)(Prompts.of(ids.tolist()), samples=40, max_tokens=8,
                                     generator=torch.Generator().manual_seed(1))
    assert (r.lengths == 8).all() and not r.finished.any()


def test_peer_tokenizer_gives_the_same_ids():
    peer = peer_tokenizer()
    assert peer(["abcdefg"])["input_ids"] == [[1, 2, 3, 4, 5, 6, 7]] and len(peer) == 43
    assert peer.eos_token_id == peer.pad_token_id == 0
    assert peer.batch_decode([[42, 1, 0, 2]], skip_special_tokens=True) == [ALPHABET[-1] + "ab"]


def test_timing_excludes_the_first_row_and_the_evaluation(monkeypatch, tmp_path):
    """Rows at 4, 8 and 10 updates. The first row is slow and must not count."""
    rows = {"steps": [4.0, 8.0, 10.0], "length": [8.0, 8.0, 5.0], "rollout_seconds": [50.0, 1.0, 2.0],
            "reward_seconds": [50.0, 0.5, 0.25], "update_seconds": [50.0, 2.0, 4.25], "wall_seconds": [200, 206, 215],
            "zero_variance": [1.0, 0.0, 0.75], "reward": [9.0, 0.4, 0.1]}
    (tmp_path / "config.json").write_text('{"parameters": 7, "versions": {}}')
    monkeypatch.setattr(language.grpo, "train", lambda config: SimpleNamespace(progress=rows, directory=tmp_path))
    run = run_spinup(str(tmp_path), {"half": False, "model": "m", "steps": 10, "seed": 1})
    assert (run["steps"], run["tokens"]) == (6, (4 * 8 + 2 * 5) * 256)
    assert (run["seconds"], run["evaluation_seconds"]) == (10.0, 5.0)
    assert run["tokens_per_second"] == pytest.approx(run["tokens"] / 10, abs=0.1)
    assert run["tokens_per_second_with_evaluation"] == pytest.approx(run["tokens"] / 15, abs=0.1)
    assert run["zero_variance"] == 0.25 and run["reward"] == pytest.approx(0.3)


@pytest.mark.parametrize("paces, half, code", [([150, 100, 140], 200, 0), ([150, 100, 139], 200, 1),
                                               ([150, 100, 140], 199, 1)])
def test_exit_code_is_0_only_if_both_goals_are_met(paces, half, code, monkeypatch, capsys):
    def call(name: str, job: dict | None = None, module: str = "") -> dict:
        pace = 100 if name == "trl" else half if job and job["half"] else paces[job["seed"] - 1] if job else 0
        return {"flops": 1e9, "tokens_per_second": pace, "tokens_per_second_with_evaluation": pace / 2, "seconds": 3.0,
                "evaluation_seconds": 1.0 if name == "spinup" else 0.0, "zero_variance": 0.0, "reward": 0.5,
                "parameters": 1000, "versions": {}}
    monkeypatch.setattr(language, "call", call)
    assert speed_grpo() == code
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["met"] == (code == 0) and result["ratio_median"] == sorted(paces)[1] / 100 and result["goal"] == 1.4
    assert result["half"]["ratio_median"] == half / 100 and result["half"]["goal"] == 2.0
    assert result["equal work"]["evaluation_share"] == 0.25 and result["steps"] == 300
    positions = (32 * 7 + 256 * 8) / (256 * 8)                            # read per new token; prompts once
    assert result["equal work"]["limit"] == round(1e9 / (1000 * (2 + 6) * positions))
    assert result["half"]["limit"] == round(1e9 / (1000 * (2 + 3) * positions))


@pytest.mark.long
def test_grpo_benchmark_runs_end_to_end(monkeypatch, tmp_path, capsys):
    """Both libraries in both cases, in this process, with four prompts per update."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(language, "PROMPTS", 4)
    monkeypatch.setattr(language, "GOALS", {64: 0.0})
    monkeypatch.setattr(language, "HALF_GOAL", 1e9)

    def call(name, job=None):
        (folder := tmp_path / f"{name}{len(list(tmp_path.iterdir()))}").mkdir()
        return json.loads(json.dumps(getattr(language, f"run_{name}")(str(folder), job or {})))
    monkeypatch.setattr(language, "call", call)
    assert speed_grpo(total_steps=3, rounds=1, out=tmp_path / "speed.json") == 1
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert result | {"git": git_revision()} == json.loads((tmp_path / "speed.json").read_text())
    assert result["parameters"] == {"spinup": 216_320, "trl": 216_320}
    assert result["equal work"]["zero_variance"] == {"spinup": 0.0, "trl": 0.0} and result["equal work"]["met"]
    assert all(0 < share < 1 for share in result["half"]["zero_variance"].values()) and not result["half"]["met"]
    for case in ("equal work", "half"):
        ours, theirs = (result[case]["runs"][name][0] for name in ("spinup", "trl"))
        assert ours["steps"] == theirs["steps"] == 2 and ours["tokens"] == theirs["tokens"] == 2 * 4 * 8 * 8
        assert ours["evaluation_seconds"] > 0 == theirs["evaluation_seconds"]
        assert 0 < result[case]["ratios_with_evaluation"][0] < result[case]["ratios"][0]
        assert ours["reward"] == pytest.approx(theirs["reward"], abs=0.25)
    assert "without spinup's held-out evaluation" in result["ratio_median_is"]
    assert {"torch", "trl", "transformers"} <= set(result["versions"])


@pytest.mark.parametrize("goal, code", [(0.0, 0), (1e9, 1)])
def test_sampling_benchmark_runs_end_to_end(goal, code, monkeypatch, capsys):
    monkeypatch.setattr(sampling, "GOALS", {(16, 3): goal})
    assert speed_generate(batches=[8, 16], new=[3], width=64, rounds=2) == code
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert [(r["batch"], r["new"], r["goal"], r["met"]) for r in result["rows"]] == [
        (8, 3, None, True), (16, 3, goal, code == 0)]
    for row, line in zip(result["rows"], lines[-3:-1], strict=True):
        assert row["parameters"]["spinup"] == row["parameters"]["transformers"] and len(row["ratios"]) == 2
        assert line.split()[:4] == [str(row["batch"]), "3", *(f"{p:,}" for p in row["tokens_per_second"].values())]
    assert "batch 8, 3 new tokens" in result["ratio_median_is"]


def test_bytes_and_flop_of_a_step_equal_manual_counts():
    """By hand: 2 layers of width 8, 2 heads of size 4 that share a key, hidden size 16, 10 tokens, tied or not."""
    shape = Shape(10, 32, 2, 8, 2, 1, 4, 16)
    each = 8 * (8 + 4 + 4) + 8 * 8 + 8 * 32 + 16 * 8 + 2 * 8              # qkv, out, gate and up, down, norms
    body = 2 * each + 8
    untied = Shape(10, 32, 2, 8, 2, 1, 4, 16, tied=False)
    cache = 3 * 100 * 2 * 2 * 4                                           # rows, tokens, key and value, layers, a head
    for each, size in ((shape, body + 80), (untied, body + 160)):
        assert sum(p.numel() for p in Transformer(each).parameters()) == size
        assert bytes_a_step(each, size, 4, 3, 100) == 4 * (body + 80 + cache)
    assert flop_a_token(shape, body + 80, 16) == 6 * (body + 80) + 6 * 2 * 8 * 16
    assert flop_a_token(untied, body + 160, 16) == flop_a_token(shape, body + 80, 16)


# Catches: a laptop's GPU, or a card with slower memory, that gets the peaks of the fast card with the same number.
@pytest.mark.parametrize(("name", "key"), [
    ("NVIDIA H200", "H200"), ("NVIDIA GeForce RTX 4090", "4090"), ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
    ("NVIDIA A100-SXM4-80GB", "A100"), ("NVIDIA A100-SXM4-40GB", None), ("CPU (2 cores), one thread", None)])
def test_peaks_are_those_of_the_same_device(name, key):
    assert roofline.stated_peaks(name) == roofline.PEAKS.get(key)


@pytest.mark.long
def test_roofline_runs_end_to_end(monkeypatch, capsys):
    monkeypatch.setattr(roofline, "copy_pace", lambda device: 1e9)
    monkeypatch.setattr(roofline, "product_pace", lambda device, dtype: 2e9)
    monkeypatch.setattr(roofline, "ROWS", {"cpu": (2, 16)})
    monkeypatch.setattr(roofline, "CONTEXT", 16)
    monkeypatch.setattr(roofline, "NEW", 4)
    full = roofline.sampling_step

    def step(model, batch):
        if batch > 2:
            raise torch.OutOfMemoryError("as a GPU says it")
        return full(model, batch)
    monkeypatch.setattr(roofline, "sampling_step", step)
    assert roofline.roofline(device="cpu", batches=(1, 2, 4, 8)) == 0
    out = capsys.readouterr().out
    result = json.loads(out.splitlines()[-1])
    assert "this does not measure a GPU" in out and "4   does not fit in memory" in out
    assert (result["kind"], result["shape"], result["parameters"]) == ("cpu", "small", 858_624)
    assert [row["batch"] for row in result["sampling"]] == [1, 2]
    for row in result["sampling"]:
        assert row["bandwidth_share"] == pytest.approx(row["bytes_per_step"] / row["step_seconds"] / 1e9, abs=1e-4)
    trained, step = result["training"], result["grpo_step"]
    assert trained["mfu"] == pytest.approx(32 * trained["flop_per_token"] / trained["step_seconds"] / 2e9, abs=1e-4)
    assert (step["answers"], step["tokens_each"]) == (256, 8)
    assert sum(step["shares"].values()) == pytest.approx(1, abs=0.01)
