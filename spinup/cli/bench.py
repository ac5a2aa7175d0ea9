"""`spinup bench`: speed, returns, time to a return, and experiments of papers. The benchmarks of language models are in
`llm`."""
import argparse
from functools import partial
from pathlib import Path

from llm import cli as llm_cli
from spinup.errors import UserError
from spinup.parser import Parser, path_of, text_width

HELP = """\
Measure:
  spinup bench speed|time-to|returns ALGORITHM    speed against stable-baselines3; time to a return; returns of a preset
  spinup bench speed grpo|generate                language-model speed against trl and transformers
  spinup bench suite classic|mujoco|...           train and evaluate every algorithm in some environments
  spinup bench report DIR...                      a page that compares the algorithms of any runs
  spinup bench roofline                           language-model speed against this machine's limits
  spinup bench costs                              computed memory and seconds of an update by model size
  spinup bench accuracy METHOD [--task T]         the accuracy that a method reaches on a language task
  spinup bench paper NAME                         a paper's experiment at small scale: its results and ours
"""


def bench(argv: list[str]) -> int:
    from spinup.bench.process import ending_children
    with ending_children():
        return one_of(argv)


def one_of(argv: list[str]) -> int:
    """Run the benchmark that the first word names."""
    for name, command in llm_cli.BENCHES.items():
        words = name.split()
        if argv[:len(words)] == words:
            return command(argv[len(words):])
    if argv[:1] and argv[0] in OWN:
        return OWN[argv[0]](argv[1:])
    if argv[:1] in (["speed"], ["time-to"], ["returns"]):
        return algorithm(argv[0], argv[1:])
    parser = Parser("spinup bench", "Run a benchmark. The last line of its output is JSON, except for suite and "
                                    "report. The exit code is 1 if a goal is missed. For the flags of a benchmark, "
                                    "type for example `spinup bench speed --help`.")
    known = ["speed", "time-to", "returns", *OWN, "accuracy", "roofline", "costs"]
    parser.add_argument("what", choices=known, help=(
        "speed: an algorithm against another library, or language models with `speed grpo` and `speed generate`; "
        "time-to: seconds to a return; returns: returns of a preset; suite: every algorithm in some "
        "environments; report: a page that compares runs; paper: a paper's experiment; accuracy: accuracy "
        "of an llm method; roofline: llm speed against this machine's limits; costs: computed memory and "
        "seconds of an llm update"))
    parser.parse(argv)
    return 0


def algorithm(what: str, argv: list[str]) -> int:
    """Run `spinup bench speed`, `time-to` or `returns` for an algorithm. UserError if it learns from a dataset."""
    from spinup.runs.convert import parse
    from spinup.runs.flags import Distinct, add_seeds, processes, whole
    parser = Parser(f"spinup bench {what}", {
        "speed": "Steps per second of an algorithm during training, compared with another library.",
        "time-to": "Seconds of training until the mean return of the last 20 episodes reaches a given value.",
        "returns": "Returns that a preset reaches, seed by seed. Finished runs are not repeated."}[what])
    parser.add_argument("algorithm", help="such as ppo")
    if what == "speed":
        from spinup.bench.tasks import PEERS
        from spinup.bench.tasks import TASKS as MEASURED
        there = "; ".join(f"{algo} on {env}" for algo, env in MEASURED)
        parser.add_argument("--env", default="CartPole-v1", metavar="ID", help=f"one of: {there}. [CartPole-v1]")
        parser.add_argument("--against", choices=PEERS, default="sb3", help="library to compare with: "
                            "stable-baselines3, or SBX, its version in JAX, for td3 and sac. [sb3]")
        parser.add_argument("--threads", type=int, choices=[1, 2], default=1,
                            help="CPU threads of torch and of matrix products, for both libraries. [1]")
        parser.add_argument("--compile", action="store_true", default=False,
                            help="compile our update step; the compilation time is reported separately")
        parser.add_argument("--total-steps", type=whole("total_steps"), default=None, metavar="N",
                            help="steps of each run")
        parser.add_argument("--rounds", type=whole("rounds"), default=3, metavar="N", help="pairs of runs. [3]")
    else:
        parser.add_argument("--env", default="CartPole-v1", metavar="ID", help="the environment. [CartPole-v1]")
        add_seeds(parser, [1, 2, 3], "[1 2 3]")
    if what == "time-to":
        parser.add_argument("--return", dest="target", type=partial(parse, "return", float), default=475.0, metavar="R",
                            help="mean return of the last 20 episodes to reach. [475]")
    if what == "returns":
        from spinup.bench.against import REFERENCES, all_of_the_zoo
        parser.add_argument("--compile", action="store_true", default=False, help="compile the update step")
        parser.add_argument("--preset", default="auto", metavar="NAME",
                            help="auto (the environment's preset), none, or a name from `spinup algos NAME`. [auto]")
        parser.add_argument("--total-steps", type=whole("total_steps"), default=None, metavar="N",
                            help="steps of each run. [as in the preset]")
        parser.add_argument("--against", choices=list(REFERENCES), default=None,
                            help="also train stable-baselines3 for the same number of steps, with its defaults (sb3) "
                                 "or with the settings of RL Baselines3 Zoo (zoo), for " + all_of_the_zoo())
        parser.add_argument("--peer-seeds", type=whole("peer_seeds", 0), nargs="+", action=Distinct, default=None,
                            metavar="S", help="seeds of stable-baselines3. [as --seeds]")
        parser.add_argument("--workers", type=processes("workers"), default=1, metavar="N", help="parallel runs. [1]")
        parser.add_argument("--log-dir", type=path_of, default=Path("runs"), metavar="DIR",
                            help="the folder of the runs. [runs]")
    parser.add_argument("--out", type=path_of, default=None, metavar="FILE", help="also write the JSON to this file")
    given = vars(parser.parse(argv))
    from spinup.registry import find
    from spinup.runs.offline import OfflineConfig
    if what != "speed" and issubclass(find(given["algorithm"]).load().Config, OfflineConfig):
        raise UserError(f"{given['algorithm']} learns from a dataset; to compare such algorithms, type: "
                        "spinup bench paper offline")
    from spinup.bench import returns, speed, time_to
    measure = {"speed": speed.speed, "time-to": time_to.time_to, "returns": returns.returns}[what]
    return measure(given.pop("algorithm"), given.pop("env"), **given)


def suite(argv: list[str]) -> int:
    from spinup.bench import suite as suites
    from spinup.runs.flags import add_seeds, processes, whole
    parser = Parser("spinup bench suite", "Train every algorithm that supports the environments of a suite, and "
                                          "evaluate its final policy. Finished runs are not repeated, and unfinished "
                                          "ones resume.")
    parser.add_argument("name", choices=list(suites.suites()), help="; ".join(
        f"{name}: {', '.join(envs)}" for name, envs in suites.suites().items()))
    add_seeds(parser, [1, 2, 3, 4, 5], "[1 2 3 4 5]")
    parser.add_argument("--workers", type=processes("workers"), default=1, metavar="N", help="parallel runs. [1]")
    parser.add_argument("--algos", nargs="+", default=[], metavar="NAME",
                        help="only these algorithms; variants such as double_dqn run only if you name them")
    parser.add_argument("--env", dest="envs", nargs="+", default=[], metavar="ID", help="only these environments")
    parser.add_argument("--total-steps", type=whole("total_steps"), default=None, metavar="N",
                        help="steps of each run. [as in the suite]")
    parser.add_argument("--against", choices=["sb3"], default=None,
                        help="also train stable-baselines3, with its own defaults, where it has the algorithm")
    parser.add_argument("--log-dir", type=path_of, default=None, metavar="DIR",
                        help="the folder of the runs. [runs/suite_NAME]")
    return suites.suite(**vars(parser.parse(argv)))


def report(argv: list[str]) -> int:
    parser = Parser("spinup bench report", "Compare the algorithms of several runs on one page, as HTML and Markdown: "
                                           "learning curves, interquartile means, performance profiles and "
                                           "probabilities of improvement, with 95 % intervals.")
    parser.add_argument("directories", type=path_of, nargs="+", metavar="DIR",
                        help="runs, experiments, or folders of them, such as runs/suite_classic")
    parser.add_argument("--out", type=path_of, default=None, metavar="FILE",
                        help="the page; .html and .md are both written. [report.html in the first DIR]")
    args = parser.parse(argv)
    from spinup.bench.report import report as write_report
    from spinup.cli.look import check_folders
    check_folders(args.directories)
    print("\n".join(str(path) for path in write_report(args.directories, args.out)))
    return 0


def paper(argv: list[str]) -> int:
    from spinup.bench.papers.paper import check_picture, find_papers, show, title_of
    from spinup.runs.flags import add_seeds, processes
    papers = find_papers()
    parser = Parser("spinup bench paper", "Run a small version of a paper's experiment. Print a table of results and "
                                          "goals,\nand draw a plot. Finished runs are not repeated.")
    parser.add_argument("name", choices=list(papers), metavar="NAME", help="one of the experiments below")
    parser.epilog = "\n".join(["experiments:", *(f"  {name:<22}{title_of(name)}" for name in papers)])
    parser.formatter_class = partial(argparse.RawDescriptionHelpFormatter, max_help_position=28,
                                     width=text_width())
    add_seeds(parser, None, "[the seeds of the goals]")
    parser.add_argument("--workers", type=processes("workers"), default=1, metavar="N", help="parallel runs. [1]")
    parser.add_argument("--log-dir", type=path_of, default=Path("runs"), metavar="DIR",
                        help="the folder of the runs. [runs]")
    parser.add_argument("--picture", type=path_of, default=None, metavar="FILE", help="file of the plot. [NAME.png]")
    parser.add_argument("--out", type=path_of, default=None, metavar="FILE", help="also write the JSON to this file")
    args = parser.parse(argv)
    import importlib
    picture = args.picture or Path(f"{args.name}.png")
    check_picture(picture, args.out)
    experiment = importlib.import_module(papers[args.name])
    seeds = tuple(args.seeds or experiment.SEEDS)
    found, folders = experiment.measure(seeds, args.workers, args.log_dir)
    found.raw = {"command": f"spinup bench paper {args.name} --seeds {' '.join(map(str, seeds))}", **found.raw}
    return show(args.name, found, folders, picture, args.out)


OWN = {"suite": suite, "report": report, "paper": paper}                  # they have other flags than `algorithm`
COMMANDS = {"bench": bench}
