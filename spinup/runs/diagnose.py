"""Sentences about a row of `progress.csv` that shows a known fault of a training, each with what to try."""
import math
from typing import Any

import numpy as np
from gymnasium import Space, spaces

NO_GRADIENT = 1e-8      # norm of a gradient below which nothing is learned
AT_RANDOM = 0.9         # share of the largest entropy above which a policy is hardly better than chance
DECIDED = 0.01          # share of the largest entropy below which a policy tries nothing new
NARROW = -4.0           # nats of a dimension of continuous actions: a deviation of 0.004, of a range of 2
FAR = 0.2               # KL divergence of one update, without a target
HUGE_LOSS = 1e4         # of the value function, whose gradient then hides that of the policy
CONSTANT = 1e-3         # deviation of actions over states, of a range of 2, below which all are the same
EXPLODED = 10           # times the largest return seen so far


def diagnose(row: dict[str, float], config: Any, actions: Space, largest: float, alike: int,
             share: float) -> list[str]:
    """Sentences about a row; none where all looks well.

    largest: the largest absolute return of an episode so far. alike: how many episodes have had the same return, if all
    of them had. share: of the run that is done, from 0 to 1.
    """
    said = []
    for name in ("pi_grad_norm", "grad_norm"):
        if abs(row.get(name, 1.0)) < NO_GRADIENT and "return_std" not in row:             # of es: see below
            what = "raise --saturation-coef or lower --lr" if hasattr(config, "saturation_coef") else "lower --lr"
            said.append(f"{name} is 0: nothing is learned any more; where tanh bounds the actions, they stay at their "
                        f"bounds; {what}, and begin again")
    entropy, most = row.get("entropy", math.nan), largest_entropy(actions)
    if share > 0.5 and entropy > AT_RANDOM * most and "bonus" not in row:   # curiosity explores on
        said.append(f"entropy is {entropy:.2f} of at most {most:.2f} nats: the policy still acts nearly at random; "
                    "raise --lr or --total-steps, or try `spinup curiosity` where rewards are rare")
    elif share < 0.5 and (entropy < DECIDED * most or entropy / dimensions(actions) < NARROW):
        said.append(f"entropy is {entropy:.3f} nats, early in the run: the policy tries nothing new any more; raise "
                    "--entropy-coef or lower --lr")
    if alike >= 20 and share > 0.1:
        said.append(f"all {alike} episodes so far had the same return: there is nothing to learn from; make rewards "
                    "less rare, or try `spinup curiosity`")
    if abs(row.get("q", 0.0)) > EXPLODED * largest + 100:
        said.append(f"q is {row['q']:.3g}, but no episode had a return beyond {largest:.3g}: the values explode; lower "
                    "--lr, or divide the rewards")
    if abs(row.get("action_std", 1.0)) < CONSTANT:
        said.append(f"action_std is {row['action_std']:.2g}: the policy takes the same action in every state; lower "
                    "--lr, or raise --explore-noise or --saturation-coef")
    for name in ("value_loss", "q_loss"):
        if row.get(name, 0.0) > HUGE_LOSS:
            cause, advice = "the rewards are large for the networks", "divide them by a constant"
            if hasattr(config, "normalise_reward"):
                advice = "add --normalise-reward"
                if config.normalise_reward:
                    cause, advice = "the values explode", "lower --lr"
            said.append(f"{name} is {row[name]:.3g}: {cause}; {advice}")
    target = getattr(config, "target_kl", 0.0)
    if row.get("kl", 0.0) > (3 * target or FAR):
        said.append(f"kl is {row['kl']:.2g}, far above {f'the target of {target}' if target else 'what is usual'}: an "
                    "update changes the policy too much; lower --lr or --epochs")
    if row.get("return_std", 1.0) == 0 and alike:                         # else all of them have solved the task
        said.append("return_std is 0: all perturbations had the same return, so there is no gradient; raise --sigma")
    return said


def largest_entropy(actions: Space) -> float:
    """Nats of a policy that acts at random in a discrete space; NaN for continuous actions."""
    match actions:
        case spaces.Discrete():
            return math.log(actions.n) if actions.n > 1 else math.nan
        case spaces.MultiDiscrete():
            return float(np.log(actions.nvec).sum())
        case spaces.MultiBinary():
            return math.log(2) * math.prod(actions.shape)
    return math.nan


def dimensions(actions: Space) -> float:
    """Numbers in an action of a Box; NaN for discrete actions."""
    return float(math.prod(actions.shape)) if isinstance(actions, spaces.Box) else math.nan
