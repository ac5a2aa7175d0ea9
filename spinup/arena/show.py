"""Results of a tournament: a table, a figure of ratings over training, a web page."""
import base64
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spinup.arena.players import Player
from spinup.arena.tournament import Record
from spinup.runs.curve import COLOURS, STYLE, render
from spinup.runs.files import write_json, write_whole

if TYPE_CHECKING:
    from rich.console import Console

# Line styles of untrained players. The numbers are lengths of dashes and gaps, in line widths.
DASHES = ("--", ":", "-.", (0, (8, 3)), (0, (1, 4)), (0, (5, 2, 1, 2, 1, 2)))


def standings(record: Record, players: list[Player]) -> list[dict[str, Any]]:
    """Row for each player, the best first."""
    found = record.strengths()
    rows = []
    for i in np.argsort(-found.rating):
        games = int(record.games[i])
        faults = "; ".join(f"{fault} ({n} game{'s' * (n != 1)})" for fault, n in record.faults[i].items())
        if i < len(players):
            texts = ("out: " * players[i].out + faults, players[i].note())
        else:
            texts = (faults, "absent this time")
        notes = "; ".join(text for text in texts if text)
        rows.append({"name": record.names[i], "rating": float(found.rating[i]), "low": float(found.low[i]),
                     "high": float(found.high[i]), "elo": float(record.elo[i]), "games": games,
                     "score": float(record.scores[i].sum() / games) if games else None,
                     "forfeited": sum(record.faults[i].values()), "notes": notes})
    return rows


def print_table(rows: list[dict[str, Any]], console: "Console") -> None:
    """Print the ratings, one row per player."""
    from rich.table import Table
    from rich.text import Text
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("player", "rating", "95 %", "Elo", "games", "score", "forfeited"):
        table.add_column(column, justify="left" if column == "player" else "right", no_wrap=column != "player")
    for row in rows:
        table.add_row(Text(row["name"]), f"{row['rating']:.0f}", f"{row['low']:.0f} .. {row['high']:.0f}",
                      f"{row['elo']:.0f}", f"{row['games']}", share(row["score"]),
                      Text(f"{row['forfeited']}" if row["forfeited"] else "", "yellow"))
    console.print(table)
    for row in rows:
        if row["notes"]:
            console.print(Text.assemble((row["name"], "yellow"), f": {row['notes']}"), soft_wrap=True)


def draw(rows: list[dict[str, Any]], players: list[Player], title: str) -> bytes:
    """Plot ratings over training steps as PNG: one line per run, and a horizontal line for each untrained player."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    rated = {row["name"]: row for row in rows}
    families = dict.fromkeys(p.family for p in players if p.family)
    with rc_context(STYLE):
        figure = Figure((7.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for k, family in enumerate(families):
            of = sorted((p.steps, p.name) for p in players if p.family == family)
            steps, ratings = [s for s, _ in of], [rated[name]["rating"] for _, name in of]
            errors = [[r - rated[name]["low"], rated[name]["high"] - r]
                      for r, (_, name) in zip(ratings, of, strict=True)]
            axes.errorbar(steps, ratings, np.array(errors).T, color=COLOURS[k % len(COLOURS)], linewidth=1.4,
                          marker="o", markersize=3.5, elinewidth=0.8, capsize=2, label=family)
        for k, player in enumerate(p for p in players if not p.family):
            look = {"color": "0.35", "linewidth": 1.0, "linestyle": DASHES[k % len(DASHES)]}
            axes.axhline(rated[player.name]["rating"], **look, label=player.name)
        axes.set(title=title, xlabel="training steps" if families else "", ylabel="rating, mean 1200")
        if not families:
            axes.set_xticks([])
        figure.legend(loc="outside lower center", ncols=2, fontsize="small")
        return render(figure, "png")


def write(record: Record, players: list[Player], game: str, folder: Path) -> list[dict[str, Any]]:
    """Write `ratings.json`, `arena.png` and `arena.html` into `folder`, each atomically; return the standings."""
    rows, title = standings(record, players), f"{game}: {record.begun.sum():,} games"
    picture = draw(rows, players, title)
    write_json(folder / "ratings.json", {"game": game, "players": rows})
    write_whole(folder / "arena.png", picture)
    write_whole(folder / "arena.html", page(record, rows, picture, title).encode())
    return rows


def page(record: Record, rows: list[dict[str, Any]], picture: bytes, title: str) -> str:
    """Return all results as one self-contained HTML file."""
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)

    def at(x: float) -> float:
        return 100 * (x - low) / max(high - low, 1e-9)

    standing = "".join(
        f"<tr><td class=n>{place}</td><th scope=row>{escape(row['name'])}"
        f"{'<small>' + escape(row['notes']) + '</small>' if row['notes'] else ''}</th>"
        f"<td class=n><b>{row['rating']:.0f}</b></td>"
        f"<td class=n>{row['low']:.0f} – {row['high']:.0f}</td>"
        f"<td class=bar><i style='left:{at(row['low']):.1f}%;width:{at(row['high']) - at(row['low']):.1f}%'></i>"
        f"<b style='left:{at(row['rating']):.1f}%'></b></td><td class=n>{row['elo']:.0f}</td>"
        f"<td class=n>{row['games']}</td><td class=n>{share(row['score'])}</td></tr>\n"
        for place, row in enumerate(rows, 1))
    order = [record.names.index(row["name"]) for row in rows]
    heads = "".join(f"<th scope=col title='{escape(record.names[j], quote=True)}'>{place}</th>"
                    for place, j in enumerate(order, 1))
    cross = "".join(f"<tr><th scope=row>{place} {escape(record.names[i])}</th>" + "".join(
        cell(record, i, j) for j in order) + "</tr>\n" for place, i in enumerate(order, 1))
    image = base64.b64encode(picture).decode()
    return f"""<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
:root {{ color-scheme: light dark; --line: #8884; --a: light-dark(#0072b2, #56b4e9); }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.15rem; margin-top: 2rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .5rem; border-bottom: 1px solid var(--line); text-align: left; font-weight: normal; }}
thead th {{ color: light-dark(#555, #bbb); font-size: .85rem; }}
.n {{ text-align: right; white-space: nowrap; }}
small {{ display: block; color: light-dark(#b35900, #ff9d4d); }}
.bar {{ position: relative; min-width: 8rem; }}
.bar i, .bar b {{ position: absolute; top: 50%; transform: translateY(-50%); }}
.bar i {{ height: 4px; background: var(--a); opacity: .6; }}
.bar b {{ width: 8px; height: 8px; margin-left: -4px; border-radius: 4px; background: var(--a); }}
.cross td, .cross thead th {{ text-align: center; min-width: 2.2rem; font-size: .85rem; }}
.cross th {{ font-size: .85rem; }}
.wide th[scope=row] {{ min-width: 8rem; max-width: 11rem; overflow-wrap: anywhere; }}
img {{ max-width: 100%; height: auto; background: #fff; }}
</style>
<h1>{escape(title)}</h1>
<div class=wide><table><thead><tr><th>place</th><th>player</th><th class=n>rating</th><th class=n>95 % interval</th>
<th>rating and interval</th><th class=n>Elo</th><th class=n>games</th><th class=n>score</th></tr></thead><tbody>
{standing}</tbody></table></div>
<p>Ratings are Bradley–Terry's, fitted to all games at once; 400 points more are odds of ten to one, and the
mean is 1200. Elo is updated game by game. A draw is half a point.</p>
<h2>Ratings over training</h2>
<img alt="Ratings over training steps" src="data:image/png;base64,{image}">
<h2>Who scored what against whom</h2>
<div class=wide><table class=cross><thead><tr><th>player</th>{heads}</tr></thead><tbody>
{cross}</tbody></table></div>
<p>A number is the score of the player of the row against the player of the column, in percent. An empty cell means that
there was no game.</p>
</html>
"""


def share(score: float | None) -> str:
    """Format a score in percent; a dash if there is no game."""
    return "–" if score is None else f"{100 * score:.0f} %"


def cell(record: Record, i: int, j: int) -> str:
    """Return the score of i against j as a table cell, coloured from red to green."""
    games = record.scores[i, j] + record.scores[j, i]
    if not games:
        return "<td></td>"
    score = record.scores[i, j] / games
    ground = f"rgba({'0,158,115' if score >= 0.5 else '213,94,0'},{abs(score - 0.5):.2f})"
    return f"<td style='background:{ground}' title='{games:.0f} games'>{100 * score:.0f}</td>"
