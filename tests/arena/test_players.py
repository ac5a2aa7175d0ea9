"""Players that are not trained: scripted players against brute force, and players of users in separate processes."""
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from spinup.arena.command import runs_in
from spinup.arena.players import ILLEGAL, Player, minimax, one_ply, own, random_moves
from spinup.arena.tournament import play
from spinup.envs.worlds.boards import ConnectFour, TicTacToe
from spinup.errors import UserError
from spinup.seccomp import seccomp_filter

RNG = np.random.default_rng(0)
HONEST = "def act(observation, mask):\n    return int(mask.argmax())\n"


@cache
def best(board: str, mover: str) -> int:
    """Value of the position for `mover`, by brute force. The squares are text: X, O or space."""
    lines = [board[0:3], board[3:6], board[6:9], board[0::3], board[1::3], board[2::3], board[0::4], board[2:7:2]]
    other = "O" if mover == "X" else "X"
    if other * 3 in lines:
        return -1
    if " " not in board:
        return 0
    return max(-best(board[:i] + mover + board[i + 1:], other) for i in range(9) if board[i] == " ")


# Catches: a wrong line, side to move or sign in minimax; a best move that is never sampled.
def test_minimax_samples_exactly_the_best_moves():
    board = TicTacToe(300)
    for _ in range(6):
        observation, legal, worths = board.observe(), board.legal(), []
        text = ["".join("X" if own else "O" if other else " " for own, other in stones.reshape(9, 2))
                for stones in observation]
        for position in text:
            worths.append([-best(position[:i] + "X" + position[i + 1:], "O") if position[i] == " " else -9
                           for i in range(9)])
        drawn = {}
        for k, move in enumerate(minimax(observation, legal, RNG)):
            assert worths[k][move] == max(worths[k])
            drawn.setdefault(text[k], set()).add(int(move))
        if len(drawn) == 1:                                               # the empty board: all nine moves draw
            assert drawn[text[0]] == set(range(9))
        _, over = board.play(random_moves(observation, legal, RNG))
        board.reset(over)


# Catches: a win that is not taken; a loss that is not prevented; another move although one of these is possible.
@pytest.mark.long
def test_one_ply_wins_if_possible_and_otherwise_blocks():
    board, checked = ConnectFour(400), {"win": 0, "block": 0}

    def wins(observation, own, move):
        stones = observation[..., own].copy()
        row = 5 - int(observation[..., 0][:, move].sum() + observation[..., 1][:, move].sum())
        if row < 0:
            return False
        stones[row, move] = 1
        for dy, dx in (0, 1), (1, 0), (1, 1), (1, -1):
            count = 1
            for sign in 1, -1:
                y, x = row + sign * dy, move + sign * dx
                while 0 <= y < 6 and 0 <= x < 7 and stones[y, x]:
                    count, y, x = count + 1, y + sign * dy, x + sign * dx
            if count >= 4:
                return True
        return False

    for _ in range(25):
        observation, legal = board.observe(), board.legal()
        for seen, move in zip(observation, one_ply(observation, legal, RNG), strict=True):
            for kind, own_ in ("win", 0), ("block", 1):
                if winning := [m for m in range(7) if wins(seen, own_, m)]:
                    assert move in winning
                    checked[kind] += 1
                    break
        _, over = board.play(random_moves(observation, legal, RNG))
        board.reset(over)
    assert min(checked.values()) > 100


def test_minimax_never_loses_and_random_moves_do():
    first, second = Player("minimax", minimax), Player("random", random_moves)
    for one, other, losses in (first, second, 0), (second, first, 1):
        scores = play(TicTacToe(300), one, other, RNG)
        assert (1.0 if losses else 0.0) not in scores and (0.0 if losses else 1.0) in scores
    assert set(play(TicTacToe(50), first, first, RNG)) == {0.5}


@pytest.fixture
def person(tmp_path):
    """`person(text)`: a player from a file with this text, whose process is ended after the test."""
    made = []

    def make(text, seconds=1.0, memory=2048):
        file = tmp_path / f"p{len(made)}.py"
        file.write_text(text)
        made.append(own(file, seconds, memory))
        return made[-1]

    yield make
    for player in made:
        player.close()


# Catches: the stones or the legal-action mask of the other side; a type or shape that differs from PettingZoo's.
def test_player_of_a_user_gets_the_observation_of_pettingzoo(person):
    player = person("def act(observation, mask):\n"
                    "    assert observation.shape == (6, 7, 2) and observation.dtype == mask.dtype == 'int8'\n"
                    "    return int(observation[5, :, 0].argmax()) + int(mask[3] == 0)\n")
    board = ConnectFour(1)
    for move in 2, 3, 2, 3, 4, 3, 4, 3, 5, 3, 6, 3:                       # column 3 is then full
        board.play(np.array([move]))
    assert player.moves(board.observe(), board.legal(), RNG).tolist() == [3] and not player.faults


# Catches: a fault of a file that ends the tournament, or that is not reported.
@pytest.mark.long(r"def act(observation, mask):\n    while True: pass-gave no move within 0.3 s-3")
@pytest.mark.parametrize("text, fault, times", [
    ("def act(observation, mask):\n    return int(mask.argmin())", ILLEGAL, 4),
    ("def act(observation, mask):\n    return 1 / 0", "raised ZeroDivisionError: division by zero", 3),
    ("import os\ndef act(observation, mask):\n    os._exit(7)", "ended its process (exit code 7)", 3),
    ("def act(observation, mask):\n    while True: pass", "gave no move within 0.3 s", 3),
    ("def act(observation, mask):\n    return [b'x' * 2**33]", "raised MemoryError", 3),
    ("def act(observation, mask):\n    return 'e4'", "returned 'e4', not the number of a move", 3),
    ("def act(observation, mask):\n    return True", "returned True, not the number of a move", 3),
    ("def act(observation, mask):\n    return 99", "returned 99, but a move is a number from 0 to below 9", 3),
    ("def act(observation, mask):\n    while True: print('x' * 9999)", "printed more than 1 MB", 3),
    ("import nosuch", "cannot be loaded (ModuleNotFoundError: No module named 'nosuch')", 3),
    ("def move(observation, mask):\n    return 0", "cannot be loaded (AttributeError: module 'player' has no attribute "
     "'act')", 3)])
def test_player_that_fails_forfeits_and_the_fault_is_reported(person, text, fault, times):
    player, other = person(text, seconds=5 if "while True: print" in text else 0.3), Player("random", random_moves)
    start = time.monotonic()
    scores = play(TicTacToe(4), other, player, RNG)
    assert scores == [1.0] * 4 and time.monotonic() - start < 20
    if fault == ILLEGAL:
        assert player.faults == {ILLEGAL: 4} and not player.out
    else:
        assert player.faults[fault] == times and player.out and player.faults["was already excluded"] == 1


def test_player_may_print_and_its_output_is_kept(person):
    player = person("print('hello')\n" + HONEST.replace("return", "print('thinking'); return"))
    assert play(TicTacToe(5), player, Player("random", random_moves), RNG) and not player.faults
    assert player.note().startswith("printed ") and "hello thinking" in player.note()


def test_player_that_fails_once_continues(person, tmp_path):
    flag = tmp_path / "fell"
    player = person("import os, pathlib\nflag = pathlib.Path(" + repr(str(flag)) + ")\n"
                    "def act(observation, mask):\n    if not flag.exists():\n        flag.touch()\n"
                    "        os._exit(1)\n    return int(mask.argmax())\n")
    scores = play(TicTacToe(20), Player("random", random_moves), player, RNG)
    assert player.faults == {"ended its process (exit code 1)": 1} and 0.0 in scores


# Catches: killpg alone, which does not reach a process that has left the group; a filter with a missing system call.
@pytest.mark.skipif(not seccomp_filter(threads=True, sockets=True), reason="no filter of system calls here")
@pytest.mark.parametrize("start", [
    "import os\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(100)",
    "import subprocess\nsubprocess.Popen(['sleep', '100'], start_new_session=True)",
    "import os\nos.posix_spawn('/bin/sleep', ['sleep', '100'], {})",
    "import os\nos.kill(os.getppid(), 10)"])
def test_player_cannot_start_a_process_or_send_a_signal(person, start):
    player = person("import time\n" + start + "\n" + HONEST)
    assert play(TicTacToe(1), player, Player("random", random_moves), RNG) == [0.0]
    assert "cannot be loaded (PermissionError" in str(player.faults)


def test_player_may_start_threads(person):
    player = person("import threading\ndef act(observation, mask):\n    found = []\n"
                    "    thread = threading.Thread(target=lambda: found.append(int(mask.argmax())))\n"
                    "    thread.start()\n    thread.join()\n    return found[0]\n")
    assert play(TicTacToe(1), player, Player("random", random_moves), RNG) and not player.faults


SCRIBBLE = "import os\nfor i in range(3, 500):\n    try: os.write(i, TEXT)\n    except OSError: pass\n"
ACT = "def act(observation, mask):\n    "


# Catches: an answer that is not checked to be JSON, an object, short, and with an integer of the correct name; a player
# that writes in advance, or that does not read, so that the arena waits.
@pytest.mark.long(r"import os, time\nos.closerange(3, 500)\ntime.sleep(60)-closed a file descriptor of the arena")
@pytest.mark.parametrize("text, fault", [
    *((SCRIBBLE.replace("TEXT", repr(said)) + HONEST, "wrote to a file descriptor of the arena") for said in (
        b"garbage\n", b'{"move": 4}\n', b"[]\n", b"4\n", b"\xff\n", b"[" * 3000 + b"\n", b'{"ready": true}\n',
        b"x" * 9999, b'{"ready": 1}\n{"move": 0}\n', b'{"fault": 7}\n')),
    *((ACT + SCRIBBLE.replace("\n", "\n    ").replace("TEXT", repr(said)) + "\n    return 0",
       "wrote to a file descriptor of the arena") for said in (
        b"garbage\n", b'{"move": "4"}\n', b'{"move": null}\n', b'{"move": true}\n', b'{"move": 1.0}\n', b"x" * 99999)),
    (SCRIBBLE.replace("TEXT", repr(b'{"ready": 1}\n')) + HONEST, "wrote to a file descriptor of the arena"),
    (ACT + SCRIBBLE.replace("\n", "\n    ").replace("TEXT", repr(b'{"move": -1}\n')) + "\n    return 0",
     "returned -1, but a move is a number from 0 to below 9"),
    ("import os, time\nos.closerange(3, 500)\ntime.sleep(60)", "closed a file descriptor of the arena"),
    ("import os\nos.closerange(0, 3)\nos._exit(0)", "ended its process (exit code 0)"),
    ("import sys, time\n" + ACT + "time.sleep(60)", "gave no move within 0.3 s")])
def test_tournament_continues_whatever_a_player_writes(person, text, fault):
    seconds = 0.3 if fault.endswith("0.3 s") else 5.0         # enough for an answer on a busy machine
    player, other = person(text, seconds=seconds), Player("random", random_moves)
    player.patience = 1                                       # one process; restarts are tested above
    start = time.monotonic()
    for _ in range(2):
        assert play(TicTacToe(2), other, player, RNG) == [1.0] * 2
    assert player.faults[fault] and player.out and time.monotonic() - start < 20


# Catches: an exported model as an entry; runs in folders further below.
def test_entries_of_a_folder_are_the_runs_directly_in_it(tmp_path):
    for name in ("x_s2", "x_s1", "x_s1/best_s1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text('{"algorithm": "self_play"}')
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text('{"architectures": []}')
    assert runs_in(tmp_path) == [tmp_path / "x_s1", tmp_path / "x_s2"]
    assert runs_in(tmp_path / "x_s1") == [tmp_path / "x_s1"]


def test_missing_player_file_is_named(tmp_path):
    with pytest.raises(UserError, match="nobody.py cannot be read"):
        own(tmp_path / "nobody.py", 1, 512)
    with pytest.raises(UserError, match="/dev/null is not a Python file; give one, such as mine.py"):
        own(Path("/dev/null"), 1, 512)
