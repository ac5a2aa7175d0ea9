# %% [markdown]
# # 10. From imitation to RLHF, and over-optimisation
#
# **You will** take a small language model through all stages of RLHF, imitation, a reward model and PPO, see what
# becomes of the true reward while a learned one is driven up, and hold best-of-n and DPO beside it. **You need**
# [notebook 9](09_rlvr.ipynb); PPO helps. **Time**: twenty minutes of reading, of which the computer works for one or
# two.
#
# The one choice of this notebook is its budget. `ci` takes two CPU cores less than three minutes; `cpu` trains on
# more seeds; `gpu` does the same on a GPU. The environment variable `SPINUP_BUDGET` goes before it.

# %%
BUDGET = "ci"

import tempfile

import numpy as np
import torch

import llm
from llm.algos.best_of_n import kl_of_best
from llm.algos.dpo import Config, preference_loss
from llm.algos.reward_model import bradley_terry
from llm.tasks.task import Problem
from llm.tasks.taste import Taste
from spinup.view.notebook import curves, panels, show, sizes
from spinup.view.plots import COLOURS, LINES

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "device": "cuda"})
QUIET = {"log_dir": tempfile.mkdtemp(), "quiet": True, "tensorboard": False, "device": SIZE["device"]}

# %% [markdown]
# ## A reader whose taste is known
#
# Whether a summary is good no program can check. But people can say which of two they prefer. **Reinforcement
# learning from human feedback** (RLHF) learns a reward from such comparisons, and then a policy from that reward.
# What comes out is only as good as the learned reward, and of real people nobody knows the true one.
#
# In the task `taste` it is known. A prompt such as `bfe>` asks for something with these letters in it, and the answer
# is any line of letters. A hidden reader likes four letters of eight and dislikes the others, likes a letter a little
# better if it was asked for, and hates it when one comes again. A teacher, who does not know the reader, writes at
# random. The true reward is scaled so that the teacher's answers have mean 0 and deviation 1.

# %%
task, rng = Taste(), np.random.default_rng(0)

def true_reward(prompt, answer):
    return task.reward(Problem(prompt), answer)

asked = "bfe>"
for answer in [task.demonstration(Problem(asked), rng) for _ in range(4)] + ["gcde", "g", "gg", "ggg"]:
    print(f"{asked} {answer:<7}{true_reward(asked, answer):6.2f}")

# %% tags=["hide-cell"]
shown = [true_reward(p.prompt, task.demonstration(p, rng)) for p in task.problems(2000, rng)]
assert abs(np.mean(shown)) < 0.1 and abs(np.std(shown) - 1) < 0.1 and len(task.pleasing) == 4 and task.letters == 8

# %% [markdown]
# ## Stage 1: imitation
#
# A transformer of one layer imitates the teacher: **supervised fine-tuning**, SFT. It ends near the teacher, a little
# below him. All that follows begins with this one model; the seeds differ in everything after it.

# %%
SMALL = {"layers": 1, "width": 32, "held_out": 64}
start = llm.sft("taste", seed=SIZE["seeds"][0], total_steps=500, batch=64, demonstrations=3000, **SMALL, **QUIET)
FROM = {"model": str(start.directory), **SMALL, **QUIET}

PROMPTS, ANSWERS = 64, 256
prompts = [p.prompt for p in task.problems(PROMPTS, rng, held_out=True)]
answers = start.policy.respond_all(prompts, ANSWERS, start.policy.generator, start.policy.max_tokens)
each = [prompt for prompt in prompts for _ in range(ANSWERS)]
true = np.array([true_reward(*both) for both in zip(each, answers, strict=True)])
print(f"true reward after imitation: {true.mean():.2f}, deviation {true.std():.2f}")
print("some answers:", *answers[:8])

# %% tags=["hide-cell", "trained"]
assert -0.9 < true.mean() < 0.05 and 0.8 < true.std() < 1.6

# %% [markdown]
# ## Stage 2: a reward model
#
# The model answers each of many prompts twice, and the reader says which answer is better. Bradley and Terry's model
# gives each answer $y$ to a prompt $x$ a number $r(x, y)$ such that the answer $w$ is preferred to $l$ with
# probability $\sigma(r(x, w) - r(x, l))$. Such a number is learned by making the choices that were made likely:
#
# $$L = -\log \sigma\big(r(x, w) - r(x, l)\big).$$
#
# $r$ is a copy of the policy with a number in place of the next token. In the end it is shifted and scaled to mean 0
# and deviation 1 over answers of the start. We learn it from 50 comparisons, and from 1,000. How good is it? On pairs
# that it has not seen, it should prefer what the reader prefers. Guessing has an accuracy of one half.

# %%
won, lost = torch.randn(2, 5)
print("the library's loss is this one:", torch.allclose(bradley_terry(won, lost), -torch.sigmoid(won - lost).log()))

judges = {pairs: [llm.reward_model("taste", seed=seed, pairs=pairs, total_steps=60, batch=64, lr=2e-3, **FROM)
                  for seed in SIZE["seeds"]] for pairs in (50, 1000)}
few, many = judges.values()

times = range(1, 7)
figure, (left, right) = panels(2)
curves(left, {f"{pairs:,} comparisons": runs for pairs, runs in judges.items()}, "pair_accuracy")
left.set(title="accuracy on unseen pairs", xlabel="updates", ylabel="share of pairs ranked rightly", ylim=(0.4, 1))
right.plot(times, [true_reward(asked, "g" * n) for n in times], color="#444444", label="true")
for i, (pairs, runs) in enumerate(judges.items()):
    said = np.array([[run.policy(asked, "g" * n) for n in times] for run in runs])
    right.plot(times, said.T, color=COLOURS[i], linestyle=LINES[i], linewidth=1, alpha=0.4)
    right.plot(times, said.mean(0), color=COLOURS[i], linestyle=LINES[i], linewidth=2, label=f"learned from {pairs:,}")
right.set(title="what the answers g, gg, ggg, ... are worth", xlabel="times the letter", ylabel="reward")
right.legend(loc="lower left")
show(figure, "Left: accuracy on unseen pairs rises to about .7 with 50 comparisons and above .8 with 1,000. Right: the"
     " true reward falls steeply with each repetition, the learned ones do not.")
for pairs, runs in judges.items():
    print(f"{pairs:>5} comparisons: accuracy", *(f"{run.quality:.3f}" for run in runs))

# %% [markdown]
# More comparisons make a better judge, on every seed: it ranks about two pairs in three rightly from 50 comparisons,
# and more than three in four from 1,000.
#
# The right picture asks for something that the start hardly ever writes: the same pleasing letter again and again. To
# the reader each repetition makes it worse, and `gggg` is worse than nearly all answers of the start. To the judges
# from 1,000 comparisons it is better than the average one, on every seed: the comparisons have not taught them
# otherwise.

# %% tags=["hide-cell", "trained"]
assert 0.6 < np.mean([f.quality for f in few]) < 0.74 and 0.77 < np.mean([m.quality for m in many]) < 0.9
assert all(m.quality > f.quality + 0.02 for f, m in zip(few, many, strict=True))
assert all(true_reward(asked, "g" * (n + 1)) < true_reward(asked, "g" * n) - 0.5 for n in times)
assert np.mean(true < true_reward(asked, "gggg")) < 0.1 and all(m.policy(asked, "gggg") > 0.3 for m in many)
assert np.mean([len(a) >= 4 and len(set(a)) == 1 for a in answers]) < 0.01

# %% [markdown]
# ## Stage 3: PPO, and the price of divergence
#
# PPO takes the judge's number for the reward of a whole answer. Each token has a reward of its own besides: a price
# $\beta$ for every nat by which the policy $\pi$ has moved away from the start $\pi_0$,
#
# $$r_t = -\beta \log \frac{\pi(y_t \mid s_t)}{\pi_0(y_t \mid s_t)} + [\,t \text{ is last}\,]\, r(x, y).$$
#
# The sum of the logarithms has the **divergence** $\mathrm{KL}(\pi, \pi_0)$ as its mean: how surprising, in nats, the
# policy's answers would be to the start. The price keeps the policy where the judge has seen examples. Here it is
# with `kl_coef`, which is $\beta$, at 0.1, and without. Of the two rewards, the unit of the learned one is the
# deviation of the start's answers, that of the true one the deviation of the teacher's.

# %%
def optimise(judges, price):
    return [llm.ppo("taste", seed=seed, reward=str(judge.directory), kl_coef=price, prompts=64, minibatches=2,
                    total_steps=60, **FROM) for seed, judge in zip(SIZE["seeds"], judges, strict=True)]

runs = {"price 0.1": optimise(many, 0.1), "no price": optimise(many, 0.0)}
priced, free = runs.values()

COLUMNS = {"learned reward": "held_out_reward", "true reward": "held_out_gold"}
figure, both = panels(2)
for axes, (name, results) in zip(both, runs.items(), strict=True):
    curves(axes, {label: [{"steps": r.progress["steps"], "reward": r.progress[column]} for r in results]
                  for label, column in COLUMNS.items()}, "reward")
    axes.set(title=f"PPO, {name}", xlabel="updates", ylabel="reward", ylim=(-6, 3))
    axes.legend(loc="lower left")
show(figure, "Left, with a price: both rewards rise and stay. Right, without: the learned reward rises a little higher,"
     " the true one rises at first and then falls, on average far below where it began.")

def ends(results, column):
    return [r.progress[column][-1] for r in results]

for name, results in runs.items():
    for label, column in {**COLUMNS, "nats from the start": "kl_of_response"}.items():
        print(f"{name:<11} {label:<20}", *(f"{x:6.2f}" for x in ends(results, column)))

# %% [markdown]
# With the price both rewards rise, and the policy stays within ten nats of the start. Without it, the learned reward
# ends higher, on every seed. The true one rises at first, like the other. Then it falls, on most seeds, and ends on
# average far below where imitation had left it. The learned reward shows nothing of that. It is called
# **over-optimisation**: a measure that was good where it was learned becomes a target, and is driven to where it is
# wrong.
#
# Read what the policies write, on the seed that ended lowest:

# %%
lowest = int(np.argmin(ends(runs["no price"], "held_out_gold")))
print("learned    true")
for name, policy in {"imitation": start.policy, **{name: r[lowest].policy for name, r in runs.items()}}.items():
    for answer in policy.respond(asked, 4):
        print(f"{many[lowest].policy(asked, answer):7.2f}{true_reward(asked, answer):8.2f}  {name}: {answer}")

def repeats(policy):
    texts = policy.respond_all(prompts, 4, policy.generator, policy.max_tokens)
    return np.mean([len(text) - len(set(text)) for text in texts])

print("letters that come again, per answer: imitation", f"{repeats(start.policy):.1f}")
for name, results in runs.items():
    print(f"  {name:<34}", *(f"{repeats(r.policy):.1f}" for r in results))

# %% [markdown]
# It is what the picture of the judges had shown: letters that please, again and again, at least twice as many
# repetitions as with the price. PPO has found an error that the comparisons did not show, because the start hardly
# ever wrote such answers.

# %% tags=["hide-cell", "trained"]
for p, f in zip(priced, free, strict=True):
    assert min(p.quality, ends([p], "held_out_gold")[0]) > 0.6 and max(p.progress["kl_of_response"]) < 10
    assert f.quality > max(p.quality, 1) and max(f.progress["held_out_gold"][:12]) > 0.4
    assert ends([f], "kl_of_response")[0] > 1.5 * ends([p], "kl_of_response")[0]
fallen = [r.progress["held_out_gold"][-1] < min(0, max(r.progress["held_out_gold"]) - 0.5) for r in free]
assert sum(fallen) > len(fallen) / 2 and np.mean(ends(free, "held_out_gold")) < true.mean() - 0.5
often, seldom = (np.mean([repeats(r.policy) for r in results]) for results in (free, priced))
assert often > 1.5 and often > 2 * seldom and repeats(start.policy) < 1

# %% [markdown]
# ## Best of n, and DPO
#
# Two ways to use comparisons without PPO. **Best of n**: let the start answer n times, and keep what the judge likes
# best. It needs no training, and is at most $\log n - (n - 1) / n$ nats from the start. **DPO** needs no judge. The
# best policy for a reward $r$ and a price $\beta$ is known, $\pi^*(y) \propto \pi_0(y) \exp(r(y) / \beta)$. Read
# backwards, every policy is the best one for the reward $\beta \log(\pi / \pi_0)$, up to a constant that is the same
# for both answers to a prompt. Put that into the reward model's loss, and it trains the policy itself:

# %%
D = torch.randn(5, 2)                                         # log pi - log pi_0 of preferred and other answers
mine = -torch.sigmoid(0.1 * (D[:, 0] - D[:, 1])).log()
theirs = preference_loss("dpo", D, D, torch.ones(5, 2), torch.zeros(5, 2), None, Config(beta=0.1))
print("the library's loss is this one:", torch.allclose(mine, theirs))

dpo = [llm.dpo("taste", seed=seed, pairs=1000, total_steps=60, lr=2e-3, **FROM) for seed in SIZE["seeds"]]

LADDER, best = (1, 4, 16, 64, 256), []
for judge in many:
    said = np.array(judge.policy.judge(each, answers))
    chosen = {n: said.reshape(-1, n).argmax(1) + n * np.arange(len(said) // n) for n in LADDER}
    best.append([true[rows].mean() for rows in chosen.values()])

figure, (axes,) = panels(size=(6.4, 4.0))
for i, (label, results) in enumerate({"PPO, no price": free, "PPO, price 0.1": priced, "DPO": dpo}.items()):
    for k, r in enumerate(results):
        nats, gold = r.progress["kl_of_response"], r.progress.get("held_out_gold", r.progress["held_out_reward"])
        axes.plot(nats, gold, color=COLOURS[i], linestyle=LINES[i], linewidth=0.8, alpha=0.6)
        axes.plot(nats[-1], gold[-1], "sod"[i], color=COLOURS[i], label=None if k else label)
axes.plot([kl_of_best(n) for n in LADDER], np.mean(best, 0), "^-", color=COLOURS[3], label="best of 1 to 256")
axes.set(title="true reward, and how far from the start", xlabel="nats from the start", ylabel="true reward")
axes.legend(loc="lower left")
show(figure, "True reward against divergence. All methods rise to about 1 within six nats. PPO without a price goes on,"
     " farther and farther, and falls; PPO with a price, DPO and best of n end near the top.")
for name, numbers in {"best of 64, true reward": [x[3] for x in best], "best of 256, true reward": [x[4] for x in best],
                      "DPO, true reward": ends(dpo, "held_out_reward"),
                      "DPO, log-probability of preferred answers": [r.progress["logp_preferred"][0] for r in dpo],
                      "the same, at the end": ends(dpo, "logp_preferred")}.items():
    print(f"{name:<43}", *(f"{x:7.2f}" for x in numbers))

# %% [markdown]
# Near the start all ways are good: each gains most of a deviation of the true reward, or more, within ten nats. Best
# of n cannot go far, and so cannot go far wrong: 256 answers are 4.6 nats at most. DPO has no judge that it could
# outwit, and ends within a deviation of PPO with a price. It has a surprise of its own: the *preferred* answers too
# become unlikelier, on every seed. The loss sees differences only, and the probability that both answers of a pair
# lose goes to answers that were not compared.

# %% tags=["hide-cell", "trained"]
gained = {"best of 64": [x[3] for x in best], "PPO": ends(priced, "held_out_gold"), "DPO": ends(dpo, "held_out_reward")}
assert all(min(x) > true.mean() + 0.8 for x in gained.values()) and 4.5 < kl_of_best(256) < 4.6
assert max(ends(dpo, "kl_of_response")) < 10 and abs(np.mean(gained["DPO"]) - np.mean(gained["PPO"])) < 0.9
assert all(r.progress["logp_preferred"][-1] < r.progress["logp_preferred"][0] - 1 for r in dpo)
assert all(x[4] > true.mean() + 0.5 for x in best)

# %% [markdown]
# ## Break it: a worse judge
#
# The judge from 50 comparisons is right less often. One would expect it to be outwitted sooner, and worse. Without a
# price:

# %%
worse = optimise(few, 0.0)
figure, (axes,) = panels()
curves(axes, {"judge from 50": worse, "judge from 1,000": free}, "held_out_gold")
axes.set(title="PPO, no price", xlabel="updates", ylabel="true reward")
show(figure, "True reward against updates without a price, with judges from 50 and from 1,000 comparisons: on average"
     " both rise at first, and fall later.")
print("50 comparisons, true reward at best and in the end:",
      *(f"{max(r.progress['held_out_gold']):.2f} {r.progress['held_out_gold'][-1]:.2f};" for r in worse))
lower = [f < w for w, f in zip(ends(worse, "held_out_gold"), ends(free, "held_out_gold"), strict=True)]
print(f"lower in the end with the better judge: {sum(lower)} of {len(lower)} seeds")

# %% [markdown]
# On the way up that is so: the better judge leads higher, on average. In the end it is not so on every seed; the last
# line counts those on which the better judge has done more harm. Gao et al. (2022,
# [arXiv:2210.10760](https://arxiv.org/abs/2210.10760)) found with larger models that more comparisons help, and a few
# seeds of a small task do not refute that. They do show that accuracy on pairs of the start's answers says little of
# how far from the start a judge can be trusted.

# %% tags=["hide-cell", "trained"]
assert any(lower)
high, higher = (np.mean([max(r.progress["held_out_gold"]) for r in results]) for results in (worse, free))
assert high < higher

# %% [markdown]
# ## Try it
#
# 1. Which price is too low, and which too high? Try 0.02 and 0.5 for `optimise(many, ...)`, and look at the true
#    reward and at the nats.
# 2. Does a larger judge mend it? Train one with `layers=2` and `pairs=5000`, and look at `gggg` before you run PPO.
# 3. `spinup exercise start 4.2` has you write the reward model's loss, `spinup exercise start 4.3` that of DPO, and
#    `spinup exercise start 4.1` three ways to estimate a divergence.
#
# This is the last notebook. `spinup llm rlhf` does its three stages with one command, and `spinup exercise start`
# begins with the first of the exercises.
