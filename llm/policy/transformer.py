"""A decoder-only transformer with the architecture of Llama, Qwen2 and Qwen3.

It has RMSNorm, rotary positions, grouped-query attention and SwiGLU. Biases on query, key and value (Qwen2) and norms
of query and key (Qwen3) are optional. Projections with the same input are fused into one matrix.
"""
import math
from collections.abc import Callable
from copy import copy
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llm.policy.cache import Cache, Prefix, Slots
from llm.policy.shape import Shape
from spinup.core.fast.linear import Linear, fast_linear


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding (Su et al. 2021, eq. 34) of x `[B, heads, T, head_size]`, in fp32.

    It pairs the first half of a head with the second, as in Hugging Face's checkpoints. The paper pairs neighbours.
    """
    a, b = x.float().chunk(2, -1)
    return torch.addcmul(x * cos, torch.cat([b, a], -1), sin)


def rope_frequencies(shape: Shape) -> Tensor:
    """Angle per position of each pair of a head, `[head_size / 2]`, with Llama 3.1's scaling if the shape has it."""
    half = shape.head_size // 2
    frequencies = shape.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    if shape.rope_scaling is not None:
        factor, low, high, context = shape.rope_scaling
        turns = context * frequencies / (2 * math.pi)         # full turns within the original training context
        smooth = ((turns - low) / (high - low)).clamp(0, 1)   # 1: high frequency, unchanged; 0: divided by the factor
        frequencies = frequencies * (smooth + (1 - smooth) / factor)
    return frequencies.float()


def rotations(shape: Shape) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, `[context, head_size]` each, for `rotate`."""
    angles = torch.outer(torch.arange(shape.context).float(), rope_frequencies(shape))
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def attention_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """Data type of queries, keys and values for a model of type `dtype`.

    On a CPU it is at least fp32, because attention in bf16 takes two to four times as long there.
    """
    return torch.float32 if device.type == "cpu" and dtype.itemsize < 4 else dtype


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers that attention adds to its scores: 0 where `mask` `[..., S]` is True, else -inf.

    All layers share them. From a bool mask, torch makes such numbers in each layer, and keeps them for the backward
    pass. The strides are multiples of 8; torch would copy others for its fast kernels on CUDA.
    """
    wide = torch.full((*mask.shape[:-1], -(-mask.shape[-1] // 8) * 8), -torch.inf, dtype=dtype, device=mask.device)
    return wide[..., :mask.shape[-1]].masked_fill_(mask, 0)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, grouped: bool) -> Tensor:
    """Attention `[B, heads, T, d]` of queries `[B, heads, T, d]` to keys and values `[B, kv_heads, S, d]`.

    mask: as in `Slots`; None means causal. grouped: whether torch has a fast kernel in which heads share keys. On CUDA
    it has none with a mask, and would repeat the keys and compute in fp32. So heads that share keys become the steps of
    one head, if there is one step; otherwise the keys are repeated here, and a fast kernel is used.
    """
    shared, T = q.shape[1] // k.shape[1], q.shape[2]
    if shared == 1 or grouped:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=shared > 1,
                                              is_causal=mask is None and T > 1)
    if T == 1:
        steps = q.reshape(len(q), k.shape[1], shared, -1)
        return F.scaled_dot_product_attention(steps, k, v, attn_mask=mask).reshape(q.shape)
    k, v = (x.repeat_interleave(shared, 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@cache
def compiled(function: Callable) -> Callable:
    """Compile a function, or a method of modules, with `torch.compile`: it joins small operations. Modules of equal
    structure share the compiled code."""
    import torch._dynamo.config
    torch._dynamo.config.recompile_limit = 64                 # for one row or several, one step or several, ...
    return torch.compile(function, dynamic=True)              # gradient checkpointing recomputes with the same code


class Block(nn.Module):
    """One transformer layer: attention and SwiGLU, each after a norm and with a residual connection."""

    compiled = False        # whether `project` and `finish` run as compiled functions

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
        """Apply attention and MLP, each added to its input, `[B, T, width]`."""
        project, finish = (compiled(f) if self.compiled else f for f in (Block.project, Block.finish))
        q, k, v = project(self, x, *angles)
        if memory is not None:
            k, v = memory.extend(layer, k, v, slots)
        mask, T, S = slots.mask, q.shape[2], k.shape[2]
        if mask is None and 1 < T < S:                        # is_causal would align the first query with the first key
            mask = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
        return finish(self, x, attend(q, k, v, mask, grouped=mask is None or x.device.type == "cpu"))

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[B, heads, T, head_size]`, keys and values `[B, kv_heads, T, head_size]` of `[B, T, width]`."""
        (B, T, _), h, kv = x.shape, self.shape.heads, self.shape.kv_heads
        qkv = self.qkv(self.norm_attention(x)).view(B, T, h + 2 * kv, self.shape.head_size).transpose(1, 2)
        if self.q_norm is None:
            qk, v = qkv.split([h + kv, kv], 1)
            q, k = rotate(qk, cos, sin).split([h, kv], 1)
        else:
            q, k, v = qkv.split([h, kv, kv], 1)
            q, k = rotate(self.q_norm(q), cos, sin), rotate(self.k_norm(k), cos, sin)
        return tuple(each.to(attention_dtype(x.device, x.dtype)) for each in (q, k, v))

    def finish(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the output of attention, `[B, heads, T, head_size]`, and then the MLP to `x`, `[B, T, width]`."""
        x = x + self.out(y.transpose(1, 2).flatten(2).to(x.dtype))
        gate, up = self.gate_up(self.norm_mlp(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Transformer(nn.Module):
    """The language model: `hidden` computes states of tokens, and `logits` predicts the next token from a state."""

    divided = False         # whether each process has only a share of the weights; see `llm.policy.fsdp`
    compiled = False        # see `compile_layers`

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
        """Apply `.to`, `.half` and similar calls to all tensors, and recompute the rotations in fp32.

        bf16 would keep only three digits of the rotations, and `to_empty` would lose them.
        """
        super()._apply(fn, recurse)
        self.cos, self.sin = (x.to(self.device) for x in rotations(self.shape))
        return self

    def hidden(self, ids: Tensor, slots: Slots, memory: Cache | Prefix | None = None,
               checkpointing: bool = False) -> Tensor:
        """Compute the final states `[B, T, width]` of ids `[B, T]`, or of their embeddings `[B, T, width]`.

        With `checkpointing`, activations are recomputed in the backward pass instead of kept. This is a third slower,
        but needs only a fraction of the memory.
        """
        at = slots.positions if slots.start is None else slice(slots.start, slots.start + ids.shape[1])
        angles = self.cos[at].unsqueeze(-3), self.sin[at].unsqueeze(-3)   # [B, 1, T, head_size], or for all rows
        if isinstance(memory, Prefix):                        # freeze its rows: checkpointing reads the prompts again
            memory = copy(memory)                             # in the backward pass, after the rows have been set
        x = ids if ids.is_floating_point() else self.embed(ids)
        for layer, block in enumerate(self.blocks):
            if checkpointing and torch.is_grad_enabled():
                x = torch.utils.checkpoint.checkpoint(block, x, angles, slots, memory, layer, use_reentrant=False)
            else:
                x = block(x, angles, slots, memory, layer)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute logits of the next token, `[..., vocab]`, from hidden states `[..., width]`."""
        return fast_linear(hidden, self.embed.weight if self.head is None else self.head.weight)

    def compile_layers(self) -> None:
        """Compile the layers, the draw of tokens and their log-probabilities.

        The first updates then take a minute or two longer.
        """
        self.compiled = True
        for block in self.blocks:
            block.compiled = True

    def matrices(self) -> list[Tensor]:
        """Weights of all products, `[n_out, n_in]` each."""
        weights = [layer.weight for layer in self.modules() if isinstance(layer, Linear)]
        return [*weights, self.embed.weight] if self.head is None else weights

    def forward(self, ids: Tensor) -> Tensor:
        """Compute logits `[B, T, vocab]` of the token after each of ids `[B, T]`; rows start at position 0."""
        return self.logits(self.hidden(ids, Slots()))

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the weights."""
        return self.embed.weight.dtype
