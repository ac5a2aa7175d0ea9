"""Names of the pictures. Each other file in this folder is one, except `draw`. To add a picture, add a file; there is
no list.

Nothing is imported, so the command line can list the names at once.
"""
from pathlib import Path


def picture_names() -> dict[str, str]:
    """Map the name of each picture to its function, as "llm.bench.pictures.module:module"; a name has - in place of _.

    The function (seeds: list[int], log_dir: Path, out: Path) -> int has the name of its module.
    """
    stems = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    return {stem.replace("_", "-"): f"{__package__}.{stem}:{stem}" for stem in stems
            if not stem.startswith("_") and stem not in ("draw", Path(__file__).stem)}
