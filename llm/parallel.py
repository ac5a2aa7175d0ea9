"""Several processes for one run: each samples, scores and differentiates its share of the responses.

Every rank has the whole model and the whole batch. So the advantages, the denominators and the statistics of a method
are those of the whole batch, and its file needs no code for this. The ranks exchange:

- the responses, after each has sampled those to its share of the prompts;
- log-probabilities and values of responses, each rank those of its share;
- the gradient, summed over the ranks before each step of the optimiser. All ranks then make the same step.
"""
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from llm.policy.fsdp import divide
from llm.policy.generate import Prompts, Responses
from llm.rollout import Batch, join
from llm.tasks.task import Problem
from spinup.core.fast.adam import FlatAdam
from spinup.errors import UserError
from spinup.runs import ranks


def shared(draw: Callable[..., Batch], problems: Sequence[Problem], generator: torch.Generator) -> Batch:
    """Return `draw(problems, generator=generator)`; of several ranks, each draws the responses to its share.

    The generator, which is the same on all ranks, then draws a seed, and each rank gets another generator from it.
    Torch's global generator orders the minibatches. It stays the same on all ranks, whatever a reward draws from it.
    """
    if ranks.size() == 1:
        return draw(problems, generator=generator)
    device, own = generator.device, ranks.mine(len(problems))
    seed = int(torch.randint(2**60, (), generator=generator, device=device)) + ranks.rank()
    part = None
    if own:
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(seed)
            part = draw(problems[own.start:own.stop], generator=torch.Generator(device).manual_seed(seed))
        part = moved(replace(part, problems=[None] * len(own)), "cpu")
    whole = join([x for x in ranks.gather(part) if x is not None])
    return replace(moved(whole, device), problems=list(problems))


def moved(batch: Batch, device: torch.device | str) -> Batch:
    """Return a batch on another device."""
    responses = Responses(**{name: x.to(device) for name, x in batch.responses.tensors().items()})
    return replace(batch, prompts=Prompts(batch.prompts.ids.to(device), batch.prompts.lengths.to(device)),
                   responses=responses, rewards=batch.rewards.to(device),
                   parts={name: x.to(device) for name, x in batch.parts.items()})


def sum_gradients(parts: dict[str, object]) -> None:
    """Let the optimisers among these parts add the gradients of all ranks before their next step.

    If each rank computes an optimiser's gradient from all rows, it has called `zero_grad` first, which undoes this.
    """
    for part in parts.values():
        if isinstance(part, FlatAdam):
            part.before_step = ranks.add


def distributed(run: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """Divide the models and optimisers of a run among the ranks, as `--shard` and `--fsdp` say. Return the parts that a
    checkpoint holds. UserError if the ranks have sampled different data before they met."""
    for part in parts.values():
        if hasattr(part, "checksum") and len(set(ranks.gather(part.checksum()))) > 1:
            raise UserError("the processes have sampled different data, because the same response does not always get "
                            "the same reward; leave out --workers, or use a reward without limits of time")
    if run.config.shard:
        shard(parts)
    if run.config.fsdp:
        parts, run.divided, run.reference = divide(parts, run.model, run.reference)
        run.sampler.model, run.sampler.records = run.divided.twin, False
    return parts


def shard(parts: dict[str, object]) -> None:
    """Let each rank keep the moments of its share of the parameters of each optimiser among these parts."""
    for part in parts.values():
        if isinstance(part, FlatAdam) and ranks.size() > 1:
            n = part.flat.numel()
            own = ranks.mine(n)
            part.shard(slice(own.start, own.stop), ranks.share, partial(ranks.collect, n=n))
