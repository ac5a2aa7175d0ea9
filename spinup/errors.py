"""The one exception for what a user can put right."""
from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Something the user typed or owns is wrong; the message is one sentence that says what to type instead."""


def nearest(name: str, names: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing where no name is near; to append to a message about an unknown name."""
    names = list(names)
    by_lower = {n.lower(): n for n in names}
    match = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean {by_lower[match[0]]!r}?" if match else ""
