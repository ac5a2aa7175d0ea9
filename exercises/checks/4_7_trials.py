"""Checks of 4.7: sums over pairs of actions in Python, and group means by loops."""
import math

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=3,
    hints=["Read a trial backwards. What does the return of an action need from the tokens after it?",
           "Keep one number per row: the return of the next action. A token of the world leaves it unchanged. For the "
           "advantages, compare each position with the same position in the other rows of its group.",
           "At an action the number becomes reward + gamma * number; at a token of the world it stays. Write it into "
           "the result only at actions. Advantages: view the rows as groups, subtract the mean over the rows of a "
           "group, and write 0 at tokens of the world.",
           "for t in reversed(range(T)): acts = mask[:, t] > 0; after = torch.where(acts, rew[:, t] + gamma * after, "
           "after). groups = returns.view(-1, samples, T), and groups.mean(1, keepdim=True)."])
make = torch.Generator().manual_seed(0)


def masks(rows, *bits):
    return torch.tensor(bits, dtype=torch.float32).expand(rows, -1).clone()


def trials(rows, *bits, hole=0.0):
    mask = masks(rows, *bits)
    return {"rew": torch.where(mask > 0, torch.randn(mask.shape, generator=make), hole), "mask": mask}


uneven = (torch.rand(5, 9, generator=make) < 0.5).float()
returns = exercise.function("trial_returns", [
    case(rew=torch.tensor([[1.0, 0, 0, 0, 1, 0]]), mask=masks(1, 1, 0, 1, 0, 1, 0), gamma=0.5),
    case(**trials(3, 1, 0, 0, 1, 0, 0, 1, 0, 0), gamma=0.9),
    case(**trials(4, 1, 0, 1, 0, 1), gamma=1.0),
    case(**trials(2, 0, 0, 1, 1, 0, 1, hole=7.0), gamma=0.7),
    case(rew=torch.randn(5, 9, generator=make), mask=uneven, gamma=0.8),
    case(**trials(2, 1, 0, 1, 0, hole=math.nan), gamma=0.9)])


@returns.reference
def pair_by_pair(rew, mask, gamma):
    found = torch.zeros_like(rew)
    for b in range(len(rew)):
        acts = [t for t in range(rew.shape[1]) if mask[b, t]]
        for i, t in enumerate(acts):
            found[b, t] = sum(gamma ** (j - i) * float(rew[b, acts[j]]) for j in range(i, len(acts)))
    return found


returns.extreme("Large rewards or returns are clipped; return the values of the equation.",
                rew=torch.tensor([[900.0, 0, -4000.0]]), mask=masks(1, 1, 0, 1), gamma=1.0)


def backwards(rew, mask, gamma, world=1.0, keep=True):
    """Returns with the discount `world` for tokens of the world, which have a return too if `keep` is False."""
    rew, found = torch.where(mask > 0, rew, 0.0), torch.zeros_like(rew)
    after = torch.zeros_like(rew[:, 0])
    for t in reversed(range(rew.shape[1])):
        acts = mask[:, t] > 0
        after = torch.where(acts, rew[:, t] + gamma * after, world * after)
        found[:, t] = torch.where(acts, after, 0.0) if keep else after
    return found


@returns.mistake("Tokens of the world discount too. They take no time: a longer description of the same step must not "
                 "change the return; discount once per action.")
def _(rew, mask, gamma):
    return backwards(rew, mask, gamma, world=gamma)


@returns.mistake("The return ends at the first token of the world, so each action gets its own reward only. An action "
                 "needs credit for what it makes possible later; carry the return through these tokens.")
def _(rew, mask, gamma):
    return backwards(rew, mask, gamma, world=0.0)


@returns.mistake("Tokens of the world have a return. The policy did not write them; write 0 there.")
def _(rew, mask, gamma):
    return backwards(rew, mask, gamma, keep=False)


@returns.mistake("Every action gets the return of the whole trial. Rewards before an action do not depend on it, and "
                 "only add noise; start the sum at the action.")
def _(rew, mask, gamma):
    total = backwards(rew, mask, gamma)
    first = mask.argmax(1)
    return torch.where(mask > 0, total.gather(1, first[:, None]), 0.0)


@returns.mistake("You sum from the front: this is the reward so far. The return of an action is what comes from it on.")
def _(rew, mask, gamma):
    return backwards(rew.flip(1), mask.flip(1), gamma).flip(1)


@returns.mistake("The first reward of the sum is already discounted. The reward of the action itself counts in full.")
def _(rew, mask, gamma):
    return gamma * backwards(rew, mask, gamma)


@returns.mistake("The discount is missing.")
def _(rew, mask, gamma):
    return backwards(rew, mask, 1.0)


@returns.mistake("The mask is not used. A token of the world takes no time, its entry in rew does not count, and its "
                 "return is 0; treat the two kinds of token differently.")
def _(rew, mask, gamma):
    return backwards(rew, torch.ones_like(mask), gamma)


@returns.mistake("You multiply by the mask. A token of the world may hold NaN, and NaN times 0 is NaN; use "
                 "torch.where.")
def _(rew, mask, gamma):
    found, after = torch.zeros_like(rew), torch.zeros_like(rew[:, 0])
    for t in reversed(range(rew.shape[1])):
        after = rew[:, t] * mask[:, t] + torch.where(mask[:, t] > 0, gamma, 1.0) * after
        found[:, t] = after * mask[:, t]
    return found


def groups():
    both = masks(2, 1, 0, 1, 0)
    found = [case(returns=torch.tensor([[2.0, 0, 1, 0], [0.0, 0, 1, 0]]), mask=both, samples=2)]
    for n, samples, bits in ((6, 3, (1, 0, 0, 1, 0, 1)), (8, 2, (1, 0, 1)), (4, 4, (0, 1, 1, 0))):
        mask = masks(n, *bits)
        found.append(case(returns=torch.randn(mask.shape, generator=make) * mask, mask=mask, samples=samples))
    hole = masks(2, 1, 0, 1)
    return [*found, case(returns=torch.where(hole > 0, torch.randn(2, 3, generator=make), torch.tensor([[5.0], [7.0]])),
                        mask=hole, samples=2)]


advantages = exercise.function("trial_advantages", groups())


@advantages.reference
def group_by_group(returns, mask, samples):
    found = torch.zeros_like(returns)
    for b in range(len(returns)):
        begin = b // samples * samples
        for t in range(returns.shape[1]):
            if mask[b, t]:
                mean = sum(float(returns[j, t]) for j in range(begin, begin + samples)) / samples
                found[b, t] = float(returns[b, t]) - mean
    return found


advantages.extreme("Large advantages are clipped; return the values of the equation.",
                   returns=torch.tensor([[3000.0], [10.0]]), mask=torch.ones(2, 1), samples=2)


@advantages.mistake("The baseline is the mean over the whole batch. Then every trial in a world with good arms looks "
                    "good; compare with trials in the same world.")
def _(returns, mask, samples):
    return torch.where(mask > 0, returns - returns.mean(0), 0.0)


@advantages.mistake("A group must be adjacent rows; you take every S-th row instead.")
def _(returns, mask, samples):
    groups = returns.view(samples, -1, returns.shape[1])
    return torch.where(mask > 0, (groups - groups.mean(0)).view(returns.shape), 0.0)


@advantages.mistake("The baseline is the mean over time, within each trial. Early actions have more rewards ahead, so "
                    "they all look good; compare with the same position in the other trials.")
def _(returns, mask, samples):
    mean = (returns * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
    return torch.where(mask > 0, returns - mean, 0.0)


@advantages.mistake("The baseline is one mean over both the trials of the group and time. Early actions have more "
                    "rewards ahead, so their advantages are too large; each position has its own mean.")
def _(returns, mask, samples):
    groups = returns.view(-1, samples, returns.shape[1])
    return torch.where(mask > 0, (groups - groups.mean((1, 2), keepdim=True)).view(returns.shape), 0.0)


@advantages.mistake("Tokens of the world have an advantage. The policy would be trained to predict the world; write 0 "
                    "there.")
def _(returns, mask, samples):
    groups = returns.view(-1, samples, returns.shape[1])
    return (groups - groups.mean(1, keepdim=True)).view(returns.shape)


@advantages.mistake("You subtract the mean of the other trials, as RLOO does. This is also correct, but the advantages "
                    "are larger by the factor S / (S - 1). Here, subtract the mean of the whole group.")
def _(returns, mask, samples):
    groups = returns.view(-1, samples, returns.shape[1])
    others = (groups.sum(1, keepdim=True) - groups) / (samples - 1)
    return torch.where(mask > 0, (groups - others).view(returns.shape), 0.0)


for divisor, correction in (("S", 0), ("S - 1", 1)):
    for floor, eps in (("no", 0.0), ("a small", 1e-8)):
        @advantages.mistake(f"You divide by the standard deviation (with {divisor} and {floor} epsilon), as GRPO does. "
                            "Here, as in Dr. GRPO, only subtract the mean.")
        def _(returns, mask, samples, correction=correction, eps=eps):
            groups = returns.view(-1, samples, returns.shape[1])
            deviation = groups.std(1, correction=correction, keepdim=True)
            adv = (groups - groups.mean(1, keepdim=True)) / (deviation + eps)
            return torch.where(mask > 0, adv.view(returns.shape), 0.0)


@advantages.mistake("The sign is wrong: a trial that earns more than the others must have a positive advantage.")
def _(returns, mask, samples):
    return -group_by_group(returns, mask, samples)


@exercise.property
def a_first_pull_that_only_informs(student):
    """Raise Wrong unless an action without a reward of its own gets credit for what the policy learned from it."""
    mask = masks(2, 1, 0, 1, 0, 1, 0)
    rew = torch.tensor([[0.0, 0, 1, 0, 1, 0], [0.0, 0, 0, 0, 0, 0]])      # the first trial found the good arm
    adv = student.trial_advantages(student.trial_returns(rew, mask, 1.0), mask, 2)
    if not torch.allclose(adv[:, 0], torch.tensor([1.0, -1.0])):
        raise Wrong("two trials in the same world: the first action earns nothing in both, but in one of them the "
                    f"later actions earn 2. The advantages of the first action must be 1 and -1, not "
                    f"{adv[:, 0].tolist()}", "trial_returns")
