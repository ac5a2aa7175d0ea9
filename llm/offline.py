"""Stored responses with their rewards: offline data of the initial policy, or a replay buffer of new responses."""
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from llm.config import FEW, LanguageConfig
from llm.policy.action_values import ActionValues, ValuePolicy
from llm.policy.generate import Prompts, Responses, Sampler
from llm.rollout import Batch
from llm.run import Run
from llm.tasks.check import problems_of
from spinup.errors import UserError
from spinup.runs.config import Range
from spinup.runs.display import tell_progress

Stored = Annotated[int, Range(0, 1_000_000)]                  # number of responses in memory
Reward = Annotated[float, Range(-1e6, 1e6)]                   # lowest reward of a response to learn from
AT_ONCE = 1024          # responses of a small model sampled at a time


class StoredResponses:
    """The last `size` responses with their prompts and rewards.

    A response to a prompt of L tokens takes 4 L + 5 T + 13 bytes, where T is the longest response: 76 bytes for the
    task reverse. Texts are not stored. The checkpoint of a run holds all responses.

    Args:
        gamma: discount of later turns. With it, the column `returns` `[size]` holds the discounted return of each
            response, in 4 more bytes.

    Attributes:
        count: number of responses added so far; response i is in slot i % size.
    """

    def __init__(self, size: int, max_tokens: int, device: torch.device, gamma: float | None = None):
        self.size, self.count, self.device, self.gamma = size, 0, device, gamma
        self.tensors = {"prompts": torch.zeros(size, 1, dtype=torch.int32),
                        "prompt_lengths": torch.zeros(size, dtype=torch.int32),
                        "ids": torch.zeros(size, max_tokens, dtype=torch.int32),
                        "mask": torch.zeros(size, max_tokens, dtype=torch.bool),
                        "lengths": torch.zeros(size, dtype=torch.int32),
                        "finished": torch.zeros(size, dtype=torch.bool),
                        "rewards": torch.zeros(size)}
        if gamma is not None:
            self.tensors["returns"] = torch.zeros(size)

    def __len__(self) -> int:
        return min(self.count, self.size)

    def add(self, batch: Batch) -> None:
        """Store the responses of a batch, each with its own prompt."""
        r, table = batch.responses, self.tensors
        longer = batch.prompts.ids.shape[1] - table["prompts"].shape[1]
        if longer > 0:
            table["prompts"] = pad(table["prompts"], (0, longer))
        slots = torch.arange(self.count, self.count + len(r.ids)) % self.size
        new = {"prompts": batch.prompts.ids[r.of], "prompt_lengths": batch.prompts.lengths[r.of], "ids": r.ids,
               "mask": r.mask > 0, "lengths": r.lengths, "finished": r.finished, "rewards": batch.rewards}
        if self.gamma is not None:
            new["returns"] = discounted_turns(batch.turns, self.gamma)
        for name, x in new.items():
            x, to = x.cpu().to(table[name].dtype), table[name]
            to[slots] = pad(x, (0, to.shape[1] - x.shape[1])) if x.ndim > 1 else x
        self.count += len(slots)

    def batch(self, rows: Tensor) -> Batch:
        """Return the responses in slots `[n]` as a batch without texts. Log-probabilities are NaN."""
        x = {name: tensor[rows].to(self.device) for name, tensor in self.tensors.items()}
        prompts = Prompts(x["prompts"].long(), x["prompt_lengths"].long())
        mask, of = x["mask"].float(), torch.arange(len(rows), device=self.device)
        responses = Responses(x["ids"].long(), torch.full_like(mask, torch.nan), mask, x["lengths"].long(),
                              x["finished"], of)
        return Batch([], prompts, responses.trimmed(), [], x["rewards"])

    def draw(self, rng: np.random.Generator, n: int, keep: float | None = None) -> Batch:
        """Sample `n` stored responses, uniformly and with replacement.

        keep: sample only responses with at least this reward.
        """
        rows = torch.arange(len(self)) if keep is None else self.at_least(keep)
        return self.batch(rows[torch.from_numpy(rng.integers(len(rows), size=n))])

    def at_least(self, reward: float) -> Tensor:
        """Slots of the responses with at least this reward, `[n]`."""
        return (self.tensors["rewards"][:len(self)] >= reward).nonzero()[:, 0]

    def checksum(self) -> int:
        """Return a checksum of the stored prompts, responses and rewards."""
        value = 0
        for name in ("prompts", "ids", "rewards"):
            value = zlib.crc32(self.tensors[name][:len(self)].numpy().tobytes(), value)
        return value

    def state_dict(self) -> dict[str, Any]:
        """State for the checkpoint."""
        return {"count": self.count, **self.tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint. Raise ValueError if it holds other tensors."""
        found = {name: state[name] for name in self.tensors}
        for name, x in found.items():
            own = self.tensors[name]
            if x.dtype != own.dtype or len(x) != self.size or (name != "prompts" and x.shape != own.shape):
                raise ValueError(f"{name} of the stored responses has the shape {[*x.shape]} and the type {x.dtype}, "
                                 f"not {[*own.shape]} and {own.dtype}")
        self.count, self.tensors = int(state["count"]), {name: x.clone() for name, x in found.items()}


def discounted_turns(turns: Sequence[Sequence[float]], gamma: float) -> Tensor:
    """Return sum_k gamma^(k - 1) r_k of each response, `[B]`, from the rewards r_k of its turns."""
    return torch.tensor([sum(gamma**k * reward for k, reward in enumerate(each)) for each in turns])


def sampled_once(run: Run, cfg: LanguageConfig, size: int, samples: int, keep: float | None = None,
                 gamma: float | None = None) -> StoredResponses:
    """Sample `size` responses of the initial policy, `samples` to each prompt: offline data.

    The prompts and responses depend only on the task, the initial policy, the seed and the arguments. So two methods
    with equal settings learn from the same data. A run that is resumed from a checkpoint finds the data there.
    Raise UserError if no response has a reward of at least `keep`. gamma: see `StoredResponses`.
    """
    data = StoredResponses(size, run.max_tokens, run.device, gamma)
    if run.state is not None:
        return data
    rng = np.random.default_rng([cfg.seed, 11])
    generator = torch.Generator(run.device).manual_seed(int(rng.integers(2**62)))
    at_once = max(1, (FEW if run.pretrained else AT_ONCE) // samples)
    tell = tell_progress(f"sampling {size} responses to learn from", size, run.pretrained and not cfg.quiet)
    while data.count < size:
        batch = run.sample(problems_of(run.task, at_once, rng), samples, generator=generator)
        data.add(batch.pick(torch.arange(min(len(batch.texts), size - data.count), device=run.device)))
        tell(data.count)
    if keep is not None and not len(data.at_least(keep)):
        raise UserError(f"no response of the data has a reward of at least --keep {keep:g}; choose a lower --keep")
    return data


class ValueRun(Run):
    """Training run of a policy that follows values of tokens; see `Run`.

    Until `follow` is called, the policy is the initial one.
    """

    def follow(self, values: ActionValues, beta: float) -> None:
        """Let the run sample, evaluate and save the policy pi_ref exp(beta (Q - V)) / Z."""
        self.model = ValuePolicy(self.reference, values, beta)
        self.sampler = Sampler(self.model, self.tokenizer.ends)

    def describe_subject(self) -> dict[str, Any]:
        return {**super().describe_subject(), "shape": asdict(self.reference.shape), "action_values": True}
