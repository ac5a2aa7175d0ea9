"""The rules of the house that no unit test sees: who may import whom, what no file may do, how long a file may be."""
import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import llm
import spinup
from spinup.registry import FAMILIES, Algorithm, algorithms, ancestors, find

ROOT = Path(spinup.__file__).parents[1]
FILES = sorted(p for package in ("spinup", "llm") for p in (ROOT / package).rglob("*.py"))
ALGORITHMS = {a.name: a for family in FAMILIES for a in algorithms(family).values() if not a.variant}
BY_MODULE = {a.module: a for a in ALGORITHMS.values()}
# The parts of the project that each part may import from. GROUND: the parts that nearly all others may import.
GROUND = {"errors", "machine", "modules", "parser", "registry", "signals"}
ARROWS = {
    "errors": set(), "signals": set(), "machine": {"errors"}, "parser": {"errors"}, "about": {"errors"},
    "modules": set(), "registry": {"about", "errors", "modules"},
    "core": {"core"},
    "envs": {"core", "envs", "errors", "signals"},
    "runs": {"core", "data", "envs", "runs", *GROUND},
    "data": {"core", "data", "errors"},
    "algos": {"core", "data", "envs", "runs", "algos", "errors"},
    "view": {"core", "data", "envs", "runs", "view", *GROUND},
    "family": {"core", "envs", "runs", "view", *GROUND},
    "arena": {"core", "envs", "runs", "view", "arena", *GROUND},
    "exercises": {"runs", "view", "exercises", *GROUND},
    "bench": {"core", "data", "envs", "runs", "view", "arena", "algos", "bench", *GROUND, "__init__"},
    "llm": {"core", "data", "envs", "runs", "view", "algos", "bench", "llm", *GROUND},
    "__init__": {"runs", "registry"},
    "__main__": {"cli"}, "run": {"cli"},
    "cli": {"core", "data", "envs", "runs", "view", "arena", "exercises", "bench", "llm", "cli", *GROUND, "__init__"}}
LONGEST, LEARNERS = 300, ("spinup/algos/", "spinup/core/", "llm/algos/")      # lines of a file; where lines are shorter
each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
CORE = [p for p in FILES if p.is_relative_to(ROOT / "spinup" / "core")]
each_core_file = pytest.mark.parametrize("path", CORE, ids=lambda p: p.name)


def module_of(path: Path) -> str:
    """The full name of a file's module; a package's own is its `__init__`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def part(module: str) -> str:
    """core, envs, runs, algos, llm, ... of a module's full name; for a file right in `spinup` its own name."""
    names = module.split(".")
    return "llm" if names[0] == "llm" else names[1] if len(names) > 1 else "__init__"


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of every import in a file, those in functions too; the name is "" for a plain `import module`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where an arrow points"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                file = ROOT / whole.replace(".", "/")
                is_module = file.is_dir() or file.with_suffix(".py").exists()
                yield (whole, "") if is_module else (node.module, alias.name)


def calls(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """What every call in a file calls, and its keyword arguments, as they are written."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {k.arg or "**": ast.unparse(k.value) for k in node.keywords}


def ours(path: Path) -> list[tuple[str, str]]:
    return [(module, name) for module, name in imports(path) if module.split(".")[0] in ("spinup", "llm")]


def file_of(module: str) -> str:
    """The module whose file an import reads: that of a package is its `__init__`."""
    return f"{module}.__init__" if (ROOT / module.replace(".", "/")).is_dir() else module


def names_in(module: str) -> set[str]:
    """The names that a module defines or imports at its top, also under conditions."""
    found: set[str] = set()
    for node in tree(ROOT / f"{module.replace('.', '/')}.py").body:
        for inner in ast.walk(node) if isinstance(node, ast.If | ast.Try) else [node]:
            if isinstance(inner, ast.FunctionDef | ast.ClassDef):
                found.add(inner.name)
            elif isinstance(inner, ast.Import | ast.ImportFrom):
                found |= {(alias.asname or alias.name).partition(".")[0] for alias in inner.names}
            elif isinstance(inner, ast.Assign | ast.AnnAssign):
                targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
                found |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return found


# Turned red by: a name that a module no longer has, imported in a function that no test calls.
@each_file
def test_every_imported_name_exists(path):
    for module, name in ours(path):
        file = file_of(module)
        if name and "__getattr__" not in names_in(file):
            assert name in names_in(file), f"{module} has no {name}"


# Turned red by: `import spinup.runs.run` in core or envs, inside of a function too; `from spinup import envs` likewise;
# anything of `llm` in spinup, its command line aside.
@each_file
def test_arrows_point_one_way(path):
    me = module_of(path)
    for module, _ in ours(path):
        if module == "spinup":                                            # `from spinup import __version__`
            assert part(me) in ("runs", "view", "bench", "cli")
            continue
        assert part(module) in ARROWS[part(me)], f"{me} imports {module}"


# Turned red by: an import in a function, back to a file that imports this one, at once or by way of others.
def test_no_imports_run_in_circles():
    graph = {module_of(path): {file_of(module) for module, _ in ours(path)} - {module_of(path)} for path in FILES}
    done: set[str] = set()

    def follow(module: str, way: list[str]) -> None:
        assert module not in way, " -> ".join([*way[way.index(module):], module])
        if module not in done:
            for imported in sorted(graph.get(module, ())):
                follow(imported, [*way, module])
            done.add(module)

    for module in graph:
        follow(module, [])


# Turned red by: gymnasium, or anything of files and command lines, in core.
@each_core_file
def test_core_knows_no_environment_file_or_command_line(path):
    used = {module.split(".")[0] for module, _ in imports(path)}
    assert not used & {"gymnasium", "os", "sys", "io", "pathlib", "argparse", "json", "csv", "rich"}
    assert not {call for call, _ in calls(path)} & {"open", "print", "input"}


# Turned red by: an algorithm, or a list of them, named where a new one would then have to be added.
@each_file
def test_only_benchmarks_know_algorithms_by_name(path):
    me = module_of(path)
    if part(me) == "bench" or me.startswith("llm.bench.") or me in ("llm.cli", "llm.pipeline"):    # the stages of RLHF
        return
    own = {*BY_MODULE[me].variants, BY_MODULE[me].method} if me in BY_MODULE else set()
    words = {n.value for n in ast.walk(tree(path)) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    named = words & {method for family in FAMILIES for method in algorithms(family)}
    assert len(named - own) <= 1, f"{me} knows {sorted(named)}"


# Turned red by: `from spinup.algos.vpg import Config`, or train, or a class, in ppo.py or grpo.py; a function of an
# algorithm that the TOML file does not name as its parent, nor one of these as theirs.
@each_algorithm
def test_an_algorithm_takes_only_pure_functions_of_its_ancestors(algorithm):
    allowed = {find(name).module for name in ancestors(algorithm)}
    for module, name in ours(algorithm.path):
        if module in BY_MODULE or part(module) == "algos":
            assert module in allowed, f"{algorithm.name} imports from {module}; its ancestors are {sorted(allowed)}"
            is_function = inspect.isfunction(getattr(importlib.import_module(module), name, None))
            assert is_function and name not in ("train", "make_policy"), f"{algorithm.name} imports {module}.{name}"


# Turned red by: a section missing or in another place, code under `__main__` or at import time; a name of a file that
# has moved in what it differs from; a preset for a setting that is none.
@each_algorithm
def test_an_algorithms_file_reads_from_top_to_bottom(algorithm: Algorithm):
    words, body = ast.get_docstring(tree(algorithm.path)), tree(algorithm.path).body
    assert words.splitlines()[0].endswith(".") and algorithm.summary == words.splitlines()[0]
    assert (told := re.search(r"[Dd]iffers from (.*?) by", words, re.DOTALL))
    assert all((ROOT / file).exists() for file in re.findall(r"\S+/\S+", told[1]))
    kinds = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.ClassDef, ast.FunctionDef)
    assert all(isinstance(node, kinds) for node in body[1:])
    names = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    last = ["train"] if algorithm.family else ["make_policy", "train"]
    assert names[0] == "Config" and names[-len(last):] == last
    assert all(ast.get_docstring(node) for node in body if isinstance(node, ast.FunctionDef))


@each_file
def test_files_and_lines_have_a_limit(path):
    lines, learners = path.read_text().splitlines(), path.relative_to(ROOT).as_posix().startswith(LEARNERS)
    width = 100 if learners else 120
    assert not [i for i, line in enumerate(lines, 1) if len(line) > width], f"lines above {width} columns"
    assert len(lines) <= LONGEST


# Turned red by: each of the calls below. A user's file is data: it is parsed, never run.
@each_file
def test_nothing_of_a_users_file_is_run(path):
    for call, keywords in calls(path):
        assert call not in ("eval", "exec", "compile", "__import__", "os.system", "os.popen", "runpy.run_path"), call
        assert not re.match(r"(pickle|dill|joblib|shelve|marshal|yaml)\.\w*(load|open|Unpickler)", call), call
        assert keywords.get("shell", "False") == "False" and keywords.get("allow_pickle", "False") == "False", call
        assert call != "torch.load" or keywords.get("weights_only") == "True"
    assert not [name for module, name in imports(path) if module in ("pickle", "marshal") and name]


@each_core_file
def test_core_is_documented(path):
    assert ast.get_docstring(tree(path)) or path.stem == "__init__"
    for node in tree(path).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{path.name}: {node.name}"


# Turned red by: an algorithm or variant that has no public function of its name.
def test_every_algorithm_is_public():
    for package, family in ((spinup, ""), (llm, "llm")):
        assert {*algorithms(family), "load"} <= {*package.__all__} <= {*dir(package)}
        for name in algorithms(family):
            assert getattr(package, name).__name__ == name


# Turned red by: a variant or a renamed setting that the Config does not have; a table in a TOML file that nobody reads.
@each_algorithm
def test_what_the_toml_file_says_is_known(algorithm):
    known = {"order", "parent", "family", "actions", "observations", "rewards", "metrics", "variants", "renamed",
             "defaults", "presets"}
    assert {*algorithm.about} <= known and "order" in algorithm.about
    config = algorithm.load().Config
    for settings in algorithm.variants.values():
        config(**settings)
    for now in algorithm.about.get("renamed", {}).values():
        assert hasattr(config, now["to"])
