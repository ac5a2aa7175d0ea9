"""Copies of several tensors at once."""
import pytest
import torch

from spinup.core.fast.copies import copied


# Catches: tensors in the wrong order, with another shape or with another dtype; other dtypes in the copy of float32.
@pytest.mark.parametrize("kind", [torch.float32, torch.uint8])
def test_copied_tensors_equal_the_originals(kind):
    given = [(255 * torch.rand(5, 3)).to(kind), torch.arange(5), torch.rand(5, 2), torch.rand(()), torch.arange(5) + 7]
    for before, after in zip(given, copied(given, torch.device("cpu")), strict=True):
        assert after.dtype == before.dtype and torch.equal(after, before)
    assert all(x.device.type == "meta" for x in copied(given, torch.device("meta")))
