"""Adam for small networks: one flat tensor, one fused call and, optionally, one compiled function.

Beside each private torch call, a comment gives the public equivalent: slower, with equal numbers.
"""
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from spinup.core.fast.graphs import recorded

Loss = Callable[..., tuple[Tensor, dict[str, Tensor]]]
Exchange = Callable[[Tensor], Tensor]
PIECE = 2**24           # parameters per kernel call in bf16: their gradient is copied to fp32
ON_GPU = 8              # on a GPU, pieces are 8 times as large: each call has a fixed cost


class FlatAdam:
    """Adam (Kingma & Ba 2015, arXiv:1412.6980) on one flat tensor of all parameters.

    In plain torch this class is three lines. `minimizer` is the training step around them::

        optimizer = torch.optim.Adam(params, lr=lr, eps=eps)
        nn.utils.clip_grad_norm_(params, max_grad_norm)       # after loss.backward()
        optimizer.step()

    One fused call updates the whole network: 22 µs instead of 195 for a 64x64 actor-critic. Use it
    for small networks on one device, with one dtype; otherwise use torch's own fused AdamW. The
    parameters become views of `flat`. So load weights in place, as `load_state_dict` does. Never
    call the module's `zero_grad`: it would detach the gradients.

    With `compile`, `minimizer` compiles loss, gradient, clipping and Adam into one function (once,
    for several seconds). At these sizes only compiling the whole step is worth it. The parameters
    then keep their own memory.

    Args:
        params: those that are frozen are left out.
        eps: 1e-5 as in the original PPO code; torch's 1e-8 makes larger steps where gradients are
            small.
        max_grad_norm: gradients with a larger norm are scaled down to it; infinity turns this off.

    Attributes:
        before_step: a function that `step` calls with the gradient, `[parameters]`; for example,
            it adds the gradients of other processes. `zero_grad` removes it.
        own: the parameters whose moments this process keeps; all, unless `shard` divides them.

    Raises ValueError if all parameters are frozen, or for several devices or dtypes.
    """

    BETAS = (0.9, 0.999)

    def __init__(self, params: Iterable[nn.Parameter], *, lr: float,
                 max_grad_norm: float = float("inf"), eps: float = 1e-5, compile: bool = False):
        self.params = [p for p in params if p.requires_grad]
        if len({(p.device, p.dtype) for p in self.params}) != 1:
            raise ValueError("FlatAdam needs trainable parameters of one device and one dtype")
        self.lr, self.eps, self.max_grad_norm, self.compile = lr, eps, max_grad_norm, compile
        self.sizes = [p.numel() for p in self.params]
        self.shapes = [p.shape for p in self.params]
        self.flat = torch.cat([p.detach().reshape(-1) for p in self.params])
        self.flat.grad = torch.zeros_like(self.flat)
        if not compile:
            pieces, gradients = self.flat.split(self.sizes), self.flat.grad.split(self.sizes)
            for p, data, grad in zip(self.params, pieces, gradients, strict=True):
                p.data = data.view_as(p)
                p.grad = grad.view_as(p)
        # bf16 would round small steps to 0. So update a copy in fp32, and round it afterwards.
        self.master = self.flat if self.flat.dtype == torch.float32 else self.flat.float()
        self.first = torch.zeros_like(self.master)            # running mean of the gradient
        self.second = torch.zeros_like(self.master)           # running mean of its square
        self.steps = 0
        self.count = torch.zeros((), device=self.flat.device)             # for the kernel
        self.piece = PIECE * (1 if self.flat.device.type == "cpu" else ON_GPU)
        self.before_step: Callable[[Tensor], object] | None = None
        self.own, self.share, self.collect = slice(None), same, same

    def shard(self, own: slice, share: Exchange, collect: Exchange) -> None:
        """Keep the moments, and in bf16 the fp32 copy, of the parameters `own` alone. Other
        processes keep the rest (ZeRO-1: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.1).

        share(flat): gives all processes the parameters `[parameters]` that each has updated.
        collect(x): returns the moments `[parameters]` of all processes from those of this one.
        """
        rounded = self.master is not self.flat
        self.master = self.master[own].clone() if rounded else self.flat
        self.first, self.second = self.first[own].clone(), self.second[own].clone()
        self.own, self.share, self.collect = own, share, collect

    def minimizer(self, loss: Loss) -> Callable[..., dict[str, Tensor]]:
        """Return a function `(*batch, lr=None) -> stats` that makes one gradient step on `loss`.

        `loss(*batch)` returns (scalar, stats). The function adds "loss" and "grad_norm" (before
        clipping) to `stats`. All calls must pass tensors of the same shapes `[...]`. Without
        `compile` it runs `zero_grad`, `loss.backward()` and `step`.
        """
        return self._compiled(loss) if self.compile else self._eager(loss)

    def _eager(self, loss: Loss) -> Callable[..., dict[str, Tensor]]:
        def minimize(*batch: Tensor, lr: float | None = None) -> dict[str, Tensor]:
            self.zero_grad()
            value, stats = loss(*batch)
            value.backward(inputs=self.params)                # only their gradients
            stats["loss"], stats["grad_norm"] = value.detach(), self.step(lr)
            return stats
        return minimize

    def zero_grad(self) -> None:
        """Set the gradient to 0, and `before_step` to None."""
        self.flat.grad.zero_()
        self.before_step = None

    def step(self, lr: float | None = None) -> Tensor:
        """Clip the gradient, which one or several `backward` calls have summed, and make one Adam
        step. Return the gradient norm before clipping, `[]`.

        RuntimeError if the gradients are no longer those of the flat tensor.
        """
        first = self.params[0]
        if first.grad is None or first.grad.data_ptr() != self.flat.grad.data_ptr():
            raise RuntimeError("the gradients have left the flat tensor; do not call zero_grad or "
                               "to() on the module")
        if self.before_step is not None:
            self.before_step(self.flat.grad)
        if self.master is not self.flat:
            self._follow_weights()
        # Plain: norm = nn.utils.clip_grad_norm_(params, max_grad_norm)
        wide = torch.promote_types(self.flat.dtype, torch.float32)
        norm = torch.linalg.vector_norm(self.flat.grad, dtype=wide)
        # Plain: torch.optim.Adam(params, lr, betas=BETAS, eps=eps).step(). The code below calls
        # Adam's kernel, because creating torch's Adam imports the compiler: one second and 90 MB.
        self.count += 1
        flat, grad, rounded = self.flat, self.flat.grad, self.master is not self.flat
        if self.own != slice(None):                           # a slice takes microseconds
            flat, grad = flat[self.own], grad[self.own]
        pieces = [(self.master if rounded else flat, grad, self.first, self.second)]
        if rounded:
            pieces = zip(*(x.split(self.piece) for x in pieces[0]), strict=True)
        for master, grad, first, second in pieces:
            grad = grad.float()                               # copies only other types
            if self.max_grad_norm != float("inf"):
                grad.mul_((self.max_grad_norm / (norm + 1e-6)).clamp(max=1))
            torch._fused_adam_([master], [grad], [first], [second], [], [self.count],
                               lr=self.lr if lr is None else lr, beta1=self.BETAS[0],
                               beta2=self.BETAS[1], eps=self.eps, weight_decay=0, amsgrad=False,
                               maximize=False)
        if rounded:
            flat.copy_(self.master)
        self.share(self.flat)
        self.steps += 1
        return norm

    def _follow_weights(self) -> None:
        """Copy weights that were loaded in place since the last step into the fp32 copy. These
        weights differ from the rounded values of the copy."""
        own = self.flat[self.own].split(self.piece)
        for flat, master in zip(own, self.master.split(self.piece), strict=True):
            changed = master.to(flat.dtype) != flat
            if changed.any():
                master.copy_(torch.where(changed, flat.float(), master))

    def _compiled(self, loss: Loss) -> Callable[..., dict[str, Tensor]]:
        import torch._dynamo.config
        # Plain: nothing. Only the compiler needs this setting, to trace autograd.grad.
        torch._dynamo.config.trace_autograd_ops = True

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
                # Plain: for p, piece, shape in ...: p.sub_(piece.view(shape))
                torch._foreach_sub_(self.params, [piece.view(shape) for piece, shape in pieces])
            return {**stats, "loss": value.detach(), "grad_norm": norm}

        # torch limits compilations per code object, so each network gets a copy of the code.
        # Plain: leave the line out, and raise torch._dynamo.config.recompile_limit.
        step.__code__ = step.__code__.replace()
        compiled = torch.compile(step, fullgraph=True, dynamic=False)
        if self.flat.device.type == "cuda":
            compiled = recorded(compiled)

        def minimize(*batch: Tensor, lr: float | None = None) -> dict[str, Tensor]:
            self.steps += 1
            rate = (self.lr if lr is None else lr) / (1 - self.BETAS[0] ** self.steps)
            correction = 1 - self.BETAS[1] ** self.steps
            device = self.flat.device
            return compiled(torch.full((), rate, device=device),          # no copy from the CPU
                            torch.full((), correction, device=device), *batch)
        return minimize

    def state_dict(self) -> dict[str, Tensor | int]:
        """Return the moments, `[parameters]` each, and the number of steps. As in torch's
        optimisers, they are not copies, unless they are divided among processes."""
        kept = {"first": self.first, "second": self.second}
        if self.master is not self.flat:
            kept["master"] = self.master
        return {"steps": self.steps, **{name: self.collect(x) for name, x in kept.items()}}

    def load_state_dict(self, state: dict[str, Tensor | int]) -> None:
        """Restore the moments, `[parameters]` each, and the number of steps."""
        self.steps = int(state["steps"])
        self.count.fill_(self.steps)
        self.first.copy_(state["first"][self.own])
        self.second.copy_(state["second"][self.own])
        if "master" in state:
            self.master.copy_(state["master"][self.own])


def same(x: Tensor) -> Tensor:
    """Return the tensor `[...]`: one process has all of it."""
    return x
