"""Commands that list algorithms, environments and metrics, and check this machine."""
import sys

from llm.tasks.names import task_names
from spinup import registry
from spinup.errors import UserError, nearest
from spinup.parser import Parser, wrapped
from spinup.registry import Algorithm

HELP = """\
Get information:
  spinup algos [NAME]                             algorithms; of one, what it supports, and its presets
  spinup envs [--grep WORD]                       environments that you can use here
  spinup metrics [ALGORITHM] [--grep WORD]        what the columns of progress.csv mean
  spinup doctor                                   what works on this machine
"""


def algos(argv: list[str]) -> int:
    parser = Parser("spinup algos", "List algorithms and their variants. With a name, show what the algorithm "
                                    "supports, and its presets.")
    parser.add_argument("algorithm", nargs="*", default=[], help="a name such as ppo or llm grpo. [all]")
    name = " ".join(parser.parse(argv).algorithm)
    from rich.console import Console
    console = Console(width=None if sys.stdout.isatty() else 160)
    if name:
        found = registry.find(name)
        whole = registry.find(name.partition(":")[0]) if ":" in name else file_of(found)
        if found.variant:
            settings = ", ".join(f"{setting} = {value}" for setting, value in found.settings.items())
            console.print(f"{found.name} is {whole.name} with {settings}", highlight=False, soft_wrap=True)
        print_algorithm(whole, console)
        return 0
    for family in registry.FAMILIES:
        found = {**registry.algorithms(family), **registry.installed(family)}
        for algorithm in found.values():
            if not algorithm.variant:
                print_title(algorithm, console)
    console.print("`spinup algos ppo` shows what ppo supports, and its presets", highlight=False, soft_wrap=True)
    for family in registry.FAMILIES:
        for fault in registry.installed(family).faults.values():
            print(fault)
    return 0


def file_of(variant: Algorithm) -> Algorithm:
    """Return the algorithm whose file has the variant; an algorithm that is no variant is returned itself."""
    known = {**registry.algorithms(variant.family), **registry.installed(variant.family)}.values()
    return next((a for a in known if a.path == variant.path and not a.variant), variant)


def print_algorithm(algorithm: Algorithm, console: object) -> None:
    """Print information on an algorithm: its variants, the spaces that it supports, and a table of its presets."""
    from rich.table import Table
    print_title(algorithm, console)
    about = algorithm.about
    serves = f"tasks: {', '.join(task_names())}; JSONL files"
    if not algorithm.family:
        actions, observations = (", ".join(about.get(key, ())) for key in ("actions", "observations"))
        serves = f"actions: {actions}; observations: {observations}"
    console.print(f"     {serves}", highlight=False, soft_wrap=True)
    if not algorithm.presets:
        console.print("     no presets; the defaults apply", highlight=False)
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("     preset", "steps", "reached here", "best published"):
        table.add_column(column, justify="right" if column == "steps" else "left")
    for preset, data in algorithm.presets.items():
        reached, steps = data["reached"] or {}, data["settings"].get("total_steps")
        table.add_row(f"     {preset}", f"{steps:,}" if steps else "",
                      ", ".join(f"{k} {v}" for k, v in reached.items() if k not in ("seeds", "file")),
                      data["published"] or "")
    console.print(table)
    returns = "" if algorithm.family else (
        ". E100: mean return of the final policy in 100 new episodes, without exploration. R100: mean training return "
        "of the last 100 episodes")
    console.print("     reached here: mean over seeds, from docs/benchmarks; empty: the preset was not measured"
                  f"{returns}", highlight=False, soft_wrap=True)


def print_title(algorithm: Algorithm, console: object) -> None:
    """Print a line with the names of an algorithm and its variants, and its summary."""
    from rich.markup import escape
    title = " | ".join([algorithm.name, *algorithm.variants])
    line = wrapped(f"{title}  {algorithm.summary}", 5).removeprefix(algorithm.name)
    console.print(f"[bold]{algorithm.name}[/]{escape(line)}", highlight=False, soft_wrap=True)


def envs(argv: list[str]) -> int:
    parser = Parser("spinup envs", "List the environments that you can use here. Those marked * come first; this "
                                   "library has its own vectorised version of them.")
    parser.add_argument("--grep", default="", metavar="WORD", help="only ids that contain this word, in upper or lower "
                                                                   "case")
    word = parser.parse(argv).grep
    from spinup.envs.ids import OURS, registered
    ids = sorted((i for i in registered() if word.lower() in i.lower()), key=lambda i: i not in OURS)
    if not ids:
        raise UserError(f"no environment has {word!r} in its id.{nearest(word, registered())} `spinup envs` lists "
                        "them all")
    print("\n".join(f"{i}{' *' if i in OURS else ''}" for i in ids))
    return 0


def metrics(argv: list[str]) -> int:
    parser = Parser("spinup metrics", "Explain the columns of progress.csv and the curves in TensorBoard.")
    parser.add_argument("--grep", default="", metavar="WORD", help="only metrics with this word in their name or "
                                                                   "meaning")
    parser.add_argument("algorithm", nargs="*", default=[], help="only metrics that this algorithm adds; give a name "
                                                                 "such as self_play, or a module of your own. [metrics "
                                                                 "of all installed algorithms]")
    args = parser.parse(argv)
    word, name = args.grep, " ".join(args.algorithm)
    from spinup.view.metrics import meanings
    known = registry.find(name).about.get("metrics", {}) if name else meanings()
    if not known:
        raise UserError(f"{name} has no columns of its own; `spinup metrics` lists the columns of all algorithms")
    found = {name: text for name, text in known.items() if word.lower() in f"{name} {text}".lower()}
    if not found:
        raise UserError(f"no metric has {word!r} in its name or meaning.{nearest(word, known)} `spinup metrics` "
                        "lists them all")
    print("\n".join(wrapped(f"{name:22}{text}", 22) for name, text in found.items()))
    return 0


def doctor(argv: list[str]) -> int:
    Parser("spinup doctor", "Check what works on this machine.").parse(argv)
    from spinup.view.doctor import doctor as examine
    code = examine()
    from llm.tasks.sandbox import limits
    print(f"code that a language model writes is run with {limits()}")
    return code


COMMANDS = {"algos": algos, "envs": envs, "metrics": metrics, "doctor": doctor}
