"""GSM8K (Cobbe et al. 2021, arXiv:2110.14168): school word problems. The user provides the file; none is shipped."""
import re
from collections import deque
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np

from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task
from llm.tasks.user import read_jsonl, split, take
from spinup.errors import UserError
from spinup.runs.config import Count

INSTRUCTION = "Work it out step by step, and close with a line that reads '#### number', the number being the answer."
# A minus directly after a word or a bracket is a subtraction, not a sign.
NUMBER = re.compile(r"(?:(?<![\w)])-)?\$?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)")
# Context which shows that a number is part of a fraction or of a longer number.
PART_OF_MORE = re.compile(r"\s*/\s*[0-9]|,[0-9]|\s*\}\s*\{|[eE][+-]?[0-9]|\^(?!\s*\{?\s*\\circ)")
AFTER_MORE, NEAR = re.compile(r"[0-9](?:\s*/\s*|,|\s*\}\s*\{|[eE][+-]?|\^\{?)$"), 8


def answer_in(text: str) -> Decimal | None:
    """Return the first number after the last ####, exactly; without a #### the last number; None without a number.

    Commas between groups of three digits, a dollar sign and a final full stop are ignored: `$1,200.00.` is 1200. A
    fraction such as `1/2`, a power, or a malformed number such as `4,2`, does not count as an answer.
    """
    plain = text.replace("\u2212", "-").replace("{,}", ",").replace("\\,", ",")          # commas of LaTeX
    _, mark, rest = plain.rpartition("####")
    number = NUMBER.search(rest) if mark else next(iter(deque(NUMBER.finditer(rest), maxlen=1)), None)
    if number is None:
        return None
    before, after = rest[max(0, number.start() - NEAR):number.start()], rest[number.end():number.end() + NEAR]
    if PART_OF_MORE.match(after) or AFTER_MORE.search(before):
        return None
    return Decimal(number[0].replace(",", "").replace("$", ""))


@dataclass
class GSM8K(Task):
    """Questions whose answer is a number, for a model that was trained on text.

    `file` is a JSONL file with "question" and "answer"; a tenth of it is held out. Or it is a folder with train.jsonl
    and test.jsonl; then test.jsonl is held out. Raise UserError if a file is missing or has another form, or if a
    question is in both files.
    """

    file: str = ""
    max_tokens: Count = 256
    name = "gsm8k"
    alphabet = None

    def __post_init__(self):
        self.file = str(self.file)
        check_options(self)
        if not self.file:
            raise UserError("the task gsm8k needs a file; write gsm8k:file=PATH, where PATH is a JSONL file or a "
                            "folder with train.jsonl and test.jsonl")
        path = Path(self.file)
        if not path.is_dir():
            self.train, self.held_out = split(read(path), self.file)
            return
        self.train, self.held_out = read(path / "train.jsonl"), read(path / "test.jsonl")
        both = {p.prompt for p in self.train} & {p.prompt for p in self.held_out}
        if both or not self.train or not self.held_out:
            wrong = f"{len(both)} questions are in both" if both else "one of them is empty"
            raise UserError(f"{path} must hold different questions in train.jsonl and test.jsonl, but {wrong}")

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        return take(self.held_out if held_out else self.train, n, rng)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return the solution in the file."""
        return problem.data

    def answer_of(self, problem: Problem, response: str) -> str | None:
        number = answer_in(response)
        return None if number is None else str(number.normalize())

    def reward(self, problem: Problem, response: str) -> float:
        return float(answer_in(response) == Decimal(problem.answer))


def read(path: Path) -> list[Problem]:
    """Read the problems in a file, with their solutions as `data`. Raise UserError, which names the wrong line."""
    problems = []
    for where, row in read_jsonl(path):
        question, solution = row.get("question"), row.get("answer")
        if not isinstance(question, str) or not isinstance(solution, str):
            raise UserError(f'{where} must have texts as "question" and "answer"')
        number = answer_in(solution) if "####" in solution else None
        if number is None:
            raise UserError(f"{where} has no number after #### in its answer; write it as '... #### 42'")
        problems.append(Problem(f"{question}\n{INSTRUCTION}", str(number), solution))
    return problems
