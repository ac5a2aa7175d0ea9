"""Preferences with a truth behind them: a reader whose taste is known here, and to be guessed from choices."""
from bisect import bisect
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Annotated

import numpy as np

from llm.tasks.options import check_options
from llm.tasks.task import Problem, Task, draw
from spinup.runs.config import Range

ASKED = 3               # letters that a prompt asks for
REPEATS = 0.1           # how often the teacher does not mind whether a letter comes again
SAMPLES = 4000          # of the teacher's, by which the gold reward is brought to mean 0 and deviation 1


@dataclass
class Taste(Task):
    """`bfe>` asks for something with b, f and e in it; the answer is any line of letters, such as `ebah`.

    The gold reward is how much a reader likes an answer: +1 for each letter that pleases and -1 for each that does not,
    as half of them do, by a taste that no prompt tells; +1/2 for each that was asked for; -3/2 for each that comes
    again. It is scaled to mean 0 and deviation 1 over the teacher's answers, so that 1 is «a deviation better than the
    teacher», and counts as solved. The teacher writes at random, some letters oftener than others, and few twice.

    Whoever learns the taste from few comparisons sees which letters please, and never the same one eight times: about
    that a learned reward is wrong, and there its optimum lies.
    """

    letters: Annotated[int, Range(6, 26)] = 8      # different ones
    length: Annotated[int, Range(2, 100)] = 6       # the teacher's longest answer
    seed: Annotated[int, Range(0, 2**31)] = 0       # of the taste
    name = "taste"
    measure = "held_out_reward"

    def __post_init__(self):
        check_options(self)
        self.alphabet = ascii_lowercase[:self.letters] + ">"
        self.max_tokens = 2 * self.length                                 # more than the teacher ever needs
        rng = np.random.default_rng(self.seed)
        self.pleasing = {self.alphabet[i] for i in rng.permutation(self.letters)[:self.letters // 2]}
        habit = rng.dirichlet(np.full(self.letters, 3.0)).cumsum()        # how often the teacher uses each letter
        self.habit = (habit / habit[-1]).tolist()                         # cumulative
        shown = [self.worth(p, self.demonstration(p, rng)) for p in self.problems(SAMPLES, rng)]
        self.mean, self.deviation = float(np.mean(shown)), float(np.std(shown))

    def problems(self, n: int, rng: np.random.Generator, held_out: bool = False) -> list[Problem]:
        def make() -> Problem:
            return Problem("".join(self.alphabet[i] for i in rng.permutation(self.letters)[:ASKED]) + ">")
        return draw(n, held_out, make)

    def demonstration(self, problem: Problem, rng: np.random.Generator) -> str:
        text = ""
        for _ in range(rng.integers(2, self.length + 1)):
            new = [x for x in problem.prompt[:ASKED] if x not in text] if rng.random() < 0.3 else []
            again = rng.random() < REPEATS
            while True:
                letter = new[0] if new else self.alphabet[bisect(self.habit, rng.random())]
                if again or letter not in text or len(set(text)) == self.letters:
                    break
            text += letter
        return text

    def worth(self, problem: Problem, response: str) -> float:
        """Unscaled true reward of a response."""
        different = set(response)
        liked = sum(1 if letter in self.pleasing else -1 for letter in different)
        asked, again = len(different & set(problem.prompt[:ASKED])), len(response) - len(different)
        return liked + 0.5 * asked - 1.5 * again

    def reward(self, problem: Problem, response: str) -> float:
        return (self.worth(problem, response) - self.mean) / self.deviation
