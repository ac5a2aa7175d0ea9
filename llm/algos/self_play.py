"""Self-play in text: PPO against a pool of the policy's own past versions, in two-player games.

Bansal et al. 2018, arXiv:1710.03748, section 4.2. A game is a text: each move is one token, and
both players read all moves so far. The policy has no board and no legal-action mask. It must learn
from the results of its games where the stones are and which moves are legal; an illegal move loses.
In a lost position an illegal move would then cost nothing. So it costs `illegal_penalty` more than
a loss.

The opponents, their ratings and the loss function are those of the classic algorithm:

    opponent ~ uniform over versions ceil(delta v), ..., v  of the v + 1 versions so far
    r_t      = [move t is the last of the learner] * (result - penalty * [move t is illegal])
    A_t      = GAE of r_t and V(s_t) over the learner's moves,   gamma = 1
    loss     = clipped surrogate of A_t + c1 (V(s_t) - target_t)^2 / 2 - c2 entropy of pi(. | s_t)

The result is 1 for a win of the learner, 0 for a draw, -1 for a loss. s_t is the text of all moves
before move t. The moves of the opponent and the random opening are part of the text, with mask 0:
they are not actions of the learner. The value V(s_t) is a linear function of the hidden state that
also predicts the move.

All games of an update advance together, one token at a time. An update samples a few opponents, and
each of them plays an equal share of the games.

Differs from spinup/algos/self_play.py by: the text of the game in place of the board; illegal moves
lose and are not masked; a few opponents per update.
"""
from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from llm.algos.ppo import following
from llm.algos.reinforce import token_rewards
from llm.config import Depth, LanguageConfig
from llm.duels import Played, play
from llm.policy.cache import Slots
from llm.policy.load import initial, on_device
from llm.policy.tokenizer import CharTokenizer, Tokenizer
from llm.policy.transformer import Transformer
from llm.run import Result, Run
from llm.start import check
from llm.tasks.board_games import BEGIN, BoardGame
from llm.tasks.make import make_task
from spinup.algos.ppo import clipped_surrogate, value_loss
from spinup.algos.self_play import additions, opponents, rated
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate, masked_mean, select, whiten
from spinup.core.ratings import MEAN
from spinup.core.returns import explained_variance, gae
from spinup.errors import UserError
from spinup.runs.config import Count, NonNegative, Positive, Range, Size, Unit

Rivals = Annotated[int, Range(1, 256)]


@dataclass(kw_only=True)
class Config(LanguageConfig):
    task: str | object = "tictactoe"  # tictactoe or connect_four, or a BoardGame object
    delta: Unit = 0.5                # opponents: 1 = newest version, 0 = all, 0.5 = newer half
    versions: Size = 40              # maximum versions in the pool; the first one is untrained
    rivals: Rivals = 4               # opponents sampled per update; more: less noise, but slower
    games: Size = 256                # games per update; the learner moves first in half of them
    total_steps: Count = 1000        # updates of the run
    epochs: Count = 2                # passes over each batch; more: larger policy changes (1-4)
    minibatches: Count = 4           # minibatches per epoch, one gradient step each (2-16)
    lam: Unit = 0.95                 # lambda of GAE: 1 = no bias, 0 = least variance (0.8-1)
    illegal_penalty: NonNegative = 0.5  # extra cost of an illegal move, beyond the loss; 0 = none
    clip_ratio: Positive = 0.2       # clip range of the ratio: 1 - this to 1 + this (0.1-0.3)
    lr: Positive = 1e-3              # initial learning rate (3e-4 to 2e-3)
    anneal: bool = True              # decay lr and entropy_coef linearly to 0
    entropy_coef: NonNegative = 0.03  # weight of the entropy bonus, for varied games
    value_coef: NonNegative = 0.5    # weight of the value loss
    max_grad_norm: Positive = 0.5    # largest gradient norm; larger gradients are scaled down
    rating_step: Positive = 2.0      # Elo's K: largest change per game; smaller: less noise
    layers: Depth = 2                # layers of a new small model; 2 of width 64: 0.1 M parameters

    LEAN: ClassVar[tuple[str, ...]] = ("--micro-batch", "--gradient-checkpointing", "--games")

    def __post_init__(self):
        super().__post_init__()
        if self.reward:
            raise UserError("the reward of self_play is the result of the game; leave out --reward")
        if self.games < 2 * self.rivals:
            fewer = ", or a smaller --rivals" if self.rivals > 1 else ""
            raise UserError(f"--games {self.games} is less than two games for each of the "
                            f"--rivals {self.rivals}; choose at least {2 * self.rivals}{fewer}")
        if self.minibatches > self.games:
            raise UserError(f"--minibatches {self.minibatches} is more than --games {self.games}; "
                            f"choose at most {self.games}")

    @property
    def responses(self) -> int:
        """Number of games that an update learns from."""
        return self.games

    def response_tokens(self, task: Any) -> int:
        """Longest game after its opening, with an end token. Raise UserError for other tasks."""
        if not isinstance(task, BoardGame):
            raise UserError(f"self_play needs a two-player game, which the task {task.name} is "
                            "not; choose --task tictactoe or --task connect_four")
        if self.max_tokens and self.max_tokens < task.max_tokens:
            raise UserError(f"a game of {task.name} has up to {task.max_tokens} tokens; leave out "
                            f"--max-tokens {self.max_tokens}")
        return super().response_tokens(task)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise UserError for a model without a token for each character."""
        if not isinstance(tokenizer, CharTokenizer):
            raise UserError("self_play needs a small character model, in which each move is one "
                            "token; leave out --model")


class Pool:
    """Past versions of the learner: their weights, their ratings and the updates after which they
    were added.

    Attributes:
        nets: weights of each version, `[parameters]`.
        steps, ratings: updates and Elo rating of each version.
        own: rating of the learner; a new version starts with it.
    """

    def __init__(self, model: Transformer, most: int):
        self.model, self.most = model, most
        self.nets: list[Tensor] = []
        self.steps: list[int] = []
        self.ratings: list[float] = []
        self.own = MEAN

    def add(self, steps: int) -> None:
        """Add a copy of the learner as a new version. A full pool drops its oldest version."""
        weights = parameters_to_vector(self.model.parameters()).detach().cpu().clone()
        for values, new in ((self.nets, weights), (self.steps, steps), (self.ratings, self.own)):
            values.append(new)
            del values[:-self.most]

    def state_dict(self) -> dict[str, Any]:
        """Return the weights, steps and ratings of all versions."""
        return {"nets": list(self.nets), "steps": list(self.steps), "ratings": list(self.ratings),
                "own": self.own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the pool from the output of `state_dict`."""
        self.nets, self.steps = list(state["nets"]), list(state["steps"])
        self.ratings, self.own = list(state["ratings"]), state["own"]


def read_games(model: Transformer, head: nn.Linear, begin: int, ids: Tensor,
               temperature: float = 1.0, checkpointing: bool = False
               ) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probability, entropy and value at each move of games `[B, T]`, in fp32, all with
    gradients. `begin` is the token before the first move."""
    before = torch.cat([torch.full_like(ids[:, :1], begin), ids[:, :-1]], 1)
    hidden = model.hidden(before, Slots(), checkpointing=checkpointing)           # [B, T, width]
    log_pi = (model.logits(hidden).float() / temperature).log_softmax(-1)         # [B, T, vocab]
    logp = log_pi.gather(2, ids[..., None])[..., 0]
    entropy = -(log_pi.exp() * log_pi).sum(-1)
    return logp, entropy, head(hidden)[..., 0].float()


def advantages(earned: Tensor, values: Tensor, mask: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """Advantage and value target of each move of the learner, `[B, T]`; 0 at other moves.

    The last move of the learner gets the reward `[B]` of the game. The next state of a move is the
    one before the learner's next move.
    """
    rewards, last = token_rewards(earned, torch.zeros_like(values), 0.0, mask)
    return gae(rewards, select(values, mask), following(values, mask), last,
               torch.zeros_like(last), gamma=1.0, lam=lam, mask=mask)


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy against its past versions.

    `resume`: folder of a run with the same settings.
    """
    # Set up.
    task = make_task(cfg.task)
    cfg.response_tokens(task)                                 # refuses a task that is no game
    start = on_device(check(cfg, task) if resume is None else initial(cfg, task), cfg)
    run = Run(cfg, task, start, resume)
    model, begin = run.model, run.tokenizer.encode(BEGIN)[0]
    head = nn.Linear(model.shape.width, 1).to(run.device, model.dtype)
    for p in head.parameters():
        nn.init.zeros_(p)                                     # first advantages: only results
    optimizer = FlatAdam([*model.parameters(), *head.parameters()], lr=cfg.lr, eps=cfg.adam_eps,
                         max_grad_norm=cfg.max_grad_norm)
    pool, N = Pool(model, cfg.versions), cfg.games
    rivals = [deepcopy(model).requires_grad_(False) for _ in range(cfg.rivals)]
    seat, rival = np.arange(N) % 2, np.arange(N) // 2 % cfg.rivals                # [N]
    taken = additions(cfg.total_steps, cfg.versions)
    settings = {"temperature": cfg.temperature, "checkpointing": cfg.gradient_checkpointing}

    def collect() -> Played:
        drawn = opponents(run.rng, cfg.rivals, len(pool.steps), cfg.delta)
        for net, version in zip(rivals, drawn, strict=True):
            vector_to_parameters(pool.nets[version].to(run.device), net.parameters())
        openings = [p.prompt for p in run.problems(N)]
        with run.timed("rollout"):
            played = play(task, run.tokenizer, [model, *rivals], rival + 1, seat, openings,
                          run.generator, cfg.temperature)
        pool.own, pool.ratings = rated(pool.own, pool.ratings, drawn[rival],
                                       played.result.cpu().numpy(), cfg.rating_step)
        return played

    def loss(ids: Tensor, logp_old: Tensor, adv: Tensor, target: Tensor, mask: Tensor,
             entropy_coef: float, denominator: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        logp, entropy, value = read_games(model, head, begin, ids, **settings)    # [b, T] each
        clip = cfg.clip_ratio, cfg.clip_ratio
        surrogate, stats = clipped_surrogate(logp, logp_old, adv, clip, mask)
        error = value_loss(value, target)
        stats["entropy"] = masked_mean(entropy.detach(), mask)
        stats["value_loss"] = masked_mean(error.detach(), mask)
        run.means.watch_ratio(*select(logp.detach() - logp_old, mask).exp().aminmax())
        total = surrogate + cfg.value_coef * error - entropy_coef * entropy
        return aggregate(total, mask, denominator=denominator), stats

    with run:
        pool.add(0)
        run.keep(model=model, value=head, optimizer=optimizer, pool=pool)
        run.columns("rating", "versions", "illegal_moves", "value_loss", "explained_variance")
        for update in run.updates(cfg.total_steps):
            if update in taken:
                pool.add(run.steps)
            # Collect games: ids, mask [N, T]; result [N].
            games = collect()
            ids, mask, result = games.ids, games.mask, games.result

            # Evaluate the batch.
            with torch.no_grad():
                pieces = [read_games(model, head, begin, x, cfg.temperature)
                          for x in ids.split(cfg.micro_batch or N)]
                logp_old, _, values = (torch.cat(x) for x in zip(*pieces, strict=True))
                earned = result - cfg.illegal_penalty * games.illegal
                adv, target = advantages(earned, values, mask, cfg.lam)           # [N, T]
                adv = whiten(adv, mask)

            # Update: several epochs of shuffled minibatches.
            share = 1 - update / cfg.total_steps if cfg.anneal else 1.0
            batch = (ids, logp_old, adv, target, mask)
            for _ in range(cfg.epochs):
                for rows in torch.randperm(N).to(run.device).tensor_split(cfg.minibatches):
                    optimizer.zero_grad()
                    moves, found = mask[rows].sum().clamp(min=1), defaultdict(float)
                    for piece in rows.split(cfg.micro_batch or len(rows)):
                        value, stats = loss(*(x[piece] for x in batch), cfg.entropy_coef * share,
                                            moves)
                        value.backward()
                        found["loss"] += value.detach()
                        for name, x in stats.items():         # means over the moves of a piece
                            found[name] += x * mask[piece].sum() / moves
                    run.add(grad_norm=optimizer.step(cfg.lr * share), **found)
            run.check_finite(rewards=result, values=values, advantages=adv, loss=found["loss"])
            run.add(reward=result.mean(), reward_std=result.std(correction=0), tokens=mask.sum(),
                    length=games.lengths.float().mean(), learning_rate=cfg.lr * share,
                    illegal_moves=games.illegal.sum() / mask.sum().clamp(min=1),
                    explained_variance=explained_variance(values, target, mask),
                    rating=pool.own, versions=len(pool.steps))
        return run.result()
