"""Tutorials: they run with every claim asserted, on as few seeds as it needs, and what is kept of them is current."""
import importlib.util
import json
from pathlib import Path

import pytest
from nbclient.exceptions import CellExecutionError

from spinup.view.notebook import curves, panels

FOLDER = Path(__file__).parents[2] / "tutorials"
spec = importlib.util.spec_from_file_location("tutorials_build", FOLDER / "build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)
SOURCES = build.sources()
each = pytest.mark.parametrize("source", SOURCES, ids=[s.stem for s in SOURCES])

# What a test changes in the budget `ci`, at which an author's `build.py` asserts the same claims on three seeds. The
# seeds are such as also show what a claim says of the mean or of most seeds; intervals over seeds need two of them.
SMALLER = {source.stem: {"seeds": (1,)} for source in SOURCES} | {
    "02_policy_gradient": {"seeds": (2,)},
    "03_ppo_details": {"seeds": (1, 2)},
    "05_debugging": {"seeds": (1,), "pool": 8},
    "08_self_play": {"seeds": (1,), "steps": 128_000},
    "10_rlhf": {"seeds": (3,)}}
PRELUDE = """
import torch
from spinup.view import notebook
torch.set_num_threads(1)
sizes = notebook.sizes
notebook.sizes = lambda *args, **budgets: sizes(*args, **budgets) | {smaller}
"""


def test_there_are_ten():
    assert [source.stem[:2] for source in SOURCES] == [f"{i:02}" for i in range(1, 11)]


# Turned red by: curves that end with the colours; a look that comes again.
def test_curves_may_be_many():
    _, (axes,) = panels()
    curves(axes, {str(i): [{"steps": [1, 2], "return_mean_100": [0, i]}] for i in range(20)})
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.get_lines()}
    assert len(axes.get_lines()) == 40 and len(looks) == 20


# Turned red by: a claim that does not hold, a name that the library no longer has.
@each
def test_it_runs_and_its_claims_hold(source, start, monkeypatch):
    monkeypatch.setenv("SPINUP_BUDGET", "ci")
    done = start(script=source, prelude=PRELUDE.format(smaller=SMALLER[source.stem])).end(timeout=900)
    assert done.code == 0, done.err


NOTEBOOK = """# %% [markdown]
# # A title

# %%
from spinup.view.notebook import panels, show
figure, _ = panels()
show(figure, "an empty picture")
print("printed")

# %% tags=["hide-cell"]
assert {claim}
"""


# Turned red by: cells that are not run in a kernel of Jupyter; pictures without words; a claim that nobody asserts.
def test_the_build_runs_a_notebook_and_asserts_its_claims(tmp_path):
    source = tmp_path / "small.py"
    source.write_text(NOTEBOOK.format(claim="True"))
    markdown, code, folded = build.executed(source).cells
    printed, = (o for o in code.outputs if o.output_type == "stream")
    picture, = (o for o in code.outputs if o.output_type == "display_data")
    assert printed.text == "printed\n" and picture.metadata["image/png"]["alt"] == "an empty picture"
    assert code.execution_count == 1 and folded.execution_count == 2 and folded.metadata.tags == ["hide-cell"]
    source.write_text(NOTEBOOK.format(claim="False"))
    with pytest.raises(CellExecutionError, match="AssertionError"):
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
