"""The example method for language models on the page about your own algorithms."""
import json
import math
import re
import sys
from pathlib import Path

import llm
from llm.algos import grpo
from llm.run import Run
from llm.start import find_start
from llm.tasks.make import make_task

PAGE = Path(__file__).parents[2] / "docs" / "using" / "your_algorithm.md"
RUN = "runs/x/x_s1"


# Catches: code on the page that does not work any more, for example with a changed `Run` or a changed Config.
def test_method_on_the_page_trains_and_resumes(beginner, cli, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "LearningConfig" in block]
    (tmp_path / "my_method.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_method", raising=False)
    monkeypatch.chdir(tmp_path)
    words = ["llm", "my_method", "--task", "reverse:length=2,symbols=10", "--model", beginner, "--prompts", "4",
             "--samples", "2", "--held-out", "8", "--threads", "1", "--exp-name", "x"]
    assert cli(*words, "--total-steps", "2").code == 0
    assert cli("resume", RUN, "--total-steps", "3").code == 0
    result = json.loads((tmp_path / RUN / "result.json").read_text())
    assert result["steps"] == 3 and result["status"] == "finished"


# Catches: a logged number that is refused because the library has a column of this name without a number.
def test_method_may_log_numbers_that_it_does_not_add(beginner, monkeypatch, tmp_path):
    def train(cfg, resume=None):
        run = Run(cfg, make_task(cfg.task), find_start(cfg, make_task(cfg.task)), resume)
        with run:
            run.keep(model=run.model)
            for update in run.updates(cfg.total_steps):
                run.sample(run.problems(2), 2)
                run.add(tokens=4.0)
                run.log(loss=1.5 + update)
            return run.result()

    monkeypatch.setattr(grpo, "train", train)
    given = {"layers": 1, "width": 16, "heads": 2, "held_out": 8, "quiet": True, "tensorboard": False, "threads": 1}
    progress = llm.grpo("reverse:length=2,symbols=10", model=beginner, preset="none", total_steps=2,
                        log_dir=str(tmp_path), **given).progress
    assert progress["loss"] == [1.5, 2.5] and all(map(math.isnan, progress["grad_norm"]))
