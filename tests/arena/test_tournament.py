"""Tournaments: players of known strength, resumed tournaments, and the commands."""
import io
import json
import math
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from filelock import FileLock
from scipy.stats import spearmanr

from spinup.arena.command import arena, gather, runs_in
from spinup.arena.players import Player, random_moves
from spinup.arena.show import write
from spinup.arena.tournament import Record, hold, play, tournament
from spinup.bench.papers.self_play import TRUTH, simulate
from spinup.core.ratings import MEAN
from spinup.envs.worlds.boards import ConnectFour, TicTacToe
from spinup.errors import UserError

RESULTS = {"names": ["a", "b"], "versions": ["1", "2"], "scores": [[0, 1], [0, 0]], "begun": [[0, 1], [0, 0]],
           "elo": [1210, 1190], "faults": [{}, {}]}


# Catches: uninformative matches; results that are stored for the wrong player; an Elo update that changes the mean
# rating.
def test_twelve_players_of_known_strength_are_ranked():
    record = simulate(0, 60)
    assert spearmanr(TRUTH, record.strengths().rating)[0] >= 0.9 and spearmanr(TRUTH, record.elo)[0] >= 0.8
    assert abs(record.elo.mean() - MEAN) < 1e-6
    assert record.games.min() >= 60 and record.games.max() < 90
    assert np.abs(record.begun.sum(1) - record.begun.sum(0)).max() <= 8


# Catches: confidence intervals that are wrong because the ratings determine the matches.
@pytest.mark.long
def test_intervals_have_their_coverage_when_matches_depend_on_ratings():
    found = [simulate(seed).strengths() for seed in range(40)]            # 200 in `spinup bench paper self-play`
    assert 0.9 <= np.mean([(s.low <= TRUTH) & (s.high >= TRUTH) for s in found]) <= 0.98


def test_tournament_resumes_and_a_changed_player_starts_again(tmp_path):
    file, said = tmp_path / "games.json", []
    players = [Player(name, random_moves, "1") for name in "abc"]

    def go_on(games):
        return hold(TicTacToe, players, games, 5, 0, file, said.append, lambda record: None)

    one = go_on(20)
    assert one.games.min() >= 20 and not said
    two = go_on(20)
    np.testing.assert_array_equal(two.scores, one.scores)                 # nothing is left to play
    assert said == [f"resuming with {one.begun.sum()} games from {file}"]
    three = go_on(40)
    assert three.games.min() >= 40 and (three.scores >= one.scores).all() and (three.begun >= one.begun).all()
    players[1].version = "2"
    players.append(Player("d", random_moves))
    four = go_on(40)
    assert said[-1] == "b has changed since then and starts again without games"
    assert four.games.min() >= 40 and abs(four.elo.mean() - MEAN) < 1e-9
    kept = three.begun[np.ix_([0, 2], [0, 2])]
    assert (four.begun[np.ix_([0, 2], [0, 2])] >= kept).all()


def test_absent_player_keeps_its_games_and_its_rating(tmp_path):
    file, players = tmp_path / "games.json", [Player(name, random_moves, name) for name in "abc"]
    before = hold(TicTacToe, players, 20, 5, 0, file, print,
                  lambda record: players[1].faults.update({"did not answer": 1}))    # the last is not in the file
    here = [players[2], players[0]]
    record = hold(TicTacToe, here, 40, 5, 0, file, print, lambda record: None)
    assert record.names == ["c", "a", "b"] and record.begun[:2, :2].sum() > before.begun[::2, ::2].sum()
    np.testing.assert_array_equal(record.scores[2], before.scores[1, [2, 0, 1]])
    row = next(row for row in write(record, here, "tictactoe", tmp_path) if row["name"] == "b")
    assert row["games"] == before.games[1] and row["forfeited"] == players[1].faults.total() - 1
    assert row["notes"] == f"did not answer ({row['forfeited']} games); absent this time"
    again = hold(TicTacToe, players, 40, 5, 0, file, print, lambda record: None)
    assert again.games[1] >= 40 and again.scores[1, 2] >= before.scores[1, 2]


def test_results_are_saved_after_every_match(tmp_path, monkeypatch):
    file, players = tmp_path / "games.json", [Player(name, random_moves) for name in "ab"]
    seen = []

    def after(record):
        seen.append(int(record.begun.sum()))
        assert json.loads(file.read_text())["begun"] == record.begun.tolist()
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hold(TicTacToe, players, 100, 5, 0, file, print, after)
    assert seen == [5, 10, 15]
    assert hold(TicTacToe, players, 15, 5, 0, file, print, lambda record: None).begun.sum() == 15


# Catches: lost games of a renamed player; a changed player that is taken for the one whose name it now has; two players
# with the same code that are taken for one.
def test_renamed_player_keeps_its_games():
    record = Record.empty(["mine", "x @5k", "x", "yours"], ["1", "2 @5000", "2", "3"])
    record.add(0, 1, [1.0] * 3)
    record.add(2, 3, [0.5] * 5)
    names = ["ann/mine", "bob/mine", "y", "y @5k", "mine", "yours"]
    moved, changed = record.for_players(names, ["1", "1", "2", "2 @5000", "5", "4"])
    assert moved.names == names and changed == ["yours"]
    assert moved.games.tolist() == [3, 0, 0, 3, 0, 0] and moved.scores[0, 3] == 3
    back, changed = moved.for_players(["mine"], ["1"])
    assert back.names == ["mine", "bob/mine", "y", "y @5k", "yours"] and back.scores[0, 3] == 3 and not changed


# Catches: a player whose games are lost because another player now has its name.
def test_player_whose_name_another_player_takes_keeps_its_games():
    record = Record.empty(["a", "b"], ["1", "2"])
    record.add(0, 1, [1.0] * 3)
    moved, changed = record.for_players(["b"], ["1"])
    assert moved.names == ["b", "b (earlier 1)"] and moved.versions == ["1", "2"] and not changed
    assert moved.scores.tolist() == [[0, 3], [0, 0]]


@pytest.mark.parametrize("text", ["{}", "[1]", '{"names": 3}', "{", *(json.dumps(RESULTS | part) for part in (
    {"names": [1, 2]}, {"names": ["a", "a"]}, {"versions": [None, 3]}, {"elo": [1200, math.nan]}, {"faults": [5, {}]},
    {"faults": [{"late": "x"}, {}]}, {"begun": [[0, -1], [1, 0]], "scores": [[0, 0], [0, 0]]},
    {"scores": [[0, 9], [0, 0]]}, {"scores": [[0, math.nan], [0, 0]]}, {"versions": ["1"]}, {"names": ["a"]},
    {"faults": []}, {"scores": [[0, 0]]}, {"begun": [0, 0]}, {"elo": [1200]}))])
def test_file_without_valid_results_is_refused_and_unchanged(text, tmp_path):
    file = tmp_path / "games.json"
    file.write_text(text)
    with pytest.raises(UserError, match="games.json"):
        hold(TicTacToe, [Player(name, random_moves) for name in "ab"], 5, 5, 0, file, print, lambda record: None)
    assert file.read_text() == text


def check_sentence(done, words: str) -> None:
    assert done.code == 2 and done.err.count("\n") == 1 and words in done.err


# Catches: the result of one seat that is assigned to the other; games that continue after their end.
def test_winner_gets_the_points_and_an_excluded_player_plays_no_game():
    def low(observation, legal, rng):
        return legal.argmax(1)

    def high(observation, legal, rng):
        return legal.shape[1] - 1 - legal[:, ::-1].argmax(1)

    rng = np.random.default_rng(0)
    for one, other in (low, high), (high, low):                           # the first player completes a column first
        assert play(ConnectFour(3), Player("one", one), Player("other", other), rng) == [1.0] * 3
    record = tournament(Record.empty(list("abc"), [""] * 3), lambda i, j, n, rng: [1.0] * n, 10, 2, rng,
                        out=lambda i: i == 1)
    assert record.games.tolist() == [10, 0, 10]


class Page(HTMLParser):
    """The contents of a page: its words, and all addresses that it would fetch."""

    def __init__(self, text):
        super().__init__()
        self.words, self.fetched, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.fetched += [v for k, v in attrs if k in ("src", "href") and not v.startswith("data:")]

    def handle_data(self, data):
        self.words.append(data)


def test_page_fetches_nothing_and_escapes_names(tmp_path):
    names = ["<script>alert(1)</script>", "good & fair"]
    players = [Player(name, random_moves) for name in names]
    record = hold(TicTacToe, players, 10, 5, 0, tmp_path / "games.json", print, lambda record: None)
    rows = write(record, players, "tictactoe", tmp_path)
    text = (tmp_path / "arena.html").read_text()
    page = Page(text)
    assert not page.fetched and "<script" not in text and all(name in page.words for name in names)
    assert (tmp_path / "arena.png").read_bytes().startswith(b"\x89PNG")
    saved = json.loads((tmp_path / "ratings.json").read_text())["players"]
    assert saved == rows and {row["name"] for row in rows} == set(names)
    assert sum(row["rating"] for row in rows) == pytest.approx(2 * MEAN)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short self-play run with three earlier versions."""
    import spinup as library
    return library.self_play("TicTacToe-v0", total_steps=8192, num_envs=32, rollout_steps=32, versions=3, hidden=(32,),
                             log_dir=tmp_path_factory.mktemp("runs").as_posix(), quiet=True, tensorboard=False)


# Catches: a version that plays with the weights of another or is rated at its steps; a last version that is not the
# final policy.
def test_earlier_versions_play_with_their_own_weights(trained):
    players = gather([trained.directory], "tictactoe", "TicTacToe-v0", 3, 1, 512)
    assert [p.name for p in players[:2]] == ["random", "minimax"]
    assert [p.steps for p in players[2:]] == [0, 2048, 5120, 8192]
    board, rng = TicTacToe(4000), np.random.default_rng(0)
    final = trained.policy.module
    shares = [np.bincount(p.moves(board.observe(), board.legal(), rng), minlength=9) / 4000 for p in players[2:]]
    obs = torch.cat([torch.zeros(18), torch.ones(9)])
    np.testing.assert_allclose(shares[-1], final.pi(obs).softmax(-1).detach().numpy(), atol=0.03)
    np.testing.assert_allclose(shares[0], np.full(9, 1 / 9), atol=0.03)
    assert np.abs(shares[2] - shares[0]).max() > 0.03


@pytest.mark.long
def test_command_holds_a_tournament_with_all_kinds_of_players(trained, cli, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def act(observation, mask):\n    print('hm')\n    return int(mask.argmax())\n")
    bad = tmp_path / "bad.py"
    bad.write_text("def act(observation, mask):\n    raise ValueError('no idea')\n")
    out = tmp_path / "out"
    line = ["arena", str(trained.directory.parent), str(file), str(bad), "--games", "20", "--versions", "2", "--out",
            str(out)]
    found = cli(*line)
    assert found.code == 0 and "bad: out: raised ValueError: no idea (3 games)" in found.out
    assert "mine: printed " in found.out
    rows = {row["name"]: row for row in json.loads((out / "ratings.json").read_text())["players"]}
    name = trained.directory.name.replace("_TicTacToe-v0", "")
    assert set(rows) == {"random", "minimax", "mine", "bad", f"{name} @0", f"{name} @5.12k", name}
    assert rows["minimax"]["rating"] > rows["random"]["rating"] > rows["bad"]["rating"]
    assert all(row["games"] >= 20 for row in rows.values() if row["name"] != "bad")
    assert rows["bad"]["notes"].startswith("out: raised ValueError") and rows["bad"]["score"] == 0
    assert "resuming with" in cli(*line).out and json.loads((out / "ratings.json").read_text())["players"]


# Catches: ambiguous names of players; another player of the same name, with which the others lose their games.
@pytest.mark.long
def test_players_of_the_same_name_get_the_names_of_their_folders(cli, tmp_path):
    files = [tmp_path / folder / "mine.py" for folder in ("ann", "bob", "old/bob")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text(f"def act(observation, mask):\n    return int(mask.argmax())  # {file}\n")
    for n, names in enumerate((["mine"], ["ann/mine", "bob/mine"],
                               ["ann/mine", f"{tmp_path.name}/bob/mine", "old/bob/mine"]), 1):
        found = cli("arena", *files[:n], "--game", "tictactoe", "--games", 20 * n)
        assert found.code == 0 and "starts again" not in found.out
        rows = json.loads((tmp_path / "arena/ratings.json").read_text())["players"]
        assert {row["name"] for row in rows} == {"random", "minimax", *names}
        assert f">{names[-1]}<" in (tmp_path / "arena/arena.html").read_text()
    (tmp_path / "random.py").write_text((tmp_path / "ann/mine.py").read_text())
    players = gather([tmp_path / "random.py", *[tmp_path / "ann/mine.py"] * 2], "tictactoe", "", 0, 1, 512)
    assert [p.name for p in players] == ["random", "minimax", f"{tmp_path.name}/random", "mine", "mine (2)"]
    for player in players:
        player.close()


# Catches: one line in the plot for two runs; earlier versions without the name of their run.
def test_runs_of_the_same_name_get_the_names_of_their_folders(trained, tmp_path):
    import shutil

    run = trained.directory
    other = shutil.copytree(run.parent, tmp_path / run.parent.name) / run.name
    players = gather([run, other], "tictactoe", "TicTacToe-v0", 1, 1, 512)[2:]
    name = run.name.replace("_TicTacToe-v0", "")
    ends = [f"{folder.parent.parent.name}/{folder.parent.name}/{name}" for folder in (run, other)]
    assert [p.name for p in players] == [ends[0] + " @0", ends[0], ends[1] + " @0", ends[1]]
    assert [p.family for p in players] == [ends[0], ends[0], ends[1], ends[1]]


# Catches: symbolic links to runs that do not count as runs.
def test_folder_of_links_to_runs_holds_these_runs(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "config.json").write_text('{"algorithm": "self_play"}')
    (tmp_path / "league").mkdir()
    (tmp_path / "league" / "one").symlink_to(tmp_path / "there")
    assert runs_in(tmp_path / "league") == [tmp_path / "league" / "one"]


def test_person_can_play_in_the_terminal(trained, cli, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("5\n5\nhello\nq\n"))
    found = cli("play", "minimax", "--game", "tictactoe")
    assert found.code == 0 and found.out.count("Type one of") == 2 and "X" in found.out and "O" in found.out
    assert found.out.count("Your move") == 4                              # one, and three after minimax's move
    monkeypatch.setattr("sys.stdin", io.StringIO(("\n".join("123456789") + "\n") * 4 + "q\nq\n"))
    found = cli("play", trained.directory)
    assert found.code == 0 and " won, " in found.out


# Catches: a traceback if standard input is closed.
@pytest.mark.parametrize("command", [["play", "minimax", "--game", "tictactoe"], ["llm", "chat", "runs/x"]])
def test_closed_standard_input_gives_one_sentence(command, cli, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    found = cli(*command)
    assert found.code == 2 and "reads standard input, which is closed; run it in a terminal" in found.err


def test_end_of_the_input_ends_the_game(cli, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    found = cli("play", "minimax", "--game", "tictactoe")
    assert found.code == 0 and found.out.endswith("The input ended, so the game is over.\n")


# Catches: advice that leads to another error.
def test_run_without_a_game_is_refused(cli, tmp_path):
    import spinup as library
    settings = {"total_steps": 512, "num_envs": 2, "rollout_steps": 32, "quiet": True, "tensorboard": False}
    folder = library.ppo("CartPole-v1", **settings, log_dir=str(tmp_path), exp_name="cp").directory
    for line in (["arena", "cp"], ["play", "cp"], ["arena", "cp", "--game", "tictactoe"],
                 ["play", "cp", "--game", "tictactoe"]):
        code, _, err = cli(*line)
        assert code == 2 and err == ("spinup: cp/cp_s1 is a run of ppo in CartPole-v1, which is not a two-player "
                                     "game; give a self_play run\n")
    data = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(data | {"algorithm": "llm grpo", "config": {"task": "reverse"}}))
    assert "cp/cp_s1 is a run of llm grpo without a game; give" in cli("arena", "cp").err
    assert not (tmp_path / "arena").exists()


def test_results_need_a_writable_folder(cli, tmp_path):
    (tmp_path / "arena/arena.html").mkdir(parents=True)
    found = cli("arena", "--game", "tictactoe", "--games", "10")
    assert found.code == 2 and found.err == "spinup: arena/arena.html is a folder; remove it, or choose another --out\n"
    check_sentence(cli("arena", "--game", "tictactoe", "--out", "/proc/x"), "--out /proc/x cannot be written to")
    check_sentence(cli("arena", "--game", "tictactoe", "--batch", "1e9"), "--batch must be from 1 to 65536")
    (tmp_path / "mine.py").write_text("")
    found = cli("arena", "--game", "tictactoe", "--out", "mine.py")
    assert found.code == 2 and found.err == ("spinup: --out mine.py cannot be written to; choose a folder that you can "
                                             "write to, such as --out results\n")


@pytest.mark.parametrize("line, words", [
    (["arena"], "no game is given; type --game tictactoe"),
    (["arena", "--game", "tictacto"], "Did you mean 'tictactoe'"),
    (["arena", "nobody.py", "--game", "tictactoe"], "nobody.py cannot be read"),
    (["arena", "--game", "tictactoe", "--seconds", "0"], "--seconds must be above 0"),
    (["arena", "runs/nothing"], "there is no runs/nothing; give the folder of a self_play run"),
    (["play", "runs/nothing"], "there is no runs/nothing; give the folder of a self_play run"),
    (["play", "minimax"], "no game is given; type --game tictactoe"),
    (["play", "minmax", "--game", "tictactoe"], "Did you mean 'minimax'"),
    (["play", "random", "--game", "classic/chess-v6"], "cannot be shown in a terminal")])
def test_wrong_arguments_get_an_error_with_what_to_type(line, words, cli, tmp_path):
    found = cli(*line)
    assert found.code == 2 and words in found.err and len(found.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_run_in_another_environment_is_refused(trained, tmp_path):
    with pytest.raises(UserError, match="was trained in TicTacToe-v0, not in ConnectFour-v0"):
        arena([trained.directory], game="connect_four", games_each=5, batch=5, versions=1, seconds=1, memory_mb=512,
              seed=0, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Catches: a traceback for an observation without the frames that the network expects.
def test_run_with_several_frames_is_refused(tmp_path):
    import spinup as library
    short = {"env": "TicTacToe-v0", "total_steps": 64, "num_envs": 2, "rollout_steps": 16, "minibatches": 1,
             "quiet": True, "tensorboard": False, "log_dir": tmp_path.as_posix(), "frame_stack": 2}
    run = library.ppo(**short).directory
    with pytest.raises(UserError, match="was trained with --frame-stack, which a tournament does not support"):
        gather([run], "tictactoe", "TicTacToe-v0", 3, 1, 512)
    with pytest.raises(UserError, match="self_play sees one position at a time; leave out --frame-stack"):
        library.self_play(**short)


class Mine(TicTacToe):
    """A game that a user has written."""


# Catches: advice that does not work; an exception of Python in place of a sentence.
def test_run_in_a_game_of_the_user_cannot_play_in_the_arena(cli, tmp_path, capsys):
    import spinup as library
    library.self_play(Mine, total_steps=1024, num_envs=16, rollout_steps=32, log_dir=str(tmp_path), exp_name="mine")
    advice = capsys.readouterr().out
    assert "spinup plot" in advice and not any(f"spinup {x}" in advice for x in ("play", "arena", "eval", "resume"))
    for command in ("arena", "play"):
        code, _, err = cli(command, str(tmp_path / "mine"))
        assert code == 2 and "Python object" in err and "spinup.load" in err


# Catches: two tournaments that write the same files, so that the games of one are lost.
def test_folder_belongs_to_one_tournament_at_a_time(cli, tmp_path):
    (tmp_path / "arena").mkdir()
    with FileLock(tmp_path / "arena/.lock"):
        check_sentence(cli("arena", "--game", "tictactoe", "--games", "10"), "another tournament is writing to --out")
    assert cli("arena", "--game", "tictactoe", "--games", "10").code == 0
