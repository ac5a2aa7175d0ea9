"""Ctrl-C, SIGTERM and SIGHUP; full disks and closed outputs."""
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spinup import ppo
from spinup.errors import EnvironmentFailure, UserError
from spinup.runs.files import disk_error

if sys.platform == "win32":
    pytest.skip("signals and limits of POSIX", allow_module_level=True)

SLOW = """
import time
import gymnasium


class Slow(gymnasium.Wrapper):
    steps = 0

    def step(self, action):
        Slow.steps += 1
        if Slow.steps == 40:
            print("under way", flush=True)
            time.sleep(.2)
        return self.env.step(action)


gymnasium.register('Slow-v0', entry_point=lambda: Slow(gymnasium.make('CartPole-v1')), disable_env_checker=True)
"""
HEED = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"        # in case `nohup` has started the tests
TINY = ["--preset", "none", "--num-envs", "2", "--rollout-steps", "32", "--minibatches", "2", "--no-tensorboard",
        "--threads", "1"]


# Catches: a signal without a handler; a handler whose message appears only at the end of the update; the exit code 130
# for every signal.
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_signal_saves_and_prints_the_resume_command(tmp_path, start, wait_for, name, code):
    (tmp_path / "slow_of_a_test.py").write_text(SLOW)
    process = start("ppo", "--env", "slow_of_a_test:Slow-v0", *TINY, "--total-steps", "100000000", "--exp-name", "x",
                    prelude=f"sys.path.insert(0, folder)\n{HEED}")
    wait_for(lambda: "under way" in process.files[0].read_text(), process)
    process.send_signal(getattr(signal, name))
    done = process.end(60)
    assert done.code == code and done.err == ""
    said = {"SIGINT": "Ctrl-C"}.get(name, name)
    assert f"{said}: stopping after the current update; repeat it to stop at once without saving" in done.out
    assert "spinup resume runs/x/x_s1" in done.out.splitlines()[-1]
    assert json.loads((tmp_path / "runs/x/x_s1/result.json").read_text())["status"] == "interrupted"
    assert (tmp_path / "runs/x/x_s1/checkpoint.pt").exists()


# Catches: a run under `nohup` that ends with its terminal.
def test_signal_that_nohup_ignores_stays_ignored():
    from spinup.signals import Interruption
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption(lambda words: None) as interruption:
            signal.raise_signal(signal.SIGHUP)
            assert not interruption.received
            signal.raise_signal(signal.SIGTERM)
            assert interruption.received == signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


# Catches: a message that only the signal handler prints, which runs when the main thread is free again.
@pytest.mark.long
def test_ctrl_c_is_answered_while_the_main_thread_is_busy(tmp_path):
    # zlib releases the interpreter lock, so that other threads can run. `pow` of large numbers would not.
    # `os.write` writes a whole line at once. Two threads that `print` could mix their lines.
    busy = """
import os, signal, threading, time, zlib
from spinup.signals import Interruption

def say(word):
    os.write(1, f"{word} {time.monotonic()}\\n".encode())

data = os.urandom(30_000_000)
with Interruption(lambda words: say("told")):
    threading.Timer(.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    zlib.compress(data, 9)
    say("done")
"""
    done = subprocess.run([sys.executable, "-c", busy], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    lines = dict(line.split() for line in done.stdout.splitlines())
    assert float(lines["told"]) < float(lines["done"]) - 0.05, done.stdout + done.stderr


# Catches: a second signal that waits for the end of the update, as the first does.
@pytest.mark.parametrize(("later", "second"), [(0, signal.SIGTERM), (2, signal.SIGINT)])
def test_second_signal_stops_at_once(later, second):
    from spinup.signals import Interruption
    with pytest.raises(KeyboardInterrupt), Interruption(lambda words: None) as interruption:
        signal.raise_signal(signal.SIGTERM)
        assert interruption.received == signal.SIGTERM
        interruption.at -= later
        signal.raise_signal(second)


# Catches: an advised command that is refused, because the run already exists.
def test_run_that_stops_at_once_prints_the_resume_command(cli, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("spinup.algos.ppo.collect", stop)
    done = cli("ppo", *TINY, "--exp-name", "x y", "--quiet")
    assert done.code > 128 and done.err == 'interrupted; to resume, type: spinup resume "runs/x y/x y_s1"\n'


# Catches: an error of a device or a file that the user's environment or reward opens, reported as a full disk.
def test_error_of_user_code_is_not_reported_as_a_full_disk():
    def raised(error, cause, suppressed=False):
        try:
            try:
                raise cause
            except type(cause):
                if suppressed:
                    raise error from None
                raise error from cause
        except type(error) as found:
            return disk_error(found)

    full, device = OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "no device")
    assert raised(RuntimeError("writer"), full) is full and disk_error(full) is full
    assert raised(EnvironmentFailure("in step 3"), device) is None
    assert raised(UserError("the reward failed"), PermissionError(errno.EACCES, "no")) is None
    assert raised(RuntimeError("other"), device, suppressed=True) is None


# Catches: a lock or a process that remains after a failed start, so that a notebook cannot try again.
def test_failed_start_releases_the_folder(cli, monkeypatch):
    def offline(*_, **__):
        raise ConnectionError("no network")

    given = {"exp_name": "x", "preset": "none", "num_envs": 2, "rollout_steps": 32, "minibatches": 2, "total_steps": 64,
             "quiet": True, "tensorboard": False}
    with monkeypatch.context() as patch:
        patch.setattr("spinup.runs.training.Log", offline)
        with pytest.raises(ConnectionError) as kept:                      # keeps the traceback, as a notebook does
            ppo("CartPole-v1", **given)
    assert kept.value.args == ("no network",)
    assert ppo("CartPole-v1", **given).status == "finished"               # the same call again
    assert cli("resume", "runs/x/x_s1").code == 0


# Catches: a shutdown that counts as two signals for a run, because its grid also passes SIGTERM on as Ctrl-C.
def test_different_signal_at_the_same_time_is_ignored():
    from spinup.signals import Interruption
    with Interruption(lambda words: None) as interruption:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert interruption.received == signal.SIGTERM


WORKER = """
import multiprocessing, os, time
from spinup.signals import Interruption, leave_to_first


def work():
    leave_to_first()
    with Interruption(print) as interruption:
        print(os.getpid(), flush=True)
        time.sleep(1)
        print(interruption.received, flush=True)
        time.sleep(60)


worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
"""


# Catches: a worker that a shutdown ends before the first process has saved; a worker that handles Ctrl-C itself; a
# worker that outlives the first process.
def test_worker_ends_with_the_first_process_and_not_before():
    first = subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True)
    worker = int(first.stdout.readline())
    for kind in (signal.SIGINT, signal.SIGTERM):
        os.kill(worker, kind)
    assert first.stdout.readline() == "0\n"
    first.kill()
    assert first.stdout.read() == ""                          # returns when no process holds the pipe open
    first.wait()
    first.stdout.close()


# No file of more than 60 kB can be written, as if the disk were full.
SMALL_FILES = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
"""


# Catches: an OSError that is not translated; a checkpoint that is replaced by an incomplete one.
@pytest.mark.long("words1")
@pytest.mark.parametrize("words", [                                       # a large checkpoint; a growing replay buffer
    ["ppo", *TINY, "--hidden", "64,64"],
    ["td3", "--env", "Pendulum-v1", "--learning-starts", "10000", "--hidden", "8", "--preset", "none"]])
def test_full_disk_gives_one_sentence_and_leaves_no_partial_file(tmp_path, start, words):
    name = ["--exp-name", "x", "--checkpoint-steps", "128"]
    done = start(*words, *name, "--total-steps", "20000", prelude=SMALL_FILES).end()
    assert done.code == 2, done.err
    sentence, = done.err.splitlines()
    assert "runs/x/x_s1 cannot be written (file too large); free disk space" in sentence
    assert "spinup resume runs/x/x_s1" in sentence
    assert not list((tmp_path / "runs/x/x_s1").glob(".*.tmp"))


@pytest.mark.long("words1-0")
@pytest.mark.parametrize(("words", "code"), [(["algos"], 2), (["ppo", *TINY, "--total-steps", "128"], 0)])
def test_output_to_a_full_disk_gives_no_traceback(tmp_path, words, code):
    if not Path("/dev/full").exists():
        return                                                            # macOS has none
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "spinup", *words], cwd=tmp_path, stdout=full, text=True,
                              stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == code and "Traceback" not in done.stderr and "Exception" not in done.stderr
    assert ("finished" in "".join(p.read_text() for p in tmp_path.glob("runs/*/*/result.json"))) == (code == 0)


# Catches: a broken pipe or a missing output that ends a training.
@pytest.mark.long
def test_training_continues_without_its_output(tmp_path, start):
    words = ["ppo", *TINY, "--total-steps", "256", "--exp-name"]
    process = subprocess.Popen([sys.executable, "-m", "spinup", *words, "a"], cwd=tmp_path, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    closed = start(*words, "b", prelude="os.close(1)\nsys.stdout = None\n").end()         # as in Python after `>&-`
    assert (closed.code, closed.err) == (0, "")
    assert process.wait(60) == 0 and process.stderr.read() == ""
    for name in "ab":
        assert "finished" in (tmp_path / f"runs/{name}/{name}_s1/result.json").read_text()


@pytest.mark.long
def test_names_with_accents_work_in_the_c_locale(tmp_path):
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}
    named = subprocess.run([sys.executable, "-m", "spinup", "ppo", *TINY, "--total-steps", "128", "--log-dir", "été",
                            "--exp-name", "été"], cwd=tmp_path, capture_output=True, timeout=60, env=env)
    assert named.returncode == 0 and b"Traceback" not in named.stderr
    assert named.stdout.endswith("spinup resume été/été/été_s1 --total-steps 256\n".encode())
    wrong = subprocess.run([sys.executable, "-m", "spinup", "ppo", "--env", "Été-v0"], cwd=tmp_path, timeout=60,
                           capture_output=True, env=env)
    assert wrong.returncode == 2 and b"there is no environment" in wrong.stderr


def test_signal_handlers_stay_unchanged_in_a_thread():
    import threading

    from spinup.signals import Interruption
    before, found = signal.getsignal(signal.SIGTERM), []

    def enter() -> None:
        with Interruption(lambda words: None):
            found.append(signal.getsignal(signal.SIGTERM))
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(10)
    assert found == [before]
    began = time.monotonic()
    with Interruption(lambda words: None):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before and time.monotonic() - began < 1
