"""Command-line flags, made from the settings of a Config: their types, ranges, comments and defaults."""
import argparse
import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, get_args, get_origin

from spinup import signals
from spinup.errors import UserError
from spinup.parser import Parser
from spinup.registry import Algorithm
from spinup.runs import plugin, ranks
from spinup.runs.config import Processes, Range, comments, types_of
from spinup.runs.convert import flag, parse
from spinup.runs.display import say
from spinup.runs.presets import configure, default_in_words
from spinup.runs.public import advised

METAVARS = {"env": "ID", "hidden": "64,64", "model": "DIR", "teacher": "DIR", "init": "DIR", "reward": "FILE:NAME",
            "sticky_actions": "P", "preset": "NAME", "config": "FILE", "system": "TEXT", "template": "NAME=VALUE"}


def config_parser(algorithm: Algorithm) -> Parser:
    """Make a parser with a flag for each setting of the algorithm's Config. UserError if the algorithm is unknown."""
    config, name = plugin.load(algorithm).Config, algorithm.name
    parser = Parser(f"spinup {name}", f"{algorithm.summary} Later settings override earlier ones: default, preset, "
                                      "--config file, flags.")
    groups = {about: parser.add_argument_group(f"settings of {about}") for about in (name, "every run")}
    groups["every run"].add_argument("--preset", metavar="NAME",
                        type=partial(value_of, "preset", str),
                        help="auto (the preset of the environment or task), none, or a name from `spinup algos NAME`. "
                             "[auto]")
    groups["every run"].add_argument("--config", metavar="FILE", help="a TOML file of settings",
                                     type=partial(value_of, "config", str))
    help_of, types = comments(config), types_of(config)
    for field, hint in types.items():
        owner = next(c for c in config.__mro__ if field in inspect.get_annotations(c))
        about = name if owner is config else vars(owner).get("ABOUT", "every run")
        if about not in groups:
            groups[about] = parser.add_argument_group(f"settings of {about}")
        add_setting(groups[about], field, hint, help_of[field], algorithm.settings.get(field, getattr(config, field)),
                    partial(default_in_words, algorithm, field))
    return parser


def add_setting(group: argparse._ArgumentGroup, name: str, hint: Any, reason: str, default: Any,
                in_words: Callable[[str], str] = str) -> None:
    """Add the flag of a setting. A flag of one of several stages has a name such as ppo.kl_coef.

    Without a `reason` the flag works, but the help does not show it. in_words: completes the default in the help.
    """
    stage, dot, field = name.rpartition(".")
    convert = partial(value_of, name, hint)
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    default = "none" if default is None else default
    default = in_words(f"{default}")
    limits = "".join(f"; {limit}" for limit in get_args(hint)[1:]) if get_origin(hint) is Annotated else ""
    text = (f"{reason}{limits}." + (f" [{default}]" if default != "" else "")).replace("%", "%%")
    text = text if reason else argparse.SUPPRESS
    if bool in (hint, *get_args(hint)):
        group.add_argument(flag(name), dest=name, type=convert, nargs="?", const=True, metavar="true|false", help=text)
        group.add_argument(flag(f"{stage}{dot}no_{field}"), dest=name, action="store_false", help=argparse.SUPPRESS)
    else:
        choices = "|".join(get_args(hint)) if get_origin(hint) is Literal else ""
        group.add_argument(flag(name), dest=name, type=convert, help=text, metavar=choices or metavar(field))


def metavar(field: str) -> str:
    """Return the help's placeholder for the value of a setting."""
    return METAVARS.get(field, field.upper().split("_")[-1])


def value_of(name: str, hint: Any, text: str) -> Any:
    """Convert the text after a flag to a value. UserError if it is invalid, or empty and not allowed to be none."""
    value = parse(name, hint, text)
    if value == "" and type(None) not in get_args(hint):
        word = metavar(name.rpartition(".")[2])
        raise UserError(f"{flag(name)} is empty; write {flag(name)} {word}, or leave it out")
    return value


def from_flags(algorithm: Algorithm, argv: list[str]) -> tuple[Any, str]:
    """Return the Config for a command line, and words that name its preset. UserError if a flag or value is invalid."""
    given = vars(config_parser(algorithm).parse(argv))
    file, preset = given.pop("config", None), given.pop("preset", "auto")
    return configure(algorithm, given, preset, file)


def in_words(flags: Mapping[str, str]) -> list[str]:
    """Return the words of a command line for these flags, whose names are without dashes. A flag without a value has
    ""."""
    return [f"--{name}={value}" if value else f"--{name}" for name, value in flags.items()]


def train(algorithm: Algorithm, argv: list[str]) -> int:
    """Train with the settings of a command line and return the exit code. UserError if a flag or value is invalid."""
    config, preset = from_flags(algorithm, argv)
    if not config.quiet and ranks.rank() == 0:
        say(f"preset: {preset}")
    with advised(algorithm):
        return exit_code(algorithm.load().train(config))


def exit_code(result: Any) -> int:
    """Exit code: 0 for a finished run, 130 after Ctrl-C, 143 after SIGTERM; `result` is None in worker processes.
    UserError if `train` returned something else."""
    if ranks.rank() == 0 and not hasattr(result, "status"):
        raise UserError(f"train must end with `return run.result(policy)`, but it returned {type(result).__name__}")
    return 0 if result is None or result.status == "finished" else signals.exit_code()


def whole(name: str, at_least: int = 1, at_most: float = math.inf) -> Callable[[str], int]:
    """Return a parser of whole numbers from `at_least` to `at_most` for a flag."""
    return partial(parse, name, Annotated[int, Range(at_least, at_most)])


def processes(name: str) -> Callable[[str], int]:
    """Return a parser of numbers of processes for a flag."""
    return partial(parse, name, Processes)


class Distinct(argparse.Action):
    """Several values without duplicates."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        if getattr(namespace, self.dest) is not self.default:
            parser.error(f"{option_string} is given twice; give all values after one {option_string}")
        if twice := [v for v in values if values.count(v) > 1]:
            parser.error(f"{option_string} has {twice[0]} more than once; give each value once")
        setattr(namespace, self.dest, values)


def add_device(parser: Parser) -> None:
    """Add the flag `--device` of commands that load a policy."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps; auto uses a GPU for language "
                                                         "models only. [auto]")


def add_seeds(parser: Parser, default: list[int] | None, said: str) -> None:
    """Add the flag `--seeds`; `said` describes its default."""
    parser.add_argument("--seeds", type=whole("seeds", 0), nargs="+", action=Distinct, default=default, metavar="S",
                        help=f"seeds of the runs. {said}")
