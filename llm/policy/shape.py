"""The sizes of a transformer."""
import math
from dataclasses import dataclass

# Largest accepted value of each size; a file with a larger one is damaged.
LARGEST = {"vocab_size": 2**24, "context": 2**24, "layers": 2**14, "width": 2**18, "heads": 2**12, "kv_heads": 2**12,
           "head_size": 2**14, "hidden": 2**20}


@dataclass(frozen=True)
class Shape:
    """The sizes of a transformer. The default is this library's small model, with 0.2 M parameters.

    Raise ValueError for a size that is not a whole number above 0, or far above that of any model.
    """

    vocab_size: int
    context: int = 128              # longest sequence: prompt plus response, in tokens
    layers: int = 4
    width: int = 64
    heads: int = 4
    kv_heads: int = 4               # fewer than heads: several queries share one key and value (GQA)
    head_size: int = 16
    hidden: int = 192               # hidden size of the SwiGLU; about 8/3 of the width
    eps: float = 1e-6
    rope_theta: float = 10_000.0    # base of the rotary positions: sets the longest wavelength
    rope_scaling: tuple[float, float, float, int] | None = None    # Llama 3.1's (factor, low, high, original context)
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = True               # the output head shares the weights of the embedding

    def __post_init__(self):
        for name, largest in LARGEST.items():
            size = getattr(self, name)
            if type(size) is not int or not 1 <= size <= largest:
                raise ValueError(f"{name} must be a whole number from 1 to {largest:,}, not {size!r}")
        if self.head_size % 2 or self.heads % self.kv_heads:
            raise ValueError(f"head_size {self.head_size} must be even, and kv_heads {self.kv_heads} must divide heads "
                             f"{self.heads}")
        for name in ("eps", "rope_theta"):
            if type(number := getattr(self, name)) not in (int, float) or not 0 < number < math.inf:
                raise ValueError(f"{name} must be a number above 0, not {number!r}")
        for name in ("qkv_bias", "qk_norm", "tied"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} must be true or false, not {getattr(self, name)!r}")
