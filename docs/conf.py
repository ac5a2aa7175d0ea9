"""Documentation: sphinx-build -W docs docs/_build, or the line of CONTRIBUTING.md. Nothing of it needs the network."""
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

from spinup.registry import algorithms

ROOT = Path(__file__).parent.parent
project, author, copyright = "Spinup", "the Spinup developers", "the Spinup developers"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme, html_title = "furo", "Spinup"
html_static_path, html_css_files = ["_static"], ["page.css"]
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"                                                 # tutorials are executed by a test, not here
autodoc_typehints, autodoc_member_order = "signature", "bysource"
default_role = "code"                                                    # in docstrings, a name in backticks
# Places before and after "log" that need a thin space, as in TeX.
NO_SPACE = re.compile(r"(?:(?<=<mo>&#x02207;</mo>)|(?<=</msub>))(?=<mi>log</mi>)|"
                      r"(?<!<msub><mi>log</mi>)(?<=<mi>log</mi>)(?=<m(?:i|sub|sup|over|frac)\b)")


def as_mathml(translator: Any, node: nodes.Element, display: str) -> None:
    """Formulas as MathML, which browsers draw without a script."""
    made = NO_SPACE.sub('<mspace width="0.17em"/>', convert(node.astext(), display=display))
    if display == "block":
        number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
        made = f'<div class="math" tabindex="0">{number}{made}</div>\n'
    translator.body.append(made)
    raise nodes.SkipNode


def bring_tutorials(app: Sphinx) -> None:
    """Copy the executed notebooks of tutorials/ into this folder; a picture's words go where MyST-NB looks for them."""
    there = Path(__file__).parent / "tutorials"
    there.mkdir(exist_ok=True)
    for path in ROOT.glob("tutorials/*.ipynb"):
        found = json.loads(path.read_text(encoding="utf-8"))
        for cell in found["cells"]:
            for output in cell.get("outputs", ()):
                if words := output.get("metadata", {}).get("image/png", {}).get("alt"):
                    cell["metadata"]["mystnb"] = {"image": {"alt": words}}
        text = json.dumps(found).replace("](../docs/", "](../")
        if not (copy := there / path.name).exists() or copy.read_text(encoding="utf-8") != text:
            copy.write_text(text, encoding="utf-8")


def fill_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Put what the registry knows where a page has `{{ algorithms }}`, `{{ methods }}` or `{{ serves }}` on a line."""
    rows = [f"| `{name}` | {', '.join(a.about['actions'])} | {', '.join(a.about['observations'])} |"
            for name, a in algorithms().items() if not a.variant]
    lists = {"algorithms": pages_of("", "algorithms"), "methods": pages_of("llm", "llm"),
             "serves": ["| algorithm | actions | observations |", "|---|---|---|", *rows]}
    for name, lines in lists.items():
        source[0] = re.sub(rf"^{{{{ {name} }}}}$", "\n".join(lines), source[0], flags=re.MULTILINE)


def pages_of(family: str, folder: str) -> list[str]:
    """The pages of a family's algorithms, in the order of the registry; each in the folder of its package."""
    return [f"{'llm' if a.module.startswith('llm.') else folder}/{name}"
            for name, a in algorithms(family).items() if not a.variant]


def lead_to_sources(app: Sphinx, page: nodes.document) -> None:
    """Point a relative link to a Python file of the library at its page on the site, where a browser shows it.

    Without this it would be a download. The files that are linked are kept in `app.env`, with the other pages' state.
    """
    app.env.linked_sources = linked = getattr(app.env, "linked_sources", set())
    for node in list(page.findall(download_reference)):
        path = (Path(app.env.doc2path(app.env.docname)).parent / node["reftarget"]).resolve()
        if path.suffix == ".py" and path.is_relative_to(ROOT):
            name = path.relative_to(ROOT).as_posix()
            linked.add(name)
            address = app.builder.get_relative_uri(app.env.docname, f"source/{name}")
            node.replace_self(nodes.reference("", "", *node.children, refuri=address, internal=True))


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Give a page for each Python file that a page leads to."""
    for name in sorted(getattr(app.env, "linked_sources", ())):
        code = app.builder.highlighter.highlight_block((ROOT / name).read_text(encoding="utf-8"), "python")
        context = {"title": name, "body": f"<h1>{name}</h1>{code}"}
        context["toctree"] = lambda **options: ""                         # the tree of pages is not shown there
        yield f"source/{name}", context, "page.html"


def setup(app: Sphinx) -> None:
    SearchEnglish.stem = functools.cache(SearchEnglish.stem)              # once for each word, not for each page
    app.connect("config-inited", lambda app, config: bring_tutorials(app))
    app.connect("source-read", fill_in)
    app.connect("doctree-read", lead_to_sources, priority=100)            # before Sphinx collects what is downloaded
    app.connect("html-collect-pages", source_pages)
    inline, block = (functools.partial(as_mathml, display=display) for display in ("inline", "block"))
    app.add_html_math_renderer("mathml", (inline, None), (block, None))


html_math_renderer = "mathml"
