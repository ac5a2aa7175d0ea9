"""Commands that train: an algorithm, a grid of runs, a resumed run."""
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spinup import registry
from spinup.errors import UserError
from spinup.parser import Parser, path_of
from spinup.registry import Algorithm

if TYPE_CHECKING:
    from spinup.runs.config import RunConfig

HELP = """\
Train:
  spinup ALGORITHM [--env CartPole-v1] [flags]    train an agent; ALGORITHM is one of
{algorithms},
                                                  or the dotted name of a module of your own
  spinup llm METHOD [--task reverse] [flags]      the same for language models; `spinup llm` lists methods and tasks
  spinup grid ALGORITHM --seed 0 1 2 [flags]      every combination of the given values, one process per run
  spinup tune ALGORITHM [--trials 20] [flags]     search for good settings; `--lr 1e-4:1e-2` searches a range
  spinup resume DIR [--total-steps N]             resume a stopped run, or extend a finished one
"""
EXAMPLES = {"grid": "--seed 1 2", "tune": "--lr 1e-4:1e-2"}                # of flags of these commands
NEEDED = {"workers": 2, "seed": 1, "ray": "local", "trials": 20, "seeds": 100, "storage": "study.db"}       # values


def resume(argv: list[str]) -> int:
    from spinup.runs.flags import exit_code, whole
    parser = Parser("spinup resume", "Resume a stopped run from its last checkpoint. With --total-steps, also extend a "
                                     "finished run.")
    parser.add_argument("directory", type=path_of, metavar="DIR", help="the folder of a run, such as runs/NAME/NAME_s1")
    parser.add_argument("--total-steps", type=whole("total_steps"), default=0, metavar="N",
                        help="steps of the whole run, including those already done. [unchanged]")
    parser.add_argument("--data", type=path_of, default=None, metavar="FILE",
                        help="the dataset of a run of an offline algorithm, if it was moved. [unchanged]")
    args = parser.parse(argv)
    from spinup.runs.display import quoted
    from spinup.runs.folders import describe, find_run
    from spinup.runs.records import config_from_json, read_result, read_run
    directory = find_run(args.directory)
    done, data = read_result(directory), read_run(directory)
    where = describe(directory)
    may_grow = data.get("may_grow", True)                                 # False: the initial policy of other runs
    same = args.total_steps and args.total_steps == data["config"].get("total_steps")
    if may_grow and done.get("stopped_early") and same:
        raise UserError(f"{where} stopped early, at {done['steps']:,} steps; to continue, choose another "
                        f"--total-steps, such as {args.total_steps + 1}")
    if done.get("status") == "finished" and args.total_steps <= done["steps"]:
        early, settings = "", data["config"]
        if done.get("stopped_early") and isinstance(settings.get("total_steps"), int):
            early = f" of {settings['total_steps']:,}, stopped early"
            if "stop_accuracy" in settings:
                early += f", because it reached --stop-accuracy {settings['stop_accuracy']}"
        print(f"{where} is finished: {done['steps']:,} steps{early}; `spinup watch {quoted(where)}` shows it"
              + f"\n`spinup resume {quoted(where)} --total-steps {2 * done['steps']}` extends it" * may_grow)
        return 0
    algorithm = registry.find(data["algorithm"], run=directory)
    if args.data is not None:
        if "dataset" not in data:
            raise UserError(f"{where} did not learn from a dataset; leave out --data")
        data["config"]["data"] = str(args.data)
    config = config_from_json(algorithm, data["config"])
    if given := {k: v["callable"] for k, v in data["config"].items() if isinstance(v, dict)}:
        what = next(iter(given)).replace("env", "environment")
        package, _, function = algorithm.module.partition(".algos.")
        named = {k: "FUNCTION" if v == "lambda" else v for k, v in given.items()}
        words = ", ".join(v if k == config.SUBJECT else f"{k}={v}" for k, v in named.items())
        longer = f"total_steps={args.total_steps}, " if args.total_steps else ""
        raise UserError(f"the {what} of {where} is a Python function or object, {', '.join(given.values())}; in "
                        f"Python, with the same settings, call {package}.{algorithm.variant or function}({words}, "
                        f"{longer}resume={where!r})")
    if args.total_steps:
        config = replace(config, total_steps=args.total_steps)
    config = replace(config, quiet=False)                                 # runs of grids and studies are quiet
    return exit_code(algorithm.load().train(config, resume=directory))


def grid(argv: list[str]) -> int:
    parser = Parser("spinup grid", "Run every combination of the given values, one process per run: spinup grid ppo "
                                   "--env CartPole-v1 --seed 0 1 2 --clip-ratio 0.1 0.2 --workers 2. The same command "
                                   "again runs only what is missing.")
    parser.add_argument("algorithm", help="such as ppo; or two words, such as llm grpo")
    parser.add_argument("--workers", metavar="N", help="number of processes in parallel. [1]")
    parser.add_argument("--ray", metavar="ADDRESS", help="train on a Ray cluster, with as many parallel runs as its "
                        "CPUs allow: auto, HOST:PORT, or local, which starts Ray on this machine")
    parser.add_argument("--FLAG", metavar="VALUE", nargs="+", help="any flag of the algorithm, with one or more values")
    if not argv or argv[0] in ("-h", "--help"):
        parser.print_help()
        return 0
    algorithm, values = algorithm_and_flags("grid", argv)
    from spinup.runs.flags import processes
    from spinup.view.grid import grid as run_grid
    values = with_file(algorithm, values)
    ray = one("ray", values, "")
    workers = processes("workers")(one("workers", values, "256" if ray else "1"))
    return run_grid(algorithm.name, values, workers=workers, check=partial(checked, algorithm), ray=ray)


def tune(argv: list[str]) -> int:
    parser = Parser("spinup tune", "Search for good settings with Optuna: spinup tune ppo --env CartPole-v1 --lr "
                                   "1e-4:1e-2 --gamma 0.9 0.99 0.999. A flag with several values or a range LOW:HIGH "
                                   "is searched. Without such flags, a search space made for the algorithm is used. "
                                   "The same command again continues the study.")
    parser.add_argument("algorithm", help="such as ppo; or two words, such as llm grpo")
    parser.add_argument("--trials", metavar="N", help="number of trials, including those of earlier commands. [20]")
    parser.add_argument("--seeds", metavar="S", nargs="+", help="seeds of each trial; its result is their mean. [100]")
    parser.add_argument("--storage", metavar="FILE", help="SQLite file of the study. [study.db in its folder]")
    parser.add_argument("--FLAG", metavar="VALUE", nargs="+", help="any flag of the algorithm: one value, several, or "
                                                                   "a range LOW:HIGH")
    if not argv or argv[0] in ("-h", "--help"):
        parser.print_help()
        return 0
    algorithm, values = algorithm_and_flags("tune", argv)
    from spinup.runs.flags import whole
    from spinup.view.study import plan
    from spinup.view.tune import tune as run_study
    trials = whole("trials")(one("trials", values, "20"))
    seeds = list(map(whole("seeds", 0), values.pop("seeds", ["100"])))
    storage = one("storage", values, "")
    return run_study(plan(algorithm, values, partial(checked, algorithm), trials=trials, seeds=seeds, storage=storage))


def algorithm_and_flags(command: str, argv: list[str]) -> tuple[Algorithm, dict[str, list[str]]]:
    """Return the algorithm that the first word names, or the first two, and the flags after it with their values.
    UserError if it is unknown, or a value has no flag."""
    words = 2 if argv[0] in registry.FAMILIES else 1
    if words == 2 and (len(argv) == 1 or argv[1].startswith("-")):
        raise UserError(f"spinup {command} {argv[0]} needs a method, as in: spinup {command} llm grpo "
                        f"{EXAMPLES[command]}; `spinup llm` lists them")
    return registry.find(" ".join(argv[:words])), flags_and_values(command, argv[words:])


def with_file(algorithm: Algorithm, values: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the flags of a grid, with the seed and the folders of its `--config` where no flag gives them. UserError
    if several files differ in these."""
    from spinup.runs.presets import read_toml
    if not values.get("config"):
        return values
    files = [read_toml(Path(path), algorithm.load().Config) for path in values["config"]]
    found = {}
    for name in ("seed", "log-dir", "exp-name"):
        given = {str(file.get(name.replace("-", "_"), "")) for file in files}
        if len(given) > 1 and name not in values:
            raise UserError(f"the files of --config do not all have the same {name}, which all runs share; remove it "
                            f"from them, and add --{name}")
        found |= {name: [*given]} if any(given) else {}
    return found | values


def checked(algorithm: Algorithm, flags: dict[str, str]) -> "RunConfig":
    """Return the Config for these flags, "" for a flag without a value. UserError if a run with them could not start.
    """
    from spinup.runs.flags import from_flags, in_words
    from spinup.runs.public import check_start
    config, _ = from_flags(algorithm, in_words(flags))
    check_start(algorithm, config)
    return config


def flags_and_values(command: str, words: list[str]) -> dict[str, list[str]]:
    """Parse `--seed 0 1 --anneal` to {"seed": ["0", "1"], "anneal": []}. UserError for a value without a flag."""
    values: dict[str, list[str]] = {}
    current = None
    for word in words:
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            current = values.setdefault(key.replace("_", "-"), [])
            current += [value] * bool(equals)
        elif current is None:
            raise UserError(f"spinup {command} does not know what to do with {word!r}; values follow a flag, as in "
                            f"{EXAMPLES[command]}")
        else:
            current.append(word)
    for flag in ("exp-name", "log-dir", "ray", "storage"):
        if "" in values.get(flag, []):
            raise UserError(f"--{flag} is empty; give it a value, or leave it out")
    for flag in values.keys() & NEEDED.keys():
        if not values[flag]:
            raise UserError(f"--{flag} needs a value, as in --{flag} {NEEDED[flag]}")
    return values


def one(flag: str, values: dict[str, list[str]], default: str) -> str:
    """Remove a flag from `values` and return its value. UserError if it has several."""
    texts = values.pop(flag, [default])
    if len(texts) > 1:
        raise UserError(f"--{flag} takes one value, not {' '.join(texts)}")
    return texts[0]


COMMANDS = {"grid": grid, "tune": tune, "resume": resume}
