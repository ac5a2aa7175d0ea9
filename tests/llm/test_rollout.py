"""Batches of responses: several joined into one, and groups whose rewards differ."""
from dataclasses import replace

import torch

from llm.policy.generate import Prompts, Responses
from llm.policy.score import score
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from llm.rollout import Batch, join, varied
from llm.tasks import Problem


def batch_of(model, prompts, samples, seed):
    g, (P, T) = torch.Generator().manual_seed(seed), (len(prompts), 4)
    of = torch.arange(P).repeat_interleave(samples)
    ids, lengths = torch.randint(9, (P * samples, T), generator=g), torch.randint(1, 5, (P * samples,), generator=g)
    logp = score(model, Prompts.of(prompts), of, ids)[0].detach()
    responses = Responses(ids, logp, (torch.arange(T) < lengths[:, None]).float(), lengths, lengths < 4, of)
    return Batch([Problem(str(p)) for p in prompts], Prompts.of(prompts), responses, [str(row.tolist()) for row in ids],
                 torch.rand(P * samples, generator=g))


# Catches: `of` without the offset of earlier prompts; prompts that are padded in front; a field in another order.
@torch.no_grad()
def test_join_keeps_all_fields_of_the_batches():
    torch.manual_seed(0)
    model = Transformer(Shape(9, 20, 1, 16, 2, 2, 8, 24))
    batches = [batch_of(model, [[1], [2, 3]], 2, 0), batch_of(model, [[4, 5, 6, 7]], 2, 1),
               batch_of(model, [[1, 8], [2], [3]], 2, 2)]
    short = batches[1].responses                              # one batch has fewer columns than the others
    batches[1].responses = replace(short, lengths=short.lengths.clamp(max=2), mask=short.mask[:, :2]).trimmed()
    joined = join(batches)
    r = joined.responses
    assert r.of.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5] and batches[1].responses.ids.shape[1] <= 2
    logp = score(model, joined.prompts, r.of, r.ids)[0]
    rows = [b.responses[torch.tensor([i])] for b in batches for i in range(len(b.texts))]
    for i, row in enumerate(rows):
        T = row.ids.shape[1]
        torch.testing.assert_close(logp[i, :T], row.logp[0])
        assert torch.equal(r.ids[i, :T], row.ids[0]) and torch.equal(r.logp[i, :T], row.logp[0])
        assert torch.equal(r.mask[i, :T], row.mask[0]) and not r.mask[i, T:].any()
    for name in "lengths", "finished":
        assert torch.equal(getattr(r, name), torch.cat([getattr(b.responses, name) for b in batches]))
    assert torch.equal(joined.rewards, torch.cat([b.rewards for b in batches]))
    assert joined.texts == [text for b in batches for text in b.texts]
    assert [p.prompt for p in joined.problems] == [p.prompt for b in batches for p in b.problems]
    assert join(batches[:1]) is batches[0]


# Catches: `>=` in place of `>`; rewards of other groups.
def test_varied_marks_groups_with_unequal_rewards():
    groups = varied(torch.tensor([1.0, 1, 0, 1, 0.7, 0.7, 0, -1]), 2)
    assert groups.tolist() == [False, True, False, True]
