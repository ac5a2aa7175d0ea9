"""Log-probabilities of given responses, with gradients: the learner's counterpart of the sampler."""
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from llm.policy.cache import Prefix, Slots
from llm.policy.generate import Prompts
from llm.policy.packed import read_packed, worth_packing
from llm.policy.transformer import Transformer, additive, attention_dtype, compiled
from spinup.core.fast.linear import fast_linear
from spinup.core.kl import kl_categorical

PIECE = 2**19           # log-probabilities per piece in the computation of entropy on a CPU
CHUNK = 2**26           # most logits kept for the backward pass; more tokens are split, and their pieces recomputed


def one_pass(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function(model, ...)` as one pass of the model: a divided model gathers its weights for it."""
    @wraps(function)
    def call(model: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        through = getattr(model, "through", None)
        return function(model, *args, **kwargs) if through is None else through(function, *args, **kwargs)
    return call


@one_pass
def score(model: Transformer, prompts: Prompts, of: Tensor, ids: Tensor, lengths: Tensor | None = None, *,
          temperature: float = 1.0, checkpointing: bool = False) -> tuple[Tensor, Tensor]:
    """Compute log-probability and entropy of each token of `ids`, given its prompt and all earlier tokens.

    Both are `[B, T]` in fp32. The log-probability has a gradient, the entropy has none.

    Args:
        of: `[B]` row of `prompts` for each response. Each of these prompts is read once.
        ids: `[B, T]` responses; tokens after the end of a response do not change results before it.
        lengths: `[B]` lengths of the responses. If they are given and there is much padding, it is not computed;
            results after the end of a response are then 0.
        temperature: must equal the sampler's temperature; otherwise the probability ratio does not start at 1.
        checkpointing: keep fewer activations for the backward pass, and recompute the others.
    """
    if lengths is None or not worth_packing(model, prompts, of, ids, lengths):
        return log_probs_in_pieces(model, read(model, prompts, of, ids, None, checkpointing), ids, temperature)
    inside = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    states = read_packed(model, prompts, of, ids, lengths, checkpointing)[inside]            # [N, width], N tokens
    logp, entropy = (torch.zeros(ids.shape, device=ids.device).masked_scatter(inside, x)
                     for x in log_probs_in_pieces(model, states, ids[inside], temperature))
    return logp, entropy


def read(model: Transformer, prompts: Prompts, of: Tensor, ids: Tensor, lengths: Tensor | None = None,
         checkpointing: bool = False) -> Tensor:
    """Hidden state that predicts each token of a response, `[B, T, width]`. Prompts without a row are skipped.

    The arguments are those of `score`.
    """
    if lengths is None and model.divided:
        lengths = torch.full_like(of, ids.shape[1])
    if lengths is not None and worth_packing(model, prompts, of, ids, lengths):
        return read_packed(model, prompts, of, ids, lengths, checkpointing)
    needed, of = of.unique(return_inverse=True)
    prompts = Prompts(prompts.ids[needed], prompts.lengths[needed])
    (B, T), (P, L) = ids.shape, prompts.ids.shape
    prefix, everyone = Prefix(), torch.arange(P, device=ids.device)
    # One call for all tokens: the gradient of each call is as large as the whole embedding.
    embedded = model.embed(torch.cat([prompts.ids.flatten(), ids.flatten()]))
    asked, said = embedded[:P * L].unflatten(0, (P, L)), embedded[P * L:].unflatten(0, (B, T))
    first = model.hidden(asked, Slots(), prefix, checkpointing)[everyone, prompts.lengths - 1][of]
    if T == 1:
        return first[:, None]
    prefix.rows = of
    steps, columns = torch.arange(T - 1, device=ids.device), torch.arange(L, device=ids.device)
    causal = torch.ones(T - 1, T - 1, dtype=torch.bool, device=ids.device).tril()
    if prompts.equal:
        slots = Slots(L, None, lower_right(causal, L))
    else:
        lengths = prompts.lengths[of]
        seen = (columns < lengths[:, None])[:, None].expand(-1, T - 1, -1)                   # hide a prompt's padding
        mask = torch.cat([seen, causal.expand(B, -1, -1)], 2)[:, None]                       # [B, 1, T - 1, L + T - 1]
        slots = Slots(None, lengths[:, None] + steps, additive(mask, attention_dtype(ids.device, model.dtype)))
    rest = model.hidden(said[:, :-1], slots, prefix, checkpointing)
    return torch.cat([first[:, None], rest], 1)


def lower_right(causal: Tensor, before: int) -> Tensor:
    """Mask of T tokens after `before` others, `[1, 1, T, before + T]`, from the causal mask `[T, T]` of T tokens. On
    CUDA it is torch's own object, which selects the fastest kernel."""
    T = len(causal)
    if causal.device.type == "cuda" and T > 1:                # `attend` gives one token as several rows
        from torch.nn.attention.bias import causal_lower_right  # takes 3 s; on a CPU no command needs it
        return causal_lower_right(T, before + T)
    return torch.cat([torch.ones_like(causal[:, :1]).expand(-1, before), causal], 1)[None, None]


def log_probs(model: Transformer, hidden: Tensor, ids: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probability of `ids` `[...]` and entropy of their distribution, from states `[..., width]`, in fp32.

    The entropy has no gradient. No loss uses it, and its graph would keep two more tensors over the vocabulary.
    """
    logits = model.logits(hidden)
    if model.compiled:
        return compiled(log_probs_in_one_pass)(logits, ids, temperature)
    logits = logits.float()
    log_pi = (logits if temperature == 1 else logits / temperature).log_softmax(-1)
    return log_pi.gather(-1, ids.unsqueeze(-1)).squeeze(-1), entropy(log_pi)


def log_probs_in_one_pass(logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Compute what `log_probs` returns, in a form from which torch.compile makes sums over the logits, `[..., vocab]`,
    without copies of them.
    """
    logits = logits.float() / temperature
    total, tokens = logits.logsumexp(-1), torch.arange(logits.shape[-1], device=logits.device)
    chosen = torch.where(tokens == ids.unsqueeze(-1), logits, 0).sum(-1)
    x = logits.detach().clamp(min=-1e4)                                   # -inf times its probability, 0, would be NaN
    mean = (x * (x - total.detach().unsqueeze(-1)).exp()).sum(-1)
    return chosen - total, total.detach() - mean


def log_probs_in_pieces(model: Transformer, hidden: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Compute `log_probs`, `[...]` each, for large batches in pieces."""
    def of_piece(hidden: Tensor, ids: Tensor) -> Tensor:
        return torch.stack(log_probs(model, hidden, ids, temperature))
    # A compiled model keeps less per logit: two numbers of its type instead of four in fp32.
    less = 8 // model.dtype.itemsize if model.compiled else 1
    logits = ids.numel() * model.shape.vocab_size // less
    logp, entropy = in_chunks(of_piece, logits, hidden, ids)
    return logp, entropy.detach()


def in_chunks(function: Callable[..., Tensor], logits: int, hidden: Tensor, *others: Tensor) -> Tensor:
    """Apply a function to states `[..., width]` and other tensors of the same tokens. It returns `[...]` or `[n, ...]`.

    If it needs more than `CHUNK` logits, the tokens are split, also those of one response. The pieces are recomputed in
    the backward pass, so their logits are never kept at once.
    """
    tokens, pieces = hidden.shape[:-1], -(-logits // CHUNK)
    if pieces <= 1:
        return function(hidden, *others)
    given = [x.flatten(0, len(tokens) - 1).chunk(pieces) for x in (hidden, *others)]
    done = [checkpoint(function, *part, use_reentrant=False) for part in zip(*given, strict=True)]
    return torch.cat(done, -1).unflatten(-1, tokens)


@torch.no_grad()
def entropy(log_pi: Tensor) -> Tensor:
    """Entropy in nats, `[...]`, of log-probabilities `[..., vocab]`. On a CPU, its pieces fit the cache."""
    rows = log_pi.flatten(0, -2)
    size = max(1, PIECE // log_pi.shape[-1]) if rows.device.type == "cpu" else max(1, len(rows))
    pieces = [-x.exp().mul_(x.clamp(min=-1e4)).sum(-1) for x in rows.split(size)]
    return torch.cat(pieces).view(log_pi.shape[:-1])


@one_pass
def logits_under(model: Transformer, prompts: Prompts, of: Tensor, ids: Tensor, lengths: Tensor | None,
                 temperature: float) -> Tensor:
    """Logits of each token of the responses, `[B, T, vocab]` in fp32, divided by the temperature. See `score`."""
    return model.logits(read(model, prompts, of, ids, lengths)).float() / temperature


def forward_kl(model: Transformer, reference: Transformer, prompts: Prompts, of: Tensor, ids: Tensor,
               temperature: float = 1.0, checkpointing: bool = False) -> Tensor:
    """KL(reference || model) of the next token at each step, `[B, T]`, summed over all tokens; with gradient."""
    with torch.no_grad():
        states_ref, head_ref = states_and_head(reference, prompts, of, ids)
    return kl_from_states(model, prompts, of, ids, states_ref, head_ref, temperature, checkpointing)


@one_pass
def states_and_head(model: Transformer, prompts: Prompts, of: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states `[B, T, width]`, and the matrix `[vocab, width]` that makes logits of them. A divided model has its
    weights only within a pass, so the matrix is then a copy."""
    head = (model.embed if model.head is None else model.head).weight.detach()
    return read(model, prompts, of, ids), head.clone() if model.divided else head


@one_pass
def kl_from_states(model: Transformer, prompts: Prompts, of: Tensor, ids: Tensor, states_ref: Tensor, head_ref: Tensor,
                   temperature: float, checkpointing: bool) -> Tensor:
    """Compute `forward_kl` from the reference's states `[B, T, width]` and head `[vocab, width]`."""
    def of_piece(hidden: Tensor, hidden_ref: Tensor) -> Tensor:
        with torch.no_grad():
            logits_ref = fast_linear(hidden_ref, head_ref).float() / temperature
        return kl_categorical(logits_ref, model.logits(hidden).float() / temperature)
    states = read(model, prompts, of, ids, checkpointing=checkpointing)
    each = in_chunks(of_piece, 2 * ids.numel() * model.shape.vocab_size, states, states_ref)
    return each.clone() if model.divided else each                        # FSDP2 warns of views


@torch.no_grad()
def exact_kl(model: Transformer, reference: Transformer, prompts: Prompts, of: Tensor, ids: Tensor,
             lengths: Tensor | None = None, temperature: float = 1.0) -> Tensor:
    """KL(model || reference) of the next token at each step of the responses, `[B, T]`, summed over all tokens."""
    logits, logits_ref = (logits_under(m, prompts, of, ids, lengths, temperature) for m in (model, reference))
    return kl_categorical(logits, logits_ref)
