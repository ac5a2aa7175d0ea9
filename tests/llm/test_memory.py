"""Limits of memory: the rows that a pass reads, the tensors that it keeps, and the message if memory runs out."""
import json
import os
import tracemalloc

import pytest
import torch

import llm
from llm.config import LanguageConfig
from llm.memory import fit, out_of_memory
from llm.policy.generate import Sampler
from llm.policy.score import log_probs
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from spinup.core.fast.adam import FlatAdam
from spinup.errors import UserError
from spinup.registry import algorithms, find
from spinup.runs.checkpoint import read_checkpoint, save_checkpoint

TINY = {"task": "reverse:length=3,symbols=10", "held_out": 8, "quiet": True, "tensorboard": False, "threads": 1,
        "device": "cpu", "preset": "none", "total_steps": 1, "warmup": 0, "seed": 3}
SIZES = {"prompts": 4, "pairs": 8, "batch": 8, "calibration": 8, "epochs": 2, "value_warmup": 0,
         "kl_coef": 0.1, "keep": 0.0, "perturbations": 2}


def letters(prompt: str, response: str) -> float:
    return float(len(set(response)))


def settings(method, **given):
    """Settings with which each method uses all its optional parts."""
    known = algorithms("llm")[method].load().Config.__dataclass_fields__
    given = {"reward": letters} | ({"samples": 4} if {"prompts", "samples"} <= known.keys() else {}) | given
    return TINY | {name: x for name, x in SIZES.items() if name in known} | given


@pytest.fixture
def rows_read(monkeypatch):
    """The number of rows of each pass of a transformer. Passes of the sampler are left out: they need the KV cache."""
    read, sampling = [], []
    hidden, call = Transformer.hidden, Sampler.__call__

    def spy(model, ids, *args, **settings):
        if not sampling:
            read.append(len(ids))
        return hidden(model, ids, *args, **settings)

    def sample(*args, **settings):
        sampling.append(True)
        try:
            return call(*args, **settings)
        finally:
            sampling.pop()

    monkeypatch.setattr(Transformer, "hidden", spy)
    monkeypatch.setattr(Sampler, "__call__", sample)
    return read


# Catches: a pass over a whole batch: for the values of PPO, for z of KTO, for the pairs that are ranked for a row of
# the log, for the pairs and responses that test and calibrate a reward model, or for the KL divergence from the initial
# policy.
@pytest.mark.long("drift", "dqn")
@pytest.mark.parametrize("method", [name for name, a in algorithms("llm").items()
                                    if a.load().Config.task == LanguageConfig.task])          # without those for games
def test_no_pass_reads_more_rows_than_a_micro_batch(method, beginner, rows_read, tmp_path, monkeypatch):
    monkeypatch.setattr("llm.preferences.HELD_OUT_PAIRS", 8)
    found = {}
    for micro_batch in (0, 4):
        rows_read.clear()
        result = getattr(llm, method)(model=beginner, micro_batch=micro_batch, log_dir=str(tmp_path / str(micro_batch)),
                                      **settings(method))
        weights = torch.cat([p.detach().flatten() for p in result.policy.model.parameters()])
        row = {name: x[-1] for name, x in result.progress.items() if "second" not in name}
        found[micro_batch] = weights, max(rows_read), row
    (whole, most, row), (pieces, few, same) = found[0], found[4]
    assert most > 4 >= few
    torch.testing.assert_close(pieces, whole, atol=2e-6, rtol=0)
    assert same == pytest.approx(row, abs=1e-4, nan_ok=True)


# Catches: a reward model that scores a whole batch in one pass.
def test_reward_model_scores_one_micro_batch_at_a_time(beginner, rows_read, tmp_path):
    judge = llm.reward_model(model=beginner, log_dir=str(tmp_path), **settings("reward_model"))
    rows_read.clear()
    llm.rloo(model=beginner, micro_batch=4, log_dir=str(tmp_path), **settings("rloo", reward=judge.policy))
    assert max(rows_read) == 4


# Catches: an entropy with a gradient, which keeps two more tensors over the vocabulary; an entropy whose pieces are in
# the wrong order.
def test_backward_pass_keeps_one_tensor_over_the_vocabulary(monkeypatch):
    model = Transformer(Shape(vocab_size=1000))
    hidden, ids, kept = torch.randn(5, 6, 64, requires_grad=True), torch.randint(1000, (5, 6)), {}

    def pack(x):
        kept[x.untyped_storage().data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        logp, found = log_probs(model, hidden, ids, temperature=0.5)
    assert sum(x.shape == (5, 6, 1000) for x in kept.values()) == 1 and logp.requires_grad and not found.requires_grad
    expected = torch.distributions.Categorical(logits=model.logits(hidden) / 0.5).entropy()
    torch.testing.assert_close(found, expected.detach())
    monkeypatch.setattr("llm.policy.score.PIECE", 7000)
    assert torch.equal(log_probs(model, hidden, ids, temperature=0.5)[1], found)


CPU = RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to "
                   "allocate 8000000000 bytes. Error code 12 (Cannot allocate memory)")
GPU = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


# Catches: a traceback from torch in place of one sentence, in any phase; advice to use a micro-batch that is not
# smaller.
@pytest.mark.parametrize(("where", "method", "error", "given", "words"), [
    ("llm.learn.score", "grpo", GPU, {}, "add --micro-batch 16 --gradient-checkpointing, or lower --max-tokens"),
    ("llm.run.sample", "grpo", CPU, {"micro_batch": 16}, "add --micro-batch 8 --gradient-checkpointing, or lower "
     "--max-tokens"),
    ("spinup.core.fast.adam.FlatAdam.step", "sft", CPU, {"gradient_checkpointing": True, "micro_batch": 64},
     "add --micro-batch 16, or lower --max-tokens"),
    ("llm.run.sample", "dpo", GPU, {"gradient_checkpointing": True, "micro_batch": 2}, "settings; lower --max-tokens"),
    ("llm.learn.score", "dpo", GPU, {}, "add --micro-batch 16 --gradient-checkpointing, or lower --max-tokens")])
def test_out_of_memory_error_is_one_sentence_with_advice(where, method, error, given, words, beginner, tmp_path,
                                                         monkeypatch):
    def fail(*args, **settings):
        raise error

    monkeypatch.setattr(where, fail)
    with pytest.raises(UserError, match=f"^not enough memory for these .*{words}$"):
        getattr(llm, method)(model=beginner, log_dir=str(tmp_path), **settings(method, **given))
    begun = [json.loads(x.read_text())["status"] for x in tmp_path.glob("*/*/result.json")]
    assert begun == ([] if method == "dpo" else ["failed"])               # pairs are sampled before the run begins


# Catches: advice that the method refuses.
@pytest.mark.parametrize(("method", "words"), [
    ("es", "settings; lower --prompts or --max-tokens"), ("rl2", "--gradient-checkpointing, or lower --prompts"),
    ("self_play", "--gradient-checkpointing, or lower --games")])
def test_out_of_memory_advice_names_only_flags_of_the_method(method, words):
    config = find(f"llm {method}").load().Config()
    assert str(out_of_memory(GPU, config)).endswith(words)


# Catches: a traceback from torch, or advice about environments, if memory runs out before the first update.
@pytest.mark.parametrize("where", ["llm.policy.load.Start.reference", "spinup.core.fast.adam.FlatAdam.__init__"])
def test_out_of_memory_error_before_the_first_update_is_one_sentence(where, beginner, tmp_path, monkeypatch):
    def fail(*args, **settings):
        raise GPU

    monkeypatch.setattr(where, fail)
    with pytest.raises(UserError, match="^not enough memory; choose a smaller --model, or smaller --layers"):
        llm.grpo(model=beginner, log_dir=str(tmp_path), **settings("grpo", kl_coef=0.1))


def test_fsdp_under_torchrun_requires_a_given_micro_batch(monkeypatch):
    monkeypatch.setattr("os.environ", os.environ | {"RANK": "1", "WORLD_SIZE": "2"})
    with pytest.raises(UserError, match="the processes could choose different micro-batches; .* --micro-batch 8"):
        fit(LanguageConfig(fsdp=True), Transformer(Shape(vocab_size=16)), 4, 4)


# Catches: any RuntimeError that is treated as an out-of-memory error.
def test_other_runtime_errors_of_torch_are_unchanged(beginner, tmp_path, monkeypatch):
    def fail(*args, **settings):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr("llm.run.sample", fail)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        llm.grpo(model=beginner, log_dir=str(tmp_path), **settings("grpo"))


# Catches: a state_dict that copies the moments of Adam; a file that is assembled in memory before it is written.
def test_checkpoint_is_copied_only_once(tmp_path):
    optimizer = FlatAdam([torch.nn.Parameter(torch.randn(500_000))], lr=0.1)
    parts = {"optimizer": optimizer.state_dict()}
    assert parts["optimizer"]["first"].data_ptr() == optimizer.first.data_ptr()
    tracemalloc.start()                                       # counts memory of Python, without tensors
    written = save_checkpoint(tmp_path / "checkpoint.pt", {"algorithm": "grpo", "parts": parts})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000
    optimizer.first.fill_(1.0)                                # the written state is not a view of it
    for state in written, read_checkpoint(tmp_path / "checkpoint.pt"):
        assert not state["parts"]["optimizer"]["first"].any()
