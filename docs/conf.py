"""Documentation: sphinx-build -W docs docs/_build, or the line of CONTRIBUTING.md. Nothing of it needs the network."""
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parent))

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


class Results(SphinxDirective):
    """Rows of the table of returns, of one algorithm, as benchmarks/README.md has them."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        readme = Path(__file__).parent / "benchmarks" / "README.md"
        self.env.note_dependency(str(readme))
        table = readme.read_text(encoding="utf-8").split("<!-- returns -->")[1].split("<!-- /returns -->")[0]
        head, rule, *rows = table.strip().splitlines()
        kept = [head, rule, *(row for row in rows if row.startswith(f"| {self.arguments[0]} |"))]
        lines = ["|" + row.split("|", 2)[2] for row in kept]              # its name is on the page
        holder = nodes.container()
        self.state.nested_parse(StringList(lines, str(self.get_source_info()[0])), 0, holder)
        return holder.children


def setup(app: Sphinx) -> None:
    app.add_directive("results", Results)
    app.add_html_math_renderer("mathml", (inline, None), (block, None))


html_math_renderer = "mathml"
