"""Exceptions that the command line reports in one sentence instead of a traceback."""
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

FEW = 10                # names that an error message lists
# Messages of torch: the OutOfMemoryError of a GPU, the RuntimeError of the CPU.
OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)


class UserError(Exception):
    """An error in the user's input or files; the message is one sentence that says what to type instead."""


class ActionsError(UserError):
    """An algorithm does not support this kind of action space. Code that knows all algorithms adds which ones do.

    Attributes:
        kind: the class name of the space, such as "Box".
    """

    def __init__(self, message: str, kind: str):
        super().__init__(message)
        self.kind = kind


class NonFiniteError(RuntimeError):
    """A number became infinite or NaN; the message names it and the step."""


class EnvironmentFailure(RuntimeError):
    """The code of an environment raised an exception, which is the cause of this one. The message names the
    environment, the step, the copy and the action."""


class WorkerError(RuntimeError):
    """Another process of the same training run is missing."""


def out_of_memory(error: BaseException | None) -> bool:
    """Return whether an exception reports a lack of memory."""
    return isinstance(error, MemoryError) or isinstance(error, RuntimeError) and bool(OUT_OF_MEMORY.search(str(error)))


def unreadable(error: BaseException) -> str:
    """Return the reason why a text file could not be parsed, as the end of a sentence."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text; save it as UTF-8"
    return "its brackets are nested too deeply" if isinstance(error, RecursionError) else str(error)


def source_name(source: object) -> str:
    """Return a name of an environment or task for folders and messages: the id, or the function's or object's name."""
    if isinstance(source, str):
        return source
    return getattr(source, "__qualname__", type(source).__name__).split(".")[-1].strip("<>")   # a lambda is <lambda>


def nearest(name: str, names: Iterable[str], means: Mapping[str, str] | None = None) -> str:
    """Return ` Did you mean 'x'?`, or "" if no name is near; to append to a message about an unknown name.

    means: the texts to show in place of the names.
    """
    meant = {n: (means or {}).get(n, n) for n in names}
    by_lower = {n.lower(): word for n, word in meant.items() if word != name}
    near = get_close_matches(name.lower(), by_lower, cutoff=0.6)
    near.sort(key=lambda word: sorted(word) != sorted(name.lower()))      # swapped letters first: gpro is grpo
    return f" Did you mean {by_lower[near[0]]!r}?" if near else ""


def check_names(given: dict[str, Any], known: list[str], sentence: str) -> None:
    """UserError for the first unknown name, with the nearest known one, or with all of them if they are few."""
    for name in given:
        if name not in known:
            few = f" Choose from {', '.join(known)}" if 0 < len(known) <= FEW else ""
            raise UserError(f"{sentence} {name!r}.{nearest(name, known) or few}")
