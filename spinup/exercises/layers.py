"""Descriptions of networks as plain data."""
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

SIZES = ("in_features", "out_features")


@dataclass
class Layer:
    """One layer: the name of its class; its sizes, if it is linear; its parameters, and which of these are trained.

    same_as: the position of an earlier layer that has the same parameters; -1 if there is none.
    """

    type: str
    sizes: tuple[int, ...] = ()
    parameters: dict[str, Tensor] = field(default_factory=dict)
    trainable: bool = True
    same_as: int = -1


@dataclass
class Net:
    """A network: the name of its class, "Sequential" only if it runs as torch's does, and its layers in order."""

    type: str
    layers: list[Layer] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the description as dictionaries and lists."""
        return {"type": self.type, "layers": [vars(layer) for layer in self.layers]}


def described(net: nn.Module) -> Net:
    """Describe a network. Nested layers are listed in place; layers that do nothing are left out."""
    leaves = [m for _, m in net.named_modules(remove_duplicate=False)
              if not any(m.children()) and not isinstance(m, nn.Identity)]
    layers: list[Layer] = []
    for at, leaf in enumerate(leaves):
        own = {id(p) for p in leaf.parameters()}
        same = next((i for i, other in enumerate(leaves[:at]) if own & {id(p) for p in other.parameters()}), -1)
        layers.append(Layer(class_of(leaf), tuple(int(getattr(leaf, n)) for n in SIZES if hasattr(leaf, n)),
                            {n: p.detach().clone() for n, p in leaf.named_parameters()},
                            all(p.requires_grad for p in leaf.parameters()), same))
    return Net(class_of(net), layers)


def class_of(module: nn.Module) -> str:
    """Return the name of torch's class whose `forward` a module runs, with the module's own class in front if it
    differs."""
    for kind in type(module).__mro__:
        if kind.__module__.startswith("torch.nn.") and kind.forward is type(module).forward:
            return kind.__name__
        if "forward" in vars(kind):
            break
    return f"{type(module).__module__}.{type(module).__name__}"
