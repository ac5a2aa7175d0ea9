"""Sequence packing: several sequences in a row give the same results as one row per sequence."""
from types import SimpleNamespace

import pytest
import torch
from torch.nn.utils import parameters_to_vector as flat

import llm
from llm.policy import transformer
from llm.policy.generate import Prompts
from llm.policy.packed import pack, read_packed, worth_packing
from llm.policy.score import read, score
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer

SIZES = [(3, 9), (1, 1), (6, 2), (2, 12), (4, 1), (1, 5), (6, 2), (3, 3)]                  # of prompts and responses


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Transformer(Shape(30, context=40, layers=2, width=32, heads=4, kv_heads=2, head_size=12, qk_norm=True))


@pytest.fixture(autouse=True)
def packs(monkeypatch):
    """Models of any width are packed."""
    monkeypatch.setattr("llm.policy.packed.WIDE", 1)


@pytest.fixture(scope="module")
def batch():
    g = torch.Generator().manual_seed(1)
    prompts = Prompts.of([torch.randint(30, (p,), generator=g).tolist() for p, _ in SIZES[:6]])
    lengths = torch.tensor([n for _, n in SIZES])
    of = torch.tensor([0, 1, 2, 3, 4, 5, 2, 0])               # two responses to the same prompt
    return prompts, of, torch.randint(30, (len(SIZES), 12), generator=g), lengths


def gradient(model, numbers, weight, inside):
    loss = (torch.where(inside, numbers[0], 0.0) * weight).sum()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


# Catches: a mask of another type, which each layer would convert and keep; strides that CUDA's kernels refuse.
def test_all_layers_share_one_additive_mask(model, batch, monkeypatch):
    seen, attend = [], transformer.attend
    monkeypatch.setattr(transformer, "attend", lambda q, k, v, mask, grouped: seen.append(mask) or attend(
        q, k, v, mask, grouped))
    prompts, of, ids, lengths = batch
    read(model, prompts, of, ids)
    asked, given = seen[:2], seen[2:]                                     # the prompts, and the responses
    assert len(given) == 2 and given[0] is given[1] and given[0].dtype == torch.float32
    assert set(given[0].unique().tolist()) == {0.0, -torch.inf} and all(mask is None for mask in asked)
    assert all(stride % 8 == 0 for stride in given[0].stride()[:-1])
    seen.clear()
    read_packed(model, prompts, of, ids, lengths)
    assert seen[0] is seen[1] and seen[0].dtype == torch.float32


# Catches: attention to the previous sequence; positions that continue those of the previous sequence; the hidden state
# of the token itself, or of the last prompt token of another sequence; padding in the loss.
@pytest.mark.parametrize(("chunk", "checkpointing"), [(2**26, False), (100, True)])
def test_packed_rows_have_the_results_and_gradients_of_padded_rows(model, batch, chunk, checkpointing, monkeypatch):
    prompts, of, ids, lengths = batch
    inside = torch.arange(12) < lengths[:, None]
    weight = torch.randn(ids.shape, generator=torch.Generator().manual_seed(2)) / inside.sum()
    expected = score(model, prompts, of, ids, temperature=0.7)
    monkeypatch.setattr("llm.policy.score.CHUNK", chunk)
    found = score(model, prompts, of, ids, lengths, temperature=0.7, checkpointing=checkpointing)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, torch.where(inside, b, 0.0), atol=2e-6, rtol=0)
    exact = gradient(model, expected, weight, inside)
    torch.testing.assert_close(gradient(model, found, weight, inside), exact, atol=1e-6, rtol=0)
    assert exact.abs().max() > 0.01


# Catches: a padded row for each sequence; a prompt that is read once per response.
def test_packing_reads_fewer_tokens(model, batch, monkeypatch):
    read, hidden = [], Transformer.hidden

    def spy(model, ids, *args, **settings):
        read.append(ids.numel())
        return hidden(model, ids, *args, **settings)

    monkeypatch.setattr(Transformer, "hidden", spy)
    score(model, *batch)
    score(model, *batch[:-1])
    tokens = sum(p for p, _ in SIZES[:6]) + sum(n - 1 for _, n in SIZES)                     # each prompt once
    assert tokens <= read[0] < 1.25 * tokens < 0.6 * sum(read[1:])


def test_packing_loses_no_sequence_and_makes_no_row_too_long():
    sizes = [5, 3, 8, 2, 2, 6, 1, 8]
    rows = pack(sizes)
    assert sorted(b for row in rows for b in row) == list(range(8))
    assert max(sum(sizes[b] for b in row) for row in rows) == 8 and len(rows) == 5    # of 35 tokens


# Catches: hidden states in another order than the responses, or from beyond their ends.
def test_hidden_states_equal_those_of_padded_rows(model, batch):
    inside = torch.arange(12) < batch[-1][:, None]
    padded, packed = (read(model, *given)[inside] for given in (batch[:-1], batch))
    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=0)


# Catches: packing of responses with hardly any padding, or for small models, where packing takes longer.
def test_rows_are_packed_only_if_it_saves_time(model, batch, monkeypatch):
    prompts, of, ids, lengths = batch
    assert worth_packing(model, prompts, of, ids, lengths)
    assert not worth_packing(model, prompts, torch.full_like(of, 2), ids[:, :6], torch.full_like(lengths, 6))
    monkeypatch.setattr("llm.policy.packed.WIDE", 33)
    assert not worth_packing(model, prompts, of, ids, lengths)


# Catches: many long responses in one row, in which attention takes longer than padding would.
def test_group_of_long_responses_is_not_packed():
    one = Prompts.of([[1] * 5], "cpu")
    ids = torch.ones(16, 400, dtype=torch.long)
    lengths = torch.linspace(100, 400, 16).long()
    wide = SimpleNamespace(divided=False, shape=Shape(100, width=576, heads=9, kv_heads=3, head_size=64, hidden=1536))
    assert not worth_packing(wide, one, torch.zeros(16, dtype=torch.long), ids, lengths)
    each = Prompts.of([[1] * 5] * 16, "cpu")                  # one response to each prompt: shorter rows
    assert worth_packing(wide, each, torch.arange(16), ids, lengths)


# Catches: rows that are packed with those of another micro-batch; lengths that a method does not pass.
@pytest.mark.long("ppo", "grpo")
@pytest.mark.parametrize("method", ["sft", "grpo", "ppo"])
def test_methods_learn_the_same_with_and_without_packing(method, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls, settings = [], {"layers": 1, "width": 16, "heads": 2, "held_out": 4, "quiet": True, "tensorboard": False,
                           "threads": 1, "preset": "none", "total_steps": 3, "micro_batch": 5, "warmup": 0}
    settings |= {"sft": {"batch": 12}, "ppo": {"samples": 4, "prompts": 3, "minibatches": 1}}.get(
        method, {"samples": 4, "prompts": 3})

    def spy(*given):
        calls.append(1)
        return read_packed(*given)

    monkeypatch.setattr("llm.policy.score.read_packed", spy)
    monkeypatch.setattr("llm.policy.packed.PADDING", -9)      # packing takes longer here
    trained = []
    for wide in 1, 1000:
        monkeypatch.setattr("llm.policy.packed.WIDE", wide)
        trained.append(flat(getattr(llm, method)("taste", **settings).policy.model.parameters()))
        assert calls
    packed, padded = trained
    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=0)
