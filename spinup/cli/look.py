"""Commands that inspect the results of runs."""
import sys
from pathlib import Path
from typing import Any

from spinup import registry
from spinup.errors import UserError
from spinup.parser import Parser, path_of

HELP = """\
Inspect runs:
  spinup plot DIR... [--x step|time]              learning curves with 95 % intervals, as PNG and SVG
  spinup watch DIR [--episodes N] [--gif FILE]    show a trained policy in action
  spinup eval DIR [--episodes 100] [--json]       return of a trained policy in new episodes
  spinup shelf                                    trained policies for `spinup watch shelf/NAME`
"""


def check_folders(paths: list[Path]) -> None:
    """UserError if one of the paths is not a folder."""
    for folder in paths:
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}; give one that holds runs, such as runs")


def plot(argv: list[str]) -> int:
    from spinup.runs.flags import whole
    parser = Parser("spinup plot", "Plot learning curves, averaged over seeds, with 95 % confidence intervals, as PNG "
                                   "and SVG.")
    parser.add_argument("directories", type=path_of, nargs="+", metavar="DIR",
                        help="runs, experiments, or folders of them")
    parser.add_argument("--x", choices=["step", "time"], default="step", help="horizontal axis. [step]")
    parser.add_argument("--smooth", type=whole("smooth"), default=1, help="window of the moving average, in rows. [1]")
    parser.add_argument("--group", choices=["experiment", "run", "algorithm"], default="experiment",
                        help="runs that one curve averages. [experiment]")
    parser.add_argument("--value", default="", help="column of progress.csv to plot. [the measure of policy quality]")
    parser.add_argument("--beside", type=path_of, default=None, metavar="CSV",
                        help="CSV file of published curves, with columns env,algorithm,source,steps,value")
    parser.add_argument("--out", type=path_of, default=None, metavar="FILE",
                        help="file of the plot; PNG and SVG are both written")
    args = parser.parse(argv)
    from rich.console import Console
    from rich.table import Table

    from spinup.runs.display import number
    from spinup.view import plots
    check_folders(args.directories)
    pictures = plots.plot(args.directories, x=args.x, smooth=args.smooth, group=args.group, value=args.value,
                          beside=args.beside, out=args.out)
    table = Table(box=None, padding=(0, 2, 0, 0))
    rows = plots.summary(args.directories, args.group, args.value)
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else number(v) for v in row.values()))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    print(*plots.remarks(args.directories, args.group, args.value), *pictures, sep="\n")
    return 0


def find_family(directory: Path) -> tuple[Any, Path]:
    """Return the family of the run in a folder, and the folder of that run."""
    from spinup.runs.folders import find_run
    from spinup.runs.records import read_run
    folder = find_run(directory)
    return registry.family(registry.find(read_run(folder)["algorithm"], run=folder)), folder


def episodes_parser(command: str, description: str, episodes: int) -> Parser:
    """Make a parser with the flags that `watch` and `eval` share."""
    from spinup.runs.flags import add_device, whole
    parser = Parser(f"spinup {command}", description)
    parser.add_argument("directory", type=path_of, metavar="DIR",
                        help="the folder of a run, or shelf/NAME for a policy that `spinup shelf` lists")
    parser.add_argument("--episodes", type=whole("episodes", at_most=100_000), default=episodes,
                        help=f"number of episodes, or of prompts for a language model. [{episodes}]")
    parser.add_argument("--stochastic", action="store_true", default=False,
                        help="sample actions as in training, instead of taking the most likely one")
    parser.add_argument("--seed", type=whole("seed", 0), default=0, help="seed of the episodes. [0]")
    add_device(parser)
    return parser


def watch(argv: list[str]) -> int:
    parser = episodes_parser("watch", "Show a trained policy in action, in a window or a GIF, or the responses of a "
                                      "language model and their rewards.", 1)
    parser.add_argument("--gif", type=path_of, default=None, metavar="FILE",
                        help="write a GIF instead of opening a window")
    parser.add_argument("--best", action="store_true", default=False,
                        help="show the policy that --keep-best kept, instead of the last one")
    args = parser.parse(argv)
    family, folder = find_family(args.directory)
    family.watch(folder, episodes=args.episodes, stochastic=args.stochastic, gif=args.gif, seed=args.seed,
                 device=args.device, best=args.best)
    return 0


def evaluate(argv: list[str]) -> int:
    parser = episodes_parser("eval", "Evaluate a trained policy in new episodes, with seeds that training did not "
                                     "use.", 100)
    parser.add_argument("--json", action="store_true", default=False, help="print one line of JSON")
    parser.add_argument("--best", action="store_true", default=False,
                        help="evaluate the policy that --keep-best kept, instead of the last one")
    args = parser.parse(argv)
    family, folder = find_family(args.directory)
    print(family.evaluate(folder, episodes=args.episodes, stochastic=args.stochastic, seed=args.seed,
                          as_json=args.json, device=args.device, best=args.best))
    return 0


def shelf(argv: list[str]) -> int:
    parser = Parser("spinup shelf", "List the trained policies that come with this package (the shelf).")
    actions = parser.add_subparsers(dest="action", metavar="add|gallery")
    adding = actions.add_parser("add", description="Put the final policy of a finished run on the shelf.")
    drawing = actions.add_parser("gallery", description="Write a GIF of each policy to a folder.")
    adding.add_argument("directory", type=path_of, metavar="DIR", help="the folder of a finished run")
    adding.add_argument("--name", default="", help="its name on the shelf. [ALGORITHM-ENVIRONMENT]")
    drawing.add_argument("folder", type=path_of, metavar="FOLDER", help="the folder of the GIFs")
    given = vars(parser.parse(argv))
    from spinup.runs.display import number
    from spinup.runs.folders import check_writable
    from spinup.view import shelf as shelves
    action = given.pop("action", None)
    if action == "add":
        print(shelves.add(**given))
    elif action == "gallery":
        check_writable(given["folder"], "FOLDER", "gallery")
        given["folder"].mkdir(parents=True, exist_ok=True)
        for path in shelves.gallery(given["folder"]):
            print(path, flush=True)
    else:
        for row in shelves.listed():
            print(f"{row['policy']}: return {number(row['return'])} on {row['env']}\n"
                  f"    {row['steps']:,} steps, {row['bytes'] / 1024:,.0f} KiB\n    {row['command']}")
        print("type: spinup watch shelf/NAME, or: spinup eval shelf/NAME")
    return 0


COMMANDS = {"plot": plot, "watch": watch, "eval": evaluate, "shelf": shelf}
