"""Project rules that no unit test checks: permitted imports, forbidden calls, and the length of files and lines."""
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
from spinup.registry import FAMILIES, Algorithm, algorithms, find
from tests.relations import ancestors

ROOT = Path(spinup.__file__).parents[1]
FILES = sorted(p for package in ("spinup", "llm") for p in (ROOT / package).rglob("*.py"))
ALGORITHMS = {a.name: a for family in FAMILIES for a in algorithms(family).values() if not a.variant}
BY_MODULE = {a.module: a for a in ALGORITHMS.values()}
# The parts of the project that each part may import from. GROUND: the parts that nearly all others may import.
GROUND = {"errors", "machine", "modules", "parser", "registry", "seccomp", "signals"}
ARROWS = {
    "errors": set(), "seccomp": set(), "signals": set(), "modules": set(), "machine": {"errors"},
    "parser": {"errors"}, "about": {"errors"}, "registry": {"about", "errors", "modules"},
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
LONGEST, LEARNERS = 300, ("spinup/algos/", "spinup/core/", "llm/algos/")      # lines of a file; folders of narrow files
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
CORE = [p for p in FILES if p.is_relative_to(ROOT / "spinup" / "core")]


def module_of(path: Path) -> str:
    """The full name of a file's module. The name of a package ends in `__init__`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def part(module: str) -> str:
    """The part of the project, such as core, envs or llm, of a module; for a file directly in `spinup`, its name."""
    names = module.split(".")
    return "llm" if names[0] == "llm" else names[1] if len(names) > 1 else "__init__"


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file, including those in functions."""
    return [*ast.walk(tree(path))]


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of every import in a file, also in functions. The name is "" for a plain `import module`."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: has a relative import; write it as an absolute one"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                file = ROOT / whole.replace(".", "/")
                is_module = file.is_dir() or file.with_suffix(".py").exists()
                yield (whole, "") if is_module else (node.module, alias.name)


@cache
def calls(path: Path) -> list[tuple[str, dict[str, str]]]:
    """The function and the keyword arguments of every call in a file, as text."""
    return [(ast.unparse(node.func), {k.arg or "**": ast.unparse(k.value) for k in node.keywords})
            for node in nodes(path) if isinstance(node, ast.Call)]


@cache
def ours(path: Path) -> list[tuple[str, str]]:
    """The imports of this project's own modules."""
    return [(module, name) for module, name in imports(path) if module.split(".")[0] in ("spinup", "llm")]


def file_of(module: str) -> str:
    """The module whose file an import loads. For a package it is `__init__`."""
    return f"{module}.__init__" if (ROOT / module.replace(".", "/")).is_dir() else module


@cache
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


# Catches: a name that a module no longer has, imported in a function that no test calls.
def test_every_imported_name_exists():
    named = [(path, module, name, names_in(file_of(module))) for path in FILES for module, name in ours(path) if name]
    assert not [f"{path}: {module} has no {name}" for path, module, name, defined in named
                if "__getattr__" not in defined and name not in defined]


# Catches: `import spinup.runs.run` in core or envs, also within a function; `from spinup import envs` in core; an
# import of `llm` in spinup, except in its command line.
def test_imports_go_one_way():
    arrows = [(module_of(path), module) for path in FILES for module, _ in ours(path)]
    # The first condition is about `from spinup import __version__`.
    assert not [f"{me} imports {module}" for me, module in arrows
                if part(me) not in ("runs", "view", "bench", "cli") and module == "spinup"
                or module != "spinup" and part(module) not in ARROWS[part(me)]]


# Catches: an import within a function of a file that imports this one, directly or through other files.
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


# Catches: gymnasium, files or the command line in core.
def test_core_uses_no_environment_file_or_command_line():
    used = {(path, module.split(".")[0]) for path in CORE for module, _ in imports(path)}
    foreign = {"gymnasium", "os", "sys", "io", "pathlib", "argparse", "json", "csv", "rich"}
    assert not {(path, module) for path, module in used if module in foreign}
    assert not {(path, call) for path in CORE for call, _ in calls(path) if call in ("open", "print", "input")}


# Catches: a list of algorithms in which a new algorithm would have to be added.
def test_only_benchmarks_list_algorithms_by_name():
    methods = {method for family in FAMILIES for method in algorithms(family)}
    for path in FILES:
        me = module_of(path)
        if part(me) == "bench" or me.startswith("llm.bench.") or me in ("llm.cli", "llm.pipeline"):    # stages of RLHF
            continue
        own = {*BY_MODULE[me].variants, BY_MODULE[me].method} if me in BY_MODULE else set()
        words = {n.value for n in nodes(path) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        assert len(words & methods - own) <= 1, f"{me} names {sorted(words & methods)}"


# Catches: `from spinup.algos.vpg import Config`, or an import of train or a class, in ppo.py or grpo.py; a function of
# an algorithm that is no ancestor according to the TOML files.
@each_algorithm
def test_algorithm_imports_only_pure_functions_of_its_ancestors(algorithm):
    allowed = {find(name).module for name in ancestors(algorithm)}
    for module, name in ours(algorithm.path):
        if module in BY_MODULE or part(module) == "algos":
            assert module in allowed, f"{algorithm.name} imports from {module}; its ancestors are {sorted(allowed)}"
            is_function = inspect.isfunction(getattr(importlib.import_module(module), name, None))
            assert is_function and name not in ("train", "make_policy"), f"{algorithm.name} imports {module}.{name}"


# Catches: a missing or misplaced section; code under `__main__` or at import time; the old name of a moved file in
# "Differs from".
@each_algorithm
def test_algorithm_file_reads_from_top_to_bottom(algorithm: Algorithm):
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


def test_files_and_lines_have_a_limit():
    for path in FILES:
        name, lines = path.relative_to(ROOT).as_posix(), path.read_text().splitlines()
        width = 100 if name.startswith(LEARNERS) else 120
        wide = [i for i, line in enumerate(lines, 1) if len(line) > width]
        assert not wide, f"{name}: lines {wide} are above {width} columns"
        assert len(lines) <= LONGEST, f"{name} has {len(lines)} lines"


# Catches: each of the calls below. A user's file is data: the library parses it and never executes it.
def test_library_never_executes_the_contents_of_a_users_file():
    for path in FILES:
        for call, keywords in calls(path):
            told = f"{path}: {call}"
            assert call not in ("eval", "exec", "compile", "__import__", "os.system", "os.popen", "runpy.run_path"), \
                told
            assert not re.match(r"(pickle|dill|joblib|shelve|marshal|yaml)\.\w*(load|open|Unpickler)", call), told
            assert keywords.get("shell", "False") == "False" and keywords.get("allow_pickle", "False") == "False", told
            assert call != "torch.load" or keywords.get("weights_only") == "True", told
        assert not [name for module, name in imports(path) if module in ("pickle", "marshal") and name], path


def test_core_is_documented():
    assert not [path for path in CORE if not ast.get_docstring(tree(path)) and path.stem != "__init__"]
    public = [(path, node) for path in CORE for node in tree(path).body
              if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")]
    assert not [f"{path.name}: {node.name}" for path, node in public if not ast.get_docstring(node)]


# Catches: an algorithm or variant that has no public function of its name.
def test_every_algorithm_is_public():
    for package, family in ((spinup, ""), (llm, "llm")):
        assert {*algorithms(family), "load"} <= {*package.__all__} <= {*dir(package)}
        for name in algorithms(family):
            assert getattr(package, name).__name__ == name


# Catches: a variant with a setting that the Config does not have; an unused table in a TOML file.
@each_algorithm
def test_toml_file_has_only_known_tables_and_settings(algorithm):
    known = {"order", "parent", "family", "actions", "observations", "rewards", "metrics", "variants", "defaults",
             "presets"}
    assert {*algorithm.about} <= known and "order" in algorithm.about
    config = algorithm.load().Config
    for settings in algorithm.variants.values():
        config(**settings)
