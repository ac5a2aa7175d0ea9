"""Adam for small networks: one flat tensor, one fused call, and on request one compiled function for the whole step."""
import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

Loss = Callable[..., tuple[Tensor, dict[str, Tensor]]]


class FlatAdam:
    """Adam (Kingma & Ba 2015) over all of `params` as one flat tensor, the gradient clipped by its global norm.

    One fused call serves the whole network: 22 µs instead of 195 for a 64x64 actor-critic. For small networks on one
    device, of one dtype, all trainable; elsewhere use torch's own fused AdamW. The parameters become views of `flat`:
    load weights in place (`load_state_dict` does), and never use the module's own `zero_grad`, which would cut the
    gradients loose.

    With `compile`, `minimizer` turns loss, gradient, clipping and Adam into one compiled function (several seconds,
    once); compiling less than the whole step does not pay at these sizes. The parameters then keep their own memory.

    Args:
        eps: 1e-5 as in the original PPO code; torch's 1e-8 takes larger steps where gradients are small.
        max_grad_norm: the gradient is scaled down to this norm; infinity leaves it alone.
    """

    BETAS = (0.9, 0.999)

    def __init__(self, params: Iterable[nn.Parameter], *, lr: float, max_grad_norm: float = float("inf"),
                 eps: float = 1e-5, compile: bool = False):
        self.params = list(params)
        if len({(p.device, p.dtype) for p in self.params}) != 1 or not all(p.requires_grad for p in self.params):
            raise ValueError("FlatAdam wants parameters of one device and dtype, all trainable")
        self.lr, self.eps, self.max_grad_norm, self.compile = lr, eps, max_grad_norm, compile
        self.sizes, self.shapes = [p.numel() for p in self.params], [p.shape for p in self.params]
        self.flat = torch.cat([p.detach().reshape(-1) for p in self.params])
        self.flat.grad = torch.zeros_like(self.flat)
        if not compile:
            pieces, gradients = self.flat.split(self.sizes), self.flat.grad.split(self.sizes)
            for p, data, grad in zip(self.params, pieces, gradients, strict=True):
                p.data, p.grad = data.view_as(p), grad.view_as(p)
        # Steps are smaller than what bf16 can tell apart: there a copy in fp32 takes them, and is rounded afterwards.
        self.master = self.flat if self.flat.dtype == torch.float32 else self.flat.float()
        self.first, self.second = torch.zeros_like(self.master), torch.zeros_like(self.master)    # of the gradient
        self.steps, self.count = 0, torch.zeros((), device=self.flat.device)                  # as torch wants it

    def minimizer(self, loss: Loss) -> Callable[..., dict[str, Tensor]]:
        """One gradient step on `loss(*batch) -> (scalar, stats)` as a function `(*batch, lr=None) -> stats`.

        `stats` gains "loss" and "grad_norm" (before clipping). Every call must bring tensors of the same
        shapes, `[...]`.
        """
        return self._compiled(loss) if self.compile else self._eager(loss)

    def _eager(self, loss: Loss) -> Callable[..., dict[str, Tensor]]:
        def minimize(*batch: Tensor, lr: float | None = None) -> dict[str, Tensor]:
            self.zero_grad()
            value, stats = loss(*batch)
            value.backward(inputs=self.params)                            # other networks that it saw keep theirs
            stats["loss"], stats["grad_norm"] = value.detach(), self.step(lr)
            return stats
        return minimize

    def zero_grad(self) -> None:
        """Sets the gradient to 0."""
        self.flat.grad.zero_()

    def step(self, lr: float | None = None) -> Tensor:
        """Follow the gradient that `backward`, once or over several micro-batches, left; its norm before clipping,
        `[]`. RuntimeError where the gradients have left the flat tensor.
        """
        first = self.params[0]
        if first.grad is None or first.grad.data_ptr() != self.flat.grad.data_ptr():
            raise RuntimeError("the gradients have left the flat tensor; do not call zero_grad or to() on the module")
        grad = self.flat.grad.float()                         # of bf16 parameters a copy, else the same tensor
        norm = torch.linalg.vector_norm(grad)
        if self.max_grad_norm != float("inf"):
            grad.mul_((self.max_grad_norm / (norm + 1e-6)).clamp(max=1))
        # torch's kernel, not its class, which imports the compiler when it is made: a second, and 90 MB.
        self.count += 1
        torch._fused_adam_([self.master], [grad], [self.first], [self.second], [], [self.count],
                           lr=self.lr if lr is None else lr, beta1=self.BETAS[0], beta2=self.BETAS[1], eps=self.eps,
                           weight_decay=0, amsgrad=False, maximize=False)
        if self.master is not self.flat:
            self.flat.copy_(self.master)
        self.steps += 1
        return norm

    def _compiled(self, loss: Loss) -> Callable[..., dict[str, Tensor]]:
        import torch._dynamo.config
        torch._dynamo.config.trace_autograd_ops = True                    # lets autograd.grad into the compiled graph

        def step(rate: Tensor, correction: Tensor, *batch: Tensor) -> dict[str, Tensor]:
            value, stats = loss(*batch)
            gradients = torch.autograd.grad(value, self.params)
            with torch.no_grad():
                grad = torch.cat([g.reshape(-1) for g in gradients])
                norm = grad.norm()
                if self.max_grad_norm != float("inf"):
                    grad = grad * (self.max_grad_norm / (norm + 1e-6)).clamp(max=1)
                self.first.lerp_(grad, 1 - self.BETAS[0])
                self.second.lerp_(grad * grad, 1 - self.BETAS[1])
                change = rate * self.first / ((self.second / correction).sqrt() + self.eps)
                pieces = zip(change.split(self.sizes), self.shapes, strict=True)
                torch._foreach_sub_(self.params, [piece.view(shape) for piece, shape in pieces])
            return {**stats, "loss": value.detach(), "grad_norm": norm}

        step.__code__ = step.__code__.replace()                           # of one code torch compiles few forms only
        compiled = torch.compile(step, fullgraph=True, dynamic=False)

        def minimize(*batch: Tensor, lr: float | None = None) -> dict[str, Tensor]:
            self.steps += 1
            rate = (self.lr if lr is None else lr) / (1 - self.BETAS[0] ** self.steps)
            return compiled(torch.tensor(rate, device=self.flat.device),
                            torch.tensor(1 - self.BETAS[1] ** self.steps, device=self.flat.device), *batch)
        return minimize

    def state_dict(self) -> dict[str, Tensor | int]:
        """A copy of the moments, `[parameters]` each, and the number of steps."""
        own = {} if self.master is self.flat else {"master": self.master.clone()}
        return {"steps": self.steps, "first": self.first.clone(), "second": self.second.clone(), **own}

    def load_state_dict(self, state: dict[str, Tensor | int]) -> None:
        """The moments, `[parameters]` each, as they were when `state_dict` gave this."""
        self.steps = int(state["steps"])
        self.count.fill_(self.steps)
        self.first.copy_(state["first"])
        self.second.copy_(state["second"])
        if "master" in state:
            self.master.copy_(state["master"])


class Latest(dict):
    """What the last gradient step told, by name; NaN before the first. Kept in a checkpoint: a row may follow a resume
    before the next gradient step does."""

    def __missing__(self, name: str) -> float:
        return math.nan

    def state_dict(self) -> dict[str, Tensor]:
        """A copy of it, numbers `[]` by name."""
        return dict(self)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Its numbers, `[]` by name, as they were when `state_dict` gave this."""
        self.update(state)


@torch.no_grad()
def polyak(target: Sequence[Tensor], online: Sequence[Tensor], tau: float) -> None:
    """Move each parameter of `target`, `[...]`, the share `tau` of the way to that of `online`; 1 copies them."""
    torch._foreach_lerp_(target, online, tau)                             # all in one call


def step_size(lr: float, update: int, total: int, warmup: int, anneal: bool) -> float:
    """Grows linearly to `lr` in `warmup` updates, then, with `anneal`, falls linearly to a tenth of it."""
    rising = min(1.0, (update + 1) / max(1, warmup))
    return lr * rising * (1 - 0.9 * update / total if anneal else 1.0)
