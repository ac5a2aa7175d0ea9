"""The documentation of the exercises agrees with the commands."""
import json
import re
from pathlib import Path

import pytest

import spinup
from spinup.exercises.source import Entry, entries, to_start
from spinup.exercises.verdict import check

DOCS = Path(spinup.__file__).parents[1] / "docs"
PAGE = (DOCS / "exercises.md").read_text()


# Catches: a message or a line number in the page that comes from older code.
@pytest.mark.parametrize("name, line, instead", [
    ("3_1_gae", "", ""), ("3_1_gae", "next_value * ~terminated", "next_value"),
    ("3_2_clipped_objective", "return -torch", "return -2 * torch")])
def test_page_shows_the_current_messages_of_a_check(name, line, instead, tmp_path, in_this_process):
    text = Entry(name).solution.replace(line, instead) if line else Entry(name).text
    (tmp_path / f"{name}.py").write_text(text)
    found = check(Entry(name), tmp_path / f"{name}.py")
    assert not found.passed and "\n".join(f"    {row}" for row in found.message.splitlines()) in PAGE


def test_page_lists_every_exercise_with_its_current_data():
    rows = re.findall(r"^\| (\d\.\d) \| (.+?) \| (.+?) \| (\d+)-(\d+) \| (\d) of 5 \|", PAGE, re.MULTILINE)
    assert rows == [(e.id, e.title.removeprefix("Bug hunt: ").capitalize() if "Bug hunt" in e.title else e.title,
                     e.about["kind"], *map(str, e.about["minutes"]), str(e.about["difficulty"])) for e in entries()]
    assert f"{len(entries())}, with checks" in (DOCS / "index.md").read_text()


def test_start_follows_the_path_of_the_page():
    rows = re.findall(r"^\| \d \| ([\d., a-z]+?) \|", PAGE, re.MULTILINE)
    path = re.findall(r"\d\.\d", " ".join(rows))
    order = [e.id for e in to_start()]
    assert path and order[:len(path)] == path and order[len(path):] == sorted({e.id for e in entries()} - {*path})


def test_page_shows_the_json_of_a_hint(cli, tmp_path, monkeypatch):
    cli("exercise", "init", "work")
    monkeypatch.chdir(tmp_path / "work")
    assert cli("exercise", "hint", "2.2", "--json").out.strip() in PAGE
    assert json.loads(cli("exercise", "start", "3.1", "--json").out)["title"] in PAGE


# Catches: a bug hunt that the page about mistakes does not mention.
def test_page_about_mistakes_names_every_bug_hunt():
    page = (DOCS / "research" / "craft.md").read_text()
    hunts = [e.id for e in entries() if e.about["kind"] == "bug hunt"]
    told = page[page.index("The bug hunts among the exercises"):].split("\n\n")[0]
    assert re.findall(r"\((\d\.\d)\)", told) == hunts
