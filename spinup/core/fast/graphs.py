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
    the CPU. It returns float32 tensors `[...]` by name. Each combination of input shapes has a
    recording.
    """
    calls: dict[tuple[torch.Size, ...], int] = {}
    recordings: dict[tuple[torch.Size, ...], Recording] = {}

    def call(*inputs: Tensor) -> dict[str, Tensor]:
        shapes = tuple(x.shape for x in inputs)
        calls[shapes] = calls.get(shapes, 0) + 1
        with torch.cuda.device(inputs[0].device):             # streams are those of this GPU
            if calls[shapes] <= WARM_UP:
                return aside(function, inputs)
            if shapes not in recordings:
                recordings[shapes] = Recording(function, inputs)
            return recordings[shapes](inputs)
    return call


def aside(function: Step, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Call `function` on another stream, as CUDA asks for the calls before a recording."""
    here, stream = torch.cuda.current_stream(), torch.cuda.Stream()
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        outputs = function(*inputs)
    here.wait_stream(stream)
    return outputs


class Recording:
    """A recorded call, with the memory that it reads and writes. Recording it runs nothing."""

    def __init__(self, function: Step, inputs: tuple[Tensor, ...]):
        self.inputs, self.graph = [x.clone() for x in inputs], torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            outputs = function(*self.inputs)
            self.joined = torch.cat([x.reshape(-1) for x in outputs.values()])
        self.shapes = {name: x.shape for name, x in outputs.items()}
        self.sizes = [x.numel() for x in outputs.values()]

    def __call__(self, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        torch._foreach_copy_(self.inputs, inputs)             # Plain: for a, b in ...: a.copy_(b)
        self.graph.replay()
        pieces = self.joined.clone().split(self.sizes)        # the next call overwrites `joined`
        return {name: piece.view(shape)
                for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}
