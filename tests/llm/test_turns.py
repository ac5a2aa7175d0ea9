"""Tasks with several turns: the policy guesses a number, and the environment answers higher or lower."""
import json

import numpy as np
import pytest
import torch

import llm
from llm import learn
from llm.config import LanguageConfig
from llm.evaluate import evaluate
from llm.policy.generate import Sampler
from llm.policy.load import Start, fresh
from llm.policy.policy import LanguagePolicy
from llm.policy.score import score
from llm.policy.tokenizer import CharTokenizer
from llm.restore import load
from llm.rollout import demonstrated, sample
from llm.run import Run
from llm.tasks import Problem, Task, make_task
from llm.tasks.episodes import Episode, called, pieces, played
from llm.tasks.strings import Copy
from llm.tasks.task import draw, speech
from llm.watch import watch
from spinup.errors import UserError

TINY = {"layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True, "tensorboard": False, "threads": 1,
        "device": "cpu", "total_steps": 3}
SMALL = {name: TINY[name] for name in ("layers", "width", "heads", "held_out", "device")}


class Guessing(Episode):
    """Episode of one response: its secret number, and the number of guesses that are left."""

    def __init__(self, task, secret):
        self.task, self.secret, self.left, self.turns, self.closed = task, secret, task.guesses, [], 0

    def act(self, text):
        self.turns.append(text)
        self.left -= 1
        guess = text.removesuffix("?")
        if guess == str(self.secret):
            return 1.0, True
        self.answer = "+" if guess.isdigit() and int(guess) < self.secret else "-"
        return -0.25, self.left == 0

    def observe(self):
        return self.answer

    def close(self):
        self.closed += 1


class Guess(Task):
    """The prompt is `2-7:`, and a turn is `5?`. The environment writes + (higher) or - (lower), or ends the episode."""

    name, alphabet, end_of_turn = "guess", "0123456789-:?+", "?"

    def __init__(self, guesses: int = 3, max_tokens: int = 10):
        self.guesses, self.max_tokens, self.episodes = guesses, max_tokens, []

    def problems(self, n, rng, held_out=False):
        def make():
            low, high = sorted(rng.choice(10, 2, replace=False).tolist())
            return Problem(f"{low}-{high}:", data=int(rng.integers(low, high + 1)))
        return draw(n, held_out, make)

    def demonstration(self, problem, rng):
        (low, high), text = map(int, problem.prompt[:-1].split("-")), ""
        for _ in range(self.guesses):
            guess = (low + high) // 2
            text += f"{guess}?"
            if guess == problem.data:
                break
            low, high = (guess + 1, high) if guess < problem.data else (low, guess - 1)
            text += "+" if guess < problem.data else "-"
        return text if guess == problem.data else text[:-1]

    def open(self, problem):
        self.episodes.append(Guessing(self, problem.data))
        return self.episodes[-1]


def everything_is_closed(task):
    return all(episode.closed == 1 for episode in task.episodes)


@pytest.fixture(scope="module")
def model():
    """A policy with nearly equal probabilities of all tokens, so that it writes question marks and end tokens."""
    start = fresh(LanguageConfig(layers=1, width=16, heads=2), Guess())
    with torch.no_grad():
        start.model.embed.weight.mul_(0.1)
    return start


@pytest.fixture(scope="module")
def folder(make_model):
    """The folder of a model after 60 updates of SFT."""
    return make_model(task=Guess(), total_steps=60, batch=32, lr=0.01, warmup=0, **SMALL)


def drawn(task, start, n=60, seed=0, samples=2):
    problems = task.problems(n, np.random.default_rng(seed))
    return sample(Sampler(start.model, start.tokenizer.ends), task, start.tokenizer, problems, samples=samples,
                  max_tokens=task.max_tokens, generator=torch.Generator().manual_seed(seed))


class TwoEnds(CharTokenizer):
    """The digit 0 ends a response too."""

    ends = frozenset([0, 1])


# Catches: an episode that recognises only one end token, as by `tokens[-1] == end`.
def test_each_of_several_end_tokens_ends_the_turn(model):
    task = Guess()
    batch = drawn(task, Start(model.model, TwoEnds(model.tokenizer.alphabet)))
    empty = (batch.responses.ids[:, 0] == 1).nonzero()[:, 0].tolist()
    assert empty and all(task.episodes[row].turns == [""] and batch.texts[row] == "" for row in empty)
    assert batch.responses.lengths[empty].eq(1).all() and batch.responses.finished[empty].all()


# Catches: an observation with mask 1, or a turn with mask 0; the reward of one turn only, or of another row; a response
# that continues after its episode; a turn that is scored twice, or a turn that is not scored because the end token or
# the limit ended it; one episode for two responses.
def test_environment_answers_each_turn(model):
    task = Guess(max_tokens=9)
    batch = drawn(task, model)
    r, ends = batch.responses, set()
    assert len(task.episodes) == 120 and everything_is_closed(task)
    for row, (episode, text) in enumerate(zip(task.episodes, batch.texts, strict=True)):
        ids, mask, n = r.ids[row].tolist(), r.mask[row].tolist(), int(r.lengths[row])
        rest, own, turns, over = text, [], [], False
        while rest and not over:                                          # the expected turns and mask
            turn, mark, rest = rest.partition("?")
            turns.append(turn + mark)
            own += [1.0] * len(turn + mark)
            over = turn == str(episode.secret) or len(turns) == task.guesses
            if mark and not over and rest:
                assert rest[0] == ("+" if turn.isdigit() and int(turn) < episode.secret else "-")
                own, rest = [*own, 0.0], rest[1:]
        written = bool(turns) and turns[-1].endswith("?")                 # the last turn is complete
        if over and written:
            own += [0.0] * (n - len(text))                                # the end token, not chosen by the policy
        elif ids[n - 1] == model.tokenizer.end:
            turns, own = ([*turns, ""] if written or not turns else turns), [*own, 1.0]
        assert mask[:n] == own and not any(mask[n:])
        assert episode.turns == turns
        right = turns[-1:] and turns[-1].removesuffix("?") == str(episode.secret)
        assert batch.rewards[row] == pytest.approx(-0.25 * (len(turns) - bool(right)) + bool(right))
        assert bool(r.finished[row]) == (ids[n - 1] == model.tokenizer.end or (over and bool(turns)))
        ends.add((over, written, len(turns), n == 9))
    assert len(ends) > 8 and batch.rewards.max() > 0


# Catches: an empty turn that is scored after a cut; a cut-off turn with text that is not scored.
def test_cut_off_turn_is_scored_if_it_is_not_empty(model):
    for limit in 2, 3, 4:
        task = Guess(guesses=9, max_tokens=limit)
        batch = drawn(task, model, n=200)
        cut = ~batch.responses.finished
        seen = set()
        for row in cut.nonzero()[:, 0].tolist():
            turns, text = task.episodes[row].turns, batch.texts[row]
            assert "".join(turns) == "".join(c for c, own in zip(text, batch.responses.mask[row], strict=True) if own)
            assert "" not in turns
            seen.add(text[-1] if text[-1] in "+-?" else "1")
        assert {"?", "1"} <= seen                                         # a turn without an answer, and part of a turn


# Catches: a mechanism for tools with other masks or other samples than that for episodes.
def test_tool_and_episode_without_state_give_the_same_responses(model):
    class Calling(Copy):
        def tool(self, text):
            return "aa" if text.endswith("b") else None

    class Asking(Copy):
        end_of_turn = "b"

        def open(self, problem):
            class Echo(Episode):
                def act(self, text):
                    return 0.0, False

                def observe(self):
                    return "aa"
            return Echo()

    start = fresh(LanguageConfig(layers=1, width=16, heads=2), Copy())
    first, second = (drawn(kind(length=8), start) for kind in (Calling, Asking))
    assert first.texts == second.texts and any("baa" in text for text in first.texts)
    for name in ("ids", "mask", "lengths", "finished", "logp"):
        torch.testing.assert_close(getattr(first.responses, name), getattr(second.responses, name), rtol=0, atol=0)


# Catches: a gradient of the environment's text, or of an end token that it wrote; a missing gradient of the policy's
# text.
def test_text_of_the_environment_has_no_gradient(model, monkeypatch):
    batch, leaves = drawn(Guess(), model), []

    def leaf(*args, **kwargs):
        logp, entropy = score(*args, **kwargs)
        leaves.append(logp.detach().requires_grad_())
        return leaves[-1], entropy.detach()

    def loss(logp, part):
        return torch.where(part.mask > 0, logp, 0.0).sum(), {}

    monkeypatch.setattr(learn, "score", leaf)
    rows = torch.arange(len(batch.texts))
    learn.backward(model.model, LanguageConfig(), batch, rows, loss)
    theirs = (torch.arange(10) < batch.responses.lengths[:, None]) & (batch.responses.mask == 0)
    assert theirs.sum() > 50 and not leaves[0].grad[theirs].any()
    assert torch.equal(leaves[0].grad != 0, batch.responses.mask > 0)


# Catches: a method that does not run on such a task; episodes that stay open; masks that differ from `replay`.
@pytest.mark.long("grpo")
@pytest.mark.parametrize("method", ["grpo", "ppo", "reinforce_pp", "best_of_n"])
def test_methods_train_on_a_task_with_turns(method, folder, tmp_path, monkeypatch):
    task, backward, seen = Guess(), Run.backward, []

    def spy(run, batch, rows, *args, **kwargs):
        seen.append((batch, rows))
        return backward(run, batch, rows, *args, **kwargs)

    monkeypatch.setattr(Run, "backward", spy)
    keep = {"keep": -1.0} if method == "best_of_n" else {}
    result = getattr(llm, method)(task, prompts=8, samples=4, model=folder, log_dir=str(tmp_path), **TINY, **keep)
    assert result.status == "finished" and len(result.progress["reward"]) == 3
    assert len(task.episodes) > 3 * 32 and everything_is_closed(task)
    texts = [(text, mask, problem) for batch, _ in seen if batch.rewards.std() > 0
             for text, mask, problem in zip(batch.texts, batch.responses.mask.tolist(),
                                            [p for p in batch.problems for _ in range(4)], strict=True)]
    assert len(texts) >= 64 and any("?+" in text for text, _, _ in texts)
    for text, mask, problem in texts:
        own = played(task, text, problem)[0]
        assert [bool(x) for x in mask[:len(text)]] == own
    assert all(len(turn) <= 3 for turn in result.policy.respond("2-7:", 8, max_tokens=3))


# Catches: a response that continues after its turn, although there is no answer to it.
def test_response_without_an_environment_is_one_turn(model):
    policy = LanguagePolicy(model.model, model.tokenizer, 10, **speech(Guess()))
    turns = policy.respond("2-7:", 64)
    assert any(turn.endswith("?") for turn in turns) and all("?" not in turn[:-1] for turn in turns)
    policy = LanguagePolicy(model.model, model.tokenizer, 10, tool=None, end_of_turn="")             # of one character
    assert all(len(turn) <= 1 for turn in policy.respond("2-7:", 64))


# Catches: an episode that stays open after an error, after Ctrl-C, or if the close of another one fails.
@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["open", "act", "observe", "close"])
def test_every_episode_is_closed_after_an_error_or_ctrl_c(where, error, model):
    task, count = Guess(), [0]

    class Failing(Guessing):
        pass

    def fail(*args):
        count[0] += 1
        if count[0] == 5:
            raise error
        return method(*args)

    if where == "open":
        method = task.open
        task.open = fail
    else:
        method = getattr(Guessing, where)
        setattr(Failing, where, fail)
        task.open = lambda problem: task.episodes.append(Failing(task, problem.data)) or task.episodes[-1]
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else UserError
    with pytest.raises(expected) as caught:
        drawn(task, model, n=8)
    missing = [e for e in task.episodes if e.closed != 1]
    assert len(missing) == (where == "close") and len(task.episodes) == (4 if where == "open" else 16)
    if expected is UserError:
        assert f"`{where}` of the task guess failed" in str(caught.value)
        assert "ZeroDivisionError: mine (" in str(caught.value)


# Catches: a wrong result that causes an error of torch with another message.
@pytest.mark.parametrize(("where", "result", "words"), [
    ("act", 1.0, r"`act` of the task guess must return \(reward, done\), but returned 1.0 for the turn "),
    ("act", (float("nan"), False), "`act` of the task guess must return a finite number, but returned nan for"),
    ("act", ("1", False), "must return a finite number, but returned '1'"),
    ("observe", None, "`observe` of the task guess must return a text, but returned None")])
def test_wrong_results_of_an_episode_are_named(where, result, words, model, monkeypatch):
    monkeypatch.setattr(Guessing, where, lambda *args: result)
    with pytest.raises(UserError, match=words):
        drawn(Guess(), model)


# Catches: imitation of the environment's text; imitation of an end token that the episode wrote.
def test_only_the_policys_part_of_a_demonstration_is_imitated(model):
    task, problem = Guess(), Problem("0-7:", data=5)
    text = task.demonstration(problem, None)
    assert text == "3?+5?"
    assert pieces(task, text, problem) == ([(True, "3?"), (False, "+"), (True, "5?")], True)
    batch = demonstrated(task, model.tokenizer, model.model, [problem, Problem("0-7:", data=3)], [text, "2?+"], 10)
    assert batch.responses.mask.tolist() == [[1, 1, 0, 1, 1, 0], [1, 1, 0, 1, 0, 0]]
    assert batch.responses.finished.all() and everything_is_closed(task)
    assert played(task, text, problem)[1] == task.reward(problem, text) == 0.75
    for wrong in ("3?-5?", "3?+5?+", "5?5?"):
        with pytest.raises(ValueError, match="after '.\\?"):
            played(task, wrong, problem)
    assert everything_is_closed(task)


# Catches: a tool that is called after its own output, in samples or in demonstrations; imitation of the tool's output;
# imitation of an end token where the tool continues.
def test_tool_is_not_called_after_its_own_output():
    class Calling(Copy):
        def tool(self, text):
            return "ab" if text.endswith("b") else None

    task = Calling(length=8)
    start = fresh(LanguageConfig(layers=1, width=16, heads=2), Copy())
    batch = drawn(task, start)
    masks, again = batch.responses.mask.bool(), 0
    for text, n, mask in zip(batch.texts, batch.responses.lengths.tolist(), masks.tolist(), strict=True):
        own = called(task, text)[0]
        assert own == mask[:len(text)] and all(mask[len(text):n]) and not any(mask[n:])
        again += "bab" in text
    assert again
    problem = Problem("c>")
    shown = demonstrated(task, start.tokenizer, start.model, [problem] * 3, ["cbabc", "cba", "cb"], 10).responses
    assert shown.mask.tolist() == [[1, 1, 0, 0, 1, 1], [1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert shown.lengths.tolist() == [6, 4, 3]


# Catches: the rewards of the turns in place of the user's reward; a missing environment with the user's reward.
def test_reward_of_the_user_scores_the_whole_response(model):
    task = Guess()
    batch = drawn(make_task(task, lambda prompt, response: len(response)), model, n=8)
    assert batch.rewards.tolist() == [len(text) for text in batch.texts]
    assert any("+" in text for text in batch.texts) and everything_is_closed(task)


# Catches: an attribute that only classes derived from the library's have.
def test_environment_can_be_of_any_class(model):
    class Plain:
        name, alphabet, max_tokens, end_of_turn = "plain", Guess.alphabet, 10, "?"
        problems, demonstration = Guess().problems, Guess().demonstration

        def open(self, problem):
            class Once:
                def act(self, text):
                    return 0.5, True

                def observe(self):
                    raise AssertionError

                def close(self):
                    closed.append(1)
            return Once()
    closed = []
    batch = drawn(make_task(Plain()), model, n=8)
    assert set(batch.rewards.tolist()) <= {0.0, 0.5} and 0.5 in batch.rewards.tolist() and len(closed) == 16


# Training, evaluation, `watch` and `load`. Catches: a command that does not open the episodes of a task.
def test_commands_open_episodes(folder, tmp_path, capsys):
    (tmp_path / "turns.py").write_text("from tests.llm.test_turns import Guess\n")
    task = f"{tmp_path / 'turns.py'}:Guess:guesses=3,max_tokens=10"
    result = llm.grpo(task, prompts=8, samples=4, model=folder, log_dir=str(tmp_path), **TINY)
    found = json.loads(evaluate(result.directory, problems=20, as_json=True))
    assert found["task"] == "guess" and 0 < found["held_out_accuracy"] < 1
    watch(result.directory, samples=4)
    assert "reward" in capsys.readouterr().out
    assert all("?" not in turn[:-1] for turn in load(result.directory).respond("2-7:", 8))
