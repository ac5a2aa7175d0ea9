"""Checks of 4.4: advantages by loops over exact fractions, and the exact gradient of a bandit."""
import math
from fractions import Fraction
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=2,
    hints=["A row of `reward` is a group: responses to the same prompt. The advantages of one prompt must not depend "
           "on the rewards of another.",
           "Compute everything along axis 1, with keepdim=True, so that the subtracted values match the rows. To find "
           "the groups with zero variance, compare rewards with each other; rounding makes the standard deviation "
           "unreliable.",
           "RLOO: the mean of the others is (sum of the group - own reward) / (G - 1); subtract it. GRPO: subtract the "
           "mean of the group. Where std is True, divide by (standard deviation + eps). Then write 0 where the largest "
           "reward of the group equals the smallest.",
           "others = (reward.sum(1, keepdim=True) - reward) / (reward.shape[1] - 1). deviation, mean = "
           "torch.std_mean(reward, 1, correction=0, keepdim=True). After the division, equal = reward.amax(1, "
           "keepdim=True) == reward.amin(1, keepdim=True), and torch.where(equal, ..., ...)."])


def rewards():
    make = torch.Generator().manual_seed(0)
    solved = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    return solved, *(torch.randn(shape, generator=make) for shape in ((3, 5), (6, 2), (4, 4)))


def groups():
    by_hand, *others = rewards()
    equal = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.5], [1.0, 0.0, 0.5, 0.5]])
    return [case(reward=by_hand, std=True, eps=0.0), case(reward=by_hand, std=False, eps=0.0),
            *[case(reward=x, std=True, eps=0.2) for x in others], case(reward=others[0], std=False, eps=0.2),
            case(reward=equal, std=True, eps=0.0), case(reward=equal, std=False, eps=0.0),
            case(reward=torch.tensor([[0.0, 0.004, 0.0, 0.0]]), std=True, eps=0.0)]      # small variance, but not 0


rloo_advantages = exercise.function("rloo_advantages", [case(reward=x) for x in rewards()])
grpo_advantages = exercise.function("grpo_advantages", groups())


rloo_advantages.extreme("Large advantages are clipped; return the values of the equation.",
                        reward=torch.tensor([[3000.0, -200.0, 50.0]]))
for small in (4e-4, 4e-7):
    grpo_advantages.extreme("You treat nearly equal rewards as equal, or you add a constant besides eps. "
                            "A threshold for the standard deviation depends on the unit of the reward; compare the "
                            "rewards themselves.",
                            reward=torch.tensor([[0.0, small, 0.0, 0.0]]), std=True, eps=0.0)
grpo_advantages.extreme("You treat nearly equal rewards as equal. A relative threshold depends on the mean reward; "
                        "compare the rewards themselves.",
                        reward=torch.tensor([[1.0, 1 + 2**-17, 1.0, 1.0]]), std=True, eps=0.0)
for std in (False, True):
    grpo_advantages.extreme("Large rewards or advantages are clipped; return the values of the equation.", std=std,
                            eps=0.0, reward=torch.tensor([[3000.0, -200.0, 50.0], [30.0, 31.0, 32.0]]))
grpo_advantages.extreme("Large advantages are clipped. One correct response among 401 has an advantage of 20.",
                        reward=(torch.arange(401) == 7).float()[None], std=True, eps=0.0)


@rloo_advantages.reference
def _(reward):
    adv = torch.zeros_like(reward)
    for p, group in enumerate(reward.tolist()):
        for i, own in enumerate(group):
            others = [Fraction(x) for j, x in enumerate(group) if j != i]
            adv[p, i] = float(Fraction(own) - sum(others) / len(others))
    return adv


@rloo_advantages.mistake("The baseline is the mean of the whole group, including the response itself. Then it depends "
                         "on that response, and the gradient is too small by the factor (G - 1) / G; use the mean of "
                         "the others.")
def _(reward):
    return reward - reward.mean(1, keepdim=True)


@rloo_advantages.mistake("The others come from the whole batch. Then all responses to harder prompts would look bad; "
                         "compare with responses to the same prompt.")
def _(reward):
    return reward - (reward.sum() - reward) / (reward.numel() - 1)


@rloo_advantages.mistake("You divide the sum of the others by G; there are G - 1 of them.")
def _(reward):
    return reward - (reward.sum(1, keepdim=True) - reward) / reward.shape[1]


@rloo_advantages.mistake("You divide the sum of the whole group, including the response itself, by G - 1, the number "
                         "of the others.")
def _(reward):
    return reward - reward.sum(1, keepdim=True) / (reward.shape[1] - 1)


@rloo_advantages.mistake("You subtract the sum of the others; subtract their mean.")
def _(reward):
    return reward - (reward.sum(1, keepdim=True) - reward)


@rloo_advantages.mistake("This is the baseline, the mean of the others; the advantage is the reward minus the "
                         "baseline.")
def _(reward):
    return (reward.sum(1, keepdim=True) - reward) / (reward.shape[1] - 1)


@rloo_advantages.mistake("The sign is wrong: a response that is better than the others must have a positive advantage.")
def _(reward):
    return (reward.sum(1, keepdim=True) - reward) / (reward.shape[1] - 1) - reward


@rloo_advantages.mistake("You compare responses to different prompts: a group is a row, and its responses are along "
                         "axis 1.")
def _(reward):
    return reward - (reward.sum(0, keepdim=True) - reward) / (reward.shape[0] - 1)


@grpo_advantages.reference
def _(reward, std, eps):
    adv = torch.zeros_like(reward)
    for p, group in enumerate(reward.tolist()):
        exact = [Fraction(x) for x in group]
        mean = sum(exact) / len(exact)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in exact) / len(exact))
        for i, x in enumerate(exact):
            adv[p, i] = 0.0 if x == mean else float(x - mean) / (deviation + eps if std else 1.0)
    return adv


def scaled(reward, std, eps, mean, deviation):
    adv = (reward - mean) / (deviation + eps) if std else reward - mean
    return torch.where(reward.amax(1, keepdim=True) == reward.amin(1, keepdim=True), 0.0, adv)


def moments(reward, **how):
    return {"mean": reward.mean(1, keepdim=True), "deviation": reward.std(1, correction=0, keepdim=True)} | how


@grpo_advantages.mistake("You use the mean of the whole batch. Then all responses to an easy prompt would look good; "
                         "use the mean of the group.")
def _(reward, std, eps):
    return scaled(reward, std, eps, **moments(reward, mean=reward.mean()))


@grpo_advantages.mistake("You use the standard deviation of the whole batch; in GRPO each group has its own.")
def _(reward, std, eps):
    return scaled(reward, std, eps, **moments(reward, deviation=reward.std(correction=0)))


@grpo_advantages.mistake("You use the mean and standard deviation of the whole batch; in GRPO each group has its own.")
def _(reward, std, eps):
    return scaled(reward, std, eps, reward.mean(), reward.std(correction=0))


@grpo_advantages.mistake("You divide by the variance, so the advantages depend on the unit of the reward; divide by "
                         "the standard deviation.")
def _(reward, std, eps):
    return scaled(reward, std, eps, **moments(reward, deviation=reward.var(1, correction=0, keepdim=True)))


@grpo_advantages.mistake("You use the standard deviation with G - 1, the default of torch; use the one with G.")
def _(reward, std, eps):
    return scaled(reward, std, eps, **moments(reward, deviation=reward.std(1, keepdim=True)))


@grpo_advantages.mistake("You add eps to the variance, inside the square root; add it to the standard deviation.")
def _(reward, std, eps):
    variance = reward.var(1, correction=0, keepdim=True)
    return scaled(reward, std, 0.0, **moments(reward, deviation=(variance + eps).sqrt()))


@grpo_advantages.mistake("eps is missing: without it, groups whose rewards hardly differ get advantages as large as "
                         "those of groups that differ a lot.")
def _(reward, std, eps):
    return scaled(reward, std, 0.0, **moments(reward))


@grpo_advantages.mistake("You ignore `std`. If it is False, as in Dr. GRPO, subtract the mean and do nothing else.")
def _(reward, std, eps):
    return scaled(reward, True, eps, **moments(reward))


@grpo_advantages.mistake("The standard deviation is never used; divide by it where `std` is True.")
def _(reward, std, eps):
    return scaled(reward, False, eps, **moments(reward))


@grpo_advantages.mistake("Groups of equal rewards give NaN, because you divide 0 by 0; return advantages of 0 for "
                         "them.")
def _(reward, std, eps):
    moment = moments(reward)
    return (reward - moment["mean"]) / (moment["deviation"] + eps) if std else reward - moment["mean"]


@grpo_advantages.mistake("There are two mistakes. You use the standard deviation with G - 1, the default of torch; use "
                         "the one with G. And groups of equal rewards give NaN; return advantages of 0 for them.")
def _(reward, std, eps):
    adv = reward - reward.mean(1, keepdim=True)
    return adv / (reward.std(1, keepdim=True) + eps) if std else adv


@grpo_advantages.mistake("You take mean and standard deviation along axis 0, over responses to different prompts; a "
                         "group is a row.")
def _(reward, std, eps):
    return scaled(reward.T, std, eps, **moments(reward.T)).T


@exercise.property
def equal_rewards(student):
    for size in range(3, 20):
        for reward in (0.1, 0.3, 0.7, 0.9):
            adv = student.grpo_advantages(torch.full((2, size), reward), True, 0.0)
            if not (adv.abs() < 1e-6).all():
                raise Wrong(f"{size} equal rewards of {reward} have advantages of {float(adv[0, 0]):.3g}, not 0: "
                            "rounding affects their mean and possibly their standard deviation. Compare the rewards "
                            "themselves.",
                            "grpo_advantages")


@exercise.property
def the_gradient_is_exact(student):
    """Raise Wrong unless the mean gradient over all groups of three actions of a bandit, weighted by probability, is
    correct."""
    logits, reward = torch.tensor([[0.5, -0.3, 0.1, -1.0], [1.0, 0.0, 3.0, -2.0]], dtype=torch.float64)
    logits.requires_grad_()
    log_pi = logits.log_softmax(0)
    exact = torch.autograd.grad((log_pi.exp() * reward).sum(), logits, retain_graph=True)[0]
    groups = torch.cartesian_prod(*[torch.arange(4)] * 3)
    likely = log_pi.detach()[groups].sum(1).exp()
    for name, adv, share, is_to_be in (
            ("rloo_advantages", student.rloo_advantages(reward[groups]), 1.0, "the policy gradient"),
            ("grpo_advantages", student.grpo_advantages(reward[groups], False, 0.0), 2 / 3, "2/3 of the policy "
                                                                                            "gradient")):
        each = (adv.detach() * log_pi[groups]).mean(1)
        found = torch.autograd.grad((likely * each).sum(), logits, retain_graph=True)[0]
        if not torch.allclose(found, share * exact, atol=1e-6):
            texts = [", ".join(f"{x:.4g}" for x in g.tolist()) for g in (found, share * exact)]
            raise Wrong(f"over all groups of three actions of a bandit the mean gradient is ({texts[0]}); it should be "
                        f"({texts[1]}), {is_to_be}", name)


@exercise.learning
def taste(student):
    """RLOO and GRPO with your advantages, the task taste, 60 updates each: a reward of 2 on held-out prompts"""
    import tempfile

    from llm import grpo, rloo

    def others(rewards, samples):
        return student.rloo_advantages(rewards.view(-1, samples)).flatten()

    def group(rewards, samples, scale, eps=1e-4):
        return student.grpo_advantages(rewards.view(-1, samples), scale == "group", eps).flatten()

    with (tempfile.TemporaryDirectory() as folder, patch("llm.algos.reinforce.leave_one_out", others),
          patch("llm.algos.grpo.group_advantage", group)):
        for method in (rloo, grpo):
            result = method("taste", total_steps=60, sft_accuracy=0.15, log_dir=folder, quiet=True, tensorboard=False)
            if result.quality < 2:
                raise Wrong(f"{method.__name__} with your advantages has a reward of {result.quality:.2f} on held-out "
                            "prompts after 60 updates; 2 was expected")
