"""Names of the built-in tasks, found in the source files of this folder. To add a task, add a file; there is no list.

Neither torch nor a task is imported, so the command line can list the names at once.
"""
import re
from functools import cache
from pathlib import Path

LINE = re.compile(r'^class (?P<cls>\w+)|^    name = "(?P<name>[\w-]+)"', re.MULTILINE)


@cache
def task_names() -> dict[str, str]:
    """Map the name of each built-in task to its class, as "llm.tasks.module.Class".

    A task is a class with a constant `name = "..."` in its body.
    """
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        cls = ""
        for line in LINE.finditer(path.read_text("utf-8")):
            if line["cls"]:
                cls = line["cls"]
            else:
                found[line["name"]] = f"llm.tasks.{path.stem}.{cls}"
    return found
