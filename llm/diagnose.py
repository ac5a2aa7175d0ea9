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
    if row.get("no_contrast", 0) > LITTLE_CONTRAST:
        what = ("raise --temperature or --samples, or start from a policy that says more than one thing" if graded else
                "the task is nearly solved, or needs harder prompts" if row["reward"] > 0.5 else
                "start from a better policy, or give easier prompts or more --samples")
        said.append("most groups have no contrast: all their responses earn the same, so they teach nothing "
                    f"({row['no_contrast']:.0%} now); {what}")
    if row.get("cut_off", 0) > CUT_OFF:
        what = "are judged as they stand" if graded else "can hardly earn anything"
        said.append(f"{row['cut_off']:.0%} of answers are cut off at {limit} tokens and {what}; raise --max-tokens, or "
                    "wait until the policy has learned to stop")
    clipped = not math.isnan(row.get("clip_fraction", math.nan))          # for other losses, 0 means a small loss
    if clipped and abs(row.get("loss", 1.0)) < 1e-3 < row.get("grad_norm", 0.0):
        said.append("loss is 0 while the gradient is not: advantages whose mean is 0, at a ratio near 1, look like "
                    "this; watch the reward, for this loss says nothing")
    if row.get("entropy", 1.0) < COLLAPSED and (graded or row["held_out_accuracy"] < 0.9):
        said.append(f"entropy is {row['entropy']:.3f} nats: the policy says the same every time and will find nothing "
                    "new; a lower --lr keeps it open")
    if row.get("kl_to_start", 0.0) > 10:
        said.append(f"the policy is {row['kl_to_start']:.0f} nats a token from where it began: read its responses "
                    "before trusting the reward")
    return said
