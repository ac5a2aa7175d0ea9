"""Curiosity for language models: the distilled state, the advantage of two reward streams, and the case of GRPO."""
from types import SimpleNamespace

import pytest
import torch

from llm.algos import curiosity, grpo
from llm.policy.cache import Slots
from llm.policy.transformer import Transformer
from llm.run import Run
from spinup.algos.ppo import clipped_surrogate
from spinup.core.fast.adam import FlatAdam
from spinup.errors import UserError

# For the tests of all methods; `suite_of` in tests/llm/conftest.py describes it.
SUITE = {"own": ["bonus", "bonus_std", "bonus_loss"], "lacking": ["logp"]}

TINY = {"task": "lock:length=3,symbols=3", "layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True,
        "tensorboard": False, "threads": 1, "device": "cpu", "prompts": 2, "samples": 8, "warmup": 0, "lr": 0.02,
        "total_steps": 3, "anneal": False}


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Train with a method, and keep the arguments of `Run.backward` and the gradient after it.

    interrupt: the number of updates after which Ctrl-C is pressed.
    """
    backward, keep = Run.backward, Run.keep

    def train(module=curiosity, interrupt=None, resume=None, **given):
        seen = SimpleNamespace(updates=[], result=None)

        def kept(run, **parts):
            seen.parts = parts
            keep(run, **parts)

        def spy(run, batch, rows, loss, *per_row, **whole):
            before = [p.detach().clone() for p in run.model.parameters()]
            novelty = seen.parts["novelty"].state_dict() if module is curiosity else {}
            novelty = {name: x.clone() for name, x in novelty.items()}
            stats = backward(run, batch, rows, loss, *per_row, **whole)
            seen.updates.append(SimpleNamespace(run=run, batch=batch, rows=rows, adv=per_row[0], before=before,
                                                novelty=novelty, whole=whole,
                                                grad=seen.parts["optimizer"].flat.grad.clone()))
            if len(seen.updates) == interrupt:
                run.interruption.received = 2
            return stats

        monkeypatch.setattr(Run, "keep", kept)
        monkeypatch.setattr(Run, "backward", spy)
        settings = TINY | {"log_dir": str(tmp_path)} | given
        name = f"llm {module.__name__.rpartition('.')[2]}"
        seen.result = module.train(module.Config(**settings, algorithm=name), resume)
        return seen
    return train


def own_tokens(batch, b):
    """Prompt and tokens of response b up to the last one that the policy chose."""
    r = batch.responses
    own = int(r.mask[b].sum())
    assert r.mask[b, :own].all()                                          # the episode adds tokens only at the end
    return batch.prompts.ids[r.of[b], :batch.prompts.lengths[r.of[b]]].tolist(), r.ids[b, :own].tolist()


def mlp(x, weights):
    """A network of linear layers with ReLU between them, from its parameters in order."""
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    for i, (weight, bias) in enumerate(layers):
        x = x @ weight.T + bias
        x = x.relu() if i < len(layers) - 1 else x
    return x


def standardised(x):
    """Subtract the mean of each group of 8, and divide by its standard deviation."""
    groups = x.view(2, 8)
    return ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, correction=0, keepdim=True) + 1e-4)).flatten()


def novelties(step):
    """The intrinsic rewards of an update, computed simply, one response at a time."""
    run, found = step.run, []
    part = {side: [x for name, x in step.novelty.items() if name.startswith(side)] for side in ("target", "predict")}
    mean, var = step.novelty["view.mean"], step.novelty["view.var"]
    for b in range(len(step.batch.texts)):
        prompt, own = own_tokens(step.batch, b)
        state = run.reference.hidden(torch.tensor([prompt + own]), Slots())[0, -1]
        x = (((state - mean) / (var + 1e-8).sqrt()).clamp(-5, 5)).float()[None]
        found.append(0.5 * (mlp(x, part["predict"]) - mlp(x, part["target"])).square().mean())
    return torch.stack(found).detach()


# The reference is the classic loss, computed token by token. Catches: the hidden state before the last token, or after
# the end token that the episode adds; the hidden state of the learner in place of the initial policy; exchanged weights
# of the two rewards; one baseline for their sum; a standard deviation of this batch only; a predictor that is trained
# before its error becomes the reward.
def test_gradient_equals_the_classic_loss_computed_token_by_token(train):
    seen = train(reward=lambda prompt, response: response.count("b"), reward_coef=0.7, bonus_coef=1.3, kl_coef=0.4)
    step = seen.updates[2]
    run, batch, r = step.run, step.batch, step.batch.responses
    bonus = novelties(step)
    assert bonus.std() > 1e-3 and batch.rewards.std() > 0.1
    seen_so_far = torch.cat([novelties(x) for x in seen.updates])                             # 3 batches
    groups = bonus.view(2, 8)
    new = (groups - groups.mean(1, keepdim=True)).clamp(min=0).flatten() / seen_so_far.std(correction=0)
    adv = 0.7 * standardised(batch.rewards) + 1.3 * new
    torch.testing.assert_close(step.adv[:, 0], adv, atol=2e-3, rtol=1e-2)
    model = Transformer(run.model.shape)
    for p, before in zip(model.parameters(), step.before, strict=True):
        p.data.copy_(before)
    losses = []
    for b in range(16):
        (prompt, own), each = own_tokens(batch, b), []
        for t, token in enumerate(own):
            ids = torch.tensor([prompt + own[:t]])
            logp, ref = (m.logits(m.hidden(ids, Slots()))[0, -1].log_softmax(-1)[token] for m in (model, run.reference))
            each.append(clipped_surrogate(logp, r.logp[b, t], step.adv[b, 0], (0.2, 0.2))[0]
                        + 0.4 * 0.5 * (logp - ref.detach()) ** 2)
        losses.append(torch.stack(each).mean())
    expected = torch.autograd.grad(torch.stack(losses).mean(), list(model.parameters()))
    expected = torch.cat([g.flatten() for g in expected])
    assert expected.norm() > 1e-3
    torch.testing.assert_close(step.grad, expected, atol=1e-6, rtol=1e-3)


# Catches: a negative advantage of known responses; the mean over all groups; groups made of every G-th row.
def test_only_novelty_above_the_group_mean_gets_an_advantage():
    found = curiosity.novelty_advantage(torch.tensor([1.0, 2, 3, 10, 10, 16]), 3)
    assert found.tolist() == [0, 0, 1, 0, 0, 4]


# Catches: a predictor that is not trained, or is trained on other states; a random network that is trained; a changing
# scale of the inputs, which makes known states novel again.
@pytest.mark.long
def test_novelty_of_repeated_responses_fades(train):
    seen = train(total_steps=40, bonus_lr=3e-3, lr=1e-9, prompts=1, samples=32, task="lock:length=2,symbols=3")
    assert seen.result.progress["bonus"][-1] < 0.2 * seen.result.progress["bonus"][0]
    first, last = seen.updates[0].novelty, seen.updates[-1].novelty
    changed = {name for name in first if not torch.equal(first[name], last[name])}
    assert changed and all(name.startswith("predict") for name in changed)


# Catches: a sum that includes a token of the episode; the wrong sign; another policy than the one that sampled; an
# entropy that is summed over tokens, which rewards long responses.
@pytest.mark.parametrize("kind", ["entropy", "surprisal"])
def test_entropy_is_the_mean_and_surprisal_the_sum_over_own_tokens(kind, train):
    seen = train(bonus=kind, reward_coef=0.0, bonus_coef=1.0)
    step = seen.updates[1]
    model = Transformer(step.run.model.shape)
    for p, before in zip(model.parameters(), step.before, strict=True):
        p.data.copy_(before)
    found = []
    for b in range(16):
        prompt, own = own_tokens(step.batch, b)
        log_pi = model(torch.tensor([prompt + own]))[0, len(prompt) - 1:-1].log_softmax(-1)
        each = -log_pi.gather(1, torch.tensor(own)[:, None]).detach()
        found.append(each.sum() if kind == "surprisal" else each.mean())
    groups = torch.stack(found).view(2, 8)
    expected = (groups - groups.mean(1, keepdim=True)).flatten()
    torch.testing.assert_close(step.adv[:, 0], expected, atol=1e-4, rtol=1e-3)


# Catches: an intrinsic reward that has an effect although its weight is 0; another average over tokens.
def test_zero_weight_of_the_intrinsic_reward_gives_grpo(train):
    given = {"reward": lambda prompt, response: response.count("b")}
    mine = train(reward_coef=1.0, bonus_coef=0.0, bonus="entropy", **given)
    peer = train(module=grpo, **given)
    for found, expected in zip(mine.result.policy.model.parameters(), peer.result.policy.model.parameters(),
                               strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)          # the order of rows differs
    assert float((expected - peer.updates[0].before[-1]).abs().max()) > 1e-3


# Catches: the predictor, its optimiser or the scale of its inputs left out of the checkpoint.
def test_resumed_run_equals_the_uninterrupted_run(train):
    whole = train(total_steps=4)
    first = train(total_steps=4, interrupt=2)
    assert first.result.status == "interrupted"
    second = train(total_steps=4, resume=first.result.directory)
    for found, expected in zip(second.result.policy.model.parameters(), whole.result.policy.model.parameters(),
                               strict=True):
        assert torch.equal(found, expected)
    for name, found in second.parts["novelty"].state_dict().items():
        assert torch.equal(found, whole.parts["novelty"].state_dict()[name]), name


# Catches: a missing check; a check after the folder has been made.
@pytest.mark.parametrize(("given", "words"), [
    ({"samples": 1}, "a group needs at least two responses"), ({"bonus_share": 1.5}, "bonus-share"),
    ({"minibatches": 17}, "--minibatches 17 is more than the responses per update"),
    ({"bonus": "pixels"}, "bonus")])
def test_invalid_settings_are_refused_before_a_folder_is_made(given, words, train, tmp_path):
    with pytest.raises(UserError, match=words):
        train(**given)
    assert not any(tmp_path.iterdir())


# Catches: the denominator of the whole batch in each minibatch; a predictor that is trained on another share of the
# responses.
def test_denominator_is_split_evenly_between_minibatches(train, monkeypatch):
    sizes, minimizer = [], FlatAdam.minimizer

    def noted(optimizer, loss):
        minimize = minimizer(optimizer, loss)
        return lambda states: sizes.append(len(states)) or minimize(states)

    monkeypatch.setattr(FlatAdam, "minimizer", noted)
    seen = train(minibatches=2, total_steps=1, epochs=1, bonus_steps=3, bonus_share=0.5)
    assert [float(u.whole["denominator"]) for u in seen.updates] == [16 / 2] * 2
    assert sizes == [4] * 6                                   # half of a minibatch of 8, three steps for each
