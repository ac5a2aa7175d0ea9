"""The live table and the lines of a run, lines about work before a training, and folders in printed commands."""
import io
import os
import shlex
from types import SimpleNamespace

import pytest

from spinup.runs.display import Display, Screen, duration, quoted, tell_progress


# Catches: a table that a terminal cannot show; a value beside the name of another column; a missing column.
def test_live_table_shows_every_column_and_the_remaining_time():
    display, screen = Display("a run", "q", quiet=True), io.StringIO()
    display.console, display.quiet = Screen(file=screen, force_terminal=True, width=100, color_system=None), False
    display.live = SimpleNamespace(update=lambda table, refresh: display.console.print(table))
    row = {"epoch": 1, "steps": 500, "q": 2.5, "kl": 0.125, "entropy": 0.75, "steps_per_second": 100.0}
    display.row(row, total=1000)
    words = screen.getvalue().split()
    for column, value in {"q": "2.5", "kl": "0.125", "entropy": "0.75", "steps_per_second": "100"}.items():
        assert words[words.index(column) + 1] == value
    assert " ".join(words).endswith("500 / 1,000 steps 5 s left") and "epoch" not in words


def test_durations_are_printed_in_words():
    assert [duration(s) for s in (7.4, 200, 3900, 7500)] == ["7 s", "3 min 20 s", "1 h 05 min", "2 h 05 min"]


# Catches: an advised command that a shell reads as several words.
@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
@pytest.mark.parametrize("folder", ["runs/a/a_s1", "my runs/a_s1", "it's/a b", "runs/a&b;c", "a$b/(1)", "müller/é",
                                    "a\\b"])
def test_folder_in_a_command_is_one_shell_word(folder):
    assert shlex.split(f"spinup resume {quoted(folder)}") == ["spinup", "resume", folder]
    assert quoted("runs/a b") == '"runs/a b"'                             # works on Windows too


# Catches: a line for each batch; the elapsed time in place of the remaining time; a line at the end; output that
# --quiet does not suppress.
def test_long_work_prints_the_remaining_time(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr("spinup.runs.display.time.perf_counter", lambda: now[0])
    tell = tell_progress("sampling 4,000 responses", 4000, True)
    for seconds, done in ((5, 100), (20, 1000), (25, 1500), (95, 2000), (400, 4000)):
        now[0] = 100 + seconds
        tell(done)
    assert capsys.readouterr().out == ("sampling 4,000 responses\n1,000 of 4,000 done, 1 min 00 s left\n"
                                       "2,000 of 4,000 done, 1 min 35 s left\n")
    now[0] = 0.0
    tell = tell_progress("sampling", 10, False)
    now[0] = 50.0
    tell(5)
    assert capsys.readouterr().out == ""
