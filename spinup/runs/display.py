"""Output of a run during training: a live table in a terminal, plain lines in a pipe."""
import contextlib
import math
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from spinup.runs.hooks import Hooks

SHORT = {"return_mean_100": "return", "held_out_gold": "true held-out reward"}                 # for others see `short`
PLAIN_LINES = 10        # approximate number of lines that a run prints in a pipe
TELL_EVERY = 10         # seconds between two lines about the work before training


def short(column: str) -> str:
    """Return the name of a column of `progress.csv` in words."""
    return SHORT.get(column, column.replace("held_out", "held-out").replace("_", " "))


def duration(seconds: float) -> str:
    """Format seconds: `7 s`, `3 min 20 s`, `1 h 05 min`."""
    s = round(seconds)
    if s < 60:
        return f"{s} s"
    return f"{s // 60} min {s % 60:02d} s" if s < 3600 else f"{s // 3600} h {s % 3600 // 60:02d} min"


def tell_progress(words: str, wanted: int, shown: bool) -> Callable[[int], None]:
    """Print `words`, and return a function that takes the number of `wanted` things done and prints the time left.

    It prints at most every `TELL_EVERY` seconds. shown: False prints nothing.
    """
    began = last = time.perf_counter()
    if shown:
        print(words, flush=True)

    def tell(done: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if shown and 0 < done < wanted and now - last >= TELL_EVERY:
            last = now
            print(f"{done:,} of {wanted:,} done, {duration((now - began) * (wanted - done) / done)} left", flush=True)
    return tell


def pace(rate: float) -> str:
    """Format a rate in steps per second, with at least two digits."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def kind_of(sentence: str) -> str:
    """Return a sentence without its numbers: equal for two sentences that say the same about different rows."""
    return re.sub(r"[\d.,%+-]+|e[+-]?\d+", "", sentence)


def quoted(folder: str) -> str:
    """Quote a folder for the shell if it contains a space or another special character. A leading dash gets ./ in
    front, because it would begin a flag."""
    folder = f"./{folder}" if folder.startswith("-") else folder
    safe = r"\w./:+@%,=\-\udc80-\udcff" + (r"\\" if os.name != "posix" else "")         # surrogates: non-ASCII bytes
    if re.fullmatch(f"[{safe}]*", folder):
        return folder
    plain = re.fullmatch(rf"[{safe}\s]*", folder) or os.name != "posix"  # these quotes are the same in all shells
    return f'"{folder}"' if plain else shlex.quote(folder)


def number(x: float) -> str:
    """Format a number with at most four significant digits and a thousands separator."""
    if isinstance(x, float) and math.isnan(x):
        return "-"
    if isinstance(x, int) or float(x).is_integer() and abs(x) < 1e15:
        return f"{x:,.0f}"
    return f"{x:,.1f}" if abs(x) >= 100 else f"{x:.4g}"


class Screen(Console):
    """The terminal or its replacement. If writing fails, it becomes silent and training continues."""

    def on_broken_pipe(self) -> None:
        self.silence()

    def silence(self) -> None:
        """Stop writing and discard the buffer."""
        self.quiet = True
        no_output()


def no_output() -> None:
    """Redirect standard output to nowhere, so that Python's last flush does not fail."""
    with contextlib.suppress(OSError, ValueError, AttributeError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def say(line: str) -> None:
    """Print a line of a training run; ignore errors of the output."""
    try:
        print(line, flush=True)
    except OSError:
        no_output()


class Display:
    """Live display of rows. `measure` is the column that measures the quality of the policy, `unit` the name of a step.
    """

    def __init__(self, title: str, measure: str, quiet: bool, unit: str = "steps"):
        self.title, self.measure, self.quiet, self.unit = title, measure, quiet, unit
        self.console = Screen()
        self.live = None
        self.lines = 0
        self.said: set[str] = set()
        if not quiet:
            self.say(title)
            if self.console.is_terminal and not self.console.is_jupyter:
                self.live = Live(console=self.console, auto_refresh=False, transient=False)
                self.live.start()

    def say(self, text: str) -> None:
        """Print a separate line."""
        if not self.quiet:
            with self._writing():
                self.console.print(Text(text), soft_wrap=True)
                sys.stdout.flush()

    def say_once(self, sentence: str) -> None:
        """Print a sentence unless it was printed before, perhaps with other numbers."""
        if (kind := kind_of(sentence)) not in self.said:
            self.said.add(kind)
            self.say(sentence)

    def row(self, row: dict[str, float], total: int) -> None:
        """Show the newest row of a run of `total` steps."""
        if self.quiet:
            return
        self.total = total
        steps, rate = row["steps"], row["steps_per_second"]
        left = f"{duration(max(0, total - steps) / max(rate, 1e-9))} left" if steps else "time left not known yet"
        if self.live is not None:
            with self._writing():
                self.live.update(self._table(row, left), refresh=True)
        elif steps * PLAIN_LINES >= self.total * self.lines:
            self.lines = steps * PLAIN_LINES // self.total + 1
            self.say(f"{steps:>11,} / {self.total:,} {self.unit}   {short(self.measure)} "
                     f"{number(row[self.measure]):>8}   {pace(rate):>8} steps/s   {left}")

    def _table(self, row: dict[str, float], left: str) -> Group:
        table = Table(box=None, show_header=False, padding=(0, 2))
        for _ in range(2):
            table.add_column()
            table.add_column(min_width=10)                                # so that columns do not move between rows
        items = [(k, number(v)) for k, v in row.items() if k not in ("epoch", "steps")]
        half = (len(items) + 1) // 2
        for i in range(half):
            pair = [items[i], items[half + i] if half + i < len(items) else ("", "")]
            table.add_row(*(cell for name, value in pair for cell in (Text(name, "dim"), Text(value, "bold"))))
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(total=self.total, completed=row["steps"], width=40),
                    f"{row['steps']:,} / {self.total:,} {self.unit}", Text(left, "dim"))
        return Group(table, bar)

    def close(self) -> None:
        """Stop the live display and leave the last lines on the screen."""
        if self.live is not None:
            with self._writing():
                self.live.stop()
            self.live = None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Become silent if the output is closed or its disk is full."""
        try:
            yield
        except OSError:
            self.quiet = True
            self.console.silence()


def ending(folder: str, steps: int, seconds: float, run: Hooks) -> Iterator[str]:
    """Yield the last lines of a run: its result, and the commands that continue it.

    steps: those of the run so far. seconds: its training time.
    """
    if run.status == "finished":
        yield f"{steps:,} {run.unit} in {duration(seconds)}, {pace(steps / seconds)} a second; {run.summary()}"
        yield from (f"  {kind}: {folder}/{name}" for kind, name in run.results.items())
        more = {"resume": f" --total-steps {2 * steps}"}                  # otherwise there is nothing left to do
        yield "\n".join(f"  {run.program if w == 'resume' else 'spinup'} {w} {quoted(folder)}{more.get(w, '')}"
                        for w in run.next_words if w != "resume" or run.may_grow)
    else:
        how = f"type:\n  {run.program} resume {quoted(folder)}" if "resume" in run.next_words else (
            f"call the same function with resume={folder!r}")
        yield f"interrupted after {steps:,} {run.unit}{' and saved' if steps else ''}; to resume, {how}"
