"""Proofs of small theorems: the policy writes the whole proof, and a checker of natural deduction accepts it or not."""
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Annotated
from zlib import crc32

import numpy as np

from llm.tasks.deduction import ATOMS, ERRORS, OPERATORS, Formula, Verdict, check, text_of
from llm.tasks.episodes import Episode
from llm.tasks.options import check_options
from llm.tasks.task import HELD_OUT, Problem, Task
from spinup.errors import UserError
from spinup.runs.config import Range, Unit

END = "."                               # ends a theorem, an attempt and an error message
STATEMENT, ATTEMPT = 40, 48             # longest theorem and longest attempt, in characters
TRIVIAL = re.compile(r"([a-h])[>&|]\1")  # a formula with twice the same letter, such as a>a


@dataclass(frozen=True, eq=False)
class Lemma:
    """A formula, its proof, and the lemmas that the proof uses beside the premises of the theorem."""

    formula: Formula
    proof: str
    given: tuple["Lemma", ...] = field(repr=False)


@dataclass(frozen=True)
class Theorem:
    """Premises, the goal, the teacher's proof, and lemmas that a proof may use."""

    premises: tuple[Formula, ...]
    goal: Formula
    proof: str
    lemmas: tuple[Lemma, ...] = ()

    @property
    def known(self) -> tuple[Formula, ...]:
        """The premises and the lemmas."""
        return self.premises + tuple(lemma.formula for lemma in self.lemmas)

    @property
    def statement(self) -> str:
        """The prompt: the premises with the lemmas, the goal, and a full stop."""
        return f"{','.join(map(text_of, self.known))}:{text_of(self.goal)}{END}"

    @property
    def held_out(self) -> bool:
        """True if the theorem is held out. This does not depend on the names of its atoms or the order of premises."""
        count = Counter("".join(map(text_of, [*self.premises, self.goal])))
        *shapes, goal = ("".join(str(count[c]) if c in ATOMS else c for c in text_of(f))
                         for f in [*self.premises, self.goal])
        return crc32(",".join([*sorted(shapes), goal]).encode()) % HELD_OUT == 0


class Proving(Episode):
    """Attempts to prove one theorem: each is a turn. Between two turns the policy reads the error of the checker."""

    def __init__(self, theorem: Theorem, turns: int):
        self.theorem, self.left, self.verdict = theorem, turns, None

    def act(self, text: str) -> tuple[float, bool]:
        self.verdict = check(self.theorem.known, self.theorem.goal, text.removesuffix(END))
        self.left -= 1
        proved = not self.verdict.kind
        return float(proved), proved or self.left == 0

    def observe(self) -> str:
        return message(self.verdict)


def without_a_line(proof: str) -> list[str]:
    """Return the proof without its first line, without its second line, and so on, but never without the last one."""
    lines = proof.split(",")
    return [",".join(lines[:i] + lines[i + 1:]) for i in range(len(lines) - 1)]


def message(verdict: Verdict) -> str:
    """Return the error as the policy reads it: `?2N.` if line 2 does not follow; a 9 also stands for later lines."""
    return f"?{min(verdict.line, 9)}{verdict.kind}{END}"


@dataclass
class Proofs(Task):
    """The answer to `a,a>b,b>c:c.` is `b,c.`, or another proof of c from the premises a, a>b and b>c.

    `llm.tasks.deduction` explains the notation and the rules. A proof may end with a full stop. With `turns=2`, the
    policy reads where a wrong attempt fails, such as `?1N.`, and tries again.
    """

    lines: Annotated[int, Range(1, 8)] = 4          # most lines of the teacher's proof
    least: Annotated[int, Range(1, 8)] = 1         # fewest lines of it
    atoms: Annotated[int, Range(2, 8)] = 6          # different letters
    extra: Annotated[int, Range(0, 8)] = 2          # most premises that the teacher's proof does not need
    turns: Annotated[int, Range(1, 4)] = 1          # attempts: the first, and one after each error message
    slips: Unit = 0.5                               # with turns > 1: share of demonstrations that begin with an error
    name = "proofs"
    alphabet = ATOMS + OPERATORS + "-0(),[]:.?123456789" + "".join(ERRORS)
    end_of_turn = END

    def __post_init__(self):
        check_options(self)
        if self.least > self.lines:
            raise UserError(f"in the task proofs, least={self.least} is more than lines={self.lines}; choose at most "
                            f"least={self.lines}")
        self.max_tokens = self.turns * ATTEMPT + (self.turns - 1) * len("?1N.")

    def open(self, problem: Problem) -> Proving:
        """Start the attempts at a theorem."""
        return Proving(problem.data, self.turns)

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        found, fast = [], Random(int(rng.integers(2**62)))               # of Python: numpy's is slow for single numbers
        while len(found) < n:
            lines, theorem = fast.randint(self.least, self.lines), None
            while theorem is None or theorem.held_out != held_out:
                theorem = self.theorem(fast, lines)
            found.append(Problem(theorem.statement, theorem.proof + END, theorem))
        return found

    def theorem(self, rng: Random, lines: int) -> Theorem | None:
        """Create a theorem with its proof; None if it is too long, has a trivial formula, or a line is not needed."""
        teacher = Teacher(rng, self.atoms)
        goal = teacher.formula(rng.randrange(3) // 2)
        teacher.prove(goal, lines)
        teacher.premises += [teacher.formula(1) for _ in range(rng.randint(0, self.extra))]
        premises = list(dict.fromkeys(teacher.premises))
        proof = ",".join(teacher.lines)
        theorem = Theorem(tuple(rng.sample(premises, len(premises))), goal, proof)
        if goal in premises or len(proof) >= ATTEMPT or len(theorem.statement) > STATEMENT:
            return None
        if TRIVIAL.search(theorem.statement + proof):
            return None
        unneeded = any(not check(premises, goal, shorter).kind for shorter in without_a_line(proof))
        return None if unneeded else theorem

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return the teacher's proof; with several turns, in some cases an attempt without one of its lines before it.
        """
        theorem, shorter = problem.data, without_a_line(problem.data.proof)
        if self.turns == 1 or not shorter or rng.random() >= self.slips:
            return problem.answer
        attempt = shorter[rng.integers(len(shorter))]
        return f"{attempt}{END}{message(check(theorem.premises, theorem.goal, attempt))}{problem.answer}"

    def given(self, problem: Problem, lemmas: Sequence[Lemma]) -> Problem:
        """Return the same theorem with lemmas beside its premises."""
        theorem = replace(problem.data, lemmas=tuple(lemmas))
        return Problem(theorem.statement, problem.answer, theorem)

    def lemmas(self, problem: Problem, response: str) -> dict[Formula, Lemma]:
        """Return the lemmas that the right lines of a response prove: one for each line, with its open boxes closed."""
        theorem, found = problem.data, {}
        lines = response.split(END)[0].split(",")
        for n in range(len(lines)):
            verdict = check(theorem.known, theorem.goal, ",".join(lines[:n + 1]))
            formula = verdict.proved
            if formula is None or (verdict.kind and verdict.line <= n):
                break
            if formula not in theorem.known and not (formula[0] == ">" and formula[1] == formula[2]):
                found[formula] = Lemma(formula, verdict.sound, theorem.lemmas)
        return found

    def whole(self, problem: Problem, response: str) -> str:
        """Return a proof from the premises alone: the proofs of the lemmas, each once, and then the response."""
        return ",".join([*in_order(problem.data.lemmas), response])


def in_order(lemmas: Sequence[Lemma], found: dict[str, None] | None = None) -> dict[str, None]:
    """Return the proofs of lemmas and of the lemmas that they use, as keys, each once and before it is used."""
    found = {} if found is None else found
    for lemma in lemmas:
        if lemma.proof not in found:
            in_order(lemma.given, found)
            found[lemma.proof] = None
    return found


class Teacher:
    """A teacher that creates theorems with their proofs: it begins with the goal and chooses rules backwards.

    Formulas that it does not prove become premises.
    """

    def __init__(self, rng: Random, atoms: int):
        self.rng, self.atoms = rng, ATOMS[:atoms]
        self.premises: list[Formula] = []
        self.lines: list[str] = []
        self.assumed: list[Formula] = []                                  # assumptions of the open boxes

    def formula(self, depth: int) -> Formula:
        """Return a random formula with `depth` levels of connectives."""
        if depth == 0:
            return self.rng.choice(self.atoms)
        operator = self.rng.choice(">>>&|-")
        left = self.formula(depth - 1)
        return (">", left, "0") if operator == "-" else (operator, left, self.formula(depth - 1))

    def prove(self, goal: Formula, lines: int) -> None:
        """Write a proof of the goal in so many lines; with 0, add it to the premises unless it is assumed."""
        if lines == 0:
            if goal not in self.assumed:
                self.premises.append(goal)
            return
        if isinstance(goal, tuple) and goal[0] == ">" and lines > 1 and self.rng.random() < 0.7:
            self.lines.append(f"[{text_of(goal[1])}")
            self.assumed.append(goal[1])
            self.prove(goal[2], lines - 1)
            self.assumed.pop()
            self.lines[-1] += "]"
            return
        needed = self.needed(goal)
        shares = Counter(self.rng.randrange(len(needed)) for _ in range(lines - 1))
        for i, formula in enumerate(needed):
            self.prove(formula, shares[i])
        self.lines.append(text_of(goal))

    def needed(self, goal: Formula) -> Sequence[Formula]:
        """Return formulas that give the goal by one rule, chosen at random."""
        kind, new = self.rng.random(), self.formula(0)
        if self.assumed and self.rng.random() < 0.7:
            new = self.rng.choice(self.assumed)
        if isinstance(goal, tuple) and goal[0] == "&" and kind < 0.7:
            return goal[1:]
        if isinstance(goal, tuple) and goal[0] == "|" and kind < 0.7:
            return [self.rng.choice(goal[1:])]
        if kind < 0.15:
            return [("&", goal, new) if kind < 0.075 else ("&", new, goal)]
        if kind < 0.25:
            other = self.formula(0)
            return [("|", new, other), (">", new, goal), (">", other, goal)]
        if kind < 0.3:
            return [(">", (">", goal, "0"), "0")]
        return [new, (">", new, goal)]
