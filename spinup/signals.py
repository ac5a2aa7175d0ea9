"""Ctrl-C, SIGTERM and SIGHUP: a training run ends after the current update, saves, and reports this at once."""
import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

# SIGTERM comes from `kill`, schedulers and shutdowns; SIGHUP from a closed terminal. Windows has no SIGHUP.
NAMES = {getattr(signal, name): said for name, said in (
    ("SIGINT", "Ctrl-C"), ("SIGTERM", "SIGTERM"), ("SIGHUP", "SIGHUP")) if hasattr(signal, name)}
last = 0                # the signal that ended a training run of this process
left = False            # whether this process leaves the signals to the first one


def heeded() -> list[int]:
    """Return the signals that end a run. `nohup` ignores SIGHUP, so that a run continues when its terminal closes."""
    return [kind for kind, said in NAMES.items()
            if said != "SIGHUP" or signal.getsignal(kind) is not signal.SIG_IGN]


def exit_code() -> int:
    """Return the exit code after an interruption, as in shells: 130 after Ctrl-C, 143 after SIGTERM, 129 after
    SIGHUP."""
    return 128 + (last or signal.SIGINT)


def leave_to_first() -> None:
    """In a worker process, leave these signals to the first process, which saves and then ends this one. SIGTERM is
    ignored too, because a shutdown sends it to all processes at once. This process also ends if the first one is
    killed."""
    global left
    left = True
    for kind in NAMES.keys() - {signal.SIGTERM}:
        signal.signal(kind, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)            # programs started by this process would inherit SIG_IGN
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    """End this process when the one that started it ends."""
    multiprocessing.parent_process().join()
    os._exit(1)


class Interruption:
    """A context in which the first of these signals sets `received`, and a second one raises KeyboardInterrupt.

    A different signal within one second of the first is ignored. For example, a shutdown sends SIGTERM to a grid and to
    its runs, and the grid then also sends SIGINT to the runs.

    Python runs a signal handler only between two instructions of the main thread. During a long update, this may be
    minutes later. So the signal at once wakes another thread, which calls `say` with an announcement. If this context
    is entered outside the main thread or in a worker process, signals are unchanged.

    Attributes:
        received: the number of the signal; 0 before the first one.
    """

    def __init__(self, say: Callable[[str], None]):
        self.say, self.received, self.at, self.before = say, 0, 0.0, {}
        self.wake, self.told = None, None

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread() and not left:
            self.before = {kind: signal.signal(kind, self._note) for kind in heeded()}
            self.wake, self.told = socket.socketpair()
            for end in (self.wake, self.told):
                end.setblocking(end is self.told)
            self.fd_before = signal.set_wakeup_fd(self.wake.fileno(), warn_on_full_buffer=False)
            threading.Thread(target=self._acknowledge, args=(self.told,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        for kind, handler in self.before.items():
            signal.signal(kind, signal.SIG_DFL if handler is None else handler)
        if self.wake is not None:
            signal.set_wakeup_fd(self.fd_before)
            self.wake.close()                                             # this ends the thread

    def _note(self, number: int, _: Any) -> None:
        global last
        if self.received and (number == self.received or time.monotonic() - self.at > 1):
            raise KeyboardInterrupt
        if not self.received:
            self.received, self.at = number, time.monotonic()
            last = number

    def _acknowledge(self, told: socket.socket) -> None:
        with contextlib.suppress(OSError), told:
            while numbers := told.recv(16):
                if named := [NAMES[number] for number in numbers if number in NAMES]:
                    self.say(f"{named[0]}: stopping after the current update; repeat it to stop at once without saving")
                    break
            while told.recv(16):
                pass
