"""Search at test time: sample several responses of one policy to each problem, and choose one of them.

    best      sample responses until the task's verifier gives a reward of 1
    vote      choose the most frequent final answer; this needs no verifier
    repair    after a wrong attempt, the policy reads the verifier's error message and tries again; needs several turns
    lemmas    keep the lemmas that wrong proofs prove; later attempts may use them as premises

The cost of a search is the number of tokens that the policy generates.
"""
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llm.policy.policy import LanguagePolicy
from llm.policy.scalar import RewardModel
from llm.restore import load
from llm.rollout import Batch, sample
from llm.tasks.held_out import held_out
from llm.tasks.make import make_task
from llm.tasks.parts import is_right
from llm.tasks.task import Problem, Task
from spinup.errors import UserError
from spinup.runs.folders import describe

ROWS = 2048             # responses sampled at a time
ROUND = 8               # attempts at a theorem between two additions to its lemmas
GIVEN = 3               # most lemmas that an attempt may use


@dataclass
class Search:
    """Results of a search on P problems with K attempts each.

    right: `[P, K]` bool: True if attempt k solves the problem.
    tokens: `[P, K]` tokens that the policy generated in attempt k.
    stops: True if the first right attempt ends the search; False if all attempts are needed.
    """

    right: np.ndarray
    tokens: np.ndarray
    stops: bool = True

    def after(self, k: int) -> tuple[float, float]:
        """Share of problems solved in the first k attempts, and the mean number of tokens of a problem."""
        right, spent = self.right[:, :k], self.tokens[:, :k].cumsum(1)
        if not self.stops:
            return float(self.right[:, k - 1].mean()), float(spent[:, -1].mean())
        last = np.where(right.any(1), right.argmax(1), k - 1)
        return float(right.any(1).mean()), float(spent[np.arange(len(right)), last].mean())


def search(directory: str | Path, given: str | Task, *, how: str = "best", samples: int = 16, problems: int = 100,
           reward: Any = None, seed: int = 0, max_tokens: int | None = None, device: str = "auto") -> dict[str, Any]:
    """Search for solutions of held-out problems with a trained policy.

    Args:
        directory: a run, a checkpoint, a GGUF file or the name of a fetched model.
        given, reward: the task and its reward, as for `make_task`.
        how: a name in `WAYS`.
        samples: attempts at a problem; with `repair`, each may have repairs.
        problems: number of held-out problems. seed: of the problems and of the responses.
        max_tokens: longest response in tokens; None means the task's limit.
    Return the settings and `rows`: for 1, 2, 4 ... attempts, the share of problems `solved` and the mean `tokens`
    generated for a problem. Raise UserError for a task that does not fit.
    """
    if how not in WAYS:
        raise UserError(f"there is no search {how!r}; choose {', '.join(WAYS)}")
    task, trained = make_task(given, reward), load(directory, device)
    if needed := fault(how, task):
        raise UserError(f"the search {how} needs {needed}; choose another task, or --how best")
    if isinstance(trained, RewardModel):
        raise UserError(f"{directory} holds a reward model, which does not generate text; give the folder of a policy")
    policy = LanguagePolicy(trained.model, trained.tokenizer, max_tokens or task.max_tokens, trained.temperature, seed)
    asked = held_out(task, problems, seed)
    found = WAYS[how](policy, task, asked, samples)
    return {"directory": str(directory), "task": task.name, "how": how, "problems": len(asked), "seed": seed,
            "rows": [{"search": name, "attempts": k, "solved": each.after(k)[0], "tokens": each.after(k)[1]}
                     for name, each in found.items() for k in powers(each.right.shape[1])]}


def powers(most: int) -> list[int]:
    """Return 1, 2, 4 ... up to `most`, which is always the last."""
    return [*(2 ** i for i in range(most.bit_length()) if 2 ** i < most), most]


def sampled(policy: LanguagePolicy, task: Task, problems: Sequence[Problem], samples: int) -> list[Batch]:
    """Sample `samples` responses to each problem, in batches of about `ROWS` responses."""
    some = max(1, ROWS // samples)
    return [sample(policy.sampler, task, policy.tokenizer, problems[i:i + some], samples=samples,
                   max_tokens=policy.max_tokens, generator=policy.generator, temperature=policy.temperature)
            for i in range(0, len(problems), some)]


def gathered(batches: Sequence[Batch], samples: int, of: Callable[[Batch], Any]) -> np.ndarray:
    """Return the numbers `of` each batch, `[P, samples]`."""
    return np.concatenate([np.asarray(of(batch)).reshape(-1, samples) for batch in batches])


def best(policy: LanguagePolicy, task: Task, problems: Sequence[Problem], samples: int) -> dict[str, Search]:
    """Sample until the verifier accepts a response."""
    batches = sampled(policy, task, problems, samples)
    return {"best": Search(gathered(batches, samples, lambda b: b.rewards.cpu() >= 1),
                           gathered(batches, samples, lambda b: b.responses.mask.sum(1).cpu()))}


def vote(policy: LanguagePolicy, task: Task, problems: Sequence[Problem], samples: int) -> dict[str, Search]:
    """Choose the most frequent final answer; of several, the one that was sampled first. A response without an answer
    does not vote."""
    batches = sampled(policy, task, problems, samples)
    rewards = gathered(batches, samples, lambda b: b.rewards.cpu())
    answers = gathered(batches, samples, lambda b: np.array([task.answer_of(b.problems[i], text) for i, text in zip(
        b.responses.of.tolist(), b.texts, strict=True)], dtype=object))
    right = np.zeros(rewards.shape, bool)
    for i, row in enumerate(answers.tolist()):
        for k in range(samples):
            votes = Counter(answer for answer in row[:k + 1] if answer is not None)
            right[i, k] = bool(votes) and rewards[i, row.index(votes.most_common(1)[0][0])] >= 1
    return {"vote": Search(right, gathered(batches, samples, lambda b: b.responses.mask.sum(1).cpu()), stops=False)}


def repair(policy: LanguagePolicy, task: Task, problems: Sequence[Problem], samples: int) -> dict[str, Search]:
    """Sample attempts, and a repair of each wrong one; beside it, twice as many attempts without repairs."""
    batches = sampled(policy, task, problems, 2 * samples)
    mask = [batch.responses.mask.cpu().numpy() for batch in batches]
    first = [m * (np.cumsum(m == 0, 1) == 0) for m in mask]               # up to the first observation
    solved = gathered(batches, 2 * samples, lambda b: b.rewards.cpu() >= 1)
    total, alone = (np.concatenate([m.sum(1) for m in each]).reshape(-1, 2 * samples) for each in (mask, first))
    return {"attempts": Search(solved & (total == alone), alone),
            "repair": Search(solved[:, :samples], total[:, :samples])}


def lemmas(policy: LanguagePolicy, task: Task, problems: Sequence[Problem], samples: int) -> dict[str, Search]:
    """Keep the lemmas that wrong attempts prove, and give some of them to later attempts as premises.

    A problem counts as solved if the task's verifier accepts the whole proof, with the proofs of its lemmas, from the
    premises alone.
    """
    rng = np.random.default_rng(policy.generator.initial_seed())
    right, tokens = np.zeros((len(problems), samples), bool), np.zeros((len(problems), samples))
    known: list[dict[str, Any]] = [{} for _ in problems]
    for begin in range(0, samples, ROUND):
        unsolved = np.flatnonzero(~right.any(1))
        attempts = [(i, k) for i in unsolved for k in range(begin, min(begin + ROUND, samples))]
        asked = [task.given(problems[i], some_of(known[i], rng)) for i, _ in attempts]
        for batch, start in zip(sampled(policy, task, asked, 1), range(0, len(asked), ROWS), strict=True):
            for n, text in enumerate(batch.texts):
                i, k = attempts[start + n]
                tokens[i, k] = batch.responses.mask[n].sum()
                right[i, k] = is_right(task.reward(problems[i], task.whole(asked[start + n], text)))
                if not right[i, k]:
                    known[i] = task.lemmas(asked[start + n], text) | known[i]
    return {"lemmas": Search(right, tokens)}


def some_of(known: dict[str, Any], rng: np.random.Generator) -> list[Any]:
    """Return up to `GIVEN` of the known lemmas, at random."""
    chosen = rng.permutation(len(known))[:GIVEN]
    return [list(known.values())[i] for i in chosen]


def table(found: dict[str, Any]) -> str:
    """Write the rows of a search as a table."""
    head = f"{describe(Path(found['directory']))} on {found['task']}: {found['problems']} held-out problems"
    lines = [f"{r['search']:<10}{r['attempts']:>9}{r['solved']:>9.3f}{r['tokens']:>20.1f}" for r in found["rows"]]
    return "\n".join([head, f"{'search':<10}{'attempts':>9}{'solved':>9}{'tokens per problem':>20}", *lines])


def turns(task: Task) -> int:
    """Return the number of attempts of a task: 1, unless it says otherwise."""
    return getattr(task, "turns", 1)


def fault(how: str, task: Task) -> str:
    """Return which task a search needs, if it cannot be done with this one; else ""."""
    if how == "repair" and turns(task) < 2:
        return "a task with a second turn, such as proofs:turns=2"
    if how == "lemmas" and (turns(task) > 1 or not hasattr(task, "lemmas")):
        return "a task with proofs and one turn, such as proofs"
    return ""


WAYS: dict[str, Callable[..., dict[str, Search]]] = {"best": best, "vote": vote, "repair": repair, "lemmas": lemmas}


def report(directory: Path, given: str, *, as_json: bool = False, **settings: Any) -> str:
    """Return the result of `search` with these settings: a table, or one line of JSON."""
    found = search(directory, given, **settings)
    return json.dumps(found) if as_json else table(found)
