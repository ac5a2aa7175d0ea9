"""Pictures that are lessons: each trains what it shows, and writes PNG, SVG and its numbers as JSON."""
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from llm.tasks.addition import Addition
from spinup.errors import UserError
from spinup.runs.files import read_json, write_json, write_whole
from spinup.runs.log import read_progress
from spinup.runs.plots import COLOURS, STYLE, render
from spinup.runs.process import spinup


def draw(name: str, *, seeds: list[int], log_dir: Path, out: Path | None) -> int:
    """Make a picture; 0, or 1 where it does not show what it is for. UserError for a file that cannot be written."""
    out = out or Path(f"{name}.png")
    if out.suffix not in (".png", ".svg") or not out.absolute().parent.is_dir():
        raise UserError(f"--out {out} cannot be written; give a name that ends in .png, in a folder that exists")
    return DRAW[name](seeds, log_dir, out)


def beyond_imitation(seeds: list[int], log_dir: Path, out: Path) -> int:
    """A student of a teacher that forgets to carry: imitation ends at the teacher, rewards lead past it."""
    teacher = Addition().teacher_accuracy

    def one(seed: int) -> dict[str, Any]:
        name = "beyond_imitation"
        folder = log_dir / name / f"{name}_s{seed}"
        if not (folder / "result.json").exists() or read_json(folder / "result.json")["status"] != "finished":
            words = ["resume", str(folder)] if (folder / "config.json").exists() else [
                "llm", "grpo", "--task", "addition", "--seed", str(seed), "--exp-name", name, "--log-dir", str(log_dir),
                "--threads", "1", "--quiet"]
            spinup(*words)
        start = Path(read_json(folder / "config.json")["start"])
        print(f"seed {seed}: imitation {read_progress(start)['held_out_accuracy'][-1]:.2f}, with rewards "
              f"{read_progress(folder)['held_out_accuracy'][-1]:.2f}", flush=True)
        return {"seed": seed, **{kind: {key: read_progress(where)[key] for key in ("wall_seconds", "held_out_accuracy")}
                                 for kind, where in (("imitation", start), ("rewards", folder))}}

    with ThreadPoolExecutor(len(seeds)) as pool:              # all at once: three on two cores leave neither idle
        runs = list(pool.map(one, seeds))

    from matplotlib import rc_context
    from matplotlib.figure import Figure
    with rc_context(STYLE):
        figure = Figure((7.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for i, run in enumerate(runs):
            first, then = run["imitation"], run["rewards"]
            began = first["wall_seconds"][-1]
            axes.plot(first["wall_seconds"], first["held_out_accuracy"], color=COLOURS[0], linewidth=1.6,
                      label=None if i else "imitation (SFT)")
            axes.plot([began, *(began + t for t in then["wall_seconds"])],
                      [first["held_out_accuracy"][-1], *then["held_out_accuracy"]], color=COLOURS[1], linewidth=1.6,
                      label=None if i else "then rewards (GRPO)")
        axes.axhline(teacher, color="#444444", linestyle="--", linewidth=1.2, label=f"the teacher, {teacher:.2f}")
        axes.set(title="A student of a teacher that forgets to carry", xlabel="seconds of training, one thread",
                 ylabel="share of held-out sums right", ylim=(0, 1.03))
        axes.set_xlim(left=0)
        axes.legend(loc="center left")
        for path in (out.with_suffix(".png"), out.with_suffix(".svg")):
            write_whole(path, render(figure, path.suffix[1:]))
    imitated = [run["imitation"]["held_out_accuracy"][-1] for run in runs]
    learned = [run["rewards"]["held_out_accuracy"][-1] for run in runs]
    passed = bool(min(learned) >= teacher + 0.3)
    write_json(out.with_suffix(".json"), {
        "command": f"spinup llm picture beyond-imitation --seeds {' '.join(map(str, seeds))}", "teacher": teacher,
        "imitation": imitated, "rewards": learned, "met": passed, "runs": runs})
    print(f"{out.with_suffix('.png')}: teacher {teacher:.2f}, imitation {np.mean(imitated):.2f}, with rewards "
          f"{np.mean(learned):.2f}")
    return 0 if passed else 1


DRAW: dict[str, Callable[[list[int], Path, Path], int]] = {"beyond-imitation": beyond_imitation}
