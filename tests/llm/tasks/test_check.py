"""Faults of a user's task are reported in one sentence, when the task is created or at its first problem."""
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import llm
from llm import watch
from llm.config import LanguageConfig
from llm.policy.generate import Sampler
from llm.policy.load import fresh
from llm.rollout import demonstrated, sample
from llm.tasks import Problem, Task, make_task
from llm.tasks.check import demonstration_of, problems_of, rewards_of
from llm.tasks.episodes import Episode
from llm.tasks.held_out import Overlap, distinct
from spinup.errors import UserError


class Echo(Episode):
    """Answers each turn with b and never ends."""

    def act(self, text):
        return 0.0, False

    def observe(self):
        return "b"


ONE = Echo()


class Mine(Task):
    """The responses to `a>` have turns that end with ?."""

    name, alphabet, max_tokens, end_of_turn = "mine", "ab?>", 6, "?"

    def problems(self, n, rng, held_out=False):
        return [Problem("b>" if held_out else "a>")] * n

    def demonstration(self, problem, rng):
        return "a?b"

    def open(self, problem):
        return Echo()


def mine(**changed):
    """A task with some attributes changed."""
    task = Mine()
    vars(task).update(changed)
    return task


def drawn(task):
    """Responses to 40 problems, from a model that was created for the unchanged task."""
    start = fresh(LanguageConfig(layers=1, width=16, heads=2), Mine())
    with torch.no_grad():
        start.model.embed.weight.mul_(0.1)
    return sample(Sampler(start.model, start.tokenizer.end), task, start.tokenizer, [Problem("a>")] * 40,
                  max_tokens=6, generator=torch.Generator().manual_seed(0))


# Catches: a limit of one token that is read as no limit, for a subclass of `Task` or for another class.
def test_limit_of_one_token_is_accepted():
    class Short(Mine):
        max_tokens = 1

    class Plain:
        name, alphabet, max_tokens, open = "plain", "ab", 1, None
        problems = demonstration = reward = lambda *args: None
    assert make_task(Short()).max_tokens == make_task(Plain()).max_tokens == 1


# Catches: a folder outside of the log folder; a fault of the task that causes a traceback only hours later.
@pytest.mark.parametrize(("changed", "words"), [
    *(({"name": name}, "a task of type Mine has the name .*; give it a name that a folder can have, such as guess")
      for name in ("a/../../esc/b", "..", "", "a\nb", "x" * 300, None, "/etc")),
    *(({"max_tokens": n}, f"has the max_tokens {n}; give it a whole number of at least 1") for n in (0, -1, 2.5, None)),
    ({"alphabet": ""}, "has the alphabet ''; give it a text of all its characters, or None"),
    ({"alphabet": ["a"]}, "has the alphabet .*; give it a text of all its characters"),
    ({"open": 5}, r"has the open 5; give it a method open\(problem\)"),
    *(({"end_of_turn": end}, "has the end_of_turn .*; give it characters of its alphabet, so that a turn can end")
      for end in (None, "!", "?!")),
    ({"end_of_turn": "", "alphabet": None}, "has the end_of_turn ''; give it a text, such as a new line"),
    *(({"measure": name}, "has the measure .*; give it held_out_accuracy, held_out_reward, or")
      for name in ("reward", "held_out_gold", 3))])
def test_invalid_attributes_of_a_task_are_refused(changed, words):
    with pytest.raises(UserError, match=words):
        make_task(mine(**changed))


# Catches: a check of attributes that the task does not use; the refusal of a name that a folder can have.
def test_valid_attributes_of_a_task_are_accepted():
    task = mine(name="Mine 2.0-b", max_tokens=np.int64(4), end_of_turn="?>")
    assert make_task(task) is task
    make_task(mine(open=None, end_of_turn="\n", reward=lambda problem, response: 1.0))
    make_task(mine(alphabet=None, end_of_turn="\n\n"))
    make_task(mine(end_of_turn=""))                                       # each character is a turn


# Catches: rewards of the wrong number or type, which fail later with a traceback, or with advice to lower --lr.
@pytest.mark.parametrize(("given", "words"), [
    ([0.0], "`rewards` of the task mine must return a list or an array of 2 rewards, .*, but returned 1"),
    (None, "2 rewards, one for each response, but returned None"), (np.array(1.0), "but returned array"),
    ((x for x in [0.0, 1.0]), "2 rewards, one for each response, but returned <generator"),
    ([0.0, math.nan], "must return a finite number, but returned nan for the response 'b'"),
    (["x", 0.0], "must return a finite number, but returned 'x' for the response 'a'"),
    (np.zeros((2, 2)), "must return a finite number, but returned array")])
def test_rewards_of_a_task_are_checked(given, words):
    with pytest.raises(UserError, match=words):
        rewards_of(mine(rewards=lambda problems, responses: given), [Problem("a>")] * 2, ["a", "b"])
    assert rewards_of(mine(rewards=lambda *_: np.array([1, 0])), [Problem("a>")] * 2, ["a", "b"]) == [1.0, 0.0]


# Catches: a warning about equal prompts with other data, about our own tasks, or about problems late in a run; one kind
# of problems that stands for the other.
def test_training_on_held_out_problems_is_found():
    def said(task, known, *drawn):
        found, overlap = [], Overlap(task, known)
        for problems in drawn:
            assert overlap.check(problems, found.append) == problems
        return found
    one, two, three = ([Problem(f"{i}>", data=np.full(2000, i)) for i in range(*ends)] for ends in (
        (0, 20), (10, 40), (40, 400)))
    own = mine()
    (sentence,) = said(own, one, two)
    assert sentence.startswith("10 of 30 training problems are held-out problems too") and "held_out=True" in sentence
    assert said(own, one, three) == said(own, one, three, two) == said(make_task("reverse"), one, two) == []
    assert len(said(make_task("hints:reverse"), one, two)) == 0 and len(said(own, one, one, two)) == 2
    mixed = make_task("mix:reverse+sort")
    assert said(mixed, one, two) == []
    mixed.mixed[:] = [own, own]
    assert len(said(mixed, one, two)) == 1
    one, other = (Problem("a>", data=np.r_[np.zeros(1000), i, np.zeros(1000)]) for i in (1, 2))
    assert len(distinct([one, other, one])) == 2


# Catches: a class that is accepted as a task.
def test_class_in_place_of_an_object_is_refused():
    with pytest.raises(UserError, match=r"a task must be an object, not the class Mine; write Mine\(\)"):
        llm.grpo(Mine)


# Catches: wrong problems that fail later as attributes or shapes, or do not fail at all.
@pytest.mark.parametrize(("given", "words"), [
    (["a>", "b>"], r"`problems` of the task mine must return objects such as llm.tasks.Problem.*, but returned 'a>'"),
    ([Problem(5)] * 2, r"where prompt is a text, but returned Problem\(prompt=5"),
    ([], "`problems` of the task mine must return a list of 2 problems, but returned 0"),
    ([Problem("a>")], "must return a list of 2 problems, but returned 1"),
    (None, "must return a list of 2 problems, but returned None")])
def test_invalid_problems_are_refused(given, words):
    with pytest.raises(UserError, match=words):
        problems_of(mine(problems=lambda *args: given), 2, np.random.default_rng(0))
    assert problems_of(Mine(), 2, np.random.default_rng(0), True) == [Problem("b>")] * 2


# Catches: an unchecked call of a task's `problems` or of its teacher.
@pytest.mark.parametrize(("changed", "words"), [
    ({"problems": lambda n, rng, held_out=False: []}, "`problems` of the task mine must return a list of 8"),
    ({"demonstration": lambda problem, rng: None}, "`demonstration` of the task mine must return a text"),
    ({"demonstration": lambda problem, rng: "a?a"}, "the episode of the task mine writes 'b', but the text has 'a'")])
def test_training_reports_faults_of_a_task(changed, words, tmp_path):
    with pytest.raises(UserError, match=words):
        llm.sft(mine(**changed), layers=1, width=16, heads=2, held_out=2, total_steps=1, quiet=True, threads=1,
                tensorboard=False, log_dir=str(tmp_path))


# Catches: an error in the user's code that loses its traceback, or does not name its function.
@pytest.mark.parametrize("method", ["problems", "demonstration"])
def test_error_in_a_task_names_its_function(method, tmp_path):
    def fails(*args, **kwargs):
        raise ZeroDivisionError("mine")
    with pytest.raises(ZeroDivisionError, match="^mine") as caught:
        llm.sft(mine(**{method: fails}), quiet=True, log_dir=str(tmp_path), held_out=2, threads=1, layers=1, width=16)
    assert caught.value.__notes__ == [f"`{method}` of the task mine raised this error"]


# Catches: a NumPy number, which config.json cannot hold.
def test_numpy_limit_becomes_a_python_int():
    assert type(LanguageConfig().response_tokens(mine(max_tokens=np.int64(4)))) is int


# Catches: the imitation of a demonstration that is not a text.
def test_demonstration_that_is_not_a_text_is_refused():
    with pytest.raises(UserError, match="`demonstration` of the task mine must return a text, but returned 5 for the"):
        demonstration_of(mine(demonstration=lambda *args: 5), Problem("a>"), None)


# Catches: None in place of an episode; one episode for two responses, which mixes their turns; a text or an array as
# `done`.
@pytest.mark.parametrize(("begin", "words"), [
    (lambda problem: None, "`open` of the task mine must return an episode, but returned None, which has no method"),
    (lambda problem: ONE, "`open` of the task mine must return a new episode for each response"),
    *((lambda problem, done=done: acting(done), f"`act` of the task mine must return .*but returned {shown} for done")
      for done, shown in (("no", "'no'"), (None, "None"), (1, "1"), (np.array([False]), r"array\(\[False\]\)"))),
    (lambda problem: observing("é"), "`observe` of the task mine returned 'é', where 'é' is not in the alphabet 'ab")])
def test_invalid_episodes_are_refused(begin, words):
    with pytest.raises(UserError, match=words):
        drawn(mine(open=begin))


def acting(done):
    episode = Echo()
    episode.act = lambda text: (0.0, done)
    return episode


def observing(text):
    episode = Echo()
    episode.observe = lambda: text
    return episode


# Catches: the refusal of a NumPy bool.
def test_numpy_bool_is_accepted_as_done():
    assert drawn(mine(open=lambda problem: acting(np.True_))).rewards.tolist() == [0.0] * 40


# Catches: an unknown character of the environment that is reported as a fault of the teacher.
def test_unknown_character_in_an_observation_names_observe():
    start = fresh(LanguageConfig(layers=1, width=16, heads=2), Mine())
    with pytest.raises(UserError, match="`observe` of the task mine returned 'é', where 'é' is not in the alphabet"):
        demonstrated(mine(open=lambda problem: observing("é")), start.tokenizer, start.model, [Problem("a>")], ["a?éa"],
                     6)


# Catches: `watch` that fails with a traceback for problems without an answer, or that shows no answer.
@pytest.mark.parametrize(("problem", "said"), [(SimpleNamespace(prompt="a>"), "a>\n"),
                                               (Problem("a>", "b"), "a>   answer 'b'\n")])
def test_watch_shows_the_answer_if_there_is_one(problem, said, monkeypatch, tmp_path, capsys):
    task = SimpleNamespace(gold=None, show=None)
    for name, result in {"open_run": (tmp_path, {}, task), "writer": None, "held_out": [problem],
                         "answers": (["x", "y"], torch.tensor([[1.0, 0.0]]))}.items():
        monkeypatch.setattr(watch, name, lambda *_, found=result: found)
    watch.watch(tmp_path, samples=2)
    assert capsys.readouterr().out.startswith(said)
