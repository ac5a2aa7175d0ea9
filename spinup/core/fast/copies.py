"""Copies of small tensors to a GPU. A small copy takes about as long as a larger one, so join them.

Plain: `[x.to(device) for x in tensors]`.
"""
from collections.abc import Iterable

import torch
from torch import Tensor


def copied(tensors: Iterable[Tensor], device: torch.device) -> list[Tensor]:
    """Copy tensors `[...]` to a device, with all float32 tensors in one copy."""
    found = list(tensors)
    places = [i for i, x in enumerate(found) if x.dtype == torch.float32]
    joined = torch.cat([found[i].reshape(-1) for i in places]).to(device)
    pieces = joined.split([found[i].numel() for i in places])
    for i, piece in zip(places, pieces, strict=True):
        found[i] = piece.view(found[i].shape)
    return [x.to(device) for x in found]
