"""Rewards with named parts: their sum and the number of each part; and when a reward counts as right."""
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llm.faults import SHORT, finite
from spinup.errors import UserError


class Score(float):
    """A reward that consists of named parts. `parts` maps each name to a finite number."""

    parts: dict[str, float]

    def __new__(cls, total: float, parts: Mapping[str, float]) -> "Score":
        """Create a reward of this total."""
        score = super().__new__(cls, total)
        score.parts = dict(parts)
        return score


def is_right(reward: float) -> bool:
    """Return whether a reward is 1 or more in float32, as in the tensors of a run. So .7 + .2 + .1 is right."""
    return reward >= 1 - 2.0**-25             # halfway to the number before 1 in float32; ties round to 1


def scored(result: Any, name: str, here: str = "") -> float:
    """Return the result of a reward function as a float; a dict of parts becomes a `Score`, the sum of its parts.

    name, here: the function and its arguments, in words. Raise UserError if a number is not finite or a name is wrong.
    """
    if isinstance(result, Score):
        return result
    if not isinstance(result, dict):
        return finite(result, name, here)
    if not result:
        raise UserError(f"{name} must return a number or its parts by name, but returned an empty dict {here}")
    for key in result:
        if not isinstance(key, str) or not key.isidentifier():
            raise UserError(f"{name} returns a part named {SHORT.repr(key)}; choose a name of letters, digits and _, "
                            "such as format")
    parts = {key: finite(x, f"the part {key} of {name}", here) for key, x in result.items()}
    return Score(finite(sum(parts.values()), f"the sum of the parts of {name}", here), parts)


def parts_of(scores: Sequence[float]) -> dict[str, list[float]]:
    """Return the numbers of each part, by name; {} if the rewards have no parts.

    Raise UserError if two rewards have different parts.
    """
    each = [getattr(score, "parts", {}) for score in scores]
    for parts in each:
        if parts.keys() != each[0].keys():
            raise UserError(unequal(each[0], parts))
    return {name: [parts[name] for parts in each] for name in each[0]} if each else {}


def same_parts(before: list[str] | None, parts: Mapping[str, Any], taken: Collection[str],
               measure: str = "") -> list[str]:
    """Return the names of the parts of a run's rewards.

    before: the names so far; None before the first rewards. Raise UserError if `parts` has other names, if the column
    of a part, `reward_NAME`, is `taken`, or if `measure` is `held_out_reward_NAME` without such a part.
    """
    if before is None:
        wanted = measure.partition("held_out_reward_")[2]
        if wanted and wanted not in parts:
            raise UserError(f"the task has the measure {measure}, but its reward has "
                            f"{'the parts ' * bool(parts)}{', '.join(parts) or 'no parts'}; return a part named "
                            f"{wanted}, or choose the measure held_out_reward")
        for name in parts:
            if f"reward_{name}" in taken:
                raise UserError(f"the reward has a part named {name}, but reward_{name} is another column of the run; "
                                "choose another name")
        return list(parts)
    if parts.keys() != set(before):
        raise UserError(unequal(before, parts))
    return before


def unequal(some: Collection[str], others: Collection[str]) -> str:
    """Return an error message about two rewards with different parts."""
    one, other = (", ".join(names) or "none" for names in (some, others))
    return (f"the reward has different parts for different responses ({one}; {other}); return all parts in every call, "
            "and 0 for a part that does not apply")
