"""A loss, an advantage or an average of the user's own in place of a method's."""
import pytest
import torch
from torch.nn.functional import logsigmoid

import llm
from llm.algos import dpo, grpo
from spinup.algos.ppo import clipped_surrogate
from spinup.core.masked import select
from spinup.errors import UserError
from spinup.registry import find
from spinup.runs.flags import from_flags
from spinup.runs.folders import config_from_json
from spinup.runs.presets import configure

TINY = {"layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True, "tensorboard": False, "threads": 1,
        "device": "cpu", "total_steps": 3, "micro_batch": 8, "lr": 0.01, "warmup": 0}


@pytest.fixture
def train(beginner, tmp_path):
    """Three updates: `train("grpo", loss=mine)`; the columns that do not hold time."""
    def train(method, **settings):
        many = {"pairs": 16, "batch": 4} if method in ("dpo", "ipo") else {"prompts": 8, "samples": 4, "minibatches": 2}
        reward = {"reward": lambda prompt, response: len(set(response)) / 2}
        progress = getattr(llm, method)("reverse:length=2,symbols=10", model=beginner, log_dir=str(tmp_path),
                                        **TINY | many | reward | settings).progress
        return {k: v for k, v in progress.items() if not k.endswith(("_seconds", "_per_second"))}
    return train


def clip(logp, logp_old, adv, mask):
    return clipped_surrogate(logp, logp_old, adv, (0.2, 0.2), mask)


def deviation(rewards):
    return grpo.standardised(rewards)


def by_sequence(loss, mask):
    return (select(loss, mask).sum(1) / mask.sum(1).clamp(min=1)).sum()


def plain_dpo(log_ratio, logp, lengths):
    return -logsigmoid(0.1 * log_ratio[:, 0] - 0.1 * log_ratio[:, 1])


def plain_ipo(log_ratio, logp, lengths):
    won, lost = (log_ratio / lengths).unbind(1)
    return (won - lost - 5).square()


# Turned red by: a function of the user's that gets other numbers than ours: a mask, a ratio, a group, a denominator of
# a micro-batch; a result that is used in another way.
@pytest.mark.parametrize(("method", "own", "exact"), [
    ("grpo", {"loss": clip}, 0), ("grpo", {"advantage": deviation}, 0), ("grpo", {"average": by_sequence}, 1e-6),
    ("grpo", {"loss": clip, "advantage": deviation, "average": by_sequence, "kl_coef": 0.05}, 1e-6),
    ("dr_grpo", {"advantage": lambda rewards: grpo.centred(rewards)}, 0),
    ("dapo", {"loss": lambda *args: clipped_surrogate(*args[:3], (0.2, 0.28), args[3])}, 0),
    ("dpo", {"loss": plain_dpo}, 1e-5), ("ipo", {"loss": plain_ipo}, 1e-4)])
def test_a_function_that_equals_ours_gives_the_same_curve(method, own, exact, train):
    ours = train(method, **{"kl_coef": own["kl_coef"]} if "kl_coef" in own else {})
    theirs = train(method, **own)
    assert theirs.keys() == ours.keys() and ours["grad_norm"][-1] > 0
    for column, values in ours.items():
        assert theirs[column] == pytest.approx(values, rel=exact, abs=exact, nan_ok=True), column


# Turned red by: diagnostics of a loss that are in no column; a mean of them that counts micro-batches as equal, or the
# padding.
def test_the_diagnostics_of_a_loss_are_columns(train):
    def watched(logp, logp_old, adv, mask):
        each, stats = clip(logp, logp_old, adv, mask)
        return each, {"clip_fraction": stats["clip_fraction"], "share_of_ones": torch.ones(()), "a": adv.abs().mean()}
    progress = train("grpo", loss=watched)
    assert progress["share_of_ones"] == pytest.approx([1.0] * 3) and all(x > 0 for x in progress["a"])
    assert "share_of_ones" not in train("grpo")


# Turned red by: a group with zero variance that is left out although its advantage is not 0.
def test_an_advantage_of_ones_own_may_use_every_group(train):
    progress = train("grpo", advantage=lambda rewards: torch.ones_like(rewards), reward=lambda prompt, response: 0.5)
    assert progress["no_contrast"] == [1.0] * 3 and min(progress["grad_norm"]) > 0


def fails(*args):
    raise ZeroDivisionError("mine")


# Turned red by: an error of torch's in place of a sentence; one that does not name the function.
@pytest.mark.parametrize(("method", "own", "words"), [
    ("grpo", {"loss": fails}, "the loss fails failed.*ZeroDivisionError: mine .*test_callables.py, line"),
    ("grpo", {"advantage": fails}, "the advantage fails failed"), ("dpo", {"loss": fails}, "the loss fails failed"),
    ("grpo", {"average": fails}, "the average fails failed"),
    ("grpo", {"loss": lambda logp, *_: logp.sum()},
     r"the loss lambda must return a tensor of shape \[8, 3\], and returned one of \[\]"),
    ("grpo", {"loss": lambda logp, *_: (logp, 1.0)}, "must return a tensor, or a tensor and a dict of numbers"),
    ("grpo", {"loss": lambda *_: 1.0}, r"must return a tensor of shape \[8, 3\], and returned 1.0"),
    ("grpo", {"advantage": lambda rewards: rewards.flatten()},
     r"the advantage lambda must return a tensor of shape \[8, 4\], and returned one of \[32\]"),
    ("grpo", {"advantage": lambda rewards: rewards / 0}, "the advantage lambda must return finite numbers"),
    ("grpo", {"average": lambda loss, mask: loss}, r"the average lambda must return a tensor of shape \[\]"),
    ("grpo", {"loss": lambda logp, *_: (logp, {"steps": 1.0})}, "a diagnostic steps, which is a column of every run"),
    ("grpo", {"loss": lambda logp, *_: (logp, {"a,b": 1.0})}, "names a diagnostic 'a,b'; a name has letters"),
    ("grpo", {"loss": lambda logp, *_: (logp, {"a": "b"})}, "must return numbers as diagnostics; a is 'b'"),
    ("grpo", {"loss": lambda logp, *_: logp.detach()}, "must return a tensor of floats that has a gradient"),
    ("dpo", {"loss": lambda log_ratio, *_: log_ratio}, r"must return a tensor of shape \[4\], and returned one of")])
def test_mistakes_are_named(method, own, words, train):
    with pytest.raises(UserError, match=words):
        train(method, **own)


# Turned red by: a name that is not checked, or a function of the user's that is refused.
def test_names_are_checked():
    with pytest.raises(UserError, match="--loss must be one of clip, not 'clp'. Did you mean 'clip'"):
        grpo.Config(loss="clp")
    with pytest.raises(UserError, match="--advantage must be one of group, mean, not 'grup'"):
        grpo.Config(advantage="grup")
    with pytest.raises(UserError, match="--loss must be one of dpo, "):
        dpo.Config(loss="dop")
    assert grpo.Config(loss=clip).loss is clip and dpo.Config(loss=plain_dpo).loss is plain_dpo


# Turned red by: an older flag, argument or run folder that is no longer read; a rename that is not told.
def test_scale_is_the_older_name_of_advantage(capsys):
    algorithm = find("llm grpo")
    assert configure(algorithm, {"scale": "none"}, preset="none")[0].advantage == "mean"
    assert "--scale is now --advantage mean" in capsys.readouterr().err
    assert from_flags(algorithm, ["--scale", "none"])[0].advantage == "mean"
    assert config_from_json(algorithm, {"scale": "none", "lr": 0.5}).advantage == "mean"
    assert config_from_json(algorithm, {"scale": "group"}).advantage == "group"


# Turned red by: a name that a table lacks, or that has no line in the settings.
def test_every_name_is_in_its_table():
    hints = grpo.Config.__annotations__
    for name, table in (("advantage", grpo.ADVANTAGES), ("loss", grpo.LOSSES)):
        assert hints[name].__args__[0].__args__ == tuple(table)
