"""The KL divergence from the reference policy in the log, compared with sums over the whole vocabulary."""
import pytest
import torch

from llm.config import LanguageConfig
from llm.learn import kl_to_reference
from llm.policy.generate import Prompts, Responses, Sampler
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from llm.rollout import Batch


# Compared with sums over the whole vocabulary in float64. Catches: KL(reference || policy); a missing temperature;
# tokens that the policy did not write; the mean over tokens and the mean over responses exchanged.
def test_exact_kl_to_the_reference_policy():
    torch.manual_seed(0)
    shape = Shape(6, context=16, layers=1, width=16, heads=2, kv_heads=2, head_size=8, hidden=32)
    model, other = Transformer(shape), Transformer(shape)
    prompts = Prompts(torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1]))
    ids, mask = torch.tensor([[4, 5, 1], [2, 0, 0]]), torch.tensor([[1.0, 0, 1], [1, 0, 0]])
    r = Responses(ids, torch.zeros(2, 3), mask, torch.tensor([3, 1]), torch.tensor([True, True]), torch.arange(2))
    batch = Batch([None, None], prompts, r, ["a", "b"], torch.zeros(2))
    each = torch.zeros(2, 3, dtype=torch.float64)
    for i in range(2):
        n = int(prompts.lengths[i])
        for t in range(3):
            if mask[i, t]:
                seen = torch.cat([prompts.ids[i, :n], ids[i, :t]])[None]
                p, q = ((m(seen)[0, -1].double() / 0.7).log_softmax(-1) for m in (model, other))
                each[i, t] = (p.exp() * (p - q)).sum()
    per_token, per_response = kl_to_reference(model, other, LanguageConfig(temperature=0.7), batch)
    assert per_token == pytest.approx(float(each.sum() / 3), rel=1e-4)
    assert per_response == pytest.approx(float(each.sum() / 2), rel=1e-4)


# With a large vocabulary, the KL divergence is estimated from sampled tokens. Catches: the two policies exchanged.
def test_estimated_kl_is_near_the_exact_kl(monkeypatch):
    torch.manual_seed(0)
    shape = Shape(6, context=16, layers=1, width=16, heads=2, kv_heads=2, head_size=8, hidden=32)
    model, other = Transformer(shape), Transformer(shape)
    with torch.no_grad():
        for p in (*model.parameters(), *other.parameters()):
            if p.dim() == 2:
                p.mul_(3)
    prompts = Prompts.of([[1, 2], [3, 0]])
    r = Sampler(model, -1)(prompts, samples=2000, max_tokens=3, generator=torch.Generator().manual_seed(0))
    batch = Batch([None, None], prompts, r, [""] * 4000, torch.zeros(4000))
    monkeypatch.setattr("llm.learn.KL_ROWS", 4000)
    exact = kl_to_reference(model, other, LanguageConfig(), batch)
    monkeypatch.setattr("llm.learn.EXACT", 0)
    found = kl_to_reference(model, other, LanguageConfig(), batch)
    assert exact[0] > 0.1 and found == pytest.approx(exact, rel=0.1)
