"""Keys and values that attention has already computed, and the positions of new tokens."""
from dataclasses import dataclass

import torch
from torch import Tensor

from llm.policy.shape import Shape


@dataclass
class Slots:
    """Positions of new tokens, and their attention mask.

    Attributes:
        start: position of the first new token if it is the same in all rows; else None.
        positions: `[B, T]` position of each token if `start` is None. A prompt's first token is at 0, whatever the
            padding.
        mask: `[B or 1, 1, T, S]` bool, True where a query may attend, or what `additive` returns for it; None means
            causal attention.
    """

    start: int | None = 0
    positions: Tensor | None = None
    mask: Tensor | None = None


class Cache:
    """KV cache for sampling: keys and values, `[rows, kv_heads, length, head_size]` per layer, allocated once.

    Rows may have read different numbers of tokens. Attention in a row never reads beyond the tokens that this row has
    read. So the padding of a prompt does no harm, and later tokens overwrite it.
    """

    def __init__(self, shape: Shape, rows: int, length: int, device: torch.device, dtype: torch.dtype):
        size = (rows, shape.kv_heads, length, shape.head_size)
        self.memory = [(torch.zeros(size, device=device, dtype=dtype), torch.zeros(size, device=device, dtype=dtype))
                       for _ in range(shape.layers)]
        self.rows, self.length, self.used = rows, length, self.memory     # the first `rows` rows are in use

    def fill(self, prefix: "Prefix", prompts: int, first: int = 0) -> None:
        """Start from the keys and values of `prefix`. It holds some of the `prompts` prompts, from number `first` on.
        Each prompt has `rows / prompts` adjacent rows, in the order of the prompts.
        """
        self.rows, self.used = len(self.memory[0][0]), self.memory
        for layer, pair in enumerate(self.memory):
            for memory, read in zip(pair, (prefix.k[layer], prefix.v[layer]), strict=True):
                rows = memory.unflatten(0, (prompts, -1))[first:first + len(read)]
                rows[..., :read.shape[2], :] = read[:, None]

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows of the rows in use."""
        self.rows = len(rows)
        for keys, values in self.memory:
            keys[:self.rows], values[:self.rows] = keys[rows], values[rows]
        self.used = [(keys[:self.rows], values[:self.rows]) for keys, values in self.memory]

    def extend(self, layer: int, k: Tensor, v: Tensor, slots: Slots) -> tuple[Tensor, Tensor]:
        """Store new keys and values, `[rows, kv_heads, T, head_size]`. Return all keys and values to attend to."""
        keys, values = self.used[layer]
        if slots.start is not None:                           # all rows have the same position: use slices
            end = slots.start + k.shape[2]
            keys[:, :, slots.start:end], values[:, :, slots.start:end] = k, v
            return keys[:, :, :end], values[:, :, :end]
        index = slots.positions[:, None, :, None].expand_as(k)
        keys.scatter_(2, index, k)
        values.scatter_(2, index, v)
        return keys, values


class Prefix:
    """Keys and values of prompts, with gradients. Responses to these prompts are then appended.

    Each prompt is read once, for any number of responses. The result equals that of reading prompt and response in one
    row, but with fewer tokens.
    """

    def __init__(self) -> None:
        self.k: dict[int, Tensor] = {}                        # by layer; a dict, as checkpointing reads prompts twice
        self.v: dict[int, Tensor] = {}
        self.rows: Tensor | None = None                       # [B] prompt of each response; None while reading prompts

    def extend(self, layer: int, k: Tensor, v: Tensor, slots: Slots) -> tuple[Tensor, Tensor]:
        """Append keys and values of a layer, `[B, heads, T, size]`, to the prefix. Without rows, store them as prefix.
        """
        if self.rows is None:
            self.k[layer], self.v[layer] = k, v
            return k, v
        return torch.cat([self.k[layer][self.rows], k], 2), torch.cat([self.v[layer][self.rows], v], 2)
