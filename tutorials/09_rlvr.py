# %% [markdown]
# # 9. Rewards that a program can check: from REINFORCE to GRPO
#
# **You will** hold five estimates of a language model's policy gradient against the exact one, see what GRPO's two
# divisions change, train a small transformer with four methods, and watch one of them find a hole in a checker. **You
# need** the policy gradient of [notebook 2](02_policy_gradient.ipynb). **Time**: twenty minutes of reading, of which
# the computer works for one.
#
# The one choice of this notebook is its budget. `ci` takes two CPU cores less than three minutes; `cpu` trains on
# more seeds and for longer; `gpu` does the same on a GPU. The environment variable `SPINUP_BUDGET` goes before it.

# %%
BUDGET = "ci"

import math
import tempfile

import numpy as np
import torch

import llm
from llm.algos import grpo as grpo_file
from llm.algos import reinforce as reinforce_file
from llm.tasks.strings import Copy
from llm.tasks.testbed import TabularPolicy, Testbed, expectation
from spinup.core.masked import aggregate
from spinup.registry import find
from spinup.view.notebook import curves, panels, show, sizes
from spinup.view.plots import COLOURS, LINES

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "updates": 60, "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "updates": 120, "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "updates": 120, "device": "cuda"})
QUIET = {"log_dir": tempfile.mkdtemp(), "quiet": True, "tensorboard": False, "device": SIZE["device"]}

# %% [markdown]
# ## The problem
#
# A language model reads a prompt and writes a response, token after token. A program checks the response: 1 where it
# is right, 0 where it is not. Nobody shows a right one. This is **reinforcement learning with verifiable rewards**
# (RLVR): a response is an episode, its one reward comes at its end. With $\pi(y)$ the probability of a response and
# $R(y)$ its reward, what should grow is the expected share of right responses,
#
# $$J = \sum_y \pi(y) R(y).$$
#
# Its gradient is
#
# $$\nabla J = \sum_y \pi(y)\, R(y)\, \nabla \log \pi(y).$$
#
# For no real model can this sum be written out. In the language of `llm.tasks.testbed` it can: four tokens, responses
# of three, and so 64 responses. Its policy is a table of logits, and its rewards are random numbers, of which we call
# those above a threshold right. A low threshold makes an easy prompt, a high one a hard prompt.

# %%
def prompt(seed, threshold):
    """Rewards [64], log-probabilities [64], J, its gradient [84], and grad log pi of each response [64, 84]."""
    bed, policy = Testbed(seed=seed), TabularPolicy(seed=seed)
    bed.rewards = (bed.rewards > threshold).double()
    log_p = bed.log_probs(policy)
    J = bed.expected_reward(log_p)
    exact, *scores = (torch.autograd.grad(x, policy.logits, retain_graph=True)[0].flatten() for x in (J, *log_p))
    return bed.rewards, log_p.detach(), J.item(), exact, torch.stack(scores)

PROMPTS = {"easy": prompt(SIZE["seeds"][0], 0.25), "hard": prompt(SIZE["seeds"][0], 0.97)}
for name, (rewards, log_p, J, exact, scores) in PROMPTS.items():
    error = (expectation(log_p, rewards[:, None] * scores) - exact).norm()
    print(f"{name}: {J:.3f} of the responses are right; the formula differs from autograd by {error:.0e}")

# %% tags=["hide-cell"]
assert all((expectation(p, r[:, None] * s) - g).norm() < 1e-12 for r, p, J, g, s in PROMPTS.values())
assert len(rewards) == 64 and PROMPTS["easy"][2] > 0.7 and PROMPTS["hard"][2] < 0.1

# %% [markdown]
# ## Five estimates of one gradient
#
# All methods draw a **group** of $G$ responses to the same prompt, and take the mean of $A_i \nabla \log \pi(y_i)$
# over the group for the gradient. They differ in the **advantage** $A_i$:
#
# | method | $A_i$ |
# |---|---|
# | REINFORCE | $R_i - b$; the baseline $b$ is 0, or about $J$, in practice a running mean of rewards |
# | RLOO, leave one out | $R_i$ minus the mean of the *other* rewards of the group |
# | Dr. GRPO | $R_i$ minus the mean of the group |
# | GRPO | $R_i$ minus the mean of the group, divided by the group's standard deviation |
#
# RLOO's baseline does not depend on $y_i$, so it leaves the expected gradient as it is. The group's mean contains
# $R_i$ itself. That makes Dr. GRPO the same as RLOO times $(G - 1) / G$, a constant.

# %%
G = 8

def rloo(R):                                                  # [n, G] -> [n, G], a group in each row
    return R - (R.sum(1, keepdim=True) - R) / (G - 1)

def dr_grpo(R):
    return R - R.mean(1, keepdim=True)

def grpo(R):
    return dr_grpo(R) / (R.std(1, correction=0, keepdim=True) + 1e-4)

def estimate(subject, advantage, n=50_000):
    """Of `n` estimates: length of their mean and their standard deviation, where the exact gradient has length 1, the
    angle between the mean and the exact gradient in degrees, and the share of estimates that are 0."""
    rewards, log_p, J, exact, scores = subject
    drawn = torch.multinomial(log_p.exp(), n * G, True, generator=torch.Generator().manual_seed(1)).view(n, G)
    A = advantage(rewards[drawn])
    grads = torch.zeros(n, 64, dtype=A.dtype).scatter_add_(1, drawn, A) / G @ scores / exact.norm()
    mean = grads.mean(0)
    angle = torch.rad2deg(torch.cosine_similarity(mean, exact, 0).clamp(max=1).acos())
    return [x.item() for x in (mean.norm(), (grads - mean).square().sum(1).mean().sqrt(), angle,
                               (A == 0).all(1).double().mean())]

found, lines = {}, []
for name, subject in PROMPTS.items():
    lines.append(f"{name + ' prompt':<20}mean   noise   angle   zeros")
    for method, advantage in {"REINFORCE, b = 0": lambda R: R, "REINFORCE, b = J": lambda R, J=subject[2]: R - J,
                              "RLOO": rloo, "Dr. GRPO": dr_grpo, "GRPO": grpo}.items():
        found[name, method] = estimate(subject, advantage)
        lines.append("  {:<17}{:5.2f}{:8.1f}{:7.1f}°{:8.2f}".format(method, *found[name, method]))
print(*lines, sep="\n")

# %% [markdown]
# The unit of `mean` and `noise` is the length of the exact gradient; `noise` is the standard deviation of one
# estimate.
#
# **Bias.** On average REINFORCE and RLOO are right, Dr. GRPO is an eighth too short, and GRPO more than twice too
# long. All point where the exact gradient points. **Noise.** Even the best estimate from eight responses is farther
# from the truth than the truth is long. Where most responses are right, a baseline more than halves the noise:
# without one, a right response is praised as if it were rare. Where hardly any is right, there is little to take off.
# RLOO, which has to estimate its baseline, is a little noisier than a known $J$. And GRPO's noise is larger by the
# same factor as its mean: for one prompt, the division by the deviation changes the length of the step and nothing
# else.
#
# **Groups without contrast.** Where all responses of a group earn the same, every advantage is 0, and the group
# teaches nothing. Of the hard prompt's groups that are two in three.

# %% tags=["hide-cell"]
R = PROMPTS["easy"][0][torch.randint(64, (1000, G), generator=torch.Generator().manual_seed(0))]
theirs = [grpo_file.group_advantage(R.flatten(), G, scale) for scale in ("mean", "group")]
for mine, their in zip((dr_grpo(R), grpo(R), rloo(R), rloo(R) * (G - 1) / G),
                       (*theirs, reinforce_file.leave_one_out(R.flatten(), G), theirs[0]), strict=True):
    assert torch.allclose(mine.flatten(), their, atol=1e-12)
for name in PROMPTS:
    size, noise, angle, zeros = zip(*(found[name, method] for _, method in list(found)[:5]), strict=True)
    assert all(abs(x - 1) < 0.1 for x in (*size[:3], size[3] * 8 / 7)) and 2 < size[4] < 2.9 and max(angle) < 4
    assert min(noise) > 1 and noise[1] < noise[2] < 1.2 * noise[1]
    assert abs(noise[4] / size[4] / (noise[2] / size[2]) - 1) < 0.05
    assert noise[0] > 2 * noise[1] if name == "easy" else 1 < noise[0] / noise[1] < 1.1 and 0.6 < zeros[2] < 0.72

# %% [markdown]
# ## What dividing by the deviation changes
#
# A batch has many prompts, and then lengths matter: they say how much each prompt weighs. Let $p$ be the share of
# right responses to a prompt. If $k$ of a group are right, its deviation is $s_k = \sqrt{k (G - k)} / G$, and GRPO's
# expected gradient is that of RLOO times
#
# $$c(p) = \frac{\mathbb{E}[s_k]}{p (1 - p)}, \qquad k \sim \mathrm{Binomial}(G, p).$$
#
# The line is this formula; the points are measured, for five thresholds on each of three testbeds.

# %%
def weight(p, G):
    chances = [math.comb(G, k) * p**k * (1 - p)**(G - k) for k in range(G + 1)]
    return sum(chance * math.sqrt(k * (G - k)) / G for k, chance in enumerate(chances)) / p / (1 - p)

subjects = [prompt(seed, threshold) for seed in SIZE["seeds"][:3] for threshold in (0.2, 0.4, 0.6, 0.8, 0.9)]
methods = {"RLOO": (rloo, lambda p: 1), "Dr. GRPO": (dr_grpo, lambda p: 7 / 8), "GRPO": (grpo, lambda p: weight(p, G))}
points = {method: [(s[2], estimate(s, f, 20_000)[0]) for s in subjects] for method, (f, _) in methods.items()}

figure, (axes,) = panels()
p = np.linspace(0.002, 0.998, 250)
for i, (method, (_, formula)) in enumerate(methods.items()):
    axes.plot(p, [formula(x) for x in p], color=COLOURS[i], linestyle=LINES[i], label=method)
    axes.scatter(*zip(*points[method], strict=True), color=COLOURS[i], marker="osD"[i], s=18)
axes.set(title="what a prompt weighs, groups of eight", xlabel="share of right responses to it",
         ylabel="expected gradient, in exact ones", ylim=(0, 2.8))
axes.legend(loc="center")
show(figure, "Expected gradient against the share of right responses: RLOO is flat at 1, Dr. GRPO at seven eighths,"
     " GRPO is a valley from 2.6 at the edges to 1.9 in the middle. The measured points lie on the lines.")
print("a prompt with 1 in 100 right weighs, beside one with half:",
      *(f"{weight(0.01, n) / weight(0.5, n):.1f} times as much in groups of {n}" for n in (8, 64)), sep="\n  ")

# %% [markdown]
# GRPO climbs something else than $J$: prompts that are nearly never or nearly always solved weigh more. In groups of
# 8 that is less than one and a half times, in groups of 64 about three times the weight of the middle. It is a bias;
# whether it harms is another question. More weight for hard prompts may be wanted. All but solved ones get the same.
#
# ## What dividing by the length changes
#
# The published GRPO also divides what each response adds by its number of tokens; Dr. GRPO divides by a constant. To
# see that difference alone, take a language of three tokens, of which token 2 ends the response, and call a response
# right if it begins with token 0. Its length has nothing to do with its reward. The policy climbs by the *exact*
# expected gradient, once with each division.

# %%
def climb(mode, length=6, updates=200):
    """J, and the mean length of responses that begin with 0 and of those that begin with 1, `[updates, 3]`."""
    bed, policy, rows = Testbed(3, length), TabularPolicy(3, length, scale=0.0), []
    ends, first = bed.sequences == 2, bed.sequences[:, 0]
    mask = (ends.cumsum(1) - ends.long() == 0).double()       # up to the first 2, and that too
    R, lengths = (first == 0).double(), mask.sum(1)
    for _ in range(updates):
        logp = bed.logp(policy, bed.sequences)
        p = logp.sum(1).exp().detach()
        rows.append([p @ R, *((p * lengths)[first == i].sum() / p[first == i].sum() for i in (0, 1))])
        loss = aggregate(-logp * (p * (R - p @ R))[:, None], mask, mode=mode, denominator=1, length=length)
        with torch.no_grad():
            policy.logits -= torch.autograd.grad(loss, policy.logits)[0] * (length if mode == "constant" else 1)
    return np.array(rows)

by_length, by_constant = climb("sequence"), climb("constant")
figure, (axes,) = panels()
for i, (name, rows) in enumerate({"its own length": by_length, "a constant": by_constant}.items()):
    for column, answers, marker in ((1, "right", "o"), (2, "wrong", "x")):
        axes.plot(rows[:, column], color=COLOURS[i], linestyle=LINES[i], marker=marker, markevery=40,
                  label=f"{answers}, divided by {name}")
axes.set(title="length of responses", xlabel="updates", ylabel="tokens, mean", ylim=(3, 4.7))
axes.legend(loc="upper left")
show(figure, "Mean length against updates. Divided by a constant, right and wrong responses keep their 3.6 tokens;"
     " divided by their own length, right ones fall to 3.2 and wrong ones rise to 3.8.")
print(f"right in the end: {by_length[-1, 0]:.2f} (own length), {by_constant[-1, 0]:.2f} (constant)")

# %% [markdown]
# Nearly all responses become right, with both. Divided by a constant, lengths stay exactly as they were. Divided by
# its own length, a right response is rewarded the more per token the shorter it is, and a wrong one punished the less
# the longer it is. So right responses become shorter and wrong ones longer, though no reward asks for either.

# %% tags=["hide-cell"]
assert all(abs(size / methods[m][1](J) - 1) < 0.15 for m in methods for J, size in points[m])
assert all(2.6 < weight(x, 8) < 2.65 for x in (0.002, 0.998)) and 1.8 < weight(0.5, 8) < 1.95
assert all(1.3 < weight(x, 8) / weight(0.5, 8) < 1.5 and 2.5 < weight(x, 64) / weight(0.5, 64) < 3.5
           for x in (0.01, 0.99)) and max(weight(x, 8) for x in p) < 1.5 * weight(0.5, 8)
assert min(by_length[-1, 0], by_constant[-1, 0]) > 0.95 and np.ptp(by_constant[:, 1:]) < 1e-9
assert 3.6 < by_constant[0, 1] < 3.61 and by_length[-1, 1] < 3.25 and by_length[-1, 2] > 3.75

# %% [markdown]
# ## Four methods on a transformer
#
# Now a model whose responses nobody can list. A transformer of one layer is to write six letters once more. It has
# imitated right answers until about a third of its own were right. Here is one group of its responses, and what three
# methods make of it.

# %%
SMALL = {"layers": 1, "width": 32, "held_out": 128}
starts = {seed: llm.sft("copy", seed=seed, stop_accuracy=0.3, **SMALL, **QUIET) for seed in SIZE["seeds"]}

asked = "abcabc>"
responses = starts[SIZE["seeds"][0]].policy.respond(asked, G)
R = torch.tensor([[float(response == asked[:-1]) for response in responses]])
print("response   reward    RLOO  Dr. GRPO    GRPO")
for row in zip(responses, R[0], rloo(R)[0], dr_grpo(R)[0], grpo(R)[0], strict=True):
    print("{:<10}{:7.0f}{:8.2f}{:10.2f}{:8.2f}".format(*row))

# %% [markdown]
# From here on each method learns from rewards alone: 16 prompts with eight responses each in an update, the same
# start, the same step size. The losses are those of `spinup`: REINFORCE and RLOO import `policy_gradient` from
# `spinup/algos/vpg.py`, GRPO and Dr. GRPO import `clipped_surrogate` from `spinup/algos/ppo.py`. With one step per
# batch the ratio in the latter is 1, and its clip does nothing.

# %%
LEARN = {"prompts": 16, "lr": 5e-3, "warmup": 20, **SMALL, **QUIET}
learned = {label: [method("copy", seed=seed, model=str(start.directory), total_steps=SIZE["updates"], **LEARN)
                   for seed, start in starts.items()]
           for label, method in {"REINFORCE": llm.reinforce, "RLOO": llm.rloo, "GRPO": llm.grpo,
                                 "Dr. GRPO": llm.dr_grpo}.items()}

figure, (left, right) = panels(2)
curves(left, learned, "held_out_accuracy")
left.set(title="copying six letters", xlabel="updates", ylabel="share of right answers", ylim=(0, 1))
curves(right, learned, "no_contrast")
right.set(title="groups that teach nothing", xlabel="updates", ylabel="share without contrast", ylim=(0, 1))
show(figure, "Left: the share of right answers rises with all four methods from about a third to about nine tenths, the"
     " curves close together. Right: the share of groups without contrast rises from near 0.")
for label, results in learned.items():
    print(f"{label:<10}", *(f"{result.quality:.3f}" for result in results))

# %% [markdown]
# All four learn it, on every seed. Their means end within a tenth of each other: what is left between them is too
# small for so few seeds. The differences measured above are real, but here prompts are about equally hard, right
# answers equally long, and Adam divides a constant factor out of the gradient again.
#
# The right picture is the price of success: as the policy gets better, more and more groups are right throughout and
# have no contrast. `llm.dapo` draws new prompts in their place.

# %% tags=["hide-cell"]
from spinup.algos.ppo import clipped_surrogate
from spinup.algos.vpg import policy_gradient

assert grpo_file.clipped_surrogate is clipped_surrogate and reinforce_file.policy_gradient is policy_gradient

# %% tags=["hide-cell", "trained"]
assert all(max(r.progress["clip_fraction"]) == 0 for r in learned["GRPO"] + learned["Dr. GRPO"])
assert all(0.2 < start.quality < 0.5 for start in starts.values()) and find("llm dapo").settings["draws"] > 1
for results in learned.values():
    assert all(0.2 < r.progress["held_out_accuracy"][0] < 0.5 and r.quality > 0.75 for r in results)
    share = np.mean([r.progress["no_contrast"] for r in results], 0)
    assert share[:5].mean() < 0.12 < 0.15 < share[-5:].mean()
assert np.ptp([np.mean([r.quality for r in results]) for results in learned.values()]) < 0.1

# %% [markdown]
# ## Break it: a start that is never right, and a checker with a hole
#
# Take a start that has imitated for 80 updates only. It writes letters and knows nearly nothing of copying: the check
# of whole answers says 0 to everything. A usual remedy is partial credit. The checker `in_place` pays for each letter
# that stands where it should.

# %%
def in_place(prompt, response):
    wanted = prompt[:-1]
    return sum(a == b for a, b in zip(wanted, response, strict=False)) / len(wanted)

def exact_share(policy, n=200):
    problems = Copy().problems(n, np.random.default_rng(7), held_out=True)
    texts = policy.respond_all([p.prompt for p in problems], 1, policy.generator, policy.max_tokens)
    return np.mean([text == p.answer for text, p in zip(texts, problems, strict=True)])

weak = {seed: str(llm.sft("copy", seed=seed, total_steps=80, **SMALL, **QUIET).directory) for seed in SIZE["seeds"]}
whole = [llm.dr_grpo("copy", seed=seed, model=model, total_steps=20, **LEARN) for seed, model in weak.items()]
partial = [llm.dr_grpo("copy", seed=seed, model=model, reward=in_place, total_steps=150, **LEARN)
           for seed, model in weak.items()]
truth = {"whole answers": [exact_share(r.policy) for r in whole], "letters": [exact_share(r.policy) for r in partial]}

figure, (axes,) = panels()
curves(axes, {"says the checker": partial}, "held_out_accuracy")
axes.plot([150] * len(partial), truth["letters"], "x", color=COLOURS[1], markersize=9, label="the truth, at the end")
axes.set(title="paid for letters in their places", xlabel="updates", ylabel="share of right answers",
         ylim=(-0.05, 1.05))
axes.legend(loc="upper left")
show(figure, "The share of right answers as the checker counts them rises from 0 to about nine tenths. Crosses at the"
     " end show the true share: 0.")
for name, results in {"whole answers": whole, "letters": partial}.items():
    print(f"paid for {name}: the checker counts", *(f"{r.quality:.2f}" for r in results), " right, in truth",
          *(f"{x:.2f}" for x in truth[name]))
print(asked, *partial[0].policy.respond(asked, 6), " cut off:", *(f"{r.progress['cut_off'][-1]:.2f}" for r in partial))

# %% [markdown]
# Paid for whole answers, next to no group has contrast, and nothing is learned. Paid for letters, the curve rises on
# every seed, as nicely as one could wish. And hardly any answer is right: read them. The policy writes the six
# letters, and then a seventh. `in_place` looks at six places and never behind them. To end too early costs letters,
# to go on costs nothing, so the policy has unlearned to end.
#
# This is **reward hacking**: a policy learns what the checker checks, not what was meant. No number that the checker
# makes can show it. Reading answers does, and here `cut_off`, the share of answers that ran into the limit of their
# length.

# %% tags=["hide-cell", "trained"]
assert all(np.mean(r.progress["no_contrast"]) > 0.97 and r.quality < 0.05 for r in whole)
for r in partial:
    assert r.progress["held_out_accuracy"][0] < 0.1 and r.quality > 0.6
    assert r.progress["cut_off"][0] < 0.8 and r.progress["cut_off"][-1] > 0.9
    assert np.mean([len(text) == 7 for text in r.policy.respond(asked, 20)]) > 0.85
assert np.mean([r.quality for r in partial]) > 0.75 and max(map(max, truth.values())) < 0.05

# %% [markdown]
# ## Try it
#
# 1. Close the hole: let `in_place` pay only for answers of six letters. Is the true share still 0? Does it rise as
#    fast as what the checker counted here?
# 2. Draw groups of 2 and of 32 responses. What becomes of the noise, of GRPO's weights, of groups without contrast?
# 3. `spinup exercise start 4.4` has you write the advantages of groups, `spinup exercise start 5.6` find a bias
#    towards long answers.
#
# **Next**: [10. From imitation to RLHF, and over-optimisation](10_rlhf.ipynb).
