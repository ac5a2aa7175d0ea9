"""Verdicts on files with unforeseen mistakes: each gets a sentence with file and line."""
import json
import re

import numpy as np
import pytest
import torch
from torch import nn

from spinup.exercises import verdict as verdicts
from spinup.exercises.build import notebook, solution, student
from spinup.exercises.checks import Exercise, StudentFunction, Wrong, case
from spinup.exercises.child import current_line, overdue
from spinup.exercises.layers import described
from spinup.exercises.outcome import equal
from spinup.exercises.source import CONTENT, Entry
from spinup.exercises.verdict import check, python_of, static

GAE = Entry("3_1_gae")
RIGHT = GAE.solution
LINE = RIGHT[:RIGHT.index("    return adv\n")].count("\n") + 1
DEF = RIGHT[:RIGHT.index("def gae")].count("\n") + 1


def with_return(line):
    return RIGHT.replace("    return adv\n", f"    {line}\n")


# Catches: a line of the library's own code in place of the student's; a difference without an explanation.
@pytest.mark.parametrize("text, at, words", [
    (with_return("return (adv"), LINE, "not valid Python"),
    (with_return("exit()"), LINE, "calls exit"),
    (with_return("return adv[:, :2]"), LINE, r"shape \(1, 2\), but \(1, 3\)"),
    (with_return("return adv.double()"), LINE, "type float64, but float32"),
    (with_return("return adv * float('nan')"), LINE, r"nan at \[0, 0\], but 0.625 was expected"),
    (with_return("return adv.tolist()"), LINE, "of the type list, but a tensor"),
    (with_return("return None"), LINE, "returns nothing; does it end with `return`"),
    (with_return("return adv + 1"), LINE, r"1.625 at \[0, 0\], but 0.625 was expected, for\n    rew = "),
    (with_return("rew += 1; return adv"), LINE, "changes its input rew"),
    (with_return("return adv / 0 + nothing"), LINE, "raised NameError"),
    (with_return("raise SystemExit(0)"), LINE, "calls exit"),
    (RIGHT.replace("terminated: Tensor, truncated", "done: Tensor, truncated"), DEF, "restore \\("),
    (RIGHT.replace("def gae", "def gaee"), 0, "the function gae is missing"),
    (RIGHT + "import nothing_of_this_name\n", RIGHT.count("\n") + 1, "cannot be loaded .*nothing_of_this_name"),
    (with_return("raise NotImplementedError('TODO')"), LINE, "still to do"),
    (with_return("adv = []; adv.append(adv); return adv"), LINE, "raised RecursionError"),
    (RIGHT + "del gae\n", DEF, "the function gae is missing"), ("\x00", 0, "not valid Python")])
def test_each_mistake_gets_a_sentence_with_file_and_line(text, at, words, tmp_path, in_this_process):
    told(text, at, words, tmp_path)


# Catches: a child process that ends the caller; answers that are lost on the way.
@pytest.mark.long
def test_process_that_ends_does_not_end_the_check(tmp_path):
    told(with_return("import os; os._exit(0)"), 0, r"ended its process \(exit code 0\) before", tmp_path)


def told(text, at, words, folder):
    file = folder / "3_1_gae.py"
    file.write_text(text)
    found = check(GAE, file)
    assert not found.passed and found.line == at
    assert found.message.startswith(f"3_1_gae.py, line {at}: " if at else "3_1_gae.py: ")
    assert re.search(words, found.message), found.message


# Catches: a result of the check that a file can suppress by mistake.
@pytest.mark.long
def test_file_may_replace_print(tmp_path):
    file = tmp_path / "3_1_gae.py"
    file.write_text(RIGHT + "import builtins\nbuiltins.print = lambda *args, **named: None\n")
    assert check(GAE, file).passed


# Catches: endless output that fills the disk or the memory.
@pytest.mark.long
def test_endless_loop_is_ended_and_its_line_named(tmp_path, monkeypatch):
    monkeypatch.setitem(verdicts.SECONDS, "property", 1.0)
    file = tmp_path / "3_1_gae.py"
    file.write_text(with_return("while True: print('again' * 20000)"))
    found = check(GAE, file)
    assert not found.passed and found.line == LINE and "is there a loop that never ends?" in found.message
    assert len(found.printed) < 4200 and found.printed.endswith("it printed more than 1 MB; the rest was dropped")


# Catches: line numbers that are counted through the whole notebook; magics that are parsed as Python.
def test_notebook_is_checked_and_the_cell_of_an_error_named(tmp_path, in_this_process):
    file = tmp_path / "3_1_gae.ipynb"
    cells = json.loads(notebook(RIGHT))
    code = [cell for cell in cells["cells"] if cell["cell_type"] == "code"]
    code[0]["source"] = ["%matplotlib inline\n", *"".join(code[0]["source"]).splitlines(keepends=True)]
    file.write_text(json.dumps(cells))
    assert check(GAE, file).passed
    code[1]["source"] = "x = 1\nnothing\n"
    file.write_text(json.dumps(cells))
    assert check(GAE, file).message.startswith("3_1_gae.ipynb, cell 2, line 2: it cannot be loaded (NameError")


# Catches: every line with a leading % that is taken for a magic; a question about a name that is taken for Python.
@pytest.mark.parametrize("cell, read", [
    ("x = (7\n     % 4)\n", "x = (7\n     % 4)\n"), ("torch.sum?\nx = 1", "# torch.sum?\nx = 1\n"),
    ("%time\nx = (7\n     % 4)\n!echo '\n?x", "# %time\nx = (7\n     % 4)\n# !echo '\n# ?x\n"),
    ('x = """\n!a\nwhy?\n"""', 'x = """\n!a\nwhy?\n"""\n'), ("return x?", "return x?\n"),
    ("if x:\n    x?", "if x:\n#     x?\n")])
def test_magics_and_questions_of_a_notebook_become_comments(cell, read, tmp_path):
    file = tmp_path / "3_1_gae.ipynb"
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell.splitlines(keepends=True)}]}))
    assert python_of(file)[0] == read


# Catches: a child process that searches for modules in the student's folder first, or not at all; printed text among
# its answers.
@pytest.mark.long
def test_modules_beside_the_file_are_found_after_installed_modules(tmp_path):
    for name in ("random", "torch", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('mine')")
    (tmp_path / "helper.py").write_text("import random\nseven = random.Random(0).randint(7, 7)\n")
    file = tmp_path / "3_1_gae.py"
    text = with_return("print('here', adv.shape); return adv")
    file.write_text("from helper import seven\nassert seven == 7\n" + text)
    found = check(GAE, file)
    assert found.passed and found.printed.startswith("here torch.Size([1, 3])"), found.message


def test_source_gives_the_file_of_a_student_and_the_solution():
    text = "a = 1\n# BEGIN SOLUTION\nb = 2\n# END SOLUTION\ndef f():\n    # BEGIN SOLUTION\n    # STUB: # Think.\n" \
           "    # STUB: raise X\n    return 3\n    # END SOLUTION\n"
    assert solution(text) == "a = 1\nb = 2\ndef f():\n    return 3\n"
    assert student(text, "1.2") == (
        'a = 1\nraise NotImplementedError("TODO 1.2")\ndef f():\n    # Think.\n    raise X\n')
    with pytest.raises(ValueError, match="1.2: each '# BEGIN SOLUTION' needs"):           # the rest would be lost
        student(text.replace("\n    # END SOLUTION", " # END SOLUTION"), "1.2")


def made(close=1e-4):
    exercise = Exercise(minutes=(5, 6), difficulty=1, hints=[])
    function = exercise.function("f", [case(x=torch.tensor([1.0, 2.0], requires_grad=True), k=2)], close)
    function.reference(lambda x, k: (x * k, k))
    function.mistake("twice")(lambda x, k: (x * k * 2, k))
    function.mistake("raises")(lambda x, k: x.nothing)
    return function


# Catches: gradients that are not compared; a known mistake that is preferred to the correct answer; errors of all types
# that are taken for the same one; a mistake that is not named because a gradient is wrong, too.
@pytest.mark.parametrize("mine, message", [
    (lambda x, k: (x + x, 2.0), ""), (lambda x, k: (x * 4, k), "twice"), (lambda x, k: x.other, "raises"),
    (lambda x, k: (x.detach() * 4, k), "twice"),
    (lambda x, k: (x.detach() * 2, k), "no gradient reaches x through f: a tensor on the way was detached"),
    (lambda x, k: (x + x.detach(), k), r"the gradient of f with respect to x is 1.0 at \[0\], but 2.0 was expected"),
    (lambda x, k: x * 2, "the result of f is a tensor, but 2 values were expected"),
    (lambda x, k: (x * 2, k, k), "the result of f is 3 values, but 2 values were expected"),
    (lambda x, k: (x * 2, 3), "the second value of the result of f is 3, but 2 was expected")])
def test_known_mistake_is_named_in_place_of_the_difference(mine, message):
    function = made()
    if not message:
        assert function.compare(mine) is None
        return
    with pytest.raises(Wrong, match=message):
        function.compare(mine)


# Catches: a gradient that is 0 in one case, because of a clip, and is taken for one that should never exist.
def test_unwanted_gradient_is_reported_only_if_all_cases_have_none():
    exercise = Exercise(minutes=(5, 6), difficulty=1, hints=[])
    function = exercise.function("f", [case(x=torch.tensor([x], requires_grad=True)) for x in (3.0, 0.5)])
    function.reference(lambda x: x.clamp(max=1.0))
    with pytest.raises(Wrong, match=r"gradient of f with respect to x is 1.0 at \[0\], but 0.0 was expected, for\n  "):
        function.compare(lambda x: x + (x.clamp(max=1.0) - x).detach())
    with pytest.raises(Wrong, match="no gradient reaches x through f"):
        function.compare(lambda x: x.detach().clamp(max=1.0))
    function.reference(lambda x: x.detach() * 2)
    with pytest.raises(Wrong, match="a gradient reaches x through f, and none should"):
        function.compare(lambda x: x * 2)


# Catches: a long input that is left out, or printed completely; a difference without its row.
def test_long_inputs_are_shown_by_their_shape_and_row():
    exercise = Exercise(minutes=(5, 6), difficulty=1, hints=[])
    x, wide = torch.arange(40.0).view(20, 2), torch.ones(20, 300, dtype=torch.int64)
    function = exercise.function("f", [case(x=x, wide=wide, flat=torch.arange(500), k=2)])
    function.reference(lambda x, wide, flat, k: x * k)
    with pytest.raises(Wrong) as found:
        function.compare(lambda x, wide, flat, k: x * k + (x == 35))
    said = str(found.value).splitlines()
    assert said[0] == "the result of f is 71.0 at [17, 1], but 70.0 was expected, for"
    assert said[1:] == ["    x of shape [20, 2], at [17] [34.0, 35.0]",
                        "    wide of shape [20, 300], at [17] [1, 1, " + 17 * "1, " + "1, ...",
                        "    flat of shape [500], begins [0, 1, 2, 3, 4, 5, ...", "    k = 2"]


# Catches: an answer that is correct near 0 and is taken for correct everywhere.
def test_extreme_case_is_tried_last_and_reported_with_its_message():
    function = made()
    function.extreme("x is kept between bounds.", x=torch.tensor([100.0, 0.0]), k=3)
    function.compare(lambda x, k: (x * k, k))
    with pytest.raises(Wrong, match="^x is kept between bounds. Here the first value of the result of f is 30.0 at "):
        function.compare(lambda x, k: (x.clamp(max=10) * k, k))
    with pytest.raises(Wrong, match="^twice$"):
        function.compare(lambda x, k: (x.clamp(max=10) * k * 2, k))


# Catches: gradients that are computed where no handler catches their errors.
def test_change_in_place_that_breaks_the_gradient_is_named(tmp_path, in_this_process):
    file, clipped = tmp_path / "3_2_clipped_objective.py", Entry("3_2_clipped_objective")
    text = clipped.solution
    file.write_text(text.replace("ratio.clamp(", "ratio.clamp_("))
    found = check(clipped, file)
    line = text[:text.index("    return -torch")].count("\n") + 1
    assert not found.passed and found.message.startswith(f"{file.name}, line {line}: clipped_loss changes in place")


@pytest.mark.parametrize("one, other, same", [
    (1, 1.0, True), (True, 1, True), ("a", "a", True), ("a", "b", False), (torch.ones(2), torch.ones(2), True),
    (torch.ones(2), torch.ones(2, 1), False), (torch.ones(2), torch.ones(2).double(), False), ((1, 2), [1, 2], True),
    ((1, 2), (1,), False), ({"a": 1}, {"a": 1}, True), ({"a": 1}, {"b": 1}, False), (None, None, True),
    (None, 0, False),
    (torch.tensor([float("nan")]), torch.tensor([float("nan")]), True), (1.0, float("nan"), False)])
def test_equal_compares_values_types_and_shapes(one, other, same):
    assert equal(one, other, 1e-4) == same


# Catches: an endless wait for a file that holds the interpreter lock, so that the time limit in its own process never
# applies.
@pytest.mark.long
def test_file_that_cannot_be_interrupted_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("spinup.exercises.verdict.SECONDS", {"property": 0.1})
    monkeypatch.setattr("spinup.exercises.process.GRACE", 1.5)
    file = tmp_path / "3_1_gae.py"
    file.write_text("import re\nre.match('(a+)+$', 'a' * 60 + 'b')\n" + RIGHT)
    found = check(GAE, file)
    assert not found.passed and not found.checked and "still running after 2 seconds and was ended" in found.message


# Catches: an import in a function, or under another name, that is overlooked; the line of another statement.
@pytest.mark.parametrize("code, line, name", [
    ("from spinup.core.returns import gae as ours", 1, "spinup.core.returns"),
    ("import spinup.ppo as p", 1, "spinup.ppo"),
    ("def f():\n    import numpy, llm.algos.ppo", 2, "llm.algos.ppo"), ("x = 1\nimport llm\nimport spinup", 2, "llm")])
def test_import_of_the_library_is_refused_with_its_line(code, line, name):
    found = static(GAE, RIGHT + code)
    assert not found.passed and found.line == RIGHT.count("\n") + line
    assert f"imports {name}. The library contains the answer" in found.message


# Catches: a refused import in the part of a file that a check does not run; a module with a similar name.
@pytest.mark.parametrize("code", ["if __name__ == '__main__':\n    from spinup import ppo", "import spinup_of_mine"])
def test_other_imports_are_allowed(code):
    assert static(GAE, RIGHT + code).passed


# Catches: a reference that is computed with the settings of the student's file, so that a correct answer fails.
@pytest.mark.parametrize("name", ["3_1_gae", "4_1_kl_estimators"])
@pytest.mark.parametrize("inside", [False, True])
def test_torch_settings_of_a_file_do_not_affect_its_check(name, inside, tmp_path, in_this_process):
    entry, change = Entry(name), "torch.set_default_dtype(torch.float64); "
    file, text = tmp_path / f"{name}.py", entry.solution
    file.write_text(text.replace("    return ", f"    {change}return ") if inside else
                    f"{text}{change}torch.set_grad_enabled(False); torch.set_default_device('meta')\n")
    found = check(entry, file)
    assert found.passed, found.message
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    assert torch.zeros(()).device.type == "cpu"


# Catches: a change in place by one call that reaches the inputs or the result of another call.
def test_each_call_of_a_students_function_gets_copies():
    kept = torch.zeros(2)

    def f(x, rows, net):
        kept.add_(x)
        x.zero_()
        rows[0][0] = 9
        nn.init.zeros_(net.weight)
        return kept

    x, rows, net = torch.ones(2), [[1, 2]], nn.Linear(2, 1)
    weight, mine = net.weight.detach().clone(), StudentFunction("f", ["x", "rows", "net"], f, __file__)
    first, second = mine(x, rows, net=net), mine(x, rows, net)
    assert first.tolist() == [1, 1] and second.tolist() == [2, 2] and x.tolist() == [1, 1] and rows == [[1, 2]]
    assert torch.equal(net.weight, weight)
    assert mine.outcome({"x": x, "rows": rows, "net": net}).changed == ("x", "rows")


# Catches: a property without the line of the student's file, or with an error message of the library.
def test_error_in_a_property_is_reported_with_its_line(tmp_path, in_this_process):
    entry, file = Entry("4_1_kl_estimators"), tmp_path / "4_1_kl_estimators.py"
    last = "    return torch.expm1(log_r) - log_r\n"
    line = entry.solution[:entry.solution.index(last)].count("\n") + 1
    for instead, at, said in (("raise ValueError('no')", line, "k3 raised ValueError: no"),
                              ("return logp", line, "the mean of k3 over the tokens"),
                              ("return 'text'", 0, "what it returns cannot be used (TypeError")):
        file.write_text(entry.solution.replace(last, f"    if logp.dtype == torch.float64: {instead}\n{last}"))
        found = check(entry, file)
        assert not found.passed and found.line == at and said in found.message


# Catches: a function that is called correct although it fails a property; a property of an unfinished function that is
# reported as a mistake.
@pytest.mark.parametrize(("k3", "said"), [
    ("torch.expm1(log_r) - log_r", "this is still to do; k1, k2 and k3 are correct"),
    ("log_r.exp() - 1 - log_r", "computes exp")])
def test_finished_functions_are_checked_completely_while_others_are_to_do(k3, said, tmp_path, in_this_process):
    entry, file = Entry("4_1_kl_estimators"), tmp_path / "4_1_kl_estimators.py"
    text = entry.solution.replace("torch.where(mask, k, 0.0).sum(1)\n", "TODO\n").replace(
        "    return TODO", '    raise NotImplementedError("TODO 4.1")')
    file.write_text(text.replace("torch.expm1(log_r) - log_r", k3))
    found = check(entry, file)
    assert not found.passed and said in found.message, found.message


# Catches: a comparison of huge results that lasts until the time limit, which would blame the machine.
@pytest.mark.parametrize("huge", [
    "torch.zeros(10**8)", "[0] * 10**8", "[[0] * 1000] * 10**4", "{i: 0 for i in range(2 * 10**6)}"])
def test_huge_result_is_reported_without_a_comparison(huge, tmp_path, in_this_process):
    entry, file = Entry("4_1_kl_estimators"), tmp_path / "4_1_kl_estimators.py"
    last = "    return torch.expm1(log_r) - log_r\n"
    file.write_text(entry.solution.replace(last, f"    return {huge}\n"))
    found = check(entry, file)
    assert not found.passed and "the result has more than 1,000,000 numbers" in found.message and found.line


# Catches: a tensor that NumPy cannot read, reported as an error of the checks without a line.
@pytest.mark.parametrize("given", [
    "torch.zeros(3).to_sparse()", "torch.zeros(3, device='meta')",
    "torch.nested.nested_tensor([torch.zeros(2)], layout=torch.jagged)"])
def test_result_that_is_no_dense_tensor_is_reported_with_its_line(given, tmp_path, in_this_process):
    entry, file = Entry("4_1_kl_estimators"), tmp_path / "4_1_kl_estimators.py"
    last = "    return torch.expm1(log_r) - log_r\n"
    file.write_text(entry.solution.replace(last, f"    return {given}\n"))
    found = check(entry, file)
    assert not found.passed and "the result is a sparse, nested or meta tensor" in found.message and found.line


# Catches: numbers of NumPy that are not compared with those of Python.
def test_numbers_of_numpy_are_numbers():
    exercise = Exercise(minutes=(5, 6), difficulty=1, hints=[])
    function = exercise.function("f", [case(x=2.5)])
    function.reference(lambda x: (x > 2, x, 2))
    function.compare(lambda x: (np.float64(x) > 2, np.float32(x), np.int64(x)))


# Catches: a line of the checks, which have the same file name, that is blamed on the student's file.
def test_line_of_a_file_that_hangs_is_its_own(tmp_path):
    theirs, mine = CONTENT / "checks" / "3_1_gae.py", tmp_path / "3_1_gae.py"
    rows = [f'  File "{file}", line {line} in f\n' for file, line in ((theirs, 3), (mine, 5), (mine, 7))]
    assert current_line(rows, mine) == 5 and current_line(rows[:1], mine) == 0


# Catches: a slow machine that is blamed on the student's file.
def test_time_limit_blames_the_file_only_if_its_code_is_running():
    assert overdue(20.0, "property", 5) == {
        "message": "it was still running after 20 seconds; is there a loop that never ends?", "line": 5}
    late = overdue(20.0, "property", 0)
    assert late["checked"] is False and "seconds; this machine may be too slow or busy" in late["message"]
    assert overdue(20.0, "probe", 5)["checked"] is False


def test_description_of_a_network_names_shared_layers():
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1).requires_grad_(False))
    layers = described(nn.Sequential(net[0], net[1], net[0], net[2])).layers
    assert [layer.same_as for layer in layers] == [-1, -1, 0, -1] and not layers[3].trainable
