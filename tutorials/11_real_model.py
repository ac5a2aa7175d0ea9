# %% [markdown]
# # 11. Reinforcement learning on a real language model
#
# **You will** train SmolLM2-135M-Instruct, a real chat model with 135 million parameters, with
# the function `llm.grpo` of notebook 9. You read what it writes before and after, and measure
# what it forgets. **You need** [notebook 9](09_rlvr.ipynb): groups, advantages, verifiable
# rewards. **Time**: fifteen minutes.
#
# The variable `BUDGET` selects what the notebook computes. `ci` trains nothing. It shows the
# results of one earlier run with `cpu`, from the file `11_real_model.json`. With `cpu`, the
# notebook trains twice on two CPU cores and needs 5 GB of memory. `gpu` does the same on a GPU.
# `cpu` and `gpu` need the extra `hf` and the model (100 MB). The command `spinup llm fetch
# smollm2` downloads the model. If the environment variable `SPINUP_BUDGET` is set, it overrides
# `BUDGET`.

# %%
BUDGET = "ci"

import json
import re
import tempfile
from pathlib import Path

import numpy as np
import torch

from llm.algos.grpo import group_advantage
from spinup.view.notebook import panels, show, sizes

SIZE = sizes(BUDGET, ci={"trains": False, "device": "cpu"},
             cpu={"trains": True, "device": "cpu"},
             gpu={"trains": True, "device": "cuda"})
KEPT = Path("11_real_model.json")
MODEL = "smollm2"

# %% [markdown]
# ## A task in ordinary words
#
# Each prompt asks for a sentence with two given words, such as:
#
# > Write one short sentence about a banana and a shovel.
#
# A program checks the response. The reward has four parts of 0.25 each. The first two are for the
# two given words, the third is for a single sentence, and the fourth is for a length of 1 to 12
# words. A response with a reward of 1 **solves** the problem. `llm` accepts such a reward as a
# Python function. The function may return named parts; their sum is then the reward, and each
# part becomes a column of the log.

# %%
def quarters(prompt, response):
    text = response.strip()
    first, second = re.findall(r"an? (\w+)", prompt)

    def named(word):
        return re.search(rf"\b{word}s?\b", text, re.IGNORECASE) is not None
    single = re.fullmatch(r"[^.!?]+[.!?]", text) is not None
    return {"first": named(first) / 4, "second": named(second) / 4,
            "single": single / 4, "short": (0 < len(text.split()) <= 12) / 4}

asked = "Write one short sentence about a banana and a shovel."
for text in ["The monkey digs for a banana with a shovel.",
             "The monkey digs with a shovel. It finds a banana.",
             "Bananas are yellow.", "A banana and a shovel.", ""]:
    parts = quarters(asked, text)
    print(f"{sum(parts.values()):.2f}  {text!r}")

# %% tags=["hide-cell"]
assert sum(quarters(asked, "The monkey digs for a banana with a shovel.").values()) == 1
assert sum(quarters(asked, "A banana and a shovel.").values()) == 1
assert sum(quarters(asked, "").values()) == 0

# %% [markdown]
# The fourth text is not a sentence, because it has no verb, but its reward is 1. Keep this
# loophole in mind.
#
# ## Responses before training
#
# The next cell has the whole experiment. It asks the model before training, trains it with GRPO,
# and asks it again. `general` is a list of 40 short questions that have nothing to do with the
# task. They show what the model forgets. The second run has a learning rate of 1e-4, which is too
# high.

# %%
def experiment():
    import llm
    from llm.tasks.general import General

    def ask(policy):
        general = General()
        problems = general.problems(40, np.random.default_rng(0), True)
        answers = policy.respond_all([p.prompt for p in problems], 1, None, 24)
        grades = [general.reward(*both) for both in zip(problems, answers, strict=True)]
        texts = policy.respond_all(PROMPTS, 8, policy.generator, 24)
        return {"general": sum(grades) / len(grades), "texts": texts,
                "greedy": policy.respond_all(PROMPTS, 1, None, 24)}

    found = {"before": ask(llm.load(MODEL))}
    for name, settings in RUNS.items():
        result = llm.grpo("sentence", model=MODEL, reward=quarters,
                          device=SIZE["device"], log_dir=tempfile.mkdtemp(), **settings)
        progress = {column: [float(x) for x in result.progress[column]]
                    for column in COLUMNS}
        found[name] = {"progress": progress, **ask(result.policy)}
    return found

RUNS = {"1e-5": {"lr": 1e-5, "total_steps": 12}, "1e-4": {"lr": 1e-4, "total_steps": 12}}
PROMPTS = [f"Write one short sentence about a {a} and a {b}."
           for a, b in (("banana", "shovel"), ("dog", "piano"), ("river", "candle"),
                        ("clock", "horse"))]
QUARTERS = "first", "second", "single", "short"
COLUMNS = ("steps", "held_out_reward", "held_out_accuracy", "held_out_greedy",
           "kl_of_response", "length", "entropy", "zero_variance", "wall_seconds",
           *(f"held_out_reward_{name}" for name in QUARTERS))
if SIZE["trains"]:
    found = experiment()
    KEPT.write_text(json.dumps(found, indent=1))
found = json.loads(KEPT.read_text())
before, after = found["before"], found["1e-5"]

def print_texts(texts, rows):
    for i in rows:
        reward = sum(quarters(PROMPTS[i // 8], texts[i]).values())
        print(f"  {reward:.2f}  {texts[i]!r}")

print("greedy responses:")
print_texts([text for text in before["greedy"] for _ in range(8)], range(0, 32, 8))
print(f"sampled responses to: {asked}")
print_texts(before["texts"], range(8))

# %% tags=["hide-cell"]
assert sum(sum(quarters(p, t).values()) == 1
           for p, t in zip(PROMPTS, before["greedy"], strict=True)) <= 1

# %% [markdown]
# A greedy response takes the most likely token at each step. The greedy responses make sense, but
# they have more than twelve words. The sampled responses are worse: at temperature 1, a small
# model often takes an unlikely token, and the rest of the text makes no sense. The accuracy of
# sampled responses and the accuracy of greedy responses can differ, so this notebook reports
# both.
#
# ## Where the signal comes from
#
# GRPO compares the eight responses to one prompt. The advantage of a response is its reward
# minus the mean of its group, divided by the group's standard deviation. Partial credit matters
# here, because a response with a reward of 0.75 gets a positive advantage if the mean of its
# group is lower. So a response can become more likely without solving the problem.

# %%
rewards = torch.tensor([sum(quarters(PROMPTS[i // 8], text).values())
                        for i, text in enumerate(before["texts"])])
advantages = group_advantage(rewards, 8).view(4, 8)                      # [P, G]
solved = (rewards == 1).view(4, 8)
for prompt, group, adv in zip(PROMPTS, rewards.view(4, 8), advantages, strict=True):
    print(prompt[30:])
    print("  rewards   ", *(f"{x:5.2f}" for x in group))
    print("  advantages", *(f"{x:5.1f}" for x in adv))
print(f"solved: {int(solved.sum())} of 32 responses; groups with different rewards: "
      f"{int((advantages != 0).any(1).sum())} of 4, if only solved responses had a "
      f"reward: {int((solved.any(1) & ~solved.all(1)).sum())} of 4")

# %% tags=["hide-cell"]
assert solved.sum() <= 8 and (advantages != 0).any(1).sum() >= 2
assert (advantages != 0).any(1).sum() >= (solved.any(1) & ~solved.all(1)).sum()

# %% [markdown]
# ## Twelve updates
#
# One update uses 8 prompts with 8 responses each, one gradient step, and a learning rate of
# $10^{-5}$. Notebook 9 trains its small models with a learning rate that is 500 times as large.
# The left plot shows the accuracy on held-out prompts, for sampled and for greedy responses. The
# right plot shows the four parts of the reward.

# %%
progress = after["progress"]
figure, (left, right) = panels(2)
for label, column in {"sampled": "held_out_accuracy",
                      "greedy": "held_out_greedy"}.items():
    left.plot(progress["steps"], progress[column], "o-", label=label)
for name, line in zip(QUARTERS, ("o-", "s--", "d-.", "^:"), strict=True):
    right.plot(progress["steps"], progress[f"held_out_reward_{name}"], line, label=name)
left.set(title="held-out accuracy", xlabel="updates", ylabel="share solved", ylim=(0, 1.05))
right.set(title="parts of the reward", xlabel="updates", ylabel="mean reward",
          ylim=(0, 0.26))
left.legend()
right.legend(loc="lower right")
show(figure, "Left: sampled and greedy held-out accuracy rise within twelve updates."
     " Right: the parts for a single sentence and for a short one rise most.")
print(f"sampled {progress['held_out_accuracy'][0]:.2f} ->"
      f" {progress['held_out_accuracy'][-1]:.2f}, greedy"
      f" {progress['held_out_greedy'][0]:.2f} -> {progress['held_out_greedy'][-1]:.2f}"
      f" in {progress['wall_seconds'][-1]:.0f} s")

# %% tags=["hide-cell"]
assert progress["held_out_greedy"][0] < 0.2 and progress["held_out_greedy"][-1] > 0.6
assert progress["held_out_accuracy"][-1] > progress["held_out_accuracy"][0] + 0.4

# %% [markdown]
# ## Read the texts
#
# A reward is a number. Only the texts show what the policy has learned. A run keeps some of them
# in the file `samples.jsonl` of its folder. Here are new ones:

# %%
print_texts(after["texts"], range(0, 32, 3))

def fragment(text):
    """Return whether a text only lists things, as in `A banana and a shovel.`"""
    noun = r"(?:an?|the)?\s*(?:\w+\s+)?\w+"
    return re.fullmatch(rf"{noun}\s+and\s+{noun}[.!?]", text.strip(), re.I) is not None

share = {"before": before, **{name: found[name] for name in RUNS}}
share = {name: sum(map(fragment, x["texts"])) / 32 for name, x in share.items()}
print("share of texts that only list the two words:", share)

# %% [markdown]
# The policy exploits the loophole. More than half of its texts only list the two words. With the
# higher learning rate, all of its texts do so, and the measured accuracy is 1. The verifier
# measures what we wrote down, not what we want. This is called **reward hacking**, and the curves
# above do not show it.
#
# ## Distance, length and forgetting
#
# Four numbers show how far the policy has moved. The **KL divergence** is the mean of $\log(p /
# p_0)$ over the policy's own responses, in nats per response. Here $p$ is the probability of the
# response under the policy, and $p_0$ is its probability under the initial policy. The **length**
# is the mean number of tokens. The **entropy** is that of the next token, in nats. **General** is
# the share of correct answers to the 40 questions.

# %%
print(f"{'learning rate':<14}{'greedy':>8}{'sampled':>9}{'KL (nats)':>11}{'length':>8}"
      f"{'entropy':>9}{'general':>9}")
for name in RUNS:
    row, last = found[name]["progress"], found[name]["general"]
    print(f"{name:<14}{row['held_out_greedy'][-1]:>8.2f}"
          f"{row['held_out_accuracy'][-1]:>9.2f}{row['kl_of_response'][-1]:>11.1f}"
          f"{row['length'][-1]:>8.1f}{row['entropy'][-1]:>9.2f}{last:>9.2f}")
print(f"general questions before training: {before['general']:.2f}")

# %% tags=["hide-cell"]
slow, fast = (found[name]["progress"] for name in RUNS)
assert share["before"] == 0 and share["1e-5"] > 0.5 and share["1e-4"] > 0.9
assert 3 < slow["kl_of_response"][-1] < 6 and fast["kl_of_response"][-1] < 8
assert fast["entropy"][-1] < 0.2 and slow["entropy"][-1] > 2
assert fast["length"][-1] < slow["length"][-1] < 24
assert 0 <= before["general"] - after["general"] < 0.1
assert found["1e-4"]["general"] < before["general"]

# %% [markdown]
# In twelve updates, the policy moves about five nats away from the initial policy. With the
# higher learning rate, the entropy falls below 0.1 nats: the policy writes the same sentence
# pattern for every prompt. Nothing is left to explore. Both trained policies answer fewer general
# questions correctly than the initial policy. With 40 questions, a difference of three questions
# is noise, and a difference of five is weak evidence. A real comparison needs more questions and
# more seeds.
#
# ## Try it
#
# These exercises need the model and the budget `cpu`. A run with `cpu` overwrites
# `11_real_model.json`, so copy this file first.
#
# 1. Close the loophole: move `fragment` above `quarters`, and return 0 for each part if
#    `fragment(text)` is true. Delete the hidden check that expects a reward of 1 for
#    `A banana and a shovel.` What does the policy write instead?
# 2. Add a KL penalty: `"kl_coef": 0.05` in each entry of `RUNS`. Compare the KL divergence, the
#    share of lists and the accuracy.
# 3. Train on another task: `spinup llm grpo --model smollm2 --task json`. Evaluate the trained
#    policy with `spinup llm eval DIR --task general`.
#
# This is the last notebook. `spinup exercise start`, in the folder of your exercises, writes the
# first exercise that you have not passed.
