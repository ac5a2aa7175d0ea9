"""Several sequences in a row are as good as a row for each."""
import pytest
import torch

import llm
from llm.policy.generate import Prompts
from llm.policy.packed import pack, score_packed
from llm.policy.score import score
from llm.policy.transformer import Shape, Transformer

SIZES = [(3, 9), (1, 1), (6, 2), (2, 12), (4, 1), (1, 5), (6, 2), (3, 3)]                  # of prompts and responses


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Transformer(Shape(30, context=40, layers=2, width=32, heads=4, kv_heads=2, head_size=12, qk_norm=True))


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


# Turned red by: attention to the sequence before; positions that go on; the state of the token itself, or of the last
# prompt token of another sequence; padding that is part of the loss.
@pytest.mark.parametrize(("chunk", "checkpointing"), [(2**26, False), (100, True)])
def test_packed_rows_have_the_numbers_and_the_gradient_of_padded_ones(model, batch, chunk, checkpointing, monkeypatch):
    prompts, of, ids, lengths = batch
    inside = torch.arange(12) < lengths[:, None]
    weight = torch.randn(ids.shape, generator=torch.Generator().manual_seed(2)) / inside.sum()
    expected = score(model, prompts, of, ids, temperature=0.7)
    monkeypatch.setattr("llm.policy.score.CHUNK", chunk)
    found = score_packed(model, prompts, of, ids, lengths, temperature=0.7, checkpointing=checkpointing)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, torch.where(inside, b, 0.0), atol=2e-6, rtol=0)
    exact = gradient(model, expected, weight, inside)
    torch.testing.assert_close(gradient(model, found, weight, inside), exact, atol=1e-6, rtol=0)
    assert exact.abs().max() > 0.01


# Turned red by: a padded row for each sequence.
def test_fewer_tokens_are_read(model, batch, monkeypatch):
    read, hidden = [], Transformer.hidden

    def spy(model, ids, *args, **settings):
        read.append(ids.numel())
        return hidden(model, ids, *args, **settings)

    monkeypatch.setattr(Transformer, "hidden", spy)
    for packed in score_packed, lambda *args: score(*args[:-1]):
        packed(model, *batch)
    tokens = sum(p + n - 1 for p, n in SIZES)
    assert tokens <= read[0] < 1.25 * tokens < 0.6 * sum(read[1:])


def test_no_sequence_is_lost_and_no_row_is_too_long():
    sizes = [5, 3, 8, 2, 2, 6, 1, 8]
    rows = pack(sizes)
    assert sorted(b for row in rows for b in row) == list(range(8))
    assert max(sum(sizes[b] for b in row) for row in rows) == 8 and len(rows) == 5    # of 35 tokens


# Turned red by: a setting that does nothing; a micro-batch whose rows are packed with those of another.
def test_sft_learns_the_same_with_and_without_packing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls, settings = [], {"layers": 1, "width": 16, "heads": 2, "held_out": 4, "quiet": True, "tensorboard": False,
                           "threads": 1, "preset": "none", "total_steps": 3, "batch": 12, "micro_batch": 5, "warmup": 0}
    monkeypatch.setattr("llm.learn.score_packed", lambda *args, **given: [calls.append(1),
                                                                          score_packed(*args, **given)][1])
    packed, padded = (llm.sft("taste", **settings, packing=packing).policy.model.parameters()
                      for packing in (True, False))
    assert len(calls) == 9
    for a, b in zip(packed, padded, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
