"""A page of headings, paragraphs, tables and pictures, as Markdown and as one HTML file that needs no other file."""
import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from spinup.errors import UserError
from spinup.runs.files import write_whole

# Pictures are side by side where there is room for two, and below each other on a phone; wide tables scroll alone, and
# shadows show that they continue.
STYLE = """
:root { color-scheme: light dark; --page: light-dark(#fff, #161616); --line: light-dark(#ddd, #444); }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; color: light-dark(#222, #ddd); background: var(--page);
       font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
p, li { max-width: 46rem; } code { font-size: .85em; overflow-wrap: anywhere; }
.pictures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); }
figure { margin: 0; } img { width: 100%; height: auto; }
figcaption { font-size: .875rem; color: light-dark(#444, #bbb); }
.wide { overflow-x: auto; margin: 1rem 0; background:
  linear-gradient(to right, var(--page) 30%, transparent) left / 2rem 102% no-repeat local,
  linear-gradient(to left, var(--page) 30%, transparent) right / 2rem 102% no-repeat local,
  linear-gradient(to right, #8888, transparent) left / .6rem 100% no-repeat scroll,
  linear-gradient(to left, #8888, transparent) right / .6rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .875rem; }
th, td { padding: .3rem .7rem .3rem 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, .text { text-align: left; } th { vertical-align: bottom; }
td code { white-space: nowrap; overflow-wrap: normal; }
td.long { white-space: normal; min-width: 15rem; text-align: left; }
"""
CODE = re.compile(r"`([^`]+)`")


def pictures_of(path: Path) -> Path:
    """Return the folder with the pictures of a Markdown page, which is beside it."""
    return path.with_name(f"{path.stem}_pictures")


def check_pictures(path: Path) -> None:
    """UserError if the folder with the pictures of a page cannot be made."""
    folder = pictures_of(path)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {path} needs a folder {folder}, which is a file; give another name")


@dataclass
class Picture:
    """A PNG file with the text for people who cannot see it, which is its caption too."""

    name: str
    data: bytes
    caption: str


@dataclass
class Page:
    """The parts of a page in order: text (`` `code` `` in it), or lists of rows or pictures, under headings."""

    title: str
    parts: list[tuple[str, object]] = field(default_factory=list)

    def heading(self, text: str) -> None:
        """Add a heading."""
        self.parts.append(("heading", text))

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(("text", text))

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Add a table; the first row is its head, and all rows are equally long."""
        self.parts.append(("table", rows))

    def pictures(self, *pictures: Picture) -> None:
        """Add pictures that belong together."""
        self.parts.append(("pictures", pictures))

    def write(self, path: Path) -> list[Path]:
        """Write the HTML file, and the Markdown file with its pictures in a folder beside it. Return both paths."""
        folder = pictures_of(path)
        folder.mkdir(exist_ok=True)
        for _, pictures in (part for part in self.parts if part[0] == "pictures"):
            for picture in pictures:
                write_whole(folder / f"{picture.name}.png", picture.data)
        paths = [path.with_suffix(".html"), path.with_suffix(".md")]
        for file, text in zip(paths, (self.html(), self.markdown(folder.name)), strict=True):
            write_whole(file, text.encode())
        return paths

    def markdown(self, folder: str) -> str:
        """Return the page as Markdown; `folder` has the pictures."""
        lines = [f"# {self.title}"]
        for kind, part in self.parts:
            if kind == "heading":
                lines.append(f"## {part}")
            elif kind == "text":
                lines.append(part)
            elif kind == "table":
                head, *rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in part]
                under = "|".join("---" if left else "---:" for left in wordy(part))
                lines.append("\n".join([head, f"|{under}|", *rows]))
            else:
                lines += [f"![{plain(picture.caption)}]({quote(folder)}/{picture.name}.png)" for picture in part]
        return "\n\n".join(lines) + "\n"

    def html(self) -> str:
        """Return the page as HTML, with the pictures in it."""
        lines = [f"<h1>{marked(self.title)}</h1>"]
        for kind, part in self.parts:
            if kind == "heading":
                lines.append(f"<h2>{marked(part)}</h2>")
            elif kind == "text":
                lines.append(f"<p>{marked(part)}</p>")
            elif kind == "table":
                lines.append(f'<div class="wide"><table>{table_rows(part)}</table></div>')
            else:
                lines += ['<div class="pictures">', *map(figure, part), "</div>"]
        return ('<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
                '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
                f"<title>{html.escape(self.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
                + "\n".join(lines) + "\n</body>\n</html>\n")


def plain(text: str) -> str:
    """Return a text for the brackets of a Markdown link."""
    return re.sub(r"([\[\]])", r"\\\1", text)


def marked(text: str) -> str:
    """Return a text as HTML; `` `code` `` becomes code."""
    return CODE.sub(r"<code>\1</code>", html.escape(text, quote=False))


def table_rows(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows of a table as HTML. A column of words or code is left-aligned, one of numbers right-aligned.
    Long text is wrapped."""
    words, tags = wordy(rows), ["th", *["td"] * (len(rows) - 1)]
    return "".join("<tr>" + "".join(f"<{tag}{kind(cell, text)}>{marked(cell)}</{tag}>"
                                    for cell, text in zip(row, words, strict=True)) + "</tr>"
                   for tag, row in zip(tags, rows, strict=True))


def wordy(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each column of a table whether it has words or code; True for the first column."""
    return [i == 0 or any(re.search(r"^[A-Za-z`(]|[a-z]{4}", row[i]) for row in rows[1:]) for i in range(len(rows[0]))]


def kind(cell: str, wordy: bool) -> str:
    """Return the class of a table's cell as an HTML attribute; `wordy`: its column has words or code."""
    if len(cell) > 40 and "`" not in cell:
        return " class=long"
    return " class=text" if wordy else ""


def figure(picture: Picture) -> str:
    """Return a picture as HTML that contains its file."""
    data = base64.b64encode(picture.data).decode()
    return (f'<figure><img alt="{html.escape(picture.caption)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{marked(picture.caption)}</figcaption></figure>")
