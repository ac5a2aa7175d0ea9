"""The command `spinup exercise`, as a student uses it."""
import json

import pytest

from spinup.exercises.build import notebook
from spinup.exercises.source import entries, find, todo
from spinup.exercises.workspace import STATE

FIRST, SECOND = entries()[:2]


@pytest.fixture
def folder(cli, tmp_path, monkeypatch):
    """The folder of a student, which is the working folder."""
    assert cli("exercise", "init", "work").code == 0
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def work(folder, in_this_process):
    """The same folder, with checks in this process."""
    return folder


def solve(work, entry):
    (work / f"{entry.name}.py").write_text(entry.solution)


def told(done):
    """The contents of the only line of output, which is JSON."""
    assert done.out.count("\n") == 1
    return json.loads(done.out)


# Catches: an unreadable file that ends the check of all others; an error for a byte order mark at the beginning of a
# file.
def test_damaged_file_does_not_stop_the_check_of_others(work, cli):
    (work / f"{FIRST.name}.py").write_bytes("# é".encode("latin-1"))
    (work / f"{SECOND.name}.py").write_text(SECOND.solution, encoding="utf-8-sig")
    done = cli("exercise", "check", "--all", "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 1 and [(each["exercise"], each["passed"]) for each in found] == [
        (FIRST.id, False), (SECOND.id, True)]
    assert "is damaged" in found[0]["message"]


# Catches: a finished function that is not checked while another one is still to do.
def test_finished_function_is_checked_before_the_next_is_written(work, cli):
    entry = find("1.3")
    text, (name, *_) = entry.text, todo(entry.text)
    half = text[:text.index("\ndef ", text.index(f"def {name}"))]
    solved = entry.solution[:entry.solution.index("\ndef ", entry.solution.index(f"def {name}"))]
    file = work / f"{entry.name}.py"
    file.write_text(solved + text[len(half):])
    done = cli("exercise", "check", "1.3")
    assert done.code == 1 and f"this is still to do; {name} is correct" in done.out and "TO DO" in done.out
    file.write_text(solved.replace("return ", "return 2 * ") + text[len(half):])
    done = cli("exercise", "check", "1.3")
    assert done.code == 1 and name in done.out and "still to do" not in done.out


# Catches: an earlier exercise that does not become the current one again; a repeated hint that counts as the next one;
# a notebook that a new, empty file hides.
def test_last_started_exercise_is_current_and_earlier_work_is_kept(work, cli):
    assert cli("exercise", "start", FIRST.id, "--notebook").code == 0
    assert cli("exercise", "start", SECOND.id).code == 0
    state = json.loads((work / STATE).read_text())
    state["exercises"][SECOND.id]["begun"] = "2000-01-01 00:00:00"
    (work / STATE).write_text(json.dumps(state))
    assert told(cli("exercise", "start", FIRST.id, "--json"))["file"].endswith(f"{FIRST.name}.ipynb")
    assert not (work / f"{FIRST.name}.py").exists()
    assert cli("exercise", "hint", "--again").code == 2
    first = told(cli("exercise", "hint", "--json"))
    assert first["exercise"] == FIRST.id and told(cli("exercise", "hint", "--again", "--json")) == first


# Catches: an exercise that counts as passed because it was started; the same exercise as the next one.
def test_student_goes_from_the_first_exercise_to_the_second(work, cli):
    begun = cli("exercise", "start")
    assert begun.code == 0 and FIRST.title in begun.out and f"spinup exercise check {FIRST.id}" in begun.out
    assert (work / f"{FIRST.name}.py").read_text() == FIRST.text
    left = cli("exercise", "check")
    assert left.code == 1 and "still to do" in left.out and f"spinup exercise hint {FIRST.id}" in left.out
    refused = cli("exercise", "solution")
    assert refused.code == 2 and "not passed" in refused.err and "--reveal" in refused.err
    hints = [cli("exercise", "hint").out for _ in range(5)]
    assert [text.count(" of 4  ") for text in hints] == [1, 2, 3, 4, 4]
    solve(work, FIRST)
    done = cli("exercise", "check")
    assert done.code == 0 and "PASS" in done.out and f"next: {SECOND.id} {SECOND.title}" in done.out
    assert cli("exercise", "solution").out == FIRST.solution
    assert f"{SECOND.name}.py" in cli("exercise", "start").out
    progress = cli("exercise", "progress").out
    assert f"1 of {len(entries())} passed" in progress and "2 checks, 4 hints; 0 solutions" in progress
    listed = cli("exercise", "list").out
    assert listed.count("passed") == 1 and listed.count("begun") == 1 and SECOND.id in listed


# Catches: a plural after the number 1.
def test_progress_counts_one_check_and_one_hint(work, cli):
    cli("exercise", "start")
    cli("exercise", "check")
    cli("exercise", "hint")
    assert "1 check, 1 hint; 0 solutions shown before passing" in cli("exercise", "progress").out


# Catches: an exercise that was passed once and can never be current again; an exercise that stays current after it is
# passed.
def test_passed_exercise_started_again_is_current_until_it_passes(work, cli):
    times = {"begun": "2026-01-03 00:00:00", "passed": "2026-01-02 00:00:00"}
    (work / STATE).write_text(json.dumps({"exercises": {FIRST.id: times, SECOND.id: {"begun": "2026-01-01 00:00:00"}}}))
    assert told(cli("exercise", "hint", "--json"))["exercise"] == FIRST.id
    times["passed"] = "2026-01-04 00:00:00"
    (work / STATE).write_text(json.dumps({"exercises": {FIRST.id: times, SECOND.id: {"begun": "2026-01-01 00:00:00"}}}))
    assert told(cli("exercise", "hint", "--json"))["exercise"] == SECOND.id


# Catches: the same description for all commands, although `start` has another default.
def test_help_describes_the_default_exercise_of_each_command(cli):
    assert "[the next that you have not passed]" in " ".join(cli("exercise", "start", "--help").out.split())
    for command in ("check", "hint"):
        shown = " ".join(cli("exercise", command, "--help").out.split())
        assert "[the last started that you have not passed since]" in shown


# Catches: an exception of the student's code that is taken for the reminder in an unfinished function.
def test_error_message_of_a_student_is_not_taken_for_an_unfinished_function(work, cli):
    text = find("3.1").solution.replace("    return adv\n", "    raise ValueError('nothing to do')\n")
    (work / "3_1_gae.py").write_text(text)
    done = cli("exercise", "check", "3.1")
    assert done.code == 1 and "nothing to do" in done.out and "NOT YET" in done.out


# Catches: a busy machine that costs a try, or for which a hint is offered.
def test_check_that_ran_out_of_time_does_not_count_as_a_try(work, cli, monkeypatch):
    from spinup.exercises import command
    from spinup.exercises.verdict import Verdict
    cli("exercise", "start", FIRST.id)
    late = Verdict(False, "property", "it was still running", checked=False)
    monkeypatch.setattr(command, "check", lambda entry, file: late)
    done = cli("exercise", "check")
    assert done.code == 1 and "NOT CHECKED" in done.out and "spinup exercise hint" not in done.out
    assert "tries" not in json.loads((work / STATE).read_text())["exercises"][FIRST.id]
    assert told(cli("exercise", "check", "--json"))["checked"] is False


# Catches: a figure that answers the questions before the student does.
def test_figure_of_a_prediction_comes_with_its_solution(work, cli):
    cli("exercise", "start", "2.1")
    cli("exercise", "start", "2.2")
    assert [p.name for p in (work / "symptoms").iterdir()] == ["2_2_silent_bug.png"]
    cli("exercise", "solution", "2.1", "--reveal")
    assert (work / "symptoms" / "2_1_value_function.png").exists()


def test_every_command_can_print_json(work, cli):
    assert told(cli("exercise", "start", "--json"))["file"].endswith(f"{FIRST.name}.py")
    found = told(cli("exercise", "check", "--json"))
    assert not found["passed"] and found["level"] == "static" and found["line"] > 0
    assert len(told(cli("exercise", "hint", "--json"))["hints"]) == 1
    assert "SOLUTION" not in told(cli("exercise", "solution", "--json", "--reveal"))["solution"]
    assert told(cli("exercise", "progress", "--json")) == {"passed": [], "of": len(entries()), "hints": 1, "tries": 1,
                                                          "next": FIRST.id}
    rows = told(cli("exercise", "list", "--json"))["exercises"]
    assert [row["state"] for row in rows] == ["begun", *[""] * (len(entries()) - 1)]
    assert json.loads((work / STATE).read_text())["exercises"][FIRST.id]["revealed"]


def test_reset_keeps_a_backup_of_the_file(work, cli):
    cli("exercise", "start")
    mine = work / f"{FIRST.name}.py"
    for text in "one", "two":
        mine.write_text(text)
        assert cli("exercise", "reset").code == 0
        assert mine.read_text() == FIRST.text
    assert sorted(p.read_text() for p in work.glob("*.bak")) == ["one", "two"]


def test_start_and_init_do_not_overwrite_work(work, cli):
    cli("exercise", "start", FIRST.id)
    (work / f"{FIRST.name}.py").write_text("mine")
    cli("exercise", "start", FIRST.id)
    (work / "AGENTS.md").write_text("mine")
    cli("exercise", "init", ".")
    assert (work / f"{FIRST.name}.py").read_text() == (work / "AGENTS.md").read_text() == "mine"
    assert FIRST.id in json.loads((work / STATE).read_text())["exercises"]


# Catches: a notebook that is written and never checked.
def test_file_or_notebook_that_was_saved_last_is_checked(work, cli):
    cli("exercise", "start", FIRST.id)
    cli("exercise", "start", FIRST.id, "--notebook")
    (work / f"{FIRST.name}.ipynb").write_text(notebook(FIRST.solution))
    assert cli("exercise", "check").code == 0
    (work / f"{FIRST.name}.py").write_text(FIRST.text)
    assert cli("exercise", "check").code == 1


# Catches: a state that is incomplete when it is written; a wrong file that changes which exercises are passed.
@pytest.mark.parametrize("text", ["def (", "exit()", "import os; os._exit(1)"])
def test_wrong_file_does_not_damage_the_state(text, folder, cli):
    work = folder
    (work / STATE).write_text(json.dumps({"exercises": {FIRST.id: {"tries": 1, "passed": "2026-01-01 00:00:00"}}}))
    before = json.loads((work / STATE).read_text())["exercises"][FIRST.id]
    (work / f"{FIRST.name}.py").write_text(FIRST.text + text)
    assert cli("exercise", "check", FIRST.id).code == 1
    after = json.loads((work / STATE).read_text())["exercises"][FIRST.id]
    assert after == {**before, "tries": 2}


def test_watch_checks_until_the_exercise_passes(work, cli, monkeypatch):
    from spinup.exercises import command
    saves = iter([lambda: (work / f"{FIRST.name}.py").write_text("wrong("), lambda: None, lambda: solve(work, FIRST)])
    monkeypatch.setattr(command, "pause", lambda: next(saves)())
    done = cli("exercise", "watch", FIRST.id)
    assert done.code == 0 and done.out.count("NOT YET") == 1 and done.out.count("TO DO") == 1 and "PASS" in done.out


# Catches: a traceback if the file is missing for a moment, because an editor saves it by renaming.
def test_watch_continues_while_the_file_is_missing(work, cli, monkeypatch):
    from spinup.exercises import command
    saves = iter([(work / f"{FIRST.name}.py").unlink, lambda: None, lambda: solve(work, FIRST)])
    monkeypatch.setattr(command, "pause", lambda: next(saves)())
    done = cli("exercise", "watch", FIRST.id)
    assert done.code == 0 and done.out.count("TO DO") == 1 and "PASS" in done.out


def test_several_exercises_are_checked_at_once(work, cli):
    assert "no exercise has been started here" in cli("exercise", "check", "--all").err
    for entry in (FIRST, SECOND):
        cli("exercise", "start", entry.id)
    solve(work, FIRST)
    done = cli("exercise", "check", "--all")
    assert done.code == 1 and f"1 of 2 pass: {FIRST.id} yes, {SECOND.id} no" in done.out
    rows = [json.loads(line) for line in cli("exercise", "check", SECOND.id, FIRST.id, "--json").out.splitlines()]
    assert [(row["exercise"], row["passed"]) for row in rows] == [(SECOND.id, False), (FIRST.id, True)]


@pytest.mark.parametrize("words, said", [
    (("exercise", "chek"), "Did you mean 'check'"), (("exercise", "check", "9.9"), "no exercise '9.9'"),
    (("exercise", "check", FIRST.id), f"does not exist yet; type: spinup exercise start {FIRST.id}"),
    (("exercise", "check", "--ful"), "no flag --ful. Did you mean '--full'")])
def test_wrong_arguments_get_an_error_with_what_to_type(words, said, work, cli):
    done = cli(*words)
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1


def test_other_folder_gets_the_command_that_creates_the_exercises(cli):
    done = cli("exercise", "start")
    assert done.code == 2 and "spinup exercise init" in done.err
    assert "spinup exercise init DIR" in cli("exercise").out


# Catches: a list that needs a folder of exercises; a folder or a file that remains after listing.
def test_exercises_can_be_listed_in_any_folder(cli, tree):
    listed = cli("exercise", "list")
    assert listed.code == 0 and all(entry.title in listed.out for entry in (FIRST, SECOND))
    rows = told(cli("exercise", "list", "--json"))["exercises"]
    assert [row["id"] for row in rows] == [entry.id for entry in entries()] and not any(row["state"] for row in rows)
    assert tree() == []


# Catches: an uncaught error of the operating system for a folder that cannot be created.
def test_folder_below_a_file_is_refused(tmp_path, cli):
    (tmp_path / "mine").write_text("")
    done = cli("exercise", "init", "mine/rl")
    assert done.code == 2 and done.err.count("\n") == 1 and "cannot create mine/rl (not a directory)" in done.err


# Catches: a state that is valid JSON and whose contents are not checked.
@pytest.mark.parametrize("text", ["{", "[]", '{"exercises": []}', '{"exercises": {"1.1": 3}}',
                                  '{"exercises": {"1.1": {"hints": "x"}}}', '{"exercises": {"1.1": ["hints"]}}',
                                  '{"exercises": {"1.1": {"tries": null}}}', '{"exercises": {"1.1": {"passed": 3}}}'])
def test_damaged_state_is_named(text, work, cli):
    (work / STATE).write_text(text)
    for words in ("list",), ("check",), ("start",), ("init", "."):
        done = cli("exercise", *words)
        assert done.code == 2 and "state.json is damaged; remove it" in done.err and done.err.count("\n") == 1
    assert (work / STATE).read_text() == text


# Catches: a probe that prevents passing, or whose failure is missing in the JSON.
def test_probe_is_reported_but_not_required_to_pass(work, cli, monkeypatch):
    from spinup.exercises import command
    from spinup.exercises.verdict import Verdict, check
    name = next(e for e in entries() if e.id == "3.3")                    # this exercise has a probe
    cli("exercise", "start", "3.3")
    solve(work, name)
    monkeypatch.setattr(command, "check", lambda entry, file, level="property": check(entry, file)
                        if level == "property" else Verdict(False, level, "the probe says no"))
    words = cli("exercise", "check", "3.3", "--full")
    assert words.code == 0 and "PASS" in words.out and "the probe says no" in words.out
    data = told(cli("exercise", "check", "3.3", "--full", "--json"))
    assert data["passed"] and data["probe"] == {"passed": False, "checked": True, "message": "the probe says no"}
