"""What a bug does to a training, measured and drawn: python exercises/symptoms_padding.py runs it again."""
import json
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from llm import reinforce_pp
from spinup.core.masked import masked_mean
from spinup.exercises.source import find, load
from spinup.runs.plots import COLOURS, LINES, STYLE

HERE = Path(__file__).parent
SEEDS, LIMITS = (0, 1, 2), (12, 24)
VERSIONS = {"with the bug": "student", "without it": "solutions"}


def whitened(x: Tensor, mask: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the tokens that count; the others are shifted and scaled with them."""
    mean = masked_mean(x, mask)
    return (x - mean) / (masked_mean((x - mean).square(), mask).sqrt() + 1e-8)


def per_token(loss: Callable[[Tensor, Tensor, Tensor], Tensor], logp: Tensor, adv: Tensor,
              mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """A loss of the exercise as the library's `policy_gradient`: its mean over tokens is that loss."""
    return loss(logp, adv, mask > 0).expand_as(logp), {"logp": masked_mean(logp.detach(), mask)}


def padding() -> None:
    """5.4: REINFORCE++ on the task taste, responses of at most 12 and of at most 24 tokens, three seeds each."""
    found = {}
    with tempfile.TemporaryDirectory() as logs, patch("llm.algos.reinforce.whiten", whitened):
        for name, folder in VERSIONS.items():
            loss = load(HERE / folder / f"{find('5.4').name}.py").sequence_loss
            for limit in LIMITS:
                with patch("llm.algos.reinforce.policy_gradient", partial(per_token, loss)):
                    runs = [reinforce_pp("taste", max_tokens=limit, seed=seed, start_accuracy=0.15, log_dir=logs,
                                         exp_name=f"{folder}_{limit}", quiet=True, tensorboard=False).progress
                            for seed in SEEDS]
                found[f"{limit} tokens, {name}"] = {column: [[round(x, 4) for x in run[column]] for run in runs]
                                                    for column in ("steps", "held_out_reward", "length")}
    (HERE / "symptoms" / "5_4_padding.json").write_text(json.dumps(found) + "\n")


def draw() -> None:
    """The picture of the runs above."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    found = json.loads((HERE / "symptoms" / "5_4_padding.json").read_text())
    with pyplot.rc_context(STYLE):
        figure, panels = pyplot.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
        for panel, limit in zip(panels, LIMITS, strict=True):
            for i, name in enumerate(VERSIONS):
                runs, colour = found[f"{limit} tokens, {name}"], COLOURS[1 - i]
                for update, reward in zip(runs["steps"], runs["held_out_reward"], strict=True):
                    panel.plot(update, reward, color=colour, alpha=0.3, linewidth=1)
                mean = [statistics.fmean(column) for column in zip(*runs["held_out_reward"], strict=True)]
                panel.plot(runs["steps"][0], mean, color=colour, linestyle=LINES[1 - i], linewidth=2, label=name)
            panel.set(title=f"responses of at most {limit} tokens", xlabel="update")
        panels[0].set_ylabel("reward on held-out prompts")
        panels[0].legend(loc="lower right")
        figure.savefig(HERE / "symptoms" / "5_4_padding.png")
        pyplot.close(figure)


if __name__ == "__main__":
    torch.set_num_threads(1)
    (HERE / "symptoms").mkdir(exist_ok=True)
    padding()
    draw()
