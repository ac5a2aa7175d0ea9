"""A mixture of tasks: each problem comes from one of them, with given shares."""
import re
from collections.abc import Sequence

import numpy as np

from llm.tasks.check import demonstration_of, problems_of
from llm.tasks.task import Problem, Task
from llm.tasks.user_reward import Verifier
from spinup.errors import UserError

PART = re.compile(r"\s*(?:(?P<weight>\d*\.?\d+)\s*\*\s*)?(?P<task>\S.*?)\s*")
FORM = "write tasks joined by +, with weights if you like, as in mix:0.7*reverse+0.3*sort"


class Mix(Task):
    """Problems of several tasks: `mix:reverse+sort`, or `mix:0.7*reverse+0.3*sort:length=4` with weights.

    The reward of a response is that of its problem's own task. The shares of a list of problems are the weights, as
    exactly as its length permits. The alphabet has the characters of all tasks, and responses may be as long as the
    longest ones. A model must tell from the prompt which task is meant.

    Args:
        text: the tasks, joined by +, each with its options; a weight and * before a task set its share.
        reward: the reward of each task in it, as in `make_task`; None means that each task has its own.

    Raise UserError for a task with a wrapper, with a tool, with several turns or with preference pairs.
    """

    name = "mix"
    alphabet = ""
    reads_text = True
    takes_reward = True

    def __init__(self, text: str, reward: Verifier | None = None):
        from llm.tasks.make import make_task  # not above: it creates this task
        from llm.tasks.wrappers.wrapper import Wrapper
        found = [PART.fullmatch(part) for part in text.split("+")]
        if len(found) < 2 or not all(found):
            raise UserError(f"--task mix:{text} is not a mixture; {FORM}")
        weights = np.array([float(part["weight"] or 1) for part in found])
        if weights.min() == 0:
            raise UserError(f"--task mix:{text} has a weight of 0; leave out that task, or raise its weight")
        if not np.isfinite(weights.sum()):
            raise UserError("--task mix: has a weight that is too large; write weights such as 0.7 and 0.3")
        self.mixed = [make_task(part["task"], reward) for part in found]
        self.keeps_parts = reward is not None                             # else the tasks' rewards have other parts
        for task in self.mixed:
            if isinstance(task, Wrapper):
                raise UserError(f"--task mix:{text}: a wrapper changes the rewards of the whole mixture; write it "
                                f"first, as in {type(task).name}:mix:reverse+sort")
            if task.tool or task.open or task.pairs:
                raise UserError(f"--task mix:{text}: {task.name} has a tool, several turns or preference pairs, and a "
                                "mixture has tasks with one response to a prompt; leave it out")
        self.shares = weights.cumsum() / weights.sum()
        self.name = "mix_" + "_".join(task.name for task in self.mixed)
        spoken = [task.alphabet for task in self.mixed]
        self.alphabet = None if None in spoken else "".join(dict.fromkeys("".join(spoken)))
        self.max_tokens = max(task.max_tokens for task in self.mixed)
        self.measure = next((t.measure for t in self.mixed if t.measure != Task.measure), Task.measure)

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        places = (np.arange(n) + rng.random()) / n                        # evenly spaced: exact shares
        counts = np.bincount(np.searchsorted(self.shares, places), minlength=len(self.mixed)).tolist()
        found = [Problem(p.prompt, getattr(p, "answer", ""), (i, p), getattr(p, "messages", None),
                         getattr(p, "turns", None))
                 for i, count in enumerate(counts) if count
                 for p in problems_of(self.mixed[i], count, rng, held_out)]
        return [found[k] for k in rng.permutation(len(found))]            # a part of the list has all tasks, too

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        i, own = problem.data
        return demonstration_of(self.mixed[i], own, rng)

    def answer_of(self, problem: Problem, response: str) -> str | None:
        i, own = problem.data
        return self.mixed[i].answer_of(own, response)

    def reward(self, problem: Problem, response: str) -> float:
        return self.rewards([problem], [response])[0]

    def rewards(self, problems: Sequence[Problem], responses: Sequence[str]) -> list[float]:
        found: list[float] = [0.0] * len(problems)
        for i, task in enumerate(self.mixed):
            rows = [k for k, p in enumerate(problems) if p.data[0] == i]
            if rows:
                scores = task.rewards([problems[k].data[1] for k in rows], [responses[k] for k in rows])
                for k, score in zip(rows, scores, strict=True):
                    found[k] = score
        return found if self.keeps_parts else [float(score) for score in found]
