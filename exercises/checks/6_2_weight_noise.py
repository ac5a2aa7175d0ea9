"""Checks of 6.2: the KL divergence as a sum over actions in float64, shifts of the logits, and a loop of sigma."""
from math import exp, log
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(10, 20), difficulty=2,
    hints=["The distance compares probabilities, not logits. In each state it is a weighted sum of log ratios. The "
           "weights are the probabilities of the policy without noise.",
           "Use log_softmax along the last axis for both policies; never take the log of a softmax, which can be 0. "
           "Sum over actions, and take the mean over states. For sigma, only whether the distance is below the target "
           "counts.",
           "Distance: (probabilities of pi) * (log-probabilities of pi - log-probabilities of pi~), summed over the "
           "last axis, then the mean. Sigma: times the factor if the distance is below the target, else divided by it.",
           "log_pi = logits.log_softmax(-1), and log_pi.exp() are the probabilities. The expression `a if condition "
           "else b` returns one of two numbers."])
make = torch.Generator().manual_seed(0)

distance = exercise.function("policy_distance", [
    case(logits=torch.tensor([[0.0, 0.0]]), noisy=torch.tensor([[0.0, 5.0]])),
    case(logits=torch.tensor([[1.0, 2, 3], [0, 0, 0]]), noisy=torch.tensor([[1.0, 2, 3], [9, 0, 1]])),
    case(logits=torch.randn(5, 4, generator=make) * 2, noisy=torch.randn(5, 4, generator=make) * 2),
    case(logits=torch.randn(3, 7, generator=make) + 50, noisy=torch.randn(3, 7, generator=make) - 20)])


def log_probabilities(logits):
    top = max(logits)
    return [x - top - log(sum(exp(y - top) for y in logits)) for x in logits]


@distance.reference
def by_sums(logits, noisy):
    total = 0.0
    for row, other in zip(logits.tolist(), noisy.tolist(), strict=True):
        log_p, log_q = log_probabilities(row), log_probabilities(other)
        total += sum(exp(a) * (a - b) for a, b in zip(log_p, log_q, strict=True))
    return torch.tensor(total / len(logits))


distance.extreme("The result is not finite, or clipped, for very unlikely actions. Compute log-probabilities directly "
                 "from the logits; the log of a softmax is -infinity where the softmax rounds to 0. `kl_divergence` of "
                 "torch.distributions also returns infinity there.",
                 logits=torch.tensor([[0.0, -30.0]]), noisy=torch.tensor([[-1000.0, 0.0]]))


@distance.mistake("The KL divergence is inverted: you weight by the perturbed policy. Weight by the policy without "
                  "noise.")
def _(logits, noisy):
    return by_sums(noisy, logits)


@distance.mistake("You sum over states. Then the distance grows with the batch; take the mean over states.")
def _(logits, noisy):
    return by_sums(logits, noisy) * len(logits)


@distance.mistake("You take the mean over actions too. The sum over actions is weighted by probabilities, which add "
                  "up to 1.")
def _(logits, noisy):
    return by_sums(logits, noisy) / logits.shape[1]


@distance.mistake("You compare the logits. They may be shifted without any effect on the policy; compare "
                  "log-probabilities.")
def _(logits, noisy):
    return (logits.softmax(-1) * (logits - noisy)).sum(-1).mean()


@distance.mistake("The weights are missing: every action counts the same, also those that the policy never takes.")
def _(logits, noisy):
    return (logits.log_softmax(-1) - noisy.log_softmax(-1)).sum(-1).mean()


@distance.mistake("The sign is wrong: a KL divergence is never negative.")
def _(logits, noisy):
    return -by_sums(logits, noisy)


@distance.mistake("The softmax is over states. The probabilities of one state must add up to 1: use the last axis.")
def _(logits, noisy):
    return by_sums(logits.T, noisy.T) * logits.shape[1] / len(logits)


@distance.mistake("This is in bits. Use the natural logarithm; the target is in nats.")
def _(logits, noisy):
    return by_sums(logits, noisy) / log(2)


sigma = exercise.function("adapted_sigma", [
    case(sigma=0.1, distance=0.2, target=0.5, factor=1.1),
    case(sigma=0.1, distance=0.8, target=0.5, factor=1.1),
    case(sigma=0.3, distance=0.5, target=0.5, factor=1.5),
    case(sigma=2.0, distance=0.0, target=0.01, factor=1.01)])


@sigma.reference
def by_logs(sigma, distance, target, factor):
    direction = 1 if target - distance > 0 else -1
    return exp(log(sigma) + direction * log(factor))


@sigma.mistake("sigma changes in the wrong direction. If the noise changes the policy too little, it must become "
               "larger.")
def _(sigma, distance, target, factor):
    return sigma / factor if distance < target else sigma * factor


@sigma.mistake("You raise sigma where the distance equals the target. The equation above raises it only where the "
               "distance is below the target.")
def _(sigma, distance, target, factor):
    return sigma * factor if distance <= target else sigma / factor


@sigma.mistake("sigma only grows. If the noise changes the policy too much, divide by the factor.")
def _(sigma, distance, target, factor):
    return sigma * factor if distance < target else sigma


@sigma.mistake("You add and subtract. A suitable sigma can differ by orders of magnitude between networks; multiply or "
               "divide by the factor.")
def _(sigma, distance, target, factor):
    return sigma + (factor - 1) if distance < target else sigma - (factor - 1)


@sigma.mistake("You correct the whole error at once. One measurement is noisy; change sigma by the factor only.")
def _(sigma, distance, target, factor):
    return sigma * target / max(distance, 1e-8)


@exercise.property
def no_distance_to_itself(student):
    """Raise Wrong unless shifted logits have distance 0 and all distances are at least 0."""
    make = torch.Generator().manual_seed(1)
    for _ in range(5):
        logits, noisy = torch.randn(4, 6, generator=make), torch.randn(4, 6, generator=make)
        shift = 10 * torch.randn(4, 1, generator=make)
        if abs(float(student.policy_distance(logits, logits + shift))) > 1e-4:
            raise Wrong("a policy has a distance from itself: a number added to all logits of a state changes no "
                        "probability", "policy_distance")
        if float(student.policy_distance(logits, noisy)) < 0:
            raise Wrong("a distance is negative", "policy_distance")


@exercise.property
def sigma_reaches_the_target(student):
    """Raise Wrong unless repeated changes bring the distance of a noisy linear policy near its target."""
    make = torch.Generator().manual_seed(2)
    features, weights, sigma, found = torch.randn(64, 8, generator=make), torch.zeros(8, 3), 1e-3, []
    for i in range(400):
        noisy = weights + sigma * torch.randn(weights.shape, generator=make)
        d = float(student.policy_distance(features @ weights, features @ noisy))
        sigma = student.adapted_sigma(sigma, d, 0.3, 1.05)
        found += [d] * (i >= 200)
    mean = sum(found) / len(found)
    if not 0.15 < mean < 0.6:
        raise Wrong("with your functions the distance should settle near its target of 0.3, but its mean is "
                    f"{mean:.3g}", "adapted_sigma")


@exercise.learning
def chain(student):
    """Parameter noise with your functions, a transformer on a chain of 20 tokens, 4,992 responses: 90% correct"""
    import tempfile

    import llm
    from llm.algos import param_noise

    with tempfile.TemporaryDirectory() as folder, patch.object(
            param_noise, "value_distance", student.policy_distance), patch.object(
            param_noise, "adapted", student.adapted_sigma):
        result = llm.param_noise("chain:length=20", log_dir=folder, quiet=True, tensorboard=False, seed=1)
    found = result.progress["held_out_accuracy"][-1]
    if found < 0.9:
        raise Wrong(f"parameter noise with your functions gives {found:.0%} correct responses after 4,992; 90% were "
                    "expected")
