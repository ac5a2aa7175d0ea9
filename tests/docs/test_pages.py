"""The documentation builds without a warning, its links have targets, and its quotations of code are current."""
import contextlib
import functools
import gc
import inspect
import io
import json
import os
import pydoc
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from sphinx.cmd.build import build_main

DOCS = Path(__file__).parents[2] / "docs"
OTHERS = {DOCS / "llm" / name for name in ("overview.md", "tasks.md", "proofs.md", "real.md", "recipes.md", "costs.md")}
PAGES = sorted({*DOCS.glob("algorithms/*.md"), *DOCS.glob("llm/*.md")} - OTHERS)
SECTIONS = ["Background", "Quick facts", "Key equations", "From equation to code", "Pseudocode", "API", "Metrics",
            "Failure modes, and what you would see", "Results", "Its counterpart in `{}`", "Papers, and why these"]
each_page = pytest.mark.parametrize("page", PAGES, ids=[f"{p.parent.name}-{p.stem}" for p in PAGES])


class Links(HTMLParser):
    """The links of a page, its anchors, and its pictures without alternative text."""

    def __init__(self, file):
        super().__init__()
        self.leads, self.anchors, self.silent = [], {""}, []
        self.text = file.read_text()
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[k] for k in ("id", "name") if found.get(k)}
        self.leads += [found[k] for k in ("href", "src") if found.get(k)]
        if tag == "img" and not found.get("alt"):
            self.silent.append(found.get("src"))


def build(out):
    """Build the site in this process, which has imported torch and the library. Return its pages by file."""
    warnings = io.StringIO()
    gc.disable()                                                          # it takes a fifth of the time, frees little
    try:
        with contextlib.redirect_stderr(warnings):
            code = build_main(["-q", "-W", "--keep-going", str(DOCS), str(out)])
    finally:
        gc.enable()
    assert not code, warnings.getvalue()
    return {file.resolve(): Links(file) for file in out.rglob("*.html")}


# Catches: a warning; a link to a page or a heading that does not exist; a picture without alternative text; a script or
# a font that is fetched; a source file that is downloaded and not shown. It is one test, so that the site is built
# once.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_site_builds_without_a_warning_and_needs_no_network(tmp_path):
    site = build(tmp_path)
    for file, page in site.items():
        assert not page.silent, file
        assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"https?:", page.text), file
        for lead in page.leads:
            assert leads_somewhere(lead, file, site), f"{file.name} has the broken link {lead}"
    assert not any(lead.endswith(".py") for page in site.values() for lead in page.leads)
    ppo = (tmp_path / "source" / "spinup" / "algos" / "ppo.py.html").read_text()
    assert "def</span>" in ppo and "clipped_surrogate" in ppo


def leads_somewhere(lead, file, site):
    """Whether a link leads to another site, or to an existing file and, in a page, to an existing heading."""
    if re.match(r"(https?|mailto|data|javascript):", lead):
        return True
    path, anchor = urldefrag(lead)
    target = place(file.parent, path) if path else file
    if target in site:
        return not anchor or unquote(anchor) in site[target].anchors
    return target.exists()


@functools.cache
def place(folder, path):
    """The target of a path in a folder. It is cached, because most pages of a folder have the same links."""
    return (folder / unquote(path.partition("?")[0])).resolve()


# Catches: a link to a file that was moved; an address that this project does not have.
def test_links_in_texts_lead_to_existing_files():
    root = DOCS.parent
    texts = [root / "README.md", root / "CONTRIBUTING.md", root / "CITATION.cff", *root.glob("exercises/*.md"),
             *root.glob("tutorials/*.py"), *(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)]
    for file in texts:
        text = file.read_text()
        assert "github.com/spinup" not in text, file
        if file.suffix != ".md":
            continue
        for lead in re.findall(r"\]\(([^)\s]+)\)|^\[\w+\]: (\S+)$", text, re.MULTILINE):
            path = urldefrag("".join(lead))[0]
            if path and not re.match(r"(https?|mailto):", path):
                target = os.path.normpath(file.parent / path)
                notebook = root / os.path.relpath(target, DOCS)           # the site's copies of tutorials/*.ipynb
                assert os.path.exists(target) or notebook.suffix == ".ipynb" and notebook.exists(), f"{file}: {path}"


@each_page
def test_every_algorithm_page_has_the_same_sections(page):
    found = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    wanted = [s.format("spinup" if page.parent.name == "llm" else "llm") for s in SECTIONS]
    assert [s for s in found if s in wanted] == wanted


QUOTED = re.compile(r"^\|.+\| `((?:spinup|llm)\.[\w.]+)` \| `(.+)` \|$", re.MULTILINE)      # function and line of code


@each_page
def test_every_algorithm_page_maps_equations_to_code(page):
    assert len(QUOTED.findall(page.read_text().split("## From equation to code")[1].split("\n## ")[0])) >= 3


# Catches: a quotation of a line of code that has changed.
@pytest.mark.parametrize("page", [p for p in sorted(DOCS.rglob("*.md")) if QUOTED.search(p.read_text())],
                         ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_quoted_code_is_current(page):
    for name, line in QUOTED.findall(page.read_text()):
        source = inspect.getsource(pydoc.locate(name))
        assert line.replace(r"\|", "|") in re.sub(r"\n\s+", " ", source), f"{name} does not contain {line}"


PROGRAM = re.compile(r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
PROGRAMS = [p for p in sorted(DOCS.rglob("*.md")) if any(said for _, said in PROGRAM.findall(p.read_text()))]
RUN = """
import contextlib, io, json, sys
space, found = {"__name__": "__main__"}, []
for code, _ in json.load(open(sys.argv[1])):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "page", "exec"), space)
    found.append(said.getvalue())
json.dump(found, open(sys.argv[1], "w"))
"""


# Catches: a number on a page that the code above it does not print.
@pytest.mark.long("craft")
@pytest.mark.parametrize("page", PROGRAMS, ids=[p.stem for p in PROGRAMS])
def test_code_on_a_page_prints_what_the_page_shows(page, start, tmp_path):
    blocks, file, script = PROGRAM.findall(page.read_text()), tmp_path / "page.json", tmp_path / "page.py"
    file.write_text(json.dumps(blocks))
    script.write_text(RUN)
    prelude = f"import os, torch; os.chdir({str(DOCS.parent)!r}); torch.set_num_threads(1)"
    done = start(file, script=script, prelude=prelude).end()
    assert done.code == 0, done.err
    for (code, shown), said in zip(blocks, json.loads(file.read_text()), strict=True):
        assert not shown or said.rstrip() == shown.rstrip(), code


# Catches: a program for a file that needs an import of another program.
def test_program_for_a_file_runs_alone(capsys):
    for page in PROGRAMS:
        for code, said in PROGRAM.findall(page.read_text()):
            if 'if __name__ == "__main__":' in code:
                exec(compile(code, page.name, "exec"), {"__name__": "__main__"})
                assert capsys.readouterr().out == said


# Catches: a run in a `play` or `arena` command that no earlier command has trained.
@pytest.mark.parametrize("page", ["README.md", "docs/using/games.md"])
def test_runs_on_pages_about_games_are_trained_before_their_use(page):
    trained, played = set(), 0
    for line in (DOCS.parent / page).read_text().splitlines():
        if line.startswith("    spinup self_play"):
            trained.add("self_play_" + re.search(r"--env (\S+)", line)[1].replace("/", "-"))
        if line.startswith(("    spinup play runs/", "    spinup arena runs/")):
            played += 1
            assert re.search(r"runs/(\S+)_1", line)[1] in trained, line
    assert played
