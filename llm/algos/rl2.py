"""RL² on tokens: the context of a transformer is the memory of a learned learning algorithm.

Duan et al. 2016, arXiv:1611.02779; Laskin et al. 2022, arXiv:2210.14215; Lee et al. 2023,
arXiv:2306.14892.

A response is a trial: several episodes in one world (an environment), written into one context. The
policy writes an action, the world replies with the reward and the next state, and so on. Each group
of trials has a new world. The weights do not change within a trial. So the policy can learn about
its world only from the tokens that it has read. Reinforcement learning on the return of the whole
trial trains it to do so.

    c_t = (prompt, a_0, r_0, s_1, a_1, r_1, s_2 .. a_t-1, r_t-1, s_t);   a_t ~ pi(. | c_t)
    J   = E[ sum of discounted rewards of the trial ]
    A_t = G_t - mean over the group of G_t,    G_t = sum over k >= t of gamma^(k - t) r_k

c_t is the context, and G_t the return from step t to the end of the trial, over all its episodes.
The group, `samples` trials, plays the same world with the same random numbers, as a group of GRPO
answers the same prompt. So the baseline needs no value function. The advantages are then shifted
and scaled to mean 0 and standard deviation 1 over the batch's actions. The loss is PPO's, for the
tokens of actions only: the world's tokens have mask 0.

Laskin et al. and Lee et al. train a transformer on such contexts by imitation. `spinup llm sft`
with the same task imitates Thompson sampling (bandits) or posterior sampling (mdps).

`cut_return` is the return of the same weights without memory: the context is cut before every step.
The difference from `trial_return` is what the policy learns within a trial.

Differs from spinup/algos/rl2.py by: a transformer over the whole context in place of a
GRU; a group mean in place of a value function; no entropy bonus.
"""
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from llm.config import Depth, LanguageConfig
from llm.learn import Loss, rescored
from llm.policy.generate import Insertions, Prompts, Responses, Sampler
from llm.policy.load import initial, on_device
from llm.rollout import Batch
from llm.run import Result, Run
from llm.tasks.make import make_task
from llm.tasks.task import Task
from spinup.algos.ppo import clipped_surrogate
from spinup.core.fast.adam import FlatAdam
from spinup.core.masked import aggregate, whiten
from spinup.core.optim import step_size
from spinup.core.returns import gae
from spinup.envs.worlds.trials import Trials
from spinup.errors import UserError
from spinup.runs.config import Count, Natural, Positive, Size, Unit
from spinup.runs.files import write_json

TEST = 30_000           # seed of the worlds of the test trials
FINAL = 4               # times as many test trials after the last update


@dataclass(kw_only=True)
class Config(LanguageConfig):
    task: str | object = "bandits"   # a task of trials: bandits:arms=5,pulls=10 or mdps:episodes=2
    prompts: Size = 64               # different worlds in each update
    samples: Size = 8                # trials in each world; their mean return is the baseline
    gamma: Unit = 1.0                # discount factor over the whole trial
    epochs: Count = 2                # passes over each batch; more: larger policy changes (1-4)
    minibatches: Count = 4           # minibatches of whole trials, one gradient step each
    clip_ratio: Positive = 0.2       # clip range of the ratio: 1 - this to 1 + this (0.1-0.3)
    trials: Size = 1024              # test trials per row of progress.csv; 4 x as many at the end
    layers: Depth = 2                # two layers can compare actions with their rewards
    lr: Positive = 2e-3              # peak learning rate (5e-4 to 5e-3)
    warmup: Natural = 10             # updates in which the learning rate rises linearly to lr
    anneal: bool = True              # decay lr linearly to a tenth over the run
    max_grad_norm: Positive = 1.0    # largest gradient norm; larger gradients are scaled down

    LEAN: ClassVar[tuple[str, ...]] = ("--micro-batch", "--gradient-checkpointing", "--prompts")

    def __post_init__(self):
        super().__post_init__()
        if self.samples == 1:
            raise UserError("the baseline is the mean of the trials in a world, and --samples 1 "
                            "gives only one; choose 2 or more")
        if self.minibatches > self.responses:
            raise UserError(f"--minibatches {self.minibatches} is more than the trials per update, "
                            f"--prompts {self.prompts} x --samples {self.samples} = "
                            f"{self.responses}; choose at most {self.responses}")
        if self.reward:
            raise UserError("rl2 learns from the rewards of the world; leave out --reward")

    def response_tokens(self, task: Any) -> int:
        """Length of a trial, in tokens. Raise UserError if `max_tokens` is given."""
        if self.max_tokens:
            raise UserError("the task sets the length of a trial, as in --task bandits:pulls=20; "
                            "leave out --max-tokens")
        return super().response_tokens(task)

    @property
    def responses(self) -> int:
        """Number of trials that an update learns from."""
        return self.prompts * self.samples


class Replies(Insertions):
    """The worlds' replies to many trials at once: every column of tokens is a step of tensors.

    rewards: `[B]` for each step so far.
    """

    def __init__(self, task: Task, worlds: list[Trials]):
        self.task, self.worlds, self.rewards = task, worlds, []
        self.left: list[Tensor] = []                          # tokens `[B]` of a reply

    def __call__(self, token: Tensor, rows: Tensor, alive: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens to append, `[B]`, and a mask of those that the policy chose, `[B]`."""
        if self.left:
            return self.left.pop(0).to(token.device), torch.zeros_like(alive)
        # Row w * samples + g is the trial of the g-th copy of world w.
        acts = token.cpu().view(-1, len(self.worlds)).unbind(1)
        steps = [self.task.step(*pair) for pair in zip(self.worlds, acts, strict=True)]
        self.rewards.append(torch.stack([reward for reward, _ in steps], 1).flatten())
        self.left = list(torch.stack([ids for _, ids in steps], 1).flatten(0, 1).unbind(1))
        return token, alive


def play(sampler: Sampler, task: Task, prompt: list[int], worlds: int, samples: int, seed: int,
         generator: torch.Generator, temperature: float = 1.0) -> tuple[Responses, Tensor]:
    """Play `samples` trials in each of `worlds` worlds. Return the responses `[B, T]`, and the
    reward of each token `[B, T]`, 0 for the tokens of the world.

    The trials of a world are adjacent rows and get the same random numbers from it.
    """
    copies = [task.worlds(worlds, seed) for _ in range(samples)]
    for world in copies:
        world.reset()
    replies = Replies(task, copies)
    prompts = Prompts.of([prompt], sampler.model.device)
    r = sampler(prompts, samples=worlds * samples, max_tokens=task.max_tokens, generator=generator,
                temperature=temperature, tool=replies)
    rewards = torch.zeros_like(r.logp)
    rewards[:, ::1 + task.reply_tokens] = torch.stack(replies.rewards, 1).to(rewards)
    return r, rewards


def cut_off(sampler: Sampler, task: Task, prompt: list[int], worlds: int, seed: int,
            generator: torch.Generator, temperature: float = 1.0) -> Tensor:
    """Play trials with the context cut before every step: the policy reads only the prompt. Return
    the rewards of all steps, `[worlds, steps]`."""
    world = task.worlds(worlds, seed)
    world.reset()
    prompts, found = Prompts.of([prompt], sampler.model.device), []
    for _ in range(world.steps):
        r = sampler(prompts, samples=worlds, max_tokens=1, generator=generator,
                    temperature=temperature)
        found.append(task.step(world, r.ids[:, 0].cpu())[0])
    return torch.stack(found, 1)


def group_values(returns: Tensor, samples: int) -> Tensor:
    """Mean return of the group from each step on, `[B, T]`, as the value of that step; the rows of
    a group are adjacent."""
    groups = returns.view(-1, samples, returns.shape[1])
    return groups.mean(1, keepdim=True).expand_as(groups).reshape(returns.shape)


def advantages(rewards: Tensor, mask: Tensor, samples: int, gamma: float) -> tuple[Tensor, Tensor]:
    """Advantage of each action, and the return of the trial from it on, `[B, T]` each; 0 for the
    tokens of the world.

    rewards, mask: `[B, T]`. The last action of a row ends its trial.
    """
    over = (mask.flip(1).cumsum(1).flip(1) == 1) & (mask > 0)
    # Values of 0 and lambda = 1 give the returns; a discount counts actions, not tokens.
    zero, cut = torch.zeros_like(rewards), torch.zeros_like(over)
    _, returns = gae(rewards, zero, zero, over, cut, gamma=gamma, lam=1.0, mask=mask)
    return torch.where(mask > 0, returns - group_values(returns, samples), 0.0), returns


def train(cfg: Config, resume: str | Path | None = None) -> Result:
    """Train a policy with RL². `resume`: folder of a run with the same settings.

    UserError for a task without trials, and for a model whose tokens differ from the task's.
    """
    # Set up.
    task = make_task(cfg.task)
    if not hasattr(task, "worlds"):
        raise UserError(f"rl2 needs a task whose responses are trials, and {task.name} is not one; "
                        "choose --task bandits or --task mdps")
    start = on_device(initial(cfg, task), cfg)
    if getattr(start.tokenizer, "alphabet", "") != task.alphabet:
        raise UserError(f"the tokens of --model {cfg.model} are not those of {task.name}; leave "
                        "out --model, or give the run of a small model on the same task")
    run = Run(cfg, task, start, resume)
    optimizer = FlatAdam(run.model.parameters(), lr=cfg.lr, max_grad_norm=cfg.max_grad_norm,
                         eps=cfg.adam_eps)
    prompt, device = run.tokenizer.prompt("?"), run.device
    sampler = Sampler(run.model, -1)                          # an end token is a wasted action

    def loss(logp: Tensor, part: Responses, adv: Tensor, denominator: Tensor) -> Loss:
        clip = cfg.clip_ratio, cfg.clip_ratio
        each, stats = clipped_surrogate(logp, part.logp, adv, clip, part.mask)
        return aggregate(each, part.mask, denominator=denominator), stats

    def test(times: int) -> tuple[Tensor, Tensor]:            # mean reward of each step, `[steps]`
        found = []
        for seed in range(TEST, TEST + times):                # one after another: memory is bounded
            generator = torch.Generator(device).manual_seed(seed)
            given = {"worlds": cfg.trials, "seed": seed, "generator": generator,
                     "temperature": cfg.temperature}
            _, rewards = play(sampler, task, prompt, samples=1, **given)
            cut = cut_off(sampler, task, prompt, **given)
            found.append(torch.stack([rewards[:, ::1 + task.reply_tokens].mean(0).cpu(),
                                      cut.mean(0)]))
        return torch.stack(found).mean(0).unbind()

    with run:
        run.keep(model=run.model, optimizer=optimizer)
        run.columns("trial_return", "cut_return")
        for update in run.updates(cfg.total_steps):
            # Collect: all trials at once; the trials of a group share a world.
            with run.timed("rollout"):
                seed = int(np.random.SeedSequence((cfg.seed, update)).generate_state(1)[0])
                r, rewards = play(sampler, task, prompt, cfg.prompts, cfg.samples, seed,
                                  run.generator, cfg.temperature)
            problems = task.problems(1, np.random.default_rng(seed))
            batch = rescored(run.model, cfg, Batch(problems, Prompts.of([prompt], device), r,
                                                   [""] * len(rewards), rewards.sum(1)))

            # Update: several epochs of shuffled minibatches of whole trials.
            adv, _ = advantages(rewards, r.mask, cfg.samples, cfg.gamma)
            adv = whiten(adv, r.mask)                                             # [B, T]
            lr = step_size(cfg.lr, update, cfg.total_steps, cfg.warmup, cfg.anneal)
            for _ in range(cfg.epochs):
                order = torch.randperm(len(adv)).to(device)
                for chosen in order.tensor_split(cfg.minibatches):
                    optimizer.zero_grad()
                    stats = run.backward(batch, chosen, loss, adv, denominator=r.mask[chosen].sum())
                    run.add(grad_norm=optimizer.step(lr), **stats)
            run.add(learning_rate=lr, reward=batch.rewards.mean(), tokens=r.lengths.sum(),
                    reward_std=batch.rewards.std(correction=0), length=r.lengths.float().mean(),
                    cut_off=0.0)
            if run.row_due:
                memory, cut = test(1)
                run.add(trial_return=memory.sum(), cut_return=cut.sum())
        if run.status == "finished":
            memory, cut = test(FINAL)
            write_json(run.directory / "trials.json", {
                "trials": FINAL * cfg.trials, "reward_of_step": memory.tolist(),
                "cut_reward_of_step": cut.tolist()})
        return run.result()
