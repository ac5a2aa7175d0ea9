"""Tokens that are read in pieces, through a cache, have the same logits as tokens that are read at once."""
import pytest
import torch

from llm.policy.cache import Cache, Prefix, Slots
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer, rotations

SHAPES = {"small": Shape(30, context=40, layers=2, width=32, heads=2, kv_heads=2),
          "grouped": Shape(30, context=40, layers=2, width=32, heads=4, kv_heads=2, head_size=12, qkv_bias=True,
                           tied=False),
          "normed": Shape(30, context=40, layers=2, width=32, heads=4, kv_heads=1, head_size=12, qk_norm=True,
                          rope_scaling=(8.0, 1.0, 4.0, 32))}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def make(shape, seed=0):
    """A model with random values in all tensors: the initial biases of 0 and norms of 1 would hide mistakes."""
    model, g = Transformer(shape), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape, generator=g) * 0.2 + ("norm" in name))
    return model.eval()


def tokens(*size, seed=0):
    return torch.randint(30, size, generator=torch.Generator().manual_seed(seed))


def seen(positions, length):
    """Mask `[B, 1, T, length]` of the keys that tokens at `positions` `[B, T]` may attend to."""
    return (torch.arange(length) <= positions[..., None])[:, None]


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def through(model, ids, slots, cache):
    return model.logits(model.hidden(ids, slots, cache))


# Catches: `is_causal=False`.
@each_shape
@torch.no_grad()
def test_no_token_attends_to_a_later_one(shape):
    model, ids, others = make(shape), tokens(2, 20), tokens(2, 20)
    others[:, 12:] = tokens(2, 8, seed=1)
    close(model(ids)[:, :12], model(others)[:, :12])
    assert not torch.allclose(model(ids)[:, 12:], model(others)[:, 12:], atol=1e-2)


# Catches: rotations of a decoding step one position too far; the end of the slice in `Cache.extend` one too low.
@each_shape
@torch.no_grad()
def test_reading_token_by_token_gives_the_same_logits(shape):
    model, ids, cache = make(shape), tokens(3, 20), Cache(shape, 3, 25, torch.device("cpu"), torch.float32)
    found = [through(model, ids[:, :6], Slots(0), cache)]
    found += [through(model, ids[:, t:t + 1], Slots(t), cache) for t in range(6, 20)]
    close(torch.cat(found, 1), model(ids))


# Catches: `is_causal` with more keys than queries, which aligns the first query with the first key.
@each_shape
@torch.no_grad()
def test_reading_several_tokens_after_a_prefill_gives_the_same_logits(shape):
    model, ids, cache = make(shape), tokens(3, 20), Cache(shape, 3, 25, torch.device("cpu"), torch.float32)
    cuts = ((0, 6), (6, 13), (13, 14), (14, 20))
    close(torch.cat([through(model, ids[:, a:b], Slots(a), cache) for a, b in cuts], 1), model(ids))


# Catches: `scatter_` at `positions + 1`; a mask that is not passed on, so that tokens attend to padding.
@each_shape
@pytest.mark.parametrize("at_once", [1, 3])
@torch.no_grad()
def test_rows_of_different_lengths_give_the_same_logits(shape, at_once):
    model, ids, lengths = make(shape), tokens(3, 23), torch.tensor([4, 9, 6])
    cache = Cache(shape, 3, 25, torch.device("cpu"), torch.float32)
    prompts = torch.where(torch.arange(9) < lengths[:, None], ids[:, :9], 7)
    found = [through(model, prompts, Slots(), cache)[torch.arange(3), lengths - 1][:, None]]
    for t in range(0, 12, at_once):
        positions = lengths[:, None] + torch.arange(t, t + at_once)
        slots = Slots(None, positions, seen(positions, cache.length))
        found.append(through(model, ids.gather(1, positions), slots, cache))
    for row, (n, logits) in enumerate(zip(lengths, torch.cat(found, 1), strict=True)):
        close(logits, model(ids[row:row + 1, :n + 12])[0, n - 1:])


# Catches: an ignored `of`; rows in the wrong order in `keep`; `rows` that `fill` does not reset.
@each_shape
@torch.no_grad()
def test_cache_starts_from_prompts_and_drops_rows(shape):
    model, prompts, rest = make(shape), tokens(2, 5), tokens(4, 6, seed=1)
    of, prefix, cache = torch.tensor([0, 0, 1, 1]), Prefix(), Cache(shape, 4, 11, torch.device("cpu"), torch.float32)
    model.hidden(prompts, Slots(), prefix)
    cache.fill(prefix, 2)
    expected = model(torch.cat([prompts[of], rest], 1))
    close(through(model, rest[:, :2], Slots(5), cache), expected[:, 5:7])
    keep = torch.tensor([1, 3])
    cache.keep(keep)
    close(through(model, rest[keep, 2:4], Slots(7), cache), expected[keep, 7:9])
    cache.fill(prefix, 2)                                             # the dropped rows are there again
    close(through(model, rest, Slots(5), cache), expected[:, 5:])


# Catches: a missing `_apply`; `persistent=True`.
@pytest.mark.parametrize("change", [lambda m: m.to(torch.bfloat16), lambda m: m.half(), lambda m: m.double(),
                                    lambda m: m.to("meta").to_empty(device="cpu")])
def test_rotations_stay_exact_in_fp32(change):
    shape = Shape(30, context=1000)
    model = change(Transformer(shape))
    for found, expected in zip((model.cos, model.sin), rotations(shape), strict=True):
        assert found.dtype == torch.float32 and torch.equal(found, expected)
    assert "cos" not in model.state_dict()                                # and they are not saved


# Catches: a missing copy of the prefix in `hidden`, so that the prompts are read again as responses to themselves;
# checkpointing without the mask.
def test_checkpointing_does_not_change_gradients():
    model, prompts, rest = make(SHAPES["grouped"]), tokens(2, 5), tokens(3, 4, seed=1)
    lengths, of = torch.tensor([3, 5]), torch.tensor([0, 1, 1])
    positions = lengths[of][:, None] + torch.arange(4)
    mask = torch.cat([seen(lengths[of][:, None] - 1, 5).expand(-1, -1, 4, -1), seen(torch.arange(4)[None], 4)
                      .expand(3, -1, -1, -1)], 3)                         # of the prompt up to its length

    def gradients(checkpointing):
        prefix = Prefix()
        model.zero_grad()
        first = model.hidden(prompts, Slots(), prefix, checkpointing)
        prefix.rows = of
        out = model.hidden(rest, Slots(None, positions, mask), prefix, checkpointing)
        (first.square().sum() + out.square().sum()).backward()
        return out.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    (plain, grads), (again, regrads) = gradients(False), gradients(True)
    close(plain, again)
    for a, b in zip(grads, regrads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    for row, (p, n) in enumerate(zip(of, lengths[of], strict=True)):
        close(plain[row], model.hidden(torch.cat([prompts[p, :n], rest[row]])[None], Slots())[0, n:].detach())


@torch.no_grad()
def test_bf16_attends_in_fp32_on_a_cpu():
    model = make(SHAPES["grouped"]).to(torch.bfloat16)
    read = Prefix()
    assert model.hidden(tokens(2, 20), Slots(), read).dtype == torch.bfloat16
    assert {x.dtype for x in (*read.k.values(), *read.v.values())} == {torch.float32}
