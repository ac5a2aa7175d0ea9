"""The rules of the house that no unit test sees: who may import whom, what no file may do, how long a file may be."""
import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import llm
import llm.api
import spinup
import spinup.api
from llm.bench.pictures import draw
from llm.tasks import make
from spinup.cli import ALGORITHMS, METHODS, PICTURES, TASKS

ROOT = Path(spinup.__file__).parents[1]
FILES = sorted(p for package in ("spinup", "llm") for p in (ROOT / package).rglob("*.py"))
ORDER = list(dict.fromkeys([*ALGORITHMS.values(), *METHODS.values()]))    # an algorithm may import of earlier ones
ALGORITHM_FILES = [ROOT / (module.replace(".", "/") + ".py") for module in ORDER]
# What learns from preferences has no classic sibling: the first of these has a loss that the second imports.
PREFERENCES = ("llm.algos.reward_model", "llm.algos.dpo")
# The files that stand for the whole: the command line and the public names.
DOORS = {"spinup.cli", "spinup.api", "spinup.__init__", "spinup.__main__", "spinup.run", "llm.api", "llm.__init__"}
# What the files of a part may import of ours.
ARROWS = {
    "core": {"core"},
    "envs": {"core", "envs", "errors"},
    "runs": {"core", "envs", "runs", "errors", "machine"},
    "view": {"core", "envs", "runs", "view", "errors", "machine"},
    "arena": {"core", "envs", "runs", "view", "arena", "errors"},
    "algos": {"core", "envs", "runs", "algos", "errors"},
    "llm": {"core", "envs", "runs", "view", "algos", "bench", "llm", "errors", "machine"},
    "machine": {"errors"},
    "exercises": {"exercises", "runs", "view", "parser", "errors"},
    "parser": {"errors"},
    "errors": set()}
each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
each_algorithm = pytest.mark.parametrize("path", ALGORITHM_FILES, ids=ORDER)
each_core_file = pytest.mark.parametrize("path", [p for p in FILES if "core" in p.parts], ids=lambda p: p.name)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def part(module: str) -> str:
    """core, envs, runs, algos, llm, ... of a module's full name; for a file right in `spinup` its own name."""
    names = module.split(".")
    return "llm" if names[0] == "llm" else names[1] if len(names) > 1 else ""


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


# Turned red by: `import spinup.runs.run` in core or envs, inside of a function too; `from spinup import envs` likewise.
@each_file
def test_arrows_point_one_way(path):
    me = module_of(path)
    if me in DOORS or part(me) == "bench":                                # a benchmark calls what the user calls
        return
    for module, _ in ours(path):
        if module == "spinup":                                            # `from spinup import __version__`
            assert part(me) in ("runs", "view")
            continue
        assert part(module) in ARROWS[part(me)], f"{me} imports {module}"


# Turned red by: gymnasium, or anything of files and command lines, in core.
@each_core_file
def test_core_knows_no_environment_file_or_command_line(path):
    used = {module.split(".")[0] for module, _ in imports(path)}
    assert not used & {"gymnasium", "os", "sys", "io", "pathlib", "argparse", "json", "csv", "rich"}
    assert not {call for call, _ in calls(path)} & {"open", "print", "input"}


# Turned red by: an algorithm, or a second list of them, named where a new one would then have to be added.
@each_file
def test_only_the_doors_know_the_algorithms(path):
    me = module_of(path)
    if me in DOORS or part(me) == "bench" or me.startswith("llm.bench."):           # they train some by name
        return
    if part(me) not in ("algos", "llm"):
        assert not [module for module, _ in ours(path) if part(module) == "algos"]
    own = importlib.import_module(me).METHODS if me in METHODS.values() else {}
    words = {n.value for n in ast.walk(tree(path)) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    named = words & {*ALGORITHMS, *METHODS}
    assert len(named - set(own)) <= 1, f"{me} knows {sorted(named)}"


# Turned red by: `from spinup.algos.vpg import Config`, or train, or a class, in ppo.py or grpo.py; a function of an
# algorithm that comes later in the list; a twin without a loss of its classic sibling's; `bradley_terry` copied.
@each_algorithm
def test_an_algorithm_takes_only_pure_functions_of_earlier_ones(path):
    me = module_of(path)
    taken = [(module, name) for module, name in ours(path) if module in ORDER or part(module) == "algos"]
    for module, name in taken:
        assert ORDER.index(module) < ORDER.index(me), f"{path.name} imports from a later one, {module}"
        is_function = inspect.isfunction(getattr(importlib.import_module(module), name, None))
        assert is_function and name not in ("train", "make_policy"), f"{path.name} imports {module}.{name}"
    if me in PREFERENCES:
        assert me == PREFERENCES[0] or (PREFERENCES[0], "bradley_terry") in taken
    else:
        assert part(me) == "algos" or [module for module, _ in taken if part(module) == "algos"]


# Turned red by: a section missing or in another place, code under `__main__` or at import time, a longer file; a name
# of a file that has moved in what it differs from.
@each_algorithm
def test_an_algorithms_file_reads_from_top_to_bottom(path):
    body, classic = tree(path).body, part(module_of(path)) == "algos"
    assert ast.get_docstring(tree(path)).splitlines()[0].endswith(".")               # `spinup algos` shows this line
    assert (told := re.search(r"Differs from (.*?) by", ast.get_docstring(tree(path))))
    assert all((ROOT / file).exists() for file in re.findall(r"\S+/\S+", told[1]))
    kinds = (ast.Import, ast.ImportFrom, ast.Assign, ast.ClassDef, ast.FunctionDef)
    assert all(isinstance(node, kinds) for node in body[1:])
    assigned = [target.id for node in body if isinstance(node, ast.Assign) for target in node.targets]
    names = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    last = ["make_policy", "train"] if classic else ["train"]
    functions = len(names) - 1 - len(last)
    assert names[0] == "Config" and names[-len(last):] == last
    assert 2 <= functions <= 5 or (functions == 0 and not classic)        # to imitate needs no mathematics of its own
    assert classic or "METHODS" in assigned
    assert all(ast.get_docstring(node) for node in body if isinstance(node, ast.FunctionDef))
    assert len(path.read_text().splitlines()) <= (280 if classic else 300)


@each_file
def test_lines_are_at_most_120_columns(path):
    long = [i for i, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 120]
    assert not long, f"{len(long)} longer lines: {long}"


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


# Turned red by: an algorithm in the command line's list and not among the public names, or the other way round.
def test_every_algorithm_is_public():
    assert set(spinup.__all__) == {"load", *ALGORITHMS}
    for name in ALGORITHMS:
        assert callable(getattr(spinup, name)) and getattr(spinup.api, name).__name__ == name


# Turned red by: a method in one of the four lists and not in another; one that means settings which its Config lacks.
def test_every_method_is_public():
    files = {p.stem for p in (ROOT / "llm/algos").glob("*.py")} - {"__init__"}
    assert {f"llm.algos.{stem}" for stem in files} == set(METHODS.values())
    assert {m: path for path in METHODS.values() for m in importlib.import_module(path).METHODS} == METHODS
    assert set(llm.__all__) == {"load", "rlhf", *METHODS}
    for name, path in METHODS.items():
        assert callable(getattr(llm, name)) and getattr(llm.api, name).__name__ == name
        module = importlib.import_module(path)
        module.Config(**module.METHODS[name])


# The command line lists them without importing what it lists. Turned red by: a name in one list and not in the other;
# one that stands for what is not there.
def test_every_task_and_picture_is_listed():
    assert tuple(make.TASKS) == TASKS
    assert tuple(draw.PICTURES) == PICTURES
    for path in (*make.TASKS.values(), *draw.PICTURES.values()):
        module, _, name = path.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name, None)), path
