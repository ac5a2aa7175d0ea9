"""Recorded functions of a GPU: CUDA stores their kernel launches and repeats them in one call.

A gradient step of a small network consists of a hundred kernels of a few microseconds each.
Launching them one by one takes longer than running them.
"""
from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[..., dict[str, Tensor]]
WARM_UP = 3             # calls before the recording: they compile kernels and allocate memory


def recorded(function: Step) -> Step:
    """Return `function`, of CUDA tensors, as a recorded function. Plain: function.

    The function may change tensors in place, such as weights and moments: a repeated call changes
    the same memory. It may not wait for the GPU, draw random numbers, or read values from the
    CPU. It returns float32 tensors `[...]` by name. Each combination of input shapes has a
    recording.
    """
    stream: torch.cuda.Stream | None = None
    calls: dict[tuple, int] = {}
    recordings: dict[tuple, Recording] = {}

    def call(*given: Tensor) -> dict[str, Tensor]:
        nonlocal stream
        inputs = [x.contiguous() for x in given]              # like the memory of the recording
        shapes = tuple((x.shape, x.dtype) for x in inputs)
        calls[shapes] = calls.get(shapes, 0) + 1
        with torch.cuda.device(inputs[0].device):
            stream = stream or torch.cuda.Stream()            # torch's default: the first GPU's
            if calls[shapes] <= WARM_UP:
                return aside(function, inputs, stream)
            if shapes not in recordings:
                recordings[shapes] = Recording(function, inputs, stream)
            return recordings[shapes](inputs)
    return call


def aside(function: Step, inputs: list[Tensor], stream: torch.cuda.Stream) -> dict[str, Tensor]:
    """Call `function`, with inputs `[...]`, on another stream, as CUDA asks for the calls before a
    recording."""
    here = torch.cuda.current_stream()
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        outputs = function(*inputs)
    here.wait_stream(stream)
    return outputs


class Recording:
    """A recorded call, with the memory that it reads and writes. Recording it runs nothing."""

    def __init__(self, function: Step, inputs: list[Tensor], stream: torch.cuda.Stream):
        self.inputs, self.graph = [x.clone() for x in inputs], torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            outputs = function(*self.inputs)
            self.joined = torch.cat([x.reshape(-1) for x in outputs.values()])
        self.shapes = {name: x.shape for name, x in outputs.items()}
        self.sizes = [x.numel() for x in outputs.values()]

    def __call__(self, inputs: list[Tensor]) -> dict[str, Tensor]:
        torch._foreach_copy_(self.inputs, inputs)             # Plain: for a, b in ...: a.copy_(b)
        self.graph.replay()
        pieces = self.joined.clone().split(self.sizes)        # the next call overwrites `joined`
        return {name: piece.view(shape)
                for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}
