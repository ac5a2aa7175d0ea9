"""Registry of algorithms. It does not import torch, so `spinup algos` and `spinup --help` are fast.

An algorithm is a Python file with a TOML file of the same name beside it. The registry finds it

- in the folder of its family: `spinup/algos` for environments ("ppo"), `llm/algos` for language models ("llm grpo");
- by an entry point of the group `spinup.algorithms` or `llm.algorithms` of another distribution;
- by the name of its module ("my_algo", "my_package.my_algo", "llm my_package.my_algo").

The TOML file holds information that the code does not contain: see `spinup/about.py`.
"""
import importlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from spinup.about import KINDS, read
from spinup.errors import UserError, nearest
from spinup.modules import inside, source

# The first word of a command, "" for none -> the package with `algos` and `family.py`, which loads, shows and evaluates
# its runs.
FAMILIES = {"": "spinup", "llm": "llm"}
# Names of commands, by family; the command line adds them.
COMMANDS: dict[str, set[str]] = {family: set() for family in FAMILIES}
PARTS = (("class", "class", "Config"), ("def", "function", "train"))      # of its file: keyword, kind, name


@dataclass(frozen=True)
class Algorithm:
    """An algorithm by name; `load` imports it.

    Attributes:
        name: the name on the command line and in `config.json`: "ppo", "llm dapo", "my_package.my_algo".
        family: the first word of the name, a key of `FAMILIES`.
        module: the full name of its module.
        path: the file of its module.
        variant: the variant of that file; "" for the file's own settings.
    """

    name: str
    family: str
    module: str
    path: Path
    variant: str = ""

    @cached_property
    def about(self) -> dict[str, Any]:
        """Contents of the TOML file beside the module; {} if there is none. UserError if it is wrong."""
        return read(self.path.with_suffix(".toml"))

    @property
    def parents(self) -> list[str]:
        """Names of its parent algorithms."""
        parent = self.about.get("parent", [])
        return [parent] if isinstance(parent, str) else list(parent)

    @property
    def variants(self) -> dict[str, dict[str, Any]]:
        """Settings by the name of a variant."""
        return self.about.get("variants", {})

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of its variant; {} without one."""
        return self.variants.get(self.variant, {})

    @property
    def defaults(self) -> dict[str, dict[str, Any]]:
        """Settings by the kind of actions or observations, for environments without a preset."""
        return self.about.get("defaults", {})

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds that have `defaults`, with their descriptions in words."""
        return {kind: KINDS[kind] for kind in self.defaults}

    @property
    def presets(self) -> dict[str, dict[str, Any]]:
        """Presets by name: `settings`, the results that we `reached` with them, and the best `published` result."""
        return {name: {"settings": {k: v for k, v in table.items() if k not in ("reached", "published")},
                       "reached": table.get("reached"), "published": table.get("published")}
                for name, table in self.about.get("presets", {}).items()}

    @property
    def method(self) -> str:
        """Name without that of its family."""
        return self.name.removeprefix(f"{self.family} ")

    @property
    def summary(self) -> str:
        """First line of its module's docstring; "" if the module has none."""
        with open(self.path, encoding="utf-8", errors="replace") as file:
            line = file.readline().strip()
        return line.strip('"').strip() if line.startswith('"') else ""

    def load(self) -> ModuleType:
        """Import its module; `spinup.runs.plugin.load` checks it too. UserError if the module calls sys.exit."""
        try:
            return importlib.import_module(self.module)
        except SystemExit as end:
            raise UserError(f"the module {self.module} in {self.path} called sys.exit({end.code!r}) during its import; "
                            "put this call under if __name__ == '__main__':") from end
        except Exception as error:
            error.add_note(f"raised during the import of {self.name}, the module {self.module} in {self.path}")
            raise


@cache
def algorithms(family: str = "") -> Mapping[str, Algorithm]:
    """Algorithms of the family's folder, and of other folders if their TOML file names this `family`, by method. They
    are in the `order` of their TOML files; variants follow their file."""
    first, files = f"{family} " if family else "", []
    for owner, package in FAMILIES.items():
        folder = Path(find_spec(f"{package}.algos").submodule_search_locations[0])
        files += [Algorithm(f"{first}{p.stem}", family, f"{package}.algos.{p.stem}", p.with_suffix(".py"))
                  for p in sorted(folder.glob("*.toml")) if read(p).get("family", owner) == family]
    found: dict[str, Algorithm] = {}
    for algorithm in sorted(files, key=lambda a: (a.about.get("order", 1000), a.name)):
        found |= with_variants(algorithm)
    return found


def with_variants(algorithm: Algorithm) -> dict[str, Algorithm]:
    """Return the algorithm and its variants, by method."""
    first = f"{algorithm.family} " if algorithm.family else ""
    return {algorithm.method: algorithm} | {
        variant: Algorithm(f"{first}{variant}", algorithm.family, algorithm.module, algorithm.path, variant)
        for variant in algorithm.variants}


class Installed(dict[str, Algorithm]):
    """Algorithms of other distributions by method.

    Attributes:
        faults: errors of entry points, by name: they are broken, or their name is taken.
    """

    def __init__(self):
        super().__init__()
        self.faults: dict[str, str] = {}


@cache
def installed(family: str = "") -> Installed:
    """Return the algorithms that other distributions register by an entry point. Their code is not imported. Errors are
    recorded in `faults` instead of raising a UserError."""
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
        for method, variant in ours.items():
            if method in algorithms(family) or method in COMMANDS[family]:
                what = "an algorithm of this library" if method in algorithms(family) else "a command"
                typed = f"{family} {entry.value}".strip() + ("" if method == entry.name else f":{method}")
                found.faults[method] = f"{said} cannot be used as {method}, which is {what}; type: spinup {typed}"
            else:
                found[method] = variant
    return found


def why_none(module: str) -> str:
    """Return the reason why the module of an entry point holds no algorithm."""
    if ":" in module:
        return f"it must name only a module, {module.partition(':')[0]!r}"
    if source(module) is None:
        return f"there is no module {module}"
    return f"the file of {module} must have `class Config` and `def train`"


def by_module(module: str, name: str, family: str) -> Algorithm | None:
    """Return the algorithm in the module with this full name, found without importing it; None if there is none."""
    path = source(module) if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", module) else None
    if path is None:
        return None
    return None if lacking(path) else Algorithm(name, family, module, path)


def lacking(path: Path) -> list[str]:
    """Return the parts of an algorithm that the text of a Python file lacks."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return [f"{what} {name}" for line, what, name in PARTS if not re.search(rf"^{line} {name}\b", text, re.MULTILINE)]


def why_not(name: str) -> str:
    """Return the reason why the file `name`.py of the current folder cannot be used as an algorithm; "" if there is no
    such file. `look_up` does not find this name."""
    name = name.partition(":")[0].removesuffix(".py")
    file = Path(f"{name}.py")
    if not re.fullmatch(r"[\w-]+", name) or not os.path.isfile(file):
        return ""
    if missing := lacking(file):
        return f"{file} has no {' and no '.join(missing)}; see docs/using/your_algorithm.md"
    if "-" in name:
        return f"{name} cannot be the name of a Python module; rename {file} to {name.replace('-', '_')}.py"
    return f"Python has another module {name}; rename {file}" if source(name) else ""


def hidden(name: str) -> str:
    """Return a note if an algorithm or command of this library hides an algorithm in the current folder; else ""."""
    family, _, method = name.rpartition(" ")
    file = Path(f"{method}.py")
    if not os.path.isfile(file) or not {method} & {*algorithms(family), *COMMANDS[family]} or lacking(file):
        return ""
    packages = (Path(find_spec(package).submodule_search_locations[0]) for package in FAMILIES.values())
    if any(package in file.resolve().parents for package in packages):
        return ""
    what = "command" if method in COMMANDS[family] else "algorithm"
    return f"{name} is the library's {what}, not ./{file}; rename your file to use it"


def find(name: str, run: Path | None = None) -> Algorithm:
    """Return the algorithm with that name, as `look_up` finds it. UserError if there is none. The error names the
    missing module if the name comes from a run, otherwise the fault of the user's file or the nearest name."""
    algorithm = look_up(name, run)
    if algorithm is not None:
        return algorithm
    family, _, method = name.rpartition(" ")
    kind = "method" if family else "algorithm"
    if run is not None and family in FAMILIES:
        why = why_none(method.partition(":")[0]) if "." in method else f"there is no {kind} {method!r}"
        raise UserError(f"{run} was trained by {method}, but {why}; install its package, or type this command in the "
                        "folder that contains it")
    if why := why_not(method):
        raise UserError(why)
    known = {**algorithms(family), **installed(family)} if family in FAMILIES else {}
    if not family and name in algorithms("llm"):
        raise UserError(f"{name} is a method for language models; to train with it, type: spinup llm {name}")
    raise UserError(f"there is no {kind} {name!r}.{nearest(method, known)} `spinup algos` lists them")


def look_up(name: str, run: Path | None = None) -> Algorithm | None:
    """Return the algorithm with that name: "ppo", "llm dapo", "my_package.my_algo", "my_package.my_algo:variant"; or
    None.

    Args:
        run: the folder of the run whose `config.json` has the name. A module in a folder of runs is never imported,
            because such a folder may come from anybody.
    UserError for an algorithm that cannot be used, or a name with another spelling.
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
            raise UserError(f"an algorithm is given by the name of its module; instead of {method} type {meant}")
        return None
    if run is not None and inside(algorithm.path, run):
        raise UserError(f"{run} names the algorithm {module}, whose file is in a folder of runs and is not imported "
                        "from there; install it, or move it next to your own code")
    if variant and variant not in algorithm.variants:
        there = ", ".join(f"{module}:{known}" for known in algorithm.variants)
        raise UserError(f"there is no variant {variant!r} of {module}; type {there or module}")
    return Algorithm(name, family, module, algorithm.path, variant)


def family(algorithm: Algorithm) -> ModuleType:
    """Return the module `family.py` of an algorithm's family: `kinds`, `kinds_of_model`, `kindred`, `load`, `watch`,
    `evaluate`, `check`, and `LESS_MEMORY`, advice for a lack of memory."""
    return importlib.import_module(f"{FAMILIES[algorithm.family]}.family")


def serving(kind: str) -> list[str]:
    """Return the names of the algorithms for environments that support a class of action spaces. Leave out variants,
    and algorithms that need goals."""
    return [name for name, a in algorithms().items() if not a.variant and kind in a.about.get("actions", ())
            and a.about.get("observations") != ["goals"]]


def own_name(module: str, family: str) -> str:
    """Return the name of the algorithm whose Config is defined in a module: "llm grpo" for llm.algos.grpo."""
    folders = "|".join(FAMILIES.values())
    return f"{family} {re.sub(rf'^({folders})[.]algos[.]', '', module)}".strip()
