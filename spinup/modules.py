"""Python modules: files found by name without importing them, and whether a file lies beside a run."""
from importlib.util import find_spec
from pathlib import Path


def source(module: str) -> Path | None:
    """Return the Python file of a module, given by its full name, or None. Packages above it are not imported, because
    they may be broken or unrelated."""
    first, *rest = module.split(".")
    try:
        spec = find_spec(first)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    folders = [Path(folder, *rest) for folder in spec.submodule_search_locations or ()]
    candidates = [file for folder in folders for file in (folder / "__init__.py", Path(f"{folder}.py"))]
    if not rest:
        candidates = [Path(spec.origin or "")]
    for file in candidates:
        if file.suffix == ".py" and file.is_file():
            return file
    return None


def inside(path: Path, run: Path) -> bool:
    """Return whether a file is in the run's experiment folder, or in the parent of that folder if the parent is below
    the current folder."""
    experiment = run.resolve().parent
    runs, here = experiment.parent, Path.cwd()
    held = [experiment, *([runs] if here in runs.parents else [])]
    return any(folder in path.resolve().parents for folder in held)
