"""REINFORCE, RLOO, ReMax and REINFORCE++: baselines and returns computed by hand, training runs, and distillation."""
import math
import shutil
from pathlib import Path

import pytest
import torch

import llm
from llm.algos import reinforce
from llm.policy.load import load_model
from llm.policy.score import score
from llm.tasks import testbed as bed
from llm.tasks.strings import Reverse
from spinup.algos.vpg import policy_gradient
from spinup.core.kl import k1, kl_categorical
from spinup.core.masked import whiten
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint
from tests.llm.algos.conftest import TINY, close

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


# Training runs.

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
    kept = load_checkpoint(first.result.directory / "checkpoint.pt")["parts"]["expected"]["average"]
    close(kept, 0.6)
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


# Catches: rewards of the verifier's own type, such as bool, which have no mean.
@pytest.mark.parametrize("answer", [True, 1])
def test_verifier_can_return_bools_or_integers(answer, watch):
    task = Reverse(2, 10)
    task.reward = lambda problem, response: answer if len(response) > 2 else 0 * answer
    seen = watch("rloo", task=task, total_steps=1)
    assert seen.drawn[0].rewards.dtype == torch.float32 and set(seen.drawn[0].rewards.tolist()) <= {0.0, 1.0}


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


def test_teacher_requires_the_same_tokens_and_replaces_the_rewards(beginner, make_model, tmp_path):
    other = make_model(task="reverse:length=2,symbols=12", total_steps=2)
    for settings, words in (({"teacher": other}, "tokens of --teacher .* differ from those of the policy; choose a"),
                            ({"teacher": beginner, "kl_coef": 0.1}, "--teacher replaces the rewards and the KL pen"),
                            ({"teacher": str(tmp_path / "none")}, "none")):
        with pytest.raises(UserError, match=words):
            llm.reinforce(**TINY | {"model": beginner}, **settings, log_dir=str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


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
