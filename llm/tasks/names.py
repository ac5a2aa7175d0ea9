"""Names of the built-in tasks and of their wrappers, found in the source files of this folder and of `wrappers`. To add
one, add a file; there is no list.

Neither torch nor a task is imported, so the command line can list the names at once.
"""
import hashlib
import re
from functools import cache
from pathlib import Path

LINE = re.compile(r'^class (?P<cls>\w+)|^    name = "(?P<name>[\w-]+)"', re.MULTILINE)
# A wrapper with its options, then a colon and the task: length,coef=0.2:sums.
WRAPPED = re.compile(r"(?P<wrapper>[\w-]+)\s*(?:,(?P<options>[^:]*))?:(?P<task>.*)", re.DOTALL)


@cache
def task_names() -> dict[str, str]:
    """Map the name of each built-in task to its class, as "llm.tasks.module:Class".

    A task is a class with a constant `name = "..."` in its body.
    """
    return classes_in(Path(__file__).parent, "llm.tasks")


@cache
def wrapper_names() -> dict[str, str]:
    """Map the name of each wrapper of a task to its class, as "llm.tasks.wrappers.module:Class"."""
    return classes_in(Path(__file__).parent / "wrappers", "llm.tasks.wrappers")


def classes_in(folder: Path, package: str) -> dict[str, str]:
    """Map the constants `name = "..."` of the classes in a folder's files to these classes."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        cls = ""
        for line in LINE.finditer(path.read_text("utf-8")):
            if line["cls"]:
                cls = line["cls"]
            else:
                found[line["name"]] = f"{package}.{path.stem}:{cls}"
    return found


def split_wrapper(text: str) -> tuple[str, str, str] | None:
    """Return the outermost wrapper of a task's text, the text of its options, and the task inside; None if there is no
    wrapper."""
    found = WRAPPED.fullmatch(text)
    if found is None or found["wrapper"] not in wrapper_names():
        return None
    return found["wrapper"], found["options"] or "", found["task"].strip()


def without_wrappers(text: str) -> str:
    """Return the text of a task without its wrappers: `addition` for `length,coef=0.2:vote:addition`."""
    while found := split_wrapper(text):
        text = found[2]
    return text


def fingerprints(task: object, reward: object) -> dict[str, str]:
    """Return the SHA-256 of each file that the text of a task or of its reward names, by path. A Python object names
    none."""
    task, reward = (given if isinstance(given, str) else "" for given in (task, reward))
    inside = without_wrappers(task)
    named = [task, inside, *re.split(r"[+*,=]|(?<=\w\w):", inside)]       # the parts of a mixture may be files
    named += [term.rpartition("*")[2].rpartition(":")[0] for term in reward.split(",")]
    paths = dict.fromkeys(Path(x.strip()) for x in named)
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths
            if path.suffix and path.is_file()}
