"""PPO and VAPO: advantages computed by hand, updates compared with the equations, and the value function in a run."""
import json
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import pad

import llm
from llm.algos import ppo, reinforce
from llm.policy.cache import Slots
from llm.policy.load import load_model
from llm.run import Run
from llm.tasks.strings import Reverse
from spinup.core.fast.adam import FlatAdam
from spinup.core.returns import gae
from spinup.errors import UserError
from spinup.registry import algorithms
from spinup.runs.checkpoint import load_checkpoint
from tests.llm.algos.conftest import TINY, close
from tests.llm.conftest import Call, Stop

# For the tests of all methods; `suite_of` in tests/llm/conftest.py describes it.
SUITE = {
    "own": ["value_loss", "explained_variance", "kl_coef"],
    "lacking": ["logp"],
    "vapo": {"settings": {"prompts": 4, "samples": 4, "value_warmup": 1}}}


# The functions.

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


# Training runs.

@dataclass
class Step(Call):
    """A call of `Run.backward`, with the weights of policy and value function before it."""

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
    settings, seen, told = {"total_steps": 5, "kl_coef": 0.1, "kl_target": 0.05, "lr": 0.03, "prompts": 32}, [], []
    token_rewards, adapted = ppo.token_rewards, ppo.adapted

    def spy(rewards, kl, coef, mask):
        seen.append((float(coef), float(kl.sum(1).mean())))
        return token_rewards(rewards, kl, coef, mask)

    def listen(coef, kl, target):
        told.append(float(kl))
        return adapted(coef, kl, target)

    monkeypatch.setattr(ppo, "token_rewards", spy)
    monkeypatch.setattr(ppo, "adapted", listen)
    whole = train_ppo(**settings)
    coefs, kls = zip(*seen, strict=True)
    assert told == pytest.approx(list(kls))                               # nats per response
    assert coefs[0] == pytest.approx(0.1) and abs(kls[0]) < 1e-5 and kls[-1] > 0.06
    expected = [0.1]
    for kl in kls:
        expected.append(expected[-1] * (1 + 0.1 * min(0.2, max(-0.2, kl / 0.05 - 1))))
    assert coefs == pytest.approx(expected[:5], rel=1e-5) and expected[1] < expected[0] and expected[5] > expected[4]
    assert whole.result.progress["kl_coef"] == pytest.approx(expected[1:], rel=1e-5)

    first = train_ppo(**settings, interrupt=2)
    assert first.result.status == "interrupted"
    kept = load_checkpoint(first.result.directory / "checkpoint.pt")["parts"]["beta"]["coef"]
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
