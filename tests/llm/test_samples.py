"""The texts of a run, in samples.jsonl."""
import json

import pytest

import llm
from llm.run import Run
from llm.samples import LONGEST, as_lines
from llm.tasks import Problem

SETTINGS = {"total_steps": 4, "held_out": 32, "quiet": True, "tensorboard": False, "threads": 1, "preset": "none",
            "prompts": 2, "samples": 2, "checkpoint_steps": 2}


def reward(prompt, response):
    return {"length": len(response), "first": float(response[:1] == "a")}


def read(directory):
    return [json.loads(line) for line in (directory / "samples.jsonl").read_text("utf-8").splitlines()]


class Stop(Exception):
    pass


# Catches: texts of one problem only, or of training problems; rewards of other responses; rows after the checkpoint
# that stay in the file of a resumed run; missing rows of the resumed run.
def test_each_row_has_the_same_texts_after_a_resume(beginner, tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "epochs", 4)
    settings = {"model": beginner, "reward": reward, "log_dir": str(tmp_path), **SETTINGS}
    whole = llm.grpo("reverse:length=2,symbols=10", exp_name="a", **settings)
    rows = read(whole.directory)
    assert [row["steps"] for row in rows] == [step for step in whole.progress["steps"] for _ in range(8)]
    assert len({row["prompt"] for row in rows}) == 8
    for row in rows:
        parts = reward(row["prompt"], row["response"])
        assert (row["reward_length"], row["reward_first"], row["reward"]) == (*parts.values(), sum(parts.values()))

    def stop(row):
        if row["steps"] == 3:
            raise Stop
    with pytest.raises(Stop):
        llm.grpo("reverse:length=2,symbols=10", exp_name="b", on_row=stop, **settings)
    directory = tmp_path / "b" / "b_s1"
    assert read(directory)[-1]["steps"] == 3
    llm.grpo("reverse:length=2,symbols=10", exp_name="b", resume=directory, **settings)
    assert read(directory) == rows


# Catches: a file that grows with the length of the texts; a file that is not JSON for some texts; a missing true
# reward.
def test_texts_have_a_limited_length_and_a_true_reward(beginner, tmp_path):
    run = llm.load(beginner)
    from llm.rollout import sample
    from llm.tasks.make import make_task
    task = make_task("reverse:length=2,symbols=10")
    batch = sample(run.sampler, task, run.tokenizer, [Problem("ab>", "ba")], samples=3, max_tokens=3, generator=None)
    batch.texts[:2] = ["x" * 5000, "\u2028\ud83dä"]
    lines = [json.loads(line) for line in as_lines(batch, 7, {"true_reward": [1.0, 2.0, 3.0]}).split("\n")[:-1]]
    assert [len(line["response"]) for line in lines[:2]] == [LONGEST, 3] and lines[1]["response"] == "\u2028\ud83dä"
    assert [line["true_reward"] for line in lines] == [1, 2, 3] and {line["steps"] for line in lines} == {7}
