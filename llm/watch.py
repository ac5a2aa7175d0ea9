"""Reading what a policy writes: samples coloured by advantage, accuracy on held-out problems, and a conversation."""
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.text import Text

from llm.policy.policy import LanguagePolicy
from llm.run import EVALUATION
from llm.start import load_model
from llm.tasks.make import make_task
from llm.tasks.task import Problem, Task, judge_all
from spinup.errors import UserError
from spinup.runs.folders import find_run, read_run
from spinup.runs.policy import describe
from spinup.runs.statistics import bootstrap_interval

PASS = 8                # samples of a problem for pass@k
CHUNK = 256             # problems answered at once


def open_run(directory: Path) -> tuple[LanguagePolicy, Task, Path]:
    """The policy and the task of a run."""
    folder = find_run(directory)
    config = read_run(folder)["config"]
    if not isinstance(config["task"], str) or not isinstance(config["reward"], str):
        raise UserError(f"the task of {describe(folder)} is a Python object; from Python: llm.load({str(folder)!r})")
    task, start = make_task(config["task"], config["reward"] or None), load_model(folder)
    tokens = (config["max_tokens"] or task.max_tokens) + config.get("overlong", 0)
    return LanguagePolicy(start.model, start.tokenizer, tokens, config["temperature"]), task, folder


def answers(policy: LanguagePolicy, task: Task, problems: list[Problem], samples: int, greedy: bool,
            generator: torch.Generator) -> tuple[list[str], torch.Tensor]:
    """Responses, `samples` to each problem, and their rewards `[P, samples]`."""
    prompts = [p.prompt for p in problems]
    texts = policy.respond_all(prompts, samples, None if greedy else generator, policy.max_tokens, task.tool)
    asked = [p for p in problems for _ in range(samples)]
    return texts, torch.tensor(judge_all(task, asked, texts)).view(-1, samples)


def watch(directory: Path, *, prompts: int = 1, samples: int = PASS, seed: int = 0) -> None:
    """Print `samples` responses to each of some held-out prompts: green better than the others, red worse."""
    policy, task, _ = open_run(directory)
    console = Console(soft_wrap=True)
    problems = task.problems(prompts, np.random.default_rng(EVALUATION + 1 + seed), True)
    texts, rewards = answers(policy, task, problems, samples, False, torch.Generator().manual_seed(seed))
    for i, problem in enumerate(problems):
        known = f"   answer {problem.answer!r}" if problem.answer else ""
        console.print(Text(problem.prompt, "bold") + Text(known, "dim"))
        mean = rewards[i].mean().item()
        for text, reward in zip(texts[i * samples:(i + 1) * samples], rewards[i].tolist(), strict=True):
            adv = reward - mean
            style = "green" if adv > 1e-6 else "red" if adv < -1e-6 else "dim"
            console.print(Text(f"  reward {reward:5.2f}  advantage {adv:+5.2f}  ") + Text(repr(text)[1:-1], style))


def evaluate(directory: Path, *, problems: int = 100, seed: int = 0, as_json: bool = False) -> str:
    """Accuracy on held-out problems that no row of the run has used: sampled, greedy, and with several tries."""
    policy, task, folder = open_run(directory)
    generator = torch.Generator().manual_seed(seed)
    asked = task.problems(problems, np.random.default_rng(EVALUATION + 1 + seed), True)
    sampled, greedy = [], []
    for i in range(0, len(asked), CHUNK):
        some = asked[i:i + CHUNK]
        sampled.append(answers(policy, task, some, PASS, False, generator)[1])
        greedy.append(answers(policy, task, some, 1, True, generator)[1][:, 0])
    right = (torch.cat(sampled) >= 1).double()                            # [P, PASS]
    each = right.mean(1).numpy()
    low, high = bootstrap_interval(each) if len(each) > 1 else (math.nan, math.nan)
    found: dict[str, Any] = {
        "directory": str(folder), "task": task.name, "problems": problems, "held_out_accuracy": float(each.mean()),
        "interval": [float(low), float(high)], "held_out_greedy": float((torch.cat(greedy) >= 1).double().mean()),
        f"pass@{PASS}": float(right.amax(1).mean()), "reward": float(torch.cat(sampled).mean())}
    if as_json:
        return json.dumps(found)
    return (f"{describe(folder)}: {found['held_out_accuracy']:.3f} of held-out problems solved (95 % interval "
            f"{low:.3f} to {high:.3f}), drawing {PASS} answers to each of {problems}; greedy "
            f"{found['held_out_greedy']:.3f}; solved at least once in {PASS}: {found[f'pass@{PASS}']:.3f}")


def chat(directory: Path, *, greedy: bool = False, max_tokens: int | None = None) -> int:
    """Read prompts from the keyboard, or a pipe, and answer them."""
    import llm
    policy = llm.load(directory)
    alphabet = getattr(policy.tokenizer, "alphabet", None)
    if sys.stdin.isatty():
        print(f"type a prompt{f' of {alphabet!r}' if alphabet else ''}; an empty line ends")
    while True:
        try:
            prompt = input("> " if sys.stdin.isatty() else "").rstrip("\n")
        except EOFError:
            return 0
        if not prompt:
            return 0
        try:
            print(policy.respond(prompt, greedy=greedy, max_tokens=max_tokens or 0)[0], flush=True)
        except (UserError, ValueError) as error:
            print(f"spinup: {error}", file=sys.stderr)
            if not sys.stdin.isatty():
                return 2
