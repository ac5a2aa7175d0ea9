"""Parameter noise on tokens: the weights that sample, the policies in the ratio, and the adaptation of sigma."""
from types import SimpleNamespace

import pytest
import torch

from llm.algos import param_noise
from llm.policy.cache import Slots
from llm.policy.transformer import Transformer
from llm.run import Run
from spinup.algos.param_noise import adapted
from spinup.algos.ppo import clipped_surrogate
from spinup.errors import UserError

# For the tests of all methods; `suite_of` in tests/llm/conftest.py describes it.
SUITE = {
    "settings": {"prompts": 4, "samples": 4, "perturbations": 2},
    "own": ["sigma", "distance"],
    "lacking": ["logp"]}

TINY = {"task": "lock:length=3,symbols=2", "layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True,
        "tensorboard": False, "threads": 1, "device": "cpu", "prompts": 2, "samples": 6, "perturbations": 3,
        "reward": lambda prompt, response: len(response) + 0.5 * response.count("a"), "warmup": 0, "lr": 0.02,
        "sigma": 0.4, "total_steps": 2}


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Train, and keep the arguments and results of `noisy_weights` and `Run.backward`.

    interrupt: the number of updates after which Ctrl-C is pressed.
    """
    noisy, backward, keep = param_noise.noisy_weights, Run.backward, Run.keep

    def train(interrupt=None, resume=None, **given):
        seen = SimpleNamespace(weights=[], updates=[], result=None)

        def noted(theta, sigma, eps):
            seen.weights.append((theta.clone(), noisy(theta, sigma, eps), sigma))
            return seen.weights[-1][1]

        def kept(run, **parts):
            seen.parts = parts
            keep(run, **parts)

        def spy(run, batch, rows, loss, *per_row, **whole):
            before = seen.parts["optimizer"].flat.clone()
            stats = backward(run, batch, rows, loss, *per_row, **whole)
            grad = seen.parts["optimizer"].flat.grad.clone()
            seen.updates.append(SimpleNamespace(run=run, batch=batch, rows=rows, adv=per_row[0], before=before,
                                                grad=grad, stats=stats, whole=whole))
            if len(seen.updates) == interrupt:
                run.interruption.received = 2
            return stats

        monkeypatch.setattr(param_noise, "noisy_weights", noted)
        monkeypatch.setattr(Run, "keep", kept)
        monkeypatch.setattr(Run, "backward", spy)
        settings = TINY | {"log_dir": str(tmp_path)} | given
        seen.result = param_noise.train(param_noise.Config(**settings, algorithm="llm param_noise"), resume)
        return seen
    return train


def model_with(run, flat):
    """A copy of the run's model with these weights."""
    model = Transformer(run.model.shape)
    torch.nn.utils.vector_to_parameters(flat, model.parameters())
    return model


def steps_of(model, batch, b):
    """Yield t and the log-probabilities of the next token, for each token of the policy in response b. The model reads
    one state at a time, as in an environment."""
    r, written = batch.responses, []
    prompt = batch.prompts.ids[r.of[b], :batch.prompts.lengths[r.of[b]]].tolist()
    for t in range(int(r.lengths[b])):
        if r.mask[b, t]:
            ids = torch.tensor([[*prompt, *written]])
            yield t, model.logits(model.hidden(ids, Slots()))[0, -1].log_softmax(-1)
        written.append(int(r.ids[b, t]))


def perturbed_of(seen, update, b):
    """The perturbed weights that sampled row b of an update. `seen.weights` has the order in which they were made."""
    K, G = 3, 6
    return seen.weights[update * K + b % G // (G // K)][1]


# The reference is the classic loss, computed token by token. Catches: the ratio to the learner in place of the sampler,
# or to another perturbed policy; groups that are not mixed; a mean over tokens; a denominator that counts only the rows
# with an advantage.
def test_gradient_equals_the_classic_loss_computed_token_by_token(train):
    seen = train(advantage="group", average="sequence")
    step = seen.updates[1]
    run, batch, r = step.run, step.batch, step.batch.responses
    learner, losses, old = model_with(run, step.before), [], 0
    rewards = batch.rewards.view(2, 6)
    adv = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, correction=0, keepdim=True) + 1e-4)).flatten()
    assert sorted(step.rows.tolist()) == [b for b in range(12) if abs(adv[b]) > 1e-6]
    for b in step.rows.tolist():
        sampler, each = model_with(run, perturbed_of(seen, 1, b)), []
        with torch.no_grad():
            before = {t: log_pi[r.ids[b, t]] for t, log_pi in steps_of(sampler, batch, b)}
        for t, log_pi in steps_of(learner, batch, b):
            torch.testing.assert_close(r.logp[b, t], before[t], atol=1e-5, rtol=1e-4)
            old += float((log_pi[r.ids[b, t]].detach() - before[t]).abs())
            each.append(clipped_surrogate(log_pi[r.ids[b, t]], before[t], adv[b], (0.2, 0.2))[0])
        losses.append(torch.stack(each).mean())
    expected = torch.autograd.grad(torch.stack(losses).sum() / 12, list(learner.parameters()))
    expected = torch.cat([g.flatten() for g in expected])
    assert expected.norm() > 1e-3 and old > 0.1                           # the samplers differ from the learner
    torch.testing.assert_close(step.grad, expected, atol=1e-6, rtol=1e-3)


# Catches: an `--old` that has no effect; log-probabilities of the learner before its last step.
def test_setting_old_learner_puts_the_learner_into_the_ratio(train):
    seen = train(old="learner")
    step = seen.updates[1]
    learner = model_with(step.run, step.before)
    for b in range(12):
        for t, log_pi in steps_of(learner, step.batch, b):
            torch.testing.assert_close(step.batch.responses.logp[b, t], log_pi[step.batch.responses.ids[b, t]].detach(),
                                       atol=1e-5, rtol=1e-4)
    assert seen.result.progress["ratio_max"][-1] == pytest.approx(1, abs=1e-5)
    assert train(old="sampler").result.progress["ratio_max"][-1] > 1.05


# Catches: weights that are restored by subtraction, which rounds; one perturbation for all policies; noise that
# accumulates.
def test_weights_are_restored_exactly_after_a_perturbation(train):
    seen = train()
    assert len(seen.weights) == 6
    for update, step in enumerate(seen.updates):
        mine = seen.weights[3 * update:3 * update + 3]
        assert all(torch.equal(theta, step.before) for theta, _, _ in mine)
        noise = torch.stack([noisy - theta for theta, noisy, _ in mine]) / mine[0][2]        # [3, P]
        assert float(noise.std()) == pytest.approx(1, abs=0.05) and float(noise.mean()) == pytest.approx(0, abs=0.05)
        assert float(torch.corrcoef(noise).triu(1).abs().max()) < 0.1


# Catches: the reverse KL divergence; states of another perturbed policy; tokens of the episode; an inverted factor;
# policies at another temperature than that of sampling.
def test_sigma_adapts_to_the_kl_divergence_at_sampled_states(train):
    seen = train(samples=3, prompts=2, total_steps=2, divergence=0.05, adapt=1.5, temperature=0.8)
    step, found = seen.updates[0], []
    learner = model_with(step.run, step.before)
    for k in range(3):
        noisy, each = model_with(step.run, seen.weights[k][1]), []
        for b in (k, 3 + k):
            for both in zip(steps_of(learner, step.batch, b), steps_of(noisy, step.batch, b), strict=True):
                log_pi, log_noisy = ((log_probs / 0.8).log_softmax(-1) for _, log_probs in both)
                each.append(float((log_pi.exp() * (log_pi - log_noisy)).sum()))
        found.append(sum(each) / len(each))
    distance = sum(found) / 3
    assert seen.result.progress["distance"][0] == pytest.approx(distance, rel=1e-3)
    assert distance > 0.05 and seen.weights[3][2] == adapted(0.4, distance, 0.05, 1.5) == pytest.approx(0.4 / 1.5)


# Catches: rows that are sorted by perturbed policy, so that a group has only one policy; prompt indices `of` of the
# joined batch that are not merged.
def test_each_group_has_responses_of_every_perturbed_policy(train, beginner):
    seen = train(task="reverse:length=2,symbols=10", model=beginner)
    batch = seen.updates[0].batch
    assert batch.responses.of.tolist() == [0] * 6 + [1] * 6 and len(batch.problems) == len(batch.prompts.ids) == 2
    prompts = [seen.updates[0].run.tokenizer.prompt(p.prompt) for p in batch.problems]
    assert batch.prompts.ids.tolist() == prompts
    assert batch.rewards.tolist() == pytest.approx([len(x) + 0.5 * x.count("a") for x in batch.texts])


# Catches: sigma, or the random number generator of the perturbations, left out of the checkpoint.
def test_resumed_run_equals_the_uninterrupted_run(train):
    whole = train(total_steps=4)
    first = train(total_steps=4, interrupt=2)
    assert first.result.status == "interrupted"
    second = train(total_steps=4, resume=first.result.directory)
    assert [sigma for *_, sigma in second.weights] == [sigma for *_, sigma in whole.weights[6:]]
    for found, expected in zip(second.result.policy.model.parameters(), whole.result.policy.model.parameters(),
                               strict=True):
        assert torch.equal(found, expected)


# Catches: a missing check; a check after the folder has been made.
@pytest.mark.parametrize(("given", "words"), [
    ({"samples": 8, "perturbations": 3}, "--perturbations 3 must divide --samples 8"),
    ({"samples": 1, "perturbations": 1}, "a group needs at least two responses"),
    ({"minibatches": 13}, "--minibatches 13 is more than the responses per update"),
    ({"adapt": 0.5}, "adapt"), ({"sigma": 0.0}, "sigma")])
def test_invalid_settings_are_refused_before_a_folder_is_made(given, words, train, tmp_path):
    with pytest.raises(UserError, match=words):
        train(**given)
    assert not any(tmp_path.iterdir())


# Catches: the denominator of the whole batch in each minibatch; a count of tokens where the setting averages over
# responses.
@pytest.mark.parametrize("average", ["sequence", "token", "constant"])
def test_denominator_is_split_evenly_between_minibatches(average, train):
    seen = train(average=average, minibatches=2, total_steps=1)
    whole = float(seen.updates[0].batch.responses.mask.sum()) if average == "token" else 12
    assert [float(u.whole["denominator"]) for u in seen.updates] == [whole / 2] * 2
