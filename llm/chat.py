"""Chat with a policy from the keyboard or a pipe."""
import sys
from pathlib import Path

from llm.policy.scalar import RewardModel
from llm.restore import load
from spinup.errors import UserError
from spinup.runs.display import quoted


def chat(directory: Path, *, greedy: bool = False, max_tokens: int | None = None, system: str | None = None,
         device: str = "auto") -> int:
    """Read prompts from the keyboard or a pipe, and print a response to each. Return an exit code.

    A model with a chat template reads the whole conversation; others read each prompt alone.
    Raise UserError for a reward model, which writes no responses, and for a system prompt without a chat template.
    """
    policy = load(directory, device)
    if isinstance(policy, RewardModel):
        raise UserError(f"{directory} holds a reward model, which does not generate text; type `spinup watch "
                        f"{quoted(str(directory))}` to see its rewards")
    if system is not None and not policy.tokenizer.chats:
        raise UserError(f"{directory} has no chat template, so it cannot read a system prompt; leave out --system")
    alphabet, answered = getattr(policy.tokenizer, "alphabet", None), 0
    turns = [{"role": "system", "content": system}] if system is not None else []
    if sys.stdin.isatty():
        print(f"type a prompt{f' of the characters {alphabet!r}' if alphabet else ''}; an empty line ends the chat")
    while True:
        try:
            prompt = input("> " if sys.stdin.isatty() else "").rstrip("\n")
            if not prompt:
                return 0
            asked = [*turns, {"role": "user", "content": prompt}]
            (response,) = policy.respond(asked, greedy=greedy, max_tokens=max_tokens or 0)
            print(response, flush=True)
            turns, answered = [*asked, {"role": "assistant", "content": response}], answered + 1
        except EOFError:
            if not answered and not sys.stdin.isatty():
                raise UserError("standard input has no prompt; run `spinup llm chat` in a terminal, or pipe one prompt "
                                "per line into it") from None
            return 0
        except UnicodeDecodeError:
            raise UserError("standard input is not UTF-8 text; save it as UTF-8") from None
        except (UserError, ValueError) as error:
            print(f"spinup: {error}", file=sys.stderr)
            if not sys.stdin.isatty():
                return 2
