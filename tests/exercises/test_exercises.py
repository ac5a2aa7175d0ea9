"""Properties of all exercises: none passes as given, every solution passes, and every known mistake is named."""
import ast
import json
import re
import runpy
import time
import warnings
from types import SimpleNamespace

import pytest
import torch

from spinup.exercises.build import notebook
from spinup.exercises.checks import Wrong
from spinup.exercises.source import CONTENT, Entry, entries, import_file, signatures
from spinup.exercises.verdict import check, static

ENTRIES = entries()
each = pytest.mark.parametrize("entry", ENTRIES, ids=[e.name for e in ENTRIES])


def checked(entry, text, folder):
    """The verdict on a student's file with this text."""
    file = folder / f"{entry.name}.py"
    file.write_text(text)
    return check(entry, file)


# Catches: an exercise that is solved as given; a bug hunt without its bug.
@each
def test_no_exercise_passes_as_given(entry, tmp_path, in_this_process):
    verdict = checked(entry, entry.text, tmp_path)
    assert not verdict.passed
    if entry.about["kind"] == "bug hunt":
        assert verdict.level == "property"
    else:
        assert verdict.level == "static" and "to do" in verdict.message and re.search(r"line \d+", verdict.message)


@each
def test_every_solution_passes_in_time(entry, tmp_path, in_this_process):
    begin = time.process_time()                                           # CPU time, even on a busy machine
    verdict = checked(entry, entry.solution, tmp_path)
    assert verdict.passed, verdict.message
    assert time.process_time() - begin < 3


# Catches: a mistake that the cases do not distinguish from the correct answer or from another mistake.
@each
def test_every_known_mistake_gets_its_own_message(entry, tmp_path):
    (tmp_path / f"{entry.name}.py").write_text(entry.solution)
    exercise, right = entry.checks, import_file(tmp_path / f"{entry.name}.py")
    assert sum(len(function.mistakes) for function in exercise.functions) >= 3
    messages = [message for function in exercise.functions for message, _ in function.mistakes]
    assert len(set(messages)) == len(messages)
    for function in exercise.functions:
        for message, mistaken in function.mistakes:
            student = SimpleNamespace(**{**vars(right), function.name: mistaken})
            with pytest.raises(Wrong) as found:
                exercise.check(student, "property")
            assert str(found.value) == message


# Catches: cases of 3.1 that never set both flags; episodes of 5.1 that all begin at 0 and whose steps lead only
# forward, or far from any restart; cases of 4.1, 5.4 and 5.6 without a token that counts and is NaN.
@pytest.mark.parametrize("name, line, instead", [
    ("3_1_gae", "next_value * ~terminated", "next_value * (~terminated | truncated)"),
    ("3_1_gae", "~(terminated | truncated)", "(terminated == truncated)"),
    ("5_1_autoreset", "~torch.cat([ended[:, None], (terminated | truncated)[:, :-1]], 1)",
     "~((next_obs.flatten(2)[..., -1] == 0) & (rew == 0))"),
    ("5_1_autoreset", "~torch.cat([ended[:, None], (terminated | truncated)[:, :-1]], 1)",
     "next_obs[..., -1] > obs[..., -1]"),
    ("5_1_autoreset", "~torch.cat([ended[:, None], (terminated | truncated)[:, :-1]], 1)",
     "((next_obs - obs)[..., -1].abs() == 1) | (rew != 0)"),
    ("5_1_autoreset", "(terminated | truncated)", "(terminated ^ truncated)"),
    ("4_1_kl_estimators", "torch.where(mask, k, 0.0).sum(1)", "(torch.nan_to_num(k) * mask).sum(1)"),
    ("4_1_kl_estimators", "torch.where(mask, k, 0.0).sum(1)", "torch.where(mask, k, 0.0).nansum(1)"),
    ("5_4_padding", "torch.where(mask, adv, 0.0)", "(torch.nan_to_num(adv) * mask)"),
    ("5_6_length_bias", "each.sum()", "each.nansum()")])
def test_answer_that_is_correct_only_in_simple_cases_does_not_pass(name, line, instead, tmp_path):
    text = Entry(name).solution
    assert text.count(line) == 1
    (tmp_path / f"{name}.py").write_text(text.replace(line, instead))
    with pytest.raises(Wrong):
        Entry(name).checks.check(import_file(tmp_path / f"{name}.py"), "property")


# Catches: a tensor with a gradient that is converted to a number, about which PyTorch warns.
@each
def test_demonstration_runs_without_a_warning(entry, tmp_path):
    if entry.about["kind"] == "predict":
        pytest.skip("its demonstration trains for a minute")
    (tmp_path / "shown.py").write_text(entry.solution)
    torch.set_warn_always(True)                               # otherwise PyTorch gives each warning only once
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runpy.run_path(str(tmp_path / "shown.py"), run_name="__main__")
    finally:
        torch.set_warn_always(False)


# Catches: weights that are copied by name. A nested network has other names.
def test_nested_network_gets_the_initial_weights_of_a_run(monkeypatch, tmp_path):
    from spinup.core import networks
    text = Entry("1_2_gaussian_policy").solution.replace(
        "nn.Sequential(*layers[:-1])", "nn.Sequential(layers[0], nn.Sequential(*layers[1:-1]))")
    (tmp_path / "nested.py").write_text(text)
    first, nets = networks.mlp([3, 4, 2]), []

    def ppo(*args, **settings):
        nets.append(networks.mlp([3, 4, 2]))
        return SimpleNamespace(progress={"return_mean_100": [500.0]})

    monkeypatch.setattr("spinup.ppo", ppo)
    monkeypatch.setattr(networks, "mlp", lambda *args, **settings: first)
    Entry("1_2_gaussian_policy").checks.check(import_file(tmp_path / "nested.py"), "learning")
    assert all(torch.equal(p, q) for p, q in zip(nets[0].parameters(), first.parameters(), strict=True))
    assert isinstance(nets[0][1], torch.nn.Sequential)


@each
def test_exercise_has_four_hints_and_a_statement(entry):
    about = entry.about
    assert len(about["hints"]) == 4 and all(len(hint) > 20 for hint in about["hints"])
    assert 1 <= about["difficulty"] <= 5 and 5 <= about["minutes"][0] < about["minutes"][1] <= 60
    assert "**You are done when**" in entry.text and f"# # {entry.id} " in entry.text
    assert not static(entry, entry.text).passed or about["kind"] == "bug hunt"
    assert signatures(entry.text).keys() >= {function.name for function in entry.checks.functions}


# Catches: a placeholder for a number, such as @LOW; an image that is not copied to the workspace.
@each
def test_no_placeholder_is_left(entry):
    for folder in ("src", "checks"):
        lines = (CONTENT / folder / f"{entry.name}.py").read_text().splitlines()
        assert not re.findall(r"@[A-Z]\w*|\b(?:TODO|TBD|XXX)\b", "\n".join(x for x in lines if "# STUB:" not in x))
    statement = "\n".join(line for line in entry.text.splitlines() if line.startswith("#"))
    for picture in re.findall(r"!\[[^]]*\]\((.*?)\)", statement):
        assert picture == f"symptoms/{entry.name}.png" and (CONTENT / picture).exists()


# Catches: a description that differs from the object of the checks, whose creation imports torch.
@each
def test_description_read_without_the_checks_equals_that_of_the_checks(entry):
    exercise, about = entry.checks, entry.about
    assert {name: getattr(exercise, name) for name in ("kind", "minutes", "difficulty", "hints")} == {
        name: about[name] for name in ("kind", "minutes", "difficulty", "hints")}
    for level, checks in (("probe", exercise.probes), ("learning", exercise.learnings)):
        assert about[level] == " ".join((checks[0].__doc__ if checks else "").split()) and bool(about[level]) == bool(
            checks)


# Catches: a lost or split cell; a text that keeps its comment signs; a text cell that would be run.
@each
def test_notebook_has_the_same_text_and_code_as_the_file(entry):
    cells = json.loads(notebook(entry.text))["cells"]
    code = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "code")
    assert ast.dump(ast.parse(code)) == ast.dump(ast.parse(entry.text))
    comments = "\n".join(f"# {line}".rstrip() for cell in cells if cell["cell_type"] == "markdown"
                         for line in cell["source"].splitlines())
    assert comments == "\n".join(part.partition("\n")[2].split("\n# %%")[0].rstrip("\n") for part in
                                 entry.text.split("# %% [markdown]")[1:])
    assert [cell["id"] for cell in cells] == [f"cell-{i}" for i in range(len(cells))]


@each
def test_students_do_not_get_solutions(entry):
    assert all("SOLUTION" not in entry.given(suffix) for suffix in (".py", ".ipynb"))
    assert entry.solution != entry.text and "STUB" not in entry.solution
