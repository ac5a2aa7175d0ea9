"""Recorded functions of a GPU: CUDA stores their kernel launches and repeats them in one call.

A gradient step of a small network consists of a hundred kernels of a few microseconds each. To
launch them one by one takes longer than to run them.
"""
from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[..., dict[str, Tensor]]
WARM_UP = 3             # calls before the recording: they compile kernels and allocate memory


def recorded(function: Step) -> Step:
    """Return `function`, of CUDA tensors, as a recorded function. Plain: function.

    The function may change tensors in place, such as weights and moments: a repeated call changes
    the same memory. It may not wait for the GPU, draw random numbers, or depend on other values of
    the CPU. It returns tensors `[...]` by name. Each combination of input shapes has a recording.
    """
    calls: dict[tuple[torch.Size, ...], int] = {}
    graphs: dict[tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, list[Tensor], dict]] = {}

    def call(*inputs: Tensor) -> dict[str, Tensor]:
        shapes = tuple(x.shape for x in inputs)
        calls[shapes] = calls.get(shapes, 0) + 1
        if calls[shapes] <= WARM_UP:
            return aside(function, inputs)
        if shapes not in graphs:
            graphs[shapes] = record(function, inputs)
        graph, own, outputs = graphs[shapes]
        torch._foreach_copy_(own, inputs)                     # Plain: for o, x in ...: o.copy_(x)
        graph.replay()
        return {name: x.clone() for name, x in outputs.items()}
    return call


def aside(function: Step, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Call `function` on another stream, because autograd of the recording uses another one too."""
    here, stream = torch.cuda.current_stream(), torch.cuda.Stream()
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        outputs = function(*inputs)
    here.wait_stream(stream)
    return outputs


def record(function: Step, inputs: tuple[Tensor, ...]
           ) -> tuple[torch.cuda.CUDAGraph, list[Tensor], dict[str, Tensor]]:
    """Return the recording, the tensors that it reads, and those that it writes. Nothing runs."""
    own, graph = [x.clone() for x in inputs], torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outputs = function(*own)
    return graph, own, outputs
