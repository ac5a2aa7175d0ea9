"""RL² on tokens: trials compared with the worlds, advantages with manual sums, and play with a cut context."""
from pathlib import Path

import pytest
import torch

import llm
from llm.algos import rl2
from llm.policy.generate import Prompts, Sampler
from llm.policy.score import score
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from llm.run import Run
from llm.tasks.bandits import Bandits, MDPs
from spinup.errors import UserError
from spinup.runs.files import read_json

TINY = {"task": "bandits:arms=3,pulls=4", "layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True,
        "tensorboard": False, "threads": 1, "device": "cpu", "preset": "none", "prompts": 4, "samples": 3,
        "minibatches": 2, "trials": 64, "total_steps": 3}
TASKS = [Bandits(arms=3, pulls=4), MDPs(episodes=1)]


def model_of(task):
    torch.manual_seed(0)
    return Transformer(Shape(len(task.alphabet) + 1, context=64, layers=2, width=16, heads=2, kv_heads=2, head_size=8,
                             hidden=32))


def played(task, worlds=5, samples=3, seed=4):
    model, prompt = model_of(task), [len(task.alphabet)]
    found = rl2.play(Sampler(model, -1), task, prompt, worlds, samples, seed, torch.Generator().manual_seed(1))
    return model, prompt, *found


# Catches: replies in the wrong row; a reward on the token before or after; the world's tokens in the mask; trials of a
# group in different worlds.
@pytest.mark.parametrize("task", TASKS, ids=["bandits", "mdps"])
def test_batch_of_trials_equals_the_worlds_played_step_by_step(task):
    _, _, r, rewards = played(task)
    every = 1 + task.reply_tokens
    assert r.ids.shape == rewards.shape == (15, task.max_tokens) and (r.lengths == task.max_tokens).all()
    assert torch.equal(r.mask, (torch.arange(task.max_tokens) % every == 0).float().expand(15, -1))
    assert not rewards[r.mask == 0].any()
    for g in range(3):
        world = task.worlds(5, 4)
        world.reset()
        for t in range(0, task.max_tokens, every):
            reward, reply = task.step(world, r.ids[g::3, t])
            assert torch.equal(rewards[g::3, t], reward) and torch.equal(r.ids[g::3, t + 1:t + every], reply)
    assert len({tuple(row) for row in r.ids[:3].tolist()}) == 3           # same world, other actions


# Catches: actions that are sampled without the last reply; log-probabilities of another token.
@pytest.mark.parametrize("task", TASKS, ids=["bandits", "mdps"])
def test_log_probabilities_depend_on_the_replies_of_the_world(task):
    model, prompt, r, _ = played(task)
    logp = score(model, Prompts.of([prompt]), r.of, r.ids)[0].detach()
    torch.testing.assert_close(torch.where(r.mask > 0, logp, 0.0), r.logp)


# Catches: a return that stops at an episode end within the trial, or after the reward of one token; a discount for the
# world's tokens; the mean of another group; an advantage for the world's tokens.
@pytest.mark.parametrize("gamma", [1.0, 0.8])
def test_advantages_are_trial_returns_minus_the_group_mean(gamma):
    mask = torch.tensor([1.0, 0, 1, 0, 0, 1]).expand(4, -1)
    rewards = torch.where(mask > 0, torch.randn(4, 6, generator=torch.Generator().manual_seed(0)), 0.0)
    adv, returns = rl2.advantages(rewards, mask, 2, gamma)
    own = [0, 2, 5]
    for b in range(4):
        for i, t in enumerate(own):
            of_pair = [sum(gamma**k * float(rewards[row, at]) for k, at in enumerate(own[i:]))
                       for row in (b, b + 1 - 2 * (b % 2))]
            assert float(returns[b, t]) == pytest.approx(of_pair[0], abs=1e-6)
            assert float(adv[b, t]) == pytest.approx((of_pair[0] - of_pair[1]) / 2, abs=1e-6)
    assert not adv[mask == 0].any()


# Averaged over all trials of an enumerable policy, the policy gradient with these advantages is the exact gradient of
# the expected return times (G - 1) / G. Catches: rewards before an action in its advantage; a baseline of other steps.
def test_expected_policy_gradient_is_that_of_the_trial_return():
    task, g = Bandits(arms=2, pulls=2), torch.Generator().manual_seed(0)
    # Row 0: before the first pull; the others: after each pair of arm and reward.
    logits = torch.randn(1 + 4, 2, generator=g, dtype=torch.float64, requires_grad=True)
    pays = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)                      # rewards, [pull, arm]
    first, second = torch.cartesian_prod(torch.arange(2), torch.arange(2)).T                # all four trials
    r0, r1 = pays[0, first], pays[1, second]
    log_pi = logits.log_softmax(1)
    logp = torch.stack([log_pi[0, first], log_pi[1 + 2 * first + r0.long(), second]], 1)    # [4, 2]
    exact = torch.autograd.grad((logp.sum(1).exp() * (r0 + r1)).sum(), logits, retain_graph=True)[0]
    pairs = torch.cartesian_prod(torch.arange(4), torch.arange(4))                          # groups of two
    rewards = torch.stack([r0, r1], 1)[pairs.flatten()]
    adv, _ = rl2.advantages(rewards, torch.ones_like(rewards), 2, 1.0)
    likely = logp.detach().sum(1).exp()[pairs].prod(1)
    each = (adv * logp[pairs.flatten()]).sum(1).view(-1, 2).mean(1)
    found = torch.autograd.grad((likely * each).sum(), logits)[0]
    torch.testing.assert_close(found, exact / 2)
    assert exact.norm() > 0.1 and task.max_tokens == 4


# Catches: a context that is not cut; a policy with a cut context that plays other worlds.
def test_cut_context_gives_the_first_action_distribution_in_every_step():
    task = Bandits(arms=3, pulls=4)
    model, prompt = model_of(task), [len(task.alphabet)]
    found = rl2.cut_off(Sampler(model, -1), task, prompt, 4000, 4, torch.Generator().manual_seed(1))
    assert found.shape == (4000, 4)
    pi = model(torch.tensor([prompt]))[0, -1].softmax(0)[1:4]
    world = task.worlds(4000, 4)
    world.reset()
    torch.testing.assert_close(found.mean(0), (world.probs @ pi).mean().expand(4), atol=0.03, rtol=0)


def run(folder: Path, **settings):
    given = TINY | settings
    return llm.rl2(given.pop("task"), log_dir=folder.as_posix(), **given)


# Catches: trials that are sampled at one temperature and scored at another.
def test_trials_are_sampled_at_the_temperature_of_the_loss(tmp_path):
    progress = run(tmp_path, temperature=0.6, epochs=1, minibatches=1, total_steps=1).progress
    assert progress["ratio_min"][0] == pytest.approx(1, abs=1e-4) == progress["ratio_max"][0]


# Catches: advantage normalisation within each minibatch; a denominator that counts the world's tokens; fewer epochs.
def test_each_epoch_uses_every_trial_with_normalised_advantages(tmp_path, monkeypatch):
    seen, backward = [], Run.backward

    def spy(run, batch, rows, loss, adv, denominator):
        seen.append((rows, adv.clone(), float(denominator), batch.responses.mask))
        return backward(run, batch, rows, loss, adv, denominator=denominator)

    monkeypatch.setattr(Run, "backward", spy)
    result = run(tmp_path, total_steps=1, epochs=3)
    assert len(seen) == 6 and all(denominator == 6 * 4 for *_, denominator, _ in seen)
    for i in range(0, 6, 2):
        assert sorted(torch.cat([seen[i][0], seen[i + 1][0]]).tolist()) == list(range(12))
    adv, mask = seen[0][1], seen[0][3]
    assert adv[mask > 0].mean().abs() < 1e-6 and float(adv[mask > 0].std(correction=0)) == pytest.approx(1, abs=1e-4)
    found = read_json(result.directory / "trials.json")
    assert len(found["reward_of_step"]) == len(found["cut_reward_of_step"]) == 4
    assert {"trial_return", "cut_return"} <= result.progress.keys()


# Each arm pays always or never, so that the policy learns in seconds. Catches: a loss with the wrong sign; a policy
# that does not read the replies.
def test_trained_policy_learns_within_a_trial(tmp_path, monkeypatch, two_rows):
    def sure(world):
        world.probs = torch.rand(world.batch, 2, generator=world.generator)
        world.probs = (world.probs == world.probs.amax(1, keepdim=True)).float()

    monkeypatch.setattr("spinup.envs.worlds.trials.Bandits._draw", sure)
    result = run(tmp_path, task="bandits:arms=2,pulls=4", prompts=32, samples=4, total_steps=40, lr=0.01, warmup=0,
                 epochs=2, layers=2)
    assert result.progress["trial_return"][-1] > 3 > 2.4 > result.progress["cut_return"][-1]


# Catches: Adam left out of `keep`; worlds from a random number generator that is missing in the checkpoint.
@pytest.mark.long
def test_killed_run_resumes_with_the_same_curve(killed, cli, curve, tmp_path):
    words = ["llm", "rl2", "--task", TINY["task"], "--preset", "none", "--exp-name", "x", "--held-out", 8, "--threads",
             1, "--no-tensorboard", "--prompts", 4, "--samples", 3, "--layers", 1, "--width", 16, "--heads", 2,
             "--trials", 16, "--total-steps", 16, "--checkpoint-steps", 7]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    expected = curve(tmp_path / "whole/x/x_s1")
    done = killed(words, Path("runs/x/x_s1"), len(expected), 1, "rl2")
    assert done.code == 0 and curve(tmp_path / "runs/x/x_s1") == expected
    assert read_json(tmp_path / "runs/x/x_s1/trials.json") == read_json(tmp_path / "whole/x/x_s1/trials.json")


def test_eval_and_watch_accept_a_run_of_rl2(cli, tmp_path):
    folder = run(tmp_path / "runs").directory
    assert cli("eval", folder, "--episodes", 20).code == 0
    assert cli("watch", folder).code == 0


def test_invalid_settings_are_refused(beginner, tmp_path):
    for settings, words in (({"samples": 1}, "--samples 1 gives only one; choose 2 or more"),
                            ({"minibatches": 13}, "--minibatches 13 is more than the trials per update, .* at most 12"),
                            ({"max_tokens": 3}, "leave out --max-tokens"),
                            ({"reward": "exact"}, "leave out --reward"),
                            ({"task": "reverse"}, "reverse is not one; choose --task bandits or --task mdps"),
                            ({"model": beginner}, "are not those of bandits; leave out --model")):
        with pytest.raises(UserError, match=words):
            run(tmp_path, **settings)
    assert not list(tmp_path.iterdir())


# Catches: returns with another discount than the given one.
def test_run_uses_the_given_discount(tmp_path, monkeypatch):
    asked, advantages = [], rl2.advantages
    monkeypatch.setattr(rl2, "advantages", lambda *args: asked.append(args[2:]) or advantages(*args))
    llm.rl2("bandits:arms=3,pulls=4", layers=1, width=16, heads=2, held_out=8, quiet=True, tensorboard=False, threads=1,
            device="cpu", preset="none", prompts=4, samples=3, minibatches=2, trials=16, total_steps=2, gamma=0.8,
            log_dir=tmp_path.as_posix())
    assert asked == [(3, 0.8)] * 2
