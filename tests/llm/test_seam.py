"""Environments and tokens share one loss, which is compared with exact values for a language of 64 responses."""
import ast
import importlib
from pathlib import Path

import pytest
import torch
from gymnasium.utils.env_checker import check_env
from torch.nn.utils import parameters_to_vector as flat

from llm.algos.grpo import group_advantage
from llm.algos.ppo import following
from llm.algos.reinforce import leave_one_out, reward_to_go, token_rewards
from llm.config import LanguageConfig
from llm.policy.generate import Sampler
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from llm.tasks import testbed as bed
from spinup.algos.ppo import clipped_surrogate
from spinup.algos.vpg import policy_gradient
from spinup.core.kl import k1, k2, k3
from spinup.core.masked import aggregate
from spinup.core.returns import gae
from spinup.registry import Algorithm, algorithms, find
from spinup.runs.config import settings_of
from tests.relations import ancestors

# Variants that do not use the loss of their file's parent: kto has no pairs, ipo has no sigmoid, and cispo and sapo do
# not clip the objective.
OWN_LOSS = {"kto", "ipo", "cispo", "sapo"}
# Settings with which each method learns something at once. A method uses those that it has.
TINY = {"task": "reverse:length=2,symbols=10", "layers": 1, "width": 16, "heads": 2, "total_steps": 2, "held_out": 8,
        "quiet": True, "tensorboard": False, "threads": 1, "device": "cpu"}
SMALL = {"prompts": 4, "pairs": 8, "batch": 4, "value_warmup": 0, "keep": 0.0, "games": 8, "rivals": 2}
METHODS = algorithms("llm")


def taken(algorithm: Algorithm) -> tuple[str, list[str]]:
    """The nearest ancestor from which a file imports functions, preferably a classic one, and their names."""
    found = {}
    for node in ast.parse(algorithm.path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            found[node.module] = [alias.name for alias in node.names]
    modules = [find(name).module for name in ancestors(algorithm)]
    nearest = [m for m in modules if m.startswith("spinup") and m in found] or [m for m in modules if m in found]
    return (nearest[0], found[nearest[0]]) if nearest else ("", [])


class Broken(Exception):
    """Raised by a loss that was replaced."""


def trained_with(broken: list[str], method: str, model: str, folder: Path, monkeypatch, reload: bool = True) -> None:
    """Train with a method while these functions raise. `reload`: import its module again first."""
    def breaks(*args, **kwargs):
        raise Broken

    module = METHODS[method].load()
    before = dict(vars(module))
    try:
        with monkeypatch.context() as patch:
            patch.setattr("llm.preferences.HELD_OUT_PAIRS", 4)
            for function in broken:
                patch.setattr(function, breaks)
            if reload:
                importlib.reload(module)
            small = {name: value for name, value in SMALL.items() if name in settings_of(module.Config)}
            if method != "sft":                                         # different rewards, or nothing is learned
                small |= {"model": model, "reward": lambda prompt, response: len(response) or 1.0}
            if module.Config.task != LanguageConfig.task:                 # it has a task of its own, such as a game
                small |= {"task": module.Config.task, "model": "", "reward": ""}
            given = {**TINY, **METHODS[method].settings, **small, "log_dir": str(folder)}
            module.train(module.Config(**given, algorithm=f"llm {method}"))
    finally:
        vars(module).update(before)                                     # else Config could not be sent to processes


# It tests every file of llm/algos, also a new one. Catches: a copy of the parent's loss in the file, or a loss of torch
# in its place; a loss that is never called; a file that imports nothing from the parent that its TOML names.
@pytest.mark.long("dqn")
@pytest.mark.parametrize("method", [m for m in METHODS if METHODS[m].parents and m not in OWN_LOSS])
def test_method_uses_the_loss_of_its_parent(method, beginner, tmp_path, monkeypatch):
    module, functions = taken(METHODS[method])
    assert functions, f"llm {method} imports no function of {METHODS[method].parents}"
    with pytest.raises(Broken):
        trained_with([f"{module}.{name}" for name in functions], method, beginner, tmp_path, monkeypatch)


# Methods that learn from preferences have no classic parent. Catches: another loss in the reward model.
def test_reward_model_and_dpo_have_the_same_loss(beginner, tmp_path, monkeypatch):
    assert taken(METHODS["dpo"]) == ("llm.algos.reward_model", ["bradley_terry"])
    assert not METHODS["reward_model"].parents
    with pytest.raises(Broken):                                           # a reload would define it again
        trained_with(["llm.algos.reward_model.bradley_terry"], "reward_model", beginner, tmp_path, monkeypatch, False)


# Catches: a copy of one of these functions in llm/algos; one of these functions that is not called.
@pytest.mark.parametrize(("method", "function"), [
    *((method, name) for method in ("ppo", "vapo", "self_play")
      for name in ("spinup.algos.ppo.value_loss", "spinup.core.returns.gae")),
    *((method, "spinup.algos.ppo.clipped_surrogate") for method in ("ppo", "vapo", "curiosity", "rl2", "param_noise"))])
def test_methods_use_the_classic_value_loss_gae_and_surrogate(method, function, beginner, tmp_path, monkeypatch):
    with pytest.raises(Broken):
        trained_with([function], method, beginner, tmp_path, monkeypatch)


# Steps of an environment, one token at a time, compared with batches of whole responses.

def transformer(seed=0):
    torch.manual_seed(seed)
    return Transformer(Shape(4, context=8, layers=2, width=16, heads=2, kv_heads=2, head_size=8, hidden=32))


def next_logits(policy, written):
    """Logits `[4]` after the tokens written, without a cache: each step reads all of them."""
    ids = torch.tensor([written], dtype=torch.long)
    if isinstance(policy, bed.TabularPolicy):
        return policy(ids)[0, -1]
    return policy(torch.cat([torch.zeros(1, 1, dtype=torch.long), ids], 1))[0, -1]


def gradient(value, policy):
    return flat(torch.autograd.grad(value, list(policy.parameters())))


def surrogate(logp, old, adv):
    return clipped_surrogate(logp, old, adv, (0.2, 0.28))[0]


# Catches: `score` shifted by one token; an episode that ends one token early; a reward before the last token, or that
# of another response.
@pytest.mark.parametrize("loss", [lambda logp, old, adv: policy_gradient(logp, adv)[0], surrogate], ids=["vpg", "ppo"])
@pytest.mark.parametrize("make", [bed.TabularPolicy, transformer], ids=["table", "transformer"])
def test_batch_and_steps_of_an_environment_have_the_same_gradient(make, loss):
    testbed, policy, g = bed.Testbed(), make(), torch.Generator().manual_seed(0)
    ids = testbed.sequences[torch.randint(64, (12,), generator=g)]                           # [12, 3]
    noise = 0.3 * torch.randn(ids.shape, generator=g)                                        # so that some are clipped

    logp, rewards = testbed.logp(policy, ids), testbed.rewards[ids @ torch.tensor([16, 4, 1])]
    at_once = aggregate(loss(logp, (logp + noise).detach(), (rewards - 0.5)[:, None]))

    env, logps, returns = bed.TokenEnv(testbed), [], []
    for row in ids.tolist():
        obs, _ = env.reset()
        earned, over, steps = 0.0, False, 0
        while not over:
            written = [token for token in obs.tolist() if token < testbed.vocab]
            logps.append(next_logits(policy, written).log_softmax(-1)[row[steps]])
            obs, reward, over, truncated, _ = env.step(row[steps])
            earned, steps = earned + reward, steps + 1
            assert not truncated and obs.tolist()[:steps] == row[:steps]
        assert steps == 3
        returns += [earned] * steps
    logps, returns = torch.stack(logps), torch.tensor(returns, dtype=rewards.dtype)          # [36], flat
    step_by_step = aggregate(loss(logps, (logps + noise.flatten()).detach(), returns - 0.5))
    expected = gradient(step_by_step, policy)
    assert expected.norm() > 0.01
    torch.testing.assert_close(gradient(at_once, policy), expected, atol=1e-6, rtol=1e-5)


# Catches: an observation that is not in its space; a `reset` that ignores the seed.
@pytest.mark.filterwarnings("ignore:.*environment's spec")                # it is not registered
def test_token_environment_passes_the_checks_of_gymnasium():
    check_env(bed.TokenEnv(bed.Testbed()), skip_render_check=True)


# Catches: another temperature or another prompt in `log_probs` than in the sampler; an end token among the tokens.
def test_sampler_has_the_exact_distribution_of_responses():
    testbed, model, g = bed.Testbed(), transformer(), torch.Generator().manual_seed(0)
    out = Sampler(model, end=-1)(testbed.prompts, samples=4000, max_tokens=3, generator=g)
    assert out.mask.all() and not out.finished.any() and (out.lengths == 3).all()
    log_p = testbed.log_probs(model).detach()
    torch.testing.assert_close(log_p.exp().sum(), torch.tensor(1.0))
    counts = torch.bincount(out.ids @ torch.tensor([16, 4, 1]), minlength=64)
    assert bed.total_variation(log_p, (counts / 4000).log()) < 0.08       # 0.05 is the sampling error


# The testbed itself.

# Catches: a row number without its + 1, with which two prefixes share a row.
def test_every_prefix_has_its_own_row():
    policy = bed.TabularPolicy()
    with torch.no_grad():
        policy.logits[:] = torch.arange(21)[:, None]
    beginnings = bed.Testbed().sequences[:, :2]
    expected = torch.stack([0 * beginnings[:, 0], 1 + beginnings[:, 0], 5 + beginnings @ torch.tensor([4, 1])], 1)
    assert torch.equal(policy(beginnings)[..., 0].long(), expected)


def policies(testbed, seed=1):
    """Two policies and their distributions. That of the first has gradients."""
    policy, other = (bed.TabularPolicy(testbed.vocab, testbed.length, s) for s in (seed, seed + 50))
    return policy, other, testbed.log_probs(policy), testbed.log_probs(other).detach()


# Catches: a division by beta in the wrong place; a missing Z; rewards of other responses.
def test_optimal_policy_maximises_reward_with_kl_penalty():
    testbed, beta = bed.Testbed(), 0.3
    _, _, log_p, log_ref = policies(testbed)
    log_best = testbed.optimal(log_ref, beta)

    def objective(log_p):
        return testbed.expected_reward(log_p) - beta * bed.kl(log_p, log_ref)

    torch.testing.assert_close(log_best.exp().sum(), torch.ones((), dtype=torch.float64))
    for other in (log_p, log_ref):                                        # the difference is beta KL(other || best)
        torch.testing.assert_close(objective(log_best) - objective(other), beta * bed.kl(other, log_best))
    assert testbed.expected_reward(testbed.optimal(log_ref, 1e-3)) > testbed.rewards.max() - 1e-2


# Catches: a logarithm to another base; a missing half in `total_variation`.
def test_entropy_and_distances_have_their_known_values():
    testbed = bed.Testbed(2, 2)
    uniform = testbed.log_probs(bed.TabularPolicy(2, 2, scale=0)).detach()
    certain = torch.tensor([0.97, 0.01, 0.01, 0.01]).double().log()
    torch.testing.assert_close(bed.entropy(uniform), torch.tensor(4.0).double().log())
    torch.testing.assert_close(bed.total_variation(uniform, certain), torch.tensor(0.72).double())
    torch.testing.assert_close(bed.kl(certain, uniform), torch.tensor(4.0).double().log() - bed.entropy(certain))


# Expectations by enumeration.

# Catches: an inverted ratio in k1 or k3; k3 without its log ratio.
def test_k1_and_k3_have_the_kl_divergence_as_expectation():
    testbed = bed.Testbed()
    policy, other, log_p, log_ref = policies(testbed)
    logp, ref = testbed.logp(policy, testbed.sequences), testbed.logp(other, testbed.sequences).detach()
    exact = bed.kl(log_p, log_ref)
    for estimator in k1, k3:                                              # of whole responses, and token by token
        torch.testing.assert_close(bed.expectation(log_p, estimator(log_p, log_ref)), exact)
        torch.testing.assert_close(bed.expectation(log_p, estimator(logp, ref).sum(1)), exact)


# Catches: k1 or k3 in place of k2. As a loss, k1 has an expected gradient of 0.
def test_only_k2_has_the_gradient_of_the_kl_divergence():
    testbed = bed.Testbed()
    policy, _, log_p, log_ref = policies(testbed)
    exact = gradient(bed.kl(log_p, log_ref), policy)

    def found(estimator):
        log_p = testbed.log_probs(policy)
        return gradient(bed.expectation(log_p, estimator(log_p, log_ref)), policy)

    torch.testing.assert_close(found(k2), exact)
    torch.testing.assert_close(found(k1), torch.zeros_like(exact))
    assert (found(k3) - exact).norm() > 0.1 * exact.norm()


# Summed over tokens, k2 has the gradient of each token's KL divergence with its prefix fixed. It ignores that a token
# can lead to prefixes at which the policies differ more or less. Catches: a missing half in k2.
def test_k2_of_tokens_has_the_gradient_with_fixed_prefixes():
    testbed = bed.Testbed()
    policy, other, log_p, _ = policies(testbed)
    logp, ref = testbed.logp(policy, testbed.sequences), testbed.logp(other, testbed.sequences).detach()
    found = gradient(bed.expectation(log_p, k2(logp, ref).sum(1)), policy)
    log_pi, log_ref = (p(testbed.sequences[:, :-1]).log_softmax(-1) for p in (policy, other))         # [64, 3, 4]
    each = (log_pi.exp() * (log_pi - log_ref)).sum((1, 2))
    torch.testing.assert_close(found, gradient(bed.expectation(log_p, each), policy))


LOSSES = {"vpg": lambda logp, adv: policy_gradient(logp, adv)[0],
          "ppo": lambda logp, adv: clipped_surrogate(logp, logp.detach(), adv, (0.2, 0.2))[0]}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


# Catches: a loss with the wrong sign; a ratio whose old part has a gradient.
@each_loss
def test_both_losses_have_the_policy_gradient(loss):
    testbed = bed.Testbed()
    policy, _, log_p, _ = policies(testbed)
    exact = gradient(testbed.expected_reward(log_p), policy)
    each = loss(testbed.logp(policy, testbed.sequences), testbed.rewards[:, None]).sum(1)
    torch.testing.assert_close(-gradient(bed.expectation(log_p, each), policy), exact)


# The KL penalty is a part of the reward, as in REINFORCE++: exact for whole responses too. Catches: the penalty of one
# token in place of the sum from this token on; a penalty with the wrong sign.
@each_loss
def test_kl_penalty_in_the_reward_has_the_gradient_of_the_objective(loss):
    testbed, beta = bed.Testbed(), 0.3
    policy, other, log_p, log_ref = policies(testbed)
    exact = gradient(testbed.expected_reward(log_p) - beta * bed.kl(log_p, log_ref), policy)
    logp, ref = testbed.logp(policy, testbed.sequences), testbed.logp(other, testbed.sequences).detach()
    adv = reward_to_go(testbed.rewards, k1(logp.detach(), ref), beta, torch.ones_like(logp))
    torch.testing.assert_close(-gradient(bed.expectation(log_p, loss(logp, adv).sum(1)), policy), exact)


# As in PPO, with a value function too. The value depends only on the prefix, so with a lambda of 1 any values give the
# same expected gradient. Catches: the value of the state after a token; a KL penalty with the wrong sign, or one that
# earlier tokens do not get; the reward at another token than the last; a gamma or lambda below 1.
@each_loss
@pytest.mark.parametrize("values", ["none", "any"])
def test_token_rewards_with_values_have_the_gradient_of_the_objective(values, loss):
    testbed, beta = bed.Testbed(), 0.3
    policy, other, log_p, log_ref = policies(testbed)
    exact = gradient(testbed.expected_reward(log_p) - beta * bed.kl(log_p, log_ref), policy)
    logp, ref = testbed.logp(policy, testbed.sequences), testbed.logp(other, testbed.sequences).detach()
    mask, value = torch.ones_like(logp), torch.zeros_like(logp)
    if values == "any":                                                   # a number for each prefix
        value = bed.TabularPolicy(seed=9)(testbed.sequences[:, :-1])[..., 0].detach()

    def expected(lam):
        rewards, last = token_rewards(testbed.rewards, k1(logp.detach(), ref), beta, mask)
        episode = rewards, value, following(value, mask), last, torch.zeros_like(last)
        adv, _ = gae(*episode, gamma=1.0, lam=lam, mask=mask)
        return -gradient(bed.expectation(log_p, loss(testbed.logp(policy, testbed.sequences), adv).sum(1)), policy)

    torch.testing.assert_close(expected(1.0), exact)
    assert (expected(0.9) - exact).norm() > 0.01 * exact.norm()           # it adds a bias and reduces the variance


def expected_gradient(advantage, G=2):
    """Expected gradient of the mean over a group of G on a testbed of 4 responses, with every group weighted by its
    probability; and the exact gradient of the expected reward."""
    testbed = bed.Testbed(2, 2)
    policy, _, log_p, _ = policies(testbed)
    groups = torch.cartesian_prod(*[torch.arange(4)] * G)                                    # [4^G, G]
    adv = advantage(testbed.rewards[groups].flatten(), log_p)
    each = policy_gradient(testbed.logp(policy, testbed.sequences[groups.flatten()]), adv[:, None])[0].sum(1)
    found = bed.expectation(log_p.detach()[groups].sum(1), each.view(-1, G).mean(1))
    return -gradient(found, policy), gradient(testbed.expected_reward(testbed.log_probs(policy)), policy)


def greedy(log_p):
    return bed.Testbed(2, 2).rewards[log_p.argmax()]


# A baseline must not depend on its own response. These do not: a running mean, the reward of the greedy response, and
# the mean of the other responses. Catches: G in place of G - 1 in `leave_one_out`.
@pytest.mark.parametrize("baseline", [lambda rewards, log_p: leave_one_out(rewards, 2),
                                      lambda rewards, log_p: rewards - 0.37,
                                      lambda rewards, log_p: rewards - greedy(log_p)],
                         ids=["rloo", "running mean", "remax"])
def test_baselines_do_not_change_the_expected_gradient(baseline):
    torch.testing.assert_close(*expected_gradient(baseline))


# The group mean of GRPO contains the response's own reward. This scales the gradient by (G - 1) / G and keeps its
# direction. A division by the standard deviation changes its direction. Catches: a division by the standard deviation
# in both.
@pytest.mark.parametrize("G", [2, 3])
def test_group_mean_scales_the_expected_gradient(G):
    found, exact = expected_gradient(lambda rewards, log_p: group_advantage(rewards, G, "mean"), G)
    torch.testing.assert_close(found, exact * (G - 1) / G)
    found, exact = expected_gradient(lambda rewards, log_p: group_advantage(rewards, G, "group"), G)
    assert torch.cosine_similarity(found, exact, dim=0) < 0.9999


# Catches: a baseline of another group; G - 1 and G exchanged.
@pytest.mark.parametrize("G", [2, 3, 8])
def test_rloo_equals_dr_grpo_up_to_a_scale(G):
    rewards = torch.rand(5 * G, generator=torch.Generator().manual_seed(G))
    torch.testing.assert_close(leave_one_out(rewards, G), G / (G - 1) * group_advantage(rewards, G, "mean"))
