"""A decoder-only transformer, of the shape of Llama, Qwen2 and Qwen3.

RMSNorm, rotary positions, grouped-query attention, SwiGLU; biases on query, key and value (Qwen2) and norms of query
and key (Qwen3) where the shape asks for them. The projections that read the same input are fused into one matrix.
"""
import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spinup.core.fast.linear import Linear

# The largest size of each kind that a file may ask for: beyond it the file is damaged.
LARGEST = {"vocab_size": 2**24, "context": 2**24, "layers": 2**14, "width": 2**18, "heads": 2**12, "kv_heads": 2**12,
           "head_size": 2**14, "hidden": 2**20}


@dataclass(frozen=True)
class Shape:
    """The architecture. The default is that of the small models of this library: 0.2 M parameters.

    ValueError for a size that is not a whole number above 0, or far above that of any model.
    """

    vocab_size: int
    context: int = 128              # the longest sequence, prompt and response together
    layers: int = 4
    width: int = 64
    heads: int = 4
    kv_heads: int = 4               # fewer than heads: several queries share a key and a value (GQA)
    head_size: int = 16
    hidden: int = 192               # of the SwiGLU; about 8/3 of the width
    eps: float = 1e-6
    rope_theta: float = 10_000.0    # the longest wavelength of the rotary positions
    rope_scaling: tuple[float, float, float, int] | None = None    # Llama 3.1's (factor, low, high, original context)
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = True               # the embedding is the head too

    def __post_init__(self):
        for name, largest in LARGEST.items():
            size = getattr(self, name)
            if type(size) is not int or not 1 <= size <= largest:
                raise ValueError(f"{name} must be a whole number from 1 to {largest:,}, not {size!r}")
        if self.head_size % 2 or self.heads % self.kv_heads:
            raise ValueError(f"head_size {self.head_size} must be even, and kv_heads {self.kv_heads} divide heads "
                             f"{self.heads}")
        for name in ("eps", "rope_theta"):
            if type(number := getattr(self, name)) not in (int, float) or not 0 < number < math.inf:
                raise ValueError(f"{name} must be a number above 0, not {number!r}")
        for name in ("qkv_bias", "qk_norm", "tied"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} must be true or false, not {getattr(self, name)!r}")


class Cache:
    """Keys and values of what was read, for sampling: `[rows, kv_heads, length, head_size]` a layer, allocated once.

    Rows may have read different numbers of tokens. What lies beyond a row's own number is never looked at, so what a
    padded prompt leaves there does no harm, and is written over by the tokens that follow.
    """

    def __init__(self, shape: Shape, rows: int, length: int, device: torch.device, dtype: torch.dtype):
        size = (rows, shape.kv_heads, length, shape.head_size)
        self.memory = [(torch.zeros(size, device=device, dtype=dtype), torch.zeros(size, device=device, dtype=dtype))
                       for _ in range(shape.layers)]
        self.rows, self.length, self.used = rows, length, self.memory     # rows in use: the first ones

    def fill(self, prefix: "Prefix") -> None:
        """Begin with what was read of P prompts: the first rows / P rows go on with the first of them, and so on."""
        self.rows, self.used = len(self.memory[0][0]), self.memory
        for layer, pair in enumerate(self.memory):
            for memory, read in zip(pair, (prefix.k[layer], prefix.v[layer]), strict=True):
                memory.unflatten(0, (len(read), -1))[..., :read.shape[2], :] = read[:, None]

    def keep(self, rows: Tensor) -> None:
        """Forget all rows in use but these."""
        self.rows = len(rows)
        for keys, values in self.memory:
            keys[:self.rows], values[:self.rows] = keys[rows], values[rows]
        self.used = [(keys[:self.rows], values[:self.rows]) for keys, values in self.memory]

    def extend(self, layer: int, k: Tensor, v: Tensor, slots: "Slots") -> tuple[Tensor, Tensor]:
        """Put new keys and values, `[rows, kv_heads, T, head_size]`, into their slots; all that may be attended to."""
        keys, values = self.used[layer]
        if slots.start is not None:                           # every row stands at the same place: slices
            end = slots.start + k.shape[2]
            keys[:, :, slots.start:end], values[:, :, slots.start:end] = k, v
            return keys[:, :, :end], values[:, :, :end]
        index = slots.positions[:, None, :, None].expand_as(k)
        keys.scatter_(2, index, k)
        values.scatter_(2, index, v)
        return keys, values


class Prefix:
    """Keys and values of prompts, with their gradients, to which responses of the same prompts are then appended.

    The prompts are read once, however many responses each has: the same function as reading prompt and response in
    one row, with fewer tokens.
    """

    def __init__(self) -> None:
        self.k: dict[int, Tensor] = {}                        # by layer; not a list: checkpointing reads prompts twice
        self.v: dict[int, Tensor] = {}
        self.rows: Tensor | None = None                       # [B] the prompt of each response, once there are any

    def extend(self, layer: int, k: Tensor, v: Tensor, slots: "Slots") -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, `[B, heads, T, size]`, behind those of the prefix; without rows, they become it.
        """
        if self.rows is None:
            self.k[layer], self.v[layer] = k, v
            return k, v
        return torch.cat([self.k[layer][self.rows], k], 2), torch.cat([self.v[layer][self.rows], v], 2)


@dataclass
class Slots:
    """Positions of new tokens, and the mask of what each may attend to.

    Attributes:
        start: where the first new token stands, if that is the same in all rows; else None, and
        positions: `[B, T]`, the place of each: a prompt's first token is at 0 whatever the prompt is padded to.
        mask: `[B or 1, 1, T, S]` bool, True where a query may look; None: at all that is before it.
    """

    start: int | None = 0
    positions: Tensor | None = None
    mask: Tensor | None = None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding (Su et al. 2021, eq. 34) of x `[B, heads, T, head_size]`, in fp32.

    The first half of a head is paired with the second, as in Hugging Face's checkpoints; the paper pairs neighbours.
    """
    a, b = x.float().chunk(2, -1)
    return torch.addcmul(x * cos, torch.cat([b, a], -1), sin).to(x.dtype)


def rope_frequencies(shape: Shape) -> Tensor:
    """Angle per position of each pair of a head, `[head_size / 2]`, slowed down as Llama 3.1 does where asked for."""
    half = shape.head_size // 2
    frequencies = shape.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    if shape.rope_scaling is not None:
        factor, low, high, context = shape.rope_scaling
        turns = context * frequencies / (2 * math.pi)         # within the context that the model was first trained on
        smooth = ((turns - low) / (high - low)).clamp(0, 1)   # 1: fast enough to be left alone; 0: stretched wholly
        frequencies = frequencies * (smooth + (1 - smooth) / factor)
    return frequencies.float()


def rotations(shape: Shape) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, `[context, head_size]` each, as `rotate` takes them."""
    angles = torch.outer(torch.arange(shape.context).float(), rope_frequencies(shape))
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


class Block(nn.Module):
    """Attention and SwiGLU, each behind a norm and beside a residual."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape, h = shape, shape.head_size
        self.norm_attention = nn.RMSNorm(shape.width, shape.eps)
        self.qkv = Linear(shape.width, (shape.heads + 2 * shape.kv_heads) * h, bias=shape.qkv_bias)
        self.q_norm = nn.RMSNorm(h, shape.eps) if shape.qk_norm else None
        self.k_norm = nn.RMSNorm(h, shape.eps) if shape.qk_norm else None
        self.out = Linear(shape.heads * h, shape.width, bias=False)
        self.norm_mlp = nn.RMSNorm(shape.width, shape.eps)
        self.gate_up = Linear(shape.width, 2 * shape.hidden, bias=False)
        self.down = Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], slots: Slots, memory: Cache | Prefix | None,
                layer: int) -> Tensor:
        """Attention and MLP, each added to its input, `[B, T, width]`."""
        (B, T, _), h, kv = x.shape, self.shape.heads, self.shape.kv_heads
        qkv = self.qkv(self.norm_attention(x)).view(B, T, h + 2 * kv, self.shape.head_size).transpose(1, 2)
        if self.q_norm is None:
            (q, k), v = rotate(qkv[:, :h + kv], *angles).split([h, kv], 1), qkv[:, h + kv:]
        else:
            q, k, v = qkv.split([h, kv, kv], 1)
            q, k = rotate(self.q_norm(q), *angles), rotate(self.k_norm(k), *angles)
        if memory is not None:
            k, v = memory.extend(layer, k, v, slots)
        mask, S = slots.mask, k.shape[2]
        if mask is None and 1 < T < S:                        # is_causal would count the keys from the first query on
            mask = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=h != kv,
                                           is_causal=mask is None and T > 1)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm_mlp(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Transformer(nn.Module):
    """The model: `hidden` states of tokens, and `logits` of what comes next from those that are asked for."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab_size, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, shape.eps)
        self.head = None if shape.tied else Linear(shape.width, shape.vocab_size, bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.5 / shape.width**0.5)
        cos, sin = rotations(shape)
        self.register_buffer("cos", cos, persistent=False)                                    # [context, head_size]
        self.register_buffer("sin", sin, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Transformer":
        """Apply `.to`, `.half` and the like to all tensors. The rotations are made anew: bf16 would keep three
        digits of them, and `to_empty` none."""
        super()._apply(fn, recurse)
        self.cos, self.sin = (x.to(self.device) for x in rotations(self.shape))
        return self

    def hidden(self, ids: Tensor, slots: Slots, memory: Cache | Prefix | None = None,
               checkpointing: bool = False) -> Tensor:
        """Final states `[B, T, width]` of ids `[B, T]`. With `checkpointing`, activations are computed again on the
        way back instead of being kept: a third slower, and a fraction of the memory."""
        at = slots.positions if slots.start is None else slice(slots.start, slots.start + ids.shape[1])
        angles = self.cos[at].unsqueeze(-3), self.sin[at].unsqueeze(-3)   # [B, 1, T, half], or the same for all rows
        if isinstance(memory, Prefix):                        # with the rows of now: checkpointing reads the prompts
            memory = copy(memory)                             # again after those of the responses have been set
        x = self.embed(ids)
        for layer, block in enumerate(self.blocks):
            if checkpointing and torch.is_grad_enabled():
                x = torch.utils.checkpoint.checkpoint(block, x, angles, slots, memory, layer, use_reentrant=False)
            else:
                x = block(x, angles, slots, memory, layer)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of the next token, `[..., vocab]`, from hidden states `[..., width]`."""
        return F.linear(hidden, self.embed.weight if self.head is None else self.head.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits `[B, T, vocab]` of the token after each of ids `[B, T]`, whose rows begin at position 0."""
        return self.logits(self.hidden(ids, Slots()))

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return self.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of its weights."""
        return self.embed.weight.dtype
