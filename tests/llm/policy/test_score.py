"""The KL divergence of two policies after each token, compared with its definition, and its gradient."""
import pytest
import torch

from llm.policy.generate import Prompts
from llm.policy.score import forward_kl
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer


def transformer(seed):
    torch.manual_seed(seed)
    return Transformer(Shape(12, context=16, layers=2, width=16, heads=2, kv_heads=2, head_size=8, hidden=32))


def plainly(model, prompts, of, ids, b, n):
    """Logits `[n, vocab]` of the first n tokens of response b, after its whole prompt, without padding."""
    prompt = prompts.ids[of[b], :prompts.lengths[of[b]]]
    return model(torch.cat([prompt, ids[b, :n]])[None])[0, len(prompt) - 1:-1]


# Catches: policy and reference policy exchanged, in the value or in the gradient; a temperature that only one of them
# uses; a missing gradient; results that are one step late.
def test_forward_kl_and_its_gradient_follow_the_definition():
    model, reference, g = transformer(0), transformer(1), torch.Generator().manual_seed(0)
    prompts, of = Prompts.of([[1, 2, 3, 4], [5], [6, 7]]), torch.tensor([0, 0, 1, 2, 2])
    ids = torch.randint(12, (5, 6), generator=g)
    weights, parameters = torch.rand(5, 6, generator=g), list(model.parameters())

    def slope_of(x):
        return torch.cat([p.flatten() for p in torch.autograd.grad((x * weights).sum(), parameters)])

    found, expected = forward_kl(model, reference, prompts, of, ids, temperature=0.7), []
    for b in range(5):
        log_q, log_p = (plainly(m, prompts, of, ids, b, 6).double() / 0.7 for m in (model, reference))
        log_p, log_q = log_p.detach().log_softmax(-1), log_q.log_softmax(-1)
        expected.append(sum(log_p[:, v].exp() * (log_p[:, v] - log_q[:, v]) for v in range(12)))
    expected = torch.stack(expected).float()
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    slope = slope_of(found)
    torch.testing.assert_close(slope, slope_of(expected), atol=1e-5, rtol=1e-4)
    assert all(p.grad is None for p in reference.parameters()) and slope.norm() > 0.1

    h, ends = 1e-3 / slope.norm(), []                                     # finite differences along the gradient
    for step in (h, -2 * h):
        with torch.no_grad():
            for p, part in zip(parameters, slope.split([p.numel() for p in parameters]), strict=True):
                p += step * part.view_as(p)
            ends.append((forward_kl(model, reference, prompts, of, ids, 0.7).double() * weights).sum())
    assert float((ends[0] - ends[1]) / (2 * h)) == pytest.approx(float(slope.square().sum()), rel=0.01)
