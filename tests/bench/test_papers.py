"""Experiments of papers: what counts as solved, the goals of their tables, and their pictures."""
import importlib
import json

import numpy as np
import pytest

import spinup
from spinup.arena.players import scripted
from spinup.bench import process
from spinup.bench.papers import bandits, chain, doorkey, more_bandits, noisy_tv, paper, self_play, spinning_up
from spinup.bench.papers.paper import Line, Paper, check_picture, find_papers, run, show
from spinup.bench.process import in_turn
from spinup.bench.process import spinup as spinup_command
from spinup.cli.bench import paper as paper_command
from spinup.errors import UserError
from tests.bench.conftest import finished_run


def chain_run(folder, n, perfect_from, *, episodes=250, hits=0):
    """A run on the chain, tested after each episode."""
    numbers = range(1, episodes + 1)
    return finished_run(folder, steps=[i * (n + 9) for i in numbers],
                 test_return=[12.0 if i >= perfect_from else 0.01 for i in numbers],
                 return_max=[1.0 if i <= hits else 0.01 for i in numbers])


@pytest.mark.parametrize("perfect_from, since", [(80, 80), (150, 150), (151, float("inf")), (300, float("inf"))])
def test_chain_is_solved_if_perfect_to_the_end_for_a_hundred_episodes(perfect_from, since, tmp_path):
    assert chain.solved(chain_run(tmp_path / "a", 40, perfect_from, hits=3), 40) == (since, 3)


def test_chain_with_a_late_failure_is_not_solved(tmp_path):
    folder = chain_run(tmp_path / "a", 40, 1)
    text = (folder / "progress.csv").read_text().splitlines()
    text[200] = text[200].replace("12.0", "11.0")                         # once, 50 episodes before the end
    (folder / "progress.csv").write_text("\n".join(text) + "\n")
    assert chain.solved(folder, 40)[0] == float("inf")


@pytest.mark.parametrize("late, hits, parked, met", [
    (1, 0, -0.1, True), (2, 0, -0.1, False), (0, 1, -0.1, False), (0, 0, 3.0, False)])
def test_chain_goals_are_nine_of_ten_seeds_and_no_action_hit(late, hits, parked, met, tmp_path, monkeypatch, capsys):
    def made(n, kind, seed, log_dir):
        folder = log_dir / f"{n}_{kind}_{seed}"
        if kind == "parameters":
            return chain_run(folder, n, 200 if seed <= late else 90)
        return chain_run(folder, n, 1000, hits=hits if kind == "actions" and seed == 3 else 0)

    monkeypatch.setattr(chain, "one", made)
    def stored(algorithm, env, seed, log_dir, *flags, label):
        return finished_run(log_dir / label)
    monkeypatch.setattr(chain, "run", stored)
    monkeypatch.setattr(chain, "e100", lambda folder: {"parameters": 93.0, "actions": parked}[folder.name])
    paper, folders = chain.measure(chain.SEEDS, 2, tmp_path)
    assert show("chain", paper, folders, tmp_path / "chain.png", tmp_path / "chain.json") == (0 if met else 1)
    saved = json.loads((tmp_path / "chain.json").read_text())
    assert saved["met"] is met and saved["chain"]["40"]["permuted"][0]["solved_from_episode"] is None
    assert (tmp_path / "chain.png").read_bytes().startswith(b"\x89PNG")
    assert "solved within 150 episodes, of 10" in capsys.readouterr().out


@pytest.mark.parametrize("bored, met", [(0.4, True), (0.46, False)])
def test_pixel_agents_must_watch_the_tv_twice_as_long(bored, met, tmp_path, monkeypatch):
    def made(algorithm, env, seed, log_dir, *flags, label):
        watching = [0.5] * 5 + [{"pixels": 0.9, "rnd": bored, "inverse": 0.1}.get(label, 0.5)] * 5
        return finished_run(log_dir / f"{label}{seed}", steps=range(10), watching=watching, cells=[20.0] * 10)

    monkeypatch.setattr(noisy_tv, "run", made)
    paper, folders = noisy_tv.measure((1, 2), 1, tmp_path)
    assert all(line.met for line in paper.lines) is met
    assert paper.lines[0].ours == 0.5 and len(folders) == 8


def test_policy_without_memory_gets_the_return_of_chance(tmp_path):
    """The policy repeats an arm that had a reward, and otherwise takes the next one. The first observation has no last
    arm."""
    class WinStay:
        env_settings = {"episodes": 10}

        def act_batch(self, obs):
            last, earned = obs[:, 1:6].argmax(1), obs[:, 6:11].any(1)
            return np.where(earned, last, (last + 1) % 5)

    wiped, kept, once = (bandits.rewards(WinStay(), "Bandits-5x10-v0", pulls) for pulls in (range(10), (), (5,)))
    assert sum(wiped) == pytest.approx(5, abs=0.1) and sum(kept) > 5.8
    assert once[:5] == kept[:5] and once[5] == pytest.approx(0.5, abs=0.03) and once[9] > 0.55


# Catches: the return of one seed, or of the strategies, in place of the mean over seeds; exchanged numbers of arms and
# pulls.
@pytest.mark.parametrize("found, met", [((6.50, 6.66), True), ((6.50, 6.62), False)])
def test_more_bandits_goal_is_98_percent_of_the_paper(found, met, tmp_path, monkeypatch):
    def made(algorithm, env, seed, log_dir, *flags):
        return finished_run(log_dir / f"{env}_s{seed}", steps=[1])
    monkeypatch.setattr(more_bandits, "run", made)
    monkeypatch.setattr(more_bandits, "TABLE", {"Bandits-10x10-v0": more_bandits.TABLE["Bandits-10x10-v0"]})
    monkeypatch.setattr(more_bandits, "evaluate", lambda folder: found[int(folder.name[-1]) - 1])
    shown, folders = more_bandits.measure((1, 2), 1, tmp_path)
    lines = {line.what.removeprefix("Bandits-10x10-v0: "): line for line in shown.lines}
    assert lines["RL², mean of the seeds"].met is met and len(folders) == 2
    # The numbers of the paper have one decimal; these strategies have no settings.
    assert all(abs(lines[name].ours - float(lines[name].paper)) < 0.1 for name in ("random", "greedy"))


@pytest.mark.long
def test_random_actions_open_no_door_and_see_few_rooms():
    success, cells = doorkey.at_random(doorkey.DOOR)
    assert success < 0.05 and 5 < cells < 40
    assert 3 < doorkey.at_random(doorkey.ROOMS)[1] < 9                    # of the first room


# Catches: a module without a docstring; two experiments with the same title, so that --help does not distinguish them.
def test_every_paper_has_a_measure_function_and_a_unique_title():
    titles = [paper.title_of(name) for name in find_papers()]
    assert all(titles) and len({*titles}) == len(titles)
    for name in find_papers():
        module = importlib.import_module(f"spinup.bench.papers.{name.replace('-', '_')}")
        assert module.SEEDS and callable(module.measure)


def test_finished_run_is_kept_stopped_run_resumes_and_other_is_refused(tmp_path, monkeypatch, here):
    monkeypatch.setattr(process, "spinup", here)
    arguments = ("es", "CartPole-v1", 1, tmp_path, "--total-steps", "2000", "--pairs", "4")
    folder = run(*arguments, label="short")
    assert folder.name == "paper_es_short_CartPole-v1_s1"
    before = (folder / "progress.csv").stat().st_mtime_ns
    assert run(*arguments, label="short") == folder and (folder / "progress.csv").stat().st_mtime_ns == before
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "status": "interrupted"}))
    run(*arguments, label="short")
    assert json.loads((folder / "result.json").read_text())["status"] == "finished"
    with pytest.raises(UserError, match="is a run with total_steps 2000, not 3000; choose another --log-dir"):
        run("es", "CartPole-v1", 1, tmp_path, "--total-steps", "3000", "--pairs", "4", label="short")


# Catches: a command whose failure is not noticed, or whose error message is lost.
def test_command_runs_in_its_own_process_and_its_error_is_passed_on():
    assert "spinup ALGORITHM" in spinup_command("--help")
    with pytest.raises(UserError, match="`spinup algo` failed: .*Did you mean 'algos'"):
        spinup_command("algo")


# Catches: a folder that begins with a dash, where the command takes it for a flag.
def test_name_of_a_folder_may_begin_with_a_dash(tmp_path, monkeypatch):
    def spinup(*words):
        asked.extend(words)
        return '{"mean": 5.0}'

    asked = []
    monkeypatch.chdir(tmp_path)
    for module in (paper, process):
        monkeypatch.setattr(module, "spinup", spinup)
    assert paper.e100(run("ppo", "CartPole-v1", 1, paper.Path("-runs"))) == 5.0
    assert f"--log-dir={paper.Path('-runs')}" in asked and not [word for word in asked if word.startswith("-runs")]


# Catches: results of one kind under another one; results in the order in which the jobs end.
def test_results_are_grouped_by_kind_in_the_order_of_the_seeds():
    found = paper.by_kind("ab", (3, 1), 2, lambda kind, seed: f"{kind}{seed}")
    assert found == {"a": ["a3", "a1"], "b": ["b3", "b1"]} and paper.together(found) == ["a3", "a1", "b3", "b1"]


# Catches: a bound that is missed by equality; a goal that counts as met without a number.
def test_goal_includes_its_bound_and_nan_misses_it():
    for line, word in ((paper.at_least, ">="), (paper.at_most, "<=")):
        assert line("x", 475.0, 475) == Line("x", "", 475.0, f"{word} 475", True)
        assert not line("x", float("nan"), 475).met
    assert not paper.at_least("x", 0.89, 0.9).met and not paper.at_most("x", 0.31, 0.3).met


# Catches: a mean that is not at the x value of its last row; a legend entry for each run.
def test_curves_of_runs_share_a_label_and_are_averaged(tmp_path):
    from matplotlib.figure import Figure
    folders = [finished_run(tmp_path / name, steps=[10, 20, 30], cells=[0.0, 2.0, 7.0]) for name in "ab"]
    axes = Figure().add_subplot()
    paper.plot_runs(axes, folders, "steps", "cells", "ours", scale=10, rows=2)
    assert axes.lines[1].get_xydata().tolist() == [[2.0, 1.0], [3.0, 4.5]] and len(axes.lines) == 2
    assert axes.get_legend_handles_labels()[1] == ["ours"]


def test_results_have_the_order_of_the_jobs():
    assert in_turn(lambda x: -x, range(5), 3) == [0, -1, -2, -3, -4]


# Catches: a job that starts after another one has failed; the message of an error that is not the first.
def test_no_further_run_starts_after_an_error():
    begun = []

    def fails(x):
        begun.append(x)
        raise UserError(f"{x} failed")
    for workers in (1, 2):
        begun.clear()
        with pytest.raises(UserError, match="0 failed"):
            in_turn(fails, range(9), workers)
        assert len(begun) <= workers


@pytest.mark.parametrize("picture", ["nowhere/a.png", "a.svg", "folder.png", "same.png", f"{'a' * 250}.png"])
def test_picture_that_cannot_be_written_is_refused_before_the_runs(picture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UserError, match="--picture .* cannot be written; give "):
        check_picture(chain.Path(picture), chain.Path("same.png"))
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]


def test_number_without_a_goal_is_never_missed(tmp_path, capsys):
    folder = finished_run(tmp_path / "a", steps=[1])
    paper = Paper("T", [Line("known", "5", 4.5), Line("promised", "", 7, ">= 6", True)], lambda figure: None)
    assert show("t", paper, [folder], tmp_path / "t.png", None) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["lines"][1]["met"]


# Catches: a result file without the command and the seeds that made it.
def test_result_file_of_an_experiment_contains_its_command(tmp_path, monkeypatch):
    found = Paper("T", [Line("known", "5", 4.5)], lambda figure: None, {"mine": 1})
    monkeypatch.setattr(chain, "measure", lambda seeds, workers, log_dir: (found, [finished_run(tmp_path / "a")]))
    out = tmp_path / "t.json"
    assert paper_command(["chain", "--seeds", "3", "4", "--picture", str(tmp_path / "t.png"), "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    assert result["command"] == "spinup bench paper chain --seeds 3 4" and result["mine"] == 1


# Catches: exchanged seats or sides; a missing version, or missing steps of a version; a score that depends on the order
# of the players.
@pytest.mark.long
def test_results_of_players_are_counted_by_seat_and_by_version(tmp_path):
    quick = {"num_envs": 32, "hidden": (32,), "log_dir": tmp_path.as_posix(), "quiet": True, "tensorboard": False}
    one = spinup.self_play("TicTacToe-v0", total_steps=20 * 1024, versions=12, lr=3e-3, **quick)
    found = self_play.against_scripted("tictactoe", one.directory)
    assert [sum(seat[name]) for seat in found for name in ("random", "minimax")] == [self_play.GAMES // 2] * 4
    assert found[0]["random"][0] > found[1]["random"][0] and found[1]["minimax"][0] == found[0]["minimax"][0] == 0
    steps, ratings = self_play.rating_over_training("tictactoe", one.directory)
    assert steps[0] == 0 and steps[-1] == 20 * 1024 and steps == sorted(steps) and len(ratings) == 10
    assert max(ratings[-3:]) > ratings[0]
    other = spinup.self_play("TicTacToe-v0", total_steps=1024, seed=2, **quick)
    ours, theirs = (np.mean(self_play.match("tictactoe", *pair)) for pair in (
        (one.directory, other.directory), (other.directory, one.directory)))
    assert ours > 0.55 and ours + theirs == pytest.approx(1, abs=0.08)


# Catches: a missing seat; a reply that is not tried; a win that counts for the other player.
@pytest.mark.long
def test_all_lines_of_play_are_counted():
    lines = [{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {0, 3, 6}, {1, 4, 7}, {2, 5, 8}, {0, 4, 8}, {2, 4, 6}]

    def lost(mine, theirs, my_turn):
        """The number of games that a player loses if it always takes the first free square, over all replies."""
        left = sorted(set(range(9)) - mine - theirs)
        if not left or any(line <= mine or line <= theirs for line in lines):
            return int(any(line <= theirs for line in lines))
        if my_turn:
            return lost(mine | {left[0]}, theirs, False)
        return sum(lost(mine, theirs | {move}, True) for move in left)

    assert self_play.lines_that_beat(lambda observation, legal, rng: legal.argmax(1)) == (
        lost(set(), set(), True) + lost(set(), set(), False))
    assert self_play.lines_that_beat(scripted("tictactoe")["minimax"]) == 0


# Catches: a met goal although our return is above the published curve; the interval of the published seeds in place of
# ours; the settings of one algorithm for both; the settings of a preset.
@pytest.mark.parametrize("returns, met", [((340, 391, 450), True), ((480, 490, 500), False), ((390,), True),
                                          ((480,), False)])
def test_published_return_must_lie_in_our_interval(returns, met, tmp_path, monkeypatch):
    asked = []

    def made(algorithm, env, seed, log_dir, *flags):
        asked.append((algorithm, flags))
        curve = spinning_up.PUBLISHED[algorithm, env][0]
        curve = (*curve[:9], returns[seed - 1]) if (algorithm, env) == ("vpg", "Hopper-v5") else curve
        return finished_run(log_dir / f"{algorithm}_{env}_{seed}", steps=range(4000, 1_000_001, 4000),
                     return_mean=[curve[min(round(update / 25) - 1, 9)] for update in range(1, 251)])

    monkeypatch.setattr(spinning_up, "run", made)
    seeds = tuple(range(1, len(returns) + 1))
    paper, folders = spinning_up.measure(seeds, 1, tmp_path)
    assert show("spinning-up", paper, folders, tmp_path / "x.png", tmp_path / "x.json") == (0 if met else 1)
    missed = [line.what for line in paper.lines if not line.met]
    assert missed == ([] if met else ["vpg, Hopper-v5: return after 1,000,000 steps",
                                      "vpg, Hopper-v5: published points in our range, of 10"])
    found = json.loads((tmp_path / "x.json").read_text())["vpg Hopper-v5"]
    assert found["returns"][9] == list(returns) and found["seconds"] == [1.0] * len(returns)
    assert ("--lr" in dict(asked)["vpg"]) and "--lr" not in dict(asked)["trpo"]
    assert all("none" in flags for _, flags in asked) and len(asked) == 4 * len(returns)


# Catches: a mean that divides by the whole window at the ends of a run; rows without an episode that make other rows
# NaN.
def test_curves_are_averaged_over_existing_updates(tmp_path):
    folder = finished_run(tmp_path / "a", steps=range(4000, 80_001, 4000), return_mean=[float("nan"), *range(2, 21)])
    steps, returns = spinning_up.smoothed(folder)
    assert steps[0] == 8000 and steps[-1] == 80_000
    assert returns[0] == np.mean(range(2, 8)) and returns[9] == 11 and returns[-1] == np.mean(range(15, 21))
