"""Copies the tables of benchmarks/README.md into README.md and the pages that show them: python docs/tables.py.

A page has <!-- results: NAME --> and <!-- /results --> around such a table, NAME being that of its marks in
benchmarks/README.md; <!-- results: NAME, CELL --> keeps the rows that have the cell. A test fails where a page differs.
"""
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
PLACE = re.compile(r"(<!-- results: ([^,\n]+?)(?:, (\S+))? -->\n).*?(<!-- /results -->)", re.DOTALL)


def pages() -> list[Path]:
    """Where there may be such tables."""
    return [DOCS.parent / "README.md", *sorted(DOCS.glob("*/*.md"))]


def fill(page: str, benchmarks: str) -> str:
    """The text of a page with its tables as the benchmarks have them. ValueError where they have no such rows."""
    def filled(place: re.Match[str]) -> str:
        begin, name, cell, end = place.groups()
        marked = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", benchmarks, re.DOTALL)
        text = marked[1] if marked else ""
        if cell:
            text = rows_with(cell, text)
        if "|" not in text:
            raise ValueError(f"benchmarks/README.md has no table for {begin.strip()}")
        return f"{begin}\n{text.strip()}\n\n{end}"
    return PLACE.sub(filled, page)


def rows_with(cell: str, text: str) -> str:
    """The tables of a text, of their rows those with such a cell; without its column, which says the same in all."""
    found: list[str] = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, rule, *rows = [line.strip().strip("|").split("|") for line in table.splitlines()]
        at = next((i for row in rows for i, x in enumerate(row) if x.strip(" `") == cell), None)
        if at is not None:
            kept = [head, rule, *(row for row in rows if row[at].strip(" `") == cell)]
            found += ["", *("|" + "|".join(row[:at] + row[at + 1:]) + "|" for row in kept)]
    return "\n".join(found)


def main() -> None:
    benchmarks = (DOCS / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (new := fill(text, benchmarks)) != text:
            path.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")


if __name__ == "__main__":
    main()
