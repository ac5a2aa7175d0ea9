"""A transformer that returns one number instead of logits: a reward model, or a value function of tokens."""
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from llm.policy.generate import Prompts
from llm.policy.lora import duplicate
from llm.policy.policy import check_context
from llm.policy.score import one_pass, read
from llm.policy.tokenizer import Messages, Tokenizer
from llm.policy.transformer import Transformer

AT_ONCE = 512           # responses per forward pass, unless a run sets another number


class ScalarModel(nn.Module):
    """A language model whose head returns one number: `gain * (w . state + b) + bias`.

    Args:
        body: the language model; it is copied, as by `duplicate`.
        std: standard deviation of the head's initial weights. With 0, every number is 0 at first. This suits a value
            function: its first advantages are rewards, not noise. A reward model uses 1 / sqrt(width + 1).

    `gain` and `bias` are not trained; `calibrate` sets them.
    """

    def __init__(self, body: Transformer, std: float = 0.0):
        super().__init__()
        self.body = duplicate(body)
        self.head = nn.Linear(body.shape.width, 1, device=body.device, dtype=body.dtype)
        nn.init.normal_(self.head.weight, std=std) if std else nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.register_buffer("gain", torch.ones((), device=body.device))
        self.register_buffer("bias", torch.zeros((), device=body.device))

    def numbers(self, hidden: Tensor) -> Tensor:
        """Compute the numbers `[...]`, in fp32, from states `[..., width]`."""
        raw = linear(hidden.float(), self.head.weight.float(), self.head.bias.float())       # bf16 causes ties
        return self.gain * raw[..., 0] + self.bias

    @torch.no_grad()
    def calibrate(self, numbers: Tensor) -> None:
        """Set `gain` and `bias` so that `numbers` `[n]` get mean 0 and variance 1 (Ziegler et al. 2019, section 2).

        A KL coefficient then has the same meaning with every reward model. Equal numbers only get mean 0.
        """
        std, mean = torch.std_mean(numbers, correction=0)
        std = torch.where(std > 1e-6, std, 1.0)
        self.gain /= std
        self.bias.copy_((self.bias - mean) / std)


@one_pass
def values(model: ScalarModel, prompts: Prompts, of: Tensor, ids: Tensor, lengths: Tensor | None = None,
           checkpointing: bool = False) -> Tensor:
    """Value of the state of each token, `[B, T]`, for responses `[B, T]`. The state is the prompt and earlier tokens.

    lengths: `[B]` lengths of the responses; see `llm.policy.score.score`.
    """
    return model.numbers(read(model.body, prompts, of, ids, lengths, checkpointing))


def rewards(model: ScalarModel, prompts: Prompts, of: Tensor, ids: Tensor, lengths: Tensor,
            checkpointing: bool = False) -> Tensor:
    """Rewards of whole responses, `[B]`, read after the last token of each, before any padding."""
    hidden = read(model.body, prompts, of, pad(ids, (0, 1)), lengths + 1, checkpointing)     # [B, T + 1, width]
    return model.numbers(hidden[torch.arange(len(ids), device=ids.device), lengths])


class RewardModel:
    """A trained reward model for use: `model(prompt, response)` returns the reward of the response.

    Over responses of the policy that it was trained from, rewards have mean 0 and standard deviation 1.

    Attributes:
        at_once: number of responses per forward pass.
    """

    def __init__(self, model: ScalarModel, tokenizer: Tokenizer):
        self.model, self.tokenizer, self.at_once = model, tokenizer, AT_ONCE

    def __call__(self, prompt: str | Messages, response: str) -> float:
        return self.judge([prompt], [response])[0]

    def serve(self, device: torch.device, at_once: int) -> None:
        """Move the model to the device of a run, which reads `at_once` responses per pass; 0 changes nothing."""
        self.model.to(device)
        self.at_once = at_once or self.at_once

    def judge(self, prompts: Sequence[str | Messages], responses: Sequence[str]) -> list[float]:
        """Compute the reward of each response, with an end token after it. UserError: an unknown character.

        The text of a special token, such as `<|im_end|>`, is ordinary text: else a response could end itself and praise
        itself as the user.
        """
        return self.judge_tokens(prompts, [[*self.tokenizer.encode(r, literal=True), self.tokenizer.end]
                                           for r in responses])

    @torch.no_grad()
    def judge_tokens(self, prompts: Sequence[str | Messages], responses: Sequence[list[int]]) -> list[float]:
        """Compute the reward of each response from its tokens."""
        found, device, n = [], self.model.body.device, self.at_once
        for i in range(0, len(prompts), n):
            asked = Prompts.of([self.tokenizer.prompt(p) for p in prompts[i:i + n]], device)
            said = Prompts.of(responses[i:i + n], device)
            check_context(asked.ids.shape[1], said.ids.shape[1], self.model.body)
            of = torch.arange(len(said.ids), device=device)
            found += rewards(self.model, asked, of, said.ids, said.lengths).tolist()
        return found
