"""`spinup bench`: speed, returns, time to a return, and experiments of papers. The benchmarks of language models are in
`llm`."""
from pathlib import Path

from llm import cli as llm_cli
from spinup.parser import Parser, path_of

HELP = """\
Measure:
  spinup bench speed|time-to|returns ALGORITHM    speed beside stable-baselines3; time to a return; returns of a preset
  spinup bench speed grpo|generate                language models beside trl and transformers
  spinup bench roofline                           language-model speed against this machine's limits
  spinup bench accuracy METHOD [--task T]         the accuracy that a method reaches on a task of language
  spinup bench paper NAME                         a paper's own experiment, small: its table beside ours
"""


def bench(argv: list[str]) -> int:
    for name, command in llm_cli.BENCHES.items():
        words = name.split()
        if argv[:len(words)] == words:
            return command(argv[len(words):])
    if argv[:1] == ["paper"]:
        return paper(argv[1:])
    if argv[:1] in (["speed"], ["time-to"], ["returns"]):
        return algorithm(argv[0], argv[1:])
    parser = Parser("spinup bench", "Benchmarks; the last line is JSON, and the exit code 1 where a stated goal is "
                                    "missed. `spinup bench speed --help` and so on have the flags.")
    parser.add_argument("what", choices=["speed", "time-to", "returns", "paper", "accuracy", "roofline"], help=(
        "speed beside a peer, of an algorithm, or of llm: `speed grpo`, `speed generate`; seconds to a return; the "
        "returns of a preset; a paper's own experiment; what a method of llm reaches; and how near it comes to the "
        "limits of the machine"))
    parser.parse(argv)
    return 0


def algorithm(what: str, argv: list[str]) -> int:
    """Run `spinup bench speed`, `time-to` or `returns` for an algorithm."""
    from spinup.runs.flags import add_seeds, number, processes, whole
    parser = Parser(f"spinup bench {what}", {
        "speed": "Steps a second of an algorithm, learning, beside a peer's.",
        "time-to": "Seconds of training until the last 20 episodes average a given return.",
        "returns": "What a preset reaches, seed by seed. Finished runs that are there already are not repeated."}[what])
    parser.add_argument("algorithm", help="such as ppo")
    if what == "speed":
        from spinup.bench.tasks import TASKS as MEASURED
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
        parser.add_argument("--preset", default="auto", metavar="NAME",
                            help="auto (that of the environment), none, or a name from `spinup algos`. [auto]")
        parser.add_argument("--total-steps", type=whole("total_steps"), default=None, metavar="N",
                            help="steps of each run. [as the preset says]")
        parser.add_argument("--against", choices=["sb3"], default=None,
                            help="train a peer too, with its own defaults, for as many steps")
        parser.add_argument("--workers", type=processes("workers"), default=1, metavar="N", help="runs at a time. [1]")
        parser.add_argument("--log-dir", type=path_of, default=Path("runs"), metavar="DIR",
                            help="the folder of the runs. [runs]")
    parser.add_argument("--out", type=path_of, default=None, metavar="FILE", help="write the JSON here too")
    given = vars(parser.parse(argv))
    from spinup.bench import returns, speed, time_to
    measure = {"speed": speed.speed, "time-to": time_to.time_to, "returns": returns.returns}[what]
    return measure(given.pop("algorithm"), given.pop("env"), **given)


def paper(argv: list[str]) -> int:
    from spinup.bench.papers.paper import check_picture, find_papers, show
    from spinup.runs.flags import add_seeds, processes
    papers = find_papers()
    parser = Parser("spinup bench paper", "A paper's own experiment, small: its table beside ours, and a picture. Runs "
                                          "that are there already, finished, are not repeated.")
    parser.add_argument("name", choices=list(papers), help=", ".join(papers))
    add_seeds(parser, None, "[those of the goals]")
    parser.add_argument("--workers", type=processes("workers"), default=1, metavar="N", help="runs at a time. [1]")
    parser.add_argument("--log-dir", type=path_of, default=Path("runs"), metavar="DIR",
                        help="the folder of the runs. [runs]")
    parser.add_argument("--picture", type=path_of, default=None, metavar="FILE", help="the picture. [NAME.png]")
    parser.add_argument("--out", type=path_of, default=None, metavar="FILE", help="write the JSON here too")
    args = parser.parse(argv)
    import importlib
    picture = args.picture or Path(f"{args.name}.png")
    check_picture(picture, args.out)
    experiment = importlib.import_module(papers[args.name])
    found, folders = experiment.measure(tuple(args.seeds or experiment.SEEDS), args.workers, args.log_dir)
    return show(args.name, found, folders, picture, args.out)


COMMANDS = {"bench": bench}
