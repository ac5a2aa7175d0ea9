"""Length control: right answers that are longer than others of their group get a lower reward.

Kimi k1.5 (Kimi Team 2025, arXiv:2501.12599, section 2.3.3), for response i of a group:

    lambda_i = 0.5 - (length_i - shortest) / (longest - shortest)
    R_i = reward_i + coef * lambda_i               if response i is right
    R_i = reward_i + coef * min(0, lambda_i)       if it is wrong, with `wrong=yes`; else reward_i

A-DLP (Su and Cardie 2025, arXiv:2505.18298) adapts the coefficient to the accuracy of each batch:

    coef <- max(0, coef + rate * (accuracy - target))

In that paper the penalty is coef * length; here the adapted coefficient multiplies lambda.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from llm.tasks.task import tokens_in
from llm.tasks.wrappers.wrapper import Wrapper
from spinup.runs.config import Range, Unit

Coefficient = Annotated[float, Range(0, 100)]


def relative(lengths: Sequence[int], right: Sequence[bool], wrong: bool = False) -> list[float]:
    """Return lambda of each response of a group: from .5 for the shortest to -.5 for the longest; 0 if all are equal.

    A wrong response has 0, or with `wrong` the negative part of lambda.
    """
    shortest, spread = min(lengths), max(lengths) - min(lengths)
    each = [0.5 - (n - shortest) / spread if spread else 0.0 for n in lengths]
    return [x if yes else min(0.0, x) if wrong else 0.0 for x, yes in zip(each, right, strict=True)]


@dataclass
class Length(Wrapper):
    """Reward plus `coef` times the relative length of a right response; see the module.

    Lengths are in tokens of the policy, with the end token. Of a text that no policy sampled, they are in characters.
    The coefficient of `adaptive` is state: it is saved with the run.
    """

    coef: Coefficient = 0.2             # the reward of a right answer varies by this much; from 2 on, a long right
    #                                     answer earns no more than a wrong one
    wrong: bool = False                 # as in Kimi k1.5, wrong responses of more than medium length lose reward, too
    adaptive: bool = False              # adapt coef to the accuracy of each batch
    target: Unit = 0.9                  # above this accuracy coef rises, below it falls
    rate: Coefficient = 0.1             # change of coef per batch and unit of accuracy
    name = "length"
    needs_right = True
    fewest = 2

    def shape(self, problem: Any, responses: Sequence[str], rewards: Sequence[float],
              right: Sequence[bool]) -> tuple[list[float], dict[str, list[float]]]:
        added = [self.coef * x for x in relative([tokens_in(x) for x in responses], right, self.wrong)]
        parts = {"for_length": added} | ({"coef": [self.coef] * len(added)} if self.adaptive else {})
        return [x + more for x, more in zip(rewards, added, strict=True)], parts

    def end(self, problems: Sequence[Any], rewards: Sequence[float]) -> None:
        if self.adaptive:
            accuracy = sum(x.right for x in rewards) / len(rewards)
            self.coef = max(0.0, self.coef + self.rate * (accuracy - self.target))

    def own_state(self) -> dict[str, Any]:
        return {"coef": self.coef} if self.adaptive else {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        self.coef = state["coef"]
