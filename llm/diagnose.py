"""Warnings in plain words about a row of the log, for patterns that often confuse people."""
import math

LITTLE_CONTRAST = 0.8   # share of groups with zero variance; above this, most samples are wasted
CUT_OFF = 0.25          # share of responses that are cut off; above this, the policy mainly learns the length limit
COLLAPSED = 0.02        # nats of entropy; below this, the policy does not explore


def diagnose(row: dict[str, float], limit: int, measure: str = "held_out_accuracy") -> list[str]:
    """Return sentences about a row of `progress.csv`; none if there is no problem.

    limit: longest response, in tokens. measure: the column that measures the policy. If it is the held-out accuracy,
    the largest reward is 1; otherwise rewards have no maximum.
    """
    said, graded = [], measure != "held_out_accuracy"
    equal = row.get("zero_variance", 0) > LITTLE_CONTRAST
    if equal and not row.get("bonus_std", 0) > 0:             # then the policy still learns from these
        what = ("raise --temperature or --samples, or start from a policy whose responses differ more" if graded else
                "the task is nearly solved, or you need harder prompts" if row["reward"] > 0.5 else
                "start from a better policy, use easier prompts or raise --samples")
        said.append("most groups (all responses to a prompt) have zero variance: equal rewards give no learning signal "
                    f"({row['zero_variance']:.0%} now); {what}")
    if row.get("cut_off", 0) > CUT_OFF:
        what = "are scored although they are unfinished" if graded else "rarely get a reward"
        said.append(f"{row['cut_off']:.0%} of responses are cut off at {limit} tokens and {what}; raise --max-tokens, "
                    "or wait until the policy learns to end its responses")
    clipped = not math.isnan(row.get("clip_fraction", math.nan))          # for other losses, 0 means a small loss
    if clipped and abs(row.get("loss", 1.0)) < 1e-3 < row.get("grad_norm", 0.0):
        said.append("the loss is 0, and this is normal here: the advantages have mean 0, so only the gradient says "
                    "what to learn; watch the reward instead of the loss")
    if row.get("entropy", 1.0) < COLLAPSED and (graded or row["held_out_accuracy"] < 0.9):
        said.append(f"entropy is {row['entropy']:.3f} nats: the policy almost always gives the same response and no "
                    "longer explores; a lower --lr keeps the entropy higher")
    if row.get("kl_to_initial", 0.0) > 10:
        said.append(f"the KL divergence from the initial policy is {row['kl_to_initial']:.0f} nats per token; read "
                    "some responses before you trust the reward")
    return said
