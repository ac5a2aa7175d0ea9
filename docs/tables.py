"""Writes the tables that README.md and the pages repeat: python docs/tables.py.

A page has <!-- results: NAME --> and <!-- /results --> around a table in benchmarks/, NAME being that of its
marks there; <!-- results: NAME, CELL --> keeps the rows that have the cell. <!-- pairs --> and <!-- /pairs --> enclose
the table of what each method of `llm` imports from classic algorithms. <!-- gpu --> and <!-- /gpu --> enclose the
table of the raw files in benchmarks/gpu, or a sentence without them. <!-- zoo --> and <!-- /zoo --> enclose the
table of the raw files benchmarks/zoo_*.json, <!-- shelf --> and <!-- /shelf --> that of the trained policies that come
with the package, and <!-- suites --> and <!-- /suites --> that of the suites. A test fails where a page differs.
"""
import ast
import json
import re
import sys
from pathlib import Path

import numpy as np

from spinup.bench.suite import suites
from spinup.registry import algorithms
from spinup.runs.display import number
from spinup.view.shelf import listed
from spinup.view.statistics import difference_interval, interval

DOCS = Path(__file__).parent
PLACE = re.compile(r"(<!-- results: ([^,\n]+?)(?:, (\S+))? -->\n).*?(<!-- /results -->)", re.DOTALL)
LISTED = re.compile(r"(<!-- (pairs|gpu|suites|shelf|zoo) -->\n).*?(<!-- /\2 -->)", re.DOTALL)


def pages() -> list[Path]:
    """Where there may be such tables."""
    return [DOCS.parent / "README.md", *sorted(DOCS.glob("*/*.md"))]


def all_benchmarks() -> str:
    """The text of all pages of the benchmarks."""
    return "".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "benchmarks").glob("*.md")))


def fill(page: str, benchmarks: str) -> str:
    """The text of a page with its tables as in the text `benchmarks`. ValueError if that text has no such rows."""
    def filled(place: re.Match[str]) -> str:
        begin, name, cell, end = place.groups()
        marked = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", benchmarks, re.DOTALL)
        text = marked[1] if marked else ""
        if cell:
            text = rows_with(cell, text)
        if "|" not in text:
            raise ValueError(f"benchmarks/ has no table for {begin.strip()}")
        return f"{begin}\n{text.strip()}\n\n{end}"
    lists = {"pairs": pairs, "gpu": measured_on_gpus, "suites": all_suites, "shelf": on_the_shelf,
             "zoo": beside_the_zoo}
    page = LISTED.sub(lambda place: f"{place[1]}\n{lists[place[2]]()}\n\n{place[3]}", page)
    return PLACE.sub(filled, page)


def measured_on_gpus(folder: Path = DOCS / "benchmarks" / "gpu") -> str:
    """The table of the raw files of `.ci/gpu` in a folder. Files of a CPU and of quick checks do not count."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    found = [part for part in found if part["kind"] == "cuda" and not part["quick"]]
    if not found:
        return "**No GPU has run these parts yet.** So this documentation has no figure that was measured on a GPU."
    rows = ["| part | measured | value | goal | | GPU | commit |", "|---|---|---|---|---|---|---|"]
    for part in found:
        for line in part["lines"]:
            value = "-" if line["value"] is None else number(line["value"])
            least, met = ("", "") if line["goal"] is None else (
                number(line["goal"]), "met" if line["met"] else "missed")
            rows.append(f"| {part['part']} | {line['what']} | {value} | {least} | {met} | {part['device']} | "
                        f"`{part['commit']}` |")
    return "\n".join(rows)


def beside_the_zoo() -> str:
    """The table of returns beside stable-baselines3 with the settings of RL Baselines3 Zoo."""
    rows = ["| algorithm | environment | steps | seeds | E100 (95 % interval) | R100 (95 % interval) | "
            "seeds of stable-baselines3 | its E100 | its R100 | difference of E100 | goal |", "|" + "---|" * 11]
    for path in sorted((DOCS / "benchmarks").glob("zoo_*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        ours, theirs = [[cell["E100"]["seeds"], cell["R100"]["seeds"]] for cell in (found, found["peer"])]
        difference = [np.mean(ours[0]) - np.mean(theirs[0])]
        rows.append("| " + " | ".join([
            found["command"].split()[3], found["settings"]["env"], f"{found['steps']:,}", f"{len(ours[0])}",
            with_interval(ours[0], interval(ours[0]), "**"), with_interval(ours[1], interval(ours[1])),
            f"{len(theirs[0])}", *(with_interval(values, interval(values)) for values in theirs),
            with_interval(difference, difference_interval(ours[0], theirs[0])),
            "met" if found["met"] else "missed"]) + " |")
    return "\n".join(rows)


def with_interval(values: list[float], between: tuple[float, float] | None, mark: str = "") -> str:
    """The mean of some values and an interval, if there is one. Numbers below 1,000 have one decimal, others none."""
    mean, *ends = (f"{x:,.0f}" if abs(x) >= 1000 else f"{x:,.1f}".removesuffix(".0")
                   for x in (np.mean(values), *(between or ())))
    return f"{mark}{mean}{mark}" + (f" ({' to '.join(ends)})" if ends else "")


def all_suites() -> str:
    """The table of the suites."""
    rows = ["| suite | environments or tasks, with the steps of a run |", "|---|---|"]
    for name, envs in suites().items():
        steps = [f"{env} ({about['steps']:,})" for env, about in envs.items()]
        rows.append(f"| `{name}` | {', '.join(steps)} |")
    return "\n".join(rows)


def on_the_shelf() -> str:
    """The table of the trained policies, and their pictures."""
    found = list(listed())
    rows = ["| policy | E100 (95 % interval over episodes) | steps | command | commit |", "|---|---|---|---|---|"]
    for each in found:
        low, high = map(number, each["interval"])
        rows.append(f"| `{each['policy']}` | **{number(each['return'])}** ({low} to {high}) | {each['steps']:,} | "
                    f"`{each['command']}` | `{each['git']}` |")
    pictures = [f"`{each['policy']}`\\\n![{each['policy']}: the beginning of an episode on {each['env']}]"
                f"(../images/{each['policy']}.gif)\n" for each in found]
    return "\n".join([*rows, "", *pictures])


def pairs() -> str:
    """The table of methods: what each file of `llm/algos` imports from algorithms, and its page."""
    files: dict[Path, list[str]] = {}
    for algorithm in algorithms("llm").values():
        files.setdefault(algorithm.path, []).append(f"`{algorithm.method}`")
    rows = ["| method | what it imports from classic algorithms | page |", "|---|---|---|"]
    for path, methods in files.items():
        page = DOCS / "llm" / f"{path.stem}.md"
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        rows.append(f"| {', '.join(methods)} | {imported(path)} | [{title}]({page.name}) |")
    return "\n".join(rows)


def imported(path: Path) -> str:
    """The functions that a method imports from classic algorithms; without any, those from other methods."""
    found: dict[str, list[str]] = {"spinup": [], "llm": []}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[2].startswith("algos."):
            family, _, name = node.module.split(".")
            folder = "../algorithms/" if family == "spinup" else ""
            names = ", ".join(f"`{alias.name}`" for alias in node.names)
            found[family].append(f"{names} of [`{name}`]({folder}{name}.md)")
    others = f"none; {'; '.join(found['llm'])} of `llm`" if found["llm"] else "none"
    return "; ".join(found["spinup"]) or others


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
    benchmarks = all_benchmarks()
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (new := fill(text, benchmarks)) != text:
            path.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")


if __name__ == "__main__":
    main()
