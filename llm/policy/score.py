"""Log-probabilities of given responses, with their gradients: the learner's side of what the sampler did."""
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from llm.policy.generate import Prompts
from llm.policy.transformer import Prefix, Slots, Transformer
from spinup.core.kl import kl_categorical

PIECE = 2**19           # log-probabilities whose entropy is found at a time
CHUNK = 2**26           # logits that are kept for the way back; a larger batch is cut, and each piece computed again


def score(model: Transformer, prompts: Prompts, of: Tensor, ids: Tensor, *, temperature: float = 1.0,
          checkpointing: bool = False) -> tuple[Tensor, Tensor]:
    """Log-probability, with its gradient, and entropy, without, `[B, T]` in fp32, of each token of `ids` given its
    prompt and all before it.

    Args:
        of: `[B]` the row of `prompts` that each response answers. Each of those prompts is read once.
        ids: `[B, T]` responses; what stands behind the end of one changes nothing before it.
        temperature: that of the sampler, or the ratio of the two would not begin at 1.
        checkpointing: keep less for the way back and compute it again.
    """
    hidden = read(model, prompts, of, ids, checkpointing)                                    # [B, T, width]
    if hidden[..., 0].numel() * model.shape.vocab_size <= CHUNK:
        return log_probs(model, hidden, ids, temperature)
    pieces = -(-hidden[..., 0].numel() * model.shape.vocab_size // CHUNK)
    done = [checkpoint(log_probs, model, h, i, temperature, use_reentrant=False)
            for h, i in zip(hidden.chunk(pieces), ids.chunk(pieces), strict=True)]
    logp, entropy = zip(*done, strict=True)
    return torch.cat(logp), torch.cat(entropy)


def read(model: Transformer, prompts: Prompts, of: Tensor, ids: Tensor, checkpointing: bool = False) -> Tensor:
    """The state that each token of a response is drawn from, `[B, T, width]`. Prompts that no row answers are left."""
    needed, of = of.unique(return_inverse=True)
    prompts = Prompts(prompts.ids[needed], prompts.lengths[needed])
    (B, T), (P, L) = ids.shape, prompts.ids.shape
    prefix, everyone = Prefix(), torch.arange(P, device=ids.device)
    first = model.hidden(prompts.ids, Slots(), prefix, checkpointing)[everyone, prompts.lengths - 1][of]
    if T == 1:
        return first[:, None]
    prefix.rows = of
    steps, columns = torch.arange(T - 1, device=ids.device), torch.arange(L, device=ids.device)
    causal = torch.ones(T - 1, T - 1, dtype=torch.bool, device=ids.device).tril()
    if prompts.equal:
        slots = Slots(L, None, torch.cat([torch.ones_like(causal[:, :1]).expand(-1, L), causal], 1)[None, None])
    else:
        lengths = prompts.lengths[of]
        seen = (columns < lengths[:, None])[:, None].expand(-1, T - 1, -1)                   # not what pads a prompt
        mask = torch.cat([seen, causal.expand(B, -1, -1)], 2)[:, None]                       # [B, 1, T - 1, L + T - 1]
        slots = Slots(None, lengths[:, None] + steps, mask)
    rest = model.hidden(ids[:, :-1], slots, prefix, checkpointing)
    return torch.cat([first[:, None], rest], 1)


def log_probs(model: Transformer, hidden: Tensor, ids: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probability of `ids` `[...]` and entropy of their distribution, from states `[..., width]`, in fp32.

    The entropy has no gradient: no loss reads it, and its graph would keep two more tensors of all symbols.
    """
    log_pi = (model.logits(hidden).float() / temperature).log_softmax(-1)
    return log_pi.gather(-1, ids.unsqueeze(-1)).squeeze(-1), entropy(log_pi)


@torch.no_grad()
def entropy(log_pi: Tensor) -> Tensor:
    """Entropy in nats, `[...]`, of log-probabilities `[..., vocab]`, in pieces that stay in a processor's cache."""
    rows = log_pi.flatten(0, -2).split(max(1, PIECE // log_pi.shape[-1]))
    return torch.cat([-x.exp().mul_(x.clamp(min=-1e4)).sum(-1) for x in rows]).view(log_pi.shape[:-1])


def forward_kl(model: Transformer, reference: Transformer, prompts: Prompts, of: Tensor, ids: Tensor,
               temperature: float = 1.0, checkpointing: bool = False) -> Tensor:
    """KL(reference || model) of the next token at each step, `[B, T]`, over all symbols; with the model's gradient."""
    logits = model.logits(read(model, prompts, of, ids, checkpointing)).float() / temperature
    with torch.no_grad():
        logits_ref = reference.logits(read(reference, prompts, of, ids)).float() / temperature
    return kl_categorical(logits_ref, logits)


@torch.no_grad()
def exact_kl(model: Transformer, reference: Transformer, prompts: Prompts, of: Tensor, ids: Tensor,
             temperature: float = 1.0) -> Tensor:
    """KL(model || reference) of the next token at each step of the responses, `[B, T]`, summed over all symbols."""
    logits, logits_ref = (m.logits(read(m, prompts, of, ids)).float() / temperature for m in (model, reference))
    return kl_categorical(logits, logits_ref)
