"""The documentation: it is built without a warning, its links lead somewhere, its maps to the code are true."""
import importlib
import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "algorithms").glob("*.md"))
SECTIONS = ["Background", "Quick facts", "Key equations", "From equation to code", "Pseudocode", "API", "Metrics",
            "Failure modes, and what you would see", "Results", "Its twin in `llm`", "Papers, and why these"]
each_page = pytest.mark.parametrize("page", PAGES, ids=[p.stem for p in PAGES])


class Links(HTMLParser):
    """Where a page leads, what can be led to in it, and its pictures without words."""

    def __init__(self, file):
        super().__init__()
        self.leads, self.anchors, self.silent = [], {""}, []
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[k] for k in ("id", "name") if found.get(k)}
        self.leads += [found[k] for k in ("href", "src") if found.get(k)]
        if tag == "img" and not found.get("alt"):
            self.silent.append(found.get("src"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(DOCS), str(out)],
                          capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return {file: Links(file) for file in out.rglob("*.html")}


# Turned red by: a warning, a link to a page or a heading that is not there, a picture without words, a script or a font
# that is fetched.
def test_it_is_built_and_every_link_leads_somewhere(site):
    for file, page in site.items():
        assert not page.silent, file
        for lead in page.leads:
            if re.match(r"(https?|mailto|data|javascript):", lead):
                continue
            path, anchor = urldefrag(lead)
            target = (file.parent / unquote(path.partition("?")[0])).resolve() if path else file.resolve()
            assert target.exists(), f"{file.name} leads to {lead}"
            if anchor and target.suffix == ".html":
                there = next(p for f, p in site.items() if f.resolve() == target)
                assert unquote(anchor) in there.anchors, f"{file.name} leads to {lead}"


def test_nothing_is_fetched(site):
    for file in site:
        text = file.read_text()
        assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"https?:", text), file


@each_page
def test_every_algorithm_page_has_the_same_sections(page):
    found = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    assert [s for s in found if s in SECTIONS] == SECTIONS


# Turned red by: a line of code that has changed and is still quoted.
@each_page
def test_the_map_from_equation_to_code_is_true(page):
    table = page.read_text().split("## From equation to code")[1].split("\n## ")[0]
    rows = re.findall(r"^\|.+\| `([\w.]+)` \| `(.+)` \|$", table, re.MULTILINE)
    assert len(rows) >= 3
    for name, line in rows:
        module, _, function = name.rpartition(".")
        source = inspect.getsource(getattr(importlib.import_module(module), function))
        assert line in re.sub(r"\n\s+", " ", source), f"{name} holds no {line}"
