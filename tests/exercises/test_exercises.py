"""What an author promises: no exercise is solved as given, every solution passes, every known mistake is named."""
import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from spinup.exercises.checks import Wrong
from spinup.exercises.source import CONTENT, Entry, entries, load, signatures
from spinup.exercises.verdict import check, static

ENTRIES = entries()
each = pytest.mark.parametrize("entry", ENTRIES, ids=[e.name for e in ENTRIES])
pytestmark = pytest.mark.usefixtures("forked_checks")


def solved(entry):
    return load(CONTENT / "solutions" / f"{entry.name}.py")


# Turned red by: an exercise that is solved as it is given; a bug hunt without its bug.
@each
def test_no_exercise_passes_as_it_is_given(entry):
    verdict = check(entry, CONTENT / "student" / f"{entry.name}.py")
    assert not verdict.passed
    if entry.about["kind"] == "bug hunt":
        assert verdict.level == "property"
    else:
        assert verdict.level == "static" and "to do" in verdict.message and re.search(r"line \d+", verdict.message)


@each
def test_every_solution_passes_in_time(entry):
    verdict = check(entry, CONTENT / "solutions" / f"{entry.name}.py")
    assert verdict.passed, verdict.message
    assert sum(verdict.seconds.values()) < 3


# Turned red by: a mistake that the cases do not tell from the right answer or from another mistake.
@each
def test_every_mistake_is_told_by_its_own_name(entry):
    exercise, right = entry.checks, solved(entry)
    assert sum(len(function.mistakes) for function in exercise.functions) >= 3
    messages = [message for function in exercise.functions for message, _ in function.mistakes]
    assert len(set(messages)) == len(messages)
    for function in exercise.functions:
        for message, mistaken in function.mistakes:
            student = SimpleNamespace(**{**vars(right), function.name: mistaken})
            with pytest.raises(Wrong) as found:
                exercise.check(student, "property")
            assert str(found.value) == message


# Turned red by: cases of 3.1 that never set both flags, episodes of 5.1 that all begin at 0 and whose steps only lead
# forward or far from any restart, no token of 4.1, 5.4, 5.6 that counts and is NaN.
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
def test_an_answer_that_is_right_by_luck_does_not_pass(name, line, instead, tmp_path):
    text = (CONTENT / "solutions" / f"{name}.py").read_text()
    assert text.count(line) == 1
    (tmp_path / f"{name}.py").write_text(text.replace(line, instead))
    with pytest.raises(Wrong):
        Entry(name).checks.check(load(tmp_path / f"{name}.py"), "property")


@each
def test_there_are_four_hints_and_a_statement(entry):
    about = entry.about
    assert len(about["hints"]) == 4 and all(len(hint) > 20 for hint in about["hints"])
    assert 1 <= about["difficulty"] <= 5 and 5 <= about["minutes"][0] < about["minutes"][1] <= 60
    assert "**You are done when**" in entry.text and f"# # {entry.id} " in entry.text
    assert not static(entry, entry.text).passed or about["kind"] == "bug hunt"
    assert signatures(entry.text).keys() >= {function.name for function in entry.checks.functions}


# Turned red by: a number that was to be filled in and was not, such as @LOW; a picture that the workspace does not get.
@each
def test_nothing_is_left_to_fill_in(entry):
    for folder in ("src", "checks"):
        lines = (CONTENT / folder / f"{entry.name}.py").read_text().splitlines()
        assert not re.findall(r"@[A-Z]\w*|\b(?:TODO|TBD|XXX)\b", "\n".join(x for x in lines if "# STUB:" not in x))
    statement = "\n".join(line for line in entry.text.splitlines() if line.startswith("#"))
    for picture in re.findall(r"!\[[^]]*\]\((.*?)\)", statement):
        assert picture == f"symptoms/{entry.name}.png" and (CONTENT / picture).exists()


def test_what_students_get_is_what_the_sources_say():
    spec = importlib.util.spec_from_file_location("build", CONTENT / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    assert not build.stale()


def test_students_do_not_get_solutions():
    for entry in ENTRIES:
        for name in (f"{entry.name}.py", f"{entry.name}.ipynb"):
            assert "SOLUTION" not in (Path(CONTENT) / "student" / name).read_text()
