"""The `spinup` command. Nothing heavy is imported before it is needed: `spinup --help` does not wait for torch.

Each file of this folder has the commands of one group, `COMMANDS`, and what the help says of them, `HELP`.
"""
import gc
import sys
import traceback
from typing import NoReturn

from llm import cli as llm_cli
from spinup import registry
from spinup.cli import bench, compete, know, learn, look, train
from spinup.errors import EnvironmentFailure, NonFiniteError, UserError, WorkerError, nearest

GROUPS = (train, look, compete, learn, know, bench)
COMMANDS = {name: command for group in GROUPS for name, command in group.COMMANDS.items()}
registry.COMMANDS[""] |= {*COMMANDS, "llm", "help"}


def main(argv: list[str] | None = None) -> NoReturn:
    """Run a command and exit: 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    argv = sys.argv[1:] if argv is None else argv
    gc.set_threshold(50_000)                  # with 700, a fifth of the time of importing torch is collecting
    if "" not in sys.path:                                                # the user's folder: --env module:Id-v0
        sys.path.append("")
    try:
        code = run(argv)
    except UserError as error:
        print(f"spinup: {' '.join(str(error).splitlines())}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        sys.stderr.close()
        code = 1
    except (NonFiniteError, WorkerError) as error:
        print(f"spinup: {error}", file=sys.stderr)
        code = 1
    except EnvironmentFailure as error:
        print(f"spinup: {error}\n", file=sys.stderr)
        traceback.print_exception(error.__cause__)
        code = 1
    sys.exit(code)


def help_text() -> str:
    """The text of `spinup --help`."""
    names = ", ".join(name for name, algorithm in registry.algorithms().items() if not algorithm.variant)
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
    command, rest = argv[0], argv[1:]
    if command == "llm":
        return llm_cli.run(rest)
    if command in COMMANDS:
        return COMMANDS[command](rest)
    algorithm = registry.find(command) if "." in command.strip(".") else registry.look_up(command)
    if algorithm is None:
        if command in registry.algorithms("llm"):
            raise UserError(f"{command} is a method for language models; type: spinup llm {command}")
        near = nearest(command, [*COMMANDS, *registry.algorithms(), *registry.installed(), "llm"])
        raise UserError(f"there is no command or algorithm {command!r}.{near} `spinup --help` lists them")
    from spinup.runs.flags import train as train_from_flags
    return train_from_flags(algorithm, rest)
