"""Plots of runs: which runs, numbers and labels they show. The tests inspect the figures before they become files."""
import csv
import json
import math
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from spinup.errors import UserError
from spinup.runs import curve
from spinup.runs.curve import draw_curve
from spinup.view import plots
from spinup.view.plots import find_curves, grouped, plot, remarks, summary
from spinup.view.statistics import mean_interval


def write_run(folder, returns, *, env="CartPole-v1", algorithm="ppo", steps=100):
    """Write a run whose rows have these values of return_mean_100, and a return_mean that is higher by 1."""
    folder.mkdir(parents=True)
    seed = int(folder.name.rpartition("_s")[2])
    (folder / "config.json").write_text(json.dumps({
        "algorithm": algorithm, "measure": "return_mean_100", "config": {"env": env, "seed": seed}}))
    with open(folder / "progress.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["steps", "return_mean", "return_mean_100", "kl", "wall_seconds"])
        writer.writerows([(i + 1) * steps, r + 1, r, 0.01, i + 1] for i, r in enumerate(returns))
    return folder


def write_language(folder, measure, *, task="taste", method="ppo", **columns):
    """Write a run of a language model with these columns."""
    folder.mkdir(parents=True)
    data = {"algorithm": f"llm {method}", "measure": measure, "config": {"task": task, "seed": 1}}
    (folder / "config.json").write_text(json.dumps(data))
    with open(folder / "progress.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["steps", *columns])
        writer.writerows([i, *row] for i, row in enumerate(zip(*columns.values(), strict=True), 1))
    return folder


@pytest.fixture
def figures(monkeypatch):
    """The figures that were rendered, in order."""
    seen, render = [], curve.render
    for module in (curve, plots):
        monkeypatch.setattr(module, "render", lambda figure, kind: seen.append(figure) or render(figure, kind))
    return seen


def words(axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def points(line) -> list[tuple[float, float]]:
    return [tuple(p) for p in line.get_xydata()]


# Catches: runs of two experiments in one mean, because their folders and the parent folders have the same names.
@pytest.mark.parametrize("group", ["experiment", "run"])
def test_folders_of_the_same_name_give_separate_curves(tmp_path, group):
    for project in "ab":
        write_run(tmp_path / project / "runs" / "ppo_1" / "ppo_1_s1", [1.0, 2.0])
    (curves,) = grouped(find_curves([tmp_path]), group).values()
    ends = ["runs", "ppo_1"] + ["ppo_1_s1"] * (group == "run")
    assert {label: len(runs) for label, runs in curves.items()} == {"/".join([each, *ends]): 1 for each in "ab"}


def test_curve_shows_both_returns_without_rows_that_have_none(tmp_path, figures):
    run = write_run(tmp_path / "a_s3", [math.nan, 10.0, math.nan, 30.0])
    assert draw_curve(run) == run / "curve.png"
    (axes,) = figures[0].axes
    light, strong = axes.lines
    assert points(strong) == [(200, 10), (400, 30)] and points(light) == [(200, 11), (400, 31)]
    assert strong.get_linewidth() > light.get_linewidth()
    assert axes.get_title("left") == "ppo on CartPole-v1, seed 3"
    with Image.open(run / "curve.png") as picture:
        assert picture.format == "PNG" and picture.width == 1080
    assert sorted(f.name for f in run.iterdir()) == ["config.json", "curve.png", "progress.csv"]


# The plot of a language model: the label of the axis, and the legend, the values and the width of each line. Catches: a
# line for a column without numbers; a true reward that is missing or has a thin line.
@pytest.mark.parametrize(("measure", "columns", "axis", "lines"), [
    ("held_out_accuracy", {"reward": [0.1, 0.2], "held_out_accuracy": [0.3, 0.4], "held_out_reward": [0.5, 0.6]},
     "share of responses", [("mean reward in training", [0.1, 0.2], False),
                            ("solved held-out problems", [0.3, 0.4], True)]),
    ("held_out_accuracy", {"reward": [math.nan] * 2, "held_out_accuracy": [0.3, 0.4]},
     "share of responses", [("solved held-out problems", [0.3, 0.4], True)]),
    ("held_out_reward", {"held_out_accuracy": [0.0, 0.0], "held_out_reward": [-2, 1], "reward": [-3, 2]},
     "mean reward", [("in training", [-3, 2], False), ("on held-out problems", [-2, 1], True)]),
    ("held_out_reward", {"held_out_reward": [1, 2], "held_out_gold": [1, -5], "reward": [0, 2]},
     "mean reward", [("learned reward, in training", [0, 2], False),
                     ("learned reward, on held-out problems", [1, 2], True),
                     ("true reward, on held-out problems", [1, -5], True)]),
    ("pair_accuracy", {"loss": [1, 2], "train_accuracy": [0.5, 0.9], "pair_accuracy": [0.6, 0.7]},
     "share of pairs ranked correctly", [("training pairs", [0.5, 0.9], False),
                                       ("held-out pairs", [0.6, 0.7], True)]),
    ("held_out_greedy", {"held_out_accuracy": [0.1, 0.2], "held_out_greedy": [0.6, 0.7]},
     "held-out greedy", [("held-out greedy", [0.6, 0.7], True)])])
def test_curve_of_a_language_model_shows_its_measure(measure, columns, axis, lines, tmp_path, figures):
    draw_curve(write_language(tmp_path / "a_s1", measure, **columns))
    (axes,) = figures[0].axes
    assert (axes.get_ylabel(), axes.get_xlabel()) == (axis, "updates")
    assert words(axes) == [words for words, _, _ in lines]
    for line, (_, ys, thick) in zip(axes.lines, lines, strict=True):
        assert points(line) == [(1, ys[0]), (2, ys[1])] and (line.get_linewidth() >= 2) == thick
    assert len({line.get_color() for line in axes.lines if line.get_linewidth() >= 2}) == sum(x[2] for x in lines)


# Catches: the measure of the first run for all runs of a task; a learned reward and a true reward on one axis.
@pytest.mark.long
def test_each_measure_has_its_own_axis(tmp_path, figures):
    write_language(tmp_path / "a" / "a_s1", "held_out_reward", method="sft", held_out_reward=[1, 2], kl=[0, 1])
    write_language(tmp_path / "b" / "b_s1", "pair_accuracy", method="reward_model", pair_accuracy=[0.5, 0.75])
    write_language(tmp_path / "c" / "c_s1", "held_out_reward", held_out_reward=[3, 4], held_out_gold=[3, 1], kl=[0, 2])
    write_language(tmp_path / "d" / "d_s1", "held_out_reward", method="dpo", held_out_reward=[5, 6], kl=[0, 3])
    plot([tmp_path])
    shown = {axes.get_ylabel(): words(axes) for axes in figures[0].axes}
    assert shown == {"held-out reward": ["a (n=1)", "d (n=1)"], "pair accuracy": ["b (n=1)"],
                     "learned held-out reward": ["c (n=1)"]}
    assert {(axes.get_title("left"), axes.get_xlabel()) for axes in figures[0].axes} == {("taste", "updates")}
    table = {row["experiment"]: (row["measure"], row["mean"]) for row in summary([tmp_path])}
    assert table == {"a": ("held-out reward", 2), "b": ("pair accuracy", 0.75), "c": ("learned held-out reward", 4),
                     "d": ("held-out reward", 6)}
    plot([tmp_path], value="kl")                              # the same number for all
    (axes,) = figures[2].axes
    assert words(axes) == ["a (n=1)", "c (n=1)", "d (n=1)"] and axes.get_ylabel() == "kl"
    plot([tmp_path], value="held_out_gold")
    assert [axes.get_ylabel() for axes in figures[4].axes] == ["true held-out reward"]


# Catches: an error for the name of a list.
def test_task_given_as_a_python_object_has_a_name(tmp_path, figures):
    named = [(["ab>", "cd>"], "list of prompts"), ({"callable": "Vowels"}, "Vowels"), ("copy", "copy")]
    for i, (task, name) in enumerate(named):
        draw_curve(write_language(tmp_path / f"{i}_s1", "pair_accuracy", task=task, pair_accuracy=[1]))
        assert figures[-1].axes[0].get_title("left") == f"llm ppo on {name}, seed 1"


@pytest.mark.parametrize("returns", [[], [math.nan] * 3], ids=["no rows", "no episodes"])
def test_curve_of_a_run_without_episodes_shows_no_data_yet(tmp_path, figures, returns):
    draw_curve(write_run(tmp_path / "a_s1", returns))
    assert [text.get_text() for text in figures[0].axes[0].texts] == ["no data yet"]


def test_single_row_is_visible(tmp_path, figures):
    draw_curve(write_run(tmp_path / "a_s1", [5.0]))
    assert all(line.get_marker() == "." for line in figures[0].axes[0].lines)


def test_three_seeds_give_a_mean_with_a_band_and_two_separate_lines(tmp_path, figures):
    for seed, level in enumerate([10.0, 20.0, 60.0]):
        write_run(tmp_path / "three" / f"three_s{seed}", [level, level + 100])
    for seed in (1, 2):
        write_run(tmp_path / "two" / f"two_s{seed}", [float(seed)] * 3)
    assert plot([tmp_path]) == [tmp_path / "plot.png", tmp_path / "plot.svg"]
    (axes,) = figures[0].axes
    assert words(axes) == ["three (n=3)", "two (n=2)"]
    mean, *each = axes.lines
    assert points(mean)[0] == (100, 30) and points(mean)[-1] == (200, 130)
    assert [points(line) for line in each] == [[(100, s), (200, s), (300, s)] for s in (1, 2)]
    assert len({line.get_color() for line in each}) == 1 and each[0].get_linewidth() < mean.get_linewidth()
    (band,) = axes.collections
    at_start = [y for x, y in band.get_paths()[0].vertices if x == 100]
    assert (min(at_start), max(at_start)) == pytest.approx(mean_interval([10, 20, 60]))
    assert ElementTree.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")
    with Image.open(tmp_path / "plot.png") as picture:
        assert picture.format == "PNG"


# Catches: a mean over the remaining seeds, so that the curve jumps where a seed ends.
def test_mean_ends_with_the_first_seed_and_the_others_continue(tmp_path, figures):
    for seed, rows in enumerate([2, 4, 4]):
        write_run(tmp_path / "a" / f"a_s{seed}", [10.0 * (seed + 1)] * rows)
    plot([tmp_path])
    mean, *rest = figures[0].axes[0].lines
    assert points(mean)[-1] == (200, 20)
    assert [points(line) for line in rest] == [[(200, y), (300, y), (400, y)] for y in (20, 30)]


def test_environments_have_separate_axes_and_algorithms_fixed_colours(tmp_path, figures):
    write_run(tmp_path / "a" / "a_s1", [1.0, 2.0], env="CartPole-v1", algorithm="ppo")
    write_run(tmp_path / "b" / "b_s1", [1.0, 2.0], env="Hopper-v5", algorithm="dqn")
    write_run(tmp_path / "c" / "c_s1", [1.0, 2.0], env="Hopper-v5", algorithm="ppo")
    plot([tmp_path], group="algorithm")
    one, two = figures[0].axes
    assert [one.get_title("left"), two.get_title("left")] == ["CartPole-v1", "Hopper-v5"]
    assert words(one) == ["ppo (n=1)"] and words(two) == ["dqn (n=1)", "ppo (n=1)"]
    assert one.lines[0].get_color() == two.lines[1].get_color() != two.lines[0].get_color()


def test_twelve_runs_have_distinct_lines_in_the_order_of_their_numbers(tmp_path, figures):
    for seed in range(1, 13):
        write_run(tmp_path / "a" / f"a_s{seed}", [1.0, 2.0])
    plot([tmp_path, tmp_path / "a"], group="run")             # found twice, plotted once
    (axes,) = figures[0].axes
    assert words(axes) == [f"a_s{seed} (n=1)" for seed in range(1, 13)]
    looks = [(line.get_color(), line.get_linestyle()) for line in axes.lines]
    assert len(set(looks)) == 12 and looks[8] == (looks[0][0], "--")
    assert all(one[1] != other[1] for one, other in pairwise(looks))      # for people who see no colours
    assert axes.get_window_extent().x1 < axes.get_legend().get_window_extent().x0       # too many to cover curves


# Catches: a legend that is longer than the picture; the lowest curves in it instead of the highest.
def test_legend_of_many_runs_lists_the_highest(tmp_path, figures):
    for i in range(20):
        write_run(tmp_path / f"e{i}/x_s1", [50 - i, 10 * i])
    plot([tmp_path])
    (axes,) = figures[0].axes
    assert words(axes) == [*(f"e{i} (n=1)" for i in range(19, 3, -1)), "4 others, not higher at the end"]
    grey = [line for line in axes.lines if line.get_color() == "#bbbbbb" and len(line.get_xdata())]
    assert sorted(points(line)[-1][1] for line in grey) == [0, 10, 20, 30]


# Catches: a traceback, or no entry in the legend, because matplotlib hides labels that begin with _.
def test_names_that_begin_with_an_underscore_are_in_the_legend(tmp_path, figures):
    for name in "_a", "b":
        write_run(tmp_path / name / "x_s1", [1.0, 2.0])
    plot([tmp_path])
    plot([tmp_path / "_a"])
    texts = [[text.get_text().strip("\u200b") for text in figure.axes[0].get_legend().get_texts()]
             for figure in (figures[0], figures[-1])]
    assert texts == [["_a (n=1)", "b (n=1)"], ["_a (n=1)"]]


# Catches: a legend of long names that covers the curves, or is cut at an edge of the picture.
@pytest.mark.parametrize("n", [2, 9])
def test_legend_of_long_names_is_below_the_axes(tmp_path, figures, n):
    for i in range(n):
        for env in "CartPole-v1", "Acrobot-v1":
            write_run(tmp_path / f"{'long_' * 15}{env}_{i}/x_s1", [1.0, 2.0], env=env)
    plot([tmp_path])
    figures[0].draw_without_rendering()                       # the fonts of the SVG have other sizes
    for axes in figures[0].axes:
        box, legend = axes.get_window_extent(), axes.get_legend().get_window_extent()
        assert legend.y1 < box.y0 and box.width > 0.3 * figures[0].bbox.width
        assert 0 <= legend.x0 < legend.x1 <= figures[0].bbox.x1 and legend.y0 >= 0


def test_equal_names_are_distinguished_by_their_parent_folders(tmp_path, figures):
    for place in ("old", "new"):
        write_run(tmp_path / place / "a" / "a_s1", [1.0, 2.0])
    plot([tmp_path / "old", tmp_path / "new"])
    assert words(figures[0].axes[0]) == ["old/a (n=1)", "new/a (n=1)"]
    write_run(tmp_path / "old" / "b" / "b_s1", [1.0, 2.0])                # else it would not be clear whose b it is
    plot([tmp_path / "old", tmp_path / "new"])
    assert words(figures[-1].axes[0]) == ["old/a (n=1)", "old/b (n=1)", "new/a (n=1)"]


def test_plot_has_a_time_axis_other_columns_and_smoothing(tmp_path, figures):
    run = write_run(tmp_path / "a" / "a_s1", [0.0, 3.0, 6.0, 3.0])
    plot([run], x="time", value="return_mean", smooth=3, out=tmp_path / "b.svg")
    (axes,) = figures[0].axes
    assert points(axes.lines[0]) == [(1, 2.5), (2, 4), (3, 5), (4, 5.5)]    # of 1, 4, 7, 4, without zeros at the ends
    assert axes.get_xlabel() == "wall-clock time (s)"
    assert axes.get_ylabel() == "mean return of an epoch's episodes\naveraged over 3 rows"
    assert (tmp_path / "b.png").exists() and (tmp_path / "b.svg").exists() and not (run / "plot.png").exists()


# Catches: a published curve in a colour of its own, beyond the last step of the runs, or with another algorithm.
def test_published_curves_are_shown_with_the_runs_of_their_algorithm(tmp_path, figures):
    for seed in 1, 2:
        write_run(tmp_path / "a" / f"a_s{seed}", [1.0, 2.0, 3.0], algorithm="td3")
    write_run(tmp_path / "b" / "b_s1", [1.0, 2.0], algorithm="sac")
    beside = tmp_path / "others.csv"
    beside.write_text("env,algorithm,source,steps,value\nCartPole-v1,td3,a paper,300,9\nCartPole-v1,td3,a paper,100,7\n"
                      "CartPole-v1,td3,a paper,400,10\nAnt-v5,sac,a paper,100,5\nCartPole-v1,ppo,a paper,100,5\n")
    plot([tmp_path / "a", tmp_path / "b"], beside=beside)
    (axes,) = figures[0].axes
    assert words(axes) == ["a (n=2)", "b (n=1)", "td3: a paper"]
    ours, other, dashed = axes.lines[0], axes.lines[2], axes.lines[3]
    assert points(dashed) == [(100, 7), (300, 9)]
    assert dashed.get_color() == ours.get_color() != other.get_color()
    write_run(tmp_path / "c" / "c_s1", [1.0, 2.0], algorithm="td3")
    plot([tmp_path / "a", tmp_path / "c"], beside=beside)
    assert words(figures[-1].axes[0]) == ["a (n=2)", "c (n=1)", "td3: a paper"]          # once for both groups
    with pytest.raises(UserError, match="has no curve of sac in CartPole-v1; it has sac in Ant-v5, ppo in CartPole-v1"):
        plot([tmp_path / "b"], beside=beside)
    for text in "steps,value\n1,2\n", "env,algorithm,source,steps,value\na,b,c,d,e\n":
        beside.write_text(text)
        with pytest.raises(UserError, match="env,algorithm,source,steps,value"):
            plot([tmp_path / "a"], beside=beside)
    with pytest.raises(UserError, match="leave out --x time"):
        plot([tmp_path / "a"], beside=beside, x="time")
    with pytest.raises(UserError, match="kl is not a return; leave out --value"):
        plot([tmp_path / "a"], beside=beside, value="kl")


# Catches: a group that looks worse because one of its runs was stopped early; a run without the column that is left out
# without a message.
def test_short_runs_and_missing_columns_are_mentioned(tmp_path):
    write_run(tmp_path / "a" / "a_s1", [1.0, 2.0, 3.0])
    write_run(tmp_path / "a" / "a_s2", [1.0, 2.0])
    write_run(tmp_path / "b" / "b_s1", [1.0, 2.0, 3.0])
    (said,) = remarks([tmp_path])
    assert said.startswith("a on CartPole-v1: its row shows the mean at 200 steps, where a_s2 ends; ")
    progress = tmp_path / "b" / "b_s1" / "progress.csv"
    progress.write_text(progress.read_text().replace("return_mean,", "other,", 1))
    assert remarks([tmp_path / "b", tmp_path / "a"], value="return_mean")[0].endswith("no column return_mean: b_s1")


@pytest.mark.long
def test_same_runs_give_the_same_files(tmp_path):
    for seed in range(3):
        write_run(tmp_path / "a" / f"a_s{seed}", [float(seed), 2.0])
    first = [path.read_bytes() for path in plot([tmp_path])]
    assert [path.read_bytes() for path in plot([tmp_path])] == first


def test_summary_has_the_numbers_of_the_plot(tmp_path):
    for seed, level in enumerate([10.0, 20.0, 60.0]):
        write_run(tmp_path / "three" / f"three_s{seed}", [level, level + 100, math.nan][:3 if seed else 2])
    write_run(tmp_path / "two" / "two_s1", [7.0], env="Hopper-v5")
    write_run(tmp_path / "two" / "two_s2", [math.nan], env="Hopper-v5")
    three, two = summary([tmp_path])
    assert {k: three[k] for k in ("experiment", "env", "n", "steps", "measure", "mean")} == {
        "experiment": "three", "env": "CartPole-v1", "n": 3, "steps": 200, "measure": "return", "mean": 130.0}
    assert (three["low"], three["high"]) == mean_interval([110, 120, 160])
    assert (two["n"], two["mean"]) == (1, 7.0) and np.isnan([two["low"], two["high"]]).all()


# Catches: a band of accuracies that extends above 1.
def test_interval_of_an_accuracy_stays_within_0_and_1(tmp_path, figures):
    for seed, accuracy in enumerate([0.2, 0.9, 1.0]):
        write_language(tmp_path / "a" / f"a_s{seed}", "held_out_accuracy", held_out_accuracy=[accuracy, accuracy])
    plot([tmp_path])
    (band,) = figures[0].axes[0].collections
    heights = [y for _, y in band.get_paths()[0].vertices]
    (row,) = summary([tmp_path])
    assert (min(heights), max(heights)) == (row["low"], row["high"]) == (0, 1)


# Catches: the last number of each run, at different steps; the measure in place of the column that was requested.
def test_summary_compares_at_the_last_step_that_all_runs_have_reached(tmp_path):
    for seed, returns in enumerate(([10.0, 20.0], [10.0, 500.0, 500.0, 500.0], [10.0, 60.0, 400.0])):
        write_run(tmp_path / "x" / f"x_s{seed}", returns)
    (row,) = summary([tmp_path])
    assert row["steps"] == 200 and row["mean"] == (20 + 500 + 60) / 3
    (row,) = summary([tmp_path], value="kl")
    assert row["measure"] == "kl" and row["mean"] == pytest.approx(0.01)


@pytest.mark.parametrize(("given", "sentence"), [
    ({"value": "return_mean_10"}, "no run has a column 'return_mean_10'. Did you mean 'return_mean_100'?"),
    ({"group": "seed"}, "--group must be one of experiment, run, algorithm"),
    ({"x": "epoch"}, "--x must be step or time"),
    ({"smooth": 0}, "--smooth must be at least 1"),
    ({"out": "a.pdf"}, "ends in .png or .svg"),
    ({"out": "missing/a.png"}, "ends in .png or .svg"), ({"out": "a/mine.png"}, "would also overwrite"),
    ({"out": "a/mine"}, "would also overwrite")])
def test_wrong_settings_get_an_error_with_what_to_type(tmp_path, given, sentence):
    write_run(tmp_path / "a" / "a_s1", [1.0])
    (tmp_path / "a" / "mine.svg").write_text("mine")
    given = {k: tmp_path / v if k == "out" else v for k, v in given.items()}
    with pytest.raises(UserError) as error:
        plot([tmp_path], **given)
    assert sentence in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("use", [plot, summary])
def test_folder_without_runs_is_named(tmp_path, use):
    write_run(tmp_path / "good" / "good_s1", [1.0])
    write_run(tmp_path / "empty" / "empty_s1", [])
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "progress.csv").write_text("a,b\n1,2\n")      # from another library
    for name in ("empty", "foreign", "missing"):
        with pytest.raises(UserError, match=f"{name} holds no run with a row"):
            use([tmp_path / "good", tmp_path / name])
    assert use([tmp_path])
