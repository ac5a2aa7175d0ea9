"""A transformer with one number as output: values of states, rewards of responses, and use by a person."""
import numpy as np
import pytest
import torch

import llm
from llm.policy.cache import Slots
from llm.policy.generate import Prompts
from llm.policy.scalar import RewardModel, ScalarModel, rewards, values
from llm.policy.shape import Shape
from llm.policy.tokenizer import CharTokenizer
from llm.policy.transformer import Transformer
from llm.tasks.user import UserTask
from spinup.errors import UserError

ALPHABET = "abcdefghij>"
PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8]]
OF = torch.tensor([0, 0, 1, 2, 2, 2])
LENGTHS = torch.tensor([6, 3, 1, 4, 6, 2])
IDS = torch.randint(12, (6, 6), generator=torch.Generator().manual_seed(0))


def make(seed=0, std=0.25):
    """A scalar model with random weights, whose biases and gain differ from the initial ones."""
    torch.manual_seed(seed)
    body = Transformer(Shape(12, context=16, layers=2, width=16, heads=2, kv_heads=2, head_size=8, hidden=32))
    model = ScalarModel(body, std=std)
    with torch.no_grad():
        model.head.bias.fill_(0.4)
        model.gain.fill_(1.7)
        model.bias.fill_(-0.3)
    return model


def plainly(model, b, n):
    """Output of the model after the first n tokens of response b, read from the prompt's start, without padding."""
    row = torch.tensor([[*PROMPTS[OF[b]], *IDS[b, :n].tolist()]])
    state = model.body.hidden(row, Slots())[0, -1].double()
    return 1.7 * (state @ model.head.weight[0].double() + 0.4) - 0.3


def close(found, expected):
    torch.testing.assert_close(found.double(), torch.as_tensor(expected).double(), atol=1e-5, rtol=1e-5)


# The positions at which numbers are read.

# Catches: V of the state after a token, which depends on the choice; a first value at the end of the longest prompt;
# prompts of other rows; exchanged or missing bias and gain.
def test_values_are_read_before_each_token():
    model = make()
    found = values(model, Prompts.of(PROMPTS), OF, IDS)
    close(found, torch.stack([torch.stack([plainly(model, b, t) for t in range(6)]) for b in range(6)]))
    close(values(model, Prompts.of(PROMPTS), OF, IDS, checkpointing=True), found)


# Catches: the number at position -1, which is padding; a last token that is found by its id; the state before the last
# token in place of the one after it; the length of the longest row for all rows.
def test_rewards_are_read_after_the_last_token():
    model = make()
    found = rewards(model, Prompts.of(PROMPTS), OF, IDS, LENGTHS)
    close(found, torch.stack([plainly(model, b, n) for b, n in enumerate(LENGTHS.tolist())]))
    close(rewards(model, Prompts.of(PROMPTS), OF, IDS, LENGTHS, checkpointing=True), found)


# Catches: padding that has an effect; a number that is read at the width of the batch.
@pytest.mark.parametrize("what", ["values", "rewards"])
def test_padding_changes_neither_numbers_nor_gradients(what):
    model, g = make(), torch.Generator().manual_seed(1)
    weights = torch.rand(6, 6, generator=g)
    weights *= torch.arange(6) < LENGTHS[:, None]
    found = []
    for wide in (False, True):
        prompts, ids = Prompts.of(PROMPTS), torch.where(torch.arange(6) < LENGTHS[:, None], IDS, 0)
        if wide:
            asked = torch.randint(12, (3, 8), generator=g)
            asked[:, :5] = torch.where(torch.arange(5) < prompts.lengths[:, None], prompts.ids, asked[:, :5])
            prompts, longer = Prompts(asked, prompts.lengths), torch.randint(12, (6, 8), generator=g)
            ids = torch.where(torch.arange(8) < LENGTHS[:, None], torch.nn.functional.pad(ids, (0, 2)), longer)
        if what == "values":
            number = (values(model, prompts, OF, ids)[:, :6] * weights).sum()
        else:
            number = (rewards(model, prompts, OF, ids, LENGTHS) * weights[:, 0]).sum()
        found.append((number, *torch.autograd.grad(number, list(model.parameters()))))
    assert found[0][1].norm() > 0.1
    for plain, padded in zip(*found, strict=True):
        torch.testing.assert_close(padded, plain, atol=1e-5, rtol=1e-5)


# A prompt that several responses share is read once. Catches: a prompt's gradient from its first response only.
def test_responses_of_a_shared_prompt_add_their_gradients():
    model, parts = make(), []
    for b in (3, 4, 5):
        n = LENGTHS[b:b + 1]
        number = rewards(model, Prompts.of([PROMPTS[2]]), torch.tensor([0]), IDS[b:b + 1, :n], n)
        parts.append(torch.autograd.grad(number.sum(), list(model.parameters())))
    number = rewards(model, Prompts.of(PROMPTS), OF[3:], IDS[3:], LENGTHS[3:])
    whole = torch.autograd.grad(number.sum(), list(model.parameters()))
    for x, *y in zip(whole, *parts, strict=True):
        torch.testing.assert_close(x, sum(y), atol=1e-5, rtol=1e-5)


# Initial values.

# With values of 0, the first advantages are the rewards. Catches: a random head although std is 0; a head with the
# standard deviation of the body; a bias that is not 0.
def test_value_function_is_exactly_0_at_first():
    body = make().body
    assert not values(ScalarModel(body), Prompts.of(PROMPTS), OF, IDS).any()
    heads = torch.stack([ScalarModel(body, std=17**-0.5).head.weight[0].detach() for _ in range(50)])
    assert heads.std().item() == pytest.approx(17**-0.5, rel=0.1) and len(heads[:, 0].unique()) == 50
    assert not ScalarModel(body, std=0.5).head.bias.any()


# Catches: the body itself in place of a copy, which a value function would then train; a frozen copy.
def test_body_is_a_trainable_copy():
    body = make().body.requires_grad_(False)
    model = ScalarModel(body)
    assert all(p.requires_grad for p in model.parameters()) and not any(p.requires_grad for p in body.parameters())
    with torch.no_grad():
        for p in model.body.parameters():
            p += 1
    assert not any(torch.equal(a, b) for a, b in zip(model.body.parameters(), body.parameters(), strict=True))
    assert {"gain", "bias"} <= model.state_dict().keys() - dict(model.named_parameters()).keys()


# Catches: the gain after the shift; the standard deviation with n - 1; a second calibration that undoes the first; a
# division by 0 if all numbers are equal.
def test_calibration_gives_mean_0_and_standard_deviation_1():
    model, asked = make(), (Prompts.of(PROMPTS), OF, IDS, LENGTHS)
    with torch.no_grad():
        before = rewards(model, *asked)
        for _ in range(2):
            model.calibrate(rewards(model, *asked))
            after = rewards(model, *asked)
            std, mean = torch.std_mean(after, correction=0)
            assert float(mean) == pytest.approx(0, abs=1e-6) and float(std) == pytest.approx(1, abs=1e-5)
        close(after, (before - before.mean()) / before.std(correction=0))                    # affine: keeps the order
        model.calibrate(torch.full((4,), 2.0))
        assert torch.isfinite(rewards(model, *asked)).all()


# Catches: a head in bf16, whose numbers are so coarse that different responses tie.
def test_numbers_of_a_bf16_model_are_fp32():
    model = ScalarModel(make().body.bfloat16(), std=0.25)
    hidden = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = model.numbers(hidden)
    assert found.dtype == torch.float32 and len(found.unique()) > 1900
    close(found, hidden.double() @ model.head.weight[0].double() + model.head.bias.double())


# Use by a person.

ASKED = ["abc>", "b>", "abcdefg>", "c>", "ab>", "b>", "jih>"]
BRIEF = [f"{letter}>" for letter in ALPHABET[:-1]]
SAID = ["cba", "", "gfedcba", "aaaa", "ab", "ccccc", "j"]


def judge_of(seed=0):
    body = Transformer(Shape(12, context=32, layers=2, width=16, heads=2, kv_heads=2, head_size=8, hidden=32))
    torch.manual_seed(seed)
    return RewardModel(ScalarModel(body, std=0.5), CharTokenizer(ALPHABET))


# Catches: a missing end token after a response, which then counts as cut off; the rows of one piece in place of those
# of another; a missing last piece.
@pytest.mark.parametrize("at_once", [1, 3, 512])
def test_reward_does_not_depend_on_the_other_responses(at_once):
    judge = judge_of()
    tokens, end = judge.tokenizer, judge.tokenizer.end
    expected = []
    for prompt, response in zip(ASKED, SAID, strict=True):
        row = torch.tensor([[*tokens.prompt(prompt), *tokens.encode(response), end]])
        expected.append(judge.model.numbers(judge.model.body.hidden(row, Slots())[0, -1]).item())
    assert len({round(x, 4) for x in expected}) == len(expected)
    judge.at_once = at_once
    found = judge.judge(ASKED, SAID)
    assert all(isinstance(x, float) for x in found)
    assert found == pytest.approx(expected, abs=1e-5)
    assert [judge(*pair) for pair in zip(ASKED, SAID, strict=True)] == pytest.approx(expected, abs=1e-5)
    assert judge.judge(ASKED[::-1], SAID[::-1]) == pytest.approx(expected[::-1], abs=1e-5)
    assert judge.judge([], []) == []


# Catches: the text of a special token that is encoded as this token, with which a response could praise itself as the
# user.
def test_special_tokens_in_a_response_are_ordinary_text(monkeypatch):
    judge, how = judge_of(), []
    encode = judge.tokenizer.encode
    monkeypatch.setattr(judge.tokenizer, "encode", lambda text, literal=False: how.append(literal) or encode(text))
    judge(ASKED[0], SAID[0])
    assert sorted(how) == [False, True]                                   # the prompt, the response


# Catches: characters that are left out silently.
def test_unknown_character_is_refused():
    with pytest.raises(UserError, match="'X' is not in the alphabet"):
        judge_of()("abc>", "cXa")


@pytest.fixture
def trained(make_model, tmp_path, monkeypatch):
    """The folder of an initial policy, and the result of a reward model that is trained from it: longer is better."""
    monkeypatch.setattr("llm.preferences.HELD_OUT_PAIRS", 16)
    task = UserTask(BRIEF, lambda prompt, response: len(response), max_tokens=8, alphabet=ALPHABET)
    task.demonstration = lambda problem, rng: "".join(rng.choice(list(ALPHABET[:-1]), size=rng.integers(4)))
    start = make_model(task=task, total_steps=30, lr=0.01, warmup=0)
    return start, llm.reward_model(task, preset="none", model=start, total_steps=20, lr=0.01, pairs=64, batch=32,
                                   held_out=8, quiet=True, tensorboard=False, threads=1, log_dir=str(tmp_path))


# Catches: gain and bias that are not saved, or are set after saving; a head that is random again after loading; a
# calibration that reads padding.
def test_loaded_reward_model_equals_the_trained_one(trained):
    start, result = trained
    judge, again = result.policy, llm.load(result.directory)
    assert isinstance(again, RewardModel) and again.judge(ASKED, SAID) == judge.judge(ASKED, SAID)
    assert judge("b>", "aaaaa") > judge("b>", "a") + 0.5 and result.quality > 0.8
    prompts, policy = BRIEF * 50, llm.load(start)
    found = again.judge(prompts, policy.respond_all(prompts, 1, torch.Generator().manual_seed(0), 8))
    assert abs(np.mean(found)) < 0.2 and 0.8 < np.std(found) < 1.2


# Catches: a missing check, which leads to an IndexError.
@pytest.mark.parametrize("length", [27, 100])
def test_response_beyond_the_context_is_refused(length):
    judge = judge_of()
    with pytest.raises(UserError, match="together exceed the model's context of 32"):
        judge.judge(["abcd>", "b>"], ["a" * length, "a"])
