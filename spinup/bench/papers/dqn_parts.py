"""The parts of Rainbow, one by one, each on a task so small that the exact answer is known.

Double Q-learning: the maximisation bias of Sutton & Barto 2018, example 6.7. Prioritised replay: the blind cliffwalk
(Schaul et al. 2016, arXiv:1511.05952, fig. 1). Dueling networks: a corridor with actions that do nothing (after Wang et
al. 2016, arXiv:1511.06581, sec. 4.1). C51: a chain with random rewards. n-step returns: a chain of 20 steps with one
reward. Noisy networks: a chain of 20 states, where DQN with epsilon-greedy is the baseline.
"""
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from scipy.stats import wasserstein_distance
from torch import Tensor

from spinup.algos.dqn import greedy_value, n_step_return, td_target
from spinup.algos.rainbow import divergence, project
from spinup.bench.papers.paper import Line, Paper, by_kind, run, together
from spinup.core.critics import QNetwork
from spinup.core.fast.adam import FlatAdam
from spinup.core.priorities import Priorities
from spinup.core.replay import Replay
from spinup.envs.vector import Step
from spinup.runs.log import read_progress

SEEDS = (1,)
BIAS = 500, 20                          # runs, and actions of the state on the left
OPTIMAL = 0.05                          # share of left if the optimal policy is made epsilon-greedy
STATES, RATIO = (6, 9, 12), 1 / 5       # of the cliffwalk; largest share of uniform's updates that PER may need
ACTIONS, CORRIDOR = (5, 10, 20), (10, 0.95)             # numbers of actions; length and discount of the corridor
CHAIN, GAMMA, NEAR = 5, 0.9, 1 / 4      # C51: length, discount, largest share of a point mass's Wasserstein distance
STEPS = (1, 2, 5, 10)
LENGTH, EXPLORE = 20, "Chain-20-v0"     # n steps and noise
KINDS = {"noisy_dqn": "noisy networks", "vanilla_dqn": "epsilon-greedy"}
FLAGS = ("--total-steps", "8700", "--gamma", "0.99", "--hidden", "16,16", "--batch-size", "32", "--learning-starts",
         "145", "--lr", "2e-3", "--update-every", "4", "--update-ratio", "0.5", "--target-every", "25",
         "--threads", "1", "--test-episodes", "1")


def measure(seeds: tuple[int, ...], workers: int, log_dir: Path) -> tuple[Paper, list[Path]]:
    """Measure each part with and without it; train on the chain with noisy networks and with epsilon-greedy."""
    folders = by_kind(KINDS, seeds, workers, lambda kind, seed: run(kind, EXPLORE, seed, log_dir, *FLAGS))
    curves = {kind: [read_progress(folder) for folder in found] for kind, found in folders.items()}
    far = {kind: mean(reached(progress) for progress in found) for kind, found in curves.items()}
    left = {double: np.mean([shares_of_left(double, seed) for seed in seeds], 0) for double in (False, True)}
    end = {double: float(np.mean(left[double][-10:])) for double in left}
    cliff = {alpha: [mean(updates_on_the_cliff(alpha, n, seed) for seed in seeds) for n in STATES]
             for alpha in (0.0, 0.7)}
    walk = {duel: [mean(error_of_evaluation(duel, n, seed) for seed in seeds) for n in ACTIONS]
            for duel in (False, True)}
    chains = [learn_distribution(seed) for seed in seeds]
    returns, exact = exact_returns(CHAIN, GAMMA)
    distance = mean(wasserstein_distance(support, returns, p, exact) for support, p in chains)
    point = wasserstein_distance([np.dot(returns, exact)], returns, None, exact)
    spread = [updates_with_steps(n) for n in STEPS]
    share = cliff[0.7][-1] / cliff[0.0][-1]
    gap = [single / dueling for single, dueling in zip(*walk.values(), strict=True)]
    lines = [
        Line("maximisation bias: share of left in episodes 291 to 300, Q-learning", "", end[False],
             "> 2 x double", end[False] > 2 * end[True]),
        Line("maximisation bias: the same, double Q-learning", "", end[True], "< 0.08", end[True] < 0.08),
        Line(f"blind cliffwalk, n = {STATES[-1]}: updates with uniform replay", "", cliff[0.0][-1]),
        Line(f"blind cliffwalk, n = {STATES[-1]}: updates with prioritised replay", "", cliff[0.7][-1]),
        Line("blind cliffwalk: prioritised as a share of uniform", "", share, "< 1/5", share < RATIO),
        *(Line(f"corridor, {n} actions: error of one stream / error of dueling", "", g, "> 1", g > 1)
          for n, g in zip(ACTIONS, gap, strict=True)),
        Line("corridor: does the difference of the errors grow with the actions (1: yes)", "",
             float(grows(walk)), "1", grows(walk)),
        Line("stochastic chain: Wasserstein distance to the exact returns, C51", "", distance,
             "<= 1/4 of the exact mean's", bool(distance <= NEAR * point)),
        Line("stochastic chain: the same of the exact mean alone", "", point),
        *(Line(f"chain of {LENGTH} steps: updates until its reward arrives, n = {n}", "", updates,
               "" if n == 1 else "fewer than with n = 1", n == 1 or updates < spread[0])
          for n, updates in zip(STEPS, spread, strict=True)),
        *(Line(f"{EXPLORE}: share of test episodes that reach its far end, {words}", "", far[kind])
          for kind, words in KINDS.items()),
        Line(f"{EXPLORE}: noisy networks minus epsilon-greedy", "", far["noisy_dqn"] - far["vanilla_dqn"], "> 0",
             far["noisy_dqn"] > far["vanilla_dqn"])]

    def draw(figure: Any) -> None:
        figure.set_size_inches(9, 5.4)
        bias, replay, corridor, returned, steps, noise = figure.subplots(2, 3).flat
        for double, words in ((False, "Q-learning"), (True, "double")):
            bias.plot(left[double], label=words)
        bias.axhline(OPTIMAL, color="0.6", linewidth=0.8, linestyle="--", label="optimal, epsilon-greedy")
        bias.set(title="maximisation bias", xlabel="episode", ylabel="share of left", ylim=(0, 1.4), yticks=(0, 0.5, 1))
        for alpha, words in ((0.0, "uniform"), (0.7, "prioritised")):
            replay.plot(STATES, np.log10(cliff[alpha]), marker="o", label=words)
        replay.set(title="blind cliffwalk", xlabel="states", ylabel="log10 of updates", xticks=STATES)
        for duel, words in ((False, "one stream"), (True, "dueling")):
            corridor.plot(ACTIONS, walk[duel], marker="o", label=words)
        corridor.set(title="corridor", xlabel="actions", ylabel="squared error", xticks=ACTIONS)
        order = np.argsort(returns)
        returned.step(np.array(returns)[order], np.cumsum(np.array(exact)[order]), where="post", label="exact")
        returned.plot(chains[0][0], np.cumsum(chains[0][1]), label="C51")
        returned.set(title="stochastic chain", xlabel="return", ylabel="probability of less")
        steps.plot(STEPS, spread, marker="o")
        steps.set(title="n-step returns", xlabel="n", ylabel="updates until\nthe reward arrives", xticks=STEPS)
        for kind, words in KINDS.items():
            episodes = np.array(curves[kind][0]["steps"]) / (LENGTH + 9)
            noise.plot(episodes, np.mean([x["test_return"] for x in curves[kind]], 0), label=words)
        noise.set(title=f"chain of {LENGTH} states", xlabel="episodes", ylabel="mean test return")
        for axes in (bias, replay, corridor, returned, noise):
            axes.legend(fontsize=7)

    raw = {"seeds": list(seeds), "left": {str(k): v.tolist() for k, v in left.items()},
           "cliff": {str(k): v for k, v in cliff.items()}, "corridor": {str(k): v for k, v in walk.items()},
           "wasserstein": {"c51": distance, "mean": point}, "n_step": dict(zip(map(str, STEPS), spread, strict=True)),
           "far_end": far}
    return Paper("The parts of Rainbow (Hessel et al. 2018)", lines, draw, raw), together(folders)


def grows(errors: dict[bool, list[float]]) -> bool:
    """Return whether the difference of the errors, without and with dueling, is larger with more actions."""
    return bool(np.all(np.diff(np.subtract(errors[False], errors[True])) > 0))


def reached(progress: dict[str, list[float]]) -> float:
    """Share of the test episodes of a run that reach the far end of the chain, where a step is worth 1."""
    return float(np.mean(np.array(progress["test_return"]) >= 1))


def shares_of_left(double: bool, seed: int = 0) -> list[float]:
    """Share of runs that go left in each of 300 episodes. Left has a mean return of -0.1, right of 0.

    Left of the start is a state with many actions, whose rewards are normal with mean -0.1 and standard deviation 1.
    The largest of their estimates is too large. All runs are computed at once; tables `[2, runs, actions]` for double.
    """
    generator, (runs, actions) = torch.Generator().manual_seed(seed), BIAS
    start, there, each = torch.zeros(2, runs, 2), torch.zeros(2, runs, actions), torch.arange(runs)
    none, shares = torch.zeros(runs), []

    def act(q: Tensor) -> Tensor:
        draws = torch.rand(q.shape, generator=generator)                  # also break ties
        greedy = torch.where(q == q.amax(-1, keepdim=True), draws, -1).argmax(-1)
        return torch.where(torch.rand(runs, generator=generator) < 0.1, draws.argmax(-1), greedy)

    for _ in range(300):
        own = torch.randint(2, (runs,), generator=generator) if double else torch.zeros(runs, dtype=torch.long)
        judge = 1 - own if double else own
        first, second = act(start.sum(0)), act(there.sum(0))
        left = (first == 0).float()
        value = greedy_value(there[judge, each], there[own, each] if double else None)
        start[own, each, first] += 0.1 * (td_target(none, 1, 1 - left, value) - start[own, each, first])
        reward = torch.randn(runs, generator=generator) - 0.1
        error = td_target(reward, 1, none + 1, none) - there[own, each, second]
        there[own, each, second] += 0.1 * left * error
        shares.append(left.mean().item())
    return shares


def cliffwalk(n: int) -> Replay:
    """Return a replay buffer with the steps of all 2^n sequences of actions, 2^(n + 1) - 2 steps in total.

    There are n states in a row. The wrong action ends the episode, and n right actions in a row give a reward of 1.
    """
    size = 2 ** (n + 2)                                      # with room for the first frame of each episode
    replay = Replay(size, 1, (1,), np.dtype(np.float32), (), np.int64)
    for actions in product((0, 1), repeat=n):
        for state, action in enumerate(actions):
            wins = bool(action) and state == n - 1
            ends, obs = np.array([wins or not action]), np.full((1, 1), state + 1, np.float32)
            replay.add(np.full((1, 1), state, np.float32), np.array([action]), Step(
                np.where(ends[:, None], 0, obs), np.array([wins], np.float32), ends, ~ends & False,
                obs if ends else None))
            if ends:
                break
    return replay


def updates_on_the_cliff(alpha: float, n: int, seed: int = 0) -> int:
    """Q-learning updates, each with one sample from the replay buffer, until the mean squared error of Q is below 1e-3.
    alpha: exponent of the priorities; 0 samples uniformly."""
    replay, rng, gamma = cliffwalk(n), np.random.default_rng(seed), 1 - 1 / n
    batch = replay.sample(np.arange(len(replay)))
    state, action, rew, terminated = (x.flatten().tolist() for x in (batch.obs.long(), batch.act, batch.rew,
                                                                     batch.terminated))
    q, true = rng.normal(0, 0.1, (n + 1, 2)), np.zeros((n, 2))
    true[:, 1] = gamma ** np.arange(n - 1, -1, -1)
    priorities = Priorities(replay.size, alpha)
    priorities.set(np.arange(len(replay)))

    def drawn() -> Iterator[int]:
        while True:
            if alpha:
                yield int(priorities.draw(rng, 1, replay.count)[0][0])
            else:
                yield from replay.draw(rng, 1000).tolist()

    for count, i in enumerate(drawn(), 1):
        s, a = state[i], action[i]
        error = td_target(rew[i], gamma, terminated[i], q[s + 1].max()) - q[s, a]
        q[s, a] += 0.25 * error
        if alpha:
            priorities.set(np.array([i]), abs(error) + 1e-6)
        if count % 8 == 0 and np.square(q[:n] - true).mean() < 1e-3:
            return count
    raise AssertionError


def corridor(actions: int) -> tuple[Tensor, ...]:
    """Actions: right, left, and others that do nothing; leaving on the right gives 1. Return, `[length, actions]` each:
    the next state, the reward, the end, the policy (half of it random), its exact values, and its visits."""
    length, gamma = CORRIDOR
    here = np.arange(length)
    leads = np.stack([here + 1, np.maximum(here - 1, 0), *[here] * (actions - 2)], 1)
    ends = leads == length
    policy = np.full((length, actions), 0.5 / actions)
    policy[:, 0] += 0.5
    moves = np.zeros((length, length + 1))
    np.add.at(moves, (here[:, None], leads), policy)
    moves = moves[:, :length]
    value = np.linalg.solve(np.eye(length) - gamma * moves, (policy * ends).sum(1))
    visits = np.linalg.solve((np.eye(length) - moves).T, here == 0)
    leads = np.minimum(leads, length - 1)
    tables = ends, ends, policy, ends + gamma * ~ends * value[leads], policy * (visits / visits.sum())[:, None]
    return torch.from_numpy(leads), *(torch.from_numpy(table.astype(np.float32)) for table in tables)


def error_of_evaluation(dueling: bool, actions: int, seed: int = 0) -> float:
    """Mean squared error of a network's values after 500 steps of expected SARSA, averaged over two networks. Only the
    initial weights are random."""
    leads, rew, terminated, policy, true, share = corridor(actions)
    eye, errors = torch.eye(len(leads)), []
    for copy in range(2):
        torch.manual_seed(2 * seed + copy)
        net = QNetwork((len(leads),), actions, (50, 50), dueling)
        params = list(net.parameters())
        for _ in range(500):
            q = net(eye)
            with torch.no_grad():
                y = td_target(rew, CORRIDOR[1], terminated, (policy * q).sum(-1)[leads])
            gradients = torch.autograd.grad((share * (q - y).square()).sum(), params)
            with torch.no_grad():
                torch._foreach_add_(params, gradients, alpha=-0.1)
        errors.append((net(eye) - true).square().mean().item())
    return float(np.mean(errors))


def exact_returns(length: int, gamma: float) -> tuple[list[float], list[float]]:
    """All returns from the start of the stochastic chain, and their probabilities: each of `length` steps gives 0 or 1
    with equal probability."""
    sequences = list(product((0, 1), repeat=length))
    return [sum(gamma**t * r for t, r in enumerate(s)) for s in sequences], [2.0**-length] * len(sequences)


def learn_distribution(seed: int, updates: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Learn the returns of each state of the stochastic chain with a table of logits, from sampled steps. Return the
    atoms and their probabilities at the start, `[51]` each."""
    generator, support = torch.Generator().manual_seed(seed), torch.linspace(0, CHAIN, 51)
    logits = torch.nn.Parameter(torch.zeros(CHAIN + 1, len(support)))

    def loss(state: Tensor, rew: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            terminated = (state == CHAIN - 1).float()
            m = project(rew, torch.full_like(rew, GAMMA), terminated, logits[state + 1].softmax(-1), support)
        return divergence(m, logits[state].log_softmax(-1)).mean(), {}

    minimize = FlatAdam([logits], lr=0.1).minimizer(loss)
    for k in range(updates):
        state = torch.randint(CHAIN, (64,), generator=generator)
        minimize(state, torch.randint(2, (64,), generator=generator).float(), lr=0.1 * (1 - k / updates))
    return support.numpy(), logits[0].softmax(-1).detach().double().numpy()


def updates_with_steps(n: int) -> int:
    """Updates of all values of a chain, each with all steps of the replay buffer, until the first value is at least
    0.9. The last step gives a reward of 1; there is no discount."""
    replay = Replay(2 * LENGTH, 2, (1,), np.dtype(np.float32), (), np.int64)
    for t in range(LENGTH):
        obs, led_to = (np.full((2, 1), s, np.float32) for s in (t, t + 1))
        end = np.full(2, t + 1 == LENGTH)
        replay.add(obs, np.zeros(2, np.int64), Step(np.where(end[:, None], 0, led_to), end.astype(np.float32), end,
                                                         ~end & False, led_to if end.any() else None))
    batch = replay.sample_n(np.arange(len(replay)), n)
    here, there = (obs[:, 0].long() for obs in (batch.obs, batch.next_obs))
    ret, discount = n_step_return(batch.rew, batch.length, 1.0)
    value, count = torch.zeros(LENGTH + 1, 1), 0
    while value[0, 0] < 0.9:
        y = td_target(ret, discount, batch.terminated, greedy_value(value[there]))
        value[here, 0] += 0.8 * (y - value[here, 0])
        count += 1
    return count
