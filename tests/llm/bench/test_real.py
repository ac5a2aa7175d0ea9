"""Speed benchmarks with a real model: equal tokens for both libraries, no response that ends early, and goals."""
import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from tokenizers.pre_tokenizers import ByteLevel

from llm.bench import real
from llm.bench.real import Written, measured, peer_tokenizer, prepare, real_generate, real_grpo
from llm.policy.export import save_pretrained
from llm.policy.hf import HFTokenizer
from llm.policy.load import load_model
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from llm.tasks.sentence import Sentence
from spinup.machine import git_revision

SPECIAL = ["<s>", "<|start|>", "<|end|>"]
TEMPLATE = ("<s>{% for m in messages %}{{ '<|start|>' + m['role'] + '\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder of a small random model with a chat template, whose tokenizer begins every text with `<s>`.

    The model has more tokens than its tokenizer.
    """
    from transformers import PreTrainedTokenizerFast
    folder = tmp_path_factory.mktemp("real")
    tokens = [*SPECIAL, *sorted(ByteLevel.alphabet())]
    core = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, []))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    core.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    core.add_special_tokens(SPECIAL)
    PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>", bos_token="<s>",
                            chat_template=TEMPLATE).save_pretrained(folder / "tokenizer")
    torch.manual_seed(1)
    small = Transformer(Shape(len(tokens) + 5, 256, 1, 16, 2, 1, hidden=32, tied=True))
    save_pretrained(folder / "model", small, HFTokenizer(folder / "tokenizer"))
    return str(folder / "model")


# Catches: a second `<s>`; a chat template for one library only; an end token that can be sampled.
def test_both_libraries_get_the_chat_template_ids_and_an_unused_end_id(model, tmp_path):
    about = prepare(model, tmp_path / "m")
    asked = Sentence().problems(8, np.random.default_rng(3))
    written = Written(before=about["before"], after=about["after"]).problems(8, np.random.default_rng(3))
    chat, ours, theirs = load_model(model).tokenizer, load_model(tmp_path / "m").tokenizer, peer_tokenizer(
        str(tmp_path / "m"))
    ids = [chat.prompt(p.prompt) for p in asked]
    assert ids[0][:2] == [0, 1] and ids[0].count(0) == 1
    assert [ours.prompt(p.prompt) for p in written] == theirs([p.prompt for p in written])["input_ids"] == ids
    assert about["prompt_tokens"] == pytest.approx(np.mean([len(row) for row in ids]), abs=3)
    assert ours.ends == {264} and theirs.eos_token_id == 264 and theirs.pad_token == "<|end|>"
    assert json.loads((tmp_path / "m" / "config.json").read_text())["vocab_size"] == 264
    response = [2, 40, 2]                                                 # the original end token ends nothing
    assert ours.decode(response) == theirs.decode(response, skip_special_tokens=True) != ""
    before, after = load_model(model).model, load_model(tmp_path / "m").model
    assert torch.equal(before.embed.weight, after.embed.weight)


@pytest.mark.parametrize("words, message", [
    ("grpo --model M --width 64", "--width is for the small models of this benchmark; leave out --width or --model"),
    ("grpo --dtype bfloat16", "--dtype is for a pretrained model; add --model, such as --model smollm2"),
    ("grpo --model M --total-steps 1", "--total-steps 1 leaves no update to measure after the first; choose at least"),
    ("grpo --model M --out nowhere/x.json", "--out nowhere/x.json cannot be written"),
    ("grpo --model nowhere", "nowhere is not a folder"),
    ("grpo --model C", "--model C reads single characters; leave out --model to measure such models, or choose"),
    ("generate --model M --batch 8", "--batch is for the small models of this benchmark; leave out --batch or"),
    ("generate --model C", "--model C reads single characters")])
def test_invalid_flags_give_a_one_line_error_before_any_process_starts(words, message, model, make_model, cli,
                                                                       monkeypatch):
    monkeypatch.setattr(real, "call", lambda *_: pytest.fail("a process was started"))
    folders = {"M": model, "C": make_model(total_steps=1)} if " C" in words else {"M": model}
    done = cli("bench", "speed", *(folders.get(word, word) for word in words.split()))
    assert done.code == 2 and done.err.count("\n") == 1
    assert done.err.startswith(f"spinup: {message.replace('--model C', '--model ' + folders.get('C', ''))}")


def small_work(monkeypatch):
    """Four tokens to each of two prompts, in this process, on one thread."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(real, "PROMPTS", 2)
    monkeypatch.setattr(real, "NEW", 4)
    monkeypatch.setattr(real, "THREADS", 1)
    monkeypatch.setattr(Sentence, "max_tokens", 4)


# Catches: other prompts or another number of tokens for one library; missing rewards; a time that includes the first
# update.
@pytest.mark.long
def test_grpo_benchmark_runs_end_to_end(model, monkeypatch, tmp_path, capsys):
    import trl
    small_work(monkeypatch)
    read, tokenize = [], trl.GRPOTrainer._tokenize_prompts
    monkeypatch.setattr(trl.GRPOTrainer, "_tokenize_prompts",
                        lambda self, prompts: read.append((prompts, found := tokenize(self, prompts))) or found)

    def call(name, job, module=""):
        if name == "limit":
            return {"flops": 1e9}
        (folder := tmp_path / f"{name}{job['seed']}").mkdir()
        return json.loads(json.dumps(getattr(real, f"run_{name}")(str(folder), job)))
    monkeypatch.setattr(real, "call", call)
    assert real_grpo(model, total_steps=3, rounds=1, out=tmp_path / "speed.json") == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result | {"git": git_revision()} == json.loads((tmp_path / "speed.json").read_text())
    assert result["goal"] is None and result["goal_seconds"] is None and result["model"] == model
    assert result["parameters"]["spinup"] == result["parameters"]["trl"]
    assert result["zero_variance"] == {"spinup": 0.0, "trl": 0.0}
    for name in ("spinup", "trl"):
        run = result["runs"][name][0]
        assert run["tokens"] == 2 * 2 * 8 * 4 and len(run["seconds_of_updates"]) == 2 == run["steps"]
        assert result["seconds_an_update"][name] == pytest.approx(np.mean(run["seconds_of_updates"]), abs=2e-3)
        assert 0.1 < result["peak_gb"][name] < 100
    limit = 1e9 / (result["parameters"]["trl"] * 8 * (1 + result["settings"]["prompt_tokens"] / 32))
    assert result["limit"] == round(limit)
    assert result["runs"]["spinup"][0]["reward"] == pytest.approx(result["runs"]["trl"][0]["reward"], abs=0.25)
    chat = load_model(model).tokenizer                                    # the prompts that TRL got
    assert len(read) == 3 and all(len(prompts) == 16 for prompts, _ in read)
    for prompts, (ids, *_) in read:
        words = [p.partition("user\n")[2].partition("<|end|>")[0] for p in prompts]
        assert [chat.prompt(text) for text in words] == ids


def test_response_that_ends_early_is_an_error():
    job = {"steps": 3}
    run = measured(job, np.array([1.0, 4.0]), 2.0, 3 * 64 * 24, 10, 0.0, 0.5, {})
    assert (run["seconds_an_update"], run["seconds"], run["evaluation_seconds"]) == (2.5, 5.0, 2.0)
    assert run["tokens_per_second"] == pytest.approx(64 * 24 / 2.5, abs=0.1)
    with pytest.raises(RuntimeError, match="3 updates have 4,607 new tokens instead of 4,608"):
        measured(job, np.array([1.0, 4.0]), 0.0, 3 * 64 * 24 - 1, 10, 0.0, 0.5, {})


@pytest.mark.parametrize("dtype, ours, theirs, code", [
    ("float32", 12.0, 45.6, 0), ("float32", 12.0, 45.5, 1), ("float32", 12.1, 60.0, 1),
    ("bfloat16", 7.0, 8.0, 0), ("bfloat16", 7.1, 80.0, 1)])
def test_exit_code_is_0_only_if_both_goals_are_met(dtype, ours, theirs, code, model, monkeypatch, capsys):
    def call(name, job, module=""):
        assert job["dtype"] == dtype and job["threads"] == 2
        seconds = {"spinup": ours, "trl": theirs}.get(name, 1.0)
        return {"flops": 1e9, "micro_batch": 16, **measured(
            {"steps": 2}, np.array([seconds]), 0.0, 2 * 64 * 24, 1000, 0.0, 0.5, {"torch": "2"}),
            "tokens_per_second": 64 * 24 / seconds, "tokens_per_second_with_evaluation": 64 * 24 / seconds}
    monkeypatch.setattr(real, "call", call)
    monkeypatch.setattr(real, "MEASURED", model)
    assert real_grpo(model, dtype=dtype, rounds=2) == code
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["met"] == (code == 0) and result["ratio_median"] == pytest.approx(theirs / ours, abs=1e-3)
    assert result["seconds_an_update"] == {"spinup": ours, "trl": theirs}
    assert result["share_of_limit"]["spinup"] == pytest.approx(64 * 24 / ours / result["limit"], abs=1e-3)


@pytest.mark.parametrize("goal, code", [(0.0, 0), (1e9, 1)])
def test_sampling_benchmark_runs_end_to_end(goal, code, model, monkeypatch, capsys):
    small_work(monkeypatch)
    monkeypatch.setattr(real, "CASES", ((2, 3, goal), (5, 1, 0.0)))
    monkeypatch.setattr(real, "MEASURED", model)
    assert real_generate(model, rounds=2) == code
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert [(r["batch"], r["prompts"], r["samples"], r["new"]) for r in result["rows"]] == [(6, 2, 3, 4), (5, 5, 1, 4)]
    assert [r["met"] for r in result["rows"]] == [code == 0, True] and len(result["rows"][0]["ratios"]) == 2
    assert "6 responses of 4 tokens to 2 prompts" in result["ratio_median_is"]
