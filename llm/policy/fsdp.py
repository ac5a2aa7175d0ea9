"""Models that do not fit one device: each rank keeps its share of the weights, gradients and moments.

The method is ZeRO-3 (Rajbhandari et al. 2020, arXiv:1910.02054, section 5.3), in torch's implementation FSDP2 (Zhao et
al. 2023, arXiv:2304.11277). It divides each weight `[n, ...]` along its first dimension. A rank gathers the weights of
a block just before it computes the block, and frees them afterwards. The backward pass gathers them again, sums the
gradient over the ranks, and leaves each rank its share of the sum.

All ranks must gather the same blocks in the same order. So they make equally many passes, and a pass reads prompts and
responses in one call; see `llm.learn.passes` and `llm.policy.packed`. Sampling reads a block once per token, and ranks
sample different numbers of tokens. So each rank has all weights while it samples.
"""
import copy
import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from llm.config import LanguageConfig
from llm.policy.lora import AdaptedLinear, is_adapted
from spinup.core.fast.adam import FlatAdam
from spinup.errors import NonFiniteError, UserError
from spinup.runs import ranks
from spinup.runs.values import finite


def check(cfg: LanguageConfig) -> None:
    """Raise UserError if `--fsdp` does not fit the method or the other settings."""
    if not cfg.fsdp:
        return
    if ranks.wanted(cfg.workers) == 1:
        raise UserError("--fsdp divides the model among processes, and this run has one; add --workers 2, or leave out "
                        "--fsdp")
    if cfg.shard:
        raise UserError("--fsdp divides Adam's moments too; leave out --shard")
    if cfg.compile:
        raise UserError("--fsdp does not work with compiled layers; leave out --compile")
    if hasattr(sys.modules[type(cfg).__module__], "FlatAdam"):            # in place of `Run.adam`
        raise UserError(f"{cfg.algorithm} needs all weights in one tensor or one process; leave out --fsdp")


def own_rows(x: Tensor) -> Tensor:
    """Return this rank's share `[m, ...]` of a tensor `[n, ...]`, as a view: the rows that FSDP gives it."""
    each = -(-len(x) // ranks.size())
    return x[ranks.rank() * each:(ranks.rank() + 1) * each]


def own(x: Tensor) -> Tensor:
    """Return this rank's share of a divided tensor, as a view; any other tensor itself."""
    return x.to_local() if hasattr(x, "to_local") else x


@torch.no_grad()
def whole(x: Tensor) -> Tensor:
    """Gather a divided tensor `[n, ...]` on each rank; return any other tensor itself."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def return_memory() -> None:
    """Return freed memory to the operating system. glibc keeps freed tensors of a few MB, such as whole weights."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):               # musl has no malloc_trim
            ctypes.CDLL(None).malloc_trim(0)


class Divided:
    """A model with divided weights, as a part of a run's checkpoint. All ranks create it from equal models.

    It changes the model in place, as `fully_shard` does. Scoring functions then reach the model through
    `model.through(function, ...)`; see `llm.policy.score.one_pass`.

    model: a `Transformer`, or a `ScalarModel` with one as its `body`.
    """

    def __init__(self, model: nn.Module):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
        body = getattr(model, "body", model)
        self.model = model
        self.outline = {name: x.detach().to("meta") for name, x in model.named_parameters()}
        self.twin = copy.deepcopy(model, {id(x): nn.Parameter(self.outline[name], requires_grad=False)
                                          for name, x in model.named_parameters()})
        if body.device.type == "cuda":
            torch.cuda.set_device(body.device)                            # FSDP uses the current device
        mesh = init_device_mesh(body.device.type, (ranks.size(),))
        for unit in (*body.blocks, model):                                # the last has the embedding and the head
            fully_shard(unit, mesh=mesh, reshard_after_forward=True,
                        mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
            unit.set_gradient_divide_factor(1.0)                          # a sum: losses have the whole denominator
            unit.set_force_sum_reduction_for_comms(True)                  # Gloo cannot multiply and sum in one step
        body.divided = True
        model.through = lambda function, *args, **kwargs: function(model, *args, **kwargs)
        register_fsdp_forward_method(model, "through")

    @contextmanager
    def gathered(self) -> Iterator[nn.Module]:
        """Yield a model that has all weights within the block. All ranks enter the block; inside it, they need not act
        together."""
        self.twin.load_state_dict({name: whole(x) for name, x in self.model.state_dict().items()}, assign=True)
        try:
            yield self.twin
        finally:
            self.twin.load_state_dict(self.outline, strict=False, assign=True)
            return_memory()

    def undivided(self) -> nn.Module | None:
        """Return a permanent model with all weights on rank 0; None on the others."""
        state = self.state_dict()
        if ranks.rank():
            return None
        self.twin.load_state_dict(state, assign=True)
        return self.twin.cpu()                                            # its buffers too

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights `[n, ...]` on rank 0, as the model had them before; the other ranks get {}.

        Raise NonFiniteError on all ranks if a weight is not finite.
        """
        state = self.model.state_dict()
        if ranks.any_of(not all(finite(own(x)) for x in state.values())):
            raise NonFiniteError("the weights became NaN or infinite since the last checkpoint; try a smaller --lr "
                                 "first")
        gathered = ((name, whole(x)) for name, x in state.items())        # one at a time
        return {name: x.cpu() for name, x in gathered if not ranks.rank()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Copy this rank's share of the weights `[n, ...]`. Raise ValueError or KeyError if they do not fit."""
        for name, x in self.model.state_dict().items():
            if x.shape != state[name].shape:
                raise ValueError(f"{name} has the shape {[*state[name].shape]} instead of {[*x.shape]}")
            own(x).copy_(own_rows(state[name]) if own(x) is not x else state[name])


class DividedAdam:
    """Adam of a divided model: each rank has the moments of its share. It has the methods of `FlatAdam`.

    In bf16, it also has an fp32 copy of the share, as `FlatAdam` does.

    model: its parameters may be whole until `begin`. The other arguments are those of `FlatAdam`.
    """

    def __init__(self, model: nn.Module, *, lr: float, max_grad_norm: float = float("inf"), eps: float = 1e-5):
        self.model, self.lr, self.max_grad_norm, self.eps, self.steps = model, lr, max_grad_norm, eps, 0

    def begin(self) -> None:
        """Allocate the moments. Call it after the model has been divided."""
        self.params = [p for p in self.model.parameters() if p.requires_grad]
        self.masters = [nn.Parameter(own(p.detach()).float()) for p in self.params]          # fp32: the share itself
        self.adam = torch.optim.AdamW(self.masters, lr=self.lr, betas=FlatAdam.BETAS, eps=self.eps, weight_decay=0,
                                      fused=True)
        for x in self.masters:                                # else torch allocates them in the first step
            self.adam.state[x] = {"step": torch.zeros((), device=x.device), "exp_avg": torch.zeros_like(x),
                                  "exp_avg_sq": torch.zeros_like(x)}

    def zero_grad(self) -> None:
        """Free the gradient."""
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self, lr: float | None = None) -> Tensor:
        """Clip the gradient, make one step of Adam, and return the norm of the whole gradient before clipping, `[]`.
        """
        for x, p in zip(self.masters, self.params, strict=True):
            x.grad = None if p.grad is None else own(p.grad).float()
        found = [x.grad for x in self.masters if x.grad is not None]
        norm = ranks.add(torch.stack([x.square().sum() for x in found]).sum()).sqrt()
        if self.max_grad_norm != float("inf"):
            torch._foreach_mul_(found, (self.max_grad_norm / (norm + 1e-6)).clamp(max=1))
        self.adam.param_groups[0]["lr"] = self.lr if lr is None else lr
        self.adam.step()
        for x, p in zip(self.masters, self.params, strict=True):
            own(p).copy_(x)                                   # changes nothing in fp32
            x.grad = None
        self.steps += 1
        return norm

    def kept(self) -> dict[str, list[Tensor]]:
        """Tensors of this rank, by their names in the checkpoint: a share `[m, ...]` for each parameter."""
        states = [self.adam.state[x] for x in self.masters]
        kept = {"first": [s["exp_avg"] for s in states], "second": [s["exp_avg_sq"] for s in states]}
        return kept if self.params[0].dtype == torch.float32 else {**kept, "master": self.masters}

    def state_dict(self) -> dict[str, Tensor | int]:
        """Return the state that `FlatAdam` would have, on rank 0; the other ranks get {}."""
        from torch.distributed.tensor import DTensor
        sizes = [p.numel() for p in self.params]
        state = {} if ranks.rank() else {name: torch.empty(sum(sizes)) for name in self.kept()}
        for name, shares in self.kept().items():
            for i, (x, p) in enumerate(zip(shares, self.params, strict=True)):
                x = whole(DTensor.from_local(x, p.device_mesh, p.placements, shape=p.shape, stride=p.stride()))
                if state:
                    state[name].split(sizes)[i].copy_(x.flatten())
        return {"steps": self.steps, **state}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor | int]) -> None:
        """Copy this rank's share of the moments, `[parameters]` each, and the number of steps."""
        self.steps = int(state["steps"])
        for x in self.masters:
            self.adam.state[x]["step"].fill_(self.steps)
        sizes = [p.numel() for p in self.params]
        for name, shares in self.kept().items():
            for x, p, piece in zip(shares, self.params, state[name].split(sizes), strict=True):
                x.copy_(own_rows(piece.view(p.shape)))


class WithoutAdapters:
    """The reference policy of a divided model with adapters: the model itself, with the adapters off."""

    def __init__(self, model: nn.Module):
        self.model = model
        self.layers = [layer for layer in model.modules() if isinstance(layer, AdaptedLinear)]

    def through(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return `function(model, ...)`."""
        scales = [layer.scale for layer in self.layers]
        try:
            for layer in self.layers:
                layer.scale = 0.0
            return self.model.through(function, *args, **kwargs)
        finally:
            for layer, scale in zip(self.layers, scales, strict=True):
                layer.scale = scale


def divide(parts: dict[str, Any], policy: nn.Module, reference: nn.Module
           ) -> tuple[dict[str, Any], "Divided", nn.Module | WithoutAdapters]:
    """Divide the models among the parts of a run, and start their optimisers.

    Return the parts, with `Divided` in place of models; the divided policy; and the reference policy, divided too.
    """
    adapted = is_adapted(policy)
    divided = {name: Divided(part) if hasattr(getattr(part, "body", part), "blocks") else part
               for name, part in parts.items()}
    for part in divided.values():
        if isinstance(part, DividedAdam):
            part.begin()
    reference = WithoutAdapters(policy) if adapted else Divided(reference).model
    return_memory()
    return divided, next(x for x in divided.values() if isinstance(x, Divided) and x.model is policy), reference
