"""Words of the documentation, docstrings, messages and exercises: standard terms, and no banned words."""
import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")),
         *sorted((ROOT / "tutorials").glob("*.py"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]
SOURCES = [path for folder in ("spinup", "llm", "exercises") for path in sorted((ROOT / folder).rglob("*.py"))]
# Banned phrase -> the term in its place.
BANNED = {
    r"\bstep size of (the optimiser|Adam)": "learning rate", r"\bprice of (a nat|divergence|certainty)": "KL penalty",
    r"\bshak(e|es|ing)\b": "perturbation", r"\b(open|closed) moves\b": "legal moves", r"\btwin in\b": "counterpart",
    r"\b(without|no) contrast\b": "zero variance", r"\b(is|are|was|were) told\b": "reported",
    r"\bkin\b|\bkindred environment": "variants, similar", r"\bof one's own\b": "your own",
    r"\bto be (maximised|minimised) is\b": "we maximise", r"\bthe clock (stops|ran|runs)\b": "time limit",
    r"\bgo(es)? on\b|\bgoing on (at|with)\b": "resume, continue", r"\bbonus for surprise\b": "intrinsic reward",
    r"\bso (accurate|good) is\b": "the usual order of words", r"\b(the|a) likeliest\b": "most likely",
    r"\bhow good .{3,30} is, .* tells?\b": "evaluate", r"\bit serves (Discrete|Box)": "supports",
    r"\b(begins?|trains?) anew\b": "starts again",
    r"\bas (it|they) stands?\b": "unchanged, current", r"\bunder way\b": "running", r"\bin vain\b": "without success",
    r"\bthe other way round\b": "inverted", r"\bdo(es)? not suffice\b": "is not enough",
    r"\bnats from (the start|where it began)\b": "KL divergence from the initial policy"}
TERMS = ["learning rate", "replay buffer", "standard deviation", "KL penalty", "loss function", "reference policy",
         "advantage", "rollout", "checkpoint"]


def prose(path: Path) -> str:
    """The text of a page without its code blocks; of a notebook, its text cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return "\n".join(line for line in text.splitlines() if line.startswith("# "))
    return re.sub(r"^    .*$", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)


def test_pages_use_the_terms_of_the_field():
    texts = {page: prose(page) for page in PAGES}
    assert not [(page.relative_to(ROOT).as_posix(), m[0], term) for page, text in texts.items()
                for words, term in BANNED.items() for m in re.finditer(words, text, re.IGNORECASE)]


def test_docstrings_messages_and_exercises_use_the_terms_of_the_field():
    for source in SOURCES:
        text = source.read_text(encoding="utf-8")
        texts = [node.value for node in ast.walk(ast.parse(text))
                 if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        texts += re.findall(r"^ *# (.*)$", text, re.MULTILINE)
        found = [(m[0], term) for words, term in BANNED.items()
                 for m in re.finditer(words, "\n\n".join(texts), re.IGNORECASE)]
        assert not found, source


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_used_and_defined(term):
    glossary = (ROOT / "docs/research/glossary.md").read_text(encoding="utf-8")
    assert re.search(rf"^{term}\b", glossary, re.IGNORECASE | re.MULTILINE), "the glossary has no entry"
    assert any(term.lower() in prose(page).lower() for page in PAGES if page.name != "glossary.md")


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130 and len(text.split()) <= 1000
