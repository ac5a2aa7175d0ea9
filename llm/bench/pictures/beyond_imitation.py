"""Beyond imitation: SFT ends at the accuracy of a teacher that forgets to carry, and training on rewards exceeds it."""
from pathlib import Path

import numpy as np

from llm.bench.pictures.draw import ONE_THREAD, conclude, figure
from llm.tasks.addition import Addition
from spinup.bench.process import finished_run, in_turn
from spinup.runs.curve import COLOURS
from spinup.runs.files import read_json
from spinup.runs.log import read_progress

COLUMNS = ("wall_seconds", "held_out_accuracy")


def beyond_imitation(seeds: list[int], log_dir: Path, out: Path) -> int:
    """Run SFT, then GRPO, on addition. The goal: every seed ends .3 above the teacher's accuracy."""
    teacher = Addition().teacher_accuracy
    # All seeds in parallel, because three runs use two cores better than two runs at a time.
    folders = in_turn(lambda seed: finished_run("llm grpo", "addition", seed, "beyond_imitation", log_dir,
                                                *ONE_THREAD), seeds, len(seeds))
    runs = []
    for seed, folder in zip(seeds, folders, strict=True):
        parts = {"imitation": Path(read_json(folder / "config.json")["start"]), "rewards": folder}
        runs.append({"seed": seed, **{kind: {key: read_progress(where)[key] for key in COLUMNS}
                                      for kind, where in parts.items()}})
    with figure(out, 7.2, 4.2) as made:
        axes = made.add_subplot()
        for i, run in enumerate(runs):
            first, then = run["imitation"], run["rewards"]
            began = first["wall_seconds"][-1]
            axes.plot(first["wall_seconds"], first["held_out_accuracy"], color=COLOURS[0], linewidth=1.6,
                      label=None if i else "supervised fine-tuning (SFT)")
            axes.plot([began, *(began + t for t in then["wall_seconds"])],
                      [first["held_out_accuracy"][-1], *then["held_out_accuracy"]], color=COLOURS[1], linewidth=1.6,
                      label=None if i else "then training on rewards (GRPO)")
        axes.axhline(teacher, color="#444444", linestyle="--", linewidth=1.2, label=f"teacher, {teacher:.2f}")
        axes.set(title="SFT and GRPO with a teacher that forgets to carry", xlabel="training time in seconds, "
                 "one thread", ylabel="held-out accuracy", ylim=(0, 1.03))
        axes.set_xlim(left=0)
        axes.legend(loc="lower right")
    imitated, learned = ([run[kind]["held_out_accuracy"][-1] for run in runs] for kind in ("imitation", "rewards"))
    print(f"teacher {teacher:.2f}, after SFT {np.mean(imitated):.2f}, after GRPO {np.mean(learned):.2f}")
    return conclude(out, "beyond-imitation", seeds, bool(min(learned) >= teacher + 0.3), teacher=teacher,
                    imitation=imitated, rewards=learned, runs=runs)
