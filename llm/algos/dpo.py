"""Direct preference optimization (Rafailov et al. 2023, arXiv:2305.18290) and its variants.

The optimal policy for a reward R with a KL penalty has a closed form:

    pi*(y|x) = pi_ref(y|x) exp(R(x, y) / beta) / Z(x)

pi_ref is the reference policy, beta the KL coefficient, and Z(x) normalises. Solve the equation for
R: every policy pi is optimal for R = beta log(pi / pi_ref) + beta log Z. Two responses to the same
prompt have the same Z, so Z cancels in the difference of their rewards. The reward model's loss
function, `bradley_terry`, can thus train the policy directly. Let w be the chosen response, l the
rejected response, and

    D(y) = sum over tokens of  log pi(y_t | s_t) - log pi_ref(y_t | s_t)

The methods have these losses:

    DPO       -log sigmoid( beta D(w) - beta D(l) )                            (eq. 7)
    IPO       (D(w) / |w| - D(l) / |l| - 1 / (2 beta))^2               (Azar et al. 2023, eq. 17)
              has a finite target for the margin; uses means over tokens, as its authors advise
    DPOP      DPO with  D(w) - lambda max(0, -D(w))  in place of D(w)         (Pal et al. 2024)
              penalises a chosen response that becomes less likely
    TDPO      DPO with  D(y) + alpha K(y)  in place of D(y)                  (Zeng et al. 2024)
              K(y) = sum over tokens of KL(pi_ref || pi); no gradient through K(w)
    SimPO     DPO with the mean over tokens of log pi in place of D, and a margin
              needs no reference policy                                       (Meng et al. 2024)
    ORPO      -mean over tokens of log pi(w) - beta log sigmoid( O(w) - O(l) )    (Hong et al. 2024)
              O(y) = log( p / (1 - p) ), the log odds; p = exp(mean over tokens of log pi(y))
              imitates the chosen response; needs no reference policy; beta is the paper's lambda
    Step-DPO  DPO on the first step in which w and l differ, and on no later step
              earlier steps are equal and cancel                               (Lai et al. 2024)
    KTO       1 - sigmoid(beta (D(w) - z)),  1 - sigmoid(beta (z - D(l)))
              learns from good and bad responses, not from pairs; z is the mean log ratio of
              responses to other prompts                              (Ethayarajh et al. 2024)

In Python, `loss` may be your own function of n pairs, loss(log_ratio, logp, lengths) -> [n]. Its
arguments are the sums over tokens of log pi - log pi_ref and of log pi, and the number of tokens.
Each is [n, 2], with the chosen response first. The function may return ([n], {"column": number});
column must be a name that the run does not use.

Online DPO compares responses of the current policy in each update (Guo et al. 2024). The loss of
DPO depends only on the difference of the log-probabilities of the two responses. The run logs
both: often both fall, and responses outside the pairs become more likely.

Differs from llm/algos/reward_model.py by: the reward is beta D. The loss function is the same.
"""
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from llm.algos.reward_model import bradley_terry
from llm.callables import own_loss
from llm.config import PreferenceConfig
from llm.learn import Loss, logp_under
from llm.policy.generate import Responses
from llm.policy.score import forward_kl
from llm.policy.tokenizer import Tokenizer, tokens_with
from llm.preferences import (
    PairsChecksum,
    accuracy,
    compare,
    find_pairs,
    ranked_rightly,
    rows_of,
    shuffled,
)
from llm.rollout import Batch
from llm.run import Result, Run
from llm.start import find_start
from llm.tasks.make import make_task
from spinup.core.masked import masked_mean, select
from spinup.core.optim import step_size
from spinup.errors import UserError
from spinup.runs.config import Count, Natural, NonNegative, Positive

COLUMNS = "logp_chosen", "logp_rejected", "reward_margin", "train_accuracy"
LossName = Literal["dpo", "ipo", "dpop", "tdpo", "simpo", "orpo", "step_dpo", "kto"]
WITHOUT_REFERENCE = "simpo", "orpo"     # the reward of these losses is the mean of log pi


@dataclass(kw_only=True)
class Config(PreferenceConfig):
    loss: LossName | Callable = "dpo"  # one of the equations above
    beta: Positive = 0.1             # KL coefficient; lower: larger changes; ORPO: loss weight
    penalty: NonNegative = 50.0      # lambda of DPOP: penalty if a chosen log-probability falls
    alpha: NonNegative = 0.5         # alpha of TDPO: weight of the difference in KL
    margin: NonNegative = 0.0        # gamma of SimPO: margin between chosen and rejected response
    step: str = ""                   # characters that end a step of Step-DPO; empty: each token
    samples: Natural = 0             # own responses per prompt, best against worst; 0 = offline
    total_steps: Count = 300         # updates; many passes over few pairs overfit
    lr: Positive = 5e-4              # peak value; small models 2e-4 to 1e-3, large 5e-7 to 5e-6

    ONLY_WITH = {"penalty": ("loss", "dpop"), "alpha": ("loss", "tdpo"),
                 "margin": ("loss", "simpo"), "step": ("loss", "step_dpo")}

    def __post_init__(self):
        super().__post_init__()
        if self.samples == 1:
            raise UserError("a preference pair consists of two responses to a prompt, and "
                            "--samples 1 gives only one; choose 2 or more, or 0 for "
                            "fixed pairs")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise UserError if no token contains the characters that end a step."""
        tokens_with(self.step, tokenizer)


def kto(reward: Tensor, baseline: Tensor, preferred: Tensor) -> Tensor:
    """KTO loss per pair, `[pairs]`: 1 - sigmoid(+-(reward - baseline)), with + if `preferred`."""
    return 1 - torch.sigmoid(torch.where(preferred, reward - baseline, baseline - reward))


def log_odds(logp: Tensor) -> Tensor:
    """log(p / (1 - p)) of probabilities p = exp(`logp`), `[...]`, without loss of precision at p
    near 0 or near 1 (Maechler 2012). A p that rounds to 1 has no gradient."""
    logp = logp.clamp(max=-torch.finfo(logp.dtype).eps)
    near_1 = logp > -math.log(2)
    small, large = torch.where(near_1, -1.0, logp), torch.where(near_1, logp, -1.0)
    return logp - torch.where(near_1, (-torch.expm1(large)).log(), torch.log1p(-small.exp()))


def implicit_reward(kind: str | Callable, log_ratio: Tensor, logp: Tensor, lengths: Tensor,
                    beta: float) -> Tensor:
    """Reward for which the policy is the best one, `[n, 2]`: beta times the sum over tokens of
    log pi - log pi_ref; without a reference policy, beta times the mean of log pi."""
    return beta * (logp / lengths if kind in WITHOUT_REFERENCE else log_ratio)


def first_different_step(ids: Tensor, mask: Tensor, ends: Tensor) -> Tensor:
    """Mask `[2n, T]` of the first step in which the two responses of a pair differ.

    ids: `[2n, T]`; rows 2 i and 2 i + 1 are a pair. The step starts at the first token that differs
    and ends at the next token in `ends` `[k]`. If `ends` is empty, the step is that one token.
    """
    a, b = ids.view(-1, 2, ids.shape[1]).unbind(1)
    begun = ((a != b).cumsum(1) > 0).repeat_interleave(2, 0)
    over = begun & (torch.isin(ids, ends) | (len(ends) == 0))
    return mask * (begun & (over.cumsum(1) - over.long() == 0))


def divergence_elsewhere(run: Run, pairs: Batch, r: Responses) -> Tensor:
    """Compute z of KTO, `[]`, at least 0: the mean log ratio of the responses of each pair after
    the prompt of the next pair. Pairs with equal prompts do not count; 0 if none counts."""
    swapped = replace(pairs, responses=replace(r, of=r.of.roll(-2)))
    ids, lengths = pairs.prompts.ids, pairs.prompts.lengths
    own, other = (torch.cat([ids[of], lengths[of, None]], 1) for of in (r.of, swapped.responses.of))
    differs = (own != other).any(1)                                               # [2n]
    logp, logp_ref = (logp_under(model, run.config, swapped)
                      for model in (run.model, run.reference))
    ratios = select(logp - logp_ref, r.mask).sum(1)
    return masked_mean(ratios, differs.float()).clamp(min=0)


def preference_loss(kind: str, log_ratio: Tensor, logp: Tensor, lengths: Tensor,
                    divergence: Tensor, baseline: Tensor | None, cfg: Config) -> Tensor:
    """Loss of each pair, `[n]`, as in the equations above.

    log_ratio, logp, divergence: `[n, 2]`, chosen and rejected: sums over tokens of log pi - log
    pi_ref, of log pi, and of KL(pi_ref || pi). lengths: `[n, 2]`, numbers of tokens. baseline: z
    of KTO, detached.
    """
    (won, lost), (k_won, k_lost) = log_ratio.unbind(1), divergence.unbind(1)
    if kind == "ipo":
        return (won / lengths[:, 0] - lost / lengths[:, 1] - 1 / (2 * cfg.beta)).square()
    if kind == "kto":
        preferred = torch.tensor([True, False], device=won.device)
        return kto(cfg.beta * log_ratio, cfg.beta * baseline, preferred).mean(1)
    if kind == "simpo":
        reward = implicit_reward(kind, log_ratio, logp, lengths, cfg.beta)
        return bradley_terry(reward[:, 0], reward[:, 1], cfg.margin)
    if kind == "orpo":
        mean = logp / lengths
        return cfg.beta * bradley_terry(*log_odds(mean).unbind(1)) - mean[:, 0]
    if kind == "dpop":
        won = won - cfg.penalty * (-won).clamp(min=0)
    if kind == "tdpo":
        won, lost = won + cfg.alpha * k_won.detach(), lost + cfg.alpha * k_lost
    return bradley_terry(cfg.beta * won, cfg.beta * lost)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with DPO or a variant. `resume`: folder of a run with the same settings."""
    # Set up.
    task = make_task(cfg.task, cfg.given_reward)
    run = Run(cfg, task, find_start(cfg, task, resume), resume)
    optimizer = run.adam(run.model, lr=cfg.lr, max_grad_norm=cfg.max_grad_norm, eps=cfg.adam_eps)
    test = find_pairs(run, cfg, held_out=True)
    fixed = None if cfg.samples else find_pairs(run, cfg)
    if task.pairs is not None and not cfg.samples:
        run.measure = "pair_accuracy"                         # a file of pairs has no rewards
    logp_ref_test = logp_under(run.reference, cfg, test)              # constant: computed once

    def reference_logp(pairs: Batch) -> Tensor:
        """Log-probabilities under the reference policy, `[2n, T]`; 0 if the loss has none."""
        if cfg.loss in WITHOUT_REFERENCE:
            return torch.zeros_like(pairs.responses.logp)
        return logp_under(run.reference, cfg, pairs)

    logp_ref_fixed = None if fixed is None else reference_logp(fixed)
    ends = torch.tensor(tokens_with(cfg.step, run.tokenizer), dtype=torch.long, device=run.device)

    def loss(logp: Tensor, part: Responses, logp_ref: Tensor, pairs: Batch,
             baseline: Tensor | None, total: int) -> Loss:
        mask, divergence = part.mask, torch.zeros_like(logp)
        if cfg.loss == "step_dpo":
            mask = first_different_step(part.ids, mask, ends)
        if cfg.loss == "tdpo":
            divergence = forward_kl(run.model, run.reference, pairs.prompts, part.of, part.ids,
                                    cfg.temperature, cfg.gradient_checkpointing)
        per_token = (logp - logp_ref, logp, mask, divergence)                     # [2n, T] each
        sums = [select(x, mask).sum(1).view(-1, 2) for x in per_token]            # [n, 2] each
        if callable(cfg.loss):
            each, stats = own_loss(cfg.loss, sums[0][:, 0].shape, *sums[:3], taken=COLUMNS)
        else:
            each, stats = preference_loss(cfg.loss, *sums, baseline, cfg), {}
        won, lost = implicit_reward(cfg.loss, *sums[:3], cfg.beta).detach().unbind(1)
        margin = won - lost
        logps = sums[1].detach().mean(0)
        return each.sum() / total, stats | {
            "logp_chosen": logps[0], "logp_rejected": logps[1], "reward_margin": margin.mean(),
            "train_accuracy": accuracy(margin)}

    def tested() -> dict[str, Tensor]:
        """Results on held-out pairs."""
        return {"pair_accuracy": ranked_rightly(run, test, logp_ref_test)}

    with run:
        known = [test] if fixed is None else [test, fixed]
        run.keep(model=run.model, optimizer=optimizer, pairs=PairsChecksum(*known))
        run.columns(*COLUMNS)
        run.first_row(tested)
        for update in run.updates(cfg.total_steps):
            # Collect: sample and compare new responses, or use the fixed pairs.
            if cfg.samples:
                batch = run.sample(run.problems(cfg.batch), cfg.samples)
                run.record(batch)
                best_and_worst = compare(batch.rewards, cfg.samples, cfg.noise, run.rng)
                pairs = batch.pick(best_and_worst.flatten())
                logp_ref = reference_logp(pairs)
                rows = torch.arange(len(pairs.texts), device=run.device)
            else:
                pairs, logp_ref = fixed, logp_ref_fixed
                chosen = shuffled(len(fixed.texts) // 2, cfg.batch, update, cfg.seed)
                rows = rows_of(chosen).to(run.device)
            r, baseline = pairs.responses[rows], None
            if cfg.loss == "kto" and len(rows):
                baseline = divergence_elsewhere(run, pairs, r)

            # Update.
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            if len(rows):
                optimizer.zero_grad()
                stats = run.backward(pairs, rows, loss, logp_ref, by_rows=True, pairs=pairs,
                                     baseline=baseline, total=len(rows) // 2)
                run.add(grad_norm=optimizer.step(lr), **stats)
            if not cfg.samples:
                run.add(tokens=r.mask.sum(), length=r.lengths.float().mean())
            run.add(learning_rate=lr)
            if run.row_due:
                run.log(**tested())
        return run.result()
