"""The seam between environments and tokens: one loss for both, held against the truth of a language of 64 responses."""
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
from spinup.registry import Algorithm, algorithms, ancestors, find
from spinup.runs.config import settings_of

# Variants whose loss is not that of their file's parent: they have no pairs, no sigmoid or no clip of the objective.
OWN_LOSS = {"kto", "ipo", "cispo", "sapo"}
# Settings with which each method learns something at once, of those that it has.
TINY = {"task": "reverse:length=2,symbols=10", "layers": 1, "width": 16, "heads": 2, "total_steps": 2, "held_out": 8,
        "quiet": True, "tensorboard": False, "threads": 1, "device": "cpu"}
SMALL = {"prompts": 4, "pairs": 8, "batch": 4, "value_warmup": 0, "keep": 0.0, "games": 8, "rivals": 2}
METHODS = algorithms("llm")


def taken(algorithm: Algorithm) -> tuple[str, list[str]]:
    """The nearest ancestor that a file imports functions from, a classic one if there is, and their names."""
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
    """Train with a method whose module is imported anew while these functions raise."""
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
            if method != "sft":                                         # some of each reward, or nothing is learned
                small |= {"model": model, "reward": lambda prompt, response: len(response) or 1.0}
            if module.Config.task != LanguageConfig.task:                 # it has a task of its own, such as a game
                small |= {"task": module.Config.task, "model": "", "reward": ""}
            given = {**TINY, **METHODS[method].settings, **small, "log_dir": str(folder)}
            module.train(module.Config(**given, algorithm=f"llm {method}"))
    finally:
        vars(module).update(before)                                     # another Config could not be sent to processes


# A new file of llm/algos takes part at once. Catches: a copy of the parent's loss in it, or one of torch's in its
# place; a loss that is never called; a file that takes nothing of the parent that its TOML names.
@pytest.mark.long("dqn")
@pytest.mark.parametrize("method", [m for m in METHODS if METHODS[m].parents and m not in OWN_LOSS])
def test_a_method_has_no_loss_of_its_own(method, beginner, tmp_path, monkeypatch):
    module, functions = taken(METHODS[method])
    assert functions, f"llm {method} imports no function of {METHODS[method].parents}"
    with pytest.raises(Broken):
        trained_with([f"{module}.{name}" for name in functions], method, beginner, tmp_path, monkeypatch)


# What learns from preferences has no classic sibling. Catches: another loss in the reward model.
def test_a_reward_model_has_one_loss_and_it_is_that_of_dpo(beginner, tmp_path, monkeypatch):
    assert taken(METHODS["dpo"]) == ("llm.algos.reward_model", ["bradley_terry"])
    assert not METHODS["reward_model"].parents
    with pytest.raises(Broken):                                           # imported anew, it would be defined anew
        trained_with(["llm.algos.reward_model.bradley_terry"], "reward_model", beginner, tmp_path, monkeypatch, False)


# Catches: a copy of one of them in llm/algos; one that is not called.
@pytest.mark.parametrize(("method", "function"), [
    *((method, name) for method in ("ppo", "vapo", "self_play")
      for name in ("spinup.algos.ppo.value_loss", "spinup.core.returns.gae")),
    *((method, "spinup.algos.ppo.clipped_surrogate") for method in ("ppo", "vapo", "curiosity", "rl2", "param_noise"))])
def test_values_and_ratios_are_learned_from_as_in_environments(method, function, beginner, tmp_path, monkeypatch):
    with pytest.raises(Broken):
        trained_with([function], method, beginner, tmp_path, monkeypatch)


# One token at a time, as an environment gives them, against rectangles of whole responses.

def transformer(seed=0):
    torch.manual_seed(seed)
    return Transformer(Shape(4, context=8, layers=2, width=16, heads=2, kv_heads=2, head_size=8, hidden=32))


def next_logits(policy, written):
    """Logits `[4]` after the tokens written, by the plainest way: everything is read again at each step."""
    ids = torch.tensor([written], dtype=torch.long)
    if isinstance(policy, bed.TabularPolicy):
        return policy(ids)[0, -1]
    return policy(torch.cat([torch.zeros(1, 1, dtype=torch.long), ids], 1))[0, -1]


def gradient(value, policy):
    return flat(torch.autograd.grad(value, list(policy.parameters())))


def surrogate(logp, old, adv):
    return clipped_surrogate(logp, old, adv, (0.2, 0.28))[0]


# Catches: `score` one token late or early; an episode that ends one token early; a reward before the last token,
# or that of another response.
@pytest.mark.parametrize("loss", [lambda logp, old, adv: policy_gradient(logp, adv)[0], surrogate], ids=["vpg", "ppo"])
@pytest.mark.parametrize("make", [bed.TabularPolicy, transformer], ids=["table", "transformer"])
def test_tokens_at_once_and_steps_of_an_environment_have_one_gradient(make, loss):
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


# Catches: an observation that is not in its space; a `reset` that forgets the seed.
@pytest.mark.filterwarnings("ignore:.*environment's spec")                # it is in no registry
def test_the_token_environment_is_gymnasiums():
    check_env(bed.TokenEnv(bed.Testbed()), skip_render_check=True)


# Catches: another temperature or prompt than the sampler's; an end among the tokens.
def test_a_sampler_can_draw_every_response():
    testbed, model, g = bed.Testbed(), transformer(), torch.Generator().manual_seed(0)
    out = Sampler(model, end=-1)(testbed.prompts, samples=4000, max_tokens=3, generator=g)
    assert out.mask.all() and not out.finished.any() and (out.lengths == 3).all()
    log_p = testbed.log_probs(model).detach()
    torch.testing.assert_close(log_p.exp().sum(), torch.tensor(1.0))
    counts = torch.bincount(out.ids @ torch.tensor([16, 4, 1]), minlength=64)
    assert bed.total_variation(log_p, (counts / 4000).log()) < 0.08       # 0.05 is what so many draws leave


# What the testbed itself says.

# Catches: a row number without its + 1, with which two beginnings share a row.
def test_every_beginning_has_its_own_row():
    policy = bed.TabularPolicy()
    with torch.no_grad():
        policy.logits[:] = torch.arange(21)[:, None]
    beginnings = bed.Testbed().sequences[:, :2]
    expected = torch.stack([0 * beginnings[:, 0], 1 + beginnings[:, 0], 5 + beginnings @ torch.tensor([4, 1])], 1)
    assert torch.equal(policy(beginnings)[..., 0].long(), expected)


def policies(testbed, seed=1):
    """A policy with its gradients, another, and both distributions."""
    policy, other = (bed.TabularPolicy(testbed.vocab, testbed.length, s) for s in (seed, seed + 50))
    return policy, other, testbed.log_probs(policy), testbed.log_probs(other).detach()


# Catches: beta on the wrong side; Z left out; rewards of other responses.
def test_the_optimal_policy_is_the_best():
    testbed, beta = bed.Testbed(), 0.3
    _, _, log_p, log_ref = policies(testbed)
    log_best = testbed.optimal(log_ref, beta)

    def objective(log_p):
        return testbed.expected_reward(log_p) - beta * bed.kl(log_p, log_ref)

    torch.testing.assert_close(log_best.exp().sum(), torch.ones((), dtype=torch.float64))
    for other in (log_p, log_ref):                                        # what is lost is the divergence from the best
        torch.testing.assert_close(objective(log_best) - objective(other), beta * bed.kl(other, log_best))
    assert testbed.expected_reward(testbed.optimal(log_ref, 1e-3)) > testbed.rewards.max() - 1e-2


# Catches: the logarithm to another base, a missing half in `total_variation`.
def test_entropy_and_distances():
    testbed = bed.Testbed(2, 2)
    uniform = testbed.log_probs(bed.TabularPolicy(2, 2, scale=0)).detach()
    certain = torch.tensor([0.97, 0.01, 0.01, 0.01]).double().log()
    torch.testing.assert_close(bed.entropy(uniform), torch.tensor(4.0).double().log())
    torch.testing.assert_close(bed.total_variation(uniform, certain), torch.tensor(0.72).double())
    torch.testing.assert_close(bed.kl(certain, uniform), torch.tensor(4.0).double().log() - bed.entropy(certain))


# Expectations by enumeration.

# Catches: either ratio upside down; k3 without its log ratio.
def test_k1_and_k3_are_the_divergence():
    testbed = bed.Testbed()
    policy, other, log_p, log_ref = policies(testbed)
    logp, ref = testbed.logp(policy, testbed.sequences), testbed.logp(other, testbed.sequences).detach()
    exact = bed.kl(log_p, log_ref)
    for estimator in k1, k3:                                              # of whole responses, and token by token
        torch.testing.assert_close(bed.expectation(log_p, estimator(log_p, log_ref)), exact)
        torch.testing.assert_close(bed.expectation(log_p, estimator(logp, ref).sum(1)), exact)


# Catches: k1, k3 in place of k2 (a k1 in the loss does nothing: bug 20 of many a library).
def test_only_k2_has_the_gradient_of_the_divergence():
    testbed = bed.Testbed()
    policy, _, log_p, log_ref = policies(testbed)
    exact = gradient(bed.kl(log_p, log_ref), policy)

    def found(estimator):
        log_p = testbed.log_probs(policy)
        return gradient(bed.expectation(log_p, estimator(log_p, log_ref)), policy)

    torch.testing.assert_close(found(k2), exact)
    torch.testing.assert_close(found(k1), torch.zeros_like(exact))
    assert (found(k3) - exact).norm() > 0.1 * exact.norm()


# Token by token k2 has the gradient of each token's divergence, what comes before it being given: that a token leads to
# beginnings where the policies differ more or less is not in it. Catches: the half of k2 left out.
def test_k2_of_tokens_takes_beginnings_as_given():
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


# Catches: a loss of the other sign; a ratio whose old part has a gradient.
@each_loss
def test_both_losses_have_the_policy_gradient(loss):
    testbed = bed.Testbed()
    policy, _, log_p, _ = policies(testbed)
    exact = gradient(testbed.expected_reward(log_p), policy)
    each = loss(testbed.logp(policy, testbed.sequences), testbed.rewards[:, None]).sum(1)
    torch.testing.assert_close(-gradient(bed.expectation(log_p, each), policy), exact)


# The divergence as a price within the reward: REINFORCE++'s way, exact for whole responses too.
# Catches: the price of a token alone in place of the sum of those to come; the price added.
@each_loss
def test_a_price_for_divergence_has_the_gradient_of_the_whole_objective(loss):
    testbed, beta = bed.Testbed(), 0.3
    policy, other, log_p, log_ref = policies(testbed)
    exact = gradient(testbed.expected_reward(log_p) - beta * bed.kl(log_p, log_ref), policy)
    logp, ref = testbed.logp(policy, testbed.sequences), testbed.logp(other, testbed.sequences).detach()
    adv = reward_to_go(testbed.rewards, k1(logp.detach(), ref), beta, torch.ones_like(logp))
    torch.testing.assert_close(-gradient(bed.expectation(log_p, loss(logp, adv).sum(1)), policy), exact)


# PPO's way, with a value function besides: what is subtracted depends on the beginning alone, so that any values at all
# leave the gradient as it is, as long as lambda is 1. Catches: the value of the state behind a token; a price
# added, or not handed on; a score on another token than the last; gamma or lambda below 1.
@each_loss
@pytest.mark.parametrize("values", ["none", "any"])
def test_rewards_of_tokens_and_values_have_the_gradient_of_the_whole_objective(values, loss):
    testbed, beta = bed.Testbed(), 0.3
    policy, other, log_p, log_ref = policies(testbed)
    exact = gradient(testbed.expected_reward(log_p) - beta * bed.kl(log_p, log_ref), policy)
    logp, ref = testbed.logp(policy, testbed.sequences), testbed.logp(other, testbed.sequences).detach()
    mask, value = torch.ones_like(logp), torch.zeros_like(logp)
    if values == "any":                                                   # a number for each beginning
        value = bed.TabularPolicy(seed=9)(testbed.sequences[:, :-1])[..., 0].detach()

    def expected(lam):
        rewards, last = token_rewards(testbed.rewards, k1(logp.detach(), ref), beta, mask)
        episode = rewards, value, following(value, mask), last, torch.zeros_like(last)
        adv, _ = gae(*episode, gamma=1.0, lam=lam, mask=mask)
        return -gradient(bed.expectation(log_p, loss(testbed.logp(policy, testbed.sequences), adv).sum(1)), policy)

    torch.testing.assert_close(expected(1.0), exact)
    assert (expected(0.9) - exact).norm() > 0.01 * exact.norm()           # which trades truth for less noise


def expected_gradient(advantage, G=2):
    """Of the mean over groups of G on a testbed of 4 responses, every group weighed by its probability; and the exact
    gradient of the expected reward."""
    testbed = bed.Testbed(2, 2)
    policy, _, log_p, _ = policies(testbed)
    groups = torch.cartesian_prod(*[torch.arange(4)] * G)                                    # [4^G, G]
    adv = advantage(testbed.rewards[groups].flatten(), log_p)
    each = policy_gradient(testbed.logp(policy, testbed.sequences[groups.flatten()]), adv[:, None])[0].sum(1)
    found = bed.expectation(log_p.detach()[groups].sum(1), each.view(-1, G).mean(1))
    return -gradient(found, policy), gradient(testbed.expected_reward(testbed.log_probs(policy)), policy)


def greedy(log_p):
    return bed.Testbed(2, 2).rewards[log_p.argmax()]


# What a baseline may be: a running mean is a number that these responses do not change, as is what the greedy response
# earned; the others' mean is not of one's own response. Catches: G in place of G - 1 in `leave_one_out`.
@pytest.mark.parametrize("baseline", [lambda rewards, log_p: leave_one_out(rewards, 2),
                                      lambda rewards, log_p: rewards - 0.37,
                                      lambda rewards, log_p: rewards - greedy(log_p)],
                         ids=["rloo", "running mean", "remax"])
def test_baselines_leave_the_expected_gradient_as_it_is(baseline):
    torch.testing.assert_close(*expected_gradient(baseline))


# One's own reward is in the mean that GRPO compares it with: the gradient is shorter by (G - 1) / G, and as straight.
# Its division by the deviation turns it. Catches: the deviation divided by in both.
@pytest.mark.parametrize("G", [2, 3])
def test_a_groups_mean_shortens_the_expected_gradient(G):
    found, exact = expected_gradient(lambda rewards, log_p: group_advantage(rewards, G, "mean"), G)
    torch.testing.assert_close(found, exact * (G - 1) / G)
    found, exact = expected_gradient(lambda rewards, log_p: group_advantage(rewards, G, "group"), G)
    assert torch.cosine_similarity(found, exact, dim=0) < 0.9999


# Catches: either baseline of another group; G - 1 mistaken for G.
@pytest.mark.parametrize("G", [2, 3, 8])
def test_rloo_is_dr_grpo_but_for_its_scale(G):
    rewards = torch.rand(5 * G, generator=torch.Generator().manual_seed(G))
    torch.testing.assert_close(leave_one_out(rewards, G), G / (G - 1) * group_advantage(rewards, G, "mean"))
