"""A model whose weights are divided among two processes trains like an undivided one, and each process holds half."""
from dataclasses import replace

import numpy as np
import pytest
import torch

import llm
from llm.algos.grpo import Config
from llm.learn import backward, kl_to_reference, logp_under
from llm.policy import fsdp, score
from llm.policy.generate import Sampler
from llm.policy.load import load_model
from llm.policy.lora import adapt
from llm.policy.scalar import ScalarModel, values
from llm.policy.score import forward_kl
from llm.rollout import sample
from llm.tasks.check import problems_of
from llm.tasks.make import make_task
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import select
from spinup.errors import NonFiniteError, UserError
from spinup.runs import ranks
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.workers import Workers
from tests.llm.conftest import SMALL


def responses(start, model, cfg):
    """Samples of a model, which depend only on its weights."""
    task = make_task(cfg.task, None)
    return sample(Sampler(model, start.tokenizer.ends), task, start.tokenizer,
                  problems_of(task, 5, np.random.default_rng(0)), samples=4, max_tokens=5,
                  generator=torch.Generator().manual_seed(0))


def trained(cfg, resume):
    """Train a policy and a value function for three steps. Return results and memory. Each rank calls this."""
    torch.manual_seed(0)
    start = load_model(cfg.model)
    if cfg.lora:
        adapt(start.model, cfg.lora, 8.0)
        for name, p in start.model.named_parameters():
            if "lora_b" in name:
                torch.nn.init.normal_(p, std=0.1)             # else the reference policy equals the policy
    model, reference, batch = start.model, start.reference(), responses(start, start.model, cfg)
    critic, adv = ScalarModel(model, 0.1), torch.randn(20, 1)
    make = fsdp.DividedAdam if cfg.fsdp else lambda m, **given: FlatAdam(m.parameters(), **given)
    optimizers = [make(m, lr=0.01, max_grad_norm=0.5) for m in (model, critic)]

    def loss(logp, part, adv, denominator):
        value = values(critic, batch.prompts, part.of, part.ids, part.lengths)
        divergence = forward_kl(model, reference, batch.prompts, part.of, part.ids)
        each = select(value, part.mask).square() - select(logp, part.mask) * adv + select(divergence, part.mask)
        return each.sum() / denominator, {}

    with Workers(cfg.workers, cfg).together(trained, cfg, resume):
        parts = {"model": model, "critic": critic, "optimizer": optimizers[0], "value_optimizer": optimizers[1]}
        if cfg.fsdp:
            parts, divided, reference = fsdp.divide(parts, model, reference)
        found = {"logp": select(logp_under(reference, cfg, batch), batch.responses.mask),
                 "kl": kl_to_reference(model, reference, cfg, batch)}
        norms = []
        for step in range(3):
            for optimizer in optimizers:
                optimizer.zero_grad()
            backward(model, cfg, batch, torch.arange(17), loss, adv, denominator=7.0)        # 3 passes, or 3 and 2
            if not step:
                found["gradients"] = [fsdp.whole(p.grad).clone() for m in (model, critic) for p in m.parameters()
                                      if p.grad is not None]
            if step == 2:
                weights = [x for m in (model, critic) for p in m.parameters() for x in (p, p.grad) if x is not None]
            norms += [float(optimizer.step()) for optimizer in optimizers]
        moments = [x for o in optimizers for kept in (o.kept().values() if cfg.fsdp else [(o.first, o.second)])
                   for x in kept]
        held = max(ranks.gather(sum(fsdp.own(x).nbytes for x in weights + moments)))
        if cfg.fsdp:
            with divided.gathered() as whole:
                found["texts"] = responses(start, whole, cfg).texts
        else:
            found["texts"] = responses(start, model, cfg).texts
        found |= {"norms": norms, "held": held, "state": {name: part.state_dict() for name, part in parts.items()}}
        if cfg.fsdp:
            fsdp.own(next(model.parameters()).detach()).fill_(torch.nan if ranks.rank() else 0.0)
            with pytest.raises(NonFiniteError, match="became NaN or infinite"):              # on both ranks
                parts["model"].state_dict()
        return found


# Catches: a mean over ranks in place of the sum; a rank with fewer passes, which makes the run wait forever; a padding
# pass that counts; adapters in the reference policy; the gradient norm of one rank's share; undivided weights that stay
# in memory; moments in another order than those of FlatAdam.
@pytest.mark.long("given0", "given1")
@pytest.mark.parametrize("given", [{}, {"lora": 2}, {"gradient_checkpointing": True, "micro_batch": 0}])
def test_two_processes_compute_the_same_as_one(given, beginner, fork_workers, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(score, "CHUNK", 100)                              # logits in several chunks
    cfg = Config(task=SMALL["task"], model=beginner, **{"micro_batch": 4, **given})
    one, two = trained(cfg, None), trained(replace(cfg, workers=2, fsdp=True), None)
    for whole, summed in zip(one["gradients"], two["gradients"], strict=True):
        torch.testing.assert_close(summed, whole, atol=1e-4 * float(whole.abs().max()), rtol=0)
    torch.testing.assert_close(two["logp"], one["logp"], atol=1e-5, rtol=0)
    assert two["norms"] == pytest.approx(one["norms"], rel=1e-4) and two["kl"] == pytest.approx(one["kl"], abs=1e-5)
    assert two["texts"] == one["texts"] and two["held"] <= 0.55 * one["held"]
    for name, part in one["state"].items():
        assert [*two["state"][name]] == [*part]
        for key, x in part.items():
            torch.testing.assert_close(two["state"][name][key], x, atol=2e-5, rtol=1e-3)


def flat(result):
    """All weights of the policy of a run, `[parameters]`."""
    return torch.cat([p.detach().flatten() for p in result.policy.model.parameters()])


# Catches: a checkpoint that holds shares; moments or steps that are not restored; a resulting policy with only the
# share of rank 0.
@pytest.mark.long
def test_run_resumes_with_and_without_divided_weights(beginner, fork_workers, tmp_path):
    given = {**SMALL, "model": beginner, "warmup": 0, "anneal": False, "batch": 5, "total_steps": 3}
    pair = {"workers": 2, "fsdp": True}
    one, two = (llm.sft(**given, **more, log_dir=f"{tmp_path}/{len(more)}") for more in ({}, pair))
    torch.testing.assert_close(flat(two), flat(one), atol=2e-6, rtol=0)
    for name in ("loss", "grad_norm"):
        assert two.progress[name] == pytest.approx(one.progress[name], abs=1e-5), name
    whole, divided = (load_checkpoint(run.directory / "checkpoint.pt")["parts"] for run in (one, two))
    assert {name: [*part] for name, part in divided.items()} == {name: [*part] for name, part in whole.items()}
    given["total_steps"] = 6
    one, two = (llm.sft(**given, **more, resume=str(run.directory)) for more, run in ((pair, one), ({}, two)))
    torch.testing.assert_close(flat(two), flat(one), atol=5e-6, rtol=0)
    assert two.progress["grad_norm"] == pytest.approx(one.progress["grad_norm"], rel=1e-3)


@pytest.mark.parametrize("method, more, said", [
    ("sft", {}, "--fsdp divides the model among processes, and this run has one; add --workers 2"),
    ("grpo", {}, "--fsdp divides the model among processes, and this run has one; add --workers 2"),
    ("grpo", {"workers": 2, "compile": True}, "--fsdp does not work with compiled layers; leave out --compile"),
    ("grpo", {"workers": 2, "shard": True}, "--fsdp divides Adam's moments too; leave out --shard"),
    ("es", {"workers": 2}, "llm es needs all weights in one tensor or one process; leave out --fsdp"),
    ("self_play", {"workers": 2, "task": "tictactoe"}, "llm self_play needs all weights")])
def test_invalid_settings_are_refused_before_a_folder_is_made(method, more, said, beginner, tmp_path):
    with pytest.raises(UserError, match=said):
        getattr(llm, method)(**{**SMALL, **more}, model=beginner, fsdp=True, log_dir=str(tmp_path))
    assert not list(tmp_path.iterdir())
