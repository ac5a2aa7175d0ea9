"""Several processes for one run: gradients and diagnostics equal those of one process; batches keep their order."""
import copy
import functools
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import llm
from llm.algos.grpo import Config
from llm.learn import backward, logp_under
from llm.parallel import distributed, shared, sum_gradients
from llm.policy.generate import Sampler
from llm.policy.load import load_model
from llm.rollout import sample
from llm.tasks.check import problems_of
from llm.tasks.make import make_task
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import select
from spinup.errors import UserError
from spinup.runs import ranks
from tests.llm.conftest import SMALL

SCORE = """
def early(prompt, response):
    return sum(letter in "abcde" for letter in response) / 3

def failing(prompt, response):
    import os
    if os.environ.get("RANK") == "1":
        raise KeyError("lost")
    return 1.0
"""


@pytest.fixture
def together(monkeypatch):
    """Call a function with the number of each rank and return the list of its results. The ranks are threads."""
    place, size = threading.local(), 2
    slots, barrier = [None] * size, threading.Barrier(size)

    def gather(thing):
        if not hasattr(place, "rank"):
            return [thing]
        slots[place.rank] = thing
        barrier.wait(20)
        found = list(slots)
        barrier.wait(20)
        return found

    monkeypatch.setattr(ranks, "gather", gather)
    monkeypatch.setattr(ranks, "rank", lambda: getattr(place, "rank", 0))
    monkeypatch.setattr(ranks, "size", lambda: size if hasattr(place, "rank") else 1)

    def call(function):
        found = [None] * size

        def work(rank):
            place.rank = rank
            found[rank] = function(rank)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return found
    return call


def drawn(folder, prompts=5, samples=4):
    """A model, and a batch of its responses."""
    task, start = make_task(SMALL["task"], None), load_model(folder)
    problems = problems_of(task, prompts, np.random.default_rng(0))
    return start.model, sample(Sampler(start.model, start.tokenizer.ends), task, start.tokenizer, problems,
                               samples=samples, max_tokens=5, generator=torch.Generator().manual_seed(0))


# Catches: a row that no rank or two ranks process; a denominator or a diagnostic of the rows of one rank; a pair that
# is split between two ranks; log-probabilities of the ranks in the wrong order.
@pytest.mark.parametrize("rows", [20, 19, 6, 1])
@pytest.mark.parametrize("by_rows", [False, True])
def test_ranks_give_the_gradients_and_diagnostics_of_one_process(rows, by_rows, beginner, together):
    torch.set_num_threads(1)
    model, batch = drawn(beginner)
    cfg, chosen = Config(micro_batch=4), torch.randperm(20)[:rows]
    adv = torch.randn(20, 1)

    def loss(logp, part, adv, denominator):
        pairs = logp.sum(1).view(-1, 2).diff(dim=1).tanh().sum() if rows % 2 == 0 and rows > 2 else 0.0
        value = -(select(logp, part.mask) * adv).sum() / denominator + pairs / denominator
        mean = select(logp, part.mask).sum() / (len(logp) if by_rows else part.mask.sum())
        return value, {"mine": mean.detach()}

    def work(rank):
        own = copy.deepcopy(model)
        found = backward(own, cfg, batch, chosen, loss, adv, by_rows=by_rows, denominator=7.0)
        return (torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in own.parameters()]),
                {name: float(x) for name, x in found.items()}, logp_under(own, cfg, batch))

    whole, parts = work(0), together(work)
    torch.testing.assert_close(parts[0][0] + parts[1][0], whole[0], atol=1e-6, rtol=1e-5)
    for _, found, logp in parts:
        assert found == pytest.approx(whole[1], abs=1e-5)
        r = batch.responses
        torch.testing.assert_close(select(logp, r.mask), select(whole[2], r.mask), atol=1e-5, rtol=0)


# Catches: responses in another order; a failure of a rank without problems; equal random numbers on both ranks.
@pytest.mark.parametrize("prompts", [1, 2, 5])
def test_batch_of_several_ranks_keeps_the_order_of_its_problems(prompts, beginner, together):
    task, start = make_task(SMALL["task"], None), load_model(beginner)
    one = problems_of(task, 1, np.random.default_rng(0))
    problems = one * prompts                                              # the same prompt: only random numbers differ

    def work(rank):
        draw = functools.partial(sample, Sampler(start.model, start.tokenizer.ends), task, start.tokenizer, samples=3,
                                 max_tokens=5)
        return shared(draw, problems, torch.Generator().manual_seed(1))

    first, second = together(work)
    assert first.texts == second.texts and len(first.texts) == 3 * prompts and first.problems == problems
    assert first.responses.of.tolist() == [i // 3 for i in range(3 * prompts)]
    assert first.prompts.lengths.tolist() == [len(start.tokenizer.prompt(one[0].prompt))] * prompts
    assert first.rewards.tolist() == pytest.approx(task.rewards(one * len(first.texts), first.texts))
    if prompts == 2:
        assert first.texts[:3] != first.texts[3:]


# Catches: random numbers of a reward that change the order of the minibatches on one rank only.
def test_random_reward_leaves_the_global_generator_unchanged(beginner, monkeypatch):
    monkeypatch.setattr(ranks, "size", lambda: 2)
    monkeypatch.setattr(ranks, "mine", range)
    monkeypatch.setattr(ranks, "gather", lambda thing: [thing])
    drawn = []
    task = make_task(SMALL["task"], lambda prompt, response: drawn.append(float(torch.rand(()))) or drawn[-1])
    start, generator = load_model(beginner), torch.Generator().manual_seed(1)
    draw = functools.partial(sample, Sampler(start.model, start.tokenizer.ends), task, start.tokenizer, samples=3,
                             max_tokens=5)
    before, already = torch.get_rng_state(), len(drawn)
    for _ in range(2):
        shared(draw, problems_of(task, 2, np.random.default_rng(0)), generator)
    assert torch.equal(torch.get_rng_state(), before) and len(set(drawn[already:])) == 12


# Catches: a sum over the ranks of the gradient of a predictor, which each rank computes from all responses.
def test_only_gradients_of_a_share_of_rows_are_summed(monkeypatch):
    model, added = torch.nn.Linear(2, 1), []
    optimizer = FlatAdam(model.parameters(), lr=0.1)
    monkeypatch.setattr(ranks, "add", added.append)
    sum_gradients({"optimizer": optimizer, "model": model})
    optimizer.step()
    optimizer.minimizer(lambda x: (model(x).sum(), {}))(torch.ones(1, 2))
    assert len(added) == 1 and added[0] is optimizer.flat.grad


# Pairs and demonstrations do not depend on the number of processes. Catches: gradients that are not summed, or summed
# twice.
@pytest.mark.long("dpo")
@pytest.mark.parametrize("method", ["dpo", "sft"])
def test_two_processes_reach_the_weights_of_one_process(method, beginner, fork_workers, tmp_path):
    (tmp_path / "score.py").write_text(SCORE)
    given = {**SMALL, "reward": f"{tmp_path}/score.py:early", "model": beginner, "total_steps": 3, "warmup": 0}
    given |= {"pairs": 16, "batch": 5} if method == "dpo" else {}
    runs = [getattr(llm, method)(**given, workers=n, log_dir=f"{tmp_path}/{n}") for n in (1, 2)]
    one, two = (torch.cat([p.detach().flatten() for p in r.policy.model.parameters()]) for r in runs)
    torch.testing.assert_close(two, one, atol=2e-6, rtol=0)
    assert runs[1].progress["loss"] == pytest.approx(runs[0].progress["loss"], abs=1e-5)
    assert not torch.equal(one, torch.cat([p.flatten() for p in load_model(beginner).model.parameters()]))


# Catches: ranks with different optimiser steps; a rank with another state after a resume; a second rank that writes
# files; a checkpoint with the moments of one rank only, or with its share of the weights only.
@pytest.mark.long
@pytest.mark.parametrize("divided", [[], ["--shard"], ["--fsdp"]])
def test_killed_run_with_two_processes_resumes_with_the_same_curve(divided, beginner, forking, start, killed, curve,
                                                                   tmp_path):
    (tmp_path / "score.py").write_text(SCORE)
    words = ["llm", "ppo", "--task", SMALL["task"], "--reward", "score.py:early", "--model", beginner, "--preset",
             "none", "--exp-name", "x", "--held-out", 8, "--threads", 1, "--no-tensorboard", "--prompts", 3,
             "--samples", 4, "--total-steps", 6, "--checkpoint-steps", 2, "--workers", 2, *divided]
    whole = start(*words, "--log-dir", "whole", "--quiet", prelude=forking).end()
    assert (whole.code, whole.err) == (0, "")
    expected = curve(tmp_path / "whole/x/x_s1")
    done = killed(words, Path("runs/x/x_s1"), len(expected), 1, "ppo", prelude=forking)
    assert done.code == 0 and curve(tmp_path / "runs/x/x_s1") == expected
    assert len({row[expected[0].index("reward")] for row in expected[1:]}) > 1


def test_shard_with_one_process_is_refused(beginner, tmp_path):
    with pytest.raises(UserError, match="--shard divides Adam's moments among processes, .* add --workers 2"):
        llm.grpo(**SMALL, model=beginner, shard=True, log_dir=str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_errors_with_worker_processes_are_reported(beginner, fork_workers, tmp_path):
    (tmp_path / "score.py").write_text(SCORE)
    with pytest.raises(UserError, match="the reward function failed .* KeyError: 'lost' .*, in worker process 1"):
        llm.grpo(**SMALL, model=beginner, workers=2, prompts=4, total_steps=2, log_dir=str(tmp_path),
                 reward=f"{tmp_path}/score.py:failing")
    with pytest.raises(UserError, match="cannot be sent"):
        llm.grpo(**SMALL, model=beginner, workers=2, reward=lambda prompt, response: 1.0, log_dir=str(tmp_path))


# Each process samples its data before the processes exchange anything. Catches: a run with data that differ between the
# processes, for example because of a reward with a time limit.
def test_processes_with_different_data_are_refused(monkeypatch):
    run = SimpleNamespace(config=SimpleNamespace(shard=False, fsdp=False))
    parts = {"data": SimpleNamespace(checksum=lambda: 5), "other": 1}
    monkeypatch.setattr(ranks, "gather", lambda x: [x, x])
    assert distributed(run, parts) is parts
    monkeypatch.setattr(ranks, "gather", lambda x: [x, x + 1])
    with pytest.raises(UserError, match="have sampled different data.*leave out --workers"):
        distributed(run, parts)
