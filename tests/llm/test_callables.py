"""The user's own function for the loss, the advantage or the average of a method."""
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

import llm
from llm import callables
from llm.algos import dpo, grpo
from llm.columns import BY_LOSS, METRICS, TAKEN
from llm.run import Run
from spinup.algos.ppo import clipped_surrogate
from spinup.core.masked import select
from spinup.errors import UserError

TINY = {"layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True, "tensorboard": False, "threads": 1,
        "device": "cpu", "total_steps": 3, "micro_batch": 8, "lr": 0.01, "warmup": 0}


@pytest.fixture
def train(beginner, tmp_path):
    """Train for three updates, as in `train("grpo", loss=mine)`. Return the columns, without those of time."""
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


# Catches: a wrong mask, ratio, group or micro-batch denominator in the arguments of the user's function; a result that
# is used differently from that of our function.
@pytest.mark.parametrize(("method", "own", "exact"), [
    ("grpo", {"loss": clip}, 0), ("grpo", {"advantage": deviation}, 0), ("grpo", {"average": by_sequence}, 1e-6),
    ("grpo", {"loss": clip, "advantage": deviation, "average": by_sequence, "kl_coef": 0.05}, 1e-6),
    ("dr_grpo", {"advantage": lambda rewards: grpo.centred(rewards)}, 0),
    ("dapo", {"loss": lambda *args: clipped_surrogate(*args[:3], (0.2, 0.28), args[3])}, 0),
    ("dpo", {"loss": plain_dpo}, 1e-5), ("ipo", {"loss": plain_ipo}, 1e-4)])
def test_user_function_equal_to_ours_gives_the_same_curve(method, own, exact, train):
    ours = train(method, **{"kl_coef": own["kl_coef"]} if "kl_coef" in own else {})
    theirs = train(method, **own)
    assert theirs.keys() == ours.keys() and ours["grad_norm"][-1] > 0
    for column, values in ours.items():
        assert theirs[column] == pytest.approx(values, rel=exact, abs=exact, nan_ok=True), column


# Catches: a diagnostic of tokens or of pairs that has no column; a mean of diagnostics in which micro-batches have
# equal weights, or in which padding counts.
def test_diagnostics_of_a_user_loss_become_columns(train):
    def watched(logp, logp_old, adv, mask):
        each, stats = clip(logp, logp_old, adv, mask)
        return each, {"clip_fraction": stats["clip_fraction"], "share_of_ones": torch.ones(()), "a": adv.abs().mean()}
    progress = train("grpo", loss=watched)
    assert progress["share_of_ones"] == pytest.approx([1.0] * 3) and all(x > 0 for x in progress["a"])
    assert "share_of_ones" not in train("grpo")

    def of_pairs(*args):
        return plain_dpo(*args), {"longest": args[2].max()}
    assert len(train("dpo", loss=of_pairs)["longest"]) == 3
    with pytest.raises(UserError, match="a diagnostic named reward_margin, which is a column of the run; choose"):
        train("dpo", loss=lambda *args: (plain_dpo(*args), {"reward_margin": 1.0}))


# Catches: a group with zero variance that is skipped although its advantage is not 0.
def test_user_advantage_can_use_groups_with_zero_variance(train):
    progress = train("grpo", advantage=lambda rewards: torch.ones_like(rewards), reward=lambda prompt, response: 0.5)
    assert progress["zero_variance"] == [1.0] * 3 and min(progress["grad_norm"]) > 0


def fails(*args):
    raise ZeroDivisionError("mine")


# Catches: an error from torch in place of one sentence; a sentence that does not name the function.
@pytest.mark.parametrize(("method", "own", "words"), [
    ("grpo", {"loss": fails}, "the loss fails failed.*ZeroDivisionError: mine .*test_callables.py, line"),
    ("grpo", {"advantage": fails}, "the advantage fails failed"), ("dpo", {"loss": fails}, "the loss fails failed"),
    ("grpo", {"average": fails}, "the average fails failed"),
    ("grpo", {"loss": lambda logp, *_: logp.sum()},
     r"the loss lambda must return a tensor of shape \[8, 3\], but returned one of shape \[\]"),
    ("grpo", {"loss": lambda logp, *_: (logp, 1.0)}, "must return a tensor, or a tensor and a dict of numbers"),
    ("grpo", {"loss": lambda *_: 1.0}, r"must return a tensor of shape \[8, 3\], but returned 1.0"),
    ("grpo", {"advantage": lambda rewards: rewards.flatten()},
     r"the advantage lambda must return a tensor of shape \[8, 4\], but returned one of shape \[32\]"),
    ("grpo", {"advantage": lambda rewards: rewards / 0}, "the advantage lambda must return finite numbers"),
    ("grpo", {"average": lambda loss, mask: loss}, r"the average lambda must return a tensor of shape \[\]"),
    ("dpo", {"loss": lambda log_ratio, *_: log_ratio}, r"must return a tensor of shape \[4\], but returned one of")])
def test_mistakes_in_user_functions_are_named(method, own, words, train):
    with pytest.raises(UserError, match=words):
        train(method, **own)


LOGP = torch.full((8, 3), -1.0, requires_grad=True)
MASK = torch.tensor([1.0, 1.0, 0.0]).expand(8, 3)


def own_loss(function):
    return callables.own_loss(function, LOGP.shape, LOGP, LOGP.detach(), torch.ones(8, 1), MASK, counted=MASK)


# Catches: a diagnostic that replaces a column of the run or is averaged with it; a name that is not a valid column
# name.
@pytest.mark.parametrize("key", [*sorted(TAKEN), "", "a,b", "x\ny", 5])
def test_name_of_a_diagnostic_is_valid_and_not_taken(key):
    words = f"{key}, which is a column of the run; choose another" if key in TAKEN else ".*choose a name of letters"
    with pytest.raises(UserError, match=f"^the loss lambda returns a diagnostic named {words}"):
        own_loss(lambda logp, *_: (-logp, {key: 123.0}))


# Catches: a column of the run that a user's diagnostic can replace; a column of our own losses that is refused.
def test_columns_of_a_run_are_taken_except_those_of_our_losses(train):
    columns = {*train("grpo", loss=lambda *args: (clip(*args)[0], {"self": 1.0, "n": np.float32(2)})), "tokens"}
    assert {"self", "n"} == {name for name in columns - TAKEN if name not in BY_LOSS}
    assert {*METRICS} - TAKEN == BY_LOSS


# Catches: a diagnostic that is not a number and raises an error in torch.
@pytest.mark.parametrize("value", ["much", None, torch.ones(2), torch.ones((), dtype=torch.complex64)])
def test_diagnostic_must_be_a_number(value):
    with pytest.raises(UserError, match="as its diagnostic mine; return a number or a tensor of one number"):
        own_loss(lambda logp, *_: (-logp, {"mine": value}))


# Catches: a traceback from torch for a loss without a gradient, or of integer or complex type; the advice to change
# --lr for a NaN that comes from the user's loss; a loss that is refused although it is infinite only outside the mask.
@pytest.mark.parametrize(("function", "words"), [
    (lambda logp, *_: (-logp).detach(), "the loss lambda must return a differentiable real tensor, .* without a grad"),
    (lambda logp, *_: torch.zeros_like(logp), "a differentiable real tensor, .*without a gradient; compute"),
    (lambda logp, *_: logp.long(), "must return a differentiable real tensor, but returned one of type torch.int64"),
    (lambda logp, *_: logp + 0j, "must return a differentiable real tensor, but returned one of type torch.complex64"),
    (lambda logp, *_: logp.log(), "the loss lambda must return finite numbers, .* although its arguments are finite")])
def test_user_loss_must_be_differentiable_real_and_finite(function, words):
    with pytest.raises(UserError, match=words):
        own_loss(function)
    assert own_loss(lambda logp, old, adv, mask: logp / mask)[0].isinf()[:, 2].all()


# Catches: an error that blames the user's loss for a NaN of the policy.
def test_user_loss_is_not_blamed_for_a_diverged_policy():
    lost = torch.full((8, 3), torch.nan, requires_grad=True)
    assert callables.own_loss(lambda logp: -logp, lost.shape, lost, counted=MASK)[0].isnan().all()


# Catches: an invalid average or advantage that raises an error only later, in torch.
def test_user_average_must_be_differentiable_and_advantage_real():
    with pytest.raises(UserError, match="the average lambda must return a differentiable real tensor"):
        callables.own_average(lambda loss, mask: loss.detach().sum(), LOGP, MASK, 1.0)
    with pytest.raises(UserError, match="the average lambda must return finite numbers"):
        callables.own_average(lambda loss, mask: loss.sum() / 0, LOGP, MASK, 1.0)
    with pytest.raises(UserError, match="the advantage lambda must return a real tensor"):
        callables.own_advantage(lambda rewards: rewards + 0j, torch.ones(2, 2))
    assert callables.own_advantage(lambda rewards: rewards > 0, torch.ones(2, 2)).dtype == torch.float32


# Catches: tensors of the batch that the user's function can change in place.
def test_user_function_cannot_change_the_batch():
    def scribble(*args):
        for x in args:
            x.mul_(0)
        return args[0].sum() if len(args) == 2 else args[0]
    rewards, mask = torch.ones(2, 2), MASK.clone()
    logp = LOGP * 1
    callables.own_loss(scribble, logp.shape, logp, LOGP.detach(), torch.ones(8, 1), mask)
    callables.own_average(scribble, logp, mask, 1.0)
    callables.own_advantage(scribble, rewards)
    assert rewards.all() and mask.equal(MASK) and logp.all()


# Catches: a run with user functions that cannot be resumed; a traceback of `spinup resume`, which does not have the
# Python functions; diagnostics, or their columns, that are missing in the checkpoint.
@pytest.mark.parametrize("rows", [3, 2])
def test_interrupted_run_with_user_functions_resumes(rows, beginner, cli, curve, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Run, "epochs", rows)       # with 3, a row ends after the fourth update; with 2, none
    done = []

    def watched(*args):
        if len(done) == 3 * 4:                                            # 3 updates of 2 minibatches, 2 passes each
            signal.raise_signal(signal.SIGINT)
        done.append(1)
        each, stats = clip(*args)
        return each, stats | {"advantage": args[2].abs().mean()}

    def train(**settings):
        many = {"prompts": 4, "samples": 4, "minibatches": 2, "micro_batch": 4, "exp_name": "x", "total_steps": 6,
                "loss": watched}
        return llm.grpo("reverse:length=2,symbols=10", model=beginner, advantage=lambda r: r - r.mean(),
                        average=by_sequence, reward=lambda prompt, response: len(set(response)) / 2,
                        **TINY | many | settings)
    first = train()
    assert (first.status, len(done)) == ("interrupted", 16)
    command = cli("resume", first.directory)
    assert command.code == 2 and "Traceback" not in command.err
    assert "llm.grpo(reward=FUNCTION, advantage=FUNCTION, loss=watched, average=by_sequence, resume='runs/x/x_s1')" in (
        command.err)
    with pytest.raises(UserError, match="is a run with loss the Python function watched, not clip; give the same"):
        train(loss="clip", resume=first.directory)
    assert train(resume=first.directory).status == "finished"
    assert train(log_dir="whole").status == "finished" and len(done) == 16 + 8 + 24
    assert curve(tmp_path / "runs/x/x_s1") == curve(tmp_path / "whole/x/x_s1")
    assert "advantage" in curve(first.directory)[0]


# Catches: a recommendation of `spinup resume` or `spinup eval`, which do not have the user's function.
def test_run_with_a_user_function_recommends_no_command_that_needs_it(train, capsys):
    train("grpo", quiet=False, total_steps=1)
    out = capsys.readouterr().out
    assert "  spinup plot " in out and "spinup resume" not in out and "spinup eval" not in out


# Catches: a name that is not checked; a user's function that is refused.
def test_names_of_losses_and_advantages_are_checked():
    with pytest.raises(UserError, match="--loss must be one of clip, .*, not 'clp'. Did you mean 'clip'"):
        grpo.Config(loss="clp")
    with pytest.raises(UserError, match="--advantage must be one of group, mean, batch, not 'grup'"):
        grpo.Config(advantage="grup")
    with pytest.raises(UserError, match="--loss must be one of dpo, "):
        dpo.Config(loss="dop")
    assert grpo.Config(loss=clip).loss is clip and dpo.Config(loss=plain_dpo).loss is plain_dpo


# Catches: a name that is missing in its table or in the settings.
def test_names_in_the_settings_equal_those_in_the_tables():
    hints = grpo.Config.__annotations__
    for name, table in (("advantage", grpo.ADVANTAGES), ("loss", grpo.LOSSES)):
        assert hints[name].__args__[0].__args__ == tuple(table)


# Catches: an AttributeError for a Path object, which `log_dir` accepts too.
def test_model_can_be_a_path_object(beginner, tmp_path):
    given = {**TINY, "total_steps": 1, "prompts": 2, "samples": 2}
    run = llm.grpo("reverse:length=2,symbols=10", model=Path(beginner), log_dir=tmp_path, **given)
    assert run.progress["steps"][-1] == 1
    with pytest.raises(UserError, match="--model must be a text, such as a folder, not 5"):
        llm.grpo("reverse:length=2,symbols=10", model=5, log_dir=tmp_path, **given)
