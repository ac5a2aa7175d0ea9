"""Warnings about a row of `progress.csv` that shows a known training problem, each with something to try."""
import math
from typing import Any

import numpy as np
from gymnasium import Space, spaces

NO_GRADIENT = 1e-8      # gradient norm below which nothing is learned
AT_RANDOM = 0.9         # share of the maximum entropy above which the policy is almost random
DECIDED = 0.01          # share of the maximum entropy below which the policy no longer explores
NARROW = -4.0           # nats per action dimension: a standard deviation of 0.004 in a range of 2
FAR = 0.2               # KL divergence of one update without a KL target
HUGE_LOSS = 1e4         # value loss whose gradient dominates that of the policy
CONSTANT = 1e-3         # standard deviation over states, in a range of 2, below which actions are equal
EXPLODED = 10           # times the largest return so far
CLIPPED = 0.05          # share of the range of returns: a larger mean change of the targets is reported


def diagnose(row: dict[str, float], config: Any, actions: Space, largest: float, alike: int,
             share: float) -> list[str]:
    """Return warnings about a row; an empty list if all looks well.

    largest: the largest absolute return of an episode so far. alike: the number of episodes if all had the same return,
    else 0. share: the completed share of the run, from 0 to 1.
    """
    said = []
    rate, value_rate = ("--max-kl", "--value-lr") if hasattr(config, "max_kl") else ("--lr", "--lr")
    for name in ("pi_grad_norm", "grad_norm"):
        if abs(row.get(name, 1.0)) < NO_GRADIENT and "return_std" not in row:             # es: see below
            what = f"raise --saturation-coef or lower {rate}" if hasattr(config, "saturation_coef") else f"lower {rate}"
            said.append(f"{name} is 0: the policy no longer learns; if tanh bounds the actions, it is saturated; "
                        f"{what}, and start again")
    entropy, most = row.get("entropy", math.nan), largest_entropy(actions)
    if share > 0.5 and entropy > AT_RANDOM * most and "bonus" not in row:   # normal for curiosity
        said.append(f"entropy is {entropy:.2f} of at most {most:.2f} nats: the policy still acts nearly at random; "
                    f"raise {rate} or --total-steps, or try `spinup curiosity` if rewards are rare")
    elif share < 0.5 and (entropy < DECIDED * most or entropy / dimensions(actions) < NARROW):
        said.append(f"entropy is {entropy:.3f} nats, early in the run: the policy no longer explores; raise "
                    f"--entropy-coef or lower {rate}")
    # An intrinsic reward and hindsight goals are learning signals, too.
    if alike >= 20 and share > 0.1 and "bonus" not in row and not hasattr(config, "hindsight_goals"):
        rare = ", or try `spinup curiosity` if rewards are rare" if isinstance(actions, spaces.Discrete) else ""
        said.append(f"all {alike} episodes so far had the same return: there is no learning signal; let the reward "
                    f"depend on the actions{rare}")
    if abs(row.get("q", 0.0)) > EXPLODED * largest + 100:
        said.append(f"q is {row['q']:.3g}, but no absolute return of an episode was above {largest:.3g}: the Q-values "
                    "diverge; lower --lr, or divide the rewards")
    limits = getattr(config, "v_max", math.inf) - getattr(config, "v_min", 0.0)
    if row.get("clipped", 0.0) > CLIPPED * abs(limits):
        said.append(f"clipped is {row['clipped']:.2g}: returns exceed the limits {config.v_min:g} and "
                    f"{config.v_max:g}, so the network cannot tell them apart; start again with a lower --v-min "
                    "or a higher --v-max")
    if abs(row.get("action_std", 1.0)) < CONSTANT:
        said.append(f"action_std is {row['action_std']:.2g}: the policy takes the same action in every state; lower "
                    "--lr, or raise --explore-noise or --saturation-coef")
    for name in ("value_loss", "q_loss"):
        if row.get(name, 0.0) > HUGE_LOSS:
            cause, advice = "the rewards are large for the networks", "divide them by a constant"
            if largest**2 < HUGE_LOSS:                                    # no return explains such an error
                cause, advice = f"returns are at most {largest:.3g}, so the critic diverges", f"lower {value_rate}"
            elif hasattr(config, "normalise_reward"):
                advice = "add --normalise-reward"
                if config.normalise_reward:
                    cause, advice = "the value function diverges", f"lower {value_rate}"
            said.append(f"{name} is {row[name]:.3g}: {cause}; {advice}")
    target = getattr(config, "target_kl", 0.0)
    if row.get("kl", 0.0) > (3 * target or FAR):
        said.append(f"kl is {row['kl']:.2g}, far above {f'the target of {target}' if target else 'the usual range'}: "
                    f"an update changes the policy too much; lower {rate} or --epochs")
    if row.get("return_std", 1.0) == 0 and alike:                         # else all perturbations solve the task
        said.append("return_std is 0: all perturbations had the same return, so there is no gradient; raise --sigma")
    return said


def largest_entropy(actions: Space) -> float:
    """Entropy in nats of a uniformly random policy in a discrete space; NaN for continuous actions."""
    match actions:
        case spaces.Discrete():
            return math.log(actions.n) if actions.n > 1 else math.nan
        case spaces.MultiDiscrete():
            return float(np.log(actions.nvec).sum())
        case spaces.MultiBinary():
            return math.log(2) * math.prod(actions.shape)
    return math.nan


def dimensions(actions: Space) -> float:
    """Number of dimensions of a Box action; NaN for discrete actions."""
    return float(math.prod(actions.shape)) if isinstance(actions, spaces.Box) else math.nan
