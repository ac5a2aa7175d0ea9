"""Sampling of responses: one batch for all prompts and samples, one prefill per prompt, memory allocated once.

Training uses exactly the tokens that are sampled here. The mask and the log-probabilities are created together with
the tokens, and never inferred from token ids afterwards.
"""
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from llm.policy.cache import Cache, Prefix, Slots
from llm.policy.draw import MANY, choose, draw, uniform
from llm.policy.record import Pool, record
from llm.policy.transformer import Transformer, attention_dtype, compiled
from spinup.core.fast.linear import packed
from spinup.core.masked import select

LOOK_EVERY = (2, 16)    # steps between checks for finished rows, on CPU and on GPU; a check waits for the GPU
READ = (2**20, 2**14)   # tokens of prompts that are read at once, on CPU and on GPU: their activations need memory
COMPACT_BELOW = 0.5     # drop finished rows if at most this share is unfinished; moving the cache costs one step
KEEP = 8                # number of cache shapes that are kept
CACHES = 2              # the same, if they are large
LARGE = 2**24           # numbers of keys and values in all caches from which they are large
PACKED_ROWS = 4         # rows and steps from which it saves time to pack the weights first
PACKED_STEPS = 8
RECORDED = ("cuda",)    # devices that record a step as a graph, one for each number of rows and length of the cache
ROUND = 64              # where steps are recorded, the length of the cache is a multiple of this: few graphs

Tool = Callable[[list[int]], list[int] | None]           # tokens of a response so far -> tokens that the tool appends


@dataclass
class Prompts:
    """Prompts `[P, L]` and their lengths `[P]`. They are padded at the end; the padding may have any value."""

    ids: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> "Prompts":
        """Create prompts from lists of ids. Raise ValueError if one is empty: the first token needs a context."""
        if not all(map(len, rows)):
            raise ValueError("a prompt is empty; give it at least one token")
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)
        return cls(ids, torch.tensor([len(row) for row in rows], device=device))

    @property
    def equal(self) -> bool:
        """True if all prompts have the same length; then no mask is needed."""
        return bool((self.lengths == self.ids.shape[1]).all())


@dataclass
class Responses:
    """B responses of up to T tokens; row b is a response to prompt `of[b]`.

    Attributes:
        ids: `[B, T]` tokens, with the end token; undefined after `lengths`.
        logp: `[B, T]` fp32 log-probabilities under the policy that sampled them, at its temperature; NaN for
            demonstrations.
        mask: `[B, T]` 1 where the policy chose the token; 0 for tokens of a tool and after the end.
        lengths: `[B]` number of tokens, with those of tools and the end token.
        finished: `[B]` bool: True if the policy or its episode ended the response, False if the limit cut it off.
        of: `[B]` row of its prompt.
        drawn: `[B, T]` log-probabilities under the policy that sampled the tokens, if `logp` is that of another one: of
            the learner before its update. Else None.
    """

    ids: Tensor
    logp: Tensor
    mask: Tensor
    lengths: Tensor
    finished: Tensor
    of: Tensor
    drawn: Tensor | None = None

    @classmethod
    def empty(cls, of: Tensor, length: int) -> "Responses":
        """Allocate responses of up to `length` tokens to the prompts `of`, `[B]`, all filled with 0."""
        B, device = len(of), of.device
        return cls(torch.zeros(B, length, dtype=torch.long, device=device), torch.zeros(B, length, device=device),
                   torch.zeros(B, length, device=device), torch.zeros(B, dtype=torch.long, device=device),
                   torch.zeros(B, dtype=torch.bool, device=device), of.clone())

    def __getitem__(self, rows: Tensor) -> "Responses":
        return Responses(**{name: x[rows] for name, x in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """Return the attributes that are not None, by name."""
        return {f.name: x for f in fields(self) if (x := getattr(self, f.name)) is not None}

    def trimmed(self) -> "Responses":
        """Remove the columns after the end of the longest response; keep at least one column."""
        longest = max([1, *self.lengths.tolist()])
        return replace(self, **{name: x[:, :longest] for name, x in self.tensors().items() if x.ndim > 1})

    def put(self, rows: Tensor, others: "Responses") -> None:
        """Write `others` into these rows."""
        for name, x in others.tensors().items():
            getattr(self, name)[rows] = x


class Sampler:
    """Samples responses from a model. It reuses its cache, and on CUDA the recorded step, between calls.

    end: the id that ends a response, or several such ids.
    records: whether it may record steps; a graph reads the weights that the model had when it was recorded.
    """

    records = True

    def __init__(self, model: Transformer, end: int | Collection[int]):
        self.model = model
        self.ends = torch.tensor([end] if isinstance(end, int) else sorted(end), device=model.device)
        self.caches: dict[tuple[int, int], Cache] = {}
        self.steps: dict[tuple[int, int, int], Step] = {}
        self.pool: Pool = []

    @torch.inference_mode()
    def __call__(self, prompts: Prompts, *, samples: int = 1, max_tokens: int, generator: torch.Generator | None,
                 temperature: float = 1.0, tool: "Tool | Sequence[Tool] | Insertions | None" = None,
                 greedy: int = 0) -> Responses:
        """Sample `samples` responses to each prompt; row p * samples + g is the g-th response to prompt p.

        Args:
            max_tokens: longest response. The end token and the tokens of tools count too.
            generator: random number generator on the model's device; the only source of randomness. None always takes
                the most likely token.
            tool: called after each token of the policy. The tokens that it adds are not the policy's; an end token
                among them ends the response. One tool for all rows, one per row, or `Insertions` of your own.
            greedy: the first `greedy` of the samples to each prompt always take the most likely token.
        An end token is sampled like any other token, kept, and part of the mask.
        Raise ValueError if prompt and response do not fit the model's context.
        """
        L, B = prompts.ids.shape[1], len(prompts.ids) * samples
        if L + max_tokens > self.model.shape.context:
            raise ValueError(f"a prompt of {L} tokens and a response of {max_tokens} do not fit in the context of "
                             f"{self.model.shape.context}")
        generator = None if greedy >= samples else generator
        worth = B >= PACKED_ROWS and max_tokens >= PACKED_STEPS
        with packed(self.model.matrices() if worth else [], B):
            return self._sample(prompts, samples, max_tokens, generator, temperature, tool, greedy)

    def _sample(self, prompts: Prompts, samples: int, max_tokens: int, generator: torch.Generator | None,
                temperature: float, tool: "Tool | Sequence[Tool] | Insertions | None", greedy: int) -> Responses:
        model, device, (P, L), B = self.model, self.model.device, prompts.ids.shape, len(prompts.ids) * samples
        of = torch.arange(P, device=device).repeat_interleave(samples)

        # Read each prompt once; its samples then continue from the shared cache.
        cache, last = self._cache(B, L + max_tokens), []
        for piece in torch.arange(P, device=device).split(max(1, READ[device.type == "cuda"] // L)):
            prefix = Prefix()
            hidden = model.hidden(prompts.ids[piece], Slots(), prefix)
            last.append(hidden[piece - piece[0], prompts.lengths[piece] - 1])
            cache.fill(prefix, P, int(piece[0]))
        logits = model.logits(torch.cat(last))[of]                        # [B, vocab]
        step = self._step(cache, prompts)

        out = now = Responses.empty(of, max_tokens)             # all rows, and the rows still in progress
        rows, begin = torch.arange(B, device=device), prompts.lengths[of]
        alive = torch.ones_like(now.finished)
        insert = tool if isinstance(tool, Insertions) else Insertions(tool, B) if tool else None
        look = LOOK_EVERY[device.type == "cuda"]
        for t in range(max_tokens):
            if model.compiled and generator is not None and not greedy and logits.shape[-1] > MANY:
                token, logp = compiled(draw)(logits, uniform(logits, generator), temperature)
            else:
                log_pi = (logits.float() if temperature == 1 else logits.float() / temperature).log_softmax(-1)
                token = choose(log_pi, generator)
                if greedy:
                    token = torch.where(rows % samples < greedy, log_pi.argmax(-1), token)
                logp = log_pi.gather(1, token[:, None])[:, 0]
            mine = alive
            if insert is not None:
                token, mine = insert(token, rows, alive)
            now.ids[:, t], now.logp[:, t], now.mask[:, t] = token, logp, mine
            now.lengths += alive
            alive = alive & (token[:, None] != self.ends).all(1)
            if t + 1 == max_tokens:
                break
            if t % look == look - 1:
                left = size = int(alive.sum())
                if device.type in RECORDED and left:                      # few sizes: each one needs its own graph
                    size = 1 << (left - 1).bit_length()
                if left <= COMPACT_BELOW * len(rows) and size < len(rows):
                    now.finished = ~alive
                    if now is not out:
                        out.put(rows, now)
                    keep = torch.cat([alive.nonzero()[:, 0], (~alive).nonzero()[:size - left, 0]])
                    rows, now, begin, alive, token = rows[keep], now[keep], begin[keep], alive[keep], token[keep]
                    if not left:
                        break
                    cache.keep(keep)
                    step = self._step(cache, prompts)
            logits = step(token, begin, t)
        now.finished = ~alive
        if now is not out:
            out.put(rows, now)
        out.logp = select(out.logp, out.mask)
        with torch.inference_mode(False):                     # ordinary tensors, which autograd can use
            return Responses(**{name: x.clone() for name, x in out.tensors().items()})

    def _cache(self, rows: int, length: int) -> Cache:
        if self.model.device.type in RECORDED:
            length = min(-(-length // ROUND) * ROUND, self.model.shape.context)
        if (rows, length) not in self.caches:
            shape, tokens = self.model.shape, sum(rows * length for rows, length in self.caches)
            large = 2 * shape.layers * shape.kv_heads * shape.head_size * tokens >= LARGE
            if len(self.caches) >= (CACHES if large else KEEP):           # many lengths must not fill the memory
                self.caches.clear()
                self.steps.clear()
            dtype = attention_dtype(self.model.device, self.model.dtype)
            self.caches[rows, length] = Cache(self.model.shape, rows, length, self.model.device, dtype)
        return self.caches[rows, length]

    def _step(self, cache: Cache, prompts: Prompts) -> "Step":
        """Return a function (last token `[B]`, start of each response `[B]`, step t) -> logits of the next token.

        If all rows are at the same position, the step reads the cache up to there. Otherwise each row has a mask over
        the whole cache. Its shapes never change, so on CUDA the step is recorded once as a graph and replayed.
        """
        model = self.model

        def together(token: Tensor, start: int) -> Tensor:
            return model.logits(model.hidden(token[:, None], Slots(start), cache)[:, 0])

        numbers, dtype = torch.arange(cache.length, device=model.device), cache.memory[0][0].dtype

        def apart(token: Tensor, position: Tensor) -> Tensor:
            seen = (numbers <= position[:, None])[:, None, None]          # [B, 1, 1, length]
            slots = Slots(None, position[:, None], torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, -torch.inf))
            return model.logits(model.hidden(token[:, None], slots, cache)[:, 0])

        if not self.records or model.device.type not in RECORDED:
            if prompts.equal:
                return lambda token, begin, t: together(token, prompts.ids.shape[1] + t)
            return lambda token, begin, t: apart(token, begin + t)
        key = (len(cache.memory[0][0]), cache.length, cache.rows)
        if key not in self.steps:
            self.steps[key] = record(apart, cache, self.pool)
        return lambda token, begin, t: self.steps[key](token, begin + t)


Step = Callable[[Tensor, Tensor, int], Tensor]


class Insertions:
    """Insert the tokens of tools into responses: while tool tokens are left, a row's next token is one of them."""

    def __init__(self, tool: Tool | Sequence[Tool], rows: int):
        self.tools = [tool] * rows if callable(tool) else tool
        self.written, self.waiting = [[] for _ in range(rows)], [[] for _ in range(rows)]

    def __call__(self, token: Tensor, rows: Tensor, alive: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens to append, `[B]`, and a mask of those that the policy chose, `[B]` bool."""
        tokens, numbers, going = torch.stack([token, rows, alive.long()]).tolist()            # wait for a GPU once
        mine = list(map(bool, going))
        for i, row in enumerate(numbers):
            if not going[i]:
                continue
            if self.waiting[row]:
                tokens[i], mine[i] = self.waiting[row].pop(0), False
            self.written[row].append(tokens[i])
            if mine[i]:                                                   # not after its own output, as in `replay`
                self.waiting[row] = list(self.tools[row](self.written[row]) or ())
        return torch.tensor(tokens, device=token.device), torch.tensor(mine, device=token.device)
