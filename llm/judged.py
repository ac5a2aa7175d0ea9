"""Held-out preference pairs of a run, and the scores that a reward model or a policy gives them."""
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llm.policy.generate import Prompts
from llm.policy.load import load_model, load_reward_model
from llm.policy.score import score
from llm.policy.tokenizer import Messages
from llm.preferences import PATIENCE, compare
from llm.restore import answers, start_of, writer
from llm.tasks.check import problems_of
from llm.tasks.held_out import EVALUATION
from llm.tasks.task import Problem, Task, input_of
from spinup.core.masked import select
from spinup.errors import UserError
from spinup.runs.folders import describe

CHUNK = 256             # pairs or problems at a time
Pair = tuple[Problem, str, str]         # a problem, the chosen response, the rejected response
Judge = Callable[[Sequence[str | Messages], Sequence[str]], list[float]]


def find_pairs(folder: Path, data: dict[str, Any], task: Task, n: int, seed: int, device: str) -> list[Pair]:
    """Return up to `n` held-out preference pairs of the kind that a run learns from. They come from the task's file, or
    from new responses of the run's initial policy, compared without noise. Raise UserError if there are none.
    """
    rng = np.random.default_rng(EVALUATION + 1 + seed)
    if task.pairs is not None:
        given = task.pairs(True)
        return [given[i][1:] for i in rng.permutation(len(given))[:n]]
    policy, found = writer(start_of(folder, data), data, task, device, seed), []
    for _ in range(PATIENCE):
        asked = problems_of(task, n, rng, True)
        texts, rewards = answers(policy, task, asked, 2)
        found += [(asked[i // 2], texts[i], texts[j]) for i, j in compare(rewards.flatten(), 2, 0.0, rng).tolist()]
        if len(found) >= n:
            break
    if not found:
        raise UserError(f"all pairs of responses of {describe(start_of(folder, data))} have equal rewards, so there "
                        "are no preferences; raise --episodes")
    return found[:n]


def judge_in(folder: Path, data: dict[str, Any], task: Task, device: str) -> Judge:
    """Return the function that scores responses to prompts.

    It is the reward model in a folder, or the implicit reward of a policy: its log ratio to the initial policy
    (Rafailov et al. 2023).
    """
    if data.get("judges"):
        return load_reward_model(folder, device, unfinished=True).judge
    policy = writer(folder, data, task, device)
    tokenizer, temperature, where = policy.tokenizer, policy.temperature, policy.model.device
    reference = load_model(start_of(folder, data)).model.to(where)

    @torch.no_grad()
    def judge(prompts: Sequence[str | Messages], responses: Sequence[str]) -> list[float]:
        asked = Prompts.of([tokenizer.prompt(p) for p in prompts], where)
        said = Prompts.of([[*tokenizer.encode(r), tokenizer.end][:policy.max_tokens] for r in responses], where)
        of, places = (torch.arange(n, device=where) for n in said.ids.shape)
        logp, before = (score(m, asked, of, said.ids, temperature=temperature)[0] for m in (policy.model, reference))
        return select(logp - before, places < said.lengths[:, None]).sum(1).tolist()
    return judge


def judged(folder: Path, data: dict[str, Any], task: Task, pairs: Sequence[Pair], device: str) -> np.ndarray:
    """Scores of the chosen and of the rejected response of each pair, `[n, 2]`."""
    judge, found = judge_in(folder, data, task, device), []
    size = data["config"]["micro_batch"] // 2 or CHUNK
    for i in range(0, len(pairs), size):
        some = pairs[i:i + size]
        found += judge([input_of(p) for p, _, _ in some for _ in range(2)], [r for _, a, b in some for r in (a, b)])
    return np.array(found).reshape(-1, 2)
