"""The command `spinup exercise`: start an exercise, check it, show hints and progress."""
import shlex
import sys
import time
from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from spinup.errors import UserError, nearest
from spinup.exercises.build import STILL
from spinup.exercises.source import Entry, entries, find, to_start
from spinup.exercises.terminal import CURRENT, Say, parsed, with_id
from spinup.exercises.verdict import Verdict, check
from spinup.exercises.workspace import Workspace, stamp
from spinup.parser import Parser, path_of

HELP = """\
usage: spinup exercise COMMAND ...

  spinup exercise init DIR                make a folder for your work
  spinup exercise list                    list all exercises, with time and whether you passed
  spinup exercise start [ID]              write the file of exercise ID, or of the next one  [--notebook]
  spinup exercise check [ID ...]          check your code, name what is wrong  [--full: training too; --all]
  spinup exercise watch [ID]              check again each time you save the file
  spinup exercise hint [ID]               show a hint; each of the four reveals more  [--again: only earlier ones]
  spinup exercise solution [ID]           show our solution after you have passed, or with --reveal
  spinup exercise reset [ID]              restore the original file; your version is kept beside it
  spinup exercise progress                show how many exercises you have passed

Without ID, a command uses the exercise that you started last and have not passed since. --json prints lines of JSON.
"""
LOOKS = 0.5             # seconds between checks of a watched file


def current(workspace: Workspace, word: str) -> Entry:
    """Return the exercise for a command: the named one, else the last one started and not passed since, else the last
    passed, else the first."""
    if word:
        return find(word)
    begun = [e for e in entries() if workspace.of(e).get("begun", "") > workspace.of(e).get("passed", "")]
    if begun:
        return max(begun, key=lambda e: workspace.of(e)["begun"])
    passed = [e for e in entries() if "passed" in workspace.of(e)]
    return max(passed, key=lambda e: workspace.of(e)["passed"]) if passed else entries()[0]


def upcoming(workspace: Workspace) -> Entry | None:
    """Return the next exercise that is not passed; None if all are."""
    return next((e for e in to_start() if "passed" not in workspace.of(e)), None)


def init(argv: list[str]) -> int:
    parser = Parser("spinup exercise init", "Make a folder for your work on the exercises.")
    parser.add_argument("directory", type=path_of, metavar="DIR")
    args, say = parsed(parser, argv)
    if args.directory.exists() and not args.directory.is_dir():
        raise UserError(f"{args.directory} is a file; choose another name")
    workspace = Workspace.create(args.directory)
    say(f"{len(entries())} exercises are ready. Start with:")
    say(f"  cd {shlex.quote(str(args.directory))} && spinup exercise start", "bold")
    say.data(directory=str(workspace.folder), exercises=len(entries()))
    return 0


def list_(argv: list[str]) -> int:
    args, say = parsed(Parser("spinup exercise list", "List all exercises."), argv)
    workspace = Workspace.around()
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("", "id", "exercise", "kind", "minutes", "difficulty", "hints"):
        table.add_column(column, justify="right" if column in ("minutes", "hints") else "left")
    rows = []
    for entry in entries():
        known, about = workspace.of(entry) if workspace else {}, entry.about
        mark = "passed" if "passed" in known else "begun" if "begun" in known else ""
        table.add_row(Text(mark, "green" if mark == "passed" else "yellow"), entry.id, entry.title, about["kind"],
                      "{}-{}".format(*about["minutes"]), f"{about['difficulty']} of 5", str(known.get("hints", "")))
        rows.append({"id": entry.id, "title": entry.title, "state": mark, **about, "hints": known.get("hints", 0)})
    if not args.json:
        say.console.print(table)
    say.data(exercises=rows)
    return 0


def start(argv: list[str]) -> int:
    parser = with_id(Parser("spinup exercise start", "Write the file of an exercise, unless it exists."),
                     "the next that you have not passed")
    parser.add_argument("--notebook", action="store_true", default=False, help="a notebook instead of a Python file")
    args, say = parsed(parser, argv)
    workspace = Workspace.here()
    entry = find(args.id) if args.id else upcoming(workspace)
    if entry is None:
        say("You have passed all exercises. `spinup exercise reset ID` restores the original file of one; yours is "
            "kept beside it.", "green")
        say.data(exercise=None)
        return 0
    path = workspace.begin(entry, args.notebook)
    workspace.note(entry, begun=stamp())                                  # now the current one, even if it is not new
    say(f"{entry.id} {entry.title}", "bold")
    say("{} · {}-{} minutes · difficulty {} of 5".format(entry.about["kind"], *entry.about["minutes"],
                                                        entry.about["difficulty"]))
    say()
    say(f"docs/exercises.md lists what to read first. Open {path} in your editor and read the task at its top. Then:")
    say(f"  spinup exercise check {entry.id}", "bold")
    say.data(exercise=entry.id, title=entry.title, file=str(path))
    return 0


def check_(argv: list[str]) -> int:
    parser = Parser("spinup exercise check", "Check your code, and name what is wrong.")
    parser.add_argument("ids", nargs="*", default=[], metavar="ID",
                        help=f"such as 2.1, or several. [{CURRENT}]")
    parser.add_argument("--all", action="store_true", default=False, help="check every exercise with a file here")
    parser.add_argument("--full", action="store_true", default=False,
                        help="also train with your code: on the smallest task that shows a mistake, then on a "
                             "real one; this takes minutes")
    args, say = parsed(parser, argv)
    workspace = Workspace.here()
    if args.all:
        chosen = [entry for entry in entries() if workspace.file(entry).exists()]
        if not chosen:
            raise UserError("no exercise has been started here; type: spinup exercise start")
    else:
        chosen = [find(word) for word in args.ids] or [current(workspace, "")]
    passed = [report(workspace, entry, args.full, say).passed for entry in chosen]
    if len(chosen) > 1:
        say(f"\n{sum(passed)} of {len(passed)} pass: " + ", ".join(
            f"{entry.id} {'yes' if right else 'no'}" for entry, right in zip(chosen, passed, strict=True)), "bold")
    return 0 if all(passed) else 1


def report(workspace: Workspace, entry: Entry, full: bool, say: Say) -> Verdict:
    """Check a file, print and record the verdict. Training, with `full`, does not decide whether it is passed.

    UserError if the file does not exist yet.
    """
    file = workspace.file(entry)
    if not file.exists():
        raise UserError(f"{file.name} does not exist yet; type: spinup exercise start {entry.id}")
    try:
        verdict = check(entry, file)
    except UserError as error:                                            # unreadable; the others are still checked
        verdict = Verdict(False, "static", str(error))
    if verdict.checked:
        workspace.note(entry, tries=workspace.of(entry).get("tries", 0) + 1)
    if verdict.passed:
        workspace.note(entry, passed=stamp())
        say(f"PASS  {entry.id} {entry.title}  ({verdict.took:.1f} s)", "bold green")
    else:
        say("TO DO" if STILL in verdict.message else "NOT YET" if verdict.checked else "NOT CHECKED", "bold yellow")
        say(verdict.message)
    if verdict.printed:
        say("\nYour file printed:", "dim")
        say(verdict.printed)
    slow = [name for name in ("probe", "learning") if entry.about[name]]
    learned = {}
    if verdict.passed and full:
        for level in slow:
            say(f"{level}: {entry.about[level]} ...", "dim")
            found = check(entry, file, level)
            verdict.seconds |= found.seconds
            learned[level] = {"passed": found.passed, "checked": found.checked, "message": found.message}
            said = f"yes ({found.took:.0f} s)" if found.passed else found.message
            say(f"  {said}", "green" if found.passed else "yellow")
    say()
    if verdict.passed:
        say(f"spinup exercise solution {entry.id}    show our solution", "dim")
        if slow and not full:
            say(f"spinup exercise check {entry.id} --full    train with your code", "dim")
        after = upcoming(workspace)
        say(f"spinup exercise start    next: {after.id} {after.title}" if after else "That was the last one.", "dim")
    elif verdict.checked:
        say(f"spinup exercise hint {entry.id}    if you are stuck", "dim")
    say.data(exercise=entry.id, **verdict.as_dict(), **learned)
    return verdict


def watch(argv: list[str]) -> int:
    about = "Check each time you save, until you pass; Ctrl-C ends."
    args, say = parsed(with_id(Parser("spinup exercise watch", about)), argv)
    workspace, seen = Workspace.here(), -1.0
    entry = current(workspace, args.id)
    workspace.begin(entry)
    while True:
        try:
            changed = workspace.file(entry).stat().st_mtime
        except FileNotFoundError:
            changed = seen                                                # an editor is about to save it again
        if changed != seen:
            seen = changed
            if say.console.is_terminal and not args.json:
                say.console.clear()
            if report(workspace, entry, False, say).passed:
                return 0
            say(f"\nwatching {workspace.file(entry).name}; Ctrl-C ends", "dim")
        pause()


def pause() -> None:
    """Wait before the next check of a file."""
    time.sleep(LOOKS)


def hint(argv: list[str]) -> int:
    parser = with_id(Parser("spinup exercise hint", "Show the next hint."))
    parser.add_argument("--again", action="store_true", default=False, help="only show the earlier hints again")
    args, say = parsed(parser, argv)
    workspace = Workspace.here()
    entry = current(workspace, args.id)
    hints, seen = entry.about["hints"], workspace.of(entry).get("hints", 0)
    if args.again and not seen:
        raise UserError(f"you have not seen a hint of {entry.id} yet; type: spinup exercise hint {entry.id}")
    if not args.again:
        workspace.note(entry, hints=min(seen + 1, len(hints)))
        seen = workspace.of(entry)["hints"]
    for number, text in enumerate(hints[:seen], 1):
        say(f"{number} of {len(hints)}  {text}", "" if number == seen else "dim")
    say.data(exercise=entry.id, hints=hints[:seen], of=len(hints))
    return 0


def solution(argv: list[str]) -> int:
    parser = with_id(Parser("spinup exercise solution", "Show our solution."))
    parser.add_argument("--reveal", action="store_true", default=False, help="show it before you have passed")
    args, say = parsed(parser, argv)
    workspace = Workspace.here()
    entry = current(workspace, args.id)
    if "passed" not in workspace.of(entry):
        if not args.reveal:
            raise UserError(f"you have not passed {entry.id} yet; `spinup exercise hint {entry.id}` helps, and "
                            f"`spinup exercise solution {entry.id} --reveal` shows it anyway")
        workspace.note(entry, revealed=stamp())
    workspace.show(entry)
    text = entry.solution
    if say.console.is_terminal and not args.json:
        from rich.syntax import Syntax
        say.console.print(Syntax(text, "python", background_color="default"))
    elif not args.json:
        print(text, end="")                                               # to a file: do not wrap lines
    say.data(exercise=entry.id, solution=text)
    return 0


def reset(argv: list[str]) -> int:
    args, say = parsed(with_id(Parser("spinup exercise reset", "Restore the original; your version is kept.")), argv)
    workspace = Workspace.here()
    entry = current(workspace, args.id)
    path, kept = workspace.reset(entry)
    workspace.note(entry, begun=stamp())                                  # now the current one
    say(f"{path.name} is the original file again." + (f" Your version is {kept.name}." if kept else ""))
    say.data(exercise=entry.id, file=str(path), kept=str(kept or ""))
    return 0


def progress(argv: list[str]) -> int:
    args, say = parsed(Parser("spinup exercise progress", "Show how many exercises you have passed."), argv)
    workspace, known = Workspace.here(), entries()
    passed = [e for e in known if "passed" in workspace.of(e)]
    full = round(30 * len(passed) / len(known))
    bar = "█" * full + "░" * (30 - full) if (sys.stdout.encoding or "").lower().startswith("utf") else (
        "#" * full + "." * (30 - full))
    say(f"{bar}  {len(passed)} of {len(known)} passed")
    used = sum(workspace.of(e).get("hints", 0) for e in known)
    tries = sum(workspace.of(e).get("tries", 0) for e in known)
    seen = sum("revealed" in workspace.of(e) for e in known)
    counts = [f"{n} {word}{'s' * (n != 1)}" for n, word in ((tries, "check"), (used, "hint"), (seen, "solution"))]
    say("{}, {}; {} shown before passing".format(*counts))
    after = upcoming(workspace)
    say(f"next: {after.id} {after.title}" if after else "You have passed all exercises.")
    say.data(passed=[e.id for e in passed], of=len(known), hints=used, tries=tries, next=after.id if after else None)
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "init": init, "list": list_, "start": start, "check": check_, "watch": watch, "hint": hint, "solution": solution,
    "reset": reset, "progress": progress}


def exercise(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(HELP, end="")
        return 0
    if argv[0] not in COMMANDS:
        raise UserError(f"there is no command {argv[0]!r}.{nearest(argv[0], COMMANDS)} `spinup exercise` lists them")
    return COMMANDS[argv[0]](argv[1:])
