"""Watch, evaluate and chat with a policy; watch and evaluate a reward model."""
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.text import Text

from llm.memory import problems_at_once
from llm.policy.generate import Prompts
from llm.policy.load import load_model, load_reward_model
from llm.policy.policy import LanguagePolicy
from llm.policy.scalar import RewardModel
from llm.policy.score import score
from llm.policy.tokenizer import Messages
from llm.preferences import PATIENCE, compare
from llm.restore import load, sampling_of, start_of
from llm.rollout import sample
from llm.run import EVALUATION
from llm.tasks.check import distinct, problems_of
from llm.tasks.make import make_task
from llm.tasks.task import Problem, Task, as_text, input_of, speech
from spinup.core.masked import select
from spinup.errors import UserError
from spinup.machine import find_device
from spinup.runs.folders import describe, find_run, read_run
from spinup.runs.values import reading
from spinup.view.statistics import ANYWHERE, SHARE, in_words, interval

PASS = 8                # samples of a problem for pass@k
CHUNK = 256             # problems per batch of responses

Pair = tuple[Problem, str, str]         # a problem, the chosen response, the rejected response
Judge = Callable[[Sequence[str | Messages], Sequence[str]], list[float]]


def open_run(directory: Path) -> tuple[Path, dict[str, Any], Task]:
    """Return a run's folder, config.json and task. Raise UserError if task or reward was a Python object."""
    folder = find_run(directory)
    data = read_run(folder)
    with reading(f"{describe(folder)}/config.json", "restore it or train again"):
        given = {name: data["config"][name] for name in ("task", "reward")}
    for name, value in given.items():
        if isinstance(value, dict):
            raise UserError(f"the {name} of {describe(folder)} is a Python object; load the run in Python: "
                            f"llm.load({str(folder)!r})")
    return folder, data, make_task(given["task"], given["reward"] or None)


def held_out(task: Task, n: int, seed: int) -> list[Problem]:
    """Return `n` different held-out problems, or fewer if the task has fewer."""
    many = problems_of(task, 8 * n, np.random.default_rng(EVALUATION + 1 + seed), True)        # some may be equal
    return distinct(many)[:n]


def writer(folder: Path, data: dict[str, Any], task: Task, device: str, seed: int = 0) -> LanguagePolicy:
    """Load the policy in a folder, in fp32, with the sampling settings of the config.json `data`."""
    start = load_model(folder)
    start.tokenizer.set_chat(data.get("system"), data.get("template") or {})             # the initial policy may differ
    return LanguagePolicy(start.model.to(find_device(device, True)), start.tokenizer, *sampling_of(folder, data), seed,
                          **speech(task))


def answers(policy: LanguagePolicy, task: Task, problems: list[Problem], samples: int,
            greedy: bool = False) -> tuple[list[str], torch.Tensor]:
    """Sample `samples` responses to each problem; return them and their rewards `[P, samples]`, on the CPU."""
    batch = sample(policy.sampler, task, policy.tokenizer, problems, samples=samples, max_tokens=policy.max_tokens,
                   generator=None if greedy else policy.generator, temperature=policy.temperature)
    return batch.texts, batch.rewards.view(-1, samples).cpu()


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
        return load_reward_model(folder, device).judge
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


def watch(directory: Path, *, prompts: int = 1, samples: int = PASS, seed: int = 0, device: str = "auto") -> None:
    """Print `samples` responses to each of `prompts` held-out prompts, with their rewards.

    Green responses are better than the mean of their group, red ones worse. For a reward model, print its rewards of
    one pair per prompt: the chosen response in green, the rejected one in red.
    """
    folder, data, task = open_run(directory)
    console = Console(soft_wrap=True)
    if data.get("judges"):
        pairs = find_pairs(folder, data, task, prompts, seed, device)
        for (problem, *texts), said in zip(pairs, judged(folder, data, task, pairs, device), strict=True):
            verdict = "   ranked correctly" if said[0] > said[1] else "   ranked incorrectly"
            console.print(Text(as_text(problem), "bold") + Text(verdict, "dim"))
            for kind, style, text, worth in zip(("chosen", "rejected"), ("green", "red"), texts, said, strict=True):
                console.print(Text(f"  {kind:<9}  reward {worth:5.2f}  ") + Text(repr(text)[1:-1], style))
        return
    policy, gold = writer(folder, data, task, device, seed), task.gold
    problems = held_out(task, prompts, seed)
    texts, rewards = answers(policy, task, problems, samples)
    for i, problem in enumerate(problems):
        known = f"   answer {problem.answer!r}" if problem.answer else ""
        console.print(Text(as_text(problem), "bold") + Text(known, "dim"))
        mean = rewards[i].mean().item()
        for text, reward in zip(texts[i * samples:(i + 1) * samples], rewards[i].tolist(), strict=True):
            adv = reward - mean if abs(reward - mean) > 1e-6 else 0.0     # equal rewards: 0 despite rounding
            style = "green" if adv > 0 else "red" if adv < 0 else "dim"
            truth = f"  true reward {gold(problem, text):5.2f}" if gold else ""
            numbers = f"  reward {reward:5.2f}{truth}  advantage {adv:+5.2f}  "
            console.print(Text(numbers) + Text(repr(text)[1:-1], style))
            if task.show is not None:
                console.print(Text(task.show(problem, text), "dim"))


def evaluate(directory: Path, *, problems: int = 100, seed: int = 0, as_json: bool = False,
             device: str = "auto") -> str:
    """Evaluate a run by its measure, on held-out problems or pairs. If the task has few, its log used the same ones."""
    folder, data, task = open_run(directory)
    measure = data.get("measure", task.measure)
    if measure == "pair_accuracy":
        pairs = find_pairs(folder, data, task, problems, seed, device)
        said = judged(folder, data, task, pairs, device)
        found, words = of_pairs(said[:, 0] > said[:, 1])
    else:
        asked = held_out(task, problems, seed)
        found, words = of_policy(writer(folder, data, task, device, seed), task, asked, measure)
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
    task, trained = make_task(given, reward), load(directory, str(find_device(device, True)))
    if isinstance(trained, RewardModel):
        raise UserError(f"{directory} holds a reward model, which does not generate text; give the folder of a policy")
    policy = LanguagePolicy(trained.model, trained.tokenizer, max_tokens or task.max_tokens, trained.temperature,
                            seed, **speech(task))
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
    """Results on pairs, as numbers and in words. right: `[n]`, True where a pair is ranked correctly."""
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


def chat(directory: Path, *, greedy: bool = False, max_tokens: int | None = None, system: str | None = None,
         device: str = "auto") -> int:
    """Read prompts from the keyboard or a pipe, and print a response to each. Return an exit code.

    A model with a chat template reads the whole conversation; others read each prompt alone.
    Raise UserError for a reward model, which writes no responses, and for a system prompt without a chat template.
    """
    policy = load(directory, str(find_device(device, True)))
    if isinstance(policy, RewardModel):
        raise UserError(f"{directory} holds a reward model, which does not generate text; type `spinup watch "
                        f"{directory}` to see its rewards")
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
        except (UserError, ValueError) as error:                          # also of input that is not UTF-8
            print(f"spinup: {error}", file=sys.stderr)
            if not sys.stdin.isatty():
                return 2
