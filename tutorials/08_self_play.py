# %% [markdown]
# # 8. Self-play: tic-tac-toe against past versions
#
# **You will** see why training against the newest version can run in circles. You train an agent
# for tic-tac-toe against its own past versions, evaluate it against a perfect player, and rate the
# versions. **You need** the first notebook. **Time**: fifteen minutes. The code runs for about
# one minute.
#
# You choose the budget in the first line of the next cell. With `ci`, the notebook needs less than
# ninety seconds on one CPU core. `cpu` trains with four times as many moves, and `gpu` does the
# same with the networks on a GPU. If the environment variable `SPINUP_BUDGET` is set, it overrides
# `BUDGET`.

# %%
BUDGET = "ci"

import tempfile

import numpy as np

from spinup import self_play
from spinup.algos.self_play import opponents
from spinup.arena.players import Player, minimax, random_moves, trained
from spinup.arena.tournament import play
from spinup.core.ratings import MEAN, POINTS, bradley_terry
from spinup.envs.games import flat
from spinup.envs.worlds.boards import TicTacToe
from spinup.runs.curve import COLOURS, LINES
from spinup.view.notebook import curves, panels, show, sizes

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "steps": 250_000, "device": "cpu"},
             cpu={"seeds": (1, 2, 3), "steps": 1_000_000, "device": "cpu"},
             gpu={"seeds": (1, 2, 3), "steps": 1_000_000, "device": "cuda"})
RUNS = tempfile.mkdtemp()
QUIET = {"log_dir": RUNS, "quiet": True, "tensorboard": False,
         "device": SIZE["device"], "threads": 1}

# %% [markdown]
# ## Winning against past versions is not progress
#
# In **self-play**, an agent learns a game by playing against copies of itself. Its opponent is
# always about as strong as the agent, and no teacher is needed. But an agent that beats its past
# versions need not be a better player.
#
# Take rock, paper, scissors with one change: a win with rock counts 2, and every other win
# counts 1. Let $A_{ij}$ be the payoff of move $i$ against move $j$, and let $x$ be a mixed
# strategy: $x_j$ is the probability of move $j$. Then move $i$ wins $(A x)_i$ on average against
# this strategy. The best reply (or best response) wins $\max_i (A x)_i$, which is called the
# **exploitability** of $x$. It is 0 only at the **equilibrium**: one quarter rock, one half paper,
# and one quarter scissors.
#
# Now let each new version be the best reply to a pool of earlier versions. As in Bansal et al.
# (2018), the pool contains the versions $\lceil \delta v \rceil$ to $v$, numbered from 0. Here $v$
# is the newest version, $\delta$ is a setting between 0 and 1, and $\lceil \cdot \rceil$ rounds up.
# With $\delta = 1$ the pool is the newest version alone. With $\delta = 0$ it is all versions so
# far.

# %%
A = np.array([[0, -1, 2], [1, 0, -1], [-2, 1, 0]])   # rock, paper, scissors
EQUILIBRIUM = np.array([1, 2, 1]) / 4

def exploitability(versions):
    """Mean payoff of the best reply against the average of these versions."""
    return (A @ np.bincount(versions, minlength=3)).max() / len(versions)

def history(delta, first, number=1000):
    """Moves of `number` versions, each the best reply to a pool of earlier versions,
    and the exploitability of these pools."""
    versions, weakness = [first], []
    while len(versions) < number:
        pool = versions[int(np.ceil(delta * (len(versions) - 1))):]
        weakness.append(exploitability(pool))
        versions.append(int((A @ np.bincount(pool, minlength=3)).argmax()))
    return np.array(versions), np.array(weakness)

figure, (left, right) = panels(2)
for delta, colour, line in zip((1, 0.5, 0), COLOURS, LINES, strict=False):
    for first in range(3):
        versions, weakness = history(delta, first)
        look = {"color": colour, "linestyle": line,
                "label": f"δ = {delta:g}" if first == 0 else None}
        right.plot(np.arange(1, 1000), weakness, linewidth=1, **look)
        if first == 0:
            left.plot(versions[:40] + 0.06 * (1 - 2 * delta), drawstyle="steps-mid",
                      linewidth=1.3, **look)
left.set(title="move of each version", xlabel="version", yticks=[0, 1, 2],
         yticklabels=["rock", "paper", "scissors"])
right.set(title="exploitability of the pool", xlabel="versions", xscale="log",
          yscale="log")
right.legend(loc="lower left")
show(figure, "Left: with delta 1, the versions play rock, paper, scissors, over and"
     " over. With delta .5 and 0, they keep each move longer and longer. Right: the"
     " exploitability of the pool is 1 or 2 with delta 1. With delta .5 it stays"
     " above a quarter, and with delta 0 it falls to a fiftieth.")

# %% tags=["hide-cell"]
assert np.allclose(A, -A.T) and np.allclose(A @ EQUILIBRIUM, 0)
for first in range(3):
    (cycle, newest), (half, recent), (past, all_) = (
        history(delta, first) for delta in (1, 0.5, 0))
    assert (cycle[1:] == (cycle[:-1] + 1) % 3).all() and newest.min() >= 1
    assert (A[cycle[1:], cycle[:-1]] > 0).all()
    assert abs(exploitability(cycle) - 1 / 3) < 0.01
    assert exploitability([0, 1, 1, 2]) == 0
    assert recent.min() >= 0.25 and all_[99:].max() < 0.1 and all_[-1] < 0.025
    assert abs(np.bincount(past) / 1000 - EQUILIBRIUM).max() < 0.05
    assert exploitability(past[-1:]) >= 1
    kept = np.diff(np.flatnonzero(np.diff(half)))
    assert set(np.diff(half) % 3) == {0, 1}
    assert kept[:5].max() < 10 and kept[-5:].min() > 30
drawn = opponents(np.random.default_rng(0), 1000, versions=10, delta=0.5)
assert set(drawn) == set(range(10)[int(np.ceil(0.5 * 9)):])

# %% [markdown]
# - With $\delta = 1$, every version beats the one before, but there is no progress: the versions
#   cycle through rock, paper and scissors. Even their average, one third each, is not the
#   equilibrium of this game. A best reply wins one third from this average.
# - With $\delta = 0$, the pool gets closer and closer to the equilibrium. This method is called
#   **fictitious play**. But only the *average* gets closer. The newest version is still a single
#   move, and it loses to its best reply.
# - With $\delta = .5$, the pool is the newer half of the versions. The versions cycle here too, and
#   each cycle is longer than the one before. A best reply never wins less than one quarter from the
#   pool.
#
# So a pool of past versions helps in non-transitive games, where strategies beat each other in a
# cycle. You do not know in advance whether a game is of this kind. Tic-tac-toe needs no mixed
# strategy, because it has a best move in every position. A player that always takes it never loses.
#
# ## Tic-tac-toe
#
# For an agent, the game is an environment. One step is a move of the agent and the reply of its
# opponent. The agent observes the board and the legal-action mask, which excludes illegal moves. At
# the end, the reward is 1 for a win, -1 for a loss and 0 for a draw. The loss function is that of
# PPO.
#
# At regular intervals, `self_play` puts a copy of the policy into a **pool**. For each game, it
# samples an opponent from the newer half of the pool. Each game starts with up to five random
# moves. The last section shows why.
#
# Two other players are used only for evaluation. One moves at random, and the other is **minimax**,
# which searches the game to its end. No player can do better than draw against minimax.

# %%
SETTINGS = {"versions": 10, "hidden": (64, 64), "lr": 3e-3, "num_envs": 128,
            "rollout_steps": 16, "total_steps": SIZE["steps"], **QUIET}
runs = [self_play("TicTacToe-v0", seed=seed, exp_name="openings", **SETTINGS)
        for seed in SIZE["seeds"]]

def likeliest(result):
    """Player of the arena that takes the most likely move of the trained policy."""
    def moves(seen, legal, rng):
        return result.policy.act_batch(flat(seen, legal), deterministic=True)
    return Player("policy", moves)

def results(player, moves, games=250):
    """Numbers of games that `player` won, drew and lost, `[2, 3]`. It moves first in
    the games of the first row, and second in the others."""
    rng, other = np.random.default_rng(0), Player("other", moves)
    begun = np.array(play(TicTacToe(games), player, other, rng))
    second = 1 - np.array(play(TicTacToe(games), other, player, rng))
    return np.array([[(scores == s).sum() for s in (1, 0.5, 0)]
                     for scores in (begun, second)])

against = {name: [results(likeliest(run), moves) for run in runs]
           for name, moves in (("random", random_moves), ("minimax", minimax))}
for name, of_seeds in against.items():
    for seed, (begun, second) in zip(SIZE["seeds"], of_seeds, strict=True):
        print(f"seed {seed} against {name:7} (won, drawn, lost):"
              f" {begun} moving first, {second} moving second")

# %% tags=["hide-cell", "trained"]
chance = results(Player("random", random_moves), minimax)
assert chance[:, 0].sum() == 0 and chance[:, 2].sum() > 350
for seed in range(len(runs)):
    random, perfect = against["random"][seed], against["minimax"][seed]
    assert random[:, 0].sum() > 440 and random[:, 2].sum() <= 10
    assert perfect[:, 0].sum() == 0 and perfect[:, 2].sum() <= 60
assert sum(found[:, 2].sum() for found in against["minimax"]) <= 90

# %% [markdown]
# No one has told the agent any rule except which moves are legal, and it has played only against
# its past versions. It loses almost no games against random moves. Against minimax, it draws nearly
# all games. A random player loses more than 350 of 500 games to minimax.
#
# The preset of the library trains for 4 million moves. In its
# [benchmark](../docs/benchmarks/papers.md#self-play-bansal-et-al-2018), no sequence of replies
# beats the trained policy.
#
# In the game below, the policy of the first seed plays X, and minimax plays O.

# %%
def match(first, second, seed):
    """Boards of one game, after each move, as text."""
    board, rng, shown = TicTacToe(1), np.random.default_rng(seed), []
    squares, over = np.full(9, "."), [False]
    while not over[0]:
        mover = int(board.mover[0])
        move = (first, second)[mover].moves(board.observe(), board.legal(), rng)
        _, over = board.play(move)
        squares[move[0]] = "XO"[mover]
        shown.append([" ".join(squares[i:i + 3]) for i in (0, 3, 6)])
    return shown

shown = match(likeliest(runs[0]), Player("minimax", minimax), seed=1)
for rows in zip(*shown, strict=True):
    print("   ".join(rows))

# %% tags=["hide-cell"]
assert 5 <= len(shown) <= 9
assert "".join(shown[-1]).count("X") == (len(shown) + 1) // 2

# %% [markdown]
# ## Rating the versions
#
# A tournament measures the progress of training. Its players are six versions of each seed, the
# final policies, random moves and minimax. Every player meets every other. The model of Bradley and
# Terry gives each player $i$ a strength $\theta_i$. We fit the strengths by maximum likelihood, and
# for this we need the gradient of the log-likelihood $\log L$:
#
# $$P(i \text{ beats } j) = \sigma(\theta_i - \theta_j), \qquad \frac{\partial \log L}{\partial
# \theta_i} = \text{points of } i - \sum_j n_{ij}\, \sigma(\theta_i - \theta_j).$$
#
# - $\sigma(z) = 1 / (1 + e^{-z})$ is the logistic function.
# - $n_{ij}$ is the number of games between $i$ and $j$.
# - The points of $i$ are its wins, plus one half for each draw.
#
# At the maximum the gradient is zero, so each player has as many points as its strength predicts.
# Gradient ascent finds this maximum in three lines. The library's `bradley_terry` uses Newton's
# method, and it also computes 95 % confidence intervals from the curvature at the maximum. Both
# versions add one draw against an average player to the games of each player. Without this draw, a
# player that won all its games would get an infinite strength.

# %%
ENV, GAMES = "TicTacToe-v0", 30 // len(SIZE["seeds"])   # games per pair, moving first
rated = [player for run in runs for player in trained(run.directory, ENV, 6)]
rated += [Player("random", random_moves), Player("minimax", minimax)]
rng, number = np.random.default_rng(0), len(rated)
scores = np.zeros((number, number))
for i in range(number):
    for j in set(range(number)) - {i}:
        got = sum(play(TicTacToe(GAMES), rated[i], rated[j], rng))
        scores[i, j] += got
        scores[j, i] += GAMES - got

theta, games = np.zeros(number), scores + scores.T
for _ in range(3000):
    expected = ((games / (1 + np.exp(theta[None] - theta[:, None]))).sum(1)
                + 1 / (1 + np.exp(-theta)))
    theta += 0.01 * (scores.sum(1) + 0.5 - expected)
strengths = bradley_terry(scores)
ours = MEAN + POINTS * (theta - theta.mean())
difference = abs(ours - strengths.rating).max()
print(f"largest difference from the library's ratings: {difference:.1e} points")

figure, (axes,) = panels(size=(6.4, 4))
looks = zip(SIZE["seeds"], COLOURS, LINES, strict=False)
for k, (seed, colour, line) in enumerate(looks):
    mine = slice(7 * k, 7 * k + 7)
    rating = strengths.rating[mine]
    steps = np.array([player.steps for player in rated[mine]]) / SIZE["steps"]
    axes.errorbar(steps + 0.01 * k, rating,
                  (rating - strengths.low[mine], strengths.high[mine] - rating),
                  color=colour, linestyle=line, marker="o", markersize=4, capsize=3,
                  label=f"seed {seed}")
for k, word in ((-1, "minimax"), (-2, "random moves")):
    axes.axhline(strengths.rating[k], color="#444444", linewidth=1, linestyle=":")
    axes.text(0.4 * (k == -2), strengths.rating[k] + 12, word, color="#444444")
axes.set(title="past versions in a tournament", xlabel="share of training",
         ylabel="rating, with 95 % intervals")
axes.legend(loc="center right")
show(figure, "Ratings of seven versions of each seed, with confidence intervals. They"
     " rise steeply from the rating of random moves and level off near the rating of"
     " minimax.")

# %% tags=["hide-cell", "trained"]
assert difference < 0.5
rating, width = strengths.rating, strengths.high - strengths.low
for k in range(len(runs)):
    mine = rating[7 * k:7 * k + 7]
    assert abs(mine[0] - rating[-2]) < 60
    assert mine[-1] > mine[0] + 400 and mine[-1] > rating[-1] - 80
    assert mine[3] - mine[0] > mine[-1] - mine[3]
    assert (abs(np.diff(mine)) < width[7 * k:7 * k + 6] / 2).sum() >= 2
assert sum(found[:, 0].sum() for found in against["minimax"]) == 0
assert width.min() > 20 and width.max() < 150
assert rating.argmin() in (0, 7, 14, number - 2)

# %% [markdown]
# The first versions are as good as random moves. Most of the improvement comes in the first half of
# training. The final policies are rated more than 400 points above the first versions, and close to
# minimax. In this tournament the policies *sample* their moves, as in training. Successive versions
# often lie within each other's confidence intervals. So if you claim that a version is better than
# the one before it, state how many games the version has played.
#
# A rating shows how many points a player gets *against these players*. Minimax never loses, but it
# sets no traps either, because it chooses at random among the optimal moves. So a player can be
# rated above minimax and still never beat it.
#
# ## Break it: no random openings
#
# The next cell repeats the training, but every game starts from the empty board. The right plot
# shows the rating that training computes from the games against the pool.

# %%
narrow = [
    self_play("TicTacToe-v0", seed=seed, exp_name="empty", opening=0, **SETTINGS)
    for seed in SIZE["seeds"]]
lost = {name: [[results(likeliest(run), moves)[:, 2].sum() / 5
                for moves in (random_moves, minimax)] for run in group]
        for name, group in (("with openings", runs), ("empty board", narrow))}

figure, (left, right) = panels(2)
looks = zip(lost, COLOURS, ("", "//"), strict=False)
for k, (name, colour, hatch) in enumerate(looks):
    left.bar(np.arange(2) + 0.4 * k, np.mean(lost[name], 0), 0.36, color=colour,
             hatch=hatch, edgecolor="white", label=name)
    for x, of_seeds in enumerate(np.transpose(lost[name])):
        left.plot([x + 0.4 * k] * len(of_seeds), of_seeds, "o", color="black",
                  markersize=3)
left.set(title="lost games", xticks=[0.2, 1.2],
         xticklabels=["to random moves", "to minimax"], ylabel="per 100 games")
left.legend(loc="upper left")
curves(right, {"with openings": runs, "empty board": narrow}, "rating")
right.set(title="rating during training", xlabel="thousand moves of training",
          ylabel="Elo rating of the policy")
right.xaxis.set_major_formatter(lambda x, _: f"{x / 1e3:g}")
show(figure, "Left: with random openings, almost no games are lost. With the empty"
     " board alone, several of a hundred are lost to random moves and dozens to"
     " minimax. Dots are seeds. Right: the rating during training rises higher with"
     " the empty board.")
for name, of_seeds in lost.items():
    print(f"{name:14} lost games of 100, to random moves and to minimax:",
          ", ".join(f"{a:.0f} and {b:.0f}" for a, b in of_seeds))

# %% tags=["hide-cell", "trained"]
for with_, without, run in zip(*lost.values(), narrow, strict=True):
    assert without[1] > 10 and without[1] > with_[1] + 5 and without[0] >= with_[0]
    highest = max(other.progress["rating"][-1] for other in runs)
    assert run.progress["rating"][-1] > highest + 30
assert (np.mean([without[0] for without in lost["empty board"]])
        > np.mean([a for a, _ in lost["with openings"]]) + 1)

# %% [markdown]
# The rating still rises, and for every seed it rises *higher* than with openings. The policy beats
# its past versions more reliably, probably because their games always follow the same few paths. It
# learns little about other positions, and an opponent that reaches such a position wins. Minimax
# wins more than ten of a hundred games, although every game could be a draw. Even random moves win
# a few.
#
# A rating from games within one group measures progress within that group only. You cannot compare
# the ratings of two such groups. Use opponents from outside the group to measure strength.
#
# ## Try it
#
# 1. Add `delta=1` to `SETTINGS`: the opponent is then always the newest version. Does this matter
#    in tic-tac-toe? First write down what you expect from the section on rock, paper, scissors.
#
#    <details><summary>Answer</summary>
#
#    It matters little. Tic-tac-toe has a best move in every position, so the training can converge
#    to one policy. Cycles between weaker policies are still possible. In one check with seeds 1, 2
#    and 3, the policies lost 1 of 1,500 games to random moves. They lost 43, 0 and 3 of 500 games
#    to minimax. With $\delta = .5$, the policies lost no game to random moves or to minimax. So the
#    newest version alone gives slightly less reliable results, but three seeds do not prove this
#    difference.
#
#    </details>
#
# 2. In the section on rock, paper, scissors, sample *five* of the earlier versions at random. Let
#    each new version be the best reply to these five. Does the average still approach the
#    equilibrium?
#
#    <details><summary>Answer</summary>
#
#    No. A sample of five differs from the average, so the best reply to it is often another move.
#    The average converges to about .33 rock, .41 paper and .26 scissors, and a best reply still
#    wins .1 from it. Larger samples help: with fifty versions, a best reply wins about .05.
#
#    </details>
#
# 3. The loss function here is the clipped loss of PPO. In the folder of your exercises, `spinup
#    exercise start 3.2` asks you to write it. Reward models of language models use the same model
#    of Bradley and Terry, which you write in `spinup exercise start 4.2`.
#
# **Next**: [9. Verifiable rewards: from REINFORCE to GRPO](09_rlvr.ipynb).
