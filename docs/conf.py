"""Documentation: sphinx-build -W docs docs/_build, or the line of CONTRIBUTING.md. Nothing of it needs the network."""
import json
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

project, author, copyright = "Spinup", "the Spinup developers", "the Spinup developers"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "benchmarks"]
html_theme, html_title = "furo", "Spinup"
html_static_path, html_css_files = ["_static"], ["page.css"]
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"                                                 # tutorials are executed by a test, not here
autodoc_typehints, autodoc_member_order = "signature", "bysource"
default_role = "code"                                                    # in docstrings, a name in backticks


def as_mathml(translator: Any, node: nodes.Element, display: str) -> None:
    """Formulas as MathML, which browsers draw by themselves: no script, no fonts to fetch."""
    made = convert(node.astext(), display=display)
    if display == "block":
        number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
        made = f'<div class="math" tabindex="0">{number}{made}</div>\n'
    translator.body.append(made)
    raise nodes.SkipNode


def inline(translator: Any, node: nodes.Element) -> None:
    as_mathml(translator, node, "inline")


def block(translator: Any, node: nodes.Element) -> None:
    as_mathml(translator, node, "block")


def bring_tutorials(app: Sphinx) -> None:
    """The executed notebooks of tutorials/, into this folder; a picture's words go where MyST-NB looks for them."""
    there = Path(__file__).parent / "tutorials"
    there.mkdir(exist_ok=True)
    for path in Path(__file__).parent.parent.glob("tutorials/*.ipynb"):
        found = json.loads(path.read_text(encoding="utf-8"))
        for cell in found["cells"]:
            for output in cell.get("outputs", ()):
                if words := output.get("metadata", {}).get("image/png", {}).get("alt"):
                    cell["metadata"]["mystnb"] = {"image": {"alt": words}}
        text = json.dumps(found)
        if not (copy := there / path.name).exists() or copy.read_text(encoding="utf-8") != text:
            copy.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("config-inited", lambda app, config: bring_tutorials(app))
    app.add_html_math_renderer("mathml", (inline, None), (block, None))


html_math_renderer = "mathml"
