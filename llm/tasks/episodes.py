"""Responses with text from a tool, or from an episode that replies to each turn.

This module decides who wrote each character, for sampled responses and for demonstrations.
"""
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from llm.faults import SHORT, call, finite
from spinup.errors import UserError


class Disagreement(UserError, ValueError):
    """Error for a text that differs from the output of its tool or episode in a replay."""


class Episode:
    """One episode for one problem: the environment of a task with several turns. Any class with these methods works.

    The policy reads the prompt and writes a turn, up to the task's `end_of_turn`. `act` returns its reward. Unless this
    was the last turn, `observe` returns the text that the policy reads next. The reward of the response is the sum of
    the rewards of all turns.
    """

    def act(self, text: str) -> tuple[float, bool]:
        """Return the reward of a turn, and True if the episode is over.

        text: any text; it contains `end_of_turn` if the policy wrote it.
        """
        raise NotImplementedError

    def observe(self) -> str:
        """Return the text that the policy reads before its next turn; it is not an action, so never trained on."""
        return ""

    def close(self) -> None:
        """Close the episode. It is called exactly once: at the end, after an error, or after Ctrl-C."""


class Dialogue:
    """An episode of a task, with the rewards of its turns and its state. Raise UserError if the user's code fails.

    name: the function that returns observations, for error messages.
    """

    def __init__(self, task: Any, problem: Any):
        self.task, self.end_of_turn = task, task.end_of_turn
        self.rewards: list[float] = []
        self.done, self.ended = False, False
        here = f"for the prompt {SHORT.repr(problem.prompt)}"
        self.name, name = f"`observe` of the task {task.name}", f"`open` of the task {task.name}"
        self.episode = call(name, here, task.open, problem)
        for method in ("act", "observe", "close"):
            if not callable(getattr(self.episode, method, None)):
                raise UserError(f"{name} must return an episode, but returned {SHORT.repr(self.episode)}, which has no "
                                f"method {method}, {here}; derive its class from llm.tasks.episodes.Episode")

    @property
    def reward(self) -> float:
        """Sum of the rewards so far."""
        return sum(self.rewards, 0.0)

    def take(self, turn: str) -> str:
        """Pass a turn to the episode. Return the observation that follows, "" if the episode is over.

        Raise UserError if the episode returns anything of the wrong type.
        """
        name, here = f"`act` of the task {self.task.name}", f"for the turn {SHORT.repr(turn)}"
        result = call(name, here, self.episode.act, turn)
        if not isinstance(result, tuple) or len(result) != 2:
            raise UserError(f"{name} must return (reward, done), but returned {SHORT.repr(result)} {here}")
        self.rewards.append(finite(result[0], name, here))
        if not isinstance(result[1], bool | np.bool_):
            raise UserError(f"{name} must return (reward, done), where done is True or False, but returned "
                            f"{SHORT.repr(result[1])} for done {here}")
        self.done = bool(result[1])
        if self.done:
            return ""
        text = call(self.name, f"after the turn {SHORT.repr(turn)}", self.episode.observe)
        if not isinstance(text, str):
            raise UserError(f"{self.name} must return a text, but returned {SHORT.repr(text)}")
        return text

    def end(self, turn: str, ended: bool) -> None:
        """Finish a response that stops within a turn, because the policy `ended` it or the limit cut it off.

        An empty turn that was cut off is ignored, and so is every later call.
        """
        if not self.done and not self.ended and (turn or ended):
            self.take(turn)
        self.ended = True

    def close(self) -> None:
        """Close the episode."""
        call(f"`close` of the task {self.task.name}", "at the end of an episode", self.episode.close)


@contextmanager
def opened(task: Any, problems: Sequence[Any]) -> Iterator[list[Dialogue]]:
    """Open one episode for each response; an empty list if the task has no episodes.

    All episodes are closed at the end, even if one of them fails. Raise UserError if two episodes are the same object.
    """
    with ExitStack() as stack:
        dialogues, begun = [], set()
        for problem in problems if task.open else []:
            dialogue = Dialogue(task, problem)
            if id(dialogue.episode) in begun:
                raise UserError(f"`open` of the task {task.name} must return a new episode for each response, but "
                                "returned the same object twice; create one in each call")
            begun.add(id(dialogue.episode))
            dialogues.append(stack.enter_context(closing(dialogue)))
        yield dialogues


def called(task: Any, text: str) -> tuple[list[bool], bool]:
    """Return the mask of a response in a task without episodes, and True if the text ends within the tool's output.

    The mask has for each character: True if the policy wrote it, False if the tool wrote it. The tool is called after
    each character of the policy, and never after its own output. Generation calls the tool after each sampled token, so
    both masks are equal. There is one exception: if a call ends in the middle of a token, such as `]2`, generation does
    not see it. Raise Disagreement if the text differs from the output of the tool.
    """
    own, rest, who = [], "", f"tool of the task {task.name}"
    while task.tool and len(own) < len(text):
        own.append(True)
        added = task.tool(text[:len(own)]) or ""
        own += [False] * len(found := following(text, len(own), added, who))
        rest = added[len(found):]
    return own or [True] * len(text), rest != ""


def played(task: Any, text: str, problem: Any) -> tuple[list[bool], float, bool]:
    """Return the mask of a response in a task with episodes, the sum of rewards, and a bool.

    The mask has for each character: True if the policy wrote it, False if the episode wrote it. The bool is True if the
    next token is not the policy's: the episode ended the response, or the text ends within an observation. Raise
    Disagreement if the text differs from the output of the episode.
    """
    own, rest = [], ""
    with opened(task, [problem]) as (dialogue,):
        begin = 0                                                         # start of the current turn
        while len(own) < len(text):
            own.append(True)
            if dialogue.end_of_turn in text[begin:len(own)]:
                added = dialogue.take(text[begin:len(own)])
                own += [False] * len(found := following(text, len(own), added, f"episode of the task {task.name}"))
                begin, rest = len(own), added[len(found):]
            if dialogue.done and len(own) < len(text):
                raise Disagreement(f"after {text[:len(own)]!r} the episode of the task {task.name} is over, but the "
                                   f"text continues with {text[len(own):]!r}; a demonstration must end there")
        over = dialogue.done
        dialogue.end(text[begin:], ended=True)
    return own, dialogue.reward, over or rest != ""


def following(text: str, begin: int, added: str, who: str) -> str:
    """Return the part of `added` that a text has from `begin` on. Raise Disagreement if it has other text there."""
    found = text[begin:begin + len(added)]
    if not added.startswith(found):
        raise Disagreement(f"after {text[:begin]!r} the {who} writes {added!r}, but the text has {found!r}; a "
                           "demonstration must contain the same output")
    return found


def pieces(task: Any, text: str, problem: Any = None) -> tuple[list[tuple[bool, str]], bool]:
    """Split a response into pieces (True if the policy wrote it, text).

    Also return True if the next token is not the policy's: its episode ended the response, or the text ends within the
    output of the tool or the episode.
    """
    own, over = called(task, text) if task.open is None else played(task, text, problem)[::2]
    return [(mine, "".join(c for _, c in piece)) for mine, piece in groupby(zip(own, text, strict=True),
                                                                            itemgetter(0))], over
