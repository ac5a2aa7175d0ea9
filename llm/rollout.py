"""Rollout of a language model: responses of the policy to problems of a task, and their rewards.

A response is an episode, and its tokens are actions. The mask is 1 for tokens that the policy chose. This module
creates the mask together with the tokens, and later code only passes it on.
"""
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from llm.policy.generate import Prompts, Responses, Sampler, Tool
from llm.policy.policy import Turns, check_context, for_tokens, texts_of
from llm.policy.tokenizer import Tokenizer, encode_words
from llm.policy.transformer import Transformer
from llm.tasks.check import rewards_of
from llm.tasks.episodes import opened, pieces
from llm.tasks.parts import parts_of
from llm.tasks.task import Problem, Sampled, Task, input_of


@dataclass
class Batch:
    """Problems, their responses, and the rewards. Row p * samples + g is the g-th response to problem p."""

    problems: list[Problem]
    prompts: Prompts
    responses: Responses
    texts: list[str]
    rewards: Tensor             # [B] fp32
    parts: dict[str, Tensor] = field(default_factory=dict)    # [B] each: the parts of the rewards, by name
    turns: list[list[float]] = field(default_factory=list)    # of each response, the rewards of its turns

    def pick(self, rows: Tensor) -> "Batch":
        """Select these rows, `[n]`, in this order. Each row keeps the index of its problem."""
        return replace(self, responses=self.responses[rows], texts=[self.texts[i] for i in rows.tolist()],
                       rewards=self.rewards[rows], parts={name: x[rows] for name, x in self.parts.items()},
                       turns=[self.turns[i] for i in rows.tolist()] if self.turns else [])


def sample(sampler: Sampler, task: Task, tokenizer: Tokenizer, problems: Sequence[Problem], *, samples: int = 1,
           max_tokens: int, generator: torch.Generator | None, temperature: float = 1.0, greedy: int = 0,
           timed: Callable[[str], AbstractContextManager] = nullcontext) -> Batch:
    """Sample `samples` responses of the policy to each problem, and compute their rewards.

    Args:
        max_tokens: longest response. The end token and the text of tools and episodes count too.
        generator: random number generator on the model's device. None always takes the most likely token.
        greedy: number of responses to each problem, the first ones, that always take the most likely token.
        timed: timer for the phases "rollout" and "reward".
    Raise UserError if a prompt leaves no room for a response, or if the user's code fails.
    """
    asked = [p for p in problems for _ in range(samples)]
    with speakers(task, asked, tokenizer) as speaking:
        with timed("rollout"):
            prompts = prompts_of(problems, tokenizer, sampler.model, max_tokens)
            responses = sampler(prompts, samples=samples, max_tokens=max_tokens, generator=generator,
                                temperature=temperature, tool=speaking, greedy=greedy).trimmed()
            texts = texts_of(responses, tokenizer)
        with timed("reward"):
            if task.open is not None:                                     # finish turns cut by an end token or limit
                for turns in speaking:
                    turns.finish()
                responses.finished |= torch.tensor([turns.dialogue.done for turns in speaking]).to(sampler.model.device)
            if task.open is not None and task.sums_turns:
                rewards = [turns.dialogue.reward for turns in speaking]
                each_turn = [turns.dialogue.rewards for turns in speaking]
            else:
                own = responses.mask.sum(1).int().tolist()
                rewards = rewards_of(task, asked, [Sampled(x, n) for x, n in zip(texts, own, strict=True)])
                before = [len(turns.dialogue.rewards) - 1 for turns in speaking] if task.open else [0] * len(texts)
                each_turn = [[0.0] * n + [float(reward)] for n, reward in zip(before, rewards, strict=True)]
            each = {name: torch.tensor(x, device=sampler.model.device) for name, x in parts_of(rewards).items()}
            rewards = torch.tensor(rewards, dtype=torch.float32, device=sampler.model.device)
    return Batch(list(problems), prompts, responses, texts, rewards, each, each_turn)


@contextmanager
def speakers(task: Task, asked: Sequence[Problem], tokenizer: Tokenizer) -> Iterator[Tool | list[Turns] | None]:
    """Yield the `tool` of `Sampler` for responses to these problems: the task's tool, or one episode per response.

    Every episode is closed at the end, also after an error or Ctrl-C.
    """
    if task.open is None:
        yield for_tokens(task.tool, tokenizer, len(asked))
        return
    with opened(task, asked) as dialogues:
        yield [Turns(dialogue, tokenizer) for dialogue in dialogues]


def prompts_of(problems: Sequence[Problem], tokenizer: Tokenizer, model: Transformer, max_tokens: int) -> Prompts:
    """Padded prompts of problems, on the model's device. Raise UserError if one leaves no room for a response."""
    return as_prompts([tokenizer.prompt(input_of(p)) for p in problems], model, max_tokens)


def as_prompts(rows: Sequence[list[int]], model: Transformer, max_tokens: int) -> Prompts:
    """Padded prompts, on the model's device. Raise UserError if one leaves no room for a response."""
    check_context(max(map(len, rows)), max_tokens, model)
    return Prompts.of(rows, model.device)


def demonstrated(task: Task, tokenizer: Tokenizer, model: Transformer, problems: Sequence[Problem],
                 texts: Sequence[str], max_tokens: int) -> Batch:
    """Turn texts into a batch of responses to imitate. The mask has the end token, but no text of tools or episodes.

    Every problem has the same number of texts, in adjacent rows. Texts longer than `max_tokens` tokens are cut. Rewards
    are 1. Log-probabilities are NaN, because the teacher's are unknown. Of a problem with `turns`, all assistant turns
    are imitated; the response begins with the first one, and the mask has no user turns.
    """
    samples, device, ids, own = len(texts) // len(problems), model.device, [], []
    several = [i for i, p in enumerate(problems) if tokenizer.chats and getattr(p, "turns", None)]
    whole = {i: tokenizer.turns(problems[i].turns) for i in several}
    added = f"`{'observe' if task.open else 'tool'}` of the task {task.name}"
    for i, text in enumerate(texts):                                      # no token spans two pieces
        if i // samples in whole:
            _, row, mask = whole[i // samples]
            ids.append(row[:max_tokens])
            own.append([float(mine) for mine in mask[:max_tokens]])
            continue
        parts, over = pieces(task, text, problems[i // samples])
        found = [(float(mine), token) for mine, words in parts
                 for token in (tokenizer.encode(words) if mine else encode_words(tokenizer, words, added))]
        mask, row = zip(*found, (float(not over), tokenizer.end), strict=True)
        ids.append(row[:max_tokens])
        own.append(mask[:max_tokens])
    mask = pad_sequence([torch.tensor(m) for m in own], True).to(device)
    padded = pad_sequence([torch.tensor(i) for i in ids], True, tokenizer.end).to(device)
    of = torch.arange(len(problems), device=device).repeat_interleave(samples)
    lengths = torch.tensor([len(i) for i in ids], device=device)
    ended = torch.tensor([i[-1] in tokenizer.ends for i in ids], device=device)
    responses = Responses(padded, torch.full_like(mask, math.nan), mask, lengths, ended, of)
    rows = [whole[i][0] if i in whole else tokenizer.prompt(input_of(p)) for i, p in enumerate(problems)]
    prompts = as_prompts(rows, model, max_tokens)
    return Batch(list(problems), prompts, responses, list(texts), torch.ones_like(mask[:, 0]))


def join(batches: Sequence[Batch]) -> Batch:
    """Join several batches into one. All batches have the same number of samples per problem."""
    if len(batches) == 1:
        return batches[0]
    longest = max(b.prompts.ids.shape[1] for b in batches)
    T = max(b.responses.ids.shape[1] for b in batches)
    parts, before = [], 0
    for b in batches:
        r = b.responses
        ids, logp, mask = (pad(x, (0, T - x.shape[1])) for x in (r.ids, r.logp, r.mask))
        parts.append(replace(r, ids=ids, logp=logp, mask=mask, of=r.of + before))
        before += len(b.problems)
    prompts = Prompts(torch.cat([pad(b.prompts.ids, (0, longest - b.prompts.ids.shape[1])) for b in batches]),
                      torch.cat([b.prompts.lengths for b in batches]))
    responses = Responses(**{name: torch.cat([getattr(p, name) for p in parts]) for name in parts[0].tensors()})
    return Batch([p for b in batches for p in b.problems], prompts, responses, [t for b in batches for t in b.texts],
                 torch.cat([b.rewards for b in batches]),
                 {name: torch.cat([b.parts[name] for b in batches]) for name in batches[0].parts},
                 [each for b in batches for each in b.turns])


def separated(batch: Batch) -> list[Batch]:
    """Return the other responses of a batch, and the first response to each problem."""
    rows = torch.arange(len(batch.texts), device=batch.rewards.device).view(len(batch.problems), -1)
    return [batch.pick(rows[:, 1:].flatten()), batch.pick(rows[:, 0])]


def solved(rewards: Tensor) -> float:
    """Share of responses with a reward of 1 or more. rewards: `[n]`."""
    return float((rewards >= 1).cpu().double().mean())                    # mps has no float64


def varied(rewards: Tensor, samples: int) -> Tensor:
    """True for each group whose rewards have non-zero variance, `[P]` bool. rewards: `[P * samples]`."""
    groups = rewards.view(-1, samples)
    return groups.amax(1) > groups.amin(1)
