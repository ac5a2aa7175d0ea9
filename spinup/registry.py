"""Finds algorithms. Imports no torch: `spinup algos` and `spinup --help` need no more than this.

An algorithm is a Python file with a TOML file of the same name beside it. It is found

- in the folder of its family: `spinup/algos` for environments ("ppo"), `llm/algos` for language models ("llm grpo");
- by an entry point of the group `spinup.algorithms` or `llm.algorithms` of another distribution;
- by the name of its module ("my_algo", "my_package.my_algo", "llm my_package.my_algo").

The TOML file says what cannot be read from the code:

    order = 20                          # place in lists
    parent = "vpg"                      # the algorithm that it differs from, or a list: pure functions of it, and of
                                        # its own parents, may be imported
    actions = ["Discrete", "Box"]       # classes of action spaces that it serves (environments)
    observations = ["vectors"]          # "vectors", "images" (environments)

    rewards = true                      # it learns from rewards (language models)

    [metrics]                           # columns of progress.csv that no other algorithm has
    rating = "Elo rating of the learner"

    [variants.double_dqn]               # a name for some settings: `spinup double_dqn`
    double = true

    [renamed.old_field]                 # a setting's former name; `values` translates its former values
    to = "new_field"

    [presets."CartPole-v1"]             # settings for an environment or a task; `reached` and `published` are none
    total_steps = 100_000
"""
import importlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from spinup.errors import UserError, nearest

# The first word of a command, "" for none -> the package with `algos`, and `family.py`, which says how its runs are
# loaded, watched and evaluated.
FAMILIES = {"": "spinup", "llm": "llm"}


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
        """What the TOML file beside the module says; {} where there is none. UserError where it is no TOML."""
        path = self.path.with_suffix(".toml")
        try:
            return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UserError(f"{path} cannot be read ({error}); restore it or write it again") from None

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
        """The first line of its module's docstring."""
        with open(self.path, encoding="utf-8") as file:
            return file.readline().strip().strip('"').strip()

    def load(self) -> ModuleType:
        """Import its module."""
        return importlib.import_module(self.module)


@cache
def algorithms(family: str = "") -> Mapping[str, Algorithm]:
    """Those of the family's folder by method, in the order of their TOML files; variants after their own file's."""
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


@cache
def installed(family: str = "") -> Mapping[str, Algorithm]:
    """Those that other distributions have registered by an entry point, by method."""
    found: dict[str, Algorithm] = {}
    for entry in entry_points(group=f"{FAMILIES[family]}.algorithms"):
        algorithm = by_module(entry.value, f"{family} {entry.name}".strip(), family)
        if algorithm is not None:
            found |= with_variants(algorithm)
    return found


def by_module(module: str, name: str, family: str) -> Algorithm | None:
    """The algorithm in the module of that full name, which is looked for and not imported; None without one."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    text = Path(spec.origin).read_text(encoding="utf-8", errors="replace")
    if not all(re.search(rf"^{line}\b", text, re.MULTILINE) for line in ("class Config", "def train")):
        return None
    return Algorithm(name, family, module, Path(spec.origin))


def in_module(module: str, family: str = "") -> dict[str, Algorithm]:
    """The algorithm of a family that is in that module, and its variants, by method."""
    return {method: algorithm for method, algorithm in algorithms(family).items() if algorithm.module == module}


def find(name: str, run: Path | None = None) -> Algorithm:
    """The algorithm of that name: "ppo", "llm dapo", "my_package.my_algo", "my_package.my_algo:variant".

    Args:
        run: the folder of the run whose `config.json` names it. A module in a folder of runs is never imported: such a
            folder may come from anybody.
    UserError with the nearest name.
    """
    family, _, method = name.rpartition(" ")
    if family in FAMILIES:
        for known in (algorithms, installed):
            if method in known(family):
                return known(family)[method]
        module, _, variant = method.partition(":")
        if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", module):
            algorithm = by_module(module, f"{family} {module}".strip(), family)
            if algorithm is not None and run is not None and inside(algorithm.path, run):
                raise UserError(f"{run} names the algorithm {module}, whose file is in a folder of runs and is not "
                                "imported from there; install it, or move it beside your own code")
            if algorithm is not None and (not variant or variant in algorithm.variants):
                return Algorithm(name, family, module, algorithm.path, variant)
    kind = "method" if family else "algorithm"
    known = {**algorithms(family), **installed(family)} if family in FAMILIES else {}
    raise UserError(f"there is no {kind} {name!r}.{nearest(method, known)} `spinup algos` lists them")


def inside(path: Path, run: Path) -> bool:
    """Whether a file is in the folder of an experiment, or in one below the present folder that holds experiments."""
    experiment = run.resolve().parent
    runs, here = experiment.parent, Path.cwd()
    held = [experiment, *([runs] if here in runs.parents else [])]
    return any(folder in path.resolve().parents for folder in held)


def family(algorithm: Algorithm) -> ModuleType:
    """The module `family.py` of an algorithm's family: `load`, `watch`, `evaluate`, `check`."""
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
