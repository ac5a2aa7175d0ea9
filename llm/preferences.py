"""Preference pairs: their sources, and the order in which a method learns from them.

In a `Batch` of pairs, row 2 i is the chosen (preferred) response of pair i, and row 2 i + 1 the rejected one.
"""
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llm.config import FEW, PreferenceConfig
from llm.learn import logp_under
from llm.rollout import Batch, join
from llm.run import Run
from llm.tasks.check import problems_of
from llm.tasks.pairs import left_out
from llm.tasks.task import Problem
from spinup.core.masked import select
from spinup.errors import UserError
from spinup.runs.display import tell_progress
from spinup.runs.training import Training

HELD_OUT_PAIRS = 512    # most held-out pairs, compared without noise; 4 * `held_out` if that is less
RANKED = 128            # held-out pairs that a policy ranks for each row of the log
AT_ONCE = 512           # pairs of a small model sampled at a time
PATIENCE = 20           # sample at most this many times the wanted number: equal rewards give no pair


def compare(rewards: Tensor, samples: int, noise: float, rng: np.random.Generator) -> Tensor:
    """Pair the best and the worst response of each group: rows `[n, 2]`, chosen and rejected.

    rewards: `[P * samples]`, in groups of `samples`. A group with equal rewards gives no pair. The best is chosen with
    probability sigmoid((best - worst) / noise) (Bradley & Terry 1952); without noise, always.
    """
    groups = rewards.view(-1, samples)
    (best, i), (worst, j) = groups.max(1), groups.min(1)
    rows = torch.stack([i, j], 1) + samples * torch.arange(len(groups), device=rewards.device)[:, None]
    if noise:
        right = torch.sigmoid((best - worst).cpu().double() / noise).numpy()
        wrong = torch.from_numpy(rng.random(len(groups)) >= right).to(rows.device)
        rows = torch.where(wrong[:, None], rows.flip(1), rows)
    return rows[best > worst]


def find_pairs(run: Run, cfg: PreferenceConfig, held_out: bool = False) -> Batch:
    """Return the training pairs or the held-out pairs, from the task's file or from new comparisons.

    Without a file, the initial policy samples two responses to each of many prompts. The response with the higher
    reward is chosen; for training pairs, `cfg.noise` adds errors. UserError: there are no pairs, or hardly any.
    """
    if run.task.pairs is not None:
        return given_pairs(run, run.task.pairs(held_out), cfg, held_out)
    rng = np.random.default_rng([cfg.seed, 1 + held_out])
    generator = torch.Generator(run.device).manual_seed(int(rng.integers(2**62)))
    wanted, found, drawn = held_out_size(cfg) if held_out else cfg.pairs, [], 0
    at_once = FEW if run.pretrained else AT_ONCE
    tell = tell_progress(f"sampling {wanted} pairs of responses to {'test on' if held_out else 'learn from'}", wanted,
                         run.pretrained and not cfg.quiet)
    while (done := sum(len(b.texts) for b in found) // 2) < wanted:
        tell(done)
        if drawn >= PATIENCE * wanted:
            raise UserError(f"almost all of {drawn} pairs of responses to the task {run.task.name} have equal "
                            "rewards, so there are too few preference pairs; use another --model, or raise "
                            "--temperature")
        problems = problems_of(run.task, min(at_once, wanted), rng, held_out)
        batch = run.sample(problems, 2, generator=generator)
        found.append(batch.pick(compare(batch.rewards, 2, 0.0 if held_out else cfg.noise, rng).flatten()))
        drawn += len(problems)
    whole = join(found)
    whole.responses.logp.fill_(torch.nan)                                 # of the initial policy, not of the old one
    return whole.pick(torch.arange(2 * wanted, device=run.device))


class PairsChecksum:
    """Part of a checkpoint: a checksum of the pairs that a run read or sampled before its first update.

    A resumed run reads or samples them again. Loading raises UserError if the pairs differ. Otherwise the run would
    silently continue with other training data.
    """

    def __init__(self, *pairs: Batch):
        self.value = 0
        for batch in pairs:
            for x in (batch.prompts.ids, batch.responses.ids * batch.responses.mask.long()):
                self.value = zlib.crc32(x.cpu().numpy().tobytes(), self.value)

    def checksum(self) -> int:
        """Return the checksum."""
        return self.value

    def state_dict(self) -> dict[str, int]:
        """Return the checksum as a state."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Compare the checksum with that of the checkpoint."""
        if state["value"] != self.value:
            raise UserError("this run began with other preference pairs: its file of pairs, its reward, --workers, "
                            "--threads, the machine or the version of torch has changed; restore them, or train again "
                            "under another --exp-name")


def held_out_size(cfg: PreferenceConfig) -> int:
    """Largest number of pairs to test on."""
    return min(HELD_OUT_PAIRS, 4 * cfg.held_out)


def given_pairs(run: Run, pairs: Sequence[tuple[str, Problem, str, str]], cfg: PreferenceConfig,
                held_out: bool = False) -> Batch:
    """Turn pairs from a file into tokens. Responses are cut at the longest length of a response.

    Pairs whose responses are then equal are left out, and a message names them. held_out: True for pairs to test on;
    then at most `held_out_size` pairs, spread over the file, are used. UserError if no pair is left.
    """
    limit, kept, equal, said, long = run.max_tokens, [], [], [], 0
    to_score = isinstance(run, RewardRun)                                 # it adds an end token to what was cut
    room = limit if to_score else limit - 1
    if held_out:
        pairs = pairs[::max(1, -(-len(pairs) // held_out_size(cfg)))]
        said += run.task.left_out                                         # only here, so that it is printed once
    for where, problem, preferred, other in pairs:
        a, b = (run.tokenizer.encode(text) for text in (preferred, other))
        equal.append(where) if a[:limit] == b[:limit] else kept.append((problem, preferred, other))
        long += (len(a) > room) + (len(b) > room)
    if equal:
        said.append(left_out(equal, f"both responses are the same within {limit} tokens"))
    if long:
        said.append(f"{'held-out pairs: ' * held_out}{long} of {2 * len(pairs)} responses"
                    f"{'' if to_score else ', with their end tokens,'} are longer than {limit} tokens and are cut; "
                    "raise --max-tokens")
    for sentence in [] if cfg.quiet else said:
        print(sentence, flush=True)
    if not kept:
        raise UserError(f"no pair of {run.task.name} is left to {'test on' if held_out else 'learn from'}, because "
                        f"the two responses of each are the same within {limit} tokens; raise --max-tokens")
    problems, texts = [p for p, _, _ in kept], [text for _, a, b in kept for text in (a, b)]
    return run.demonstrated(problems, texts)


def rows_of(pairs: Tensor) -> Tensor:
    """Rows `[2 n]` of pairs `[n]`: both responses of each pair, the chosen one first."""
    return torch.stack([2 * pairs, 2 * pairs + 1], 1).flatten()


def shuffled(n: int, batch: int, update: int, seed: int) -> Tensor:
    """Indices of the pairs of one update, `[min(n, batch)]`, of `n` pairs. A pass uses each pair at most once:
    a remainder that does not fill a batch is left out, at random.

    The order depends only on the arguments, so a resumed run uses the same order.
    """
    size = min(n, batch)
    each = n // size                                                      # whole batches in a pass; the rest is skipped
    order = np.random.default_rng([seed, 7, update // each]).permutation(n)
    return torch.from_numpy(order[update % each * size:][:size])


def ranked_rightly(run: Run, pairs: Batch, before: Tensor) -> Tensor:
    """Accuracy of the policy as an implicit reward model, `[]`, on at most `RANKED` pairs, spread over all.

    A pair counts as correct if the log ratio to the initial policy is higher for the chosen than for the rejected
    response. before: log-probabilities `[2n, T]` under the initial policy.
    """
    n = len(pairs.texts) // 2
    rows = rows_of(torch.arange(0, n, max(1, -(-n // RANKED)), device=run.device))
    some = pairs.pick(rows)
    logp = logp_under(run.model, run.config, some)
    now = select(logp - before[rows], some.responses.mask).sum(1).view(-1, 2)
    return accuracy(now[:, 0] - now[:, 1])


def accuracy(margins: Tensor) -> Tensor:
    """Share of pairs whose margin is above 0, `[]`, from margins `[n]`: reward of the chosen minus the rejected one.

    A margin of 0 counts half. So a policy that equals its reference policy has an accuracy of 0.5: it cannot rank. TRL
    counts margins of 0 as wrong, and its `rewards/accuracies` starts at 0.
    """
    return (margins > 0).float().mean() + (margins == 0).float().mean() / 2


class RewardRun(Run):
    """Training run of a reward model; see `Run`. The policy only samples responses; it does not change."""

    results = Training.results

    def describe_subject(self) -> dict[str, Any]:
        return {**super().describe_subject(), "judges": True}

    def row(self) -> dict[str, float]:
        """Means over the updates of a row; the results on held-out pairs come from the log."""
        found = self.means.of_row()
        means = {name: found.get(name, math.nan) for name in self.own}
        self.best = {"pair_accuracy": self.logged["pair_accuracy"]}
        self.means.clear()
        self.clock.restart()
        return means
