"""Learning: log-probabilities of responses under a model, and gradients of a loss function of them."""
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from llm.config import LanguageConfig
from llm.memory import enough_memory
from llm.policy.generate import Prompts, Responses
from llm.policy.score import exact_kl, score
from llm.policy.transformer import Transformer
from llm.rollout import Batch
from spinup.core.kl import k3
from spinup.core.masked import masked_mean, select
from spinup.runs import ranks

EXACT = 1024            # largest vocabulary for an exact KL to the reference policy, summed over all tokens
KL_ROWS = 128           # responses used to measure this KL
NEAR = (0.9, 1.1)       # importance weights of this range count as equal to 1
SCORED = 1024           # responses per forward pass without gradients, if micro_batch is 0

Loss = tuple[Tensor, dict[str, Tensor]]                   # the number to minimise, and diagnostics


def backward(model: Transformer, cfg: LanguageConfig, batch: Batch, rows: Tensor, loss: Callable[..., Loss],
             *per_row: Tensor, by_rows: bool = False, **whole: Any) -> dict[str, Tensor]:
    """Add the gradient of `loss` over rows `[n]` of a batch, one micro-batch at a time. Return averaged diagnostics.

    Args:
        cfg: the function uses `micro_batch`, `temperature` and `gradient_checkpointing`.
        loss: called once per micro-batch of m rows. It gets the log-probabilities `[m, T]` under the model, the
            responses, their rows of each `per_row`, and all of `whole`. T is the length of the longest of these
            responses. The loss must divide by a total of the whole optimiser step; otherwise the parts do not add up.
        per_row: tensors `[B]`, `[B, 1]` or `[B, T]` of the whole batch.
        by_rows: True if the diagnostics are means over rows, not over tokens.
    The result also has loss, entropy, and the smallest and largest pi / pi_old. The ratios are NaN if pi_old is
    unknown, as for a teacher. If a policy other than pi_old sampled the responses, it also has off_policy: the share of
    tokens with an importance weight outside `NEAR`, before truncation. With several ranks, each computes the gradient
    of its share of the rows, and the diagnostics are those of all rows.
    """
    r, found, ratios = batch.responses, defaultdict(float), []
    tokens = r.mask[rows].sum().clamp(min=1)
    rows = rows[r.of[rows].argsort(stable=True)]        # same prompt adjacent: a micro-batch reads each prompt once
    for piece, counts in passes(cfg, rows, cfg.micro_batch or len(rows), 2 - len(rows) % 2):              # whole pairs
        part = r[piece].trimmed()
        T = part.ids.shape[1]
        settings = {"temperature": cfg.temperature, "checkpointing": cfg.gradient_checkpointing}
        logp, entropy = score(model, batch.prompts, part.of, part.ids, part.lengths, **settings)   # [m, T]
        part = replace(part, logp=torch.where(part.logp.isposinf(), logp.detach(), part.logp))       # see `rescored`
        value, stats = loss(logp, part, *(x[piece][:, :T] if x.ndim > 1 else x[piece] for x in per_row), **whole)
        if not counts:
            (value * 0).backward()
            continue
        value.backward()

        with torch.no_grad():
            share = part.mask.sum() / tokens
            for name, x in stats.items():
                found[name] += x * (len(piece) / len(rows) if by_rows else share)
            found["entropy"] += masked_mean(entropy, part.mask) * share
            found["loss"] += value.detach()
            if part.drawn is not None:
                far = (importance_weights(part) - sum(NEAR) / 2).abs() > (NEAR[1] - NEAR[0]) / 2
                found["off_policy"] += masked_mean(far.float(), part.mask) * share
            ratios.append(torch.stack(select(logp - part.logp, part.mask).exp().aminmax()))
    if ranks.size() > 1:
        found, ratios = of_all_ranks(found, ratios)
    found["ratio_min"], found["ratio_max"] = torch.stack(ratios)[:, 0].amin(), torch.stack(ratios)[:, 1].amax()
    return found


def passes(cfg: LanguageConfig, rows: Tensor, size: int, each: int) -> list[tuple[Tensor, bool]]:
    """Split this rank's share of rows `[n]` into pieces of at most `size`. Return each, `[m]`, and True.

    Groups of `each` adjacent rows stay together. A divided model needs equally many passes on all ranks. So for a rank
    with fewer pieces, the list ends with rows and False: these are computed, but do not count.
    """
    groups = len(rows) // each
    own, largest = ranks.mine(groups), ranks.of_rank(groups, 0)
    share = rows[own.start * each:own.stop * each]
    found = [(piece, True) for piece in share.split(size) if len(piece)]
    missing = -(-len(largest) * each // size) - len(found)
    return found + [(rows[:each], False)] * missing if cfg.fsdp else found


def of_all_ranks(found: dict[str, Tensor], ratios: list[Tensor]) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Return the sums of diagnostics `[]` over all ranks, and the extreme ratios `[2]` of all ranks."""
    whole, extremes = defaultdict(float), []
    for sums, pairs in ranks.gather(({name: x.cpu() for name, x in found.items()}, [x.cpu() for x in ratios])):
        extremes += pairs
        for name, x in sums.items():
            whole[name] += x
    return whole, extremes


@torch.no_grad()
def in_pieces(cfg: LanguageConfig, batch: Batch, function: Callable[[Prompts, Tensor, Tensor, Tensor], Tensor]
              ) -> Tensor:
    """Apply `function(prompts, of, ids, lengths)` to a batch, one micro-batch at a time, without gradients.

    Return its numbers, `[B, T]`. Entries after the end of a response are undefined.
    """
    found = torch.zeros(batch.responses.ids.shape, device=batch.responses.ids.device)
    own = torch.tensor(ranks.mine(len(found)), device=found.device, dtype=torch.long)
    for rows, counts in passes(cfg, torch.arange(len(found), device=found.device), cfg.micro_batch or SCORED, 1):
        part = batch.responses[rows].trimmed()
        with enough_memory(cfg):
            numbers = function(batch.prompts, part.of, part.ids, part.lengths)
        if counts:
            found[rows, :part.ids.shape[1]] = numbers
    return found if ranks.size() == 1 else ranks.join(found[own])


def logp_under(model: Transformer, cfg: LanguageConfig, batch: Batch) -> Tensor:
    """Log-probabilities `[B, T]` of a batch's tokens under a model, such as the reference policy.

    Entries after the end of a response are undefined.
    """
    return in_pieces(cfg, batch, lambda *given: score(model, *given, temperature=cfg.temperature)[0])


def rescored(model: Transformer, cfg: LanguageConfig, batch: Batch, once: bool = False) -> Batch:
    """Replace the sampler's log-probabilities of a batch by those of the learner.

    In fp32 both are equal, and the batch is returned unchanged. In bf16 sampler and learner round differently, and
    their log-probabilities differ by tenths. Without this step, the ratio would not start at 1. If the sampler is an
    engine, or has older weights, the responses keep its log-probabilities as `drawn`; see `importance_weights`.

    once: True if the batch has one gradient step, and nothing else needs its log-probabilities. They are then infinite
        here, and `backward` takes them from its own forward pass.
    """
    if model.dtype == torch.float32 and not cfg.off_policy:
        return batch
    r = batch.responses
    logp = torch.full_like(r.logp, torch.inf) if once else select(logp_under(model, cfg, batch), r.mask)
    return replace(batch, responses=replace(r, logp=logp, drawn=r.logp if cfg.off_policy else None))


def importance_weights(r: Responses, largest: float = math.inf, whole: bool = False) -> Tensor | float:
    """Importance weights of tokens, pi_old / the probability with which they were drawn, `[B, T]`.

    largest: upper limit of a weight. whole: each response has one weight instead, `[B, 1]`, the geometric mean of the
    weights of its tokens, as in GSPO.

    Multiplied by them, the loss of a token has the expectation that it would have if pi_old had drawn the token after
    the same prefix. Truncation bounds the variance and adds a bias (Ionides 2008). The result is the number 1 if pi_old
    is the policy that sampled.
    """
    if r.drawn is None:
        return 1.0
    log_weight = select(r.logp - r.drawn, r.mask)
    if whole:
        log_weight = log_weight.sum(1, keepdim=True) / r.mask.sum(1, keepdim=True).clamp(min=1)
    return log_weight.exp().clamp(max=largest)


@torch.no_grad()
def kl_to_reference(model: Transformer, reference: Transformer, cfg: LanguageConfig, batch: Batch
                    ) -> tuple[float, float]:
    """KL(model || reference) in nats: mean over tokens, and mean over whole responses.

    It uses at most `KL_ROWS` responses of the model. It is exact for a small vocabulary, else an estimate from the
    sampled tokens.
    """
    first = batch.pick(torch.arange(min(KL_ROWS, len(batch.texts)), device=model.device))
    r = first.responses
    if model.shape.vocab_size <= EXACT:
        kl = in_pieces(cfg, first, partial(exact_kl, model, reference, temperature=cfg.temperature))
    else:                                                                 # see `rescored`
        logp = r.logp if model.dtype == torch.float32 else logp_under(model, cfg, first)
        kl = k3(logp, logp_under(reference, cfg, first), r.mask)
    return float(masked_mean(kl, r.mask)), float(select(kl, r.mask).sum(1).mean())
