"""Evolution strategies on tokens: compared with manual sums and a token environment, and with several processes."""
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import llm
from llm.algos import es, sft
from llm.policy.generate import Sampler
from llm.policy.load import load_model
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from llm.tasks import testbed as bed
from spinup.algos.es import gradient, perturb, perturbation
from spinup.core.fast.adam import FlatAdam
from spinup.errors import UserError
from spinup.runs.workers import Workers

# For the tests of all methods; `suite_of` in tests/llm/conftest.py describes it.
SUITE = {
    "settings": {"prompts": 4, "pairs": 4, "sigma": 0.2},
    "own": ["policy_std", "weight_norm"],
    "lacking": ["zero_variance", "loss", "entropy", "logp", "kl", "clip_fraction", "ratio_min", "ratio_max"]}

TINY = {"task": "reverse:length=2,symbols=10", "held_out": 8, "quiet": True, "tensorboard": False, "threads": 1,
        "device": "cpu", "preset": "none", "pairs": 5, "prompts": 4, "sigma": 0.2, "lr": 0.02, "total_steps": 4}
SEEDS = np.array([5, 6, 7, 8], np.uint32)


def early(prompt, response):
    return sum(letter in "abcde" for letter in response) / 3


def weights(model) -> torch.Tensor:
    return parameters_to_vector(model.parameters()).detach()


# Catches: the standard deviation with n - 1; rounding errors in place of 0 where all rewards are equal.
def test_z_scores_use_the_population_standard_deviation():
    found = es.z_scores(np.array([[1.0, 3.0], [3.0, 5.0]]))
    np.testing.assert_allclose(found, np.array([[-1, 0], [0, 1]]) * 2**0.5)
    assert not es.z_scores(np.full((7, 2), 0.1)).any()


@torch.no_grad()
def step_by_step(env: bed.TokenEnv, model: Transformer) -> float:
    """The return of the greedy policy in the token environment. Each step reads the whole sequence again."""
    env.reset()
    written, total, over = [0], 0.0, False
    while not over:
        token = int(model(torch.tensor([written]))[0, -1].argmax())
        _, reward, over, _, _ = env.step(token)
        written, total = [*written, token], total + reward
    return total


# Catches: exchanged signs of a pair; a policy that is scored with the weights of another policy; weights that stay
# perturbed; another order of the weights than the optimiser's; a missing 2, n or sigma in the denominator.
def test_gradient_estimate_equals_manual_sums_in_a_token_environment():
    torch.manual_seed(0)
    testbed, sigma = bed.Testbed(), 0.3
    model = Transformer(Shape(4, context=8, layers=2, width=16, heads=2, kv_heads=2, head_size=8, hidden=32))
    theta, sampler = weights(model), Sampler(model, end=-1)
    optimizer = FlatAdam(model.parameters(), lr=1e-3)

    def score(seed: int) -> list[float]:
        ids = sampler(testbed.prompts, max_tokens=3, generator=None).ids
        return [float(testbed.rewards[ids @ torch.tensor([16, 4, 1])])]

    found = es.play(score, optimizer.flat, theta, sigma, SEEDS)
    assert found.shape == (4, 2, 1) and torch.equal(optimizer.flat, theta)
    env, expected, by_hand = bed.TokenEnv(testbed), np.zeros((4, 2)), torch.zeros_like(theta)
    for i, seed in enumerate(SEEDS.tolist()):
        eps = perturbation(seed, theta)
        for k, sign in enumerate((1, -1)):
            vector_to_parameters(theta + sign * sigma * eps, model.parameters())
            expected[i, k] = step_by_step(env, model)
        by_hand += (expected[i, 0] - expected[i, 1]) * eps / (2 * 4 * sigma)
    np.testing.assert_array_equal(found[..., 0].numpy(), expected)
    assert len({*expected.ravel()}) > 2
    torch.testing.assert_close(gradient(theta, SEEDS, found[..., 0].numpy(), sigma), by_hand)


# The reward is a smooth function of the weights here, so the perturbations estimate the gradient of backpropagation.
# Catches: an estimate that is too large by the factor 2 or 1 / sigma.
@pytest.mark.long
def test_gradient_estimate_approximates_the_exact_policy_gradient():
    testbed, policy = bed.Testbed(2, 2), bed.TabularPolicy(2, 2)
    exact = torch.autograd.grad(testbed.expected_reward(testbed.log_probs(policy)), policy.logits)[0].flatten()
    theta, flat, seeds = weights(policy), policy.logits.data.view(-1), np.arange(4000)
    with torch.no_grad():
        found = es.play(lambda seed: [float(testbed.expected_reward(testbed.log_probs(policy)))], flat, theta, 0.05,
                        seeds)
    estimate = gradient(theta, seeds, found[..., 0].numpy(), 0.05)
    torch.testing.assert_close(estimate, exact, atol=0.1 * float(exact.norm()), rtol=0)


def run(folder: Path, model: str, **settings):
    given = {**TINY, "model": model, "reward": early, **settings}
    return llm.es(given.pop("task"), log_dir=folder.as_posix(), **given)


@pytest.fixture
def played(monkeypatch) -> list:
    """Arguments and results of `play`, for each update."""
    seen, play = [], es.play

    def spy(score, weights, theta, sigma, seeds):
        found = play(score, weights, theta, sigma, seeds)
        seen.append((theta.clone(), sigma, seeds, found[..., 0].numpy()))
        return found

    monkeypatch.setattr(es, "play", spy)
    return seen


# Algorithm 2 of Qiu et al. Its population is the 2n perturbations of both signs.
# Catches: a step divided by sigma, or by n in place of 2n; ranks; Adam; another learning rate.
def test_plain_step_with_z_scores_follows_qiu_et_al(beginner, played, tmp_path):
    result = run(tmp_path, beginner, scores="zscore", optimizer="plain", lr=0.3, total_steps=1)
    (theta, sigma, seeds, rewards), = played
    assert torch.equal(theta, weights(load_model(beginner).model)) and sigma == 0.2 and rewards.std() > 0
    z, moved = (rewards - rewards.mean()) / rewards.std(), torch.zeros_like(theta)
    for seed, row in zip(seeds.tolist(), z, strict=True):
        for sign, each in zip((1, -1), row, strict=True):
            moved += float(each) * sign * perturbation(seed, theta)
    torch.testing.assert_close(weights(result.policy.model), theta + 0.3 / 10 * moved)


# Catches: different prompts or random numbers within a pair; different ranks of equal rewards.
@pytest.mark.parametrize("decoding", ["greedy", "sampled"])
def test_equal_perturbed_policies_leave_the_weights_unchanged(decoding, beginner, played, tmp_path):
    result = run(tmp_path, beginner, sigma=1e-30, decoding=decoding,
                 reward=lambda prompt, response: sum(map(ord, prompt + response)) / 1000)
    assert all((rewards[:, 0] == rewards[:, 1]).all() for *_, rewards in played)
    assert len({float(x) for *_, rewards in played for x in rewards.ravel()}) > 1
    assert torch.equal(weights(result.policy.model), weights(load_model(beginner).model))
    assert result.progress["policy_std"][-1] == pytest.approx(played[-1][-1].std())


# Catches: columns of the parts of a reward that are NaN; parts in the order of another response.
def test_parts_of_the_reward_have_their_means(beginner, played, tmp_path):
    def parts(prompt, response):
        found = {"early": early(prompt, response), "length": float(len(response))}
        return found if "a" in prompt else dict(reversed(found.items()))

    progress = run(tmp_path, beginner, reward=parts).progress
    for row, total in enumerate(progress["reward"]):
        assert progress["reward_early"][row] + progress["reward_length"][row] == pytest.approx(total)
        assert 0 <= progress["reward_early"][row] <= 1


# Catches: the same prompts in every update; a step against the gradient.
def test_training_increases_the_reward(beginner, played, tmp_path):
    result = run(tmp_path, beginner, total_steps=30, pairs=8, sigma=0.1, lr=0.03, prompts=8)
    reward = result.progress["reward"]
    assert np.mean(reward[-3:]) > 2 * np.mean(reward[:3]) and len({tuple(r.ravel()) for *_, r in played}) == 30


# Catches: prompts, ranks or token counts of only one process's share; a worker process with other initial weights.
@pytest.mark.long
def test_number_of_processes_does_not_change_the_result(beginner, fork_workers, curve, tmp_path, monkeypatch):
    (tmp_path / "score.py").write_text("def early(prompt, response):\n"
                                       "    return sum(letter in 'abcde' for letter in response) / 3\n")
    met, together = [], Workers.together
    monkeypatch.setattr(Workers, "together", lambda self, *rest: met.append(self) or together(self, *rest))
    runs = [run(tmp_path / str(n), beginner, workers=n, exp_name="x", reward=f"{tmp_path}/score.py:early")
            for n in (1, 2)]
    for result in runs:
        assert len(result.progress["steps"]) == 4
    assert torch.equal(*(weights(result.policy.model) for result in runs))
    assert curve(runs[0].directory) == curve(runs[1].directory)
    assert not torch.equal(weights(runs[0].policy.model), weights(load_model(beginner).model))
    # 4 updates, up to 3 of the 5 pairs in a process, 2 policies per pair, 4 numbers of 8 bytes per policy: the size
    # of a message does not depend on the size of the network.
    assert met[0].sent == 0 and met[1].sent == 4 * 3 * 2 * 4 * 8


# Catches: a worker process that refuses the folder of the first process or trains another initial policy.
@pytest.mark.long
def test_processes_share_one_initial_policy(fork_workers, monkeypatch, tmp_path):
    monkeypatch.setattr(sft, "solved", lambda rewards: 1.0)
    given = TINY | {"layers": 1, "width": 16, "heads": 2, "total_steps": 1, "sft_accuracy": 0.01, "exp_name": "x"}
    result = llm.es(given.pop("task"), log_dir=tmp_path.as_posix(), workers=2, **given)
    assert result.status == "finished"
    assert sorted(p.name.partition("_")[0] for p in tmp_path.iterdir() if p.is_dir()) == ["start", "x"]


# Catches: Adam left out of `keep`; prompts from a random number generator that is missing in the checkpoint; a worker
# process that starts at update 0.
@pytest.mark.long
def test_killed_run_resumes_with_the_same_curve(beginner, killed, forking, cli, curve, tmp_path):
    (tmp_path / "score.py").write_text("def early(prompt, response):\n"
                                       "    return sum(letter in 'abcde' for letter in response) / 3\n")
    words = ["llm", "es", "--task", TINY["task"], "--reward", "score.py:early", "--model", beginner, "--preset", "none",
             "--exp-name", "x", "--held-out", 8, "--threads", 1, "--no-tensorboard", "--pairs", 3, "--prompts", 4,
             "--sigma", 0.2, "--total-steps", 24, "--checkpoint-steps", 7]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    expected = curve(tmp_path / "whole/x/x_s1")
    done = killed([*words, "--workers", 2], Path("runs/x/x_s1"), len(expected), 1, "es",
                  prelude=forking)
    assert done.code == 0 and curve(tmp_path / "runs/x/x_s1") == expected


def test_invalid_settings_are_refused(beginner, tmp_path):
    for settings, words in (({"workers": 6}, "--workers 6 is more than --pairs 5; choose at most 5"),
                            ({"gradient_checkpointing": True}, "es has no backward pass.* leave out --gradient-check"),
                            ({"shard": True, "workers": 2}, "updates all weights; leave out --shard"),
                            ({"workers": 2, "device": "cuda"}, "run on the CPU; leave out --device cuda or --workers"),
                            ({"workers": 2, "reward": lambda prompt, response: 1.0}, "cannot be sent .* give task as")):
        with pytest.raises(UserError, match=words):
            run(tmp_path, beginner, **settings)
    assert not list(tmp_path.iterdir())


# Catches: a memory estimate for the responses of all policies at once.
def test_memory_estimate_counts_the_responses_of_one_policy():
    cfg = es.Config(pairs=100, prompts=16)
    assert cfg.sampled == 16 and cfg.responses == 3200
    assert perturb(torch.zeros(3), 1, 0.5).shape == (3,) and replace(cfg, prompts=8).sampled == 8
