"""Names of the pictures, found in the sources of this folder: a new picture is a new file, and no list is edited.

Nothing is imported, so that the command line can list them at once.
"""
import re
from functools import cache
from pathlib import Path

PICTURE = re.compile(r"^def (\w+)\(seeds: list\[int\], log_dir: Path, out: Path\) -> int:", re.MULTILINE)


@cache
def picture_names() -> dict[str, str]:
    """Name of each picture, and its function as "llm.bench.pictures.module.function".

    A picture is a function (seeds: list[int], log_dir: Path, out: Path) -> int; it is typed with - for each _ of the
    function's name.
    """
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        for function in PICTURE.findall(path.read_text("utf-8")):
            found[function.replace("_", "-")] = f"llm.bench.pictures.{path.stem}.{function}"
    return found
