"""DRIFT: weights and masks by hand, the closed-form policy by enumeration, and what a run imitates."""
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import llm
from llm.algos.drift import effective_samples, last_turn, solved_groups, weights
from llm.offline import discounted_turns
from llm.policy.generate import Sampler
from llm.policy.load import fresh, load_model
from llm.rollout import join, sample
from llm.run import Run
from llm.tasks import Problem, make_task
from llm.tasks import testbed as bed
from llm.tasks.episodes import Episode, played
from llm.tasks.task import Task
from spinup.algos.vpg import policy_gradient
from spinup.runs.checkpoint import load_checkpoint

# For the tests of all methods; `suite_of` in tests/llm/conftest.py describes it.
SUITE = {
    "settings": {"prompts": 4, "samples": 4, "data": 64, "keep": 0.0},
    "own": ["effective_samples"],
    "lacking": ["reward_std", "zero_variance", "cut_off", "kl", "clip_fraction", "ratio_min", "ratio_max"]}

TASK = "guess:numbers=8,guesses=3"
TINY = {"task": TASK, "held_out": 8, "total_steps": 4, "data": 64, "samples": 4, "prompts": 6, "quiet": True,
        "tensorboard": False, "threads": 1, "device": "cpu", "preset": "none"}


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def guesser(make_model) -> str:
    """The folder of a model that has roughly learned to guess numbers within the range."""
    return make_model(task=TASK, total_steps=150, width=32, lr=0.01, batch=48)


# The functions.

# Catches: a mean over the whole batch; groups made of every G-th row; a multiplication by beta; a sum in place of the
# mean.
@pytest.mark.parametrize("beta", [0.05, 0.5, 3.0])
def test_weights_are_exponentials_of_returns_over_their_group_mean(beta):
    returns = np.random.default_rng(0).random((5, 4))
    expected = [[4 * math.exp(r / beta) / sum(math.exp(x / beta) for x in group) for r in group] for group in returns]
    found = weights(torch.tensor(returns).flatten(), 4, beta)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64).flatten())
    torch.testing.assert_close(found.view(5, 4).mean(1), torch.ones(5, dtype=torch.float64))


# Catches: exp of an unshifted return; a shift by the smallest return, or by the largest return of another group.
def test_large_returns_do_not_overflow():
    returns = torch.tensor([1e6, 1e6 - 1, -1e6, -1e6 + 0.5, 0.0, 1.0])
    found = weights(returns, 2, 0.5)
    wanted = [[2 / (1 + math.exp(-d / 0.5)), 2 / (1 + math.exp(d / 0.5))] for d in (1.0, -0.5, -1.0)]
    torch.testing.assert_close(found, torch.tensor(wanted).flatten())
    assert torch.isfinite(weights(torch.tensor([3e38, -3e38]), 2, 1e-3)).all()


# Catches: a multiplication by beta; only the first of several equally good responses.
def test_small_beta_gives_best_of_n_and_large_beta_plain_imitation():
    returns = torch.tensor([0.3, 0.9, 0.1, 0.9, 5, 4, 3, 2])
    torch.testing.assert_close(weights(returns, 4, 1e-30), torch.tensor([0.0, 2, 0, 2, 4, 0, 0, 0]))
    torch.testing.assert_close(weights(returns, 4, 1e30), torch.ones(8))
    assert float(effective_samples(weights(returns, 4, 1e-30), 4)) == pytest.approx(1.5)
    assert float(effective_samples(weights(returns, 4, 1e30), 4)) == pytest.approx(4)


# Catches: a group that is left out because all its responses succeed; the mean reward in place of the largest.
def test_groups_without_a_success_are_left_out():
    rewards = torch.tensor([0.0, 0, 0, 1, 1, 1, 0.5, 0.9, -1, -1])
    assert solved_groups(rewards, 2, 1.0).tolist() == [1, 2]
    assert solved_groups(rewards, 2, 0.9).tolist() == [1, 2, 3]
    assert solved_groups(rewards, 2, -1).tolist() == [0, 1, 2, 3, 4]


# Catches: the second to last turn, if text of the environment or its end token follows the last one; padding in the
# mask.
def test_last_turn_mask_has_only_the_last_tokens_of_the_policy():
    mask = torch.tensor([[1.0, 1, 1, 0, 0], [1, 1, 0, 1, 1], [1, 0, 1, 0, 1], [1, 0, 1, 1, 0], [0, 1, 0, 0, 0],
                         [0, 0, 0, 0, 0]])
    last = [[1.0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 1], [0, 0, 1, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert last_turn(mask).tolist() == last and last_turn(mask).dtype == mask.dtype


# Catches: a discount of the first turn; one discount for the whole response.
def test_rewards_of_turns_are_discounted():
    found = discounted_turns([[1.0], [0, 1.0], [0.5, 0, 2.0], []], 0.5)
    assert found.tolist() == [1.0, 0.5, 1.0, 0.0] and discounted_turns([[0.0, 1]], 1.0).item() == 1


# The closed form.

# Weighted imitation of all responses, each with its probability under pi_ref. Catches: a multiplication by beta; a loss
# whose weights are not those of the equation; a policy gradient with the wrong sign.
@pytest.mark.parametrize("beta", [0.1, 0.4])
def test_weighted_imitation_converges_to_the_optimal_policy(beta):
    testbed = bed.Testbed()
    log_ref = testbed.log_probs(bed.TabularPolicy(seed=1)).detach()
    policy = bed.TabularPolicy(seed=2)
    weight = weights(testbed.rewards, 64, beta)[:, None]
    optimizer = torch.optim.LBFGS(policy.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = bed.expectation(log_ref, policy_gradient(testbed.logp(policy, testbed.sequences), weight)[0].sum(1))
        loss.backward()
        return loss

    optimizer.step(closure)
    wanted, found = testbed.optimal(log_ref, beta), testbed.log_probs(policy).detach()
    assert float(bed.kl(wanted, found)) < 1e-4 < 0.1 < float(bed.kl(wanted, log_ref))


class Letters(Task):
    """Two letters of a, b, c; each of the 9 texts has its own reward, and any other text has reward 0."""

    name, alphabet, max_tokens, measure = "pairs", "abc>", 2, "held_out_reward"

    def problems(self, n, rng, held_out=False):
        return [Problem("a>" if held_out else "b>")] * n

    def demonstration(self, problem, rng):
        return "".join(self.alphabet[i] for i in rng.integers(3, size=2))

    def reward(self, problem, response):
        return REWARDS.get(response, 0.0)


REWARDS = dict(zip((x + y for x in "abc" for y in "abc"), np.random.default_rng(4).random(9).tolist(), strict=True))


def of_texts(model, tokenizer):
    """Log-probabilities of the 9 texts after the prompt b>, `[9]`."""
    found = []
    for text in REWARDS:
        ids = torch.tensor([tokenizer.prompt("b>") + tokenizer.encode(text)])
        logp = model(ids)[0].double().log_softmax(-1)
        found.append(sum(logp[k + 1, ids[0, k + 2]] for k in range(2)))
    return torch.stack(found).detach()


# Catches: weights that are missing in the loss, or weights of other rows; responses of another policy than the initial
# one; rewards of other responses.
@pytest.mark.long
def test_trained_transformer_matches_the_closed_form_policy(make_model, two_rows):
    model = make_model(task=Letters(), total_steps=60, layers=1, width=32, heads=2, batch=64, lr=0.01)
    start, beta = load_model(model), 0.25
    log_ref = of_texts(start.model, start.tokenizer)
    assert float(log_ref.logsumexp(0)) > math.log(0.9)                    # other texts are rare
    result = llm.drift(Letters(), model=model, beta=beta, keep=0.0, data=8192, samples=256, prompts=2, lr=3e-3,
                       total_steps=150, warmup=5, **{k: x for k, x in TINY.items() if k not in (
                           "task", "data", "samples", "prompts", "total_steps")})
    found = of_texts(result.policy.model, result.policy.tokenizer).log_softmax(0)
    wanted = (log_ref + torch.tensor([*REWARDS.values()]) / beta).log_softmax(0)
    assert float(bed.kl(wanted, found)) < 0.01 < 0.1 < float(bed.kl(wanted, log_ref.log_softmax(0)))


# Turns.

class Count(Episode):
    """Three turns of one letter each; turn k has reward k if its letter is a."""

    def __init__(self):
        self.k = 0

    def act(self, text):
        self.k += 1
        return float(self.k * text.startswith("a")), self.k == 3

    def observe(self):
        return "!"


class Counting(Task):
    name, alphabet, end_of_turn, max_tokens = "counting", "ab!>", "", 6

    def problems(self, n, rng, held_out=False):
        return [Problem("b>" if held_out else "a>")] * n

    def demonstration(self, problem, rng):
        return "a!a!a"

    def open(self, problem):
        return Count()


def batch_of(task, samples=40):
    from llm.algos.sft import Config
    start = fresh(Config(layers=1, width=16, heads=2), task)
    return sample(Sampler(start.model, start.tokenizer.ends), task, start.tokenizer, [Problem("a>")], samples=samples,
                  max_tokens=6, generator=torch.Generator().manual_seed(0))


# Catches: cumulative rewards of turns, or rewards that are lost in a selection of rows; a user's reward on the first
# turn in place of the last.
def test_batch_keeps_the_reward_of_each_turn():
    task = make_task(Counting())
    batch = batch_of(task)
    for text, turns in zip(batch.texts, batch.turns, strict=True):
        own = [c for c, mine in zip(text, played(task, text, Problem("a>"))[0], strict=True) if mine]
        expected = [float((k + 1) * (c == "a")) for k, c in enumerate(own)]
        assert turns in (expected, [*expected, 0.0])                      # an end token is a turn without text
    assert [sum(turns) for turns in batch.turns] == batch.rewards.tolist()
    assert {len(turns) for turns in batch.turns} == {1, 2, 3}             # some responses end early
    rows = torch.tensor([7, 3])
    assert batch.pick(rows).turns == [batch.turns[7], batch.turns[3]]
    assert join([batch, batch]).turns == batch.turns * 2
    other = batch_of(make_task(Counting(), lambda prompt, response: 5.0))
    assert other.turns == [[0.0] * (len(turns) - 1) + [5.0] for turns in batch.turns]


# A run: what it imitates, and with which weights.

@pytest.fixture
def updates(monkeypatch) -> list:
    """The calls of `Run.backward`: batch, rows, weights, denominator."""
    seen, backward = [], Run.backward

    def spy(run, batch, rows, loss, *per_row, denominator):
        seen.append((batch, rows, *per_row, denominator))
        return backward(run, batch, rows, loss, *per_row, denominator=denominator)

    monkeypatch.setattr(Run, "backward", spy)
    return seen


# Catches: one mean over rows of different groups; rewards that are not discounted; a group without a success; a mask
# of all turns; a denominator that counts other tokens.
@pytest.mark.long("last")
@pytest.mark.parametrize("turns", ["last", "all"])
def test_run_weights_the_turns_of_whole_groups_by_their_returns(turns, guesser, updates):
    result = llm.drift(**TINY, model=guesser, beta=0.3, gamma=0.8, turns=turns)
    tokenizer, lengths = load_model(guesser).tokenizer, set()
    stored = load_checkpoint(result.directory / "checkpoint.pt")["parts"]["data"]["rewards"].view(-1, 4)
    assert len(updates) == 4 and bool((stored.amax(1) == 0).any())        # a group that must be left out
    for batch, rows, weight, denominator in updates:
        r, returns = batch.responses, []
        assert len(rows) == 24 and (batch.rewards.view(6, 4).amax(1) == 1).all()
        for b in range(24):
            text = tokenizer.decode(r.ids[b, :r.lengths[b]].tolist())     # a guess or an end, a reply, a guess, ...
            guesses = (len(text) + 1) // 2 + (len(text) % 2 == 0 and r.ids[b, len(text)].item() == tokenizer.end)
            returns.append(0.8**(guesses - 1) * float(batch.rewards[b]))
            own = [k for k in range(r.ids.shape[1]) if r.mask[b, k] > 0]
            assert own == ([2 * guesses - 2] if turns == "last" else [*range(0, 2 * guesses, 2)])
            lengths.add(guesses)
        expected = weights(torch.tensor(returns), 4, 0.3)
        torch.testing.assert_close(weight[:, 0], expected)
        assert denominator == r.mask.sum()
    assert lengths == {1, 2, 3}


# Catches: data that are missing in the checkpoint or sampled again; a random number generator that is not restored.
@pytest.mark.long
def test_killed_run_resumes_with_the_same_curve(guesser, killed, cli, curve, tmp_path):
    words = ["llm", "drift", "--task", TASK, "--held-out", 8, "--threads", 1, "--no-tensorboard", "--preset", "none",
             "--exp-name", "x", "--lr", 0.01, "--prompts", 4, "--samples", 4, "--data", 64, "--total-steps", 30,
             "--checkpoint-steps", 7, "--model", guesser]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    expected = curve(tmp_path / "whole/x/x_s1")
    assert len(expected) > 20
    done = killed(words, Path("runs/x/x_s1"), len(expected), 1, "drift")
    assert done.code == 0 and "Traceback" not in done.err
    assert curve(tmp_path / "runs/x/x_s1") == expected


# Catches: a mean over the rows of a micro-batch.
def test_micro_batches_do_not_change_the_update(guesser):
    found = [llm.drift(**TINY | {"micro_batch": size, "lr": 0.01}, model=guesser) for size in (0, 5)]
    one, other = (torch.cat([p.flatten() for p in run.policy.model.parameters()]) for run in found)
    torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-3)


# Catches: data that depend on the method.
def test_drift_learns_from_the_same_data_as_rejection_sampling(guesser):
    runs = [llm.drift(**TINY, model=guesser), llm.best_of_n(**TINY, model=guesser)]
    one, other = (load_checkpoint(run.directory / "checkpoint.pt")["parts"]["data"] for run in runs)
    assert all(torch.equal(torch.as_tensor(x), torch.as_tensor(one[name])) for name, x in other.items())
    assert {*one} - {*other} == {"returns"}


def test_invalid_settings_give_an_error_of_one_line(cli, guesser, tree):
    before = tree()
    for words, said in ((["--samples", 1], "the weight of a response depends on the other responses to its prompt, "
                                           "and --samples 1 gives none; choose 2 or more"),
                        (["--data", 100], "--data 100 is not a whole number of groups of --samples 16 responses; "
                                          "choose 96"),
                        (["--data", 4], "is not a whole number of groups of --samples 16 responses; choose 16"),
                        (["--beta", 0], "--beta must be above 0, not 0"),
                        (["--gamma", 1.1], "--gamma must be from 0 to 1, not 1.1"),
                        (["--turns", "first"], "--turns must be one of last, all, not 'first'")):
        done = cli("llm", "drift", "--task", TASK, "--model", guesser, *words)
        assert done.code == 2 and said in done.err and done.err.count("\n") == 1
    assert tree() == before
    done = cli("llm", "drift", "--task", TASK, "--model", guesser, "--data", 64, "--keep", 2, "--quiet")
    assert done.code == 2 and "no response of the data has a reward of at least --keep 2" in done.err
