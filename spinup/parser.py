"""Command-line parser: errors in one sentence, exit code 2."""
import argparse
import os
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any, NoReturn

from spinup.errors import UserError, nearest

ELSEWHERE = {"environment": "--env", "env-id": "--env", "learning-rate": "--lr", "timesteps": "--total-steps",
             "total-timesteps": "--total-steps"}        # names of our flags in other libraries

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")           # line breaks, escapes


def text_width() -> int:
    """Return the width of help texts: that of the terminal, but at most 120 columns."""
    return min(120, shutil.get_terminal_size((120, 24)).columns)


def wrapped(line: str, indent: int) -> str:
    """Wrap a line of a list at words if the output is a terminal; further lines are indented. In a pipe the line stays
    whole, for grep."""
    if not sys.stdout.isatty():
        return line
    return textwrap.fill(line, text_width(), subsequent_indent=" " * indent, break_long_words=False,
                         break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """Argument parser. It reports an error in one sentence and suggests the nearest flag for an unknown one."""

    def __init__(self, prog: str, description: str, **given: Any):
        super().__init__(prog=prog, description=description, allow_abbrev=False, argument_default=argparse.SUPPRESS,
                         formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=28,
                                                                             width=text_width()),
                         **given)

    def error(self, message: str) -> NoReturn:
        """Raise UserError, where argparse would exit."""
        flag = re.match(r"argument (?:-\w, ?)?(--[\w-]+)[^:]*: expected one argument", message)
        how = f" (if it begins with -, write {flag[1]}=VALUE)" if flag else ""
        raise UserError(f"{message}{how}; see `{self.prog} --help`")

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """Parse the words of a command line. UserError, with the nearest flag, for an unknown one."""
        args, unknown = self.parse_known_args([dashed(word) if word.startswith("--") else word for word in argv])
        if unknown:
            if unknown[0].startswith("--"):
                name, flags = unknown[0].partition("=")[0], [f for a in self._actions for f in a.option_strings]
                meant = next((f for f in flags if f.partition(".")[2] == name[2:]), name)         # a flag of one stage
                known = {other: flag for other, flag in ELSEWHERE.items() if flag in flags} | {f[2:]: f for f in flags}
                raise UserError(f"{self.prog} has no flag {name}.{nearest(meant[2:], known, known)} "
                                f"`{self.prog} --help` lists them")
            how = ""
            if unknown[0].isdigit():
                how = " join several numbers with commas, as in 64,64;"
            elif unknown[0].endswith(".npz") and any("--data" in a.option_strings for a in self._actions):
                how = f" if it is a dataset, write --data {unknown[0]};"
            elif any("--env" in a.option_strings for a in self._actions):
                how = f" if it is an environment, write --env {unknown[0]};"
            raise UserError(f"{self.prog} does not know what to do with {unknown[0]!r};{how} see `{self.prog} --help`")
        return args


def printable(name: str) -> bool:
    """Return whether a name is UTF-8 text without control characters. Its bytes are decoded again, because in an ASCII
    locale Python makes two characters of an accented letter."""
    try:
        return not CONTROL.search(os.fsencode(name).decode())
    except UnicodeError:
        return False


def path_of(text: str) -> Path:
    """Convert a word to a path. ArgumentTypeError, to which argparse adds the flag, for an empty word or control
    characters."""
    if not text.strip() or not printable(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a path; write one of letters, digits and _")
    return Path(os.path.expanduser(text))


def check_input(command: str) -> None:
    """UserError if the standard input is closed, because the command reads it."""
    if sys.stdin is None:
        raise UserError(f"{command} reads standard input, which is closed; run it in a terminal, or pipe lines into it")


def dashed(word: str) -> str:
    """Convert --clip_ratio=0.1 to --clip-ratio=0.1."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value
