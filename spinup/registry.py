"""Finds algorithms. Imports no torch: `spinup algos` and `spinup --help` need no more than this.

An algorithm is a Python file with a TOML file of the same name beside it. It is found

- in the folder of its family: `spinup/algos` for environments ("ppo"), `llm/algos` for language models ("llm grpo");
- by an entry point of the group `spinup.algorithms` or `llm.algorithms` of another distribution;
- by the name of its module ("my_algo", "my_package.my_algo", "llm my_package.my_algo").

The TOML file says what cannot be read from the code: see `spinup/about.py`.
"""
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from spinup.about import read
from spinup.errors import UserError, nearest

# The first word of a command, "" for none -> the package with `algos`, and `family.py`, which says how its runs are
# loaded, watched and evaluated.
FAMILIES = {"": "spinup", "llm": "llm"}
# The words that the command line takes for itself, by family; it adds them.
COMMANDS: dict[str, set[str]] = {family: set() for family in FAMILIES}


@dataclass(frozen=True)
class Algorithm:
    """An algorithm by name; `load` imports it.

    Attributes:
        name: as it is typed, and as `config.json` has it: "ppo", "llm dapo", "my_package.my_algo".
        family: the first word of the name, a key of `FAMILIES`.
        module: the full name of its module.
        path: the file of its module.
        variant: the variant of that file that is meant; "" for the file's own settings.
    """

    name: str
    family: str
    module: str
    path: Path
    variant: str = ""

    @cached_property
    def about(self) -> dict[str, Any]:
        """The contents of the TOML file beside the module; {} without one. UserError if it is wrong."""
        return read(self.path.with_suffix(".toml"))

    @property
    def parents(self) -> list[str]:
        """Names of the algorithms that it differs from."""
        parent = self.about.get("parent", [])
        return [parent] if isinstance(parent, str) else list(parent)

    @property
    def variants(self) -> dict[str, dict[str, Any]]:
        """Settings by the name of a variant."""
        return self.about.get("variants", {})

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that its variant stands for; {} without one."""
        return self.variants.get(self.variant, {})

    @property
    def defaults(self) -> dict[str, dict[str, Any]]:
        """Settings by the kind of actions or observations, for environments without a preset."""
        return self.about.get("defaults", {})

    @property
    def presets(self) -> dict[str, dict[str, Any]]:
        """By name: `settings`, what was `reached` with them here, and the best `published` result."""
        return {name: {"settings": {k: v for k, v in table.items() if k not in ("reached", "published")},
                       "reached": table.get("reached"), "published": table.get("published")}
                for name, table in self.about.get("presets", {}).items()}

    @property
    def method(self) -> str:
        """Its name without that of its family."""
        return self.name.removeprefix(f"{self.family} ")

    @property
    def summary(self) -> str:
        """The first line of its module's docstring; "" where it does not begin with one."""
        with open(self.path, encoding="utf-8", errors="replace") as file:
            line = file.readline().strip()
        return line.strip('"').strip() if line.startswith('"') else ""

    def load(self) -> ModuleType:
        """Import its module; `spinup.runs.plugin.load` checks it too."""
        try:
            return importlib.import_module(self.module)
        except Exception as error:
            error.add_note(f"raised while {self.name} was imported, the module {self.module} in {self.path}")
            raise


@cache
def algorithms(family: str = "") -> Mapping[str, Algorithm]:
    """Algorithms of the family's folder by method, in the `order` of their TOML files; variants follow their file."""
    folder = Path(find_spec(f"{FAMILIES[family]}.algos").submodule_search_locations[0])
    first = f"{family} " if family else ""
    files = [Algorithm(f"{first}{p.stem}", family, f"{FAMILIES[family]}.algos.{p.stem}", p.with_suffix(".py"))
             for p in sorted(folder.glob("*.toml"))]
    found: dict[str, Algorithm] = {}
    for algorithm in sorted(files, key=lambda a: (a.about.get("order", 1000), a.name)):
        found |= with_variants(algorithm)
    return found


def with_variants(algorithm: Algorithm) -> dict[str, Algorithm]:
    """The algorithm and its variants, by method."""
    first = f"{algorithm.family} " if algorithm.family else ""
    return {algorithm.method: algorithm} | {
        variant: Algorithm(f"{first}{variant}", algorithm.family, algorithm.module, algorithm.path, variant)
        for variant in algorithm.variants}


class Installed(dict[str, Algorithm]):
    """The algorithms of other distributions by method.

    Attributes:
        faults: what is wrong with entry points, by their name: they are broken, or their name is taken.
    """

    def __init__(self):
        super().__init__()
        self.faults: dict[str, str] = {}


@cache
def installed(family: str = "") -> Installed:
    """Algorithms that other distributions register by an entry point. Nothing of theirs is imported, and what would be
    a UserError is one of its `faults`.
    """
    found = Installed()
    for entry in entry_points(group=f"{FAMILIES[family]}.algorithms"):
        said = f"the entry point {entry.name} = {entry.value!r}"
        name = f"{family} {entry.name}".strip()
        try:
            if not re.fullmatch(r"\w[\w-]*", entry.name):
                raise UserError("its name must be one word of letters, digits, - and _")
            algorithm = by_module(entry.value, name, family)
            if algorithm is None:
                raise UserError(why_none(entry.value))
            ours = with_variants(algorithm)
        except UserError as error:
            found.faults[entry.name] = f"{said} is broken: {error}"
            continue
        for method in ours:
            if method in algorithms(family) or method in COMMANDS[family]:
                what = "an algorithm of this library" if method in algorithms(family) else "a command"
                typed = f"{family} {entry.value}".strip() + ("" if method == entry.name else f":{method}")
                found.faults[method] = f"{said} cannot be used as {method}, which is {what}; type: spinup {typed}"
        found.update(ours)
    return found


def why_none(module: str) -> str:
    """Why there is no algorithm in what an entry point names."""
    if ":" in module:
        return f"it must name a module, {module.partition(':')[0]!r}, and nothing in it"
    if source(module) is None:
        return f"there is no module {module}"
    return f"the file of {module} must have `class Config` and `def train`"


def source(module: str) -> Path | None:
    """The Python file of the module of that full name, or None. Packages above it are not imported: they may be broken,
    or anybody's.
    """
    first, *rest = module.split(".")
    try:
        spec = find_spec(first)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    folders = [Path(folder, *rest) for folder in spec.submodule_search_locations or ()]
    files = [file for folder in folders for file in (folder / "__init__.py", Path(f"{folder}.py"))]
    return next((file for file in (files if rest else [Path(spec.origin or "")])
                 if file.suffix == ".py" and file.is_file()), None)


def by_module(module: str, name: str, family: str) -> Algorithm | None:
    """The algorithm in the module with this full name, found without importing it; None without one."""
    path = source(module) if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", module) else None
    if path is None:
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    if not all(re.search(rf"^{line}\b", text, re.MULTILINE) for line in ("class Config", "def train")):
        return None
    return Algorithm(name, family, module, path)


def in_module(module: str, family: str = "") -> dict[str, Algorithm]:
    """The algorithm of a family that is in that module, and its variants, by method."""
    return {method: algorithm for method, algorithm in algorithms(family).items() if algorithm.module == module}


def find(name: str, run: Path | None = None) -> Algorithm:
    """The algorithm of that name, as `look_up` finds it. UserError where there is none: with the module that is missing
    where the name is that of a run, else with the nearest name."""
    algorithm = look_up(name, run)
    if algorithm is not None:
        return algorithm
    family, _, method = name.rpartition(" ")
    kind = "method" if family else "algorithm"
    if run is not None and family in FAMILIES:
        why = why_none(method.partition(":")[0]) if "." in method else f"there is no {kind} {method!r}"
        raise UserError(f"{run} was trained by {method}, and {why}; install its package, or type this in the folder "
                        "that holds it")
    known = {**algorithms(family), **installed(family)} if family in FAMILIES else {}
    raise UserError(f"there is no {kind} {name!r}.{nearest(method, known)} `spinup algos` lists them")


def look_up(name: str, run: Path | None = None) -> Algorithm | None:
    """The algorithm of that name: "ppo", "llm dapo", "my_package.my_algo", "my_package.my_algo:variant"; or None.

    Args:
        run: the folder of the run whose `config.json` names it. A module in a folder of runs is never imported: such a
            folder may come from anybody.
    UserError for what is there and cannot be used, or is typed otherwise.
    """
    family, _, method = name.rpartition(" ")
    if family not in FAMILIES:
        return None
    for known in (algorithms(family), installed(family)):
        if method in known:
            return known[method]
    if method in installed(family).faults:
        raise UserError(installed(family).faults[method])
    module, _, variant = method.partition(":")
    algorithm = by_module(module, f"{family} {module}".strip(), family)
    if algorithm is None:
        meant = ".".join(Path(method.removesuffix(".py")).parts)
        if method.endswith(".py") and by_module(meant, meant, family) is not None:
            raise UserError(f"an algorithm is typed by the name of its module; in place of {method} type {meant}")
        return None
    if run is not None and inside(algorithm.path, run):
        raise UserError(f"{run} names the algorithm {module}, whose file is in a folder of runs and is not "
                        "imported from there; install it, or move it beside your own code")
    if variant and variant not in algorithm.variants:
        there = ", ".join(f"{module}:{known}" for known in algorithm.variants)
        raise UserError(f"there is no variant {variant!r} of {module}; type {there or module}")
    return Algorithm(name, family, module, algorithm.path, variant)


def inside(path: Path, run: Path) -> bool:
    """Whether a file is in the run's experiment folder, or in that folder's parent if it is below the current one."""
    experiment = run.resolve().parent
    runs, here = experiment.parent, Path.cwd()
    held = [experiment, *([runs] if here in runs.parents else [])]
    return any(folder in path.resolve().parents for folder in held)


def family(algorithm: Algorithm) -> ModuleType:
    """The module `family.py` of an algorithm's family: `kinds`, `kindred`, `load`, `watch`, `evaluate`, `check`, and
    `LESS_MEMORY`, advice where memory does not suffice."""
    return importlib.import_module(f"{FAMILIES[algorithm.family]}.family")


def ancestors(algorithm: Algorithm) -> list[str]:
    """Names of its parents, of their parents, and so on. UserError for one that does not exist."""
    found: list[str] = []
    coming = list(algorithm.parents)
    while coming:
        name = coming.pop(0)
        if name not in found:
            found.append(name)
            coming += find(name).parents
    return found


def serving(kind: str) -> list[str]:
    """Names of the algorithms for environments that serve a class of action spaces, variants left out."""
    return [name for name, a in algorithms().items() if not a.variant and kind in a.about.get("actions", ())]


def own_name(module: str, family: str) -> str:
    """The name of the algorithm whose Config is defined in that module: "llm grpo" for llm.algos.grpo."""
    return f"{family} {module.removeprefix(f'{FAMILIES[family]}.algos.')}".strip()
