# %% [markdown]
# # 10. From imitation to RLHF, and over-optimisation
#
# **You will** train a small language model through all stages of RLHF: supervised fine-tuning, a
# reward model, and PPO. You see what happens to the true reward while PPO maximises a learned one,
# and compare PPO with best-of-n and DPO. **You need** [notebook 9](09_rlvr.ipynb). It helps to know
# PPO. **Time**: twenty minutes. The code runs for one or two minutes.
#
# You choose the budget in the first line of the next cell. With `ci`, the notebook needs less than
# three minutes on two CPU cores. `cpu` trains on more seeds, and `gpu` does the same on a GPU. If
# the environment variable `SPINUP_BUDGET` is set, it overrides `BUDGET`.

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
from spinup.runs.curve import COLOURS, LINES
from spinup.view.notebook import curves, panels, show, sizes

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "device": "cuda"})
QUIET = {"log_dir": tempfile.mkdtemp(), "quiet": True, "tensorboard": False,
         "device": SIZE["device"]}

# %% [markdown]
# ## A task with a known true reward
#
# No program can check whether a summary is good. But people can say which of two summaries they
# prefer. **Reinforcement learning from human feedback** (RLHF) learns a reward from such
# comparisons, and then trains a policy with that reward. The result is only as good as the learned
# reward. With real people, no one knows the true reward.
#
# In the task `taste`, the true reward is known. A prompt such as `bfe>` asks for these letters, and
# a response is any line of letters. A hidden reader has a taste:
#
# - It likes four of the eight letters and dislikes the others.
# - It likes a letter a little more if the prompt asks for it.
# - It strongly dislikes a letter that is repeated.
#
# The demonstrations come from a teacher that does not know this taste and writes at random. The
# true reward is scaled to mean 0 and standard deviation 1 over the responses of the teacher.

# %%
task, rng = Taste(), np.random.default_rng(0)

def true_reward(prompt, answer):
    return task.reward(Problem(prompt), answer)

asked = "bfe>"
demonstrations = [task.demonstration(Problem(asked), rng) for _ in range(4)]
for answer in demonstrations + ["gcde", "g", "gg", "ggg"]:
    print(f"{asked} {answer:<7}{true_reward(asked, answer):6.2f}")

# %% tags=["hide-cell"]
shown = [true_reward(p.prompt, task.demonstration(p, rng))
         for p in task.problems(2000, rng)]
assert abs(np.mean(shown)) < 0.1 and abs(np.std(shown) - 1) < 0.1
assert len(task.pleasing) == 4 and task.letters == 8

# %% [markdown]
# ## Stage 1: supervised fine-tuning
#
# **Supervised fine-tuning** (SFT) trains a transformer with one layer to imitate the teacher. The
# mean true reward of the trained model is lower than the teacher's. This model is the
# initial policy of all later stages. The seeds differ only in these later stages.

# %%
SMALL = {"layers": 1, "width": 32, "held_out": 64}
start = llm.sft("taste", seed=SIZE["seeds"][0], total_steps=500, batch=64,
                demonstrations=3000, **SMALL, **QUIET)
FROM = {"model": str(start.directory), **SMALL, **QUIET}

PROMPTS, ANSWERS = 64, 256
prompts = [p.prompt for p in task.problems(PROMPTS, rng, held_out=True)]
answers = start.policy.respond_all(prompts, ANSWERS, start.policy.generator,
                                   start.policy.max_tokens)
each = [prompt for prompt in prompts for _ in range(ANSWERS)]
true = np.array([true_reward(*both) for both in zip(each, answers, strict=True)])
print(f"true reward after SFT: mean {true.mean():.2f},"
      f" standard deviation {true.std():.2f}")
print("some responses:", *answers[:8])

# %% tags=["hide-cell", "trained"]
assert -0.9 < true.mean() < 0.05 and 0.8 < true.std() < 1.6

# %% [markdown]
# ## Stage 2: a reward model
#
# The initial policy writes two responses to each of many prompts. The reader says which one it
# prefers. The model of Bradley and Terry gives each response $y$ to a prompt $x$ a reward
# $r(x, y)$. The reader prefers response $w$ to response $l$ with probability
# $\sigma(r(x, w) - r(x, l))$. We maximise the likelihood of the observed choices, so the loss of
# one comparison is
#
# $$L = -\log \sigma\big(r(x, w) - r(x, l)\big).$$
#
# - $w$ is the chosen response, and $l$ is the rejected one.
# - $\sigma(z) = 1 / (1 + e^{-z})$ is the logistic function.
#
# The reward model is a copy of the policy with one number as its output. After training, its reward
# is scaled to mean 0 and standard deviation 1 over responses of the initial policy. The next cell
# trains reward models on 50 comparisons and on 1,000. On held-out pairs, a reward model should give
# the higher reward to the chosen response. Its accuracy is the share of pairs in which it does.
# Guessing has an accuracy of one half.

# %%
won, lost = torch.randn(2, 5)
print("the library's loss equals this formula:",
      torch.allclose(bradley_terry(won, lost), -torch.sigmoid(won - lost).log()))

judges = {pairs: [llm.reward_model("taste", seed=seed, pairs=pairs, total_steps=60,
                                   batch=64, lr=2e-3, **FROM)
                  for seed in SIZE["seeds"]] for pairs in (50, 1000)}
few, many = judges.values()

times = range(1, 7)
figure, (left, right) = panels(2)
curves(left, {f"{pairs:,} comparisons": runs for pairs, runs in judges.items()},
       "pair_accuracy")
left.set(title="accuracy on held-out pairs", xlabel="updates",
         ylabel="share ranked correctly", ylim=(0.4, 1))
right.plot(times, [true_reward(asked, "g" * n) for n in times], color="#444444",
           label="true")
for i, (pairs, runs) in enumerate(judges.items()):
    said = np.array([[run.policy(asked, "g" * n) for n in times] for run in runs])
    look = {"color": COLOURS[i], "linestyle": LINES[i]}
    right.plot(times, said.T, linewidth=1, alpha=0.4, **look)
    right.plot(times, said.mean(0), linewidth=2, label=f"learned from {pairs:,}",
               **look)
right.set(title="reward of the responses g, gg, ggg, ...", xlabel="number of letters",
          ylabel="reward")
right.legend(loc="lower left")
show(figure, "Left: accuracy on held-out pairs rises to about .7 with 50 comparisons"
     " and above .8 with 1,000. Right: the true reward falls steeply with each"
     " repetition, and the learned rewards do not.")
for pairs, runs in judges.items():
    print(f"{pairs:>5} comparisons: accuracy",
          *(f"{run.quality:.3f}" for run in runs))

# %% [markdown]
# More comparisons make a better reward model, on every seed. With 50 comparisons, it ranks about
# two pairs in three correctly. With 1,000, it ranks more than three in four correctly.
#
# The right plot tests responses that the initial policy almost never writes: one letter that the
# reader likes, repeated. For the reader, each repetition makes the response worse, and `gggg` is
# worse than nearly all responses of the initial policy. On every seed, the reward model from 1,000
# comparisons rates `gggg` above the average response. The comparisons contained almost no such
# response.

# %% tags=["hide-cell", "trained"]
assert 0.6 < np.mean([f.quality for f in few]) < 0.74
assert 0.77 < np.mean([m.quality for m in many]) < 0.9
assert all(m.quality > f.quality + 0.02 for f, m in zip(few, many, strict=True))
assert all(true_reward(asked, "g" * (n + 1)) < true_reward(asked, "g" * n) - 0.5
           for n in times)
assert np.mean(true < true_reward(asked, "gggg")) < 0.1
assert all(m.policy(asked, "gggg") > 0.3 for m in many)
assert np.mean([len(a) >= 4 and len(set(a)) == 1 for a in answers]) < 0.01

# %% [markdown]
# ## Stage 3: PPO with a KL penalty
#
# PPO uses the number from the reward model as the reward of a whole response. In addition, each
# token has a reward of its own, the KL penalty. It penalises the policy for moving away from the
# reference policy. The reward of token $t$ is
#
# $$r_t = -\beta \log \frac{\pi(y_t \mid s_t)}{\pi_0(y_t \mid s_t)} + [\,t \text{ is last}\,]\, r(x,
# y).$$
#
# - $y_t$ is the token, and $s_t$ is the prompt with all tokens before it.
# - $\pi$ is the policy. $\pi_0$ is the reference policy, which here is the initial policy.
# - $\beta$ is the KL coefficient, `kl_coef` in the code.
# - $[\,t \text{ is last}\,]$ is 1 for the last token of the response, and 0 for the others.
# - $r(x, y)$ is the learned reward of the whole response $y$ to the prompt $x$.
#
# Sum the log ratios over the tokens of a response. The expected value of this sum, over responses
# of the policy, is the **KL divergence** $\mathrm{KL}(\pi, \pi_0)$. The KL divergence measures how
# far the policy has moved from the reference policy. Its unit is the nat, because the logarithm is
# natural. The penalty keeps the policy where the reward model has seen training data. The next cell
# trains with $\beta = 0.1$ and without a penalty. The unit of the learned reward is the standard
# deviation over responses of the initial policy. The unit of the true reward is the standard
# deviation over responses of the teacher.

# %%
def optimise(judges, kl_coef):
    return [llm.ppo("taste", seed=seed, reward=str(judge.directory), kl_coef=kl_coef,
                    prompts=64, minibatches=2, total_steps=60, **FROM)
            for seed, judge in zip(SIZE["seeds"], judges, strict=True)]

runs = {"KL penalty 0.1": optimise(many, 0.1), "no KL penalty": optimise(many, 0.0)}
penalised, free = runs.values()

COLUMNS = {"learned reward": "held_out_reward", "true reward": "held_out_gold"}
figure, both = panels(2)
for axes, (name, results) in zip(both, runs.items(), strict=True):
    curves(axes, {label: [{"steps": r.progress["steps"], "reward": r.progress[column]}
                          for r in results] for label, column in COLUMNS.items()},
           "reward")
    axes.set(title=f"PPO, {name}", xlabel="updates", ylabel="reward", ylim=(-6, 3))
    axes.legend(loc="lower left")
show(figure, "Left, with a KL penalty: both rewards rise and remain high. Right,"
     " without: the learned reward rises a little higher. The true reward rises at"
     " first and then falls, on average far below its initial value.")

def ends(results, column):
    return [r.progress[column][-1] for r in results]

for name, results in runs.items():
    for label, column in {**COLUMNS, "KL divergence": "kl_of_response"}.items():
        numbers = (f"{x:6.2f}" for x in ends(results, column))
        print(f"{name:<15} {label:<15}", *numbers)

# %% [markdown]
# With the KL penalty, both rewards rise, and the policy stays within ten nats of the initial
# policy. Without it, the learned reward ends higher on every seed. The true reward rises at first
# too, but then falls on most seeds. On average it ends far below the value after SFT, and the
# learned reward does not show this.
#
# The effect is called **over-optimisation**. A measure that was accurate on its training data
# becomes a target. The policy then moves to responses on which the measure is wrong.
#
# Read what the policies write, on the seed with the lowest true reward:

# %%
lowest = int(np.argmin(ends(runs["no KL penalty"], "held_out_gold")))
print("learned    true")
policies = {"SFT": start.policy}
policies |= {name: results[lowest].policy for name, results in runs.items()}
for name, policy in policies.items():
    for answer in policy.respond(asked, 4):
        learned = many[lowest].policy(asked, answer)
        print(f"{learned:7.2f}{true_reward(asked, answer):8.2f}  {name}: {answer}")

def repeats(policy):
    texts = policy.respond_all(prompts, 4, policy.generator, policy.max_tokens)
    return np.mean([len(text) - len(set(text)) for text in texts])

print(f"repeated letters per response:\n  {'SFT':<16}{repeats(start.policy):.1f}")
for name, results in runs.items():
    print(f"  {name:<15}", *(f"{repeats(r.policy):.1f}" for r in results))

# %% [markdown]
# The responses confirm the plot of the reward models. Without the KL penalty, the policy repeats
# letters at least twice as often as with it. PPO has found an error of the reward model. The
# comparisons could not show this error, because the initial policy almost never wrote such
# responses.

# %% tags=["hide-cell", "trained"]
for p, f in zip(penalised, free, strict=True):
    assert min(p.quality, ends([p], "held_out_gold")[0]) > 0.6
    assert max(p.progress["kl_of_response"]) < 10
    assert f.quality > max(p.quality, 1)
    assert max(f.progress["held_out_gold"][:12]) > 0.4
    assert ends([f], "kl_of_response")[0] > 1.5 * ends([p], "kl_of_response")[0]
golds = [r.progress["held_out_gold"] for r in free]
fallen = [gold[-1] < min(0, max(gold) - 0.5) for gold in golds]
assert sum(fallen) > len(fallen) / 2
assert np.mean(ends(free, "held_out_gold")) < true.mean() - 0.5
often, seldom = (np.mean([repeats(r.policy) for r in results])
                 for results in (free, penalised))
assert often > 1.5 and often > 2 * seldom and repeats(start.policy) < 1

# %% [markdown]
# ## Best-of-n and DPO
#
# Two methods use comparisons without PPO. **Best-of-n** samples $n$ responses from the initial
# policy and keeps the one with the highest learned reward. It needs no further training. Its KL
# divergence from the initial policy is at most $\log n - (n - 1) / n$ nats.
#
# **Direct preference optimization** (DPO) needs no reward model. For a reward $r$ and a KL
# coefficient $\beta$, the optimal policy is known:
#
# $$\pi^*(y) \propto \pi_0(y) \exp(r(y) / \beta),$$
#
# where $\pi_0$ is the reference policy and $y$ a response. Conversely, every policy $\pi$ is
# optimal for the reward $\beta \log(\pi / \pi_0)$, up to a constant that is equal for both
# responses to a prompt. DPO puts this reward into the loss of the reward model. Then the loss
# trains the policy itself:

# %%
D = torch.randn(5, 2)                # log pi - log pi_0 of chosen, rejected responses
mine = -torch.sigmoid(0.1 * (D[:, 0] - D[:, 1])).log()
theirs = preference_loss("dpo", D, D, torch.ones(5, 2), torch.zeros(5, 2), None,
                         Config(beta=0.1))
print("the library's loss equals this formula:", torch.allclose(mine, theirs))

dpo = [llm.dpo("taste", seed=seed, pairs=1000, total_steps=60, lr=2e-3, **FROM)
       for seed in SIZE["seeds"]]

LADDER, best = (1, 4, 16, 64, 256), []
for judge in many:
    said = np.array(judge.policy.judge(each, answers))
    chosen = {n: said.reshape(-1, n).argmax(1) + n * np.arange(len(said) // n)
              for n in LADDER}
    best.append([true[rows].mean() for rows in chosen.values()])

figure, (axes,) = panels(size=(6.4, 4.0))
shown = {"PPO, no KL penalty": free, "PPO, KL penalty 0.1": penalised, "DPO": dpo}
for i, (label, results) in enumerate(shown.items()):
    for k, r in enumerate(results):
        nats = r.progress["kl_of_response"]
        gold = r.progress.get("held_out_gold", r.progress["held_out_reward"])
        axes.plot(nats, gold, color=COLOURS[i], linestyle=LINES[i], linewidth=0.8,
                  alpha=0.6)
        axes.plot(nats[-1], gold[-1], "sod"[i], color=COLOURS[i],
                  label=None if k else label)
axes.plot([kl_of_best(n) for n in LADDER], np.mean(best, 0), "^-", color=COLOURS[3],
          label="best of 1 to 256")
axes.set(title="true reward against KL divergence",
         xlabel="KL divergence from the initial policy (nats)", ylabel="true reward")
axes.legend(loc="lower left")
show(figure, "True reward against KL divergence. All methods rise to about 1 within"
     " six nats. PPO without a KL penalty moves farther and falls. PPO with a KL"
     " penalty, DPO and best-of-n end near the top.")
rows = {"best of 64, true reward": [x[3] for x in best],
        "best of 256, true reward": [x[4] for x in best],
        "DPO, true reward": ends(dpo, "held_out_reward"),
        "DPO, log-probability of chosen responses":
            [r.progress["logp_chosen"][0] for r in dpo],
        "the same, at the end of training": ends(dpo, "logp_chosen")}
for name, numbers in rows.items():
    print(f"{name:<43}", *(f"{x:7.2f}" for x in numbers))

# %% [markdown]
# Near the initial policy, all methods work. Within ten nats, best of 64, PPO with the KL penalty
# and DPO each raise the true reward by at least .8. Best-of-n cannot move far, so it cannot go far
# wrong: with 256 responses its KL divergence is at most 4.6 nats. DPO has no reward model that it
# could exploit. Its true reward ends within .9 of that of PPO with a KL penalty.
#
# DPO has a surprising effect: even the *chosen* responses become less likely, on every seed. The
# loss depends only on the difference between the two responses, so it can fall even while both of
# them become less likely. Other responses then become more likely.

# %% tags=["hide-cell", "trained"]
gained = {"best of 64": [x[3] for x in best], "PPO": ends(penalised, "held_out_gold"),
          "DPO": ends(dpo, "held_out_reward")}
assert all(min(x) > true.mean() + 0.8 for x in gained.values())
assert 4.5 < kl_of_best(256) < 4.6
assert max(ends(dpo, "kl_of_response")) < 10
assert abs(np.mean(gained["DPO"]) - np.mean(gained["PPO"])) < 0.9
logps = [r.progress["logp_chosen"] for r in dpo]
assert all(logp[-1] < logp[0] - 1 for logp in logps)
assert all(x[4] > true.mean() + 0.5 for x in best)

# %% [markdown]
# ## Break it: a worse reward model
#
# The reward model from 50 comparisons is less accurate, so you would expect the true reward to have
# a lower peak and a lower value at the end. The next cell trains without a KL penalty:

# %%
worse = optimise(few, 0.0)
figure, (axes,) = panels()
curves(axes, {"50 comparisons": worse, "1,000 comparisons": free}, "held_out_gold")
axes.set(title="PPO, no KL penalty", xlabel="updates", ylabel="true reward")
show(figure, "True reward against updates without a KL penalty, with reward models"
     " from 50 and from 1,000 comparisons. On average, both rise at first and fall"
     " later.")
golds = [r.progress["held_out_gold"] for r in worse]
print("50 comparisons, highest and final true reward:",
      *(f"{max(gold):.2f} {gold[-1]:.2f};" for gold in golds))
finals = zip(ends(worse, "held_out_gold"), ends(free, "held_out_gold"), strict=True)
lower = [f < w for w, f in finals]
print("final true reward lower with the better reward model:"
      f" {sum(lower)} of {len(lower)} seeds")

# %% [markdown]
# One part of this expectation is correct: on average, the better reward model leads to a higher
# peak. The other part fails on some seeds: the true reward ends lower with the better reward model.
# The last line counts these seeds.
#
# Gao et al. (2022, [arXiv:2210.10760](https://arxiv.org/abs/2210.10760)) found with larger models
# that more comparisons help. A few seeds of a small task do not refute this finding. They show
# something else: the accuracy of a reward model on responses of the initial policy says little
# about how far from this policy you can trust the reward model.

# %% tags=["hide-cell", "trained"]
assert any(lower)
high, higher = (np.mean([max(r.progress["held_out_gold"]) for r in results])
                for results in (worse, free))
assert high < higher

# %% [markdown]
# ## Try it
#
# 1. Which KL coefficient is too low, and which is too high? Try 0.02 and 0.5 in
#    `optimise(many, ...)`, and look at the true reward and the KL divergence.
#
#    <details><summary>Answer</summary>
#
#    In one check on three seeds, 0.02 was too low. The learned reward was higher than with 0.1, but
#    the true reward ended at .9 to 1.1 instead of 1.4 to 1.5. The KL divergence was 6 to 8 nats. A
#    coefficient of 0.5 was too high: the policy moved less than one nat, and the true reward ended
#    at .5 to .6.
#
#    </details>
#
# 2. Does a larger reward model with more comparisons help? Make `LARGE = {**SMALL, "layers": 2}`,
#    and train a second SFT model with `LARGE`. A reward model is a copy of the SFT model, so train the
#    reward model from it, also with `LARGE`, and with `pairs=5000`. Look at its reward for
#    `gggg` before you run PPO.
#
#    <details><summary>Answer</summary>
#
#    It does not remove the error. In one check on three seeds, the accuracy was .84 to .87, and the
#    reward of `gggg` was still 1.2 to 1.5. PPO without a KL penalty ended at a true reward of -.6,
#    .7 and -1.1. The comparisons still contain almost no repeated letters, so the reward model
#    cannot learn that the reader dislikes them this much.
#
#    </details>
#
# 3. In the folder of your exercises, `spinup exercise start 4.2` asks you to write the loss of the
#    reward model, and `spinup exercise start 4.3` the loss of DPO. `spinup exercise start 4.1` asks
#    for three estimators of a KL divergence.
#
# `spinup llm rlhf` runs the three stages of this notebook with one command.
#
# **Next**: [11. Reinforcement learning on a real language model](11_real_model.ipynb).
