"""Checks of 3.6: ranks by sorting, a loop over perturbations, a quadratic, and monotonic transforms."""
from unittest.mock import patch

import torch

from spinup.exercises.checks import Exercise, Wrong, case

exercise = Exercise(
    minutes=(15, 25), difficulty=3,
    hints=["A rank is a count: how many of the other returns are lower? The estimate is a weighted sum of "
           "perturbations. The weight of each is the difference between its return and the return of the opposite "
           "perturbation.",
           "Rank all returns in one list, whatever their shape. If a return is equal to k others, add half of k to its "
           "count. The estimate sums over the n perturbations and keeps the P weights separate.",
           "Ranks: the count of smaller returns + (the count of equal returns, without itself) / 2. Divide by (count "
           "of all - 1) and subtract 1/2. Estimate: the sum of (plus[i] - minus[i]) * noise[i] over i, divided by 2 n "
           "sigma.",
           "below = (flat[:, None] > flat).sum(1), and equal in the same way with ==, where flat = returns.flatten(). "
           "A vector `[n]` @ a matrix `[n, P]` is the weighted sum of the rows, `[P]`."])
make = torch.Generator().manual_seed(0)

ranks = exercise.function("centred_ranks", [
    case(returns=torch.tensor([[3.0, 1.0], [2.0, 1e9]])),
    case(returns=torch.tensor([5.0, 0.0, 0.0, 0.0, 7.0])),
    case(returns=torch.full((3, 2), 4.0)),
    case(returns=torch.randn(8, 2, generator=make) * 100),
    case(returns=torch.randint(0, 4, (6, 2), generator=make).float())])


@ranks.reference
def by_sorting(returns):
    found = returns.flatten().tolist()
    s = sorted(found)
    places = [(s.index(v) + len(s) - 1 - s[::-1].index(v)) / 2 for v in found]    # between the first and the last place
    return (torch.tensor(places) / (len(s) - 1) - 0.5).reshape(returns.shape)


ranks.extreme("Returns that differ by little are treated as equal. A rank depends on which return is larger, not on "
              "the difference; compare the returns exactly.",
              returns=torch.tensor([0.0, 1e-5, 3e-5, 1.0]))


def spread(count, shape, size):
    return (count.float() / (size - 1) - 0.5).reshape(shape)


@ranks.mistake("argsort gives which return comes first, second, third. A rank gives the position of a given return, "
               "which is the inverse permutation.")
def _(returns):
    return spread(returns.flatten().argsort(), returns.shape, returns.numel())


@ranks.mistake("Equal returns get different ranks, by their positions in the list. If all returns are equal, the step "
               "should be 0, but yours is noise; give equal returns the same rank.")
def _(returns):
    return spread(returns.flatten().argsort(stable=True).argsort(), returns.shape, returns.numel())


@ranks.mistake("Equal returns all get the lowest of their ranks. Give them the middle one, so that all ranks sum to 0.")
def _(returns):
    flat = returns.flatten()
    return spread((flat[:, None] > flat).sum(1), returns.shape, len(flat))


@ranks.mistake("The order is inverted: the best return has the rank of the worst.")
def _(returns):
    return -by_sorting(returns)


@ranks.mistake("These ranks go from 0 to 1. Subtract 1/2, so that they sum to 0. In the difference of the two signs a "
               "constant cancels; with one sign only, it would move the step towards every perturbation.")
def _(returns):
    return by_sorting(returns) + 0.5


@ranks.mistake("The best of m returns is m - 1 places above the worst; you divide by m, so no rank reaches 1/2.")
def _(returns):
    return (by_sorting(returns) + 0.5) * (returns.numel() - 1) / returns.numel() - 0.5


@ranks.mistake("You rank each column separately, plus apart from minus. Then each return is compared with only half of "
               "the others, and not with its opposite; rank all of them together.")
def _(returns):
    return by_sorting(returns) if returns.dim() == 1 else torch.stack([by_sorting(x) for x in returns.T], 1)


@ranks.mistake("You rank each column separately, and give equal returns different ranks. Rank all returns together, "
               "and give equal returns the same rank.")
def _(returns):
    return returns.argsort(stable=True, dim=0).argsort(0) / (len(returns) - 1) - 0.5


@ranks.mistake("You rank each column separately, but divide by m - 1 for the m returns of both columns. Rank all "
               "returns together.")
def _(returns):
    below, equal = (sign(returns[:, None], returns).sum(1) for sign in (torch.gt, torch.eq))
    return (below + (equal - 1) / 2) / (returns.numel() - 1) - 0.5


@ranks.mistake("You rank each pair separately. Then all pairs have the same weight, however informative they are; rank "
               "all returns together.")
def _(returns):
    return by_sorting(returns) if returns.dim() == 1 else torch.stack([by_sorting(x) for x in returns])


@ranks.mistake("These are standardised returns, not ranks. One lucky episode still outweighs all others; use ranks.")
def _(returns):
    return (returns - returns.mean()) / (returns.std() + 1e-8)


def gradient_cases():
    found = [case(noise=torch.tensor([[1.0, 2.0], [0.0, 1.0]]), returns_plus=torch.tensor([3.0, 1.0]),
                  returns_minus=torch.tensor([1.0, 2.0]), sigma=0.5)]
    for n, p, sigma in ((6, 3, 0.1), (4, 4, 2.0), (1, 5, 0.3)):
        plus, minus = (torch.randn(n, generator=make) * 10 for _ in range(2))
        found.append(case(noise=torch.randn(n, p, generator=make), returns_plus=plus, returns_minus=minus, sigma=sigma))
    return found


gradient = exercise.function("es_gradient", gradient_cases())


@gradient.reference
def one_by_one(noise, returns_plus, returns_minus, sigma):
    found = [0.0] * noise.shape[1]
    for eps, plus, minus in zip(noise.tolist(), returns_plus.tolist(), returns_minus.tolist(), strict=True):
        for k, x in enumerate(eps):
            found[k] += (plus * x + minus * -x) / sigma / (2 * len(noise))           # mean over 2n episodes
    return torch.tensor(found)


gradient.extreme("Large returns are clipped. Do not clip them: the estimate is the sum of the equation, however large "
                 "the returns are.",
                 noise=torch.tensor([[1.0, -2.0], [0.5, 30.0]]), returns_plus=torch.tensor([9000.0, -40.0]),
                 returns_minus=torch.tensor([-3000.0, 500.0]), sigma=0.5)


@gradient.mistake("sigma multiplies where it should divide: with smaller perturbations, the same difference of returns "
                  "means a steeper slope.")
def _(noise, returns_plus, returns_minus, sigma):
    return (returns_plus - returns_minus) @ noise * sigma / (2 * len(noise))


@gradient.mistake("You divide by sigma squared. A derivative divides by the size of the perturbation once; noise is "
                  "eps, not sigma times eps.")
def _(noise, returns_plus, returns_minus, sigma):
    return (returns_plus - returns_minus) @ noise / (2 * len(noise) * sigma**2)


@gradient.mistake("sigma is missing: with smaller perturbations, the same difference of returns means a steeper slope; "
                  "divide by sigma.")
def _(noise, returns_plus, returns_minus, sigma):
    return (returns_plus - returns_minus) @ noise / (2 * len(noise))


@gradient.mistake("The estimate is too large by a factor of 2: the distance between theta + sigma eps and theta - "
                  "sigma eps is 2 sigma eps.")
def _(noise, returns_plus, returns_minus, sigma):
    return (returns_plus - returns_minus) @ noise / (len(noise) * sigma)


@gradient.mistake("This is a sum over perturbations, so it grows with their number; take the mean.")
def _(noise, returns_plus, returns_minus, sigma):
    return (returns_plus - returns_minus) @ noise / (2 * sigma)


@gradient.mistake("You add the returns of the two signs. The second perturbation is -eps, so subtract its return.")
def _(noise, returns_plus, returns_minus, sigma):
    return (returns_plus + returns_minus) @ noise / (2 * len(noise) * sigma)


@gradient.mistake("Only the perturbations with a plus sign count. This is an estimate too, but a much noisier one: the "
                  "part that all returns share does not cancel. Subtract the returns of the minus sign.")
def _(noise, returns_plus, returns_minus, sigma):
    return returns_plus @ noise / (len(noise) * sigma)


@gradient.mistake("The sign is wrong: this step would decrease the returns.")
def _(noise, returns_plus, returns_minus, sigma):
    return (returns_minus - returns_plus) @ noise / (2 * len(noise) * sigma)


@gradient.mistake("You multiply the columns of noise by the returns. Returns belong to the perturbations, which are "
                  "the rows.")
def _(noise, returns_plus, returns_minus, sigma):
    return ((returns_plus - returns_minus) * noise).sum(0) / (2 * len(noise) * sigma)


@gradient.mistake("es_gradient ranks its inputs. Ranking is done once, before this function; use the returns that you "
                  "are given.")
def _(noise, returns_plus, returns_minus, sigma):
    plus, minus = by_sorting(torch.stack([returns_plus, returns_minus]))
    return (plus - minus) @ noise / (2 * len(noise) * sigma)


@gradient.mistake("es_gradient ranks its inputs, each sign separately. Ranking is done once, for the returns of "
                  "both signs together, before this function; use the returns that you are given.")
def _(noise, returns_plus, returns_minus, sigma):
    return (by_sorting(returns_plus) - by_sorting(returns_minus)) @ noise / (2 * len(noise) * sigma)


@exercise.property
def slope_of_a_quadratic(student):
    """Raise Wrong unless the estimate is the gradient of a quadratic, which perturbations leave unchanged. A constant
    added to all returns must not matter."""
    make = torch.Generator().manual_seed(0)
    root, b, theta = torch.randn(4, 4, generator=make), torch.randn(4, generator=make), torch.randn(4, generator=make)
    eps, sigma, slope = torch.randn(20_000, 4, generator=make), 0.5, b - root @ root.T @ theta

    def score(x):
        return 100 + x @ b - 0.5 * ((x @ root)**2).sum(-1)

    found = student.es_gradient(eps, score(theta + sigma * eps), score(theta - sigma * eps), sigma)
    if float((found - slope).norm() / slope.norm()) > 0.1:
        raise Wrong(f"for a quadratic the gradient is {slope.tolist()}; your estimate from 20,000 perturbations is "
                    f"{found.tolist()}",
                    "es_gradient")


@exercise.property
def order_is_all(student):
    """Raise Wrong if ranks change under a transform that keeps the order of the returns."""
    returns = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    for name, other in (("exp", returns.exp()), ("the third power", returns**3), ("5 x - 2", 5 * returns - 2)):
        if not torch.allclose(student.centred_ranks(other), student.centred_ranks(returns)):
            raise Wrong(f"ranks change if the returns are transformed by {name}, which keeps their "
                        "order", "centred_ranks")


@exercise.learning
def cartpole(student):
    """ES with your functions, CartPole, 200,000 steps: a return of 300"""
    import tempfile

    from spinup import es
    from spinup.algos.es import perturbation

    def gradient(theta, seeds, scores, sigma):
        noise = torch.stack([perturbation(seed, theta) for seed in seeds.tolist()])
        return student.es_gradient(noise, *torch.from_numpy(scores).float().T, sigma)

    def ranks(returns):
        return student.centred_ranks(torch.from_numpy(returns)).numpy()

    with tempfile.TemporaryDirectory() as folder, patch("spinup.algos.es.gradient", gradient), patch(
            "spinup.algos.es.centred_ranks", ranks):
        result = es("CartPole-v1", total_steps=200_000, log_dir=folder, quiet=True, tensorboard=False)
    found = result.progress["return_mean_100"][-1]
    if found < 300:
        raise Wrong(f"ES with your functions has a return of {found:.0f} after 200,000 steps; 300 was expected")
