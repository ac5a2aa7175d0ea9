"""Q-learning on tokens: targets computed step by step, fixed points by enumeration, and the policy derived from Q."""
import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import huber_loss

import llm
from llm.algos import dqn
from llm.algos.dqn import Config, targets, token_values, value_losses
from llm.offline import StoredResponses
from llm.policy.action_values import ActionValues, ValuePolicy
from llm.policy.cache import Slots
from llm.policy.generate import Prompts, Responses, Sampler
from llm.policy.load import load_model
from llm.policy.score import read, score
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from llm.rollout import Batch
from llm.run import Run
from llm.tasks import Problem
from llm.tasks import testbed as bed
from llm.tasks.strings import Copy
from llm.tasks.task import Task, is_held_out
from spinup.algos.dqn import greedy_value, td_target
from spinup.core.fast.adam import FlatAdam
from spinup.errors import UserError
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.files import read_json

# For the tests of all methods; `suite_of` in tests/llm/conftest.py describes it.
SUITE = {
    "settings": {"prompts": 4, "samples": 4, "data": 64, "batch": 16},
    "own": ["q", "value", "error", "cql_loss"],
    "lacking": ["reward_std", "zero_variance", "cut_off", "entropy", "logp", "kl", "clip_fraction", "ratio_min",
        "ratio_max"],
    "dqn_online": {"lacking": ["entropy", "logp", "kl", "clip_fraction", "ratio_min", "ratio_max"]}}

TINY = {"task": "reverse:length=2,symbols=10", "held_out": 8, "total_steps": 4, "data": 64, "batch": 16, "quiet": True,
        "tensorboard": False, "threads": 1, "device": "cpu", "preset": "none"}
GREEDY = {"target": "greedy", "cql_coef": 0.0}


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def transformer(seed=0, vocab=4):
    torch.manual_seed(seed)
    return Transformer(Shape(vocab, context=16, layers=2, width=16, heads=2, kv_heads=2, head_size=8, hidden=32))


def valued(body, seed=1, scale=1.0):
    """Q and V with random heads."""
    values = ActionValues(body)
    torch.manual_seed(seed)
    with torch.no_grad():
        values.weight.normal_(std=scale / body.shape.width**0.5)
        values.bias.normal_(std=scale)
    return values


def losses(q, v, target_q, ids, rewards, mask, cfg):
    """Losses of tokens, from the values of the whole vocabulary."""
    return value_losses(token_values(q, v, target_q, ids, cfg), rewards, mask, cfg)


def in_state(values, written):
    """Q and V after the tokens `written`. The model reads the whole sequence again, without a cache."""
    ids = torch.tensor([[0, *written]])
    return [x[0, -1] for x in values.numbers(values.body.hidden(ids, Slots()))]


# Catches: the wrong sign; the value of another token; a penalty that is not multiplied by its coefficient.
def test_conservative_term_is_the_negative_log_softmax_of_q():
    g = torch.Generator().manual_seed(0)
    q, target = (torch.randn(3, 5, 7, generator=g) for _ in range(2))
    v, ids, mask = torch.randn(3, 5, generator=g), torch.randint(7, (3, 5), generator=g), torch.ones(3, 5)
    for kind in "greedy", "expectile":
        none, some = (losses(q, v, target, ids, torch.ones(3), mask, Config(target=kind, cql_coef=c))[0]
                      for c in (0.0, 0.7))
        for b in range(3):
            for t in range(5):
                expected = -0.7 * math.log(float(q[b, t, ids[b, t]].exp() / q[b, t].exp().sum()))
                assert float(some[b, t] - none[b, t]) == pytest.approx(expected, abs=1e-4)


# A batch of responses, compared with single transitions from an environment.

# Catches: the value of the state before a token in its target; a bootstrap at the last token; the reward on
# another token; a target with a gradient; exchanged networks in double DQN; another loss than Huber's.
@pytest.mark.parametrize("double", [True, False])
def test_batch_gradient_equals_that_of_single_transitions(double):
    testbed, g = bed.Testbed(), torch.Generator().manual_seed(0)
    values, target = valued(transformer()), valued(transformer(), seed=2)
    ids = testbed.sequences[torch.randint(64, (10,), generator=g)]
    rewards = testbed.rewards[ids @ torch.tensor([16, 4, 1])].float()
    of, mask = torch.zeros(10, dtype=torch.long), torch.ones(10, 3)
    cfg = Config(double=double, gamma=0.9, **GREEDY)
    (q, v), (target_q, _) = (m.numbers(read(m.body, testbed.prompts, of, ids)) for m in (values, target))
    at_once = losses(q, v, target_q, ids, rewards, mask, cfg)[0].mean()

    env, by_step = bed.TokenEnv(testbed), []
    for row in ids.tolist():
        obs, _ = env.reset()
        for token in row:
            written = [x for x in obs.tolist() if x < testbed.vocab]
            obs, reward, terminated, truncated, _ = env.step(token)
            later = [x for x in obs.tolist() if x < testbed.vocab]
            after, chosen_by = ([in_state(m, later)[0][None] for m in (target, values)]
                                if not terminated else [torch.zeros(1, 4)] * 2)
            y = td_target(torch.tensor([reward]), 0.9, torch.tensor([float(terminated)]),
                          greedy_value(after, chosen_by if double else None)).detach()
            by_step.append(huber_loss(in_state(values, written)[0][token][None], y))
            assert not truncated
    expected = torch.autograd.grad(torch.stack(by_step).mean(), list(values.parameters()), allow_unused=True)
    found = torch.autograd.grad(at_once, list(values.parameters()), allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)
    assert max(float(x.abs().max()) for x in found) > 0.01


# Catches: chunks of tokens that lose their gradient or are joined in another order.
def test_chunks_of_a_batch_do_not_change_the_losses_and_gradients(beginner, monkeypatch):
    progress = []
    for chunk in 2**26, 50:
        monkeypatch.setattr("llm.policy.score.CHUNK", chunk)
        result = llm.dqn(**TINY | {"lr": 0.02, "warmup": 0}, model=beginner)
        progress.append({name: result.progress[name] for name in ("loss", "grad_norm", "q", "cql_loss")})
    assert progress[0] == {name: pytest.approx(x, rel=1e-4, nan_ok=True) for name, x in progress[1].items()}


# In the first row, a tool's token lies between two tokens of the policy. The third row has padding after one token.
# Catches: the value of the next column; NaN multiplied by 0; a bootstrap after the end.
def test_targets_skip_tool_tokens_and_padding():
    nan = math.nan
    mask = torch.tensor([[1.0, 0, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    value = torch.tensor([[5.0, nan, 7, nan], [1, 2, 3, 4], [9, nan, nan, nan]])
    found = targets(torch.tensor([1.0, 0.5, -2]), mask, value, 0.5)
    assert found[0][[0, 2]].tolist() == [3.5, 1.0]
    assert found[1].tolist() == [1.0, 1.5, 2.0, 0.5] and found[2][0] == -2


# Catches: a loss or a diagnostic that includes padding; a gradient of V from the loss of Q, or of Q from that of V.
def test_padding_has_no_effect_and_each_head_has_its_own_gradient():
    g = torch.Generator().manual_seed(0)
    q, target_q = torch.randn(2, 3, 4, 5, generator=g)
    v, ids = torch.randn(3, 4, generator=g), torch.randint(5, (3, 4), generator=g)
    rewards, mask = torch.rand(3, generator=g), torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    each, stats = losses(q, v, target_q, ids, rewards, mask, Config())
    wide = [torch.cat([x, torch.full_like(x[:, :2], math.nan)], 1) for x in (q, v, target_q)]
    longer = [torch.cat([x, torch.zeros_like(x[:, :2])], 1) for x in (ids, mask)]
    more, again = losses(*wide, longer[0], rewards, longer[1], Config())
    counts = mask > 0
    torch.testing.assert_close(more[:, :4][counts], each[counts])
    for name in stats:
        torch.testing.assert_close(again[name], stats[name])

    q.requires_grad_()
    v.requires_grad_()
    cfg = Config(cql_coef=0.0, expectile=0.8)
    of_q, of_v = torch.autograd.grad(losses(q, v, target_q, ids, rewards, mask, cfg)[0][counts].sum(), (q, v))
    u = target_q.gather(-1, ids[..., None])[..., 0] - v.detach()
    torch.testing.assert_close(of_v[counts], (-2 * torch.where(u < 0, 0.2, 0.8) * u)[counts])
    taken = torch.zeros_like(q).scatter(-1, ids[..., None], 1.0) * mask[..., None]
    assert (of_q[taken == 0] == 0).all() and (of_q[taken > 0] != 0).all()


# Fixed points on the testbed, with tabular values. The true values come from an enumeration of the 64 responses.

def expectile(values, weights, tau):
    """The tau-expectile of values `[..., n]` with these weights, by bisection of its definition."""
    low, high = values.amin(-1), values.amax(-1)
    for _ in range(60):
        m = ((low + high) / 2)[..., None]
        above, below = ((weights * x.clamp(min=0)).sum(-1) for x in (values - m, m - values))
        up = tau * above > (1 - tau) * below
        low, high = torch.where(up, m[..., 0], low), torch.where(up, high, m[..., 0])
    return (low + high) / 2


def fixed_point(testbed, log_ref, summary):
    """Q of every prefix, `[21, 4]`, in the order of `TabularPolicy`, by recursion from the rewards.

    summary(Q [n, 4], probabilities [n, 4]) is the value of a state.
    """
    q, levels = testbed.rewards.view(-1, 4), []
    for length in (2, 1, 0):
        levels.insert(0, q)
        if length:
            first = sum(4**t for t in range(length))
            weights = log_ref[first:first + 4**length].exp()
            q = summary(q, weights).view(-1, 4)
    return torch.cat(levels)


@pytest.fixture
def table():
    """A behaviour policy of the testbed, and its log-probabilities of the next token in each state, `[21, 4]`."""
    policy = bed.TabularPolicy(seed=3, scale=0.5)
    return policy, policy.logits.detach().log_softmax(-1)


# Catches: `1 - tau` in place of tau; a target of V's own network; the largest Q in place of an expectile; a mean over
# tokens with other weights than those of the data.
@pytest.mark.parametrize("name", ["expectile", "greedy", "double"])
def test_tabular_values_converge_to_the_enumerated_fixed_point(name, table):
    testbed, (policy, log_ref) = bed.Testbed(), table
    q, v = (torch.zeros(21, n, dtype=torch.float64, requires_grad=True) for n in (4, 1))
    rows = torch.stack([torch.zeros(64, dtype=torch.long), 1 + testbed.sequences[:, 0],
                        5 + testbed.sequences[:, :2] @ torch.tensor([4, 1])], 1)
    cfg = (Config(expectile=0.8, cql_coef=0.0, gamma=1.0) if name == "expectile"
           else Config(**GREEDY, double=name == "double"))
    weight = testbed.log_probs(policy).detach().exp()                     # an infinite batch of the behaviour policy
    optimizer = torch.optim.Adam([q, v], lr=0.03, betas=(0.5, 0.9))
    for i in range(400):
        optimizer.param_groups[0]["lr"] = 0.03 * (1 - i / 400)
        if i % 10 == 0:
            target = q.detach().clone()
        each = losses(q[rows], v[rows][..., 0], target[rows], testbed.sequences, testbed.rewards,
                      torch.ones(64, 3, dtype=torch.float64), cfg)[0]
        loss = 64 * (weight[:, None] * each).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wanted = fixed_point(testbed, log_ref, lambda q, p: expectile(q, p, 0.8) if name == "expectile" else q.amax(-1))
    assert (q - wanted).abs().max() < 0.02
    if name == "expectile":
        highest = fixed_point(testbed, log_ref, lambda q, p: q.amax(-1))
        assert (wanted - highest).abs().max() > 0.05                      # so that the test distinguishes the two
        torch.testing.assert_close(v[0, 0], expectile(wanted[0], log_ref[0].exp(), 0.8), atol=0.02, rtol=0)


# Complete training runs, in which responses end at their end token or at the length limit.

class Tree(Task):
    """Responses of up to two tokens of a, b, > and the end; each of the 13 texts has a reward.

    The prompt contains > and another letter. Otherwise a transformer with rotary positions could not distinguish aa
    from a.
    """

    name, alphabet, max_tokens, measure = "tree", "ab>", 2, "held_out_reward"

    def problems(self, n, rng, held_out=False):
        return [Problem("a>" if held_out else "b>")] * n

    def demonstration(self, problem, rng):
        return "".join(self.alphabet[i] for i in rng.integers(3, size=rng.integers(3)))

    def reward(self, problem, response):
        return REWARDS[response]


TEXTS = ["".join(x) for n in range(3) for x in product("ab>", repeat=n)]
REWARDS = dict(zip(TEXTS, np.random.default_rng(5).random(len(TEXTS)).tolist(), strict=True))
STATES = [text for text in TEXTS if len(text) < 2]


def tree_values(summary):
    """Q of each state and token (end, a, b, >) of the tree, by recursion. summary(state, Q [4]) is a state's value."""
    found = {}
    for state in sorted(STATES, key=len, reverse=True):
        after = [REWARDS[t] if len(t) == 2 else summary(t, found[t]) for t in (state + x for x in "ab>")]
        found[state] = torch.tensor([REWARDS[state], *after], dtype=torch.float64)
    return found


def tree_numbers(model, tokenizer, of=lambda model: model):
    """Results of `of(model)` in each state of the tree, after the prompt b>."""
    rows = {state: torch.tensor([tokenizer.prompt("b>") + tokenizer.encode(state)]) for state in STATES}
    with torch.no_grad():
        return {state: of(model)(ids)[0, -1].double() for state, ids in rows.items()}


@pytest.fixture(scope="module")
def tree_start(make_model):
    return make_model(task=Tree(), total_steps=20, layers=1, width=32, heads=2, batch=32, lr=0.01)


def q_of(policy):
    values = policy.values
    return lambda ids: values.numbers(values.body.hidden(ids, Slots()))[0]


LEARN = {"batch": 128, "lr": 1e-2, "warmup": 10, "target_every": 10, "cql_coef": 0.0, "held_out": 8, "quiet": True,
         "tensorboard": False, "threads": 1, "device": "cpu", "preset": "none"}


# Catches: an end token without a value; a bootstrap at the end of a response that is cut off at the limit; a wrong
# prompt; responses without exploration; an outdated target network.
@pytest.mark.long
def test_online_values_converge_to_those_of_the_optimal_policy(tree_start, two_rows):
    result = llm.dqn_online(Tree(), model=tree_start, total_steps=200, gradient_steps=2, data=2000, prompts=32,
                            samples=1, beta=1.0, **LEARN)
    policy, wanted = result.policy.model, tree_values(lambda state, q: q.max())
    found = tree_numbers(policy, result.policy.tokenizer, q_of)
    assert max(float((found[s] - wanted[s]).abs().max()) for s in STATES) < 0.02


# Catches: data of another policy than the initial one; rows that are left out; a response that is stored without its
# reward, or with the reward of another response.
@pytest.mark.long
def test_offline_values_converge_to_expectiles_under_the_initial_policy(tree_start, two_rows):
    result = llm.dqn(Tree(), model=tree_start, total_steps=300, data=8000, expectile=0.8, **LEARN)
    start = load_model(tree_start)
    log_ref = tree_numbers(start.model, start.tokenizer)
    log_ref = {s: x.log_softmax(-1) for s, x in log_ref.items()}
    wanted = tree_values(lambda state, q: expectile(q, log_ref[state].exp(), 0.8))
    best = tree_values(lambda state, q: q.max())
    found = tree_numbers(result.policy.model, result.policy.tokenizer, q_of)
    off = {s: (found[s] - wanted[s]).abs()[log_ref[s] > math.log(0.05)].max() for s in STATES}
    assert max(off.values()) < 0.03                                       # allows for noise of samples and minibatches
    assert max(float((best[s] - wanted[s]).abs().max()) for s in STATES) > 0.05


# The policy.

# Catches: beta in the wrong place; logits that are not normalised before Q is added; hidden states of the wrong model.
def test_policy_is_the_reference_policy_times_exp_of_beta_q():
    reference, values = transformer(), valued(transformer(1))
    policy, g = ValuePolicy(reference, values, 2.5), torch.Generator().manual_seed(0)
    ids = torch.randint(4, (3, 7), generator=g)
    q, v = values.numbers(values.body.hidden(ids, Slots()))
    log_ref = reference(ids).log_softmax(-1)
    wanted = log_ref.exp() * torch.exp(2.5 * (q - v[..., None]))
    torch.testing.assert_close(policy(ids).softmax(-1), wanted / wanted.sum(-1, keepdim=True), atol=1e-6, rtol=1e-5)
    without_v = log_ref.exp() * torch.exp(2.5 * q)                        # V cancels
    torch.testing.assert_close(policy(ids).softmax(-1), without_v / without_v.sum(-1, keepdim=True))
    nothing = ValuePolicy(reference, ActionValues(reference), 2.5)
    torch.testing.assert_close(nothing(ids).log_softmax(-1), log_ref)


# Catches: a cache in which the layers of one model overwrite those of the other; padding that is read as part of a
# prompt; a prefix that the second model does not read.
@pytest.mark.parametrize("rows", [[[1, 2, 3]] * 3, [[1], [1, 2, 3], [0, 3]]], ids=["equal", "padded"])
def test_sampling_and_scoring_give_the_same_log_probabilities(rows):
    policy = ValuePolicy(transformer(), valued(transformer(1)), 2.0)
    prompts, g = Prompts.of(rows), torch.Generator().manual_seed(0)
    out = Sampler(policy, end=-1)(prompts, samples=2, max_tokens=6, generator=g)
    logp, _ = score(policy, prompts, out.of, out.ids)
    torch.testing.assert_close(logp, out.logp, atol=1e-5, rtol=1e-5)
    for b, row in enumerate(out.ids.tolist()):
        ids = torch.tensor([rows[int(out.of[b])] + row])
        plain = policy(ids).log_softmax(-1)[0, -7:-1].gather(1, out.ids[b][:, None])[:, 0]
        torch.testing.assert_close(out.logp[b], plain, atol=1e-5, rtol=1e-5)


# Catches: a saved policy without its reference policy or its values; a policy that is loaded as a plain transformer.
def test_saved_policy_works_with_load_eval_watch_and_plot(beginner, cli):
    result = llm.dqn(**TINY | {"lr": 0.01, "exp_name": "x"}, model=beginner)
    run, loaded = result.directory, llm.load(result.directory)
    ids = torch.randint(12, (2, 6), generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded.model(ids), result.policy.model(ids))
    assert not torch.allclose(loaded.model(ids).softmax(-1), loaded.model.reference(ids).softmax(-1), atol=1e-4)
    assert torch.equal(loaded.model.reference(ids), load_model(beginner).model(ids))
    for words in (["eval", run, "--episodes", 4, "--json"], ["llm", "eval", run, "--task", TINY["task"], "--json",
                                                              "--episodes", 4]):
        done = cli(*words)
        assert done.code == 0 and 0 <= json.loads(done.out)["held_out_accuracy"] <= 1
    assert cli("watch", run).code == 0 and cli("plot", run).code == 0
    assert len(result.policy.respond("ab>", samples=3)) == 3
    config = read_json(run / "config.json")
    assert config["shape"]["layers"] == 1 and config["action_values"] is True
    assert config["parameters"] == sum(x.numel() for x in loaded.model.parameters())


# Catches: a traceback; a folder that is made before the refusal.
def test_policy_of_two_models_is_refused_where_one_model_is_needed(beginner, cli, tree):
    run = llm.dqn(**TINY | {"total_steps": 1, "exp_name": "x"}, model=beginner).directory
    before = tree()
    for words, reason in ((["llm", "export", run, "hf"], "this policy consists of two models"),
                          (["llm", "grpo", "--model", run, "--task", TINY["task"]], "holds a policy of two models"),
                          (["llm", "dqn", "--model", run, "--task", TINY["task"]], "holds a policy of two models"),
                          (["llm", "dqn", "--data", "0"], "--data 0 is less than one response"),
                          (["llm", "dqn_online", "--data", "8"], "--data 8 is less than the 256 new responses"),
                          (["llm", "dqn", "--target", "max"], "--target must be one of expectile, greedy"),
                          (["llm", "dqn", "--expectile", "1.5"], "--expectile must be from 0.01 to 0.99")):
        done = cli(*words)
        assert done.code == 2 and reason in done.err and "Traceback" not in done.err, words
    assert tree() == before
    taught = llm.reinforce(TINY["task"], model=beginner, teacher=str(run), total_steps=1, prompts=2, samples=2,
                           held_out=4, quiet=True, tensorboard=False, threads=1, preset="none")
    assert taught.status == "finished"


# The data.

def stored(n, seed, T=4, L=3):
    """A batch of n responses with random tokens."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, T + 1, (n,), generator=g)
    mask = (torch.arange(T) < lengths[:, None]).float()
    responses = Responses(torch.randint(9, (n, T), generator=g), torch.zeros(n, T), mask, lengths, lengths < T,
                          torch.arange(n))
    prompts = Prompts(torch.randint(9, (n, L), generator=g), torch.randint(1, L + 1, (n,), generator=g))
    return Batch([], prompts, responses, [""] * n, torch.rand(n, generator=g))


def facts(batch, i):
    """The prompt, tokens, mask, end flag and reward of a row, without padding."""
    r = batch.responses
    prompt, n = batch.prompts.ids[r.of[i]][:batch.prompts.lengths[r.of[i]]], int(r.lengths[i])
    return prompt.tolist(), r.ids[i, :n].tolist(), r.mask[i, :n].tolist(), bool(r.finished[i]), float(batch.rewards[i])


# Catches: a ring buffer with one slot too many; a response with the prompt or the reward of another response; a prompt
# that is cut off.
def test_replay_buffer_keeps_the_last_responses():
    buffer, all_facts = StoredResponses(10, 4, torch.device("cpu")), []
    for i, n in enumerate((4, 4, 3, 6)):
        batch = stored(n, i, L=2 + i)
        all_facts += [facts(batch, j) for j in range(n)]
        buffer.add(batch)
        assert len(buffer) == min(10, len(all_facts))
    again = StoredResponses(10, 4, torch.device("cpu"))
    again.load_state_dict(buffer.state_dict())
    for which in (buffer, again):
        whole = which.batch(torch.arange(10))
        assert sorted(facts(whole, i) for i in range(10)) == sorted(all_facts[-10:])
    drawn = buffer.draw(np.random.default_rng(0), 200)
    assert {str(facts(drawn, i)) for i in range(200)} == {str(x) for x in all_facts[-10:]}
    with pytest.raises(ValueError):
        StoredResponses(11, 4, torch.device("cpu")).load_state_dict(buffer.state_dict())


# Catches: a response of the trained policy in the data; a response that is sampled after the first update.
def test_offline_training_samples_only_before_the_first_update(beginner, monkeypatch):
    asked, sample = [], Run.sample

    def spy(run, problems, *args, **settings):
        asked.append((run.update, run.steps, len(problems), any(not is_held_out(p.prompt) for p in problems)))
        return sample(run, problems, *args, **settings)

    monkeypatch.setattr(Run, "sample", spy)
    llm.dqn(**TINY, model=beginner)
    training = [(steps, n) for _, steps, n, train in asked if train]
    assert training == [(0, 1024)] and len(asked) > 3                     # before any update; the others are held out


# Catches: another data seed for one of the methods; data that depend on the method.
@pytest.mark.long
def test_methods_with_the_same_seed_learn_from_the_same_data(beginner):
    runs = [llm.dqn(**TINY, model=beginner), llm.dqn(**TINY | {"lr": 1e-4, "expectile": 0.9}, model=beginner)]
    own = {"data": 64, "samples": 1, "keep": 0.0}
    runs.append(llm.best_of_n(**{k: x for k, x in TINY.items() if k != "batch"} | own, model=beginner))
    first, *others = (load_checkpoint(run.directory / "checkpoint.pt")["parts"]["data"] for run in runs)
    assert first["count"] == 64 and first["rewards"].shape == (64,)
    for other in others:
        for name, x in first.items():
            assert torch.equal(torch.as_tensor(x), torch.as_tensor(other[name])), name
    different = llm.dqn(**TINY | {"seed": 2}, model=beginner)
    kept = load_checkpoint(different.directory / "checkpoint.pt")["parts"]["data"]
    assert not torch.equal(kept["prompts"], first["prompts"])


# Catches: a target network, a replay buffer or a random number generator that is missing in the checkpoint; data that
# are sampled again.
@pytest.mark.long("dqn_online")
@pytest.mark.parametrize("method", ["dqn", "dqn_online"])
def test_killed_run_resumes_with_the_same_curve(method, beginner, killed, cli, curve, tmp_path):
    (tmp_path / "score.py").write_text(
        "def early(prompt, response):\n    return sum(letter in 'abcde' for letter in response) / 3\n")
    words = ["llm", method, "--task", TINY["task"], "--held-out", 8, "--threads", 1, "--no-tensorboard", "--preset",
             "none", "--exp-name", "x", "--reward", "score.py:early", "--lr", 0.01, "--prompts", 4, "--samples", 4,
             "--data", 64, "--batch", 16, "--target-every", 3, "--total-steps", 30, "--checkpoint-steps", 7, "--model",
             beginner]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    expected = curve(tmp_path / "whole/x/x_s1")
    assert len(expected) > 20
    done = killed(words, Path("runs/x/x_s1"), len(expected), 1, method)
    assert done.code == 0 and "Traceback" not in done.err
    assert curve(tmp_path / "runs/x/x_s1") == expected


# Catches: a mean over the rows of a micro-batch; a diagnostic of the last micro-batch only.
def test_micro_batches_do_not_change_the_update(beginner):
    found = [llm.dqn(**TINY | {"micro_batch": size, "lr": 0.01}, model=beginner) for size in (0, 5)]
    one, other = (torch.cat([p.flatten() for p in run.policy.model.values.parameters()]) for run in found)
    torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-3)
    for column in "loss", "q", "value", "error", "cql_loss":
        assert found[0].progress[column] == pytest.approx(found[1].progress[column], rel=1e-3)


# Catches: responses of other prompts in the rejection sampling; wrong responses that are imitated.
def test_rejection_sampling_from_fixed_responses_imitates_the_correct_ones(beginner, monkeypatch):
    seen, backward = [], Run.backward

    def spy(run, batch, rows, *args, **whole):
        seen.append(batch.rewards[rows])
        return backward(run, batch, rows, *args, **whole)

    monkeypatch.setattr(Run, "backward", spy)
    task = Copy(2, 10)
    task.reward = lambda problem, response: float(response[:1] in "abc")
    llm.best_of_n(task, model=beginner, data=200, samples=1, prompts=16, total_steps=5, held_out=8, quiet=True,
                  tensorboard=False, threads=1, preset="none")
    assert len(seen) == 5 and all(len(x) == 16 and (x == 1).all() for x in seen)
    with pytest.raises(UserError, match="no response of the data has a reward of at least --keep"):
        llm.best_of_n(task, model=beginner, data=50, keep=5.0, quiet=True, tensorboard=False, preset="none")


# Catches: a target network that is copied in each gradient step; another beta in the resulting policy.
def test_target_network_is_copied_every_n_steps_and_beta_is_kept(beginner, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    steps, made, step, polyak = [], [], FlatAdam.step, dqn.polyak
    monkeypatch.setattr(FlatAdam, "step", lambda self, lr=None: steps.append(1) or step(self, lr))
    monkeypatch.setattr(dqn, "polyak", lambda *args: made.append(len(steps)) or polyak(*args))
    result = llm.dqn(**TINY | {"target_every": 3, "gradient_steps": 2, "beta": 2.5}, model=beginner)
    assert made == [3, 6] and len(steps) == 8 and float(result.policy.model.beta) == 2.5
