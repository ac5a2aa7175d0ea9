"""Checks of 5.5: mean and variance as the definition has them, in float64, near 0 and far from it."""
import torch

from spinup.exercises.checks import Exercise, case

exercise = Exercise(
    kind="bug hunt", minutes=(20, 30), difficulty=3,
    hints=["The formula is right, and so is every line of it on paper. How many digits has a float32, and how many of "
           "them does the square of 1000.1 need before those that tell it from the square of 1000.2?",
           "What is small is the difference of two large numbers that were rounded. Look for a way to the variance in "
           "which nothing is squared before a mean has been subtracted from it.",
           "The variance of both together has three parts: the old one and that of the batch about its own mean, each "
           "by its share of the count, and what the distance between the two means adds: share of the old x share of "
           "the new x distance squared.",
           "torch.var_mean(batch, 0, correction=0) is the batch's own. delta = batch_mean - mean, share = len(batch) / "
           "total; new_mean = mean + share * delta; new_var = (1 - share) * var + share * batch_var + ..."])


def cases():
    def hand(shift: float):
        return case(count=2.0, mean=torch.tensor([1.0 + shift]), var=torch.tensor([1.0]),
                    batch=torch.tensor([[4.0], [6.0]]) + shift)

    make = torch.Generator().manual_seed(0)
    found = [hand(0.0), hand(8192.0), case(count=0.0, mean=torch.zeros(2), var=torch.ones(2), batch=torch.tensor(
        [[1000.1, -3000.2], [1000.2, -3000.1]]))]
    for count, shift, size in ((5.0, 1.0, 3), (40.0, 1000.0, 8), (100.0, -3000.0, 20)):
        batch = 0.3 * torch.randn(size, 4, generator=make) + shift
        found.append(case(count=count, mean=torch.randn(4, generator=make) + shift, var=torch.rand(4, generator=make),
                          batch=batch))
    return found


merge = exercise.function("merge", cases(), close=1e-3)


@merge.reference
def by_definition(count, mean, var, batch):
    old, old_var, x, total = mean.double(), var.double(), batch.double(), count + len(batch)
    new = (count * old + x.sum(0)) / total
    spread = count * (old_var + (old - new)**2) + ((x - new)**2).sum(0)
    return total, new.float(), (spread / total).float()


merge.extreme("Large variances or distances are clipped now.", count=10.0, mean=torch.zeros(1),
              var=torch.tensor([900.0]), batch=torch.tensor([[-100.0], [40.0], [90.0]]))


def of_squares(count, mean, var, batch):
    total = count + len(batch)
    new_mean = (count * mean + batch.sum(0)) / total
    squares = (count * (var + mean**2) + (batch**2).sum(0)) / total
    return total, new_mean, squares, squares - new_mean**2


def parts(count, mean, var, batch, correction=0):
    batch_var, batch_mean = torch.var_mean(batch, 0, correction=correction)
    delta, share = batch_mean - mean, len(batch) / (count + len(batch))
    return count + len(batch), mean + share * delta, batch_var, delta, share


@merge.mistake("Near 0 all is well; far from it, the variance has nothing to do with the data. The difference of two "
               "large numbers holds little but what rounding left of them.")
def _(count, mean, var, batch):
    total, new_mean, _, new_var = of_squares(count, mean, var, batch)
    return total, new_mean, new_var


@merge.mistake("The variance is no longer negative, but it is the same noise with another sign. That it came out below "
               "0 was only where one could see that its digits are lost.")
def _(count, mean, var, batch):
    total, new_mean, _, new_var = of_squares(count, mean, var, batch)
    return total, new_mean, new_var.abs()


@merge.mistake("The variance has a floor now, but above it there is the same noise. A floor, or a larger epsilon, "
               "hides the one number that showed the error.")
def _(count, mean, var, batch):
    total, new_mean, _, new_var = of_squares(count, mean, var, batch)
    return total, new_mean, new_var.clamp(min=0)


@merge.mistake("The subtraction is done in float64 now, of numbers that were rounded to float32 before. Digits that "
               "are lost do not come back.")
def _(count, mean, var, batch):
    total, new_mean, squares, _ = of_squares(count, mean, var, batch)
    return total, new_mean, (squares.double() - new_mean.double()**2).float()


@merge.mistake("Two variances are averaged, each about a mean of its own. That the two means differ spreads the "
               "numbers too, and that is missing.")
def _(count, mean, var, batch):
    total, new_mean, batch_var, _, share = parts(count, mean, var, batch)
    return total, new_mean, (1 - share) * var + share * batch_var


@merge.mistake("Deviations are averaged. They do not add up, variances do; and the distance between the two means is "
               "missing.")
def _(count, mean, var, batch):
    total, new_mean, batch_var, _, share = parts(count, mean, var, batch)
    return total, new_mean, ((1 - share) * var.sqrt() + share * batch_var.sqrt())**2


@merge.mistake("The distance between the two means counts too much: what it adds is weighted by the shares of both, "
               "the old numbers and the new.")
def _(count, mean, var, batch):
    total, new_mean, batch_var, delta, share = parts(count, mean, var, batch)
    return total, new_mean, (1 - share) * var + share * batch_var + share * delta**2


@merge.mistake("The batch's variance is divided by n - 1, the running one by n. Mixed, they are neither; take n, which "
               "can also be merged again.")
def _(count, mean, var, batch):
    total, new_mean, batch_var, delta, share = parts(count, mean, var, batch, correction=1)
    return total, new_mean, (1 - share) * var + share * batch_var + share * (1 - share) * delta**2


@merge.mistake("The old variance is taken over as it is. It was about the old mean; about the new one, the old numbers "
               "are farther away.")
def _(count, mean, var, batch):
    total, new_mean, _, _, share = parts(count, mean, var, batch)
    return total, new_mean, (1 - share) * var + share * ((batch - new_mean)**2).mean(0)
