"""`make_task`: tasks from names, classes, files, lists and objects."""
import importlib
import json
import pkgutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import llm
from llm.config import LanguageConfig
from llm.policy.scalar import RewardModel, ScalarModel
from llm.policy.shape import Shape
from llm.policy.tokenizer import CharTokenizer
from llm.policy.transformer import Transformer
from llm.start import identity
from llm.tasks import Problem, make_task, names
from llm.tasks.addition import Addition
from llm.tasks.calculator import Calculator
from llm.tasks.make import is_file, is_own, speaking_task
from llm.tasks.names import fingerprints, task_names
from llm.tasks.pairs import PairTask
from llm.tasks.strings import Copy, Reverse
from llm.tasks.task import Task, longest_prompt
from llm.tasks.taste import Taste
from llm.tasks.user import UserTask
from spinup.errors import UserError

PROMPTS = ["one", "two", "three"]


# Catches: a class that is not found; a class under another name than its own.
def test_each_task_name_is_that_of_its_class():
    assert {"copy", "reverse", "sort", "taste", "addition", "calculator", "code", "gsm8k"} <= {*task_names()}
    for name, path in task_names().items():
        cls = pkgutil.resolve_name(path)
        assert issubclass(cls, Task) and cls.name == name


# Catches: a second list of tasks, to which a new file must be added.
def test_new_file_is_a_new_task(tmp_path, monkeypatch):
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "shout.py").write_text('class Shout:\n    name = "shout"\n\nclass Helper:\n    name: str\n')
    monkeypatch.setattr(names, "__file__", str(folder / "names.py"))
    assert task_names.__wrapped__() == {"shout": "llm.tasks.shout:Shout"}


# Catches: an import of a task, torch or numpy to list the tasks or the pictures.
def test_names_are_listed_without_torch():
    code = ("import sys; from llm.tasks.names import task_names; from llm.bench.pictures.names import picture_names;"
            "print(len(task_names()) > 8, len(picture_names()) > 3, {'torch', 'numpy'} & {*sys.modules})")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True True set()\n", done.stderr


OWN_TASK = """
from dataclasses import dataclass
from llm.tasks import Problem, Task

class Shout(Task):
    name, alphabet = "shout", "abAB>"

    def __init__(self, times: int = 1, loud=True, word="a"):
        self.times, self.loud, self.word, self.max_tokens = times, loud, word, 3

    def problems(self, n, rng, held_out=False):
        return [Problem("b>" if held_out else "a>")] * n

    def demonstration(self, problem, rng):
        return problem.prompt[0].upper() * self.times

    def reward(self, problem, response):
        return float(response == self.demonstration(problem, None))

@dataclass
class Exact(Shout):
    times: int
    max_tokens = 2

NUMBER = 5
"""


@pytest.fixture
def own_tasks(tmp_path, monkeypatch):
    """A module and a package with tasks of the user, which can be imported; the path of the module's file."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_tasks.py").write_text(OWN_TASK)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("")
    (tmp_path / "my_package" / "tasks.py").write_text(OWN_TASK)
    yield tmp_path / "my_tasks.py"
    for name in ("my_tasks", "my_package", "my_package.tasks"):
        sys.modules.pop(name, None)


# Catches: a class in a module that is read as a name or a file; options that stay texts, with a dataclass, annotations
# or defaults; a path with a drive, or a JSONL file in the options, that is split.
def test_task_class_of_the_user_is_created_with_its_options(own_tasks):
    for place in ("my_package.tasks", "my_tasks", str(own_tasks)):
        assert make_task(f"{place}:Shout").demonstration(Problem("a>"), None) == "A"
        task = make_task(f"{place}:Shout:times=3,loud=no,word=x.jsonl")
        assert (task.times, task.loud, task.word, task.name) == (3, False, "x.jsonl", "shout")
        assert make_task(f"{place}:Exact:times=2").times == 2
    for text in ("my_tasks:Shout", "C:\\mine\\tasks.py:Shout", "a.py:T:file=x.jsonl", "pkg.mod:T:a=1,b=C:\\x.jsonl"):
        assert is_own(text) and not is_file(text)
    for text in ("reverse:length", "C:\\mine.jsonl", "my.data/mine.jsonl", "gsm8k:file=x.jsonl", "reverse"):
        assert not is_own(text)
    assert is_file("C:\\mine.jsonl") and is_file("my.data/mine.jsonl") and not is_file("gsm8k:file=x.jsonl")


# Catches: a traceback; a message without advice on what to type.
@pytest.mark.parametrize(("text", "words"), [
    ("my_package.task:Shout", "--task my_package.task:Shout: there is no module 'my_package.task'; install"),
    ("no_package.tasks:Shout", "there is no module 'no_package'; install its package, or give its file"),
    ("my_package.tasks:Shot", "there is no 'Shot' in my_package.tasks. Did you mean 'Shout'?"),
    ("my_tasks:NUMBER", "NUMBER is not a function; write the name of a class"),
    ("gone/tasks.py:Shout", "--task gone/tasks.py:Shout: there is no file gone/tasks.py"),
    ("revers:Shout", "there is no task 'revers'. Did you mean 'reverse'?"),
    ("my_tasks:Shout:tims=3", "the task shout has no option 'tims'. Did you mean 'times'?"),
    ("my_tasks:Shout:times=x", "in the task shout, times must be a whole number"),
    ("my_tasks:Shout:times", "write options as name=value"),
    ("my_tasks:Exact", "missing a required argument: 'times'; write its options as my_tasks:Exact:name=value")])
def test_mistakes_in_a_task_class_of_the_user_are_named(text, words, own_tasks):
    with pytest.raises(UserError, match=words):
        make_task(text)


# Catches: an initial policy that was trained with another version of the code.
def test_identity_of_a_task_of_the_user_depends_on_its_code(own_tasks):
    def found():
        sys.modules.pop("my_tasks", None)
        cfg = LanguageConfig(task="my_tasks:Shout")
        return identity(cfg, make_task(cfg.task))
    before = found()
    assert found() == before
    own_tasks.write_text(OWN_TASK.replace(".upper()", ".upper()[::-1] + 'B'"))
    importlib.invalidate_caches()
    assert found() != before


# Catches: options that are not read, or stay texts.
def test_options_are_read():
    assert make_task("reverse") == Reverse(6, 10) and make_task("reverse:") == Reverse(6, 10)
    assert make_task("reverse:length=8,symbols=12") == Reverse(8, 12)
    assert make_task("copy: length = 8") == Copy(8)
    assert make_task("addition:digits=2,teacher=perfect,drop=1") == Addition(2, "perfect", 1.0)
    assert type(make_task("sort:symbols=12")) is not Copy


# Catches: a file of prompts that is read as a task name, or the reverse; a task object that is created again.
def test_files_lists_and_task_objects_are_accepted(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"prompt": p, "answer": p}) + "\n" for p in PROMPTS))
    for given in (str(path), path):
        assert isinstance(make_task(given), UserTask) and make_task(given).name == "mine"
    assert isinstance(make_task(PROMPTS, lambda p, r: 0.0), UserTask)
    task = Calculator()
    assert make_task(task) is task
    questions = tmp_path / "school.jsonl"
    questions.write_text("".join(json.dumps({"question": p, "answer": "#### 1"}) + "\n" for p in PROMPTS))
    assert make_task(f"gsm8k:max_tokens=99,file={questions}").max_tokens == 99
    with pytest.raises(UserError, match="cannot be read"):
        make_task("C:\\mine.jsonl")


# Catches: a verifier that stays although the user gives a reward; other parts of the task that are lost.
def test_reward_of_the_user_replaces_the_verifier(tmp_path):
    (tmp_path / "mine.py").write_text("def score(prompt, response):\n    return len(prompt) + len(response) / 10\n")
    plain = Calculator()
    for task in (make_task("calculator", lambda p, r: len(p) + len(r) / 10), make_task("calculator",
                 f"{tmp_path / 'mine.py'}:score"), make_task(plain, lambda p, r: len(p) + len(r) / 10)):
        assert task.reward(Problem("1*2+3:", "5"), "5") == 6.1
        assert (task.name, task.alphabet, task.max_tokens) == (plain.name, plain.alphabet, plain.max_tokens)
        problems = task.problems(5, np.random.default_rng(0), held_out=True)
        assert problems == plain.problems(5, np.random.default_rng(0), held_out=True)
        assert task.tool("[1+1]") == "=2;" and "=" in task.demonstration(problems[0], np.random.default_rng(0))
    with pytest.raises(UserError, match="failed for the prompt .*ZeroDivisionError"):
        make_task("copy", lambda p, r: 1 / 0).reward(Problem("a"), "b")


# Catches: a misspelling without the nearest name; a wrong value that is found only when it is used.
@pytest.mark.parametrize(("text", "words"), [
    ("revers", "there is no task 'revers'. Did you mean 'reverse'?"), ("xyz", "A task is addition, .*JSONL.*:Class"),
    ("reverse:lenght=8", "the task reverse has no option 'lenght'. Did you mean 'length'?"),
    ("reverse:name=x", "has no option 'name'"), ("reverse:8", "name=value, separated"),
    ("reverse:length=8 symbols=3", "length must be a whole number"), ("reverse:length=0", "length must be from 1 to"),
    ("addition:drop=2", "in the task addition, drop must be from 0 to 1"), ("addition:teacher=flawd", "mean 'flawed'?"),
    ("gsm8k", "gsm8k:file=PATH"), ("gsm8k:max_tokens=0", "in the task gsm8k, max_tokens must be"),
    ("gsm8k:file=no.jsonl", "no.jsonl cannot be read")])
def test_mistakes_in_names_and_options_are_named(text, words):
    with pytest.raises(UserError, match=words):
        make_task(text)


# Catches: an object without a verifier that is found only in training.
def test_object_that_is_not_a_task_is_refused():
    class Half:
        name, alphabet, max_tokens, tool = "half", None, 5, None
    with pytest.raises(UserError, match="type Half has no problems"):
        make_task(Half())

    class Unfinished(Task):
        name, alphabet, max_tokens = "unfinished", "ab", 5
    with pytest.raises(UserError, match="type Unfinished has no problems"):
        make_task(Unfinished())
    with pytest.raises(UserError, match="must be a function"):
        make_task("copy", 5)


# Catches: a limit of 1 that is read as a missing limit.
def test_limit_of_one_token_is_accepted():
    class One(Task):
        name, alphabet, max_tokens = "one", "ab", 1

        def problems(self, n, rng, held_out=False):
            return [Problem("a")] * n

        def reward(self, problem, response):
            return float(response == "b")

        def demonstration(self, problem, rng):
            return "b"
    assert make_task(One()).max_tokens == 1


PAIRS = [{"prompt": f"{p}>", "chosen": p, "rejected": p[::-1]} for p in PROMPTS]


# Catches: pairs that are read as prompts without an answer; prompts that are read as pairs without a text; a decision
# that depends on later lines.
@pytest.mark.parametrize(("rows", "kind"), [
    (PAIRS, PairTask), ([{"prompt": "a", "rejected": "b"}, *PAIRS], PairTask), ([{"chosen": "b"}, *PAIRS], PairTask),
    ([{"prompt": p, "answer": p} for p in PROMPTS], UserTask),
    ([{"prompt": "a", "answer": "b"}, *({"answer": "x", **pair} for pair in PAIRS)], UserTask)])
def test_first_row_decides_between_pairs_and_prompts(rows, kind, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\ufeff\n \n" + "".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    for given in (str(path), path, rows):
        assert type(make_task(given)) is kind


def reward_model_of(alphabet: str) -> RewardModel:
    """An untrained reward model."""
    torch.manual_seed(0)
    tokenizer = CharTokenizer(alphabet)
    return RewardModel(ScalarModel(Transformer(Shape(tokenizer.vocab_size, 64, 1, 16, 2, 2, 8, 32)), 0.2), tokenizer)


# Catches: a measure, pairs, or reports of left-out pairs that are lost with a reward of the user; a measure that only
# one method has.
def test_measure_and_pairs_stay_with_another_reward():
    rows = [*PAIRS, {"prompt": "four>"}]
    plain, taste = PairTask(rows), Taste()
    judge = reward_model_of(plain.alphabet)
    for reward in (None, lambda p, r: len(r), judge):
        for given in (rows, plain):
            task = make_task(given, reward)
            assert task.pairs(True) == plain.pairs(True) and task.pairs() == plain.pairs()
            assert task.left_out == plain.left_out == ['left out: 1 pair (pair 4), where "chosen" is missing']
            assert task.measure == ("held_out_reward" if reward is judge else "held_out_accuracy")
        assert make_task(taste, reward).measure == "held_out_reward"
    copied = make_task("copy", lambda p, r: 0.0)
    assert (copied.measure, copied.pairs, copied.gold, copied.judge) == ("held_out_accuracy", None, None, None)


# Catches: a response that is judged with another prompt; a lost verifier, which gives the true reward; exact agreement
# with one of many answers, or the output of the reward model, as the true reward.
def test_reward_model_judges_and_the_verifier_is_the_true_reward():
    plain = make_task("copy")
    judge = reward_model_of(plain.alphabet)
    task = make_task(plain, judge)
    problems = task.problems(3, np.random.default_rng(0))
    responses = [problems[0].answer, "a", "bcd"]
    assert task.rewards(problems, responses) == pytest.approx(
        [judge(p.prompt, r) for p, r in zip(problems, responses, strict=True)], abs=1e-6)
    assert [task.gold(p, r) for p, r in zip(problems, responses, strict=True)] == [1.0, 0.0, 0.0]
    assert task.measure == "held_out_reward" and task.name == "copy"
    answered = [{"prompt": p, "answer": "a"} for p in PROMPTS]
    assert make_task(UserTask(answered), judge).gold(Problem("one", "a"), "a") == 1.0
    for nobody_knows in (PROMPTS, PAIRS, PairTask(PAIRS)):
        task = make_task(nobody_knows, reward_model_of("".join(sorted(set("".join(PROMPTS)) | {">"}))))
        assert task.gold is None
        assert task.rewards([Problem("one")], ["two"]) == [task.judge("one", "two")]


# Catches: the folder of a reward model that is read as file.py:function, or that requires answers.
def test_folder_of_a_reward_model_judges_prompts_of_the_user(tmp_path, beginner):
    pairs = [{"prompt": p, "chosen": "a", "rejected": "b"} for p in ("ab>", "ba>", "aa>")]
    folder = llm.reward_model(pairs, model=beginner, total_steps=1, held_out=4, calibration=8, log_dir=str(tmp_path),
                              quiet=True, tensorboard=False, threads=1).directory
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in ("ab>", "ba>", "aa>")))
    for given in (str(tmp_path / "mine.jsonl"), ["ab>", "ba>", "aa>"]):
        task = make_task(given, str(folder))
        assert task.measure == "held_out_reward" and task.name in ("mine", "user")
        assert task.rewards([Problem("ab>")], ["ba"]) == [pytest.approx(llm.load(folder)("ab>", "ba"), abs=1e-6)]
    with pytest.raises(UserError, match="is a run of llm sft, not a reward model"):
        make_task(["ab>", "ba>"], beginner)


# Catches: a task whose file is opened only to find that the task has no tool.
def test_tool_is_found_without_the_file_of_a_task():
    assert speaking_task("calculator:digits=1").tool("[1*2+3]") == "=5;"
    for task in "reverse", "gsm8k:file=gone.jsonl", "code:file=gone.jsonl", "prompts.jsonl", {"callable": "mine"}:
        assert getattr(speaking_task(task), "tool", None) is None


# Catches: a task with another reward that lacks the list of prompts, so that only eight prompts are measured.
def test_longest_prompt_is_found_with_another_reward_too():
    prompts = [*(f"{i:02}>" for i in range(200)), "0" * 40 + ">"]
    judge = reward_model_of("0123456789>")
    for reward in (None, lambda p, r: 0.0, judge):
        task = make_task([{"prompt": p, "answer": "0"} for p in prompts], reward)
        assert longest_prompt(task, judge.tokenizer) == 41
    plain = UserTask([{"prompt": p, "answer": "0"} for p in prompts])
    for reward in (lambda p, r: 0.0, judge):
        assert longest_prompt(make_task(plain, reward), judge.tokenizer) == 41


class Plain:
    """The minimum that a task of the user must have."""

    name, alphabet, max_tokens = "plain", "ab", 2

    def problems(self, n, rng, held_out=False):
        return [Problem("b" if held_out else "a")] * n

    def demonstration(self, problem, rng):
        return problem.prompt

    def reward(self, problem, response):
        return 2 * (response == problem.prompt)


# Catches: a required base class; a missing default; an attribute of the class in place of the object's.
def test_object_of_the_right_form_is_a_task():
    mine = Plain()
    mine.max_tokens = 7
    task = make_task(mine)
    assert (task.name, task.alphabet, task.max_tokens, task.tool, task.pairs) == ("plain", "ab", 7, None, None)
    assert task.rewards([Problem("a"), Problem("b")], ["a", "a"]) == [2.0, 0.0]
    assert task.problems(2, np.random.default_rng(0), True) == [Problem("b")] * 2
    judged = make_task(mine, lambda prompt, response: len(prompt))
    assert judged.rewards([Problem("abc")], ["a"]) == [3.0] and judged.demonstration(Problem("a"), None) == "a"


# Catches: `rewards`, for all responses at once, that stays although the user gives a reward.
def test_reward_of_the_user_replaces_reward_and_rewards():
    class Many(Plain):
        def rewards(self, problems, responses):
            return [9.0] * len(problems)
    assert make_task(Many()).rewards([Problem("a")], ["a"]) == [9.0]
    assert make_task(Many(), lambda prompt, response: 0.5).rewards([Problem("a")], ["a"]) == [0.5]


# Catches: a traceback for a module of the user that cannot be imported.
@pytest.mark.parametrize("text", ["import not_there_at_all", "1 / 0", "raise SystemExit"])
def test_module_that_cannot_be_imported_is_named(text, tmp_path, monkeypatch):
    (tmp_path / "broken_task.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="--task broken_task:Mine: broken_task cannot be imported"):
        make_task("broken_task:Mine")


# Catches: files that are not found, because of a space, a comma or a wrapper in the text, or because the reward is a
# Python function or the task a list; a file that only has the name of a task or of a ready-made reward.
@pytest.mark.parametrize(("task", "reward", "files"), [
    ("mine.jsonl", "", 1), ("length,coef=0.5:mine.jsonl", "exact", 1), ("reverse", "my dir/r.py:f", 1),
    ("mine.jsonl+2*other.jsonl", "exact,2*r.py:f", 3), ("vote:mine.jsonl", "r.py:f,my dir/r.py:f", 3),
    ("reverse:length=3", "exact", 0), ("mine.jsonl", max, 1), (["a", "b"], "r.py:f", 1), (["a"], [max], 0)])
def test_files_of_a_task_and_its_reward_are_found(task, reward, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my dir").mkdir()
    for name in ("mine.jsonl", "other.jsonl", "r.py", "my dir/r.py", "reverse", "exact"):
        (tmp_path / name).write_text(name)
    assert len(fingerprints(task, reward)) == files
