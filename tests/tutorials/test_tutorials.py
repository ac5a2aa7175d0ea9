"""Tutorials: they run at their smallest budget with every claim asserted, and what is kept of them is current."""
import importlib.util
import json
from pathlib import Path

import pytest

from spinup.view.notebook import curves, panels

FOLDER = Path(__file__).parents[2] / "tutorials"
spec = importlib.util.spec_from_file_location("tutorials_build", FOLDER / "build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)
SOURCES = build.sources()
each = pytest.mark.parametrize("source", SOURCES, ids=[s.stem for s in SOURCES])


def test_there_are_ten():
    assert [source.stem[:2] for source in SOURCES] == [f"{i:02}" for i in range(1, 11)]


# Turned red by: curves that end with the colours; a look that comes again.
def test_curves_may_be_many():
    _, (axes,) = panels()
    curves(axes, {str(i): [{"steps": [1, 2], "return_mean_100": [0, i]}] for i in range(20)})
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.get_lines()}
    assert len(axes.get_lines()) == 40 and len(looks) == 20


@each
def test_it_runs_and_its_claims_hold(source, monkeypatch):
    monkeypatch.setenv("SPINUP_BUDGET", "ci")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    build.executed(source)


# Turned red by: a sentence that was changed in the source only, a notebook that was not run, a picture without words.
@each
def test_the_notebook_is_current(source):
    kept, made = json.loads(source.with_suffix(".ipynb").read_text()), build.notebook(source)
    same = [c["source"] for c in kept["cells"]] == [c.source for c in made.cells]
    assert same, f"python tutorials/build.py {source.stem}"
    code = [c for c in kept["cells"] if c["cell_type"] == "code"]
    assert all(c["execution_count"] for c in code)
    shown = [o for c in code for o in c["outputs"]]
    assert not [o for o in shown if o["output_type"] == "error" or o.get("name") == "stderr"]
    pictures = [o for o in shown if "image/png" in o.get("data", ())]
    assert pictures and all(len(o["metadata"]["image/png"]["alt"]) > 40 for o in pictures)


# Turned red by: a line of prose that begins with a per cent sign, which a site of documentation takes for a comment.
@each
def test_all_its_prose_is_shown(source):
    prose = [line for c in build.notebook(source).cells if c.cell_type == "markdown" for line in c.source.splitlines()]
    assert not [line for line in prose if line.startswith(("%", "    "))]


@each
def test_it_has_one_budget_and_asserts_in_folded_cells(source):
    cells = build.notebook(source).cells
    code = [c for c in cells if c.cell_type == "code"]
    assert code[0].source.startswith('BUDGET = "ci"') and all(f"{b}={{" in code[0].source for b in ("ci", "cpu", "gpu"))
    folded = [c for c in code if "hide-cell" in c.metadata.get("tags", ())]
    assert len(folded) >= 3 and all("assert" in c.source for c in folded)
    assert not [c for c in code if c not in folded and "assert " in c.source]
