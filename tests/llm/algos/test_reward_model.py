"""Reward models: the loss compared with its equation, measures of calibration, and training runs."""
import json
import math
import signal

import pytest
import torch

from llm.algos import reward_model
from llm.algos.reward_model import bradley_terry, calibration_error, correlation
from llm.policy.cache import Slots
from llm.policy.load import load_reward_model
from llm.policy.scalar import ScalarModel
from llm.policy.shape import Shape
from llm.policy.transformer import Transformer
from llm.preferences import rows_of, shuffled
from spinup.errors import UserError
from tests.llm.algos.conftest import close, sigmoid

# For the tests of all methods; `suite_of` in tests/llm/conftest.py describes it.
SUITE = {"settings": {"batch": 4, "pairs": 8, "calibration": 16}}


# Catches: log(sigmoid(x)), which is -inf for the last pair; a margin with the wrong sign; chosen and rejected
# exchanged.
def test_bradley_terry_loss_and_gradient_follow_the_equation():
    won, lost = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in ([2.0, 1, -800], [0.5, 1, 0]))
    found = bradley_terry(won, lost, margin=0.3)
    close(found, [math.log(1 + math.exp(-1.2)), math.log(1 + math.exp(0.3)), 800.3])
    found.sum().backward()
    slopes = torch.tensor([sigmoid(-1.2), sigmoid(0.3), 1.0])
    close(won.grad, -slopes)
    close(lost.grad, slopes)
    close(bradley_terry(won, won), [math.log(2)] * 3)


# Diagnostics of a reward model.

# In the first case, six of eight pairs have the outcome that was predicted with probability 3/4. Catches: only one
# order of each pair, in which every pair is right; a root mean square; bins with equal weights, whatever their sizes.
def test_calibration_error_is_zero_only_for_calibrated_margins():
    calm = torch.tensor([math.log(3)] * 6 + [-math.log(3)] * 2)
    assert calibration_error(calm, bins=2) == pytest.approx(0, abs=1e-6)
    assert calibration_error(torch.full((8,), math.log(3))) == pytest.approx(0.25)           # predicted .75, observed 1
    assert calibration_error(-torch.full((8,), math.log(3))) == pytest.approx(0.75)
    g = torch.Generator().manual_seed(0)
    margins = 1.5 * torch.randn(20_000, generator=g)
    margins = torch.where(torch.rand(20_000, generator=g) < torch.sigmoid(margins), margins, -margins)
    assert calibration_error(margins) < 0.02
    assert calibration_error(3 * margins) > 0.05 and calibration_error(margins / 3) > 0.05


# Catches: a result that depends on the arbitrary order of equal numbers.
def test_equal_margins_share_a_calibration_bin():
    margins = torch.tensor([math.log(3)] * 75 + [-math.log(3)] * 25)
    assert calibration_error(margins) == pytest.approx(0, abs=1e-6)
    assert calibration_error(torch.zeros(100)) == 0


# Catches: means that are not subtracted; NaN for constant numbers.
def test_correlation_is_pearsons_and_zero_for_constants():
    x = torch.tensor([1.0, 2, 3, 4])
    assert correlation(x, 7 - 2 * x) == pytest.approx(-1) and correlation(x, 100 + x) == pytest.approx(1)
    assert correlation(x, torch.tensor([1, 3, 2, 4])) == pytest.approx(0.8)                  # lengths are integers
    assert correlation(x, torch.full((4,), 0.7)) == pytest.approx(0, abs=1e-6)
    assert correlation(torch.zeros(4), x) == 0


# Training runs.

class Stop(Exception):
    """Ends a training run at an optimiser step. It holds the gradient."""


# Catches: a reward that is read after the end of the longest response; other pairs than those of `shuffled`; a missing
# margin; a mean over the pairs of a micro-batch; a head with weights of 0, with which the body has no gradient at
# first; a cut-off response without an added end token, unlike in `RewardModel`.
@pytest.mark.parametrize("micro_batch", [0, 4])
def test_reward_model_update_follows_its_equation(micro_batch, train, parts, monkeypatch):
    find, pairs = reward_model.find_pairs, []

    def spy(*args, **kwargs):
        pairs.append(find(*args, **kwargs))
        return pairs[-1]

    class Stopped(reward_model.FlatAdam):
        def step(self, lr=None):
            raise Stop(self.flat.grad.clone())

    monkeypatch.setattr(reward_model, "find_pairs", spy)
    monkeypatch.setattr(reward_model, "FlatAdam", Stopped)
    with pytest.raises(Stop) as caught:
        train("reward_model", margin=0.3, micro_batch=micro_batch)
    found, model, (batch, _) = caught.value.args[0], parts[0]["model"], pairs

    def worth(b):
        r, n = batch.responses, int(batch.responses.lengths[b])
        prompt = batch.prompts.ids[r.of[b], :batch.prompts.lengths[r.of[b]]]
        end = torch.zeros(0 if r.finished[b] else 1, dtype=torch.long)    # a cut-off response has no end token, 0
        row = torch.cat([prompt, r.ids[b, :n], end])[None]
        state = model.body.hidden(row, Slots())[0, -1]
        return state @ model.head.weight[0] + model.head.bias[0]

    chosen = shuffled(12, 6, 0, seed=1).tolist()
    assert not batch.responses.finished[rows_of(torch.tensor(chosen))].all()
    loss = sum(torch.log(1 + torch.exp(worth(2 * i + 1) - worth(2 * i) + 0.3)) for i in chosen) / 6
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    assert model.head.weight.std().item() == pytest.approx(17**-0.5, rel=0.5) and not model.head.bias.any()
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


# Catches: a loss of rewards that are still calibrated from the earlier end of the run; the loss needs log-odds.
def test_extended_reward_model_run_drops_its_calibration(train, parts, monkeypatch, tmp_path):
    first = train("reward_model", total_steps=2, log_dir=str(tmp_path))
    assert float(parts[0]["model"].gain) != 1
    loss, gains = reward_model.bradley_terry, []

    def spy(*args):
        gains.append(float(parts[1]["model"].gain))
        return loss(*args)

    monkeypatch.setattr(reward_model, "bradley_terry", spy)
    train("reward_model", first.directory, total_steps=3, log_dir=str(tmp_path))
    assert gains == [1]


# Catches: a result that reads the log, which does not exist before the first row.
def test_run_interrupted_before_its_first_row_has_a_result(train, monkeypatch, tmp_path):
    def press(preferred, other, margin):
        signal.raise_signal(signal.SIGINT)
        return bradley_terry(preferred, other, margin)

    monkeypatch.setattr(reward_model, "bradley_terry", press)
    result = train("reward_model", total_steps=200, log_dir=str(tmp_path))
    assert (result.status, result.progress) == ("interrupted", {})
    assert json.loads((result.directory / "result.json").read_text())["status"] == "interrupted"


# Catches: rewards of an interrupted run, whose scale does not fit the KL coefficient; equal rewards that are multiplied
# by a million.
def test_only_finished_reward_models_give_rewards(train, tmp_path):
    run = train("reward_model", total_steps=2, log_dir=str(tmp_path)).directory
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result | {"status": "interrupted"}))
    with pytest.raises(UserError, match="is not finished, so its rewards are not yet scaled.*type: spinup resume"):
        load_reward_model(run)
    model = ScalarModel(Transformer(Shape(9, context=8, layers=1, width=8, heads=2, kv_heads=2, head_size=4, hidden=8)))
    model.calibrate(torch.full((4,), 3.0))
    assert (float(model.gain), float(model.bias)) == (1.0, -3.0)
