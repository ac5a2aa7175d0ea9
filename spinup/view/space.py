"""Search space of `spinup tune`: the settings that are tuned, and their candidate values.

The space is made from the flags: several values are candidates, and LOW:HIGH is a range. Without such flags, the space
is made from the ranges that the comments of the algorithm's settings recommend.
"""
import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from spinup.errors import UserError
from spinup.runs.config import RunConfig, comments, types_of
from spinup.runs.convert import checked, flag, parse
from spinup.runs.resuming import HOW

if TYPE_CHECKING:
    from optuna.trial import Trial

NUMBER = r"\d*\.?\d+(?:e-?\d+)?"
# The two ways in which a comment recommends a range: (1e-4 to 4e-3) or (3-20); small models 3e-4 to 1e-3.
RECOMMENDED = re.compile(rf"\(({NUMBER})(?:-| to )({NUMBER})\)|small models ({NUMBER}) to ({NUMBER})")
USUAL = {"gamma": (0.9, 0.999), "tau": (0.001, 0.02), "epochs": (1, 4), "clip_low": (0.1, 0.3), "clip_high": (0.1, 0.3)}
AROUND = 5              # factor on both sides of a learning rate without a recommended range
WIDE = 8                # ratio of the ends of a range from which the scale is logarithmic


@dataclass(frozen=True)
class Dimension:
    """A setting that is searched: either `choices`, as text, or a range of numbers.

    Attributes:
        whole: the range has whole numbers.
        scale: "linear", "log", or "near 1": the distance from 1 has a logarithmic scale, as suits discount factors.
    """

    name: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    scale: str = "linear"

    def ask(self, trial: "Trial") -> str:
        """Return the value that Optuna suggests, as the text of a flag."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        if self.whole:
            return str(trial.suggest_int(self.name, int(self.low), int(self.high)))
        if self.scale == "near 1":
            return self.text(1 - trial.suggest_float(self.name, *self.distances, log=True), 6)
        return self.text(trial.suggest_float(self.name, self.low, self.high, log=self.scale == "log"), 4)

    def text(self, x: float, digits: int) -> str:
        """Return a number as text with `digits` significant digits, or with more if the range needs them."""
        exact = 0.01 * min(self.high - self.low, 1 - x if self.scale == "near 1" else math.inf)
        for some in range(digits, 17):
            text = f"{x:.{some}g}"
            if abs(float(text) - x) <= exact and self.low <= float(text) <= self.high:
                return text
        return repr(min(max(x, self.low), self.high))

    @property
    def distances(self) -> tuple[float, float]:
        """Smallest and largest distance from 1."""
        return from_one(self.high), from_one(self.low)

    def place(self, value: Any, hint: Any) -> Any:
        """Return Optuna's parameter for the value of a setting of type `hint`; None if the space does not hold it."""
        if self.choices:
            return next((text for text in self.choices if parse(self.name, hint, text) == value), None)
        if not isinstance(value, int | float) or not self.low <= value <= self.high:
            return None
        return from_one(value) if self.scale == "near 1" else value

    def ends(self) -> tuple[str, ...]:
        """Return the texts of all choices, or of both ends of the range."""
        texts = (str(int(x)) if self.whole else f"{x:g}" for x in (self.low, self.high))
        return self.choices or tuple(texts)

    def __str__(self) -> str:
        if self.choices:
            return " ".join(self.choices)
        how = {"log": " on a log scale", "near 1": " on a log scale of the distance from 1"}.get(self.scale, "")
        return " to ".join(self.ends()) + how


def between(name: str, low: float, high: float, whole: bool) -> Dimension:
    """Return the range from `low` to `high`. A wide range has a log scale, one of whole numbers the powers of two. A
    learning rate always has a log scale."""
    wide = low > 0 and (high / low >= WIDE or is_rate(name))
    if whole and wide:
        powers = [2**i for i in range(math.ceil(math.log2(low)), int(math.log2(high)) + 1)]
        return Dimension(name, tuple(map(str, sorted({int(low), *powers, int(high)}))))
    near_one = not whole and low >= 0.5 and high < 1 and (1 - low) / (1 - high) >= WIDE
    return Dimension(name, (), low, high, whole, "near 1" if near_one else "log" if wide and not whole else "linear")


def from_one(x: float) -> float:
    """Return 1 - x without the rounding errors of the last digits."""
    return float(f"{1 - x:.9g}")


def is_rate(name: str) -> bool:
    """Return whether a setting is a learning rate."""
    return name == "lr" or name.endswith("_lr")


def space_of(config: type[RunConfig], given: dict[str, list[str]]) -> tuple[dict[str, list[str]], list[Dimension]]:
    """Return the flags that are not searched, and the search space of the others; it may be empty.

    Where and how a run trains, its length, seed, and environment or task are never searched.

    Args:
        given: flag without dashes -> its values as text.
    UserError for an empty range, several of them, or a value outside the setting's own range.
    """
    types, fixed, space = types_of(config), {}, []
    for word, texts in given.items():
        name = word.replace("-", "_")
        hint = types.get(name)
        ranges = kind_of(hint) in (int, float) and any(":" in text for text in texts)
        if hint is None or name in {*HOW, config.SUBJECT, "seed", "total_steps"} or len(texts) < 2 and not ranges:
            fixed[word] = texts
            continue
        if not ranges:
            for text in texts:
                parse(name, hint, text)
            space.append(Dimension(name, tuple(dict.fromkeys(texts))))
            continue
        if len(texts) > 1:
            raise UserError(f"{flag(name)} takes one range or several values, not {' '.join(texts)}; write for example "
                            f"{flag(name)} {texts[0]}")
        low, high = ends_of(name, hint, texts[0])
        space.append(between(name, low, high, kind_of(hint) is int))
    return fixed, space


def ends_of(name: str, hint: Any, text: str) -> tuple[float, float]:
    """Return both ends of a range LOW:HIGH of a setting of type `hint`. UserError if it is none, or an empty one."""
    what = f"{flag(name)} {text} is not a range LOW:HIGH"
    try:
        ends = [checked(name, hint, parse(name, kind_of(hint), end)) for end in text.split(":")]
    except UserError as error:
        raise UserError(f"{what} ({error})") from None
    if len(ends) != 2:
        raise UserError(f"{what}; write two numbers, such as {flag(name)} {ends[0]:g}:{ends[-1]:g}")
    if ends[0] == ends[1]:
        raise UserError(f"{flag(name)} {text} has equal ends; write two different numbers, or {flag(name)} {ends[0]:g}")
    if ends[0] > ends[1]:
        raise UserError(f"{flag(name)} {text} is an empty range; write the smaller number first")
    return ends[0], ends[1]


def kind_of(hint: Any) -> Any:
    """Return the type of a setting without its range, and without None."""
    if get_origin(hint) is Annotated:
        return kind_of(get_args(hint)[0])
    if type(None) in get_args(hint) and get_origin(hint) in (Union, type(int | None)):
        return kind_of(next(arg for arg in get_args(hint) if arg is not type(None)))
    return hint


def recommended(base: RunConfig, fixed: dict[str, list[str]], works: Callable[[dict[str, str]], bool]
                ) -> list[Dimension]:
    """Return the search space of an algorithm if the user gives none, around the settings `base`.

    It has the algorithm's own settings whose comment recommends a range, the learning rates, and those in `USUAL`. A
    setting that is off, or whose value is outside its usual range, is not searched; a learning rate is always.

    Args:
        fixed: flags that the user gave; they are not searched.
        works: whether a run with these flags could start.
    """
    types, space = types_of(type(base)), []
    for name in inspect.get_annotations(type(base)):                      # without inherited settings
        kind, value = kind_of(types.get(name)), getattr(base, name)
        if kind not in (int, float) or name.replace("_", "-") in fixed or value is None:
            continue
        found = RECOMMENDED.search(comments(type(base))[name])
        low, high = map(float, filter(None, found.groups())) if found else USUAL.get(name, (0.0, 0.0))
        if is_rate(name) and not low <= value <= high:
            low, high = (float(f"{x:.2g}") for x in (value / AROUND, value * AROUND))
        if low <= value <= high > low:
            space.append(between(name, low, high, kind is int))
    return [fit for d in space if (fit := fitting(d, works))]


def fitting(dimension: Dimension, works: Callable[[dict[str, str]], bool]) -> Dimension | None:
    """Return the dimension without choices that do not work; None if fewer than two remain, or an end does not work."""
    word = dimension.name.replace("_", "-")
    texts = tuple(text for text in dimension.ends() if works({word: text}))
    if dimension.choices:
        return Dimension(dimension.name, texts) if len(texts) > 1 else None
    return dimension if len(texts) == 2 else None
