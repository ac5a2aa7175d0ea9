"""Language consistency: a reward for responses in the language of the prompt, as in DeepSeek-R1 (2025,
arXiv:2501.12948, section 2.3.2: the share of words in the target language). Magistral (2025, arXiv:2506.10910) rewards
only responses that are in the target language as a whole.

Here a language is a script, such as Latin or Greek, and the share is that of letters. Letters have a script in Unicode,
so this needs no model; it cannot tell English from French, or Japanese from Chinese.
"""
from collections import Counter
from dataclasses import dataclass
from typing import Any
from unicodedata import name as name_of
from unicodedata import normalize

from llm.tasks.task import Task
from llm.tasks.wrappers.format import Bonus
from spinup.errors import UserError

NO_LETTERS = "common"   # script of a text without letters
JAPANESE = {"hiragana", "katakana", "katakana-hiragana", "ideographic"}


def scripts(text: str) -> Counter[str]:
    """Count the letters of each script in a text, by the first word of their names in Unicode, in small letters. The
    scripts of Japanese and Chinese count as one, because Japanese mixes them."""
    letters = (name_of(x, NO_LETTERS).split()[0].lower() for x in normalize("NFKC", text) if x.isalpha())
    return Counter("cjk" if script in JAPANESE else script for script in letters)


def script_of(text: str) -> str:
    """Return the script of most letters of a text; `NO_LETTERS` if it has none."""
    return next((script for script, _ in scripts(text).most_common(1)), NO_LETTERS)


def consistency(prompt: str, response: str) -> float:
    """Return the share of a response's letters that are of the prompt's script; 1 if one of them has no letters."""
    wanted, found = script_of(prompt), scripts(response)
    return found[wanted] / found.total() if found and wanted != NO_LETTERS else 1.0


@dataclass
class Language(Bonus):
    """The bonus is the share of letters in the script of the prompt. Raise UserError for an alphabet of one script."""

    strict: bool = False                # the bonus is 1 if all letters are in the script of the prompt, else 0
    name = "language"

    def check(self, task: Task) -> None:
        super().check(task)
        if task.alphabet is not None and not task.train and len(scripts(task.alphabet)) < 2:
            raise UserError(f"the alphabet of {task.name} has letters of {len(scripts(task.alphabet))} scripts, so its "
                            "responses cannot be in another language than the prompt; leave out language:")

    def bonus(self, problem: Any, response: str) -> float:
        share = consistency(problem.prompt, response)                     # of a conversation, the last turn
        return float(share == 1) if self.strict else share
