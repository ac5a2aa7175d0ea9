"""Evaluation of a policy or a reward model on held-out problems or pairs."""
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llm.judged import CHUNK, held_out_pairs, judged
from llm.memory import problems_at_once
from llm.policy.policy import LanguagePolicy
from llm.policy.scalar import RewardModel
from llm.restore import answers, load, open_run, writer
from llm.tasks.held_out import held_out
from llm.tasks.make import make_task
from llm.tasks.task import Problem, Task, input_of
from spinup.errors import UserError
from spinup.runs.folders import describe
from spinup.view.statistics import ANYWHERE, SHARE, in_words, interval

PASS = 8                # samples of a problem for pass@k


def evaluate(directory: Path, *, problems: int = 100, seed: int = 0, as_json: bool = False,
             device: str = "auto") -> str:
    """Evaluate a run by its measure, on held-out problems or pairs. If the task has few, its log used the same ones."""
    folder, data, task = open_run(directory)
    measure = data.get("measure", task.measure)
    if measure == "pair_accuracy":
        pairs = held_out_pairs(folder, data, task, problems, seed, device)
        _, said = judged(folder, data, task, pairs, device)
        margin = said[:, 0] - said[:, 1]
        found, words = of_pairs((margin > 0) + (margin == 0) / 2)
    else:
        asked = held_out(task, problems, seed)
        found, words = of_policy(writer(folder, data, device, seed), task, asked, measure)
    if as_json:
        return json.dumps({"directory": str(folder), "task": task.name, **found})
    return f"{describe(folder)}: {words}"


def evaluate_on(directory: Path, given: str, *, reward: str | None = None, problems: int = 100, samples: int = PASS,
                seed: int = 0, max_tokens: int | None = None, as_json: bool = False, device: str = "auto") -> str:
    """Evaluate a policy on the task `given`, which may differ from its training task.

    directory: a run, a checkpoint, a GGUF file or the name of a fetched model. samples: responses to each problem.
    max_tokens: longest response; None means the task's limit. Raise UserError for a reward model, and for a task that
    does not fit the model.
    """
    task, trained = make_task(given, reward), load(directory, device)
    if isinstance(trained, RewardModel):
        raise UserError(f"{directory} holds a reward model, which does not generate text; give the folder of a policy")
    policy = LanguagePolicy(trained.model, trained.tokenizer, max_tokens or task.max_tokens, trained.temperature,
                            seed)
    asked = held_out(task, problems, seed)
    found, words = of_policy(policy, task, asked, task.measure, samples)
    if as_json:
        return json.dumps({"directory": str(directory), "task": task.name, **found})
    return f"{describe(directory)} on {task.name}: {words}"


def of_policy(policy: LanguagePolicy, task: Task, asked: list[Problem], measure: str,
              samples: int = PASS) -> tuple[dict[str, Any], str]:
    """Results of a policy on the problems `asked`, as numbers and in words."""
    texts, sampled, greedy = [], [], []
    size = problems_at_once(policy, [input_of(p) for p in asked], samples, CHUNK)
    for some in (asked[i:i + size] for i in range(0, len(asked), size)):
        written, earned = answers(policy, task, some, samples)
        texts += written
        sampled.append(earned)
        greedy.append(answers(policy, task, some, 1, greedy=True)[1][:, 0])
    rewards = torch.cat(sampled), torch.cat(greedy)                       # [P, samples], [P]
    if measure != "held_out_reward":
        return of_accuracy(*rewards, texts if samples != PASS else None)
    true = task.gold is not None and [task.gold(asked[i // samples], text) for i, text in enumerate(texts)]
    return of_rewards(*rewards, torch.tensor(true).view(-1, samples) if true else None)


def mean_of(each: np.ndarray, within: tuple[float, float] = ANYWHERE) -> tuple[float, tuple[float, float] | None, str]:
    """Mean of the numbers of all problems, `[P]`, its 95 % confidence interval, and the interval in words."""
    return float(each.mean()), interval(each, within), in_words(each, 3, within)


def of_pairs(right: np.ndarray) -> tuple[dict[str, Any], str]:
    """Results on pairs, as numbers and in words. right: `[n]`, 1 where a pair is ranked correctly, .5 for a tie."""
    mean, between, words = mean_of(right.astype(float), SHARE)
    return ({"pairs": len(right), "pair_accuracy": mean, "interval": between},
            f"{mean:.3f} of {len(right)} held-out pairs ranked correctly ({words})")


def of_accuracy(sampled: torch.Tensor, greedy: torch.Tensor,
                texts: Sequence[str] | None = None) -> tuple[dict[str, Any], str]:
    """Accuracy from rewards of samples `[P, samples]` and of greedy responses `[P]`; 1 means solved.

    texts: the samples; then the result also has the number of different right ones, a mean over problems.
    """
    right, n = (sampled >= 1).double(), sampled.shape[1]
    mean, between, words = mean_of(right.mean(1).numpy(), SHARE)
    found = {"problems": len(right), "held_out_accuracy": mean, "interval": between,
             "held_out_greedy": float((greedy >= 1).double().mean()), f"pass@{n}": float(right.amax(1).mean()),
             "reward": float(sampled.mean())}
    told = (f"{mean:.3f} of held-out problems solved ({words}), with {n} responses to each of {len(right)}; greedy "
            f"{found['held_out_greedy']:.3f}; solved at least once in {n}: {found[f'pass@{n}']:.3f}")
    if texts is not None:
        different = {(i // n, text) for i, text in enumerate(texts) if sampled[i // n, i % n] >= 1}
        found["distinct_right"] = len(different) / len(right)
        told += f"; {found['distinct_right']:.2f} different right responses to a problem"
    return found, told


def of_rewards(sampled: torch.Tensor, greedy: torch.Tensor, gold: torch.Tensor | None) -> tuple[dict[str, Any], str]:
    """Mean rewards, as numbers and in words, for tasks without right answers.

    sampled: `[problems, samples]`. greedy: `[problems]`. gold: true reward of each sampled response, if known.
    """
    found, said = {"problems": len(sampled), "reward_greedy": float(greedy.mean())}, []
    for name, rewards in {"reward": sampled, "gold": gold}.items():
        if rewards is not None:
            values = rewards.double().numpy()
            mean, between, words = mean_of(values.mean(1))
            found |= {name: mean, f"{name}_interval": between, f"{name}_std": float(values.std())}
            said.append(f"{mean:.3f} ({words}; standard deviation of a response {values.std():.3f})")
    words = (f"{'reward' if gold is None else 'learned reward'} {said[0]}, with {sampled.shape[1]} responses to each "
             f"of {len(sampled)} held-out problems; greedy {found['reward_greedy']:.3f}")
    return found, words if gold is None else f"{words}; true reward of the sampled responses {said[1]}"
