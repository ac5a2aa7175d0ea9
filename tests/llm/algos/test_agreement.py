"""Compares the gradients of our losses with those of TRL's trainers, for the same weights and batches.

Where a constant factor differs, the test and the documentation page of the method state it.
"""
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from llm.bench.questions import peer_tokenizer
from llm.config import LanguageConfig
from llm.policy.checkpoint import names
from llm.policy.export import save_pretrained
from llm.policy.load import fresh
from llm.policy.score import score
from llm.policy.transformer import Transformer
from llm.rollout import Batch
from llm.run import Run
from llm.tasks.task import Problem, Task, draw
from spinup.core.fast.adam import FlatAdam
from spinup.registry import algorithms

METHODS = algorithms("llm")


class Words(Task):
    """Prompts and answers of several lengths, and a different reward for every response."""

    alphabet, max_tokens, name = "abcdefgh", 6, "words"

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            return Problem("".join(rng.choice(list(self.alphabet), size=rng.integers(2, 6))))
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        return problem.prompt[::-1]

    def reward(self, problem: Problem, response: str) -> float:
        return crc32((problem.prompt + response).encode()) / 2**32


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """The folder of a small model with random weights."""
    folder = tmp_path_factory.mktemp("agreement") / "model"
    torch.manual_seed(0)
    start = fresh(LanguageConfig(width=16, layers=2, heads=2), Words())
    save_pretrained(folder, start.model, start.tokenizer)
    return str(folder)


@pytest.fixture
def steps(model, monkeypatch, tmp_path) -> Callable[..., list[SimpleNamespace]]:
    """`steps("dapo", ...)`: train, and return the gradient steps.

    Each holds the policy before the step, the run's reference policy, the batch and its `rows`, the arguments of the
    loss for these rows, and the gradients under Hugging Face's parameter names.
    """
    backward, found = Run.backward, []

    def kept(run: Run, batch: Batch, rows: Tensor, loss: Callable, *per_row: Tensor, **whole: Any) -> dict[str, Tensor]:
        before = deepcopy(run.model)
        stats = backward(run, batch, rows, loss, *per_row, **whole)
        found.append(SimpleNamespace(model=before, reference=run.reference, batch=batch, rows=rows, whole=whole,
                                     given=[x[rows] for x in per_row[:2]], gradients=gradients(run.model), stats=stats))
        return stats

    def train(method: str, **settings: Any) -> list[SimpleNamespace]:
        module = METHODS[method].load()
        monkeypatch.setattr(Run, "backward", kept)
        common = {"task": Words(), "model": model, "total_steps": 1, "lr": 0.01, "warmup": 0, "held_out": 8,
                  "max_grad_norm": 1e9, "quiet": True, "tensorboard": False, "threads": 1, "device": "cpu",
                  "log_dir": str(tmp_path)}
        module.train(module.Config(algorithm=f"llm {method}", **{**common, **METHODS[method].settings, **settings}))
        return found
    return train


def gradients(model: Transformer) -> dict[str, Tensor]:
    """The gradients of our model under Hugging Face's parameter names."""
    copied = deepcopy(model)
    for p, q in zip(copied.parameters(), model.parameters(), strict=True):
        p.data = q.grad.clone()
    return names(copied)


def peer(name: str, model: str, folder: Path, **settings: Any) -> Any:
    """TRL's trainer of this name for the model in this folder. Its dataset is not used."""
    import transformers  # here, because it takes many seconds
    import trl
    from datasets import Dataset
    from trl.experimental import cpo, orpo
    module = {"CPO": cpo, "ORPO": orpo}.get(name, trl)
    row = {"prompt": "ab", "completion": "c"} if name in ("SFT", "KTO") else {"prompt": "ab"}
    row |= {"label": True} if name == "KTO" else {"chosen": "c", "rejected": "d"} if name != "SFT" else {}
    extra = {"reward_funcs": lambda **_: [0.0]} if name in ("GRPO", "RLOO") else {}
    kind, more = transformers.AutoModelForCausalLM, {}
    if name == "Reward":
        kind, more = transformers.AutoModelForSequenceClassification, {"num_labels": 1}
    trainer = getattr(module, f"{name}Trainer")(
        model=kind.from_pretrained(model, dtype=torch.float32, **more), processing_class=peer_tokenizer(),
        train_dataset=Dataset.from_list([row] * 4), **extra,
        args=getattr(module, f"{name}Config")(output_dir=str(folder), use_cpu=True, bf16=False, report_to="none",
                                              gradient_checkpointing=False, **settings))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


def load(theirs: nn.Module, ours: Transformer) -> None:
    """Copy our weights into TRL's model. Only its output layer may be missing in them: it is tied to the embedding, or
    it is the head of the reward model."""
    assert theirs.load_state_dict(names(ours), strict=False).missing_keys in (["lm_head.weight"], ["score.weight"])


def same(ours: dict[str, Tensor], trainer: Any, loss: Tensor, factor: float = 1.0) -> None:
    """Assert that our gradient is `factor` times that of TRL's loss, for every weight."""
    trainer.model.zero_grad()
    loss.backward()
    theirs = dict(trainer.model.named_parameters())
    assert sorted(ours) == sorted(theirs)
    for name, p in theirs.items():
        torch.testing.assert_close(ours[name], factor * p.grad, rtol=1e-3, atol=1e-6)
        assert p.grad.abs().max() > 1e-6


def responses(step: SimpleNamespace) -> dict[str, Tensor]:
    """A batch for TRL's trainers of policies: prompts padded on the left, responses on the right."""
    prompts, r = step.batch.prompts, step.batch.responses[step.rows].trimmed()
    rows = [prompts.ids[i, :prompts.lengths[i]].flip(0) for i in r.of]
    ids = pad_sequence(rows, batch_first=True).flip(1)
    known = pad_sequence([torch.ones_like(x) for x in rows], batch_first=True).flip(1)
    T = r.ids.shape[1]
    return {"prompt_ids": ids, "prompt_mask": known, "completion_ids": r.ids * r.mask.long(),
            "completion_mask": r.mask.long(), "advantages": step.given[0][:, 0],
            "old_per_token_logps": r.logp.masked_fill(r.mask == 0, 0), "ref_per_token_logps": step.given[-1][:, :T],
            "num_items_in_batch": step.batch.responses.mask.sum()}


# Our settings, and TRL's. With two epochs of two minibatches, three of the four steps have ratios other than 1.
# CISPO: TRL's epsilon_high is the largest weight itself, 1 + our clip_high. SAPO has no clip limits.
GRPO = {
    "grpo": ({}, {"loss_type": "grpo"}),
    "dr_grpo": ({}, {"loss_type": "dr_grpo"}),
    "dapo": ({"max_rollouts": 1, "overlong": 0}, {"loss_type": "dapo", "epsilon_high": 0.28}),
    "gspo": ({"clip_low": 0.003, "clip_high": 0.004},
             {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.003, "epsilon_high": 0.004}),
    "cispo": ({"clip_high": 0.01}, {"loss_type": "cispo", "epsilon_high": 1.01}),
    "sapo": ({}, {"loss_type": "sapo", "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05}),
}


# Catches: another clip range, or a clip on the wrong side; a mean over the wrong tokens; a gradient through the ratio
# in CISPO.
@pytest.mark.parametrize("method", GRPO)
def test_gradients_of_grpo_and_its_variants_equal_those_of_trl(method, steps, model, tmp_path):
    ours, theirs = GRPO[method]
    found = steps(method, prompts=4, samples=4, epochs=2, **{**ours, "minibatches": 2})
    trainer = peer("GRPO", model, tmp_path, max_completion_length=Words.max_tokens, beta=0.0,
                   per_device_train_batch_size=8, num_generations=4, steps_per_generation=2, **theirs)
    assert len(found) == 4 and found[-1].stats["clip_fraction"] > 0
    for step in found:
        load(trainer.model, step.model)
        same(step.gradients, trainer, trainer._compute_loss(trainer.model, responses(step)))


# Our KL penalty is the estimator k2, log(pi / pi_ref)^2 / 2, and TRL's is k3. With TRL's bias correction both have the
# same gradient where the ratios are 1. Catches: another estimator or sign; a KL penalty that is averaged over the wrong
# tokens.
def test_gradient_of_grpo_with_a_kl_penalty_equals_that_of_trl(steps, model, tmp_path):
    *_, step = steps("grpo", prompts=4, samples=4, total_steps=3, kl_coef=0.5)
    trainer = peer("GRPO", model, tmp_path, loss_type="grpo", beta=0.5, use_bias_correction_kl=True,
                   per_device_train_batch_size=16, num_generations=4, max_completion_length=Words.max_tokens)
    load(trainer.model, step.model)
    batch = responses(step)
    same(step.gradients, trainer, trainer._compute_loss(trainer.model, batch))
    moved = batch["ref_per_token_logps"] - batch["old_per_token_logps"]
    assert moved[batch["completion_mask"] == 1].abs().max() > 0.1


# The KL penalty of a response is the sum over its tokens. Catches: the wrong sign; a mean over tokens.
def test_rloo_subtracts_the_summed_kl_penalty_from_the_reward(steps):
    *_, step = steps("rloo", prompts=4, samples=4, total_steps=3, kl_coef=0.5)
    r, prompts = step.batch.responses, step.batch.prompts
    logp, logp_ref = (score(m, prompts, r.of, r.ids, r.lengths)[0].detach() for m in (step.model, step.reference))
    kl = ((logp - logp_ref) * r.mask).sum(1)
    assert kl.abs().max() > 0.1
    rewards = (step.batch.rewards - 0.5 * kl).view(4, 4)
    expected = (rewards - (rewards.sum(1, keepdim=True) - rewards) / 3).flatten()
    torch.testing.assert_close(step.given[0][:, 0], expected[step.rows], rtol=1e-4, atol=1e-5)


# TRL's loss is a mean over responses and ours a mean over tokens, so the factor is 1 / the mean length. Catches:
# another weight of the tokens of long responses; a baseline that includes the response itself.
def test_gradient_of_rloo_equals_that_of_trl_up_to_the_mean_length(steps, model, tmp_path):
    step, = steps("rloo", prompts=4, samples=4)
    trainer = peer("RLOO", model, tmp_path, beta=0.0, per_device_train_batch_size=16, num_generations=4,
                   max_completion_length=Words.max_tokens)
    load(trainer.model, step.model)
    batch = responses(step)
    batch["old_logps"] = batch["old_per_token_logps"].sum(1)
    rewards = step.batch.rewards.view(4, 4)
    baseline = (rewards.sum(1, keepdim=True) - rewards) / 3
    torch.testing.assert_close(batch["advantages"], (rewards - baseline).flatten()[step.rows])
    same(step.gradients, trainer, trainer._compute_loss(trainer.model, batch),
         factor=16 / float(batch["completion_mask"].sum()))


PAIRS = {
    "dpo": ("DPO", {}, {"loss_type": "sigmoid", "beta": 0.3}),
    "ipo": ("DPO", {}, {"loss_type": "ipo", "beta": 0.3}),
    "kto": ("KTO", {}, {"loss_type": "kto", "beta": 0.3}),
    "simpo": ("CPO", {"margin": 0.5}, {"loss_type": "simpo", "beta": 0.3, "simpo_gamma": 0.5, "cpo_alpha": 0.0}),
    "orpo": ("ORPO", {}, {"beta": 0.3}),
}


def sequences(step: SimpleNamespace, rows: Tensor, of: Tensor | None = None) -> dict[str, Tensor]:
    """Prompts and responses in one row each, padded at the end. of: other prompts for these responses."""
    prompts, r, padded = step.batch.prompts, step.batch.responses[rows], partial(pad_sequence, batch_first=True)
    parts = [(prompts.ids[i, :prompts.lengths[i]], ids[:n])
             for i, ids, n in zip(r.of if of is None else of, r.ids, r.lengths, strict=True)]
    return {"input_ids": padded([torch.cat(x) for x in parts]),
            "attention_mask": padded([torch.ones(len(p) + len(a), dtype=torch.long) for p, a in parts]),
            "completion_mask": padded([torch.arange(len(p) + len(a)) >= len(p) for p, a in parts]).long()}


# It compares the second update, in which the policy differs from the reference policy. Catches: sums over tokens in
# place of means, or the reverse; a margin that is multiplied by beta; a baseline of KTO from responses with their own
# prompts.
@pytest.mark.parametrize("method", PAIRS)
def test_gradients_of_preference_losses_equal_those_of_trl(method, steps, model, tmp_path):
    name, ours, theirs = PAIRS[method]
    step = steps(method, total_steps=2, pairs=16, batch=8, beta=0.3, **ours)[-1]
    trainer = peer(name, model, tmp_path, **theirs, max_length=32)
    load(trainer.model, step.model)
    if name in ("DPO", "KTO"):
        load(trainer.ref_model, step.reference)
    both = torch.cat([step.rows[::2], step.rows[1::2]])                   # chosen, then rejected
    batch = sequences(step, both)
    if name == "DPO":
        loss = trainer._compute_loss(trainer.model, batch, False)
    elif name == "KTO":
        of = step.batch.responses.of[step.rows].roll(-2)                  # the next pair's prompt
        loss = trainer._compute_loss(trainer.model, batch | {"label": torch.arange(16) < 8} | {
            f"KL_{key}": x for key, x in sequences(step, step.rows, of).items()}, False)
    else:
        labels = batch["input_ids"].masked_fill(batch["completion_mask"] == 0, -100)
        halves = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}
        pairs = {f"{side}_{key}": x.chunk(2)[i]
                 for key, x in halves.items() for i, side in enumerate(("chosen", "rejected"))}
        loss = trainer.compute_loss(trainer.model, pairs)
        if name == "ORPO":                      # replace TRL's SFT term, which weights prompts and long texts otherwise
            mean_logp, *_, imitation = trainer.concatenated_forward(trainer.model, pairs)
            loss = loss - imitation - mean_logp.mean()
    same(step.gradients, trainer, loss)


# Catches: the mean over responses of the means over their tokens; prompt tokens in the loss; a missing end token.
def test_gradient_of_sft_equals_that_of_trl(steps, model, tmp_path):
    step, = steps("sft", batch=8)
    trainer = peer("SFT", model, tmp_path)
    load(trainer.model, step.model)
    batch = sequences(step, step.rows)
    labels = batch.pop("completion_mask")
    loss = trainer.compute_loss(trainer.model, batch | {"labels": batch["input_ids"].masked_fill(labels == 0, -100)})
    same(step.gradients, trainer, loss)


# TRL reads the reward at the last token. With padding on the left, that is the last column. Catches: a margin with the
# wrong sign; a reward read at another token; a mean over responses in place of pairs.
def test_gradient_of_the_reward_model_equals_that_of_trl(model, monkeypatch, tmp_path):
    module, kept = METHODS["reward_model"].load(), {}

    def watched(name: str) -> None:
        function = getattr(module, name)

        def call(*args: Any, **settings: Any) -> Any:
            return kept.setdefault(name, function(*args, **settings))     # the first call has the training pairs
        monkeypatch.setattr(module, name, call)
    for name in ("find_pairs", "rows_of", "ScalarModel"):
        watched(name)

    def step(optimizer: FlatAdam, lr: float) -> Tensor:
        scalar = kept["ScalarModel"]
        kept["gradients"] = {f"model.{name}".replace("model.model.", "model."): x
                             for name, x in gradients(scalar.body).items()} | {"score.weight": scalar.head.weight.grad}
        return torch.zeros(())
    monkeypatch.setattr(FlatAdam, "step", step)
    module.train(module.Config(
        algorithm="llm reward_model", task=Words(), model=model, total_steps=1, pairs=16, batch=8, margin=0.5,
        held_out=8, quiet=True, tensorboard=False, threads=1, device="cpu", log_dir=str(tmp_path)))

    pairs, rows, scalar = kept["find_pairs"], kept["rows_of"], kept["ScalarModel"]
    prompts, r = pairs.prompts, pairs.responses[torch.cat([rows[::2], rows[1::2]])]
    parts = [torch.cat([prompts.ids[i, :prompts.lengths[i]], ids[:n], torch.zeros(1 - int(ended), dtype=torch.long)])
             for i, ids, n, ended in zip(r.of, r.ids, r.lengths, r.finished, strict=True)]

    def padded(rows: list[Tensor]) -> Tensor:
        return pad_sequence([x.flip(0) for x in rows], batch_first=True).flip(1)
    trainer = peer("Reward", model, tmp_path)
    trainer.model.config.pad_token_id = -1                                # 0 is our end token
    load(trainer.model, scalar.body)
    trainer.model.score.weight.data.copy_(scalar.head.weight)
    loss = trainer.compute_loss(trainer.model, {
        "input_ids": padded(parts), "attention_mask": padded([torch.ones_like(x) for x in parts]),
        "margin": torch.full((8,), 0.5)})
    same(kept["gradients"], trainer, loss)
