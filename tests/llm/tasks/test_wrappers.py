"""Wrappers of tasks: formulas compared with a second computation, valid combinations, and unchanged parts of a task."""
import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

import llm
from llm.config import LanguageConfig
from llm.policy.tokenizer import CharTokenizer
from llm.start import check, identity, unwrapped
from llm.tasks import make_task, names
from llm.tasks.addition import Addition
from llm.tasks.names import split_wrapper, wrapper_names
from llm.tasks.task import Problem, Sampled, Task, is_held_out, longest_prompt
from llm.tasks.user import UserTask
from llm.tasks.wrappers.hints import Hints
from llm.tasks.wrappers.language import consistency, script_of
from llm.tasks.wrappers.length import Length, relative
from llm.tasks.wrappers.vote import Vote, votes
from llm.tasks.wrappers.wrapper import Wrapper, groups
from spinup.errors import UserError
from spinup.registry import find
from spinup.runs.presets import configure

EVERY = ["vote:", "length:", "format,pattern=[0-9]+:", "hints:", "hints:length,coef=0.3:format,pattern=[0-9]+:",
         "length,adaptive=yes:vote:"]


def drawn(task: Task, n: int = 1, seed: int = 0) -> list:
    return task.problems(n, np.random.default_rng(seed))


# Catches: a second list of wrappers; a wrapper that is not found; an import of torch to list them.
def test_new_file_is_a_new_wrapper(tmp_path, monkeypatch):
    assert {"vote", "length", "format", "language", "hints"} == {*wrapper_names()}
    code = ("import sys; from llm.tasks.names import wrapper_names; print(len(wrapper_names()) > 4, 'torch' in "
            "sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True False\n"
    (tmp_path / "wrappers").mkdir()
    (tmp_path / "wrappers" / "loud.py").write_text('class Loud:\n    name = "loud"\n')
    monkeypatch.setattr(names, "__file__", str(tmp_path / "names.py"))
    assert wrapper_names.__wrapped__() == {"loud": "llm.tasks.wrappers.loud:Loud"}


# Catches: an option that is lost or stays a text; a task, its options or its file that is split at the wrong colon.
def test_options_and_nesting_are_read(tmp_path):
    task = make_task("length,coef=0.5,wrong=yes:vote:addition:digits=2,drop=0.1")
    assert (type(task), task.coef, task.wrong, task.adaptive) == (Length, 0.5, True, False)
    assert type(task.task) is Vote and task.task.task == Addition(2, "flawed", 0.1)
    assert task.name == "length-vote-addition"
    for text in ("reverse:length=8", "C:\\length:x.jsonl", "gsm8k:file=a.jsonl", "my.length:Cls", "length.py:Cls"):
        assert split_wrapper(text) is None
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "c", "answer": "b"}\n' * 1)
    assert make_task(f"length:{path}").task.name == "mine"


# Catches: a reward of the user that replaces that of the wrapper.
def test_wrapper_shapes_a_reward_of_the_user():
    task = make_task("length,coef=1:addition", lambda prompt, response: 1.0)
    rewards = task.rewards(drawn(task) * 2, ["1", "222"])
    assert rewards == [1.5, 0.5]
    with pytest.raises(UserError, match=r"give the reward to that task, as in Length\(make_task\(TASK, reward\)\)"):
        make_task(task, lambda prompt, response: 1.0)


# Catches: an invalid combination that is accepted; a message without advice on what to type.
@pytest.mark.parametrize(("text", "words"), [
    ("vote:vote:addition", "vote is given twice; write it once"),
    ("length:vote:length:addition", "vote replaces the reward of length; write length:vote:TASK"),
    ("vote:format,pattern=1:addition", "vote replaces the reward of format; write format:vote:TASK"),
    ("vote:hints:addition", "vote uses no answers, and hints show them; leave out one of the two"),
    ("hints:length:vote:addition", "vote uses no answers, and hints show them; leave out one of the two"),
    ("length:hints:addition", "hints changes the prompt and must be the first wrapper; write hints:length:TASK"),
    ("vote:tictactoe", "the task tictactoe has several turns, and vote rewards single responses; leave out vote:"),
    ("vote:sentiment", "vote needs right and wrong answers, and the reward of sentiment is a score"),
    ("hints:sums", "hints need a task with an alphabet and without a tool"),
    ("hints:calculator", "hints need a task with an alphabet and without a tool"),
    ("language:addition", "the alphabet of addition has letters of 0 scripts, .*; leave out language:"),
    ("language:reverse", "has letters of 1 scripts"),
    ("format:addition", "has no form of its own; write format,pattern="),
    ("format,pattern=[:addition", "is not a regular expression .*; correct it"),
    ("length", "length is a wrapper; write the task that it wraps after a colon, as in length:reverse"),
    ("lenght:addition", "there is no task 'lenght'. Did you mean 'length'?"),
    ("length,coeff=1:addition", "the wrapper length has no option 'coeff'. Did you mean 'coef'?"),
    ("length,coef=x:addition", "in the wrapper length, coef must be a number, not 'x'"),
    ("length,coef=-1:addition", "in the wrapper length, coef must be from 0 to 100"),
    ("length,coef:addition", "write options as name=value, separated by commas"),
    ("vote:additon", "there is no task 'additon'. Did you mean 'addition'?")])
def test_invalid_wrappers_are_refused_in_one_sentence(text, words):
    with pytest.raises(UserError, match=words) as error:
        make_task(text)
    assert str(error.value).count(". ") < 2 and "\n" not in str(error.value)


# Catches: a wrapper whose reward or hint reaches held-out problems; a wrapper that changes a demonstration.
@pytest.mark.parametrize("wrapper", EVERY)
def test_held_out_problems_and_demonstrations_are_unchanged(wrapper):
    plain, task = make_task("addition:digits=2"), make_task(f"{wrapper}addition:digits=2")
    asked = plain.problems(8, np.random.default_rng(1), True)
    assert task.problems(8, np.random.default_rng(1), True) == asked
    rows = [p for p in asked for _ in range(4)]
    texts = [p.answer if i % 3 else "12" for i, p in enumerate(rows)]
    before = task.state_dict()
    assert task.rewards(rows, texts) == plain.rewards(rows, texts)
    assert task.state_dict() == before                                    # evaluation changes no state
    problem = drawn(task)[0]
    said = [t.demonstration(p, np.random.default_rng(2)) for t, p in ((task, problem), (plain, drawn(plain)[0]))]
    assert said[0] == said[1] and len({tuple(x.parts) for x in task.rewards([problem] * 2, ["1", "2"])}) == 1


# Catches: two samples of one prompt that count as one group; a group that is split.
def test_groups_are_adjacent_rows_of_one_sampled_problem():
    a, b = Problem("a"), Problem("a")
    assert list(groups([a, a, b, b, b])) == [slice(0, 2), slice(2, 5)] and list(groups([])) == []
    same = make_task("vote:addition")
    same.task.problems = lambda n, rng, held_out=False: [a] * n          # a list with one row, sampled twice
    first, second = same.problems(2, np.random.default_rng(0))
    assert same.rewards([first, first, second], ["1", "1", "2"]) == [1, 1, 1]


def majority(answers: tuple) -> str | None:
    """The most common answer, by counting all pairs; of several, the first; None if each of several occurs once."""
    best, most = None, 0
    for answer in answers:
        n = sum(answer is not None and other == answer for other in answers)
        if n > most:
            best, most = answer, n
    return best if most > 1 or sum(answer is not None for answer in answers) == 1 else None


# Catches: training on other prompts than requested; rewards of held-out problems from votes.
def test_votes_can_train_on_the_held_out_prompts():
    rng = np.random.default_rng(0)
    for on, wanted in ("train", False), ("test", True):
        task = make_task(f"vote,on={on}:modular")
        assert {is_held_out(p.prompt) for p in task.problems(50, rng)} == {wanted}
        tests = task.problems(50, rng, held_out=True)
        assert all(is_held_out(p.prompt) for p in tests)
        assert task.rewards([tests[0]] * 2, ["0", "0"]) == [float(tests[0].answer == "0")] * 2


# Catches: ties that go to the last answer; a missing answer that votes; a majority of a single answer among different
# ones.
def test_votes_equal_a_count_for_all_groups():
    for answers in itertools.product(["1", "2", "3", None], repeat=4):
        assert votes(answers) == [x is not None and x == majority(answers) for x in answers]


# Catches: labels in the reward; a share of right majorities that is counted over responses; a comparison of whole texts
# although the task finds the final answer.
def test_votes_use_no_label_and_log_how_often_they_are_right():
    task = make_task("vote:scratchpad")
    problem = drawn(task)[0]
    right, wrong = problem.answer, str((int(problem.answer) + 1) % 10)
    found = task.rewards([problem] * 4, [f"1;#{wrong}", f"2;2;#{wrong}", f"#{right}", "no"])
    assert found == [1, 1, 0, 0] and [x.parts["right"] for x in found] == [0, 0, 1, 0]
    assert all(x.parts["agreement"] == 0.5 and x.parts["majority_right"] == 0 for x in found)
    found = task.rewards([problem] * 3, [f"1;#{right}", f"#{right}", f"#{wrong}"])
    assert found == [1, 1, 0] and {x.parts["majority_right"] for x in found} == {1}
    assert task.rewards([problem] * 2, ["", "1"]) == [0, 0]
    plain = make_task("vote:addition")                                    # an empty response is no answer
    assert plain.rewards(drawn(plain) * 3, ["", "", "12"]) == [0, 0, 1]


# Catches: a comparison of whole texts, which all differ, although a reward reads an expression or a task an answer.
def test_votes_compare_the_expressions_that_math_reads(tmp_path):
    pytest.importorskip("math_verify")
    rows = [{"prompt": f"What is {i} + {i}?", "answer": 2.0 * i} for i in range(20)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for task in make_task(f"vote:{tmp_path}/sums.jsonl", "math"), make_task("vote:modular", "math"):
        problem = drawn(task)[0]
        said = ["I add them: $7$", "So it is \\boxed{7}", "It may be $8$", "no"]
        assert task.rewards([problem] * 4, said) == [1, 1, 0, 0]
    task = make_task("vote:scratchpad", lambda prompt, response: 1.0)    # with this reward the task finds the answers
    assert task.rewards(drawn(task) * 3, ["1;#4", "2;2;#4", "#5"]) == [1, 1, 0]


# Catches: a hint before the response to a conversation, which the policy does not read.
def test_hints_for_conversations_are_refused(tmp_path):
    rows = [{"messages": [{"role": "user", "content": f"letter {x}"}, {"role": "assistant", "content": x * 2}]}
            for x in "abcdefghijkl"]
    (tmp_path / "talk.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="is a conversation, and a hint continues a text; leave out hints:"):
        make_task(f"hints:{tmp_path}/talk.jsonl")


# Catches: another formula than Kimi's; a wrong answer that gains reward; the shortest and longest of right answers
# only.
def test_relative_length_follows_the_formula_of_kimi():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(2, 6))
        lengths, right = rng.integers(1, 5, n).tolist(), (rng.random(n) < 0.5).tolist()
        for wrong in (False, True):
            expected = []
            for length, yes in zip(lengths, right, strict=True):
                if max(lengths) == min(lengths):
                    value = 0.0
                else:
                    value = 0.5 - (length - min(lengths)) / (max(lengths) - min(lengths))
                expected.append(value if yes else min(0, value) * wrong)
            assert relative(lengths, right, wrong) == pytest.approx(expected)


# Catches: a length in characters although tokens are known; a length with the hint; a reward that depends on the order
# of wrappers.
def test_length_counts_tokens_of_the_policy():
    task = make_task("length,coef=1:addition:digits=2")
    problem = drawn(task)[0]
    texts = [Sampled(problem.answer, 2), Sampled(problem.answer, 9), Sampled("1" * 30, 4)]
    found = task.rewards([problem] * 3, texts)
    assert found == [1.5, 0.5, 0.0] and [x.parts["for_length"] for x in found] == [0.5, -0.5, 0.0]
    outer, inner = (make_task(f"{x}:addition:digits=2") for x in ("length:format,pattern=[0-9]+",
                                                                  "format,pattern=[0-9]+:length"))
    for t in (outer, inner):
        assert t.rewards([p := drawn(t)[0], p], [Sampled(p.answer, 2), Sampled("x", 4)]) == pytest.approx([1.2, 0])


# Catches: another step than A-DLP's; a negative coefficient; the true accuracy in place of the votes' if there are no
# labels.
def test_adaptive_coefficient_follows_the_accuracy():
    task = make_task("length,coef=0.1,adaptive=yes,target=0.5,rate=0.2:addition:digits=2")
    problem = drawn(task)[0]
    task.rewards([problem] * 4, [problem.answer] * 3 + ["1"])
    assert task.coef == pytest.approx(0.1 + 0.2 * (0.75 - 0.5))
    for _ in range(9):
        task.rewards([problem] * 2, ["1", "2"])
    assert task.coef == 0
    voted = make_task("length,coef=0.1,adaptive=yes,target=0.5,rate=0.2:vote:addition:digits=2")
    voted.rewards(drawn(voted) * 4, ["1", "1", "1", "1"])
    assert voted.coef == pytest.approx(0.1 + 0.2 * 0.5)


# Catches: a right answer that counts as wrong in the wrapper, because the sum of its parts is .9999999999999999.
@pytest.mark.parametrize("reward", [lambda prompt, response: 0.7 + 0.2 + 0.1,
                                    lambda prompt, response: {"a": 0.7, "b": 0.2, "c": 0.1}])
def test_parts_that_sum_to_1_make_a_right_answer(reward):
    task = make_task("length,coef=1:addition", reward)
    found = task.rewards(drawn(task) * 2, ["1", "222"])
    assert found == pytest.approx([1.5, 0.5]) and all(x.right and x.parts["right"] == 1 for x in found)


# Catches: signs and digits that count as letters; a response in another script that gets more than its share.
def test_consistency_is_the_share_of_letters_in_the_same_script():
    assert script_of("δγ+κε=") == "greek" and script_of("3+4=") == "common" and script_of("Привет, abc") == "cyrillic"
    assert consistency("αβ=", "αaαb12") == 0.5 and consistency("αβ=", "12+3") == 1 and consistency("12", "abc") == 1
    assert consistency("Wie geht es?", "gut") == 1 and consistency("αβ=", "ab") == 0
    assert consistency("日本の首都は", "とうきょう、東京の人々です") == 1 and consistency("日本の", "tokyo") == 0
    added, times = make_task("language,coef=0.2:two_scripts"), make_task("language,mode=times:two_scripts")
    problem = next(p for p in drawn(added, 20) if script_of(p.prompt) == "greek")
    latin = problem.answer.translate(str.maketrans("αβγδεζηθικ", "abcdefghij"))
    assert added.rewards([problem] * 2, [problem.answer, latin]) == pytest.approx([1.2, 1.0])
    problem = next(p for p in drawn(times, 20) if script_of(p.prompt) == "greek")
    found = times.rewards([problem] * 2, [problem.answer, latin])
    assert found == [1, 0] and [x.right for x in found] == [True, False] and [x.parts["right"] for x in found] == [1, 1]
    mixed = latin[0] + problem.answer[1:]
    assert times.rewards([problem], [mixed]) == [pytest.approx((len(mixed) - 1) / len(mixed))]
    whole = make_task("language,mode=times,strict=yes:two_scripts")
    problem = next(p for p in drawn(whole, 20) if script_of(p.prompt) == "greek")
    assert whole.rewards([problem] * 2, [mixed, problem.answer]) == [0, 1]


# Catches: the refusal of a file of prompts in one script; role names that count as the prompt's language.
def test_language_of_a_conversation_is_that_of_its_last_turn(tmp_path):
    talk = [{"role": role, "content": "Γεια"} for role in ("user", "assistant", "user")]
    (tmp_path / "talk.jsonl").write_text("".join(json.dumps({
        "messages": [*talk[:2], {"role": "user", "content": f"Ναι {i}"}], "answer": "ναι"}) + "\n" for i in range(12)))
    task = make_task(f"language:{tmp_path}/talk.jsonl")
    assert [x.parts["language"] for x in task.rewards(drawn(task) * 2, ["ναι", "yes"])] == [1, 0]


# Catches: a pattern that matches only the start of a response; a form of the task that is not used.
def test_format_applies_to_the_whole_response():
    task = make_task("format:scratchpad")
    problem = drawn(task)[0]
    good, bad = f"1;2;#{problem.answer}", f"12;#{problem.answer}"
    assert task.rewards([problem] * 3, [good, bad, "1;#"]) == pytest.approx([1.1, 1.0, 0.0])
    gate = make_task("format,mode=times:scratchpad")
    assert gate.rewards(drawn(gate) * 2, [good, bad]) == [1, 0]
    shaped, _ = gate.shape(problem, [good, bad], [-0.8, -0.8], [False, False])
    assert shaped == [-0.8, -0.8]                             # a negative reward is not 0 for a wrong form


# Catches: equal answers in different words that count as different.
@pytest.mark.parametrize(("name", "same", "other"), [
    ("letters", ("3", "3 times", "Three", "It occurs 3 times."), "2"),
    ("sums", ("7 + 6 = 13", "7+6=13", "It is 7 + 6 = 13."), "7 + 6 = 14"),
    ("json", ('{"a": 1, "b": 2}', '{"b":2,"a":1}'), '{"a": 2, "b": 1}'),
    ("two_scripts", ("cha", "γθα"), "chb"), ("two_scripts:rule=strict", ("cha",), "γθα")])
def test_votes_compare_answers_and_not_their_wording(name, same, other):
    task = make_task(name)
    problem = task.problems(1, np.random.default_rng(0))[0]
    assert len({task.answer_of(problem, x) for x in same}) == 1
    assert task.answer_of(problem, other) != task.answer_of(problem, same[0])


# Catches: a wrong mean length of hints; a response that is judged without its hint.
def test_hint_is_the_start_of_the_answer():
    task = make_task("hints,share=0.5:addition:digits=2")                 # answers of three digits
    asked = drawn(task, 2000)
    assert all(p.prompt == p.of.prompt + p.hint and p.of.answer.startswith(p.hint) for p in asked)
    lengths = [len(p.hint) for p in asked]
    assert {*lengths} == {1, 2} and np.mean(lengths) == pytest.approx(1.5, abs=0.05)
    problem = asked[0]
    rest = problem.of.answer[len(problem.hint):]
    assert task.rewards([problem] * 2, [rest, problem.of.answer]) == [1, 0]


# Catches: a task of a mixture that is not checked; a longest prompt that is measured without its hint.
def test_hints_check_all_tasks_of_a_mixture_and_lengthen_prompts(tmp_path):
    for text in ("hints:mix:steps+sort", "hints:mix:sort+steps"):
        with pytest.raises(UserError, match="steps asks for more than an answer"):
            make_task(text)
    rows = [{"prompt": f"a{i:02}", "answer": "b" * 40} for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = make_task(f"hints:{tmp_path}/rows.jsonl")
    assert longest_prompt(task, CharTokenizer("ab0123456789")) == 43


# Catches: one share of hints for both languages; a decay after too little success; a decay for a language without
# prompts.
def test_hints_of_a_language_decay_with_its_own_success():
    task = make_task("hints,share=0.05,step=0.02,target=0.5:language,mode=times:two_scripts")
    greek, latin = ([p for p in drawn(task, 40) if script_of(p.of.prompt) == name][0] for name in ("greek", "latin"))

    def answer(problem):
        return problem.of.answer[len(problem.hint):]

    task.rewards([greek, greek, latin, latin], [answer(greek), "", "", ""])
    assert task.left == {"greek": pytest.approx(0.03), "latin": 0.05}
    task.rewards([latin], [answer(latin)])
    assert task.left == {"greek": pytest.approx(0.03), "latin": pytest.approx(0.03)}
    for _ in range(5):
        task.rewards([greek], [answer(greek)])
    assert task.left["greek"] == 0 and {p.hint for p in drawn(task, 200) if script_of(p.of.prompt) == "greek"} == {""}


# Catches: a missing state of an inner wrapper; a saved entry for a wrapper without state.
def test_state_of_every_wrapper_is_saved():
    text = "hints:length,adaptive=yes:addition:digits=2"
    task, again = make_task(text), make_task(text)
    problem = drawn(task)[0]
    task.rewards([problem] * 2, [problem.of.answer[len(problem.hint):]] * 2)
    assert task.state_dict() != again.state_dict() and {*task.state_dict()} == {"hints", "length"}
    again.load_state_dict(task.state_dict())
    assert again.state_dict() == task.state_dict() and drawn(again, 9)[3].hint == drawn(task, 9)[3].hint
    assert make_task("length:vote:addition").state_dict() == {}


# Catches: SFT that is repeated for a wrapper; presets of the wrapper in place of the task's.
def test_initial_policy_is_that_of_the_task():
    for given in ("length:vote:addition", Length(make_task("vote:addition"))):
        cfg = LanguageConfig(task=given)
        inner, task = unwrapped(cfg, make_task(given))
        assert type(task) is Addition and cfg.task is given
        plain = "addition" if isinstance(given, str) else task
        assert identity(inner, task) == identity(LanguageConfig(task=plain), task)
    grpo = find("llm grpo")
    assert LanguageConfig.preset_names("vote:addition:digits=2", grpo) == LanguageConfig.preset_names("addition", grpo)


# Catches: a method with too few responses per prompt that trains on votes; a separate state in each rank.
@pytest.mark.parametrize(("settings", "words"), [
    ({"task": "vote:addition", "samples": 2}, "compare the responses to one prompt; set --samples to 3 or more"),
    ({"task": "length:vote:addition", "samples": 2}, "set --samples to 3 or more"),
    ({"task": "length:addition", "samples": 1}, "set --samples to 2 or more"),
    ({"task": "hints:addition", "workers": 2}, "one process must see them all in turn; leave out --workers, --lag"),
    ({"task": "length,adaptive=yes:addition", "lag": 1}, "leave out --workers, --lag and --engine")])
def test_unsuitable_settings_are_refused_before_training(settings, words, tmp_path):
    method = find("llm reinforce" if "samples" in settings else "llm grpo").load()
    with pytest.raises(UserError, match=words):
        check(method.Config(**settings, log_dir=str(tmp_path), quiet=True))
    assert list(tmp_path.iterdir()) == []


# Catches: a vote among the responses of a single perturbed policy, or of a greedy response; hints that fade once
# for each perturbed policy; a majority of the two responses of a pair.
@pytest.mark.parametrize(("method", "task", "words"), [
    ("es", "vote:addition", "es rewards some responses separately; choose another method, such as grpo"),
    ("param_noise", "length:addition", "param_noise rewards some responses separately"),
    ("param_noise", "hints:addition", "depend on earlier batches, and param_noise rewards some responses separately"),
    ("remax", "vote:addition", "remax rewards some responses separately"),
    ("dpo", "vote:addition", "compare the responses to one prompt; a pair has two; choose another task"),
    ("reward_model", "vote:addition", "a pair has two; choose another task")])
def test_methods_without_groups_are_refused(method, task, words, tmp_path):
    config, _ = configure(find(f"llm {method}"), {"task": task, "log_dir": str(tmp_path), "quiet": True})
    with pytest.raises(UserError, match=words):
        check(config)
    assert list(tmp_path.iterdir()) == []


# Catches: an initial policy that is reused although the file of the reward has changed.
def test_identity_depends_on_the_file_of_a_reward(tmp_path):
    file = tmp_path / "share.py"
    found = []
    for content in ("def share(prompt, response):\n    return 1.0\n", "def share(prompt, response):\n    return 0.5\n"):
        file.write_text(content)
        cfg = LanguageConfig(task="addition", reward=f"{file}:share")
        found.append(identity(cfg, make_task("addition")))
    assert found[0] != found[1] and found[0][0] == "addition"


# Catches: the initial policy of another list of prompts, or of a task with another alphabet or length.
def test_identity_depends_on_every_row_alphabet_and_length():
    rows = [{"prompt": f"{a}{b}>", "answer": f"{b}{a}"} for a in "abcdefgh" for b in "abcdefgh"]
    changed = [[*rows[:i], {**rows[i], "answer": "ba" * 2}, *rows[i + 1:]] for i in range(len(rows))]
    tasks = [UserTask(rows), UserTask(rows, max_tokens=5), UserTask(rows, alphabet=">abcdefghX"),
             *map(UserTask, changed)]
    found = [json.dumps(identity(LanguageConfig(task=task), task)) for task in tasks]
    assert len({*found}) == len(tasks) == 67
    assert json.dumps(identity(LanguageConfig(task=rows), UserTask(rows))) != found[1]


# Catches: a wrapper of the user that needs more than `shape`.
def test_wrapper_of_the_user_needs_only_shape():
    class Half(Wrapper):
        name = "half"

        def shape(self, problem, responses, rewards, right):
            return [x / 2 for x in rewards], {}

    task = Half(make_task("addition:digits=2"))
    problem = drawn(task)[0]
    assert task.rewards([problem] * 2, [problem.answer, ""]) == [0.5, 0] and isinstance(task, Task)
    with pytest.raises(UserError, match=r"write Hints\(make_task\('addition'\)\)"):
        Hints("addition")


# Catches: prompts of digits that get no hint; a hint for a task in which the answer alone is not enough.
def test_all_prompts_get_hints_and_tasks_with_steps_are_refused():
    task = make_task("hints,share=1:modular:noise=0")
    assert all(p.hint == p.of.answer for p in drawn(task, 100))
    with pytest.raises(UserError, match="steps asks for more than an answer.*leave out hints:"):
        make_task("hints:steps")


# Catches: a demonstration of the whole answer after a hint.
def test_sft_with_hints_equals_sft_without_hints(tmp_path):
    small = {"layers": 1, "width": 16, "heads": 2, "total_steps": 3, "batch": 8, "threads": 1, "tensorboard": False,
             "quiet": True, "preset": "none", "held_out": 8, "log_dir": str(tmp_path)}
    losses = [llm.sft(f"{hints}modular", exp_name=f"x{len(hints)}", **small).progress["loss"]
              for hints in ("", "hints,share=1:")]
    assert losses[0] == losses[1]


# Catches: a vote that compares letters in place of sums.
def test_votes_on_sums_in_two_scripts_compare_the_sums():
    task = make_task("vote:two_scripts")
    problem = drawn(task)[0]
    assert list(task.rewards([problem] * 3, ["abc", "\u03b1\u03b2\u03b3", "bbc"])) == [1, 1, 0]
