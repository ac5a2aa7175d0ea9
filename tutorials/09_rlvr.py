# %% [markdown]
# # 9. Verifiable rewards: from REINFORCE to GRPO
#
# **You will** compare five estimates of a language model's policy gradient with the exact gradient.
# You see the effect of GRPO's divisions by the standard deviation and by the length, and train a
# small transformer with four methods. Then you watch a method exploit a flaw in a verifier. **You
# need** the policy gradient of [notebook 2](02_policy_gradient.ipynb). **Time**: twenty minutes.
# The code runs for about one minute.
#
# You choose the budget in the first line of the next cell. With `ci`, the notebook needs less than
# three minutes on two CPU cores. `cpu` trains longer and on more seeds, and `gpu` does the same on
# a GPU. If the environment variable `SPINUP_BUDGET` is set, it overrides `BUDGET`.

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
from spinup.runs.curve import COLOURS, LINES
from spinup.view.notebook import curves, panels, show, sizes

SIZE = sizes(BUDGET, ci={"seeds": (1, 2, 3), "updates": 60, "device": "cpu"},
             cpu={"seeds": (1, 2, 3, 4, 5), "updates": 120, "device": "cpu"},
             gpu={"seeds": (1, 2, 3, 4, 5), "updates": 120, "device": "cuda"})
QUIET = {"log_dir": tempfile.mkdtemp(), "quiet": True, "tensorboard": False,
         "device": SIZE["device"]}

# %% [markdown]
# ## The problem
#
# A language model reads a prompt and writes a response, token by token. A program, the
# **verifier**, gives a reward of 1 for a correct response and of 0 for a wrong one. The model is
# shown no correct response. This is **reinforcement learning with verifiable rewards** (RLVR). A
# response is an episode, and its only reward comes at the end.
#
# Let $y$ be a response, $\pi(y)$ its probability under the policy, and $R(y)$ its reward. We
# maximise the expected share of correct responses,
#
# $$J = \sum_y \pi(y) R(y).$$
#
# Its gradient $\nabla J$, with respect to the weights of the policy, is
#
# $$\nabla J = \sum_y \pi(y)\, R(y)\, \nabla \log \pi(y).$$
#
# A real model has too many responses for this sum. The language of `llm.tasks.testbed` is small
# enough: it has four tokens and responses of three tokens, so there are 64 responses. The policy is
# a table of logits. Each response has a random number, and it is correct if this number is above a
# threshold. A low threshold makes an easy prompt, and a high one makes a hard prompt.

# %%
def prompt(seed, threshold):
    """Rewards `[64]`, log-probabilities `[64]`, J, its gradient `[84]`, and grad log
    pi of each response `[64, 84]`."""
    bed, policy = Testbed(seed=seed), TabularPolicy(seed=seed)
    bed.rewards = (bed.rewards > threshold).double()
    log_p = bed.log_probs(policy)
    J = bed.expected_reward(log_p)
    exact, *scores = (
        torch.autograd.grad(x, policy.logits, retain_graph=True)[0].flatten()
        for x in (J, *log_p))
    return bed.rewards, log_p.detach(), J.item(), exact, torch.stack(scores)

PROMPTS = {"easy": prompt(SIZE["seeds"][0], 0.25),
           "hard": prompt(SIZE["seeds"][0], 0.97)}
for name, (rewards, log_p, J, exact, scores) in PROMPTS.items():
    error = (expectation(log_p, rewards[:, None] * scores) - exact).norm()
    print(f"{name}: {J:.3f} of the responses are correct;"
          f" the formula differs from autograd by {error:.0e}")

# %% tags=["hide-cell"]
assert all((expectation(p, r[:, None] * s) - g).norm() < 1e-12
           for r, p, J, g, s in PROMPTS.values())
assert len(rewards) == 64 and PROMPTS["easy"][2] > 0.7 and PROMPTS["hard"][2] < 0.1

# %% [markdown]
# ## Five estimates of one gradient
#
# All methods sample a **group** of $G$ responses $y_1, \dots, y_G$ to the same prompt. Their
# gradient estimate is the mean of $A_i \nabla \log \pi(y_i)$ over the group. Here $R_i$ is the
# reward of response $y_i$, and $A_i$ is its **advantage**. The methods differ in the advantage:
#
# | method | $A_i$ |
# |---|---|
# | REINFORCE | $R_i - b$; the baseline $b$ is 0, or about $J$, in practice a running mean of rewards |
# | RLOO, leave one out | $R_i$ minus the mean of the *other* rewards of the group |
# | Dr. GRPO | $R_i$ minus the mean of the group |
# | GRPO | ($R_i$ minus the mean of the group), divided by the standard deviation of the group |
#
# The baseline of RLOO does not depend on $y_i$, so it does not change the expected gradient. The
# mean of the group does contain $R_i$. Therefore the advantage of Dr. GRPO equals that of RLOO
# times the constant $(G - 1) / G$.

# %%
G = 8

def rloo(R):                         # [n, G] -> [n, G]; each row is a group
    return R - (R.sum(1, keepdim=True) - R) / (G - 1)

def dr_grpo(R):
    return R - R.mean(1, keepdim=True)

def grpo(R):
    return dr_grpo(R) / (R.std(1, correction=0, keepdim=True) + 1e-4)

def estimate(subject, advantage, n=50_000):
    """Statistics of `n` gradient estimates, in units of the exact gradient's length.

    Returns the length of their mean, their standard deviation, the angle in degrees
    between their mean and the exact gradient, and the share of estimates that are 0.
    """
    rewards, log_p, J, exact, scores = subject
    generator = torch.Generator().manual_seed(1)
    drawn = torch.multinomial(log_p.exp(), n * G, True, generator=generator)
    drawn = drawn.view(n, G)
    A = advantage(rewards[drawn])
    weights = torch.zeros(n, 64, dtype=A.dtype).scatter_add_(1, drawn, A)
    grads = weights / G @ scores / exact.norm()
    mean = grads.mean(0)
    noise = (grads - mean).square().sum(1).mean().sqrt()
    angle = torch.rad2deg(torch.cosine_similarity(mean, exact, 0).clamp(max=1).acos())
    zeros = (A == 0).all(1).double().mean()
    return [x.item() for x in (mean.norm(), noise, angle, zeros)]

found, lines = {}, []
for name, subject in PROMPTS.items():
    lines.append(f"{name + ' prompt':<20}mean   noise   angle   zeros")
    for method, advantage in {
            "REINFORCE, b = 0": lambda R: R,
            "REINFORCE, b = J": lambda R, J=subject[2]: R - J,
            "RLOO": rloo, "Dr. GRPO": dr_grpo, "GRPO": grpo}.items():
        found[name, method] = estimate(subject, advantage)
        row = "  {:<17}{:5.2f}{:8.1f}{:7.1f}°{:8.2f}"
        lines.append(row.format(method, *found[name, method]))
print(*lines, sep="\n")

# %% [markdown]
# - `mean` is the length of the mean estimate. Its unit is the length of the exact gradient.
# - `noise` is the standard deviation of one estimate, in the same unit.
# - `angle` is the angle between the mean estimate and the exact gradient.
# - `zeros` is the share of estimates that are zero.
#
# **Bias.** REINFORCE and RLOO are unbiased. The mean estimate of Dr. GRPO is too short
# by one eighth, and that of GRPO is more than twice as long as the exact gradient. All mean
# estimates point in the direction of the exact gradient.
#
# **Noise.** The noise of every estimate from eight responses is larger than the exact gradient
# itself. On the easy prompt, a baseline more than halves the noise. Without a baseline, the
# estimate reinforces every correct response, although nearly all responses are correct. On the hard
# prompt, the baseline is small and changes little. RLOO must estimate its baseline, so it is a
# little noisier than REINFORCE with $b = J$. For GRPO, the mean and the noise grow by the same
# factor. For a single prompt with rewards of 0 and 1, the division by the standard deviation changes
# only the length of the expected step.
#
# **Groups with zero variance.** If all rewards of a group are equal, every advantage is 0, and the
# group gives no learning signal. On the hard prompt, two groups in three have zero variance.

# %% tags=["hide-cell"]
generator = torch.Generator().manual_seed(0)
R = PROMPTS["easy"][0][torch.randint(64, (1000, G), generator=generator)]
theirs = [grpo_file.group_advantage(R.flatten(), G, scale)
          for scale in ("mean", "group")]
left_out = reinforce_file.leave_one_out(R.flatten(), G)
for mine, their in zip((dr_grpo(R), grpo(R), rloo(R), rloo(R) * (G - 1) / G),
                       (*theirs, left_out, theirs[0]), strict=True):
    assert torch.allclose(mine.flatten(), their, atol=1e-12)
for name in PROMPTS:
    size, noise, angle, zeros = zip(
        *(found[name, method] for _, method in list(found)[:5]), strict=True)
    assert all(abs(x - 1) < 0.1 for x in (*size[:3], size[3] * 8 / 7))
    assert 2 < size[4] < 2.9 and max(angle) < 4
    assert min(noise) > 1 and noise[1] < noise[2] < 1.2 * noise[1]
    assert abs(noise[4] / size[4] / (noise[2] / size[2]) - 1) < 0.05
    if name == "easy":
        assert noise[0] > 2 * noise[1]
    else:
        assert 1 < noise[0] / noise[1] < 1.1 and 0.6 < zeros[2] < 0.72

# %% [markdown]
# ## The effect of dividing by the standard deviation
#
# A batch contains many prompts. Then the length of each gradient matters, because it is the weight
# of its prompt. Let $p$ be the share of correct responses to a prompt. If $k$ of the $G$ rewards in
# a group are 1, the standard deviation of the group is $s_k = \sqrt{k (G - k)} / G$. The expected
# gradient of GRPO is that of RLOO times
#
# $$c(p) = \frac{\mathbb{E}[s_k]}{p (1 - p)}, \qquad k \sim \mathrm{Binomial}(G, p),$$
#
# where $\mathbb{E}$ is the expectation over $k$. The lines in the plot are the formulas. The points
# are measurements for five thresholds on each of three testbeds.

# %%
def weight(p, G):
    chances = [math.comb(G, k) * p**k * (1 - p)**(G - k) for k in range(G + 1)]
    return sum(chance * math.sqrt(k * (G - k)) / G
               for k, chance in enumerate(chances)) / p / (1 - p)

subjects = [prompt(seed, threshold) for seed in SIZE["seeds"][:3]
            for threshold in (0.2, 0.4, 0.6, 0.8, 0.9)]
methods = {"RLOO": (rloo, lambda p: 1), "Dr. GRPO": (dr_grpo, lambda p: (G - 1) / G),
           "GRPO": (grpo, lambda p: weight(p, G))}
points = {method: [(s[2], estimate(s, f, 20_000)[0]) for s in subjects]
          for method, (f, _) in methods.items()}

figure, (axes,) = panels()
p = np.linspace(0.002, 0.998, 250)
for i, (method, (_, formula)) in enumerate(methods.items()):
    axes.plot(p, [formula(x) for x in p], color=COLOURS[i], linestyle=LINES[i],
              label=method)
    axes.scatter(*zip(*points[method], strict=True), color=COLOURS[i],
                 marker="osD"[i], s=18)
axes.set(title=f"weight of a prompt, groups of {G}",
         xlabel="share of correct responses to the prompt",
         ylabel="expected / exact gradient", ylim=(0, 2.8))
axes.legend(loc="center")
show(figure, "Expected gradient, relative to the exact one, against the share of"
     " correct responses. RLOO is flat at 1, and Dr. GRPO at seven eighths. GRPO is a"
     " valley, from 2.6 at the edges to 1.9 in the middle. The measured points lie on"
     " the lines.")
print("weight of a prompt with 1 % of responses correct, relative to one with 50 %:",
      *(f"{weight(0.01, n) / weight(0.5, n):.1f} in groups of {n}" for n in (8, 64)),
      sep="\n  ")

# %% [markdown]
# GRPO therefore does not maximise $J$. It gives more weight to prompts that the policy almost never
# or almost always solves. In groups of 8, the weight of such prompts is less than one and a half
# times the weight in the middle. In groups of 64, it is three to four times the weight in the middle.
# This is a bias, but not always a harmful one. You may want more weight for hard prompts. But GRPO
# gives the same extra weight to prompts that are almost solved.
#
# ## The effect of dividing by the length
#
# The published GRPO also divides the loss of each response by its number of tokens. Dr. GRPO
# divides by a constant. To isolate this difference, take a language of three tokens, in which token
# 2 ends the response. A response is correct if it starts with token 0, so its length has no effect
# on its reward. We train the policy twice with the *exact* expected gradient, once with each
# division.

# %%
def climb(mode, length=6, updates=200):
    """J, and the mean length of responses that start with 0 and of those that start
    with 1, `[updates, 3]`."""
    bed, policy, rows = Testbed(3, length), TabularPolicy(3, length, scale=0.0), []
    ends, first = bed.sequences == 2, bed.sequences[:, 0]
    mask = (ends.cumsum(1) - ends.long() == 0).double()  # up to the first 2, included
    R, lengths = (first == 0).double(), mask.sum(1)
    for _ in range(updates):
        logp = bed.logp(policy, bed.sequences)
        p = logp.sum(1).exp().detach()
        means = ((p * lengths)[first == i].sum() / p[first == i].sum()
                 for i in (0, 1))
        rows.append([p @ R, *means])
        loss = aggregate(-logp * (p * (R - p @ R))[:, None], mask, mode=mode,
                         denominator=1, length=length)
        scale = length if mode == "constant" else 1
        with torch.no_grad():
            policy.logits -= torch.autograd.grad(loss, policy.logits)[0] * scale
    return np.array(rows)

by_length, by_constant = climb("sequence"), climb("constant")
figure, (axes,) = panels()
curves_by_name = {"its own length": by_length, "a constant": by_constant}
for i, (name, rows) in enumerate(curves_by_name.items()):
    for column, answers, marker in ((1, "correct", "o"), (2, "wrong", "x")):
        axes.plot(rows[:, column], color=COLOURS[i], linestyle=LINES[i],
                  marker=marker, markevery=40, label=f"{answers}, divided by {name}")
axes.set(title="length of responses", xlabel="updates",
         ylabel="mean number of tokens", ylim=(3, 4.7))
axes.legend(loc="upper left")
show(figure, "Mean length of responses against updates. Divided by a constant,"
     " correct and wrong responses keep their 3.6 tokens. Divided by their own"
     " length, correct ones fall to 3.2 and wrong ones rise to 3.8.")
print(f"share of correct responses at the end: {by_length[-1, 0]:.2f} (own length),"
      f" {by_constant[-1, 0]:.2f} (constant)")

# %% [markdown]
# With both divisions, nearly all responses become correct. With a constant, the lengths do not
# change at all. With the response's own length, a correct response gets more reward per token if it
# is short. A wrong response gets less penalty per token if it is long. So correct responses become
# shorter and wrong ones longer, although no reward asks for this.

# %% tags=["hide-cell"]
assert all(abs(size / methods[m][1](J) - 1) < 0.15
           for m in methods for J, size in points[m])
assert all(2.6 < weight(x, 8) < 2.65 for x in (0.002, 0.998))
assert 1.8 < weight(0.5, 8) < 1.95
assert all(1.3 < weight(x, 8) / weight(0.5, 8) < 1.5 for x in (0.01, 0.99))
assert all(2.5 < weight(x, 64) / weight(0.5, 64) < 3.5 for x in (0.01, 0.99))
assert max(weight(x, 8) for x in p) < 1.5 * weight(0.5, 8)
assert min(by_length[-1, 0], by_constant[-1, 0]) > 0.95
assert np.ptp(by_constant[:, 1:]) < 1e-9
assert 3.6 < by_constant[0, 1] < 3.61
assert by_length[-1, 1] < 3.25 and by_length[-1, 2] > 3.75

# %% [markdown]
# ## Four methods on a transformer
#
# Now take a model with too many responses to list. The task is to copy six letters, and the model
# is a transformer with one layer. Supervised fine-tuning (SFT) on correct responses stops when
# about a third of the model's responses are correct. The next cell shows one group of responses,
# and the advantages of three methods.

# %%
SMALL = {"layers": 1, "width": 32, "held_out": 128}
starts = {seed: llm.sft("copy", seed=seed, stop_accuracy=0.3, **SMALL, **QUIET)
          for seed in SIZE["seeds"]}

asked = "abcabc>"
responses = starts[SIZE["seeds"][0]].policy.respond(asked, G)
R = torch.tensor([[float(response == asked[:-1]) for response in responses]])
print("response   reward    RLOO  Dr. GRPO    GRPO")
for row in zip(responses, R[0], rloo(R)[0], dr_grpo(R)[0], grpo(R)[0], strict=True):
    print("{:<10}{:7.0f}{:8.2f}{:10.2f}{:8.2f}".format(*row))

# %% [markdown]
# From here on, each method learns from rewards alone. Each update uses 16 prompts with eight
# responses. All methods have the same initial policy and the same learning rate. The loss functions
# come from `spinup`. REINFORCE and RLOO import `policy_gradient` from `spinup/algos/vpg.py`. GRPO
# and Dr. GRPO import `clipped_surrogate` from `spinup/algos/ppo.py`. With one gradient step per
# batch, the probability ratio is 1, so the clip has no effect.

# %%
LEARN = {"prompts": 16, "lr": 5e-3, "warmup": 20, **SMALL, **QUIET}
learned = {label: [method("copy", seed=seed, model=str(start.directory),
                          total_steps=SIZE["updates"], **LEARN)
                   for seed, start in starts.items()]
           for label, method in {"REINFORCE": llm.reinforce, "RLOO": llm.rloo,
                                 "GRPO": llm.grpo, "Dr. GRPO": llm.dr_grpo}.items()}

figure, (left, right) = panels(2)
curves(left, learned, "held_out_accuracy")
left.set(title="copying six letters", xlabel="updates", ylabel="held-out accuracy",
         ylim=(0, 1))
curves(right, learned, "zero_variance")
right.set(title="groups with zero variance", xlabel="updates",
          ylabel="share of groups", ylim=(0, 1))
show(figure, "Left: held-out accuracy rises with all four methods, from about a third"
     " to about nine tenths. The curves are close together. Right: the share of"
     " groups with zero variance rises from near 0.")
for label, results in learned.items():
    print(f"{label:<10}", *(f"{result.quality:.3f}" for result in results))

# %% [markdown]
# All four methods learn the task, on every seed. At the end, their means are within a tenth of each
# other. Such a difference is too small to interpret with so few seeds. The effects in the sections
# above are real, but they matter little here, because the prompts are about equally hard and
# correct responses are equally long. Also, the steps of Adam do not depend on a constant factor of
# the gradient.
#
# The right plot shows the cost of success. As the policy improves, more and more groups contain
# only correct responses and have zero variance. `llm.dapo` samples new prompts to replace such
# groups.

# %% tags=["hide-cell"]
from spinup.algos.ppo import clipped_surrogate
from spinup.algos.vpg import policy_gradient

assert grpo_file.clipped_surrogate is clipped_surrogate
assert reinforce_file.policy_gradient is policy_gradient

# %% tags=["hide-cell", "trained"]
clipped = learned["GRPO"] + learned["Dr. GRPO"]
assert all(max(r.progress["clip_fraction"]) == 0 for r in clipped)
assert all(0.2 < start.quality < 0.5 for start in starts.values())
assert find("llm dapo").settings["max_rollouts"] > 1
for results in learned.values():
    assert all(0.2 < r.progress["held_out_accuracy"][0] < 0.5 and r.quality > 0.75
               for r in results)
    share = np.mean([r.progress["zero_variance"] for r in results], 0)
    assert share[:5].mean() < 0.12 < 0.15 < share[-5:].mean()
means = [np.mean([r.quality for r in results]) for results in learned.values()]
assert np.ptp(means) < 0.1

# %% [markdown]
# ## Break it: an initial policy that is almost never correct, and a flawed verifier
#
# Take an initial policy after only 80 updates of SFT. It writes letters, but it can hardly copy. A
# verifier that checks whole answers gives 0 to almost every response. A common remedy is partial
# credit. The verifier `in_place` rewards each letter that is in its correct place.

# %%
def in_place(prompt, response):
    wanted = prompt[:-1]
    return sum(a == b for a, b in zip(wanted, response, strict=False)) / len(wanted)

def exact_share(policy, n=200):
    problems = Copy().problems(n, np.random.default_rng(7), held_out=True)
    texts = policy.respond_all([p.prompt for p in problems], 1, policy.generator,
                               policy.max_tokens)
    return np.mean([text == p.answer
                    for text, p in zip(texts, problems, strict=True)])

weak = {seed: llm.sft("copy", seed=seed, total_steps=80, **SMALL, **QUIET)
        for seed in SIZE["seeds"]}
weak = {seed: str(start.directory) for seed, start in weak.items()}
whole = [llm.dr_grpo("copy", seed=seed, model=model, total_steps=20, **LEARN)
         for seed, model in weak.items()]
partial = [llm.dr_grpo("copy", seed=seed, model=model, reward=in_place,
                       total_steps=150, **LEARN) for seed, model in weak.items()]
truth = {"whole answers": [exact_share(r.policy) for r in whole],
         "letters": [exact_share(r.policy) for r in partial]}

figure, (axes,) = panels()
curves(axes, {"measured by the verifier": partial}, "held_out_accuracy")
axes.plot([150] * len(partial), truth["letters"], "x", color=COLOURS[1], markersize=9,
          label="true share, at the end")
axes.set(title="reward for letters in place", xlabel="updates",
         ylabel="share of correct responses", ylim=(-0.05, 1.05))
axes.legend(loc="upper left")
show(figure, "The share of correct responses, as the verifier measures it, rises from"
     " 0 to about nine tenths. Crosses at the end show the true share: 0.")
for name, results in {"whole answers": whole, "letters": partial}.items():
    measured = " ".join(f"{r.quality:.2f}" for r in results)
    true = " ".join(f"{x:.2f}" for x in truth[name])
    print(f"reward for {name}: share of correct responses, measured {measured},"
          f" true {true}")
print(asked, *partial[0].policy.respond(asked, 6), " cut off:",
      *(f"{r.progress['cut_off'][-1]:.2f}" for r in partial))

# %% [markdown]
# With the reward for whole answers, almost every group has zero variance, and the policy learns
# nothing in its 20 updates. With the reward for letters, in 150 updates, the curve rises on every
# seed, which looks like success. But if you read the responses, you see that almost none is
# correct. The policy writes the six letters, and then a seventh. `in_place` checks six places and
# ignores everything after them. If the policy stops too early, it loses the reward of the missing
# letters. If it continues, it loses nothing. So the policy has learned not to stop.
#
# This is **reward hacking**: a policy learns what the verifier measures, not what you intended. No
# number from the verifier can reveal reward hacking. You find it if you read responses. Here the
# column `cut_off`, the share of responses that reach the length limit, also shows it.

# %% tags=["hide-cell", "trained"]
assert all(np.mean(r.progress["zero_variance"]) > 0.97 for r in whole)
assert all(r.quality < 0.05 for r in whole)
for r in partial:
    assert r.progress["held_out_accuracy"][0] < 0.1 and r.quality > 0.6
    assert r.progress["cut_off"][0] < 0.8 and r.progress["cut_off"][-1] > 0.9
    assert np.mean([len(text) == 7 for text in r.policy.respond(asked, 20)]) > 0.85
assert np.mean([r.quality for r in partial]) > 0.75
assert max(map(max, truth.values())) < 0.05

# %% [markdown]
# ## Try it
#
# 1. Fix the verifier: let `in_place` give a reward only to responses of six letters. Is the true
#    share still 0? Does it rise as fast as the measured share in the plot above?
#
#    <details><summary>Answer</summary>
#
#    The true share is no longer 0. In one check on three seeds, it reached .16, .05 and .76 after
#    150 updates, and the verifier measured nearly the same. This is much slower than the .90 to .95
#    that the flawed verifier reported. The policy must now also learn to stop after six letters.
#
#    </details>
#
# 2. Use groups of 2 and of 32 responses: set `G`. (The hidden checks hold only for `G = 8`.) What
#    changes in the noise, in the weights of GRPO, and in the share of groups with zero variance?
#
#    <details><summary>Answer</summary>
#
#    The noise of RLOO on the easy prompt is 7.7 with $G = 2$, 3.0 with 8, and 1.4 with 32. With $G
#    = 2$, GRPO gives all prompts the weight 1, because every group with unequal rewards has the
#    same standard deviation. With $G = 32$, the weight is about 2 for $p = .5$ and above 5 for $p =
#    .01$. On the hard prompt, the share of groups with zero variance is .90 with $G = 2$, .67 with
#    8 and .20 with 32.
#
#    </details>
#
# 3. In the folder of your exercises, `spinup exercise start 4.4` asks you to write the advantages
#    of groups. `spinup exercise start 5.6` asks you to find a bias towards long responses.
#
# **Next**: [10. From imitation to RLHF, and over-optimisation](10_rlhf.ipynb).
