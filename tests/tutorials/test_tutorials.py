"""Tutorials: they run and assert their claims, on as few seeds as possible, and the stored notebooks are current."""
import importlib.util
import json
from pathlib import Path

import pytest

from spinup.view.notebook import curves, panels

FOLDER = Path(__file__).parents[2] / "tutorials"
SOURCES = sorted(FOLDER.glob("[0-9]*.py"))
each = pytest.mark.parametrize("source", SOURCES, ids=[s.stem for s in SOURCES])

# PRELUDE runs before a tutorial. The tutorial then trains on one seed, for a `share` of its steps (20: a twentieth),
# saves less often, draws no curves of runs, and makes small figures. Only `python tutorials/build.py`, which trains in
# full, asserts claims about the results of training, in cells with the tag "trained". Some tutorials need other `seeds`
# and `settings`: an interval needs two seeds, a curve needs ended episodes, and fewer epochs and evaluations save time.
# `fewer` replaces a line of a tutorial. The first tutorial needs the curve of its run.
OTHERS = {"01_quickstart": {"seeds": (1, 2), "draws": True}, "04_dqn_overestimation": {"seeds": (1, 2)},
          "03_ppo_details": {"seeds": (1, 2), "settings": {"num_envs": 2, "epochs": 1, "total_steps": 1152}},
          "05_debugging": {"share": 10},
          "07_rl2": {"fewer": ("TRIALS = 20_000 ", "TRIALS = 5_000 ")},
          "09_rlvr": {"settings": {"held_out": 32}}, "10_rlhf": {"settings": {"held_out": 32}},
          "11_real_model": {"fewer": ('Path("11_real_model.json")', f"Path({str(FOLDER / '11_real_model.json')!r})")}}
PRELUDE = """
import dataclasses
import os
import torch
from spinup.runs import public, training
from spinup.view import notebook
torch.set_num_threads(1)
os.fsync, training.CHECKPOINTS = lambda descriptor: None, 4
sizes, configure, render = notebook.sizes, public.configure, notebook.render

def shorter(*given):
    cfg, *rest = configure(*given)
    return dataclasses.replace(cfg, **dict(total_steps=max(cfg.total_steps // {share}, 1)) | {settings}), *rest

def small(figure, kind):
    figure.set_layout_engine("none")                                      # a layout draws everything twice
    figure.set_dpi(30)
    return render(figure, kind)

notebook.render = small
notebook.sizes, public.configure = lambda *args, **budgets: sizes(*args, **budgets) | {{"seeds": {seeds}}}, shorter
"""


@pytest.fixture(scope="module")
def build():
    """The module tutorials/build.py, loaded only when a test runs, because the libraries of Jupyter import slowly."""
    spec = importlib.util.spec_from_file_location("tutorials_build", FOLDER / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_eleven_tutorials(build):
    assert build.sources() == SOURCES
    assert [source.stem[:2] for source in SOURCES] == [f"{i:02}" for i in range(1, 12)]


# Catches: curves that end with the list of colours; two curves with the same colour and line style.
def test_twenty_curves_have_distinct_lines():
    _, (axes,) = panels()
    curves(axes, {str(i): [{"steps": [1, 2], "return_mean_100": [0, i]}] for i in range(20)})
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.get_lines()}
    assert len(axes.get_lines()) == 40 and len(looks) == 20


# Catches: a mean that includes a run without a number.
def test_run_without_an_ended_episode_has_no_curve():
    _, (axes,) = panels()
    ended, running = ({"steps": [1, 2], "return_mean_100": [value, value]} for value in (3.0, float("nan")))
    curves(axes, {"ended": [ended, running], "running": [running]})
    assert [list(line.get_ydata()) for line in axes.get_lines()][0] == [3, 3] and len(axes.get_lines()) == 2


# Catches: a name that the library no longer has; a claim that is false without training.
@pytest.mark.long("02_policy_gradient", "03_ppo_details", "04_dqn_overestimation", "05_debugging", "06_exploration",
                  "09_rlvr", "10_rlhf", "08_self_play", "07_rl2", "01_quickstart")
@each
def test_tutorial_runs_and_its_claims_hold(source, build, start, monkeypatch, tmp_path):
    monkeypatch.setenv("SPINUP_BUDGET", "ci")
    code = [c for c in build.notebook(source).cells if c.cell_type == "code"]
    script = tmp_path / source.name
    text = "\n".join(c.source for c in code if "trained" not in c.metadata.get("tags", ()))
    usual = {"seeds": (1,), "settings": {}, "share": 20, "draws": False, "fewer": ("", "")}
    chosen = usual | OTHERS.get(source.stem, {})
    before, after = chosen.pop("fewer")
    draws = chosen.pop("draws")
    assert before in text
    script.write_text(text.replace(before, after))
    prelude = PRELUDE.format(**chosen)
    done = start(script=script, prelude=prelude, draws=draws).end(timeout=300)
    assert done.code == 0, done.err


FALSE = """# %% tags=["hide-cell"]
assert False
"""
NOTEBOOK = """# %% [markdown]
# # A title

# %%
from spinup.view.notebook import panels, show
figure, _ = panels()
show(figure, "an empty picture")
print("printed")

# %% tags=["hide-cell"]
assert True
"""


# Catches: cells that do not run in a Jupyter kernel; figures without alternative text; a claim that is not asserted.
@pytest.mark.long
def test_build_runs_a_notebook_and_asserts_its_claims(build, tmp_path):
    from nbclient.exceptions import CellExecutionError
    source = tmp_path / "small.py"
    source.write_text(NOTEBOOK)
    markdown, code, folded = build.executed(source).cells
    printed, = (o for o in code.outputs if o.output_type == "stream")
    picture, = (o for o in code.outputs if o.output_type == "display_data")
    assert printed.text == "printed\n" and picture.metadata["image/png"]["alt"] == "an empty picture"
    assert code.execution_count == 1 and folded.execution_count == 2 and folded.metadata.tags == ["hide-cell"]
    source.write_text(FALSE)
    with pytest.raises(CellExecutionError, match="AssertionError"):
        build.executed(source)


# Catches: a sentence that was changed only in the source; a notebook that was not run; a figure without alternative
# text.
@each
def test_stored_notebook_is_current(source, build):
    kept, made = json.loads(source.with_suffix(".ipynb").read_text()), build.notebook(source)
    same = [c["source"] for c in kept["cells"]] == [c.source for c in made.cells]
    assert same, f"python tutorials/build.py {source.stem}"
    code = [c for c in kept["cells"] if c["cell_type"] == "code"]
    assert all(c["execution_count"] for c in code)
    shown = [o for c in code for o in c["outputs"]]
    assert not [o for o in shown if o["output_type"] == "error" or o.get("name") == "stderr"]
    pictures = [o for o in shown if "image/png" in o.get("data", ())]
    assert pictures and all(len(o["metadata"]["image/png"]["alt"]) > 40 for o in pictures)


# Catches: a line of prose that begins with a per cent sign, which the documentation would omit as a comment.
@each
def test_all_prose_of_a_tutorial_is_shown(source, build):
    prose = [line for c in build.notebook(source).cells if c.cell_type == "markdown" for line in c.source.splitlines()]
    assert not [line for line in prose if line.startswith(("%", "    "))]


@each
def test_tutorial_has_one_budget_and_asserts_in_folded_cells(source, build):
    cells = build.notebook(source).cells
    code = [c for c in cells if c.cell_type == "code"]
    assert code[0].source.startswith('BUDGET = "ci"') and all(f"{b}={{" in code[0].source for b in ("ci", "cpu", "gpu"))
    folded = [c for c in code if "hide-cell" in c.metadata.get("tags", ())]
    assert len(folded) >= 3 and all("assert" in c.source for c in folded)
    assert not [c for c in code if c not in folded and "assert " in c.source]
