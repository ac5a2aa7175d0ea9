"""The methods compared with small numbers computed by hand, and their use of a batch during training."""
import json
import math
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

import llm
from llm.algos import best_of_n, grpo, ppo, reinforce
from llm.policy.cache import Slots
from llm.policy.generate import Prompts, Responses
from llm.policy.load import load_model
from llm.policy.score import score
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from llm.rollout import Batch, join
from llm.run import Run
from llm.tasks import Problem
from llm.tasks import testbed as bed
from llm.tasks.strings import Reverse
from spinup.algos.vpg import policy_gradient
from spinup.core.fast.adam import FlatAdam
from spinup.core.kl import k1, kl_categorical
from spinup.core.masked import whiten
from spinup.core.returns import gae
from spinup.errors import UserError
from spinup.registry import algorithms, in_module
from spinup.runs.checkpoint import load_checkpoint

MODULES = {method: module for module in (reinforce, grpo, best_of_n) for method in in_module(module.__name__, "llm")}
LIMIT = 3                               # tokens of a response to the task below
TINY = {"task": "reverse:length=2,symbols=10", "layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True,
        "tensorboard": False, "threads": 1, "device": "cpu"}


def close(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), atol=1e-6, rtol=1e-5)


# The functions.

# Catches: a mean that includes the response's own reward; groups of every G-th row in place of adjacent rows.
def test_leave_one_out_subtracts_the_mean_of_the_other_rewards():
    rewards = torch.tensor([1.0, 0, 0, 2, 5, 5])
    close(reinforce.leave_one_out(rewards, 3), [1, -0.5, -0.5, -3, 1.5, 1.5])
    close(reinforce.leave_one_out(rewards, 2), [1, -1, -2, 2, 0, 0])


# Catches: the reward in the last column, or in every column; a KL penalty that is added, or that only one token has;
# masked steps that count.
def test_reward_to_go_is_the_reward_minus_the_kl_penalties_to_come():
    nan = math.nan
    kl = torch.tensor([[0.1, 0.2, 0.3, nan], [0.4, nan, 0.6, 0.8], [nan] * 4])
    mask = torch.tensor([[1.0, 1, 1, 0], [1, 0, 1, 1], [0, 0, 0, 0]])
    found = reinforce.reward_to_go(torch.tensor([2.0, 3, 4]), kl, 0.5, mask)
    close(found, [[1.7, 1.75, 1.85, 0], [2.1, 0, 2.3, 2.6], [0, 0, 0, 0]])


# Each of the three tokens of the failed response counts, so the mean over tokens is 1/4, not 1/2. Catches: rewards that
# are whitened before they are assigned to tokens; the standard deviation over rows.
def test_reinforce_pp_whitens_over_tokens():
    mask = torch.tensor([[1.0, 0, 0], [1, 1, 1]])
    returns = reinforce.reward_to_go(torch.tensor([1.0, 0]), torch.zeros(2, 3), 0.0, mask)
    close(whiten(returns, mask), [[3**0.5, 0, 0], [-(3**-0.5)] * 3])


# Catches: `correction=1`; the standard deviation over all groups; a division for the advantage "mean".
def test_group_advantage_is_centred_and_divided_by_the_group_std():
    rewards = torch.tensor([1.0, 0, 0, 1, 3, 1, 1, 1, 7, 7, 7, 7])
    close(grpo.standardised(rewards[:8].view(-1, 4), eps=0).flatten(), [1, -1, -1, 1, 3**0.5, *[-(3**-0.5)] * 3])
    close(grpo.group_advantage(rewards, 4)[8:], [0, 0, 0, 0])
    close(grpo.group_advantage(rewards, 4, "mean"), [0.5, -0.5, -0.5, 0.5, 1.5, -0.5, -0.5, -0.5, 0, 0, 0, 0])
    close(grpo.group_advantage(rewards[:2], 2), [0.5 / 0.5001, -0.5 / 0.5001])


# Catches: `>=` in place of `>`; rewards of other groups.
def test_varied_marks_groups_with_unequal_rewards():
    groups = grpo.varied(torch.tensor([1.0, 1, 0, 1, 0.7, 0.7, 0, -1]), 2)
    assert groups.tolist() == [False, True, False, True]


# Catches: a penalty that begins at the limit; a penalty below -1; a wrong sign; a division by a buffer of 0.
def test_overlong_penalty_falls_linearly_to_minus_1_at_the_limit():
    lengths = torch.tensor([1, 6, 7, 8, 9, 10, 12])
    close(grpo.overlong_penalty(lengths, 10, 4), [0, 0, -0.25, -0.5, -0.75, -1, -1])
    close(grpo.overlong_penalty(lengths, 10, 0), [0.0] * 7)


# Catches: the next column even if it is masked; the value of the last step as its own next value; the entry of a masked
# step.
def test_following_is_the_value_of_the_next_step_in_the_mask():
    nan = math.nan
    x = torch.tensor([[1.0, 2, 3, 4, 5], [1, nan, nan, 4, nan], [nan, 2, nan, 4, 5], [nan] * 5, [*[nan] * 4, 9]])
    mask = torch.tensor([[1.0] * 5, [1, 0, 0, 1, 0], [0, 1, 0, 1, 1], [0] * 5, [0, 0, 0, 0, 1]])
    found = ppo.following(x, mask)
    close(found[0], [2.0, 3, 4, 5, 0])
    close(found[1][[0, 3]], [4.0, 0])
    close(found[2][[1, 3, 4]], [4.0, 5, 0])
    assert not found[3].any() and found[4, 4] == 0
    close(ppo.following(torch.tensor([[7.0]]), torch.ones(1, 1)), [[0.0]])


# Catches: a missing lower bound, so that lambda is 0 for a length of 20 and an alpha of .05; the lambda of another row.
def test_length_adaptive_lambda_is_at_least_0_9():
    lengths = torch.tensor([1, 10, 20, 40, 50, 100, 1000])
    close(ppo.length_adaptive(lengths, 0.05), [[0.9], [0.9], [0.9], [0.9], [0.9], [0.9], [0.98]])
    close(ppo.length_adaptive(lengths, 1.0), [[0.9], [0.9], [0.95], [0.975], [0.98], [0.99], [0.999]])


# Catches: a KL coefficient that falls if the KL divergence is above the target; an error that is not clipped; a change
# that is added in place of multiplied.
def test_kl_coefficient_changes_by_a_tenth_of_the_clipped_relative_error():
    coef = torch.tensor(0.5)
    for kl, factor in ((6.0, 1.0), (6.6, 1.01), (5.4, 0.99), (7.2, 1.02), (60.0, 1.02), (3.0, 0.98), (-1.0, 0.98)):
        close(ppo.adapted(coef, torch.tensor(kl), 6.0), 0.5 * factor)
    close(ppo.adapted(torch.tensor(0.0), torch.tensor(60.0), 6.0), 0.0)


# Catches: the reward in the last column, or in every column; a KL penalty for tokens of a tool; a KL penalty that is
# added.
def test_token_rewards_are_kl_penalties_and_the_reward_at_the_last_token():
    nan = math.nan
    kl = torch.tensor([[0.1, 0.2, 0.3, nan], [0.4, nan, 0.6, nan], [nan] * 4, [nan, nan, nan, -0.8]])
    mask = torch.tensor([[1.0, 1, 1, 0], [1, 0, 1, 0], [0] * 4, [0, 0, 0, 1]])
    found, last = reinforce.token_rewards(torch.tensor([2.0, 3, 4, 5]), kl, 0.5, mask)
    close(found, [[-0.05, -0.1, 1.85, 0], [-0.2, 0, 2.7, 0], [0] * 4, [0, 0, 0, 5.4]])
    assert last.nonzero().tolist() == [[0, 2], [1, 2], [3, 3]]
    close(found.sum(1), torch.tensor([2 - 0.3, 3 - 0.5, 0, 5 + 0.4]))


def holes(seed=0, B=6, T=9):
    """Rewards, values and a mask with gaps. They are NaN where the mask is 0. Every row has steps in the mask."""
    g = torch.Generator().manual_seed(seed)
    mask = (torch.rand(B, T, generator=g) < 0.6).double()
    mask[:, 2] = 1
    x, y = (torch.where(mask > 0, torch.randn(B, T, generator=g).double(), math.nan) for _ in range(2))
    return x, y, mask


def advantages(rewards, values, mask, lam):
    last = reinforce.token_rewards(torch.zeros(len(mask)), torch.zeros_like(mask), 0.0, mask)[1]
    kept = torch.where(mask > 0, values, 0.0)
    return gae(rewards, kept, ppo.following(values, mask), last, torch.zeros_like(last), gamma=1.0, lam=lam, mask=mask)


# The tokens of a tool are not time steps. Catches: the value of a masked step as the next value; a factor of lambda for
# each masked step.
def test_advantages_skip_the_tokens_of_a_tool():
    rewards, values, mask = holes()
    lam = torch.linspace(0.2, 1, 6).double()[:, None]
    adv, targets = advantages(rewards, values, mask, lam)
    for b in range(6):
        own = mask[b] > 0
        compact = rewards[b:b + 1, own], values[b:b + 1, own], torch.ones(1, int(own.sum())).double()
        for found, expected in zip((adv, targets), advantages(*compact, float(lam[b])), strict=True):
            close(found[b, own], expected[0])
            assert not found[b, ~own].any()


# Catches: advantages or targets that differ from the returns-to-go although all values are 0; a discount below 1.
def test_advantages_with_values_of_0_and_lambda_1_are_returns_to_go():
    rewards, _, mask = holes()
    adv, targets = advantages(rewards, torch.zeros_like(rewards), mask, 1.0)
    own = torch.where(mask > 0, rewards, 0.0)
    expected = own.flip(1).cumsum(1).flip(1) * mask
    close(adv, expected)
    close(targets, expected)


# Catches: the last of several equal rewards; a reward above `keep` in place of at least `keep`; the best of the whole
# batch.
def test_winners_are_the_first_best_rows_of_groups_that_reach_keep():
    rewards = torch.tensor([0.0, 1, 1, 0.5, 0.2, 0.9, 3, 2, 3])
    assert best_of_n.winners(rewards, 3, 1.0).tolist() == [1, 6]
    assert best_of_n.winners(rewards, 3, 0.9).tolist() == [1, 5, 6]
    assert best_of_n.winners(rewards, 3, 4.0).tolist() == []


# Catches: log n without the term (n - 1) / n, which is also an upper bound, but never reached.
def test_kl_of_best_of_n_is_close_to_its_upper_bound():
    testbed = bed.Testbed()
    log_p = testbed.log_probs(bed.TabularPolicy(scale=0.3)).detach()
    order = testbed.rewards.argsort()
    below = torch.cat([torch.zeros(1).double(), log_p[order].exp().cumsum(0)])               # P(a worse response)
    assert best_of_n.kl_of_best(1) == 0
    for n in 2, 4, 8:
        best = (below[1:] ** n - below[:-1] ** n).clamp(min=1e-300).log()                    # of the best of n
        reached = float(bed.kl(best, log_p[order]))
        assert 0.8 * best_of_n.kl_of_best(n) < reached < best_of_n.kl_of_best(n)


def batch_of(model, prompts, samples, seed):
    g, (P, T) = torch.Generator().manual_seed(seed), (len(prompts), 4)
    of = torch.arange(P).repeat_interleave(samples)
    ids, lengths = torch.randint(9, (P * samples, T), generator=g), torch.randint(1, 5, (P * samples,), generator=g)
    logp = score(model, Prompts.of(prompts), of, ids)[0].detach()
    responses = Responses(ids, logp, (torch.arange(T) < lengths[:, None]).float(), lengths, lengths < 4, of)
    return Batch([Problem(str(p)) for p in prompts], Prompts.of(prompts), responses, [str(row.tolist()) for row in ids],
                 torch.rand(P * samples, generator=g))


# Catches: `of` without the offset of earlier prompts; prompts that are padded in front; a field in another order.
@torch.no_grad()
def test_join_keeps_all_fields_of_the_batches():
    torch.manual_seed(0)
    model = Transformer(Shape(9, 20, 1, 16, 2, 2, 8, 24))
    batches = [batch_of(model, [[1], [2, 3]], 2, 0), batch_of(model, [[4, 5, 6, 7]], 2, 1),
               batch_of(model, [[1, 8], [2], [3]], 2, 2)]
    short = batches[1].responses                              # one batch has fewer columns than the others
    batches[1].responses = replace(short, lengths=short.lengths.clamp(max=2), mask=short.mask[:, :2]).trimmed()
    joined = join(batches)
    r = joined.responses
    assert r.of.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5] and batches[1].responses.ids.shape[1] <= 2
    logp = score(model, joined.prompts, r.of, r.ids)[0]
    rows = [b.responses[torch.tensor([i])] for b in batches for i in range(len(b.texts))]
    for i, row in enumerate(rows):
        T = row.ids.shape[1]
        torch.testing.assert_close(logp[i, :T], row.logp[0])
        assert torch.equal(r.ids[i, :T], row.ids[0]) and torch.equal(r.logp[i, :T], row.logp[0])
        assert torch.equal(r.mask[i, :T], row.mask[0]) and not r.mask[i, T:].any()
    for name in "lengths", "finished":
        assert torch.equal(getattr(r, name), torch.cat([getattr(b.responses, name) for b in batches]))
    assert torch.equal(joined.rewards, torch.cat([b.rewards for b in batches]))
    assert joined.texts == [text for b in batches for text in b.texts]
    assert [p.prompt for p in joined.problems] == [p.prompt for b in batches for p in b.problems]
    assert join(batches[:1]) is batches[0]


# Training runs.

@dataclass
class Watched:
    """A training run: its result, its sampled batches, and for each call of `Run.backward` the batch, the rows, the
    advantages and the denominator."""

    result: Any = None
    drawn: list = field(default_factory=list)
    updates: list = field(default_factory=list)

    def adv(self, update):
        return self.updates[update][2][:, 0]


@pytest.fixture
def watch(beginner, tmp_path, monkeypatch):
    """Train with given rewards, as in `watch("grpo", lambda draw: [1, 0, 1, 0])`.

    script: function from the number of a sampled batch to its rewards. likeliest: rewards of the greedy responses.
    interrupt: number of the call of `Run.backward` in which Ctrl-C is pressed.
    """
    sample, backward = Run.sample, Run.backward

    def watch(method, script=None, likeliest=None, interrupt=None, resume=None, **given):
        seen = Watched()

        def scripted(run, problems, samples=1, greedy=False, generator=None):
            batch = sample(run, problems, samples, greedy, generator)
            if greedy and generator is None:                              # not those of an evaluation
                batch.rewards = torch.tensor(likeliest, dtype=torch.float32)
            elif samples > 1:
                if script:
                    batch.rewards = torch.tensor(script(len(seen.drawn)), dtype=torch.float32)
                seen.drawn.append(batch)
            return batch

        def spy(run, batch, rows, loss, *per_row, **whole):
            seen.updates.append((batch, rows, per_row[0].clone() if per_row else None, whole["denominator"]))
            if len(seen.updates) == interrupt:
                run.interruption.received = 2
            return backward(run, batch, rows, loss, *per_row, **whole)

        monkeypatch.setattr(Run, "sample", scripted)
        monkeypatch.setattr(Run, "backward", spy)
        module = MODULES[method]
        settings = TINY | {"model": beginner, "prompts": 2, "samples": 4} | algorithms("llm")[method].settings | given
        seen.result = module.train(module.Config(**settings, algorithm=f"llm {method}", log_dir=str(tmp_path)), resume)
        return seen
    return watch


# Catches: a baseline of 0 for the first batch; a baseline that includes the batch itself, after the first; `memory` as
# the weight of the new batch.
def test_reinforce_baseline_is_the_running_mean_of_earlier_batches(watch):
    rewards = [[1, 0, 1, 0, 1, 0, 1, 0], [1, 1, 1, 0, 1, 1, 1, 0], [0, 0, 0, 1, 0, 0, 0, 1]]
    seen = watch("reinforce", lambda draw: rewards[draw], memory=0.6, total_steps=3)
    for update, mean in enumerate([0.5, 0.5, 0.6 * 0.5 + 0.4 * 0.75]):
        close(seen.adv(update), torch.tensor(rewards[update]) - mean)


# Catches: `expected` that is missing in `keep`, so that the first batch after resuming is its own baseline.
def test_resumed_run_keeps_the_running_mean(watch):
    settings = {"total_steps": 4, "memory": 0.6, "lr": 0.01}
    rewards = [[1, 0, 1, 0, 1, 0, 1, 0], [1, 1, 1, 0, 1, 1, 1, 0], [0, 0, 0, 1, 0, 0, 0, 1], [2, 1, 0, 0, 0, 0, 0, 1]]
    whole = watch("reinforce", lambda draw: rewards[draw], **settings)
    first = watch("reinforce", lambda draw: rewards[draw], interrupt=2, **settings)
    assert first.result.status == "interrupted" and len(first.updates) == 2
    kept = load_checkpoint(first.result.directory / "checkpoint.pt")["parts"]["expected"]["mean"]
    close(kept, [0.6, 1.0])
    second = watch("reinforce", lambda draw: rewards[2 + draw], resume=first.result.directory, **settings)
    close(second.adv(0), torch.tensor(rewards[2]) - 0.6)
    for found, expected in zip(second.result.policy.model.parameters(), whole.result.policy.model.parameters(),
                               strict=True):
        assert torch.equal(found, expected)


# Catches: a sampled response in place of the greedy response; the greedy reward of another prompt.
def test_remax_baseline_is_the_reward_of_the_greedy_response(watch):
    rewards = [1, 0, 2, 0, 1, 0, 2, 0]
    seen = watch("remax", lambda draw: rewards, likeliest=[0.25, 0.75], total_steps=2)
    for update in 0, 1:
        close(seen.adv(update), torch.tensor(rewards) - torch.tensor([0.25] * 4 + [0.75] * 4))


# Catches: a baseline of all responses of the batch.
def test_rloo_baseline_is_the_mean_of_the_other_responses(watch):
    seen = watch("rloo", lambda draw: [1, 0, 0, 0, 5, 5, 5, 2], total_steps=1)
    close(seen.adv(0), [1, *[-1 / 3] * 3, 1, 1, 1, -3])


# The return of a token has its own KL penalty and those of all later tokens. Catches: a reference policy other than the
# initial policy; one KL penalty per response; missing whitening, or whitening per response.
def test_reinforce_pp_subtracts_kl_penalties_and_whitens(watch, beginner):
    rewards, coef = [1, 0, 2, 0, 1, 0, 2, 0], 0.5
    seen = watch("reinforce_pp", lambda draw: rewards, kl_coef=coef, total_steps=3, lr=0.05, warmup=0)
    batch, rows, adv, denominator = seen.updates[2]
    r = batch.responses
    before = score(load_model(beginner).model, batch.prompts, r.of, r.ids)[0].detach()
    returns = {(b, t): rewards[b] - coef * sum(float(r.logp[b, s] - before[b, s]) for s in range(t, n))
               for b, n in enumerate(r.lengths.tolist()) for t in range(n)}
    mean = sum(returns.values()) / len(returns)
    std = (sum((x - mean) ** 2 for x in returns.values()) / len(returns)) ** 0.5
    expected = torch.zeros_like(adv)
    for place, x in returns.items():
        expected[place] = (x - mean) / std
    assert (r.logp - before)[r.mask > 0].abs().mean() > 0.1 and denominator == len(returns)
    torch.testing.assert_close(adv, expected, atol=1e-4, rtol=1e-4)


# Catches: the scale of the other method; a denominator of tokens in place of rows; a denominator of only the rows that
# are used.
@pytest.mark.parametrize(("method", "scale", "rows"), [("grpo", 0.5001, 8), ("dr_grpo", 1.0, 8)])
def test_grpo_divides_by_the_standard_deviation_and_dr_grpo_does_not(method, scale, rows, watch):
    seen = watch(method, lambda draw: [1, 0, 1, 0, 1, 1, 1, 1], total_steps=1)
    (batch, used, adv, denominator), = seen.updates
    assert sorted(used.tolist()) == [0, 1, 2, 3] and denominator == rows and len(seen.drawn) == 1
    close(adv[:4, 0], torch.tensor([0.5, -0.5, 0.5, -0.5]) / scale)


GOOD, BAD, MIXED = [1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 1]


# A bug of many libraries: they sample forever if a task is always or never solved. Catches: a missing limit of the
# rollouts; an update without rows, which divides by 0.
@pytest.mark.parametrize("rewards", [GOOD, BAD])
def test_dapo_skips_the_update_if_all_groups_have_zero_variance(rewards, watch):
    seen = watch("dapo", lambda draw: rewards * 2, total_steps=3, max_rollouts=4, overlong=0)
    assert seen.result.status == "finished" and len(seen.drawn) == 12 and not seen.updates
    assert seen.result.progress["reward"] == [rewards[0]] * 3


# Catches: groups with zero variance among the rows; rollouts that continue after there are enough groups; a logged
# reward of only the rows that are used; a denominator that includes the tokens of skipped groups.
def test_dapo_samples_until_enough_groups_vary(watch):
    draws = [GOOD + MIXED, MIXED + GOOD, GOOD + MIXED, MIXED + MIXED, MIXED + MIXED]
    seen = watch("dapo", lambda draw: draws[draw], total_steps=3, max_rollouts=3, overlong=0)
    assert [len(update[0].rewards) for update in seen.updates] == [16, 16, 8]
    for (batch, rows, adv, denominator), used in zip(seen.updates, [[1, 2], [1, 2], [0, 1]], strict=True):
        assert sorted(rows.tolist()) == [4 * group + i for group in used for i in range(4)]
        assert denominator == batch.responses.mask[rows].sum()
        close(adv[rows].square(), torch.full((8, 1), (0.5 / 0.5001) ** 2))
    assert seen.result.progress["reward"] == [0.75, 0.625, 0.5]
    assert seen.result.progress["zero_variance"] == [0.5, 0.25, 0.0]


# Catches: more rows than requested, which would make the steps of easy tasks smaller.
def test_dapo_uses_at_most_the_requested_number_of_groups(watch):
    draws = [BAD + MIXED, MIXED + MIXED]
    seen = watch("dapo", lambda draw: draws[draw], total_steps=1, overlong=0)
    assert sorted(seen.updates[0][1].tolist()) == list(range(4, 12))


# Catches: the requested number of minibatches in the denominator. If there are fewer, their steps would be larger.
def test_dapo_makes_no_more_minibatches_than_there_are_responses(watch):
    seen = watch("dapo", lambda draw: BAD + MIXED, total_steps=1, overlong=0, max_rollouts=2, minibatches=8)
    assert len(seen.updates) == 8 and all(len(update[1]) == 1 for update in seen.updates)
    seen = watch("dapo", lambda draw: [BAD + BAD, BAD + MIXED][draw], total_steps=1, overlong=0, max_rollouts=2,
                 minibatches=8)
    (batch, *_), rows = seen.updates[0], torch.cat([update[1] for update in seen.updates])
    assert len(seen.updates) == len(rows) == 4
    assert all(update[3] == batch.responses.mask[rows].sum() / 4 for update in seen.updates)


# Catches: a penalty within the task's own limit, which a correct answer needs; a missing penalty; a penalty in the
# logged reward.
def test_dapo_penalises_responses_beyond_the_limit_of_the_task(watch):
    seen = watch("dapo", lambda draw: GOOD + GOOD, total_steps=1, overlong=4, max_rollouts=1)
    (batch, _, adv, _), = seen.updates
    lengths = batch.responses.lengths
    assert lengths.max() == LIMIT + 4 and lengths.min() < LIMIT           # the buffer comes after the task's limit
    rewards = torch.tensor([1 - max(0, n - LIMIT) / 4 for n in lengths.tolist()])
    close(adv[:, 0], grpo.group_advantage(rewards, 4))
    assert seen.result.progress["reward"] == [1.0]


# Catches: rewards of the verifier's own type, such as bool, which have no mean.
@pytest.mark.parametrize("answer", [True, 1])
def test_verifier_can_return_bools_or_integers(answer, watch):
    task = Reverse(2, 10)
    task.reward = lambda problem, response: answer if len(response) > 2 else 0 * answer
    seen = watch("rloo", task=task, total_steps=1)
    assert seen.drawn[0].rewards.dtype == torch.float32 and set(seen.drawn[0].rewards.tolist()) <= {0.0, 1.0}


# Catches: rows other than the best; a denominator with the tokens of all responses; in the control experiment, a
# response to a prompt without a winner, or a number of responses other than the number of winners.
@pytest.mark.parametrize("select", ["best", "random"])
def test_best_of_n_imitates_the_best_or_random_responses(select, watch):
    rewards = [0, 2, 0, 1, 0.5, 0.9, 0, 0, 0, 0, 0, 1]
    seen = watch("best_of_n", lambda draw: rewards, total_steps=4, prompts=3, select=select)
    chosen = [sorted(rows.tolist()) for _, rows, *_ in seen.updates]
    if select == "best":
        assert chosen == [[1, 11]] * 4
    else:
        assert all(a // 4 == 0 and b // 4 == 2 for a, b in chosen) and len({a for a, _ in chosen}) > 1
    assert all(denominator == batch.responses.mask[rows].sum() for batch, rows, _, denominator in seen.updates)


# PPO: training runs.

class Stop(Exception):
    """Ends a training at a call of `Run.backward`."""


@dataclass
class Step:
    """A call of `Run.backward`: its arguments, and the weights of policy and value function before it."""

    run: Run
    batch: Batch
    rows: torch.Tensor
    loss: Any
    per_row: list
    whole: dict
    policy: torch.Tensor
    critic: torch.Tensor


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def worth(prompt, response):
    return len(response) / 4 + (response[:1] < "f")


@pytest.fixture
def train_ppo(beginner, tmp_path, monkeypatch):
    """Train with PPO, as in `train_ppo("vapo", total_steps=3)`. Return its steps, its parts, and its initial weights.

    stop: number of the step before which training ends at once. interrupt: number of the step in which Ctrl-C is
    pressed.
    """
    keep, backward = Run.keep, Run.backward

    def train(method="ppo", stop=None, interrupt=None, resume=None, **given):
        seen = SimpleNamespace(steps=[], result=None)

        def kept(run, **parts):
            seen.parts, seen.began = parts, (weights(parts["model"]), weights(parts["critic"].body))
            keep(run, **parts)

        def spy(run, batch, rows, loss, *per_row, **whole):
            now = weights(run.model), weights(seen.parts["critic"])
            seen.steps.append(Step(run, batch, rows, loss, list(per_row), whole, *now))
            if len(seen.steps) == stop:
                raise Stop
            if len(seen.steps) == interrupt:
                run.interruption.received = 2
            return backward(run, batch, rows, loss, *per_row, **whole)

        monkeypatch.setattr(Run, "keep", kept)
        monkeypatch.setattr(Run, "backward", spy)
        settings = TINY | {"reward": worth, "model": beginner, "prompts": 12, "minibatches": 1, "warmup": 0, "lr": 0.01,
                           "value_lr": 0.01, "log_dir": str(tmp_path)} | algorithms("llm")[method].settings | given
        with suppress(Stop):
            seen.result = ppo.train(ppo.Config(**settings, algorithm=f"llm {method}"), resume)
        return seen
    return train


def with_tools():
    """A task whose tool appends bb after the policy writes a, c, d or e. Some responses have a reward of 1 or more."""
    task = Reverse(2, 10)
    task.tool, task.max_tokens = (lambda text: "bb" if text[-1:] in tuple("acde") else None), 8
    task.reward = lambda problem, response: len(response) / 10 + 0.6 * (response[:1] < "f")
    return task


def tokens_of(step, critic):
    """(response, token, log pi, log pi_ref, V) of each token that the policy wrote, one response at a time."""
    r, prompts = step.batch.responses, step.batch.prompts
    for b in range(len(r.ids)):
        n, prompt = int(r.lengths[b]), prompts.ids[r.of[b], :prompts.lengths[r.of[b]]]
        row = torch.cat([prompt, r.ids[b, :n]])[None]
        log_pi, log_ref = ((m(row)[0, len(prompt) - 1:-1] / step.run.config.temperature).log_softmax(-1)
                           for m in (step.run.model, step.run.reference))
        V = critic.numbers(critic.body.hidden(row, Slots()))[0, len(prompt) - 1:-1]
        for t in range(n):
            if r.mask[b, t]:
                yield b, t, log_pi[t, r.ids[b, t]], log_ref[t, r.ids[b, t]], V[t]


@torch.no_grad()
def estimates(step, critic, lams):
    """{(response, token): (advantage, target)} by the equations of the papers, from the last token to the first."""
    config, found, following = step.run.config, {}, {}
    lengths = step.batch.responses.mask.sum(1)
    for b, t, logp, before, V in reversed(list(tokens_of(step, critic))):
        earned = -config.kl_coef * (logp - before)
        if b not in following:                                            # the last token
            earned = earned + step.batch.rewards[b] - config.end_penalty * (not step.batch.responses.finished[b])
        next_V, traces = following.get(b, (0.0, (0.0, 0.0)))
        delta = earned + next_V - V
        traces = [delta + lam * trace for lam, trace in zip(lams(float(lengths[b])), traces, strict=True)]
        found[b, t], following[b] = (float(traces[0]), float(traces[1] + V)), (V, traces)
    mean = sum(adv for adv, _ in found.values()) / len(found)
    std = (sum((adv - mean) ** 2 for adv, _ in found.values()) / len(found)) ** 0.5
    return {place: ((adv - mean) / std, target) for place, (adv, target) in found.items()}


OWN = {"ppo": {"lam": 0.9, "lam_value": 0.7, "clip_value": 0.02},
       "vapo": {"alpha": 4.0, "lam": 1.0, "value_warmup": 1, "prompts": 12, "samples": 1}}
LAMS = {"ppo": lambda n: (0.9, 0.7), "vapo": lambda n: (max(0.9, 1 - 1 / (4 * n)), 1.0)}


# Catches: a reward on padding; V of the state after a token; a KL penalty with a gradient or at another temperature;
# old log-probabilities or values that are computed again after a step; minibatches that are whitened separately;
# micro-batches with separate denominators; the two lambdas exchanged; `clip_high` in place of `clip_low`; imitation of
# failed responses; a weight of imitation that depends on the number of imitated tokens; a value error that is not
# halved.
@pytest.mark.parametrize("method", LAMS)
def test_ppo_update_follows_its_equations(method, train_ppo):
    seen = train_ppo(method, total_steps=4, minibatches=2, stop=5, temperature=0.7, task=with_tools(), reward="",
                     end_penalty=0.6, kl_coef=0.3, **OWN[method])
    step, critic, g = seen.steps[-1], seen.parts["critic"], torch.Generator().manual_seed(0)
    config, batch, r = step.run.config, step.batch, step.batch.responses
    inside = torch.arange(r.ids.shape[1]) < r.lengths[:, None]
    assert (inside & (r.mask == 0)).any() and 0 < r.finished.sum() < 12 and 0 < (batch.rewards >= 1).sum() < 12
    expected = estimates(step, critic, LAMS[method])
    old = {(b, t): V.item() for b, t, _, _, V in tokens_of(step, critic)}
    adv, targets, before, right = step.per_row
    for (b, t), (a, target) in expected.items():
        assert (float(adv[b, t]), float(targets[b, t])) == pytest.approx((a, target), abs=2e-5)
        assert float(before[b, t]) == pytest.approx(old[b, t], abs=1e-5)
    assert torch.equal(adv != 0, r.mask > 0) and before[r.mask > 0].std() > 0.01 and step.whole["policy_learns"]

    with torch.no_grad():                                                 # other weights, so that ratios differ from 1
        for p in (*step.run.model.parameters(), *critic.parameters()):
            p.add_(0.03 * torch.randn(p.shape, generator=g))
    everything, rows = [*step.run.model.parameters(), *critic.parameters()], set(step.rows.tolist())
    owned = [b for b, _ in expected]
    share = len(owned) / sum(float(batch.rewards[b]) >= 1 for b in owned)
    total, count, clipped = 0.0, 0, set()
    for b, t, logp, _, V in tokens_of(step, critic):
        if b in rows:
            (a, target), ratio = expected[b, t], (logp - r.logp[b, t]).exp()
            near = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
            clipped.add(bool(near * a < ratio * a))
            error = (V - target) ** 2
            if config.clip_value:
                bounded = old[b, t] + (V - old[b, t]).clamp(-config.clip_value, config.clip_value)
                error = torch.maximum(error, (bounded - target) ** 2)
            imitated = config.nll_coef * share * logp * (float(batch.rewards[b]) >= 1)
            total, count = total - torch.min(ratio * a, near * a) - imitated + error / 2, count + 1
    assert clipped == {True, False} and len(rows) == 6
    loss = total / count
    slopes = torch.cat([x.flatten() for x in torch.autograd.grad(loss, everything)])

    def found(micro_batch=0, **changes):
        step.run.config.micro_batch = micro_batch
        for p in everything:
            p.grad.zero_()
        call = replace(step, **changes)
        stats = Run.backward(call.run, call.batch, call.rows, call.loss, *call.per_row, **call.whole)
        return torch.cat([p.grad.flatten() for p in everything]), stats["loss"]

    beyond = torch.arange(r.ids.shape[1] + 3) >= r.lengths[:, None]
    longer = {name: pad(getattr(r, name), (0, 3)) for name in ("ids", "logp", "mask")}
    longer["ids"] = torch.where(beyond, torch.randint(12, beyond.shape, generator=g), longer["ids"])
    longer["logp"] = torch.where(beyond, math.nan, longer["logp"])
    wide = replace(batch, responses=replace(r, **longer))
    junk = (math.nan, 5.0, -5.0)                                          # in adv, targets and old values
    wider = [torch.where(beyond, x, pad(y, (0, 3))) for x, y in zip(junk, step.per_row, strict=False)] + [right]
    for result in found(), found(4), found(batch=wide, per_row=wider), found(rows=step.rows.flip(0)):
        torch.testing.assert_close(result[0], slopes, atol=1e-5, rtol=0)
        close(result[1], loss.item())
    step.whole["policy_learns"] = False
    alone, own = found()[0], sum(p.numel() for p in step.run.model.parameters())
    assert not alone[:own].any() and slopes[own:].norm() > 0.01           # only the value function learns
    torch.testing.assert_close(alone[own:], slopes[own:], atol=1e-5, rtol=0)


# Catches: a head with random weights; a body that is not trained; first advantages that are noise.
def test_value_function_starts_as_the_policy_with_values_of_0(train_ppo, beginner):
    seen = train_ppo(total_steps=2)
    policy, body = seen.began
    assert torch.equal(policy, body) and torch.equal(policy, weights(load_model(beginner).model))
    assert not seen.steps[0].per_row[2].any() and seen.steps[1].per_row[2].any()
    assert seen.result.progress["explained_variance"][0] == 0
    assert torch.equal(seen.steps[0].whole["prompts"].ids, seen.steps[0].batch.prompts.ids)


@pytest.fixture(scope="module")
def judge(beginner, tmp_path_factory):
    """The folder of a small reward model for the task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llm.preferences.HELD_OUT_PAIRS", 8)
        result = llm.reward_model(**TINY, reward=worth, model=beginner, preset="none", total_steps=3, pairs=16, batch=8,
                                  calibration=64, log_dir=str(tmp_path_factory.mktemp("judge")))
    return str(result.directory)


# Catches: the body of the policy, although the reward model has already learned the reward; the reward model's own
# body, so that training would change the rewards; its head; rewards of the task's own verifier.
def test_value_function_starts_as_a_copy_of_the_reward_model(train_ppo, judge):
    truth = llm.load(judge)
    seen = train_ppo(total_steps=2, reward=truth)
    policy, body = seen.began
    assert torch.equal(body, weights(truth.model.body)) and not torch.equal(body, policy)
    assert not seen.steps[0].per_row[2].any()                             # but its values are 0 at first
    assert torch.equal(weights(llm.load(judge).model), weights(truth.model))
    batch = seen.steps[1].batch
    said = truth.judge([p.prompt for p in batch.problems], batch.texts)
    assert batch.rewards.tolist() == pytest.approx(said, abs=1e-5)
    assert seen.result.measure == "held_out_reward" and "held_out_gold" in seen.result.progress
    assert torch.equal(train_ppo(total_steps=1, reward=judge).began[1], body)                # the same from its folder


# Catches: a policy with a gradient and a learning rate from the first update on; a policy that never learns; a value
# function that does not learn at first either.
def test_vapo_trains_only_the_value_function_at_first(train_ppo):
    seen = train_ppo("vapo", total_steps=4, value_warmup=2, minibatches=2)
    start = seen.began[0]
    assert [torch.equal(step.policy, start) for step in seen.steps] == [True] * 5 + [False] * 3
    assert [step.whole["policy_learns"] for step in seen.steps] == [False] * 4 + [True] * 4
    for one, other in pairwise(seen.steps):
        assert not torch.equal(one.critic, other.critic)
    assert seen.result.progress["learning_rate"][:2] == [0, 0] < seen.result.progress["learning_rate"][2:]


# Catches: rows that are left out or repeated; the same order in all epochs; a missing last minibatch.
def test_ppo_uses_every_row_once_per_epoch(train_ppo):
    seen = train_ppo(total_steps=1, epochs=2, minibatches=5, samples=2, prompts=6)
    order = [row for step in seen.steps for row in step.rows.tolist()]
    assert [len(step.rows) for step in seen.steps] == [3, 3, 2, 2, 2] * 2
    assert sorted(order[:12]) == sorted(order[12:]) == list(range(12)) and order[:12] != order[12:]


# Catches: a penalty for finished responses; a penalty in the logged reward.
def test_end_penalty_applies_only_to_responses_that_are_cut_off(train_ppo, monkeypatch):
    scores, token_rewards = [], ppo.token_rewards

    def spy(rewards, kl, coef, mask):
        scores.append(rewards)
        return token_rewards(rewards, kl, coef, mask)

    monkeypatch.setattr(ppo, "token_rewards", spy)
    seen = train_ppo(total_steps=1, end_penalty=0.75)
    batch = seen.steps[0].batch
    finished = batch.responses.finished
    assert 0 < finished.sum() < 12
    close(scores[0], batch.rewards - torch.where(finished, 0.0, 0.75))
    assert seen.result.progress["reward"] == [pytest.approx(float(batch.rewards.mean()))]


# At first the KL divergence is 0, and the KL coefficient falls. Later it rises, while the KL divergence is above its
# target.
# Catches: an adapted KL coefficient that is not used, or that is missing in the checkpoint; a KL divergence per token;
# the KL coefficient of the next update.
def test_kl_coefficient_follows_the_kl_divergence(train_ppo, monkeypatch):
    settings, priced, told = {"total_steps": 5, "kl_coef": 0.1, "kl_target": 0.05, "lr": 0.03, "prompts": 32}, [], []
    token_rewards, adapted = ppo.token_rewards, ppo.adapted

    def spy(rewards, kl, coef, mask):
        priced.append((float(coef), float(kl.sum(1).mean())))
        return token_rewards(rewards, kl, coef, mask)

    def listen(coef, kl, target):
        told.append(float(kl))
        return adapted(coef, kl, target)

    monkeypatch.setattr(ppo, "token_rewards", spy)
    monkeypatch.setattr(ppo, "adapted", listen)
    whole = train_ppo(**settings)
    coefs, kls = zip(*priced, strict=True)
    assert told == pytest.approx(list(kls))                               # nats per response
    assert coefs[0] == pytest.approx(0.1) and abs(kls[0]) < 1e-5 and kls[-1] > 0.06
    expected = [0.1]
    for kl in kls:
        expected.append(expected[-1] * (1 + 0.1 * min(0.2, max(-0.2, kl / 0.05 - 1))))
    assert coefs == pytest.approx(expected[:5], rel=1e-5) and expected[1] < expected[0] and expected[5] > expected[4]
    assert whole.result.progress["kl_coef"] == pytest.approx(expected[1:], rel=1e-5)

    first = train_ppo(**settings, interrupt=2)
    assert first.result.status == "interrupted"
    kept = load_checkpoint(first.result.directory / "checkpoint.pt")["parts"]["price"]["coef"]
    assert float(kept) == pytest.approx(expected[2], rel=1e-5)
    second = train_ppo(**settings, resume=first.result.directory)
    for name in "model", "critic":
        assert torch.equal(weights(second.parts[name]), weights(whole.parts[name]))
    assert second.result.progress["kl_coef"] == whole.result.progress["kl_coef"]
    assert second.result.progress["explained_variance"] == whole.result.progress["explained_variance"]


# Catches: `.to` on the reward model's own body.
def test_value_function_does_not_change_the_reward_model(judge, beginner):
    from llm.policy.load import value_body
    from llm.tasks.make import make_task
    truth, start = llm.load(judge), load_model(beginner)
    task = make_task("reverse:length=2,symbols=10", truth)
    before = truth("ab>", "ba")
    value_body(start.model.bfloat16(), start.tokenizer, task.judge)
    assert truth.model.body.dtype == torch.float32 and truth("ab>", "ba") == before


# Catches: a KL coefficient of 0, which stays 0 in every update.
def test_kl_target_requires_a_kl_coefficient_above_0():
    from spinup.errors import UserError
    with pytest.raises(UserError):
        ppo.Config(kl_target=6.0)


# Distillation.

# Catches: an inverted log ratio, which moves the policy away from its teacher; a sum over later tokens.
@pytest.mark.parametrize("length", [1, 3])
def test_distillation_follows_the_gradient_of_the_reverse_kl(length):
    testbed = bed.Testbed(length=length)
    policy, teacher = (bed.TabularPolicy(length=length, seed=seed) for seed in (1, 2))
    ids, log_p = testbed.sequences, testbed.log_probs(policy)
    logp, logp_teacher = testbed.logp(policy, ids), testbed.logp(teacher, ids).detach()
    loss = policy_gradient(logp, k1(logp_teacher, logp.detach()))[0].sum(1)                   # as in `reinforce.train`
    found = torch.autograd.grad(bed.expectation(log_p, loss), policy.logits, retain_graph=True)[0]
    each = kl_categorical(policy(ids[:, :-1]), teacher(ids[:, :-1]).detach()).sum(1)          # in the states of `ids`
    exact = torch.autograd.grad(bed.expectation(log_p, each), policy.logits, retain_graph=True)[0]
    torch.testing.assert_close(found, exact)
    if length == 1:
        whole = bed.kl(log_p, testbed.log_probs(teacher).detach())
        torch.testing.assert_close(found, torch.autograd.grad(whole, policy.logits)[0])


# Catches: an advantage from the rewards; the teacher's log-probabilities at another temperature; a teacher that learns.
@pytest.mark.long
def test_distillation_reduces_the_kl_divergence_from_the_teacher(watch, beginner, make_model):
    teacher = make_model(total_steps=60, lr=0.02, warmup=0, batch=48)
    seen = watch("reinforce", lambda draw: [1.0] * 128, teacher=teacher, prompts=32, total_steps=40, lr=0.02, warmup=0,
                 temperature=0.8)
    batch, rows, adv, _ = seen.updates[0]
    r = batch.responses
    wanted = score(load_model(teacher).model, batch.prompts, r.of, r.ids, temperature=0.8)[0].detach()
    wanted = wanted - r.logp
    expected = torch.where(r.mask > 0, wanted - wanted[r.mask > 0].mean(), 0.0)
    torch.testing.assert_close(adv, expected, atol=1e-5, rtol=0)
    found = seen.result.progress["kl_to_teacher"]
    assert 0 < sum(found[-5:]) < 0.75 * sum(found[:5])


# Catches: a run that resumes with another teacher without an error.
def test_resume_refuses_a_changed_teacher(beginner, make_model, tmp_path):
    other = make_model(total_steps=3, lr=0.02, seed=7)
    teacher = shutil.copytree(beginner, tmp_path / "teacher_s1")
    given = TINY | {"model": beginner, "teacher": str(teacher), "log_dir": str(tmp_path / "runs"), "exp_name": "x"}
    run = llm.reinforce(**given | {"total_steps": 2}).directory
    shutil.copy(Path(other, "checkpoint.pt"), teacher / "checkpoint.pt")
    with pytest.raises(UserError, match="the teacher has changed since this run began; restore it, or train again"):
        llm.reinforce(**given | {"total_steps": 4}, resume=run)
    shutil.copy(Path(beginner, "checkpoint.pt"), teacher / "checkpoint.pt")
    assert llm.reinforce(**given | {"total_steps": 4}, resume=run).status == "finished"


# Catches: a run that resumes with other prompts or with another reward.
@pytest.mark.parametrize("changed", ["prompts.jsonl", "judge.py"])
def test_resume_refuses_changed_files_of_the_task_or_its_reward(changed, beginner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("prompts.jsonl").write_text("".join(json.dumps({"prompt": f"{a}{b}>", "answer": "a"}) + "\n"
                                             for a in "abcde" for b in "abcdefg"))
    Path("judge.py").write_text("def f(prompt, response):\n    return float(len(response) > 1)\n")
    given = TINY | {"model": beginner, "task": "prompts.jsonl", "reward": "judge.py:f", "exp_name": "x"}
    run = llm.grpo(**given | {"total_steps": 2}).directory
    before = Path(changed).read_text()
    Path(changed).write_text(before.replace('"a"', '"b"').replace("> 1", "> 2"))
    with pytest.raises(UserError, match="a file of the task or of its reward has changed since this run began; rest"):
        llm.grpo(**given | {"total_steps": 4}, resume=run)
    Path(changed).write_text(before)
    assert llm.grpo(**given | {"total_steps": 4}, resume=run).status == "finished"


# Catches: missing demonstrations that are found only in the middle of a run; prompts with demonstrations and a reward
# that are refused because they have no answers.
def test_missing_demonstrations_are_refused_before_a_folder_is_created(beginner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{a}{b}>", "demonstration": "ab"} for a in "abcde" for b in "abcdefg"]
    Path("shown.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("asked.jsonl").write_text("".join(json.dumps({"prompt": row["prompt"]}) + "\n" for row in rows))
    given = TINY | {"model": beginner, "reward": lambda prompt, response: 1.0, "ptx_coef": 1.0, "total_steps": 2}
    with pytest.raises(UserError, match="demonstration"):
        llm.ppo(**given | {"task": "asked.jsonl", "log_dir": "none"})
    assert not Path("none").exists()
    assert llm.ppo(**given | {"task": "shown.jsonl"}).progress["ptx_loss"][-1] > 0


def test_teacher_requires_the_same_tokens_and_replaces_the_rewards(beginner, make_model, tmp_path):
    other = make_model(task="reverse:length=2,symbols=12", total_steps=2)
    for settings, words in (({"teacher": other}, "tokens of --teacher .* differ from those of the policy; choose a"),
                            ({"teacher": beginner, "kl_coef": 0.1}, "--teacher replaces the rewards and the KL pen"),
                            ({"teacher": str(tmp_path / "none")}, "none")):
        with pytest.raises(UserError, match=words):
            llm.reinforce(**TINY | {"model": beginner}, **settings, log_dir=str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


# Catches: demonstrations whose coefficient is missing, or whose gradient is lost.
def test_demonstrations_add_their_gradient_times_the_coefficient(beginner, tmp_path, monkeypatch):
    found, step = [], FlatAdam.step
    monkeypatch.setattr(FlatAdam, "step", lambda self, lr=None: found.append(self.flat.grad.clone()) or step(self, lr))
    for coef in (0.0, 0.5, 1.0):
        llm.ppo(**TINY | {"model": beginner, "reward": worth, "prompts": 12, "minibatches": 1, "total_steps": 1,
                          "ptx_coef": coef, "log_dir": str(tmp_path)})
    plain, half, whole = found[1::2]                                      # the value function's step comes first
    assert len(found) == 6 and (half - plain).norm() > 0.01
    torch.testing.assert_close(whole - plain, 2 * (half - plain), atol=1e-5, rtol=1e-3)


# Catches: a KL coefficient that adapts while only the value function learns.
def test_kl_coefficient_is_constant_while_only_the_value_function_learns(train_ppo):
    seen = train_ppo(total_steps=3, value_warmup=2, kl_coef=0.1, kl_target=0.05)
    assert seen.result.progress["kl_coef"] == pytest.approx([0.1, 0.1, 0.098])


# Catches: an inverted log ratio; a mean that is not subtracted.
def test_distillation_advantage_is_the_centred_log_ratio_to_the_teacher(watch, make_model):
    teacher = make_model(total_steps=3, lr=0.02, seed=7)
    seen = watch("reinforce", teacher=teacher, total_steps=1, temperature=0.8)
    batch, _, adv, _ = seen.updates[0]
    r = batch.responses
    wanted = score(load_model(teacher).model, batch.prompts, r.of, r.ids, temperature=0.8)[0].detach() - r.logp
    expected = torch.where(r.mask > 0, wanted - wanted[r.mask > 0].mean(), 0.0)
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(adv, expected, atol=1e-5, rtol=0)
