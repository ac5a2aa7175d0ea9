"""Training of Hugging Face checkpoints: a tiny model whose tokenizer has tokens of several characters."""
import json
import re
import shutil
import sys

import pytest
import safetensors.torch
import tokenizers
import torch
import transformers

import llm
from llm.algos import grpo
from llm.algos.sft import Config
from llm.config import LanguageConfig
from llm.memory import LIBRARIES, fit, needed
from llm.policy import checkpoint
from llm.policy.hf import HFTokenizer
from llm.policy.load import initial, load_model, value_body
from llm.policy.tokenizer import CharTokenizer, tokens_with
from llm.run import Run
from llm.tasks import Problem
from llm.tasks.calculator import Calculator
from llm.tasks.episodes import called
from llm.tasks.make import make_task
from spinup.errors import UserError
from spinup.registry import algorithms, find
from spinup.runs.presets import configure

TINY = {"total_steps": 2, "held_out": 4, "quiet": True, "tensorboard": False, "threads": 1, "preset": "none",
        "max_tokens": 24}
OWN = {"sft": {"batch": 4}, "grpo": {"prompts": 2, "samples": 2}, "ppo": {"prompts": 4, "minibatches": 2},
       "dpo": {"batch": 2, "pairs": 4}, "reward_model": {"batch": 2, "pairs": 4, "calibration": 4}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a tiny Qwen2. Its tokens are bytes, `]=`, and a full stop with a line end."""
    return save_qwen2(tmp_path_factory.mktemp("qwen2"))


def save_qwen2(folder, **sizes):
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [("]", "="), (".", "Ċ")]
    vocab = {token: i for i, token in enumerate([*letters, *(a + b for a, b in merges)])}
    core = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges))
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    core.add_special_tokens(["<|endoftext|>"])
    transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|endoftext|>").save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        **{"vocab_size": len(vocab) + 1, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1, **sizes},
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None,
        eos_token_id=len(vocab))
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


def length(prompt: str, response: str) -> float:
    return float(len(response))


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# Catches: a run folder without its own tokenizer. It must not depend on the folder of the initial model.
@pytest.mark.parametrize("method", OWN)
def test_pretrained_model_trains_and_loads_from_a_moved_folder(method, folder, tmp_path):
    prompts = [{"prompt": f"What is {i} and 1?", "answer": str(i + 1)} for i in range(12)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    result = getattr(llm, method)("sums.jsonl", model=folder, reward=length, **TINY, **OWN[method])
    assert result.status == "finished"
    config = json.loads((result.directory / "config.json").read_text())
    assert config["tokenizer"] == "tokenizer" and config["start"] == folder
    assert result.progress["steps"] == [0, 2]                 # a row before the first update
    if method == "dpo":                                       # each margin is 0, which counts half
        assert result.progress["pair_accuracy"][0] == 0.5 and result.progress["kl_to_initial"][0] == 0
    moved = result.directory.rename(tmp_path / "moved")
    again = llm.load(moved)
    if method == "reward_model":
        assert again("What is 3 and 1?", "4") == result.policy("What is 3 and 1?", "4")
    else:
        assert again.respond("What is 3 and 1?", greedy=True) == result.policy.respond("What is 3 and 1?", greedy=True)


# Catches: a mask of characters, although tokens can have several characters.
def test_mask_of_demonstrations_excludes_tool_output(folder):
    task = make_task("calculator")
    assert isinstance(task, Calculator)
    text = "[12*47+38]=602;602"
    start, tokenizer = load_model(folder), HFTokenizer(folder)
    run = Run(Config(task="calculator", **{k: v for k, v in TINY.items() if k != "preset"}), task, start)
    batch = run.demonstrated([Problem("12*47+38>")], [text])
    ids, mask = batch.responses.ids[0].tolist(), batch.responses.mask[0].tolist()
    own = [i for i, mine in zip(ids, mask, strict=True) if mine]
    assert ids != [*tokenizer.encode(text), tokenizer.end] and tokenizer.decode(ids[:-1]) == text        # "]=" is split
    assert tokenizer.decode(own[:-1]) == "".join(c for c, mine in zip(text, called(task, text)[0], strict=True) if mine)
    assert own[-1] == tokenizer.end


# Catches: only the token of the text itself: after a full stop, a line ends with another token.
def test_step_ends_with_any_token_that_contains_its_end(folder):
    tokenizer = HFTokenizer(folder)
    assert [tokenizer.decode([i]) for i in tokens_with("\n", tokenizer)] == ["\n", ".\n"]
    assert tokens_with("b", CharTokenizer("abc")) == CharTokenizer("abc").encode("b")
    assert tokens_with("", tokenizer) == []
    with pytest.raises(UserError, match="no token of this tokenizer contains --step 'ab'; choose a shorter one"):
        tokens_with("ab", CharTokenizer("abc"))


# Catches: a comparison of tokenizers by their alphabets, which Hugging Face tokenizers do not have.
@pytest.mark.long
def test_value_function_copies_a_reward_model_with_the_same_tokens(folder):
    judge = llm.reward_model("taste", model=folder, **TINY, **OWN["reward_model"])
    policy, task = load_model(folder), make_task("taste", str(judge.directory))
    body = value_body(policy.model, policy.tokenizer, task.judge)
    assert body is not policy.model
    assert all(torch.equal(a, b) for a, b in zip(body.parameters(), judge.policy.model.body.parameters(), strict=True))
    assert value_body(policy.model, CharTokenizer("ab"), task.judge) is policy.model


# Catches: settings for small character models, which destroy a pretrained model, or a preset for them.
@pytest.mark.parametrize("method", [name for name, a in algorithms("llm").items() if not a.variant
                                    and a.load().Config.task == LanguageConfig.task])         # not those for games
def test_pretrained_models_have_their_own_defaults(method, folder):
    cfg, words = configure(find(f"llm {method}"), {"task": "reverse", "model": folder})
    assert words == "none; defaults for pretrained models" and cfg.held_out == 16
    assert cfg.lr == {"es": 1e-4}.get(method, 1e-5)
    assert configure(find(f"llm {method}"), {"task": "reverse", "model": folder, "lr": 2e-6})[0].lr == 2e-6
    small, words = configure(find(f"llm {method}"), {"task": "reverse"})
    assert words.split()[0].strip(";") in ("reverse", "none") and small.lr > 1e-4 and small.held_out == 256


# Catches: a value warmup that is longer than the training of the preset.
def test_vapo_has_its_own_preset_for_pretrained_sentiment(folder):
    cfg, words = configure(find("llm vapo"), {"task": "sentiment", "model": folder})
    assert words.startswith("sentiment pretrained vapo")
    assert (cfg.total_steps, cfg.value_warmup, cfg.prompts, cfg.samples, cfg.clip_high) == (8, 2, 8, 8, 0.28)


# Catches: 1,024 responses of a real model at once; 512 of its held-out pairs in each row.
def test_pretrained_model_samples_few_pairs_at_a_time(folder, tmp_path, monkeypatch, capsys):
    at_once, sample = [], Run.sample

    def spy(run, problems, samples=1, greedy=False, generator=None):
        at_once.append(len(problems) * samples)
        return sample(run, problems, samples, greedy, generator)

    monkeypatch.setattr(Run, "sample", spy)
    monkeypatch.setattr("llm.preferences.FEW", 8)
    prompts = [{"prompt": f"{i} + 1?", "answer": "1"} for i in range(40)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    llm.dpo("sums.jsonl", model=folder, reward=length, **TINY | {"quiet": False}, batch=4, pairs=20)
    assert set(at_once[:-4]) == {16} and len(at_once) >= 4 + 28 / 8       # the last 4: sampled and greedy, for two rows
    said = capsys.readouterr().out
    assert re.search(r"an update takes [\d.]+ s: about \d+ s for 2 updates and their evaluations\n", said)
    assert "sampling 16 pairs of responses to test on\nsampling 20 pairs of responses to learn from\n" in said


# Catches: a number of rows that does not depend on their cost.
@pytest.mark.parametrize(("settings", "every"), [
    ({"total_steps": 12}, 4), ({}, 10), ({"total_steps": 13}, 5), ({"held_out": 256}, 100),
    ({"total_steps": 13, "held_out": 32}, 13)])
def test_evaluation_takes_a_small_share_of_the_time(settings, every, folder):
    cfg = configure(find("llm grpo"), {"task": "reverse", "model": folder, **settings})[0]
    assert cfg.updates_per_row == every
    rows = 1 + cfg.total_steps // every
    assert rows * 2 * cfg.held_out <= cfg.total_steps * cfg.prompts * cfg.samples / 6
    assert configure(find("llm best_of_n"), {"task": "reverse", "model": folder,
                                             **settings})[0].updates_per_row == 2 * every


ONE_RUN = """
import re, sys, llm

def peak():                                                   # ru_maxrss would begin with the memory of the parent
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

for model in sys.argv[1:]:                                    # a tiny one first: what else is imported is no part of it
    before = peak()
    llm.grpo("sums.jsonl", model=model, reward=lambda prompt, response: float(len(response)), total_steps=1, prompts=2,
             samples=8, held_out=1, tensorboard=False, threads=1, preset="none", max_tokens=32, device="cpu")
print("peak", (peak() - before) * 1024 / 1e9)
"""


# Catches: a part of the memory that is missing or counted twice: the reference policy, moments, logits, caches.
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_memory_estimate_of_a_run_is_within_a_quarter_of_its_peak(folder, start, tmp_path):
    model = save_qwen2(tmp_path / "model", vocab_size=8000, hidden_size=256, intermediate_size=768, num_hidden_layers=8)
    prompts = [{"prompt": f"{i} + 1?", "answer": "1"} for i in range(40)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    (tmp_path / "one_run.py").write_text(ONE_RUN)
    run = start(folder, model, script=tmp_path / "one_run.py").end()
    assert run.code == 0, run.err
    parts = re.findall(r"memory: (weights .*), libraries 0.60 \(micro-batch 16 of at most 39 tokens\); about [\d.]+ GB",
                       run.out)
    estimate = sum(map(float, re.findall(r"\d\.\d\d", parts[-1])))
    measured = float(re.search(r"peak ([\d.]+)", run.out)[1])
    assert 0.75 * measured < estimate < 1.25 * measured, (estimate, measured)


# Catches: a run that starts and is killed by the system; the folder of a run that could not start; a change of the
# user's micro-batch; a resumed run with another micro-batch than before.
@pytest.mark.long
def test_micro_batch_is_the_largest_that_fits_in_memory(folder, tmp_path, monkeypatch, capsys):
    prompts = [{"prompt": f"{i} + 1?", "answer": "1"} for i in range(40)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, prompts)))

    def run(free, method="grpo", **settings):
        monkeypatch.setattr("llm.memory.free_memory", lambda: free)
        result = getattr(llm, method)("sums.jsonl", model=folder, reward=length, **TINY | {"quiet": False}, **settings,
                                      **OWN[method])
        return result, json.loads((result.directory / "config.json").read_text())["config"]["micro_batch"]

    def least(size):
        cfg = grpo.Config(**{k: x for k, x in TINY.items() if k != "preset"}, **OWN["grpo"])
        model = load_model(folder).model
        parameters = sum(p.numel() for p in model.parameters())
        return sum(needed(model.shape, parameters, cfg, size, 7, 24, 8).values()) - 4 * parameters - LIBRARIES

    assert [run(free)[1] for free in (1e9, least(8) + 1, least(8) - 1)] == [16, 8, 4]
    result, size = run(least(2) + 1, exp_name="small")
    assert size == 2 and run(1e9, method="dpo")[1] == 16
    again = llm.grpo("sums.jsonl", model=folder, reward=length, **TINY | {"total_steps": 4}, **OWN["grpo"],
                     exp_name="small", resume=result.directory)
    assert again.status == "finished" and again.progress["steps"][-1] == 4
    assert json.loads((again.directory / "config.json").read_text())["config"]["micro_batch"] == 2
    capsys.readouterr()
    assert run(least(2) + 1, micro_batch=16)[1] == 16 and "this may be too much" in capsys.readouterr().out
    there = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=r"needs about 0\.6 GB of memory, and .* GB are available; choose a sm"):
        run(least(2) - 1)
    assert sorted(tmp_path.rglob("*")) == there


# Catches: an estimate without the reward model; weights that are counted twice, although they are already loaded.
@pytest.mark.long
def test_memory_estimate_counts_the_reward_model_once(folder, tmp_path, monkeypatch):
    cfg = grpo.Config(**{k: x for k, x in TINY.items() if k != "preset"}, **OWN["grpo"])
    model = load_model(folder).model
    parameters = sum(p.numel() for p in model.parameters())
    alone, judged = (needed(model.shape, parameters, cfg, 16, 7, 24, 8, judge=n) for n in (0, parameters))
    assert {name: judged[name] - alone[name] for name in alone if judged[name] != alone[name]} == {
        "frozen models": 4 * parameters}
    monkeypatch.setattr("llm.memory.free_memory", lambda: sum(judged.values()) - 8 * parameters - LIBRARIES)
    fit(cfg, model, 7, 24, judge=model)
    assert cfg.micro_batch == 16
    cfg.micro_batch = 0
    monkeypatch.setattr("llm.memory.free_memory", lambda: sum(judged.values()) - 8 * parameters - LIBRARIES - 1)
    fit(cfg, model, 7, 24, judge=model)
    assert cfg.micro_batch == 8
    cfg.micro_batch, cfg.workers = 0, 2                                   # each process needs its own memory
    monkeypatch.setattr("llm.memory.free_memory", lambda: 2 * (sum(judged.values()) - 8 * parameters - LIBRARIES) - 1)
    fit(cfg, model, 7, 24, judge=model)
    assert cfg.micro_batch == 8


# Catches: another reference policy or another chat template after a resume; an error message with a flag that `spinup
# resume` does not have.
@pytest.mark.long
def test_resume_needs_the_unchanged_initial_model(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "m")
    prompts = [{"prompt": f"{i} + 1?", "answer": "1"} for i in range(40)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, prompts)))

    def go_on(total, **given):
        return llm.grpo("sums.jsonl", model="m", reward=length, **TINY | {"total_steps": total}, **OWN["grpo"],
                        exp_name="x", **given)

    directory = go_on(1).directory
    weights = tmp_path / "m/model.safetensors"
    as_it_was, template = weights.read_bytes(), tmp_path / "m/chat_template.jinja"
    tensors = safetensors.torch.load_file(weights)
    safetensors.torch.save_file({name: x + 0.01 for name, x in tensors.items()}, weights, {"format": "pt"})
    with pytest.raises(UserError, match="m has changed since this run began, and the run needs it as its reference"):
        go_on(2, resume=directory)
    weights.write_bytes(as_it_was)
    template.write_text("{{ messages[0]['content'] }}<|endoftext|>")
    with pytest.raises(UserError, match="m has changed since this run began"):
        go_on(2, resume=directory)
    template.unlink()
    (tmp_path / "m").rename(tmp_path / "away")
    with pytest.raises(UserError, match=r"this run started from the model m, which cannot be loaded \(.*; restore it"):
        go_on(2, resume=directory)
    (tmp_path / "away").rename(tmp_path / "m")
    assert go_on(2, resume=directory).progress["steps"][-1] == 2


# Catches: an error in a chat template that is raised through `spinup llm chat`.
@pytest.mark.parametrize("template", ["{% for", "{{ raise_exception('no') }}", "{{ messages[5].content.x.y }}"])
def test_damaged_chat_template_is_refused(template, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m/chat_template.jinja").write_text(template)
    with pytest.raises(UserError, match=r"the chat template in m cannot be used \(.*\); fetch it again"):
        load_model("m")


# Catches: a check for a teacher after the folder of the run is created.
def test_sft_without_a_teacher_creates_no_folder(folder, tmp_path):
    with pytest.raises(UserError, match="the task sentence has no teacher"):
        llm.sft("sentence", model=folder, quiet=True, max_tokens=8, log_dir=str(tmp_path / "runs"))
    assert not list(tmp_path.glob("runs/*"))


# Catches: weights that are loaded in fp32 and fill the memory before they are converted.
def test_weights_are_loaded_in_the_data_type_of_the_run(folder, monkeypatch):
    types, fill = [], checkpoint.fill
    monkeypatch.setattr(checkpoint, "fill", lambda model, source, where, dtype: types.append(dtype) or fill(
        model, source, where, dtype))
    for dtype in ("float32", "bfloat16"):
        start = initial(grpo.Config(model=folder, dtype=dtype), None)
        assert {p.dtype for p in start.model.parameters()} == {types[-1]} == {getattr(torch, dtype)}
