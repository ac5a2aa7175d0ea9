"""Checks of 5.5: mean and variance from their definitions, in float64, near 0 and far from 0."""
import torch

from spinup.exercises.checks import Exercise, case

exercise = Exercise(
    kind="bug hunt", minutes=(20, 30), difficulty=3,
    hints=["The formula is correct on paper, and so is every line. Write down the squares of 1000.1 and 1000.2. How "
           "many leading digits do they share? How many of the seven digits of a float32 are left?",
           "The variance is the small difference of two large, rounded numbers. Find a formula for the variance that "
           "subtracts a mean before it squares.",
           "The variance of old and new numbers together has three parts. The first two are the old variance and the "
           "batch's variance about its own mean, each weighted by its share of the count. The third comes from the "
           "distance between the two means: (old share) x (new share) x (distance between the means)**2.",
           "torch.var_mean(batch, 0, correction=0) gives the variance and mean of the batch. delta = batch_mean - "
           "mean, share = len(batch) / total; new_mean = mean + share * delta; new_var = (1 - share) * var + share * "
           "batch_var + ..."])


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


merge.extreme("Large variances or distances are clipped now; do not clip them.", count=10.0, mean=torch.zeros(1),
              var=torch.tensor([900.0]), batch=torch.tensor([[-100.0], [40.0], [90.0]]))
merge.extreme("More digits only move the problem; find a formula that subtracts a mean before it squares.", count=9.0,
              mean=torch.tensor([16777200.0]), var=torch.tensor([1.0]),
              batch=torch.tensor([[16777196.0], [16777204.0]]))


def of_squares(count, mean, var, batch):
    total = count + len(batch)
    new_mean = (count * mean + batch.sum(0)) / total
    squares = (count * (var + mean**2) + (batch**2).sum(0)) / total
    return total, new_mean, squares, squares - new_mean**2


def parts(count, mean, var, batch, correction=0):
    batch_var, batch_mean = torch.var_mean(batch, 0, correction=correction)
    delta, share = batch_mean - mean, len(batch) / (count + len(batch))
    return count + len(batch), mean + share * delta, batch_var, delta, share


@merge.mistake("Near 0 the variance is correct. It should not change if all numbers become larger by the same amount, "
               "but it does. Run this file.")
def _(count, mean, var, batch):
    total, new_mean, _, new_var = of_squares(count, mean, var, batch)
    return total, new_mean, new_var


@merge.mistake("The variance is no longer negative, but its absolute value has the same rounding error. The negative "
               "sign only made the lost digits visible.")
def _(count, mean, var, batch):
    total, new_mean, _, new_var = of_squares(count, mean, var, batch)
    return total, new_mean, new_var.abs()


@merge.mistake("The variance has a floor now, but above the floor the rounding error is the same. A floor or a larger "
               "epsilon hides the only visible sign of the error.")
def _(count, mean, var, batch):
    total, new_mean, _, new_var = of_squares(count, mean, var, batch)
    return total, new_mean, new_var.clamp(min=0)


@merge.mistake("You subtract in float64 now, but the numbers were rounded to float32 before. Lost digits do not come "
               "back.")
def _(count, mean, var, batch):
    total, new_mean, squares, _ = of_squares(count, mean, var, batch)
    return total, new_mean, (squares.double() - new_mean.double()**2).float()


@merge.mistake("You average two variances, each about its own mean. The distance between the two means also adds "
               "variance, and this part is missing.")
def _(count, mean, var, batch):
    total, new_mean, batch_var, _, share = parts(count, mean, var, batch)
    return total, new_mean, (1 - share) * var + share * batch_var


@merge.mistake("You average standard deviations. Variances add up, standard deviations do not; and the distance "
               "between the two means is missing.")
def _(count, mean, var, batch):
    total, new_mean, batch_var, _, share = parts(count, mean, var, batch)
    return total, new_mean, ((1 - share) * var.sqrt() + share * batch_var.sqrt())**2


@merge.mistake("The distance between the two means counts too much: weight it by both shares, of the old numbers and "
               "of the new.")
def _(count, mean, var, batch):
    total, new_mean, batch_var, delta, share = parts(count, mean, var, batch)
    return total, new_mean, (1 - share) * var + share * batch_var + share * delta**2


@merge.mistake("You divide the variance of the batch by n - 1, but the running variance uses n. Use n for both; such "
               "variances can be merged again.")
def _(count, mean, var, batch):
    total, new_mean, batch_var, delta, share = parts(count, mean, var, batch, correction=1)
    return total, new_mean, (1 - share) * var + share * batch_var + share * (1 - share) * delta**2


@merge.mistake("You keep the old variance unchanged. It was computed about the old mean, and the old numbers are "
               "farther from the new mean; add this distance.")
def _(count, mean, var, batch):
    total, new_mean, _, _, share = parts(count, mean, var, batch)
    return total, new_mean, (1 - share) * var + share * ((batch - new_mean)**2).mean(0)
