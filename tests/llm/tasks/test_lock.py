"""Locks and chains: the first wrong symbol ends the response, and only the whole code earns 1."""
import itertools

import numpy as np
import pytest
import torch

from llm.policy.generate import Sampler
from llm.policy.load import fresh
from llm.rollout import demonstrated, sample
from llm.tasks import make_task
from llm.tasks.episodes import Disagreement
from spinup.errors import UserError

SMALL = {"layers": 1, "width": 16, "heads": 2}


def config(seed=1):
    from llm.algos.sft import Config
    return Config(**SMALL, seed=seed)


def responses(text, samples=400, seed=0):
    """A batch of the uniform initial policy."""
    task = make_task(text)
    start = fresh(config(), task)
    problems = task.problems(2, np.random.default_rng(0))
    generator = torch.Generator().manual_seed(seed)
    return task, start, sample(Sampler(start.model, start.tokenizer.ends), task, start.tokenizer, problems,
                               samples=samples // 2, max_tokens=task.max_tokens, generator=generator)


# Catches: a response that continues after a wrong symbol, or stops at a right one; an end token of the episode in
# the mask; a reward for a part of the code, or for the end token.
@pytest.mark.parametrize("text", ["lock:length=3,symbols=2,code=4", "chain:length=3", "chain:length=4,permuted=yes"])
def test_first_wrong_symbol_ends_the_response(text):
    task, start, batch = responses(text)
    r, wrong, seen = batch.responses, 0.001 if "chain" in text else 0.0, set()
    assert r.finished.all()
    for b in range(len(batch.texts)):
        own = r.ids[b][r.mask[b] > 0].tolist()
        written = start.tokenizer.decode(own)
        right = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(written, task.secret, strict=False))))
        assert len(own) == min(right + 1, len(task.secret))
        expected = 1.0 if right == len(task.secret) else 0.0 if own[-1] == start.tokenizer.end else wrong
        assert batch.rewards[b] == pytest.approx(expected)
        seen.add(expected)
    assert seen == {0.0, wrong, 1.0}


# Catches: a norm that is not set, so that log-probabilities of tokens differ by half a nat.
def test_initial_policy_is_uniform():
    task = make_task("lock")
    start = fresh(config(), task)
    ids = torch.tensor([start.tokenizer.encode("a" + task.secret)])
    p = start.model(ids).softmax(-1)
    assert p.shape[-1] == 13 and float((p - 1 / 13).abs().max()) < 0.01
    assert float((fresh(config(), make_task("copy")).model(ids % 11).softmax(-1) - 1 / 12).abs().max()) > 0.02


# Catches: codes that depend on the seed of a run; a chain that is not RRR; a swap at all positions or at none.
def test_codes_depend_only_on_the_options():
    assert make_task("lock:code=3").secret == make_task("lock:code=3").secret != make_task("lock:code=4").secret
    assert make_task("chain:length=5").secret == "RRRRR"
    assert {*make_task("chain:length=20,permuted=yes").secret} == {"L", "R"}
    assert make_task("lock").max_tokens == 6 and make_task("chain").max_tokens == 20


# Catches: a mask without a right symbol, or with the end of the episode; a demonstration that earns less than 1.
def test_code_can_be_imitated():
    task = make_task("lock:length=4,symbols=3")
    start, problem = fresh(config(), task), task.problems(1, np.random.default_rng(0))[0]
    assert task.reward(problem, task.demonstration(problem, None)) == 1.0
    batch = demonstrated(task, start.tokenizer, start.model, [problem], [task.secret], task.max_tokens)
    assert batch.responses.mask.tolist() == [[1.0] * 4]
    other = next(x for x in "abc" if x != task.secret[0])
    assert task.reward(problem, other) == task.reward(problem, "") == task.reward(problem, task.secret[:2]) == 0.0
    with pytest.raises(Disagreement, match="is over"):
        task.reward(problem, other + "a")


@pytest.mark.parametrize(("text", "words"), [
    ("lock:symbols=1", "symbols must be"), ("chain:length=0", "length must be"), ("lock:key=3", "no option")])
def test_options_are_checked(text, words):
    with pytest.raises(UserError, match=words):
        make_task(text)
