"""Sampling, compared with the full forward pass, which has no cache, no batch and no padding."""
import pytest
import torch
from scipy.stats import chisquare

import llm.policy.generate as generate
from llm.policy.cache import Cache
from llm.policy.draw import GROUP, MANY, at_quantile, choose
from llm.policy.generate import Prompts, Sampler
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from spinup.core.fast.linear import packed

VOCAB, NEVER = 12, 99                   # an end token outside of the vocabulary
ROWS = ([3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7])
EQUAL = ([3, 1, 4], [1, 5, 9], [2, 6, 5])


@pytest.fixture(scope="module")
def model():
    model, g = Transformer(Shape(VOCAB, context=48, layers=2, width=32, heads=4, kv_heads=2, head_size=8)), \
        torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape, generator=g) * 0.15 + ("norm" in name))
    return model


def seed(n=0):
    return torch.Generator().manual_seed(n)


@torch.no_grad()
def log_pi(model, prompt, response, temperature=1.0):
    """Log-probabilities `[T, vocab]` before each token of one response."""
    logits = model(torch.tensor([[*prompt, *response]]))[0, len(prompt) - 1:-1]
    return (logits / temperature).log_softmax(-1)


def check(model, rows, out, temperature=1.0):
    """Compare all log-probabilities of `out` with the full forward pass. After the end, they and the mask are 0."""
    for b, (p, n) in enumerate(zip(out.of.tolist(), out.lengths.tolist(), strict=True)):
        ids = out.ids[b, :n]
        expected = log_pi(model, rows[p], ids.tolist(), temperature).gather(1, ids[:, None])[:, 0] * out.mask[b, :n]
        torch.testing.assert_close(out.logp[b, :n], expected, atol=1e-5, rtol=1e-5)
        assert not out.mask[b, n:].any() and not out.logp[b, n:].any()


# Catches: an outdated copy of a weight; a weight that is packed for another matrix product.
@pytest.mark.parametrize("rows", [ROWS, EQUAL])
def test_packed_weights_do_not_change_probabilities(model, rows, monkeypatch):
    monkeypatch.setattr("spinup.core.fast.linear.LARGE", 1)
    monkeypatch.setattr("spinup.core.fast.linear.MATRIX", 1)
    packs = []
    monkeypatch.setattr(generate, "packed", lambda weights, rows: packs.append(weights) or packed(weights, rows))
    sampler = Sampler(model, NEVER)
    check(model, rows, sampler(Prompts.of(rows), samples=4, max_tokens=9, generator=seed()))
    check(model, rows, sampler(Prompts.of(rows), samples=1, max_tokens=2, generator=seed()))
    assert [len(weights) for weights in packs] == [9, 0]                  # 2 blocks of 4, and the tied head


# Catches: keys and values of one piece of the prompts in the rows of another piece.
@pytest.mark.parametrize("rows", [ROWS, EQUAL])
@pytest.mark.parametrize("most", [1, 14])
def test_reading_prompts_in_pieces_does_not_change_probabilities(model, rows, most, monkeypatch):
    monkeypatch.setattr(generate, "READ", (most, most))
    check(model, rows, Sampler(model, NEVER)(Prompts.of(rows), samples=3, max_tokens=6, generator=seed()))


# Catches: no padding, or padding in front; `equal` from the number of prompts; a missing check for empty prompts.
def test_prompts_are_padded_at_the_end():
    prompts = Prompts.of(ROWS)
    assert prompts.lengths.tolist() == [5, 2, 7] and prompts.ids.shape == (3, 7) and not prompts.equal
    assert [prompts.ids[p, :n].tolist() for p, n in enumerate(prompts.lengths)] == list(ROWS)
    assert Prompts.of(EQUAL).equal
    with pytest.raises(ValueError, match="a prompt is empty"):
        Prompts.of([[1], []])


# Catches: `<` in the mask of `apart`; the first logits from the last column; positions that start after the longest
# prompt; `together` for prompts of different lengths.
@pytest.mark.parametrize("rows", [ROWS, EQUAL])
def test_greedy_batch_equals_single_prompts(model, rows):
    sampler = Sampler(model, end=0)
    out = sampler(Prompts.of(rows), max_tokens=20, generator=None)
    assert out.of.tolist() == [0, 1, 2]
    for p, row in enumerate(rows):
        one, n = sampler(Prompts.of([row]), max_tokens=20, generator=None), out.lengths[p]
        assert one.lengths[0] == n and torch.equal(one.ids[0, :n], out.ids[p, :n])
        torch.testing.assert_close(one.logp[0, :n], out.logp[p, :n], atol=1e-5, rtol=1e-5)


# Catches: the least likely token; a sampled token although there is no generator.
def test_without_a_generator_the_most_likely_token_is_taken(model):
    out = Sampler(model, NEVER)(Prompts.of(ROWS), max_tokens=8, generator=None, temperature=3.0)
    for p, row in enumerate(ROWS):
        assert torch.equal(out.ids[p], log_pi(model, row, out.ids[p].tolist()).argmax(-1))


# Catches: logp of another column; a temperature that sampling has and logp has not; a multiplication by the
# temperature; `repeat` in place of `repeat_interleave`, which gives rows of another prompt.
@pytest.mark.parametrize("rows", [ROWS, EQUAL])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_log_probabilities_equal_those_of_the_full_forward_pass(model, rows, temperature):
    out = Sampler(model, end=0)(Prompts.of(rows), samples=4, max_tokens=20, generator=seed(), temperature=temperature)
    assert out.of.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    check(model, rows, out, temperature)
    assert all(len(out.ids[out.of == p].unique(dim=0)) > 1 for p in range(3))         # the samples differ


# Catches: uniform noise in `choose`; tokens that are sampled at temperature 1.
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_are_sampled_from_the_softmax(model, temperature):
    draws, row = 20_000, list(ROWS[0])
    out = Sampler(model, NEVER)(Prompts.of([row]), samples=draws, max_tokens=1, generator=seed(1),
                                temperature=temperature)
    expected = log_pi(model, row, [0], temperature)[0].exp().double()
    assert chisquare(torch.bincount(out.ids[:, 0], minlength=VOCAB), draws * expected / expected.sum()).pvalue > 0.01


# Catches: `right=False`, which samples a first token of probability 0 if the random number is 0.
def test_tokens_of_a_large_vocabulary_are_sampled_from_the_softmax():
    pi = torch.zeros(MANY + 1)
    pi[[1, 5, MANY]] = torch.tensor([0.2, 0.5, 0.3])
    drawn = choose(pi.log().expand(20_000, -1), torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.bincount(minlength=MANY + 1) / 20_000, pi, atol=0.01, rtol=0)
    assert set(drawn.tolist()) == {1, 5, MANY}


# Catches: a group that is found without the probabilities of earlier groups; a remainder that rounding moves out of its
# group.
@pytest.mark.parametrize("size", [GROUP, 3 * GROUP, 3 * GROUP + 7])
def test_token_at_a_quantile_follows_the_cumulative_probabilities(size):
    generator = torch.Generator().manual_seed(0)
    pi = torch.rand(5000, size, generator=generator, dtype=torch.float64) ** 20
    u = torch.cat([torch.rand(4998, 1, generator=generator, dtype=torch.float64), torch.tensor([[0.0], [1.0]])])
    found, ends = at_quantile(pi, u), pi.cumsum(-1)
    wanted = torch.searchsorted(ends, u * ends[:, -1:], right=True)[:, 0]
    assert (found[:-1] == wanted[:-1]).float().mean() > 0.999 and pi[-1, found[-1]] > 0


# Catches: a token of probability 0, whose log-probability is -inf.
def test_rounding_never_gives_a_token_of_probability_0():
    pi = torch.zeros(3, 4 * GROUP)
    pi[:, GROUP + 3] = 1e-30
    assert at_quantile(pi, torch.tensor([[0.0], [0.5], [1.0]])).tolist() == [GROUP + 3] * 3


# Catches: an index outside of the vocabulary. On a GPU it would end the process before the run can report the NaN.
def test_nan_gives_a_token_of_the_vocabulary():
    pi = torch.full((2, 4 * GROUP + 1), torch.nan)
    assert at_quantile(pi, torch.tensor([[0.2], [1.0]])).max() < pi.shape[1]


# Catches: greedy rows that are found by their place among the unfinished rows; the last samples in place of the first.
def test_first_samples_can_be_greedy(model):
    certain = Sampler(model, end=0)(Prompts.of(ROWS), max_tokens=20, generator=None)
    out = Sampler(model, end=0)(Prompts.of(ROWS), samples=30, max_tokens=20, generator=seed(), greedy=2)
    for p, n in enumerate(certain.lengths.tolist()):
        for row in 30 * p, 30 * p + 1:
            assert out.ids[row, :n].equal(certain.ids[p, :n]) and out.lengths[row] == n
        assert len(out.ids[30 * p + 2:30 * p + 30, :2].unique(dim=0)) > 5
    alone = Sampler(model, end=0)(Prompts.of(ROWS), samples=2, max_tokens=20, generator=(g := seed()), greedy=2)
    assert alone.lengths.view(-1, 2).eq(certain.lengths[:, None]).all()
    assert g.get_state().equal(seed().get_state())                        # and no random number is used


# Catches: an end token outside of the mask; `finished` that is not set at the limit; an update of `alive` after the
# limit, which misses an end token in the last place; lengths that grow after the end.
def test_responses_stop_at_the_end_token_or_the_limit(model):
    limit = 6
    out = Sampler(model, end=0)(Prompts.of(ROWS), samples=100, max_tokens=limit, generator=seed())
    at_limit = 0
    for ids, mask, logp, n, finished in zip(out.ids.tolist(), out.mask, out.logp, out.lengths.tolist(),
                                            out.finished.tolist(), strict=True):
        own = ids[:n]
        assert 0 not in own[:-1] and finished == (own[-1] == 0) and (finished or n == limit)
        assert mask[:n].all() and not mask[n:].any() and (logp[:n] < 0).all() and not logp[n:].any()
        at_limit += finished and n == limit
    assert at_limit and not out.finished.all() and 1 in out.lengths       # all cases occurred


# Catches: start positions of the first rows in place of those of the kept rows; a cache that is shortened without
# moving its rows; results that are written to the current row numbers in place of the original ones.
@pytest.mark.parametrize("rows", [ROWS, EQUAL])
def test_dropping_finished_rows_does_not_change_other_rows(model, rows, monkeypatch):
    kept, keep = [], Cache.keep
    monkeypatch.setattr(Cache, "keep", lambda cache, rows: (kept.append(len(rows)), keep(cache, rows)))

    def sample(share, generator):
        monkeypatch.setattr(generate, "COMPACT_BELOW", share)
        monkeypatch.setattr(generate, "LOOK_EVERY", (1, 1))
        kept.clear()
        out = Sampler(model, end=0)(Prompts.of(rows), samples=8, max_tokens=40 - 7, generator=generator)
        check(model, rows, out)
        assert out.of.tolist() == [0] * 8 + [1] * 8 + [2] * 8
        return out, list(kept)

    assert len(sample(0.5, seed())[1]) > 2                                # from 24 rows to 12, 6 and at most 3
    assert len(sample(1.0, seed())[1]) > 8
    never, none = sample(0.0, seed(1))
    assert not none and len(never.lengths.unique()) > 8                   # no row is dropped before all have ended


# Catches: a recording for each number of unfinished rows.
@pytest.mark.parametrize("rows", [ROWS, EQUAL])
def test_recorded_steps_have_few_sizes(model, rows, monkeypatch):
    many = [row for row in rows for _ in range(7)]
    plain = Sampler(model, end=0)(Prompts.of(many), samples=1, max_tokens=40 - 7, generator=None)
    sizes = []
    monkeypatch.setattr(generate, "RECORDED", ("cpu",))
    monkeypatch.setattr(generate, "LOOK_EVERY", (1, 1))
    monkeypatch.setattr(generate, "record", lambda step, cache, pool: sizes.append(cache.rows) or step)
    sampler = Sampler(model, end=0)
    out = sampler(Prompts.of(many), samples=1, max_tokens=40 - 7, generator=None)
    for name in "ids", "mask", "lengths", "finished":
        assert torch.equal(getattr(out, name) * out.mask if name == "ids" else getattr(out, name),
                           getattr(plain, name) * plain.mask if name == "ids" else getattr(plain, name))
    torch.testing.assert_close(out.logp, plain.logp, atol=1e-5, rtol=1e-5)
    drawn = sampler(Prompts.of(many), samples=1, max_tokens=40 - 7, generator=seed(1))
    check(model, many, drawn)
    assert len(sizes) > 2 and sizes[0] == 21 and all(n & (n - 1) == 0 for n in sizes[1:])


# Catches: results that are written back only if rows are unfinished, `if left: out.put`.
def test_all_responses_may_end_at_once(model):
    out = Sampler(model, end=0)(Prompts.of([[3, 1]]), max_tokens=40, generator=None)
    first = int(out.ids[0, 0])
    out = Sampler(model, end=first)(Prompts.of([[3, 1]]), samples=3, max_tokens=40, generator=None)
    assert out.ids[:, 0].tolist() == [first] * 3 and out.lengths.tolist() == [1] * 3 and out.finished.all()
    check(model, [[3, 1]], out)


# Catches: only one of the end tokens; `.any(1)` in place of `.all(1)`.
def test_each_of_several_end_tokens_ends_a_response(model):
    ends = {0, 5}
    out, last = Sampler(model, ends)(Prompts.of(ROWS), samples=40, max_tokens=12, generator=seed()), set()
    for ids, n, finished in zip(out.ids.tolist(), out.lengths.tolist(), out.finished.tolist(), strict=True):
        assert [t for t in range(n) if ids[t] in ends] == [n - 1] * finished and (finished or n == 12)
        last |= {ids[n - 1]} & ends
    assert last == ends
    check(model, ROWS, out)


# Catches: `exponential_()` without the generator.
def test_randomness_comes_only_from_the_generator(model):
    sampler = Sampler(model, end=0)

    def sample(generator):
        return sampler(Prompts.of(ROWS), samples=4, max_tokens=20, generator=generator).ids

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, generator = sample(seed(7)), seed(7)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(sample(generator), first)
    assert not torch.equal(sample(generator), first)                      # the generator has advanced


# Catches: a tool's tokens with 1 in the mask, or with a logp; the sampled token in place of the inserted one;
# insertions in reverse order; a tool that is called after its own tokens; `written` of another row after rows were
# dropped.
@pytest.mark.parametrize("rows", [ROWS, EQUAL])
def test_tokens_of_a_tool_are_inserted_and_masked(model, rows, monkeypatch):
    monkeypatch.setattr(generate, "COMPACT_BELOW", 0.9)
    asked = []

    def tool(written):
        asked.append(tuple(written))
        return [10, 11, 11] if written[-1] in (1, 2, 3) else None

    T = 24
    out = Sampler(model, end=0)(Prompts.of(rows), samples=8, max_tokens=T, generator=seed(3), tool=tool)
    check(model, rows, out)                                               # also of later tokens, which depend on it
    expected, inserted = set(), 0
    for ids, mask, n in zip(out.ids.tolist(), out.mask.tolist(), out.lengths.tolist(), strict=True):
        t = 0
        while t < n:                                                      # the expected tokens, step by step
            assert mask[t] == 1
            expected.add(tuple(ids[:t + 1]))
            t += 1
            if ids[t - 1] in (1, 2, 3):
                given = min(3, n - t)
                assert ids[t:t + given] == [10, 11, 11][:given] and not any(mask[t:t + given])
                assert given == 3 or n == T
                t, inserted = t + given, inserted + 1
    assert set(asked) == expected and inserted > 20


# Catches: an end token that counts only if the policy chose it, `mine & (token == self.end)`.
def test_tool_may_end_a_response(model):
    out = Sampler(model, end=10)(Prompts.of(EQUAL), max_tokens=9, generator=None,
                                 tool=lambda written: [5, 10] if len(written) == 2 else None)
    assert out.ids[:, 2:4].tolist() == [[5, 10]] * 3 and out.lengths.tolist() == [4] * 3 and out.finished.all()
    assert out.mask[0].tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0]


# Catches: `>=` in place of `>`; a check without the length of the longest prompt.
def test_response_beyond_the_context_is_refused(model):
    sampler, prompts = Sampler(model, NEVER), Prompts.of(ROWS)
    assert sampler(prompts, max_tokens=41, generator=seed()).lengths.tolist() == [41] * 3
    with pytest.raises(ValueError, match="a prompt of 7 tokens and a response of 42 do not fit in the context of 48"):
        sampler(prompts, max_tokens=42, generator=seed())


# Catches: prompts that are repeated before they are read; a forward pass for the last token, which nothing follows.
@pytest.mark.parametrize("rows", [ROWS, EQUAL])
def test_each_prompt_is_read_once(model, rows, monkeypatch):
    sizes, hidden = [], model.hidden
    monkeypatch.setattr(model, "hidden", lambda ids, *rest: (sizes.append(tuple(ids.shape)), hidden(ids, *rest))[1])
    Sampler(model, NEVER)(Prompts.of(rows), samples=5, max_tokens=4, generator=seed())
    assert sizes == [(3, max(map(len, rows))), (15, 1), (15, 1), (15, 1)]


# Catches: caches that are never freed; as many large caches as small ones; `rows` of a cache from the end of the last
# call.
@pytest.mark.parametrize("large", [2**24, 1])
def test_calls_of_a_sampler_are_independent(model, monkeypatch, large):
    monkeypatch.setattr(generate, "LARGE", large)
    sampler = Sampler(model, end=0)
    first = sampler(Prompts.of(ROWS), samples=2, max_tokens=20, generator=seed())
    copy = first.ids.clone()
    for n in range(1, 2 * generate.KEEP):                                 # more shapes than are kept
        sampler(Prompts.of(ROWS), samples=2, max_tokens=n, generator=seed(n))
    assert len(sampler.caches) <= (generate.CACHES if large == 1 else generate.KEEP)
    sampler(Prompts.of(ROWS[::-1]), samples=2, max_tokens=20, generator=seed(1))
    assert torch.equal(first.ids, copy)
    again = sampler(Prompts.of(ROWS), samples=2, max_tokens=20, generator=seed())
    assert torch.equal(again.logp, first.logp) and torch.equal(again.ids, copy)


# Catches: results that are created in inference mode, which autograd refuses.
def test_results_can_be_used_in_a_loss(model):
    out = Sampler(model, end=0)(Prompts.of(EQUAL), max_tokens=5, generator=seed())
    weight = torch.ones(3, 5, requires_grad=True)
    ((weight * out.logp * out.mask).sum() / out.lengths.sum()).backward()
    torch.testing.assert_close(weight.grad, out.logp / out.lengths.sum())
    assert not any(x.requires_grad for x in out.tensors().values())
