"""A replay buffer: the check of free memory, its files beside the checkpoint, and its exact restoration."""
import re
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box

from spinup.core.replay import Replay, replay_bytes
from spinup.envs import VectorEnv
from spinup.envs.vector import Step
from spinup.errors import UserError
from spinup.runs import replay as module
from spinup.runs.checkpoint import load_checkpoint
from spinup.runs.config import ReplayConfig
from spinup.runs.files import read_json
from spinup.runs.replay import ReplayFiles, make_replay, statement

IMAGES = SimpleNamespace(observation_space=Box(0, 255, (84, 84, 4), np.uint8), num_envs=8, frames=4)


# Catches: memory for all four stacked frames of each step; an advised size that does not fit either.
def test_replay_buffer_beyond_free_memory_is_refused_with_a_size_that_fits(monkeypatch):
    made, kind = [], (8, (4, 84, 84), np.uint8, ())
    monkeypatch.setattr(module, "Replay", lambda size, *rest: made.append(size))
    monkeypatch.setattr(module, "free_memory", lambda: 5_200_000_000)
    with pytest.raises(UserError, match=re.escape("1.0 M steps of 84×84×4 need 7.1 GB; 5.2 GB are free; "
                                                  "choose --replay-size 650000") + "$"):
        make_replay(ReplayConfig(total_steps=10**7, num_envs=8), IMAGES, (), np.int64)
    for free in np.geomspace(5e6, 7e9, 200).astype(int):
        monkeypatch.setattr(module, "free_memory", lambda free=free: int(free))
        with pytest.raises(UserError) as error:
            make_replay(ReplayConfig(total_steps=10**7, num_envs=8), IMAGES, (), np.int64)
        fits = int(str(error.value).rpartition(" ")[2])
        assert 0.75 * free < replay_bytes(fits, *kind, frames=4) < 0.91 * free
        make_replay(ReplayConfig(total_steps=10**7, num_envs=8, replay_size=fits, learning_starts=1), IMAGES, (),
                    np.int64)
    assert len(made) == 200


# Catches: an array that is missing in the sum; a replay buffer that is larger than the number of steps of its run.
def test_stated_memory_is_the_allocated_memory():
    env = SimpleNamespace(observation_space=Box(-1, 1, (17,)), num_envs=3, frames=1)
    replay = make_replay(ReplayConfig(total_steps=5000), env, (6,), np.float32)
    taken = replay.frames.nbytes + sum(ring.nbytes for ring in replay.rows.values())
    assert replay.size == 5000 and taken == replay_bytes(5000, 3, (17,), np.float32, (6,))
    assert statement(replay) == f"replay buffer: 5,000 steps of 17 need {taken / 1e3:.0f} kB"


# Catches: a check after the folder is created.
def test_too_little_memory_is_reported_before_files_are_created(cli, tree, monkeypatch):
    monkeypatch.setattr(module, "free_memory", lambda: 50_000)
    words = [*DQN, "--total-steps", 2000, "--update-ratio", 0.01]
    done = cli(*words)
    said = re.fullmatch(r"spinup: 2,000 steps of 4 need 96 kB; 50 kB are free; choose (--replay-size) (\d+)\n",
                        done.err)
    assert done.code == 2 and said and tree() == []
    done = cli(*words, *said.groups())                                    # the advised size fits
    assert done.code == 0 and f"replay buffer: {said[2]} steps of 4 need 4" in done.out


class World:
    """Random transitions of N environments with short episodes, for a replay buffer of 24 rows. No number repeats."""

    def __init__(self, num_envs: int, frames: int):
        self.num_envs, self.shape, self.rng = num_envs, (frames, 3) if frames > 1 else (3,), np.random.default_rng(0)
        self.make = lambda: Replay(24, num_envs, self.shape, np.dtype(np.float32), (2,), np.float32, frames)

    def observe(self) -> np.ndarray:
        return self.rng.standard_normal((self.num_envs, *self.shape), np.float32)

    def step(self, replay: Replay) -> None:
        """Add one transition of each environment. The observations are random; none follows from the last one."""
        act, rew = self.rng.standard_normal((self.num_envs, 2)), self.rng.standard_normal(self.num_envs)
        terminated, truncated = self.rng.random((2, self.num_envs)) < 0.1
        final = self.observe() if (terminated | truncated).any() else None
        replay.add(self.observe(), act, Step(self.observe(), rew, terminated, truncated, final))


def contents(replay: Replay) -> list[np.ndarray]:
    """All transitions that can be sampled, in order, as single steps and as 3-step returns, and the counters."""
    rows = np.arange(replay.oldest, replay.count)
    return [*(x.numpy() for batch in (replay.sample(rows), replay.sample_n(rows, 3)) for x in batch),
            *(np.asarray(x) for x in replay.state_dict().values())]


def resumed(world: World, folder: Path, state: dict, sums: dict[str, int]) -> tuple[Replay, ReplayFiles, bool]:
    replay, files = world.make(), ReplayFiles(folder)
    replay.frames[:] = -1                                                 # old contents of the memory
    replay.load_state_dict(state)
    return replay, files, files.read(replay, sums)


# A run of 400 rounds: some steps, from none to thrice the buffer's size; then a checkpoint, or a crash before it, after
# it, or between the files and the checkpoint. Catches: a cut at the wrong element; a file that is started or deleted
# too early or too late; a read or write beyond the end of the ring buffer; a gap that is filled with discarded
# transitions.
@pytest.mark.long("1-1", "2-1", "1-3")
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("frames", [1, 2])
def test_files_restore_the_saved_buffer_after_any_crash(num_envs, frames, tmp_path):
    world, chance = World(num_envs, frames), np.random.default_rng(1)
    replay, files, saved, happened, most = world.make(), ReplayFiles(tmp_path), None, set(), 0
    for _ in range(400):
        for _ in range(int(chance.choice([0, 1, 2, 5, 30, 80])) // num_envs):
            world.step(replay)
        event = chance.choice(["save", "save", "crash", "crash between", "crash after"])
        if event != "crash":
            files.append(replay)
        if event in ("save", "crash after"):
            saved, sums, expected = replay.state_dict(), dict(files.sums), contents(replay)
            if event == "save":
                files.tidy(replay)
        if event != "save" and saved:
            happened.add((event, replay.count - saved["count"] > 24))
            replay, files, found = resumed(world, tmp_path, saved, sums)
            assert found
            for x, y in zip(contents(replay), expected, strict=True):
                np.testing.assert_array_equal(x, y)
        elif event == "save":
            most = max(most, sum(p.stat().st_size for p in (tmp_path / "replay").iterdir()))
            replay.load_state_dict(saved)                                 # this must change nothing
    assert len(happened) == 5                                             # right after a checkpoint nothing is new
    ring = sum(r.nbytes for r, _ in replay.rings().values())
    assert most < 3.5 * ring


# Catches: a gap in the files that is ignored; a remaining folder to which later rows would be appended.
@pytest.mark.parametrize("damage", ["no folder", "no file of one ring", "first file", "end cut off", "hole"])
def test_incomplete_files_are_refused_and_removed_files_give_an_empty_buffer(damage, tmp_path):
    world, folder = World(2, 1), tmp_path / "replay"
    replay, files = world.make(), ReplayFiles(tmp_path)
    for _ in range(8):                                                    # 64 rows in the end, more than one file
        for _ in range(4):
            world.step(replay)
        files.append(replay)
        files.tidy(replay)
    acts = sorted(folder.glob("act-*.bin"))
    assert len(acts) >= 2
    sums = dict(files.sums)
    if damage == "no folder":
        files.remove()
    elif damage == "no file of one ring":
        for path in folder.glob("rew-*.bin"):
            path.unlink()
    elif damage == "first file":
        acts[0].unlink()
    else:
        path = acts[-1 if damage == "end cut off" else 0]
        path.write_bytes(path.read_bytes()[:-1])
    left = sorted(folder.glob("*"))
    if damage != "no folder":
        with pytest.raises(UserError, match="replay lacks steps that the checkpoint counts; restore its files"):
            resumed(world, tmp_path, replay.state_dict(), sums)
        assert sorted(folder.glob("*")) == left
        files.remove()                                                    # as the error message advises
    again, files, found = resumed(world, tmp_path, replay.state_dict(), sums)
    assert not found and not folder.exists()
    again.forget()
    world.step(again)
    files.append(again)                                                   # a new buffer begins
    third, _, found = resumed(world, tmp_path, again.state_dict(), files.sums)
    assert found
    for x, y in zip(contents(third), contents(again), strict=True):
        np.testing.assert_array_equal(x, y)


# Catches: checksums of deleted files that are compared with a new file of the same name.
def test_new_replay_buffer_has_its_own_checksums(tmp_path):
    world, replay, files = World(2, 1), World(2, 1).make(), ReplayFiles(tmp_path)
    world.step(replay)
    files.append(replay)
    state, sums = replay.state_dict(), dict(files.sums)
    files.remove()
    again, files, found = resumed(world, tmp_path, state, sums)
    assert not found
    again.forget()
    world.step(again)
    files.append(again)
    assert resumed(world, tmp_path, again.state_dict(), files.sums)[2]


# Catches: a checksum that is compared for the last file only.
def test_changed_earlier_file_is_named(tmp_path):
    world, replay, files = World(2, 1), World(2, 1).make(), ReplayFiles(tmp_path)
    for _ in range(4):
        for _ in range(5):
            world.step(replay)
        files.append(replay)
    first, *_, last = sorted((tmp_path / "replay").glob("rew-*.bin"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    assert first != last
    with pytest.raises(UserError, match=f"{re.escape(str(first))} has changed since it was written"):
        resumed(world, tmp_path, replay.state_dict(), files.sums)


# Catches: checksums that are not compared; checksums that include steps after the checkpoint; a replay buffer that is
# deleted.
def test_changed_file_is_named_and_kept(tmp_path):
    world, replay, files = World(2, 1), World(2, 1).make(), ReplayFiles(tmp_path)
    for _ in range(5):
        world.step(replay)
    files.append(replay)
    state, sums = replay.state_dict(), dict(files.sums)
    world.step(replay)
    files.append(replay)                                                  # truncated when the checkpoint is loaded
    path = next((tmp_path / "replay").glob("rew-*.bin"))
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=f"{re.escape(str(path))} has changed since it was written"):
        resumed(world, tmp_path, state, sums)
    data[3] ^= 1
    path.write_bytes(data)
    assert resumed(world, tmp_path, state, sums)[2]


RUN = Path("runs/x/x_s1")
SMALL = ["--preset", "none", "--exp-name", "x", "--hidden", "16,16", "--batch-size", 16, "--learning-starts", 100,
         "--threads", 1, "--tensorboard", "false"]
DQN = ["dqn", "--env", "CartPole-v1", *SMALL, "--lr", 1e-3, "--target-every", 20]
SAC, TD3, DDPG = ([name, "--env", "Pendulum-v1", *SMALL] for name in ("sac", "td3", "ddpg"))
PRIORITISED = ["--prioritised", "--n-steps", 3, "--dueling", "--num-envs", 2, "--update-ratio", 0.5]


# The replay buffer of dqn is shorter than the distance between checkpoints, and that of sac is longer. Catches:
# counters, priorities, target networks or an optimiser that are missing in the checkpoint; files that are not
# truncated, or not found.
@pytest.mark.long("sac")
@pytest.mark.parametrize("words, size, cadence", [
    ([*DQN, *PRIORITISED], 150, 212), ([*SAC, "--num-envs", 2], 2000, 90)],
    ids=["dqn", "sac"])
def test_killed_run_resumes_with_the_same_curve(words, size, cadence, killed, cli, curve,
                                                                              tmp_path):
    words = [*words, "--replay-size", size, "--checkpoint-steps", cadence, "--total-steps", 800]
    assert cli(*words, "--log-dir", "whole", "--quiet").code == 0
    expected = curve(tmp_path / "whole/x/x_s1")
    done = killed(words, RUN, len(expected), 1, words[0])
    assert done.code == 0 and "Traceback" not in done.err and "replay buffer was not saved" not in done.out
    assert curve(tmp_path / RUN) == expected
    assert read_json(tmp_path / RUN / "result.json")["status"] == "finished"
    assert not (tmp_path / RUN / "replay").exists()                       # a finished run needs no replay buffer


def happen_at(number: int, monkeypatch, what: Callable[[], None]) -> None:
    """Call `what` in the `number`-th environment step of this process."""
    step, left = VectorEnv.step, [number]

    def watched(env, action):
        left[0] -= 1
        if left[0] == 0:
            what()
        return step(env, action)

    monkeypatch.setattr(VectorEnv, "step", watched)


def interrupt() -> None:
    """Send SIGINT, as Ctrl-C does."""
    signal.raise_signal(signal.SIGINT)


def die() -> None:
    raise Died


class Died(Exception):
    """Raised in the middle of a step."""


# A row follows the checkpoint before the next gradient step, or before the next gradient step of the actor. Catches:
# counters, priorities, a target network, an optimiser, or statistics of the last gradient step that are missing in the
# checkpoint.
@pytest.mark.long("dqn-prioritised", "td3", "dqn", "ddpg-seldom", "sac-seldom")
@pytest.mark.parametrize("words", [
    DQN, [*DQN, *PRIORITISED, "--replay-size", 200], [*DQN, "--update-ratio", 0.125], TD3,
    [*DDPG, "--update-ratio", 0.2], [*SAC, "--update-ratio", 0.2]],
    ids=["dqn", "dqn-prioritised", "dqn-seldom", "td3", "ddpg-seldom", "sac-seldom"])
def test_run_that_dies_resumes_from_its_checkpoint_with_the_same_curve(words, cli, curve, monkeypatch, tmp_path):
    words = [*words, "--total-steps", 400, "--checkpoint-steps", 155, "--quiet"]
    assert cli(*words, "--log-dir", "whole").code == 0
    for at in 250, 70:
        with monkeypatch.context() as patch, pytest.raises(Died):
            happen_at(at // (2 if "--num-envs" in words else 1), patch, die)
            cli(*(["resume", RUN] if (tmp_path / RUN).exists() else words))
    assert (tmp_path / RUN / "replay").exists()
    assert cli("resume", RUN).code == 0
    assert curve(tmp_path / RUN) == curve(tmp_path / "whole/x/x_s1")
    assert not (tmp_path / RUN / "replay").exists()


# Catches: files from before the first checkpoint to which a run that starts again appends.
@pytest.mark.long
def test_run_that_dies_before_its_first_checkpoint_starts_with_an_empty_buffer(cli, curve, monkeypatch, tmp_path):
    words = [*DQN, "--total-steps", 700, "--checkpoint-steps", 150, "--quiet"]
    assert cli(*words, "--log-dir", "whole").code == 0
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr("spinup.runs.training.save_checkpoint", lambda *_: die())       # the replay is written first
        cli(*words)
    assert (tmp_path / RUN / "replay").exists() and not (tmp_path / RUN / "checkpoint.pt").exists()
    with monkeypatch.context() as patch, pytest.raises(Died):
        happen_at(500, patch, die)
        cli("resume", RUN)
    assert load_checkpoint(tmp_path / RUN / "checkpoint.pt")["steps"] == 450
    assert cli("resume", RUN).code == 0
    assert curve(tmp_path / RUN) == curve(tmp_path / "whole/x/x_s1")


# Catches: files that are deleted because the end of one is missing; a different curve without a message.
@pytest.mark.long
def test_truncated_replay_buffer_is_refused_and_kept(cli, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        happen_at(200, patch, interrupt)
        assert cli(*DQN, "--total-steps", 900).code == 130
    files = sorted((tmp_path / RUN / "replay").glob("*.bin"))
    whole = {path: path.read_bytes() for path in files}
    files[-1].write_bytes(whole[files[-1]][:40])
    refused = cli("resume", RUN)
    assert refused.code == 2 and "replay lacks steps that the checkpoint counts; restore its files" in refused.err
    files[-1].write_bytes(whole[files[-1]])
    assert sorted((tmp_path / RUN / "replay").glob("*.bin")) == files and cli("resume", RUN).code == 0


# Catches: a replay buffer that is saved in spite of --no-save-replay; a missing message; sampled rows that were not
# saved, because their priorities remain.
@pytest.mark.long("plain")
@pytest.mark.parametrize("settings", [[], PRIORITISED], ids=["plain", "prioritised"])
def test_run_without_saved_replay_buffer_fills_a_new_one_and_reports_it(settings, cli, monkeypatch, tmp_path):
    drawn, sample_n = [], Replay.sample_n

    def noted(self, rows, n):
        drawn.append((rows.min() - self.oldest, self.count - rows.max()))
        return sample_n(self, rows, n)

    monkeypatch.setattr(Replay, "sample_n", noted)
    with monkeypatch.context() as patch:
        happen_at(200, patch, interrupt)
        assert cli(*DQN, *settings, "--total-steps", 900, "--no-save-replay").code == 130
    assert not (tmp_path / RUN / "replay").exists()
    drawn.clear()
    done = cli("resume", RUN)
    at = 400 if settings else 200
    assert (f"resuming at step {at}; its replay buffer was not saved, so it starts with an empty one, and its curve "
            "will differ\n") in done.out
    assert done.code == 0 and read_json(tmp_path / RUN / "result.json")["steps"] == 900
    ratio = 0.5 if settings else 1
    assert abs(len(drawn) - ratio * (900 - at - 100)) <= 2                # after learning_starts steps
    assert min(low for low, _ in drawn) >= 0 and min(high for _, high in drawn) > 0
