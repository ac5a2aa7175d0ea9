"""Hints that fade, after LANG (2026, arXiv:2605.22567), which trains reasoning in rare languages.

The abstract of LANG names three parts: hints for each language in the prompt, their progressive decay, and a decay that
adapts to each language. The formulas here are our own choice:

    hint     the first floor(h * |y| + u) characters of the known answer y, at the end of the prompt; u is uniform in
             [0, 1), so that a short answer also gets h * |y| characters on average
    decay    h of a language <- max(0, h - step), after each batch in which at least `target` of the responses in this
             language are right

The hint belongs to the prompt, so the policy does not learn its tokens. The verifier judges hint and response as one
text. Held-out problems have no hints.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llm.tasks.check import problems_of
from llm.tasks.parts import is_right
from llm.tasks.task import Task, Wrapped
from llm.tasks.wrappers.language import NO_LETTERS, script_of, scripts
from llm.tasks.wrappers.wrapper import Drawn, Wrapper, innermost, layers
from spinup.errors import UserError
from spinup.runs.config import Unit


@dataclass
class Hints(Wrapper):
    """Training prompts end with the first characters of a known answer; a language is the script of a prompt.

    The parts `hint_SCRIPT` are the share h of each language. They are state, which is saved with the run.
    """

    share: Unit = 0.8                   # h at the start: share of an answer in the prompt
    step: Unit = 0.02                   # fall of h after each batch with enough right responses
    target: Unit = 0.5                  # share of right responses in a language from which its h falls
    name = "hints"
    changes_prompt = True

    def check(self, task: Task) -> None:
        super().check(task)
        if task.alphabet is None or task.tool is not None:
            raise UserError(f"hints need a task with an alphabet and without a tool, because a response continues its "
                            f"hint, and {task.name} is no such task; leave out hints:")
        if any(getattr(p, "messages", None) for p in [*task.train, *task.held_out]):
            raise UserError(f"a prompt of {task.name} is a conversation, and a hint continues a text; leave out hints:")
        if any(type(x).name == "vote" for x in layers(task)):
            raise UserError("vote uses no answers, and hints show them; leave out one of the two")
        for inside in innermost(task).mixed or [innermost(task)]:
            problem = problems_of(inside, 1, np.random.default_rng(0))[0]
            answer = getattr(problem, "answer", "")
            scored = inside.measure == "held_out_accuracy" and not isinstance(inside, Wrapped) and answer
            if scored and not is_right(inside.rewards([problem], [answer])[0]):
                raise UserError(f"a hint is the beginning of an answer, and {inside.name} asks for more than an "
                                "answer, such as steps; leave out hints:")
        self.left = dict.fromkeys(sorted(scripts(task.alphabet)) or [NO_LETTERS], self.share)

    def draw(self, problem: Any, rng: np.random.Generator) -> Drawn:
        """Return the problem with a hint. Raise UserError if it has no known answer."""
        answer = getattr(problem, "answer", "")
        if not answer:
            raise UserError(f"a problem of {self.task.name} has no known answer to show as a hint; leave out hints:")
        h = self.left[self.language(problem)]
        return Drawn(problem, answer[:int(h * len(answer) + rng.random())] if h else "")

    def language(self, problem: Any) -> str:
        """Return the script of a prompt, and of a prompt without letters the first script of the alphabet."""
        script = script_of(problem.prompt)
        return script if script in self.left else next(iter(self.left))

    def shape(self, problem: Any, responses: Sequence[str], rewards: Sequence[float],
              right: Sequence[bool]) -> tuple[list[float], dict[str, list[float]]]:
        return list(rewards), {f"hint_{name}": [h] * len(rewards) for name, h in self.left.items()}

    def end(self, problems: Sequence[Any], rewards: Sequence[float]) -> None:
        languages = [self.language(p.of) for p in problems]
        for name, h in self.left.items():
            found = [x.right for x, of in zip(rewards, languages, strict=True) if of == name]
            if found and sum(found) >= self.target * len(found):
                self.left[name] = max(0.0, h - self.step)

    def own_state(self) -> dict[str, Any]:
        return {"left": dict(self.left)}

    def load_own_state(self, state: dict[str, Any]) -> None:
        self.left = dict(state["left"])
