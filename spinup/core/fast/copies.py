"""Copies of small tensors to a GPU: each takes as long as one copy of several times the size.

Plain: `[x.to(device) for x in tensors]`.
"""
from collections.abc import Iterable

import torch
from torch import Tensor


def copied(tensors: Iterable[Tensor], device: torch.device) -> list[Tensor]:
    """Copy tensors `[...]` to a device, all float32 ones of them in one copy."""
    found = list(tensors)
    places = [i for i, x in enumerate(found) if x.dtype == torch.float32]
    joined = torch.cat([found[i].reshape(-1) for i in places]).to(device)
    pieces = joined.split([found[i].numel() for i in places])
    for i, piece in zip(places, pieces, strict=True):
        found[i] = piece.view(found[i].shape)
    return [x.to(device) for x in found]
