"""Commands that train: an algorithm, a grid of runs, a resumed run."""
from dataclasses import replace

from spinup import registry
from spinup.errors import UserError
from spinup.parser import Parser, path_of

HELP = """\
Train:
  spinup ALGORITHM [--env CartPole-v1] [flags]    one of: {algorithms}; `spinup ppo --help` lists its flags;
                                                  or the dotted name of a module of your own
  spinup llm METHOD [--task reverse] [flags]      the same for language models; `spinup llm` lists methods and tasks
  spinup grid ALGORITHM --seed 0 1 2 [flags]      every combination of the given values, one process per run
  spinup resume DIR [--total-steps N]             resume a stopped run, or extend a finished one
"""


def resume(argv: list[str]) -> int:
    from spinup.runs.flags import exit_code, whole
    parser = Parser("spinup resume", "Resume a stopped run from its last checkpoint. With --total-steps, also extend a "
                                     "finished run.")
    parser.add_argument("directory", type=path_of, metavar="DIR", help="the folder of a run, such as runs/NAME/NAME_s1")
    parser.add_argument("--total-steps", type=whole("total_steps"), default=0, metavar="N",
                        help="steps of the whole run, including those already done. [unchanged]")
    args = parser.parse(argv)
    from spinup.runs.folders import config_from_json, describe, find_run, read_result, read_run
    directory = find_run(args.directory)
    done, data = read_result(directory), read_run(directory)
    where = describe(directory)
    if done.get("status") == "finished" and args.total_steps <= done["steps"]:
        early, settings = "", data["config"]
        if done.get("stopped_early"):
            early = f" of {settings['total_steps']:,}, stopped early"
            if "stop_accuracy" in settings:
                early += f", because it reached --stop-accuracy {settings['stop_accuracy']}"
        print(f"{where} is finished: {done['steps']:,} steps{early}; `spinup watch {where}` shows it\n`spinup resume "
              f"{where} --total-steps {2 * done['steps']}` extends it")
        return 0
    algorithm = registry.find(data["algorithm"], run=directory)
    config = config_from_json(algorithm, data["config"])
    if given := {k: v["callable"] for k, v in data["config"].items() if isinstance(v, dict)}:
        what = next(iter(given)).replace("env", "environment")
        package, _, function = algorithm.module.partition(".algos.")
        words = ", ".join(v if k == config.SUBJECT else f"{k}={v}" for k, v in given.items())
        raise UserError(f"the {what} of {where} is a Python function or object, {words}; in Python, with the same "
                        f"settings, call {package}.{algorithm.variant or function}({words}, resume={where!r})")
    if args.total_steps:
        config = replace(config, total_steps=args.total_steps)
    return exit_code(algorithm.load().train(config, resume=directory))


def grid(argv: list[str]) -> int:
    parser = Parser("spinup grid", "Run every combination of the given values, one process per run: spinup grid ppo "
                                   "--env CartPole-v1 --seed 0 1 2 --clip-ratio 0.1 0.2 --workers 2. The same command "
                                   "again runs only what is missing.")
    parser.add_argument("algorithm", help="such as ppo; or two words, such as llm grpo")
    parser.add_argument("--workers", metavar="N", help="number of processes in parallel. [1]")
    parser.add_argument("--FLAG", metavar="VALUE", nargs="+", help="any flag of the algorithm, with one or more values")
    if not argv or argv[0] in ("-h", "--help"):
        parser.print_help()
        return 0
    words = 2 if argv[0] in registry.FAMILIES else 1
    if words == 2 and (len(argv) == 1 or argv[1].startswith("-")):
        raise UserError(f"spinup grid {argv[0]} needs a method, as in: spinup grid llm grpo --seed 1 2; `spinup llm` "
                        "lists them")
    algorithm, values = registry.find(" ".join(argv[:words])), flags_and_values(argv[words:])
    from spinup.runs.config import RunConfig
    from spinup.runs.flags import from_flags, processes
    from spinup.runs.public import advised
    from spinup.view.grid import grid as run_grid
    workers = processes("workers")(values.pop("workers", ["1"])[0])

    def check(flags: dict[str, str]) -> RunConfig:
        given = [f"--{flag}={value}" if value else f"--{flag}" for flag, value in flags.items()]
        config, _ = from_flags(algorithm, given)
        with advised(algorithm):
            registry.family(algorithm).check(algorithm, config)
        return config

    return run_grid(algorithm.name, values, workers=workers, check=check)


def flags_and_values(words: list[str]) -> dict[str, list[str]]:
    """Parse `--seed 0 1 --anneal` to {"seed": ["0", "1"], "anneal": []}. UserError for a value without a flag."""
    values: dict[str, list[str]] = {}
    current = None
    for word in words:
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
    return values


COMMANDS = {"grid": grid, "resume": resume}
