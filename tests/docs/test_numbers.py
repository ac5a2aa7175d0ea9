"""The tables of the benchmarks agree with their raw files, and the pages agree with the tables."""
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
BENCHMARKS = "".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "benchmarks").glob("*.md")))


def rows(name: str) -> list[list[str]]:
    """The cells of the tables between the marks of this name, without table heads and emphasis."""
    text = BENCHMARKS.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]
    tables = [t.splitlines()[2:] for t in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]
    return [[c.strip(" *`") for c in re.sub(r"\*\*", "", line).strip("|").split("|")] for t in tables for line in t]


def raw(name: str) -> dict:
    return json.loads((DOCS / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))


def numbers(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text.replace(",", ""))]


def check_rounded(shown: str, values: list[float]) -> None:
    """Assert that the numbers in a text are these values, rounded to the digits that the text shows."""
    digits = [len(x.partition(".")[2]) for x in re.findall(r"-?[\d,]*\d(?:\.\d+)?", shown)]
    found = numbers(shown)
    assert len(found) == len(values), (shown, values)
    for x, value, n in zip(found, values, digits, strict=True):
        assert abs(x - value) <= 0.5 * 10 ** -n * (1 + 1e-9), (shown, values)


# Catches: a copied table whose numbers were measured again; a method without a row in the table of pairs.
def test_pages_show_the_tables_of_the_benchmarks():
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    pages = {p: p.read_text(encoding="utf-8") for p in tables.pages()}
    shown = [p for p, text in pages.items() if tables.PLACE.search(text) or tables.LISTED.search(text)]
    assert len(shown) > 15 and DOCS / "llm" / "overview.md" in shown
    for page in shown:
        assert tables.fill(pages[page], BENCHMARKS) == pages[page], f"{page.name} differs; run python docs/tables.py"
    with pytest.raises(ValueError, match="no table for <!-- results: returns, a2c -->"):
        tables.fill("<!-- results: returns, a2c -->\n<!-- /results -->", BENCHMARKS)


# Catches: a result of a CPU or of a quick check in the table of GPUs; a raw file that the table leaves out.
def test_gpu_table_has_only_full_measurements_of_gpus(tmp_path):
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    line = {"what": "updates a second", "value": 801.25, "goal": 725, "source": "", "met": True}
    part = {"part": "sac", "kind": "cuda", "quick": False, "device": "H100", "commit": "abc", "lines": [line]}
    for name, other in {"cpu": {"kind": "cpu"}, "quick": {"quick": True}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(part | other))
    assert tables.measured_on_gpus(tmp_path).startswith("**No GPU has run these parts yet.**")
    (tmp_path / "sac.json").write_text(json.dumps(part))
    assert tables.measured_on_gpus(tmp_path).splitlines()[2:] == [
        "| sac | updates a second | 801.2 | 725 | met | H100 | `abc` |"]


@pytest.mark.parametrize("row", rows("returns"), ids=lambda row: f"{row[0]}-{row[1]}")
def test_returns_agree_with_the_raw_file(row):
    algorithm, env, steps, seeds, e100, r100, _ = row
    found = raw(f"{algorithm}_{env.replace('/', '-')}")
    assert int(steps.replace(",", "")) == found["steps"] and int(seeds) == len(found["runs"])
    for shown, name in ((e100, "E100"), (r100, "R100")):
        means = [run[name] for run in found["runs"]]
        assert means == found[name]["seeds"]
        check_rounded(shown, [np.mean(means), *(found[name]["interval"] if len(means) > 2 else sorted(means))])


@pytest.mark.parametrize("row", rows("no preset"), ids=lambda row: f"{row[0]}-{row[1]}")
def test_returns_without_a_preset_agree_with_the_raw_file(row):
    algorithm, env, steps, seeds, *shown = row
    found = raw(f"defaults_{algorithm}_{env}")
    assert "--preset none" in found["command"]
    assert int(steps.replace(",", "")) == found["steps"] and int(seeds) == len(found["runs"])
    for (e100, r100), measured in ((shown[:2], found), (shown[2:], found.get("peer"))):
        if measured is None:
            assert e100 == r100 == "-"
            continue
        for cell, name in ((e100, "E100"), (r100, "R100")):
            check_rounded(cell, [np.mean(measured[name]["seeds"]), *measured[name]["interval"]])


@pytest.mark.parametrize("row", rows("zoo"), ids=lambda row: f"{row[0]}-{row[1]}")
def test_returns_with_zoo_settings_agree_with_the_raw_file(row):
    algorithm, env, steps, seeds, *shown, _, _ = row                      # the difference of E100; the goal
    found = raw(f"zoo_{algorithm}_{env}")
    assert "--against zoo" in found["command"] and int(steps.replace(",", "")) == found["steps"]
    for measured, number, cells in ((found, seeds, shown[:2]), (found["peer"], shown[2], shown[3:])):
        assert int(number) == len(measured["E100"]["seeds"])
        for cell, name in zip(cells, ("E100", "R100"), strict=True):
            check_rounded(cell, [np.mean(measured[name]["seeds"]), *(measured[name]["interval"] or ())])


@pytest.mark.parametrize("row", rows("llm"), ids=lambda row: f"{row[0]}-{row[1]}")
def test_accuracies_agree_with_the_raw_file(row):
    task, method, start, end, seconds, soon = row
    found = raw(f"llm_{task}_{method}")
    for shown, name in ((start, "start"), (end, "end"), (seconds, "seconds")):
        check_rounded(shown, found[name])
    if soon:
        check_rounded(soon, [run["soon"] for run in found["runs"]])


@pytest.mark.parametrize("name", [path.stem.removeprefix("paper_")
                                  for path in sorted((DOCS / "benchmarks").glob("paper_*.json"))])
def test_results_of_papers_agree_with_the_raw_file(name):
    table, lines = rows(f"paper {name}"), raw(f"paper_{name}")["lines"]
    assert [row[0] for row in table] == [line["what"] for line in lines]
    for row, line in zip(table, lines, strict=True):
        whole = float(line["ours"]).is_integer()                          # a count is shown in full
        assert float(row[-3].replace(",", "")) == (line["ours"] if whole else float(f"{line['ours']:.4g}"))
        assert row[-1] == ("" if not line["goal"] else "met" if line["met"] else "missed")
        assert not line["paper"] or row[1] == line["paper"]
        assert row[-2].replace("≥", ">=").replace("≤", "<=") == line["goal"]


@pytest.mark.parametrize("row", rows("ladder speed"), ids=lambda row: f"{row[0].split(',')[0]}-{row[1]}")
def test_ladder_speed_agrees_with_the_raw_file(row):
    what, threads, ours, peers, ratio, goal, share = row
    algorithm, env = what.split(",")[0].split()
    found = raw(f"speed_{algorithm}_{env}_{threads}")
    pace = found["steps_per_second"]
    check_rounded(f"{ours} {peers}", [np.median(pace["spinup"]), np.median(pace["sb3"])])
    check_rounded(ratio, [found["ratio_median"], *found["ratios"]])
    assert float(goal) == found["goal"] and np.median(found["ratios"]) == found["ratio_median"]
    if share:
        check_rounded(share.replace("%", ""), [100 * found["networks_alone_share"][x] for x in ("spinup", "sb3")])


def test_preference_results_agree_with_the_raw_files():
    found, pairs = raw("preferences_frontier")["curves"], raw("preferences_over-optimisation")["end"]
    table = rows("preferences")
    assert [row[0] for row in table] == [*found, *(f"{int(n):,}" for n in pairs)]
    for name, *cells in table:
        end = found.get(name) or pairs[name.replace(",", "")]
        kinds = ("end_gain", "end_kl") if name in found else ("accuracy", "proxy", "gold", "highest_gold")
        for shown, kind in zip(cells, kinds, strict=True):
            check_rounded(shown, end[kind])


def test_language_model_speed_agrees_with_the_raw_files():
    table, generate = rows("llm speed"), raw("speed_generate")["rows"]
    found = [raw(f"speed_grpo_{width}")[work] for width in (64, 128) for work in ("equal work", "half")] + generate
    assert len(table) == len(found)
    for (what, ours, peers, ratio, goal), row in zip(table, found, strict=True):
        pace = {"spinup": [], **row["tokens_per_second"]}
        check_rounded(f"{ours} {peers.partition('(')[0]}", [np.median(x) for x in pace.values()])
        check_rounded(ratio, [row["ratio_median"], *(row["ratios"] if "(" in ratio else ())])
        assert np.median(row["ratios"]) == pytest.approx(row["ratio_median"], abs=1e-3)
        assert goal in ("", f"{row['goal']}")
        assert "batch" not in row or f"{row['batch']} answers of {row['new']} tokens" in what


def test_ppo_speed_agrees_with_the_raw_files():
    names = [env + how for env in ("CartPole-v1", "HalfCheetah-v5") for how in ("", "_compiled")]
    for (_, ours, peers, ratio, limit), name in zip(rows("speed"), names, strict=True):
        found = raw(f"speed_{name}")
        pace = found["steps_per_second"]
        check_rounded(f"{ours} {peers} {ratio} {limit}", [np.median(pace["spinup"]), np.median(pace["sb3"]),
                                                         found["ratio_median"], found["environment_steps_per_second"]])


def test_readme_ratios_agree_with_the_raw_files():
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8").split("| | peer | ratio |\n|---|---|---|\n")[1]
    cells = [row.split("|")[3] for row in text.split("\n\n")[0].splitlines()]
    files = [("speed_CartPole-v1", "speed_CartPole-v1_compiled"),
             ("speed_HalfCheetah-v5", "speed_HalfCheetah-v5_compiled"), ("speed_sac_HalfCheetah-v5_1",)]
    wanted = [[raw(name)["ratio_median"] for name in names] for names in files]
    for cell, values in zip(cells, [*wanted, [raw("speed_grpo_64")["equal work"]["ratio_median"]]], strict=True):
        check_rounded(cell, values)
