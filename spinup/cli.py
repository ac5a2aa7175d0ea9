"""The `spinup` command. Nothing heavy is imported before it is needed: `spinup --help` does not wait for torch."""
import argparse
import math
import os
import shlex
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_args, get_origin, get_type_hints

from spinup.errors import NonFiniteError, UserError, WorkerError, nearest
from spinup.parser import Parser

if TYPE_CHECKING:
    from spinup.runs.config import BaseConfig

PAPERS = {"chain": "parameter noise", "bandits": "RL²", "noisy-tv": "curiosity", "doorkey": "curiosity",
          "es-scaling": "evolution strategies", "self-play": "self-play"}
ALGORITHMS = {name: f"spinup.algos.{name}" for name in ("vpg", "ppo", "dqn", "ddpg", "td3", "sac", "es",
                                                          "param_noise", "curiosity", "rl2", "self_play")}
METHODS = {             # of language models; several may be in one file
    "sft": "llm.algos.sft", "reinforce": "llm.algos.reinforce", "rloo": "llm.algos.reinforce",
    "remax": "llm.algos.reinforce", "reinforce_pp": "llm.algos.reinforce", "grpo": "llm.algos.grpo",
    "dr_grpo": "llm.algos.grpo", "dapo": "llm.algos.grpo", "best_of_n": "llm.algos.best_of_n",
    "reward_model": "llm.algos.reward_model", "ppo": "llm.algos.ppo", "vapo": "llm.algos.ppo",
    **dict.fromkeys(("dpo", "ipo", "dpop", "tdpo", "kto", "simpo", "step_dpo", "online_dpo"), "llm.algos.dpo")}
STAGES = ("sft", "reward_model", "ppo")                                   # of `spinup llm rlhf`
TASKS = ("copy", "reverse", "sort", "taste", "addition", "countdown", "calculator", "code", "gsm8k")
PICTURES = ("beyond-imitation", "unification", "over-optimisation", "frontier")
METAVARS = {"env": "ID", "hidden": "64,64", "model": "DIR", "reward": "FILE:NAME", "sticky_actions": "P",
            "preset": "NAME", "config": "FILE"}

HELP = f"""\
usage: spinup COMMAND ...

Train:
  spinup ALGORITHM [--env CartPole-v1] [flags]    one of: {', '.join(ALGORITHMS)}; `spinup ppo --help` lists its flags
  spinup llm METHOD [--task reverse] [flags]      the same for language models; `spinup llm` lists methods and tasks
  spinup grid ALGORITHM --seed 0 1 2 [flags]      every combination of the values given, one process a run
  spinup resume DIR                               go on with a run that was stopped

Look:
  spinup plot DIR... [--x step|time]              learning curves with 95 % intervals, as PNG and SVG
  spinup watch DIR [--episodes N] [--gif FILE]    see a trained policy act
  spinup eval DIR [--episodes 100] [--json]       its return in fresh episodes

Compete, in games of two:
  spinup arena DIR|FILE... --game connect_four    a tournament of trained, scripted and people's own players; ratings
  spinup play DIR --game tictactoe                a person against a policy

Learn:
  spinup exercise [init|start|check|hint ...]     exercises whose checks name the mistake

Know:
  spinup algos                                    what there is, what it serves, its presets
  spinup envs [--grep WORD]                       environments that can be made here
  spinup metrics [--grep WORD]                    what the columns of progress.csv mean
  spinup doctor                                   what works on this machine
  spinup bench speed|time-to|returns ALGORITHM    speed beside stable-baselines3; time to a return; returns of a preset
  spinup bench speed grpo|generate                language models beside trl and transformers
  spinup bench roofline                           language models beside what this GPU or CPU allows
  spinup bench accuracy METHOD [--task T]         the accuracy that a method reaches on a task of language
  spinup bench paper NAME                         a paper's own experiment, small: its table beside ours

`spinup COMMAND --help` explains a command. A run's files go to runs/NAME/NAME_s1.
"""
LLM_HELP = f"""\
usage: spinup llm COMMAND ...

  spinup llm METHOD [--task T] [--model DIR]      `spinup llm grpo --help` lists its flags; a method is one of
{textwrap.fill(', '.join(METHODS), 110, initial_indent=50 * ' ', subsequent_indent=50 * ' ')}
  spinup llm rlhf [--task taste]                  {', '.join(STAGES)}, one after another
  spinup llm chat DIR                             talk to a policy: a run, or a checkpoint of Hugging Face's
  spinup llm export DIR FOLDER                    write a policy for Hugging Face's libraries
  spinup llm picture NAME                         a picture that is a lesson: {', '.join(PICTURES)}

A task is one of {', '.join(TASKS)}, with options as in
reverse:length=8,symbols=12; or a JSONL file of prompts, with --reward file.py:function if its lines have no answers; or
one of comparisons, whose lines have "prompt", "chosen" and "rejected". --reward DIR takes a reward model's run.
Without --model, a small character model first imitates a teacher for a while (a run of sft), then learns from rewards.
`spinup plot`, `watch`, `eval` and `resume` take these runs too, and `spinup grid llm grpo ...` too.
"""


def main(argv: list[str] | None = None) -> NoReturn:
    """Run a command and exit: 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    argv = sys.argv[1:] if argv is None else argv
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
    sys.exit(code)


def run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if argv[0] == "--version":
        from spinup import __version__
        print(f"spinup {__version__}")
        return 0
    command, rest = argv[0], argv[1:]
    if command == "llm":
        return language(rest)
    if command in ALGORITHMS:
        return train(command, rest)
    if command not in COMMANDS:
        if command in METHODS:
            raise UserError(f"{command} is a method for language models; type: spinup llm {command}")
        near = nearest(command, [*COMMANDS, *ALGORITHMS, "llm"])
        raise UserError(f"there is no command or algorithm {command!r}.{near} `spinup --help` lists them")
    return COMMANDS[command](rest)


def config_parser(name: str) -> Parser:
    """Flags made from the fields of an algorithm's Config, their comments and ranges."""
    from spinup.api import algorithm
    from spinup.runs.config import comments
    module, method = algorithm(name)
    parser = Parser(f"spinup {name}", f"{module.__doc__.splitlines()[0]} Settings count in this order, the later over "
                                      "the earlier: default, preset, --config file, flags.")
    groups = {about: parser.add_argument_group(f"settings of {about}") for about in (name, "every run")}
    groups["every run"].add_argument("--preset", metavar="NAME",
                        help="auto (that of the environment or task), none, or a name from `spinup algos`. [auto]")
    groups["every run"].add_argument("--config", metavar="FILE", help="a TOML file of settings")
    fixed, help_of = module.METHODS[method] if method else {}, comments(module.Config)
    for field, hint in get_type_hints(module.Config, include_extras=True).items():
        owner = next(c for c in module.Config.__mro__ if field in vars(c).get("__annotations__", ()))
        about = name if owner is module.Config else vars(owner).get("ABOUT", "every run")
        if about not in groups:
            groups[about] = parser.add_argument_group(f"settings of {about}")
        add_setting(groups[about], field, hint, help_of[field], fixed.get(field, getattr(module.Config, field)))
    return parser


def add_setting(group: argparse._ArgumentGroup, name: str, hint: Any, reason: str, default: Any) -> None:
    """The flag of a setting; of one of several stages, its name is such as ppo.kl_coef. Without a reason it works, and
    the help is silent about it."""
    from spinup.runs.config import flag, parse
    stage, dot, field = name.rpartition(".")
    convert = partial(parse, name, hint)
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    default = "none" if default is None else default
    limits = "".join(f"; {limit}" for limit in get_args(hint)[1:]) if get_origin(hint) is Annotated else ""
    text = (f"{reason}{limits}." + (f" [{default}]" if default != "" else "")).replace("%", "%%")
    text = text if reason else argparse.SUPPRESS
    if bool in (hint, *get_args(hint)):
        group.add_argument(flag(name), dest=name, type=convert, nargs="?", const=True, metavar="true|false", help=text)
        group.add_argument(flag(f"{stage}{dot}no_{field}"), dest=name, action="store_false", help=argparse.SUPPRESS)
    else:
        group.add_argument(flag(name), dest=name, type=convert, help=text,
                           metavar=METAVARS.get(field, field.upper().split("_")[-1]))


def stages_parser() -> Parser:
    """The flags of `spinup llm rlhf`: those of all its stages, and of each with its name in front, as in --ppo.lr."""
    from llm.config import LanguageConfig
    from llm.pipeline import SHAPE, TASK
    from spinup.api import algorithm
    from spinup.runs.config import comments
    parser = Parser("spinup llm rlhf", "Imitate, learn from comparisons what is preferred, and learn from that reward: "
                                       "three runs, one after another. The same command with the same --exp-name skips "
                                       "what is finished, and goes on.")
    configs = {stage: algorithm(f"llm {stage}")[0].Config for stage in STAGES}
    alike = [f for f in LanguageConfig.__dataclass_fields__ if len({getattr(c, f) for c in configs.values()}) == 1]
    for stage, config in {"": LanguageConfig, **configs}.items():
        group = parser.add_argument_group(f"settings of {stage} alone" if stage else "settings of all stages; of one, "
                                                                                     "as in --sft.total-steps")
        prefix, reasons = f"{stage}." if stage else "", comments(config)
        for name, reason in {"preset": "auto (that of the task), none, or a name from `spinup algos`",
                             "config": "a TOML file of settings"}.items():
            add_setting(group, prefix + name, str, "" if stage else reason, "auto" if name == "preset" else "")
        for field, hint in get_type_hints(config, include_extras=True).items():
            default = TASK if field == "task" else getattr(config, field) if stage or field in alike else ""
            hidden = stage and (field in alike or field in SHAPE)
            add_setting(group, prefix + field, hint, "" if hidden else reasons[field], default)
    return parser


def settings(name: str, argv: list[str]) -> tuple[Any, str]:
    """The Config that the command line asks for, and the name of the preset in it."""
    from spinup.api import algorithm
    from spinup.runs.presets import configure
    given = vars(config_parser(name).parse(argv))
    file, preset = given.pop("config", None), given.pop("preset", "auto")
    module, method = algorithm(name)
    return configure(module, given, preset, file, method)


def train(name: str, argv: list[str]) -> int:
    from spinup.api import advised, algorithm
    config, preset = settings(name, argv)
    if not config.quiet and os.environ.get("RANK", "0") == "0":           # of torchrun's processes one speaks
        print(f"preset: {preset}")
    module, method = algorithm(name)
    with advised():
        result = module.train(config, **({"method": method} if method else {}))
    return 0 if result is None or result.status == "finished" else 130


def resume(argv: list[str]) -> int:
    parser = Parser("spinup resume", "Go on with a run that was stopped, from its last checkpoint.")
    parser.add_argument("directory", metavar="DIR", help="the folder of a run, such as runs/NAME/NAME_s1")
    from spinup.api import algorithm
    from spinup.runs.folders import config_from_json, find_run, read_result, read_run
    from spinup.runs.policy import describe
    directory = find_run(Path(parser.parse(argv).directory))
    if (done := read_result(directory)).get("status") == "finished":
        where = describe(directory)
        print(f"{where} is finished: {done['steps']:,} steps; `spinup watch {where}` shows it")
        return 0
    data = read_run(directory)
    module, method = algorithm(data["algorithm"])
    given = {k: v["callable"] for k, v in data["config"].items() if isinstance(v, dict)}
    if given:
        what, package = next(iter(given)).replace("env", "environment"), "llm" if method else "spinup"
        words = ", ".join(f"{k}={v}" if k == "reward" else v for k, v in given.items())
        raise UserError(f"the {what} of {describe(directory)} is a Python function or object, {words}; from Python, "
                        f"with the same settings: {package}.{method or data['algorithm']}({words}, "
                        f"resume={describe(directory)!r})")
    result = module.train(config_from_json(module.Config, data["config"]), resume=directory,
                          **({"method": method} if method else {}))
    return 0 if result is None or result.status == "finished" else 130


def directories(paths: list[str]) -> list[Path]:
    """The same as paths. UserError where one is no folder."""
    for path in paths:
        if not Path(path).is_dir():
            raise UserError(f"there is no folder {path}; give one that holds runs, such as runs")
    return [Path(p) for p in paths]


def whole(name: str, at_least: int = 1) -> Callable[[str], int]:
    """A parser of whole numbers from `at_least` on, for the setting of that name."""
    from spinup.runs.config import Range, parse
    return partial(parse, name, Annotated[int, Range(at_least)])


def number(name: str) -> Callable[[str], float]:
    """A parser of finite numbers, for the setting of that name."""
    from spinup.runs.config import Range, parse
    return partial(parse, name, Annotated[float, Range(-math.inf)])


def positive(name: str) -> Callable[[str], float]:
    """A parser of numbers above 0, for the setting of that name."""
    from spinup.runs.config import Positive, parse
    return partial(parse, name, Positive)


class Distinct(argparse.Action):
    """Several values, each of them once."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        if twice := [v for v in values if values.count(v) > 1]:
            parser.error(f"{option_string} has {twice[0]} more than once, which is one run; give each once")
        setattr(namespace, self.dest, values)


def add_seeds(parser: Parser, default: list[int] | None, said: str) -> None:
    """The flag `--seeds`, whose default is `said`."""
    parser.add_argument("--seeds", type=whole("seeds", 0), nargs="+", action=Distinct, default=default, metavar="S",
                        help=f"of the runs. {said}")


def plot(argv: list[str]) -> int:
    parser = Parser("spinup plot", "Learning curves, averaged over seeds, with 95 % intervals, as PNG and SVG.")
    parser.add_argument("directories", nargs="+", metavar="DIR", help="runs, experiments, or folders of them")
    parser.add_argument("--x", choices=["step", "time"], default="step", help="horizontal axis. [step]")
    parser.add_argument("--smooth", type=whole("smooth"), default=1, help="rows to average over. [1]")
    parser.add_argument("--group", choices=["experiment", "run", "algorithm"], default="experiment",
                        help="what one curve averages. [experiment]")
    parser.add_argument("--value", default="", help="column of progress.csv. [what tells how good each policy is]")
    parser.add_argument("--beside", type=Path, default=None, metavar="CSV",
                        help="published curves to draw dashed: env,algorithm,source,steps,value")
    parser.add_argument("--out", type=Path, default=None, metavar="FILE",
                        help="the picture; PNG and SVG are both written")
    args = parser.parse(argv)
    from rich.console import Console
    from rich.table import Table

    from spinup.runs.display import number
    from spinup.view import plots
    found = directories(args.directories)
    pictures = plots.plot(found, x=args.x, smooth=args.smooth, group=args.group, value=args.value,
                          beside=args.beside, out=args.out)
    table = Table(box=None, padding=(0, 2, 0, 0))
    rows = plots.summary(found, args.group, args.value)
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else number(v) for v in row.values()))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    print("\n".join(str(p) for p in pictures))
    return 0


def speaks(args: argparse.Namespace) -> bool:
    """Whether the folder that was typed holds a run of a language model. UserError for what these cannot do."""
    from spinup.runs.folders import find_run, read_run
    if not read_run(find_run(Path(args.directory)))["algorithm"].startswith("llm "):
        return False
    if args.stochastic:
        raise UserError("the responses of a language model are always drawn; leave out --stochastic (`spinup llm chat "
                        "DIR --greedy` gives the likeliest)")
    return True


def trained(directory: str) -> tuple[Any, str, Path]:
    """Policy, environment id and folder of a run. UserError where the environment is a Python function, which only
    Python has.
    """
    from spinup.api import load
    from spinup.runs.folders import find_run, read_run
    found = find_run(Path(directory))
    env = read_run(found)["config"]["env"]
    if not isinstance(env, str):
        raise UserError(f"the environment of {found} is a Python function, {env['callable']}; from Python: "
                        f"spinup.load({str(found)!r}).act(obs)")
    return load(found), env, found


def playing(command: str, description: str, episodes: int) -> Parser:
    """The flags that `watch` and `eval` share."""
    parser = Parser(f"spinup {command}", description)
    parser.add_argument("directory", metavar="DIR", help="the folder of a run")
    parser.add_argument("--episodes", type=whole("episodes"), default=episodes, help=f"how many. [{episodes}]")
    parser.add_argument("--stochastic", action="store_true", default=False,
                        help="draw actions as in training, instead of taking the likeliest")
    parser.add_argument("--seed", type=whole("seed", 0), default=0, help="of the episodes. [0]")
    return parser


def watch(argv: list[str]) -> int:
    parser = playing("watch", "See a trained policy act, in a window or a GIF, or what a language "
                              "model writes and what it is worth.", 1)
    parser.add_argument("--gif", type=Path, default=None, metavar="FILE",
                        help="write a GIF instead of opening a window")
    args = parser.parse(argv)
    if speaks(args):
        if args.gif:
            raise UserError("a language model has no picture to show; leave out --gif to read its responses")
        from llm.watch import watch as read
        read(Path(args.directory), prompts=args.episodes, seed=args.seed)
        return 0
    from spinup.view import watch as watching
    policy, env, _ = trained(args.directory)
    watching.watch(policy, env, episodes=args.episodes, deterministic=not args.stochastic, gif=args.gif, seed=args.seed)
    return 0


def evaluate(argv: list[str]) -> int:
    parser = playing("eval", "The return of a trained policy in fresh episodes, of seeds not trained on.", 100)
    parser.add_argument("--json", action="store_true", default=False, help="print one line of JSON")
    args = parser.parse(argv)
    import json
    if speaks(args):
        from llm.watch import evaluate as examine
        print(examine(Path(args.directory), problems=args.episodes, seed=args.seed, as_json=args.json))
        return 0

    from spinup.runs.policy import describe
    from spinup.view import statistics
    from spinup.view.evaluate import evaluate as play
    policy, env, folder = trained(args.directory)
    found = play(policy, env, episodes=args.episodes, deterministic=not args.stochastic, seed=args.seed)
    from spinup.envs.atari import in_words, protocol
    if args.json:
        rules = {"protocol": policy.env_settings} if protocol(env) else {}
        print(json.dumps({"directory": str(folder), "env": env, **rules, "deterministic": not args.stochastic,
                          **found.as_dict()}))
    else:
        words = statistics.in_words(found.returns, 1)
        print(f"{describe(folder)}: return {found.mean:.1f} ({words}) in {args.episodes} fresh episodes of {env}, "
              f"{'drawing' if args.stochastic else 'deterministic'}; worst {found.min:.1f}, best {found.max:.1f}")
        if protocol(env):
            print(f"protocol: {in_words(policy.env_settings)}")
    return 0


def grid(argv: list[str]) -> int:
    parser = Parser("spinup grid", "Every combination of the values given, one process a run: spinup grid ppo --env "
                                   "CartPole-v1 --seed 0 1 2 --clip-ratio 0.1 0.2 --workers 2. The same command again "
                                   "runs only what is missing.")
    parser.add_argument("algorithm", help=f"{', '.join(ALGORITHMS)}; or two words, such as llm grpo")
    parser.add_argument("--workers", metavar="N", help="processes at a time. [1]")
    parser.add_argument("--FLAG", metavar="VALUE", nargs="+", help="any flag of the algorithm, with one or more values")
    if not argv or argv[0] in ("-h", "--help"):
        parser.print_help()
        return 0
    from spinup.api import advised, algorithm
    from spinup.envs import make
    from spinup.envs.zoo import num_agents
    from spinup.machine import find_device
    from spinup.runs.folders import check_writable
    from spinup.view.grid import grid as run_grid
    words = 2 if argv[0] == "llm" else 1
    if words == 2 and (len(argv) == 1 or argv[1].startswith("-")):
        raise UserError("spinup grid llm needs a method, as in: spinup grid llm grpo --seed 1 2; `spinup llm` lists "
                        "them")
    name, values, current = " ".join(argv[:words]), {}, None
    module, method = algorithm(name)
    for word in argv[words:]:
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            current = values.setdefault(key.replace("_", "-"), [])
            current += [value] * bool(equals)
        elif current is None:
            raise UserError(f"spinup grid does not know what to do with {word!r}; values follow a flag, as in "
                            "--seed 0 1 2")
        else:
            current.append(word)
    for flag in values:
        if not values[flag] and flag in ("workers", "seed"):
            raise UserError(f"--{flag} needs a value, as in --{flag} {1 if flag == 'seed' else 2}")
    if len(values.get("workers", "1")) > 1:
        raise UserError(f"--workers takes one value, not {' '.join(values['workers'])}")
    workers = whole("workers")(values.pop("workers", ["1"])[0])

    def check(flags: dict[str, str]) -> "BaseConfig":
        config, _ = settings(name, [f"--{flag}={value}" if value else f"--{flag}" for flag, value in flags.items()])
        if method:
            from llm.start import check
            check(config)
        else:
            env = make(config.env, num_agents(config.env), 0)
            with advised():
                module.make_policy(config, env.observation_space, env.action_space)
            env.close()
        find_device(config.device, gpu_helps=False)
        check_writable(Path(config.log_dir))
        return config

    return run_grid(name, values, workers=workers, check=check)


def algos(argv: list[str]) -> int:
    Parser("spinup algos", "What there is, what it serves, its presets.").parse(argv)
    from rich.console import Console
    from rich.table import Table

    from spinup.api import algorithm
    from spinup.runs.presets import read_presets
    console = Console(width=None if sys.stdout.isatty() else 160)
    families = dict.fromkeys(METHODS.values())
    for name in [*ALGORITHMS, *(f"llm {next(m for m in METHODS if METHODS[m] == file)}" for file in families)]:
        module, method = algorithm(name)
        title = f"llm {' | '.join(module.METHODS)}" if method else name
        console.print(f"[bold]{title}[/]  {module.__doc__.splitlines()[0]}", highlight=False, soft_wrap=True)
        serves = ("tasks: " + ", ".join(TASKS) + "; JSONL files" if method else
                  f"actions: {', '.join(module.ACTIONS)}; observations: {', '.join(module.OBSERVATIONS)}")
        console.print(f"     {serves}", highlight=False, soft_wrap=True)
        table = Table(box=None, padding=(0, 2, 0, 0))
        for column in ("     preset", "steps", "reached here", "best published"):
            table.add_column(column, justify="right" if column == "steps" else "left")
        for preset, data in read_presets(module).items():
            reached = data["reached"] or {}
            table.add_row(f"     {preset}", f"{data['settings'].get('total_steps', module.Config.total_steps):,}",
                          ", ".join(f"{k} {v}" for k, v in reached.items() if k not in ("seeds", "file")),
                          data["published"] or "")
        console.print(table)
    return 0


def language(argv: list[str]) -> int:
    """`spinup llm ...`."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(LLM_HELP, end="")
        return 0
    word, rest = argv[0], argv[1:]
    if word in METHODS:
        return train(f"llm {word}", rest)
    if word == "rlhf":
        return rlhf(rest)
    if word == "chat":
        parser = Parser("spinup llm chat", "Talk to a policy; an empty line ends it.")
        parser.add_argument("directory", metavar="DIR", help="the folder of a run or of a checkpoint")
        parser.add_argument("--greedy", action="store_true", default=False, help="the likeliest answer each time")
        parser.add_argument("--max-tokens", type=whole("max_tokens"), default=None, help="the longest answer")
        args = parser.parse(rest)
        from llm.watch import chat
        return chat(Path(args.directory), greedy=args.greedy, max_tokens=args.max_tokens)
    if word == "export":
        parser = Parser("spinup llm export", "Write a policy as a folder that Hugging Face's libraries read.")
        parser.add_argument("directory", metavar="DIR", help="the folder of a run")
        parser.add_argument("folder", metavar="FOLDER", help="the folder to make")
        args = parser.parse(rest)
        from llm.policy.checkpoint import save_pretrained
        from llm.start import load_model
        start = load_model(args.directory)
        save_pretrained(args.folder, start.model, start.tokenizer)
        print(args.folder)
        return 0
    if word == "picture":
        parser = Parser("spinup llm picture", "A picture that is a lesson, with its numbers as JSON beside it.")
        parser.add_argument("name", choices=PICTURES, help=", ".join(PICTURES))
        add_seeds(parser, [1, 2, 3], "[1 2 3]")
        parser.add_argument("--log-dir", type=Path, default=Path("runs"), metavar="DIR", help="of the runs. [runs]")
        parser.add_argument("--out", type=Path, default=None, metavar="FILE", help="the picture. [NAME.png]")
        args = parser.parse(rest)
        from llm.bench.pictures.draw import draw
        return draw(args.name, seeds=args.seeds, log_dir=args.log_dir, out=args.out)
    near = nearest(word, [*METHODS, "rlhf", "chat", "export", "picture"])
    raise UserError(f"there is no method {word!r}.{near} `spinup llm` lists them")


def rlhf(argv: list[str]) -> int:
    given = vars(stages_parser().parse(argv))
    from llm.pipeline import plan, work
    own: dict[str, dict[str, Any]] = {stage: {} for stage in ("", *STAGES)}
    for key, value in given.items():
        stage, _, field = key.rpartition(".")
        own[stage][field] = value
    stages = plan(own.pop(""), list(own.values()))
    try:
        work(stages)
    except KeyboardInterrupt:
        if not stages[-1].cfg.quiet:
            named = [] if "exp_name" in given else ["--exp-name", stages[0].cfg.exp_name.removesuffix(f"_{STAGES[0]}")]
            print(f"to go on with all stages, type:\n  {shlex.join(['spinup', 'llm', 'rlhf', *argv, *named])}")
        return 130
    return 0


def envs(argv: list[str]) -> int:
    parser = Parser("spinup envs", "Environments that can be made here, first those marked *, which run in this "
                                   "library's own vectorised copies.")
    parser.add_argument("--grep", default="", metavar="WORD", help="only ids that contain this, in any case")
    word = parser.parse(argv).grep
    from spinup.envs.make import OURS, registered
    ids = sorted((i for i in registered() if word.lower() in i.lower()), key=lambda i: i not in OURS)
    if not ids:
        raise UserError(f"no environment has {word!r} in its id.{nearest(word, registered())} `spinup envs` lists "
                        "them all")
    print("\n".join(f"{i}{' *' if i in OURS else ''}" for i in ids))
    return 0


def metrics(argv: list[str]) -> int:
    parser = Parser("spinup metrics", "What the columns of progress.csv mean, and the curves in TensorBoard.")
    parser.add_argument("--grep", default="", metavar="WORD", help="only those that have this in name or meaning")
    word = parser.parse(argv).grep
    from spinup.view.metrics import METRICS
    found = {name: text for name, text in METRICS.items() if word.lower() in f"{name} {text}".lower()}
    if not found:
        raise UserError(f"no metric has {word!r} in its name or meaning.{nearest(word, METRICS)} `spinup metrics` "
                        "lists them all")
    print("\n".join(f"{name:22}{text}" for name, text in found.items()))
    return 0


def doctor(argv: list[str]) -> int:
    Parser("spinup doctor", "What works on this machine.").parse(argv)
    from spinup.view.doctor import doctor as examine
    code = examine()
    from llm.tasks.sandbox import limits
    print(f"code that a language model writes is run with {limits()}")
    return code


def bench(argv: list[str]) -> int:
    for words in (["speed", "grpo"], ["speed", "generate"], ["roofline"], ["accuracy"]):
        if argv[:len(words)] == words:
            return bench_language(" ".join(words), argv[len(words):])
    if argv[:1] == ["paper"]:
        return bench_paper(argv[1:])
    if argv[:1] in (["speed"], ["time-to"], ["returns"]):
        return bench_algorithm(argv[0], argv[1:])
    parser = Parser("spinup bench", "Benchmarks; the last line is JSON, and the exit code 1 where a stated goal is "
                                    "missed. `spinup bench speed --help` and so on have the flags.")
    parser.add_argument("what", choices=["speed", "time-to", "returns", "paper", "accuracy", "roofline"], help=(
        "speed beside a peer, of an algorithm, or of llm: `speed grpo`, `speed generate`; seconds to a return; the "
        "returns of a preset; a paper's own experiment; what a method of llm reaches; and how near it comes to the "
        "limits of the machine"))
    parser.parse(argv)
    return 0


def bench_algorithm(what: str, argv: list[str]) -> int:
    """`spinup bench speed`, `time-to` and `returns`, of an algorithm."""
    parser = Parser(f"spinup bench {what}", {
        "speed": "Steps a second of an algorithm, learning, beside a peer's.",
        "time-to": "Seconds of training until the last 20 episodes have a return.",
        "returns": "What a preset reaches, seed by seed. Finished runs that are there already are not repeated."}[what])
    parser.add_argument("algorithm", help=", ".join(ALGORITHMS))
    if what == "speed":
        from spinup.bench.speed import TASKS as MEASURED
        there = "; ".join(f"{algo} on {env}" for algo, env in MEASURED)
        parser.add_argument("--env", default="CartPole-v1", metavar="ID", help=f"there is {there}. [CartPole-v1]")
        parser.add_argument("--against", choices=["sb3"], default="sb3", help="the peer. [sb3]")
        parser.add_argument("--threads", type=int, choices=[1, 2], default=1,
                            help="of torch and of matrix products, for both sides. [1]")
        parser.add_argument("--compile", action="store_true", default=False,
                            help="compile our update step; its seconds are stated apart")
        parser.add_argument("--total-steps", type=whole("total_steps"), default=None, metavar="N",
                            help="steps of each run")
        parser.add_argument("--rounds", type=whole("rounds"), default=3, metavar="N", help="pairs of runs. [3]")
    else:
        parser.add_argument("--env", default="CartPole-v1", metavar="ID", help="the environment. [CartPole-v1]")
        add_seeds(parser, [1, 2, 3], "[1 2 3]")
    if what == "time-to":
        parser.add_argument("--return", dest="target", type=number("return"), default=475.0, metavar="R",
                            help="mean of the last 20 episodes to reach. [475]")
    if what == "returns":
        parser.add_argument("--compile", action="store_true", default=False, help="compile the update step")
        parser.add_argument("--workers", type=whole("workers"), default=1, metavar="N", help="runs at a time. [1]")
        parser.add_argument("--log-dir", type=Path, default=Path("runs"), metavar="DIR",
                            help="the folder of the runs. [runs]")
    parser.add_argument("--out", type=Path, default=None, metavar="FILE", help="write the JSON here too")
    given = vars(parser.parse(argv))
    from spinup.bench import returns, speed, time_to
    measure = {"speed": speed.speed, "time-to": time_to.time_to, "returns": returns.returns}[what]
    return measure(given.pop("algorithm"), given.pop("env"), **given)


def bench_paper(argv: list[str]) -> int:
    parser = Parser("spinup bench paper", "A paper's own experiment, small: its table beside ours, and a picture. Runs "
                                          "that are there already, finished, are not repeated.")
    parser.add_argument("name", choices=PAPERS, help="; ".join(f"{name}: {about}" for name, about in PAPERS.items()))
    add_seeds(parser, None, "[those of the goals]")
    parser.add_argument("--workers", type=whole("workers"), default=1, metavar="N", help="runs at a time. [1]")
    parser.add_argument("--log-dir", type=Path, default=Path("runs"), metavar="DIR",
                        help="the folder of the runs. [runs]")
    parser.add_argument("--picture", type=Path, default=None, metavar="FILE", help="the picture. [NAME.png]")
    parser.add_argument("--out", type=Path, default=None, metavar="FILE", help="write the JSON here too")
    args = parser.parse(argv)
    import importlib

    from spinup.bench.papers.paper import check_picture, show
    picture = args.picture or Path(f"{args.name}.png")
    check_picture(picture, args.out)
    experiment = importlib.import_module(f"spinup.bench.papers.{args.name.replace('-', '_')}")
    found, folders = experiment.measure(tuple(args.seeds or experiment.SEEDS), args.workers, args.log_dir)
    return show(args.name, found, folders, picture, args.out)


def bench_language(name: str, argv: list[str]) -> int:
    """A flag that is not typed is as the benchmark's own function has it."""
    parser = Parser(f"spinup bench {name}", {
        "speed grpo": "New tokens a second of GRPO beside TRL's, where all groups have contrast and where half have.",
        "speed generate": "New tokens a second of the sampler beside transformers' generate.",
        "accuracy": "What a method reaches on held-out problems, and how soon, seed by seed.",
        "roofline": "How near sampling and training come to the memory's bandwidth and the device's peak."}[name])
    if name == "roofline":
        parser.add_argument("--device", help="cuda or cpu. [a GPU where there is one]")
        parser.add_argument("--shape", choices=["0.5b", "small"], help="of random weights. [0.5b on a GPU, else small]")
    elif name == "accuracy":
        rewarded = [method for method, file in METHODS.items()
                    if file.rpartition(".")[2] in ("reinforce", "grpo", "best_of_n", "ppo")]
        parser.add_argument("method", choices=rewarded, help=", ".join(rewarded))
        parser.add_argument("--task", default="reverse", help="such as reverse, addition, countdown. [reverse]")
        add_seeds(parser, [1, 2, 3], "[1 2 3]")
        parser.add_argument("--workers", type=whole("workers"), metavar="N", help="runs at a time. [1]")
        parser.add_argument("--threads", type=whole("threads"), metavar="N", help="of torch, in each run. [1]")
        parser.add_argument("--log-dir", type=Path, metavar="DIR", help="the folder of the runs. [runs]")
    else:
        peer, rounds = ("trl", 3) if name == "speed grpo" else ("transformers", 30)
        parser.add_argument("--against", choices=[peer], help=f"the peer. [{peer}]")
        parser.add_argument("--rounds", type=whole("rounds"), metavar="N", help=f"pairs, in turn. [{rounds}]")
    if name == "speed grpo":
        parser.add_argument("--width", type=int, choices=[64, 128], help="0.2 M or 0.9 M parameters. [64]")
        parser.add_argument("--total-steps", type=whole("total_steps"), metavar="N", help="updates of a run. [300]")
    if name == "speed generate":
        parser.add_argument("--batch", dest="batches", type=whole("batch"), nargs="+", metavar="B",
                            help="answers at a time. [16 256]")
        parser.add_argument("--new", type=whole("new"), nargs="+", metavar="T", help="tokens of an answer. [8 32]")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON here too")
    given = vars(parser.parse(argv))
    given.pop("against", None)
    from llm.bench import accuracy, roofline
    from llm.bench import speed as language
    return {"accuracy": accuracy.accuracy, "speed grpo": language.speed_grpo, "speed generate": language.speed_generate,
            "roofline": roofline.roofline}[name](**given)


def arena(argv: list[str]) -> int:
    parser = Parser("spinup arena", "A tournament in a game of two: ratings with 95 % intervals as a table, a picture "
                                    "and a page. Scripted players take part. The same line again goes on.")
    parser.add_argument("entries", type=Path, nargs="*", default=[], metavar="DIR|FILE",
                        help="runs, those against past selves with these; Python files with act(observation, mask)")
    parser.add_argument("--game", default="", metavar="NAME",
                        help="tictactoe, connect_four, or PettingZoo's, as classic/chess-v6. [that of the first DIR]")
    parser.add_argument("--games", type=whole("games"), default=200, metavar="N",
                        help="of each player, at least. [200]")
    parser.add_argument("--batch", type=whole("batch"), default=10, metavar="N",
                        help="games of a match, which one player begins. [10]")
    parser.add_argument("--versions", type=whole("versions", 0), default=8, metavar="N",
                        help="past selves of a run that take part. [8]")
    parser.add_argument("--seconds", type=positive("seconds"), default=1.0, metavar="S",
                        help="that a FILE's player has for a move. [1]")
    parser.add_argument("--memory", type=whole("memory", 64), default=2048, metavar="MB",
                        help="that a FILE's player has. [2048]")
    parser.add_argument("--seed", type=whole("seed", 0), default=1, metavar="S", help="of the games. [1]")
    parser.add_argument("--out", type=Path, default=Path("arena"), metavar="DIR", help="for the results. [arena]")
    args = parser.parse(argv)
    from spinup.api import load
    from spinup.arena.command import arena as hold
    return hold(args.entries, game=args.game, games_each=args.games, batch=args.batch, versions=args.versions,
                seconds=args.seconds, memory_mb=args.memory, seed=args.seed, out=args.out, load=load)


def play(argv: list[str]) -> int:
    parser = Parser("spinup play", "A game against a policy, in the terminal.")
    parser.add_argument("player", metavar="DIR", help="a run, or a scripted player: random, minimax, one-ply")
    parser.add_argument("--game", default="", metavar="NAME", help="tictactoe or connect_four. [that of the run]")
    parser.add_argument("--second", action="store_true", default=False, help="let the other begin the first game")
    parser.add_argument("--seed", type=whole("seed", 0), default=1, metavar="S", help="of its moves. [1]")
    args = parser.parse(argv)
    from spinup.api import load
    from spinup.arena.command import game_meant, opponent
    from spinup.arena.games import find_game
    from spinup.arena.play import against
    game = game_meant([Path(args.player)], args.game)
    return against(opponent(args.player, game, find_game(game)[1], load), game, begin=not args.second, seed=args.seed)


def exercise(argv: list[str]) -> int:
    from spinup.exercises.command import exercise as run_exercise
    return run_exercise(argv)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "grid": grid, "resume": resume, "plot": plot, "watch": watch, "eval": evaluate, "algos": algos, "envs": envs,
    "metrics": metrics, "doctor": doctor, "bench": bench, "arena": arena, "play": play, "exercise": exercise}
