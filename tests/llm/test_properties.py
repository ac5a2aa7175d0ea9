"""Properties of updates in training runs: invariances of the gradient, zero gradients, and what determines the weights.

Many tests catch a call of `Run.backward` in a training run, and repeat it with other arguments.
"""
import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from llm.algos import grpo, reinforce
from llm.config import LanguageConfig
from llm.policy.generate import Prompts
from llm.policy.load import load_model
from llm.policy.score import score
from llm.run import Run
from llm.tasks import Problem
from spinup.algos.ppo import clipped_surrogate
from spinup.algos.vpg import policy_gradient
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate, whiten
from spinup.core.optim import step_size
from spinup.registry import algorithms
from spinup.runs.config import settings_of
from tests.llm.conftest import Call, Stop
from tests.relations import in_module

FILES = ("sft", "reinforce", "grpo", "best_of_n")
ALGORITHMS = {method: a.load() for name in FILES for method, a in in_module(f"llm.algos.{name}", "llm").items()}
REINFORCE = [*in_module("llm.algos.reinforce", "llm")]
GRPO = [*in_module("llm.algos.grpo", "llm")]
LEARNING = [method for method in ALGORITHMS if method != "sft"]
TINY = {"layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True, "tensorboard": False, "threads": 1,
        "device": "cpu"}
FAR = {"kl_coef": 0.5, "at": 3, "lr": 0.005, "warmup": 0}                  # the policy differs from the initial policy
each_method = pytest.mark.parametrize("method", ALGORITHMS)


class Mixed:
    """Prompts of 2 to 5 characters and responses of any length. After each a of the policy, a tool writes bb.

    The rewards are 0, .5 and 1. For prompts that begin with a to d, every response has a reward of .5.
    """

    name, alphabet, max_tokens = "mixed", "abcdefghij>", 7

    def tool(self, text):
        return "bb" if text.endswith("a") else None

    def problems(self, n, rng, held_out=False):
        letters = list(self.alphabet[:-1])
        return [Problem("".join(rng.choice(letters, size=rng.integers(1, 5))) + ">") for _ in range(n)]

    def demonstration(self, problem, rng):
        return "".join(rng.choice(["abb", "c", "d"], size=rng.integers(0, 4)))

    def reward(self, problem, response):
        return 0.5 if problem.prompt[0] < "e" else sum(map(ord, response)) % 3 / 2


class Repeated(Mixed):
    """All problems have the same prompt."""

    def problems(self, n, rng, held_out=False):
        return [Problem("hj>")] * n


@pytest.fixture(scope="module")
def start(make_model):
    """The folder of a model that has learned to end some of its responses."""
    return make_model(task=Mixed(), total_steps=4, lr=0.02, warmup=0)


@pytest.fixture(scope="module")
def train(start, tmp_path_factory):
    """Train with a method: `train("grpo", seed=2)`."""
    def train(method, **given):
        algorithm, own = algorithms("llm")[method], {"batch": 20} if method == "sft" else {"prompts": 8, "samples": 4}
        if method in GRPO:
            own["minibatches"] = 1
        settings = TINY | {"task": Mixed(), "model": start, "total_steps": 1} | algorithm.settings | own | given
        module = algorithm.load()
        return module.train(module.Config(**settings, log_dir=str(tmp_path_factory.mktemp(method))))
    return train


@pytest.fixture(scope="module")
def catch(train):
    """Call number `at` of `Run.backward` in a training run, cached: `catch("grpo", epochs=2)`."""
    made = {}

    def catch(method, at=1, move=0.0, **settings):
        """move: size of a random change of the weights after the call was caught, so that no ratio is 1."""
        key = repr((method, at, move, settings))
        if key not in made:
            backward, calls = Run.backward, []

            def spy(*args, **whole):
                calls.append(args)
                if len(calls) == at:
                    raise Stop(args, whole)
                return backward(*args, **whole)

            with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop) as caught:
                patch.setattr(Run, "backward", spy)
                train(method, temperature=0.7, total_steps=at, **settings)
            (run, batch, rows, loss, *per_row), whole = caught.value.args
            g = torch.Generator().manual_seed(0)
            with torch.no_grad():
                for p in run.model.parameters():
                    p.add_(move * torch.randn(p.shape, generator=g))
            made[key] = Call(run, batch, rows, loss, per_row, whole)
        return made[key]
    return catch


def same(found, expected, atol=1e-6):
    """Compare two (gradient, diagnostics), the gradients to `atol`."""
    assert expected[0].norm() > 0.01
    torch.testing.assert_close(found[0], expected[0], atol=atol, rtol=0)
    assert found[1] == pytest.approx(expected[1], abs=1e-5, nan_ok=True)    # sft has no ratio


# The gradient of an update.

def clipped(ratio, adv, config):
    """Contribution of one step to PPO's objective (eq. 7)."""
    return torch.min(ratio * adv, ratio.clamp(1 - config.clip_low, 1 + config.clip_high) * adv)


def by_hand(call, method):
    """Loss of a call as in the paper, one response at a time after its whole prompt, without padding, micro-batches or
    masks."""
    r, prompts, config, total = call.batch.responses, call.batch.prompts, call.run.config, 0.0
    counted = call.rows if method in ("dapo", "magistral", "best_of_n") else torch.arange(len(r.ids))
    rows, tokens = len(counted), sum(int(r.mask[b].sum()) for b in counted)
    for b in call.rows.tolist():
        n, prompt = int(r.lengths[b]), prompts.ids[r.of[b], :prompts.lengths[r.of[b]]]
        logits, before = (model(torch.cat([prompt, r.ids[b, :n]])[None])[0, len(prompt) - 1:-1] / config.temperature
                          for model in (call.run.model, call.run.reference))
        adv = call.per_row[0][b].expand(r.ids.shape[1]) if call.per_row else torch.ones(n)
        mine, own = 0.0, [t for t in range(n) if r.mask[b, t]]
        each = {t: logits[t].log_softmax(0)[r.ids[b, t]] for t in own}
        if method == "gspo":
            mean = sum(each[t] - r.logp[b, t] for t in own) / len(own)
            mine = mine - len(own) * clipped(mean.exp(), adv[0], config)
        for t in own:
            logp, ratio = each[t], (each[t] - r.logp[b, t]).exp()
            if method not in GRPO:
                mine = mine - logp * adv[t]
                continue
            if method == "cispo":
                mine = mine - min(ratio.item(), 1 + config.clip_high) * adv[t] * logp
            elif method == "sapo":
                tau = config.tau_pos if adv[t] > 0 else config.tau_neg
                mine = mine - 4 / tau / (1 + (-tau * (ratio - 1)).exp()) * adv[t]
            elif method != "gspo":
                mine = mine - clipped(ratio, adv[t], config)
            mine = mine + config.kl_coef * (logp - before[t].log_softmax(0)[r.ids[b, t]]) ** 2 / 2
        group = [c for c in range(len(r.ids)) if r.of[c] == r.of[b]]
        total = total + mine / {"grpo": len(own) * rows, "gspo": len(own) * rows, "sapo": len(own) * rows,
                                "dr_grpo": call.run.max_tokens * rows,
                                "magistral": float(r.mask[group].sum()) / len(group) * rows}.get(method, tokens)
    return total


# Catches: padding that is recognised by a token id; an end token without a gradient; another temperature than the
# sampler's; positions that count the padding; logits and mask shifted by one token; `mean(1)` of a row with its
# padding; clip_high in place of clip_low; the denominator of a micro-batch, or of the rows with non-zero variance only;
# for Dr. GRPO, the length of the longest response of the batch; for Magistral, the lengths of a micro-batch; for GSPO,
# a sum in place of the mean; for CISPO, a gradient through the weight; for SAPO, the two taus exchanged.
@pytest.mark.parametrize(("method", "settings"), [
    *((m, {"clip_high": 0.1} if m == "cispo" else {}) for m in ALGORITHMS), ("grpo", FAR), ("gspo", FAR)])
def test_update_follows_the_equation_of_its_method(method, settings, catch):
    call = catch(method, move=0.05, **settings)
    r = call.batch.responses
    inside = torch.arange(r.ids.shape[1]) < r.lengths[:, None]
    assert (inside & (r.mask == 0)).any() and len(r.lengths.unique()) > 3                    # tools, and many lengths
    found, stats = call.gradient()
    loss = by_hand(call, method)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(call.run.model.parameters()))])
    same((found, {"loss": stats["loss"]}), (expected, {"loss": loss.item()}))
    if method in GRPO:
        assert stats["clip_fraction"] > 0                                 # otherwise the clip is not tested


# Catches: padding that is recognised by a token id; a NaN that is multiplied by 0 and not left out, as by `x * mask` in
# `select`, or after `exp`; `len(row)` in place of the number of the row's tokens.
@each_method
def test_padding_after_responses_does_not_change_the_gradient(method, catch):
    call = catch(method, move=0.05)
    r, T, more = call.batch.responses, call.batch.responses.ids.shape[1], 3
    mask = pad(r.mask, (0, more))
    g = torch.Generator().manual_seed(1)

    def longer(x):
        return torch.where(mask > 0, pad(x.expand(-1, T), (0, more)), torch.nan)

    beyond = torch.arange(T + more) >= r.lengths[:, None]
    ids = torch.where(beyond, torch.randint(12, mask.shape, generator=g), pad(r.ids, (0, more)))
    batch = call.responses(ids=ids, mask=mask, logp=longer(r.logp))
    same(call.gradient(batch=batch, per_row=[longer(x) for x in call.per_row]), call.gradient())


# Catches: positions that count the padding of prompts; the width in place of `prompts.lengths` in `read`: for the state
# before the first token, for the positions or for the mask.
@each_method
def test_padding_after_prompts_does_not_change_the_gradient(method, catch):
    call = catch(method, move=0.05)
    ids, lengths = call.batch.prompts.ids, call.batch.prompts.lengths
    junk = torch.randint(12, (len(ids), ids.shape[1] + 3), generator=torch.Generator().manual_seed(1))
    inside = torch.arange(junk.shape[1]) < lengths[:, None]
    prompts = Prompts(torch.where(inside, pad(ids, (0, 3)), junk), lengths)
    same(call.gradient(batch=replace(call.batch, prompts=prompts)), call.gradient())


# Prompts of equal length have their own code path. Catches: a shift by one token in the causal part of its mask.
def test_padding_of_equally_long_prompts_does_not_change_the_gradient(catch):
    call = catch("grpo", move=0.05)
    ids = call.batch.prompts.ids[:, :2].contiguous()                      # of two tokens each
    equal, padded = Prompts(ids, torch.full((8,), 2)), Prompts(pad(ids, (0, 3), value=7), torch.full((8,), 2))
    assert equal.equal and not padded.equal
    same(*(call.gradient(batch=replace(call.batch, prompts=p)) for p in (equal, padded)))


# Catches: the loss of the last micro-batch in the log (`found["loss"] = `); a loss or a gradient that depends on the
# size of the micro-batches; entropy that is divided by the tokens twice; `zero_grad` in the loop; the denominator of a
# micro-batch; diagnostics that are not weighted by tokens.
@each_method
@pytest.mark.parametrize("micro_batch", [1, 3])
def test_micro_batches_and_order_of_rows_do_not_change_an_update(method, micro_batch, catch):
    call = catch(method, move=0.05)
    whole = call.gradient()
    shuffled = call.rows[torch.randperm(len(call.rows), generator=torch.Generator().manual_seed(2))]
    same(call.gradient(micro_batch), whole)
    same(call.gradient(micro_batch, rows=shuffled), whole)


# Catches: a denominator of the given rows only.
@each_method
def test_gradients_of_parts_of_an_update_add_up_to_its_gradient(method, catch):
    call = catch(method, move=0.05)
    parts = [call.gradient(rows=rows)[0] for rows in call.rows.tensor_split(2)]
    torch.testing.assert_close(sum(parts), call.gradient()[0], atol=1e-6, rtol=0)


# Catches: the mean of -log-probability in place of the entropy; an entropy that is divided by the tokens twice; the
# entropy after the end of a response, or of logits without the temperature.
def test_logged_entropy_is_the_mean_over_the_policys_tokens(catch):
    call, total, count = catch("rloo"), 0.0, 0
    r, prompts = call.batch.responses, call.batch.prompts
    for b in call.rows.tolist():
        n, prompt = int(r.lengths[b]), prompts.ids[r.of[b], :prompts.lengths[r.of[b]]]
        logits = call.run.model(torch.cat([prompt, r.ids[b, :n]])[None])[0, len(prompt) - 1:-1]
        entropies = torch.distributions.Categorical(logits=logits / 0.7).entropy()
        total, count = total + (entropies * r.mask[b, :n]).sum().item(), count + int(r.mask[b].sum())
    assert call.gradient()[1]["entropy"] == pytest.approx(total / count, abs=1e-5)


# Catches: a denominator without the rows that are left out; rows that are left out although there is a KL penalty,
# which applies to them too.
@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
@pytest.mark.parametrize("method", ["grpo", "dr_grpo", "gspo", "cispo", "sapo"])
def test_leaving_out_groups_with_zero_variance_keeps_the_gradient(method, kl_coef, catch):
    call = catch(method, move=0.05, kl_coef=kl_coef)
    everything, rewards = torch.arange(len(call.batch.rewards)), call.batch.rewards
    counted = call.batch.responses.mask.sum() if method == "cispo" else 32
    assert not grpo.varied(rewards, 4).all() and (kl_coef or len(call.rows) < 32)
    assert call.whole["denominator"] == counted
    found, expected = call.gradient()[0], call.gradient(rows=everything)[0]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


# Catches: a selection of groups by rewards with the length penalty, where different lengths alone would keep a group;
# advantages of rewards without the penalty.
def test_dapo_selects_groups_before_it_subtracts_the_length_penalty(catch):
    call = catch("dapo", overlong=5)
    r, run = call.batch.responses, call.run
    penalised = call.batch.rewards + grpo.overlong_penalty(r.lengths, run.max_tokens, 5)
    differ, after = grpo.varied(call.batch.rewards, 4), grpo.varied(penalised, 4)
    assert (after & ~differ).any()                                        # equal rewards, and lengths that differ
    assert sorted(call.rows.tolist()) == differ.repeat_interleave(4).nonzero()[:32, 0].tolist()
    assert torch.equal(call.per_row[0][:, 0], grpo.group_advantage(penalised, 4))


# Catches: an optimiser, of the policy or of the value function, that does not get these settings.
@pytest.mark.parametrize("method", [*ALGORITHMS, "ppo", "dpo", "reward_model"])
def test_adam_eps_and_max_grad_norm_reach_every_optimiser(method, start, tmp_path, monkeypatch):
    made = []
    init = FlatAdam.__init__

    def spy(*args, **settings):
        made.append((settings["eps"], settings["max_grad_norm"]))
        init(*args, **settings)

    def stop(optimizer):
        raise Stop

    monkeypatch.setattr(FlatAdam, "__init__", spy)
    monkeypatch.setattr(FlatAdam, "zero_grad", stop)
    module = algorithms("llm")[method].load()
    own = {"pairs": 8} if hasattr(module.Config, "pairs") else {}
    cfg = module.Config(**TINY, **own, task=Mixed(), model=start, adam_eps=0.125, max_grad_norm=0.375,
                        log_dir=str(tmp_path))
    with pytest.raises(Stop):
        module.train(cfg)
    assert made == [(0.125, 0.375)] * (2 if method == "ppo" else 1)


# Catches: log-probabilities of the sampler at another temperature; a loss whose derivative at ratio 1 is not 1.
@pytest.mark.parametrize("loss", [x for x in grpo.LOSSES if x != "sequence"])
def test_gradient_of_grpo_at_ratio_1_is_that_of_reinforce(loss, catch):
    ours, plain = catch("grpo", average="token", loss=loss), catch("reinforce")
    assert torch.equal(ours.batch.responses.ids, plain.batch.responses.ids)                  # the same samples
    found, stats = ours.gradient()
    same((found, {}), (plain.gradient(per_row=ours.per_row[:1], rows=ours.rows)[0], {}))
    assert stats["clip_fraction"] == pytest.approx(0, abs=1e-6) and abs(stats["loss"]) < (5 if loss == "gate" else 1)


# Catches: a ratio of a response whose gradient is a sum over its tokens.
def test_gradient_of_gspo_at_ratio_1_is_that_of_grpo(catch):
    ours, theirs = catch("gspo"), catch("grpo")
    same((ours.gradient()[0], {}), (theirs.gradient()[0], {}))


# The tokens of a prompt have no column. Catches: a mask, of the sampler or of `demonstrated`, without the end token or
# with the tool's tokens; a missing mask.
@each_method
def test_only_the_policys_tokens_have_gradients(method, catch, monkeypatch):
    call, leaves = catch(method), []

    def leaf(*args, **kwargs):
        logp, entropy = score(*args, **kwargs)
        leaves.append(logp.detach().requires_grad_())
        return leaves[-1], entropy.detach()

    monkeypatch.setattr("llm.learn.score", leaf)
    Run.backward(call.run, call.batch, call.rows, call.loss, *call.per_row, **call.whole)
    rows = call.rows[call.batch.responses.of[call.rows].argsort(stable=True)]    # in the order of the learner
    part, adv = call.batch.responses[rows].trimmed(), torch.ones(1)
    if call.per_row:
        adv = call.per_row[0][rows][:, :part.ids.shape[1]]
    assert torch.equal(leaves[0].grad != 0, (part.mask > 0) & (adv != 0))
    ended = part.finished.nonzero()[:, 0]
    last = part.lengths[ended] - 1
    assert part.mask[ended, last].all() and leaves[0].grad[ended, last].any()


# Catches: columns that are computed after the longest response of a micro-batch; `per_row` with another width.
@pytest.mark.parametrize("method", ["grpo", "reinforce", "sft"])
def test_columns_after_the_end_of_every_response_are_not_computed(method, catch, monkeypatch):
    call, read = catch(method, move=0.05), []

    def spy(model, prompts, of, ids, lengths, **settings):
        read.append((len(of.unique()), ids.shape))
        return score(model, prompts, of, ids, lengths, **settings)

    expected, r = call.gradient(), call.batch.responses
    T = r.ids.shape[1]
    wide = replace(r, ids=pad(r.ids, (0, 9)), logp=pad(r.logp, (0, 9)), mask=pad(r.mask, (0, 9)))
    per_row = [pad(x, (0, 9), value=math.nan) if x.shape[1:] == (T,) else x for x in call.per_row]
    monkeypatch.setattr("llm.learn.score", spy)
    same(call.gradient(4, batch=replace(call.batch, responses=wide), per_row=per_row), expected)
    rows = call.rows[r.of[call.rows].argsort(stable=True)]
    assert read == [(len(r.of[piece].unique()), (len(piece), r.lengths[piece].max())) for piece in rows.split(4)]


# Catches: a temperature of 1 in the sampler or in the learner; ratios that differ from 1 before the first step; a
# sampler that keeps the first weights, or that reads the cache after the last token of a row.
@pytest.mark.parametrize("at", [1, 5])
@pytest.mark.parametrize("method", ["grpo", "remax"])
def test_sampler_and_learner_compute_the_same_log_probabilities(method, at, catch):
    call = catch(method, at=at, lr=0.02, warmup=0)
    moved = (weights(call.run.model) - weights(call.run.reference)).norm()
    assert moved > 1 if at > 1 else moved == 0
    r = call.batch.responses
    logp, _ = score(call.run.model, call.batch.prompts, r.of, r.ids, temperature=0.7)
    torch.testing.assert_close(torch.where(r.mask > 0, logp, 0.0), r.logp, atol=1e-5, rtol=0)
    stats = call.gradient()[1]
    assert stats["ratio_min"] == pytest.approx(1, abs=1e-5) and stats["ratio_max"] == pytest.approx(1, abs=1e-5)


# Catches: log-probabilities of the sampler as the old ones: in bf16 their ratios are between .99 and 1.01 here; a KL
# divergence that is only a rounding error, in REINFORCE or in the log.
@pytest.mark.long
def test_ratio_starts_at_1_in_bf16(train, make_model, monkeypatch):
    start = make_model(task=Mixed(), layers=3, width=64, heads=4, total_steps=1, lr=1e-6)

    def on_device(start, cfg):
        for p in start.model.bfloat16().blocks.parameters():
            p.data.mul_(4 if p.dim() == 2 else 1)                         # large weights have large rounding errors
        return start

    monkeypatch.setattr("llm.start.on_device", on_device)
    for method in ("grpo", "ppo"):
        row = {name: x[0] for name, x in train(method, model=start, minibatches=1).progress.items()}
        assert row["ratio_min"] == row["ratio_max"] == 1.0 and row["grad_norm"] > 0, method
    monkeypatch.setattr("llm.learn.EXACT", 0)                             # the KL estimated from sampled tokens
    same = train("rloo", model=start, reward=lambda prompt, response: 0.5, kl_coef=1.0, lr=0.1, warmup=0, held_out=32)
    assert set(same.progress["kl_to_initial"]) == set(same.progress["kl_of_response"]) == {0.0}
    still = same.policy.model
    begun = on_device(load_model(start), None).model
    assert still.dtype == torch.bfloat16 and torch.equal(weights(still), weights(begun))


# Catches: a last minibatch that is left out, as by `rows[:n // minibatches * minibatches]`; the same order in all
# epochs; empty minibatches, if there are fewer rows than minibatches.
@pytest.mark.parametrize("method", ["grpo", "dr_grpo", "dapo", "gspo", "magistral", "best_of_n"])
@pytest.mark.parametrize("minibatches", [3, 32])
def test_every_row_is_used_once_per_epoch(method, minibatches, train, monkeypatch):
    backward, used, batches = Run.backward, [], []

    def spy(run, batch, rows, *args, **whole):
        used.append(rows.tolist())
        batches.append(batch)
        return backward(run, batch, rows, *args, **whole)

    monkeypatch.setattr(Run, "backward", spy)
    train(method, minibatches=minibatches, epochs=2)
    half = len(used) // 2
    first, second = ([row for rows in part for row in rows] for part in (used[:half], used[half:]))
    assert sorted(first) == sorted(second) == sorted(set(first)) and first != second and first != sorted(first)
    contrast = grpo.varied(batches[0].rewards, 4).repeat_interleave(4).nonzero()[:, 0].tolist()
    assert half == min(minibatches, len(first)) and (method != "grpo" or sorted(first) == contrast)


# Catches: the denominator of the whole batch: with it, the gradients of three minibatches are a third as large.
@pytest.mark.parametrize("method", GRPO)
def test_mean_gradient_of_minibatches_is_that_of_the_batch(method, catch):
    call, whole = catch(method, minibatches=3, move=0.05), catch(method, move=0.05)
    found = call.gradient(rows=whole.rows)[0] / 3
    torch.testing.assert_close(found, whole.gradient()[0], atol=1e-6, rtol=0)


# Cases without a gradient.

ADVANTAGES = {"rloo": reinforce.leave_one_out, "grpo": grpo.group_advantage,
              "dr_grpo": lambda rewards, samples: grpo.group_advantage(rewards, samples, "mean")}


# Catches: the standard deviation of a group of one, which is NaN; the rounding error of .7 - mean of eight .7, which is
# not 0, and which is 1 after a division by an equally small standard deviation; a missing `where`. In
# `group_advantage`, the mean of `std_mean` happens to be exact. There it catches a missing `where` only together with
# `correction=1` or with another mean.
@pytest.mark.parametrize("advantage", ADVANTAGES.values(), ids=ADVANTAGES)
@pytest.mark.parametrize(("reward", "samples"), [(1.0, 1), (0.7, 8), (0.0, 8), (1e6 + 0.1, 3)])
def test_groups_with_zero_variance_have_an_advantage_of_zero(advantage, reward, samples):
    assert torch.equal(advantage(torch.full((5 * samples,), reward), samples), torch.zeros(5 * samples))


# Catches: each missing `where` of the functions above; REINFORCE++ that whitens the rounding errors of equal rewards,
# which then are as large as real advantages. Adam would make a full step with them, because its steps do not depend on
# the size of the gradient.
@pytest.mark.parametrize("method", [m for m in LEARNING if m not in ("reinforce", "best_of_n")])
def test_equal_rewards_do_not_change_the_weights(method, train, start):
    class Same(Mixed):
        def reward(self, problem, response):
            return 0.7

    settings = {"overlong": 0} if method == "dapo" else {}
    for samples in (4, 1) if method == "reinforce_pp" else (4,):
        result = train(method, task=Same(), samples=samples, **settings)
        assert result.status == "finished" and weights(result.policy.model).equal(start_weights(start))


LOSSES = {"policy_gradient": lambda logp, old, adv, mask: policy_gradient(logp, adv, mask)[0],
          "clipped_surrogate": lambda logp, old, adv, mask: clipped_surrogate(logp, old, adv, (0.2, 0.28), mask)[0]}


# Catches: a mean over no steps, which is NaN without the `clamp(min=1)` of masked.py; a product with the mask, in which
# the NaN of an empty row stays NaN.
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("settings", [{"mode": "token"}, {"mode": "token", "denominator": 6}, {"mode": "sequence"},
                                      {"mode": "constant", "length": 7}], ids=str)
def test_empty_rows_have_no_gradient(loss, settings):
    g, mask = torch.Generator().manual_seed(0), torch.tensor([[1.0, 1, 0], [0, 0, 0], [1, 0, 1]])
    logp, noise, adv = (torch.where(mask > 0, torch.randn(3, 3, generator=g), torch.nan) for _ in range(3))
    old = logp + 0.05 * noise                                             # within the clip range
    logp.requires_grad_()
    aggregate(loss(logp, old, adv, mask), mask, **settings).backward()
    assert torch.equal(logp.grad != 0, mask > 0)

    nothing = torch.zeros(2, 3)
    logp = torch.full((2, 3), torch.nan, requires_grad=True)
    value = aggregate(loss(logp, logp.detach(), torch.full((2, 1), torch.nan), nothing), nothing, **settings)
    value.backward()
    assert value == 0 and torch.equal(logp.grad, nothing)
    returns = reinforce.reward_to_go(torch.ones(2), torch.full((2, 3), torch.nan), 0.1, nothing)
    assert torch.equal(returns, nothing) and torch.equal(whiten(returns, nothing), nothing)


# Catches: one group for two equal prompts, found by their text or by equal `of`.
@pytest.mark.parametrize("method", ["rloo", "grpo", "dr_grpo"])
def test_equal_prompts_in_a_batch_have_separate_groups(method, catch):
    call = catch(method, task=Repeated(), prompts=3)
    adv, rewards = call.per_row[0].view(3, 4), call.batch.rewards.view(3, 4)
    centred = rewards - rewards.mean(1, keepdim=True)
    assert len(rewards.mean(1).unique()) > 1 and centred.any(1).all()
    torch.testing.assert_close(torch.cosine_similarity(adv, centred), torch.ones(3))


# Seeds and initial weights.

def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def start_weights(folder):
    return weights(load_model(folder).model)


# Catches: a missing `manual_seed` in `Training`; problems sampled with the global generator of NumPy.
@each_method
def test_only_the_seed_determines_the_weights(method, train):
    settings = {"total_steps": 4, "lr": 0.01} | ({} if method in ("sft", *REINFORCE) else {"minibatches": 2})

    def end(junk, seed):
        torch.manual_seed(junk)
        np.random.seed(junk)
        random.seed(junk)
        torch.rand(junk), np.random.rand(junk)
        return weights(train(method, seed=seed, **settings).policy.model)

    first = end(11, seed=1)
    assert torch.equal(end(22, seed=1), first)
    assert not torch.allclose(end(11, seed=2), first, atol=1e-3)


# Catches: a generator of the sampler that does not depend on the seed.
@pytest.mark.parametrize("method", LEARNING)
def test_seed_determines_the_sampled_responses(method, catch):
    one, other = (catch(method, task=Repeated(), seed=seed).batch.responses.ids for seed in (1, 2))
    assert not torch.equal(one, other)


# Catches: a missing seed in `fresh`.
def test_only_the_seed_determines_the_weights_of_a_new_model(train):
    def end(junk, seed):
        torch.manual_seed(junk)
        return weights(train("sft", model="", seed=seed).policy.model)

    assert torch.equal(end(11, 1), end(22, 1)) and not torch.allclose(end(11, 1), end(11, 2), atol=1e-3)


RATED = [name for name, a in algorithms("llm").items()
         if not a.variant and "warmup" in settings_of(a.load().Config)]
FEW = {"pairs": 8, "batch": 8, "data": 32, "keep": 0.0, "prompts": 4, "samples": 4, "perturbations": 2, "trials": 8,
       "minibatches": 1, "value_lr": 0.01}


# Catches: a step without the learning rate of its update; a warmup or a decay that is not passed on.
@pytest.mark.parametrize("method", RATED)
def test_each_update_has_its_learning_rate(method, start, tmp_path, monkeypatch):
    rates, step = [], FlatAdam.step

    def told(optimizer, lr=None):
        rates.append(lr)
        return step(optimizer, lr)

    monkeypatch.setattr(FlatAdam, "step", told)
    module = algorithms("llm")[method].load()
    own = {"task": Mixed(), "model": start} if module.Config.task == LanguageConfig.task else {}
    few = {name: x for name, x in FEW.items() if name in settings_of(module.Config)}
    cfg = module.Config(**{**TINY, "total_steps": 3, "warmup": 2, "anneal": True, "lr": 0.01}, **few, **own,
                        log_dir=str(tmp_path))
    module.train(cfg)
    expected = [step_size(0.01, update, 3, 2, True) for update in range(3)]
    found = [lr for lr in rates if lr is not None]            # a separate predictor has a constant one
    assert [rate for rate, _ in itertools.groupby(found)] == pytest.approx(expected)
