"""DPO and its variants: each loss compared with its equation, and training runs on preference pairs."""
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot, pad

from llm import preferences
from llm.algos import dpo
from llm.algos.dpo import Config, divergence_elsewhere, first_different_step, log_odds, preference_loss
from llm.policy.generate import Prompts
from llm.policy.score import score
from llm.preferences import compare, ranked_rightly, rows_of
from llm.rollout import Batch
from llm.run import Run
from llm.tasks import testbed as bed
from spinup.core.kl import kl_categorical
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint
from tests.llm.algos.conftest import close, earned, sigmoid
from tests.llm.conftest import Call, Stop
from tests.relations import in_module

# For the tests of all methods; `suite_of` in tests/llm/conftest.py describes it.
SUITE = {
    "settings": {"batch": 4, "pairs": 8},
    "own": ["logp_chosen", "logp_rejected", "reward_margin", "train_accuracy"],
    "logged": ["pair_accuracy"],
    "lacking": ["reward", "reward_std", "zero_variance", "cut_off", "logp", "kl", "clip_fraction", "ratio_min",
        "ratio_max"],
    "online_dpo": {"lacking": ["logp", "kl", "clip_fraction"]}}

FAR = 4                                 # the tested update: the policy then differs from its reference policy
DPO = [*in_module("llm.algos.dpo", "llm")]
each_method = pytest.mark.parametrize("method", DPO)


# The losses, computed with plain numbers.

BETA, PENALTY, ALPHA, MARGIN, Z = 0.3, 7.0, 0.4, 0.6, 0.25
# Two pairs of a chosen and a rejected response. In the first pair the chosen one became more likely, in the second
# pair less likely.
D, LOGP, LENGTHS, K = [[0.7, -1.1], [-0.4, 0.9]], [[-6.0, -9], [-5, -2]], [[4.0, 3], [2, 5]], [[0.8, 0.5], [0.2, 1.3]]


def worked(kind, d, logp, n, k):
    """Loss of a pair and its derivatives with respect to D, log pi and K of both responses, derived by hand."""
    zero, beta = (0.0, 0.0), BETA
    if kind == "ipo":
        gap = d[0] / n[0] - d[1] / n[1] - 1 / (2 * beta)
        return gap**2, (2 * gap / n[0], -2 * gap / n[1]), zero, zero
    if kind == "kto":
        good, bad = sigmoid(beta * (d[0] - Z)), sigmoid(beta * (Z - d[1]))
        return 1 - (good + bad) / 2, (-beta * good * (1 - good) / 2, beta * bad * (1 - bad) / 2), zero, zero
    if kind == "simpo":
        u = beta * logp[0] / n[0] - beta * logp[1] / n[1] - MARGIN
        return -math.log(sigmoid(u)), zero, (-sigmoid(-u) * beta / n[0], sigmoid(-u) * beta / n[1]), zero
    if kind == "orpo":
        mean = [logp[0] / n[0], logp[1] / n[1]]
        u = sum(sign * (x - math.log(1 - math.exp(x))) for sign, x in zip((1, -1), mean, strict=True))
        steep = [sigmoid(-u) * beta / (1 - math.exp(x)) for x in mean]    # d log odds / d mean = 1 / (1 - p)
        return (-mean[0] - beta * math.log(sigmoid(u)), zero, ((-1 - steep[0]) / n[0], steep[1] / n[1]), zero)
    if kind == "tdpo":
        u = beta * (d[0] - d[1]) - ALPHA * (beta * k[1] - beta * k[0])
        return -math.log(sigmoid(u)), (-sigmoid(-u) * beta, sigmoid(-u) * beta), zero, (0.0, sigmoid(-u) * beta * ALPHA)
    steeper = 1 + PENALTY if kind == "dpop" and d[0] < 0 else 1.0
    u = beta * (steeper * d[0] - d[1])                                    # dpo, step_dpo, dpop
    return -math.log(sigmoid(u)), (-sigmoid(-u) * beta * steeper, sigmoid(-u) * beta), zero, zero


# Catches: sums in place of means (ipo, simpo), or means in place of sums (dpo); 1 / beta in place of 1 / (2 beta), or
# beta inside the square (ipo); the max of dpop with the wrong sign; alpha or the stop-gradient on the wrong response
# (tdpo); a margin with the wrong sign (simpo); a baseline without beta, or a sum in place of the mean (kto); rows of
# pairs in the wrong order (all).
@pytest.mark.parametrize("kind", ["dpo", "ipo", "dpop", "tdpo", "simpo", "orpo", "step_dpo", "kto"])
def test_losses_and_gradients_follow_their_equations(kind):
    given = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (D, LOGP, LENGTHS, K)]
    cfg = SimpleNamespace(beta=BETA, penalty=PENALTY, alpha=ALPHA, margin=MARGIN)
    found = preference_loss(kind, *given, torch.tensor(Z).double(), cfg)
    value, *slopes = (list(column) for column in zip(*map(worked, [kind] * 2, D, LOGP, LENGTHS, K), strict=True))
    close(found, value)
    found.sum().backward()
    for x, slope in zip((given[0], given[1], given[3]), slopes, strict=True):
        close(torch.zeros_like(x) if x.grad is None else x.grad, slope)


# Catches: log(1 - exp(x)), which is imprecise near a probability of 1; a gradient of NaN at a probability of 1, in
# either branch.
def test_log_odds_are_precise_near_probabilities_0_and_1():
    logp = torch.tensor([-1e-6, -0.5, -0.7, -40.0, 0.0], requires_grad=True)
    found = log_odds(logp)
    expected = [x - math.log(-math.expm1(x)) for x in (-1e-6, -0.5, -0.7, -40.0)]
    torch.testing.assert_close(found[:4], torch.tensor(expected), rtol=1e-5, atol=1e-6)
    found.sum().backward()
    slopes = [-1 / math.expm1(x) for x in (-1e-6, -0.5, -0.7, -40.0)]
    torch.testing.assert_close(logp.grad, torch.tensor([*slopes, 0.0]), rtol=1e-4, atol=1e-6)
    assert found.isfinite().all()


def policies(seed=1):
    """A testbed, two policies on it, and the log-probabilities of all responses under both, without a gradient."""
    testbed, policy, other = bed.Testbed(), bed.TabularPolicy(seed=seed), bed.TabularPolicy(seed=seed + 50)
    return testbed, policy, other, testbed.log_probs(policy).detach(), testbed.log_probs(other).detach()


def by(kind, testbed, policy, log_ref, pairs, **settings):
    """Loss of each pair, `[n]`; `pairs` `[n, 2]` are rows of a testbed's responses."""
    log_p = testbed.log_probs(policy)[pairs]                                                 # [n, 2]
    lengths = torch.full_like(log_p, testbed.length)
    zero = torch.zeros_like(log_p)
    return preference_loss(kind, log_p - log_ref[pairs], log_p, lengths, zero, zero.sum(), Config(**settings))


# Catches: a log ratio with a gradient of the reference policy; a gradient of one response only; a missing weight, which
# is small for pairs that are already ranked correctly.
def test_dpo_gradient_is_weighted_by_the_ranking_error():
    testbed, policy, _, log_p, log_ref = policies()
    pairs, beta = torch.tensor([[3, 40], [40, 3], [17, 16]]), 0.5
    expected = torch.zeros_like(policy.logits)
    for won, lost in pairs.tolist():
        weight = sigmoid(-beta * float(log_p[won] - log_ref[won] - log_p[lost] + log_ref[lost]))
        for response, sign in ((won, -1), (lost, 1)):
            a, b, c = testbed.sequences[response].tolist()
            for row, token in ((0, a), (1 + a, b), (5 + 4 * a + b, c)):                      # d log pi / d logits
                slope = one_hot(torch.tensor(token), 4) - policy.logits[row].detach().softmax(0)
                expected[row] += sign * beta * weight * slope
    found, = torch.autograd.grad(by("dpo", testbed, policy, log_ref, pairs, beta=beta).sum(), [policy.logits])
    torch.testing.assert_close(found, expected)


def table_of(log_p):
    """The policy whose responses have these log-probabilities `[64]`."""
    p, policy = log_p.exp().view(4, 4, 4), bed.TabularPolicy()
    with torch.no_grad():
        policy.logits.copy_(torch.cat([p.sum((1, 2))[None], p.sum(2), p.view(16, 4)]).log())
    return policy


# The claim of DPO: with infinitely many pairs, its optimum is the optimal policy for the reward with a KL penalty,
# whichever policy sampled the pairs. Catches: a missing beta, or one that is applied twice; means over tokens; a reward
# with the wrong sign.
@pytest.mark.parametrize("beta", [0.1, 0.7])
def test_dpo_gradient_is_zero_at_the_optimal_policy(beta):
    testbed, drawer, _, log_drawn, log_ref = policies()
    everything = torch.cartesian_prod(torch.arange(64), torch.arange(64))                    # [4096, 2]
    better = torch.sigmoid(testbed.rewards[everything[:, 0]] - testbed.rewards[everything[:, 1]])
    chance = log_drawn[everything].sum(1).exp() * better
    best = table_of(testbed.optimal(log_ref, beta))

    def slope(kind, policy, **settings):
        each = by(kind, testbed, policy, log_ref, everything, beta=beta, **settings)
        return torch.autograd.grad((2 * chance * each).sum(), [policy.logits])[0]

    torch.testing.assert_close(slope("dpo", best), torch.zeros_like(best.logits))
    for kind, policy in ("dpo", drawer), ("ipo", best), ("simpo", best):  # they have other optima
        assert slope(kind, policy).norm() > 1e-4


# Catches: the stop-gradient on K(l), on both or on neither; KL(pi || pi_ref) in place of KL(pi_ref || pi).
def test_tdpo_has_no_gradient_through_the_kl_of_the_chosen_response():
    testbed, policy, other, _, _ = policies()
    pairs, cfg, h = torch.tensor([[3, 40], [17, 62]]), Config(loss="tdpo", beta=0.5, alpha=0.8), 1e-5
    before = testbed.logp(other, testbed.sequences).detach()

    def divergence():
        contexts = testbed.sequences[:, :-1]
        log_ref, log_pi = (p(contexts).log_softmax(-1) for p in (other, policy))             # [64, 3, 4]
        return (log_ref.exp() * (log_ref - log_pi)).sum((1, 2))[pairs]

    def loss(k):
        logp = testbed.logp(policy, testbed.sequences)
        sums = (logp - before).sum(1)[pairs], logp.sum(1)[pairs], torch.full((2, 2), 3.0), k
        return preference_loss("tdpo", *sums, None, cfg).sum()

    def slopes(fixed):
        """Gradient by finite differences. `fixed`: K of the chosen responses is constant."""
        held, found = divergence().detach(), torch.zeros_like(policy.logits)
        for place in np.ndindex(found.shape):
            ends = []
            for step in (h, -h):
                with torch.no_grad():
                    policy.logits[place] += step
                    k = divergence()
                    ends.append(loss(torch.stack([held[:, 0] if fixed else k[:, 0], k[:, 1]], 1)))
                    policy.logits[place] -= step
            found[place] = (ends[0] - ends[1]) / (2 * h)
        return found.detach()

    found, = torch.autograd.grad(loss(divergence()), [policy.logits])
    torch.testing.assert_close(found, slopes(fixed=True), atol=1e-8, rtol=0)
    assert (found - slopes(fixed=False)).norm() > 0.1 * found.norm()


# The end token is 9, and the tokens after it are arbitrary. Catches: a mask without the first token that differs, or
# without equal tokens after it; rows of pairs in the wrong order; a mask that includes tool tokens; a step that
# continues after its end, or that ends at the end of an earlier step.
def test_first_different_step_is_the_only_step_in_the_mask():
    ids = torch.tensor([[1, 2, 3, 9, 7], [1, 2, 4, 9, 7],                 # equal again after the difference
                        [5, 2, 3, 4, 9], [6, 2, 9, 4, 9],                 # differ from the first token on
                        [1, 2, 9, 3, 3], [1, 2, 3, 3, 9],                 # the first text is a prefix of the second
                        [9, 1, 1, 1, 1], [1, 9, 1, 1, 1],
                        [1, 8, 8, 2, 9], [1, 8, 8, 3, 9]])                # a tool wrote 8 8
    mask = torch.tensor([[1.0, 1, 1, 1, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0],
                         [1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 1, 1], [1, 0, 0, 1, 1]])
    whole = [[0.0, 0, 1, 1, 0], [0, 0, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 0, 0],
             [0, 0, 1, 1, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]
    assert first_different_step(ids, mask, torch.tensor([9])).tolist() == whole
    single = [[float(column == at) for column in range(5)] for at in (2, 0, 2, 0, 3) for _ in range(2)]
    assert first_different_step(ids, mask, torch.tensor([], dtype=torch.long)).tolist() == single
    steps = torch.tensor([[1, 5, 2, 2, 5, 3, 5], [1, 5, 2, 4, 4, 5, 3]])                     # 5 ends a step
    found = first_different_step(steps, torch.ones(2, 7), torch.tensor([5, 6]))
    assert found.tolist() == [[0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 0]]


# Catches: a micro-batch that splits a pair.
def test_micro_batch_that_splits_a_pair_is_refused():
    with pytest.raises(UserError, match="--micro-batch 3 would split a pair"):
        Config(micro_batch=3)


# Training runs.

@pytest.fixture(scope="module")
def catch(train):
    """Call number `at` of `Run.backward` in a training run, cached: `catch("ipo", at=4)`."""
    made = {}

    def catch(method, at=FAR):
        if (method, at) not in made:
            backward, calls = Run.backward, []

            def stop(*args, **whole):
                calls.append(args)
                if len(calls) == at:
                    raise Stop(args, whole)
                return backward(*args, **whole)

            with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop) as caught:
                patch.setattr(Run, "backward", stop)
                own = {"samples": 2} if method == "kto" else {}              # otherwise z would be 0; see its test
                train(method, temperature=0.7, total_steps=at, lr=0.02, warmup=0, **own)
            (run, batch, rows, loss, *per_row), whole = caught.value.args
            made[method, at] = Call(run, batch, rows, loss, per_row, whole)
        return made[method, at]
    return catch


def same(found, expected):
    """Compare two (gradient, diagnostics): the gradients to a millionth of their norm, and the losses."""
    length = float(expected[0].norm())
    assert length > 1e-3
    torch.testing.assert_close(found[0], expected[0], atol=1e-6 * max(1, length), rtol=0)
    assert found[1]["loss"] == pytest.approx(expected[1]["loss"], rel=1e-5)


def plainly(model, prompts, of, ids, b, n):
    """Logits `[n, vocab]` of the first n tokens of response b, after its whole prompt, without padding."""
    prompt = prompts.ids[of[b], :prompts.lengths[of[b]]]
    return model(torch.cat([prompt, ids[b, :n]])[None])[0, len(prompt) - 1:-1]


def sums(call, b, of=None, only=None):
    """D, log pi, number of the policy's tokens and K of response b, or of its token `only`, after prompt `of[b]`."""
    r, prompts, T = call.batch.responses, call.batch.prompts, call.run.config.temperature
    of, n = r.of if of is None else of, int(r.lengths[b])
    log_pi, log_ref = ((plainly(m, prompts, of, r.ids, b, n) / T).log_softmax(-1)
                       for m in (call.run.model, call.run.reference))
    own = [t for t in range(n) if r.mask[b, t] and only in (None, t)]
    nothing = 0 * log_pi.sum()
    logp = nothing + sum(log_pi[t, r.ids[b, t]] for t in own)
    before = (nothing + sum(log_ref[t, r.ids[b, t]] for t in own)).detach()
    return logp - before, logp, len(own), nothing + sum(kl_categorical(log_ref[t], log_pi[t]) for t in own)


def elsewhere(call):
    """z of KTO before its clamp: the mean of D over the responses, each after the prompt of the next pair."""
    rows, of = call.rows.tolist(), call.batch.responses.of
    moved = dict(zip(rows, of[call.rows.roll(-2)].tolist(), strict=True))
    given = torch.tensor([moved.get(b, 0) for b in range(len(of))])
    return sum(sums(call, b, given)[0].item() for b in rows) / len(rows)


def by_hand(call, method):
    """Loss of a call as in the paper, one response at a time, without padding, micro-batches or masks; and its
    diagnostics: log pi of both responses, and beta times the difference of D, or of the mean log pi without D."""
    cfg, r, total, shown = call.run.config, call.batch.responses, 0.0, []
    z = max(0.0, elsewhere(call)) if method == "kto" else None
    for won, lost in call.rows.view(-1, 2).tolist():
        only = None
        if method == "step_dpo":                                          # no character ends a step: it is one token
            only = next(t for t in range(r.ids.shape[1]) if r.ids[won, t] != r.ids[lost, t])
        (dw, logp_w, nw, kw), (dl, logp_l, nl, kl) = (sums(call, b, only=only) for b in (won, lost))
        u = {"dpop": dw - cfg.penalty * torch.relu(-dw) - dl, "tdpo": dw - dl - cfg.alpha * (kl - kw.detach()),
             "simpo": logp_w / nw - logp_l / nl - cfg.margin / cfg.beta}.get(method, dw - dl)
        each = -torch.log(torch.sigmoid(cfg.beta * u))
        if method == "ipo":
            each = (dw / nw - dl / nl - 1 / (2 * cfg.beta)) ** 2
        if method == "orpo":
            odds = [x / n - torch.log(1 - torch.exp(x / n)) for x, n in ((logp_w, nw), (logp_l, nl))]
            each = -logp_w / nw - cfg.beta * torch.log(torch.sigmoid(odds[0] - odds[1]))
        if method == "kto":
            each = 1 - (torch.sigmoid(cfg.beta * (dw - z)) + torch.sigmoid(cfg.beta * (z - dl))) / 2
        total = total + each
        gap = logp_w / nw - logp_l / nl if method in ("simpo", "orpo") else dw - dl
        shown.append([logp_w.item(), logp_l.item(), cfg.beta * gap.item()])
    return total / len(shown), np.array(shown)


# Catches: a mean in place of a sum; prompt tokens in the sum; a reference policy with another temperature; a sum
# without the end token; tool tokens in a sum or a length; a reference policy that has changed; K of padding, or of
# tokens one step late; z of the response's own prompt. In Step-DPO the common prefix of a pair cancels in the loss, so
# only the logged log-probabilities show whether it was left out.
@each_method
def test_update_follows_the_equation_of_its_method(method, catch):
    call = catch(method)
    r = call.batch.responses
    inside = torch.arange(r.ids.shape[1]) < r.lengths[:, None]
    assert (inside & (r.mask == 0)).any() and len(r.lengths.unique()) > 2                    # tools and many lengths
    assert len(call.batch.prompts.lengths.unique()) > 2
    if method == "kto":
        assert elsewhere(call) > 0.1
    loss, shown = by_hand(call, method)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(call.run.model.parameters()))])
    found = call.gradient()
    same(found, (expected, {"loss": loss.item()}))
    names = ("logp_chosen", "logp_rejected", "reward_margin")
    assert [found[1][name] for name in names] == pytest.approx(shown.mean(0).tolist(), abs=1e-4)
    assert found[1]["train_accuracy"] == pytest.approx((shown[:, 2] > 0).mean())


# Catches: an initial policy that differs from its reference policy: another temperature, padding in a sum, changed
# weights.
@pytest.mark.parametrize(("method", "loss"), [("dpo", math.log(2)), ("dpop", math.log(2)), ("tdpo", math.log(2)),
                                              ("step_dpo", math.log(2)), ("online_dpo", math.log(2)),
                                              ("ipo", 25.0), ("kto", 0.5)])
def test_first_loss_is_that_of_equal_policy_and_reference(method, loss, catch):
    call = catch(method, at=1)
    gradient, found = call.gradient()
    assert found["loss"] == pytest.approx(loss, rel=1e-5) and gradient.norm() > 1e-3


# Catches: padding that is recognised by a token id; `x * mask` in place of `select`, with which a NaN stays NaN; the
# width of the batch in place of a length; K of tokens after the end.
@each_method
def test_padding_does_not_change_loss_and_gradient(method, catch):
    call = catch(method)
    r, more, g = call.batch.responses, 3, torch.Generator().manual_seed(1)
    mask = pad(r.mask, (0, more))
    beyond = torch.arange(mask.shape[1]) >= r.lengths[:, None]
    ids = torch.where(beyond, torch.randint(12, mask.shape, generator=g), pad(r.ids, (0, more)))
    logp, before = (torch.where(beyond, math.nan, pad(x, (0, more))) for x in (r.logp, call.per_row[0]))
    ends, wide = call.batch.prompts.lengths, call.batch.prompts.ids.shape[1] + 2
    junk = torch.randint(12, (len(ends), wide), generator=g)
    asked = torch.where(torch.arange(wide) < ends[:, None], pad(call.batch.prompts.ids, (0, 2)), junk)
    batch = replace(call.batch, responses=replace(r, ids=ids, mask=mask, logp=logp), prompts=Prompts(asked, ends))
    whole = call.whole | {"pairs": batch}
    if method == "kto":
        whole["baseline"] = divergence_elsewhere(call.run, batch, batch.responses[call.rows])
        close(whole["baseline"], divergence_elsewhere(call.run, call.batch, r[call.rows]))
    same(call.gradient(batch=batch, per_row=[before], whole=whole), call.gradient())


# Catches: a sum that is divided by the pairs of a micro-batch; `zero_grad` between micro-batches; a gradient that
# depends on the order of the pairs.
@each_method
def test_micro_batches_and_order_of_pairs_do_not_change_the_gradient(method, catch):
    call = catch(method)
    whole, mixed = call.gradient(), call.rows.view(-1, 2).flip(0).flatten()
    for micro_batch in (2, 4):
        same(call.gradient(micro_batch), whole)
    same(call.gradient(rows=mixed), whole)


# Catches: an optimiser step for each micro-batch of an update, in dpo.py or in reward_model.py.
@pytest.mark.parametrize("method", ["dpo", "kto", "reward_model"])
def test_micro_batches_lead_to_the_same_weights(method, train, parts):
    weights = []
    for micro_batch in (0, 4):
        train(method, micro_batch=micro_batch, lr=0.01, warmup=0)
        weights.append(torch.cat([p.detach().flatten() for p in parts[-1]["model"].parameters()]))
    torch.testing.assert_close(*weights, atol=1e-5, rtol=0)


# Catches: a log ratio in SimPO or ORPO; log-probabilities under the reference policy that these two compute without
# need.
def test_only_simpo_and_orpo_ignore_the_reference_policy(catch):
    for method in DPO:
        call = catch(method)
        found = call.gradient(per_row=[call.per_row[0] * 1.5 + 1])[0]
        assert torch.equal(found, call.gradient()[0]) == (method in ("simpo", "orpo"))
        assert call.per_row[0].any() == (method not in ("simpo", "orpo"))


# Catches: the prompts of the responses themselves; the prompts of the previous pair; rows in the order of sampling; a
# missing clamp; a mean over tokens; a gradient.
def test_kto_baseline_uses_the_prompts_of_the_next_pairs(catch):
    call = catch("kto")
    run, z = call.run, elsewhere(call)
    swapped = replace(call, run=Swapped(run))
    assert z == pytest.approx(-elsewhere(swapped), abs=1e-5) and z > 0.01
    drawn = call.batch.responses[call.rows]
    for each, expected in ((run, z), (swapped.run, -z)):
        found = divergence_elsewhere(each, call.batch, drawn)
        assert found.item() == pytest.approx(max(0.0, expected), abs=1e-5) and not found.requires_grad
    prompts = call.batch.prompts
    same = replace(call.batch, prompts=replace(prompts, ids=prompts.ids[:1].expand_as(prompts.ids),
                                               lengths=prompts.lengths[:1].expand_as(prompts.lengths)))
    assert divergence_elsewhere(run, same, drawn) == 0                    # all pairs have one prompt
    at_start = catch("kto", at=1)
    assert at_start.whole["baseline"] == 0 and not at_start.whole["baseline"].requires_grad


class Swapped:
    """A run with policy and reference policy exchanged: every log ratio changes its sign."""

    def __init__(self, run):
        self.model, self.reference, self.config = run.reference, run.model, run.config


# Catches: log-probabilities in place of log ratios; an effect of the padding of prompts.
def test_pair_accuracy_of_a_policy_uses_log_ratios(catch):
    call = catch("dpo")
    pairs = replace(call, rows=torch.arange(len(call.batch.texts)))
    d = torch.tensor([sums(pairs, b)[0].item() for b in pairs.rows.tolist()]).view(-1, 2)
    expected = (d[:, 0] > d[:, 1]).float().mean()
    assert 0 < expected < 1 and ranked_rightly(call.run, call.batch, call.per_row[0]) == expected


# Catches: only the first pairs, of a file that may be sorted.
def test_ranked_pairs_are_spread_over_all_pairs(catch, monkeypatch):
    call = catch("dpo")
    n, picked, pick = len(call.batch.texts) // 2, [], Batch.pick
    monkeypatch.setattr(preferences, "RANKED", n // 2)
    monkeypatch.setattr(Batch, "pick", lambda batch, rows: picked.append(rows.tolist()) or pick(batch, rows))
    ranked_rightly(call.run, call.batch, call.per_row[0])
    pairs = [row // 2 for row in picked[0][::2]]
    assert picked[0] == rows_of(torch.tensor(pairs)).tolist() and pairs[1] > 1 and pairs[-1] >= n - 3


# Catches: the worse response first; noise in the held-out pairs; no noise in the training pairs; held-out prompts among
# the training prompts.
def test_pairs_follow_the_rewards_with_noise_only_in_training(catch, train, monkeypatch):
    find, found = dpo.find_pairs, []

    def spy(*args, **kwargs):
        found.append(find(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(dpo, "find_pairs", spy)
    train("dpo", noise=2.0, pairs=100)
    train("dpo", pairs=100)
    right = [(b.rewards[0::2] > b.rewards[1::2]).float().mean() for b in found]              # held-out, training; twice
    assert [len(b.rewards) for b in found] == [16, 200] * 2
    assert right[0] == right[2] == right[3] == 1 and 0.4 < right[1] < 0.8
    for b in found:
        prompts = [b.problems[of].prompt for of in b.responses.of.tolist()]
        assert prompts[0::2] == prompts[1::2]
        assert b.rewards.tolist() == pytest.approx([earned(*x) for x in zip(prompts, b.texts, strict=True)])
    asked = [{b.problems[of].prompt for of in b.responses.of.tolist()} for b in found[:2]]
    assert not asked[0] & asked[1]


# Catches: pairs sampled with replacement; the same order in all passes; indices of pairs in place of rows of responses.
def test_training_uses_every_pair_once_per_pass(train, monkeypatch):
    backward, used = Run.backward, []

    def spy(run, batch, rows, *args, **whole):
        assert rows[0::2].equal(rows[1::2] - 1)
        used.append((rows[0::2] // 2).tolist())
        return backward(run, batch, rows, *args, **whole)

    monkeypatch.setattr(Run, "backward", spy)
    train("dpo", batch=4, total_steps=6)
    first, second = ([i for pairs in part for i in pairs] for part in (used[:3], used[3:]))
    assert sorted(first) == sorted(second) == list(range(12)) and first != second


# Catches: pairs of one rollout in all updates; the first two of four responses; the best and the second-best response;
# an older policy, for the samples or for the log-probabilities; rows of the batch in place of rows of the pairs.
def test_online_dpo_compares_responses_of_the_current_policy(train, monkeypatch):
    sample, backward, drawn, used = Run.sample, Run.backward, [], []

    def draw(run, problems, samples=1, greedy=False, generator=None):
        batch = sample(run, problems, samples, greedy, generator)
        if samples == 4:
            drawn.append(batch)
        return batch

    def spy(run, batch, rows, loss, logp_ref, **whole):
        r = batch.responses
        now, before = (score(m, batch.prompts, r.of, r.ids)[0].detach() for m in (run.model, run.reference))
        torch.testing.assert_close(torch.where(r.mask > 0, now, 0.0), r.logp, atol=1e-5, rtol=0)
        torch.testing.assert_close(logp_ref, before, atol=1e-5, rtol=0)
        used.append((batch, rows.tolist(), (now - before).abs().max()))
        return backward(run, batch, rows, loss, logp_ref, **whole)

    monkeypatch.setattr(Run, "sample", draw)
    monkeypatch.setattr(Run, "backward", spy)
    train("online_dpo", samples=4, total_steps=3, lr=0.02, warmup=0)
    assert len(drawn) == len(used) == 3 and used[0][2] == 0 < used[2][2]
    for whole, (pairs, rows, _) in zip(drawn, used, strict=True):
        groups = whole.rewards.view(-1, 4)
        apart = groups.amax(1) > groups.amin(1)
        assert rows == list(range(2 * int(apart.sum()))) and len(pairs.texts) == len(rows) > 0
        close(pairs.rewards.view(-1, 2), torch.stack([groups.amax(1), groups.amin(1)], 1)[apart])
        places = pairs.responses.of.tolist()
        assert places[0::2] == places[1::2] == apart.nonzero()[:, 0].tolist()
        assert all(text in whole.texts[4 * p:4 * p + 4] for text, p in zip(pairs.texts, places, strict=True))


# Catches: a step with the gradient of an earlier update; the loss of no pairs, which is NaN.
@pytest.mark.parametrize("loss", ["dpo", "kto"])
def test_online_dpo_makes_no_step_if_all_rewards_are_equal(loss, train, parts, monkeypatch):
    sample = Run.sample

    def draw(run, problems, samples=1, greedy=False, generator=None):
        batch = sample(run, problems, samples, greedy, generator)
        if samples == 2 and generator is None:                            # not those of the held-out pairs
            batch.rewards = torch.ones_like(batch.rewards)
        return batch

    monkeypatch.setattr(Run, "sample", draw)
    result = train("online_dpo", loss=loss, lr=0.02, warmup=0)
    found = torch.cat([p.detach().flatten() for p in parts[0]["model"].parameters()])
    assert result.status == "finished" and found.isfinite().all() and parts[0]["optimizer"].steps == 0


# Catches: an order of the pairs that starts from the beginning; pairs of the current policy in place of the initial
# one; a reference policy that is read from the checkpoint; other pairs than before, without an error.
@pytest.mark.parametrize("method", ["dpo", "kto", "online_dpo", "reward_model"])
def test_interrupted_run_resumes_with_the_same_weights(method, train, parts, monkeypatch, tmp_path):
    settings = {"total_steps": 5, "lr": 0.01, "noise": 0.5, "warmup": 0}
    updates, pause = Run.updates, []

    def interrupted(run, total, steps_each=1):
        for update in updates(run, total, steps_each):
            if pause and update == pause[0]:
                run.interruption.received = 2
            yield update

    whole = train(method, **settings)
    monkeypatch.setattr(Run, "updates", interrupted)
    pause.append(2)
    first = train(method, **settings, log_dir=str(tmp_path))
    assert first.status == "interrupted" and load_checkpoint(first.directory / "checkpoint.pt")["update"] == 3
    pause.clear()
    with monkeypatch.context() as patch:                                  # a reward that has changed
        patch.setattr(preferences, "compare", lambda *args: compare(*args).flip(1))
        with pytest.raises(UserError, match="this run began with other preference pairs"):
            train(method, first.directory, **settings, log_dir=str(tmp_path))
    second = train(method, first.directory, **settings, log_dir=str(tmp_path))
    weights = [torch.cat([p.detach().flatten() for p in parts[i]["model"].parameters()]) for i in (0, 1, -1)]
    assert second.status == "finished" and torch.equal(weights[2], weights[0])
    assert not torch.equal(weights[1], weights[0])
    timeless = ("loss", "grad_norm", "train_accuracy", "pair_accuracy")
    assert {k: second.progress[k] for k in timeless} == {k: whole.progress[k] for k in timeless}


# Catches: a baseline that is measured after the pair's own prompt, because there is no other prompt.
def test_kto_baseline_of_a_single_pair_is_zero(train, monkeypatch):
    backward, found = Run.backward, []

    def spy(*args, **whole):
        found.append(float(whole["baseline"]))
        return backward(*args, **whole)

    monkeypatch.setattr(Run, "backward", spy)
    train("kto", batch=1, total_steps=6, lr=0.02, warmup=0, samples=0)
    assert found == [0.0] * 6


# Catches: diagnostics of pairs that are weighted by tokens.
@each_method
def test_micro_batches_do_not_change_the_diagnostics(method, catch):
    call = catch(method)

    def shown(micro_batch):
        found = call.gradient(micro_batch)[1]
        return {name: x for name, x in found.items() if not name.startswith("ratio_")}       # NaN: pairs have no ratios

    whole = shown(0)
    for micro_batch in (2, 4):
        found = shown(micro_batch)
        assert found == pytest.approx(whole, rel=1e-4), (found, whole)


# Catches: a mask that leaves out only the common prefix of a pair. The prefix cancels, so Step-DPO would equal DPO.
def test_step_dpo_gradient_differs_from_dpo(catch):
    call = catch("step_dpo")
    found = call.gradient()
    call.run.config.loss = "dpo"
    plain = call.gradient()
    call.run.config.loss = "step_dpo"
    assert (found[0] - plain[0]).norm() > 0.1 * plain[0].norm()


# Catches: missing columns in an update without pairs; NaN in columns of the responses, which are known.
def test_online_dpo_logs_response_lengths_if_all_rewards_are_equal(train, monkeypatch):
    sample = Run.sample

    def draw(run, problems, samples=1, greedy=False, generator=None):
        batch = sample(run, problems, samples, greedy, generator)
        if samples == 2 and generator is None:
            batch.rewards = torch.ones_like(batch.rewards)
        return batch

    monkeypatch.setattr(Run, "sample", draw)
    result = train("online_dpo", total_steps=2)
    assert all(1 <= x <= 7 for x in result.progress["length"])
