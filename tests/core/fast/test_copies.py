"""Copies of several tensors at once."""
import pytest
import torch

from spinup.core.fast.copies import copied


# Catches: a tensor in the place of another, or with another shape or type; only float32 ones in one copy.
@pytest.mark.parametrize("kind", [torch.float32, torch.uint8])
def test_tensors_arrive_as_they_were(kind):
    given = [(255 * torch.rand(5, 3)).to(kind), torch.arange(5), torch.rand(5, 2), torch.rand(()), torch.arange(5) + 7]
    for before, after in zip(given, copied(given, torch.device("cpu")), strict=True):
        assert after.dtype == before.dtype and torch.equal(after, before)
    assert all(x.device.type == "meta" for x in copied(given, torch.device("meta")))
