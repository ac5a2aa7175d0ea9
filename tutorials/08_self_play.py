# %% [markdown]
# # 8. Self-play: tic-tac-toe against one's own past
#
# **You will** see why learning against one's newest self can run in circles, train an agent for tic-tac-toe with
# nobody to play against but its own past, measure it against a perfect player, and rate what it was on the way. **You
# need** the first notebook. **Time**: fifteen minutes of reading, of which the computer works for one.
#
# The one choice of this notebook is its budget. `ci` takes one CPU core less than ninety seconds; `cpu` trains with
# four times as many moves; `gpu` does the same with the networks on a GPU. The environment variable `SPINUP_BUDGET`
# goes before it.

# %%
BUDGET = "ci"

import tempfile

import numpy as np

from spinup import load, self_play
from spinup.algos.self_play import opponents
from spinup.arena.players import Player, minimax, random_moves, trained
from spinup.arena.tournament import play
from spinup.envs.games import flat
from spinup.envs.ratings import MEAN, POINTS, bradley_terry
from spinup.envs.worlds.boards import TicTacToe
from spinup.view.notebook import curves, panels, show, sizes
from spinup.view.plots import COLOURS, LINES

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "steps": 250_000, "device": "cpu"},
             cpu={"seeds": (1, 2, 3), "steps": 1_000_000, "device": "cpu"},
             gpu={"seeds": (1, 2, 3), "steps": 1_000_000, "device": "cuda"})
RUNS = tempfile.mkdtemp()
QUIET = {"log_dir": RUNS, "quiet": True, "tensorboard": False, "device": SIZE["device"], "threads": 1}

# %% [markdown]
# ## Beating oneself is not getting better
#
# In **self-play** an agent learns a game against copies of itself. The other is then always about as strong as the
# agent, and no teacher is needed. But is who beats its former self a better player? Not always. Take rock, paper,
# scissors, where a win with rock pays 2 and every other win 1. With what move $i$ wins from move $j$ in a matrix $A$,
# move $i$ wins $(A x)_i$ on average from a mixture of moves $x$. The mixture's **exploitability**, $\max_i (A x)_i$,
# is what the best reply wins from it. Only at the **equilibrium** is it 0: one quarter rock, one half paper, one
# quarter scissors.
#
# Let each new version be the best reply to the versions before it. To which of them? As in Bansal et al. (2018), to
# those numbered $\lceil \delta v \rceil$ to $v$, the newest: with $\delta = 1$ the newest only, with $\delta = 0$ to
# the average of all that ever were.

# %%
A = np.array([[0, -1, 2], [1, 0, -1], [-2, 1, 0]])                        # rock, paper, scissors
EQUILIBRIUM = np.array([1, 2, 1]) / 4

def exploitability(versions):
    """What the best reply wins from the average of these versions."""
    return (A @ np.bincount(versions, minlength=3)).max() / len(versions)

def history(delta, first, number=1000):
    """The moves of so many versions, each the best reply to a pool of those before it, and how weak the pools were."""
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
        look = {"color": colour, "linestyle": line, "label": f"δ = {delta:g}" if first == 0 else None}
        right.plot(np.arange(1, 1000), weakness, linewidth=1, **look)
        if first == 0:
            left.plot(versions[:40] + 0.06 * (1 - 2 * delta), drawstyle="steps-mid", linewidth=1.3, **look)
left.set(title="what each version plays", xlabel="version", yticks=[0, 1, 2], yticklabels=["rock", "paper", "scissors"])
right.set(title="what a best reply wins from the pool", xlabel="versions", xscale="log", yscale="log")
right.legend(loc="lower left")
show(figure, "Left: with delta 1 the versions are rock, paper, scissors, over and over; with delta .5 and 0 they keep "
     "each move longer and longer. Right: the exploitability of the pool is 1 or 2 with delta 1, stays above a quarter "
     "with delta .5, and falls to a fiftieth with delta 0.")

# %% tags=["hide-cell"]
assert np.allclose(A, -A.T) and np.allclose(A @ EQUILIBRIUM, 0)
for first in range(3):
    (cycle, newest), (half, recent), (past, all_) = (history(delta, first) for delta in (1, 0.5, 0))
    assert (cycle[1:] == (cycle[:-1] + 1) % 3).all() and (A[cycle[1:], cycle[:-1]] > 0).all() and newest.min() >= 1
    assert abs(exploitability(cycle) - 1 / 3) < 0.01 and exploitability([0, 1, 1, 2]) == 0
    assert recent.min() >= 0.25 and all_[99:].max() < 0.1 and all_[-1] < 0.025
    assert abs(np.bincount(past) / 1000 - EQUILIBRIUM).max() < 0.05 and exploitability(past[-1:]) >= 1
    kept = np.diff(np.flatnonzero(np.diff(half)))
    assert set(np.diff(half) % 3) == {0, 1} and kept[:5].max() < 10 and kept[-5:].min() > 30
drawn = opponents(np.random.default_rng(0), 1000, versions=10, delta=0.5)
assert set(drawn) == set(range(10)[int(np.ceil(0.5 * 9)):])

# %% [markdown]
# With $\delta = 1$ every version beats the one before it, and nothing is ever gained: rock, paper, scissors, rock.
# Not even the average of all of them, a third of each, is the equilibrium of this game; a best reply wins a third
# from it. With $\delta = 0$ the pool comes nearer and nearer to the equilibrium. This is called **fictitious play**.
# But it is the *average* that comes nearer: the newest version is still a single move, and loses to its best reply.
# And with $\delta = .5$, the newer half, the versions go in circles too, in ever longer ones; a best reply never wins
# less than a quarter.
#
# So a pool of past selves is for games in which habits beat each other in circles. Whether a game is of this kind one
# does not know beforehand. Tic-tac-toe has a best way to play from every position.
#
# ## Tic-tac-toe
#
# To an agent the game is an environment whose steps are its own move and the other's answer. It sees the stones and
# which squares are open; closed ones are never drawn. The reward is 1 for a win, -1 for a loss and 0 for a draw, at
# the end. The loss is PPO's. `self_play` puts a copy of the policy into a **pool** at regular intervals and draws an
# opponent from its newer half for each game. Each game begins with up to five random moves. Why, we shall see.
#
# Two players stand outside and are only used to measure: one that moves at random, and **minimax**, which has
# searched the game to its end. Against minimax nobody can do better than draw.

# %%
SETTINGS = {"versions": 10, "hidden": (64, 64), "lr": 3e-3, "num_envs": 128, "rollout_steps": 16,
            "total_steps": SIZE["steps"], **QUIET}
runs = [self_play("TicTacToe-v0", seed=seed, exp_name="openings", **SETTINGS) for seed in SIZE["seeds"]]

def likeliest(result):
    """The trained policy as a player of the arena, which always makes its likeliest move."""
    return Player("policy", lambda seen, legal, rng: result.policy.act_batch(flat(seen, legal), deterministic=True))

def results(player, moves, games=250):
    """Of so many games in each seat: won, drawn and lost, `[2, 3]`; first those that `player` began."""
    rng, other = np.random.default_rng(0), Player("other", moves)
    begun = np.array(play(TicTacToe(games), player, other, rng))
    second = 1 - np.array(play(TicTacToe(games), other, player, rng))
    return np.array([[(scores == s).sum() for s in (1, 0.5, 0)] for scores in (begun, second)])

against = {name: [results(likeliest(run), moves) for run in runs] for name, moves in
           (("random", random_moves), ("minimax", minimax))}
for name, of_seeds in against.items():
    for seed, (begun, second) in zip(SIZE["seeds"], of_seeds, strict=True):
        print(f"seed {seed} against {name:7}  won, drawn, lost: {begun} beginning, {second} second")

# %% tags=["hide-cell", "trained"]
chance = results(Player("random", random_moves), minimax)
assert chance[:, 0].sum() == 0 and chance[:, 2].sum() > 350
for seed in range(len(runs)):
    assert against["random"][seed][:, 0].sum() > 440 and against["random"][seed][:, 2].sum() <= 10
    assert against["minimax"][seed][:, 0].sum() == 0 and against["minimax"][seed][:, 2].sum() <= 60
assert sum(found[:, 2].sum() for found in against["minimax"]) <= 90

# %% [markdown]
# Nobody has told it a rule beyond which squares are open, and it has met nobody but itself. It loses next to nothing
# to random moves and draws nearly all of its games against the perfect player, who beats random moves in more than
# 350 of 500 games. The preset of the library has 4 million moves; in its
# [benchmark](../docs/benchmarks/README.md#self-play-bansal-et-al-2018)
# no line of replies beats it.
#
# Here is a game of the first seed, X, against minimax, O.

# %%
def match(first, second, seed):
    """A game, a list of boards as text."""
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
assert 5 <= len(shown) <= 9 and "".join(shown[-1]).count("X") == (len(shown) + 1) // 2

# %% [markdown]
# ## Rating the versions
#
# Let what the agents were on the way play a tournament: six versions of each seed, their final policies, random moves
# and minimax, everybody against everybody. The model of Bradley and Terry gives each player a strength $\theta$ and
# says
#
# $$P(i \text{ beats } j) = \sigma(\theta_i - \theta_j), \qquad
#   \frac{\partial \log L}{\partial \theta_i} = \text{points of } i - \sum_j n_{ij}\, \sigma(\theta_i - \theta_j),$$
#
# where a draw counts as half a win and $n_{ij}$ is the number of games of the two. At the top of the likelihood every
# player has as many points as its strength says it should have; how sharp the top is gives the intervals. Gradient
# ascent finds it in three lines. The library's `bradley_terry` takes Newton's steps, and computes the intervals. Both
# give everyone half a point in one game against an average player, or else who never lost would be infinitely strong.

# %%
ENV, GAMES = "TicTacToe-v0", 30 // len(SIZE["seeds"])                     # in each seat
rated = [player for run in runs for player in trained(run.directory, ENV, 6, load)]
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
    expected = (games / (1 + np.exp(theta[None] - theta[:, None]))).sum(1) + 1 / (1 + np.exp(-theta))
    theta += 0.01 * (scores.sum(1) + 0.5 - expected)
strengths = bradley_terry(scores)
difference = abs(MEAN + POINTS * (theta - theta.mean()) - strengths.rating).max()
print(f"largest difference from the library's ratings: {difference:.1e} points")

figure, (axes,) = panels(size=(6.4, 4))
for k, (seed, colour, line) in enumerate(zip(SIZE["seeds"], COLOURS, LINES, strict=False)):
    mine = slice(7 * k, 7 * k + 7)
    rating, steps = strengths.rating[mine], np.array([player.steps for player in rated[mine]]) / SIZE["steps"]
    axes.errorbar(steps + 0.01 * k, rating, (rating - strengths.low[mine], strengths.high[mine] - rating), color=colour,
                  linestyle=line, marker="o", markersize=4, capsize=3, label=f"seed {seed}")
for k, word in ((-1, "minimax"), (-2, "random moves")):
    axes.axhline(strengths.rating[k], color="#444444", linewidth=1, linestyle=":")
    axes.text(0.4 * (k == -2), strengths.rating[k] + 12, word, color="#444444")
axes.set(title="past selves in a tournament", xlabel="share of training", ylabel="rating, 95 % intervals")
axes.legend(loc="center right")
show(figure, "Ratings of seven versions of each seed with intervals: they rise steeply from that of random moves and "
     "level off near that of minimax.")

# %% tags=["hide-cell", "trained"]
assert difference < 0.5
rating, width = strengths.rating, strengths.high - strengths.low
for k in range(len(runs)):
    mine = rating[7 * k:7 * k + 7]
    assert abs(mine[0] - rating[-2]) < 60 and mine[-1] > mine[0] + 400 and mine[-1] > rating[-1] - 80
    assert mine[3] - mine[0] > mine[-1] - mine[3]
    assert (abs(np.diff(mine)) < width[7 * k:7 * k + 6] / 2).sum() >= 2
assert sum(found[:, 0].sum() for found in against["minimax"]) == 0
assert width.min() > 20 and width.max() < 150 and rating.argmin() in (0, 7, 14, number - 2)

# %% [markdown]
# At first all are as good as random moves, and most is won in the first half of training. The final policies are
# rated more than 400 points above the first ones and near minimax. They *draw* their moves here, as in training.
# Neighbours often lie within each other's intervals: who says that one version is better than the last must say how
# many games they have played.
#
# A rating says who gets points *from these players*. Minimax never loses, but it lays no traps either: among moves
# that lead to a draw it chooses at random. So one can be rated above it and yet never beat it.
#
# ## Break it: no random openings
#
# The same training, but every game begins with the empty board. On the right is the rating that training itself
# shows, from the games against the pool.

# %%
narrow = [self_play("TicTacToe-v0", seed=seed, exp_name="empty", opening=0, **SETTINGS) for seed in SIZE["seeds"]]
lost = {name: [[results(likeliest(run), moves)[:, 2].sum() / 5 for moves in (random_moves, minimax)] for run in group]
        for name, group in (("with openings", runs), ("empty board", narrow))}

figure, (left, right) = panels(2)
for k, (name, colour, hatch) in enumerate(zip(lost, COLOURS, ("", "//"), strict=False)):
    left.bar(np.arange(2) + 0.4 * k, np.mean(lost[name], 0), 0.36, color=colour, hatch=hatch, edgecolor="white",
             label=name)
    for x, of_seeds in enumerate(np.transpose(lost[name])):
        left.plot([x + 0.4 * k] * len(of_seeds), of_seeds, "o", color="black", markersize=3)
left.set(title="how many games are lost", xticks=[0.2, 1.2], xticklabels=["to random moves", "to minimax"],
         ylabel="of a hundred")
left.legend(loc="upper left")
curves(right, {"with openings": runs, "empty board": narrow}, "rating")
right.set(title="the rating of training", xlabel="thousand moves of training", ylabel="Elo of the learner")
right.xaxis.set_major_formatter(lambda x, _: f"{x / 1e3:g}")
show(figure, "Left: with random openings next to no games are lost; from the empty board alone several of a hundred "
     "are lost to random moves and dozens to minimax, dots for seeds. Right: the rating in training rises higher from "
     "the empty board.")
for name, of_seeds in lost.items():
    print(f"{name:14} of a hundred lost to random moves and to minimax:",
          ", ".join(f"{a:.0f} and {b:.0f}" for a, b in of_seeds))

# %% tags=["hide-cell", "trained"]
for with_, without, run in zip(*lost.values(), narrow, strict=True):
    assert without[1] > 10 and without[1] > with_[1] + 5 and without[0] >= with_[0]
    assert run.progress["rating"][-1] > max(other.progress["rating"][-1] for other in runs) + 30
assert np.mean([without[0] for without in lost["empty board"]]) > np.mean([a for a, _ in lost["with openings"]]) + 1

# %% [markdown]
# Its rating does not only rise all the same, it rises *higher* than with openings, for every seed. It beats its past
# all the more surely, probably because that past is always met on the same few paths. About other positions it learns
# little, and whoever leads it there wins: minimax more than ten of a hundred games, which could all have been draws,
# and even random moves win a few. A rating from games among one's own kind measures progress within that kind, and
# two such ratings cannot be compared. Strength has to be measured outside.
#
# ## Try it
#
# 1. Put `delta=1` into `SETTINGS`, the newest opponent only. Does it matter in tic-tac-toe? Say before what the first
#    section makes you expect.
# 2. In the first section let each version be the best reply to a pool of *five* drawn at random from all before it.
#    Does the average still go to the equilibrium?
# 3. The loss here is PPO's clipped one: `spinup exercise start 3.2`. The strengths here are those of a reward model
#    of answers: `spinup exercise start 4.2`.
#
# **Next**: [9. Rewards that a program can check: from REINFORCE to GRPO](09_rlvr.ipynb).
