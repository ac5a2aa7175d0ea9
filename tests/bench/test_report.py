"""Reports: the aggregates against their definitions, and the content of a page for runs with known results."""
import itertools
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from spinup.bench import pictures
from spinup.bench.aggregate import between, bootstrap, improvement, iqm, profile
from spinup.bench.compared import grouped, in_label, limits, read, steps_to
from spinup.bench.page import Page, Picture
from spinup.bench.pictures import on_grid
from spinup.bench.report import heading, report
from spinup.bench.suite import write_evaluation
from spinup.errors import UserError
from spinup.registry import find
from spinup.runs.flags import from_flags
from spinup.runs.presets import configure
from spinup.runs.records import config_to_json
from spinup.view.again import command

RNG = np.random.default_rng(0)
OURS = [RNG.normal(size=5), RNG.normal(size=5).round(1), RNG.normal(size=5)]
THEIRS = [RNG.normal(0.5, size=5), RNG.normal(size=5).round(1), RNG.normal(-0.5, size=5)]


# Catches: quarters that are cut in each environment; ties that count as losses; a profile with >= in place of >.
def test_aggregates_are_those_of_the_paper():
    assert iqm(OURS) == pytest.approx(np.sort(np.concatenate(OURS))[3:-3].mean())          # 15 runs
    expected = np.mean([mannwhitneyu(x, y, alternative="greater").statistic / 25
                        for x, y in zip(OURS, THEIRS, strict=True)])
    assert improvement(OURS, THEIRS) == pytest.approx(expected)
    assert improvement(OURS, THEIRS) + improvement(THEIRS, OURS) == pytest.approx(1)
    assert improvement(OURS, OURS) == pytest.approx(0.5)
    taus = np.array([-1.0, OURS[0][2], 0.3])
    assert profile(OURS, taus) == pytest.approx(
        [sum(x > tau for runs in OURS for x in runs) / 15 for tau in taus])


def quantiles(values):
    return np.percentile(values, [2.5, 97.5], method="inverted_cdf")


# Catches: runs that are sampled across environments; the same sample for both algorithms; as many sampled runs as runs.
def test_bootstrap_samples_within_each_environment_and_algorithm():
    ours = [np.array([0.0, 1.0, 5.0]), np.array([10.0, 14.0, 11.0])]
    theirs = [np.array([0.5, 12.0]), np.array([9.0])]
    means = [np.concatenate(drawn).mean() for drawn in itertools.product(
        *([np.array(pair) for pair in itertools.product(runs, repeat=2)] for runs in ours))]

    def mean(drawn):
        return np.concatenate(drawn, -1).mean(-1)
    assert bootstrap(mean, ours, samples=20_000) == pytest.approx(quantiles(means))
    chances = [np.mean([np.mean([[(x > y) + 0.5 * (x == y) for y in b] for x in a]) for a, b in zip(
        drawn[:2], drawn[2:], strict=True)]) for drawn in itertools.product(
        *(list(itertools.product(runs, repeat=max(1, len(runs) - 1))) for runs in [*ours, *theirs]))]
    assert bootstrap(improvement, ours, theirs, samples=20_000) == pytest.approx(quantiles(chances))
    low, high = bootstrap(lambda drawn: profile(drawn, np.array([0.5, 20.0])), ours)
    assert between(mean, ours) is None and between(mean, OURS[:1]) is None # six runs, or five, are too few
    assert between(mean, OURS[:2]) == pytest.approx(bootstrap(mean, OURS[:2]))
    assert between(improvement, OURS, [THEIRS[0], THEIRS[1], THEIRS[2][:2]]) is None
    assert low.shape == high.shape == (2,) and high[1] == 0


@pytest.fixture
def trained(tmp_path):
    """Write the folder of a run with a curve that ends at `result`; without `result`, the run is unfinished."""
    def write(algo, env, seed, result=None, evaluated=None, **settings):
        config, _ = configure(find(algo), {"env": env, "seed": seed, **settings})
        name = "_".join([algo, env, *map(str, settings.values())])
        folder = tmp_path / name / f"{name}_s{seed}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({
            "algorithm": algo, "measure": "return_mean_100", "config": config_to_json(config), "git": "0a1b2c",
            "versions": {"torch": "2.13.0"}}))
        rows = [f"{step},{step / 1000 * (result or 1)},{step}" for step in (250, 500, 750, 1000)]
        (folder / "progress.csv").write_text("\n".join(["steps,return_mean_100,wall_seconds", *rows]))
        if result is not None:
            (folder / "result.json").write_text(json.dumps({
                "status": "finished", "steps": 1000, "seconds": 65.0, "steps_per_second": 10.0,
                "peak_memory": 300 * 2**20, "measure": "return_mean_100", "return_mean_100": result}))
        if evaluated is not None:
            (folder / "evaluation.json").write_text(json.dumps({"mean": evaluated}))
        return folder
    return write


def cells(markdown, first):
    """The cells of the table rows whose first cell is `first`."""
    return [[c.strip() for c in line.strip("|").split("|")] for line in markdown.splitlines()
            if line.startswith(f"| {first} |")]


@pytest.mark.long
def test_page_shows_the_results_of_the_runs(trained, tmp_path, capsys, cli):
    for seed in range(1, 11):
        trained("ppo", "CartPole-v1", seed, 400.0 + seed, 475.0)           # 475 is the normalised score 1
        trained("dqn", "CartPole-v1", seed, 100.0, 22.2)                   # and 22.2 is 0
        trained("ppo", "Pendulum-v1", seed, -150.0, -1229.0)
    damaged = trained("dqn", "CartPole-v1", 11, 100.0) / "progress.csv"
    damaged.write_text("a,b\n1")
    done = cli("bench", "report", str(tmp_path))
    assert (done.code, done.out.split()) == (0, [str(tmp_path / "report.html"), str(tmp_path / "report.md")])
    text, page = (tmp_path / "report.md").read_text(), (tmp_path / "report.html").read_text()
    assert text.startswith("# 2 algorithms in 2 environments\n\n30 finished runs, seeds 1 to 10, commit 0a1b2c. "
                           "Runs that are unfinished or repeated, or in which no episode ended, are left out: "
                           "dqn in CartPole-v1: 1. ")
    assert "Scores in CartPole-v1\n" in text and "Aggregated" not in text      # in both environments there is only ppo
    scores, chances, cartpole, pendulum, *_ = cells(text, "ppo")
    assert scores == ["ppo", "10", "1.00", "1.00 to 1.00", "1.00"]
    assert chances == ["ppo", "1.00 (1.00 to 1.00)"]                       # the row against dqn, in CartPole alone
    assert cartpole == ["ppo", "475", "475 to 475", "405.5", "10", "1,000", "never", "1 min 05 s", "300 MiB",
                        "500 (RL Baselines3 Zoo, 100k steps, 1 run)"]
    assert pendulum[1:4] == ["-1,229", "-1,229 to -1,229", "-150"] and pendulum[6] == "250 (10 of 10 runs)"
    assert len(re.findall(r"!\[", text)) == page.count('src="data:image/png;base64,') == 3 + 2
    assert not re.search(r'(src|href)="(?!data:)', page) and "http" not in page       # it needs no other file
    assert 'name="viewport"' in page and "torch 2.13.0" in page and "CartPole-v1: 22.2 and 475" in page
    for name in re.findall(r"\]\((report_pictures/.*?)\)", text):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


# Catches: runs of different lengths that are compared without a note; intervals for ten runs with only two in each
# environment.
@pytest.mark.long
def test_unequal_steps_and_missing_intervals_are_reported(trained, tmp_path):
    for env in ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "LunarLander-v3"):
        for seed in (1, 2):
            trained("ppo", env, seed, 100.0)
            trained("vpg", env, seed, 50.0)
    report([tmp_path], tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "No algorithm has an interval" in text and "of the longest run there" not in text
    short = tmp_path / "vpg_Pendulum-v1" / "vpg_Pendulum-v1_s2" / "result.json"
    short.write_text(json.dumps(json.loads(short.read_text()) | {"steps": 900}))
    report([tmp_path], tmp_path / "page.md")
    assert "of the longest run there: vpg. The table" in (tmp_path / "page.md").read_text()


# Catches: a result of 0 that becomes NaN; a seed that counts twice; a mean over some runs without their number.
@pytest.mark.long
def test_result_of_0_counts_and_a_seed_counts_once(trained, tmp_path):
    first, *_ = [trained("ppo", "CartPole-v1", seed, result) for seed, result in ((1, 0.0), (2, 0.0), (3, 60.0))]
    (first / "evaluation.json").write_text(json.dumps({"mean": 500.0}))
    shutil.copytree(first, tmp_path / "again" / first.name)
    report([tmp_path], tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert text.startswith("# 1 algorithm in 1 environment\n")
    assert "3 finished runs, seeds 1, 2, 3, commit 0a1b2c. Runs that are unfinished or repeated, or in which no " \
           "episode ended, are left out: ppo in CartPole-v1: 1." in text
    assert cells(text, "ppo")[1][1:5] == ["500 (1 of 3 runs)", "-", "20", "3"]


# Catches: compiled and other runs in one row; one row per seed if the name of the dataset contains the seed; a run that
# is missing because another one started from it.
def test_runs_with_equal_settings_share_a_row(trained, tmp_path):
    for seed in (1, 2):
        trained("ppo", "CartPole-v1", seed, 100.0)
        trained("ppo", "CartPole-v1", seed, 50.0, compile=True)
    groups = grouped(read([tmp_path])[0])
    assert {label: len(runs) for label, runs in groups["CartPole-v1"].items()} == {
        "ppo compile=False": 2, "ppo compile=True": 2}
    trained("ppo", "Acrobot-v1", 1, 100.0)
    trained("ppo", "Acrobot-v1", 2, 100.0, keep_best=True, test_episodes=2)          # the same training
    assert [len(runs) for runs in grouped(read([tmp_path])[0])["Acrobot-v1"].values()] == [2]
    assert heading(read([tmp_path])[0]) == "1 algorithm in 2 environments"             # not the number of rows
    again = tmp_path / "again"
    for seed in (1, 2):
        folder = again / f"bc_s{seed}"
        shutil.copytree(tmp_path / f"ppo_CartPole-v1/ppo_CartPole-v1_s{seed}", folder)
        about = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(about | {
            "algorithm": "bc", "start": "elsewhere/bc_s1" if seed == 2 else None,
            "config": {"env": "CartPole-v1", "seed": seed, "data": f"data/mixed_s{seed}.npz"}}))
    (runs,) = grouped(read([again])[0])["CartPole-v1"].values()
    assert len(runs) == 2
    for path in again.rglob("config.json"):                               # all from the data of one seed
        path.write_text(path.read_text().replace("mixed_s2", "mixed_s1"))
    assert len(grouped(read([again])[0])["CartPole-v1"]) == 1


# Catches: a dataset that is known by its path, although it was moved, or was recorded again.
@pytest.mark.parametrize("data, sums, labels", [
    (("a.npz", "b.npz"), ("1234567", "1234567"), ["bc"]),
    (("a.npz", "a.npz"), ("1234567", "7654321"), ["bc data=a.npz 123456", "bc data=a.npz 765432"]),
    (("a.npz", "b.npz"), ("1234567", "7654321"), ["bc data=a.npz", "bc data=b.npz"])])
def test_runs_on_one_dataset_share_a_row(data, sums, labels, trained, tmp_path):
    for seed, (path, checksum) in enumerate(zip(data, sums, strict=True), 1):
        folder = trained("ppo", "CartPole-v1", seed, 100.0)
        about = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(about | {
            "algorithm": "bc", "dataset": {"sha256": checksum},
            "config": {"env": "CartPole-v1", "seed": seed, "data": path}}))
    assert [*grouped(read([tmp_path])[0])["CartPole-v1"]] == labels


# Catches: a result that depends on the order of the folders on the command line.
def test_one_of_two_equal_runs_is_chosen_by_its_path_unless_the_other_is_evaluated(trained, tmp_path):
    first = trained("ppo", "CartPole-v1", 1, 100.0)
    second = shutil.copytree(first, tmp_path / "z" / first.name)
    for folders in ([first, second], [second, first]):
        (chosen,), _, others = read(folders)
        assert chosen.curves.directory == first and others == ["ppo in CartPole-v1"]
    (second / "evaluation.json").write_text(json.dumps({"mean": 500.0}))
    assert [read(folders)[0][0].evaluated for folders in ([first, second], [second, first])] == [500.0, 500.0]
    (second / "evaluation.json").write_text(json.dumps({"mean": 500.0, "episodes": "many"}))
    with pytest.raises(UserError, match="is not the evaluation of a run; delete"):
        read([second])


# Catches: a label as long as a path; different settings with the same short label; a function as JSON.
def test_values_in_labels_are_short_and_distinct():
    assert in_label([{"callable": "make_env"}, 0.5]) == ["make_env", "0.5"]
    assert in_label(["/home/ann/experiments/today/a.npz", "b.npz"]) == ["…e/ann/experiments/today/a.npz", "b.npz"]
    same = ["/home/ann/experiments/of/this/day/a.npz", "/home/bob/experiments/of/this/day/a.npz"]
    assert in_label(same) == same


# Catches: an evaluation of an earlier policy of the run.
def test_only_an_evaluation_of_the_final_policy_counts(trained, tmp_path):
    folder = trained("ppo", "CartPole-v1", 1, 100.0)
    write_evaluation(folder, json.dumps({"mean": 50.0}))
    assert read([tmp_path])[0][0].evaluated == 50.0
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "steps": 2000}))
    assert read([tmp_path])[0][0].evaluated is None


@pytest.mark.parametrize("file, content, message", [
    ("evaluation.json", '{"mean": NaN}', "is not the evaluation of a run; delete it"),
    ("result.json", '{"status": "finished", "steps": 1}', "is not the result of a spinup run; delete it"),
    ("result.json", '{"status": "finished", "steps": 1, "seconds": 1, "steps_per_second": 1}',
     "is not the result of a spinup run; delete it"),
    ("config.json", '{"algorithm": "ppo", "config": {"env": "CartPole-v1", "seed": "x"}}', "has 'x' for seed"),
    ("config.json", '{"algorithm": "ppo", "config": {"seed": 1, "env": "x", "num_envs": "4"}}', "has '4' for num_envs"),
    ("config.json", '{"algorithm": "ppo", "config": {"env": "CartPole-v1", "seed": 1}, "start": 5}', "has 5 for start"),
    ("config.json", '{"algorithm": "ppo", "config": {"env": "CartPole-v1", "seed": 1}, "versions": []}',
     r"has \[\] for versions"),
    ("result.json", '{"status": "finished", "steps": 0, "seconds": 1, "steps_per_second": 1, "measure": "x", "x": 1}',
     "is not the result of a spinup run; delete it")])
def test_error_names_a_damaged_file(file, content, message, trained, tmp_path):
    (trained("ppo", "CartPole-v1", 1, 100.0, 50.0) / file).write_text(content)
    with pytest.raises(UserError, match=message):
        report([tmp_path], tmp_path / "page.md")
    assert not (tmp_path / "page_pictures").exists()


def test_page_that_cannot_be_written_is_refused_before_any_file_is_made(trained, tmp_path):
    trained("ppo", "CartPole-v1", 1, 100.0, 50.0)
    (tmp_path / "a.html").mkdir()
    (tmp_path / "b_pictures").touch()
    for name, message in (("a.html", "cannot be written"), ("b.md", "needs a folder .*b_pictures, which is a file")):
        with pytest.raises(UserError, match=message):
            report([tmp_path], tmp_path / name)
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(UserError, match="notes.html would also overwrite .*notes.md; give another name, or move"):
        report([tmp_path], tmp_path / "notes.html")
    assert (tmp_path / "notes.md").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b_pictures", "notes.md", "ppo_CartPole-v1"]


# Catches: the SFT run from which a run of a language model starts, as a separate method.
def test_initial_sft_run_is_not_a_separate_method(trained, tmp_path):
    start, run = trained("ppo", "CartPole-v1", 1, 20.0, lr=1e-5), trained("ppo", "CartPole-v1", 1, 100.0, 100.0)
    about = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**about, "start": str(start)}))
    assert len(read([tmp_path])[0]) == 2                                  # a run from which another one starts counts
    about = json.loads((start / "config.json").read_text())
    (start / "config.json").write_text(json.dumps({**about, "algorithm": "llm sft"}))
    found, failed, others = read([tmp_path])
    assert ([each.logged for each in found], failed, others) == ([100.0], [], [])


# Catches: a report of a folder that fails because the folder also holds an exported model.
def test_exported_model_is_no_run(trained, tmp_path):
    trained("ppo", "CartPole-v1", 1, 100.0)
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    found, failed, others = read([tmp_path])
    assert ([each.logged for each in found], failed, others) == ([100.0], [], [])


# Catches: a traceback for a finished run whose measure is NaN in all rows.
def test_run_without_a_finite_row_is_left_out(trained, tmp_path):
    trained("ppo", "CartPole-v1", 1, 400.0)
    empty = trained("ppo", "CartPole-v1", 2, 100.0) / "progress.csv"
    empty.write_text("steps,return_mean_100,wall_seconds\n250,nan,1\n500,nan,2\n")
    text = report([tmp_path], tmp_path / "page.md")[1].read_text()
    assert "1 finished run, seed 1," in text and "are left out: ppo in CartPole-v1: 1." in text


# Catches: diverged runs that are left out without a note, so that the result of the others looks like that of all.
def test_failed_runs_are_reported(trained, tmp_path):
    for seed, result in ((1, 400.0), (2, 100.0), (3, 100.0)):
        folder = trained("ppo", "CartPole-v1", seed, result)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "status": "failed"}))
    early = folder.with_name("early")                                     # failed before its first row
    early.mkdir()
    (early / "config.json").write_text(json.dumps({"algorithm": "sac", "config": {"env": "Pendulum-v1", "seed": 1}}))
    (early / "result.json").write_text(json.dumps({"status": "failed", "steps": 0}))
    text = report([tmp_path], tmp_path / "page.md")[1].read_text()
    assert "left out: sac in Pendulum-v1: 1; ppo in CartPole-v1: 1. The results of these algorithms are those" in text
    assert "Unfinished or repeated" not in text and "No run is selected" not in text


# Catches: a mean over all episodes so far, which includes the first ones; a first value from episodes that ended early,
# which may all be successes; a row without an episode.
def test_speed_of_learning_is_measured_over_recent_episodes(trained, tmp_path):
    folder = trained("ppo", "CartPole-v1", 1, 100.0, num_envs=4)
    columns = {"steps": [1, 2, 3, 4, 5, 6], "episodes": [4, 10, 10, 0, 10, 15],
               "return_mean": [500.0, 0.0, 10.0, np.nan, 20.0, 40.0], "return_mean_100": [1.0, 1, 1, 1, 1, 1]}
    rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (folder / "progress.csv").write_text("\n".join([",".join(columns), *rows]))
    (run,), *_ = read([tmp_path])
    steps, values = run.learning()
    assert steps.tolist() == [3, 5, 6] and values.tolist() == [5.0, 15.0, 32.0]
    assert [steps_to(run.learning(), x) for x in (15, 400)] == [5, None]
    run.about["config"]["num_envs"] = 100
    assert [x.tolist() for x in run.learning()] == [[6], [32.0]]


# Catches: E100 of some runs compared with R100 of others.
@pytest.mark.long
def test_training_returns_count_unless_all_runs_are_evaluated(trained, tmp_path):
    trained("ppo", "CartPole-v1", 1, 475.0, 22.2)
    trained("dqn", "CartPole-v1", 1, 22.2)
    html, markdown = report([tmp_path], tmp_path / "x.md")
    text = markdown.read_text()
    assert html.name == "x.html" and "The result of a run is R100" in text
    assert cells(text, "ppo")[0][2] == "1.00" and cells(text, "dqn")[0][2] == "0.00"


# Catches: test returns over gradient steps in a group with training returns over environment steps; a run without an
# evaluation that removes E100 from all environments.
@pytest.mark.long
def test_runs_with_different_measures_form_separate_groups(trained, tmp_path):
    trained("ppo", "CartPole-v1", 1, 300.0, 475.0)
    trained("ppo", "Pendulum-v1", 1, -500.0)
    other = trained("dqn", "CartPole-v1", 1, 475.0)
    for name in ("config.json", "result.json", "progress.csv"):
        (other / name).write_text((other / name).read_text().replace("return_mean_100", "test_return"))
    about = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**about, "unit": "gradient steps"}))
    runs, *_ = read([tmp_path])
    groups = grouped(runs)
    assert list(groups) == ["CartPole-v1, return over environment steps",
                            "CartPole-v1, test return over gradient steps", "Pendulum-v1"]
    assert [limits(here) for here in groups.values()] == [(22.2, 475), (22.2, 475), (-1229, -150)]
    text = report([tmp_path], tmp_path / "x.md")[1].read_text()
    assert "in CartPole-v1, return over environment steps. Elsewhere it is the last value" in text


# Catches: a short run that is stretched to the steps of a long one.
def test_sample_efficiency_has_one_step_axis_for_all_runs(trained, tmp_path):
    trained("ppo", "CartPole-v1", 1, 475.0)
    (run,), *_ = read([tmp_path])
    curve = on_grid([run.learning()], (0.0, 475.0), 2000)[0]
    assert curve[len(curve) // 2 + 1:] == pytest.approx(1) and curve[len(curve) // 4] < 0.6


# Catches: a line that continues, flat, after the last step of the algorithm.
def test_line_of_a_short_run_ends_at_its_last_step(trained, tmp_path, monkeypatch):
    trained("ppo", "CartPole-v1", 1, 475.0)
    short = trained("vpg", "CartPole-v1", 1, 475.0) / "result.json"
    short.write_text(short.read_text().replace('"steps": 1000', '"steps": 500'))
    drawn, banded = {}, pictures.banded
    monkeypatch.setattr(pictures, "banded", lambda axes, xs, measure, found, label, style: drawn.update(
        {label: xs[-1]}) or banded(axes, xs, measure, found, label, style))
    monkeypatch.setattr(pictures, "profiles", lambda name, *_: Picture(name, b"", ""))         # it calls `banded` too
    report([tmp_path], tmp_path / "x.html")
    assert drawn == {"ppo": 100, "vpg": pytest.approx(50, abs=2)}


# Catches: one average over runs with different settings; separate groups for settings that do not change a result.
def test_runs_with_different_settings_form_separate_groups(trained, tmp_path):
    for seed in (1, 2):
        trained("ppo", "CartPole-v1", seed, 100.0, clip_ratio=0.1)
        trained("ppo", "CartPole-v1", seed, 200.0, clip_ratio=0.3, threads=seed)
    runs, *_ = read([tmp_path])
    found = grouped(runs)["CartPole-v1"]
    assert {label: len(members) for label, members in found.items()} == {"ppo clip_ratio=0.1": 2,
                                                                         "ppo clip_ratio=0.3": 2}


# Catches: a setting that is missing in the command of a row, or that is written in a wrong form.
def test_command_of_a_row_contains_its_settings(trained, tmp_path):
    given = {"total_steps": 2000, "lr": 1e-5, "hidden": (8, 8), "anneal": False, "target_kl": 0.01, "init": "my runs/a"}
    folder = trained("ppo", "CartPole-v1", 1, 100.0, **given)
    words = shlex.split(command(read([tmp_path])[0][0].about, [2, 1], folder))
    assert words[:8] == ["spinup", "grid", "ppo", "--env", "CartPole-v1", "--seed", "1", "2"]
    config, _ = from_flags(find("ppo"), words[3:5] + words[8:])
    assert all(getattr(config, name) == value for name, value in given.items())
    assert words[8:].count("--lr") == 1 and "--gamma" not in words
    about = {"algorithm": "llm dqn", "config": {"task": "reverse", "seed": 1, "data": 8}}  # a number, not a dataset
    assert command(about, [1], folder) == "spinup llm dqn --task reverse --seed 1 --data 8"
    about = {"algorithm": "rainbow", "config": {"env": "CartPole-v1", "seed": 1, "sigma": 0.5, "epsilon": 0.1}}
    assert command(about, [1], folder) == "spinup rainbow --env CartPole-v1 --seed 1 --sigma 0.5"     # no epsilon
    about = {"algorithm": "llm grpo", "config": {"task": ["a list", "of prompts"], "seed": 1}}
    assert command(about, [1], folder) == ""


# Catches: a dataset that is missing in the command of an offline run, so that a report fails.
def test_command_of_an_offline_run_contains_its_dataset():
    about = {"algorithm": "bc", "config": {"env": "CartPole-v1", "data": "/gone.npz", "seed": 1, "batch_size": 8}}
    assert command(about, [1], Path("x")) == "spinup bc --env CartPole-v1 --data /gone.npz --seed 1 --batch-size 8"


@pytest.mark.long
def test_environment_without_a_suite_is_scaled_by_its_own_results(trained, tmp_path):
    trained("ppo", "FrozenLake-v1", 1, 0.2, 0.2)
    trained("dqn", "FrozenLake-v1", 1, 0.7, 0.7)
    text = report([tmp_path], tmp_path / "x.html")[1].read_text()
    assert cells(text, "ppo")[0][2] == "0.00" and cells(text, "dqn")[0][2] == "1.00"


def test_errors_contain_advice(trained, tmp_path):
    trained("ppo", "CartPole-v1", 1)
    with pytest.raises(UserError, match="is finished; give folders with finished runs"):
        report([tmp_path])
    with pytest.raises(UserError, match=r"--out .* cannot be written; give a name that ends in .html or .md"):
        report([tmp_path], tmp_path / "x.pdf")
    with pytest.raises(UserError, match=r"--out .* cannot be written"):
        report([tmp_path], Path("/proc/x.html"))
    assert [path.name for path in tmp_path.iterdir()] == ["ppo_CartPole-v1"]


# Catches: a name from the user that becomes HTML; a cell that splits a row of Markdown.
def test_text_is_escaped_in_html_and_markdown():
    page = Page("a <b>")
    page.table([("x|y", "`z < 1`"), ("1", "2")])
    assert "<h1>a &lt;b&gt;</h1>" in page.html() and "<code>z &lt; 1</code>" in page.html()
    assert "| x\\|y | `z < 1` |" in page.markdown("p")
    page.pictures(Picture("iqm", b"", "mean of [0, 1]"))
    assert r"![mean of \[0, 1\]](my%20page_pictures/iqm.png)" in page.markdown("my page_pictures")
