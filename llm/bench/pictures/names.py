"""Names of the pictures, found in the source files of this folder. To add a picture, add a file; there is no list.

Nothing is imported, so the command line can list the names at once.
"""
import re
from functools import cache
from pathlib import Path

PICTURE = re.compile(r"^def (\w+)\(seeds: list\[int\], log_dir: Path, out: Path\) -> int:", re.MULTILINE)


@cache
def picture_names() -> dict[str, str]:
    """Map the name of each picture to its function, as "llm.bench.pictures.module.function".

    A picture is a function (seeds: list[int], log_dir: Path, out: Path) -> int. Its name has a - for each _ of the
    function's name.
    """
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        for function in PICTURE.findall(path.read_text("utf-8")):
            found[function.replace("_", "-")] = f"llm.bench.pictures.{path.stem}.{function}"
    return found
