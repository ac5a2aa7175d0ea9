"""A policy that follows values of tokens: pi = pi_ref exp(beta (Q - V)) / Z (Snell et al. 2022, arXiv:2206.11871).

It has the methods of `Transformer` that sampling and scoring use, so it can replace a transformer there.
"""
import copy
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from llm.policy.cache import Cache, Prefix, Slots
from llm.policy.lora import duplicate
from llm.policy.transformer import Transformer


class ActionValues(nn.Module):
    """A transformer with two heads: Q, a value for each next token, and V, one value of the state.

    body: the language model; it is copied, as by `duplicate`. All values are 0 at first.
    """

    def __init__(self, body: Transformer):
        super().__init__()
        self.body = duplicate(body)
        size, where = (1 + body.shape.vocab_size, body.shape.width), {"device": body.device, "dtype": body.dtype}
        self.weight, self.bias = nn.Parameter(torch.zeros(size, **where)), nn.Parameter(torch.zeros(size[0], **where))

    def numbers(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Compute Q `[..., vocab]` and V `[...]`, in fp32, from states `[..., width]`."""
        both = linear(hidden.float(), self.weight.float(), self.bias.float())
        return both[..., 1:], both[..., 0]


class Offset:
    """View of a KV cache from layer `first` on, for the second of the two models."""

    def __init__(self, memory: Cache | Prefix, first: int):
        self.memory, self.first = memory, first

    def extend(self, layer: int, k: Tensor, v: Tensor, slots: Slots) -> tuple[Tensor, Tensor]:
        """Store keys and values of a layer, `[B, heads, T, size]`, and return all to attend to."""
        return self.memory.extend(self.first + layer, k, v, slots)


class ValuePolicy(nn.Module):
    """The policy pi(y | s) = pi_ref(y | s) exp(beta (Q(s, y) - V(s))) / Z(s).

    The two models read the same tokens. Their states and embeddings are concatenated, and one cache holds the layers of
    both. V is the same for all tokens, so Z cancels it.

    Args:
        reference: pi_ref; it is not copied and does not learn.
        values: Q and V.
        beta: the larger, the greedier; 0 is pi_ref.
    """

    divided = compiled = False

    def __init__(self, reference: Transformer, values: ActionValues, beta: float = 1.0):
        super().__init__()
        self.reference, self.values = reference.requires_grad_(False), values
        self.register_buffer("beta", torch.tensor(beta, device=reference.device))
        self.shape = replace(reference.shape, layers=2 * reference.shape.layers)

    def embed(self, ids: Tensor) -> Tensor:
        """Embeddings of both models, `[..., 2 width]`, from ids `[...]`."""
        return torch.cat([self.reference.embed(ids), self.values.body.embed(ids)], -1)

    def hidden(self, ids: Tensor, slots: Slots, memory: Cache | Prefix | None = None,
               checkpointing: bool = False) -> Tensor:
        """Compute the final states of both models, `[B, T, 2 width]`, of ids `[B, T]` or embeddings
        `[B, T, 2 width]`."""
        if isinstance(memory, Prefix):                        # freeze its rows, as in `Transformer.hidden`
            memory = copy.copy(memory)
        both = (ids if ids.is_floating_point() else self.embed(ids)).chunk(2, -1)
        second = None if memory is None else Offset(memory, self.reference.shape.layers)
        return torch.cat([self.reference.hidden(both[0], slots, memory, checkpointing),
                          self.values.body.hidden(both[1], slots, second, checkpointing)], -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute log pi_ref + beta (Q - V), `[..., vocab]`, from states `[..., 2 width]`."""
        first, second = hidden.chunk(2, -1)
        q, v = self.values.numbers(second)
        return self.reference.logits(first).float().log_softmax(-1) + self.beta * (q - v[..., None])

    def compile_layers(self) -> None:
        """Compile the layers of both models."""
        self.reference.compile_layers()
        self.values.body.compile_layers()

    def matrices(self) -> list[Tensor]:
        """Weights of all products of both models, `[n_out, n_in]` each."""
        return self.reference.matrices() + self.values.body.matrices()

    def forward(self, ids: Tensor) -> Tensor:
        """Compute logits `[B, T, vocab]` of the token after each of ids `[B, T]`; rows start at position 0."""
        return self.logits(self.hidden(ids, Slots()))

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.reference.device

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the weights."""
        return self.reference.dtype
