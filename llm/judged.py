"""Held-out preference pairs of a run, and the scores that a reward model or a policy gives them."""
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llm.policy.generate import Prompts
from llm.policy.load import load_model, load_reward_model
from llm.policy.score import score
from llm.policy.tokenizer import Messages, Tokenizer
from llm.preferences import PATIENCE, compare
from llm.restore import answers, sampling_of, start_of, writer
from llm.tasks.check import problems_of
from llm.tasks.held_out import EVALUATION
from llm.tasks.task import Problem, Task, input_of
from spinup.core.masked import select
from spinup.errors import UserError
from spinup.runs.folders import describe

CHUNK = 256             # pairs or problems at a time
Pair = tuple[Problem, str, str]         # a problem, the chosen response, the rejected response
Judge = Callable[[Sequence[str | Messages], Sequence[list[int]]], list[float]]
Tokens = Callable[[str], list[int]]


def held_out_pairs(folder: Path, data: dict[str, Any], task: Task, n: int, seed: int, device: str) -> list[Pair]:
    """Return up to `n` held-out preference pairs of the kind that a run learns from. They come from the task's file, or
    from new responses of the run's initial policy, compared without noise. Raise UserError if there are none.
    """
    rng = np.random.default_rng(EVALUATION + 1 + seed)
    if task.pairs is not None:
        given = task.pairs(True)
        return [given[i][1:] for i in rng.permutation(len(given))[:n]]
    policy, found = writer(start_of(folder, data), data, device, seed), []
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


def judge_in(folder: Path, data: dict[str, Any], task: Task, device: str) -> tuple[Judge, Tokens]:
    """Return the function that scores responses, given as tokens, to prompts, and the function that makes these tokens.

    A response is cut at the longest length of a response, as in training. The judge is the reward model in a folder,
    or the implicit reward of a policy: its log ratio to the initial policy (Rafailov et al. 2023).
    """
    limit, _ = sampling_of(folder, data)

    def tokens_with(tokenizer: Tokenizer) -> Tokens:
        sampled = task.pairs is None                                      # else special tokens of a file are meant
        return lambda text: [*tokenizer.encode(text, literal=sampled), tokenizer.end][:limit]

    if data.get("judges"):
        model = load_reward_model(folder, device, unfinished=True)
        return model.judge_tokens, tokens_with(model.tokenizer)
    policy = writer(folder, data, device)
    tokenizer, temperature, where = policy.tokenizer, policy.temperature, policy.model.device
    reference = load_model(start_of(folder, data)).model.to(where)

    @torch.no_grad()
    def judge(prompts: Sequence[str | Messages], responses: Sequence[list[int]]) -> list[float]:
        asked, said = Prompts.of([tokenizer.prompt(p) for p in prompts], where), Prompts.of(responses, where)
        of, places = (torch.arange(n, device=where) for n in said.ids.shape)
        logp, before = (score(m, asked, of, said.ids, temperature=temperature)[0] for m in (policy.model, reference))
        return select(logp - before, places < said.lengths[:, None]).sum(1).tolist()
    return judge, tokens_with(tokenizer)


def judged(folder: Path, data: dict[str, Any], task: Task, pairs: Sequence[Pair],
           device: str) -> tuple[list[Pair], np.ndarray]:
    """Return the pairs, and the scores of the chosen and of the rejected response of each, `[n, 2]`. Pairs whose
    responses are equal after the cut are left out, as in training. Raise UserError if no pair is left."""
    (judge, tokens), found = judge_in(folder, data, task, device), []
    both = [(pair, [tokens(text) for text in pair[1:]]) for pair in pairs]
    both = [(pair, rows) for pair, rows in both if rows[0] != rows[1]]
    if not both:
        raise UserError(f"the two responses of each of {len(pairs)} pairs are the same within the longest response of "
                        f"{describe(folder)}; train again with a larger --max-tokens")
    size = data["config"]["micro_batch"] // 2 or CHUNK
    for i in range(0, len(both), size):
        some = both[i:i + size]
        asked = [input_of(problem) for (problem, _, _), _ in some for _ in range(2)]
        found += judge(asked, [row for _, rows in some for row in rows])
    return [pair for pair, _ in both], np.array(found).reshape(-1, 2)
