"""Recorded steps of the sampler: CUDA graphs, which launch hundreds of kernels at once."""
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from llm.policy.cache import Cache

Pool = list[Any]        # what all graphs of a sampler share: memory and stream; empty before the first one


def record(step: Callable[[Tensor, Tensor], Tensor], cache: Cache,
           pool: Pool) -> Callable[[Tensor, Tensor], Tensor]:
    """Record `step` as a CUDA graph, which launches a few hundred kernels at once.

    `step` takes tokens `[B]` and positions `[B]` of a fixed size and returns logits `[B, V]`. Graphs of one pool reuse
    the memory of each other's intermediate results, because they never run at the same time.
    """
    device = cache.memory[0][0].device
    token = torch.zeros(cache.rows, dtype=torch.long, device=device)
    position = torch.full_like(token, cache.length - 1)       # the last slot: overwritten before it is read
    with torch.cuda.device(device):                           # streams and graphs belong to the current device
        memory, side = pool or (None, torch.cuda.Stream())    # torch's own stream is that of the first GPU
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):                         # run once before the recording, to set up libraries
            step(token, position)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=memory, stream=side):
            logits = step(token, position)
    pool[:] = [graph.pool(), side]

    def play(new_token: Tensor, new_position: Tensor) -> Tensor:
        token.copy_(new_token)
        position.copy_(new_position)
        graph.replay()
        return logits
    play.reads = step                                         # keeps the tensors alive that the graph reads
    return play
