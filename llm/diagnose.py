"""Warnings in plain words about a row of the log, for patterns that often confuse people."""
import math
from pathlib import Path

from spinup.errors import UserError
from spinup.runs.display import kind_of
from spinup.runs.folders import describe, find_run
from spinup.runs.log import read_progress
from spinup.runs.records import read_result, read_run

LITTLE_CONTRAST = 0.8   # share of groups with zero variance; above this, most samples are wasted
CUT_OFF = 0.25          # share of responses that are cut off; above this, the policy mainly learns the length limit
COLLAPSED = 0.02        # nats of entropy; below this, the policy does not explore
FAR = 1.0               # nats per token from the initial policy; above this, a policy that solves nothing has collapsed
OUTVOTED = 0.5          # share of prompts with a right majority answer; below this, votes mostly reward wrong answers


def diagnose(row: dict[str, float], limit: int, measure: str = "held_out_accuracy") -> list[str]:
    """Return sentences about a row of `progress.csv`; none if there is no problem.

    limit: longest response, in tokens. measure: the column that measures the policy. If it is the held-out accuracy,
    the largest reward is 1; otherwise rewards have no maximum.
    """
    said, graded = [], measure != "held_out_accuracy"
    equal = row.get("zero_variance", 0) > LITTLE_CONTRAST
    if equal and not row.get("bonus_std", 0) > 0:             # then the policy still learns from these
        right = row.get("reward_right", row["reward"])        # with votes, a reward can be for wrong answers
        what = ("raise --temperature or --samples, or start from a policy whose responses differ more" if graded else
                "the task is nearly solved, or you need harder prompts" if right > 0.5 else
                "the policy has moved far from its initial one, so train again with a lower --lr or a larger --warmup"
                if row.get("kl_to_initial", 0.0) > FAR else
                "start from a better policy, use easier prompts or raise --samples")
        said.append("most groups (responses to one prompt) have zero variance: equal rewards give no learning signal "
                    f"({row['zero_variance']:.0%} now); {what}")
    if row.get("cut_off", 0) > CUT_OFF and math.isnan(row["reward"]):
        said.append(f"{row['cut_off']:.0%} of demonstrations are longer than {limit} tokens and are cut, so they have "
                    "no end token, and responses of the policy may not end; raise --max-tokens")
    elif row.get("cut_off", 0) > CUT_OFF:
        paid = graded or row["reward"] > 1                    # a reward of the user's own may exceed 1
        what = "are scored although they are unfinished" if paid else "rarely get a reward"
        said.append(f"{row['cut_off']:.0%} of responses are cut off at {limit} tokens and {what}; raise --max-tokens, "
                    "or wait until the policy learns to end its responses")
    if row.get("winners", 1.0) == 0:
        what = "choose a lower --keep" if graded else "start from a better policy, or raise --samples"
        said.append(f"no response reached --keep, so these updates learned nothing; {what}")
    clipped = not math.isnan(row.get("clip_fraction", math.nan))          # for other losses, 0 means a small loss
    if clipped and abs(row.get("loss", 1.0)) < 1e-3 < row.get("grad_norm", 0.0):
        said.append("the loss is 0, and this is normal here: the advantages have mean 0, but the gradient is not 0; "
                    "watch the reward instead of the loss")
    if row.get("entropy", 1.0) < COLLAPSED and (graded or row["held_out_accuracy"] < 0.9):
        said.append(f"entropy is {row['entropy']:.3f} nats: the policy almost always gives the same response and no "
                    "longer explores; a lower --lr keeps the entropy higher")
    if (right := row.get("reward_majority_right", 1.0)) < OUTVOTED:
        said.append(f"the most common answer is right for only {right:.0%} of the prompts, so `vote:` rewards a wrong "
                    f"answer to the other {1 - right:.0%}, and the accuracy falls while the reward rises; start from a "
                    "policy whose most common answers are right, or leave out vote: and use the answers of the task")
    if row.get("kl_to_initial", 0.0) > 10:
        said.append(f"the KL divergence from the initial policy is {row['kl_to_initial']:.0f} nats per token; read "
                    "some responses before you trust the reward")
    return said


def diagnose_run(directory: Path) -> list[str]:
    """Return the sentences about the rows of a run, each with the step of the first row that it is about.

    Raise UserError if the folder holds no run of a language model with a row.
    """
    directory = find_run(directory)
    data, found = read_run(directory), {}
    if "max_tokens" not in data:
        raise UserError(f"{describe(directory)} is not the run of a language model; give the folder of one")
    progress, result = read_progress(directory), read_result(directory)
    last = int(progress["steps"][-1]) if progress.get("steps") else 0
    if not last or result.get("status") == "finished" and result["steps"] != last:
        lost = f"ends at step {last:,} of {result['steps']:,}" if result else "has no row yet"
        raise UserError(f"{describe(directory)}/progress.csv {lost}; " + ("restore it" if result else "wait for a row"))
    for row in (dict(zip(progress, values, strict=True)) for values in zip(*progress.values(), strict=True)):
        for sentence in diagnose(row, data["max_tokens"], data.get("measure", "held_out_accuracy")):
            found.setdefault(kind_of(sentence), f"step {row['steps']:,.0f}: {sentence}")
    return list(found.values())
