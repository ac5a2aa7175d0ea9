"""Watch a policy answer held-out prompts, or a reward model judge pairs of responses."""
from pathlib import Path

from rich.console import Console
from rich.text import Text

from llm.evaluate import PASS
from llm.judged import held_out_pairs, judged
from llm.restore import answers, open_run, writer
from llm.tasks.held_out import held_out
from llm.tasks.task import as_text


def watch(directory: Path, *, prompts: int = 1, samples: int = PASS, seed: int = 0, device: str = "auto") -> None:
    """Print `samples` responses to each of `prompts` held-out prompts, with their rewards.

    Green responses are better than the mean of their group, red ones worse. For a reward model, print its rewards of
    one pair per prompt: the chosen response in green, the rejected one in red.
    """
    folder, data, task = open_run(directory)
    console = Console(soft_wrap=True)
    if data.get("judges"):
        pairs = judged(folder, data, task, held_out_pairs(folder, data, task, prompts, seed, device), device)
        for (problem, *texts), said in zip(*pairs, strict=True):
            verdict = "equal rewards" if said[0] == said[1] else f"ranked {'' if said[0] > said[1] else 'in'}correctly"
            console.print(Text(as_text(problem), "bold") + Text(f"   {verdict}", "dim"))
            for kind, style, text, worth in zip(("chosen", "rejected"), ("green", "red"), texts, said, strict=True):
                console.print(Text(f"  {kind:<9}  reward {worth:5.2f}  ") + Text(repr(text)[1:-1], style))
        return
    policy, gold = writer(folder, data, device, seed), task.gold
    problems = held_out(task, prompts, seed)
    texts, rewards = answers(policy, task, problems, samples)
    for i, problem in enumerate(problems):
        answer = getattr(problem, "answer", "")
        known = f"   answer {answer!r}" if answer else ""
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
