"""The `spinup` command. Heavy modules are imported only when needed: `spinup --help` does not wait for torch.

Each file of this folder has the commands of one group, `COMMANDS`, and their help, `HELP`.
"""
import codecs
import errno
import gc
import io
import os
import sys
import textwrap
import traceback
from typing import NoReturn

from llm import cli as llm_cli
from spinup import registry, signals
from spinup.cli import bench, compete, data, know, learn, look, train
from spinup.errors import EnvironmentFailure, NonFiniteError, UserError, WorkerError, nearest, out_of_memory

GROUPS = (train, look, data, compete, learn, know, bench)
COMMANDS = {name: command for group in GROUPS for name, command in group.COMMANDS.items()}
registry.COMMANDS[""] |= {*COMMANDS, "llm", "help"}
KEPT = (["returns"], ["suite"], ["paper"], ["accuracy"])                  # benchmarks that keep finished runs


def main(argv: list[str] | None = None) -> NoReturn:
    """Run a command and exit with a code: 0 success, 1 failure, 2 wrong input, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP."""
    argv = sys.argv[1:] if argv is None else argv
    gc.set_threshold(50_000)                  # with 700, garbage collection takes a fifth of torch's import time
    if "" not in sys.path:                                                # the working folder: --env module:Id-v0
        sys.path.append("")
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if codecs.lookup(stream.encoding).name == "ascii":            # a locale such as C
                stream.reconfigure(encoding="utf-8", errors="surrogateescape")        # file names with accents
            else:
                stream.reconfigure(errors="backslashreplace")
    try:
        code = run(argv)
        sys.stdout.flush()
    except UserError as error:
        print(f"spinup: {' '.join(str(error).splitlines())}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt as error:
        stored = argv[:1] in (["grid"], ["tune"]) or argv[:1] == ["bench"] and argv[1:2] in KEPT
        kept = " (finished runs are not repeated)" if stored else ""
        again = f"interrupted; to start again, type the same command{kept}"
        print(*(error.args or (again,)), file=sys.stderr)
        code = signals.exit_code()
    except OSError as error:
        from spinup.runs.display import no_output
        from spinup.runs.files import disk_error, why
        if not isinstance(error, BrokenPipeError):                        # `spinup algos | head` is not an error
            if error.errno == errno.ENAMETOOLONG:
                told = f"{str(error.filename)[:40]}... is too long for the name of a file; shorten it"
            elif disk_error(error):
                told = why(error, "the output", "another file or folder")
            else:
                raise
            print(f"spinup: {told}", file=sys.stderr)
        no_output()
        code = 1 if isinstance(error, BrokenPipeError) else 2
    except (NonFiniteError, WorkerError) as error:
        print(f"spinup: {error}", file=sys.stderr)
        code = 1
    except EnvironmentFailure as error:
        print(f"spinup: {error}\n", file=sys.stderr)
        traceback.print_exception(error.__cause__)
        code = 1
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        what = (str(error) or "out of memory").splitlines()[0][:120]
        print(f"spinup: not enough memory ({what}); choose smaller values of settings such as --num-envs, "
              "--rollout-steps, --batch-size, --hidden, --episodes or --max-tokens", file=sys.stderr)
        code = 2
    sys.exit(code)


def help_text() -> str:
    """Return the text of `spinup --help`."""
    indent = " " * 50
    names = textwrap.fill(", ".join(name for name, algorithm in registry.algorithms().items() if not algorithm.variant),
                          width=118, initial_indent=indent, subsequent_indent=indent)
    groups = "\n".join(group.HELP.replace("{algorithms}", names) for group in GROUPS)
    return (f"usage: spinup COMMAND ...\n\n{groups}\n`spinup COMMAND --help` explains a command. A run's files go to "
            "runs/NAME/NAME_s1.\n")


def run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    if argv[0] == "--version":
        from spinup import __version__
        print(f"spinup {__version__}")
        return 0
    words = argv[1:] if argv[0] in ("grid", "tune") and argv[1:] else argv
    if note := registry.hidden(" ".join(words[:2] if words[0] == "llm" else words[:1])):
        print(f"spinup: {note}", file=sys.stderr)
    command, rest = argv[0], argv[1:]
    if command == "llm":
        return llm_cli.run(rest)
    if command in COMMANDS:
        return COMMANDS[command](rest)
    algorithm = registry.find(command) if "." in command.strip(".") else registry.look_up(command)
    if algorithm is None:
        if command in registry.algorithms("llm"):
            raise UserError(f"{command} is a method for language models; type: spinup llm {command}")
        if why := registry.why_not(command):
            raise UserError(why)
        near = nearest(command, [*COMMANDS, *registry.algorithms(), *registry.installed(), "llm"])
        raise UserError(f"there is no command or algorithm {command!r}.{near} `spinup --help` lists them")
    from spinup.runs.flags import train as train_from_flags
    return train_from_flags(algorithm, rest)
