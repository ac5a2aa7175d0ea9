"""Lower bound of the time of a gradient step of TD3 or SAC: only the forward and backward passes of its networks."""
import importlib
import time
from typing import Any

import torch
from torch import nn

from spinup.core.critics import frozen
from spinup.envs import make

SECONDS = 2.0           # duration of the measurement
WARM = 20               # gradient steps before the measurement


def networks_alone(algo: str, env: str, settings: dict[str, Any], *, plain: bool) -> dict[str, float]:
    """Return `networks_alone_per_second`: gradient steps per second of the passes alone, on one batch of noise; {} for
    other algorithms.

    The passes: targets forward; critics forward and backward; actor forward, through the critics in its loss, and
    backward to its own weights only. There are no losses, no optimiser, no replay buffer and no environment. plain: use
    torch's linear layers, as a peer does, instead of `spinup.core.fast.linear`.
    """
    if algo not in ("td3", "sac"):
        return {}
    module, made = importlib.import_module(f"spinup.algos.{algo}"), make(env)
    policy = module.make_policy(module.Config(env=env, **settings), made.observation_space, made.action_space)
    made.close()
    pi, *critics = (nn.Sequential(*net) if plain else net for net in (policy.pi, *policy.q))
    asked, delay = (critics, 1) if algo == "sac" else (critics[:1], settings["policy_delay"])
    weights, pi_weights = list(policy.q.parameters()), list(pi.parameters())
    k = len(policy.dist.low)
    obs, act = torch.randn(settings["batch_size"], pi[0].in_features), torch.rand(settings["batch_size"], k)
    both, ones = torch.cat([obs, act], 1), torch.ones(settings["batch_size"], 1)

    def step(number: int) -> None:
        with torch.no_grad():
            pi(obs)
            for q in critics:
                q(both)
        torch.autograd.grad([q(both) for q in critics], weights, [ones] * len(critics))
        if number % delay == 0:
            proposed = torch.cat([obs, pi(obs)[:, :k]], 1)
            with frozen(weights):
                values = [q(proposed) for q in asked]
            torch.autograd.grad(values, pi_weights, [ones] * len(asked))

    for number in range(WARM):
        step(number)
    steps, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < SECONDS:
        step(steps)
        steps += 1
    return {"networks_alone_per_second": round(steps / seconds, 1)}
