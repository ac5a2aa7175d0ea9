"""The methods against small numbers worked out by hand, and what they do with a batch in the course of a training."""
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from llm.algos import best_of_n, grpo, reinforce
from llm.policy.generate import Prompts, Responses
from llm.policy.score import score
from llm.policy.transformer import Shape, Transformer
from llm.run import Batch, Run, join
from llm.start import load_model
from llm.tasks import Problem
from llm.tasks import testbed as bed
from llm.tasks.strings import Reverse
from spinup.core.masked import whiten
from spinup.runs.files import load_checkpoint

MODULES = {method: module for module in (reinforce, grpo, best_of_n) for method in module.METHODS}
LIMIT = 3                               # tokens of a response to the task below
TINY = {"task": "reverse:length=2,symbols=10", "layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True,
        "tensorboard": False, "threads": 1, "device": "cpu"}


def close(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), atol=1e-6, rtol=1e-5)


# The functions.

# Turned red by: the mean with one's own reward; groups of every G-th row.
def test_leave_one_out():
    rewards = torch.tensor([1.0, 0, 0, 2, 5, 5])
    close(reinforce.leave_one_out(rewards, 3), [1, -0.5, -0.5, -3, 1.5, 1.5])
    close(reinforce.leave_one_out(rewards, 2), [1, -1, -2, 2, 0, 0])


# Turned red by: the reward on the last column, or on each; a price added, or paid once; masked steps that count.
def test_reward_to_go():
    nan = math.nan
    kl = torch.tensor([[0.1, 0.2, 0.3, nan], [0.4, nan, 0.6, 0.8], [nan] * 4])
    mask = torch.tensor([[1.0, 1, 1, 0], [1, 0, 1, 1], [0, 0, 0, 0]])
    found = reinforce.reward_to_go(torch.tensor([2.0, 3, 4]), kl, 0.5, mask)
    close(found, [[1.7, 1.75, 1.85, 0], [2.1, 0, 2.3, 2.6], [0, 0, 0, 0]])


# Each of the three tokens of the response that failed counts: their mean is 1/4, not 1/2.
# Turned red by: rewards whitened before they are tokens'; a deviation of the rows.
def test_reinforce_pp_whitens_tokens():
    mask = torch.tensor([[1.0, 0, 0], [1, 1, 1]])
    returns = reinforce.reward_to_go(torch.tensor([1.0, 0]), torch.zeros(2, 3), 0.0, mask)
    close(whiten(returns, mask), [[3**0.5, 0, 0], [-(3**-0.5)] * 3])


# Turned red by: `correction=1`; the deviation of all groups; division where scale is "none".
def test_group_advantage():
    rewards = torch.tensor([1.0, 0, 0, 1, 3, 1, 1, 1, 7, 7, 7, 7])
    close(grpo.group_advantage(rewards, 4, eps=0), [1, -1, -1, 1, 3**0.5, *[-(3**-0.5)] * 3, 0, 0, 0, 0])
    close(grpo.group_advantage(rewards, 4, "none"), [0.5, -0.5, -0.5, 0.5, 1.5, -0.5, -0.5, -0.5, 0, 0, 0, 0])
    close(grpo.group_advantage(rewards[:2], 2), [0.5 / 0.5001, -0.5 / 0.5001])


# Turned red by: `>=`; the rows of other groups.
def test_contrast():
    groups = grpo.contrast(torch.tensor([1.0, 1, 0, 1, 0.7, 0.7, 0, -1]), 2)
    assert groups.tolist() == [False, True, False, True]
    assert grpo.groups_to_rows(groups, 2).tolist() == [2, 3, 6, 7]


# Turned red by: a penalty that begins at the limit; one below -1; a sign; a division by a buffer of 0.
def test_overlong_penalty():
    lengths = torch.tensor([1, 6, 7, 8, 9, 10, 12])
    close(grpo.overlong_penalty(lengths, 10, 4), [0, 0, -0.25, -0.5, -0.75, -1, -1])
    close(grpo.overlong_penalty(lengths, 10, 0), [0.0] * 7)


# Turned red by: the last among equals; `keep` above instead of at least; the best of the whole batch.
def test_winners():
    rewards = torch.tensor([0.0, 1, 1, 0.5, 0.2, 0.9, 3, 2, 3])
    assert best_of_n.winners(rewards, 3, 1.0).tolist() == [1, 6]
    assert best_of_n.winners(rewards, 3, 0.9).tolist() == [1, 5, 6]
    assert best_of_n.winners(rewards, 3, 4.0).tolist() == []


# Turned red by: log n without the rest, which is above it too, but never reached.
def test_the_best_of_n_diverges_no_further_than_its_bound():
    testbed = bed.Testbed()
    log_p = testbed.log_probs(bed.TabularPolicy(scale=0.3)).detach()
    order = testbed.rewards.argsort()
    below = torch.cat([torch.zeros(1).double(), log_p[order].exp().cumsum(0)])               # the chance of a worse one
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


# Turned red by: `of` not moved by the prompts before; prompts padded in front; a field in another order.
@torch.no_grad()
def test_join():
    torch.manual_seed(0)
    model = Transformer(Shape(9, 20, 1, 16, 2, 2, 8, 24))
    batches = [batch_of(model, [[1], [2, 3]], 2, 0), batch_of(model, [[4, 5, 6, 7]], 2, 1),
               batch_of(model, [[1, 8], [2], [3]], 2, 2)]
    joined = join(batches)
    r = joined.responses
    assert r.of.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    torch.testing.assert_close(score(model, joined.prompts, r.of, r.ids)[0], r.logp)
    for name in "ids", "mask", "lengths", "finished":
        assert torch.equal(getattr(r, name), torch.cat([getattr(b.responses, name) for b in batches]))
    assert torch.equal(joined.rewards, torch.cat([b.rewards for b in batches]))
    assert joined.texts == [text for b in batches for text in b.texts]
    assert [p.prompt for p in joined.problems] == [p.prompt for b in batches for p in b.problems]
    assert join(batches[:1]) is batches[0]


# The trainings.

@dataclass
class Watched:
    """A training, and what was seen of it: the batches drawn, and what `Run.backward` was given in each update: batch,
    rows, advantages, denominator."""

    result: Any = None
    drawn: list = field(default_factory=list)
    updates: list = field(default_factory=list)

    def adv(self, update):
        return self.updates[update][2][:, 0]


@pytest.fixture
def watch(beginner, undrawn, tmp_path, monkeypatch):
    """Train with rewards from a script: `watch("grpo", lambda draw: [1, 0, 1, 0])`.

    script: rewards of a draw, by its number. likeliest: those of the likeliest responses. interrupt: the update in
    which Ctrl-C is pressed.
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
                run._interrupt()
            return backward(run, batch, rows, loss, *per_row, **whole)

        monkeypatch.setattr(Run, "sample", scripted)
        monkeypatch.setattr(Run, "backward", spy)
        module = MODULES[method]
        settings = TINY | {"model": beginner, "prompts": 2, "samples": 4} | module.METHODS[method] | given
        seen.result = module.train(module.Config(**settings, log_dir=str(tmp_path)), resume, method=method)
        return seen
    return watch


# Turned red by: a first batch compared with 0; a mean that already knows the batch it is compared with; `memory` as the
# share of the new.
def test_the_running_mean(watch):
    rewards = [[1, 0, 1, 0, 1, 0, 1, 0], [1, 1, 1, 0, 1, 1, 1, 0], [0, 0, 0, 1, 0, 0, 0, 1]]
    seen = watch("reinforce", lambda draw: rewards[draw], memory=0.6, total_steps=3)
    for update, mean in enumerate([0.5, 0.5, 0.6 * 0.5 + 0.4 * 0.75]):
        close(seen.adv(update), torch.tensor(rewards[update]) - mean)


# Turned red by: `expected` left out of `keep`: the first update after a pause is compared with itself.
def test_the_running_mean_survives_a_pause(watch):
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


# Turned red by: a drawn response for the likeliest; the greedy reward of another prompt.
def test_remax_compares_with_the_likeliest_response(watch):
    rewards = [1, 0, 2, 0, 1, 0, 2, 0]
    seen = watch("remax", lambda draw: rewards, likeliest=[0.25, 0.75], total_steps=2)
    for update in 0, 1:
        close(seen.adv(update), torch.tensor(rewards) - torch.tensor([0.25] * 4 + [0.75] * 4))


# Turned red by: a comparison with all responses of the batch.
def test_rloo_compares_with_the_others(watch):
    seen = watch("rloo", lambda draw: [1, 0, 0, 0, 5, 5, 5, 2], total_steps=1)
    close(seen.adv(0), [1, *[-1 / 3] * 3, 1, 1, 1, -3])


# The price of the divergence is that of the token's own and of all that follow. Turned red by: another reference than
# the policy that learning began with; a price that is paid once a response; no whitening, or that of a response.
def test_reinforce_pp_pays_for_divergence(watch, beginner):
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


# Turned red by: either scale in the other; tokens counted where rows are; only the rows that are used counted.
@pytest.mark.parametrize(("method", "scale", "rows"), [("grpo", 0.5001, 8), ("dr_grpo", 1.0, 8)])
def test_grpo_and_dr_grpo(method, scale, rows, watch):
    seen = watch(method, lambda draw: [1, 0, 1, 0, 1, 1, 1, 1], total_steps=1)
    (batch, used, adv, denominator), = seen.updates
    assert sorted(used.tolist()) == [0, 1, 2, 3] and denominator == rows and len(seen.drawn) == 1
    close(adv[:4, 0], torch.tensor([0.5, -0.5, 0.5, -0.5]) / scale)


GOOD, BAD, MIXED = [1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 1]


# Bug of many a library: a task that is solved, or cannot be, is drawn again for ever.
# Turned red by: no limit on the draws; an update of nothing, which divides by 0.
@pytest.mark.parametrize("rewards", [GOOD, BAD])
def test_dapo_gives_up_where_nothing_has_contrast(rewards, watch):
    seen = watch("dapo", lambda draw: rewards * 2, total_steps=3, draws=4, overlong=0)
    assert seen.result.status == "finished" and len(seen.drawn) == 12 and not seen.updates
    assert seen.result.progress["reward"] == [rewards[0]] * 3


# Turned red by: groups without contrast among the rows; draws that go on when there are enough; a logged reward of the
# rows that were used; a denominator with the tokens of those left out.
def test_dapo_draws_until_there_is_enough_contrast(watch):
    draws = [GOOD + MIXED, MIXED + GOOD, GOOD + MIXED, MIXED + MIXED, MIXED + MIXED]
    seen = watch("dapo", lambda draw: draws[draw], total_steps=3, draws=3, overlong=0)
    assert [len(update[0].rewards) for update in seen.updates] == [16, 16, 8]
    for (batch, rows, adv, denominator), used in zip(seen.updates, [[1, 2], [1, 2], [0, 1]], strict=True):
        assert sorted(rows.tolist()) == [4 * group + i for group in used for i in range(4)]
        assert denominator == batch.responses.mask[rows].sum()
        close(adv[rows].square(), torch.full((8, 1), (0.5 / 0.5001) ** 2))
    assert seen.result.progress["reward"] == [0.75, 0.625, 0.5]
    assert seen.result.progress["no_contrast"] == [0.5, 0.25, 0.0]


# Turned red by: more rows than were asked for, which would make the steps of easy tasks smaller.
def test_dapo_uses_as_many_groups_as_were_asked_for(watch):
    draws = [BAD + MIXED, MIXED + MIXED]
    seen = watch("dapo", lambda draw: draws[draw], total_steps=1, overlong=0)
    assert sorted(seen.updates[0][1].tolist()) == list(range(4, 12))


# Turned red by: a penalty within the task's own limit, which a right answer needs; none; one in the logged reward.
def test_dapo_punishes_what_is_longer_than_the_task_allows(watch):
    seen = watch("dapo", lambda draw: GOOD + GOOD, total_steps=1, overlong=4, draws=1)
    (batch, _, adv, _), = seen.updates
    lengths = batch.responses.lengths
    assert lengths.max() == LIMIT + 4 and lengths.min() < LIMIT           # the limit is behind the buffer
    rewards = torch.tensor([1 - max(0, n - LIMIT) / 4 for n in lengths.tolist()])
    close(adv[:, 0], grpo.group_advantage(rewards, 4))
    assert seen.result.progress["reward"] == [1.0]


# Turned red by: rewards of whatever type the verifier has, which have no mean.
@pytest.mark.parametrize("answer", [True, 1])
def test_a_verifier_may_say_true_or_false(answer, watch):
    task = Reverse(2, 10)
    task.reward = lambda problem, response: answer if len(response) > 2 else 0 * answer
    seen = watch("rloo", task=task, total_steps=1)
    assert seen.drawn[0].rewards.dtype == torch.float32 and set(seen.drawn[0].rewards.tolist()) <= {0.0, 1.0}


# Turned red by: other rows than the best; the tokens of all as denominator; the losers of a prompt without a winner in
# the control; fewer or more of them than winners.
@pytest.mark.parametrize("select", ["best", "random"])
def test_best_of_n_imitates_its_choice(select, watch):
    rewards = [0, 2, 0, 1, 0.5, 0.9, 0, 0, 0, 0, 0, 1]
    seen = watch("best_of_n", lambda draw: rewards, total_steps=4, prompts=3, select=select)
    chosen = [sorted(rows.tolist()) for _, rows, *_ in seen.updates]
    if select == "best":
        assert chosen == [[1, 11]] * 4
    else:
        assert all(a // 4 == 0 and b // 4 == 2 for a, b in chosen) and len({a for a, _ in chosen}) > 1
    assert all(denominator == batch.responses.mask[rows].sum() for batch, rows, _, denominator in seen.updates)
