"""Copies of a Gymnasium environment that run in other processes, for environments with slow steps.

Each process has a share of the copies in a `GymVectorEnv`. The copies have the same seeds as in a single process, so
the results are equal, bit for bit. Messages take 0.1 ms per worker and step, so fast environments become slower.
"""
import contextlib
import multiprocessing
import pickle
import signal
import threading
import traceback
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.pool import RemoteTraceback
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
from gymnasium import Env
from threadpoolctl import threadpool_limits

from spinup.envs.gym import GymVectorEnv
from spinup.envs.spaces import observation_view
from spinup.envs.state import Unsaveable
from spinup.envs.vector import Step, VectorEnv, copy_seeds, exited
from spinup.errors import EnvironmentFailure, NonFiniteError, UserError, WorkerError
from spinup.signals import leave_to_first

CLOSE_SECONDS = 5       # time for a worker to close its environments before it is killed
GUARD = "in your script, put the training under `if __name__ == \"__main__\":`, because workers import the script"


class WorkerVectorEnv(VectorEnv):
    """N copies made by `make_one()`, in `workers` processes. Each process steps a share of the copies.

    Args:
        make_one: a module-level function, or a `functools.partial` of one, because it is sent to the processes.
        name: name of the environment, for messages.
    UserError: more workers than copies, `make_one` cannot be sent, or a fault of the environment.
    WorkerError, here and in every step: a process ended, or the environment raised an exception in it.
    """

    def __init__(self, make_one: Callable[[], Env], num_envs: int, seed: int, workers: int, name: str):
        super().__init__(num_envs)
        if workers > num_envs:
            raise UserError(f"--env-workers {workers} is more than --num-envs {num_envs}; choose at most {num_envs}")
        try:
            pickle.dumps(make_one)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UserError(f"--env-workers {workers} starts processes, and this env cannot be sent to them ({error}); "
                            "give an id, or a function at the top of a module") from None
        self.name, self.begun = name, False
        shares = np.array_split(np.array(copy_seeds(seed, num_envs), object), workers)
        ends = np.cumsum([0, *(len(share) for share in shares)])
        self.rows = [slice(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
        self.processes, self.pipes = _start(workers)
        self._end = weakref.finalize(self, _end, self.processes, self.pipes)
        spaces = self._ask_each([(make_one, share.tolist(), int(begin))
                                 for share, begin in zip(shares, ends[:-1], strict=True)])
        self.begun = True
        self.observation_space, self.action_space = spaces[0]
        self.shape, self.dtype, _ = observation_view(self.observation_space)

    def _ask_each(self, messages: list[tuple]) -> list[Any]:
        """Send each worker its message, and wait for all answers."""
        with contextlib.suppress(OSError):                                # a worker ended; `_answer` reports it
            for pipe, message in zip(self.pipes, messages, strict=True):
                pipe.send(message)
        answers = [self._answer(i) for i in range(len(self.pipes))]
        for kind, answer in answers:
            if kind == "unsaveable":
                raise Unsaveable(answer)
        return [answer for _, answer in answers]

    def _answer(self, i: int) -> tuple[str, Any]:
        """Return the answer of worker i. WorkerError or UserError if it failed; by then all workers have ended."""
        try:
            kind, answer = self.pipes[i].recv()
        except (EOFError, OSError):
            self.processes[i].join(CLOSE_SECONDS)
            code = self.processes[i].exitcode
            self.close()
            if not self.begun:
                raise WorkerError(f"worker process {i} of {self.name} ended before it was ready (exit code {code}); "
                                  f"{GUARD}") from None
            raise WorkerError(f"worker process {i} of {self.name} ended during a step (exit code {code}); if memory is "
                              "short, choose fewer --env-workers") from None
        if kind == "user error":
            self.close()
            raise UserError(answer)
        if kind == "error":
            self.close()
            kind_of_error, words, trace = answer
            raise kind_of_error(f"{words}, in worker process {i}") from RemoteTraceback(trace)
        return kind, answer

    def _ask_all(self, command: str, *arguments: Any) -> list[Any]:
        return self._ask_each([(command, *arguments)] * len(self.pipes))

    def _reset(self) -> np.ndarray:
        return np.concatenate(self._ask_all("_reset"))

    def _restart(self, i: int, seed: int) -> np.ndarray:
        worker = next(w for w, rows in enumerate(self.rows) if i < rows.stop)
        with contextlib.suppress(OSError):
            self.pipes[worker].send(("_restart", i - self.rows[worker].start, seed))
        return self._answer(worker)[1]

    def _step(self, action: np.ndarray) -> Step:
        steps = self._ask_each([("_step", action[rows]) for rows in self.rows])
        obs, reward, terminated, truncated = (np.concatenate([step[part] for step in steps]) for part in range(4))
        final_obs = None
        if any(step.final_obs is not None for step in steps):
            final_obs = np.concatenate([step.obs if step.final_obs is None else step.final_obs for step in steps])
        infos = [info for step in steps for info in step.info]
        return Step(obs, reward, terminated, truncated, final_obs, self._cost(infos), infos)

    def _save(self) -> list[list[dict[str, Any]]]:
        """Save in the format of `GymVectorEnv`, so that a run can resume with another number of workers."""
        return [copy for copies in self._ask_all("_save") for copy in copies]

    def _load(self, state: list[list[dict[str, Any]]]) -> None:
        self._ask_each([("_load", state[rows], self.episode_length[rows].tolist()) for rows in self.rows])

    def close(self) -> None:
        self._end()


def _start(workers: int) -> tuple[list[BaseProcess], list[Connection]]:
    """Start the processes. Only this process receives Ctrl-C, and it then ends them."""
    context, processes, pipes = multiprocessing.get_context("spawn"), [], []
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main else None        # new processes inherit it
    try:
        for i in range(workers):
            pipe, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True, name=f"environments {i}")
            process.start()
            theirs.close()                                                # else we would not notice its end
            processes.append(process)
            pipes.append(pipe)
    finally:
        if in_main:
            signal.signal(signal.SIGINT, before)
    return processes, pipes


def _end(processes: list[BaseProcess], pipes: list[Connection]) -> None:
    """Close the pipes, which ends the processes. Kill those that do not end."""
    for pipe in pipes:
        pipe.close()
    for process in processes:
        process.join(CLOSE_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def _work(pipe: Connection) -> None:
    """Main function of a worker: create its copies, then run commands until the pipe is closed."""
    leave_to_first()
    threadpool_limits(1, "blas")                                          # the workers share the cores
    copies = Copies()
    with contextlib.suppress(OSError):                                    # the pipe was closed during a step
        while True:
            try:
                message = pipe.recv()
            except EOFError:
                break
            except Exception as error:                                    # the message cannot be loaded here
                answer = "user error", (f"a worker process cannot load this env ({error}); give an id, or a function "
                                        "in a file that can be imported")
            else:
                answer = copies.answer(message)
            try:
                pipe.send(answer)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                pipe.send(("user error", f"the info of a step cannot be sent between processes ({error}); let the "
                                         "environment put plain data in it, or leave out --env-workers"))
    copies.close()


class Copies:
    """Copies of a worker. The first message, `make_one` and the seeds, creates them; all others are commands."""

    def __init__(self):
        self.env: GymVectorEnv | None = None

    def answer(self, message: tuple) -> tuple[str, Any]:
        """Return the kind of the answer, "" if there was no error, and the answer."""
        try:
            if self.env is not None:
                command, *arguments = message
                return "", getattr(self.env, command)(*arguments)
            make_one, seeds, begin = message
            self.env = GymVectorEnv(make_one, len(seeds), 0, seeds=seeds, begin=begin)
            return "", (self.env.observation_space, self.env.action_space)
        except Unsaveable as error:
            return "unsaveable", str(error)
        except UserError as error:
            return "user error", str(error)
        except SystemExit as end:
            return "user error", exited(end)
        except (EnvironmentFailure, NonFiniteError) as error:
            return "error", (type(error), str(error), "".join(traceback.format_exception(error.__cause__ or error)))
        except Exception as error:
            return "error", (WorkerError, f"a worker process raised {type(error).__name__}: {error}",
                             traceback.format_exc())

    def close(self) -> None:
        """Close the copies, if they were created."""
        if self.env is not None:
            self.env.close()
