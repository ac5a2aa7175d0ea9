"""Texts of a run: some responses to held-out prompts with each row of the log, in `samples.jsonl`."""
import json
from collections.abc import Mapping, Sequence

from llm.rollout import Batch
from llm.tasks.task import Task, as_text

SHOWN = 8               # responses per row of the log
LONGEST = 2000          # characters of a text


def as_lines(batch: Batch, steps: int, more: Mapping[str, Sequence[float]]) -> str:
    """Return up to `SHOWN` responses, spread over the batch, as JSON lines: steps, prompt, response, reward and parts.

    more: further numbers for each line, by name, with one number per response.
    """
    numbers = {"reward": batch.rewards} | {f"reward_{name}": x for name, x in batch.parts.items()} | dict(more)
    lines, n = [], min(SHOWN, len(batch.texts))
    for i in (k * len(batch.texts) // n for k in range(n)):
        problem = batch.problems[int(batch.responses.of[i])]
        texts = {"prompt": cut(as_text(problem)), "response": cut(batch.texts[i])}
        row = {"steps": steps, **texts, **{name: round(float(x[i]), 6) for name, x in numbers.items()}}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines)


def true_rewards(task: Task, batch: Batch) -> dict[str, list[float]]:
    """Return the true reward of each response, beside a learned one, as `more` of `as_lines`; {} if there is none."""
    if task.gold is None:
        return {}
    asked = [batch.problems[i] for i in batch.responses.of.tolist()]
    return {"true_reward": list(map(task.gold, asked, batch.texts))}


def cut(text: str) -> str:
    """Return a text of at most `LONGEST` characters; an ellipsis replaces the rest."""
    return text if len(text) <= LONGEST else text[:LONGEST - 1] + "…"
