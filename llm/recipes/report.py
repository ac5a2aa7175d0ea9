"""Report of a recipe: the effect of each stage on held-out problems, as a table, as JSON, and as a picture."""
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm.evaluate import evaluate_on
from llm.recipes.recipe import JUDGE, REWARD, Recipe
from llm.restore import load
from spinup.errors import UserError
from spinup.runs.curve import COLOURS, STYLE, render
from spinup.runs.display import short
from spinup.runs.files import read_json, write_json, write_whole
from spinup.runs.folders import describe
from spinup.runs.log import read_progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS = {"seconds": "seconds", "tokens": "tokens", "kl_of_response": "KL (nats)", "length": "length",
         "entropy": "entropy"}
PHASES = ("rollout_seconds", "reward_seconds", "update_seconds")
TIMES = 8               # held-out responses of the report for each one of a row of the log
SIZE = (7.2, 3.6)       # of the picture with one panel, in inches


def report(recipe: Recipe, name: str, stages: Sequence[Any]) -> list[str]:
    """Evaluate every policy of a finished recipe, and write report.md, report.json and report.png. Return the lines of
    the table, then the file that holds it.

    Raise UserError for a damaged policy, before anything is written.

    Args:
        name: name that all runs of the recipe share.
        stages: `llm.pipeline.Stage` of each run, in order.
    """
    tasks = measured(recipe, stages)
    rows: list[dict[str, Any]] = []
    for stage in stages:
        rows.append(row_of(stage, tasks, {row["directory"]: row for row in rows}))
    table = as_table(rows, list(tasks))
    folder = report_folder(name, stages)
    folder.mkdir(parents=True, exist_ok=True)
    look = [f"- **{stage.step.name}** ({stage.step.method}): {stage.step.look}." for stage in stages if stage.step.look]
    text = [f"# {recipe.name}", "", f"{recipe.about}.", "", *markdown(table), "",
            "Before → after each stage, on held-out problems: the share of solved ones, or of a task without right "
            "answers the mean true reward. KL is to the policy that the stage started from, per response.",
            "", *(["What to look at:", "", *look, ""] if look else []), "![Each stage](report.png)", ""]
    write_json(folder / "report.json", {"recipe": recipe.name, "about": recipe.about, "stages": rows})
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    with rc_context(STYLE):
        figure = Figure((SIZE[0], SIZE[1] * len(tasks)), layout="constrained")
        draw(figure, rows, list(tasks))
        write_whole(folder / "report.png", render(figure, "png"))
    write_whole(folder / "report.md", "\n".join(text).encode())
    return [*aligned(table), "", *(line.replace("**", "") for line in look), *[""] * bool(look),
            describe(folder / "report.md")]


def report_folder(name: str, stages: Sequence[Any]) -> Path:
    """Return the folder NAME_sSEED of the log folder, with the seed of the last stage."""
    return Path(stages[-1].cfg.log_dir) / f"{name}_s{stages[-1].cfg.seed}"


def check_folder(folder: Path) -> None:
    """Raise UserError if a report cannot be written to a folder."""
    files = [folder / f"report.{kind}" for kind in ("md", "json", "png")]
    if (folder.exists() and not folder.is_dir()) or any(file.is_dir() for file in files):
        raise UserError(f"{describe(folder)} is in the way of the report; move it, or choose another --exp-name")


def measured(recipe: Recipe, stages: Sequence[Any]) -> dict[str, tuple[Any, Any]]:
    """Return the tasks of the report by name, each with the user's reward of it, or None.

    A learned reward is left out: the report has the true one.
    """
    given = [(task, None) for task in recipe.evaluate] or [
        (s.cfg.task, None if REWARD in s.step.references else s.cfg.given_reward) for s in stages]
    found: dict[str, tuple[Any, Any]] = {}
    for task, reward in given:
        name = task if isinstance(task, str) else getattr(task, "name", type(task).__name__)
        found.setdefault(name, (task, reward))
    return found


def row_of(stage: Any, tasks: dict[str, tuple[Any, Any]], earlier: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of one stage. earlier: the rows of the stages before it, by their folders."""
    folder, done = stage.run.directory, stage.run.result()
    progress, begun = read_progress(folder), read_json(folder / "config.json").get("start")
    judges = stage.step.method == JUDGE
    tokens = sum(rate * sum(progress[phase][i] for phase in PHASES)
                 for i, rate in enumerate(progress.get("tokens_per_second", ())))
    row = {"stage": stage.step.name, "method": stage.step.method, "directory": str(folder), "from": begun,
           "seconds": done["seconds"], "tokens": round(tokens), "measure": done["measure"],
           "result": done[done["measure"]],
           **{name: progress[name][-1] if name in progress else math.nan for name in HEADS
              if name not in ("seconds", "tokens")}}
    if not judges:
        before = earlier[begun]["after"] if begun in earlier else values(Path(begun), stage, tasks) if begun else {}
        row |= {"before": before, "after": values(folder, stage, tasks)}
    return {key: None if isinstance(x, float) and math.isnan(x) else x for key, x in row.items()}


def values(folder: Path, stage: Any, tasks: dict[str, tuple[Any, Any]]) -> dict[str, float | None]:
    """Return the measure of a policy on each task; None of a task whose prompts its model cannot read.

    Raise UserError if there is no policy in the folder, or if it is damaged.
    """
    found: dict[str, float | None] = {}
    load(folder)
    for name, (task, reward) in tasks.items():
        try:
            said = json.loads(evaluate_on(folder, task, reward=reward, problems=TIMES * stage.cfg.held_out, samples=1,
                                          as_json=True, device=stage.cfg.device))
            found[name] = said.get("held_out_accuracy", said.get("gold", said.get("reward")))
        except UserError:
            found[name] = None
    return found


def as_table(rows: list[dict[str, Any]], tasks: list[str]) -> list[list[str]]:
    """Return the cells of the table, its head first."""
    table = [["stage", "method", "its own measure", *tasks, *HEADS.values()]]
    for row in rows:
        cells = [" → ".join(number(row.get(when, {}).get(task)) for when in ("before", "after")) for task in tasks]
        table.append([row["stage"], row["method"], f"{short(row['measure'])} {number(row['result'])}", *cells,
                      f"{row['seconds']:.0f}", f"{row['tokens']:,}",
                      *(number(row[name], 2) for name in list(HEADS)[2:])])
    return table


def number(x: float | None, places: int = 3) -> str:
    """Return a number with `places` decimal places, or - for None."""
    return "-" if x is None else f"{x:.{places}f}"


def aligned(table: list[list[str]]) -> list[str]:
    """Return the lines of a table whose columns are as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) if i < 3 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip() for row in table]


def markdown(table: list[list[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    rule = ["---"] * 3 + ["---:"] * (len(table[0]) - 3)
    return [f"| {' | '.join(row)} |" for row in [table[0], rule, *table[1:]]]


def draw(figure: "Figure", rows: list[dict[str, Any]], tasks: list[str]) -> None:
    """Draw a panel for each task: a point for each policy, to the right of the one that it started from."""
    policies = {row["directory"]: row for row in rows if "after" in row}
    depth: dict[str, int] = {}
    for directory, row in policies.items():
        depth[directory] = depth.get(row["from"], 0) + 1
    for i, (axes, task) in enumerate(zip(figure.subplots(len(tasks), squeeze=False)[:, 0], tasks, strict=True)):
        for k, (directory, row) in enumerate(policies.items()):
            x, y, colour = depth[directory], row["after"][task], COLOURS[k % (len(COLOURS) - 1)]
            begun = row["before"].get(task)
            if y is None:
                continue
            if begun is not None:
                axes.plot([x - 1, x], [begun, y], color=colour, linewidth=1.5)
            axes.plot(x, y, "o", color=colour)
            axes.annotate(row["stage"], (x, y), xytext=(6, 4), textcoords="offset points", color=colour, fontsize=9)
        axes.set(title=task, ylabel="solved, or true reward", xticks=range(max(depth.values()) + 1),
                 xlim=(-0.1, max(depth.values()) + 0.8), xlabel="stages so far" if i == len(tasks) - 1 else "")
